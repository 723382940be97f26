//! The lines that HAProxy needs in its section `global`: async mode, and file descriptors for
//! paused handshakes.
//!
//! They stand in a file of Lockstep's, which HAProxy reads after its own: a drop-in for its unit
//! adds `-f` to `EXTRAOPTS`, in which Debian's unit has further arguments. HAProxy takes a section
//! `global` from each file, and of several lines with `maxconn` or `maxpipes` the first one. So the
//! administrator's own numbers hold, and the file has only lines that are missing.
//!
//! HAProxy reserves two descriptors for each of `maxconn`, and two for each of `maxpipes`, by which
//! it is told of the paused ones. Where it may not have as many, `haproxy -c` says nothing, and the
//! start fails. So numbers are tried by a start, of an HAProxy that serves nobody.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use lockstep_common::{Scratch, program};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};

use super::named::has_line;
use super::site::{HAPROXY_GLOBAL as GLOBAL, System, haproxy_files, lines};
use super::starter::Starter;
use crate::command::{run, start};
use crate::unit::{Unit, text_of};

/// The drop-in that passes it to HAProxy. What an administrator sets later by another one holds.
pub const DROP_IN: &str = "etc/systemd/system/haproxy.service.d/00-lockstep-global.conf";

const UNIT: &str = "haproxy.service";
/// The variable with further arguments.
const OPTIONS: &str = "EXTRAOPTS";

const HEADER: &str =
    "# Written by `lockstep install`; `lockstep uninstall --server haproxy` removes it.\n";
/// With the numbers here HAProxy starts also where it may have fewer descriptors later.
const LINES: [&str; 4] = [
    "ssl-mode-async",
    "maxconn ",
    "maxpipes ",
    "no strict-limits",
];

/// What its file is while a running HAProxy, or a file of the administrator's, names it.
pub const EMPTIED: &str = "\
# Written by `lockstep install`; `lockstep uninstall --server haproxy` removes it.
# HAProxy does not start or reload without this file while its command names it.
";

/// What the configuration says so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Global {
    maxconn: Option<u64>,
    maxpipes: Option<u64>,
    /// Whether one of these is not a number, but a variable.
    is_unclear: bool,
    ulimit: Option<u64>,
    is_async: bool,
    /// Whether it says what is to happen where a limit is too low.
    has_strictness: bool,
    /// Whether it says which suites of TLS 1.3 it takes.
    has_suites: bool,
    /// Tables of descriptors for each group of threads, which HAProxy 3.5 has.
    has_tables: bool,
    /// Whether connections to servers use TLS: their handshakes pause, too.
    has_tls_servers: bool,
    /// How many lines are about something that has descriptors of its own.
    others: u64,
}

/// The words that begin a section, besides `global`.
const SECTIONS: [&str; 16] = [
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "userlist",
    "mailers",
    "program",
    "cache",
    "ring",
    "http-errors",
    "fcgi-app",
    "log-forward",
    "crt-store",
    "acme",
];

/// The fewest connections that are worth a start.
const FEWEST: u64 = 100;

/// No more descriptors are planned with. Some containers allow a thousand times as many, for which
/// HAProxy would make tables.
const MOST_DESCRIPTORS: u64 = 1 << 20;
/// HAProxy counts descriptors by an `int`.
const MOST_NUMBERS: u64 = i32::MAX as u64;
/// How long HAProxy may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most of its words that are read.
const MOST_SAID: u64 = 1 << 20;

/// How many connections, and how many pipes for their handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    maxconn: u64,
    maxpipes: u64,
}

impl Numbers {
    /// How many descriptors HAProxy reserves for them.
    fn descriptors(self) -> u64 {
        self.maxconn.saturating_add(self.maxpipes).saturating_mul(2)
    }
}

/// What brings HAProxy its lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// What is in [`GLOBAL`], if it is to be there.
    pub text: Option<String>,
    /// What is in [`DROP_IN`], if it is to be there.
    pub drop_in: Option<String>,
    /// What remains for the administrator.
    pub also: Vec<String>,
    /// What the administrator may want to know.
    pub notes: Vec<String>,
    /// Whether what is there is to stay, because nothing could be tried.
    pub is_unknown: bool,
}

