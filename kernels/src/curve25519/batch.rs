//! The number of vectors in a group of requests.

/// Number of vectors in a group, which share an inversion: with eight lanes, 64 requests.
pub(super) const VECTORS: usize = 8;
