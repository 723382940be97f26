//! Bytes that are read in one place and written to the same place or to another.

use core::marker::PhantomData;

/// Bytes to read, and equally many to write. The two ranges are the same or have no byte in common.
pub struct InOut<'a> {
    from: *const u8,
    to: *mut u8,
    len: usize,
    _borrowed: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl<'a> InOut<'a> {
    /// Takes `bytes` to read and to write.
    #[inline(always)]
    pub fn in_place(bytes: &'a mut [u8]) -> Self {
        let to = bytes.as_mut_ptr();
        Self {
            from: to,
            to,
            len: bytes.len(),
            _borrowed: PhantomData,
        }
    }

    /// Takes `from` to read and `to` to write; returns `None` if their lengths differ.
    #[inline(always)]
    pub fn separate(from: &'a [u8], to: &'a mut [u8]) -> Option<Self> {
        (from.len() == to.len()).then_some(Self {
            from: from.as_ptr(),
            to: to.as_mut_ptr(),
            len: to.len(),
            _borrowed: PhantomData,
        })
    }

    /// Returns the number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes to read.
    #[inline(always)]
    pub(crate) fn input(&self) -> &[u8] {
        // SAFETY: `from` is the start of `len` initialised bytes, which are borrowed for longer
        // than `self`. They change through `output` only, which borrows `self` exclusively.
        unsafe { core::slice::from_raw_parts(self.from, self.len) }
    }

    /// Returns the bytes to write.
    #[inline(always)]
    pub(crate) fn output(&mut self) -> &mut [u8] {
        // SAFETY: `to` is the start of `len` initialised bytes, which are borrowed exclusively for
        // longer than `self`. A slice from `input` borrows `self` and cannot exist any more.
        unsafe { core::slice::from_raw_parts_mut(self.to, self.len) }
    }

    /// Takes the first `count` bytes, or all if there are fewer.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> InOut<'a> {
        let len = self.len;
        self.take_exact(count.min(len)).expect("not more")
    }

    /// Takes the first `count` bytes; None if there are fewer.
    #[inline(always)]
    pub(crate) fn take_exact(&mut self, count: usize) -> Option<InOut<'a>> {
        self.len = self.len.checked_sub(count)?;
        let first = InOut {
            len: count,
            ..*self
        };
        // SAFETY: there were at least `count` bytes, so both pointers stay inside them or at their
        // end. No byte is in both parts.
        (self.from, self.to) = unsafe { (self.from.add(count), self.to.add(count)) };
        Some(first)
    }
}
