//! The mechanisms, and the groups of TLS 1.3 that they are.

use std::ffi::{CStr, c_int};

use lockstep_engine::Kem;

/// A mechanism as a type, for functions that must know it.
pub trait Mechanism: 'static {
    const KEM: Kem;
    /// OpenSSL's names for it.
    const NAMES: &'static CStr;
}

/// ML-KEM-768 (FIPS 203).
pub struct MlKem768;

impl Mechanism for MlKem768 {
    const KEM: Kem = Kem::MlKem768;
    const NAMES: &'static CStr = c"ML-KEM-768:MLKEM768:id-alg-ml-kem-768:2.16.840.1.101.3.4.4.2";
}

impl MlKem768 {
    /// Its names where OpenSSL has none. Without its TLS group's: to libcrypto `mlkem768` of
    /// oqs-provider is the same name, so libssl would find our keys for that group, and not list
    /// it.
    pub const NAMES_OF_OWN: &'static CStr = c"ML-KEM-768:id-alg-ml-kem-768:2.16.840.1.101.3.4.4.2";
}

/// ML-KEM-768 with X25519.
pub struct X25519MlKem768;

impl Mechanism for X25519MlKem768 {
    const KEM: Kem = Kem::X25519MlKem768;
    const NAMES: &'static CStr = c"X25519MLKEM768";
}

/// ML-KEM-768 with ECDH on P-256.
pub struct SecP256r1MlKem768;

impl Mechanism for SecP256r1MlKem768 {
    const KEM: Kem = Kem::SecP256r1MlKem768;
    const NAMES: &'static CStr = c"SecP256r1MLKEM768";
}

/// What ML-KEM-768 is for: as many bits, and as hard to break as AES-192.
pub const BITS: c_int = 768;
/// See [`BITS`].
pub const SECURITY_BITS: u32 = 192;
/// The same as NIST's category of security, which OpenSSL 4.0 asks for.
pub const SECURITY_CATEGORY: c_int = 3;

/// A group of TLS 1.3.
pub struct TlsGroup {
    /// Its name, which is that of its key type as well.
    pub name: &'static CStr,
    /// Its number in the protocol.
    pub id: u32,
}

/// The groups that OpenSSL lacks before 3.5.
pub const TLS_GROUPS: [TlsGroup; 2] = [
    TlsGroup {
        name: X25519MlKem768::NAMES,
        id: 0x11ec,
    },
    TlsGroup {
        name: SecP256r1MlKem768::NAMES,
        id: 0x11eb,
    },
];
