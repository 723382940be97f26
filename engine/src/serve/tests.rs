//! Every route of an operation.

use std::sync::atomic::Ordering;
use std::thread;

use lockstep_counters::Fallback;
use lockstep_ops::operation::{Ed25519Sign, Keygen};
use lockstep_ops::{Backend, Ed25519Key, Ed25519SignInput, Kem, KeyKind};

use super::fake::{End, Fake};
use super::*;
use crate::caller::{Pending, ThreadId};
use crate::config::{BackendChoice, Config};
use crate::pause::wait_for_another;
use crate::policy::Lone;
use crate::queue::simple::{AT_ONCE, IN_COMPANY, Simple, queue};
use crate::queue::workers;

/// Serves a number, whose right answer is its negative.
fn ask(queue: &Arc<Queue<Simple>>, fake: &Fake, number: i64) -> Answer<Simple> {
    Route::of(queue, fake, 0).serve(queue, fake, 0, number)
}

fn reason(answer: Answer<Simple>) -> Fallback {
    answer.unwrap_err().fallback()
}

/// Returns whether a worker was started.
fn has_worker(queue: &Queue<Simple>) -> bool {
    !queue.lock().workers.wanted()
}

#[test]
fn a_thread_leads() {
    let queue = queue(Simple::default(), 1, 8);
    assert_eq!(ask(&queue, &Fake::thread(), 3).unwrap(), -3);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.batches, counters.async_submitted), (1, 0));
}

/// As a leader it would get a CPU only when no other thread wants one.
#[test]
fn a_thread_of_low_priority_is_sent_to_openssl_or_computes_alone() {
    let engine = Engine::new(Config {
        backend: BackendChoice::Named(Backend::PORTABLE),
        ..Config::default()
    });
    let mut low = Fake::thread();
    low.is_low = true;
    for keygen in [Keygen(KeyKind::X25519), Keygen(KeyKind::Kem(Kem::MlKem768))] {
        // The second time there is a pool.
        for _ in 0..2 {
            let declined = match engine.serve(keygen, || Some(()), &low) {
                Outcome::Declined(declined) => declined.fallback(),
                outcome => panic!("{outcome:?}"),
            };
            assert_eq!(declined, Fallback::LowPriority);
            let made = engine.serve_at_once(keygen, || Some(()), &low);
            assert!(matches!(made, Outcome::Done(_)));
        }
    }
    let counters = engine.metrics();
    assert_eq!(counters.fallbacks_for(Fallback::LowPriority), 4);
    assert_eq!(counters.batches, 4);
}

#[test]
fn without_room_on_the_stack_the_request_is_declined() {
    let queue = queue(Simple::default(), 1, 8);
    for mut fake in [Fake::thread(), Fake::job()] {
        fake.has_room = false;
        assert_eq!(reason(ask(&queue, &fake, 3)), Fallback::NoStack);
    }
    let counters = queue.counters.snapshot();
    assert_eq!(counters.fallbacks_for(Fallback::NoStack), 2);
}

#[test]
fn a_job_posts_gives_way_and_leads_what_its_thread_has_posted() {
    let queue = queue(Simple::default(), 1, 8);
    let earlier = queue.post(0, 1, ThreadId(1)).unwrap();
    assert_eq!(ask(&queue, &Fake::job(), 2).unwrap(), -2);
    assert_eq!(earlier.try_take().ok().unwrap().unwrap(), -1);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.batches, counters.async_submitted), (1, 2));
    assert!(!has_worker(&queue));
}

#[test]
fn a_job_that_is_alone_may_be_declined_after_it_gave_way() {
    let queue = queue(Simple::declining(), 1, 8);
    assert_eq!(reason(ask(&queue, &Fake::job(), 2)), Fallback::Lone);
}

#[test]
fn what_waits_for_no_company_is_computed_at_once() {
    // There is neither a slot nor a permit to pause, and no thread could wake a job.
    let queue = queue(Simple::default(), 0, 0);
    for (mut fake, has_callback) in [
        (Fake::thread(), false),
        (Fake::job(), false),
        (Fake::job(), true),
    ] {
        fake.meanwhile = || panic!("it gave way");
        (fake.can_pause, fake.wakeable, fake.has_callback) = (false, false, has_callback);
        let route = Route::of(&queue, &fake, AT_ONCE);
        assert!(matches!(route, Route::AtOnce));
        let answer = route.serve(&queue, &fake, AT_ONCE, 3);
        assert_eq!(answer.unwrap(), -3 - AT_ONCE as i64);
        fake.has_room = false;
        let answer = Route::of(&queue, &fake, AT_ONCE).serve(&queue, &fake, AT_ONCE, 3);
        assert_eq!(reason(answer), Fallback::NoStack);
    }
    let counters = queue.counters.snapshot();
    assert_eq!((counters.batches, counters.batch_fill[0]), (3, 3));
    assert_eq!((counters.async_submitted, counters.unpaused), (0, 0));
}

