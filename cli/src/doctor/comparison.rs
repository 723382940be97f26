//! Two configurations compared, one of which was made from the other: the parts of the older one
//! that the newer one leaves in force. They are providers, properties, random number generators and
//! the policy for TLS, as the `openssl` command and libcrypto's parser see them with each.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::{Configuration, Effective, Failure};

use super::finding::{Named, Verdict, good, warning};
use crate::command::{loading, run};
use crate::configuration::{configuration, system_configuration};
use crate::generated::Made;

/// Whether all stays in force that a configuration was made from; `None` if this program has not
/// made it.
pub fn kept(current: &Configuration) -> Option<Named> {
    let made = made(current)?;
    let compared = origin(&made).and_then(|origin| {
        let before = InForce::of(&read(&origin)?)?;
        let after = InForce::of(&current.effective)?;
        Ok(compared(&before, &after, &origin))
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

fn read(path: &Path) -> Result<Effective, Failure> {
    match path.exists() {
        true => Effective::read(path),
        false => Ok(Effective::none(path.to_owned())),
    }
}

/// What is in force with a configuration.
#[derive(Debug, Default)]
struct InForce {
    providers: BTreeSet<String>,
    /// What is asked of all algorithms.
    properties: String,
    /// The lines about TLS that hold for all programs.
    policy: Vec<String>,
    /// The cipher suites that programs offer by default.
    suites: String,
    /// The random number generators.
    random: String,
}

impl InForce {
    fn of(effective: &Effective) -> Result<InForce, Failure> {
        let openssl = |arguments: &[&str]| run(loading(&effective.path)?.args(arguments));
        let policy = effective.tls_policy().into_iter();
        let query = effective.query();
        Ok(InForce {
            providers: providers(&openssl(&["list", "-providers"])?),
            properties: query
                .map(|query| query.line.value.clone())
                .unwrap_or_default(),
            policy: policy
                .map(|line| format!("{} = {}", line.name, line.value))
                .collect(),
            suites: openssl(&["ciphers"])?,
            random: openssl(&["list", "-random-instances"])?,
        })
    }
}

/// The names in what `openssl list -providers` prints: those lines that are indented by two.
fn providers(listing: &str) -> BTreeSet<String> {
    let names = listing.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|name| !name.starts_with(' '));
    names.map(|name| name.trim_end().to_owned()).collect()
}

fn compared(before: &InForce, after: &InForce, origin: &Path) -> Named {
    let lost_providers = before.providers.difference(&after.providers);
    let mut lost: Vec<String> = lost_providers
        .map(|name| format!("the provider {name}"))
        .collect();
    if !after.properties.starts_with(&before.properties) {
        lost.push(format!("default_properties = {}", before.properties));
    }
    let is_lost = |line: &&String| !after.policy.contains(line);
    lost.extend(before.policy.iter().filter(is_lost).cloned());
    if before.suites != after.suites {
        lost.push("its list of cipher suites".to_owned());
    }
    if before.random != after.random {
        lost.push("its random number generators".to_owned());
    }
    let origin = origin.display();
    match lost.is_empty() {
        true => {
            let providers: Vec<&str> = before.providers.iter().map(String::as_str).collect();
            let what = format!(
                "all that {origin} has in force stays in force: providers ({}), properties, random \
                 number generators, policy for TLS",
                providers.join(", ")
            );
            good("kept", what)
        }
        false => {
            let what = format!("these parts of {origin} are lost: {}", lost.join("; "));
            warning("kept", what, anew())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_named() {
        let listing = "Providers:\n  default\n    name: x\n  legacy\n    name: y\n";
        let in_force = |listing: &str, properties: &str, policy: &str| InForce {
            providers: providers(listing),
            properties: properties.to_owned(),
            policy: policy.split(';').map(str::to_owned).collect(),
            ..InForce::default()
        };
        let before = in_force(listing, "?a=b", "MinProtocol = TLSv1.2;Groups = P-256");
        let more = format!("{listing}  lockstep\n");
        let after = in_force(
            &more,
            "?a=b,?c=d",
            "Groups = P-256;MinProtocol = TLSv1.2;X = y",
        );
        let (_, (verdict, what, _)) = compared(&before, &after, Path::new("/etc/o.cnf"));
        assert_eq!(verdict, Verdict::Good);
        assert!(
            what.contains("/etc/o.cnf") && what.contains("(default, legacy)"),
            "{what}"
        );
        let mut after = in_force("  default\n  lockstep\n", "?c=d", "Groups = P-256");
        after.random = "TEST-RAND".to_owned();
        let (_, (verdict, what, remedy)) = compared(&before, &after, Path::new("/etc/o.cnf"));
        assert_eq!(verdict, Verdict::Warning);
        let lost = "lost: the provider legacy; default_properties = ?a=b; MinProtocol = TLSv1.2; \
                    its random number generators";
        assert!(what.ends_with(lost) && remedy.is_some(), "{what}");
    }
}
