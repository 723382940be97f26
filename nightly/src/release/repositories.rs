//! The tree of repositories that apt and dnf install a release from.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{Failure, Outcome, emptied, on, quietly};

use super::signer::Signer;
use crate::package::Packages;

/// The directory of the list of packages in a suite of apt.
const BINARIES: &str = "main/binary-amd64";

/// Checks that each package in a tree is as a release has signed it. The new lists are about all of
/// them, and the tree may have been where others can write.
pub fn check_packages(tree: &Path, signer: &Signer) -> Outcome {
    let mut known = HashSet::new();
    for entry in fs::read_dir(tree).map_err(on(tree, "list"))?.flatten() {
        let list = entry.path().join("SHA256SUMS");
        if list.exists() {
            let sums = signer.signed_text(&list, &list.with_extension("asc"))?;
            known.extend(sums.lines().map(str::to_owned));
        }
    }
    // As the tools that make the lists, it follows links.
    let mut sums = Command::new("find");
    sums.args(["-L", "apt/pool", "dnf", "-type", "f", "("]);
    sums.args(["-path", "apt/pool/*", "-o", "-name", "*.rpm", ")"]);
    sums.args(["-exec", "sha256sum", "{}", "+"]);
    let sums = quietly(sums.current_dir(tree))?;
    let is_known = |line: &&str| {
        let (sum, path) = line.split_once("  ").unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        known.contains(&format!("{sum}  {name}"))
    };
    match sums.lines().find(|line| !is_known(line)) {
        None => Ok(()),
        Some(line) => Err(Failure::new(format!(
            "no release has signed this package, which is in {}: {line}",
            tree.display()
        ))
        .remedy("find out who has put it there; if an earlier attempt has, remove it")),
    }
}

/// Whether a version's directory in a tree is still to be made.
pub fn unpublished(downloads: &Path) -> Outcome {
    match downloads.exists() {
        false => Ok(()),
        true => Err(
            Failure::new(format!("{} was published before", downloads.display()))
                .remedy("give the release another version, or remove its directory"),
        ),
    }
}

/// Adds packages, and images of the same version, to a tree of repositories, and signs it: an empty
/// directory, or one that an earlier release has made. The tree will be at this URL.
pub fn publish(
    packages: &Packages,
    images: &[PathBuf],
    tree: &Path,
    url: &str,
    signer: &Signer,
) -> Outcome {
    let apt = tree.join("apt");
    let pool = apt.join("pool");
    let binaries = apt.join("dists/stable").join(BINARIES);
    let dnf = tree.join("dnf");
    let downloads = tree.join(&packages.version);
    unpublished(&downloads)?;
    for directory in [&pool, &dnf] {
        fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    }
    check_packages(tree, signer)?;
    let signed = signed(packages, images, signer)?;
    // The signature is about all files there, and dnf's tool keeps lists that it does not make.
    for lists in [&apt.join("dists"), &dnf.join("repodata")] {
        emptied(lists)?;
    }
    for directory in [&binaries, &downloads] {
        fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    }
    let copy = |file: &Path, directory: &Path| {
        let copy = directory.join(file.file_name().unwrap_or_default());
        fs::copy(file, &copy).map_err(on(&copy, "write")).map(drop)
    };
    for file in &signed {
        copy(file, &downloads)?;
    }
    for (file, repository) in signed.iter().zip([&pool, &dnf]) {
        copy(file, repository)?;
    }
    list_for_apt(&apt, signer)?;
    list_for_dnf(&dnf, signer)?;
    offer(tree, url, signer)
}

