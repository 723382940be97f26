//! The executor runs a batch. The queue knows only the trait. The engine's executor is
//! [the CPU's lanes](on_lanes::OnLanes); tests of the queue have a simple one.

pub(crate) mod on_lanes;

use std::fmt::Debug;

use lockstep_ops::Failed;

use crate::declined::Declined;

/// Runs batches of requests of one shape.
pub(crate) trait Executor: Send + Sync + Sized + 'static {
    /// What requests must have in common to share a batch.
    type Shape: Copy + Debug + Send + Sync + 'static;
    /// A request, owning its data.
    type Request: Send + 'static;
    /// Its result.
    type Response: Send + 'static;
    /// The working memory of one slot, made when the slot is first used.
    type Memory: Send + 'static;

    /// Every shape.
    const SHAPES: &'static [Self::Shape];

    /// The place of `shape` in [`SHAPES`](Self::SHAPES).
    fn index(shape: Self::Shape) -> usize;

    /// How many requests fill one pass of the lanes.
    fn pass(&self, shape: Self::Shape) -> usize;

    /// How many requests one batch takes at most.
    fn batch(&self, shape: Self::Shape) -> usize;

    /// Whether a request that is alone is better served elsewhere.
    fn declines_lone(&self, shape: Self::Shape) -> bool;

    /// Whether requests of this shape wait for company. Otherwise each is computed at once, alone.
    fn shares_batches(&self, shape: Self::Shape) -> bool;

    /// Whether workers help with what jobs have posted.
    fn wants_help(&self, shape: Self::Shape) -> bool;

    /// The memory of a new slot.
    fn memory(&self) -> Self::Memory;

    /// Answers every job, each with the response to its own request; returns how many operations
    /// the lanes ran, which is more than there are jobs where some are made in advance. A job left
    /// without an answer is declined as an internal error.
    fn execute(
        &self,
        shape: Self::Shape,
        memory: &mut Self::Memory,
        jobs: &mut [Member<Self>],
    ) -> usize;
}

/// One request of a batch, and its answer.
pub(crate) struct Member<E: Executor> {
    /// What is asked.
    pub request: E::Request,
    /// The answer, once there is one.
    pub answer: Option<Result<E::Response, Failed>>,
}

impl<E: Executor> Member<E> {
    /// Takes the answer: an internal error if the executor has left none.
    pub(crate) fn take_answer(&mut self) -> Answer<E> {
        let answer = self.answer.take().unwrap_or(Err(Failed::Internal));
        answer.map_err(Declined::Failed)
    }
}

/// The answer to one request.
pub(crate) type Answer<E> = Result<<E as Executor>::Response, Declined>;
