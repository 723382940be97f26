//! Ed25519 (RFC 8032, without context and without prehashing).
//!
//! Signing is deterministic, as the RFC requires, and in constant time: branches and addresses
//! depend only on the number of requests and the lengths of messages. Verification works on public
//! values and takes variable time.

use core::fmt;

use lockstep_vault::{Boxed, OnFork};

use super::Error;
use super::batch::VECTORS;
use super::batch_inverse::invert_all;
use super::comb::{self, Table};
use super::convert::{Limbs, bytes_of, load, load_limbs, store, words_of};
use super::edwards::{self, is_on_curve, scaled};
use super::field::LIMBS;
use super::half_size;
use super::scalar::{self, Wide};
use super::verify_equation::{self, minus_points};
use crate::backend::{Backend, dispatch_25519};
use crate::fault::{self, Point};
use crate::modular::Field;
use crate::secret::{secret_bytes, wipe};
use crate::sha512::{self, Message};
use crate::simd::{CHOOSE, MAX_LANES, Simd, enter, words, words_mut};
use crate::taint::disclosed;
use crate::unroll::five_limbs;

/// Number of bytes of a seed and of a public key.
pub const BYTES: usize = 32;
/// Number of bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

secret_bytes!(
    /// The private key in the words of RFC 8032: 32 uniformly random bytes.
    Seed, BYTES
);

/// The encoding of a point: y, little-endian, with the parity of x in the top bit.
pub type PublicKey = [u8; BYTES];

/// The encoding of R, then S, little-endian.
pub type Signature = [u8; SIGNATURE_BYTES];

/// A key to sign with: its scalar, its prefix and its public key. Wiped when it is dropped, never
/// printed.
///
/// It is made from a seed only, so that its public key belongs to its scalar: a signature with
/// another public key would reveal the scalar.
#[derive(Clone)]
pub struct SecretKey {
    /// Scalar and prefix, boxed so that a move of the key does not copy them.
    halves: Boxed<[[u8; BYTES]; 2]>,
    public: PublicKey,
}

impl SecretKey {
    /// Computes the key of a seed. [`keypair`] computes many keys in less time.
    pub fn from_seed(backend: Backend, seed: &Seed) -> Self {
        let mut job = [KeypairJob::new(seed)];
        keypair(backend, &mut job);
        let [job] = job;
        job.result.expect("every job is served")
    }

    /// Returns the public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    fn scalar(&self) -> &[u8; BYTES] {
        &self.halves[0]
    }

    fn prefix(&self) -> &[u8; BYTES] {
        &self.halves[1]
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey([redacted])")
    }
}

/// A seed to compute a key from.
#[derive(Debug)]
pub struct KeypairJob<'a> {
    /// The seed.
    pub seed: &'a Seed,
    /// Result, set by [`keypair`].
    pub result: Option<SecretKey>,
}

impl<'a> KeypairJob<'a> {
    /// Returns a job without a result.
    pub fn new(seed: &'a Seed) -> Self {
        Self { seed, result: None }
    }
}

/// A message to sign.
#[derive(Debug)]
pub struct SignJob<'a> {
    /// The key.
    pub key: &'a SecretKey,
    /// The message, of any length.
    pub message: &'a [u8],
    /// Result, set by [`sign`].
    pub result: Option<Result<Signature, Error>>,
}

impl<'a> SignJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a SecretKey, message: &'a [u8]) -> Self {
        Self {
            key,
            message,
            result: None,
        }
    }
}

/// A signature to check.
#[derive(Debug)]
pub struct VerifyJob<'a> {
    /// The signer's public key.
    pub key: &'a PublicKey,
    /// The message, of any length.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a Signature,
    /// Result, set by [`verify_vartime`].
    pub result: Option<Result<(), Error>>,
}

impl<'a> VerifyJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a PublicKey, message: &'a [u8], signature: &'a Signature) -> Self {
        Self {
            key,
            message,
            signature,
            result: None,
        }
    }
}

