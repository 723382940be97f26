//! A library context with a configuration in force.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;

use crate::error::Error;
use crate::ffi::{self, LibCtx, Libcrypto, Param, libcrypto, text};
use crate::queue;

/// A library context with the providers and properties of a configuration.
///
/// Loading a configuration runs the modules that it names. A module can crash, so only a process
/// that may end should load one.
pub struct Context {
    libcrypto: &'static Libcrypto,
    context: *mut LibCtx,
}

impl Context {
    /// Loads a configuration as programs do at their start. Returns the context, and the error that
    /// ended the loading if there was one.
    ///
    /// # Errors
    /// No libcrypto, or no memory for a context.
    pub fn load(path: &Path) -> Result<(Context, Option<Error>), Error> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::new("the path holds a zero byte"))?;
        let libcrypto = libcrypto()?;
        // SAFETY: a constructor.
        let context = unsafe { libcrypto.OSSL_LIB_CTX_new() };
        if context.is_null() {
            return Err(queue::take(libcrypto));
        }
        // SAFETY: a fresh context and a C string.
        let error = match unsafe { libcrypto.OSSL_LIB_CTX_load_config(context, name.as_ptr()) } {
            1 => None,
            _ => Some(queue::take(libcrypto)),
        };
        Ok((Context { libcrypto, context }, error))
    }

    /// Returns whether algorithms are taken from FIPS providers unless a program asks otherwise.
    pub fn is_fips_enabled(&self) -> bool {
        // SAFETY: `self` owns the context.
        unsafe {
            self.libcrypto
                .EVP_default_properties_is_fips_enabled(self.context)
                == 1
        }
    }

    /// Activates a provider that the configuration does not activate. The configuration may name
    /// the provider.
    ///
    /// # Errors
    /// The errors of libcrypto. libcrypto reports none about a provider that the configuration
    /// should activate.
    pub fn activate(&self, provider: &str) -> Result<(), Error> {
        let name = CString::new(provider).map_err(|_| Error::new("the name holds a zero byte"))?;
        // SAFETY: `self` owns the context; the name is a C string. The provider stays with the
        // context.
        let provider = unsafe {
            self.libcrypto.ERR_clear_error();
            self.libcrypto
                .OSSL_PROVIDER_load(self.context, name.as_ptr())
        };
        match provider.is_null() {
            true => Err(queue::take(self.libcrypto)),
            false => Ok(()),
        }
    }

    /// Returns whether a provider is active.
    pub fn has_active(&self, provider: &str) -> bool {
        let Ok(name) = CString::new(provider) else {
            return false;
        };
        // SAFETY: `self` owns the context; the name is a C string.
        unsafe {
            self.libcrypto
                .OSSL_PROVIDER_available(self.context, name.as_ptr())
                == 1
        }
    }

    /// Returns a text parameter of an active provider.
    pub fn provider_text(&self, provider: &str, parameter: &str) -> Option<String> {
        if !self.has_active(provider) {
            return None;
        }
        let (provider, key) = (CString::new(provider).ok()?, CString::new(parameter).ok()?);
        let mut value: *const c_char = null_mut();
        let param = |key, data_type, data, data_size| Param {
            key,
            data_type,
            data,
            data_size,
            return_size: 0,
        };
        let mut params = [
            param(
                key.as_ptr(),
                ffi::PARAM_UTF8_PTR,
                (&raw mut value).cast(),
                size_of::<*const c_char>(),
            ),
            param(null_mut(), 0, null_mut(), 0),
        ];
        // SAFETY: the provider is held while it is asked and while its answer is copied; the list
        // of parameters ends with a NULL key, and its one entry takes a pointer to a C string.
        unsafe {
            let provider = self
                .libcrypto
                .OSSL_PROVIDER_load(self.context, provider.as_ptr());
            if provider.is_null() {
                return None;
            }
            let answered = self
                .libcrypto
                .OSSL_PROVIDER_get_params(provider, params.as_mut_ptr())
                == 1;
            let text = text(value).filter(|_| answered);
            self.libcrypto.OSSL_PROVIDER_unload(provider);
            text
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: NULL, or a context that nothing refers to any more.
        unsafe { self.libcrypto.OSSL_LIB_CTX_free(self.context) };
    }
}
