//! `cargo xtask matrix`: each OpenSSL that people run, with the release module and alone, compared.
//!
//! `rig/matrix/checks.sh` runs in the root of each version (this system, a chroot, a build), once
//! with that version's own configuration and once with the module added to it. It prints a line for
//! each thing that it tries, and the two outputs must be the same. The counters of the second run
//! must show that lanes computed, and that async jobs shared batches.
//!
//! `lockstep-bench costs` then measures operations without a gain, for a moment, and prints them:
//! their times do not count as differences.
//!
//! The table is kept in docs/user/matrix.json, and the days on which releases came out in
//! docs/user/releases.json. docs/user/matrix.md is rendered from both.

mod compare;
mod record;
mod releases;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use xtask::command::{
    self, Failure, Outcome, build_as_tests, insist_on_known, on, quietly, succeeds,
    target_directory, within,
};
use xtask::dist::{self, Dist};
use xtask::work::{Ran, Share};

use crate::beside::{Module, backends, find_planted, idle};
use crate::figures::costs;
use crate::openssl_tests;
use crate::record::Machine;
use crate::roots::{LOADING, PLAIN, Root, Source};
use compare::{Cell, SCRIPT, compare};
use record::{COSTS, Row, Table, VECTORS};
use releases::Releases;
pub use releases::print_unknown;

/// The versions, by the names that the command takes.
const VERSIONS: &[(&str, Source)] = &[
    ("3.0.2", Source::Crate("300.0.5")),
    ("system", Source::System),
    ("3.2", Source::Crate("300.2.3")),
    ("trixie", Source::Release("trixie")),
    ("sid", Source::Release("sid")),
    ("experimental", Source::Experimental),
    ("4.1", Source::Given([4, 1])),
];

/// A part of `checks.sh`, and the counters that must grow by it.
struct Part {
    name: &'static str,
    /// Operations that must have run on lanes.
    lanes: &'static str,
    /// Others that must have where a line has been printed: not every OpenSSL has ML-KEM.
    lanes_after: &'static [(&'static str, &'static str)],
    /// Whether AES-GCM is used: by the module before OpenSSL 3.1, and by OpenSSL since then.
    enciphers: bool,
    /// Directories below that of the counters, in each of which async jobs must have shared
    /// batches.
    batches: &'static str,
}

const LISTS: Part = Part {
    name: "lists",
    lanes: "",
    lanes_after: &[],
    enciphers: true,
    batches: "",
};

const COMMANDS: Part = Part {
    name: "commands",
    lanes: "rsa1024 rsa2048 rsa3072 rsa4096 p256-sign p256-ecdh p384-sign p384-ecdh x25519 \
            ed25519-sign",
    lanes_after: &[
        ("genpkey ML-KEM-768: ok", "mlkem768-keygen"),
        ("ML-KEM-768: ok", "mlkem768-encaps"),
        ("ML-KEM-768: ok", "mlkem768-decaps"),
        ("ML-KEM-1024: ok", "mlkem1024-encaps"),
        ("ML-KEM-1024: ok", "mlkem1024-decaps"),
        ("ML-KEM-512: ok", "mlkem512-encaps"),
        ("ML-KEM-512: ok", "mlkem512-decaps"),
        ("ML-DSA-44: ok", "mldsa44-sign"),
        ("ML-DSA-44: ok", "mldsa44-verify"),
        ("ML-DSA-65: ok", "mldsa65-sign"),
        ("ML-DSA-65: ok", "mldsa65-verify"),
        ("ML-DSA-87: ok", "mldsa87-sign"),
        ("ML-DSA-87: ok", "mldsa87-verify"),
    ],
    ..LISTS
};

