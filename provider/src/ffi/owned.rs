//! Objects of libcrypto that belong to us.

use std::ops::{Deref, DerefMut};

/// An object that libcrypto has made for us, and that it frees when this is dropped.
///
/// The reference is the only one there is. It may outlive the object for a moment, in `drop`: to
/// those who hold references, objects of libcrypto have no bytes.
#[repr(transparent)]
pub struct Owned<T: Freed>(pub(super) &'static mut T);

/// What libcrypto frees.
pub trait Freed: 'static {
    /// The type of what the function returns, which nobody looks at.
    type Returned;
    /// Frees an object that nobody uses any more.
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
