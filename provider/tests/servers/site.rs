//! A server as its recipe has it: the code blocks of `docs/user/servers/NAME.md`, in an empty
//! directory.
//!
//! The word behind a block's language gives its purpose: the name of the file to write, or, in
//! blocks of the shell, when to run it: `prepare`, `start`, `check`, `reload`, `upgrade`, `stop`,
//! `hybrid` (to turn on post-quantum key exchange), and `keyd` (to give its key to the key daemon).

#![allow(unsafe_code, reason = "system calls")]

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockstep_engine::{Backend, ProcessStats, Shape, Snapshot, read_stats};
use lockstep_testkit::{TempDir, copy_program};

use crate::client::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);

/// User to run as instead of root: servers refuse to serve as root, or drop its privileges.
const NOBODY: u32 = 65534;

/// One server at a time: the recipes have fixed ports, and the machine may have two cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Whether RSA and the NIST curves run on lanes here; says so if not. X25519 does on AVX2 too.
pub fn has_ifma() -> bool {
    let best = Backend::best_hardware();
    let found = best.is_some_and(|backend| !backend.is_avx2());
    if !found {
        println!("no AVX-512 IFMA: OpenSSL itself computes RSA and the NIST curves here");
    }
    found
}

/// A server that runs.
pub struct Site {
    pub name: &'static str,
    directory: TempDir,
    blocks: Vec<Block>,
    with_lockstep: bool,
    variables: Vec<(&'static str, PathBuf)>,
    _alone: MutexGuard<'static, ()>,
}

/// A code block of a document.
struct Block {
    language: String,
    what: String,
    text: String,
}

impl Site {
    /// Starts a server by its recipe; None, with a line, if it is not installed.
    pub fn start(name: &'static str) -> Option<Site> {
        Site::start_changed(name, |_| {})
    }

    /// Starts a server as [`start`](Self::start) does, and changes the prepared files before.
    pub fn start_changed(name: &'static str, change: impl FnOnce(&mut Site)) -> Option<Site> {
        let mut site = Site::prepare(name)?;
        change(&mut site);
        site.perform("start");
        site.wait_until_open();
        Some(site)
    }

    /// Leaves the module away: the same server on OpenSSL alone.
    pub fn use_stock(&mut self) {
        self.with_lockstep = false;
    }

    /// Sets a variable in the environment of all programs that the recipe runs from now on.
    pub fn set(&mut self, variable: &'static str, value: PathBuf) {
        self.variables.push((variable, value));
    }

    /// Changes a file of the recipe.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(file)).expect("a file of the recipe");
        assert!(text.contains(from), "{text}");
        self.write(file, &text.replace(from, to));
    }

    /// Changes the commands of the recipe for an occasion.
    pub fn rewrite(&mut self, occasion: &str, from: &str, to: &str) {
        let blocks = self.blocks.iter_mut();
        let mut of_occasion = blocks.filter(|block| block.what == occasion);
        let block = of_occasion.next().expect("a block of the recipe");
        assert!(block.text.contains(from), "{}", block.text);
        block.text = block.text.replace(from, to);
    }

    /// A directory with the files of the recipe.
    fn prepare(name: &'static str) -> Option<Site> {
        let program = match name {
            "apache" => "apache2",
            "trafficserver" => "traffic_server",
            name => name,
        };
        if !is_installed(program) {
            println!("skipped: {program} is not installed (`cargo xtask setup` installs it)");
            return None;
        }
        let site = Site::of(name, &format!("servers/{name}.md"));
        let is_free = within(PATIENCE, || !site.is_open());
        assert!(is_free, "the recipe's port is in use");
        Some(site)
    }

