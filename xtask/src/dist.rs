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

/// The kind of a build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// As it is shipped.
    Release,
    /// The same with the program that measures.
    Benchmarks,
    /// With the fault points that only tests may have, and built by the tests' profile: not
    /// optimised, but for the kernels. Without the command.
    FaultInjection,
}

/// A directory with the files of a build.
pub struct Dist {
    /// Where they are.
    pub directory: PathBuf,
}

impl Dist {
    /// The configuration that loads the module.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("openssl.cnf")
    }

    /// The module.
    pub fn module(&self) -> PathBuf {
        self.directory.join("lockstep.so")
    }

    /// The command `lockstep`.
    pub fn command(&self) -> PathBuf {
        self.directory.join("lockstep")
    }

    /// The program that measures, where it has been built.
    pub fn benchmarks(&self) -> PathBuf {
        self.directory.join(BENCHMARKS)
    }

    /// A counter of all processes that counted into a directory, also of the ones that have ended.
    pub fn total(&self, name: &str, counters: &Path) -> Outcome<u64> {
        let mut stat = Command::new(self.command());
        stat.args(["stat", "--ended", "--total", name, "--dir"]);
        let text = quietly(stat.arg(counters).env_remove("OPENSSL_CONF"))?;
        let number = text.trim().parse();
        number.map_err(|_| Failure::new(format!("`lockstep stat` printed {text:?}")))
    }

    /// Prints the files and how to use them.
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
    let build = ["build", "--locked", "--release"];
    let mut build = cargo(audited.into_iter().chain(build));
    without_places(&mut build);
    build
}

/// Has the compiler write other paths in place of those of the workspace, of the target directory
/// and of cargo's own files.
pub fn without_places(build: &mut Command) {
    let target = target_directory();
    // The last one counts if several match.
    for (directory, name) in [
        (root(), "lockstep"),
        (target, "target"),
        (cargo_home(), "cargo"),
    ] {
        let flag = format!("--remap-path-prefix={}=/{name}", directory.display());
        // Cargo adds these to the flags of its configuration; RUSTFLAGS would replace those.
        build.arg("--config");
        build.arg(format!("build.rustflags=[{flag:?}]"));
    }
}

const COMMAND: &str = "lockstep";
const BENCHMARKS: &str = "lockstep-bench";

/// Builds these targets of the module and the programs. All packages are chosen always: fewer would
/// need fewer features of some crates, for which cargo would build the kernels once more.
fn build_release(targets: &[&str]) -> Outcome {
    let mut build = release();
    for package in ["lockstep-provider", "lockstep-cli", "lockstep-bench"] {
        build.args(["--package", package]);
    }
    loudly(build.args(targets))
}

/// `dist/`.
pub fn directory() -> PathBuf {
    root().join("dist")
}

/// The module in `dist/`.
pub fn module() -> PathBuf {
    directory().join("lockstep.so")
}

/// Builds `dist/`.
pub fn build() -> Outcome<Dist> {
    build_into(&directory(), Flavour::Release)
}

/// Builds `dist/` with the program that measures.
pub fn build_with_benchmarks() -> Outcome<Dist> {
    build_into(&directory(), Flavour::Benchmarks)
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
    build.args(["-p", "lockstep-provider", "--lib"]);
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
        Flavour::Release | Flavour::Benchmarks => {
            let programs = match flavour {
                Flavour::Benchmarks => [COMMAND, BENCHMARKS].as_slice(),
                _ => &[COMMAND],
            };
            let bins = programs.iter().flat_map(|name| ["--bin", name]);
            build_release(&["--lib"].into_iter().chain(bins).collect::<Vec<_>>())?;
            for program in programs {
                release_file(program, &directory.join(program))?;
            }
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
    release_file(COMMAND, &directory.join(COMMAND))
}

/// The name of a defect that tests plant (`ops/src/fault.rs`). No release has it.
const PLANTED: &[u8] = b"ignored-randomness";

/// Puts a file of a release in place, with the commit in it where one is known.
fn release_file(name: &str, to: &Path) -> Outcome {
    let from = target_directory().join("release").join(name);
    let built = fs::read(&from).map_err(on(&from, "read"))?;
    if built.windows(PLANTED.len()).any(|part| part == PLANTED) {
        return Err(Failure::new(format!(
            "{} has planted defects",
            from.display()
        )));
    }
    let commit = Commit::of(&root()).and_then(|commit| commit.shown());
    in_one_step(to, |fresh| {
        fs::copy(&from, fresh).map_err(on(&from, "copy"))?;
        commit.map_or(Ok(()), |commit| commit::write(&commit, fresh))
    })
}

/// Makes a build take little time: no speed is measured with it.
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

/// The target directory of builds with a caller's flags: never beside a release.
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
    build_release(&["--bin", COMMAND, "--quiet"])?;
    let path = directory.join("openssl.cnf");
    let mut print = Command::new(target_directory().join("release").join(COMMAND));
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
    use std::thread;

    use super::*;
    use crate::command::Failure;

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
