//! The threads that serve requests: those of all clients share batches.
//!
//! One thread at a time *collects*: it takes what all clients have posted, and sleeps while nothing
//! is. With a batch it goes off to compute, and another thread collects. Requests gather while a
//! batch of their shape runs, as in the engine's own queue: a second batch starts only once a pass
//! is full. Users take turns in a batch, whatever they have posted. The thread that has computed
//! answers in the rings, without a hand-over in between.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockstep_engine::{Declined, Engine, Request as EngineRequest, Response, STACK_BYTES, Shape};
use lockstep_remote::Operation;
use lockstep_remote::protocol::status;
use lockstep_ring::{Closing, Patience, Request, Server, Sleeper};
use rustix::time::{ClockId, Timespec, clock_gettime};
use zeroize::Zeroize as _;

use crate::access::Account;
use crate::clients::{Client, Clients};

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

/// An admitted request.
struct Work {
    client: Arc<Client>,
    request: Request,
    asks: EngineRequest,
    is_deferrable: bool,
}

/// What waits, by shape.
struct Waiting {
    lines: Vec<Line<Work>>,
    /// The shape that is looked at first.
    next: usize,
    /// The service ends, and takes no more than what is here.
    is_last: bool,
}

/// What waits of one shape.
struct Line<T> {
    /// What each account has that has something; whose turn it is comes first.
    accounts: VecDeque<(Account, VecDeque<T>)>,
    count: usize,
    arrivals: Arrivals,
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
    /// How many batches of each shape run.
    running: Vec<AtomicUsize>,
    ends: AtomicBool,
}

impl Service {
    /// A service without clients.
    pub fn new(engine: Engine) -> Service {
        let shapes = Shape::ALL.len();
        Service {
            engine,
            sleeper: Sleeper::new(),
            clients: Clients::default(),
            waiting: Mutex::new(Waiting {
                lines: (0..shapes).map(|_| Line::new()).collect(),
                next: 0,
                is_last: false,
            }),
            running: (0..shapes).map(|_| AtomicUsize::new(0)).collect(),
            ends: AtomicBool::new(false),
        }
    }

