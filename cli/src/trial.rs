//! A trial: a program loads the configuration and signs, as any program would.

use std::fs;
use std::path::Path;

use lockstep_common::{Configuration, Effective, Failure, Provider, Scratch, insist_on_own};
use lockstep_engine::{Snapshot, read_published};

use crate::command::{NOTHING, loading, openssl, run};
use crate::generated::Made;
use crate::mistakes::{gone, mistakes};
use crate::probe::{About, Probe, probe};

/// Remedy where OpenSSL does not load the module's file.
const ANOTHER_MODULE: &str =
    "use the module of lockstep's package, or one that was built here: cargo xtask dist";

/// Tries a configuration.
pub struct Trial<'a>(pub &'a Configuration);

impl Trial<'_> {
    /// Returns the facts that a program finds with the whole configuration, if the module or FIPS
    /// is in force. The failure is the reason why not.
    pub fn probe(&self) -> Result<Probe, Failure> {
        let found = self.probed()?;
        match found.errors.first() {
            Some(error) => Err(self.loaded_in_part(error)),
            None if found.version.is_none() && !found.fips => Err(self.why_not_loaded()),
            None => Ok(found),
        }
    }

    /// Whether a program that loads the configuration has the module. The failure says why not.
    fn loads(&self) -> Result<(), Failure> {
        let found = self.probed()?;
        match (found.version, found.errors.first()) {
            (Some(_), _) => Ok(()),
            (None, Some(error)) => Err(self.loaded_in_part(error)),
            (None, None) => Err(self.why_not_loaded()),
        }
    }

    fn probed(&self) -> Result<Probe, Failure> {
        let provider = self.0.provider();
        let about = match &provider {
            Some(provider) => About::Provider(provider.name.clone()),
            None => About::Nobody,
        };
        probe(&fs::canonicalize(self.0.path()).unwrap_or_default(), &about)
    }

    fn loaded_in_part(&self, error: &str) -> Failure {
        Failure::new(format!(
            "OpenSSL does not load all of {}: {error}",
            self.0.path().display()
        ))
        .remedy("correct what it names; until then programs run without the rest of the file")
    }

    /// Why the module is not loaded, in the words of the part that refused.
    fn why_not_loaded(&self) -> Failure {
        let shown = self.0.path().display();
        let correct = format!("correct {shown}, or the environment");
        let refusal = |error: &str| {
            Failure::new(format!("the module refuses to load: {error}")).remedy(&correct)
        };
        let Some(provider) = self.0.provider() else {
            return Failure::new(format!("{shown} names no module lockstep.so"));
        };
        if !provider.active {
            return Failure::new(format!(
                "{shown} does not activate lockstep, by its section [{}]",
                provider.section
            ))
            .remedy(format!("write activate = 1 in that section of {shown}"));
        }
        let errors = match self.activate(&provider) {
            Ok(errors) => errors,
            Err(failure) => return failure,
        };
        // An error of the module itself, about its settings.
        let its_own = |error: &str| Some(error.split_once("lockstep: ")?.1.to_owned());
        if let Some(error) = errors.iter().find_map(|error| its_own(error)) {
            return refusal(&error);
        }
        let module = provider.module.unwrap_or_default().display().to_string();
        match errors.first() {
            Some(error) if error.contains("OSSL_provider_init") => Failure::new(format!(
                "{module} is a shared library, but not a provider of OpenSSL: {error}"
            ))
            .remedy(
                "name lockstep.so, as lockstep's package has it and `cargo xtask dist` makes it",
            ),
            Some(error) => Failure::new(format!("OpenSSL does not load the module: {error}"))
                .remedy(ANOTHER_MODULE),
            None => Failure::new(
                "OpenSSL did not load lockstep when it read the configuration, but loads it on demand",
            )
            .remedy("look for a mistake in the lines before lockstep's in the section that `providers` names"),
        }
    }

    /// Returns libcrypto's errors when it activates the provider alone.
    fn activate(&self, provider: &Provider) -> Result<Vec<String>, Failure> {
        let scratch = Scratch::new("doctor-load")?;
        let text = self.0.effective.inactive(provider)?;
        let path = scratch.write("openssl.cnf", &text)?;
        Ok(probe(&path, &About::Activation(provider.name.clone()))?.errors)
    }

    /// Has the `openssl` command sign with a fresh key, and checks the signature without lockstep.
    /// Returns the module's counters.
    pub fn sign(&self, lone: Option<&str>) -> Result<Snapshot, Failure> {
        let scratch = Scratch::new("doctor")?;
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("message"), "to be signed").map_err(|e| Failure::new(e.to_string()))?;
        let stock = |arguments: &str| {
            let mut command = openssl(NOTHING);
            command
                .args(arguments.split(' '))
                .current_dir(scratch.path());
            command
        };
        run(&mut stock(
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem",
        ))?;
        run(&mut stock("pkey -in key.pem -pubout -out public.pem"))?;

        let counters = at("counters");
        fs::create_dir(&counters).map_err(|e| Failure::new(e.to_string()))?;
        let path = fs::canonicalize(self.0.path()).unwrap_or_else(|_| self.0.path().to_owned());
        let mut sign = loading(&path)?;
        sign.args("dgst -sha256 -sign key.pem -out signature message".split(' '))
            .current_dir(scratch.path())
            .env("LOCKSTEP_STATS_DIR", &counters)
            .env("LOCKSTEP_STATS_KEEP", "yes");
        if let Some(lone) = lone {
            sign.env("LOCKSTEP_LONE", lone);
        }
        run(&mut sign)?;
        run(&mut stock(
            "dgst -sha256 -verify public.pem -signature signature message",
        ))
        .map_err(|_| {
            Failure::new("the signature that the openssl command made with lockstep is wrong")
                .remedy("lockstep uninstall; then report this: it must never happen")
        })?;
        let found = read_published(&counters).map_err(|e| Failure::new(e.to_string()))?;
        if found.processes.is_empty() && found.other_versions > 0 {
            return Err(Failure::new(
                "the module is of another version than this program, which cannot read its counters",
            )
            .remedy("use the command `lockstep` that was built with the module: it lies beside it"));
        }
        let first = found.processes.into_iter().next();
        Ok(first.map_or_else(Snapshot::default, |process| process.snapshot))
    }
}

