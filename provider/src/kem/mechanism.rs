//! The mechanisms, and their groups of TLS 1.3.

use std::ffi::{CStr, c_int};

use lockstep_engine::{Kem, ParameterSet};

/// A mechanism as a type, for functions that must know it.
pub trait Mechanism: 'static {
    const KEM: Kem;
    /// OpenSSL's names for it.
    const NAMES: &'static CStr;
}

/// Declares mechanisms as types.
macro_rules! mechanisms {
    ($($(#[$doc:meta])* $name:ident = $names:literal;)*) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl Mechanism for $name {
                const KEM: Kem = Kem::$name;
                const NAMES: &'static CStr = $names;
            }
        )*
    };
}

mechanisms! {
    /// ML-KEM-512 (FIPS 203).
    MlKem512 = c"ML-KEM-512:MLKEM512:id-alg-ml-kem-512:2.16.840.1.101.3.4.4.1";
    /// ML-KEM-768.
    MlKem768 = c"ML-KEM-768:MLKEM768:id-alg-ml-kem-768:2.16.840.1.101.3.4.4.2";
    /// ML-KEM-1024.
    MlKem1024 = c"ML-KEM-1024:MLKEM1024:id-alg-ml-kem-1024:2.16.840.1.101.3.4.4.3";
    /// ML-KEM-768 with X25519.
    X25519MlKem768 = c"X25519MLKEM768";
    /// ML-KEM-768 with ECDH on P-256.
    SecP256r1MlKem768 = c"SecP256r1MLKEM768";
    /// ML-KEM-1024 with ECDH on P-384.
    SecP384r1MlKem1024 = c"SecP384r1MLKEM1024";
}

/// Names of ML-KEM if OpenSSL has no ML-KEM. Names of TLS groups, such as `MLKEM768`, are left out:
/// libcrypto ignores case, and oqs-provider has a group `mlkem768`. libssl would find the module's
/// keys for the group of oqs-provider, and would not list the group.
pub const NAMES_OF_OWN: [&CStr; 3] = [
    c"ML-KEM-512:id-alg-ml-kem-512:2.16.840.1.101.3.4.4.1",
    c"ML-KEM-768:id-alg-ml-kem-768:2.16.840.1.101.3.4.4.2",
    c"ML-KEM-1024:id-alg-ml-kem-1024:2.16.840.1.101.3.4.4.3",
];

/// Returns the size of a mechanism as OpenSSL reports it: the size of its ML-KEM.
pub fn bits(kem: Kem) -> c_int {
    match kem.parameter_set() {
        ParameterSet::MlKem512 => 512,
        ParameterSet::MlKem768 => 768,
        ParameterSet::MlKem1024 => 1024,
    }
}

/// Returns the security of a mechanism: the length of an AES key that is as hard to break.
pub fn security_bits(kem: Kem) -> c_int {
    match kem.parameter_set() {
        ParameterSet::MlKem512 => 128,
        ParameterSet::MlKem768 => 192,
        ParameterSet::MlKem1024 => 256,
    }
}

/// Returns NIST's category of security, which OpenSSL 4.0 asks for.
pub fn security_category(kem: Kem) -> c_int {
    match kem.parameter_set() {
        ParameterSet::MlKem512 => 1,
        ParameterSet::MlKem768 => 3,
        ParameterSet::MlKem1024 => 5,
    }
}

/// A group of TLS 1.3.
pub struct TlsGroup {
    /// Its name, which is also the name of its key type.
    pub name: &'static CStr,
    /// Its number in the protocol.
    pub id: u32,
    /// See [`security_bits`].
    pub security_bits: u32,
}

/// The groups that OpenSSL lacks before 3.5.
pub const TLS_GROUPS: [TlsGroup; 3] = [
    TlsGroup {
        name: X25519MlKem768::NAMES,
        id: 0x11ec,
        security_bits: 192,
    },
    TlsGroup {
        name: SecP256r1MlKem768::NAMES,
        id: 0x11eb,
        security_bits: 192,
    },
    TlsGroup {
        name: SecP384r1MlKem1024::NAMES,
        id: 0x11ed,
        security_bits: 256,
    },
];
