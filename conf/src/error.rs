//! Errors of this crate.

use std::fmt;

/// Errors from libcrypto's queue, the first cause first, or an error of this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Messages of libcrypto.
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
