//! Key management of ML-KEM and its hybrids.
//!
//! A key is filled once, by import, by generation or with a peer's encoded public key, and never
//! changed after that, like OpenSSL's own keys of ML-KEM.

use std::ffi::c_int;
use std::sync::Arc;

use lockstep_engine::{Declined, Failed, Kem, KemKey, Secret};
use once_cell::race::OnceBox;

use super::mechanism::{Mechanism, bits, security_bits, security_category};
use super::refused::refused;
use crate::ffi::keymgmt::{GenCleanup, GenInit, GenSetParams, GenSettableParams};
use crate::ffi::own_keymgmt::{
    Dup, Export, ExportTypes, Free, Gen, GetParams, GettableParams, Has, Import, ImportTypes,
    Match, New, SetParams, SettableParams, Validate,
};
use crate::ffi::{
    Ctx, Dispatch, List, Own, PARAM_INTEGER, PARAM_OCTET_STRING, PARAM_UTF8_STRING, Params,
    ParamsMut, Progress, ProvCtx, Receiver, failed, name, reason, select,
};
use crate::host::instance::{self, MlKemSettings};
use crate::host::memory;
use crate::host::stack;
use crate::route;

/// Number of the reason for a refusal, in OpenSSL's queue of errors.
type Reason = c_int;

/// A key, or an empty object before it is filled.
pub struct Key {
    pub kem: Kem,
    settings: MlKemSettings,
    parts: OnceBox<Parts>,
}

/// The parts of a key.
#[derive(Clone)]
enum Parts {
    Public(Box<[u8]>),
    Pair(Arc<KemKey>),
}

impl Key {
    /// Makes an empty object; None without memory, with a reason in the queue.
    fn empty(kem: Kem, settings: MlKemSettings) -> Option<Box<Own<Key>>> {
        if !has_memory() {
            return None;
        }
        Some(Own::new(Key {
            kem,
            settings,
            parts: OnceBox::new(),
        }))
    }

    pub fn public(&self) -> Option<&[u8]> {
        Some(match self.parts.get()? {
            Parts::Public(public) => public,
            Parts::Pair(pair) => pair.public(),
        })
    }

    pub fn pair(&self) -> Option<&Arc<KemKey>> {
        match self.parts.get()? {
            Parts::Public(_) => None,
            Parts::Pair(pair) => Some(pair),
        }
    }

    /// Fills the key; an error if it has been filled before.
    fn fill(&self, parts: Parts) -> Result<(), Reason> {
        let filled = self.parts.set(Box::new(parts));
        filled.map_err(|_| reason::OPERATION_NOT_SUPPORTED_FOR_THIS_KEYTYPE)
    }

    /// Fills the key with a pair, and keeps the seed if the settings say so.
    fn fill_pair(&self, pair: KemKey) -> Result<(), Reason> {
        self.fill(Parts::Pair(Arc::new(match self.settings.retains_seed() {
            true => pair,
            false => pair.without_seed(),
        })))
    }

    /// Fills the key with a public key; an error if that is malformed.
    fn fill_public(&self, public: &[u8]) -> Result<(), Reason> {
        if !self.kem.is_public_key(public) {
            return Err(reason::INVALID_KEY);
        }
        self.fill(Parts::Public(public.into()))
    }
}

/// Returns whether there is memory for one more key or context; false with a reason in the queue.
#[track_caller]
pub fn has_memory() -> bool {
    !memory::is_nearly_gone() || failed(reason::MALLOC_FAILURE)
}

/// Returns the functions for keys of a mechanism.
pub fn functions<M: Mechanism>() -> [Dispatch; 20] {
    [
        New::entry(new::<M>),
        Free::entry(free),
        GenInit::entry(generation::<M>),
        GenSetParams::entry(set_generation),
        GenSettableParams::entry(settable_generation),
        Gen::entry(generate),
        GenCleanup::entry(end_generation),
        Has::entry(has),
        Validate::entry(validate),
        Match::entry(are_equal),
        Import::entry(import),
        ImportTypes::entry(types::<M>),
        Export::entry(export),
        ExportTypes::entry(types::<M>),
        GetParams::entry(get_params),
        GettableParams::entry(gettable_params),
        SetParams::entry(set_params),
        SettableParams::entry(settable_params),
        Dup::entry(duplicate),
        Dispatch::END,
    ]
}

