//! One block in plain Rust, in constant time and slow: the oracle of the other vectors.

use super::{BLOCK_BYTES, Block, Blocks};
use crate::taint::whole;

/// One block; it needs no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortableBlocks;

/// The byte 1 in each place.
const ONES: u128 = u128::MAX / 0xff;

impl Blocks for PortableBlocks {
    type Vector = u128;

    const LANES: usize = 1;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> u128 {
        u128::from_le_bytes(*from.first_chunk().expect("a vector"))
    }

    #[inline(always)]
    fn store(self, to: &mut [u8], a: u128) {
        *to.first_chunk_mut().expect("a vector") = a.to_le_bytes();
    }

    #[inline(always)]
    fn load_at(self, skip: usize, from: &[u8]) -> u128 {
        let mut block = [0; BLOCK_BYTES];
        block[skip..][..from.len()].copy_from_slice(from);
        u128::from_le_bytes(block)
    }

    #[inline(always)]
    fn store_at(self, skip: usize, to: &mut [u8], a: u128) {
        to.copy_from_slice(&a.to_le_bytes()[skip..][..to.len()]);
    }

    #[inline(always)]
    fn keep(self, from: usize, to: usize, a: u128) -> u128 {
        let below = |end: usize| u128::MAX.checked_shr(128 - 8 * end as u32).unwrap_or(0);
        a & below(to) & !below(from)
    }

    #[inline(always)]
    fn broadcast(self, block: &Block) -> u128 {
        u128::from_le_bytes(*block)
    }

    #[inline(always)]
    fn broadcast_half(self, half: &[u8; 8]) -> u128 {
        let half = u128::from(u64::from_le_bytes(*half));
        half << 64 | half
    }

    #[inline(always)]
    fn block(self, block: &Block) -> u128 {
        u128::from_le_bytes(*block)
    }

    #[inline(always)]
    fn first(self, a: u128) -> Block {
        a.to_le_bytes()
    }

    #[inline(always)]
    fn sum(self, a: u128) -> Block {
        a.to_le_bytes()
    }

    #[inline(always)]
    fn xor(self, a: u128, b: u128) -> u128 {
        a ^ b
    }

    #[inline(always)]
    fn add_words(self, a: u128, b: u128) -> u128 {
        let word =
            |i: u32| u128::from(((a >> (32 * i)) as u32).wrapping_add((b >> (32 * i)) as u32));
        word(0) | word(1) << 32 | word(2) << 64 | word(3) << 96
    }

    #[inline(always)]
    fn shuffle(self, a: u128, places: &Block) -> u128 {
        let from = a.to_le_bytes();
        let byte = |place: u8| from.get(usize::from(place)).copied().unwrap_or(0);
        u128::from_le_bytes(places.map(byte))
    }

    #[inline(always)]
    fn reverse(self, a: u128) -> u128 {
        a.swap_bytes()
    }

    #[inline(always)]
    fn swap_halves(self, a: u128) -> u128 {
        a.rotate_left(64)
    }

    #[inline(always)]
    fn add_halves(self, a: u128, b: u128) -> u128 {
        let sum = |x: u128| u128::from((x ^ x >> 64) as u64);
        sum(b) << 64 | sum(a)
    }

    #[inline(always)]
    fn multiply<const HALVES: i32>(self, a: u128, b: u128) -> u128 {
        let half = |x: u128, upper: bool| (if upper { x >> 64 } else { x }) as u64;
        carry_less(half(a, HALVES & 1 != 0), half(b, HALVES & 16 != 0))
    }

    #[inline(always)]
    fn round(self, state: u128, key: u128) -> u128 {
        mix_columns(substitute_and_shift(state)) ^ key
    }

    #[inline(always)]
    fn last_round(self, state: u128, key: u128) -> u128 {
        substitute_and_shift(state) ^ key
    }
}

