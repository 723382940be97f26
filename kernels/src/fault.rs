//! Planted faults, which show that no wrong result gets out (feature `fault-injection`, for tests
//! only).
//!
//! Without the feature all hooks are empty.

#[cfg(any(feature = "fault-injection", ct_msan))]
pub mod planted;

use crate::backend::Backend;

/// The place where a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A limb of the accumulator in the middle of an exponentiation.
    Accumulator,
    /// A limb of a prime, in its lane.
    Modulus,
    /// A word of the private exponent, in its lane.
    Exponent,
    /// −1/n mod 2^LIMB_BITS for a prime, in its lane.
    ReductionFactor,
    /// A limb of R mod n for a prime, in its lane.
    One,
    /// A limb of R² mod n for a prime, in its lane.
    RSquared,
    /// A limb of R³ mod n for a prime, in its lane.
    RCubed,
    /// A word of the powers from which an exponentiation chooses.
    Table,
    /// A limb of n = p·q, with which inputs are blinded and results unblinded.
    Product,
    /// −1/n mod 2^52 for n = p·q.
    ProductFactor,
    /// A limb of p where the two halves are recombined.
    P,
    /// A limb of q where the two halves are recombined.
    Q,
    /// A limb of 1/q mod p.
    Inverse,
    /// A limb of the first part of a blinding pair, which blinds the input. The stored pair stays
    /// wrong.
    Blind,
    /// A limb of the second part, which unblinds the result. The stored pair stays wrong.
    Unblind,
    /// The copy of the input that the computation reads.
    Input,
    /// The recombined result.
    Recombined,
    /// Two lanes swap their results on the way out.
    LaneOrder,
}

impl Point {
    /// Every point of an RSA operation.
    pub const ALL: [Point; 18] = [
        Point::Accumulator,
        Point::Modulus,
        Point::Exponent,
        Point::ReductionFactor,
        Point::One,
        Point::RSquared,
        Point::RCubed,
        Point::Table,
        Point::Product,
        Point::ProductFactor,
        Point::P,
        Point::Q,
        Point::Inverse,
        Point::Blind,
        Point::Unblind,
        Point::Input,
        Point::Recombined,
        Point::LaneOrder,
    ];

    /// Returns whether the point is in one half of a request.
    pub const fn is_in_half(self) -> bool {
        matches!(
            self,
            Point::Accumulator
                | Point::Modulus
                | Point::Exponent
                | Point::ReductionFactor
                | Point::One
                | Point::RSquared
                | Point::RCubed
                | Point::Table
        )
    }

    /// Returns the points of an RSA operation on a backend: on words, two points strike nothing.
    pub fn of(backend: Backend) -> impl Iterator<Item = Point> + Clone {
        let is_there = move |point: &Point| match point {
            Point::RSquared | Point::LaneOrder => !backend.computes_rsa_on_words(),
            _ => true,
        };
        Point::ALL.into_iter().filter(is_there)
    }
}

#[cfg(feature = "fault-injection")]
pub use armed::{
    Fault, arm, arm_all_threads, disarm, limbs_at_last_strike, mxcsr_of_last_chunk, skip_checks,
    strikes,
};
#[cfg(feature = "fault-injection")]
pub(crate) use armed::{
    begin_chunk, checks_are_skipped, swap_lanes, touch, touch_pass, touch_words,
};

#[cfg(feature = "fault-injection")]
mod armed {
    use core::cell::Cell;
    use std::sync::Mutex;

    use super::Point;
    use crate::simd::{Simd, words_mut};

