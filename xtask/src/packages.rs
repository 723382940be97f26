//! `cargo xtask nightly packages`: whether the packages keep the promises of `cargo xtask package`.
//!
//! Two builds in two directories are the same bytes. The linters of both kinds of packages find
//! nothing. In a chroot of each of Debian's releases, `packaging/check.sh` installs the package,
//! has HAProxy serve with it, with the key in the key daemon as well, upgrades it under load, goes
//! back to the release before and forth again, and removes it: the .deb by dpkg, the .rpm by rpm,
//! which Debian has too. With systemd as process 1
//! `packaging/check-booted.sh` has the key daemon's units serve, in their sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::chroot::Chroot;
use crate::command::{Failure, Outcome, cargo, loudly, on, quietly, root, succeeds};
use crate::cpu;
use crate::package::{self, Packages};
use crate::previous;
use crate::work::{Ran, Share, Work};

/// Debian's releases with OpenSSL 3: 12 with 3.0, and 13 with 3.5; and what each has for a TPM2 and
/// for tokens.
const RELEASES: [(&str, &str); 2] = [
    ("bookworm", "libtss2-tcti-swtpm0"),
    ("trixie", "libtss2-tcti-swtpm0t64,pkcs11-provider"),
];

/// What a server has beside the base system, and the tools that keep its keys at rest.
const INCLUDED: &str = "haproxy,openssl,procps,rpm,systemd,opensc,softhsm2,swtpm,tpm2-tools";

/// Where the check finds the packages in its chroot.
const INSIDE: &str = "tmp/packages";

/// What is for packages of Debian itself does not apply.
const LINTIAN: [&str; 2] = [
    "--fail-on=error,warning",
    "--suppress-tags=initial-upload-closes-no-bugs",
];

/// All of it.
pub fn night(share: &Share) -> Outcome<Ran> {
    if let Some(missing) = package::missing() {
        return Ok(Ran::Skipped(missing.to_string()));
    }
    let later = kept(&package::build(2)?, &share.directory.join("later"))?;
    let first = kept(&package::build(1)?, &share.directory.join("first"))?;
    let before = match previous::packages()? {
        Ok(before) => before,
        Err(reason) => return Ok(Ran::Skipped(reason)),
    };
    let mut tried = Tried::default();
    tried.add("lintian", || linted("lintian", &LINTIAN, &first.deb));
    tried.add("rpmlint", || {
        let settings = root().join("packaging/rpmlint.toml");
        let settings = format!("--config={}", settings.display());
        linted("rpmlint", &["--strict", &settings], &first.rpm)
    });
    tried.add("a second build", || same_again(&first, &share.directory));
    for (release, _) in RELEASES {
        let [deb, rpm] = &before;
        for packages in [[&first.deb, &later.deb, deb], [&first.rpm, &later.rpm, rpm]] {
            let kind = packages[0].extension().unwrap_or_default();
            tried.add(&format!("{release}, .{}", kind.display()), || {
                served(release, packages, &share.directory)
            });
        }
        tried.add(&format!("{release}, booted"), || {
            booted(release, &first.deb, &share.directory)
        });
    }
    Ok(Ran::Worked(tried.work))
}

/// What was tried.
#[derive(Default)]
struct Tried {
    work: Work,
}

impl Tried {
    /// Tries one part; `None` of it says why this machine cannot.
    fn add(&mut self, name: &str, part: impl FnOnce() -> Outcome<Option<String>>) {
        println!("{name} …");
        match part() {
            Ok(None) => self.work.cases += 1,
            Ok(Some(missing)) => {
                println!("{name} skipped: {missing}");
                self.work.note += &format!("without {name}; ");
            }
            Err(failure) => {
                println!("{failure}");
                self.work.cases += 1;
                self.work.findings += 1;
            }
        }
    }
}

/// Copies of packages, which the next build does not replace.
fn kept(packages: &Packages, directory: &Path) -> Outcome<Packages> {
    fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    let keep = |package: &PathBuf| {
        let copy = directory.join(package.file_name().unwrap_or_default());
        fs::copy(package, &copy).map_err(on(package, "copy"))?;
        Ok(copy)
    };
    Ok(Packages {
        deb: keep(&packages.deb)?,
        rpm: keep(&packages.rpm)?,
        tarball: keep(&packages.tarball)?,
    })
}

fn linted(linter: &str, arguments: &[&str], package: &Path) -> Outcome<Option<String>> {
    // rpmlint reads packages by it.
    let needs = [linter]
        .into_iter()
        .chain((linter == "rpmlint").then_some("rpm"));
    let mut missing = needs.filter(|program| !succeeds(program, &["--version"]));
    if let Some(missing) = missing.next() {
        return Ok(Some(format!("apt-get install {missing}")));
    }
    quietly(Command::new(linter).args(arguments).arg(package)).map(|_| None)
}

