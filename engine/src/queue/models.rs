//! The hand-over of slots, answers and tickets, in every interleaving that loom finds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p lockstep-engine --lib models`

use std::time::Duration;

use lockstep_counters::Fallback;

use super::exploration::{beside, explore};
use super::simple::{Simple, WakeUps, eager, impatient, queue};
use super::*;
use crate::caller::{Caller as _, Thread, ThreadId};
use crate::fault::{
    EARLY_LOOK, LOST_CALL, LOST_JOB, LOST_LEADER, LOST_SLOT, LOST_THREAD, LOST_WORKER, plant,
};
use crate::policy::View;
use crate::sync::Arc;

fn assert_at_rest(queue: &Queue<Simple>, slots: usize) {
    let state = queue.lock();
    assert_eq!(state.free.len(), slots);
    assert!(state.assigned.is_empty());
    for line in &state.lines {
        let View {
            waiting,
            threads,
            leaders,
            in_hand,
            running,
            in_batches,
            ..
        } = line.view;
        assert_eq!(
            [waiting, threads, leaders, in_hand, running, in_batches],
            [0; 6]
        );
    }
}

#[test]
fn threads_that_share_a_slot_all_get_their_answers() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let others: Vec<_> = [1, 2]
            .into_iter()
            .map(|number| {
                beside(&queue, move |queue| {
                    assert_eq!(queue.ask(0, number).unwrap(), -number)
                })
            })
            .collect();
        assert_eq!(queue.ask(0, 3).unwrap(), -3);
        for other in others {
            other.join().unwrap();
        }
        assert_at_rest(&queue, 1);
    });
}

/// Makes a request, which must be answered correctly or declined as late.
fn ask_in_passing(queue: &Queue<Simple>, shape: usize, number: i64) {
    match queue.ask(shape, number) {
        Ok(answer) => assert_eq!(answer, -number - shape as i64),
        Err(declined) => assert_eq!(declined.fallback(), Fallback::Late),
    }
}

/// A thread leaves while a leader takes its request, has it, or hands it a slot.
#[test]
fn leaving_races_with_an_answer_and_with_a_slot() {
    explore(|| {
        let queue = impatient(Simple::default(), 1, Duration::ZERO);
        let others: Vec<_> = [(0, 1), (1, 2)]
            .into_iter()
            .map(|(shape, number)| {
                beside(&queue, move |queue| ask_in_passing(&queue, shape, number))
            })
            .collect();
        ask_in_passing(&queue, 0, 3);
        for other in others {
            other.join().unwrap();
        }
        assert_at_rest(&queue, 1);
        assert_eq!(queue.ask(1, 4).unwrap(), -5, "nobody keeps the slot");
    });
}

/// If lanes are to serve all requests, a thread that would have to wait computes its request
/// itself, unless another thread has it.
#[test]
fn computing_past_the_queue_races_with_an_answer_and_with_a_slot() {
    explore(|| {
        let queue = eager(1);
        let others: Vec<_> = [(0, 1), (1, 2)]
            .into_iter()
            .map(|(shape, number)| {
                beside(&queue, move |queue| ask_in_passing(&queue, shape, number))
            })
            .collect();
        ask_in_passing(&queue, 0, 3);
        for other in others {
            other.join().unwrap();
        }
        assert_at_rest(&queue, 1);
    });
}

/// A thread leaves by `siglongjmp` a batch that may have another thread's request, and comes again.
/// No wait has a timeout.
#[test]
fn a_leader_that_has_left_keeps_neither_slot_nor_thread() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let lead = queue.begin(0, ThreadId(1));
        let others: Vec<_> = [(0, 2), (1, 3)]
            .into_iter()
            .map(|(shape, number)| {
                beside(&queue, move |queue| ask_in_passing(&queue, shape, number))
            })
            .collect();
        queue.take_and_leave(lead);
        assert_eq!(queue.enqueue(0, 1, ThreadId(1)).unwrap(), -1);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(queue.lock().leaders.lost, 1);
        assert_at_rest(&queue, 1);
    });
}

