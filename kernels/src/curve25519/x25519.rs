//! X25519 (RFC 7748) for a slice of requests of any length.
//!
//! The functions are those of NaCl and SUPERCOP, each for many requests at once: every request has
//! its own scalar and its own point, and no request can change the result of another. All but the
//! number of requests is secret: no branch and no address depends on it.
//!
//! Scalars are clamped as RFC 7748 asks. The top bit of a point is ignored, and a point need not be
//! reduced modulo p. Points on the twist are as good as others; a point of small order gives
//! a result that is all zero, which [`SharedKey`] tells.

use core::fmt;
use core::ops::Range;

use zeroize::Zeroize;

use super::batch::{Batch, GROUP, run};
use super::comb;
use super::convert::{Fraction, Limbs, bytes_of, load, load_limbs, store, words_of};
use super::field::{Factor, LIMBS, invert_all};
use super::ladder;
use super::lanes::Lanes;
use crate::backend::Backend;
use crate::secret::wipe;
use crate::simd::{inlined, words_mut};

/// Bytes of a scalar, a point and a shared key.
pub const BYTES: usize = 32;

/// A secret scalar: any 32 random bytes. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct SecretKey([u8; BYTES]);

impl SecretKey {
    /// The bytes, not clamped.
    pub fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

impl From<[u8; BYTES]> for SecretKey {
    fn from(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("x25519::SecretKey([redacted])")
    }
}

/// A secret key and its public key.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The scalar.
    pub secret: SecretKey,
    /// The x-coordinate of the scalar times the base point.
    pub public: [u8; BYTES],
}

/// What two parties agree on. Wiped when dropped, never printed.
#[derive(Clone, Default)]
pub struct SharedKey {
    bytes: [u8; BYTES],
    /// Zero or one.
    zero: u8,
}

/// The other party's point was of small order, so that the result is zero whatever the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllZero;

impl fmt::Display for AllZero {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer's X25519 key gives an all-zero shared key")
    }
}

impl core::error::Error for AllZero {}

impl SharedKey {
    /// The 32 bytes, unless they are all zero (RFC 7748, section 6.1).
    ///
    /// Whether they are was computed without a branch; to ask makes it public.
    pub fn as_bytes(&self) -> Result<&[u8; BYTES], AllZero> {
        if self.zero == 0 {
            Ok(&self.bytes)
        } else {
            Err(AllZero)
        }
    }
}

impl Drop for SharedKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("x25519::SharedKey([redacted])")
    }
}

/// `out[i]` = scalar · point of `requests[i]` = (scalar, point): NaCl's `crypto_scalarmult`.
///
/// # Panics
///
/// Where `requests` and `out` differ in length.
pub fn scalarmult(
    backend: Backend,
    requests: &[(&[u8; BYTES], &[u8; BYTES])],
    out: &mut [[u8; BYTES]],
) {
    assert_eq!(requests.len(), out.len(), "one result per request");
    run(backend, requests.len(), &mut Agree { requests, out });
}

/// `out[i]` = `scalars[i]` · base point: NaCl's `crypto_scalarmult_base`.
///
/// # Panics
///
/// Where `scalars` and `out` differ in length.
pub fn scalarmult_base(backend: Backend, scalars: &[&[u8; BYTES]], out: &mut [[u8; BYTES]]) {
    assert_eq!(scalars.len(), out.len(), "one result per scalar");
    run(backend, scalars.len(), &mut Base { scalars, out });
}

/// The key pairs of `seeds`, each 32 secret bytes of good randomness: NaCl's `crypto_box_keypair`.
pub fn keypair(backend: Backend, seeds: &[SecretKey]) -> Vec<KeyPair> {
    let scalars: Vec<_> = seeds.iter().map(SecretKey::as_bytes).collect();
    let mut points = vec![[0; BYTES]; seeds.len()];
    scalarmult_base(backend, &scalars, &mut points);
    let pair = |(secret, public): (&SecretKey, _)| KeyPair {
        secret: secret.clone(),
        public,
    };
    seeds.iter().zip(points).map(pair).collect()
}

/// What each secret key and the other party's public key agree on; see [`SharedKey`].
///
/// # Panics
///
/// Where `requests` and `out` differ in length.
pub fn shared_key(
    backend: Backend,
    requests: &[(&SecretKey, &[u8; BYTES])],
    out: &mut [SharedKey],
) {
    assert_eq!(requests.len(), out.len(), "one result per request");
    let requests: Vec<_> = requests
        .iter()
        .map(|(k, point)| (k.as_bytes(), *point))
        .collect();
    let mut points = vec![[0; BYTES]; requests.len()];
    scalarmult(backend, &requests, &mut points);
    for (key, point) in out.iter_mut().zip(&mut points) {
        let some = point.iter().fold(0, |some, byte| some | byte);
        // Of 0 to 255 only 0 − 1 has a bit above the eighth.
        *key = SharedKey {
            bytes: *point,
            zero: (u16::from(some).wrapping_sub(1) >> 15) as u8,
        };
        point.zeroize();
    }
}

