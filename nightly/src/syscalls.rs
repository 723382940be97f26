//! System calls: each call that the module adds is in the table of `docs/user/settings.md`, and
//! results are right without any of them.
//!
//! `rig/programs/syscalls.c` runs with the module and without it. strace shows the calls of each
//! stage; each call that the module adds must stand in the table's rows for that stage. Then a
//! filter denies each call of the table in turn: an operation that works with OpenSSL's own code
//! must work with the module. A call that the table does not name after loading even ends the
//! process there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xtask::command::{Failure, Outcome, compile, on, quietly, root, succeeds, within};
use xtask::dist;
use xtask::work::{Ran, Share, Work};

use crate::keys;

/// The heading of the table, and the settings page.
const HEADING: &str = "## System calls that the module adds";
const PAGE: &str = "docs/user/settings.md";

/// The stages of the program, and the rows that may add calls there.
const STAGES: &[(&str, &[&str])] = &[
    ("load", &["the module is loaded"]),
    ("requests", &["a thread's first request", "requests"]),
    ("threads", &["a thread's first request", "requests"]),
    (
        "jobs",
        &[
            "a thread's first request",
            "requests",
            "a job pauses",
            "a worker starts",
        ],
    ),
    (
        "fork",
        &[
            "a process forks",
            "a thread's first request",
            "requests",
            "the process exits",
            // One that was started for the last jobs may get a CPU only now.
            "a worker starts",
        ],
    ),
    ("more", &["requests"]),
    ("exit", &["the process exits", "requests"]),
];

/// A hang is a finding, unless OpenSSL's own code hangs too.
const LIMIT: Duration = Duration::from_secs(20);

/// How a call is denied.
const ERRORS: [&str; 2] = ["EPERM", "ENOSYS"];
const KILL: &str = "kill";

/// Calls whose denial ends any program, with or without the module, as soon as glibc needs them.
/// glibc takes a denied `brk` for one that gave memory, and ends a process in which a thread that
/// starts cannot make its `rseq`.
const VITAL: [&str; 2] = ["brk", "rseq"];

/// When the filter begins.
const WHEN: [&str; 3] = ["start", "loaded", "used"];

/// The numbers of system calls, by the headers of the C library.
fn numbers() -> Outcome<BTreeMap<String, String>> {
    let mut compiler = Command::new("cc");
    compiler.args(["-dM", "-E", "-include", "sys/syscall.h", "-xc", "/dev/null"]);
    let macros = quietly(&mut compiler)?;
    let named = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.to_owned()))
    };
    Ok(macros.lines().filter_map(named).collect())
}

/// The system calls of each stage.
type Table = BTreeMap<String, BTreeSet<String>>;

/// The nightly check.
pub fn night(share: &Share) -> Outcome<Ran> {
    for program in ["cc", "strace"] {
        if !succeeds(program, &["--version"]) {
            return Ok(Ran::Skipped(format!(
                "there is no {program} (on Debian: apt-get install gcc strace)"
            )));
        }
    }
    let page = root().join(PAGE);
    let text = fs::read_to_string(&page).map_err(on(&page, "read"))?;
    let table = read_table(&text)?;
    let program = Program::build(&share.directory)?;
    let mut work = Work::default();
    program.compare(&table, &mut work)?;
    match program.sweep(&table, &mut work)? {
        Some(note) => {
            work.note = note;
            Ok(Ran::Worked(work))
        }
        None => Ok(Ran::Skipped(
            "the kernel takes no filter of system calls".to_owned(),
        )),
    }
}

/// The rows of the table in the page.
fn read_table(page: &str) -> Outcome<Table> {
    let mut table = Table::new();
    let mut when = String::new();
    let section = page.split(HEADING).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [first, calls, ..] = cells[..] else {
            continue;
        };
        if !first.is_empty() {
            when = first.to_owned();
        }
        // Code is between backticks; paths are not calls.
        let code = calls.split('`').skip(1).step_by(2);
        let row = table.entry(when.clone()).or_default();
        row.extend(code.filter(|code| !code.contains('/')).map(str::to_owned));
    }
    let known = STAGES.iter().flat_map(|(_, rows)| *rows);
    match known.copied().find(|row| !table.contains_key(*row)) {
        None => Ok(table),
        Some(row) => Err(Failure::new(format!(
            "{PAGE} has no row `{row}` under `{HEADING}`"
        ))),
    }
}

