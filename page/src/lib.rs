//! A file of counters, mapped into the processes that count.
//!
//! [`create`] makes a file, has the file system allocate its beginning, maps all of it, and closes
//! it. From then on a counter is an atomic in memory: to count takes no system call and no
//! descriptor, so neither a change of user or root directory nor a filter of system calls affects
//! it. A forked child inherits the mapping. Other programs read the file and never map it. The rest
//! of the file is [allocated](Mapped::allocate) when it is needed: most programs have one process
//! and never need the rest, and allocating a page takes much longer than counting.
//!
//! A mapped file has one danger: an access to a part that the file system cannot provide ends the
//! process with SIGBUS. Four rules prevent that.
//!
//! - The size of the file is compared with `RLIMIT_FSIZE` before the file is made. Beyond the limit
//!   the kernel would end the process with SIGXFSZ.
//! - A part is allocated before it is used. A full file system is an error here.
//! - Only file systems on which an allocated block can always be written are used
//!   ([`is_reliable`]).
//! - Nobody truncates the file. Its mode is 0600, so only its user and root could. Our own code
//!   only ever unlinks it. Seals against truncation exist for files without a name only.
//!
//! The mapping is never undone, so a reference to a counter is valid until the process ends. A
//! process maps one such file in its life; tests map a few.

#![allow(unsafe_code, reason = "counters in a mapping")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A file that this process has mapped.
#[derive(Debug)]
pub struct Mapped {
    /// The contents, zero at first. Every process that has mapped the file reads and writes them as
    /// they are.
    ///
    /// Only allocated words may be used.
    pub words: &'static [AtomicU64],
    /// Number of words, from the beginning, that are allocated.
    pub allocated: usize,
    /// Device and inode of the file, which identify it.
    pub identity: (u64, u64),
}

/// Reason why a file was not made.
#[derive(Debug)]
pub enum Refused {
    /// The process may not write files of this size, in bytes (`RLIMIT_FSIZE`).
    FileSize(u64),
    /// Writing to a mapped file may fail on this kind of file system.
    FileSystem,
    /// The system refused.
    System(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::FileSize(limit) => {
                write!(
                    f,
                    "the process may write files of at most {limit} bytes (RLIMIT_FSIZE)"
                )
            }
            Refused::FileSystem => f.write_str(
                "a mapped file is not safe on this file system; tmpfs, ext4 and XFS are suitable",
            ),
            Refused::System(error) => error.fmt(f),
        }
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused::System(error.into())
    }
}

impl Mapped {
    /// Has the kernel allocate the first `words` words, of which `allocated` are allocated already.
    /// Returns false if the kernel cannot; then the words from `allocated` on must not be used.
    ///
    /// This makes one system call and takes no lock, so it may run in a handler of
    /// `pthread_atfork`.
    pub fn allocate(&self, allocated: usize, words: usize) -> bool {
        let page = rustix::param::page_size() / 8;
        let Some(part) = self.words.get(allocated / page * page..words) else {
            return false;
        };
        // SAFETY: a part of the mapping. The call changes no contents.
        let populated = unsafe {
            let start = part.as_ptr().cast_mut().cast();
            rustix::mm::madvise(start, size_of_val(part), Advice::LinuxPopulateWrite)
        };
        populated.is_ok()
    }
}

/// Makes the file `name` in `directory`, readable and writable by its user only, and maps `words`
/// words of it. The first `at_first` words are allocated, or all words if the system cannot
/// allocate a part now and the rest later. Fails if there is such a file already. After an error,
/// this leaves no file that it has made.
pub fn create(
    directory: BorrowedFd<'_>,
    name: &Path,
    words: usize,
    at_first: usize,
) -> Result<Mapped, Refused> {
    let bytes = words as u64 * 8;
    let limit = file_size_limit()?;
    if limit < bytes {
        return Err(Refused::FileSize(limit));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    fill(&file, words, at_first).inspect_err(|_| {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    })
}

/// Returns the size of the longest file that this process may write; `u64::MAX` if there is no
/// limit. rustix has this call too, but assumes that it cannot fail, and a filter can deny it.
fn file_size_limit() -> Result<u64, Refused> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } {
        0 => Ok(limit.rlim_cur),
        _ => Err(Refused::System(io::Error::last_os_error())),
    }
}

/// Allocates and maps a file that was just made.
fn fill(file: &OwnedFd, words: usize, at_first: usize) -> Result<Mapped, Refused> {
    // The field has another type on other architectures.
    #[allow(clippy::unnecessary_cast)]
    let kind = rustix::fs::fstatfs(file)?.f_type as u64;
    if !is_reliable(kind) {
        return Err(Refused::FileSystem);
    }
    allocate(file, at_first as u64 * 8)?;
    // A filter of system calls may deny `ftruncate`. Then all words are allocated, which makes the
    // file long enough.
    let is_long = rustix::fs::ftruncate(file, words as u64 * 8).is_ok();
    if !is_long {
        allocate(file, words as u64 * 8)?;
    }
    let about = rustix::fs::fstat(file)?;
    let mut mapped = Mapped {
        words: map(file.as_fd(), words)?,
        allocated: if is_long { at_first } else { words },
        identity: (about.st_dev, about.st_ino),
    };
    // A kernel that cannot allocate more later (before Linux 5.14) fails here.
    if !mapped.allocate(0, at_first) {
        allocate(file, words as u64 * 8)?;
        mapped.allocated = words;
    }
    Ok(mapped)
}

