//! Points of P-256 and P-384 as SEC 1 encodes them, compressed or not.

use lockstep_kernels::nist::{DecompressJob, PublicKey};

use crate::failed::Failed;

/// Reads points, in their order. `decompress` computes y from x and the parity of y.
/// [`Failed::BadPoint`] for bytes that are no encoding, and for an x that no point has.
///
/// Whether an uncompressed point lies on the curve shows when it is used.
pub(crate) fn read<'a, const BYTES: usize>(
    encodings: impl Iterator<Item = &'a [u8]>,
    decompress: impl FnOnce(&mut [DecompressJob<'_, BYTES>]),
) -> Vec<Result<PublicKey<BYTES>, Failed>> {
    let (mut jobs, mut places) = (Vec::new(), Vec::new());
    let read = |(place, encoding)| match DecompressJob::from_sec1(encoding) {
        Some(job) => {
            jobs.push(job);
            places.push(place);
            Err(Failed::Internal)
        }
        None => PublicKey::from_sec1(encoding).map_err(Failed::from),
    };
    let mut points: Vec<_> = encodings.enumerate().map(read).collect();
    if !jobs.is_empty() {
        decompress(&mut jobs);
    }
    for (place, job) in places.into_iter().zip(jobs) {
        if let Some(result) = job.result {
            points[place] = result.map_err(Failed::from);
        }
    }
    points
}
