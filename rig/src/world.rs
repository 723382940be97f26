//! A world in which a program behaves the same each time: a counter answers the system calls that
//! the kernel would answer with randomness, time or identity.
//!
//! The program's vDSO is hidden, so that it asks for the time by system calls; its time stamp
//! counter faults and is emulated.

use std::io;

use crate::ptrace::{Registers, Stop, Tracee};

/// The process id that `getpid` returns to a program.
const PID: u64 = 4242;

/// The answers of one run.
pub struct World {
    random: u64,
    /// In nanoseconds; advances with each question.
    clock: u64,
    counter: u64,
}

/// A system call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// Its first three arguments.
    pub arguments: [u64; 3],
}

impl Call {
    /// The call that a process with these registers is in.
    pub fn entered(registers: &Registers) -> Call {
        Call {
            number: registers.orig_rax,
            arguments: [registers.rdi, registers.rsi, registers.rdx],
        }
    }
}

impl World {
    /// A world whose randomness follows from `seed`.
    pub fn new(seed: u64) -> World {
        World {
            random: seed,
            clock: 1_800_000_000_000_000_000,
            counter: 1 << 40,
        }
    }

    /// Takes the vDSO and the random bytes of the kernel from a program that has just started.
    pub fn begin(&self, tracee: &Tracee) -> io::Result<()> {
        const RANDOM: u64 = libc::AT_RANDOM;
        const SYSINFO_EHDR: u64 = libc::AT_SYSINFO_EHDR;
        const IGNORE: u64 = 1;
        let mut at = tracee.registers()?.rsp;
        at += 8 + 8 * (tracee.word(at)? + 1);
        while tracee.word(at)? != 0 {
            at += 8;
        }
        at += 8;
        loop {
            match tracee.word(at)? {
                0 => return Ok(()),
                SYSINFO_EHDR => tracee.write(at, &IGNORE.to_le_bytes())?,
                RANDOM => tracee.write(tracee.word(at + 8)?, &[0x5a; 16])?,
                _ => {}
            }
            at += 16;
        }
    }

    /// Changes the answer to a call that has just been made.
    pub fn answer(&mut self, tracee: &Tracee, call: Call) -> io::Result<()> {
        let [first, second, _] = call.arguments;
        let mut registers = tracee.registers()?;
        match call.number as i64 {
            libc::SYS_getrandom => {
                let bytes: Vec<u8> = (0..second.div_ceil(8))
                    .flat_map(|_| self.word().to_le_bytes())
                    .take(second as usize)
                    .collect();
                tracee.write(first, &bytes)?;
                registers.rax = second;
            }
            libc::SYS_clock_gettime => {
                self.clock += 1_000;
                tracee.write(second, &(self.clock / 1_000_000_000).to_le_bytes())?;
                tracee.write(second + 8, &(self.clock % 1_000_000_000).to_le_bytes())?;
            }
            libc::SYS_gettimeofday if first != 0 => {
                self.clock += 1_000;
                tracee.write(first, &(self.clock / 1_000_000_000).to_le_bytes())?;
                tracee.write(first + 8, &(self.clock / 1_000 % 1_000_000).to_le_bytes())?;
            }
            libc::SYS_time => registers.rax = self.clock / 1_000_000_000,
            libc::SYS_getpid | libc::SYS_gettid | libc::SYS_getppid | libc::SYS_set_tid_address => {
                registers.rax = PID;
            }
            _ => return Ok(()),
        }
        tracee.set_registers(&registers)
    }

    /// Answers a mark by the seed with which the program continues the randomness.
    pub fn mark(&mut self, tracee: &Tracee) -> io::Result<()> {
        let mut registers = tracee.registers()?;
        registers.rax = self.word();
        // The program goes on from there, and so do we if it runs without its translation.
        self.random = registers.rax;
        tracee.set_registers(&registers)
    }

    /// Emulates a read of the time stamp counter, if this signal asks for it.
    pub fn time_stamp(&mut self, tracee: &Tracee, stop: Stop) -> io::Result<bool> {
        if stop != Stop::Signal(libc::SIGSEGV) {
            return Ok(false);
        }
        let mut registers = tracee.registers()?;
        let mut code = [0; 3];
        let read = tracee.read(registers.rip, &mut code).unwrap_or(0);
        let length = match code[..read] {
            [0x0f, 0x31, ..] => 2,
            [0x0f, 0x01, 0xf9] => 3,
            _ => return Ok(false),
        };
        self.counter += 1_000;
        registers.rip += length;
        registers.rax = self.counter & u64::from(u32::MAX);
        registers.rdx = self.counter >> 32;
        if length == 3 {
            registers.rcx = 0;
        }
        tracee.set_registers(&registers)?;
        Ok(true)
    }

    /// The next random word (splitmix64).
    fn word(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
