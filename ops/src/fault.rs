//! Planted defects: for tests only, which must notice each of them. This is the facility of all
//! crates above; each of them names its own defects.
//!
//! With the feature `fault-injection`, a test plants one (`plant`), or the engine plants the one
//! that the environment names (`LOCKSTEP_PLANT`). Without it, and outside of the models of loom,
//! there are none, and the compiler removes the code that asks for them.

/// Failed randomness is taken for randomness.
pub(crate) const IGNORED_RANDOMNESS: &str = "ignored-randomness";
/// The lanes of ML-KEM change a bit of the first ciphertext or secret of a batch.
pub const WRONG_KEM_LANES: &str = "wrong-kem-lanes";

pub use planted::is_planted;
#[cfg(any(feature = "fault-injection", loom))]
pub use planted::plant;

#[cfg(any(feature = "fault-injection", loom))]
mod planted {
    use std::sync::OnceLock;

    static PLANTED: OnceLock<&str> = OnceLock::new();

    /// Plants a defect in the process, until its end.
    ///
    /// # Panics
    ///
    /// If one is planted already.
    pub fn plant(defect: &'static str) {
        PLANTED.set(defect).expect("one defect in a process");
    }

    /// Returns whether this defect is planted.
    pub fn is_planted(defect: &str) -> bool {
        PLANTED.get().is_some_and(|planted| *planted == defect)
    }
}

#[cfg(not(any(feature = "fault-injection", loom)))]
mod planted {
    /// Nothing is planted.
    #[inline(always)]
    pub const fn is_planted(_: &str) -> bool {
        false
    }
}
