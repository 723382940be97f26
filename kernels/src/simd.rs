//! The lane trait: the few vector operations all algorithms are written in.
//!
//! A *limb vector* holds one limb of every lane. No operation here moves data between
//! lanes; each lane is its own number, its own modulus and its own exponent. A value of a
//! type that implements [`Simd`] is the proof that this CPU has the instructions
//! behind it, so every method is safe to call.
//!
//! Two rules make the generic source as fast as hand-written code:
//!
//! * an outlined function enters the instruction set first, with `enter!(s, …)`;
//! * between `enter!` and the methods below everything is `#[inline(always)]`, closures by
//!   `inlined!(|…| …)`.
//!
//! A generic function that is merely outlined, without `enter!`, computes the right answer some
//! eighty times more slowly. So does a long body that could run twice: `enter` reaches its closure
//! through a shim, which the compiler inlines only when it is short. A closure that moves one of
//! its captured variables out is called directly: `enter!(s, [out], …)` for an `out` of `&mut`.

#[cfg(vectors)]
pub(crate) mod avx2;
#[cfg(vectors)]
pub(crate) mod avx512ifma;
#[cfg(vectors)]
pub(crate) mod avx512ifma256;
pub(crate) mod blocks;
#[cfg(feature = "internals")]
pub(crate) mod counting;
#[cfg(vectors)]
mod ifma;
pub(crate) mod maker;
#[cfg(vectors)]
pub(crate) mod pairs;
pub(crate) mod portable;
pub(crate) mod registers;
pub(crate) mod steady;
#[cfg(feature = "internals")]
pub(crate) mod symbolic;
pub(crate) mod words16;
pub(crate) mod words32;

use crate::order::Order;

/// Types that are nothing but bits: every bit pattern is a value and there is no padding.
///
/// # Safety
///
/// The implementor must be a plain vector of `u64`, at most 64-byte aligned.
pub(crate) unsafe trait Plain: Copy + 'static {}

// SAFETY: one word.
unsafe impl Plain for u64 {}

// SAFETY: an array of words.
unsafe impl<const L: usize> Plain for [u64; L] {}

/// The bytes of 24 limbs of a lane.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct LaneBytes(pub(crate) [u8; 192]);

/// Lanes of the widest backend.
pub(crate) const MAX_LANES: usize = 8;

