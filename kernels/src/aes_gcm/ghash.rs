//! GHASH (SP 800-38D, section 6.4).
//!
//! In GHASH, the most significant bit of a block's first byte is the coefficient of x^0. With their
//! bytes reversed, blocks are elements of GF(2^128) modulo x^128 + x^127 + x^126 + x^121 + 1, as in
//! POLYVAL. The product there is a·b·x^−128. It yields GHASH if H is multiplied by x first (RFC
//! 8452, appendix A).

use super::aes::encipher;
use super::state::{Key, POWERS, SHORT, Stride, position};
use crate::simd::blocks::{BLOCK_BYTES, Block, Blocks, HIGH_HIGH, HIGH_LOW, LOW_LOW, MOST_LANES};
use crate::simd::enter;
use crate::taint::whole;

impl Stride {
    /// Takes the power in the first lane.
    #[inline(always)]
    pub(super) fn new<B: Blocks>(b: B, power: B::Vector) -> Self {
        let halves = b.first(b.add_halves(power, power));
        Self {
            power: b.first(power),
            halves: *halves.first_chunk().expect("a half"),
        }
    }
}

/// Computes the powers of H from the round keys: the lowest `B::LANES` powers one by one, the
/// others vector by vector.
#[inline(never)]
pub(super) fn prepare<B: Blocks>(b: B, key: &mut Key) {
    enter!(b, [key], {
        let mut h = [b.broadcast(&[0; BLOCK_BYTES])];
        encipher(b, key, &mut h);
        let h = u128::from_le_bytes(b.first(b.reverse(h[0])));
        // Multiplies by x.
        let carry = whole(0_u64.wrapping_sub((h >> 127) as u64));
        let modulus = u128::from(carry & 0xc2 << 56) << 64 | u128::from(carry & 1);
        let h = (h << 1) ^ modulus;
        let h = b.broadcast(&h.to_le_bytes());

        let (high, low) = key.powers[..POWERS].split_at_mut(POWERS - B::LANES);
        let mut first = [h; MOST_LANES];
        for i in 1..B::LANES {
            first[i] = product(b, first[i / 2], first[(i - 1) / 2]);
        }
        for (place, power) in low.iter_mut().rev().zip(first) {
            *place = b.first(power);
        }
        let step = first[B::LANES - 1];
        let mut powers = b.load(low.as_flattened());
        for places in high.rchunks_mut(B::LANES) {
            powers = product(b, powers, step);
            b.store(places.as_flattened_mut(), powers);
        }
        let step = b.broadcast(&key.powers[POWERS - SHORT * B::LANES]);
        for i in 0..SHORT {
            let power = b.broadcast(&key.powers[POWERS - (SHORT - i) * B::LANES]);
            key.strides[SHORT + i] = Stride::new(b, power);
            key.strides[i] = Stride::new(b, product(b, power, step));
        }
    });
}

/// Returns H^`count` to H, the highest power first, and the zeros behind H.
#[inline(always)]
pub(super) fn last_powers(key: &Key, count: usize) -> &[u8] {
    &key.powers.as_flattened()[(POWERS - count) * BLOCK_BYTES..]
}

/// Hashes more bytes. The first `skip` bytes of the current block were added already. An incomplete
/// block at the end is added, but not multiplied.
#[inline(never)]
pub(super) fn absorb<B: Blocks>(b: B, key: &Key, hash: &mut Block, skip: usize, bytes: &[u8]) {
    enter!(b, [hash], {
        let (mut bytes, mut skip) = (bytes, skip);
        while !bytes.is_empty() {
            let mut part = split_off(&mut bytes, SHORT * B::BYTES - skip);
            let mut sum = Summands::new(b, key, hash, skip + part.len());
            while !part.is_empty() {
                sum.add(b, b.load_at(skip, split_off(&mut part, B::BYTES - skip)));
                skip = 0;
            }
            *hash = sum.hash(b);
        }
    });
}

/// Takes the first `count` bytes, or all if there are fewer.
#[inline(always)]
fn split_off<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (first, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    first
}

/// Sum of the products of at most [`SHORT`] vectors of a message with powers of H. The first vector
/// starts at a block.
pub(super) struct Summands<'k, B: Blocks> {
    sum: Sum<B>,
    /// Added to the next vector: the hash before these bytes, then zero.
    first: B::Vector,
    /// Sum of the bytes behind the last whole block.
    rest: B::Vector,
    powers: &'k [u8],
    /// Number of bytes in whole blocks that are still to come.
    whole: usize,
    has_products: bool,
}

impl<'k, B: Blocks> Summands<'k, B> {
    /// Begins with `hash` as the hash so far; `count` bytes will come.
    #[inline(always)]
    pub(super) fn new(b: B, key: &'k Key, hash: &Block, count: usize) -> Self {
        let blocks = count / BLOCK_BYTES;
        Self {
            sum: Sum::new(b),
            first: b.block(hash),
            rest: b.broadcast(&[0; BLOCK_BYTES]),
            powers: last_powers(key, blocks),
            whole: count - position(count as u64),
            has_products: blocks > 0,
        }
    }

