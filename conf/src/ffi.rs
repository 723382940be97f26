//! The functions of libcrypto that no crate declares, and the types that they take.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null;

// For the library that it links.
use openssl_sys as _;

/// Types that only libcrypto looks into.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque!(Conf, LibCtx, Provider, Stack);

/// `CONF_VALUE`: one line of a configuration file; of a section, `name` is NULL.
#[repr(C)]
pub struct ConfValue {
    pub section: *const c_char,
    pub name: *const c_char,
    pub value: *const c_char,
}

/// `OSSL_PARAM`
#[repr(C)]
pub struct Param {
    pub key: *const c_char,
    pub data_type: u32,
    pub data: *mut c_void,
    pub data_size: usize,
    pub return_size: usize,
}

/// `OSSL_PARAM_UTF8_PTR`
pub const PARAM_UTF8_PTR: u32 = 6;
/// `OPENSSL_INIT_NO_LOAD_CONFIG`
pub const INIT_NO_LOAD_CONFIG: u64 = 0x80;

unsafe extern "C" {
    pub fn OPENSSL_init_crypto(options: u64, settings: *const c_void) -> c_int;

    pub fn NCONF_new(method: *mut c_void) -> *mut Conf;
    pub fn NCONF_free(conf: *mut Conf);
    pub fn NCONF_load(conf: *mut Conf, file: *const c_char, line: *mut c_long) -> c_int;
    pub fn NCONF_get_section_names(conf: *const Conf) -> *mut Stack;
    pub fn NCONF_get_section(conf: *const Conf, section: *const c_char) -> *mut Stack;
    pub fn OPENSSL_sk_num(stack: *const Stack) -> c_int;
    pub fn OPENSSL_sk_value(stack: *const Stack, index: c_int) -> *mut c_void;
    pub fn OPENSSL_sk_free(stack: *mut Stack);

    pub fn OSSL_LIB_CTX_new() -> *mut LibCtx;
    pub fn OSSL_LIB_CTX_free(context: *mut LibCtx);
    pub fn OSSL_LIB_CTX_load_config(context: *mut LibCtx, file: *const c_char) -> c_int;
    pub fn EVP_default_properties_is_fips_enabled(context: *mut LibCtx) -> c_int;
    pub fn OSSL_PROVIDER_available(context: *mut LibCtx, name: *const c_char) -> c_int;
    pub fn OSSL_PROVIDER_load(context: *mut LibCtx, name: *const c_char) -> *mut Provider;
    pub fn OSSL_PROVIDER_unload(provider: *mut Provider) -> c_int;
    pub fn OSSL_PROVIDER_get_params(provider: *const Provider, params: *mut Param) -> c_int;
}

/// Has libcrypto start without the configuration that the environment names: what is wrong with
/// that one is what is to be found out.
pub fn start() {
    // SAFETY: no settings; it may be called any number of times.
    unsafe { OPENSSL_init_crypto(INIT_NO_LOAD_CONFIG, null()) };
}
