//! Objects of OpenCL, released when they are dropped.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::api::{Api, Id};
use crate::error::Error;

/// An object that OpenCL made.
pub(crate) struct Object {
    api: Arc<Api>,
    id: Id,
    release: Release,
}

/// The function that releases objects of a kind.
type Release = unsafe fn(&Api, Id) -> Result<(), Error>;

// SAFETY: functions of OpenCL may be called by any thread, with any object; `clSetKernelArg` is the
// exception, and `Kernel`, which calls it, needs a unique reference for that.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Takes an object that nobody else releases.
    fn new(api: &Arc<Api>, id: Id, release: Release) -> Object {
        let api = Arc::clone(api);
        #[cfg(feature = "fault-injection")]
        api.plan.count_object(1);
        Object { api, id, release }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        #[cfg(feature = "fault-injection")]
        self.api.plan.count_object(-1);
        // The driver's threads do not exist in a forked child, and its locks may be held.
        if self.api.is_at_home() {
            // SAFETY: the object was made by OpenCL, and is released once. A failure leaves it.
            let _ = unsafe { (self.release)(&self.api, self.id) };
        }
    }
}

/// A context of one device.
pub(crate) struct Context {
    object: Object,
    device: Id,
}

// SAFETY: the handle of a device is a number to OpenCL, valid until the process ends.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Makes a context.
    ///
    /// # Safety
    ///
    /// OpenCL has listed the device.
    pub(crate) unsafe fn new(api: &Arc<Api>, device: Id) -> Result<Context, Error> {
        let (none, no_data) = (ptr::null(), ptr::null_mut());
        // SAFETY: one device is read; there are no properties, and nobody is notified.
        let id = unsafe { api.create_context(none, 1, &raw const device, ptr::null(), no_data) }?;
        let object = Object::new(api, id, Api::release_context);
        Ok(Context { object, device })
    }

    /// Makes a queue, which keeps the order of its commands.
    pub(crate) fn queue(&self) -> Result<Queue, Error> {
        let api = &self.object.api;
        // SAFETY: the device is that of the context.
        let id = unsafe { api.create_queue(self.object.id, self.device, 0) }?;
        Ok(Queue(Object::new(api, id, Api::release_queue)))
    }

    /// Makes a buffer that kernels read and write.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        const READ_WRITE: u64 = 1;
        let api = &self.object.api;
        let context = self.object.id;
        // SAFETY: the memory is the device's own.
        let id = unsafe { api.create_buffer(context, READ_WRITE, bytes, ptr::null_mut()) }?;
        let object = Object::new(api, id, Api::release_buffer);
        Ok(Buffer { object, bytes })
    }

    /// Compiles a program.
    pub(crate) fn program(&self, text: &str, options: &str) -> Result<Program, Error> {
        const LOG: u32 = 0x1183;
        let api = &self.object.api;
        let (start, length) = (text.as_ptr().cast(), text.len());
        // SAFETY: OpenCL copies one text of this length.
        let id =
            unsafe { api.create_program(self.object.id, 1, &raw const start, &raw const length) }?;
        let program = Program(Object::new(api, id, Api::release_program));
        let mut terminated = options.as_bytes().to_vec();
        terminated.push(0);
        let (options, none) = (terminated.as_ptr().cast(), ptr::null_mut());
        // SAFETY: the options end with a zero; the call returns when the compiler is done.
        match unsafe {
            api.build_program(id, 1, &raw const self.device, options, ptr::null(), none)
        } {
            Ok(()) => Ok(program),
            Err(error @ Error::Call { code, .. }) => {
                // SAFETY: `read` passes memory of the size that it names.
                let log = api.read(|api, room, value, size| unsafe {
                    api.build_info(id, self.device, LOG, room, value, size)
                });
                let log = log.unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                let is_error = |line: &&str| line.contains("error") || line.contains("Error");
                let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
                // CL_BUILD_PROGRAM_FAILURE; others, such as a lack of memory, may end.
                if code != -11 {
                    return Err(error);
                }
                let line = lines().find(is_error).or_else(|| lines().next());
                let line = line.unwrap_or("it says nothing");
                Err(Error::Compiler(line.trim_end_matches('\0').to_owned()))
            }
            Err(error) => Err(error),
        }
    }
}

/// A compiled program.
pub(crate) struct Program(Object);

impl Program {
    /// Returns the kernel of this name.
    pub(crate) fn kernel(&self, name: &std::ffi::CStr) -> Result<Kernel, Error> {
        let api = &self.0.api;
        // SAFETY: the program is built, and the name ends with a zero.
        let id = unsafe { api.create_kernel(self.0.id, name.as_ptr()) }?;
        Ok(Kernel(Object::new(api, id, Api::release_kernel)))
    }
}

/// A kernel with its arguments.
pub(crate) struct Kernel(Object);

impl Kernel {
    /// Sets an argument that is a buffer.
    pub(crate) fn set_buffer(&mut self, place: u32, buffer: &Buffer) -> Result<(), Error> {
        let value = (&raw const buffer.object.id).cast();
        // SAFETY: a handle of a buffer is read.
        unsafe {
            self.0
                .api
                .set_argument(self.0.id, place, size_of::<Id>(), value)
        }
    }

    /// Sets an argument that is a word of 32 bits.
    pub(crate) fn set_word(&mut self, place: u32, word: u32) -> Result<(), Error> {
        // SAFETY: four bytes are read.
        unsafe {
            self.0
                .api
                .set_argument(self.0.id, place, 4, (&raw const word).cast())
        }
    }
}

