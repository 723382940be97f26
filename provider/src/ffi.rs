//! The part of OpenSSL's C interface that the module uses, written by hand.
//!
//! Identifiers and struct layouts are those of `openssl/core.h`, `openssl/core_dispatch.h`,
//! `openssl/rsa.h`, `openssl/ec.h` and `openssl/async.h`; they are ABI-stable from OpenSSL 3.0 on.

use std::ffi::{c_char, c_int, c_long, c_uchar, c_uint, c_void};

/// Declares C types that are only ever handled by pointer.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name { _private: [u8; 0] }
    )*};
}

opaque! {
    /// `OSSL_CORE_HANDLE`: libcrypto's side of this provider.
    CoreHandle;
    /// `OSSL_LIB_CTX`
    LibCtx;
    /// `CONF`: a parsed configuration file.
    Conf;
    /// `OPENSSL_STACK`
    Stack;
    /// `OSSL_PROVIDER`
    Provider;
    /// `BIGNUM`
    Bignum;
    /// `BN_CTX`
    BnCtx;
    /// `RSA`
    Rsa;
    /// `RSA_METHOD`
    RsaMethod;
    /// `EC_KEY`
    EcKey;
    /// `EC_KEY_METHOD`
    EcKeyMethod;
    /// `EC_GROUP`
    EcGroup;
    /// `EC_POINT`
    EcPoint;
    /// `ECDSA_SIG`
    EcdsaSig;
    /// `ASYNC_JOB`
    AsyncJob;
    /// `ASYNC_WAIT_CTX`
    AsyncWaitCtx;
    /// `CRYPTO_EX_DATA`
    CryptoExData;
}

/// A C function pointer of unknown type. `OSSL_DISPATCH` stores every function as this.
pub type Function = unsafe extern "C" fn();

/// `OSSL_DISPATCH`: one function of a table that ends with id 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dispatch {
    pub id: c_int,
    pub function: Option<Function>,
}

impl Dispatch {
    pub const END: Dispatch = Dispatch {
        id: 0,
        function: None,
    };
}

/// `OSSL_ALGORITHM`: one implementation in a table that ends with NULL names.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Algorithm {
    pub names: *const c_char,
    pub properties: *const c_char,
    pub implementation: *const Dispatch,
    pub description: *const c_char,
}

impl Algorithm {
    pub const END: Algorithm = Algorithm {
        names: std::ptr::null(),
        properties: std::ptr::null(),
        implementation: std::ptr::null(),
        description: std::ptr::null(),
    };
}

/// `OSSL_PARAM`: one named value of an array that ends with a NULL key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Param {
    pub key: *const c_char,
    pub data_type: c_uint,
    pub data: *mut c_void,
    pub data_size: usize,
    pub return_size: usize,
}

impl Param {
    pub const END: Param = Param {
        key: std::ptr::null(),
        data_type: 0,
        data: std::ptr::null_mut(),
        data_size: 0,
        return_size: 0,
    };
}

/// `OSSL_PARAM_INTEGER`
pub const PARAM_INTEGER: c_uint = 1;
/// `OSSL_PARAM_UTF8_STRING`
pub const PARAM_UTF8_STRING: c_uint = 4;
/// `OSSL_PARAM_OCTET_STRING`
pub const PARAM_OCTET_STRING: c_uint = 5;
/// `OSSL_PARAM_UNMODIFIED`: the size of what was not returned.
pub const PARAM_UNMODIFIED: usize = usize::MAX;
/// `OSSL_PARAM_UNSIGNED_INTEGER`
pub const PARAM_UNSIGNED_INTEGER: c_uint = 2;
/// `OSSL_PARAM_UTF8_PTR`
pub const PARAM_UTF8_PTR: c_uint = 6;

/// Operation ids (`OSSL_OP_*`).
pub mod operation {
    use std::ffi::c_int;
    pub const KDF: c_int = 4;
    pub const KEYMGMT: c_int = 10;
    pub const KEYEXCH: c_int = 11;
    pub const SIGNATURE: c_int = 12;
    pub const ASYM_CIPHER: c_int = 13;
}

