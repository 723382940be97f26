//! The queue with real threads and a simple executor.

mod jobs;
mod late;

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_counters::Fallback;

use super::simple::{HELD, PANIC, Simple, WakeUps, eager, impatient, queue};
use super::*;
use crate::caller::ThreadId;
use crate::completion::Ticket;
use crate::policy::View;
use crate::sync::Arc;

/// Waits until `condition` returns true. The test hangs if it never does.
fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn waiting(queue: &Queue<Simple>) -> usize {
    queue.lock().turns.total()
}

/// Asserts that no request waits or runs, no leader is about to take a batch, and all slots are
/// free.
fn assert_at_rest(queue: &Queue<Simple>, slots: usize) {
    until(|| queue.lock().free.len() == slots);
    let state = queue.lock();
    assert_eq!(state.turns.total(), 0);
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
    assert!(state.assigned.is_empty());
    assert_eq!(queue.counters.paused(), 0);
}

/// [`Queue::attend`] without the help of a worker.
fn attend(
    queue: &Arc<Queue<Simple>>,
    shape: usize,
    ticket: Ticket<Answer<Simple>>,
) -> Result<Answer<Simple>, Ticket<Answer<Simple>>> {
    Queue::attend(queue, shape, ticket, false)
}

#[test]
fn a_lone_request_runs_at_once_without_a_yield() {
    let queue = queue(Simple::default(), 2, 8);
    for number in 0..50 {
        assert_eq!(queue.ask(1, number).unwrap(), -number - 1);
    }
    let counters = queue.counters.snapshot();
    assert_eq!(
        (
            counters.yields,
            counters.batch_fill[0],
            counters.wait_total_ns
        ),
        (0, 50, 0)
    );
    assert_at_rest(&queue, 2);
}

#[test]
fn a_leader_does_not_yield_where_strangers_took_the_cpu() {
    let queue = queue(Simple::default(), 2, 8);
    let yields = || {
        let mut state = queue.lock();
        let view = &mut state.line(1).view;
        // It expects company, and no yield is long.
        (view.last, view.pass_time) = (2, Duration::from_secs(100));
        drop(state);
        assert_eq!(queue.ask(1, 1).unwrap(), -2);
        queue.counters.snapshot().yields
    };
    assert_eq!(yields(), 2);
    let mut state = queue.lock();
    state.line(1).strangers.note(true);
    drop(state);
    for _ in 0..8 {
        assert_eq!(yields(), 2);
    }
    assert_eq!(yields(), 4);
}

#[test]
fn two_threads_run_in_parallel_on_two_slots() {
    let queue = queue(Simple::default(), 2, 8);
    queue.executor.gate.close();
    thread::scope(|scope| {
        for number in [1, 2] {
            let queue = &queue;
            scope.spawn(move || assert_eq!(queue.ask(0, number).unwrap(), -number));
        }
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 2);
        queue.executor.gate.open();
    });
    assert_at_rest(&queue, 2);
}

