//! Permits: values that are counted for as long as they live.

use std::sync::Arc;

/// Counts what holds a [`Permit`]. Permits may outlive it.
#[derive(Debug, Default)]
pub(crate) struct Permits(Arc<()>);

/// Counts something for as long as it lives: as one of the references to its `Permits`.
#[derive(Debug)]
pub struct Permit {
    _counted: Arc<()>,
}

impl Permits {
    /// How many permits are out.
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Takes a permit.
    pub(crate) fn take(&self) -> Permit {
        Permit {
            _counted: self.0.clone(),
        }
    }

    /// Takes a permit unless `most` are already out. Threads that race for the last permit may all
    /// be refused.
    pub(crate) fn take_of(&self, most: usize) -> Option<Permit> {
        let permit = self.take();
        (self.count() <= most).then_some(permit)
    }
}
