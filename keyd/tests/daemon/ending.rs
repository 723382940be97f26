//! The end of the daemon.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lockstep_remote::protocol::status;
use lockstep_ring::{Patience, Refused};
use lockstep_testkit::command;
use rustix::process::Signal;

use crate::hostile::{TestClient, call};
use crate::site::{Daemon, padded};

#[test]
fn what_was_asked_before_the_end_is_answered_and_what_comes_later_is_refused_at_once() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        if signal == Signal::HUP && is_hangup_ignored(Path::new("/proc/self/status")) {
            println!("skipped: SIGHUP is ignored here (nohup), and so it is in the daemon");
            continue;
        }
        let daemon = Daemon::start("queue = 64\n");
        let processes = [(); 3].map(|()| TestClient::new(&daemon).expect("a connection"));
        let input = padded();
        let rsa = call(1, 2, &input);
        let submit = |process: &TestClient| process.client.submit(&rsa).expect("a free slot");
        let ask = |process| (0..40).map(|_| submit(process)).collect::<Vec<_>>();
        let tickets: Vec<_> = processes.iter().flat_map(ask).collect();
        daemon.signal(signal);
        for mut ticket in tickets {
            let patience = Patience::new(Duration::ZERO, Duration::from_secs(20));
            let answer = ticket.wait(patience).expect("not lost");
            let answer = answer.expect("an answer in time");
            assert_eq!((answer.status, answer.output.len()), (status::DONE, 256));
        }
        assert!(daemon.wait().success(), "{}", daemon.log());
        for process in &processes {
            let refused = process.client.submit(&rsa).expect_err("no daemon");
            assert_eq!(refused, Refused::Gone);
        }
    }
}

/// As under nohup(1): the shell that has started the daemon ends, and the daemon goes on.
#[test]
fn a_hangup_that_is_ignored_ends_no_daemon() {
    let daemon = Daemon::start_without_hangup();
    assert!(
        is_hangup_ignored(&daemon.about("status")),
        "{}",
        daemon.log()
    );
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.log());
    // Without that, SIGHUP ends it.
    let daemon = Daemon::start("");
    let own = is_hangup_ignored(Path::new("/proc/self/status"));
    assert_eq!(is_hangup_ignored(&daemon.about("status")), own);
}

/// The kernel may have no memory for a wait, a signal may interrupt a wait, and there may be no
/// descriptor for a new client.
#[test]
fn a_daemon_that_cannot_accept_for_a_while_goes_on_until_it_is_told_to_end() {
    let traced = command("strace", &["-D", "true"]).output();
    if !traced.is_ok_and(|traced| traced.status.success()) {
        println!("skipped: strace is not installed, or may not trace");
        return;
    }
    for (call, error) in [
        ("epoll_pwait", "ENOMEM"),
        ("epoll_pwait", "EINTR"),
        ("accept4", "EMFILE"),
    ] {
        let daemon = Daemon::start_with_failing(call, error);
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success(), "{call}, {error}: {}", daemon.log());
    }
}

/// Returns whether a process ignores SIGHUP, the first signal in the set.
fn is_hangup_ignored(status: &Path) -> bool {
    let status = fs::read_to_string(status).expect("/proc");
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = u64::from_str_radix(set.expect("a line").trim(), 16);
    set.expect("a number") & 1 == 1
}
