//! Ordinary RSA keys, which this process has and the key daemon may have, too. A signature may come
//! from the daemon.
//!
//! The process can compute each of them itself, so nothing here waits long or sets an error. A
//! request without an answer of the daemon is computed here, at once.

use std::path::Path;

use lockstep_engine::Keys;
use lockstep_remote::{DEFAULT_SOCKET, rsa_public};

use crate::daemon::connection::{Daemon, Tried};

/// A key that the daemon may have.
pub struct SharedKey {
    /// The public half, as a SubjectPublicKeyInfo.
    public: Vec<u8>,
    daemon: &'static Daemon,
}

impl SharedKey {
    /// Returns a key with this modulus and this public exponent, if the settings let the daemon
    /// compute with it.
    pub fn new((keys, socket): (Keys, Option<&Path>), n: &[u8], e: &[u8]) -> Option<SharedKey> {
        match keys {
            Keys::Process => None,
            Keys::Daemon => Some(SharedKey {
                public: rsa_public(n, e)?,
                daemon: Daemon::at(socket.unwrap_or(Path::new(DEFAULT_SOCKET))),
            }),
        }
    }

    /// Asks the daemon for input^d mod n; the input is as long as n.
    pub fn ask(&self, input: &[u8]) -> Tried {
        self.daemon.try_sign(&self.public, input)
    }

    /// Avoids the daemon, after a wrong result.
    pub fn distrust(&self) {
        self.daemon.distrust();
    }
}
