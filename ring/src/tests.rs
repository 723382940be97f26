//! Both sides in one process, over one file that is mapped twice.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};

use super::*;
use crate::board::Bell;
use crate::layout::{HEADER_SIZE, LAST_GENERATION, NOTIFY, Slot, answered};
use crate::memory::Memory;

pub(super) const PATIENT: Patience = Patience {
    spin: Duration::from_micros(5),
    timeout: Duration::from_secs(20),
};

pub(super) fn pair(slots: usize) -> (Server, Client) {
    let (server, descriptor) = Server::create(slots).unwrap();
    (server, Client::attach(&descriptor).unwrap())
}

pub(super) fn call(input: &[u8]) -> Call<'_> {
    Call {
        operation: 7,
        key: 0x1234_5678_9ABC_DEF0,
        input,
        notify: false,
    }
}

pub(super) fn serve_reversed(server: &Server) -> usize {
    server.take(|request| {
        let mut output = request.input().to_vec();
        output.reverse();
        request.answer(status::DONE, &output);
    })
}

/// The memory behind the slots only holds signatures, which need no locked memory.
#[test]
#[cfg(not(any(loom, miri)))]
fn what_is_locked_is_as_much_with_long_answers() {
    let [short, long] = Answers::ALL.map(|answers| {
        let (_server, descriptor) = Server::create_for(64, answers).unwrap();
        let inode = fs::File::from(descriptor).metadata().unwrap().ino();
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_own, mut size, mut locked) = (false, 0, 0);
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["Size:", kib, "kB"] => size = kib.parse::<usize>().unwrap(),
                ["VmFlags:", ref flags @ ..] if is_own && flags.contains(&"lo") => locked += size,
                [_, _, _, _, number, ..] if line.contains("lockstep-ring") => {
                    is_own = number.parse() == Ok(inode);
                }
                [_, access, ..] if access.len() == 4 && access.ends_with(['p', 's']) => {
                    is_own = false;
                }
                _ => {}
            }
        }
        locked
    });
    assert_eq!((short, long), (136, 136));
}

#[test]
fn a_request_arrives_whole_and_so_does_its_answer() {
    let (server, client) = pair(4);
    assert_eq!((server.slots(), client.slots()), (4, 4));
    for length in [0, 1, 7, 8, 9, 255, 256, INPUT] {
        let input: Vec<u8> = (0..length).map(|at| at as u8 ^ 0x5A).collect();
        let mut ticket = client.submit(&call(&input)).unwrap();
        assert!(ticket.poll().unwrap().is_none());
        let taken = server.take(|request| {
            assert_eq!((request.operation(), request.input()), (7, &input[..]));
            assert_eq!(request.key(), 0x1234_5678_9ABC_DEF0);
            request.answer(3, &input);
        });
        assert_eq!(taken, 1);
        let answer = ticket.poll().unwrap().unwrap();
        assert_eq!(answer.status, 3);
        assert_eq!(answer.output[..], input[..]);
        assert_eq!(ticket.poll().unwrap_err(), Lost::Taken);
    }
    assert_eq!(server.in_flight(), 0);
    let long = vec![0; INPUT + 1];
    assert_eq!(client.submit(&call(&long)).unwrap_err(), Refused::TooLong);
}

