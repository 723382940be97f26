//! Status of a call, and checks of pointers of C.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lockstep::Error;

/// Whether a call was computed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was: each item has a result or a reason.
    Ok = 0,
    /// An argument is null where it must not be, has an impossible length, or is out of range.
    BadArgument = 1,
    /// There is no scheme or algorithm of this name, or it does not have this operation.
    Unsupported = 2,
    /// The key cannot be read.
    BadKey = 3,
    /// There is no memory for the results.
    NoMemory = 4,
    /// A defect of this library.
    Internal = 5,
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        match error {
            Error::Unsupported => Status::Unsupported,
            Error::NoMemory => Status::NoMemory,
            _ => Status::Internal,
        }
    }
}

/// Runs the body of a function; no panic leaves it.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Status>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(status)) => status,
        Err(_) => Status::Internal,
    }
}

/// Returns a text of C; refuses null and text that is not UTF-8.
///
/// # Safety
///
/// The pointer is null or points to a text that ends with a zero.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, Status> {
    if pointer.is_null() {
        return Err(Status::BadArgument);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Status::BadArgument)
}

/// Refuses `count` elements if together they are larger than any object in memory.
pub(crate) fn fits<T>(count: usize) -> Result<(), Status> {
    match count.checked_mul(size_of::<T>()) {
        Some(0..=MOST_BYTES) => Ok(()),
        _ => Err(Status::BadArgument),
    }
}

/// Maximum size of an object in memory.
const MOST_BYTES: usize = isize::MAX as usize;

/// Returns `count` places at a pointer.
///
/// # Safety
///
/// The pointer is null or points to `count` places, which nobody else uses while the result lives.
pub(crate) unsafe fn places<'a, T>(pointer: *mut T, count: usize) -> Result<&'a mut [T], Status> {
    fits::<T>(count)?;
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Status::BadArgument),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) }),
    }
}
