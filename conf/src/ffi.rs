//! The functions of libcrypto that this crate calls, bound when the first is called, and the types
//! that they take.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::Error;

/// File names of the libraries. The first installed one is taken.
const NAMES: [&str; 2] = ["libcrypto.so.4", "libcrypto.so.3"];

/// Types whose contents only libcrypto knows.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque!(Conf, LibCtx, Provider, Stack);

/// `CONF_VALUE`: one line of a configuration file, or a section, whose `name` is NULL.
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
/// `OPENSSL_VERSION`
pub const VERSION: c_int = 0;
/// `OPENSSL_DIR`
pub const DIRECTORY: c_int = 4;
/// `ERR_TXT_STRING`
pub const TEXT: c_int = 2;
/// `OPENSSL_INIT_NO_LOAD_CONFIG`
const INIT_NO_LOAD_CONFIG: u64 = 0x80;

/// Declares functions of libcrypto, as methods of [`Libcrypto`].
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of the OpenSSL that is installed.
        #[allow(non_snake_case, reason = "the names in C")]
        pub struct Libcrypto {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?),*
        }

        #[allow(non_snake_case, reason = "the names in C")]
        impl Libcrypto {
            /// # Safety
            /// `library` is a libcrypto of OpenSSL 3.0 or later, and stays.
            unsafe fn find(library: &Library) -> Result<Libcrypto, libloading::Error> {
                Ok(Libcrypto {
                    // SAFETY: these are the types in OpenSSL's headers.
                    $($name: unsafe { *library.get(stringify!($name))? }),*
                })
            }

            $(
                pub unsafe fn $name(&self, $($arg: $type),*) $(-> $result)? {
                    // SAFETY: as the caller promises.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }
    };
}

functions! {
    fn OpenSSL_version(what: c_int) -> *const c_char;
    fn OpenSSL_version_num() -> c_ulong;
    fn ERR_get_error_all(
        file: *mut *const c_char,
        line: *mut c_int,
        function: *mut *const c_char,
        data: *mut *const c_char,
        flags: *mut c_int,
    ) -> c_ulong;
    fn ERR_reason_error_string(code: c_ulong) -> *const c_char;
    fn ERR_clear_error();

    fn OPENSSL_init_crypto(options: u64, settings: *const c_void) -> c_int;

    fn NCONF_new(method: *mut c_void) -> *mut Conf;
    fn NCONF_free(conf: *mut Conf);
    fn NCONF_load(conf: *mut Conf, file: *const c_char, line: *mut c_long) -> c_int;
    fn NCONF_get_section_names(conf: *const Conf) -> *mut Stack;
    fn NCONF_get_section(conf: *const Conf, section: *const c_char) -> *mut Stack;
    fn OPENSSL_sk_num(stack: *const Stack) -> c_int;
    fn OPENSSL_sk_value(stack: *const Stack, index: c_int) -> *mut c_void;
    fn OPENSSL_sk_free(stack: *mut Stack);

    fn OSSL_LIB_CTX_new() -> *mut LibCtx;
    fn OSSL_LIB_CTX_free(context: *mut LibCtx);
    fn OSSL_LIB_CTX_load_config(context: *mut LibCtx, file: *const c_char) -> c_int;
    fn EVP_default_properties_is_fips_enabled(context: *mut LibCtx) -> c_int;
    fn OSSL_PROVIDER_available(context: *mut LibCtx, name: *const c_char) -> c_int;
    fn OSSL_PROVIDER_load(context: *mut LibCtx, name: *const c_char) -> *mut Provider;
    fn OSSL_PROVIDER_unload(provider: *mut Provider) -> c_int;
    fn OSSL_PROVIDER_get_params(provider: *const Provider, params: *mut Param) -> c_int;
}

/// Returns the installed libcrypto, initialised without the configuration that the environment
/// names, because that one is to be examined.
///
/// # Errors
/// No libcrypto is installed, or the installed one lacks a function.
pub fn libcrypto() -> Result<&'static Libcrypto, Error> {
    static LIBCRYPTO: OnceLock<Result<Libcrypto, Error>> = OnceLock::new();
    let found = LIBCRYPTO.get_or_init(|| {
        let found = load()?;
        // SAFETY: no settings; it may be called any number of times.
        unsafe { found.OPENSSL_init_crypto(INIT_NO_LOAD_CONFIG, null()) };
        Ok(found)
    });
    found.as_ref().map_err(Error::clone)
}

fn load() -> Result<Libcrypto, Error> {
    let mut reasons = Vec::new();
    for name in NAMES {
        // SAFETY: libcrypto prepares nothing when it is loaded.
        let library = match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => library,
            Err(error) => {
                reasons.push(error.to_string());
                continue;
            }
        };
        // SAFETY: a libcrypto by its name, which stays: nothing closes it after `forget`.
        let found = unsafe { Libcrypto::find(&library) };
        std::mem::forget(library);
        return found.map_err(|error| Error::new(format!("{name}: {error}")));
    }
    Err(Error { messages: reasons })
}

/// # Safety
/// `text` is NULL or a C string.
pub unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: a C string by contract.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}
