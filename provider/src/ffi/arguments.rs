//! What C passes by pointer and length, as types that safe code can use.
//!
//! An [`Argument`] is made of one or more arguments of a C function, once, where the function is
//! entered; a [`Passed`] becomes those arguments again, for a function of OpenSSL's own
//! implementation.

use std::ffi::{c_int, c_uchar, c_void};
use std::marker::PhantomData;

use super::convert::{Argument, Passed, Pointer, guarded};
use super::params::Params;
use super::types::{Bignum, Callback, Param};

/// Bytes to read. They may lie where the output goes, so they are copied before that is written.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    start: *const c_uchar,
    /// The length that stands for a negative one; no slice has it.
    length: usize,
    lifetime: PhantomData<&'a [u8]>,
}

impl Bytes<'_> {
    pub fn len(self) -> usize {
        self.length
    }

    pub fn is_null(self) -> bool {
        self.start.is_null()
    }

    /// Has `copy` take what it needs of the bytes; None without a start, and for a length that no
    /// slice has. No output may be written meanwhile.
    pub fn read<R>(self, copy: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if self.length == 0 {
            return Some(copy(&[]));
        }
        let can = !self.start.is_null() && isize::try_from(self.length).is_ok();
        // SAFETY: as many readable bytes by contract of `from_raw`.
        can.then(|| copy(unsafe { std::slice::from_raw_parts(self.start, self.length) }))
    }
}

impl Argument<(*const c_uchar, usize)> for Bytes<'_> {
    unsafe fn from_raw((start, length): (*const c_uchar, usize)) -> Self {
        Bytes {
            start,
            length,
            lifetime: PhantomData,
        }
    }
}

impl Passed<(*const c_uchar, usize)> for Bytes<'_> {
    fn into_raw(self) -> (*const c_uchar, usize) {
        (self.start, self.length)
    }
}

impl Argument<(*const c_void, usize)> for Bytes<'_> {
    unsafe fn from_raw((start, length): (*const c_void, usize)) -> Self {
        Bytes {
            start: start.cast(),
            length,
            lifetime: PhantomData,
        }
    }
}

impl Passed<(*const c_void, usize)> for Bytes<'_> {
    fn into_raw(self) -> (*const c_void, usize) {
        (self.start.cast(), self.length)
    }
}

impl Argument<(*const c_uchar, c_int)> for Bytes<'_> {
    unsafe fn from_raw((start, length): (*const c_uchar, c_int)) -> Self {
        // A negative one becomes a length that no slice has.
        Bytes {
            start,
            length: length as usize,
            lifetime: PhantomData,
        }
    }
}

impl Passed<(*const c_uchar, c_int)> for Bytes<'_> {
    fn into_raw(self) -> (*const c_uchar, c_int) {
        (self.start, self.length as c_int)
    }
}

impl Argument<(c_int, *const c_uchar)> for Bytes<'_> {
    unsafe fn from_raw((length, start): (c_int, *const c_uchar)) -> Self {
        Bytes {
            start,
            length: length as usize,
            lifetime: PhantomData,
        }
    }
}

/// Room for an output whose length is not known before: where it goes and how much room there is,
/// and where its length goes.
pub struct OutBuf<'a> {
    room: Room<'a>,
    length: Place<'a, usize>,
}

impl OutBuf<'_> {
    /// Whether there is room for as many bytes. A caller who asks for the length alone has none.
    pub fn holds(&self, count: usize) -> bool {
        !self.length.is_null() && self.room.size().is_some_and(|size| size >= count)
    }

    /// Writes the output; false if there is no room for it.
    pub fn write(self, bytes: &[u8]) -> bool {
        if !self.holds(bytes.len()) {
            return false;
        }
        self.length.put(bytes.len());
        self.room.write(bytes)
    }

    /// The same with more room than there is: a defect that a check of the rig must find.
    #[cfg(feature = "fault-injection")]
    pub fn overstated(mut self, size: usize) -> Self {
        self.room.size = size.max(self.room.size);
        self
    }
}

