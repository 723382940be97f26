//! Ed25519 (RFC 8032) for a slice of requests of any length.
//!
//! Signing is deterministic, as the RFC has it, and in constant time: no branch and no address depends on
//! more than the number of requests and the lengths of messages. Every request has its own key.
//! Verification works on public values and takes variable time.
//!
//! A signature computed wrongly reveals the key to whoever also has the right one. This module does not
//! check what it signs: `docs/curve25519.md` has what a check would cost.

use core::fmt;
use core::ops::Range;

use sha2::{Digest, Sha512};
use zeroize::Zeroize;

use super::batch::{Batch, GROUP, run};
use super::check::{Equation, combine, digits};
use super::comb;
use super::convert::{Limbs, bits, bytes_of, load, load_limbs, store, words_of};
use super::field::{Factor, LIMBS, invert_all};
use super::lanes::Lanes;
use super::scalar::{self, Wide};
use crate::backend::Backend;
use crate::secret::wipe;
use crate::simd::{inlined, words, words_mut};

/// Bytes of a seed (RFC 8032's private key).
pub const SEED_BYTES: usize = 32;
/// Bytes of a public key.
pub const PUBLIC_BYTES: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Requests that share an inversion, at most.
const MOST: usize = GROUP * 8;

/// A key to sign with: its scalar, its prefix and its public key. Wiped when dropped, never printed.
///
/// It can only be had from a seed, so that the public key in it is the one that belongs to the
/// scalar: signing with another reveals the scalar.
#[derive(Clone)]
pub struct SigningKey {
    scalar: [u8; 32],
    prefix: [u8; 32],
    public: [u8; PUBLIC_BYTES],
}

impl SigningKey {
    /// The public key.
    pub fn public(&self) -> &[u8; PUBLIC_BYTES] {
        &self.public
    }
}

impl Drop for SigningKey {
    fn drop(&mut self) {
        self.scalar.zeroize();
        self.prefix.zeroize();
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ed25519::SigningKey([redacted])")
    }
}

/// The keys of `seeds`, each 32 secret bytes of good randomness (RFC 8032, section 5.1.5).
pub fn keys(backend: Backend, seeds: &[&[u8; SEED_BYTES]]) -> Vec<SigningKey> {
    let mut keys: Vec<SigningKey> = seeds.iter().map(|seed| expand(seed)).collect();
    let mut scalars: Vec<_> = keys.iter().map(|key| words_of(&key.scalar)).collect();
    let mut points = vec![[0; PUBLIC_BYTES]; keys.len()];
    run(
        backend,
        keys.len(),
        &mut Multiples {
            scalars: &scalars,
            out: &mut points,
        },
    );
    scalars.as_flattened_mut().zeroize();
    for (key, point) in keys.iter_mut().zip(points) {
        key.public = point;
    }
    keys
}

/// `out[i]` = the public key of `seeds[i]`.
///
/// # Panics
///
/// Where `seeds` and `out` differ in length.
pub fn public_key(backend: Backend, seeds: &[&[u8; SEED_BYTES]], out: &mut [[u8; PUBLIC_BYTES]]) {
    assert_eq!(seeds.len(), out.len(), "one result per seed");
    for (out, key) in out.iter_mut().zip(keys(backend, seeds)) {
        *out = key.public;
    }
}

/// `out[i]` = the signature of `requests[i]` = (key, message) (RFC 8032, section 5.1.6).
///
/// # Panics
///
/// Where `requests` and `out` differ in length.
pub fn sign(
    backend: Backend,
    requests: &[(&SigningKey, &[u8])],
    out: &mut [[u8; SIGNATURE_BYTES]],
) {
    assert_eq!(requests.len(), out.len(), "one result per request");
    run(backend, requests.len(), &mut Sign { requests, out });
}

/// `out[i]` = whether `requests[i]` = (public key, message, signature) is good. Variable time.
///
/// RFC 8032, section 5.1.7, with the equation that has no cofactor; verdicts are those of OpenSSL: the second
/// half of a signature must be below L, its first half must be the canonical encoding of the point, while
/// the y-coordinate of a public key need not be below p.
///
/// # Panics
///
/// Where `requests` and `out` differ in length.
pub fn verify_vartime(
    backend: Backend,
    requests: &[(&[u8; PUBLIC_BYTES], &[u8], &[u8; SIGNATURE_BYTES])],
    out: &mut [bool],
) {
    assert_eq!(requests.len(), out.len(), "one result per request");
    run(backend, requests.len(), &mut Verify { requests, out });
}