/// The slots beside it have such answers, too.
#[test]
fn a_long_answer_arrives_whole_and_leaves_nothing() {
    let (server, descriptor) = Server::create_for(4, Answers::Long).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    assert_eq!(client.slots(), 4);
    let file = std::fs::File::from(descriptor.try_clone().unwrap());
    let all = || {
        let mut all = vec![0; file.metadata().unwrap().len() as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut all, 0).unwrap();
        all
    };
    assert_eq!(all().len(), ring_bytes(4, Answers::Long));
    for length in [0, 1, OUTPUT - 1, OUTPUT, OUTPUT + 1, 4627, LONG_OUTPUT] {
        let mut tickets = [1, 2, 3, 4].map(|byte| client.submit(&call(&[byte])).unwrap());
        // An answer has more copies of each byte than the rest of a ring can have.
        let output = |byte: u8| vec![0xa0 | byte; length];
        let taken = server.take(|request| {
            let made = output(request.input()[0]);
            request.answer(status::DONE, &made);
        });
        assert_eq!(taken, 4);
        for (ticket, byte) in tickets.iter_mut().zip(1..) {
            let answer = ticket.poll().unwrap().unwrap();
            assert_eq!(answer.output[..], output(byte)[..], "{length}");
        }
        let left = all().into_iter().filter(|byte| matches!(byte, 0xa1..=0xa4));
        assert!(left.count() < 4, "{length}");
    }
    let mut ticket = client.submit(&call(b"")).unwrap();
    server.take(|request| request.answer(status::DONE, &[1; LONG_OUTPUT + 1]));
    let answer = ticket.poll().unwrap().unwrap();
    assert_eq!((answer.status, answer.output.len()), (status::TOO_LONG, 0));
    // Nor does an answer that was never taken leave anything, once its slot is used again.
    let many = || all().into_iter().filter(|byte| *byte == 0xa5).count();
    (0..4).for_each(|_| drop(client.submit(&call(b"")).unwrap()));
    server.take(|request| request.answer(status::DONE, &[0xa5; LONG_OUTPUT]));
    assert!(many() >= 4 * LONG_OUTPUT);
    let _tickets = [(); 4].map(|()| client.submit(&call(b"")).unwrap());
    assert!(many() < 4, "{}", many());
}

