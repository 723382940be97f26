//! Arguments that C passes by pointer and length, as types that safe code can use.
//!
//! An [`Argument`] is made of one or more arguments of a C function, once, where the function is
//! entered; a [`Passed`] becomes those arguments again, for a function of OpenSSL's own
//! implementation.

use std::ffi::{c_int, c_uchar, c_void};
use std::marker::PhantomData;

use super::convert::{Argument, Passed, Pointer, guarded};
use super::params::Params;
use super::types::{Bignum, Callback, Param};

/// Room for an output whose length is not known before: where it goes and how much room there is,
/// and where its length goes.
#[derive(Clone, Copy)]
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

    /// Whether the caller asks for the length alone.
    pub fn is_question(&self) -> bool {
        self.room.start.is_null() && !self.length.is_null()
    }

    /// Says how long the output is, or would be.
    pub fn put_length(&self, length: usize) {
        self.length.put(length);
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

/// Room for an output, whose size is where its length goes.
pub struct SizedBuf<'a> {
    start: *mut c_uchar,
    length: Place<'a, usize>,
}

impl SizedBuf<'_> {
    /// Whether the caller asks for the length alone.
    pub fn is_question(&self) -> bool {
        self.start.is_null()
    }

    /// Answers with a length; false without a place for it.
    pub fn answer(&self, length: usize) -> bool {
        self.length.put(length);
        !self.length.is_null()
    }

    /// How many bytes there is room for, if the caller says so.
    pub fn size(&self) -> Option<usize> {
        self.length.get()
    }

    /// Whether there is room for as many bytes. A size that is not given is enough.
    pub fn holds(&self, count: usize) -> bool {
        !self.start.is_null() && self.size().is_none_or(|size| size >= count)
    }

    /// Writes the output; false if there is no room for it.
    pub fn write(self, bytes: &[u8]) -> bool {
        let holds = self.holds(bytes.len());
        if holds {
            // SAFETY: as for `OutBuf`.
            unsafe {
                self.start
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
            self.length.put(bytes.len());
        }
        holds
    }
}

impl Argument<(*mut c_uchar, *mut usize)> for SizedBuf<'_> {
    unsafe fn from_raw((start, length): (*mut c_uchar, *mut usize)) -> Self {
        SizedBuf {
            start,
            length: Place(length, PhantomData),
        }
    }
}

/// Room for an output.
#[derive(Clone, Copy)]
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

/// Where a value goes, if C wants it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Place<'a, T>(*mut T, PhantomData<&'a mut T>);

// SAFETY: a place for a value, or NULL.
unsafe impl<T> Pointer<*mut T> for Place<'_, T> {}

impl<T: Copy> Place<'_, T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The value that is there; None without a place.
    pub fn get(&self) -> Option<T> {
        // SAFETY: a place with a value by contract of `Pointer`, or NULL.
        unsafe { self.0.as_ref() }.copied()
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
