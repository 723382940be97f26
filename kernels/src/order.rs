//! The order of work in a multiplication that is written out, as a type.
//!
//! The sums are the same in every order, and so is the source text. Where two orders differ,
//! `montgomery` asks the lanes for theirs ([`Simd::Order`](crate::simd::Simd::Order)). The faster
//! order depends on the core; see *Order of work* in the documentation of `montgomery`.

use core::fmt::Debug;
use core::hash::Hash;

/// An order of work.
pub(crate) trait Order: Copy + Debug + Eq + Hash + 'static {
    /// Whether a reduction runs row by row beside the last product of its column. The factor of
    /// that product then occupies the registers, so each multiply of the reduction reads its limb
    /// of n from memory. Otherwise the reduction follows the product, and has n in registers.
    const BESIDE: bool;
}

/// For cores that read an operand from memory for each multiply at no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Beside;

impl Order for Beside {
    const BESIDE: bool = true;
}

/// For cores whose multiplies are slower with an operand in memory.
#[cfg(vectors)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct After;

#[cfg(vectors)]
impl Order for After {
    const BESIDE: bool = false;
}
