//! ML-KEM and its hybrids in TLS 1.3: by EVP, in handshakes, and with programs of others at the
//! other end.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{Finished, Place};
use crate::tls::{Server, certificate};

const GROUPS: [&str; 3] = ["X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"];

/// The counter of a group's operations.
fn shape(group: &str, operation: &str) -> String {
    format!("{}-{operation}", group.to_lowercase())
}

#[test]
fn keys_and_secrets_go_all_ways() {
    let place = Place::new();
    let program = place.compile("encapsulate");
    let alone = ["ML-KEM-512", "ML-KEM-768", "ML-KEM-1024"];
    for algorithm in [&alone[..], &GROUPS[..]].concat() {
        let run = place.program(&program, algorithm).with_lockstep().succeed();
        let counters = run.counters();
        let (name, sends, receives) = match algorithm {
            "ML-KEM-512" => ("mlkem512", "encaps", "decaps"),
            "ML-KEM-768" => ("mlkem768", "encaps", "decaps"),
            "ML-KEM-1024" => ("mlkem1024", "encaps", "decaps"),
            hybrid => (hybrid, "server", "client"),
        };
        let shapes = counters.shapes();
        for (operation, least) in [(sends, 26), (receives, 33), ("keygen", 2)] {
            let count = shapes.get(&*shape(name, operation)).copied();
            assert!(count >= Some(least), "{operation}: {counters:?}");
        }
        assert_eq!(counters.failed_checks, 0);
    }
}

/// They are OpenSSL's own, in the section of its default provider (EVP_PKEY-ML-KEM(7)).
#[test]
fn settings_of_the_default_provider_hold_for_keys_of_the_module() {
    for (settings, expected) in [
        ("", "generated 1, imported 1, neither counts, damaged 0"),
        (
            "ml-kem.retain_seed = no",
            "generated 0, imported 0, neither counts, damaged 0",
        ),
        (
            "ml-kem.prefer_seed = no",
            "generated 1, imported 1, key counts, damaged 0",
        ),
        (
            "ml-kem.import_pct_type = none",
            "generated 1, imported 1, neither counts, damaged 1",
        ),
    ] {
        let place = Place::new();
        let shipped = String::from_utf8(place.read("lockstep.cnf")).expect("text");
        let section = "[lockstep_default]\n";
        assert!(shipped.contains(section));
        let own = shipped.replace(section, &format!("{section}{settings}\n"));
        place.write("lockstep.cnf", own.as_bytes());
        let program = place.compile("encapsulate");
        for algorithm in ["ML-KEM-512", "ML-KEM-768", "ML-KEM-1024"] {
            let run = place.program(&program, &format!("settings {algorithm}"));
            let run = run.with_lockstep().succeed();
            // A line of OpenSSL's own keys follows, where it has some.
            for line in lines(&run) {
                assert_eq!(line, expected, "{settings}: {run}");
            }
            assert!(run.counters().of(&algorithm_keygen(algorithm)) > 0, "{run}");
        }
    }
}

/// The counter of an algorithm's key pairs.
fn algorithm_keygen(algorithm: &str) -> String {
    let name = algorithm.to_lowercase().replacen("ml-kem-", "mlkem", 1);
    shape(&name, "keygen")
}

/// Jobs compute secrets at once, or in common batches where there are many.
#[test]
fn jobs_pause_for_secrets_where_many_do() {
    // The first 16 of a side compute at once.
    for (jobs, pauses) in [(16, 0), (64, 2 * 48)] {
        let place = Place::new();
        let program = place.compile("encapsulate");
        for algorithm in GROUPS {
            let run = place.program(&program, &format!("jobs {algorithm} {jobs}"));
            let run = run.with_lockstep().succeed();
            let counters = run.counters();
            for operation in ["server", "client"] {
                assert_eq!(counters.of(&shape(algorithm, operation)), jobs, "{run}");
            }
            let counted = (counters.async_submitted, counters.unpaused);
            assert_eq!(counted, (pauses, 0), "{run}");
            assert_eq!(counters.fallbacks(), 0, "{run}");
            assert_eq!(run.text(), format!("{pauses} pauses\n"));
            let meets = counters.average_fill() >= 2.0;
            assert_eq!(meets, pauses > 0, "{run} {counters:?}");
        }
    }
}

