//! The threads that serve requests. The requests of all clients share batches.
//!
//! One thread at a time *collects*: it takes the requests that all clients have posted, and sleeps
//! while there are none. With a batch it goes off to compute, and another thread collects. Requests
//! gather while a batch of their shape runs, as in the engine's own queue: a second batch starts
//! only once a pass is full. A batch takes about a millisecond at most, since nothing interrupts
//! it. Where a single pass takes longer, as one of RSA-4096 does, one thread more than usual serves
//! all other shapes meanwhile. Users take [turns](crate::turns), whatever they have posted: each
//! looks at the rings of all, and at so many requests of one user at a time. The thread that has
//! computed answers in the rings, without a hand-over in between.
//!
//! A refused request costs the user who has asked for it. Cheap checks are made when a request is
//! taken, expensive ones when its turn comes.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockstep_engine::{Declined, Engine, Request as EngineRequest, Response, STACK_BYTES, Shape};
use lockstep_remote::Operation;
use lockstep_remote::protocol::status;
use lockstep_ring::{Closing, Patience, Request, Server, Sleeper};
use rustix::time::{ClockId, Timespec, clock_gettime};
use zeroize::Zeroize as _;

use crate::access::Account;
use crate::clients::{Client, Clients, Duty};
use crate::fault::{Defect, is_planted};
use crate::turns::{Turns, nanoseconds};

/// How long the collecting thread sleeps at most.
const SLEEP: Duration = Duration::from_secs(60);
/// How often a collecting thread that waits for company looks for it.
const GLANCE: Duration = Duration::from_micros(50);
/// A client whose last request is at most this old, in microseconds, is expected to make another
/// one soon.
const ACTIVE: u64 = 10_000;
/// A batch waits for others if others come in one of so many waits, at least.
const WAITS: u32 = 2;
/// Requests of a shape that come less often than that are not told apart.
const LONGEST_INTERVAL: Duration = Duration::from_millis(10);
/// How deep the kernels of the curves write to the stack, in a release, once their tables are made.
const USED_STACK: usize = 64 << 10;
/// The most requests of one shape in a batch: the others go into the next one.
const MOST: usize = 64;
/// How long a batch may take, if a pass does not take longer. Others wait for its end.
const LONGEST_BATCH: Duration = Duration::from_millis(1);
/// What a request is believed to take before one of its shape was served.
const SOME_TIME: Duration = Duration::from_micros(100);

/// An admitted request.
struct Work {
    client: Arc<Client>,
    request: Request,
    asks: EngineRequest,
    duty: Duty,
    is_deferrable: bool,
}

/// What waits.
struct Waiting {
    turns: Turns<Work>,
    /// By shape.
    arrivals: Vec<Arrivals>,
    /// What a request of a shape takes, in nanoseconds: the mean of the last ones.
    costs: Vec<u64>,
    /// What a pass of a shape takes, as full as it is: the mean of the last ones.
    passes: Vec<u64>,
    /// The shape that is looked at first, or the number of shapes for the first one.
    next: usize,
    /// The client whose ring is looked at first.
    first: usize,
    /// The clients that were there in the last round.
    clients: Arc<Vec<Arc<Client>>>,
    /// The service ends, and takes no more than what is here.
    is_last: bool,
}

/// A batch to compute.
struct Batch {
    shape: Shape,
    works: Vec<Work>,
    /// What each request was charged, in nanoseconds.
    estimate: u64,
    /// Whether another thread serves what comes meanwhile.
    is_long: bool,
}

/// What a batch has taken.
struct Bill {
    shape: Shape,
    /// What its requests have taken beyond their estimates, by account.
    differences: Vec<(Account, i64)>,
    /// If any was computed.
    cost: Option<Cost>,
}

/// What computing has taken, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// For each request.
    request: u64,
    /// For each pass, however many requests it had.
    pass: u64,
}

/// How often requests of one shape come.
struct Arrivals {
    last: Instant,
    /// The mean of the times between two of them; later ones count for more.
    mean: Duration,
}

/// The threads, and what they share.
pub struct Service {
    engine: Engine,
    sleeper: Sleeper,
    /// The clients.
    pub clients: Clients,
    waiting: Mutex<Waiting>,
    /// What is to be charged. The thread that collects may sleep with the lock above.
    bills: Mutex<Vec<Bill>>,
    /// How many threads serve: one more while a long batch runs.
    threads: usize,
    /// How many threads collect or compute. All others wait.
    busy: Mutex<usize>,
    /// Where they wait.
    place: Condvar,
    /// How many batches of each shape run.
    running: Vec<AtomicUsize>,
    /// How many long ones.
    long: AtomicUsize,
    ends: AtomicBool,
}

