//! Permits: values that are counted for as long as they live.

use std::sync::Arc;

/// Counts the living [`Permit`]s, which may outlive it.
#[derive(Debug, Default)]
pub(crate) struct Permits(Arc<()>);

/// A permit, which counts as long as it lives: it is a reference to its `Permits`.
#[derive(Debug)]
pub struct Permit {
    _counted: Arc<()>,
}

impl Permits {
    /// Returns the number of living permits.
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Takes a permit.
    pub(crate) fn take(&self) -> Permit {
        Permit {
            _counted: self.0.clone(),
        }
    }

    /// Takes a permit unless there are `most` already. Threads that race for the last permit may
    /// all be refused.
    pub(crate) fn take_of(&self, most: usize) -> Option<Permit> {
        let permit = self.take();
        (self.count() <= most).then_some(permit)
    }
}
