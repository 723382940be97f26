//! TLS handshakes: `openssl s_server` with the module, `openssl s_client` without.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::{Finished, Place, Running};

/// A certificate for 127.0.0.1, signed with its own key by stock OpenSSL.
fn certificate(place: &Place, key: &str) -> String {
    let pem = place.key(key);
    let file = format!("{key}.crt");
    if !place.path(&file).exists() {
        place
            .stock(&format!(
                "req -x509 -new -key {pem} -days 2 -subj /CN=localhost -out {file}"
            ))
            .succeed();
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

    fn client_command(&self, options: &str) -> String {
        let Server {
            port, certificate, ..
        } = self;
        format!(
            "s_client -connect 127.0.0.1:{port} -CAfile {certificate} -verify_return_error {options}"
        )
    }

    /// A connection that must work and make one private operation on lanes.
    #[track_caller]
    fn connect(&self, shape: &str, options: &str) -> Finished {
        let before = self.operations();
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
        let counters = self
            .running
            .wait_for_counters("one more operation", |counters| {
                counters.operations() > before
            });
        counters.expect(shape, before + 1, &client.to_string());
        client
    }

    fn operations(&self) -> u64 {
        self.running
            .counters()
            .map_or(0, |counters| counters.operations())
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

#[test]
fn rsa_certificates_sign_handshakes() {
    let place = Place::new();
    for bits in [2048, 3072, 4096] {
        let shape = format!("rsa{bits}");
        let server = Server::start(&place, &shape, "", true);
        let client = server.connect(&shape, "-tls1_3");
        assert!(
            client.text().contains("Peer signature type: RSA-PSS"),
            "{client}"
        );
        let client = server.connect(&shape, "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256");
        assert!(
            client
                .text()
                .contains("Cipher is ECDHE-RSA-AES128-GCM-SHA256"),
            "{client}"
        );
        server.connect(
            &shape,
            "-tls1_2 -cipher ECDHE-RSA-AES256-GCM-SHA384 -sigalgs RSA+SHA512",
        );
    }
}

#[test]
fn rsa_key_exchange_decrypts_the_premaster_secret() {
    let place = Place::new();
    for bits in [2048, 4096] {
        let shape = format!("rsa{bits}");
        let server = Server::start(&place, &shape, "", true);
        let client = server.connect(&shape, "-tls1_2 -cipher AES128-GCM-SHA256");
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
        let shape = format!("rsa{bits}");
        let server = Server::start(&place, &format!("pss{bits}"), "", true);
        server.connect(&shape, "-tls1_3");
        server.connect(&shape, "-tls1_2");
    }
}

#[test]
fn clients_with_certificates_sign_too() {
    let place = Place::new();
    let certificate = certificate(&place, "rsa3072");
    let server = Server::start(
        &place,
        "rsa2048",
        &format!("-Verify 1 -CAfile {certificate}"),
        false,
    );
    for version in ["-tls1_2", "-tls1_3"] {
        let client = place
            .lockstep(&format!(
                "s_client -connect 127.0.0.1:{} -key rsa3072.pem -cert {certificate} {version}",
                server.port
            ))
            .succeed();
        client.on_lanes("rsa3072", 1);
    }
}

#[test]
fn other_keys_and_groups_behave_as_without_the_module() {
    let place = Place::new();
    for key in ["p256", "p384"] {
        let [ours, stock] = [true, false].map(|on_lanes| Server::start(&place, key, "", on_lanes));
        for group in ["X25519", "P-256", "P-384"] {
            for version in ["-tls1_2", "-tls1_3"] {
                // In TLS 1.2 the client must have the certificate's curve among its groups.
                let curve = format!("P-{}", &key[1..]);
                let options = match version {
                    "-tls1_2" if group != curve => format!("{version} -groups {group}:{curve}"),
                    _ => format!("{version} -groups {group}"),
                };
                let expected = negotiated(&stock.client(&options));
                assert_eq!(expected.len(), 4, "{expected:?}");
                assert_eq!(negotiated(&ours.client(&options)), expected);
                let client = place
                    .lockstep(&stock.client_command(&options))
                    .limit(20)
                    .succeed();
                assert_eq!(negotiated(&client), expected);
            }
        }
        // Nothing of this is ours (yet).
        let counters = ours.running.counters();
        assert!(counters.is_none_or(|c| c.operations() == 0 && c.fallbacks() == 0));
    }
    // That the module was there shows the same server's way with an RSA key.
    Server::start(&place, "rsa2048", "", true).connect("rsa2048", "-groups P-256");
}

/// What a client tells about the handshake.
fn negotiated(client: &Finished) -> Vec<String> {
    assert!(client.status.success(), "{client}");
    let told = [
        "Peer signing digest",
        "Peer signature type",
        "Server Temp Key",
        "New, ",
    ];
    let text = client.text();
    let lines = text
        .lines()
        .filter(|line| told.iter().any(|start| line.starts_with(start)));
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
