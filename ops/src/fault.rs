//! Planted defects, for tests only: a test must notice each defect. All crates that depend on this
//! one plant their defects here, and name them themselves.
//!
//! With the feature `fault-injection`, a test plants one (`plant`), or the engine plants the one
//! that the environment names (`LOCKSTEP_PLANT`). Without the feature, and outside of the models of
//! loom, no defect is planted, and the compiler removes the code that asks for defects.

/// A failure of the system's random generator is ignored.
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
