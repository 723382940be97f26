//! A daemon that is killed at each system call by which it changes a directory. The next one
//! starts, and leaves only correct files behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use lockstep_remote::Connection;
use lockstep_testkit::{TempDir, command};

use crate::site::{own_user, program, wait_for};

/// The system calls. A kill at a call after the creation of another file leaves that file behind.
const CALLS: [&str; 6] = ["write", "mkdirat", "renameat", "unlinkat", "bind", "rename"];

/// A directory with two sites, and a configuration.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new(made: &Path) -> Place {
        let directory = TempDir::new("left");
        for site in ["a", "b"] {
            let site = directory.join("live").join(site);
            fs::create_dir_all(&site).expect("a directory");
            for name in ["key.pem", "cert.pem"] {
                fs::copy(made.join(name), site.join(name)).expect("a file");
            }
        }
        let (shown, user) = (directory.display(), own_user());
        let text = format!(
            "socket = {shown}/socket\nuser = {user}\n[key site]\nfile = {shown}/live/*/key.pem\n\
             references = {shown}/refs/site\nusers = {user}\nuses = sign\n"
        );
        fs::write(directory.join("keyd.conf"), text).expect("a file");
        Place { directory }
    }

    /// Starts the daemon by other programs. As in its unit, its new files are at first its own
    /// only.
    fn start(&self, by: &[&str]) -> Child {
        let words = ["-c", "umask 077; exec \"$@\"", "sh"];
        let mut daemon = command("sh", &words);
        daemon.args(by).arg(program()).args(["keyd", "--config"]);
        daemon.arg(self.directory.join("keyd.conf"));
        daemon.env("LOCKSTEP_STATS_DIR", "no");
        daemon
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        daemon.spawn().expect("a program")
    }

    /// Starts it, and ends it once it serves.
    fn serve(&self, by: &[&str]) {
        let mut daemon = self.start(by);
        wait_for("the start of the daemon", || {
            let ended = daemon.try_wait().expect("a child");
            assert!(ended.is_none(), "{ended:?}");
            Connection::open(&self.directory.join("socket")).is_ok()
        });
        daemon.kill().expect("a child");
        daemon.wait().expect("a child");
    }

    /// Returns the files that daemons have created, with their modes.
    fn tree(&self) -> BTreeMap<String, u32> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.directory.to_path_buf()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                let about = fs::symlink_metadata(&path).expect("a file");
                let name = path.strip_prefix(&*self.directory).expect("below it");
                let name = name.display().to_string();
                if !["live", "keyd.conf", "log"].contains(&&*name) {
                    found.insert(name, about.mode());
                    waiting.extend(about.is_dir().then_some(path));
                }
            }
        }
        found
    }
}

#[test]
fn a_daemon_that_is_killed_anywhere_leaves_nothing_behind() {
    let traced = command("strace", &["-D", "true"]).output();
    if !traced.is_ok_and(|traced| traced.status.success()) {
        println!("skipped: strace is not installed, or may not trace");
        return;
    }
    let made = TempDir::new("left-made");
    let words = "req -x509 -newkey ed25519 -noenc -subj /CN=x -keyout key.pem -out cert.pem";
    let words: Vec<&str> = words.split(' ').collect();
    let output = command("openssl", &words).current_dir(&*made).output();
    assert!(output.is_ok_and(|output| output.status.success()));
    // The number of each call.
    let whole = Place::new(&made);
    let log = whole.directory.join("log").display().to_string();
    whole.serve(&[
        "strace",
        "-Dqqo",
        &log,
        "-e",
        &format!("trace={}", CALLS.join(",")),
    ]);
    let expected = whole.tree();
    let modes = ["refs", "refs/site/a", "refs/site/b/key.pem", "socket"].map(|name| expected[name]);
    assert_eq!(modes, [0o40755, 0o40755, 0o100644, 0o140666]);
    let log = fs::read_to_string(log).expect("a file");
    let (mut killed, mut torn) = (0, 0);
    for call in CALLS {
        let start = format!("{call}(");
        let count = log.lines().filter(|line| line.starts_with(&start)).count();
        assert!(count > 0, "{call}: {log}");
        for number in 1..=count {
            let place = Place::new(&made);
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let mut daemon = place.start(&["strace", "-Dqqo", "/dev/null", "-e", &inject]);
            let mut ended = None;
            wait_for("the end, or the start", || {
                ended = daemon.try_wait().expect("a child");
                ended.is_some() || Connection::open(&place.directory.join("socket")).is_ok()
            });
            let _ = daemon.kill();
            let _ = daemon.wait();
            killed += usize::from(ended.is_some_and(|ended| ended.signal() == Some(9)));
            let is_expected = |(name, mode): (&String, &u32)| expected.get(name) == Some(mode);
            torn += usize::from(!place.tree().iter().all(is_expected));
            // The file that it was about to write is not written by the next daemon, either.
            fs::remove_dir_all(place.directory.join("live/a")).expect("a directory");
            place.serve(&[]);
            let tree = place.tree();
            assert!(tree.iter().all(is_expected), "{call} {number}: {tree:?}");
            assert!(
                tree.contains_key("refs/site/b/cert.pem"),
                "{call} {number}: {tree:?}"
            );
        }
    }
    println!("{killed} daemons were killed, and {torn} of them had left something");
    assert!(killed > 8 && torn > 3, "{killed} {torn}");
}
