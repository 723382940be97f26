//! Functions of the C library, with types that make them safe: each function may be called with
//! every value of its types.
#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "stacks are changed on x86-64 only")
)]

use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_uint, c_ulong, c_void};
use std::ptr::null;

use crate::ffi::Text;

// The unwinder in the module (see `build.rs`) calls this function of glibc 2.35 or later to find
// the tables of a frame. The module must also load with glibc 2.34, so it has a function of this
// name itself, which finds nothing and is hidden from other files. Therefore a backtrace of the
// release module has no frames; a panic still reports its place in the source.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    "_dl_find_object:",
    "mov eax, -1",
    "ret",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    "_dl_find_object:",
    "mov w0, #-1",
    "ret",
);

/// `sigset_t`: a bit for each signal.
#[repr(C)]
struct SignalSet([c_ulong; 1024 / c_ulong::BITS as usize]);

const _: () = assert!(size_of::<SignalSet>() == size_of::<libc::sigset_t>());
const _: () = assert!(align_of::<SignalSet>() == align_of::<libc::sigset_t>());

impl SignalSet {
    /// Returns the set without a signal.
    const fn empty() -> SignalSet {
        SignalSet([0; _])
    }
}

/// Key of a word that each thread has for itself. A key is never deleted.
///
/// A thread-local variable of a module that a program loads late is allocated when a thread first
/// uses it, and the program is ended if there is no memory for it. The words of the first keys need
/// no allocation: the C library has room for them in every thread's own memory.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct ThreadKey(libc::pthread_key_t);

impl ThreadKey {
    /// Makes a key; None if the process has used up its keys.
    pub fn new() -> Option<ThreadKey> {
        let mut key = ThreadKey(0);
        (pthread_key_create(&mut key, None) == 0).then_some(key)
    }

    /// Returns the calling thread's word; 0 before it is set.
    pub fn get(self) -> usize {
        pthread_getspecific(self).addr()
    }

    /// Sets the calling thread's word, unless there is no memory for it.
    pub fn set(self, word: usize) {
        pthread_setspecific(self, std::ptr::without_provenance(word));
    }
}

/// Guard against cancellation of the calling thread (pthread_setcancelstate(3)), which would end it
/// in the middle of work that other threads wait for.
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// `PTHREAD_CANCEL_DISABLE`
    const DISABLE: c_int = 1;

    pub fn begin() -> Uncancelled {
        let mut before = 0;
        pthread_setcancelstate(Self::DISABLE, Some(&mut before));
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        pthread_setcancelstate(self.before, None);
    }
}

/// Guard against signals. As long as the guard lives, signals that would interrupt the calling
/// thread, or a thread that it starts meanwhile, wait: a handler that leaves by `siglongjmp` would
/// leave a lock held. Signals that the thread's own instructions cause do not wait: a sandbox may
/// answer a system call by SIGSYS.
pub struct Unsignalled {
    before: SignalSet,
}

impl Unsignalled {
    const OWN: [c_int; 6] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];

    pub fn begin() -> Unsignalled {
        let (mut others, mut before) = (SignalSet::empty(), SignalSet::empty());
        sigfillset(&mut others);
        for own in Self::OWN {
            sigdelset(&mut others, own);
        }
        pthread_sigmask(libc::SIG_SETMASK, Some(&others), Some(&mut before));
        Unsignalled { before }
    }
}

impl Drop for Unsignalled {
    fn drop(&mut self) {
        pthread_sigmask(libc::SIG_SETMASK, Some(&self.before), None);
    }
}

/// Returns the limit of a resource (`RLIMIT_…`) that holds for the process now, `RLIM_INFINITY` for
/// no limit; None if the system does not tell, as behind a filter of system calls.
///
/// rustix assumes that the call cannot fail. When it does fail, a release build reads arbitrary
/// words of the stack, and a debug build panics.
pub fn soft_limit(resource: c_uint) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    (getrlimit(resource, &mut limit) == 0).then_some(limit.rlim_cur)
}

/// Files in which a symbol is looked for.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Scope(*mut c_void);

impl Scope {
    /// The program and its libraries.
    pub const DEFAULT: Scope = Scope(libc::RTLD_DEFAULT);

    /// Returns the scope of a library that is loaded, with the libraries that it needs. The library
    /// stays loaded from now on. Without a name, the scope is the program and its libraries.
    pub fn of_loaded(library: Option<&CStr>) -> Option<Scope> {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        let name = library.map_or(null(), CStr::as_ptr);
        // SAFETY: a C string, or NULL. Nothing is loaded, so no code of a library runs.
        let handle = unsafe { libc::dlopen(name, flags) };
        (!handle.is_null()).then_some(Scope(handle))
    }
}

// SAFETY: each type is that of the C library's headers, or has only values that are valid. A set of
// signals is an array of integers, and a limit is two integers, so any bits are valid. An unknown
// resource or signal is an error. A key comes from `pthread_key_create` and is never deleted; its
// words are numbers, and a destructor is a safe function, which accepts any number. A scope of
// symbols comes from the linker and is never closed, and a text is a C string.
unsafe extern "C" {
    /// Returns the calling thread, as a number that no other living thread has.
    pub safe fn pthread_self() -> libc::pthread_t;
    /// Returns the value of this kind (`AT_…`) that the kernel passed to the program, or 0.
    pub safe fn getauxval(kind: c_ulong) -> c_ulong;
    safe fn sigfillset(set: &mut SignalSet) -> c_int;
    safe fn sigdelset(set: &mut SignalSet, signal: c_int) -> c_int;
    safe fn pthread_sigmask(
        how: c_int,
        set: Option<&SignalSet>,
        before: Option<&mut SignalSet>,
    ) -> c_int;
    safe fn getrlimit(resource: c_uint, limit: &mut libc::rlimit) -> c_int;
    /// Returns the scheduling policy of a thread, of the calling thread for 0; -1 if it is unknown.
    pub safe fn sched_getscheduler(thread: libc::pid_t) -> c_int;
    safe fn pthread_setcancelstate(state: c_int, before: Option<&mut c_int>) -> c_int;
    pub safe fn dlsym(scope: Scope, name: Text<'_>) -> *mut c_void;
    safe fn pthread_key_create(
        key: &mut ThreadKey,
        destructor: Option<extern "C" fn(*mut c_void)>,
    ) -> c_int;
    safe fn pthread_getspecific(key: ThreadKey) -> *mut c_void;
    safe fn pthread_setspecific(key: ThreadKey, word: *const c_void) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_cannot_be_known_is_none() {
        assert!(soft_limit(libc::RLIMIT_NOFILE).is_some_and(|limit| limit > 0));
        // The kernel refuses it, as a filter would.
        assert_eq!(soft_limit(c_uint::MAX), None);
    }
}
