//! Running other programs, and failures with their remedies.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The result of a task.
pub type Outcome<T = ()> = Result<T, Failure>;

/// An error, and the line to run about it where there is one.
#[derive(Debug)]
pub struct Failure {
    what: String,
    remedy: Option<String>,
    /// Whether it has been printed already.
    pub printed: bool,
}

impl Failure {
    /// A failure without a remedy.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            remedy: None,
            printed: false,
        }
    }

    /// The failure of a command that does not take the arguments it was given.
    pub fn unknown_arguments(command: &str) -> Failure {
        Failure::new(format!("`{command}` does not take these arguments"))
            .remedy("cargo xtask help")
    }

    /// The failure of a command that does not exist.
    pub fn unknown_command(command: &str) -> Failure {
        Failure::new(format!("unknown command `{command}`")).remedy("cargo xtask help")
    }

    /// Prints it now, so that other lines can close the output.
    pub fn print(mut self) -> Failure {
        println!("{self}");
        self.printed = true;
        self
    }

    /// Adds the remedy for the reader.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what.trim_end())?;
        match &self.remedy {
            Some(remedy) => write!(f, "\nremedy: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Runs a program with the arguments of this process, and prints its failure.
pub fn main(program: &str, run: fn(&[&str]) -> Outcome) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.printed {
                eprintln!("{program}: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// Where cargo keeps the sources of other crates.
pub fn cargo_home() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(home).unwrap_or_default()
}

/// A directory in the user's cache, made if need be: it outlives the clone.
pub fn user_cache(name: &str) -> Outcome<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")))
        .ok_or_else(|| Failure::new("neither XDG_CACHE_HOME nor HOME is set"))?;
    let directory = base.join("lockstep").join(name);
    fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
    Ok(directory)
}

/// A directory that is there and empty.
pub fn emptied(directory: &Path) -> Outcome {
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(on(directory, "empty"))?;
    }
    fs::create_dir_all(directory).map_err(on(directory, "create"))
}

/// The directory of cargo's build results.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// `cargo` with these words as arguments, in the workspace, free of the variables that the cargo
/// which started us set for us.
pub fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // An incremental build of the kernels takes half as long again the first time.
    if std::env::var_os("CARGO_INCREMENTAL").is_none() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    without_own_variables(&mut command);
    command
}

/// Frees a command of the variables that the cargo which started us set for us.
pub fn without_own_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
}

/// A program of the nightly toolchain.
pub fn nightly(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .arg("+nightly")
        .args(arguments)
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(root())
        .stdin(Stdio::null());
    command
}

/// A cargo command on the whole workspace as its tests are built: with fault points, and with every
/// command of `lockstep-bench`.
///
/// Cargo builds the kernels once more for any other choice of packages or features, which takes
/// longer than most tests.
pub fn cargo_workspace(subcommand: &str) -> Command {
    let mut command = cargo([subcommand, "--workspace", "--locked", "--features"]);
    let packages = ["kernels", "engine", "provider"];
    let features = packages.map(|package| format!("lockstep-{package}/fault-injection,"));
    command.arg(features.concat() + "lockstep-bench/cycles");
    command
}

/// Builds targets of the workspace as its tests are built, so that nothing is built twice.
pub fn build_as_tests(targets: &[&str]) -> Outcome {
    let mut build = cargo_workspace("build");
    // With any test among the targets, cargo gives all crates the features that only tests need.
    build.args(["--profile", "test", "--test", "secret"]);
    loudly(build.args(targets))
}

/// The output of `cargo metadata` with more arguments.
pub fn metadata(arguments: &[&str]) -> Outcome<Value> {
    let mut metadata = cargo(["metadata", "--format-version=1"]);
    let text = quietly(metadata.args(arguments))?;
    serde_json::from_str(&text).map_err(|error| Failure::new(format!("cargo metadata: {error}")))
}

/// `openssl` with these words as arguments and with the system's own configuration.
pub fn openssl(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new("openssl");
    command
        .args(arguments)
        .env_remove("OPENSSL_CONF")
        .env_remove("OPENSSL_MODULES");
    command
}