/// How HAProxy comes to read [`GLOBAL`].
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// By a drop-in with these options.
    DropIn(String),
    /// By what the administrator has written already.
    Passed,
    /// By a step of the administrator.
    Step(String),
    /// Not at all.
    None,
}

/// What is missing in HAProxy's configuration, and how it gets there.
pub fn missing(system: &System<'_>, starter: &Starter) -> Lines {
    let mut global = Global::default();
    for file in haproxy_files(system) {
        let text = text_of(&system.at(&file)).unwrap_or_default();
        global.read(&text);
    }
    let mut lines = global.missing(system, starter);
    if !global.has_suites {
        lines.notes.push(
            "handshakes of TLS 1.3 take a twentieth less with this line in the section `global` of \
             haproxy.cfg: ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256:\
             TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256. Connections are then encrypted \
             by AES-128"
                .to_owned(),
        );
    }
    lines
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

/// How many file descriptors its service may have, as far as there is a use for them; `None` where
/// that is not known.
fn limit(system: &System<'_>) -> Option<u64> {
    limit_in_force(system).map(|limit| limit.min(MOST_DESCRIPTORS))
}

fn limit_in_force(system: &System<'_>) -> Option<u64> {
    let of_unit = |value: &str| match value.rsplit(':').next() {
        Some("infinity") => Some(u64::MAX),
        hard => hard?.parse().ok(),
    };
    let unit = Unit::read(system.root, UNIT);
    let set = unit.and_then(|unit| of_unit(unit.get("LimitNOFILE")?));
    set.or_else(|| {
        if system.runs_systemd() {
            let mut show = program("systemctl");
            show.args(["show", "--property=LimitNOFILE", "--value", UNIT]);
            return of_unit(run(&mut show).ok()?.trim());
        }
        system
            .is_here()
            .then(|| getrlimit(Resource::Nofile).maximum)?
    })
}

impl Global {
    /// Goes on with a file.
    fn read(&mut self, text: &str) {
        fn set(known: &mut Option<u64>, number: Option<u64>, is_unclear: &mut bool) {
            *is_unclear |= number.is_none();
            // HAProxy computes a number in the place of a zero.
            *known = known.or(number.filter(|number| *number > 0));
        }
        let mut is_global = false;
        for words in lines(text) {
            let number = || words.get(1).and_then(|word| word.parse().ok());
            match words[0] {
                "global" => is_global = true,
                word if SECTIONS.contains(&word) => is_global = false,
                // Of several lines the first one holds.
                "maxconn" if is_global => set(&mut self.maxconn, number(), &mut self.is_unclear),
                "maxpipes" if is_global => set(&mut self.maxpipes, number(), &mut self.is_unclear),
                "ulimit-n" if is_global => set(&mut self.ulimit, number(), &mut self.is_unclear),
                "ssl-mode-async" if is_global => self.is_async = true,
                "strict-limits" if is_global => self.has_strictness = true,
                "no" if is_global => self.has_strictness |= words.get(1) == Some(&"strict-limits"),
                "ssl-default-bind-ciphersuites" if is_global => self.has_suites = true,
                "tune.fd.tables" if is_global => {
                    self.has_tables = words.get(1) == Some(&"per-thread-group");
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

    /// What is missing beside this configuration.
    fn missing(&self, system: &System<'_>, starter: &Starter) -> Lines {
        let also = |text: String| Lines {
            also: vec![text],
            ..Lines::default()
        };
        if self.has_tables {
            return also(
                "haproxy.cfg has `tune.fd.tables per-thread-group`, beside which HAProxy 3.5 does \
                 not start with ssl-mode-async: so install leaves that out, and handshakes do not \
                 share batches. To have both, write `tune.fd.tables shared` there and run this again"
                    .to_owned(),
            );
        }
        let limit = limit(system);
        let (numbers, limit) = match limit.filter(|_| !self.is_unclear) {
            None => {
                return also(
                    "haproxy.cfg needs in its section `global`: ssl-mode-async, and maxpipes with \
                     half the number of maxconn. HAProxy then reserves three file descriptors for \
                     each of maxconn; whether its limit allows for them is seen when it starts, \
                     and not by haproxy -c"
                        .to_owned(),
                );
            }
            Some(limit) => {
                let fits = |numbers: Numbers| {
                    // HAProxy takes larger ones for others.
                    let most = match system.is_here() {
                        true => MOST_NUMBERS,
                        false => limit,
                    };
                    match numbers.descriptors() > most {
                        true => Err(format!("{} connections are too many", numbers.maxconn)),
                        false if system.is_here() => self.try_out(system, numbers, limit),
                        false => Ok(()),
                    }
                };
                match self.numbers(limit, fits) {
                    Ok(numbers) => (numbers, limit),
                    Err(why) => return also(without_lines(&why)),
                }
            }
        };
        let tried = match system.is_here() {
            true => "HAProxy was started here with these numbers",
            false => "these numbers were not tried: they fit the limit that HAProxy's unit sets",
        };
        if let Some(own) = self.maxconn.filter(|own| *own != numbers.maxconn) {
            return also(format!(
                "with `maxconn {own}` of haproxy.cfg there are too few file descriptors for paused \
                 handshakes ({limit}), so install leaves ssl-mode-async out. Raise LimitNOFILE= of \
                 its unit, or ulimit -n, or write `maxconn {}` there; then run this again ({tried})",
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
        let Some(text) = self.text(numbers) else {
            return found;
        };
        if system.is_here()
            && let Err(why) = check(system, &text)
        {
            let Err(why) = check(system, EMPTIED) else {
                return also(without_lines(&why));
            };
            return Lines {
                is_unknown: true,
                ..also(format!(
                    "haproxy -c refuses HAProxy's configuration as it is, so nothing can be said of \
                     the lines that have handshakes share batches: {why}. They stay out, or as \
                     they are; run this again when that is mended"
                ))
            };
        }
        match way(system, starter) {
            Way::DropIn(options) => found.drop_in = Some(drop_in(&options)),
            Way::Passed => {}
            Way::Step(step) => found.also.push(step),
            Way::None => {
                let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
                let lines: Vec<&str> = lines.collect();
                return also(format!(
                    "haproxy.cfg needs in its section `global`: {}. A handshake that is paused \
                     keeps one more file descriptor; {tried}",
                    lines.join(", ")
                ));
            }
        }
        found.notes.push(format!(
            "{tried}, and with the rest of its configuration as it is. `haproxy.cfg` goes before \
             them; run this again when its maxconn changes"
        ));
        found.text = Some(text);
        found
    }

    /// A file with the lines that are missing; `None` if none is.
    fn text(&self, numbers: Numbers) -> Option<String> {
        let mut text = format!("{HEADER}global\n");
        let before = text.len();
        // Writing to a String cannot fail.
        if !self.is_async {
            let _ = writeln!(text, "    ssl-mode-async");
        }
        if self.maxconn.is_none() {
            let _ = writeln!(text, "    maxconn {}", numbers.maxconn);
        }
        if self.maxpipes.is_none() {
            let _ = writeln!(text, "    maxpipes {}", numbers.maxpipes);
            if !self.has_strictness {
                let _ = writeln!(text, "    no strict-limits");
            }
        }
        (text.len() > before).then_some(text)
    }

    /// Numbers that fit: with the connections that are configured if those do, or else with as many
    /// as the limit allows.
    fn numbers(
        &self,
        limit: u64,
        fits: impl Fn(Numbers) -> Result<(), String>,
    ) -> Result<Numbers, String> {
        let parts = match self.has_tls_servers {
            true => 1,
            false => 2,
        };
        let with = |maxconn: u64| Numbers {
            maxconn,
            maxpipes: maxconn.div_ceil(parts),
        };
        let limit = self.ulimit.map_or(limit, |own| own.min(limit));
        // Listeners, checks, and some for each thread.
        let threads = available_parallelism().map_or(1, |threads| threads.get() as u64);
        let others = 200 + 4 * threads + (1 + threads) * self.others;
        let most = limit.saturating_sub(others) / (2 + 2 / parts) / 100 * 100;
        let configured = self.maxconn.into_iter();
        let fewer = std::iter::successors(Some(most), |maxconn| Some(maxconn / 2));
        let fewer = fewer.take_while(|maxconn| *maxconn >= FEWEST);
        let mut why = format!("its limit of {limit} file descriptors is too low");
        for numbers in configured.chain(fewer).map(with) {
            match fits(numbers) {
                Ok(()) => return Ok(numbers),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// A configuration that serves nobody, with these numbers where HAProxy has some already.
    fn trial(&self, numbers: Numbers, socket: &Path) -> String {
        let mut text = "global\n".to_owned();
        for (name, number) in [
            ("maxconn", self.maxconn.map(|_| numbers.maxconn)),
            ("maxpipes", self.maxpipes),
            ("ulimit-n", self.ulimit),
        ] {
            if let Some(number) = number {
                let _ = writeln!(text, "    {name} {number}");
            }
        }
        text + &format!(
            "defaults\n    mode http\n    timeout client 1s\n    timeout connect 1s\n    \
             timeout server 1s\nfrontend trial\n    bind unix@{}\n",
            socket.display()
        )
    }

    /// Starts HAProxy with these numbers and the service's limit, and ends it. The error is what
    /// it says.
    fn try_out(&self, system: &System<'_>, numbers: Numbers, limit: u64) -> Result<(), String> {
        let scratch = Scratch::new("haproxy").map_err(|failure| failure.what)?;
        let at = |name: &str| scratch.path().join(name);
        let failed = |error: io::Error| error.to_string();
        fs::write(at("cfg"), self.trial(numbers, &at("socket"))).map_err(failed)?;
        let text = self.text(numbers).unwrap_or_default();
        fs::write(at("global.cfg"), text).map_err(failed)?;
        let log = File::create(at("log")).map_err(failed)?;
        let mut start = system.program("sh");
        start
            .args([
                "-c",
                "ulimit -n \"$1\" 2> /dev/null; shift; exec \"$@\"",
                "sh",
            ])
            .arg(limit.to_string())
            .args(["haproxy", "-D", "-f"])
            .arg(at("cfg"))
            .arg("-f")
            .arg(at("global.cfg"))
            .arg("-p")
            .arg(at("pid"))
            .env("OPENSSL_CONF", "/dev/null")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        let ended = ends(start.spawn().map_err(failed)?);
        let pid = fs::read_to_string(at("pid")).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let status = ended.map_err(failed)?;
        let said = fs::read_to_string(at("log")).unwrap_or_default();
        // With `no strict-limits` it only warns.
        match said.lines().find(|line| line.contains("FD limit")) {
            Some(line) => Err(line.trim().to_owned()),
            None if status.success() => Ok(()),
            None => Err(alert(&said)),
        }
    }
}

/// That the lines are left out, and why.
fn without_lines(why: &str) -> String {
    format!(
        "HAProxy does not start here with the lines that have handshakes share batches: {why}. So \
         they are left out, and it serves as before; run this again when that is mended"
    )
}

/// Has HAProxy check its configuration with this file behind it. The error is what it says.
fn check(system: &System<'_>, text: &str) -> Result<(), String> {
    let scratch = Scratch::new("haproxy-check").map_err(|failure| failure.what)?;
    let path = scratch.path().join("global.cfg");
    fs::write(&path, text).map_err(|error| error.to_string())?;
    let mut check = system.program("haproxy");
    check.arg("-c");
    for file in haproxy_files(system) {
        check.arg("-f").arg(file);
    }
    check.arg("-f").arg(path);
    let started = start(&mut check, b"", MOST_SAID).map_err(|error| error.to_string())?;
    match started.finish(PATIENCE) {
        Some(ended) if ended.status.success() => Ok(()),
        Some(ended) => Err(alert(&String::from_utf8_lossy(&ended.errors))),
        None => Err("haproxy -c does not end".to_owned()),
    }
}

/// The first alert that HAProxy prints, or the last line where there is none.
fn alert(said: &str) -> String {
    let mut lines = said.lines();
    let first = lines.clone().find(|line| line.contains("[ALERT]"));
    let first = first.or_else(|| lines.next_back());
    first.unwrap_or("it printed nothing").trim().to_owned()
}

/// How HAProxy can come to read the file.
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

/// The same where systemd starts it. What `EnvironmentFile=` sets goes before each drop-in; and
/// what an administrator has set by a drop-in would not be seen to change any more.
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
    // Something may go before the drop-in all the same.
    let with = read(Some(drop_in(&options)));
    match with.and_then(|unit| unit.variable(OPTIONS)) {
        Some(value) if value == options => Way::DropIn(options),
        _ => Way::None,
    }
}

/// How a program ends, in time or because it is killed.
fn ends(mut started: Child) -> io::Result<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = started.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            started.kill()?;
            started.wait()?;
            return Err(io::Error::other("it did not start in time"));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        maxconn: 2000,
        maxpipes: 1000,
    };

    fn read(text: &str) -> Global {
        let mut global = Global::default();
        global.read(text);
        global
    }

    #[test]
    fn only_lines_that_are_missing_are_added_and_they_are_known_again() {
        let lines = |text: &str| {
            let text = read(text).text(NUMBERS)?;
            assert!(is_own(&text), "{text}");
            assert!(!is_own(&(text.clone() + "    user root\n")), "{text}");
            let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
            Some(lines.collect::<Vec<_>>().join(", "))
        };
        let all = "ssl-mode-async, maxconn 2000, maxpipes 1000, no strict-limits";
        assert_eq!(
            lines("global\nfrontend a\n maxconn 9\n").as_deref(),
            Some(all)
        );
        let own = "global\n maxconn 2000\n strict-limits\n";
        assert_eq!(lines(own).as_deref(), Some("ssl-mode-async, maxpipes 1000"));
        let own = "global\n maxconn 2000\n maxpipes 9\n";
        assert_eq!(lines(own).as_deref(), Some("ssl-mode-async"));
        assert_eq!(lines(&format!("{own} ssl-mode-async\n")), None);
        // The first of several holds, and a variable is not known.
        assert_eq!(read("global\n maxconn 5\n maxconn 7\n").maxconn, Some(5));
        assert!(read("global\n maxpipes ${PIPES}\n").is_unclear);
        assert!(is_own(EMPTIED));
        assert!(!is_own("") && !is_own(HEADER) && !is_own(&format!("{HEADER}global\n")));
        assert!(is_own_drop_in(&drop_in(&format!("-S /a {}", passed()))));
        assert!(!is_own_drop_in(&drop_in("-S /a")));
        assert!(!is_own_drop_in(&drop_in(&format!(
            "\"\nUser=root\n {}",
            passed()
        ))));
    }

    #[test]
    fn numbers_fit_the_limit_that_is_in_force() {
        // As HAProxy counts: two for each connection and each pipe.
        let within = |limit: u64| {
            move |numbers: Numbers| match 2 * (numbers.maxconn + numbers.maxpipes) + 100 <= limit {
                true => Ok(()),
                false => Err("Cannot raise FD limit".to_owned()),
            }
        };
        let found = |text: &str, limit: u64, real: u64| {
            let numbers = read(text).numbers(limit, within(real));
            numbers.map(|numbers| (numbers.maxconn, numbers.maxpipes))
        };
        let plain = "global\n maxconn 2000\nfrontend a\n maxconn 9\n";
        assert_eq!(found(plain, 20_000, 20_000), Ok((2000, 1000)));
        // What is configured is too much, or nothing is.
        let (conns, pipes) = found("global\n", 20_000, 20_000).unwrap();
        assert!((6000..6700).contains(&conns) && pipes * 2 == conns);
        let much = "global\n maxconn 7000\n";
        assert_eq!(found(much, 20_000, 20_000), Ok((conns, pipes)));
        assert_eq!(found(much, 20_000, 25_000), Ok((7000, 3500)));
        // Less can be had than was read.
        let (fewer, _) = found("global\n", 20_000, 15_000).unwrap();
        assert!(fewer <= 5000, "{fewer}");
        let own = "global\n ulimit-n 3000\n";
        assert!(found(own, 20_000, 20_000).unwrap().0 < 1000);
        let tls = "global\n maxconn 2000\nbackend b\n server s 1.2.3.4:443 ssl\n";
        assert_eq!(found(tls, 20_000, 20_000), Ok((2000, 2000)));
        assert!(found("global\n", 100, 100).unwrap_err().contains("too low"));
        let all = read("global\n ssl-mode-async\n maxpipes 5\n tune.fd.tables per-thread-group\n");
        assert!(all.is_async && all.has_tables && all.maxpipes == Some(5));
        assert!(!read("global\ndefaults\n ssl-mode-async\n").is_async);
    }
}
