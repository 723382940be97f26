//! Buffers that C passes: bytes to read or to transform, and room for outputs.

use std::ffi::{c_int, c_uchar, c_void};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

use lockstep_kernels::InOut;

use super::convert::{Argument, Passed, Pointer};

/// Bytes to read. The output may go to the same place, so a function copies the bytes first.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    pub(super) start: *const c_uchar,
    /// Length. A negative length in C becomes one that no slice has.
    pub(super) length: usize,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    /// No bytes, and no place for them.
    pub const NONE: Bytes<'static> = Bytes {
        start: null(),
        length: 0,
        lifetime: PhantomData,
    };

    pub fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes {
            start: bytes.as_ptr(),
            length: bytes.len(),
            lifetime: PhantomData,
        }
    }

    pub fn len(self) -> usize {
        self.length
    }

    pub fn is_null(self) -> bool {
        self.start.is_null()
    }

    /// Calls `copy` with the bytes, which need no start if their length is 0. Returns None if the
    /// start is missing, and for a length that no slice has. No output may be written meanwhile.
    pub fn read<R>(self, copy: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if self.length == 0 {
            return Some(copy(&[]));
        }
        let can = !self.start.is_null() && isize::try_from(self.length).is_ok();
        // SAFETY: `length` readable bytes by contract of `from_raw`.
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

/// Bytes to transform, and room for as many: in the same place, elsewhere, or nowhere.
pub struct Transformed<'a> {
    from: Bytes<'a>,
    to: *mut c_uchar,
    /// Place for the length of the output.
    length: *mut usize,
    /// Size of the room.
    size: usize,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> Transformed<'a> {
    /// Makes bytes to read, without room for an output.
    pub fn read_only(from: Bytes<'a>, length: &'a mut usize) -> Transformed<'a> {
        Transformed {
            from,
            to: null_mut(),
            length,
            size: from.length,
            lifetime: PhantomData,
        }
    }

    pub fn from(&self) -> Bytes<'a> {
        self.from
    }

    /// Returns whether there is a place for the output.
    pub fn has_output(&self) -> bool {
        !self.to.is_null()
    }

    /// Returns whether the caller says that there is as much room as there are bytes.
    pub fn is_roomy(&self) -> bool {
        self.size >= self.from.length
    }

    /// Returns the bytes, if the output goes to the same place.
    pub fn in_place(&mut self) -> Option<&mut [u8]> {
        let (start, length) = (self.to, self.from.length);
        let is_one = !start.is_null() && std::ptr::eq(start, self.from.start);
        let is_slice = is_one && self.is_roomy() && isize::try_from(length).is_ok();
        // SAFETY: `length` bytes by contract of `from_raw`; C's pointer `to` allows to write them.
        is_slice.then(|| unsafe { std::slice::from_raw_parts_mut(start, length) })
    }

    /// Returns the bytes and the room for them. If these overlap in part, the bytes are first moved
    /// to the room.
    pub fn in_out(&mut self) -> Option<InOut<'_>> {
        let (from, to, length) = (self.from.start, self.to, self.from.length);
        let is_slice = self.is_roomy() && isize::try_from(length).is_ok();
        if from.is_null() || to.is_null() || !is_slice {
            return None;
        }
        if !std::ptr::eq(from, to) && from.addr().abs_diff(to.addr()) >= length {
            // SAFETY: `length` bytes each by contract of `from_raw`, and none of them is in both
            // places.
            let (from, to) = unsafe {
                let from = std::slice::from_raw_parts(from, length);
                (from, std::slice::from_raw_parts_mut(to, length))
            };
            return InOut::separate(from, to);
        }
        // SAFETY: `length` bytes each by contract of `from_raw`. Nothing refers to them meanwhile.
        let bytes = unsafe {
            if !std::ptr::eq(from, to) {
                to.copy_from(from, length);
            }
            std::slice::from_raw_parts_mut(to, length)
        };
        Some(InOut::in_place(bytes))
    }

    /// Writes the length of the output to the caller's place for it, if there is one.
    pub fn put_length(&self, length: usize) {
        if !self.length.is_null() {
            // SAFETY: a place for a length by contract of `from_raw`.
            unsafe { *self.length = length };
        }
    }
}

