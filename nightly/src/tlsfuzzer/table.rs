//! The table of servers and scripts, `rig/tlsfuzzer/setups.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use xtask::command::{Failure, Outcome};

/// `setups.json`. Words in braces are put in: the port, the keys of a set-up, and files of a key,
/// as in `{p256.crt}`.
#[derive(Deserialize)]
pub struct Table {
    /// How `openssl req` makes each key.
    pub keys: BTreeMap<String, String>,
    pub servers: BTreeMap<String, Kind>,
    pub lists: BTreeMap<String, List>,
    pub setups: Vec<Setup>,
}

/// A kind of server.
#[derive(Deserialize)]
pub struct Kind {
    pub command: String,
    /// The file of its configuration beside the table, if it has one.
    pub configuration: Option<String>,
    /// How it has its first key and certificate, and others: `KEY` stands for the key's name.
    pub keys: Vec<String>,
    /// How many scripts it serves at the same time.
    pub together: usize,
}

/// Runs that several set-ups share, with the runs of other lists before them.
#[derive(Deserialize)]
pub struct List {
    #[serde(default)]
    pub with: Vec<String>,
    /// Scripts with their arguments, in which `~` stands for a space. A script holds at most 60 of
    /// its conversations, which a seed chooses. `-n NUMBER` changes that, and `-n no` is for
    /// scripts that do not know this option.
    #[serde(default)]
    pub runs: Vec<String>,
}

/// A server, and the runs against it.
#[derive(Deserialize)]
pub struct Setup {
    pub name: String,
    pub server: String,
    pub keys: Vec<String>,
    #[serde(default)]
    pub options: String,
    /// Of the module, as the environment has them.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The operations that lanes must have computed when all runs are through.
    pub lanes: Vec<String>,
    /// Options of the server with the module alone. The scripts are about these: OpenSSL alone is
    /// no measure then, and no conversation may fail.
    #[serde(default)]
    pub adds: String,
    #[serde(flatten)]
    pub list: List,
}

impl Table {
    pub fn read() -> Outcome<Table> {
        serde_json::from_str(include_str!("../../../rig/tlsfuzzer/setups.json"))
            .map_err(|error| Failure::new(format!("rig/tlsfuzzer/setups.json: {error}")))
    }

    pub fn setup(&self, name: &str) -> Outcome<&Setup> {
        let found = self.setups.iter().find(|setup| setup.name == name);
        found.ok_or_else(|| Failure::new(format!("there is no set-up `{name}`")))
    }

    pub fn kind(&self, setup: &Setup) -> Outcome<&Kind> {
        let kind = self.servers.get(&setup.server);
        kind.ok_or_else(|| Failure::new(format!("there is no server `{}`", setup.server)))
    }

    /// All runs of a set-up.
    pub fn runs(&self, setup: &Setup) -> Outcome<Vec<String>> {
        self.runs_of(&setup.list)
    }

    fn runs_of(&self, list: &List) -> Outcome<Vec<String>> {
        let mut runs = Vec::new();
        for name in &list.with {
            let other = self.lists.get(name);
            let other = other.ok_or_else(|| Failure::new(format!("there is no list `{name}`")))?;
            runs.extend(self.runs_of(other)?);
        }
        runs.extend(list.runs.iter().cloned());
        Ok(runs)
    }

    /// The first run of a script, without arguments where there is such a one.
    pub fn first(&self, setup: &Setup, script: &str) -> Outcome<String> {
        let mut runs = self.runs(setup)?;
        runs.sort_by_key(|run| run != script);
        let found = runs
            .into_iter()
            .find(|run| run.split(' ').next() == Some(script));
        found.ok_or_else(|| Failure::new(format!("set-up `{}` does not run {script}", setup.name)))
    }
}

/// The words of a run: the script, its arguments, and how many conversations it may hold.
pub fn words(run: &str) -> Vec<String> {
    let mut words: Vec<String> = run.split(' ').map(|word| word.replace('~', " ")).collect();
    match words.iter().position(|word| word == "-n") {
        None => words.extend(["-n".to_owned(), "60".to_owned()]),
        Some(at) if words[at + 1] == "no" => drop(words.drain(at..at + 2)),
        Some(_) => {}
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_says_how_many_conversations_it_may_hold() {
        assert_eq!(words("test-x.py -d"), ["test-x.py", "-d", "-n", "60"]);
        assert_eq!(
            words("test-x.py -n 5 -e a~b"),
            ["test-x.py", "-n", "5", "-e", "a b"]
        );
        assert_eq!(words("test-x.py -n no -d"), ["test-x.py", "-d"]);
    }

    #[test]
    fn each_setup_has_runs_keys_and_lanes() {
        let table = Table::read().unwrap();
        for (index, setup) in table.setups.iter().enumerate() {
            let (name, runs) = (&setup.name, table.runs(setup).unwrap());
            assert!(!runs.is_empty() && !setup.lanes.is_empty(), "{name}");
            assert!(
                !setup.keys.is_empty() && table.kind(setup).is_ok(),
                "{name}"
            );
            assert!(
                setup.keys.iter().all(|key| table.keys.contains_key(key)),
                "{name}"
            );
            let mut others = table.setups[index + 1..].iter();
            assert!(others.all(|other| other.name != *name), "{name}");
            for (index, run) in runs.iter().enumerate() {
                assert!(!runs[index + 1..].contains(run), "{name}: {run}");
            }
        }
    }
}