/// Variable points: the ladder.
struct Agree<'a> {
    requests: &'a [(&'a [u8; BYTES], &'a [u8; BYTES])],
    out: &'a mut [[u8; BYTES]],
}

impl Batch for Agree<'_> {
    fn run<S: Lanes>(&mut self, s: S, range: Range<usize>) {
        let requests = &self.requests[range.clone()];
        let mut fractions = Fractions::new(s);
        for (v, requests) in requests.chunks(S::LANES).enumerate() {
            let scalar = |l: usize| {
                requests
                    .get(l)
                    .map_or([0; 4], |(k, _)| ladder::swaps(&clamped(k)))
            };
            let mut swaps = load_limbs(s, scalar);
            let u = load(s, |l| {
                requests.get(l).map_or([0; 4], |(_, u)| coordinate(u))
            });
            ladder::multiply(s, &swaps, &u, fractions.fraction(v));
            wipe(words_mut(&mut swaps));
        }
        fractions.quotients(s, &mut self.out[range]);
    }
}

/// The base point: the comb of Edwards' curve.
struct Base<'a> {
    scalars: &'a [&'a [u8; BYTES]],
    out: &'a mut [[u8; BYTES]],
}

impl Batch for Base<'_> {
    fn run<S: Lanes>(&mut self, s: S, range: Range<usize>) {
        let table = comb::table(s);
        let mut fractions = Fractions::new(s);
        for (v, scalars) in self.scalars[range.clone()].chunks(S::LANES).enumerate() {
            let scalar = |l: usize| scalars.get(l).map_or([0; 4], |k| clamped(k));
            let mut windows = load_limbs(s, |l| comb::windows(&scalar(l)));
            comb::multiply_montgomery(s, table, &windows, fractions.fraction(v));
            wipe(words_mut(&mut windows));
        }
        fractions.quotients(s, &mut self.out[range]);
    }
}

/// The scalar as RFC 7748 decodes it.
fn clamped(scalar: &[u8; BYTES]) -> [u64; 4] {
    let mut k = words_of(scalar);
    k[0] &= !7;
    k[3] = k[3] & (u64::MAX >> 1) | 1 << 62;
    k
}

/// The coordinate as RFC 7748 decodes it, not reduced.
fn coordinate(point: &[u8; BYTES]) -> [u64; 4] {
    let mut u = words_of(point);
    u[3] &= u64::MAX >> 1;
    u
}

/// Results before the shared inversion. Wiped when dropped.
struct Fractions<S: Lanes> {
    numerators: [Limbs<S>; GROUP],
    denominators: [Limbs<S>; GROUP],
    running: [Limbs<S>; GROUP],
}

impl<S: Lanes> Fractions<S> {
    fn new(s: S) -> Self {
        let zero = [[s.zero(); LIMBS]; GROUP];
        Self {
            numerators: zero,
            denominators: zero,
            running: zero,
        }
    }

    fn fraction(&mut self, v: usize) -> Fraction<'_, S> {
        Fraction {
            numerator: &mut self.numerators[v],
            denominator: &mut self.denominators[v],
        }
    }

    /// Numerators over denominators, 0 where the denominator is 0.
    fn quotients(&mut self, s: S, out: &mut [[u8; BYTES]]) {
        let vectors = out.len().div_ceil(S::LANES);
        divide(
            s,
            &mut self.numerators[..vectors],
            &mut self.denominators[..vectors],
            &mut self.running[..vectors],
        );
        for (out, x) in out.chunks_mut(S::LANES).zip(&self.numerators) {
            for (l, out) in out.iter_mut().enumerate() {
                *out = bytes_of(&store::<S>(x, l));
            }
        }
    }
}

impl<S: Lanes> Drop for Fractions<S> {
    fn drop(&mut self) {
        for limbs in [
            &mut self.numerators,
            &mut self.denominators,
            &mut self.running,
        ] {
            wipe(words_mut(limbs.as_flattened_mut()));
        }
    }
}

/// Each numerator becomes its canonical quotient.
#[inline(never)]
fn divide<S: Lanes>(
    s: S,
    numerators: &mut [Limbs<S>],
    denominators: &mut [Limbs<S>],
    running: &mut [Limbs<S>],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let denominators = denominators;
            invert_all(s, denominators, running);
            for (x, inverse) in numerators.iter_mut().zip(denominators) {
                let x_over_z = Factor::from_limbs(s, *x) * Factor::from_limbs(s, *inverse);
                *x = x_over_z.carry().canonical();
            }
        },
    ))
}
