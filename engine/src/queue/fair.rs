//! The order of the accounts, which take turns, measured in computing time.
//!
//! Each account has a clock, which runs while a thread computes for it, takes its requests or
//! refuses them. The account whose clock shows the least time comes next. An account that comes
//! back after a pause starts from the time of the accounts that are served then: an account does
//! not save turns up. (Goyal, Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996.)
//!
//! The time of a request is known when it was served. Until then the account is charged the time
//! that recent requests of its shape have taken.
//!
//! The requests of a program's own threads and jobs belong to one account, whose clock stands
//! still. The key daemon has an account for each of its users.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::fault::{KEPT_REQUESTS, NO_TURNS, is_planted};

/// The account in whose name a request is made. The numbers mean nothing to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(pub u64);

impl Account {
    /// The account of the program's own threads and jobs.
    pub(crate) const OWN: Account = Account(u64::MAX);
}

/// Maximum number of requests of an account in the queue, until a service ends. Further ones stay
/// at their source.
const MOST: usize = 1024;
/// Maximum number of requests that are taken from an account in a round.
const AT_ONCE: usize = 64;
/// Total time of the looks in a round after which no more requests of an account are taken; also
/// the maximum charge of one look.
const A_LOOK: Duration = Duration::from_micros(100);
/// Maximum time by which looks alone can put the clock of an account ahead. So an account whose
/// requests were refused for an hour is served soon when it makes good ones.
const MOST_DEBT: Duration = Duration::from_millis(100);
/// Time within which an account that has asked is expected to ask again.
const ACTIVE: Duration = Duration::from_millis(100);

/// Waiting requests, by account and by shape.
pub(crate) struct Turns<T> {
    accounts: Vec<Turn<T>>,
    shapes: usize,
    /// Time on the clock of the account that was served last.
    clock: u64,
}

/// Waiting requests of an account.
struct Turn<T> {
    account: Account,
    /// Its clock, in nanoseconds.
    clock: u64,
    /// The requests by shape.
    lines: Vec<VecDeque<T>>,
    count: usize,
    /// Time of its last request.
    last: Instant,
    /// Number of requests that were taken in this round.
    taken: usize,
    /// Time of the looks in this round.
    took: Duration,
}

impl<T> Turns<T> {
    /// Makes an empty queue for this number of shapes.
    pub fn new(shapes: usize) -> Turns<T> {
        Turns {
            accounts: Vec::new(),
            shapes,
            clock: 0,
        }
    }

    /// Begins a round, in which each account may have some requests taken.
    pub fn begin_round(&mut self, now: Instant) {
        let clock = self.clock;
        // A forgotten account's clock is not ahead, so `Turns::own` would set it to `clock` anyway.
        self.accounts.retain(|own| {
            let is_known = own.clock > clock || now.duration_since(own.last) < ACTIVE;
            own.count > 0 || is_known
        });
        for own in &mut self.accounts {
            (own.taken, own.took) = (0, Duration::ZERO);
        }
    }

    /// Returns the number of requests of an account that may be taken now.
    pub fn room(&self, account: Account) -> usize {
        match self.accounts.iter().find(|own| own.account == account) {
            _ if is_planted(NO_TURNS) || is_planted(KEPT_REQUESTS) => usize::MAX,
            None => AT_ONCE,
            Some(own) if own.took >= A_LOOK => 0,
            Some(own) => AT_ONCE
                .saturating_sub(own.taken)
                .min(MOST.saturating_sub(own.count)),
        }
    }

    /// Returns the accounts with [`MOST`] requests here. No more of theirs are taken for now.
    pub fn full(&self) -> impl Iterator<Item = Account> {
        let full = self.accounts.iter().filter(|own| own.count >= MOST);
        full.map(|own| own.account)
    }

    /// Charges an account for a look at one of its rings, which has found `found` requests.
    pub fn charge_look(&mut self, account: Account, found: usize, took: Duration, now: Instant) {
        // The thread may have had no CPU for a part of this time.
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
        let own = self.own(account, now);
        own.last = now;
        own.count += 1;
        own.lines[shape].push_back(request);
    }

