//! Generation of EC and X25519 keys, from the engine's pool of key pairs.
//!
//! The module's generation context holds two contexts of OpenSSL: one as the caller asked for it,
//! and one that makes a *blank*, an object with everything except the key pair. A pair of the pool
//! goes into the blank. If the pool has none, or the pair must follow from a given secret, the
//! other context generates. If neither case can occur, only the blank's context is made: to set up
//! a curve costs more than a pair of the pool.

use std::ffi::c_int;
use std::ops::RangeInclusive;

use lockstep_engine::{KeyKind, Keypair};

use crate::ffi::keymgmt::{
    Gen, GenCleanup, GenGetParams, GenGettableParams, GenInit, GenSetParams, GenSetTemplate,
    GenSettableParams, Import,
};
use crate::ffi::{
    Ctx, Dispatch, Functions, KeyData, List, OwnedKey, Params, ParamsMut, Progress, ProvCtx,
    StockContext, StockCtx, name, select,
};
use crate::host::memory;
use crate::keys::ec_method;
use crate::keys::keymgmt;
use crate::keys::number;
use crate::route;
use crate::stock::families::{EcKeys, X25519Keys};

/// A key type whose key pairs the engine can make.
pub trait Generated: Functions + Sized {
    /// Whether `fill` falls back to OpenSSL by itself. If such a `fill` fails, generation fails.
    const FILLS_ALWAYS: bool;

    /// Puts a new key pair into a blank. Returns false if there is no pair; the caller then drops
    /// the blank.
    fn fill(blank: &OwnedKey<Self>) -> bool;

    /// Takes over an object that OpenSSL has generated.
    fn take_over(made: Option<OwnedKey<Self>>) -> Option<OwnedKey<Self>>;
}

impl Generated for EcKeys {
    const FILLS_ALWAYS: bool = true;

    fn fill(blank: &OwnedKey<EcKeys>) -> bool {
        // The method of the object makes the pair, the module's or OpenSSL's own.
        ec_method::generate(blank)
    }

    fn take_over(made: Option<OwnedKey<EcKeys>>) -> Option<OwnedKey<EcKeys>> {
        keymgmt::take_over(made)
    }
}

impl Generated for X25519Keys {
    const FILLS_ALWAYS: bool = false;

    fn fill(blank: &OwnedKey<X25519Keys>) -> bool {
        // OpenSSL generates a key into its secure heap, and imports one into the ordinary heap.
        if number::has_secure_heap() {
            return false;
        }
        let Some(Keypair { mut secret, public }) = route::keypair(KeyKind::X25519) else {
            return false;
        };
        // OpenSSL keeps secrets clamped, as they are used (RFC 7748, 5).
        let Ok(clamped) = <&mut [u8; 32]>::try_from(secret.as_bytes_mut()) else {
            return false;
        };
        clamped[0] &= 248;
        clamped[31] = clamped[31] & 127 | 64;
        let parts = List::<3>::new()
            .octets(name::PKEY_PARAM_PUB_KEY, &public)
            .octets(name::PKEY_PARAM_PRIV_KEY, clamped);
        Import::pass(&**blank, select::KEYPAIR, parts.as_params()) == 1
    }

    fn take_over(made: Option<OwnedKey<X25519Keys>>) -> Option<OwnedKey<X25519Keys>> {
        made
    }
}

/// A generation context.
struct Generation<K: Functions> {
    /// OpenSSL's context as the caller asked for it; None if a blank is always enough.
    full: Option<StockCtx<K>>,
    /// OpenSSL's context for blanks; None if the caller asked for no key pair.
    blank: Option<StockCtx<K>>,
    /// The pair follows from a secret of the caller's (DHKEM, OpenSSL 3.2).
    derived: bool,
}

/// The numbers of the functions of key management that do not take a generation context, or are
/// among [`wrappers`] (core_dispatch.h of OpenSSL 3.0 to 4.0).
const KNOWN: &[RangeInclusive<c_int>] = &[1..=8, 10..=17, 20..=23, 40..=46];

/// Returns the functions with wrapped contexts; an error if OpenSSL's table has an unknown
/// function, which may be called with our context.
pub fn wrappers_for<K: Generated>(stock: &[Dispatch]) -> Result<[Dispatch; 8], String> {
    let is_known = |entry: &&Dispatch| KNOWN.iter().any(|known| known.contains(&entry.id));
    match stock.iter().find(|entry| !is_known(entry)) {
        Some(entry) => Err(keymgmt::unknown(entry.id)),
        None => Ok(wrappers::<K>()),
    }
}

