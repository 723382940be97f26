//! Key pairs made in advance: a caller that asks for one at a time pays its share of a full pass.
//!
//! Whoever finds the pool empty makes as many as the pool is set to, in one batch of the queue, and leaves
//! the rest here. No lock is held meanwhile. A pair is given out once: it is moved out under a lock,
//! and only to the process that made it.

use std::sync::{Mutex, TryLockError};

use crate::curve::{KeyKind, Keypair};
use crate::executor::Epoch;

/// Parts of the pool with a lock of their own, so that threads seldom meet. A lock is tried, never
/// waited for: one that was held when the process forked is lost to the child, no more.
const SHELVES: usize = 4;

/// The bounded stock of key pairs of every kind.
pub(crate) struct Pool {
    /// How many pairs are made at a time, and kept on a shelf at most. Zero: there is no pool.
    fill: usize,
    kinds: [[Mutex<Shelf>; SHELVES]; KeyKind::ALL.len()],
}

#[derive(Default)]
struct Shelf {
    /// Who made the pairs.
    epoch: Option<Epoch>,
    pairs: Vec<Keypair>,
}

impl Shelf {
    /// Wipes what another process may use too.
    fn belong_to(&mut self, epoch: Epoch) {
        if self.epoch != Some(epoch) {
            self.pairs.clear();
            self.epoch = Some(epoch);
        }
    }
}

impl Pool {
    pub(crate) fn new(fill: usize) -> Pool {
        Pool {
            fill,
            kinds: Default::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.fill > 0
    }

    /// A pair that nobody else gets.
    pub(crate) fn take(&self, kind: KeyKind, epoch: Epoch) -> Option<Keypair> {
        self.shelves(kind).find_map(|mut shelf| {
            shelf.belong_to(epoch);
            shelf.pairs.pop()
        })
    }

    /// How many pairs to make for `requests` of them: a fill for the pool where it has room.
    pub(crate) fn count_to_make(&self, kind: KeyKind, requests: usize) -> usize {
        let has_room = self.shelves(kind).any(|shelf| shelf.pairs.is_empty());
        if has_room {
            requests.max(self.fill)
        } else {
            requests
        }
    }

    /// Keeps pairs for later; those for which there is no room are wiped.
    pub(crate) fn put(
        &self,
        kind: KeyKind,
        epoch: Epoch,
        pairs: impl IntoIterator<Item = Keypair>,
    ) {
        let mut pairs = pairs.into_iter();
        for mut shelf in self.shelves(kind) {
            shelf.belong_to(epoch);
            let room = self.fill.saturating_sub(shelf.pairs.len());
            shelf.pairs.extend(pairs.by_ref().take(room));
        }
    }

    /// Wipes everything, in whatever state: allocates and frees nothing and waits for no lock.
    pub(crate) fn wipe(&self) {
        for shelf in KeyKind::ALL.into_iter().flat_map(|kind| self.shelves(kind)) {
            let mut shelf = shelf;
            for pair in &mut shelf.pairs {
                pair.secret.wipe();
            }
            std::mem::forget(std::mem::take(&mut shelf.pairs));
        }
    }

    /// The shelves of a kind that nobody holds just now.
    fn shelves(&self, kind: KeyKind) -> impl Iterator<Item = std::sync::MutexGuard<'_, Shelf>> {
        let shelves = &self.kinds[kind.index()];
        shelves.iter().filter_map(|shelf| match shelf.try_lock() {
            Ok(shelf) => Some(shelf),
            // A pair is on a shelf or it is not: no panic can leave one half-way.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}
