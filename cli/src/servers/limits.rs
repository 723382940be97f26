//! The lines of `haproxy.cfg` that Lockstep needs: async mode, and file descriptors for paused
//! handshakes.
//!
//! HAProxy reserves two descriptors for each of `maxconn`, and two for each of `maxpipes`, by which
//! it is told of the paused ones. Where it may not have as many, `haproxy -c` says nothing, and the
//! start fails. So numbers are tried by a start, of an HAProxy that serves nobody.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use lockstep_common::{Scratch, program};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};

use super::site::{System, haproxy_files, lines};
use crate::command::run;
use crate::unit::Unit;

/// What the configuration says so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Global {
    maxconn: Option<u64>,
    maxpipes: Option<u64>,
    ulimit: Option<u64>,
    is_async: bool,
    /// Tables of descriptors for each group of threads, which HAProxy 3.5 has.
    has_tables: bool,
    /// Whether connections to servers use TLS: their handshakes pause, too.
    has_tls_servers: bool,
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
/// How long HAProxy may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many connections, and how many pipes for their handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    maxconn: u64,
    maxpipes: u64,
}

/// What is missing in HAProxy's configuration, for the administrator; nothing if it has all.
pub fn step(system: &System<'_>) -> Option<String> {
    let mut global = Global::default();
    for file in haproxy_files(system) {
        let text = fs::read_to_string(system.at(&file)).unwrap_or_default();
        global.read(&text);
    }
    let limit = limit(system);
    let found = limit.map(|limit| {
        let fits = |numbers| match system.is_here() {
            true => try_out(system, &global, numbers, limit),
            false => Ok(()),
        };
        global.numbers(limit, fits)
    });
    let mut needs = Vec::new();
    if !global.is_async {
        needs.push("ssl-mode-async".to_owned());
    }
    let said = match found {
        None => {
            needs.push("maxpipes with half the number of maxconn".to_owned());
            "HAProxy then reserves three file descriptors for each of maxconn; whether its limit \
             allows for them is seen when it starts, and not by haproxy -c"
                .to_owned()
        }
        Some(Err(why)) => {
            return Some(format!(
                "haproxy.cfg needs lines in its section `global` for which HAProxy does not start \
                 here: {why}. Until it does, leave them out: without them it serves as before, and \
                 handshakes do not share batches"
            ));
        }
        Some(Ok(numbers)) => {
            if global.maxconn != Some(numbers.maxconn) {
                needs.push(format!("maxconn {}", numbers.maxconn));
            }
            if global.maxpipes.is_none_or(|own| own < numbers.maxpipes) {
                needs.push(format!("maxpipes {}", numbers.maxpipes));
            }
            let tried = match system.is_here() {
                true => "HAProxy was started here with these numbers",
                false => "They were not tried: they fit the limit that its unit sets",
            };
            match (global.maxconn, limit) {
                (Some(own), _) if own == numbers.maxconn => tried.to_owned(),
                (_, limit) => format!(
                    "{tried}. They are what its limit of file descriptors allows ({}): raise \
                     LimitNOFILE= of its unit, or ulimit -n, for more connections",
                    limit.unwrap_or_default()
                ),
            }
        }
    };
    let tables = match global.has_tables {
        true => {
            "; and `tune.fd.tables shared`, because HAProxy 3.5 refuses ssl-mode-async beside \
             per-thread-group"
        }
        false => "",
    };
    (!needs.is_empty() || global.has_tables).then(|| {
        format!(
            "haproxy.cfg needs in its section `global`: {}{tables}. A handshake that is paused \
             keeps one more file descriptor. {said}",
            needs.join(", ")
        )
    })
}

/// How many file descriptors its service may have, as far as there is a use for them; `None` where
/// that is not known.
fn limit(system: &System<'_>) -> Option<u64> {
    limit_in_force(system).map(|limit| limit.min(MOST_DESCRIPTORS))
}

fn limit_in_force(system: &System<'_>) -> Option<u64> {
    let of_unit = |value: &str| value.rsplit(':').next().and_then(|hard| hard.parse().ok());
    let unit = Unit::read(system.root, "haproxy.service");
    let set = unit.and_then(|unit| of_unit(unit.get("LimitNOFILE")?));
    set.or_else(|| {
        if system.runs_systemd() {
            let mut show = program("systemctl");
            show.args([
                "show",
                "--property=LimitNOFILE",
                "--value",
                "haproxy.service",
            ]);
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
        let mut is_global = false;
        for words in lines(text) {
            let number = || words.get(1).and_then(|word| word.parse().ok());
            match words[0] {
                "global" => is_global = true,
                word if SECTIONS.contains(&word) => is_global = false,
                "maxconn" if is_global => self.maxconn = number(),
                "maxpipes" if is_global => self.maxpipes = number(),
                "ulimit-n" if is_global => self.ulimit = number(),
                "ssl-mode-async" if is_global => self.is_async = true,
                "tune.fd.tables" if is_global => {
                    self.has_tables = words.get(1) == Some(&"per-thread-group");
                }
                "server" | "default-server" => self.has_tls_servers |= words.contains(&"ssl"),
                _ => {}
            }
        }
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
        let others = 200 + 4 * threads;
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

    /// A configuration with these numbers that serves nobody.
    fn trial(&self, numbers: Numbers, socket: &Path) -> String {
        let ulimit = self.ulimit.map(|own| format!("    ulimit-n {own}\n"));
        format!(
            "global\n    ssl-mode-async\n    maxconn {}\n    maxpipes {}\n{}\
             defaults\n    mode http\n    timeout client 1s\n    timeout connect 1s\n    \
             timeout server 1s\nfrontend trial\n    bind unix@{}\n",
            numbers.maxconn,
            numbers.maxpipes,
            ulimit.unwrap_or_default(),
            socket.display()
        )
    }
}

/// Starts HAProxy with these numbers and the service's limit, and ends it. The error is what it
/// says.
fn try_out(
    system: &System<'_>,
    global: &Global,
    numbers: Numbers,
    limit: u64,
) -> Result<(), String> {
    let scratch = Scratch::new("haproxy").map_err(|failure| failure.what)?;
    let at = |name: &str| scratch.path().join(name);
    let failed = |error: io::Error| error.to_string();
    fs::write(at("cfg"), global.trial(numbers, &at("socket"))).map_err(failed)?;
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
    // With `no strict-limits` and `ulimit-n` it only warns.
    let is_about_limits = |line: &&str| line.contains("FD limit");
    let alert = |line: &&str| line.contains("[ALERT]");
    let mut all = said.lines().map(str::trim);
    match said.lines().find(is_about_limits) {
        Some(line) => Err(line.trim().to_owned()),
        None if status.success() => Ok(()),
        None => Err(all.find(alert).unwrap_or("it printed nothing").to_owned()),
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

    #[test]
    fn numbers_fit_the_limit_that_is_in_force() {
        let read = |text: &str| {
            let mut global = Global::default();
            global.read(text);
            global
        };
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
