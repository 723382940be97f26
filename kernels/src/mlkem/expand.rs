//! All hashing of a group of requests at once: of keys and of seeds, and the matrix and the noise
//! that are made of seeds.
//!
//! One request's hashes depend on each other; its matrix does not. So lanes take the next hash of a
//! request first, and entries of matrices where there is none.

use super::coding::{NOISE, noise, sample_vartime};
use super::parameters::{Bytes, Ciphertext, K, PublicKey};
use super::work::{ENTRIES, GROUP, Matrix, NOISES};
use crate::keccak::sponge::{self, Block, Function, Message, Messages};
use crate::secret::wipe;
use crate::simd::Simd;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Words};
use crate::taint::disclosed;

/// What a request hashes.
#[derive(Clone, Copy)]
pub(super) enum Operation<'a> {
    /// The seed.
    Generate { seed: &'a Bytes },
    /// The message and the hash of the public key.
    Encapsulate {
        message: &'a Bytes,
        public_key: &'a PublicKey,
    },
    /// The message that was found and the hash of the public key; beside them what answers a
    /// ciphertext that is rejected.
    Decapsulate {
        message: &'a Bytes,
        key_hash: &'a Bytes,
        rejection: &'a Bytes,
        ciphertext: &'a Ciphertext,
    },
    /// A public key.
    Hash { public_key: &'a PublicKey },
}

/// What a request's hashes give.
#[derive(Default)]
pub(super) struct Hashes {
    /// The seed of the matrix.
    pub(super) matrix_seed: Bytes,
    noise_seed: Bytes,
    pub(super) key_hash: Bytes,
    pub(super) shared_secret: Bytes,
    pub(super) rejected: Bytes,
    /// Coefficients that each entry of the matrix has.
    sampled: [usize; ENTRIES],
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

/// Hashes that may be ready at a time: noise, and what is independent of it.
const MOST_READY: usize = GROUP * (NOISES + 1);

/// Requests on their way.
struct Group<'b, W, F> {
    words: W,
    operation: F,
    hashes: &'b mut [Hashes],
    matrices: &'b mut [Matrix],
    noises: &'b mut [[Polynomial; NOISES]],
    /// Hashes that can be computed and upon which others wait; the last one is next.
    ready: [(usize, Part); MOST_READY],
    ready_count: usize,
    /// The entry of all matrices that is next, and those that can be computed.
    entry: usize,
    entries: usize,
}

/// Computes the hashes of requests, which are `operation` of their numbers, and from them matrices
/// and noises. `hashes` hold the seeds of the matrices of all requests but those that generate a
/// key.
pub(super) fn expand<'a, S: Simd, W: Words>(
    s: S,
    words: W,
    operation: impl Fn(usize) -> Operation<'a>,
    hashes: &mut [Hashes],
    matrices: &mut [Matrix],
    noises: &mut [[Polynomial; NOISES]],
) {
    let count = hashes.len();
    let mut group = Group {
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
                group.entries += ENTRIES;
                group.push(request, Part::Key);
            }
            Operation::Decapsulate { key_hash, .. } => {
                group.hashes[request].key_hash = *key_hash;
                group.entries += ENTRIES;
                group.push(request, Part::Seed);
                group.push(request, Part::Rejection);
            }
            Operation::Hash { .. } => group.push(request, Part::Key),
        }
    }
    sponge::hash(s, &mut group);
}

impl<W, F> Group<'_, W, F> {
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

impl<'a, W: Words, F: Fn(usize) -> Operation<'a>> Messages<'a> for Group<'_, W, F> {
    type Name = (usize, Part);

    fn next(&mut self, message: &mut Message<'a>) -> Option<(usize, Part)> {
        let (request, part) = if self.ready_count > 0 {
            self.ready_count -= 1;
            self.ready[self.ready_count]
        } else if self.entry < self.entries {
            self.entry += 1;
            let entry = self.entry - 1;
            (entry / ENTRIES, Part::Entry((entry % ENTRIES) as u8))
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
                    // It is a part of the public key.
                    hashes.matrix_seed = disclosed(*first);
                    self.entries += ENTRIES;
                    self.push_noise(request, 2 * K);
                } else {
                    hashes.shared_secret = *first;
                    self.push_noise(request, NOISES);
                }
            }
            Part::Rejection => hashes.rejected = *first,
            Part::Noise(index) => {
                let bytes = block.first_chunk::<NOISE>().expect("a block of SHAKE256");
                noise(
                    self.words,
                    bytes,
                    &mut self.noises[request][usize::from(index)],
                );
            }
            Part::Entry(entry) => {
                let entry = usize::from(entry);
                let polynomial = &mut self.matrices[request][entry];
                let count = &mut hashes.sampled[entry];
                *count = sample_vartime(self.words, block, polynomial, *count);
                return *count < COEFFICIENTS;
            }
        }
        false
    }
}
