//! Settings, right and wrong, and machines without lanes.

use lockstep_kernels::backend::Backend;

use crate::common::{Place, Process};

#[test]
fn without_lanes_stock_answers_and_every_use_is_counted() {
    let place = Place::new();
    let key = place.key("rsa2048");
    place.write("data", b"data");
    let sign = format!("dgst -sha256 -sign {key} data");
    let expected = place.stock(&sign).succeed().stdout;
    let by_environment = place
        .lockstep(&sign)
        .env("LOCKSTEP_BACKEND", "none")
        .succeed();
    let configured = Place::with_settings(&[("backend", "none")]);
    configured.key("rsa2048");
    configured.write("data", b"data");
    let by_configuration = configured
        .lockstep(&sign)
        .env("LOCKSTEP_BACKEND", "")
        .succeed();
    for finished in [by_environment, by_configuration] {
        assert_eq!(finished.stdout, expected);
        let counters = finished.counters();
        assert_eq!(counters.backend, "none");
        assert_eq!(
            (counters.operations(), counters.fallbacks()),
            (0, 1),
            "{counters:?}"
        );
        assert_eq!(counters.fallback("no_backend"), 1, "{counters:?}");
    }
}

#[test]
fn slower_lanes_leave_every_use_to_stock_unless_forced() {
    if Backend::from_name("avx2").is_none() {
        println!("skipped: this CPU has no AVX2");
        return;
    }
    let place = Place::new();
    place.write("data", b"data");
    for bits in [1024, 2048, 3072, 4096] {
        let key = place.key(&format!("rsa{bits}"));
        let sign = format!("dgst -sha256 -sign {key} data");
        let expected = place.stock(&sign).succeed().stdout;
        let signed = |lone| {
            let command = place.lockstep(&sign);
            let command = command.env("LOCKSTEP_BACKEND", "avx2");
            command.env("LOCKSTEP_LONE", lone).succeed()
        };
        let routed = signed("auto");
        assert_eq!(routed.stdout, expected);
        let counters = routed.counters();
        assert_eq!(counters.backend, "avx2");
        assert_eq!((counters.operations(), counters.fallbacks()), (0, 1));
        assert_eq!(counters.fallback("slow_lanes"), 1, "{counters:?}");

        let forced = signed("lanes");
        assert_eq!(forced.stdout, expected);
        assert_eq!(forced.counters().backend, "avx2");
        forced.on_lanes(&format!("rsa{bits}"), 1);
    }
}

#[test]
fn the_portable_lanes_give_the_same_signatures() {
    let place = Place::new();
    place.write("data", b"data");
    for bits in [1024, 2048, 3072, 4096] {
        let key = place.key(&format!("rsa{bits}"));
        let sign = format!("dgst -sha256 -sign {key} data");
        let portable = place
            .lockstep(&sign)
            .env("LOCKSTEP_BACKEND", "portable")
            .succeed();
        assert_eq!(portable.stdout, place.stock(&sign).succeed().stdout);
        assert_eq!(portable.counters().backend, "portable");
        portable.on_lanes(&format!("rsa{bits}"), 1);
    }
}

#[test]
fn settings_of_the_configuration_file_are_honoured() {
    let place = Place::with_settings(&[("slots", "3"), ("backend", "portable")]);
    let key = place.key("rsa1024");
    place.write("data", b"data");
    let signed = place
        .lockstep(&format!("dgst -sha256 -sign {key} data"))
        .env("LOCKSTEP_BACKEND", "")
        .succeed();
    signed.on_lanes("rsa1024", 1);
    assert_eq!(signed.counters().slots, 3);
    assert_eq!(signed.counters().backend, "portable");
}

#[test]
fn a_lone_request_may_go_to_stock_and_is_counted() {
    let place = Place::with_settings(&[("lone", "stock")]);
    let key = place.key("rsa2048");
    place.write("data", b"data");
    let sign = format!("dgst -sha256 -sign {key} data");
    let signed = place.lockstep(&sign).env("LOCKSTEP_LONE", "").succeed();
    assert_eq!(signed.stdout, place.stock(&sign).succeed().stdout);
    let counters = signed.counters();
    assert_eq!(
        (counters.operations(), counters.fallback("lone")),
        (0, 1),
        "{counters:?}"
    );
}

#[test]
fn settings_that_are_wrong_keep_the_module_out_with_a_clear_message() {
    for (name, value) in [
        ("backend", "abacus"),
        ("slots", "many"),
        ("slots", "0"),
        ("slots", "-1"),
        ("max_async", "1e3"),
        ("lone", "perhaps"),
        ("stats_keep", "maybe"),
    ] {
        let place = Place::with_settings(&[(name, value)]);
        let environment = format!("LOCKSTEP_{}", name.to_uppercase());
        assert_refused(&place, |process| process.env(&environment, ""), name, value);

        let place = Place::new();
        assert_refused(
            &place,
            |process| process.env(&environment, value),
            &environment,
            value,
        );
    }
}

