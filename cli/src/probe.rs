//! A configuration in force, asked in a separate process: a module that it loads can crash.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::Args;
use lockstep_common::{Failure, Outcome, out};
use lockstep_conf::Context;
use serde::{Deserialize, Serialize};

use crate::command::this_program_loading;
use crate::words::json;

/// The name of the command that does it; it is not for users.
pub const COMMAND: &str = "probe-configuration";

/// What is to know of a configuration that was loaded.
#[derive(Serialize, Deserialize)]
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
#[derive(Serialize, Deserialize)]
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
    // A module may print something, too.
    let said = String::from_utf8_lossy(&output.stdout);
    let document = said.lines().last().unwrap_or_default();
    serde_json::from_str(document).map_err(|error| Failure::new(error.to_string()))
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
    out!("{}", json(&probe)?);
    Ok(ExitCode::SUCCESS)
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