/// Modes of HKDF (`EVP_KDF_HKDF_MODE_*`).
pub mod hkdf_mode {
    use std::ffi::c_int;
    pub const EXTRACT_ONLY: c_int = 1;
    pub const EXPAND_ONLY: c_int = 2;
}

/// What `selection` of the key management functions can ask for (`OSSL_KEYMGMT_SELECT_*`).
pub mod select {
    use std::ffi::c_int;
    pub const DOMAIN_PARAMETERS: c_int = 0x04;
    pub const KEYPAIR: c_int = 0x03;
    /// Key pair and all parameters.
    pub const ALL: c_int = 0x87;
}

/// `OSSL_CALLBACK`
pub type Callback = unsafe extern "C" fn(params: *const Param, arg: *mut c_void) -> c_int;

/// Called for a provider that becomes active, or ceases to be.
pub type ProviderCallback =
    unsafe extern "C" fn(provider: *const CoreHandle, data: *mut c_void) -> c_int;
/// Called with the default properties of a library context.
pub type PropertiesCallback =
    unsafe extern "C" fn(query: *const c_char, data: *mut c_void) -> c_int;

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

/// `rsa_mod_exp` of an `RSA_METHOD`: r0 = i^d mod n by the CRT.
pub type RsaModExp =
    unsafe extern "C" fn(*mut Bignum, *const Bignum, *mut Rsa, *mut BnCtx) -> c_int;
/// `rsa_priv_enc` and `rsa_priv_dec` of an `RSA_METHOD`.
pub type RsaPrivate =
    unsafe extern "C" fn(c_int, *const c_uchar, *mut c_uchar, *mut Rsa, c_int) -> c_int;
/// `finish` of an `RSA_METHOD`.
pub type RsaFinish = unsafe extern "C" fn(*mut Rsa) -> c_int;
/// `keygen` of an `EC_KEY_METHOD`.
pub type EcKeygen = unsafe extern "C" fn(*mut EcKey) -> c_int;
/// `compute_key` of an `EC_KEY_METHOD`: allocates the x of a shared point.
pub type EcComputeKey =
    unsafe extern "C" fn(*mut *mut c_uchar, *mut usize, *const EcPoint, *const EcKey) -> c_int;
/// `sign` of an `EC_KEY_METHOD`: a signature as DER.
pub type EcSign = unsafe extern "C" fn(
    c_int,
    *const c_uchar,
    c_int,
    *mut c_uchar,
    *mut c_uint,
    *const Bignum,
    *const Bignum,
    *mut EcKey,
) -> c_int;
/// `sign_setup` of an `EC_KEY_METHOD`: makes a nonce ahead.
pub type EcSignSetup =
    unsafe extern "C" fn(*mut EcKey, *mut BnCtx, *mut *mut Bignum, *mut *mut Bignum) -> c_int;
/// `sign_sig` of an `EC_KEY_METHOD`.
pub type EcSignSig = unsafe extern "C" fn(
    *const c_uchar,
    c_int,
    *const Bignum,
    *const Bignum,
    *mut EcKey,
) -> *mut EcdsaSig;
/// `verify` of an `EC_KEY_METHOD`: decodes for `verify_sig`.
pub type EcVerify =
    unsafe extern "C" fn(c_int, *const c_uchar, c_int, *const c_uchar, c_int, *mut EcKey) -> c_int;
/// `verify_sig` of an `EC_KEY_METHOD`: 1 right, 0 wrong, -1 error.
pub type EcVerifySig =
    unsafe extern "C" fn(*const c_uchar, c_int, *const EcdsaSig, *mut EcKey) -> c_int;
