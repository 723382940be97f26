//! Warnings in the system's log: one line for many events, and nothing where there is no log.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use lockstep_testkit::TempDir;

use crate::common::{Finished, Place, Process, key};
use crate::faults::faulty;
use crate::tls::certificate;
use crate::worker::Jobs;

/// A socket that stands in for the system's log.
pub struct Log {
    socket: UnixDatagram,
    pub path: PathBuf,
    _place: TempDir,
}

impl Log {
    pub fn new() -> Log {
        // Not in the test's directory: such a path may be too long.
        let place = TempDir::new("log");
        let path = place.join("socket");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        Log {
            socket,
            path,
            _place: place,
        }
    }

    /// The lines since the last look.
    pub fn lines(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let next = || {
            let length = self.socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..length].to_vec()).expect("text"))
        };
        std::iter::from_fn(next).collect()
    }

    /// Runs a process with this log.
    pub fn finish(&self, process: Process<'_>) -> Finished {
        process.env("LOCKSTEP_SYSLOG", &self.path).run()
    }
}

/// Signatures of which one in each batch fails its check.
fn failing(jobs: &mut Jobs, module: &std::path::Path) -> Place {
    jobs.add_key(&key("rsa2048"));
    for number in 0..60 {
        jobs.sign(0, format!("message {number}").as_bytes());
    }
    Place::of(module, &[])
}

const FAULT: &str = "Recombined:0:0:2:2";

#[test]
fn many_failed_checks_are_one_line() {
    let Some(module) = faulty() else { return };
    let mut jobs = Jobs::default();
    let place = failing(&mut jobs, &module);
    let log = Log::new();
    let run = |settings: &[(&str, &str)]| {
        let process = jobs.process(&place, 6).with_lockstep();
        let process = settings
            .iter()
            .fold(process.env("LOCKSTEP_FAULT", FAULT), |process, setting| {
                process.env(setting.0, setting.1)
            });
        let finished = process.succeed();
        let failed = finished.counters().failed_checks;
        assert!(failed > 5, "{failed}: {finished}");
        assert_eq!(finished.stderr, "");
        finished
    };
    let path = log.path.to_str().expect("text");
    let finished = run(&[("LOCKSTEP_SYSLOG", path)]);
    let lines = log.lines();
    let start = format!(
        "<26>lockstep[{}]: a result failed its check (",
        finished.pid
    );
    let [line] = &lines[..] else {
        panic!("{lines:?}")
    };
    // Checks of two threads may fail before either writes its line.
    let number = line
        .strip_prefix(&start)
        .and_then(|rest| rest.split_once(" so far in this process). "))
        .and_then(|(number, _)| number.parse::<u64>().ok());
    let possible = 1..=finished.counters().failed_checks;
    assert!(
        number.is_some_and(|number| possible.contains(&number)),
        "{line}"
    );
    // Each process has a line of its own.
    run(&[("LOCKSTEP_SYSLOG", path)]);
    assert_eq!(log.lines().len(), 1);
    run(&[("LOCKSTEP_SYSLOG", "no")]);
    run(&[("LOCKSTEP_SYSLOG", "/nonexistent/log")]);
    assert_eq!(log.lines(), [""; 0]);
}

/// A filter that forbids sockets costs the line alone.
#[test]
fn without_the_right_to_a_socket_there_is_no_line() {
    let Some(module) = faulty() else { return };
    let place = Place::of(&module, &[("check_every", "1")]);
    let program = place.compile("confined");
    let key = place.key("p256");
    let log = Log::new();
    for (call, expected) in [(0, 1), (libc::SYS_socket, 0), (libc::SYS_sendto, 0)] {
        let arguments = format!("deny {key} {call}");
        let process = place.program(&program, &arguments).with_lockstep();
        let finished = log.finish(process.env("LOCKSTEP_FAULT", FAULT));
        assert!(finished.status.success(), "{call}: {finished}");
        if finished.text().starts_with("skipped") {
            println!("{}", finished.text());
            return;
        }
        assert_eq!(finished.counters().failed_checks, 4, "{call}: {finished}");
        assert_eq!(log.lines().len(), expected, "{call}: {finished}");
    }
}

#[test]
fn bounds_of_jobs_that_are_near_are_one_line() {
    let log = Log::new();
    let place = Place::new();
    let program = place.compile("async");
    let arguments = format!("fd {} 32 4", place.key("rsa2048"));
    for (most, expected) in [("1000", 0), ("32", 1)] {
        let process = place.program(&program, &arguments).with_lockstep();
        let finished = log.finish(process.env("LOCKSTEP_MAX_ASYNC", most));
        assert!(finished.status.success(), "{finished}");
        assert_eq!(finished.counters().async_submitted, 128, "{finished}");
        let lines = log.lines();
        assert_eq!(lines.len(), expected, "{most}: {lines:?}");
        let start = format!(
            "<28>lockstep[{}]: 29 async jobs of this process are paused, of 32 at most \
             (max_async). ",
            finished.pid
        );
        assert!(
            lines.iter().all(|line| line.starts_with(&start)),
            "{lines:?}"
        );
    }

    let Some(module) = faulty() else { return };
    let place = Place::of(&module, &[("max_lost", "20")]);
    let program = place.compile("lost");
    let certificate = certificate(&place, "rsa2048");
    let arguments = format!("fd {} {certificate} 19", place.key("rsa2048"));
    let process = place.program(&program, &arguments).with_lockstep();
    let finished = log.finish(process);
    assert!(finished.status.success(), "{finished}");
    assert_eq!(finished.counters().lost, 19, "{finished}");
    let lines = log.lines();
    let start = format!(
        "<28>lockstep[{}]: 18 async jobs of this process are lost, of 20 at most, ",
        finished.pid
    );
    assert!(
        lines.len() == 1 && lines[0].starts_with(&start),
        "{lines:?}"
    );
}
