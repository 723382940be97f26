//! Other libraries in Rust.

mod aws_lc;
mod bad_key;
mod curves;
mod ring;

use lockstep_common::Failure;

use super::candidate::Candidate;
use super::data::Data;

/// All that have the operation.
pub fn candidates(data: &Data) -> Result<Vec<Candidate<'_>>, Failure> {
    let mut all = Vec::new();
    all.extend(aws_lc::candidate(data)?);
    all.extend(ring::candidate(data)?);
    all.extend(curves::candidates(data)?);
    Ok(all)
}
