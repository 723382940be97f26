//! Whose requests come next: accounts take turns, measured in computing time.
//!
//! Each account has a clock, which runs while the daemon computes for it, takes its requests or
//! refuses them. The account whose clock shows least comes next. An account that comes back after a
//! pause goes on with the time of the accounts that are served then: nobody saves turns up. (Goyal,
//! Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996.)
//!
//! The time of a request is known afterwards. Until then the account is charged the time that
//! requests of its shape have taken of late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::access::Account;
use crate::fault::{Defect, is_planted};

/// How many requests of an account the daemon has at a time, about. All others stay in the rings.
const MOST: usize = 1024;
/// How many it takes of an account before it looks at those of the others.
const AT_ONCE: usize = 64;
/// How long that may take.
const A_LOOK: Duration = Duration::from_micros(100);
/// How far looks alone can put the clock of an account ahead. One that was refused for an hour is
/// served soon when it asks for what it may.
const MOST_DEBT: Duration = Duration::from_millis(100);
/// An account that has asked within this time is expected to ask again.
const ACTIVE: Duration = Duration::from_millis(100);

/// What waits, by account and by shape.
pub struct Turns<T> {
    accounts: Vec<Turn<T>>,
    /// How much waits of each shape.
    counts: Vec<usize>,
    /// What the clock shows of the account that was served last.
    clock: u64,
}

/// What waits of an account.
struct Turn<T> {
    account: Account,
    /// Its clock, in nanoseconds.
    clock: u64,
    /// By shape.
    lines: Vec<VecDeque<T>>,
    count: usize,
    /// When it last asked for something.
    last: Instant,
    /// What was taken in this round, and how long that took.
    taken: usize,
    took: Duration,
}

impl<T> Turns<T> {
    /// Nothing waits, of so many shapes.
    pub fn new(shapes: usize) -> Turns<T> {
        Turns {
            accounts: Vec::new(),
            counts: vec![0; shapes],
            clock: 0,
        }
    }

    /// Begins a round, in which each account may have some requests taken.
    pub fn begin_round(&mut self, now: Instant) {
        let clock = self.clock;
        // What is forgotten here begins as it would have gone on.
        self.accounts.retain(|own| {
            let is_known = own.clock > clock || now.duration_since(own.last) < ACTIVE;
            own.count > 0 || is_known
        });
        for own in &mut self.accounts {
            (own.taken, own.took) = (0, Duration::ZERO);
        }
    }

    /// How many requests of an account may be taken now.
    pub fn room(&self, account: Account) -> usize {
        match self.accounts.iter().find(|own| own.account == account) {
            _ if is_planted(Defect::NoTurns) || is_planted(Defect::KeptRequests) => usize::MAX,
            None => AT_ONCE,
            Some(own) if own.took >= A_LOOK => 0,
            Some(own) => AT_ONCE
                .saturating_sub(own.taken)
                .min(MOST.saturating_sub(own.count)),
        }
    }

    /// Whether nothing more of an account is taken until something of it is served.
    pub fn is_full(&self, account: Account) -> bool {
        let mut accounts = self.accounts.iter();
        accounts.any(|own| own.account == account && own.count >= MOST)
    }

    /// Charges an account for a look at one of its rings, in which so many requests were found.
    pub fn charge_look(&mut self, account: Account, found: usize, took: Duration, now: Instant) {
        // The thread may have stood still meanwhile.
        let took = took.min(A_LOOK);
        let most = self.clock.saturating_add(nanoseconds(MOST_DEBT));
        let own = self.own(account, now);
        own.taken += found;
        own.took += took;
        let clock = own.clock.saturating_add(nanoseconds(took));
        own.clock = clock.min(most).max(own.clock);
    }

    /// Adds a request.
    pub fn push(&mut self, account: Account, shape: usize, request: T, now: Instant) {
        self.counts[shape] += 1;
        let own = self.own(account, now);
        own.last = now;
        own.count += 1;
        own.lines[shape].push_back(request);
    }

    /// The account, which has come back if nothing of it was here.
    fn own(&mut self, account: Account, now: Instant) -> &mut Turn<T> {
        let (clock, shapes) = (self.clock, self.counts.len());
        let place = self.accounts.iter().position(|own| own.account == account);
        let place = place.unwrap_or_else(|| {
            self.accounts.push(Turn {
                account,
                clock,
                lines: (0..shapes).map(|_| VecDeque::new()).collect(),
                count: 0,
                last: now,
                taken: 0,
                took: Duration::ZERO,
            });
            self.accounts.len() - 1
        });
        let own = &mut self.accounts[place];
        if own.count == 0 {
            own.clock = own.clock.max(clock);
        }
        own
    }

    /// How much waits of a shape.
    pub fn count(&self, shape: usize) -> usize {
        self.counts[shape]
    }

