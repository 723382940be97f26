//! `cargo xtask release`: a version, from a clean tree to a tag, and the repositories that apt and
//! dnf install it from.
//!
//! The commit of the release is made and built in a worktree of its own, so nothing here changes
//! before all of it has worked. apt-ftparchive, createrepo_c, rpmsign and gpg make the tree. It is
//! files alone, which any web server can offer, and each release adds its own to it. Those who
//! serve it can write in it, so a version's files are made, summed and signed in that worktree.

mod edits;
mod repositories;
mod signer;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{
    Failure, Outcome, cargo, loudly, on, quietly, root, succeeds, target_directory,
};
use xtask::commit::Commit;
use xtask::setup;

use crate::package::{self, Packages};
pub use edits::with_place;
use edits::{PAGE, placeholder, with_section, with_version};

#[cfg(test)]
pub use repositories::check_packages;
pub use repositories::publish;
use repositories::unpublished;
pub use signer::Signer;

/// Each has a list of the versions that it is built with, our own among them.
const WORKSPACES: [&str; 3] = ["", "proofs", "rig/taint"];

const USAGE: &str = "cargo xtask release VERSION --key KEY --url URL --tree DIR [--dry-run]";

/// The programs that make a tree, and their packages.
const TOOLS: [(&str, &str); 4] = [
    ("apt-ftparchive", "apt-utils"),
    ("createrepo_c", "createrepo-c"),
    ("rpmsign", "rpm"),
    ("gpg", "gnupg"),
];

/// The programs that make images, and the ones that run them.
const IMAGE_TOOLS: [(&str, &str); 2] = [("mmdebstrap", "mmdebstrap"), ("umoci", "umoci")];
const CHECK_TOOLS: [(&str, &str); 2] = [("jq", "jq"), ("runc", "runc")];

/// Debian's keys, by which an image takes its packages.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The servers of which there are images.
pub const IMAGES: [&str; 2] = ["haproxy", "nginx"];

/// The arguments of the command line.
struct Order<'a> {
    version: &'a str,
    key: &'a str,
    url: &'a str,
    tree: &'a Path,
    /// Everything but a commit and a tag in this repository, and but the tests.
    is_dry: bool,
}

/// Makes a release.
pub fn run(arguments: &[&str]) -> Outcome {
    let order = Order::of(arguments)?;
    if let Some(missing) = package::missing()
        .or_else(missing)
        .or_else(no_images)
        .or_else(package::unaudited)
    {
        return Err(missing);
    }
    let signer = Signer::of(order.key, None)?;
    let tag = format!("v{}", order.version);
    let tree = std::path::absolute(order.tree).map_err(on(order.tree, "find"))?;
    order.insist(&tag, &tree)?;
    let work = Worktree::add()?;
    let commit = work.commit(&order, &signer)?;
    let here = |command: &[&str]| {
        let mut command = cargo(command.iter().copied());
        loudly(command.current_dir(&work.0).env_remove("CARGO_TARGET_DIR"))
    };
    here(&["xtask", "package"])?;
    if !order.is_dry {
        here(&["xtask", "test"])?;
    }
    let packages = Packages::of(&work.0.join("target/package"), order.version, 1);
    let images = images(&packages, &work.0, &order, &signer)?;
    publish(&packages, &images, &tree, order.url, &signer)?;
    println!("packages, repositories and sums: {}", tree.display());
    if order.is_dry {
        println!("a dry run: no commit and no tag");
        return Ok(());
    }
    git(&root(), &["merge", "--quiet", "--ff-only", &commit])?;
    let key = format!("--local-user={}", signer.fingerprint);
    let subject = format!("Lockstep {}", order.version);
    git(
        &root(),
        &["tag", "--sign", &key, "--message", &subject, &tag, &commit],
    )?;
    println!("tagged {tag}: upload the tree, then git push --follow-tags");
    Ok(())
}

