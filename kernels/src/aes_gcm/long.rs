//! Counter mode and GHASH side by side, eight vectors at a time.
//!
//! A unit is eight vectors. While a unit is encrypted, the unit before it is hashed. The lanes of a
//! vector are hashed apart: with n lanes, each lane evaluates the polynomial of every n-th block of
//! the message at the point H^n. So all blocks of a vector are multiplied by the same power, and no
//! unit waits for a sum over lanes.

use super::ghash::{Sum, last_powers};
use super::state::{Key, LONG};
use crate::in_out::InOut;
use crate::simd::blocks::{BLOCK_BYTES, Block, Blocks, MOST_LANES};
use crate::simd::inlined;
use crate::unroll::unrolled;

/// The number of each block in its first byte, to be added to a reversed counter.
pub(super) static NUMBERS: [Block; LONG * MOST_LANES] = {
    let mut blocks = [[0; BLOCK_BYTES]; LONG * MOST_LANES];
    let mut i = 0;
    while i < blocks.len() {
        blocks[i][0] = i as u8;
        i += 1;
    }
    blocks
};

/// Encrypts or decrypts one unit or more.
#[inline(always)]
pub(super) fn long<B: Blocks, const ENCRYPT: bool>(
    b: B,
    key: &Key,
    counter: u128,
    hash: &mut Block,
    mut data: InOut<'_>,
) {
    let zero = b.broadcast(&[0; BLOCK_BYTES]);
    let mut unit = Unit::<B, ENCRYPT> {
        b,
        key,
        counter: b.broadcast(&counter.to_le_bytes()),
        sum: Sum::new(b),
        hash: zero,
        ciphertext: [zero; LONG],
    };
    if let Some(first) = data.take_exact(LONG * B::BYTES) {
        unit.ciphertext = unit.crypt(first, inlined!(|_| ()));
        unit.ciphertext[0] = b.xor(unit.ciphertext[0], b.reverse(b.block(hash)));
        while let Some(next) = data.take_exact(LONG * B::BYTES) {
            let mut before = unit;
            unit.ciphertext = unit.crypt(next, inlined!(|i: usize| before.hash_pair(i)));
            unit.hash = before.hash;
        }
        unrolled::<{ LONG / 2 }>(inlined!(|i: usize| unit.hash_pair(i)));
        *hash = unit.sum_of_lanes();
    }
}

/// A unit that is encrypted, but not hashed yet.
#[derive(Clone, Copy)]
struct Unit<'k, B: Blocks, const ENCRYPT: bool> {
    b: B,
    key: &'k Key,
    /// First counter of the next unit, bytes reversed.
    counter: B::Vector,
    sum: Sum<B>,
    /// Hash of each lane's blocks before this unit, without the last product.
    hash: B::Vector,
    /// Ciphertext, bytes of each block reversed.
    ciphertext: [B::Vector; LONG],
}

impl<B: Blocks, const ENCRYPT: bool> Unit<'_, B, ENCRYPT> {
    /// Adds products 2·i and 2·i + 1 of this unit. The factors of the products are the hash before
    /// the unit, then the unit's vectors except the last one. After all products, the reduced sum
    /// plus the last vector is the new hash.
    #[inline(always)]
    fn hash_pair(&mut self, i: usize) {
        let (b, x) = (self.b, &self.ciphertext);
        let first = if i == 0 { self.hash } else { x[2 * i - 1] };
        let strides = [&self.key.strides[2 * i], &self.key.strides[2 * i + 1]];
        self.sum.add_pair(b, [first, x[2 * i]], strides);
        if i == LONG / 2 - 1 {
            self.hash = b.xor(self.sum.reduce(b), x[LONG - 1]);
            self.sum = Sum::new(b);
        }
    }

    /// Returns the hash of the whole message so far.
    #[inline(always)]
    fn sum_of_lanes(self) -> Block {
        let (mut sum, b) = (Sum::new(self.b), self.b);
        sum.add(b, self.hash, b.load(last_powers(self.key, B::LANES)));
        b.sum(b.reverse(sum.reduce(b)))
    }

    /// Encrypts or decrypts a unit. Calls `beside` with 0, 1, 2 and 3 between the rounds. Returns
    /// the ciphertext, bytes of each block reversed.
    #[inline(always)]
    fn crypt(&mut self, mut data: InOut<'_>, mut beside: impl FnMut(usize)) -> [B::Vector; LONG] {
        let b = self.b;
        let keys = &self.key.round_keys;
        let (early, late) = keys[1..=self.key.rounds].split_at(self.key.rounds - 9);
        let late: &[Block; 9] = late.first_chunk().expect("ten rounds or more");
        let (mut states, first) = (self.ciphertext, b.broadcast(&keys[0]));
        unrolled::<LONG>(inlined!(|i: usize| {
            let numbers = b.load(&NUMBERS.as_flattened()[i * B::BYTES..]);
            states[i] = b.xor(b.reverse(b.add_words(self.counter, numbers)), first);
        }));
        let step = (LONG * B::LANES) as u128;
        self.counter = b.add_words(self.counter, b.broadcast(&step.to_le_bytes()));
        for round_key in early {
            let round_key = b.broadcast(round_key);
            unrolled::<LONG>(inlined!(
                |i: usize| states[i] = b.round(states[i], round_key)
            ));
        }
        unrolled::<8>(inlined!(|r: usize| {
            let round_key = b.broadcast(&late[r]);
            unrolled::<LONG>(inlined!(
                |i: usize| states[i] = b.round(states[i], round_key)
            ));
            if r % 2 == 1 {
                beside(r / 2);
            }
        }));
        let last = b.broadcast(&late[8]);
        unrolled::<LONG>(inlined!(|i: usize| {
            let mut part = data.take(B::BYTES);
            let before = b.load(part.input());
            let after = b.last_round(states[i], b.xor(before, last));
            b.store(part.output(), after);
            states[i] = b.reverse(if ENCRYPT { after } else { before });
        }));
        states
    }
}
