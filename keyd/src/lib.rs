//! The daemon that holds keys, so that the processes that use them do not.
//!
//! [`run`] is the daemon; `lockstep keyd` calls it. [`keyd_conf`] reads the list of keys and
//! the users who may use each, [`key`] reads the keys, from files that are [`trusted`], and
//! [`reference_file`] makes the files that servers have in their place. The [accept] welcomes
//! clients at a socket and gives each a ring in shared memory; the threads of the [service](serve) take
//! requests from all rings, which the engine's queue batches in turns. The rights of a client
//! follow from its [`access`], checked for each request by the table of its connection
//! ([`clients`]), and never from its own words.
//!
//! The daemon has no OpenSSL and no `unsafe` code.
#![forbid(unsafe_code)]

mod clients;
mod fault;
pub mod keyd_conf;
mod keys;
mod serve;
mod start;
mod system;

use std::num::NonZero;
use std::thread;

use lockstep_engine::{Backend, BackendChoice, Config, Engine};

pub use keys::keyring::{LeftOut, Loaded};
pub use keys::reference_dir::is_kept;
pub use keys::{
    Keys, access, key, public_blocks, read_keys, reader, reference_file, secrets, trusted,
};
pub use start::{check_user, run};
pub use system::{accounts, memory};

/// An engine as the daemon uses it: it has no OpenSSL to leave anything to.
pub fn engine(config: Config) -> Engine {
    let backend = match config.backend.resolve() {
        Some(backend) => backend,
        None => Backend::PORTABLE,
    };
    Engine::for_service(Config {
        backend: BackendChoice::Named(backend),
        slots: threads(backend),
        ..config
    })
}

/// How many threads serve: a quarter of the CPUs, since those of the clients do the rest of every
/// handshake. Without AVX-512 IFMA, RSA is the greater part of one, and takes all CPUs.
fn threads(backend: Backend) -> usize {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    match backend.is_avx2() || backend == Backend::PORTABLE {
        true => cpus,
        false => cpus.div_ceil(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_lanes_the_daemon_computes_all_the_same_and_on_all_cpus() {
        let engine = engine(Config {
            backend: BackendChoice::None,
            ..Config::default()
        });
        assert_eq!(engine.backend(), Some(Backend::PORTABLE));
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        assert_eq!(engine.slots(), cpus);
        let best = super::engine(Config::default());
        let expected = match best
            .backend()
            .is_some_and(|own| own.name().contains("ifma"))
        {
            true => cpus.div_ceil(4),
            false => cpus,
        };
        assert_eq!(best.slots(), expected);
    }
}
