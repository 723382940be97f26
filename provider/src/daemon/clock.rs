//! The system's clock.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds since a moment that is the same for all processes of the system.
pub fn system() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}
