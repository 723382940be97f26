//! A service whose source is the test itself.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::fake::{Board, Post, Posts};
use super::*;
use crate::policy::LONGEST_BATCH;
use crate::queue::simple::{HELD, Simple, service};
use crate::sync::Arc;

const SOON: Duration = Duration::from_millis(50);
const IN_TIME: Duration = Duration::from_secs(20);

/// A queue with its source.
struct Bed {
    queue: Arc<Queue<Simple>>,
    board: Arc<Board>,
    source: Mutex<Posts>,
}

impl Bed {
    fn new(slots: usize) -> Bed {
        let queue = service(Simple::default(), slots);
        let board = Board::new();
        let source = Board::source(&board, &queue);
        Bed {
            queue,
            board,
            source,
        }
    }

    fn enter(&self, posts: impl IntoIterator<Item = Post>) {
        posts.into_iter().for_each(|post| self.board.post(post));
        lock(&self.source).collect(false);
    }

    /// Takes the next batch, if one may start now.
    fn batch(&self) -> Option<Batch<Simple>> {
        let state = self.queue.lock();
        let shape = self.queue.ready(&state)?;
        Some(self.queue.take_batch(state, shape, Slot::new()))
    }

    /// Returns the accounts of a batch.
    fn accounts(batch: &Batch<Simple>) -> Vec<u64> {
        let account = |owner: &Owner<Simple>| match owner {
            Owner::Reply(account, _) => account.0,
            _ => panic!("it was not posted"),
        };
        batch.slot.owners.iter().map(account).collect()
    }

    fn set_pass_time(&self, shape: usize, time: Duration) {
        self.queue.lock().line(shape).view.pass_time = time;
    }

    fn clock(&self, shape: usize) -> u64 {
        let state = self.queue.lock();
        state.turns.first(shape).expect("one waits").0
    }

    fn answers(&self) -> Vec<(i64, Option<i64>)> {
        self.board.answers()
    }
}

fn posts(account: u64, shape: usize, count: i64) -> impl Iterator<Item = Post> {
    (0..count).map(move |number| Post::new(account, shape, number))
}

#[test]
fn an_account_is_not_served_after_all_that_another_one_has_posted() {
    let bed = Bed::new(1);
    bed.enter(posts(7, 0, 8).chain(posts(8, 0, 1)));
    let first = bed.batch().expect("nine wait");
    let order = Bed::accounts(&first);
    assert_eq!(order[..2], [7, 8], "{order:?}");
    // In another shape, too.
    bed.queue.serve_batch(first);
    bed.enter(posts(9, 1, 1));
    let orders: Vec<_> = (0..2)
        .map(|_| Bed::accounts(&bed.batch().expect("some wait")))
        .collect();
    assert_eq!(orders, [vec![9], vec![7; 4]]);
}

#[test]
fn a_second_batch_of_a_shape_starts_once_a_pass_is_full() {
    let bed = Bed::new(1);
    bed.enter(posts(7, 0, 1));
    let running = bed.batch().expect("one waits");
    bed.enter(posts(7, 0, 3));
    assert!(bed.batch().is_none());
    bed.enter(posts(7, 0, 1));
    let full = bed.batch().expect("a pass is full");
    assert_eq!(full.slot.jobs.len(), 4);
    // Once none runs, one request is enough again.
    bed.enter(posts(7, 0, 1));
    bed.queue.serve_batch(running);
    assert!(bed.batch().is_none());
    bed.queue.serve_batch(full);
    assert_eq!(bed.batch().expect("one waits").slot.jobs.len(), 1);
}

#[test]
fn of_one_account_the_oldest_request_goes_first() {
    let bed = Bed::new(1);
    bed.enter(posts(7, 1, 1).chain(posts(7, 0, 1)));
    let mut shapes = Vec::new();
    while shapes.len() < 4 {
        let batch = bed.batch().expect("both wait");
        let shape = batch.shape;
        bed.enter(posts(7, shape, 1));
        bed.queue.serve_batch(batch);
        shapes.push(shape);
    }
    assert_eq!(shapes, [1, 0, 1, 0]);
}

