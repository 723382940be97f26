//! Stands in for `watch` in models, which have no clock.

use super::state::{Guard, Queue};
use crate::completion::{Completion, Ticket};
use crate::executor::{Answer, Executor};
use crate::sync::{Arc, wait};

impl<E: Executor> Queue<E> {
    pub(crate) fn watch(_: &Arc<Self>, _: E::Shape, _: &Ticket<Answer<E>>) {}

    pub(super) fn note_watched(
        &self,
        _: &mut Guard<'_, E>,
        _: E::Shape,
        _: &Arc<Completion<Answer<E>>>,
    ) {
    }

    pub(super) fn look_if_due(&self) {}

    pub(super) fn look_between<'a>(&'a self, state: Guard<'a, E>) -> Guard<'a, E> {
        state
    }

    pub(super) fn rest<'a>(&'a self, state: Guard<'a, E>) -> Guard<'a, E> {
        wait(&self.assignment, state)
    }
}
