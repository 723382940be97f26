//! The inputs and the results of private operations.

use core::fmt;

use zeroize::Zeroizing;

use super::blinding::Blinding;
use super::key::{PrivateKey, PublicKey};
use super::verify::{self, Signature, Verified};

/// One request.
pub struct PrivateJob<'a> {
    /// The key.
    pub key: &'a PrivateKey,
    /// The number to raise to d: as many bytes as the modulus, big-endian, below n.
    pub input: &'a [u8],
    /// An independent copy of `input`, for the check.
    pub check_input: &'a [u8],
    /// A blinding pair of this key that no other request uses at the same time.
    pub blinding: &'a mut Blinding,
    /// Set by [`private_batch`](super::private_batch).
    pub result: Option<Result<Verified<Signature>, JobError>>,
}

impl fmt::Debug for PrivateJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateJob({:?}, [redacted])", self.key.size())
    }
}

/// The number that unblinds the result for a blinded input: R/r mod n, as limbs.
pub struct Unblinding(pub(super) Zeroizing<Vec<u64>>);

impl fmt::Debug for Unblinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unblinding([redacted])")
    }
}

/// A blinded input and the number that unblinds its result, or the reason of the refusal.
pub type Blinded = Result<(Zeroizing<Vec<u8>>, Unblinding), JobError>;

/// A result for a blinded input.
pub struct Returned<'a> {
    /// The key.
    pub key: &'a PrivateKey,
    /// The input, before it was blinded.
    pub input: &'a [u8],
    /// The number that [`blind_batch`](super::blind_batch) returned with the blinded input.
    pub unblinding: &'a Unblinding,
    /// The result for the blinded input.
    pub output: &'a [u8],
    /// Set by [`unblind_batch`](super::unblind_batch): the unblinded output, if the check finds
    /// it right.
    pub result: Option<Verified<Signature>>,
}

impl fmt::Debug for Returned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Returned({:?}, [redacted])", self.key.size())
    }
}

/// The reason why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobError {
    /// The result failed the check against key and input: a fault, or an inconsistent key.
    CheckFailed,
    /// The input is not below the modulus.
    InputTooLarge,
    /// The input is not as long as the modulus.
    InputLength,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobError::CheckFailed => "result failed its check",
            JobError::InputTooLarge => "input is not below the modulus",
            JobError::InputLength => "input is not as long as the modulus",
        })
    }
}

impl std::error::Error for JobError {}

/// Returns the reason why the input is invalid for this key, if it is.
#[inline(never)]
pub(super) fn refuse(input: &[u8], key: &PublicKey) -> Option<JobError> {
    if input.len() != key.size().bytes() {
        return Some(JobError::InputLength);
    }
    (!verify::below_modulus(input, key)).then_some(JobError::InputTooLarge)
}
