//! Processes that are confined: by another root directory, limits of file sizes, filters of system
//! calls and PID namespaces. Each operation that works there with OpenSSL alone works with the
//! module.

#![allow(unsafe_code, reason = "system calls")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Finished, Place, Process};

/// The length of the file of counters.
const FILE: u64 = 274_432;

fn is_root() -> bool {
    let root = fs::read_to_string("/proc/self/status").expect("status");
    let root = root.lines().any(|line| line.starts_with("Uid:\t0\t0"));
    if !root {
        println!("skipped: only root can do this");
    }
    root
}

/// Runs `programs/confined.c`; `None` if the system does not let it confine itself.
fn confined(place: &Place, way: &str, argument: &str) -> Option<Finished> {
    let program = place.compile("confined");
    let key = place.key("p256");
    let arguments = format!("{way} {key} {argument}");
    let finished = place.program(program, &arguments).with_lockstep().succeed();
    if finished.text().starts_with("skipped") {
        println!("{}", finished.text());
        return None;
    }
    Some(finished)
}

#[test]
fn no_descriptor_leads_out_of_a_changed_root() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir_all(place.path("root")).expect("a directory");
    if let Some(finished) = confined(&place, "chroot", "root") {
        assert_eq!(finished.counters().of("p256-sign"), 2, "{finished}");
    }
}

#[test]
fn a_process_that_may_not_touch_files_any_more_goes_on() {
    let place = Place::new();
    if let Some(finished) = confined(&place, "kill", "0") {
        assert_eq!(finished.counters().of("p256-sign"), 4, "{finished}");
    }
}

/// The usual server: the master is free, the workers are confined. Nothing is kept, so each worker
/// gives its memory back.
#[test]
fn a_worker_that_may_not_touch_files_exits() {
    let place = Place::new();
    let program = place.compile("confined");
    let arguments = format!("worker {} 0", place.key("p256"));
    let finished = place
        .program(program, &arguments)
        .with_lockstep()
        .env("LOCKSTEP_STATS_KEEP", "no")
        .succeed();
    assert!(finished.text().contains("signed"), "{finished}");
    assert!(finished.all_counters().is_empty(), "{finished}");
}

/// Each system call that the module adds when it is loaded.
#[test]
fn a_denied_system_call_costs_the_counters_at_most() {
    let place = Place::new();
    let published = |call: libc::c_long| {
        let finished = confined(&place, "deny", &call.to_string())?;
        assert!(finished.text().contains("signed"), "{call}: {finished}");
        Some(finished.try_counters())
    };
    let Some(free) = published(0) else {
        return;
    };
    assert_eq!(free.expect("counters").of("p256-sign"), 4);
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_fstatfs,
        libc::SYS_fallocate,
        libc::SYS_openat,
        libc::SYS_mmap,
    ] {
        let counters = published(call).expect("filters are allowed");
        assert!(counters.is_none(), "{call} was not needed: {counters:?}");
    }
    for call in [
        libc::SYS_mkdirat,
        libc::SYS_unlinkat,
        libc::SYS_ftruncate,
        libc::SYS_pwrite64,
        libc::SYS_getdents64,
        libc::SYS_fcntl,
        libc::SYS_statx,
        libc::SYS_geteuid,
        libc::SYS_getppid,
        libc::SYS_kill,
        libc::SYS_sched_getaffinity,
    ] {
        let counters = published(call).expect("filters are allowed");
        let counters = counters.unwrap_or_else(|| panic!("{call}: no counters"));
        assert_eq!(counters.of("p256-sign"), 4, "{call}");
    }
}

/// systemd's `LimitFSIZE=0`. The kernel ends a process that makes a longer file.
#[test]
fn a_limit_of_file_sizes_costs_the_counters_at_most() {
    let place = Place::new();
    let program = place.compile("confined");
    let key = place.key("p256");
    for limit in [0, 4096, FILE - 1, FILE] {
        let limited = format!("--fsize={limit} {} deny {key} 0", program.display());
        let finished = place.program("prlimit", &limited).with_lockstep().succeed();
        assert!(finished.text().contains("signed"), "{limit}: {finished}");
        match limit {
            FILE => assert_eq!(finished.counters().of("p256-sign"), 4, "{finished}"),
            _ => assert!(finished.try_counters().is_none(), "{limit}: {finished}"),
        }
    }
}

