//! Contexts: OpenSSL's own, each with the key and the parameters that it has taken.

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use lockstep_engine::MlDsaKey;

use crate::daemon::key::Key;
use crate::ffi::signature::{
    DigestSignInit, DigestVerifyInit, Dupctx, GetCtxParams, GettableCtxParams, Newctx,
    SetCtxParams, SettableCtxParams, SignMessageInit, SignMessageUpdate, VerifyMessageFinal,
    VerifyMessageInit, VerifyMessageUpdate,
};
use crate::ffi::{Bytes, Ctx, KeyData, Params, ParamsMut, ProvCtx, StockContext, Text};
use crate::host::memory;
use crate::host::query;
use crate::keys::wrapped;
use crate::route::Route;
use crate::stock::families::Named;
use crate::stock::stock;

use super::form::Form;
use super::keys::{Keys, key_of};

/// The key of a context, as the lanes take it.
#[derive(Clone)]
pub enum Half {
    Sign(Arc<MlDsaKey>),
    Verify(Arc<MlDsaKey>),
}

/// A reference, and its public half.
type Referent = (Arc<Key>, Arc<MlDsaKey>);

/// The route of a context's operations.
type Way = Route<Half, Referent>;

/// Returns the route of signatures with a key; None if the key cannot be read.
fn signing<K: Keys>(object: &KeyData<K>) -> Option<Way> {
    let key = key_of(object)?;
    Some(match K::referent(object) {
        Some(referent) => Route::Daemon((referent, key)),
        None => Route::Lanes(Half::Sign(key)),
    })
}

/// Returns the route of checks with a key.
fn verifying<K: Keys>(object: &KeyData<K>) -> Option<Way> {
    Some(Route::Lanes(Half::Verify(key_of(object)?)))
}

/// Notes of a context.
#[derive(Clone)]
pub struct Notes {
    pub way: Way,
    /// The parameters; None once OpenSSL's context may have others.
    pub form: Option<Form>,
}

impl Default for Notes {
    fn default() -> Notes {
        let (way, form) = (Route::Stock, Some(Form::default()));
        Notes { way, form }
    }
}

pub type Context<S> = wrapped::Context<S, Notes>;

pub fn freectx<K: Keys>(ctx: Option<Box<Context<K::Signature>>>) {
    drop(ctx);
}

pub fn dupctx<K: Keys>(ctx: Ctx<'_, Context<K::Signature>>) -> Option<Box<Context<K::Signature>>> {
    let ours = ctx.filter(|_| !memory::is_nearly_gone())?;
    let stock = Dupctx::pass(&*ours.stock)?;
    Some(Context::with(stock, ours.notes.clone()))
}

/// `OSSL_FUNC_signature_newctx`: passes on the clauses of the property query that do not name this
/// module.
pub fn newctx<K: Keys>(
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
/// function does. Without a key, the context keeps the last one.
fn begin<K: Keys>(
    ours: &mut Context<K::Signature>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
    way: fn(&KeyData<K>) -> Option<Way>,
    init: impl FnOnce(&StockContext<K::Signature>) -> c_int,
) -> c_int {
    let last = std::mem::take(&mut ours.notes.way);
    let done = init(&ours.stock);
    if let Some(form) = &mut ours.notes.form {
        form.is_mu = false;
    }
    note(ours, params, done);
    if done == 1 {
        ours.notes.way = match key {
            Some(key) => way(key).unwrap_or_default(),
            None => last,
        };
    }
    done
}

/// Notes parameters, if OpenSSL's own context has taken them (`done` is 1).
fn note<S: Named>(ours: &mut Context<S>, params: Params<'_>, done: c_int) {
    let is_settable = |name: &CStr| {
        let all = stock().map(|own| SettableCtxParams::pass(Some(&*ours.stock), own.provctx()));
        all.is_none_or(|all| all.get(name).is_some())
    };
    let noted = ours.notes.form.take().filter(|_| done == 1);
    ours.notes.form = noted.and_then(|mut form| {
        for value in params.values() {
            // Of several parameters with one name OpenSSL 3.5 takes the first, and later versions
            // take none.
            let mut same = params.values().filter(|other| other.name() == value.name());
            let is_alone = same.nth(1).is_none();
            is_alone.then(|| form.note(value, is_settable))??;
        }
        Some(form)
    });
}

/// `OSSL_FUNC_signature_digest_sign_init`
pub fn digest_sign_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    digest: Option<Text<'_>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| DigestSignInit::pass(stock, digest, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, signing, init))
}

/// `OSSL_FUNC_signature_digest_verify_init`
pub fn digest_verify_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    digest: Option<Text<'_>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| DigestVerifyInit::pass(stock, digest, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, verifying, init))
}

/// `OSSL_FUNC_signature_sign_message_init`
pub fn sign_message_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| SignMessageInit::pass(stock, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, signing, init))
}

/// `OSSL_FUNC_signature_verify_message_init`
pub fn verify_message_init<K: Keys>(
    ctx: Ctx<'_, Context<K::Signature>>,
    key: Option<&KeyData<K>>,
    params: Params<'_>,
) -> c_int {
    let init = |stock: &_| VerifyMessageInit::pass(stock, key, params);
    ctx.map_or(0, |ours| begin(ours, key, params, verifying, init))
}

/// `OSSL_FUNC_signature_set_ctx_params`
pub fn set_ctx_params<K: Keys>(ctx: Ctx<'_, Context<K::Signature>>, params: Params<'_>) -> c_int {
    ctx.map_or(0, |ours| {
        let done = SetCtxParams::pass(&*ours.stock, params);
        note(ours, params, done);
        done
    })
}

/// Declares functions that pass a call on to OpenSSL, with its own context.
macro_rules! passed {
    ($($name:ident = $Function:ident($($arg:ident: $type:ty),*);)*) => {
        $(pub fn $name<K: Keys>(ctx: Ctx<'_, Context<K::Signature>>, $($arg: $type),*) -> c_int {
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
pub fn gettable_ctx_params<'a, K: Keys>(
    ctx: Ctx<'a, Context<K::Signature>>,
    provctx: ProvCtx,
) -> Params<'a> {
    GettableCtxParams::pass(ctx.map(|ours| &*ours.stock), provctx)
}

/// `OSSL_FUNC_signature_settable_ctx_params`
pub fn settable_ctx_params<'a, K: Keys>(
    ctx: Ctx<'a, Context<K::Signature>>,
    provctx: ProvCtx,
) -> Params<'a> {
    SettableCtxParams::pass(ctx.map(|ours| &*ours.stock), provctx)
}
