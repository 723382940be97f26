//! The leaders that have a slot, and since when.

use std::time::Instant;

/// The leaders that are expected back, and how many are not.
#[derive(Default)]
pub(super) struct Leaders {
    pub(super) expected: Vec<Leader>,
    begun: u64,
    /// Given up, and not come back.
    pub(super) lost: usize,
}

pub(super) struct Leader {
    number: u64,
    /// The place of its shape.
    pub(super) line: usize,
    /// Whether it brought a request, which counts as in its hand until it has its batch.
    pub(super) has_own: bool,
    /// When it took its batch, or was first seen without one.
    pub(super) since: Option<Instant>,
    /// How many requests and passes its batch has; none before it has one.
    pub(super) batch: Option<(usize, usize)>,
}

impl Leader {
    pub(super) fn passes(&self) -> usize {
        self.batch.map_or(1, |(_, passes)| passes)
    }
}

impl Leaders {
    /// Counts one leader more; returns its number.
    pub(super) fn begin(&mut self, line: usize, has_own: bool) -> u64 {
        self.begun += 1;
        self.expected.push(Leader {
            number: self.begun,
            line,
            has_own,
            since: None,
            batch: None,
        });
        self.begun
    }

    /// Whether a leader is expected back.
    pub(super) fn expects(&self, number: u64) -> bool {
        self.expected.iter().any(|leader| leader.number == number)
    }

    /// A leader has taken its batch.
    pub(super) fn took(&mut self, number: u64, now: Instant, requests: usize, passes: usize) {
        let mut leaders = self.expected.iter_mut();
        if let Some(leader) = leaders.find(|leader| leader.number == number) {
            leader.since = Some(now);
            leader.batch = Some((requests, passes));
        }
    }

    /// A leader has come back. Whether it was expected; otherwise its slot has been replaced.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let mut leaders = self.expected.iter();
        match leaders.position(|leader| leader.number == number) {
            Some(place) => {
                self.expected.swap_remove(place);
                true
            }
            None => {
                self.lost -= 1;
                false
            }
        }
    }
}
