//! The socket of a daemon that gets none from systemd.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::umask;

/// Listens at a path. Every user can reach the socket; the daemon decides by the client's user.
///
/// The new socket replaces an old one in one step. A client finds either the old daemon, which
/// keeps its clients, or the new one.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    // Different from the final name, and no longer if that ends with `.sock`.
    let mut fresh = path.with_extension("new");
    if fresh == path {
        fresh.set_extension("old");
    }
    let listen = || {
        remove_socket(&fresh)?;
        // The umask sets the mode when the socket is created. A later change would go by the path,
        // where another file may be by then. The process has one thread so far.
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

/// Removes a socket, and no other kind of file.
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
        // Another daemon replaces the socket.
        let next = listen(&path).expect("a socket");
        drop(std::os::unix::net::UnixStream::connect(&path).expect("a listener"));
        next.set_nonblocking(true).expect("a socket");
        assert!(next.accept().is_ok());
        // A daemon that was killed at its start has left a socket behind.
        let fresh = place.join("socket.new");
        drop(UnixListener::bind(&fresh).expect("a socket"));
        drop(listen(&path).expect("a socket"));
        assert!(!fresh.exists());
        // A file that is not a socket stays.
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
