//! Processes that have lost their places because they were idle. On a machine with many processes
//! this happens all the time, so the log has one line about all of them at intervals, and none
//! about each.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lockstep_ring::Credentials;

/// Minimum time between two lines.
const EVERY: Duration = Duration::from_secs(60);
/// Maximum number of remembered processes. A forgotten process is logged as a new one when it comes
/// back.
const MOST: usize = 1 << 14;

/// Processes that were idle, and their counts since the last line.
#[derive(Default)]
pub struct IdleProcesses {
    /// Numbers and users of the remembered processes without a place.
    away: HashSet<(i32, u32)>,
    lost: u64,
    back: u64,
    last: Option<Instant>,
}

impl IdleProcesses {
    /// Notes a client that has lost its place.
    pub fn note(&mut self, peer: Credentials) {
        if self.away.len() >= MOST {
            self.away.clear();
        }
        self.away.insert((peer.process, peer.user));
        self.lost += 1;
    }

    /// Notes a process that has got a place; returns whether it had one before.
    pub fn has_come_back(&mut self, peer: Credentials) -> bool {
        let is_back = self.away.remove(&(peer.process, peer.user));
        self.back += u64::from(is_back);
        is_back
    }

    /// Returns a line with the counts since the last line; `None` if no process has lost its
    /// place, or if the last line is younger than [`EVERY`].
    pub fn line(&mut self, now: Instant) -> Option<String> {
        let is_early = |last: Instant| now.saturating_duration_since(last) < EVERY;
        if self.lost == 0 || self.last.is_some_and(is_early) {
            return None;
        }
        self.last = Some(now);
        let [lost, back] = [&mut self.lost, &mut self.back].map(std::mem::take);
        Some(format!(
            "places that idle processes have lost since the last such line: {lost}; processes that \
             have come back: {back}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(process: i32, user: u32) -> Credentials {
        let group = 7;
        #[rustfmt::skip]
        let peer = Credentials { process, user, group };
        peer
    }

    #[test]
    fn there_is_a_line_about_all_of_them_now_and_then() {
        let mut idle_processes = IdleProcesses::default();
        let start = Instant::now();
        assert_eq!(idle_processes.line(start), None);
        idle_processes.note(peer(1, 7));
        let first = idle_processes.line(start).expect("the first one");
        assert!(first.contains("line: 1;"), "{first}");
        for pid in 2..1000 {
            idle_processes.note(peer(pid, 7));
            assert_eq!(idle_processes.line(start), None);
        }
        assert!(idle_processes.has_come_back(peer(1, 7)));
        // A new process, and another user's process with the same number.
        assert!(!idle_processes.has_come_back(peer(1, 7)));
        assert!(!idle_processes.has_come_back(peer(2, 8)));
        let second = idle_processes.line(start + EVERY).expect("another one");
        assert!(second.contains("line: 998;"), "{second}");
        assert!(second.ends_with("come back: 1"), "{second}");
        assert_eq!(idle_processes.line(start + 2 * EVERY), None);
    }

    #[test]
    fn only_so_many_processes_are_remembered() {
        let mut idle_processes = IdleProcesses::default();
        for pid in 0..=MOST as i32 {
            idle_processes.note(peer(pid, 7));
        }
        assert!(idle_processes.away.len() <= MOST);
        assert!(idle_processes.has_come_back(peer(MOST as i32, 7)));
    }
}
