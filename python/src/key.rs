//! Keys of Python's callers.

use lockstep::{Algorithm, Kem, KeyError};
use pyo3::PyClass;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyList, PyTuple};

use crate::column::Column;

fn refused(error: KeyError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A text of Python: `str` or `bytes`.
#[derive(FromPyObject)]
enum Text {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl Text {
    fn bytes(&self) -> &[u8] {
        match self {
            Text::Text(text) => text.as_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }

    fn text(&self) -> PyResult<&str> {
        let refused = |_| PyValueError::new_err("the text is not UTF-8");
        str::from_utf8(self.bytes()).map_err(refused)
    }
}

/// Returns the algorithm of this name.
pub(crate) fn algorithm(name: &str) -> PyResult<Algorithm> {
    Algorithm::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Algorithm::names().collect();
        let names = names.join(", ");
        PyValueError::new_err(format!("unknown algorithm {name:?}; there are {names}"))
    })
}

/// Returns the mechanism of this name.
pub(crate) fn kem(name: &str) -> PyResult<Kem> {
    match algorithm(name)? {
        Algorithm::Kem(kem) => Ok(kem),
        _ => Err(PyValueError::new_err(format!(
            "{name} has no key encapsulation"
        ))),
    }
}

/// Name of a key in a set, and the key or the reason why it cannot be read.
type Entry = (Option<String>, Option<Py<PublicKey>>, Option<String>);

/// Arguments of the function that makes a key from its bytes.
#[derive(IntoPyObject)]
enum PyKeyBytes {
    Der((Vec<u8>,)),
    Raw((&'static str, Vec<u8>)),
}

#[pyclass(frozen, eq, hash, module = "lockstep_crypto")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PublicKey(lockstep::PublicKey);

#[pymethods]
impl PublicKey {
    #[staticmethod]
    fn from_pem(text: Text) -> PyResult<PublicKey> {
        lockstep::PublicKey::from_pem(text.bytes())
            .map(PublicKey)
            .map_err(refused)
    }

    #[staticmethod]
    fn from_der(data: &[u8]) -> PyResult<PublicKey> {
        lockstep::PublicKey::from_der(data)
            .map(PublicKey)
            .map_err(refused)
    }

    #[staticmethod]
    fn from_jwk(text: Text) -> PyResult<PublicKey> {
        lockstep::PublicKey::from_jwk(text.text()?)
            .map(PublicKey)
            .map_err(refused)
    }

    /// Returns pairs of a name and a key, or of a name and why the key cannot be read.
    #[staticmethod]
    fn from_jwk_set(py: Python<'_>, text: &str) -> PyResult<Vec<Entry>> {
        let set = lockstep::PublicKey::from_jwk_set(text).map_err(refused)?;
        let entry = |(name, key): (_, Result<_, KeyError>)| match key {
            Ok(key) => Ok((name, Some(Py::new(py, PublicKey(key))?), None)),
            Err(reason) => Ok((name, None, Some(reason.to_string()))),
        };
        set.into_iter().map(entry).collect()
    }

    #[staticmethod]
    fn from_raw(algorithm: &str, data: &[u8]) -> PyResult<PublicKey> {
        let algorithm = self::algorithm(algorithm)?;
        let key = lockstep::PublicKey::from_raw(algorithm, data);
        key.map(PublicKey).map_err(refused)
    }

    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.algorithm().name()
    }

    fn prepare(&self, py: Python<'_>) {
        py.detach(|| self.0.prepare());
    }

    fn to_der(&self) -> PyResult<Vec<u8>> {
        let none = || PyValueError::new_err("a hybrid has no form in DER");
        self.0.to_der().ok_or_else(none)
    }

    /// Copies a key by its bytes, as `pickle` does.
    fn __reduce__<'py>(own: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, PyKeyBytes)> {
        let (class, key) = (own.get_type(), &own.get().0);
        Ok(match key.to_der() {
            Some(der) => (class.getattr("from_der")?, PyKeyBytes::Der((der,))),
            None => {
                let raw = key.raw().unwrap_or_default().to_vec();
                let name = key.algorithm().name();
                (class.getattr("from_raw")?, PyKeyBytes::Raw((name, raw)))
            }
        })
    }

    fn raw(&self) -> PyResult<&[u8]> {
        let none = || PyValueError::new_err("RSA keys have no raw form");
        self.0.raw().ok_or_else(none)
    }

    fn __repr__(&self) -> String {
        format!("PublicKey({})", self.algorithm())
    }
}

#[pyclass(frozen, module = "lockstep_crypto")]
pub(crate) struct PrivateKey(lockstep::PrivateKey);

#[pymethods]
impl PrivateKey {
    #[staticmethod]
    fn from_pem(text: Text) -> PyResult<PrivateKey> {
        lockstep::PrivateKey::from_pem(text.bytes())
            .map(PrivateKey)
            .map_err(refused)
    }

    #[staticmethod]
    fn from_der(data: &[u8]) -> PyResult<PrivateKey> {
        lockstep::PrivateKey::from_der(data)
            .map(PrivateKey)
            .map_err(refused)
    }

    #[staticmethod]
    fn from_jwk(text: Text) -> PyResult<PrivateKey> {
        lockstep::PrivateKey::from_jwk(text.text()?)
            .map(PrivateKey)
            .map_err(refused)
    }

    #[staticmethod]
    fn from_raw(algorithm: &str, data: &[u8]) -> PyResult<PrivateKey> {
        let algorithm = self::algorithm(algorithm)?;
        let key = lockstep::PrivateKey::from_raw(algorithm, data);
        key.map(PrivateKey).map_err(refused)
    }

    fn public(&self) -> PublicKey {
        PublicKey(self.0.public())
    }

    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.algorithm().name()
    }

    fn __repr__(&self) -> String {
        format!("PrivateKey({})", self.algorithm())
    }
}

