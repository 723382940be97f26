//! A service as systemd knows it: its unit file with the drop-ins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use crate::files::{entries, text_of};

/// The directory of an administrator's units and drop-ins.
pub const UNITS: &str = "etc/systemd/system";

/// Directories of units, the first overriding the others (systemd.unit(5)).
const PLACES: [&str; 7] = [
    UNITS,
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];

/// Settings with which a service sees other files than an administrator.
#[rustfmt::skip]
const HIDING: [&str; 6] = [
    "PrivateTmp", "ProtectHome", "RootDirectory", "RootImage", "TemporaryFileSystem",
    "InaccessiblePaths",
];

/// A unit.
#[derive(Debug, Default)]
pub struct Unit {
    pub name: String,
    /// The files that describe it, in the order in which systemd applies them.
    pub files: Vec<PathBuf>,
    /// The settings of its section `[Service]`, in order.
    settings: Vec<Assignment>,
    root: PathBuf,
}

/// A setting, and the index of its file among the files of the unit.
#[derive(Debug)]
struct Assignment {
    name: String,
    value: String,
    file: usize,
}

/// A file and the text that it would have; `None` if it were removed.
pub type Planned = (PathBuf, Option<String>);

impl Unit {
    /// The unit of this name under a root directory; `None` if there is no file about it.
    pub fn read(root: &Path, name: &str) -> Option<Unit> {
        Unit::read_with(root, name, &[])
    }

    /// Reads the unit as if these files were written or removed already.
    pub fn read_with(root: &Path, name: &str, planned: &[Planned]) -> Option<Unit> {
        let (names, levels) = levels(name);
        let places = PLACES.map(|place| root.join(place));
        let named = |name: &String| {
            let mut candidates = places.iter().map(|place| place.join(name));
            candidates.find(|path| path.is_file())
        };
        let mut files: Vec<PathBuf> = names.iter().find_map(named).into_iter().collect();
        let mut drop_ins: BTreeMap<_, PathBuf> = BTreeMap::new();
        let directories = places
            .iter()
            .flat_map(|place| levels.iter().map(|level| place.join(format!("{level}.d"))));
        // The file for all services comes last among files of one name.
        let of_all = places.iter().map(|place| place.join("service.d"));
        for directory in directories.chain(of_all) {
            let is_written =
                |(path, text): &&Planned| text.is_some() && path.parent() == Some(&directory);
            let written = planned.iter().filter(is_written);
            let written = written.map(|(path, _)| path.clone());
            for path in entries(&directory).chain(written) {
                if path.extension().is_some_and(|end| end == "conf") {
                    drop_ins
                        .entry(path.file_name().map(ToOwned::to_owned))
                        .or_insert(path);
                }
            }
        }
        files.extend(drop_ins.into_values());
        let planned = |file: &PathBuf| planned.iter().find(|(path, _)| path == file);
        files.retain(|file| planned(file).is_none_or(|(_, text)| text.is_some()));
        // A drop-in for many services does not show that this one exists.
        let is_own = |file: &PathBuf| {
            let above = file.parent().and_then(Path::file_name).unwrap_or_default();
            above
                .to_str()
                .and_then(|above| above.strip_suffix(".d"))
                .is_none_or(|of| names.iter().any(|name| name == of))
        };
        let text = |file: &PathBuf| match planned(file) {
            Some((_, text)) => text.clone(),
            None => text_of(file).ok(),
        };
        let texts = files.iter().map(|file| text(file).unwrap_or_default());
        let settings = texts.enumerate().flat_map(|(file, text)| {
            let settings = service_settings(&text).into_iter();
            settings.map(move |(name, value)| Assignment { name, value, file })
        });
        let settings = settings.collect();
        files.iter().any(is_own).then(|| Unit {
            name: name.to_owned(),
            files,
            settings,
            root: root.to_owned(),
        })
    }