#[test]
fn what_is_computed_at_once_is_declined_where_openssl_is_faster() {
    for (executor, declines) in [(Simple::default(), false), (Simple::declining(), true)] {
        let queue = queue(executor, 1, 8);
        let declined =
            Route::of(&queue, &Fake::job(), AT_ONCE).declines(&queue, AT_ONCE, ThreadId(1));
        let reason = declined.as_ref().map(Declined::fallback);
        assert_eq!(reason, declines.then_some(Fallback::Lone));
        let paused = Route::of(&queue, &Fake::job(), 0).declines(&queue, 0, ThreadId(1));
        assert!(paused.is_none(), "it may meet others");
    }
}

#[test]
fn a_job_that_nothing_can_resume_leads_without_a_pause() {
    let queue = queue(Simple::default(), 1, 8);
    let mut fake = Fake::job();
    fake.gives_way = End::Unwakeable;
    assert_eq!(ask(&queue, &fake, 3).unwrap(), -3);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.unpaused, counters.no_descriptor), (1, 1));
}

#[test]
fn a_pause_that_fails_ends_the_request() {
    let queue = queue(Simple::default(), 1, 8);
    let mut fake = Fake::job();
    fake.gives_way = End::Failed;
    assert_eq!(reason(ask(&queue, &fake, 3)), Fallback::ShutDown);
    fake.has_callback = true;
    fake.waits = End::Failed;
    assert_eq!(reason(ask(&queue, &fake, 3)), Fallback::ShutDown);
    let counters = queue.counters.snapshot();
    assert_eq!(counters.fallbacks(), 0, "the caller counts it");
    workers::stop(&queue);
    assert_eq!(queue.counters.paused(), 0);
}

/// Has another thread take the request of a job before the job is resumed.
fn served_elsewhere(wakeable: bool) {
    let queue = queue(Simple::default(), 1, 8);
    queue.executor.gate.close();
    let mut fake = Fake::job();
    (fake.wakeable, fake.awaited) = (wakeable, 1);
    thread::scope(|scope| {
        // Another thread's job takes the request, to fill its pass.
        let ticket = queue.post(0, 1, ThreadId(1)).unwrap();
        scope.spawn(|| {
            let other = queue.post(0, 2, ThreadId(2)).unwrap();
            assert_eq!(
                Queue::attend(&queue, 0, other, false)
                    .ok()
                    .unwrap()
                    .unwrap(),
                -2
            );
        });
        while queue.executor.inside.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let ticket = Queue::attend(&queue, 0, ticket, false).expect_err("it runs elsewhere");
        scope.spawn(|| {
            thread::sleep(std::time::Duration::from_millis(20));
            queue.executor.gate.open();
        });
        let mut entrance = Entrance {
            queue: &queue,
            caller: &fake,
            shape: 0,
        };
        let claim = entrance.claim(ticket, false);
        let answer = wait_for_another(&mut entrance, &fake, claim);
        assert_eq!(answer.unwrap(), -1);
    });
    assert_eq!(fake.wake_ups.count(), usize::from(wakeable));
}

#[test]
fn a_job_waits_for_the_thread_that_has_its_request() {
    served_elsewhere(true);
    served_elsewhere(false);
}

#[test]
fn a_job_with_a_callback_is_served_by_a_worker() {
    let queue = queue(Simple::default(), 1, 8);
    let mut fake = Fake::job();
    (fake.has_callback, fake.awaited) = (true, 1);
    fake.meanwhile = || panic!("it gave way");
    assert_eq!(ask(&queue, &fake, 3).unwrap(), -3);
    assert_eq!(fake.wake_ups.count(), 1);
    assert!(has_worker(&queue));
    workers::stop(&queue);
}

#[test]
fn a_job_that_is_resumed_early_still_gets_its_answer() {
    let queue = queue(Simple::default(), 1, 8);
    for waits in [End::Resumed, End::Unwakeable] {
        let mut fake = Fake::job();
        (fake.has_callback, fake.waits) = (true, waits);
        assert_eq!(ask(&queue, &fake, 3).unwrap(), -3);
    }
    workers::stop(&queue);
}

#[test]
fn a_job_blocks_its_thread_where_it_must_not_pause() {
    let queue = queue(Simple::default(), 1, 8);
    let mut fake = Fake::job();
    fake.can_pause = false;
    assert_eq!(ask(&queue, &fake, 3).unwrap(), -3);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.unpaused, counters.no_descriptor), (1, 0));
    // Without a waker for a job that workers would serve.
    fake = Fake::job();
    (fake.has_callback, fake.wakeable) = (true, false);
    assert_eq!(ask(&queue, &fake, 3).unwrap(), -3);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.unpaused, counters.no_descriptor), (2, 1));
    // Beyond the bound of lost jobs.
    (0..4).for_each(|_| queue.counters.lost());
    assert_eq!(ask(&queue, &Fake::job(), 3).unwrap(), -3);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.unpaused, counters.async_submitted), (3, 0));
    assert!(!has_worker(&queue));
}

