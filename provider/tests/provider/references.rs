//! Keys whose private parts the key daemon holds: a real daemon, and real programs that use them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lockstep_remote::Reference;
use lockstep_remote::protocol::{self, GREETING, Offered, Uses, VERSION, Verdict};
use lockstep_ring::Server;
use lockstep_testkit::TempDir;

use crate::common::{Counters, Place, Process, Running, dist};
use crate::key_memory;

const KEYS: [&str; 4] = ["rsa2048", "p256", "p384", "ed25519"];

/// A directory with keys, their certificates, and the daemon that holds the keys.
pub struct Site {
    pub place: Place,
    /// In `/tmp`: a socket's path must be short.
    sockets: TempDir,
}

/// The user that runs the tests.
pub fn own_user() -> u32 {
    fs::metadata("/proc/self").expect("/proc").uid()
}

impl Site {
    /// Keys for the user that runs the tests.
    pub fn new(uses: &str) -> Site {
        Site::granting(&format!("users = {}\nuses = {uses}\n", own_user()))
    }

    /// Makes a site whose keys have these lines in their sections. Keys on curves only sign.
    pub fn granting(lines: &str) -> Site {
        Site::at(Place::new(), &KEYS, "", lines)
    }

    /// The same with these keys in a directory, and with settings of the daemon itself.
    pub fn at(place: Place, keys: &[&str], settings: &str, lines: &str) -> Site {
        let site = Site {
            place,
            sockets: TempDir::new("references"),
        };
        let mut text = format!("socket = {}\nuser = nobody\n{settings}", site.socket());
        site.allow(&site.socket());
        for &key in keys {
            let file = site.place.path(&site.place.key(key));
            site.place
                .self_signed(&format!("{key}.pem"), key, &format!("{key}.crt"));
            let lines = match key {
                "p256" | "p384" | "ed25519" => lines.replace(" decrypt", ""),
                _ => lines.to_owned(),
            };
            text.push_str(&format!("[key {key}]\nfile = {}\n{lines}", file.display()));
        }
        site.place.write("keyd.conf", text.as_bytes());
        for key in keys {
            let command = format!("keyd export-reference {key} --config keyd.conf --out {key}.ref");
            site.lockstep(&command);
        }
        site
    }

    /// Writes a configuration that loads the module of a `dist/` and allows references.
    pub fn write_configuration(&self, dist: &Path, name: &str) {
        let text = fs::read_to_string(dist.join("openssl.cnf")).expect("a configuration");
        let line = format!("references = yes\nkeyd_socket = {}\n", self.socket());
        self.place.write(name, (text + &line).as_bytes());
    }

    /// Whether this process accepts at the socket.
    pub fn is_served_by(&self, pid: u32) -> bool {
        let stream = UnixStream::connect(self.socket()).ok();
        let who = stream.and_then(|stream| lockstep_ring::credentials(stream).ok());
        who.is_some_and(|who| who.process == pid as i32)
    }

    /// Has programs use references, and ask the daemon at this socket.
    fn allow(&self, socket: &str) {
        let text = String::from_utf8(self.place.read("lockstep.cnf")).expect("text");
        let (module, _) = text
            .split_once("references = ")
            .unwrap_or((text.as_str(), ""));
        let text = format!("{module}references = yes\nkeyd_socket = {socket}\n");
        self.place.write("lockstep.cnf", text.as_bytes());
    }

    /// Has programs use none, as by default.
    fn forbid(&self) {
        let text = String::from_utf8(self.place.read("lockstep.cnf")).expect("text");
        let (module, _) = text.split_once("references = ").expect("allowed before");
        self.place.write("lockstep.cnf", module.as_bytes());
    }

    pub fn socket(&self) -> String {
        self.sockets.join("keyd.sock").display().to_string()
    }

    fn lockstep(&self, command: &str) -> String {
        let program = self.place.program(dist().join("lockstep"), command);
        program.succeed().text()
    }

    /// Starts the daemon, and waits until it serves.
    pub fn daemon(&self) -> Running {
        self.start(self.daemon_process())
    }

    /// Its keys are credentials of systemd's: here, a directory stands for those.
    fn daemon_of_credentials(&self, directory: &Path) -> Running {
        let daemon = self.daemon_process();
        self.start(daemon.env("CREDENTIALS_DIRECTORY", directory))
    }

    fn daemon_process(&self) -> Process<'_> {
        let command = "keyd --config keyd.conf";
        let daemon = self.place.program(dist().join("lockstep"), command);
        daemon.with_counters()
    }

    /// The same, where a system call fails with an error.
    fn daemon_without(&self, call: i64, error: i32) -> Running {
        let without = self.place.compile("without");
        let program = dist().join("lockstep").display().to_string();
        let command = format!("{call} {error} {program} keyd --config keyd.conf");
        self.start(self.place.program(without, &command).with_counters())
    }

    fn start(&self, daemon: Process<'_>) -> Running {
        let mut daemon = daemon.start();
        for _ in 0..1000 {
            if UnixStream::connect(self.socket()).is_ok() {
                return daemon;
            }
            assert!(daemon.is_alive(), "{}", daemon.describe());
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the daemon does not listen: {}", daemon.describe());
    }

    /// Returns the keys that `lockstep keyd keys` lists for a user, and its complaints.
    fn keys_of(&self, user: u32, group: u32) -> (String, String) {
        let output = Command::new("setpriv")
            .args([format!("--reuid={user}"), format!("--regid={group}")])
            .arg("--clear-groups")
            .arg(dist().join("lockstep"))
            .args(["keyd", "keys", "--socket", &self.socket()])
            .env_clear()
            .output()
            .expect("setpriv");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(output.stdout), text(output.stderr))
    }

    /// Runs the program with a key and its certificate, and returns its output.
    fn run(&self, command: &str, key: &str) -> String {
        let program = self.place.compile("references");
        let arguments = format!("{command} {key}.ref {key}.crt");
        let finished = self
            .place
            .program(&program, &arguments)
            .with_lockstep()
            .run();
        let text = finished.text();
        // Nothing was computed in the program itself but checks of signatures.
        for (shape, count) in finished.try_counters().iter().flat_map(|c| c.shapes()) {
            assert!(
                count == 0 || shape.ends_with("-verify"),
                "{shape}: {finished}"
            );
        }
        text
    }
}

