//! The arguments of a decoder, and the functions of its dispatch table.

// For the text of the macro `dispatched`: see `dispatch`.
#![allow(
    clippy::unused_unit,
    clippy::extra_unused_lifetimes,
    clippy::too_many_arguments
)]

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;

use super::arguments::Receiver;
use super::convert::{Argument, Pointer};
use super::dispatch::dispatched;
use super::types::{Callback, CoreBio, Dispatch, PassphraseCallback};

/// The source of a decoder.
#[repr(transparent)]
pub struct Source<'a>(*mut CoreBio, PhantomData<&'a mut CoreBio>);

// SAFETY: libcrypto's side of a BIO, or NULL.
unsafe impl Pointer<*mut CoreBio> for Source<'_> {}

impl Source<'_> {
    /// Reads up to the end of a line, or as much of it as the room holds, and returns the number of
    /// bytes; None at the end. The last byte of the room may become a zero.
    pub fn line(&mut self, reads: Reads, room: &mut [u8]) -> Option<usize> {
        let size = c_int::try_from(room.len()).ok()?;
        if self.0.is_null() {
            return None;
        }
        // SAFETY: libcrypto's own function and BIO; there is room for `size` bytes, which include
        // the final zero.
        let count = unsafe { reads.gets.call(self.0, room.as_mut_ptr().cast(), size) };
        let count = usize::try_from(count).ok()?;
        (1..=room.len()).contains(&count).then_some(count)
    }

    /// Fills the room, or less of it if the source ends, and returns the number of bytes.
    pub fn fill(&mut self, reads: Reads, room: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < room.len() && !self.0.is_null() {
            let rest = &mut room[filled..];
            let (start, size, mut count) = (rest.as_mut_ptr().cast(), rest.len(), 0);
            // SAFETY: libcrypto's own function and BIO; there is room for `size` bytes.
            let read = unsafe { reads.read.call(self.0, start, size, &mut count) };
            if read != 1 || !(1..=size).contains(&count) {
                break;
            }
            filled += count;
        }
        filled
    }
}

/// Functions by which libcrypto's BIOs are read.
#[derive(Clone, Copy)]
pub struct Reads {
    gets: bio::Gets,
    read: bio::ReadEx,
}

impl Reads {
    /// Returns the functions in the table that libcrypto gives a provider.
    pub fn of(table: &[Dispatch]) -> Option<Reads> {
        Some(Reads {
            gets: bio::Gets::of(table)?,
            read: bio::ReadEx::of(table)?,
        })
    }
}

/// A callback that asks for a passphrase, which this crate never calls.
pub struct Passphrase;

impl Argument<(Option<PassphraseCallback>, *mut c_void)> for Passphrase {
    unsafe fn from_raw(_: (Option<PassphraseCallback>, *mut c_void)) -> Passphrase {
        Passphrase
    }
}

/// Functions of libcrypto's BIOs that a provider is given (`OSSL_FUNC_BIO_*`).
pub mod bio {
    use super::*;
    use crate::ffi::types::{Dispatch, Function};
    dispatched! {
        ReadEx = 42: fn(
            bio: *mut CoreBio, data: *mut c_void, length: usize, read: *mut usize
        ) -> c_int;
        Gets = 49: fn(bio: *mut CoreBio, buffer: *mut c_char, size: c_int) -> c_int;
    }
}

/// Functions of decoders (`OSSL_FUNC_DECODER_*`).
pub mod decoder {
    use super::*;
    use crate::ffi::convert::{Answer, guarded, the_function};
    use crate::ffi::objects::{Ctx, ProvCtx};
    use crate::ffi::types::{Dispatch, Function};
    dispatched! {
        Newctx[C][][] = 1: fn(ProvCtx = (provctx: *mut c_void)) -> *mut c_void as Option<Box<C>>;
        Freectx[C][][] = 2: fn(Option<Box<C>> = (ctx: *mut c_void)) -> () as ();
        DoesSelection[][][] = 10: fn(
            ProvCtx = (provctx: *mut c_void);
            c_int = (selection: c_int)
        ) -> c_int as c_int;
        Decode[C][][] = 11: fn(
            Ctx<'a, C> = (ctx: *mut c_void);
            Source<'a> = (input: *mut CoreBio);
            c_int = (selection: c_int);
            Receiver<'a> = (callback: Callback, arg: *mut c_void);
            Passphrase = (passphrase: Option<PassphraseCallback>, passphrase_arg: *mut c_void)
        ) -> c_int as c_int;
    }
}
