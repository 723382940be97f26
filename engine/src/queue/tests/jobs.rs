//! Jobs that lead the requests of their thread, and workers that help.

use super::*;

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
