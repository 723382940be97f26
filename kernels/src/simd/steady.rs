//! The control register of floating point around batches, and the vector registers after them.
//!
//! On some Intel cores the time of some integer vector instructions, `vpmadd52luq` and `vpmuludq`
//! among them, can depend on their operands unless all exception flags in MXCSR are set already
//! (Intel, "MXCSR Configuration Dependent Timing"). No instruction of a kernel looks at that
//! register otherwise. See `docs/decisions/operations.md`.
//!
//! Every kernel of a public-key operation runs while a [`Steady`] lives. So its end is where the
//! vector registers are [cleared](clear_registers). The callers of AES-GCM and HMAC clear them.

use core::marker::PhantomData;

use super::registers::clear_registers;

/// Every exception masked and its flag set, everything else as a program starts: what Intel
/// recommends.
pub(crate) const STEADY: u32 = 0x1fbf;

/// Has the register hold [`STEADY`] as long as it lives, in its thread. Afterwards no vector
/// register holds anything.
pub(crate) struct Steady {
    before: u32,
    /// The register is that of the thread.
    _thread: PhantomData<*const ()>,
}

impl Steady {
    #[inline]
    pub(crate) fn new() -> Self {
        let before = read();
        write(STEADY);
        Self {
            before,
            _thread: PhantomData,
        }
    }
}

impl Drop for Steady {
    #[inline]
    fn drop(&mut self) {
        write(self.before);
        clear_registers();
    }
}

/// The register, or what it holds for a program that starts where there is none.
#[inline]
pub(crate) fn read() -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = 0_u32;
        // SAFETY: the instruction is part of every x86-64 CPU and writes four bytes, those of
        // `value`.
        unsafe {
            core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut value,
                options(nostack, preserves_flags));
        }
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0x1f80
}

#[inline]
fn write(value: u32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is part of every x86-64 CPU; a value of `read` or `STEADY` has no
    // reserved bits, so it does not fault. No code between two writes uses floating point.
    unsafe {
        core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use std::panic::catch_unwind;

    use super::{STEADY, Steady, read, write};
    use crate::backend::{Backend, dispatch, dispatch_25519};
    use crate::simd::Simd;

    fn probe<S: Simd>(_s: S, jobs: &mut [u32]) {
        jobs.fill(read());
    }

    fn fail<S: Simd>(_s: S, jobs: &mut [u32]) {
        jobs.fill(read());
        panic!("on purpose");
    }

    /// Not what a batch sets: an application may have changed the rounding and seen an exception.
    const ELSEWHERE: u32 = 0x1f80 | 1 << 13 | 1 << 5;

    #[test]
    fn batches_run_with_all_flags_set_and_leave_the_register_as_it_was() {
        let first = read();
        for backend in Backend::available() {
            for before in [first, ELSEWHERE] {
                write(before);
                let mut seen = [[0; 2]; 2];
                let [a, b] = &mut seen;
                dispatch!(backend, a, probe);
                dispatch_25519!(backend, b, probe);
                let after = read();
                write(first);
                assert_eq!(seen, [[STEADY; 2]; 2], "{backend:?}");
                assert_eq!(after, before, "{backend:?}");
            }
        }
    }

    #[test]
    fn a_batch_that_panics_leaves_the_register_as_it_was() {
        let first = read();
        for backend in Backend::available() {
            write(ELSEWHERE);
            let caught = catch_unwind(|| {
                let jobs = &mut [0];
                dispatch!(backend, jobs, fail);
            });
            let after = read();
            write(first);
            assert!(caught.is_err());
            assert_eq!(after, ELSEWHERE, "{backend:?}");
        }
    }

    #[test]
    fn turns_may_be_nested() {
        let first = read();
        {
            let _outer = Steady::new();
            drop(Steady::new());
            assert_eq!(read(), STEADY);
        }
        assert_eq!(read(), first);
    }
}
