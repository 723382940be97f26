//! A second stack for each thread, on which kernels run that an async job calls for.
//!
//! A job's own stack has 32 KiB and no guard page below. This one has room, and a guard page.

/// Calls `work` on the calling thread, but on a stack on which kernels may run. None, without a call,
/// if there is no such stack.
///
/// `work` must not pause a job: it would be resumed on a stack that is in use by others.
pub fn with_room<R>(work: impl FnOnce() -> R) -> Option<R> {
    platform::with_room(work)
}

#[cfg(target_arch = "x86_64")]
mod platform {
    use std::arch::asm;
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    /// Enough for every kernel in a build without optimisation.
    const BYTES: usize = 512 * 1024;
    const GUARD_BYTES: usize = 4096;

    thread_local! {
        /// The stack of this thread while nobody runs on it.
        static STACK: Cell<Option<Stack>> = const { Cell::new(None) };
    }

    pub fn with_room<R>(work: impl FnOnce() -> R) -> Option<R> {
        // A thread that ends has no stack left to keep: it maps one each time.
        let kept = STACK.try_with(Cell::take).ok().flatten();
        let stack = kept.or_else(Stack::map)?;
        let result = stack.call(work);
        let _ = STACK.try_with(|kept| kept.set(Some(stack)));
        Some(result)
    }

    /// A mapping with a guard page at its low end.
    struct Stack(*mut c_void);

    impl Stack {
        fn map() -> Option<Stack> {
            // SAFETY: a new mapping, at an address of the kernel's choice.
            let base = unsafe {
                libc::mmap(
                    null_mut(),
                    BYTES,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                    -1,
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return None;
            }
            let stack = Stack(base);
            // SAFETY: the first page of the mapping.
            let guarded = unsafe { libc::mprotect(base, GUARD_BYTES, libc::PROT_NONE) } == 0;
            guarded.then_some(stack)
        }

        fn call<R>(&self, work: impl FnOnce() -> R) -> R {
            let mut errand = Errand {
                work: Some(work),
                result: None,
            };
            call_on(self.0.wrapping_byte_add(BYTES), &mut errand);
            errand.result.expect("it was called")
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours and nobody runs on it.
            unsafe { libc::munmap(self.0, BYTES) };
        }
    }

    struct Errand<W, R> {
        work: Option<W>,
        result: Option<R>,
    }

    /// Does the errand with the stack pointer at `top`, the 16-aligned upper end of a stack.
    fn call_on<W: FnOnce() -> R, R>(top: *mut c_void, errand: &mut Errand<W, R>) {
        // SAFETY: the stack has room and nobody runs on it. `run` is called by its own convention, whose
        // registers are declared as changed, but for r12: that is kept by it, and holds our stack
        // pointer meanwhile. It never unwinds.
        unsafe {
            asm!(
                "xchg rsp, r12",
                "call {run}",
                "mov rsp, r12",
                run = in(reg) run::<W, R> as unsafe extern "C" fn(*mut Errand<W, R>),
                in("rdi") std::ptr::from_mut(errand),
                inout("r12") top => _,
                clobber_abi("C"),
            );
        }
    }

    /// # Safety
    /// `errand` is valid and in nobody else's use.
    unsafe extern "C" fn run<W: FnOnce() -> R, R>(errand: *mut Errand<W, R>) {
        // SAFETY: by contract.
        let errand = unsafe { &mut *errand };
        errand.result = errand.work.take().map(|work| work());
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod platform {
    pub fn with_room<R>(_work: impl FnOnce() -> R) -> Option<R> {
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

    #[test]
    fn work_has_room_and_its_result_comes_back() {
        let here = 0_u8;
        let words = [1, 2, 3];
        let (there, sum, depth) = with_room(|| {
            let there = 0_u8;
            (
                &raw const there as usize,
                words.iter().sum::<i32>(),
                deep(60),
            )
        })
        .unwrap();
        assert_eq!((sum, depth), (6, 60));
        assert!((&raw const here as usize).abs_diff(there) > 64 * 1024);
    }

    #[test]
    fn work_within_work_has_a_stack_of_its_own() {
        let address = || {
            let local = 0_u8;
            &raw const local as usize
        };
        let (outer, inner, after) = with_room(|| {
            let inner = with_room(address).unwrap();
            (address(), inner, deep(60))
        })
        .unwrap();
        assert!(outer.abs_diff(inner) > 4096);
        assert_eq!(after, 60);
    }

    #[test]
    fn every_thread_has_one() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        assert_eq!(with_room(|| deep(40)), Some(40));
                    }
                });
            }
        });
    }
}
