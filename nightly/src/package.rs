//! `cargo xtask package`: a .deb, an .rpm and a tarball of one build.
//!
//! cargo-deb and cargo-generate-rpm make the packages, by the lists of files in `cli/Cargo.toml`.
//! This stages the files that are not in the repository, in the place that those lists name: the
//! module and the programs without symbols, and files that are made from them and from the sources
//! of all crates. It then checks the libraries that the files need, and the traces in them of the
//! machine that built them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use xtask::command::{
    Failure, Outcome, cargo, cargo_home, emptied, on, quietly, root, target_directory,
};
use xtask::commit::Commit;
use xtask::links::resolved;
use xtask::{dist, setup};

use crate::licences;

/// The files with machine code.
const BINARIES: [&str; 3] = ["lockstep.so", "lockstep", "lockstep-bench"];

/// The newest versions of symbols that they may need: the versions of RHEL 9, whose glibc is older
/// than that of every other distribution with OpenSSL 3, and of the first OpenSSL 3.
const NEWEST: [(&str, &str); 3] = [("GLIBC_", "2.34"), ("GCC_", "4.2.0"), ("OPENSSL_", "3.0.0")];

/// The description of the .deb.
const DESCRIPTION: &str = "\
An OpenSSL 3 provider that computes the public-key operations of TLS handshakes on the vector units \
of the CPU, many connections in lockstep. A server needs no new build and no new keys.

Installing this package enables nothing: the command `lockstep install` has a server load the \
module, and `lockstep doctor` says whether it works.
";

/// The files of `cargo xtask package`.
#[derive(Clone)]
pub struct Packages {
    pub version: String,
    pub deb: PathBuf,
    pub rpm: PathBuf,
    pub tarball: PathBuf,
    /// The crates in each file with machine code, where cargo-auditable has written them into it.
    pub sboms: Vec<PathBuf>,
}

impl Packages {
    /// The files of a version in a directory.
    pub fn of(directory: &Path, version: &str, revision: u32) -> Packages {
        let sboms = BINARIES.map(|name| directory.join(format!("{name}-{version}.cdx.json")));
        Packages {
            version: version.to_owned(),
            deb: directory.join(format!("lockstep_{version}-{revision}_amd64.deb")),
            rpm: directory.join(format!("lockstep-{version}-{revision}.x86_64.rpm")),
            tarball: directory.join(format!("lockstep-{version}-x86_64.tar.gz")),
            sboms: sboms.into_iter().filter(|sbom| sbom.exists()).collect(),
        }
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.deb, &self.rpm, &self.tarball]
            .into_iter()
            .chain(&self.sboms)
    }
}

/// The tool that is not installed.
pub fn missing() -> Option<Failure> {
    let mut tools = ["deb", "generate-rpm"].into_iter();
    let missing = |tool: &&str| quietly(&mut cargo([*tool, "--version"])).is_err();
    tools.find(missing).map(|tool| {
        Failure::new(format!("cargo-{tool} is missing"))
            .remedy("cargo install --locked cargo-deb cargo-generate-rpm")
    })
}

