//! Keys: OpenSSL's objects, the module's notes about them, and references.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{MlDsa, MlDsaKey, Secret};
use once_cell::race::OnceBox;

use crate::daemon::key::Key;
use crate::daemon::reference::{self, Referable, Unreferable};
use crate::ffi::keymgmt::{Dup, Free, Gen, Has, Import, Load, New, NewEx};
use crate::ffi::{
    Bytes, Dispatch, KeyData, OwnedKey, Params, Progress, ProvCtx, StockContext, name, select,
};
use crate::host::memory;
use crate::keys::attached::Attached;
use crate::keys::keymgmt;
use crate::stock::families::{
    MlDsa44Keys, MlDsa44Signature, MlDsa65Keys, MlDsa65Signature, MlDsa87Keys, MlDsa87Signature,
    Named,
};

/// Keys of one of the sets of parameters.
pub trait Keys: Named + Referable {
    /// The set.
    const SET: MlDsa;
    /// Signatures with such keys.
    type Signature: Named;

    /// Returns the module's notes about the objects.
    fn known() -> &'static Attached<KeyData<Self>, Parts>;
}

macro_rules! sets {
    ($($keys:ident $signature:ident $set:ident;)*) => {
        $(impl Keys for $keys {
            const SET: MlDsa = MlDsa::$set;
            type Signature = $signature;

            fn known() -> &'static Attached<KeyData<Self>, Parts> {
                static KNOWN: Attached<KeyData<$keys>, Parts> = Attached::new();
                &KNOWN
            }
        }

        impl Referable for $keys {
            /// OpenSSL has no legacy object for such keys.
            const IS_TAKEN_APART: bool = false;

            fn refer(key: &mut OwnedKey<$keys>, to: Arc<Key>) -> Result<(), Unreferable> {
                let referent = Some(to);
                Self::known().put(key, Parts { referent, ..Parts::default() });
                Ok(())
            }

            fn referent(key: &KeyData<$keys>) -> Option<Arc<Key>> {
                Self::known().get(key)?.referent.clone()
            }

            fn release(mut key: OwnedKey<$keys>) {
                Self::known().remove(&mut key);
                drop(key);
            }
        })*
    };
}

sets! {
    MlDsa44Keys MlDsa44Signature MlDsa44;
    MlDsa65Keys MlDsa65Signature MlDsa65;
    MlDsa87Keys MlDsa87Signature MlDsa87;
}

/// The module's notes about a key object, from the creation of the object.
#[derive(Default)]
pub struct Parts {
    /// The key for the engine, read at its first use; None inside if it cannot be read.
    key: OnceBox<Option<Arc<MlDsaKey>>>,
    /// Whether OpenSSL has put another key into the object since `key` was read.
    is_changed: AtomicBool,
    /// The daemon's key, if the object is a reference.
    referent: Option<Arc<Key>>,
}

/// Returns the key of an object for the engine, with its private half if it has one.
pub fn key_of<K: Keys>(object: &KeyData<K>) -> Option<Arc<MlDsaKey>> {
    let parts = K::known().get(object)?;
    if parts.is_changed.load(Ordering::Acquire) {
        return None;
    }
    // An operation with a reference could not be left to OpenSSL.
    if parts.referent.is_none() && parts.key.get().is_none() && memory::is_scarce() {
        return None;
    }
    let key = parts
        .key
        .get_or_init(|| Box::new(read::<K>(object).map(Arc::new)));
    key.clone()
}

/// Reads a key. OpenSSL writes the private half to memory for keys; a public key needs no such
/// memory.
fn read<K: Keys>(object: &KeyData<K>) -> Option<MlDsaKey> {
    let mut public = vec![0; K::SET.public_key_bytes()];
    if !keymgmt::read(object, name::PKEY_PARAM_PUB_KEY, &mut public) {
        return None;
    }
    let private = || {
        Secret::filled(K::SET.private_key_bytes(), |bytes| {
            keymgmt::read(object, name::PKEY_PARAM_PRIV_KEY, bytes)
        })
    };
    let is_private = Has::pass(object, select::PRIVATE_KEY) == 1;
    MlDsaKey::new(K::SET, &public, is_private.then(private).flatten()).ok()
}

/// Returns the functions of key management that replace OpenSSL's own.
pub fn key_wrappers<K: Keys>() -> Vec<Dispatch> {
    let mut wrappers = vec![
        New::entry(new::<K>),
        NewEx::entry(new_ex::<K>),
        Import::entry(import::<K>),
        Gen::entry(generate::<K>),
        Load::entry(load::<K>),
        Dup::entry(duplicate::<K>),
        Free::entry(free::<K>),
    ];
    wrappers.extend(reference::wrappers::<K>());
    wrappers
}

/// Adds a place for notes to an object that OpenSSL has made.
fn noted<K: Keys>(made: Option<OwnedKey<K>>) -> Option<OwnedKey<K>> {
    let mut object = made?;
    K::known().put(&mut object, Parts::default());
    Some(object)
}

/// `OSSL_FUNC_keymgmt_new`
fn new<K: Keys>(provctx: ProvCtx) -> Option<OwnedKey<K>> {
    noted(New::pass(provctx))
}

/// `OSSL_FUNC_keymgmt_new_ex` (OpenSSL 4.0)
fn new_ex<K: Keys>(provctx: ProvCtx, params: Params<'_>) -> Option<OwnedKey<K>> {
    noted(NewEx::pass(provctx, params))
}

/// `OSSL_FUNC_keymgmt_import`: every key that was decoded elsewhere comes this way.
fn import<K: Keys>(key: Option<&KeyData<K>>, selection: c_int, params: Params<'_>) -> c_int {
    let Some(key) = key else { return 0 };
    let imported = Import::pass(key, selection, params);
    if let Some(parts) = K::known().get(key)
        && parts.key.get().is_some()
    {
        parts.is_changed.store(true, Ordering::Release);
    }
    imported
}

/// `OSSL_FUNC_keymgmt_gen`
fn generate<K: Keys>(
    generation: Option<&mut StockContext<K>>,
    progress: Progress<'_>,
) -> Option<OwnedKey<K>> {
    noted(Gen::pass(&*generation?, progress))
}

/// `OSSL_FUNC_keymgmt_load`: a reference, from the module's own decoder, has its notes already.
fn load<K: Keys>(reference: Bytes<'_>) -> Option<OwnedKey<K>> {
    let loaded = Load::pass::<K>(reference)?;
    match K::referent(&loaded) {
        Some(_) => Some(loaded),
        None => noted(Some(loaded)),
    }
}

/// `OSSL_FUNC_keymgmt_dup`
fn duplicate<K: Keys>(key: Option<&KeyData<K>>, selection: c_int) -> Option<OwnedKey<K>> {
    let key = key?;
    let duplicate = keymgmt::duplicate_reference(key);
    duplicate.unwrap_or_else(|| noted(Dup::pass(key, selection)))
}

/// `OSSL_FUNC_keymgmt_free`: libcrypto gives a key back once. A context of the module that still
/// uses the key has its own share of the engine's key.
fn free<K: Keys>(key: Option<OwnedKey<K>>) {
    if let Some(key) = key {
        K::release(key);
    }
}
