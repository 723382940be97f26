//! Arguments that C passes in several parts, as types that safe code can use.
//!
//! When C calls a function of the module, an [`Argument`] is made of one or more arguments of the
//! call. A [`Passed`] becomes such arguments again, for a function of OpenSSL's own implementation.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use super::convert::{Argument, Passed, guarded};
use super::params::Params;
use super::types::{Bignum, Callback, Param};

/// A nonce that the caller of a signature has made: the inverse of k, and r.
#[derive(Clone, Copy)]
pub struct Nonce<'a> {
    pub inverse: Option<&'a Bignum>,
    pub r: Option<&'a Bignum>,
}

impl<'a> Argument<(Option<&'a Bignum>, Option<&'a Bignum>)> for Nonce<'a> {
    unsafe fn from_raw((inverse, r): (Option<&'a Bignum>, Option<&'a Bignum>)) -> Self {
        Nonce { inverse, r }
    }
}

/// A callback of C that takes parameters (`OSSL_CALLBACK`), with the argument for the callback.
#[derive(Clone, Copy)]
pub struct Receiver<'a> {
    function: Callback,
    arg: *mut c_void,
    lifetime: PhantomData<&'a mut c_void>,
}

impl<'a> Receiver<'a> {
    /// Makes such a callback from a closure.
    pub fn new<F: FnMut(Params<'_>) -> c_int>(receive: &'a mut F) -> Receiver<'a> {
        unsafe extern "C" fn call<F: FnMut(Params<'_>) -> c_int>(
            params: *const Param,
            arg: *mut c_void,
        ) -> c_int {
            // SAFETY: `arg` is the closure below, which a `Receiver` borrows; the caller of a
            // receiver promises that the parameters are valid.
            guarded(|| unsafe { (*arg.cast::<F>())(Params::from_raw((params,))) })
        }
        Receiver {
            function: call::<F>,
            arg: std::ptr::from_mut(receive).cast(),
            lifetime: PhantomData,
        }
    }

    pub fn receive(&self, params: Params<'_>) -> c_int {
        // SAFETY: the function takes parameters, with its own argument, by contract of `from_raw`.
        unsafe { (self.function)(params.as_ptr(), self.arg) }
    }
}

impl Argument<(Callback, *mut c_void)> for Receiver<'_> {
    unsafe fn from_raw((function, arg): (Callback, *mut c_void)) -> Self {
        Receiver {
            function,
            arg,
            lifetime: PhantomData,
        }
    }
}

impl Passed<(Callback, *mut c_void)> for Receiver<'_> {
    fn into_raw(self) -> (Callback, *mut c_void) {
        (self.function, self.arg)
    }
}

/// A callback for the progress of a key generation, if there is one.
#[derive(Clone, Copy)]
pub struct Progress<'a>(Option<Callback>, *mut c_void, PhantomData<&'a mut c_void>);

impl Argument<(Option<Callback>, *mut c_void)> for Progress<'_> {
    unsafe fn from_raw((function, arg): (Option<Callback>, *mut c_void)) -> Self {
        Progress(function, arg, PhantomData)
    }
}

impl Passed<(Option<Callback>, *mut c_void)> for Progress<'_> {
    fn into_raw(self) -> (Option<Callback>, *mut c_void) {
        (self.0, self.1)
    }
}
