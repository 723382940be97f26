//! Lines for the journal. Nobody waits for them, and no user can make many.

use std::collections::HashMap;
use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rate::Rate;

/// Lines about one user: so many at once, and so many a second in the long run.
const AT_ONCE: u32 = 200;
const A_SECOND: u32 = 1;
/// How many users are remembered at most. The memory is emptied then.
const MOST_USERS: usize = 1000;

/// Lines that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Writes a line. It is left out where writing would block, because nobody reads: a thread that
/// waits for the log serves nobody.
pub fn log(line: Arguments<'_>) {
    let lost = LOST.swap(0, Ordering::Relaxed);
    let missing = match lost {
        0 => String::new(),
        _ => format!("lockstep-keyd: {lost} earlier lines are missing\n"),
    };
    // One call, and less than a pipe with room takes at once.
    let text = format!("{missing}lockstep-keyd: {line}\n");
    if !is_written(text.as_bytes()) {
        LOST.fetch_add(lost + 1, Ordering::Relaxed);
    }
}

fn is_written(text: &[u8]) -> bool {
    let mut error = io::stderr();
    let mut polled = [PollFd::new(&error, PollFlags::OUT)];
    let polls = poll(&mut polled, Some(&Timespec::default()));
    let has_room = polls.is_ok() && polled[0].revents().contains(PollFlags::OUT);
    has_room && error.write_all(text).is_ok()
}

/// What was written about whom.
#[derive(Default)]
pub struct Journal {
    users: HashMap<u32, Lines>,
}

struct Lines {
    rate: Rate,
    left_out: u64,
}

impl Journal {
    /// Writes a line about something that this user has caused, unless there were many.
    pub fn log(&mut self, user: u32, line: Arguments<'_>) {
        if let Some(left_out) = self.permits(user, Instant::now()) {
            if left_out > 0 {
                log(format_args!("left out {left_out} lines about user {user}"));
            }
            log(line);
        }
    }

    /// Whether a line may be written about the user, and how many were left out before it.
    fn permits(&mut self, user: u32, now: Instant) -> Option<u64> {
        if self.users.len() >= MOST_USERS && !self.users.contains_key(&user) {
            self.users.clear();
        }
        let lines = self.users.entry(user).or_insert_with(|| Lines {
            rate: Rate::new(A_SECOND, AT_ONCE, now),
            left_out: 0,
        });
        match lines.rate.take(now) {
            true => Some(std::mem::take(&mut lines.left_out)),
            false => {
                lines.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_user_makes_no_other_ones_lines_few() {
        let mut journal = Journal::default();
        let start = Instant::now();
        let permitted = (0..500).filter(|_| journal.permits(7, start).is_some());
        assert_eq!(permitted.count(), 200);
        assert_eq!(journal.permits(8, start), Some(0));
        let later = start + Duration::from_secs(1);
        assert_eq!(journal.permits(7, later), Some(300));
        assert_eq!(journal.permits(7, later), None);
        for user in 100..100_000 {
            journal.permits(user, later);
        }
        assert!(journal.users.len() <= MOST_USERS);
    }
}
