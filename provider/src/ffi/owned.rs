//! Objects of libcrypto that the module owns.

use std::ops::{Deref, DerefMut};

/// An object that libcrypto has made for the module. When the value is dropped, libcrypto frees the
/// object.
///
/// There is no other reference to the object. In `drop`, the reference outlives the object for a
/// moment. That is sound, since the type has a size of zero.
#[repr(transparent)]
pub struct Owned<T: Freed>(pub(super) &'static mut T);

/// An object that libcrypto frees.
pub trait Freed: 'static {
    /// Type of the function's result, which is ignored.
    type Returned;
    /// Function that frees an unused object.
    const FREE: unsafe extern "C" fn(*mut Self) -> Self::Returned;
}

impl<T: Freed> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Freed> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

impl<T: Freed> Drop for Owned<T> {
    fn drop(&mut self) {
        const { assert!(size_of::<T>() == 0, "an object of libcrypto") };
        // SAFETY: ours, and dropped once.
        unsafe { T::FREE(self.0) };
    }
}
