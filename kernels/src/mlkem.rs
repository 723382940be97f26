//! ML-KEM (FIPS 203) of several requests at once.
//!
//! Keccak, half of the work, runs in lanes: each lane hashes for a request, or expands an entry of
//! a request's matrix. Polynomials are stored in vectors of words of 16 bits, one after the other.
//! So a single request keeps its vectors busy, and two requests take little more than a quarter of
//! the time of eight.
//!
//! The time is the same for all secrets. Only the matrix, which is public, is sampled in a time
//! that depends on it.

mod coding;
mod expand;
mod field;
mod parameters;
mod pke;
#[cfg(feature = "proofs")]
#[path = "../../proofs/lists/mlkem.rs"]
pub(crate) mod proved;
#[cfg(test)]
mod tests;
pub(crate) mod transform;
mod work;

use core::array::from_fn;

use crate::backend::Backend;
use crate::secret::{secret_bytes, secret_slice, wipe};
use crate::simd::words16::portable::PortableWords;
use crate::simd::words16::{Polynomial, Words};
use crate::simd::{Simd, opaque_word};
use crate::taint::disclosed;
use expand::{Hashes, Operation, expand};
pub(crate) const MODULUS: i32 = crate::simd::words16::Q as i32;
use parameters::{Bytes, LONGEST_CIPHERTEXT, ciphertext, length, vector};
pub use parameters::{ParameterSet, SEED, SHARED_SECRET};
use pke::{decrypt, encrypt, make_keys};
pub use work::Scratch;
use work::{GROUP, Work};

secret_bytes!(
    /// The seed of a key pair: 64 uniformly random bytes, d and z.
    Seed, SEED
);
secret_bytes!(
    /// The randomness of a ciphertext and its secret: 32 uniformly random bytes.
    Coins, SHARED_SECRET
);
secret_bytes!(
    /// The secret that both sides share.
    SharedSecret, SHARED_SECRET
);

secret_slice!(
    /// A decapsulation key in the caller's memory, which the caller wipes. A key that is not from
    /// [`generate`] may be [invalid](is_consistent).
    SecretKey
);

/// The reason why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A coefficient of the public key is not below q (FIPS 203, section 7.2).
    InvalidKey,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a coefficient of the ML-KEM key is not below 3329")
    }
}

impl core::error::Error for Error {}

/// A key pair to make.
#[derive(Debug)]
pub struct GenerateJob<'a> {
    /// The seed.
    pub seed: &'a Seed,
    /// Place for the public key.
    pub public_key: &'a mut [u8],
    /// Place for the secret key.
    pub secret_key: &'a mut SecretKey,
}

/// A secret to send.
#[derive(Debug)]
pub struct EncapsulateJob<'a> {
    /// The peer's public key.
    pub public_key: &'a [u8],
    /// The randomness of the secret.
    pub coins: &'a Coins,
    /// Place for the ciphertext; unspecified after an error.
    pub ciphertext: &'a mut [u8],
    /// Result, set by [`encapsulate`].
    pub result: Option<Result<SharedSecret, Error>>,
}

/// A secret to receive.
#[derive(Debug)]
pub struct DecapsulateJob<'a> {
    /// Our secret key.
    pub secret_key: &'a SecretKey,
    /// The ciphertext from the peer.
    pub ciphertext: &'a [u8],
    /// Result, set by [`decapsulate`].
    pub result: Option<SharedSecret>,
}

/// Calls `$function` with the lanes and the words of a backend.
macro_rules! dispatch {
    ($backend:expr, $function:expr, $($argument:expr),*) => {{
        use $crate::backend::Kind;
        use $crate::simd::portable::Portable;
        use $crate::simd::words16::portable::PortableWords;
        let _steady = $crate::simd::steady::Steady::new();
        match $backend.kind(usize::MAX) {
            #[cfg(vectors)]
            Kind::Avx512Ifma { wide, .. }
            | Kind::Avx512Ifma256 { wide, .. }
            | Kind::Avx512Ifma512 { wide, .. } => {
                match $crate::simd::words16::avx512vbmi2::Avx512Vbmi2::detect() {
                    Some(words) => $function(wide, words, $($argument),*),
                    // Cannon Lake has these lanes, but not these words.
                    None => $function(Portable::<1>, PortableWords, $($argument),*),
                }
            }
            #[cfg(vectors)]
            Kind::Avx2(lanes) => match $crate::simd::words16::avx2::Avx2Words::detect() {
                Some(words) => $function(lanes, words, $($argument),*),
                None => $function(Portable::<1>, PortableWords, $($argument),*),
            },
            Kind::Portable(_) => $function(Portable::<1>, PortableWords, $($argument),*),
        }
    }};
}
pub(crate) use dispatch;

