//! Key derivation of TLS 1.3, which a handshake does some twenty times.
//!
//! OpenSSL fetches a digest and sets up contexts for each derivation, which takes longer than the
//! hashing. The module omits these steps if a derivation gets all its parameters at once, as libssl
//! gives them. The context notes its parameters, as OpenSSL's does. Every other call is left to
//! OpenSSL's own function, with a context of OpenSSL's that first receives the noted parameters: an
//! unusual call gets OpenSSL's result, or its error.

mod hkdf;
mod inputs;
mod kept;

use std::ffi::c_int;

use lockstep_engine::ExternalEvent;
use lockstep_kernels::backend::Backend;
use lockstep_kernels::hmac::{Hash, TAG_BYTES};
use lockstep_kernels::{clear_registers, wipe};

use crate::ffi::kdf::{
    Derive, Dupctx, Freectx, GetCtxParams, GettableCtxParams, Newctx, Reset, SetCtxParams,
    SettableCtxParams,
};
use crate::ffi::{Ctx, Dispatch, Params, ParamsMut, ProvCtx, Room, StockContext, StockCtx};
use crate::host::memory;
use crate::process;
use crate::stock::families::Tls13Kdf;

use inputs::Inputs;

/// The module's inputs, and a context of OpenSSL once it is needed.
struct Context {
    provctx: ProvCtx,
    stock: Option<StockCtx<Tls13Kdf>>,
    state: State,
    inputs: Inputs,
}

#[derive(PartialEq)]
enum State {
    /// Nothing was set yet.
    Fresh,
    /// OpenSSL's context has none of the parameters: they are all in `inputs`.
    Ours,
    /// OpenSSL's context has all parameters.
    Stock,
}

/// All functions that OpenSSL's table may have, with the module's contexts.
pub fn wrappers() -> [Dispatch; 9] {
    [
        Newctx::entry(newctx),
        Dupctx::entry(dupctx),
        Freectx::entry(freectx),
        Reset::entry(reset),
        Derive::entry(derive),
        SetCtxParams::entry(set_ctx_params),
        SettableCtxParams::entry(settable_ctx_params),
        GetCtxParams::entry(get_ctx_params),
        GettableCtxParams::entry(gettable_ctx_params),
    ]
}

/// Numbers of functions that libcrypto can do without. If the table has no `OSSL_FUNC_kdf_set_skey`
/// and `OSSL_FUNC_kdf_derive_skey` (OpenSSL 3.6), libcrypto takes the bytes of an `EVP_SKEY`, and
/// makes one of the derived bytes.
pub const LEFT_OUT: &[c_int] = &[12, 13];

/// Returns whether the module is faster at all: SHA-384, which has no instructions of its own,
/// needs vectors.
pub fn is_fast() -> bool {
    Hash::Sha384.is_fast()
}

impl Context {
    fn new(provctx: ProvCtx, stock: Option<StockCtx<Tls13Kdf>>, state: State) -> Box<Context> {
        Box::new(Context {
            provctx,
            stock,
            state,
            inputs: Inputs::EMPTY,
        })
    }

    /// Notes the parameters and derives `out` from them; returns false if the derivation is left to
    /// OpenSSL.
    fn derive(&mut self, params: Params<'_>, out: &mut [u8]) -> bool {
        if !self.inputs.read(params) {
            return false;
        }
        let backend = process::backend().unwrap_or(Backend::PORTABLE);
        let derived = self.inputs.derive(backend, out);
        clear_registers();
        if derived {
            process::count(ExternalEvent::Derivation);
        }
        derived
    }

    /// Returns OpenSSL's context, which has all parameters from now on; None if it refuses them.
    fn handed_over(&mut self) -> Option<&StockContext<Tls13Kdf>> {
        if self.stock.is_none() {
            self.stock = Newctx::pass(self.provctx);
        }
        let stock: &StockContext<Tls13Kdf> = self.stock.as_deref()?;
        if self.state == State::Ours {
            if SetCtxParams::pass(stock, self.inputs.params().as_params()) != 1 {
                return None;
            }
            self.inputs.clear();
        }
        self.state = State::Stock;
        Some(stock)
    }
}

/// `OSSL_FUNC_kdf_newctx`
fn newctx(provctx: ProvCtx) -> Option<Box<Context>> {
    if memory::is_nearly_gone() {
        return None;
    }
    Some(Context::new(provctx, None, State::Fresh))
}

/// `OSSL_FUNC_kdf_dupctx`
fn dupctx(ctx: Ctx<'_, Context>) -> Option<Box<Context>> {
    let ours = ctx.filter(|_| !memory::is_nearly_gone())?;
    let copy: StockCtx<Tls13Kdf> = Dupctx::pass(ours.handed_over()?)?;
    Some(Context::new(ours.provctx, Some(copy), State::Stock))
}

/// `OSSL_FUNC_kdf_freectx`
fn freectx(ctx: Option<Box<Context>>) {
    drop(ctx);
}

/// `OSSL_FUNC_kdf_reset`
fn reset(ctx: Ctx<'_, Context>) {
    let Some(ours) = ctx else { return };
    if let Some(stock) = &ours.stock {
        Reset::pass(&**stock);
    }
    ours.inputs.clear();
    ours.state = State::Fresh;
}

/// `OSSL_FUNC_kdf_derive`
fn derive(ctx: Ctx<'_, Context>, out: Room<'_>, params: Params<'_>) -> c_int {
    let Some(ours) = ctx else { return 0 };
    if ours.state == State::Fresh
        && let Some(size @ ..=TAG_BYTES) = out.size()
    {
        let mut derived = [0; TAG_BYTES];
        let derived = &mut derived[..size];
        // The output may be in the place of the inputs, so the inputs are copied before it is
        // written.
        if ours.derive(params, derived) {
            // The next derivation may give only some parameters; it is left to OpenSSL.
            ours.state = State::Ours;
            let written = out.write(derived);
            wipe(derived);
            return c_int::from(written);
        }
        ours.inputs.clear();
    }
    ours.handed_over()
        .map_or(0, |stock| Derive::pass(stock, out, params))
}

/// `OSSL_FUNC_kdf_set_ctx_params`
fn set_ctx_params(ctx: Ctx<'_, Context>, params: Params<'_>) -> c_int {
    let stock = ctx.and_then(Context::handed_over);
    stock.map_or(0, |stock| SetCtxParams::pass(stock, params))
}

/// `OSSL_FUNC_kdf_get_ctx_params`
fn get_ctx_params(ctx: Ctx<'_, Context>, params: ParamsMut<'_>) -> c_int {
    let stock = ctx.and_then(Context::handed_over);
    stock.map_or(0, |stock| GetCtxParams::pass(stock, params))
}

/// `OSSL_FUNC_kdf_settable_ctx_params`
fn settable_ctx_params<'a>(ctx: Ctx<'a, Context>, provctx: ProvCtx) -> Params<'a> {
    SettableCtxParams::pass(ctx.and_then(Context::handed_over), provctx)
}

/// `OSSL_FUNC_kdf_gettable_ctx_params`
fn gettable_ctx_params<'a>(ctx: Ctx<'a, Context>, provctx: ProvCtx) -> Params<'a> {
    GettableCtxParams::pass(ctx.and_then(Context::handed_over), provctx)
}
