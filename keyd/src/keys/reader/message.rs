//! The messages of the process that opens files.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lockstep_ring::{receive, send};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::keys::files::Place;

/// Maximum length of a message: a path, and a reason.
pub const LONGEST: usize = 16 << 10;

/// A message to the daemon. The number is that of the section.
#[derive(Debug)]
pub enum Message {
    /// A file is new or has changed.
    File(usize, PathBuf, Place, File),
    /// A file cannot be used.
    Bad(usize, PathBuf, Place, String),
    /// A file is gone.
    Gone(usize, PathBuf),
    /// Whether there are more files than the maximum.
    TooMany(usize, bool),
    /// Path at which a file system holds up the search of a section, empty if other sections hold
    /// it up; `None` if it is not held up.
    HeldUp(usize, Option<PathBuf>),
    /// The search is complete.
    Done,
}

/// Receives the next message; `None` once the process has ended.
pub fn next(socket: &OwnedFd) -> Option<Message> {
    let mut bytes = [0; LONGEST];
    let received = loop {
        match receive(socket, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The limit of open descriptors leaves room for these files. Without a free descriptor,
            // the file is missed until it changes.
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {}
            received => break received.ok()?,
        }
    };
    parse(&bytes[..received.length], received.descriptor)
}

fn parse(bytes: &[u8], file: Option<OwnedFd>) -> Option<Message> {
    let (&[kind, place], rest) = bytes.split_first_chunk()?;
    let (section, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let section = u32::from_le_bytes(*section) as usize;
    let (path, why) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    let is_so = place == 1;
    let place = match place {
        0 => Place::Key,
        1 => Place::MayBeKey,
        _ => Place::Beside,
    };
    Some(match kind {
        b'f' => Message::File(section, path, place, file?.into()),
        b'b' => Message::Bad(
            section,
            path,
            place,
            String::from_utf8_lossy(why).into_owned(),
        ),
        b'g' => Message::Gone(section, path),
        b'm' => Message::TooMany(section, is_so),
        b'h' => Message::HeldUp(section, is_so.then_some(path)),
        b'd' => Message::Done,
        _ => return None,
    })
}

/// Sends a message to the daemon.
pub fn tell(socket: &OwnedFd, message: &Message) -> io::Result<()> {
    let none = Path::new("");
    let (kind, place, section, path, why) = match message {
        Message::File(section, path, place, _) => (b'f', *place as u8, *section, &**path, ""),
        Message::Bad(section, path, place, why) => (b'b', *place as u8, *section, &**path, &**why),
        Message::Gone(section, path) => (b'g', 0, *section, &**path, ""),
        Message::TooMany(section, is_so) => (b'm', u8::from(*is_so), *section, none, ""),
        Message::HeldUp(section, at) => {
            let path = at.as_deref().unwrap_or(none);
            (b'h', u8::from(at.is_some()), *section, path, "")
        }
        Message::Done => (b'd', 0, 0, none, ""),
    };
    let path = path.as_os_str().as_bytes();
    if path.len() > LONGEST / 2 {
        // Longer than every valid path.
        return Ok(());
    }
    let mut bytes = vec![kind, place];
    bytes.extend((section as u32).to_le_bytes());
    bytes.extend((path.len() as u16).to_le_bytes());
    bytes.extend(path);
    bytes.extend(why.as_bytes());
    bytes.truncate(LONGEST);
    match message {
        Message::File(_, _, _, file) => send(socket, &bytes, file.as_fd()).map(drop),
        _ => Ok(rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL).map(drop)?),
    }
}
