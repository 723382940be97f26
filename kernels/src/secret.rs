//! Memory that held secrets.

use core::fmt;
use core::ops::{Deref, DerefMut};

/// Words that are wiped when they are dropped and never printed.
#[derive(Clone)]
pub(crate) struct SecretWords(Box<[u64]>);

impl SecretWords {
    /// `count` zero words.
    pub(crate) fn zeroed(count: usize) -> Self {
        Self(vec![0; count].into_boxed_slice())
    }
}

impl Deref for SecretWords {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for SecretWords {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl fmt::Debug for SecretWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Drop for SecretWords {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites `values`, words or bytes, with zeros; the optimiser may not leave this out.
///
/// Unlike a loop of volatile stores it runs at the speed of `memset`, which matters for the
/// hundred kilobytes that a batch leaves behind.
pub fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    zeroize::optimization_barrier(values);
}

/// Defines a byte array that is wiped when it is dropped and never printed.
macro_rules! secret_bytes {
    ($(#[$doc:meta])* $name:ident $(<$bytes:ident>)?, $size:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name $(<const $bytes: usize>)? (pub(crate) [u8; $size]);

        impl $(<const $bytes: usize>)? $name $(<$bytes>)? {
            /// Takes a copy; the caller wipes its own.
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                Self(*bytes)
            }

            /// The bytes.
            pub fn as_bytes(&self) -> &[u8; $size] {
                &self.0
            }
        }

        impl $(<const $bytes: usize>)? core::fmt::Debug for $name $(<$bytes>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "([redacted])"))
            }
        }

        impl $(<const $bytes: usize>)? Drop for $name $(<$bytes>)? {
            fn drop(&mut self) {
                $crate::secret::wipe(&mut self.0);
            }
        }
    };
}
pub(crate) use secret_bytes;
