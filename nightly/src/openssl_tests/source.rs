//! OpenSSL's test programs, built from the distribution's sources and kept in the user's cache.
//!
//! The programs link to a shared libcrypto of the same build. With `LD_LIBRARY_PATH` on that build
//! the module uses that libcrypto too: it refuses to load into a program with another one.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use xtask::command::{Failure, Outcome, on, openssl, quietly, user_cache};

use super::programs::lines;
use crate::openssl_build::{self, is_made};

/// The directory of sources and builds in the user's cache.
const CACHE: &str = "openssl-tests";

/// Options of `Configure`. No speed is measured with this build.
const OPTIONS: &[&str] = &[
    "no-afalgeng",
    "enable-ec_nistp_64_gcc_128",
    "shared",
    "CFLAGS=-O1",
];

/// The files that `evp_test` needs.
const VECTORS: &[&str] = &["libcrypto.so", "providers/legacy.so", "test/evp_test"];

/// Tests whose sources use internal functions link to the shared libcrypto all the same: it exports
/// everything.
const EXPORTS: (&str, &str) = ("local: *;", "*;");

/// A build that is ready to use.
pub struct Build {
    /// The source tree, which is the build's too.
    pub directory: PathBuf,
    pub version: Version,
}

/// A version of OpenSSL, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u32; 3]);

impl Version {
    /// Reads the start of `3.0.19-1~deb12u2` or the like.
    fn parse(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let mut parts = text[..end.unwrap_or(text.len())].split('.');
        let mut part = || parts.next()?.parse().ok();
        Some(Version([part()?, part()?, part()?]))
    }

    /// Whether its own AES-GCM uses no vectors longer than a block, so that the module has its own
    /// on a CPU with the instructions.
    pub fn lacks_gcm(self) -> bool {
        self.0[..2] == [3, 0]
    }

    /// Whether both have the same interface and the same tests, but for mended defects.
    fn same_series(self, other: Version) -> bool {
        self.0[..2] == other.0[..2]
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Version([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// A replacement in a file of the sources, before they are configured.
#[derive(Deserialize)]
struct Edit {
    file: String,
    from: String,
    to: String,
}

fn edits() -> Vec<Edit> {
    let text = include_str!("../../../rig/openssl-tests/edits.json");
    serde_json::from_str(text).expect("a test reads it")
}

/// An OpenSSL whose tests are wanted.
pub struct Wanted<'a> {
    version: Version,
    targets: Vec<&'static str>,
    /// The release of Debian that it is from, and its root directory; `None` for this system.
    release: Option<(&'a str, &'a Path)>,
}

impl<'a> Wanted<'a> {
    /// The installed one, with all tests.
    pub fn installed() -> Outcome<Wanted<'a>> {
        let text = quietly(&mut openssl(["version"]))?;
        let version = text.strip_prefix("OpenSSL ").and_then(Version::parse);
        let unread = || Failure::new(format!("no version of OpenSSL can be read in {text:?}"));
        Ok(Wanted {
            version: version.ok_or_else(unread)?,
            targets: lines("target").collect(),
            release: None,
        })
    }

    /// That of a release of Debian in its root directory, with `evp_test` only; None if this is no
    /// version.
    pub fn vectors(version: &str, release: Option<(&'a str, &'a Path)>) -> Option<Wanted<'a>> {
        Some(Wanted {
            version: Version::parse(version)?,
            targets: VECTORS.to_vec(),
            release,
        })
    }

    fn recipe(&self) -> String {
        let edits = edits();
        let edits = edits.iter().map(|edit| (&edit.file, &edit.from, &edit.to));
        let (targets, edits) = (&self.targets, Vec::from_iter(edits));
        format!("{OPTIONS:?}\n{targets:?}\n{edits:?}\n{EXPORTS:?}\n")
    }
}

/// The build that is there, if there is one of the wanted series. Nothing is fetched or built.
pub fn at_hand(wanted: &Wanted<'_>) -> Outcome<Option<Build>> {
    let recipe = wanted.recipe();
    let mut found: Vec<Build> = Vec::new();
    for entry in fs::read_dir(user_cache(CACHE)?)
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let directory = entry.path();
        let version = name.strip_prefix("openssl-").and_then(Version::parse);
        match version {
            Some(version)
                if is_made(&directory, &recipe) && version.same_series(wanted.version) =>
            {
                found.push(Build { directory, version });
            }
            _ => {}
        }
    }
    found.sort_by_key(|build| (build.version == wanted.version, build.version));
    Ok(found.pop())
}

