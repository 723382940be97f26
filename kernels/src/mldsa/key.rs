//! Prepared keys: expanded, transformed, checked (FIPS 204, section 6.1).

use core::fmt;

use lockstep_vault::{OnFork, Slice};

use super::coding::{decode_rest, decode_small, encode_rest, encode_small, pack, round};
use super::hashing::{Expansion, key_hash, seeds};
use super::lanes::{Lanes, on};
use super::parameters::{Hash, ParameterSet, Seed, length, small_bits};
use crate::arena::Memory;
use crate::backend::Backend;
use crate::keccak::sponge::MOST_RATE;
use crate::secret::wipe;
use crate::simd::words16::Polynomial;
use crate::simd::words32::{LongPolynomial, LongSampled};
use crate::taint::disclosed;

/// The reason why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The encoding has another length, or the parts of a private key do not belong together.
    Invalid,
    /// There is no memory for the key.
    NoMemory,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::Invalid => "the ML-DSA key is invalid",
            KeyError::NoMemory => "there is no memory for an ML-DSA key",
        })
    }
}

impl core::error::Error for KeyError {}

/// A public key, with its matrix and the transform that verification uses: 20 to 70 KiB.
pub struct PublicKey {
    set: ParameterSet,
    hash: Hash,
    encoding: Vec<u8>,
    /// Row by row.
    pub(super) matrix: Vec<LongSampled>,
    /// The transform of −t₁·2^13.
    pub(super) t1: Vec<LongPolynomial>,
}

impl PublicKey {
    /// Prepares an encoded key.
    pub fn new(set: ParameterSet, backend: Backend, encoding: &[u8]) -> Result<Self, KeyError> {
        if encoding.len() != set.public_key_bytes() {
            return Err(KeyError::Invalid);
        }
        let mut key = Self::empty(set)?;
        key.encoding.copy_from_slice(encoding);
        on(backend, |lanes| key.expand(lanes));
        Ok(key)
    }

    fn empty(set: ParameterSet) -> Result<Self, KeyError> {
        let (k, l) = set.k_and_l();
        Ok(Self {
            set,
            hash: [0; 64],
            encoding: repeated(0, set.public_key_bytes())?,
            matrix: repeated(LongSampled::ZERO, k * l)?,
            t1: repeated(LongPolynomial::ZERO, k)?,
        })
    }

    /// Returns the parameter set.
    pub fn set(&self) -> ParameterSet {
        self.set
    }

    /// Returns the encoded key, as it is sent.
    pub fn encoding(&self) -> &[u8] {
        &self.encoding
    }

    /// Returns the hash of the encoded key (tr), the first of the bytes that are hashed for the
    /// representative of a message.
    pub fn hash(&self) -> &[u8; 64] {
        &self.hash
    }

    /// Prepares a key whose encoding is set.
    fn expand(&mut self, lanes: &dyn Lanes) {
        let seed = self.encoding.first_chunk().expect("32 bytes");
        let mut expansion = Expansion::new(lanes, self.set.k_and_l(), seed, &mut self.matrix);
        expansion.public_key = Some((&self.encoding, &mut self.hash));
        expansion.run();
        self.prepare(lanes);
    }

    /// Computes the transform of −t₁·2^13 from the encoding.
    fn prepare(&mut self, lanes: &dyn Lanes) {
        let parts = self.encoding[32..].chunks_exact(length(10));
        for (t1, bytes) in self.t1.iter_mut().zip(parts) {
            lanes.decode_public(bytes, t1);
            lanes.forward(t1);
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey").field(&self.set).finish()
    }
}

/// Returns `count` copies of `value`, if there is memory.
fn repeated<T: Copy>(value: T, count: usize) -> Result<Vec<T>, KeyError> {
    let mut values = Vec::new();
    let reserved = values.try_reserve_exact(count);
    reserved.map_err(|_| KeyError::NoMemory)?;
    values.resize(count, value);
    Ok(values)
}

/// A private key and its public key: 30 to 90 KiB. The secret parts are wiped when it is dropped.
pub struct PrivateKey {
    pub(super) public: PublicKey,
    pub(super) seed: Slice<u8>,
    /// The secret polynomials, first the ones for the response. They are transformed as ML-KEM's:
    /// their products with a challenge are so small that ML-KEM's small modulus suffices.
    pub(super) small: Slice<Polynomial>,
    /// The transform of t₀.
    pub(super) t0: Slice<LongPolynomial>,
}

impl PrivateKey {
    /// Computes the key of a seed.
    pub fn from_seed(set: ParameterSet, backend: Backend, seed: &Seed) -> Result<Self, KeyError> {
        Self::build(set, backend, Source::Seed(seed), None)
    }

    /// Prepares an encoded key, if its parts belong together: secret polynomials are small enough,
    /// and t₀ and the hash of the public key follow from the rest.
    pub fn new(set: ParameterSet, backend: Backend, encoding: &[u8]) -> Result<Self, KeyError> {
        if encoding.len() != set.private_key_bytes() {
            return Err(KeyError::Invalid);
        }
        Self::build(set, backend, Source::Encoding(encoding), None)
    }

