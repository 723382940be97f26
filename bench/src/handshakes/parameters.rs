//! Parameters that servers and clients share, and the two sides of the comparison.

use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use openssl::ssl::SslVersion;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::kx_group;

use super::hybrid;

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

/// A group of the key agreement that the clients have.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// As the command line and the report have it.
    pub name: &'static str,
    pub of_openssl: &'static str,
    pub of_rustls: &'static dyn SupportedKxGroup,
}

static GROUPS: [Group; 6] = [
    group("x25519", "X25519", kx_group::X25519),
    group("p256", "P-256", kx_group::SECP256R1),
    group("p384", "P-384", kx_group::SECP384R1),
    group("x25519mlkem768", "X25519MLKEM768", &hybrid::X25519MLKEM768),
    group(
        "secp256r1mlkem768",
        "SecP256r1MLKEM768",
        &hybrid::SECP256R1MLKEM768,
    ),
    group(
        "secp384r1mlkem1024",
        "SecP384r1MLKEM1024",
        &hybrid::SECP384R1MLKEM1024,
    ),
];

const fn group(
    name: &'static str,
    of_openssl: &'static str,
    of_rustls: &'static dyn SupportedKxGroup,
) -> Group {
    Group {
        name,
        of_openssl,
        of_rustls,
    }
}

impl Group {
    /// Whether it holds a key encapsulation, which TLS 1.2 and OpenSSL before 3.5 lack.
    pub fn encapsulates(self) -> bool {
        self.name.contains("mlkem")
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Group, String> {
        let plain = text.replace('-', "").to_ascii_lowercase();
        let known = GROUPS.iter().find(|group| group.name == plain);
        known.copied().ok_or_else(|| {
            let names = GROUPS.map(|group| group.name);
            format!("the clients have {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_names_that_openssl_and_the_clients_have() {
        for group in GROUPS {
            // The embedded server gets OpenSSL's name, and reads it back.
            for name in [group.name, group.of_openssl] {
                let found: Group = name.parse().unwrap();
                assert_eq!(found.of_openssl, group.of_openssl);
            }
            let of_rustls = format!("{:?}", group.of_rustls.name()).to_ascii_lowercase();
            // rustls has no name for that number.
            let of_rustls = of_rustls.replace("namedgroup(0x11ed)", "secp384r1mlkem1024");
            let short = |name: &str| {
                let name = name.replace("secp256r1", "p256");
                name.replace("secp384r1", "p384")
            };
            assert_eq!(short(group.name), short(&of_rustls));
            assert_eq!(group.encapsulates(), of_rustls.contains("mlkem"));
        }
        for bad in ["", "x25519:p256", "a b", "p256;\n", "-P", "P\u{e9}", "x448"] {
            let why = bad.parse::<Group>().unwrap_err();
            assert!(why.contains("x25519, p256, p384"), "{bad}: {why}");
        }
    }
}
