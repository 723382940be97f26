//! `cargo xtask nightly wheel`: whether the package for Python keeps the promises of `cargo xtask
//! python`.
//!
//! Two builds in two directories are the same bytes, the wheel and the archive of its sources. No
//! file in them has a path of the machine that built them. pip builds a wheel from the sources
//! alone, with which a signature is checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{Failure, Outcome, emptied, on, quietly};
use xtask::python::{self, Package};
use xtask::setup;
use xtask::work::{Ran, Share};

use crate::package;
use crate::packages::{Tried, same_again};

/// All of it.
pub fn night(share: &Share) -> Outcome<Ran> {
    if !setup::has_python() {
        return Ok(Ran::Skipped("there is no Python 3.11 with venv".to_owned()));
    }
    let Package { wheel, sources } = python::build()?;
    let files = [&wheel, &sources];
    let mut tried = Tried::default();
    tried.add("paths of this machine", || {
        let place = share.directory.join("unpacked");
        unpack(files, &place)?;
        insist_on_no_places(&place).map(|()| None)
    });
    tried.add("a second build", || {
        same_again(
            &files,
            &["python", "--build"],
            "target/wheels",
            &share.directory,
        )
    });
    tried.add("a wheel of the sources", || {
        from_sources(&sources, &share.directory.join("sources")).map(|()| None)
    });
    Ok(Ran::Worked(tried.work))
}

/// Unpacks a wheel and an archive.
fn unpack([wheel, sources]: [&PathBuf; 2], place: &Path) -> Outcome {
    emptied(place)?;
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(place);
    quietly(&mut unzip)?;
    let mut untar = Command::new("tar");
    untar.arg("-C").arg(place).arg("-xzf").arg(sources);
    quietly(&mut untar).map(drop)
}

/// Fails if a file below a directory has a path of this machine.
fn insist_on_no_places(directory: &Path) -> Outcome {
    for entry in fs::read_dir(directory).map_err(on(directory, "read"))? {
        let path = entry.map_err(on(directory, "read"))?.path();
        match path.is_dir() {
            true => insist_on_no_places(&path)?,
            false => package::insist_on_no_place(&path)?,
        }
    }
    Ok(())
}

/// Has pip build the sources in a new environment, and checks a signature there.
fn from_sources(sources: &Path, place: &Path) -> Outcome {
    let mut make = Command::new("python3");
    quietly(make.args(["-m", "venv", "--clear"]).arg(place))?;
    let python = place.join("bin/python");
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]);
    install.arg(sources).env_remove("CARGO_TARGET_DIR");
    quietly(&mut install)?;
    let script = "import lockstep_crypto as lockstep\n\
         private = lockstep.PrivateKey.from_raw('Ed25519', bytes(32))\n\
         signed = lockstep.sign_many('Ed25519', private, [b'text'])\n\
         keys = [private.public().raw()] * 2\n\
         print(list(lockstep.verify_many('Ed25519', keys, [b'text', b'other'], [signed[0]] * 2)))";
    let verdicts = quietly(
        Command::new(&python)
            .args(["-c", script])
            .current_dir(place),
    )?;
    match verdicts.trim() {
        "[True, False]" => Ok(()),
        other => Err(Failure::new(format!(
            "the wheel of the sources gives {other}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use xtask::command::{root, target_directory};

    use super::*;

    #[test]
    fn a_path_of_this_machine_is_found_in_a_wheel() {
        let place = target_directory().join("wheel-test");
        emptied(&place).unwrap();
        let text = place.join("text");
        for (path, is_clean) in [("/lockstep/src/lib.rs".into(), true), (root(), false)] {
            fs::write(&text, format!("a {} b", path.display())).unwrap();
            let (wheel, sources) = (place.join("a.whl"), place.join("a.tar.gz"));
            let mut zip = Command::new("python3");
            quietly(zip.args(["-m", "zipfile", "-c"]).arg(&wheel).arg(&text)).unwrap();
            let mut tar = Command::new("tar");
            quietly(
                tar.arg("-C")
                    .arg(&place)
                    .arg("-czf")
                    .arg(&sources)
                    .arg("text"),
            )
            .unwrap();
            unpack([&wheel, &sources], &place.join("unpacked")).unwrap();
            let found = insist_on_no_places(&place.join("unpacked"));
            assert_eq!(found.is_ok(), is_clean, "{found:?}");
        }
        fs::remove_dir_all(place).unwrap();
    }
}
