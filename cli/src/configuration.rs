//! `lockstep configuration`: prints an `openssl.cnf` that loads the module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lockstep_common::{Effective, Failure, Outcome, Properties, damage, out, own_module, quoted};

use crate::generated::made;
use crate::probe::{About, probe};
use crate::trial::accepted;

/// Prints an openssl.cnf that loads the module and keeps all that the system's own file has
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// The module [default: lockstep.so beside this program, or the package's]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// The configuration to add it to [default: the one that OpenSSL reads by itself]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

const NOTES: &str = "\
It prints nothing, and says why, where lockstep must not be used: where FIPS is on, where the
configuration requires a property that lockstep's algorithms do not have, and where it activates
other providers but not the default one.

Examples:
  lockstep configuration > openssl.cnf
  OPENSSL_CONF=$PWD/openssl.cnf openssl s_server -cert site.crt -key site.key

Files:
  /etc/ssl/openssl.cnf, /etc/pki/tls/openssl.cnf   the system's, which it adds to";

/// Byte order mark in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The section of the module and of its settings.
const MODULE: &str = "lockstep_module";

/// Maximum number of the system's optional clauses that lockstep's clauses outweigh. It is the
/// number of the properties from `lockstep.lanes` to `lockstep.lanes8`, which lockstep's operations
/// have (`FAST` in provider/src/overlay/offers.rs).
pub const MOST_OTHERS: usize = 8;

/// Returns the clauses with which OpenSSL prefers lockstep's algorithms and leaves keys to the
/// provider that made them, if the system has `others` optional clauses of its own.
///
/// OpenSSL takes the algorithm that meets most optional clauses, and of equal ones the first that
/// was loaded. All algorithms but lockstep's meet one of these clauses, lockstep's key generation
/// meets two, and its operations meet all, which are at least two more than the system has. So
/// clauses of the system about another provider do not keep operations from the lanes, and that
/// provider still makes its keys itself.
pub fn preference(others: usize) -> String {
    let more = (2..=others.min(MOST_OTHERS)).map(|number| format!("?lockstep.lanes{number}=yes,"));
    let more: String = more.collect();
    format!("?lockstep.fast=yes,?lockstep.lanes=yes,{more}?lockstep.keys!=yes")
}

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path)
            .map_err(|error| Failure::new(format!("cannot find {}: {error}", path.display())))
    };
    let module = options.module.as_ref().map_or_else(own_module, absolute)?;
    let from = options.from.as_ref().map(absolute).transpose()?;
    // The parser of some versions takes a directory for an empty file.
    if let Some(directory) = from.as_ref().filter(|from| from.is_dir()) {
        return Err(
            Failure::new(format!("{} is a directory", directory.display()))
                .remedy("name a file with --from"),
        );
    }
    let text = configuration(&module, from.as_deref(), Path::new("/"))?;
    let what = match module.exists() {
        true => damage(&module),
        false => Some("is not there".to_owned()),
    };
    if let Some(what) = what {
        return Err(
            Failure::new(format!("the module {} {what}", module.display()))
                .remedy("name a file lockstep.so with --module"),
        );
    }
    accepted("the new configuration", &text, Path::new("/"))?;
    out!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// Makes the text of a configuration that loads this module, from the file at `from` or from the
/// file that OpenSSL reads by default. Both are under `root`.
pub fn configuration(module: &Path, from: Option<&Path>, root: &Path) -> Result<String, Failure> {
    let path = from.map_or_else(system_configuration, |from| Ok(from.to_owned()))?;
    let file = root.join(path.strip_prefix("/").unwrap_or(&path));
    let is_there = from.is_some() || file.exists();
    let mut system = match from {
        Some(_) => Effective::read(&file)?,
        None => Effective::if_there(&file)?,
    };
    system.path = path;
    insist_on_no_mark(&file)?;
    let text = with_module(&system, is_there, module)?;
    // Some distributions turn FIPS on by other means than a configuration.
    if probe(&file, &About::Nobody)?.fips {
        return Err(Failure::new(format!(
            "with {}, OpenSSL uses FIPS providers only. Lockstep is not a FIPS provider",
            system.path.display()
        ))
        .remedy("leave this system's programs to OpenSSL's own code"));
    }
    Ok(text)
}

/// Fails where a file that lockstep's configuration includes begins with a byte order mark.
pub fn insist_on_no_mark(file: &Path) -> Result<(), Failure> {
    if !fs::read(file).is_ok_and(|text| text.starts_with(MARK)) {
        return Ok(());
    }
    // sed would replace a link by a file.
    let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let real = real.display().to_string().replace('\'', r"'\''");
    let shown = file.display();
    Err(Failure::new(format!(
        "{shown} begins with a byte order mark, which OpenSSL skips in the file that it is told to \
         load, but not in one that this file includes. So programs with lockstep would load nothing \
         of {shown}"
    ))
    .remedy(format!(r"remove the mark: sed -i '1s/^\xef\xbb\xbf//' '{real}'")))
}

