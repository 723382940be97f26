//! What a process does without asking the engine.

use crate::fallback::Fallback;

/// Why a job blocks its thread instead of pausing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpaused {
    /// A bound of the engine is reached, or there are no workers.
    Bound,
    /// There is no file descriptor to wake it by.
    Descriptor,
}

/// What a process did without asking the engine, for [`Counters::count`](crate::Counters::count).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// OpenSSL served a request or has a key that was not offered to the engine: a key that no lane
    /// can serve, a job that could not pause. What the engine declines, it counts itself.
    Fallback(Fallback),
    /// A key derivation of TLS 1.3, which the caller did itself.
    Derivation,
    /// A context of AES-GCM that has its first key, with which the caller works itself. Messages
    /// are not counted: a short one takes hardly longer than counting it.
    Cipher,
    /// A request of a job that another process serves, and for which the job pauses.
    Submitted,
    /// A job that blocks its thread while another process serves its request.
    Unpaused(Unpaused),
    /// A job whose connection ended while it was paused.
    LostJob,
    /// A signature with an ordinary key for which the caller asked the key daemon.
    Daemon {
        /// Whether the daemon's result was taken.
        served: bool,
    },
    /// So many keys of its configuration that the caller, which is the key daemon, cannot serve.
    LeftOut(usize),
}

impl From<Fallback> for Elsewhere {
    fn from(reason: Fallback) -> Elsewhere {
        Elsewhere::Fallback(reason)
    }
}
