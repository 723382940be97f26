//! The leaders that have a slot.

use std::time::Instant;

use crate::thread_id::ThreadId;

/// The leaders that are expected back, and the number of the others. `F` is a thread that waits for
/// a leader's batch.
pub(super) struct Leaders<F> {
    pub(super) expected: Vec<Leader<F>>,
    begun: u64,
    /// Number of leaders that were given up and have not come back.
    pub(super) lost: usize,
    /// Number of slots of lost leaders that were not replaced.
    pub(super) missing: usize,
}

pub(super) struct Leader<F> {
    number: u64,
    /// `None` for a worker or a thread of a service, which never leave a batch by `siglongjmp`.
    pub(super) thread: Option<ThreadId>,
    /// Index of its shape.
    pub(super) line: usize,
    /// Whether it brought a request, which counts as in hand until the leader has its batch.
    pub(super) has_own: bool,
    /// Time at which it took its batch, or was first seen without one.
    pub(super) since: Option<Instant>,
    /// Numbers of requests and of passes of its batch; `None` before it has one.
    pub(super) batch: Option<(usize, usize)>,
    /// The threads that wait for the answers to its batch.
    pub(super) followers: Vec<F>,
}

impl<F> Leader<F> {
    pub(super) fn passes(&self) -> usize {
        self.batch.map_or(1, |(_, passes)| passes)
    }
}

impl<F> Leaders<F> {
    pub(super) fn new() -> Leaders<F> {
        Leaders {
            expected: Vec::new(),
            begun: 0,
            lost: 0,
            missing: 0,
        }
    }

    /// Adds a leader, and returns its number.
    pub(super) fn begin(&mut self, line: usize, has_own: bool, thread: Option<ThreadId>) -> u64 {
        self.begun += 1;
        self.expected.push(Leader {
            number: self.begun,
            thread,
            line,
            has_own,
            since: None,
            batch: None,
            followers: Vec::new(),
        });
        self.begun
    }

    /// Returns whether a leader is expected back.
    pub(super) fn expects(&self, number: u64) -> bool {
        self.expected.iter().any(|leader| leader.number == number)
    }

    /// Returns the leader with this number, if it is expected back.
    pub(super) fn leader(&mut self, number: u64) -> Option<&mut Leader<F>> {
        let mut leaders = self.expected.iter_mut();
        leaders.find(|leader| leader.number == number)
    }

    /// Removes a leader that has come back. Returns whether its slot is to be used again; otherwise
    /// another slot has taken its place.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let mut leaders = self.expected.iter();
        match leaders.position(|leader| leader.number == number) {
            Some(place) => {
                self.expected.swap_remove(place);
                true
            }
            None => {
                self.lost -= 1;
                let is_missing = self.missing > 0;
                self.missing -= usize::from(is_missing);
                is_missing
            }
        }
    }
}
