//! The tables we offer: the default provider's, with the functions that make RSA keys wrapped.
//!
//! Only four kinds of key management function differ from stock, those through which key data
//! comes into being: import, generate, load and duplicate. Each leaves behind a stock `RSA` object
//! that [`rsa_method::adopt`] has given our method. The constructor of signature contexts drops the
//! caller's property query. Everything else, every signature and decryption function included, is
//! the stock function itself, called by libcrypto directly.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::ffi::{
    self, Algorithm, Callback, Dispatch, Function, KeymgmtDup, KeymgmtExport, KeymgmtFree,
    KeymgmtGen, KeymgmtImport, KeymgmtLoad, KeymgmtNew, Param, SignatureNewctx, keymgmt, operation,
};
use crate::rsa_method;
use crate::stock::{self, Stock};

/// Marks what we want preferred; `dist/openssl.cnf` asks for it.
const FAST: &CStr = c"provider=lockstep,lockstep.fast=yes";
/// Marks key management that only takes keys over; `dist/openssl.cnf` steers away from it, so
/// that generating and decoding keys stay with the default provider.
const KEYS: &CStr = c"provider=lockstep,lockstep.keys=yes";

/// `OSSL_FUNC_provider_query_operation`
pub unsafe extern "C" fn query(
    _provctx: *mut c_void,
    operation_id: c_int,
    no_cache: *mut c_int,
) -> *const Algorithm {
    if !no_cache.is_null() {
        // SAFETY: libcrypto's output pointer.
        unsafe { *no_cache = 0 };
    }
    let Some(tables) = tables() else {
        return null();
    };
    match operation_id {
        operation::KEYMGMT => tables.keymgmt.as_ptr(),
        operation::SIGNATURE => tables.signature.as_ptr(),
        operation::ASYM_CIPHER => tables.asym_cipher.as_ptr(),
        _ => null(),
    }
}

/// The key types we take over: RSA, and RSA-PSS, which is a type of its own.
#[derive(Clone, Copy)]
enum KeyType {
    Rsa,
    RsaPss,
}

/// Our algorithm arrays, and the stock functions the wrappers call.
struct Tables {
    keymgmt: Vec<Algorithm>,
    signature: Vec<Algorithm>,
    asym_cipher: Vec<Algorithm>,
    rsa: KeyFunctions,
    rsa_pss: KeyFunctions,
    new_signature: SignatureNewctx,
}

// SAFETY: the tables are immutable, live as long as the process and hold pointers to static data
// and functions only.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

fn tables() -> Option<&'static Tables> {
    static TABLES: OnceLock<Option<Tables>> = OnceLock::new();
    TABLES.get_or_init(|| Tables::new(stock::stock()?)).as_ref()
}

impl Tables {
    fn new(stock: &Stock) -> Option<Tables> {
        let rsa = stock.algorithm(operation::KEYMGMT, c"RSA")?;
        let rsa_pss = stock.algorithm(operation::KEYMGMT, c"RSA-PSS")?;
        let signature = stock.algorithm(operation::SIGNATURE, c"RSA")?;
        let asym_cipher = stock.algorithm(operation::ASYM_CIPHER, c"RSA")?;
        let newctx = stock::function(&stock::entries(&signature), ffi::SIGNATURE_NEWCTX)?;
        Some(Tables {
            rsa: KeyFunctions::new(stock, &rsa)?,
            rsa_pss: KeyFunctions::new(stock, &rsa_pss)?,
            keymgmt: vec![
                wrapped(&rsa, KeyType::Rsa),
                wrapped(&rsa_pss, KeyType::RsaPss),
                Algorithm::END,
            ],
            signature: vec![signature_table(&signature), Algorithm::END],
            asym_cipher: vec![
                Algorithm {
                    properties: FAST.as_ptr(),
                    ..asym_cipher
                },
                Algorithm::END,
            ],
            // SAFETY: the function with this id has this type (core_dispatch.h).
            new_signature: unsafe { std::mem::transmute::<Function, SignatureNewctx>(newctx) },
        })
    }

    fn keys(&self, key_type: KeyType) -> &KeyFunctions {
        match key_type {
            KeyType::Rsa => &self.rsa,
            KeyType::RsaPss => &self.rsa_pss,
        }
    }
}

