//! Many processes: the workers of a large server, or of one that is reloaded again and again while
//! old workers still run. In this test a process is a connection that is opened again when it is
//! gone, as the module does.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_remote::{Connection, Failure, Operation};
use lockstep_testkit::Random;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::hostile::{TestClient, call};
use crate::site::{Daemon, padded, wait_for};

/// A process that signs at intervals.
struct Worker<'a> {
    daemon: &'a Daemon,
    connection: Option<Connection>,
    /// Number of its connections.
    connected: usize,
}

impl Worker<'_> {
    fn new(daemon: &Daemon) -> Worker<'_> {
        Worker {
            daemon,
            connection: None,
            connected: 0,
        }
    }

    /// Signs. A request that was never made is repeated; a request that was made must not be lost.
    fn sign(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let connection = match self.connection.take().filter(|own| !own.is_gone()) {
                Some(connection) => connection,
                None => {
                    self.connected += 1;
                    Connection::open(&self.daemon.socket())?
                }
            };
            let connection = self.connection.insert(connection);
            let p256 = &connection.keys()[1];
            match connection.ask(Operation::EcdsaSign, p256, &[7; 32], 64) {
                Err(Failure::Gone) if Instant::now() < end => {}
                signed => return signed.map(drop),
            }
        }
    }
}

/// Raises this process's limit of descriptors.
fn allow_descriptors(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    assert!(limit.maximum.is_none_or(|most| most >= count), "{limit:?}");
    limit.current = limit.maximum.map(|most| most.min(count.max(4096)));
    setrlimit(Resource::Nofile, limit).expect("its own limit");
}

#[test]
fn a_thousand_processes_sign_in_turn_and_at_once() {
    allow_descriptors(2500);
    let daemon = Daemon::start("");
    let mut workers: Vec<_> = (0..1000).map(|_| Worker::new(&daemon)).collect();
    for _ in 0..2 {
        for worker in &mut workers {
            worker.sign().expect("a signature");
        }
    }
    for round in 0..2 {
        thread::scope(|scope| {
            let start = |worker| scope.spawn(|| Worker::sign(worker));
            let threads: Vec<_> = workers.iter_mut().map(start).collect();
            for thread in threads {
                let signed = thread.join().expect("no panic");
                assert_eq!(signed, Ok(()), "round {round}: {}", daemon.log());
            }
        });
    }
    // Idle processes cost the daemon nothing.
    let is_gone =
        |worker: &&Worker<'_>| worker.connection.as_ref().is_some_and(Connection::is_gone);
    wait_for("places that are given back", || {
        workers.iter().filter(is_gone).count() >= 900
    });
    workers[0].sign().expect("a signature");
}

/// Each reload leaves all workers behind, since their connections last.
#[test]
fn servers_are_reloaded_while_old_workers_live_on() {
    allow_descriptors(2500);
    let daemon = Daemon::start("queue = 16\n");
    let mut old = Vec::new();
    for reload in 0..50 {
        let mut workers: Vec<_> = (0..40).map(|_| Worker::new(&daemon)).collect();
        for worker in &mut workers {
            let signed = worker.sign();
            assert_eq!(signed, Ok(()), "reload {reload}: {}", daemon.log());
        }
        old.extend(workers);
    }
    // One of the first workers signs again, for a connection that is still open.
    old[3].sign().expect("a signature");
}

/// With two places, processes lose them at the very moment of their requests.
#[test]
fn a_request_at_the_moment_in_which_its_place_is_lost_is_answered() {
    // About as long as a process may be idle.
    let connected = take_turns(18_000..24_000);
    // Otherwise the test has tried nothing.
    assert!(connected > 60, "{connected}");
}

#[test]
fn processes_that_are_never_idle_leave_their_places_to_others() {
    let connected = take_turns(0..1);
    assert!(connected > 10, "{connected}");
}

/// Has six processes sign with pauses in this range of microseconds, while there are two places.
/// Returns the number of connections.
fn take_turns(pauses: Range<u64>) -> usize {
    let daemon = Daemon::start("max_clients = 4\n");
    let over = AtomicBool::new(false);
    let connected = AtomicUsize::new(0);
    thread::scope(|scope| {
        let run = |seed| {
            let (daemon, over, connected) = (&daemon, &over, &connected);
            let (shortest, more) = (pauses.start, pauses.end - pauses.start);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut worker = Worker::new(daemon);
                while !over.load(Relaxed) {
                    worker.sign()?;
                    thread::sleep(Duration::from_micros(shortest + random.word() % more));
                }
                connected.fetch_add(worker.connected, Relaxed);
                Ok::<_, Failure>(())
            })
        };
        let threads: Vec<_> = (1..7).map(run).collect();
        thread::sleep(Duration::from_secs(3));
        over.store(true, Relaxed);
        for thread in threads {
            let signed = thread.join().expect("no panic");
            assert_eq!(signed, Ok(()), "{}", daemon.log());
        }
    });
    connected.into_inner()
}

/// A client waits in the queue, and gets a refusal in the end.
#[test]
fn who_finds_no_place_among_busy_processes_is_told() {
    let daemon = Daemon::start("max_clients = 2\nqueue = 1024\n");
    daemon.holdings_with(0);
    let process = TestClient::new(&daemon).expect("a connection");
    let over = AtomicBool::new(false);
    let input = padded();
    thread::scope(|scope| {
        // It always has requests.
        scope.spawn(|| {
            let mut tickets = Vec::new();
            while !over.load(Relaxed) {
                tickets.extend(process.client.submit(&call(1, 2, &input)));
                if tickets.len() > 1000 {
                    tickets.retain_mut(|ticket| matches!(ticket.poll(), Ok(None)));
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        wait_for("requests", || {
            process.client.beat().is_some_and(|beat| beat > 2)
        });
        let is_refused = || {
            let refused = Connection::open(&daemon.socket()).err();
            refused.is_some_and(|failure| failure.to_string().contains("max_clients"))
        };
        // This process may stand still for so long that the other one seems idle.
        let is_told = catch_unwind(AssertUnwindSafe(|| wait_for("a refusal", is_refused)));
        over.store(true, Relaxed);
        assert!(is_told.is_ok(), "{}", daemon.log());
    });
    wait_for("a place", || Connection::open(&daemon.socket()).is_ok());
}
