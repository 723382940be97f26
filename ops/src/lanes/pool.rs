//! Key pairs made in advance: a caller that asks for one at a time pays its share of a full pass.
//!
//! A thread that finds the pool empty makes a whole fill in one batch, and leaves here all but its
//! own pair. It holds no lock meanwhile. A pair is given out once: it is moved out under a lock,
//! and only in the process that made it.

use std::sync::{Mutex, TryLockError};

use crate::epoch::Epoch;
use crate::keys::Keypair;
use crate::kinds::KeyKind;

/// Number of parts with a lock of their own, so that threads seldom meet. No thread waits for a
/// lock: it only tries, so that a lock that was held when the process forked costs the child one
/// part.
const SHARDS: usize = 4;

/// Key pairs of every kind that were made in advance; their number is bounded.
pub(crate) struct Pool {
    /// Number of pairs that are made at a time, and the most that a shard keeps. With zero there is
    /// no pool.
    fill: usize,
    kinds: [[Mutex<Shard>; SHARDS]; KeyKind::ALL.len()],
}

#[derive(Default)]
struct Shard {
    /// The maker of the pairs.
    epoch: Option<Epoch>,
    pairs: Vec<Keypair>,
}

impl Shard {
    /// Wipes the pairs if another process may use them too.
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

    /// Takes a pair, which no other caller gets.
    pub(crate) fn take(&self, kind: KeyKind, epoch: Epoch) -> Option<Keypair> {
        self.shards(kind).find_map(|mut shard| {
            shard.belong_to(epoch);
            shard.pairs.pop()
        })
    }

    /// Returns the number of pairs to make for `requests` requests: at least a fill, if the pool
    /// has room.
    pub(crate) fn count_to_make(&self, kind: KeyKind, requests: usize) -> usize {
        let has_room = self.shards(kind).any(|shard| shard.pairs.is_empty());
        if has_room {
            requests.max(self.fill)
        } else {
            requests
        }
    }

    /// Keeps pairs for later callers, and wipes pairs for which there is no room.
    pub(crate) fn put(
        &self,
        kind: KeyKind,
        epoch: Epoch,
        pairs: impl IntoIterator<Item = Keypair>,
    ) {
        let mut pairs = pairs.into_iter();
        for mut shard in self.shards(kind) {
            shard.belong_to(epoch);
            let room = self.fill.saturating_sub(shard.pairs.len());
            shard.pairs.extend(pairs.by_ref().take(room));
        }
    }

    /// Wipes all pairs. It allocates and frees no memory and waits for no lock.
    pub(crate) fn wipe(&self) {
        for shard in KeyKind::ALL.into_iter().flat_map(|kind| self.shards(kind)) {
            let mut shard = shard;
            for pair in &mut shard.pairs {
                pair.secret.wipe();
            }
            std::mem::forget(std::mem::take(&mut shard.pairs));
        }
    }

    /// Returns the shards of a kind whose locks are free, locked.
    fn shards(&self, kind: KeyKind) -> impl Iterator<Item = std::sync::MutexGuard<'_, Shard>> {
        let shards = &self.kinds[kind.index()];
        shards.iter().filter_map(|shard| match shard.try_lock() {
            Ok(shard) => Some(shard),
            // A pair is in a shard or it is not: a panic cannot leave one half-way.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::keys::Secret;
    use crate::kinds::Curve;

    const KIND: KeyKind = KeyKind::Nist(Curve::P256);

    fn pairs(numbers: std::ops::Range<u8>) -> Vec<Keypair> {
        let pair = |number| Keypair {
            secret: Secret::new(&[number]),
            public: Bytes::from_slice(&[number]),
        };
        numbers.map(pair).collect()
    }

    fn take_all(pool: &Pool, epoch: Epoch) -> Vec<u8> {
        let mut all: Vec<u8> = std::iter::from_fn(|| pool.take(KIND, epoch))
            .map(|pair| pair.secret.as_bytes()[0])
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_pair_is_given_out_once_and_only_for_its_kind() {
        let (pool, epoch) = (Pool::new(4), Epoch::new());
        pool.put(KIND, epoch, pairs(0..3));
        assert!(pool.take(KeyKind::X25519, epoch).is_none());
        assert!(pool.take(KeyKind::Nist(Curve::P384), epoch).is_none());
        assert_eq!(take_all(&pool, epoch), [0, 1, 2]);
        assert!(pool.take(KIND, epoch).is_none());
    }

    #[test]
    fn another_process_gets_nothing_and_wipes() {
        let (pool, parent, child) = (Pool::new(4), Epoch::new(), Epoch::new());
        pool.put(KIND, parent, pairs(0..16));
        assert!(pool.take(KIND, child).is_none());
        assert_eq!(take_all(&pool, parent), [], "nothing is left to be given");
        // After a fill, a fork and a fill in the child: only the child's own pairs.
        pool.put(KIND, parent, pairs(0..3));
        pool.put(KIND, child, pairs(7..9));
        assert_eq!(take_all(&pool, child), [7, 8]);
    }

    #[test]
    fn it_is_bounded_and_filled_only_where_there_is_room() {
        let (pool, epoch) = (Pool::new(4), Epoch::new());
        assert_eq!(pool.count_to_make(KIND, 1), 4);
        assert_eq!(pool.count_to_make(KIND, 9), 9);
        pool.put(KIND, epoch, pairs(0..100));
        assert_eq!(pool.count_to_make(KIND, 1), 1, "it is full");
        assert_eq!(pool.count_to_make(KeyKind::X25519, 1), 4);
        assert_eq!(take_all(&pool, epoch).len(), 4 * SHARDS);
    }

    #[test]
    fn without_a_fill_there_is_no_pool() {
        let (pool, epoch) = (Pool::new(0), Epoch::new());
        assert_eq!(pool.count_to_make(KIND, 3), 3);
        pool.put(KIND, epoch, pairs(0..3));
        assert!(pool.take(KIND, epoch).is_none());
    }

    #[test]
    fn a_shard_that_somebody_holds_is_passed_over() {
        let (pool, epoch) = (Pool::new(4), Epoch::new());
        let held = pool.kinds[KIND.index()][0].lock().unwrap();
        pool.put(KIND, epoch, pairs(0..5));
        assert_eq!(take_all(&pool, epoch), [0, 1, 2, 3, 4]);
        pool.wipe();
        drop(held);
    }

    #[test]
    fn wiping_leaves_nothing() {
        let (pool, epoch) = (Pool::new(4), Epoch::new());
        for kind in KeyKind::ALL {
            pool.put(kind, epoch, pairs(0..16));
        }
        pool.wipe();
        for kind in KeyKind::ALL {
            assert!(pool.take(kind, epoch).is_none());
        }
    }

    #[test]
    fn threads_never_share_a_pair() {
        let (pool, epoch) = (Pool::new(16), Epoch::new());
        pool.put(KIND, epoch, pairs(0..64));
        let mut all: Vec<u8> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| take_all(&pool, epoch)))
                .collect();
            takers
                .into_iter()
                .flat_map(|taker| taker.join().unwrap())
                .collect()
        });
        // The shards that each thread has passed over because another one held them.
        all.extend(take_all(&pool, epoch));
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<u8>>());
    }
}
