//! `cargo xtask nightly packages`: whether the packages keep the promises of `cargo xtask package`.
//!
//! Two builds in two directories are the same bytes. The linters of both kinds of packages find
//! nothing. In a chroot of each of Debian's releases, `packaging/check.sh` installs the package,
//! has HAProxy serve with it, with the key in the key daemon as well, upgrades it under load, goes
//! back to the release before and forth again, and removes it: the .deb by dpkg, the .rpm by rpm,
//! which Debian has too. There too `packaging/check-repository.sh` installs from trees that
//! [`release::publish`] makes, by apt and by dnf, and is refused what others have changed. With
//! systemd as process 1 `packaging/check-booted.sh` installs from such a tree by the lines of the
//! manual, and has the key daemon's units serve, in their sandbox; and `packaging/check-removal.sh`
//! removes each package in each order of the manual's steps. `packaging/check-image.sh` runs the
//! images that are made from such a tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{
    Failure, Outcome, cargo, cargo_workspace, emptied, loudly, on, quietly, root, succeeds,
};
use xtask::setup;
use xtask::tally::passed_and_failed;
use xtask::work::{Ran, Share, Work};

use crate::chroot::Chroot;
use crate::cpu;
use crate::package::{self, Packages};
use crate::previous;
use crate::release::{self, Signer};

/// Debian's releases with OpenSSL 3 (12 with 3.0, and 13 with 3.5), and the packages of each for a
/// TPM2 and for tokens.
const RELEASES: [(&str, &str); 2] = [
    ("bookworm", "libtss2-tcti-swtpm0"),
    ("trixie", "libtss2-tcti-swtpm0t64,pkcs11-provider"),
];

/// Packages of a server beside the base system, and the tools that keep its keys at rest.
const INCLUDED: &str =
    "curl,dnf,haproxy,openssl,procps,rpm,systemd,opensc,softhsm2,swtpm,tpm2-tools";

/// Where the check finds the packages in its chroot.
const INSIDE: &str = "tmp/packages";

/// Rules for packages of Debian itself do not apply.
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
    tried.add("a second build", || {
        let files: Vec<_> = first.files().collect();
        same_again(&files, &["package"], "target/package", &share.directory)
    });
    // In a tree each version has a place of its own.
    let version = format!("{}-2", later.version);
    let second = Packages {
        version,
        ..later.clone()
    };
    let trees = Trees::make([&first, &second], &share.directory)?;
    for server in release::IMAGES {
        tried.add(&format!("an image of {server}"), || image(server, &trees));
    }
    for (release, _) in RELEASES {
        try_release(
            release,
            [&first, &later],
            &before,
            &trees,
            &share.directory,
            &mut tried,
        );
    }
    tried.add("the release before beside this one", neighbours);
    Ok(Ran::Worked(tried.work))
}

/// Tries the packages on a release of Debian: two builds, and the packages of the release before.
fn try_release(
    release: &'static str,
    [first, later]: [&Packages; 2],
    [deb, rpm]: &[PathBuf; 2],
    trees: &Result<Trees, String>,
    directory: &Path,
    tried: &mut Tried,
) {
    for packages in [[&first.deb, &later.deb, deb], [&first.rpm, &later.rpm, rpm]] {
        let kind = packages[0].extension().unwrap_or_default();
        tried.add(&format!("{release}, .{}", kind.display()), || {
            served(release, packages, directory)
        });
    }
    for kind in ["apt", "dnf"] {
        tried.add(&format!("{release}, {kind}"), || {
            from_repository(release, kind, trees)
        });
    }
    tried.add(&format!("{release}, booted"), || {
        let trees = match trees {
            Ok(trees) => trees,
            Err(reason) => return Ok(Some(reason.clone())),
        };
        let check = "packaging/check-booted.sh";
        let page = [Path::new("docs/user/keyd.md")];
        booted(release, directory, check, &page, &|chroot| {
            trees.copy_into(chroot)
        })
    });
    for package in [&first.deb, &first.rpm] {
        let kind = package.extension().unwrap_or_default().display();
        tried.add(&format!("{release}, .{kind} removed"), || {
            let check = "packaging/check-removal.sh";
            booted(release, directory, check, &[package.as_path()], &|_| Ok(()))
        });
    }
}

/// Whether module and key daemon of this release and of the release before work together.
fn neighbours() -> Outcome<Option<String>> {
    xtask::dist::build()?;
    let mut test = cargo_workspace("test");
    test.args([
        "--test",
        "provider",
        "--test",
        "keyd",
        "--",
        "--include-ignored",
    ]);
    test.args(["neighbours::", "doctor_is_right_about_references"]);
    let count = passed_and_failed(test.env("LOCKSTEP_PREVIOUS", previous::dist()?))?;
    match (count.passed, count.failed) {
        (2.., 0) => Ok(None),
        _ => Err(Failure::new(
            "module and key daemon of two releases do not work together",
        )),
    }
}

