//! The functions of libcrypto that the module calls.

use std::ffi::{c_char, c_int, c_long, c_uchar, c_void};

use super::types::*;

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
