//! The queue with real threads and a simple executor.

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

/// Waits until `so` returns true. The test hangs if it never does.
fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        thread::yield_now();
    }
}

fn waiting(queue: &Queue<Simple>) -> usize {
    queue.lock().turns.total()
}

/// Asserts that no request waits or runs, no leader is on its way, and all slots are free.
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
fn what_would_be_alone_is_declined_before_it_is_made() {
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

    // After a batch with several requests the next one expects company. After a lone one it does
    // not.
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
        // The first one has delivered before it returned.
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
fn shutting_down_declines_what_waits_and_finishes_what_runs() {
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

/// Sets the time of a pass of a shape.
fn set_pass_time(queue: &Queue<Simple>, shape: usize, pass_time: Duration) {
    queue.lock().line(shape).view.pass_time = pass_time;
}

/// Returns the number of requests that were declined as late.
fn late(queue: &Queue<Simple>) -> u64 {
    queue.counters.snapshot().fallbacks_for(Fallback::Late)
}

/// As if a thread left its operation by siglongjmp, were stopped, or got no CPU.
#[test]
fn a_leader_that_does_not_come_back_keeps_nobody_waiting() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    let ms = Duration::from_millis(1);
    (0..3).for_each(|shape| set_pass_time(&queue, shape, ms));
    queue.executor.held.close();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(queue.ask(0, HELD).unwrap(), -HELD));
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        // Each of these threads gets an answer, or leaves. In the end the slot is replaced.
        for shape in [0, 1] {
            let served = || queue.ask(shape, 7).map_err(|declined| declined.fallback());
            until(|| match served() {
                Ok(answer) => answer == -7 - shape as i64,
                Err(reason) => {
                    assert_eq!(reason, Fallback::Late);
                    false
                }
            });
        }
        assert!(late(&queue) > 0);
        // The slot of the leader that comes back is one too many.
        queue.executor.held.open();
    });
    assert_at_rest(&queue, 1);
}

#[test]
fn leaders_that_do_not_come_back_are_replaced_so_many_times() {
    let most = crate::policy::MOST_LOST;
    let queue = impatient(Simple::default(), 1, Duration::from_nanos(1));
    (0..2).for_each(|shape| set_pass_time(&queue, shape, Duration::from_nanos(1)));
    queue.executor.held.close();
    thread::scope(|scope| {
        for lost in 0..=most {
            scope.spawn(|| {
                until(|| queue.ask(0, HELD).is_ok());
            });
            until(|| queue.executor.inside.load(Ordering::SeqCst) == lost + 1);
        }
        // From here on no thread waits.
        let declined = queue.ask(1, 1).unwrap_err();
        assert_eq!(declined.fallback(), Fallback::Late);
        queue.executor.held.open();
    });
    assert_eq!(queue.ask(1, 1).unwrap(), -2);
    assert_at_rest(&queue, 1);
}

/// Returns the sums of all shapes, without the waiting requests.
fn sums(queue: &Queue<Simple>) -> usize {
    let state = queue.lock();
    let views = state.lines.iter().map(|line| line.view);
    let sum = |view: View| view.leaders + view.in_hand + view.running + view.in_batches;
    views.map(sum).sum()
}

/// A program uses siglongjmp for its timeouts. A request that waited would wait for hours.
#[test]
fn a_thread_that_comes_again_waits_for_nothing_that_it_has_left() {
    let (slots, hour) = (2, Duration::from_secs(3600));
    for queue in [impatient(Simple::default(), slots, hour), eager(slots)] {
        let thread = ThreadId(7);
        for jump in 1..=1000 {
            let is_served = jump < crate::policy::MOST_LOST + slots;
            if !queue.lock().free.is_empty() {
                let lead = queue.begin(0, thread);
                if jump % 2 == 0 {
                    queue.take_and_leave(lead);
                }
            }
            let answer = queue.enqueue(jump % 2, 5, thread);
            if is_served {
                assert_eq!(answer.unwrap(), -5 - (jump % 2) as i64, "{jump}");
            } else {
                assert_eq!(answer.unwrap_err().fallback(), Fallback::Late, "{jump}");
            }
            assert_eq!(sums(&queue), 0, "{jump}");
        }
        assert_eq!(queue.lock().leaders.expected.len(), 0);
    }
}

