//! `lockstep stat`: the counters that running processes publish.

pub mod prometheus;
pub mod servers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lockstep_engine::{
    Fallback, ProcessStats, Published, Shape, Snapshot, read_default_stats, read_published,
};

use lockstep_common::{Configuration, Failure, Outcome, fit_for_terminal, json_for_terminal};

use crate::mistakes::{gone, mistakes};
use crate::warnings::{Warning, kibibytes, warnings};
use crate::words::joined;
use servers::{Counted, Ledger, Server, merge};

/// Shows the counters of processes that have loaded the module; root sees those of all users
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// The rates of each server, again after each interval, until interrupted [default: every
    /// second]
    #[arg(
        long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = interval
    )]
    watch: Option<Duration>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    source: Source,
}

const NOTES: &str = "\
Prometheus has them by `lockstep exporter`.

Examples:
  lockstep stat --watch
  lockstep stat --total failed_checks

Files:
  /run/lockstep                                     counters of root's processes
  /dev/shm/lockstep-UID, /tmp/lockstep-UID          counters of other users' processes";

/// Form of the output.
#[derive(Args)]
#[group(multiple = false)]
struct Form {
    /// One JSON document: an array with an object for each process
    #[arg(long)]
    json: bool,
    /// Only the sum of one counter over all processes: operations, batches, passes, fallbacks,
    /// failed_checks, async_submitted, lost, unpaused, no_descriptor, pool_hits, derivations,
    /// ciphers, daemon_requests or daemon_fallbacks, or one kind of operation, as rsa2048 or
    /// p256-sign
    #[arg(long, value_name = "NAME", value_parser = Total::called)]
    total: Option<Total>,
}

impl Form {
    fn is_text(&self) -> bool {
        !self.json && self.total.is_none()
    }
}

/// Which processes are shown.
#[derive(Args)]
struct Source {
    /// Include processes that have ended (see the setting stats_keep)
    #[arg(long)]
    ended: bool,
    #[command(flatten)]
    place: Place,
}