/// RFC 8032, section 5.1.5, steps 1 and 2; the public key is still to be computed.
fn expand(seed: &[u8; SEED_BYTES]) -> SigningKey {
    let mut hash: [u8; 64] = Sha512::digest(seed).into();
    let mut key = SigningKey {
        scalar: [0; 32],
        prefix: [0; 32],
        public: [0; PUBLIC_BYTES],
    };
    key.scalar.copy_from_slice(&hash[..32]);
    key.prefix.copy_from_slice(&hash[32..]);
    hash.zeroize();
    key.scalar[0] &= 0xf8;
    key.scalar[31] = key.scalar[31] & 0x7f | 0x40;
    key
}

/// Base point multiplication.
struct Multiples<'a> {
    scalars: &'a [[u64; 4]],
    out: &'a mut [[u8; 32]],
}

impl Batch for Multiples<'_> {
    fn run<S: Lanes>(&mut self, s: S, range: Range<usize>) {
        let mut points = Points::new(s);
        base_points(s, &mut points, range.len(), |i| {
            self.scalars[range.start + i]
        });
        points.encode(s, &mut self.out[range]);
    }
}

struct Sign<'a> {
    requests: &'a [(&'a SigningKey, &'a [u8])],
    out: &'a mut [[u8; SIGNATURE_BYTES]],
}

impl Batch for Sign<'_> {
    fn run<S: Lanes>(&mut self, s: S, range: Range<usize>) {
        let requests = &self.requests[range.clone()];
        let out = &mut self.out[range];
        let vectors = requests.len().div_ceil(S::LANES);
        let zero = [s.zero(); LIMBS];
        // r, modulo L but not below it.
        let mut nonces = [zero; GROUP];
        let mut points = Points::new(s);
        for (v, requests) in requests.chunks(S::LANES).enumerate() {
            let mut wide = hash_lanes(s, requests.len(), |l, hash| {
                let (key, message) = requests[l];
                hash.update(key.prefix);
                hash.update(message);
            });
            scalar::reduce(s, &wide, &mut nonces[v]);
            wipe(words_mut(wide.as_flattened_mut()));
        }
        let nonce = |i: usize| store::<S>(&nonces[i / S::LANES], i % S::LANES);
        base_points(s, &mut points, requests.len(), nonce);
        let mut encoded = [[0; 32]; MOST];
        points.encode(s, &mut encoded[..requests.len()]);
        for (v, r) in nonces.iter().enumerate().take(vectors) {
            let from = v * S::LANES;
            let requests = &requests[from..requests.len().min(from + S::LANES)];
            let points = &encoded[from..from + S::LANES];
            let k = hash_lanes(s, requests.len(), |l, hash| {
                let (key, message) = requests[l];
                hash.update(points[l]);
                hash.update(key.public);
                hash.update(message);
            });
            let mut a = load(s, |l| {
                requests
                    .get(l)
                    .map_or([0; 4], |(key, _)| words_of(&key.scalar))
            });
            let mut sum = zero;
            scalar::multiply_add(s, &k, &a, r, &mut sum);
            for l in 0..requests.len() {
                let out = &mut out[from + l];
                out[..32].copy_from_slice(&points[l]);
                out[32..].copy_from_slice(&bytes_of(&scalar::canonical(store::<S>(&sum, l))));
            }
            wipe(words_mut(&mut a));
            wipe(words_mut(&mut sum));
        }
        wipe(words_mut(nonces.as_flattened_mut()));
    }
}

struct Verify<'a> {
    requests: &'a [(&'a [u8; PUBLIC_BYTES], &'a [u8], &'a [u8; SIGNATURE_BYTES])],
    out: &'a mut [bool],
}

impl Batch for Verify<'_> {
    fn run<S: Lanes>(&mut self, s: S, range: Range<usize>) {
        let requests = &self.requests[range.clone()];
        let out = &mut self.out[range];
        let table = comb::table(s);
        let mut points = Points::new(s);
        for (v, requests) in requests.chunks(S::LANES).enumerate() {
            let k = hash_lanes(s, requests.len(), |l, hash| {
                let (public, message, signature) = requests[l];
                hash.update(&signature[..32]);
                hash.update(public);
                hash.update(message);
            });
            let mut reduced = [s.zero(); LIMBS];
            scalar::reduce(s, &k, &mut reduced);
            let k = load_limbs(s, |l| digits(&scalar::canonical(store::<S>(&reduced, l))));
            let public = |l: usize| requests.get(l).map_or([0; 4], |(key, ..)| words_of(key));
            let y = load(s, |l| {
                let [a, b, c, d] = public(l);
                [a, b, c, d & (u64::MAX >> 1)]
            });
            let [sign] = load_limbs(s, |l| [public(l)[3] >> 63]);
            let halves = |l: usize| {
                requests
                    .get(l)
                    .map_or([0; 4], |(.., sig)| words_of(second_half(sig)))
            };
            let windows = load_limbs(s, |l| comb::windows(&halves(l)));
            let mut valid = s.zero();
            combine(
                s,
                table,
                Equation {
                    y: &y,
                    sign,
                    k: &k,
                    windows: &windows,
                    out: points.vector(v),
                    valid: &mut valid,
                },
            );
            let valid = words(core::slice::from_ref(&valid));
            for l in 0..requests.len() {
                out[v * S::LANES + l] = valid[l] == 1 && scalar::is_canonical_vartime(&halves(l));
            }
        }
        let mut encoded = [[0; 32]; MOST];
        points.encode(s, &mut encoded[..requests.len()]);
        for ((good, point), (.., signature)) in out.iter_mut().zip(&encoded).zip(requests) {
            *good &= point[..] == signature[..32];
        }
    }
}

