//! The caller of the engine, as a trait: it may be an asynchronous job, which pauses, and it gives
//! kernels room on the stack.

use std::any::Any;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::completion::Notify;
use crate::sync::thread;

pub use crate::thread_id::ThreadId;

/// A thread that asks for an operation.
pub trait Caller {
    /// Type of the asynchronous jobs that may call.
    type Job: Job;

    /// Returns whether the calling thread has a lower priority than others of its process. The
    /// engine declines its requests: as a leader, it would make others wait until it gets a CPU.
    fn is_low(&self) -> bool;

    /// Returns the calling thread.
    fn thread(&self) -> ThreadId;

    /// Returns the asynchronous job in which the calling code runs, if there is one.
    fn job(&self) -> Option<Self::Job>;

    /// Calls `work`, which needs [`ROOM_BYTES`](crate::ROOM_BYTES) of the stack, on this thread.
    /// Returns `None`, without a call, if there is no stack with this room.
    fn with_room<R>(&self, work: impl FnOnce() -> R) -> Option<R>;
}

/// An asynchronous job: its thread can pause it, and resumes it when it is woken.
///
/// A paused job may be lost, and then no value on its stack is ever dropped. So the claim to the
/// answer lies with the connection, not on that stack.
pub trait Job {
    /// The end of a waker at which the job waits.
    type Wake;

    /// Returns whether the job may be paused. It may not while another job is paused for the same
    /// connection.
    fn can_pause(&self) -> bool;

    /// Returns whether the application has set a callback for the moment when the job can go on.
    /// Otherwise the application waits for a file descriptor.
    fn has_callback(&mut self) -> bool;

    /// Returns the thread that runs the job.
    fn thread(&self) -> ThreadId;

    /// Pauses the job as one that can go on at once, so that its thread starts other jobs first.
    fn give_way(&self, pending: Pending) -> Paused;

    /// Makes a waker of the job, for another thread, and the end at which the job waits. `None` if
    /// the system gives no file descriptor.
    fn waker(&self) -> Option<(Box<dyn Notify>, Self::Wake)>;

    /// Pauses the job until its waker was called.
    fn wait(&self, wake: Self::Wake, pending: Pending) -> Paused;
}

/// End of a pause.
pub enum Paused {
    /// The job goes on, and gets its claim back.
    Resumed(Pending),
    /// The job did not pause, as no thread could wake it.
    Unwakeable(Pending),
    /// The job could not be paused, or goes on in another process. In that process the engine of
    /// the call may be the parent's, so the [`Job`] has counted the failure.
    Failed,
}

/// The claim of a paused job to the answer to one request, made by the [server](crate::Server) that
/// has the request. Dropping it abandons the request.
pub type Pending = Box<dyn Any + Send>;

/// A thread that may block, and whose stack has room for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

/// Type of the jobs of [`Thread`], which runs none.
pub enum NoJob {}

impl Caller for Thread {
    type Job = NoJob;

    fn is_low(&self) -> bool {
        false
    }

    fn thread(&self) -> ThreadId {
        let mut hasher = DefaultHasher::new();
        thread::current().id().hash(&mut hasher);
        ThreadId(hasher.finish())
    }

    fn job(&self) -> Option<NoJob> {
        None
    }

    fn with_room<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        Some(work())
    }
}

impl Job for NoJob {
    type Wake = NoJob;

    fn can_pause(&self) -> bool {
        match *self {}
    }

    fn has_callback(&mut self) -> bool {
        match *self {}
    }

    fn thread(&self) -> ThreadId {
        match *self {}
    }

    fn give_way(&self, _: Pending) -> Paused {
        match *self {}
    }

    fn waker(&self) -> Option<(Box<dyn Notify>, NoJob)> {
        match *self {}
    }

    fn wait(&self, _: NoJob, _: Pending) -> Paused {
        match *self {}
    }
}