/// Builds all of them into `target/package`. A package of the same version replaces one with a
/// lower revision.
pub fn build(revision: u32) -> Outcome<Packages> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    let staged = stage()?;
    let directory = target_directory().join("package");
    emptied(&directory)?;
    let version = env!("CARGO_PKG_VERSION");
    describe(&staged, &directory, version)?;
    let packages = Packages::of(&directory, version, revision);
    let commit = Commit::of(&root())?;
    let dated = |mut command: Command| {
        command.env("SOURCE_DATE_EPOCH", &commit.seconds);
        quietly(&mut command).map(drop)
    };
    let mut deb = cargo([
        "deb",
        "--package",
        "lockstep-cli",
        "--no-build",
        "--no-strip",
    ]);
    deb.args(["--deb-revision", &revision.to_string(), "--manifest-path"]);
    deb.arg(root().join("Cargo.toml")).arg("--output");
    // The file with the description is there.
    deb.arg(&packages.deb).current_dir(&staged);
    dated(deb)?;
    copy_repository()?;
    let mut rpm = cargo(["generate-rpm", "--package", "cli", "--set-metadata"]);
    rpm.arg(format!(
        "release = \"{revision}\"\nsummary = \"OpenSSL 3 provider on vector units, build {}\"",
        commit.build()?
    ));
    rpm.arg("--output");
    rpm.arg(&packages.rpm)
        .arg("--target-dir")
        .arg(target_directory());
    dated(rpm)?;
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=go=rX,u+w",
    ])
    .arg(format!("--mtime=@{}", commit.seconds))
    .arg(format!("--transform=s,^\\.,lockstep-{version},"))
    .args([
        "--exclude=changelog.Debian.gz",
        "--exclude=./description",
        "--use-compress-program=gzip -9n",
        "--create",
        "--file",
    ])
    .arg(&packages.tarball)
    .arg("--directory")
    .args([&staged, Path::new(".")]);
    dated(tar)?;
    Ok(packages)
}

/// Copies the repository's own files that the .rpm has. cargo-generate-rpm gives each file that is
/// younger than the commit the commit's time. The files of a checkout may be older; a copy is not.
fn copy_repository() -> Outcome {
    let copies = target_directory().join("release/package-repository");
    emptied(&copies)?;
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--parents"]).args([
        "LICENSE",
        "packaging/package.sh",
        "packaging/systemd",
        "packaging/prometheus",
    ]);
    quietly(copy.arg(&copies).current_dir(root())).map(drop)
}

/// Builds all of them and says where they are.
pub fn run() -> Outcome {
    let packages = build(1)?;
    for package in packages.files() {
        println!(
            "{}",
            package.strip_prefix(root()).unwrap_or(package).display()
        );
    }
    Ok(())
}

/// Writes which crates are in each file with machine code, as CycloneDX.
fn describe(staged: &Path, directory: &Path, version: &str) -> Outcome {
    if let Some(unaudited) = unaudited() {
        println!("without lists of crates (SBOM): {unaudited}");
        return Ok(());
    }
    for (name, own) in BINARIES.into_iter().zip(licences::SHIPPED) {
        let list = quietly(Command::new("auditable2cdx").arg(staged.join(name)))?;
        let read: Option<Value> = serde_json::from_str(&list).ok();
        if read.is_none_or(|list| list["metadata"]["component"]["name"] != own) {
            return Err(Failure::new(format!(
                "the list of crates in {name} is not {own}'s"
            )));
        }
        let path = directory.join(format!("{name}-{version}.cdx.json"));
        fs::write(&path, list).map_err(on(&path, "write"))?;
    }
    Ok(())
}

/// Why files with machine code do not have the list of their crates in them.
pub fn unaudited() -> Option<Failure> {
    (!setup::has_auditable()).then(|| {
        Failure::new("cargo-auditable or auditable2cdx is missing")
            .remedy("cargo install --locked cargo-auditable auditable2cdx")
    })
}

