//! Parameters that servers and clients share, and the two sides of the comparison.

use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use openssl::ssl::SslVersion;

/// With or without the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Stock,
    Lockstep,
}

impl Side {
    pub const ALL: [Side; 2] = [Side::Stock, Side::Lockstep];

    pub fn name(self) -> &'static str {
        match self {
            Side::Stock => "stock",
            Side::Lockstep => "lockstep",
        }
    }

    /// In the legends of plots.
    pub fn label(self) -> &'static str {
        match self {
            Side::Stock => "OpenSSL alone",
            Side::Lockstep => "lockstep",
        }
    }
}

/// The version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Tls12,
    Tls13,
}

impl Version {
    pub const ALL: [Version; 2] = [Version::Tls12, Version::Tls13];

    pub fn name(self) -> &'static str {
        match self {
            Version::Tls12 => "1.2",
            Version::Tls13 => "1.3",
        }
    }

    pub fn of_libssl(self) -> SslVersion {
        match self {
            Version::Tls12 => SslVersion::TLS1_2,
            Version::Tls13 => SslVersion::TLS1_3,
        }
    }

    /// As all configuration files have it.
    pub fn of_servers(self) -> &'static str {
        match self {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }
}

impl ValueEnum for Version {
    fn value_variants<'a>() -> &'a [Version] {
        &Version::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// The group of the key agreement, by a name that OpenSSL may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    name: String,
    of_openssl: String,
}

impl Group {
    /// Names as OpenSSL spells them. Versions before 3.5 tell upper from lower case, and users need
    /// not.
    const SPELT: [&str; 17] = [
        "X25519",
        "X448",
        "P-256",
        "P-384",
        "P-521",
        "ffdhe2048",
        "ffdhe3072",
        "ffdhe4096",
        "ffdhe6144",
        "ffdhe8192",
        "X25519MLKEM768",
        "SecP256r1MLKEM768",
        "SecP384r1MLKEM1024",
        "MLKEM512",
        "MLKEM768",
        "MLKEM1024",
        "curveSM2",
    ];

    /// As the command line and the report have it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn of_openssl(&self) -> &str {
        &self.of_openssl
    }

    /// Whether it holds a key encapsulation, which TLS 1.2 and OpenSSL before 3.5 lack.
    pub fn encapsulates(&self) -> bool {
        self.name.contains("mlkem")
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Group, String> {
        // It goes into the configuration files of servers.
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || !text.chars().all(is_name) || text.starts_with('-') {
            return Err(
                "it takes the name of one group, as x25519, p256, p384 or x25519mlkem768"
                    .to_owned(),
            );
        }
        let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
        let mut spelt = Group::SPELT.into_iter();
        let spelt = spelt.find(|spelt| plain(spelt) == plain(text));
        Ok(Group {
            name: plain(text),
            of_openssl: spelt.unwrap_or(text).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_names_that_openssl_has() {
        for (text, name, of_openssl) in [
            ("x25519", "x25519", "X25519"),
            ("p256", "p256", "P-256"),
            ("P-384", "p384", "P-384"),
            ("x25519mlkem768", "x25519mlkem768", "X25519MLKEM768"),
            (
                "SECP256R1MLKEM768",
                "secp256r1mlkem768",
                "SecP256r1MLKEM768",
            ),
            (
                "brainpoolP256r1tls13",
                "brainpoolp256r1tls13",
                "brainpoolP256r1tls13",
            ),
        ] {
            let group: Group = text.parse().unwrap();
            assert_eq!((group.name(), group.of_openssl()), (name, of_openssl));
            // The embedded server gets OpenSSL's name, and reads it back.
            assert_eq!(group.of_openssl().parse::<Group>().unwrap(), group);
            assert_eq!(group.encapsulates(), name.contains("mlkem"));
        }
        for bad in ["", "x25519:p256", "a b", "p256;\n", "-P", "P\u{e9}"] {
            assert!(
                bad.parse::<Group>().unwrap_err().contains("one group"),
                "{bad}"
            );
        }
    }
}
