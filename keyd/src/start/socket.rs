//! The socket that the daemon makes itself.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::umask;

/// Listens at a path. Who may connect is decided by the client's user, so everybody may reach it.
///
/// The socket takes the place of another one in one step: clients find either the daemon before
/// this one, which keeps those that it has, or this one.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    // As long as any name of a socket may be, and not that of this one.
    let mut fresh = path.with_extension("new");
    if fresh == path {
        fresh.set_extension("old");
    }
    let listen = || {
        remove_socket(&fresh)?;
        // Its mode from its first moment on: a later change would be one of a path, behind which
        // there may be something else by then. There is one thread so far.
        let before = umask(Mode::from_raw_mode(0o111));
        let listener = UnixListener::bind(&fresh);
        umask(before);
        let listener = listener?;
        match fs::symlink_metadata(path) {
            Ok(about) if !about.file_type().is_socket() => Err(ErrorKind::AlreadyExists.into()),
            _ => fs::rename(&fresh, path).map(|()| listener),
        }
    };
    listen().map_err(|error| {
        let _ = remove_socket(&fresh);
        io::Error::other(format!("cannot listen at {}: {error}", path.display()))
    })
}

/// Removes what is left of a socket, and nothing else.
fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use lockstep_testkit::TempDir;

    use super::*;

    #[test]
    fn a_socket_has_its_mode_from_the_first_moment_on() {
        let place = TempDir::new("listen");
        let path = place.join("socket");
        let umask = || {
            let status = fs::read_to_string("/proc/self/status").expect("/proc");
            let mut lines = status.lines();
            lines
                .find(|line| line.starts_with("Umask:"))
                .map(str::to_owned)
        };
        let before = umask();
        let _listener = listen(&path).expect("a socket");
        let mode = fs::metadata(&path).expect("a socket").mode() & 0o777;
        assert_eq!((mode, umask()), (0o666, before));
        // Another daemon takes the place of this one.
        let next = listen(&path).expect("a socket");
        drop(std::os::unix::net::UnixStream::connect(&path).expect("a listener"));
        next.set_nonblocking(true).expect("a socket");
        assert!(next.accept().is_ok());
        // A daemon that was killed while it began has left a socket behind.
        let fresh = place.join("socket.new");
        drop(UnixListener::bind(&fresh).expect("a socket"));
        drop(listen(&path).expect("a socket"));
        assert!(!fresh.exists());
        // What is no socket stays, there as well.
        fs::write(&fresh, "mine").expect("a file");
        assert!(listen(&path).is_err() && path.exists());
        let old = place.join("socket.old");
        fs::write(&old, "mine").expect("a file");
        assert!(listen(&fresh).is_err());
        assert_eq!(
            [&fresh, &old].map(|file| fs::read(file).ok()),
            [(); 2].map(|()| Some(b"mine".to_vec()))
        );
        fs::remove_file(&fresh).expect("a file");
        assert!(listen(&fresh).is_err());
        fs::remove_file(&old).expect("a file");
        assert!(listen(&fresh).is_ok() && listen(&path).is_ok());
        let file = place.join("file");
        fs::write(&file, "mine").expect("a file");
        assert!(listen(&file).is_err());
        assert_eq!(fs::read(&file).expect("a file"), b"mine");
    }
}