/// `OSSL_FUNC_keymgmt_new`
fn new<M: Mechanism>(provctx: ProvCtx) -> Option<Box<Own<Key>>> {
    Key::empty(M::KEM, instance::ml_kem(provctx))
}

/// `OSSL_FUNC_keymgmt_free`
fn free(key: Option<Box<Own<Key>>>) {
    drop(key);
}

/// `OSSL_FUNC_keymgmt_has`
fn has(key: Option<&Own<Key>>, selection: c_int) -> c_int {
    c_int::from(key.is_some_and(|key| {
        let public = selection & select::PUBLIC_KEY == 0 || key.public().is_some();
        let private = selection & select::PRIVATE_KEY == 0 || key.pair().is_some();
        public && private
    }))
}

/// `OSSL_FUNC_keymgmt_validate`: makes the checks that take long, which were left out when the key
/// was filled.
fn validate(key: Option<&Own<Key>>, selection: c_int, _how: c_int) -> c_int {
    let is_valid = |key: &Key| match selection & select::KEYPAIR {
        select::KEYPAIR => key.pair().is_some_and(|pair| pair.is_pair()),
        select::PUBLIC_KEY => {
            let public = key.public();
            public.is_some_and(|public| key.kem.is_valid_public_key(public))
        }
        _ => true,
    };
    let is_valid = |key: &Key| {
        let computed = stack::without_trace(|| is_valid(key));
        computed.unwrap_or_else(|| failed(reason::MALLOC_FAILURE)) || failed(reason::INVALID_KEY)
    };
    let is_there = has(key, selection) == 1 || failed(reason::MISSING_KEY);
    c_int::from(is_there && key.is_some_and(|key| is_valid(key)))
}

/// `OSSL_FUNC_keymgmt_match`: by the public key, which follows from the private one. Two keys
/// without material are equal, as OpenSSL's own are.
fn are_equal(one: Option<&Own<Key>>, other: Option<&Own<Key>>, selection: c_int) -> c_int {
    let (Some(one), Some(other)) = (one, other) else {
        return 0;
    };
    let same_keys = || one.public() == other.public();
    c_int::from(one.kem == other.kem && (selection & select::KEYPAIR == 0 || same_keys()))
}

/// `OSSL_FUNC_keymgmt_import`
fn import(key: Option<&Own<Key>>, selection: c_int, params: Params<'_>) -> c_int {
    let Some(key) = key.filter(|_| selection & select::KEYPAIR != 0) else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    // This computes with the private key, and OpenSSL may call it in a job, whose stack is small.
    let filled = stack::without_trace(|| filled_by(key, selection, params));
    answer(filled.unwrap_or(Err(reason::MALLOC_FAILURE)))
}

