//! Vectors of blocks of 16 bytes, with AES and carry-less multiplication: the lane trait of
//! AES-GCM.
//!
//! A vector holds consecutive blocks of one message. The rules of [`Simd`](super::Simd) hold: a
//! value is the proof that this CPU has the instructions, and an outlined function enters them
//! first.

pub(crate) mod portable;
#[cfg(feature = "internals")]
pub(crate) mod symbolic;
#[cfg(vectors)]
pub(crate) mod vaes256;
#[cfg(vectors)]
pub(crate) mod vaes512;

/// A block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 16;

/// Blocks of the longest vector.
pub(crate) const MOST_LANES: usize = 4;

/// Which halves [`Blocks::multiply`] takes: that of `a`, and that of `b`.
pub(crate) const LOW_LOW: i32 = 0x00;
pub(crate) const HIGH_LOW: i32 = 0x01;
pub(crate) const HIGH_HIGH: i32 = 0x11;

/// Blocks side by side.
pub(crate) trait Blocks: Copy + 'static {
    /// [`LANES`](Self::LANES) blocks.
    type Vector: Copy;

    /// Blocks of a vector: 1, 2 or 4.
    const LANES: usize;
    /// Bytes of a vector.
    const BYTES: usize = Self::LANES * BLOCK_BYTES;

    /// Runs `body` with the instruction set switched on.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// The first blocks of `from`.
    fn load(self, from: &[u8]) -> Self::Vector;
    /// Writes the vector to the first bytes of `to`.
    fn store(self, to: &mut [u8], a: Self::Vector);
    /// The bytes of `from` behind `skip` zeros and before others.
    fn load_at(self, skip: usize, from: &[u8]) -> Self::Vector;
    /// Writes the bytes of the vector from `skip` on, as many as `to` has.
    fn store_at(self, skip: usize, to: &mut [u8], a: Self::Vector);
    /// The bytes from `from` up to `to`, at their places, and zeros elsewhere.
    fn keep(self, from: usize, to: usize, a: Self::Vector) -> Self::Vector;
    /// `block` everywhere.
    fn broadcast(self, block: &Block) -> Self::Vector;
    /// `half` in each half of each block.
    fn broadcast_half(self, half: &[u8; 8]) -> Self::Vector;
    /// `block`, and zeros behind it.
    fn block(self, block: &Block) -> Self::Vector;
    /// The first block.
    fn first(self, a: Self::Vector) -> Block;
    /// The sum of all blocks.
    fn sum(self, a: Self::Vector) -> Block;

    /// a + b.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a + b + c, one instruction where there is one for it.
    #[inline(always)]
    fn xor3(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        self.xor(a, self.xor(b, c))
    }
    /// Words of 32 bits, added modulo 2^32.
    fn add_words(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// In each block the bytes of `a` that stand at `places`, or zero where a place is 128.
    fn shuffle(self, a: Self::Vector, places: &Block) -> Self::Vector;
    /// The bytes of each block in reverse order.
    #[inline(always)]
    fn reverse(self, a: Self::Vector) -> Self::Vector {
        self.shuffle(a, &[15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    }
    /// Both halves of each block in the other's place.
    fn swap_halves(self, a: Self::Vector) -> Self::Vector;
    /// Both halves of each block, added: those of `a` in the lower half, those of `b` in the upper
    /// one.
    fn add_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The carry-less product of a half of each block of `a` and one of the same block of `b`.
    fn multiply<const HALVES: i32>(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// A round of AES (FIPS 197, section 5.1): SubBytes, ShiftRows, MixColumns, AddRoundKey.
    fn round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;
    /// The last round, which has no MixColumns.
    fn last_round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;
}
