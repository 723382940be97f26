//! ML-KEM-768 (FIPS 203) of several requests at once.
//!
//! Keccak, half of the work, runs in lanes: each lane hashes for a request, or expands an entry of
//! a request's matrix. Polynomials lie along vectors of words of 16 bits, one after the other.
//! Neither needs more than one request for its vectors to be busy: two requests take little more
//! than a quarter of the time of eight.
//!
//! Everything takes the same time for all secrets. Only the matrix, which is public, is sampled in
//! a time that depends on it.

mod coding;
mod expand;
mod field;
mod parameters;
mod pke;
#[cfg(test)]
mod tests;
mod transform;
mod work;

use core::array::from_fn;

use crate::backend::{Backend, Kind};
use crate::secret::{secret_bytes, wipe};
use crate::simd::portable::Portable;
use crate::simd::steady::Steady;
#[cfg(vectors)]
use crate::simd::words16::avx2::Avx2Words;
#[cfg(vectors)]
use crate::simd::words16::avx512vbmi2::Avx512Vbmi2;
use crate::simd::words16::portable::PortableWords;
use crate::simd::words16::{Polynomial, Words};
use crate::simd::{Simd, opaque_word};
use crate::taint::disclosed;
use expand::{Hashes, Operation, expand};
use parameters::{Bytes, VECTOR, length};
pub use parameters::{
    CIPHERTEXT, Ciphertext, PUBLIC_KEY, PublicKey, SECRET_KEY, SEED, SHARED_SECRET,
};
use pke::{decrypt, encrypt, make_keys};
pub use work::Scratch;
use work::{GROUP, Work};

secret_bytes!(
    /// What a key pair is made of: 64 uniformly random bytes, d and z.
    Seed, SEED
);
secret_bytes!(
    /// What a ciphertext and its secret are made of: 32 uniformly random bytes.
    Coins, SHARED_SECRET
);
secret_bytes!(
    /// A decapsulation key. One that was not made by [`generate`] may be [invalid](is_consistent).
    SecretKey, SECRET_KEY
);
secret_bytes!(
    /// What both sides know in the end.
    SharedSecret, SHARED_SECRET
);

/// Why there is no result.
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
    /// What it is made of.
    pub seed: &'a Seed,
    /// Where the public key is left.
    pub public_key: &'a mut PublicKey,
    /// Where the secret key is left.
    pub secret_key: &'a mut SecretKey,
}

/// A secret to send.
#[derive(Debug)]
pub struct EncapsulateJob<'a> {
    /// The peer's public key.
    pub public_key: &'a PublicKey,
    /// What the secret is made of.
    pub coins: &'a Coins,
    /// Where the ciphertext is left; unspecified after an error.
    pub ciphertext: &'a mut Ciphertext,
    /// Left here by [`encapsulate`].
    pub result: Option<Result<SharedSecret, Error>>,
}

/// A secret to receive.
#[derive(Debug)]
pub struct DecapsulateJob<'a> {
    /// Our secret key.
    pub secret_key: &'a SecretKey,
    /// What the peer has sent.
    pub ciphertext: &'a Ciphertext,
    /// Left here by [`decapsulate`].
    pub result: Option<SharedSecret>,
}

/// Calls `$function` with the lanes and the words of a backend.
macro_rules! dispatch {
    ($backend:expr, $function:expr, $($argument:expr),*) => {{
        let _steady = Steady::new();
        match $backend.kind(usize::MAX) {
            #[cfg(vectors)]
            Kind::Avx512Ifma { wide, .. }
            | Kind::Avx512Ifma256 { wide, .. }
            | Kind::Avx512Ifma512 { wide, .. } => {
                match Avx512Vbmi2::detect() {
                    Some(words) => $function(wide, words, $($argument),*),
                    // Cannon Lake.
                    None => $function(Portable::<1>, PortableWords, $($argument),*),
                }
            }
            #[cfg(vectors)]
            Kind::Avx2(lanes) => match Avx2Words::detect() {
                Some(words) => $function(lanes, words, $($argument),*),
                None => $function(Portable::<1>, PortableWords, $($argument),*),
            },
            Kind::Portable(_) => $function(Portable::<1>, PortableWords, $($argument),*),
        }
    }};
}

