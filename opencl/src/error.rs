//! Reasons why a device cannot be used, or has no results.

use std::fmt;

/// Reason why a device cannot be used, or has no results. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The loader of OpenCL is not installed.
    NoLoader(String),
    /// The loader of OpenCL does not have one of the functions.
    OldLoader(&'static str),
    /// OpenCL has no device of this name.
    NoDevice {
        /// The name.
        name: String,
        /// Number of devices.
        count: usize,
    },
    /// The device has less memory than the work needs.
    TooLittleMemory {
        /// Bytes that the work needs.
        needed: u64,
        /// Bytes that one piece of work may have.
        there: u64,
    },
    /// The driver's compiler refuses the kernels.
    Compiler(String),
    /// The device did not finish its work in this number of milliseconds.
    TimeOut(u128),
    /// A call of OpenCL failed.
    Call {
        /// Name of the function.
        function: &'static str,
        /// The number that it returned.
        code: i32,
    },
    /// The device was given up before.
    GivenUp,
    /// The process was forked after OpenCL was loaded.
    Forked,
    /// The inputs do not fit the operation.
    Input,
    /// The device returned a wrong result.
    WrongResult,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoLoader(reason) => write!(f, "OpenCL is not installed: {reason}"),
            Error::OldLoader(function) => write!(f, "OpenCL's loader has no `{function}`"),
            Error::NoDevice { name, count: 0 } => {
                write!(f, "there is no `{name}`: OpenCL has no device")
            }
            Error::NoDevice { name, count } => {
                let last = count - 1;
                write!(
                    f,
                    "there is no `{name}`: devices are `opencl:0` to `opencl:{last}`"
                )
            }
            Error::TooLittleMemory { needed, there } => {
                write!(
                    f,
                    "the device has too little memory: {needed} bytes needed, {there} allowed"
                )
            }
            Error::Compiler(log) => write!(f, "the device's compiler fails: {log}"),
            Error::TimeOut(limit) => write!(f, "the device did not answer in {limit} ms"),
            Error::Call { function, code } => match name(*code) {
                Some(name) => write!(f, "`{function}` fails: {name}"),
                None => write!(f, "`{function}` fails: error {code}"),
            },
            Error::GivenUp => {
                f.write_str("the device was given up: it did not answer, or was wrong")
            }
            Error::Forked => f.write_str("the process was forked after OpenCL was loaded"),
            Error::Input => f.write_str("the inputs do not fit the operation"),
            Error::WrongResult => f.write_str("the device returned a wrong result"),
        }
    }
}

impl std::error::Error for Error {}

/// Returns the name of an error that a device may have.
fn name(code: i32) -> Option<&'static str> {
    Some(match code {
        -1 => "device not found",
        -2 => "device not available",
        -3 => "compiler not available",
        -4 => "no memory on the device",
        -5 => "out of resources",
        -6 => "no memory on the host",
        -11 => "build failed",
        -14 => "an event before it failed",
        -36 => "invalid queue: the device may be lost",
        -45 => "invalid program",
        -52 => "invalid arguments of a kernel",
        -54 => "invalid size of a group",
        -61 => "invalid size of a buffer",
        -1001 => "no driver is installed",
        _ => return None,
    })
}