impl Service {
    /// A service without clients, for so many threads.
    pub fn new(engine: Engine, threads: usize) -> Service {
        let shapes = Shape::ALL.len();
        let passes: Vec<_> = Shape::ALL
            .iter()
            .map(|own| nanoseconds(own.pass_time()))
            .collect();
        let costs = Shape::ALL.iter().zip(&passes);
        let costs = costs.map(|(own, pass)| pass / engine.pass(*own) as u64);
        let costs = costs.map(|cost| cost.max(nanoseconds(SOME_TIME))).collect();
        Service {
            engine,
            sleeper: Sleeper::new(),
            clients: Clients::default(),
            waiting: Mutex::new(Waiting {
                turns: Turns::new(shapes),
                arrivals: (0..shapes).map(|_| Arrivals::new(Instant::now())).collect(),
                costs,
                passes,
                next: 0,
                first: 0,
                clients: Arc::default(),
                is_last: false,
            }),
            bills: Mutex::default(),
            threads,
            busy: Mutex::new(0),
            place: Condvar::new(),
            running: (0..shapes).map(|_| AtomicUsize::new(0)).collect(),
            long: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
        }
    }

    /// Starts the threads, and one more for what comes while long batches run.
    pub fn start(self: &Arc<Service>) -> io::Result<Threads> {
        let mut threads = Vec::new();
        for number in 0..=self.threads {
            let service = Arc::clone(self);
            let thread = thread::Builder::new()
                .name(format!("keyd-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || service.work())?;
            threads.push(thread);
        }
        Ok(Threads(threads))
    }

    /// Has the threads look at a changed list of clients.
    pub fn refresh(&self) {
        self.sleeper.wake();
    }

    /// Answers what is posted, ends the threads, and closes the rings: a request that comes later
    /// is lost at once, and the client asks the next daemon.
    pub fn finish(&self, threads: Threads) {
        self.ends.store(true, Ordering::Release);
        self.sleeper.wake();
        drop(self.busy.lock());
        self.place.notify_all();
        for thread in threads.0 {
            let _ = thread.join();
        }
        let clients = self.clients.now();
        clients
            .iter()
            .for_each(|own| own.ring.close_as(Closing::Followed));
    }

    /// A release aborts where a thread panics: none goes on that takes requests and answers none.
    fn work(&self) {
        let mut spent = Spent::new();
        self.begin();
        while let Some(batch) = self.next_batch() {
            let Batch { shape, is_long, .. } = batch;
            if is_long {
                self.call();
            }
            let bill = self.serve(batch, &mut spent);
            // The kernels of RSA keep their secrets in memory for keys.
            if !shape.is_rsa() {
                wipe_stack::<USED_STACK>();
            }
            let mut bills = self.bills.lock().unwrap_or_else(PoisonError::into_inner);
            bills.push(bill);
            drop(bills);
            self.running[shape.index()].fetch_sub(1, Ordering::Release);
            if is_long {
                self.long.fetch_sub(1, Ordering::Release);
            }
            // Requests of this shape may have gathered meanwhile.
            self.sleeper.wake();
            self.pause();
        }
    }

    /// Counts the thread among those that serve, once there is a place.
    fn begin(&self) {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |busy: &mut usize| {
            let most = self.threads + usize::from(self.long.load(Ordering::Acquire) > 0);
            *busy >= most && !self.ends.load(Ordering::Acquire)
        };
        let waited = self.place.wait_while(busy, is_full);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Waits if the long batches have ended for which this thread or another one was called.
    fn pause(&self) {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.begin();
    }

    /// Calls a thread for what comes while a long batch runs.
    fn call(&self) {
        // One that looked before the batch was counted waits by now.
        drop(self.busy.lock());
        self.place.notify_one();
    }

    /// Collects until there is a batch; None at the end.
    fn next_batch(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let clients = match waiting.is_last {
                true => Arc::default(),
                false => self.clients.now(),
            };
            let ends = self.ends.load(Ordering::Acquire);
            self.charge(&mut waiting);
            forget(&clients, &mut waiting);
            self.take(&clients, &mut waiting, ends);
            waiting.is_last = ends;
            if let Some(shape) = self.ready(&waiting) {
                if !ends {
                    self.gather(&clients, &mut waiting, shape);
                }
                // Others may have come first meanwhile.
                if let Some(batch) = self.batch(&mut waiting) {
                    return Some(batch);
                }
            }
            if ends && waiting.turns.total() == 0 {
                // The next thread must not sleep.
                self.sleeper.wake();
                return None;
            }
            // A ring of which nothing is taken now would keep the thread awake. Something of its
            // account is here, and the end of a batch wakes the thread.
            let clients = clients.iter();
            let heard = clients.filter(|client| !waiting.turns.is_full(client.account));
            let rings: Vec<Server> = heard.map(|client| client.ring.clone()).collect();
            let patience = Patience::new(Duration::ZERO, SLEEP);
            if self.sleeper.sleep(&rings, patience).is_err() {
                // For a moment without memory.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Charges accounts what batches have taken that have ended.
    fn charge(&self, waiting: &mut Waiting) {
        let mut bills = self.bills.lock().unwrap_or_else(PoisonError::into_inner);
        for bill in bills.drain(..) {
            for (account, difference) in bill.differences {
                waiting.turns.settle(account, difference);
            }
            let shape = bill.shape.index();
            let learn = |mean: &mut u64, last: u64| {
                *mean = (*mean / 4)
                    .saturating_mul(3)
                    .saturating_add(last / 4)
                    .max(1);
            };
            if let Some(cost) = bill.cost {
                learn(&mut waiting.costs[shape], cost.request);
                learn(&mut waiting.passes[shape], cost.pass);
            }
        }
    }

    /// Takes what is posted, of each account as much as there is room for; at the end all of it.
    /// What is refused is answered at once.
    fn take(&self, clients: &[Arc<Client>], waiting: &mut Waiting, ends: bool) {
        let mut now = Instant::now();
        waiting.turns.begin_round(now);
        // No client of an account comes first each time.
        waiting.first = (waiting.first + 1) % clients.len().max(1);
        let (before, from) = clients.split_at(waiting.first);
        for client in from.iter().chain(before) {
            // A client that waits sees that the daemon goes on.
            if client.ring.is_awaited() {
                client.ring.beat();
            }
            let account = client.account;
            let room = match client.ring.has_requests() {
                true if ends => usize::MAX,
                true => waiting.turns.room(account),
                false => 0,
            };
            if room == 0 {
                continue;
            }
            let mut refused = 0;
            let taken = client
                .ring
                .take_some(room, |request| match client.admit(&request, now) {
                    Ok((asks, duty)) => {
                        let shape = asks.shape().index();
                        waiting.arrivals[shape].note(now);
                        let work = Work {
                            client: Arc::clone(client),
                            is_deferrable: Operation::is_deferrable(request.operation()),
                            request,
                            asks,
                            duty,
                        };
                        waiting.turns.push(account, shape, work, now);
                    }
                    Err(status) => {
                        refused += 1;
                        request.answer(status, &[]);
                    }
                });
            client.count_refused(refused);
            let before = std::mem::replace(&mut now, Instant::now());
            waiting.turns.charge_look(account, taken, now - before, now);
        }
    }

    /// A shape that a batch can start of: that of the account whose turn it is. Shapes of one
    /// account take turns, too.
    fn ready(&self, waiting: &Waiting) -> Option<Shape> {
        let shapes = Shape::ALL.len();
        let may_be_long = self.long.load(Ordering::Acquire) < self.threads;
        let order = (0..shapes).map(|offset| Shape::ALL[(waiting.next + offset) % shapes]);
        let ready = order.filter(|shape| {
            let count = waiting.turns.count(shape.index());
            let running = self.running[shape.index()].load(Ordering::Acquire);
            (running == 0 || count >= self.engine.pass(*shape))
                && (may_be_long || !self.is_long(waiting, *shape))
        });
        let clock = |shape: Shape| Some((waiting.turns.first(shape.index())?, shape));
        let ready = ready.filter_map(clock);
        ready
            .min_by_key(|(clock, _)| *clock)
            .map(|(_, shape)| shape)
    }

    /// The batch whose turn it is.
    fn batch(&self, waiting: &mut Waiting) -> Option<Batch> {
        let shape = self.ready(waiting)?;
        let estimate = waiting.costs[shape.index()];
        let most = self.most(shape, estimate);
        let is_long = self.is_long(waiting, shape);
        let works = waiting.turns.batch(shape.index(), most, estimate)?;
        waiting.next = shape.index() + 1;
        self.running[shape.index()].fetch_add(1, Ordering::Release);
        if is_long {
            self.long.fetch_add(1, Ordering::Release);
        }
        Some(Batch {
            shape,
            works,
            estimate,
            is_long,
        })
    }

    /// Whether a pass of a shape takes longer than others are to wait.
    fn is_long(&self, waiting: &Waiting, shape: Shape) -> bool {
        waiting.passes[shape.index()] > nanoseconds(LONGEST_BATCH)
    }

    /// How many requests a batch takes at most: full passes, for as long as a batch may take. Where
    /// a pass is one request, it is one, since another thread may compute the next one meanwhile.
    fn most(&self, shape: Shape, cost: u64) -> usize {
        let pass = self.engine.pass(shape);
        if pass == 1 {
            return 1;
        }
        if is_planted(Defect::LongBatches) {
            return usize::MAX;
        }
        let fitting = nanoseconds(LONGEST_BATCH) / cost.max(1);
        let fitting = usize::try_from(fitting).unwrap_or(MOST).min(MOST);
        (fitting / pass * pass).max(pass)
    }

    /// Waits for the requests of other clients that make some: for as long as a pass takes, since
    /// those that come later wait for the next one. It costs no CPU time, and where one client is
    /// active, no time either. Requests that are not deferrable wait only where others come often
    /// enough. Once there are requests of another shape, nobody is waited for.
    fn gather(&self, clients: &[Arc<Client>], waiting: &mut Waiting, shape: Shape) {
        let now = Instant::now();
        let time = shape.pass_time();
        let all_can_wait = |waiting: &Waiting| {
            waiting
                .turns
                .of_shape(shape.index())
                .all(|work| work.is_deferrable)
        };
        let is_likely = waiting.arrivals[shape.index()].are_likely_within(time);
        if !is_likely && !all_can_wait(waiting) {
            return;
        }
        let active = clients
            .iter()
            .filter(|client| client.is_active(now, ACTIVE));
        let expected = active.count().min(self.engine.pass(shape));
        let end = now + time;
        let count = |waiting: &Waiting| waiting.turns.count(shape.index());
        while count(waiting) == waiting.turns.total() && count(waiting) < expected {
            let left = end.saturating_duration_since(Instant::now());
            if left < GLANCE {
                return;
            }
            // Not by the rings: each request would wake this thread.
            thread::sleep(GLANCE);
            self.take(clients, waiting, false);
        }
    }

    /// Computes a batch, and answers it. Each answer says what its request has cost.
    fn serve(&self, batch: Batch, spent: &mut Spent) -> Bill {
        let Batch {
            shape,
            works,
            estimate,
            ..
        } = batch;
        let (mut requests, mut asked, mut served) = (Vec::new(), Vec::new(), Vec::new());
        let mut differences = Vec::new();
        let mut refund = |account, took: u64| {
            let difference = i128::from(took) - i128::from(estimate);
            differences.push((account, difference as i64));
        };
        let mut now = Instant::now();
        for work in works {
            let client = work.client;
            // Nobody would see the answer.
            if client.is_gone() {
                refund(client.account, 0);
                continue;
            }
            let fits = work.duty.is_fulfilled(work.request.input());
            let before = std::mem::replace(&mut now, Instant::now());
            let checked = nanoseconds(now - before);
            if fits {
                client.count_served();
                served.push((client.account, checked));
                requests.push(work.request);
                asked.push(work.asks);
            } else {
                work.request.answer(status::FORBIDDEN, &[]);
                client.count_refused(1);
                refund(client.account, checked);
            }
        }
        let count = requests.len().max(1) as u64;
        let computes = Spent::new();
        let answers = self.engine.serve_gathered(shape, asked);
        let cost = spent.since_the_last() / count as u32;
        let cost = u32::try_from(cost.as_nanos()).unwrap_or(u32::MAX);
        for (request, answer) in requests.into_iter().zip(answers) {
            let done = |request: Request, result: &[u8]| {
                request.answer_with_note(status::DONE, result, cost);
            };
            match answer {
                Ok(Response::Rsa(result)) => done(request, result.as_bytes()),
                Ok(Response::Signature(result)) => done(request, &result),
                Err(Declined::Input(_)) => request.answer(status::UNFIT, &[]),
                _ => request.answer(status::FAILED, &[]),
            }
        }
        // To answer may cost as much as to compute: a client may have each answer wake a thread.
        let took = nanoseconds(computes.so_far());
        let cost = Cost {
            request: took / count,
            pass: took / count.div_ceil(self.engine.pass(shape) as u64),
        };
        let is_known = !served.is_empty();
        for (account, checked) in served {
            refund(account, cost.request.saturating_add(checked));
        }
        Bill {
            shape,
            differences,
            cost: is_known.then_some(cost),
        }
    }
}

/// Drops what clients have asked for that have hung up: nobody would see the answers.
fn forget(clients: &Arc<Vec<Arc<Client>>>, waiting: &mut Waiting) {
    if Arc::ptr_eq(clients, &waiting.clients) || waiting.is_last {
        return;
    }
    waiting.clients = Arc::clone(clients);
    if !is_planted(Defect::KeptRequests) {
        waiting.turns.retain(|work| !work.client.is_gone());
    }
}

/// The threads of a service.
pub struct Threads(Vec<JoinHandle<()>>);

/// The CPU time of the calling thread. What it takes between two batches, to collect and to answer,
/// counts for the later one.
struct Spent(Timespec);

impl Spent {
    fn new() -> Spent {
        Spent(clock_gettime(ClockId::ThreadCPUTime))
    }

    fn so_far(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(now - self.0).unwrap_or_default()
    }

    fn since_the_last(&mut self) -> Duration {
        let before = std::mem::replace(&mut self.0, clock_gettime(ClockId::ThreadCPUTime));
        Duration::try_from(self.0 - before).unwrap_or_default()
    }
}

/// Overwrites what computations have left on so much of this thread's stack, which would stay there
/// while the thread waits.
#[inline(never)]
pub fn wipe_stack<const BYTES: usize>() {
    let mut room = [0_u8; BYTES];
    room.zeroize();
    black_box(&room);
}

impl Arrivals {
    fn new(now: Instant) -> Arrivals {
        Arrivals {
            last: now,
            mean: LONGEST_INTERVAL,
        }
    }

    fn note(&mut self, now: Instant) {
        let interval = now
            .saturating_duration_since(self.last)
            .min(LONGEST_INTERVAL);
        self.last = now;
        self.mean = (15 * self.mean + interval) / 16;
    }

    /// Whether it pays to wait so long for another one.
    fn are_likely_within(&self, time: Duration) -> bool {
        self.mean <= WAITS * time
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{Config, Size};

    use super::*;
    use crate::clients::tests::Connected;

    #[test]
    fn others_are_waited_for_where_all_may_wait_or_they_come_often() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let rsa = Shape::Rsa {
            size: Size::Rsa2048,
            wide_exponent: false,
        };
        if service.engine.pass(rsa) == 1 {
            println!("skipped: the lanes of this machine take one key at a time");
            return;
        }
        let processes = [(); 8].map(|()| Connected::new());
        let clients = processes.each_ref().map(|own| Arc::clone(&own.client));
        let mut waiting = service.waiting.lock().expect("no panic");
        // Whether there is another request of RSA after the wait, which comes meanwhile.
        let mut waits = |interval: Duration, posted: [Operation; 2]| {
            // All are active.
            for process in &processes {
                drop(process.post(Operation::RsaPrivate));
            }
            service.take(&clients, &mut waiting, true);
            waiting.turns.retain(|_| false);
            drop([processes[0].post(posted[0]), processes[1].post(posted[1])]);
            service.take(&clients, &mut waiting, true);
            waiting.arrivals[rsa.index()].mean = interval;
            let before = waiting.turns.count(rsa.index());
            drop(processes[2].post(Operation::RsaPrivate));
            service.gather(&clients, &mut waiting, rsa);
            waiting.turns.count(rsa.index()) > before
        };
        let (often, seldom) = (rsa.pass_time(), 2 * WAITS * rsa.pass_time());
        let (urgent, deferrable) = (Operation::RsaPrivate, Operation::DeferrableRsaPrivate);
        // Where this thread does not run for a while, the time is over before it has looked.
        let mut may_wait = |interval, posted| (0..100).any(|_| waits(interval, posted));
        assert!(may_wait(often, [urgent, urgent]));
        assert!(may_wait(seldom, [deferrable, deferrable]));
        assert!(!may_wait(seldom, [urgent, deferrable]));
        assert!(!may_wait(seldom, [urgent, urgent]));
        assert!(!may_wait(often, [urgent, Operation::Ed25519Sign]));
    }

    #[test]
    fn others_are_waited_for_where_they_are_likely_to_come() {
        let (start, step) = (Instant::now(), Duration::from_micros(700));
        let mut arrivals = Arrivals::new(start);
        let likely = |arrivals: &Arrivals| arrivals.are_likely_within(step / WAITS);
        assert!(!likely(&arrivals));
        let mut now = start;
        let mut go_on = |step: Duration, arrivals: &mut Arrivals| {
            for _ in 0..100 {
                now += step;
                arrivals.note(now);
            }
        };
        go_on(step * 9 / 10, &mut arrivals);
        assert!(likely(&arrivals));
        go_on(step * 11 / 10, &mut arrivals);
        assert!(!likely(&arrivals));
        go_on(step * 9 / 10, &mut arrivals);
        // A pause of a night is soon forgotten.
        go_on(Duration::from_secs(3600), &mut arrivals);
        go_on(step * 9 / 10, &mut arrivals);
        assert!(likely(&arrivals));
    }

    /// What waits after a look at the rings of these.
    fn looked<'a>(
        service: &'a Service,
        clients: &[Arc<Client>],
    ) -> std::sync::MutexGuard<'a, Waiting> {
        let mut waiting = service.waiting.lock().expect("no panic");
        service.take(clients, &mut waiting, false);
        waiting
    }

    #[test]
    fn a_user_is_not_served_after_all_that_another_one_has_posted() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let [hostile, other] = [7, 8].map(|user| Connected::of(user, 8));
        let tickets = [(); 8].map(|()| hostile.post(Operation::RsaPrivate));
        let clients = [Arc::clone(&hostile.client), Arc::clone(&other.client)];
        let mut waiting = looked(&service, &clients);
        let ticket = other.post(Operation::RsaPrivate);
        service.take(&clients, &mut waiting, false);
        let mut order = Vec::new();
        while let Some(batch) = service.batch(&mut waiting) {
            order.extend(batch.works.into_iter().map(|work| work.client.account));
        }
        let place = order.iter().position(|own| *own == other.client.account);
        assert!(place.is_some_and(|place| place <= 1), "{order:?}");
        drop((tickets, ticket));
    }

    fn of_rsa(size: Size) -> Shape {
        Shape::Rsa {
            size,
            wide_exponent: false,
        }
    }

    #[test]
    fn a_pass_is_long_that_takes_longer_than_others_may_wait() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let mut waiting = service.waiting.lock().expect("no panic");
        for shape in Shape::ALL {
            let fits = nanoseconds(LONGEST_BATCH);
            for (cost, is_long) in [(fits, false), (fits + 1, true), (u64::MAX, true)] {
                waiting.passes[shape.index()] = cost;
                assert_eq!(
                    service.is_long(&waiting, shape),
                    is_long,
                    "{shape:?} {cost}"
                );
            }
        }
    }

    #[test]
    fn a_second_batch_of_a_shape_starts_once_a_pass_is_full() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let shape = Shape::Ed25519Sign;
        let pass = service.engine.pass(shape);
        let process = Connected::of(7, 64);
        let clients = [Arc::clone(&process.client)];
        let mut tickets = Vec::new();
        let mut waiting = looked(&service, &clients);
        waiting.costs.fill(1);
        let mut batch = |count: usize| {
            tickets.extend((0..count).map(|_| process.post(Operation::Ed25519Sign)));
            service.take(&clients, &mut waiting, false);
            service.batch(&mut waiting).map(|batch| batch.works.len())
        };
        assert_eq!(batch(1), Some(1));
        if pass > 1 {
            assert_eq!(batch(pass - 1), None);
        }
        assert_eq!(batch(1), Some(pass));
        // Once none runs, one request is enough again.
        for running in &service.running {
            running.store(0, Ordering::Release);
        }
        assert_eq!(batch(1), Some(1));
    }

