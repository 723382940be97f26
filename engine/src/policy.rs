//! The rules of the queue, as pure functions: when a batch starts, how large it grows, and which
//! thread runs it. The reasons are in `docs/decisions/0002-gathering.md`, the figures in
//! `docs/lab/pauses.md`.

mod by_shape;

use std::time::{Duration, Instant};

pub use by_shape::{Batch, Lone, lanes_bring_nothing};
pub(crate) use by_shape::{left_first, lone_is_slower, workers_help};

use crate::fault::{LONG_BATCHES, is_planted};

/// What a decision about one shape looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Requests in the queue.
    pub waiting: usize,
    /// Those of them whose thread is blocked, and so can lead.
    pub threads: usize,
    /// Leaders that have a slot and have not yet taken their batch.
    pub leaders: usize,
    /// Requests that such leaders brought along.
    pub in_hand: usize,
    /// Batches that run.
    pub running: usize,
    /// Requests in them.
    pub in_batches: usize,
    /// Requests in the batch that was taken last.
    pub last: usize,
    /// Threads that compute with OpenSSL's own implementation outside of the slots.
    pub elsewhere: usize,
    /// Requests that fill a pass of the lanes.
    pub pass: usize,
    /// Requests that a batch may have.
    pub batch: usize,
    /// How long a pass takes, by the [median](note_batch) of the batches so far; zero before the
    /// first.
    pub pass_time: Duration,
}

impl View {
    /// How long so many passes are expected to take.
    fn time_of(&self, passes: usize) -> Duration {
        let pass = match self.pass_time {
            Duration::ZERO => UNKNOWN,
            known => known,
        };
        times(pass, passes)
    }

    /// Requests that no batch has taken yet.
    fn gathered(&self) -> usize {
        self.waiting + self.in_hand
    }
}

/// The rules, with the numbers that they depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Batches that may run at a time: the CPUs of this process.
    pub slots: usize,
    /// How requests gather before a batch begins.
    pub gathering: Gathering,
    /// When requests leave the queue. None, in tests: never, and no leader is given up.
    pub patience: Option<Patience>,
}

/// How requests gather before a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// Threads of the same process bring them: a leader yields its CPU to these.
    Yield,
    /// They come from other processes, which sleep meanwhile, so there is nobody to yield to. The
    /// thread that is about to lead sleeps, where others are likely to come.
    ///
    /// Such threads serve many users, who wait for each other: a batch is short, and while a long
    /// pass runs, one thread more serves shorter ones.
    Sleep,
}

/// How long a batch may take, if a pass does not take longer. Nothing interrupts a batch, and other
/// users wait for its end.
pub(crate) const LONGEST_BATCH: Duration = Duration::from_millis(1);
/// How often a thread that waits for company looks for it.
pub(crate) const GLANCE: Duration = Duration::from_micros(50);
/// A batch waits for others if others come in one of so many waits, at least.
const WAITS: u32 = 2;
/// Requests of a shape that come less often than that are not told apart.
const LONGEST_INTERVAL: Duration = Duration::from_millis(10);
/// What a request is charged before one of its shape was served.
const SOME_TIME: Duration = Duration::from_micros(100);

/// How often requests of a shape come.
pub(crate) struct Pace {
    last: Instant,
    /// The mean of the times between two of them; later ones count for more.
    pub(crate) mean: Duration,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace {
            last: now,
            mean: LONGEST_INTERVAL,
        }
    }

    /// Notes that one has come.
    pub(crate) fn note(&mut self, now: Instant) {
        let interval = now.saturating_duration_since(self.last);
        self.last = now;
        self.mean = (15 * self.mean + interval.min(LONGEST_INTERVAL)) / 16;
    }

    /// Whether it pays to wait so long for another one.
    pub(crate) fn is_likely_within(&self, time: Duration) -> bool {
        self.mean <= WAITS * time
    }
}

