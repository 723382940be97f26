//! The hashes of ML-DSA (FIPS 204, sections 6 and 7.3), as messages of one sponge in each lane.

use super::coding::{Ball, MASK_BLOCKS, Mask, sample_small};
use super::lanes::Lanes;
use super::parameters::{Bytes, GROUP, Hash, challenge_bytes, commitment_bytes};
use crate::keccak::sponge::{Block, Function, Message, Messages};
use crate::simd::words16::{COEFFICIENTS, Polynomial};
use crate::simd::words32::{AlignedBytes, LongSampled};
use crate::taint::disclosed;

/// Number of entries of the largest matrix.
const MOST_ENTRIES: usize = 8 * 7;
/// Number of polynomials of the longest secret.
const MOST_SMALL: usize = 8 + 7;

/// Returns both halves of a long hash.
fn halves(hash: &Hash) -> [&Bytes; 2] {
    let (first, rest) = hash.split_first_chunk().expect("32 bytes");
    [first, rest.first_chunk().expect("32 bytes")]
}

/// One message: a seed and two bytes or, if the tail is not empty, the tail alone.
struct One<'a, 'b> {
    pieces: Option<(&'a Bytes, [u8; 2], &'a [u8])>,
    block: &'b mut Block,
}

impl<'a> Messages<'a> for One<'a, '_> {
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        let (seed, place, tail) = self.pieces.take()?;
        match tail {
            [] => message.set_short(Function::Shake256, [seed], place),
            _ => message.set(Function::Shake256, [], tail),
        }
        Some(0)
    }

    fn take(&mut self, _: usize, block: &Block) -> bool {
        *self.block = *block;
        false
    }
}

/// Expands a seed and the sizes of a matrix to the seed of the matrix, the seed of the secret
/// polynomials, and the private seed of masks (algorithm 6, line 1). Writes them to `block`, which
/// the caller wipes.
pub(super) fn seeds(lanes: &dyn Lanes, seed: &Bytes, k: usize, l: usize, block: &mut Block) {
    let pieces = Some((seed, [k as u8, l as u8], &[][..]));
    lanes.hash(&mut One { pieces, block });
}

pub(super) fn key_hash(lanes: &dyn Lanes, public_key: &[u8]) -> Hash {
    let mut block = [0; _];
    let pieces = Some((&[0; 32], [0; 2], public_key));
    lanes.hash(&mut One {
        pieces,
        block: &mut block,
    });
    *block.first_chunk().expect("64 bytes")
}

/// Expands the matrix of a key (algorithm 32) and, on request, the secret polynomials (algorithm
/// 33) and the hash of the public key. The hash comes first, then the secret polynomials.
pub(super) struct Expansion<'a, 'b> {
    lanes: &'a dyn Lanes,
    k: usize,
    l: usize,
    matrix_seed: &'a Bytes,
    matrix: &'b mut [LongSampled],
    pub(super) small: Option<(&'a Hash, &'b mut [Polynomial])>,
    pub(super) public_key: Option<(&'a [u8], &'b mut Hash)>,
    /// Number of the next message.
    next: usize,
    /// Column and row of the next entry.
    place: [u8; 2],
    /// Number of coefficients that each polynomial has.
    sampled: [u16; MOST_ENTRIES + MOST_SMALL],
}

impl<'a, 'b> Expansion<'a, 'b> {
    /// Prepares the expansion of a matrix alone, of k rows and l columns.
    pub(super) fn new(
        lanes: &'a dyn Lanes,
        (k, l): (usize, usize),
        matrix_seed: &'a Bytes,
        matrix: &'b mut [LongSampled],
    ) -> Self {
        Self {
            lanes,
            k,
            l,
            matrix_seed,
            matrix,
            small: None,
            public_key: None,
            next: 0,
            place: [0; 2],
            sampled: [0; _],
        }
    }

    /// Computes everything.
    pub(super) fn run(mut self) {
        self.lanes.hash(&mut self);
    }

    /// Returns the number of hashes of a public key, and the number of secret polynomials.
    fn counts(&self) -> [usize; 2] {
        let small = self.small.as_ref().map_or(0, |(_, small)| small.len());
        [usize::from(self.public_key.is_some()), small]
    }
}

