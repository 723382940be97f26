//! Objects of libcrypto that belong to us.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// An object that libcrypto has made for us, and that it frees when this is dropped.
#[repr(transparent)]
pub struct Owned<T: Freed>(NonNull<T>);

/// What libcrypto frees.
pub trait Freed {
    /// Frees an object that nobody uses any more.
    const FREE: unsafe extern "C" fn(*mut Self);
}

impl<T: Freed> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: ours until it is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Freed> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl<T: Freed> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: ours, and dropped once.
        unsafe { T::FREE(self.0.as_ptr()) }
    }
}
