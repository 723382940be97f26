//! In which order a multiplication that is written out does its work, as a type.
//!
//! The sums are the same in every order, and so is the text: `montgomery` asks the lanes for theirs
//! ([`Simd::Order`](crate::simd::Simd::Order)) where two orders differ. Which of them is fast is a
//! matter of the core; see *Order of work* in the documentation of `montgomery`.

use core::fmt::Debug;
use core::hash::Hash;

/// An order of work.
pub(crate) trait Order: Copy + Debug + Eq + Hash + 'static {
    /// Whether a reduction runs row by row beside the last product of its column. That product's
    /// factor has the registers, so each multiply of the reduction reads its limb of n from memory.
    /// Otherwise the reduction follows the product, and has n in registers.
    const BESIDE: bool;
}

/// For cores that read an operand for each multiply at no cost.
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
