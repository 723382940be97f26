//! Mistakes in the settings of a configuration file. The module does not see all of them: libcrypto
//! does not tell it which names the file has.

use lockstep_common::Configuration;
use lockstep_engine::{Config, Mistakes, Setting};

/// The names that libcrypto itself takes in a provider's section (config(5)).
const OPENSSLS: [&str; 4] = ["identity", "soft_load", "module", "activate"];

/// Finds settings in the module's section of a configuration that have no effect, with the reasons.
pub fn mistakes(configuration: &Configuration) -> Mistakes {
    Config::from_pairs(pairs(configuration)).mistakes
}

/// Says which settings of earlier versions the module's section of a configuration has. They are no
/// mistakes: an upgrade must not make a file invalid.
pub fn gone(configuration: &Configuration) -> Option<String> {
    let names = pairs(configuration).into_iter().map(|(name, _)| name);
    let are_gone = are_gone(names.filter(|name| Setting::is_gone(name)))?;
    Some(format!(
        "{} sets {are_gone}",
        configuration.path().display()
    ))
}

/// Says of settings of earlier versions that they are gone.
pub fn are_gone(names: impl Iterator<Item = String>) -> Option<String> {
    let names = Vec::from_iter(names);
    match &names[..] {
        [] => None,
        [name] => Some(format!("{name}, a setting that is gone and has no effect")),
        names => Some(format!(
            "{}, settings that are gone and have no effect",
            names.join(" and ")
        )),
    }
}

/// The names and values of the settings in the module's section.
fn pairs(configuration: &Configuration) -> Vec<(String, String)> {
    let section = configuration.provider().map(|found| found.section);
    let file = configuration.effective.file();
    let lines = section.and_then(|section| file.section(&section));
    let settings = lines.into_iter().flatten();
    let settings = settings.filter(|line| !is_openssls(&line.name));
    settings
        .map(|line| (line.name.clone(), line.value.clone()))
        .collect()
}

/// Whether a name is one of [`OPENSSLS`]. A prefix that ends with a dot only makes a repeated name
/// unique.
fn is_openssls(name: &str) -> bool {
    let name = name.split_once('.').map_or(name, |(_, name)| name);
    OPENSSLS.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_and_values_are_looked_at_but_for_those_of_openssl() {
        let place = lockstep_testkit::TempDir::new("mistakes");
        let path = place.join("openssl.cnf");
        let found = |lines: &str| {
            let start = "openssl_conf = i\n[i]\nproviders = p\n[p]\nlockstep = l\n[l]\n\
                         module = /lockstep.so\n";
            fs::write(&path, format!("{start}{lines}")).unwrap();
            mistakes(&Configuration::at(&path, true).unwrap()).to_string()
        };
        assert_eq!(found("activate = 1\n1.soft_load = 1\nslots = 2\n"), "");
        assert_eq!(
            found("slot = 2\nslots = many\nlone = lanes\n"),
            "slot is not a setting; is slots meant?; slots is 'many', but must be a number from 1 \
             to 4096"
        );
        assert_eq!(found("gather = often\njobs_lead = no\n"), "");
        let gone = gone(&Configuration::at(&path, true).unwrap()).expect("two");
        let part = "sets gather and jobs_lead, settings that are gone and have no effect";
        assert!(gone.contains(part), "{gone}");
    }
}
