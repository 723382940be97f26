//! `lockstep configuration`: prints an `openssl.cnf` that loads the module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lockstep_common::{Effective, Failure, Outcome, Properties, beside, out, quoted};

use crate::probe::{About, probe};

const HELP: &str = "\
Prints an openssl.cnf that loads the module and keeps everything that the system's own file has.

Usage: lockstep configuration [--module FILE] [--from FILE]

It prints nothing, and says why, where lockstep must not be used: where FIPS is on, where the
configuration requires a property that lockstep's algorithms do not have, and where it activates other
providers but not the default one.

Options:
  --module FILE  the module (default: lockstep.so beside this program)
  --from FILE    the configuration to add it to (default: the one that OpenSSL reads by itself)
";

/// What has OpenSSL prefer lockstep's algorithms, and leave keys to the provider that made them.
const PREFERENCE: &str = "?lockstep.fast=yes,?lockstep.keys!=yes";

/// What the command line asks for.
#[derive(Default)]
struct Options {
    module: Option<PathBuf>,
    from: Option<PathBuf>,
}

impl Options {
    /// `None` if help is wanted.
    fn parse(mut arguments: lexopt::Parser) -> Result<Option<Options>, lexopt::Error> {
        use lexopt::prelude::*;
        let mut options = Options::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("module") => options.module = Some(arguments.value()?.into()),
                Long("from") => options.from = Some(arguments.value()?.into()),
                Short('h') | Long("help") => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(options))
    }
}

/// Runs the command with the arguments behind its name.
pub fn main(arguments: lexopt::Parser) -> Outcome {
    let Some(Options { module, from }) = Options::parse(arguments).map_err(Failure::usage)? else {
        out!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let module = module.or_else(|| beside("lockstep.so")).ok_or_else(|| {
        Failure::new(
            "there is no lockstep.so beside this program, so it does not know which module to load",
        )
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
    let text = with_module(&system, &absolute(&module)?)?;
    // Some distributions turn FIPS on by other means than a configuration.
    if probe(&system.path, About::Nobody)?.fips {
        return Err(Failure::new(format!(
            "with {}, OpenSSL uses FIPS providers only. Lockstep is not a FIPS provider",
            system.path.display()
        ))
        .remedy("leave this system's programs to OpenSSL's own code"));
    }
    out!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// The configuration that OpenSSL reads when none is named.
fn system_configuration() -> Result<PathBuf, Failure> {
    let reported = openssl::version::dir();
    let directory = reported
        .strip_prefix("OPENSSLDIR: \"")
        .and_then(|directory| directory.strip_suffix('"'));
    directory
        .map(|directory| Path::new(directory).join("openssl.cnf"))
        .ok_or_else(|| {
            Failure::new(format!(
                "libcrypto names no directory for its configuration: {reported}"
            ))
            .remedy("name the configuration with --from")
        })
}

/// The text of a configuration that is the system's, with the module added.
fn with_module(system: &Effective, module: &Path) -> Result<String, Failure> {
    let shown = system.path.display();
    if let Some(refusal) = system.refusal() {
        return Err(refusal);
    }
    let providers = system.providers();
    if let Some(there) = providers.iter().find(|provider| provider.is_lockstep()) {
        return Err(Failure::new(format!(
            "{shown} loads lockstep already, by its section [{}]",
            there.section
        ))
        .remedy("name the configuration that lockstep is to be added to with --from"));
    }
    let init = system.init().unwrap_or("lockstep_init");
    // Once a provider is activated, OpenSSL does not activate the default one by itself any more.
    let default = match providers.iter().find(|provider| provider.name == "default") {
        Some(theirs) if theirs.active => String::new(),
        Some(theirs) => format!("\n[{}]\nactivate = 1\n", theirs.section),
        None => "\n[lockstep_default]\nactivate = 1\n".to_owned(),
    };
    let listed = match providers.iter().any(|provider| provider.name == "default") {
        true => "",
        false => "default = lockstep_default\n",
    };
    let module = quoted(&module.display().to_string())?;
    let include = match system.path.exists() {
        true => format!(
            ".include = {}\n",
            quoted(&system.path.display().to_string())?
        ),
        false => String::new(),
    };
    let properties = |query: &str| {
        format!(
            "[{init}]
alg_section.lockstep = lockstep_properties

# Prefer what lockstep does on lanes, but leave keys to the provider that made them.
[lockstep_properties]
default_properties = {query}

"
        )
    };
    // Before what the system has, so that it adds to this or replaces it, should it ever have
    // some. After it, where the system's own line would replace this.
    let (before, after) = match system.query() {
        None => (properties(PREFERENCE), String::new()),
        Some(Properties { section, line }) => {
            let query = match is_word(section) {
                true => format!("${{{section}::{}}},{PREFERENCE}", line.name),
                false => quoted(&format!("{},{PREFERENCE}", line.value))?,
            };
            (String::new(), properties(&query))
        }
    };
    Ok(format!(
        "# Written by `lockstep configuration`: {shown} with lockstep loaded.
# Use it with OPENSSL_CONF=<this file>. Paths are absolute.
openssl_conf = {init}

{before}[default]
{include}
{after}# Beside the providers of that file, and after them.
[{init}]
providers.lockstep = lockstep_providers

[lockstep_providers]
{listed}lockstep = lockstep_module
{default}
[lockstep_module]
module = {module}
activate = 1
"
    ))
}

/// Whether a variable can refer to a section of this name.
fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
