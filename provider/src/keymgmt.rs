//! Key management: the stock functions, and wrappers of those that make key data.
//!
//! Key data comes into being by import, generation, load and duplication. After each, the wrapped
//! function lets the new object compute on lanes; nothing else differs from stock.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use crate::ffi::keymgmt::{Dup, Export, Free, Gen, GetParams, Import, Load, New};
use crate::ffi::{self, Algorithm, Callback, Dispatch, Param, select};
use crate::stock::{self, Stock};

/// A key type that we offer.
pub trait KeyType: 'static {
    /// The stock functions of this type; None if the default provider lacks them.
    fn stock() -> Option<&'static KeyFunctions>;
}

/// A key type whose key objects can be told to compute on lanes.
pub trait Adoptable: KeyType {
    /// An object is adopted when one of these parts was put into it.
    const ADOPTED_WITH: c_int;

    /// Whether an object that may have been used already can be adopted. Otherwise a fresh copy
    /// replaces it.
    const IN_PLACE: bool;

    /// Prepares an object so that it can be adopted, if that must be before its first use.
    ///
    /// # Safety
    /// `keydata` is stock key data of this type that nothing has used yet.
    unsafe fn prepare(_keydata: *mut c_void) {}

    /// Lets an object compute on lanes, if they can serve it. Once more whenever it was filled
    /// again.
    ///
    /// # Safety
    /// `keydata` is stock key data of this type that nobody else uses, and
    /// [prepared](Self::prepare).
    unsafe fn adopt(keydata: *mut c_void, functions: &'static KeyFunctions);
}

/// The stock functions that make, fill, read and free the key data of one key type. Keys that it
/// makes are of the private library context: they draw from that context's random generator.
pub struct KeyFunctions {
    provctx: *mut c_void,
    pub table: Vec<Dispatch>,
    new: New,
    free: Free,
    import: Import,
    export: Export,
    get_params: GetParams,
}

// SAFETY: the functions and the context belong to the default provider, which is never unloaded and
// may be called from any thread.
unsafe impl Send for KeyFunctions {}
// SAFETY: as above.
unsafe impl Sync for KeyFunctions {}

impl KeyFunctions {
    pub fn new(stock: &Stock, algorithm: &Algorithm) -> Option<KeyFunctions> {
        let table = stock::entries(algorithm);
        Some(KeyFunctions {
            provctx: stock.provctx(),
            new: New::of(&table)?,
            free: Free::of(&table)?,
            import: Import::of(&table)?,
            export: Export::of(&table)?,
            get_params: GetParams::of(&table)?,
            table,
        })
    }

    /// A new stock key with the parts `selection` of `from`; NULL on failure.
    ///
    /// # Safety
    /// `from` is valid key data of this type.
    pub unsafe fn copy(&self, from: *const c_void, selection: c_int) -> *mut c_void {
        /// Where the exported parameters go.
        struct Target<'a> {
            functions: &'a KeyFunctions,
            keydata: *mut c_void,
            selection: c_int,
        }
        unsafe extern "C" fn receive(params: *const Param, arg: *mut c_void) -> c_int {
            // SAFETY: `arg` is the `Target` that `copy` passes below, alive during the export.
            let target = unsafe { &*arg.cast::<Target>() };
            // SAFETY: fresh key data and parameters from the stock export of the same type.
            unsafe {
                target
                    .functions
                    .import(target.keydata, target.selection, params)
            }
        }
        // SAFETY: the stock constructor with its own context.
        let keydata = unsafe { self.new.call(self.provctx) };
        if keydata.is_null() {
            return null_mut();
        }
        let mut target = Target {
            functions: self,
            keydata,
            selection,
        };
        // SAFETY: `from` is valid by contract; the callback uses `target` during the call only.
        let copied = unsafe {
            self.export.call(
                from.cast_mut(),
                selection,
                receive,
                (&raw mut target).cast(),
            )
        };
        if copied != 1 {
            // SAFETY: we own `keydata`.
            unsafe { self.free(keydata) };
            return null_mut();
        }
        keydata
    }

    /// Fills key data from parameters, by the stock function.
    ///
    /// # Safety
    /// `keydata` is valid key data of this type, `params` ends with a NULL key.
    pub unsafe fn import(
        &self,
        keydata: *mut c_void,
        selection: c_int,
        params: *const Param,
    ) -> c_int {
        // SAFETY: by contract.
        unsafe { self.import.call(keydata, selection, params) }
    }

    /// Frees key data.
    ///
    /// # Safety
    /// `keydata` is of this type, belongs to the caller and is not used afterwards.
    pub unsafe fn free(&self, keydata: *mut c_void) {
        // SAFETY: by contract.
        unsafe { self.free.call(keydata) }
    }

    /// Reads an octet string parameter that fills `bytes` exactly; false if the key has none such.
    ///
    /// # Safety
    /// `keydata` is valid key data of this type.
    pub unsafe fn read(&self, keydata: *mut c_void, name: &CStr, bytes: &mut [u8]) -> bool {
        let mut params = [
            Param {
                key: name.as_ptr(),
                data_type: ffi::PARAM_OCTET_STRING,
                data: bytes.as_mut_ptr().cast(),
                data_size: bytes.len(),
                return_size: ffi::PARAM_UNMODIFIED,
            },
            Param::END,
        ];
        // SAFETY: by contract; the parameter describes `bytes`.
        let told = unsafe { self.get_params.call(keydata, params.as_mut_ptr()) };
        told == 1 && params[0].return_size == bytes.len()
    }
}

