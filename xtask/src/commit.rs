//! The commit that is built, as git knows it, or the archive that git has made of it.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use crate::command::{Failure, Outcome, on, quietly};

/// A file that has the commit in an archive (`git archive`, as hosters offer it), and elsewhere the
/// form in which git writes it there.
const IN_ARCHIVE: &str = "packaging/commit";
const FORM: &str = "%H %ct";

/// The mark before the place of the commit in the counters, and the length of that place.
const MARK: &str = "lockstep was built from:";
const LENGTH: usize = 32;

/// A commit.
pub struct Commit {
    hash: String,
    /// The time of the commit, in seconds since 1970.
    pub seconds: String,
    is_dirty: bool,
}

impl Commit {
    /// The one of which these sources are. Fails where nothing says so.
    pub fn of(sources: &Path) -> Outcome<Commit> {
        let git = |arguments: &[&str]| {
            quietly(Command::new("git").arg("-C").arg(sources).args(arguments))
        };
        let archived = fs::read_to_string(sources.join(IN_ARCHIVE)).unwrap_or_default();
        // Not of a repository around an archive.
        let (facts, changes) = match sources.join(".git").exists() {
            true => (
                git(&["log", "-1", &format!("--format={FORM}")])?,
                git(&["status", "--porcelain", "--untracked-files=no"])?,
            ),
            false => (archived, String::new()),
        };
        let named = facts
            .trim()
            .split_once(' ')
            .filter(|_| !facts.starts_with('$'));
        let (hash, seconds) = named.ok_or_else(|| {
            Failure::new(format!(
                "{} does not say which commit it is",
                sources.display()
            ))
            .remedy("build in a clone, or in an archive that git has made")
        })?;
        Ok(Commit {
            hash: hash.to_owned(),
            seconds: seconds.to_owned(),
            is_dirty: !changes.is_empty(),
        })
    }

    /// Its time (UTC) in a form of `date`.
    pub fn time(&self, form: &str) -> Outcome<String> {
        let mut date = Command::new("date");
        date.args(["--utc", &format!("--date=@{}", self.seconds), form]);
        Ok(quietly(date.env("LC_ALL", "C"))?.trim().to_owned())
    }

    /// The version of a build of it, as the counters have it.
    pub fn build(&self) -> Outcome<String> {
        Ok(format!("{}+{}", env!("CARGO_PKG_VERSION"), self.shown()?))
    }

    /// The text behind the number of a version.
    pub fn shown(&self) -> Outcome<String> {
        let hash = self.hash.get(..10).unwrap_or(&self.hash);
        let dirty = if self.is_dirty { ".dirty" } else { "" };
        Ok(format!("{hash}.{}{dirty}", self.time("+%Y%m%d")?))
    }
}

/// Writes a commit into a module or a program that has the place for it.
pub fn write(shown: &str, file: &Path) -> Outcome {
    // Faster than this program is, which cargo does not optimise.
    let mut search = Command::new("grep");
    search.args([
        "--text",
        "--byte-offset",
        "--only-matching",
        "--fixed-strings",
        MARK,
    ]);
    let found = quietly(search.arg(file)).unwrap_or_default();
    let mut places = found
        .lines()
        .map(|line| line.split(':').next().unwrap_or_default());
    let (Some(Ok(at)), None) = (places.next().map(str::parse::<u64>), places.next()) else {
        let shown = file.display();
        return Err(Failure::new(format!(
            "{shown} has no one place for the commit"
        )));
    };
    let mut place = [0; LENGTH];
    place[..shown.len()].copy_from_slice(shown.as_bytes());
    let open = fs::OpenOptions::new().write(true).open(file);
    open.and_then(|open| open.write_all_at(&place, at + MARK.len() as u64))
        .map_err(on(file, "write"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    /// As `git archive` has it.
    #[test]
    fn an_archive_is_of_the_commit_that_it_was_made_of() {
        let place = std::env::temp_dir().join(format!("lockstep-commit-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let archive = format!(
            "git -C {} archive HEAD packaging/commit | tar -xC {}",
            root().display(),
            place.display()
        );
        quietly(Command::new("sh").args(["-euc", &archive])).unwrap();
        let [own, archived] = [root(), place.clone()].map(|place| Commit::of(&place).unwrap());
        assert_eq!(own.hash, archived.hash);
        assert_eq!(own.seconds, archived.seconds);
        let shown = archived.shown().unwrap();
        assert_eq!(shown.len(), 19, "{shown}");
        fs::write(place.join(IN_ARCHIVE), "").unwrap();
        assert!(Commit::of(&place).is_err());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_commit_has_one_place() {
        let file = std::env::temp_dir().join(format!("lockstep-place-{}", std::process::id()));
        let whole = [b"a", MARK.as_bytes(), &[0; LENGTH], b"b"].concat();
        fs::write(&file, &whole).unwrap();
        write("8ce81adafe.20261128", &file).unwrap();
        let text = fs::read(&file).unwrap();
        assert_eq!(text.len(), whole.len());
        assert!(text.starts_with(b"alockstep was built from:8ce81adafe.20261128\0"));
        for wrong in [b"".to_vec(), whole.repeat(2)] {
            fs::write(&file, wrong).unwrap();
            assert!(write("8ce81adafe.20261128", &file).is_err());
        }
        fs::remove_file(file).unwrap();
    }
}