/// One backend's lanes. See the module documentation.
#[allow(dead_code, reason = "each algorithm uses its part")]
pub(crate) trait Simd: Copy + 'static {
    /// One limb of every lane.
    type Limb: Plain;
    /// One bit of every lane.
    type Mask: Copy;
    /// In which order multiplications that are written out do their work.
    type Order: Order;
    /// Lanes for the lower half of a limb vector; any where there are none.
    type Lower: Simd;

    /// Number of lanes.
    const LANES: usize;
    /// The radix is 2^`LIMB_BITS`.
    const LIMB_BITS: u32 = 52;
    /// Whether an operation is about one instruction, so that writing out long formulas in place
    /// pays.
    const INLINE: bool = true;
    /// Whether [`ternary`](Self::ternary) is one instruction.
    const TERNARY: bool = false;
    /// Whether code for long numbers is to be short rather than as fast as can be: for lanes that
    /// are not the main ones of a machine.
    const SHORT_CODE: bool = true;
    /// Whether products of numbers modulo 2^255 − 19 are computed from halves of limbs, in a
    /// function of their own: for lanes that only have a multiply for 32 bits.
    const HALVES: bool = false;
    /// A limb with all its bits set.
    const LIMB_MASK: u64 = (1 << Self::LIMB_BITS) - 1;

    /// Runs `body` with the instruction set switched on: the only feature boundary.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// Lanes of half the width, where they are of use.
    #[inline(always)]
    fn lower(self) -> Option<Self::Lower> {
        None
    }

    /// `value` in every lane.
    fn splat(self, value: u64) -> Self::Limb;
    /// `acc + (a·b mod 2^LIMB_BITS)`, where only the low `LIMB_BITS` bits of `a` and `b` are read.
    fn mul_lo(self, acc: Self::Limb, a: Self::Limb, b: Self::Limb) -> Self::Limb;
    /// `acc + ⌊a·b / 2^LIMB_BITS⌋`, where only the low `LIMB_BITS` bits of `a` and `b` are
    /// read.
    fn mul_hi(self, acc: Self::Limb, a: Self::Limb, b: Self::Limb) -> Self::Limb;
    /// `acc + a·b`, for `a` and `b` below 2^32 with a product below 2^52.
    #[inline(always)]
    fn mul_short(self, acc: Self::Limb, a: Self::Limb, b: Self::Limb) -> Self::Limb {
        self.mul_lo(acc, a, b)
    }
    /// `a + b mod 2^64`.
    fn add(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;
    /// `a − b mod 2^64`.
    fn sub(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;
    /// `a & b`.
    fn and(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;
    /// `a ^ b`.
    fn xor(self, a: Self::Limb, b: Self::Limb) -> Self::Limb;
    /// `a | (b ^ c)`: collects differences.
    fn or_xor(self, a: Self::Limb, b: Self::Limb, c: Self::Limb) -> Self::Limb;
    /// `⌊a / 2⌋`, unsigned.
    fn halve(self, a: Self::Limb) -> Self::Limb;
    /// `⌊a / 2^COUNT⌋`, unsigned; `COUNT` is below 64.
    fn shift_right<const COUNT: u32>(self, a: Self::Limb) -> Self::Limb;
    /// The bits of `a` moved down by `COUNT`, in a circle.
    fn rotate_right<const COUNT: i32>(self, a: Self::Limb) -> Self::Limb;
    /// Bit by bit, bit 4·a + 2·b + c of `TABLE`.
    fn ternary<const TABLE: i32>(self, a: Self::Limb, b: Self::Limb, c: Self::Limb) -> Self::Limb;
    /// `⌊a / 2^count⌋`, unsigned, for `count` < 64.
    fn shift_right_by(self, a: Self::Limb, count: u32) -> Self::Limb;
    /// a·2^`count` modulo 2^64.
    fn shift_left_by(self, a: Self::Limb, count: u32) -> Self::Limb;
    /// `⌊a / 2^LIMB_BITS⌋`, unsigned.
    fn carry(self, a: Self::Limb) -> Self::Limb;

    /// All ones in the lanes where `bit` is 1, zero in those where it is 0; it is nothing else.
    #[inline(always)]
    fn spread(self, bit: Self::Limb) -> Self::Limb {
        self.sub(self.zero(), bit)
    }
    /// Lanes in which a bit of `bits` is set in `a`.
    fn any_bit(self, a: Self::Limb, bits: Self::Limb) -> Self::Mask;
    /// Lanes in which `a` and `b` are equal.
    fn equal(self, a: Self::Limb, b: Self::Limb) -> Self::Mask;
    /// `set` in the lanes of `mask`, `clear` in the others.
    fn select(self, mask: Self::Mask, set: Self::Limb, clear: Self::Limb) -> Self::Limb;

    /// In the lanes of `mask` a set bit of `chooser` becomes that of `set`, a clear one that of
    /// `clear`; the other lanes keep `chooser`.
    fn choose_in(
        self,
        mask: Self::Mask,
        chooser: Self::Limb,
        clear: Self::Limb,
        set: Self::Limb,
    ) -> Self::Limb;

    /// `table[index mod 16]`, of a table that all lanes share; the time does not depend on `index`.
    fn look_up_16(self, table: &[u64; 16], index: Self::Limb) -> Self::Limb;

    /// Optimisation barrier: asks the compiler to keep `sums` in registers here and to move none of
    /// their operations across it. Reordered over long stretches, they spill.
    #[inline(always)]
    fn pin_registers(self, sums: &mut [Self::Limb; 20]) {
        let _ = sums;
    }

    /// Optimisation barrier: asks the compiler to compute `sum` here. It would otherwise form all
    /// products of a long sum before it adds the first two, and spill them.
    #[inline(always)]
    fn optimisation_barrier(self, sum: Self::Limb) -> Self::Limb {
        sum
    }

    /// Optimisation barrier: asks the compiler not to merge the operation that gives `a` into those
    /// that read it.
    #[inline(always)]
    fn unmerged(self, a: Self::Limb) -> Self::Limb {
        a
    }

    /// Copies the limbs of each lane to a place of its own, as little-endian words.
    #[inline(always)]
    fn separate_lanes(self, limbs: &[Self::Limb; 24], to: &mut [LaneBytes]) {
        let words = words(limbs);
        for (lane, LaneBytes(to)) in to.iter_mut().enumerate().take(Self::LANES) {
            for (i, bytes) in to.as_chunks_mut().0.iter_mut().enumerate() {
                *bytes = words[i * Self::LANES + lane].to_le_bytes();
            }
        }
    }

    /// The low `LIMB_BITS` bits.
    #[inline(always)]
    fn low_bits(self, a: Self::Limb) -> Self::Limb {
        self.and(a, self.splat(Self::LIMB_MASK))
    }

    /// All-zero limb vector. Needs no instruction set, so it may stand outside of `enter`.
    #[inline(always)]
    fn zero(self) -> Self::Limb {
        // SAFETY: `Plain` promises that every bit pattern is a value.
        unsafe { core::mem::zeroed() }
    }
}

/// [`Simd::ternary`] by the operations that the taint check knows.
#[cfg(ct_msan)]
#[inline(always)]
fn ternary_in_parts<S: Simd, const TABLE: i32>(
    s: S,
    a: S::Limb,
    b: S::Limb,
    c: S::Limb,
) -> S::Limb {
    let mut out = s.zero();
    for row in (0..8).filter(|row| TABLE >> row & 1 == 1) {
        let mut term = s.splat(u64::MAX);
        for (bit, x) in [(2, a), (1, b), (0, c)] {
            let same = if row >> bit & 1 == 1 { 0 } else { u64::MAX };
            term = s.and(term, s.xor(x, s.splat(same)));
        }
        out = s.xor(out, term);
    }
    out
}

/// [`Simd::ternary`]'s table of a ? b : c.
pub(crate) const CHOOSE: i32 = 0xca;

/// The same reference, of which the optimiser no longer knows what it points to.
///
/// LLVM would otherwise lift loads of operands out of row loops, run out of registers
/// and spill; a load that it cannot move costs nothing here.
#[inline(always)]
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(
        clippy::pointers_in_nomem_asm_block,
        reason = "nothing is read or written through it"
    )
)]
pub(crate) fn opaque<T>(reference: &T) -> &T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut pointer: *const T = reference;
        // SAFETY: the assembly is empty; the pointer leaves as it came, so it still refers
        // to the same value for the same lifetime.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) pointer,
                options(nomem, nostack, preserves_flags));
            &*pointer
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    reference
}