#[test]
fn requests_gather_behind_a_running_batch() {
    let queue = queue(Simple::default(), 1, 8);
    queue.executor.gate.close();
    thread::scope(|scope| {
        let ask = |number: i64| {
            let queue = &queue;
            scope.spawn(move || assert_eq!(queue.ask(0, number).unwrap(), -number));
        };
        ask(0);
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        (1..=10).for_each(ask);
        until(|| waiting(&queue) == 10);
        queue.executor.gate.open();
    });
    let counters = queue.counters.snapshot();
    assert_eq!(counters.batch_fill, [1, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(counters.pass_fill, [1, 1, 0, 2, 0, 0, 0, 0]);
    assert!(counters.wait_max_ns > 0);
    assert_at_rest(&queue, 1);
}

#[test]
fn the_oldest_shape_goes_first() {
    let queue = queue(Simple::default(), 1, 8);
    queue.executor.gate.close();
    thread::scope(|scope| {
        let ask = |shape: usize| {
            let queue = &queue;
            scope.spawn(move || queue.ask(shape, 0).unwrap());
        };
        ask(0);
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        for (before, shape) in [2, 1, 2, 0, 1].into_iter().enumerate() {
            ask(shape);
            until(|| waiting(&queue) == before + 1);
        }
        queue.executor.gate.open();
    });
    assert_eq!(*queue.executor.log.lock().unwrap(), [0, 2, 1, 0]);
    assert_eq!(
        queue.counters.snapshot().batch_fill,
        [2, 2, 0, 0, 0, 0, 0, 0]
    );
    assert_at_rest(&queue, 1);
}

#[test]
fn a_declined_lone_request_holds_no_slot() {
    let queue = queue(Simple::declining(), 1, 8);
    let first = queue.enqueue(0, 1, ThreadId(1)).unwrap_err();
    let second = queue.enqueue(0, 2, ThreadId(2)).unwrap_err();
    assert_eq!([first.fallback(), second.fallback()], [Fallback::Lone; 2]);
    assert_eq!(queue.elsewhere.count(), 2);
    drop((first, second));
    assert_eq!(queue.elsewhere.count(), 0);
    assert_eq!(queue.counters.snapshot().fallbacks_for(Fallback::Lone), 2);
    assert_at_rest(&queue, 1);
}

#[test]
fn a_request_that_would_be_alone_is_declined_before_it_is_made() {
    let queue = queue(Simple::declining(), 2, 8);
    let declines = |shape, thread| queue.declines_alone(shape, ThreadId(thread));
    let first = declines(0, 1).expect("nobody else is there");
    assert_eq!(first.fallback(), Fallback::Lone);
    assert_eq!(queue.counters.snapshot().fallbacks_for(Fallback::Lone), 1);
    assert_eq!(queue.elsewhere.count(), 1);
    let second = declines(1, 2).expect("each thread has a CPU");
    // A third thread has none: it gathers first.
    assert!(declines(0, 3).is_none());
    drop((first, second));

    // A request expects others after a batch with several requests, not after a batch with one.
    queue.lock().line(0).view.last = 2;
    assert!(declines(0, 1).is_none());
    assert_eq!(queue.ask(0, 1).unwrap_err().fallback(), Fallback::Lone);
    assert!(declines(0, 1).is_some());
    assert_eq!(queue.lock().line(0).view.last, 1);

    let lanes = super::simple::queue(Simple::default(), 1, 8);
    assert!(lanes.declines_alone(0, ThreadId(1)).is_none());
    assert_at_rest(&queue, 2);
}

#[test]
fn nobody_is_alone_while_all_slots_are_busy() {
    let queue = queue(Simple::declining(), 1, 8);
    queue.executor.gate.close();
    let ticket = Queue::submit(&queue, 0, 5, WakeUps::default().boxed()).unwrap();
    until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
    assert!(queue.declines_alone(1, ThreadId(1)).is_none());
    queue.executor.gate.open();
    assert_eq!(ticket.take().unwrap(), -5);
    assert_eq!(queue.counters.snapshot().fallbacks(), 0);
    workers::stop(&queue);
}

#[test]
fn workers_never_decline_a_lone_job() {
    let queue = queue(Simple::declining(), 1, 8);
    let wake_ups = WakeUps::default();
    let ticket = Queue::submit(&queue, 0, 5, wake_ups.boxed()).unwrap();
    assert_eq!(ticket.take().unwrap(), -5);
    until(|| wake_ups.count() == 1);
    workers::stop(&queue);
    assert_at_rest(&queue, 1);
}

#[test]
fn a_full_pass_of_jobs_takes_a_second_slot() {
    let queue = queue(Simple::default(), 2, 64);
    queue.executor.gate.close();
    let wake_ups = WakeUps::default();
    let submit = |number| Queue::submit(&queue, 0, number, wake_ups.boxed()).unwrap();
    let mut tickets = vec![submit(1)];
    let inside = || queue.executor.inside.load(Ordering::SeqCst);
    until(|| inside() == 1);
    tickets.extend((2..5).map(submit));
    assert_eq!(
        (inside(), waiting(&queue)),
        (1, 3),
        "three jobs wait for the running batch"
    );
    tickets.push(submit(5));
    until(|| inside() == 2);
    queue.executor.gate.open();
    for (ticket, number) in tickets.into_iter().zip(1..) {
        assert_eq!(ticket.take().unwrap(), -number);
    }
    until(|| wake_ups.count() == 5);
    workers::stop(&queue);
    assert_eq!(
        queue.counters.snapshot().batch_fill,
        [1, 0, 0, 1, 0, 0, 0, 0]
    );
    assert_at_rest(&queue, 2);
}

#[test]
fn the_bound_declines_and_recovers() {
    let queue = queue(Simple::default(), 1, 2);
    queue.executor.gate.close();
    let wake_ups = WakeUps::default();
    let submit = |number| Queue::submit(&queue, 0, number, wake_ups.boxed());
    let (one, two) = (submit(1).unwrap(), submit(2).unwrap());
    assert_eq!(submit(3).err().unwrap().fallback(), Fallback::QueueFull);
    drop(one);
    assert!(
        submit(3).is_err(),
        "an abandoned request still counts while it is in the engine"
    );
    queue.executor.gate.open();
    assert_eq!(two.take().unwrap(), -2);
    until(|| queue.counters.paused() == 0);
    assert_eq!(submit(4).unwrap().take().unwrap(), -4);
    assert_eq!(
        queue.counters.snapshot().fallbacks_for(Fallback::QueueFull),
        2
    );
    workers::stop(&queue);
    assert_at_rest(&queue, 1);
}

/// Another thread queues its request while the first one tries to start a worker.
#[test]
fn jobs_that_waited_for_a_worker_that_did_not_start_are_declined() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    static FAILS: AtomicBool = AtomicBool::new(false);
    let mut queue = queue(Simple::default(), 1, 8);
    Arc::get_mut(&mut queue).unwrap().start_thread = |_| {
        TRIES.fetch_add(1, Ordering::SeqCst);
        until(|| FAILS.load(Ordering::SeqCst));
    };
    let wake_ups = WakeUps::default();
    let submit = |shape, number| Queue::submit(&queue, shape, number, wake_ups.boxed());
    thread::scope(|scope| {
        let first = scope.spawn(|| submit(0, 1).err().unwrap().fallback());
        until(|| TRIES.load(Ordering::SeqCst) == 1);
        let others = [(0, 2), (1, 3), (0, 4)].map(|(shape, number)| submit(shape, number).unwrap());
        assert_eq!(waiting(&queue), 3);
        FAILS.store(true, Ordering::SeqCst);
        assert_eq!(first.join().unwrap(), Fallback::NoWorkers);
        // The first call has delivered these answers before it returned.
        assert_eq!(wake_ups.count(), 3);
        for ticket in others {
            assert_eq!(ticket.take().unwrap_err().fallback(), Fallback::NoWorkers);
        }
    });
    let counters = queue.counters.snapshot();
    assert_eq!(counters.fallbacks_for(Fallback::NoWorkers), 4);
    assert_eq!(queue.ask(0, 5).unwrap(), -5);
    assert_at_rest(&queue, 1);
}

#[test]
fn abandoned_jobs_are_skipped_in_silence() {
    let queue = queue(Simple::default(), 1, 64);
    queue.executor.gate.close();
    let (wake_ups, silent) = (WakeUps::default(), WakeUps::default());
    let running = Queue::submit(&queue, 0, 1, silent.boxed()).unwrap();
    until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
    for number in 0..20 {
        drop(Queue::submit(&queue, 0, number, silent.boxed()).unwrap());
    }
    let kept = Queue::submit(&queue, 0, 2, wake_ups.boxed()).unwrap();
    drop(running);
    queue.executor.gate.open();
    assert_eq!(kept.take().unwrap(), -2);
    workers::stop(&queue);
    assert_eq!((wake_ups.count(), silent.count()), (1, 0));
    assert_eq!(
        queue.counters.snapshot().operations(),
        2,
        "the first, and the one that was kept"
    );
    assert_at_rest(&queue, 1);
}

#[test]
fn shutting_down_declines_waiting_requests_and_finishes_running_ones() {
    let queue = queue(Simple::default(), 1, 64);
    queue.executor.gate.close();
    let wake_ups = WakeUps::default();
    let submit = |number| Queue::submit(&queue, 1, number, wake_ups.boxed()).unwrap();
    let running = submit(7);
    until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
    let waiting: Vec<_> = (0..10).map(submit).collect();
    thread::scope(|scope| {
        scope.spawn(|| workers::stop(&queue));
        for ticket in waiting {
            assert_eq!(ticket.take().unwrap_err().fallback(), Fallback::ShutDown);
        }
        queue.executor.gate.open();
    });
    assert_eq!(running.take().unwrap(), -8);
    assert_eq!(wake_ups.count(), 11);
    assert_at_rest(&queue, 1);
}

#[test]
fn a_panic_strands_nobody() {
    let queue = queue(Simple::default(), 1, 64);
    queue.executor.gate.close();
    thread::scope(|scope| {
        let ask = |number: i64| {
            let queue = &queue;
            scope.spawn(move || queue.ask(0, number))
        };
        let first = ask(1);
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        let poisoned: Vec<_> = [PANIC, PANIC, PANIC].into_iter().map(ask).collect();
        until(|| waiting(&queue) == 3);
        queue.executor.gate.open();
        assert_eq!(first.join().unwrap().unwrap(), -1);
        for thread in poisoned {
            let declined = thread.join().unwrap().unwrap_err();
            assert_eq!(declined.fallback(), Fallback::Internal);
        }
    });
    let wake_ups = WakeUps::default();
    let job = Queue::submit(&queue, 0, PANIC, wake_ups.boxed()).unwrap();
    assert_eq!(job.take().unwrap_err().fallback(), Fallback::Internal);
    assert_eq!(
        Queue::submit(&queue, 0, 3, wake_ups.boxed())
            .unwrap()
            .take()
            .unwrap(),
        -3
    );
    assert_eq!(
        queue.counters.snapshot().fallbacks_for(Fallback::Internal),
        4
    );
    workers::stop(&queue);
    assert_at_rest(&queue, 1);
}

#[test]
fn a_panic_leaves_earlier_answers_of_its_batch() {
    let queue = queue(Simple::default(), 1, 8);
    let answers = queue.execute_at_once(0, [1, 2, PANIC, 4]);
    assert_eq!(answers[1].as_ref().unwrap(), &-2);
    assert_eq!(
        answers[2].as_ref().unwrap_err().fallback(),
        Fallback::Internal
    );
    assert_eq!(
        answers[3].as_ref().unwrap_err().fallback(),
        Fallback::Internal
    );
}

/// Threads and jobs ask for all shapes at random. Each gets its own answer, and no request is left.
#[test]
fn everybody_gets_the_right_answer() {
    for (slots, threads) in [(1, 3), (2, 16), (3, 8), (8, 24)] {
        let queue = queue(
            Simple {
                declines_lone: slots == 3,
                ..Simple::default()
            },
            slots,
            32,
        );
        let start = Barrier::new(threads);
        let mut asked = vec![0_u64; threads];
        thread::scope(|scope| {
            for (thread, asked) in asked.iter_mut().enumerate() {
                let (queue, start) = (&queue, &start);
                scope.spawn(move || {
                    start.wait();
                    *asked = visit(queue, thread as u64 + 1);
                });
            }
        });
        workers::stop(&queue);
        assert_at_rest(&queue, slots);
        let counters = queue.counters.snapshot();
        let elsewhere: u64 = [Fallback::Lone, Fallback::QueueFull]
            .map(|reason| counters.fallbacks_for(reason))
            .iter()
            .sum();
        assert!(counters.operations() + elsewhere <= asked.iter().sum());
        let by_fill: u64 = counters
            .batch_fill
            .iter()
            .zip(1..)
            .map(|(n, fill)| n * fill)
            .sum();
        assert_eq!(counters.operations(), by_fill);
    }
}

/// Makes the requests of one caller, and returns their number.
fn visit(queue: &Arc<Queue<Simple>>, seed: u64) -> u64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let wake_ups = WakeUps::default();
    let (mut tickets, mut asked, mut kept) = (VecDeque::new(), 0, 0_u64);
    for round in 0..2000 {
        let number = (seed * 100_000 + round) as i64;
        let shape = next(3) as usize;
        let check = move |answer: Result<i64, Declined>| match answer {
            Ok(answer) => assert_eq!(answer, -number - shape as i64),
            Err(Declined::Failed(Failed::Randomness)) => assert_eq!(number % 1000, 999),
            Err(declined) => assert_eq!(declined.fallback(), Fallback::Lone),
        };
        asked += 1;
        match next(8) {
            0..4 => check(match queue.declines_alone(shape, ThreadId(seed)) {
                Some(declined) => Err(declined),
                None => queue.enqueue(shape, number, ThreadId(seed)),
            }),
            4 => {
                // Jobs of this thread. Another thread may take one of them.
                let posts: Vec<_> = (0..=next(12))
                    .map_while(|_| queue.post(shape, number, ThreadId(seed)).ok())
                    .collect();
                asked += posts.len() as u64;
                for ticket in posts {
                    let answer = Queue::attend(queue, shape, ticket, next(2) == 0);
                    check(answer.unwrap_or_else(|ticket| {
                        kept += u64::from(ticket.notify_by(wake_ups.boxed()));
                        ticket.take()
                    }));
                }
            }
            5..7 => {
                if let Ok(ticket) = Queue::submit(queue, shape, number, wake_ups.boxed()) {
                    tickets.push_back((ticket, check));
                    kept += 1;
                }
            }
            _ => drop(Queue::submit(
                queue,
                shape,
                number,
                WakeUps::default().boxed(),
            )),
        }
        if next(4) == 0 {
            thread::yield_now();
        }
        while tickets.len() as u64 > next(6) {
            let (ticket, check) = tickets.pop_front().unwrap();
            check(ticket.take());
        }
    }
    for (ticket, check) in tickets {
        check(ticket.take());
    }
    until(|| wake_ups.count() as u64 == kept);
    asked
}
