//! The lane trait: the few vector operations in which all algorithms are written.
//!
//! A *limb vector* holds one limb of every lane. No operation here moves data between lanes; each
//! lane has its own number, its own modulus and its own exponent. A value of a type that implements
//! [`Simd`] proves that this CPU has the instructions, so every method is safe to call.
//!
//! Two rules make the generic source as fast as hand-written code:
//!
//! * an outlined function enters the instruction set first, with `enter!(s, …)`;
//! * between `enter!` and the methods below everything is `#[inline(always)]`, closures by
//!   `inlined!(|…| …)`.
//!
//! A generic function that is outlined without `enter!` computes the right answer some eighty
//! times more slowly. So does a long body of a closure that can run twice: `enter` calls this
//! closure through a shim, and the compiler inlines the shim only if the body is short. A closure
//! that moves a captured variable into its body can run only once, and `enter` calls it directly.
//! For that, write `enter!(s, [out], …)`, where `out` is a `&mut`.

#[cfg(vectors)]
pub(crate) mod avx2;
#[cfg(vectors)]
pub(crate) mod avx512ifma;
#[cfg(vectors)]
pub(crate) mod avx512ifma256;
pub(crate) mod blocks;
#[cfg(feature = "parts")]
pub(crate) mod counting;
#[cfg(vectors)]
mod ifma;
pub(crate) mod maker;
#[cfg(vectors)]
pub(crate) mod pairs;
pub(crate) mod portable;
pub(crate) mod registers;
pub(crate) mod steady;
#[cfg(feature = "proofs")]
#[path = "../../proofs/lanes/limbs.rs"]
pub(crate) mod symbolic;
pub(crate) mod words16;
pub(crate) mod words32;

use crate::order::Order;

/// A type of plain bits: every bit pattern is a value and there is no padding.
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

/// Number of lanes of the widest backend.
pub(crate) const MAX_LANES: usize = 8;

