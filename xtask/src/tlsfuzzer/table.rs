//! The table of set-ups: `rig/tlsfuzzer/setups.txt`, which says how it is read.

use crate::command::{Failure, Outcome, succeeds};

const TEXT: &str = include_str!("../../../rig/tlsfuzzer/setups.txt");

/// How many conversations of a script run at a time, if the table does not say.
const MOST: &str = "60";

/// The program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    OpenSsl,
    HaProxy,
    Nginx,
}

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        match name {
            "openssl" => Some(Kind::OpenSsl),
            "haproxy" => Some(Kind::HaProxy),
            "nginx" => Some(Kind::Nginx),
            _ => None,
        }
    }

    /// How many scripts it serves at the same time: `s_server` takes one connection at a time.
    pub fn together(self) -> usize {
        match self {
            Kind::OpenSsl => 1,
            Kind::HaProxy | Kind::Nginx => 3,
        }
    }

    /// Its name, if it is not installed.
    pub fn missing(self) -> Option<&'static str> {
        let (program, version) = match self {
            Kind::OpenSsl => ("openssl", "version"),
            Kind::HaProxy => ("haproxy", "-v"),
            Kind::Nginx => ("nginx", "-v"),
        };
        (!succeeds(program, &[version])).then_some(program)
    }
}

/// A server, and what runs against it.
#[derive(Debug)]
pub struct Setup {
    pub name: String,
    pub kind: Kind,
    pub keys: Vec<String>,
    pub options: Vec<String>,
    /// The module's, as `name=value`.
    pub settings: Vec<String>,
    /// What lanes must have computed in the end.
    pub lanes: Vec<String>,
    /// The groups that the module adds, if the scripts are about those: then OpenSSL alone is no
    /// measure, and no conversation may fail.
    pub adds: Vec<String>,
    pub runs: Vec<Run>,
}

impl Setup {
    fn named(name: &str) -> Setup {
        Setup {
            name: name.to_owned(),
            kind: Kind::OpenSsl,
            keys: Vec::new(),
            options: Vec::new(),
            settings: Vec::new(),
            lanes: Vec::new(),
            adds: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// The run of this line, or the first of this script.
    pub fn first(&self, script: &str) -> Outcome<Run> {
        let by_line = self.runs.iter().find(|run| run.line() == script);
        let found = by_line.or_else(|| self.runs.iter().find(|run| run.script == script));
        found
            .cloned()
            .ok_or_else(|| Failure::new(format!("set-up `{}` does not run {script}", self.name)))
    }
}

/// A script and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub script: String,
    arguments: Vec<String>,
}

impl Run {
    /// The line of the table.
    pub fn line(&self) -> String {
        [&self.script]
            .into_iter()
            .chain(&self.arguments)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// A name for a file about this run.
    pub fn file_name(&self, setup: &str) -> String {
        let line = format!("{setup}-{}", self.line());
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        line.chars().map(plain).take(120).collect()
    }

    /// How many conversations at most; `None` for a script that takes no `-n`.
    pub fn most(&self) -> Option<&str> {
        let mut words = self.arguments.iter().skip_while(|word| *word != "-n");
        match words.nth(1).map(String::as_str) {
            None => Some(MOST),
            Some("no") => None,
            Some(most) => Some(most),
        }
    }

    /// The other arguments.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let at = self.arguments.iter().position(|word| word == "-n");
        let of_most = move |index: &usize| at.is_some_and(|at| *index == at || *index == at + 1);
        let words = self.arguments.iter().enumerate();
        words
            .filter(move |(index, _)| !of_most(index))
            .map(|(_, word)| word.as_str())
    }
}

/// The set-ups of the repository.
pub fn read() -> Outcome<Vec<Setup>> {
    parse(TEXT)
}

fn parse(text: &str) -> Outcome<Vec<Setup>> {
    let mut lists: Vec<(String, Vec<Run>)> = Vec::new();
    let mut setups: Vec<Setup> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bad = || {
            Failure::new(format!(
                "rig/tlsfuzzer/setups.txt, line {}: cannot read {line:?}",
                number + 1
            ))
        };
        let mut words = line.split_whitespace().map(str::to_owned);
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let mut rest: Vec<String> = words.collect();
        let runs: Vec<Run> = match (first.as_str(), rest.as_slice()) {
            ("list", [name]) if setups.is_empty() => {
                lists.push((name.clone(), Vec::new()));
                continue;
            }
            ("setup", [name]) => {
                setups.push(Setup::named(name));
                continue;
            }
            ("with", [name]) => {
                let all = lists.iter().find(|(list, _)| list == name);
                all.map(|(_, runs)| runs.clone()).ok_or_else(bad)?
            }
            (script, _) if script.starts_with("test-") => vec![Run {
                script: first,
                arguments: rest,
            }],
            (word, [_, ..]) => {
                let setup = setups.last_mut().ok_or_else(bad)?;
                match word {
                    "server" => {
                        setup.kind = Kind::named(&rest.remove(0)).ok_or_else(bad)?;
                        setup.keys = rest;
                    }
                    "options" => setup.options = rest,
                    "settings" => setup.settings = rest,
                    "lanes" => setup.lanes = rest,
                    "adds" => setup.adds = rest,
                    _ => return Err(bad()),
                }
                continue;
            }
            _ => return Err(bad()),
        };
        // They belong to the set-up that was begun, or to a list if there is none yet.
        match setups.last_mut() {
            Some(setup) => setup.runs.extend(runs),
            None => lists.last_mut().ok_or_else(bad)?.1.extend(runs),
        }
    }
    Ok(setups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_runs() {
        let text = "list a\ntest-x.py -n 5 -d\n# text\nlist b\nwith a\ntest-y.py\n\nsetup s\n\
                    server nginx p256 p384\nlanes p256-sign\nadds x\nwith b\ntest-z.py -n no {p256}\n";
        let setups = parse(text).unwrap();
        let [setup] = &setups[..] else {
            panic!("{setups:?}");
        };
        assert_eq!(setup.keys, ["p256", "p384"]);
        assert_eq!(setup.lanes, ["p256-sign"]);
        assert_eq!(setup.adds, ["x"]);
        let lines: Vec<String> = setup.runs.iter().map(Run::line).collect();
        let all = ["test-x.py -n 5 -d", "test-y.py", "test-z.py -n no {p256}"];
        assert_eq!(lines, all);
        let most: Vec<_> = setup.runs.iter().map(Run::most).collect();
        assert_eq!(most, [Some("5"), Some(MOST), None]);
        assert_eq!(setup.runs[0].words().collect::<Vec<_>>(), ["-d"]);
        assert_eq!(setup.runs[2].words().collect::<Vec<_>>(), ["{p256}"]);
    }

    #[test]
    fn mistakes_are_noticed() {
        for text in [
            "with nothing",
            "test-x.py",
            "setup s\nserver iis p256",
            "setup s\nnonsense of it",
            "setup s\nlist late",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_setup_has_runs_keys_and_lanes() {
        let setups = read().unwrap();
        for (index, setup) in setups.iter().enumerate() {
            let name = &setup.name;
            assert!(!setup.runs.is_empty() && !setup.keys.is_empty(), "{name}");
            assert!(!setup.lanes.is_empty(), "{name}");
            assert!(setups[index + 1..].iter().all(|other| other.name != *name));
            for (index, run) in setup.runs.iter().enumerate() {
                assert!(!setup.runs[index + 1..].contains(run), "{name}: {run:?}");
            }
        }
    }
}
