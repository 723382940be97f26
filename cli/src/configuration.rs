//! `lockstep configuration`, and the configuration by which OpenSSL programs load the module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::effective::{Effective, Provider};
use crate::module_file::damage;
use crate::probe::{About, probe};
use crate::{Failure, Outcome};

const HELP: &str = "\
Prints an openssl.cnf that loads the module, beside everything that the system's own file has.

Usage: lockstep configuration [--module FILE] [--from FILE]

It refuses where lockstep has no place: with FIPS, with properties that its algorithms do not have, or
where the default provider is not to be used.

Options:
  --module FILE  the module (default: lockstep.so beside this program)
  --from FILE    the configuration to add it to (default: the one that OpenSSL reads by itself)
";

/// Runs the command with the arguments behind its name.
pub fn main(mut arguments: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let mut module = None;
    let mut from = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("module") => module = Some(PathBuf::from(arguments.value()?)),
            Long("from") => from = Some(PathBuf::from(arguments.value()?)),
            Short('h') | Long("help") => {
                out!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let module = module.or_else(|| beside("lockstep.so")).ok_or_else(|| {
        Failure::new("there is no lockstep.so beside this program")
            .remedy("name the module with --module")
    })?;
    let absolute = |path: &Path| {
        std::path::absolute(path)
            .map_err(|error| Failure::new(format!("cannot find {}: {error}", path.display())))
    };
    let system = match from {
        Some(from) => Effective::read(&absolute(&from)?)?,
        None => match system_configuration()? {
            path if path.exists() => Effective::read(&path)?,
            path => Effective::none(path),
        },
    };
    let text = system.with_module(&absolute(&module)?)?;
    // Some distributions turn FIPS on by other means than a configuration.
    if probe(&system.path, About::Nobody)?.fips {
        return Err(Failure::new(format!(
            "OpenSSL turns FIPS on with {}. Lockstep is not a FIPS module",
            system.path.display()
        ))
        .remedy("leave this system's programs to OpenSSL's own code"));
    }
    out!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// The configuration that OpenSSL reads when none is named.
fn system_configuration() -> Result<PathBuf, Failure> {
    let told = openssl::version::dir();
    let directory = told
        .strip_prefix("OPENSSLDIR: \"")
        .and_then(|directory| directory.strip_suffix('"'));
    directory
        .map(|directory| Path::new(directory).join("openssl.cnf"))
        .ok_or_else(|| {
            Failure::new(format!(
                "libcrypto names no directory for its configuration: {told}"
            ))
            .remedy("name the configuration with --from")
        })
}

/// The configuration that is looked at.
pub struct Configuration {
    pub effective: Effective,
    /// Whether the environment names it.
    pub in_use: bool,
}

impl Configuration {
    /// The one that the environment names, or else the one beside this program.
    pub fn find() -> Result<Configuration, Failure> {
        let named = std::env::var_os("OPENSSL_CONF").map(PathBuf::from);
        let in_use = named.is_some();
        let path = match named {
            Some(path) => path,
            None => beside("openssl.cnf").ok_or_else(|| {
                Failure::new(
                    "OPENSSL_CONF is not set and there is no openssl.cnf beside this program",
                )
                .remedy("cargo xtask dist, then OPENSSL_CONF=dist/openssl.cnf dist/lockstep doctor")
            })?,
        };
        Configuration::at(&path, in_use)
    }

    /// This one.
    pub fn at(path: &Path, in_use: bool) -> Result<Configuration, Failure> {
        let effective = Effective::read(path)?;
        Ok(Configuration { effective, in_use })
    }

    pub fn path(&self) -> &Path {
        &self.effective.path
    }

    /// The provider that is lockstep.
    pub fn provider(&self) -> Option<Provider> {
        let mut providers = self.effective.providers().into_iter();
        providers.find(Provider::is_lockstep)
    }

    /// The module that it names, if that is one.
    pub fn module(&self) -> Result<PathBuf, Failure> {
        let shown = self.path().display();
        let Some(module) = self.provider().and_then(|provider| provider.module) else {
            return Err(
                Failure::new(format!("{shown} names no module lockstep.so")).remedy(
                    match beside("openssl.cnf") {
                        Some(path) => format!("OPENSSL_CONF={}", path.display()),
                        None => {
                            "let OPENSSL_CONF name the openssl.cnf that `cargo xtask dist` writes"
                                .to_owned()
                        }
                    },
                ),
            );
        };
        if !module.exists() {
            return Err(Failure::new(format!(
                "{shown} names {}, which is not there",
                module.display()
            ))
            .remedy("cargo xtask dist, or correct `module` in that file"));
        }
        match damage(&module) {
            None => Ok(module),
            Some(damage) => Err(Failure::new(format!(
                "{}, which {shown} names, {damage}",
                module.display()
            ))
            .remedy(
                "put the module there anew: cargo xtask dist --out DIR; every user may read it",
            )),
        }
    }
}

/// A file in the directory of this program.
pub fn beside(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let path = program.parent()?.join(name);
    path.is_file().then_some(path)
}
