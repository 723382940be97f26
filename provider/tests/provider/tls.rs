//! TLS handshakes: `openssl s_server` with the module, `openssl s_client` without.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::{Finished, Place, Running, Shapes};

/// A certificate for 127.0.0.1, signed with its own key by OpenSSL alone.
pub fn certificate(place: &Place, key: &str) -> String {
    let pem = place.key(key);
    let file = format!("{key}.crt");
    if !place.path(&file).exists() {
        place.self_signed(&pem, "localhost", &file);
    }
    file
}

/// A server that runs, and where it listens. It ends when this goes out of scope.
pub struct Server<'a> {
    place: &'a Place,
    pub running: Running,
    pub port: u16,
    certificate: String,
}

impl<'a> Server<'a> {
    pub fn start(place: &'a Place, key: &str, options: &str, on_lanes: bool) -> Server<'a> {
        let certificate = certificate(place, key);
        let command = format!(
            "s_server -accept 127.0.0.1:0 -naccept 1000 -key {key}.pem -cert {certificate} {options}"
        );
        let process = if on_lanes {
            place.lockstep(&command)
        } else {
            place.stock(&command)
        };
        let mut running = process.silent_input().start();
        let port = running.wait_for("port", |output| {
            output
                .split_once("ACCEPT 127.0.0.1:")?
                .1
                .split_once('\n')?
                .0
                .trim()
                .parse()
                .ok()
        });
        Server {
            place,
            running,
            port,
            certificate,
        }
    }

    /// A client that verifies the server's certificate, without the module.
    pub fn client(&self, options: &str) -> Finished {
        self.place
            .stock(&self.client_command(options))
            .limit(20)
            .run()
    }

    pub fn client_command(&self, options: &str) -> String {
        let Server {
            port, certificate, ..
        } = self;
        format!(
            "s_client -connect 127.0.0.1:{port} -CAfile {certificate} -verify_return_error {options}"
        )
    }

    /// A connection that must work and run each of these shapes once on lanes, and nothing else.
    #[track_caller]
    fn connect(&self, shapes: &[&'static str], options: &str) -> Finished {
        let counts =
            |running: &Running| running.counters().map_or_else(Shapes::new, |c| c.shapes());
        let mut expected = counts(&self.running);
        for shape in shapes {
            *expected.entry(shape).or_default() += 1;
        }
        let client = self.client(options);
        assert!(
            client.status.success(),
            "{client}\n{}",
            self.running.describe()
        );
        assert!(
            client.text().contains("Verify return code: 0 (ok)"),
            "{client}"
        );
        let sum = |shapes: &Shapes| shapes.values().sum::<u64>();
        let counters = self
            .running
            .wait_for_counters("all operations", |counters| {
                sum(&counters.shapes()) >= sum(&expected)
            });
        assert!(
            counters.shapes() == expected
                && counters.fallbacks() == 0
                && counters.failed_checks == 0,
            "expected {expected:?}: {counters:?}\n{client}"
        );
        client
    }

    /// Clients that say hello and go away at once.
    pub fn disappoint(&self, times: usize) {
        let hello = self.hello();
        for _ in 0..times {
            let mut connection = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
            connection.write_all(&hello).expect("a server");
        }
    }

    /// The first message of a client.
    fn hello(&self) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let client = self
            .place
            .stock(&format!("s_client -connect 127.0.0.1:{port}"))
            .limit(20)
            .start();
        let (mut connection, _) = listener.accept().expect("a client");
        let mut hello = vec![0; 5];
        connection.read_exact(&mut hello).expect("a record");
        let length = u16::from_be_bytes([hello[3], hello[4]]);
        hello.resize(5 + usize::from(length), 0);
        connection.read_exact(&mut hello[5..]).expect("a record");
        drop(client);
        hello
    }
}

/// Operations of a usual handshake beside the signature.
const EPHEMERAL: [&str; 2] = ["x25519-keygen", "x25519"];

/// The name of a test key, and of its shape.
fn rsa(bits: u32) -> (&'static str, &'static str) {
    match bits {
        2048 => ("rsa2048", "rsa2048"),
        3072 => ("rsa3072", "rsa3072"),
        4096 => ("rsa4096", "rsa4096"),
        _ => panic!("no test key of {bits} bits"),
    }
}

#[test]
fn rsa_certificates_sign_handshakes() {
    let place = Place::new();
    for bits in [2048, 3072, 4096] {
        let (key, shape) = rsa(bits);
        let shapes = [&[shape][..], &EPHEMERAL].concat();
        let server = Server::start(&place, key, "", true);
        let client = server.connect(&shapes, "-tls1_3");
        assert!(
            client.text().contains("Peer signature type: RSA-PSS"),
            "{client}"
        );
        let client = server.connect(&shapes, "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256");
        assert!(
            client
                .text()
                .contains("Cipher is ECDHE-RSA-AES128-GCM-SHA256"),
            "{client}"
        );
        server.connect(
            &shapes,
            "-tls1_2 -cipher ECDHE-RSA-AES256-GCM-SHA384 -sigalgs RSA+SHA512",
        );
    }
}

#[test]
fn rsa_key_exchange_decrypts_the_premaster_secret() {
    let place = Place::new();
    for bits in [2048, 4096] {
        let (key, shape) = rsa(bits);
        let server = Server::start(&place, key, "", true);
        let client = server.connect(&[shape], "-tls1_2 -cipher AES128-GCM-SHA256");
        assert!(
            client.text().contains("Cipher is AES128-GCM-SHA256"),
            "{client}"
        );
    }
}

#[test]
fn certificates_with_pss_keys_sign_handshakes() {
    let place = Place::new();
    for bits in [2048, 3072] {
        let shapes = [&[rsa(bits).1][..], &EPHEMERAL].concat();
        let server = Server::start(&place, &format!("pss{bits}"), "", true);
        server.connect(&shapes, "-tls1_3");
        server.connect(&shapes, "-tls1_2");
    }
}

#[test]
fn clients_with_certificates_sign_too() {
    let place = Place::new();
    for (key, sign, _) in CERTIFICATES {
        let certificate = certificate(&place, key);
        let demand = format!("-Verify 1 -verify_return_error -CAfile {certificate}");
        let server = Server::start(&place, "rsa3072", &demand, false);
        for version in ["-tls1_2", "-tls1_3"] {
            let client = place
                .lockstep(&format!(
                    "s_client -connect 127.0.0.1:{} -key {} -cert {certificate} {version}",
                    server.port,
                    place.key(key)
                ))
                .succeed();
            client.each_on_lanes(&[sign, &EPHEMERAL[..]].concat());
        }
    }
}

/// A certificate's key with its shapes for signing and verifying, and a group with its shapes for
/// generation and agreement. Verification with RSA is OpenSSL's own.
type OnLanes = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const CERTIFICATES: [OnLanes; 4] = [
    ("rsa2048", &["rsa2048"], &[]),
    ("p256", &["p256-sign"], &["p256-verify"]),
    ("p384", &["p384-sign"], &["p384-verify"]),
    ("ed25519", &["ed25519-sign"], &["ed25519-verify"]),
];

const GROUPS: [(&str, [&str; 2]); 3] = [
    ("X25519", EPHEMERAL),
    ("P-256", ["p256-keygen", "p256-ecdh"]),
    ("P-384", ["p384-keygen", "p384-ecdh"]),
];

/// The options of a client for one group. In TLS 1.2 it must have the curve of an ECDSA certificate
/// among its groups.
fn one_group(version: &str, key: &str, group: &str) -> String {
    match key.strip_prefix('p') {
        Some(curve) if version == "-tls1_2" && group != format!("P-{curve}") => {
            format!("{version} -groups {group}:P-{curve}")
        }
        _ => format!("{version} -groups {group}"),
    }
}

#[test]
fn every_certificate_with_every_group() {
    let place = Place::new();
    for (key, sign, verify) in CERTIFICATES {
        let [ours, stock] = [true, false].map(|on_lanes| Server::start(&place, key, "", on_lanes));
        for (group, ephemeral) in GROUPS {
            for version in ["-tls1_2", "-tls1_3"] {
                let options = one_group(version, key, group);
                let expected = negotiated(&stock.client(&options));
                // EdDSA has no digest.
                assert!(expected.len() >= 3, "{expected:?}");
                // The server on lanes, and then the client.
                let client = ours.connect(&[sign, &ephemeral[..]].concat(), &options);
                assert_eq!(negotiated(&client), expected, "{key} {options}");
                let client = place
                    .lockstep(&stock.client_command(&options))
                    .limit(20)
                    .succeed();
                assert_eq!(negotiated(&client), expected, "{key} {options}");
                client.each_on_lanes(&[verify, &ephemeral[..]].concat());
            }
        }
    }
}

#[test]
fn keys_and_groups_without_lanes_behave_as_without_the_module() {
    let place = Place::new();
    for key in ["p521", "ed448"] {
        let [ours, stock] = [true, false].map(|on_lanes| Server::start(&place, key, "", on_lanes));
        for group in ["X448", "P-521", "ffdhe2048"] {
            for version in ["-tls1_2", "-tls1_3"] {
                if group == "ffdhe2048" && version == "-tls1_2" {
                    continue;
                }
                let options = one_group(version, key, group);
                let expected = negotiated(&stock.client(&options));
                // EdDSA has no digest.
                assert!(expected.len() >= 3, "{expected:?}");
                assert_eq!(negotiated(&ours.client(&options)), expected);
                let client = place
                    .lockstep(&stock.client_command(&options))
                    .limit(20)
                    .succeed();
                assert_eq!(negotiated(&client), expected);
            }
        }
        let counters = ours.running.counters();
        assert!(counters.is_none_or(|c| c.operations() == 0 && c.fallbacks() == 0));
        // That the module was there shows the same server's way with a group that it accelerates.
        ours.connect(&EPHEMERAL, "-tls1_3 -groups X25519");
    }
}

#[test]
fn no_group_is_lost() {
    let place = Place::new();
    let program = place.compile("groups");
    let stock = place.program(&program, "").succeed().text();
    assert!(stock.lines().count() > 20, "{stock}");
    // Before OpenSSL 3.5 these are ours. Where both have them they are there once.
    let hybrids = [
        "SecP256r1MLKEM768 1",
        "SecP384r1MLKEM1024 1",
        "X25519MLKEM768 1",
    ];
    let mut all: Vec<&str> = stock.lines().chain(hybrids).collect();
    all.sort_unstable();
    all.dedup();
    let ours = place.program(&program, "").with_lockstep().succeed().text();
    assert_eq!(ours.lines().collect::<Vec<_>>(), all);
    // Loaded, but not preferred: then all other groups are the default provider's.
    let configuration = String::from_utf8(place.read("lockstep.cnf")).expect("text");
    let unpreferred = configuration.replace("default_properties =", "# default_properties =");
    assert_ne!(unpreferred, configuration);
    place.write("lockstep.cnf", unpreferred.as_bytes());
    let ours = place.program(&program, "").with_lockstep().succeed().text();
    assert_eq!(ours.lines().collect::<Vec<_>>(), all);
}

/// Returns a client's lines about the handshake.
fn negotiated(client: &Finished) -> Vec<String> {
    assert!(client.status.success(), "{client}");
    let starts = [
        "Peer signing digest",
        "Peer signature type",
        "Server Temp Key",
        "New, ",
    ];
    let text = client.text();
    let lines = text
        .lines()
        .filter(|line| starts.iter().any(|start| line.starts_with(start)));
    lines.map(str::to_owned).collect()
}

#[test]
fn forged_premaster_secrets_become_random_ones() {
    let place = Place::new();
    let program = place.compile("premaster");
    for bits in [2048, 4096] {
        let key = place.key(&format!("rsa{bits}"));
        let finished = place.program(&program, &key).with_lockstep().succeed();
        let decryptions: u64 = finished.text().trim().parse().expect("a number");
        finished.on_lanes(&format!("rsa{bits}"), decryptions);
    }
}

#[test]
fn clients_that_go_away_do_no_harm() {
    let place = Place::new();
    let mut server = Server::start(&place, "rsa2048", "", true);
    server.disappoint(10);
    assert!(
        server.client("-tls1_3").status.success(),
        "{}",
        server.running.describe()
    );
    assert!(server.running.is_alive());
    server
        .running
        .wait_for_counters("signed for all", |counters| counters.of("rsa2048") >= 2);
}