/// Returns the functions with the module's contexts. OpenSSL's table has at most these.
fn wrappers<K: Generated>() -> [Dispatch; 8] {
    [
        GenInit::entry(init::<K>),
        GenSetTemplate::entry(set_template::<K>),
        GenSetParams::entry(set_params::<K>),
        GenSettableParams::entry(settable_params::<K>),
        Gen::entry(generate::<K>),
        GenCleanup::entry(cleanup::<K>),
        GenGetParams::entry(get_params::<K>),
        GenGettableParams::entry(gettable_params::<K>),
    ]
}

/// `OSSL_FUNC_keymgmt_gen_init`
fn init<K: Generated>(
    provctx: ProvCtx,
    selection: c_int,
    params: Params<'_>,
) -> Option<Box<Generation<K>>> {
    if memory::is_nearly_gone() {
        return None;
    }
    let mut blank = None;
    if selection & select::KEYPAIR != 0 {
        // Something must be selected, and every object has the parameters anyway.
        let rest = selection & !select::KEYPAIR | select::DOMAIN_PARAMETERS;
        blank = Some(GenInit::pass(provctx, rest, params)?);
    }
    let without = None::<&StockContext<K>>;
    let mut full = None;
    if blank.is_none()
        || !K::FILLS_ALWAYS
        || gives_secret(GenSettableParams::pass(without, provctx))
    {
        full = Some(GenInit::pass(provctx, selection, params)?);
    }
    Some(Box::new(Generation {
        full,
        blank,
        derived: gives_secret(params),
    }))
}

/// Returns whether the parameters have a secret from which the key pair must follow.
fn gives_secret(params: Params<'_>) -> bool {
    params.get(name::PKEY_PARAM_DHKEM_IKM).is_some()
}

impl<K: Functions> Generation<K> {
    /// Returns OpenSSL's contexts, one or two.
    fn contexts(&self) -> impl Iterator<Item = &StockContext<K>> {
        [&self.full, &self.blank]
            .into_iter()
            .filter_map(Option::as_deref)
    }

    /// Calls a function on each context; returns 1 if it succeeds with all.
    fn each(&self, call: impl Fn(&StockContext<K>) -> c_int) -> c_int {
        c_int::from(self.contexts().all(|stock| call(stock) == 1))
    }

    /// Returns one of the contexts, for questions.
    fn any(&self) -> Option<&StockContext<K>> {
        self.contexts().next()
    }
}

/// `OSSL_FUNC_keymgmt_gen_set_template`: OpenSSL's own function copies from the template.
fn set_template<K: Generated>(
    generation: Ctx<'_, Generation<K>>,
    template: Option<&KeyData<K>>,
) -> c_int {
    generation.map_or(0, |ours| {
        ours.each(|stock| GenSetTemplate::pass(stock, template))
    })
}

/// `OSSL_FUNC_keymgmt_gen_set_params`
fn set_params<K: Generated>(generation: Ctx<'_, Generation<K>>, params: Params<'_>) -> c_int {
    generation.map_or(0, |ours| {
        ours.derived |= gives_secret(params);
        ours.each(|stock| GenSetParams::pass(stock, params))
    })
}

/// `OSSL_FUNC_keymgmt_gen_settable_params`
fn settable_params<'a, K: Generated>(
    generation: Ctx<'a, Generation<K>>,
    provctx: ProvCtx,
) -> Params<'a> {
    GenSettableParams::pass(generation.and_then(|ours| ours.any()), provctx)
}

/// `OSSL_FUNC_keymgmt_gen`
fn generate<K: Generated>(
    generation: Ctx<'_, Generation<K>>,
    progress: Progress<'_>,
) -> Option<OwnedKey<K>> {
    let ours = generation?;
    if let (false, Some(blank)) = (ours.derived, &ours.blank) {
        // If this fails, the other context would fail too, with the same error.
        let made = Gen::pass(&**blank, progress)?;
        if K::fill(&made) {
            return Some(made);
        }
        // OpenSSL, or the method of the program, has tried to generate already.
        if K::FILLS_ALWAYS {
            return None;
        }
    }
    K::take_over(Gen::pass(&**ours.full.as_ref()?, progress))
}

/// `OSSL_FUNC_keymgmt_gen_cleanup`
fn cleanup<K: Generated>(generation: Option<Box<Generation<K>>>) {
    drop(generation);
}

/// `OSSL_FUNC_keymgmt_gen_get_params` (OpenSSL 3.4)
fn get_params<K: Generated>(generation: Ctx<'_, Generation<K>>, params: ParamsMut<'_>) -> c_int {
    let stock = generation.and_then(|ours| ours.any());
    stock.map_or(0, |stock| GenGetParams::pass(stock, params))
}

/// `OSSL_FUNC_keymgmt_gen_gettable_params` (OpenSSL 3.4)
fn gettable_params<'a, K: Generated>(
    generation: Ctx<'a, Generation<K>>,
    provctx: ProvCtx,
) -> Params<'a> {
    GenGettableParams::pass(generation.and_then(|ours| ours.any()), provctx)
}
