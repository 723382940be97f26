//! X25519 (RFC 7748).
//!
//! Scalars are clamped as RFC 7748 requires. The top bit of a point is ignored, and a point need
//! not be reduced modulo p. Points on the twist are accepted too.

use super::Error;
use super::batch::VECTORS;
use super::batch_inverse::invert_all;
use super::comb;
use super::convert::{Limbs, bytes_of, load, load_limbs, store, words_of};
use super::field::{Factor, LIMBS};
use super::ladder;
use crate::backend::{Backend, dispatch_25519};
use crate::secret::{secret_bytes, wipe};
use crate::simd::{Simd, enter, words_mut};
use crate::taint::disclosed;

/// Number of bytes of a scalar, a point and a shared secret.
pub const BYTES: usize = 32;

secret_bytes!(
    /// A secret scalar: any 32 uniformly random bytes, little-endian. Clamped when it is used.
    SecretKey, BYTES
);
secret_bytes!(
    /// The secret that two parties share.
    SharedSecret, BYTES
);

/// The u-coordinate of a point, little-endian.
pub type PublicKey = [u8; BYTES];

/// A secret key to compute the public key from.
#[derive(Debug)]
pub struct KeypairJob<'a> {
    /// The secret key.
    pub secret: &'a SecretKey,
    /// Result, set by [`keypair`].
    pub result: Option<PublicKey>,
}

impl<'a> KeypairJob<'a> {
    /// Returns a job without a result.
    pub fn new(secret: &'a SecretKey) -> Self {
        Self {
            secret,
            result: None,
        }
    }
}

/// A secret key and a peer's public key to compute the shared secret from.
#[derive(Debug)]
pub struct AgreeJob<'a> {
    /// Our secret key.
    pub secret: &'a SecretKey,
    /// The peer's public key.
    pub peer: &'a PublicKey,
    /// Result, set by [`agree`].
    pub result: Option<Result<SharedSecret, Error>>,
}

impl<'a> AgreeJob<'a> {
    /// Returns a job without a result.
    pub fn new(secret: &'a SecretKey, peer: &'a PublicKey) -> Self {
        Self {
            secret,
            peer,
            result: None,
        }
    }
}

