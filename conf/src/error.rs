//! Errors of this crate.

use std::fmt;

/// The errors that libcrypto has queued, the first cause first, or ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What happened, in libcrypto's words.
    pub messages: Vec<String>,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Error {
        Error {
            messages: vec![message.into()],
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages.join("; "))
    }
}

impl std::error::Error for Error {}