/// A directory that is not there, one that holds no files of lockstep, and a file.
#[test]
fn a_directory_for_counters_that_cannot_serve_keeps_the_module_out() {
    for directory in ["/nonexistent", "/proc", "/dev/null"] {
        let place = Place::with_settings(&[("stats_dir", directory)]);
        assert_refused(
            &place,
            |process| process.env("LOCKSTEP_STATS_DIR", ""),
            "stats_dir",
            directory,
        );
        let place = Place::new();
        assert_refused(
            &place,
            |process| process.env("LOCKSTEP_STATS_DIR", directory),
            "LOCKSTEP_STATS_DIR",
            directory,
        );
    }
}

#[test]
fn names_that_are_no_settings_keep_the_module_out_too() {
    for (name, meant) in [("slot", "slots"), ("Lone", "lone"), ("slots.1", "slots")] {
        let place = Place::with_settings(&[("lone", "lanes"), (name, "2")]);
        assert_refused(
            &place,
            |process| process,
            name,
            &format!("is {meant} meant?"),
        );
    }
    let place = Place::with_settings(&[("threads", "2")]);
    assert_refused(
        &place,
        |process| process,
        "threads",
        "there are backend, rsa_schedule,",
    );
}

#[test]
fn what_is_openssls_in_the_section_is_no_mistake() {
    let place = Place::with_settings(&[("slots", "3"), ("soft_load", "1"), ("1.activate", "1")]);
    let listed = place.lockstep("list -providers").succeed();
    assert!(listed.text().contains("name: Lockstep"), "{listed}");
    assert!(!listed.stderr.contains("lockstep:"), "{listed}");
}

#[test]
fn a_configuration_from_elsewhere_is_not_taken_for_the_default_one() {
    // The default file has a mistake in a section with the same module; what is loaded is another
    // file, whose settings differ.
    let place = Place::with_settings(&[("slots", "3"), ("slot", "2")]);
    let right = String::from_utf8(place.read("lockstep.cnf")).expect("text");
    let right = right
        .replace("slot = 2\n", "")
        .replace("slots = 3", "slots = 4");
    place.write("right.cnf", right.as_bytes());
    let program = place.compile("elsewhere");
    place
        .program(&program, "right.cnf")
        .with_lockstep()
        .succeed();
    assert_refused(&place, |process| process, "slot", "is slots meant?");
}

/// Programs run on without the module. One that loads it by name finds the reason in its error
/// queue.
#[track_caller]
fn assert_refused(
    place: &Place,
    set: impl for<'a> Fn(Process<'a>) -> Process<'a>,
    name: &str,
    value: &str,
) {
    let listed = set(place.lockstep("list -providers")).succeed();
    assert!(
        !listed.text().contains("name: Lockstep"),
        "loaded: {listed}"
    );
    assert!(!listed.stderr.contains("lockstep"), "{listed}");

    // libcrypto drops the errors of a provider that its configuration activates; not of one that
    // the configuration only describes.
    let configuration = String::from_utf8(place.read("lockstep.cnf")).expect("text");
    let (before, section) = configuration
        .split_once("[lockstep_module]")
        .expect("the module's section");
    let described = section.replacen("\nactivate = 1\n", "\n", 1);
    assert_ne!(described, section);
    place.write(
        "described.cnf",
        format!("{before}[lockstep_module]{described}").as_bytes(),
    );
    let loaded = set(place.lockstep("list -providers -provider lockstep"))
        .env("OPENSSL_CONF", place.path("described.cnf"))
        .fail();
    let message = loaded.stderr.lines().find_map(|line| {
        let (before, message) = line.split_once("lockstep: ")?;
        before.contains(":init fail:").then_some(message)
    });
    let message = message.unwrap_or_else(|| panic!("no message: {loaded}"));
    assert!(
        message.contains(name) && message.contains(value),
        "{message}"
    );
    assert!(!message.contains("lockstep:"), "{message}");
}

#[test]
fn programs_work_on_when_the_module_refuses() {
    let place = Place::with_settings(&[("backend", "abacus")]);
    let key = place.key("rsa2048");
    place.write("data", b"data");
    let sign = format!("dgst -sha256 -sign {key} data");
    let expected = place.stock(&sign).succeed().stdout;
    let signed = place.lockstep(&sign).env("LOCKSTEP_BACKEND", "").succeed();
    assert_eq!(signed.stdout, expected);
    assert!(signed.try_counters().is_none(), "{signed}");
    let mut jobs = crate::worker::Jobs::default();
    jobs.add_key(&crate::common::key("rsa2048"));
    jobs.sign(0, b"data");
    let worker = jobs
        .process(&place, 1)
        .with_lockstep()
        .env("LOCKSTEP_BACKEND", "")
        .succeed();
    assert!(worker.try_counters().is_none(), "{worker}");
    assert!(!worker.stderr.contains("lockstep"), "{worker}");
    assert_eq!(jobs.answers(&place), [Some(expected)], "{worker}");
}
