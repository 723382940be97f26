//! Settings of the module that stand in another section than the module's, where nothing reads
//! them.

use std::collections::BTreeSet;
use std::fs;

use lockstep_common::Configuration;
use lockstep_conf::File;
use lockstep_engine::Setting;

use super::finding::{Named, warning};

/// What is misplaced in a configuration, if anything is.
pub fn misplaced(configuration: &Configuration) -> Option<Named> {
    let own = configuration.provider()?.section;
    let path = configuration.path();
    let file = File::read(path).ok()?;
    let text = fs::read_to_string(path).ok()?;
    let sections = sections(&text, configuration);
    let found = found(&file, &own, &sections);
    let shown: Vec<String> = found
        .iter()
        .map(|(name, section)| format!("{name} in [{section}]"))
        .collect();
    (!found.is_empty()).then(|| {
        let what = format!(
            "{} has settings of the module in other sections than the module's, [{own}], where \
             nothing reads them: {}",
            path.display(),
            shown.join(", ")
        );
        let remedy = format!(
            "write them below a line [{own}]; lockstep install --server NAME does so with those \
             that stand at the end of the file that it has made"
        );
        warning("misplaced", what, remedy)
    })
}

/// The sections that a file itself opens, but for those of other providers: they have settings of
/// their own.
fn sections(text: &str, configuration: &Configuration) -> BTreeSet<String> {
    let of_others: Vec<String> = configuration
        .effective
        .providers()
        .into_iter()
        .map(|provider| provider.section)
        .collect();
    let headers = text.lines().filter_map(|line| {
        let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
        Some(name.trim().to_owned())
    });
    let all = headers.chain(["default".to_owned()]);
    all.filter(|name| !of_others.contains(name)).collect()
}

/// The settings in these sections, each with its section.
fn found<'a>(
    file: &File,
    own: &str,
    sections: &'a BTreeSet<String>,
) -> Vec<(&'static str, &'a str)> {
    let others = sections.iter().filter(|section| *section != own);
    let settings = others.flat_map(|section| {
        let lines = file.section(section).unwrap_or_default();
        let is_there = |setting: &&Setting| lines.iter().any(|line| line.name == setting.name);
        let there = Setting::ALL.iter().filter(is_there);
        there.map(|setting| (setting.name, section.as_str()))
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_in_other_sections_are_named() {
        let place = lockstep_testkit::TempDir::new("misplaced");
        let path = place.join("openssl.cnf");
        let what = |text: &str| {
            let start = "openssl_conf = i\n[i]\nproviders = p\n[p]\nlockstep = l\nx = other\n\
                         [other]\nkeys = 1\n[l]\nmodule = /lockstep.so\nactivate = 1\n";
            fs::write(&path, format!("{start}{text}")).unwrap();
            let named = misplaced(&Configuration::at(&path, true).unwrap());
            named.map(|(_, (_, what, _))| what)
        };
        assert_eq!(what("backend = none\n"), None);
        assert_eq!(what("[t]\nGroups = P-256\n[ l ]\nslots = 2\n"), None);
        let found = what("[ t ]\nGroups = P-256\nbackend = none\n# keys\nslots=2\n").unwrap();
        assert!(found.ends_with(": backend in [t], slots in [t]"), "{found}");
        assert!(found.contains("[l]"), "{found}");
    }
}
