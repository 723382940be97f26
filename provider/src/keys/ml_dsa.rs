//! ML-DSA signatures (FIPS 204): the module's contexts around OpenSSL's own signature, which is
//! there from OpenSSL 3.5 on.
//!
//! OpenSSL's context takes keys and parameters as usual. The module's context notes the key and the
//! parameters that say how a message is represented and where randomness comes from. A signature
//! and a check in one call ask the engine for them by μ, the hash of the message, which the
//! caller's thread computes from the message where it lies. All other calls are left to OpenSSL's
//! own function, with its own context: messages that are long or in pieces, a question for the
//! length, a buffer too short, parameters that the module does not know, and a declined request.
//!
//! A key may be a [reference](mod@reference): then the key daemon signs μ, and nothing is left to
//! OpenSSL, whose object has no private half.

use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{
    Bytes as Octets, MlDsa, MlDsaKey, MlDsaSignInput, MlDsaSignature, MlDsaVerifyInput, Outcome,
    Secret, operation,
};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::daemon::key::{Key, Operation};
use crate::daemon::reference::{self, Referable, Unreferable};
use crate::ffi::keymgmt::{Dup, Free, Gen, Has, Import, Load, New, NewEx};
use crate::ffi::signature::{
    DigestSign, DigestSignInit, DigestVerify, DigestVerifyInit, Dupctx, Freectx, GetCtxParams,
    GettableCtxParams, Newctx, SetCtxParams, SettableCtxParams, Sign, SignMessageFinal,
    SignMessageInit, SignMessageUpdate, Verify, VerifyMessageFinal, VerifyMessageInit,
    VerifyMessageUpdate,
};
use crate::ffi::{
    Bytes, Ctx, Dispatch, KeyData, OutBuf, OwnedKey, Params, ParamsMut, Progress, ProvCtx,
    StockContext, Text, Value, name, select,
};
use crate::host::memory;
use crate::host::query;
use crate::jobs::async_job;
use crate::keys::attached::Attached;
use crate::keys::keymgmt;
use crate::keys::wrapped::{self, is_too_long};
use crate::stock::families::{
    MlDsa44Keys, MlDsa44Signature, MlDsa65Keys, MlDsa65Signature, MlDsa87Keys, MlDsa87Signature,
    Named,
};
use crate::stock::stock;

/// The longest context of a message.
const LONGEST_CONTEXT: usize = 255;
/// The longest message that the engine is asked to sign. OpenSSL hashes a longer one in so much
/// less time that lanes bring little.
const LONGEST_SIGNED: usize = 16 << 10;
/// The same for a check, which takes less time.
const LONGEST_CHECKED: usize = 8 << 10;
/// The length of the randomness of a signature.
const RANDOMNESS: usize = 32;

/// Keys of one of the sets of parameters.
pub trait Keys: Named + Referable {
    /// The set.
    const SET: MlDsa;
    /// Signatures with such keys.
    type Signature: Named;

    /// What the module knows of the objects.
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
            /// OpenSSL has no old object for such keys.
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

/// What the module knows of a key object, from when the object is made.
#[derive(Default)]
pub struct Parts {
    /// The key for the engine, read at its first use; none if it cannot be had.
    key: OnceBox<Option<Arc<MlDsaKey>>>,
    /// Whether OpenSSL has put another key into the object since.
    is_changed: AtomicBool,
    /// What it refers to, if it is a reference.
    referent: Option<Arc<Key>>,
}

/// The key of an object for the engine, with its private half if it has one.
fn key_of<K: Keys>(object: &KeyData<K>) -> Option<Arc<MlDsaKey>> {
    let parts = K::known().get(object)?;
    if parts.is_changed.load(Ordering::Acquire) {
        return None;
    }
    // Nothing could be left to OpenSSL where the key is a reference.
    if parts.referent.is_none() && parts.key.get().is_none() && memory::is_scarce() {
        return None;
    }
    let key = parts
        .key
        .get_or_init(|| Box::new(read::<K>(object).map(Arc::new)));
    key.clone()
}

/// Reads a key. OpenSSL writes the private half to memory for keys, of which there need be none for
/// a public key.
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

/// What differs from OpenSSL's own in the management of these keys.
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

/// An object that OpenSSL has made, with a place for what the module knows of it.
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

/// `OSSL_FUNC_keymgmt_import`: the way every key decoded elsewhere comes to us.
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

/// `OSSL_FUNC_keymgmt_load`: our own decoders have made references ready.
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

/// `OSSL_FUNC_keymgmt_free`: libcrypto gives a key back once. A context of the module's that still
/// uses it has its own share of what was read.
fn free<K: Keys>(key: Option<OwnedKey<K>>) {
    if let Some(key) = key {
        K::release(key);
    }
}

/// What the engine can do with the key of a context.
#[derive(Clone, Default)]
enum Known {
    /// Nothing: all is left to OpenSSL.
    #[default]
    Stock,
    Sign(Arc<MlDsaKey>),
    /// The key is a reference: the key daemon signs. The public half is here.
    Ask(Arc<Key>, Arc<MlDsaKey>),
    Verify(Arc<MlDsaKey>),
}

impl Known {
    /// Of an object that is to sign.
    fn signing<K: Keys>(object: &KeyData<K>) -> Option<Known> {
        let key = key_of(object)?;
        Some(match K::referent(object) {
            Some(referent) => Known::Ask(referent, key),
            None => Known::Sign(key),
        })
    }

