//! The effect of a configuration on OpenSSL: the providers that it activates, the properties that
//! it asks for, and whether lockstep can be added.
//!
//! The rules are libcrypto's (`conf_mod.c`, `provider_conf.c`, `evp_cnf.c`), and its own parser
//! reads the file.

use std::path::{Path, PathBuf};

use lockstep_conf::{File, Line, installed};

use crate::failure::Failure;

/// The configuration that a file holds, with the files that it includes.
pub struct Effective {
    /// The file.
    pub path: PathBuf,
    file: File,
}

/// A provider that a configuration names.
pub struct Provider {
    /// The name by which it is loaded.
    pub name: String,
    /// The section with its settings.
    pub section: String,
    /// The shared library, where the section names one.
    pub module: Option<PathBuf>,
    /// Whether OpenSSL activates it.
    pub active: bool,
}

impl Provider {
    /// Returns whether the provider is lockstep.
    pub fn is_lockstep(&self) -> bool {
        let is_module = |path: &PathBuf| path.file_name().is_some_and(|name| name == "lockstep.so");
        self.module
            .as_ref()
            .map_or(self.name == "lockstep", is_module)
    }

    fn is_fips(&self) -> bool {
        let is_module = |path: &PathBuf| path.file_stem().is_some_and(|name| name == "fips");
        self.name == "fips" || self.module.as_ref().is_some_and(is_module)
    }
}

/// A line that changes which properties algorithms must have.
pub struct Properties<'a> {
    /// The section that holds it.
    pub section: &'a str,
    /// The line itself.
    pub line: &'a Line,
}

impl Effective {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Effective, Failure> {
        let file = File::read(path).map_err(|error| {
            Failure::new(format!(
                "OpenSSL cannot read {}: {error}; programs that use it run without any of it",
                path.display()
            ))
            .remedy("correct that file, or name another one with OPENSSL_CONF")
        })?;
        Ok(Effective {
            path: path.to_owned(),
            file,
        })
    }

    /// Reads a file. A missing file has no lines.
    pub fn if_there(path: &Path) -> Result<Effective, Failure> {
        match path.exists() {
            true => Effective::read(path),
            false => Ok(Effective::of(path.to_owned(), File::default())),
        }
    }

    /// Makes a configuration from a file that another process has read.
    pub fn of(path: PathBuf, file: File) -> Effective {
        Effective { path, file }
    }