    /// Returns the entry of an account, and adds one if there is none. An account without requests
    /// has come back after a pause: if its clock is behind `Turns::clock`, sets it forward.
    fn own(&mut self, account: Account, now: Instant) -> &mut Turn<T> {
        let (clock, shapes) = (self.clock, self.shapes);
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

    /// Returns the number of waiting requests.
    pub fn total(&self) -> usize {
        self.accounts.iter().map(|own| own.count).sum()
    }

    /// Returns the waiting requests of a shape.
    pub fn of_shape(&self, shape: usize) -> impl Iterator<Item = &T> {
        self.accounts.iter().flat_map(move |own| &own.lines[shape])
    }

    /// Returns the next request of a shape, and the time on the clock of its account.
    pub fn first(&self, shape: usize) -> Option<(u64, &T)> {
        let place = self.leader(shape)?;
        let request = self.accounts[place].lines[shape].front()?;
        Some((self.shown(place), request))
    }

    fn shown(&self, place: usize) -> u64 {
        let own = &self.accounts[place];
        match is_planted(NO_TURNS) {
            true => u64::MAX - own.count as u64,
            false => own.clock,
        }
    }

    /// Returns the place of the account whose request of a shape comes next.
    fn leader(&self, shape: usize) -> Option<usize> {
        let waits = |place: &usize| !self.accounts[*place].lines[shape].is_empty();
        match self.accounts.len() {
            0 => None,
            1 => Some(0).filter(waits),
            count => (0..count)
                .filter(waits)
                .min_by_key(|place| self.shown(*place)),
        }
    }

    /// Notes that a batch of a shape begins with the request that comes next.
    pub fn begin_batch(&mut self, shape: usize) {
        if let Some(place) = self.leader(shape) {
            self.clock = self.clock.max(self.accounts[place].clock);
        }
    }

    /// Takes the next request of a shape. Its account is charged `estimate` nanoseconds.
    pub fn pop(&mut self, shape: usize, estimate: u64) -> Option<T> {
        let place = self.leader(shape)?;
        let own = &mut self.accounts[place];
        own.count -= 1;
        own.clock = own.clock.saturating_add(estimate);
        own.lines[shape].pop_front()
    }

    /// Takes a request of a shape for which `is_it` returns true: the oldest one of the first
    /// account that has any.
    pub fn remove(&mut self, shape: usize, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.accounts.iter_mut().find_map(|own| {
            let place = own.lines[shape].iter().position(&is_it)?;
            own.count -= 1;
            own.lines[shape].remove(place)
        })
    }

    /// Charges an account the difference between a request's time and its estimate.
    pub fn settle(&mut self, account: Account, difference: i64) {
        if let Some(own) = self.accounts.iter_mut().find(|own| own.account == account) {
            own.clock = own.clock.saturating_add_signed(difference);
        }
    }

    /// Takes out requests that are not to be served any more, with their shapes.
    pub fn take_unwanted(
        &mut self,
        is_wanted: impl Fn(&T) -> bool,
        mut taken: impl FnMut(usize, T),
    ) {
        for own in &mut self.accounts {
            for (shape, line) in own.lines.iter_mut().enumerate() {
                if line.iter().all(&is_wanted) {
                    continue;
                }
                for request in std::mem::take(line) {
                    match is_wanted(&request) {
                        true => line.push_back(request),
                        false => {
                            own.count -= 1;
                            taken(shape, request);
                        }
                    }
                }
            }
        }
    }
}

/// Returns a time in nanoseconds.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ONE: Account = Account(7);
    const OTHER: Account = Account(8);
    const THIRD: Account = Account(9);

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
        turns.begin_batch(shape);
        (0..most)
            .map_while(|_| turns.pop(shape, estimate))
            .collect()
    }

    fn is_full(turns: &Turns<u32>, account: Account) -> bool {
        turns.full().any(|own| own == account)
    }

    /// Returns the time on the clock of the account whose request of a shape comes next.
    fn clock(turns: &Turns<u32>, shape: usize) -> Option<u64> {
        turns.first(shape).map(|(clock, _)| clock)
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
        assert_eq!((turns.total(), turns.of_shape(0).count()), (0, 0));
        assert_eq!(batch(&mut turns, 0, 3, 10), []);
    }

    #[test]
    fn turns_are_measured_in_computing_time() {
        let mut turns = turns().0;
        push(&mut turns, ONE, 0, &[1; 10]);
        push(&mut turns, OTHER, 1, &[2; 100]);
        // Requests of the first account take ten times as long.
        let mut served = [0, 0];
        for _ in 0..33 {
            let clocks = [0, 1].map(|shape| clock(&turns, shape));
            let shape = usize::from(clocks[1] < clocks[0]);
            served[shape] += batch(&mut turns, shape, 1, [1000, 100][shape]).len();
        }
        assert_eq!(served, [3, 30]);
        // An excess is given back, and a shortfall is charged.
        turns.settle(ONE, -2900);
        assert!(clock(&turns, 0) < clock(&turns, 1));
        turns.settle(ONE, 100_000);
        assert!(clock(&turns, 0) > clock(&turns, 1));
    }

    #[test]
    fn a_pause_saves_nothing_up_and_looks_are_charged() {
        let (mut turns, now) = turns();
        push(&mut turns, ONE, 0, &[1; 3]);
        for _ in 0..2 {
            batch(&mut turns, 0, 1, 1000);
        }
        // The other account starts from the time of the request that was served last.
        push(&mut turns, OTHER, 1, &[2]);
        assert_eq!(clock(&turns, 1), Some(1000));
        assert_eq!(clock(&turns, 0), Some(2000));
        let time = Duration::from_micros(5);
        turns.charge_look(OTHER, 1, time, now);
        assert_eq!(clock(&turns, 1), Some(6000));
        // An account that comes back after a pause starts from the time of the others, too.
        push(&mut turns, THIRD, 2, &[3]);
        batch(&mut turns, 2, 1, 10);
        batch(&mut turns, 0, 1, 1000);
        push(&mut turns, THIRD, 2, &[4]);
        assert_eq!(clock(&turns, 2), Some(2000));
        // An hour of refusals is forgotten soon.
        for _ in 0..100_000 {
            turns.charge_look(OTHER, 1, A_LOOK, now);
        }
        assert_eq!(clock(&turns, 1), Some(2000 + nanoseconds(MOST_DEBT)));
    }

    #[test]
    fn an_account_has_no_more_taken_than_there_is_room_for() {
        let (mut turns, now) = turns();
        assert_eq!((turns.room(ONE), is_full(&turns, ONE)), (64, false));
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
        assert_eq!((turns.room(ONE), is_full(&turns, ONE)), (24, false));
        push(&mut turns, ONE, 0, &[1; 24]);
        assert_eq!((turns.room(ONE), is_full(&turns, ONE)), (0, true));
        assert_eq!((turns.room(OTHER), is_full(&turns, OTHER)), (64, false));
        batch(&mut turns, 0, 1, 1);
        assert!(!is_full(&turns, ONE));
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
        // The clock of one account is ahead of the others, and one account has a request here.
        assert_eq!(known(&mut turns, now + ACTIVE), [OTHER, THIRD]);
        assert_eq!(batch(&mut turns, 0, 1, 5000), [3]);
        turns.push(ONE, 0, 1, now);
        assert_eq!(batch(&mut turns, 0, 1, 6000), [1]);
        assert_eq!(known(&mut turns, now + ACTIVE), [OTHER, THIRD, ONE]);
        // An account whose clock is not ahead of the others' is forgotten.
        turns.push(THIRD, 0, 3, now);
        assert_eq!(batch(&mut turns, 0, 1, 1), [3]);
        assert_eq!(known(&mut turns, now + ACTIVE), [THIRD, ONE]);
    }

    #[test]
    fn what_is_not_wanted_any_more_goes() {
        let (mut turns, now) = turns();
        push(&mut turns, ONE, 0, &[1, 2, 3]);
        push(&mut turns, OTHER, 1, &[4, 5]);
        let mut gone = Vec::new();
        turns.take_unwanted(
            |number| number % 2 == 1,
            |shape, number| gone.push((shape, number)),
        );
        assert_eq!(gone, [(0, 2), (1, 4)]);
        assert_eq!(turns.total(), 3);
        assert_eq!(turns.of_shape(0).collect::<Vec<_>>(), [&1, &3]);
        assert_eq!(turns.remove(0, |number| *number == 3), Some(3));
        assert_eq!(turns.remove(0, |number| *number == 3), None);
        assert_eq!((turns.of_shape(0).count(), turns.total()), (1, 2));
        turns.take_unwanted(|_| false, |_, _| {});
        assert_eq!(turns.total(), 0);
        turns.begin_round(now + 2 * ACTIVE);
        assert!(turns.accounts.is_empty());
    }
}