/// Puts everything in place that packages have and the repository has not.
fn stage() -> Outcome<PathBuf> {
    let built = dist::build_with_benchmarks()?.directory;
    let staged = target_directory().join("release/package");
    emptied(&staged)?;
    for name in BINARIES {
        let mut strip = Command::new("strip");
        strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]);
        quietly(strip.arg(staged.join(name)).arg(built.join(name)))?;
        inspect(&staged.join(name))?;
    }
    let documents = staged.join("documents");
    for program in &BINARIES[1..] {
        let mut command = Command::new(staged.join(program));
        quietly(command.arg("documents").arg(&documents))?;
    }
    let write = |name: &str, text: String| {
        let path = staged.join(name);
        fs::write(&path, text).map_err(on(&path, "write"))
    };
    write("licences.txt", licences::texts()?)?;
    let commit = Commit::of(&root())?;
    let build = commit.build()?;
    write("changelog.Debian", changelog(&build, &commit)?)?;
    write("description", format!("{DESCRIPTION}\nBuild: {build}\n"))?;
    let license = root().join("LICENSE");
    fs::copy(&license, staged.join("LICENSE")).map_err(on(&license, "copy"))?;
    let texts = target_directory().join("release/package-pages");
    stage_pages(&texts)?;
    let changes = texts.join("CHANGELOG.md");
    fs::copy(&changes, staged.join("changelog")).map_err(on(&changes, "copy"))?;
    let mut compress = Command::new("gzip");
    compress.args(["-9", "--no-name"]).args(pages(&documents)?);
    let changelogs = ["changelog", "changelog.Debian"];
    compress.args(changelogs.map(|name| staged.join(name)));
    quietly(&mut compress)?;
    Ok(staged)
}

/// Writes the changelog, and in `doc` the pages for users, without links to pages that packages
/// lack.
fn stage_pages(staged: &Path) -> Outcome {
    emptied(staged)?;
    let mut pages = Vec::new();
    for directory in ["", "servers"] {
        let from = root().join("docs/user").join(directory);
        let entries = fs::read_dir(&from).map_err(on(&from, "read"))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        let named = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
        pages.extend(named.map(|name| (from.join(&name), Path::new(directory).join(&name))));
    }
    let shipped: BTreeSet<PathBuf> = pages.iter().map(|(_, page)| page.clone()).collect();
    let write = |from: &Path, page: &Path, to: &Path| {
        let text = fs::read_to_string(from).map_err(on(from, "read"))?;
        let above = to.parent().unwrap_or(staged);
        fs::create_dir_all(above).map_err(on(above, "create"))?;
        fs::write(to, with_links_to(&shipped, page, &text)).map_err(on(to, "write"))
    };
    for (from, page) in &pages {
        write(from, page, &staged.join("doc").join(page))?;
    }
    let changes = Path::new("CHANGELOG.md");
    write(&root().join(changes), changes, &staged.join(changes))
}

/// A page that keeps its links to these pages and to other sites, and of others the text alone.
fn with_links_to(shipped: &BTreeSet<PathBuf>, page: &Path, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, following)) = after.split_once(')') else {
            break;
        };
        let file = target.split('#').next().unwrap_or_default();
        let is_there = target.contains("://")
            || file.is_empty()
            || shipped.contains(&resolved(&page.with_file_name("").join(file)));
        out.push_str(before);
        match (is_there, out.rfind('[')) {
            (false, Some(start)) => drop(out.remove(start)),
            _ => out.push_str(&format!("]({target})")),
        }
        rest = following;
    }
    out + rest
}

