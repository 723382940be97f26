//! A configuration in force, asked in a process of its own: what it loads can crash.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use lockstep_conf::Context;

use crate::{Failure, Outcome};

/// The name of the command that does it; it is not for users.
pub const COMMAND: &str = "probe-configuration";

/// What is to know of a configuration that was loaded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Why not all of it was loaded, the first cause first.
    pub errors: Vec<String>,
    /// Whether OpenSSL takes algorithms from FIPS providers only.
    pub fips: bool,
}

/// Loads a configuration in a child process and asks it. With `activate`, this provider is activated
/// then, which tells why that fails.
pub fn probe(path: &Path, activate: Option<&str>) -> Result<Probe, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::new(error.to_string()))?;
    let output = Command::new(program)
        .arg(COMMAND)
        .arg(path)
        .args(activate)
        // The module reads the file of its settings again.
        .env("OPENSSL_CONF", path)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot start this program again: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new(format!(
            "a program that loads {} ends ({})",
            path.display(),
            output.status
        )));
    }
    Ok(Probe::from_text(&String::from_utf8_lossy(&output.stdout)))
}

/// Runs in the child.
pub fn main(mut arguments: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let path = match arguments.next()? {
        Some(Value(path)) => PathBuf::from(path),
        _ => return Err(Failure::usage("which configuration?")),
    };
    let activate = match arguments.next()? {
        Some(Value(name)) => Some(name.string()?),
        _ => None,
    };
    let (context, error) = Context::load(&path).map_err(|error| Failure::new(error.to_string()))?;
    let error = error.or_else(|| context.activate(&activate?).err());
    let probe = Probe {
        errors: error.map(|error| error.messages).unwrap_or_default(),
        fips: context.is_fips_enabled(),
    };
    out!("{}", probe.to_text());
    Ok(ExitCode::SUCCESS)
}

impl Probe {
    /// A line for each fact, which begins with its name.
    fn to_text(&self) -> String {
        let mut text = format!("fips {}\n", self.fips);
        for error in &self.errors {
            text.push_str(&format!("error {}\n", error.replace('\n', " ")));
        }
        text
    }

    fn from_text(text: &str) -> Probe {
        let mut probe = Probe::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("fips", value)) => probe.fips = value == "true",
                Some(("error", error)) => probe.errors.push(error.to_owned()),
                _ => {}
            }
        }
        probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_says_is_understood() {
        let probe = Probe {
            errors: vec!["one: a b".to_owned(), "two".to_owned()],
            fips: true,
        };
        assert_eq!(Probe::from_text(&probe.to_text()), probe);
    }
}
