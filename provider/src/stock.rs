//! OpenSSL's own default provider, loaded in the module's own library context.
//!
//! A private context keeps us out of the application's property settings (a child context would
//! mirror them, and would send our own requests back to us). It is made once per process and
//! never freed: objects of it may outlive every one of our provider instances, and `libcrypto`
//! at exit does not ask for it. What runs in it, and what in the application's, is for
//! [`instance`](crate::instance) to say.

use std::ffi::{CStr, c_char, c_int, c_void};

use once_cell::race::OnceBox;

use crate::ffi::{self, Algorithm, Callback, Dispatch, LibCtx, Provider};

/// The default provider and what it offers.
pub struct Stock {
    libctx: *mut LibCtx,
    provider: *const Provider,
    provctx: *mut c_void,
}

// SAFETY: the provider and its context are never freed, and OpenSSL's provider functions may be
// called from any thread.
unsafe impl Send for Stock {}
// SAFETY: as above.
unsafe impl Sync for Stock {}

/// The process's stock provider; None if it cannot be loaded.
pub fn stock() -> Option<&'static Stock> {
    static STOCK: OnceBox<Option<Stock>> = OnceBox::new();
    STOCK.get_or_init(|| Box::new(Stock::load())).as_ref()
}

impl Drop for Stock {
    /// Only of one that lost the race to be the process's.
    fn drop(&mut self) {
        // SAFETY: nobody has seen the provider or its context.
        unsafe {
            ffi::OSSL_PROVIDER_unload(self.provider.cast_mut());
            ffi::OSSL_LIB_CTX_free(self.libctx);
        }
    }
}

impl Stock {
    fn load() -> Option<Stock> {
        // SAFETY: plain constructor.
        let libctx: *mut LibCtx = unsafe { ffi::OSSL_LIB_CTX_new() };
        if libctx.is_null() {
            return None;
        }
        // SAFETY: `libctx` is valid and the name is a C string.
        let provider = unsafe { ffi::OSSL_PROVIDER_load(libctx, c"default".as_ptr()) };
        if provider.is_null() {
            // SAFETY: nothing refers to `libctx` yet.
            unsafe { ffi::OSSL_LIB_CTX_free(libctx) };
            return None;
        }
        // SAFETY: `provider` was just loaded.
        let provctx = unsafe { ffi::OSSL_PROVIDER_get0_provider_ctx(provider) };
        if provctx.is_null() {
            // SAFETY: nothing else refers to the provider or its context yet.
            unsafe {
                ffi::OSSL_PROVIDER_unload(provider);
                ffi::OSSL_LIB_CTX_free(libctx);
            }
            return None;
        }
        Some(Stock {
            libctx,
            provider,
            provctx,
        })
    }

    /// The default provider's own context (`PROV_CTX`).
    pub fn provctx(&self) -> *mut c_void {
        self.provctx
    }

    /// The default provider's own functions, which tell it from others.
    pub fn dispatch(&self) -> *const Dispatch {
        // SAFETY: the provider stays loaded.
        unsafe { ffi::OSSL_PROVIDER_get0_dispatch(self.provider) }
    }

    /// Tells `callback` what the default provider has of a capability.
    ///
    /// # Safety
    /// `capability` is a C string, and `callback` may be called with `arg`.
    pub unsafe fn capabilities(
        &self,
        capability: *const c_char,
        callback: Callback,
        arg: *mut c_void,
    ) -> c_int {
        // SAFETY: by contract; the provider stays loaded.
        unsafe { ffi::OSSL_PROVIDER_get_capabilities(self.provider, capability, callback, arg) }
    }

    /// The stock implementation of `name` (one of its names, exactly spelt) for `operation`.
    pub fn algorithm(&self, operation: c_int, name: &CStr) -> Option<Algorithm> {
        let mut no_cache = 0;
        // SAFETY: the provider stays loaded; the answer is a static array ended by NULL names.
        let mut next =
            unsafe { ffi::OSSL_PROVIDER_query_operation(self.provider, operation, &mut no_cache) };
        if next.is_null() {
            return None;
        }
        loop {
            // SAFETY: `next` points into the array; we stop at its end.
            let algorithm = unsafe { *next };
            if algorithm.names.is_null() {
                return None;
            }
            // SAFETY: names are static C strings.
            let names = unsafe { CStr::from_ptr(algorithm.names) };
            if names
                .to_bytes()
                .split(|&c| c == b':')
                .any(|n| n == name.to_bytes())
            {
                return Some(algorithm);
            }
            // SAFETY: the end has not been reached.
            next = unsafe { next.add(1) };
        }
    }
}

/// The entries of an algorithm's dispatch table, without its end.
pub fn entries(algorithm: &Algorithm) -> Vec<Dispatch> {
    // SAFETY: dispatch tables of algorithms are static and end with id 0.
    unsafe { entries_of(algorithm.implementation) }
}

/// The entries of a dispatch table, without its end.
///
/// # Safety
/// `next` points to a table that ends with id 0.
pub unsafe fn entries_of(mut next: *const Dispatch) -> Vec<Dispatch> {
    let mut table = Vec::new();
    loop {
        // SAFETY: not beyond the end, where we stop.
        let entry = unsafe { *next };
        if entry.id == 0 {
            return table;
        }
        table.push(entry);
        // SAFETY: the end has not been reached.
        next = unsafe { next.add(1) };
    }
}
