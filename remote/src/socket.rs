//! A socket in a program that may close all descriptors and reuse their numbers for other files.
//!
//! Servers do this when they become daemons or fork. So the kernel is asked for the object behind a
//! number before it is used or closed. Any object other than this socket is left alone.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{
    AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

use lockstep_ring::has_hung_up;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;

/// The socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// `None` once it is dropped.
    stream: Option<UnixStream>,
    identity: Identity,
}

/// Device and inode of a file. In practice, no other file has the same while this one is open.
type Identity = (u64, u64);

fn identity(file: BorrowedFd<'_>) -> io::Result<Identity> {
    let about = fstat(file)?;
    Ok((about.st_dev, about.st_ino))
}

impl Socket {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Socket> {
        Ok(Socket {
            identity: identity(stream.as_fd())?,
            stream: Some(stream),
        })
    }

    fn is_this(&self, stream: &UnixStream) -> bool {
        identity(stream.as_fd()).is_ok_and(|identity| identity == self.identity)
    }

    /// Returns the socket, unless its number is another file's now.
    pub(crate) fn stream(&self) -> Option<&UnixStream> {
        self.stream.as_ref().filter(|stream| self.is_this(stream))
    }

    /// Returns whether the other side has closed its end, or the number is another file's now.
    pub(crate) fn has_hung_up(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_none_or(|stream| !self.is_this(stream) || has_hung_up(stream))
    }
}

impl Drop for Socket {
    /// Closes it, unless its number is another file's now.
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            match self.is_this(&stream) {
                true => drop(stream),
                false => _ = stream.into_raw_fd(),
            }
        }
    }
}

/// Waits at most `time` for input or the end of the other side; returns whether one of them has
/// come.
pub(crate) fn has_input(stream: &UnixStream, time: Duration) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    poll(&mut polled, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// The number of the last opened socket, for a forked child, which closes its copy. The mark has no
/// lock: if a thread of the parent held it at the fork, the child could never take it.
#[derive(Debug)]
pub struct Mark {
    /// Negative if there is no socket.
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Mark {
    /// Creates a mark without a socket.
    pub const fn new() -> Mark {
        Mark {
            number: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Notes a socket that was just opened.
    pub(crate) fn set(&self, stream: &UnixStream) -> io::Result<()> {
        let (device, inode) = identity(stream.as_fd())?;
        self.number.store(-1, Release);
        self.device.store(device, Release);
        self.inode.store(inode, Release);
        self.number.store(stream.as_raw_fd(), Release);
        Ok(())
    }

    /// Returns the number, and forgets it. [`Mark::is_of`] tells whether it is still the socket's.
    pub fn take(&self) -> Option<RawFd> {
        let number = self.number.swap(-1, AcqRel);
        (number >= 0).then_some(number)
    }

    /// Returns whether the file with this number on this device is the last noted socket.
    pub fn is_of(&self, device: u64, inode: u64) -> bool {
        (device, inode) == (self.device.load(Relaxed), self.inode.load(Relaxed))
    }
}

impl Default for Mark {
    fn default() -> Mark {
        Mark::new()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::dup2;

    use super::*;

    #[test]
    fn a_socket_is_closed_at_its_end() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let socket = Socket::new(here).expect("a socket");
        assert!(!socket.has_hung_up() && !has_hung_up(&there));
        drop(socket);
        assert!(has_hung_up(&there));
    }

    #[test]
    fn a_mark_is_of_the_last_socket_until_it_is_taken() {
        let (first, second) = UnixStream::pair().expect("sockets");
        let mark = Mark::new();
        assert_eq!(mark.take(), None);
        for (socket, other) in [(&first, &second), (&second, &first)] {
            mark.set(socket).expect("a socket");
            let is_of = |stream: &UnixStream| {
                let (device, inode) = identity(stream.as_fd()).expect("a socket");
                mark.is_of(device, inode)
            };
            assert!(is_of(socket) && !is_of(other));
        }
        assert_eq!(mark.take(), Some(second.as_raw_fd()));
        assert_eq!(mark.take(), None);
    }

    #[test]
    fn a_number_that_is_used_again_is_left_alone() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let mut socket = Socket::new(here).expect("a socket");
        // Simulates a program that has closed the number and opened a file.
        let file = open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("a file");
        let mut number = OwnedFd::from(socket.stream.take().expect("open"));
        dup2(&file, &mut number).expect("a descriptor");
        let link = format!("/proc/self/fd/{}", number.as_raw_fd());
        socket.stream = Some(UnixStream::from(number));
        assert!(has_hung_up(&there) && socket.has_hung_up());
        drop(socket);
        let left = Path::new(&link).read_link().expect("an open file");
        assert_eq!(left, Path::new("/dev/null"));
    }
}
