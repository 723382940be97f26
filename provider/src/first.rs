//! The first requests, which OpenSSL's own implementation serves.
//!
//! An engine, memory for keys and the tables of a curve are soon paid for by a server, and never by
//! a process that signs once: a child that PostgreSQL forks for one connection, `curl`, `sshd`. So
//! the first requests of each shape in a process go to OpenSSL as long as there is no engine, and
//! so does the first one with each RSA key, which would have to be prepared. How many they are was
//! measured ([`Config::leaves_first`](lockstep_engine::Config::leaves_first)).

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_engine::{Engine, Fallback, Shape};

use crate::process;

/// The requests of this process by shape, before it had an engine.
static ASKED: [Requests; Shape::ALL.len()] = [const { Requests::new() }; _];

/// A count of requests, which begins anew in a forked child.
#[derive(Default)]
pub struct Requests(AtomicU64);

impl Requests {
    const fn new() -> Requests {
        Requests(AtomicU64::new(0))
    }

    /// Counts one more; returns how many there are in this process.
    pub fn next(&self) -> u32 {
        self.next_of(process::generation())
    }

    /// The same in the process of this generation.
    fn next_of(&self, forks: u32) -> u32 {
        let next = |word: u64| match (word >> 32) as u32 == forks {
            true => (word as u32).saturating_add(1),
            false => 1,
        };
        let word = |word| Some(u64::from(forks) << 32 | u64::from(next(word)));
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, word);
        before.map_or(1, next)
    }
}

/// The engine for a request of this shape; None for one that OpenSSL is to serve, which is counted.
pub fn engine_for(shape: Shape) -> Option<&'static Engine> {
    let engine = process::engine_if_any();
    if engine.is_some() || note(shape) > process::leaves_first(shape) {
        return engine.or_else(|| Some(process::engine()));
    }
    process::count(Fallback::First);
    None
}

/// Counts a request of this shape; returns how many there are in this process.
pub fn note(shape: Shape) -> u32 {
    ASKED[shape.index()].next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_counts_anew() {
        let requests = Requests::default();
        assert_eq!([requests.next_of(0), requests.next_of(0)], [1, 2]);
        assert_eq!([requests.next_of(1), requests.next_of(1)], [1, 2]);
        requests.0.fetch_or(u64::from(u32::MAX), Ordering::Relaxed);
        assert_eq!(requests.next_of(1), u32::MAX);
    }
}