/// The keys of the items of a call.
pub(crate) enum Keys<K> {
    /// Objects, and the place of each item's key among them. Without places, there is one key for
    /// all items, or one for each item.
    Objects(Vec<Py<K>>, Option<Vec<u32>>),
    /// Public keys as bytes, one for each item.
    Raw(Column),
}

impl<K: PyClass<Frozen = True> + Sync + Send> Keys<K> {
    pub(crate) fn new(
        keys: &Bound<'_, PyAny>,
        index: Option<&Bound<'_, PyAny>>,
        count: usize,
    ) -> PyResult<Keys<K>> {
        let is_sequence = keys.is_instance_of::<PyList>() || keys.is_instance_of::<PyTuple>();
        let objects: Vec<Py<K>> = if keys.is_instance_of::<K>() {
            vec![keys.cast::<K>()?.clone().unbind()]
        } else if is_sequence && keys.len()? > 0 && keys.get_item(0)?.is_instance_of::<K>() {
            let key = |(row, key): (usize, PyResult<Bound<'_, PyAny>>)| match key?.cast_into::<K>()
            {
                Ok(key) => Ok(key.unbind()),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "keys[{row}] is of another type"
                ))),
            };
            keys.try_iter()?
                .enumerate()
                .map(key)
                .collect::<PyResult<_>>()?
        } else {
            let column = Column::new("keys", keys)?;
            if index.is_some() {
                return Err(PyValueError::new_err(
                    "an index needs key objects, not bytes",
                ));
            }
            check_length("keys", column.len(), count)?;
            return Ok(Keys::Raw(column));
        };
        let Some(index) = index else {
            if objects.len() != 1 {
                check_length("keys", objects.len(), count)?;
            }
            return Ok(Keys::Objects(objects, None));
        };
        let index = PyBuffer::<u32>::get(index)?.to_vec(index.py())?;
        check_length("places in the index", index.len(), count)?;
        match index
            .iter()
            .position(|place| *place as usize >= objects.len())
        {
            Some(row) => Err(PyValueError::new_err(format!(
                "index[{row}] is {}, and there are {} keys",
                index[row],
                objects.len()
            ))),
            None => Ok(Keys::Objects(objects, Some(index))),
        }
    }

    fn object(&self, number: usize) -> Option<&K> {
        let Keys::Objects(objects, index) = self else {
            return None;
        };
        let place = match (index, objects.len()) {
            (Some(index), _) => index[number] as usize,
            (None, 1) => 0,
            (None, _) => number,
        };
        Some(objects[place].get())
    }
}

impl Keys<PublicKey> {
    /// Returns the key of an item.
    pub(crate) fn public(&self, number: usize) -> lockstep::Key<'_> {
        match self {
            Keys::Raw(column) => lockstep::Key::Raw(column.get(number)),
            Keys::Objects(..) => match self.object(number) {
                Some(key) => lockstep::Key::Object(&key.0),
                None => lockstep::Key::Raw(&[]),
            },
        }
    }
}

/// Private keys, which are objects.
pub(crate) struct PrivateKeys(Keys<PrivateKey>);

impl PrivateKeys {
    pub(crate) fn new(
        keys: &Bound<'_, PyAny>,
        index: Option<&Bound<'_, PyAny>>,
        count: usize,
    ) -> PyResult<PrivateKeys> {
        let refused = || {
            PyTypeError::new_err(
                "keys must be a PrivateKey or a list of them: see PrivateKey.from_raw",
            )
        };
        let is_sequence = keys.is_instance_of::<PyList>() || keys.is_instance_of::<PyTuple>();
        if !is_sequence && !keys.is_instance_of::<PrivateKey>() {
            return Err(refused());
        }
        match Keys::new(keys, index, count)? {
            Keys::Raw(_) if count > 0 => Err(refused()),
            keys => Ok(PrivateKeys(keys)),
        }
    }

    /// Returns the key of an item.
    pub(crate) fn get(&self, number: usize) -> &lockstep::PrivateKey {
        &self.0.object(number).expect("keys are objects").0
    }
}

fn check_length(name: &str, length: usize, count: usize) -> PyResult<()> {
    match length == count {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!(
            "{length} {name} for {count} items"
        ))),
    }
}
