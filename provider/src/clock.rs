//! Clocks, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// The time since some moment, the same for all processes of the system.
pub fn system() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The CPU time that the calling thread has taken.
pub fn thread() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}
