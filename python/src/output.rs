//! Columns of results.

use std::ffi::{CString, c_int, c_void};

use lockstep::{Column, Verdict};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Returns 0 for a good verdict, and the number of the reason for another one.
pub(crate) fn code(verdict: Verdict) -> u8 {
    verdict.err().map_or(0, |reason| reason as u8)
}

/// Results of a call: a two-dimensional buffer, which NumPy sees without a copy.
#[pyclass(frozen, module = "lockstep_crypto._native")]
pub(crate) struct Output {
    column: Column,
    shape: [isize; 2],
    strides: [isize; 2],
}

impl Output {
    pub(crate) fn new(column: Column) -> Output {
        let shape = [column.len() as isize, column.width() as isize];
        let strides = [column.width() as isize, 1];
        Output {
            column,
            shape,
            strides,
        }
    }
}

#[pymethods]
impl Output {
    fn __len__(&self) -> usize {
        self.column.len()
    }

    fn get<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        if number >= self.column.len() {
            return Err(PyIndexError::new_err("no such item"));
        }
        match self.column.get(number) {
            Ok(result) => Ok(PyBytes::new(py, result)),
            Err(reason) => Err(PyValueError::new_err(format!("item {number}: {reason}"))),
        }
    }

    /// Returns the code of each item's reason, 0 where there is a result.
    fn codes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let codes: Vec<u8> = self.column.verdicts().map(code).collect();
        PyBytes::new(py, &codes)
    }

    /// Returns the length of each result, as 32-bit numbers; 0 where there is none.
    fn lengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let lengths = self
            .column
            .iter()
            .map(|result| result.map_or(0, <[u8]>::len) as u32);
        let lengths: Vec<u8> = lengths.flat_map(u32::to_ne_bytes).collect();
        PyBytes::new(py, &lengths)
    }

    /// # Safety
    ///
    /// Python calls this with a structure to fill.
    unsafe fn __getbuffer__(
        own: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("results cannot be changed"));
        }
        let this = own.get();
        let bytes = this.column.bytes();
        let asks = |flag| flags & flag == flag;
        // SAFETY: Python gave the view. The bytes, the shape and the strides live as long as the
        // object, which the view owns, and never change.
        unsafe {
            (*view).buf = bytes.as_ptr() as *mut c_void;
            (*view).len = bytes.len() as isize;
            (*view).readonly = 1;
            (*view).itemsize = 1;
            (*view).format = match asks(ffi::PyBUF_FORMAT) {
                true => CString::from(c"B").into_raw(),
                false => std::ptr::null_mut(),
            };
            (*view).ndim = 2;
            (*view).shape = match asks(ffi::PyBUF_ND) {
                true => this.shape.as_ptr() as *mut isize,
                false => std::ptr::null_mut(),
            };
            (*view).strides = match asks(ffi::PyBUF_STRIDES) {
                true => this.strides.as_ptr() as *mut isize,
                false => std::ptr::null_mut(),
            };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = own.into_ptr();
        }
        Ok(())
    }

    /// # Safety
    ///
    /// Python calls this with a view that was filled above.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the format is ours, or there is none.
        unsafe {
            if !(*view).format.is_null() {
                drop(CString::from_raw((*view).format));
            }
        }
    }
}