/// A signature to check with the key that made it.
#[derive(Debug)]
pub struct CheckJob<'a> {
    /// The key that made the signature.
    pub key: &'a SecretKey,
    /// The message.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a Signature,
    /// Result, set by [`check`].
    pub result: Option<Result<(), Error>>,
}

impl<'a> CheckJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a SecretKey, message: &'a [u8], signature: &'a Signature) -> Self {
        Self {
            key,
            message,
            signature,
            result: None,
        }
    }
}

/// Computes keys from seeds (RFC 8032, section 5.1.5). Cannot fail.
pub fn keypair(backend: Backend, jobs: &mut [KeypairJob<'_>]) {
    dispatch_25519!(backend, jobs, keypair_in_lanes);
}

/// Signs messages (RFC 8032, section 5.1.6).
///
/// It checks that R lies on the curve, and computes everything after R twice, except the hash k.
/// The result is [`Error::Fault`] if one of these checks fails. [`check`] finds more faults, and
/// costs about twice as much as a signature: see `docs/design/curve25519.md`.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::curve25519::ed25519::{
///     SecretKey, Seed, SignJob, VerifyJob, sign, verify_vartime,
/// };
///
/// let seed = Seed::from_bytes(&[1; 32]); // from a generator
/// let key = SecretKey::from_seed(Backend::PORTABLE, &seed);
/// let mut jobs = [SignJob::new(&key, b"one"), SignJob::new(&key, b"two")];
/// sign(Backend::PORTABLE, &mut jobs);
/// let [one, two] = jobs.map(|job| job.result.expect("set").expect("a correct signature"));
///
/// let public = key.public();
/// let mut jobs = [VerifyJob::new(public, b"one", &one), VerifyJob::new(public, b"one", &two)];
/// verify_vartime(Backend::PORTABLE, &mut jobs);
/// let [right, wrong] = jobs.map(|job| job.result.expect("set"));
/// assert!(right.is_ok() && wrong.is_err());
/// ```
pub fn sign(backend: Backend, jobs: &mut [SignJob<'_>]) {
    dispatch_25519!(backend, jobs, sign_in_lanes);
}

/// Checks signatures (RFC 8032, section 5.1.7). All operands are treated as public.
///
/// The equation is the one without cofactor, and verdicts are the same as OpenSSL's: the second
/// half of a signature must be below L, and its first half must be the canonical encoding of the
/// point, while the y-coordinate of a public key need not be below p.
///
/// The result is [`Error::Point`] if the key is not a point, [`Error::Signature`] if the signature
/// is wrong.
pub fn verify_vartime(backend: Backend, jobs: &mut [VerifyJob<'_>]) {
    dispatch_25519!(backend, jobs, verify_in_lanes);
}

/// Checks signatures that were made with these keys, at a fraction of the price of
/// [`verify_vartime`] and in constant time: whether R = 2·((S − k·a)/2·B) and A = a·B.
///
/// The digits differ from those used for the signature, and the error of a wrong table entry counts
/// twice, so a wrong entry or a wrong digit in R is found. The result is [`Error::Signature`] if
/// the signature or the key is wrong.
pub fn check(backend: Backend, jobs: &mut [CheckJob<'_>]) {
    dispatch_25519!(backend, jobs, check_in_lanes);
}

fn keypair_in_lanes<S: Simd>(s: S, jobs: &mut [KeypairJob<'_>]) {
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let vectors = group.len().div_ceil(S::LANES);
        let mut keys = Vec::with_capacity(group.len());
        let mut scalars = [[s.zero(); LIMBS]; VECTORS];
        for (scalars, jobs) in scalars.iter_mut().zip(group.chunks(S::LANES)) {
            let mut hashes = [[0; 8]; MAX_LANES];
            hash_each(s, &mut hashes[..jobs.len()], |l| {
                [jobs[l].seed.as_bytes(), &[], &[]]
            });
            let first = keys.len();
            keys.extend(hashes[..jobs.len()].iter().map(expand));
            wipe(hashes.as_flattened_mut());
            let scalar = |l: usize| {
                keys.get(first + l)
                    .map_or([0; 4], |key| words_of(key.scalar()))
            };
            *scalars = load(s, scalar);
        }
        let mut points = Points::new(s);
        base_points(s, comb::table(s), &mut points, &scalars[..vectors]);
        wipe(words_mut(scalars.as_flattened_mut()));
        points.divide(s, group.len());
        for (i, (job, mut key)) in group.iter_mut().zip(keys).enumerate() {
            key.public = points.encoding(i);
            job.result = Some(key);
        }
    }
}

fn sign_in_lanes<S: Simd>(s: S, jobs: &mut [SignJob<'_>]) {
    sign_by(s, comb::table(s), jobs);
}

fn sign_by<S: Simd>(s: S, table: &Table, jobs: &mut [SignJob<'_>]) {
    for (turn, group) in jobs.chunks_mut(VECTORS * S::LANES).enumerate() {
        // The nonces r.
        let mut nonces = [[s.zero(); LIMBS]; VECTORS];
        for (r, jobs) in nonces.iter_mut().zip(group.chunks(S::LANES)) {
            let message = |l: usize| [&jobs[l].key.prefix()[..], jobs[l].message, &[]];
            let mut wide = hash_lanes(s, jobs.len(), message);
            *r = scalar::reduce(s, &wide);
            wipe(words_mut(wide.as_flattened_mut()));
        }
        let count = group.len().div_ceil(S::LANES);
        let mut points = Points::new(s);
        base_points(s, table, &mut points, &nonces[..count]);
        for (v, x) in points.x[..count].iter_mut().enumerate() {
            fault::begin_chunk(VECTORS * S::LANES * turn + S::LANES * v);
            fault::touch::<S>(Point::Accumulator, x);
        }
        points.divide(s, group.len());
        for (v, jobs) in group.chunks_mut(S::LANES).enumerate() {
            let on_curve = disclosed(is_on_curve(s, &points.x[v], &points.y[v]));
            // R, S and the verdicts on them are public.
            let first = disclosed(encodings(jobs.len(), &points, v));
            let message = |l: usize| [&first[l][..], &jobs[l].key.public, jobs[l].message];
            let mut k = hash_lanes(s, jobs.len(), message);
            let second = disclosed(second_halves(s, jobs, &k, &nonces[v]));
            fault::begin_chunk(VECTORS * S::LANES * turn + S::LANES * v);
            fault::touch::<S>(Point::Exponent, &mut nonces[v]);
            let first_again = disclosed(encodings(jobs.len(), &points, v));
            let second_again = disclosed(second_halves(s, jobs, &k, &nonces[v]));
            wipe(words_mut(k.as_flattened_mut()));
            for (l, job) in jobs.iter_mut().enumerate() {
                let is_same = first[l] == first_again[l] && second[l] == second_again[l];
                let is_right = is_same && words(core::slice::from_ref(&on_curve))[l] == 1;
                job.result = Some(if is_right {
                    let mut signature = [0; SIGNATURE_BYTES];
                    signature[..BYTES].copy_from_slice(&first[l]);
                    signature[BYTES..].copy_from_slice(&second[l]);
                    Ok(signature)
                } else {
                    Err(Error::Fault)
                });
            }
        }
        wipe(words_mut(nonces.as_flattened_mut()));
    }
}

/// Returns the encodings of the points of vector `v`.
fn encodings<S: Simd>(count: usize, points: &Points<S>, v: usize) -> [[u8; BYTES]; MAX_LANES] {
    let mut encodings = [[0; BYTES]; MAX_LANES];
    for (l, encoding) in encodings.iter_mut().enumerate().take(count) {
        *encoding = points.encoding(v * S::LANES + l);
    }
    encodings
}

/// Computes S = r + k·a of each job.
fn second_halves<S: Simd>(
    s: S,
    jobs: &[SignJob<'_>],
    k: &Wide<S>,
    r: &Limbs<S>,
) -> [[u8; BYTES]; MAX_LANES] {
    let mut a = secret_scalars(s, jobs.len(), |l| jobs[l].key);
    let sum = scalar::multiply_add(s, k, &a, r);
    wipe(words_mut(&mut a));
    let mut halves = [[0; BYTES]; MAX_LANES];
    for (l, half) in halves.iter_mut().enumerate().take(jobs.len()) {
        *half = bytes_of(&store::<S>(&sum, l));
    }
    halves
}

/// Loads the scalars a of the first `count` keys, and 0 in the other lanes.
fn secret_scalars<'a, S: Simd>(
    s: S,
    count: usize,
    key: impl Fn(usize) -> &'a SecretKey,
) -> Limbs<S> {
    load(s, |l| match l < count {
        true => words_of(key(l).scalar()),
        false => [0; 4],
    })
}

fn check_in_lanes<S: Simd>(s: S, jobs: &mut [CheckJob<'_>]) {
    check_by(s, comb::table(s), jobs);
}

fn check_by<S: Simd>(s: S, table: &Table, jobs: &mut [CheckJob<'_>]) {
    // Each vector gives two points.
    for group in jobs.chunks_mut(VECTORS / 2 * S::LANES) {
        let mut points = Points::new(s);
        let mut too_large = [s.zero(); VECTORS / 2];
        for (v, jobs) in group.chunks(S::LANES).enumerate() {
            let count = jobs.len();
            let message = |l: usize| {
                let CheckJob { key, message, .. } = &jobs[l];
                [&jobs[l].signature[..BYTES], &key.public, *message]
            };
            let mut k = hash_lanes(s, count, message);
            let mut a = secret_scalars(s, count, |l| jobs[l].key);
            let second = load(s, |l| {
                jobs.get(l).map_or([0; 4], |job| second_half(job.signature))
            });
            too_large[v] = is_too_large(s, &second);
            let mut scalars = [scalar::half_difference(s, &second, &k, &a), a];
            comb::multiply(s, table, &scalars, |i, point| {
                let mut point = [*point];
                if i == 0 {
                    point[0].double_assign(1);
                }
                points.set(2 * v + i, point[0].factors());
                edwards::Point::wipe(s, &mut point);
            });
            wipe(words_mut(k.as_flattened_mut()));
            wipe(words_mut(&mut a));
            wipe(words_mut(scalars.as_flattened_mut()));
        }
        let vectors = group.len().div_ceil(S::LANES);
        points.divide(s, 2 * vectors * S::LANES);
        for (i, job) in group.iter_mut().enumerate() {
            let at = S::LANES * (2 * (i / S::LANES)) + i % S::LANES;
            // R and A, which are public if the signature is right.
            let [r, a] = disclosed([points.encoding(at), points.encoding(at + S::LANES)]);
            let is_good =
                words(&too_large)[i] == 0 && r[..] == job.signature[..BYTES] && a == job.key.public;
            job.result = Some(match is_good {
                true => Ok(()),
                false => Err(Error::Signature),
            });
        }
    }
}

/// A signature to check, with or without a table of its key.
pub(super) trait Claim {
    /// Returns the key, the message and the signature.
    fn parts(&self) -> (&PublicKey, &[u8], &Signature);
}

impl Claim for VerifyJob<'_> {
    fn parts(&self) -> (&PublicKey, &[u8], &Signature) {
        (self.key, self.message, self.signature)
    }
}

fn verify_in_lanes<S: Simd>(s: S, jobs: &mut [VerifyJob<'_>]) {
    let table = comb::table(s);
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let vectors = group.len().div_ceil(S::LANES);
        let mut k = [[s.zero(); LIMBS]; VECTORS];
        for (k, jobs) in k.iter_mut().zip(group.chunks(S::LANES)) {
            *k = hashes(s, jobs);
        }
        let mut halves = [[[s.zero(); LIMBS]; 2]; VECTORS];
        half_size::reduce(s, &k[..vectors], group.len(), &mut halves);
        for (jobs, halves) in group.chunks_mut(S::LANES).zip(&halves) {
            let first = |l: usize| Some(first_half(jobs.get(l)?.signature));
            let (y, sign) = points_of(s, |i| match i.checked_sub(S::LANES) {
                None => Some(jobs.get(i)?.key),
                Some(l) => first(l),
            });
            let (points, found) = minus_points(s, &y, &sign);
            let second = second_halves_of(s, jobs);
            let too_large = is_too_large(s, &second);
            let holds = verify_equation::holds(s, table, &points, halves, &second);
            let word = |limb: &S::Limb, l: usize| words(core::slice::from_ref(limb))[l];
            for (l, job) in jobs.iter_mut().enumerate() {
                let is_good = word(&too_large, l) == 0
                    && is_canonical(first_half(job.signature))
                    && word(&found[1], l) == 1
                    && word(&holds, l) == 1;
                job.result = Some(match (word(&found[0], l), is_good) {
                    (0, _) => Err(Error::Point),
                    (_, false) => Err(Error::Signature),
                    (_, true) => Ok(()),
                });
            }
        }
    }
}

/// Returns whether an encoding is canonical: y is below p, and the sign bit is 0 where x is 0.
fn is_canonical(encoding: &[u8; BYTES]) -> bool {
    let [low, b, c, high] = words_of(encoding);
    let (sign, high) = (high >> 63, high & (u64::MAX >> 1));
    let is_near_p = [b, c, high] == [u64::MAX, u64::MAX, u64::MAX >> 1];
    // p is 2^255 − 19.
    let is_reduced = !is_near_p || low <= u64::MAX - 19;
    // y is 1 or −1.
    let is_x_zero = [low, b, c, high] == [1, 0, 0, 0] || is_near_p && low == u64::MAX - 19;
    is_reduced && !(is_x_zero && sign == 1)
}

/// Loads the y-coordinates of encodings for two vectors, 0 where there is none, and the signs of x.
pub(super) fn points_of<'a, S: Simd>(
    s: S,
    encoding: impl Fn(usize) -> Option<&'a [u8; BYTES]>,
) -> ([Limbs<S>; 2], [S::Limb; 2]) {
    let key = |i: usize| encoding(i).map_or([0; 4], words_of);
    let y = [0, S::LANES].map(|first| {
        load(s, |l| {
            let [a, b, c, d] = key(first + l);
            [a, b, c, d & (u64::MAX >> 1)]
        })
    });
    let sign = [0, S::LANES].map(|first| {
        let [sign] = load_limbs(s, |l| [key(first + l)[3] >> 63]);
        sign
    });
    (y, sign)
}

/// Computes k, the hash of R, key and message modulo L, for at most one claim a lane.
pub(super) fn hashes<S: Simd>(s: S, claims: &[impl Claim]) -> Limbs<S> {
    let message = |l: usize| {
        let (key, message, signature) = claims[l].parts();
        [&signature[..BYTES], key, message]
    };
    scalar::reduce(s, &hash_lanes(s, claims.len(), message))
}

/// Loads the second halves S of signatures, 0 in lanes without one.
pub(super) fn second_halves_of<S: Simd>(s: S, claims: &[impl Claim]) -> Limbs<S> {
    load(s, |l| {
        claims
            .get(l)
            .map_or([0; 4], |claim| second_half(claim.parts().2))
    })
}

/// Applies RFC 8032, section 5.1.5, steps 1 and 2; the public key is not computed yet.
fn expand(hash: &sha512::Words) -> SecretKey {
    let mut halves = Boxed::<[[u8; BYTES]; 2]>::zeroed(OnFork::Keep);
    for (bytes, word) in halves
        .as_flattened_mut()
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip(hash)
    {
        *bytes = word.to_be_bytes();
    }
    let scalar = &mut halves[0];
    scalar[0] &= 0xf8;
    scalar[BYTES - 1] = scalar[BYTES - 1] & 0x7f | 0x40;
    SecretKey {
        halves,
        public: [0; BYTES],
    }
}

/// Returns the encoding of R.
pub(super) fn first_half(signature: &Signature) -> &[u8; BYTES] {
    signature.first_chunk().expect("a signature has 64 bytes")
}

/// Returns S as little-endian words.
fn second_half(signature: &Signature) -> [u64; 4] {
    words_of(
        signature[BYTES..]
            .first_chunk()
            .expect("a signature has 64 bytes"),
    )
}

/// Returns all ones in the lanes in which S is at least L, else zero.
#[inline(never)]
pub(super) fn is_too_large<S: Simd>(s: S, second: &Limbs<S>) -> S::Limb {
    enter!(
        s,
        Field::<S, scalar::Order, LIMBS>::new(s).is_not_below(second)
    )
}

/// Computes the SHA-512 of each lane's message.
fn hash_each<'a, S: Simd>(
    s: S,
    digests: &mut [sha512::Words],
    message: impl Fn(usize) -> Message<'a>,
) {
    let mut messages: [Message<'_>; MAX_LANES] = [[&[]; 3]; MAX_LANES];
    for (l, slot) in messages.iter_mut().enumerate().take(digests.len()) {
        *slot = message(l);
    }
    sha512::hash(s, &messages[..digests.len()], digests);
}

/// Computes the SHA-512 of `count` lanes' messages as numbers; the other lanes are unspecified.
fn hash_lanes<'a, S: Simd>(s: S, count: usize, message: impl Fn(usize) -> Message<'a>) -> Wide<S> {
    let mut messages: [Message<'_>; MAX_LANES] = [[&[]; 3]; MAX_LANES];
    for (l, slot) in messages.iter_mut().enumerate().take(count) {
        *slot = message(l);
    }
    let mut digests = sha512::hash_to_lanes(s, &messages[..count]);
    let wide = little_endian(s, &digests);
    wipe(words_mut(&mut digests));
    wide
}

/// Returns the numbers whose bytes, the lowest first, are the bytes of the big-endian words.
#[inline(never)]
fn little_endian<S: Simd>(s: S, digests: &[S::Limb; 8]) -> Wide<S> {
    enter!(s, {
        let mut number = *digests;
        for word in &mut number {
            *word = swap_bytes(s, *word);
        }
        [
            five_limbs!(i => bits_from(s, &number, 52 * i)),
            five_limbs!(i => bits_from(s, &number, 52 * (LIMBS + i))),
        ]
    })
}

/// Returns 52 bits of a number from bit `from` upwards; `from` is below 512.
#[inline(always)]
fn bits_from<S: Simd>(s: S, number: &[S::Limb; 8], from: usize) -> S::Limb {
    let (word, shift) = (from / 64, from as u32 % 64);
    let mut bits = s.shift_right_by(number[word], shift);
    if shift > 64 - 52 && word + 1 < number.len() {
        let above = s.shift_left_by(number[word + 1], 64 - shift);
        bits = s.or_xor(bits, above, s.zero());
    }
    s.and(bits, s.splat((1 << 52) - 1))
}

/// Reverses the bytes of the word.
#[inline(always)]
fn swap_bytes<S: Simd>(s: S, word: S::Limb) -> S::Limb {
    let halves = s.rotate_right::<32>(word);
    let quarters = exchange(s, halves, 16, 0xffff_0000_ffff_0000);
    exchange(s, quarters, 8, 0xff00_ff00_ff00_ff00)
}

/// Exchanges neighbouring groups of `count` bits; `upper` is the mask of the upper group of each
/// pair.
#[inline(always)]
fn exchange<S: Simd>(s: S, word: S::Limb, count: u32, upper: u64) -> S::Limb {
    let (up, down) = (s.shift_left_by(word, count), s.shift_right_by(word, count));
    s.ternary::<CHOOSE>(s.splat(upper), up, down)
}

/// Multiplies the base point by scalars below 2^256.
fn base_points<S: Simd>(s: S, table: &Table, points: &mut Points<S>, scalars: &[Limbs<S>]) {
    comb::multiply(s, table, scalars, |v, point| points.set(v, point.factors()));
}

/// Points X : Y : Z before the shared inversion. Wiped when dropped.
pub(super) struct Points<S: Simd> {
    x: [Limbs<S>; VECTORS],
    y: [Limbs<S>; VECTORS],
    z: [Limbs<S>; VECTORS],
    running: [Limbs<S>; VECTORS],
}

impl<S: Simd> Points<S> {
    pub(super) fn new(s: S) -> Self {
        let zero = [[s.zero(); LIMBS]; VECTORS];
        Self {
            x: zero,
            y: zero,
            z: zero,
            running: zero,
        }
    }

    pub(super) fn set(&mut self, v: usize, [x, y, z]: [Limbs<S>; 3]) {
        (self.x[v], self.y[v], self.z[v]) = (x, y, z);
    }

    /// Makes the points of the first `count` requests affine.
    pub(super) fn divide(&mut self, s: S, count: usize) {
        let vectors = count.div_ceil(S::LANES);
        invert_all(s, &mut self.z[..vectors], &mut self.running[..vectors]);
        for v in 0..vectors {
            [self.x[v], self.y[v]] = scaled(s, &self.x[v], &self.y[v], &self.z[v]);
        }
    }

    /// Returns the encoding of point `i` (RFC 8032, section 5.1.2): y, with the parity of x in the
    /// top bit.
    pub(super) fn encoding(&self, i: usize) -> [u8; BYTES] {
        let (v, l) = (i / S::LANES, i % S::LANES);
        let parity = store::<S>(&self.x[v], l)[0] & 1;
        let mut y = store::<S>(&self.y[v], l);
        y[3] |= parity << 63;
        bytes_of(&y)
    }
}

impl<S: Simd> Drop for Points<S> {
    fn drop(&mut self) {
        for limbs in [&mut self.x, &mut self.y, &mut self.z, &mut self.running] {
            wipe(words_mut(limbs.as_flattened_mut()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::portable::Portable;

    const COUNT: usize = 5;

    fn keys() -> Vec<SecretKey> {
        let key = |i| SecretKey::from_seed(Backend::PORTABLE, &Seed::from_bytes(&[i; BYTES]));
        (0..COUNT as u8).map(key).collect()
    }

    fn signed(table: &Table, keys: &[SecretKey]) -> Vec<Signature> {
        let mut jobs: Vec<_> = keys.iter().map(|key| SignJob::new(key, b"m")).collect();
        sign_by(Portable::<4>, table, &mut jobs);
        let signature = |job: &SignJob<'_>| job.result.unwrap().unwrap();
        jobs.iter().map(signature).collect()
    }

    fn checked(table: &Table, keys: &[SecretKey], signatures: &[Signature]) -> Vec<bool> {
        let pairs = keys.iter().zip(signatures);
        let mut jobs: Vec<_> = pairs.map(|(key, s)| CheckJob::new(key, b"m", s)).collect();
        check_by(Portable::<4>, table, &mut jobs);
        jobs.iter().map(|job| job.result.unwrap().is_ok()).collect()
    }

    /// Signing alone does not find this fault: R is on the curve, and S is the same each time.
    #[test]
    fn a_wrong_entry_of_the_table_is_found_with_the_same_table() {
        let table = Table::damaged(Portable::<4>);
        let keys = keys();
        let wrong = signed(&table, &keys);
        let good = signed(comb::table(Portable::<4>), &keys);
        assert!(wrong.iter().zip(&good).all(|(wrong, good)| wrong != good));
        assert_eq!(checked(&table, &keys, &wrong), [false; COUNT]);
        assert_eq!(
            checked(comb::table(Portable::<4>), &keys, &good),
            [true; COUNT]
        );
    }

    #[test]
    fn a_key_that_was_damaged_in_memory_is_found() {
        let table = comb::table(Portable::<4>);
        let mut keys = keys();
        keys[1].halves[0][7] ^= 1;
        keys[2].public[7] ^= 1;
        let signatures = signed(table, &keys);
        let verdicts = checked(table, &keys, &signatures);
        assert_eq!(verdicts, [true, false, false, true, true]);
    }
}