    /// Of an object that is to check.
    fn verifying<K: Keys>(object: &KeyData<K>) -> Option<Known> {
        key_of(object).map(Known::Verify)
    }
}

/// What the parameters of a context say, as OpenSSL's own context has noted them.
#[derive(Clone)]
struct Form {
    /// Of the message.
    context: Vec<u8>,
    /// Whether the message is signed as it is given, without anything in front.
    is_raw: bool,
    /// Whether μ is given in place of the message.
    is_mu: bool,
    is_deterministic: bool,
    /// What a test gives in place of randomness.
    entropy: Option<Secret>,
}

/// OpenSSL's own first values.
impl Default for Form {
    fn default() -> Form {
        Form {
            context: Vec::new(),
            is_raw: false,
            is_mu: false,
            is_deterministic: false,
            entropy: None,
        }
    }
}

impl Form {
    /// Notes a parameter; None if it cannot be read, or only OpenSSL knows what it says. It takes
    /// those that are settable, and passes over all others.
    fn note(&mut self, value: Value<'_>, is_settable: impl Fn(&CStr) -> bool) -> Option<()> {
        let is = |value: Value<'_>| match value.int()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        match value.name() {
            known if known == name::SIGNATURE_PARAM_CONTEXT_STRING => {
                let context = value.octets()?;
                if context.len() > LONGEST_CONTEXT {
                    return None;
                }
                self.context = context.to_vec();
            }
            known if known == name::SIGNATURE_PARAM_TEST_ENTROPY => {
                let entropy = value.octets()?;
                if entropy.len() != RANDOMNESS {
                    return None;
                }
                self.entropy = Some(Secret::new(entropy));
            }
            known if known == name::SIGNATURE_PARAM_MESSAGE_ENCODING => self.is_raw = !is(value)?,
            known if known == name::SIGNATURE_PARAM_DETERMINISTIC => {
                self.is_deterministic = is(value)?;
            }
            known if known == name::SIGNATURE_PARAM_MU => self.is_mu = is(value)?,
            // That of a message in pieces, and one that libssl 4.0 passes and nobody reads.
            known if known == name::SIGNATURE_PARAM_SIGNATURE => {}
            known if known == name::SIGNATURE_PARAM_TLS_VERSION => {}
            unknown if !is_settable(unknown) => {}
            _ => return None,
        }
        Some(())
    }

    /// μ of a message. None for one in its place that has another length.
    fn mu(&self, key: &MlDsaKey, message: Bytes<'_>) -> Option<[u8; 64]> {
        if self.is_mu {
            return message.read(|mu| mu.try_into().ok()).flatten();
        }
        let mut mu = key.mu();
        #[cfg(feature = "fault-injection")]
        if crate::fault::planted("lost-context") {
            return message.read(|message| {
                mu.update(&[0, 0]);
                mu.update(message);
                mu.finish()
            });
        }
        if !self.is_raw {
            // 255 bytes at most.
            mu.update(&[0, self.context.len() as u8]);
            mu.update(&self.context);
        }
        message.read(|message| mu.update(message))?;
        Some(mu.finish())
    }