/// The build for an OpenSSL, made if need be; or the reason why there is none.
///
/// Where the package index does not offer that version any more, it is the newest one of
/// the same series.
pub fn prepare(wanted: &Wanted<'_>) -> Outcome<Result<Build, String>> {
    let version = wanted.version;
    let ready = at_hand(wanted)?;
    if ready.as_ref().is_some_and(|build| build.version == version) {
        return Ok(ready.ok_or_else(String::new));
    }
    let archive = match archive(wanted) {
        Ok(archive) => archive,
        // No network tonight, for example.
        Err(_) if ready.is_some() => return Ok(ready.ok_or_else(String::new)),
        Err(failure) => {
            return Ok(Err(format!(
                "no sources of OpenSSL {version} ({failure}): put openssl-{version}.tar.gz \
                 into {}",
                user_cache(CACHE)?.display()
            )));
        }
    };
    if let Some(build) = ready.filter(|build| build.version == archive.1) {
        return Ok(Ok(build));
    }
    build(wanted, &archive.0, archive.1)
}

/// The directory of archives of sources, and of their builds.
pub fn cache() -> Outcome<PathBuf> {
    user_cache(CACHE)
}

/// The newest archive of a series that is there.
pub fn archive_of(series: [u32; 2]) -> Outcome<Option<PathBuf>> {
    let found = present(&cache()?, |version| version.0[..2] == series);
    Ok(found.map(|(archive, _)| archive))
}

/// The newest archive in the cache that fits.
fn present(cache: &Path, fits: impl Fn(Version) -> bool) -> Option<(PathBuf, Version)> {
    fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = Version::parse(name.strip_prefix("openssl")?.get(1..)?)?;
            (name.ends_with(".tar.gz") && fits(version)).then(|| (entry.path(), version))
        })
        .max_by_key(|(_, version)| *version)
}

/// The sources: an archive that somebody has put into the cache, or one that apt has fetched and
/// verified.
fn archive(wanted: &Wanted<'_>) -> Outcome<(PathBuf, Version)> {
    let cache = cache()?;
    if let Some(exact) = present(&cache, |version| version == wanted.version) {
        return Ok(exact);
    }
    let fetched = fetch(&cache, wanted);
    match present(&cache, |version| version.same_series(wanted.version)) {
        Some(found) => Ok(found),
        None => Err(fetched.err().unwrap_or_else(|| {
            Failure::new(format!("apt-get left no archive in {}", cache.display()))
        })),
    }
}

/// Apt's list of the repositories with the sources of this machine's packages.
fn list_of_system() -> Outcome<String> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "deb-src [signed-by=$(SIGNED_BY)] $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]);
    Ok(quietly(&mut targets)?
        // Apt leaves this where the configuration names no key.
        .replace("[signed-by=$(SIGNED_BY)] ", "")
        .replace("[signed-by=] ", ""))
}

/// The same of the packages in a root directory, whose lists debootstrap and we have written.
fn list_of_root(root: &Path) -> Outcome<String> {
    let main = root.join("etc/apt/sources.list");
    let mut text = fs::read_to_string(&main).map_err(on(&main, "read"))?;
    let parts = root.join("etc/apt/sources.list.d");
    for entry in fs::read_dir(&parts).into_iter().flatten().flatten() {
        let path = entry.path();
        text += "\n";
        text += &fs::read_to_string(&path).map_err(on(&path, "read"))?;
    }
    let packages = text.lines().filter_map(|line| line.strip_prefix("deb "));
    Ok(packages.map(|rest| format!("deb-src {rest}\n")).collect())
}