/// Computes public keys: X25519(secret, 9). Cannot fail.
pub fn keypair(backend: Backend, jobs: &mut [KeypairJob<'_>]) {
    dispatch_25519!(backend, jobs, keypair_in_lanes);
}

/// Computes shared secrets: X25519(secret, peer).
///
/// The result is [`Error::Zero`] if the peer's key has a small order, as the secret would be zero.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::curve25519::x25519::{AgreeJob, KeypairJob, SecretKey, agree, keypair};
///
/// let secrets = [1, 2].map(|byte| SecretKey::from_bytes(&[byte; 32])); // from a generator
/// let mut jobs = secrets.each_ref().map(KeypairJob::new);
/// keypair(Backend::PORTABLE, &mut jobs);
/// let [alice, bob] = jobs.map(|job| job.result.expect("set"));
///
/// let mut jobs = [AgreeJob::new(&secrets[0], &bob), AgreeJob::new(&secrets[1], &alice)];
/// agree(Backend::PORTABLE, &mut jobs);
/// let [one, other] = jobs.map(|job| job.result.expect("set").expect("a good peer's key"));
/// assert_eq!(one.as_bytes(), other.as_bytes());
/// ```
pub fn agree(backend: Backend, jobs: &mut [AgreeJob<'_>]) {
    dispatch_25519!(backend, jobs, agree_in_lanes);
}

fn keypair_in_lanes<S: Simd>(s: S, jobs: &mut [KeypairJob<'_>]) {
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let vectors = group.len().div_ceil(S::LANES);
        let mut scalars = [[s.zero(); LIMBS]; VECTORS];
        for (k, jobs) in scalars.iter_mut().zip(group.chunks(S::LANES)) {
            *k = load(s, |l| jobs.get(l).map_or([0; 4], |job| clamped(job.secret)));
        }
        let mut fractions = Fractions::new(s);
        comb::multiply(s, comb::table(s), &scalars[..vectors], |v, point| {
            let [_, y, z] = point.factors();
            fractions.set(v, on_montgomery(s, &y, &z));
        });
        wipe(words_mut(scalars.as_flattened_mut()));
        fractions.divide(s, group.len());
        for (i, job) in group.iter_mut().enumerate() {
            job.result = Some(fractions.quotient(i));
        }
    }
}

fn agree_in_lanes<S: Simd>(s: S, jobs: &mut [AgreeJob<'_>]) {
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let mut fractions = Fractions::new(s);
        for (v, jobs) in group.chunks(S::LANES).enumerate() {
            let scalar = |l: usize| jobs.get(l).map_or([0; 4], |job| clamped(job.secret));
            let point = |l: usize| jobs.get(l).map_or([0; 4], |job| coordinate(job.peer));
            let mut swaps = load_limbs(s, |l| ladder::swaps(&scalar(l)));
            let fraction = ladder::multiple_of_u(s, &swaps, &load(s, point));
            fractions.set(v, fraction);
            wipe(words_mut(&mut swaps));
        }
        fractions.divide(s, group.len());
        for (i, job) in group.iter_mut().enumerate() {
            let mut bytes = fractions.quotient(i);
            let any = bytes.iter().fold(0, |any, byte| any | byte);
            // It is public whether a secret was refused, but not which byte of it is not zero.
            job.result = Some(match disclosed(u8::from(any != 0)) {
                0 => Err(Error::Zero),
                _ => Ok(SharedSecret(bytes)),
            });
            wipe(&mut bytes);
        }
    }
}

/// Decodes the scalar as RFC 7748 says.
fn clamped(scalar: &SecretKey) -> [u64; 4] {
    let mut k = words_of(&scalar.0);
    k[0] &= !7;
    k[3] = k[3] & (u64::MAX >> 1) | 1 << 62;
    k
}

/// Decodes the coordinate as RFC 7748 says, without reducing it.
fn coordinate(point: &PublicKey) -> [u64; 4] {
    let mut u = words_of(point);
    u[3] &= u64::MAX >> 1;
    u
}

/// Results before the shared inversion. Wiped when dropped.
struct Fractions<S: Simd> {
    numerators: [Limbs<S>; VECTORS],
    denominators: [Limbs<S>; VECTORS],
    running: [Limbs<S>; VECTORS],
}

impl<S: Simd> Fractions<S> {
    fn new(s: S) -> Self {
        let zero = [[s.zero(); LIMBS]; VECTORS];
        Self {
            numerators: zero,
            denominators: zero,
            running: zero,
        }
    }

    fn set(&mut self, v: usize, [numerator, denominator]: [Limbs<S>; 2]) {
        self.numerators[v] = numerator;
        self.denominators[v] = denominator;
    }

    /// Divides the first `count` requests' numerators by their denominators; the quotient by 0 is
    /// 0.
    fn divide(&mut self, s: S, count: usize) {
        let vectors = count.div_ceil(S::LANES);
        let (denominators, running) = (&mut self.denominators, &mut self.running);
        invert_all(s, &mut denominators[..vectors], &mut running[..vectors]);
        for (x, inverse) in self.numerators.iter_mut().zip(&denominators[..vectors]) {
            *x = product(s, x, inverse);
        }
    }

    /// Returns the quotient of request `i`.
    fn quotient(&self, i: usize) -> [u8; BYTES] {
        bytes_of(&store::<S>(&self.numerators[i / S::LANES], i % S::LANES))
    }
}

impl<S: Simd> Drop for Fractions<S> {
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

/// Returns a·b, canonical.
#[inline(never)]
pub(super) fn product<S: Simd>(s: S, a: &Limbs<S>, b: &Limbs<S>) -> Limbs<S> {
    enter!(s, {
        let product = Factor::from_limbs(s, *a) * Factor::from_limbs(s, *b);
        product.carry().canonical()
    })
}

/// Returns the numerator and the denominator of u on the Montgomery curve, for a point of the
/// Edwards curve: (1 + y) / (1 − y) = (Z + Y) / (Z − Y) (RFC 7748, section 4.1).
#[inline(never)]
fn on_montgomery<S: Simd>(s: S, y: &Limbs<S>, z: &Limbs<S>) -> [Limbs<S>; 2] {
    enter!(s, {
        let y = Factor::from_limbs(s, *y).to_product();
        let z = Factor::from_limbs(s, *z).to_product();
        [(z + y).carry().limbs(), (z - y).carry().limbs()]
    })
}