/// How long every request may wait, however short it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// For batches that run as expected.
    pub expected: Duration,
    /// For those that are late.
    pub most: Duration,
    /// How much longer for one that has the request. Zero, unless lanes are to serve all.
    pub batch: Duration,
    /// When a leader is given up, however short its batch is.
    pub lost: Duration,
}

impl Patience {
    /// What is expected may take several times what it takes to wake a thread, and more than a
    /// batch of short requests takes, so that these still gather. And the thread of a leader may
    /// have to wait for a CPU, as a thread has to that computes with OpenSSL's own implementation.
    pub const USUAL: Patience = Patience {
        expected: Duration::from_micros(250),
        most: Duration::from_millis(50),
        batch: Duration::ZERO,
        lost: Duration::from_millis(100),
    };

    /// Where the lanes are to serve all requests.
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

/// What a pass is taken to last before one was measured.
const UNKNOWN: Duration = Duration::from_millis(250);

/// How many times longer than expected a leader may take before it is given up. It may only be slow
/// to get a CPU, and then one batch more runs than there are slots, which does little harm.
const LOST_AFTER: usize = 16;

/// How many leaders are given up at a time at most. Each keeps its working memory. Beyond that,
/// their slots stay lost; without any slot left, all requests are declined at once.
pub(crate) const MOST_LOST: usize = 64;

/// How often a leader yields its CPU at most before it begins a batch. A model tries anyway what
/// other threads do meanwhile.
const YIELDS: u32 = if cfg!(loom) { 2 } else { 16 };

/// How often in a row a leader yields in vain before it stops expecting more.
pub(crate) const PATIENCE: u32 = 2;

impl Policy {
    /// How many requests the next batch takes at most.
    ///
    /// All that are in the engine, divided among the slots, in full passes: eight requests on two
    /// idle CPUs are better served as twice four at the same time than as eight on one of them. And
    /// what would fill the last pass only in part stays for the next leader.
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

    /// Whether one of the waiting requests gets a free slot now.
    ///
    /// A thread never waits while a slot is free. Asynchronous requests do, while a batch of
    /// their shape runs and they do not fill a pass: their callers have other work.
    pub fn starts(&self, view: &View) -> bool {
        // What a leader on its way will take needs no other leader.
        let unled = view.gathered() > view.leaders * self.share(view);
        let alone = view.running + view.leaders == 0;
        view.waiting > 0 && unled && (view.threads > 0 || alone || view.waiting >= view.pass)
    }

    /// Whether a leader has reason to expect more requests than it sees, and so yields its CPU to
    /// the threads that would bring them: the batch before had company, this one has already, or
    /// more threads compute than there are CPUs.
    pub fn expects_company(&self, view: &View) -> bool {
        let busy = view.running + view.leaders + view.elsewhere;
        (view.last > 1 || view.gathered() > view.leaders || busy > self.slots)
            && view.gathered() < view.leaders * self.room(view)
    }

    /// Whether a request that came now would run alone, if there is a free slot: it would be led at
    /// once, and its leader would neither find others nor expect any.
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

    /// How long a request that comes now may wait. None: as long as it takes.
    ///
    /// That is twice as long as OpenSSL's own implementation would take for it and for all of its
    /// shape that are in front of it, on the CPUs of this process. OpenSSL takes about as long for
    /// one request as the lanes take for a pass ([`lone_is_slower`]), so batches that run as
    /// expected are done several times before, however many requests wait. Both are times by the
    /// clock: where other programs use the CPUs too, passes take longer, and OpenSSL would as well.
    pub fn longest_wait(&self, view: &View) -> Option<Duration> {
        Some(self.time_of_all(view).max(self.patience?.most))
    }

    /// How long it may have to wait for a slot, by what is expected of those that lead now.
    /// Otherwise it does not begin to wait.
    pub fn longest_expected_wait(&self, view: &View) -> Option<Duration> {
        Some(self.time_of_all(view).max(self.patience?.expected))
    }

    /// How long an asynchronous job may wait for another thread before it is woken without an
    /// answer. Its thread has other work, so this is not for its sake, but in case that the other
    /// thread never ends.
    pub fn longest_pause(&self, view: &View) -> Option<Duration> {
        let Patience { batch, lost, .. } = self.patience?;
        Some(self.longest_wait(view)?.max(lost) + batch)
    }

