//! A configuration in force, asked in a separate process: a module that it loads can crash.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::Args;
use lockstep_common::{Failure, Outcome, out};
use lockstep_conf::Context;

use crate::command::this_program_loading;

/// The name of the command that does it; it is not for users.
pub const COMMAND: &str = "probe-configuration";

/// What is to know of a configuration that was loaded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Why not all of it was loaded, the first cause first.
    pub errors: Vec<String>,
    /// Whether OpenSSL takes algorithms from FIPS providers only.
    pub fips: bool,
    /// Operations that the provider leaves to the default provider, each with the reason; `None` if
    /// it is not active, or does not report them.
    pub unaccelerated: Option<Vec<Unaccelerated>>,
    /// The version that the provider reports, if it is active.
    pub version: Option<String>,
    /// The providers that are active, of those that the configuration activates.
    pub active: Vec<String>,
}

/// An operation that lockstep has and does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unaccelerated {
    pub operation: String,
    pub reason: String,
}

/// What is asked about a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum About<'a> {
    Nobody,
    /// What this provider reports, if it is active, and which of these are.
    Provider(&'a str, &'a [String]),
    /// Why this provider cannot be activated, which is tried then.
    Activation(&'a str),
}

/// Loads a configuration in a child process and asks it.
pub fn probe(path: &Path, about: About<'_>) -> Result<Probe, Failure> {
    let (question, others): (&[&str], &[String]) = match about {
        About::Nobody => (&[], &[]),
        About::Provider(name, others) => (&["provider", name], others),
        About::Activation(name) => (&["activation", name], &[]),
    };
    // The module reads the file of its settings again, by the environment.
    let output = this_program_loading(path)?
        .arg(COMMAND)
        // A name of a provider may begin with a hyphen.
        .arg("--")
        .arg(path)
        .args(question)
        .args(others)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot start this program again: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new(format!(
            "a program that loads {} crashes or exits ({})",
            path.display(),
            output.status
        ))
        .remedy("stop using this configuration, and report this"));
    }
    Ok(Probe::from_text(&String::from_utf8_lossy(&output.stdout)))
}

/// What the parent asks the child.
#[derive(Args)]
pub struct Options {
    path: PathBuf,
    question: Option<String>,
    /// The provider that the question is about.
    #[arg(default_value = "")]
    name: String,
    /// Providers that may be active.
    others: Vec<String>,
}

/// Runs in the child.
pub fn run(options: &Options) -> Outcome {
    let Options {
        path,
        question,
        name,
        others,
    } = options;
    let (context, error) = Context::load(path).map_err(|error| Failure::new(error.to_string()))?;
    let error = error.or_else(|| match question.as_deref() {
        Some("activation") => context.activate(name).err(),
        _ => None,
    });
    let text = |parameter| match question.as_deref() {
        Some("provider") => context.provider_text(name, parameter),
        _ => None,
    };
    let reported = text("lockstep-unaccelerated");
    // A provider that the configuration activates may have failed to start.
    let active = others.iter().filter(|name| context.has_active(name));
    let probe = Probe {
        errors: error.map(|error| error.messages).unwrap_or_default(),
        fips: context.is_fips_enabled(),
        unaccelerated: reported.map(|text| text.lines().map(Unaccelerated::new).collect()),
        version: text("version"),
        active: active.cloned().collect(),
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
        if let Some(version) = &self.version {
            text.push_str(&format!("version {}\n", version.replace('\n', " ")));
        }
        for name in &self.active {
            text.push_str(&format!("active {}\n", name.replace('\n', " ")));
        }
        if let Some(operations) = &self.unaccelerated {
            text.push_str("reported all\n");
            for Unaccelerated { operation, reason } in operations {
                text.push_str(&format!("unaccelerated {operation}: {reason}\n"));
            }
        }
        text
    }

    fn from_text(text: &str) -> Probe {
        let mut probe = Probe::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("fips", value)) => probe.fips = value == "true",
                Some(("error", error)) => probe.errors.push(error.to_owned()),
                Some(("version", version)) => probe.version = Some(version.to_owned()),
                Some(("active", name)) => probe.active.push(name.to_owned()),
                Some(("reported", _)) => probe.unaccelerated = Some(Vec::new()),
                Some(("unaccelerated", line)) => {
                    let operations = probe.unaccelerated.get_or_insert_default();
                    operations.push(Unaccelerated::new(line));
                }
                _ => {}
            }
        }
        probe
    }
}

impl Unaccelerated {
    /// From a line of the provider's parameter: the operation, a colon, and the reason.
    fn new(line: &str) -> Unaccelerated {
        let (operation, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
        Unaccelerated {
            operation: operation.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_says_is_understood() {
        let mut probe = Probe {
            errors: vec!["one: a b".to_owned(), "two".to_owned()],
            fips: true,
            unaccelerated: None,
            version: Some("1 b".to_owned()),
            active: vec!["default".to_owned(), "a b".to_owned()],
        };
        assert_eq!(Probe::from_text(&probe.to_text()), probe);
        probe.unaccelerated = Some(Vec::new());
        assert_eq!(Probe::from_text(&probe.to_text()), probe);
        let lines = [
            "Ed25519: function 99: not known",
            "all operations: none",
            "odd",
        ];
        probe.unaccelerated = Some(lines.map(Unaccelerated::new).to_vec());
        assert_eq!(Probe::from_text(&probe.to_text()), probe);
    }
}
