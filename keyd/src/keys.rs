//! Keys: their files, their users, and their renewal.

pub mod access;
pub mod files;
pub mod key;
pub mod keyring;
pub mod offers;
pub mod pem;
pub mod public_blocks;
pub mod reader;
pub mod reference_dir;
pub mod reference_file;
pub mod renewals;
pub mod secrets;
pub mod workers;

use std::path::PathBuf;
use std::time::Instant;

use lockstep_engine::Engine;
use lockstep_remote::is_ml_dsa;
use lockstep_ring::Answers;

use crate::keyd_conf::Configuration;
use crate::system::accounts::Accounts;
use keyring::Keyring;
use keyring::report::{LeftOut, Loaded};

/// Reads the keys of a configuration. Keys that cannot be served and unknown accounts are left out.
/// Waits `workers::LONG` for the first file system that does not answer, and less for each further
/// one.
pub fn read_keys(configuration: &Configuration, engine: &Engine) -> Keys {
    let mut keyring = Keyring::new(configuration, &Accounts::of_system(), workers::LONG);
    let now = Instant::now();
    reader::look_once(keyring.wanted(), |message| {
        _ = keyring.take(message, engine, now)
    });
    let mut dirs = renewals::dirs(configuration);
    renewals::note(&mut dirs, &mut keyring, now);
    let (dirs, secrets) = (dirs.iter().flatten(), keyring.secrets());
    Keys {
        outdated: dirs.flat_map(|own| own.missing(&secrets)).collect(),
        ..Keys::of(&keyring)
    }
}

/// The keys of a configuration, and the problems with them.
#[derive(Debug, Default)]
pub struct Keys {
    /// The files with keys that can be served.
    pub loaded: Vec<Loaded>,
    /// Keys and files that cannot be served.
    pub left_out: Vec<LeftOut>,
    /// Unknown accounts in the sections of keys that are served, one line each.
    pub unknown: Vec<String>,
    /// Paths whose file systems do not answer.
    pub unanswered: Vec<PathBuf>,
    /// Files that are missing in the directories of references, or that differ from the daemon's
    /// text for them.
    pub outdated: Vec<PathBuf>,
}

impl Keys {
    /// Returns the keys of a keyring, without [`outdated`](Keys::outdated).
    pub fn of(keyring: &Keyring) -> Keys {
        Keys {
            loaded: keyring.loaded(),
            left_out: keyring.left_out(),
            unknown: keyring.unknown(),
            unanswered: keyring.unanswered(),
            outdated: Vec::new(),
        }
    }

    /// Returns the length of answers that these keys need in a client's ring.
    pub fn answers(&self) -> Answers {
        match self.loaded.iter().any(|own| is_ml_dsa(&own.public)) {
            true => Answers::Long,
            false => Answers::Short,
        }
    }

    /// Returns messages about keys and files left out and about unknown accounts, one line each.
    pub fn wrong(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(LeftOut::to_string);
        left_out.chain(self.unknown.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests;
