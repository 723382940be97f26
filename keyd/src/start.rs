//! The start of the daemon: its rights, its keys, its threads.

mod signals;
mod socket;

use std::io;
use std::num::NonZero;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_engine::{Backend, BackendChoice, Config, Engine, ExternalEvent, ROOM_BYTES};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::clients::accept::{self, Acceptor};
use crate::clients::early_clients::{EarlyClient, EarlyClients};
use crate::keyd_conf::Configuration;
use crate::keys::keyring::Keyring;
use crate::keys::offers::Offers;
use crate::keys::renewals::{Reader, Renewals};
use crate::keys::{Keys, reference_dir, workers};
use crate::memory::{self, Watch};
use crate::serve::Service;
use crate::system::accounts::Accounts;
use crate::system::log::{log, log_all, warn_of_all};
use crate::system::stack::wipe_stack;
use crate::system::{privileges, systemd};

/// Number of descriptors that each possible client needs: its socket, and four connections that may
/// be [pending](crate::clients::accept).
const DESCRIPTORS_FOR_EACH: u64 = 5;
/// Number of descriptors for everything else, such as the files of keys.
const MORE_DESCRIPTORS: u64 = 64;

/// Time for which a daemon that cannot start rejects clients. Then it ends, and systemd starts it
/// anew. Services with `After=lockstep-keyd.service` start only after this time.
const REJECTS_FOR: Duration = Duration::from_secs(3);

/// Checks that this process, if it is root's, could become the user of a configuration.
pub fn check_user(configuration: &Configuration) -> io::Result<()> {
    privileges::user(&configuration.user, &Accounts::of_system()).map(drop)
}

/// Runs the daemon with the configuration in a file, until SIGTERM or SIGINT ends it or it fails.
/// Before it returns, it answers the requests that its clients have posted.
///
/// A daemon that cannot start rejects all clients at systemd's sockets for `REJECTS_FOR`. Otherwise
/// these clients would wait for it.
pub fn run(path: &Path, engine_config: Config) -> io::Result<()> {
    // The daemon will read keys.
    privileges::hide_memory()?;
    let mut sockets = systemd::sockets()?;
    let outcome = serve(path, engine_config, &mut sockets);
    if let Err(error) = &outcome
        && !sockets.is_empty()
    {
        log(format_args!("cannot start: {error}"));
        let line = error.to_string().replace('\n', " ");
        systemd::notify(&format!("STATUS=cannot start: {line}"));
        accept::reject_all(&sockets, REJECTS_FOR);
    }
    outcome
}

fn serve(path: &Path, engine_config: Config, sockets: &mut Vec<UnixListener>) -> io::Result<()> {
    let configuration = Configuration::read(path)
        .map_err(|wrong| io::Error::other(format!("{}: {wrong}", path.display())))?;
    for wrong in &configuration.wrong {
        log(format_args!("warning: {}: {wrong}", path.display()));
    }
    let is_secret = lockstep_vault::use_secret_memory();
    let engine = engine(engine_config);
    allow_descriptors(&configuration);
    let (mut reader, mut keyring, mut early) = use_rights(&configuration, sockets)?;
    // Reading the keys takes time, and more if a file system does not answer. Another thread
    // accepts clients meanwhile.
    let waiting = EarlyClients::collect(sockets)?;
    let now = Instant::now();
    if !reader.take(|message| _ = keyring.take(message, &engine, now)) {
        return Err(io::Error::other(
            "the process that opens the files of keys has ended",
        ));
    }
    wipe_stack::<ROOM_BYTES>();
    let mut watch = Watch::new(&configuration);
    report(&mut keyring, &engine, &mut watch);
    if !is_secret {
        log("the kernel gives no memory of memfd_secret: keys are in memory that root can read");
    }
    let service = Arc::new(Service::new(engine));
    let threads = service.start()?;
    let end = signals::of_the_end()?;
    let (wake, removed) = UnixStream::pair()?;
    let offers = Arc::new(Mutex::new(Offers::new(keyring.keys())));
    let renewals = Renewals::new(
        &configuration,
        (reader, keyring),
        watch,
        service.engine(),
        Arc::clone(&offers),
        wake,
    );
    early.extend(waiting.take());
    let listeners = std::mem::take(sockets);
    let status = renewals.status().to_owned();
    let served = Arc::clone(&service.clients);
    let mut acceptor = Acceptor::new(listeners, (end, removed), configuration, offers, served)?;
    acceptor.take_early(early);
    renewals.start()?;
    systemd::notify(&format!("READY=1\nSTATUS={status}"));
    let outcome = acceptor.run();
    service.finish(threads);
    log("has answered all requests, and ends");
    outcome
}