/// Fills a key with imported parts, by OpenSSL's rules. The public key is needed only if there is
/// neither a seed nor a private key. It is compared only if there is a private key and the key is
/// no hybrid. An empty part counts as missing. The parts of a private key must belong together.
fn filled_by(key: &Key, selection: c_int, params: Params<'_>) -> Result<(), Reason> {
    let part = |name, bytes: usize, wrong_length| match params.get(name) {
        None => Ok(None),
        Some(value) => match value.octets_or_pointed() {
            None => Err(reason::FAILED_TO_GET_PARAMETER),
            Some([]) => Ok(None),
            Some(octets) if octets.len() == bytes => Ok(Some(octets)),
            Some(_) => Err(wrong_length),
        },
    };
    let kem = key.kem;
    let (mut private, mut seed) = (None, None);
    if selection & select::PRIVATE_KEY != 0 {
        if !kem.is_hybrid() {
            let wrong_length = reason::INVALID_SEED_LENGTH;
            seed = part(name::PKEY_PARAM_ML_KEM_SEED, Kem::SEED_BYTES, wrong_length)?;
        }
        let bytes = kem.private_bytes();
        private = part(name::PKEY_PARAM_PRIV_KEY, bytes, reason::INVALID_KEY_LENGTH)?;
    }
    let bytes = kem.public_bytes();
    let public = part(name::PKEY_PARAM_PUB_KEY, bytes, reason::INVALID_KEY_LENGTH)?;
    let seed = seed.filter(|_| private.is_none() || key.settings.prefers_seed());
    let made = match (seed, private) {
        (Some(seed), _) => KemKey::from_seed(kem, seed),
        (None, Some(private)) => KemKey::new(kem, private),
        (None, None) => return key.fill_public(public.ok_or(reason::MISSING_KEY)?),
    };
    let made = made.map_err(|_| reason::INVALID_KEY)?;
    let is_private = private.is_none_or(|private| made.has_private(private));
    let is_public =
        private.is_none() || kem.is_hybrid() || public.is_none_or(|public| public == made.public());
    let is_pair = || seed.is_some() || !key.settings.checks_pairs() || made.is_pair();
    if !is_private || !is_public || !is_pair() {
        return Err(reason::INVALID_KEY);
    }
    key.fill_pair(made)
}

/// Returns C's answer: 1, or 0 with the reason in the queue of errors.
#[track_caller]
fn answer(filled: Result<(), Reason>) -> c_int {
    c_int::from(match filled {
        Ok(()) => true,
        Err(reason) => failed(reason),
    })
}

/// `OSSL_FUNC_keymgmt_export`
fn export(key: Option<&Own<Key>>, selection: c_int, receiver: Receiver<'_>) -> c_int {
    let Some(key) = key.filter(|_| selection & select::KEYPAIR != 0) else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let Some(public) = key.public() else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let mut list = List::<4>::new();
    if selection & select::PUBLIC_KEY != 0 {
        list = list.octets(name::PKEY_PARAM_PUB_KEY, public);
    }
    let pair = key.pair().filter(|_| selection & select::PRIVATE_KEY != 0);
    if let Some(pair) = pair {
        list = list.octets(name::PKEY_PARAM_PRIV_KEY, pair.private());
        if let Some(seed) = pair.seed() {
            list = list.octets(name::PKEY_PARAM_ML_KEM_SEED, seed);
        }
    }
    receiver.receive(list.as_params())
}

/// `OSSL_FUNC_keymgmt_import_types` and `OSSL_FUNC_keymgmt_export_types`
fn types<M: Mechanism>(selection: c_int) -> Params<'static> {
    static NOTHING: List<'static, 1> = List::new();
    static PUBLIC: List<'static, 2> =
        List::new().described(name::PKEY_PARAM_PUB_KEY, PARAM_OCTET_STRING, 0);
    static PAIR: List<'static, 4> = List::new()
        .described(name::PKEY_PARAM_PUB_KEY, PARAM_OCTET_STRING, 0)
        .described(name::PKEY_PARAM_PRIV_KEY, PARAM_OCTET_STRING, 0)
        .described(name::PKEY_PARAM_ML_KEM_SEED, PARAM_OCTET_STRING, 0);
    static HYBRID: List<'static, 3> = List::new()
        .described(name::PKEY_PARAM_PUB_KEY, PARAM_OCTET_STRING, 0)
        .described(name::PKEY_PARAM_PRIV_KEY, PARAM_OCTET_STRING, 0);
    match (selection & select::KEYPAIR, M::KEM) {
        (0, _) => NOTHING.as_params(),
        (select::PUBLIC_KEY, _) => PUBLIC.as_params(),
        (_, kem) if kem.is_hybrid() => HYBRID.as_params(),
        _ => PAIR.as_params(),
    }
}

