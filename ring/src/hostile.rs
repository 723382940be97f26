//! A hostile client against the daemon's side, and a hostile daemon against the client's side. Both
//! are programs of random steps, reproducible by their seed: the hostile side changes any word of
//! the ring between two steps of the other side. The programs must find the planted defects.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_testkit::Random;

use super::*;
use crate::board::{ASLEEP, Bell};
use crate::fault::{Defect, plant};
use crate::layout::{LAST_GENERATION, Output, Slot};
use crate::memory::Memory;
use crate::watcher::LONG;

/// A wait that ends at once.
const AT_ONCE: Patience = Patience {
    spin: Duration::ZERO,
    timeout: Duration::ZERO,
};
const STEPS: usize = 400;

/// The other process's view of a ring, in which it changes any word.
struct Scribbler {
    memory: Memory,
}

impl Scribbler {
    /// Changes one word that the other process reads, sometimes to a plausible value.
    fn scribble(&self, random: &mut Random) {
        let header = self.memory.header();
        let slots = self.memory.slots();
        let slot = random.word() as usize % slots.len();
        match random.word() % 12 {
            0 => header.closed.store(odd(random), Relaxed),
            1 => scribble_board(&header.requests, random),
            2 => scribble_board(&header.answers, random),
            3 => header.slots.store(odd(random), Relaxed),
            _ => scribble_slot(&slots[slot], &self.memory.output(slot), random),
        }
    }
}

fn scribble_board(board: &board::Board, random: &mut Random) {
    let word = &board.words()[random.word() as usize % board::WORDS];
    match random.word() % 4 {
        0 => board.bell.word().store(odd(random), Relaxed),
        1 => word.store(random.word(), Relaxed),
        2 => word.store(1 << (random.word() % 64), Relaxed),
        _ => board.words()[0].store(u64::MAX, Relaxed),
    }
}

fn scribble_slot(slot: &Slot, output: &Output<'_>, random: &mut Random) {
    let words: [&AtomicU32; 6] = [
        &slot.state,
        &slot.generation,
        &slot.operation,
        &slot.input_length,
        &slot.status,
        &slot.output_length,
    ];
    match random.word() % 10 {
        0 => slot.key.store(random.word(), Relaxed),
        1 => slot.input[random.word() as usize % slot.input.len()].store(random.word(), Relaxed),
        2 => {
            let words = output.0.iter().copied().flatten();
            let at = random.word() as usize % (output.bytes() / 8);
            words
                .skip(at)
                .take(1)
                .for_each(|word| word.store(random.word(), Relaxed));
        }
        3 => {
            slot.state.fetch_xor(1 << (random.word() % 32), Relaxed);
        }
        which => words[which as usize % words.len()].store(odd(random), Relaxed),
    }
}

/// Returns a number at an edge of a range, or any number.
fn odd(random: &mut Random) -> u32 {
    const EDGES: &[u32] = &[
        0,
        1,
        2,
        3,
        8,
        9,
        11,
        INPUT as u32 - 1,
        INPUT as u32,
        INPUT as u32 + 1,
        2 * INPUT as u32,
        LONG_OUTPUT as u32 - 1,
        LONG_OUTPUT as u32,
        LONG_OUTPUT as u32 + 1,
        0xFFFF,
        0x1_0000,
        0x2_0000,
        LAST_GENERATION,
        LAST_GENERATION + 1,
        u32::MAX,
    ];
    match random.word() % 4 {
        0 => random.word() as u32,
        1 => random.word() as u32 % 64,
        _ => EDGES[random.word() as usize % EDGES.len()],
    }
}

/// Returns the daemon's answer.
fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

fn either(random: &mut Random) -> Answers {
    Answers::ALL[random.word() as usize % 2]
}

/// Runs one program of a hostile client, beside an honest one whose requests must all be served.
fn hostile_client(seed: u64) {
    let mut random = Random(seed);
    let slots = 1 << (random.word() % 8);
    let answers = either(&mut random);
    let (server, descriptor) = Server::create_for(slots, answers).unwrap();
    let hostile = Scribbler {
        memory: Memory::open(descriptor_of(&descriptor)).unwrap(),
    };
    let accomplice = Client::attach(&descriptor).unwrap();
    let (honest_server, descriptor) = Server::create(4).unwrap();
    let honest = Client::attach(&descriptor).unwrap();
    let sleeper = Sleeper::new();
    let rings = [server.clone(), honest_server];
    let mut taken: Vec<Taken> = Vec::new();
    let mut tickets = Vec::new();
    for _ in 0..STEPS {
        match random.word() % 8 {
            0..4 => hostile.scribble(&mut random),
            4 => {
                let length = random.word() as usize % (INPUT + 1);
                tickets.extend(accomplice.submit(&Call {
                    operation: random.word() as u16,
                    key: random.word(),
                    input: &random.vec(length),
                    notify: random.word().is_multiple_of(2),
                }));
                if random.word().is_multiple_of(2) {
                    tickets.clear();
                }
            }
            5 => {
                sleeper.sleep(&rings, AT_ONCE).unwrap();
                server.take(|request| taken.push(request));
                // No slot is taken twice, so there are at most as many requests as slots.
                assert_eq!(server.in_flight(), taken.len(), "a request per slot");
            }
            6 => {
                while let Some(request) = taken.pop() {
                    assert!(request.input().len() <= INPUT);
                    let length = random.word() as usize % (answers.bytes() + 100);
                    match random.word() % 8 {
                        0 => drop(request),
                        1..5 => request.answer(random.word() as u16, &random.vec(length)),
                        _ => {
                            taken.push(request);
                            break;
                        }
                    }
                }
            }
            _ => {
                let input = random.bytes::<12>();
                let mut ticket = honest
                    .submit(&Call {
                        operation: 1,
                        key: 1,
                        input: &input,
                        notify: false,
                    })
                    .unwrap();
                sleeper.sleep(&rings, AT_ONCE).unwrap();
                rings[1].take(|request| {
                    let output = inverted(request.input());
                    request.answer(status::DONE, &output);
                });
                let answer = ticket.poll().unwrap().expect("an honest client's answer");
                assert_eq!(answer.output[..], inverted(&input));
            }
        }
    }
    if random.word().is_multiple_of(2) {
        server.close();
    }
    drop(taken);
    assert_eq!(server.in_flight(), 0);
    assert_eq!(rings[1].faults(), Faults::default());
}

