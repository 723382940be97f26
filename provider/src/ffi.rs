//! The part of OpenSSL's C interface that the module uses, written by hand.
//!
//! Identifiers and struct layouts are those of `openssl/core.h`, `openssl/core_dispatch.h`,
//! `openssl/rsa.h` and `openssl/async.h`; they are ABI-stable from OpenSSL 3.0 on.

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

/// `OSSL_PARAM_UNSIGNED_INTEGER`
pub const PARAM_UNSIGNED_INTEGER: c_uint = 2;
/// `OSSL_PARAM_UTF8_PTR`
pub const PARAM_UTF8_PTR: c_uint = 6;

/// Operation ids (`OSSL_OP_*`).
pub mod operation {
    use std::ffi::c_int;
    pub const KEYMGMT: c_int = 10;
    pub const SIGNATURE: c_int = 12;
    pub const ASYM_CIPHER: c_int = 13;
}

/// Ids of the functions a provider exports (`OSSL_FUNC_PROVIDER_*`).
pub mod provider_function {
    use std::ffi::c_int;
    pub const TEARDOWN: c_int = 1024;
    pub const GETTABLE_PARAMS: c_int = 1025;
    pub const GET_PARAMS: c_int = 1026;
    pub const QUERY_OPERATION: c_int = 1027;
}

/// Id of `OSSL_FUNC_core_get_params`, which reads the provider's section of the configuration.
pub const CORE_GET_PARAMS: c_int = 2;

/// Ids of the key management functions the module wraps or calls (`OSSL_FUNC_KEYMGMT_*`).
pub mod keymgmt {
    use std::ffi::c_int;
    pub const NEW: c_int = 1;
    pub const GEN: c_int = 6;
    pub const LOAD: c_int = 8;
    pub const FREE: c_int = 10;
    pub const IMPORT: c_int = 40;
    pub const EXPORT: c_int = 42;
    pub const DUP: c_int = 44;
    /// `OSSL_KEYMGMT_SELECT_ALL`: key pair and all parameters.
    pub const SELECT_ALL: c_int = 0x87;
    /// `OSSL_KEYMGMT_SELECT_PRIVATE_KEY`
    pub const SELECT_PRIVATE_KEY: c_int = 0x01;
}

/// Id of `OSSL_FUNC_signature_newctx`.
pub const SIGNATURE_NEWCTX: c_int = 1;

/// `OSSL_CALLBACK`
pub type Callback = unsafe extern "C" fn(params: *const Param, arg: *mut c_void) -> c_int;
/// `OSSL_FUNC_core_get_params_fn`
pub type CoreGetParams = unsafe extern "C" fn(*const CoreHandle, *mut Param) -> c_int;
/// `OSSL_FUNC_keymgmt_new_fn`
pub type KeymgmtNew = unsafe extern "C" fn(provctx: *mut c_void) -> *mut c_void;
/// `OSSL_FUNC_keymgmt_free_fn`
pub type KeymgmtFree = unsafe extern "C" fn(keydata: *mut c_void);
/// `OSSL_FUNC_keymgmt_gen_fn`
pub type KeymgmtGen =
    unsafe extern "C" fn(genctx: *mut c_void, Option<Callback>, arg: *mut c_void) -> *mut c_void;
/// `OSSL_FUNC_keymgmt_load_fn`
pub type KeymgmtLoad = unsafe extern "C" fn(reference: *const c_void, size: usize) -> *mut c_void;
/// `OSSL_FUNC_keymgmt_import_fn`
pub type KeymgmtImport =
    unsafe extern "C" fn(keydata: *mut c_void, selection: c_int, *const Param) -> c_int;
/// `OSSL_FUNC_keymgmt_export_fn`
pub type KeymgmtExport = unsafe extern "C" fn(
    keydata: *mut c_void,
    selection: c_int,
    callback: Callback,
    arg: *mut c_void,
) -> c_int;
/// `OSSL_FUNC_keymgmt_dup_fn`
pub type KeymgmtDup = unsafe extern "C" fn(keydata: *const c_void, selection: c_int) -> *mut c_void;

/// `OSSL_FUNC_signature_newctx_fn`
pub type SignatureNewctx =
    unsafe extern "C" fn(provctx: *mut c_void, propq: *const c_char) -> *mut c_void;

/// `rsa_mod_exp` of an `RSA_METHOD`: r0 = i^d mod n by the CRT.
pub type RsaModExp =
    unsafe extern "C" fn(*mut Bignum, *const Bignum, *mut Rsa, *mut BnCtx) -> c_int;
/// `rsa_priv_enc` and `rsa_priv_dec` of an `RSA_METHOD`.
pub type RsaPrivate =
    unsafe extern "C" fn(c_int, *const c_uchar, *mut c_uchar, *mut Rsa, c_int) -> c_int;
/// `finish` of an `RSA_METHOD`.
pub type RsaFinish = unsafe extern "C" fn(*mut Rsa) -> c_int;
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

/// `RSA_NO_PADDING`
pub const RSA_NO_PADDING: c_int = 3;
/// `RSA_FLAG_NO_BLINDING`
pub const RSA_FLAG_NO_BLINDING: c_int = 0x0080;
/// `CRYPTO_EX_INDEX_RSA`
pub const EX_INDEX_RSA: c_int = 9;
/// `ASYNC_STATUS_OK`
pub const ASYNC_STATUS_OK: c_int = 2;

unsafe extern "C" {
    pub fn OSSL_LIB_CTX_new() -> *mut LibCtx;
    pub fn OSSL_LIB_CTX_free(ctx: *mut LibCtx);
    pub fn OSSL_PROVIDER_load(ctx: *mut LibCtx, name: *const c_char) -> *mut Provider;
    pub fn OSSL_PROVIDER_unload(provider: *mut Provider) -> c_int;
    pub fn OSSL_PROVIDER_get0_provider_ctx(provider: *const Provider) -> *mut c_void;
    pub fn OSSL_PROVIDER_query_operation(
        provider: *const Provider,
        operation: c_int,
        no_cache: *mut c_int,
    ) -> *const Algorithm;

    pub fn BN_num_bits(a: *const Bignum) -> c_int;
    pub fn BN_bn2binpad(a: *const Bignum, to: *mut c_uchar, len: c_int) -> c_int;
    pub fn BN_bin2bn(from: *const c_uchar, len: c_int, ret: *mut Bignum) -> *mut Bignum;

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
    pub fn ASYNC_WAIT_CTX_get_callback(
        ctx: *mut AsyncWaitCtx,
        callback: *mut Option<AsyncCallback>,
        arg: *mut *mut c_void,
    ) -> c_int;
    pub fn ASYNC_WAIT_CTX_set_status(ctx: *mut AsyncWaitCtx, status: c_int) -> c_int;
}