/// A thread leaves by `siglongjmp` while it waits, and comes again. By then its first request may
/// have got a slot.
#[test]
fn coming_again_races_with_a_slot_for_a_request_that_was_left() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        queue.wait_and_leave(0, 2, ThreadId(1));
        let other = beside(&queue, |queue| ask_in_passing(&queue, 1, 3));
        assert_eq!(queue.enqueue(0, 1, ThreadId(1)).unwrap(), -1);
        other.join().unwrap();
        assert_at_rest(&queue, 1);
    });
}

/// The slot of a thread that has left goes to a worker.
#[test]
fn leaving_races_with_a_job() {
    explore(|| {
        let queue = impatient(Simple::default(), 1, Duration::ZERO);
        let other = beside(&queue, move |queue| ask_in_passing(&queue, 0, 1));
        let wake_ups = WakeUps::default();
        let ticket = Queue::submit(&queue, 0, 2, wake_ups.boxed()).unwrap();
        assert_eq!(ticket.take().unwrap(), -2);
        other.join().unwrap();
        workers::stop(&queue);
        assert_eq!(wake_ups.count(), 1);
        assert_at_rest(&queue, 1);
    });
}

/// A worker wakes a job without an answer, while the leader that has its request comes back.
#[test]
fn waking_a_job_races_with_its_leader() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
        let leader = beside(&queue, move |queue| {
            assert_eq!(attend(&queue, 0, 2, 2).unwrap(), -2)
        });
        let completion = ticket.completion().clone();
        let watcher = beside(&queue, move |_| {
            completion.deliver(Err(Declined::Late));
        });
        let wake_ups = WakeUps::default();
        let told = ticket.notify_by(wake_ups.boxed());
        leader.join().unwrap();
        watcher.join().unwrap();
        assert_eq!(wake_ups.count(), usize::from(told));
        match ticket.try_take().ok().unwrap() {
            Ok(answer) => assert_eq!(answer, -1),
            Err(declined) => assert_eq!(declined.fallback(), Fallback::Late),
        }
        assert_eq!(queue.counters.paused(), 0);
    });
}

#[test]
fn shapes_that_share_a_slot_do_not_starve() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, |queue| {
            assert_eq!(queue.ask(1, 1).unwrap(), -2);
            assert_eq!(queue.ask(1, 2).unwrap(), -3);
        });
        assert_eq!(queue.ask(0, 3).unwrap(), -3);
        other.join().unwrap();
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn a_declined_leader_hands_its_slot_on() {
    explore(|| {
        let queue = queue(Simple::declining(), 1, 8);
        let ask = |queue: &Queue<Simple>, number| match queue.ask(0, number) {
            Ok(answer) => assert_eq!(answer, -number),
            Err(declined) => assert_eq!(declined.fallback(), Fallback::Lone),
        };
        let other = beside(&queue, move |queue| ask(&queue, 1));
        match queue.declines_alone(0, Thread.thread()) {
            Some(declined) => assert_eq!(declined.fallback(), Fallback::Lone),
            None => ask(&queue, 2),
        }
        other.join().unwrap();
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn a_job_and_a_thread_share_a_slot() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            assert_eq!(queue.ask(0, 1).unwrap(), -1)
        });
        let wake_ups = WakeUps::default();
        let ticket = Queue::submit(&queue, 0, 2, wake_ups.boxed()).unwrap();
        assert_eq!(ticket.take().unwrap(), -2);
        other.join().unwrap();
        workers::stop(&queue);
        assert_eq!(wake_ups.count(), 1, "wake-ups of the job");
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn a_worker_serves_job_after_job() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let wake_ups = WakeUps::default();
        let first = Queue::submit(&queue, 0, 1, wake_ups.boxed()).unwrap();
        let second = Queue::submit(&queue, 1, 2, wake_ups.boxed()).unwrap();
        assert_eq!(first.take().unwrap(), -1);
        let third = Queue::submit(&queue, 0, 3, wake_ups.boxed()).unwrap();
        assert_eq!(second.take().unwrap(), -3);
        assert_eq!(third.take().unwrap(), -3);
        workers::stop(&queue);
        assert_eq!(wake_ups.count(), 3);
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn two_slots_serve_threads_and_workers() {
    explore(|| {
        let queue = queue(Simple::default(), 2, 8);
        let other = beside(&queue, move |queue| {
            assert_eq!(queue.ask(0, 1).unwrap(), -1)
        });
        let wake_ups = WakeUps::default();
        let ticket = Queue::submit(&queue, 0, 2, wake_ups.boxed()).unwrap();
        assert_eq!(ticket.take().unwrap(), -2);
        other.join().unwrap();
        workers::stop(&queue);
        assert_at_rest(&queue, 2);
    });
}

#[test]
fn abandoning_races_with_delivery() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let wake_ups = WakeUps::default();
        drop(Queue::submit(&queue, 0, 1, wake_ups.boxed()).unwrap());
        workers::stop(&queue);
        assert!(wake_ups.count() <= 1);
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn closing_races_with_a_job() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let wake_ups = WakeUps::default();
        let ticket = Queue::submit(&queue, 0, 1, wake_ups.boxed()).unwrap();
        workers::stop(&queue);
        match ticket.take() {
            Ok(answer) => assert_eq!(answer, -1),
            Err(declined) => assert_eq!(declined.fallback(), Fallback::ShutDown),
        }
        assert_eq!(wake_ups.count(), 1);
        assert_at_rest(&queue, 1);
    });
}

