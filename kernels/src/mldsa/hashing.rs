//! What ML-DSA hashes (FIPS 204, sections 6 and 7.3), as messages of one sponge in each lane.

use super::coding::{Ball, MASK_BLOCKS, Mask, sample_small, sample_vartime};
use super::parameters::{Bytes, GROUP, Hash, challenge_bytes, commitment_bytes};
use crate::keccak::sponge::{self, Block, Function, Message, Messages};
use crate::simd::Simd;
use crate::simd::words16::{COEFFICIENTS, Polynomial};
use crate::simd::words32::{AlignedBytes, LongSampled, LongWords};
use crate::taint::disclosed;

/// Entries of the largest matrix.
const MOST_ENTRIES: usize = 8 * 7;
/// Polynomials of the longest secret.
const MOST_SMALL: usize = 8 + 7;

/// Both halves of a long hash.
fn halves(hash: &Hash) -> [&Bytes; 2] {
    let (first, rest) = hash.split_first_chunk().expect("32 bytes");
    [first, rest.first_chunk().expect("32 bytes")]
}

/// One message.
struct One<'a, 'b> {
    pieces: Option<(&'a Bytes, [u8; 2], &'a [u8])>,
    block: &'b mut Block,
}

impl<'a> Messages<'a> for One<'a, '_> {
    type Name = ();

    fn next(&mut self, message: &mut Message<'a>) -> Option<()> {
        let (seed, place, tail) = self.pieces.take()?;
        match tail {
            [] => message.set_short(Function::Shake256, [seed], place),
            _ => message.set(Function::Shake256, [], tail),
        }
        Some(())
    }

    fn take(&mut self, (): (), block: &Block) -> bool {
        *self.block = *block;
        false
    }
}

/// What a seed and the sizes of a matrix give: the seed of the matrix, that of the secret
/// polynomials, and the private seed of masks (algorithm 6, line 1). The caller wipes it.
pub(super) fn seeds<S: Simd>(s: S, seed: &Bytes, k: usize, l: usize, block: &mut Block) {
    let pieces = Some((seed, [k as u8, l as u8], &[][..]));
    sponge::hash(s, &mut One { pieces, block });
}

/// The hash of a public key.
pub(super) fn key_hash<S: Simd>(s: S, public_key: &[u8]) -> Hash {
    let mut block = [0; _];
    let pieces = Some((&[0; 32], [0; 2], public_key));
    sponge::hash(
        s,
        &mut One {
            pieces,
            block: &mut block,
        },
    );
    *block.first_chunk().expect("64 bytes")
}

/// A part of [`Expansion`].
#[derive(Clone, Copy)]
pub(super) enum Part {
    Key,
    Small(usize),
    Entry(usize),
}

/// The matrix of a key (algorithm 32), and what else is asked for: the secret polynomials
/// (algorithm 33), the hash of the public key.
pub(super) struct Expansion<'a, 'b, W> {
    pub(super) words: W,
    pub(super) k: usize,
    pub(super) matrix_seed: &'a Bytes,
    pub(super) matrix: &'b mut [LongSampled],
    pub(super) small: Option<(&'a Hash, &'b mut [Polynomial])>,
    pub(super) public_key: Option<(&'a [u8], &'b mut Hash)>,
    /// What is next.
    pub(super) next: usize,
    /// Coefficients that each polynomial has.
    pub(super) sampled: [u16; MOST_ENTRIES + MOST_SMALL],
}

impl<'a, 'b, W: LongWords> Expansion<'a, 'b, W> {
    /// Of a matrix alone.
    pub(super) fn new(
        words: W,
        k: usize,
        matrix_seed: &'a Bytes,
        matrix: &'b mut [LongSampled],
    ) -> Self {
        Self {
            words,
            k,
            matrix_seed,
            matrix,
            small: None,
            public_key: None,
            next: 0,
            sampled: [0; _],
        }
    }

    /// Computes all.
    pub(super) fn run<S: Simd>(mut self, s: S) {
        sponge::hash(s, &mut self);
    }
}

impl<'a, W: LongWords> Messages<'a> for Expansion<'a, '_, W> {
    type Name = Part;

    fn next(&mut self, message: &mut Message<'a>) -> Option<Part> {
        // The hash of a key takes many passes, so it begins with the first one.
        if self.next == 0
            && let Some((public_key, _)) = self.public_key
        {
            self.next = 1;
            message.set(Function::Shake256, [], public_key);
            return Some(Part::Key);
        }
        let index = self.next - usize::from(self.public_key.is_some());
        let small = self.small.as_ref().map_or(0, |(_, small)| small.len());
        self.next += 1;
        if index < small {
            let seed = self.small.as_ref().expect("there are some").0;
            message.set_short(Function::Shake256, halves(seed), [index as u8, 0]);
            return Some(Part::Small(index));
        }
        let index = index - small;
        if index == self.matrix.len() {
            self.next -= 1;
            return None;
        }
        let columns = self.matrix.len() / self.k;
        let place = [(index % columns) as u8, (index / columns) as u8];
        message.set_short(Function::Shake128, [self.matrix_seed], place);
        Some(Part::Entry(index))
    }

