//! Handshakes with a running service, made by the `openssl` command: this program has no TLS
//! library.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockstep_common::{
    Failure, Scratch, insist_on_own_file, others_can_change, own_module, quoted,
};

use crate::command::{self, Started, openssl};

/// Maximum time of a handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time of clients that make handshakes for a second.
const PATIENCE_WITH_CLIENTS: Duration = Duration::from_secs(20);
/// Interval at which the counters are read while these clients run.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum number of bytes that are read of a client's output.
const MOST_BYTES: u64 = 1 << 20;
/// Number of concurrent clients, so that their requests can share batches.
pub const CLIENTS: usize = 8;
/// Minimum number of rounds. In a round each client makes one handshake.
const ROUNDS: u64 = 4;
/// Maximum time to find out whether requests share batches.
const LONGEST: Duration = Duration::from_secs(1);

/// The group that most browsers prefer. The `openssl` command has it from OpenSSL 3.5 on.
pub const HYBRID: &str = "X25519MLKEM768";

/// The other hybrids, which few servers name.
pub const HYBRIDS: [&str; 2] = ["SecP256r1MLKEM768", "SecP384r1MLKEM1024"];

const TLS_1_3: &str = "TLSv1.3";

/// Parameter sets of ML-DSA by the length of a public key in bits (FIPS 204, table 2).
const ML_DSA: [(u32, &str); 3] = [
    (8 * 1312, "ML-DSA-44"),
    (8 * 1952, "ML-DSA-65"),
    (8 * 2592, "ML-DSA-87"),
];

/// Kinds of certificates, with the signatures that only such a certificate's key can make.
pub const CERTIFICATES: [(&str, &str); 4] = [
    ("RSA", "rsa_pss_rsae_sha256:rsa_pkcs1_sha256"),
    (
        "ECDSA",
        "ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:ecdsa_secp521r1_sha512",
    ),
    ("Ed25519", "ed25519"),
    // Before OpenSSL 3.5, the `openssl` command lacks these signatures and makes no handshake.
    ("ML-DSA", "mldsa44:mldsa65:mldsa87"),
];

/// A client of one service.
pub struct Client {
    scratch: Scratch,
    address: String,
    /// The name that it asks for (SNI).
    name: Option<String>,
}

/// Result of a handshake.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The protocol and its cipher suite.
    pub suite: String,
    /// The size of the key in the server's certificate, in bits.
    pub bits: Option<u32>,
}

/// Offer of the client; `None` stands for the default of the `openssl` command.
#[derive(Clone, Copy, Default)]
pub struct Offer<'a> {
    pub groups: Option<&'a str>,
    pub signatures: Option<&'a str>,
}