fn allow_descriptors(configuration: &Configuration) {
    let needed = DESCRIPTORS_FOR_EACH * configuration.max_clients as u64 + MORE_DESCRIPTORS;
    let allowed = privileges::allow_descriptors(needed);
    if allowed < needed {
        log(format_args!(
            "warning: the daemon may open {allowed} files, and needs {needed} for {} clients and \
             pending connections: raise its limit (LimitNOFILE= in its unit)",
            configuration.max_clients
        ));
    }
}

/// Does everything that needs root's rights, and gives them up.
fn use_rights(
    configuration: &Configuration,
    sockets: &mut Vec<UnixListener>,
) -> io::Result<(Reader, Keyring, Vec<EarlyClient>)> {
    let accounts = Accounts::of_system();
    let user = privileges::known_user(&configuration.user, &accounts);
    let number = privileges::user(user, &accounts)?;
    // Each new file has exactly the mode with which it is created.
    umask(Mode::empty());
    // Starting the second process takes time on a busy machine. A thread accepts clients meanwhile.
    let waiting = EarlyClients::collect(sockets)?;
    let keyring = Keyring::new(configuration, &accounts, workers::SHORT);
    let reader = Reader::start(&keyring, number)?;
    let group = number.map(|(_, group)| group).filter(|group| *group != 0);
    let sections = configuration.keys.iter();
    for path in sections.filter_map(|key| key.references.as_ref()) {
        if let Err(error) = reference_dir::prepare(path, group) {
            log(format_args!(
                "warning: cannot make the directory {}: {error}",
                path.display()
            ));
        }
    }
    // Only a process with one thread can give up its rights.
    let early = waiting.take();
    if sockets.is_empty() {
        sockets.push(socket::listen(&configuration.socket)?);
    }
    if user != configuration.user {
        log(format_args!(
            "warning: there is no user `{}` in /etc/passwd; the daemon becomes {user}",
            configuration.user
        ));
    }
    privileges::give_up(user, &accounts)?;
    Ok((reader, keyring, early))
}

/// Logs the keys that the daemon holds, and the problems with them.
fn report(keyring: &mut Keyring, engine: &Engine, watch: &mut Watch) {
    let keys = Keys::of(keyring);
    warn_of_all(keys.wrong());
    log_all(watch.line(keys.answers(), memory::allowed()));
    engine.count(ExternalEvent::LeftOut(keys.left_out.len()));
    for own in &keys.loaded {
        if let Some(mode) = own.open_mode {
            log(format_args!(
                "warning: {0}, which holds the key {1}, can be read by others than its owner (mode \
                 {mode:o}), and so perhaps by the servers that must not have it; if no other \
                 program needs that: chmod 600 {0}",
                own.file.display(),
                own.name
            ));
        }
    }
    log_all(keyring.lines.drain(..));
    if keyring.keys().is_empty() {
        log("warning: the daemon holds no key, and refuses every client");
    }
}

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

/// Returns the number of slots, and so of batches at a time: a quarter of the CPUs, since the
/// clients need the others for the rest of each handshake. Without AVX-512 IFMA, RSA takes most of
/// the time of a handshake, and the daemon uses all CPUs.
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
    fn a_user_that_is_unknown_is_told() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root becomes another user");
            return;
        }
        let of = |user: &str| {
            let configuration = Configuration::parse(&format!("user = {user}\n"));
            check_user(&configuration).map_err(|error| error.to_string())
        };
        assert_eq!(of("root"), Ok(()));
        assert!(of("nobody-there").is_err_and(|why| why.contains("there is none in /etc/passwd")));
        // A number is a valid user, but a user without a line in /etc/passwd has no group.
        assert!(of("4711004").is_err_and(|why| why.contains("no group")));
    }

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