/// Fails unless the module accepts the settings of a configuration that this program makes, and
/// everything in the original stays in force. If `root` is `/`, the module must also load.
pub fn accepted(shown: &str, text: &str, root: &Path) -> Result<(), Failure> {
    let is_here = root == Path::new("/");
    let written = match is_here {
        true => text.to_owned(),
        // The files that it includes are under the root.
        false => text.replace(
            "\n.include = /",
            &format!("\n.include = {}/", root.display()),
        ),
    };
    let scratch = Scratch::new("install-conf")?;
    let path = scratch.write("openssl.cnf", &written)?;
    let its_name = |text: String| text.replace(&path.display().to_string(), shown);
    let refused = |failure: Failure| {
        let what = its_name(failure.what);
        Failure::new(format!(
            "the module does not load with {shown}: {what}; nothing was done"
        ))
        .remedy(its_name(failure.remedy.unwrap_or_default()))
    };
    let configuration = Configuration::at(&path, false).map_err(refused)?;
    settings_accepted(shown, &configuration)?;
    // Root tries no module that others can change.
    let is_tried = is_here && insist_on_own(&path).is_ok();
    if is_tried {
        // A truncated module would crash the program that tries it, so its file is checked first.
        let loads = configuration.module();
        let loads = loads.and_then(|_| Trial(&configuration).loads());
        loads.map_err(refused)?;
    }
    let Some(made) = Made::parse(text).filter(|made| made.is_intact) else {
        return Ok(());
    };
    let origin = root.join(made.origin.strip_prefix("/").unwrap_or(&made.origin));
    let lost = lost(&configuration.effective, &origin, is_tried)?;
    match lost.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "with {shown} programs would lose of {}: {}; nothing was done",
            origin.display(),
            lost.join("; ")
        ))
        .remedy("report this; until then this system has no place for lockstep")),
    }
}

/// Finds the parts of the original that are not in force with a configuration made from it: lines,
/// as libcrypto reads both, properties, and providers, if both are to be loaded.
pub fn lost(now: &Effective, origin: &Path, is_tried: bool) -> Result<Vec<String>, Failure> {
    let was = Effective::if_there(origin)?;
    let mut lost = Vec::new();
    for (section, lines) in was.file().sections() {
        let there = now.file().section(section).unwrap_or_default();
        let gone = lines.iter().filter(|line| !there.contains(line));
        lost.extend(gone.map(|line| format!("{} = {} in [{section}]", line.name, line.value)));
    }
    if let Some(query) = was.query()
        && !now
            .query()
            .is_some_and(|now| now.line.value.starts_with(&query.line.value))
    {
        lost.push(format!("default_properties = {}", query.line.value));
    }
    if is_tried {
        let names = was.providers().into_iter().map(|provider| provider.name);
        let names: Vec<String> = names.chain(["default".to_owned()]).collect();
        let names = About::Active(names);
        let (before, after) = (
            probe(origin, &names)?.active,
            probe(&now.path, &names)?.active,
        );
        let gone = before.iter().filter(|name| !after.contains(name));
        lost.extend(gone.map(|name| format!("the provider {name}")));
    }
    Ok(lost)
}

/// Fails unless the module accepts the settings of a configuration, which messages call `shown`.
pub fn settings_accepted(shown: &str, configuration: &Configuration) -> Result<(), Failure> {
    if let Some(gone) = gone(configuration) {
        let path = configuration.path().display().to_string();
        eprintln!("warning: {}", gone.replace(&path, shown));
    }
    let mistakes = mistakes(configuration);
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "settings would have no effect in {shown}: {mistakes}; nothing was done"
        ))
        .remedy(format!("correct {shown}, then run this again"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_left_out_are_named() {
        let place = lockstep_testkit::TempDir::new("left-out");
        let (origin, new) = (place.join("system.cnf"), place.join("new.cnf"));
        let system = "openssl_conf = i\n[i]\nssl_conf = s\nalg_section = a\n[a]\n\
                      default_properties = ?a=b\n[s]\nsystem_default = d\n[d]\n\
                      MinProtocol = TLSv1.3\n";
        fs::write(&origin, system).unwrap();
        let found = |text: &str| {
            fs::write(&new, text).unwrap();
            let new = Effective::read(&new).unwrap();
            lost(&new, &origin, false).unwrap().join("; ")
        };
        let include = format!(".include = {}\n", origin.display());
        let more = "[i]\nalg_section.x = b\n[b]\ndefault_properties = ";
        assert_eq!(found(&format!("{include}{more}\"?a=b,?c=d\"\n")), "");
        let replaced = found(&format!("{include}{more}?c=d\n"));
        assert_eq!(replaced, "default_properties = ?a=b");
        let changed = found(&system.replace("TLSv1.3", "TLSv1.2"));
        assert_eq!(changed, "MinProtocol = TLSv1.3 in [d]");
        assert!(found("openssl_conf = i\n").contains("system_default = d in [s]"));
    }
}
