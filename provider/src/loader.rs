//! The libcrypto that loads the module: what the module asks it and reports to it, and whether it
//! is the one that the module's own calls reach.
//!
//! A program can carry an OpenSSL of its own, linked statically or from another file. When that one
//! loads the module, the dynamic linker binds our calls to whichever libcrypto it finds, usually
//! the system's, and pulls that one into the program. The program's keys would then be used by the
//! wrong OpenSSL, without the protections of the program's own. So the module refuses to load
//! there.

use std::ffi::{CString, c_int};

use crate::ffi::{self, CoreHandle, Dispatch, List, Passed as _, Terminated, Text, provider};
use crate::mapped::{MappedFile, file_with, is_stub, mapped_files};

/// libcrypto's side of this provider instance.
pub struct Core {
    handle: *const CoreHandle,
    table: Vec<Dispatch>,
}

impl Core {
    /// # Safety
    /// `handle` and `input` are what libcrypto passed to `OSSL_provider_init`, and the result is
    /// not used after that call.
    pub unsafe fn new(handle: *const CoreHandle, input: Terminated<'_, Dispatch>) -> Core {
        Core {
            handle,
            table: input.iter().copied().collect(),
        }
    }

    /// The core's functions.
    pub fn table(&self) -> &[Dispatch] {
        &self.table
    }

    /// What the core knows this provider instance by.
    pub fn handle(&self) -> *const CoreHandle {
        self.handle
    }

    /// What the core answers for a key: its own version, or a line of the provider's section.
    pub fn param(&self, key: &str) -> Option<String> {
        let get_params = provider::CoreGetParams::of(&self.table)?;
        let name = CString::new(key).ok()?;
        let mut value: Option<Text<'_>> = None;
        let mut wanted = List::<2>::new().text_wanted(&name, &mut value);
        let params = wanted.as_params_mut().into_raw().0;
        // SAFETY: the handle is the core's own. libcrypto answers with a string that it keeps alive
        // with the provider.
        let answered = unsafe { get_params.call(self.handle, params) } == 1;
        value.filter(|_| answered).map(Text::to_text)
    }

    /// Puts a reason why the module does not load into the error queue of the libcrypto that loads
    /// it.
    pub fn raise(&self, reason: &str) {
        use provider::{CoreNewError, CoreSetErrorDebug, CoreVsetError};
        let (Some(new), Some(set)) = (
            CoreNewError::of(&self.table),
            CoreVsetError::of(&self.table),
        ) else {
            return;
        };
        // The reason becomes a format that takes no arguments.
        let reason = reason.strip_prefix("lockstep: ").unwrap_or(reason);
        let format = format!("lockstep: {reason}")
            .replace('%', "%%")
            .replace('\0', " ");
        let Ok(format) = CString::new(format) else {
            return;
        };
        // A `va_list` is passed as a pointer, to at most this much memory on any architecture. No
        // argument is ever taken from it.
        let mut arguments = [0_u64; 4];
        // SAFETY: the core's own functions with its handle; the texts are C strings that it copies.
        unsafe {
            new.call(self.handle);
            if let Some(debug) = CoreSetErrorDebug::of(&self.table) {
                debug.call(
                    self.handle,
                    c"lockstep".as_ptr(),
                    line!() as c_int,
                    c"OSSL_provider_init".as_ptr(),
                );
            }
            set.call(
                self.handle,
                ffi::INIT_FAIL,
                format.as_ptr(),
                arguments.as_mut_ptr().cast(),
            );
        }
    }

    /// Succeeds if every function of libcrypto that we call is one of the libcrypto that loads us.
    ///
    /// The error says which is not. Nothing of another libcrypto is called to find out.
    pub fn insist_on_one_libcrypto(&self) -> Result<(), String> {
        let files = mapped_files();
        let mut loader: Option<&MappedFile> = None;
        for entry in &self.table {
            if !ffi::CORE_FUNCTIONS.contains(&entry.id) {
                continue;
            }
            let address = entry.function.map_or(0, |function| function as usize);
            let file = file_with(&files, address)
                .ok_or("it is unknown which OpenSSL loads lockstep, so lockstep does not load")?;
            match loader {
                Some(loader) if !std::ptr::eq(loader, file) => {
                    return Err(format!(
                        "the functions that OpenSSL passes to lockstep are in two files, {} and {}; \
                         lockstep works with one OpenSSL only and does not load",
                        loader.shown(),
                        file.shown()
                    ));
                }
                _ => loader = Some(file),
            }
        }
        let loader = loader.ok_or("OpenSSL passes no functions to lockstep")?;
        for (name, address) in ffi::IMPORTS {
            let found = file_with(&files, address() as usize);
            let same = found.is_some_and(|found| std::ptr::eq(found, loader));
            if !same && !is_stub(address()) {
                return Err(format!(
                    "this program uses the OpenSSL in {}, but lockstep was linked to {name} in {}; \
                     lockstep works with one OpenSSL only and does not load, so the program goes on \
                     with its own OpenSSL",
                    loader.shown(),
                    found.map_or("another place".to_owned(), MappedFile::shown)
                ));
            }
        }
        self.insist_on_one_version()
    }

    /// Succeeds if the libcrypto that loads us and the one that we call are of one version.
    fn insist_on_one_version(&self) -> Result<(), String> {
        let theirs = self.param("openssl-version");
        let ours = ffi::OpenSSL_version(ffi::VERSION_STRING).map(Text::to_text);
        if ours.is_some() && ours == theirs {
            return Ok(());
        }
        let shown = |version: Option<String>| version.unwrap_or_else(|| "unknown".to_owned());
        Err(format!(
            "this program uses OpenSSL {}, but lockstep was linked to OpenSSL {}; lockstep works \
             with one OpenSSL only and does not load",
            shown(theirs),
            shown(ours)
        ))
    }
}
