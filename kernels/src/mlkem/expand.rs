//! The hashes of a group of requests, and the matrices and the noise that are expanded from seeds.
//!
//! The hashes of one request depend on each other; the entries of its matrix do not. So a lane
//! takes the next hash of a request first, and an entry of a matrix if no hash is ready.

use super::coding::{NOISE, WIDE_NOISE, noise, sample_vartime, wide_noise};
use super::parameters::{Bytes, MOST, is_wide};
use super::work::{GROUP, entries, noises};
use crate::keccak::sponge::{self, Block, Function, Message, Messages};
use crate::secret::wipe;
use crate::simd::Simd;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Sampled, Words};
use crate::taint::disclosed;

/// The inputs that a request hashes.
#[derive(Clone, Copy)]
pub(super) enum Operation<'a> {
    /// The seed.
    Generate { seed: &'a Bytes },
    /// The message and the hash of the public key.
    Encapsulate {
        message: &'a Bytes,
        public_key: &'a [u8],
    },
    /// The decrypted message and the hash of the public key; beside them the secret that answers an
    /// invalid ciphertext.
    Decapsulate {
        message: &'a Bytes,
        key_hash: &'a Bytes,
        rejection: &'a Bytes,
        ciphertext: &'a [u8],
    },
    /// A public key.
    Hash { public_key: &'a [u8] },
}

/// The results of a request's hashes.
#[derive(Default)]
pub(super) struct Hashes {
    pub(super) matrix_seed: Bytes,
    noise_seed: Bytes,
    pub(super) key_hash: Bytes,
    pub(super) shared_secret: Bytes,
    pub(super) rejected: Bytes,
    /// Number of coefficients of each entry of the matrix so far.
    sampled: [usize; entries(MOST)],
    /// A bit for each polynomial of wide noise, set from its first block until its second one.
    begun: u8,
}

impl Drop for Hashes {
    fn drop(&mut self) {
        let Self {
            noise_seed,
            shared_secret,
            rejected,
            ..
        } = self;
        for secret in [noise_seed, shared_secret, rejected] {
            wipe(secret);
        }
    }
}

/// A hash of a request.
#[derive(Clone, Copy)]
enum Part {
    Key,
    Seed,
    Rejection,
    Noise(u8),
    Entry(u8),
}

/// Maximum number of hashes that are ready at a time: noise, and one that is independent of noise.
const MOST_READY: usize = GROUP * (noises(MOST) + 1);

/// Requests in progress.
struct Group<'b, W, F, const K: usize> {
    words: W,
    operation: F,
    hashes: &'b mut [Hashes],
    /// The entries of all matrices, and the noise of all requests.
    matrices: &'b mut [Sampled],
    noises: &'b mut [Polynomial],
    /// Hashes that can be computed now, except entries of matrices; the last one is next.
    ready: [(usize, Part); MOST_READY],
    ready_count: usize,
    /// Number of the next entry, counted over all matrices.
    entry: usize,
    /// Number of entries that can be computed.
    entries: usize,
}

/// Computes the hashes of requests, and from them matrices and noise. `operation` returns the
/// operation of a request, by its number. For encapsulation and decapsulation, `hashes` must have
/// the seed of the matrix.
pub(super) fn expand<'a, S: Simd, W: Words, const K: usize>(
    s: S,
    words: W,
    operation: impl Fn(usize) -> Operation<'a>,
    hashes: &mut [Hashes],
    matrices: &mut [Sampled],
    noises: &mut [Polynomial],
) {
    let count = hashes.len();
    let mut group = Group::<_, _, K> {
        words,
        operation,
        hashes,
        matrices,
        noises,
        ready: [(0, Part::Seed); MOST_READY],
        ready_count: 0,
        entry: 0,
        entries: 0,
    };
    for request in (0..count).rev() {
        match (group.operation)(request) {
            Operation::Generate { .. } => group.push(request, Part::Seed),
            Operation::Encapsulate { .. } => {
                group.entries += entries(K);
                group.push(request, Part::Key);
            }
            Operation::Decapsulate { key_hash, .. } => {
                group.hashes[request].key_hash = *key_hash;
                group.entries += entries(K);
                group.push(request, Part::Seed);
                group.push(request, Part::Rejection);
            }
            Operation::Hash { .. } => group.push(request, Part::Key),
        }
    }
    sponge::hash(s, &mut group);
}

impl<W, F, const K: usize> Group<'_, W, F, K> {
    fn push(&mut self, request: usize, part: Part) {
        self.ready[self.ready_count] = (request, part);
        self.ready_count += 1;
    }

    fn push_noise(&mut self, request: usize, count: usize) {
        for index in (0..count as u8).rev() {
            self.push(request, Part::Noise(index));
        }
    }
}

