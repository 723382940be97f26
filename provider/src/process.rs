//! The engine of this process: made on first use, made anew in a forked child, and stopped when the
//! last provider instance goes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lockstep_engine::{
    BackendChoice, Config, Elsewhere, Engine, Fallback, Keys, Lone, Page, Shape, Snapshot,
    lanes_bring_nothing, warn_of_shared_memory,
};
use lockstep_kernels::backend::Backend;
use lockstep_remote::DEFAULT_SOCKET;
use once_cell::race::OnceBox;

use crate::host::c_library::{Unsignalled, getauxval};
use crate::host::counted::{Counted, Owner};
use crate::host::priority;
use crate::host::shared_memory;
use crate::host::stack;

/// The engine of this process. Its owners are the provider instances alive, one per library context
/// that loaded us.
static ENGINE: Counted<Engine> = Counted::new();
/// The file of the counters, made at the first loading and never freed: forked children inherit it.
static PAGE: OnceBox<Page> = OnceBox::new();
static CONFIG: OnceBox<Config> = OnceBox::new();
/// How often this process and its parents were forked, up to the first one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts one more provider instance. The first configuration of a process holds for all of it.
///
/// A mistake in a setting is no error: the setting has no effect, and the lanes work. A forked
/// child calls `in_child` first of all, which calls [`forget_engine`].
pub fn attach(settings: Config, in_child: extern "C" fn()) -> Result<(), String> {
    let config = match privileged() {
        true => settings.masked_by_env(),
        false => settings.with_env(),
    };
    let mut config = config.with_cpus();
    #[cfg(feature = "fault-injection")]
    crate::fault::arm()?;
    if !install_handlers(in_child) {
        return Err("no memory to register what must be done at a fork and at exit".to_owned());
    }
    stack::prepare();
    priority::prepare();
    // Before the program drops its privileges, changes its root directory or forbids system calls.
    publish(&mut config);
    let _ = CONFIG.set(Box::new(config));
    if !ENGINE.enter() {
        return Err("too many library contexts have loaded lockstep; unload it in some".to_owned());
    }
    Ok(())
}

/// Makes the file of the counters at the first loading, which also says what is wrong with the
/// settings; later this process takes a slot in it again. Where it cannot be made, the counters
/// stay in private memory, and `lockstep doctor` says why.
fn publish(config: &mut Config) {
    if let Some(page) = page() {
        page.claim();
    }
    if CONFIG.get().is_some() {
        return;
    }
    let Some(page) = config.publish() else { return };
    if let Err(other) = PAGE.set(Box::new(page)) {
        // Another thread was first; this one was never shared.
        other.withdraw();
    }
}

fn page() -> Option<&'static Page> {
    PAGE.get()
}

/// Counts that the module offers nothing in this process, and says so in the system's log.
pub fn say_that_we_stand_back() {
    count_standing_back();
    if let Some(config) = CONFIG.get() {
        warn_of_shared_memory(&config.syslog);
    }
}

/// Shows in the counters of this process that the module offers nothing. It may run in a handler of
/// `pthread_atfork`.
fn count_standing_back() {
    if let Some(page) = page() {
        page.count(Elsewhere::Fallback(Fallback::SharedMemory), "none");
    }
}

/// Installs our handlers of fork and exit, once. False without memory for it.
fn install_handlers(in_child: extern "C" fn()) -> bool {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return true;
    }
    // SAFETY: `announce_fork` and, after a fork, `in_child` wait for no lock and allocate nothing,
    // so they are safe in any state; `withdraw` runs at exit, when the module, linked with
    // `nodelete`, is still there.
    let installed = unsafe {
        libc::pthread_atfork(Some(announce_fork), None, Some(in_child)) == 0
            && libc::atexit(withdraw) == 0
    };
    INSTALLED.store(installed, Ordering::Release);
    installed
}

/// Whether the program runs with more rights than its user: then the settings in the
/// environment do not count.
fn privileged() -> bool {
    getauxval(libc::AT_SECURE) != 0
}

/// Counts one provider instance less; the last one stops the engine and its workers.
///
/// The counters stay in their slot until the process exits: another thread may load the module in
/// this moment, and then its engine counts there.
pub fn detach() {
    drop(ENGINE.leave());
}

