//! Files that only root can change, and whose paths only root can change.
//!
//! A user who can change a file, a directory or a link on this path chooses the key that the daemon
//! serves, or has root read a file that the user cannot read. So each step is checked: a path is
//! followed one name at a time, each from the descriptor of the directory before it, and no system
//! call follows a link. The daemon reads exactly the file that it has checked: a rename between two
//! steps changes nothing.
//!
//! Root owns each directory and the file, and no other user can write to them. In a sticky
//! directory, like `/tmp`, others can create files but cannot replace root's. A link is followed if
//! root owns it, like certbot's links. A daemon that does not run as root also trusts its own user.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{self, Path, PathBuf};
use std::sync::Arc;

use lockstep_engine::way::{Names, mount_at};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Flags for reading. A pipe or device that has replaced the file does not block the daemon.
const TO_READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const TO_CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Why a file is not opened.
#[derive(Debug)]
pub enum Untrusted {
    /// A system call failed at this path.
    System(PathBuf, io::Error),
    /// This path is not an ordinary file.
    NotAFile(PathBuf),
    /// This path belongs to another user.
    Owner(PathBuf, u32),
    /// Others than the owner can write to this path, with this mode.
    Writable(PathBuf, u32),
    /// This user has mounted a file system at this path.
    Mounted(PathBuf, u32),
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untrusted::System(at, error) => write!(f, "cannot open {}: {error}", at.display()),
            Untrusted::NotAFile(at) => write!(f, "{} is not an ordinary file", at.display()),
            Untrusted::Owner(at, user) => write!(
                f,
                "{0} belongs to user {user}, who can change it; if that is not meant so: \
                 chown -h root {0}",
                at.display()
            ),
            Untrusted::Writable(at, mode) => write!(
                f,
                "others than its owner can write to {0} (mode {mode:o}): chmod go-w {0}",
                at.display()
            ),
            Untrusted::Mounted(at, user) => write!(
                f,
                "user {user} has mounted a file system at {0} (FUSE), and can have each process \
                 that looks into it wait for ever: umount {0}, or keep the file elsewhere",
                at.display()
            ),
        }
    }
}

impl std::error::Error for Untrusted {}

/// Opens a file for reading.
pub fn open(path: &Path) -> Result<File, Untrusted> {
    match reach(path)? {
        Reached::File(found) => found.open(),
        Reached::Directory(way) => Err(Untrusted::NotAFile(way.here().1.to_owned())),
    }
}

