//! Each rule of the queue, by itself.

use super::*;

const POLICY: Policy = Policy {
    slots: 2,
    gathering: Gathering::Yield,
    patience: Some(Patience::USUAL),
};
const IDLE: View = View {
    waiting: 0,
    threads: 0,
    leaders: 0,
    in_hand: 0,
    running: 0,
    in_batches: 0,
    last: 0,
    elsewhere: 0,
    pass: 4,
    batch: 8,
    pass_time: Duration::ZERO,
};

const MICROSECOND: Duration = Duration::from_micros(1);

/// Returns a view with passes of this number of microseconds.
fn measured(microseconds: u32, view: View) -> View {
    let pass_time = MICROSECOND * microseconds;
    View { pass_time, ..view }
}

#[test]
fn a_request_waits_as_long_as_openssl_would_take_for_all_in_front() {
    let wait = |view: &View| POLICY.longest_expected_wait(view).unwrap();
    let rsa2048 = measured(600, IDLE);
    assert_eq!(wait(&rsa2048), MICROSECOND * 1200);
    // Two full batches run, and 48 requests wait. The last request is served after four rounds of
    // two passes, the running round among them: 4.8 ms.
    let crowd = View {
        waiting: 48,
        threads: 48,
        running: 2,
        in_batches: 16,
        ..rsa2048
    };
    assert_eq!(wait(&crowd), MICROSECOND * 2 * 600 * 33);
    assert!(wait(&crowd) > 4 * (MICROSECOND * 4800));
    // If batches are late, a request may wait longer.
    let most = Patience::USUAL.most;
    assert_eq!(POLICY.longest_wait(&crowd), Some(most));
    let slow = measured(6000, crowd);
    assert_eq!(POLICY.longest_wait(&slow), Some(wait(&slow)));
    // A short request may wait for a batch of other short requests.
    assert_eq!(wait(&measured(50, IDLE)), Patience::USUAL.expected);
    // No pass was measured.
    assert_eq!(wait(&IDLE), 2 * UNKNOWN);
    let endless = Policy {
        patience: None,
        ..POLICY
    };
    assert_eq!(endless.longest_wait(&crowd), None);
    assert_eq!(endless.longest_pause(&crowd), None);
    assert!(!endless.gives_up(&crowd, 1, Duration::MAX));
}

#[test]
fn a_short_request_does_not_wait_for_a_long_batch() {
    let (rsa4096, p256) = (measured(4300, IDLE), measured(50, IDLE));
    let left = POLICY.time_left(&rsa4096, 2, MICROSECOND * 1000);
    assert_eq!(left, MICROSECOND * 7600);
    assert!(left > POLICY.longest_expected_wait(&p256).unwrap());
    assert!(left < POLICY.longest_expected_wait(&rsa4096).unwrap());
    // A late batch may end at any time, until its leader is given up.
    let late = |elapsed: u32| POLICY.time_left(&rsa4096, 1, MICROSECOND * elapsed);
    assert_eq!(late(5300), Duration::ZERO);
    assert_eq!(late(200_000), Duration::MAX);
}

#[test]
fn a_leader_is_given_up_after_many_times_its_time() {
    let (long, short) = (measured(10_000, IDLE), measured(50, IDLE));
    let ms = Duration::from_millis;
    assert!(!POLICY.gives_up(&long, 2, ms(320)));
    assert!(POLICY.gives_up(&long, 2, ms(321)));
    assert!(!POLICY.gives_up(&short, 1, ms(100)));
    assert!(POLICY.gives_up(&short, 1, ms(101)));
    // A job is not woken before the leader may be given up.
    assert_eq!(POLICY.longest_pause(&short), Some(ms(100)));
    // If lanes are to serve all requests, a thread waits longer for the batch that has its
    // request. It does not wait longer for a slot.
    let lanes = Policy {
        patience: Some(Patience::of(Lone::Lanes)),
        ..POLICY
    };
    assert_eq!(lanes.longest_wait(&short), POLICY.longest_wait(&short));
    assert_eq!(POLICY.waits_for_batch(), None);
    assert_eq!(lanes.waits_for_batch(), Some([ms(1000), ms(10_000)]));
    assert!(!lanes.gives_up(&short, 1, ms(1000)) && lanes.gives_up(&short, 1, ms(1001)));
}