    /// A directory with the files of a document's recipe, prepared.
    pub fn of(name: &'static str, document: &str) -> Site {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        let site = Site {
            name,
            directory: TempDir::new(name),
            blocks: blocks(document),
            with_lockstep: true,
            variables: Vec::new(),
            _alone: alone,
        };
        give_away(&site.directory);
        for directory in [site.path("lockstep"), site.path("stats")] {
            fs::create_dir(&directory).expect("a directory");
            give_away(&directory);
        }
        site.install_module();
        for block in site.blocks.iter().filter(|block| block.language != "sh") {
            site.write(&block.what, &block.text);
        }
        site.perform("prepare");
        site
    }

    /// Puts the distribution where everybody may read it.
    fn install_module(&self) {
        let dist = std::env::var_os("LOCKSTEP_DIST").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist"),
            PathBuf::from,
        );
        let dist = dist.canonicalize().expect("`cargo xtask dist` first");
        let installed = self.path("lockstep");
        for file in ["lockstep.so", "lockstep"] {
            copy_program(&dist.join(file), &installed.join(file));
        }
        let text = fs::read_to_string(dist.join("openssl.cnf")).expect("openssl.cnf");
        let (from, to) = (dist.join("lockstep.so"), installed.join("lockstep.so"));
        let text = text.replace(&from.display().to_string(), &to.display().to_string());
        // By the configuration: nginx hands no other variable to a new binary.
        let module = format!("module = {}\n", to.display());
        let with_place = format!("{module}stats_dir = {}\n", self.path("stats").display());
        assert!(text.contains(&module), "{text}");
        let text = text.replace(&module, &with_place);
        fs::write(installed.join("openssl.cnf"), text).expect("openssl.cnf");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file of the recipe");
        give_away(&self.path(name));
    }

    /// Runs the blocks of the shell for an occasion, and returns their output.
    pub fn perform(&self, occasion: &str) -> String {
        self.run_all(&self.blocks, occasion)
    }

    /// Whether the recipe has a block of the shell for an occasion.
    pub fn has(&self, occasion: &str) -> bool {
        let mut blocks = self.blocks.iter();
        blocks.any(|block| block.language == "sh" && block.what == occasion)
    }

    /// The lines of the shell for an occasion.
    pub fn lines(&self, occasion: &str) -> String {
        let is_meant = |block: &&Block| block.language == "sh" && block.what == occasion;
        let blocks = self.blocks.iter().filter(is_meant);
        blocks.map(|block| &*block.text).collect()
    }

    /// Writes a file of another document's recipe.
    pub fn write_of(&self, document: &str, name: &str) {
        let blocks = blocks(document);
        let block = blocks.iter().find(|block| block.what == name);
        self.write(name, &block.expect("a block of the document").text);
    }

    /// Runs the blocks of another document.
    pub fn perform_of(&self, document: &str, occasion: &str) -> String {
        self.run_all(&blocks(document), occasion)
    }

    fn run_all(&self, blocks: &[Block], occasion: &str) -> String {
        let mut printed = String::new();
        let mut found = false;
        for block in blocks {
            if block.language == "sh" && block.what == occasion {
                printed.push_str(&self.shell(&block.text));
                found = true;
            }
        }
        assert!(found, "{}: there is no block for `{occasion}`", self.name);
        printed
    }

    /// A script as the reader of the recipe would run it.
    pub fn script(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-eu", "-c", script])
            .current_dir(&self.directory)
            .env_clear()
            .env("PATH", path())
            .env("PWD", &*self.directory)
            .env("LOCKSTEP", self.path("lockstep"))
            .env("LOCKSTEP_STATS_DIR", self.path("stats"))
            .env("LOCKSTEP_SYSLOG", "no")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        // Where the module counts the lines that run (`cargo xtask nightly coverage`).
        let counters = "LLVM_PROFILE_FILE";
        command.envs(std::env::var_os(counters).map(|file| (counters, file)));
        if !self.with_lockstep {
            // Where there is no openssl.cnf, OpenSSL goes without.
            command.env("LOCKSTEP", self.path("stock"));
        }
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Runs a script; it must succeed.
    pub fn shell(&self, script: &str) -> String {
        let errors = self.path("shell.log");
        let log = fs::File::create(&errors).expect("a log");
        let output = self.script(script).stderr(log).output().expect("sh runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}: {script}\n{printed}\n{}\n{}",
            self.name,
            fs::read_to_string(errors).unwrap_or_default(),
            self.logs()
        );
        printed
    }

    /// Where the recipe has the server listen.
    pub fn port(&self) -> u16 {
        self.port_if_any().expect("a port in the recipe")
    }

    fn port_if_any(&self) -> Option<u16> {
        let mut blocks = self.blocks.iter();
        let (_, port) = blocks.find_map(|block| block.text.split_once("127.0.0.1:"))?;
        let end = port.find(|c: char| !c.is_ascii_digit())?;
        port[..end].parse().ok()
    }

    fn is_open(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port())).is_ok()
    }

    /// Waits until it accepts connections.
    pub fn wait_until_open(&self) {
        let is_open = within(PATIENCE, || self.is_open());
        assert!(is_open, "does not start: {}", self.logs());
    }

    /// The process whose number the recipe's server writes down.
    pub fn master(&self) -> Option<u32> {
        let file = match self.name {
            "apache" => "httpd.pid".to_owned(),
            name => format!("{name}.pid"),
        };
        fs::read_to_string(self.path(&file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// The same, once it has written it down.
    pub fn running_master(&self) -> u32 {
        let master = self.master_within(PATIENCE);
        master.unwrap_or_else(|| panic!("ended: {}", self.logs()))
    }

    /// The same, with patience: a server that reloads takes its file away and writes it anew.
    fn master_within(&self, patience: Duration) -> Option<u32> {
        let mut master = None;
        within(patience, || {
            master = self.master();
            master.is_some()
        });
        master
    }

    /// The processes that serve: the children of the master, or itself.
    pub fn workers(&self) -> Vec<u32> {
        let master = self.running_master();
        // stunnel's children are the programs that it runs for its clients.
        match self.name {
            "stunnel" => vec![master],
            _ => children_of(master),
        }
    }

    /// Whether others serve than these.
    pub fn has_replaced(&self, before: &[u32]) -> bool {
        let now = self.workers();
        !now.is_empty() && now.iter().all(|worker| !before.contains(worker))
    }

    /// Returns the published counters of the processes, also of ended processes that left some.
    pub fn stats(&self) -> Vec<ProcessStats> {
        read_stats(&self.path("stats")).expect("the directory for counters")
    }

    /// Returns the sum of the counters of all running processes.
    pub fn counters(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        for process in self.stats().iter().filter(|process| process.alive) {
            sum.absorb(&process.snapshot);
        }
        sum
    }

    /// Returns the number of operations of a shape on lanes, by all running processes.
    pub fn on_lanes(&self, shape: &str) -> u64 {
        let shape = Shape::ALL.into_iter().find(|known| known.name() == shape);
        self.counters().operations_of(shape.expect("a shape"))
    }

    /// Errors that clients may see while stunnel reloads, with and without the module: it closes
    /// its port for a moment.
    pub fn tolerated(&self) -> &'static [&'static str] {
        match self.name {
            "stunnel" => &["Connection refused", "Connection reset"],
            _ => &[],
        }
    }

    /// The resident memory of the processes that serve, in KiB.
    pub fn resident(&self) -> u64 {
        self.workers().into_iter().map(resident).sum()
    }

    /// Returns the logs of the server.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".log") {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(15).collect();
                all.extend(lines.iter().rev().map(|line| format!("{name}: {line}\n")));
            }
        }
        all
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        const GRACE: Duration = Duration::from_secs(5);
        let is_panicking = std::thread::panicking();
        let master = self.master_within(GRACE);
        let mut processes: Vec<u32> = master.into_iter().collect();
        processes.extend(master.map(children_of).unwrap_or_default());
        if master.is_some() && !is_panicking {
            self.perform("stop");
            within(GRACE, || !processes.iter().any(|&pid| is_running(pid)));
        }
        // Any other process of it would keep the port from the next test.
        processes.extend(self.port_if_any().map(listeners).unwrap_or_default());
        for pid in processes {
            signal(pid, libc::SIGKILL);
        }
        assert!(master.is_some() || is_panicking, "ended: {}", self.logs());
    }
}

