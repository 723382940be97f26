//! The module `lockstep_crypto._native`: columns of Python in, columns out. The package around it
//! is written in Python.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "memory of other objects, seen as slices")]
mod column;
mod key;
#[allow(unsafe_code, reason = "memory that other objects see")]
mod output;

use std::ops::ControlFlow;

use lockstep::{Error, Scheme, ToAgree, ToDecapsulate, ToSign, ToVerify, rows};
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyValueError};
use pyo3::prelude::*;

use column::Column;
use key::{Keys, PrivateKey, PrivateKeys, PublicKey, algorithm};
use output::Output;

/// Threads and lanes.
#[pyclass(frozen, module = "lockstep_crypto")]
struct Workers(lockstep::Workers);

#[pymethods]
impl Workers {
    #[new]
    #[pyo3(signature = (threads=None, lanes=None, devices=None, device_threshold=None))]
    fn new(
        threads: Option<usize>,
        lanes: Option<&str>,
        devices: Option<Vec<String>>,
        device_threshold: Option<usize>,
    ) -> PyResult<Workers> {
        let refused = |error: Error| PyValueError::new_err(error.to_string());
        let mut workers = lockstep::Workers::try_new().map_err(refused)?;
        if let Some(threads) = threads {
            if threads == 0 {
                return Err(PyValueError::new_err("threads must be at least 1"));
            }
            workers = workers.with_threads(threads);
        }
        if let Some(name) = lanes {
            let unknown = || {
                PyValueError::new_err(format!(
                    "lanes {name:?} are not among `avx512ifma`, `avx2` and `portable`, or this CPU \
                     does not have them"
                ))
            };
            workers = workers.with_lanes(name).ok_or_else(unknown)?;
        }
        if let Some(names) = devices {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let opened = workers.with_devices(&names);
            workers = opened.map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        if let Some(items) = device_threshold {
            workers = workers.with_device_threshold(items);
        }
        Ok(Workers(workers))
    }

    #[getter]
    fn threads(&self) -> usize {
        self.0.threads()
    }

    #[getter]
    fn lanes(&self) -> &'static str {
        self.0.lanes()
    }

    /// The name of each device, the number of items that it has computed, and why it failed the
    /// last time.
    #[getter]
    fn devices(&self) -> Vec<(String, u64, Option<String>)> {
        let states = self.0.devices().into_iter();
        let state = |state: lockstep::DeviceState| {
            let failure = state.failure.map(|failure| failure.to_string());
            (state.description.name, state.items, failure)
        };
        states.map(state).collect()
    }

    fn __repr__(&self) -> String {
        let (threads, lanes) = (self.0.threads(), self.0.lanes());
        format!("Workers(threads={threads}, lanes={lanes:?})")
    }
}

