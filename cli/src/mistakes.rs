//! Mistakes in the settings of a configuration file. The module does not see all of them: libcrypto
//! does not tell it which names the file has.

use lockstep_common::Configuration;
use lockstep_engine::{Config, Mistakes};

/// The names that libcrypto itself takes in a provider's section (config(5)).
const OPENSSLS: [&str; 4] = ["identity", "soft_load", "module", "activate"];

/// Which settings in the module's section of a configuration have no effect, and why.
pub fn mistakes(configuration: &Configuration) -> Mistakes {
    found(configuration).unwrap_or_default()
}

fn found(configuration: &Configuration) -> Option<Mistakes> {
    let section = configuration.provider()?.section;
    let lines = configuration.effective.file().section(&section)?.iter();
    let settings = lines.filter(|line| !is_openssls(&line.name));
    let pairs = settings.map(|line| (line.name.clone(), line.value.clone()));
    Some(Config::from_pairs(pairs).mistakes)
}

/// What stands before a dot serves to repeat a name.
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
    }
}
