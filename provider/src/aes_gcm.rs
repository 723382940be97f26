//! AES-GCM, for OpenSSL before 3.1, whose own code does not use the vector forms of AES and of
//! carry-less multiplication.
//!
//! A [context] behaves as OpenSSL's own, call by call: it keeps the state of its IV, takes a
//! message in any pieces, makes random IVs and the IVs of TLS 1.2, and leaves the same errors. Only
//! the arithmetic differs. The functions that set or copy a key, set or answer parameters,
//! transform bytes or end a message clear all vector registers. Random bytes come from OpenSSL's
//! implementation ([`iv`]), which knows the application's generator. The names of the algorithms,
//! their constants and the lists of their parameters are OpenSSL's own.

mod context;
mod iv;
mod params;
mod record;

use std::ffi::c_int;

use lockstep_kernels::aes_gcm::Lanes;
use lockstep_kernels::clear_registers;
use once_cell::race::OnceBox;

use crate::ffi::cipher::{
    Cipher, DecryptInit, Dupctx, EncryptInit, Final, Freectx, GetCtxParams, GetParams,
    GettableCtxParams, GettableParams, Newctx, SetCtxParams, SettableCtxParams, Update,
};
use crate::ffi::{
    Bytes, Ctx, Dispatch, OutBuf, Params, ParamsMut, ProvCtx, StockContext, Transformed, failed,
    reason,
};
use crate::host::memory;
use crate::process;
use crate::stock::families::{Aes128Gcm, Aes192Gcm, Aes256Gcm, Named};

use context::Context;

/// AES-GCM with one length of key.
pub trait AesGcm: Named {
    const KEY_BYTES: usize;
}

impl AesGcm for Aes128Gcm {
    const KEY_BYTES: usize = 16;
}

impl AesGcm for Aes192Gcm {
    const KEY_BYTES: usize = 24;
}

impl AesGcm for Aes256Gcm {
    const KEY_BYTES: usize = 32;
}

/// Returns the instructions that the settings and this CPU allow; None where OpenSSL's own code is
/// as fast.
pub fn lanes() -> Option<Lanes> {
    static LANES: OnceBox<Option<Lanes>> = OnceBox::new();
    let choose = || match process::backend()?.name() {
        "portable" => Some(Lanes::PORTABLE),
        "avx512ifma256" | "avx2" => Lanes::from_name("vaes256"),
        _ => Lanes::best_hardware(),
    };
    *LANES.get_or_init(|| Box::new(choose()))
}

/// Returns a table of all functions of the algorithm. Functions with a context are the module's;
/// the others are copied from `stock`, OpenSSL's table.
pub fn wrappers<A: AesGcm>(stock: &[Dispatch]) -> Vec<Dispatch> {
    let own = [
        Newctx::entry(newctx::<A>),
        EncryptInit::entry(encrypt_init),
        DecryptInit::entry(decrypt_init),
        Update::entry(update),
        Final::entry(finish),
        Cipher::entry(cipher),
        Freectx::entry(freectx),
        Dupctx::entry(dupctx),
        GetCtxParams::entry(get_ctx_params),
        SetCtxParams::entry(set_ctx_params),
        GettableCtxParams::entry(gettable_ctx_params::<A>),
        SettableCtxParams::entry(settable_ctx_params::<A>),
    ];
    let has_no_context =
        |entry: &&Dispatch| [GetParams::ID, GettableParams::ID].contains(&entry.id);
    let others = stock.iter().filter(has_no_context);
    own.into_iter().chain(others.copied()).collect()
}

/// `OSSL_FUNC_cipher_newctx`
fn newctx<A: AesGcm>(provctx: ProvCtx) -> Option<Box<Context>> {
    if memory::is_nearly_gone() {
        return None;
    }
    Some(Context::new(provctx, lanes()?, A::KEY_BYTES))
}

