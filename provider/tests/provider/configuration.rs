//! Settings, right and wrong, and machines without lanes.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::process::Command;

use lockstep_engine::read_stats;
use lockstep_kernels::backend::Backend;

use crate::common::{Finished, Place, Process};
use crate::syslog::Log;

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

/// Returns the run of a program with a setting that has no effect. It worked, the mistake stands
/// beside its counters, and one line went to the system's log.
fn with_mistake(process: Process<'_>, mistake: &str) -> Finished {
    let log = Log::new();
    let finished = log.finish(process);
    assert!(finished.status.success(), "{mistake}: {finished}");
    assert_eq!(finished.stderr, "", "{mistake}");
    let lines = log.lines();
    let start = format!("<28>lockstep[{}]: settings with mistakes", finished.pid);
    assert!(
        lines.len() == 1 && lines[0].starts_with(&start) && lines[0].contains(mistake),
        "{mistake}: {lines:?}"
    );
    finished
}

#[test]
fn a_setting_with_a_mistake_has_no_effect_and_is_named() {
    for (name, value) in [
        ("backend", "avx513"),
        ("slots", "many"),
        ("slots", "0"),
        ("max_async", "1e3"),
        ("stats_keep", "maybe"),
        ("keyd_socket", "here"),
    ] {
        let place = Place::with_settings(&[(name, value)]);
        place.write("data", b"data");
        let sign = format!("dgst -sha256 -sign {} data", place.key("rsa1024"));
        let expected = place.stock(&sign).succeed().stdout;
        let mistake = format!("{name} is '{value}', but must be ");
        let finished = with_mistake(place.lockstep(&sign), &mistake);
        finished.on_lanes("rsa1024", 1);
        assert_eq!(finished.stdout, expected);
        let mistakes = &finished.counters().mistakes;
        assert!(mistakes.starts_with(&mistake), "{mistakes}");

        let place = Place::new();
        place.write("data", b"data");
        let sign = format!("dgst -sha256 -sign {} data", place.key("rsa1024"));
        let variable = format!("LOCKSTEP_{}", name.to_uppercase());
        // Without it, the counters would not outlive the process.
        if ["stats_keep", "backend"].contains(&name) {
            continue;
        }
        let process = place.lockstep(&sign).env(&variable, value);
        let finished = with_mistake(process, &format!("{variable} is '{value}', but must be "));
        finished.on_lanes("rsa1024", 1);
    }
    let place = Place::new();
    let process = place.lockstep("list -providers").env("LOCKSTEP_SLOT", "2");
    let mistake = "LOCKSTEP_SLOT is not a setting; is LOCKSTEP_SLOTS meant?";
    let listed = with_mistake(process, mistake);
    assert!(listed.text().contains("name: Lockstep"), "{listed}");
    // It has counted nothing.
    assert_eq!(listed.counters().mistakes, mistake);
}

/// As HAProxy's master, which does so once at each start.
#[test]
fn a_process_that_starts_itself_again_says_its_mistakes_once() {
    let place = Place::new();
    let program = place.compile("again");
    for (arguments, expected) in [("0", 1), ("2", 1), ("2 more", 2)] {
        let log = Log::new();
        let process = place.program(&program, arguments).with_lockstep();
        let process = process.env("LOCKSTEP_STATS_KEEP", "no");
        let finished = log.finish(process.env("LOCKSTEP_SLOTS", "many"));
        assert!(finished.status.success(), "{arguments}: {finished}");
        let lines = log.lines();
        assert_eq!(lines.len(), expected, "{arguments}: {lines:?}");
        let last = lines.last().map(String::as_str).unwrap_or_default();
        let value = arguments.split_once(' ').map_or("many", |(_, value)| value);
        assert!(last.contains(&format!("SLOTS is '{value}'")), "{last}");
    }
}

/// A directory that is not there, one that holds no files of lockstep, and a file. The default
/// place is this test's own: processes of other tests tidy the usual one.
#[test]
fn counters_whose_directory_cannot_serve_are_in_the_default_place() {
    let namespace = match fs::metadata("/proc/self").expect("proc").uid() {
        0 => "--mount",
        _ => "--user --map-root-user --mount",
    };
    let mut own = Command::new("unshare");
    let own = own.args(namespace.split(' ')).arg("true").status();
    if !own.is_ok_and(|status| status.success()) {
        println!("skipped: no file system of its own here");
        return;
    }
    for directory in ["/nonexistent", "/proc", "/dev/null"] {
        let mistake = format!(
            "stats_dir (or LOCKSTEP_STATS_DIR) cannot be followed: no file of counters in {directory}: "
        );
        let place = Place::with_settings(&[("stats_dir", directory)]);
        for variable in ["", directory] {
            place.write("data", b"data");
            let key = place.key("rsa1024");
            let default = place.path("default");
            let _ = fs::DirBuilder::new().mode(0o700).create(&default);
            let script = format!(
                "mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/lockstep && \
                 mount --bind default /run/lockstep && \
                 OPENSSL_CONF=$PWD/lockstep.cnf exec openssl dgst -sha256 -sign {key} data"
            );
            place.write("sign.sh", script.as_bytes());
            let process = place.program("unshare", &format!("{namespace} sh sign.sh"));
            let process = process.with_counters().env("LOCKSTEP_STATS_DIR", variable);
            let finished = with_mistake(process, &mistake);
            let mut all = read_stats(&default).expect("a directory").into_iter();
            let found = all.find(|process| process.pid == finished.pid);
            let counters = found.expect("counters in the default place").snapshot;
            assert_eq!(counters.operations(), 1, "{counters:?}");
            assert!(counters.mistakes.starts_with(&mistake), "{counters:?}");
        }
    }
}

/// As a file for a newer version has them. libcrypto does not list the names for the module.
#[test]
fn names_that_are_no_settings_have_no_effect() {
    let names = ["slot", "Lone", "slots.1", "setting_of_tomorrow"];
    let mut settings: Vec<_> = names.map(|name| (name, "2")).into();
    settings.extend([("slots", "3"), ("soft_load", "1"), ("1.activate", "1")]);
    let place = Place::with_settings(&settings);
    place.write("data", b"data");
    let sign = format!("dgst -sha256 -sign {} data", place.key("rsa1024"));
    let signed = place.lockstep(&sign).succeed();
    signed.on_lanes("rsa1024", 1);
    assert_eq!(signed.counters().slots, 3);
    assert_eq!((&*signed.stderr, &*signed.counters().mistakes), ("", ""));
}

/// A second reading would wait for a second writer.
#[test]
fn the_module_does_not_read_the_file_again() {
    let place = Place::new();
    let path = place.path("once.cnf");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo runs").success());
    let text = place.read("lockstep.cnf");
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::write(path, text)
    });
    let listed = place.lockstep("list -providers").env("OPENSSL_CONF", &path);
    let listed = listed.limit(20).succeed();
    assert!(listed.text().contains("name: Lockstep"), "{listed}");
    writer.join().expect("no panic").expect("one reader");
}