    /// All lines of the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the libraries that a program may load because of the configuration, if their paths
    /// are absolute: all paths in the sections of providers and engines, and others with `.so`.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let kinds = ["providers", "engines"].into_iter();
        let own = kinds
            .flat_map(|kind| self.modules(kind))
            .flat_map(|section| self.lines(section))
            .flat_map(|line| self.lines(&line.value))
            .filter(|line| line.value.starts_with('/'));
        let all = self.file.sections().values().flatten();
        let by_name = all.filter(|line| line.value.starts_with('/') && line.value.contains(".so"));
        let paths = own.chain(by_name);
        paths.map(|line| PathBuf::from(&line.value)).collect()
    }

    /// The section that `openssl_conf` names.
    pub fn init(&self) -> Option<&str> {
        self.file.value("default", "openssl_conf")
    }

    /// The providers in the order in which libcrypto takes them.
    pub fn providers(&self) -> Vec<Provider> {
        let lines = self.modules("providers").flat_map(|name| self.lines(name));
        lines.map(|line| self.provider(line)).collect()
    }

    fn provider(&self, line: &Line) -> Provider {
        let mut provider = Provider {
            name: behind_dot(&line.name).to_owned(),
            section: line.value.clone(),
            module: None,
            active: false,
        };
        for setting in self.lines(&line.value) {
            match behind_dot(&setting.name) {
                "identity" => provider.name.clone_from(&setting.value),
                "module" => provider.module = Some(PathBuf::from(&setting.value)),
                "activate" => provider.active = activates(&setting.value),
                _ => {}
            }
        }
        provider
    }

    /// The value of a setting in a provider's section; the last of several, as the provider gets
    /// it.
    pub fn setting(&self, provider: &Provider, name: &str) -> Option<&str> {
        let mut lines = self.lines(&provider.section).rev();
        let line = lines.find(|line| line.name == name);
        line.map(|line| line.value.as_str())
    }

    /// Makes a configuration with this provider's settings alone, which does not activate it.
    ///
    /// libcrypto reports no error of a provider that a configuration fails to activate, but it
    /// reports the error if the provider is activated later.
    pub fn inactive(&self, provider: &Provider) -> Result<String, Failure> {
        let mut text = format!(
            "openssl_conf = init\n[init]\nproviders = providers\n[providers]\n{} = provider\n[provider]\n",
            provider.name
        );
        for line in self.lines(&provider.section) {
            if !["activate", "identity"].contains(&behind_dot(&line.name)) {
                text.push_str(&format!("{} = {}\n", line.name, quoted(&line.value)?));
            }
        }
        Ok(text)
    }

    /// The lines about properties, in the order in which libcrypto takes them.
    pub fn properties(&self) -> Vec<Properties<'_>> {
        let of = |section| {
            let lines = self.lines(section);
            lines.map(move |line| Properties { section, line })
        };
        self.modules("alg_section").flat_map(of).collect()
    }

    /// Returns the line of the property query that is in force, the last one.
    pub fn query(&self) -> Option<Properties<'_>> {
        let mut lines = self.properties();
        lines.retain(|properties| properties.line.name == "default_properties");
        lines.pop()
    }

    /// The optional clauses of the query that is in force, except clauses about lockstep: each is a
    /// reason for OpenSSL to take other algorithms.
    pub fn other_preferences(&self) -> Vec<String> {
        let query = self.query();
        let clauses = query.map_or_else(Vec::new, |query| Clause::all(&query.line.value));
        let others = clauses.into_iter().filter(|clause| {
            clause.kind == Kind::Optional && !clause.name.starts_with("lockstep.")
        });
        others.map(|clause| clause.text).collect()
    }

    /// Lines about TLS that are in force for all programs, in libssl's order.
    pub fn tls_policy(&self) -> Vec<&Line> {
        let named = self
            .modules("ssl_conf")
            .flat_map(|section| self.lines(section))
            .filter(|line| line.name == "system_default");
        named.flat_map(|line| self.lines(&line.value)).collect()
    }

    /// Returns the names of the sections in the lines for a kind of module. The text behind the
    /// last dot in the name of a line distinguishes lines for the same kind.
    fn modules<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.init().into_iter().flat_map(|init| self.lines(init));
        lines
            .filter(move |line| {
                let name = &line.name;
                name.rsplit_once('.')
                    .map_or(name.as_str(), |(name, _)| name)
                    == kind
            })
            .map(|line| line.value.as_str())
    }

    fn lines(&self, section: &str) -> std::slice::Iter<'_, Line> {
        self.file.section(section).unwrap_or_default().iter()
    }

    /// Returns the reason why lockstep must not be used with this configuration, if there is one.
    ///
    /// A line counts even where a later line replaces it: FIPS must not be switched off by
    /// accident.
    pub fn refusal(&self) -> Option<Failure> {
        self.unmet_properties()
            .or_else(|| self.unsuitable_providers())
    }

    /// Returns a failure for the first property that lockstep does not have.
    fn unmet_properties(&self) -> Option<Failure> {
        let shown = self.path.display();
        for Properties { section, line } in self.properties() {
            let setting = format!(
                "`{} = {}` in its section [{section}]",
                line.name, line.value
            );
            match line.name.as_str() {
                "fips_mode" if is_true(&line.value) => {
                    return Some(
                        Failure::new(format!(
                            "{shown} turns FIPS on: {setting}. Lockstep is not a FIPS module"
                        ))
                        .remedy(FIPS),
                    );
                }
                "default_properties" => {
                    let clauses = Clause::all(&line.value);
                    let Some(unmet) = clauses.iter().find(|clause| !clause.is_met()) else {
                        continue;
                    };
                    let (clause, is_fips) = (&unmet.text, unmet.name == "fips");
                    return Some(if is_fips {
                        Failure::new(format!(
                            "{shown} requires FIPS: {setting}. Lockstep is not a FIPS module"
                        ))
                        .remedy(FIPS)
                    } else {
                        Failure::new(format!(
                            "{shown} requires `{clause}` of all algorithms: {setting}. Those of lockstep \
                             do not have this property, and OpenSSL would use none of them"
                        ))
                        .remedy(format!(
                            "remove `{clause}` there, or write ?{clause}, which prefers and does not require"
                        ))
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Returns a failure if FIPS is active, or if the default provider is not.
    fn unsuitable_providers(&self) -> Option<Failure> {
        let shown = self.path.display();
        let active: Vec<_> = self.providers().into_iter().filter(|p| p.active).collect();
        if let Some(provider) = active.iter().find(|provider| provider.is_fips()) {
            return Some(
                Failure::new(format!(
                    "{shown} activates the FIPS provider: `activate` in its section [{}]. Lockstep is not \
                     a FIPS module",
                    provider.section
                ))
                .remedy(FIPS),
            );
        }
        let others: Vec<String> = active
            .iter()
            .filter(|provider| !provider.is_lockstep())
            .map(|provider| format!("{} (`activate` in [{}])", provider.name, provider.section))
            .collect();
        if active.is_empty() || active.iter().any(|provider| provider.name == "default") {
            return None;
        }
        let what = match others.is_empty() {
            true => "lockstep alone".to_owned(),
            false => format!(
                "providers, but not the default provider: {}",
                others.join(", ")
            ),
        };
        Some(
            Failure::new(format!(
                "{shown} activates {what}. Lockstep needs OpenSSL's default provider beside it, for all \
                 that it does not do itself"
            ))
            .remedy(
                "if programs may use the default provider, activate it there: default = default_sect in \
                 the section that `providers` names, and activate = 1 in a section [default_sect]",
            ),
        )
    }
}

/// The remedy where FIPS is on.
const FIPS: &str = "leave this system's programs to OpenSSL's own code; for programs that need no \
    FIPS, name a configuration without it: lockstep configuration --from FILE";

/// A part of a property query.
#[derive(Debug, PartialEq, Eq)]
struct Clause {
    text: String,
    name: String,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Optional,
    /// Removes the clause with this name.
    Removed,
    Equal(String),
    Unequal(String),
}

impl Clause {
    fn all(query: &str) -> Vec<Clause> {
        let mut quote = None;
        let parts = query.split(|c| match quote {
            Some(end) => {
                if c == end {
                    quote = None;
                }
                false
            }
            None => {
                if c == '"' || c == '\'' {
                    quote = Some(c);
                }
                c == ','
            }
        });
        let parts = parts.map(str::trim).filter(|part| !part.is_empty());
        parts.map(Clause::new).collect()
    }

    fn new(text: &str) -> Clause {
        let (body, mark) = match text.split_at_checked(1) {
            Some((mark @ ("?" | "-"), body)) => (body, Some(mark)),
            _ => (text, None),
        };
        // A name alone asks for yes.
        let (name, value, unequal) = match body.split_once('=') {
            Some((name, value)) => match name.trim_end().strip_suffix('!') {
                Some(name) => (name, value, true),
                None => (name, value, false),
            },
            None => (body, "yes", false),
        };
        let value = value.trim();
        let unquoted = value
            .strip_prefix(['"', '\''])
            .and_then(|value| value.strip_suffix(['"', '\'']));
        let value = unquoted.map_or_else(|| value.to_ascii_lowercase(), str::to_owned);
        Clause {
            text: text.to_owned(),
            name: name.trim().to_ascii_lowercase(),
            kind: match (mark, unequal) {
                (Some("?"), _) => Kind::Optional,
                (Some(_), _) => Kind::Removed,
                (None, false) => Kind::Equal(value),
                (None, true) => Kind::Unequal(value),
            },
        }
    }

    /// Returns whether lockstep's algorithms meet the clause. A property that they lack counts as
    /// the word `no`, which meets no clause about a number.
    fn is_met(&self) -> bool {
        let is_number =
            |value: &str| value.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c));
        match &self.kind {
            Kind::Optional | Kind::Removed => true,
            _ if self.name.starts_with("lockstep.") => true,
            Kind::Equal(_) if self.name == "provider" => false,
            Kind::Unequal(value) if self.name == "provider" => value != "lockstep",
            Kind::Equal(value) => value == "no",
            Kind::Unequal(value) => value != "no" && !is_number(value),
        }
    }
}

/// Returns whether OpenSSL activates a provider with this value of `activate`. Before OpenSSL 3.2
/// the line's presence alone activates it.
fn activates(value: &str) -> bool {
    const FALSE: [&str; 8] = ["0", "no", "NO", "false", "FALSE", "off", "OFF", ""];
    let presence_counts = installed().is_ok_and(|openssl| openssl.number < 0x3020_0000);
    presence_counts || !FALSE.contains(&value)
}

/// Returns whether `X509V3_get_value_bool` takes this value as true.
fn is_true(value: &str) -> bool {
    ["TRUE", "true", "Y", "y", "YES", "yes"].contains(&value)
}

/// Returns the part of a name behind its first dot, which alone counts in the sections of
/// providers.
fn behind_dot(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, name)| name)
}

/// Quotes a value so that libcrypto reads it unchanged.
pub fn quoted(value: &str) -> Result<String, Failure> {
    if value.chars().any(char::is_control) {
        return Err(Failure::new(format!(
            "a configuration cannot hold {value:?}: it has control characters"
        ))
        .remedy("use a path without them"));
    }
    let plain = |c: char| c.is_alphanumeric() || "/._+-,?=!".contains(c);
    if value.chars().all(plain) {
        return Ok(value.to_owned());
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_met_as_libcrypto_counts_them() {
        for (query, unmet) in [
            ("", None),
            ("fips=yes", Some("fips=yes")),
            ("FIPS", Some("FIPS")),
            ("?fips=yes", None),
            ("-fips", None),
            ("fips=no, fips2 != yes", None),
            ("?a=1,provider = default", Some("provider = default")),
            ("provider!=legacy", None),
            ("provider!=lockstep", Some("provider!=lockstep")),
            ("?provider=tpm2,tpm2.digest!=yes", None),
            ("x='a,b',?y=z", Some("x='a,b'")),
            ("version=3", Some("version=3")),
            ("version!=3", Some("version!=3")),
            (
                "?lockstep.fast=yes,?lockstep.lanes=yes,?lockstep.keys!=yes",
                None,
            ),
        ] {
            let clauses = Clause::all(query);
            let found = clauses.iter().find(|clause| !clause.is_met());
            assert_eq!(found.map(|clause| clause.text.as_str()), unmet, "{query}");
        }
    }

    #[test]
    fn preferences_of_others_are_told_from_ours() {
        let place = lockstep_testkit::TempDir::new("preferences");
        let path = place.join("openssl.cnf");
        let text = "openssl_conf = i\n[i]\nalg_section = a\n[a]\n\
                    default_properties = ?provider=x, a=no,?lockstep.fast=yes,-b,?c\n";
        std::fs::write(&path, text).unwrap();
        let found = Effective::read(&path).unwrap().other_preferences();
        assert_eq!(found, ["?provider=x", "?c"]);
    }

    #[test]
    fn quoted_values_are_read_as_they_were() {
        let place = lockstep_testkit::TempDir::new("quoted");
        let path = place.join("openssl.cnf");
        for value in ["/a/b.so", "/a b/$c/#d\\'e\"f;g", " x ", "a,b=c,?d!=e"] {
            let text = format!("a = {} # comment\n", quoted(value).unwrap());
            std::fs::write(&path, text).unwrap();
            let file = File::read(&path).unwrap();
            assert_eq!(file.value("default", "a"), Some(value));
        }
        assert!(quoted("a\nb").is_err());
    }
}