    /// How much longer a thread waits whose request is in a batch, where lanes are to serve all:
    /// until the leader may be lost, and then. There a thread whose request is in no batch computes
    /// it itself.
    pub fn waits_for_batch(&self) -> Option<[Duration; 2]> {
        let Patience { batch, lost, .. } = self.patience?;
        (!batch.is_zero()).then_some([lost, batch])
    }

    /// Twice as long as OpenSSL would take for all of a shape, and for one more.
    fn time_of_all(&self, view: &View) -> Duration {
        let in_front = view.gathered() + view.in_batches;
        times(view.time_of(1), 2 * (self.slots + in_front)) / self.slots.max(1) as u32
    }

    /// How long a batch of so many passes, which began so long ago, is expected to run yet. One
    /// that is late may end at any time, unless its leader is as good as given up.
    pub fn time_left(&self, view: &View, passes: usize, elapsed: Duration) -> Duration {
        match self.gives_up(view, passes, elapsed) {
            true => Duration::MAX,
            false => view.time_of(passes).saturating_sub(elapsed),
        }
    }

    /// Whether a leader is given up that has had its slot for so long: its thread has left the
    /// operation by `siglongjmp`, is stopped, or gets no CPU. Its slot is replaced.
    pub fn gives_up(&self, view: &View, passes: usize, elapsed: Duration) -> bool {
        self.patience.is_some_and(|patience| {
            let expected = times(view.time_of(passes), LOST_AFTER);
            elapsed > expected.max(patience.lost)
        })
    }

    /// A slot's part of all that is in the engine, in full passes.
    fn room(&self, view: &View) -> usize {
        let each = (view.gathered() + view.in_batches).div_ceil(self.slots);
        each.next_multiple_of(view.pass)
            .clamp(view.pass, self.longest(view))
    }

    /// How many requests a batch may have: in a service full passes, for as long as a batch may
    /// take. Where a pass is one request, it is one there, since another thread may compute the
    /// next one meanwhile.
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

    /// How many slots there are: in a service one more, which is in use while a long batch runs.
    pub fn all_slots(&self) -> usize {
        self.slots + usize::from(self.gathering == Gathering::Sleep)
    }

    /// How many of them stay free in a service while so many long batches run.
    pub fn spare_slots(&self, long: usize) -> usize {
        usize::from(long == 0)
    }

    /// Whether a pass takes longer than other users are to wait.
    pub fn is_long(&self, view: &View) -> bool {
        view.pass_time > LONGEST_BATCH
    }

    /// Whether a batch of a service may start while so many long ones run: these leave a thread to
    /// the others.
    pub fn may_start(&self, view: &View, long: usize) -> bool {
        self.starts(view) && (long < self.slots || !self.is_long(view))
    }

    /// What a request of a service is charged until its batch has ended, in nanoseconds.
    pub fn estimate(&self, view: &View) -> u64 {
        let time = match view.pass_time {
            Duration::ZERO => SOME_TIME,
            known => known / view.pass as u32,
        };
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// For how long a batch of a service waits for others: as long as a pass takes, since those
    /// that come later wait for the next one. Zero where none are likely to come, unless all that
    /// wait can do so.
    pub fn wait_for_company(&self, view: &View, pace: &Pace, all_can_wait: bool) -> Duration {
        match all_can_wait || pace.is_likely_within(view.pass_time) {
            true => view.pass_time,
            false => Duration::ZERO,
        }
    }

    /// How often a leader may yield its CPU while requests gather.
    pub fn yields(&self) -> u32 {
        match self.gathering {
            Gathering::Yield => YIELDS,
            Gathering::Sleep => 0,
        }
    }
}

/// Notes how long a batch has taken, in `pass_time`.
///
/// Each batch moves it by a sixteenth towards its own time for a pass, so it stays at the median.
/// That follows when all batches get slower, and not when some of them are held up.
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
