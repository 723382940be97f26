//! The engine of this process: made on first use, made anew in a forked child, and stopped when the
//! last provider instance goes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{BackendChoice, Config, ConfigError, Engine, Keys, Page, StatsDir};
use lockstep_kernels::backend::Backend;
use once_cell::race::OnceBox;

use crate::c_library::{SignalSet, getauxval, pthread_sigmask, sigfillset};
use crate::counted::{Counted, Owner};
use crate::{daemon, priority, shared_key, stack};

/// The engine of this process. Its owners are the provider instances alive, one per library context
/// that loaded us.
static ENGINE: Counted<Engine> = Counted::new();
/// The file of the counters, made at the first loading and never freed: forked children inherit it.
static PAGE: OnceBox<Page> = OnceBox::new();
static CONFIG: OnceBox<Config> = OnceBox::new();

/// Counts one more provider instance. The first configuration of a process holds for all of it.
///
/// Errors name the offending setting; the provider then refuses to load.
pub fn attach(settings: Result<Config, ConfigError>) -> Result<(), String> {
    let config = if privileged() {
        settings
    } else {
        settings.and_then(Config::with_env)
    };
    let config = config.map_err(|error| error.to_string())?.with_cpus();
    #[cfg(feature = "fault-injection")]
    crate::fault::arm()?;
    if !install_handlers() {
        return Err("no memory to register what must be done at a fork and at exit".to_owned());
    }
    lockstep_vault::prepare();
    stack::prepare();
    priority::prepare();
    // Before the program drops its privileges, changes its root directory or forbids system calls.
    publish(&config)?;
    let _ = CONFIG.set(Box::new(config));
    if !ENGINE.enter() {
        return Err("too many library contexts have loaded lockstep; unload it in some".to_owned());
    }
    Ok(())
}

/// Makes the file of the counters at the first loading; later this process takes a slot in it
/// again. Where it cannot be made, the counters stay in private memory, and `lockstep doctor` says
/// why. It is an error only if the configuration names a directory that cannot serve.
fn publish(config: &Config) -> Result<(), String> {
    if let Some(page) = page() {
        page.claim();
        return Ok(());
    }
    let page = match Page::create(&config.stats_dir, config.stats_keep) {
        Ok(Some(page)) => page,
        Err(reason) if reason.is_wrong_place() && matches!(config.stats_dir, StatsDir::At(_)) => {
            return Err(format!(
                "the setting stats_dir (LOCKSTEP_STATS_DIR) cannot be followed: {reason}; create the \
                 directory, let the user that starts the program write there, or set it to auto or no"
            ));
        }
        Ok(None) | Err(_) => return Ok(()),
    };
    if let Err(other) = PAGE.set(Box::new(page)) {
        // Another thread was first; this one was never shared.
        other.withdraw();
    }
    Ok(())
}

fn page() -> Option<&'static Page> {
    PAGE.get()
}

/// Installs our handlers of fork and exit. Two threads that come at the same time both do, which
/// does no harm. False without memory for it.
fn install_handlers() -> bool {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Acquire) {
        return true;
    }
    // SAFETY: `announce_fork` and, after a fork, `forget_engine` wait for no lock and allocate
    // nothing, so they are safe in any state; `withdraw` runs at exit, when the module, linked with
    // `nodelete`, is still there.
    let installed = unsafe {
        libc::pthread_atfork(Some(announce_fork), None, Some(forget_engine)) == 0
            && libc::atexit(withdraw) == 0
    };
    INSTALLED.store(installed, Ordering::Release);
    installed
}

/// Whether the program runs with more rights than its user: then the environment does not count.
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

/// Starts a thread with all signals blocked: it inherits that, so the server's signals stay with
/// the server's threads.
pub fn start_thread(start: &mut dyn FnMut()) {
    let (mut all, mut before) = (SignalSet::empty(), SignalSet::empty());
    sigfillset(&mut all);
    pthread_sigmask(libc::SIG_SETMASK, Some(&all), Some(&mut before));
    start();
    pthread_sigmask(libc::SIG_SETMASK, Some(&before), None);
}

/// The engine of this process, if it has one already.
pub fn engine_if_any() -> Option<&'static Engine> {
    owner().current()
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
extern "C" fn forget_engine() {
    if let Some(engine) = ENGINE.forget() {
        engine.wipe_after_fork();
    }
    if let Some(page) = page() {
        page.forked();
    }
    daemon::after_fork();
    shared_key::after_fork();
    lockstep_vault::after_fork();
}