/// The lanes of a backend. See the module documentation.
#[allow(dead_code, reason = "each algorithm uses its part")]
pub(crate) trait Simd: Copy + 'static {
    /// One limb of every lane.
    type Limb: Plain;
    /// One bit of every lane.
    type Mask: Copy;
    /// The order of work of unrolled multiplications.
    type Order: Order;
    /// Lanes for the lower half of a limb vector; any type if there are none.
    type Lower: Simd;

    /// Number of lanes.
    const LANES: usize;
    /// The radix is 2^`LIMB_BITS`.
    const LIMB_BITS: u32 = 52;
    /// Whether an operation is about one instruction, so that inlining long formulas saves time.
    const INLINE: bool = true;
    /// Whether [`ternary`](Self::ternary) is one instruction.
    const TERNARY: bool = false;
    /// Whether code for long numbers should be short rather than as fast as possible: for lanes
    /// that are not the main ones of a machine.
    const SHORT_CODE: bool = true;
    /// Whether products of numbers modulo 2^255 − 19 are computed from halves of limbs, in a
    /// function of their own: for lanes that have only a 32-bit multiply.
    const HALVES: bool = false;
    /// A limb with all its bits set.
    const LIMB_MASK: u64 = (1 << Self::LIMB_BITS) - 1;

    /// Runs `body` with the instruction set enabled. Only this function crosses the feature
    /// boundary.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// Returns lanes of half the width, if they are useful.
    #[inline(always)]
    fn lower(self) -> Option<Self::Lower> {
        None
    }

    /// Returns `value` in every lane.
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
    /// The bits of `a` rotated right by `COUNT`.
    fn rotate_right<const COUNT: i32>(self, a: Self::Limb) -> Self::Limb;
    /// For each bit position, bit 4·a + 2·b + c of `TABLE`.
    fn ternary<const TABLE: i32>(self, a: Self::Limb, b: Self::Limb, c: Self::Limb) -> Self::Limb;
    /// `⌊a / 2^count⌋`, unsigned, for `count` < 64.
    fn shift_right_by(self, a: Self::Limb, count: u32) -> Self::Limb;
    /// a·2^`count` modulo 2^64.
    fn shift_left_by(self, a: Self::Limb, count: u32) -> Self::Limb;
    /// `⌊a / 2^LIMB_BITS⌋`, unsigned.
    fn carry(self, a: Self::Limb) -> Self::Limb;

    /// Returns all ones in the lanes where `bit` is 1, zero where it is 0. `bit` must be 0 or 1.
    #[inline(always)]
    fn spread(self, bit: Self::Limb) -> Self::Limb {
        self.sub(self.zero(), bit)
    }
    /// Returns the lanes in which a bit of `bits` is set in `a`.
    fn any_bit(self, a: Self::Limb, bits: Self::Limb) -> Self::Mask;
    /// Returns the lanes in which `a` and `b` are equal.
    fn equal(self, a: Self::Limb, b: Self::Limb) -> Self::Mask;
    /// Returns `set` in the lanes of `mask`, `clear` in the others.
    fn select(self, mask: Self::Mask, set: Self::Limb, clear: Self::Limb) -> Self::Limb;

    /// In the lanes of `mask`, replaces a set bit of `chooser` by the bit of `set`, and a clear one
    /// by the bit of `clear`; the other lanes keep `chooser`.
    fn choose_in(
        self,
        mask: Self::Mask,
        chooser: Self::Limb,
        clear: Self::Limb,
        set: Self::Limb,
    ) -> Self::Limb;

    /// Returns `table[index mod 16]`, from a table that all lanes share; the time does not depend
    /// on `index`.
    fn look_up_16(self, table: &[u64; 16], index: Self::Limb) -> Self::Limb;

    /// Optimisation barrier: asks the compiler to keep `sums` in registers here and to move none of
    /// their operations across it. Otherwise it reorders them over long stretches, and spills.
    #[inline(always)]
    fn pin_registers(self, sums: &mut [Self::Limb; 20]) {
        let _ = sums;
    }

    /// Optimisation barrier: asks the compiler to compute `sum` here. Otherwise it computes all
    /// products of a long sum before it adds the first two, and spills them.
    #[inline(always)]
    fn optimisation_barrier(self, sum: Self::Limb) -> Self::Limb {
        sum
    }

    /// Optimisation barrier: asks the compiler not to merge the operation that computes `a` into
    /// operations that read it.
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

    /// Reads a row of eight words in each lane: limb i has word i of each row. Rows from number
    /// `LANES` upwards are ignored.
    #[inline(always)]
    fn join_rows(self, rows: &[&[u64; 8]; MAX_LANES]) -> [Self::Limb; 8] {
        let mut limbs = [self.zero(); 8];
        let words = words_mut(&mut limbs);
        for (lane, row) in rows.iter().enumerate().take(Self::LANES) {
            for (i, word) in row.iter().enumerate() {
                words[i * Self::LANES + lane] = *word;
            }
        }
        limbs
    }

    /// Returns the low `LIMB_BITS` bits.
    #[inline(always)]
    fn low_bits(self, a: Self::Limb) -> Self::Limb {
        self.and(a, self.splat(Self::LIMB_MASK))
    }

    /// Returns an all-zero limb vector. Needs no instruction set, so it may be outside `enter`.
    #[inline(always)]
    fn zero(self) -> Self::Limb {
        // SAFETY: `Plain` promises that every bit pattern is a value.
        unsafe { core::mem::zeroed() }
    }
}

/// [`Simd::ternary`] in operations that the taint check knows.
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

/// Returns the same reference, but hides its target from the optimiser.
///
/// LLVM would otherwise move loads of operands out of row loops, run out of registers and spill; a
/// load that it cannot move costs nothing here.
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
        // SAFETY: the assembly is empty; the pointer is unchanged, so it still refers to the same
        // value for the same lifetime.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) pointer,
                options(nomem, nostack, preserves_flags));
            &*pointer
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    reference
}

/// Returns the same word, but hides its value from the optimiser.
///
/// A mask of a secret passes through here before it is used. LLVM would otherwise see that it is
/// zero or all ones, treat it as a boolean, and may turn its use into a jump. LLVM has made such a
/// jump in the final subtraction of the key preparation, around a call of `memcpy`. Vector
/// instructions need no such barrier; this is for masks in ordinary registers.
#[inline(always)]
pub(crate) fn opaque_word(word: u64) -> u64 {
    let [word] = opaque_words([word]);
    word
}

