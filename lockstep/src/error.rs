//! Reasons why an item or a call has no result.

use std::fmt;

use lockstep_ops::Failed;

/// The verdict on one signature.
pub type Verdict = Result<(), Reason>;

/// Reason why one item of a call has no result, or why its signature is refused. The other items
/// of the call have their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// The signature does not belong to the key and the message.
    WrongSignature = 1,
    /// The bytes are no signature of the scheme: their length, their DER, or a number in them is
    /// out of range.
    MalformedSignature = 2,
    /// The key is not a point of its curve, or has another length than keys of the scheme.
    MalformedKey = 3,
    /// The key is of another algorithm than the scheme.
    OtherAlgorithm = 4,
    /// The digest or the ciphertext has an impossible length, or the modulus is too short for the
    /// scheme.
    MalformedInput = 5,
    /// Both halves of the private key do not belong together.
    InconsistentKey = 6,
    /// The result did not pass its check and was discarded.
    CheckFailed = 7,
    /// The system gave no memory or no randomness.
    NoResources = 8,
    /// A defect of this library.
    Internal = 9,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 9] = [
        Reason::WrongSignature,
        Reason::MalformedSignature,
        Reason::MalformedKey,
        Reason::OtherAlgorithm,
        Reason::MalformedInput,
        Reason::InconsistentKey,
        Reason::CheckFailed,
        Reason::NoResources,
        Reason::Internal,
    ];

    /// Returns the name of the reason, in words with underscores between them.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::WrongSignature => "wrong_signature",
            Reason::MalformedSignature => "malformed_signature",
            Reason::MalformedKey => "malformed_key",
            Reason::OtherAlgorithm => "other_algorithm",
            Reason::MalformedInput => "malformed_input",
            Reason::InconsistentKey => "inconsistent_key",
            Reason::CheckFailed => "check_failed",
            Reason::NoResources => "no_resources",
            Reason::Internal => "internal",
        }
    }

    /// Returns the reason as a sentence without a capital letter and a full stop.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::WrongSignature => "the signature does not belong to the key and the message",
            Reason::MalformedSignature => "the bytes are no signature of the scheme",
            Reason::MalformedKey => "the key is malformed or not a point of its curve",
            Reason::OtherAlgorithm => "the key is of another algorithm",
            Reason::MalformedInput => "the input does not fit the scheme or the key",
            Reason::InconsistentKey => "the halves of the private key do not belong together",
            Reason::CheckFailed => "the result did not pass its check",
            Reason::NoResources => "the system gave no memory or no randomness",
            Reason::Internal => "a defect of this library",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Reason {}

impl From<Failed> for Reason {
    fn from(failed: Failed) -> Reason {
        match failed {
            Failed::CheckFailed => Reason::CheckFailed,
            Failed::NoMemory | Failed::Randomness => Reason::NoResources,
            Failed::Input(_) => Reason::MalformedInput,
            Failed::BadScalar | Failed::BadPoint | Failed::BadKey => Reason::MalformedKey,
            Failed::Inconsistent => Reason::InconsistentKey,
            Failed::Internal => Reason::Internal,
        }
    }
}

/// Reason why a call has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The operation has no meaning for the algorithm.
    Unsupported,
    /// There is no memory for the results.
    NoMemory,
    /// `LOCKSTEP_LANES` names lanes that do not exist or that this CPU does not have.
    Lanes,
    /// The [watch](crate::Workers::watched) stopped the call.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Unsupported => "the algorithm does not have this operation",
            Error::NoMemory => "there is no memory for the results",
            Error::Lanes => "LOCKSTEP_LANES names lanes that this CPU does not have",
            Error::Stopped => "the call was stopped",
        })
    }
}

impl std::error::Error for Error {}