impl Argument<(*mut c_uchar, *mut usize, usize)> for OutBuf<'_> {
    unsafe fn from_raw((start, length, size): (*mut c_uchar, *mut usize, usize)) -> Self {
        OutBuf {
            room: Room {
                start,
                size,
                lifetime: PhantomData,
            },
            length: Place(length, PhantomData),
        }
    }
}

impl Passed<(*mut c_uchar, *mut usize, usize)> for OutBuf<'_> {
    fn into_raw(self) -> (*mut c_uchar, *mut usize, usize) {
        (self.room.start, self.length.0, self.room.size)
    }
}

/// Room for an output.
pub struct Room<'a> {
    start: *mut c_uchar,
    size: usize,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl Room<'_> {
    /// How many bytes there is room for; None without a place for them.
    pub fn size(&self) -> Option<usize> {
        (!self.start.is_null()).then_some(self.size)
    }

    /// Writes the output; false if there is no room for it.
    pub fn write(self, bytes: &[u8]) -> bool {
        let holds = self.size().is_some_and(|size| size >= bytes.len());
        if holds {
            // SAFETY: as for `OutBuf`.
            unsafe {
                self.start
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        }
        holds
    }
}

impl Argument<(*mut c_uchar, usize)> for Room<'_> {
    unsafe fn from_raw((start, size): (*mut c_uchar, usize)) -> Self {
        Room {
            start,
            size,
            lifetime: PhantomData,
        }
    }
}

impl Passed<(*mut c_uchar, usize)> for Room<'_> {
    fn into_raw(self) -> (*mut c_uchar, usize) {
        (self.start, self.size)
    }
}

/// A place for an output whose greatest length follows from the key.
#[repr(transparent)]
pub struct Output<'a>(*mut c_uchar, PhantomData<&'a mut [u8]>);

impl Output<'_> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The place with its size.
    ///
    /// # Safety
    /// There is room for as many bytes.
    pub unsafe fn with_size(&self, size: usize) -> Room<'_> {
        Room {
            start: self.0,
            size,
            lifetime: PhantomData,
        }
    }

    pub fn as_ptr(&self) -> *mut c_uchar {
        self.0
    }
}

// SAFETY: a place with as much room as the key demands, or NULL.
unsafe impl Pointer<*mut c_uchar> for Output<'_> {}

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

/// The same bytes as an input and as the place for an output of their length.
pub fn in_place(bytes: &mut [u8]) -> (Bytes<'_>, Output<'_>) {
    let start = bytes.as_mut_ptr();
    let input = Bytes {
        start,
        length: bytes.len(),
        lifetime: PhantomData,
    };
    (input, Output(start, PhantomData))
}

/// Where a value goes, if C wants it.
#[repr(transparent)]
pub struct Place<'a, T>(*mut T, PhantomData<&'a mut T>);

// SAFETY: a place for a value, or NULL.
unsafe impl<T> Pointer<*mut T> for Place<'_, T> {}

impl<T: Copy> Place<'_, T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub fn put(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: a place for a value by contract of `Pointer`.
            unsafe { *self.0 = value };
        }
    }

    pub fn as_ptr(&self) -> *mut T {
        self.0
    }
}

/// A function that wants parameters, and what it is called with.
#[derive(Clone, Copy)]
pub struct Receiver<'a> {
    function: Callback,
    arg: *mut c_void,
    lifetime: PhantomData<&'a mut c_void>,
}

impl<'a> Receiver<'a> {
    /// A closure as such a function.
    pub fn new<F: FnMut(Params<'_>) -> c_int>(receive: &'a mut F) -> Receiver<'a> {
        unsafe extern "C" fn call<F: FnMut(Params<'_>) -> c_int>(
            params: *const Param,
            arg: *mut c_void,
        ) -> c_int {
            // SAFETY: `arg` is the closure below, which a `Receiver` borrows; the parameters are as
            // those who call a receiver promise.
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

/// A callback for the progress of a generation, if there is one.
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
