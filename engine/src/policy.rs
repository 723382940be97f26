//! The rules of the queue, as pure functions: when a batch starts, how large it grows, and which
//! thread runs it. The reasons are in `docs/decisions/0002-gathering.md`, the figures in
//! `docs/lab/pauses.md`.

use std::time::{Duration, Instant};

use lockstep_ops::{Backend, Curve, KeyKind, Shape};

use crate::fault::{Defect, is_planted};

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
    /// Threads of the same process bring them: a leader yields its CPU to these, so often at most.
    Yield(u32),
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

/// How often in a row a leader yields in vain before it stops expecting more.
pub(crate) const PATIENCE: u32 = 2;

impl Policy {
    /// How many requests the next batch takes at most.
    ///
    /// All that are in the engine, divided among the slots, in full passes: eight requests on two
    /// idle CPUs are better served as twice four at the same time than as eight on one of them. And
    /// what would fill the last pass only in part stays for the next leader.
    pub fn share(&self, view: &View) -> usize {
        if self.gathering == Gathering::Sleep && is_planted(Defect::LongBatches) {
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
            Gathering::Yield(_) => view.batch,
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
            Gathering::Yield(most) => most,
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

/// Whether lone requests go to OpenSSL's own implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lone {
    /// Where OpenSSL's own implementation was measured to be faster.
    #[default]
    Auto,
    /// Never; nor do any others where full lanes bring nothing.
    Lanes,
    /// Always.
    Stock,
}

/// Whether OpenSSL's own implementation serves one request alone faster than `backend` does.
pub(crate) fn lone_is_slower(backend: Backend, shape: Shape) -> bool {
    // Portable lanes are in use only if the configuration names them.
    backend != Backend::PORTABLE && shape.is_slower_alone(backend)
}

/// How many requests of a shape OpenSSL's own implementation serves in a process before an engine
/// is made: about as many as have to be served on lanes until these have saved what it costs to
/// make the engine, its memory, and the tables of a curve. Measured, see
/// `docs/decisions/loading.md`.
pub(crate) fn left_first(shape: Shape) -> u32 {
    match shape {
        // A longer one alone is served sooner on lanes, with all that must be made before.
        Shape::Rsa { size, .. } => u32::from(size.bits() <= 2048),
        // OpenSSL's own implementation takes long for these.
        Shape::EcdsaSign(Curve::P384) | Shape::EcdsaVerify(Curve::P384) => 1,
        Shape::Ecdh(Curve::P384) | Shape::Keypair(KeyKind::Nist(Curve::P384)) => 1,
        // OpenSSL may lack it.
        _ if shape.is_kem() => 0,
        _ => 16,
    }
}

/// Which requests wait for company: jobs pause for them, and threads gather. All others are
/// computed at once, alone.
///
/// A job that pauses waits for a whole turn of its event loop, and a thread for those that it
/// yields its CPU to. All that meet in a batch are answered together, so a server idles while their
/// clients compute. It therefore pays only where a batch saves more than that: RSA. Measured, see
/// `docs/lab/pauses.md`; the reasons are in `docs/decisions/jobs.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// RSA.
    #[default]
    Rsa,
    /// All but key pairs, of which the pool fills the lanes: for programs that want many operations
    /// rather than quick ones.
    All,
}

impl Batch {
    /// Whether requests of this shape wait for company.
    pub(crate) fn is_for(self, shape: Shape) -> bool {
        match self {
            Batch::Rsa => shape.is_rsa(),
            Batch::All => !matches!(shape, Shape::Keypair(_)),
        }
    }
}

/// Which of the requests that jobs pause for the jobs' own threads serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobsLead {
    /// All; workers help with those that take longer than to hand a batch to another thread and to
    /// be notified of its end.
    #[default]
    Auto,
    /// All, and workers none.
    Yes,
    /// None: workers serve them all.
    No,
}

impl JobsLead {
    /// Whether workers help with a shape. Measured, see `docs/lab/pauses.md`.
    pub(crate) fn wants_help(self, shape: Shape, slots: usize) -> bool {
        // With one slot another thread would have no CPU of its own.
        self == JobsLead::Auto && slots > 1 && shape.is_rsa()
    }
}

