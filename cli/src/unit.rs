//! What systemd is told about a service: its unit file with the drop-ins.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where units are, the first ones before the others (systemd.unit(5)).
const PLACES: [&str; 4] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// Settings that give a service other files than an administrator sees.
const HIDING: [&str; 6] = [
    "PrivateTmp",
    "ProtectHome",
    "RootDirectory",
    "RootImage",
    "TemporaryFileSystem",
    "InaccessiblePaths",
];

/// A unit.
#[derive(Debug, Default)]
pub struct Unit {
    pub name: String,
    /// The files that describe it, in the order in which they count.
    pub files: Vec<PathBuf>,
    /// The settings of its section `[Service]`, in order.
    settings: Vec<(String, String)>,
}

impl Unit {
    /// The unit of this name under a root directory; `None` if there is no file about it.
    pub fn read(root: &Path, name: &str) -> Option<Unit> {
        Unit::read_without(root, name, None)
    }

    /// The same, as if this file were not there.
    pub fn read_without(root: &Path, name: &str, without: Option<&Path>) -> Option<Unit> {
        // An instance of a template is described by the template's files.
        let template = name
            .split_once('@')
            .map(|(before, _)| format!("{before}@.service"));
        let names = [Some(name.to_owned()), template];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let places = PLACES.map(|place| root.join(place));
        let named = |name: &String| {
            let mut candidates = places.iter().map(|place| place.join(name));
            candidates.find(|path| path.is_file())
        };
        let mut files: Vec<PathBuf> = names.iter().find_map(named).into_iter().collect();
        let mut drop_ins: BTreeMap<_, PathBuf> = BTreeMap::new();
        for (place, name) in places
            .iter()
            .flat_map(|p| names.iter().map(move |n| (p, n)))
        {
            let directory = fs::read_dir(place.join(format!("{name}.d")));
            for path in directory
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
            {
                if path.extension().is_some_and(|end| end == "conf") {
                    drop_ins
                        .entry(path.file_name().map(ToOwned::to_owned))
                        .or_insert(path);
                }
            }
        }
        files.extend(drop_ins.into_values());
        files.retain(|file| Some(file.as_path()) != without);
        let texts = files
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok());
        let settings = texts.flat_map(|text| service_settings(&text)).collect();
        (!files.is_empty()).then(|| Unit {
            name: name.to_owned(),
            files,
            settings,
        })
    }

    /// The last value of a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut settings = self.settings.iter().rev();
        let (_, value) = settings.find(|(known, _)| known == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// All values of a setting, in order; without those that an empty one has removed.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.settings.iter().filter(|(known, _)| known == name);
        let values: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
        let first = values.iter().rposition(|value| value.is_empty());
        values[first.map_or(0, |at| at + 1)..].to_vec()
    }

    /// A variable that its `Environment=` sets.
    pub fn variable(&self, name: &str) -> Option<String> {
        let mut found = None;
        for (_, value) in self
            .settings
            .iter()
            .filter(|(known, _)| known == "Environment")
        {
            if value.is_empty() {
                found = None;
            }
            let mut assigned = words(value).into_iter().filter_map(|word| {
                let (known, value) = word.split_once('=')?;
                (known == name).then(|| value.to_owned())
            });
            found = assigned.next_back().or(found);
        }
        found
    }

    /// The settings that may hide files from it, as they stand there.
    pub fn hiding(&self) -> Vec<String> {
        let is_on = |value: &&str| !["no", "false", "off", "0"].contains(value);
        let names = HIDING.into_iter();
        names
            .filter_map(|name| Some(format!("{name}={}", self.get(name).filter(is_on)?)))
            .collect()
    }
}

/// The settings of the section `[Service]`.
fn service_settings(text: &str) -> Vec<(String, String)> {
    let mut in_service = false;
    let mut settings = Vec::new();
    let text = text.replace("\\\n", " ");
    for line in text.lines().map(str::trim) {
        match line {
            "[Service]" => in_service = true,
            _ if line.starts_with('[') => in_service = false,
            _ if line.starts_with(['#', ';']) || !in_service => {}
            _ => settings.extend(
                line.split_once('=')
                    .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())),
            ),
        }
    }
    settings
}

/// Words, of which some may be in quotes.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in text.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_add_to_the_unit_and_replace_what_it_says() {
        let place = lockstep_testkit::TempDir::new("unit");
        let write = |path: &str, text: &str| {
            let path = place.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let unit = |name| Unit::read(&place, name);
        assert!(unit("haproxy.service").is_none());
        write(
            "lib/systemd/system/haproxy.service",
            "[Unit]\nPrivateTmp=yes\n[Service]\nEnvironment=\"CONFIG=/etc/a b\" X=1\nProtectHome=true\n",
        );
        let plain = unit("haproxy.service").unwrap();
        assert_eq!(plain.variable("CONFIG").as_deref(), Some("/etc/a b"));
        assert_eq!(
            (plain.get("PrivateTmp"), plain.variable("OPENSSL_CONF")),
            (None, None)
        );
        assert_eq!(plain.hiding(), ["ProtectHome=true"]);

        let drop_in = "etc/systemd/system/haproxy.service.d/lockstep.conf";
        write(
            drop_in,
            "# ours\n[Service]\nEnvironment=OPENSSL_CONF=/x/openssl.cnf\n",
        );
        write(
            "run/systemd/system/haproxy.service.d/lockstep.conf",
            "[Service]\nEnvironment=\n",
        );
        write(
            "run/systemd/system/haproxy.service.d/zz.conf",
            "[Service]\nProtectHome=no\nPrivateTmp=yes\nSystemCallFilter=@system-service \\\n ~@mount\n",
        );
        let changed = unit("haproxy.service").unwrap();
        assert_eq!(
            changed.variable("OPENSSL_CONF").as_deref(),
            Some("/x/openssl.cnf")
        );
        assert_eq!(changed.variable("X").as_deref(), Some("1"));
        assert_eq!(
            changed.get("SystemCallFilter"),
            Some("@system-service   ~@mount")
        );
        assert_eq!(changed.hiding(), ["PrivateTmp=yes"]);
        assert_eq!(changed.files.len(), 3);
        let drop_in = place.join(drop_in);
        let without = Unit::read_without(&place, "haproxy.service", Some(&drop_in)).unwrap();
        assert_eq!(without.variable("OPENSSL_CONF"), None);
    }

    #[test]
    fn values_add_up_until_an_empty_one() {
        let place = lockstep_testkit::TempDir::new("values");
        let path = place.join("lib/systemd/system/a.service");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = "[Service]\nB=1\nB=2\nC=\nB=\nB=3\nB=4 5\n";
        fs::write(path, text).unwrap();
        let unit = Unit::read(&place, "a.service").unwrap();
        assert_eq!(unit.all("B"), ["3", "4 5"]);
        assert!(unit.all("C").is_empty() && unit.all("D").is_empty());
    }

    #[test]
    fn an_instance_has_the_files_of_its_template() {
        let place = lockstep_testkit::TempDir::new("template");
        let directory = place.join("etc/systemd/system/stunnel@.service.d");
        fs::create_dir_all(&directory).unwrap();
        fs::write(
            directory.join("lockstep.conf"),
            "[Service]\nEnvironment=A=b\n",
        )
        .unwrap();
        let unit = Unit::read(&place, "stunnel@web.service").unwrap();
        assert_eq!(unit.variable("A").as_deref(), Some("b"));
    }
}
