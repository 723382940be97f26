//! OpenSSL's test programs, built from the distribution's sources and kept in the user's cache.
//!
//! The programs link to a shared libcrypto of the same build. With `LD_LIBRARY_PATH` on that build
//! the module uses that libcrypto too: it refuses to load into a program with another one.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use crate::command::{Failure, Outcome, on, openssl, quietly, succeeds, user_cache};

/// The directory of sources and builds in the user's cache.
const CACHE: &str = "openssl-tests";

/// Options of `Configure`. No speed is measured with this build.
const OPTIONS: &[&str] = &[
    "no-afalgeng",
    "enable-ec_nistp_64_gcc_128",
    "shared",
    "CFLAGS=-O1",
];

/// What `evp_test` needs.
const VECTORS: &[&str] = &["libcrypto.so", "providers/legacy.so", "test/evp_test"];

/// All that is built for this system.
const TARGETS: &[&str] = &[
    "libcrypto.so",
    "libssl.so",
    "providers/legacy.so",
    "engines/dasync.so",
    "test/asynciotest",
    "test/asynctest",
    "test/dtlstest",
    "test/ec_internal_test",
    "test/ecdsatest",
    "test/ecstresstest",
    "test/ectest",
    "test/endecode_test",
    "test/evp_extra_test",
    "test/evp_extra_test2",
    "test/evp_libctx_test",
    "test/evp_pkey_provided_test",
    "test/evp_test",
    "test/provider_pkey_test",
    "test/rsa_mp_test",
    "test/rsa_sp800_56b_test",
    "test/rsa_test",
    "test/ssl_test",
    "test/sslapitest",
    "test/sslcorrupttest",
    "test/threadstest",
    "test/tls13ccstest",
];

/// Replacements in files of the sources, before they are configured.
const EDITS: &[(&str, &str, &str)] = &[
    // All programs link to the shared libraries: with a libcrypto in the program itself the module
    // would not load.
    ("test/build.info", "libcrypto.a", "libcrypto"),
    ("test/build.info", "libssl.a", "libssl"),
    (
        "test/build.info",
        "../providers/liblegacy.a",
        "../libcrypto",
    ),
    (
        "test/build.info",
        "../providers/libcommon.a",
        "../libcrypto",
    ),
    (
        "test/build.info",
        "DEFINE[evp_extra_test]=STATIC_LEGACY",
        "",
    ),
    (
        "test/build.info",
        "SOURCE[evp_extra_test]=../providers/legacyprov.c",
        "",
    ),
    // Padding that the lanes serve: PKCS#1 v1.5 decryption is left to OpenSSL.
    (
        "test/threadstest.c",
        "if (!TEST_int_ge(EVP_PKEY_encrypt_init(ctx), 0)",
        "if (!TEST_int_ge(EVP_PKEY_encrypt_init(ctx), 0) \
         || !TEST_int_gt(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING), 0)",
    ),
    (
        "test/threadstest.c",
        "if (!TEST_int_ge(EVP_PKEY_decrypt_init(ctx), 0)",
        "if (!TEST_int_ge(EVP_PKEY_decrypt_init(ctx), 0) \
         || !TEST_int_gt(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING), 0)",
    ),
    // Derivations as libssl asks for them, which the module does itself.
    (
        "test/evp_test.c",
        "static int kdf_test_run(EVP_TEST *t)",
        AT_ONCE,
    ),
    (
        "test/evp_test.c",
        "if (!EVP_KDF_CTX_set_params(expected->ctx, expected->params))",
        "if (at_once(expected) == NULL \
         && !EVP_KDF_CTX_set_params(expected->ctx, expected->params))",
    ),
    (
        "test/evp_test.c",
        "EVP_KDF_derive(expected->ctx, got, got_len, NULL)",
        "EVP_KDF_derive(expected->ctx, got, got_len, at_once(expected))",
    ),
    // A library context of the program's own that loads the configuration.
    (
        "test/evp_extra_test.c",
        "nullprov = OSSL_PROVIDER_load(NULL, \"null\");",
        "if (!OSSL_LIB_CTX_load_config(testctx, getenv(\"CONTEXT_CONFIGURATION\"))) return 0; \
         nullprov = OSSL_PROVIDER_load(NULL, \"null\");",
    ),
];

