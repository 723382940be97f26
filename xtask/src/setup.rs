//! `cargo xtask setup`: the packages that a machine needs before Lockstep can be built and tested
//! on it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome, cargo, cargo_home, loudly, on, quietly, succeeds};

/// One thing that must be there.
struct Need {
    what: &'static str,
    present: fn() -> bool,
    debian: &'static str,
    fedora: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        what: "a C compiler driver, for linking",
        present: || succeeds("cc", &["--version"]),
        debian: "gcc libc6-dev",
        fedora: "gcc glibc-devel",
    },
    Need {
        what: "pkg-config",
        present: || succeeds("pkg-config", &["--version"]),
        debian: "pkg-config",
        fedora: "pkgconf-pkg-config",
    },
    Need {
        what: "the openssl command, version 3 or later",
        present: || openssl_version().is_some_and(|major| major >= 3),
        debian: "openssl",
        fedora: "openssl",
    },
    Need {
        what: "libcrypto's headers, version 3 or later",
        present: || succeeds("pkg-config", &["--atleast-version=3.0", "libcrypto"]),
        debian: "libssl-dev",
        fedora: "openssl-devel",
    },
    Need {
        what: "objdump",
        present: || succeeds("objdump", &["--version"]),
        debian: "binutils",
        fedora: "binutils",
    },
];

/// Programs and files that some tests need, and Debian's packages with them. Without one its tests
/// are skipped, with a line, and fail in CI.
const OPTIONAL: &[(&str, &str)] = &[
    ("haproxy", "haproxy"),
    ("apache2", "apache2"),
    ("nginx", "nginx-light"),
    ("stunnel", "stunnel4"),
    ("kamailio", "kamailio kamailio-tls-modules"),
    // Both have 12 MB to load, and 36 MB in use.
    ("traffic_server", "trafficserver"),
    ("dnsdist", "dnsdist"),
    // With libFuzzer and AddressSanitizer.
    ("clang", "clang libclang-rt-14-dev"),
    ("strace", "strace"),
    // Clients of an ACME server, and one for tests; for HAProxy's socket.
    ("pebble", "pebble"),
    ("certbot", "certbot"),
    ("lego", "lego"),
    ("socat", "socat"),
    // Core dumps of processes that hold keys.
    ("gcore", "gdb"),
    // Programs that read our configuration and do not have the module.
    ("openvpn", "openvpn"),
    (PERLS, "libnet-ssleay-perl"),
    (PYTHONS, "python3-venv"),
    // Two programs that check signed zones.
    ("ldns-verify-zone", "ldnsutils"),
    ("dnssec-verify", "bind9-utils"),
    (OPENCL, "ocl-icd-libopencl1 pocl-opencl-icd"),
    // The alerts, and the parser of the exporter's output.
    ("promtool", "prometheus"),
    // Polynomials, for a second opinion on the prover's formulas.
    ("Singular", "singular-ui"),
    // Programs that use OpenSSL beside the servers.
    ("node", "nodejs"),
    ("sshd", "openssh-server"),
    ("postfix", "postfix"),
    ("pg_ctlcluster", "postgresql"),
    // Tokens, and providers of others.
    ("softhsm2-util", "softhsm2"),
    ("swtpm", "swtpm"),
    (
        "/usr/lib/x86_64-linux-gnu/ossl-modules/tpm2.so",
        "tpm2-openssl",
    ),
    ("xmlsec1", "xmlsec1 libxmlsec1-openssl"),
    // For a check of the workflows.
    ("go", "golang-go"),
    // For a test of the signed files of a release.
    ("apt-ftparchive", "apt-utils"),
    ("createrepo_c", "createrepo-c"),
    ("gpg", "gnupg"),
    ("rpmbuild", "rpm"),
];

/// Programs that cargo installs, with their versions: a check that is a program's verdict changes
/// only by a commit.
const BY_CARGO: &[(&str, &[&str])] = &[
    ("cargo-deny", &["cargo-deny"]),
    (
        "mdbook",
        &["mdbook@0.5.4", "--no-default-features", "--features=search"],
    ),
];

/// The checker of workflows, a Go program that knows the runners named there.
const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12";

/// Debian's packages that make packages, repositories and images, and try them.
const PACKAGING: &str = "apt-utils createrepo-c debian-archive-keyring debootstrap gnupg jq \
    lintian mmdebstrap rpm rpmlint uidmap umoci";

