//! The functions of dispatch tables, by operation.

use std::ffi::{c_char, c_int, c_uchar, c_void};

use super::types::*;

/// Declares functions of dispatch tables, each a type that ties its id to its C type.
macro_rules! dispatched {
    ($($(#[$doc:meta])* $name:ident = $id:literal: fn($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(unsafe extern "C" fn($($arg: $type),*) $(-> $result)?);

        #[allow(dead_code)]
        impl $name {
            pub const ID: c_int = $id;

            /// This function of a table of its operation, if the table has it.
            pub fn of(table: &[Dispatch]) -> Option<Self> {
                let function = table.iter().find(|entry| entry.id == Self::ID)?.function?;
                // SAFETY: in a table of its operation the function with this id has this type
                // (core_dispatch.h).
                Some(Self(unsafe {
                    std::mem::transmute::<Function, unsafe extern "C" fn($($type),*) $(-> $result)?>(function)
                }))
            }

            /// An entry of a dispatch table.
            pub const fn entry(function: unsafe extern "C" fn($($type),*) $(-> $result)?) -> Dispatch {
                Dispatch {
                    id: Self::ID,
                    // SAFETY: OSSL_DISPATCH stores functions of all types as `Function`, and
                    // libcrypto casts each back to the type that belongs to its id.
                    function: Some(unsafe {
                        std::mem::transmute::<unsafe extern "C" fn($($type),*) $(-> $result)?, Function>(function)
                    }),
                }
            }

            /// Calls it.
            ///
            /// # Safety
            /// The arguments are as provider-base(7), or the page of the operation, demands.
            pub unsafe fn call(self, $($arg: $type),*) $(-> $result)? {
                // SAFETY: by contract.
                unsafe { (self.0)($($arg),*) }
            }
        }
    )*};
}

/// The provider's own functions, and those it is given (`OSSL_FUNC_PROVIDER_*`,
/// `OSSL_FUNC_CORE_*`).
pub mod provider {
    use super::*;
    dispatched! {
        CoreGetParams = 2: fn(handle: *const CoreHandle, params: *mut Param) -> c_int;
        CoreNewError = 5: fn(handle: *const CoreHandle);
        CoreSetErrorDebug = 6: fn(handle: *const CoreHandle, file: *const c_char, line: c_int, function: *const c_char);
        CoreVsetError = 7: fn(handle: *const CoreHandle, reason: u32, format: *const c_char, arguments: *mut c_void);
        RegisterChildCb = 105: fn(handle: *const CoreHandle, create: ProviderCallback, remove: ProviderCallback, properties: PropertiesCallback, data: *mut c_void) -> c_int;
        DeregisterChildCb = 106: fn(handle: *const CoreHandle);
        ProviderGet0ProviderCtx = 108: fn(provider: *const CoreHandle) -> *mut c_void;
        ProviderGet0Dispatch = 109: fn(provider: *const CoreHandle) -> *const Dispatch;
        ProviderUpRef = 110: fn(provider: *const CoreHandle, activate: c_int) -> c_int;
        ProviderFree = 111: fn(provider: *const CoreHandle, deactivate: c_int) -> c_int;
        Teardown = 1024: fn(provctx: *mut c_void);
        GettableParams = 1025: fn(provctx: *mut c_void) -> *const Param;
        GetParams = 1026: fn(provctx: *mut c_void, params: *mut Param) -> c_int;
        QueryOperation = 1027: fn(provctx: *mut c_void, operation: c_int, no_cache: *mut c_int) -> *const Algorithm;
        GetCapabilities = 1030: fn(provctx: *mut c_void, capability: *const c_char, callback: Callback, arg: *mut c_void) -> c_int;
    }
}

/// Key management functions (`OSSL_FUNC_KEYMGMT_*`).
pub mod keymgmt {
    use super::*;
    dispatched! {
        New = 1: fn(provctx: *mut c_void) -> *mut c_void;
        GenInit = 2: fn(provctx: *mut c_void, selection: c_int, params: *const Param) -> *mut c_void;
        GenSetTemplate = 3: fn(genctx: *mut c_void, template: *mut c_void) -> c_int;
        GenSetParams = 4: fn(genctx: *mut c_void, params: *const Param) -> c_int;
        GenSettableParams = 5: fn(genctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        Gen = 6: fn(genctx: *mut c_void, callback: Option<Callback>, arg: *mut c_void) -> *mut c_void;
        GenCleanup = 7: fn(genctx: *mut c_void);
        Load = 8: fn(reference: *const c_void, size: usize) -> *mut c_void;
        Free = 10: fn(keydata: *mut c_void);
        GetParams = 11: fn(keydata: *mut c_void, params: *mut Param) -> c_int;
        GenGetParams = 15: fn(genctx: *mut c_void, params: *mut Param) -> c_int;
        GenGettableParams = 16: fn(genctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        Import = 40: fn(keydata: *mut c_void, selection: c_int, params: *const Param) -> c_int;
        Export = 42: fn(keydata: *mut c_void, selection: c_int, callback: Callback, arg: *mut c_void) -> c_int;
        Dup = 44: fn(keydata: *const c_void, selection: c_int) -> *mut c_void;
    }
}

/// Key derivation functions (`OSSL_FUNC_KDF_*`).
pub mod kdf {
    use super::*;
    dispatched! {
        Newctx = 1: fn(provctx: *mut c_void) -> *mut c_void;
        Dupctx = 2: fn(ctx: *mut c_void) -> *mut c_void;
        Freectx = 3: fn(ctx: *mut c_void);
        Reset = 4: fn(ctx: *mut c_void);
        Derive = 5: fn(ctx: *mut c_void, key: *mut c_uchar, length: usize, params: *const Param) -> c_int;
        GettableCtxParams = 7: fn(ctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        SettableCtxParams = 8: fn(ctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        GetCtxParams = 10: fn(ctx: *mut c_void, params: *mut Param) -> c_int;
        SetCtxParams = 11: fn(ctx: *mut c_void, params: *const Param) -> c_int;
    }
}

/// Key exchange functions (`OSSL_FUNC_KEYEXCH_*`).
pub mod keyexch {
    use super::*;
    dispatched! {
        Newctx = 1: fn(provctx: *mut c_void) -> *mut c_void;
        Init = 2: fn(ctx: *mut c_void, key: *mut c_void, params: *const Param) -> c_int;
        Derive = 3: fn(ctx: *mut c_void, secret: *mut c_uchar, length: *mut usize, size: usize) -> c_int;
        SetPeer = 4: fn(ctx: *mut c_void, key: *mut c_void) -> c_int;
        Freectx = 5: fn(ctx: *mut c_void);
        Dupctx = 6: fn(ctx: *mut c_void) -> *mut c_void;
        SetCtxParams = 7: fn(ctx: *mut c_void, params: *const Param) -> c_int;
        SettableCtxParams = 8: fn(ctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        GetCtxParams = 9: fn(ctx: *mut c_void, params: *mut Param) -> c_int;
        GettableCtxParams = 10: fn(ctx: *mut c_void, provctx: *mut c_void) -> *const Param;
    }
}

/// Signature functions (`OSSL_FUNC_SIGNATURE_*`); those above 25 are of OpenSSL 3.4.
pub mod signature {
    use super::*;
    dispatched! {
        Newctx = 1: fn(provctx: *mut c_void, propq: *const c_char) -> *mut c_void;
        SignInit = 2: fn(ctx: *mut c_void, key: *mut c_void, params: *const Param) -> c_int;
        Sign = 3: fn(ctx: *mut c_void, signature: *mut c_uchar, length: *mut usize, size: usize, data: *const c_uchar, data_length: usize) -> c_int;
        VerifyInit = 4: fn(ctx: *mut c_void, key: *mut c_void, params: *const Param) -> c_int;
        Verify = 5: fn(ctx: *mut c_void, signature: *const c_uchar, length: usize, data: *const c_uchar, data_length: usize) -> c_int;
        DigestSignInit = 8: fn(ctx: *mut c_void, digest: *const c_char, key: *mut c_void, params: *const Param) -> c_int;
        DigestSign = 11: fn(ctx: *mut c_void, signature: *mut c_uchar, length: *mut usize, size: usize, data: *const c_uchar, data_length: usize) -> c_int;
        DigestVerifyInit = 12: fn(ctx: *mut c_void, digest: *const c_char, key: *mut c_void, params: *const Param) -> c_int;
        DigestVerify = 15: fn(ctx: *mut c_void, signature: *const c_uchar, length: usize, data: *const c_uchar, data_length: usize) -> c_int;
        Freectx = 16: fn(ctx: *mut c_void);
        Dupctx = 17: fn(ctx: *mut c_void) -> *mut c_void;
        GetCtxParams = 18: fn(ctx: *mut c_void, params: *mut Param) -> c_int;
        GettableCtxParams = 19: fn(ctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        SetCtxParams = 20: fn(ctx: *mut c_void, params: *const Param) -> c_int;
        SettableCtxParams = 21: fn(ctx: *mut c_void, provctx: *mut c_void) -> *const Param;
        QueryKeyTypes = 26: fn() -> *const *const c_char;
        SignMessageInit = 27: fn(ctx: *mut c_void, key: *mut c_void, params: *const Param) -> c_int;
        VerifyMessageInit = 30: fn(ctx: *mut c_void, key: *mut c_void, params: *const Param) -> c_int;
    }
}