/// A buffer in the memory of the device.
pub(crate) struct Buffer {
    object: Object,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A queue.
pub(crate) struct Queue(Object);

impl Queue {
    /// Has words copied to the start of a buffer, once it is their turn.
    ///
    /// # Safety
    ///
    /// The words stay where they are until a later event of the queue is complete.
    pub(crate) unsafe fn write(&self, buffer: &Buffer, words: &[u32]) -> Result<(), Error> {
        let size = size_of_val(words);
        if size > buffer.bytes {
            return Err(Error::Input);
        }
        let (queue, to, from) = (self.0.id, buffer.object.id, words.as_ptr().cast());
        let (none, no_event) = (ptr::null(), ptr::null_mut());
        // SAFETY: `size` bytes are there on both sides, until they are copied.
        unsafe {
            self.0
                .api
                .write_buffer(queue, to, 0, 0, size, from, 0, none, no_event)
        }
    }

    /// Has words copied from the start of a buffer, once it is their turn; returns an event.
    ///
    /// # Safety
    ///
    /// The words stay where they are, and nobody uses them, until a later event of the queue is
    /// complete.
    pub(crate) unsafe fn read(&self, buffer: &Buffer, words: &mut [u32]) -> Result<Event, Error> {
        let size = size_of_val(words);
        if size > buffer.bytes {
            return Err(Error::Input);
        }
        let (queue, from, to) = (self.0.id, buffer.object.id, words.as_mut_ptr().cast());
        let (none, mut event) = (ptr::null(), ptr::null_mut());
        // SAFETY: `size` bytes are there on both sides, until they are copied; an event may be
        // written.
        unsafe {
            let event = &raw mut event;
            self.0
                .api
                .read_buffer(queue, from, 0, 0, size, to, 0, none, event)
        }?;
        Ok(self.event(event))
    }

    /// Has a whole buffer copied into another one, from this byte on.
    pub(crate) fn copy(&self, from: &Buffer, to: &Buffer, offset: usize) -> Result<(), Error> {
        if from.bytes > to.bytes.saturating_sub(offset) {
            return Err(Error::Input);
        }
        let (queue, size, none) = (self.0.id, from.bytes, ptr::null());
        let (from, to, no_event) = (from.object.id, to.object.id, ptr::null_mut());
        let api = &self.0.api;
        // SAFETY: `size` bytes are there on both sides.
        unsafe { api.copy_buffer(queue, from, to, 0, offset, size, 0, none, no_event) }
    }

    /// Has a buffer overwritten with zeros; returns an event.
    pub(crate) fn wipe(&self, buffer: &Buffer) -> Result<Event, Error> {
        let (zero, mut event) = (0_u32, ptr::null_mut());
        let (queue, id, size) = (self.0.id, buffer.object.id, buffer.bytes);
        let (pattern, none) = ((&raw const zero).cast::<c_void>(), ptr::null());
        // SAFETY: four bytes are read at once; the buffer has a multiple of four; an event may be
        // written.
        unsafe {
            let event = &raw mut event;
            self.0
                .api
                .fill_buffer(queue, id, pattern, 4, 0, size, 0, none, event)
        }?;
        Ok(self.event(event))
    }

    /// Has a kernel run with this number of items; returns an event.
    pub(crate) fn run(&self, kernel: &Kernel, items: usize) -> Result<Event, Error> {
        let (queue, id, items) = (self.0.id, kernel.0.id, &raw const items);
        let (none, list, mut event) = (ptr::null(), ptr::null(), ptr::null_mut());
        // SAFETY: there is one dimension, of which the number of items is read; all arguments are
        // set, since OpenCL refuses the call otherwise; an event may be written.
        unsafe {
            let event = &raw mut event;
            self.0
                .api
                .run_kernel(queue, id, 1, none, items, none, 0, list, event)
        }?;
        Ok(self.event(event))
    }

    /// Takes an event that OpenCL made.
    fn event(&self, id: Id) -> Event {
        Event(Object::new(&self.0.api, id, Api::release_event))
    }

    /// Sends all commands to the device.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        // SAFETY: the handle is that of a queue, which is not released yet.
        unsafe { self.0.api.flush(self.0.id) }
    }
}

/// A buffer that outlives the piece of work that filled it. It is wiped when it is dropped.
pub(crate) struct Kept {
    buffer: Buffer,
    queue: Queue,
}

impl Kept {
    /// Takes a buffer, with the queue of the work that filled it.
    pub(crate) fn new(buffer: Buffer, queue: Queue) -> Kept {
        Kept { buffer, queue }
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // OpenCL keeps the buffer until it is wiped. A failure leaves it as it is.
        if self.queue.0.api.is_at_home() {
            let _ = self.queue.wipe(&self.buffer).and(self.queue.flush());
        }
    }
}

/// The end of a command.
pub(crate) struct Event(Object);

impl Event {
    /// Returns whether the command has ended.
    pub(crate) fn is_complete(&self) -> Result<bool, Error> {
        const STATUS: u32 = 0x11d3;
        let (mut status, api) = (1_i32, &self.0.api);
        // SAFETY: four bytes may be written.
        unsafe {
            let value = (&raw mut status).cast();
            api.event_info(self.0.id, STATUS, 4, value, ptr::null_mut())
        }?;
        match status {
            0 => Ok(true),
            1.. => Ok(false),
            code => Err(Error::Call {
                function: "clEnqueueNDRangeKernel",
                code,
            }),
        }
    }
}