/// Returns the code blocks of a document for users that name their occasion.
fn blocks(document: &str) -> Vec<Block> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/user");
    let document = fs::read_to_string(above.join(document)).expect("the recipe");
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if let Some((language, what)) = info.split_once(' ') {
            blocks.push(Block {
                language: language.to_owned(),
                what: what.to_owned(),
                text: text.join("\n") + "\n",
            });
        }
    }
    blocks
}

pub fn is_installed(program: &str) -> bool {
    let path = path();
    let mut directories = path.split(':');
    directories.any(|directory| Path::new(directory).join(program).exists())
}

/// Where Debian has its servers, beside the usual.
pub fn path() -> String {
    let usual = std::env::var("PATH").unwrap_or_default();
    format!("{usual}:/usr/sbin:/usr/bin:/sbin:/bin")
}

fn is_root() -> bool {
    // SAFETY: plain query.
    unsafe { libc::geteuid() == 0 }
}

fn give_away(path: &Path) {
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("our file");
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

/// Sends a signal to a process of a server that we started.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Stops a process, and waits until all of its threads stand still.
pub fn stop(pid: u32) {
    signal(pid, libc::SIGSTOP);
    wait_for("process that stands still", || {
        let mut threads = fs::read_dir(format!("/proc/{pid}/task"))
            .expect("it runs")
            .flatten();
        threads.all(|thread| {
            let status = fs::read_to_string(thread.path().join("status"));
            status.is_ok_and(|text| text.contains("\nState:\tT"))
        })
    });
}

/// Fields of `/proc/PID/stat` behind the name: state, parent and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.map(str::to_owned).collect())
}

pub fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z")
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |&pid: &u32| {
        stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[1] == parent.to_string())
    };
    processes().filter(is_child).collect()
}

/// The processes that listen at a port of 127.0.0.1.
fn listeners(port: u16) -> Vec<u32> {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let address = format!("0100007F:{port:04X}");
    let sockets: Vec<PathBuf> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&&*address) && fields.get(3) == Some(&LISTEN))
        .filter_map(|fields| Some(format!("socket:[{}]", fields.get(9)?).into()))
        .collect();
    let holds_one = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut descriptors = descriptors.into_iter().flatten().flatten();
        descriptors.any(|entry| fs::read_link(entry.path()).is_ok_and(|to| sockets.contains(&to)))
    };
    processes().filter(holds_one).collect()
}

/// Waits until a condition holds, so long at most, and returns whether it does.
pub fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

/// The resident memory of a process, in KiB.
pub fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}
