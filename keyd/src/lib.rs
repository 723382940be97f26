//! The daemon that holds keys, so that the processes that use them do not.
//!
//! [`configuration`] reads which keys there are and who may use them, [`key`] reads the keys, and
//! [`mod@stand_in`] makes the files that servers have in their place. The
//! [`doorkeeper`] welcomes clients at a socket and gives each a ring in shared memory; the threads
//! of the [`service`] take requests from all rings and serve them in common batches. What a client
//! may do follows from its [`access`], checked for each request by the table of its connection
//! ([`clients`]), and never from what it writes.
#![forbid(unsafe_code)]

pub mod access;
mod clients;
pub mod configuration;
mod doorkeeper;
mod fault;
mod journal;
pub mod key;
mod padding;
mod privileges;
mod rate;
mod service;
mod signals;
pub mod stand_in;
mod systemd;
mod turns;

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use lockstep_engine::{Backend, BackendChoice, Config, Engine, Lone, ROOM_BYTES};

use access::{Access, Accounts};
use clients::Held;
use configuration::Configuration;
use doorkeeper::Doorkeeper;
use journal::log;
use key::Key;
use service::Service;

/// An engine as the daemon uses it: it has no OpenSSL to leave anything to.
pub fn engine(config: Config) -> Engine {
    let backend = match config.backend.resolve() {
        Some(backend) => backend,
        None => Backend::PORTABLE,
    };
    Engine::new(Config {
        backend: BackendChoice::Named(backend),
        lone: Lone::Lanes,
        key_pool: 0,
        ..config
    })
}

/// Reads the keys of a configuration; or says for each that cannot be used, why.
pub fn read_keys(
    configuration: &Configuration,
    engine: &Engine,
) -> Result<Vec<Loaded>, Vec<String>> {
    let accounts = Accounts::of_system();
    let mut wrong = Vec::new();
    let mut keys = Vec::new();
    for section in &configuration.keys {
        let name = &section.name;
        let key = Key::read(&section.file, engine)
            .map_err(|error| format!("key {name}: {}: {error}", section.file.display()));
        let access = Access::new(section, &accounts).map_err(|what| format!("key {name}: {what}"));
        match (key, access) {
            (Ok(key), Ok(_)) if section.uses.decrypt && !key.can_decrypt() => {
                wrong.push(format!(
                    "key {name}: {} is for signatures alone",
                    key.kind()
                ));
            }
            (Ok(key), Ok(access)) => keys.push(Loaded {
                name: name.clone(),
                key,
                access,
            }),
            (key, access) => wrong.extend([key.err(), access.err()].into_iter().flatten()),
        }
    }
    match wrong.is_empty() {
        true => Ok(keys),
        false => Err(wrong),
    }
}

/// Says what is wrong with the user whom the daemon would become, if this process were it.
pub fn check_user(configuration: &Configuration) -> io::Result<()> {
    privileges::user(&configuration.user, &Accounts::of_system()).map(drop)
}

/// A key of the configuration, ready to be served.
#[derive(Debug)]
pub struct Loaded {
    /// What references call it.
    pub name: String,
    /// The key.
    pub key: Key,
    /// Who may use it.
    pub access: Access,
}

/// Runs the daemon, until it is told to end by SIGTERM or SIGINT, or fails. It answers what its
/// clients have asked by then.
pub fn run(configuration: Configuration, engine_config: Config) -> io::Result<()> {
    // Keys are about to come into memory.
    privileges::hide_memory()?;
    let is_secret = lockstep_vault::use_secret_memory();
    let engine = engine(engine_config);
    let keys =
        read_keys(&configuration, &engine).map_err(|wrong| io::Error::other(wrong.join("\n")))?;
    service::wipe_stack::<ROOM_BYTES>();
    if keys.is_empty() {
        return Err(io::Error::other("the configuration names no key"));
    }
    for section in &configuration.keys {
        if let Some(mode) = key::readable_by_others(&section.file) {
            log(format_args!(
                "warning: {0}, which holds the key {1}, can be read by others than its owner (mode \
                 {mode:o}), and so perhaps by the servers that must not have it; if no other \
                 program needs that: chmod 600 {0}",
                section.file.display(),
                section.name
            ));
        }
    }
    let listeners = match systemd::sockets()? {
        sockets if sockets.is_empty() => vec![listen(&configuration.socket)?],
        sockets => sockets,
    };
    privileges::give_up(&configuration.user, &Accounts::of_system())?;
    let keys = keys.into_iter().map(|Loaded { name, key, access }| {
        log(format_args!("holds the key {name}, {}", key.kind()));
        Arc::new(Held { name, key, access })
    });
    let keys = keys.collect();
    if !is_secret {
        log(format_args!(
            "the kernel gives no memory of memfd_secret: keys are in memory that root can read"
        ));
    }
    let count = threads(&engine);
    let service = Arc::new(Service::new(engine, count));
    let threads = service.start(count)?;
    let end = signals::of_the_end()?;
    let doorkeeper = Doorkeeper::new(listeners, end, configuration, keys, Arc::clone(&service))?;
    systemd::ready();
    let outcome = doorkeeper.run();
    service.finish(threads);
    log(format_args!("has answered all requests, and ends"));
    outcome
}

/// How many threads serve: a quarter of the CPUs, since those of the clients do the rest of every
/// handshake. Without AVX-512 IFMA, RSA is the greater part of one, and takes all CPUs.
fn threads(engine: &Engine) -> usize {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let is_slow = |backend: Backend| backend.is_avx2() || backend == Backend::PORTABLE;
    match engine.backend().is_none_or(is_slow) {
        true => cpus,
        false => cpus.div_ceil(4),
    }
}

/// Listens at a path. Who may connect is decided by the client's user, so everybody may reach it.
///
/// The socket takes the place of another one in one step: clients find either the daemon before
/// this one, which keeps those that it has, or this one.
fn listen(path: &Path) -> io::Result<UnixListener> {
    // As long as any name of a socket may be, and not that of this one.
    let mut fresh = path.with_extension("new");
    if fresh == path {
        fresh.set_extension("old");
    }
    let listen = || {
        remove_socket(&fresh)?;
        let listener = UnixListener::bind(&fresh)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o666))?;
        match fs::symlink_metadata(path) {
            Ok(about) if !about.file_type().is_socket() => Err(ErrorKind::AlreadyExists.into()),
            _ => fs::rename(&fresh, path).map(|()| listener),
        }
    };
    listen().map_err(|error| {
        let _ = remove_socket(&fresh);
        io::Error::other(format!("cannot listen at {}: {error}", path.display()))
    })
}

/// Removes what is left of a socket, and nothing else.
fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}
