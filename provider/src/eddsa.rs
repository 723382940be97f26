//! Ed25519 signatures: the module's contexts around the stock signature.
//!
//! The stock context takes the key as usual, and ours notes its bytes. Plain Ed25519 in one call
//! asks the engine; a question for the length, a buffer too short, parameters (contexts,
//! prehashing), the functions of OpenSSL 3.4 and what is declined go to the stock function with the
//! stock context.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use lockstep_engine::{
    Bytes, Ed25519Key, Ed25519SignInput, Ed25519VerifyInput, Outcome, operation,
};

use crate::ffi::signature::{
    DigestSign, DigestSignInit, DigestVerify, DigestVerifyInit, Dupctx, Freectx, GetCtxParams,
    GettableCtxParams, Newctx, QueryKeyTypes, SetCtxParams, SettableCtxParams, Sign, SignInit,
    SignMessageInit, Verify, VerifyInit, VerifyMessageInit,
};
use crate::ffi::{Dispatch, Param};
use crate::keymgmt::is_empty;
use crate::overlay::{self, Ed25519};
use crate::wrapped::{KEY_BYTES, passed_on, public, secret};
use crate::{async_job, memory};

/// The length of a signature.
const SIGNATURE_BYTES: usize = 64;

/// What the engine can do with the key of a context.
#[derive(Clone, Default)]
enum Key {
    /// Nothing: all is stock's.
    #[default]
    Stock,
    Sign(Arc<Ed25519Key>),
    Verify([u8; KEY_BYTES]),
}

type Context = crate::wrapped::Context<Key>;

/// All functions that the stock table may have, with the module's contexts.
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

/// The stock functions.
fn stock() -> &'static [Dispatch] {
    overlay::family::<Ed25519>().map_or(&[], |family| &family.signature)
}

passed_on! { frees Key, stock; Freectx, Dupctx }

passed_on! {
    Key, stock;
    changes sign_init = SignInit(key: *mut c_void, params: *const Param) -> c_int, else 0;
    keeps sign = Sign(signature: *mut c_uchar, length: *mut usize, size: usize, data: *const c_uchar, data_length: usize) -> c_int, else 0;
    changes verify_init = VerifyInit(key: *mut c_void, params: *const Param) -> c_int, else 0;
    keeps verify = Verify(signature: *const c_uchar, length: usize, data: *const c_uchar, data_length: usize) -> c_int, else 0;
    keeps get_ctx_params = GetCtxParams(params: *mut Param) -> c_int, else 0;
    keeps gettable_ctx_params = GettableCtxParams(provctx: *mut c_void) -> *const Param, else null();
    changes set_ctx_params = SetCtxParams(params: *const Param) -> c_int, else 0;
    keeps settable_ctx_params = SettableCtxParams(provctx: *mut c_void) -> *const Param, else null();
    changes sign_message_init = SignMessageInit(key: *mut c_void, params: *const Param) -> c_int, else 0;
    changes verify_message_init = VerifyMessageInit(key: *mut c_void, params: *const Param) -> c_int, else 0;
}

/// `OSSL_FUNC_signature_query_key_types` (OpenSSL 3.5)
unsafe extern "C" fn query_key_types() -> *const *const c_char {
    // SAFETY: no arguments.
    QueryKeyTypes::of(stock()).map_or(null(), |stock| unsafe { stock.call() })
}

/// `OSSL_FUNC_signature_newctx`: with the property query as for the other signatures.
unsafe extern "C" fn newctx(provctx: *mut c_void, query: *const c_char) -> *mut c_void {
    let Some(stock) = Newctx::of(stock()).filter(|_| !memory::is_nearly_gone()) else {
        return null_mut();
    };
    // SAFETY: libcrypto's arguments, for the stock constructor, which copies the query.
    unsafe {
        let query = overlay::query_for_others(query);
        let query = query.as_ref().map_or(null(), |query| query.as_ptr());
        Context::wrap(stock.call(provctx, query), Key::default())
    }
}

/// The private key for the engine.
///
/// # Safety
/// `key` is NULL or valid Ed25519 key data.
unsafe fn signing(key: *mut c_void) -> Option<Key> {
    // SAFETY: by contract.
    let seed = unsafe { secret::<Ed25519>(key) }?;
    Some(Key::Sign(Arc::new(Ed25519Key::new(seed.as_bytes()).ok()?)))
}

