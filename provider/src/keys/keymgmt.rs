//! Key management: OpenSSL's own functions, with wrappers around the functions that make key data.
//!
//! Import, generation, load and duplication make key data. After each of them, the wrapped function
//! lets the new object compute on lanes. Nothing else differs from OpenSSL's own functions.

use std::ffi::{CStr, c_int};

use crate::daemon::reference::{self, Referable};
use crate::ffi::keymgmt::{Dup, Export, Gen, GetParams, Import, Load, New, NewEx};
use crate::ffi::{
    Bytes, Dispatch, Functions, KeyData, List, OwnedKey, Params, Progress, ProvCtx, Receiver,
    StockContext, Terminated, select,
};
use crate::stock::families;

/// A key type whose key objects can be made to compute on lanes.
pub trait Adoptable: Referable {
    /// The parts of a key (bits of `selection`). After an import of one of them, the object is
    /// [adopted](Adoptable::adopt).
    const ADOPTED_WITH: c_int;

    /// Returns whether keys may be put into this object, which [`New`] has made. If they may not,
    /// libcrypto leaves a key and its operations with the provider that has the key.
    fn is_fit(_key: &KeyData<Self>) -> bool {
        true
    }

    /// Returns whether an adopted copy replaces this object, because the object may have been used
    /// already.
    fn is_copied(key: &KeyData<Self>) -> bool;

    /// Prepares an object that [`New`] has just made, if this must be done before its first use.
    fn prepare(_key: &OwnedKey<Self>) {}

    /// Lets an object compute on lanes, if they can serve it. It is called again each time the
    /// object was filled. No other thread uses the object then.
    fn adopt(key: &KeyData<Self>);
}

/// Returns a new key of OpenSSL's with the parts `selection` of `from`.
pub fn copy<K: Functions>(from: &KeyData<K>, selection: c_int) -> Option<OwnedKey<K>> {
    let copy: OwnedKey<K> = New::pass(families::families()?.provctx())?;
    let mut receive = |params: Params<'_>| Import::pass(&*copy, selection, params);
    let copied = Export::pass(from, selection, Receiver::new(&mut receive));
    (copied == 1).then_some(copy)
}

/// Duplicates `key` if it is a reference; the inner None means that the duplication failed.
pub fn duplicate_reference<K: Referable>(key: &KeyData<K>) -> Option<Option<OwnedKey<K>>> {
    let referent = K::referent(key)?;
    let copy = copy(key, select::PUBLIC);
    Some(copy.and_then(|mut copy| K::refer(&mut copy, referent).ok().map(|()| copy)))
}

/// Reads an octet string of a key that fills `bytes` exactly; returns false if the key has no such
/// string.
pub fn read<K: Functions>(key: &KeyData<K>, name: &CStr, bytes: &mut [u8]) -> bool {
    let count = bytes.len();
    let mut wanted = List::<2>::new().room(name, bytes);
    GetParams::pass(key, wanted.as_params_mut()) == 1 && wanted.returned(0) == count
}

/// Returns a dispatch table in which `replaced` stands for OpenSSL's own functions with the same
/// ids. Ids that its table lacks are not added.
pub fn overlaid(stock: &[Dispatch], replaced: &[Dispatch]) -> Terminated<'static, Dispatch> {
    let ours = |entry: &Dispatch| replaced.iter().find(|ours| ours.id == entry.id).copied();
    let mut table: Vec<Dispatch> = stock
        .iter()
        .map(|entry| ours(entry).unwrap_or(*entry))
        .collect();
    table.push(Dispatch::END);
    Terminated::new(Vec::leak(table))
}

/// Returns the reason why an operation stays with the default provider: an unknown function in its
/// table.
pub fn unknown(id: c_int) -> String {
    format!(
        "this OpenSSL has a function for it (number {id}) that this version of lockstep does not know; a \
         later version may"
    )
}

/// Returns the wrapper of the function that generates key data, for key types that OpenSSL
/// generates.
pub fn generator<K: Adoptable>() -> Dispatch {
    Gen::entry(generate::<K>)
}