/// The parameters of a derivation of TLS 1.3 for one call, with the mode as a number.
const AT_ONCE: &str = "\
static const OSSL_PARAM *at_once(KDF_DATA *kdata)
{
    OSSL_PARAM *mode = OSSL_PARAM_locate(kdata->params, \"mode\");

    if (!EVP_KDF_is_a(EVP_KDF_CTX_kdf(kdata->ctx), \"TLS13-KDF\"))
        return NULL;
    if (mode != NULL && mode->data_type == OSSL_PARAM_UTF8_STRING) {
        int extract = strcmp(mode->data, \"EXTRACT_ONLY\") == 0;

        if (!extract && strcmp(mode->data, \"EXPAND_ONLY\") != 0)
            return NULL;
        *(int *)mode->data = extract ? EVP_KDF_HKDF_MODE_EXTRACT_ONLY
                                     : EVP_KDF_HKDF_MODE_EXPAND_ONLY;
        mode->data_type = OSSL_PARAM_INTEGER;
        mode->data_size = sizeof(int);
    }
    return kdata->params;
}

static int kdf_test_run(EVP_TEST *t)";

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

/// An OpenSSL whose tests are wanted.
pub struct Wanted<'a> {
    version: Version,
    targets: &'static [&'static str],
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
            targets: TARGETS,
            release: None,
        })
    }

    /// That of a release of Debian in its root directory, with `evp_test` only; None if this is no
    /// version.
    pub fn vectors(version: &str, release: Option<(&'a str, &'a Path)>) -> Option<Wanted<'a>> {
        Some(Wanted {
            version: Version::parse(version)?,
            targets: VECTORS,
            release,
        })
    }

    fn recipe(&self) -> String {
        let targets = self.targets;
        format!("{OPTIONS:?}\n{targets:?}\n{EDITS:?}\n{EXPORTS:?}\n")
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
        let ready = fs::read_to_string(directory.join(STAMP)).is_ok_and(|text| text == recipe);
        match version {
            Some(version) if ready && version.same_series(wanted.version) => {
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
    for tool in ["perl", "make", "cc", "tar"] {
        if !succeeds(tool, &["--version"]) {
            return Ok(Err(format!(
                "{tool} is missing: install it (on Debian: apt-get install build-essential)"
            )));
        }
    }
    build(wanted, &archive.0, archive.1).map(Ok)
}

/// It says how a build was made, so that another recipe makes another one beside it.
const STAMP: &str = "lockstep-recipe";

/// Where archives of sources are, and what is built of them.
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

/// The sources: what somebody has put into the cache, or what apt has fetched and verified.
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

/// Apt's list of what has the sources of this machine's packages.
fn list_of_system() -> Outcome<String> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "deb-src [signed-by=$(SIGNED_BY)] $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]);
    Ok(quietly(&mut targets)?
        // What apt leaves where the configuration names no key.
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
    // A mirror may lack what its index names.
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
fn build(wanted: &Wanted<'_>, archive: &Path, version: Version) -> Outcome<Build> {
    println!("building the tests of OpenSSL {version} (some minutes, once)");
    let cache = user_cache(CACHE)?;
    let scratch = cache.join(format!("building-{}", std::process::id()));
    let empty = |directory: &Path| match directory.exists() {
        true => fs::remove_dir_all(directory).map_err(on(directory, "remove")),
        false => Ok(()),
    };
    empty(&scratch)?;
    fs::create_dir_all(&scratch).map_err(on(&scratch, "create"))?;
    let mut tar = Command::new("tar");
    // A module is not loaded by a configuration where others than root can write.
    tar.args([
        "--strip-components=1",
        "--no-same-owner",
        "--no-same-permissions",
        "-xf",
    ]);
    quietly(tar.arg(archive).arg("-C").arg(&scratch))?;
    for (file, from, to) in EDITS {
        replace(&scratch.join(file), from, to)?;
    }
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("nice");
        command.arg(program).args(arguments).current_dir(&scratch);
        quietly(&mut command).map(drop)
    };
    run("./Configure", OPTIONS)?;
    run("make", &["build_generated", "libcrypto.ld", "libssl.ld"])?;
    for library in ["libcrypto.ld", "libssl.ld"] {
        replace(&scratch.join(library), EXPORTS.0, EXPORTS.1)?;
    }
    let jobs = format!("-j{}", available_parallelism().map_or(1, NonZero::get));
    run("make", &[&[jobs.as_str()], wanted.targets].concat())?;
    let stamp = scratch.join(STAMP);
    fs::write(&stamp, wanted.recipe()).map_err(on(&stamp, "write"))?;
    let mut hasher = DefaultHasher::new();
    wanted.recipe().hash(&mut hasher);
    let directory = cache.join(format!("openssl-{version}-{:016x}", hasher.finish()));
    empty(&directory)?;
    fs::rename(&scratch, &directory).map_err(on(&directory, "create"))?;
    Ok(Build { directory, version })
}

/// Other versions may not have what is replaced; that a test has lanes is looked at when it runs.
fn replace(path: &Path, from: &str, to: &str) -> Outcome {
    let text = fs::read_to_string(path).map_err(on(path, "read"))?;
    fs::write(path, text.replace(from, to)).map_err(on(path, "write"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
