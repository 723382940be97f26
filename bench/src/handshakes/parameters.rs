//! What servers and clients agree on, and the two sides that are compared.

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

/// The group of the key agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    X25519,
    P256,
    P384,
}

impl Group {
    pub const ALL: [Group; 3] = [Group::X25519, Group::P256, Group::P384];

    pub fn name(self) -> &'static str {
        match self {
            Group::X25519 => "x25519",
            Group::P256 => "p256",
            Group::P384 => "p384",
        }
    }

    pub fn of_openssl(self) -> &'static str {
        match self {
            Group::X25519 => "X25519",
            Group::P256 => "P-256",
            Group::P384 => "P-384",
        }
    }
}

impl ValueEnum for Group {
    fn value_variants<'a>() -> &'a [Group] {
        &Group::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}
