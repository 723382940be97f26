//! Where the versions of OpenSSL are from, and how a program is run with one.
//!
//! Chroots and builds are kept in the user's cache. A chroot is brought up to date when it is
//! prepared again.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{Failure, Outcome, cargo, compile, metadata, on, quietly, user_cache};
use xtask::dist::Dist;
use xtask::setup;

use crate::beside::without_settings;
use crate::chroot::Chroot;
use crate::openssl_build::{self, is_made};
use crate::openssl_tests;

/// The directory in the user's cache.
const CACHE: &str = "matrix";

/// Packages of a chroot beside the base system.
const INCLUDED: &str = "openssl,ca-certificates,haproxy";

/// Where a chroot has the files of the checks.
const INSIDE: &str = "lockstep";

/// Configurations in the directory of a root, without the module and with it.
pub const PLAIN: &str = "plain.cnf";
pub const LOADING: &str = "loading.cnf";

/// Where an OpenSSL is from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This system.
    System,
    /// A chroot of a release of Debian.
    Release(&'static str),
    /// A chroot of Debian's sid with the OpenSSL of its suite experimental.
    Experimental,
    /// A build of the sources in this version of the crate openssl-src.
    Crate(&'static str),
    /// A build of an archive of this series' sources that somebody has put into the cache, for
    /// releases that no registry has yet.
    Given([u32; 2]),
}

impl Source {
    /// In words, for a table.
    pub fn describe(self) -> String {
        match self {
            Source::System => "this system".to_owned(),
            Source::Release(release) => format!("Debian {release}"),
            Source::Experimental => "Debian experimental".to_owned(),
            Source::Crate(_) => "its sources".to_owned(),
            Source::Given(series) => match given(series).as_deref().and_then(commit_of) {
                Some(commit) => format!("its repository at {commit}"),
                None => "its sources".to_owned(),
            },
        }
    }
}

/// An OpenSSL that is ready to be tried.
pub struct Root {
    place: Place,
    /// For the files of the checks, as this system sees it.
    pub directory: PathBuf,
    /// The same directory as the programs see it.
    pub inside: PathBuf,
}

enum Place {
    System,
    Chroot(Chroot),
    /// The directory of a build.
    Built(PathBuf),
}

impl Root {
    /// The OpenSSL of a row of this name, made or brought up to date; or why there is none.
    pub fn prepare(name: &str, source: Source) -> Outcome<Result<Root, String>> {
        let cache = user_cache(CACHE)?;
        let place = match source {
            Source::System => Ok(Place::System),
            Source::Release(release) => {
                Chroot::of(release, INCLUDED, &cache.join(release))?.map(Place::Chroot)
            }
            Source::Experimental => experimental(&cache)?.map(Place::Chroot),
            Source::Crate(version) => {
                built(&cache, name, &Recipe::shared(version))?.map(Place::Built)
            }
            Source::Given(series) => match given(series) {
                Some(archive) => {
                    let archive = archive.display().to_string();
                    built(&cache, name, &Recipe::shared(&archive))?.map(Place::Built)
                }
                None => {
                    let place = openssl_tests::cache()?;
                    let place = place.display();
                    let [major, minor] = series;
                    Err(format!(
                        "no archive openssl-{major}.{minor}.N.tar.gz in {place}"
                    ))
                }
            },
        };
        if let Ok(Place::Chroot(chroot)) = &place {
            update(chroot);
        }
        match place {
            Ok(place) => Root::at(name, place, &cache).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// The root that an earlier run has left, if any.
    pub fn at_hand(name: &str, source: Source) -> Outcome<Option<Root>> {
        let cache = user_cache(CACHE)?;
        let chroot = |release: &str| {
            let place = cache.join(release);
            let usable = setup::is_root() && Chroot::is_at(&place);
            usable.then(|| Place::Chroot(Chroot::at(&place)))
        };
        let place = match source {
            Source::System => Some(Place::System),
            Source::Release(release) => chroot(release),
            Source::Experimental => chroot(EXPERIMENTAL),
            Source::Crate(version) => {
                let directory = cache.join(name);
                let is_done = Recipe::shared(version).is_done(&directory);
                is_done.then_some(Place::Built(directory))
            }
            Source::Given(series) => given(series).and_then(|archive| {
                let directory = cache.join(name);
                let archive = archive.display().to_string();
                let is_done = Recipe::shared(&archive).is_done(&directory);
                is_done.then_some(Place::Built(directory))
            }),
        };
        place.map(|place| Root::at(name, place, &cache)).transpose()
    }

    fn at(name: &str, place: Place, cache: &Path) -> Outcome<Root> {
        let (directory, inside) = match &place {
            Place::Chroot(chroot) => (chroot.place.join(INSIDE), Path::new("/").join(INSIDE)),
            _ => {
                let directory = cache.join("checks").join(name);
                (directory.clone(), directory)
            }
        };
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
        Ok(Root {
            place,
            directory,
            inside,
        })
    }

    /// The start of a command there, free of this system's settings; arguments and variables may
    /// be added.
    pub fn command(&self, program: &str) -> Command {
        let mut command = match &self.place {
            Place::Chroot(chroot) => {
                let mut command = chroot.command();
                command.arg(program);
                command
            }
            _ => Command::new(program),
        };
        without_settings(&mut command);
        if let Place::Built(directory) = &self.place {
            command
                .env("OPENSSL", directory.join("apps/openssl"))
                .env("LD_LIBRARY_PATH", directory)
                .env("OPENSSL_MODULES", directory.join("providers"));
        }
        command
    }

    /// The root directory of a chroot.
    pub fn chroot(&self) -> Option<&Path> {
        match &self.place {
            Place::Chroot(chroot) => Some(&chroot.place),
            Place::System | Place::Built(_) => None,
        }
    }

    /// The configuration that this OpenSSL has by itself, as this system sees it.
    pub fn configuration(&self) -> PathBuf {
        match &self.place {
            Place::System => PathBuf::from("/etc/ssl/openssl.cnf"),
            Place::Chroot(chroot) => chroot.place.join("etc/ssl/openssl.cnf"),
            Place::Built(directory) => directory.join("apps/openssl.cnf"),
        }
    }

    /// Its authors' list of changes; empty where it has none.
    pub fn changes(&self) -> String {
        let shipped = "usr/share/doc/openssl/changelog.gz";
        let packed = match &self.place {
            Place::System => Path::new("/").join(shipped),
            Place::Chroot(chroot) => chroot.place.join(shipped),
            Place::Built(directory) => {
                return fs::read_to_string(directory.join("CHANGES.md")).unwrap_or_default();
            }
        };
        quietly(Command::new("gzip").arg("-dc").arg(packed)).unwrap_or_default()
    }

    /// Puts the module and both configurations into the directory. The command makes one of them
    /// there, as it asks which OpenSSL there is.
    pub fn install(&self, release: &Dist) -> Outcome {
        for (from, name) in [
            (&release.directory.join("lockstep.so"), "lockstep.so"),
            (&release.command(), "lockstep"),
            (&self.configuration(), PLAIN),
        ] {
            fs::copy(from, self.directory.join(name)).map_err(on(from, "copy"))?;
        }
        let mut print = self.command(&self.inside.join("lockstep").display().to_string());
        print
            .args(["configuration", "--module"])
            .arg(self.inside.join("lockstep.so"))
            .arg("--from")
            .arg(self.inside.join(PLAIN));
        let text = quietly(&mut print)?;
        let loading = self.directory.join(LOADING);
        fs::write(&loading, text).map_err(on(&loading, "write"))
    }

    /// Compiles a program of the provider's tests for this OpenSSL, with this system's headers, and
    /// puts it into the directory.
    pub fn compile(&self, name: &str) -> Outcome {
        let list = "ldd \"$(command -v \"${OPENSSL:-openssl}\")\"";
        let text = quietly(self.command("sh").args(["-c", list]))?;
        let path = text.lines().find_map(|line| {
            let (name, rest) = line.trim().split_once(" => ")?;
            let path = rest
                .split_once(' ')
                .filter(|_| name.starts_with("libcrypto."));
            path.map(|(path, _)| Path::new(path))
        });
        let path =
            path.ok_or_else(|| Failure::new(format!("no libcrypto can be read in {text:?}")))?;
        let library = match self.chroot() {
            Some(chroot) => chroot.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        };
        // The library may need a newer glibc than this system's.
        let others = ["-ldl", "-Wl,--allow-shlib-undefined"].map(OsStr::new);
        let arguments = [library.as_os_str()].into_iter().chain(others);
        let source = format!("provider/tests/provider/programs/{name}.c");
        compile(&source, &self.directory.join(name), arguments)
    }

    /// The version that the openssl command prints.
    pub fn version(&self) -> Outcome<String> {
        let mut command = self.command("sh");
        let text = quietly(command.args(["-c", "\"${OPENSSL:-openssl}\" version"]))?;
        let version = text
            .split_whitespace()
            .nth(1)
            .filter(|_| text.starts_with("OpenSSL "));
        version
            .map(str::to_owned)
            .ok_or_else(|| Failure::new(format!("no version of OpenSSL can be read in {text:?}")))
    }
}

/// The chroot of sid with a newer OpenSSL.
const EXPERIMENTAL: &str = "experimental";

/// Made of a copy of sid's.
fn experimental(cache: &Path) -> Outcome<Result<Chroot, String>> {
    let place = cache.join(EXPERIMENTAL);
    if Chroot::is_at(&place) {
        return Ok(Ok(Chroot::at(&place)));
    }
    let sid = match Chroot::of("sid", INCLUDED, &cache.join("sid"))? {
        Ok(sid) => sid,
        Err(reason) => return Ok(Err(reason)),
    };
    let made = sid.copy(&place).and_then(|chroot| {
        let mut upgrade = chroot.command();
        upgrade.args([
            "sh",
            "-ec",
            "sed 's/ sid / experimental /' /etc/apt/sources.list \
             > /etc/apt/sources.list.d/experimental.list
             apt-get -q -o Acquire::Check-Valid-Until=false update
             apt-get -q -y -t experimental install openssl",
        ]);
        quietly(&mut upgrade).map(|_| chroot)
    });
    Ok(made.map_err(|failure| {
        let _ = fs::remove_dir_all(&place);
        format!("no OpenSSL of Debian's experimental: {failure}")
    }))
}

/// Has a chroot take the newest packages of its release, where they can be had.
fn update(chroot: &Chroot) {
    let mut update = chroot.command();
    update.args([
        "sh",
        "-ec",
        "suite=
         if [ -e /etc/apt/sources.list.d/experimental.list ]; then suite='-t experimental'; fi
         apt-get -q -o Acquire::Check-Valid-Until=false update
         apt-get -q -y $suite install openssl
         apt-get -q -y install haproxy
         apt-get clean",
    ]);
    if let Err(failure) = quietly(&mut update) {
        let place = chroot.place.display();
        println!("{place} stays as it is: {failure}");
    }
}

/// The archive of a series that somebody has put into the cache.
fn given(series: [u32; 2]) -> Option<PathBuf> {
    openssl_tests::archive_of(series).ok()?
}

/// The commit that `git archive` has noted in an archive.
fn commit_of(archive: &Path) -> Option<String> {
    let mut read = Command::new("sh");
    read.args(["-c", "gzip -dc \"$0\" | git get-tar-commit-id"]);
    let commit = quietly(read.arg(archive)).ok()?;
    Some(commit.get(..12)?.to_owned())
}

/// How the sources in a crate openssl-src, or in an archive, are built.
struct Recipe<'a> {
    /// Of the crate, or the path of the archive.
    version: &'a str,
    /// Options of `Configure`: no speed is measured with these builds.
    options: &'a [&'a str],
    targets: &'a [&'a str],
}