/// Makes key pairs (algorithm 16). Cannot fail.
pub fn generate(backend: Backend, scratch: &mut Scratch, jobs: &mut [GenerateJob<'_>]) {
    scratch.in_groups(jobs, |work, jobs| {
        dispatch!(backend, generate_group, work, jobs);
    });
}

/// Makes secrets and the ciphertexts by which peers learn them (algorithms 17 and 20).
pub fn encapsulate(backend: Backend, scratch: &mut Scratch, jobs: &mut [EncapsulateJob<'_>]) {
    scratch.in_groups(jobs, |work, jobs| {
        dispatch!(backend, encapsulate_group, work, jobs);
    });
}

/// Finds the secrets of ciphertexts (algorithms 18 and 21). A ciphertext that nobody made for the
/// key gives a secret that nobody else knows.
pub fn decapsulate(backend: Backend, scratch: &mut Scratch, jobs: &mut [DecapsulateJob<'_>]) {
    scratch.in_groups(jobs, |work, jobs| {
        dispatch!(backend, decapsulate_group, work, jobs);
    });
}

/// Whether the hash in a secret key is that of the public key in it (section 7.3), and all
/// coefficients are below q, which OpenSSL asks for too. The answer is public.
pub fn is_consistent(backend: Backend, secret_key: &SecretKey) -> bool {
    let parts = Parts::of(secret_key);
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
    dispatch!(backend, expand, operation, &mut hashes, &mut [], &mut []);
    hashes[0].key_hash == *parts.key_hash
}

/// The public key that belongs to a secret one.
pub fn public_key(secret_key: &SecretKey) -> &PublicKey {
    Parts::of(secret_key).public_key
}

/// Whether all coefficients of a public key are below q (section 7.2).
pub fn is_valid(public_key: &PublicKey) -> bool {
    let mut polynomial = Polynomial::ZERO;
    let mut vectors = public_key[..VECTOR].chunks_exact(length(12));
    vectors.all(|bytes| coding::decode(PortableWords, bytes, &mut polynomial))
}

/// A secret key in parts.
struct Parts<'a> {
    secret: &'a [u8],
    public_key: &'a PublicKey,
    key_hash: &'a Bytes,
    rejection: &'a Bytes,
}

impl<'a> Parts<'a> {
    fn of(SecretKey(key): &'a SecretKey) -> Self {
        let (secret, rest) = key.split_at(VECTOR);
        let (public_key, rest) = rest.split_first_chunk().expect("1184 bytes");
        let (key_hash, rest) = rest.split_first_chunk().expect("32 bytes");
        Self {
            secret,
            public_key,
            key_hash,
            rejection: rest.first_chunk().expect("32 bytes"),
        }
    }
}

/// The seed of the matrix, which a public key ends with.
fn matrix_seed(public_key: &PublicKey) -> Bytes {
    *public_key.last_chunk().expect("32 bytes")
}

/// d and z.
fn halves(Seed(seed): &Seed) -> [&Bytes; 2] {
    let (d, z) = seed.split_first_chunk().expect("32 bytes");
    [d, z.first_chunk().expect("32 bytes")]
}

fn generate_group<S: Simd, W: Words>(
    s: S,
    w: W,
    work: &mut Work<'_>,
    jobs: &mut [GenerateJob<'_>],
) {
    let mut hashes: [Hashes; GROUP] = from_fn(|_| Hashes::default());
    let hashes = &mut hashes[..jobs.len()];
    let seeds = |i: usize| Operation::Generate {
        seed: halves(jobs[i].seed)[0],
    };
    expand(s, w, seeds, hashes, work.matrices, work.noises);
    for (i, job) in jobs.iter_mut().enumerate() {
        let (vector, seed) = job.public_key.split_at_mut(VECTOR);
        make_keys(w, work.request(i), vector, &mut job.secret_key.0[..VECTOR]);
        seed.copy_from_slice(&hashes[i].matrix_seed);
    }
    let keys = |i: usize| Operation::Hash {
        public_key: &*jobs[i].public_key,
    };
    expand(s, w, keys, hashes, &mut [], &mut []);
    for (job, hashes) in jobs.iter_mut().zip(hashes) {
        let rest = &mut job.secret_key.0[VECTOR..];
        let (public_key, rest) = rest.split_at_mut(PUBLIC_KEY);
        public_key.copy_from_slice(job.public_key);
        let (key_hash, rejection) = rest.split_at_mut(32);
        key_hash.copy_from_slice(&hashes.key_hash);
        rejection.copy_from_slice(halves(job.seed)[1]);
    }
}

fn encapsulate_group<S: Simd, W: Words>(
    s: S,
    w: W,
    work: &mut Work<'_>,
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
    expand(s, w, operations, hashes, work.matrices, work.noises);
    for (i, job) in jobs.iter_mut().enumerate() {
        let request = work.request(i);
        let is_valid = encrypt(w, request, job.public_key, &job.coins.0, job.ciphertext);
        job.result = Some(match is_valid {
            true => Ok(SharedSecret(hashes[i].shared_secret)),
            false => Err(Error::InvalidKey),
        });
    }
}

fn decapsulate_group<S: Simd, W: Words>(
    s: S,
    w: W,
    work: &mut Work<'_>,
    jobs: &mut [DecapsulateJob<'_>],
) {
    let mut hashes: [Hashes; GROUP] = from_fn(|_| Hashes::default());
    let hashes = &mut hashes[..jobs.len()];
    let mut messages = [[0; SHARED_SECRET]; GROUP];
    for (i, job) in jobs.iter().enumerate() {
        let parts = Parts::of(job.secret_key);
        hashes[i].matrix_seed = matrix_seed(parts.public_key);
        let message = &mut messages[i];
        decrypt(w, work.request(i), parts.secret, job.ciphertext, message);
    }
    let operations = |i: usize| {
        let parts = Parts::of(jobs[i].secret_key);
        Operation::Decapsulate {
            message: &messages[i],
            key_hash: parts.key_hash,
            rejection: parts.rejection,
            ciphertext: jobs[i].ciphertext,
        }
    };
    expand(s, w, operations, hashes, work.matrices, work.noises);
    for (i, job) in jobs.iter_mut().enumerate() {
        let public_key = Parts::of(job.secret_key).public_key;
        let mut again = [0; CIPHERTEXT];
        encrypt(w, work.request(i), public_key, &messages[i], &mut again);
        job.result = Some(choose(&again, job.ciphertext, &hashes[i]));
        wipe(&mut again);
    }
    wipe(messages.as_flattened_mut());
}

/// The shared secret if both ciphertexts are equal, what answers a rejected one otherwise. Takes
/// the same time for both.
fn choose(again: &Ciphertext, ciphertext: &Ciphertext, hashes: &Hashes) -> SharedSecret {
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