    /// Returns the name of a unit and, if it is a template, the names of instances with files of
    /// their own.
    pub fn with_instances(root: &Path, name: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::from([name.to_owned()]);
        let Some(template) = name.strip_suffix("@.service") else {
            return names;
        };
        for path in PLACES.iter().flat_map(|place| entries(&root.join(place))) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let unit = file.strip_suffix(".d").unwrap_or(&file);
            let rest = unit.strip_prefix(template).unwrap_or_default();
            if rest.starts_with('@') && rest.ends_with(".service") {
                names.insert(unit.to_owned());
            }
        }
        names
    }

    /// The name of the unit that an alias leads to, which is a link (systemd.unit(5)); `null` if it
    /// is masked.
    pub fn aliased(root: &Path, name: &str) -> String {
        let mut name = name.to_owned();
        // An instance is an alias if its template is one.
        for _ in 0..8 {
            let parts = name
                .split_once('@')
                .map(|(before, instance)| (format!("{before}@.service"), instance.to_owned()));
            let link = |name: &str| {
                let mut paths = PLACES.iter().map(|place| root.join(place).join(name));
                let path = paths.find(|path| fs::symlink_metadata(path).is_ok())?;
                let target = fs::read_link(path).ok()?;
                Some(target.file_name()?.to_str()?.to_owned())
            };
            let target = link(&name).or_else(|| {
                let (template, instance) = parts?;
                let target = link(&template)?;
                let (before, _) = target.split_once('@')?;
                Some(format!("{before}@{instance}"))
            });
            match target {
                Some(target) if target != name => name = target,
                _ => break,
            }
        }
        name
    }

    /// Whether a file describes it, and not drop-ins alone.
    pub fn has_fragment(&self) -> bool {
        let first = self.files.first().and_then(|file| file.extension());
        first.is_some_and(|end| end == "service")
    }

    /// Whether systemd may start services by this unit: here if it runs, and under another root,
    /// where it may run later.
    pub fn is_in_force(&self) -> bool {
        self.root != Path::new("/") || systemd_runs()
    }

    /// The last value of a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut settings = self.settings.iter().rev();
        let last = settings.find(|setting| setting.name == name)?;
        (!last.value.is_empty()).then_some(&last.value)
    }

    /// Returns all values of a setting, in order. An empty value removes the values before it.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.settings.iter().filter(|setting| setting.name == name);
        let values: Vec<&str> = named.map(|setting| setting.value.as_str()).collect();
        let first = values.iter().rposition(|value| value.is_empty());
        values[first.map_or(0, |at| at + 1)..].to_vec()
    }

    /// A variable of its environment.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variable_and_file(name).map(|(value, _)| value)
    }

    /// Returns a variable of its environment, and the file that sets it. A file of
    /// `EnvironmentFile=` overrides each `Environment=`, and `UnsetEnvironment=` overrides both
    /// (systemd.exec(5)).
    pub fn variable_and_file(&self, name: &str) -> Option<(String, PathBuf)> {
        let removed = self.all("UnsetEnvironment");
        let is_name = |word: &String| word.split('=').next() == Some(name);
        if removed.iter().any(|value| words(value).iter().any(is_name)) {
            return None;
        }
        let files = self.all("EnvironmentFile").into_iter();
        let files: Vec<PathBuf> = files
            .flat_map(|file| self.environment_files(file))
            .collect();
        let mut of_files = files.into_iter().rev().filter_map(|path| {
            let text = text_of(&path).ok()?;
            Some((environment_value(&text, name)?, path))
        });
        of_files.next().or_else(|| self.own_variable(name))
    }

    /// The files that a value of `EnvironmentFile=` names, in order: it may have specifiers of the
    /// unit's name (systemd.unit(5)), and wildcards in its last part.
    fn environment_files(&self, value: &str) -> Vec<PathBuf> {
        let stem = self
            .name
            .rsplit_once('.')
            .map_or(&*self.name, |(stem, _)| stem);
        let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
        let file = value
            .trim_start_matches('-')
            .replace("%n", &self.name)
            .replace("%N", stem)
            .replace("%p", prefix)
            .replace("%i", instance)
            .replace("%%", "%");
        let file = self.root.join(file.trim_start_matches('/'));
        let pattern = file.file_name().unwrap_or_default().to_string_lossy();
        if !pattern.contains(['*', '?']) {
            return vec![file];
        }
        let is_named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            is_match(&pattern, &name.to_string_lossy())
        };
        let entries = entries(file.parent().unwrap_or(&self.root));
        let mut files: Vec<PathBuf> = entries.filter(is_named).collect();
        files.sort();
        files
    }

    /// A variable that its `Environment=` sets.
    fn own_variable(&self, name: &str) -> Option<(String, PathBuf)> {
        let mut found = None;
        let settings = self.settings.iter();
        for Assignment { value, file, .. } in settings.filter(|known| known.name == "Environment") {
            if value.is_empty() {
                found = None;
            }
            let mut assigned = words(value).into_iter().filter_map(|word| {
                let (known, value) = word.split_once('=')?;
                (known == name).then(|| (value.to_owned(), self.files[*file].clone()))
            });
            found = assigned.next_back().or(found);
        }
        found
    }

    /// Returns the setting by which the service sees another file, or none, at a path. Places for
    /// temporary files and home directories are not considered.
    pub fn hides(&self, path: &Path) -> Option<String> {
        let below = |place: &str| self.root.join(place.trim_start_matches('/'));
        let inside = path.strip_prefix("/").unwrap_or(path);
        let values = |name| {
            let values = self.all(name).into_iter().flat_map(str::split_whitespace);
            values.map(move |value| (name, value))
        };
        let is_at = |value: &str, part| {
            let mut parts = value.trim_start_matches(['-', '+']).splitn(2, ':');
            let first = parts.next().unwrap_or_default();
            path.starts_with([first, parts.next().unwrap_or(first)][part])
        };
        let mut bound = ["BindPaths", "BindReadOnlyPaths"]
            .into_iter()
            .flat_map(values);
        if bound.any(|(_, value)| is_at(value.trim_end_matches(":rbind"), 1)) {
            return None;
        }
        let [_, _, elsewhere @ ..] = HIDING;
        let mut hiding =
            elsewhere
                .into_iter()
                .flat_map(values)
                .filter(|(name, value)| match *name {
                    "RootDirectory" => *value != "/" && !below(value).join(inside).exists(),
                    "RootImage" => true,
                    _ => is_at(value, 0),
                });
        hiding.next().map(|(name, value)| format!("{name}={value}"))
    }

    /// Returns the settings that may hide files from the service, as they are written.
    pub fn hiding(&self) -> Vec<String> {
        let is_on = |value: &&str| !["no", "false", "off", "0"].contains(value);
        let names = HIDING.into_iter();
        names
            .filter_map(|name| Some(format!("{name}={}", self.get(name).filter(is_on)?)))
            .collect()
    }
}