/// Compiles a C program of the repository for the system's OpenSSL; the arguments stand behind it.
pub fn compile<'a>(
    source: &str,
    program: &Path,
    arguments: impl IntoIterator<Item = &'a OsStr>,
) -> Outcome {
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-o"]);
    compiler.arg(program).arg(root().join(source));
    quietly(compiler.args(arguments)).map(drop)
}

/// Runs a command to its end, keeping quiet unless it fails.
///
/// Returns its standard output. Its failure carries all it printed.
pub fn quietly(command: &mut Command) -> Outcome<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| cannot_run(command, &error))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    Err(Failure::new(format!(
        "{} failed ({}):\n{stdout}{}",
        describe(command),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )))
}

/// Fails unless a command with a planted defect fails with one of these reports.
pub fn must_fail(command: &mut Command, defect: &str, reports: &[&str]) -> Outcome {
    match quietly(command) {
        Err(failure) => {
            let said = failure.to_string();
            let is_it = reports.iter().any(|report| said.contains(report));
            if is_it { Ok(()) } else { Err(failure) }
        }
        Ok(_) => Err(Failure::new(format!(
            "the planted defect `{defect}` was not found"
        ))),
    }
}

/// Runs a command for so long at most, its output going to a file. Returns how it ended, or `None`
/// if it had to be killed, and its output.
pub fn within(
    limit: Duration,
    file: &Path,
    command: &mut Command,
) -> Outcome<(Option<ExitStatus>, String)> {
    let output = File::create(file).map_err(on(file, "create"))?;
    let errors = output.try_clone().map_err(on(file, "open"))?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let status = ends_within(limit, command)?;
    let text = fs::read(file).map_err(on(file, "read"))?;
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

/// Runs a command for so long at most. Returns how it ended, or `None` if it had to be killed.
pub fn ends_within(limit: Duration, command: &mut Command) -> Outcome<Option<ExitStatus>> {
    let failed = |command: &Command, error| cannot_run(command, &error);
    let mut child = command.spawn().map_err(|error| failed(command, error))?;
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait().map_err(|error| failed(command, error))? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() > deadline => {
                // It may have ended by itself just now.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Runs a command to its end, its output going where ours goes.
pub fn loudly(command: &mut Command) -> Outcome {
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| cannot_run(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} failed ({status})",
        describe(command)
    )))
}

/// Whether this command can be run and succeeds.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The same command, which the kernel ends if this process is killed before it can do so.
pub fn ending_with_us(command: Command) -> Command {
    if !succeeds("setpriv", &["--pdeathsig", "KILL", "true"]) {
        return command;
    }
    let mut wrapped = Command::new("setpriv");
    wrapped
        .args(["--pdeathsig", "KILL"])
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}

/// A port on 127.0.0.1 that nobody listens on now.
pub fn free_port() -> Outcome<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(format!("no free port on 127.0.0.1: {error}")))
}

/// The failure of a program that could not be started.
pub fn cannot_run(command: &Command, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot run {}: {error}", describe(command))).remedy("cargo xtask setup")
}

/// Fails if one of the names that a command was given is unknown.
pub fn insist_on_known(names: &[&str], known: &[&str], remedy: &str) -> Outcome {
    match names.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(unknown) => {
            let known = known.join(", ");
            let failure = Failure::new(format!("`{unknown}` is not one of {known}"));
            Err(failure.remedy(remedy))
        }
    }
}

/// Prints a line for each name. A reader may take the first ones and go.
pub fn list<T: AsRef<str>>(names: impl Iterator<Item = T>) -> Outcome {
    let lines: String = names.map(|name| format!("{}\n", name.as_ref())).collect();
    match std::io::stdout().write_all(lines.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says which file an operation failed on.
pub fn on<'a>(path: &'a Path, verb: &'a str) -> impl FnOnce(std::io::Error) -> Failure + 'a {
    move |error| Failure::new(format!("cannot {verb} {}: {error}", path.display()))
}

fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_defect_must_be_found_by_its_report() {
        let fails = |script: &str| {
            let mut shell = Command::new("sh");
            must_fail(shell.args(["-c", script]), "a defect", &["one", "another"])
        };
        assert!(fails("echo another report; exit 1").is_ok());
        assert!(fails("echo a report; exit 1").is_err());
        let missed = fails("echo one").unwrap_err().to_string();
        assert!(missed.contains("`a defect` was not found"));
    }
}
