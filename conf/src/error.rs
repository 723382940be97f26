//! What libcrypto reports when something fails.

use std::ffi::c_ulong;
use std::{fmt, io};

use openssl::error::ErrorStack;

/// The errors that libcrypto has queued, the first cause first.
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

    /// Takes all errors off the queue of this thread.
    pub(crate) fn take() -> Error {
        let stack = ErrorStack::get();
        let message = |error: &openssl::error::Error| {
            let reason = match system_error(error.code()) {
                Some(number) => io::Error::from_raw_os_error(number).to_string(),
                None => error.reason().unwrap_or("unknown error").to_owned(),
            };
            match error.data().map(str::trim) {
                Some(data) if !data.is_empty() => format!("{reason}: {data}"),
                _ => reason,
            }
        };
        let mut messages: Vec<String> = stack.errors().iter().map(message).collect();
        if messages.is_empty() {
            messages.push("libcrypto gives no reason".to_owned());
        }
        Error { messages }
    }
}

/// The number of the system's error in an error code, if that is what it holds
/// (`ERR_SYSTEM_ERROR`).
fn system_error(code: c_ulong) -> Option<i32> {
    const SYSTEM_FLAG: c_ulong = 1 << 31;
    (code & SYSTEM_FLAG != 0)
        .then(|| i32::try_from(code & (SYSTEM_FLAG - 1)).ok())
        .flatten()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages.join("; "))
    }
}

impl std::error::Error for Error {}
