//! Contexts and keys behind C's pointers.
//!
//! The Rust type of an OpenSSL object names its algorithm. So the compiler refuses to pass the
//! object to a function of another algorithm.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::null_mut;

use super::convert::{Absent, Answer, Passed, Pointer};
use super::owned::{Freed, Owned};
use super::types::{Dispatch, Function};

/// The context of a default provider (`PROV_CTX`), which is also the context of the module's
/// instances.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ProvCtx(*mut c_void);

impl ProvCtx {
    /// # Safety
    /// `context` belongs to a default provider of the libcrypto that the module calls, and stays
    /// valid as long as the result is used.
    pub unsafe fn new(context: *mut c_void) -> ProvCtx {
        ProvCtx(context)
    }

    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the module returned it when it was loaded.
unsafe impl Pointer<*mut c_void> for ProvCtx {}

impl Passed<(*mut c_void,)> for ProvCtx {
    fn into_raw(self) -> (*mut c_void,) {
        (self.0,)
    }
}

/// The module's context behind libcrypto's pointer. It is exclusive, since such a context belongs
/// to one thread at a time. libcrypto calls some functions with NULL.
pub type Ctx<'a, C> = Option<&'a mut C>;

// SAFETY: the constructor of the same table returned it, or it is NULL.
unsafe impl<C> Pointer<*mut c_void> for Ctx<'_, C> {}

// SAFETY: libcrypto gives back a box that `into_answer` below has released, or NULL.
unsafe impl<C> Pointer<*mut c_void> for Option<Box<C>> {}

/// A new context of the module.
impl<C> Answer<*mut c_void> for Option<Box<C>> {
    const FAILED: *mut c_void = null_mut();

    fn into_answer(self) -> *mut c_void {
        self.map_or(null_mut(), |context| Box::into_raw(context).cast())
    }
}

/// Key data of the module's own. libcrypto keeps a key as long as it is used, and several threads
/// may use it at once.
#[repr(transparent)]
pub struct Own<K>(K);

impl<K: Send + Sync + 'static> Own<K> {
    pub fn new(key: K) -> Box<Own<K>> {
        Box::new(Own(key))
    }
}

impl<K> Deref for Own<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

// SAFETY: the constructor of the same table returned it, or it is NULL. Such key data are only
// shared, and `new` takes only data that may be shared.
unsafe impl<K> Pointer<*mut c_void> for Option<&Own<K>> {}
// SAFETY: as above.
unsafe impl<K> Pointer<*const c_void> for Option<&Own<K>> {}

/// An algorithm of the default provider, as a type.
pub trait Functions: 'static {
    /// Number of the function that frees a context.
    const FREE_CONTEXT: c_int;
    /// Number of the function that frees a key; 0 if there are no keys.
    const FREE_KEY: c_int;

    /// Returns OpenSSL's own functions; none if its default provider lacks the algorithm.
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

/// An algorithm whose key data are objects that libcrypto has functions for.
///
/// # Safety
/// The default provider's key data of this algorithm are such objects.
pub unsafe trait KeyObjects: Functions {
    type Object;
}

impl<K: KeyObjects> KeyData<K> {
    /// Returns the key data as an object of libcrypto.
    #[allow(clippy::mut_from_ref)]
    pub fn object(&self) -> &mut K::Object {
        const { assert!(size_of::<K::Object>() == 0, "an object of libcrypto") };
        // SAFETY: the key data are such an object, by contract of `KeyObjects`. To Rust the object
        // has no bytes. In C it has locks of its own, and a thread that makes or fills an object
        // does not share it.
        unsafe { &mut *self.into_subject().cast() }
    }
}

/// A context of OpenSSL that the module owns.
pub type StockCtx<T> = Owned<StockContext<T>>;

/// A key of OpenSSL that the module owns.
pub type OwnedKey<T> = Owned<KeyData<T>>;

// SAFETY: any thread may use and free an EVP_PKEY, and with it the key data that it holds.
unsafe impl<T: Functions> Send for OwnedKey<T> {}
// SAFETY: as above. The functions that change a key, such as `Import`, are called before other
// threads have the key.
unsafe impl<T: Functions> Sync for OwnedKey<T> {}

impl<T: Functions> Freed for StockContext<T> {
    type Returned = ();
    const FREE: unsafe extern "C" fn(*mut Self) = free::<T, Self>;
}

impl<T: Functions> Freed for KeyData<T> {
    type Returned = ();
    const FREE: unsafe extern "C" fn(*mut Self) = free::<T, Self>;
}

/// An object that a function in the table of `T` frees.
trait FreedBy<T: Functions> {
    /// Number of the function.
    const ID: c_int;
}

impl<T: Functions> FreedBy<T> for StockContext<T> {
    const ID: c_int = T::FREE_CONTEXT;
}

impl<T: Functions> FreedBy<T> for KeyData<T> {
    const ID: c_int = T::FREE_KEY;
}

/// Frees an unused object by OpenSSL's own function.
unsafe extern "C" fn free<T: Functions, O: FreedBy<T>>(object: *mut O) {
    let entry = T::table().iter().find(|entry| entry.id == O::ID);
    if let Some(function) = entry.and_then(|entry| entry.function) {
        // SAFETY: all functions that free contexts and keys have this type (core_dispatch.h). The
        // object was made by a function of the same table; nobody uses it any more by contract.
        unsafe {
            let function: unsafe extern "C" fn(*mut O) =
                std::mem::transmute::<Function, _>(function);
            function(object);
        }
    }
}

// SAFETY: an object that becomes ours, or NULL.
unsafe impl<T: Freed> Pointer<*mut c_void> for Option<Owned<T>> {}

/// An object that libcrypto takes over.
impl<T: Freed> Answer<*mut c_void> for Option<Owned<T>> {
    const FAILED: *mut c_void = null_mut();

    fn into_answer(self) -> *mut c_void {
        let object = self.map(ManuallyDrop::new);
        object.map_or(null_mut(), |mut object| {
            std::ptr::from_mut(&mut **object).cast()
        })
    }
}

impl<T: Freed> Absent for Option<Owned<T>> {
    const ABSENT: Self = None;
}

// SAFETY: valid key data, or NULL.
unsafe impl<K> Pointer<*mut c_void> for Option<&KeyData<K>> {}
// SAFETY: as above. Some functions of C take a key as `const`.
unsafe impl<K> Pointer<*const c_void> for Option<&KeyData<K>> {}

impl<K> Passed<(*mut c_void,)> for Option<&KeyData<K>> {
    fn into_raw(self) -> (*mut c_void,) {
        (self.map_or(null_mut(), Subject::into_subject),)
    }
}

/// The first argument of a function in the table of `T`.
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

/// For functions that list settable parameters, with a context or without.
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
