//! The functions of libcrypto that the module calls.

use std::ffi::{c_char, c_int, c_long, c_uchar, c_void};

use super::owned::{Freed, Owned};
use super::pointers::{Terminated, Text};
use super::types::*;

/// Declares functions of libcrypto, and lists them with the addresses that they are bound to.
macro_rules! imported {
    ($(pub $kind:tt fn $name:ident $(<$lifetime:lifetime>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        // SAFETY: these are the types of OpenSSL's headers, which a test compares. A function is
        // called safe where its page demands no more of its arguments than their types say: that a
        // reference leads to a valid object, which nobody else changes meanwhile.
        unsafe extern "C" {
            $(pub $kind fn $name $(<$lifetime>)? ($($arg: $type),*) $(-> $result)?;)*
        }

        /// Every function of libcrypto that we call: its name, and its address. The linker takes
        /// the address from the global offset table, so it is that of the function itself.
        pub const IMPORTS: &[(&str, fn() -> *const c_void)] =
            &[$((stringify!($name), || $name as *const c_void)),*];

        /// The C type of each, as text.
        #[cfg(test)]
        pub const TYPES: &[(&str, &[&str], &str)] =
            &[$((stringify!($name), &[$(stringify!($type)),*], concat!("" $(, stringify!($result))?))),*];
    };
}

imported! {
    pub safe fn OSSL_LIB_CTX_new() -> Option<Owned<LibCtx>>;
    pub unsafe fn OSSL_LIB_CTX_free(ctx: *mut LibCtx);
    pub unsafe fn OSSL_PROVIDER_load(
        ctx: &mut LibCtx,
        name: Text<'_>,
    ) -> Option<Owned<Provider>>;
    pub unsafe fn OSSL_PROVIDER_unload(provider: *mut Provider) -> c_int;
    pub safe fn OSSL_PROVIDER_get0_provider_ctx(provider: &Provider) -> *mut c_void;
    pub safe fn OSSL_PROVIDER_get0_dispatch(provider: &Provider) -> *const Dispatch;
    pub safe fn OSSL_PROVIDER_query_operation(
        provider: &Provider,
        operation: c_int,
        no_cache: &mut c_int,
    ) -> Terminated<'static, Algorithm>;
    pub unsafe fn OSSL_PROVIDER_get_capabilities(
        provider: &Provider,
        capability: Text<'_>,
        callback: Callback,
        arg: *mut c_void,
    ) -> c_int;

    pub safe fn OpenSSL_version(which: c_int) -> Option<Text<'static>>;
    pub safe fn ERR_set_mark() -> c_int;
    pub safe fn ERR_pop_to_mark() -> c_int;
    pub safe fn CONF_get1_default_config_file() -> *mut c_char;
    pub safe fn NCONF_new(method: Option<&mut ConfMethod>) -> Option<Owned<Conf>>;
    pub unsafe fn NCONF_free(conf: *mut Conf);
    pub unsafe fn NCONF_load(conf: &mut Conf, file: *const c_char, line: &mut c_long) -> c_int;
    pub safe fn NCONF_get_section_names(conf: &Conf) -> Option<Owned<Stack>>;
    pub unsafe fn NCONF_get_section(conf: &Conf, section: *const c_char) -> Option<&Stack>;
    pub safe fn OPENSSL_sk_num(stack: &Stack) -> c_int;
    pub safe fn OPENSSL_sk_value(stack: &Stack, index: c_int) -> *mut c_void;
    pub unsafe fn OPENSSL_sk_free(stack: *mut Stack);

    pub unsafe fn CRYPTO_free(memory: *mut c_void, file: *const c_char, line: c_int);
    pub unsafe fn CRYPTO_malloc(size: usize, file: *const c_char, line: c_int) -> *mut c_void;
    pub safe fn BN_new() -> Option<Owned<Bignum>>;
    pub unsafe fn BN_clear_free(a: *mut Bignum);
    pub safe fn BN_is_one(a: &Bignum) -> c_int;
    pub safe fn BN_is_zero(a: &Bignum) -> c_int;
    pub safe fn BN_is_negative(a: &Bignum) -> c_int;
    pub safe fn BN_num_bits(a: &Bignum) -> c_int;
    pub unsafe fn BN_bn2binpad(a: &Bignum, to: *mut c_uchar, len: c_int) -> c_int;
    pub unsafe fn BN_bin2bn(from: *const c_uchar, len: c_int, ret: Option<&mut Bignum>) -> *mut Bignum;
    pub safe fn BN_clear_bit(a: &mut Bignum, n: c_int) -> c_int;

    pub safe fn RSA_PKCS1_OpenSSL() -> &'static RsaMethod;
    pub safe fn RSA_meth_dup(method: &RsaMethod) -> Option<&'static mut RsaMethod>;
    pub safe fn RSA_meth_set1_name(method: &mut RsaMethod, name: Text<'_>) -> c_int;
    pub safe fn RSA_meth_get_mod_exp(method: &RsaMethod) -> Option<RsaModExp>;
    pub safe fn RSA_meth_set_mod_exp(method: &mut RsaMethod, f: RsaModExp) -> c_int;
    pub safe fn RSA_meth_get_priv_enc(method: &RsaMethod) -> Option<RsaPrivate>;
    pub safe fn RSA_meth_set_priv_enc(method: &mut RsaMethod, f: RsaPrivate) -> c_int;
    pub safe fn RSA_meth_get_priv_dec(method: &RsaMethod) -> Option<RsaPrivate>;
    pub safe fn RSA_meth_set_priv_dec(method: &mut RsaMethod, f: RsaPrivate) -> c_int;
    pub safe fn RSA_meth_get_finish(method: &RsaMethod) -> Option<RsaFinish>;
    pub safe fn RSA_meth_set_finish(method: &mut RsaMethod, f: RsaFinish) -> c_int;
    pub unsafe fn RSA_set_method(rsa: &mut Rsa, method: &'static RsaMethod) -> c_int;
    pub safe fn RSA_get_method(rsa: &Rsa) -> *const RsaMethod;
    pub safe fn RSA_test_flags(rsa: &Rsa, flags: c_int) -> c_int;
    pub safe fn RSA_clear_flags(rsa: &mut Rsa, flags: c_int);
    pub safe fn RSA_set_flags(rsa: &mut Rsa, flags: c_int);
    pub unsafe fn RSA_set_ex_data(rsa: &mut Rsa, index: c_int, data: *mut c_void) -> c_int;
    pub safe fn RSA_get_ex_data(rsa: &Rsa, index: c_int) -> *mut c_void;
    pub safe fn RSA_get0_key<'a>(
        rsa: &'a Rsa,
        n: &mut Option<&'a Bignum>,
        e: &mut Option<&'a Bignum>,
        d: &mut Option<&'a Bignum>,
    );
    pub safe fn RSA_get0_factors<'a>(
        rsa: &'a Rsa,
        p: &mut Option<&'a Bignum>,
        q: &mut Option<&'a Bignum>,
    );
    pub safe fn RSA_get0_crt_params<'a>(
        rsa: &'a Rsa,
        dmp1: &mut Option<&'a Bignum>,
        dmq1: &mut Option<&'a Bignum>,
        iqmp: &mut Option<&'a Bignum>,
    );
    pub safe fn RSA_get_multi_prime_extra_count(rsa: &Rsa) -> c_int;
    pub unsafe fn RSA_private_encrypt(
        len: c_int,
        from: *const c_uchar,
        to: *mut c_uchar,
        rsa: &mut Rsa,
        padding: c_int,
    ) -> c_int;
    pub unsafe fn RSA_private_decrypt(
        len: c_int,
        from: *const c_uchar,
        to: *mut c_uchar,
        rsa: &mut Rsa,
        padding: c_int,
    ) -> c_int;
    pub safe fn CRYPTO_get_ex_new_index(
        class: c_int,
        argl: c_long,
        argp: *mut c_void,
        new: Option<ExNew>,
        dup: Option<ExDup>,
        free: Option<ExFree>,
    ) -> c_int;

    pub safe fn EC_KEY_OpenSSL() -> &'static EcKeyMethod;
    pub safe fn EC_KEY_METHOD_new(from: &EcKeyMethod) -> Option<&'static mut EcKeyMethod>;
    pub safe fn EC_KEY_METHOD_set_init(
        method: &mut EcKeyMethod,
        init: Option<EcInit>,
        finish: Option<EcFinish>,
        copy: Option<EcCopy>,
        set_group: Option<EcSetGroup>,
        set_private: Option<EcSetPrivate>,
        set_public: Option<EcSetPublic>,
    );
    pub safe fn EC_KEY_METHOD_get_keygen(method: &EcKeyMethod, keygen: &mut Option<EcKeygen>);
    pub safe fn EC_KEY_METHOD_set_keygen(method: &mut EcKeyMethod, keygen: Option<EcKeygen>);
    pub safe fn EC_KEY_METHOD_get_compute_key(
        method: &EcKeyMethod,
        compute: &mut Option<EcComputeKey>,
    );
    pub safe fn EC_KEY_METHOD_set_compute_key(
        method: &mut EcKeyMethod,
        compute: Option<EcComputeKey>,
    );
    pub safe fn EC_KEY_METHOD_get_sign(
        method: &EcKeyMethod,
        sign: &mut Option<EcSign>,
        setup: &mut Option<EcSignSetup>,
        sign_sig: &mut Option<EcSignSig>,
    );
    pub safe fn EC_KEY_METHOD_set_sign(
        method: &mut EcKeyMethod,
        sign: Option<EcSign>,
        setup: Option<EcSignSetup>,
        sign_sig: Option<EcSignSig>,
    );
    pub safe fn EC_KEY_METHOD_get_verify(
        method: &EcKeyMethod,
        verify: &mut Option<EcVerify>,
        verify_sig: &mut Option<EcVerifySig>,
    );
    pub safe fn EC_KEY_METHOD_set_verify(
        method: &mut EcKeyMethod,
        verify: Option<EcVerify>,
        verify_sig: Option<EcVerifySig>,
    );
    pub safe fn EC_KEY_set_method(key: &mut EcKey, method: &'static EcKeyMethod) -> c_int;
    pub safe fn EC_KEY_get_method(key: &EcKey) -> *const EcKeyMethod;
    pub unsafe fn EC_KEY_set_ex_data(key: &mut EcKey, index: c_int, data: *mut c_void) -> c_int;
    pub safe fn EC_KEY_get_ex_data(key: &EcKey, index: c_int) -> *mut c_void;
    pub safe fn EC_KEY_get0_group(key: &EcKey) -> Option<&EcGroup>;
    pub safe fn EC_KEY_get0_private_key(key: &EcKey) -> Option<&Bignum>;
    pub safe fn EC_KEY_get0_public_key(key: &EcKey) -> Option<&EcPoint>;
    pub safe fn EC_KEY_set_private_key(key: &mut EcKey, private: &Bignum) -> c_int;
    pub safe fn EC_KEY_set_public_key(key: &mut EcKey, public: &EcPoint) -> c_int;
    pub safe fn EC_KEY_generate_key(key: &mut EcKey) -> c_int;
    pub safe fn EC_GROUP_get_curve_name(group: &EcGroup) -> c_int;
    pub safe fn EC_GROUP_get_asn1_flag(group: &EcGroup) -> c_int;
    pub safe fn EC_POINT_new(group: &EcGroup) -> Option<Owned<EcPoint>>;
    pub unsafe fn EC_POINT_free(point: *mut EcPoint);
    pub safe fn EC_POINT_set_affine_coordinates(
        group: &EcGroup,
        point: &mut EcPoint,
        x: &Bignum,
        y: &Bignum,
        ctx: Option<&mut BnCtx>,
    ) -> c_int;
    pub safe fn EC_POINT_get_affine_coordinates(
        group: &EcGroup,
        point: &EcPoint,
        x: &mut Bignum,
        y: &mut Bignum,
        ctx: Option<&mut BnCtx>,
    ) -> c_int;
    pub safe fn EC_POINT_get_Jprojective_coordinates_GFp(
        group: &EcGroup,
        point: &EcPoint,
        x: Option<&mut Bignum>,
        y: Option<&mut Bignum>,
        z: Option<&mut Bignum>,
        ctx: Option<&mut BnCtx>,
    ) -> c_int;
    pub unsafe fn ECDSA_SIG_free(signature: *mut EcdsaSig);
    pub safe fn ECDSA_SIG_get0<'a>(
        signature: &'a EcdsaSig,
        r: &mut Option<&'a Bignum>,
        s: &mut Option<&'a Bignum>,
    );

    pub safe fn ASYNC_get_current_job() -> *mut AsyncJob;
    pub safe fn ASYNC_get_wait_ctx(job: &AsyncJob) -> Option<&AsyncWaitCtx>;
    pub unsafe fn ASYNC_pause_job() -> c_int;
    // What a key points to is never read.
    pub safe fn ASYNC_WAIT_CTX_get_fd(
        ctx: &AsyncWaitCtx,
        key: *const c_void,
        fd: &mut c_int,
        data: &mut *mut c_void,
    ) -> c_int;
    pub unsafe fn ASYNC_WAIT_CTX_set_wait_fd(
        ctx: &AsyncWaitCtx,
        key: *const c_void,
        fd: c_int,
        data: *mut c_void,
        cleanup: Option<WaitFdCleanup>,
    ) -> c_int;
    pub safe fn ASYNC_WAIT_CTX_clear_fd(ctx: &AsyncWaitCtx, key: *const c_void) -> c_int;
    pub safe fn ASYNC_WAIT_CTX_get_callback(
        ctx: &AsyncWaitCtx,
        callback: &mut Option<AsyncCallback>,
        arg: &mut *mut c_void,
    ) -> c_int;
    pub safe fn ASYNC_WAIT_CTX_set_status(ctx: &AsyncWaitCtx, status: c_int) -> c_int;
}

/// Declares what is freed by which function.
macro_rules! freed {
    ($($object:ident by $free:ident -> $returned:ty;)*) => {
        $(impl Freed for $object {
            type Returned = $returned;
            const FREE: unsafe extern "C" fn(*mut $object) -> $returned = $free;
        })*
    };
}

freed! {
    Bignum by BN_clear_free -> ();
    Conf by NCONF_free -> ();
    EcPoint by EC_POINT_free -> ();
    EcdsaSig by ECDSA_SIG_free -> ();
    LibCtx by OSSL_LIB_CTX_free -> ();
    Provider by OSSL_PROVIDER_unload -> c_int;
    Stack by OPENSSL_sk_free -> ();
}
