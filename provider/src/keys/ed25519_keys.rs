//! Keys of Ed25519 that are [references](crate::daemon::reference).
//!
//! OpenSSL's Ed25519 objects have no method that is called when an object is freed. So the module
//! notes which objects are references, from the creation of an object until libcrypto gives it
//! back.

use std::ffi::c_int;
use std::sync::Arc;

use crate::daemon::key::Key;
use crate::daemon::reference::{self, Referable, Unreferable};
use crate::ffi::keymgmt::{Dup, Free};
use crate::ffi::{Dispatch, KeyData, OwnedKey};
use crate::keys::attached::Attached;
use crate::keys::keymgmt;
use crate::stock::families::Ed25519Keys;

/// The daemon's keys, by the references to them.
static REFERENTS: Attached<KeyData<Ed25519Keys>, Arc<Key>> = Attached::new();

/// Returns the functions of key management that replace OpenSSL's own.
pub fn wrappers() -> Vec<Dispatch> {
    let mut wrappers = vec![Free::entry(free), Dup::entry(duplicate)];
    wrappers.extend(reference::wrappers::<Ed25519Keys>());
    wrappers
}

impl Referable for Ed25519Keys {
    /// An export of the private half fails. OpenSSL has no legacy object for such keys that could
    /// take the public half alone, and its own signature reads the private half without checking
    /// that it exists.
    const IS_TAKEN_APART: bool = false;

    fn refer(key: &mut OwnedKey<Ed25519Keys>, to: Arc<Key>) -> Result<(), Unreferable> {
        REFERENTS.put(key, to);
        Ok(())
    }

    fn referent(key: &KeyData<Ed25519Keys>) -> Option<Arc<Key>> {
        REFERENTS.get(key).cloned()
    }

    fn release(mut key: OwnedKey<Ed25519Keys>) {
        REFERENTS.remove(&mut key);
        drop(key);
    }
}

/// `OSSL_FUNC_keymgmt_free`: libcrypto gives a key back once. A context of the module that still
/// uses the key holds a reference of its own to the daemon's key.
fn free(key: Option<OwnedKey<Ed25519Keys>>) {
    if let Some(key) = key {
        Ed25519Keys::release(key);
    }
}

/// `OSSL_FUNC_keymgmt_dup`
fn duplicate(
    key: Option<&KeyData<Ed25519Keys>>,
    selection: c_int,
) -> Option<OwnedKey<Ed25519Keys>> {
    let key = key?;
    keymgmt::duplicate_reference(key).unwrap_or_else(|| Dup::pass(key, selection))
}