#[test]
fn a_request_that_its_thread_has_left_is_not_computed() {
    let queue = impatient(Simple::default(), 1, Duration::from_secs(3600));
    queue.begin(0, ThreadId(1));
    for shape in [0, 2, 0, 0, 1] {
        queue.wait_and_leave(shape, PANIC, ThreadId(2));
        assert_eq!(waiting(&queue), 1);
    }
    queue.wait_and_leave(0, 5, ThreadId(3));
    assert_eq!(waiting(&queue), 2, "another thread's stays");
    for thread in [1, 2, 3] {
        assert_eq!(queue.enqueue(0, 7, ThreadId(thread)).unwrap(), -7);
    }
    assert_at_rest(&queue, 1);
}

#[test]
fn who_waits_for_a_leader_that_has_left_goes_on() {
    let queue = impatient(Simple::default(), 1, Duration::from_secs(3600));
    let lead = queue.begin(0, ThreadId(1));
    thread::scope(|scope| {
        let follower = scope.spawn(|| queue.ask(0, 7));
        let other = scope.spawn(|| queue.ask(1, 7));
        until(|| waiting(&queue) == 2);
        queue.take_and_leave(lead);
        assert_eq!(waiting(&queue), 1);
        assert_eq!(queue.enqueue(2, 7, ThreadId(1)).unwrap(), -9);
        let declined = follower.join().unwrap().unwrap_err();
        assert_eq!(declined.fallback(), Fallback::Late);
        assert_eq!(other.join().unwrap().unwrap(), -8);
    });
    assert_eq!(late(&queue), 1);
    assert_at_rest(&queue, 1);
}

#[test]
fn a_thread_computes_itself_where_lanes_are_to_serve_all_and_none_leads() {
    let queue = eager(1);
    (0..2).for_each(|shape| set_pass_time(&queue, shape, Duration::from_micros(100)));
    queue.executor.held.close();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(queue.ask(0, HELD).unwrap(), -HELD));
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        for shape in [0, 1] {
            assert_eq!(queue.ask(shape, 7).unwrap(), -7 - shape as i64);
        }
        queue.executor.held.open();
    });
    assert_eq!(late(&queue), 0);
    assert_at_rest(&queue, 1);
}

#[test]
fn a_short_request_does_not_wait_for_a_long_batch() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    set_pass_time(&queue, 0, Duration::from_secs(3600));
    // It would wait for a minute before it leaves.
    set_pass_time(&queue, 1, Duration::from_secs(30));
    queue.executor.held.close();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(queue.ask(0, HELD).unwrap(), -HELD));
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        let before = Instant::now();
        let declined = queue.ask(1, 1).unwrap_err();
        assert_eq!(declined.fallback(), Fallback::Late);
        let submitted = Queue::submit(&queue, 1, 1, WakeUps::default().boxed());
        assert_eq!(submitted.err().unwrap().fallback(), Fallback::Late);
        assert!(before.elapsed() < Duration::from_secs(30));
        queue.executor.held.open();
    });
    assert_at_rest(&queue, 1);
    workers::stop(&queue);
}

/// So do any number of requests, as long as batches run as expected.
#[test]
fn requests_of_a_crowd_wait_for_each_other() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    set_pass_time(&queue, 0, Duration::from_secs(30));
    queue.executor.gate.close();
    thread::scope(|scope| {
        for number in 0..50 {
            let queue = &queue;
            scope.spawn(move || assert_eq!(queue.ask(0, number).unwrap(), -number));
        }
        until(|| waiting(&queue) == 49);
        queue.executor.gate.open();
    });
    assert_eq!(late(&queue), 0);
    assert_at_rest(&queue, 1);
}

#[test]
fn between_shapes_the_shortest_goes_first() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    let long = Duration::from_secs(3600);
    for (shape, pass_time) in [long, long / 2, long / 8].into_iter().enumerate() {
        set_pass_time(&queue, shape, pass_time);
    }
    queue.executor.gate.close();
    thread::scope(|scope| {
        let ask = |shape: usize| {
            let queue = &queue;
            scope.spawn(move || queue.ask(shape, 0).unwrap());
        };
        ask(2);
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        for (before, shape) in [0, 1, 2].into_iter().enumerate() {
            ask(shape);
            until(|| waiting(&queue) == before + 1);
        }
        queue.executor.gate.open();
    });
    assert_eq!(*queue.executor.log.lock().unwrap(), [2, 2, 1, 0]);
    assert_at_rest(&queue, 1);
}