/// Whether OpenSSL's own implementation serves requests one by one about as fast as `backend` does
/// at best, or faster: then it gets all of them. Measured, see
/// `docs/lab/rsa.md`.
pub fn lanes_bring_nothing(backend: Backend, shape: Shape) -> bool {
    shape.is_rsa() && backend.is_avx2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rsa_waits_for_company_and_where_a_setting_wants_it_more_does() {
        for shape in Shape::ALL {
            assert_eq!(Batch::Rsa.is_for(shape), shape.is_rsa(), "{shape:?}");
            let is_keypair = shape.name().ends_with("-keygen");
            assert_eq!(Batch::All.is_for(shape), !is_keypair, "{shape:?}");
        }
    }

    #[test]
    fn workers_help_with_rsa_where_they_have_a_cpu() {
        for shape in Shape::ALL {
            assert_eq!(JobsLead::Auto.wants_help(shape, 2), shape.is_rsa());
            assert!(!JobsLead::Auto.wants_help(shape, 1) && !JobsLead::Yes.wants_help(shape, 2));
        }
    }

    #[test]
    fn only_avx2_brings_nothing_for_rsa() {
        for backend in Backend::available() {
            for shape in Shape::ALL {
                let nothing = shape.is_rsa() && backend.name() == "avx2";
                assert_eq!(lanes_bring_nothing(backend, shape), nothing);
            }
        }
    }

    #[test]
    fn a_25519_request_alone_is_slower_on_avx2_lanes_only() {
        for backend in Backend::available() {
            for shape in [Shape::X25519, Shape::Ed25519Sign, Shape::Ed25519Verify] {
                let slower = backend.name() == "avx2";
                assert_eq!(lone_is_slower(backend, shape), slower);
            }
        }
    }

    #[test]
    fn of_lanes_with_52_bit_multiplies_only_rsa_2048_alone_is_slower() {
        let fast = |backend: &Backend| backend.name().starts_with("avx512ifma");
        for backend in Backend::available().into_iter().filter(fast) {
            for shape in Shape::ALL {
                let slower = shape.name().starts_with("rsa2048");
                assert_eq!(lone_is_slower(backend, shape), slower, "{}", shape.name());
            }
        }
    }

    const POLICY: Policy = Policy {
        slots: 2,
        gathering: Gathering::Yield(16),
        patience: Some(Patience::USUAL),
    };
    const IDLE: View = View {
        waiting: 0,
        threads: 0,
        leaders: 0,
        in_hand: 0,
        running: 0,
        in_batches: 0,
        last: 0,
        elsewhere: 0,
        pass: 4,
        batch: 8,
        pass_time: Duration::ZERO,
    };

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// With passes of so many microseconds.
    fn measured(microseconds: u32, view: View) -> View {
        let pass_time = MICROSECOND * microseconds;
        View { pass_time, ..view }
    }

    #[test]
    fn a_request_waits_as_long_as_openssl_would_take_for_all_in_front() {
        let wait = |view: &View| POLICY.longest_expected_wait(view).unwrap();
        let rsa2048 = measured(600, IDLE);
        assert_eq!(wait(&rsa2048), MICROSECOND * 1200);
        // Two full batches run, and 48 wait: the last one is served after three more rounds of two
        // passes, which is 4.8 ms with what runs.
        let crowd = View {
            waiting: 48,
            threads: 48,
            running: 2,
            in_batches: 16,
            ..rsa2048
        };
        assert_eq!(wait(&crowd), MICROSECOND * 2 * 600 * 33);
        assert!(wait(&crowd) > 4 * (MICROSECOND * 4800));
        // Where batches are late, it waits longer.
        let most = Patience::USUAL.most;
        assert_eq!(POLICY.longest_wait(&crowd), Some(most));
        let slow = measured(6000, crowd);
        assert_eq!(POLICY.longest_wait(&slow), Some(wait(&slow)));
        // A short one may wait for a batch of other short ones.
        assert_eq!(wait(&measured(50, IDLE)), Patience::USUAL.expected);
        // Nothing is known.
        assert_eq!(wait(&IDLE), 2 * UNKNOWN);
        let endless = Policy {
            patience: None,
            ..POLICY
        };
        assert_eq!(endless.longest_wait(&crowd), None);
        assert_eq!(endless.longest_pause(&crowd), None);
        assert!(!endless.gives_up(&crowd, 1, Duration::MAX));
    }

    #[test]
    fn a_short_request_does_not_wait_for_a_long_batch() {
        let (rsa4096, p256) = (measured(4300, IDLE), measured(50, IDLE));
        let left = POLICY.time_left(&rsa4096, 2, MICROSECOND * 1000);
        assert_eq!(left, MICROSECOND * 7600);
        assert!(left > POLICY.longest_expected_wait(&p256).unwrap());
        assert!(left < POLICY.longest_expected_wait(&rsa4096).unwrap());
        // One that is late may end at any time, up to the moment in which it is given up.
        let late = |elapsed: u32| POLICY.time_left(&rsa4096, 1, MICROSECOND * elapsed);
        assert_eq!(late(5300), Duration::ZERO);
        assert_eq!(late(200_000), Duration::MAX);
    }

    #[test]
    fn a_leader_is_given_up_after_many_times_its_time() {
        let (long, short) = (measured(10_000, IDLE), measured(50, IDLE));
        let ms = Duration::from_millis;
        assert!(!POLICY.gives_up(&long, 2, ms(320)));
        assert!(POLICY.gives_up(&long, 2, ms(321)));
        assert!(!POLICY.gives_up(&short, 1, ms(100)));
        assert!(POLICY.gives_up(&short, 1, ms(101)));
        // A job is not woken before the leader may be given up.
        assert_eq!(POLICY.longest_pause(&short), Some(ms(100)));
        // Where lanes are to serve all, a thread waits for none that has a slot, but for one that
        // has its request.
        let lanes = Policy {
            patience: Some(Patience::of(Lone::Lanes)),
            ..POLICY
        };
        assert_eq!(lanes.longest_wait(&short), POLICY.longest_wait(&short));
        assert_eq!(POLICY.waits_for_batch(), None);
        assert_eq!(lanes.waits_for_batch(), Some([ms(1000), ms(10_000)]));
        assert!(!lanes.gives_up(&short, 1, ms(1000)) && lanes.gives_up(&short, 1, ms(1001)));
    }

    #[test]
    fn the_time_of_a_pass_is_the_median() {
        let mut pass_time = Duration::ZERO;
        note_batch(&mut pass_time, MICROSECOND * 1000, 2);
        assert_eq!(pass_time, MICROSECOND * 500);
        // Every eighth batch is held up for long.
        for batch in 0..800 {
            let took = if batch % 8 == 0 { 400_000 } else { 100 };
            note_batch(&mut pass_time, MICROSECOND * took, 1);
        }
        assert!((MICROSECOND * 90..MICROSECOND * 120).contains(&pass_time));
        // All get slower.
        for _ in 0..100 {
            note_batch(&mut pass_time, MICROSECOND * 800, 1);
        }
        assert!((MICROSECOND * 740..MICROSECOND * 860).contains(&pass_time));
        for _ in 0..1000 {
            note_batch(&mut pass_time, Duration::ZERO, 1);
        }
        assert!(pass_time > Duration::ZERO, "it stays known");
    }

    /// The rules of a service with one thread.
    const SERVICE: Policy = Policy {
        slots: 1,
        gathering: Gathering::Sleep,
        patience: None,
    };

    #[test]
    fn a_batch_of_a_service_is_as_long_as_others_may_wait_and_holds_full_passes() {
        let crowd = View {
            waiting: 1000,
            batch: 64,
            ..IDLE
        };
        let most = |pass, time| {
            SERVICE.share(&View {
                pass,
                ..measured(time, crowd)
            })
        };
        for pass in [4, 8] {
            assert_eq!([most(pass, 10_000_000), most(pass, 1000)], [pass; 2]);
            assert_eq!([most(pass, 501), most(pass, 500)], [pass, 2 * pass]);
            assert_eq!([most(pass, 1), most(pass, 10)], [64; 2]);
            // Before one was measured.
            assert_eq!(most(pass, 0), pass);
        }
        assert_eq!([most(1, 10), most(1, 10_000)], [1; 2]);
    }

    #[test]
    fn a_pass_is_long_that_takes_longer_than_others_may_wait() {
        let longest = LONGEST_BATCH.as_micros() as u32;
        let waiting = View { waiting: 1, ..IDLE };
        for (time, is_long) in [(0, false), (longest, false), (longest + 1, true)] {
            let view = measured(time, waiting);
            assert_eq!(SERVICE.is_long(&view), is_long, "{time}");
            assert!(SERVICE.may_start(&view, 0));
            assert_eq!(SERVICE.may_start(&view, 1), !is_long);
        }
        assert_eq!((SERVICE.all_slots(), POLICY.all_slots()), (2, 2));
        assert_eq!([0, 1, 2].map(|long| SERVICE.spare_slots(long)), [1, 0, 0]);
    }

    #[test]
    fn a_request_is_charged_its_part_of_a_pass() {
        assert_eq!(SERVICE.estimate(&IDLE), 100_000);
        assert_eq!(SERVICE.estimate(&measured(400, IDLE)), 100_000);
        assert_eq!(SERVICE.estimate(&measured(40, IDLE)), 10_000);
    }

    #[test]
    fn others_are_waited_for_where_they_are_likely_to_come() {
        let (start, step) = (Instant::now(), Duration::from_micros(700));
        let mut pace = Pace::new(start);
        let pass_time = step / WAITS;
        let view = View { pass_time, ..IDLE };
        let likely = |pace: &Pace| match SERVICE.wait_for_company(&view, pace, false) {
            Duration::ZERO => false,
            time => time == pass_time,
        };
        assert!(!likely(&pace));
        assert_eq!(SERVICE.wait_for_company(&view, &pace, true), pass_time);
        assert_eq!(SERVICE.wait_for_company(&IDLE, &pace, true), Duration::ZERO);
        let mut now = start;
        let mut go_on = |step: Duration, pace: &mut Pace| {
            for _ in 0..100 {
                now += step;
                pace.note(now);
            }
        };
        go_on(step * 9 / 10, &mut pace);
        assert!(likely(&pace));
        go_on(step * 11 / 10, &mut pace);
        assert!(!likely(&pace));
        go_on(step * 9 / 10, &mut pace);
        // A pause of a night is soon forgotten.
        go_on(Duration::from_secs(3600), &mut pace);
        go_on(step * 9 / 10, &mut pace);
        assert!(likely(&pace));
    }

    #[test]
    fn a_share_is_a_slots_part_in_full_passes() {
        let share = |waiting, in_batches| {
            POLICY.share(&View {
                waiting,
                in_batches,
                ..IDLE
            })
        };
        assert_eq!(share(1, 0), 4);
        assert_eq!(share(4, 0), 4);
        assert_eq!(share(8, 0), 4, "two slots take four each");
        assert_eq!(share(9, 0), 8, "the ninth needs a further pass");
        assert_eq!(share(16, 0), 8);
        assert_eq!(share(100, 0), 8);
        assert_eq!(share(5, 8), 4, "the fifth would run alone in its pass");
        assert_eq!(share(3, 8), 8, "room for more that may come");
    }

    #[test]
    fn a_thread_starts_at_once() {
        assert!(POLICY.starts(&View {
            waiting: 1,
            threads: 1,
            ..IDLE
        }));
        let busy = View {
            running: 1,
            in_batches: 8,
            ..IDLE
        };
        assert!(POLICY.starts(&View {
            waiting: 1,
            threads: 1,
            ..busy
        }));
    }

    #[test]
    fn a_leader_on_its_way_needs_no_other() {
        let led = View {
            leaders: 1,
            in_hand: 1,
            ..IDLE
        };
        assert!(!POLICY.starts(&View {
            waiting: 3,
            threads: 3,
            ..led
        }));
        assert!(
            POLICY.starts(&View {
                waiting: 4,
                threads: 4,
                ..led
            }),
            "a fifth request does"
        );
    }

    #[test]
    fn who_finds_and_expects_nobody_is_alone() {
        assert!(POLICY.is_alone(&IDLE));
        let running = View {
            running: 1,
            in_batches: 8,
            last: 1,
            ..IDLE
        };
        assert!(POLICY.is_alone(&running), "the other slot is for it");
        let led = View {
            leaders: 1,
            in_hand: 1,
            ..IDLE
        };
        for company in [
            View { waiting: 1, ..IDLE },
            led,
            View { last: 2, ..IDLE },
            View {
                elsewhere: 2,
                ..IDLE
            },
        ] {
            assert!(!POLICY.is_alone(&company), "{company:?}");
        }
    }

    #[test]
    fn jobs_wait_for_a_pass_or_an_end() {
        let busy = View {
            running: 1,
            in_batches: 8,
            ..IDLE
        };
        assert!(POLICY.starts(&View { waiting: 1, ..IDLE }));
        assert!(!POLICY.starts(&View { waiting: 3, ..busy }));
        assert!(POLICY.starts(&View { waiting: 4, ..busy }));
    }

    #[test]
    fn only_signs_of_company_make_a_leader_yield() {
        let led = View {
            leaders: 1,
            in_hand: 1,
            ..IDLE
        };
        assert!(!POLICY.expects_company(&led));
        let worker = View {
            leaders: 1,
            waiting: 1,
            ..IDLE
        };
        assert!(
            !POLICY.expects_company(&worker),
            "what it leads for is no company"
        );
        assert!(!POLICY.expects_company(&View {
            running: 1,
            in_batches: 1,
            last: 1,
            ..led
        }));
        assert!(POLICY.expects_company(&View { last: 8, ..led }));
        assert!(POLICY.expects_company(&View { waiting: 1, ..led }));
        assert!(
            !POLICY.expects_company(&View { waiting: 3, ..led }),
            "the pass is full"
        );
        assert!(!POLICY.expects_company(&View {
            elsewhere: 1,
            ..led
        }));
        assert!(POLICY.expects_company(&View {
            elsewhere: 2,
            ..led
        }));
    }
}
