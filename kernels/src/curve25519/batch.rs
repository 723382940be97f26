//! How a slice of requests is spread over lanes.

/// Vectors of a group, which share an inversion: at eight lanes, 64 requests.
pub(super) const VECTORS: usize = 8;
