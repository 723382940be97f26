//! The bulk library's package for Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{
    Failure, Outcome, build_as_tests, emptied, loudly, on, quietly, root, target_directory,
};
use crate::commit::Commit;
use crate::tally::{Count, skip};
use crate::{dist, setup};

/// Runs the package's tests, with the library as tests are built and with the packages of
/// `python/tests/requirements.txt`.
pub fn check() -> Outcome<Count> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(skip(
            "some packages of the Python tests have no build for this CPU",
        ));
    }
    if !setup::has_python() {
        return Ok(skip("there is no Python 3.11 with venv"));
    }
    build_as_tests(&["--lib"])?;
    let place = target_directory().join("python");
    let package = place.join("package");
    copy_package(&package.join("lockstep_crypto"))?;
    let python = environment(&place)?;
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]);
    tests.arg(root().join("python/tests")).current_dir(&place);
    tests
        .env("PYTHONPATH", &package)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = tests.output().map_err(on(Path::new("python"), "run"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let count = counted(&said);
    if !output.status.success() || count.passed == 0 {
        println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::new("tests of the Python package failed"));
    }
    for reason in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        println!("{reason}");
    }
    Ok(count)
}

/// Version of the program that builds wheels.
const MATURIN: &str = "maturin==1.16.0";

/// The systems that the wheel is for: with glibc 2.34, as RHEL 9 has it. maturin refuses a library
/// that needs more than PEP 600 allows there.
const PLATFORM: &str = "manylinux_2_34";

/// Number of tokens that the demonstration checks.
const TOKENS: &str = "90000";

/// Builds the wheel into `target/wheels`, installs it, and checks a file of tokens with it.
pub fn demonstrate() -> Outcome {
    setup::ensure()?;
    let Package { wheel, .. } = build()?;
    let place = target_directory().join("python");
    let venv = place.join("demo");
    let mut make = Command::new("python3");
    loudly(make.args(["-m", "venv", "--clear"]).arg(&venv))?;
    let python = venv.join("bin/python");
    let mut install = pip(&python);
    quietly(install.args(["install", "--quiet", "tqdm"]).arg(&wheel))?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.args(arguments).current_dir(&place);
        command
    };
    let make = root().join("python/examples/make_tokens.py");
    loudly(run(&[&make.to_string_lossy(), TOKENS, "."]).env_remove("PYTHONPATH"))?;
    let check = [
        "-m",
        "lockstep_crypto.tokens",
        "--keys",
        "jwks.json",
        "tokens.txt",
    ];
    println!("{} {}", python.display(), check.join(" "));
    // Some tokens have the signature of another one: 1 says that they were found.
    let mut check = run(&check);
    let status = check.status().map_err(on(&python, "run"))?;
    match status.code() {
        Some(1) => Ok(()),
        _ => Err(Failure::new(
            "the check of the tokens did not find the wrong ones",
        )),
    }
}

/// The files of a version of the package.
pub struct Package {
    /// The wheel.
    pub wheel: PathBuf,
    /// The sources from which pip builds a wheel.
    pub sources: PathBuf,
}

