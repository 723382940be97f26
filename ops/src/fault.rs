//! Planted defects: for tests only, which must notice each of them. This is the facility of all
//! crates above; each of them names its own defects.
//!
//! With the feature `fault-injection` the environment names one (`LOCKSTEP_PLANT`), or a test
//! [plants](plant) one. Without it, and outside of the models of loom, there are none, and the
//! compiler removes the code that asks for them.

/// Failed randomness is taken for randomness.
pub(crate) const IGNORED_RANDOMNESS: &str = "ignored-randomness";
/// The lanes of ML-KEM change a bit of the first ciphertext or secret of a batch.
pub const WRONG_KEM_LANES: &str = "wrong-kem-lanes";

pub use planted::is_planted;
#[cfg(any(feature = "fault-injection", loom))]
pub use planted::plant;

#[cfg(any(feature = "fault-injection", loom))]
mod planted {
    use std::sync::{LazyLock, OnceLock};

    static BY_TEST: OnceLock<&str> = OnceLock::new();
    static BY_ENVIRONMENT: LazyLock<String> =
        LazyLock::new(|| std::env::var("LOCKSTEP_PLANT").unwrap_or_default());

    /// Plants a defect in the process, until its end.
    ///
    /// # Panics
    ///
    /// If a test has planted one already.
    pub fn plant(defect: &'static str) {
        BY_TEST.set(defect).expect("one defect in a process");
    }

    /// Returns whether this defect is planted.
    pub fn is_planted(defect: &str) -> bool {
        BY_TEST.get().is_some_and(|planted| *planted == defect) || *BY_ENVIRONMENT == defect
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