fn second_half(signature: &[u8; SIGNATURE_BYTES]) -> &[u8; 32] {
    signature[32..]
        .first_chunk()
        .expect("a signature has 64 bytes")
}

/// What SHA-512 gives for `count` lanes that `feed` fills; 0 in the others.
fn hash_lanes<S: Lanes>(s: S, count: usize, feed: impl Fn(usize, &mut Sha512)) -> Wide<S> {
    let mut hashes = [[0_u64; 8]; 8];
    for (l, words) in hashes.iter_mut().enumerate().take(count) {
        let mut hash = Sha512::new();
        feed(l, &mut hash);
        let mut bytes: [u8; 64] = hash.finalize().into();
        *words = core::array::from_fn(|i| {
            u64::from_le_bytes(core::array::from_fn(|j| bytes[8 * i + j]))
        });
        bytes.zeroize();
    }
    let limbs = |from: usize| {
        load_limbs(s, |l| {
            core::array::from_fn(|i| bits(&hashes[l], from + 52 * i, 52))
        })
    };
    let wide = [limbs(0), limbs(52 * LIMBS)];
    hashes.as_flattened_mut().zeroize();
    wide
}

/// Multiples of the base point, `count` of them, the scalars below 2^256.
fn base_points<S: Lanes>(
    s: S,
    points: &mut Points<S>,
    count: usize,
    scalar: impl Fn(usize) -> [u64; 4],
) {
    let table = comb::table(s);
    for v in 0..count.div_ceil(S::LANES) {
        let mut windows = load_limbs(s, |l| {
            let i = v * S::LANES + l;
            comb::windows(&if i < count { scalar(i) } else { [0; 4] })
        });
        comb::multiply_edwards(s, table, &windows, points.vector(v));
        wipe(words_mut(&mut windows));
    }
}

/// Points X : Y : Z before the shared inversion. Wiped when dropped.
struct Points<S: Lanes> {
    x: [Limbs<S>; GROUP],
    y: [Limbs<S>; GROUP],
    z: [Limbs<S>; GROUP],
    running: [Limbs<S>; GROUP],
}

impl<S: Lanes> Points<S> {
    fn new(s: S) -> Self {
        let zero = [[s.zero(); LIMBS]; GROUP];
        Self {
            x: zero,
            y: zero,
            z: zero,
            running: zero,
        }
    }

    fn vector(&mut self, v: usize) -> [&mut Limbs<S>; 3] {
        [&mut self.x[v], &mut self.y[v], &mut self.z[v]]
    }

    /// RFC 8032, section 5.1.2: y, and the parity of x in the top bit.
    fn encode(&mut self, s: S, out: &mut [[u8; 32]]) {
        affine(s, self, out.len().div_ceil(S::LANES));
        for (v, out) in out.chunks_mut(S::LANES).enumerate() {
            for (l, out) in out.iter_mut().enumerate() {
                let parity = store::<S>(&self.x[v], l)[0] & 1;
                let mut y = store::<S>(&self.y[v], l);
                y[3] |= parity << 63;
                *out = bytes_of(&y);
            }
        }
    }
}

impl<S: Lanes> Drop for Points<S> {
    fn drop(&mut self) {
        for limbs in [&mut self.x, &mut self.y, &mut self.z, &mut self.running] {
            wipe(words_mut(limbs.as_flattened_mut()));
        }
    }
}

/// X and Y of the first `vectors` become canonical x and y.
#[inline(never)]
fn affine<S: Lanes>(s: S, points: &mut Points<S>, vectors: usize) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let points = points;
            invert_all(s, &mut points.z[..vectors], &mut points.running[..vectors]);
            for v in 0..vectors {
                let inverse = Factor::from_limbs(s, points.z[v]);
                let (x, y) = (points.x[v], points.y[v]);
                points.x[v] = (Factor::from_limbs(s, x) * inverse).carry().canonical();
                points.y[v] = (Factor::from_limbs(s, y) * inverse).carry().canonical();
            }
        },
    ));
}
