//! Keys that cannot be served, and a configuration that cannot be read: all other keys are served,
//! and clients that cannot be served get a refusal at once.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lockstep_remote::{Connection, Operation};
use lockstep_testkit::{TempDir, command};

use crate::site::{Daemon, own_user, program, wait_for};

#[test]
fn one_bad_key_keeps_no_other_one_from_being_served() {
    let user = own_user();
    let section = |name: &str, file: &str| {
        format!("[key {name}]\nfile = {file}\nusers = {user}\nuses = sign\n")
    };
    let daemon = Daemon::start(&format!(
        "colour = 5\n{}{}[keys]\n{}",
        section("gone", "/nonexistent/key.pem"),
        section("directory", "/"),
        section("ed25519", "/nonexistent/shadow.pem"),
    ));
    let connection = Connection::open(&daemon.socket()).expect("a daemon");
    let names: Vec<_> = connection.keys().iter().map(|key| &*key.name).collect();
    // A section that is left out has taken the name.
    assert_eq!(names, ["p256", "rsa2048"], "{}", daemon.log());
    let signed = connection.ask(Operation::EcdsaSign, &connection.keys()[0], &[1; 32], 64);
    assert!(signed.is_ok());
    // A thread of this test reads the lines, and this one follows all warnings.
    wait_for("a line", || daemon.log().contains("holds the key rsa2048"));
    let log = daemon.log();
    for line in [
        "line 3: there is no setting `colour`",
        "warning: the key gone is left out: ",
        "warning: the key directory is left out: ",
        "warning: the key ed25519 is left out: ",
        ": a section is `[key NAME]`",
        ": there is another key `ed25519` above",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let check = command(&program(), &["keyd", "check", "--config"])
        .arg(daemon.socket().with_file_name("keyd.conf"))
        .output()
        .expect("a program");
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(
        !check.status.success() && said.contains("the key gone is left out"),
        "{said}"
    );
    let listed = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(listed.contains("rsa2048: RSA-2048"), "{listed}");
}

/// A daemon that gets its socket as from systemd: as its standard input.
struct Activated {
    child: Child,
    directory: TempDir,
    /// Its messages to systemd.
    notes: UnixDatagram,
}

impl Activated {
    fn start(configuration: &str) -> Activated {
        let directory = TempDir::new("keyd-activated");
        let socket = UnixListener::bind(directory.join("socket")).expect("a socket");
        let notes = UnixDatagram::bind(directory.join("notes")).expect("a socket");
        notes
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a socket");
        let file = directory.join("keyd.conf");
        if !configuration.is_empty() {
            fs::write(&file, configuration).expect("a file");
        }
        let script = "exec 3<&0 < /dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
        let child = command("sh", &["-c", script, "sh", &program(), "keyd", "--config"])
            .arg(&file)
            .env("NOTIFY_SOCKET", directory.join("notes"))
            .env("LOCKSTEP_STATS_DIR", "no")
            .stdin(OwnedFd::from(socket))
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        Activated {
            child,
            directory,
            notes,
        }
    }

    fn note(&self) -> String {
        let mut note = [0; 4096];
        let length = self.notes.recv(&mut note).expect("a note in time");
        String::from_utf8_lossy(&note[..length]).into_owned()
    }

    /// Returns why a client is rejected, and after which time.
    fn refusal(&self) -> (String, Duration) {
        let start = Instant::now();
        let refused = Connection::open(&self.directory.join("socket")).expect_err("no key");
        (refused.to_string(), start.elapsed())
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client waits for three seconds if nobody answers.
const AT_ONCE: Duration = Duration::from_millis(2500);

#[test]
fn a_daemon_without_any_key_answers() {
    let daemon = Activated::start(
        "user = 0\n[key gone]\nfile = /nonexistent/key.pem\nusers = 0\nuses = sign\n",
    );
    let note = daemon.note();
    assert!(
        note.starts_with("READY=1\nSTATUS=serves 0 keys, and leaves out 1")
            && note.contains("gone"),
        "{note}"
    );
    for _ in 0..3 {
        let (refused, time) = daemon.refusal();
        assert!(refused.contains("lockstep keyd check"), "{refused}");
        assert!(time < AT_ONCE, "{time:?}");
    }
}

#[test]
fn a_daemon_that_cannot_read_its_configuration_keeps_nobody_waiting_and_ends() {
    let mut daemon = Activated::start("");
    let note = daemon.note();
    assert!(
        note.starts_with("STATUS=cannot start: ") && note.contains("keyd.conf"),
        "{note}"
    );
    for _ in 0..3 {
        let (refused, time) = daemon.refusal();
        assert!(refused.contains("lockstep keyd check"), "{refused}");
        assert!(time < AT_ONCE, "{time:?}");
    }
    // It ends by itself, and systemd starts the next one.
    wait_for("its end", || {
        daemon.child.try_wait().expect("a child").is_some()
    });
    assert!(!daemon.child.wait().expect("a child").success());
    let mut said = String::new();
    let mut errors = daemon.child.stderr.take().expect("piped");
    errors.read_to_string(&mut said).expect("text");
    assert!(
        said.contains("cannot start: ") && said.contains("No such file"),
        "{said}"
    );
}
