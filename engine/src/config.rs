//! Settings: from the provider's section of `openssl.cnf`, and from the environment.

pub mod setting;

use std::ffi::OsStr;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use lockstep_counters::{StatsDir, Syslog};
use lockstep_ops::{Backend, Shape};

use crate::ia32cap::{self, Hidden};
use crate::mistakes::{ConfigError, Mistakes};
use crate::policy::{self, CHECK_EVERY, KEY_POOL, Lone, MAX_LOST};

/// The configuration of an engine. `Default` is right for almost all programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The lanes that compute.
    pub backend: BackendChoice,
    /// Maximum number of batches that run at a time. Default: 0, which stands for the number of
    /// CPUs that this process may use; [`with_cpus`](Self::with_cpus) counts them.
    pub slots: usize,
    /// Maximum number of asynchronous jobs that are paused at a time. Beyond it a job blocks its
    /// thread. Default: 1024.
    pub max_async: usize,
    /// Maximum number of asynchronous jobs that are lost. Beyond it no job is paused. Default:
    /// [`MAX_LOST`]; no setting changes it.
    pub max_lost: usize,
    /// Whether OpenSSL's own implementation serves requests that are alone. Default: where it was
    /// measured to be faster.
    pub lone: Lone,
    /// Number of key pairs of a kind that are made at a time: one for the caller, the others for
    /// later callers. With 0, no pair is made in advance. Default: [`KEY_POOL`]; no setting changes
    /// it.
    pub key_pool: usize,
    /// On average one in this number of passes of ECDSA or Ed25519 signatures, or of key
    /// encapsulation, is checked before it is returned. 1 checks all. Default: [`CHECK_EVERY`]; no
    /// setting changes it.
    pub check_every: u32,
    /// Whether the module encrypts with AES-GCM itself where that is faster. Default: yes.
    pub aes_gcm: bool,
    /// Place in which signatures with ordinary RSA keys are computed. Default: this process.
    pub keys: Keys,
    /// Whether a reference to a key of the key daemon can stand where a program reads a private
    /// key. Default: no.
    pub references: bool,
    /// Socket of the key daemon. Default: its usual path.
    pub keyd_socket: Option<PathBuf>,
    /// Place in which counters are published. Default: none. The module's configuration starts from
    /// [`StatsDir::Auto`].
    pub stats_dir: StatsDir,
    /// Whether the published counters stay when the engine is dropped. Default: no.
    pub stats_keep: bool,
    /// Destination of warnings. Default: none. The module's configuration starts from
    /// [`Syslog::On`].
    pub syslog: Syslog,
    /// Settings that could not be used and have no effect.
    pub mistakes: Mistakes,
    /// Whether `OPENSSL_ia32cap` takes the chosen lanes away.
    pub is_masked: bool,
}

/// The lanes that compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The best lanes for which this CPU has instructions. If there are none, all requests are
    /// declined but those of key encapsulation, which OpenSSL may lack.
    #[default]
    Auto,
    /// These lanes, which may be the slow portable ones.
    Named(Backend),
    /// None: all requests are declined but those of key encapsulation.
    None,
}

impl BackendChoice {
    /// Returns the backend that this choice means on this CPU.
    pub fn resolve(self) -> Option<Backend> {
        match self {
            BackendChoice::Auto => Backend::best_hardware(),
            BackendChoice::Named(backend) => Some(backend),
            BackendChoice::None => None,
        }
    }
}

/// Place in which signatures are computed with ordinary RSA keys, whose private parts this process
/// has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// In this process.
    #[default]
    Process,
    /// In the key daemon, if the daemon has the key.
    Daemon,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: BackendChoice::Auto,
            slots: 0,
            max_async: 1024,
            max_lost: MAX_LOST,
            lone: Lone::Auto,
            key_pool: KEY_POOL,
            check_every: CHECK_EVERY,
            aes_gcm: true,
            keys: Keys::Process,
            references: false,
            keyd_socket: None,
            stats_dir: StatsDir::Off,
            stats_keep: false,
            syslog: Syslog::Off,
            mistakes: Mistakes::default(),
            is_masked: false,
        }
    }
}

impl Config {
    /// Returns the number of requests of this shape that OpenSSL's own implementation serves in a
    /// process before the lanes are prepared. If it is not zero, OpenSSL serves the first request
    /// with each RSA key, too.
    pub fn leaves_first(&self, shape: Shape) -> u32 {
        let is_usual = match self.backend {
            BackendChoice::Auto => true,
            BackendChoice::Named(backend) => {
                backend != Backend::PORTABLE && !policy::lanes_bring_nothing(backend, shape)
            }
            BackendChoice::None => false,
        };
        // Another value of `lone` decides for the first requests, too. With `Keys::Daemon`, the key
        // daemon may serve the first requests.
        let is_daemons = shape.is_rsa() && self.keys != Keys::Process;
        match is_usual && self.lone == Lone::Auto && !is_daemons {
            true => policy::left_first(shape),
            false => 0,
        }
    }

    /// Sets the number of slots to the number of CPUs that this process may use, if no number is
    /// set. This takes about twenty system calls, so the module calls it when it is loaded.
    pub fn with_cpus(mut self) -> Config {
        if self.slots == 0 {
            self.slots = thread::available_parallelism().map_or(1, NonZero::get);
        }
        self
    }

    /// Returns the configuration of a program that loads the module: the default, with published
    /// counters and with warnings in the system's log, changed by settings as text. A setting that
    /// cannot be used has no effect, and is among the [`mistakes`](Self::mistakes).
    pub fn from_pairs<V: AsRef<OsStr>>(pairs: impl IntoIterator<Item = (String, V)>) -> Config {
        let mut config = Config {
            stats_dir: StatsDir::Auto,
            syslog: Syslog::On,
            ..Config::default()
        };
        for (key, value) in pairs {
            if let Err(mistake) = config.set(&key, value.as_ref()) {
                config.mistakes.add(mistake);
            }
        }
        config
    }

    /// Returns this configuration, [`masked`](Self::masked) by the environment's `OPENSSL_ia32cap`.
    /// Unlike the other variables it also has an effect in programs with raised privileges, as it
    /// has in OpenSSL's own code: it only takes instructions away.
    pub fn masked_by_env(self) -> Config {
        match std::env::var_os(ia32cap::VARIABLE) {
            Some(value) => self.masked(&value.to_string_lossy()),
            None => self,
        }
    }

    /// Returns this configuration without the instructions that this value of `OPENSSL_ia32cap`
    /// hides from OpenSSL. If the chosen lanes need one of these, the best other lanes compute, but
    /// not the portable ones; if there are no others, none compute.
    pub fn masked(mut self, value: &str) -> Config {
        let hidden = Hidden::by(value);
        self.aes_gcm &= hidden.leaves_aes_gcm();
        let chosen = self.backend.resolve();
        if chosen.is_some_and(|backend| !hidden.leaves(backend)) {
            let mut others = Backend::available().into_iter();
            let best = others.find(|&other| other != Backend::PORTABLE && hidden.leaves(other));
            self.backend = best.map_or(BackendChoice::None, BackendChoice::Named);
            self.is_masked = true;
        }
        self
    }

    /// Returns this configuration, or its first mistake: for programs that can still refuse it.
    pub fn strict(self) -> Result<Config, ConfigError> {
        match self.mistakes.first() {
            None => Ok(self),
            Some(mistake) => Err(mistake.clone()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