    /// One fault, repeated in every batch until disarmed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Fault {
        /// Point where it strikes.
        pub point: Point,
        /// Request of the batch, counted from 0. A batch without this request gets no fault.
        pub request: usize,
        /// Half of the request, for a point in one half: 0 is p, 1 is q.
        pub half: usize,
        /// Limb or word, counted from the lowest; the top one if the number is shorter.
        pub limb: usize,
        /// Bit of the limb, modulo the number of its bits.
        pub bit: u32,
    }

    thread_local! {
        static HERE: Cell<Option<Fault>> = const { Cell::new(None) };
        /// Number of strikes in this thread since a fault was armed here.
        static STRIKES: Cell<usize> = const { Cell::new(0) };
        /// First request of the running chunk. A chunk is the requests that the widest lanes take
        /// at once.
        static CHUNK: Cell<usize> = const { Cell::new(0) };
        static MXCSR: Cell<u32> = const { Cell::new(0) };
        /// Number of limbs or words of the last number struck.
        static LIMBS: Cell<usize> = const { Cell::new(0) };
        static SKIPS_CHECKS: Cell<bool> = const { Cell::new(false) };
    }
    static EVERYWHERE: Mutex<Option<Fault>> = Mutex::new(None);

    /// Arms a fault in this thread.
    pub fn arm(fault: Fault) {
        HERE.set(Some(fault));
        STRIKES.set(0);
    }

    /// Returns the number of strikes in this thread since [`arm`].
    pub fn strikes() -> usize {
        STRIKES.get()
    }

    /// Returns the number of limbs or words of the last number struck in this thread.
    pub fn limbs_at_last_strike() -> usize {
        LIMBS.get()
    }

    /// Turns the checks of RSA and ML-DSA results off in this thread, or on again. With the checks
    /// off, a test that found no wrong result shows that it can find one.
    pub fn skip_checks(skip: bool) {
        SKIPS_CHECKS.set(skip);
    }

    pub(crate) fn checks_are_skipped() -> bool {
        SKIPS_CHECKS.get()
    }

    /// Arms a fault in all threads.
    pub fn arm_all_threads(fault: Fault) {
        super::planted::keep();
        *EVERYWHERE.lock().expect("no panic under the lock") = Some(fault);
    }

    /// Disarms the faults of this thread and of all threads.
    pub fn disarm() {
        HERE.set(None);
        *EVERYWHERE.lock().expect("no panic under the lock") = None;
    }

    /// Bits of a word of an exponent.
    const EXPONENT_BITS: u32 = 60;

    fn current() -> Option<Fault> {
        HERE.get()
            .or_else(|| *EVERYWHERE.lock().expect("no panic under the lock"))
    }

    /// Records MXCSR, and the request of the batch that is in the first lane from now on.
    pub(crate) fn begin_chunk(first: usize) {
        CHUNK.set(first);
        MXCSR.set(crate::simd::steady::read());
    }

    /// Returns MXCSR, the control register of floating point, in the last chunk of this thread.
    pub fn mxcsr_of_last_chunk() -> u32 {
        MXCSR.get()
    }

    /// Returns the position of the fault's request in the chunk.
    fn place(fault: &Fault) -> Option<usize> {
        fault.request.checked_sub(CHUNK.get())
    }

    /// Flips the armed bit if it is due at `point`; each request has one lane.
    pub(crate) fn touch<S: Simd>(point: Point, limbs: &mut [S::Limb]) {
        strike::<S>(point, limbs, S::LIMB_BITS, place);
    }

    /// [`touch`] in a pass over halves: each request has two lanes, and request `first` of the
    /// chunk has the first two.
    pub(crate) fn touch_pass<S: Simd>(point: Point, limbs: &mut [S::Limb], first: usize) {
        let bits = match point {
            Point::Exponent => EXPONENT_BITS,
            Point::Table => 64,
            _ => S::LIMB_BITS,
        };
        strike::<S>(point, limbs, bits, |fault| {
            let offset = place(fault)?.checked_sub(first)?;
            (offset < S::LANES / 2).then_some(2 * offset + fault.half % 2)
        });
    }

    /// [`touch`] for a number in words, of the only request of the chunk. `half` is ignored at a
    /// point that is not in one half.
    pub(crate) fn touch_words(point: Point, words: &mut [u64], half: usize) {
        let bits = match point {
            Point::Exponent => EXPONENT_BITS,
            _ => 64,
        };
        strike_words(point, words, 1, bits, |fault| {
            let in_half = !point.is_in_half() || fault.half % 2 == half;
            (place(fault) == Some(0) && in_half).then_some(0)
        });
    }

    /// Flips the armed bit in the lane that `lane` returns; limbs have `bits` bits.
    fn strike<S: Simd>(
        point: Point,
        limbs: &mut [S::Limb],
        bits: u32,
        lane: impl Fn(&Fault) -> Option<usize>,
    ) {
        strike_words(point, words_mut(limbs), S::LANES, bits, lane);
    }

    /// [`strike`] in every `lanes`th word.
    fn strike_words(
        point: Point,
        words: &mut [u64],
        lanes: usize,
        bits: u32,
        lane: impl Fn(&Fault) -> Option<usize>,
    ) {
        let Some(fault) = current().filter(|fault| fault.point == point) else {
            return;
        };
        let Some(lane) = lane(&fault).filter(|&lane| lane < lanes) else {
            return;
        };
        let limbs = words.len() / lanes;
        LIMBS.set(limbs);
        let limb = fault.limb.min(limbs - 1);
        words[limb * lanes + lane] ^= 1 << (fault.bit % bits);
        STRIKES.set(STRIKES.get() + 1);
    }

    /// Swaps the armed lane with the next one, if the armed fault is a swap.
    pub(crate) fn swap_lanes<S: Simd>(limbs: &mut [S::Limb]) {
        let Some(fault) = current().filter(|fault| fault.point == Point::LaneOrder) else {
            return;
        };
        let Some(lane) = place(&fault).filter(|&lane| lane < S::LANES) else {
            return;
        };
        LIMBS.set(1);
        for limb in words_mut(limbs).chunks_exact_mut(S::LANES) {
            limb.swap(lane, (lane + 1) % S::LANES);
        }
        STRIKES.set(STRIKES.get() + 1);
    }
}

#[cfg(not(feature = "fault-injection"))]
mod unarmed {
    use super::Point;
    use crate::simd::Simd;

    #[inline(always)]
    pub(crate) fn begin_chunk(_first: usize) {}

    #[inline(always)]
    pub(crate) fn checks_are_skipped() -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn touch<S: Simd>(_point: Point, _limbs: &mut [S::Limb]) {}

    #[inline(always)]
    pub(crate) fn touch_pass<S: Simd>(_point: Point, _limbs: &mut [S::Limb], _first: usize) {}

    #[inline(always)]
    pub(crate) fn touch_words(_point: Point, _words: &mut [u64], _half: usize) {}

    #[inline(always)]
    pub(crate) fn swap_lanes<S: Simd>(_limbs: &mut [S::Limb]) {}
}
#[cfg(not(feature = "fault-injection"))]
pub(crate) use unarmed::{
    begin_chunk, checks_are_skipped, swap_lanes, touch, touch_pass, touch_words,
};
