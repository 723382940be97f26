//! The lines that HAProxy needs in its section `global`: async mode, and file descriptors for
//! paused handshakes.
//!
//! They stand in a file of Lockstep's, which HAProxy reads after its own: a drop-in for its unit
//! adds `-f` to `EXTRAOPTS`, in which Debian's unit has further arguments. HAProxy takes a section
//! `global` from each file, and of several lines with `maxconn` or `maxpipes` the first one. So the
//! administrator's own numbers hold, and the file has only lines that are missing.
//!
//! HAProxy reserves two descriptors for each connection of `maxconn`, and two for each pipe of
//! `maxpipes`. The pipes are for paused handshakes. If the limit of the process is lower,
//! `haproxy -c` says nothing, and the start fails. So `install` starts an HAProxy that serves
//! nobody, and reads its numbers (`show info`): first without the lines, then with the lines and
//! the same number of connections. HAProxy as root raises its limit of descriptors. Only where it
//! cannot, `install` plans fewer connections.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use lockstep_common::{Scratch, program};
use rustix::process::{Resource, getrlimit};

use super::named::has_line;
use super::site::{HAPROXY, HAPROXY_GLOBAL as GLOBAL, System, haproxy_files, lines};
use super::starter::Starter;
use crate::command::{NOTHING, reason, run};
use crate::files::text_of;
use crate::unit::Unit;
use crate::words::joined;

/// The drop-in that passes the file to HAProxy. A later drop-in of the administrator overrides it.
pub const DROP_IN: &str = "etc/systemd/system/haproxy.service.d/00-lockstep-global.conf";

const UNIT: &str = "haproxy.service";
/// The variable with further arguments.
const OPTIONS: &str = "EXTRAOPTS";

const HEADER: &str =
    "# Written by `lockstep install`; `lockstep uninstall --server haproxy` removes it.\n";
/// Beginnings of the lines. `no strict-limits` lets HAProxy start even if it may have fewer
/// descriptors later.
const LINES: [&str; 5] = [
    "ssl-mode-async",
    "maxconn ",
    "maxpipes ",
    "no strict-limits",
    ALONE,
];
/// Beginning of a comment with the number of connections that HAProxy would take without these
/// lines, if `maxconn` is lower.
const ALONE: &str = "# maxconn without these lines: ";

/// Text of [`GLOBAL`] once its lines are removed, while a running HAProxy, or a file of the
/// administrator, still names it.
pub const EMPTIED: &str = "\
# Written by `lockstep install`; `lockstep uninstall --server haproxy` removes it.
# HAProxy does not start or reload without this file while its command names it.
";

/// Lines of HAProxy's own configuration.
#[derive(Debug, Default, PartialEq, Eq)]
struct Global {
    maxconn: Option<u64>,
    maxpipes: Option<u64>,
    /// Whether one of these numbers is a variable, or depends on a condition.
    is_unclear: bool,
    ulimit: Option<u64>,
    is_async: bool,
    /// Whether it says how HAProxy reacts to a limit that is too low.
    has_strictness: bool,
    /// Whether each group of threads has its own table of descriptors, which HAProxy 3.5 supports.
    has_tables: bool,
    /// Whether connections to servers use TLS: their handshakes pause, too.
    has_tls_servers: bool,
    /// Number of lines about things that have descriptors of their own.
    others: u64,
}

/// Lines that an HAProxy needs if `install` does not write them.
pub const BY_HAND: &str = "\
needs in its section `global`: ssl-mode-async, and maxpipes with half the number of maxconn. \
HAProxy then reserves three file descriptors for each connection. Only its start shows whether its \
limit allows for them; haproxy -c does not";

/// The words that begin a section, besides `global`.
#[rustfmt::skip]
const SECTIONS: [&str; 16] = [
    "defaults", "frontend", "backend", "listen", "peers", "resolvers", "userlist", "mailers",
    "program", "cache", "ring", "http-errors", "fcgi-app", "log-forward", "crt-store", "acme",
];

/// Minimum number of connections with the lines, unless HAProxy takes fewer without them.
const FEWEST: u64 = 100;