/// How often each stage of a run made each call.
type Calls = BTreeMap<String, BTreeMap<String, usize>>;

/// Stages in which the program's other threads only wait: their calls are not the module's.
const OF_ONE_THREAD: [&str; 2] = ["load", "requests"];

/// Reads the output of strace.
fn read_trace(log: &str) -> Calls {
    let mut calls = Calls::new();
    // No call before this one is the module's.
    let (mut stage, mut marker) = (String::new(), "");
    for line in log.lines() {
        let (thread, line) = line.split_once(' ').unwrap_or_default();
        let line = line.trim();
        let Some((name, rest)) = line.split_once('(') else {
            continue;
        };
        if let Some(mark) = rest.strip_prefix("-1, \"stage ") {
            stage = mark.split('"').next().unwrap_or_default().to_owned();
            marker = thread;
        } else if thread != marker && OF_ONE_THREAD.contains(&stage.as_str()) {
            continue;
        } else if name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            let stage = calls.entry(stage.clone()).or_default();
            *stage.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// The calls that are made more often with the module, as `STAGE: CALL`, and that the table does
/// not name for the stage.
fn unlisted(table: &Table, stock: &Calls, ours: &Calls) -> Vec<String> {
    let mut unlisted = Vec::new();
    for (stage, rows) in STAGES {
        let listed: BTreeSet<&String> = rows.iter().flat_map(|row| &table[*row]).collect();
        for (call, count) in ours.get(*stage).into_iter().flatten() {
            let before = stock.get(*stage).and_then(|stage| stage.get(call));
            if count > before.unwrap_or(&0) && !listed.contains(call) {
                unlisted.push(format!("{stage}: {call}"));
            }
        }
    }
    unlisted
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// All results are right; how many operations the lanes served, if the module was loaded.
    Right(Option<u64>),
    /// Anything else.
    Wrong(String),
    NoFilter,
}

/// `rig/programs/syscalls.c`, with keys.
struct Program {
    path: PathBuf,
    directory: PathBuf,
    keys: [PathBuf; 3],
    configuration: PathBuf,
    /// Of system calls.
    numbers: BTreeMap<String, String>,
}

impl Program {
    fn build(directory: &Path) -> Outcome<Program> {
        let configuration = dist::build()?.configuration();
        let path = directory.join("syscalls");
        let libraries = ["-lcrypto", "-lpthread"].map(OsStr::new);
        compile("rig/programs/syscalls.c", &path, libraries)?;
        let keys = keys::make(directory)?;
        Ok(Program {
            path,
            directory: directory.to_owned(),
            keys,
            configuration,
            numbers: numbers()?,
        })
    }

    /// A run, behind a program that starts it if there is one.
    fn command(&self, behind: &[&str], with_module: bool, arguments: [&str; 3]) -> Command {
        let mut words = behind.iter();
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        let configuration = match with_module {
            true => &self.configuration,
            false => Path::new("/dev/null"),
        };
        command
            .args(arguments)
            .args(&self.keys)
            .current_dir(&self.directory)
            .env("OPENSSL_CONF", configuration)
            .env("LOCKSTEP_LONE", "lanes")
            .stdin(Stdio::null());
        command
    }

    /// Finds calls that are made only with the module, and that the table lacks.
    fn compare(&self, table: &Table, work: &mut Work) -> Outcome {
        let trace = |with_module| {
            let log = self.directory.join("strace");
            let name = log.to_string_lossy().into_owned();
            let behind = ["strace", "-f", "-o", &name];
            quietly(&mut self.command(&behind, with_module, ["never", "EPERM", "0"]))?;
            let text = fs::read_to_string(&log).map_err(on(&log, "read"))?;
            Ok(read_trace(&text))
        };
        let (stock, ours) = (trace(false)?, trace(true)?);
        work.cases += 1;
        // The check must see a difference.
        let empty = table.keys().map(|row| (row.clone(), BTreeSet::new()));
        let added = unlisted(&empty.collect(), &stock, &ours);
        if !added.contains(&"load: fallocate".to_owned()) {
            return Err(Failure::new(format!(
                "strace does not show what the module adds, only {added:?}"
            )));
        }
        for call in unlisted(table, &stock, &ours) {
            println!("{call} is added by the module, and is not in the table of {PAGE}");
            work.findings += 1;
        }
        Ok(())
    }

    /// Denies each call of the table; `None` if that cannot be done here.
    fn sweep(&self, table: &Table, work: &mut Work) -> Outcome<Option<String>> {
        let everything: BTreeSet<&String> = table.values().flatten().collect();
        let later: BTreeSet<&String> = table
            .iter()
            .filter(|(when, _)| *when != "the module is loaded")
            .flat_map(|(_, calls)| calls)
            .collect();
        if !self.proves_itself()? {
            return Ok(None);
        }
        let mut without_lanes = BTreeSet::new();
        let mut vain = 0;
        for call in everything {
            if VITAL.contains(&call.as_str()) {
                continue;
            }
            let number = self.number(call)?;
            for when in WHEN {
                let kill = when != "start" && !later.contains(call);
                for action in ERRORS.into_iter().chain(kill.then_some(KILL)) {
                    let arguments = [when, action, number];
                    match self.end(false, arguments)? {
                        End::NoFilter => return Ok(None),
                        End::Wrong(_) => {
                            vain += 1;
                            continue;
                        }
                        End::Right(_) => {}
                    }
                    work.cases += 1;
                    match self.end(true, arguments)? {
                        End::Right(Some(1..)) => {}
                        End::Right(_) | End::NoFilter => {
                            without_lanes.insert(call.as_str());
                        }
                        End::Wrong(how) => {
                            println!("{action} for {call} ({when}): {how}");
                            work.findings += 1;
                        }
                    }
                }
            }
        }
        let without: Vec<&str> = without_lanes.into_iter().collect();
        Ok(Some(format!(
            "{vain} more fail without the module too; no lanes without {}",
            without.join(" ")
        )))
    }

    /// Whether the death of the module's process, and not of the other, is seen; false without
    /// filters.
    fn proves_itself(&self) -> Outcome<bool> {
        let number = self.number("mlock2")?;
        let arguments = [WHEN[0], KILL, number];
        match (self.end(false, arguments)?, self.end(true, arguments)?) {
            (End::NoFilter, _) => Ok(false),
            (End::Right(_), End::Wrong(_)) => Ok(true),
            ends => Err(Failure::new(format!(
                "the module calls mlock2, and a filter that kills for it gives {ends:?}"
            ))),
        }
    }

    fn number(&self, call: &str) -> Outcome<&str> {
        let number = self.numbers.get(call).map(String::as_str);
        number.ok_or_else(|| Failure::new(format!("sys/syscall.h does not know {call}")))
    }

    fn end(&self, with_module: bool, arguments: [&str; 3]) -> Outcome<End> {
        let mut command = self.command(&[], with_module, arguments);
        let (status, text) = within(LIMIT, &self.directory.join("output"), &mut command)?;
        let Some(status) = status else {
            return Ok(End::Wrong("it hangs".to_owned()));
        };
        let lanes = text.lines().find_map(|line| line.strip_prefix("lanes "));
        Ok(match status.code() {
            Some(0) => End::Right(lanes.and_then(|lanes| lanes.parse().ok())),
            Some(77) => End::NoFilter,
            _ => End::Wrong(format!("{status}\n{text}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_page_is_read() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let table = read_table(&page).unwrap();
        assert!(table["the module is loaded"].contains("fallocate"));
        assert!(table["requests"].contains("mlock2"));
        assert!(table["requests"].contains("futex"));
        let numbers = numbers().unwrap();
        for call in table.values().flatten() {
            assert!(numbers.contains_key(call), "the headers do not know {call}");
        }
    }

    #[test]
    fn what_is_added_and_not_told_is_found() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let table = read_table(&page).unwrap();
        let stock = read_trace(
            "7 write(-1, \"stage load\", 10) = -1 EBADF\n7 close(3) = 0\n\
             7 write(-1, \"stage requests\", 14 <unfinished ...>\n7 <... write resumed>) = -1\n",
        );
        let ours = read_trace(
            "7 write(-1, \"stage load\", 10) = -1 EBADF\n7 close(3) = 0\n7 fcntl(3, F_GETFD) = 0\n\
             7 write(-1, \"stage requests\", 14 <unfinished ...>\n7 <... write resumed>) = -1\n\
             8 fcntl(0x1, 2, 3 <unfinished ...>\n7 getdents64(3, 0x5, 6) = 0\n\
             7 futex(0x1, 2, 3) = 0\n",
        );
        let found = unlisted(&table, &stock, &ours);
        assert_eq!(found, ["load: fcntl", "requests: getdents64"]);
    }
}