    /// The randomness of a signature, unless it is to be drawn.
    fn randomness(&self) -> Option<Secret> {
        match &self.entropy {
            Some(entropy) => Some(entropy.clone()),
            None => self.is_deterministic.then(|| Secret::new(&[0; RANDOMNESS])),
        }
    }
}

/// What a context has noted.
#[derive(Clone)]
struct Notes {
    key: Known,
    /// None once OpenSSL's context may have noted something else.
    form: Option<Form>,
}

impl Default for Notes {
    fn default() -> Notes {
        let (key, form) = (Known::Stock, Some(Form::default()));
        Notes { key, form }
    }
}

type Context<S> = wrapped::Context<S, Notes>;

/// All functions that OpenSSL's table may have, with the module's contexts.
pub fn wrappers<K: Keys>() -> [Dispatch; 19] {
    [
        Newctx::entry(newctx::<K>),
        SignMessageInit::entry(sign_message_init::<K>),
        SignMessageUpdate::entry(sign_message_update::<K>),
        SignMessageFinal::entry(sign_message_final::<K>),
        Sign::entry(sign::<K>),
        VerifyMessageInit::entry(verify_message_init::<K>),
        VerifyMessageUpdate::entry(verify_message_update::<K>),
        VerifyMessageFinal::entry(verify_message_final::<K>),
        Verify::entry(verify::<K>),
        DigestSignInit::entry(digest_sign_init::<K>),
        DigestSign::entry(digest_sign::<K>),
        DigestVerifyInit::entry(digest_verify_init::<K>),
        DigestVerify::entry(digest_verify::<K>),
        Freectx::entry(freectx::<K>),
        Dupctx::entry(dupctx::<K>),
        GetCtxParams::entry(get_ctx_params::<K>),
        GettableCtxParams::entry(gettable_ctx_params::<K>),
        SetCtxParams::entry(set_ctx_params::<K>),
        SettableCtxParams::entry(settable_ctx_params::<K>),
    ]
}

fn freectx<K: Keys>(ctx: Option<Box<Context<K::Signature>>>) {
    drop(ctx);
}

fn dupctx<K: Keys>(ctx: Ctx<'_, Context<K::Signature>>) -> Option<Box<Context<K::Signature>>> {
    let ours = ctx.filter(|_| !memory::is_nearly_gone())?;
    let stock = Dupctx::pass(&*ours.stock)?;
    Some(Context::with(stock, ours.notes.clone()))
}

/// `OSSL_FUNC_signature_newctx`: with the property query as for the other signatures.
fn newctx<K: Keys>(
    provctx: ProvCtx,
    query: Option<Text<'_>>,
) -> Option<Box<Context<K::Signature>>> {
    if memory::is_nearly_gone() {
        return None;
    }
    let query = query::for_others(query.map(Text::to_cstr)).ok()?;
    Newctx::pass(provctx, query.as_deref().map(Text::new)).map(Context::new)
}

/// Begins operations by OpenSSL's own function `init`, and notes the key and the parameters as that
/// does. Without a key it is the last one again.
fn begin<K: Keys>(
    ours: &mut Context<K::Signature>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
    known: fn(&KeyData<K>) -> Option<Known>,
    init: impl FnOnce(&StockContext<K::Signature>) -> c_int,
) -> c_int {
    let last = std::mem::take(&mut ours.notes.key);
    let done = init(&ours.stock);
    if let Some(form) = &mut ours.notes.form {
        form.is_mu = false;
    }
    note(ours, params, done);
    if done == 1 {
        ours.notes.key = match key {
            Some(key) => known(key).unwrap_or_default(),
            None => last,
        };
    }
    done
}

/// Notes parameters that OpenSSL's own context has taken, or not.
fn note<S: Named>(ours: &mut Context<S>, params: Params<'_>, done: c_int) {
    let is_settable = |name: &CStr| {
        let all = stock().map(|own| SettableCtxParams::pass(Some(&*ours.stock), own.provctx()));
        all.is_none_or(|all| all.get(name).is_some())
    };
    let noted = ours.notes.form.take().filter(|_| done == 1);
    ours.notes.form = noted.and_then(|mut form| {
        for value in params.values() {
            // OpenSSL 3.5 takes the first of several with one name, and later ones none.
            let mut same = params.values().filter(|other| other.name() == value.name());
            let is_alone = same.nth(1).is_none();
            is_alone.then(|| form.note(value, is_settable))??;
        }
        Some(form)
    });
}