/// Posts a request and attends to it, as a job of the provider does.
fn attend(queue: &Arc<Queue<Simple>>, shape: usize, number: i64, thread: u64) -> Answer<Simple> {
    let ticket = queue.post(shape, number, ThreadId(thread)).unwrap();
    Queue::attend(queue, shape, ticket, false).unwrap_or_else(|ticket| {
        let wake_ups = WakeUps::default();
        ticket.notify_by(wake_ups.boxed());
        ticket.take()
    })
}

#[test]
fn jobs_of_two_threads_lead_or_are_served() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            let first = queue.post(0, 1, ThreadId(1)).unwrap();
            assert_eq!(attend(&queue, 0, 2, 1).unwrap(), -2);
            assert_eq!(
                first.take().unwrap(),
                -1,
                "the second has led the first too"
            );
        });
        assert_eq!(attend(&queue, 0, 3, 2).unwrap(), -3);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn a_worker_that_helps_serves_each_request_once() {
    explore(|| {
        let queue = queue(Simple::default(), 2, 8);
        let posts: Vec<_> = (0..8)
            .map(|n| queue.post(0, n, ThreadId(1)).unwrap())
            .collect();
        for (ticket, number) in posts.into_iter().zip(0..) {
            let answer = Queue::attend(&queue, 0, ticket, true);
            let answer = answer.unwrap_or_else(|ticket| {
                ticket.notify_by(WakeUps::default().boxed());
                ticket.take()
            });
            assert_eq!(answer.unwrap(), -number);
        }
        workers::stop(&queue);
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 2);
    });
}

#[test]
fn a_job_that_asks_is_told_once_or_finds_its_answer() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
        let other = beside(&queue, move |queue| {
            assert_eq!(attend(&queue, 0, 2, 2).unwrap(), -2)
        });
        let wake_ups = WakeUps::default();
        match Queue::attend(&queue, 0, ticket, false) {
            Ok(answer) => assert_eq!(answer.unwrap(), -1),
            Err(ticket) => {
                let asked = ticket.notify_by(wake_ups.boxed());
                other.join().unwrap();
                assert_eq!(wake_ups.count(), usize::from(asked));
                assert_eq!(ticket.try_take().ok().unwrap().unwrap(), -1);
                return;
            }
        }
        other.join().unwrap();
        assert_eq!(wake_ups.count(), 0);
    });
}

#[test]
fn abandoning_races_with_a_leader() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            drop(queue.post(0, 1, ThreadId(1)).unwrap())
        });
        assert_eq!(attend(&queue, 0, 2, 2).unwrap(), -2);
        other.join().unwrap();
        assert_eq!(attend(&queue, 0, 3, 1).unwrap(), -3);
        assert_eq!(queue.counters.paused(), 0);
    });
}