#[test]
fn threads_wait_for_a_daemon_that_sleeps() {
    let (server, client) = pair(8);
    let daemon = {
        let server = server.clone();
        thread::spawn(move || {
            let mut served = 0;
            while served < 4000 {
                server.sleep(PATIENT);
                served += serve_reversed(&server);
            }
        })
    };
    let threads: Vec<_> = (0..4_u8)
        .map(|number| {
            let client = client.clone();
            thread::spawn(move || {
                for round in 0..1000_u16 {
                    let input = [number, round as u8, (round >> 8) as u8];
                    let mut ticket = client.submit(&call(&input)).unwrap();
                    let answer = ticket.wait(PATIENT).unwrap().expect("an answer in time");
                    assert_eq!(answer.output[..], [input[2], input[1], input[0]]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    daemon.join().unwrap();
}

/// Returns a request with this input.
pub(super) fn notifying(input: &[u8]) -> Call<'_> {
    Call {
        notify: true,
        ..call(input)
    }
}

const AT_ONCE: Patience = Patience {
    spin: Duration::ZERO,
    timeout: Duration::ZERO,
};

#[test]
fn a_full_ring_refuses_and_a_dropped_ticket_gives_its_slot_back_after_the_answer() {
    let (server, client) = pair(2);
    let first = client.submit(&call(b"first")).unwrap();
    let mut second = client.submit(&call(b"second")).unwrap();
    assert_eq!(client.submit(&call(b"")).unwrap_err(), Refused::Full);
    let slot = first.slot();
    drop(first);
    assert_eq!(client.submit(&call(b"")).unwrap_err(), Refused::Full);
    assert_eq!(serve_reversed(&server), 2);
    let third = client.submit(&call(b"third")).unwrap();
    assert_eq!(third.slot(), slot);
    assert_eq!(second.poll().unwrap().unwrap().output[..], *b"dnoces");
    assert_eq!(serve_reversed(&server), 1);
}

#[test]
fn a_request_without_an_answer_is_answered() {
    let (server, client) = pair(1);
    let mut ticket = client.submit(&call(b"")).unwrap();
    server.take(drop);
    assert_eq!(ticket.poll().unwrap().unwrap().status, status::DROPPED);
    let mut ticket = client.submit(&call(b"")).unwrap();
    server.take(|request| request.answer(status::DONE, &[1; OUTPUT + 1]));
    let answer = ticket.poll().unwrap().unwrap();
    assert_eq!((answer.status, answer.output.len()), (status::TOO_LONG, 0));
    assert_eq!(server.in_flight(), 0);
}

#[test]
fn nothing_of_a_request_and_its_answer_stays_in_the_ring() {
    let (server, descriptor) = Server::create(1).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let file = std::fs::File::from(descriptor.try_clone().unwrap());
    let holds = |part: &[u8]| {
        let mut all = vec![0; file.metadata().unwrap().len() as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut all, 0).unwrap();
        all.windows(part.len()).any(|window| window == part)
    };
    let mut ticket = client.submit(&call(b"an input of some length")).unwrap();
    assert!(holds(b"an input"));
    server.take(|request| {
        let shown = format!("{request:?}");
        assert!(
            shown.contains("operation: 7") && !shown.contains("97"),
            "{shown}"
        );
        request.answer(status::DONE, b"an output of some length");
    });
    assert!(!holds(b"input") && !holds(b"length of an input") && holds(b"an output"));
    let answer = ticket.poll().unwrap().unwrap();
    assert_eq!(answer.output[..], *b"an output of some length");
    assert!(!holds(b"output") && !holds(b"length"));
    let shown = format!("{answer:?}");
    assert!(
        shown.contains("length: 24") && !shown.contains("97"),
        "{shown}"
    );
    // Nor does an answer that was never taken leave anything, once its slot is used again.
    drop(client.submit(&call(b"")).unwrap());
    server.take(|request| request.answer(status::DONE, b"another output"));
    assert!(holds(b"another"));
    let _ticket = client.submit(&call(b"")).unwrap();
    assert!(!holds(b"another"));
}

#[test]
fn a_wait_ends_with_its_time() {
    let (server, client) = pair(1);
    let mut ticket = client.submit(&call(b"ab")).unwrap();
    let short = Patience::new(Duration::from_secs(1), Duration::from_millis(2));
    assert!(ticket.wait(short).unwrap().is_none());
    assert!(ticket.wait(AT_ONCE).unwrap().is_none());
    serve_reversed(&server);
    assert_eq!(ticket.wait(AT_ONCE).unwrap().unwrap().output[..], *b"ba");
    server.sleep(short);
    server.wake();
    server.sleep(PATIENT);
}

#[test]
fn a_thread_that_has_slept_in_vain_can_spin() {
    let (server, client) = pair(1);
    let mut ticket = client.submit(&call(b"ab")).unwrap();
    let short = Patience::new(Duration::ZERO, Duration::from_millis(1));
    assert!(ticket.wait(short).unwrap().is_none());
    let daemon = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        serve_reversed(&server);
    });
    let spinning = Patience {
        spin: Duration::from_secs(60),
        timeout: Duration::ZERO,
    };
    assert_eq!(ticket.wait(spinning).unwrap().unwrap().output[..], *b"ba");
    daemon.join().unwrap();
}

#[test]
fn asynchronous_requests_are_told_of() {
    let (server, client) = pair(64);
    let mut tickets: Vec<Sent> = (0..40_u8)
        .map(|number| client.submit(&notifying(&[number])).unwrap())
        .collect();
    let silent = client.submit(&call(b"")).unwrap();
    let daemon = thread::spawn(move || assert_eq!(serve_reversed(&server), 41));
    let mut told = 0;
    while told < tickets.len() {
        let hint = |slot| {
            assert_ne!(slot, silent.slot());
            let ticket = tickets.iter_mut().find(|it| it.slot() == slot).unwrap();
            assert!(ticket.poll().unwrap().is_some());
            told += 1;
        };
        client.answered(PATIENT, hint).unwrap();
    }
    daemon.join().unwrap();
    client.wake();
    client
        .answered(PATIENT, |_| panic!("no more answers"))
        .unwrap();
}

#[test]
fn the_end_of_a_ring_wakes_all_who_wait() {
    for by_daemon in [true, false] {
        let (server, client) = pair(4);
        let mut ticket = client.submit(&notifying(b"")).unwrap();
        let mut other = client.submit(&call(b"")).unwrap();
        let collector = {
            let client = client.clone();
            thread::spawn(move || while client.answered(PATIENT, |_| {}).is_ok() {})
        };
        let waiting = thread::spawn(move || {
            let start = Instant::now();
            let lost = other.wait(PATIENT).unwrap_err();
            assert!(start.elapsed() < PATIENT.timeout, "nobody has woken it");
            lost
        });
        thread::sleep(Duration::from_millis(5));
        assert!(!client.is_gone());
        match by_daemon {
            true => server.close(),
            false => client.poison(),
        }
        collector.join().unwrap();
        assert_eq!(waiting.join().unwrap(), Lost::Gone);
        assert_eq!(ticket.poll().unwrap_err(), Lost::Gone);
        assert_eq!(client.submit(&call(b"")).unwrap_err(), Refused::Gone);
        assert!(client.is_gone());
    }
}

#[test]
fn an_answer_from_before_the_end_of_the_ring_is_taken() {
    let (server, client) = pair(2);
    let [mut first, mut second] = [b"ab", b"cd"].map(|input| client.submit(&call(input)).unwrap());
    let mut kept = Vec::new();
    server.take(|request| kept.push(request));
    kept.remove(0).answer(status::DONE, b"answer");
    server.close();
    assert_eq!(first.poll().unwrap().unwrap().output[..], *b"answer");
    assert_eq!(second.poll().unwrap_err(), Lost::Gone);
}

/// Each request in a slot has a new generation. An answer to another generation is a lie.
#[test]
fn an_answer_to_an_earlier_request_is_not_taken() {
    let (server, descriptor) = Server::create(1).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let memory = Memory::open(descriptor.as_fd()).unwrap();
    let [slot] = memory.slots() else {
        panic!("a ring of one slot");
    };
    for generation in 1..=3 {
        let mut ticket = client.submit(&call(b"")).unwrap();
        assert_eq!(slot.generation.load(Relaxed), generation);
        assert_eq!(serve_reversed(&server), 1);
        assert!(ticket.poll().unwrap().is_some());
    }
    let mut ticket = client.submit(&call(b"")).unwrap();
    slot.state.store(answered(3), Relaxed);
    assert_eq!(ticket.poll().unwrap_err(), Lost::Broken);
    assert!(client.is_gone());
}

#[test]
fn errors_say_what_has_happened() {
    let refused = [
        (Refused::Full, "all slots"),
        (Refused::TooLong, "too long"),
        (Refused::Gone, "closed"),
        (Refused::Forked, "parent"),
    ];
    for (refused, word) in refused {
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let lost = [
        (Lost::Gone, "closed"),
        (Lost::Broken, "protocol"),
        (Lost::Forked, "parent"),
        (Lost::Taken, "taken before"),
    ];
    for (lost, word) in lost {
        assert!(lost.to_string().contains(word), "{lost}");
    }
}

#[test]
fn a_socket_tells_who_is_at_its_other_end_and_whether_it_is_there() {
    let (here, there) = UnixStream::pair().unwrap();
    let known = credentials(&here).unwrap();
    let number = std::fs::read_link("/proc/self").unwrap();
    assert_eq!(known.process.to_string(), number.to_str().unwrap());
    let own = std::fs::metadata("/proc/self").unwrap();
    assert_eq!((known.user, known.group), (own.uid(), own.gid()));
    assert!(!has_hung_up(&here));
    drop(there);
    assert!(has_hung_up(&here));
}

/// Returns a sleeper of this kernel, and one for kernels without `futex_waitv`.
fn sleepers() -> [Sleeper; 2] {
    [Sleeper::new(), Sleeper::with_watchers()]
}

#[test]
fn a_client_that_rings_without_requests_is_not_listened_to() {
    type Noise = fn(&Bell);
    // By the regular call, and by the system call alone.
    let noises: [Noise; 2] = [Bell::ring, |bell| sync::wake(bell.word())];
    for noise in noises {
        for sleeper in sleepers() {
            listens_no_longer(&sleeper, noise);
        }
    }
}

fn listens_no_longer(sleeper: &Sleeper, noise: fn(&Bell)) {
    let (noisy, descriptor) = Server::create(1).unwrap();
    let memory = Memory::open(descriptor.as_fd()).unwrap();
    let bell = &memory.header().requests.bell;
    let client = Client::attach(&descriptor).unwrap();
    let (quiet, _quiet_client) = pair(1);
    let rings = [noisy.clone(), quiet.clone()];
    let short = Patience::new(Duration::ZERO, Duration::from_millis(20));
    let over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                noise(bell);
            }
        });
        // It would ring for ever; after some rings the thread ignores it and sleeps.
        while noisy.is_heard() {
            sleeper.sleep(&rings, short).unwrap();
            assert_eq!(serve_reversed(&noisy), 0);
        }
        sleeper.sleep(&rings, short).unwrap();
        assert_eq!(noisy.idle_rings(), 64, "no more rings are heard");
        assert_eq!(quiet.idle_rings(), 0, "it has not rung");
        over.store(true, Relaxed);
    });
    // Its requests are still served, and the thread listens to it again.
    let mut ticket = client.submit(&call(b"xy")).unwrap();
    while serve_reversed(&noisy) == 0 {
        sleeper.sleep(&rings, PATIENT).unwrap();
    }
    assert_eq!(ticket.poll().unwrap().unwrap().output[..], *b"yx");
    assert_eq!(noisy.idle_rings(), 0);
    // Without any ring, a call still ends the sleep.
    let start = Instant::now();
    sleeper.wake();
    sleeper.sleep(&[], PATIENT).unwrap();
    assert!(start.elapsed() < PATIENT.timeout, "nobody has woken it");
}

