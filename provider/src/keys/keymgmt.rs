//! Key management: OpenSSL's own functions, with wrappers around the functions that make key data.
//!
//! Key data comes into being by import, generation, load and duplication. After each, the wrapped
//! function lets the new object compute on lanes; nothing else differs from OpenSSL's own.

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
    /// An object is adopted when one of these parts was put into it.
    const ADOPTED_WITH: c_int;

    /// Whether keys may be put into this object, which [`New`] has made. Otherwise libcrypto leaves
    /// a key with the provider that has it, and its operations too.
    fn is_fit(_key: &KeyData<Self>) -> bool {
        true
    }

    /// Whether a fresh copy of an object that may have been used already is adopted, and not the
    /// object itself.
    fn is_copied(key: &KeyData<Self>) -> bool;

    /// Prepares an object that [`New`] has just made, if that must be before its first use.
    fn prepare(_key: &OwnedKey<Self>) {}

    /// Lets an object compute on lanes, if they can serve it. Called again whenever it was filled
    /// again. Nobody else uses it, since it is being made or filled.
    fn adopt(key: &KeyData<Self>);
}

/// A new key of OpenSSL's with the parts `selection` of `from`.
pub fn copy<K: Functions>(from: &KeyData<K>, selection: c_int) -> Option<OwnedKey<K>> {
    let copy: OwnedKey<K> = New::pass(families::families()?.provctx())?;
    let mut receive = |params: Params<'_>| Import::pass(&*copy, selection, params);
    let copied = Export::pass(from, selection, Receiver::new(&mut receive));
    (copied == 1).then_some(copy)
}

/// Another reference to what `key` refers to, if that is one.
pub fn duplicate_reference<K: Referable>(key: &KeyData<K>) -> Option<Option<OwnedKey<K>>> {
    let referent = K::referent(key)?;
    let copy = copy(key, select::PUBLIC);
    Some(copy.and_then(|mut copy| K::refer(&mut copy, referent).ok().map(|()| copy)))
}

/// Reads an octet string of a key that fills `bytes` exactly; false if the key has no such string.
pub fn read<K: Functions>(key: &KeyData<K>, name: &CStr, bytes: &mut [u8]) -> bool {
    let count = bytes.len();
    let mut wanted = List::<2>::new().room(name, bytes);
    GetParams::pass(key, wanted.as_params_mut()) == 1 && wanted.returned(0) == count
}

/// A dispatch table in which `replaced` stands for OpenSSL's own functions with the same ids. Ids
/// that its table lacks are not added.
pub fn overlaid(stock: &[Dispatch], replaced: &[Dispatch]) -> Terminated<'static, Dispatch> {
    let ours = |entry: &Dispatch| replaced.iter().find(|ours| ours.id == entry.id).copied();
    let mut table: Vec<Dispatch> = stock
        .iter()
        .map(|entry| ours(entry).unwrap_or(*entry))
        .collect();
    table.push(Dispatch::END);
    Terminated::new(Vec::leak(table))
}

/// Says that an operation stays with the default provider for a function in its table.
pub fn unknown(id: c_int) -> String {
    format!(
        "this OpenSSL has a function for it (number {id}) that this version of lockstep does not know; a \
         later version may"
    )
}

/// The wrapper of the function that generates key data, where OpenSSL's own generates it.
pub fn generator<K: Adoptable>() -> Dispatch {
    Gen::entry(generate::<K>)
}

/// The wrappers of the functions that make key data in other ways, and of those that tell
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
/// made and may have used already; libcrypto passes such to its own default provider only. That one
/// stays as it is.
fn new_ex<K: Adoptable>(provctx: ProvCtx, params: Params<'_>) -> Option<OwnedKey<K>> {
    let key = NewEx::pass(provctx, params)?;
    if params.is_empty() {
        K::prepare(&key);
    }
    Some(key)
}

/// `OSSL_FUNC_keymgmt_import`: the way every key decoded elsewhere comes to us.
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

/// `OSSL_FUNC_keymgmt_load`: our own decoders have made references ready.
fn load<K: Adoptable>(reference: Bytes<'_>) -> Option<OwnedKey<K>> {
    let loaded = Load::pass::<K>(reference)?;
    match K::referent(&loaded) {
        Some(_) => Some(loaded),
        None => take_over(Some(loaded)),
    }
}

/// `OSSL_FUNC_keymgmt_dup`: where objects cannot be adopted in place, by export and import, because
/// OpenSSL's own function refuses an RSA object with a method of another's.
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

/// A copy of `from` that computes on lanes.
fn adopted_copy<K: Adoptable>(from: &KeyData<K>, selection: c_int) -> Option<OwnedKey<K>> {
    let key = copy(from, selection)?;
    // `copy` made it, and nothing has computed with it.
    K::prepare(&key);
    K::adopt(&key);
    Some(key)
}

/// Takes over key data that a function of OpenSSL's has just made: it is adopted, or an adopted
/// copy replaces it. What is unfit stays as it is.
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
