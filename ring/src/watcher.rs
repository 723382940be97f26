//! Threads that each watch one ring, for a kernel without `futex_waitv`, on which a thread can only
//! sleep on one word.
//!
//! A watcher has a gate. The thread that sleeps on all rings opens the gates before it sleeps; a
//! watcher with an open gate sleeps on the bell of its ring. When there are requests, the watcher
//! closes its gate, so that it does not look at the ring before they are taken, and then wakes the
//! thread. The order matters: if a gate is still open when the thread opens it again, its watcher
//! will wake the thread later. So no wake-up is lost.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use crate::fault::{Defect, is_planted};
use crate::server::Server;
use crate::sleep::{Patience, Waker};
use crate::sync::{self, Arc, AtomicU32, Deadline, JoinHandle};

/// The watcher waits for its gate to open.
const CLOSED: u32 = 0;
/// The watcher sleeps on its ring, or is about to.
const OPEN: u32 = 1;
/// The watcher ends.
const ENDED: u32 = 2;

/// Maximum time of one sleep. A thread of the client that sleeps on the same word can take the
/// watcher's wake-up, and so delay the end of the process by this time.
pub(crate) const LONG: Duration = Duration::from_secs(5);

/// A watcher and its thread for each ring.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<(Arc<Watcher>, JoinHandle<()>)>);

#[derive(Debug)]
struct Watcher {
    ring: Server,
    gate: AtomicU32,
}

impl Watchers {
    /// Creates watchers for exactly these rings. An error means that some ring has none.
    pub(crate) fn watch(&mut self, rings: &[Server], waker: &Arc<Waker>) -> io::Result<()> {
        let watched = self.0.iter().map(|(watcher, _)| &watcher.ring);
        if watched.len() == rings.len() && watched.zip(rings).all(|(own, ring)| own.is_same(ring)) {
            return Ok(());
        }
        let mut before = std::mem::take(&mut self.0);
        let mut outcome = Ok(());
        for ring in rings {
            let is_its = |(watcher, _): &(Arc<Watcher>, _)| watcher.ring.is_same(ring);
            let watcher = match before.iter().position(is_its) {
                Some(index) => Ok(before.swap_remove(index)),
                None => Watcher::start(ring, waker),
            };
            match watcher {
                Ok(watcher) => self.0.push(watcher),
                Err(error) => outcome = Err(error),
            }
        }
        // Nobody waits for these threads.
        before.iter().for_each(|(watcher, _)| watcher.end());
        outcome
    }

    /// Has all watchers sleep on their rings.
    pub(crate) fn open(&self) {
        self.0.iter().for_each(|(watcher, _)| watcher.open());
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for (watcher, thread) in self.0.drain(..) {
            watcher.end();
            // A watcher that panicked has ended.
            let _ = thread.join();
        }
    }
}

impl Watcher {
    fn start(ring: &Server, waker: &Arc<Waker>) -> io::Result<(Arc<Watcher>, JoinHandle<()>)> {
        let watcher = Arc::new(Watcher {
            ring: ring.clone(),
            gate: AtomicU32::new(CLOSED),
        });
        let (own, waker) = (Arc::clone(&watcher), Arc::clone(waker));
        let thread = sync::spawn("ring-watcher", move || own.run(&waker))?;
        Ok((watcher, thread))
    }

    fn run(&self, waker: &Waker) {
        while self.waits_for_its_gate() {
            self.waits_for_requests();
            if is_planted(Defect::EarlyCall) {
                waker.wake();
            }
            let _ = self.gate.compare_exchange(OPEN, CLOSED, AcqRel, Acquire);
            if !is_planted(Defect::EarlyCall) {
                waker.wake();
            }
        }
    }

    /// Returns true once the gate is open, and false if the watcher ends.
    fn waits_for_its_gate(&self) -> bool {
        loop {
            match self.gate.load(Acquire) {
                CLOSED => sync::wait(&self.gate, CLOSED, LONG),
                gate => return gate == OPEN,
            }
        }
    }

    /// Sleeps until the ring seems to have requests, or the watcher ends. It ignores a client that
    /// rings repeatedly without a request, as [`Sleeper`](crate::Sleeper) does.
    fn waits_for_requests(&self) {
        while self.gate.load(Acquire) == OPEN {
            if !self.ring.is_heard() {
                sync::pause(Server::LOOK_EVERY);
            } else {
                let end = Deadline::after(LONG);
                self.ring.sleep(Patience::new(Duration::ZERO, LONG));
                if !self.ring.has_requests() && end.left().is_some() {
                    self.ring.count_idle_ring();
                }
            }
            if self.ring.has_requests() {
                return;
            }
        }
    }

    fn open(&self) {
        let opened = self.gate.compare_exchange(CLOSED, OPEN, AcqRel, Acquire);
        if opened.is_ok() {
            sync::wake(&self.gate);
        }
    }

    fn end(&self) {
        self.gate.swap(ENDED, AcqRel);
        sync::wake(&self.gate);
        self.ring.wake();
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use super::*;
    use crate::tests::{call, pair};

    #[test]
    fn a_ring_with_a_request_does_not_count_as_idle() {
        let (ring, client) = pair(1);
        let _ticket = client.submit(&call(b"")).unwrap();
        let gate = AtomicU32::new(OPEN);
        let watcher = Watcher { ring, gate };
        watcher.waits_for_requests();
        assert_eq!(watcher.ring.idle_rings(), 0);
    }
}
