//! A caller for tests: its fields determine its answers.

use crate::caller::{Caller, Job, Paused, Pending, ThreadId};
use crate::completion::Notify;
use crate::executor::on_lanes::OnLanes;
use crate::queue::simple::{Simple, WakeUps};
use crate::serve::Claim;

/// The end of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Resumed,
    #[cfg_attr(
        loom,
        expect(dead_code, reason = "it makes no interleaving of its own")
    )]
    Unwakeable,
    Failed,
}

/// A thread, with the job that it runs.
#[derive(Clone)]
pub(super) struct Fake {
    pub is_job: bool,
    pub is_low: bool,
    pub has_room: bool,
    pub can_pause: bool,
    pub has_callback: bool,
    /// Whether there is a waker for it.
    pub wakeable: bool,
    pub gives_way: End,
    pub waits: End,
    pub thread: u64,
    /// Called while the job has given way.
    pub meanwhile: fn(),
    /// Counts the wake-ups of the job. A wait ends after `awaited` of them.
    pub wake_ups: WakeUps,
    pub awaited: usize,
}

impl Fake {
    /// Returns a blocking thread.
    pub(super) fn thread() -> Fake {
        Fake {
            is_job: false,
            is_low: false,
            has_room: true,
            can_pause: true,
            has_callback: false,
            wakeable: true,
            gives_way: End::Resumed,
            waits: End::Resumed,
            thread: 1,
            meanwhile: || {},
            wake_ups: WakeUps::default(),
            awaited: 0,
        }
    }

    /// Returns a job.
    pub(super) fn job() -> Fake {
        Fake {
            is_job: true,
            ..Fake::thread()
        }
    }

    fn paused(end: End, pending: Pending) -> Paused {
        match end {
            End::Resumed => Paused::Resumed(pending),
            End::Unwakeable => Paused::Unwakeable(pending),
            End::Failed => Paused::Failed,
        }
    }
}

impl Caller for Fake {
    type Job = Fake;

    fn is_low(&self) -> bool {
        self.is_low
    }

    fn thread(&self) -> ThreadId {
        ThreadId(self.thread)
    }

    fn job(&self) -> Option<Fake> {
        self.is_job.then(|| self.clone())
    }

    fn with_room<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.has_room.then(work)
    }
}

impl Job for Fake {
    type Wake = ();

    fn can_pause(&self) -> bool {
        self.can_pause
    }

    fn has_callback(&mut self) -> bool {
        self.has_callback
    }

    fn thread(&self) -> ThreadId {
        ThreadId(self.thread)
    }

    fn give_way(&self, pending: Pending) -> Paused {
        assert!(is_posted(&pending), "its own thread serves it");
        (self.meanwhile)();
        Fake::paused(self.gives_way, pending)
    }

    fn waker(&self) -> Option<(Box<dyn Notify>, ())> {
        self.wakeable.then(|| (self.wake_ups.boxed(), ()))
    }

    fn wait(&self, (): (), pending: Pending) -> Paused {
        assert!(!is_posted(&pending), "another thread serves it");
        while self.wake_ups.count() < self.awaited {
            std::thread::yield_now();
        }
        Fake::paused(self.waits, pending)
    }
}

fn is_posted(pending: &Pending) -> bool {
    let simple = pending.downcast_ref::<Claim<Simple>>();
    let lanes = pending.downcast_ref::<Claim<OnLanes>>();
    let claim = simple.map(|claim| claim.is_posted);
    let claim = claim.or(lanes.map(|claim| claim.is_posted));
    claim.expect("a claim to an answer of the queue")
}
