//! Helpers of all tests: the module under test, processes that run with and without it, their
//! counters, and keys.

#![allow(unsafe_code, reason = "system calls")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write as _};
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_engine::{Backend, Fallback, Shape, Snapshot, read_stats};

use crate::compiler::compile;

/// How long a process may take unless a test says otherwise; a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(60);

/// The directory with `lockstep.so` and `openssl.cnf`: `LOCKSTEP_DIST`, else `dist/` of the
/// project.
pub fn dist() -> PathBuf {
    let directory = std::env::var_os("LOCKSTEP_DIST").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist"),
        PathBuf::from,
    );
    assert!(
        directory.join("lockstep.so").exists() && directory.join("openssl.cnf").exists(),
        "no lockstep.so and openssl.cnf in {}: run `cargo xtask dist` first",
        directory.display()
    );
    directory.canonicalize().expect("the directory exists")
}

/// The shapes that ran on lanes, and how often.
pub type Shapes = BTreeMap<&'static str, u64>;

/// Whether this machine has the instructions for the fast lanes; without them the tests run on the
/// portable ones.
pub fn has_ifma() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let best = Backend::best_hardware();
        let found = best.is_some_and(|backend| !backend.is_avx2());
        if !found {
            println!("no AVX-512 IFMA: these tests run on the portable lanes");
        }
        found
    })
}

/// A directory of one test, with the configuration its processes use. Removed at the end.
pub struct Place {
    directory: PathBuf,
    runs: AtomicUsize,
}

impl Place {
    /// A fresh directory, and the configuration of `dist`.
    pub fn new() -> Place {
        Place::with_settings(&[])
    }

    /// The same with settings in the provider's section of the configuration.
    pub fn with_settings(settings: &[(&str, &str)]) -> Place {
        Place::of(&dist(), settings)
    }

    /// The same with the module and configuration of another directory.
    pub fn of(dist: &Path, settings: &[(&str, &str)]) -> Place {
        let place = Place::bare();
        let shipped = fs::read_to_string(dist.join("openssl.cnf")).expect("openssl.cnf");
        let mut configuration = String::new();
        for line in shipped.lines() {
            configuration.push_str(line);
            configuration.push('\n');
            if line.trim_start().starts_with("module") && line.contains("lockstep") {
                for (name, value) in settings {
                    configuration.push_str(&format!("{name} = {value}\n"));
                }
            }
        }
        place.write("lockstep.cnf", configuration.as_bytes());
        place
    }

