//! Comparison of a configuration that this program has made with its original.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::{Configuration, Failure};

use super::finding::{Finding, Verdict, good, warning};
use crate::configuration::{configuration, system_configuration};
use crate::generated::Made;
use crate::trial::lost;

/// Whether everything in the original stays in force; `None` if this program has not made the
/// configuration.
pub fn kept(current: &Configuration) -> Option<Finding> {
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
                warning("kept", what, ANEW)
            }
        })
    });
    Some(compared.unwrap_or_else(|failure| Finding::of("kept", Verdict::Note, failure)))
}

/// Returns a failure if a configuration differs from one that is made now, or if none can be made
/// now. `None` if somebody has changed the configuration.
pub fn outdated(current: &Configuration) -> Option<Failure> {
    let made = made(current).filter(|made| made.is_intact)?;
    let origin = origin(&made).ok()?;
    let from = origin.exists().then_some(origin.as_path());
    // The path of the module is not compared.
    let module = Path::new("/lockstep.so");
    match configuration(module, from, Path::new("/")) {
        Ok(now) if made.is_like(&now) => None,
        Ok(_) => {
            let what = format!(
                "{} differs from the file that this version of lockstep makes of {origin}: either \
                 {origin} has changed since, or another version made the file",
                current.path().display(),
                origin = origin.display()
            );
            Some(Failure::new(what).remedy(ANEW))
        }
        Err(failure) => Some(failure),
    }
}

const ANEW: &str =
    "make it anew on this machine: lockstep install --server NAME, or lockstep configuration";

fn made(configuration: &Configuration) -> Option<Made> {
    Made::parse(&fs::read_to_string(configuration.path()).ok()?)
}

/// Returns the original of a configuration. A configuration that was made elsewhere may name a file
/// that this host does not have. Then the system's own file is the original.
fn origin(made: &Made) -> Result<PathBuf, Failure> {
    match made.origin.exists() {
        true => Ok(made.origin.clone()),
        false => system_configuration(),
    }
}