#[test]
fn the_time_of_a_pass_is_the_median() {
    let mut pass_time = Duration::ZERO;
    note_batch(&mut pass_time, MICROSECOND * 1000, 2);
    assert_eq!(pass_time, MICROSECOND * 500);
    // Every eighth batch is held up for long.
    for batch in 0..800 {
        let took = if batch % 8 == 0 { 400_000 } else { 100 };
        note_batch(&mut pass_time, MICROSECOND * took, 1);
    }
    assert!((MICROSECOND * 90..MICROSECOND * 120).contains(&pass_time));
    // All batches get slower.
    for _ in 0..100 {
        note_batch(&mut pass_time, MICROSECOND * 800, 1);
    }
    assert!((MICROSECOND * 740..MICROSECOND * 860).contains(&pass_time));
    for _ in 0..1000 {
        note_batch(&mut pass_time, Duration::ZERO, 1);
    }
    assert!(pass_time > Duration::ZERO, "it stays known");
}

/// The rules of a service with one thread.
const SERVICE: Policy = Policy {
    slots: 1,
    gathering: Gathering::Sleep,
    patience: None,
};

#[test]
fn a_batch_of_a_service_is_as_long_as_others_may_wait_and_holds_full_passes() {
    let crowd = View {
        waiting: 1000,
        batch: 64,
        ..IDLE
    };
    let most = |pass, time| {
        SERVICE.share(&View {
            pass,
            ..measured(time, crowd)
        })
    };
    for pass in [4, 8] {
        assert_eq!([most(pass, 10_000_000), most(pass, 1000)], [pass; 2]);
        assert_eq!([most(pass, 501), most(pass, 500)], [pass, 2 * pass]);
        assert_eq!([most(pass, 1), most(pass, 10)], [64; 2]);
        // Before a pass was measured.
        assert_eq!(most(pass, 0), pass);
    }
    assert_eq!([most(1, 10), most(1, 10_000)], [1; 2]);
}

#[test]
fn a_pass_that_takes_longer_than_others_may_wait_is_long() {
    let longest = LONGEST_BATCH.as_micros() as u32;
    let waiting = View { waiting: 1, ..IDLE };
    for (time, is_long) in [(0, false), (longest, false), (longest + 1, true)] {
        let view = measured(time, waiting);
        assert_eq!(SERVICE.is_long(&view), is_long, "{time}");
        assert!(SERVICE.may_start(&view, 0));
        assert_eq!(SERVICE.may_start(&view, 1), !is_long);
    }
    assert_eq!((SERVICE.all_slots(), POLICY.all_slots()), (2, 2));
    assert_eq!([0, 1, 2].map(|long| SERVICE.spare_slots(long)), [1, 0, 0]);
}

#[test]
fn a_request_is_charged_its_part_of_a_pass() {
    assert_eq!(SERVICE.estimate(&IDLE), 100_000);
    assert_eq!(SERVICE.estimate(&measured(400, IDLE)), 100_000);
    assert_eq!(SERVICE.estimate(&measured(40, IDLE)), 10_000);
}

#[test]
fn others_are_waited_for_where_they_are_likely_to_come() {
    let (start, step) = (Instant::now(), Duration::from_micros(700));
    let mut pace = Pace::new(start);
    let pass_time = step / WAITS;
    let view = View { pass_time, ..IDLE };
    let likely = |pace: &Pace| match SERVICE.wait_for_company(&view, pace, false) {
        Duration::ZERO => false,
        time => time == pass_time,
    };
    assert!(!likely(&pace));
    assert_eq!(SERVICE.wait_for_company(&view, &pace, true), pass_time);
    assert_eq!(SERVICE.wait_for_company(&IDLE, &pace, true), Duration::ZERO);
    let mut now = start;
    let mut go_on = |step: Duration, pace: &mut Pace| {
        for _ in 0..100 {
            now += step;
            pace.note(now);
        }
    };
    go_on(step * 9 / 10, &mut pace);
    assert!(likely(&pace));
    go_on(step * 11 / 10, &mut pace);
    assert!(!likely(&pace));
    go_on(step * 9 / 10, &mut pace);
    // An hour counts as ten milliseconds, so 100 short intervals outweigh 100 such pauses.
    go_on(Duration::from_secs(3600), &mut pace);
    go_on(step * 9 / 10, &mut pace);
    assert!(likely(&pace));
}

