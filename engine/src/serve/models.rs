//! The routes of jobs, in every interleaving that loom finds.

use lockstep_counters::Fallback;

use super::fake::{End, Fake};
use super::*;
use crate::queue::exploration::{beside, explore};
use crate::queue::simple::{AT_ONCE, IN_COMPANY, Simple, queue};
use crate::queue::workers;

fn job(queue: &Arc<Queue<Simple>>, fake: &Fake, number: i64) -> Answer<Simple> {
    Route::of(queue, fake, 0).serve(queue, fake, 0, number)
}

/// Serves a short operation, for which a job does not pause.
fn short(queue: &Arc<Queue<Simple>>, fake: &Fake, number: i64) {
    let answer = Route::of(queue, fake, AT_ONCE).serve(queue, fake, AT_ONCE, number);
    assert_eq!(answer.unwrap(), -number - AT_ONCE as i64);
}

/// A connection whose signature pauses has short operations before it and after it. There is no
/// slot, and another thread leads the posted requests.
#[test]
fn a_job_that_computes_at_once_waits_for_nobody() {
    explore(|| {
        let queue = queue(Simple::default(), 0, 8);
        let other = beside(&queue, move |queue| {
            let mut fake = Fake::job();
            fake.thread = 2;
            short(&queue, &fake, 1);
            assert_eq!(job(&queue, &fake, 2).unwrap(), -2);
        });
        short(&queue, &Fake::job(), 3);
        assert_eq!(job(&queue, &Fake::job(), 4).unwrap(), -4);
        short(&queue, &Fake::job(), 5);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
    });
}

/// Two threads have an RSA request and a short one each, which pauses since the other has.
#[test]
fn jobs_in_company_get_their_answers() {
    explore(|| {
        let queue = queue(Simple::default(), 0, 8);
        let both = |queue: &Arc<Queue<Simple>>, fake: &Fake, number| {
            assert_eq!(job(queue, fake, number).unwrap(), -number);
            let answer = Route::of(queue, fake, IN_COMPANY).serve(queue, fake, IN_COMPANY, number);
            assert_eq!(answer.unwrap(), -number - IN_COMPANY as i64);
        };
        let other = beside(&queue, move |queue| {
            let mut fake = Fake::job();
            fake.thread = 2;
            both(&queue, &fake, 1);
        });
        both(&queue, &Fake::job(), 2);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
    });
}

#[test]
fn a_job_that_leads_and_a_thread_get_their_answers() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            assert_eq!(job(&queue, &Fake::thread(), 1).unwrap(), -1);
        });
        assert_eq!(job(&queue, &Fake::job(), 2).unwrap(), -2);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
    });
}

#[test]
fn jobs_of_two_threads_get_their_answers_though_resumed_early() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            let mut fake = Fake::job();
            fake.thread = 2;
            assert_eq!(job(&queue, &fake, 1).unwrap(), -1);
        });
        assert_eq!(job(&queue, &Fake::job(), 2).unwrap(), -2);
        other.join().unwrap();
        assert_eq!(queue.counters.paused(), 0);
    });
}

#[test]
fn a_job_that_a_worker_serves_gets_its_answer() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let mut fake = Fake::job();
        fake.has_callback = true;
        assert_eq!(job(&queue, &fake, 2).unwrap(), -2);
        workers::stop(&queue);
        assert_eq!(fake.wake_ups.count(), 1);
        assert_eq!(queue.counters.paused(), 0);
    });
}

#[test]
fn a_job_that_is_lost_leaves_nothing() {
    explore(|| {
        let queue = queue(Simple::default(), 1, 8);
        let other = beside(&queue, move |queue| {
            let mut fake = Fake::job();
            (fake.gives_way, fake.thread) = (End::Failed, 2);
            let declined = job(&queue, &fake, 1).unwrap_err();
            assert_eq!(declined.fallback(), Fallback::ShutDown);
        });
        assert_eq!(job(&queue, &Fake::job(), 2).unwrap(), -2);
        other.join().unwrap();
        // The next leader skips the abandoned request.
        assert_eq!(job(&queue, &Fake::job(), 3).unwrap(), -3);
        assert_eq!(queue.counters.paused(), 0);
    });
}
