//! Answers to the requests of a [source](super::service::Source).

use lockstep_ops::Response;

use crate::declined::Declined;

/// The receiver of the answer to a request that a source has brought.
pub trait Reply<T = Response>: Send {
    /// Returns whether nobody would read the answer. Then the request is dropped, and costs
    /// nothing.
    fn is_gone(&self) -> bool;

    /// Returns whether the request may wait for others, even if they come seldom.
    fn can_wait(&self) -> bool;

    /// Returns whether the request is to be computed. The queue calls this method when the
    /// request's turn has come, and charges the account the time of the call.
    fn is_fit(&mut self) -> bool;

    /// Answers a request that is not computed.
    fn refuse(self: Box<Self>);

    /// Answers the request.
    fn answer(self: Box<Self>, answer: Result<T, Declined>);
}