/// A program whose jobs sign with a reference.
struct InJobs {
    running: Running,
}

impl Site {
    fn in_jobs(&self, key: &str, way: &str) -> InJobs {
        let program = self.place.compile("references");
        let arguments = format!("jobs {key}.ref {key}.crt {way}");
        let process = self.place.program(&program, &arguments).with_lockstep();
        let mut running = process.silent_input().start();
        running.wait_for("signature", |text| {
            text.contains("signs: yes\n").then_some(())
        });
        InJobs { running }
    }
}

impl InJobs {
    /// Has the jobs start; how many are paused then.
    fn starts(&mut self, how: &str, round: usize) -> u32 {
        self.running.send(&format!("{how}\n"));
        self.number("paused: ", round)
    }

    /// How many have signed.
    fn signs(&mut self, round: usize) -> u32 {
        self.number("signed: ", round)
    }

    fn number(&mut self, name: &str, round: usize) -> u32 {
        self.running.wait_for(name, |text| {
            let mut numbers = text.lines().filter_map(|line| line.strip_prefix(name));
            numbers.nth(round - 1)?.parse().ok()
        })
    }

    fn end(mut self) -> Counters {
        self.running.close_input();
        let finished = self.running.wait();
        assert!(finished.status.success(), "{finished}");
        finished.counters()
    }
}

/// Output of `lockstep keyd keys` for keys that may sign.
const ALL: &str = "rsa2048: sign\np256: sign\np384: sign\ned25519: sign\n";

/// Lines that the program must print for every reference.
const LINES: [&str; 7] = [
    "matches its certificate: yes",
    "is preferred: yes",
    "signs: yes",
    "verifies itself: yes",
    "exports private parts: no",
    "exports its public half: yes",
    "is duplicated: yes",
];

/// Waits for a result, and returns it.
#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not in time: {what}");
}

/// Waits until the daemon's log says this.
#[track_caller]
fn wait_for_log(daemon: &Running, text: &str) {
    for _ in 0..6000 {
        if daemon.describe().contains(text) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no `{text}`: {}", daemon.describe());
}

#[track_caller]
fn expect(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            text.lines().any(|own| own == *line),
            "no `{line}` in:\n{text}"
        );
    }
}

#[test]
fn references_sign_with_keys_that_the_program_does_not_have() {
    let site = Site::new("sign decrypt");
    let daemon = site.daemon();
    for key in KEYS {
        let text = site.run("use", key);
        expect(&text, &LINES);
        expect(
            &text,
            &[
                "signs in a child: yes",
                "signs after the child: yes",
                "ends: yes",
            ],
        );
        if key == "rsa2048" {
            expect(&text, &["decrypts OAEP: yes", "decrypts PKCS#1 v1.5: no"]);
            assert!(
                text.contains("PKCS#1 v1.5 decryption is not possible"),
                "{text}"
            );
        }
    }
    // Six times four signatures, a decryption, and one when the key was read.
    let counters = daemon.counters().expect("it served");
    assert_eq!(counters.of("rsa2048"), 26, "{counters:?}");
    for shape in ["p256-sign", "p384-sign"] {
        assert_eq!(counters.of(shape), 13, "{counters:?}");
    }
    assert_eq!(counters.of("ed25519-sign"), 7, "{counters:?}");
}

#[test]
fn a_key_that_may_sign_decrypts_nothing() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    let text = site.run("use", "rsa2048");
    expect(&text, &LINES);
    expect(&text, &["decrypts OAEP: no"]);
    assert!(
        text.contains("does not let this user use the key so"),
        "{text}"
    );
    assert_eq!(daemon.counters().expect("it served").of("rsa2048"), 25);
}

/// As with `LoadCredentialEncrypted=`: the files are decrypted for the service alone.
#[test]
fn keys_are_read_from_credentials() {
    let site = Site::new("sign");
    let text = String::from_utf8(site.place.read("keyd.conf")).expect("text");
    let directory = site.place.path("credentials");
    fs::create_dir(&directory).expect("a directory");
    let mut credentials = text.clone();
    for key in KEYS {
        let file = site.place.path(&format!("{key}.pem"));
        let line = format!("file = {}\n", file.display());
        assert!(text.contains(&line), "{text}");
        credentials = credentials.replace(&line, &format!("file = credential:{key}\n"));
        fs::rename(file, directory.join(key)).expect("the key moves");
    }
    site.place.write("keyd.conf", credentials.as_bytes());
    let daemon = site.daemon_of_credentials(&directory);
    for key in KEYS {
        expect(&site.run("use", key), &["signs: yes"]);
    }
    drop(daemon);
    // Others than the service are shown none.
    let check = "keyd check --config keyd.conf";
    let checked = site.place.program(dist().join("lockstep"), check).fail();
    assert!(checked.stderr.contains("systemd-run"), "{checked}");
    let export = "keyd export-reference p256 --config keyd.conf --out again.ref";
    let exported = site.place.program(dist().join("lockstep"), export);
    exported.env("CREDENTIALS_DIRECTORY", &directory).succeed();
    assert_eq!(site.place.read("again.ref"), site.place.read("p256.ref"));
}

/// The names of a process's threads, and how often all of them have slept so far.
fn threads(pid: u32) -> (Vec<String>, u64) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let mut threads = (Vec::new(), 0);
    for task in tasks.flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        threads.0.push(read("comm").trim_end().to_owned());
        let status = read("status");
        let sleeps = status.lines();
        let sleeps = sleeps.filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        threads.1 += sleeps
            .filter_map(|count| count.trim().parse::<u64>().ok())
            .sum::<u64>();
    }
    threads
}