const PARTS: &[Part] = &[
    LISTS,
    COMMANDS,
    Part {
        name: "handshakes",
        lanes: "rsa2048 p256-sign p256-ecdh p384-sign p384-ecdh x25519 x25519-keygen ed25519-sign \
                x25519mlkem768-keygen x25519mlkem768-server x25519mlkem768-client \
                secp256r1mlkem768-keygen secp256r1mlkem768-server secp256r1mlkem768-client \
                secp384r1mlkem1024-keygen secp384r1mlkem1024-server secp384r1mlkem1024-client",
        lanes_after: &[
            ("key of mldsa44: ok", "mldsa44-sign"),
            ("key of mldsa44: ok", "mldsa44-verify"),
            ("key of mldsa65: ok", "mldsa65-sign"),
            ("key of mldsa65: ok", "mldsa65-verify"),
            ("key of mldsa87: ok", "mldsa87-sign"),
            ("key of mldsa87: ok", "mldsa87-verify"),
        ],
        ..LISTS
    },
    // Nobody but the key daemon has the keys.
    Part {
        name: "references",
        lanes: "rsa2048 rsa3072 p256-sign p384-sign ed25519-sign",
        lanes_after: &[
            ("mldsa44 by pkeyutl: ok", "mldsa44-sign"),
            ("mldsa65 by pkeyutl: ok", "mldsa65-sign"),
            ("mldsa87 by pkeyutl: ok", "mldsa87-sign"),
        ],
        ..LISTS
    },
    Part {
        name: "async",
        enciphers: false,
        batches: "rsa2048 ecdsap256 ecdhx25519 ed25519",
        ..LISTS
    },
    // The key daemon has the keys on P-384 and of ML-DSA-65.
    Part {
        name: "server",
        lanes: "rsa2048 p256-sign p384-sign x25519 async_submitted",
        lanes_after: &[
            ("HAProxy with mldsa44, tls1_3: ok", "mldsa44-sign"),
            ("HAProxy with mldsa65, tls1_3: ok", "mldsa65-sign"),
        ],
        ..LISTS
    },
];

/// The versions of `cargo xtask test`.
const QUICK: &[&str] = &["lists", "handshakes", "references"];

/// A part may take this long; then it is ended, which is a difference.
const LIMIT: Duration = Duration::from_secs(900);

/// Programs that the script runs: no command of OpenSSL's makes symmetric keys of secrets, or signs
/// a message in pieces.
const PROGRAMS: [&str; 2] = ["secret_keys", "ml_dsa"];

/// A client of TLS that is neither OpenSSL nor ours.
const CLIENT: &str = "rustls_client";

/// A configuration that takes TLS groups away, which must be found, and its text.
const PLANTED: &str = "planted.cnf";
const FEWER_GROUPS: &str = "\
openssl_conf = planted
[planted]
ssl_conf = planted_ssl
[planted_ssl]
system_default = planted_default
[planted_default]
Groups = P-256:P-384
";

/// The directory of counters in that of a part.
const COUNTERS: &str = "counters";

/// Tries all versions, or those named; prints the table, and keeps it.
pub fn run(names: &[&str]) -> Outcome {
    let known: Vec<&str> = VERSIONS.iter().map(|(name, _)| *name).collect();
    insist_on_known(names, &known, "cargo xtask matrix VERSION...")?;
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let mut releases = Releases::load()?;
    let tried = try_versions(wanted, None, &mut releases)?;
    releases.store()?;
    let mut table = Table::load(&record::file())?;
    table.merge(tried.clone());
    table.store()?;
    println!("\n{}", tried.text());
    println!("record: {}", record::file().display());
    match tried.differences() {
        0 => Ok(()),
        _ => Err(Failure::new("the module changes what OpenSSL does, see above").print()),
    }
}

/// Renders docs/user/matrix.md.
pub fn write() -> Outcome {
    Table::load(&record::file())?.write_page()
}

/// The nightly check.
pub fn night(share: &Share) -> Outcome<Ran> {
    let end = Instant::now() + share.time;
    let tried = try_versions(|_| true, Some(end), &mut Releases::default())?;
    println!("\n{}", tried.text());
    Ok(tried.ran())
}