    /// How much waits in all.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// What waits of a shape.
    pub fn of_shape(&self, shape: usize) -> impl Iterator<Item = &T> {
        self.accounts.iter().flat_map(move |own| &own.lines[shape])
    }

    /// What the clock shows of the account whose request a batch of this shape would begin with;
    /// None if there is none.
    pub fn first(&self, shape: usize) -> Option<u64> {
        self.leader(shape).map(|place| self.shown(place))
    }

    fn shown(&self, place: usize) -> u64 {
        let own = &self.accounts[place];
        match is_planted(Defect::NoTurns) {
            true => u64::MAX - own.count as u64,
            false => own.clock,
        }
    }

    fn leader(&self, shape: usize) -> Option<usize> {
        let places = 0..self.accounts.len();
        let waiting = places.filter(|place| !self.accounts[*place].lines[shape].is_empty());
        waiting.min_by_key(|place| self.shown(*place))
    }

    /// Takes a batch of a shape, of `most` requests at most, each of which is charged `estimate`
    /// nanoseconds.
    pub fn batch(&mut self, shape: usize, most: usize, estimate: u64) -> Option<Vec<T>> {
        let leader = self.leader(shape)?;
        self.clock = self.clock.max(self.accounts[leader].clock);
        let mut batch = Vec::new();
        let mut next = Some(leader);
        while let Some(place) = next.filter(|_| batch.len() < most) {
            let own = &mut self.accounts[place];
            batch.extend(own.lines[shape].pop_front());
            own.count -= 1;
            own.clock = own.clock.saturating_add(estimate);
            self.counts[shape] -= 1;
            next = self.leader(shape);
        }
        Some(batch)
    }

    /// Charges an account what a request has taken beyond its estimate, or less.
    pub fn settle(&mut self, account: Account, difference: i64) {
        if let Some(own) = self.accounts.iter_mut().find(|own| own.account == account) {
            own.clock = own.clock.saturating_add_signed(difference);
        }
    }

    /// Drops what is not to be served any more.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&T) -> bool) {
        for own in &mut self.accounts {
            for (line, count) in own.lines.iter_mut().zip(&mut self.counts) {
                let before = line.len();
                line.retain(&mut is_wanted);
                *count -= before - line.len();
                own.count -= before - line.len();
            }
        }
    }
}