#[test]
fn losing_a_job_races_with_a_leader() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        // One request of the leader's thread, and one of another thread, which may share its pass.
        let lost = [1, 2].map(|thread| queue.post(0, 1, ThreadId(thread)).unwrap());
        let other = beside(&queue, move |queue| {
            lost.into_iter().for_each(|lost| queue.abandon(0, lost))
        });
        assert_eq!(attend(&queue, 0, 2, 2).unwrap(), -2);
        other.join().unwrap();
        // No later leader has to remove the lost requests.
        assert_eq!(queue.counters.paused(), 0);
        assert_eq!(queue.job_queue.of(0).len(), 0);
    });
}

#[test]
fn losing_a_job_races_with_a_worker_that_helps() {
    explore(|| {
        let queue = queue(Simple::default(), 2, 8);
        let mut posts: Vec<_> = (0..8)
            .map(|n| queue.post(0, n, ThreadId(1)).unwrap())
            .collect();
        let (leader, last) = (posts.remove(0), posts.pop().unwrap());
        let _ = Queue::attend(&queue, 0, leader, true);
        queue.abandon(0, last);
        for ticket in posts {
            queue.abandon(0, ticket);
        }
        workers::stop(&queue);
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 2);
    });
}

#[test]
fn losing_a_submitted_job_races_with_a_worker() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let wake_ups = WakeUps::default();
        let lost = Queue::submit(&queue, 0, 1, wake_ups.boxed()).unwrap();
        let kept = Queue::submit(&queue, 0, 2, wake_ups.boxed()).unwrap();
        drop(lost);
        assert_eq!(kept.take().unwrap(), -2);
        workers::stop(&queue);
        assert!((1..=2).contains(&wake_ups.count()));
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn losing_a_job_races_with_closing() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let lost = queue.post(0, 1, ThreadId(1)).unwrap();
        let other = beside(&queue, move |queue| queue.abandon(0, lost));
        workers::stop(&queue);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 1);
    });
}

#[test]
fn closing_races_with_a_posted_request() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            let answer = match queue.post(0, 1, ThreadId(1)) {
                Ok(ticket) => {
                    Queue::attend(&queue, 0, ticket, false).unwrap_or_else(|ticket| ticket.take())
                }
                Err(declined) => Err(declined),
            };
            match answer {
                Ok(answer) => assert_eq!(answer, -1),
                Err(declined) => assert_eq!(declined.fallback(), Fallback::ShutDown),
            }
        });
        workers::stop(&queue);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
        assert_at_rest(&queue, 1);
    });
}

/// The defects that these models must find. Each of these tests must fail. `cargo xtask test loom`
/// runs each in a process of its own, because loom cannot always go on after a failure.
mod planted {
    use super::*;

    #[test]
    #[ignore = "a planted defect"]
    fn a_thread_is_not_woken() {
        plant(LOST_THREAD);
        threads_that_share_a_slot_all_get_their_answers();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_slot_is_not_taken_back() {
        plant(LOST_SLOT);
        leaving_races_with_an_answer_and_with_a_slot();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_slot_that_was_left_is_not_replaced() {
        plant(LOST_LEADER);
        a_leader_that_has_left_keeps_neither_slot_nor_thread();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_worker_is_not_woken() {
        plant(LOST_WORKER);
        a_worker_serves_job_after_job();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_job_is_not_told() {
        plant(LOST_JOB);
        a_job_and_a_thread_share_a_slot();
    }

    /// The defect shows in few interleavings only.
    #[test]
    #[ignore = "a planted defect"]
    fn a_long_batch_calls_nobody() {
        plant(LOST_CALL);
        service::models::a_long_batch_calls_a_thread();
    }

    #[test]
    #[ignore = "a planted defect"]
    fn a_look_before_the_lock() {
        plant(EARLY_LOOK);
        a_job_and_a_thread_share_a_slot();
    }
}
