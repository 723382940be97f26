//! A configuration in force, asked in a separate process: a module that it loads can crash.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::Args;
use lockstep_common::{Failure, Outcome, out};
use lockstep_conf::Context;
use serde::{Deserialize, Serialize};

use crate::command::this_program_loading;
use crate::words::json;

/// Name of the hidden command.
pub const COMMAND: &str = "probe-configuration";

/// Facts about a configuration that was loaded.
#[derive(Serialize, Deserialize)]
pub struct Probe {
    /// Reasons why not all of it was loaded, the first cause first.
    pub errors: Vec<String>,
    /// Whether OpenSSL takes algorithms from FIPS providers only.
    pub fips: bool,
    /// Operations that the provider leaves to the default provider, each with the reason; `None` if
    /// it is not active, or does not report them.
    pub unaccelerated: Option<Vec<Unaccelerated>>,
    /// The version that the provider reports, if it is active.
    pub version: Option<String>,
    /// The providers in the question that are active.
    pub active: Vec<String>,
}

/// An operation that lockstep has and does not offer.
#[derive(Serialize, Deserialize)]
pub struct Unaccelerated {
    pub operation: String,
    pub reason: String,
}

/// A question about providers.
#[derive(Serialize, Deserialize)]
pub enum About {
    Nobody,
    /// What does this provider report, if it is active?
    Provider(String),
    /// Which of these are active?
    Active(Vec<String>),
    /// Why can this provider not be activated? The child tries to activate it.
    Activation(String),
}

/// Loads a configuration in a child process and asks it.
pub fn probe(path: &Path, about: &About) -> Result<Probe, Failure> {
    let output = this_program_loading(path)?
        .args([COMMAND, "--", &json(about)?])
        .arg(path)
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

/// The question of the parent to the child.
#[derive(Args)]
pub struct Options {
    /// As JSON.
    about: String,
    path: PathBuf,
}

/// Runs in the child.
pub fn run(options: &Options) -> Outcome {
    let about = serde_json::from_str(&options.about);
    let about = about.map_err(|error| Failure::new(error.to_string()))?;
    let context = Context::load(&options.path);
    let (context, error) = context.map_err(|error| Failure::new(error.to_string()))?;
    let error = error.or_else(|| match &about {
        About::Activation(name) => context.activate(name).err(),
        _ => None,
    });
    let text = |parameter| match &about {
        About::Provider(name) => context.provider_text(name, parameter),
        _ => None,
    };
    let reported = text("lockstep-unaccelerated");
    let others = match &about {
        About::Active(names) => &names[..],
        _ => &[],
    };
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
    /// Parses a line of the provider's parameter: the operation, a colon, and the reason.
    fn new(line: &str) -> Unaccelerated {
        let (operation, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
        Unaccelerated {
            operation: operation.to_owned(),
            reason: reason.to_owned(),
        }
    }
}
