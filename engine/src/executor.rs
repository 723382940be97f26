//! The executor runs a batch. The CPU's lanes are one; the queue knows only the trait, and an
//! engine can be [made](crate::Engine::with_executor) with another one.
//!
//! A result of RSA that was computed elsewhere passes a check first:
//! [`RsaKey::verified`](crate::RsaKey::verified).

pub(crate) mod on_lanes;

use std::fmt::Debug;

use lockstep_ops::{Failed, LanesRequest, Response, Shape};

use crate::declined::Declined;

/// Runs batches of requests of one shape.
pub trait Executor: Send + Sync + Sized + 'static {
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

    /// Why requests of this shape are declined whatever else there is to do, if they are.
    fn declines_all(&self, _: Self::Shape) -> Option<Declined> {
        None
    }

    /// A response of this shape that was made in advance. To take it computes nothing, so that may
    /// happen on any stack.
    fn in_advance(&self, _: Self::Shape) -> Option<Self::Response> {
        None
    }

    /// Whether this is a forked child's copy of the executor of its parent: the child leaves its
    /// engine as it is.
    fn is_left(&self) -> bool;

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
pub struct Member<E: Executor> {
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
pub type Answer<E> = Result<<E as Executor>::Response, Declined>;

/// Runs the operations of [`Engine`](crate::Engine).
pub trait Operates: Executor<Shape = Shape, Request = LanesRequest, Response = Response> {}

impl<E: Executor<Shape = Shape, Request = LanesRequest, Response = Response>> Operates for E {}