/// `OSSL_FUNC_signature_digest_sign_init`
fn digest_sign_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    digest: Option<Text<'_>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| DigestSignInit::pass(stock, digest, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, Known::signing, init))
}

/// `OSSL_FUNC_signature_digest_verify_init`
fn digest_verify_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    digest: Option<Text<'_>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| DigestVerifyInit::pass(stock, digest, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, Known::verifying, init))
}

/// `OSSL_FUNC_signature_sign_message_init`
fn sign_message_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| SignMessageInit::pass(stock, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, Known::signing, init))
}

/// `OSSL_FUNC_signature_verify_message_init`
fn verify_message_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| VerifyMessageInit::pass(stock, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, Known::verifying, init))
}

/// `OSSL_FUNC_signature_set_ctx_params`
fn set_ctx_params<K: Keys>(ctx: Ctx<'_, Context<K::Signature>>, params: Params<'_>) -> c_int {
    ctx.map_or(0, |ours| {
        let done = SetCtxParams::pass(&*ours.stock, params);
        note(ours, params, done);
        done
    })
}

/// `OSSL_FUNC_signature_digest_sign`
fn digest_sign<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: OutBuf<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        let stock = |signature| DigestSign::pass(&*ours.stock, signature, data);
        signed::<K>(&ours.notes, signature, data, stock)
    })
}

/// `OSSL_FUNC_signature_sign`
fn sign<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: OutBuf<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        let stock = |signature| Sign::pass(&*ours.stock, signature, data);
        signed::<K>(&ours.notes, signature, data, stock)
    })
}

/// Signs by the key daemon where the key is a reference; else by the engine, or by OpenSSL's own
/// function `stock`.
fn signed<'a, K: Keys>(
    notes: &Notes,
    room: OutBuf<'a>,
    data: Bytes<'_>,
    stock: impl FnOnce(OutBuf<'a>) -> c_int,
) -> c_int {
    let length = K::SET.signature_bytes();
    if let Known::Ask(referent, key) = &notes.key {
        if room.is_question() {
            room.put_length(length);
            return 1;
        }
        if !room.holds(length) {
            referent.refuse("there is too little room for the signature");
            return 0;
        }
        let made = asked(referent, key, notes.form.as_ref(), data, length);
        return made.map_or(0, |made| c_int::from(room.write(&made)));
    }
    match computed::<K>(notes, &room, data) {
        Outcome::Done(made) => c_int::from(room.write(made.as_bytes())),
        _declined => stock(room),
    }
}

/// The key daemon's signature. None with an error set.
fn asked(
    referent: &Key,
    key: &MlDsaKey,
    form: Option<&Form>,
    data: Bytes<'_>,
    length: usize,
) -> Option<Zeroizing<Vec<u8>>> {
    let Some(form) = form.filter(|form| form.entropy.is_none()) else {
        referent.refuse("the program sets a parameter that the key daemon does not know");
        return None;
    };
    let Some(mu) = form.mu(key, data) else {
        referent.refuse("what stands for the message is not 64 bytes long");
        return None;
    };
    let operation = match form.is_deterministic {
        true => Operation::DeterministicMlDsaSign,
        false => Operation::MlDsaSign,
    };
    referent.ask(operation, &mu, length)
}

/// `OSSL_FUNC_signature_sign_message_final`
fn sign_message_final<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: OutBuf<'_>,
) -> c_int {
    ctx.map_or(0, |ours| match &ours.notes.key {
        Known::Ask(referent, _) => {
            referent.refuse("the key daemon signs a message in one piece alone");
            0
        }
        _ => SignMessageFinal::pass(&*ours.stock, signature),
    })
}

/// The engine's signature, if there is room for one.
fn computed<K: Keys>(notes: &Notes, room: &OutBuf<'_>, data: Bytes<'_>) -> Outcome<MlDsaSignature> {
    let (Known::Sign(key), Some(form)) = (&notes.key, &notes.form) else {
        return Outcome::NotAsked;
    };
    if !key.is_private() || !room.holds(K::SET.signature_bytes()) {
        return Outcome::NotAsked;
    }
    if is_too_long(data, LONGEST_SIGNED) {
        return Outcome::NotAsked;
    }
    let request = || {
        Some(MlDsaSignInput {
            key: Arc::clone(key),
            mu: form.mu(key, data)?,
            randomness: form.randomness(),
        })
    };
    async_job::serve(operation::MlDsaSign(K::SET), request)
}

