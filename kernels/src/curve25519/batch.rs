//! How a slice of requests is spread over lanes.

use core::ops::Range;

use super::lanes::Lanes;
use crate::backend::{Backend, Kind};

/// Vectors that share an inversion: at eight lanes, 64 requests.
pub(super) const GROUP: usize = 8;

/// Work on requests that do not depend on each other.
pub(super) trait Batch {
    /// Does the requests of `range`: not empty, at most `GROUP` vectors of lanes.
    fn run<S: Lanes>(&mut self, s: S, range: Range<usize>);
}

/// Runs all `count` requests of `batch`: the only place that chooses lanes.
///
/// Where four lanes take half the time of eight, a remainder of four requests at most
/// takes them.
pub(super) fn run(backend: Backend, count: usize, batch: &mut impl Batch) {
    match backend.kind(usize::MAX) {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512Ifma { wide, narrow } => {
            let rest = count % 8;
            match narrow {
                Some(narrow) if rest <= 4 => {
                    groups(wide, 0..count - rest, batch);
                    groups(narrow, count - rest..count, batch);
                }
                _ => groups(wide, 0..count, batch),
            }
        }
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512Ifma256(s) => groups(s, 0..count, batch),
        Kind::Portable(s) => groups(s, 0..count, batch),
    }
}

fn groups<S: Lanes>(s: S, range: Range<usize>, batch: &mut impl Batch) {
    let most = GROUP * S::LANES;
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + most);
        batch.run(s, start..end);
        start = end;
    }
}
