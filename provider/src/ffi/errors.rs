//! Errors in libcrypto's queue, as OpenSSL's own provider leaves them there.

use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::panic::Location;
use std::ptr::null;

use super::pointers::Text;
use super::symbols::{ERR_new, ERR_set_debug, ERR_vset_error};
use super::types::{LIB_PROV, OPERATION_FAIL};

/// Puts an error of the default provider into the queue of this thread; returns false.
#[cold]
#[track_caller]
pub fn failed(reason: c_int) -> bool {
    // SAFETY: the format is null.
    unsafe { put(reason, null()) };
    false
}

/// Puts the reason of a failure, in words, into the queue of this thread.
#[cold]
#[track_caller]
pub fn raise(reason: impl fmt::Display) {
    // The text becomes a format that takes no arguments.
    let format = format!("lockstep: {reason}")
        .replace('%', "%%")
        .replace('\0', " ");
    if let Ok(format) = CString::new(format) {
        // SAFETY: a C string without arguments.
        unsafe { put(OPERATION_FAIL, format.as_ptr()) };
    }
}

/// # Safety
/// `format` is null, or a format that takes no arguments.
#[track_caller]
unsafe fn put(reason: c_int, format: *const c_char) {
    let line = Location::caller().line() as c_int;
    // A `va_list` is passed as a pointer, to at most this much memory on any architecture.
    let mut arguments = [0_u64; 4];
    ERR_new();
    ERR_set_debug(Text::new(c"lockstep"), line, Text::new(c"lockstep"));
    // SAFETY: the format is as the caller says, and copied; no argument is ever taken.
    unsafe { ERR_vset_error(LIB_PROV, reason, format, arguments.as_mut_ptr().cast()) };
}
