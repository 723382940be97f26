//! Builds of OpenSSL from its sources, each kept in a directory with its recipe.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use xtask::command::{Outcome, on, quietly, succeeds};

/// It says how a build was made.
const STAMP: &str = "lockstep-recipe";

/// Whether a directory has a build by this recipe.
pub fn is_made(directory: &Path, recipe: &str) -> bool {
    fs::read_to_string(directory.join(STAMP)).is_ok_and(|text| text == recipe)
}

/// A build.
pub struct Build<'a> {
    pub directory: PathBuf,
    /// A text with everything on which the build depends.
    pub recipe: &'a str,
    /// Of `Configure`.
    pub options: &'a [&'a str],
    pub targets: &'a [&'a str],
}

impl Build<'_> {
    /// Has `unpack` put the sources into a directory, and builds there: first OpenSSL's generated
    /// files and these, which `edit` may change. Or the reason why that cannot be.
    pub fn make(
        &self,
        unpack: impl FnOnce(&Path) -> Outcome,
        generated: &[&str],
        edit: impl FnOnce(&Path) -> Outcome,
    ) -> Outcome<Result<(), String>> {
        for tool in ["perl", "make", "cc", "tar"] {
            if !succeeds(tool, &["--version"]) {
                return Ok(Err(format!(
                    "{tool} is missing: install it (on Debian: apt-get install build-essential)"
                )));
            }
        }
        println!("building {} (some minutes, once)", self.directory.display());
        let number = std::process::id();
        let scratch = self.directory.with_file_name(format!("building-{number}"));
        let _ = fs::remove_dir_all(&scratch);
        unpack(&scratch)?;
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new("nice");
            command.arg(program).args(arguments).current_dir(&scratch);
            quietly(&mut command).map(drop)
        };
        run("perl", &[&["Configure"], self.options].concat())?;
        run("make", &[&["build_generated"], generated].concat())?;
        edit(&scratch)?;
        let jobs = format!("-j{}", available_parallelism().map_or(1, NonZero::get));
        run("make", &[&[jobs.as_str()], self.targets].concat())?;
        let stamp = scratch.join(STAMP);
        fs::write(&stamp, self.recipe).map_err(on(&stamp, "write"))?;
        let _ = fs::remove_dir_all(&self.directory);
        fs::rename(&scratch, &self.directory).map_err(on(&self.directory, "create"))?;
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::command::{emptied, target_directory};

    #[test]
    fn a_build_is_known_by_its_recipe() {
        let place = target_directory().join("openssl-build-test");
        emptied(&place).unwrap();
        let build = Build {
            directory: place.join("built"),
            recipe: "recipe",
            options: &["shared"],
            targets: &["made"],
        };
        let write = |path: &Path, text: &str| fs::write(path, text).map_err(on(path, "write"));
        let unpack = |scratch: &Path| {
            emptied(scratch)?;
            let configure = "open my $file, '>', 'options'; print $file @ARGV;";
            write(&scratch.join("Configure"), configure)?;
            let rules = "build_generated list:\n\techo $@ >> generated\n\
                         made:\n\tcat options generated edited > made\n";
            write(&scratch.join("Makefile"), rules)
        };
        let edit = |scratch: &Path| write(&scratch.join("edited"), "edited");
        assert!(!is_made(&build.directory, "recipe"));
        if let Err(missing) = build.make(unpack, &["list"], edit).unwrap() {
            println!("skipped: {missing}");
            return;
        }
        let made = fs::read_to_string(build.directory.join("made")).unwrap();
        assert_eq!(made, "sharedbuild_generated\nlist\nedited");
        assert!(is_made(&build.directory, "recipe"));
        assert!(!is_made(&build.directory, "another recipe"));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    }
}