impl<'a> Recipe<'a> {
    /// Without the static libraries.
    fn shared(version: &'a str) -> Recipe<'a> {
        Recipe {
            version,
            options: &[
                "shared",
                "no-tests",
                "enable-ec_nistp_64_gcc_128",
                "CFLAGS=-O1",
            ],
            targets: &["libcrypto.so", "libssl.so", "apps/openssl"],
        }
    }

    fn text(&self) -> String {
        let Recipe {
            version,
            options,
            targets,
        } = self;
        format!("{version}\n{options:?}\n{targets:?}\n")
    }

    fn is_done(&self, directory: &Path) -> bool {
        is_made(directory, &self.text())
    }
}

/// A libcrypto with ML-KEM, for a program to be linked to. The crate has the sources of a static
/// one, without the legacy provider.
const WITH_MLKEM: (&str, Recipe<'static>) = (
    "3.5",
    Recipe {
        version: "300.5.5",
        options: &[
            "no-shared",
            "no-module",
            "no-tests",
            "no-apps",
            "no-legacy",
            "CFLAGS=-O1 -fPIC",
        ],
        targets: &["libcrypto.a"],
    },
);

/// The directory of a libcrypto with ML-KEM, built if it has not been; or why there is none.
pub fn with_mlkem() -> Outcome<Result<PathBuf, String>> {
    let (name, recipe) = WITH_MLKEM;
    built(&user_cache(CACHE)?, name, &recipe)
}

/// The same, if an earlier run has left it.
pub fn with_mlkem_at_hand() -> Outcome<Option<PathBuf>> {
    let (name, recipe) = WITH_MLKEM;
    let directory = user_cache(CACHE)?.join(name);
    Ok(recipe.is_done(&directory).then_some(directory))
}

/// The libraries and the loader of a chroot whose OpenSSL has ML-DSA, if an earlier run has left
/// one.
pub fn libraries_at_hand() -> Outcome<Option<PathBuf>> {
    let cache = user_cache(CACHE)?;
    let mut places = ["trixie", "sid", EXPERIMENTAL]
        .map(|name| cache.join(name))
        .into_iter();
    let place = places.find(|place| Chroot::is_at(place));
    Ok(place.map(|place| place.join("usr/lib/x86_64-linux-gnu")))
}

/// A build of the sources that a recipe names.
fn built(cache: &Path, name: &str, recipe: &Recipe<'_>) -> Outcome<Result<PathBuf, String>> {
    let directory = cache.join(name);
    if recipe.is_done(&directory) {
        return Ok(Ok(directory));
    }
    let sources = match sources(cache, recipe.version) {
        Ok(sources) => sources,
        Err(failure) => return Ok(Err(format!("no sources: {failure}"))),
    };
    let build = openssl_build::Build {
        directory,
        recipe: &recipe.text(),
        options: recipe.options,
        targets: recipe.targets,
    };
    let copy = |scratch: &Path| {
        let mut copy = Command::new("cp");
        quietly(copy.args(["--recursive", "--"]).args([&sources, scratch])).map(drop)
    };
    let made = build.make(copy, &[], |_| Ok(()))?;
    Ok(made.map(|()| build.directory))
}

/// Unpacks the archive, or has cargo fetch the crate, and returns the directory of OpenSSL in it.
fn sources(cache: &Path, version: &str) -> Outcome<PathBuf> {
    if Path::new(version).is_absolute() {
        let unpacked = cache.join("unpacked");
        let _ = fs::remove_dir_all(&unpacked);
        fs::create_dir_all(&unpacked).map_err(on(&unpacked, "create"))?;
        let mut tar = Command::new("tar");
        // A module is not loaded from where others than root can write.
        tar.args([
            "--strip-components=1",
            "--no-same-owner",
            "--no-same-permissions",
        ]);
        quietly(tar.arg("-xf").arg(version).arg("-C").arg(&unpacked))?;
        return Ok(unpacked);
    }
    let package = cache.join("sources");
    let (manifest, library) = (package.join("Cargo.toml"), package.join("src/lib.rs"));
    let src = package.join("src");
    fs::create_dir_all(&src).map_err(on(&src, "create"))?;
    fs::write(&library, "").map_err(on(&library, "write"))?;
    let text = format!(
        "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
         [dependencies]\nopenssl-src = \"={version}\"\n\n[workspace]\n"
    );
    fs::write(&manifest, text).map_err(on(&manifest, "write"))?;
    let _ = fs::remove_file(package.join("Cargo.lock"));
    quietly(cargo(["fetch", "--manifest-path"]).arg(&manifest))?;
    let manifest = manifest.display().to_string();
    let metadata = metadata(&["--offline", "--manifest-path", &manifest])?;
    let packages = metadata["packages"].as_array();
    let mut packages = packages.into_iter().flatten();
    let found = packages.find(|package| package["name"] == "openssl-src");
    let found = found.and_then(|package| Path::new(package["manifest_path"].as_str()?).parent());
    let found = found.map(|directory| directory.join("openssl"));
    found
        .filter(|directory| directory.exists())
        .ok_or_else(|| Failure::new(format!("openssl-src {version} has no directory openssl")))
}