#[test]
fn without_workers_jobs_block_for_a_second() {
    let mut queue = queue(Simple::default(), 1, 8);
    Arc::get_mut(&mut queue).unwrap().start_thread = |_| {};
    let mut fake = Fake::job();
    fake.has_callback = true;
    assert_eq!(reason(ask(&queue, &fake, 3)), Fallback::NoWorkers);
    assert_eq!(ask(&queue, &fake, 3).unwrap(), -3);
    let counters = queue.counters.snapshot();
    assert_eq!((counters.unpaused, counters.no_descriptor), (1, 0));
}

/// Makes an engine on portable lanes, with these settings.
fn engine(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config {
        backend: BackendChoice::Named(Backend::PORTABLE),
        slots: 1,
        ..Config::default()
    };
    change(&mut config);
    Engine::new(config)
}

fn key() -> Ed25519SignInput {
    Ed25519SignInput {
        key: Arc::new(Ed25519Key::new(&[7; 32]).unwrap()),
        message: vec![1, 2, 3].into(),
    }
}

#[test]
fn what_would_run_alone_is_declined_before_its_input_is_made() {
    let engine = engine(|config| config.lone = Lone::Stock);
    let input = || panic!("it was made");
    let outcome = engine.serve(Ed25519Sign, input, &Fake::thread());
    assert!(matches!(outcome, Outcome::Declined(Declined::Lone(_))));
    assert_eq!(engine.metrics().fallbacks_for(Fallback::Lone), 1);
}

#[test]
fn an_input_that_cannot_be_made_asks_nothing() {
    let engine = engine(|_| {});
    for fake in [Fake::thread(), Fake::job()] {
        let outcome = engine.serve(Ed25519Sign, || None, &fake);
        assert!(matches!(outcome, Outcome::NotAsked));
    }
    assert!(!engine.metrics().has_counted());
}

#[test]
fn a_pooled_key_pair_needs_neither_pause_nor_room() {
    let engine = engine(|_| {});
    let kind = KeyKind::X25519;
    let first = engine.serve(Keygen(kind), || Some(()), &Fake::job());
    let Outcome::Done(first) = first else {
        panic!("{first:?}")
    };
    let mut fake = Fake::job();
    (fake.has_room, fake.can_pause) = (false, false);
    let input = || panic!("it was made");
    match engine.serve(Keygen(kind), input, &fake) {
        Outcome::Done(second) => assert_ne!(first.public, second.public),
        other => panic!("{other:?}"),
    }
    let counters = engine.metrics();
    assert_eq!((counters.pool_hits, counters.unpaused), (1, 0));
}

#[test]
fn a_job_pauses_for_a_short_operation_in_company_only() {
    let queue = queue(Simple::default(), 1, 8);
    let route = |fake: &Fake| Route::of(&queue, fake, IN_COMPANY);
    assert!(matches!(route(&Fake::job()), Route::AtOnce));
    for _ in 0..4 {
        assert_eq!(ask(&queue, &Fake::job(), 2).unwrap(), -2);
    }
    assert!(matches!(route(&Fake::thread()), Route::AtOnce));
    let mut fake = Fake::job();
    fake.thread = 2;
    assert!(matches!(route(&fake), Route::AtOnce), "on another thread");
    let other = queue.post(IN_COMPANY, 5, ThreadId(1)).unwrap();
    let paused = route(&Fake::job());
    assert!(matches!(paused, Route::Pause(_)));
    let answer = paused.serve(&queue, &Fake::job(), IN_COMPANY, 6);
    assert_eq!(answer.unwrap(), -6 - IN_COMPANY as i64);
    let answer = other.try_take().ok().unwrap();
    assert_eq!(answer.unwrap(), -5 - IN_COMPANY as i64, "in the same batch");
    fake = Fake::job();
    fake.has_callback = true;
    assert!(matches!(route(&fake), Route::AtOnce), "for no worker");
    fake = Fake::job();
    fake.can_pause = false;
    assert!(matches!(route(&fake), Route::AtOnce), "it may not");
    let _paused: Vec<_> = (0..8).map(|n| queue.post(0, n, ThreadId(1))).collect();
    assert!(matches!(route(&Fake::job()), Route::AtOnce), "too many do");
    assert_eq!(queue.counters.snapshot().unpaused, 0);
}

#[test]
fn without_lanes_the_reason_is_counted_once() {
    let engine = engine(|config| config.backend = BackendChoice::None);
    for fake in [Fake::thread(), Fake::job()] {
        let outcome = engine.serve(Ed25519Sign, || Some(key()), &fake);
        assert!(matches!(outcome, Outcome::Declined(Declined::NoBackend)));
    }
    assert_eq!(engine.metrics().fallbacks(), 2);
}

#[test]
fn a_lost_job_takes_its_request_along() {
    let engine = engine(|_| {});
    let queue = engine.queue();
    let shape = Shape::Ed25519Sign;
    let request = GuardedRequest::from(Ed25519Sign.request(key()));
    let ticket = queue.post(shape, request, ThreadId(1)).unwrap();
    let kept: Pending = Box::new(Claim {
        queue: Arc::clone(queue),
        shape,
        ticket: Some(ticket),
        is_posted: true,
    });
    assert_eq!(engine.metrics().paused, 1);
    drop(kept);
    assert_eq!(engine.metrics().paused, 0);
}
