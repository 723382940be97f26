//! Memory that held secrets.

use lockstep_vault::{OnFork, Slice};

/// Words in memory for keys: wiped when they are dropped, never printed.
pub(crate) type SecretWords = Slice<u64>;

/// `count` zero words that a forked child keeps: for keys.
pub(crate) fn key_words(count: usize) -> SecretWords {
    SecretWords::zeroed(count, OnFork::Keep)
}

/// `count` zero words that are zero again in a forked child: for what two processes must not both
/// use.
pub(crate) fn own_words(count: usize) -> SecretWords {
    SecretWords::zeroed(count, OnFork::Wipe)
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
        #[repr(transparent)]
        pub struct $name $(<const $bytes: usize>)? (pub(crate) [u8; $size]);

        impl $(<const $bytes: usize>)? $name $(<$bytes>)? {
            /// Takes a copy; the caller wipes its own.
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                Self(*bytes)
            }

            /// The caller's bytes where they are, without a copy; the caller wipes them.
            #[allow(unsafe_code, reason = "a reference to secret bytes where they lie")]
            pub fn from_ref(bytes: &[u8; $size]) -> &Self {
                // SAFETY: the type is transparent: nothing but such an array. It is dropped only by
                // value.
                unsafe { &*core::ptr::from_ref(bytes).cast::<Self>() }
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

/// Declares a type of secret bytes in memory of the caller, as many as there are.
macro_rules! secret_slice {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name([u8]);

        impl $name {
            /// The caller's bytes where they are, without a copy.
            #[allow(unsafe_code, reason = "a reference to secret bytes where they lie")]
            pub fn from_ref(bytes: &[u8]) -> &Self {
                // SAFETY: the type is transparent: nothing but such bytes.
                unsafe { &*(core::ptr::from_ref(bytes) as *const Self) }
            }

            /// The same for bytes that are to be made.
            #[allow(unsafe_code, reason = "a reference to secret bytes where they lie")]
            pub fn from_mut(bytes: &mut [u8]) -> &mut Self {
                // SAFETY: as above.
                unsafe { &mut *(core::ptr::from_mut(bytes) as *mut Self) }
            }

            /// The bytes.
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
