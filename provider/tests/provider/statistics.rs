//! Counters where nobody configured a place for them: of every process, readable by its user only,
//! and gone with it.

#![allow(unsafe_code, reason = "system calls")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::time::{Duration, Instant};

use lockstep_engine::{ProcessStats, read_default_stats};

use crate::common::{Place, Process, Running};

/// As a user starts it: without a directory for counters.
fn by_default(process: Process<'_>) -> Process<'_> {
    process
        .with_lockstep()
        .env("LOCKSTEP_STATS_DIR", "")
        .env("LOCKSTEP_STATS_KEEP", "")
}

/// Returns the counters that the process has published in the default place.
fn published(pid: u32) -> Option<ProcessStats> {
    let all = read_default_stats().processes;
    all.into_iter().find(|process| process.pid == pid)
}

/// Runs a way of `programs/drop.c` until its child has signed; returns the process and its child.
fn dropped(place: &Place, way: &str) -> (Running, u32) {
    let program = place.compile("drop");
    let key = place.key("rsa2048");
    std::fs::create_dir_all(place.path("root")).expect("a directory");
    let process = place.program(&program, &format!("{way} {key} root"));
    let mut running = by_default(process).silent_input().start();
    let child = running.wait_for("child", |output| {
        output.strip_prefix("process ")?.trim().parse().ok()
    });
    (running, child)
}

fn is_root() -> bool {
    let root = std::fs::read_to_string("/proc/self/status").expect("status");
    let root = root.lines().any(|line| line.starts_with("Uid:\t0\t0"));
    if !root {
        println!("skipped: only root can become another user");
    }
    root
}

#[test]
fn processes_publish_by_default_and_leave_nothing() {
    let place = Place::new();
    let (mut running, child) = dropped(&place, "quiet");
    let stats = published(child).expect("counters");
    assert!(stats.alive && stats.snapshot.operations() >= 1, "{stats:?}");
    assert_eq!(stats.name.as_deref(), Some("drop"));
    running.close_input();
    running.wait();
    assert!(published(child).is_none(), "left behind");
}

/// The file belongs to the user that loaded the module. The name is that of the process that
/// counts.
#[test]
fn servers_that_drop_their_privileges_go_on_publishing() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    for way in ["user", "chroot"] {
        let (mut running, child) = dropped(&place, way);
        let stats = published(child).unwrap_or_else(|| panic!("{way}: no counters"));
        assert_eq!((stats.alive, stats.user), (true, 0), "{way}: {stats:?}");
        assert_eq!(stats.snapshot.operations(), 1, "{way}");
        running.close_input();
        running.wait();
        assert!(published(child).is_none(), "{way}: left behind");
    }
}

#[test]
fn what_was_published_before_privileges_were_dropped_goes_on_and_ends() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let (mut running, child) = dropped(&place, "late");
    let stats = published(child).expect("counters");
    assert_eq!((stats.alive, stats.user), (true, 0), "{stats:?}");
    assert_eq!(stats.snapshot.operations(), 2);
    running.close_input();
    running.wait();
    assert!(published(child).is_none(), "left behind");
}

/// The caller of a program with more rights than its own does not choose its settings.
#[test]
fn a_privileged_program_ignores_its_environment() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let key = place.key("rsa2048");
    for mode in [0o755, 0o2755] {
        let program = place.path(&format!("privileged-{mode:o}"));
        fs::copy(place.compile("privileged"), &program).expect("a program");
        chown(&program, None, Some(65534)).expect("another group");
        fs::set_permissions(&program, Permissions::from_mode(mode)).expect("a mode");
        // The environment names a directory of this test for the counters.
        let process = place.program(&program, &format!("lockstep.cnf {key}"));
        let mut running = process.with_lockstep().silent_input().start();
        let (pid, is_privileged) = running.wait_for("its process", |output| {
            let (pid, mark) = output.strip_prefix("process ")?.trim().split_once(' ')?;
            Some((pid.parse().ok()?, mark == "1"))
        });
        if mode == 0o2755 && !is_privileged {
            println!("skipped: this kernel gives programs no other group here");
            return;
        }
        assert_eq!(published(pid).is_some(), is_privileged, "{mode:o}");
        running.close_input();
        running.wait();
    }
}

#[test]
fn what_a_killed_process_left_is_seen_to_be_stale_and_swept() {
    let place = Place::new();
    let (running, child) = dropped(&place, "quiet");
    // SAFETY: a signal to a child of our child, which waits for it.
    unsafe { libc::kill(child as libc::pid_t, libc::SIGKILL) };
    running.wait();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match published(child) {
            // Another process of this user has loaded the module meanwhile.
            None => break,
            Some(stats) if !stats.alive => break,
            Some(stats) => assert!(Instant::now() < deadline, "{stats:?}"),
        }
    }
    // A file may be spared for a minute after a fork.
    let deadline = Instant::now() + Duration::from_secs(90);
    while published(child).is_some() {
        assert!(Instant::now() < deadline, "not swept");
        by_default(place.lockstep("list -providers")).succeed();
    }
}