/// The leader is another thread's job, which has taken the request along.
#[test]
fn a_job_is_woken_though_its_leader_does_not_come_back() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    set_pass_time(&queue, 0, Duration::from_micros(100));
    queue.executor.held.close();
    let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
    let wake_ups = WakeUps::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = queue.post(0, HELD, ThreadId(2)).unwrap();
            let answer = attend(&queue, 0, other).ok().unwrap();
            assert_eq!(answer.unwrap(), -HELD);
        });
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        let ticket = attend(&queue, 0, ticket).expect_err("it runs elsewhere");
        assert!(ticket.notify_by(wake_ups.boxed()));
        Queue::watch(&queue, 0, &ticket);
        until(|| wake_ups.count() == 1);
        let declined = ticket.try_take().ok().unwrap().unwrap_err();
        assert_eq!(declined.fallback(), Fallback::Late);
        queue.executor.held.open();
    });
    assert_eq!(late(&queue), 1);
    workers::stop(&queue);
    assert_at_rest(&queue, 1);
}

/// No other thread comes that could find the slot lost.
#[test]
fn a_worker_replaces_the_slot_that_a_job_waits_for() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    set_pass_time(&queue, 0, Duration::from_millis(5));
    queue.executor.held.close();
    let wake_ups = WakeUps::default();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(queue.ask(0, HELD).unwrap(), -HELD));
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        // On a busy machine the request may come too late.
        let ticket = loop {
            if let Ok(ticket) = Queue::submit(&queue, 0, 5, wake_ups.boxed()) {
                break ticket;
            }
        };
        until(|| wake_ups.count() == 1);
        match ticket.take() {
            Ok(answer) => assert_eq!(answer, -5),
            Err(declined) => assert_eq!(declined.fallback(), Fallback::Late),
        }
        queue.executor.held.open();
    });
    workers::stop(&queue);
    assert_at_rest(&queue, 1);
}

/// Where no worker can be started, other threads that call look after the job.
#[test]
fn a_job_is_woken_without_a_worker() {
    let mut queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    Arc::get_mut(&mut queue).unwrap().start_thread = |_| {};
    for shape in 0..2 {
        set_pass_time(&queue, shape, Duration::from_micros(100));
        // A thread that does not come back has taken the request.
        let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
        let taken = queue.job_queue.of(0).remove(ticket.completion());
        let wake_ups = WakeUps::default();
        assert!(ticket.notify_by(wake_ups.boxed()));
        Queue::watch(&queue, 0, &ticket);
        until(|| {
            match shape {
                0 => assert_eq!(queue.ask(1, 1).unwrap(), -2),
                _ => {
                    let own = queue.post(1, 1, ThreadId(2)).unwrap();
                    assert_eq!(attend(&queue, 1, own).ok().unwrap().unwrap(), -2);
                }
            }
            wake_ups.count() == 1
        });
        let declined = ticket.try_take().ok().unwrap().unwrap_err();
        assert_eq!(declined.fallback(), Fallback::Late);
        drop(taken);
        assert_eq!(queue.look_at.load(Ordering::SeqCst), 0, "nobody is left");
    }
    assert_at_rest(&queue, 1);
}

/// A job that no thread can wake blocks its thread for a bounded time.
#[test]
fn a_job_that_blocks_does_so_for_a_while() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    set_pass_time(&queue, 0, Duration::from_micros(100));
    let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
    let declined = queue.take_in_time(0, ticket).unwrap_err();
    assert_eq!(declined.fallback(), Fallback::Late);
    assert_eq!((late(&queue), queue.counters.paused()), (1, 1));
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

/// [`Queue::attend`] without help.
fn attend(
    queue: &Arc<Queue<Simple>>,
    shape: usize,
    ticket: Ticket<Answer<Simple>>,
) -> Result<Answer<Simple>, Ticket<Answer<Simple>>> {
    Queue::attend(queue, shape, ticket, false)
}

