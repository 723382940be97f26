//! Lanes that compute like the portable ones and count the work of a vector unit.

use core::cell::Cell;

use super::Simd;
use super::portable::{Limbs, Portable};
use crate::order::Beside;

/// Vector micro-operations by the ports that execute them on an Intel core with two 512-bit units.
/// Loads, stores and copies between registers use none of these ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MicroOperations {
    /// Multiplies of 52-bit limbs, low and high halves counted separately: port 0 or 5.
    pub multiplies: u64,
    /// Additions, logic, blends: port 0 or 5.
    pub others: u64,
    /// Shifts: port 0.
    pub shifts: u64,
    /// Comparisons into a mask, permutations: port 5.
    pub masks: u64,
}

impl MicroOperations {
    /// Returns the number of all micro-operations.
    pub fn total(self) -> u64 {
        self.multiplies + self.others + self.shifts + self.masks
    }

    /// Returns the minimum number of cycles for them, with both ports busy.
    pub fn cycles(self) -> f64 {
        (self.total() as f64 / 2.0)
            .max(self.shifts as f64)
            .max(self.masks as f64)
    }
}

thread_local! {
    static COUNTS: Cell<MicroOperations> = const {
        Cell::new(MicroOperations { multiplies: 0, others: 0, shifts: 0, masks: 0 })
    };
}

/// Returns the micro-operations that this thread has counted since the last call.
pub(crate) fn take() -> MicroOperations {
    COUNTS.take()
}

fn count(add: impl FnOnce(&mut MicroOperations)) {
    let mut counts = COUNTS.get();
    add(&mut counts);
    COUNTS.set(counts);
}

/// Eight lanes that count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting;

/// The lanes that compute.
const LANES: Portable<8> = Portable;

type Lanes = Limbs<8>;

/// Defines methods that count one micro-operation of a kind.
macro_rules! counted {
    ($($kind:ident: fn $name:ident $(<const $c:ident: $t:ty>)? ($($argument:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name $(<const $c: $t>)? (self, $($argument: $type),*) -> $out {
            count(|counts| counts.$kind += 1);
            LANES.$name $(::<$c>)? ($($argument),*)
        })*
    };
}

impl Simd for Counting {
    type Limb = Lanes;
    type Mask = Lanes;
    type Order = Beside;
    type Lower = Self;

    const LANES: usize = 8;
    const INLINE: bool = false;
    const SHORT_CODE: bool = false;

    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn splat(self, value: u64) -> Lanes {
        LANES.splat(value)
    }

    counted! {
        multiplies: fn mul_lo(acc: Lanes, a: Lanes, b: Lanes) -> Lanes;
        multiplies: fn mul_hi(acc: Lanes, a: Lanes, b: Lanes) -> Lanes;
        others: fn add(a: Lanes, b: Lanes) -> Lanes;
        others: fn sub(a: Lanes, b: Lanes) -> Lanes;
        others: fn and(a: Lanes, b: Lanes) -> Lanes;
        others: fn xor(a: Lanes, b: Lanes) -> Lanes;
        others: fn or_xor(a: Lanes, b: Lanes, c: Lanes) -> Lanes;
        others: fn ternary<const TABLE: i32>(a: Lanes, b: Lanes, c: Lanes) -> Lanes;
        others: fn select(mask: Lanes, set: Lanes, clear: Lanes) -> Lanes;
        others: fn choose_in(mask: Lanes, chooser: Lanes, clear: Lanes, set: Lanes) -> Lanes;
        shifts: fn halve(a: Lanes) -> Lanes;
        shifts: fn carry(a: Lanes) -> Lanes;
        shifts: fn shift_right<const BITS: u32>(a: Lanes) -> Lanes;
        shifts: fn rotate_right<const BITS: i32>(a: Lanes) -> Lanes;
        shifts: fn shift_right_by(a: Lanes, count: u32) -> Lanes;
        shifts: fn shift_left_by(a: Lanes, count: u32) -> Lanes;
        masks: fn any_bit(a: Lanes, bits: Lanes) -> Lanes;
        masks: fn equal(a: Lanes, b: Lanes) -> Lanes;
        masks: fn look_up_16(table: &[u64; 16], index: Lanes) -> Lanes;
    }
}