/// The same word, of which the optimiser no longer knows anything.
///
/// A mask of a secret passes through here before it is used. LLVM would otherwise see that it is
/// zero or all ones, take it for a boolean, and may turn what is done with it into a jump: it did
/// so in the final subtraction of the key preparation, around a call of `memcpy`. Vector
/// instructions need no such barrier; this is for masks in ordinary registers.
#[inline(always)]
pub(crate) fn opaque_word(word: u64) -> u64 {
    let [word] = opaque_words([word]);
    word
}

/// [`opaque_word`] for several words. More than one of them pass through memory, so that code which
/// treats them as a vector can still do so.
#[inline(always)]
pub(crate) fn opaque_words<const L: usize>(mut words: [u64; L]) -> [u64; L] {
    // Assembly ends what the taint check follows.
    #[cfg(all(target_arch = "x86_64", not(miri), not(ct_msan)))]
    if L == 1 {
        // SAFETY: the assembly is empty; the word leaves as it came.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) words[0],
                options(nomem, nostack, preserves_flags, pure));
        }
    } else {
        // SAFETY: the assembly is empty. The compiler takes it to read and write the words behind
        // the pointer, which are exclusively borrowed and initialised.
        unsafe {
            core::arch::asm!("/* {0} */", in(reg) &raw mut words,
                options(nostack, preserves_flags));
        }
    }
    #[cfg(ct_msan)]
    {
        words = words.map(crate::taint::whole);
    }
    #[cfg(not(any(all(target_arch = "x86_64", not(miri)), ct_msan)))]
    {
        words = core::hint::black_box(words);
    }
    words
}