/// A dispatch table in which `replaced` stands for the stock functions with the same ids. Ids that
/// the stock table lacks are not added.
pub fn overlaid(stock: &[Dispatch], replaced: &[Dispatch]) -> *const Dispatch {
    let ours = |entry: &Dispatch| replaced.iter().find(|ours| ours.id == entry.id).copied();
    let mut table: Vec<Dispatch> = stock
        .iter()
        .map(|entry| ours(entry).unwrap_or(*entry))
        .collect();
    table.push(Dispatch::END);
    Vec::leak(table).as_ptr()
}

/// Says that an operation stays with the default provider for a function in its table.
pub fn unknown(id: c_int) -> String {
    format!(
        "this OpenSSL has a function for it (number {id}) that this version of lockstep does not know; a \
         later version may"
    )
}

/// The wrapper of the function that generates key data, where stock generates it.
pub fn generator<T: Adoptable>() -> Dispatch {
    Gen::entry(generate::<T>)
}

/// The wrappers of the functions that make key data in other ways.
pub fn wrappers<T: Adoptable>() -> [Dispatch; 4] {
    [
        New::entry(new::<T>),
        Import::entry(import::<T>),
        Load::entry(load::<T>),
        Dup::entry(duplicate::<T>),
    ]
}

/// `OSSL_FUNC_keymgmt_new`: the object may be used before it has a private key, so it is prepared
/// now.
unsafe extern "C" fn new<T: Adoptable>(provctx: *mut c_void) -> *mut c_void {
    let Some(functions) = T::stock() else {
        return null_mut();
    };
    // SAFETY: libcrypto's argument, which is the default provider's own context.
    unsafe {
        let keydata = functions.new.call(provctx);
        if !keydata.is_null() {
            T::prepare(keydata);
        }
        keydata
    }
}

/// `OSSL_FUNC_keymgmt_import`: the way every key decoded elsewhere comes to us.
unsafe extern "C" fn import<T: Adoptable>(
    keydata: *mut c_void,
    selection: c_int,
    params: *const Param,
) -> c_int {
    let Some(functions) = T::stock() else {
        return 0;
    };
    // SAFETY: libcrypto's arguments, passed on.
    let imported = unsafe { functions.import(keydata, selection, params) };
    if imported == 1 && selection & T::ADOPTED_WITH != 0 {
        // SAFETY: `keydata` came from `new`; who fills an object may not share it.
        unsafe { T::adopt(keydata, functions) };
    }
    imported
}

/// `OSSL_FUNC_keymgmt_gen`
unsafe extern "C" fn generate<T: Adoptable>(
    genctx: *mut c_void,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> *mut c_void {
    let made = T::stock().and_then(|functions| {
        let generate = Gen::of(&functions.table)?;
        // SAFETY: libcrypto's arguments, passed on; the result is ours.
        Some(unsafe { take_over::<T>(generate.call(genctx, callback, arg), functions) })
    });
    made.unwrap_or(null_mut())
}

/// `OSSL_FUNC_keymgmt_load`
unsafe extern "C" fn load<T: Adoptable>(reference: *const c_void, size: usize) -> *mut c_void {
    let loaded = T::stock().and_then(|functions| {
        let load = Load::of(&functions.table)?;
        // SAFETY: libcrypto's arguments, passed on; the result is ours.
        Some(unsafe { take_over::<T>(load.call(reference, size), functions) })
    });
    loaded.unwrap_or(null_mut())
}

/// `OSSL_FUNC_keymgmt_dup`: where objects cannot be adopted in place, by export and import, because
/// the stock function refuses an RSA object with a method of another's.
unsafe extern "C" fn duplicate<T: Adoptable>(
    keydata: *const c_void,
    selection: c_int,
) -> *mut c_void {
    let Some(functions) = T::stock().filter(|_| !keydata.is_null()) else {
        return null_mut();
    };
    if !T::IN_PLACE {
        // SAFETY: valid key data of this type, from libcrypto.
        return unsafe { adopted_copy::<T>(keydata, selection, functions) };
    }
    let Some(dup) = Dup::of(&functions.table) else {
        return null_mut();
    };
    // SAFETY: libcrypto's arguments, passed on; the result is ours.
    unsafe { take_over::<T>(dup.call(keydata, selection), functions) }
}

/// A copy of `from` that computes on lanes; NULL on failure.
///
/// # Safety
/// `from` is valid key data of this type.
unsafe fn adopted_copy<T: Adoptable>(
    from: *const c_void,
    selection: c_int,
    functions: &'static KeyFunctions,
) -> *mut c_void {
    // SAFETY: by contract.
    let keydata = unsafe { functions.copy(from, selection) };
    if !keydata.is_null() {
        // SAFETY: `copy` made it, and nothing has used it.
        unsafe {
            T::prepare(keydata);
            T::adopt(keydata, functions);
        }
    }
    keydata
}

/// Takes over key data that a stock function has just made: it is adopted, or an adopted copy
/// replaces it.
///
/// # Safety
/// `made` is NULL or key data of this type that belongs to the caller.
pub unsafe fn take_over<T: Adoptable>(
    made: *mut c_void,
    functions: &'static KeyFunctions,
) -> *mut c_void {
    if made.is_null() {
        return null_mut();
    }
    // SAFETY: by contract; freed once, here.
    unsafe {
        if T::IN_PLACE {
            T::adopt(made, functions);
            return made;
        }
        let copy = adopted_copy::<T>(made, select::ALL, functions);
        functions.free(made);
        copy
    }
}

/// Whether an array of parameters is absent or empty.
///
/// # Safety
/// `params` is NULL or ends with a NULL key.
pub unsafe fn is_empty(params: *const Param) -> bool {
    // SAFETY: by contract.
    params.is_null() || unsafe { (*params).key.is_null() }
}