/// `OSSL_FUNC_keymgmt_get_params`
fn get_params(key: Option<&Own<Key>>, mut params: ParamsMut<'_>) -> c_int {
    let Some(key) = key else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let known = params.questions().all(|mut question| {
        let asked = question.name();
        let octets = match asked {
            asked if asked == name::PKEY_PARAM_PUB_KEY => key.public(),
            asked if asked == name::PKEY_PARAM_ENCODED_PUBLIC_KEY => key.public(),
            asked if asked == name::PKEY_PARAM_PRIV_KEY => key.pair().map(|pair| pair.private()),
            asked if asked == name::PKEY_PARAM_ML_KEM_SEED => {
                key.pair().and_then(|pair| pair.seed())
            }
            _ => None,
        };
        let number = match asked {
            asked if asked == name::PKEY_PARAM_BITS => Some(bits(key.kem)),
            asked if asked == name::PKEY_PARAM_SECURITY_BITS => Some(security_bits(key.kem)),
            asked if asked == name::PKEY_PARAM_SECURITY_CATEGORY => {
                Some(security_category(key.kem))
            }
            asked if asked == name::PKEY_PARAM_MAX_SIZE => {
                Some(key.kem.ciphertext_bytes() as c_int)
            }
            _ => None,
        };
        match (octets, number) {
            (Some(octets), _) => {
                let why = match question.room() < octets.len() {
                    true => reason::OUTPUT_BUFFER_TOO_SMALL,
                    false => reason::FAILED_TO_SET_PARAMETER,
                };
                question.answer_octets(octets) || failed(why)
            }
            (None, Some(number)) => {
                question.answer_int(number) || failed(reason::FAILED_TO_SET_PARAMETER)
            }
            // Missing values and unknown parameters are left as they are.
            (None, None) => true,
        }
    });
    c_int::from(known)
}

/// `OSSL_FUNC_keymgmt_gettable_params`
fn gettable_params(_: ProvCtx) -> Params<'static> {
    static GETTABLE: List<'static, 9> = List::new()
        .described(name::PKEY_PARAM_BITS, PARAM_INTEGER, size_of::<c_int>())
        .described(
            name::PKEY_PARAM_SECURITY_BITS,
            PARAM_INTEGER,
            size_of::<c_int>(),
        )
        .described(
            name::PKEY_PARAM_SECURITY_CATEGORY,
            PARAM_INTEGER,
            size_of::<c_int>(),
        )
        .described(name::PKEY_PARAM_MAX_SIZE, PARAM_INTEGER, size_of::<c_int>())
        .described(name::PKEY_PARAM_ENCODED_PUBLIC_KEY, PARAM_OCTET_STRING, 0)
        .described(name::PKEY_PARAM_PUB_KEY, PARAM_OCTET_STRING, 0)
        .described(name::PKEY_PARAM_PRIV_KEY, PARAM_OCTET_STRING, 0)
        .described(name::PKEY_PARAM_ML_KEM_SEED, PARAM_OCTET_STRING, 0);
    GETTABLE.as_params()
}

/// `OSSL_FUNC_keymgmt_set_params`: a peer's share of a handshake.
fn set_params(key: Option<&Own<Key>>, params: Params<'_>) -> c_int {
    let Some(key) = key else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let Some(encoded) = params.get(name::PKEY_PARAM_ENCODED_PUBLIC_KEY) else {
        return 1;
    };
    let encoded = encoded.octets_or_pointed().ok_or(reason::INVALID_KEY);
    let filled = stack::with_room(|| encoded.and_then(|encoded| key.fill_public(encoded)));
    answer(filled.unwrap_or(Err(reason::MALLOC_FAILURE)))
}

/// `OSSL_FUNC_keymgmt_settable_params`
fn settable_params(_: ProvCtx) -> Params<'static> {
    static SETTABLE: List<'static, 2> =
        List::new().described(name::PKEY_PARAM_ENCODED_PUBLIC_KEY, PARAM_OCTET_STRING, 0);
    SETTABLE.as_params()
}

