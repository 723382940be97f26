//! Room on the stack for the kernels: some stacks are too small for a batch.
//!
//! The stack of an async job has 32 KiB and no guard page below; stunnel's threads have 64 KiB.
//! There the thread changes to a stack of the module for the time of the call. Stacks are kept for
//! the next caller. Code that prepares a key leaves parts of the key on the stack. So on every
//! thread it runs on a stack of the module, and the memory of that stack goes back to the system.

use lockstep_kernels::clear_registers;

use crate::host::c_library::Uncancelled;

/// Calls `work` on the calling thread: on its own stack if that has room, else on a stack of the
/// module. Returns None, without a call, if there is no such stack. The thread is not cancelled
/// meanwhile, and the vector registers are empty afterwards.
///
/// `work` must not pause a job: the job would be resumed on a stack that others use by then.
pub fn with_room<R>(work: impl FnOnce() -> R) -> Option<R> {
    let _uncancelled = Uncancelled::begin();
    let result = platform::with_room(work);
    clear_registers();
    result
}

/// Calls `work` on a stack of the module, and gives the memory of that stack back. The result comes
/// back through the stack of the caller, so it should not be secret bytes but a handle to them.
pub fn without_trace<R>(work: impl FnOnce() -> R) -> Option<R> {
    let _uncancelled = Uncancelled::begin();
    let result = platform::without_trace(work);
    clear_registers();
    result
}

/// Makes the keys under which threads note the bounds of their stacks, when the module is loaded.
pub fn prepare() {
    platform::prepare();
}

#[cfg(target_arch = "x86_64")]
mod platform {
    use std::arch::asm;
    use std::ffi::c_void;
    use std::ptr::null_mut;
    use std::sync::Mutex;

    use lockstep_engine::{ROOM_BYTES, STACK_BYTES};
    use once_cell::race::OnceBox;
    use rustix::mm::{
        Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
    };

    use crate::host::c_library::{ThreadKey, soft_limit};

    /// Size of the guard below every stack: running over the end of a stack must be noticed.
    const GUARD_BYTES: usize = 4096;
    /// Number of unused stacks that are kept.
    const KEPT: usize = 64;
    /// Number of unused stacks that keep their memory, 30 to 120 KiB each. An idle process has no
    /// more memory in stacks.
    const WARM: usize = 4;

    pub fn with_room<R>(work: impl FnOnce() -> R) -> Option<R> {
        if has_room() {
            return Some(work());
        }
        let stack = Stack::take()?;
        let result = stack.call(work);
        stack.keep();
        Some(result)
    }

    pub fn without_trace<R>(work: impl FnOnce() -> R) -> Option<R> {
        #[cfg(feature = "fault-injection")]
        if crate::fault::planted("no-room") {
            return Some(work());
        }
        let stack = Stack::take()?;
        let result = stack.call(work);
        stack.empty();
        Some(result)
    }

    /// Returns whether the calling thread runs on its own stack and that has room. A thread may
    /// also run on a stack that only its program knows, as a job does.
    fn has_room() -> bool {
        let (low, high) = noted().unwrap_or_else(|| {
            let bounds = if may_fail_to_grow() {
                Some(NO_ROOM)
            } else {
                bounds()
            };
            if let Some(bounds) = bounds {
                note(bounds);
            }
            bounds.unwrap_or_default()
        });
        let here = (&raw const low).addr();
        here < high && here.saturating_sub(low) >= ROOM_BYTES
    }

    /// Keys under which a thread notes the bounds of its stack.
    static KEYS: OnceBox<[ThreadKey; 2]> = OnceBox::new();

    /// Makes the keys. Without them every call finds out the bounds anew. If two threads come at
    /// the same time, both may make keys, and the keys of one are not used.
    pub fn prepare() {
        if KEYS.get().is_none()
            && let (Some(low), Some(high)) = (ThreadKey::new(), ThreadKey::new())
        {
            let _ = KEYS.set(Box::new([low, high]));
        }
    }