#[test]
fn while_long_batches_take_all_slots_shorter_ones_are_served() {
    let bed = Bed::new(1);
    bed.set_pass_time(0, 2 * LONGEST_BATCH);
    bed.set_pass_time(1, LONGEST_BATCH / 10);
    bed.enter(posts(7, 0, 32));
    let long = bed.batch().expect("they wait");
    // However many requests an account has posted, others wait for at most one pass of it.
    assert_eq!((long.is_long, long.slot.jobs.len()), (true, 4));
    assert!(bed.batch().is_none(), "a second thread would serve it");
    bed.enter(posts(8, 1, 1));
    let short = bed.batch().expect("one waits");
    assert_eq!((short.shape, short.is_long), (1, false));
    bed.queue.serve_batch(long);
    bed.set_pass_time(0, 2 * LONGEST_BATCH);
    assert!(bed.batch().expect("more wait").is_long);
}

#[test]
fn one_thread_more_serves_while_a_long_batch_runs() {
    let bed = Bed::new(1);
    let slot = bed.queue.wait_for_slot();
    let (begun, begins) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for place in 0..2 {
                let slot = bed.queue.wait_for_slot();
                begun.send(place).expect("the test");
                bed.queue.lock().free.push(slot);
                // The test may wait for it already.
                bed.queue.assignment.notify_all();
            }
        });
        assert!(begins.recv_timeout(SOON).is_err());
        bed.set_pass_time(0, 2 * LONGEST_BATCH);
        bed.enter(posts(7, 0, 1));
        let state = bed.queue.lock();
        let batch = bed.queue.take_batch(state, 0, slot);
        for place in 0..2 {
            assert_eq!(begins.recv_timeout(IN_TIME), Ok(place), "it still runs");
        }
        let other = bed.queue.wait_for_slot();
        bed.queue.serve_batch(batch);
        // When no long batch runs, one slot stays free, and a further thread waits.
        let (paused, pauses) = channel();
        let queue = &bed.queue;
        scope.spawn(move || {
            let slot = queue.wait_for_slot();
            paused.send(()).expect("the test");
            queue.lock().free.push(slot);
        });
        assert!(pauses.recv_timeout(SOON).is_err());
        bed.queue.end_service();
        assert_eq!(pauses.recv_timeout(IN_TIME), Ok(()));
        bed.queue.lock().free.push(other);
    });
    assert_eq!(bed.queue.lock().free.len(), 2);
}

#[test]
fn what_nobody_waits_for_any_more_costs_nothing() {
    let bed = Bed::new(1);
    let mut gone = Post::new(7, 0, 1);
    gone.is_gone = true;
    bed.enter([gone, Post::new(7, 0, 2), gone, Post::new(7, 1, 3)]);
    let batch = bed.batch().expect("one is wanted");
    assert_eq!(bed.clock(1), 3 * batch.estimate);
    let (began, estimate) = (Instant::now(), batch.estimate);
    bed.queue.serve_batch(batch);
    let longest = began.elapsed().as_nanos() as u64;
    assert_eq!(bed.answers(), [(2, Some(-2))]);
    assert!(bed.clock(1) <= longest, "{estimate} {longest}");
    // The rest of it goes at once when a thread looks.
    bed.enter([gone, gone]);
    bed.queue.forget_gone();
    assert_eq!(bed.queue.waiting(), 1);
    assert_eq!(bed.queue.lock().line(0).view.waiting, 0);
}