/// Rings come and go while one thread sleeps on all of them. Each wait must be much shorter than a
/// sleep without a wake-up.
#[test]
fn one_thread_sleeps_on_rings_that_come_and_go() {
    for sleeper in sleepers() {
        let mut pairs: Vec<_> = (0..4).map(|_| pair(4)).collect();
        for round in 0..12_usize {
            let rings: Vec<Server> = pairs.iter().map(|(server, _)| server.clone()).collect();
            let over = std::sync::atomic::AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        sleeper.sleep(&rings, PATIENT).unwrap();
                        for ring in &rings {
                            serve_reversed(ring);
                        }
                    }
                });
                for number in 0..200_usize {
                    let (_, client) = &pairs[number * number % pairs.len()];
                    let mut ticket = client.submit(&call(b"ab")).unwrap();
                    let answer = ticket.wait(PATIENT).unwrap().expect("an answer in time");
                    assert_eq!(answer.output[..], *b"ba");
                }
                over.store(true, Relaxed);
                sleeper.wake();
            });
            match round % 3 {
                0 => drop(pairs.remove(round % pairs.len())),
                1 => pairs.insert(round % pairs.len(), pair(2)),
                _ => pairs.push(pair(2)),
            }
        }
    }
}

/// More rings than one system call can wait for.
#[test]
fn one_thread_sleeps_on_a_thousand_rings() {
    for sleeper in sleepers() {
        let pairs: Vec<_> = (0..1000).map(|_| pair(1)).collect();
        let rings: Vec<Server> = pairs.iter().map(|(server, _)| server.clone()).collect();
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    sleeper.sleep(&rings, PATIENT).unwrap();
                    for ring in &rings {
                        serve_reversed(ring);
                    }
                }
            });
            for number in (0..1000).step_by(13) {
                let mut ticket = pairs[number].1.submit(&call(b"ab")).unwrap();
                let answer = ticket.wait(PATIENT).unwrap().expect("an answer in time");
                assert_eq!(answer.output[..], *b"ba");
            }
            over.store(true, Relaxed);
            sleeper.wake();
        });
    }
}

