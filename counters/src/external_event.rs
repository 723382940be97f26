//! Events outside of the engine, which counts them all the same.

use crate::fallback::Fallback;

/// Reason why a job blocks its thread instead of pausing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpaused {
    /// A bound of the engine is reached, or there are no workers.
    Bound,
    /// There is no file descriptor by which it could be woken.
    Descriptor,
}

/// An event outside of the engine, for [`Counters::count`](crate::Counters::count).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalEvent {
    /// OpenSSL served a request, or keeps a key, that was not offered to the engine: a key that no
    /// lane can serve, a job that could not pause. The engine itself counts the requests that it
    /// declines.
    Fallback(Fallback),
    /// The module computed a key derivation of TLS 1.3 itself.
    Derivation,
    /// A context of AES-GCM got its first key, with which the module works itself. Messages are not
    /// counted: a short one takes hardly longer than counting it.
    Cipher,
    /// A job pauses for a request that another process serves.
    Submitted,
    /// A job blocks its thread while another process serves its request.
    Unpaused(Unpaused),
    /// The connection of a paused job ended.
    LostJob,
    /// The process asked the key daemon for a signature with an ordinary key.
    Daemon {
        /// Whether the daemon's result was used.
        served: bool,
    },
    /// Number of keys of its configuration that the key daemon cannot serve.
    LeftOut(usize),
}

impl From<Fallback> for ExternalEvent {
    fn from(reason: Fallback) -> ExternalEvent {
        ExternalEvent::Fallback(reason)
    }
}
