//! The module's values in OpenSSL's key objects.

use std::ffi::{c_int, c_long, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;

use crate::ffi::{self, CryptoExData, EcKey, Rsa};

/// A class of objects with ex_data.
pub trait Object: Sized + 'static {
    /// Its number (`CRYPTO_EX_INDEX_*`).
    const CLASS: c_int;
    const GET: extern "C" fn(&Self, index: c_int) -> *mut c_void;
    const SET: unsafe extern "C" fn(&mut Self, index: c_int, value: *mut c_void) -> c_int;
}

impl Object for Rsa {
    const CLASS: c_int = ffi::EX_INDEX_RSA;
    const GET: extern "C" fn(&Rsa, c_int) -> *mut c_void = ffi::RSA_get_ex_data;
    const SET: unsafe extern "C" fn(&mut Rsa, c_int, *mut c_void) -> c_int = ffi::RSA_set_ex_data;
}

impl Object for EcKey {
    const CLASS: c_int = ffi::EX_INDEX_EC_KEY;
    const GET: extern "C" fn(&EcKey, c_int) -> *mut c_void = ffi::EC_KEY_get_ex_data;
    const SET: unsafe extern "C" fn(&mut EcKey, c_int, *mut c_void) -> c_int =
        ffi::EC_KEY_set_ex_data;
}

/// A slot in the ex_data of all objects `O`, for a value of type `T` in each. The method of an
/// object removes it at the object's end. A copy of an object has none.
pub struct Attached<O, T> {
    index: c_int,
    values: PhantomData<fn(O) -> T>,
}

impl<O: Object, T> Attached<O, T> {
    /// A new slot; None without memory for it.
    pub fn new() -> Option<Attached<O, T>> {
        let index = ffi::CRYPTO_get_ex_new_index(O::CLASS, 0, null_mut(), None, Some(no_dup), None);
        (index >= 0).then_some(Attached {
            index,
            values: PhantomData,
        })
    }

    /// The value of an object, if it has one.
    pub fn get<'a>(&self, object: &'a O) -> Option<&'a T> {
        // SAFETY: nobody else knows the slot: it holds NULL or a box that `replace` has put there,
        // which stays as long as nobody has the object exclusively.
        unsafe { O::GET(object, self.index).cast::<T>().as_ref() }
    }

    /// Gives an object this value instead of any that it has; false without memory for it.
    pub fn put(&self, object: &mut O, value: T) -> bool {
        self.replace(object, Some(Box::new(value)))
    }

    /// Frees the value of an object, if it has one.
    pub fn remove(&self, object: &mut O) {
        if self.get(object).is_some() {
            self.replace(object, None);
        }
    }

    /// Has the slot hold this value, and frees the one before; false without memory for it, which
    /// an empty slot may need.
    fn replace(&self, object: &mut O, value: Option<Box<T>>) -> bool {
        let before = O::GET(object, self.index);
        let value = value.map_or(null_mut(), Box::into_raw).cast();
        // SAFETY: the slot is ours, and the box that is not in it belongs to nobody else: the
        // object is borrowed exclusively.
        unsafe {
            let kept = O::SET(object, self.index, value) == 1;
            let rest = if kept { before } else { value };
            if !rest.is_null() {
                drop(Box::from_raw(rest.cast::<T>()));
            }
            kept
        }
    }
}

/// Keeps a copied object from sharing our value (`CRYPTO_EX_dup`).
extern "C" fn no_dup(
    _to: Option<&mut CryptoExData>,
    _from: Option<&CryptoExData>,
    value: &mut *mut c_void,
    _index: c_int,
    _argl: c_long,
    _argp: *mut c_void,
) -> c_int {
    *value = null_mut();
    1
}
