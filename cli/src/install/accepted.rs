//! Whether the module loads with a configuration that a server is to have.

use std::fs;
use std::path::Path;

use lockstep_common::{Configuration, Failure, Scratch};

use crate::doctor::Trial;
use crate::mistakes::mistakes;

/// Whether the module takes the settings in a configuration that `install` makes, and loads with it
/// where that can be tried, which is where the root is that of this program. `text` is what the
/// file is going to hold; without it the file stays as it is.
pub fn accepted(shown: &str, path: &Path, text: Option<&str>, root: &Path) -> Result<(), Failure> {
    let there = || {
        let text = fs::read_to_string(path);
        text.map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
    };
    let text = text.map_or_else(there, |text| Ok(text.to_owned()))?;
    let is_here = root == Path::new("/");
    let text = match is_here {
        true => text,
        // The files that it includes are under the root.
        false => text.replace(
            "\n.include = /",
            &format!("\n.include = {}/", root.display()),
        ),
    };
    let scratch = Scratch::new("install-conf")?;
    let path = scratch.path().join("openssl.cnf");
    fs::write(&path, text)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    let configuration = Configuration::at(&path, false)?;
    let its_name = |text: String| text.replace(&path.display().to_string(), shown);
    settings_accepted(shown, &configuration)?;
    match is_here {
        false => Ok(()),
        true => {
            // A module that is cut off would end the program that tries it, too.
            let loads = configuration.module();
            let loads = loads.and_then(|_| Trial(&configuration).loads());
            loads.map_err(|failure| {
                let remedy = failure.remedy.unwrap_or_default();
                refused(shown, &its_name(failure.what)).remedy(its_name(remedy))
            })
        }
    }
}

/// Whether the module takes the settings in a configuration that is spoken of as `shown`.
pub fn settings_accepted(shown: &str, configuration: &Configuration) -> Result<(), Failure> {
    let mistakes = mistakes(configuration);
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "settings would have no effect in {shown}: {mistakes}; nothing was done"
        ))
        .remedy(format!("correct {shown}, then run this again"))),
    }
}

fn refused(shown: &str, why: &str) -> Failure {
    Failure::new(format!(
        "the module does not load with {shown}: {why}; nothing was done"
    ))
}