#[test]
fn a_share_is_a_slots_part_in_full_passes() {
    let share = |waiting, in_batches| {
        POLICY.share(&View {
            waiting,
            in_batches,
            ..IDLE
        })
    };
    assert_eq!(share(1, 0), 4);
    assert_eq!(share(4, 0), 4);
    assert_eq!(share(8, 0), 4, "two slots take four each");
    assert_eq!(share(9, 0), 8, "the ninth needs a further pass");
    assert_eq!(share(16, 0), 8);
    assert_eq!(share(100, 0), 8);
    assert_eq!(share(5, 8), 4, "the fifth would run alone in its pass");
    assert_eq!(share(3, 8), 8, "room for more that may come");
}

#[test]
fn a_thread_starts_at_once() {
    assert!(POLICY.starts(&View {
        waiting: 1,
        threads: 1,
        ..IDLE
    }));
    let busy = View {
        running: 1,
        in_batches: 8,
        ..IDLE
    };
    assert!(POLICY.starts(&View {
        waiting: 1,
        threads: 1,
        ..busy
    }));
}

#[test]
fn a_leader_on_its_way_needs_no_other() {
    let led = View {
        leaders: 1,
        in_hand: 1,
        ..IDLE
    };
    assert!(!POLICY.starts(&View {
        waiting: 3,
        threads: 3,
        ..led
    }));
    assert!(
        POLICY.starts(&View {
            waiting: 4,
            threads: 4,
            ..led
        }),
        "a fifth request does"
    );
}

#[test]
fn a_request_that_finds_and_expects_no_other_is_alone() {
    assert!(POLICY.is_alone(&IDLE));
    let running = View {
        running: 1,
        in_batches: 8,
        last: 1,
        ..IDLE
    };
    assert!(POLICY.is_alone(&running), "the other slot is for it");
    let led = View {
        leaders: 1,
        in_hand: 1,
        ..IDLE
    };
    for company in [
        View { waiting: 1, ..IDLE },
        led,
        View { last: 2, ..IDLE },
        View {
            elsewhere: 2,
            ..IDLE
        },
    ] {
        assert!(!POLICY.is_alone(&company), "{company:?}");
    }
}

#[test]
fn jobs_wait_for_a_pass_or_an_end() {
    let busy = View {
        running: 1,
        in_batches: 8,
        ..IDLE
    };
    assert!(POLICY.starts(&View { waiting: 1, ..IDLE }));
    assert!(!POLICY.starts(&View { waiting: 3, ..busy }));
    assert!(POLICY.starts(&View { waiting: 4, ..busy }));
}

#[test]
fn only_signs_of_company_make_a_leader_yield() {
    let led = View {
        leaders: 1,
        in_hand: 1,
        ..IDLE
    };
    assert!(!POLICY.expects_company(&led));
    let worker = View {
        leaders: 1,
        waiting: 1,
        ..IDLE
    };
    assert!(
        !POLICY.expects_company(&worker),
        "it expects no request besides the one it leads for"
    );
    assert!(!POLICY.expects_company(&View {
        running: 1,
        in_batches: 1,
        last: 1,
        ..led
    }));
    assert!(POLICY.expects_company(&View { last: 8, ..led }));
    assert!(POLICY.expects_company(&View { waiting: 1, ..led }));
    assert!(
        !POLICY.expects_company(&View { waiting: 3, ..led }),
        "the pass is full"
    );
    assert!(!POLICY.expects_company(&View {
        elsewhere: 1,
        ..led
    }));
    assert!(POLICY.expects_company(&View {
        elsewhere: 2,
        ..led
    }));
}