#[test]
fn a_daemon_says_why_it_closes_a_ring_and_that_it_works() {
    let (server, client) = pair(1);
    assert_eq!((client.beat(), client.closing()), (None, None));
    assert!(!server.is_awaited());
    let _ticket = client.submit(&call(b"")).unwrap();
    assert!(server.is_awaited());
    let mut taken = Vec::new();
    server.take(|request| taken.push(request));
    assert!(server.is_awaited());
    taken.clear();
    assert!(!server.is_awaited());
    server.beat();
    let first = client.beat();
    server.beat();
    assert!(first.is_some() && client.beat() != first);
    // Only the first reason counts.
    for (first, second) in [
        (Closing::Idle, Closing::Followed),
        (Closing::Followed, Closing::Unsaid),
        (Closing::Unsaid, Closing::Idle),
    ] {
        let (server, client) = pair(1);
        server.close_as(first);
        server.close_as(second);
        client.poison();
        let (closing, since) = client.closing().unwrap();
        assert_eq!((closing, client.is_gone()), (first, true));
        assert!(first != Closing::Followed || since < Duration::from_secs(60));
    }
}

#[test]
fn watchers_end_with_their_rings_and_with_the_sleeper() {
    let rings: [Server; 3] = std::array::from_fn(|_| pair(1).0);
    let sleeper = Sleeper::with_watchers();
    // A watcher holds its ring, and so does this test.
    let watched = || rings.each_ref().map(|ring| ring.holders() - 1);
    let wait_for = |expected: [usize; 3], each: &dyn Fn()| {
        let end = Instant::now() + PATIENT.timeout;
        while watched() != expected && Instant::now() < end {
            each();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(watched(), expected);
    };
    // A watcher that ends wakes the thread, whose sleep may end before it has looked at its rings.
    let sleep = |rings: &[Server]| sleeper.sleep(rings, AT_ONCE).unwrap();
    wait_for([1, 1, 1], &|| sleep(&rings));
    wait_for([0, 1, 0], &|| sleep(&rings[1..2]));
    wait_for([0, 0, 1], &|| sleep(&rings[2..]));
    wait_for([1, 0, 1], &|| sleep(&[rings[2].clone(), rings[0].clone()]));
    drop(sleeper);
    wait_for([0, 0, 0], &|| {});
    assert!(rings[0].is_same(&rings[0].clone()) && !rings[0].is_same(&rings[1]));
}

/// A client of a later version may set flags with a meaning there.
#[test]
fn a_request_with_an_impossible_word_is_answered_as_such() {
    let (server, descriptor) = Server::create(1).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let memory = Memory::open(descriptor.as_fd()).unwrap();
    let [slot] = memory.slots() else {
        panic!("a ring of one slot");
    };
    let change_flags = |flags: u32| {
        let operation = u32::from(call(b"").operation);
        slot.operation.store(operation | flags << 16, Relaxed);
    };
    let mut malformed = 0;
    let mut refuses = |what: &str, change: &dyn Fn()| {
        let mut ticket = client.submit(&call(b"input")).unwrap();
        change();
        malformed += 1;
        assert_eq!(server.take(|_| panic!("{what}: it was taken")), 0, "{what}");
        let faults = server.faults().malformed;
        assert_eq!((faults, server.in_flight()), (malformed, 0), "{what}");
        ticket.poll()
    };
    for flags in [NOTIFY << 1, 1 << 15, 0xffff] {
        let answer = refuses(&format!("flags {flags:x}"), &|| change_flags(flags));
        let status = answer.unwrap().map(|answer| answer.status);
        assert_eq!(status, Some(status::MALFORMED), "{flags:x}");
    }
    let length = INPUT as u32 + 1;
    let answer = refuses("a length", &|| slot.input_length.store(length, Relaxed));
    let status = answer.unwrap().map(|answer| answer.status);
    assert_eq!(status, Some(status::MALFORMED));
    // The only known flag.
    let mut ticket = client.submit(&call(b"input")).unwrap();
    change_flags(NOTIFY);
    assert_eq!(serve_reversed(&server), 1);
    assert_eq!(ticket.poll().unwrap().unwrap().status, status::DONE);
    // Nobody takes the answer to this request.
    let generation = LAST_GENERATION + 1;
    let _ = refuses("a generation", &|| {
        slot.generation.store(generation, Relaxed)
    });
}

/// A file that resembles a ring, and the expected error.
#[test]
fn what_is_no_ring_is_refused() {
    let file = |size: usize, seals: SealFlags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&file, size as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let size = |slots| ring_bytes(slots, Answers::Short);
    let long = |slots| ring_bytes(slots, Answers::Long);
    let header = |change: fn(&layout::Header)| {
        let (server, descriptor) = Server::create(4).unwrap();
        drop(server);
        change(Memory::open(descriptor.as_fd()).unwrap().header());
        descriptor
    };
    let no_size = "its size is not that of a ring";
    let rows = [
        (
            OwnedFd::from(std::fs::File::open("/dev/null").unwrap()),
            "cannot be sealed",
        ),
        (file(size(4), SealFlags::empty()), "its size is not sealed"),
        (file(size(4), SealFlags::SHRINK), "its size is not sealed"),
        (file(0, sealed), no_size),
        (file(HEADER_SIZE - 1, sealed), no_size),
        (file(HEADER_SIZE, sealed), no_size),
        (file(size(4) - 1, sealed), no_size),
        (file(size(4) + 1, sealed), no_size),
        (file(size(3), sealed), no_size),
        (file(size(2 * MOST_SLOTS), sealed), no_size),
        (file(long(4) - 1, sealed), no_size),
        (file(long(4) + 1, sealed), no_size),
        (file(long(3), sealed), no_size),
        (file(long(2 * MOST_SLOTS), sealed), no_size),
        (file(long(4), sealed), "its header is not that of a ring"),
        (
            file(size(4), sealed | SealFlags::WRITE),
            "Operation not permitted",
        ),
        (file(size(4), sealed), "its header is not that of a ring"),
        (
            header(|it| it.version.store(3, Relaxed)),
            "the ring has version 3",
        ),
        (header(|it| it.slots.store(8, Relaxed)), "contradicts"),
        (header(|it| it.slot_size.store(64, Relaxed)), "contradicts"),
    ];
    for (descriptor, expected) in rows {
        let error = Client::attach(&descriptor).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for slots in [0, 3, 2 * MOST_SLOTS] {
        assert!(Server::create(slots).is_err(), "{slots} slots");
    }
    for answers in Answers::ALL {
        let (_, descriptor) = Server::create_for(MOST_SLOTS, answers).unwrap();
        assert!(Client::attach(descriptor).is_ok());
    }
}

/// Returns the kernel's lines about each mapping of this file, mapping by mapping.
fn mappings_of(file: &OwnedFd) -> Vec<String> {
    let inode = rustix::fs::fstat(file).unwrap().st_ino.to_string();
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut mappings: Vec<String> = Vec::new();
    let mut is_its = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words[0].ends_with(':') {
            is_its = words[4] == inode;
            mappings.extend(is_its.then(String::new));
        }
        if is_its {
            mappings.last_mut().unwrap().push_str(line);
        }
    }
    mappings
}

#[test]
fn a_ring_is_in_no_dump_and_no_child_and_goes_with_its_owners() {
    let (server, descriptor) = Server::create(MOST_SLOTS).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let mappings = mappings_of(&descriptor);
    assert_eq!(mappings.len(), 2, "{mappings:?}");
    for mapping in mappings {
        assert!(
            mapping.contains(" dc ") && mapping.contains(" dd "),
            "{mapping}"
        );
    }
    drop(client);
    assert_eq!(mappings_of(&descriptor).len(), 1);
    drop(server);
    assert_eq!(mappings_of(&descriptor), [""; 0]);
}

#[test]
fn a_ring_cannot_be_changed_in_size() {
    let (_server, descriptor) = Server::create(1).unwrap();
    for size in [0, 4096, 1 << 20] {
        let refused = rustix::fs::ftruncate(&descriptor, size).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::PERM);
    }
    let unseal = rustix::fs::fcntl_add_seals(&descriptor, SealFlags::WRITE);
    assert_eq!(unseal.unwrap_err(), rustix::io::Errno::PERM);
}