    fn take(&mut self, part: Part, block: &Block) -> bool {
        match part {
            Part::Key => {
                let (_, hash) = self.public_key.as_mut().expect("it was asked for");
                **hash = *block.first_chunk().expect("64 bytes");
                false
            }
            Part::Small(index) => {
                let (_, small) = self.small.as_mut().expect("they were asked for");
                let sampled = &mut self.sampled[MOST_ENTRIES + index];
                let count = usize::from(*sampled);
                *sampled = sample_small(self.k, block, &mut small[index], count) as u16;
                usize::from(*sampled) < COEFFICIENTS
            }
            Part::Entry(index) => {
                let sampled = &mut self.sampled[index];
                let (entry, count) = (&mut self.matrix[index], usize::from(*sampled));
                *sampled = sample_vartime(self.words, block, entry, count) as u16;
                usize::from(*sampled) < COEFFICIENTS
            }
        }
    }
}

/// The representatives of messages (algorithm 7, line 6).
pub(super) struct Representatives<'a, 'b> {
    /// Of each message the hash of the key, and the message.
    pub(super) inputs: [Option<(&'a Hash, &'a [u8])>; GROUP],
    pub(super) mus: &'b mut [Hash; GROUP],
    pub(super) next: usize,
}

impl<'a> Messages<'a> for Representatives<'a, '_> {
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        let (index, &(key, bytes)) = self
            .inputs
            .iter()
            .enumerate()
            .skip(self.next)
            .find_map(|(index, input)| Some((index, input.as_ref()?)))?;
        message.set(Function::Shake256, halves(key), bytes);
        self.next = index + 1;
        Some(index)
    }

    fn take(&mut self, index: usize, block: &Block) -> bool {
        self.mus[index] = *block.first_chunk().expect("64 bytes");
        false
    }
}

/// The private seeds of the masks of requests (algorithm 7, line 7).
pub(super) struct MaskSeeds<'a, 'b> {
    /// Of each request the key's private seed, the randomness, and the message's representative.
    pub(super) inputs: [Option<(&'a Bytes, &'a Bytes, &'a Hash)>; GROUP],
    pub(super) seeds: &'b mut [Hash; GROUP],
    pub(super) next: usize,
}

impl<'a> Messages<'a> for MaskSeeds<'a, '_> {
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        let (key, randomness, mu) = (*self.inputs.get(self.next)?)?;
        message.set(Function::Shake256, [key, randomness], mu);
        self.next += 1;
        Some(self.next - 1)
    }

    fn take(&mut self, request: usize, block: &Block) -> bool {
        self.seeds[request] = *block.first_chunk().expect("64 bytes");
        false
    }
}

/// The masks of rounds (algorithm 34), before they are unpacked.
pub(super) struct Masks<'a, 'b> {
    /// Of each round the seed of its request, and the counter of its first polynomial.
    pub(super) rounds: &'b [(&'a Hash, u16)],
    /// Polynomials of a mask.
    pub(super) l: usize,
    pub(super) masks: &'b mut [Mask],
    pub(super) next: usize,
    /// Blocks that there are of each polynomial.
    pub(super) blocks: [u8; GROUP * 7],
}

impl<'a> Messages<'a> for Masks<'a, '_> {
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        let (seed, first) = *self.rounds.get(self.next / self.l)?;
        let counter = first + (self.next % self.l) as u16;
        message.set_short(Function::Shake256, halves(seed), counter.to_le_bytes());
        self.next += 1;
        Some(self.next - 1)
    }

    fn take(&mut self, polynomial: usize, block: &Block) -> bool {
        const RATE: usize = Function::Shake256.rate();
        let blocks = &mut self.blocks[polynomial];
        let to = &mut self.masks[polynomial].0[RATE * usize::from(*blocks)..];
        to[..RATE].copy_from_slice(&block[..RATE]);
        *blocks += 1;
        usize::from(*blocks) < MASK_BLOCKS
    }
}

/// Hashes of commitments, and the challenges that they give.
pub(super) struct Challenges<'a, 'b> {
    pub(super) k: usize,
    /// Of each commitment the representative of the message that it is hashed with.
    pub(super) messages: &'b [&'a Hash],
    pub(super) commitments: &'a [AlignedBytes<1024>],
    pub(super) hashes: &'b mut [Hash],
    pub(super) balls: Option<&'b mut [Ball]>,
    pub(super) next: usize,
    /// Those hashes, a bit for each, of which challenges can be made.
    pub(super) ready: u32,
}

impl<'a> Messages<'a> for Challenges<'a, '_> {
    /// Which one, and whether it is the challenge.
    type Name = (usize, bool);

    fn next(&mut self, message: &mut Message<'a>) -> Option<(usize, bool)> {
        if self.balls.is_some() && self.ready != 0 {
            let index = self.ready.trailing_zeros() as usize;
            self.ready &= self.ready - 1;
            let hash = &self.hashes[index][..challenge_bytes(self.k)];
            message.set_whole(Function::Shake256, hash);
            return Some((index, true));
        }
        let index = self.next;
        let mu = self.messages.get(index)?;
        let commitment = &self.commitments[index].0[..commitment_bytes(self.k)];
        message.set(Function::Shake256, halves(mu), commitment);
        self.next += 1;
        Some((index, false))
    }

    fn take(&mut self, (index, is_challenge): (usize, bool), block: &Block) -> bool {
        if is_challenge {
            let balls = self.balls.as_mut().expect("they were asked for");
            return !balls[index].take(self.k, block);
        }
        // It is public, as is all that is made of it: see `Ball`.
        self.hashes[index] = disclosed(*block.first_chunk().expect("64 bytes"));
        self.ready |= 1 << index;
        false
    }
}