/// The stock key management `algorithm` with our wrappers in place of the functions that make keys.
fn wrapped(algorithm: &Algorithm, key_type: KeyType) -> Algorithm {
    let ours = |rsa: Function, rsa_pss: Function| match key_type {
        KeyType::Rsa => Some(rsa),
        KeyType::RsaPss => Some(rsa_pss),
    };
    let mut table = stock::entries(algorithm);
    for entry in &mut table {
        // SAFETY (of the transmutes): OSSL_DISPATCH stores functions of all types as `Function`,
        // and libcrypto casts each back to the type that belongs to its id.
        match entry.id {
            keymgmt::IMPORT => {
                // SAFETY: see above.
                let cast = |f: KeymgmtImport| unsafe { std::mem::transmute::<_, Function>(f) };
                entry.function = ours(cast(import::<0>), cast(import::<1>));
            }
            keymgmt::GEN => {
                // SAFETY: see above.
                let cast = |f: KeymgmtGen| unsafe { std::mem::transmute::<_, Function>(f) };
                entry.function = ours(cast(generate::<0>), cast(generate::<1>));
            }
            keymgmt::LOAD => {
                // SAFETY: see above.
                let cast = |f: KeymgmtLoad| unsafe { std::mem::transmute::<_, Function>(f) };
                entry.function = ours(cast(load::<0>), cast(load::<1>));
            }
            keymgmt::DUP => {
                // SAFETY: see above.
                let cast = |f: KeymgmtDup| unsafe { std::mem::transmute::<_, Function>(f) };
                entry.function = ours(cast(duplicate::<0>), cast(duplicate::<1>));
            }
            _ => {}
        }
    }
    table.push(Dispatch::END);
    Algorithm {
        properties: KEYS.as_ptr(),
        implementation: Vec::leak(table).as_ptr(),
        ..*algorithm
    }
}

/// The stock signature `algorithm` with our constructor.
fn signature_table(algorithm: &Algorithm) -> Algorithm {
    let mut table = stock::entries(algorithm);
    for entry in &mut table {
        if entry.id == ffi::SIGNATURE_NEWCTX {
            // SAFETY: OSSL_DISPATCH stores functions of all types as `Function`, and libcrypto casts
            // each back to the type that belongs to its id.
            entry.function =
                Some(unsafe { std::mem::transmute::<SignatureNewctx, Function>(new_signature) });
        }
    }
    table.push(Dispatch::END);
    Algorithm {
        properties: FAST.as_ptr(),
        implementation: Vec::leak(table).as_ptr(),
        ..*algorithm
    }
}

/// `OSSL_FUNC_signature_newctx`: without the property query that found us. The stock function would
/// look for digests with it, in our private context, where only the default provider is:
/// `provider=lockstep` finds none there.
unsafe extern "C" fn new_signature(provctx: *mut c_void, _propq: *const c_char) -> *mut c_void {
    let Some(tables) = tables() else {
        return null_mut();
    };
    // SAFETY: the stock constructor with its own context; it takes NULL for no query.
    unsafe { (tables.new_signature)(provctx, null()) }
}

/// The stock functions that make, fill, read and free the key data of one key type.
pub struct KeyFunctions {
    provctx: usize,
    new: KeymgmtNew,
    free: KeymgmtFree,
    import: KeymgmtImport,
    export: KeymgmtExport,
    generate: Option<KeymgmtGen>,
    load: Option<KeymgmtLoad>,
}

impl KeyFunctions {
    fn new(stock: &Stock, algorithm: &Algorithm) -> Option<KeyFunctions> {
        let table = stock::entries(algorithm);
        let find = |id| stock::function(&table, id);
        // SAFETY (all): the function with each of these ids has this type (core_dispatch.h).
        Some(KeyFunctions {
            provctx: stock.provctx() as usize,
            // SAFETY: see above.
            new: unsafe { std::mem::transmute::<Function, KeymgmtNew>(find(keymgmt::NEW)?) },
            // SAFETY: see above.
            free: unsafe { std::mem::transmute::<Function, KeymgmtFree>(find(keymgmt::FREE)?) },
            // SAFETY: see above.
            import: unsafe {
                std::mem::transmute::<Function, KeymgmtImport>(find(keymgmt::IMPORT)?)
            },
            // SAFETY: see above.
            export: unsafe {
                std::mem::transmute::<Function, KeymgmtExport>(find(keymgmt::EXPORT)?)
            },
            // SAFETY: see above.
            generate: find(keymgmt::GEN)
                .map(|f| unsafe { std::mem::transmute::<Function, KeymgmtGen>(f) }),
            // SAFETY: see above.
            load: find(keymgmt::LOAD)
                .map(|f| unsafe { std::mem::transmute::<Function, KeymgmtLoad>(f) }),
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
            unsafe { (target.functions.import)(target.keydata, target.selection, params) }
        }
        // SAFETY: the stock constructor with its own context.
        let keydata = unsafe { (self.new)(self.provctx as *mut c_void) };
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
            (self.export)(
                from.cast_mut(),
                selection,
                receive,
                (&raw mut target).cast(),
            )
        };
        if copied != 1 {
            // SAFETY: we own `keydata`.
            unsafe { (self.free)(keydata) };
            return null_mut();
        }
        keydata
    }