/// A request that is refused at its turn is charged to its account, and to no other.
#[test]
fn accounts_are_charged_what_was_computed_for_them() {
    let bed = Bed::new(1);
    let unfit = Post {
        is_fit: false,
        ..Post::new(7, 0, 1)
    };
    bed.enter([unfit, Post::new(8, 0, 2)]);
    // By these the clocks can be seen.
    let batch = bed.batch().expect("two wait");
    bed.enter([Post::new(7, 1, 3), Post::new(8, 2, 4)]);
    assert_eq!([1, 2].map(|shape| bed.clock(shape)), [batch.estimate; 2]);
    let longest = Instant::now();
    bed.queue.serve_batch(batch);
    let longest = longest.elapsed().as_nanos() as u64;
    let mut answers = bed.answers();
    answers.sort_unstable();
    assert_eq!(answers, [(1, None), (2, Some(-2))]);
    let [refused, served] = [1, 2].map(|shape| bed.clock(shape));
    assert!(refused + served <= longest, "{refused} {served} {longest}");
    assert!(served > 0 && bed.queue.lock().line(0).view.pass_time > Duration::ZERO);
    // A refused request does not change the time of a pass.
    let before = bed.queue.lock().line(1).view.pass_time;
    bed.enter([Post { shape: 1, ..unfit }]);
    while let Some(batch) = bed.batch() {
        bed.queue.serve_batch(batch);
    }
    assert_eq!(before, Duration::ZERO);
    assert_eq!(bed.queue.lock().line(1).view.running, 0);
}

/// Takes a batch after its wait, and returns the number of its requests.
fn waits(bed: &Bed, shape: usize, company: usize, comes: &[Post]) -> usize {
    for post in comes {
        bed.board.post(*post);
    }
    let mut source = lock(&bed.source);
    source.company = company;
    let state = bed.queue.lock();
    let before = state.turns.total();
    let state = bed.queue.sleep_for_company(state, shape, &mut *source);
    state.turns.total() - before
}

#[test]
fn others_are_waited_for_where_all_may_wait_or_they_come_often() {
    let time = Duration::from_millis(20);
    let waits = |interval: Duration, shapes: [usize; 2], can_wait: [bool; 2], company| {
        let bed = Bed::new(1);
        bed.set_pass_time(0, time);
        let both = shapes.into_iter().zip(can_wait);
        bed.enter(both.map(|(shape, can_wait)| Post {
            can_wait,
            ..Post::new(7, shape, 1)
        }));
        bed.queue.lock().line(0).pace.mean = interval;
        waits(&bed, 0, company, &[Post::new(8, 0, 2)]) > 0
    };
    let (often, seldom) = (time, 5 * time);
    let (rsa, urgent, patient) = ([0, 0], [false, false], [true, true]);
    assert!(waits(often, rsa, urgent, 8));
    assert!(waits(seldom, rsa, patient, 8));
    assert!(!waits(seldom, rsa, [false, true], 8));
    assert!(!waits(seldom, rsa, urgent, 8));
    assert!(!waits(often, [0, 1], urgent, 8), "others wait");
    assert!(!waits(often, rsa, patient, 2), "nobody else asks");
}

#[test]
fn what_shares_no_batches_waits_for_nobody() {
    let bed = Bed::new(1);
    let shape = crate::queue::simple::AT_ONCE;
    bed.set_pass_time(shape, IN_TIME);
    bed.enter([Post {
        can_wait: true,
        ..Post::new(7, shape, 1)
    }]);
    assert_eq!(waits(&bed, shape, 8, &[Post::new(8, shape, 2)]), 0);
}

#[test]
fn what_gathers_while_a_batch_runs_is_served_after_it_and_all_at_the_end() {
    let bed = Bed::new(2);
    bed.queue.executor.held.close();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| bed.queue.serve_from(&bed.source, &|_| bed.board.wake()));
        }
        bed.board.post(Post::new(7, 0, HELD));
        let inside = || bed.queue.executor.inside.load(Ordering::SeqCst);
        while inside() == 0 {
            thread::yield_now();
        }
        (0..3).for_each(|number| bed.board.post(Post::new(7, 0, number)));
        thread::sleep(SOON);
        assert_eq!(bed.answers(), [], "less than a pass waits for the batch");
        bed.queue.executor.held.open();
        while bed.answers().len() < 4 {
            thread::yield_now();
        }
        (10..30).for_each(|number| bed.board.post(Post::new(7, 1, number)));
        bed.queue.end_service();
        bed.board.wake();
    });
    assert_eq!(bed.answers().len(), 24);
    assert_eq!(bed.queue.lock().free.len(), 3);
    assert_eq!(bed.queue.waiting(), 0);
}
