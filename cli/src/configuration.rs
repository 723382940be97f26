//! `lockstep configuration`: prints an `openssl.cnf` that loads the module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lockstep_common::{Effective, Failure, Outcome, beside, out};

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
    let text = system.with_module(&absolute(&module)?)?;
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