    #[test]
    fn shapes_of_one_account_take_turns_and_so_do_its_clients() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let clients = [(); 2].map(|()| Connected::of(7, 1024));
        let mut tickets = Vec::new();
        let mut post = |process: &Connected, operation, count| {
            tickets.extend((0..count).map(|_| process.post(operation)));
        };
        let [one, other] = &clients;
        let both = [one, other].map(|own| Arc::clone(&own.client));
        post(one, Operation::RsaPrivate, 1);
        post(one, Operation::Ed25519Sign, 1);
        let mut waiting = looked(&service, &both);
        let mut shapes = Vec::new();
        for _ in 0..4 {
            waiting.costs.fill(0);
            let batch = service.batch(&mut waiting).expect("both wait");
            service.running[batch.shape.index()].store(0, Ordering::Release);
            service.long.store(0, Ordering::Release);
            shapes.push(batch.shape.is_rsa());
            post(one, Operation::RsaPrivate, 1);
            post(one, Operation::Ed25519Sign, 1);
            service.take(&both, &mut waiting, false);
        }
        assert!(shapes == [true, false, true, false] || shapes == [false, true, false, true]);
        // As much as is taken of an account in several rounds.
        post(one, Operation::Ed25519Sign, 400);
        post(other, Operation::Ed25519Sign, 400);
        for _ in 0..2 {
            service.take(&both, &mut waiting, false);
        }
        let taken = both.each_ref().map(|own| own.ring.in_flight());
        assert!(taken.iter().all(|count| *count > 20), "{taken:?}");
    }

    #[test]
    fn nobody_is_waited_for_who_makes_no_requests() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let rsa = of_rsa(Size::Rsa2048);
        if service.engine.pass(rsa) == 1 {
            println!("skipped: the lanes of this machine take one key at a time");
            return;
        }
        let one = Connected::new();
        let other = Connected::idle_for(8, Duration::from_secs(2));
        let clients = [&one, &other].map(|own| Arc::clone(&own.client));
        let mut tickets = vec![one.post(Operation::DeferrableRsaPrivate)];
        let mut waiting = looked(&service, &clients);
        tickets.push(other.post(Operation::DeferrableRsaPrivate));
        service.gather(&clients, &mut waiting, rsa);
        assert_eq!(waiting.turns.total(), 1, "the other one was waited for");
    }

    #[test]
    fn what_is_refused_at_once_is_counted_and_answered() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let process = Connected::new();
        // A key of RSA makes no signatures on a curve.
        let mut tickets = [(); 3].map(|()| process.post(Operation::EcdsaSign));
        let waiting = looked(&service, &[Arc::clone(&process.client)]);
        assert_eq!(
            (waiting.turns.total(), process.client.counts()),
            (0, (0, 3))
        );
        for ticket in &mut tickets {
            let answer = ticket.poll().expect("not lost").expect("an answer");
            assert_eq!(answer.status, status::UNFIT);
        }
    }

    #[test]
    fn an_answer_and_a_bill_say_what_a_request_has_taken() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let process = Connected::new();
        let mut tickets = [(); 7].map(|()| process.post(Operation::RsaPrivate));
        // No number modulo the key's.
        let mut unfit = process.post_input(Operation::RsaPrivate, 1, &[0xff; 256]);
        let mut waiting = looked(&service, &[Arc::clone(&process.client)]);
        waiting.costs.fill(1);
        let (whole, mut count) = (Spent::new(), 0);
        let mut bills = Vec::new();
        while let Some(batch) = service.batch(&mut waiting) {
            count = count.max(batch.works.len() as u64);
            bills.push(service.serve(batch, &mut Spent::new()));
            service.running[bills[0].shape.index()].store(0, Ordering::Release);
        }
        let whole = nanoseconds(whole.so_far());
        // A signature takes longer than that wherever it is computed.
        let least = 1000;
        let pass = service.engine.pass(of_rsa(Size::Rsa2048)) as u64;
        assert!(count > pass, "two passes");
        let costs: Vec<(u64, u64)> = bills
            .iter()
            .filter_map(|bill| bill.cost.map(|cost| (cost.request, cost.pass)))
            .collect();
        let fits = |&(request, in_pass): &(u64, u64)| {
            count * request <= whole && count.div_ceil(pass) * in_pass <= whole
        };
        assert!(costs.iter().all(fits), "{costs:?} of {whole}");
        assert!(costs.iter().any(|cost| cost.0 > least), "{costs:?}");
        for ticket in &mut tickets {
            let answer = ticket.poll().expect("not lost").expect("an answer");
            assert_eq!(answer.status, status::DONE);
            let cost = u64::from(answer.note);
            assert!(least < cost && count * cost <= whole, "{cost} of {whole}");
        }
        let answer = unfit.poll().expect("not lost").expect("an answer");
        assert_eq!(answer.status, status::UNFIT);
    }

    #[test]
    fn what_nobody_waits_for_any_more_costs_nothing_and_a_curve_signs() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let [gone, other] = [7, 8].map(|user| Connected::of(user, 8));
        for (process, is_gone) in [(&gone, true), (&other, false)] {
            let mut ticket = process.post(Operation::Ed25519Sign);
            let mut waiting = looked(&service, &[Arc::clone(&process.client)]);
            let batch = service.batch(&mut waiting).expect("it waits");
            service.running[batch.shape.index()].store(0, Ordering::Release);
            if is_gone {
                process.client.leave(Closing::Unsaid);
            }
            let bill = service.serve(batch, &mut Spent::new());
            if is_gone {
                let refund = -(nanoseconds(SOME_TIME) as i64);
                assert_eq!(bill.differences, [(process.client.account, refund)]);
                assert!(bill.cost.is_none());
            } else {
                let answer = ticket.poll().expect("not lost").expect("an answer");
                assert_eq!((answer.status, answer.output.len()), (status::DONE, 64));
            }
        }
    }

    #[test]
    fn nothing_stays_on_a_stack_that_is_wiped() {
        use std::os::unix::fs::FileExt as _;
        const BYTES: usize = 4096;
        #[inline(never)]
        fn leave() -> u64 {
            let room = black_box([0xa5_u8; BYTES]);
            let place = room.as_ptr().addr() as u64;
            black_box(&room);
            place
        }
        let memory = std::fs::File::open("/proc/self/mem").expect("/proc");
        let traces = |place| {
            // Not on the stack, which it would overwrite.
            let mut seen = vec![0; BYTES];
            memory
                .read_exact_at(&mut seen, place)
                .expect("its own stack");
            seen.iter().filter(|byte| **byte == 0xa5).count()
        };
        let place = leave();
        assert!(
            traces(place) > BYTES / 2,
            "it is found where nobody wipes it"
        );
        let place = leave();
        wipe_stack::<USED_STACK>();
        assert!(traces(place) < 64);
    }

    #[test]
    fn a_batch_is_as_long_as_others_may_wait_and_holds_full_passes() {
        let service = Service::new(crate::engine(Config::default()), 1);
        for shape in Shape::ALL {
            let pass = service.engine.pass(shape);
            let most = |cost| service.most(shape, cost);
            if pass == 1 {
                assert_eq!(most(1000), 1);
                continue;
            }
            assert_eq!([most(10_000_000), most(u64::MAX)], [pass; 2]);
            assert_eq!(most(100_000), (10 / pass * pass).max(pass));
            assert_eq!([most(0), most(1)], [(MOST / pass * pass).max(pass); 2]);
        }
    }

    /// Whatever an account has posted, nobody waits behind more than one pass of it.
    #[test]
    fn while_long_batches_take_all_places_shorter_ones_are_served() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let [hostile, other] = [7, 8].map(|user| Connected::of(user, 32));
        let clients = [&hostile, &other].map(|own| Arc::clone(&own.client));
        let long: Vec<_> = (0..32)
            .map(|_| hostile.post(Operation::RsaPrivate))
            .collect();
        let mut waiting = looked(&service, &clients);
        let cost = 2 * nanoseconds(LONGEST_BATCH);
        let batch = |waiting: &mut Waiting| {
            let costs = waiting.passes.iter_mut().zip(Shape::ALL);
            costs.for_each(|(own, shape)| *own = if shape.is_rsa() { cost } else { 1000 });
            let batch = service.batch(waiting)?;
            Some((batch.shape.is_rsa(), batch.is_long))
        };
        assert_eq!(batch(&mut waiting), Some((true, true)));
        assert_eq!(batch(&mut waiting), None, "a second thread would serve it");
        let short = other.post(Operation::Ed25519Sign);
        service.take(&clients, &mut waiting, false);
        assert_eq!(batch(&mut waiting), Some((false, false)));
        // As the thread has it that has served the first one.
        service.long.store(0, Ordering::Release);
        assert_eq!(batch(&mut waiting), Some((true, true)));
        drop((long, short));
    }

    #[test]
    fn one_thread_more_serves_while_a_long_batch_runs() {
        let service = Arc::new(Service::new(crate::engine(Config::default()), 1));
        service.begin();
        let (begun, begins) = std::sync::mpsc::channel();
        let other = Arc::clone(&service);
        let thread = thread::spawn(move || {
            for place in 0..2 {
                match place {
                    0 => other.begin(),
                    _ => other.pause(),
                }
                begun.send(place).expect("the test");
            }
        });
        let soon = Duration::from_millis(50);
        let in_time = Duration::from_secs(20);
        assert!(begins.recv_timeout(soon).is_err());
        service.long.store(1, Ordering::Release);
        service.call();
        assert_eq!(begins.recv_timeout(in_time), Ok(0));
        assert_eq!(
            begins.recv_timeout(in_time),
            Ok(1),
            "a long batch still runs"
        );
        assert_eq!(*service.busy.lock().expect("no panic"), 2);
        // Once none does, the first that pauses waits for the other one.
        service.long.store(0, Ordering::Release);
        let first = Arc::clone(&service);
        let (paused, pauses) = std::sync::mpsc::channel();
        let waiting = thread::spawn(move || {
            first.pause();
            paused.send(()).expect("the test");
        });
        assert!(pauses.recv_timeout(soon).is_err());
        service.ends.store(true, Ordering::Release);
        drop(service.busy.lock());
        service.place.notify_all();
        assert_eq!(pauses.recv_timeout(in_time), Ok(()));
        thread.join().expect("no panic");
        waiting.join().expect("no panic");
    }

    #[test]
    fn what_there_is_no_room_for_stays_in_the_ring() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let process = Connected::of(7, 1024);
        let tickets: Vec<_> = (0..1000)
            .map(|_| process.post(Operation::Ed25519Sign))
            .collect();
        let clients = [Arc::clone(&process.client)];
        let mut waiting = looked(&service, &clients);
        // A word of the ring's set is taken as a whole.
        let most = waiting.turns.total();
        assert!((64..128).contains(&most), "{most}");
        for round in 2..=5 {
            service.take(&clients, &mut waiting, false);
            assert!(waiting.turns.total() < round * 128);
        }
        service.take(&clients, &mut waiting, true);
        assert_eq!(waiting.turns.total(), 1000);
        drop(tickets);
    }

    #[test]
    fn what_a_client_has_asked_for_goes_when_it_hangs_up() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let [gone, other] = [7, 8].map(|user| Connected::of(user, 8));
        let tickets = [(); 4].map(|()| gone.post(Operation::RsaPrivate));
        let ticket = other.post(Operation::RsaPrivate);
        let both = [&gone, &other].map(|own| Arc::clone(&own.client));
        let mut waiting = looked(&service, &both);
        assert_eq!(waiting.turns.total(), 5);
        gone.client.leave(Closing::Unsaid);
        let clients = Arc::new(vec![Arc::clone(&other.client)]);
        forget(&clients, &mut waiting);
        assert_eq!(waiting.turns.total(), 1);
        assert_eq!(
            (gone.client.ring.in_flight(), other.client.ring.in_flight()),
            (0, 1)
        );
        drop((tickets, ticket));
    }

    /// A request that is refused at its turn costs the account that has made it, and no other one.
    #[test]
    fn a_bill_names_what_each_account_has_taken() {
        let service = Service::new(crate::engine(Config::default()), 1);
        let [hostile, other] = [7, 8].map(|user| Connected::of(user, 8));
        let clients = [&hostile, &other].map(|own| Arc::clone(&own.client));
        let tickets = [&hostile, &other].map(|own| own.post(Operation::RsaPrivate));
        let mut waiting = looked(&service, &clients);
        let mut bills = Vec::new();
        while let Some(mut batch) = service.batch(&mut waiting) {
            for work in &mut batch.works {
                if work.client.account == hostile.client.account {
                    work.duty = Duty::Signature;
                }
            }
            bills.push(service.serve(batch, &mut Spent::new()));
        }
        let all: Vec<_> = bills.iter().flat_map(|bill| &bill.differences).collect();
        let of = |account| {
            all.iter()
                .find(|(own, _)| *own == account)
                .map(|(_, took)| *took)
        };
        let [refused, served] = clients
            .each_ref()
            .map(|own| of(own.account).expect("a bill"));
        let rsa = of_rsa(Size::Rsa2048).index();
        let (first, first_pass) = (waiting.costs[rsa], waiting.passes[rsa]);
        let estimate = first as i64;
        // A look at the padding takes less than was charged, and much less than a signature.
        assert!(
            refused < served && estimate + refused >= 0,
            "{refused} {served}"
        );
        assert_eq!(clients.each_ref().map(|own| own.counts()), [(0, 1), (1, 0)]);
        let costs = bills
            .iter()
            .filter_map(|bill| Some(bill.cost?.request))
            .collect::<Vec<_>>();
        assert_eq!(
            costs.len(),
            1,
            "what was refused says nothing of what a signature takes"
        );
        *service.bills.lock().expect("no panic") = bills;
        service.charge(&mut waiting);
        assert_eq!(waiting.costs[rsa], first / 4 * 3 + costs[0] / 4);
        // A pass of one request takes no longer than that.
        assert_eq!(waiting.passes[rsa], first_pass / 4 * 3 + costs[0] / 4);
        drop(tickets);
    }

    #[test]
    fn what_gathers_while_a_batch_runs_is_served_after_it() {
        let service = Arc::new(Service::new(crate::engine(Config::default()), 2));
        let process = Connected::new();
        let client = Arc::clone(&process.client);
        service.clients.change(|clients| clients.push(client));
        let threads = service.start().expect("threads");
        for _ in 0..20 {
            let tickets = [(); 2].map(|()| {
                let ticket = process.post(Operation::RsaPrivate);
                // About how long a pass takes: the other thread collects meanwhile.
                thread::sleep(Duration::from_micros(200));
                ticket
            });
            for mut ticket in tickets {
                let patience = Patience::new(Duration::ZERO, Duration::from_secs(20));
                let answer = ticket.wait(patience).expect("not lost");
                assert_eq!(answer.expect("in time").status, status::DONE);
            }
        }
        service.finish(threads);
    }
}
