//! A daemon with its keys, and a witness.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockstep_remote::{Connection, Operation};
use lockstep_testkit::{TempDir, command};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

/// The daemon's keys, in the order of their handles.
pub const KEYS: [&str; 3] = ["ed25519", "p256", "rsa2048"];
/// Arguments with which the `openssl` command makes each.
const MADE_BY: [&[&str]; 3] = [
    &["-algorithm", "ed25519"],
    &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
];

/// Number of the log's last lines that are kept.
const LINES: usize = 100;

/// Waits until a condition is true.
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A running daemon. It is killed when it is dropped.
pub struct Daemon {
    child: Mutex<Child>,
    pid: u32,
    /// The last lines of its log.
    log: Arc<Mutex<VecDeque<String>>>,
    /// Number of lines in its log.
    lines: Arc<AtomicU64>,
    is_log_unread: Arc<AtomicBool>,
    directory: TempDir,
}

impl Daemon {
    /// Starts a daemon with these settings, and waits until it serves.
    pub fn start(settings: &str) -> Daemon {
        Daemon::start_as(own_user(), settings)
    }

    /// The same with another user, which the daemon becomes.
    pub fn start_as(daemon_user: u32, settings: &str) -> Daemon {
        Daemon::launch(command(&program(), &[]), daemon_user, settings)
    }

    /// The same in a PID namespace of its own, for root.
    pub fn start_in_namespace(settings: &str) -> Daemon {
        let words = ["--pid", "--fork", "--kill-child", &program()];
        Daemon::launch(command("unshare", &words), own_user(), settings)
    }

    /// The same with a limit of open files, and a maximum of that limit.
    pub fn start_with_files(now: u64, most: u64, settings: &str) -> Daemon {
        let script = format!("ulimit -S -n {now}; ulimit -H -n {most}; exec \"$0\" \"$@\"");
        let shell = command("sh", &["-c", &script, &program()]);
        Daemon::launch(shell, own_user(), settings)
    }

    /// The same with SIGHUP ignored, as by nohup(1).
    pub fn start_without_hangup() -> Daemon {
        let script = "trap '' HUP; exec \"$0\" \"$@\"";
        Daemon::launch(command("sh", &["-c", script, &program()]), own_user(), "")
    }

    /// The same with a system call that fails with this error the first times. It needs strace.
    pub fn start_with_failing(call: &str, error: &str) -> Daemon {
        let failing = format!("inject={call}:error={error}:when=1..20");
        // strace is its grandchild, so that the daemon is a child of this process.
        let words = ["-Dfqqo", "/dev/null", "-e", &failing, &program()];
        Daemon::launch(command("strace", &words), own_user(), "")
    }