/// Returns the wrappers of the other functions that make key data, and of the functions that tell
/// references from public keys.
pub fn wrappers<K: Adoptable>() -> Vec<Dispatch> {
    let mut wrappers = vec![
        New::entry(new::<K>),
        NewEx::entry(new_ex::<K>),
        Import::entry(import::<K>),
        Load::entry(load::<K>),
        Dup::entry(duplicate::<K>),
    ];
    wrappers.extend(reference::wrappers::<K>());
    wrappers
}

/// `OSSL_FUNC_keymgmt_new`: the object may be used before it has a private key, so it is prepared
/// now.
fn new<K: Adoptable>(provctx: ProvCtx) -> Option<OwnedKey<K>> {
    let key = New::pass(provctx)?;
    K::prepare(&key);
    Some(key)
}

/// `OSSL_FUNC_keymgmt_new_ex` (OpenSSL 4.0): parameters can name an object that the program has
/// made and may have used already. libcrypto passes such an object to its own default provider
/// only, and it stays unchanged.
fn new_ex<K: Adoptable>(provctx: ProvCtx, params: Params<'_>) -> Option<OwnedKey<K>> {
    let key = NewEx::pass(provctx, params)?;
    if params.is_empty() {
        K::prepare(&key);
    }
    Some(key)
}

/// `OSSL_FUNC_keymgmt_import`: takes every key that another provider has decoded.
fn import<K: Adoptable>(key: Option<&KeyData<K>>, selection: c_int, params: Params<'_>) -> c_int {
    let Some(key) = key.filter(|key| K::is_fit(key)) else {
        return 0;
    };
    let imported = Import::pass(key, selection, params);
    if imported == 1 && selection & K::ADOPTED_WITH != 0 {
        K::adopt(key);
    }
    imported
}

/// `OSSL_FUNC_keymgmt_gen`
fn generate<K: Adoptable>(
    generation: Option<&mut StockContext<K>>,
    progress: Progress<'_>,
) -> Option<OwnedKey<K>> {
    take_over(Gen::pass(&*generation?, progress))
}

/// `OSSL_FUNC_keymgmt_load`: a key of the daemon's, from the module's decoder, is not adopted.
fn load<K: Adoptable>(reference: Bytes<'_>) -> Option<OwnedKey<K>> {
    let loaded = Load::pass::<K>(reference)?;
    match K::referent(&loaded) {
        Some(_) => Some(loaded),
        None => take_over(Some(loaded)),
    }
}

/// `OSSL_FUNC_keymgmt_dup`. An adopted copy is made by export and import: OpenSSL's own function
/// refuses an RSA object whose method is not OpenSSL's.
fn duplicate<K: Adoptable>(key: Option<&KeyData<K>>, selection: c_int) -> Option<OwnedKey<K>> {
    let key = key?;
    if let Some(duplicate) = duplicate_reference(key) {
        return duplicate;
    }
    match K::is_copied(key) {
        true => adopted_copy(key, selection),
        false => take_over(Dup::pass(key, selection)),
    }
}

/// Returns a copy of `from` that computes on lanes.
fn adopted_copy<K: Adoptable>(from: &KeyData<K>, selection: c_int) -> Option<OwnedKey<K>> {
    let key = copy(from, selection)?;
    // `copy` made it, and nothing has computed with it.
    K::prepare(&key);
    K::adopt(&key);
    Some(key)
}

/// Takes over key data that a function of OpenSSL has just made: it is adopted, or an adopted copy
/// replaces it. Unfit key data stays as it is.
pub fn take_over<K: Adoptable>(made: Option<OwnedKey<K>>) -> Option<OwnedKey<K>> {
    let made = made?;
    if !K::is_fit(&made) {
        return Some(made);
    }
    if K::is_copied(&made) {
        return adopted_copy(&made, select::ALL);
    }
    K::adopt(&made);
    Some(made)
}
