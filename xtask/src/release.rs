//! `cargo xtask release`: a version, from a clean tree to a tag, and the repositories that apt and
//! dnf install it from.
//!
//! The commit of the release is made and built in a worktree of its own, so nothing here changes
//! before all of it has worked. apt-ftparchive, createrepo_c, rpmsign and gpg make the tree. It is
//! files alone, which any web server can offer, and each release adds its own to it. Those who
//! serve it can write in it, so a version's files are made, summed and signed in that worktree.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{
    Failure, Outcome, cargo, emptied, loudly, on, quietly, root, succeeds, target_directory,
};
use crate::commit::Commit;
use crate::package::{self, Packages};
use crate::setup;

/// The placeholder on the page for administrators until the first release.
const NO_URL: &str = "https://packages.lockstep.example";
const NO_FINGERPRINT: &str = "FINGERPRINT-OF-THE-KEY";
const NO_RELEASE: &str = "\
There is no release yet, so these addresses lead nowhere: until then take
[a package](#from-a-package) of your own build.

";

/// Each has a list of the versions that it is built with, our own among them.
const WORKSPACES: [&str; 3] = ["", "proofs", "rig/taint"];

const PAGE: &str = "docs/user/installation.md";
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
    if !order.is_dry
        && let Some(placeholder) = placeholder(env!("CARGO_PKG_AUTHORS"), order.url)
    {
        return Err(placeholder);
    }
    let signer = Signer::of(order.key, None)?;
    if !git(&root(), &["status", "--porcelain"])?.is_empty() {
        return Err(Failure::new("the tree has changes").remedy("git status"));
    }
    let tag = format!("v{}", order.version);
    if git(
        &root(),
        &[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("refs/tags/{tag}"),
        ],
    )
    .is_ok()
    {
        return Err(Failure::new(format!("there is a tag {tag}")));
    }
    let tree = std::path::absolute(order.tree).map_err(on(order.tree, "find"))?;
    // Its packages are signed and not tested: they do not belong beside the packages of releases.
    if order.is_dry && fs::read_dir(&tree).is_ok_and(|mut files| files.next().is_some()) {
        return Err(Failure::new(
            "a dry run takes a tree that is empty, or not there",
        ));
    }
    unpublished(&tree.join(order.version))?;
    let work = Worktree::add()?;
    let edit = |file: &str, edited: &dyn Fn(&str) -> Outcome<String>| {
        let path = work.0.join(file);
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        fs::write(&path, edited(&text)?).map_err(on(&path, "write"))
    };
    edit("Cargo.toml", &|text| with_version(text, order.version))?;
    edit("CHANGELOG.md", &|text| {
        with_section(text, order.version, &today()?)
    })?;
    edit(PAGE, &|text| {
        with_place(text, order.url, &signer.fingerprint)
    })?;
    for workspace in WORKSPACES {
        let mut update = cargo(["update", "--workspace", "--offline"]);
        quietly(update.current_dir(work.0.join(workspace)))?;
    }
    let message = format!("Release {}", order.version);
    git(
        &work.0,
        &["commit", "--quiet", "--all", "--message", &message],
    )?;
    let commit = git(&work.0, &["rev-parse", "HEAD"])?.trim().to_owned();
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

/// The workspace's manifest with a later version, or its own, which then has no tag yet.
fn with_version(manifest: &str, version: &str) -> Outcome<String> {
    let now = env!("CARGO_PKG_VERSION");
    let numbers = |version: &str| -> Option<Vec<u64>> {
        let parts = version.split('.').map(|part| part.parse().ok());
        parts
            .collect::<Option<Vec<u64>>>()
            .filter(|parts| parts.len() == 3)
    };
    if numbers(version) < numbers(now) {
        return Err(Failure::new(format!(
            "{version} is a version before {now}, or none"
        )));
    }
    let line = |version: &str| format!("\nversion = \"{version}\"\n");
    match manifest.matches(&line(now)).count() {
        1 => Ok(manifest.replace(&line(now), &line(version))),
        _ => Err(Failure::new(format!("Cargo.toml has no one version {now}"))),
    }
}

/// The changelog, with its unreleased part under a version.
fn with_section(changes: &str, version: &str, date: &str) -> Outcome<String> {
    const UNRELEASED: &str = "## [Unreleased]\n";
    let (before, after) = changes
        .split_once(UNRELEASED)
        .ok_or_else(|| Failure::new("CHANGELOG.md has no section Unreleased"))?;
    if after
        .split("\n## [")
        .next()
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        return Err(Failure::new("CHANGELOG.md has nothing that is unreleased"));
    }
    Ok(format!(
        "{before}{UNRELEASED}\n## [{version}] - {date}\n{after}"
    ))
}