/// Asks for a value that begins on a cache line to be brought into the first-level cache, where the
/// CPU can be asked.
#[inline(never)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..size_of::<T>()).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has the instruction, and it touches nothing but the caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast::<i8>().add(offset)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Has the calling function's stack frame aligned to cache lines.
///
/// LLVM gives spilled vectors 64-byte aligned places only in a frame that is aligned for another
/// reason. In any other frame they straddle cache lines or not as the caller's stack happens to
/// lie, and the same kernel takes up to half as long again.
#[cfg(vectors)]
#[inline(always)]
pub(crate) fn align_stack() {
    #[repr(align(64))]
    struct Line {
        _bytes: [u8; 64],
    }
    let line = core::mem::MaybeUninit::<Line>::uninit();
    opaque(&line);
}

/// `enter!(s, body)`: what `body` gives, computed with the instruction set of the lanes `s`
/// switched on; see [`Simd::enter`].
///
/// `enter!(s, [a, b], body)` moves the variables a and b into `body`. A long body that works on a
/// `&mut` from outside must be written so: it can then run only once, and is called directly. See
/// the module documentation.
macro_rules! enter {
    ($simd:expr, [$($moved:ident),*], $body:expr) => {
        $simd.enter($crate::simd::inlined!(move || {
            $(let $moved = $moved;)*
            $body
        }))
    };
    ($simd:expr, $body:expr) => {
        $simd.enter(#[inline(always)] || $body)
    };
}
pub(crate) use enter;

/// A closure that is inlined wherever it is called. Attributes are accepted on closures only where
/// they are arguments.
macro_rules! inlined {
    ($($closure:tt)*) => {
        $crate::simd::same(#[inline(always)] $($closure)*)
    };
}
pub(crate) use inlined;

/// Its argument.
#[inline(always)]
pub(crate) fn same<F>(closure: F) -> F {
    closure
}

/// The limbs as words, lane by lane: word `LANES·i + l` is limb `i` of lane `l`.
pub(crate) fn words<L: Plain>(limbs: &[L]) -> &[u64] {
    let count = size_of_val(limbs) / 8;
    // SAFETY: `Plain` promises vectors of `u64` without padding, whose alignment is at
    // least that of `u64`; the length covers exactly the slice.
    unsafe { core::slice::from_raw_parts(limbs.as_ptr().cast(), count) }
}

/// [`words`], to write.
pub(crate) fn words_mut<L: Plain>(limbs: &mut [L]) -> &mut [u64] {
    let count = size_of_val(limbs) / 8;
    // SAFETY: as in `words`; every bit pattern is a value of `L`.
    unsafe { core::slice::from_raw_parts_mut(limbs.as_mut_ptr().cast(), count) }
}

/// Each limb as its lower and its upper half.
pub(crate) fn halves_mut<L: Plain, H: Plain>(limbs: &mut [L]) -> &mut [[H; 2]] {
    // Lanes without lower ones name others in their place, and never come here.
    assert!(size_of::<L>() == size_of::<[H; 2]>() && align_of::<L>() >= align_of::<H>());
    // SAFETY: as in `words`; every bit pattern is a value of both.
    unsafe { core::slice::from_raw_parts_mut(limbs.as_mut_ptr().cast(), limbs.len()) }
}

/// `to` = the numbers of the lanes `by` further, in a circle; `lanes` is a power of two. Outside of
/// the lanes' instruction set, where the optimiser would make gathers of it.
#[inline(never)]
pub(crate) fn rotate_lanes<L: Plain>(to: &mut [L], from: &[L], lanes: usize, by: usize) {
    let from = words(from);
    for (i, to) in words_mut(to).iter_mut().enumerate() {
        let (limb, lane) = (i & !(lanes - 1), (i + by) & (lanes - 1));
        *to = from[limb + lane];
    }
}
