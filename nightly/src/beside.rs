//! A program without the module and with it, for [`matrix`](crate::matrix),
//! [`openssl_tests`](crate::openssl_tests) and [`tlsfuzzer`](crate::tlsfuzzer).
//!
//! Each of them gives its results names, so that the results of both sides can be compared one by
//! one. The module's counters must show that lanes computed. And a run must find a planted defect
//! before its own results count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use xtask::command::{Failure, Outcome, cannot_run, ending_with_us, on};
use xtask::dist::Dist;

use crate::cpu;

/// Results by name.
pub type Results = BTreeMap<String, String>;

/// Collects results. A name that stands twice is a difference if it does so on one side only.
pub fn results(lines: impl Iterator<Item = (String, String)>) -> Results {
    let mut results = Results::new();
    for (name, result) in lines {
        results
            .entry(name)
            .and_modify(|there| *there = format!("{there}; {result}"))
            .or_insert(result);
    }
    results
}

/// The differences in words, the permitted ones excepted: by the name, the result without the
/// module, and the result with it.
pub fn differences(
    stock: &Results,
    with: &Results,
    may_be: impl Fn(&str, Option<&str>, Option<&str>) -> bool,
) -> Vec<String> {
    let shown = |result: Option<&str>| match result {
        None => "nothing".to_owned(),
        Some("") => "empty".to_owned(),
        Some(result) => result.to_owned(),
    };
    let names: BTreeSet<&String> = stock.keys().chain(with.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let [stock, with] = [stock, with].map(|side| side.get(name).map(String::as_str));
        if stock != with && !may_be(name, stock, with) {
            let (stock, with) = (shown(stock), shown(with));
            found.push(format!("{name}: {with}, without the module {stock}"));
        }
    }
    found
}

/// The module in a program, which counts all its operations.
pub struct Module<'a> {
    pub backend: Option<&'a str>,
    pub counters: &'a Path,
    /// A defect that a module with fault points plants.
    pub planted: Option<&'a str>,
}

impl Module<'_> {
    /// Gives a program the settings of the module. Requests come one at a time, and lanes take them
    /// all the same.
    pub fn set(&self, command: &mut Command) {
        command
            .env("LOCKSTEP_LONE", "lanes")
            .env("LOCKSTEP_STATS_DIR", self.counters)
            .env("LOCKSTEP_STATS_KEEP", "yes");
        for (name, value) in [("BACKEND", self.backend), ("PLANT", self.planted)] {
            command.envs(value.map(|value| (format!("LOCKSTEP_{name}"), value)));
        }
    }
}

/// Frees a command of this system's settings of OpenSSL and of the module.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("LOCKSTEP_") || name.starts_with("OPENSSL_") {
            command.env_remove(name);
        }
    }
}

/// The lanes that this CPU has, the best first.
pub fn backends() -> Vec<&'static str> {
    let mut backends = Vec::new();
    if cpu::has_ifma() {
        backends.extend(["avx512ifma", "avx512ifma256"]);
    }
    backends.extend(cpu::has("avx2").then_some("avx2"));
    backends.push("portable");
    backends
}

/// A line for each of these counters that has counted nothing.
pub fn idle<'a>(
    release: &Dist,
    counters: &Path,
    names: impl Iterator<Item = &'a str>,
) -> Outcome<Vec<String>> {
    let mut idle = Vec::new();
    for name in names {
        if release.total(name, counters)? == 0 {
            idle.push(format!("no {name} was counted"));
        }
    }
    Ok(idle)
}

/// Fails unless a comparison finds a planted defect, and nothing without one.
pub fn find_planted(
    defect: &'static str,
    mut compared: impl FnMut(Option<&'static str>) -> Outcome<Vec<String>>,
) -> Outcome {
    let found = compared(None)?;
    if !found.is_empty() {
        let found = found.join("\n");
        return Err(Failure::new(format!(
            "a difference where none is planted:\n{found}"
        )));
    }
    match compared(Some(defect))?.is_empty() {
        false => Ok(()),
        true => Err(Failure::new(format!(
            "the planted defect `{defect}` was not found"
        ))),
    }
}

/// A server in one process in the foreground; ended when dropped.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts a server for this port of 127.0.0.1, and waits until it accepts connections.
    pub fn start(command: Command, port: u16, log: &Path) -> Outcome<Server> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let mut command = ending_with_us(command);
        let errors = File::create(log).map_err(on(log, "create"))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        let child = command
            .spawn()
            .map_err(|error| cannot_run(&command, &error))?;
        let mut server = Server { child, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if server.has_ended() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(log).unwrap_or_default();
                return Err(Failure::new(format!("a server did not start:\n{log}")));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)]) -> Results {
        results(
            lines
                .iter()
                .map(|(name, result)| ((*name).into(), (*result).into())),
        )
    }

    #[test]
    fn each_name_is_compared() {
        let stock = of(&[("a", "ok"), ("b", "ok"), ("b", "ok"), ("c", "")]);
        let with = of(&[("a", "ok"), ("b", "ok"), ("c", "1"), ("d", "ok")]);
        let all = |_: &str, _: Option<&str>, _: Option<&str>| false;
        assert!(differences(&stock, &stock, all).is_empty());
        let found = differences(&stock, &with, all);
        let expected = [
            "b: ok, without the module ok; ok",
            "c: 1, without the module empty",
            "d: ok, without the module nothing",
        ];
        assert_eq!(found, expected);
        let found = differences(&stock, &with, |name, stock, with| {
            name == "d" && stock.is_none() && with == Some("ok")
        });
        assert_eq!(found, expected[..2]);
    }

    #[test]
    fn a_comparison_must_find_what_is_planted_and_nothing_else() {
        let tried = |without: usize, with: usize| {
            find_planted("a defect", |planted| {
                let count = if planted.is_some() { with } else { without };
                Ok(vec!["a difference".to_owned(); count])
            })
        };
        assert!(tried(0, 1).is_ok());
        let error = |without, with| tried(without, with).unwrap_err().to_string();
        assert!(error(0, 0).contains("`a defect` was not found"));
        assert!(error(1, 1).contains("where none is planted:\na difference"));
    }
}
