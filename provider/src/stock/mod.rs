//! OpenSSL's own default provider, loaded in the module's own library context.
//!
//! The application's property settings have no effect in this private context. A child context
//! would mirror them, and would send the module's own requests back to the module. The private
//! context is made once per process and never freed: its objects may outlive every provider
//! instance of the module, and `libcrypto` does not need it freed at exit.
//! [`instance`](crate::host::instance) decides whether a call runs in it or in the application's.

pub mod families;

use std::ffi::{CStr, c_int};

use once_cell::race::OnceBox;

use crate::ffi::{
    self, Algorithm, Dispatch, LibCtx, Owned, Passed as _, ProvCtx, Provider, Receiver, Text,
};

/// The default provider in its library context. It is dropped only if another thread was faster to
/// make it: first the provider, then its library context.
pub struct Stock {
    provider: Owned<Provider>,
    library: Owned<LibCtx>,
    provctx: ProvCtx,
}

// SAFETY: the provider and its context are never freed, and OpenSSL's provider functions may be
// called from any thread.
unsafe impl Send for Stock {}
// SAFETY: as above.
unsafe impl Sync for Stock {}

/// Returns the module's own default provider; None if it cannot be loaded.
pub fn stock() -> Option<&'static Stock> {
    static STOCK: OnceBox<Option<Stock>> = OnceBox::new();
    STOCK.get_or_init(|| Box::new(Stock::load())).as_ref()
}

impl Stock {
    fn load() -> Option<Stock> {
        let mut libctx = ffi::OSSL_LIB_CTX_new()?;
        // SAFETY: the default provider is part of libcrypto, so its tables are never unmapped; it
        // is dropped before its library context.
        let provider = unsafe { ffi::OSSL_PROVIDER_load(&mut libctx, Text::new(c"default")) }?;
        let provctx = ffi::OSSL_PROVIDER_get0_provider_ctx(&provider);
        if provctx.is_null() {
            return None;
        }
        Some(Stock {
            // SAFETY: the provider's own context, which stays as long as the provider is loaded.
            provctx: unsafe { ProvCtx::new(provctx) },
            provider,
            library: libctx,
        })
    }

    /// Returns the default provider's own context (`PROV_CTX`).
    pub fn provctx(&self) -> ProvCtx {
        self.provctx
    }

    /// Returns the module's own library context.
    pub fn library(&self) -> &LibCtx {
        &self.library
    }

    /// Returns the default provider's own functions, by which it is recognised.
    pub fn dispatch(&self) -> *const Dispatch {
        ffi::OSSL_PROVIDER_get0_dispatch(&self.provider)
    }

    /// Passes the default provider's entries of a capability to `receiver`.
    pub fn capabilities(&self, capability: &CStr, receiver: Receiver<'_>) -> c_int {
        let (callback, arg) = receiver.into_raw();
        let capability = Text::new(capability);
        // SAFETY: the callback and its argument belong together.
        unsafe { ffi::OSSL_PROVIDER_get_capabilities(&self.provider, capability, callback, arg) }
    }

    /// Returns all algorithms of OpenSSL's default provider for an operation.
    pub fn algorithms(&self, operation: c_int) -> impl Iterator<Item = &'static Algorithm> {
        ffi::OSSL_PROVIDER_query_operation(&self.provider, operation, &mut 0).iter()
    }

    /// Returns OpenSSL's own implementation of `name` (one of its names, exactly spelt) for
    /// `operation`.
    pub fn algorithm(&self, operation: c_int, name: &CStr) -> Option<Algorithm> {
        let mut algorithms = self.algorithms(operation);
        algorithms
            .find(|algorithm| has_name(algorithm, name))
            .copied()
    }
}

/// Returns whether one of the names of an algorithm is `name`.
pub fn has_name(algorithm: &Algorithm, name: &CStr) -> bool {
    let mut names = names(algorithm).to_bytes().split(|&byte| byte == b':');
    names.any(|found| found == name.to_bytes())
}

/// Returns the names of an algorithm, with colons between.
pub fn names(algorithm: &Algorithm) -> &'static CStr {
    algorithm.names.map_or(c"", Text::to_cstr)
}

/// Returns the entries of an algorithm's dispatch table, without its end.
pub fn entries(algorithm: &Algorithm) -> Vec<Dispatch> {
    algorithm.implementation.iter().copied().collect()
}