/// The Go program; None without Go.
fn peer() -> Option<&'static PathBuf> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let manifest = env!("CARGO_MANIFEST_DIR");
        let source = format!("{manifest}/tests/provider/programs/peer.go");
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("peer");
        // It builds Go's library, too: in half the time without the C compiler and inlining.
        let built = Command::new("go")
            .env("CGO_ENABLED", "0")
            .args(["build", "-gcflags=all=-l", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        match built {
            Ok(status) if status.success() => Some(program),
            _ => {
                println!("skipped: this system has no Go with ML-KEM (1.26 or later)");
                None
            }
        }
    };
    PEER.get_or_init(build).as_ref()
}

fn lines(finished: &Finished) -> Vec<String> {
    finished.text().lines().map(str::to_owned).collect()
}

#[test]
fn go_and_we_understand_each_other() {
    let Some(peer) = peer() else { return };
    let place = Place::new();
    let program = place.compile("encapsulate");
    let run = |arguments: &str| place.program(&program, arguments).with_lockstep().succeed();
    let ours = |arguments: &str| {
        let finished = run(arguments);
        assert_eq!(finished.counters().operations(), 1, "one on lanes");
        lines(&finished)
    };
    let theirs = |arguments: &str| lines(&place.program(peer, arguments).succeed());
    let seed: String = (0..64).map(|i| format!("{:02x}", i * 37 % 256)).collect();
    // A key from a seed needs no lanes.
    let public = lines(&run(&format!("from {seed}")));
    assert_eq!(public, theirs(&format!("from {seed}")));
    let coins = "5a".repeat(32);
    let sent = ours(&format!("to {} {coins}", public[0]));
    assert_eq!(
        sent,
        ours(&format!("to {} {coins}", public[0])),
        "it follows from the coins"
    );
    assert_eq!(sent[1..], theirs(&format!("open {seed} {}", sent[0])));
    let sent = theirs(&format!("to {}", public[0]));
    assert_eq!(sent[1..], ours(&format!("open {seed} {}", sent[0])));
    // A ciphertext that nobody made: both reject it in the same way.
    let changed = format!("00{}", &sent[0][2..]);
    let rejected = ours(&format!("open {seed} {changed}"));
    assert_eq!(rejected, theirs(&format!("open {seed} {changed}")));
    assert_ne!(rejected[0], sent[1]);
}

#[test]
fn a_client_in_go_negotiates_the_hybrids() {
    let Some(peer) = peer() else { return };
    let place = Place::new();
    for key in ["p256", "rsa2048"] {
        for group in GROUPS {
            let server = Server::start(&place, key, &format!("-groups {group}:X25519"), true);
            let client = |group| {
                place
                    .program(peer, &format!("client 127.0.0.1:{} {group}", server.port))
                    .succeed()
            };
            for _ in 0..3 {
                assert_eq!(lines(&client(group)), [group]);
            }
            let share = shape(group, "server");
            server
                .running
                .wait_for_counters("three shares", |counters| {
                    counters.shapes().get(&*share) == Some(&3) && counters.fallbacks() == 0
                });
            assert_eq!(
                lines(&client("X25519")),
                ["X25519"],
                "it is not forced on anybody"
            );
        }
    }
}

/// A program, if it is installed and `question`, which it is asked in its own language, succeeds;
/// otherwise says that the test is skipped.
fn installed(place: &Place, program: &str, question: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join(program));
    let found = found.find(|program| program.exists());
    place.write("question", question.as_bytes());
    let answers = |program: &PathBuf| {
        let asked = place.program(program, "question").run();
        asked.status.success()
    };
    let found = found.filter(answers);
    if found.is_none() {
        println!("skipped: this system has no {program} with OpenSSL 3.5 or later");
    }
    found
}

/// A client of somebody else that has its own OpenSSL connects once for each of these groups.
fn connects(place: &Place, program: &PathBuf, script: &str, groups: &[&str]) {
    for group in groups {
        let server = Server::start(place, "p256", &format!("-groups {group}"), true);
        let authority = certificate(place, "p256");
        let arguments = format!("{script} {} {authority} {group}", server.port);
        let client = place.program(program, &arguments).succeed();
        assert_eq!(lines(&client), ["TLSv1.3"], "{client}");
        let share = shape(group, "server");
        server.running.wait_for_counters("a share", |counters| {
            counters.shapes().get(&*share) == Some(&1) && counters.fallbacks() == 0
        });
    }
}

