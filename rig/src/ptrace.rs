//! A process under ptrace: the system calls, wrapped. All `unsafe` of this crate is here.

#![allow(unsafe_code, reason = "system calls")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::ptr::null_mut;

/// The general registers of a stopped process.
pub type Registers = libc::user_regs_struct;

/// Why a process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before or after a system call.
    Syscall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has started a thread or a process.
    Cloned,
    /// It has ended with this status.
    Exited(i32),
    /// A signal has ended it.
    Killed(i32),
}

/// A process that stops at every step that is asked for.
pub struct Tracee {
    child: Child,
    pid: i32,
    memory: File,
}

const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK;

impl Tracee {
    /// Starts a program, without randomised addresses and with a time stamp counter that faults.
    /// It is stopped before its first instruction.
    pub fn spawn(command: &mut Command) -> io::Result<Tracee> {
        // SAFETY: between fork and exec the closure makes three system calls and nothing else: it
        // allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        let tracee = Tracee { child, pid, memory };
        match tracee.wait()? {
            Stop::Signal(libc::SIGTRAP) => {}
            other => {
                return Err(io::Error::other(format!(
                    "the program did not start: {other:?}"
                )));
            }
        }
        tracee.request(libc::PTRACE_SETOPTIONS, OPTIONS as usize)?;
        Ok(tracee)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its standard streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Runs until a system call begins or ends, or a signal comes; delivers `signal` before.
    pub fn run(&self, signal: i32) -> io::Result<Stop> {
        self.request(libc::PTRACE_SYSCALL, signal as usize)?;
        self.wait()
    }

    /// The registers.
    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: an all-zero value of this plain struct of integers is valid.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `user_regs_struct` to the last argument, which has room.
        let done = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                self.pid,
                null_mut::<libc::c_void>(),
                &raw mut registers,
            )
        };
        if done == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(registers)
    }

    /// Sets the registers.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        // SAFETY: the kernel reads one `user_regs_struct` from the last argument.
        let done = unsafe {
            libc::ptrace(
                libc::PTRACE_SETREGS,
                self.pid,
                null_mut::<libc::c_void>(),
                std::ptr::from_ref(registers),
            )
        };
        match done {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Lets it run on its own.
    pub fn release(&self) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0)
    }

    /// Reads memory; returns how many bytes could be read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        self.memory.read_at(into, address)
    }

    /// A file whose offsets are the addresses of its memory.
    pub fn memory(&self) -> io::Result<File> {
        self.memory.try_clone()
    }

    /// A word of memory.
    pub fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes memory, also where the program itself may not.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Ends it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A request whose address is not used and whose data is a number.
    fn request(&self, request: libc::c_uint, data: usize) -> io::Result<()> {
        // SAFETY: none of the requests that this file makes so reads or writes our memory.
        let done = unsafe { libc::ptrace(request, self.pid, null_mut::<libc::c_void>(), data) };
        match done {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn wait(&self) -> io::Result<Stop> {
        let mut status = 0;
        // SAFETY: the kernel writes the status to the second argument.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        if pid != self.pid {
            return Err(io::Error::last_os_error());
        }
        Ok(if libc::WIFEXITED(status) {
            Stop::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Stop::Killed(libc::WTERMSIG(status))
        } else if status >> 16 != 0 {
            Stop::Cloned
        } else if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
            Stop::Syscall
        } else {
            Stop::Signal(libc::WSTOPSIG(status))
        })
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The child's work before it becomes the program.
fn prepare() -> io::Result<()> {
    const NO_RANDOMISATION: libc::c_ulong = libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: these calls take numbers only and touch no memory.
    let done = unsafe {
        libc::personality(NO_RANDOMISATION) != -1
            && libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) == 0
            && libc::ptrace(
                libc::PTRACE_TRACEME,
                0,
                null_mut::<libc::c_void>(),
                null_mut::<libc::c_void>(),
            ) != -1
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}