/// Kernels before 5.16 have no `futex_waitv`, and old filters of system calls do not know it.
#[test]
fn the_daemon_serves_without_futex_waitv() {
    let site = Site::new("sign");
    let program = site.place.compile("references");
    for error in [libc::ENOSYS, libc::EPERM] {
        let daemon = site.daemon_without(libc::SYS_futex_waitv, error);
        let process = site.place.program(&program, "repeat p384.ref p384.crt");
        let mut client = process.with_lockstep().silent_input().start();
        for times in 1..=20 {
            client.send("\n");
            client.wait_for("signature", |text| {
                (text.matches("signs: yes").count() == times).then_some(())
            });
        }
        assert_eq!(daemon.counters().expect("it served").of("p384-sign"), 41);
        let (names, before) = threads(daemon.pid());
        let watchers = names.iter().filter(|name| *name == "ring-watcher").count();
        assert_eq!(watchers, 1, "{names:?}");
        // They sleep, and look at nothing meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        let (_, after) = threads(daemon.pid());
        assert!(after - before < 30, "{before} {after}");
        drop(client);
        for _ in 0..1000 {
            if !threads(daemon.pid())
                .0
                .iter()
                .any(|name| name == "ring-watcher")
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let (names, _) = threads(daemon.pid());
        assert!(
            !names.iter().any(|name| name == "ring-watcher"),
            "{names:?}"
        );
    }
}

#[test]
fn every_library_context_can_use_a_reference() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    for key in KEYS {
        let text = site.run("contexts", key);
        let times = text.matches("signs in a library context: yes").count();
        assert!(times == 2 && text.contains("ends: yes"), "{key}: {text}");
    }
    assert!(daemon.counters().expect("it served").of("p256-sign") >= 4);
}

#[test]
fn without_a_daemon_errors_say_why_and_with_one_all_is_well_again() {
    let site = Site::new("sign");
    let program = site.place.compile("references");
    let process = site.place.program(&program, "repeat p384.ref p384.crt");
    let mut program = process.with_lockstep().silent_input().start();
    program.wait_for("key", |text| text.contains("loads: yes").then_some(()));
    let mut signs = |times: usize| {
        program.send("\n");
        program.wait_for("answer", |text| {
            let signed: Vec<_> = text.split("signs: ").skip(1).collect();
            let last = signed.get(times - 1)?.to_owned();
            (last.contains("error: ") || last.starts_with("yes\n")).then(|| last.to_owned())
        })
    };
    let before = signs(1);
    assert!(
        before.starts_with("no") && before.contains("cannot be reached"),
        "{before}"
    );
    assert!(before.contains("systemctl start lockstep-keyd"), "{before}");
    let mut times = 1;
    for _ in 0..3 {
        let daemon = site.daemon();
        times += 1;
        let with = signs(times);
        assert!(with.starts_with("yes"), "{with}");
        // By SIGKILL.
        drop(daemon);
        times += 1;
        let without = signs(times);
        assert!(
            without.starts_with("no") && without.contains("key p384: "),
            "{without}"
        );
    }
}

/// The program has its list of keys already when the daemon takes one more.
#[test]
fn a_program_finds_the_key_that_the_daemon_has_taken_since() {
    let site = Site::new("sign");
    let (own, other) = ("p384.pem", "ed25519.pem");
    let key = site.place.read(own);
    site.place.write(own, &site.place.read(other));
    let daemon = site.daemon();
    let program = site.place.compile("references");
    let process = site.place.program(&program, "repeat p384.ref p384.crt");
    let mut program = process.with_lockstep().silent_input().start();
    program.wait_for("key", |text| text.contains("loads: yes").then_some(()));
    let mut times = 0;
    let mut signs = || {
        program.send("\n");
        times += 1;
        program.wait_for("answer", |text| {
            let signed: Vec<_> = text.split("signs: ").skip(1).collect();
            let last = signed.get(times - 1)?.to_owned();
            (last.contains("error: ") || last.starts_with("yes\n")).then(|| last.to_owned())
        })
    };
    // However often it asks, it looks for the key a few times only.
    let start = Instant::now();
    for _ in 0..200 {
        let before = signs();
        assert!(before.contains("of this name"), "{before}");
    }
    let served = daemon.describe().matches("serves process").count() as f64;
    // After 0.2 seconds, 0.4, and so on.
    let most = 3.0 + (1.0 + start.elapsed().as_secs_f64() / 0.2).log2();
    assert!(served <= most, "{served} {most}: {}", daemon.describe());
    // Beside the key that was there, under the same name.
    site.place.write("p384.new", &key);
    fs::rename(site.place.path("p384.new"), site.place.path(own)).expect("a key");
    wait_for("a signature", || signs().starts_with("yes").then_some(()));
}

/// Daemons that end one after another in the place of one that serves.
struct Ending<'a> {
    site: &'a Site,
    listener: UnixListener,
    /// Their message to a client that they accept.
    welcome: Vec<u8>,
}