/// Returns whether an allocated block of a file can always be written on a file system of this
/// kind, which is the number that `statfs` gives.
///
/// False for file systems that write a changed block to another place, which a full disk may not
/// have (Btrfs, ZFS), and for file systems of a network or of another process. With overlayfs the
/// upper layer decides. This process cannot see that layer, which is ext4 or XFS almost everywhere.
fn is_reliable(kind: u64) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const EXT: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    const F2FS: u64 = 0xF2F5_2010;
    const OVERLAYFS: u64 = 0x794C_7630;
    [TMPFS, EXT, XFS, F2FS, OVERLAYFS].contains(&kind)
}

/// Has the file system allocate all blocks, which read as zero.
fn allocate(file: &OwnedFd, bytes: u64) -> Result<(), Refused> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, bytes),
        Err(error) => Err(error.into()),
    }
}

fn write_zeros(file: &OwnedFd, bytes: u64) -> Result<(), Refused> {
    let zeros = [0; 4096];
    let mut written = 0;
    while written < bytes {
        let rest = zeros.len().min((bytes - written) as usize);
        match rustix::io::pwrite(file, &zeros[..rest], written) {
            Ok(0) => return Err(Errno::NOSPC.into()),
            Ok(length) => written += length as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Maps the first `words` words of a file that is at least as long.
fn map(file: BorrowedFd<'_>, words: usize) -> Result<&'static [AtomicU64], Refused> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so no other mapping is replaced.
    let start =
        unsafe { rustix::mm::mmap(null_mut(), words * 8, protection, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping is `words` words long, begins on a page, may be read and written, and is
    // never undone. Any bits are a valid `AtomicU64`, and all processes that have mapped the file
    // access it through these atomics alone, and only where blocks are allocated, which stay so:
    // see the crate.
    Ok(unsafe { slice::from_raw_parts(start.cast::<AtomicU64>(), words) })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::Ordering;

    use lockstep_testkit::TempDir;

    use super::*;

    fn directory(name: &str) -> (TempDir, File) {
        let path = TempDir::new(&format!("page-{name}"));
        let open = File::open(&path).unwrap();
        (path, open)
    }

    #[test]
    fn what_is_counted_is_in_the_file() {
        let (path, open) = directory("counted");
        let mapped = create(open.as_fd(), Path::new("page"), 1000, 1000).unwrap();
        mapped.words[999].fetch_add(0x1234, Ordering::Relaxed);
        let about = fs::metadata(path.join("page")).unwrap();
        assert_eq!((about.len(), about.mode() & 0o777), (8000, 0o600));
        assert_eq!((about.dev(), about.ino()), mapped.identity);
        assert!(about.blocks() * 512 >= 8000, "{}", about.blocks());
        let bytes = fs::read(path.join("page")).unwrap();
        assert_eq!(bytes[..7992], [0; 7992]);
        assert_eq!(bytes[7992..], 0x1234_u64.to_ne_bytes());
        let again = create(open.as_fd(), Path::new("page"), 1000, 1000);
        assert!(matches!(again, Err(Refused::System(_))), "{again:?}");
        assert!(path.join("page").exists(), "the other file stays");
    }

    #[test]
    fn the_rest_is_allocated_when_it_is_asked_for() {
        let (path, open) = directory("rest");
        let (words, page) = (8 * 512, 512);
        let mapped = create(open.as_fd(), Path::new("page"), words, page).unwrap();
        let blocks = || fs::metadata(path.join("page")).unwrap().blocks();
        let length = fs::metadata(path.join("page")).unwrap().len();
        assert_eq!(length, 8 * words as u64);
        if mapped.allocated == words {
            eprintln!("skipped: this kernel allocates all at first");
            return;
        }
        assert_eq!((mapped.allocated, blocks()), (page, 8));
        assert!(mapped.allocate(page, 3 * page + 1));
        assert_eq!(blocks(), 4 * 8, "whole pages");
        assert!(mapped.allocate(4 * page, words) && !mapped.allocate(0, words + 1));
        assert_eq!(blocks(), 8 * 8);
    }

    #[test]
    fn zeros_are_written_where_nothing_can_be_allocated() {
        let (path, _) = directory("zeros");
        let file = OwnedFd::from(File::create_new(path.join("page")).unwrap());
        write_zeros(&file, 10_000).unwrap();
        assert_eq!(fs::read(path.join("page")).unwrap(), [0; 10_000]);
    }

    #[test]
    fn a_file_system_that_can_fail_later_is_refused() {
        // /proc is such a file system; the file cannot even be made there.
        let proc = File::open("/proc").unwrap();
        assert!(create(proc.as_fd(), Path::new("page"), 1, 1).is_err());
        assert!(is_reliable(0x0102_1994) && !is_reliable(0x9123_683E));
    }
}
