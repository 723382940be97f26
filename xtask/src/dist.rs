//! `cargo xtask dist`: the module, the command and the configuration that loads the module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{
    Failure, Outcome, cargo, loudly, on, openssl, quietly, root, target_directory,
};

/// What to build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Release,
    /// With the fault points that only tests may have; without the command.
    FaultInjection,
}

/// A directory with what was built.
pub struct Dist {
    pub directory: PathBuf,
}

impl Dist {
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("openssl.cnf")
    }

    pub fn command(&self) -> PathBuf {
        self.directory.join("lockstep")
    }

    /// Says what is there and how to use it.
    pub fn announce(&self) {
        let shown = self
            .directory
            .strip_prefix(root())
            .unwrap_or(&self.directory)
            .display();
        println!("{shown}/lockstep.so {shown}/lockstep {shown}/openssl.cnf");
        println!(
            "run any OpenSSL program with OPENSSL_CONF={}",
            self.configuration().display()
        );
    }
}

/// The module in `dist/`.
pub fn module() -> PathBuf {
    root().join("dist/lockstep.so")
}

/// Builds `dist/`.
pub fn build() -> Outcome<Dist> {
    build_into(&root().join("dist"), Flavour::Release)
}

/// Builds into a directory of the caller's choice.
pub fn build_into(directory: &Path, flavour: Flavour) -> Outcome<Dist> {
    let directory = &std::path::absolute(directory).map_err(on(directory, "find"))?;
    fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    let mut build = cargo(["build", "--release", "--locked"]);
    let artifacts: &[(&str, &str)] = match flavour {
        Flavour::Release => {
            build.args(["-p", "lockstep-provider", "-p", "lockstep-cli"]);
            &[("liblockstep.so", "lockstep.so"), ("lockstep", "lockstep")]
        }
        Flavour::FaultInjection => {
            build.args(["-p", "lockstep-provider", "--features", "fault-injection"]);
            soon_built(build.arg("--target-dir").arg(fault_target()));
            &[("liblockstep.so", "lockstep.so")]
        }
    };
    // Cargo's progress is worth seeing: this takes a minute or two.
    loudly(&mut build)?;
    let built = match flavour {
        Flavour::Release => target_directory(),
        Flavour::FaultInjection => fault_target(),
    };
    for (from, to) in artifacts {
        replace(&built.join("release").join(from), &directory.join(to))?;
    }
    let configuration = configuration(&directory.join("lockstep.so"))?;
    let path = directory.join("openssl.cnf");
    fs::write(&path, configuration).map_err(on(&path, "write"))?;
    Ok(Dist {
        directory: directory.clone(),
    })
}

/// Has a build take little time: no speed is measured with what it makes.
pub fn soon_built(build: &mut Command) -> &mut Command {
    build
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
}

/// Where cargo leaves what is built with fault points: never beside a release.
pub fn fault_target() -> PathBuf {
    target_directory().join("fault-injection")
}

/// Puts a file in place under a new inode: a running program may have the old one mapped.
fn replace(from: &Path, to: &Path) -> Outcome {
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).map_err(on(from, "copy"))?;
    fs::rename(&fresh, to).map_err(on(to, "replace"))
}

/// The text of an `openssl.cnf` that loads the module at this path and prefers it.
///
/// It includes the system's own file, so that everything else stays as the distribution has it
/// (sections and policies), and adds to the sections which that file names. Sections of one name
/// merge in OpenSSL's format, and of two settings of one name the later one holds (config(5)).
fn configuration(module: &Path) -> Outcome<String> {
    let system = system_configuration()?;
    let text = fs::read_to_string(&system).unwrap_or_default();
    let named = |section: &str, name: &str| setting(&text, section, name);
    let init = named("default", "openssl_conf").unwrap_or("openssl_init");
    let providers = named(init, "providers").unwrap_or("lockstep_providers");
    let properties = named(init, "alg_section").unwrap_or("lockstep_properties");
    let default = named(providers, "default").unwrap_or("lockstep_default");
    let ours = "?lockstep.fast=yes,?lockstep.keys!=yes";
    let query = match named(properties, "default_properties") {
        Some(theirs) => format!("{theirs},{ours}"),
        None => ours.to_owned(),
    };
    let include = if system.exists() {
        format!(".include = {}\n", system.display())
    } else {
        String::new()
    };
    let module = module.display().to_string();
    if module.contains(['$', '#', '\\', '"', '\'']) {
        return Err(
            Failure::new(format!("openssl.cnf cannot express the path {module}"))
                .remedy("move the project to a path without $ # \\ \" '"),
        );
    }
    Ok(format!(
        "# Written by `cargo xtask dist`: the system's configuration, with lockstep loaded.
# Use it with OPENSSL_CONF=<this file>. The path of the module below is absolute.
{include}
[default]
openssl_conf = {init}

[{init}]
providers = {providers}
alg_section = {properties}

[{providers}]
default = {default}
lockstep = lockstep_module

[{default}]
activate = 1

[lockstep_module]
module = {module}
activate = 1

# Prefer what lockstep does on lanes, but leave keys to the provider that made them.
[{properties}]
default_properties = {query}
"
    ))
}

/// The configuration file that OpenSSL reads when none is named.
fn system_configuration() -> Outcome<PathBuf> {
    let told = quietly(&mut openssl(["version", "-d"]))?;
    let directory = told
        .trim()
        .strip_prefix("OPENSSLDIR: \"")
        .and_then(|s| s.strip_suffix('"'));
    directory
        .map(|directory| Path::new(directory).join("openssl.cnf"))
        .ok_or_else(|| {
            Failure::new(format!(
                "`openssl version -d` said {told:?}, which names no directory"
            ))
        })
}

/// The last value that a configuration gives to a name in a section; included files do not count.
fn setting<'a>(text: &'a str, section: &str, name: &str) -> Option<&'a str> {
    let mut current = "default";
    let mut found = None;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            current = header.trim();
        } else if let Some((key, value)) = line.split_once('=')
            && current == section
            && key.trim() == name
        {
            found = Some(value.trim());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_takes_the_last_value_of_its_section() {
        let text =
            "openssl_conf = a # comment\n[ a ]\nproviders = p\n[b]\nproviders=q\n[a]\nproviders =r";
        assert_eq!(setting(text, "default", "openssl_conf"), Some("a"));
        assert_eq!(setting(text, "a", "providers"), Some("r"));
        assert_eq!(setting(text, "b", "providers"), Some("q"));
        assert_eq!(setting(text, "b", "alg_section"), None);
    }

    #[test]
    fn configuration_names_the_module_once() {
        let text = configuration(Path::new("/somewhere/lockstep.so")).unwrap();
        assert_eq!(text.matches("module = /somewhere/lockstep.so").count(), 1);
        assert!(text.contains("?lockstep.fast=yes,?lockstep.keys!=yes"));
    }

    #[test]
    fn paths_that_openssl_would_expand_are_refused() {
        assert!(configuration(Path::new("/some$where/lockstep.so")).is_err());
    }
}