/// Makes and signs the lists of the packages in a repository of apt.
fn list_for_apt(apt: &Path, signer: &Signer) -> Outcome {
    let suite = apt.join("dists/stable");
    let ftparchive = |arguments: &[&str]| {
        quietly(
            Command::new("apt-ftparchive")
                .args(arguments)
                .current_dir(apt),
        )
    };
    let list = suite.join(BINARIES).join("Packages");
    fs::write(&list, ftparchive(&["packages", "pool"])?).map_err(on(&list, "write"))?;
    quietly(
        Command::new("gzip")
            .args(["-9", "--no-name", "--keep", "--force"])
            .arg(&list),
    )?;
    let facts = [
        "Origin=Lockstep",
        "Label=Lockstep",
        "Suite=stable",
        "Codename=stable",
        "Architectures=amd64",
        "Components=main",
    ];
    let facts = facts.map(|fact| format!("-o=APT::FTPArchive::Release::{fact}"));
    let mut release: Vec<&str> = facts.iter().map(String::as_str).collect();
    release.extend(["release", "dists/stable"]);
    let release = ftparchive(&release)?;
    // A signed list, and no list without its signature.
    let unsigned = apt.with_file_name("Release.new");
    fs::write(&unsigned, release).map_err(on(&unsigned, "write"))?;
    signer.sign("--clear-sign", &unsigned, &suite.join("InRelease"))?;
    fs::remove_file(&unsigned).map_err(on(&unsigned, "remove"))
}

/// Makes and signs the lists of the packages in a repository of dnf.
fn list_for_dnf(dnf: &Path, signer: &Signer) -> Outcome {
    quietly(
        Command::new("createrepo_c")
            .args(["--quiet", "--no-database", "--general-compress-type=gz"])
            .arg(dnf),
    )?;
    let list = dnf.join("repodata/repomd.xml");
    signer.sign("--detach-sign", &list, &dnf.join("repodata/repomd.xml.asc"))
}

/// Puts the files into a tree by which an administrator has apt and dnf use it: the key, and where
/// the repositories are.
fn offer(tree: &Path, url: &str, signer: &Signer) -> Outcome {
    let key = signer.gpg(&["--armor", "--export", &signer.fingerprint])?;
    let inside: String = key
        .lines()
        .map(|line| match line.is_empty() {
            true => " .\n".to_owned(),
            false => format!(" {line}\n"),
        })
        .collect();
    let sources = format!(
        "Types: deb\nURIs: {url}/apt\nSuites: stable\nComponents: main\nArchitectures: amd64\n\
         Signed-By:\n{inside}"
    );
    // A key that dnf would fetch from there could be replaced together with the packages.
    let repository = format!(
        "[lockstep]\nname=Lockstep\nbaseurl={url}/dnf\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=1\n\
         gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-lockstep\n"
    );
    for (name, text) in [
        ("lockstep.asc", key),
        ("lockstep.sources", sources),
        ("lockstep.repo", repository),
    ] {
        let file = tree.join(name);
        fs::write(&file, text).map_err(on(&file, "write"))?;
    }
    Ok(())
}

/// The files of a version, the .deb and the .rpm first, with their sums and the signature of those,
/// in a place beside the packages.
fn signed(packages: &Packages, images: &[PathBuf], signer: &Signer) -> Outcome<Vec<PathBuf>> {
    let place = packages.deb.with_file_name("signed");
    emptied(&place)?;
    let mut files = Vec::new();
    for file in packages.files().chain(images) {
        let copy = place.join(file.file_name().unwrap_or_default());
        fs::copy(file, &copy).map_err(on(file, "copy"))?;
        files.push(copy);
    }
    let mut sign = Command::new("rpmsign");
    // rpm looks for `gpg2`.
    sign.arg("--define=__gpg /usr/bin/gpg");
    sign.arg("--addsign")
        .arg(format!("--define=_gpg_name {}", signer.fingerprint));
    quietly(signer.at_home(sign.arg(&files[1])))?;
    let mut sum = Command::new("sha256sum");
    sum.args(files.iter().filter_map(|file| file.file_name()));
    let sums = quietly(sum.current_dir(&place))?;
    let list = place.join("SHA256SUMS");
    let signature = list.with_extension("asc");
    fs::write(&list, sums).map_err(on(&list, "write"))?;
    signer.sign("--detach-sign", &list, &signature)?;
    files.extend([list, signature]);
    Ok(files)
}