/// Builds the wheel and the archive of its sources into `target/wheels`: the same bytes of a commit
/// in whatever directory the workspace stands.
pub fn build() -> Outcome<Package> {
    if !setup::has_python() {
        let remedy = "cargo xtask setup, or as root `apt install python3-venv`";
        return Err(Failure::new("there is no Python 3.11 with venv").remedy(remedy));
    }
    let tools = target_directory().join("python/tools");
    let maturin = tools.join("bin/maturin");
    if !maturin.exists() {
        let mut make = Command::new("python3");
        loudly(make.args(["-m", "venv", "--clear"]).arg(&tools))?;
        let mut install = pip(&tools.join("bin/python"));
        quietly(install.args(["install", "--quiet", MATURIN]))?;
    }
    let place = target_directory().join("wheels");
    emptied(&place)?;
    let commit = Commit::of(&root())?;
    let run = |words: &[&str]| {
        let mut command = Command::new(&maturin);
        command.args(words).arg("--out").arg(&place);
        command.current_dir(root().join("python"));
        command.env("SOURCE_DATE_EPOCH", &commit.seconds);
        command.env("CARGO_TARGET_DIR", target_directory());
        command
    };
    loudly(&mut run(&["sdist"]))?;
    let mut build = run(&["build", "--locked", "--auditwheel", "check"]);
    build.args(["--compatibility", PLATFORM]);
    dist::without_places(&mut build);
    loudly(&mut build)?;
    let files = fs::read_dir(&place).map_err(on(&place, "read"))?;
    let files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    let of = |end: &str| {
        let is_it = |file: &&PathBuf| file.extension().is_some_and(|own| own == end);
        let file = files.iter().find(is_it);
        file.cloned()
            .ok_or_else(|| Failure::new(format!("maturin made no file that ends in .{end}")))
    };
    let package = Package {
        wheel: of("whl")?,
        sources: of("gz")?,
    };
    println!("{}\n{}", package.wheel.display(), package.sources.display());
    Ok(package)
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check"]);
    pip
}

/// Copies the package and puts the library into it.
fn copy_package(to: &Path) -> Outcome {
    let from = root().join("python/lockstep_crypto");
    if to.exists() {
        fs::remove_dir_all(to).map_err(on(to, "remove"))?;
    }
    fs::create_dir_all(to).map_err(on(to, "create"))?;
    for entry in fs::read_dir(&from).map_err(on(&from, "read"))? {
        let path = entry.map_err(on(&from, "read"))?.path();
        let is_source = ["py", "pyi", "typed"]
            .iter()
            .any(|end| path.extension().is_some_and(|extension| extension == *end));
        if let (true, Some(name)) = (is_source, path.file_name()) {
            fs::copy(&path, to.join(name)).map_err(on(&path, "copy"))?;
        }
    }
    let library = target_directory().join("debug/lib_native.so");
    let place = to.join("_native.abi3.so");
    fs::copy(&library, place).map_err(on(&library, "copy"))?;
    Ok(())
}

/// Returns the interpreter of an environment with the packages of the tests, which is made anew
/// where their list has changed.
fn environment(place: &Path) -> Outcome<PathBuf> {
    let list = root().join("python/tests/requirements.txt");
    let wanted = fs::read(&list).map_err(on(&list, "read"))?;
    let (venv, stamp) = (place.join("venv"), place.join("venv.requirements"));
    let python = venv.join("bin/python");
    if fs::read(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(python);
    }
    println!("python: installing the packages of the tests (a minute or two, once)");
    let mut make = Command::new("python3");
    loudly(make.args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut install = pip(&python);
    quietly(install.args(["install", "--quiet", "-r"]).arg(&list))?;
    fs::write(&stamp, wanted).map_err(on(&stamp, "write"))?;
    Ok(python)
}

/// Returns the numbers in the last line of pytest.
fn counted(said: &str) -> Count {
    let last = said.lines().last().unwrap_or_default();
    let words: Vec<&str> = last.split([' ', ',']).collect();
    let of = |kind: &str| {
        let place = words.iter().position(|word| *word == kind);
        let number = place.and_then(|place| words.get(place.checked_sub(1)?));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    Count {
        passed: of("passed"),
        failed: of("failed") + of("error") + of("errors"),
        skipped: of("skipped"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_last_line() {
        let said = "3 failed\n2 failed, 40 passed, 1 skipped, 3 warnings in 2.05s\n";
        let Count {
            passed,
            failed,
            skipped,
        } = counted(said);
        assert_eq!((passed, failed, skipped), (40, 2, 1));
        assert_eq!(counted("no tests ran in 0.01s").passed, 0);
        assert_eq!(counted("").passed, 0);
    }
}
