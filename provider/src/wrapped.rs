//! The module's operation contexts around stock ones, for keys that have no method.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use lockstep_engine::Secret;

use crate::keymgmt::KeyType;

/// A stock context, and what we note beside it.
pub struct Context<N> {
    pub stock: *mut c_void,
    pub notes: N,
}

impl<N> Context<N> {
    /// Wraps a stock context; NULL for none.
    pub fn wrap(stock: *mut c_void, notes: N) -> *mut c_void {
        if stock.is_null() {
            return null_mut();
        }
        Box::into_raw(Box::new(Context { stock, notes })).cast()
    }

    /// Our context behind libcrypto's pointer.
    ///
    /// # Safety
    /// `ctx` is NULL or came from [`wrap`](Self::wrap), and nobody else uses it now.
    pub unsafe fn of<'a>(ctx: *mut c_void) -> Option<&'a mut Context<N>> {
        // SAFETY: by contract.
        unsafe { ctx.cast::<Context<N>>().as_mut() }
    }

    /// Frees our context; gives the stock one back, or NULL for NULL.
    ///
    /// # Safety
    /// As for [`of`](Self::of); `ctx` is not used afterwards.
    pub unsafe fn unwrap(ctx: *mut c_void) -> *mut c_void {
        if ctx.is_null() {
            return null_mut();
        }
        // SAFETY: by contract.
        unsafe { Box::from_raw(ctx.cast::<Context<N>>()).stock }
    }
}

/// The length of a key of X25519 or Ed25519.
pub const KEY_BYTES: usize = 32;

/// The private part of a key, written by stock to memory for keys.
///
/// # Safety
/// `key` is NULL or valid key data of type `T`.
pub unsafe fn secret<T: KeyType>(key: *mut c_void) -> Option<Secret> {
    // SAFETY: by contract.
    Secret::filled(KEY_BYTES, |bytes| unsafe { read::<T>(key, c"priv", bytes) })
}

/// The public part of a key.
///
/// # Safety
/// As for [`secret`].
pub unsafe fn public<T: KeyType>(key: *mut c_void) -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    // SAFETY: by contract.
    unsafe { read::<T>(key, c"pub", &mut bytes) }.then_some(bytes)
}

/// Reads a part of a key; false if it has none such.
///
/// # Safety
/// As for [`secret`].
unsafe fn read<T: KeyType>(key: *mut c_void, name: &CStr, bytes: &mut [u8]) -> bool {
    match T::stock() {
        // SAFETY: by contract.
        Some(functions) if !key.is_null() => unsafe { functions.read(key, name, bytes) },
        _ => false,
    }
}

/// Declares functions that do what stock does, with the stock context. `changes` ones may change
/// the key or the way of the operation: what was noted of it is forgotten. `frees` declares those
/// that free and duplicate contexts.
macro_rules! passed_on {
    (frees $notes:ty, $stock:path; $Freectx:ident, $Dupctx:ident) => {
        unsafe extern "C" fn freectx(ctx: *mut c_void) {
            // SAFETY: libcrypto's argument, not used afterwards.
            unsafe {
                let inner = $crate::wrapped::Context::<$notes>::unwrap(ctx);
                if let (false, Some(stock)) = (inner.is_null(), $Freectx::of($stock())) {
                    stock.call(inner);
                }
            }
        }

        unsafe extern "C" fn dupctx(ctx: *mut c_void) -> *mut c_void {
            use $crate::wrapped::Context;
            if $crate::memory::is_nearly_gone() {
                return std::ptr::null_mut();
            }
            // SAFETY: libcrypto's argument.
            unsafe {
                match (Context::<$notes>::of(ctx), $Dupctx::of($stock())) {
                    (Some(ours), Some(stock)) => {
                        Context::wrap(stock.call(ours.stock), ours.notes.clone())
                    }
                    _ => std::ptr::null_mut(),
                }
            }
        }
    };
    ($notes:ty, $stock:path; $($kind:ident $name:ident = $Function:ident($($arg:ident: $type:ty),*) -> $result:ty, else $none:expr;)*) => {$(
        unsafe extern "C" fn $name(ctx: *mut c_void, $($arg: $type),*) -> $result {
            let Some(function) = $Function::of($stock()) else {
                return $none;
            };
            // SAFETY: libcrypto's arguments, passed on; it may ask about parameters without a
            // context.
            unsafe {
                let ours = $crate::wrapped::Context::<$notes>::of(ctx).map(|ours| {
                    passed_on!($kind ours);
                    ours.stock
                });
                function.call(ours.unwrap_or(std::ptr::null_mut()), $($arg),*)
            }
        }
    )*};
    (changes $ours:ident) => { $ours.notes = Default::default() };
    (keeps $ours:ident) => {};
}
pub(crate) use passed_on;
