//! Why a request has no result.

use lockstep_engine::Declined;

use crate::ffi::{failed, raise, reason};

/// Leaves in the queue of errors why a request has no result; false.
#[track_caller]
pub fn refused(declined: &Declined) -> bool {
    match declined {
        Declined::BadKey | Declined::BadPoint | Declined::BadScalar | Declined::Inconsistent => {
            failed(reason::INVALID_KEY)
        }
        Declined::NoMemory | Declined::NoStack => failed(reason::MALLOC_FAILURE),
        other => {
            raise(other);
            false
        }
    }
}