impl Ending<'_> {
    /// Takes the place of the daemon's socket.
    fn before<'a>(site: &'a Site, key: &str) -> Ending<'a> {
        let socket = site.socket();
        fs::rename(&socket, format!("{socket}.next")).expect("a socket");
        let text = String::from_utf8(site.place.read(&format!("{key}.ref"))).expect("text");
        let reference = Reference::in_text(&text).expect("a reference");
        let list = protocol::list(&[Offered {
            handle: 0,
            uses: Uses::default(),
            name: reference.name,
            public: reference.public,
        }]);
        let list = list.expect("a short list");
        let verdict = protocol::verdict(VERSION, Verdict::Accepted, list.len());
        let listener = UnixListener::bind(&socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        Ending {
            site,
            listener,
            welcome: [&verdict[..], &list].concat(),
        }
    }

    /// Gives the socket back to the daemon that serves.
    fn step_aside(&self) {
        let socket = self.site.socket();
        fs::rename(format!("{socket}.next"), socket).expect("a socket");
    }

    /// A client that has greeted.
    fn client(&self) -> UnixStream {
        let (mut stream, _) = wait_for("a client", || self.listener.accept().ok());
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).expect("a greeting");
        stream
    }

    /// Welcomes a client to a ring.
    fn welcome(&self, prepare: impl Fn(&Server)) -> (UnixStream, Server) {
        let mut stream = self.client();
        let (server, ring) = Server::create(4).expect("a ring");
        prepare(&server);
        let sent = lockstep_ring::send(&stream, &self.welcome, ring.as_fd()).expect("a client");
        let rest = &self.welcome[sent..];
        stream.write_all(rest).expect("a client");
        (stream, server)
    }

    /// Ends with a request that it has taken, after `last`.
    fn end_with_a_request(&self, last: impl FnOnce()) {
        let (_stream, server) = self.welcome(|_| ());
        let mut taken = Vec::new();
        wait_for("a request", || {
            server.take(|request| taken.push(request));
            (!taken.is_empty()).then_some(())
        });
        last();
        server.close();
    }
}

#[test]
fn what_was_lost_with_a_daemon_is_asked_again_and_not_for_ever() {
    let site = Site::new("sign");
    let _daemon = site.daemon();
    let program = site.place.compile("references");
    for (losses, signs) in [(3, true), (4, false)] {
        let ending = Ending::before(&site, "ed25519");
        let process = site
            .place
            .program(&program, "repeat ed25519.ref ed25519.crt");
        let mut program = process.with_lockstep().silent_input().start();
        program.send("\n");
        // The requests with which these daemons end were never in a ring.
        (0..5).for_each(|_| drop(ending.welcome(Server::close)));
        (1..losses).for_each(|_| ending.end_with_a_request(|| ()));
        ending.end_with_a_request(|| ending.step_aside());
        let answer = program.wait_for("answer", |text| {
            let answer = text.split("signs: ").nth(1)?;
            (answer.contains("error: ") || answer.starts_with("yes\n")).then(|| answer.to_owned())
        });
        assert_eq!(answer.starts_with("yes"), signs, "{answer}");
        assert!(
            signs || answer.contains("ended before it answered"),
            "{answer}"
        );
    }
}

/// Programs that take a key apart get the public half, and errors where they want more. A NULL in
/// place of a key would end many of them.
#[test]
fn a_key_that_is_taken_apart_has_no_private_half() {
    let site = Site::new("sign decrypt");
    let daemon = site.daemon();
    for key in KEYS {
        let text = site.run("apart", key);
        expect(
            &text,
            &[
                "gives private parts: no",
                "signs in the default provider: no",
                "equals its copy: yes",
                "equals its public half: yes",
                "is printed: yes",
                "signs afterwards: yes",
                "ends: yes",
            ],
        );
        // Ed25519 has no old object, and its numbers serve nobody.
        if key != "ed25519" {
            expect(
                &text,
                &[
                    "has an old object: yes",
                    "has private parts there: no",
                    "signs with the old object: no",
                    "decrypts with the old object: no",
                    "gives its parts: yes",
                ],
            );
        }
    }
    drop(daemon);
}

/// node follows a NULL where it finds no old object.
#[test]
fn node_looks_at_a_reference_and_signs_with_it() {
    const SCRIPT: &str = "
        const crypto = require('crypto'), fs = require('fs');
        const key = crypto.createPrivateKey(fs.readFileSync(process.argv[2]));
        const half = new crypto.X509Certificate(fs.readFileSync(process.argv[3])).publicKey;
        console.log(key.asymmetricKeyType, JSON.stringify(key.asymmetricKeyDetails,
            (name, value) => typeof value === 'bigint' ? Number(value) : value));
        const digest = key.asymmetricKeyType === 'ed25519' ? null : 'sha256';
        const signature = crypto.sign(digest, Buffer.from('a message'), key);
        console.log('signs', crypto.verify(digest, Buffer.from('a message'), half, signature));
    ";
    let site = Site::new("sign");
    let version = Command::new("node")
        .args(["-p", "process.versions.openssl"])
        .output();
    let is_shared = version.is_ok_and(|version| version.stdout.starts_with(b"3."));
    if !is_shared {
        println!("skipped: there is no node with OpenSSL 3");
        return;
    }
    let daemon = site.daemon();
    for (key, details) in [
        (
            "rsa2048",
            "rsa {\"modulusLength\":2048,\"publicExponent\":65537}",
        ),
        ("p256", "ec {\"namedCurve\":\"prime256v1\"}"),
        ("ed25519", "ed25519 {}"),
    ] {
        site.place.write("look.js", SCRIPT.as_bytes());
        let arguments = format!("--openssl-shared-config look.js {key}.ref {key}.crt");
        let node = site.place.program("node", &arguments);
        let text = node.with_lockstep().run().text();
        if text.contains("DECODER routines::unsupported") {
            println!("skipped: this node reads no configuration of OpenSSL: {text}");
            return;
        }
        expect(&text, &[details, "signs true"]);
    }
    assert!(daemon.counters().expect("it served").operations() >= 3);
}

/// A program that reads keys of strangers would sign for anybody who knows a certificate.
#[test]
fn a_program_that_was_not_told_to_reads_no_references() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    let program = site.place.compile("references");
    let blocks = || {
        let process = site.place.program(&program, "blocks p256.ref");
        process.with_lockstep().run().text()
    };
    expect(&blocks(), &["finds a private key: yes", "our decoders: 4"]);
    site.forbid();
    expect(&blocks(), &["finds a private key: no", "our decoders: 0"]);
    let by = |command: &str| site.place.lockstep(command).run();
    let signed = by("pkeyutl -sign -rawin -in p256.crt -inkey p256.ref -out signature");
    assert!(!signed.status.success(), "{signed}");
    // By the environment as well.
    let process = site.place.program(&program, "blocks p256.ref");
    let process = process.with_lockstep().env("LOCKSTEP_REFERENCES", "yes");
    let text = process
        .env("LOCKSTEP_KEYD_SOCKET", site.socket())
        .run()
        .text();
    expect(&text, &["finds a private key: yes"]);
    drop(daemon);
}

