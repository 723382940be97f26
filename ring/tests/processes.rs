//! The ring between real processes: clients that are killed at any moment, and children that fork.
#![allow(unsafe_code, reason = "fork")]

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_ring::{
    Call, Client, Lost, Patience, Refused, Server, Sleeper, receive, send, status,
};
use lockstep_testkit::{Random, TempDir};

/// Environment variable with the socket and the task of a child process. The child is this program,
/// and runs `a_client_process` alone.
const SOCKET: &str = "RING_TEST_SOCKET";
const REQUESTS: &str = "RING_TEST_REQUESTS";

/// Line with which a child reports that it has a ring.
const ATTACHED: &str = "attached";

const SLOTS: usize = 16;
const KILLED: usize = 200;
/// Number of concurrent processes that are killed.
const BESIDE: usize = 4;
const HONEST: usize = 2;

fn patience() -> Patience {
    Patience::new(Duration::from_micros(2), Duration::from_secs(60))
}

/// The daemon's answer.
fn reversed(input: &[u8]) -> Vec<u8> {
    input.iter().rev().copied().collect()
}

/// Makes `requests` requests on each of two threads, and checks every answer.
fn ask(client: &Client, requests: usize) {
    let threads: Vec<_> = (0..2_u64)
        .map(|seed| {
            let client = client.clone();
            thread::spawn(move || {
                let mut random = Random(seed);
                for _ in 0..requests {
                    let length = random.word() as usize % 300;
                    let input = random.vec(length);
                    let call = Call {
                        operation: 1,
                        key: seed,
                        input: &input,
                        notify: false,
                    };
                    let mut ticket = client.submit(&call).expect("a free slot");
                    let answer = ticket.wait(patience()).unwrap().expect("an answer");
                    assert_eq!(answer.status, status::DONE);
                    assert_eq!(answer.output[..], reversed(&input));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
}

fn attach(path: &Path) -> (Client, UnixStream) {
    let socket = UnixStream::connect(path).unwrap();
    let mut bytes = [0; 1];
    let received = receive(&socket, &mut bytes).unwrap();
    assert_eq!((received.length, bytes), (1, [b'r']));
    let ring = received.descriptor.expect("a descriptor");
    (Client::attach(ring).unwrap(), socket)
}

/// The work of a child process. Without a parent it does nothing.
#[test]
fn a_client_process() {
    let Some(path) = env::var_os(SOCKET) else {
        return;
    };
    let requests = env::var(REQUESTS).unwrap().parse().unwrap();
    let (client, _socket) = attach(Path::new(&path));
    println!("\n{ATTACHED}");
    ask(&client, requests);
}

fn start(socket: &Path, requests: usize) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_client_process", "--nocapture"])
        .env(SOCKET, socket)
        .env(REQUESTS, requests.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A daemon with one thread that serves all rings, one that accepts clients, and one for each
/// client that waits for its end.
struct Daemon {
    rings: Mutex<HashMap<usize, Server>>,
    sleeper: Sleeper,
    clients: AtomicUsize,
    served: AtomicUsize,
    /// Requests that were in flight when their client had gone.
    left: AtomicUsize,
    over: AtomicBool,
}

impl Daemon {
    fn start(path: &Path) -> Arc<Daemon> {
        let daemon = Arc::new(Daemon {
            rings: Mutex::default(),
            sleeper: Sleeper::new(),
            clients: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let listener = UnixListener::bind(path).unwrap();
        let accepting = daemon.clone();
        thread::spawn(move || accepting.accept(&listener));
        daemon
    }

    fn accept(self: Arc<Self>, listener: &UnixListener) {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let (server, descriptor) = Server::create(SLOTS).unwrap();
            let number = self.clients.fetch_add(1, Relaxed);
            self.rings.lock().unwrap().insert(number, server);
            self.sleeper.wake();
            let _ = send(&socket, b"r", descriptor.as_fd());
            let daemon = self.clone();
            thread::spawn(move || {
                let _ = socket.read(&mut [0]);
                let gone = daemon.rings.lock().unwrap().remove(&number).unwrap();
                daemon.left.fetch_add(gone.in_flight(), Relaxed);
                daemon.sleeper.wake();
            });
        }
    }

    /// Serves until the end. Each round answers the requests of the round before, so that requests
    /// of killed clients are in flight.
    fn serve(&self) {
        let mut taken = Vec::new();
        let mut random = Random(3);
        while !self.over.load(Relaxed) {
            let rings: Vec<Server> = self.rings.lock().unwrap().values().cloned().collect();
            if taken.is_empty() {
                let patience = Patience::new(Duration::from_micros(5), Duration::from_secs(1));
                self.sleeper.sleep(&rings, patience).unwrap();
            }
            let before = std::mem::take(&mut taken);
            for ring in &rings {
                ring.take(|request| taken.push(request));
            }
            for request in before {
                let output = reversed(request.input());
                request.answer(status::DONE, &output);
                self.served.fetch_add(1, Relaxed);
            }
            if random.word().is_multiple_of(64) {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn clients_that_are_killed_take_nothing_from_others() {
    let directory = TempDir::new("ring-killed");
    let path = directory.join("socket");
    let daemon = Daemon::start(&path);
    let serving = daemon.clone();
    let server = thread::spawn(move || serving.serve());
    let over = Arc::new(AtomicBool::new(false));
    let honest: Vec<_> = (0..HONEST)
        .map(|_| {
            let (path, over) = (path.clone(), over.clone());
            thread::spawn(move || {
                let (client, _socket) = attach(&path);
                let mut rounds = 0;
                while !over.load(Relaxed) {
                    ask(&client, 20);
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let killers: Vec<_> = (0..BESIDE)
        .map(|number| {
            let path = path.clone();
            thread::spawn(move || {
                let mut random = Random(number as u64);
                for _ in 0..KILLED / BESIDE {
                    let mut child = start(&path, usize::MAX);
                    // One in eight may be killed while it attaches its ring.
                    if !random.word().is_multiple_of(8) {
                        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                        let attached = |line: io::Result<String>| line.unwrap() == ATTACHED;
                        assert!({ lines }.any(attached));
                    }
                    let micros = random.word() % 10_000;
                    thread::sleep(Duration::from_micros(micros));
                    child.kill().unwrap();
                    let ended = child.wait().unwrap();
                    assert_eq!(ended.code(), None, "it was killed, and did not end before");
                }
            })
        })
        .collect();
    killers.into_iter().for_each(|it| it.join().unwrap());
    // A later process is served as usual.
    let mut last = start(&path, 200);
    assert!(last.wait().unwrap().success());
    over.store(true, Relaxed);
    for client in honest {
        assert!(client.join().unwrap() > 0, "an honest client got nothing");
    }
    let end = Instant::now() + Duration::from_secs(20);
    while !daemon.rings.lock().unwrap().is_empty() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(daemon.rings.lock().unwrap().len(), 0, "rings that are left");
    daemon.over.store(true, Relaxed);
    daemon.sleeper.wake();
    server.join().unwrap();
    println!(
        "{} clients attached, {} requests served, {} in flight when their client was killed",
        daemon.clients.load(Relaxed),
        daemon.served.load(Relaxed),
        daemon.left.load(Relaxed)
    );
    let attached = daemon.clients.load(Relaxed);
    assert!(
        attached > KILLED / 2,
        "most were killed before they attached"
    );
}

/// Runs `check` in a forked child; returns its result.
fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses the ring, which has no lock, and the allocator, which survives a fork.
    // It ends by `_exit`.
    match unsafe { libc::fork() } {
        -1 => panic!("no child"),
        0 => {
            let code = i32::from(!check());
            // SAFETY: it ends this process.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is valid for writes.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            waited == child && status == 0
        }
    }
}

#[test]
fn a_forked_child_has_no_part_in_the_ring() {
    let (server, descriptor) = Server::create(4).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let call = Call {
        operation: 1,
        key: 0,
        input: b"input",
        notify: true,
    };
    let mut ticket = client.submit(&call).unwrap();
    let refuses = in_child(|| {
        let none = Patience::new(Duration::ZERO, Duration::ZERO);
        client.poison();
        client.wake();
        let answered = client.answered(none, |_| {});
        matches!(client.submit(&call), Err(Refused::Forked))
            && matches!(ticket.poll(), Err(Lost::Forked))
            && matches!(ticket.wait(none), Err(Lost::Forked))
            && answered == Err(Refused::Forked)
            && client.is_gone()
    });
    assert!(refuses);
    server.take(|request| request.answer(status::DONE, b"output"));
    let answer = ticket.wait(patience()).unwrap().unwrap();
    assert_eq!(answer.output[..], *b"output");
    assert_eq!(client.submit(&call).unwrap().slot(), 0, "the slot is free");
    // The child drops the inherited ring: its memory is not mapped there, and something else may
    // be.
    let ticket = client.submit(&call).unwrap();
    assert!(in_child(move || {
        drop((ticket, client));
        true
    }));
}

/// Returns the kernel's data about the mappings of this process whose lines contain a word: start,
/// length and flags.
fn mappings(word: &str) -> Vec<(usize, usize, String)> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found: Vec<(usize, usize, String)> = Vec::new();
    let mut is_one = false;
    for line in text.lines() {
        if let Some((start, end)) = line.split(' ').next().unwrap().split_once('-') {
            let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
            is_one = line.contains(word);
            found.extend(is_one.then(|| (start, end - start, String::new())));
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_one) {
            found.last_mut().unwrap().2 = flags.to_owned();
        }
    }
    found
}

const RING: &str = "lockstep-ring";

/// In a child, which has no other ring and no other thread.
#[test]
fn a_ring_is_locked_and_leaves_nothing() {
    assert!(in_child(|| {
        let (server, _descriptor) = Server::create(1).unwrap();
        let is_locked = mappings(RING)
            .iter()
            .any(|(_, _, flags)| flags.contains(" lo "));
        drop(server);
        let bytes = || -> usize {
            let all = mappings("").into_iter().map(|(_, length, _)| length);
            all.sum()
        };
        let attach = || {
            let (_server, descriptor) = Server::create(1).unwrap();
            Client::attach(&descriptor).unwrap();
        };
        attach();
        let before = bytes();
        (0..1000).for_each(|_| attach());
        // Each ring has pages of its own; the allocator may have some new ones.
        is_locked && mappings(RING).is_empty() && bytes() < before + 500 * 4096
    }));
}

/// A child has no mapping at the address of its parent's ring, so another mapping may be there.
#[test]
fn a_child_that_drops_the_ring_of_its_parent_unmaps_nothing() {
    let (server, descriptor) = Server::create(4).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let inode = File::from(descriptor).metadata().unwrap().ino();
    let places = mappings(&format!(" {inode} "));
    assert_eq!(places.len(), 2);
    assert!(in_child(|| {
        let map = |place: usize, length| {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let place = std::ptr::with_exposed_provenance_mut(place);
            // SAFETY: it replaces no other mapping.
            unsafe { libc::mmap(place, length, access, flags, -1, 0) != libc::MAP_FAILED }
        };
        let are_there = places.iter().all(|(place, length, _)| map(*place, *length));
        drop(client);
        let is_left = |(place, length, _): &(usize, usize, String)| !map(*place, *length);
        are_there && places.iter().all(is_left)
    }));
    drop(server);
}

/// Has `futex_waitv` fail for this thread and for threads that it starts.
fn deny_waits_for_several(error: i32) {
    let step = |code: u32, jump: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump,
        k,
    };
    let call = libc::SYS_futex_waitv as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the filter lives during the call, which copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            ) == 0
    };
    assert!(set, "{}", io::Error::last_os_error());
}

/// Kernels before 5.16 have no call that waits for several words, and filters of system calls in
/// containers may not know it. Any other error is returned to the caller.
#[test]
fn without_a_call_for_several_words_rings_are_watched() {
    for error in [libc::ENOSYS, libc::EPERM, libc::ENOMEM] {
        let slept = thread::spawn(move || {
            deny_waits_for_several(error);
            let (server, descriptor) = Server::create(4).unwrap();
            let client = Client::attach(&descriptor).unwrap();
            let sleeper = Sleeper::new();
            let rings = [server, Server::create(1).unwrap().0];
            let brief = Patience::new(Duration::ZERO, Duration::from_millis(5));
            sleeper.sleep(&rings, brief)?;
            let asking = thread::spawn(move || ask(&client, 1));
            while !asking.is_finished() {
                sleeper.sleep(&rings, brief)?;
                rings[0].take(|request| {
                    let output = reversed(request.input());
                    request.answer(status::DONE, &output);
                });
            }
            asking.join().unwrap();
            Ok::<(), io::Error>(())
        });
        let failed = slept
            .join()
            .unwrap()
            .err()
            .and_then(|failed| failed.raw_os_error());
        assert_eq!(failed, (error == libc::ENOMEM).then_some(error));
    }
}
