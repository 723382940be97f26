//! The functions of OpenCL's loader, found at run time.
//!
//! The loader stays loaded until the process ends, since drivers have threads of their own.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::error::Error;
#[cfg(feature = "fault-injection")]
use crate::planted::Plan;

/// A handle of OpenCL.
pub(crate) type Id = *mut c_void;

/// Names of the loader.
const LOADERS: [&str; 2] = ["libOpenCL.so.1", "libOpenCL.so"];

/// Declares functions that return an error code, and functions that make an object and write an
/// error code to their last argument.
macro_rules! functions {
    (
        calls { $($call:ident = $name:literal ($($argument:ident: $kind:ty),*);)* }
        makes { $($make:ident = $made:literal ($($part:ident: $of:ty),*);)* }
    ) => {
        /// Functions of the loader.
        struct Functions {
            $($call: unsafe extern "C" fn($($kind),*) -> i32,)*
            $($make: unsafe extern "C" fn($($of,)* *mut i32) -> Id,)*
        }

        impl Functions {
            fn load(library: &Library) -> Result<Functions, Error> {
                Ok(Functions {
                    // SAFETY: functions of these names have these types, by OpenCL 1.2.
                    $($call: *unsafe { library.get(concat!($name, "\0")) }
                        .map_err(|_| Error::OldLoader($name))?,)*
                    // SAFETY: as above.
                    $($make: *unsafe { library.get(concat!($made, "\0")) }
                        .map_err(|_| Error::OldLoader($made))?,)*
                })
            }
        }

        #[allow(clippy::too_many_arguments, reason = "the functions of OpenCL")]
        impl Api {
            $(
                /// Calls the function.
                ///
                /// # Safety
                ///
                /// The arguments must satisfy OpenCL's rules for the function.
                pub(crate) unsafe fn $call(&self, $($argument: $kind),*) -> Result<(), Error> {
                    self.planted($name)?;
                    // SAFETY: the caller keeps to OpenCL's rules.
                    match unsafe { (self.functions.$call)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(Error::Call { function: $name, code }),
                    }
                }
            )*
            $(
                /// Calls the function, and returns the object that it makes.
                ///
                /// # Safety
                ///
                /// The arguments must satisfy OpenCL's rules for the function.
                pub(crate) unsafe fn $make(&self, $($part: $of),*) -> Result<Id, Error> {
                    self.planted($made)?;
                    let mut code = 0;
                    // SAFETY: the caller keeps to OpenCL's rules, and `code` may be written.
                    let made = unsafe { (self.functions.$make)($($part,)* &raw mut code) };
                    match code {
                        0 if !made.is_null() => Ok(made),
                        code => Err(Error::Call { function: $made, code }),
                    }
                }
            )*
        }
    };
}

functions! {
    calls {
        get_platforms = "clGetPlatformIDs"(room: u32, platforms: *mut Id, count: *mut u32);
        platform_info = "clGetPlatformInfo"(
            platform: Id, what: u32, room: usize, value: *mut c_void, size: *mut usize
        );
        get_devices = "clGetDeviceIDs"(
            platform: Id, kinds: u64, room: u32, devices: *mut Id, count: *mut u32
        );
        device_info = "clGetDeviceInfo"(
            device: Id, what: u32, room: usize, value: *mut c_void, size: *mut usize
        );
        build_program = "clBuildProgram"(
            program: Id, count: u32, devices: *const Id, options: *const c_char,
            notify: *const c_void, data: *mut c_void
        );
        build_info = "clGetProgramBuildInfo"(
            program: Id, device: Id, what: u32, room: usize, value: *mut c_void, size: *mut usize
        );
        set_argument = "clSetKernelArg"(kernel: Id, place: u32, size: usize, value: *const c_void);
        write_buffer = "clEnqueueWriteBuffer"(
            queue: Id, buffer: Id, wait: u32, offset: usize, size: usize, from: *const c_void,
            events: u32, list: *const Id, event: *mut Id
        );
        read_buffer = "clEnqueueReadBuffer"(
            queue: Id, buffer: Id, wait: u32, offset: usize, size: usize, to: *mut c_void,
            events: u32, list: *const Id, event: *mut Id
        );
        fill_buffer = "clEnqueueFillBuffer"(
            queue: Id, buffer: Id, pattern: *const c_void, length: usize, offset: usize, size: usize,
            events: u32, list: *const Id, event: *mut Id
        );
        copy_buffer = "clEnqueueCopyBuffer"(
            queue: Id, from: Id, to: Id, start: usize, offset: usize, size: usize, events: u32,
            list: *const Id, event: *mut Id
        );
        run_kernel = "clEnqueueNDRangeKernel"(
            queue: Id, kernel: Id, dimensions: u32, offset: *const usize, global: *const usize,
            local: *const usize, events: u32, list: *const Id, event: *mut Id
        );
        flush = "clFlush"(queue: Id);
        event_info = "clGetEventInfo"(
            event: Id, what: u32, room: usize, value: *mut c_void, size: *mut usize
        );
        release_context = "clReleaseContext"(context: Id);
        release_queue = "clReleaseCommandQueue"(queue: Id);
        release_buffer = "clReleaseMemObject"(buffer: Id);
        release_program = "clReleaseProgram"(program: Id);
        release_kernel = "clReleaseKernel"(kernel: Id);
        release_event = "clReleaseEvent"(event: Id);
    }
    makes {
        create_context = "clCreateContext"(
            properties: *const isize, count: u32, devices: *const Id, notify: *const c_void,
            data: *mut c_void
        );
        create_queue = "clCreateCommandQueue"(context: Id, device: Id, properties: u64);
        create_buffer = "clCreateBuffer"(context: Id, flags: u64, size: usize, host: *mut c_void);
        create_program = "clCreateProgramWithSource"(
            context: Id, count: u32, texts: *const *const c_char, lengths: *const usize
        );
        create_kernel = "clCreateKernel"(program: Id, name: *const c_char);
    }
}

