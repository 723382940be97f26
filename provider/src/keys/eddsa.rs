//! Ed25519 signatures: the module's contexts around OpenSSL's own signature.
//!
//! OpenSSL's context takes the key as usual, and the module's context notes its bytes. Plain
//! Ed25519 in one call asks the engine. All other calls are left to OpenSSL's own function, with
//! its own context: a question for the length, a buffer too short, parameters (contexts,
//! prehashing), a digest that the caller has made, and a declined request.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use lockstep_engine::{
    Bytes as Message, Ed25519Key, Ed25519SignInput, Ed25519VerifyInput, Outcome, operation,
};

use crate::daemon::key::{Key, Operation};
use crate::daemon::reference::Referable;
use crate::ffi::signature::{
    DigestSign, DigestSignInit, DigestVerify, DigestVerifyInit, Dupctx, Freectx, GetCtxParams,
    GettableCtxParams, Newctx, QueryKeyTypes, SetCtxParams, SettableCtxParams, Sign, SignInit,
    SignMessageInit, Verify, VerifyInit, VerifyMessageInit,
};
use crate::ffi::{
    Bytes, Ctx, Dispatch, KeyData, OutBuf, Params, ParamsMut, ProvCtx, StockContext, Text, Value,
    name,
};
use crate::host::memory;
use crate::host::query;
use crate::keys::wrapped::{self, KEY_BYTES, is_too_long, pair, passed_on, public};
use crate::route::{self, Route};
use crate::stock::families::{Ed25519Keys, Ed25519Signature};

/// Length of a signature.
const SIGNATURE_BYTES: usize = 64;

/// Length of the longest message that the engine is asked to sign or check. The hash of a longer
/// message would delay the whole batch. OpenSSL hashes such a message without a copy.
const LONGEST_MESSAGE: usize = 16 << 10;

/// The key of a context, as the lanes take it.
#[derive(Clone)]
enum Half {
    Sign(Arc<Ed25519Key>),
    Verify([u8; KEY_BYTES]),
}

/// The route of a context's operations.
type Way = Route<Half, Arc<Key>>;

type Context = wrapped::Context<Ed25519Signature, Way>;

/// All functions that OpenSSL's table may have, with the module's contexts.
pub fn wrappers() -> [Dispatch; 18] {
    [
        Newctx::entry(newctx),
        SignInit::entry(sign_init),
        Sign::entry(sign),
        VerifyInit::entry(verify_init),
        Verify::entry(verify),
        DigestSignInit::entry(digest_sign_init),
        DigestSign::entry(digest_sign),
        DigestVerifyInit::entry(digest_verify_init),
        DigestVerify::entry(digest_verify),
        Freectx::entry(freectx),
        Dupctx::entry(dupctx),
        GetCtxParams::entry(get_ctx_params),
        GettableCtxParams::entry(gettable_ctx_params),
        SetCtxParams::entry(set_ctx_params),
        SettableCtxParams::entry(settable_ctx_params),
        QueryKeyTypes::entry(query_key_types),
        SignMessageInit::entry(sign_message_init),
        VerifyMessageInit::entry(verify_message_init),
    ]
}

passed_on! { frees Context; Dupctx }

passed_on! {
    Context;
    changes sign_init = SignInit(key: Option<&KeyData<Ed25519Keys>>, params: Params<'_>);
    changes verify_init = VerifyInit(key: Option<&KeyData<Ed25519Keys>>, params: Params<'_>);
    keeps get_ctx_params = GetCtxParams(params: ParamsMut<'_>);
    asks gettable_ctx_params = GettableCtxParams(provctx: ProvCtx);
    changes set_ctx_params = SetCtxParams(params: Params<'_>);
    asks settable_ctx_params = SettableCtxParams(provctx: ProvCtx);
}

/// `OSSL_FUNC_signature_query_key_types` (OpenSSL 3.5)
fn query_key_types() -> *mut *const c_char {
    QueryKeyTypes::pass::<Ed25519Signature>()
}

/// `OSSL_FUNC_signature_newctx`: passes on the clauses of the property query that do not name this
/// module.
fn newctx(provctx: ProvCtx, query: Option<Text<'_>>) -> Option<Box<Context>> {
    if memory::is_nearly_gone() {
        return None;
    }
    let query = query::for_others(query.map(Text::to_cstr)).ok()?;
    Newctx::pass(provctx, query.as_deref().map(Text::new)).map(Context::new)
}

/// Returns the route of signatures with a key; None if its parts cannot be read.
fn signing(key: &KeyData<Ed25519Keys>) -> Option<Way> {
    if let Some(referent) = Ed25519Keys::referent(key) {
        return Some(Route::Daemon(referent));
    }
    let (seed, public) = pair(key)?;
    let key = Ed25519Key::of_pair(seed.as_bytes(), public).ok()?;
    Some(Route::Lanes(Half::Sign(Arc::new(key))))
}

/// Returns the route of checks with a key.
fn verifying(key: &KeyData<Ed25519Keys>) -> Option<Way> {
    Some(Route::Lanes(Half::Verify(public(key)?)))
}

/// Begins operations by OpenSSL's own function `init`, and notes the key if the operations are
/// plain Ed25519. Without a key, the context keeps the last key.
fn begin(
    ours: &mut Context,
    key: Option<&KeyData<Ed25519Keys>>,
    params: Params<'_>,
    note: fn(&KeyData<Ed25519Keys>) -> Option<Way>,
    init: impl FnOnce(&StockContext<Ed25519Signature>) -> c_int,
) -> c_int {
    let last = std::mem::take(&mut ours.notes);
    let done = init(&ours.stock);
    // libssl 4.0 passes the version of TLS, which changes nothing.
    let changes = |value: Value<'_>| value.name() != name::SIGNATURE_PARAM_TLS_VERSION;
    if done == 1 && !params.values().any(changes) {
        ours.notes = key.map_or(last, |key| note(key).unwrap_or_default());
    }
    done
}

/// `OSSL_FUNC_signature_digest_sign_init`
fn digest_sign_init(
    ctx: Ctx<'_, Context>,
    digest: Option<Text<'_>>,
    key: Option<&KeyData<Ed25519Keys>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| DigestSignInit::pass(stock, digest, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, signing, init))
}

/// `OSSL_FUNC_signature_digest_verify_init`
fn digest_verify_init(
    ctx: Ctx<'_, Context>,
    digest: Option<Text<'_>>,
    key: Option<&KeyData<Ed25519Keys>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| DigestVerifyInit::pass(stock, digest, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, verifying, init))
}

/// `OSSL_FUNC_signature_sign_message_init` (OpenSSL 3.4)
fn sign_message_init(
    ctx: Ctx<'_, Context>,
    key: Option<&KeyData<Ed25519Keys>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| SignMessageInit::pass(stock, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, signing, init))
}

/// `OSSL_FUNC_signature_verify_message_init` (OpenSSL 3.4)
fn verify_message_init(
    ctx: Ctx<'_, Context>,
    key: Option<&KeyData<Ed25519Keys>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| VerifyMessageInit::pass(stock, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, verifying, init))
}

