//! The rules of the queue, as pure functions: when a batch starts, how large it grows, and which
//! thread runs it. The reasons are in `docs/decisions/queue.md`, the figures in
//! `docs/lab/pauses.md`.

mod by_shape;
mod company;
mod strangers;

use std::time::{Duration, Instant};

pub use by_shape::{Lone, lanes_bring_nothing};
pub(crate) use by_shape::{Sharing, left_first, lone_is_slower, workers_help};
pub(crate) use company::Company;
pub(crate) use strangers::Strangers;

use crate::fault::{LONG_BATCHES, is_planted};

/// The numbers of one shape on which a decision depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Requests in the queue.
    pub waiting: usize,
    /// Waiting requests whose thread is blocked, and so can lead.
    pub threads: usize,
    /// Leaders that have a slot and have not yet taken their batch.
    pub leaders: usize,
    /// Requests that such leaders have brought.
    pub in_hand: usize,
    /// Batches that run.
    pub running: usize,
    /// Requests in running batches.
    pub in_batches: usize,
    /// Requests in the batch that was taken last.
    pub last: usize,
    /// Threads that compute with OpenSSL's own implementation outside of the slots.
    pub elsewhere: usize,
    /// Requests that fill a pass of the lanes.
    pub pass: usize,
    /// Maximum number of requests in a batch.
    pub batch: usize,
    /// Time of a pass, as the [median](note_batch) of the batches so far; zero before the first.
    pub pass_time: Duration,
}

impl View {
    /// Returns the expected time of `passes` passes.
    fn time_of(&self, passes: usize) -> Duration {
        let pass = match self.pass_time {
            Duration::ZERO => UNKNOWN,
            known => known,
        };
        times(pass, passes)
    }

    /// Returns the number of requests that no batch has taken yet.
    fn gathered(&self) -> usize {
        self.waiting + self.in_hand
    }
}

/// The rules, with the numbers that they depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Maximum number of batches that run at a time: the CPUs of this process.
    pub slots: usize,
    /// The way in which requests gather before a batch begins.
    pub gathering: Gathering,
    /// The times after which requests leave the queue. `None`, in tests: they never do, and no
    /// leader is given up.
    pub patience: Option<Patience>,
}

/// The way in which requests gather before a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// Threads of the same process bring requests: a leader yields its CPU to these threads.
    Yield,
    /// Requests come from other processes, which sleep meanwhile, so no thread would use a yielded
    /// CPU. The thread that is about to lead sleeps if more requests are likely to come.
    ///
    /// A service has many users, who wait for each other: a batch is short, and while a long pass
    /// runs, one more thread serves shorter ones.
    Sleep,
}

/// Maximum time of a batch, unless a pass takes longer. A batch is not interrupted, and other users
/// wait for its end.
pub(crate) const LONGEST_BATCH: Duration = Duration::from_millis(1);
/// Time between two looks of a thread that waits for company.
pub(crate) const GLANCE: Duration = Duration::from_micros(50);
/// A batch waits for more requests if their mean interval is at most this multiple of the wait.
const WAITS: u32 = 2;
/// Maximum interval between requests of a shape. A longer interval counts as this one.
const LONGEST_INTERVAL: Duration = Duration::from_millis(10);
/// Charge of a request before one of its shape was served.
const SOME_TIME: Duration = Duration::from_micros(100);

/// Rate of the requests of a shape.
pub(crate) struct Pace {
    last: Instant,
    /// Mean of the times between two requests, in which later ones count for more.
    pub(crate) mean: Duration,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace {
            last: now,
            mean: LONGEST_INTERVAL,
        }
    }

    /// Notes that a request has come.
    pub(crate) fn note(&mut self, now: Instant) {
        let interval = now.saturating_duration_since(self.last);
        self.last = now;
        self.mean = (15 * self.mean + interval.min(LONGEST_INTERVAL)) / 16;
    }

    /// Returns whether it pays to wait this time for another request.
    pub(crate) fn is_likely_within(&self, time: Duration) -> bool {
        self.mean <= WAITS * time
    }
}