/// Runs one program of a hostile daemon.
fn hostile_daemon(seed: u64) {
    let mut random = Random(seed);
    let slots = 1 << (random.word() % 8);
    let answers = either(&mut random);
    let (server, descriptor) = Server::create_for(slots, answers).unwrap();
    let hostile = Scribbler {
        memory: Memory::open(descriptor_of(&descriptor)).unwrap(),
    };
    let mut client = Client::attach(&descriptor).unwrap();
    let mut tickets: Vec<Sent> = Vec::new();
    for _ in 0..STEPS {
        match random.word() % 8 {
            0..3 => hostile.scribble(&mut random),
            3 => {
                server.take(|request| {
                    let output = inverted(request.input());
                    if !random.word().is_multiple_of(4) {
                        request.answer(status::DONE, &output);
                    }
                });
            }
            4 | 5 => {
                let length = random.word() as usize % (INPUT + 2);
                let submitted = client.submit(&Call {
                    operation: random.word() as u16,
                    key: random.word(),
                    input: &random.vec(length),
                    notify: random.word().is_multiple_of(2),
                });
                match submitted {
                    Ok(ticket) => {
                        assert!(ticket.slot() < slots);
                        let shared = tickets.iter().any(|other| other.slot() == ticket.slot());
                        assert!(!shared, "two tickets have one slot");
                        tickets.push(ticket);
                    }
                    Err(Refused::Gone) if random.word().is_multiple_of(4) => {
                        // A new ring, in the same memory.
                        tickets.clear();
                        hostile.memory.header().closed.store(0, Relaxed);
                        hostile.memory.header().slots.store(slots as u32, Relaxed);
                        client = Client::attach(&descriptor).unwrap();
                    }
                    Err(refused) => assert_ne!(refused, Refused::Forked),
                }
            }
            6 => {
                if tickets.is_empty() {
                    continue;
                }
                let index = random.word() as usize % tickets.len();
                let outcome = match random.word() % 3 {
                    0 => tickets[index].poll(),
                    1 => tickets[index].wait(AT_ONCE),
                    _ => {
                        tickets.swap_remove(index);
                        continue;
                    }
                };
                match outcome {
                    Ok(None) => {}
                    Ok(Some(answer)) => {
                        assert!(answer.output.len() <= answers.bytes());
                        tickets.swap_remove(index);
                    }
                    Err(Lost::Broken) => assert!(client.is_gone()),
                    Err(lost) => assert_eq!(lost, Lost::Gone),
                }
            }
            _ => {
                let told = client.answered(AT_ONCE, |slot| assert!(slot < slots));
                assert!(matches!(told, Ok(()) | Err(Refused::Gone)), "{told:?}");
            }
        }
    }
}

fn descriptor_of(descriptor: &std::os::fd::OwnedFd) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(descriptor)
}

#[test]
fn a_hostile_client_harms_itself_only() {
    (0..200).for_each(hostile_client);
}

#[test]
fn a_hostile_daemon_gives_wrong_answers_only() {
    (0..200).for_each(hostile_daemon);
}

/// Runs as long as `cargo xtask nightly ring` says.
#[test]
#[ignore = "long"]
fn hostile_processes_for_long() {
    let number = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let end = Instant::now() + Duration::from_secs(number("NIGHTLY_SECONDS").unwrap_or(10));
    let start: u64 = number("NIGHTLY_NEXT").unwrap_or(0).max(200);
    let mut seed = start;
    let mut findings = 0;
    while Instant::now() < end {
        for program in [hostile_client, hostile_daemon] {
            if std::panic::catch_unwind(|| program(seed)).is_err() {
                println!("a finding with seed {seed}");
                findings += 1;
            }
        }
        seed += 1;
    }
    let cases = 2 * (seed - start);
    println!("nightly: cases {cases} findings {findings} next {seed} note programs of steps");
}