/// Calls `$function` with the K of a parameter set as its const parameter.
macro_rules! for_set {
    ($set:expr, $function:ident, $($argument:expr),*) => {
        match $set {
            ParameterSet::MlKem512 => $function::<2>($($argument),*),
            ParameterSet::MlKem768 => $function::<3>($($argument),*),
            ParameterSet::MlKem1024 => $function::<4>($($argument),*),
        }
    };
}

/// Computes key pairs (algorithm 16). Cannot fail.
///
/// # Panics
/// If the length of a key is not that of the parameter set.
pub fn generate(backend: Backend, scratch: &mut Scratch, jobs: &mut [GenerateJob<'_>]) {
    let set = scratch.set();
    for job in &*jobs {
        assert_eq!(job.public_key.len(), set.public_key_bytes());
        assert_eq!(job.secret_key.0.len(), set.secret_key_bytes());
    }
    for_set!(set, generate_all, backend, scratch, jobs);
}

fn generate_all<const K: usize>(
    backend: Backend,
    scratch: &mut Scratch,
    jobs: &mut [GenerateJob<'_>],
) {
    scratch.in_groups::<K, _>(jobs, |work, jobs| {
        dispatch!(backend, generate_group, work, jobs);
    });
}

/// Computes secrets and the ciphertexts for the peers (algorithms 17 and 20).
///
/// # Panics
/// If the length of a key or a ciphertext is not that of the parameter set.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::mlkem::{
///     Coins, DecapsulateJob, EncapsulateJob, GenerateJob, ParameterSet, Scratch, SecretKey, Seed,
///     decapsulate, encapsulate, generate,
/// };
///
/// let (backend, set) = (Backend::PORTABLE, ParameterSet::MlKem768);
/// let mut scratch = Scratch::try_new(set).expect("memory");
/// let mut public_key = vec![0; set.public_key_bytes()];
/// let mut secret_key = vec![0; set.secret_key_bytes()]; // wipe it at the end
/// let job = GenerateJob {
///     seed: &Seed::from_bytes(&[1; 64]), // from a generator
///     public_key: &mut public_key,
///     secret_key: SecretKey::from_mut(&mut secret_key),
/// };
/// generate(backend, &mut scratch, &mut [job]);
///
/// let mut ciphertext = vec![0; set.ciphertext_bytes()];
/// let coins = Coins::from_bytes(&[2; 32]); // from a generator
/// let mut jobs = [EncapsulateJob {
///     public_key: &public_key,
///     coins: &coins,
///     ciphertext: &mut ciphertext,
///     result: None,
/// }];
/// encapsulate(backend, &mut scratch, &mut jobs);
/// let [sent] = jobs.map(|job| job.result.expect("set").expect("a valid key"));
///
/// let mut jobs = [DecapsulateJob {
///     secret_key: SecretKey::from_ref(&secret_key),
///     ciphertext: &ciphertext,
///     result: None,
/// }];
/// decapsulate(backend, &mut scratch, &mut jobs);
/// let [received] = jobs.map(|job| job.result.expect("set"));
/// assert_eq!(sent.as_bytes(), received.as_bytes());
/// ```
pub fn encapsulate(backend: Backend, scratch: &mut Scratch, jobs: &mut [EncapsulateJob<'_>]) {
    let set = scratch.set();
    for job in &*jobs {
        assert_eq!(job.public_key.len(), set.public_key_bytes());
        assert_eq!(job.ciphertext.len(), set.ciphertext_bytes());
    }
    for_set!(set, encapsulate_all, backend, scratch, jobs);
}

fn encapsulate_all<const K: usize>(
    backend: Backend,
    scratch: &mut Scratch,
    jobs: &mut [EncapsulateJob<'_>],
) {
    scratch.in_groups::<K, _>(jobs, |work, jobs| {
        dispatch!(backend, encapsulate_group, work, jobs);
    });
}

/// Decapsulates the secrets of ciphertexts (algorithms 18 and 21). An invalid ciphertext gives a
/// secret that nobody else knows.
///
/// # Panics
/// If the length of a key or a ciphertext is not that of the parameter set.
pub fn decapsulate(backend: Backend, scratch: &mut Scratch, jobs: &mut [DecapsulateJob<'_>]) {
    let set = scratch.set();
    for job in &*jobs {
        assert_eq!(job.secret_key.0.len(), set.secret_key_bytes());
        assert_eq!(job.ciphertext.len(), set.ciphertext_bytes());
    }
    for_set!(set, decapsulate_all, backend, scratch, jobs);
}

fn decapsulate_all<const K: usize>(
    backend: Backend,
    scratch: &mut Scratch,
    jobs: &mut [DecapsulateJob<'_>],
) {
    scratch.in_groups::<K, _>(jobs, |work, jobs| {
        dispatch!(backend, decapsulate_group, work, jobs);
    });
}

/// Returns whether the hash in a secret key is that of the public key in it (section 7.3), and all
/// coefficients of the secret are below q, which OpenSSL requires too. The answer is public.
///
/// # Panics
/// If the length of the key is not that of the parameter set.
pub fn is_consistent(set: ParameterSet, backend: Backend, secret_key: &SecretKey) -> bool {
    assert_eq!(secret_key.0.len(), set.secret_key_bytes());
    let parts = Parts::of(set.k(), secret_key);
    let mut polynomial = Polynomial::ZERO;
    let mut is_valid = true;
    for bytes in parts.secret.chunks_exact(length(12)) {
        is_valid &= coding::decode(PortableWords, bytes, &mut polynomial);
    }
    wipe(&mut polynomial.0);
    if !disclosed(is_valid) {
        return false;
    }
    let mut hashes = [Hashes::default()];
    let public_key = parts.public_key;
    let operation = |_: usize| Operation::Hash { public_key };
    // Keys of all parameter sets are hashed in the same way.
    dispatch!(backend, hash_keys, operation, &mut hashes);
    hashes[0].key_hash == *parts.key_hash
}

/// Returns the public key inside a secret key.
pub fn public_key(set: ParameterSet, secret_key: &SecretKey) -> &[u8] {
    Parts::of(set.k(), secret_key).public_key
}

/// Returns whether these bytes have the length of a public key, and all its coefficients are below
/// q (section 7.2).
///
/// # Examples
///
/// ```
/// use lockstep_kernels::mlkem::{ParameterSet, is_valid};
///
/// let set = ParameterSet::MlKem512;
/// assert!(is_valid(set, &[0; 800]));
/// assert!(!is_valid(set, &[0; 799]));
/// assert!(!is_valid(set, &[0xff; 800])); // coefficients of 4095, above q
/// ```
pub fn is_valid(set: ParameterSet, public_key: &[u8]) -> bool {
    let mut polynomial = Polynomial::ZERO;
    public_key.len() == set.public_key_bytes() && {
        let mut vectors = public_key[..vector(set.k())].chunks_exact(length(12));
        vectors.all(|bytes| coding::decode(PortableWords, bytes, &mut polynomial))
    }
}

struct Parts<'a> {
    secret: &'a [u8],
    public_key: &'a [u8],
    key_hash: &'a Bytes,
    rejection: &'a Bytes,
}

impl<'a> Parts<'a> {
    fn of(k: usize, SecretKey(key): &'a SecretKey) -> Self {
        let (secret, rest) = key.split_at(vector(k));
        let (public_key, rest) = rest.split_at(parameters::public_key(k));
        let (key_hash, rest) = rest.split_first_chunk().expect("32 bytes");
        Self {
            secret,
            public_key,
            key_hash,
            rejection: rest.first_chunk().expect("32 bytes"),
        }
    }
}

/// Returns the seed of the matrix, at the end of a public key.
fn matrix_seed(public_key: &[u8]) -> Bytes {
    *public_key.last_chunk().expect("32 bytes")
}

/// Returns d and z.
fn halves(Seed(seed): &Seed) -> [&Bytes; 2] {
    let (d, z) = seed.split_first_chunk().expect("32 bytes");
    [d, z.first_chunk().expect("32 bytes")]
}

fn hash_keys<'a, S: Simd, W: Words>(
    s: S,
    w: W,
    keys: impl Fn(usize) -> Operation<'a>,
    hashes: &mut [Hashes],
) {
    // Without noise or a matrix, all sets are the same.
    expand::<_, _, { parameters::MOST }>(s, w, keys, hashes, &mut [], &mut []);
}

fn generate_group<S: Simd, W: Words, const K: usize>(
    s: S,
    w: W,
    work: &mut Work<'_, K>,
    jobs: &mut [GenerateJob<'_>],
) {
    let mut hashes: [Hashes; GROUP] = from_fn(|_| Hashes::default());
    let hashes = &mut hashes[..jobs.len()];
    let seeds = |i: usize| Operation::Generate {
        seed: halves(jobs[i].seed)[0],
    };
    expand::<_, _, K>(s, w, seeds, hashes, work.matrices, work.noises);
    for (i, job) in jobs.iter_mut().enumerate() {
        let (transform, seed) = job.public_key.split_at_mut(vector(K));
        make_keys(
            w,
            work.request(i),
            transform,
            &mut job.secret_key.0[..vector(K)],
        );
        seed.copy_from_slice(&hashes[i].matrix_seed);
    }
    let keys = |i: usize| Operation::Hash {
        public_key: &*jobs[i].public_key,
    };
    hash_keys(s, w, keys, hashes);
    for (job, hashes) in jobs.iter_mut().zip(hashes) {
        let rest = &mut job.secret_key.0[vector(K)..];
        let (public_key, rest) = rest.split_at_mut(parameters::public_key(K));
        public_key.copy_from_slice(job.public_key);
        let (key_hash, rejection) = rest.split_at_mut(32);
        key_hash.copy_from_slice(&hashes.key_hash);
        rejection.copy_from_slice(halves(job.seed)[1]);
    }
}

fn encapsulate_group<S: Simd, W: Words, const K: usize>(
    s: S,
    w: W,
    work: &mut Work<'_, K>,
    jobs: &mut [EncapsulateJob<'_>],
) {
    let mut hashes: [Hashes; GROUP] = from_fn(|_| Hashes::default());
    let hashes = &mut hashes[..jobs.len()];
    for (job, hashes) in jobs.iter().zip(&mut *hashes) {
        hashes.matrix_seed = matrix_seed(job.public_key);
    }
    let operations = |i: usize| Operation::Encapsulate {
        message: &jobs[i].coins.0,
        public_key: jobs[i].public_key,
    };
    expand::<_, _, K>(s, w, operations, hashes, work.matrices, work.noises);
    for (i, job) in jobs.iter_mut().enumerate() {
        let request = work.request(i);
        let is_valid = encrypt(w, request, job.public_key, &job.coins.0, job.ciphertext);
        job.result = Some(match is_valid {
            true => Ok(SharedSecret(hashes[i].shared_secret)),
            false => Err(Error::InvalidKey),
        });
    }
}

fn decapsulate_group<S: Simd, W: Words, const K: usize>(
    s: S,
    w: W,
    work: &mut Work<'_, K>,
    jobs: &mut [DecapsulateJob<'_>],
) {
    let mut hashes: [Hashes; GROUP] = from_fn(|_| Hashes::default());
    let hashes = &mut hashes[..jobs.len()];
    let mut messages = [[0; SHARED_SECRET]; GROUP];
    for (i, job) in jobs.iter().enumerate() {
        let parts = Parts::of(K, job.secret_key);
        hashes[i].matrix_seed = matrix_seed(parts.public_key);
        let message = &mut messages[i];
        decrypt(w, work.request(i), parts.secret, job.ciphertext, message);
    }
    let operations = |i: usize| {
        let parts = Parts::of(K, jobs[i].secret_key);
        Operation::Decapsulate {
            message: &messages[i],
            key_hash: parts.key_hash,
            rejection: parts.rejection,
            ciphertext: jobs[i].ciphertext,
        }
    };
    expand::<_, _, K>(s, w, operations, hashes, work.matrices, work.noises);
    for (i, job) in jobs.iter_mut().enumerate() {
        let public_key = Parts::of(K, job.secret_key).public_key;
        let mut again = [0; LONGEST_CIPHERTEXT];
        let again = &mut again[..ciphertext(K)];
        encrypt(w, work.request(i), public_key, &messages[i], again);
        job.result = Some(choose(again, job.ciphertext, &hashes[i]));
        wipe(again);
    }
    wipe(messages.as_flattened_mut());
}

/// Returns the shared secret if both ciphertexts are equal, the rejection secret otherwise. The
/// time is the same for both.
fn choose(again: &[u8], ciphertext: &[u8], hashes: &Hashes) -> SharedSecret {
    let bytes = again.iter().zip(ciphertext);
    let difference = bytes.fold(0, |difference, (a, b)| difference | (a ^ b));
    // The top bit of −x shows whether x is zero.
    let negative = u64::from(difference).wrapping_neg() as i64;
    let differs = opaque_word((negative >> 63) as u64) as u8;
    SharedSecret(from_fn(|i| {
        let (right, rejected) = (hashes.shared_secret[i], hashes.rejected[i]);
        right ^ differs & (right ^ rejected)
    }))
}
