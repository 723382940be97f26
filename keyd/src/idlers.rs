//! Processes that have lost their places because they were idle. Where there are many processes,
//! each loses its place and comes back all the time, so the log has a line about all of them now
//! and then, and none about each.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::access::Peer;

/// How often there is a line at most.
const EVERY: Duration = Duration::from_secs(60);
/// So many processes are remembered. One that is forgotten is announced as if it were new.
const MOST: usize = 1 << 14;

/// Those since the last line.
#[derive(Default)]
pub struct Idlers {
    /// The numbers and users of those that have no place now, as far as they are remembered.
    away: HashSet<(i32, u32)>,
    lost: u64,
    back: u64,
    last: Option<Instant>,
}

impl Idlers {
    /// Notes a client that has lost its place.
    pub fn note(&mut self, peer: Peer, pid: i32) {
        if self.away.len() >= MOST {
            self.away.clear();
        }
        self.away.insert((pid, peer.user));
        self.lost += 1;
    }

    /// Whether a process that has got a place had one before. It is noted.
    pub fn has_come_back(&mut self, peer: Peer, pid: i32) -> bool {
        let is_back = self.away.remove(&(pid, peer.user));
        self.back += u64::from(is_back);
        is_back
    }

    /// The line about all since the last one, if there is something to say and the last one is old
    /// enough.
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

    #[test]
    fn there_is_a_line_about_all_of_them_now_and_then() {
        let mut idlers = Idlers::default();
        let peer = |user| Peer { user, group: 7 };
        let start = Instant::now();
        assert_eq!(idlers.line(start), None);
        idlers.note(peer(7), 1);
        let first = idlers.line(start).expect("the first one");
        assert!(first.contains("line: 1;"), "{first}");
        for pid in 2..1000 {
            idlers.note(peer(7), pid);
            assert_eq!(idlers.line(start), None);
        }
        assert!(idlers.has_come_back(peer(7), 1));
        // It is new, or another user's with the same number.
        assert!(!idlers.has_come_back(peer(7), 1));
        assert!(!idlers.has_come_back(peer(8), 2));
        let second = idlers.line(start + EVERY).expect("another one");
        assert!(second.contains("line: 998;"), "{second}");
        assert!(second.ends_with("come back: 1"), "{second}");
        assert_eq!(idlers.line(start + 2 * EVERY), None);
    }

    #[test]
    fn only_so_many_processes_are_remembered() {
        let mut idlers = Idlers::default();
        let peer = Peer { user: 7, group: 7 };
        for pid in 0..=MOST as i32 {
            idlers.note(peer, pid);
        }
        assert!(idlers.away.len() <= MOST);
        assert!(idlers.has_come_back(peer, MOST as i32));
    }
}