impl Client {
    /// A client of the service at `HOST:PORT` that asks for this name.
    pub fn new(address: impl Into<String>, name: Option<&str>) -> Result<Client, Failure> {
        Ok(Client {
            scratch: Scratch::new("doctor-client")?,
            address: address.into(),
            name: name.map(str::to_owned),
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Makes one handshake. The failure has the report of the `openssl` command.
    pub fn handshake(&self, offer: Offer<'_>) -> Result<Session, Failure> {
        Client::session(self.start_handshake(offer)?)
    }

    fn start_handshake(&self, offer: Offer<'_>) -> Result<Started, Failure> {
        let mut command = self.command("s_client", offer)?;
        // A name that the command does not know is an error here. In a configuration it is ignored.
        for (option, value) in [("-groups", offer.groups), ("-sigalgs", offer.signatures)] {
            command.args(value.iter().flat_map(|value| [option, *value]));
        }
        let name = self.name.iter();
        command.args(name.flat_map(|name| ["-servername", name]));
        start(&mut command)
    }

    fn session(child: Started) -> Result<Session, Failure> {
        let printed = finish(child, PATIENCE)?;
        Session::parse(&printed).ok_or_else(|| Failure::new(reason(&printed)))
    }

    /// Makes handshakes with several clients at a time, and returns their number. Ends once
    /// `enough` returns a number, and after about a second at the latest, because servers log
    /// connections.
    pub fn many_handshakes(
        &self,
        offer: Offer<'_>,
        enough: &dyn Fn() -> Option<u64>,
    ) -> Result<u64, Failure> {
        let until = Instant::now() + LONGEST;
        let (mut made, mut rounds) = (0, 0);
        while rounds < ROUNDS || self.name.is_some() && Instant::now() < until {
            let clients = (0..CLIENTS).map(|_| self.start_handshake(offer));
            let clients: Vec<Started> = clients.collect::<Result<_, _>>()?;
            let sessions = clients.into_iter().map(Client::session);
            made += sessions.filter(Result::is_ok).count() as u64;
            rounds += 1;
            if made == 0 || rounds >= ROUNDS && enough().is_some() {
                return Ok(made);
            }
        }
        match &self.name {
            Some(_) => Ok(made),
            None => self.quick_handshakes(made, offer, enough),
        }
    }

    /// Makes more handshakes by `openssl s_time`, whose clients follow each other faster and ask
    /// for no name. `before` handshakes were made already. In TLS 1.2 the server sends the last
    /// message, so no handshake is cut off when the client closes.
    fn quick_handshakes(
        &self,
        before: u64,
        offer: Offer<'_>,
        enough: &dyn Fn() -> Option<u64>,
    ) -> Result<u64, Failure> {
        let mut made = before;
        for version in [&["-tls1_2"][..], &[]] {
            let clients = (0..CLIENTS).map(|_| {
                let mut command = self.command("s_time", offer)?;
                start(command.args(["-new", "-time", "1"]).args(version))
            });
            let mut clients: Vec<Started> = clients.collect::<Result<_, _>>()?;
            let until = Instant::now() + LONGEST;
            while Instant::now() < until {
                sleep(LOOK_EVERY);
                if let Some(made) = enough() {
                    clients.iter_mut().for_each(Started::kill);
                    return Ok(made);
                }
            }
            for client in clients {
                made += connections(&finish(client, PATIENCE_WITH_CLIENTS)?);
            }
            if made > before {
                break;
            }
        }
        Ok(made)
    }

    /// Makes the `openssl` command with a configuration for this offer. The configuration loads
    /// lockstep only where OpenSSL may lack the group.
    fn command(&self, name: &str, offer: Offer<'_>) -> Result<Command, Failure> {
        let module = match offer.groups {
            Some(group) if group.contains("MLKEM") => Some(module_of_this_program()?),
            _ => None,
        };
        let text = configuration(offer, module.as_deref());
        let path = self.scratch.write("openssl.cnf", &text)?;
        let mut command = openssl(path);
        command.args([name, "-connect", &self.address]);
        // The client's operations must not count as the service's.
        command.env("LOCKSTEP_STATS_DIR", "no");
        Ok(command)
    }
}

/// The module that belongs to this program, as a configuration names it.
pub fn module_of_this_program() -> Result<String, Failure> {
    let module = own_module()?;
    // If others can change this program, a check of its module adds nothing.
    let program = std::env::current_exe().map(|path| others_can_change(&path));
    if !matches!(program, Ok(Ok(Some(_)))) {
        insist_on_own_file(&module)?;
    }
    quoted(&module.display().to_string())
}

/// A configuration in which all connections make an offer, and which loads this module.
pub fn configuration(offer: Offer<'_>, module: Option<&str>) -> String {
    let line = |name: &str, value: Option<&str>| match value {
        Some(value) => format!("{name} = {value}\n"),
        None => String::new(),
    };
    let providers = module.map_or(String::new(), |module| {
        format!(
            "[init]\nproviders = providers\n[providers]\ndefault = standard\nlockstep = lockstep\n\
             [standard]\nactivate = 1\n[lockstep]\nmodule = {module}\nactivate = 1\n"
        )
    });
    format!(
        "openssl_conf = init\n{providers}[init]\nssl_conf = ssl\n[ssl]\nsystem_default = policy\n\
         [policy]\nCipherString = DEFAULT:@SECLEVEL=1\n{}{}",
        line("Groups", offer.groups),
        line("SignatureAlgorithms", offer.signatures)
    )
}

fn start(command: &mut Command) -> Result<Started, Failure> {
    command::start(command, b"", MOST_BYTES).map_err(|error| {
        Failure::new(format!("cannot run openssl: {error}"))
            .remedy("install OpenSSL's command (Debian: openssl)")
    })
}

/// Returns the output of a program on both streams, once it has ended.
fn finish(child: Started, patience: Duration) -> Result<String, Failure> {
    let ended = child.finish(patience).ok_or_else(|| {
        let seconds = patience.as_secs();
        Failure::new(format!("no answer within {seconds} seconds"))
    })?;
    let printed = [ended.out, ended.errors].concat();
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

impl Session {
    pub fn is_tls_1_3(&self) -> bool {
        self.suite.starts_with(TLS_1_3)
    }

    /// Whether both sides have agreed on the offered group, if only one was offered. Before TLS 1.3
    /// some cipher suites use no group. The hybrids are for TLS 1.3.
    pub fn has_agreed_on(&self, group: &str) -> bool {
        self.is_tls_1_3() || (self.suite.contains(" ECDHE-") && !group.contains("MLKEM"))
    }

    /// Describes a key of this kind.
    pub fn shown(&self, kind: &str) -> String {
        let Some(bits) = self.bits else {
            return kind.to_owned();
        };
        match ML_DSA.iter().find(|(length, _)| *length == bits) {
            Some((_, set)) if kind == "ML-DSA" => (*set).to_owned(),
            _ => format!("{kind} ({bits} bits)"),
        }
    }

    /// Parses the output of `openssl s_client`; `None` if there was no handshake.
    fn parse(printed: &str) -> Option<Session> {
        let mut lines = printed.lines();
        // In TLS 1.3 the command names the cipher suite even if the server then fails to sign.
        let has_signed = lines
            .clone()
            .any(|line| line.starts_with("Peer signature type: "));
        let suite = lines.find_map(|line| line.strip_prefix("New, "))?;
        let (protocol, cipher) = suite.split_once(", Cipher is ")?;
        if cipher == "(NONE)" || (protocol == TLS_1_3 && !has_signed) {
            return None;
        }
        let bits = lines.find_map(|line| {
            let (_, bits) = line.split_once("public key is ")?;
            bits.strip_suffix(" bit")?.parse().ok()
        });
        Some(Session {
            suite: format!("{protocol}, {cipher}"),
            bits,
        })
    }
}

/// Finds libssl's reason why there was no handshake.
fn reason(printed: &str) -> String {
    let mut errors = printed.lines().filter_map(|line| {
        let mut parts = line.split(":error:").nth(1)?.split(':');
        parts.nth(3).filter(|reason| !reason.is_empty())
    });
    let found = errors.next_back().map(str::to_owned);
    found.unwrap_or_else(|| "the server closed the connection".to_owned())
}

/// Returns the number of handshakes that `openssl s_time` counted.
fn connections(printed: &str) -> u64 {
    let counts = printed.lines().filter_map(|line| {
        let (count, _) = line.split_once(" connections in ")?;
        count.parse().ok()
    });
    counts.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_openssl_command_prints_is_understood() {
        let signed = "Peer signature type: RSA-PSS\n";
        let printed = format!(
            "CONNECTED(00000003)\n---\n{signed}---\nNew, TLSv1.3, Cipher is \
             TLS_AES_256_GCM_SHA384\nServer public key is 2048 bit\nVerify return code: 18\n"
        );
        let session = Session::parse(&printed).unwrap();
        // The server has no access to its key.
        assert_eq!(Session::parse(&printed.replace(signed, "")), None);
        assert_eq!(session.suite, "TLSv1.3, TLS_AES_256_GCM_SHA384");
        assert_eq!(session.bits, Some(2048));
        let refused = "CONNECTED(00000003)\n\
             4047:error:0A000410:SSL routines:ssl3_read_bytes:sslv3 alert handshake failure:../ssl/\
             record/rec_layer_s3.c:1599:SSL alert number 40\nNew, (NONE), Cipher is (NONE)\n";
        assert_eq!(Session::parse(refused), None);
        assert_eq!(reason(refused), "sslv3 alert handshake failure");
        assert_eq!(reason(""), "the server closed the connection");
        let counted = "\n\n97 connections in 0.08s; 1212.50 connections/user sec, bytes read 0\n\
                       97 connections in 2 real seconds, 0 bytes read per connection\n";
        assert_eq!((connections(counted), connections("")), (97, 0));
    }

    #[test]
    fn a_group_is_agreed_on_only_where_the_cipher_suite_has_one() {
        for (suite, curve, hybrid) in [
            ("TLSv1.3, TLS_AES_256_GCM_SHA384", true, true),
            ("TLSv1.2, ECDHE-RSA-AES256-GCM-SHA384", true, false),
            ("TLSv1.2, DHE-RSA-AES256-GCM-SHA384", false, false),
            ("TLSv1.2, AES128-SHA256", false, false),
        ] {
            let suite = suite.to_owned();
            let session = Session { suite, bits: None };
            let agreed = [
                session.has_agreed_on("P-256"),
                session.has_agreed_on(HYBRID),
            ];
            assert_eq!(agreed, [curve, hybrid], "{}", session.suite);
        }
    }

    #[test]
    fn keys_are_shown_by_their_size_or_set() {
        for (bits, kind, shown) in [
            (Some(2048), "RSA", "RSA (2048 bits)"),
            (Some(10496), "ML-DSA", "ML-DSA-44"),
            (Some(15616), "ML-DSA", "ML-DSA-65"),
            (Some(20736), "ML-DSA", "ML-DSA-87"),
            (Some(10496), "RSA", "RSA (10496 bits)"),
            (None, "Ed25519", "Ed25519"),
        ] {
            let session = Session {
                bits,
                ..Session::default()
            };
            assert_eq!(session.shown(kind), shown);
        }
    }

    #[test]
    fn an_offer_holds_for_all_connections() {
        let offer = Offer {
            groups: Some("X25519"),
            signatures: None,
        };
        let text = configuration(offer, None);
        assert!(text.contains("\nGroups = X25519\n"), "{text}");
        assert!(
            !text.contains("SignatureAlgorithms") && !text.contains("lockstep"),
            "{text}"
        );
        let text = configuration(offer, Some("/lockstep.so"));
        assert!(text.contains("\nmodule = /lockstep.so\n"), "{text}");
    }
}
