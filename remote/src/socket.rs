//! A socket in a program that may close all descriptors, and use their numbers for others.
//!
//! Servers do that when they become daemons or fork. So before a number is used or closed, the
//! kernel says what is behind it; what is not this socket is left alone.

use std::io;
use std::os::fd::IntoRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError, TryLockError};

use lockstep_ring::has_hung_up;
use rustix::fs::fstat;

/// The socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// None once it is closed.
    stream: Mutex<Option<UnixStream>>,
    identity: (u64, u64),
}

/// What, in practice, no other file has while this one is open: its device, and its number there.
fn identity(stream: &UnixStream) -> io::Result<(u64, u64)> {
    let about = fstat(stream)?;
    Ok((about.st_dev, about.st_ino))
}

impl Socket {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Socket> {
        Ok(Socket {
            identity: identity(&stream)?,
            stream: Mutex::new(Some(stream)),
        })
    }

    fn is_this(&self, stream: &UnixStream) -> bool {
        identity(stream).is_ok_and(|identity| identity == self.identity)
    }

    /// Whether the other side has closed its end, or this side is closed.
    pub(crate) fn has_hung_up(&self) -> bool {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.as_ref();
        stream.is_none_or(|stream| !self.is_this(stream) || has_hung_up(stream))
    }

    /// Closes it. It waits for nothing, and leaves the socket open if another thread looks at it:
    /// in a forked child, that thread is not there.
    pub(crate) fn close(&self) {
        let stream = match self.stream.try_lock() {
            Ok(mut stream) => stream.take(),
            Err(TryLockError::Poisoned(stream)) => stream.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        self.let_go(stream);
    }

    /// Closes the stream, unless its number is another file's now.
    fn let_go(&self, stream: Option<UnixStream>) {
        if let Some(stream) = stream {
            match self.is_this(&stream) {
                true => drop(stream),
                false => _ = stream.into_raw_fd(),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let stream = self.stream.get_mut();
        let stream = stream.unwrap_or_else(PoisonError::into_inner).take();
        self.let_go(stream);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::path::Path;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::dup2;

    use super::*;

    #[test]
    fn a_socket_is_closed_once_and_has_hung_up_then() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let socket = Socket::new(here).expect("a socket");
        assert!(!socket.has_hung_up() && !has_hung_up(&there));
        socket.close();
        assert!(socket.has_hung_up() && has_hung_up(&there));
        socket.close();
    }

    #[test]
    fn a_number_that_is_used_again_is_left_alone() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let socket = Socket::new(here).expect("a socket");
        // As if the program had closed the number, and opened a file.
        let file = open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("a file");
        let mut stream = socket.stream.lock().expect("no panic");
        let mut number = OwnedFd::from(stream.take().expect("open"));
        dup2(&file, &mut number).expect("a descriptor");
        let link = format!("/proc/self/fd/{}", number.as_raw_fd());
        *stream = Some(UnixStream::from(number));
        drop(stream);
        assert!(has_hung_up(&there) && socket.has_hung_up());
        drop(socket);
        let left = Path::new(&link).read_link().expect("an open file");
        assert_eq!(left, Path::new("/dev/null"));
    }
}
