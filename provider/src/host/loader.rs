//! The libcrypto that loads the module: the module's questions and reports to it. The module's own
//! calls reach this libcrypto and no other.
//!
//! The module is linked to no libcrypto. The linker would choose one by its file name. If a program
//! carries an OpenSSL of its own, or another major version, that choice is wrong: the program's
//! keys would be used without the protections of its own OpenSSL. So the module binds its calls to
//! functions in the file that loads it, under any file name. If a function that it always needs is
//! not there, or any function is found in another file, the module refuses to load.

use std::ffi::{CString, OsStr, OsString, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ffi::{
    self, Addresses, CoreHandle, Dispatch, Group, List, Passed as _, Terminated, Text, provider,
};
use crate::host::c_library::dlsym;
use crate::host::mapped::{MappedFile, file_with, mapped_files};

/// libcrypto's side of this provider instance.
pub struct Core {
    handle: *const CoreHandle,
    table: Vec<Dispatch>,
}

impl Core {
    /// # Safety
    /// libcrypto has passed `handle` and `input` to `OSSL_provider_init`, and the result is not
    /// used after that call.
    pub unsafe fn new(handle: *const CoreHandle, input: Terminated<'_, Dispatch>) -> Core {
        Core {
            handle,
            table: input.iter().copied().collect(),
        }
    }

    /// Returns the core's functions.
    pub fn table(&self) -> &[Dispatch] {
        &self.table
    }

    /// Returns the core's handle of this provider instance.
    pub fn handle(&self) -> *const CoreHandle {
        self.handle
    }

    /// Returns the core's answer for a key: the core's version, or a value of the provider's
    /// section.
    pub fn param(&self, key: &str) -> Option<OsString> {
        // SAFETY: the handle of this instance.
        unsafe { self.param_of(self.handle, key) }
    }

    /// Returns the core's answer about another provider.
    ///
    /// # Safety
    /// The handle is one of the core, of a provider that stays during this call.
    pub unsafe fn param_of(&self, handle: *const CoreHandle, key: &str) -> Option<OsString> {
        let get_params = provider::CoreGetParams::of(&self.table)?;
        let name = CString::new(key).ok()?;
        let mut value: Option<Text<'_>> = None;
        let mut wanted = List::<2>::new().text_wanted(&name, &mut value);
        let params = wanted.as_params_mut().into_raw().0;
        // SAFETY: as the caller says. libcrypto answers with a string that it keeps alive with the
        // provider.
        let answered = unsafe { get_params.call(handle, params) } == 1;
        let value = value.filter(|_| answered)?.to_cstr();
        Some(OsStr::from_bytes(value.to_bytes()).to_owned())
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

    /// Binds the functions of libcrypto that the module calls to those of the libcrypto that loads
    /// it.
    ///
    /// The error is the reason why they cannot be bound. No libcrypto is called meanwhile.
    pub fn bind(&self) -> Result<(), String> {
        let files = mapped_files();
        let loader = self.file(&files)?;
        let shown = loader.shown();
        let symbols = loader.symbols().ok_or_else(|| {
            format!("the dynamic linker does not find {shown} again, so lockstep does not load")
        })?;
        let addresses = Addresses::find(|name| {
            let Some(address) = NonNull::new(dlsym(symbols, Text::new(name))) else {
                return Ok(None);
            };
            let found = file_with(&files, address.addr().get());
            if found.is_some_and(|found| std::ptr::eq(found, loader)) {
                return Ok(Some(address));
            }
            Err(format!(
                "this program uses the OpenSSL in {shown}, but its function {} is found in {}; \
                 lockstep works with one OpenSSL only and does not load, so the program goes on \
                 with its own OpenSSL",
                name.to_string_lossy(),
                found.map_or("another place".to_owned(), MappedFile::shown)
            ))
        })?;
        if let Some(name) = addresses.lacks(Group::Basis) {
            return Err(format!(
                "the OpenSSL in {shown} does not export its function {name}, which lockstep needs; \
                 so lockstep does not load, and the program goes on without it"
            ));
        }
        /// First address of the file to which the functions are bound; 0 before.
        static BOUND: AtomicUsize = AtomicUsize::new(0);
        let (start, order) = (loader.start(), Ordering::Relaxed);
        match BOUND.compare_exchange(0, start, order, order) {
            Err(other) if other != start => {
                let other = file_with(&files, other);
                return Err(format!(
                    "lockstep works with one OpenSSL in a process, and here that is the one in {}; \
                     so it does not load for the one in {shown}",
                    other.map_or("another place".to_owned(), MappedFile::shown)
                ));
            }
            // Bound here for the first time, or again, since another thread may not be done yet.
            _ => {}
        }
        // SAFETY: they are functions of this file only, which stays mapped.
        unsafe { addresses.bind() };
        Ok(())
    }

    /// Returns the file in which the core's functions lie.
    fn file<'a>(&self, files: &'a [MappedFile]) -> Result<&'a MappedFile, String> {
        let mut loader: Option<&MappedFile> = None;
        for entry in &self.table {
            if !ffi::CORE_FUNCTIONS.contains(&entry.id) {
                continue;
            }
            let address = entry.function.map_or(0, |function| function as usize);
            let file = file_with(files, address)
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
        loader.ok_or_else(|| "OpenSSL passes no functions to lockstep".to_owned())
    }
}
