//! The release before this one: its module, its command and its packages, built from its own
//! sources and kept in the user's cache. Module and key daemon of both must work together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{Failure, Outcome, cargo, loudly, on, quietly, root, user_cache};

/// The stand-in for 0.1.0, which has no tag and no key daemon: the last commit of that number whose
/// daemon speaks version 3 of its protocol only.
const FIRST: &str = "5c73a8369f71";

/// The directory in the user's cache.
const CACHE: &str = "previous";

/// The `dist/` of the release before, once its packages are built.
pub fn dist() -> Outcome<PathBuf> {
    Ok(sources()?.join("dist"))
}

/// Its packages, a .deb and an .rpm, built if they have not been; or why there are none.
pub fn packages() -> Outcome<Result<[PathBuf; 2], String>> {
    let sources = sources()?;
    if let Ok(found) = built(&sources) {
        return Ok(Ok(found));
    }
    let commit = commit()?;
    let _ = fs::remove_dir_all(&sources);
    fs::create_dir_all(&sources).map_err(on(&sources, "create"))?;
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--shared", "--no-checkout"]);
    quietly(clone.arg(root()).arg(&sources))?;
    let mut checkout = Command::new("git");
    checkout.arg("-C").arg(&sources);
    if let Err(failure) = quietly(checkout.args(["checkout", "--quiet", &commit])) {
        return Ok(Err(format!("no commit {commit} here: {failure}")));
    }
    println!("building the release before, {commit} (some minutes, once)");
    let mut package = cargo(["xtask", "package"]);
    loudly(package.current_dir(&sources).env_remove("CARGO_TARGET_DIR"))?;
    built(&sources).map(Ok)
}

fn built(sources: &Path) -> Outcome<[PathBuf; 2]> {
    let directory = sources.join("target/package");
    let entries = fs::read_dir(&directory).map_err(on(&directory, "read"))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let of = |kind: &str| {
        let mut files = files.iter();
        let found = files.find(|file| file.extension().is_some_and(|end| end == kind));
        let none = || Failure::new(format!("no .{kind} in {}", directory.display()));
        found.cloned().ok_or_else(none)
    };
    Ok([of("deb")?, of("rpm")?])
}

/// The last tag below the tried commit, or its stand-in.
fn commit() -> Outcome<String> {
    let git = |arguments: &[&str]| quietly(Command::new("git").current_dir(root()).args(arguments));
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^"]);
    let name = tag.map_or_else(|_| FIRST.to_owned(), |tag| tag.trim().to_owned());
    let commit = git(&["rev-parse", "--short=12", &format!("{name}^{{commit}}")]);
    Ok(commit.map_or(name, |commit| commit.trim().to_owned()))
}

fn sources() -> Outcome<PathBuf> {
    Ok(user_cache(CACHE)?.join(commit()?))
}
