//! Room for our state in OpenSSL's key objects.

use std::ffi::{c_int, c_long, c_void};
use std::ptr::null_mut;

use crate::ffi::{self, CryptoExData};

/// A new slot in the ex_data of all objects of a class. What lies there is freed by the object's
/// method.
pub fn slot(class: c_int) -> Option<c_int> {
    // SAFETY: a plain request; the function outlives the slot, since the module is never unmapped.
    let index =
        unsafe { ffi::CRYPTO_get_ex_new_index(class, 0, null_mut(), None, Some(no_dup), None) };
    (index >= 0).then_some(index)
}

/// Keeps a copied object from sharing our state (`CRYPTO_EX_dup`).
unsafe extern "C" fn no_dup(
    _to: *mut CryptoExData,
    _from: *const CryptoExData,
    from_d: *mut *mut c_void,
    _index: c_int,
    _argl: c_long,
    _argp: *mut c_void,
) -> c_int {
    // SAFETY: `from_d` points to the value about to be stored in the copy.
    unsafe { *from_d = null_mut() };
    1
}
