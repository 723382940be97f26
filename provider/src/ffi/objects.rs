//! Contexts and keys behind C's pointers.
//!
//! Those of OpenSSL's carry their algorithm as a type, so that none meets the functions of another.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};

use super::convert::{Absent, Answer, Argument, Passed};
use super::types::{Dispatch, Function};

/// The context of a default provider (`PROV_CTX`), which is also that of our instances.
#[derive(Clone, Copy)]
pub struct ProvCtx(*mut c_void);

impl ProvCtx {
    /// # Safety
    /// A default provider of the libcrypto that we call has this context, as long as the result is
    /// used.
    pub unsafe fn new(context: *mut c_void) -> ProvCtx {
        ProvCtx(context)
    }

    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

impl Argument<(*mut c_void,)> for ProvCtx {
    unsafe fn from_raw((context,): (*mut c_void,)) -> Self {
        ProvCtx(context)
    }
}

impl Passed<(*mut c_void,)> for ProvCtx {
    fn into_raw(self) -> (*mut c_void,) {
        (self.0,)
    }
}

/// The module's context behind libcrypto's pointer, which nobody else uses: such a context belongs
/// to one thread at a time. libcrypto asks some questions without one.
pub type Ctx<'a, C> = Option<&'a mut C>;

impl<C> Argument<(*mut c_void,)> for Ctx<'_, C> {
    unsafe fn from_raw((context,): (*mut c_void,)) -> Self {
        // SAFETY: NULL, or by contract what the constructor of the same table returned.
        unsafe { context.cast::<C>().as_mut() }
    }
}

/// A context of the module that libcrypto gives back.
impl<C> Argument<(*mut c_void,)> for Option<Box<C>> {
    unsafe fn from_raw((context,): (*mut c_void,)) -> Self {
        // SAFETY: NULL, or by contract the box below, which libcrypto does not use any more.
        (!context.is_null()).then(|| unsafe { Box::from_raw(context.cast()) })
    }
}

/// A new context of the module.
impl<C> Answer<*mut c_void> for Option<Box<C>> {
    const FAILED: *mut c_void = null_mut();

    fn into_answer(self) -> *mut c_void {
        self.map_or(null_mut(), |context| Box::into_raw(context).cast())
    }
}

/// An algorithm of the default provider, as a type.
pub trait Functions: 'static {
    /// The number of the function that frees a context.
    const FREE_CONTEXT: c_int;
    /// The number of the function that frees a key; 0 if there are none.
    const FREE_KEY: c_int;

    /// OpenSSL's own functions; none if its default provider lacks the algorithm.
    fn table() -> &'static [Dispatch];
}

/// A context of OpenSSL's own implementation of `T`, only ever handled by reference.
#[repr(C)]
pub struct StockContext<T> {
    _private: UnsafeCell<[u8; 0]>,
    algorithm: PhantomData<(*mut T, PhantomPinned)>,
}

/// Key data of OpenSSL's own implementation of `T`, only ever handled by reference.
#[repr(C)]
pub struct KeyData<T> {
    _private: UnsafeCell<[u8; 0]>,
    algorithm: PhantomData<(*mut T, PhantomPinned)>,
}

/// A context of OpenSSL's that belongs to us.
pub struct StockCtx<T: Functions>(NonNull<StockContext<T>>);

/// A key of OpenSSL's that belongs to us.
pub struct OwnedKey<T: Functions>(NonNull<KeyData<T>>);

// SAFETY: key data may be used and freed by any thread: EVP_PKEYs hold it.
unsafe impl<T: Functions> Send for OwnedKey<T> {}
// SAFETY: as above; the functions that change a key want more than a shared reference.
unsafe impl<T: Functions> Sync for OwnedKey<T> {}

/// Has OpenSSL's own function with this number free an object.
///
/// # Safety
/// The function frees what it is given, the object is of its kind, and nobody uses it any more.
unsafe fn free(table: &[Dispatch], id: c_int, object: *mut c_void) {
    let entry = table.iter().find(|entry| entry.id == id);
    if let Some(function) = entry.and_then(|entry| entry.function) {
        // SAFETY: all functions that free contexts and keys have this type (core_dispatch.h); the
        // rest is by contract.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_void) =
                std::mem::transmute::<Function, _>(function);
            function(object);
        }
    }
}

macro_rules! owned {
    ($owned:ident of $object:ident, $id:ident) => {
        impl<T: Functions> Deref for $owned<T> {
            type Target = $object<T>;

            fn deref(&self) -> &$object<T> {
                // SAFETY: ours until it is dropped.
                unsafe { self.0.as_ref() }
            }
        }

        impl<T: Functions> Drop for $owned<T> {
            fn drop(&mut self) {
                // SAFETY: made by a function of the same table, and ours.
                unsafe { free(T::table(), T::$id, self.0.as_ptr().cast()) }
            }
        }

        impl<T: Functions> Argument<(*mut c_void,)> for Option<$owned<T>> {
            unsafe fn from_raw((object,): (*mut c_void,)) -> Self {
                NonNull::new(object.cast()).map($owned)
            }
        }

        /// An object that libcrypto takes over.
        impl<T: Functions> Answer<*mut c_void> for Option<$owned<T>> {
            const FAILED: *mut c_void = null_mut();

            fn into_answer(self) -> *mut c_void {
                let object = self.map(std::mem::ManuallyDrop::new);
                object.map_or(null_mut(), |object| object.0.as_ptr().cast())
            }
        }

        impl<T: Functions> Absent for Option<$owned<T>> {
            const ABSENT: Self = None;
        }
    };
}

owned! { StockCtx of StockContext, FREE_CONTEXT }
owned! { OwnedKey of KeyData, FREE_KEY }

/// C says of some keys that they are not changed.
macro_rules! keys {
    ($($pointer:ty),*) => {$(
        impl<K> Argument<($pointer,)> for Option<&KeyData<K>> {
            unsafe fn from_raw((key,): ($pointer,)) -> Self {
                // SAFETY: NULL, or valid key data by contract.
                unsafe { key.cast::<KeyData<K>>().as_ref() }
            }
        }
    )*};
}

keys! { *mut c_void, *const c_void }

impl<K> Passed<(*mut c_void,)> for Option<&KeyData<K>> {
    fn into_raw(self) -> (*mut c_void,) {
        (self.map_or(null_mut(), Subject::into_subject),)
    }
}

/// What a function of the table of `T` works on: its first argument.
pub trait Subject<T> {
    fn into_subject(self) -> *mut c_void;
}

impl<T> Subject<T> for ProvCtx {
    fn into_subject(self) -> *mut c_void {
        self.0
    }
}

impl<T> Subject<T> for &StockContext<T> {
    fn into_subject(self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// For functions that tell what can be set, with a context or without.
impl<T> Subject<T> for Option<&StockContext<T>> {
    fn into_subject(self) -> *mut c_void {
        self.map_or(null_mut(), Subject::into_subject)
    }
}

impl<T> Subject<T> for &KeyData<T> {
    fn into_subject(self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}