    /// A copy of `from` that computes on lanes; NULL on failure.
    ///
    /// # Safety
    /// `from` is valid key data of this type.
    unsafe fn adopted_copy(&'static self, from: *const c_void, selection: c_int) -> *mut c_void {
        // SAFETY: by contract.
        let keydata = unsafe { self.copy(from, selection) };
        if !keydata.is_null() {
            // SAFETY: `copy` made it, and nothing has used it.
            unsafe { rsa_method::adopt(keydata.cast(), self) };
        }
        keydata
    }

    /// Takes over key data that a stock function has just made: an adopted copy replaces it.
    ///
    /// A copy because the new object may have been used already (its method holds caches that
    /// `RSA_set_method` would free under it).
    ///
    /// # Safety
    /// `made` is NULL or key data of this type that belongs to the caller.
    unsafe fn take_over(&'static self, made: *mut c_void) -> *mut c_void {
        if made.is_null() {
            return null_mut();
        }
        // SAFETY: by contract; freed once, here.
        unsafe {
            let copy = self.adopted_copy(made, keymgmt::SELECT_ALL);
            (self.free)(made);
            copy
        }
    }
}

/// The stock functions of key type `TYPE` (0 RSA, 1 RSA-PSS).
fn functions<const TYPE: usize>() -> Option<&'static KeyFunctions> {
    Some(tables()?.keys(if TYPE == 0 {
        KeyType::Rsa
    } else {
        KeyType::RsaPss
    }))
}

/// `OSSL_FUNC_keymgmt_import`: the way every key decoded elsewhere comes to us.
unsafe extern "C" fn import<const TYPE: usize>(
    keydata: *mut c_void,
    selection: c_int,
    params: *const Param,
) -> c_int {
    let Some(functions) = functions::<TYPE>() else {
        return 0;
    };
    // SAFETY: libcrypto's arguments, passed on.
    let imported = unsafe { (functions.import)(keydata, selection, params) };
    if imported == 1 && selection & keymgmt::SELECT_PRIVATE_KEY != 0 {
        // SAFETY: `keydata` came from the stock `new` and has just been filled.
        unsafe { rsa_method::adopt(keydata.cast(), functions) };
    }
    imported
}

/// `OSSL_FUNC_keymgmt_gen`
unsafe extern "C" fn generate<const TYPE: usize>(
    genctx: *mut c_void,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> *mut c_void {
    let Some(functions) = functions::<TYPE>() else {
        return null_mut();
    };
    let Some(generate) = functions.generate else {
        return null_mut();
    };
    // SAFETY: libcrypto's arguments, passed on; the result is ours.
    unsafe { functions.take_over(generate(genctx, callback, arg)) }
}

/// `OSSL_FUNC_keymgmt_load`
unsafe extern "C" fn load<const TYPE: usize>(reference: *const c_void, size: usize) -> *mut c_void {
    let Some(functions) = functions::<TYPE>() else {
        return null_mut();
    };
    let Some(load) = functions.load else {
        return null_mut();
    };
    // SAFETY: libcrypto's arguments, passed on; the result is ours.
    unsafe { functions.take_over(load(reference, size)) }
}

/// `OSSL_FUNC_keymgmt_dup`: by export and import, because the stock function refuses an RSA
/// object with a method of another's.
unsafe extern "C" fn duplicate<const TYPE: usize>(
    keydata: *const c_void,
    selection: c_int,
) -> *mut c_void {
    let Some(functions) = functions::<TYPE>() else {
        return null_mut();
    };
    if keydata.is_null() {
        return null_mut();
    }
    // SAFETY: valid key data of this type, from libcrypto.
    unsafe { functions.adopted_copy(keydata, selection) }
}

/// Frees a stock RSA object.
///
/// # Safety
/// `rsa` was made by [`KeyFunctions::copy`] and is not used afterwards.
pub unsafe fn free_key(functions: &KeyFunctions, rsa: *mut ffi::Rsa) {
    // SAFETY: by contract.
    unsafe { (functions.free)(rsa.cast()) }
}