/// The hostile client changes the ring while the daemon reads it. An honest client beside it gets
/// all answers.
#[test]
fn a_hostile_client_may_write_while_the_daemon_reads() {
    serve_beside_a_scribbler(Sleeper::new());
    serve_beside_a_scribbler(Sleeper::with_watchers());
}

fn serve_beside_a_scribbler(sleeper: Sleeper) {
    let (server, descriptor) = Server::create(64).unwrap();
    let hostile = Scribbler {
        memory: Memory::open(descriptor_of(&descriptor)).unwrap(),
    };
    let (honest_server, descriptor) = Server::create(4).unwrap();
    let honest = Client::attach(&descriptor).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let scribbles = Arc::new(AtomicU64::new(0));
    let scribbler = {
        let (over, scribbles) = (over.clone(), scribbles.clone());
        thread::spawn(move || {
            let mut random = Random(1);
            while !over.load(Relaxed) {
                hostile.scribble(&mut random);
                scribbles.fetch_add(1, Relaxed);
            }
        })
    };
    let daemon = {
        let over = over.clone();
        thread::spawn(move || {
            let rings = [server, honest_server];
            let patience = Patience::new(Duration::ZERO, Duration::from_millis(100));
            while !over.load(Relaxed) {
                sleeper.sleep(&rings, patience).unwrap();
                for ring in &rings {
                    ring.take(|request| {
                        let output = inverted(request.input());
                        request.answer(status::DONE, &output);
                    });
                }
            }
            rings[0].faults()
        })
    };
    // A wait of this length would mean that nobody had woken the thread.
    let long = Duration::from_secs(30);
    for round in 0..2000_u32 {
        let input = round.to_le_bytes();
        let mut ticket = honest
            .submit(&Call {
                operation: 1,
                key: 1,
                input: &input,
                notify: false,
            })
            .unwrap();
        let start = Instant::now();
        let patience = Patience::new(Duration::ZERO, long);
        let answer = ticket.wait(patience).unwrap().expect("an answer in time");
        assert_eq!(answer.output[..], inverted(&input));
        assert!(start.elapsed() < long, "a wait ended by its patience");
    }
    over.store(true, Relaxed);
    scribbler.join().unwrap();
    let start = Instant::now();
    let faults = daemon.join().unwrap();
    assert!(
        start.elapsed() < LONG,
        "the daemon's end waited for a sleep"
    );
    assert!(
        scribbles.load(Relaxed) > 0 && faults.malformed > 0,
        "{faults:?}"
    );
}

/// A process writes to a bell on which a thread of the other one sleeps. The thread's own process
/// still wakes it.
#[test]
fn no_bell_keeps_a_process_from_waking_its_own_thread() {
    let wakes = |sleep: Box<dyn FnOnce() + Send>, memory: Memory, wake: &dyn Fn()| {
        let thread = thread::spawn(sleep);
        let header = memory.header();
        let bells = [&header.requests.bell, &header.answers.bell];
        let asleep = |bell: &&&Bell| bell.word().load(Relaxed) == ASLEEP;
        let bell = loop {
            if let Some(bell) = bells.iter().find(asleep) {
                break bell;
            }
            thread::yield_now();
        };
        // The thread needs some time from the announcement to the system call.
        thread::sleep(Duration::from_millis(50));
        bell.word().store(0, Relaxed);
        let start = Instant::now();
        wake();
        thread.join().unwrap();
        assert!(start.elapsed() < LONG, "the sleep ended by its patience");
    };
    let patience = Patience::new(Duration::ZERO, 4 * LONG);
    let (server, descriptor) = Server::create(4).unwrap();
    let memory = || Memory::open(descriptor_of(&descriptor)).unwrap();
    let sleeper = server.clone();
    wakes(Box::new(move || sleeper.sleep(patience)), memory(), &|| {
        server.wake()
    });
    let client = Client::attach(&descriptor).unwrap();
    let sleeper = client.clone();
    let sleep = move || sleeper.answered(patience, |_| {}).unwrap();
    wakes(Box::new(sleep), memory(), &|| client.wake());
}

mod planted {
    use super::*;

    #[test]
    #[should_panic(expected = "the caller has checked it")]
    fn an_unchecked_length_of_a_request_is_found() {
        plant(Defect::UncheckedInput);
        (0..200).for_each(hostile_client);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_unchecked_slot_is_found() {
        plant(Defect::UncheckedSlot);
        (0..200).for_each(hostile_client);
    }

    #[test]
    #[should_panic(expected = "a request per slot")]
    fn a_slot_that_is_taken_twice_is_found() {
        plant(Defect::TakenTwice);
        (0..200).for_each(hostile_client);
    }

    #[test]
    #[should_panic(expected = "the caller has checked it")]
    fn an_unchecked_length_of_an_answer_is_found() {
        plant(Defect::UncheckedOutput);
        (0..200).for_each(hostile_daemon);
    }

    #[test]
    #[should_panic(expected = "two tickets have one slot")]
    fn a_slot_that_is_claimed_twice_is_found() {
        plant(Defect::ClaimedTwice);
        (0..200).for_each(hostile_daemon);
    }
}
