//! Answers to the requests of a [source](super::service::Source).

use lockstep_ops::Response;

use crate::declined::Declined;

/// The receiver of the answer to a request that a source has brought.
pub trait Reply<T = Response>: Send {
    /// Returns whether the answer would not be seen. Then the request is dropped, and costs
    /// nothing.
    fn is_gone(&self) -> bool;

    /// Returns whether the request may wait for others however seldom these come.
    fn can_wait(&self) -> bool;

    /// Returns whether the request is to be computed. It is called when the request's turn has
    /// come, and the account is charged the time that it takes.
    fn is_fit(&mut self) -> bool;

    /// Answers a request that is not computed.
    fn refuse(self: Box<Self>);

    /// Answers the request.
    fn answer(self: Box<Self>, answer: Result<T, Declined>);
}