/// Computes without the interpreter's lock. Signals and `progress` are served meanwhile.
fn compute<T: Send>(
    py: Python<'_>,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
    compute: impl FnOnce(&lockstep::Workers) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let raised = std::sync::Arc::new(std::sync::Mutex::new(None));
    let place = std::sync::Arc::clone(&raised);
    let watched = workers.0.clone().watched(move |done| {
        let served = Python::attach(|py| {
            py.check_signals()?;
            match &progress {
                Some(progress) => progress.call1(py, (done,)).map(drop),
                None => Ok(()),
            }
        });
        match served {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let mut place = place
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
                place.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    });
    let computed = py.detach(|| compute(&watched));
    let raised = raised
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .take();
    match (computed, raised) {
        (_, Some(error)) => Err(error),
        (Ok(result), None) => Ok(result),
        (Err(Error::NoMemory), None) => Err(PyMemoryError::new_err(Error::NoMemory.to_string())),
        (Err(Error::Stopped), None) => Err(PyKeyboardInterrupt::new_err("stopped")),
        (Err(error), None) => Err(PyValueError::new_err(error.to_string())),
    }
}

/// Returns a scheme of JOSE's name, with the encoding of its signatures.
fn scheme(name: &str, encoding: Option<&str>, prehashed: bool) -> PyResult<Scheme> {
    let scheme = Scheme::from_name(name).ok_or_else(|| {
        let names = Scheme::NAMES.join(", ");
        PyValueError::new_err(format!("unknown scheme {name:?}; there are {names}"))
    })?;
    let scheme = match encoding {
        None | Some("fixed") => scheme,
        Some("der") if scheme.der() != scheme => scheme.der(),
        Some("der") => return Err(PyValueError::new_err("only ECDSA has signatures in DER")),
        Some(other) => {
            let message = format!("encoding must be \"fixed\" or \"der\", not {other:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(match prehashed {
        true => scheme.prehashed(),
        false => scheme,
    })
}

/// Returns the length of the columns; refuses columns of different lengths.
fn same_length(columns: &[(&str, usize)]) -> PyResult<usize> {
    let [(_, length), rest @ ..] = columns else {
        return Ok(0);
    };
    match rest.iter().all(|(_, other)| other == length) {
        true => Ok(*length),
        false => {
            let lengths: Vec<_> = columns
                .iter()
                .map(|(name, length)| format!("{length} {name}"))
                .collect();
            let message = format!("columns of different lengths: {}", lengths.join(", "));
            Err(PyValueError::new_err(message))
        }
    }
}

#[pyfunction]
#[pyo3(signature = (name, keys, index, messages, signatures, encoding, prehashed, workers, progress))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
fn verify(
    py: Python<'_>,
    name: &str,
    keys: &Bound<'_, PyAny>,
    index: Option<&Bound<'_, PyAny>>,
    messages: &Bound<'_, PyAny>,
    signatures: &Bound<'_, PyAny>,
    encoding: Option<&str>,
    prehashed: bool,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<u8>> {
    let scheme = scheme(name, encoding, prehashed)?;
    let messages = Column::new("messages", messages)?;
    let signatures = Column::new("signatures", signatures)?;
    let count = same_length(&[
        ("messages", messages.len()),
        ("signatures", signatures.len()),
    ])?;
    let keys = Keys::<PublicKey>::new(keys, index, count)?;
    let verdicts = compute(py, workers, progress, |workers| {
        let items = rows(count, |number| ToVerify {
            key: keys.public(number),
            message: messages.get(number),
            // A row without a message has no signature.
            signature: match messages.is_null(number) {
                true => &[],
                false => signatures.get(number),
            },
        });
        workers.verify_many(scheme, &items)
    })?;
    Ok(verdicts.into_iter().map(output::code).collect())
}

#[pyfunction]
#[pyo3(signature = (name, keys, index, messages, encoding, prehashed, workers, progress))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
fn sign(
    py: Python<'_>,
    name: &str,
    keys: &Bound<'_, PyAny>,
    index: Option<&Bound<'_, PyAny>>,
    messages: &Bound<'_, PyAny>,
    encoding: Option<&str>,
    prehashed: bool,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
) -> PyResult<Output> {
    let scheme = scheme(name, encoding, prehashed)?;
    let messages = Column::new("messages", messages)?.without_nulls("messages")?;
    let count = messages.len();
    let keys = PrivateKeys::new(keys, index, count)?;
    compute(py, workers, progress, |workers| {
        let items = rows(count, |number| {
            ToSign::new(keys.get(number), messages.get(number))
        });
        workers.sign_many(scheme, &items)
    })
    .map(Output::new)
}

#[pyfunction]
fn agree(
    py: Python<'_>,
    name: &str,
    keys: &Bound<'_, PyAny>,
    index: Option<&Bound<'_, PyAny>>,
    peers: &Bound<'_, PyAny>,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
) -> PyResult<Output> {
    let algorithm = algorithm(name)?;
    let peers = Column::new("peers", peers)?.without_nulls("peers")?;
    let count = peers.len();
    let keys = PrivateKeys::new(keys, index, count)?;
    compute(py, workers, progress, |workers| {
        let items = rows(count, |number| {
            ToAgree::new(keys.get(number), lockstep::Key::Raw(peers.get(number)))
        });
        workers.agree_many(algorithm, &items)
    })
    .map(Output::new)
}

#[pyfunction]
fn generate(
    py: Python<'_>,
    name: &str,
    count: usize,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Output, Output)> {
    let algorithm = algorithm(name)?;
    let pairs = compute(py, workers, progress, |workers| {
        workers.generate_many(algorithm, count)
    })?;
    let (secrets, publics) = pairs.into_columns();
    Ok((Output::new(secrets), Output::new(publics)))
}

#[pyfunction]
fn encapsulate(
    py: Python<'_>,
    name: &str,
    peers: &Bound<'_, PyAny>,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Output, Output)> {
    let kem = key::kem(name)?;
    let peers = Column::new("peers", peers)?.without_nulls("peers")?;
    let sent = compute(py, workers, progress, |workers| {
        let items = rows(peers.len(), |number| lockstep::Key::Raw(peers.get(number)));
        workers.encapsulate_many(kem, &items)
    })?;
    Ok((Output::new(sent.ciphertexts), Output::new(sent.secrets)))
}

#[pyfunction]
fn decapsulate(
    py: Python<'_>,
    name: &str,
    keys: &Bound<'_, PyAny>,
    index: Option<&Bound<'_, PyAny>>,
    ciphertexts: &Bound<'_, PyAny>,
    workers: &Workers,
    progress: Option<Py<PyAny>>,
) -> PyResult<Output> {
    let kem = key::kem(name)?;
    let ciphertexts = Column::new("ciphertexts", ciphertexts)?.without_nulls("ciphertexts")?;
    let count = ciphertexts.len();
    let keys = PrivateKeys::new(keys, index, count)?;
    compute(py, workers, progress, |workers| {
        let items = rows(count, |number| ToDecapsulate {
            key: keys.get(number),
            ciphertext: ciphertexts.get(number),
        });
        workers.decapsulate_many(kem, &items)
    })
    .map(Output::new)
}

/// The reasons of items, by their codes.
#[pyfunction]
fn reasons() -> Vec<(u8, &'static str, &'static str)> {
    let reasons = lockstep::Reason::ALL.iter();
    reasons
        .map(|reason| (*reason as u8, reason.name(), reason.text()))
        .collect()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Workers>()?;
    module.add_class::<PublicKey>()?;
    module.add_class::<PrivateKey>()?;
    module.add_class::<Output>()?;
    module.add("schemes", Scheme::NAMES)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    for function in [
        wrap_pyfunction!(verify, module)?,
        wrap_pyfunction!(sign, module)?,
        wrap_pyfunction!(agree, module)?,
        wrap_pyfunction!(generate, module)?,
        wrap_pyfunction!(encapsulate, module)?,
        wrap_pyfunction!(decapsulate, module)?,
        wrap_pyfunction!(reasons, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
