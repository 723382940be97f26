//! X25519 agreements: the module's contexts around OpenSSL's own key exchange.
//!
//! OpenSSL's context takes the keys as usual, and the module's context notes which keys they are.
//! The derivation reads their bytes, as OpenSSL does: a program may have changed a key by then.
//! Then it asks the engine. Some calls are left to OpenSSL's own function, with its own context: a
//! question for the length, a buffer too short, a peer of small order, and a declined request.

use std::ffi::c_int;
use std::ptr::NonNull;

use lockstep_engine::{Bytes, X25519Input, operation};

use crate::ffi::keyexch::{
    Derive, Dupctx, Freectx, GetCtxParams, GettableCtxParams, Init, Newctx, SetCtxParams, SetPeer,
    SettableCtxParams,
};
use crate::ffi::{Ctx, Dispatch, KeyData, OutBuf, Params, ParamsMut, ProvCtx};
use crate::host::memory;
use crate::keys::wrapped::{self, KEY_BYTES, passed_on, public, secret};
use crate::route;
use crate::stock::families::{X25519Exchange, X25519Keys};

type Context = wrapped::Context<X25519Exchange, Keys>;

/// The keys of an exchange; None for a key that only OpenSSL can use.
#[derive(Clone, Default)]
struct Keys {
    own: Option<Held>,
    peer: Option<Held>,
}

/// A key to which OpenSSL's context holds a reference as long as the key is noted beside it. A copy
/// of the context holds a reference of its own.
#[derive(Clone)]
struct Held(NonNull<KeyData<X25519Keys>>);

impl Held {
    fn key(&self) -> &KeyData<X25519Keys> {
        // SAFETY: the context beside which the key is noted holds it.
        unsafe { self.0.as_ref() }
    }
}

/// Returns all functions that OpenSSL's table may have, with the module's contexts.
pub fn wrappers() -> [Dispatch; 10] {
    [
        Newctx::entry(newctx),
        Init::entry(init),
        Derive::entry(derive),
        SetPeer::entry(set_peer),
        Freectx::entry(freectx),
        Dupctx::entry(dupctx),
        SetCtxParams::entry(set_ctx_params),
        SettableCtxParams::entry(settable_ctx_params),
        GetCtxParams::entry(get_ctx_params),
        GettableCtxParams::entry(gettable_ctx_params),
    ]
}

/// Numbers of functions that libcrypto can do without: if the table has no
/// `OSSL_FUNC_keyexch_derive_skey` (OpenSSL 3.6), libcrypto derives a secret and makes an
/// `EVP_SKEY` of it.
pub const LEFT_OUT: &[c_int] = &[11];

passed_on! { frees Context; Dupctx }

passed_on! {
    Context;
    changes set_ctx_params = SetCtxParams(params: Params<'_>);
    asks settable_ctx_params = SettableCtxParams(provctx: ProvCtx);
    keeps get_ctx_params = GetCtxParams(params: ParamsMut<'_>);
    asks gettable_ctx_params = GettableCtxParams(provctx: ProvCtx);
}

/// `OSSL_FUNC_keyexch_newctx`
fn newctx(provctx: ProvCtx) -> Option<Box<Context>> {
    if memory::is_nearly_gone() {
        return None;
    }
    Newctx::pass(provctx).map(Context::new)
}

/// `OSSL_FUNC_keyexch_init`
fn init(ctx: Ctx<'_, Context>, key: Option<&KeyData<X25519Keys>>, params: Params<'_>) -> c_int {
    let Some(ours) = ctx else { return 0 };
    ours.notes = Keys::default();
    let done = Init::pass(&*ours.stock, key, params);
    if done == 1 && params.is_empty() {
        ours.notes.own = key.map(|key| Held(key.into()));
    }
    done
}

/// `OSSL_FUNC_keyexch_set_peer`
fn set_peer(ctx: Ctx<'_, Context>, key: Option<&KeyData<X25519Keys>>) -> c_int {
    let Some(ours) = ctx else { return 0 };
    ours.notes.peer = None;
    let done = SetPeer::pass(&*ours.stock, key);
    if done == 1 {
        ours.notes.peer = key.map(|key| Held(key.into()));
    }
    done
}

/// `OSSL_FUNC_keyexch_derive`
fn derive(ctx: Ctx<'_, Context>, output: OutBuf<'_>) -> c_int {
    let Some(ours) = ctx else { return 0 };
    let (Some(own), Some(peer), true) =
        (&ours.notes.own, &ours.notes.peer, output.holds(KEY_BYTES))
    else {
        return Derive::pass(&*ours.stock, output);
    };
    let request = || {
        Some(X25519Input {
            secret: secret(own.key())?,
            peer: Bytes::from_slice(&public(peer.key())?),
        })
    };
    route::serve(operation::X25519, request)
        .map(|shared| c_int::from(output.write(shared.as_bytes())))
        .or_else(|| Derive::pass(&*ours.stock, output))
}
