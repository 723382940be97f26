//! Bytes that are not keys, but must not be disclosed either.

use std::fmt;
use std::ops::{Deref, DerefMut};

use lockstep_kernels::wipe;
use smallvec::SmallVec;

/// Bytes of a request or a response, wiped when they are dropped and never printed. Up to 72 bytes
/// lie in place, without an allocation: signatures and points of all curves but P-384 (at most 65
/// bytes), digests, and short messages. A move does not wipe the place where such bytes lay before.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(SmallVec<[u8; 72]>);

impl Bytes {
    /// Copies `bytes`; the caller wipes the original.
    pub fn from_slice(bytes: &[u8]) -> Bytes {
        Bytes(SmallVec::from_slice(bytes))
    }

    /// Copies `bytes`, as [`from_slice`](Self::from_slice) does; `None` without memory for a copy.
    pub fn try_from_slice(bytes: &[u8]) -> Option<Bytes> {
        let mut copy = SmallVec::new();
        copy.try_reserve_exact(bytes.len()).ok()?;
        copy.extend_from_slice(bytes);
        Some(Bytes(copy))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(SmallVec::from_vec(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes([{} bytes])", self.0.len())
    }
}
