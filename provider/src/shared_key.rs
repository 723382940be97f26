//! Ordinary RSA keys, which this process has and the key daemon may have, too: whether a signature
//! comes from there.
//!
//! The process can compute each of them itself, so nothing here waits long or sets an error. What
//! the daemon does not answer is computed here, at once.

use std::path::Path;

use lockstep_engine::{Keys, Size};
use lockstep_remote::{DEFAULT_SOCKET, rsa_public};

use crate::clock;
use crate::daemon::{Daemon, Tried};
use crate::placement::{Place, Placement};

/// Where operations of each size are computed, in the order of [`Size::ALL`].
static PLACEMENTS: [Placement; Size::ALL.len()] = [const { Placement::new() }; _];

/// A key that the daemon may have.
pub struct SharedKey {
    /// The public half, as a SubjectPublicKeyInfo.
    public: Vec<u8>,
    daemon: &'static Daemon,
    /// None if the daemon is always asked.
    placement: Option<&'static Placement>,
}

impl SharedKey {
    /// A key with this modulus and this public exponent, if the settings let the daemon compute
    /// with it.
    pub fn new(
        (keys, socket): (Keys, Option<&Path>),
        size: Size,
        n: &[u8],
        e: &[u8],
    ) -> Option<SharedKey> {
        let placement = match keys {
            Keys::Process => return None,
            Keys::DaemonIfFaster => Some(&PLACEMENTS[size as usize]),
            Keys::Daemon => None,
        };
        Some(SharedKey {
            public: rsa_public(n, e)?,
            daemon: Daemon::at(socket.unwrap_or(Path::new(DEFAULT_SOCKET))),
            placement,
        })
    }

    /// Where the next signature is computed.
    pub fn turn(&self) -> Turn<'_> {
        let (place, is_measured) = match self.placement {
            Some(placement) => {
                let turn = placement.turn(clock::system());
                (turn.place, turn.is_measured)
            }
            None => (Place::Daemon, false),
        };
        Turn {
            key: self,
            place,
            start: is_measured.then(clock::thread),
            elsewhere: 0,
        }
    }

    /// A result of the daemon was wrong.
    pub fn distrust(&self) {
        self.daemon.distrust();
    }
}

/// One signature.
pub struct Turn<'a> {
    key: &'a SharedKey,
    place: Place,
    /// The CPU time of this thread at the beginning, if it is measured.
    start: Option<u64>,
    /// What the daemon says that it took of its own.
    elsewhere: u64,
}

impl Turn<'_> {
    /// Whether the daemon is to be asked.
    pub fn is_for_daemon(&self) -> bool {
        self.place == Place::Daemon
    }

    /// Asks the daemon for input^d mod n; the input is as long as n.
    pub fn ask(&mut self, input: &[u8]) -> Tried {
        let tried = self.key.daemon.try_sign(&self.key.public, input);
        if let Tried::Done(done) = &tried {
            self.elsewhere = u64::try_from(done.cost.as_nanos()).unwrap_or(u64::MAX);
        }
        tried
    }

    /// The signature is there, from the place that it was for.
    pub fn end(self) {
        if let (Some(start), Some(placement)) = (self.start, self.key.placement) {
            let own = clock::thread().saturating_sub(start);
            placement.note(self.place, own.saturating_add(self.elsewhere));
        }
    }
}

/// In a forked child: what the parent has measured is not the child's.
pub fn after_fork() {
    PLACEMENTS.iter().for_each(Placement::reset);
}
