//! The cases: uses of OpenSSL by a program that do not gain by lanes.

use lockstep_engine::{Curve, Size};

use crate::handshakes::Kind;

/// What is measured together, and how.
pub struct Case {
    /// What it gives a figure for; the first name stands for all of it.
    pub rows: &'static [Row],
    pub way: Way,
}

/// One row of the table.
pub struct Row {
    /// As the command line and the document have it.
    pub name: &'static str,
    /// In words.
    pub title: &'static str,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds of CPU time.
    Cpu,
    /// Bytes.
    Memory,
}

/// Which processes do it.
#[derive(Clone, Copy)]
pub enum Way {
    /// One process, which does it again and again, and takes its own time. It has so many times
    /// the time of a figure.
    Again(Work, u32),
    /// A process each, which takes its own time for it.
    First(Work),
    /// A process each, of which everything counts from its start to its end.
    Process(Work),
    /// The same of the `openssl` command with these arguments.
    Command(&'static [&'static str]),
    /// A server that is installed.
    Service(Service, Kind),
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing but to initialise libcrypto and libssl.
    Start,
    ReadKey(Kind),
    ReadCertificate,
    ReadBundle,
    Context,
    /// A context with key and chain.
    Host,
    /// The first signature of each of many keys.
    FirstSignature(Kind),
    VerifyChain,
    Generate(Pair),
    /// A child that does nothing, of a process with a host.
    Fork,
    /// A child that signs once, with a key of its parent's.
    ForkedSignature(Kind),
    /// A child that serves one connection, with a context of its parent's.
    ForkedHandshake(Kind),
    /// It serves the connection that is its standard input.
    Inetd(Kind),
    /// Many hosts: their memory, their first signatures, and a reload of them.
    Hosts,
}

/// A key pair that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    P256,
    X25519,
    Rsa2048,
}

/// A server whose processes serve one connection, or few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Postgresql,
    Sshd,
    Postfix,
}

const RSA_2048: Kind = Kind::Rsa(Size::Rsa2048);
const RSA_4096: Kind = Kind::Rsa(Size::Rsa4096);
const P256: Kind = Kind::Ecdsa(Curve::P256);

/// The keys that cases name.
pub const KINDS: [Kind; 3] = [RSA_2048, RSA_4096, P256];

macro_rules! case {
    ($name:literal, $title:literal, $way:expr) => {
        Case {
            rows: &[Row {
                name: $name,
                title: $title,
                unit: Unit::Cpu,
            }],
            way: $way,
        }
    };
}