/// Perl's way to OpenSSL, which is no program.
const PERLS: &str = "Net::SSLeay";

/// Python's way to environments of their own, for the tests of the wheel.
const PYTHONS: &str = "Python 3.11 with venv";

/// OpenCL's loader and PoCL, a device on the CPU, which are no programs.
const OPENCL: &str = "OpenCL with PoCL";

/// Whether the loader and PoCL's entry for it are there.
fn has_opencl() -> bool {
    let loaders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let loader = |directory: &&str| Path::new(directory).join("libOpenCL.so.1").exists();
    loaders.iter().any(loader) && Path::new(POCL).exists()
}

/// PoCL's entry for the loader.
const POCL: &str = "/etc/OpenCL/vendors/pocl.icd";

/// Whether there is a Python that the wheel supports, and that makes environments with pip.
pub fn has_python() -> bool {
    let script = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
    succeeds("python3", &["-c", script])
}

/// Installs the missing programs that `cargo xtask test` needs, and names each on a line.
pub fn run() -> Outcome {
    ensure_all()?;
    for need in NEEDS {
        println!("ok       {}", need.what);
    }
    optional()?;
    for (program, package) in BY_CARGO {
        let is_there = || succeeds(program, &["--version"]);
        told(
            program,
            is_there() || by_cargo(package).is_ok() && is_there(),
        );
    }
    told(
        "actionlint",
        has_actionlint() || by_go(ACTIONLINT) && has_actionlint(),
    );
    let has_aarch64 = has_aarch64() || succeeds("rustup", &["target", "add", AARCH64]);
    told("Rust's library for aarch64", has_aarch64);
    Ok(())
}

/// Says whether something is there now.
fn told(what: &str, is_there: bool) {
    match is_there {
        true => println!("ok       {what}"),
        false => println!("missing  {what}: its tests are skipped"),
    }
}

/// Has cargo build and install a program of a second's work: optimised, it takes three times as
/// long to build.
fn by_cargo(package: &[&str]) -> Outcome {
    eprintln!("setup: building {} (a minute or two, once)", package[0]);
    let mut install = cargo(["install", "--quiet", "--locked", "--profile", "dev"]);
    install.args(["--config", "profile.dev.debug=false"]);
    loudly(install.args(package))
}

/// Tries to install a program by Go, beside the ones that cargo installs; returns whether it did.
fn by_go(package: &str) -> bool {
    let mut install = Command::new("go");
    install.args(["install", package]);
    quietly(install.env("GOBIN", cargo_home().join("bin"))).is_ok()
}

/// Checks for the programs that a build and its tests need, and installs the missing ones. Silent
/// where nothing is missing.
pub fn ensure_all() -> Outcome {
    ensure_components()?;
    ensure()
}

/// Installs the programs that `package`, `release` and the check of packages need.
pub fn packages() -> Outcome {
    ensure()?;
    if succeeds("apt-get", &["--version"]) && is_root() {
        // Docker's package has one of its own, which Debian's would replace, and Docker with it.
        let runc = match succeeds("runc", &["--version"]) {
            true => "",
            false => " runc",
        };
        apt_install(&format!("{PACKAGING}{runc}"))?;
    }
    // The versions that were tried: they make the bytes that a release signs.
    by_cargo(&[
        "cargo-deb@3.8.0",
        "cargo-generate-rpm@0.21.1",
        "cargo-auditable@0.7.7",
        "auditable2cdx@0.1.0",
    ])
}

/// Checks for the parts of Rust itself that the tests need beside a compiler.
fn ensure_components() -> Outcome {
    for component in ["fmt", "clippy"] {
        quietly(&mut cargo([component, "--version"])).map_err(|_| {
            Failure::new(format!("`cargo {component}` is missing"))
                .remedy("rustup component add rustfmt clippy")
        })?;
    }
    Ok(())
}

/// Checks for the programs that a build needs and installs the missing ones. Silent where nothing
/// is missing.
pub fn ensure() -> Outcome {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing)?;
    match missing.iter().find(|need| !(need.present)()) {
        None => Ok(()),
        Some(need) => Err(Failure::new(format!(
            "{} is still missing after installing {}",
            need.what, need.debian
        ))),
    }
}