#[test]
fn the_first_job_that_comes_back_leads_all_of_its_thread() {
    let queue = queue(Simple::default(), 1, 64);
    let post = |number, thread| queue.post(1, number, ThreadId(thread)).unwrap();
    let here: Vec<_> = (0..6).map(|number| post(number, 1)).collect();
    let there: Vec<_> = (10..16).map(|number| post(number, 2)).collect();
    let (mut here, mut there) = (here.into_iter(), there.into_iter());
    // The second one, say.
    let (first, second) = (here.next().unwrap(), here.next().unwrap());
    assert_eq!(attend(&queue, 1, second).ok().unwrap().unwrap(), -2);
    let counters = queue.counters.snapshot();
    assert_eq!(
        counters.pass_fill[..4],
        [0, 0, 0, 2],
        "six of its own, and two of the other thread's to fill the pass"
    );
    assert_eq!(counters.async_submitted, 12);
    assert!(counters.wait_max_ns > 0);
    for (ticket, number) in std::iter::once(first).chain(here).zip([0, 2, 3, 4, 5]) {
        assert_eq!(ticket.try_take().ok().unwrap().unwrap(), -number - 1);
    }
    for number in [10, 11] {
        let ticket = there.next().unwrap();
        assert_eq!(ticket.try_take().ok().unwrap().unwrap(), -number - 1);
    }
    let rest = there.next().unwrap();
    assert!(!rest.is_done(), "a further pass is its own thread's");
    assert_eq!(attend(&queue, 1, rest).ok().unwrap().unwrap(), -13);
    assert!(there.all(|ticket| ticket.is_done()));
    assert_eq!(queue.job_queue.of(1).len(), 0);
    assert_at_rest(&queue, 1);
    assert!(
        queue.lock().workers.wanted(),
        "no worker was started for them"
    );
}

#[test]
fn a_batch_of_posted_requests_is_bounded() {
    let queue = queue(Simple::default(), 1, 64);
    let mut tickets: Vec<_> = (0..20)
        .map(|number| queue.post(0, number, ThreadId(1)).unwrap())
        .collect();
    // The last one leads: itself, and the seven oldest.
    let last = tickets.pop().unwrap();
    assert_eq!(attend(&queue, 0, last).ok().unwrap().unwrap(), -19);
    let done = tickets.iter().take_while(|ticket| ticket.is_done()).count();
    assert_eq!((done, queue.job_queue.of(0).len()), (7, 12));
    for (ticket, number) in tickets.into_iter().zip(0..) {
        assert_eq!(attend(&queue, 0, ticket).ok().unwrap().unwrap(), -number);
    }
    assert_at_rest(&queue, 1);
}

#[test]
fn a_posted_request_that_is_taken_has_its_job_told() {
    let queue = queue(Simple::default(), 1, 64);
    queue.executor.gate.close();
    let wake_ups = WakeUps::default();
    let (one, two) = (
        queue.post(0, 1, ThreadId(1)).unwrap(),
        queue.post(0, 2, ThreadId(2)).unwrap(),
    );
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(attend(&queue, 0, one).ok().unwrap().unwrap(), -1));
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        let two = attend(&queue, 0, two).expect_err("it runs elsewhere");
        assert!(two.notify_by(wake_ups.boxed()));
        assert_eq!(wake_ups.count(), 0);
        queue.executor.gate.open();
        until(|| wake_ups.count() == 1);
        assert_eq!(two.try_take().ok().unwrap().unwrap(), -2);
    });
    assert_at_rest(&queue, 1);
}

#[test]
fn a_worker_helps_with_full_passes() {
    let queue = queue(Simple::default(), 2, 64);
    let post = |number| queue.post(0, number, ThreadId(1)).unwrap();
    let mut tickets: VecDeque<_> = (0..11).map(post).collect();
    // Requests of another thread, which leads them itself.
    let others: Vec<_> = (0..8)
        .map(|n| queue.post(0, n, ThreadId(2)).unwrap())
        .collect();
    queue.executor.gate.close();
    let first = tickets.pop_front().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let answer = Queue::attend(&queue, 0, first, true);
            assert_eq!(answer.ok().unwrap().unwrap(), 0);
        });
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 2);
        assert_eq!(
            queue.job_queue.of(0).len(),
            3 + 8,
            "no full pass of its own"
        );
        queue.executor.gate.open();
    });
    until(|| queue.lock().free.len() == 2);
    // The leader took the oldest, the worker the newest.
    let done: Vec<_> = tickets.iter().map(|ticket| ticket.is_done()).collect();
    assert_eq!(done, [&[true; 3][..], &[false; 3], &[true; 4]].concat());
    assert_eq!(queue.counters.snapshot().pass_fill[..4], [0, 0, 0, 2]);
    assert!(others.iter().all(|ticket| !ticket.is_done()));
    workers::stop(&queue);
}