/// Returns the carry-less product, from integer products of numbers that have one bit in five: at
/// most 13 bits are added in one place, so that no carry reaches the next place.
#[inline(never)]
fn carry_less(a: u64, b: u64) -> u128 {
    // The taint check does not follow a bit from a factor to the upper half of a product.
    if cfg!(ct_msan) {
        return (0..64).fold(0, |sum, i| {
            let mask = u128::from(whole(0_u64.wrapping_sub(b >> i & 1)));
            sum ^ (u128::from(a) << i & (mask << 64 | mask))
        });
    }
    const EVERY_FIFTH: u128 = {
        let (mut bits, mut place) = (0, 0);
        while place < 128 {
            bits |= 1 << place;
            place += 5;
        }
        bits
    };
    let part = |x: u64, i: usize| x & (EVERY_FIFTH << i) as u64;
    let mut sums = [0; 5];
    for i in 0..5 {
        for j in 0..5 {
            sums[(i + j) % 5] ^= u128::from(part(a, i)) * u128::from(part(b, j));
        }
    }
    let places = |i: usize| EVERY_FIFTH << i;
    let mut product = 0;
    for (i, sum) in sums.into_iter().enumerate() {
        product |= sum & places(i);
    }
    product
}

/// Applies SubBytes (FIPS 197, section 5.1.1) and ShiftRows. SubBytes is the inverse in GF(2^8),
/// x^254, and then an affine map.
#[inline(never)]
fn substitute_and_shift(x: u128) -> u128 {
    let square = |x| multiply_bytes(x, x);
    let x2 = square(x);
    let x3 = multiply_bytes(x2, x);
    let x12 = square(square(x3));
    let x15 = multiply_bytes(x12, x3);
    let x240 = square(square(square(square(x15))));
    let inverse = multiply_bytes(multiply_bytes(x240, x12), x2);
    // Rotates bits within bytes.
    let rotated = |by: u32| {
        let stay = ONES * (0xff >> by);
        (inverse & stay) << by | (inverse & !stay) >> (8 - by)
    };
    shift_rows(inverse ^ rotated(1) ^ rotated(2) ^ rotated(3) ^ rotated(4) ^ (ONES * 0x63))
}

/// Multiplies bytes modulo x^8 + x^4 + x^3 + x + 1.
#[inline(always)]
fn multiply_bytes(mut a: u128, b: u128) -> u128 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= a & spread(b >> bit & ONES);
        a = double(a);
    }
    product
}

/// Multiplies each byte by x.
#[inline(always)]
fn double(a: u128) -> u128 {
    let carries = a >> 7 & ONES;
    (a & (ONES * 0x7f)) << 1 ^ spread(carries) & (ONES * 0x1b)
}

/// Returns bytes of ones for bytes 1, and zeros for bytes 0.
#[inline(always)]
fn spread(bits: u128) -> u128 {
    whole((bits << 8).wrapping_sub(bits))
}

/// Applies ShiftRows: byte r + 4·c comes from byte r + 4·((c + r) mod 4) (section 5.1.2).
#[inline(always)]
fn shift_rows(x: u128) -> u128 {
    const ROW: u128 = 0xff_0000_00ff_0000_00ff_0000_00ff;
    x & ROW
        | (x & ROW << 8).rotate_right(32)
        | (x & ROW << 16).rotate_right(64)
        | (x & ROW << 24).rotate_right(96)
}

/// Applies MixColumns: each byte becomes 2·a0 + 3·a1 + a2 + a3, where a0 is the byte itself and the
/// others follow it in a circle of four (section 5.1.3).
#[inline(never)]
fn mix_columns(x: u128) -> u128 {
    // Returns the byte `by` places further in its column.
    let next = |x: u128, by: u32| {
        let stay = (u128::MAX / 0xffff_ffff) * (0xffff_ffff >> (8 * by));
        x >> (8 * by) & stay | x << (32 - 8 * by) & !stay
    };
    let sum = x ^ next(x, 1);
    double(sum) ^ next(x, 1) ^ next(sum, 2)
}
