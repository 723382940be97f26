//! The ring in every interleaving that loom finds: two processes are threads over one memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p lockstep-ring --lib models`

use std::time::Duration;

use loom::model::Builder;
use loom::thread::{self, JoinHandle};

use crate::fault::{Defect, plant};
use crate::memory::{Memory, Owner};
use crate::{Call, Client, Faults, Lost, Patience, Refused, Sent, Server, Sleeper, status};

/// A wait without a timeout: loom has no time.
const PATIENCE: Patience = Patience {
    spin: Duration::ZERO,
    timeout: Duration::MAX,
};

/// Explores all interleavings of two threads with up to three preemptions, enough for every known
/// bug of such protocols. `LOOM_MAX_PREEMPTIONS` sets another number.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_to(3, model);
}

/// Explores all interleavings of three threads with up to two preemptions, since three preemptions
/// take minutes.
fn explore_three(model: impl Fn() + Sync + Send + 'static) {
    explore_to(2, model);
}

fn explore_to(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

fn pair(slots: usize) -> (Server, Client) {
    let memory = Memory::new(slots);
    (
        Server::of(memory.clone()),
        Client::of(memory, Owner::default()),
    )
}

fn submit(client: &Client, input: &[u8]) -> Result<Sent, Refused> {
    client.submit(&Call {
        operation: 1,
        key: 2,
        input,
        notify: false,
    })
}

fn answer_of(mut ticket: Sent) -> Vec<u8> {
    let answer = ticket.wait(PATIENCE).unwrap().expect("it has no timeout");
    assert_eq!(answer.status, status::DONE);
    answer.output.to_vec()
}

/// Returns the daemon's answer.
fn doubled(input: &[u8]) -> Vec<u8> {
    input.iter().map(|byte| 2 * byte).collect()
}

fn serve(server: &Server) -> usize {
    server.take(|request| {
        let output = doubled(request.input());
        request.answer(status::DONE, &output);
    })
}

/// Starts a daemon that ends after `requests` requests.
fn daemon(server: &Server, requests: usize) -> JoinHandle<()> {
    let server = server.clone();
    thread::spawn(move || {
        let mut served = 0;
        while served < requests {
            server.sleep(PATIENCE);
            served += serve(&server);
        }
        assert_eq!(server.in_flight(), 0);
        assert_eq!(server.faults(), Faults::default());
    })
}

#[test]
fn threads_of_a_client_get_their_answers() {
    explore_three(|| {
        let (server, client) = pair(2);
        let daemon = daemon(&server, 2);
        let other = {
            let client = client.clone();
            thread::spawn(move || assert_eq!(answer_of(submit(&client, &[3]).unwrap()), [6]))
        };
        assert_eq!(answer_of(submit(&client, &[5]).unwrap()), [10]);
        other.join().unwrap();
        daemon.join().unwrap();
    });
}

#[test]
fn a_slot_serves_one_request_after_another() {
    explore(|| {
        let (server, client) = pair(1);
        let daemon = daemon(&server, 3);
        for number in 1..=3 {
            assert_eq!(answer_of(submit(&client, &[number]).unwrap()), [2 * number]);
        }
        daemon.join().unwrap();
    });
}

/// Two threads of the client want the only slot.
#[test]
fn a_slot_belongs_to_one_request_at_a_time() {
    explore_three(|| {
        let (server, client) = pair(1);
        let daemon = daemon(&server, 2);
        let other = {
            let client = client.clone();
            thread::spawn(move || assert_eq!(answer_of(submit_when_free(&client, 1)), [2]))
        };
        assert_eq!(answer_of(submit_when_free(&client, 2)), [4]);
        other.join().unwrap();
        daemon.join().unwrap();
    });
}

fn submit_when_free(client: &Client, number: u8) -> Sent {
    loop {
        match submit(client, &[number]) {
            Ok(ticket) => return ticket,
            Err(refused) => assert_eq!(refused, Refused::Full),
        }
        thread::yield_now();
    }
}

/// The client uses the slot again while the answering thread still runs.
#[test]
fn another_thread_of_the_daemon_answers() {
    explore_three(|| {
        let (server, client) = pair(1);
        let other = thread::spawn(move || {
            for number in 1..=2 {
                assert_eq!(answer_of(submit(&client, &[number]).unwrap()), [2 * number]);
            }
        });
        let mut worker = None;
        let mut taken = 0;
        while taken < 2 {
            server.sleep(PATIENCE);
            taken += server.take(|request| {
                let answer = move || {
                    let output = doubled(request.input());
                    request.answer(status::DONE, &output);
                };
                match worker {
                    None => worker = Some(thread::spawn(answer)),
                    Some(_) => answer(),
                }
            });
        }
        worker.expect("a request was taken").join().unwrap();
        other.join().unwrap();
        assert_eq!(server.faults(), Faults::default());
    });
}

#[test]
fn a_slot_of_a_dropped_ticket_is_used_again_after_its_answer() {
    explore(|| {
        let (server, client) = pair(1);
        let daemon = daemon(&server, 2);
        drop(submit(&client, &[1]).unwrap());
        assert_eq!(answer_of(submit_when_free(&client, 2)), [4]);
        daemon.join().unwrap();
    });
}

#[test]
fn nobody_waits_for_a_daemon_that_closes() {
    explore(|| {
        let (server, client) = pair(1);
        let daemon = thread::spawn(move || {
            serve(&server);
            server.close();
        });
        match submit(&client, &[1]) {
            Ok(mut ticket) => match ticket.wait(PATIENCE) {
                Ok(answer) => assert_eq!(answer.expect("it has no timeout").output[..], [2]),
                Err(lost) => assert_eq!(lost, Lost::Gone),
            },
            Err(refused) => assert_eq!(refused, Refused::Gone),
        }
        daemon.join().unwrap();
        assert_eq!(submit(&client, &[1]).unwrap_err(), Refused::Gone);
    });
}

#[test]
fn poison_wakes_a_thread_that_waits() {
    explore(|| {
        let (_server, client) = pair(1);
        let other = {
            let client = client.clone();
            thread::spawn(move || client.poison())
        };
        match submit(&client, &[1]) {
            Ok(mut ticket) => assert_eq!(ticket.wait(PATIENCE).unwrap_err(), Lost::Gone),
            Err(refused) => assert_eq!(refused, Refused::Gone),
        }
        other.join().unwrap();
    });
}

#[test]
fn a_collector_learns_of_each_answer() {
    explore(|| {
        let (server, client) = pair(2);
        let mut tickets: Vec<Sent> = (1..=2)
            .map(|number| {
                client
                    .submit(&Call {
                        operation: 1,
                        key: 2,
                        input: &[number],
                        notify: true,
                    })
                    .unwrap()
            })
            .collect();
        let daemon = thread::spawn(move || assert_eq!(serve(&server), 2));
        let mut told = [false; 2];
        while told != [true; 2] {
            client
                .answered(PATIENCE, |slot| {
                    let answer = tickets[slot].poll().unwrap();
                    assert_eq!(
                        answer.expect("it is answered").output[..],
                        [2 * (slot as u8 + 1)]
                    );
                    told[slot] = true;
                })
                .unwrap();
        }
        daemon.join().unwrap();
    });
}

#[test]
fn a_collector_learns_of_the_end() {
    explore(|| {
        let (server, client) = pair(1);
        let daemon = thread::spawn(move || server.close());
        while client.answered(PATIENCE, |_| {}).is_ok() {}
        daemon.join().unwrap();
    });
}

#[test]
fn one_thread_sleeps_on_several_rings() {
    explore_three(|| {
        let (first, client) = pair(1);
        let (second, other_client) = pair(1);
        let daemon = thread::spawn(move || {
            let sleeper = Sleeper::new();
            let rings = [first, second];
            let mut served = 0;
            while served < 2 {
                sleeper.sleep(&rings, PATIENCE).unwrap();
                served += rings.iter().map(serve).sum::<usize>();
            }
        });
        let other = thread::spawn(move || {
            assert_eq!(answer_of(submit(&other_client, &[7]).unwrap()), [14])
        });
        assert_eq!(answer_of(submit(&client, &[4]).unwrap()), [8]);
        other.join().unwrap();
        daemon.join().unwrap();
    });
}

/// Without `futex_waitv`, a watcher wakes the daemon, which serves one request after another. Two
/// preemptions take 82 s on a Zen 3 core (`LOOM_MAX_PREEMPTIONS=2`), and one finds the planted
/// defect.
#[test]
fn a_watcher_wakes_the_thread_that_sleeps() {
    explore_to(1, || {
        let (ring, client) = pair(1);
        let daemon = thread::spawn(move || {
            let sleeper = Sleeper::with_watchers();
            let rings = [ring];
            let mut served = 0;
            while served < 2 {
                sleeper.sleep(&rings, PATIENCE).unwrap();
                served += serve(&rings[0]);
            }
        });
        for number in 1..=2 {
            assert_eq!(answer_of(submit(&client, &[number]).unwrap()), [2 * number]);
        }
        daemon.join().unwrap();
    });
}

#[test]
fn a_wake_up_ends_a_sleep() {
    explore(|| {
        let (server, _client) = pair(1);
        let other = {
            let server = server.clone();
            thread::spawn(move || server.wake())
        };
        server.sleep(PATIENCE);
        other.join().unwrap();
    });
}

/// Models with a planted defect, which must fail. `cargo xtask test loom` runs them.
mod planted {
    use super::*;

    #[test]
    #[ignore = "a planted defect"]
    fn a_bell_is_silent() {
        plant(Defect::SilentBell);
        a_slot_serves_one_request_after_another();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_bell_rings_before_the_bit() {
        plant(Defect::BellBeforeBit);
        a_slot_serves_one_request_after_another();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_last_look_is_careless() {
        plant(Defect::CarelessLook);
        a_slot_serves_one_request_after_another();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn an_answer_is_silent() {
        plant(Defect::SilentAnswer);
        a_slot_serves_one_request_after_another();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn an_answer_is_blind() {
        plant(Defect::BlindAnswer);
        a_slot_serves_one_request_after_another();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_slot_is_free_too_early() {
        plant(Defect::EarlyFree);
        a_slot_of_a_dropped_ticket_is_used_again_after_its_answer();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_slot_is_forgotten_too_late() {
        plant(Defect::LateForgetting);
        another_thread_of_the_daemon_answers();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_watcher_calls_before_its_gate_is_closed() {
        plant(Defect::EarlyCall);
        a_watcher_wakes_the_thread_that_sleeps();
    }
}
