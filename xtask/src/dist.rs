//! `cargo xtask dist`: the module, the command and the configuration that loads the module.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Outcome, cargo, loudly, on, quietly, root, target_directory};

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

    /// The program that measures, where [`add_benchmarks`](Self::add_benchmarks) has built it.
    pub fn benchmarks(&self) -> PathBuf {
        self.directory.join("lockstep-bench")
    }

    /// Builds the program that measures, too.
    ///
    /// Cargo unites the features of all packages that one command builds, and this package asks for
    /// more of the kernels than the module may have: it has a command of its own.
    pub fn add_benchmarks(self) -> Outcome<Dist> {
        loudly(&mut cargo([
            "build",
            "--release",
            "--locked",
            "-p",
            "lockstep-bench",
        ]))?;
        let built = target_directory().join("release/lockstep-bench");
        replace(&built, &self.benchmarks())?;
        Ok(self)
    }

    /// Says what is there and how to use it.
    pub fn announce(&self) {
        let shown = self
            .directory
            .strip_prefix(root())
            .unwrap_or(&self.directory)
            .display();
        print!("{shown}/lockstep.so {shown}/lockstep {shown}/openssl.cnf");
        match self.benchmarks().exists() {
            true => println!(" {shown}/lockstep-bench"),
            false => println!(),
        }
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
    configure(directory)?;
    Ok(Dist {
        directory: directory.clone(),
    })
}

/// Puts a module that was built elsewhere into a directory, with the command and a configuration.
pub fn place_module(built: &Path, directory: &Path) -> Outcome {
    fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    replace(built, &directory.join("lockstep.so"))?;
    configure(directory)?;
    let command = target_directory().join("release/lockstep");
    replace(&command, &directory.join("lockstep"))
}

/// Has a build take little time: no speed is measured with what it makes.
pub fn soon_built(build: &mut Command) -> &mut Command {
    build
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
}

/// Builds the module with fault points, in little time; the caller adds flags of cargo and, behind
/// `--`, of the compiler.
pub fn fault_module() -> Command {
    let mut build = cargo([
        "rustc",
        "--release",
        "--locked",
        "--package",
        "lockstep-provider",
        "--lib",
        "--features",
        "fault-injection",
    ]);
    soon_built(build.arg("--target-dir").arg(fault_target()));
    build
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

/// Writes the `openssl.cnf` that loads the module of this directory. The command makes it, as it
/// reads the system's own file with libcrypto's parser.
fn configure(directory: &Path) -> Outcome {
    loudly(&mut cargo([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "lockstep-cli",
    ]))?;
    let path = directory.join("openssl.cnf");
    // No older one stays where this system's configuration leaves lockstep no place.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(on(&path, "remove")(error));
        }
        _ => {}
    }
    let mut print = Command::new(target_directory().join("release/lockstep"));
    print
        .args(["configuration", "--module"])
        .arg(directory.join("lockstep.so"))
        .env_remove("OPENSSL_CONF");
    let text = quietly(&mut print)?;
    fs::write(&path, text).map_err(on(&path, "write"))
}
