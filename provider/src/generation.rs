//! Generation of EC and X25519 keys, from the engine's pool of key pairs.
//!
//! The module's generation context holds two stock ones: one as asked for, and one that makes a
//! *blank*, an object with all that was asked for but the key pair. Into the blank goes a pair of
//! the pool. Where there is none, or the pair must follow from a given secret, the other one
//! generates. If that cannot happen, there is no other one: to set up a curve costs more than a
//! pair of the pool.

use std::ffi::{CStr, c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr::{null, null_mut};

use lockstep_engine::{KeyKind, Keypair};

use crate::ffi::keymgmt::{
    Gen, GenCleanup, GenGetParams, GenGettableParams, GenInit, GenSetParams, GenSetTemplate,
    GenSettableParams,
};
use crate::ffi::{self, Callback, Dispatch, Param, select};
use crate::keymgmt::{KeyFunctions, KeyType};
use crate::overlay::{Ec, X25519};
use crate::{async_job, ec_method, keymgmt, memory};

/// A key type whose key pairs the engine can make.
pub trait Generated: KeyType {
    /// Whether `fill` has stock make what the engine declines.
    const FILLS_ALWAYS: bool;

    /// Puts a new key pair into a blank; false if none can be had, and the object is not used then.
    ///
    /// # Safety
    /// `blank` is stock key data of this type that belongs to the caller, without a key pair.
    unsafe fn fill(blank: *mut c_void, functions: &'static KeyFunctions) -> bool;

    /// Takes over an object that stock has generated.
    ///
    /// # Safety
    /// `made` is NULL or stock key data of this type that belongs to the caller.
    unsafe fn take_over(made: *mut c_void, functions: &'static KeyFunctions) -> *mut c_void;
}

impl Generated for Ec {
    const FILLS_ALWAYS: bool = true;

    unsafe fn fill(blank: *mut c_void, _functions: &'static KeyFunctions) -> bool {
        // SAFETY: by contract; the object's method, ours or stock's, makes the pair.
        unsafe {
            ec_method::adopt(blank.cast());
            ffi::EC_KEY_generate_key(blank.cast()) == 1
        }
    }

    unsafe fn take_over(made: *mut c_void, functions: &'static KeyFunctions) -> *mut c_void {
        // SAFETY: by contract.
        unsafe { crate::keymgmt::take_over::<Ec>(made, functions) }
    }
}

impl Generated for X25519 {
    const FILLS_ALWAYS: bool = false;

    unsafe fn fill(blank: *mut c_void, functions: &'static KeyFunctions) -> bool {
        let Some(Keypair { mut secret, public }) = async_job::keypair(KeyKind::X25519) else {
            return false;
        };
        // Stock keeps secrets as they are used, clamped (RFC 7748, 5).
        let Ok(clamped) = <&mut [u8; 32]>::try_from(secret.as_bytes_mut()) else {
            return false;
        };
        clamped[0] &= 248;
        clamped[31] = clamped[31] & 127 | 64;
        let octets = |name: &'static CStr, bytes: &[u8]| Param {
            key: name.as_ptr(),
            data_type: ffi::PARAM_OCTET_STRING,
            data: bytes.as_ptr().cast_mut().cast(),
            data_size: bytes.len(),
            return_size: ffi::PARAM_UNMODIFIED,
        };
        let params = [
            octets(c"pub", &public),
            octets(c"priv", clamped),
            Param::END,
        ];
        // SAFETY: `blank` by contract; the parameters are only read.
        unsafe { functions.import(blank, select::KEYPAIR, params.as_ptr()) == 1 }
    }

    unsafe fn take_over(made: *mut c_void, _functions: &'static KeyFunctions) -> *mut c_void {
        made
    }
}

/// A generation context.
struct Generation {
    /// The stock context as asked for; NULL if blanks always do.
    full: *mut c_void,
    /// The stock context for blanks; NULL if no key pair was asked for.
    blank: *mut c_void,
    /// The pair follows from a secret of the caller's (DHKEM, OpenSSL 3.2).
    derived: bool,
}

/// The numbers of the functions of key management that do not take a generation context, or are
/// among [`wrappers`] (core_dispatch.h of OpenSSL 3.0 to 3.6).
const KNOWN: &[RangeInclusive<c_int>] = &[1..=8, 10..=16, 20..=23, 40..=46];

/// The functions with wrapped contexts; an error if the stock table has a function unknown here,
/// which may be called with our context.
pub fn wrappers_for<T: Generated>(stock: &[Dispatch]) -> Result<[Dispatch; 8], String> {
    let is_known = |entry: &&Dispatch| KNOWN.iter().any(|known| known.contains(&entry.id));
    match stock.iter().find(|entry| !is_known(entry)) {
        Some(entry) => Err(keymgmt::unknown(entry.id)),
        None => Ok(wrappers::<T>()),
    }
}

/// The functions with the module's contexts. The stock table has at most these.
fn wrappers<T: Generated>() -> [Dispatch; 8] {
    [
        GenInit::entry(init::<T>),
        GenSetTemplate::entry(set_template::<T>),
        GenSetParams::entry(set_params::<T>),
        GenSettableParams::entry(settable_params::<T>),
        Gen::entry(generate::<T>),
        GenCleanup::entry(cleanup::<T>),
        GenGetParams::entry(get_params::<T>),
        GenGettableParams::entry(gettable_params::<T>),
    ]
}

/// `OSSL_FUNC_keymgmt_gen_init`
unsafe extern "C" fn init<T: Generated>(
    provctx: *mut c_void,
    selection: c_int,
    params: *const Param,
) -> *mut c_void {
    let Some(functions) = T::stock().filter(|_| !memory::is_nearly_gone()) else {
        return null_mut();
    };
    let Some(stock) = GenInit::of(&functions.table) else {
        return null_mut();
    };
    let mut blank = null_mut();
    if selection & select::KEYPAIR != 0 {
        // Something must be selected; the parameters come with every object anyway.
        let rest = selection & !select::KEYPAIR | select::DOMAIN_PARAMETERS;
        // SAFETY: libcrypto's arguments, passed on.
        blank = unsafe { stock.call(provctx, rest, params) };
        if blank.is_null() {
            return null_mut();
        }
    }
    let mut full = null_mut();
    // SAFETY: libcrypto's arguments; stock tells what can be set without a context.
    unsafe {
        let settable = GenSettableParams::of(&functions.table)
            .map_or(null(), |stock| stock.call(null_mut(), provctx));
        if blank.is_null() || !T::FILLS_ALWAYS || gives_secret(settable) {
            full = stock.call(provctx, selection, params);
            if full.is_null() {
                if let Some(cleanup) = GenCleanup::of(&functions.table) {
                    cleanup.call(blank);
                }
                return null_mut();
            }
        }
    }
    let context = Generation {
        full,
        blank,
        // SAFETY: libcrypto's argument.
        derived: unsafe { gives_secret(params) },
    };
    Box::into_raw(Box::new(context)).cast()
}

/// Whether a secret is among the parameters, from which a key pair is to follow.
///
/// # Safety
/// `params` is NULL or ends with a NULL key.
unsafe fn gives_secret(mut params: *const Param) -> bool {
    // SAFETY: by contract; we stop at the end.
    unsafe {
        while !params.is_null() && !(*params).key.is_null() {
            if CStr::from_ptr((*params).key) == c"dhkem-ikm" {
                return true;
            }
            params = params.add(1);
        }
    }
    false
}

/// Our context behind libcrypto's pointer.
///
/// # Safety
/// `genctx` is NULL or came from [`init`], and nobody else uses it now.
unsafe fn context<'a>(genctx: *mut c_void) -> Option<&'a mut Generation> {
    // SAFETY: by contract.
    unsafe { genctx.cast::<Generation>().as_mut() }
}

impl Generation {
    /// The stock contexts there are.
    fn contexts(&self) -> impl Iterator<Item = *mut c_void> {
        [self.full, self.blank]
            .into_iter()
            .filter(|stock| !stock.is_null())
    }

    /// Calls a function on each; 1 if it is content with all.
    fn each(&self, call: impl Fn(*mut c_void) -> c_int) -> c_int {
        c_int::from(self.contexts().all(|stock| call(stock) == 1))
    }

    /// One of them, to ask.
    fn any(&self) -> *mut c_void {
        self.contexts().next().unwrap_or(null_mut())
    }
}

/// `OSSL_FUNC_keymgmt_gen_set_template`
unsafe extern "C" fn set_template<T: Generated>(
    genctx: *mut c_void,
    template: *mut c_void,
) -> c_int {
    let stock = T::stock().and_then(|functions| GenSetTemplate::of(&functions.table));
    // SAFETY: libcrypto's arguments; the stock function copies from the template.
    unsafe {
        match (context(genctx), stock) {
            (Some(ours), Some(stock)) => ours.each(|genctx| stock.call(genctx, template)),
            _ => 0,
        }
    }
}

/// `OSSL_FUNC_keymgmt_gen_set_params`
unsafe extern "C" fn set_params<T: Generated>(genctx: *mut c_void, params: *const Param) -> c_int {
    let stock = T::stock().and_then(|functions| GenSetParams::of(&functions.table));
    // SAFETY: libcrypto's arguments, passed on.
    unsafe {
        match (context(genctx), stock) {
            (Some(ours), Some(stock)) => {
                ours.derived |= gives_secret(params);
                ours.each(|genctx| stock.call(genctx, params))
            }
            _ => 0,
        }
    }
}

/// `OSSL_FUNC_keymgmt_gen_settable_params`
unsafe extern "C" fn settable_params<T: Generated>(
    genctx: *mut c_void,
    provctx: *mut c_void,
) -> *const Param {
    let stock = T::stock().and_then(|functions| GenSettableParams::of(&functions.table));
    // SAFETY: libcrypto's arguments; it may ask without a context.
    unsafe {
        let full = context(genctx).map_or(null_mut(), |ours| ours.any());
        stock.map_or(null(), |stock| stock.call(full, provctx))
    }
}

/// `OSSL_FUNC_keymgmt_gen`
unsafe extern "C" fn generate<T: Generated>(
    genctx: *mut c_void,
    callback: Option<Callback>,
    arg: *mut c_void,
) -> *mut c_void {
    // SAFETY: libcrypto's argument.
    let ours = unsafe { context(genctx) };
    let (Some(ours), Some(functions)) = (ours, T::stock()) else {
        return null_mut();
    };
    let Some(stock) = Gen::of(&functions.table) else {
        return null_mut();
    };
    if !ours.derived && !ours.blank.is_null() {
        // SAFETY: libcrypto's arguments; the blank is ours, and freed unless it is returned.
        unsafe {
            let made = stock.call(ours.blank, callback, arg);
            if !made.is_null() {
                if T::fill(made, functions) {
                    return made;
                }
                functions.free(made);
            }
        }
    }
    if ours.full.is_null() {
        return null_mut();
    }
    // SAFETY: libcrypto's arguments, passed on; the result is ours.
    unsafe { T::take_over(stock.call(ours.full, callback, arg), functions) }
}

/// `OSSL_FUNC_keymgmt_gen_cleanup`
unsafe extern "C" fn cleanup<T: Generated>(genctx: *mut c_void) {
    if genctx.is_null() {
        return;
    }
    // SAFETY: made by `init`, and not used afterwards.
    let ours = unsafe { Box::from_raw(genctx.cast::<Generation>()) };
    if let Some(stock) = T::stock().and_then(|functions| GenCleanup::of(&functions.table)) {
        for genctx in ours.contexts() {
            // SAFETY: stock's own context.
            unsafe { stock.call(genctx) };
        }
    }
}

/// `OSSL_FUNC_keymgmt_gen_get_params` (OpenSSL 3.4)
unsafe extern "C" fn get_params<T: Generated>(genctx: *mut c_void, params: *mut Param) -> c_int {
    let stock = T::stock().and_then(|functions| GenGetParams::of(&functions.table));
    // SAFETY: libcrypto's arguments, passed on.
    unsafe {
        match (context(genctx), stock) {
            (Some(ours), Some(stock)) => stock.call(ours.any(), params),
            _ => 0,
        }
    }
}

/// `OSSL_FUNC_keymgmt_gen_gettable_params` (OpenSSL 3.4)
unsafe extern "C" fn gettable_params<T: Generated>(
    genctx: *mut c_void,
    provctx: *mut c_void,
) -> *const Param {
    let stock = T::stock().and_then(|functions| GenGettableParams::of(&functions.table));
    // SAFETY: libcrypto's arguments; it may ask without a context.
    unsafe {
        let full = context(genctx).map_or(null_mut(), |ours| ours.any());
        stock.map_or(null(), |stock| stock.call(full, provctx))
    }
}
