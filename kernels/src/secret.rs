//! Memory that held secrets.

use core::fmt;
use core::ops::{Deref, DerefMut};

/// Words that are wiped when they are dropped and never printed.
#[derive(Clone)]
pub(crate) struct SecretWords(Box<[u64]>);

impl SecretWords {
    /// `count` zero words.
    pub(crate) fn zeroed(count: usize) -> Self {
        Self(vec![0; count].into_boxed_slice())
    }
}

impl Deref for SecretWords {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for SecretWords {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl fmt::Debug for SecretWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Drop for SecretWords {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites `words` with zeros; the optimiser may not leave this out.
///
/// Unlike a loop of volatile stores it runs at the speed of `memset`, which matters for the
/// hundred kilobytes that a batch leaves behind.
pub(crate) fn wipe(words: &mut [u64]) {
    words.fill(0);
    zeroize::optimization_barrier(words);
}
