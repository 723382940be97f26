//! Columns of C.

use crate::status::{Status, fits, places};

/// A column of bytes. Row `i` has `width` bytes at `data + i * stride`. With offsets it has the
/// bytes `data[offsets[i]..offsets[i + 1]]` instead.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// First byte.
    pub data: *const u8,
    /// Number of bytes in each row, without offsets.
    pub width: usize,
    /// Number of bytes from one row to the next, without offsets; 0 repeats one row.
    pub stride: usize,
    /// One offset more than there are rows, none below the one before; or null.
    pub offsets: *const u64,
}

/// A column that was checked.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    column: &'a Column,
    count: usize,
}

// SAFETY: the memory of a column is read only, by the promise of the caller.
unsafe impl Sync for Rows<'_> {}
// SAFETY: as above.
unsafe impl Send for Rows<'_> {}

impl Column {
    /// Returns a column, if it can have `count` rows.
    ///
    /// # Safety
    ///
    /// The pointer is null or points to a column whose memory nobody changes while the result is
    /// used.
    pub(crate) unsafe fn at<'a>(pointer: *const Column, count: usize) -> Result<Rows<'a>, Status> {
        // SAFETY: the caller's promise.
        let column = unsafe { pointer.as_ref() }.ok_or(Status::BadArgument)?;
        let end = (column.stride as u128 * count as u128) + column.width as u128;
        let is_fit = match (column.offsets.is_null(), count) {
            (_, 0) => true,
            (true, _) => end < isize::MAX as u128 && (!column.data.is_null() || column.width == 0),
            (false, _) => {
                fits::<u64>(count.saturating_add(1))?;
                // SAFETY: there is one offset more than there are rows.
                let offsets = unsafe { std::slice::from_raw_parts(column.offsets, count + 1) };
                let last = offsets[count];
                offsets.is_sorted()
                    && last < isize::MAX as u64
                    && (last == 0 || !column.data.is_null())
            }
        };
        is_fit
            .then_some(Rows { column, count })
            .ok_or(Status::BadArgument)
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn get(&self, number: usize) -> &'a [u8] {
        assert!(number < self.count, "no such row");
        let Column {
            data,
            width,
            stride,
            offsets,
        } = *self.column;
        let (start, length) = match offsets.is_null() {
            true => (stride * number, width),
            // SAFETY: there is one offset more than there are rows, and `at` has checked each. They
            // are read again here. Even if a caller has changed them, no length is negative.
            false => unsafe {
                let (start, end) = (*offsets.add(number), *offsets.add(number + 1));
                (start as usize, end.saturating_sub(start) as usize)
            },
        };
        match length {
            0 => &[],
            // SAFETY: the column has these bytes.
            length => unsafe { std::slice::from_raw_parts(data.add(start), length) },
        }
    }
}

/// Places of results. Result `i` goes to `data + i * stride`. Each takes as many bytes as the
/// longest result of its kind; a shorter one is followed by zeros. Bytes between rows are left
/// alone. A call whose rows are too short for its results computes nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// First byte.
    pub data: *mut u8,
    /// Number of bytes from one row to the next.
    pub stride: usize,
    /// Length of each result, 0 where there is none; or null.
    pub lengths: *mut u32,
    /// Code of the reason why there is no result, 0 where there is one; or null.
    pub reasons: *mut u8,
}

/// An output that was checked.
pub(crate) struct Places {
    output: Output,
    count: usize,
}

impl Output {
    /// Returns an output, if it can have `count` results of at most `width` bytes.
    ///
    /// # Safety
    ///
    /// The pointer is null or points to an output.
    pub(crate) unsafe fn at(
        pointer: *const Output,
        count: usize,
        width: usize,
    ) -> Result<Places, Status> {
        // SAFETY: the caller's promise.
        let output = *unsafe { pointer.as_ref() }.ok_or(Status::BadArgument)?;
        let size = output.stride as u128 * count as u128;
        let is_fit = output.stride >= width
            && size < isize::MAX as u128
            && (size == 0 || !output.data.is_null());
        is_fit
            .then_some(Places { output, count })
            .ok_or(Status::BadArgument)
    }
}

impl Places {
    /// Copies the results to their places.
    ///
    /// # Safety
    ///
    /// The output has a row for each result, and nobody else uses it meanwhile.
    pub(crate) unsafe fn take(&self, results: &lockstep::Column) -> Result<(), Status> {
        let Output {
            data,
            stride,
            lengths,
            reasons,
        } = self.output;
        assert!(results.len() == self.count && results.width() <= stride);
        for (number, result) in results.iter().enumerate() {
            // SAFETY: the caller's promise; the size was checked. Bytes between two rows may be of
            // other fields of the caller's.
            let row = unsafe { places(data.wrapping_add(stride * number), results.width()) }?;
            let found = result.unwrap_or_default();
            row[..found.len()].copy_from_slice(found);
            row[found.len()..].fill(0);
            if !lengths.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *lengths.add(number) = found.len() as u32 };
            }
            if !reasons.is_null() {
                let code = result.err().map_or(0, |reason| reason as u8);
                // SAFETY: the caller's promise.
                unsafe { *reasons.add(number) = code };
            }
        }
        Ok(())
    }
}