/// The page for administrators, with the place of the repositories and the key.
pub fn with_place(page: &str, url: &str, fingerprint: &str) -> Outcome<String> {
    let page = page
        .replace(NO_URL, url)
        .replace(NO_FINGERPRINT, fingerprint)
        .replace(NO_RELEASE, "");
    for named in [url, fingerprint] {
        if !page.contains(named) {
            return Err(
                Failure::new(format!("{PAGE} does not name {named}")).remedy(
                    "a new place or key is a change that administrators must read: write it there, \
                 and into CHANGELOG.md",
                ),
            );
        }
    }
    Ok(page)
}

/// An address that packages would name and that nobody can write to or download from.
fn placeholder(authors: &str, url: &str) -> Option<Failure> {
    let failure = |what: &str| Failure::new(format!("{what} leads nowhere"));
    let host = url.strip_prefix("https://").unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    // No name of this end is ever given to anybody (RFC 2606).
    if host.is_empty() || host == "example" || host.ends_with(".example") {
        return Some(failure(url).remedy("administrators take packages from https://PLACE"));
    }
    authors.ends_with(".example>").then(|| {
        failure(authors).remedy("give the maintainers an address: `authors` in Cargo.toml")
    })
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

/// A key of gpg's, which stays with gpg.
pub struct Signer {
    pub fingerprint: String,
    /// A keyring other than the user's own.
    home: Option<PathBuf>,
}

impl Signer {
    /// The one secret key of this name, or fingerprint.
    pub fn of(key: &str, home: Option<PathBuf>) -> Outcome<Signer> {
        let mut signer = Signer {
            fingerprint: String::new(),
            home,
        };
        let listed = signer.gpg(&["--with-colons", "--list-secret-keys", "--", key])?;
        let mut prints = listed.lines().filter(|line| line.starts_with("fpr:"));
        let print = prints.next().and_then(|line| line.split(':').nth(9));
        let is_one = listed
            .lines()
            .filter(|line| line.starts_with("sec:"))
            .count()
            == 1;
        signer.fingerprint = print.filter(|_| is_one).map(str::to_owned).ok_or_else(|| {
            Failure::new(format!(
                "{key} is not the name of one secret key: give its fingerprint"
            ))
        })?;
        Ok(signer)
    }

    fn gpg(&self, arguments: &[&str]) -> Outcome<String> {
        let mut gpg = Command::new("gpg");
        gpg.args(["--batch", "--quiet", "--yes"]);
        if !self.fingerprint.is_empty() {
            gpg.arg("--local-user").arg(&self.fingerprint);
        }
        quietly(self.at_home(&mut gpg).args(arguments))
    }

    /// Signs a file, by this kind of signature of gpg's.
    fn sign(&self, kind: &str, file: &Path, signature: &Path) -> Outcome {
        let [file, signature] = [file, signature].map(|path| path.display().to_string());
        self.gpg(&["--armor", "--output", &signature, kind, &file])
            .map(drop)
    }

    /// The text of a file that this key has signed: the text that was checked, whatever the file
    /// has by now.
    fn signed_text(&self, file: &Path, signature: &Path) -> Outcome<String> {
        let text = fs::read(file).map_err(on(file, "read"))?;
        let mut gpg = Command::new("gpg");
        gpg.args(["--batch", "--status-fd", "1", "--verify"])
            .arg(signature)
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spoken = self.at_home(&mut gpg).spawn().and_then(|mut gpg| {
            let given = gpg.stdin.take().map(|mut input| input.write_all(&text));
            let told = gpg.wait_with_output()?;
            // Without a signature it does not read on, and says so.
            given.filter(|_| told.status.success()).transpose()?;
            Ok(told)
        });
        let told = spoken.map_err(on(Path::new("gpg"), "run"))?;
        let shown = file.display();
        if !told.status.success() {
            let told = String::from_utf8_lossy(&told.stderr);
            return Err(Failure::new(format!("{shown} is not as signed:\n{told}")));
        }
        // Its last word is the main key, whichever of its keys has signed.
        let told = String::from_utf8_lossy(&told.stdout);
        let mut signers = told.lines().filter(|line| line.contains(" VALIDSIG "));
        match signers.any(|line| line.ends_with(&format!(" {}", self.fingerprint))) {
            true => Ok(String::from_utf8_lossy(&text).into_owned()),
            false => Err(Failure::new(format!("another key has signed {shown}"))),
        }
    }

    fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.home {
            Some(home) => command.env("GNUPGHOME", home),
            None => command,
        }
    }
}

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
fn unpublished(downloads: &Path) -> Outcome {
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
    let suite = apt.join("dists/stable");
    let binaries = suite.join("main/binary-amd64");
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

    let ftparchive = |arguments: &[&str]| {
        quietly(
            Command::new("apt-ftparchive")
                .args(arguments)
                .current_dir(&apt),
        )
    };
    let list = binaries.join("Packages");
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
    let unsigned = tree.join("Release.new");
    fs::write(&unsigned, release).map_err(on(&unsigned, "write"))?;
    signer.sign("--clear-sign", &unsigned, &suite.join("InRelease"))?;
    fs::remove_file(&unsigned).map_err(on(&unsigned, "remove"))?;

    quietly(
        Command::new("createrepo_c")
            .args(["--quiet", "--no-database", "--general-compress-type=gz"])
            .arg(&dnf),
    )?;
    let list = dnf.join("repodata/repomd.xml");
    signer.sign("--detach-sign", &list, &dnf.join("repodata/repomd.xml.asc"))?;

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

    #[test]
    fn a_release_has_a_later_version() {
        let now = env!("CARGO_PKG_VERSION");
        let manifest = format!("[workspace.package]\nversion = \"{now}\"\nedition = \"2024\"\n");
        let later = with_version(&manifest, "99.1.0").unwrap();
        assert_eq!(later, manifest.replace(now, "99.1.0"));
        assert_eq!(with_version(&manifest, now).unwrap(), manifest);
        for other in ["0.0.9", "99.1", "99.1.0-rc1", "v99.1.0"] {
            assert!(with_version(&manifest, other).is_err(), "{other}");
        }
        assert!(with_version(&manifest.repeat(2), "99.1.0").is_err());
        let real = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(with_version(&real, "99.1.0").is_ok());
    }

    #[test]
    fn a_release_names_people_and_places_that_are_there() {
        let is_one = |authors: &str, url: &str| placeholder(authors, url).is_some();
        const US: &str = "Us <us@lockstep.test>";
        assert!(!is_one(US, "https://lockstep.test/example"));
        assert!(is_one(US, NO_URL));
        assert!(is_one("Us <us@lockstep.example>", "https://lockstep.test"));
        for host in ["a.example.", "a.example:443", "a.EXAMPLE", "example", ""] {
            assert!(is_one(US, &format!("https://{host}/l")), "{host}");
        }
        for url in ["http://lockstep.test", "lockstep.test", "file:///srv"] {
            assert!(is_one(US, url), "{url}");
        }
    }

    #[test]
    fn unreleased_changes_get_the_version() {
        let changes = "# C\n\n## [Unreleased]\n\n- a\n\n## [0.1.0] - 2026-11-23\n\n- b\n";
        let released = with_section(changes, "0.2.0", "2026-12-01").unwrap();
        assert_eq!(
            released,
            "# C\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n- a\n\n\
             ## [0.1.0] - 2026-11-23\n\n- b\n"
        );
        assert!(
            with_section(&released, "0.3.0", "2026-12-02").is_err(),
            "nothing is new"
        );
        assert!(with_section("# C\n", "0.3.0", "2026-12-02").is_err());
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

    #[test]
    fn the_page_names_the_place_and_the_key_of_each_release() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        // All of it until the first release, and nothing after it.
        let is_there = [NO_URL, NO_FINGERPRINT, NO_RELEASE].map(|text| page.contains(text));
        assert!(is_there == [is_there[0]; 3], "{is_there:?}");
        assert_eq!(page.contains("no release yet"), is_there[0]);
        let page = format!("{NO_RELEASE}{NO_URL} {NO_FINGERPRINT}\n");
        let named = with_place(&page, "https://a.example/l", "AB12").unwrap();
        assert_eq!(named, "https://a.example/l AB12\n");
        assert_eq!(
            with_place(&named, "https://a.example/l", "AB12").unwrap(),
            named
        );
        assert!(with_place(&named, "https://b.example", "AB12").is_err());
        assert!(with_place(&named, "https://a.example/l", "CD34").is_err());
    }
}