/// Opens a file of any owner for reading. The owner may replace it with another kind of file at any
/// moment. A pipe would block the caller, and a device may act when it is opened, so the kind is
/// checked before.
pub fn open_any(path: &Path) -> io::Result<File> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a file"));
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(openat(CWD, same, TO_READ | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Creates a new file in a directory that only root and the user of this process can change.
pub fn create_new(path: &Path) -> Result<File, Untrusted> {
    let system = |error: io::Error| Untrusted::System(path.to_owned(), error);
    let path = path::absolute(path).map_err(system)?;
    let name = path
        .file_name()
        .ok_or_else(|| Untrusted::NotAFile(path.clone()))?;
    let way = match reach(path.parent().unwrap_or(Path::new("/")))? {
        Reached::Directory(way) => way,
        Reached::File(found) => return Err(Untrusted::System(found.at, Errno::NOTDIR.into())),
    };
    let (directory, _) = way.here();
    let file = openat(directory, name, TO_CREATE, Mode::from_raw_mode(0o644));
    file.map(File::from).map_err(|error| system(error.into()))
}

/// The end of a path.
pub enum Reached {
    /// A regular file.
    File(Found),
    /// A directory.
    Directory(Way),
}

/// A regular file that is not opened yet, by its directory and its name.
pub struct Found {
    directory: Arc<OwnedFd>,
    name: OsString,
    at: PathBuf,
    own: u32,
}

impl Found {
    /// Opens the file for reading.
    pub fn open(self) -> Result<File, Untrusted> {
        let (file, about) = step(&*self.directory, &self.name, TO_READ, &self.at, self.own)?;
        // Another file may be there by now.
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
            return Err(Untrusted::NotAFile(self.at));
        }
        check(&self.at, &about, self.own)?;
        Ok(File::from(file))
    }
}

/// The directories of a path from the root directory on. Only root and a trusted user can change
/// the path.
#[derive(Clone)]
pub struct Way {
    /// The directories of the path, by their descriptors.
    steps: Vec<(Arc<OwnedFd>, PathBuf)>,
    /// The user that is trusted in addition to root.
    own: u32,
}

/// Follows a path to its end.
fn reach(path: &Path) -> Result<Reached, Untrusted> {
    let path = path::absolute(path).map_err(|error| Untrusted::System(path.to_owned(), error))?;
    Way::start(geteuid().as_raw())?.walk(&path, &mut |_, _| {})
}

impl Way {
    /// Starts at the root directory. This user is trusted in addition to root.
    pub fn start(own: u32) -> Result<Way, Untrusted> {
        let at = PathBuf::from("/");
        let (found, about) = step(CWD, OsStr::new("/"), OFlags::PATH, &at, own)?;
        check(&at, &about, own)?;
        let steps = vec![(Arc::new(found), at)];
        Ok(Way { steps, own })
    }

    /// Returns the last directory and its path.
    pub fn here(&self) -> (&OwnedFd, &Path) {
        let (directory, at) = self.steps.last().expect("the root directory stays");
        (directory, at)
    }

    /// Follows a path from here. Calls `looks` with each directory and the name that is looked up
    /// in it.
    pub fn walk(
        mut self,
        path: &Path,
        looks: &mut dyn FnMut(&OwnedFd, &OsStr),
    ) -> Result<Reached, Untrusted> {
        let mut names = Names::of(path);
        while let Some(name) = names.left.pop() {
            if name == ".." {
                // The root directory is its own parent.
                self.steps.truncate((self.steps.len() - 1).max(1));
                continue;
            }
            let (directory, before) = self.here();
            let at = before.join(&name);
            looks(directory, &name);
            let (found, about) = step(directory, &name, OFlags::PATH, &at, self.own)?;
            match FileType::from_raw_mode(about.st_mode) {
                FileType::Symlink => {
                    check_owner(&at, &about, self.own)?;
                    let system = |error: Errno| Untrusted::System(at, error.into());
                    if names.follow(&found).map_err(system)? {
                        self.steps.truncate(1);
                    }
                }
                FileType::Directory => {
                    check(&at, &about, self.own)?;
                    self.steps.push((Arc::new(found), at));
                }
                FileType::RegularFile if names.left.is_empty() => {
                    let (directory, _) = self.steps.pop().expect("the root directory stays");
                    let own = self.own;
                    #[rustfmt::skip]
                    let found = Found { directory, name, at, own };
                    return Ok(Reached::File(found));
                }
                _ if names.left.is_empty() => return Err(Untrusted::NotAFile(at)),
                _ => return Err(Untrusted::System(at, Errno::NOTDIR.into())),
            }
        }
        Ok(Reached::Directory(self))
    }
}

/// Opens a name in a directory; returns its status, too.
fn step(
    directory: impl std::os::fd::AsFd,
    name: &OsStr,
    flags: OFlags,
    at: &Path,
    own: u32,
) -> Result<(OwnedFd, Stat), Untrusted> {
    let system = |error: Errno| Untrusted::System(at.to_owned(), error.into());
    let flags = flags.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let found = openat(directory, name, flags, Mode::empty()).map_err(system)?;
    if let Some(user) = mounted_by(&found).map_err(system)?
        && ![0, own].contains(&user)
    {
        return Err(Untrusted::Mounted(at.to_owned(), user));
    }
    let about = fstat(&found).map_err(system)?;
    Ok((found, about))
}

/// Returns the user of the FUSE program whose file system is mounted here. Sends no request to that
/// program: it may never answer, and a process that waits for the answer may be unable to end.
fn mounted_by(found: &OwnedFd) -> Result<Option<u32>, Errno> {
    let mount = match mount_at(found) {
        Ok(Some(mount)) => mount,
        Ok(None) | Err(Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let number = format!("{mount} ");
    let mut lines = mounts.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.starts_with(number.as_bytes()));
    let options = String::from_utf8_lossy(line.unwrap_or_default());
    let mut options = options.rsplit(' ').next().unwrap_or_default().split(',');
    Ok(options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok()))
}

fn check(at: &Path, about: &Stat, own: u32) -> Result<(), Untrusted> {
    check_owner(at, about, own)?;
    let mode = about.st_mode & 0o7777;
    let is_sticky =
        FileType::from_raw_mode(about.st_mode) == FileType::Directory && mode & 0o1000 != 0;
    match mode & 0o022 == 0 || is_sticky {
        true => Ok(()),
        false => Err(Untrusted::Writable(at.to_owned(), mode)),
    }
}

fn check_owner(at: &Path, about: &Stat, own: u32) -> Result<(), Untrusted> {
    match about.st_uid == 0 || about.st_uid == own {
        true => Ok(()),
        false => Err(Untrusted::Owner(at.to_owned(), about.st_uid)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use lockstep_engine::way::MOST_LINKS;
    use lockstep_testkit::TempDir;
    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;

    use super::*;

    /// A user that does not run this test.
    const OTHER: u32 = 33;

    fn text(path: &Path) -> Result<String, String> {
        let mut text = String::new();
        let mut file = open(path).map_err(|error| error.to_string())?;
        file.read_to_string(&mut text).expect("a file");
        Ok(text)
    }

    fn refused(path: &Path, why: &str) {
        let error = text(path).expect_err(why);
        assert!(error.contains(why), "{error}");
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its own");
    }

    #[test]
    fn what_others_can_change_is_not_read() {
        let place = TempDir::new("trusted");
        let directory = place.join("keys");
        let file = directory.join("key");
        fs::create_dir(&directory).expect("a directory");
        set_mode(&directory, 0o755);
        fs::write(&file, "key").expect("a file");
        for mode in [0o600, 0o644, 0o400] {
            set_mode(&file, mode);
            assert_eq!(text(&file).as_deref(), Ok("key"));
        }
        for mode in [0o620, 0o602] {
            set_mode(&file, mode);
            refused(&file, "others than its owner can write to");
        }
        set_mode(&file, 0o600);
        for mode in [0o775, 0o757] {
            set_mode(&directory, mode);
            refused(&file, "others than its owner can write to");
        }
        // The mode of /tmp.
        set_mode(&directory, 0o1777);
        assert_eq!(text(&file).as_deref(), Ok("key"));
        set_mode(&directory, 0o755);
        refused(&directory.join("none"), "No such file");
        refused(&directory, "is not an ordinary file");
        refused(&file.join("below"), "Not a directory");
        let pipe = directory.join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR).expect("a pipe");
        refused(&pipe, "is not an ordinary file");
    }

    #[test]
    fn what_belongs_to_another_user_is_not_read() {
        if !geteuid().is_root() {
            println!("skipped: only root can give files to another user");
            return;
        }
        let place = TempDir::new("trusted-owner");
        let (directory, other) = (place.join("keys"), place.join("other"));
        fs::create_dir(&directory).expect("a directory");
        fs::create_dir(&other).expect("a directory");
        let file = directory.join("key");
        fs::write(&file, "key").expect("a file");
        let give = |path: &Path| chown(path, Some(OTHER), None).expect("root");
        give(&file);
        refused(&file, "belongs to user 33");
        chown(&file, Some(0), None).expect("root");
        // A link of the other user, and root's link in the other user's directory.
        let link = directory.join("link");
        symlink("key", &link).expect("a link");
        assert_eq!(text(&link).as_deref(), Ok("key"));
        lchown(&link, Some(OTHER), None).expect("root");
        refused(&link, "belongs to user 33");
        give(&other);
        symlink(&file, other.join("link")).expect("a link");
        refused(&other.join("link"), "belongs to user 33");
        // The path may lead through that directory by `..` or a link.
        refused(&other.join("../keys/key"), "belongs to user 33");
        let through = place.join("through");
        symlink(other.join("../keys/key"), &through).expect("a link");
        refused(&through, "belongs to user 33");
    }

    /// Certbot's links: /etc/letsencrypt/live/SITE/privkey.pem.
    #[test]
    fn links_of_the_administrator_are_followed() {
        let place = TempDir::new("trusted-links");
        for directory in ["archive/site", "live/site"] {
            fs::create_dir_all(place.join(directory)).expect("a directory");
        }
        fs::write(place.join("archive/site/privkey1.pem"), "key").expect("a file");
        let link = place.join("live/site/privkey.pem");
        symlink("../../archive/site/privkey1.pem", &link).expect("a link");
        assert_eq!(text(&link).as_deref(), Ok("key"));
        symlink(place.join("live"), place.join("absolute")).expect("a link");
        let path = place.join("absolute/site/../site/./privkey.pem");
        assert_eq!(text(&path).as_deref(), Ok("key"));
        symlink("circle", place.join("circle")).expect("a link");
        refused(&place.join("circle"), "symbolic links");
        symlink("nowhere", place.join("lost")).expect("a link");
        refused(&place.join("lost"), "No such file");
        // The root directory is its own parent.
        let relative = link.strip_prefix("/").expect("an absolute path");
        let above = Path::new("/../..").join(relative);
        assert_eq!(text(&above).as_deref(), Ok("key"));
    }

    #[test]
    fn as_many_links_are_followed_as_the_kernel_follows() {
        let place = TempDir::new("trusted-chain");
        fs::write(place.join("0"), "key").expect("a file");
        for number in 1..=MOST_LINKS + 1 {
            let target = (number - 1).to_string();
            symlink(target, place.join(number.to_string())).expect("a link");
        }
        let last = place.join(MOST_LINKS.to_string());
        assert_eq!(text(&last).as_deref(), Ok("key"));
        assert!(fs::read(&last).is_ok(), "so does the kernel");
        let one_more = place.join((MOST_LINKS + 1).to_string());
        refused(&one_more, "symbolic links");
        assert!(fs::read(&one_more).is_err());
    }

    #[test]
    fn a_daemon_that_is_not_root_trusts_its_own_user_and_root_alone() {
        if !geteuid().is_root() {
            println!("skipped: only root can become another user");
            return;
        }
        let place = TempDir::new("trusted-own");
        let [own, theirs] = ["own", "theirs"].map(|name| place.join(name));
        for (file, user) in [(&own, OTHER), (&theirs, OTHER + 1)] {
            fs::write(file, "key").expect("a file");
            set_mode(file, 0o644);
            chown(file, Some(user), None).expect("root");
        }
        set_mode(&place, 0o755);
        let daemon = std::thread::spawn(move || {
            // For this thread alone.
            let user = Uid::from_raw(OTHER);
            set_thread_res_uid(user, user, user).expect("root");
            assert_eq!(text(&own).as_deref(), Ok("key"));
            refused(&theirs, "belongs to user 34");
        });
        daemon.join().expect("both as they should be");
    }

    #[test]
    fn a_new_file_is_made_where_only_its_maker_can_change_it() {
        let place = TempDir::new("trusted-new");
        let file = place.join("new");
        drop(create_new(&file).expect("a file"));
        assert!(matches!(create_new(&file), Err(Untrusted::System(..))));
        symlink("elsewhere", place.join("link")).expect("a link");
        assert!(create_new(&place.join("link")).is_err());
        let open = place.join("open");
        fs::create_dir(&open).expect("a directory");
        set_mode(&open, 0o777);
        let error = create_new(&open.join("new")).expect_err("others can change it");
        assert!(matches!(error, Untrusted::Writable(..)), "{error}");
    }
}
