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
    /// The jobs, with the time at which each is to be woken. The reference is a weak one, which
    /// shows when a job has gone.
    pub(super) jobs: Vec<(Instant, Weak<Completion<Answer<E>>>)>,
    /// Whether an idle worker looks at them.
    pub(super) is_looked_at: bool,
    /// Time at which a worker that is not idle looks.
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
