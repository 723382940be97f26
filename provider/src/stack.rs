//! Room for the kernels: some servers give their threads less stack than a batch takes.
//!
//! stunnel's threads have 64 KiB. Such a thread serves its request like any other, but on a stack of
//! ours, to which it changes for the time of the call (`makecontext`). Stacks are kept for the next
//! caller.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

/// What a batch may take, the making of a table on first use included.
const NEEDED: usize = 448 * 1024;
/// The size of our stacks: that of the engine's workers.
const SIZE: usize = 512 * 1024;
/// Below every stack: running over its end must not go unnoticed.
const GUARD: usize = 4096;
/// How many unused stacks are kept.
const KEPT: usize = 64;

/// Calls `work` where it has room; None if there is none and no memory for it either.
pub fn with_room<R>(work: impl FnOnce() -> R) -> Option<R> {
    if has_room() {
        return Some(work());
    }
    let stack = Stack::take()?;
    let mut work = Some(work);
    let mut result = None;
    stack.run(&mut || result = work.take().map(|work| work()));
    stack.keep();
    result
}

/// Whether the calling thread runs on its own stack and that has room. A thread may also be on a
/// stack that only its program knows of.
fn has_room() -> bool {
    thread_local! {
        static BOUNDS: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    }
    let (low, high) = BOUNDS.get().unwrap_or_else(|| {
        let bounds = bounds().unwrap_or_default();
        BOUNDS.set(Some(bounds));
        bounds
    });
    let here = (&raw const low).addr();
    here < high && here.saturating_sub(low) >= NEEDED
}

/// Where the stack of the calling thread begins and ends.
fn bounds() -> Option<(usize, usize)> {
    // SAFETY: the attributes are initialised by the first call, read by the second, and destroyed.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let mut low = null_mut();
        let mut size = 0;
        let known = libc::pthread_attr_getstack(&attributes, &mut low, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        known.then(|| (low.addr(), low.addr() + size))
    }
}

/// Memory to run on, with a guard below it.
struct Stack(NonNull<libc::c_void>);

// SAFETY: plain memory that belongs to whoever has the value.
unsafe impl Send for Stack {}

/// Unused stacks. Only ever tried: in a forked child it may be locked for ever.
static UNUSED: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

impl Stack {
    fn take() -> Option<Stack> {
        let kept = UNUSED.try_lock().ok().and_then(|mut unused| unused.pop());
        kept.or_else(Stack::new)
    }

    fn keep(self) {
        if let Ok(mut unused) = UNUSED.try_lock()
            && unused.len() < KEPT
        {
            unused.push(self);
        }
    }

    fn new() -> Option<Stack> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: new memory, of which nothing else knows.
        unsafe {
            let memory = libc::mmap(null_mut(), GUARD + SIZE, access, kind, -1, 0);
            if memory == libc::MAP_FAILED {
                return None;
            }
            let stack = Stack(NonNull::new(memory)?);
            (libc::mprotect(memory, GUARD, libc::PROT_NONE) == 0).then_some(stack)
        }
    }

    /// Calls `work` on this stack.
    fn run(&self, work: &mut dyn FnMut()) {
        let mut work: *mut dyn FnMut() = work;
        let argument = (&raw mut work).expose_provenance();
        // SAFETY: the context starts `entry` on memory that is ours and at the end returns to `back`, which
        // `swapcontext` fills in. Both live in this frame, which stays until then, as does `work`. The function
        // takes the two halves of a pointer, as `makecontext` passes `int`s only.
        unsafe {
            let mut back: libc::ucontext_t = std::mem::zeroed();
            let mut there: libc::ucontext_t = std::mem::zeroed();
            if libc::getcontext(&mut there) != 0 {
                return;
            }
            there.uc_stack.ss_sp = self.0.as_ptr().byte_add(GUARD);
            there.uc_stack.ss_size = SIZE;
            there.uc_link = &raw mut back;
            let entry: extern "C" fn() =
                std::mem::transmute(entry as extern "C" fn(libc::c_uint, libc::c_uint));
            let (high, low) = ((argument >> 32) as libc::c_uint, argument as libc::c_uint);
            libc::makecontext(&mut there, entry, 2, high, low);
            libc::swapcontext(&mut back, &there);
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing runs on it.
        unsafe { libc::munmap(self.0.as_ptr(), GUARD + SIZE) };
    }
}

extern "C" fn entry(high: libc::c_uint, low: libc::c_uint) {
    let argument = (u64::from(high) << 32 | u64::from(low)) as usize;
    let work = std::ptr::with_exposed_provenance::<*mut dyn FnMut()>(argument);
    // SAFETY: what `run` points to, which waits for us to return.
    let work = unsafe { &mut **work };
    // There is nothing below this frame to unwind into.
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        std::process::abort();
    }
}