#[test]
fn node_negotiates_the_hybrids() {
    let place = Place::new();
    let question = "const [major, minor] = process.versions.openssl.split('.').map(Number);
        process.exit(10 * major + minor >= 35 ? 0 : 1);";
    let Some(node) = installed(&place, "node", question) else {
        return;
    };
    place.write(
        "connect.js",
        b"const tls = require('tls'), fs = require('fs');
        const [port, authority, group] = process.argv.slice(2);
        const options = {host: '127.0.0.1', port, servername: 'localhost', ecdhCurve: group,
                         ca: fs.readFileSync(authority)};
        const socket = tls.connect(options, () => {
            console.log(socket.getProtocol());
            socket.end();
        });",
    );
    connects(&place, &node, "connect.js", &GROUPS);
}

/// The wheel of cryptography brings an OpenSSL, whose libssl is that of pyOpenSSL.
#[test]
fn pyopenssl_negotiates_the_hybrid() {
    let place = Place::new();
    let question = "from OpenSSL import SSL\nassert SSL.OPENSSL_VERSION_NUMBER >= 0x30500000";
    let Some(python) = installed(&place, "python3", question) else {
        return;
    };
    place.write(
        "connect.py",
        b"import socket, sys
from OpenSSL import SSL
port, authority, group = sys.argv[1:]
context = SSL.Context(SSL.TLS_CLIENT_METHOD)
context.load_verify_locations(authority)
context.set_verify(SSL.VERIFY_PEER)
connection = SSL.Connection(context, socket.create_connection(('127.0.0.1', int(port))))
connection.set_connect_state()
connection.do_handshake()
assert connection.get_group_name() == group
print(connection.get_protocol_version_name())
",
    );
    connects(&place, &python, "connect.py", &GROUPS[..1]);
}

/// As browsers do it: a client with keys for the hybrid and for X25519, a server whose own list of
/// groups names the hybrid. A program without such a list offers the same groups as without the
/// module.
#[test]
fn a_servers_own_list_offers_the_hybrid_and_clients_keep_their_first_group() {
    let Some(peer) = peer() else { return };
    let place = Place::new();
    let server = Server::start(&place, "p256", "-groups X25519MLKEM768:X25519:P-256", true);
    let address = format!("127.0.0.1:{}", server.port);
    let both = place.program(peer, &format!("client {address} both"));
    assert_eq!(lines(&both.succeed()), ["X25519MLKEM768"]);
    let plain = place.program(peer, &format!("client {address} X25519"));
    assert_eq!(lines(&plain.succeed()), ["X25519"]);
    // A client with the module sends a key for X25519, as without it: one flight is enough for a
    // server without hybrids.
    let stock = Server::start(&place, "p256", "", false);
    let command = format!("{} -msg", stock.client_command(""));
    let client = place.lockstep(&command).limit(20).succeed();
    assert_eq!(
        client.text().matches(", ClientHello").count(),
        1,
        "{client}"
    );
    client.each_on_lanes(&["p256-verify", "x25519-keygen", "x25519"]);
}

#[test]
fn our_clients_negotiate_the_hybrids() {
    let place = Place::new();
    for group in GROUPS {
        // With OpenSSL's own server on lanes.
        let server = Server::start(&place, "p256", &format!("-groups {group}"), true);
        let options = format!("-tls1_3 -groups {group}");
        let command = server.client_command(&options);
        let client = place.lockstep(&command).limit(20).succeed();
        let has = |finished: &Finished, operations: &[&str]| {
            let counters = finished.counters();
            for operation in operations {
                let shape = shape(group, operation);
                assert_eq!(counters.shapes().get(&*shape), Some(&1), "{counters:?}");
            }
            assert_eq!(counters.fallbacks(), 0);
        };
        has(&client, &["keygen", "client"]);
        // And with a server in Go.
        let Some(peer) = peer() else { continue };
        let certificate = certificate(&place, "p256");
        let mut running = place
            .program(peer, &format!("server {certificate} p256.pem {group}"))
            .start();
        let address = running.wait_for("port", |output| {
            Some(output.split_once("port ")?.1.split_once('\n')?.0.to_owned())
        });
        let command = format!(
            "s_client -connect {address} -CAfile {certificate} -verify_return_error {options}"
        );
        has(
            &place.lockstep(&command).limit(20).succeed(),
            &["keygen", "client"],
        );
    }
}