    /// A fresh directory for OpenSSL alone.
    fn bare() -> Place {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let directory = temporary().join(format!("place-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory for the test");
        Place {
            directory,
            runs: AtomicUsize::new(0),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("a file in the test's directory");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name} was not written: {error}"))
    }

    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.path(name));
    }

    /// Puts a key (see [`key`]) here, as `NAME.pem` and `NAME.pub.pem`.
    pub fn key(&self, name: &str) -> String {
        let file = format!("{name}.pem");
        for file in [&file, &format!("{name}.pub.pem")] {
            if !self.path(file).exists() {
                fs::copy(key(name).with_file_name(file), self.path(file)).expect("a key");
            }
        }
        file
    }

    /// Makes a certificate for a name, signed with its own key by OpenSSL without the module.
    pub fn self_signed(&self, key: &str, name: &str, file: &str) {
        let command = format!("req -x509 -new -key {key} -days 2 -subj /CN={name} -out {file}");
        self.stock(&command).succeed();
    }

    /// The `openssl` command with the module loaded. The words of `command` are separated by
    /// blanks.
    pub fn lockstep(&self, command: &str) -> Process<'_> {
        self.program("openssl", command).with_lockstep()
    }

    /// The `openssl` command without the module.
    pub fn stock(&self, command: &str) -> Process<'_> {
        self.program("openssl", command)
    }

    /// A program that runs in this directory, without the module.
    pub fn program(&self, program: impl AsRef<Path>, arguments: &str) -> Process<'_> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let statistics = self.path(&format!("statistics-{run}"));
        fs::create_dir_all(&statistics).expect("a directory for statistics");
        let mut command = Command::new(program.as_ref());
        command
            .args(arguments.split_whitespace())
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let openssl = ["OPENSSL_CONF", "OPENSSL_ia32cap"];
            if text.starts_with("LOCKSTEP_") || openssl.contains(&&*text) {
                command.env_remove(&name);
            }
        }
        Process {
            place: self,
            command,
            statistics,
            limit: LIMIT,
        }
    }

    /// Compiles `programs/NAME.c` here.
    pub fn compile(&self, name: &str) -> PathBuf {
        self.compile_with(name, name, &["-lssl", "-lcrypto", "-lpthread"])
    }

    /// Compiles `programs/NAME.c` here to a library that can be preloaded.
    pub fn compile_library(&self, name: &str) -> PathBuf {
        self.compile_with(name, &format!("{name}.so"), &["-shared", "-fPIC"])
    }

    /// Compiles `programs/NAME.c` here with options of the compiler.
    pub fn compile_with(&self, name: &str, output: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/provider/programs")
            .join(format!("{name}.c"));
        let program = self.path(output);
        compile(&source, &program, options);
        program
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Where tests keep files: cargo's own directory for that.
fn temporary() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A process to run.
pub struct Process<'a> {
    place: &'a Place,
    command: Command,
    statistics: PathBuf,
    limit: Duration,
}

impl<'a> Process<'a> {
    /// Loads the module through `OPENSSL_CONF`, sends lone requests to the lanes too, and keeps the
    /// counters.
    pub fn with_lockstep(self) -> Process<'a> {
        let configuration = self.place.path("lockstep.cnf");
        self.with_counters().env("OPENSSL_CONF", configuration)
    }

    /// The same for a program that loads the module by itself.
    pub fn with_counters(mut self) -> Process<'a> {
        self.command
            .env("LOCKSTEP_STATS_DIR", &self.statistics)
            .env("LOCKSTEP_STATS_KEEP", "yes")
            // Planted faults must not reach this machine's system log.
            .env("LOCKSTEP_SYSLOG", "no")
            .env("LOCKSTEP_LONE", "lanes");
        if !has_ifma() {
            self.command.env("LOCKSTEP_BACKEND", "portable");
        }
        self
    }

    /// Uses the lanes of AVX2 where these are the best ones: six times as fast as portable lanes,
    /// for tests without the NIST curves.
    pub fn on_vectors(self) -> Process<'a> {
        match has_ifma() || Backend::from_name("avx2").is_none() {
            true => self,
            false => self.env("LOCKSTEP_BACKEND", "avx2"),
        }
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Process<'a> {
        self.command.env(name, value);
        self
    }

    /// Leaves the standard input open: some servers end with it.
    pub fn silent_input(mut self) -> Process<'a> {
        self.command.stdin(Stdio::piped());
        self
    }

    pub fn limit(mut self, seconds: u64) -> Process<'a> {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Starts the process; if it runs still, it is killed with its children when the result goes
    /// out of scope.
    pub fn start(mut self) -> Running {
        let shown = format!("{:?}", self.command);
        let mut child = self
            .command
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {shown}: {error}"));
        Running {
            stdout: Collector::of(child.stdout.take().expect("piped")),
            stderr: Collector::of(child.stderr.take().expect("piped")),
            child,
            shown,
            statistics: self.statistics,
            deadline: Instant::now() + self.limit,
        }
    }

    /// Runs the process to its end.
    pub fn run(self) -> Finished {
        self.start().wait()
    }

    /// Runs it and expects success.
    pub fn succeed(self) -> Finished {
        let finished = self.run();
        assert!(finished.status.success(), "{finished}");
        finished
    }

    /// Runs it and expects an orderly failure, neither a crash nor a hang.
    pub fn fail(self) -> Finished {
        let finished = self.run();
        assert!(
            finished.status.code().is_some_and(|code| code != 0),
            "{finished}"
        );
        finished
    }
}

