//! Memory that holds secrets, and the types of secret bytes.

use lockstep_vault::{OnFork, Slice};

/// Words for keys: wiped when they are dropped, never printed.
pub(crate) type SecretWords = Slice<u64>;

/// Allocates `count` zero words for a key. A forked child keeps their contents.
pub(crate) fn key_words(count: usize) -> SecretWords {
    SecretWords::zeroed(count, OnFork::Keep)
}

/// Allocates `count` zero words for values that two processes must not both use. A forked child
/// reads zeros.
pub(crate) fn own_words(count: usize) -> SecretWords {
    SecretWords::zeroed(count, OnFork::Wipe)
}

/// Overwrites `values`, words or bytes, with zeros. The optimiser may not remove this.
///
/// Unlike a loop of volatile stores it is as fast as `memset`, which matters for the hundred
/// kilobytes that a batch leaves behind.
pub fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    zeroize::optimization_barrier(values);
}

/// Defines a byte array that is wiped when it is dropped and never printed.
macro_rules! secret_bytes {
    ($(#[$doc:meta])* $name:ident $(<$bytes:ident>)?, $size:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[repr(transparent)]
        pub struct $name $(<const $bytes: usize>)? (pub(crate) [u8; $size]);

        impl $(<const $bytes: usize>)? $name $(<$bytes>)? {
            /// Copies the bytes; the caller wipes its own.
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                Self(*bytes)
            }

            /// Borrows the caller's bytes without a copy; the caller wipes them.
            #[allow(unsafe_code, reason = "a reference to secret bytes where they lie")]
            pub fn from_ref(bytes: &[u8; $size]) -> &Self {
                // SAFETY: the type is a transparent wrapper of such an array. It is dropped only by
                // value.
                unsafe { &*core::ptr::from_ref(bytes).cast::<Self>() }
            }

            /// Returns the bytes.
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

/// Declares a type of secret bytes in the caller's memory, of any length.
macro_rules! secret_slice {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name([u8]);

        impl $name {
            /// Borrows the caller's bytes without a copy.
            #[allow(unsafe_code, reason = "a reference to secret bytes where they lie")]
            pub fn from_ref(bytes: &[u8]) -> &Self {
                // SAFETY: the type is a transparent wrapper of such bytes.
                unsafe { &*(core::ptr::from_ref(bytes) as *const Self) }
            }

            /// Borrows the caller's bytes to write to, without a copy.
            #[allow(unsafe_code, reason = "a reference to secret bytes where they lie")]
            pub fn from_mut(bytes: &mut [u8]) -> &mut Self {
                // SAFETY: as above.
                unsafe { &mut *(core::ptr::from_mut(bytes) as *mut Self) }
            }

            /// Returns the bytes.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), "([redacted])"))
            }
        }
    };
}
pub(crate) use secret_slice;
