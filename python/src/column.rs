//! Columns of bytes from Python: lists of `bytes`, two-dimensional buffers, and Arrow arrays. The
//! bytes stay where they are.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::cast::AsArray as _;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::ArrayStreamReader;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};

/// A column of bytes, which keeps the objects alive that own them.
pub(crate) struct Column {
    kind: Kind,
    length: usize,
}

enum Kind {
    /// Objects of type `bytes`, which never change.
    List {
        spans: Vec<Span>,
        _owner: Py<PyTuple>,
    },
    /// Rows of a two-dimensional buffer.
    Rows {
        first: Span,
        stride: isize,
        _owner: PyBuffer<u8>,
    },
    /// Arrow arrays, with the number of the first row of each.
    Arrow(Vec<(usize, ArrayRef)>),
}

/// Bytes in the memory of another object.
#[derive(Clone, Copy)]
struct Span {
    start: *const u8,
    length: usize,
}

// SAFETY: a span is read only, and the column keeps its owner alive.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Returns `length` bytes at a distance from `start`.
    ///
    /// # Safety
    ///
    /// The owner of the bytes is alive, and has them at this distance.
    unsafe fn bytes<'a>(self, distance: isize) -> &'a [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.offset(distance), self.length) }
    }
}

impl Column {
    /// Takes a column; `name` is its name in messages.
    pub(crate) fn new(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Column> {
        if is_of_objects(object)? {
            return Err(PyTypeError::new_err(format!(
                "{name} is a column of Python objects: pass a list, or a column of binary values"
            )));
        }
        if object.hasattr("__arrow_c_stream__")? || object.hasattr("__arrow_c_array__")? {
            return of_arrow(name, object);
        }
        if let Ok(buffer) = PyBuffer::<u8>::get(object)
            && buffer.dimensions() == 2
        {
            return of_buffer(name, buffer);
        }
        let is_list = object.is_instance_of::<pyo3::types::PyList>();
        if is_list || object.is_instance_of::<PyTuple>() {
            return of_list(name, object);
        }
        // NumPy's and pandas' arrays of objects. `tolist` of other arrays may lose bytes: NumPy's
        // type `S` does not keep zeros at the end.
        let kind = object.getattr("dtype").and_then(|own| own.getattr("kind"));
        if kind.is_ok_and(|kind| kind.eq("O").unwrap_or(false)) {
            let list = object.call_method0("tolist")?;
            if list.is_instance_of::<pyo3::types::PyList>() {
                return of_list(name, &list);
            }
        }
        let kind = object.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "{name} must be a list of bytes, a two-dimensional array of uint8, or an Arrow column \
             of binary values, not {kind}"
        )))
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the bytes of a row; an Arrow null has none.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        assert!(number < self.length, "no such row");
        match &self.kind {
            // SAFETY: the column owns the object.
            Kind::List { spans, .. } => unsafe { spans[number].bytes(0) },
            // SAFETY: the buffer has a row at each multiple of its stride below its length.
            Kind::Rows { first, stride, .. } => unsafe { first.bytes(stride * number as isize) },
            Kind::Arrow(chunks) => {
                let chunk = chunks.partition_point(|(start, _)| *start <= number) - 1;
                let (start, array) = &chunks[chunk];
                value(array, number - start).unwrap_or_default()
            }
        }
    }

    /// Returns whether a row is an Arrow null.
    pub(crate) fn is_null(&self, number: usize) -> bool {
        let Kind::Arrow(chunks) = &self.kind else {
            return false;
        };
        let chunk = chunks.partition_point(|(start, _)| *start <= number) - 1;
        let (start, array) = &chunks[chunk];
        array.is_null(number - start)
    }

    /// Refuses Arrow nulls.
    pub(crate) fn without_nulls(self, name: &str) -> PyResult<Column> {
        // Only Arrow has nulls. A search might take long, since a buffer may have any number of
        // rows.
        if !matches!(self.kind, Kind::Arrow(_)) {
            return Ok(self);
        }
        match (0..self.length).find(|number| self.is_null(*number)) {
            Some(row) => Err(PyValueError::new_err(format!(
                "{name} has a null in row {row}"
            ))),
            None => Ok(self),
        }
    }
}

/// Returns whether this is a column of Polars that holds objects, whose addresses Arrow would get,
/// or a masked array of NumPy, whose masked values a buffer would contain.
fn is_of_objects(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = object.get_type();
    let module = kind.module()?;
    if kind.name()? == "MaskedArray" {
        return Ok(true);
    }
    let is_polars = module.to_str()?.starts_with("polars");
    Ok(is_polars && object.getattr("dtype")?.str()? == "Object")
}