    /// Starts `count` threads.
    pub fn start(self: &Arc<Service>, count: usize) -> io::Result<Threads> {
        let mut threads = Vec::new();
        for number in 0..count {
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
        while let Some((shape, batch)) = self.next_batch() {
            self.serve(shape, batch, &mut spent);
            // The kernels of RSA keep their secrets in memory for keys.
            if !shape.is_rsa() {
                wipe_stack::<USED_STACK>();
            }
            self.running[shape.index()].fetch_sub(1, Ordering::Release);
            // Requests of this shape may have gathered meanwhile.
            self.sleeper.wake();
        }
    }

    /// Collects until there is a batch; None at the end.
    fn next_batch(&self) -> Option<(Shape, Vec<Work>)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let clients = match waiting.is_last {
                true => Arc::default(),
                false => self.clients.now(),
            };
            let ends = self.ends.load(Ordering::Acquire);
            self.take(&clients, &mut waiting);
            waiting.is_last = ends;
            if let Some(shape) = self.ready(&mut waiting) {
                if !ends {
                    self.gather(&clients, &mut waiting, shape);
                }
                self.running[shape.index()].fetch_add(1, Ordering::Release);
                return Some((shape, waiting.lines[shape.index()].batch(self.most(shape))));
            }
            if ends && waiting.lines.iter().all(|line| line.count == 0) {
                // The next thread must not sleep.
                self.sleeper.wake();
                return None;
            }
            let rings: Vec<Server> = clients.iter().map(|client| client.ring.clone()).collect();
            let patience = Patience::new(Duration::ZERO, SLEEP);
            if self.sleeper.sleep(&rings, patience).is_err() {
                // For a moment without memory.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Takes all that is posted. What is refused is answered at once.
    fn take(&self, clients: &[Arc<Client>], waiting: &mut Waiting) {
        let now = Instant::now();
        for client in clients {
            if client.ring.is_awaited() {
                client.ring.beat();
            }
            client.ring.take(|request| match client.admit(&request) {
                Ok(asks) => {
                    let work = Work {
                        client: Arc::clone(client),
                        is_deferrable: Operation::is_deferrable(request.operation()),
                        request,
                        asks,
                    };
                    let line = &mut waiting.lines[work.asks.shape().index()];
                    line.arrivals.note(now);
                    line.push(client.account, work);
                }
                Err(status) => request.answer(status, &[]),
            });
        }
    }

    /// A shape that a batch can start of.
    fn ready(&self, waiting: &mut Waiting) -> Option<Shape> {
        let shapes = Shape::ALL.len();
        let order = (0..shapes).map(|offset| (waiting.next + offset) % shapes);
        let found = order.map(|index| Shape::ALL[index]).find(|shape| {
            let count = waiting.lines[shape.index()].count;
            let running = self.running[shape.index()].load(Ordering::Acquire);
            count > 0 && (running == 0 || count >= self.engine.pass(*shape))
        })?;
        waiting.next = (found.index() + 1) % shapes;
        Some(found)
    }

    /// How many requests a batch takes at most: one where a pass has no more, since then another
    /// thread may compute the next one meanwhile.
    fn most(&self, shape: Shape) -> usize {
        match self.engine.pass(shape) {
            1 => 1,
            _ => MOST,
        }
    }

    /// Waits for the requests of other clients that make some: for as long as a pass takes, since
    /// those that come later wait for the next one. It costs no CPU time, and where one client is
    /// active, no time either. Requests that are not deferrable wait only where others come often
    /// enough. Once there are requests of another shape, nobody is waited for.
    fn gather(&self, clients: &[Arc<Client>], waiting: &mut Waiting, shape: Shape) {
        let now = Instant::now();
        let time = pass_time(shape);
        let line = &waiting.lines[shape.index()];
        let mut works = line.accounts.iter().flat_map(|(_, works)| works);
        if !line.arrivals.are_likely_within(time) && !works.all(|work| work.is_deferrable) {
            return;
        }
        let active = clients
            .iter()
            .filter(|client| client.is_active(now, ACTIVE));
        let expected = active.count().min(self.engine.pass(shape));
        let end = now + time;
        let all = |waiting: &Waiting| waiting.lines.iter().map(|line| line.count).sum::<usize>();
        while waiting.lines[shape.index()].count == all(waiting)
            && waiting.lines[shape.index()].count < expected
        {
            let left = end.saturating_duration_since(Instant::now());
            if left < GLANCE {
                return;
            }
            // Not by the rings: each request would wake this thread.
            thread::sleep(GLANCE);
            self.take(clients, waiting);
        }
    }

    /// Computes a batch, and answers it. Each answer says what its request has cost.
    fn serve(&self, shape: Shape, batch: Vec<Work>, spent: &mut Spent) {
        let (mut requests, mut asked) = (Vec::new(), Vec::new());
        for work in batch {
            // Nobody would see the answer.
            if !work.client.is_gone() {
                requests.push(work.request);
                asked.push(work.asks);
            }
        }
        let answers = self.engine.serve_gathered(shape, asked);
        let cost = spent.since_the_last() / requests.len().max(1) as u32;
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

    fn since_the_last(&mut self) -> Duration {
        let before = std::mem::replace(&mut self.0, clock_gettime(ClockId::ThreadCPUTime));
        Duration::try_from(self.0 - before).unwrap_or_default()
    }
}

/// About how long a pass of a shape takes: of those that are worth a wait.
fn pass_time(shape: Shape) -> Duration {
    let microseconds = match shape {
        Shape::Rsa { size, .. } => match size.bits() {
            4096 => 1300,
            3072 => 600,
            2048 => 400,
            _ => 0,
        },
        _ => 0,
    };
    Duration::from_micros(microseconds)
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

impl<T> Line<T> {
    fn new() -> Line<T> {
        Line {
            accounts: VecDeque::new(),
            count: 0,
            arrivals: Arrivals::new(Instant::now()),
        }
    }

    fn push(&mut self, account: Account, work: T) {
        self.count += 1;
        match self.accounts.iter_mut().find(|(own, _)| *own == account) {
            Some((_, line)) => line.push_back(work),
            None => self.accounts.push_back((account, VecDeque::from([work]))),
        }
    }

    /// What the account whose turn it is has had here for longest.
    fn pop(&mut self) -> Option<T> {
        let (account, mut line) = self.accounts.pop_front()?;
        let work = line.pop_front()?;
        if !line.is_empty() {
            self.accounts.push_back((account, line));
        }
        self.count -= 1;
        Some(work)
    }

    /// As much as there is, `most` at most.
    fn batch(&mut self, most: usize) -> Vec<T> {
        std::iter::from_fn(|| self.pop()).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{Config, Size};

    use super::*;
    use crate::clients::tests::Connected;

    #[test]
    fn others_are_waited_for_where_all_may_wait_or_they_come_often() {
        let service = Service::new(crate::engine(Config::default()));
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
            service.take(&clients, &mut waiting);
            for line in &mut waiting.lines {
                line.batch(MOST);
            }
            drop([processes[0].post(posted[0]), processes[1].post(posted[1])]);
            service.take(&clients, &mut waiting);
            waiting.lines[rsa.index()].arrivals.mean = interval;
            let before = waiting.lines[rsa.index()].count;
            drop(processes[2].post(Operation::RsaPrivate));
            service.gather(&clients, &mut waiting, rsa);
            waiting.lines[rsa.index()].count > before
        };
        let (often, seldom) = (pass_time(rsa), 2 * WAITS * pass_time(rsa));
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

    #[test]
    fn shapes_take_turns() {
        let service = Service::new(crate::engine(Config::default()));
        let mut waiting = service.waiting.lock().expect("no panic");
        let [first, second] = [2, 4].map(|index| Shape::ALL[index]);
        // As if there were always more of both.
        for shape in [first, second] {
            waiting.lines[shape.index()].count = 1000;
        }
        let turns = [(); 4].map(|()| service.ready(&mut waiting));
        assert_eq!(turns, [first, second, first, second].map(Some));
    }

    #[test]
    fn what_gathers_while_a_batch_runs_is_served_after_it() {
        let service = Arc::new(Service::new(crate::engine(Config::default())));
        let process = Connected::new();
        let client = Arc::clone(&process.client);
        service.clients.change(|clients| clients.push(client));
        let threads = service.start(2).expect("threads");
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

    #[test]
    fn users_take_turns_whatever_one_of_them_has_posted() {
        let mut line = Line::new();
        let [first, second, third] = [7, 8, 9].map(Account::User);
        for number in 0..100 {
            line.push(first, number);
        }
        line.push(second, 1000);
        assert_eq!(line.batch(3), [0, 1000, 1]);
        assert_eq!(line.batch(2), [2, 3]);
        line.push(second, 1001);
        line.push(third, 2000);
        assert_eq!(line.batch(4), [4, 1001, 2000, 5]);
        assert_eq!(line.batch(1000), (6..100).collect::<Vec<_>>());
        assert_eq!((line.count, line.pop()), (0, None));
    }
}
