//! The jobs that are watched.

#[cfg(not(loom))]
use std::sync::Weak;
#[cfg(not(loom))]
use std::time::Instant;

#[cfg(not(loom))]
use crate::completion::Completion;
use crate::executor::{Answer, Executor};

/// The jobs that are watched.
#[cfg(not(loom))]
pub(super) struct Watched<E: Executor> {
    /// When each is to be woken. The reference does not count as one of the engine's, so a job that
    /// is gone is known by it.
    pub(super) jobs: Vec<(Instant, Weak<Completion<Answer<E>>>)>,
    /// Whether an idle worker looks.
    pub(super) is_looked_at: bool,
    /// When a worker that is not idle looks.
    pub(super) next_look: Option<Instant>,
}

/// Models have no clock: they wake jobs themselves.
#[cfg(loom)]
pub(super) struct Watched<E: Executor>(std::marker::PhantomData<fn() -> E>);

impl<E: Executor> Watched<E> {
    pub(super) fn new() -> Watched<E> {
        #[cfg(loom)]
        return Watched(std::marker::PhantomData);
        #[cfg(not(loom))]
        Watched {
            jobs: Vec::new(),
            is_looked_at: false,
            next_look: None,
        }
    }
}