/// A file that a stranger has written must not choose the daemon.
#[test]
fn a_reference_does_not_choose_the_daemon() {
    let site = Site::new("sign");
    let _daemon = site.daemon();
    let program = site.place.compile("references");
    let listener = UnixListener::bind(format!("{}.other", site.socket())).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    site.allow(&format!("{}.other", site.socket()));
    let process = site.place.program(&program, "repeat p256.ref p256.crt");
    let text = process.with_lockstep().run().text();
    assert!(text.contains("names a key daemon at"), "{text}");
    assert!(text.contains("set keyd_socket"), "{text}");
    assert!(listener.accept().is_err(), "nobody connects");
}

/// Servers that become daemons close all descriptors, and use their numbers again.
#[test]
fn a_program_may_close_the_modules_socket_and_use_its_number_again() {
    let site = Site::new("sign");
    let _daemon = site.daemon();
    let text = site.run("closes", "p256");
    expect(
        &text,
        &[
            "signs: yes",
            "signs when all is closed: yes",
            "leaves descriptors alone: yes",
            "signs in a child when all is closed: yes",
            "leaves a child's descriptors alone: yes",
            "signs after the child: yes",
        ],
    );
}

#[test]
fn a_child_that_never_signs_keeps_no_place_of_its_parent() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    let program = site.place.compile("references");
    let process = site.place.program(&program, "leaves p256.ref p256.crt");
    let mut program = process.with_lockstep().silent_input().start();
    program.wait_for("end", |text| text.contains("has ended: yes").then_some(()));
    wait_for_log(&daemon, " has ended: 2 requests, 0 refused");
    assert!(program.is_alive());
}

#[test]
fn a_child_keeps_no_socket_that_another_thread_connects() {
    let site = Site::new("sign");
    let _daemon = site.daemon();
    let ending = Ending::before(&site, "p256");
    let program = site.place.compile("references");
    let process = site
        .place
        .program(&program, "forks p256.ref")
        .with_lockstep();
    let mut program = process.silent_input().start();
    // Its thread waits for a welcome now.
    let _stream = ending.client();
    program.send("\n");
    let closes = program.wait_for("child", |text| {
        let answer = text.split("closes its copy: ").nth(1)?;
        answer.contains('\n').then(|| answer.starts_with("yes"))
    });
    assert!(closes);
}