/// The short form: this system's OpenSSL, and another one if an earlier run has left it.
pub fn quick() -> Outcome<Ran> {
    let bench = Bench::new()?;
    bench.proves_itself()?;
    let others = VERSIONS
        .iter()
        .rev()
        .filter(|(_, source)| *source != Source::System);
    let mut other = None;
    for &(name, source) in others {
        other = Root::at_hand(name, source)?.map(|root| (name, source, root));
        if other.is_some() {
            break;
        }
    }
    if other.is_none() {
        println!("no other OpenSSL is at hand: `cargo xtask matrix` makes them, once");
    }
    let system = Root::at_hand("system", Source::System)?;
    let system = system.map(|root| ("system", Source::System, root));
    let mut tried = Table::default();
    for (name, source, root) in system.into_iter().chain(other) {
        let part = |part: &&Part| QUICK.contains(&part.name);
        tried.add(bench.try_root(name, source, &root, part)?);
    }
    if tried.differences() > 0 {
        println!("{}", tried.text());
    }
    tried
        .ran()
        .or_fail("the module changes what OpenSSL does, see above")
}

/// Tries the versions of these names, until a time if there is one, and learns from them which
/// releases there are.
fn try_versions(
    wanted: impl Fn(&str) -> bool,
    end: Option<Instant>,
    releases: &mut Releases,
) -> Outcome<Table> {
    let bench = Bench::new()?;
    bench.proves_itself()?;
    let mut table = Table::default();
    for &(name, source) in VERSIONS.iter().filter(|(name, _)| wanted(name)) {
        if end.is_some_and(|end| Instant::now() > end) {
            println!("{name} skipped: no time is left");
            continue;
        }
        let root = match Root::prepare(name, source)? {
            Ok(root) => root,
            Err(reason) => {
                println!("{name} skipped: {reason}");
                continue;
            }
        };
        releases.learn(&root.changes());
        let mut row = bench.try_root(name, source, &root, |_| true)?;
        row.add(VECTORS, vectors(name, source, &row.openssl, &root));
        row.add(COSTS, bench.costs(&root, &row.openssl)?);
        table.add(row);
    }
    Ok(table)
}

/// OpenSSL's own vectors of public-key operations, by programs of the same series.
fn vectors(name: &str, source: Source, version: &str, root: &Root) -> Cell {
    let ran = match (source, root.chroot()) {
        (Source::System, _) => openssl_tests::quick(),
        (_, Some(chroot)) => openssl_tests::vectors(version, name, Some(chroot)),
        (Source::Given(_), None) => openssl_tests::vectors(version, name, None),
        (_, None) => {
            let missing = "the crate openssl-src has no vectors".to_owned();
            return Cell::Missing { missing };
        }
    };
    match ran {
        Ok(Ran::Worked(work)) => Cell::Compared {
            results: work.cases,
            differences: Vec::new(),
        },
        Ok(Ran::Skipped(missing)) => Cell::Missing { missing },
        Err(failure) => Cell::Compared {
            results: 0,
            differences: vec![failure.to_string()],
        },
    }
}

/// The means by which all versions are tried.
struct Bench {
    release: Dist,
    machine: Machine,
    backend: &'static str,
}

/// Whether an OpenSSL of this version has ML-DSA, so that the other client has work.
fn has_ml_dsa(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    let mut next = || -> Option<u32> { numbers.next().flatten() };
    (next(), next()) >= (Some(3), Some(5))
}

impl Bench {
    fn new() -> Outcome<Bench> {
        Ok(Bench {
            release: dist::build_with_benchmarks()?,
            machine: Machine::here()?,
            // Other lanes do not compute all operations that the counters must show.
            backend: match backends()[0] {
                "avx2" => "portable",
                best => best,
            },
        })
    }