/// Every case, in the order of the table. Files are named as [`material`](super::material) makes
/// them.
pub const ALL: &[Case] = &[
    case!(
        "start",
        "a program that starts libssl",
        Way::Process(Work::Start)
    ),
    case!(
        "read-rsa2048",
        "an RSA-2048 key read from PEM",
        Way::Again(Work::ReadKey(RSA_2048), 1)
    ),
    case!(
        "read-p256",
        "a P-256 key read from PEM",
        Way::Again(Work::ReadKey(P256), 1)
    ),
    case!(
        "read-certificate",
        "a certificate read from PEM",
        Way::Again(Work::ReadCertificate, 1)
    ),
    case!(
        "read-bundle",
        "a bundle of certificate authorities read",
        Way::Again(Work::ReadBundle, 1)
    ),
    case!("context", "SSL_CTX_new", Way::Again(Work::Context, 1)),
    case!(
        "context-host",
        "SSL_CTX_new, with key and chain",
        Way::Again(Work::Host, 1)
    ),
    case!(
        "sign-rsa2048",
        "the first signature of an RSA-2048 key",
        Way::Again(Work::FirstSignature(RSA_2048), 1)
    ),
    case!(
        "sign-rsa4096",
        "the first signature of an RSA-4096 key",
        Way::Again(Work::FirstSignature(RSA_4096), 1)
    ),
    case!(
        "sign-p256",
        "the first signature of a P-256 key",
        Way::Again(Work::FirstSignature(P256), 1)
    ),
    case!(
        "verify-chain",
        "a chain of three verified",
        Way::Again(Work::VerifyChain, 1)
    ),
    case!(
        "keygen-p256",
        "the first P-256 key pair of a process",
        Way::First(Work::Generate(Pair::P256))
    ),
    case!(
        "keygen-x25519",
        "the first X25519 key pair of a process",
        Way::First(Work::Generate(Pair::X25519))
    ),
    case!(
        "keygen-rsa2048",
        "an RSA-2048 key pair",
        Way::Again(Work::Generate(Pair::Rsa2048), 10)
    ),
    case!("fork", "a forked child alone", Way::Again(Work::Fork, 1)),
    case!(
        "forked-sign-rsa2048",
        "a forked child that signs once, RSA-2048",
        Way::Again(Work::ForkedSignature(RSA_2048), 1)
    ),
    case!(
        "forked-sign-rsa4096",
        "a forked child that signs once, RSA-4096",
        Way::Again(Work::ForkedSignature(RSA_4096), 1)
    ),
    case!(
        "forked-sign-p256",
        "a forked child that signs once, P-256",
        Way::Again(Work::ForkedSignature(P256), 1)
    ),
    case!(
        "forked-handshake-rsa2048",
        "a handshake in a forked child, RSA-2048",
        Way::Again(Work::ForkedHandshake(RSA_2048), 1)
    ),
    case!(
        "forked-handshake-p256",
        "a handshake in a forked child, P-256",
        Way::Again(Work::ForkedHandshake(P256), 1)
    ),
    case!(
        "process-handshake-rsa2048",
        "a handshake in a new process, RSA-2048",
        Way::Process(Work::Inetd(RSA_2048))
    ),
    case!(
        "process-handshake-p256",
        "a handshake in a new process, P-256",
        Way::Process(Work::Inetd(P256))
    ),
    case!(
        "command-version",
        "`openssl version`",
        Way::Command(&["version"])
    ),
    case!(
        "command-key",
        "`openssl pkey` with an RSA-2048 key",
        Way::Command(&["pkey", "-noout", "-in", "rsa2048/key.pem"])
    ),
    case!(
        "command-certificate",
        "`openssl x509` with a certificate",
        Way::Command(&["x509", "-noout", "-in", "rsa2048/certificate.pem"])
    ),
    case!(
        "command-digest",
        "`openssl dgst` of a small file",
        Way::Command(&["dgst", "-sha256", "chain/root.pem"])
    ),
    case!(
        "command-sign",
        "`openssl dgst -sign` with an RSA-2048 key",
        Way::Command(&[
            "dgst",
            "-sha256",
            "-hex",
            "-sign",
            "rsa2048/key.pem",
            "chain/root.pem"
        ])
    ),
    case!(
        "command-verify",
        "`openssl verify` of a chain of three",
        Way::Command(&[
            "verify",
            "-CAfile",
            "chain/root.pem",
            "-untrusted",
            "chain/intermediate.pem",
            "chain/leaf.pem"
        ])
    ),
    case!(
        "command-keygen",
        "`openssl genpkey` of P-256",
        Way::Command(&[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256"
        ])
    ),
    Case {
        rows: &[
            Row {
                name: "hosts-memory",
                title: "memory of a host that has not signed",
                unit: Unit::Memory,
            },
            Row {
                name: "hosts-memory-signed",
                title: "memory of a host that has signed once",
                unit: Unit::Memory,
            },
            Row {
                name: "hosts-reload",
                title: "a reload, for each host",
                unit: Unit::Cpu,
            },
        ],
        way: Way::Again(Work::Hosts, 1),
    },
    case!(
        "postgresql-rsa2048",
        "PostgreSQL: connection and `select 1`, RSA-2048",
        Way::Service(Service::Postgresql, RSA_2048)
    ),
    case!(
        "postgresql-p256",
        "PostgreSQL: connection and `select 1`, P-256",
        Way::Service(Service::Postgresql, P256)
    ),
    case!(
        "sshd-rsa2048",
        "sshd: connection and key exchange, RSA-2048",
        Way::Service(Service::Sshd, RSA_2048)
    ),
    case!(
        "sshd-p256",
        "sshd: connection and key exchange, P-256",
        Way::Service(Service::Sshd, P256)
    ),
    case!(
        "postfix-rsa2048",
        "Postfix: connection and STARTTLS, RSA-2048",
        Way::Service(Service::Postfix, RSA_2048)
    ),
    case!(
        "postfix-p256",
        "Postfix: connection and STARTTLS, P-256",
        Way::Service(Service::Postfix, P256)
    ),
];

impl Case {
    pub fn name(&self) -> &'static str {
        self.rows[0].name
    }

    /// Whether a name on the command line means a row of this case.
    pub fn is_meant(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.is_meant(name))
    }
}

impl Row {
    /// Whether a name on the command line means this row: the whole name, or its first words.
    pub fn is_meant(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// The case of a program that does nothing.
pub fn start() -> &'static Case {
    &ALL[0]
}

/// The work of the process that is started by this name.
pub fn work(name: &str) -> Option<Work> {
    let case = ALL.iter().find(|case| case.name() == name)?;
    match case.way {
        Way::Again(work, _) | Way::First(work) | Way::Process(work) => Some(work),
        Way::Command(_) | Way::Service(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_row_has_a_name_of_its_own() {
        let names = ALL.iter().flat_map(|case| case.rows).map(|row| row.name);
        let all: Vec<&str> = names.collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|name| name.len() <= 26), "{all:?}");
    }

    #[test]
    fn a_name_means_a_case_or_several() {
        let meant = |name: &str| -> Vec<&str> {
            let cases = ALL.iter().filter(|case| case.is_meant(name));
            cases.map(Case::name).collect()
        };
        assert_eq!(meant("read-p256"), ["read-p256"]);
        assert_eq!(meant("keygen").len(), 3);
        assert_eq!(meant("hosts-reload"), ["hosts-memory"]);
        assert_eq!(meant("context"), ["context", "context-host"]);
        assert!(meant("key").is_empty() && meant("").is_empty());
        assert_eq!(work(start().name()), Some(Work::Start));
        assert_eq!(work("fork"), Some(Work::Fork));
        assert_eq!((work("command-key"), work("frob")), (None, None));
    }
}