    /// Returns the public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    fn build(
        set: ParameterSet,
        backend: Backend,
        source: Source<'_>,
        encoding: Option<&mut [u8]>,
    ) -> Result<Self, KeyError> {
        let (k, l) = set.k_and_l();
        let memory = || {
            let long = (2 * k + l) * size_of::<LongPolynomial>();
            let work = Memory::try_new(long + (k + l) * size_of::<Polynomial>())?;
            let seed = Slice::try_zeroed(32, OnFork::Keep)?;
            let small = Slice::try_zeroed(k + l, OnFork::Keep)?;
            Some((work, seed, small, Slice::try_zeroed(k, OnFork::Keep)?))
        };
        let (mut work, seed, small, t0) = memory().ok_or(KeyError::NoMemory)?;
        let mut key = Self {
            public: PublicKey::empty(set)?,
            seed,
            small,
            t0,
        };
        let is_valid = on(backend, |lanes| {
            build(lanes, source, &mut key, &mut work, encoding)
        });
        is_valid.then_some(key).ok_or(KeyError::Invalid)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateKey").field(&self.public.set).finish()
    }
}

/// Computes the encoded key pair of a seed (algorithm 6).
///
/// # Panics
/// If the length of a key is not that of the parameter set.
pub fn generate(
    set: ParameterSet,
    backend: Backend,
    seed: &Seed,
    public_key: &mut [u8],
    private_key: &mut [u8],
) -> Result<(), KeyError> {
    assert_eq!(private_key.len(), set.private_key_bytes());
    let key = PrivateKey::build(set, backend, Source::Seed(seed), Some(private_key))?;
    public_key.copy_from_slice(key.public.encoding());
    Ok(())
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Seed(&'a Seed),
    Encoding(&'a [u8]),
}

/// Builds a key, and writes its encoding if asked to; returns whether the source is valid.
fn build(
    lanes: &dyn Lanes,
    source: Source<'_>,
    key: &mut PrivateKey,
    work: &mut Memory,
    encoding: Option<&mut [u8]>,
) -> bool {
    let (k, l) = key.public.set.k_and_l();
    let mut arena = work.arena();
    let vector: &mut [LongPolynomial] = arena.slice(l);
    let [t, rest]: [&mut [LongPolynomial]; 2] = [arena.slice(k), arena.slice(k)];
    let small: &mut [Polynomial] = arena.slice(k + l);

    let public = &mut key.public;
    let matrix_seed = match source {
        Source::Seed(seed) => {
            let mut block = [0; MOST_RATE];
            seeds(lanes, &seed.0, k, l, &mut block);
            // The seed of the matrix is a part of the public key.
            let matrix_seed = disclosed(*block.first_chunk().expect("32 bytes"));
            key.seed.copy_from_slice(&block[96..128]);
            let secret = block[32..].first_chunk().expect("64 bytes");
            let mut expansion = Expansion::new(lanes, (k, l), &matrix_seed, &mut public.matrix);
            expansion.small = Some((secret, small));
            expansion.run();
            wipe(&mut block);
            matrix_seed
        }
        Source::Encoding(bytes) => {
            let matrix_seed = disclosed(*bytes.first_chunk().expect("32 bytes"));
            key.seed.copy_from_slice(&bytes[32..64]);
            Expansion::new(lanes, (k, l), &matrix_seed, &mut public.matrix).run();
            matrix_seed
        }
    };
    // Places in an encoding: of the secret polynomials, and of t₀ behind them.
    let small_bytes = length(small_bits(k));
    let (first, second) = (128, 128 + (k + l) * small_bytes);
    let mut is_valid = true;
    if let Source::Encoding(bytes) = source {
        for (i, small) in small.iter_mut().enumerate() {
            is_valid &= decode_small(k, &bytes[first + small_bytes * i..], small);
        }
    }

    // t = A·s₁ + s₂.
    let (s1, s2) = small.split_at(l);
    for (small, transformed) in s1.iter().zip(&mut *vector) {
        lanes.widen(&small.0, transformed);
        lanes.forward(transformed);
    }
    lanes.product(&public.matrix, vector, None, t);
    public.encoding[..32].copy_from_slice(&matrix_seed);
    let parts = public.encoding[32..].chunks_exact_mut(length(10));
    for (((t, rest), s2), bytes) in t.iter_mut().zip(&mut *rest).zip(s2).zip(parts) {
        lanes.inverse(t);
        for (t, s2) in t.0.iter_mut().zip(&s2.0) {
            *t += i32::from(*s2);
        }
        round(t, rest);
        pack::<10>(|i| t.0[i], bytes);
    }
    for byte in &mut public.encoding {
        *byte = disclosed(*byte);
    }
    public.hash = key_hash(lanes, &public.encoding);

    if let Source::Encoding(bytes) = source {
        let hash = bytes[64..first].iter().zip(&public.hash);
        let mut different = hash.fold(0, |different, (a, b)| different | i32::from(a ^ b));
        let parts = bytes[second..].chunks_exact(length(13));
        for (rest, bytes) in rest.iter().zip(parts) {
            // The transform in `vector[0]` is not needed any more.
            decode_rest(bytes, &mut vector[0]);
            let both = rest.0.iter().zip(&vector[0].0);
            different |= both.fold(0, |different, (a, b)| different | (a ^ b));
        }
        if !disclosed(is_valid & (different == 0)) {
            return false;
        }
    }
    if let Some(encoding) = encoding {
        encoding[..32].copy_from_slice(&matrix_seed);
        encoding[32..64].copy_from_slice(&key.seed);
        encoding[64..first].copy_from_slice(&public.hash);
        for (i, small) in small.iter().enumerate() {
            encode_small(k, small, &mut encoding[first + small_bytes * i..]);
        }
        let parts = encoding[second..].chunks_exact_mut(length(13));
        for (rest, bytes) in rest.iter().zip(parts) {
            encode_rest(rest, bytes);
        }
    }

    public.prepare(lanes);
    key.small.copy_from_slice(small);
    for small in key.small.iter_mut() {
        lanes.forward_small(small);
    }
    key.t0.copy_from_slice(rest);
    for t0 in key.t0.iter_mut() {
        lanes.forward(t0);
    }
    true
}