/// `OSSL_FUNC_keymgmt_dup`
fn duplicate(key: Option<&Own<Key>>, selection: c_int) -> Option<Box<Own<Key>>> {
    let Some(key) = key else {
        failed(reason::MISSING_KEY);
        return None;
    };
    let copy = Key::empty(key.kem, key.settings)?;
    let parts = match selection & select::KEYPAIR {
        0 => None,
        select::PUBLIC_KEY => key.public().map(|public| Parts::Public(public.into())),
        _ => key.parts.get().cloned(),
    };
    if let Some(parts) = parts
        && answer(copy.fill(parts)) == 0
    {
        return None;
    }
    Some(copy)
}

/// A generation context.
struct Generation {
    kem: Kem,
    settings: MlKemSettings,
    /// Whether the caller wants a key pair, not only an object for a peer's share.
    wants_pair: bool,
    /// Seed for the next key of ML-KEM.
    seed: Option<Secret>,
}

/// `OSSL_FUNC_keymgmt_gen_init`
fn generation<M: Mechanism>(
    provctx: ProvCtx,
    selection: c_int,
    params: Params<'_>,
) -> Option<Box<Generation>> {
    if !has_memory() {
        return None;
    }
    let mut generation = Box::new(Generation {
        kem: M::KEM,
        settings: instance::ml_kem(provctx),
        wants_pair: selection & select::KEYPAIR != 0,
        seed: None,
    });
    (set_generation(Some(&mut generation), params) == 1).then_some(generation)
}

/// `OSSL_FUNC_keymgmt_gen_set_params`: the name of a group is already known and is ignored.
fn set_generation(generation: Ctx<'_, Generation>, params: Params<'_>) -> c_int {
    let Some(generation) = generation else {
        return 0;
    };
    if let Some(seed) = params.get(name::PKEY_PARAM_ML_KEM_SEED)
        && !generation.kem.is_hybrid()
    {
        let Some(seed) = seed.octets().filter(|seed| seed.len() == Kem::SEED_BYTES) else {
            return c_int::from(failed(reason::INVALID_SEED_LENGTH));
        };
        generation.seed = Some(Secret::new(seed));
    }
    1
}

/// `OSSL_FUNC_keymgmt_gen_settable_params`
fn settable_generation<'a>(_: Ctx<'a, Generation>, _: ProvCtx) -> Params<'a> {
    static SETTABLE: List<'static, 3> = List::new()
        .described(name::PKEY_PARAM_GROUP_NAME, PARAM_UTF8_STRING, 0)
        .described(name::PKEY_PARAM_ML_KEM_SEED, PARAM_OCTET_STRING, 0);
    SETTABLE.as_params()
}

/// `OSSL_FUNC_keymgmt_gen`
fn generate(generation: Ctx<'_, Generation>, _: Progress<'_>) -> Option<Box<Own<Key>>> {
    let generation = generation?;
    let key = Key::empty(generation.kem, generation.settings)?;
    if generation.wants_pair {
        let pair = match made(generation) {
            Ok(pair) => pair,
            Err(declined) => {
                refused(&declined);
                return None;
            }
        };
        key.fill_pair(pair).ok()?;
    }
    Some(key)
}

/// Returns a new key pair, from the context's seed if it has one.
fn made(generation: &mut Generation) -> Result<KemKey, Declined> {
    let kem = generation.kem;
    // A seed serves once, as with OpenSSL: two keys of the same seed would be the same.
    let Some(seed) = generation.seed.take() else {
        return route::kem_key(kem);
    };
    let made = stack::without_trace(|| KemKey::from_seed(kem, seed.as_bytes()));
    let made = made.ok_or(Declined::NoStack)?;
    made.map_err(|_| Declined::Failed(Failed::BadKey))
}

/// `OSSL_FUNC_keymgmt_gen_cleanup`
fn end_generation(generation: Option<Box<Generation>>) {
    drop(generation);
}