/// `OSSL_FUNC_signature_digest_sign_init`
unsafe extern "C" fn digest_sign_init(
    ctx: *mut c_void,
    digest: *const c_char,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: libcrypto's arguments.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), DigestSignInit::of(stock())) else {
            return 0;
        };
        let noted = std::mem::take(&mut ours.notes);
        let done = stock.call(ours.stock, digest, key, params);
        if done == 1 && is_empty(params) {
            ours.notes = match noted {
                // Without a key it is the last one again.
                Key::Sign(last) if key.is_null() => Key::Sign(last),
                _ => signing(key).unwrap_or_default(),
            };
        }
        done
    }
}

/// `OSSL_FUNC_signature_digest_verify_init`
unsafe extern "C" fn digest_verify_init(
    ctx: *mut c_void,
    digest: *const c_char,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: libcrypto's arguments.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), DigestVerifyInit::of(stock())) else {
            return 0;
        };
        let noted = std::mem::take(&mut ours.notes);
        let done = stock.call(ours.stock, digest, key, params);
        if done == 1 && is_empty(params) {
            ours.notes = match noted {
                Key::Verify(last) if key.is_null() => Key::Verify(last),
                _ => public::<Ed25519>(key).map_or(Key::Stock, Key::Verify),
            };
        }
        done
    }
}

/// `OSSL_FUNC_signature_digest_sign`
unsafe extern "C" fn digest_sign(
    ctx: *mut c_void,
    signature: *mut c_uchar,
    length: *mut usize,
    size: usize,
    data: *const c_uchar,
    data_length: usize,
) -> c_int {
    // SAFETY: libcrypto's arguments; `signature` has room for `size` bytes.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), DigestSign::of(stock())) else {
            return 0;
        };
        let fits = size >= SIGNATURE_BYTES;
        #[cfg(feature = "fault-injection")]
        let fits = fits || crate::fault::planted("short-buffer");
        let usual = !signature.is_null() && !length.is_null() && fits;
        let (Key::Sign(key), Some(message), true) =
            (&ours.notes, message(data, data_length), usual)
        else {
            return stock.call(ours.stock, signature, length, size, data, data_length);
        };
        let request = || {
            Some(Ed25519SignInput {
                key: Arc::clone(key),
                message: Bytes::from_slice(message),
            })
        };
        match async_job::serve(operation::Ed25519Sign, request) {
            Outcome::Done(bytes) if bytes.len() == SIGNATURE_BYTES => {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), signature, SIGNATURE_BYTES);
                *length = SIGNATURE_BYTES;
                1
            }
            _declined => stock.call(ours.stock, signature, length, size, data, data_length),
        }
    }
}

/// `OSSL_FUNC_signature_digest_verify`
unsafe extern "C" fn digest_verify(
    ctx: *mut c_void,
    signature: *const c_uchar,
    length: usize,
    data: *const c_uchar,
    data_length: usize,
) -> c_int {
    // SAFETY: libcrypto's arguments; `signature` has `length` bytes.
    unsafe {
        let (Some(ours), Some(stock)) = (Context::of(ctx), DigestVerify::of(stock())) else {
            return 0;
        };
        let usual = length == SIGNATURE_BYTES && !signature.is_null();
        let (Key::Verify(public), Some(message), true) =
            (&ours.notes, message(data, data_length), usual)
        else {
            return stock.call(ours.stock, signature, length, data, data_length);
        };
        let request = || {
            Some(Ed25519VerifyInput {
                public: public.to_vec(),
                message: Bytes::from_slice(message),
                signature: std::slice::from_raw_parts(signature, length).to_vec(),
            })
        };
        match async_job::serve(operation::Ed25519Verify, request) {
            Outcome::Done(right) => c_int::from(right),
            _declined => stock.call(ours.stock, signature, length, data, data_length),
        }
    }
}

/// C's pointer and length; None for NULL with a length.
///
/// # Safety
/// `data` is NULL or points to `length` bytes.
unsafe fn message<'a>(data: *const c_uchar, length: usize) -> Option<&'a [u8]> {
    if length == 0 {
        return Some(&[]);
    }
    // SAFETY: by contract.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data, length) })
}