/// Maximum number of descriptors to plan for. Some containers allow a thousand times as many, and
/// HAProxy would make tables for them.
const MOST_DESCRIPTORS: u64 = 1 << 20;
/// Maximum time for a start of HAProxy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Settings of a unit with which HAProxy may lack root's right to raise its limits.
const WITHOUT_RIGHTS: [&str; 3] = ["User", "CapabilityBoundingSet", "PrivateUsers"];
/// Script that runs a program with a limit of file descriptors. The program ends with this process,
/// even if this process is killed.
const TRIAL: &str = "ulimit -n \"$1\" 2> /dev/null
shift
exec setpriv --pdeathsig KILL \"$@\"";

/// Number of connections, and of pipes for their handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    maxconn: u64,
    maxpipes: u64,
}

impl Numbers {
    /// Number of descriptors that HAProxy reserves for them.
    fn descriptors(self) -> u64 {
        self.maxconn.saturating_add(self.maxpipes).saturating_mul(2)
    }
}

/// Numbers that a running HAProxy reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    maxconn: u64,
    /// Number of descriptors that it needs at most.
    maxsock: u64,
    /// Number of descriptors that it may have.
    ulimit: u64,
}

impl Reported {
    /// Parses the answer to `show info`.
    fn parse(text: &str) -> Option<Reported> {
        let number = |name| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        Some(Reported {
            maxconn: number("Maxconn:")?,
            maxsock: number("Maxsock:")?,
            ulimit: number("Ulimit-n:")?,
        })
    }
}

/// The lines that HAProxy lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Text of [`GLOBAL`], if the file is needed.
    pub text: Option<String>,
    /// Text of [`DROP_IN`], if the file is needed.
    pub drop_in: Option<String>,
    /// Steps that remain for the administrator.
    pub also: Vec<String>,
    /// Notes for the administrator.
    pub notes: Vec<String>,
}

/// Ways by which HAProxy reads [`GLOBAL`].
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// By a drop-in with these options.
    DropIn(String),
    /// The administrator's options already have HAProxy read it.
    Passed,
    /// The administrator makes this step.
    Step(String),
    /// There is no way.
    None,
}

/// Finds the lines that HAProxy's configuration lacks, and the way by which HAProxy can read them.
pub fn missing(system: &System<'_>, starter: &Starter) -> Lines {
    let mut global = Global::default();
    for file in haproxy_files(system) {
        let text = text_of(&system.at(&file)).unwrap_or_default();
        global.read(&text);
    }
    global.missing(system, starter)
}

/// Describes how many connections HAProxy takes with this text of [`GLOBAL`] and without, and the
/// remedy; `None` if it takes no fewer with the text.
pub fn fewer(text: &str) -> Option<(String, String)> {
    let number = |name: &str| {
        let mut lines = text.lines().map(str::trim_start);
        lines.find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok())
    };
    let (maxconn, alone) = (number("maxconn ")?, number(ALONE)?);
    let maxpipes = number("maxpipes ").unwrap_or_default();
    #[rustfmt::skip]
    let all = Numbers { maxconn, maxpipes }.descriptors();
    let needed = u128::from(alone) * u128::from(all) / u128::from(maxconn.max(1));
    let needed = needed.div_ceil(1000) * 1000;
    Some((
        format!(
            "HAProxy takes at most {maxconn} connections at a time with `install`'s lines, and \
             {alone} without: a paused handshake keeps a third file descriptor, and HAProxy may \
             not have as many"
        ),
        format!(
            "for {alone} connections let it have {needed} descriptors (`ulimit-n` in haproxy.cfg if \
             that is set, else LimitNOFILE={needed} in its unit, and in a container the container's \
             limit), then run `lockstep install --service haproxy` again. If {maxconn} are enough, \
             write `maxconn {maxconn}` in haproxy.cfg"
        ),
    ))
}

