//! Whether the module loads with a configuration that a server is to have.

use std::fs;
use std::path::Path;

use lockstep_common::{Configuration, Failure, Scratch};
use lockstep_conf::File;
use lockstep_engine::Config;

use crate::doctor::Trial;

/// The names that libcrypto itself takes in a provider's section (config(5)).
const OPENSSLS: [&str; 4] = ["identity", "soft_load", "module", "activate"];

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
        true => Trial(&configuration).loads().map_err(|failure| {
            let remedy = failure.remedy.unwrap_or_default();
            refused(shown, &its_name(failure.what)).remedy(its_name(remedy))
        }),
    }
}

/// Whether the module takes the settings in a configuration that is spoken of as `shown`.
pub fn settings_accepted(shown: &str, configuration: &Configuration) -> Result<(), Failure> {
    match refusal(configuration) {
        None => Ok(()),
        Some(error) => {
            let remedy = format!("correct {shown}, then run this again");
            Err(refused(shown, &error).remedy(remedy))
        }
    }
}

fn refused(shown: &str, why: &str) -> Failure {
    Failure::new(format!(
        "the module does not load with {shown}: {why}; nothing was done"
    ))
}

/// Which setting the module refuses, if any.
fn refusal(configuration: &Configuration) -> Option<String> {
    let section = configuration.provider()?.section;
    let file = File::read(configuration.path()).ok()?;
    let lines = file.section(&section)?.iter();
    let is_setting = |name: &str| {
        let name = name.split_once('.').map_or(name, |(_, name)| name);
        !OPENSSLS.contains(&name)
    };
    let settings = lines.filter(|line| is_setting(&line.name));
    let pairs = settings.map(|line| (line.name.clone(), line.value.clone()));
    let error = Config::from_pairs(pairs).err()?.to_string();
    Some(error.trim_start_matches("lockstep: ").to_owned())
}