/// [`opaque_word`] for several words. Two or more words pass through memory, so that code can still
/// treat them as a vector.
#[inline(always)]
pub(crate) fn opaque_words<const L: usize>(mut words: [u64; L]) -> [u64; L] {
    // The taint check does not follow values through assembly.
    #[cfg(all(target_arch = "x86_64", not(miri), not(ct_msan)))]
    if L == 1 {
        // SAFETY: the assembly is empty; the word is unchanged.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) words[0],
                options(nomem, nostack, preserves_flags, pure));
        }
    } else {
        // SAFETY: the assembly is empty. For the compiler it reads and writes the words behind the
        // pointer, which are exclusively borrowed and initialised.
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

/// Prefetches a value into the first-level cache, on CPUs with such an instruction. The value must
/// begin on a cache line.
#[inline(never)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..size_of::<T>()).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has the instruction, and it affects only the caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast::<i8>().add(offset)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Makes the compiler align the calling function's stack frame to cache lines.
///
/// LLVM gives spilled vectors 64-byte aligned places only in a frame that is aligned for another
/// reason. In any other frame it depends on the caller's stack whether they straddle cache lines,
/// and the same kernel can take up to 1.5 times as long.
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

/// `enter!(s, body)`: the value of `body`, computed with the instruction set of the lanes `s`
/// enabled; see [`Simd::enter`].
///
/// `enter!(s, [a, b], body)` moves the variables a and b into `body`. A long body that uses a
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

/// A closure that is inlined wherever it is called. A macro, because attributes on closures are
/// accepted only in arguments.
macro_rules! inlined {
    ($($closure:tt)*) => {
        $crate::simd::same(#[inline(always)] $($closure)*)
    };
}
pub(crate) use inlined;

/// Returns its argument.
#[inline(always)]
pub(crate) fn same<F>(closure: F) -> F {
    closure
}

/// Returns the limbs as words: word `LANES·i + l` is limb `i` of lane `l`.
pub(crate) fn words<L: Plain>(limbs: &[L]) -> &[u64] {
    let count = size_of_val(limbs) / 8;
    // SAFETY: `Plain` promises vectors of `u64` without padding, whose alignment is at least that
    // of `u64`; the length covers exactly the slice.
    unsafe { core::slice::from_raw_parts(limbs.as_ptr().cast(), count) }
}

/// [`words`], to write.
pub(crate) fn words_mut<L: Plain>(limbs: &mut [L]) -> &mut [u64] {
    let count = size_of_val(limbs) / 8;
    // SAFETY: as in `words`; every bit pattern is a value of `L`.
    unsafe { core::slice::from_raw_parts_mut(limbs.as_mut_ptr().cast(), count) }
}

/// Returns each limb as its lower and its upper half.
pub(crate) fn halves_mut<L: Plain, H: Plain>(limbs: &mut [L]) -> &mut [[H; 2]] {
    // Lanes without lower lanes have another type as `Lower`, and never call this.
    assert!(size_of::<L>() == size_of::<[H; 2]>() && align_of::<L>() >= align_of::<H>());
    // SAFETY: as in `words`; every bit pattern is a value of both.
    unsafe { core::slice::from_raw_parts_mut(limbs.as_mut_ptr().cast(), limbs.len()) }
}

/// Sets lane l of `to` to lane l + `by` of `from`, modulo `lanes`, which is a power of two. This
/// function runs outside the lanes' instruction set, in which the optimiser would use gathers.
#[inline(never)]
pub(crate) fn rotate_lanes<L: Plain>(to: &mut [L], from: &[L], lanes: usize, by: usize) {
    let from = words(from);
    for (i, to) in words_mut(to).iter_mut().enumerate() {
        let (limb, lane) = (i & !(lanes - 1), (i + by) & (lanes - 1));
        *to = from[limb + lane];
    }
}