    /// Returns the bounds that the calling thread has noted.
    fn noted() -> Option<(usize, usize)> {
        let [low, high] = KEYS.get()?.map(ThreadKey::get);
        // A thread without a note has zeros.
        (high != 0).then_some((low, high))
    }

    fn note((low, high): (usize, usize)) {
        if let Some(keys) = KEYS.get() {
            keys[0].set(low);
            keys[1].set(high);
        }
    }

    /// Bounds of a stack that has no room: no address is within.
    const NO_ROOM: (usize, usize) = (0, 1);

    /// Returns whether the stack of the calling thread may fail to grow. The main thread's stack
    /// grows as it is used, and a limit on address space may refuse that, which ends the program. A
    /// failure to map a stack of the module does no harm.
    fn may_fail_to_grow() -> bool {
        rustix::thread::gettid() == rustix::process::getpid()
            && soft_limit(libc::RLIMIT_AS) != Some(libc::RLIM_INFINITY)
    }

    /// Returns the bounds of the calling thread's stack.
    pub(super) fn bounds() -> Option<(usize, usize)> {
        // SAFETY: the attributes are initialised by the first call, read by the second, and
        // destroyed.
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

    /// A mapping with a guard page at its low end.
    struct Stack(*mut c_void);

    // SAFETY: plain memory that belongs to the owner of the value.
    unsafe impl Send for Stack {}

    /// Unused stacks. The lock is only tried: in a forked child it may be locked for ever.
    static UNUSED: Mutex<Unused> = Mutex::new(Unused {
        warm: Vec::new(),
        cold: Vec::new(),
    });

    struct Unused {
        warm: Vec<Stack>,
        /// Stacks without memory, until they are used again.
        cold: Vec<Stack>,
    }

    impl Stack {
        fn take() -> Option<Stack> {
            let kept = UNUSED
                .try_lock()
                .ok()
                .and_then(|mut unused| unused.warm.pop().or_else(|| unused.cold.pop()));
            kept.or_else(Stack::map)
        }

        fn keep(self) {
            if let Ok(mut unused) = UNUSED.try_lock()
                && unused.warm.len() < WARM
            {
                unused.warm.push(self);
                return;
            }
            self.empty();
        }

        /// Gives the memory back. If that fails, the stack is unmapped.
        fn empty(self) {
            // The lock is not held during the call, so that other threads can take it.
            // SAFETY: the mapping is ours and nobody runs on it; its pages are zero when next
            // touched.
            let emptied = unsafe { madvise(self.0, STACK_BYTES, Advice::LinuxDontNeed) }.is_ok();
            if emptied
                && let Ok(mut unused) = UNUSED.try_lock()
                && unused.cold.len() < KEPT - WARM
            {
                unused.cold.push(self);
            }
        }

        fn map() -> Option<Stack> {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let kind = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
            // SAFETY: a new mapping, at an address of the kernel's choice, and its first page.
            unsafe {
                let stack = Stack(mmap_anonymous(null_mut(), STACK_BYTES, access, kind).ok()?);
                mprotect(stack.0, GUARD_BYTES, MprotectFlags::empty()).ok()?;
                Some(stack)
            }
        }

        /// Calls `work` on this stack.
        fn call<R>(&self, work: impl FnOnce() -> R) -> R {
            let mut errand = Errand {
                work: Some(work),
                result: None,
            };
            call_on(self.0.wrapping_byte_add(STACK_BYTES), &mut errand);
            errand.result.expect("it was called")
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours and nobody runs on it.
            let _ = unsafe { munmap(self.0, STACK_BYTES) };
        }
    }

    struct Errand<W, R> {
        work: Option<W>,
        result: Option<R>,
    }

    /// Makes the call of an errand with the stack pointer at `top`, the 16-aligned upper end of a
    /// stack.
    fn call_on<W: FnOnce() -> R, R>(top: *mut c_void, errand: &mut Errand<W, R>) {
        // SAFETY: the stack has room and nobody runs on it. `run` is called by its own convention,
        // and all registers that this may change are declared as changed. It preserves r12, which
        // holds our stack pointer meanwhile. It never unwinds.
        unsafe {
            asm!(
                "xchg rsp, r12",
                "call {run}",
                "mov rsp, r12",
                run = in(reg) run::<W, R> as extern "C" fn(&mut Errand<W, R>),
                in("rdi") std::ptr::from_mut(errand),
                inout("r12") top => _,
                clobber_abi("C"),
            );
        }
    }

    extern "C" fn run<W: FnOnce() -> R, R>(errand: &mut Errand<W, R>) {
        errand.result = errand.work.take().map(|work| work());
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod platform {
    pub fn prepare() {}

    pub fn with_room<R>(_work: impl FnOnce() -> R) -> Option<R> {
        None
    }

    pub fn without_trace<R>(_work: impl FnOnce() -> R) -> Option<R> {
        None
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Uses more stack than a job has.
    #[inline(never)]
    fn deep(depth: usize) -> usize {
        let frame = std::hint::black_box([depth; 512]);
        match depth {
            0 => 0,
            _ => deep(depth - 1) + frame[depth % 512] / depth,
        }
    }

    /// Runs `test` on a thread with about as little stack as stunnel gives its own.
    fn on_little(test: impl FnOnce() + Send + 'static) {
        let little = std::thread::Builder::new().stack_size(64 * 1024);
        little.spawn(test).unwrap().join().unwrap();
    }

    fn here() -> usize {
        let local = 0_u8;
        (&raw const local).addr()
    }

    #[test]
    fn work_has_room_and_its_result_comes_back() {
        on_little(|| {
            let words = [1, 2, 3];
            let (there, sum, depth) =
                with_room(|| (here(), words.iter().sum::<i32>(), deep(60))).unwrap();
            assert_eq!((sum, depth), (6, 60));
            let (low, high) = platform::bounds().unwrap();
            assert!((low..high).contains(&here()) && !(low..high).contains(&there));
        });
    }

    #[test]
    fn a_stack_with_room_is_kept() {
        let roomy = std::thread::Builder::new().stack_size(1 << 20);
        let test = || {
            let (low, high) = platform::bounds().unwrap();
            assert!((low..high).contains(&with_room(here).unwrap()));
        };
        roomy.spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn work_within_work_has_a_stack_of_its_own() {
        on_little(|| {
            let (outer, inner, after) = with_room(|| {
                let inner = with_room(here).unwrap();
                (here(), inner, deep(60))
            })
            .unwrap();
            assert!(outer.abs_diff(inner) > 4096);
            assert_eq!(after, 60);
        });
    }

    #[test]
    fn work_without_a_trace_leaves_nothing_on_its_stack() {
        const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec3;
        let roomy = std::thread::Builder::new().stack_size(1 << 20);
        let test = || {
            let leave = || {
                let left = std::hint::black_box([SECRET; 512]);
                (&raw const left).addr()
            };
            let (low, high) = platform::bounds().unwrap();
            let there = without_trace(leave).unwrap();
            assert!(!(low..high).contains(&there), "on a stack of its own");
            // SAFETY: a part of that stack, which is kept; other tests may use it, but they leave
            // other words there.
            let words = unsafe { std::slice::from_raw_parts(there as *const u64, 512) };
            assert!(!std::hint::black_box(words).contains(&SECRET));
        };
        roomy.spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn threads_have_one_each() {
        for _ in 0..4 {
            on_little(|| {
                for _ in 0..1000 {
                    assert_eq!(with_room(|| deep(40)), Some(40));
                }
            });
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| on_little(|| assert_eq!(with_room(|| deep(60)), Some(60))));
            }
        });
    }
}
