//! X25519 agreements: the module's contexts around the stock key exchange.
//!
//! The stock context takes the keys as usual, and ours notes which they are. Deriving reads their
//! bytes, as stock does: a program may have changed a key by then. It asks the engine; a question
//! for the length, a buffer too short, a peer of small order and what is declined go to the stock
//! function with the stock context.

use std::ffi::{c_int, c_uchar, c_void};
use std::ptr::{NonNull, null, null_mut};

use lockstep_engine::{Bytes, Outcome, X25519Input, operation};

use crate::ffi::keyexch::{
    Derive, Dupctx, Freectx, GetCtxParams, GettableCtxParams, Init, Newctx, SetCtxParams, SetPeer,
    SettableCtxParams,
};
use crate::ffi::{Dispatch, Param};
use crate::keymgmt::is_empty;
use crate::overlay::{self, X25519};
use crate::wrapped::{KEY_BYTES, passed_on, public, secret};
use crate::{async_job, memory};

/// The key data of an exchange; None for what only stock can use. The stock context holds a
/// reference to both for as long as they stand here, and a copy of it holds its own.
#[derive(Clone, Default)]
struct Keys {
    own: Option<NonNull<c_void>>,
    peer: Option<NonNull<c_void>>,
}

type Context = crate::wrapped::Context<Keys>;

/// All functions that the stock table may have, with the module's contexts.
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

/// Functions that libcrypto does without: it derives a secret and makes an `EVP_SKEY` of it, where
/// the table has no `OSSL_FUNC_keyexch_derive_skey` (OpenSSL 3.6).
pub const LEFT_OUT: &[c_int] = &[11];

/// The stock functions.
fn stock() -> &'static [Dispatch] {
    overlay::family::<X25519>().map_or(&[], |family| &family.keyexch)
}

passed_on! { frees Keys, stock; Freectx, Dupctx }

passed_on! {
    Keys, stock;
    changes set_ctx_params = SetCtxParams(params: *const Param) -> c_int, else 0;
    keeps settable_ctx_params = SettableCtxParams(provctx: *mut c_void) -> *const Param, else null();
    keeps get_ctx_params = GetCtxParams(params: *mut Param) -> c_int, else 0;
    keeps gettable_ctx_params = GettableCtxParams(provctx: *mut c_void) -> *const Param, else null();
}

/// `OSSL_FUNC_keyexch_newctx`
unsafe extern "C" fn newctx(provctx: *mut c_void) -> *mut c_void {
    let Some(stock) = Newctx::of(stock()).filter(|_| !memory::is_nearly_gone()) else {
        return null_mut();
    };
    // SAFETY: the stock constructor with its own context.
    Context::wrap(unsafe { stock.call(provctx) }, Keys::default())
}

/// `OSSL_FUNC_keyexch_init`
unsafe extern "C" fn init(ctx: *mut c_void, key: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: libcrypto's arguments.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), Init::of(stock())) else {
            return 0;
        };
        ours.notes = Keys::default();
        let done = stock.call(ours.stock, key, params);
        if done == 1 && is_empty(params) {
            ours.notes.own = NonNull::new(key);
        }
        done
    }
}

/// `OSSL_FUNC_keyexch_set_peer`
unsafe extern "C" fn set_peer(ctx: *mut c_void, key: *mut c_void) -> c_int {
    // SAFETY: libcrypto's arguments.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), SetPeer::of(stock())) else {
            return 0;
        };
        ours.notes.peer = None;
        let done = stock.call(ours.stock, key);
        if done == 1 {
            ours.notes.peer = NonNull::new(key);
        }
        done
    }
}

/// `OSSL_FUNC_keyexch_derive`
unsafe extern "C" fn derive(
    ctx: *mut c_void,
    output: *mut c_uchar,
    length: *mut usize,
    size: usize,
) -> c_int {
    // SAFETY: libcrypto's arguments; `output` has room for `size` bytes. The stock context holds
    // the keys.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), Derive::of(stock())) else {
            return 0;
        };
        let usual = !output.is_null() && !length.is_null() && size >= KEY_BYTES;
        let (Some(own), Some(peer), true) = (ours.notes.own, ours.notes.peer, usual) else {
            return stock.call(ours.stock, output, length, size);
        };
        let request = || {
            Some(X25519Input {
                secret: secret::<X25519>(own.as_ptr())?,
                peer: Bytes::from_slice(&public::<X25519>(peer.as_ptr())?),
            })
        };
        match async_job::serve(operation::X25519, request) {
            Outcome::Done(shared) if shared.as_bytes().len() == KEY_BYTES => {
                std::ptr::copy_nonoverlapping(shared.as_bytes().as_ptr(), output, KEY_BYTES);
                *length = KEY_BYTES;
                1
            }
            _declined => stock.call(ours.stock, output, length, size),
        }
    }
}