#[test]
fn nobody_helps_where_no_cpu_is_free() {
    let queue = queue(Simple::default(), 2, 64);
    let post = |number| queue.post(0, number, ThreadId(1)).unwrap();
    let mut tickets: VecDeque<_> = (0..16).map(post).collect();
    queue.executor.gate.close();
    let first = tickets.pop_front().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(queue.ask(1, 1).unwrap(), -2));
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        scope.spawn(|| {
            let answer = Queue::attend(&queue, 0, first, true);
            assert_eq!(answer.ok().unwrap().unwrap(), 0);
        });
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 2);
        assert!(queue.lock().workers.wanted(), "no worker was started");
        queue.executor.gate.open();
    });
    assert_eq!(queue.job_queue.of(0).len(), 12);
}

#[test]
fn a_lone_posted_request_may_be_declined_and_abandoned_ones_are_skipped() {
    let executor = Simple::declining();
    let queue = queue(executor, 1, 2);
    let post = |number| queue.post(0, number, ThreadId(1));
    drop(post(1).unwrap());
    let ticket = post(2).unwrap();
    assert_eq!(post(3).err().unwrap().fallback(), Fallback::QueueFull);
    let declined = attend(&queue, 0, ticket).ok().unwrap().unwrap_err();
    assert_eq!(declined.fallback(), Fallback::Lone);
    assert_eq!(queue.elsewhere.count(), 1);
    drop(declined);
    let (one, two) = (post(4).unwrap(), post(5).unwrap());
    assert_eq!(attend(&queue, 0, two).ok().unwrap().unwrap(), -5);
    assert_eq!(one.take().unwrap(), -4);
    assert_at_rest(&queue, 1);
}

#[test]
fn the_request_of_a_lost_job_leaves_the_job_queue_at_once() {
    let queue = queue(Simple::default(), 1, 2);
    let before = Instant::now();
    let lost = queue.post(0, 1, ThreadId(1)).unwrap();
    let kept = queue.post(0, 2, ThreadId(1)).unwrap();
    assert_eq!(queue.counters.paused(), 2);
    queue.abandon(0, lost);
    assert_eq!(
        (queue.job_queue.of(0).len(), queue.counters.paused()),
        (1, 1)
    );
    queue.abandon(0, kept);
    assert_eq!(
        (queue.job_queue.of(0).len(), queue.counters.paused()),
        (0, 0)
    );
    // Their time here does not count, nor for later requests.
    let after = Instant::now();
    let ticket = queue.post(0, 3, ThreadId(1)).unwrap();
    let mut since = before;
    queue
        .job_queue
        .of(0)
        .take(ticket.completion(), 4, 8, |post| since = post.since);
    assert!(since >= after);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.wait_total_ns, counters.batches), (0, 0));
}

#[test]
fn a_lost_job_gives_its_permit_back_when_its_batch_ends() {
    let queue = queue(Simple::default(), 1, 8);
    queue.executor.gate.close();
    thread::scope(|scope| {
        let lost = queue.post(0, 1, ThreadId(1)).unwrap();
        let leader = queue.post(0, 2, ThreadId(1)).unwrap();
        let queue = &queue;
        scope.spawn(move || {
            let answer = Queue::attend(queue, 0, leader, false);
            assert_eq!(answer.ok().unwrap().unwrap(), -2);
        });
        until(|| queue.executor.inside.load(Ordering::SeqCst) == 1);
        queue.abandon(0, lost);
        queue.executor.gate.open();
    });
    assert_at_rest(&queue, 1);
}

#[test]
fn too_many_lost_jobs_end_all_pauses() {
    let queue = queue(Simple::default(), 1, 8);
    for _ in 0..4 {
        assert!(queue.admits());
        queue.counters.lost();
    }
    assert!(!queue.admits());
    let counters = queue.counters.snapshot();
    assert_eq!(
        (counters.lost, counters.max_lost, counters.max_async),
        (4, 4, 8)
    );
}

#[test]
fn shutting_down_declines_what_was_posted_and_what_comes_later() {
    let queue = queue(Simple::default(), 1, 8);
    let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
    workers::stop(&queue);
    let declined = attend(&queue, 0, ticket).ok().unwrap().unwrap_err();
    assert_eq!(declined.fallback(), Fallback::ShutDown);
    let declined = queue.post(0, 1, ThreadId(1)).err().unwrap();
    assert_eq!(declined.fallback(), Fallback::ShutDown);
    assert_at_rest(&queue, 1);
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