/// The packages that were tried.
#[derive(Default)]
pub struct Tried {
    pub work: Work,
}

impl Tried {
    /// Tries one part; `None` of it says why this machine cannot.
    pub fn add(&mut self, name: &str, part: impl FnOnce() -> Outcome<Option<String>>) {
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
        version: packages.version.clone(),
        deb: keep(&packages.deb)?,
        rpm: keep(&packages.rpm)?,
        tarball: keep(&packages.tarball)?,
        sboms: packages.sboms.iter().map(keep).collect::<Outcome<_>>()?,
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

/// Builds the same commit by these words in a clone in another directory, and compares the files
/// with those that it has built into a directory of the clone.
pub fn same_again(
    first: &[&PathBuf],
    words: &[&str],
    built: &str,
    directory: &Path,
) -> Outcome<Option<String>> {
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
    let mut build = cargo(["xtask"].iter().chain(words).copied());
    loudly(build.current_dir(&again).env_remove("CARGO_TARGET_DIR"))?;
    for file in first {
        let name = file.file_name().unwrap_or_default();
        insist_on_same(file, &again.join(built).join(name))?;
    }
    Ok(None)
}

fn insist_on_same(one: &Path, other: &Path) -> Outcome {
    let read = |path: &Path| fs::read(path).map_err(on(path, "read"));
    if read(one)? == read(other)? {
        return Ok(());
    }
    let (one, other) = (one.display(), other.display());
    let failure = Failure::new(format!("{one} and {other} differ"));
    Err(failure.remedy("compare them with diffoscope"))
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

/// The place of the trees in a chroot, and the URL of the one that is offered there.
const TREES: &str = "srv";
const URL: &str = "file:///srv/lockstep";

/// Trees of repositories: of the first package, of both, and of both by a stranger's key.
struct Trees {
    directory: PathBuf,
    /// Where systems are kept and tried.
    share: PathBuf,
    /// The later package's version.
    newest: String,
}

impl Trees {
    /// Makes them, or says why not.
    fn make(packages: [&Packages; 2], share: &Path) -> Outcome<Result<Trees, String>> {
        if let Some(missing) = release::missing() {
            return Ok(Err(missing.to_string()));
        }
        let directory = share.join("trees");
        emptied(&directory)?;
        let keys = [TestKey::make()?, TestKey::make()?];
        for (tree, key, count) in [("first", 0, 1), ("later", 0, 2), ("stranger", 1, 2)] {
            for package in &packages[..count] {
                let tree = directory.join(tree);
                release::publish(package, &[], &tree, URL, &keys[key].signer)?;
            }
        }
        let page = root().join("docs/user/installation.md");
        let text = fs::read_to_string(&page).map_err(on(&page, "read"))?;
        let text = release::with_place(&text, URL, &keys[0].signer.fingerprint)?;
        let page = directory.join("installation.md");
        fs::write(&page, text).map_err(on(&page, "write"))?;
        let share = share.to_owned();
        let newest = packages[1].version.clone();
        Ok(Ok(Trees {
            directory,
            share,
            newest,
        }))
    }

    /// Puts them into a system.
    fn copy_into(&self, chroot: &Chroot) -> Outcome {
        let place = chroot.place.join(TREES);
        let mut copy = Command::new("cp");
        let from = self.directory.join(".");
        quietly(copy.args(["--recursive", "--"]).args([&from, &place])).map(drop)
    }
}

/// A key in a keyring, for as long as this lives.
struct TestKey {
    home: PathBuf,
    signer: Signer,
}

impl TestKey {
    fn make() -> Outcome<TestKey> {
        let home = quietly(Command::new("mktemp").arg("--directory"))?;
        let home = PathBuf::from(home.trim());
        let name = "Lockstep's tests <tests@lockstep.example>";
        let mut gpg = Command::new("gpg");
        gpg.args([
            "--batch",
            "--quiet",
            "--passphrase=",
            "--quick-generate-key",
        ]);
        quietly(
            gpg.args([name, "rsa3072", "sign", "2d"])
                .env("GNUPGHOME", &home),
        )?;
        let signer = Signer::of(name, Some(home.clone()))?;
        Ok(TestKey { home, signer })
    }
}

impl Drop for TestKey {
    fn drop(&mut self) {
        let mut end = Command::new("gpgconf");
        let _ = quietly(end.args(["--kill", "all"]).env("GNUPGHOME", &self.home));
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Runs `packaging/check-repository.sh` in a chroot of a release.
fn from_repository(
    release: &str,
    kind: &str,
    trees: &Result<Trees, String>,
) -> Outcome<Option<String>> {
    let trees = match trees {
        Ok(trees) => trees,
        Err(reason) => return Ok(Some(reason.clone())),
    };
    let chroot = match system_of(release, &trees.share)? {
        Ok(chroot) => chroot,
        Err(reason) => return Ok(Some(reason)),
    };
    trees.copy_into(&chroot)?;
    let script = root().join("packaging/check-repository.sh");
    let inside = Path::new(TREES).join("check-repository.sh");
    fs::copy(&script, chroot.place.join(&inside)).map_err(on(&script, "copy"))?;
    let tried = quietly(chroot.command().arg(Path::new("/").join(inside)).arg(kind));
    let _ = fs::remove_dir_all(&chroot.place);
    tried.map(|shown| {
        print!("{shown}");
        None
    })
}

/// Runs `packaging/check-image.sh` with an image that is made from a tree.
fn image(server: &str, trees: &Result<Trees, String>) -> Outcome<Option<String>> {
    let trees = match trees {
        Ok(trees) => trees,
        Err(reason) => return Ok(Some(reason.clone())),
    };
    if !setup::is_root() {
        return Ok(Some("it takes root".to_owned()));
    }
    if let Some(missing) = release::no_images() {
        return Ok(Some(missing.to_string()));
    }
    let file = trees.share.join(format!("{server}.oci.tar"));
    let tree = trees.directory.join("later");
    release::image(server, &root(), &tree, &trees.newest, &file)?;
    release::check_image(server, &root(), &file).map(|()| None)
}

/// The check that systemd runs once it has booted, as its unit.
const CHECK: &str = "lockstep-check.service";

/// Where the check writes, in the chroot.
const SHOWN: &str = "root/check.log";

/// Starts of its lines that are for the caller of the check.
const FIGURES: [&str; 3] = ["to lanes", "OpenSSL alone", "after install"];

/// Runs a script of the repository in a release that is booted, with these files in its directory,
/// the paths of which are its arguments.
fn booted(
    release: &str,
    directory: &Path,
    script: &str,
    files: &[&Path],
    prepare: &dyn Fn(&Chroot) -> Outcome,
) -> Outcome<Option<String>> {
    let system = |name: &str| fs::read_to_string(name).unwrap_or_default();
    if !system("/proc/filesystems").contains("cgroup2") {
        return Ok(Some("systemd needs control groups, version 2".to_owned()));
    }
    let chroot = match system_of(release, directory)? {
        Ok(chroot) => chroot,
        Err(reason) => return Ok(Some(reason)),
    };
    prepare(&chroot)?;
    let mut command = String::new();
    for file in [Path::new(script)].iter().chain(files) {
        let inside = Path::new("root").join(file.file_name().unwrap_or_default());
        let file = root().join(file);
        fs::copy(&file, chroot.place.join(&inside)).map_err(on(&file, "copy"))?;
        command += &format!("/{} ", inside.display());
    }
    let unit = chroot.place.join("etc/systemd/system").join(CHECK);
    let text = format!(
        "[Unit]\nRequires=basic.target\nAfter=basic.target\n\
         SuccessAction=exit\nFailureAction=exit-force\n\
         [Service]\nType=oneshot\nTimeoutStartSec=900\n\
         ExecStart={command}\n\
         StandardOutput=file:/{SHOWN}\nStandardError=inherit\n"
    );
    fs::write(&unit, text).map_err(on(&unit, "write"))?;
    let ran = quietly(&mut chroot.boot(CHECK));
    let shown = system(&chroot.place.join(SHOWN).display().to_string());
    let _ = fs::remove_dir_all(&chroot.place);
    let is_figure = |line: &&str| FIGURES.iter().any(|start| line.starts_with(start));
    for figure in shown.lines().filter(is_figure) {
        println!("{release}: {figure}");
    }
    match ran {
        Ok(_) if shown.ends_with(".sh: done\n") => Ok(None),
        Ok(_) => Err(Failure::new(format!("the check did not end:\n{shown}"))),
        Err(failure) => Err(Failure::new(format!("{failure}\n{shown}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version of a package that has nothing in it, for both tools.
    fn small(version: &str, place: &Path) -> Outcome<Packages> {
        let control = place.join("deb/DEBIAN");
        fs::create_dir_all(&control).map_err(on(&control, "create"))?;
        let text = format!(
            "Package: lockstep\nVersion: {version}\nArchitecture: amd64\nMaintainer: none\n\
             Description: nothing\n"
        );
        let file = control.join("control");
        fs::write(&file, text).map_err(on(&file, "write"))?;
        let mut packages = Packages::of(place, version, 1);
        packages.sboms.clear();
        let mut deb = Command::new("dpkg-deb");
        deb.args(["--root-owner-group", "--build"]);
        quietly(deb.args([&place.join("deb"), &packages.deb]))?;
        let spec = place.join("lockstep.spec");
        let text = format!(
            "Name: lockstep\nVersion: {version}\nRelease: 1\nSummary: Nothing\nLicense: none\n\
             AutoReqProv: no\n%description\n%files\n"
        );
        fs::write(&spec, text).map_err(on(&spec, "write"))?;
        let mut rpm = Command::new("rpmbuild");
        rpm.args(["--quiet", "-bb", "--target=x86_64", "--define"]);
        rpm.arg(format!("_topdir {}", place.display()));
        rpm.arg(format!("--define=_rpmdir {}", place.display()));
        rpm.args(["--define=_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"]);
        quietly(rpm.arg(&spec))?;
        fs::write(&packages.tarball, "").map_err(on(&packages.tarball, "write"))?;
        Ok(packages)
    }

    /// The tree comes back from a web server to which somebody else has access.
    #[test]
    fn a_release_signs_no_package_that_somebody_has_put_into_its_tree() {
        let has = |tool| succeeds(tool, &["--version"]);
        if release::missing().is_some() || !has("dpkg-deb") || !has("rpmbuild") {
            println!("skipped: the tools that make packages and repositories are missing");
            return;
        }
        let (key, stranger) = (TestKey::make().unwrap(), TestKey::make().unwrap());
        let tree = key.home.join("tree");
        let publish = |version: &str| {
            let place = key.home.join(version);
            let packages = small(version, &place).unwrap();
            release::publish(&packages, &[], &tree, URL, &key.signer)
        };
        publish("1.0.0").unwrap();
        let pool = tree.join("apt/pool");
        let deb = pool.join("lockstep_1.0.0-1_amd64.deb");
        let good = fs::read(&deb).unwrap();
        let refused = |expected: &str| {
            let told = release::check_packages(&tree, &key.signer).unwrap_err();
            assert!(told.to_string().contains(expected), "{told}");
            assert!(publish("9.0.0").is_err());
        };
        // Somebody's own package, or a changed one, wherever the tools look.
        let elsewhere = key.home.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("lockstep-3.rpm"), "no").unwrap();
        for file in ["apt/pool/more/openssl.deb", "dnf/lockstep-2.rpm"] {
            fs::create_dir_all(pool.join("more")).unwrap();
            fs::write(tree.join(file), &good[1..]).unwrap();
            refused(file);
            fs::remove_file(tree.join(file)).unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, tree.join("dnf/more")).unwrap();
        refused("dnf/more/lockstep-3.rpm");
        fs::remove_file(tree.join("dnf/more")).unwrap();
        fs::write(&deb, &good[1..]).unwrap();
        refused("lockstep_1.0.0-1_amd64.deb");
        // With its sum in the list, and that signed by somebody else.
        let list = tree.join("1.0.0/SHA256SUMS");
        let sums = fs::read_to_string(&list).unwrap();
        let mut sum = Command::new("sha256sum");
        let more = quietly(sum.arg("lockstep_1.0.0-1_amd64.deb").current_dir(&pool)).unwrap();
        fs::write(&list, sums.clone() + &more).unwrap();
        refused("BAD signature");
        let signature = tree.join("1.0.0/SHA256SUMS.asc");
        let before = fs::read(&signature).unwrap();
        let sign = ["--batch", "--yes", "--armor", "--detach-sign", "--output"];
        let mut gpg = Command::new("gpg");
        gpg.env("GNUPGHOME", &stranger.home).args(sign);
        quietly(gpg.args([&signature, &list])).unwrap();
        refused("No public key");
        // A maintainer's keyring has other keys, too.
        let public = stranger.home.join("public");
        let mut export = Command::new("gpg");
        export.env("GNUPGHOME", &stranger.home);
        quietly(export.args(["--export", "--output"]).arg(&public)).unwrap();
        let mut import = Command::new("gpg");
        import.env("GNUPGHOME", &key.home);
        quietly(import.args(["--batch", "--import"]).arg(&public)).unwrap();
        refused("another key has signed");
        fs::write(&signature, before).unwrap();
        fs::write(&list, sums).unwrap();
        fs::write(&deb, good).unwrap();
        // apt would take this list rather than the new one.
        let lists = tree.join("apt/dists/stable");
        fs::write(lists.join("main/binary-amd64/Packages.xz"), "no").unwrap();
        publish("1.1.0").unwrap();
        let signed = fs::read_to_string(lists.join("InRelease")).unwrap();
        assert!(signed.contains("Packages.gz") && !signed.contains("Packages.xz"));
        let offered = fs::read_to_string(lists.join("main/binary-amd64/Packages")).unwrap();
        assert_eq!(offered.matches("Package: lockstep").count(), 2);
        // An existing version changes no signed file.
        assert!(publish("1.1.0").is_err());
        assert!(lists.join("InRelease").exists() && tree.join("dnf/repodata/repomd.xml").exists());
    }
}
