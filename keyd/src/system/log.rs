//! Lines for the log.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Number of lines that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Writes a line. It is dropped if a write would block, since a thread that waits for the log
/// serves nobody.
pub fn log(line: impl Display) {
    let lost = LOST.swap(0, Ordering::Relaxed);
    let missing = match lost {
        0 => String::new(),
        _ => format!("lockstep-keyd: {lost} earlier lines are missing\n"),
    };
    // One write, shorter than the free space of a pipe that poll(2) reports as writable.
    let text = format!("{missing}lockstep-keyd: {line}\n");
    if !is_written(text.as_bytes()) {
        LOST.fetch_add(lost + 1, Ordering::Relaxed);
    }
}

/// Writes these lines.
pub fn log_all(lines: impl IntoIterator<Item: Display>) {
    lines.into_iter().for_each(log);
}

/// Writes these lines as warnings.
pub fn warn_of_all(lines: impl IntoIterator<Item: Display>) {
    for line in lines {
        log(format_args!("warning: {line}"));
    }
}

fn is_written(text: &[u8]) -> bool {
    let mut error = io::stderr();
    let mut polled = [PollFd::new(&error, PollFlags::OUT)];
    let polls = poll(&mut polled, Some(&Timespec::default()));
    let has_room = polls.is_ok() && polled[0].revents().contains(PollFlags::OUT);
    has_room && error.write_all(text).is_ok()
}