/// `init` of an `EC_KEY_METHOD`.
pub type EcInit = unsafe extern "C" fn(*mut EcKey) -> c_int;
/// `finish` of an `EC_KEY_METHOD`.
pub type EcFinish = unsafe extern "C" fn(*mut EcKey);
/// `copy` of an `EC_KEY_METHOD`.
pub type EcCopy = unsafe extern "C" fn(*mut EcKey, *const EcKey) -> c_int;
/// `set_group` of an `EC_KEY_METHOD`.
pub type EcSetGroup = unsafe extern "C" fn(*mut EcKey, *const EcGroup) -> c_int;
/// `set_private` of an `EC_KEY_METHOD`.
pub type EcSetPrivate = unsafe extern "C" fn(*mut EcKey, *const Bignum) -> c_int;
/// `set_public` of an `EC_KEY_METHOD`.
pub type EcSetPublic = unsafe extern "C" fn(*mut EcKey, *const EcPoint) -> c_int;
/// `CRYPTO_EX_dup`
pub type ExDup = unsafe extern "C" fn(
    to: *mut CryptoExData,
    from: *const CryptoExData,
    from_d: *mut *mut c_void,
    index: c_int,
    argl: c_long,
    argp: *mut c_void,
) -> c_int;
/// `ASYNC_callback_fn`
pub type AsyncCallback = unsafe extern "C" fn(arg: *mut c_void) -> c_int;
/// Cleanup of a wait file descriptor, called when its wait context is freed.
pub type WaitFdCleanup =
    unsafe extern "C" fn(*mut AsyncWaitCtx, key: *const c_void, fd: c_int, data: *mut c_void);

/// The numbers of the functions that belong to the core itself. Those above are functions of the
/// library at large, which a program may have replaced.
pub const CORE_FUNCTIONS: std::ops::RangeInclusive<c_int> = 1..=12;
/// `OPENSSL_VERSION_STRING`: which version `OpenSSL_version` tells, as the core tells its own.
pub const VERSION_STRING: c_int = 6;
/// `ERR_PACK(ERR_LIB_PROV, 0, ERR_R_INIT_FAIL)`
pub const INIT_FAIL: u32 = 57 << 23 | 3 << 18 | 261;

/// `RSA_NO_PADDING`
pub const RSA_NO_PADDING: c_int = 3;
/// `RSA_FLAG_NO_BLINDING`
pub const RSA_FLAG_NO_BLINDING: c_int = 0x0080;
/// `CRYPTO_EX_INDEX_RSA`
pub const EX_INDEX_RSA: c_int = 9;
/// `CRYPTO_EX_INDEX_EC_KEY`
pub const EX_INDEX_EC_KEY: c_int = 8;
/// `NID_X9_62_prime256v1`
pub const NID_P256: c_int = 415;
/// `NID_secp384r1`
pub const NID_P384: c_int = 715;
/// `OPENSSL_EC_NAMED_CURVE`
pub const NAMED_CURVE: c_int = 1;
/// `POINT_CONVERSION_UNCOMPRESSED`
pub const POINT_UNCOMPRESSED: c_int = 4;
/// `ASYNC_STATUS_OK`
pub const ASYNC_STATUS_OK: c_int = 2;

/// `CONF_VALUE`: one line of a configuration file.
#[repr(C)]
pub struct ConfValue {
    pub section: *const c_char,
    pub name: *const c_char,
    pub value: *const c_char,
}

/// Declares functions of libcrypto, and lists them with the addresses that they are bound to.
macro_rules! imported {
    ($(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(pub fn $name($($arg: $type),*) $(-> $result)?;)*
        }

        /// Every function of libcrypto that we call: its name, and its address. The linker takes
        /// the address from the global offset table, so it is that of the function itself.
        pub const IMPORTS: &[(&str, fn() -> *const c_void)] =
            &[$((stringify!($name), || $name as *const c_void)),*];
    };
}

