//! A configuration that this program has made, compared with the one that it was made from.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::{Configuration, Failure};

use super::finding::{Named, Verdict, good, warning};
use crate::configuration::{configuration, system_configuration};
use crate::generated::Made;
use crate::trial::lost;

/// Whether all stays in force that a configuration was made from; `None` if this program has not
/// made it.
pub fn kept(current: &Configuration) -> Option<Named> {
    let made = made(current)?;
    let compared = origin(&made).and_then(|origin| {
        let lost = lost(&current.effective, &origin, true)?;
        let origin = origin.display();
        Ok(match lost.is_empty() {
            true => {
                let what = format!(
                    "all that {origin} has in force stays in force: providers, properties, random \
                     number generators, policy for TLS"
                );
                good("kept", what)
            }
            false => {
                let what = format!("these parts of {origin} are lost: {}", lost.join("; "));
                warning("kept", what, anew())
            }
        })
    });
    Some(compared.unwrap_or_else(|failure| ("kept", (Verdict::Note, failure.what, failure.remedy))))
}

/// What is wrong with a configuration that would be another one if it were made now.
pub fn outdated(current: &Configuration) -> Option<Named> {
    let made = made(current).filter(|made| made.is_intact)?;
    let origin = origin(&made).ok()?;
    let from = origin.exists().then_some(origin.as_path());
    // Any module will do.
    let module = Path::new("/lockstep.so");
    let (what, remedy) = match configuration(module, from, Path::new("/")) {
        Ok(now) if made.is_like(&now) => return None,
        Ok(_) => (
            format!(
                "{} differs from the file that this version of lockstep makes of {origin}: either \
                 {origin} has changed since, or another version made the file",
                current.path().display(),
                origin = origin.display()
            ),
            Some(anew()),
        ),
        Err(failure) => (failure.what, failure.remedy),
    };
    Some(("outdated", (Verdict::Warning, what, remedy)))
}

fn anew() -> String {
    "make it anew on this machine: lockstep install --server NAME, or lockstep configuration"
        .to_owned()
}

fn made(configuration: &Configuration) -> Option<Made> {
    Made::parse(&fs::read_to_string(configuration.path()).ok()?)
}

/// The configuration that it was made from. One that was made elsewhere may name a file that this
/// host does not have: then what holds here is the system's own.
fn origin(made: &Made) -> Result<PathBuf, Failure> {
    match made.origin.exists() {
        true => Ok(made.origin.clone()),
        false => system_configuration(),
    }
}
