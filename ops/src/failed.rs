//! Reasons why an operation failed.

use lockstep_kernels::nist;
use lockstep_kernels::rsa::JobError;

/// Reason why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The result did not pass its check. It was discarded.
    CheckFailed,
    /// The system had no memory for the operation.
    NoMemory,
    /// The system gave no usable randomness.
    Randomness,
    /// The input does not fit the RSA key.
    Input(JobError),
    /// The secret key is out of range, or has the wrong length for its curve.
    BadScalar,
    /// A public key is not a point of its curve, or, for X25519, is a point of small order.
    BadPoint,
    /// A key or a ciphertext has no valid form for ML-KEM.
    BadKey,
    /// The public key is not the one of the private key.
    Inconsistent,
    /// There is no result, and no reason: a defect of this library.
    Internal,
}

impl From<nist::Error> for Failed {
    fn from(error: nist::Error) -> Failed {
        match error {
            nist::Error::Scalar => Failed::BadScalar,
            nist::Error::Point => Failed::BadPoint,
            nist::Error::Nonce => Failed::Randomness,
            nist::Error::Signature => Failed::CheckFailed,
        }
    }
}