impl<'a> Order<'a> {
    /// Fails where this release would have a wrong address, changes that nobody has committed, a
    /// tag of another release, or files of another release in the tree.
    fn insist(&self, tag: &str, tree: &Path) -> Outcome {
        if !self.is_dry
            && let Some(placeholder) = placeholder(env!("CARGO_PKG_AUTHORS"), self.url)
        {
            return Err(placeholder);
        }
        if !git(&root(), &["status", "--porcelain"])?.is_empty() {
            return Err(Failure::new("the tree has changes").remedy("git status"));
        }
        let name = format!("refs/tags/{tag}");
        if git(&root(), &["rev-parse", "--verify", "--quiet", &name]).is_ok() {
            return Err(Failure::new(format!("there is a tag {tag}")));
        }
        // Its packages are signed and not tested: they do not belong beside the packages of
        // releases.
        if self.is_dry && fs::read_dir(tree).is_ok_and(|mut files| files.next().is_some()) {
            return Err(Failure::new(
                "a dry run takes a tree that is empty, or not there",
            ));
        }
        unpublished(&tree.join(self.version))
    }

    fn of(arguments: &[&'a str]) -> Outcome<Order<'a>> {
        let mut given = [None; 3];
        let (mut version, mut is_dry) = (None, false);
        let mut arguments = arguments.iter();
        while let Some(&argument) = arguments.next() {
            match ["--key", "--url", "--tree"]
                .iter()
                .position(|name| *name == argument)
            {
                Some(place) => given[place] = arguments.next().copied(),
                None if argument == "--dry-run" => is_dry = true,
                None if argument.starts_with('-') || version.is_some() => {
                    return Err(
                        Failure::new(format!("{argument} means nothing here")).remedy(USAGE)
                    );
                }
                None => version = Some(argument),
            }
        }
        let (Some(version), [Some(key), Some(url), Some(tree)]) = (version, given) else {
            return Err(Failure::new("`release` needs more than that").remedy(USAGE));
        };
        Ok(Order {
            version,
            key,
            url: url.trim_end_matches('/'),
            tree: Path::new(tree),
            is_dry,
        })
    }
}

/// A checkout of this commit beside the repository's own, for as long as this lives.
struct Worktree(PathBuf);

impl Worktree {
    fn add() -> Outcome<Worktree> {
        let work = Worktree(target_directory().join("release-of"));
        // A release that was interrupted has left it.
        work.remove();
        let place = work.0.display().to_string();
        git(&root(), &["worktree", "add", "--quiet", "--detach", &place])?;
        Ok(work)
    }

    /// Commits the release there, and returns the commit.
    fn commit(&self, order: &Order, signer: &Signer) -> Outcome<String> {
        let edit = |file: &str, edited: &dyn Fn(&str) -> Outcome<String>| {
            let path = self.0.join(file);
            let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
            fs::write(&path, edited(&text)?).map_err(on(&path, "write"))
        };
        edit("Cargo.toml", &|text| with_version(text, order.version))?;
        edit("c/lockstep.pc", &|text| {
            let line = |version: &str| format!("\nVersion: {version}\n");
            Ok(text.replace(&line(env!("CARGO_PKG_VERSION")), &line(order.version)))
        })?;
        edit("CHANGELOG.md", &|text| {
            with_section(text, order.version, &today()?)
        })?;
        edit(PAGE, &|text| {
            with_place(text, order.url, &signer.fingerprint)
        })?;
        for workspace in WORKSPACES {
            let mut update = cargo(["update", "--workspace", "--offline"]);
            quietly(update.current_dir(self.0.join(workspace)))?;
        }
        let message = format!("Release {}", order.version);
        git(
            &self.0,
            &["commit", "--quiet", "--all", "--message", &message],
        )?;
        Ok(git(&self.0, &["rev-parse", "HEAD"])?.trim().to_owned())
    }

    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = git(&root(), &["worktree", "prune"]);
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

fn git(place: &Path, arguments: &[&str]) -> Outcome<String> {
    quietly(Command::new("git").arg("-C").arg(place).args(arguments))
}

fn today() -> Outcome<String> {
    let date = quietly(Command::new("date").args(["--utc", "+%F"]))?;
    Ok(date.trim().to_owned())
}

/// The first of the tools that make a tree that is not installed.
pub fn missing() -> Option<Failure> {
    first_missing(&TOOLS)
}

fn first_missing(tools: &[(&str, &str)]) -> Option<Failure> {
    let mut tools = tools.iter();
    let (tool, package) = tools.find(|(tool, _)| !succeeds(tool, &["--version"]))?;
    Some(Failure::new(format!("{tool} is missing")).remedy(format!("apt-get install {package}")))
}

/// Why no images can be made here, or, by root, not be run.
pub fn no_images() -> Option<Failure> {
    let lacks = |what: &str, package: &str| {
        Failure::new(format!("{what} missing")).remedy(format!("apt-get install {package}"))
    };
    if let Some(missing) = first_missing(&IMAGE_TOOLS) {
        return Some(missing);
    }
    if !Path::new(KEYRING).exists() {
        return Some(lacks(&format!("{KEYRING} is"), "debian-archive-keyring"));
    }
    if setup::is_root() {
        return first_missing(&CHECK_TOOLS);
    }
    // As mmdebstrap is root of its own place.
    let many = ["--user", "--map-auto", "--map-root-user", "true"];
    (!succeeds("unshare", &many)).then(|| {
        lacks("numbers for users of its own are", "uidmap").remedy(
            "apt-get install uidmap, and a line of this user in /etc/subuid and /etc/subgid",
        )
    })
}

/// Makes the images of the servers from these packages and runs them, in the worktree of a release.
fn images(
    packages: &Packages,
    work: &Path,
    order: &Order,
    signer: &Signer,
) -> Outcome<Vec<PathBuf>> {
    let place = work.join("target/images");
    // The lists that a tree will have, of these packages alone.
    publish(packages, &[], &place, order.url, signer)?;
    let images = IMAGES.map(|server| {
        let file = place.join(format!("lockstep-{server}-{}.oci.tar", order.version));
        image(server, work, &place, &format!("{}-1", order.version), &file)?;
        match setup::is_root() {
            true => check_image(server, work, &file)?,
            false => println!(
                "not root, so nobody has run it: packaging/check-image.sh {server} {}, before it \
                 is uploaded",
                order
                    .tree
                    .join(order.version)
                    .join(file.file_name().unwrap_or_default())
                    .display()
            ),
        }
        Ok(file)
    });
    images.into_iter().collect()
}

/// Makes an image of a server with this version of the package in a tree, by a checkout's sources.
pub fn image(server: &str, sources: &Path, tree: &Path, version: &str, file: &Path) -> Outcome {
    let mut make = Command::new(sources.join("packaging/image.sh"));
    make.env("SOURCE_DATE_EPOCH", Commit::of(sources)?.seconds);
    make.arg(server).args([tree, &tree.join("lockstep.asc")]);
    quietly(make.arg(version).arg(file)).map(drop)
}

/// Runs an image of a server, and prints the result.
pub fn check_image(server: &str, sources: &Path, file: &Path) -> Outcome {
    let mut check = Command::new(sources.join("packaging/check-image.sh"));
    let shown = quietly(check.arg(server).arg(file))?;
    print!("{shown}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_option_is_no_release() {
        let of = |line: &str| Order::of(&line.split(' ').collect::<Vec<_>>()).map(|own| own.is_dry);
        const PLACES: &str = "--key k --url u --tree t";
        assert!(!of(&format!("9.0.0 {PLACES}")).unwrap());
        assert!(of(&format!("{PLACES} --dry-run 9.0.0")).unwrap());
        assert!(of(PLACES).is_err());
        for wrong in ["--dry-rn 9.0.0", "9.0.0 9.0.1", "9.0.0 --dryrun"] {
            assert!(of(&format!("{PLACES} {wrong}")).is_err(), "{wrong}");
        }
    }

    /// A release that left one of them out would be tested with a list that is not its own.
    #[test]
    fn all_workspaces_are_known() {
        let files = git(&root(), &["ls-files", "*Cargo.lock"]).unwrap();
        let places = files
            .lines()
            .map(|file| file.trim_end_matches("Cargo.lock"));
        let places: Vec<_> = places.map(|place| place.trim_end_matches('/')).collect();
        assert_eq!(places, WORKSPACES);
    }
}