    /// Adds the next bytes: a vector, filled up with zeros at the end. Bytes behind the last whole
    /// block are not multiplied.
    #[inline(always)]
    pub(super) fn add(&mut self, b: B, bytes: B::Vector) {
        let x = b.xor(bytes, self.first);
        self.first = b.broadcast(&[0; BLOCK_BYTES]);
        if self.whole > 0 {
            self.sum.add(b, b.reverse(x), b.load(self.powers));
            self.powers = self.powers.get(B::BYTES..).unwrap_or_default();
        }
        if self.whole < B::BYTES {
            self.rest = b.xor(self.rest, b.keep(self.whole, B::BYTES, x));
        }
        self.whole = self.whole.saturating_sub(B::BYTES);
    }

    #[inline(always)]
    pub(super) fn hash(self, b: B) -> Block {
        b.sum(if self.has_products {
            b.xor(b.reverse(self.sum.reduce(b)), self.rest)
        } else {
            self.rest
        })
    }
}

/// Returns the hash with one more block, `last`. If `is_open`, an incomplete block was added to
/// `hash` without a product, so `hash` is multiplied first.
#[inline(always)]
pub(super) fn close<B: Blocks>(
    b: B,
    key: &Key,
    hash: &Block,
    is_open: bool,
    last: &Block,
) -> Block {
    let (mut sum, mut x) = (Sum::new(b), b.block(last));
    if is_open {
        let before = b.reverse(b.block(hash));
        sum.add(b, before, b.load(last_powers(key, 2)));
    } else {
        x = b.xor(x, b.block(hash));
    }
    sum.add(b, b.reverse(x), b.load(last_powers(key, 1)));
    b.first(b.reverse(sum.reduce(b)))
}

/// Returns H times `hash`. The bytes of the last block were added to `hash` already.
#[inline(always)]
pub(super) fn last_product<B: Blocks>(b: B, key: &Key, hash: &Block) -> Block {
    let product = product(b, b.reverse(b.block(hash)), b.load(last_powers(key, 1)));
    b.first(b.reverse(product))
}

#[inline(always)]
pub(super) fn add(block: &mut Block, other: &Block) {
    *block = (u128::from_ne_bytes(*block) ^ u128::from_ne_bytes(*other)).to_ne_bytes();
}

/// Returns x·y·x^−128.
#[inline(always)]
pub(super) fn product<B: Blocks>(b: B, x: B::Vector, y: B::Vector) -> B::Vector {
    let mut sum = Sum::new(b);
    sum.add(b, x, y);
    sum.reduce(b)
}

/// A sum of products of 256 bits, by Karatsuba's method: low + (low + middle + high)·x^64 +
/// high·x^128.
#[derive(Clone, Copy)]
pub(super) struct Sum<B: Blocks> {
    low: B::Vector,
    middle: B::Vector,
    high: B::Vector,
}

impl<B: Blocks> Sum<B> {
    #[inline(always)]
    pub(super) fn new(b: B) -> Self {
        let zero = b.broadcast(&[0; BLOCK_BYTES]);
        Self {
            low: zero,
            middle: zero,
            high: zero,
        }
    }

    /// Adds x·y.
    #[inline(always)]
    pub(super) fn add(&mut self, b: B, x: B::Vector, y: B::Vector) {
        let halves = b.add_halves(x, y);
        self.low = b.xor(self.low, b.multiply::<LOW_LOW>(x, y));
        self.middle = b.xor(self.middle, b.multiply::<HIGH_LOW>(halves, halves));
        self.high = b.xor(self.high, b.multiply::<HIGH_HIGH>(x, y));
    }

    /// Adds the products of two vectors with the powers of `strides`.
    #[inline(always)]
    pub(super) fn add_pair(&mut self, b: B, x: [B::Vector; 2], strides: [&Stride; 2]) {
        let y = [
            b.broadcast(&strides[0].power),
            b.broadcast(&strides[1].power),
        ];
        let low = b.multiply::<LOW_LOW>(x[0], y[0]);
        self.low = b.xor3(self.low, low, b.multiply::<LOW_LOW>(x[1], y[1]));
        let sums = b.add_halves(x[0], x[1]);
        let middle = b.multiply::<LOW_LOW>(sums, b.broadcast_half(&strides[0].halves));
        let other = b.multiply::<HIGH_LOW>(sums, b.broadcast_half(&strides[1].halves));
        self.middle = b.xor3(self.middle, middle, other);
        let high = b.multiply::<HIGH_HIGH>(x[0], y[0]);
        self.high = b.xor3(self.high, high, b.multiply::<HIGH_HIGH>(x[1], y[1]));
    }

    /// Multiplies by x^−128: in each of two steps, adds the multiple of the modulus that makes the
    /// lowest 64 bits zero, and drops these bits.
    #[inline(always)]
    pub(super) fn reduce(self, b: B) -> B::Vector {
        let middle = b.xor3(self.low, self.middle, self.high);
        // x^127 + x^126 + x^121, divided by x^64.
        let modulus = b.broadcast_half(&(0xc2_u64 << 56).to_le_bytes());
        let low = b.multiply::<LOW_LOW>(self.low, modulus);
        let middle = b.xor3(middle, b.swap_halves(self.low), low);
        let low = b.multiply::<LOW_LOW>(middle, modulus);
        b.xor3(self.high, b.swap_halves(middle), low)
    }
}
