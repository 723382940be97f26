//! How one thread sleeps on the boards of many rings.

use std::io;
use std::time::Duration;

use crate::board::{ASLEEP, Bell};
use crate::server::Server;
use crate::sleep::{Patience, WakeUp};
use crate::sync::{self, Deadline};

/// A thread that sleeps until any of several rings has requests. It needs `futex_waitv`
/// (Linux 5.16); where that is missing, a daemon has one thread per ring, in [`Server::sleep`].
///
/// A client that rings again and again without a request would keep the thread awake. The thread no
/// longer listens to its bell then, and looks at the ring now and then, until there is a request.
#[derive(Debug)]
pub struct Sleeper {
    bell: Bell,
    wake_up: WakeUp,
}

impl Sleeper {
    /// The most rings that one thread can wait for.
    pub const MOST_RINGS: usize = 127;
    /// A ring is listened to until its client has rung so often without a request.
    const MOST_IDLE_RINGS: u32 = 64;
    /// How often the thread looks at rings that it does not listen to.
    const LOOK_EVERY: Duration = Duration::from_millis(5);

    /// A sleeper for one thread.
    #[expect(clippy::new_without_default, reason = "it is made once, by name")]
    pub fn new() -> Sleeper {
        Sleeper {
            bell: Bell::new(),
            wake_up: WakeUp::new(),
        }
    }

    /// Ends the sleep of the thread, or its next one. Any thread may call it.
    pub fn wake(&self) {
        self.wake_up.make(&self.bell);
    }

    /// Sleeps until one of `rings` has requests, somebody calls [`Sleeper::wake`], or the time is
    /// over; may return early. One thread at a time may sleep on a ring.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] where the kernel has no `futex_waitv`, and with
    /// [`io::ErrorKind::InvalidInput`] for more than [`Sleeper::MOST_RINGS`] rings.
    pub fn sleep(&self, rings: &[Server], patience: Patience) -> io::Result<()> {
        if rings.len() > Self::MOST_RINGS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let deadline = Deadline::after(patience.timeout);
        let done = || self.wake_up.seems_made() || rings.iter().any(Server::has_requests);
        if sync::spin(patience.spin, done) {
            self.wake_up.take();
            return Ok(());
        }
        let is_heard = |ring: &&Server| ring.idle_rings() < Self::MOST_IDLE_RINGS;
        let heard: Vec<&Server> = rings.iter().filter(is_heard).collect();
        self.bell.announce();
        heard.iter().for_each(|ring| ring.bell().announce());
        let mut woken_by = Ok(None);
        if !self.wake_up.take()
            && rings.iter().all(Server::is_idle)
            && let Some(left) = deadline.left()
        {
            let all_heard = heard.len() == rings.len();
            let time = if all_heard {
                left
            } else {
                left.min(Self::LOOK_EVERY)
            };
            woken_by = self.wait(&heard, time);
        }
        self.bell.settle();
        for (index, ring) in heard.iter().enumerate() {
            if ring.bell().settle() || matches!(woken_by, Ok(Some(woken)) if woken == index + 1) {
                ring.count_idle_ring();
            }
        }
        woken_by.map(drop)
    }

    /// Returns which bell woke the thread, if one did: its own is the first.
    fn wait(&self, rings: &[&Server], time: Duration) -> io::Result<Option<usize>> {
        if rings.is_empty() {
            sync::wait(self.bell.word(), ASLEEP, time);
            return Ok(None);
        }
        let bells = rings.iter().map(|ring| ring.bell().word());
        let words: Vec<_> = [self.bell.word()].into_iter().chain(bells).collect();
        sync::wait_any(&words, ASLEEP, time)
    }
}
