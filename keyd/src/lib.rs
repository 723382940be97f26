//! The daemon that holds keys, so that the processes that use them do not.
//!
//! [`run`] is the daemon; `lockstep keyd` calls it. [`keyd_conf`] reads the list of keys and
//! the users who may use each, [`key`] reads the keys, from files that are [`trusted`], and
//! [`mod@stand_in`] makes the files that servers have in their place. The [`doorkeeper`] welcomes
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
mod system;

use std::fs;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_engine::{Backend, BackendChoice, Config, Elsewhere, Engine, ROOM_BYTES};
use lockstep_remote::is_ml_dsa;
use lockstep_ring::Answers;
use rustix::fs::Mode;
use rustix::process::umask;

use clients::client::Offers;
use clients::doorkeeper::{self, Doorkeeper};
use clients::porch::Porch;
use keyd_conf::Configuration;
use keys::access::Accounts;
use keys::keyring::Keyring;
pub use keys::keyring::{LeftOut, Loaded};
pub use keys::mirror::is_kept;
use keys::renewals::{self, Reader, Renewals};
pub use keys::{access, key, public_blocks, reader, stand_in, trusted};
use keys::{helpers, mirror};
use serve::{Service, wipe_stack};
use system::journal::{log, log_all, warn_of_all};
pub use system::memory;
use system::{privileges, signals, systemd};

/// How many descriptors the daemon needs for each client that it may serve: its socket, and those
/// of clients that wait at the door.
const DESCRIPTORS_FOR_EACH: u64 = 5;
/// And how many beside.
const MORE_DESCRIPTORS: u64 = 64;

/// How long a daemon that cannot start turns clients away, before it ends and systemd tries anew.
/// Services that are to start after it wait as long.
const TURNS_AWAY: Duration = Duration::from_secs(3);

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

/// Reads the keys of a configuration. One that cannot be served is left out, and so is an account
/// that is unknown; all others count. A file system that does not answer takes some seconds.
pub fn read_keys(configuration: &Configuration, engine: &Engine) -> Keys {
    let mut keyring = Keyring::new(configuration, &Accounts::of_system(), helpers::LONG);
    let now = Instant::now();
    reader::look_once(keyring.wanted(), |news| _ = keyring.take(news, engine, now));
    let mut mirrors = renewals::mirrors(configuration);
    renewals::note(&mut mirrors, &mut keyring, now);
    let (mirrors, secrets) = (mirrors.iter().flatten(), keyring.secrets());
    Keys {
        outdated: mirrors.flat_map(|own| own.missing(&secrets)).collect(),
        ..Keys::of(&keyring)
    }
}

/// What the sections of a configuration give.
#[derive(Debug, Default)]
pub struct Keys {
    /// The keys that can be served, by their files.
    pub loaded: Vec<Loaded>,
    /// What cannot be served.
    pub left_out: Vec<LeftOut>,
    /// What is unknown of the accounts that may use keys, in a line each.
    pub unknown: Vec<String>,
    /// Paths whose file systems do not answer.
    pub unanswered: Vec<PathBuf>,
    /// The files in directories of references that are not, or not yet, as the files of the keys.
    pub outdated: Vec<PathBuf>,
}

impl Keys {
    fn of(keyring: &Keyring) -> Keys {
        Keys {
            loaded: keyring.served(),
            left_out: keyring.left_out(),
            unknown: keyring.unknown(),
            unanswered: keyring.unanswered(),
            outdated: Vec::new(),
        }
    }

    /// How long the answers about these keys may be.
    pub fn answers(&self) -> Answers {
        match self.loaded.iter().any(|own| is_ml_dsa(&own.public)) {
            true => Answers::Long,
            false => Answers::Short,
        }
    }

    /// Everything that is not as the configuration says, in a line each.
    pub fn wrong(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(LeftOut::to_string);
        left_out.chain(self.unknown.iter().cloned()).collect()
    }
}

/// Says what is wrong with the user whom the daemon would become, if this process were it.
pub fn check_user(configuration: &Configuration) -> io::Result<()> {
    privileges::user(&configuration.user, &Accounts::of_system()).map(drop)
}