/// A daemon that stands still costs one signature a moment, and the others nothing.
#[test]
fn a_daemon_that_gives_no_answer_is_not_waited_for_again_at_once() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    let program = site.place.compile("references");
    let process = site.place.program(&program, "repeat p384.ref p384.crt");
    let mut program = process.with_lockstep().silent_input().start();
    let mut signs = |times: usize| {
        let start = Instant::now();
        program.send("\n");
        let answer = program.wait_for("answer", |text| {
            let last = text.split("signs: ").nth(times)?;
            (last.contains("error: ") || last.starts_with("yes\n")).then(|| last.to_owned())
        });
        (answer, start.elapsed())
    };
    assert!(signs(1).0.starts_with("yes"));
    daemon.stop();
    let (first, long) = signs(2);
    assert!(first.contains("the key daemon does not answer"), "{first}");
    assert!(long < Duration::from_secs(5), "{long:?}");
    let start = Instant::now();
    for times in 3..33 {
        let (next, _) = signs(times);
        assert!(next.contains("the key daemon does not answer"), "{next}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    daemon.go_on();
    // It is used again, also where requests go on all the time.
    let mut times = 33;
    while !signs(times).0.starts_with("yes") {
        times += 1;
        assert!(times < 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_for_log(&daemon, " has ended: ");
}

#[test]
fn users_use_what_they_may() {
    if own_user() != 0 {
        println!("skipped: only root can run programs as several users");
        return;
    }
    for (grants, user, group, may) in [
        ("users = 4711\nuses = sign\n", 4711, 1, true),
        ("users = 4711\nuses = sign\n", 4712, 4711, false),
        ("users = 4711\nuses = sign\n", 0, 0, false),
        ("groups = 4711\nuses = sign\n", 1, 4711, true),
        ("groups = 4711\nuses = sign\n", 4711, 1, false),
        (
            "users = nobody 1\ngroups = 5\nuses = sign\n",
            65534,
            1,
            true,
        ),
    ] {
        let site = Site::granting(grants);
        let _daemon = site.daemon();
        let (listed, refused) = site.keys_of(user, group);
        match may {
            true => assert_eq!((listed.as_str(), refused.as_str()), (ALL, ""), "{grants}"),
            false => assert!(
                listed.is_empty() && refused.contains("no key that this user may use"),
                "{grants} {user} {group}: {listed} {refused}"
            ),
        }
    }
}

#[test]
fn a_program_without_descriptors_is_told_so() {
    let site = Site::new("sign");
    let _daemon = site.daemon();
    let keys_with = |descriptors: usize| {
        let output = Command::new("prlimit")
            .arg(format!("--nofile={descriptors}"))
            .arg(dist().join("lockstep"))
            .args(["keyd", "keys", "--socket", &site.socket()])
            .env_clear()
            .output()
            .expect("prlimit");
        let text = String::from_utf8(output.stderr).expect("text");
        (output.status.success(), text)
    };
    // The program may inherit some. One that is too few is enough for the socket.
    let enough = (4..100).find(|&descriptors| keys_with(descriptors).0);
    let (_, text) = keys_with(enough.expect("it connects") - 1);
    assert!(text.contains("as many files open as it may"), "{text}");
}

#[test]
fn a_user_that_connects_and_says_nothing_keeps_nobody_out() {
    if own_user() != 0 {
        println!("skipped: only root can run programs as several users");
        return;
    }
    let site = Site::granting("users = 4711\nuses = sign\n");
    let _daemon = site.daemon();
    // More than the daemon serves in all.
    let silent: Vec<_> = (0..200)
        .map(|_| UnixStream::connect(site.socket()).expect("the daemon accepts"))
        .collect();
    assert_eq!(site.keys_of(4711, 1), (ALL.to_owned(), String::new()));
    drop(silent);
}

#[test]
fn what_is_no_reference_is_left_to_openssl() {
    let site = Site::new("sign");
    let program = site.place.compile("references");
    let read = |name: &str| String::from_utf8(site.place.read(name)).expect("text");
    let (reference, certificate) = (read("p256.ref"), read("p256.crt"));
    let block = reference.split_once('\n').expect("a line for people").1;
    let body: String = block
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('-'))
        .collect();
    let wrapped = |text: &str| {
        format!(
            "-----BEGIN LOCKSTEP KEY REFERENCE-----\n{text}\n-----END LOCKSTEP KEY REFERENCE-----\n"
        )
    };
    let ours: &[&str] = &["finds a private key: yes", "of our provider: yes"];
    let stock: &[&str] = &["finds a private key: yes", "of our provider: no"];
    let none: &[&str] = &["finds a private key: no", "ends: yes"];
    let cases = [
        ("reference", reference.clone(), ours),
        (
            "after a certificate",
            format!("{certificate}{reference}"),
            ours,
        ),
        (
            "before a certificate",
            format!("{reference}{certificate}"),
            ours,
        ),
        ("line ends of DOS", reference.replace('\n', "\r\n"), ours),
        ("ordinary key", read("p256.pem"), stock),
        (
            "ordinary key after a certificate",
            format!("{certificate}{}", read("rsa2048.pem")),
            stock,
        ),
        ("certificate", certificate.clone(), none),
        ("nothing", String::new(), none),
        ("no end", block[..block.len() - 40].to_owned(), none),
        ("no body", wrapped(""), none),
        ("no base64", wrapped("!!!"), none),
        ("no DER", wrapped("AAAA"), none),
        ("cut DER", wrapped(&body[..64]), none),
        ("one long line", wrapped(&"A".repeat(100_000)), none),
        ("many lines", wrapped(&"QUFB\n".repeat(50_000)), none),
        (
            "another label",
            block.replace("REFERENCE", "REFERENZ"),
            none,
        ),
        (
            "bytes",
            (1..=255_u8).cycle().take(5000).map(char::from).collect(),
            none,
        ),
    ];
    for (what, text, expected) in cases {
        site.place.write("case.pem", text.as_bytes());
        let process = site
            .place
            .program(&program, "blocks case.pem")
            .with_lockstep();
        let text = process.succeed().text();
        for line in expected {
            assert!(text.lines().any(|own| own == *line), "{what}: {text}");
        }
        let has_certificate = what.contains("certificate");
        let found = format!(
            "finds a certificate: {}",
            if has_certificate { "yes" } else { "no" }
        );
        assert!(text.contains(&found), "{what}: {text}");
    }
    // A damaged reference is named as such.
    site.place.write("case.pem", wrapped("AAAA").as_bytes());
    let process = site
        .place
        .program(&program, "blocks case.pem")
        .with_lockstep();
    let text = process.succeed().text();
    assert!(text.contains("a reference to a key is damaged"), "{text}");
    // One to a key of ML-DSA-44 needs an OpenSSL that has such keys.
    let head = [
        0x30, 0x82, 5, 0x32, 0x30, 0x0b, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 17, 3, 0x82, 5,
        0x21, 0,
    ];
    let reference = Reference {
        name: "lattice".to_owned(),
        socket: None,
        public: [&head[..], &[7; 1312]].concat(),
    };
    let text = reference.to_file().expect("a reference");
    site.place.write("case.pem", text.as_bytes());
    let process = site
        .place
        .program(&program, "blocks case.pem")
        .with_lockstep();
    let text = process.succeed().text();
    let is_found = text.contains("finds a private key: yes");
    assert_eq!(
        is_found,
        openssl::version::number() >= 0x3050_0000,
        "{text}"
    );
    let reason = "the key lattice is one to a key of ML-DSA, which OpenSSL has from 3.5 on";
    assert_eq!(text.contains(reason), !is_found, "{text}");
}

#[test]
fn a_program_whose_own_method_computes_is_told_why_it_gets_no_key() {
    let site = Site::new("sign");
    let _daemon = site.daemon();
    let program = site.place.compile("references");
    for (key, name) in [("rsa2048", "RSA_set"), ("p256", "EC_KEY_set")] {
        let arguments = format!("prefers {key}.ref");
        let process = site.place.program(&program, &arguments).with_lockstep();
        let text = process.succeed().text();
        expect(&text, &["loads: no"]);
        let told = format!("error: lockstep: key {key}: ");
        let line = text.lines().find(|line| line.starts_with(&told));
        assert!(line.is_some_and(|line| line.contains(name)), "{text}");
    }
}

#[test]
fn the_openssl_command_signs_with_references() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    let place = &site.place;
    place.write("data", b"data");
    let alone = |command: &str| place.stock(command).succeed().text();
    for key in KEYS {
        let public = format!("pkey -in {key}.ref -pubout");
        let public = place.lockstep(&public).succeed().text();
        assert_eq!(public, alone(&format!("x509 -in {key}.crt -noout -pubkey")));
        place.write("public", public.as_bytes());
        let by = |form: &str| {
            let sign = format!("pkeyutl -sign -rawin -in data -inkey {form} -out signature");
            place.lockstep(&sign).succeed();
            alone("pkeyutl -verify -rawin -in data -pubin -inkey public -sigfile signature");
        };
        by(&format!("{key}.ref"));
        // A URI, and the bytes without PEM.
        by(&format!(
            "file:{}",
            place.path(&format!("{key}.ref")).display()
        ));
        let reference = String::from_utf8(place.read(&format!("{key}.ref"))).expect("text");
        let base64: String = reference
            .lines()
            .filter(|line| !line.contains(['-', ' ']))
            .collect();
        place.write("base64", format!("{base64}\n").as_bytes());
        alone("base64 -d -A -in base64 -out reference.der");
        by("reference.der");
        let request = format!("req -x509 -new -key {key}.ref -subj /CN=localhost -out new.crt");
        place.lockstep(&request).succeed();
        alone("verify -CAfile new.crt new.crt");
        if key != "ed25519" {
            let mail = format!("cms -sign -in data -signer {key}.crt -inkey {key}.ref -out mail");
            place.lockstep(&mail).succeed();
            alone(&format!(
                "cms -verify -in mail -CAfile {key}.crt -purpose any -out read"
            ));
            let digest = format!("dgst -sha256 -sign {key}.ref -out signature data");
            place.lockstep(&digest).succeed();
            alone("dgst -sha256 -verify public -signature signature data");
        }
        // There is no private key to be written.
        let written = place.lockstep(&format!("pkey -in {key}.ref")).run();
        assert!(!written.text().contains("PRIVATE"), "{written}");
    }
    // Three times by a reference, a certificate, a mail, a digest, and one when the key was read.
    let counters = daemon.counters().expect("it served");
    for (shape, count) in [
        ("rsa2048", 7),
        ("p256-sign", 7),
        ("p384-sign", 7),
        ("ed25519-sign", 5),
    ] {
        assert_eq!(counters.of(shape), count, "{counters:?}");
    }
}

#[test]
fn a_store_finds_references_among_others() {
    let site = Site::new("sign");
    let program = site.place.compile("references");
    let read = |name: &str| String::from_utf8(site.place.read(name)).expect("text");
    let public = site.place.stock("pkey -in rsa2048.pem -pubout").succeed();
    let all = [
        read("p384.crt"),
        read("p256.ref"),
        read("p256.pem"),
        read("rsa2048.ref"),
        public.text(),
        read("ed25519.ref"),
    ];
    site.place.write("all.pem", all.concat().as_bytes());
    let text = site
        .place
        .program(&program, "stores all.pem")
        .with_lockstep()
        .succeed()
        .text();
    let ours = "Pkey of lockstep";
    for line in [
        &format!("store, 0: Certificate {ours} Pkey of default {ours} Public key {ours}"),
        &format!("store, 4: {ours} Pkey of default {ours} {ours}"),
        "store, 5: Certificate",
        "store, 3: Public key",
    ] {
        assert!(text.lines().any(|own| own == line), "no `{line}` in {text}");
    }
    // A damaged one is named, and hides nothing.
    let damaged =
        "-----BEGIN LOCKSTEP KEY REFERENCE-----\nAAAA\n-----END LOCKSTEP KEY REFERENCE-----\n";
    site.place
        .write("all.pem", (damaged.to_owned() + &all[1]).as_bytes());
    let text = site
        .place
        .program(&program, "stores all.pem")
        .with_lockstep()
        .succeed()
        .text();
    assert!(text.contains("a reference to a key is damaged"), "{text}");
    assert!(text.contains(&format!("store, 4: {ours}")), "{text}");
}

#[test]
fn jobs_of_one_thread_are_at_the_daemon_together() {
    for key in KEYS {
        for way in ["fd", "callback"] {
            let site = Site::new("sign");
            let daemon = site.daemon();
            let mut program = site.in_jobs(key, way);
            let before = daemon.counters().expect("it served");
            for round in 1..=3 {
                daemon.stop();
                // All pause while the daemon answers nothing.
                assert_eq!(program.starts("all", round), 32, "{key} {way}");
                daemon.go_on();
                assert_eq!(program.signs(round), 32, "{key} {way}");
            }
            let after = daemon.counters().expect("it served");
            let context = format!("{key} {way} {before:?} {after:?}");
            assert_eq!(
                after.operations() - before.operations(),
                3 * 32,
                "{context}"
            );
            // Each batch takes at least four that wait, all of them from one thread: a pass of RSA.
            assert!(4 * (after.batches - before.batches) <= 3 * 32, "{context}");
            let counters = program.end();
            assert_eq!(counters.async_submitted, 3 * 32, "{counters:?}");
            assert_eq!((counters.unpaused, counters.lost), (0, 0), "{counters:?}");
        }
    }
}

#[test]
fn jobs_of_a_process_that_may_start_no_thread_are_at_the_daemon_together() {
    if own_user() != 0 {
        println!("skipped: only root can run programs as several users");
        return;
    }
    let site = Site::granting("users = 4711\nuses = sign\n");
    let daemon = site.daemon();
    let mut program = site.in_jobs("rsa2048", "alone");
    let before = daemon.counters().expect("it served");
    daemon.stop();
    assert_eq!(program.starts("all", 1), 32);
    daemon.go_on();
    assert_eq!(program.signs(1), 32);
    let after = daemon.counters().expect("it served");
    assert!(
        4 * (after.batches - before.batches) <= 32,
        "{before:?} {after:?}"
    );
    let counters = program.end();
    assert_eq!(counters.async_submitted, 32, "{counters:?}");
    assert_eq!(counters.unpaused, 0, "{counters:?}");
}

#[test]
fn paused_jobs_go_on_when_the_daemon_is_killed() {
    let ways = match own_user() {
        0 => &["fd", "callback", "alone"][..],
        _ => &["fd", "callback"],
    };
    for way in ways {
        let users = match *way {
            "alone" => 4711,
            _ => own_user(),
        };
        let site = Site::granting(&format!("users = {users}\nuses = sign\n"));
        let daemon = site.daemon();
        let mut program = site.in_jobs("p256", way);
        daemon.stop();
        assert_eq!(program.starts("all", 1), 32, "{way}");
        // By SIGKILL.
        drop(daemon);
        assert_eq!(program.signs(1), 0, "{way}");
        program.running.wait_for("error", |text| {
            text.contains("the key daemon cannot be reached")
                .then_some(())
        });
        let daemon = site.daemon();
        program.starts("all", 2);
        assert_eq!(program.signs(2), 32, "{way}");
        assert!(daemon.counters().expect("it served").of("p256-sign") >= 32);
        program.end();
    }
}

/// The process asks for a newer list of keys while the daemon has the requests of its jobs.
#[test]
fn a_key_that_is_missing_takes_no_answer_from_jobs() {
    for way in ["fd", "callback"] {
        let site = Site::new("sign");
        let text = String::from_utf8(site.place.read("keyd.conf")).expect("text");
        let (others, _) = text.split_once("[key p384]").expect("it has the key");
        site.place.write("keyd.conf", others.as_bytes());
        let daemon = site.daemon();
        let mut program = site.in_jobs("p256", way);
        let before = daemon.counters().expect("it served").of("p256-sign");
        daemon.stop();
        assert_eq!(program.starts("miss p384.ref", 1), 32, "{way}");
        let find = |text: &str| text.contains("misses: yes\n").then_some(());
        program.running.wait_for("failure", find);
        daemon.go_on();
        assert_eq!(program.signs(1), 32, "{way}");
        let after = daemon.counters().expect("it served").of("p256-sign");
        assert_eq!(
            (after - before, program.end().async_submitted),
            (32, 32),
            "{way}"
        );
    }
}

#[test]
fn a_forked_child_asks_anew_what_its_parent_has_asked() {
    for way in ["fd", "callback"] {
        let site = Site::new("sign");
        let daemon = site.daemon();
        let mut program = site.in_jobs("p256", way);
        daemon.stop();
        assert_eq!(program.starts("fork", 1), 32, "{way}");
        daemon.go_on();
        assert_eq!(program.signs(1), 32, "{way}");
        let find = |text: &str| text.contains("signed in a child: 32").then_some(());
        program.running.wait_for("child", find);
        program.end();
        // Both the parent and the child, and before that two in the parent.
        let counters = daemon.counters().expect("it served");
        assert!(counters.of("p256-sign") >= 2 * 32 + 2, "{way} {counters:?}");
    }
}

#[test]
fn jobs_that_are_abandoned_take_no_slots_away() {
    let site = Site::new("sign");
    // Fewer than there are jobs.
    let text = String::from_utf8(site.place.read("keyd.conf")).expect("text");
    site.place
        .write("keyd.conf", format!("queue = 4\n{text}").as_bytes());
    let daemon = site.daemon();
    let program = site.place.compile("async");
    for way in ["abandon", "abandon-callback", "exit", "fd", "callback"] {
        let arguments = format!("{way} rsa2048.ref 24 1");
        let process = site.place.program(&program, &arguments).with_lockstep();
        let finished = process.succeed();
        let counters = finished.counters();
        let text = finished.text();
        let pauses = text.lines().find_map(|line| line.strip_suffix(" pauses"));
        let pauses: u64 = pauses.and_then(|n| n.parse().ok()).expect("a number");
        assert!(pauses >= 12, "{finished}");
        assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
        if way.starts_with("abandon") {
            assert_eq!(counters.lost, pauses, "{finished} {counters:?}");
        }
    }
    assert!(daemon.counters().expect("it served").of("rsa2048") >= 2 * 24);
}

#[test]
fn no_memory_of_a_program_holds_the_key_of_a_reference() {
    let site = Site::new("sign");
    let daemon = site.daemon();
    let program = site.place.compile("references");
    let forms = key_memory::forms(&site.place);
    let mut counts = vec![0; forms.len()];
    for key in KEYS {
        let command = format!("repeat {key}.ref {key}.crt");
        let process = site.place.program(&program, &command).with_lockstep();
        let mut program = process.silent_input().start();
        program.send("\n");
        program.wait_for("signature", |text| {
            text.contains("signs: yes").then_some(())
        });
        let Some(core) = key_memory::memory_of(&site.place, program.pid(), &["-a"]) else {
            return;
        };
        let found = key_memory::count(&core, &forms);
        counts
            .iter_mut()
            .zip(found)
            .for_each(|(all, found)| *all += found);
    }
    assert!(counts.iter().all(|&count| count == 0), "{counts:?}");
    drop(daemon);
    // The daemon has them, where no core dump of it shows them, and no debugger if the kernel has
    // memory for that.
    let ordinary = site.daemon_without(libc::SYS_memfd_secret, libc::ENOSYS);
    assert_ne!(expect_hidden(&site, &ordinary, &forms), Some(true));
    drop(ordinary);
    let forbidden = site.daemon_without(libc::SYS_memfd_secret, libc::EPERM);
    expect(&site.run("use", "p256"), &LINES);
    drop(forbidden);
    let daemon = site.daemon();
    match expect_hidden(&site, &daemon, &forms) {
        Some(false) => println!("skipped: this kernel gives no memory of memfd_secret"),
        Some(true) => expect(&site.run("use", "p256"), &LINES),
        None => {}
    }
}

/// Looks for keys in the memory of the daemon. Returns whether it has memory of `memfd_secret`;
/// None, with a line, if nobody can look.
fn expect_hidden(site: &Site, daemon: &Running, forms: &[key_memory::Form]) -> Option<bool> {
    let dump = key_memory::memory_of(&site.place, daemon.pid(), &[])?;
    let all = key_memory::memory_of(&site.place, daemon.pid(), &["-a"])?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).ok()?;
    let of = |core: &[u8]| {
        let counts = key_memory::count(core, forms).into_iter().zip(forms);
        let found = counts.filter(|(count, _)| *count > 0);
        found
            .map(|(_, form)| form.name.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&dump), Vec::<&str>::new());
    let is_secret = maps.contains("secretmem");
    let said = daemon.describe().contains("no memory of memfd_secret");
    assert_eq!(said, !is_secret, "{}\n{maps}", daemon.describe());
    match is_secret {
        true => assert_eq!(of(&all), Vec::<&str>::new()),
        false => assert!(!of(&all).is_empty(), "the search finds nothing"),
    }
    Some(is_secret)
}