/// Builds the same commit in another directory, and compares.
fn same_again(first: &Packages, directory: &Path) -> Outcome<Option<String>> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        quietly(git.arg("-C").arg(root()).args(arguments))
    };
    if !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
        return Ok(Some(
            "not all is committed, and it builds a commit".to_owned(),
        ));
    }
    let again = directory.join("again");
    let _ = fs::remove_dir_all(&again);
    git(&[
        "clone",
        "--quiet",
        "--shared",
        ".",
        &again.display().to_string(),
    ])?;
    let mut build = cargo(["xtask", "package"]);
    loudly(build.current_dir(&again).env_remove("CARGO_TARGET_DIR"))?;
    for package in [&first.deb, &first.rpm, &first.tarball] {
        let name = package.file_name().unwrap_or_default();
        let other = again.join("target/package").join(name);
        let read = |path: &Path| fs::read(path).map_err(on(path, "read"));
        if read(package)? != read(&other)? {
            let (package, other) = (package.display(), other.display());
            return Err(Failure::new(format!("{package} and {other} differ"))
                .remedy("compare them with diffoscope"));
        }
    }
    Ok(None)
}

/// The system of a release for one check, which may leave anything in it; or why there is none.
fn system_of(release: &str, directory: &Path) -> Outcome<Result<Chroot, String>> {
    let own = RELEASES.iter().find(|(known, _)| *known == release);
    let included = format!("{INCLUDED},{}", own.map_or("", |(_, packages)| packages));
    match Chroot::of(release, &included, &directory.join(release))? {
        Ok(kept) => kept.copy(&directory.join("tried")).map(Ok),
        Err(reason) => Ok(Err(reason)),
    }
}

/// Runs `packaging/check.sh` in a chroot of a release, with two packages and that of the release
/// before.
fn served(release: &str, packages: [&PathBuf; 3], directory: &Path) -> Outcome<Option<String>> {
    if !cpu::has_ifma() {
        return Ok(Some(
            "without AVX-512 IFMA HAProxy's handshakes stay with OpenSSL".to_owned(),
        ));
    }
    let chroot = match system_of(release, directory)? {
        Ok(chroot) => chroot,
        Err(reason) => return Ok(Some(reason)),
    };
    let inside = chroot.place.join(INSIDE);
    fs::create_dir_all(&inside).map_err(on(&inside, "create"))?;
    let script = root().join("packaging/check.sh");
    let mut check = chroot.command();
    for (number, file) in [&script].into_iter().chain(packages).enumerate() {
        // The release before may have the name of this one.
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{number}-{name}");
        fs::copy(file, inside.join(&name)).map_err(on(file, "copy"))?;
        check.arg(Path::new("/").join(INSIDE).join(name));
    }
    let served = quietly(&mut check);
    let _ = fs::remove_dir_all(&chroot.place);
    served.map(|_| None)
}

/// The check that systemd runs once it has booted, as its unit.
const CHECK: &str = "lockstep-check.service";

/// Where the check writes, in the chroot.
const SHOWN: &str = "root/check-booted.log";

/// Runs `packaging/check-booted.sh` with a package in a release that is booted.
fn booted(release: &str, package: &Path, directory: &Path) -> Outcome<Option<String>> {
    let system = |name: &str| fs::read_to_string(name).unwrap_or_default();
    if !system("/proc/filesystems").contains("cgroup2") {
        return Ok(Some("systemd needs control groups, version 2".to_owned()));
    }
    let chroot = match system_of(release, directory)? {
        Ok(chroot) => chroot,
        Err(reason) => return Ok(Some(reason)),
    };
    let script = root().join("packaging/check-booted.sh");
    for (file, name) in [
        (script.as_path(), "check-booted.sh"),
        (&root().join("docs/user/keyd.md"), "keyd.md"),
        (package, "lockstep.deb"),
    ] {
        let copy = chroot.place.join("root").join(name);
        fs::copy(file, &copy).map_err(on(file, "copy"))?;
    }
    let unit = chroot.place.join("etc/systemd/system").join(CHECK);
    let text = format!(
        "[Unit]\nRequires=basic.target\nAfter=basic.target\n\
         SuccessAction=exit\nFailureAction=exit-force\n\
         [Service]\nType=oneshot\nTimeoutStartSec=300\n\
         ExecStart=/root/check-booted.sh /root/lockstep.deb\n\
         StandardOutput=file:/{SHOWN}\nStandardError=inherit\n"
    );
    fs::write(&unit, text).map_err(on(&unit, "write"))?;
    let ran = quietly(&mut chroot.boot(CHECK));
    let shown = system(&chroot.place.join(SHOWN).display().to_string());
    let _ = fs::remove_dir_all(&chroot.place);
    match ran {
        Ok(_) if shown.ends_with("check-booted.sh: done\n") => Ok(None),
        Ok(_) => Err(Failure::new(format!("the check did not end:\n{shown}"))),
        Err(failure) => Err(Failure::new(format!("{failure}\n{shown}"))),
    }
}