imported! {
    pub fn OSSL_LIB_CTX_new() -> *mut LibCtx;
    pub fn OSSL_LIB_CTX_free(ctx: *mut LibCtx);
    pub fn OSSL_PROVIDER_load(ctx: *mut LibCtx, name: *const c_char) -> *mut Provider;
    pub fn OSSL_PROVIDER_unload(provider: *mut Provider) -> c_int;
    pub fn OSSL_PROVIDER_get0_provider_ctx(provider: *const Provider) -> *mut c_void;
    pub fn OSSL_PROVIDER_get0_dispatch(provider: *const Provider) -> *const Dispatch;
    pub fn OSSL_PROVIDER_query_operation(
        provider: *const Provider,
        operation: c_int,
        no_cache: *mut c_int,
    ) -> *const Algorithm;
    pub fn OSSL_PROVIDER_get_capabilities(
        provider: *const Provider,
        capability: *const c_char,
        callback: Callback,
        arg: *mut c_void,
    ) -> c_int;

    pub fn OpenSSL_version(which: c_int) -> *const c_char;
    pub fn ERR_set_mark() -> c_int;
    pub fn ERR_pop_to_mark() -> c_int;
    pub fn CONF_get1_default_config_file() -> *mut c_char;
    pub fn NCONF_new(method: *mut c_void) -> *mut Conf;
    pub fn NCONF_free(conf: *mut Conf);
    pub fn NCONF_load(conf: *mut Conf, file: *const c_char, line: *mut c_long) -> c_int;
    pub fn NCONF_get_section_names(conf: *const Conf) -> *mut Stack;
    pub fn NCONF_get_section(conf: *const Conf, section: *const c_char) -> *mut Stack;
    pub fn OPENSSL_sk_num(stack: *const Stack) -> c_int;
    pub fn OPENSSL_sk_value(stack: *const Stack, index: c_int) -> *mut c_void;
    pub fn OPENSSL_sk_free(stack: *mut Stack);

    pub fn CRYPTO_free(memory: *mut c_void, file: *const c_char, line: c_int);
    pub fn CRYPTO_malloc(size: usize, file: *const c_char, line: c_int) -> *mut c_void;
    pub fn BN_new() -> *mut Bignum;
    pub fn BN_clear_free(a: *mut Bignum);
    pub fn BN_is_one(a: *const Bignum) -> c_int;
    pub fn BN_is_negative(a: *const Bignum) -> c_int;
    pub fn BN_num_bits(a: *const Bignum) -> c_int;
    pub fn BN_bn2binpad(a: *const Bignum, to: *mut c_uchar, len: c_int) -> c_int;
    pub fn BN_bin2bn(from: *const c_uchar, len: c_int, ret: *mut Bignum) -> *mut Bignum;
    pub fn BN_clear_bit(a: *mut Bignum, n: c_int) -> c_int;

    pub fn RSA_PKCS1_OpenSSL() -> *const RsaMethod;
    pub fn RSA_meth_dup(method: *const RsaMethod) -> *mut RsaMethod;
    pub fn RSA_meth_set1_name(method: *mut RsaMethod, name: *const c_char) -> c_int;
    pub fn RSA_meth_get_mod_exp(method: *const RsaMethod) -> Option<RsaModExp>;
    pub fn RSA_meth_set_mod_exp(method: *mut RsaMethod, f: RsaModExp) -> c_int;
    pub fn RSA_meth_get_priv_enc(method: *const RsaMethod) -> Option<RsaPrivate>;
    pub fn RSA_meth_set_priv_enc(method: *mut RsaMethod, f: RsaPrivate) -> c_int;
    pub fn RSA_meth_get_priv_dec(method: *const RsaMethod) -> Option<RsaPrivate>;
    pub fn RSA_meth_set_priv_dec(method: *mut RsaMethod, f: RsaPrivate) -> c_int;
    pub fn RSA_meth_get_finish(method: *const RsaMethod) -> Option<RsaFinish>;
    pub fn RSA_meth_set_finish(method: *mut RsaMethod, f: RsaFinish) -> c_int;
    pub fn RSA_set_method(rsa: *mut Rsa, method: *const RsaMethod) -> c_int;
    pub fn RSA_get_method(rsa: *const Rsa) -> *const RsaMethod;
    pub fn RSA_test_flags(rsa: *const Rsa, flags: c_int) -> c_int;
    pub fn RSA_clear_flags(rsa: *mut Rsa, flags: c_int);
    pub fn RSA_set_flags(rsa: *mut Rsa, flags: c_int);
    pub fn RSA_set_ex_data(rsa: *mut Rsa, index: c_int, data: *mut c_void) -> c_int;
    pub fn RSA_get_ex_data(rsa: *const Rsa, index: c_int) -> *mut c_void;
    pub fn RSA_get0_key(
        rsa: *const Rsa,
        n: *mut *const Bignum,
        e: *mut *const Bignum,
        d: *mut *const Bignum,
    );
    pub fn RSA_get0_factors(rsa: *const Rsa, p: *mut *const Bignum, q: *mut *const Bignum);
    pub fn RSA_get0_crt_params(
        rsa: *const Rsa,
        dmp1: *mut *const Bignum,
        dmq1: *mut *const Bignum,
        iqmp: *mut *const Bignum,
    );
    pub fn RSA_get_multi_prime_extra_count(rsa: *const Rsa) -> c_int;
    pub fn RSA_private_encrypt(
        len: c_int,
        from: *const c_uchar,
        to: *mut c_uchar,
        rsa: *mut Rsa,
        padding: c_int,
    ) -> c_int;
    pub fn RSA_private_decrypt(
        len: c_int,
        from: *const c_uchar,
        to: *mut c_uchar,
        rsa: *mut Rsa,
        padding: c_int,
    ) -> c_int;
    pub fn CRYPTO_get_ex_new_index(
        class: c_int,
        argl: c_long,
        argp: *mut c_void,
        new: Option<Function>,
        dup: Option<ExDup>,
        free: Option<Function>,
    ) -> c_int;

    pub fn EC_KEY_OpenSSL() -> *const EcKeyMethod;
    pub fn EC_KEY_METHOD_new(from: *const EcKeyMethod) -> *mut EcKeyMethod;
    pub fn EC_KEY_METHOD_set_init(
        method: *mut EcKeyMethod,
        init: Option<EcInit>,
        finish: Option<EcFinish>,
        copy: Option<EcCopy>,
        set_group: Option<EcSetGroup>,
        set_private: Option<EcSetPrivate>,
        set_public: Option<EcSetPublic>,
    );
    pub fn EC_KEY_METHOD_get_keygen(method: *const EcKeyMethod, keygen: *mut Option<EcKeygen>);
    pub fn EC_KEY_METHOD_set_keygen(method: *mut EcKeyMethod, keygen: Option<EcKeygen>);
    pub fn EC_KEY_METHOD_get_compute_key(
        method: *const EcKeyMethod,
        compute: *mut Option<EcComputeKey>,
    );
    pub fn EC_KEY_METHOD_set_compute_key(method: *mut EcKeyMethod, compute: Option<EcComputeKey>);
    pub fn EC_KEY_METHOD_get_sign(
        method: *const EcKeyMethod,
        sign: *mut Option<EcSign>,
        setup: *mut Option<EcSignSetup>,
        sign_sig: *mut Option<EcSignSig>,
    );
    pub fn EC_KEY_METHOD_set_sign(
        method: *mut EcKeyMethod,
        sign: Option<EcSign>,
        setup: Option<EcSignSetup>,
        sign_sig: Option<EcSignSig>,
    );
    pub fn EC_KEY_METHOD_get_verify(
        method: *const EcKeyMethod,
        verify: *mut Option<EcVerify>,
        verify_sig: *mut Option<EcVerifySig>,
    );
    pub fn EC_KEY_METHOD_set_verify(
        method: *mut EcKeyMethod,
        verify: Option<EcVerify>,
        verify_sig: Option<EcVerifySig>,
    );
    pub fn EC_KEY_set_method(key: *mut EcKey, method: *const EcKeyMethod) -> c_int;
    pub fn EC_KEY_get_method(key: *const EcKey) -> *const EcKeyMethod;
    pub fn EC_KEY_set_ex_data(key: *mut EcKey, index: c_int, data: *mut c_void) -> c_int;
    pub fn EC_KEY_get_ex_data(key: *const EcKey, index: c_int) -> *mut c_void;
    pub fn EC_KEY_get0_group(key: *const EcKey) -> *const EcGroup;
    pub fn EC_KEY_get0_private_key(key: *const EcKey) -> *const Bignum;
    pub fn EC_KEY_get0_public_key(key: *const EcKey) -> *const EcPoint;
    pub fn EC_KEY_set_private_key(key: *mut EcKey, private: *const Bignum) -> c_int;
    pub fn EC_KEY_set_public_key(key: *mut EcKey, public: *const EcPoint) -> c_int;
    pub fn EC_KEY_generate_key(key: *mut EcKey) -> c_int;
    pub fn EC_GROUP_get_curve_name(group: *const EcGroup) -> c_int;
    pub fn EC_GROUP_get_asn1_flag(group: *const EcGroup) -> c_int;
    pub fn EC_POINT_new(group: *const EcGroup) -> *mut EcPoint;
    pub fn EC_POINT_free(point: *mut EcPoint);
    pub fn EC_POINT_oct2point(
        group: *const EcGroup,
        point: *mut EcPoint,
        bytes: *const c_uchar,
        length: usize,
        ctx: *mut BnCtx,
    ) -> c_int;
    pub fn EC_POINT_point2oct(
        group: *const EcGroup,
        point: *const EcPoint,
        form: c_int,
        bytes: *mut c_uchar,
        length: usize,
        ctx: *mut BnCtx,
    ) -> usize;
    pub fn EC_POINT_get_Jprojective_coordinates_GFp(
        group: *const EcGroup,
        point: *const EcPoint,
        x: *mut Bignum,
        y: *mut Bignum,
        z: *mut Bignum,
        ctx: *mut BnCtx,
    ) -> c_int;
    pub fn ECDSA_SIG_new() -> *mut EcdsaSig;
    pub fn ECDSA_SIG_free(signature: *mut EcdsaSig);
    pub fn i2d_ECDSA_SIG(signature: *const EcdsaSig, output: *mut *mut c_uchar) -> c_int;
    pub fn ECDSA_SIG_set0(signature: *mut EcdsaSig, r: *mut Bignum, s: *mut Bignum) -> c_int;
    pub fn ECDSA_SIG_get0(signature: *const EcdsaSig, r: *mut *const Bignum, s: *mut *const Bignum);

    pub fn ASYNC_get_current_job() -> *mut AsyncJob;
    pub fn ASYNC_get_wait_ctx(job: *mut AsyncJob) -> *mut AsyncWaitCtx;
    pub fn ASYNC_pause_job() -> c_int;
    pub fn ASYNC_WAIT_CTX_get_fd(
        ctx: *mut AsyncWaitCtx,
        key: *const c_void,
        fd: *mut c_int,
        data: *mut *mut c_void,
    ) -> c_int;
    pub fn ASYNC_WAIT_CTX_set_wait_fd(
        ctx: *mut AsyncWaitCtx,
        key: *const c_void,
        fd: c_int,
        data: *mut c_void,
        cleanup: Option<WaitFdCleanup>,
    ) -> c_int;
    pub fn ASYNC_WAIT_CTX_clear_fd(ctx: *mut AsyncWaitCtx, key: *const c_void) -> c_int;
    pub fn ASYNC_WAIT_CTX_get_callback(
        ctx: *mut AsyncWaitCtx,
        callback: *mut Option<AsyncCallback>,
        arg: *mut *mut c_void,
    ) -> c_int;
    pub fn ASYNC_WAIT_CTX_set_status(ctx: *mut AsyncWaitCtx, status: c_int) -> c_int;
}
