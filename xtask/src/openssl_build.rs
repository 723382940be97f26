//! Builds of OpenSSL from its sources, each kept in a directory with its recipe.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use crate::command::{Outcome, on, quietly, succeeds};

/// It says how a build was made.
const STAMP: &str = "lockstep-recipe";

/// Whether a directory has a build by this recipe.
pub fn is_made(directory: &Path, recipe: &str) -> bool {
    fs::read_to_string(directory.join(STAMP)).is_ok_and(|text| text == recipe)
}

/// A build.
pub struct Build<'a> {
    pub directory: PathBuf,
    /// All that it depends on.
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