/// A full file system, on which a mapped file would end the process with SIGBUS.
#[test]
fn a_full_file_system_costs_the_counters_at_most() {
    let place = Place::new();
    place.write("data", b"the quick brown fox");
    let key = place.key("p256");
    let statistics = place.path("small");
    fs::create_dir_all(&statistics).expect("a directory");
    let sign = format!(
        "mount -t tmpfs -o size=8k tmpfs {small} || exit 77; \
         LOCKSTEP_STATS_DIR={small} openssl dgst -sha256 -sign {key} -out signature data && \
         ls {small} && df --output=used {small}",
        small = statistics.display()
    );
    place.write("sign.sh", sign.as_bytes());
    let finished = place
        .program("unshare", "--mount sh sign.sh")
        .with_lockstep()
        .run();
    if !finished.status.success() && !place.path("signature").exists() {
        println!("skipped: no file system of its own: {finished}");
        return;
    }
    assert!(finished.status.success(), "{finished}");
    let text = finished.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["Used", "0"], "{finished}");
    place
        .stock("dgst -sha256 -verify p256.pub.pem -signature signature data")
        .succeed();
}

/// HAProxy's master does that with each reload, for months.
#[test]
fn a_program_that_starts_anew_in_its_place_leaves_no_file() {
    let place = Place::new();
    assert_eq!(files_left(&place, "exec", 4), 0);
}

/// HAProxy's master does that as soon as it has forked its workers, whose counters would be lost
/// with the file.
#[test]
fn a_file_stays_for_a_forked_child_that_has_not_run_yet() {
    let place = Place::new();
    // The number of the first program is still that of a process when the child ends.
    assert_eq!(files_left(&place, "leave", 1), 1);
    assert_eq!(files_left(&place, "exec", 0), 0);
}

/// Starts programs in the place of others; how many files of counters there are in the end.
fn files_left(place: &Place, way: &str, times: usize) -> usize {
    let program = place.compile("confined");
    let statistics = place.path("counters");
    fs::create_dir_all(&statistics).expect("a directory");
    let arguments = format!("{way} {} {times}", place.key("p256"));
    let process = place.program(program, &arguments).with_lockstep();
    let finished = process
        .env("LOCKSTEP_STATS_DIR", &statistics)
        .env("LOCKSTEP_STATS_KEEP", "no")
        .succeed();
    assert!(finished.text().contains("signed"), "{finished}");
    fs::read_dir(&statistics).expect("the directory").count()
}

/// The files of counters in the default places of this user.
fn default_files() -> Vec<PathBuf> {
    // SAFETY: plain query.
    let user = unsafe { libc::geteuid() };
    let places = [
        "/run/lockstep".to_owned(),
        format!("/dev/shm/lockstep-{user}"),
    ];
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok());
    entries
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

fn is_of(path: &Path, pid: u32) -> bool {
    let name = path.file_name().expect("a name").to_string_lossy();
    let number = name.split(['.', '-']).next();
    number == Some(&pid.to_string())
}

/// As a user starts it: without a directory for counters.
fn by_default(process: Process<'_>) -> Process<'_> {
    process
        .with_lockstep()
        .env("LOCKSTEP_STATS_DIR", "")
        .env("LOCKSTEP_STATS_KEEP", "")
}

/// Containers that share `/dev/shm`.
#[test]
fn processes_of_another_pid_namespace_leave_our_files_alone() {
    let place = Place::new();
    let program = place.compile("drop");
    let key = place.key("p256");
    fs::create_dir_all(place.path("root")).expect("a directory");
    let process = place.program(&program, &format!("quiet {key} root"));
    let mut running = by_default(process).silent_input().start();
    let child: u32 = running.wait_for("child", |output| {
        output.strip_prefix("process ")?.trim().parse().ok()
    });
    let parent = running.pid();
    let files = || -> Vec<PathBuf> {
        let all = default_files().into_iter();
        all.filter(|path| is_of(path, parent) || is_of(path, child))
            .collect()
    };
    let before = files();
    assert!(!before.is_empty(), "no counters of {parent} or {child}");
    let namespaced = "--pid --fork --mount-proc openssl list -providers";
    let finished = by_default(place.program("unshare", namespaced)).run();
    if !finished.status.success() {
        println!("skipped: no PID namespace of its own: {finished}");
        return;
    }
    assert!(finished.text().contains("lockstep"), "{finished}");
    assert_eq!(files(), before, "removed by a process that could not know");
    running.close_input();
    running.wait();
    assert_eq!(files(), [""; 0].map(PathBuf::from));
}
