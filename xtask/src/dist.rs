//! `cargo xtask dist`: the module, the command and the configuration that loads the module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::command::{
    Failure, Outcome, build_as_tests, cargo, cargo_home, loudly, on, quietly, root,
    target_directory,
};
use crate::commit::{self, Commit};
use crate::setup;

/// What to build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Release,
    /// With the fault points that only tests may have, and built by the tests' profile: not
    /// optimised, but for the kernels. Without the command.
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

    pub fn module(&self) -> PathBuf {
        self.directory.join("lockstep.so")
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
        loudly(release().args(["-p", "lockstep-bench"]))?;
        release_file("lockstep-bench", &self.benchmarks())?;
        Ok(self)
    }

    /// A counter of all processes that counted into a directory, also of those that have ended.
    pub fn total(&self, name: &str, counters: &Path) -> Outcome<u64> {
        let mut stat = Command::new(self.command());
        stat.args(["stat", "--ended", "--total", name, "--dir"]);
        let text = quietly(stat.arg(counters).env_remove("OPENSSL_CONF"))?;
        let number = text.trim().parse();
        number.map_err(|_| Failure::new(format!("`lockstep stat` printed {text:?}")))
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

/// `cargo build` of a release: the same bytes in whatever directory the workspace stands, and
/// cargo's own.
fn release() -> Command {
    // The first word has the list of all crates written into the file.
    let audited = setup::has_auditable().then_some("auditable");
    let mut build = cargo(
        audited
            .into_iter()
            .chain(["build", "--release", "--locked"]),
    );
    let flag = |directory: PathBuf, name| {
        let flag = format!("--remap-path-prefix={}=/{name}", directory.display());
        format!("build.rustflags=[{flag:?}]")
    };
    // Cargo adds these to the flags of its configuration; RUSTFLAGS would replace those.
    build.arg("--config").arg(flag(root(), "lockstep"));
    build.arg("--config").arg(flag(cargo_home(), "cargo"));
    build
}

/// Builds the module and the command, with more arguments. Each alone needs fewer features of some
/// crates: for that cargo would build the kernels once more. They are linked one after the other:
/// cargo-auditable names a file by the crate, and both crates are called `lockstep`.
fn release_both(arguments: &[&str]) -> Outcome {
    for target in ["--lib", "--bins"] {
        let mut build = release();
        build.args(["-p", "lockstep-provider", "-p", "lockstep-cli", target]);
        loudly(build.args(arguments))?;
    }
    Ok(())
}

/// The module in `dist/`.
pub fn module() -> PathBuf {
    root().join("dist/lockstep.so")
}

/// Builds `dist/`.
pub fn build() -> Outcome<Dist> {
    build_into(&root().join("dist"), Flavour::Release)
}

/// Builds the module with fault points, which tests load.
pub fn faulty() -> Outcome<Dist> {
    build_into(
        &target_directory().join("dist-faults"),
        Flavour::FaultInjection,
    )
}

/// Builds the module that `lockstep-trace` runs. It is built as the release is, but for one
/// feature: text chooses RSA's order of work, and has every pass of signatures checked, because a
/// random choice would differ between two runs. It is never built beside the release, as both are
/// one file to cargo.
pub fn laboratory() -> Outcome<Dist> {
    let target = target_directory().join("laboratory");
    let mut build = release();
    build.args(["-p", "lockstep-provider", "-p", "lockstep-cli", "--lib"]);
    build.args(["--features", "lockstep-provider/laboratory"]);
    loudly(build.arg("--target-dir").arg(&target))?;
    let directory = target.join("dist");
    place_module(&target.join("release/liblockstep.so"), &directory)?;
    Ok(Dist { directory })
}

/// Builds into a directory of the caller's choice.
pub fn build_into(directory: &Path, flavour: Flavour) -> Outcome<Dist> {
    let directory = &std::path::absolute(directory).map_err(on(directory, "find"))?;
    fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    let module = directory.join("lockstep.so");
    match flavour {
        Flavour::Release => {
            // Cargo's progress is worth seeing: this takes a minute or two.
            release_both(&[])?;
            release_file("lockstep", &directory.join("lockstep"))?;
            release_file("liblockstep.so", &module)?;
        }
        Flavour::FaultInjection => {
            build_as_tests(&["--lib"])?;
            replace(&target_directory().join("debug/liblockstep.so"), &module)?;
        }
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
    release_file("lockstep", &directory.join("lockstep"))
}

/// Puts a file of a release in place, with the commit in it where one is known.
fn release_file(name: &str, to: &Path) -> Outcome {
    let from = target_directory().join("release").join(name);
    let commit = Commit::of(&root()).and_then(|commit| commit.shown());
    in_one_step(to, |fresh| {
        fs::copy(&from, fresh).map_err(on(&from, "copy"))?;
        commit.map_or(Ok(()), |commit| commit::write(&commit, fresh))
    })
}

/// Has a build take little time: no speed is measured with what it makes.
pub fn soon_built(build: &mut Command) -> &mut Command {
    build
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
}

/// Builds the module with fault points, optimised; the caller adds flags of cargo and, behind `--`,
/// of the compiler.
pub fn instrumented_module() -> Command {
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
    soon_built(build.arg("--target-dir").arg(instrumented_target()));
    build
}

/// Where cargo leaves what is built with flags of a caller: never beside a release.
fn instrumented_target() -> PathBuf {
    target_directory().join("instrumented")
}

/// The module that [`instrumented_module`] builds.
pub fn instrumented() -> PathBuf {
    instrumented_target().join("release/liblockstep.so")
}

/// Puts a file in place under a new inode: a running program may have the old one mapped.
fn replace(from: &Path, to: &Path) -> Outcome {
    in_one_step(to, |fresh| {
        fs::copy(from, fresh).map(drop).map_err(on(from, "copy"))
    })
}

/// Has `make` write a file beside `to`, and renames it: nobody sees a part of it, and it shares its
/// name with no other process that does the same.
fn in_one_step(to: &Path, make: impl FnOnce(&Path) -> Outcome) -> Outcome {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let mut fresh = to.as_os_str().to_owned();
    fresh.push(format!(".{}-{number}.new", std::process::id()));
    let fresh = Path::new(&fresh);
    // A module that is cut off ends every program that loads it, so it is on the disk before it has
    // its name.
    let synced = || {
        let file = fs::File::open(fresh).map_err(on(fresh, "open"))?;
        file.sync_all().map_err(on(fresh, "write"))
    };
    let made = make(fresh).and_then(|()| synced());
    let made = made.and_then(|()| fs::rename(fresh, to).map_err(on(to, "replace")));
    if made.is_err() {
        let _ = fs::remove_file(fresh);
    }
    made
}

/// Writes the `openssl.cnf` that loads the module of this directory. The command makes it, as it
/// reads the system's own file with libcrypto's parser.
fn configure(directory: &Path) -> Outcome {
    release_both(&["--quiet"])?;
    let path = directory.join("openssl.cnf");
    let mut print = Command::new(target_directory().join("release/lockstep"));
    print
        .args(["configuration", "--module"])
        .arg(directory.join("lockstep.so"))
        .env_remove("OPENSSL_CONF");
    match quietly(&mut print) {
        Ok(text) => in_one_step(&path, |fresh| {
            fs::write(fresh, text).map_err(on(fresh, "write"))
        }),
        Err(failure) => {
            // No older one stays where this system's configuration leaves lockstep no place.
            let _ = fs::remove_file(&path);
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Failure;
    use std::thread;

    #[test]
    fn files_put_in_place_at_the_same_time_are_whole_and_where_they_belong() {
        let directory = std::env::temp_dir().join(format!("lockstep-dist-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        // Names that differ in their endings only, as the module's and the command's do.
        let files = ["lockstep.so", "lockstep"].map(|name| {
            let text = name.repeat(100_000);
            let (from, to) = (
                directory.join(format!("{name}.built")),
                directory.join(name),
            );
            fs::write(&from, &text).unwrap();
            fs::write(&to, &text).unwrap();
            (from, to, text)
        });
        thread::scope(|scope| {
            for (from, to, text) in files.iter().chain(&files) {
                scope.spawn(move || {
                    for _ in 0..50 {
                        replace(from, to).unwrap();
                        assert!(fs::read_to_string(to).unwrap() == *text);
                    }
                });
            }
        });
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 4, "temporary files are left");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_fails_leaves_the_old_file_and_nothing_beside_it() {
        let directory = std::env::temp_dir().join(format!("lockstep-fail-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let to = directory.join("lockstep");
        fs::write(&to, "old").unwrap();
        assert!(replace(&directory.join("none"), &to).is_err());
        let half = in_one_step(&to, |fresh| {
            fs::write(fresh, "half").map_err(on(fresh, "write"))?;
            Err(Failure::new("no space"))
        });
        assert!(half.is_err());
        assert_eq!(fs::read_to_string(&to).unwrap(), "old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
