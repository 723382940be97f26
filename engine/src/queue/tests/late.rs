//! Requests that would wait too long, leaders that do not come back, and jobs that wait for them.

use super::*;

/// Sets the time of a pass of a shape.
fn set_pass_time(queue: &Queue<Simple>, shape: usize, pass_time: Duration) {
    queue.lock().line(shape).view.pass_time = pass_time;
}

/// Returns the number of requests that were declined as late.
fn late(queue: &Queue<Simple>) -> u64 {
    queue.counters.snapshot().fallbacks_for(Fallback::Late)
}

/// The thread may have left its operation by siglongjmp, may be stopped, or may get no CPU.
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
fn leaders_that_do_not_come_back_are_replaced_up_to_a_limit() {
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

/// Returns zero if no shape has a leader, a running batch, or a request that either of them has.
fn sums(queue: &Queue<Simple>) -> usize {
    let state = queue.lock();
    let views = state.lines.iter().map(|line| line.view);
    let sum = |view: View| view.leaders + view.in_hand + view.running + view.in_batches;
    views.map(sum).sum()
}

/// A program uses siglongjmp for its timeouts. A request that had to wait would wait for hours.
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
fn a_thread_that_waits_for_a_leader_that_has_left_goes_on() {
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
fn a_thread_without_a_leader_computes_its_request_where_lanes_are_to_serve_all() {
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
    // A request of this shape would wait for a minute before its thread leaves.
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

/// Any number of requests wait, as long as batches run as expected.
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

/// If no worker can be started, other threads that call the engine wake the job.
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

/// No other thread can wake the job.
#[test]
fn a_job_blocks_its_thread_for_a_bounded_time() {
    let queue = impatient(Simple::default(), 1, Duration::from_micros(100));
    set_pass_time(&queue, 0, Duration::from_micros(100));
    let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
    let declined = queue.take_in_time(0, ticket).unwrap_err();
    assert_eq!(declined.fallback(), Fallback::Late);
    assert_eq!((late(&queue), queue.counters.paused()), (1, 1));
}
