//! The executor runs a batch. The queue knows only the trait. The engine's executor is
//! [the CPU's lanes](on_lanes::OnLanes); tests of the queue have a simple one.

pub(crate) mod on_lanes;

use std::fmt::Debug;

use lockstep_ops::Failed;

use crate::declined::Declined;
use crate::policy::Sharing;

/// Runs batches of requests of one shape.
pub(crate) trait Executor: Send + Sync + Sized + 'static {
    /// The kind of a request. Requests of one shape may share a batch.
    type Shape: Copy + Debug + Send + Sync + 'static;
    /// A request, which owns its data.
    type Request: Send + 'static;
    /// The result of a request.
    type Response: Send + 'static;
    /// The working memory of a slot, made when the slot is first used.
    type Memory: Send + 'static;

    /// Every shape.
    const SHAPES: &'static [Self::Shape];

    /// Returns the place of `shape` in [`SHAPES`](Self::SHAPES).
    fn index(shape: Self::Shape) -> usize;

    /// Returns the number of requests that fill one pass of the lanes.
    fn pass(&self, shape: Self::Shape) -> usize;

    /// Returns the maximum number of requests in a batch.
    fn batch(&self, shape: Self::Shape) -> usize;

    /// Returns whether a request that is alone is declined.
    fn declines_lone(&self, shape: Self::Shape) -> bool;

    /// Returns when requests of this shape wait for others. Otherwise each is computed at once,
    /// alone.
    fn sharing(&self, shape: Self::Shape) -> Sharing;

    /// Returns whether workers help with requests that jobs have posted.
    fn wants_help(&self, shape: Self::Shape) -> bool;

    /// Makes the memory of a slot.
    fn memory(&self) -> Self::Memory;

    /// Answers every request of `jobs`. A request that is left without an answer counts as an
    /// internal error.
    ///
    /// Returns the number of operations that the lanes ran. If the lanes also made key pairs in
    /// advance, that is more than the number of requests.
    fn execute(
        &self,
        shape: Self::Shape,
        memory: &mut Self::Memory,
        jobs: &mut [Member<Self>],
    ) -> usize;
}

/// One request of a batch, and its answer.
pub(crate) struct Member<E: Executor> {
    /// The request.
    pub request: E::Request,
    /// The answer, once there is one.
    pub answer: Option<Result<E::Response, Failed>>,
}

impl<E: Executor> Member<E> {
    /// Takes the answer, which is an internal error if the executor has left none.
    pub(crate) fn take_answer(&mut self) -> Answer<E> {
        let answer = self.answer.take().unwrap_or(Err(Failed::Internal));
        answer.map_err(Declined::Failed)
    }
}

/// The answer to one request.
pub(crate) type Answer<E> = Result<<E as Executor>::Response, Declined>;