/// `OSSL_FUNC_cipher_dupctx`
fn dupctx(ctx: Ctx<'_, Context>) -> Option<Box<Context>> {
    let ctx = ctx.filter(|_| !memory::is_nearly_gone())?;
    let copy = ctx.duplicate();
    clear_registers();
    Some(copy)
}

/// `OSSL_FUNC_cipher_freectx`
fn freectx(ctx: Option<Box<Context>>) {
    drop(ctx);
}

/// `OSSL_FUNC_cipher_encrypt_init`
fn encrypt_init(ctx: Ctx<'_, Context>, key: Bytes<'_>, iv: Bytes<'_>, params: Params<'_>) -> c_int {
    begin(ctx, true, key, iv, params)
}

/// `OSSL_FUNC_cipher_decrypt_init`
fn decrypt_init(ctx: Ctx<'_, Context>, key: Bytes<'_>, iv: Bytes<'_>, params: Params<'_>) -> c_int {
    begin(ctx, false, key, iv, params)
}

fn begin(
    ctx: Ctx<'_, Context>,
    encrypts: bool,
    key: Bytes<'_>,
    iv: Bytes<'_>,
    params: Params<'_>,
) -> c_int {
    let begun = ctx.is_some_and(|ctx| ctx.begin(encrypts, key, iv, params));
    clear_registers();
    c_int::from(begun)
}

/// `OSSL_FUNC_cipher_update`
fn update(ctx: Ctx<'_, Context>, mut bytes: Transformed<'_>) -> c_int {
    let Some(ctx) = ctx else { return 0 };
    if bytes.from().len() == 0 {
        bytes.put_length(0);
        return 1;
    }
    if !bytes.is_roomy() {
        return c_int::from(failed(reason::OUTPUT_BUFFER_TOO_SMALL));
    }
    let written = ctx.transform(&mut bytes);
    clear_registers();
    bytes.put_length(written.unwrap_or(0));
    c_int::from(written.is_some() || failed(reason::CIPHER_OPERATION_FAILED))
}

/// `OSSL_FUNC_cipher_cipher`, the function of `EVP_Cipher`.
fn cipher(ctx: Ctx<'_, Context>, mut bytes: Transformed<'_>) -> c_int {
    let Some(ctx) = ctx else { return 0 };
    if !bytes.is_roomy() {
        return c_int::from(failed(reason::OUTPUT_BUFFER_TOO_SMALL));
    }
    let done = ctx.transform(&mut bytes).is_some();
    clear_registers();
    let length = if done { bytes.from().len() } else { 0 };
    bytes.put_length(length);
    c_int::from(done)
}

/// `OSSL_FUNC_cipher_final`
fn finish(ctx: Ctx<'_, Context>, out: OutBuf<'_>) -> c_int {
    out.put_length(0);
    let finished = ctx.and_then(Context::finish);
    clear_registers();
    c_int::from(finished.is_some())
}

/// `OSSL_FUNC_cipher_get_ctx_params`
fn get_ctx_params(ctx: Ctx<'_, Context>, params: ParamsMut<'_>) -> c_int {
    let answered = ctx.is_some_and(|ctx| ctx.get_params(params));
    clear_registers();
    c_int::from(answered)
}

/// `OSSL_FUNC_cipher_set_ctx_params`
fn set_ctx_params(ctx: Ctx<'_, Context>, params: Params<'_>) -> c_int {
    let set = ctx.is_some_and(|ctx| ctx.set_params(params));
    clear_registers();
    c_int::from(set)
}

/// `OSSL_FUNC_cipher_gettable_ctx_params`
fn gettable_ctx_params<'a, A: AesGcm>(_: Ctx<'a, Context>, provctx: ProvCtx) -> Params<'a> {
    GettableCtxParams::pass(None::<&StockContext<A>>, provctx)
}

/// `OSSL_FUNC_cipher_settable_ctx_params`
fn settable_ctx_params<'a, A: AesGcm>(_: Ctx<'a, Context>, provctx: ProvCtx) -> Params<'a> {
    SettableCtxParams::pass(None::<&StockContext<A>>, provctx)
}
