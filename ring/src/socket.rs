//! The Unix socket by which a client gets the descriptor of its ring. By the socket, each side also
//! notices the end of the other side, and the daemon learns the client's user.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Sends `bytes`, which must not be empty, with a descriptor.
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

/// The result of one receive call.
#[derive(Debug)]
pub struct Received {
    /// Number of bytes; 0 means that the other side has hung up.
    pub length: usize,
    /// Descriptor that came with the bytes.
    pub descriptor: Option<OwnedFd>,
    /// Process that sent the bytes, if the socket [reports](tells_senders) it and the process has a
    /// number in this PID namespace.
    pub process: Option<i32>,
}

/// Has the socket report the sending process from now on.
pub fn tells_senders(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_passcred(socket, true)?)
}

/// Room for control messages: a descriptor, and the sender.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Receives bytes into `bytes`, and at most one descriptor; others are closed. `EMFILE` means that
/// the kernel has dropped the descriptor, since this process has reached its limit.
///
/// Calls the C library, since `rustix` reads the number of a process into a type that has no 0.
#[allow(unsafe_code, reason = "a call of recvmsg, and its control messages")]
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; 128]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a structure of numbers and pointers, for which zeros mean nothing and NULL.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the header names two buffers that live during the call, with their lengths.
    let length = unsafe { libc::recvmsg(number, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received {
        length,
        descriptor: None,
        process: None,
    };
    // SAFETY: the kernel has written messages into the aligned room, and their length to the
    // header. The macros of the C library stay within it, and each value that is read is complete.
    // Each descriptor is this process's own, and is taken once.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(about) = message.as_ref() {
            let data = libc::CMSG_DATA(message);
            let size = about.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            match (about.cmsg_level, about.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for place in 0..size / size_of::<libc::c_int>() {
                        let number = data.cast::<libc::c_int>().add(place).read_unaligned();
                        let own = OwnedFd::from_raw_fd(number);
                        received.descriptor.get_or_insert(own);
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if size >= size_of::<libc::ucred>() => {
                    let sender = data.cast::<libc::ucred>().read_unaligned();
                    received.process = Some(sender.pid).filter(|&process| process > 0);
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    if received.descriptor.is_none() && header.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(Errno::MFILE.into());
    }
    Ok(received)
}

/// Returns whether the other side has closed its end.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let ended = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
    let polls = poll(&mut polled, Some(&Timespec::default()));
    polls.is_ok() && polled[0].revents().intersects(ended)
}

/// Returns about how many sent bytes the other side has not read yet; `None` if the kernel does not
/// report it.
#[allow(unsafe_code, reason = "a call of ioctl")]
pub fn unread(socket: impl AsFd) -> Option<usize> {
    let mut bytes: libc::c_int = 0;
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one int, and the buffer lives during the call.
    let failed = unsafe { libc::ioctl(number, libc::TIOCOUTQ, &raw mut bytes) };
    (failed == 0).then(|| usize::try_from(bytes).unwrap_or(0))
}

/// The other side's process, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number, or 0 if it has none in this PID namespace.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// Returns the other side's process. Calls the C library, since `rustix` reads the number of a
/// process into a type that has no 0.
#[allow(unsafe_code, reason = "a call of getsockopt")]
pub fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let mut read = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of_val(&read) as libc::socklen_t;
    // SAFETY: both buffers live during the call, and the length is that of the first one.
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