/// The functions, as one device calls them.
pub(crate) struct Api {
    functions: &'static Functions,
    /// The process that loaded them.
    process: u32,
    /// Calls that fail, for tests.
    #[cfg(feature = "fault-injection")]
    pub(crate) plan: Plan,
}

/// The loader's functions, and the process that found them.
static LOADED: OnceLock<(u32, Result<Functions, Error>)> = OnceLock::new();

/// Returns whether this process has loaded OpenCL; false in a forked child.
pub fn is_loaded() -> bool {
    LOADED
        .get()
        .is_some_and(|(process, _)| *process == std::process::id())
}

impl Api {
    /// Finds the loader.
    pub(crate) fn load() -> Result<Api, Error> {
        let load = || {
            let mut reason = String::new();
            for name in LOADERS {
                // SAFETY: the loader of OpenCL and the drivers that it loads may run what they
                // have to when they are loaded; the user asked for them.
                match unsafe { Library::new(name) } {
                    Ok(library) => {
                        let functions = Functions::load(&library);
                        std::mem::forget(library);
                        return functions;
                    }
                    Err(error) if reason.is_empty() => reason = error.to_string(),
                    Err(_) => {}
                }
            }
            Err(Error::NoLoader(reason.replace('\n', " ")))
        };
        let own = std::process::id();
        let (process, functions) = LOADED.get_or_init(|| (own, load()));
        match functions {
            // Drivers have threads, which a forked child lacks.
            Ok(_) if *process != own => Err(Error::Forked),
            Ok(functions) => Ok(Api {
                functions,
                process: own,
                #[cfg(feature = "fault-injection")]
                plan: Plan::default(),
            }),
            Err(error) => Err(error.clone()),
        }
    }

    /// Returns whether this is the process that loaded the functions, and no forked child.
    pub(crate) fn is_at_home(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the failure that is planted in this call.
    #[cfg(feature = "fault-injection")]
    fn planted(&self, function: &'static str) -> Result<(), Error> {
        match self.plan.fails(function) {
            false => Ok(()),
            true => Err(Error::Call { function, code: -5 }),
        }
    }

    #[cfg(not(feature = "fault-injection"))]
    #[inline(always)]
    #[allow(
        clippy::unused_self,
        reason = "the same call with and without planted failures"
    )]
    fn planted(&self, _: &'static str) -> Result<(), Error> {
        Ok(())
    }

    /// Reads a value that a function of information writes: a text, or the bytes of a number.
    pub(crate) fn read(
        &self,
        ask: impl Fn(&Api, usize, *mut c_void, *mut usize) -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        let mut size = 0;
        ask(self, 0, ptr::null_mut(), &raw mut size)?;
        let mut value = vec![0; size];
        ask(self, size, value.as_mut_ptr().cast(), ptr::null_mut())?;
        Ok(value)
    }
}