/// `OSSL_FUNC_signature_digest_verify`
fn digest_verify<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: Bytes<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        match verified::<K>(&ours.notes, signature, data) {
            Outcome::Done(right) => c_int::from(right),
            _declined => DigestVerify::pass(&*ours.stock, signature, data),
        }
    })
}

/// `OSSL_FUNC_signature_verify`
fn verify<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    signature: Bytes<'_>,
    data: Bytes<'_>,
) -> c_int {
    ctx.map_or(0, |ours| {
        match verified::<K>(&ours.notes, signature, data) {
            Outcome::Done(right) => c_int::from(right),
            _declined => Verify::pass(&*ours.stock, signature, data),
        }
    })
}

/// Whether the engine finds a signature right.
fn verified<K: Keys>(notes: &Notes, signature: Bytes<'_>, data: Bytes<'_>) -> Outcome<bool> {
    let (Known::Verify(key), Some(form)) = (&notes.key, &notes.form) else {
        return Outcome::NotAsked;
    };
    if signature.len() != K::SET.signature_bytes() || is_too_long(data, LONGEST_CHECKED) {
        return Outcome::NotAsked;
    }
    let request = || {
        Some(MlDsaVerifyInput {
            key: Arc::clone(key),
            mu: form.mu(key, data)?,
            signature: signature.read(Octets::try_from_slice)??,
        })
    };
    async_job::serve(operation::MlDsaVerify(K::SET), request)
}

/// Declares functions that do what OpenSSL's own do, with its own context.
macro_rules! passed {
    ($($name:ident = $Function:ident($($arg:ident: $type:ty),*);)*) => {
        $(fn $name<K: Keys>(ctx: Ctx<'_, Context<K::Signature>>, $($arg: $type),*) -> c_int {
            ctx.map_or(0, |ours| $Function::pass(&*ours.stock, $($arg),*))
        })*
    };
}

passed! {
    sign_message_update = SignMessageUpdate(data: Bytes<'_>);
    verify_message_update = VerifyMessageUpdate(data: Bytes<'_>);
    verify_message_final = VerifyMessageFinal();
    get_ctx_params = GetCtxParams(params: ParamsMut<'_>);
}

/// `OSSL_FUNC_signature_gettable_ctx_params`
fn gettable_ctx_params<'a, K: Keys>(
    ctx: Ctx<'a, Context<K::Signature>>,
    provctx: ProvCtx,
) -> Params<'a> {
    GettableCtxParams::pass(ctx.map(|ours| &*ours.stock), provctx)
}

/// `OSSL_FUNC_signature_settable_ctx_params`
fn settable_ctx_params<'a, K: Keys>(
    ctx: Ctx<'a, Context<K::Signature>>,
    provctx: ProvCtx,
) -> Params<'a> {
    SettableCtxParams::pass(ctx.map(|ours| &*ours.stock), provctx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::List;

    #[test]
    fn a_parameter_that_openssl_passes_over_changes_nothing() {
        let list = List::<2>::new().octets(c"unknown", &[7]);
        let value = list.as_params().values().next().expect("a parameter");
        let mut form = Form::default();
        assert_eq!(form.note(value, |_| false), Some(()));
        assert_eq!(form.note(value, |name| name == c"unknown"), None);
    }

    #[test]
    fn a_long_message_is_left_to_openssl() {
        let set = MlDsa::MlDsa44;
        let public = vec![7; set.public_key_bytes()];
        let key = Arc::new(MlDsaKey::new(set, &public, None).expect("a key"));
        let notes = Notes {
            key: Known::Verify(key),
            ..Notes::default()
        };
        let signature = vec![7; set.signature_bytes()];
        let is_asked = |length: usize| {
            let (signature, message) = (Bytes::new(&signature), vec![7; length]);
            let verdict = verified::<MlDsa44Keys>(&notes, signature, Bytes::new(&message));
            !matches!(verdict, Outcome::NotAsked)
        };
        assert!(is_asked(LONGEST_CHECKED));
        assert!(!is_asked(LONGEST_CHECKED + 1));
    }
}
