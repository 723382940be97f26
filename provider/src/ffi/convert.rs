//! Conversions from the arguments of C to safe types and back.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};

/// An argument of a safe function that stands for arguments of C.
pub trait Argument<Raw> {
    /// # Safety
    /// The arguments are as provider-base(7), the page of the operation or that of the method
    /// demands, and stay so while the result is used.
    unsafe fn from_raw(raw: Raw) -> Self;
}

/// A type with the bits of a pointer of C; most are an `Option` with None for NULL.
///
/// # Safety
/// The type has the layout of `Raw`, and each argument that C passes for it is a valid value of the
/// type.
pub unsafe trait Pointer<Raw> {}

impl<Raw, P: Pointer<Raw>> Argument<(Raw,)> for P {
    unsafe fn from_raw((raw,): (Raw,)) -> P {
        const { assert!(size_of::<P>() == size_of::<Raw>()) };
        // SAFETY: a value of the type by contract of `Pointer`, for as long as `Argument` says.
        unsafe { std::mem::transmute_copy::<Raw, P>(&raw) }
    }
}

// SAFETY: C passes an object.
unsafe impl<'a, T> Pointer<&'a mut T> for &'a mut T {}
// SAFETY: as above.
unsafe impl<'a, T> Pointer<&'a T> for &'a T {}
// SAFETY: C passes an object, or NULL.
unsafe impl<'a, T> Pointer<Option<&'a T>> for Option<&'a T> {}

/// A value that can be passed to a function of C.
pub trait Passed<Raw> {
    fn into_raw(self) -> Raw;
}

/// A result of a safe function that is returned to C.
pub trait Answer<Raw> {
    /// Result of a function that has failed.
    const FAILED: Raw;

    fn into_answer(self) -> Raw;
}

/// Result of a call of a function that a table lacks.
pub trait Absent {
    const ABSENT: Self;
}

/// Calls a handler for C. No panic leaves it. A release ends the process where a panic begins, and
/// so does the module of other builds, whose unwinder finds no frames. In the crate's own tests a
/// panic gives the answer of a failure.
pub fn guarded<Raw, A: Answer<Raw>>(handler: impl FnOnce() -> A) -> Raw {
    catch_unwind(AssertUnwindSafe(handler)).map_or(A::FAILED, A::into_answer)
}

/// Returns the one value of a function's own type, which has no size.
///
/// # Safety
/// There is such a value.
pub unsafe fn the_function<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "a function, not a pointer to one") };
    // SAFETY: nothing is read of a type without a size, and by contract it has a value, which may
    // be copied.
    unsafe { NonNull::<F>::dangling().read() }
}

/// Implements the conversions for types that C and this crate have in common.
macro_rules! plain {
    ($($type:ty, $failed:expr;)*) => {$(
        impl Argument<($type,)> for $type {
            unsafe fn from_raw((value,): ($type,)) -> $type {
                value
            }
        }

        impl Passed<($type,)> for $type {
            fn into_raw(self) -> ($type,) {
                (self,)
            }
        }

        impl Answer<$type> for $type {
            const FAILED: $type = $failed;

            fn into_answer(self) -> $type {
                self
            }
        }

        impl Absent for $type {
            const ABSENT: $type = $failed;
        }
    )*};
}

plain! {
    c_int, 0;
    (), ();
    *mut *const c_char, null_mut();
}

/// A length or a verdict; without one, C gets -1.
impl Answer<c_int> for Option<c_int> {
    const FAILED: c_int = -1;

    fn into_answer(self) -> c_int {
        self.unwrap_or(Self::FAILED)
    }
}