#[test]
fn a_descriptor_goes_over_a_socket() {
    let (here, there) = UnixStream::pair().unwrap();
    let (server, descriptor) = Server::create(1).unwrap();
    send(&here, b"ring", descriptor.as_fd()).unwrap();
    let mut bytes = [0; 16];
    let Received {
        length,
        descriptor: received,
        process,
    } = receive(&there, &mut bytes).unwrap();
    assert_eq!((&bytes[..length], process), (&b"ring"[..], None));
    let received = received.expect("a descriptor");
    assert!(
        rustix::io::fcntl_getfd(&received)
            .unwrap()
            .contains(rustix::io::FdFlags::CLOEXEC)
    );
    // Nothing is left to read.
    assert_eq!(unread(&here), Some(0));
    send(&there, b"x", descriptor.as_fd()).unwrap();
    assert_ne!(unread(&there), Some(0));
    receive(&here, &mut bytes).unwrap();
    let client = Client::attach(received).unwrap();
    let mut ticket = client.submit(&call(b"ab")).unwrap();
    assert_eq!(serve_reversed(&server), 1);
    assert!(ticket.poll().unwrap().is_some());
    // Bytes without a descriptor, and the end.
    std::io::Write::write_all(&mut &here, b"x").unwrap();
    let alone = receive(&there, &mut bytes).unwrap();
    assert!(alone.length == 1 && alone.descriptor.is_none());
    // Several descriptors, of which one is kept, and the sender.
    tells_senders(&there).unwrap();
    let several = [descriptor.as_fd(); 3];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&several));
    let flags = rustix::net::SendFlags::empty();
    let parts = [std::io::IoSlice::new(b"three")];
    rustix::net::sendmsg(&here, &parts, &mut control, flags).unwrap();
    let ring = rustix::fs::fstat(&descriptor).unwrap().st_ino;
    // Other tests open and close files at the same time.
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let files = all.filter_map(|entry| std::fs::metadata(entry.path()).ok());
        files.filter(|file| file.ino() == ring).count()
    };
    let before = open();
    let received = receive(&there, &mut bytes).unwrap();
    assert_eq!(bytes[..received.length], *b"three");
    assert_eq!(received.process, Some(credentials(&there).unwrap().process));
    assert!(received.descriptor.is_some());
    assert_eq!(open(), before + 1);
    drop(here);
    let end = receive(&there, &mut bytes).unwrap();
    assert!(end.length == 0 && end.descriptor.is_none());
    assert!(
        send(&there, b"ring", descriptor.as_fd()).is_err(),
        "it has hung up"
    );
}