/// Times that every request may wait, even one that is computed fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Time that a request may wait while batches run as expected.
    pub expected: Duration,
    /// Time that a request may wait if batches are late.
    pub most: Duration,
    /// Additional time for a batch that has the request. Zero, unless lanes are to serve all
    /// requests.
    pub batch: Duration,
    /// Time after which a leader may be given up, however short its batch is.
    pub lost: Duration,
}

impl Patience {
    /// `expected` is several times the time that it takes to wake a thread, and more than the time
    /// of a batch of short requests, so that these still gather. `most` allows for a leader's
    /// thread that waits for a CPU, as a thread that computes with OpenSSL's own implementation may
    /// have to.
    pub const USUAL: Patience = Patience {
        expected: Duration::from_micros(250),
        most: Duration::from_millis(50),
        batch: Duration::ZERO,
        lost: Duration::from_millis(100),
    };

    /// Patience if the lanes are to serve all requests.
    pub const LONG: Patience = Patience {
        expected: Duration::from_secs(10),
        most: Duration::from_millis(50),
        batch: Duration::from_secs(10),
        lost: Duration::from_secs(1),
    };

    pub fn of(lone: Lone) -> Patience {
        match lone {
            Lone::Lanes => Patience::LONG,
            Lone::Auto | Lone::Stock => Patience::USUAL,
        }
    }
}

/// Assumed time of a pass before one was measured.
const UNKNOWN: Duration = Duration::from_millis(250);

/// Factor by which a leader may exceed its expected time before it is given up. If it was only slow
/// to get a CPU, one batch more runs than there are slots, which does little harm.
const LOST_AFTER: usize = 16;

/// Maximum number of leaders that are given up at a time, each of which keeps its working memory.
/// The slots of further ones stay lost. If no slot is left, all requests are declined at once.
pub(crate) const MOST_LOST: usize = 64;

/// Maximum number of times that a leader yields its CPU before it begins a batch. Models of loom
/// run other threads between any two steps anyway, so they need only two yields.
const YIELDS: u32 = if cfg!(loom) { 2 } else { 16 };

/// One in this number of passes of ECDSA or Ed25519 signatures, or of key encapsulation, is checked
/// before it is returned, on average. With 1 an ECDSA signature takes six to eight times as long,
/// and an Ed25519 signature two and a half times. See `docs/decisions/operations.md`.
pub(crate) const CHECK_EVERY: u32 = 64;

/// Number of key pairs of a kind that are made at a time, all but one for later callers.
pub(crate) const KEY_POOL: usize = 16;

/// Maximum number of asynchronous jobs that are lost. OpenSSL never frees the 32 KiB of a lost
/// job's stack, so this allows for 0.5 GiB.
pub(crate) const MAX_LOST: usize = 16384;

/// Number of yields in a row without a new request after which a leader expects no more.
pub(crate) const PATIENCE: u32 = 2;

impl Policy {
    /// Returns the maximum number of requests that the next batch takes.
    ///
    /// All requests in the engine are divided among the slots, in full passes: eight requests on
    /// two idle CPUs are better served as twice four at the same time than as eight on one of them.
    /// Requests that would fill the last pass only in part stay for the next leader.
    pub fn share(&self, view: &View) -> usize {
        if self.gathering == Gathering::Sleep && is_planted(LONG_BATCHES) {
            return usize::MAX;
        }
        let most = self.room(view);
        let gathered = view.gathered();
        if view.pass < gathered && gathered < most {
            gathered - gathered % view.pass
        } else {
            most
        }
    }

