//! The engine of this process: made on first use, made anew in a forked child, and stopped when the
//! last provider instance goes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lockstep_engine::{
    BackendChoice, Config, Engine, ExternalEvent, Fallback, Keys, Lone, Page, Shape, Snapshot,
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

/// The engine of this process. Its owners are the living provider instances, one for each library
/// context that has loaded the module.
static ENGINE: Counted<Engine> = Counted::new();
/// The file of the counters, made at the first loading and never freed: forked children inherit it.
static PAGE: OnceBox<Page> = OnceBox::new();
static CONFIG: OnceBox<Config> = OnceBox::new();
/// Number of forks from the first process to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts one more provider instance. The first configuration stays in force until the process
/// ends.
///
/// A mistake in a setting is no error: the setting has no effect, and the lanes work. A forked
/// child first calls `in_child`, which calls [`forget_engine`].
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

/// Makes the file of the counters at the first loading, and reports mistakes in the settings there.
/// At a later loading this process takes a slot in it again. If the file cannot be made, the
/// counters stay in private memory, and `lockstep doctor` tells the reason.
fn publish(config: &mut Config) {
    if let Some(page) = page() {
        page.claim();
    }
    if CONFIG.get().is_some() {
        return;
    }
    let Some(page) = config.publish() else { return };
    if let Err(other) = PAGE.set(Box::new(page)) {
        // Another thread was first; this page was never shared.
        other.withdraw();
    }
}

fn page() -> Option<&'static Page> {
    PAGE.get()
}

/// Shows in the counters and in the system's log that the module offers nothing in this process.
pub fn say_that_we_stand_back() {
    count_no_offer();
    if let Some(config) = CONFIG.get() {
        warn_of_shared_memory(&config.syslog);
    }
}

/// Shows in the counters of this process that the module offers nothing. A handler of
/// `pthread_atfork` may call this.
fn count_no_offer() {
    if let Some(page) = page() {
        page.count(ExternalEvent::Fallback(Fallback::SharedMemory), "none");
    }
}

/// Installs our handlers of fork and exit, once. Returns false if there is no memory for them.
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

/// Returns whether the program runs with more rights than its user. Then the settings in the
/// environment do not count, except `OPENSSL_ia32cap`.
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

/// Returns the engine of this process. The first call makes it.
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

/// Returns an owner's access to the engine, for a function of the module that runs now.
fn owner() -> Owner<'static, Engine> {
    // SAFETY: keys and operation contexts hold references to the provider, and so does the program
    // that loads it: an instance is alive as long as any of our functions runs.
    unsafe { ENGINE.owner() }
}

/// Starts a thread with signals blocked. The new thread inherits the signal mask, so the server's
/// signals stay with the server's threads.
pub fn start_thread(start: &mut dyn FnMut()) {
    let _unsignalled = Unsignalled::begin();
    start();
}

/// Returns the number of requests of this shape that OpenSSL serves before there is an engine.
pub fn leaves_first(shape: Shape) -> u32 {
    CONFIG.get().map_or(0, |config| config.leaves_first(shape))
}

/// Counts an event outside of the engine. No engine is made for this: until there is one, only the
/// published counters show the event.
pub fn count(done: impl Into<ExternalEvent>) {
    match (engine_if_any(), page()) {
        (Some(engine), _) => engine.count(done),
        (None, Some(page)) => page.count(done.into(), lanes_name()),
        (None, None) => {}
    }
}

/// Returns the number of forks up to this process, which is larger than in all its ancestors.
pub fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Returns the engine of this process, if it has one already.
pub fn engine_if_any() -> Option<&'static Engine> {
    owner().current()
}

/// Returns the counters of this process. If the module offers nothing, no engine is made for them.
pub fn counted() -> Snapshot {
    match shared_memory::reason() {
        Some(_) => Snapshot::default(),
        None => engine().metrics(),
    }
}

/// Returns the name of the lanes in use.
pub fn lanes() -> &'static str {
    match shared_memory::reason() {
        Some(_) => "none",
        None => lanes_name(),
    }
}

fn lanes_name() -> &'static str {
    backend().map_or("none", Backend::name)
}

/// Returns whether the settings leave any operation to this module.
pub fn computes() -> bool {
    CONFIG
        .get()
        .is_none_or(|config| config.backend != BackendChoice::None)
}

/// Returns the lanes that the settings and this CPU leave to this module.
pub fn backend() -> Option<Backend> {
    let choice = CONFIG
        .get()
        .map_or(BackendChoice::Auto, |config| config.backend);
    choice.resolve()
}

/// Returns whether these lanes never take requests of this shape, with the settings of this
/// process.
pub fn declines_all(backend: Backend, shape: Shape) -> bool {
    let lone = CONFIG.get().map_or(Lone::Auto, |config| config.lone);
    lone != Lone::Lanes && lanes_bring_nothing(backend, shape)
}

/// Returns whether the settings leave AES-GCM to this module.
pub fn enciphers() -> bool {
    CONFIG.get().is_none_or(|config| config.aes_gcm)
}

/// Returns the setting `keys`, the place where ordinary keys are used, and the key daemon's socket
/// if the settings name one.
pub fn keys() -> (Keys, Option<&'static Path>) {
    match CONFIG.get() {
        Some(config) => (config.keys, config.keyd_socket.as_deref()),
        None => (Keys::Process, None),
    }
}

/// Returns the key daemon's socket, if this program may use references to its keys.
pub fn references() -> Option<&'static Path> {
    let config = CONFIG.get().filter(|config| config.references)?;
    let socket = config.keyd_socket.as_deref();
    Some(socket.unwrap_or(Path::new(DEFAULT_SOCKET)))
}

/// Returns whether `engine` is the engine of this process. In a forked child, the parent's engine
/// is not.
pub fn is_current(engine: *const Engine) -> bool {
    std::ptr::eq(ENGINE.address(), engine)
}

/// Removes the counters at exit, unless a setting keeps them.
extern "C" fn withdraw() {
    if let Some(page) = page() {
        page.withdraw();
    }
}

/// Announces a fork, before it happens.
extern "C" fn announce_fork() {
    if let Some(page) = page() {
        page.forking();
    }
}

/// Forgets the parent's engine in a forked child: its threads do not exist here, and its locks may
/// be held for ever. The next use makes a new engine. The key pairs and the counters of the old one
/// belong to the parent.
pub fn forget_engine() {
    if let Some(engine) = ENGINE.forget() {
        engine.wipe_after_fork();
    }
    if let Some(page) = page() {
        page.forked();
    }
    if shared_memory::reason().is_some() {
        count_no_offer();
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
}
