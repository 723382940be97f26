//! Look-ups that every handshake needs, made before a server forks.
//!
//! libcrypto makes the methods of all providers for an operation when a program first asks for one
//! of them. A server that forks for each connection, as PostgreSQL does, never asks in its parent
//! for a signature or a key exchange, so each child would make them all. But the parent makes a
//! context of TLS, and then libssl asks for our groups. At that moment the module asks libcrypto
//! for the methods that a handshake will need, once for each library context. In other programs
//! the look-ups happen only a little earlier than otherwise.

use crate::ffi::{self, Group, LibCtx, ProvCtx, Text};
use crate::host::instance;

/// Makes the look-ups of a handshake when an application first asks for groups of TLS. `provctx` is
/// the context of the instance that was asked.
pub fn look_up(provctx: ProvCtx) {
    if Group::Fetches.lacks().is_none()
        && let Some(library) = instance::library_once(provctx)
    {
        fetch(library);
    }
}

/// Looks up the methods. The caller has not asked for them, so their errors are removed from its
/// queue.
fn fetch(library: &LibCtx) {
    ffi::ERR_set_mark();
    drop(ffi::EVP_SIGNATURE_fetch(library, Text::new(c"RSA"), None));
    drop(ffi::EVP_KEYEXCH_fetch(library, Text::new(c"X25519"), None));
    drop(ffi::EVP_KDF_fetch(library, Text::new(c"TLS13-KDF"), None));
    drop(ffi::EVP_MAC_fetch(library, Text::new(c"HMAC"), None));
    ffi::ERR_pop_to_mark();
}