impl<'a> Messages<'a> for Expansion<'a, '_> {
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        let [hashes, small] = self.counts();
        let name = self.next;
        if name == hashes + small + self.matrix.len() {
            return None;
        }
        self.next += 1;
        // The hash of a key takes many passes, so it starts in the first one.
        if name < hashes {
            let (public_key, _) = self.public_key.as_ref()?;
            message.set(Function::Shake256, [], public_key);
        } else if name < hashes + small {
            let (seed, _) = self.small.as_ref()?;
            let place = [(name - hashes) as u8, 0];
            message.set_short(Function::Shake256, halves(seed), place);
        } else {
            message.set_short(Function::Shake128, [self.matrix_seed], self.place);
            let [column, row] = &mut self.place;
            *column += 1;
            if usize::from(*column) == self.l {
                (*column, *row) = (0, *row + 1);
            }
        }
        Some(name)
    }

    fn take(&mut self, name: usize, block: &Block) -> bool {
        let [hashes, others] = self.counts();
        if name < hashes {
            let (_, hash) = self.public_key.as_mut().expect("it was asked for");
            **hash = *block.first_chunk().expect("64 bytes");
            return false;
        }
        let name = name - hashes;
        let sampled = &mut self.sampled[name];
        let count = usize::from(*sampled);
        let count = if name < others {
            let (_, small) = self.small.as_mut().expect("they were asked for");
            sample_small(self.k, block, &mut small[name], count)
        } else {
            let entry = &mut self.matrix[name - others];
            self.lanes.sample_vartime(block, entry, count)
        };
        *sampled = count as u16;
        count < COEFFICIENTS
    }
}

/// Computes the representatives of messages (algorithm 7, line 6).
pub(super) struct Representatives<'a, 'b> {
    /// For each message, the hash of the signer's public key, and the message.
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

/// Computes the private seeds of the masks of requests (algorithm 7, line 7).
pub(super) struct MaskSeeds<'a, 'b> {
    /// The key's private seed, the randomness, and the message's representative, of each request.
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

/// Computes the masks of rounds (algorithm 34), before they are unpacked.
pub(super) struct Masks<'a, 'b> {
    /// The seed of the request and the counter of the first polynomial, of each round.
    pub(super) rounds: &'b [(&'a Hash, u16)],
    /// Number of polynomials of a mask.
    pub(super) l: usize,
    pub(super) masks: &'b mut [Mask],
    /// The next polynomial, its round, and its place in the round's mask.
    pub(super) next: [usize; 3],
    /// Number of blocks that each polynomial has.
    pub(super) blocks: [u8; GROUP * 7],
}

impl<'a> Messages<'a> for Masks<'a, '_> {
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        let [next, round, place] = &mut self.next;
        let (seed, first) = *self.rounds.get(*round)?;
        let counter = first + *place as u16;
        message.set_short(Function::Shake256, halves(seed), counter.to_le_bytes());
        *place += 1;
        if *place == self.l {
            (*round, *place) = (*round + 1, 0);
        }
        *next += 1;
        Some(*next - 1)
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

/// Computes hashes of commitments, and the challenges from them.
pub(super) struct Challenges<'a, 'b> {
    pub(super) k: usize,
    /// The representative of the message that each commitment is hashed with.
    pub(super) messages: &'b [&'a Hash],
    pub(super) commitments: &'a [AlignedBytes<1024>],
    pub(super) hashes: &'b mut [Hash],
    pub(super) balls: Option<&'b mut [Ball]>,
    pub(super) next: usize,
    /// A bit for each hash from which a challenge can be computed now.
    pub(super) ready: u32,
}

impl<'a> Messages<'a> for Challenges<'a, '_> {
    /// Index of the commitment; [`GROUP`] more for its challenge.
    type Name = usize;

    fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
        if self.balls.is_some() && self.ready != 0 {
            let index = self.ready.trailing_zeros() as usize;
            self.ready &= self.ready - 1;
            let hash = &self.hashes[index][..challenge_bytes(self.k)];
            message.set_whole(Function::Shake256, hash);
            return Some(GROUP + index);
        }
        let index = self.next;
        let mu = self.messages.get(index)?;
        let commitment = &self.commitments[index].0[..commitment_bytes(self.k)];
        message.set(Function::Shake256, halves(mu), commitment);
        self.next += 1;
        Some(index)
    }

    fn take(&mut self, index: usize, block: &Block) -> bool {
        if let Some(index) = index.checked_sub(GROUP) {
            let balls = self.balls.as_mut().expect("they were asked for");
            return !balls[index].take(self.k, block);
        }
        // The hash is public, and so is everything computed from it: see `Ball`.
        self.hashes[index] = disclosed(*block.first_chunk().expect("64 bytes"));
        self.ready |= 1 << index;
        false
    }
}