    /// Tries some parts with an OpenSSL.
    fn try_root(
        &self,
        name: &str,
        source: Source,
        root: &Root,
        wanted: impl Fn(&&Part) -> bool,
    ) -> Outcome<Row> {
        let version = root.version()?;
        println!("{version} of {} …", source.describe());
        self.set_up(root)?;
        let mut row = Row {
            name: name.to_owned(),
            openssl: version,
            source: source.describe(),
            date: self.machine.date.clone(),
            commit: self.machine.commit.clone(),
            cpu: self.machine.cpu.clone(),
            cells: Vec::new(),
        };
        for part in PARTS.iter().filter(wanted) {
            let start = Instant::now();
            let cell = self.try_part(root, part, &row.openssl)?;
            let (short, seconds) = (record::short(&cell), start.elapsed().as_secs_f64());
            println!("  {:<12} {short} ({seconds:.1} s)", part.name);
            if let Cell::Compared { differences, .. } = &cell {
                differences.iter().for_each(|line| println!("    {line}"));
            }
            row.add(part.name, cell);
        }
        Ok(row)
    }

    /// Operations without a gain, measured for a moment. The cell has a difference only where they
    /// cannot be measured.
    fn costs(&self, root: &Root, version: &str) -> Outcome<Cell> {
        let program = self.release.benchmarks();
        let name = "lockstep-bench";
        fs::copy(&program, root.directory.join(name)).map_err(on(&program, "copy"))?;
        let arguments = match version.starts_with("3.") {
            true => costs::BRIEF,
            false => costs::BRIEF_COMMAND,
        };
        let script = "exec \"$0\" \"$@\" --openssl \"$(command -v \"${OPENSSL:-openssl}\")\"";
        let mut command = root.command("sh");
        command.args(["-c", script]).arg(root.inside.join(name));
        command.args(arguments.split(' '));
        command.env("OPENSSL_CONF", root.inside.join(LOADING));
        let printed = quietly(&mut command).map(|text| serde_json::from_str(&text));
        let (costs, differences) = match printed {
            Ok(Ok(costs)) => (Some::<costs::File>(costs), Vec::new()),
            Ok(Err(error)) => (None, vec![format!("it printed no figures: {error}")]),
            Err(failure) => (None, vec![failure.to_string()]),
        };
        let rows = costs.iter().flat_map(|costs| &costs.rows);
        for cost in rows.clone() {
            println!("    {}: {:.2} of OpenSSL alone", cost.title, cost.ratio);
        }
        Ok(Cell::Compared {
            results: rows.count() as u64,
            differences,
        })
    }

    /// Plants defects, which must be found: a configuration that takes groups away, and a module
    /// that is not loaded.
    fn proves_itself(&self) -> Outcome {
        let Some(root) = Root::at_hand("planted", Source::System)? else {
            return Ok(());
        };
        self.set_up(&root)?;
        let planted = root.directory.join(PLANTED);
        fs::write(&planted, FEWER_GROUPS).map_err(on(&planted, "write"))?;
        let stock = self.output(&root, &LISTS, PLAIN)?;
        find_planted("fewer groups", |planted| {
            let configuration = planted.map_or(PLAIN, |_| PLANTED);
            match compare(&stock, &self.output(&root, &LISTS, configuration)?) {
                Cell::Compared { differences, .. } => Ok(differences),
                Cell::Missing { missing } => Err(Failure::new(missing)),
            }
        })?;
        let unproved = self.unproved(&COMMANDS, "", &root.directory.join(LISTS.name))?;
        match unproved.len() == COMMANDS.lanes.split(' ').count() {
            true => Ok(()),
            false => Err(Failure::new("lanes are said to run without the module")),
        }
    }

    /// Puts the script, its programs, the module and both configurations into the directory of a
    /// root.
    fn set_up(&self, root: &Root) -> Outcome {
        let script = command::root().join("rig/matrix").join(SCRIPT);
        fs::copy(&script, root.directory.join(SCRIPT)).map_err(on(&script, "copy"))?;
        if has_ml_dsa(&root.version()?) {
            build_as_tests(&["--example", CLIENT])?;
            let client = target_directory().join("debug/examples").join(CLIENT);
            fs::copy(&client, root.directory.join(CLIENT)).map_err(on(&client, "copy"))?;
        }
        if succeeds("cc", &["--version"]) {
            PROGRAMS
                .into_iter()
                .try_for_each(|name| root.compile(name))?;
        }
        root.install(&self.release)
    }