/// Has apt fetch the sources from where the packages come from, with lists of its own.
fn fetch(cache: &Path, wanted: &Wanted<'_>) -> Outcome {
    let apt = cache.join(match wanted.release {
        None => "apt".to_owned(),
        Some((release, _)) => format!("apt-{release}"),
    });
    let (lists, own) = (apt.join("lists"), apt.join("sources.list"));
    let partial = lists.join("partial");
    fs::create_dir_all(&partial).map_err(on(&partial, "create"))?;
    let text = match wanted.release {
        None => list_of_system(),
        Some((_, root)) => list_of_root(root),
    };
    fs::write(&own, text?).map_err(on(&own, "write"))?;
    // The keys of another release are that release's.
    let keys = wanted.release.map(|(_, root)| {
        let keys = root.join("usr/share/keyrings");
        format!("Dir::Etc::trustedparts={}", keys.display())
    });
    let with_own = |program: &str| {
        let mut command = Command::new(program);
        for (name, value) in [
            ("Dir::Etc::sourcelist", own.as_path()),
            ("Dir::Etc::sourceparts", Path::new("/dev/null")),
            ("Dir::State::Lists", &lists),
            ("Dir::Cache", &apt),
            ("APT::Sandbox::User", Path::new("root")),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        if let Some(keys) = &keys {
            command.arg("-o").arg(keys);
        }
        command.current_dir(cache);
        command
    };
    quietly(with_own("apt-get").args(["-q", "update"]))?;
    let offered = quietly(with_own("apt-cache").args(["showsrc", "openssl"]))?;
    let mut versions: Vec<(Version, &str)> = offered
        .lines()
        .filter_map(|line| line.strip_prefix("Version: "))
        .filter_map(|text| Some((Version::parse(text)?, text)))
        .filter(|(version, _)| version.same_series(wanted.version))
        .collect();
    versions.sort_by_key(|(version, _)| (*version == wanted.version, *version));
    let mut fetched = Err(Failure::new(format!(
        "the package index has no sources of the series of OpenSSL {}",
        wanted.version
    )));
    // A mirror may lack versions that its index names.
    for (_, name) in versions.iter().rev() {
        let mut source = with_own("apt-get");
        source.args(["-q", "source", "--download-only", "--tar-only"]);
        fetched = quietly(source.arg(format!("openssl={name}"))).map(drop);
        if fetched.is_ok() {
            break;
        }
    }
    fetched
}

/// Unpacks, edits, configures and builds.
fn build(wanted: &Wanted<'_>, archive: &Path, version: Version) -> Outcome<Result<Build, String>> {
    let recipe = wanted.recipe();
    let mut hasher = DefaultHasher::new();
    recipe.hash(&mut hasher);
    let name = format!("openssl-{version}-{:016x}", hasher.finish());
    let build = openssl_build::Build {
        directory: user_cache(CACHE)?.join(name),
        recipe: &recipe,
        options: OPTIONS,
        targets: &wanted.targets,
    };
    let unpack = |scratch: &Path| {
        fs::create_dir_all(scratch).map_err(on(scratch, "create"))?;
        let mut tar = Command::new("tar");
        tar.args([
            "--strip-components=1",
            "--no-same-owner",
            "--no-same-permissions",
        ]);
        quietly(tar.arg("-xf").arg(archive).arg("-C").arg(scratch))?;
        for Edit { file, from, to } in edits() {
            replace(&scratch.join(file), &from, &to)?;
        }
        Ok(())
    };
    let made = build.make(unpack, &["libcrypto.ld", "libssl.ld"], |scratch| {
        for library in ["libcrypto.ld", "libssl.ld"] {
            replace(&scratch.join(library), EXPORTS.0, EXPORTS.1)?;
        }
        Ok(())
    })?;
    Ok(made.map(|()| Build {
        directory: build.directory,
        version,
    }))
}

/// Replaces a text. Other versions may lack it: whether a test has lanes is checked when it runs.
fn replace(path: &Path, from: &str, to: &str) -> Outcome {
    let text = fs::read_to_string(path).map_err(on(path, "read"))?;
    fs::write(path, text.replace(from, to)).map_err(on(path, "write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edits_are_read_and_belong_to_the_recipe() {
        assert!(edits().iter().all(|edit| edit.file.starts_with("test/")));
        let wanted = Wanted::vectors("3.5.7", Some(("trixie", Path::new("/")))).unwrap();
        assert!(wanted.recipe().contains("at_once(KDF_DATA *kdata)\\n{"));
    }

    #[test]
    fn versions_are_read_and_ordered() {
        let version = |text| Version::parse(text).unwrap();
        assert_eq!(version("3.0.19-1~deb12u2"), Version([3, 0, 19]));
        assert_eq!(version("3.5.7 5 Aug 2025"), Version([3, 5, 7]));
        assert_eq!(version("3.0.22.orig.tar.gz").to_string(), "3.0.22");
        assert!(version("3.0.9") < version("3.0.19"));
        assert!(version("3.0.9").same_series(version("3.0.19")));
        assert!(!version("3.0.9").same_series(version("3.5.0")));
        assert_eq!(Version::parse("3.0"), None);
        assert_eq!(Version::parse("source"), None);
    }
}