#[test]
fn a_request_that_breaks_the_format_is_counted_and_not_taken() {
    let (server, descriptor) = Server::create(8).unwrap();
    let memory = Memory::open(descriptor.as_fd()).unwrap();
    let client = Client::attach(&descriptor).unwrap();
    let changes: [fn(&Slot); 5] = [
        |slot| slot.operation.store(7 | 2 << 16, Relaxed),
        |slot| slot.operation.store(7 | 0x8001 << 16, Relaxed),
        |slot| slot.generation.store(LAST_GENERATION + 1, Relaxed),
        |slot| slot.input_length.store(INPUT as u32 + 1, Relaxed),
        |slot| slot.input_length.store(u32::MAX, Relaxed),
    ];
    for (change, count) in changes.iter().zip(1..) {
        let ticket = client.submit(&call(b"x")).unwrap();
        memory.slots().iter().for_each(change);
        assert_eq!(server.take(|_| panic!("it is not good")), 0);
        assert_eq!(server.faults().malformed, count);
        drop(ticket);
    }
    // Values at their limits are valid.
    let _ticket = client.submit(&call(&[7; INPUT])).unwrap();
    assert_eq!(server.take(|request| request.answer(status::DONE, b"")), 1);
}

/// A client that posts again at once does not keep other requests of the ring from being taken.
#[test]
fn requests_are_taken_in_portions_and_in_turn() {
    let (server, client) = pair(MOST_SLOTS);
    let submit = |input: &[u8]| client.submit(&call(input)).unwrap();
    let mut tickets: Vec<_> = (0..MOST_SLOTS).map(|_| submit(&[1])).collect();
    assert_eq!(server.take_some(0, drop), 0);
    let mut left = MOST_SLOTS;
    while left > 0 {
        let taken = server.take_some(64, |request| {
            assert_eq!(request.input(), [1], "{left}");
            request.answer(status::DONE, b"");
        });
        assert_eq!(taken, 64);
        left -= taken;
        tickets.retain_mut(|ticket| ticket.poll().unwrap().is_none());
        // In the same slots, since there are no others.
        while tickets.len() < MOST_SLOTS {
            tickets.push(submit(&[2]));
        }
    }
    assert_eq!(server.take_some(65, drop), 128);
}
