//! Vectors of blocks of 16 bytes, with AES and carry-less multiplication: the lane trait of
//! AES-GCM.
//!
//! A vector holds consecutive blocks of one message. The rules of [`Simd`](super::Simd) hold: a
//! value proves that this CPU has the instructions, and an outlined function enters them first.

pub(crate) mod portable;
#[cfg(feature = "proofs")]
#[path = "../../../proofs/lanes/blocks.rs"]
pub(crate) mod symbolic;
#[cfg(vectors)]
pub(crate) mod vaes256;
#[cfg(vectors)]
pub(crate) mod vaes512;

/// A block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// Number of bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 16;

/// Number of blocks of the longest vector.
pub(crate) const MOST_LANES: usize = 4;

/// The halves that [`Blocks::multiply`] takes: of `a`, and of `b`.
pub(crate) const LOW_LOW: i32 = 0x00;
pub(crate) const HIGH_LOW: i32 = 0x01;
pub(crate) const HIGH_HIGH: i32 = 0x11;

/// Operations on blocks side by side.
pub(crate) trait Blocks: Copy + 'static {
    /// [`LANES`](Self::LANES) blocks.
    type Vector: Copy;

    /// Number of blocks of a vector: 1, 2 or 4.
    const LANES: usize;
    /// Number of bytes of a vector.
    const BYTES: usize = Self::LANES * BLOCK_BYTES;

    /// Runs `body` with the instruction set enabled.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// Loads the first blocks of `from`.
    fn load(self, from: &[u8]) -> Self::Vector;
    /// Writes the vector to the first bytes of `to`.
    fn store(self, to: &mut [u8], a: Self::Vector);
    /// Loads the bytes of `from` behind `skip` zeros, with zeros behind them.
    fn load_at(self, skip: usize, from: &[u8]) -> Self::Vector;
    /// Writes the bytes of the vector from `skip` onwards, as many as `to` has.
    fn store_at(self, skip: usize, to: &mut [u8], a: Self::Vector);
    /// Returns the bytes from `from` to `to`, in place, and zeros elsewhere.
    fn keep(self, from: usize, to: usize, a: Self::Vector) -> Self::Vector;
    /// Returns `block` in all places.
    fn broadcast(self, block: &Block) -> Self::Vector;
    /// Returns `half` in each half of each block.
    fn broadcast_half(self, half: &[u8; 8]) -> Self::Vector;
    /// Returns `block`, with zeros behind it.
    fn block(self, block: &Block) -> Self::Vector;
    /// Returns the first block.
    fn first(self, a: Self::Vector) -> Block;
    /// Returns the sum of all blocks.
    fn sum(self, a: Self::Vector) -> Block;

    /// a + b.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a + b + c, in one instruction if there is one.
    #[inline(always)]
    fn xor3(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        self.xor(a, self.xor(b, c))
    }
    /// Adds words of 32 bits modulo 2^32.
    fn add_words(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns, in each block, the bytes of `a` at `places`, or zero where a place is 128.
    fn shuffle(self, a: Self::Vector, places: &Block) -> Self::Vector;
    /// Reverses the bytes of each block.
    #[inline(always)]
    fn reverse(self, a: Self::Vector) -> Self::Vector {
        self.shuffle(a, &[15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    }
    /// Swaps both halves of each block.
    fn swap_halves(self, a: Self::Vector) -> Self::Vector;
    /// Adds both halves of each block: of `a` into the lower half, of `b` into the upper one.
    fn add_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns the carry-less product of a half of each block of `a` and a half of the same block
    /// of `b`.
    fn multiply<const HALVES: i32>(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Computes a round of AES (FIPS 197, section 5.1): SubBytes, ShiftRows, MixColumns,
    /// AddRoundKey.
    fn round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;
    /// Computes the last round, which has no MixColumns.
    fn last_round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;
}