    fn launch(mut program: Command, daemon_user: u32, settings: &str) -> Daemon {
        let directory = TempDir::new("keyd");
        let user = own_user();
        let socket = directory.join("socket");
        let socket = socket.display();
        let mut text = format!("socket = {socket}\nuser = {daemon_user}\n{settings}");
        for (name, made_by) in KEYS.iter().zip(MADE_BY) {
            let file = directory.join(name);
            let mut make = command("openssl", &["genpkey", "-out"]);
            let made = make.arg(&file).args(made_by).output().expect("openssl");
            assert!(made.status.success(), "{made:?}");
            let file = file.display();
            text += &format!("[key {name}]\nfile = {file}\nusers = {user}\nuses = sign\n");
        }
        let configuration = directory.join("keyd.conf");
        fs::write(&configuration, text).expect("a file");
        let mut child = program
            .args(["keyd", "--config"])
            .arg(&configuration)
            .env("LOCKSTEP_STATS_DIR", "no")
            // For a program with fault points only.
            .envs(env::var_os("LOCKSTEP_PLANT").map(|defect| ("LOCKSTEP_PLANT", defect)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a program");
        let errors = child.stderr.take().expect("piped");
        fcntl_setpipe_size(&errors, 16 << 10).expect("a pipe");
        let read = BufReader::with_capacity(1 << 10, errors).lines();
        let lines = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&lines);
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let is_log_unread = Arc::new(AtomicBool::new(false));
        let (kept, is_unread) = (Arc::clone(&log), Arc::clone(&is_log_unread));
        thread::spawn(move || {
            for line in read.map_while(Result::ok) {
                count.fetch_add(1, Relaxed);
                while is_unread.load(Relaxed) {
                    thread::sleep(Duration::from_millis(2));
                }
                let mut kept = kept.lock().expect("no panic");
                kept.push_back(line);
                if kept.len() > LINES {
                    kept.pop_front();
                }
            }
        });
        let daemon = Daemon {
            pid: child.id(),
            child: Mutex::new(child),
            log,
            lines,
            is_log_unread,
            directory,
        };
        wait_for("the start of the daemon", || {
            assert!(daemon.is_alive(), "{}", daemon.log());
            Connection::open(&daemon.socket()).is_ok()
        });
        daemon
    }

    /// Returns a file of the daemon in /proc.
    pub fn about(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub fn is_alive(&self) -> bool {
        let mut child = self.child.lock().expect("no panic");
        child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child.lock().expect("no panic"));
        kill_process(pid, signal).expect("a child");
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> ExitStatus {
        let mut child = self.child.lock().expect("no panic");
        child.wait().expect("a child")
    }

    /// Returns the last lines of its log.
    pub fn log(&self) -> String {
        let log = self.log.lock().expect("no panic");
        log.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns the number of lines in its log.
    pub fn lines(&self) -> u64 {
        self.lines.load(Relaxed)
    }

    /// Stops or resumes reading its log, which then has room for about 16 KiB more.
    pub fn leave_log_unread(&self, is_unread: bool) {
        self.is_log_unread.store(is_unread, Relaxed);
    }

    /// Returns its resources for this number of clients, once it has forgotten earlier ones.
    pub fn holdings_with(&self, clients: usize) -> Holdings {
        wait_for("the end of earlier clients", || {
            let log = self.log();
            let count = |what| log.matches(what).count();
            count(" serves process ") - count(" has ended: ") == clients
        });
        // The log has the line shortly before the daemon frees everything.
        let mut holdings = self.holdings();
        wait_for("a daemon that stays as it is", || {
            thread::sleep(Duration::from_millis(100));
            let before = std::mem::replace(&mut holdings, self.holdings());
            before == holdings
        });
        holdings
    }

    /// Returns its resources for its clients.
    pub fn holdings(&self) -> Holdings {
        let status = fs::read_to_string(self.about("status")).expect("a process");
        let number = |name| number_in(&status, name);
        Holdings {
            descriptors: fs::read_dir(self.about("fd")).ok().map(Iterator::count),
            rings: number("RssShmem:"),
            threads: number("Threads:"),
        }
    }
}

/// Returns the number behind a name in a file of /proc.
fn number_in(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("a number")
}

impl Daemon {
    /// Returns the number of its descriptors, which only root can count, and its memory in KiB,
    /// rings included.
    pub fn needs(&self) -> (u64, u64) {
        let descriptors = fs::read_dir(self.about("fd")).map_or(0, Iterator::count) as u64;
        let status = fs::read_to_string(self.about("status")).expect("a process");
        (descriptors, number_in(&status, "VmRSS:"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(|error| error.into_inner());
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns the user of this process.
pub fn own_user() -> u32 {
    fs::metadata("/proc/self").expect("/proc").uid()
}

/// The daemon's resources for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Number of descriptors. Only root can count them, since the daemon hides them from all
    /// others.
    descriptors: Option<usize>,
    /// Shared memory in KiB, without that of keys.
    rings: u64,
    threads: u64,
}

/// Returns the program in `LOCKSTEP_DIST`, or in `dist/` of the project.
pub fn program() -> String {
    let directory = env::var_os("LOCKSTEP_DIST").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist"),
        PathBuf::from,
    );
    let program = directory.join("lockstep");
    assert!(program.exists(), "`cargo xtask dist` makes {program:?}");
    program.display().to_string()
}

/// Returns a digest of SHA-256, padded with PKCS#1 v1.5 for RSA-2048.
pub fn padded() -> Vec<u8> {
    padded_to(256)
}

/// The same for a modulus of `length` bytes.
pub fn padded_to(length: usize) -> Vec<u8> {
    let mut input = vec![0xff; length];
    input[..2].copy_from_slice(&[0, 1]);
    // RFC 8017, 9.2 for SHA-256.
    let info = [
        0, 0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20,
    ];
    input[length - 52..].fill(7);
    input[length - 52..][..info.len()].copy_from_slice(&info);
    input
}

/// A process that signs all the time with every key, and expects the right answers.
pub struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Witness {
    pub fn start(daemon: &Daemon) -> Witness {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, socket) = (Arc::clone(&is_over), daemon.socket());
        let thread = thread::spawn(move || testify(&socket, &over));
        Witness { is_over, thread }
    }

    /// Ends it; returns the number of its answers, or the problem with one.
    pub fn stop(self) -> Result<u64, String> {
        self.is_over.store(true, Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn testify(socket: &Path, is_over: &AtomicBool) -> Result<u64, String> {
    let failed = |failure: lockstep_remote::Failure| failure.to_string();
    let connection = Connection::open(socket).map_err(failed)?;
    let [ed25519, p256, rsa] = connection.keys() else {
        return Err("the daemon does not offer its keys".to_owned());
    };
    let (message, digest, padded) = ([3; 40], [5; 32], padded());
    let mut expected = None;
    let mut count = 0;
    while !is_over.load(Relaxed) {
        let ask = |operation, key, input, length| {
            let answer = connection.ask(operation, key, input, length);
            answer.map_err(failed)
        };
        ask(Operation::EcdsaSign, p256, &digest, 64)?;
        let signatures = (
            ask(Operation::Ed25519Sign, ed25519, &message, 64)?.to_vec(),
            ask(Operation::RsaPrivate, rsa, &padded, 256)?.to_vec(),
        );
        count += 3;
        // The engine has checked the first result. Equal inputs have equal results.
        if *expected.get_or_insert_with(|| signatures.clone()) != signatures {
            return Err(format!("a wrong answer after {count}"));
        }
    }
    Ok(count)
}
