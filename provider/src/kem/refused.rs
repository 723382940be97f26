//! Errors for requests without a result.

use lockstep_engine::{Declined, Fallback};

use crate::ffi::{failed, raise, reason};

/// Puts the reason why a request has no result into the queue of errors; returns false.
#[track_caller]
pub fn refused(declined: &Declined) -> bool {
    match declined.fallback() {
        Fallback::BadKey | Fallback::BadPoint | Fallback::BadScalar | Fallback::Inconsistent => {
            failed(reason::INVALID_KEY)
        }
        Fallback::NoMemory | Fallback::NoStack => failed(reason::MALLOC_FAILURE),
        _ => {
            raise(declined);
            false
        }
    }
}