/// `OSSL_FUNC_signature_digest_sign`
fn digest_sign(ctx: Ctx<'_, Context>, signature: OutBuf<'_>, data: Bytes<'_>) -> c_int {
    ctx.map_or(0, |ours| {
        #[cfg(feature = "fault-injection")]
        let signature = match crate::fault::planted("short-buffer") {
            true => signature.overstated(SIGNATURE_BYTES),
            false => signature,
        };
        let stock = || DigestSign::pass(&*ours.stock, signature, data);
        signed(&ours.notes, signature, data, stock)
    })
}

/// `OSSL_FUNC_signature_sign`: the data are the message after [`sign_message_init`], and a digest
/// of the message otherwise.
fn sign(ctx: Ctx<'_, Context>, signature: OutBuf<'_>, data: Bytes<'_>) -> c_int {
    ctx.map_or(0, |ours| {
        let stock = || Sign::pass(&*ours.stock, signature, data);
        signed(&ours.notes, signature, data, stock)
    })
}

/// Signs: by the key daemon, by the engine, or by OpenSSL's own function `stock`, which also
/// answers where there is no room.
fn signed(way: &Way, room: OutBuf<'_>, data: Bytes<'_>, stock: impl FnOnce() -> c_int) -> c_int {
    if !room.holds(SIGNATURE_BYTES) {
        return stock();
    }
    way.take(
        |referent| {
            let ask =
                |message: &[u8]| referent.ask(Operation::Ed25519Sign, message, SIGNATURE_BYTES);
            let made = data.read(ask).flatten();
            made.map_or(0, |signature| c_int::from(room.write(&signature)))
        },
        |key| computed(key, data).map(|signature| c_int::from(room.write(&signature))),
        stock,
    )
}

/// Returns the engine's signature.
fn computed(key: &Half, data: Bytes<'_>) -> Outcome<Message> {
    let Half::Sign(key) = key else {
        return Outcome::NotAsked;
    };
    if is_too_long(data, LONGEST_MESSAGE) {
        return Outcome::NotAsked;
    }
    let request = || {
        Some(Ed25519SignInput {
            key: Arc::clone(key),
            message: data.read(Message::try_from_slice)??,
        })
    };
    route::serve(operation::Ed25519Sign, request)
}

/// `OSSL_FUNC_signature_digest_verify`
fn digest_verify(ctx: Ctx<'_, Context>, signature: Bytes<'_>, data: Bytes<'_>) -> c_int {
    ctx.map_or(0, |ours| {
        let is_right = verified(&ours.notes, signature, data).map(c_int::from);
        is_right.or_else(|| DigestVerify::pass(&*ours.stock, signature, data))
    })
}

/// `OSSL_FUNC_signature_verify`: as [`sign`].
fn verify(ctx: Ctx<'_, Context>, signature: Bytes<'_>, data: Bytes<'_>) -> c_int {
    ctx.map_or(0, |ours| {
        let is_right = verified(&ours.notes, signature, data).map(c_int::from);
        is_right.or_else(|| Verify::pass(&*ours.stock, signature, data))
    })
}

/// Returns whether the engine finds a signature valid.
fn verified(way: &Way, signature: Bytes<'_>, data: Bytes<'_>) -> Outcome<bool> {
    let (Route::Lanes(Half::Verify(public)), SIGNATURE_BYTES) = (way, signature.len()) else {
        return Outcome::NotAsked;
    };
    if is_too_long(data, LONGEST_MESSAGE) {
        return Outcome::NotAsked;
    }
    let request = || {
        Some(Ed25519VerifyInput {
            public: public.to_vec(),
            message: data.read(copy)??.into(),
            signature: signature.read(<[u8]>::to_vec)?,
        })
    };
    route::serve(operation::Ed25519Verify, request)
}

/// Copies a message; None without memory for it.
fn copy(message: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(message.len()).ok()?;
    copy.extend_from_slice(message);
    Some(copy)
}