/// A time in nanoseconds.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Account = Account::User(7);
    const OTHER: Account = Account::User(8);
    const THIRD: Account = Account::Group(7);

    fn turns() -> (Turns<u32>, Instant) {
        (Turns::new(3), Instant::now())
    }

    fn push(turns: &mut Turns<u32>, account: Account, shape: usize, numbers: &[u32]) {
        let now = Instant::now();
        for number in numbers {
            turns.push(account, shape, *number, now);
        }
    }

    fn batch(turns: &mut Turns<u32>, shape: usize, most: usize, estimate: u64) -> Vec<u32> {
        turns.batch(shape, most, estimate).unwrap_or_default()
    }

    #[test]
    fn users_take_turns_whatever_one_of_them_has_posted() {
        let (mut turns, _) = turns();
        push(&mut turns, ONE, 0, &(0..100).collect::<Vec<_>>());
        push(&mut turns, OTHER, 0, &[1000]);
        assert_eq!(batch(&mut turns, 0, 3, 10), [0, 1000, 1]);
        assert_eq!(batch(&mut turns, 0, 2, 10), [2, 3]);
        push(&mut turns, OTHER, 0, &[1001]);
        push(&mut turns, THIRD, 0, &[2000]);
        assert_eq!(batch(&mut turns, 0, 4, 10), [1001, 2000, 4, 5]);
        assert_eq!(turns.total(), 94);
        assert_eq!(batch(&mut turns, 0, 1000, 10), (6..100).collect::<Vec<_>>());
        assert_eq!((turns.total(), turns.count(0)), (0, 0));
        assert_eq!(batch(&mut turns, 0, 3, 10), []);
    }

    #[test]
    fn turns_are_measured_in_computing_time() {
        let mut turns = turns().0;
        push(&mut turns, ONE, 0, &[1; 10]);
        push(&mut turns, OTHER, 1, &[2; 100]);
        // Those of the first take ten times as long.
        let mut served = [0, 0];
        for _ in 0..33 {
            let clocks = [0, 1].map(|shape| turns.first(shape));
            let shape = usize::from(clocks[1] < clocks[0]);
            served[shape] += batch(&mut turns, shape, 1, [1000, 100][shape]).len();
        }
        assert_eq!(served, [3, 30]);
        // What was charged too much is given back, and what was not enough is charged.
        turns.settle(ONE, -2900);
        assert!(turns.first(0) < turns.first(1));
        turns.settle(ONE, 100_000);
        assert!(turns.first(0) > turns.first(1));
    }

    #[test]
    fn a_pause_saves_nothing_up_and_looks_are_charged() {
        let (mut turns, now) = turns();
        push(&mut turns, ONE, 0, &[1; 3]);
        for _ in 0..2 {
            batch(&mut turns, 0, 1, 1000);
        }
        // It begins with the time of the request that was served last.
        push(&mut turns, OTHER, 1, &[2]);
        assert_eq!(turns.first(1), Some(1000));
        assert_eq!(turns.first(0), Some(2000));
        let time = Duration::from_micros(5);
        turns.charge_look(OTHER, 1, time, now);
        assert_eq!(turns.first(1), Some(6000));
        // An account that was there before goes on with the time of the others, too.
        push(&mut turns, THIRD, 2, &[3]);
        batch(&mut turns, 2, 1, 10);
        batch(&mut turns, 0, 1, 1000);
        push(&mut turns, THIRD, 2, &[4]);
        assert_eq!(turns.first(2), Some(2000));
        // An hour of refusals is forgotten soon.
        for _ in 0..100_000 {
            turns.charge_look(OTHER, 1, A_LOOK, now);
        }
        assert_eq!(turns.first(1), Some(2000 + nanoseconds(MOST_DEBT)));
    }

    #[test]
    fn an_account_has_no_more_taken_than_there_is_room_for() {
        let (mut turns, now) = turns();
        assert_eq!((turns.room(ONE), turns.is_full(ONE)), (64, false));
        turns.charge_look(ONE, 40, Duration::ZERO, now);
        assert_eq!((turns.room(ONE), turns.room(OTHER)), (24, 64));
        turns.charge_look(ONE, 40, Duration::ZERO, now);
        assert_eq!(turns.room(ONE), 0);
        turns.begin_round(now);
        assert_eq!(turns.room(ONE), 64);
        // Looks that find nothing good are bounded by their time.
        turns.charge_look(ONE, 0, A_LOOK, now);
        assert_eq!((turns.room(ONE), turns.room(OTHER)), (0, 64));
        turns.begin_round(now);
        push(&mut turns, ONE, 0, &[1; 1000]);
        assert_eq!((turns.room(ONE), turns.is_full(ONE)), (24, false));
        push(&mut turns, ONE, 0, &[1; 24]);
        assert_eq!((turns.room(ONE), turns.is_full(ONE)), (0, true));
        assert_eq!((turns.room(OTHER), turns.is_full(OTHER)), (64, false));
        batch(&mut turns, 0, 1, 1);
        assert!(!turns.is_full(ONE));
    }

    #[test]
    fn an_account_is_forgotten_once_that_changes_nothing() {
        let (mut turns, now) = turns();
        let known = |turns: &mut Turns<u32>, now| {
            turns.begin_round(now);
            turns
                .accounts
                .iter()
                .map(|own| own.account)
                .collect::<Vec<_>>()
        };
        turns.charge_look(ONE, 0, Duration::ZERO, now);
        turns.charge_look(OTHER, 0, Duration::from_micros(5), now);
        turns.push(THIRD, 0, 3, now);
        let just = now + ACTIVE - Duration::from_nanos(1);
        assert_eq!(known(&mut turns, just), [ONE, OTHER, THIRD]);
        // Two are ahead of the others, or have something here.
        assert_eq!(known(&mut turns, now + ACTIVE), [OTHER, THIRD]);
        assert_eq!(batch(&mut turns, 0, 1, 5000), [3]);
        turns.push(ONE, 0, 1, now);
        assert_eq!(batch(&mut turns, 0, 1, 6000), [1]);
        assert_eq!(known(&mut turns, now + ACTIVE), [OTHER, THIRD, ONE]);
        // What the clock of the others shows says nothing of one that shows as much.
        turns.push(THIRD, 0, 3, now);
        assert_eq!(batch(&mut turns, 0, 1, 1), [3]);
        assert_eq!(known(&mut turns, now + ACTIVE), [THIRD, ONE]);
    }

    #[test]
    fn what_is_not_wanted_any_more_goes() {
        let (mut turns, now) = turns();
        push(&mut turns, ONE, 0, &[1, 2, 3]);
        push(&mut turns, OTHER, 1, &[4, 5]);
        turns.retain(|number| number % 2 == 1);
        assert_eq!((turns.count(0), turns.count(1), turns.total()), (2, 1, 3));
        assert_eq!(turns.of_shape(0).collect::<Vec<_>>(), [&1, &3]);
        turns.retain(|_| false);
        assert_eq!(turns.total(), 0);
        turns.begin_round(now + 2 * ACTIVE);
        assert!(turns.accounts.is_empty());
    }
}