    /// Returns whether one of the waiting requests gets a free slot now.
    ///
    /// A thread never waits while a slot is free. Asynchronous requests wait while a batch of their
    /// shape runs and they do not fill a pass: their callers have other work.
    pub fn starts(&self, view: &View) -> bool {
        // Requests that a leader on its way will take need no other leader.
        let unled = view.gathered() > view.leaders * self.share(view);
        let alone = view.running + view.leaders == 0;
        view.waiting > 0 && unled && (view.threads > 0 || alone || view.waiting >= view.pass)
    }

    /// Returns whether a leader expects more requests than it sees, and so yields its CPU to the
    /// threads that would bring them: the last batch had several requests, this one has several
    /// already, or more threads compute than there are CPUs.
    pub fn expects_company(&self, view: &View) -> bool {
        let busy = view.running + view.leaders + view.elsewhere;
        (view.last > 1 || view.gathered() > view.leaders || busy > self.slots)
            && view.gathered() < view.leaders * self.room(view)
    }

    /// Returns whether a request that came now would run alone, if there is a free slot: it would
    /// be led at once, and its leader would neither find others nor expect any.
    pub fn is_alone(&self, view: &View) -> bool {
        let arrived = View {
            waiting: view.waiting + 1,
            threads: view.threads + 1,
            ..*view
        };
        let led = View {
            leaders: view.leaders + 1,
            in_hand: view.in_hand + 1,
            ..*view
        };
        view.waiting == 0 && self.starts(&arrived) && !self.expects_company(&led)
    }

    /// Returns the time that a request which comes now may wait; `None` if it has no end.
    ///
    /// That is the longer of two times: [`Patience::most`], and twice the time of OpenSSL, on the
    /// CPUs of this process, for this request and all requests of its shape before it. OpenSSL
    /// takes about as long for one request as the lanes take for a pass ([`lone_is_slower`]), so
    /// batches that run as expected end in a fraction of this time, however many requests wait.
    /// Both are times by the clock: if other programs use the CPUs too, passes take longer, and
    /// OpenSSL would as well.
    pub fn longest_wait(&self, view: &View) -> Option<Duration> {
        Some(self.time_of_all(view).max(self.patience?.most))
    }

    /// Returns the time within which a slot must be expected to be free. Otherwise the request does
    /// not begin to wait.
    pub fn longest_expected_wait(&self, view: &View) -> Option<Duration> {
        Some(self.time_of_all(view).max(self.patience?.expected))
    }

    /// Returns the time that an asynchronous job may wait for another thread before it is woken
    /// without an answer. Its thread has other work meanwhile, so this matters only if the other
    /// thread never ends.
    pub fn longest_pause(&self, view: &View) -> Option<Duration> {
        let Patience { batch, lost, .. } = self.patience?;
        Some(self.longest_wait(view)?.max(lost) + batch)
    }

    /// Returns two additional waits of a thread, if lanes are to serve all requests: until the
    /// leader may be lost, and after that. They are for a request in a batch. A thread with a
    /// request in no batch computes it itself, without these waits.
    pub fn waits_for_batch(&self) -> Option<[Duration; 2]> {
        let Patience { batch, lost, .. } = self.patience?;
        (!batch.is_zero()).then_some([lost, batch])
    }

    /// Returns twice the time that OpenSSL would take for all requests of a shape, and for one
    /// more.
    fn time_of_all(&self, view: &View) -> Duration {
        let in_front = view.gathered() + view.in_batches;
        times(view.time_of(1), 2 * (self.slots + in_front)) / self.slots.max(1) as u32
    }

    /// Returns the expected remaining time of a batch of `passes` passes, which began `elapsed`
    /// ago. A late batch may end at any time, unless its leader is to be given up.
    pub fn time_left(&self, view: &View, passes: usize, elapsed: Duration) -> Duration {
        match self.gives_up(view, passes, elapsed) {
            true => Duration::MAX,
            false => view.time_of(passes).saturating_sub(elapsed),
        }
    }

