//! Why a request has no result.

use lockstep_engine::{Declined, Fallback};

use crate::ffi::{failed, raise, reason};

/// Leaves in the queue of errors why a request has no result; false.
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
