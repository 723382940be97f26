//! The control register of floating point during batches, and the vector registers after them.
//!
//! On some Intel cores the time of some integer vector instructions, `vpmadd52luq` and `vpmuludq`
//! among them, can depend on their operands unless all exception flags in MXCSR are set already
//! (Intel, "MXCSR Configuration Dependent Timing"). Nothing else in a kernel depends on that
//! register. See `docs/decisions/operations.md`.
//!
//! Every kernel of a public-key operation runs while a [`Steady`] lives. Dropping the [`Steady`]
//! [clears](clear_registers) the vector registers. After AES-GCM and HMAC, the caller clears them.

use core::marker::PhantomData;

use super::registers::clear_registers;

/// Every exception masked and its flag set, the other bits as at the start of a program. Intel
/// recommends this value.
pub(crate) const STEADY: u32 = 0x1fbf;

/// Guard that keeps the register of its thread at [`STEADY`]. Dropping it clears all vector
/// registers.
pub(crate) struct Steady {
    before: u32,
    /// Keeps the guard on its thread, to which the register belongs.
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

/// Returns the register; without such a register, its value at the start of a program.
#[inline]
pub(crate) fn read() -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = 0_u32;
        // SAFETY: the instruction is part of every x86-64 CPU and writes four bytes, which are
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
    // SAFETY: the instruction is part of every x86-64 CPU; a value from `read` or `STEADY` has no
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

    /// A value that no batch sets: an application may have changed the rounding and seen an
    /// exception.
    const OF_APPLICATION: u32 = 0x1f80 | 1 << 13 | 1 << 5;

    #[test]
    fn batches_run_with_all_flags_set_and_leave_the_register_as_it_was() {
        let first = read();
        for backend in Backend::available() {
            for before in [first, OF_APPLICATION] {
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
            write(OF_APPLICATION);
            let caught = catch_unwind(|| {
                let jobs = &mut [0];
                dispatch!(backend, jobs, fail);
            });
            let after = read();
            write(first);
            assert!(caught.is_err());
            assert_eq!(after, OF_APPLICATION, "{backend:?}");
        }
    }

    #[test]
    fn guards_may_be_nested() {
        let first = read();
        {
            let _outer = Steady::new();
            drop(Steady::new());
            assert_eq!(read(), STEADY);
        }
        assert_eq!(read(), first);
    }
}