/// Everything a pipe has given so far.
struct Collector {
    collected: std::sync::Arc<Mutex<Vec<u8>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Collector {
    fn of(mut pipe: impl Read + Send + 'static) -> Collector {
        let collected = std::sync::Arc::new(Mutex::new(Vec::new()));
        let into = collected.clone();
        let thread = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut chunk) {
                into.lock()
                    .expect("collector")
                    .extend_from_slice(&chunk[..length]);
            }
        });
        Collector {
            collected,
            thread: Some(thread),
        }
    }

    fn so_far(&self) -> Vec<u8> {
        self.collected.lock().expect("collector").clone()
    }

    /// Everything, once the other end is closed. A grandchild may hold it open: do not wait long.
    fn all(&mut self) -> Vec<u8> {
        if let Some(thread) = self.thread.take() {
            let deadline = Instant::now() + Duration::from_secs(2);
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.so_far()
    }
}

/// A process that runs.
pub struct Running {
    child: Child,
    stdout: Collector,
    stderr: Collector,
    shown: String,
    statistics: PathBuf,
    deadline: Instant,
}

impl Running {
    /// Waits for the end of the process, and kills it when its time is over.
    pub fn wait(mut self) -> Finished {
        let status = loop {
            match self.child.try_wait().expect("the child can be waited for") {
                Some(status) => break status,
                None if Instant::now() > self.deadline => {
                    self.kill();
                    panic!("hangs: {}", self.describe());
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        Finished {
            status,
            pid: self.child.id(),
            stdout: self.stdout.all(),
            stderr: String::from_utf8_lossy(&self.stderr.all()).into_owned(),
            shown: self.shown.clone(),
            statistics: self.statistics.clone(),
        }
    }

    /// Waits until `found` finds something in the standard output of the process.
    pub fn wait_for<T>(&mut self, what: &str, found: impl Fn(&str) -> Option<T>) -> T {
        loop {
            if let Some(result) = found(&String::from_utf8_lossy(&self.stdout.so_far())) {
                return result;
            }
            let ended = self
                .child
                .try_wait()
                .expect("the child can be waited for")
                .is_some();
            assert!(
                !ended && Instant::now() < self.deadline,
                "no {what}: {}",
                self.describe()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Writes to the standard input of a process that was started with a silent one.
    pub fn send(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("an input");
        input.write_all(text.as_bytes()).expect("it reads");
    }

    /// Ends the standard input of a process that was started with a silent one.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process, and waits until all of its threads stand still.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let is_stopped = |thread: fs::DirEntry| {
            let status = fs::read_to_string(thread.path().join("status"));
            status.is_ok_and(|text| text.lines().any(|line| line.starts_with("State:\tT")))
        };
        loop {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
            if threads.flatten().all(is_stopped) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a plain system call; the child was not waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Asks the process to end.
    pub fn end(&self) {
        self.signal(libc::SIGTERM);
    }

    /// The directory of its counters.
    pub fn statistics(&self) -> &Path {
        &self.statistics
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The counters of the process now; None before it has used its engine.
    pub fn counters(&self) -> Option<Counters> {
        counters_of(&self.statistics, self.child.id())
    }

    /// Waits until the counters satisfy a condition (a server counts just after it answers).
    pub fn wait_for_counters(&self, what: &str, condition: impl Fn(&Counters) -> bool) -> Counters {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.counters() {
                Some(counters) if condition(&counters) => return counters,
                counters => assert!(
                    Instant::now() < deadline,
                    "not {what}: {counters:?} {}",
                    self.describe()
                ),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "{}\n{}\n{}",
            self.shown,
            String::from_utf8_lossy(&self.stdout.so_far()),
            String::from_utf8_lossy(&self.stderr.so_far())
        )
    }

    fn kill(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let group = -(self.child.id() as libc::pid_t);
            // SAFETY: a plain system call; the group is that of the child, which was not waited
            // for.
            unsafe { libc::kill(group, libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that has ended.
pub struct Finished {
    pub status: ExitStatus,
    pub pid: u32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    shown: String,
    statistics: PathBuf,
}

impl Finished {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The counters that the process left.
    pub fn counters(&self) -> Counters {
        self.counters_of(self.pid)
    }

    /// The counters, if the process used its engine.
    pub fn try_counters(&self) -> Option<Counters> {
        counters_of(&self.statistics, self.pid)
    }

    /// The counters that a child of the process left.
    pub fn counters_of(&self, pid: u32) -> Counters {
        counters_of(&self.statistics, pid)
            .unwrap_or_else(|| panic!("process {pid} left no counters: {self}"))
    }

    /// The counters of the process and all its children.
    pub fn all_counters(&self) -> BTreeMap<u32, Counters> {
        let mut all = BTreeMap::new();
        for (pid, snapshot) in published(&self.statistics) {
            let sum: &mut Counters = all.entry(pid).or_insert(Counters(Snapshot::default()));
            sum.0.absorb(&snapshot);
        }
        all
    }

    /// Checks that lanes did these operations, each once, and nothing else happened.
    #[track_caller]
    pub fn each_on_lanes(&self, shapes: &[&'static str]) -> &Finished {
        self.counters().expect_each(shapes, &self.to_string());
        self
    }

    /// Checks that lanes did exactly `operations` operations of this shape, and nothing else
    /// happened.
    #[track_caller]
    pub fn on_lanes(&self, shape: &str, operations: u64) -> &Finished {
        let counters = self.counters();
        counters.expect(shape, operations, &self.to_string());
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finished {
            shown,
            status,
            stderr,
            ..
        } = self;
        let end = |text: &str| -> String {
            let cut = text.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
            text[cut..].to_owned()
        };
        write!(
            f,
            "{shown}\n{status}\n{}\n{}",
            end(&self.text()),
            end(stderr)
        )
    }
}

/// The counters of one process.
#[derive(Debug)]
pub struct Counters(Snapshot);

impl Deref for Counters {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

impl Counters {
    /// Private operations on lanes, by the name of their shape (`rsa2048`).
    pub fn of(&self, shape: &str) -> u64 {
        let shape = Shape::ALL.into_iter().find(|known| known.name() == shape);
        self.operations_of(shape.expect("the name of a shape"))
    }

    /// Requests and keys that were left to OpenSSL for this reason.
    pub fn fallback(&self, reason: &str) -> u64 {
        let reason = Fallback::ALL.iter().find(|known| known.name() == reason);
        self.fallbacks_for(*reason.expect("the name of a reason"))
    }

    /// The reasons for which OpenSSL computed.
    pub fn reasons(&self) -> Vec<(&'static str, u64)> {
        let all = Fallback::ALL
            .iter()
            .map(|reason| (reason.name(), self.fallbacks_for(*reason)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// How often each shape ran on lanes.
    pub fn shapes(&self) -> Shapes {
        let all = Shape::ALL
            .into_iter()
            .map(|shape| (shape.name(), self.operations_of(shape)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Checks that lanes did these operations, each once, and nothing else happened.
    #[track_caller]
    pub fn expect_each(&self, shapes: &[&'static str], context: &str) {
        let mut expected = Shapes::new();
        for shape in shapes {
            *expected.entry(shape).or_default() += 1;
        }
        assert!(
            self.shapes() == expected && self.fallbacks() == 0 && self.failed_checks == 0,
            "expected {expected:?} on lanes and nothing else: {self:?}\n{context}"
        );
    }

    /// Checks that lanes did these operations and nothing else happened.
    #[track_caller]
    pub fn expect(&self, shape: &str, operations: u64, context: &str) {
        assert!(
            self.of(shape) == operations
                && self.operations() == operations
                && self.fallbacks() == 0
                && self.failed_checks == 0,
            "expected {operations} operations of {shape} on lanes and nothing else: {self:?}\n{context}"
        );
    }
}

/// The counters that a process has published.
fn counters_of(statistics: &Path, pid: u32) -> Option<Counters> {
    let all = published(statistics).into_iter();
    let sum = all
        .filter(|(of, _)| *of == pid)
        .map(|(_, snapshot)| snapshot)
        .reduce(|mut sum, next| {
            sum.absorb(&next);
            sum
        });
    sum.map(Counters)
}

/// Returns the published counters of processes, by pid, one entry for each engine.
fn published(statistics: &Path) -> Vec<(u32, Snapshot)> {
    let stats = read_stats(statistics).expect("the directory for statistics");
    let mut all: Vec<_> = stats
        .into_iter()
        .map(|process| (process.pid, process.snapshot))
        .collect();
    // Modules of earlier commits, which tests are tried with, write a document for each engine.
    for file in fs::read_dir(statistics).expect("the directory for statistics") {
        let path = file.expect("a file").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
            && let Some(snapshot) = fs::read_to_string(&path)
                .ok()
                .and_then(|document| Snapshot::from_json(&document))
        {
            all.push((snapshot.pid as u32, snapshot));
        }
    }
    all
}

/// The path of a private key; its public key is beside it as `NAME.pub.pem`.
///
/// Keys are made by OpenSSL alone when first asked for, and kept between runs of the tests.
pub fn key(name: &str) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let directory = temporary().join("keys");
    let path = directory.join(format!("{name}.pem"));
    let public = directory.join(format!("{name}.pub.pem"));
    if !public.exists() {
        fs::create_dir_all(&directory).expect("a directory for keys");
        let place = Place::bare();
        place.stock(&format!("{} -out key", recipe(name))).succeed();
        place.stock("pkey -in key -pubout -out public").succeed();
        fs::copy(place.path("key"), &path).expect("a key");
        // By renaming, so that two test processes may do the same.
        let fresh = public.with_extension(format!("{}", std::process::id()));
        fs::copy(place.path("public"), &fresh).expect("a key");
        fs::rename(&fresh, &public).expect("a key");
    }
    path
}

/// The `openssl` command that makes a key.
fn recipe(name: &str) -> String {
    let genpkey = |algorithm: &str, options: &[&str]| {
        options.iter().fold(
            format!("genpkey -algorithm {algorithm}"),
            |command, option| format!("{command} -pkeyopt {option}"),
        )
    };
    let bits = |name: &str| {
        format!(
            "rsa_keygen_bits:{}",
            name.split('-').next().expect("digits")
        )
    };
    match name {
        "p256" => genpkey("EC", &["ec_paramgen_curve:P-256"]),
        "p384" => genpkey("EC", &["ec_paramgen_curve:P-384"]),
        "p521" => genpkey("EC", &["ec_paramgen_curve:P-521"]),
        "p256-explicit" => genpkey("EC", &["ec_paramgen_curve:P-256", "ec_param_enc:explicit"]),
        "x25519" | "ed25519" | "x448" | "ed448" => genpkey(name, &[]),
        "three-primes" => genpkey("RSA", &["rsa_keygen_bits:2048", "rsa_keygen_primes:3"]),
        "rsa2048-e3" => genpkey("RSA", &["rsa_keygen_bits:2048", "rsa_keygen_pubexp:3"]),
        _ => match (name.strip_prefix("pss"), name.strip_prefix("rsa")) {
            (Some(name), _) => genpkey(
                "RSA-PSS",
                &[
                    &bits(name),
                    "rsa_pss_keygen_md:sha256",
                    "rsa_pss_keygen_mgf1_md:sha256",
                    "rsa_pss_keygen_saltlen:32",
                ],
            ),
            (None, Some(name)) => genpkey("RSA", &[&bits(name)]),
            (None, None) => panic!("no recipe for the key {name}"),
        },
    }
}