/// The engine of this process.
pub fn engine() -> &'static Engine {
    let make = || {
        Engine::with_start(
            CONFIG.get().cloned().unwrap_or_default(),
            page(),
            start_thread,
        )
    };
    owner().get(make)
}

/// What calls our functions, as an owner of the engine.
fn owner() -> Owner<'static, Engine> {
    // SAFETY: keys and operation contexts hold references to the provider, and so does the program
    // that loads it: an instance is alive as long as any of our functions runs.
    unsafe { ENGINE.owner() }
}

/// Starts a thread with signals blocked: it inherits that, so the server's signals stay with the
/// server's threads.
pub fn start_thread(start: &mut dyn FnMut()) {
    let _unsignalled = Unsignalled::begin();
    start();
}

/// How many requests of this shape OpenSSL serves before there is an engine.
pub fn leaves_first(shape: Shape) -> u32 {
    CONFIG.get().map_or(0, |config| config.leaves_first(shape))
}

/// Counts something that was done without asking the engine. None is made for that: until there is
/// one, only the published counters show it.
pub fn count(done: impl Into<Elsewhere>) {
    match (engine_if_any(), page()) {
        (Some(engine), _) => engine.count(done),
        (None, Some(page)) => page.count(done.into(), lanes_name()),
        (None, None) => {}
    }
}

/// A number that this process has and none of its parents.
pub fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The engine of this process, if it has one already.
pub fn engine_if_any() -> Option<&'static Engine> {
    owner().current()
}

/// The counters of this process. Where the module offers nothing, no engine is made for them.
pub fn counted() -> Snapshot {
    match shared_memory::reason() {
        Some(_) => Snapshot::default(),
        None => engine().metrics(),
    }
}

/// The name of the lanes in use.
pub fn lanes() -> &'static str {
    match shared_memory::reason() {
        Some(_) => "none",
        None => lanes_name(),
    }
}

fn lanes_name() -> &'static str {
    backend().map_or("none", Backend::name)
}

/// Whether the settings leave anything to this module.
pub fn computes() -> bool {
    CONFIG
        .get()
        .is_none_or(|config| config.backend != BackendChoice::None)
}

/// The lanes that the settings and this CPU leave to this module.
pub fn backend() -> Option<Backend> {
    let choice = CONFIG
        .get()
        .map_or(BackendChoice::Auto, |config| config.backend);
    choice.resolve()
}

/// Whether these lanes never take requests of this shape, with the settings of this process.
pub fn declines_all(backend: Backend, shape: Shape) -> bool {
    let lone = CONFIG.get().map_or(Lone::Auto, |config| config.lone);
    lone != Lone::Lanes && lanes_bring_nothing(backend, shape)
}

/// Whether the settings leave AES-GCM to this module.
pub fn enciphers() -> bool {
    CONFIG.get().is_none_or(|config| config.aes_gcm)
}

/// Where the settings have ordinary keys computed with, and the key daemon's socket if they name
/// one.
pub fn keys() -> (Keys, Option<&'static Path>) {
    match CONFIG.get() {
        Some(config) => (config.keys, config.keyd_socket.as_deref()),
        None => (Keys::Process, None),
    }
}

/// Where the key daemon listens, if this program may use references to its keys.
pub fn references() -> Option<&'static Path> {
    let config = CONFIG.get().filter(|config| config.references)?;
    let socket = config.keyd_socket.as_deref();
    Some(socket.unwrap_or(Path::new(DEFAULT_SOCKET)))
}

/// Whether `engine` is still the one of this process: not in a forked child of the one that asked
/// for it.
pub fn is_current(engine: *const Engine) -> bool {
    std::ptr::eq(ENGINE.address(), engine)
}

/// At exit: nothing is left of the counters, unless they are to be kept.
extern "C" fn withdraw() {
    if let Some(page) = page() {
        page.withdraw();
    }
}

/// Before a fork.
extern "C" fn announce_fork() {
    if let Some(page) = page() {
        page.forking();
    }
}

/// In a forked child: the parent's engine stays behind, its threads do not exist here and its locks
/// may be held for ever. The next use makes a new one. Its key pairs and its counters are the
/// parent's to use.
pub fn forget_engine() {
    if let Some(engine) = ENGINE.forget() {
        engine.wipe_after_fork();
    }
    if let Some(page) = page() {
        page.forked();
    }
    if shared_memory::reason().is_some() {
        count_standing_back();
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
}
