//! The cases: uses of OpenSSL by a program that do not gain by lanes.

use lockstep_engine::{Curve, Size};

use crate::handshakes::Kind;

/// Figures that are measured together, and their means.
pub struct Case {
    /// Its figures; the name of the first one stands for the whole case.
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
    Command(&'static str),
    /// A server that is installed.
    Server(Service, Kind),
}

/// The work of a process.
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

const VERIFY: &str =
    "verify -CAfile chain/root.pem -untrusted chain/intermediate.pem chain/leaf.pem";

macro_rules! unit {
    () => {
        Unit::Cpu
    };
    ($unit:ident) => {
        Unit::$unit
    };
}

macro_rules! cases {
    ($($($name:literal $title:literal $($unit:ident)?),+ => $way:expr;)*) => {
        &[$(Case {
            rows: &[$(Row { name: $name, title: $title, unit: unit!($($unit)?) }),+],
            way: $way,
        }),*]
    };
}

/// Every case, in the order of the table: names and titles of its rows, and the way. Files are
/// named as [`material`](super::material) makes them.
pub const ALL: &[Case] = {
    use Service::*;
    use Way::*;
    use Work::*;
    cases! {
        "start" "a program that starts libssl" => Process(Start);
        "read-rsa2048" "an RSA-2048 key read from PEM" => Again(ReadKey(RSA_2048), 1);
        "read-p256" "a P-256 key read from PEM" => Again(ReadKey(P256), 1);
        "read-certificate" "a certificate read from PEM" => Again(ReadCertificate, 1);
        "read-bundle" "a bundle of certificate authorities read" => Again(ReadBundle, 1);
        "context" "SSL_CTX_new" => Again(Context, 1);
        "context-host" "SSL_CTX_new, with key and chain" => Again(Host, 1);
        "sign-rsa2048" "the first signature of an RSA-2048 key" =>
            Again(FirstSignature(RSA_2048), 1);
        "sign-rsa4096" "the first signature of an RSA-4096 key" =>
            Again(FirstSignature(RSA_4096), 1);
        "sign-p256" "the first signature of a P-256 key" => Again(FirstSignature(P256), 1);
        "verify-chain" "a chain of three verified" => Again(VerifyChain, 1);
        "keygen-p256" "the first P-256 key pair of a process" => First(Generate(Pair::P256));
        "keygen-x25519" "the first X25519 key pair of a process" => First(Generate(Pair::X25519));
        "keygen-rsa2048" "an RSA-2048 key pair" => Again(Generate(Pair::Rsa2048), 10);
        "fork" "a forked child alone" => Again(Fork, 1);
        "forked-sign-rsa2048" "a forked child that signs once, RSA-2048" =>
            Again(ForkedSignature(RSA_2048), 1);
        "forked-sign-rsa4096" "a forked child that signs once, RSA-4096" =>
            Again(ForkedSignature(RSA_4096), 1);
        "forked-sign-p256" "a forked child that signs once, P-256" =>
            Again(ForkedSignature(P256), 1);
        "forked-handshake-rsa2048" "a handshake in a forked child, RSA-2048" =>
            Again(ForkedHandshake(RSA_2048), 1);
        "forked-handshake-p256" "a handshake in a forked child, P-256" =>
            Again(ForkedHandshake(P256), 1);
        "process-handshake-rsa2048" "a handshake in a new process, RSA-2048" =>
            Process(Inetd(RSA_2048));
        "process-handshake-p256" "a handshake in a new process, P-256" => Process(Inetd(P256));
        "command-version" "`openssl version`" => Command("version");
        "command-key" "`openssl pkey` with an RSA-2048 key" =>
            Command("pkey -noout -in rsa2048/key.pem");
        "command-certificate" "`openssl x509` with a certificate" =>
            Command("x509 -noout -in rsa2048/certificate.pem");
        "command-digest" "`openssl dgst` of a small file" => Command("dgst -sha256 chain/root.pem");
        "command-sign" "`openssl dgst -sign` with an RSA-2048 key" =>
            Command("dgst -sha256 -hex -sign rsa2048/key.pem chain/root.pem");
        "command-verify" "`openssl verify` of a chain of three" =>
            Command(VERIFY);
        "command-keygen" "`openssl genpkey` of P-256" =>
            Command("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256");
        "hosts-memory" "memory of a host that has not signed" Memory,
        "hosts-memory-signed" "memory of a host that has signed once" Memory,
        "hosts-reload" "a reload, for each host" => Again(Hosts, 1);
        "postgresql-rsa2048" "PostgreSQL: connection and `select 1`, RSA-2048" =>
            Server(Postgresql, RSA_2048);
        "postgresql-p256" "PostgreSQL: connection and `select 1`, P-256" =>
            Server(Postgresql, P256);
        "sshd-rsa2048" "sshd: connection and key exchange, RSA-2048" => Server(Sshd, RSA_2048);
        "sshd-p256" "sshd: connection and key exchange, P-256" => Server(Sshd, P256);
        "postfix-rsa2048" "Postfix: connection and STARTTLS, RSA-2048" => Server(Postfix, RSA_2048);
        "postfix-p256" "Postfix: connection and STARTTLS, P-256" => Server(Postfix, P256);
    }
};

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
        Way::Command(_) | Way::Server(..) => None,
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