/// Whether `install` has written this as [`GLOBAL`].
pub fn is_own(text: &str) -> bool {
    let is_line = |line: &str| {
        let known = LINES.iter().find_map(|known| line.strip_prefix(known));
        known.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let lines = text.strip_prefix(&format!("{HEADER}global\n"));
    let mut lines = lines.into_iter().flat_map(str::lines).peekable();
    let has_some = lines.peek().is_some();
    let mut lines = lines.map(|line| line.strip_prefix("    "));
    text == EMPTIED || (has_some && lines.all(|line| line.is_some_and(is_line)))
}

/// Whether `install` has written this as [`DROP_IN`].
pub fn is_own_drop_in(text: &str) -> bool {
    let options = text
        .strip_prefix(HEADER)
        .and_then(|text| text.strip_prefix(&format!("[Service]\nEnvironment=\"{OPTIONS}=")))
        .and_then(|text| text.strip_suffix("\"\n"));
    options.is_some_and(|options| is_simple(options) && options.ends_with(&passed()))
}

fn drop_in(options: &str) -> String {
    format!("{HEADER}[Service]\nEnvironment=\"{OPTIONS}={options}\"\n")
}

/// The argument that has HAProxy read the file.
fn passed() -> String {
    format!("-f {GLOBAL}")
}

/// Whether systemd takes these options as they stand.
fn is_simple(options: &str) -> bool {
    let is_simple = |c: char| c.is_ascii_alphanumeric() || " /._+-=,:@".contains(c);
    options.chars().all(is_simple)
}

/// Number of file descriptors that HAProxy's service may have, up to [`MOST_DESCRIPTORS`]; `None`
/// if it is not known.
fn limit(system: &System<'_>) -> Option<u64> {
    let of_unit = |value: &str| match value.rsplit(':').next() {
        Some("infinity") => Some(u64::MAX),
        hard => hard?.parse().ok(),
    };
    let unit = Unit::read(system.root, UNIT);
    let set = unit.and_then(|unit| of_unit(unit.get("LimitNOFILE")?));
    let shown = || {
        let mut show = program("systemctl");
        show.args(["show", "--property=LimitNOFILE", "--value", UNIT]);
        of_unit(run(&mut show).ok()?.trim())
    };
    let own = || getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let known = set.or_else(|| system.runs_systemd().then(shown)?);
    let known = known.or_else(|| system.is_here().then(own));
    known.map(|limit| limit.min(MOST_DESCRIPTORS))
}

impl Global {
    /// Reads one more file.
    fn read(&mut self, text: &str) {
        fn set(known: &mut Option<u64>, number: Option<u64>, is_unclear: &mut bool) {
            *is_unclear |= number.is_none();
            // HAProxy computes a number in the place of a zero.
            *known = known.or(number.filter(|number| *number > 0));
        }
        let mut is_global = false;
        // Only HAProxy knows whether the conditions are true.
        let mut conditions = 0_usize;
        for words in lines(text) {
            let number = || words.get(1).and_then(|word| word.parse().ok());
            let decides = ["maxconn", "maxpipes", "ulimit-n", "ssl-mode-async"];
            match words[0] {
                ".if" => conditions += 1,
                ".endif" => conditions = conditions.saturating_sub(1),
                word if is_global && conditions > 0 && decides.contains(&word) => {
                    self.is_unclear = true;
                }
                "global" => is_global = true,
                word if SECTIONS.contains(&word) => is_global = false,
                // HAProxy takes the first of several lines.
                "maxconn" if is_global => set(&mut self.maxconn, number(), &mut self.is_unclear),
                "maxpipes" if is_global => set(&mut self.maxpipes, number(), &mut self.is_unclear),
                "ulimit-n" if is_global => set(&mut self.ulimit, number(), &mut self.is_unclear),
                "fd-hard-limit" if is_global => self.is_unclear = true,
                "ssl-mode-async" if is_global => self.is_async = true,
                "strict-limits" if is_global => self.has_strictness = true,
                "no" if is_global => self.has_strictness |= words.get(1) == Some(&"strict-limits"),
                "tune.fd.tables" if is_global => {
                    let has_tables = words.get(1) == Some(&"per-thread-group");
                    self.has_tables = has_tables || conditions > 0 && self.has_tables;
                }
                "server" | "default-server" => {
                    self.has_tls_servers |= words.contains(&"ssl");
                    self.others += 1;
                }
                "bind" | "nameserver" | "peer" | "log" => self.others += 1,
                _ => {}
            }
        }
    }

    /// Finds the lines that this configuration lacks.
    fn missing(&self, system: &System<'_>, starter: &Starter) -> Lines {
        let also = |text: String| Lines {
            also: vec![text],
            ..Lines::default()
        };
        if self.has_tables {
            return also(
                "haproxy.cfg has `tune.fd.tables per-thread-group`, beside which HAProxy 3.5 does \
                 not start with ssl-mode-async: so install leaves ssl-mode-async out, and \
                 handshakes do not share batches. To have both, write `tune.fd.tables shared` \
                 there and run this again"
                    .to_owned(),
            );
        }
        let limit = limit(system).filter(|_| !self.is_unclear);
        let found = match (limit, self.maxconn) {
            (Some(limit), _) if system.is_here() => {
                self.numbers(|numbers| self.try_out(system, numbers, limit))
            }
            // The limits of another system are not known here.
            (Some(limit), Some(own)) => match self.with(own) {
                numbers if numbers.descriptors() <= limit => Ok((numbers, own)),
                _ => Ok((self.most(limit), own)),
            },
            _ => return also(format!("haproxy.cfg {BY_HAND}")),
        };
        let (numbers, alone) = match found {
            Ok(found) => found,
            Err(why) => return also(without_lines(&why)),
        };
        let tried = match system.is_here() {
            true => "HAProxy was started here with these numbers",
            false => "these numbers were not tried: they fit the limit that HAProxy's unit sets",
        };
        if let Some(own) = self.maxconn.filter(|own| *own != numbers.maxconn) {
            return also(format!(
                "with `maxconn {own}` of haproxy.cfg there are too few file descriptors for paused \
                 handshakes, so install leaves ssl-mode-async out. Raise `ulimit-n` there if it is \
                 set, else LimitNOFILE= of its unit, or ulimit -n; or write \
                 `maxconn {}` there; then run this again ({tried})",
                numbers.maxconn
            ));
        }
        let mut found = Lines::default();
        if let Some(own) = self.maxpipes.filter(|own| *own < numbers.maxpipes) {
            found.also.push(format!(
                "haproxy.cfg has `maxpipes {own}`, and may refuse connections before there are \
                 {} of them: write `maxpipes {}` there, or remove that line and run this again",
                numbers.maxconn, numbers.maxpipes
            ));
        }
        let Some(text) = self.text(numbers, alone) else {
            return found;
        };
        if let Err(why) = check(system, &text) {
            return also(without_lines(&why));
        }
        match way(system, starter) {
            Way::DropIn(options) => found.drop_in = Some(drop_in(&options)),
            Way::Passed => {}
            Way::Step(step) => found.also.push(step),
            Way::None => {
                let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
                return also(format!(
                    "haproxy.cfg needs in its section `global`: {}. A handshake that is paused \
                     keeps one more file descriptor; {tried}",
                    joined(lines, ", ")
                ));
            }
        }
        if let Some((what, remedy)) = fewer(&text) {
            found.notes.push(format!("{what}; {remedy}"));
        }
        found.notes.push(format!(
            "{tried}, and with the rest of its configuration as it is. Lines of `haproxy.cfg` \
             override them; run this again when its maxconn changes"
        ));
        found.text = Some(text);
        found
    }

    /// Makes a file with the lines that are missing; `None` if no line is missing.
    fn text(&self, numbers: Numbers, alone: u64) -> Option<String> {
        let mut text = format!("{HEADER}global\n");
        let before = text.len();
        // Writing to a String cannot fail.
        if !self.is_async {
            let _ = writeln!(text, "    ssl-mode-async");
        }
        if self.maxconn.is_none() {
            let _ = writeln!(text, "    maxconn {}", numbers.maxconn);
            if numbers.maxconn < alone {
                let _ = writeln!(text, "    {ALONE}{alone}");
            }
        }
        if self.maxpipes.is_none() {
            let _ = writeln!(text, "    maxpipes {}", numbers.maxpipes);
            if !self.has_strictness {
                let _ = writeln!(text, "    no strict-limits");
            }
        }
        (text.len() > before).then_some(text)
    }

    /// Finds numbers with which HAProxy starts, and the number of connections without the lines.
    /// `start` tries numbers, or the configuration without lines. No connection is lost if HAProxy
    /// can raise its limit of descriptors.
    fn numbers(
        &self,
        start: impl Fn(Option<Numbers>) -> Result<Reported, String>,
    ) -> Result<(Numbers, u64), String> {
        let alone = start(None)?.maxconn;
        let mut numbers = self.with(alone);
        let mut reported = start(Some(numbers))?;
        if reported.maxsock > reported.ulimit {
            let own = reported.maxsock.saturating_sub(numbers.descriptors());
            numbers = self.most(reported.ulimit.saturating_sub(own));
            reported = start(Some(numbers))?;
        }
        match reported.maxsock <= reported.ulimit && numbers.maxconn >= FEWEST.min(alone) {
            true => Ok((numbers, alone)),
            false => Err(format!(
                "its limit of {} file descriptors is too low",
                reported.ulimit
            )),
        }
    }

    /// Numbers for this number of connections.
    fn with(&self, maxconn: u64) -> Numbers {
        Numbers {
            maxconn,
            maxpipes: maxconn.div_ceil(self.connections_per_pipe()),
        }
    }

    /// Numbers for the connections that this number of descriptors allows.
    fn most(&self, descriptors: u64) -> Numbers {
        // Descriptors of listeners and checks, and some more for each thread.
        let threads = available_parallelism().map_or(1, |threads| threads.get() as u64);
        let others = 50 + (1 + threads) * self.others;
        let per_pipe = self.connections_per_pipe();
        self.with(descriptors.saturating_sub(others) * per_pipe / (2 * per_pipe + 2))
    }

    /// A pipe has two descriptors, and each side of a connection whose handshake pauses needs one.
    fn connections_per_pipe(&self) -> u64 {
        match self.has_tls_servers {
            true => 1,
            false => 2,
        }
    }

    /// Makes a configuration that serves nobody, with these numbers or without the lines.
    fn trial(&self, numbers: Option<Numbers>, directory: &Path) -> String {
        let mut text = "global\n    no strict-limits\n".to_owned();
        let maxconn = |own| numbers.map_or(own, |numbers| numbers.maxconn);
        for (name, number) in [
            ("maxconn", self.maxconn.map(maxconn)),
            ("maxpipes", self.maxpipes),
            ("ulimit-n", self.ulimit),
        ] {
            if let Some(number) = number {
                let _ = writeln!(text, "    {name} {number}");
            }
        }
        let lines = numbers.and_then(|numbers| self.text(numbers, numbers.maxconn));
        let at = directory.display();
        text + &format!(
            "    stats socket {at}/stats\n\
             defaults\n    mode http\n    timeout client 1s\n    timeout connect 1s\n    \
             timeout server 1s\nfrontend trial\n    bind unix@{at}/site\n{}",
            lines.unwrap_or_default()
        )
    }

    /// Starts HAProxy with these numbers and the service's limit, has it report, and ends it. The
    /// error is the reason that it gives.
    fn try_out(
        &self,
        system: &System<'_>,
        numbers: Option<Numbers>,
        limit: u64,
    ) -> Result<Reported, String> {
        let scratch = Scratch::new("haproxy").map_err(|failure| failure.what)?;
        let at = |name: &str| scratch.path().join(name);
        let failed = |error: io::Error| error.to_string();
        fs::write(at("cfg"), self.trial(numbers, scratch.path())).map_err(failed)?;
        let log = File::create(at("log")).map_err(failed)?;
        let unit = Unit::read(system.root, UNIT).unwrap_or_default();
        let rights = ["--bounding-set", "--inh-caps"].map(|set| [set, "-sys_resource"]);
        let is_limited = WITHOUT_RIGHTS.iter().any(|name| unit.get(name).is_some());
        let mut start = system.program("sh");
        start
            .args(["-c", TRIAL, "sh"])
            .arg(limit.to_string())
            .args(rights.into_iter().filter(|_| is_limited).flatten())
            .args(["haproxy", "-db", "-f"])
            .arg(at("cfg"))
            .env("OPENSSL_CONF", NOTHING)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        let mut started = start.spawn().map_err(failed)?;
        let outcome = report(&mut started, &at("stats"));
        let _ = started.kill();
        let _ = started.wait();
        let said = || reason(&fs::read_to_string(at("log")).unwrap_or_default());
        outcome.map_err(failed)?.ok_or_else(said)
    }
}

/// Says that the lines are left out, and why.
fn without_lines(why: &str) -> String {
    format!(
        "HAProxy does not start here with the lines that have handshakes share batches: {why}. So \
         they are left out, and it serves as before; run this again when that is mended"
    )
}

/// Has HAProxy check its configuration with this text behind it. The error is the reason that it
/// gives.
fn check(system: &System<'_>, text: &str) -> Result<(), String> {
    let scratch = Scratch::new("haproxy-check").map_err(|failure| failure.what)?;
    let path = scratch.path().join("global.cfg");
    fs::write(&path, text).map_err(|error| error.to_string())?;
    system.check(&HAPROXY, &[], Some(&path))
}

/// Finds the way by which HAProxy can read the file.
fn way(system: &System<'_>, starter: &Starter) -> Way {
    let passed = passed();
    match starter {
        Starter::Systemd => by_unit(system, &passed),
        Starter::Script { script, file } => {
            let (script, shown) = (script.display(), file.display());
            let has = |wanted: &str| {
                has_line(file, |line| line.contains(OPTIONS) && line.contains(wanted))
            };
            match (has(GLOBAL), has("=")) {
                (true, _) => Way::Passed,
                (_, true) => Way::Step(format!("add `{passed}` to {OPTIONS} in {shown}")),
                _ => Way::Step(format!(
                    "add the line `{OPTIONS}=\"{passed}\"` to {shown}, which {script} reads"
                )),
            }
        }
        Starter::Unknown => Way::Step(format!("start HAProxy with `{passed}` behind its own file")),
    }
}

/// Finds the way where systemd starts HAProxy. A variable of `EnvironmentFile=` overrides each
/// drop-in. If a drop-in of the administrator sets the variable, `install` does not override it:
/// the administrator's later changes would then have no effect.
fn by_unit(system: &System<'_>, passed: &str) -> Way {
    let read = |text| {
        let planned = [(system.root.join(DROP_IN), text)];
        Unit::read_with(system.root, UNIT, &planned)
    };
    let Some(unit) = read(None) else {
        return Way::None;
    };
    let start = unit.get("ExecStart").unwrap_or_default();
    let variable = format!("${OPTIONS}");
    if !start.split_whitespace().any(|word| word == variable) {
        return Way::None;
    }
    if unit.hides(Path::new(GLOBAL)).is_some() {
        return Way::None;
    }
    let set = unit.variable_and_file(OPTIONS);
    let is_of_unit = |file: &Path| unit.files.first().is_some_and(|first| first == file);
    let options = match set {
        None => passed.to_owned(),
        Some((options, _)) if options.contains(GLOBAL) => return Way::Passed,
        Some((options, file)) if is_of_unit(&file) && is_simple(&options) => {
            format!("{options} {passed}")
        }
        Some((_, file)) => {
            return Way::Step(format!(
                "{} sets {OPTIONS} for {UNIT}, and that is kept: add `{passed}` to it",
                file.display()
            ));
        }
    };
    // Something else may still override the drop-in.
    let with = read(Some(drop_in(&options)));
    match with.and_then(|unit| unit.variable(OPTIONS)) {
        Some(value) if value == options => Way::DropIn(options),
        _ => Way::None,
    }
}

/// The numbers that HAProxy reports at its socket once it runs; `None` if it ends before.
fn report(started: &mut Child, socket: &Path) -> io::Result<Option<Reported>> {
    let asked = || {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"show info\n")?;
        io::read_to_string(socket)
    };
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if started.try_wait()?.is_some() {
            return Ok(None);
        }
        if let Some(reported) = asked().ok().as_deref().and_then(Reported::parse) {
            return Ok(Some(reported));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("HAProxy did not start in 20 seconds"))
}

#[cfg(test)]
mod tests;
