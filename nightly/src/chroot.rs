//! Chroots of Debian's releases, for checks that need another system than this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{Outcome, on, quietly, root, succeeds};
use xtask::setup;

/// It says that a chroot was made to its end.
const STAMP: &str = "lockstep-chroot";

/// A root directory with a system of its own.
pub struct Chroot {
    pub place: PathBuf,
}

impl Chroot {
    /// A base system of a release with these packages: the existing one, or one made by
    /// debootstrap; or the reason why there is none.
    pub fn of(release: &str, included: &str, place: &Path) -> Outcome<Result<Chroot, String>> {
        if !setup::is_root() {
            return Ok(Err("a chroot needs root".to_owned()));
        }
        let made = format!("{release} {included}\n");
        if fs::read_to_string(place.join(STAMP)).is_ok_and(|stamp| stamp == made) {
            return Ok(Ok(Chroot::at(place)));
        }
        if !succeeds("debootstrap", &["--version"]) {
            return Ok(Err(
                "debootstrap is missing: apt-get install debootstrap".to_owned()
            ));
        }
        let _ = fs::remove_dir_all(place);
        let mut bootstrap = Command::new("debootstrap");
        bootstrap.args([
            "--variant=minbase",
            &format!("--include={included}"),
            release,
        ]);
        if let Err(failure) = quietly(bootstrap.arg(place)) {
            let _ = fs::remove_dir_all(place);
            return Ok(Err(format!("no chroot of {release}: {failure}")));
        }
        let stamp = place.join(STAMP);
        fs::write(&stamp, made).map_err(on(&stamp, "write"))?;
        Ok(Ok(Chroot::at(place)))
    }

    /// The chroot in this place, of whatever release it is.
    pub fn at(place: &Path) -> Chroot {
        Chroot {
            place: place.to_owned(),
        }
    }

    /// Whether one was made in this place.
    pub fn is_at(place: &Path) -> bool {
        place.join(STAMP).exists()
    }

    /// A copy in another place.
    pub fn copy(&self, place: &Path) -> Outcome<Chroot> {
        let _ = fs::remove_dir_all(place);
        let mut copy = Command::new("cp");
        quietly(copy.args(["--archive", "--"]).arg(&self.place).arg(place))?;
        Ok(Chroot::at(place))
    }

    /// The start of a command in it, whose processes end with it. The program and its arguments
    /// follow.
    pub fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .arg(format!(
                "--mount-proc={}",
                self.place.join("proc").display()
            ))
            .arg("chroot")
            .arg(&self.place)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Boots it: systemd is its process 1, and ends with this unit, as successfully as that.
    pub fn boot(&self, unit: &str) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["--cgroup", "--uts", "--ipc", "sh"])
            .arg(root().join("packaging/boot.sh"))
            .arg(&self.place)
            .arg(unit);
        command
    }
}