    /// Runs a part with this version without the module and with it, and compares.
    fn try_part(&self, root: &Root, part: &Part, version: &str) -> Outcome<Cell> {
        let stock = self.output(root, part, PLAIN)?;
        let with = self.output(root, part, LOADING)?;
        let mut cell = compare(&stock, &with);
        if let Cell::Compared { differences, .. } = &mut cell {
            let directory = root.directory.join(part.name);
            differences.extend(self.unproved(part, &with, &directory)?);
            let contexts = self.release.total("ciphers", &directory.join(COUNTERS))?;
            let is_ours = part.enciphers && version.starts_with("3.0.");
            if (contexts > 0) != is_ours {
                differences.push(format!(
                    "the module has made {contexts} contexts of AES-GCM"
                ));
            }
        }
        Ok(cell)
    }

    /// The output of a part with a configuration.
    fn output(&self, root: &Root, part: &Part, configuration: &str) -> Outcome<String> {
        let below = Path::new(part.name).join(configuration);
        let counters = Path::new(part.name).join(COUNTERS);
        for below in [&below, &counters] {
            let directory = root.directory.join(below);
            fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
        }
        let mut command = root.command("sh");
        command
            .arg(root.inside.join(SCRIPT))
            .arg(part.name)
            .args([configuration, PLAIN].map(|name| root.inside.join(name)))
            .arg(root.inside.join(&below));
        let module = Module {
            backend: Some(self.backend),
            counters: &root.inside.join(&counters),
            planted: None,
        };
        module.set(&mut command);
        let file = root.directory.join(part.name).join("output");
        let (status, output) = within(LIMIT, &file, &mut command)?;
        Ok(match status {
            Some(status) if status.success() => output,
            Some(status) => format!("{output}{SCRIPT}: {status}\n"),
            None => format!("{output}{SCRIPT}: ended after {} s\n", LIMIT.as_secs()),
        })
    }

    /// The counters that must have grown by a part that printed `output`, and have not.
    fn unproved(&self, part: &Part, output: &str, directory: &Path) -> Outcome<Vec<String>> {
        let counters = directory.join(COUNTERS);
        let printed = |(after, _): &&(&str, &str)| output.lines().any(|line| line == *after);
        let also = part.lanes_after.iter().filter(printed);
        let kinds = part.lanes.split_whitespace();
        let kinds = kinds.chain(also.map(|(_, kind)| *kind));
        let mut missing = idle(&self.release, &counters, kinds)?;
        for name in part.batches.split_whitespace() {
            let counters = counters.join(name);
            let (jobs, operations, batches) = (
                self.release.total("async_submitted", &counters)?,
                self.release.total("operations", &counters)?,
                self.release.total("batches", &counters)?,
            );
            if jobs == 0 || operations < 2 * batches {
                missing.push(format!(
                    "counters of {name}: {operations} operations in {batches} batches, {jobs} of \
                     async jobs"
                ));
            }
        }
        let failed = self.release.total("failed_checks", &counters)?;
        if failed > 0 {
            missing.push(format!("{failed} results failed their check"));
        }
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ml_dsa_came_with_3_5() {
        let has = ["3.5.0", "3.10.1", "4.0.0", "4.1-dev", "4.1.0-dev"].map(has_ml_dsa);
        let lacks = ["3.0.19", "3.4.9", "1.1.1w", "unknown"].map(has_ml_dsa);
        assert_eq!((has, lacks), ([true; 5], [false; 4]));
    }

    #[test]
    fn each_part_has_its_column() {
        let parts = PARTS.iter().map(|part| part.name);
        let parts = parts.chain([VECTORS, COSTS]);
        assert_eq!(Vec::from_iter(parts), record::COLUMNS);
        assert!(QUICK.iter().all(|name| record::COLUMNS.contains(name)));
    }
}