/// Installs the programs that some tests run where that can be done, without starting any server.
fn optional() -> Outcome {
    let there = |program: &str| {
        if program == PERLS {
            return succeeds("perl", &["-MNet::SSLeay", "-e", "1"]);
        }
        if program == PYTHONS {
            return has_python();
        }
        if program == OPENCL {
            return has_opencl();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
        let mut directories = directories.into_iter().chain(std::env::split_paths(&path));
        directories.any(|directory| directory.join(program).exists())
    };
    let missing: Vec<&str> = OPTIONAL
        .iter()
        .filter(|(program, _)| !there(program))
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() && succeeds("apt-get", &["--version"]) && is_root() {
        let _no_services = NoServices::declare()?;
        apt_install(&missing.join(" "))?;
    }
    for (program, package) in OPTIONAL {
        match there(program) {
            true => println!("ok       {program}"),
            false => println!("missing  {program}: its tests are skipped (package {package})"),
        }
    }
    Ok(())
}

/// While this lives, Debian's packages start no service (`invoke-rc.d` asks this script).
struct NoServices {
    ours: bool,
}

impl NoServices {
    const SCRIPT: &str = "/usr/sbin/policy-rc.d";
    const TEXT: &str = "#!/bin/sh\n# Put here by cargo xtask setup, while it installs.\nexit 101\n";

    fn declare() -> Outcome<NoServices> {
        let script = Path::new(NoServices::SCRIPT);
        // A script of this tool that is there was left by a setup that was interrupted.
        let ours = !script.exists()
            || fs::read_to_string(script).is_ok_and(|text| text == NoServices::TEXT);
        if ours {
            fs::write(script, NoServices::TEXT).map_err(on(script, "write"))?;
            let mode = Permissions::from_mode(0o755);
            fs::set_permissions(script, mode).map_err(on(script, "change"))?;
        }
        Ok(NoServices { ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(NoServices::SCRIPT);
        }
    }
}

/// Whether there is an actionlint that is recent enough.
pub fn has_actionlint() -> bool {
    let version = quietly(Command::new("actionlint").arg("-version"));
    version.is_ok_and(|version| version.starts_with("1.7") || version.starts_with("v1.7"))
}

/// Whether `cargo deny` can be run.
pub fn has_cargo_deny() -> bool {
    quietly(&mut cargo(["deny", "--version"])).is_ok()
}

/// Whether a build can write the list of its crates into a file, and whether it can be read.
pub fn has_auditable() -> bool {
    let both = "command -v cargo-auditable && command -v auditable2cdx";
    succeeds("sh", &["-c", both])
}

/// An architecture for which everything is compiled, but not run.
pub const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Whether something can be compiled for [`AARCH64`].
pub fn has_aarch64() -> bool {
    let mut rustc = Command::new("rustc");
    let libraries = quietly(rustc.args(["--print", "target-libdir", "--target", AARCH64]));
    libraries.is_ok_and(|directory| Path::new(directory.trim()).is_dir())
}

fn install(missing: &[&Need]) -> Outcome {
    let list = |packages: fn(&Need) -> &'static str| {
        missing
            .iter()
            .map(|need| packages(need))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let what = missing
        .iter()
        .map(|need| need.what)
        .collect::<Vec<_>>()
        .join("; ");
    let debian = list(|need| need.debian);
    if !succeeds("apt-get", &["--version"]) {
        return Err(Failure::new(format!("missing: {what}"))
            .remedy(format!("dnf install {}", list(|need| need.fedora))));
    }
    if !is_root() {
        return Err(Failure::new(format!("missing: {what}")).remedy(format!(
            "sudo apt-get update && sudo apt-get install -y {debian}"
        )));
    }
    apt_install(&debian)
}

fn apt_install(packages: &str) -> Outcome {
    eprintln!("setup: installing {packages}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    loudly(&mut apt(&["update", "-q"]))?;
    let mut install = apt(&["install", "-q", "-y", "--no-install-recommends"]);
    loudly(install.args(packages.split(' ')))
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    quietly(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// The major version of the `openssl` command.
fn openssl_version() -> Option<u32> {
    let version = quietly(&mut crate::command::openssl(["version"])).ok()?;
    version
        .strip_prefix("OpenSSL ")?
        .split('.')
        .next()?
        .parse()
        .ok()
}
