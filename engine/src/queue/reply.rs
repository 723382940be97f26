//! Answers that go where a [source](super::service::Source) has its requests from.

use lockstep_ops::Response;

use crate::declined::Declined;

/// Where the answer to a request goes that a source has brought.
pub trait Reply<T = Response>: Send {
    /// Whether nobody would see the answer. The request is then dropped, and costs nothing.
    fn is_gone(&self) -> bool;

    /// Whether the request may wait for others however seldom these come.
    fn can_wait(&self) -> bool;

    /// Whether the request is to be computed. It is asked when it is the request's turn, and the
    /// account is charged what that takes.
    fn is_fit(&mut self) -> bool;

    /// Answers a request that is not computed.
    fn refuse(self: Box<Self>);

    /// Answers the request.
    fn answer(self: Box<Self>, answer: Result<T, Declined>);
}