    /// Returns whether a leader that has had its slot for `elapsed` is given up. Its thread has
    /// probably left the operation by `siglongjmp`, is stopped, or gets no CPU. Its slot is
    /// replaced.
    pub fn gives_up(&self, view: &View, passes: usize, elapsed: Duration) -> bool {
        self.patience.is_some_and(|patience| {
            let expected = times(view.time_of(passes), LOST_AFTER);
            elapsed > expected.max(patience.lost)
        })
    }

    /// Returns a slot's part of all requests in the engine, in full passes.
    fn room(&self, view: &View) -> usize {
        let each = (view.gathered() + view.in_batches).div_ceil(self.slots);
        each.next_multiple_of(view.pass)
            .clamp(view.pass, self.longest(view))
    }

    /// Returns the maximum number of requests in a batch. In a service these are full passes within
    /// the maximum time of a batch. If a pass is one request, a batch in a service is one request,
    /// since another thread may compute the next one meanwhile.
    fn longest(&self, view: &View) -> usize {
        match self.gathering {
            Gathering::Yield => view.batch,
            Gathering::Sleep if view.pass == 1 => 1,
            Gathering::Sleep => {
                let passes = LONGEST_BATCH.as_nanos() / view.time_of(1).as_nanos();
                let most = (view.batch / view.pass).max(1);
                view.pass * usize::try_from(passes).unwrap_or(most).clamp(1, most)
            }
        }
    }

    /// Returns the number of slots. A service has one more, which is in use while a long batch
    /// runs.
    pub fn all_slots(&self) -> usize {
        self.slots + usize::from(self.gathering == Gathering::Sleep)
    }

    /// Returns the number of slots that stay free in a service while `long` long batches run.
    pub fn spare_slots(&self, long: usize) -> usize {
        usize::from(long == 0)
    }

    /// Returns whether a pass takes longer than other users are to wait.
    pub fn is_long(&self, view: &View) -> bool {
        view.pass_time > LONGEST_BATCH
    }

    /// Returns whether a batch of a service may start while `long` long ones run. A long one starts
    /// only if `long` is below `self.slots`, so one thread stays for short ones.
    pub fn may_start(&self, view: &View, long: usize) -> bool {
        self.starts(view) && (long < self.slots || !self.is_long(view))
    }

    /// Returns the charge of a request of a service until its batch has ended, in nanoseconds.
    pub fn estimate(&self, view: &View) -> u64 {
        let time = match view.pass_time {
            Duration::ZERO => SOME_TIME,
            known => known / view.pass as u32,
        };
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the time that a batch of a service waits for other requests: the time of a pass,
    /// since later requests wait for the next batch. Zero if none are likely to come, unless all
    /// waiting requests can wait.
    pub fn wait_for_company(&self, view: &View, pace: &Pace, all_can_wait: bool) -> Duration {
        match all_can_wait || pace.is_likely_within(view.pass_time) {
            true => view.pass_time,
            false => Duration::ZERO,
        }
    }

    /// Returns the maximum number of times that a leader yields its CPU while requests gather.
    pub fn yields(&self) -> u32 {
        match self.gathering {
            Gathering::Yield => YIELDS,
            Gathering::Sleep => 0,
        }
    }
}

/// Notes the time that a batch has taken, in `pass_time`.
///
/// Each batch moves `pass_time` by a sixteenth towards the batch's own time for a pass, so
/// `pass_time` stays at the median. The median follows when all batches get slower, and not when
/// some of them are held up.
pub(crate) fn note_batch(pass_time: &mut Duration, took: Duration, passes: usize) {
    let pass = took / u32::try_from(passes.max(1)).unwrap_or(u32::MAX);
    let step = (*pass_time / 16).max(Duration::from_nanos(1));
    *pass_time = match *pass_time {
        Duration::ZERO => pass.max(Duration::from_nanos(1)),
        before if before < pass => before + step,
        before => before.saturating_sub(step).max(Duration::from_nanos(1)),
    };
}

fn times(duration: Duration, count: usize) -> Duration {
    duration.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(all(test, not(loom)))]
mod tests;
