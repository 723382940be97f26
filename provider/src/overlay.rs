//! The tables that the module offers: the default provider's, with a few functions wrapped.
//!
//! For RSA, RSA-PSS and EC, only the functions that make keys differ from OpenSSL's own
//! ([`keymgmt`], [`generation`]): each leaves behind an object with the module's method. The
//! constructor of signature contexts removes the clauses that name this module from the caller's
//! property query. Everything else, every RSA and ECDSA signature function included, is OpenSSL's
//! own function, called by libcrypto directly. X25519 exchanges ([`xdh`]), signatures of Ed25519
//! ([`eddsa`]) and ML-DSA ([`ml_dsa`]), and TLS 1.3's key derivation ([`tls13_kdf`]) have the
//! module's contexts around OpenSSL's own. AES-GCM ([`aes_gcm`]) has contexts of its own.
//!
//! [`keymgmt`]: crate::keys::keymgmt
//! [`generation`]: crate::keys::generation
//! [`xdh`]: crate::keys::xdh
//! [`eddsa`]: crate::keys::eddsa
//! [`ml_dsa`]: crate::keys::ml_dsa
//! [`tls13_kdf`]: crate::tls13_kdf
//! [`aes_gcm`]: crate::aes_gcm

mod capabilities;
mod offers;
mod tables;

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::ffi::{Algorithm, Place, ProvCtx, Terminated, operation};
use crate::host::shared_memory;
use crate::keys::ec_method;
use crate::keys::rsa_method;

pub use capabilities::capabilities;

use capabilities::TAKES_ANY;
use tables::{LACKS_GCM, tables};

/// `OSSL_FUNC_provider_query_operation`
pub fn query_operation(
    _provctx: ProvCtx,
    operation_id: c_int,
    no_cache: Place<'_, c_int>,
) -> Terminated<'static, Algorithm> {
    no_cache.put(0);
    let Some(tables) = tables() else {
        return Terminated::NONE;
    };
    Terminated::new(match operation_id {
        operation::CIPHER => &tables.cipher,
        operation::KDF => &tables.kdf,
        operation::KEYMGMT => &tables.keymgmt,
        operation::KEYEXCH => &tables.keyexch,
        operation::SIGNATURE => &tables.signature,
        operation::ASYM_CIPHER => &tables.asym_cipher,
        operation::KEM => &tables.kem,
        operation::ENCODER => &tables.encoder,
        operation::DECODER => &tables.decoder,
        _ => return Terminated::NONE,
    })
}

/// Makes the tables and methods of the process, for an OpenSSL of this version. The first loading
/// does this, so that no two threads make them at the same time later.
pub fn prepare(version: Option<String>) {
    let is_since = |first| version.as_ref().map(|version| is_since(version, first));
    TAKES_ANY.store(is_since([3, 5]) == Some(true), Ordering::Relaxed);
    let lacks_gcm = is_since([3, 0]) == Some(true) && is_since([3, 1]) == Some(false);
    LACKS_GCM.store(lacks_gcm, Ordering::Relaxed);
    let _ = tables();
    let _ = rsa_method::method();
    let _ = ec_method::method();
}

/// Returns whether a version, as 3.5.1, is this one or later.
fn is_since(version: &str, first: [u32; 2]) -> bool {
    let numbers = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    numbers.take(2).ge(first)
}

/// Returns the operations that stay with the default provider, a line for each: its name, a colon
/// and the reason. The text is empty if all are accelerated.
pub fn unaccelerated() -> String {
    let Some(tables) = tables() else {
        let reason = shared_memory::reason();
        let reason = reason.unwrap_or("OpenSSL's default provider cannot be loaded");
        return format!("all operations: {reason}");
    };
    let lines = tables
        .unaccelerated
        .iter()
        .map(|(operation, reason)| format!("{operation}: {reason}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for since in ["3.5.0", "3.5.7-dev", "3.10.0", "4.0.3", "10.1.0"] {
            assert!(is_since(since, [3, 5]), "{since}");
        }
        for before in ["3.0.19", "3.4.4", "1.1.1w", "", "unknown"] {
            assert!(!is_since(before, [3, 5]), "{before}");
        }
    }
}
