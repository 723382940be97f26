//! Shims by which C calls safe functions, for dispatch tables and for key methods.
//!
//! Each function of a [table](super::operations) is a type that ties its number to its C type, and
//! its C type to a safe one. `entry` makes an entry of the module's tables from a safe function,
//! `pass` calls OpenSSL's own function with the arguments of such a function.

// The macro's text gives all functions a lifetime.
#![allow(clippy::extra_unused_lifetimes)]

use std::ffi::{c_int, c_uchar, c_uint};

use super::arguments::Nonce;
use super::buffers::{Bytes, Output, Place};
use super::convert::{Answer, Argument, guarded, the_function};
use super::types::{
    Bignum, EcKey, EcSign, EcVerifySig, EcdsaSig, Rsa, RsaPrivate, SharedEcKey, SharedRsa,
};

/// Declares functions of dispatch tables.
///
/// `Name[C][K][P] = 1: fn(first; others) -> raw as ours, theirs`. Each argument is a safe type,
/// with its arguments of C in parentheses. `ours` is the result of a handler, `theirs` the result
/// of `pass`; without `theirs` there is no `pass`. `C` are types that a handler chooses, `K` an
/// algorithm that a handler knows, `P` an algorithm that `pass` knows; `T` is the algorithm whose
/// function `pass` calls. Without safe types there is only `call`.
macro_rules! dispatched {
    ($(
        $(#[$doc:meta])*
        $name:ident $([$($own:ident)*] [$($kept:ident)?] [$($passed:ident)?])? =
            $id:literal: fn $arguments:tt -> $raw:ty $(as $ours:ty $(, $theirs:ty)?)?;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $name(dispatched!(@type $arguments $raw));

            #[allow(dead_code)]
            impl $name {
                pub const ID: c_int = $id;

                /// Finds this function in a table of its operation.
                pub fn of(table: &[Dispatch]) -> Option<Self> {
                    let function = table.iter().find(|entry| entry.id == Self::ID)?.function?;
                    // SAFETY: in a table of its operation the function with this number has this
                    // type (core_dispatch.h; a test compares both).
                    Some(Self(unsafe {
                        std::mem::transmute::<
                            Function,
                            dispatched!(@type $arguments $raw),
                        >(function)
                    }))
                }
            }

            dispatched! { @call $name $arguments $raw }
            $(
                dispatched! { @entry $name [$($own)*] [$($kept)?] $arguments $raw, $ours }
                dispatched! { @pass $name [$($passed)?] $arguments $raw $(, $theirs)? }
            )?
        )*

        /// The number and the C type of each function, as text.
        #[cfg(test)]
        pub const ALL: &[(&str, c_int, &[&str], &str)] = &[$((
            stringify!($name),
            $id,
            dispatched!(@text $arguments),
            stringify!($raw),
        )),*];
    };

    (@type ($($arg:ident: $type:ty),*) $raw:ty) => {
        unsafe extern "C" fn($($type),*) -> $raw
    };
    (@type ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty) => {
        unsafe extern "C" fn($($($type),*),*) -> $raw
    };

    (@text ($($arg:ident: $type:ty),*)) => { &[$(stringify!($type)),*] };
    (@text ($($safe:ty = ($($arg:ident: $type:ty),*));*)) => { &[$($(stringify!($type)),*),*] };

    (@call $name:ident ($($arg:ident: $type:ty),*) $raw:ty) => {
        #[allow(dead_code)]
        impl $name {
            /// # Safety
            /// The arguments are as provider-base(7), or the page of the operation, demands.
            pub unsafe fn call(self, $($arg: $type),*) -> $raw {
                // SAFETY: by contract.
                unsafe { (self.0)($($arg),*) }
            }
        }
    };
    (@call $name:ident ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty) => {
        dispatched! { @call $name ($($($arg: $type),*),*) $raw }
    };

    // The function by which C calls a handler of type `F`.
    (
        @shim [$($own:ident)*] [$($kept:ident)?]
        ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty, $ours:ty
    ) => {{
        unsafe extern "C" fn shim<$($own,)* $($kept,)? F>($($($arg: $type),*),*) -> $raw
        where
            $($own: 'static,)*
            $($kept: Functions,)?
            F: for<'a> Fn($($safe),*) -> $ours + Copy + 'static,
            for<'a> $ours: Answer<$raw>,
        {
            // SAFETY: libcrypto's arguments, which are as provider-base(7), the page of the
            // operation or that of the method demands until the function returns; a context or a
            // key is one that this table has made. `entry` and `methods` got a value of `F`.
            guarded(|| unsafe {
                let handler = the_function::<F>();
                handler($(Argument::<($($type,)*)>::from_raw(($($arg,)*))),*)
            })
        }
        shim::<$($own,)* $($kept,)? F>
    }};

    (
        @entry $name:ident [$($own:ident)*] [$($kept:ident)?]
        ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty, $ours:ty
    ) => {
        #[allow(dead_code)]
        impl $name {
            /// Makes an entry of a dispatch table: the shim by which C calls `handler`.
            pub const fn entry<$($own,)* $($kept,)? F>(handler: F) -> Dispatch
            where
                $($own: 'static,)*
                $($kept: Functions,)?
                F: for<'a> Fn($($safe),*) -> $ours + Copy + 'static,
                for<'a> $ours: Answer<$raw>,
            {
                let _ = handler;
                let function: dispatched!(@type ($($($arg: $type),*),*) $raw) = dispatched!(
                    @shim [$($own)*] [$($kept)?] ($($safe = ($($arg: $type),*));*) $raw, $ours
                );
                Dispatch {
                    id: Self::ID,
                    // SAFETY: OSSL_DISPATCH stores functions of all types as `Function`, and
                    // libcrypto casts each back to the type that belongs to its number.
                    function: Some(unsafe {
                        std::mem::transmute::<
                            dispatched!(@type ($($($arg: $type),*),*) $raw),
                            Function,
                        >(function)
                    }),
                }
            }
        }
    };

    (
        @pass $name:ident [$($passed:ident)?]
        (
            $subject:ty = ($first:ident: $firsts:ty)
            $(; $safe:ty = ($($arg:ident: $type:ty),*))*
        ) $raw:ty, $theirs:ty
    ) => {
        #[allow(dead_code)]
        impl $name {
            /// Calls OpenSSL's own function.
            pub fn pass<'a, T: Functions $(, $passed: Functions)?>(
                subject: impl Subject<T>
                $(, dispatched!(@first $($arg)*): $safe)*
            ) -> $theirs {
                let $first = subject.into_subject() as $firsts;
                dispatched! { @own T [$first] ($($safe = ($($arg: $type),*));*) $raw, $theirs }
            }
        }
    };
    // A function that works on no object.
    (@pass $name:ident [] ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty, $theirs:ty) => {
        #[allow(dead_code)]
        impl $name {
            /// Calls the function of OpenSSL's own implementation of `T`.
            pub fn pass<T: Functions>($(dispatched!(@first $($arg)*): $safe),*) -> $theirs {
                dispatched! { @own T [] ($($safe = ($($arg: $type),*));*) $raw, $theirs }
            }
        }
    };
    (@pass $name:ident [] $arguments:tt $raw:ty) => {};

    (
        @own $of:ident [$($first:ident)?]
        ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty, $theirs:ty
    ) => {{
        let Some(Self(function)) = Self::of($of::table()) else {
            return <$theirs as Absent>::ABSENT;
        };
        $(let ($($arg,)*): ($($type,)*) = dispatched!(@first $($arg)*).into_raw();)*
        // SAFETY: the object of the function is of the same table, and the types of the other
        // arguments say that they are as its page demands.
        unsafe { <$theirs as Argument<($raw,)>>::from_raw((function($($first,)? $($($arg),*),*),)) }
    }};
    (@first $first:ident $($rest:ident)*) => { $first };
}

pub(super) use dispatched;

/// Declares functions that make a C function of a key method from a safe handler. The arguments are
/// written as for dispatch tables.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident: $function:ty = fn $arguments:tt -> $raw:ty as $ours:ty;)*) => {
        $(methods! { @shim [$(#[$doc])*] $name $function, $arguments $raw, $ours })*
    };
    (
        @shim [$(#[$doc:meta])*] $name:ident $function:ty,
        ($($safe:ty = ($($arg:ident: $type:ty),*));*) $raw:ty, $ours:ty
    ) => {
        $(#[$doc])*
        pub fn $name<F>(handler: F) -> $function
        where
            F: for<'a> Fn($($safe),*) -> $ours + Copy + 'static,
        {
            let _ = handler;
            dispatched!(@shim [] [] ($($safe = ($($arg: $type),*));*) $raw, $ours)
        }
    };
}

/// The functions of key methods that take bytes from C.
pub mod method {
    use super::*;
    methods! {
        /// `rsa_priv_enc` or `rsa_priv_dec` of an `RSA_METHOD`.
        rsa_private: RsaPrivate = fn(
            Bytes<'a> = (length: c_int, from: *const c_uchar);
            Output<'a> = (to: *mut c_uchar);
            &'a Rsa = (rsa: &SharedRsa);
            c_int = (padding: c_int)
        ) -> c_int as Option<c_int>;
        /// `sign` of an `EC_KEY_METHOD`.
        ec_sign: EcSign = fn(
            c_int = (kind: c_int);
            Bytes<'a> = (digest: *const c_uchar, digest_length: c_int);
            Output<'a> = (output: *mut c_uchar);
            Place<'a, c_uint> = (length: *mut c_uint);
            Nonce<'a> = (inverse: Option<&Bignum>, r: Option<&Bignum>);
            &'a EcKey = (key: &SharedEcKey)
        ) -> c_int as c_int;
        /// `verify_sig` of an `EC_KEY_METHOD`.
        ec_verify_sig: EcVerifySig = fn(
            Bytes<'a> = (digest: *const c_uchar, digest_length: c_int);
            Option<&'a EcdsaSig> = (signature: Option<&EcdsaSig>);
            &'a EcKey = (key: &SharedEcKey)
        ) -> c_int as Option<c_int>;
    }
}
