//! Defects on purpose: for tests only, which must notice each of them.
//!
//! They exist with the feature `fault-injection`. Without it there are none, and the compiler
//! removes the code that asks for them.

/// A defect of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// Failed randomness is taken for randomness.
    IgnoredRandomness = 1,
    /// The lanes of ML-KEM change a bit of the first ciphertext or secret of a batch.
    WrongSecret,
}

pub(crate) use planted::is_planted;
#[cfg(feature = "fault-injection")]
pub use planted::plant;

#[cfg(feature = "fault-injection")]
mod planted {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Defect;

    static DEFECT: AtomicU8 = AtomicU8::new(0);

    /// Gives this defect to all lanes of the process.
    pub fn plant(defect: Defect) {
        DEFECT.store(defect as u8, Ordering::Relaxed);
    }

    /// Whether the lanes have this defect.
    pub(crate) fn is_planted(defect: Defect) -> bool {
        DEFECT.load(Ordering::Relaxed) == defect as u8
    }
}

#[cfg(not(feature = "fault-injection"))]
mod planted {
    use super::Defect;

    /// Nothing is planted.
    pub(crate) const fn is_planted(_: Defect) -> bool {
        false
    }
}