/// Returns the unit that systemd has started a process for, from the text of its
/// `/proc/PID/cgroup`: the first unit in the path of its control group. A user may have made the
/// units below it.
pub fn unit_of_groups(groups: &str) -> Option<&str> {
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    let mut paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.find_map(|path| path.split('/').find(is_unit))
}

/// The name of a unit, without its instance and its kind.
pub fn stem(unit: &str) -> &str {
    let unit = unit.strip_suffix(".service").unwrap_or(unit);
    unit.split_once('@').map_or(unit, |(name, _)| name)
}

/// The unit that describes a service: for an instance its template.
pub fn template(service: &str) -> String {
    match service.split_once('@') {
        Some((name, _)) => format!("{name}@.service"),
        None => service.to_owned(),
    }
}

/// Returns the names whose files describe a unit, its own and its template's, and all names whose
/// drop-ins apply to it. The drop-ins of `a-.service` apply to each service whose name begins with
/// `a-` (systemd.unit(5)).
fn levels(name: &str) -> (Vec<String>, Vec<String>) {
    let end = name.find('@').or(name.rfind('.')).unwrap_or(name.len());
    let (stem, ending) = name.split_at(end);
    let endings: &[&str] = match ending.starts_with('@') {
        true => &[ending, "@.service", ".service"],
        false => &[ending],
    };
    let of = |stem: &str, endings: &[&str]| -> Vec<String> {
        let endings = endings.iter();
        endings.map(|ending| format!("{stem}{ending}")).collect()
    };
    let names = of(stem, &endings[..endings.len().min(2)]);
    let mut levels = names.clone();
    let mut beginning = stem;
    while let Some(dash) = beginning.trim_end_matches('-').rfind('-') {
        beginning = &stem[..=dash];
        levels.extend(of(beginning, endings));
    }
    (names, levels)
}

/// Whether systemd runs here as process 1 (sd_booted(3)).
pub fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
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

/// Whether a file's name matches a pattern with `*` and `?`. No wildcard matches a dot at the
/// beginning.
fn is_match(pattern: &str, name: &str) -> bool {
    fn rest(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', after)), _) => (0..=name.len()).any(|at| rest(after, &name[at..])),
            (Some((b'?', after)), Some((_, name))) => rest(after, name),
            (Some((own, after)), Some((other, name))) => own == other && rest(after, name),
            _ => false,
        }
    }
    name.starts_with('.') == pattern.starts_with('.') && rest(pattern.as_bytes(), name.as_bytes())
}

/// A variable in a file of `EnvironmentFile=`.
fn environment_value(text: &str, name: &str) -> Option<String> {
    let mut rest = text.chars().peekable();
    let mut found = None;
    while rest.peek().is_some() {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        let mut known = String::new();
        while let Some(c) = rest.next_if(|c| !['=', '\n'].contains(c)) {
            known.push(c);
        }
        // The line may be no assignment.
        if rest.next() == Some('=') && !known.starts_with(['#', ';']) {
            let value = value(&mut rest);
            found = (known.trim_end() == name).then_some(value).or(found);
        } else if known.starts_with(['#', ';']) {
            while rest.next_if(|c| *c != '\n').is_some() {}
        }
    }
    found
}

/// Parses the value after a `=` (systemd.exec(5)). Quotes count only before the first plain
/// character, and may contain line breaks.
fn value(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    let mut quote = None;
    let mut is_plain = false;
    // Whitespace after this position is removed at the end.
    let mut end = 0;
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (None, '\n') => break,
            (None, '\'' | '"') if !is_plain => quote = Some(c),
            (None, c) if c.is_whitespace() => {
                if is_plain {
                    value.push(c);
                }
                continue;
            }
            (None | Some('"'), '\\') => {
                is_plain |= quote.is_none();
                let escaped = rest.next().unwrap_or_default();
                if quote.is_some() && !"\"\\`$\n".contains(escaped) {
                    value.push(c);
                }
                value.extend(Some(escaped).filter(|c| *c != '\n'));
            }
            (_, c) => {
                is_plain |= quote.is_none();
                value.push(c);
            }
        }
        end = value.len();
    }
    value.truncate(end);
    value
}

/// Splits a text into words, some of which may be in quotes.
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
mod tests;
