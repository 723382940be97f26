//! References: keys whose private parts the key daemon holds.
//!
//! The file of a [reference](lockstep_remote::Reference) stands where a program expects a private
//! key in PEM. A decoder for each key type ([`decoder`](crate::daemon::decoder)) reads it, and
//! makes a key of OpenSSL's own type with the public parts alone. Such a key *refers* to the
//! daemon's key: it says that it has private parts, does not export them, and its private
//! operations are [asked of the daemon](crate::daemon::key).

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use crate::daemon::key::Key;
use crate::ffi::keymgmt::{Export, Has, Import, New};
use crate::ffi::{
    self, Dispatch, Functions, KeyData, Owned, OwnedKey, Params, Passed as _, Pkey, ProvCtx,
    Receiver, Text, select,
};
use crate::stock::families::Named;
use crate::stock::stock;

/// Reason for which a key cannot be a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreferable {
    /// The program has made another method the default for such keys, its own or an engine's. That
    /// method would compute with private parts, which are not here.
    OtherMethod,
    /// The daemon does not serve such keys.
    Unserved,
}

impl fmt::Display for Unreferable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreferable::OtherMethod => {
                "the key daemon has the key, and in this program a method of its own computes with \
                 all keys of this type (RSA_set_default_method, EC_KEY_set_default_method, or an \
                 engine); have the program leave that out, or give it the key in place of the \
                 reference"
            }
            Unreferable::Unserved => "it has a type or size that the key daemon does not serve",
        })
    }
}

/// A key type whose keys can be references.
pub trait Referable: Functions + Sized {
    /// Makes a key that has public parts alone, and that nobody has used, a reference.
    fn refer(key: &mut OwnedKey<Self>, to: Arc<Key>) -> Result<(), Unreferable>;

    /// Returns the daemon's key, if this key is a reference.
    fn referent(key: &KeyData<Self>) -> Option<Arc<Key>>;

    /// Whether a reference may be exported as a key without its private half. OpenSSL's own private
    /// operations must report an error for such a key.
    const IS_TAKEN_APART: bool = true;

    /// Frees a key and its reference to the daemon's key.
    fn release(key: OwnedKey<Self>) {
        drop(key);
    }
}

/// The public half of a key, as OpenSSL's own type.
pub struct Public(Owned<Pkey>);

impl Public {
    /// Parses a SubjectPublicKeyInfo.
    pub fn parse(bytes: &[u8]) -> Option<Public> {
        let mut start = bytes.as_ptr();
        let length = bytes.len().try_into().ok()?;
        let library = stock()?.library();
        ffi::ERR_set_mark();
        // SAFETY: `start` has `length` bytes. The library context stays as long as the process.
        let key = unsafe {
            ffi::d2i_PUBKEY_ex(
                std::ptr::null_mut(),
                &mut start,
                length,
                library,
                std::ptr::null(),
            )
        };
        ffi::ERR_pop_to_mark();
        key.map(Public)
    }

    /// Returns whether this is a key of type `K`.
    pub fn is<K: Named>(&self) -> bool {
        ffi::EVP_PKEY_is_a(&self.0, Text::new(K::NAME)) == 1
    }

    /// Returns a key with these public parts.
    pub fn key<K: Functions>(&self, provctx: ProvCtx) -> Option<OwnedKey<K>> {
        let key: OwnedKey<K> = New::pass(provctx)?;
        let mut receive = |params: Params<'_>| Import::pass(&*key, select::PUBLIC, params);
        let (callback, arg) = Receiver::new(&mut receive).into_raw();
        // SAFETY: the callback and its argument belong together.
        let copied = unsafe { ffi::EVP_PKEY_export(&self.0, select::PUBLIC, callback, arg) };
        (copied == 1).then_some(key)
    }
}

/// Returns the functions that distinguish references from public keys.
pub fn wrappers<K: Referable>() -> [Dispatch; 2] {
    [Has::entry(has::<K>), Export::entry(export::<K>)]
}

/// `OSSL_FUNC_keymgmt_has`: reports a private key for a reference. Programs that load a private key
/// ask for that.
fn has<K: Referable>(key: Option<&KeyData<K>>, selection: c_int) -> c_int {
    let Some(key) = key else { return 0 };
    let selection = match K::referent(key) {
        Some(_) => selection & !select::PRIVATE_KEY,
        None => selection,
    };
    Has::pass(key, selection)
}

/// `OSSL_FUNC_keymgmt_export`: a reference exports only its public half, even if the caller selects
/// all parts. Programs that take a key apart, or want OpenSSL's old objects, then get a key without
/// private parts. They do not expect a failure, and would read through NULL.
fn export<K: Referable>(
    key: Option<&KeyData<K>>,
    selection: c_int,
    receiver: Receiver<'_>,
) -> c_int {
    let Some(key) = key else { return 0 };
    let is_private = selection & select::PRIVATE_KEY != 0 && K::referent(key).is_some();
    if !is_private {
        return Export::pass(key, selection, receiver);
    }
    let others = selection & !select::PRIVATE_KEY;
    match K::IS_TAKEN_APART && others & select::PUBLIC_KEY != 0 {
        true => Export::pass(key, others, receiver),
        false => 0,
    }
}
