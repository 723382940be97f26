//! The Unix socket by which a client gets its ring: a descriptor goes over it, each side learns by
//! it of the other's end, and the daemon who the client is.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends `bytes`, which must not be empty, and a descriptor with them.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(sent)
}

/// Receives bytes into `bytes`, and a descriptor if one comes with them; others are closed. No
/// bytes mean that the other side has hung up. `EMFILE` says that the kernel has dropped the
/// descriptor, since this process may have no more.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let first = descriptors.next().and_then(|mut all| all.next());
    if first.is_none() && received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    Ok((received.bytes, first))
}

/// Whether the other side has closed its end.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let ended = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
    let polls = poll(&mut polled, Some(&Timespec::default()));
    polls.is_ok() && polled[0].revents().intersects(ended)
}

/// About how many bytes that this side has sent the other side has not read yet. None where the
/// kernel does not say.
#[allow(unsafe_code, reason = "a call of ioctl")]
pub fn unread(socket: impl AsFd) -> Option<usize> {
    let mut bytes: libc::c_int = 0;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one int, and the place is there for the call.
    let failed = unsafe { libc::ioctl(number, libc::TIOCOUTQ, &raw mut bytes) };
    (failed == 0).then(|| usize::try_from(bytes).unwrap_or(0))
}

/// The process at the other side, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number, or 0 if it has none in this process's PID namespace.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// Who is at the other side. (`rustix` reads the number of a process into a type that has no 0.)
#[allow(unsafe_code, reason = "a call of getsockopt")]
pub fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let mut read = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of_val(&read) as libc::socklen_t;
    // SAFETY: both places are there for the call, and the length is that of the first.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut read).cast(),
            &raw mut length,
        )
    };
    match failed {
        0 => Ok(Credentials {
            process: read.pid,
            user: read.uid,
            group: read.gid,
        }),
        _ => Err(io::Error::last_os_error()),
    }
}
