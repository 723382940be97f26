//! The caller of the engine, as a trait: whether it is an asynchronous job, how that job pauses,
//! and where kernels find room on the stack.

use std::any::Any;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::completion::Notify;
use crate::sync::thread;

pub use crate::thread_id::ThreadId;

/// A thread that asks for an operation.
pub trait Caller {
    /// The asynchronous jobs that may call.
    type Job: Job;

    /// Whether the calling thread has a lower priority than is usual in its process. Such a thread
    /// computes for itself only: others would wait until it gets a CPU.
    fn is_low(&self) -> bool;

    /// The calling thread.
    fn thread(&self) -> ThreadId;

    /// The asynchronous job that the calling code runs in, if it runs in one.
    fn job(&self) -> Option<Self::Job>;

    /// Calls `work`, which needs [`ROOM_BYTES`](crate::ROOM_BYTES) of the stack, on this thread.
    /// None, without a call, if there is no stack with so much room.
    fn with_room<R>(&self, work: impl FnOnce() -> R) -> Option<R>;
}

/// An asynchronous job: its thread can set it aside, and resumes it when it is woken.
///
/// A paused job may be lost, and then nothing on its stack is ever dropped. So a job keeps what it
/// waits for where it goes with the connection.
pub trait Job {
    /// The job's side of a waker.
    type Wake;

    /// Whether the job may be paused. It may not while another job is paused for the same
    /// connection.
    fn can_pause(&self) -> bool;

    /// Whether the application wants to be called when the job can go on. Otherwise it waits for a
    /// file descriptor.
    fn has_callback(&mut self) -> bool;

    /// The thread that runs the job.
    fn thread(&self) -> ThreadId;

    /// Pauses the job as one that can go on at once, so that its thread starts other jobs first.
    fn give_way(&self, pending: Pending) -> Paused;

    /// What wakes the job, for another thread, and the job's side of it. None if the system gives
    /// no file descriptor.
    fn waker(&self) -> Option<(Box<dyn Notify>, Self::Wake)>;

    /// Pauses the job until its waker was called.
    fn wait(&self, wake: Self::Wake, pending: Pending) -> Paused;
}

/// How a pause ended.
pub enum Paused {
    /// The job goes on, and gets back what it waited for.
    Resumed(Pending),
    /// The job did not pause, for nothing could wake it.
    Unwakeable(Pending),
    /// The job could not be paused, or it goes on in another process. The engine that it called may
    /// be the parent's then, so the caller counts this.
    Failed,
}

/// What a paused job waits for: the claim to the answer to one request, of the
/// [server](crate::Server) that has the request. Dropping it gives the request up.
pub type Pending = Box<dyn Any + Send>;

/// A thread that may block, and whose stack has room for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

/// The job of a thread that runs none.
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
