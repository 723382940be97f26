//! The daemon that holds keys for other processes.
//!
//! [`run`] is the daemon; `lockstep keyd` calls it. [`keyd_conf`] reads the configuration: the
//! keys, and the users of each. [`key`] reads the keys from files that are [`trusted`], and
//! [`reference_file`] makes the files that servers read in the place of a key's file. A thread
//! [accepts](clients::accept) clients at a socket and gives each client a ring in shared memory.
//! The threads of the [service](serve) take requests from all rings, and the engine's queue batches
//! them in turns. The rights of a client follow from the [`access`] of its user. The daemon checks
//! each request against the client's own table of keys ([`clients`]), and never trusts what the
//! client says about itself.
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

/// Returns the daemon's engine. Without lanes it computes by the portable backend, since the daemon
/// has no OpenSSL that could compute instead.
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

/// Returns the number of threads that serve: a quarter of the CPUs, since the clients need the
/// others for the rest of each handshake. Without AVX-512 IFMA, RSA takes most of the time of a
/// handshake, and the daemon uses all CPUs.
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
