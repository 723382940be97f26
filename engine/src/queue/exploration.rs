//! Models of concurrent threads, for loom.

use loom::model::Builder;
use loom::thread::{self, JoinHandle};

use super::Queue;
use super::simple::Simple;
use crate::sync::Arc;

/// Runs all interleavings with up to three preemptions, which are enough for every known bug of
/// such protocols.
pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Starts another thread that uses the queue.
pub(crate) fn beside(
    queue: &Arc<Queue<Simple>>,
    run: impl FnOnce(Arc<Queue<Simple>>) + 'static,
) -> JoinHandle<()> {
    let queue = queue.clone();
    thread::spawn(move || run(queue))
}