fn of_list(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Column> {
    let items = object.try_iter()?.enumerate().map(|(row, item)| {
        let item = item?;
        if item.is_instance_of::<PyBytes>() {
            return Ok(item);
        }
        // Bytes of another object are copied, as they may change.
        match PyBuffer::<u8>::get(&item) {
            Ok(buffer) => {
                let copy = buffer.to_vec(item.py())?;
                Ok(PyBytes::new(item.py(), &copy).into_any())
            }
            Err(_) => {
                let kind = item.get_type().name()?;
                let message = format!("{name}[{row}] must be bytes, not {kind}");
                Err(PyTypeError::new_err(message))
            }
        }
    });
    let items = items.collect::<PyResult<Vec<_>>>()?;
    let owner = PyTuple::new(object.py(), items)?;
    let span = |item: Bound<'_, PyAny>| {
        let bytes = item.cast::<PyBytes>()?.as_bytes();
        Ok(Span {
            start: bytes.as_ptr(),
            length: bytes.len(),
        })
    };
    let spans = owner.iter().map(span).collect::<PyResult<Vec<_>>>()?;
    Ok(Column {
        length: spans.len(),
        kind: Kind::List {
            spans,
            _owner: owner.unbind(),
        },
    })
}

fn of_buffer(name: &str, buffer: PyBuffer<u8>) -> PyResult<Column> {
    if buffer.suboffsets().is_some() {
        return Err(PyTypeError::new_err(format!(
            "{name} must not have suboffsets"
        )));
    }
    let (shape, strides) = (buffer.shape(), buffer.strides());
    let ([rows, width], [stride, inner]) = (shape, strides) else {
        return Err(PyTypeError::new_err(format!(
            "{name} must have two dimensions"
        )));
    };
    let (rows, width, stride) = (*rows, *width, *stride);
    if *inner != 1 && width > 1 {
        return Err(PyValueError::new_err(format!(
            "the bytes of a row of {name} must lie side by side: pass numpy.ascontiguousarray(...)"
        )));
    }
    Ok(Column {
        length: rows,
        kind: Kind::Rows {
            first: Span {
                start: buffer.buf_ptr().cast(),
                length: width,
            },
            stride,
            _owner: buffer,
        },
    })
}

fn of_arrow(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Column> {
    let broken = |reason: String| PyValueError::new_err(format!("{name}: {reason}"));
    // Arrow's crate panics on structures that were released before.
    let taken = catch_unwind(AssertUnwindSafe(|| taken(object)));
    let taken = taken.map_err(|_| broken("the Arrow structures cannot be read".to_owned()))?;
    let (mut length, mut placed) = (0, Vec::new());
    for data in taken? {
        let array = checked(data).map_err(broken)?;
        if !array.is_empty() {
            placed.push((length, array));
            length += placed[placed.len() - 1].1.len();
        }
    }
    Ok(Column {
        kind: Kind::Arrow(placed),
        length,
    })
}

/// Takes the arrays of an object.
fn taken(object: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayData>> {
    let broken = |error: ArrowError| PyValueError::new_err(error.to_string());
    if object.hasattr("__arrow_c_array__")? {
        let pair = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
        // SAFETY: capsules of these names hold such structures, which are moved out of them.
        let (schema, array) = unsafe {
            (
                FFI_ArrowSchema::from_raw(held(&schema, c"arrow_schema")?),
                FFI_ArrowArray::from_raw(held(&array, c"arrow_array")?),
            )
        };
        // SAFETY: the producer made both by the C data interface.
        return Ok(vec![unsafe { from_ffi(array, &schema) }.map_err(broken)?]);
    }
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let stream = held(capsule.cast()?, c"arrow_array_stream")?;
    // SAFETY: as above.
    let reader = unsafe { ArrayStreamReader::from_raw(stream) }.map_err(broken)?;
    let arrays = reader.map(|array| array.map(|array| array.to_data()).map_err(broken));
    arrays.collect()
}

/// Returns an array of binary values whose offsets and views lie within its memory. A file can have
/// any offsets and views, and pyarrow does not check them.
fn checked(data: ArrayData) -> Result<ArrayRef, String> {
    use DataType::*;
    let kind = match data.data_type() {
        FixedSizeBinary(_) | Binary | LargeBinary | BinaryView => None,
        // The text may have any encoding, since only its bytes are used.
        Utf8 => Some(Binary),
        LargeUtf8 => Some(LargeBinary),
        Utf8View => Some(BinaryView),
        FixedSizeList(field, _) if *field.data_type() == UInt8 => None,
        other => {
            return Err(format!(
                "a column of binary values is needed, not of {other}"
            ));
        }
    };
    let data = match kind {
        // SAFETY: both types have the same buffers, which are checked below.
        Some(kind) => unsafe { data.into_builder().data_type(kind).build_unchecked() },
        None => data,
    };
    data.validate_full().map_err(|error| error.to_string())?;
    let has_nulls = |child: &ArrayData| child.null_count() > 0;
    if data.child_data().iter().any(has_nulls) {
        return Err("a null within a value".to_owned());
    }
    Ok(make_array(data))
}

/// Returns the structure in a capsule of this name.
fn held<T>(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> PyResult<*mut T> {
    Ok(capsule.pointer_checked(Some(name))?.cast().as_ptr())
}

/// Returns the bytes of a row; `None` for a null.
fn value(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        DataType::FixedSizeList(_, width) => {
            let list = array.as_fixed_size_list();
            let values = list.values().as_primitive::<UInt8Type>().values();
            &values[list.value_offset_at(row)..][..*width as usize]
        }
        _ => return None,
    })
}
