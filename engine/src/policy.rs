//! When a batch starts, how large it grows, and who runs it. Pure functions; the reasons and the
//! figures are in `docs/decisions/0002-gathering.md`.

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::Size;

use crate::request::Shape;

/// What a decision about one shape looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Requests in the queue.
    pub waiting: usize,
    /// Those of them whose thread is blocked, and so can lead.
    pub threads: usize,
    /// Leaders that have a slot and have not yet taken their batch.
    pub leaders: usize,
    /// Requests that such leaders brought along.
    pub in_hand: usize,
    /// Batches that run.
    pub running: usize,
    /// Requests in them.
    pub in_batches: usize,
    /// Requests in the batch that was taken last.
    pub last: usize,
    /// Threads that compute with stock OpenSSL outside of the slots.
    pub elsewhere: usize,
    /// Requests that fill a pass of the lanes.
    pub pass: usize,
    /// Requests that a batch may have.
    pub batch: usize,
}

impl View {
    /// Requests that no batch has taken yet.
    fn gathered(&self) -> usize {
        self.waiting + self.in_hand
    }
}

/// The rules, with the numbers that they depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Batches that may run at a time: the CPUs of this process.
    pub slots: usize,
    /// How often a leader may yield its CPU while requests gather.
    pub yields: u32,
    #[doc(hidden)]
    pub blocking_rule: u32,
    #[doc(hidden)]
    pub worker_rule: u32,
    #[doc(hidden)]
    pub patience: u32,
    #[doc(hidden)]
    pub trim: bool,
}

impl Policy {
    /// How many requests the next batch takes at most.
    ///
    /// All that are in the engine, divided among the slots, in full passes: eight requests on two
    /// idle CPUs are better served as twice four at the same time than as eight on one of them.
    pub fn share(&self, view: &View) -> usize {
        let each = (view.gathered() + view.in_batches).div_ceil(self.slots);
        let most = (each.next_multiple_of(view.pass)).clamp(view.pass, view.batch);
        if self.trim && view.gathered() > view.pass && view.gathered() < most {
            return view.gathered() / view.pass * view.pass;
        }
        most
    }

    /// Whether one of the waiting requests gets a free slot now.
    pub fn starts(&self, view: &View) -> bool {
        // What a leader on its way will take needs no other leader.
        if view.waiting == 0 || view.gathered() <= view.leaders * self.share(view) {
            return false;
        }
        let alone = view.running + view.leaders == 0;
        if view.threads > 0 {
            match self.blocking_rule {
                0 => true,
                1 => {
                    alone
                        || view.waiting >= view.pass
                        || view.gathered() + view.in_batches + view.elsewhere <= self.slots
                }
                _ => {
                    alone
                        || view.waiting >= self.share(view)
                        || view.gathered() + view.in_batches + view.elsewhere <= self.slots
                }
            }
        } else {
            let full = if self.worker_rule == 0 {
                view.pass
            } else {
                self.share(view)
            };
            alone || view.waiting >= full
        }
    }

    /// Whether a leader has reason to expect more requests than it sees, and so yields its CPU to
    /// the threads that would bring them.
    pub fn expects_company(&self, view: &View) -> bool {
        let busy = view.running + view.leaders + view.elsewhere;
        (view.last > 1 || view.waiting > 0 || busy > self.slots)
            && view.gathered() < view.leaders * self.share(view)
    }
}

/// Whether lone requests go to stock OpenSSL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lone {
    /// Where stock OpenSSL was measured to be faster.
    #[default]
    Auto,
    /// Never.
    Lanes,
    /// Always.
    Stock,
}

/// Whether stock OpenSSL 3.0 serves one request alone faster than `backend` does. Measured, see
/// `docs/decisions/0002-gathering.md`.
pub(crate) fn lone_is_slower(backend: Backend, shape: Shape) -> bool {
    let Shape::Rsa { size, .. } = shape;
    match size {
        Size::Rsa1024 | Size::Rsa2048 => backend != Backend::PORTABLE,
        Size::Rsa3072 | Size::Rsa4096 => false,
    }
}