impl<'a, W: Words, F: Fn(usize) -> Operation<'a>, const K: usize> Messages<'a>
    for Group<'_, W, F, K>
{
    type Name = (usize, Part);

    fn next(&mut self, message: &mut Message<'a>) -> Option<(usize, Part)> {
        let (request, part) = if self.ready_count > 0 {
            self.ready_count -= 1;
            self.ready[self.ready_count]
        } else if self.entry < self.entries {
            self.entry += 1;
            let entry = self.entry - 1;
            (entry / entries(K), Part::Entry((entry % entries(K)) as u8))
        } else {
            return None;
        };
        let hashes = &self.hashes[request];
        match (part, (self.operation)(request)) {
            (
                Part::Key,
                Operation::Encapsulate { public_key, .. } | Operation::Hash { public_key },
            ) => message.set(Function::Sha3_256, [], public_key),
            (Part::Seed, Operation::Generate { seed }) => {
                message.set_short(Function::Sha3_512, [seed], [K as u8]);
            }
            (
                Part::Seed,
                Operation::Encapsulate {
                    message: secret, ..
                }
                | Operation::Decapsulate {
                    message: secret, ..
                },
            ) => message.set_short(Function::Sha3_512, [secret, &hashes.key_hash], []),
            (
                Part::Rejection,
                Operation::Decapsulate {
                    rejection,
                    ciphertext,
                    ..
                },
            ) => message.set(Function::Shake256, [rejection], ciphertext),
            (Part::Noise(index), _) => {
                message.set_short(Function::Shake256, [&hashes.noise_seed], [index]);
            }
            (Part::Entry(entry), _) => {
                let place = [entry % K as u8, entry / K as u8];
                message.set_short(Function::Shake128, [&hashes.matrix_seed], place);
            }
            _ => unreachable!("an operation has the parts that it began with"),
        }
        Some((request, part))
    }

    fn take(&mut self, (request, part): (usize, Part), block: &Block) -> bool {
        let hashes = &mut self.hashes[request];
        let (first, rest) = block.split_first_chunk().expect("32 bytes");
        let second = rest.first_chunk().expect("32 bytes");
        match part {
            Part::Key => {
                hashes.key_hash = *first;
                if let Operation::Encapsulate { .. } = (self.operation)(request) {
                    self.push(request, Part::Seed);
                }
            }
            Part::Seed => {
                hashes.noise_seed = *second;
                if let Operation::Generate { .. } = (self.operation)(request) {
                    // The seed of the matrix is a part of the public key.
                    hashes.matrix_seed = disclosed(*first);
                    self.entries += entries(K);
                    self.push_noise(request, 2 * K);
                } else {
                    hashes.shared_secret = *first;
                    self.push_noise(request, noises(K));
                }
            }
            Part::Rejection => hashes.rejected = *first,
            Part::Noise(index) => {
                let polynomial = &mut self.noises[noises(K) * request + usize::from(index)];
                // The noise of a secret is wide, and so is all noise of a key pair.
                let generates = matches!((self.operation)(request), Operation::Generate { .. });
                if is_wide(K) && (generates || usize::from(index) < K) {
                    hashes.begun ^= 1 << index;
                    let is_first = hashes.begun >> index & 1 == 1;
                    take_wide(self.words, is_first, block, polynomial);
                    return is_first;
                }
                let bytes = block.first_chunk::<NOISE>().expect("a block of SHAKE256");
                noise(self.words, bytes, polynomial);
            }
            Part::Entry(entry) => {
                let entry = usize::from(entry);
                let polynomial = &mut self.matrices[entries(K) * request + entry];
                let count = &mut hashes.sampled[entry];
                *count = sample_vartime(self.words, block, polynomial, *count);
                return *count < COEFFICIENTS;
            }
        }
        false
    }
}

/// Takes one of the two blocks of a wide noise. The polynomial stores the first block until the
/// second one is there.
fn take_wide<W: Words>(w: W, is_first: bool, block: &Block, polynomial: &mut Polynomial) {
    const FIRST: usize = Function::Shake256.rate();
    if is_first {
        for (word, bytes) in polynomial.0.iter_mut().zip(block[..FIRST].as_chunks().0) {
            *word = i16::from_le_bytes(*bytes);
        }
        return;
    }
    let mut both = [0; WIDE_NOISE];
    for (bytes, word) in both[..FIRST]
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip(&polynomial.0)
    {
        *bytes = word.to_le_bytes();
    }
    both[FIRST..].copy_from_slice(&block[..WIDE_NOISE - FIRST]);
    wide_noise(w, &both, polynomial);
    wipe(&mut both);
}