/// Runs the daemon with the configuration of a file, until it is told to end by SIGTERM or SIGINT,
/// or fails. It answers what its clients have asked by then.
///
/// A daemon that cannot start turns away all who come to a socket of systemd for some seconds: they
/// would wait for it otherwise.
pub fn run(path: &Path, engine_config: Config) -> io::Result<()> {
    // Keys are about to come into memory.
    privileges::hide_memory()?;
    let mut sockets = systemd::sockets()?;
    let outcome = serve(path, engine_config, &mut sockets);
    if let Err(error) = &outcome
        && !sockets.is_empty()
    {
        log(format_args!("cannot start: {error}"));
        let line = error.to_string().replace('\n', " ");
        systemd::notify(&format!("STATUS=cannot start: {line}"));
        doorkeeper::turn_away(&sockets, TURNS_AWAY);
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
    // Those who wait take descriptors, too, and keys need some.
    let needed = DESCRIPTORS_FOR_EACH * configuration.max_clients as u64 + MORE_DESCRIPTORS;
    let allowed = privileges::allow_descriptors(needed);
    if allowed < needed {
        log(format_args!(
            "warning: the daemon may open {allowed} files, and needs {needed} for {} clients and \
             those at the door: raise its limit (LimitNOFILE= in its unit)",
            configuration.max_clients
        ));
    }
    let accounts = Accounts::of_system();
    let user = privileges::known_user(&configuration.user, &accounts);
    let number = privileges::user(user, &accounts)?;
    // Each file that the daemon makes has its mode from its first moment on.
    umask(Mode::empty());
    // Before another program is started, which takes its time on a busy machine.
    let porch = Porch::open(sockets)?;
    let mut keyring = Keyring::new(&configuration, &accounts, helpers::SHORT);
    let mut reader = Reader::start(&keyring, number)?;
    let group = number.map(|(_, group)| group).filter(|group| *group != 0);
    let sections = configuration.keys.iter();
    for path in sections.filter_map(|key| key.references.as_ref()) {
        if let Err(error) = mirror::prepare(path, group) {
            log(format_args!(
                "warning: cannot make the directory {}: {error}",
                path.display()
            ));
        }
    }
    // Rights are given up by a process of one thread.
    let mut guests = porch.close();
    if sockets.is_empty() {
        sockets.push(listen(&configuration.socket)?);
    }
    if user != configuration.user {
        log(format_args!(
            "warning: there is no user `{}` in /etc/passwd; the daemon becomes {user}",
            configuration.user
        ));
    }
    privileges::give_up(user, &accounts)?;
    // Keys and references take their time. Threads are held up where a file system does not answer.
    let porch = Porch::open(sockets)?;
    let now = Instant::now();
    if !reader.take(|news| _ = keyring.take(news, &engine, now)) {
        return Err(io::Error::other(
            "the process that opens the files of keys has ended",
        ));
    }
    wipe_stack::<ROOM_BYTES>();
    let keys = Keys::of(&keyring);
    warn_of_all(keys.wrong());
    let mut watch = memory::Watch::new(&configuration);
    log_all(watch.line(keys.answers(), memory::allowed()));
    engine.count(Elsewhere::LeftOut(keys.left_out.len()));
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
    if !is_secret {
        log("the kernel gives no memory of memfd_secret: keys are in memory that root can read");
    }
    let service = Arc::new(Service::new(engine));
    let threads = service.start()?;
    let end = signals::of_the_end()?;
    let (wake, left) = UnixStream::pair()?;
    let offers = Arc::new(Mutex::new(Offers::new(keyring.keys())));
    let renewals = Renewals::new(
        &configuration,
        (reader, keyring),
        watch,
        service.engine(),
        Arc::clone(&offers),
        wake,
    );
    guests.extend(porch.close());
    let listeners = std::mem::take(sockets);
    let status = renewals.status().to_owned();
    let serving = Arc::clone(&service);
    let mut doorkeeper = Doorkeeper::new(listeners, (end, left), configuration, offers, serving)?;
    doorkeeper.take_in(guests);
    renewals.start()?;
    systemd::notify(&format!("READY=1\nSTATUS={status}"));
    let outcome = doorkeeper.run();
    service.finish(threads);
    log("has answered all requests, and ends");
    outcome
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
        // Its mode from its first moment on: a later change would be one of a path, behind which
        // there may be something else by then. There is one thread so far.
        let before = umask(Mode::from_raw_mode(0o111));
        let listener = UnixListener::bind(&fresh);
        umask(before);
        let listener = listener?;
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    use lockstep_testkit::{TempDir, command, hex};

    use super::*;

    #[test]
    fn keys_of_ml_dsa_have_long_answers() {
        let ed25519 = clients::client::tests::ed25519().public;
        let ml_dsa = hex("30820012300b06096086480165030403110303000000");
        let keys = |publics: &[&Vec<u8>]| {
            let loaded = publics.iter().map(|&public| Loaded {
                name: String::new(),
                kind: String::new(),
                public: public.clone(),
                file: PathBuf::new(),
                open_mode: None,
            });
            let loaded = loaded.collect();
            Keys {
                loaded,
                ..Keys::default()
            }
        };
        assert_eq!(keys(&[]).answers(), Answers::Short);
        assert_eq!(keys(&[&ed25519]).answers(), Answers::Short);
        assert_eq!(keys(&[&ed25519, &ml_dsa]).answers(), Answers::Long);
    }

    /// One key of each kind of badness among a hundred good ones: the others are served.
    #[test]
    fn a_key_that_cannot_be_served_is_left_out_and_all_others_are_there() {
        let place = TempDir::new("bad-keys");
        let make = |name: &str, words: &str| {
            let mut openssl = command("openssl", &["genpkey", "-out"]);
            openssl.arg(place.join(name)).args(words.split(' '));
            assert!(
                openssl.output().is_ok_and(|made| made.status.success()),
                "{words}"
            );
        };
        make("good", "-algorithm ed25519");
        make("ec", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
        make("kind", "-algorithm X25519");
        let good = fs::read_to_string(place.join("good")).expect("a file");
        fs::write(place.join("cut"), &good[..good.len() / 2]).expect("a file");
        fs::write(place.join("damaged"), good.replace("MC4C", "MC5C")).expect("a file");
        fs::write(place.join("empty"), "").expect("a file");
        fs::write(place.join("open"), &good).expect("a file");
        let open = Permissions::from_mode(0o666);
        fs::set_permissions(place.join("open"), open).expect("its own");
        fs::create_dir(place.join("directory")).expect("a directory");
        symlink("nowhere", place.join("lost")).expect("a link");
        let pipe = place.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).expect("a pipe");
        let own = fs::metadata(&*place).expect("a directory").uid();
        let mut bad = vec![
            ("gone", "No such file"),
            ("cut", "has no end"),
            ("damaged", "does not parse"),
            ("empty", "no private key"),
            ("directory", "No such file with a private key"),
            ("lost", "No such file"),
            ("pipe", "not an ordinary file"),
            ("open", "can write to"),
            ("kind", "serves keys of RSA"),
            // It was RSA, and has been renewed.
            ("ec", "signatures alone"),
        ];
        if own == 0 {
            fs::write(place.join("theirs"), &good).expect("a file");
            chown(place.join("theirs"), Some(33), None).expect("root");
            bad.push(("theirs", "belongs to user 33"));
        }
        let (mut text, count) = (String::new(), bad.len());
        let shown = place.display();
        for (number, (name, _)) in (0..100).zip(bad.iter().cycle()) {
            let section = |name: &str, file: &str, uses: &str| {
                format!("[key {name}]\nfile = {shown}/{file}\nusers = {own}\nuses = {uses}\n")
            };
            text += &section(&format!("good-{number}"), "good", "sign");
            if number < count {
                text += &section(name, name, "sign decrypt");
            }
        }
        let _ = write!(
            text,
            "[key ghost]\nfile = {shown}/good\nusers = nobody-there\nuses = sign\n\
             [key some]\nfile = {shown}/good\nusers = nobody-there {own}\nuses = sign\n\
             [key useless]\nfile = {shown}/good\nusers = {own}\n\
             [key good-7]\nfile = {shown}/gone\nusers = {own}\nuses = sign\n[keys]\n"
        );
        bad.push(("ghost", "no user `nobody-there`"));
        bad.push(("useless", "say what it may be used for"));
        let configuration = Configuration::parse(&text);
        assert_eq!(configuration.wrong.len(), 2, "{:?}", configuration.wrong);
        let keys = read_keys(&configuration, &engine(Config::default()));
        let names: Vec<_> = keys.loaded.iter().map(|key| key.name.clone()).collect();
        let good = (0..100).map(|number| format!("good-{number}"));
        assert_eq!(names, good.chain(["some".to_owned()]).collect::<Vec<_>>());
        assert_eq!(keys.left_out.len(), bad.len(), "{:?}", keys.left_out);
        for (name, expected) in bad {
            let mut left_out = keys.left_out.iter();
            let left_out = left_out.find(|key| key.name == name).expect(name);
            assert!(left_out.why.contains(expected), "{left_out}");
        }
        let wrong = keys.wrong().join("\n");
        assert!(
            wrong.contains("the key some is served, but there is no user"),
            "{wrong}"
        );
        let status = renewals::status_of(keys.loaded.len(), &keys.left_out);
        assert!(
            status.starts_with("serves 101 keys, and leaves out"),
            "{status}"
        );
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

    #[test]
    fn systemd_is_told_how_many_keys_there_are_and_which_are_left_out() {
        let left_out = |number: usize| LeftOut {
            name: format!("bad-{number}"),
            why: String::new(),
            is_kept: false,
        };
        let status = |count| {
            let left_out: Vec<_> = (0..count).map(left_out).collect();
            renewals::status_of(0, &left_out)
        };
        assert_eq!(status(0), "serves 0 keys");
        let told = status(12);
        assert!(told.starts_with("serves 0 keys, and leaves out 12, see the log: bad-0 bad-1 "));
        assert!(told.ends_with(" bad-9"), "{told}");
    }

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
        // A number is a user; one without a line has no group.
        assert!(of("4711004").is_err_and(|why| why.contains("no group")));
    }

    #[test]
    fn a_daemon_whose_user_is_unknown_becomes_the_usual_one() {
        let accounts = Accounts::of_system();
        assert_eq!(privileges::known_user("root", &accounts), "root");
        assert_eq!(privileges::known_user("0", &accounts), "0");
        let expected = match accounts.user(keyd_conf::DEFAULT_USER) {
            Some(_) => keyd_conf::DEFAULT_USER,
            None => "nobody-there",
        };
        assert_eq!(privileges::known_user("nobody-there", &accounts), expected);
    }

    #[test]
    fn a_socket_has_its_mode_from_the_first_moment_on() {
        let place = TempDir::new("listen");
        let path = place.join("socket");
        let umask = || {
            let status = fs::read_to_string("/proc/self/status").expect("/proc");
            let mut lines = status.lines();
            lines
                .find(|line| line.starts_with("Umask:"))
                .map(str::to_owned)
        };
        let before = umask();
        let _listener = listen(&path).expect("a socket");
        let mode = fs::metadata(&path).expect("a socket").mode() & 0o777;
        assert_eq!((mode, umask()), (0o666, before));
        // Another daemon takes the place of this one.
        let next = listen(&path).expect("a socket");
        drop(std::os::unix::net::UnixStream::connect(&path).expect("a listener"));
        next.set_nonblocking(true).expect("a socket");
        assert!(next.accept().is_ok());
        // A daemon that was killed while it began has left a socket behind.
        let fresh = place.join("socket.new");
        drop(UnixListener::bind(&fresh).expect("a socket"));
        drop(listen(&path).expect("a socket"));
        assert!(!fresh.exists());
        // What is no socket stays, there as well.
        fs::write(&fresh, "mine").expect("a file");
        assert!(listen(&path).is_err() && path.exists());
        let old = place.join("socket.old");
        fs::write(&old, "mine").expect("a file");
        assert!(listen(&fresh).is_err());
        assert_eq!(
            [&fresh, &old].map(|file| fs::read(file).ok()),
            [(); 2].map(|()| Some(b"mine".to_vec()))
        );
        fs::remove_file(&fresh).expect("a file");
        assert!(listen(&fresh).is_err());
        fs::remove_file(&old).expect("a file");
        assert!(listen(&fresh).is_ok() && listen(&path).is_ok());
        let file = place.join("file");
        fs::write(&file, "mine").expect("a file");
        assert!(listen(&file).is_err());
        assert_eq!(fs::read(&file).expect("a file"), b"mine");
    }
}
