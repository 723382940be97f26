//! libcrypto's queue of errors, as messages.

use std::ffi::{c_char, c_int, c_ulong};
use std::io;
use std::ptr::{null, null_mut};

use crate::error::Error;
use crate::ffi::{self, Libcrypto, text};

/// Takes all errors from the queue of this thread.
pub fn take(libcrypto: &Libcrypto) -> Error {
    let mut messages = Vec::new();
    loop {
        let (mut data, mut flags): (*const c_char, c_int) = (null(), 0);
        // SAFETY: each pointer is NULL, or points to a variable of the type that libcrypto writes.
        let code = unsafe {
            libcrypto.ERR_get_error_all(
                null_mut(),
                null_mut(),
                null_mut(),
                &raw mut data,
                &raw mut flags,
            )
        };
        if code == 0 {
            break;
        }
        let reason = match system_error(code) {
            Some(number) => io::Error::from_raw_os_error(number).to_string(),
            // SAFETY: NULL, or a text that stays.
            None => unsafe { text(libcrypto.ERR_reason_error_string(code)) }
                .unwrap_or_else(|| "unknown error".to_owned()),
        };
        let data = match flags & ffi::TEXT {
            0 => None,
            // SAFETY: NULL, or a text that stays until the next call for an error.
            _ => unsafe { text(data) },
        };
        messages.push(match data.as_deref().map(str::trim) {
            Some(data) if !data.is_empty() => format!("{reason}: {data}"),
            _ => reason,
        });
    }
    if messages.is_empty() {
        messages.push("libcrypto gives no reason".to_owned());
    }
    Error { messages }
}

/// Returns the number of the system's error in an error code, if the code has one
/// (`ERR_SYSTEM_ERROR`).
fn system_error(code: c_ulong) -> Option<i32> {
    const SYSTEM_FLAG: c_ulong = 1 << 31;
    (code & SYSTEM_FLAG != 0)
        .then(|| i32::try_from(code & (SYSTEM_FLAG - 1)).ok())
        .flatten()
}