/// The configuration that OpenSSL reads when none is named.
pub fn system_configuration() -> Result<PathBuf, Failure> {
    match lockstep_conf::installed() {
        Ok(openssl) => Ok(openssl.directory.join("openssl.cnf")),
        Err(error) => Err(Failure::new(format!(
            "OpenSSL does not say where its configuration is: {error}"
        ))
        .remedy("install OpenSSL 3.0 or later, or name the configuration with --from")),
    }
}

/// The text of a configuration that includes the system's, if `is_there`, and adds the module. The
/// module's section is the last one, because settings of the module are written at the end.
///
/// Programs in which the module is not active read this file too: it did not load, or they have
/// another library context, or they ask for another provider. So no line here may need the module.
/// A list of TLS groups would need it: libssl refuses a list with a group that only the module has,
/// and leaves an error behind for each `SSL_CTX_new`.
fn with_module(system: &Effective, is_there: bool, module: &Path) -> Result<String, Failure> {
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
    let theirs = providers.iter().find(|provider| provider.name == "default");
    let (listed, section) = match theirs {
        Some(theirs) => ("", theirs.section.as_str()),
        None => ("default = lockstep_default\n", "lockstep_default"),
    };
    let default = match theirs.is_some_and(|theirs| theirs.active) {
        true => String::new(),
        false => format!("\n[{section}]\nactivate = 1\n"),
    };
    let module = quoted(&module.display().to_string())?;
    let include = match is_there {
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
    // The clauses stand before the system's file, so that a line `default_properties` that the
    // file may get later extends or replaces them. If the file has such a line now, the clauses
    // stand after the file, because the line would replace them.
    let preference = preference(system.other_preferences().len());
    let (before, after) = match system.query() {
        None => (properties(&preference), String::new()),
        Some(Properties { section, line }) => {
            let query = match is_word(section) {
                true => format!("${{{section}::{}}},{preference}", line.name),
                false => quoted(&format!("{},{preference}", line.value))?,
            };
            (String::new(), properties(&query))
        }
    };
    let body = format!(
        "openssl_conf = {init}

{before}[default]
{include}
{after}# Beside the providers of that file, and after them.
[{init}]
providers.lockstep = lockstep_providers

[lockstep_providers]
{listed}lockstep = {MODULE}
{default}
[{MODULE}]
module = {module}
activate = 1
"
    );
    Ok(made(&system.path, &body))
}

/// Whether a variable can refer to a section of this name.
fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use lockstep_conf::File;
    use lockstep_testkit::TempDir;

    use super::*;

    /// Parses, by libcrypto, a configuration made from this one, with these lines at its end.
    fn added(system: &str, settings: &str) -> File {
        let place = TempDir::new("added");
        let (origin, path) = (place.join("system.cnf"), place.join("openssl.cnf"));
        fs::write(&origin, system).unwrap();
        let system = Effective::read(&origin).unwrap();
        let text = with_module(&system, true, Path::new("/x/lockstep.so")).unwrap();
        fs::write(&path, text + settings).unwrap();
        File::read(&path).unwrap()
    }

    #[test]
    fn what_stands_at_the_end_is_a_setting_of_the_module_and_policy_stays_the_systems() {
        let init = "openssl_conf = init\n[init]\n";
        let ssl = format!("{init}ssl_conf = ssl\n[ssl]\n");
        let policy = format!("{ssl}system_default = policy\n[policy]\n");
        for (system, lines) in [
            (String::new(), 0),
            (init.to_owned(), 0),
            (ssl, 0),
            (format!("{policy}MinProtocol = TLSv1.2\n"), 1),
            (format!("{policy}Groups = P-256\n"), 1),
        ] {
            let file = added(&system, "backend = none\nslots = 2\n");
            assert_eq!(file.value(MODULE, "backend"), Some("none"), "{system}");
            assert_eq!(file.value(MODULE, "slots"), Some("2"), "{system}");
            let policy = file.section("policy").unwrap_or_default();
            assert_eq!(policy.len(), lines, "{system}");
            let init = file.value("default", "openssl_conf").unwrap();
            let names = file.section(init).unwrap().iter().map(|line| &line.name);
            let ssl = names.filter(|name| name.starts_with("ssl_conf"));
            assert_eq!(ssl.count(), usize::from(system.contains("\nssl_conf")));
        }
    }
}