impl Argument<(*mut c_uchar, *mut usize, usize, *const c_uchar, usize)> for Transformed<'_> {
    unsafe fn from_raw(
        (to, length, size, from, from_length): (
            *mut c_uchar,
            *mut usize,
            usize,
            *const c_uchar,
            usize,
        ),
    ) -> Self {
        Transformed {
            // SAFETY: by contract.
            from: unsafe { Bytes::from_raw((from, from_length)) },
            to,
            length,
            size,
            lifetime: PhantomData,
        }
    }
}

impl Passed<(*mut c_uchar, *mut usize, usize, *const c_uchar, usize)> for Transformed<'_> {
    fn into_raw(self) -> (*mut c_uchar, *mut usize, usize, *const c_uchar, usize) {
        let (from, from_length) = self.from.into_raw();
        (self.to, self.length, self.size, from, from_length)
    }
}

/// Room for an output whose length is not known before, and a place for the length.
#[derive(Clone, Copy)]
pub struct OutBuf<'a> {
    room: Room<'a>,
    length: Place<'a, usize>,
}

impl OutBuf<'_> {
    /// Returns whether there is room for `count` bytes. A caller that only asks for the length has
    /// no room.
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

    /// Returns whether the caller asks for the length alone.
    pub fn is_question(&self) -> bool {
        self.room.start.is_null() && !self.length.is_null()
    }

    /// Writes a length to the caller's place for the length of the output, if there is one.
    pub fn put_length(&self, length: usize) {
        self.length.put(length);
    }

    /// Overstates the room: a defect that a check of the rig must find.
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

/// Room for an output. Before the call, the place for the length holds the size of the room.
pub struct SizedBuf<'a> {
    start: *mut c_uchar,
    length: Place<'a, usize>,
}

impl SizedBuf<'_> {
    /// Returns whether the caller asks for the length alone.
    pub fn is_question(&self) -> bool {
        self.start.is_null()
    }

    /// Answers with a length; false without a place for it.
    pub fn answer(&self, length: usize) -> bool {
        self.length.put(length);
        !self.length.is_null()
    }

    /// Returns the size of the room, if the caller gives it.
    pub fn size(&self) -> Option<usize> {
        self.length.get()
    }

    /// Returns whether there is room for `count` bytes. Room without a size counts as large enough.
    pub fn holds(&self, count: usize) -> bool {
        !self.start.is_null() && self.size().is_none_or(|size| size >= count)
    }

    /// Writes the output; false if there is no room for it.
    pub fn write(self, bytes: &[u8]) -> bool {
        let holds = self.holds(bytes.len());
        if holds {
            // SAFETY: room for these bytes by contract of `from_raw`, and no Rust reference leads
            // there.
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
    /// Returns the size of the room; None without a place.
    pub fn size(&self) -> Option<usize> {
        (!self.start.is_null()).then_some(self.size)
    }

    /// Writes the output; false if there is no room for it.
    pub fn write(self, bytes: &[u8]) -> bool {
        let holds = self.size().is_some_and(|size| size >= bytes.len());
        if holds {
            // SAFETY: room for `size` bytes by contract of `from_raw` or `with_size`, and no Rust
            // reference leads there.
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

    /// Returns the place with its size.
    ///
    /// # Safety
    /// There is room for `size` bytes.
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

/// A place for a value, if C wants the value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Place<'a, T>(*mut T, PhantomData<&'a mut T>);

// SAFETY: a place for a value, or NULL.
unsafe impl<T> Pointer<*mut T> for Place<'_, T> {}

impl<T: Copy> Place<'_, T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the value in the place; None without a place.
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