/// The man pages among these documents.
fn pages(documents: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(documents).map_err(on(documents, "read"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "1");
    Ok(paths.filter(is_page).collect())
}

/// Debian's form of the changelog: a pointer to the file for people.
fn changelog(build: &str, commit: &Commit) -> Outcome<String> {
    Ok(format!(
        "lockstep ({}-1) unstable; urgency=medium\n\n  * Build {build}. The changes are in \
         changelog.gz.\n\n -- {}  {}\n",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_AUTHORS"),
        commit.time("+%a, %d %b %Y %T %z")?
    ))
}

/// Whether a file runs on every system that the packages are for, and is the same wherever it was
/// built.
fn inspect(file: &Path) -> Outcome {
    let shown = file.display();
    let symbols = quietly(Command::new("objdump").arg("-T").arg(file))?;
    for (kind, newest) in NEWEST {
        if let Some(newer) = newer(&symbols, kind, newest) {
            return Err(Failure::new(format!(
                "{shown} needs {newer}, which is newer than {newest}"
            ))
            .remedy("build on Debian 12, and look at what needs the symbol: objdump -T"));
        }
    }
    insist_on_no_place(file)
}

/// Fails if a file has the path of a place on the machine that built it.
pub fn insist_on_no_place(file: &Path) -> Outcome {
    let bytes = fs::read(file).map_err(on(file, "read"))?;
    for directory in [root(), target_directory(), cargo_home()] {
        let name = directory.into_os_string().into_encoded_bytes();
        if bytes.windows(name.len()).any(|window| window == name) {
            let (shown, name) = (file.display(), String::from_utf8_lossy(&name));
            let what = format!("{shown} has the path {name} of this machine");
            return Err(Failure::new(what));
        }
    }
    Ok(())
}

/// A symbol's version of this kind above the newest one, in a listing of objdump.
fn newer(symbols: &str, kind: &str, newest: &str) -> Option<String> {
    let number = |version: &str| -> Vec<u32> {
        let parts = version.split('.');
        parts.map(|part| part.parse().unwrap_or(u32::MAX)).collect()
    };
    let needed = symbols.lines().filter(|line| line.contains("*UND*"));
    // The version stands before the name.
    let versions = needed.filter_map(|line| line.split_whitespace().rev().nth(1));
    versions
        .map(|version| version.trim_matches(['(', ')']))
        .find(|version| {
            version
                .strip_prefix(kind)
                .is_some_and(|version| number(version) > number(newest))
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::links::links_of;

    #[test]
    fn no_page_of_a_package_links_to_what_the_package_lacks() {
        let staged = target_directory().join("release/package-pages-test");
        stage_pages(&staged).unwrap();
        let pages = ["doc/keyd.md", "doc/servers/haproxy.md", "CHANGELOG.md"];
        let links = pages.map(|page| {
            let page = staged.join(page);
            let text = fs::read_to_string(&page).unwrap();
            let links = links_of(&text).into_iter().map(|link| {
                let file = link.split('#').next().unwrap();
                let target = page.with_file_name("").join(file);
                assert!(target.exists(), "{}: {link}", page.display());
            });
            links.count()
        });
        fs::remove_dir_all(&staged).unwrap();
        assert!(links[0] > 0 && links[1] > 0, "{links:?}");
    }

    #[test]
    fn links_to_what_packages_lack_become_text() {
        let shipped = ["keyd.md", "servers/nginx.md"].map(PathBuf::from);
        let shipped = BTreeSet::from(shipped);
        let text = "[a](../keyd.md#b), [the\nlab](../../lab/x.md) ([c](nginx.md), [d](#e))\n\
                    [f](https://g.example/) [h] [i](../servers/none.md)\n";
        let page = with_links_to(&shipped, Path::new("servers/apache.md"), text);
        let expected = "[a](../keyd.md#b), the\nlab ([c](nginx.md), [d](#e))\n\
                        [f](https://g.example/) [h] i\n";
        assert_eq!(page, expected);
    }

    #[test]
    fn symbols_of_newer_systems_are_found() {
        let listing = "\
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) pthread_create
0000000000000000      DF *UND*\t0000000000000000 (OPENSSL_3.0.0) OPENSSL_sk_num
0000000000000000  w   DF *UND*\t0000000000000000 (GLIBC_2.4.1) of_old
0000000000001000 g    DF .text\t0000000000000000  GLIBC_2.99 ours
";
        assert_eq!(newer(listing, "GLIBC_", "2.34"), None);
        assert_eq!(newer(listing, "OPENSSL_", "3.0.0"), None);
        assert_eq!(newer(listing, "GLIBC_", "2.33").unwrap(), "GLIBC_2.34");
        let later = listing.replace("OPENSSL_3.0.0", "OPENSSL_3.2.0");
        assert_eq!(newer(&later, "OPENSSL_", "3.0.0").unwrap(), "OPENSSL_3.2.0");
        let private = listing.replace("GLIBC_2.34", "GLIBC_PRIVATE");
        assert_eq!(newer(&private, "GLIBC_", "2.34").unwrap(), "GLIBC_PRIVATE");
    }
}