/// Where counters are read.
#[derive(Args, Default)]
pub struct Place {
    /// Where the processes publish their counters [default: LOCKSTEP_STATS_DIR, or the places that
    /// the module uses by default]
    #[arg(long = "dir", value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Runs the command.
pub fn run(options: Options) -> Outcome {
    let Options {
        watch,
        form,
        source,
    } = options;
    match watch {
        None => {
            print(&once(&source, &form)?);
        }
        Some(interval) if form.is_text() => return watch_rates(&source, interval),
        Some(interval) => {
            while print(&once(&source, &form)?) {
                thread::sleep(interval);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses the seconds behind `--watch`.
fn interval(seconds: &str) -> Result<Duration, String> {
    let number = seconds.parse().ok();
    number
        .filter(|seconds| (0.05..=86400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "it takes 0.05 to 86400 seconds".to_owned())
}

/// Writes to the standard output; returns false once it is closed.
pub fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).is_ok() && out.flush().is_ok()
}

fn once(source: &Source, form: &Form) -> Result<String, Failure> {
    let found = source.read()?;
    let processes = &found.processes;
    if found.cut_off && !form.is_text() {
        eprintln!("lockstep: {CUT_OFF}");
    }
    Ok(if let Some(total) = &form.total {
        let counts = processes.iter().map(|p| total.of(&p.snapshot));
        format!("{}\n", counts.fold(0, u64::saturating_add))
    } else if form.json {
        format!("[{}]\n", joined(processes.iter().map(document), ","))
    } else if processes.is_empty() {
        format!("{}\n", source.nothing(&found)) + &without_effect()
    } else {
        let all: String = processes.iter().map(describe).collect();
        all + &left_out(&found) + &without_effect()
    })
}

/// Lines about settings of the configuration that have no effect. The module cannot name all of
/// them: it does not see an unknown name.
fn without_effect() -> String {
    let Ok(configuration) = Configuration::find() else {
        return String::new();
    };
    let mistakes = mistakes(&configuration);
    let of_mistakes = (!mistakes.is_empty()).then(|| {
        let path = configuration.path().display();
        format!("settings in {path} have no effect: {mistakes}")
    });
    let lines = of_mistakes.into_iter().chain(gone(&configuration));
    lines
        .map(|line| format!("{}: {line}\n", warning()))
        .collect()
}

/// Returns the mark in front of a warning: red on a terminal.
fn warning() -> &'static str {
    let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    match coloured {
        true => "\x1b[1;31mwarning\x1b[0m",
        false => "warning",
    }
}

impl Place {
    /// Reads the counters of processes, with an entry for each engine.
    pub fn published(&self) -> Result<Published, Failure> {
        match self.directory() {
            None => Ok(read_default_stats()),
            Some(directory) => read_published(&directory).map_err(|error| {
                Failure::new(format!("cannot read {}: {error}", directory.display()))
                    .remedy("name the directory that the server has in stats_dir")
            }),
        }
    }

    fn directory(&self) -> Option<PathBuf> {
        self.directory.clone().or_else(|| {
            let named = std::env::var_os("LOCKSTEP_STATS_DIR").map(PathBuf::from);
            named.filter(|directory| directory.is_absolute())
        })
    }
}

impl Source {
    /// The processes that are asked for, one entry for each.
    fn read(&self) -> Result<Published, Failure> {
        let mut found = self.place.published()?;
        found
            .processes
            .retain(|process| process.alive || process.elsewhere.is_some() || self.ended);
        merge(&mut found.processes);
        Ok(found)
    }

    fn nothing(&self, found: &Published) -> String {
        let mut out = match self.place.directory() {
            Some(directory) => {
                format!("no process publishes counters in {}", directory.display())
            }
            None => "no process publishes counters; a process publishes its own from the first \
                     operation on that it asks of the module"
                .to_owned(),
        };
        if !found.unreadable.is_empty() {
            out.push_str("\nthe processes of other users are shown to root only");
        }
        let left_out = left_out(found);
        if !left_out.is_empty() {
            out.push('\n');
            out.push_str(left_out.trim_end());
        }
        out
    }
}

const CUT_OFF: &str = "there is more than is shown: there are too many files of counters, or too \
                       many processes of one user";

/// Describes counters that are published and not shown, with a line for each kind.
fn left_out(found: &Published) -> String {
    let mut out = String::new();
    let counted = |count: u64, one: &str, many: &str| match count {
        1 => one.to_owned(),
        _ => format!("{count} {many}"),
    };
    if found.missed > 0 {
        let more = counted(
            found.missed,
            "1 more process is not shown: the file of its program had no free place for counters \
             when it started",
            "more processes are not shown: the file of their program had no free place for \
             counters when they started",
        );
        let _ = writeln!(out, "{more}");
    }
    if found.other_versions > 0 {
        let files = counted(
            found.other_versions as u64,
            "1 file of counters is",
            "files of counters are",
        );
        let _ = writeln!(
            out,
            "{files} of another version of lockstep: use its `lockstep stat`, or restart the \
             servers"
        );
    }
    if found.cut_off {
        let _ = writeln!(out, "{CUT_OFF}");
    }
    out
}

/// Counter that `--total NAME` adds up.
#[derive(Clone)]
enum Total {
    /// One of [`COUNTERS`].
    Counter(fn(&Snapshot) -> u64),
    /// The operations of one kind.
    Operations(Shape),
}

impl Total {
    fn called(name: &str) -> Result<Total, String> {
        if let Some((_, counter)) = COUNTERS.iter().find(|(known, _)| *known == name) {
            return Ok(Total::Counter(*counter));
        }
        match Shape::ALL.into_iter().find(|shape| shape.name() == name) {
            Some(shape) => Ok(Total::Operations(shape)),
            None => {
                let known = joined(COUNTERS.iter().map(|(name, _)| name), ", ");
                Err(format!("no counter `{name}`: there are {known}"))
            }
        }
    }

    fn of(&self, snapshot: &Snapshot) -> u64 {
        match self {
            Total::Counter(counter) => counter(snapshot),
            Total::Operations(shape) => snapshot.operations_of(*shape),
        }
    }
}

/// A counter that `--total` can sum up.
type Counter = (&'static str, fn(&Snapshot) -> u64);

const COUNTERS: &[Counter] = &[
    ("operations", Snapshot::operations),
    ("batches", |snapshot| snapshot.batches),
    ("passes", |snapshot| snapshot.passes),
    ("fallbacks", Snapshot::fallbacks),
    ("failed_checks", |snapshot| snapshot.failed_checks),
    ("async_submitted", |snapshot| snapshot.async_submitted),
    ("lost", |snapshot| snapshot.lost),
    ("unpaused", |snapshot| snapshot.unpaused),
    ("no_descriptor", |snapshot| snapshot.no_descriptor),
    ("pool_hits", |snapshot| snapshot.pool_hits),
    ("derivations", |snapshot| snapshot.derivations),
    ("ciphers", |snapshot| snapshot.ciphers),
    ("daemon_requests", |snapshot| snapshot.daemon_requests),
    ("daemon_fallbacks", |snapshot| snapshot.daemon_fallbacks),
];

/// Makes the JSON object of a process: its counters, and facts about the process.
fn document(process: &ProcessStats) -> String {
    let name = serde_json::Value::from(process.name.as_deref()).to_string();
    let name = json_for_terminal(&name);
    let counters = process.snapshot.to_json();
    let alive = match process.elsewhere {
        Some(namespace) => format!(r#"null,"pid_namespace":{namespace}"#),
        None => process.alive.to_string(),
    };
    format!(
        r#"{{"process":{name},"user":{},"alive":{alive},{}"#,
        process.user,
        counters.trim_start_matches('{')
    )
}

fn describe(process: &ProcessStats) -> String {
    let ProcessStats { pid, snapshot, .. } = process;
    #[rustfmt::skip]
    let &Snapshot {
        batches, passes, pool_refills, pool_hits, derivations, ciphers, daemon_requests,
        daemon_fallbacks, async_submitted, paused, lost, unpaused, no_descriptor, key_memory, ..
    } = snapshot;
    let mut out = String::new();
    // Writes a line if its count is not zero. Writing to a String cannot fail.
    macro_rules! line {
        ($count:expr, $($text:tt)*) => {
            if $count > 0 {
                let _ = writeln!(out, $($text)*);
            }
        };
    }
    // A process whose settings have mistakes is shown before it has lanes.
    let lanes = match snapshot.backend.as_str() {
        "" => "none chosen yet",
        lanes => lanes,
    };
    let (name, version) = (printable(process), &snapshot.version);
    line!(
        1,
        "process {pid} {name}, lockstep {version}, lanes: {lanes}"
    );
    let (operations, fill) = (snapshot.operations(), snapshot.average_fill());
    let requests = format!("{fill:.2} requests per pass");
    line!(
        1,
        "  {operations} operations in {batches} batches, {passes} passes; {requests}"
    );
    for shape in Shape::ALL {
        let count = snapshot.operations_of(shape);
        line!(count, "  {:<24} {count:>12}", shape.name());
    }
    line!(
        pool_refills,
        "  {pool_hits} key pairs made in advance, in {pool_refills} batches"
    );
    line!(derivations, "  {derivations} keys of TLS 1.3 derived");
    line!(ciphers, "  {ciphers} contexts of AES-GCM");
    line!(
        daemon_requests,
        "  {daemon_requests} signatures asked of the key daemon, {daemon_fallbacks} of them \
         computed here after all"
    );
    let wait = microseconds(snapshot.wait_total_ns, operations.saturating_sub(pool_hits));
    let longest = microseconds(snapshot.wait_max_ns, 1);
    line!(
        1,
        "  waits in the queue: {wait:.1} µs on average, {longest:.1} µs at most"
    );
    line!(
        async_submitted,
        "  {async_submitted} requests of async jobs, {paused} of them open, {lost} lost"
    );
    line!(
        unpaused,
        "  {unpaused} async jobs blocked their thread instead of pausing, {no_descriptor} for want \
         of a file descriptor"
    );
    let (memory, locked) = (kibibytes(key_memory), kibibytes(snapshot.key_memory_locked));
    line!(
        key_memory,
        "  {memory} of memory for keys, {locked} of it locked"
    );
    let schedules = schedules(snapshot);
    line!(schedules.len(), "  schedules of RSA: {schedules}");
    for Warning { what, remedy, .. } in warnings(snapshot) {
        line!(1, "  {}: {what}. Remedy: {remedy}", warning());
    }
    for &reason in Fallback::ALL {
        let count = snapshot.fallbacks_for(reason);
        line!(count, "  to stock, {:<14} {count:>12}", reason.name());
    }
    line!(1, "  failed checks {:>23}", snapshot.failed_checks);
    out
}

/// The schedules of RSA by the size of the key; empty before the first batch, and on lanes without
/// schedules.
pub fn schedules(snapshot: &Snapshot) -> String {
    let all = snapshot.schedules();
    let named = all.map(|(size, schedule)| format!("{} for {} bits", schedule.name(), size.bits()));
    joined(named, ", ")
}

/// Returns the name of a process, fit for a terminal: programs choose their names.
pub fn printable(process: &ProcessStats) -> String {
    match &process.name {
        Some(name) => fit_for_terminal(name),
        None if process.elsewhere.is_some() => format!(
            "(of user {} in another PID namespace, may have ended)",
            process.user
        ),
        None => "(ended)".to_owned(),
    }
}

fn microseconds(nanoseconds: u64, of: u64) -> f64 {
    nanoseconds as f64 / of.max(1) as f64 / 1000.0
}

/// Prints the rates of each interval until the output is closed.
fn watch_rates(source: &Source, interval: Duration) -> Outcome {
    let clear = if io::stdout().is_terminal() {
        "\x1b[H\x1b[2J"
    } else {
        ""
    };
    let mut ledger = Ledger::default();
    ledger.look(&source.place.published()?, |_| true);
    let mut since = Instant::now();
    loop {
        let before = ledger.servers().clone();
        thread::sleep(interval);
        let found = source.place.published()?;
        ledger.look(&found, |_| true);
        let table = match found.processes.is_empty() {
            true => format!("{}\n", source.nothing(&found)),
            false => rates(&before, &ledger, since.elapsed()),
        };
        since = Instant::now();
        if !print(&format!("{clear}{table}")) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Makes one line for each running server: its rates since `before`, `elapsed` ago.
fn rates(before: &BTreeMap<Server, Counted>, now: &Ledger, elapsed: Duration) -> String {
    let mut out = format!(
        "{:<14} {:>5} {:>5} {:>8} {:>5} {:>5} {:>8} {:>8} {:>5} {:>6}\n",
        "server", "user", "procs", "ops/s", "lanes", "fill", "wait µs", "stock/s", "open", "failed"
    );
    let per_second = |count: u64| count as f64 / elapsed.as_secs_f64().max(1e-3);
    for (server, counted) in now.servers() {
        let Some(first) = counted.running.first() else {
            continue;
        };
        let earlier = before.get(server).map(|counted| counted.total.clone());
        let new = counted.total.clone().since(&earlier.unwrap_or_default());
        let (operations, stock) = (new.operations(), new.fallbacks());
        let lanes = match operations.saturating_add(stock) {
            0 => "-".to_owned(),
            all => format!("{:.0} %", 100.0 * operations as f64 / all as f64),
        };
        let now = |value: fn(&Snapshot) -> u64| {
            let values = counted
                .running
                .iter()
                .map(|process| value(&process.snapshot));
            values.fold(0, u64::saturating_add)
        };
        let name = match server.user {
            Some(_) if !server.process.is_empty() => server.process.clone(),
            Some(_) => printable(first),
            None => "(others)".to_owned(),
        };
        let user = server
            .user
            .map_or_else(|| "-".to_owned(), |user| user.to_string());
        let _ = writeln!(
            out,
            "{name:<14} {user:>5} {:>5} {:>8.0} {lanes:>5} {:>5.2} {:>8.1} {:>8.0} {:>5} {:>6}",
            counted.running.len() + counted.idle,
            per_second(operations),
            new.average_fill(),
            microseconds(new.wait_total_ns, operations.saturating_sub(new.pool_hits)),
            per_second(stock),
            now(|s| s.paused),
            now(|s| s.failed_checks)
        );
    }
    out
}

#[cfg(test)]
mod tests;
