//! Directories of counters: their places, the users who may have made them, and their files.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{self, Path, PathBuf};
use std::{fs, io};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::way::{Names, mount_at};

const SHARED_MEMORY: &str = "/dev/shm";
const OWN_MOUNTS: &str = "/proc/self/mountinfo";

/// Flags to open each name on a way without access to the file itself.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags to open a directory without reading it.
const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Maximum number of directories of other users that are read.
const MOST_PLACES: usize = 1 << 10;

/// Place in which a process publishes its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatsDir {
    /// Nowhere.
    #[default]
    Off,
    /// In the default place of its user; see the [module](super).
    Auto,
    /// In this directory, which exists.
    At(PathBuf),
}

/// A directory of one user, in a directory of root.
#[derive(Clone, Debug)]
pub(super) struct Place {
    parent: &'static str,
    name: String,
    user: u32,
}

/// Returns the default places of this user's processes, the best place first.
pub(super) fn places() -> Vec<Place> {
    places_of(geteuid().as_raw())
}

fn places_of(user: u32) -> Vec<Place> {
    let place = |parent, name| Place { parent, name, user };
    let own = format!("lockstep-{user}");
    let of_root = (user == 0).then(|| place("/run", "lockstep".to_owned()));
    let rest = [SHARED_MEMORY, "/tmp"].map(|parent| place(parent, own.clone()));
    of_root.into_iter().chain(rest).collect()
}

/// Returns the existing default places of all users, this process's own first. Only root can read
/// other users' places. The second value is false if there may be more.
///
/// Any user can fill `/tmp`, of which `most` entries are read. That hides no user who has a
/// process.
pub(super) fn places_of_all(most: usize) -> (Vec<Place>, bool) {
    let own = geteuid().as_raw();
    let mut all = places_of(own);
    if own != 0 {
        all.extend(places_of(0));
    }
    let (mut others, mut complete) = (Vec::new(), true);
    let processes = users_of_processes();
    for parent in [SHARED_MEMORY, "/tmp"] {
        let Ok(directory) = open(Path::new(parent)) else {
            continue;
        };
        let mut users = processes.clone();
        let seen = entries(&directory, most, |name| {
            users.extend(user_in(name));
            true
        });
        complete &= seen.unwrap_or(true);
        let others_here = users.into_iter().filter(|user| ![0, own].contains(user));
        let places = others_here.map(|user| Place {
            parent,
            name: format!("lockstep-{user}"),
            user,
        });
        // Any user can make directories that bear the name of another user.
        others.extend(places.filter(|place| place.belongs_to_user(&directory)));
    }
    complete &= others.len() <= MOST_PLACES;
    all.extend(first_of(others, MOST_PLACES));
    (all, complete)
}

/// Returns the users that have processes.
fn users_of_processes() -> BTreeSet<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let users = processes.filter_map(|entry| {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes()[0].is_ascii_digit();
        is_process.then(|| Some(entry.metadata().ok()?.uid()))?
    });
    users.collect()
}

/// Returns the user in the name of a default place. Each user has only one such name: the number
/// without a sign or leading zeros.
fn user_in(name: &str) -> Option<u32> {
    let user = name.strip_prefix("lockstep-")?;
    user.parse()
        .ok()
        .filter(|number: &u32| number.to_string() == user)
}

/// Returns at most this number of places, by ascending user numbers. Services have low numbers. The
/// subordinate numbers, of which one user may have thousands, are high.
fn first_of(mut places: Vec<Place>, most: usize) -> Vec<Place> {
    places.sort_by_key(|place| place.user);
    places.truncate(most);
    places
}

impl Place {
    pub(super) fn user(&self) -> u32 {
        self.user
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new(self.parent).join(&self.name)
    }

    /// Opens the directory, and makes it if it is missing.
    pub(super) fn make(&self) -> io::Result<OwnedFd> {
        let parent = open(Path::new(self.parent))?;
        match self.open_in(&parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match rustix::fs::mkdirat(&parent, &self.name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.open_in(&parent),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the directory, if it exists.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        self.open_in(&open(Path::new(self.parent))?)
    }

    /// Opens the directory, if only its user can have made it and can enter it.
    fn open_in(&self, parent: &OwnedFd) -> io::Result<OwnedFd> {
        let about = fstat(parent)?;
        let sticky = about.st_mode & 0o1000 != 0;
        if about.st_uid != 0 || (about.st_mode & 0o022 != 0 && !sticky) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let flags = STEP | OFlags::DIRECTORY;
        // A filter of system calls may forbid calls that the server does not need.
        let found = match [0, geteuid().as_raw()].contains(&self.user) {
            true => openat(parent, &self.name, flags, Mode::empty())?,
            false => open_unmounted(parent, &self.name, flags)?,
        };
        if self.user == 0 {
            refuse_mount_of_user(&found, Path::new(OWN_MOUNTS))?;
        }
        let about = fstat(&found)?;
        if about.st_uid != self.user || about.st_mode & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(found)
    }

    fn belongs_to_user(&self, parent: &OwnedFd) -> bool {
        owner(parent, &self.name) == Some(self.user)
    }
}

/// Opens a directory of any name. It need not be readable. Root passes through no file system that
/// is another user's program (FUSE): that program may never answer, and then not even SIGKILL ends
/// the reader.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    match geteuid().is_root() {
        true => walk(path),
        false => Ok(openat(CWD, path, OPEN, Mode::empty())?),
    }
}

/// Opens a directory name by name, and checks each before the next one.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let path = path::absolute(path)?;
    let (root, mounts, rest) = match of_process(&path) {
        Some((about, rest)) => (about.join("root"), about.join("mountinfo"), rest),
        None => ("/".into(), OWN_MOUNTS.into(), &*path),
    };
    let mut steps = vec![openat(CWD, root, OPEN, Mode::empty())?];
    let mut names = Names::of(rest);
    while let Some(name) = names.left.pop() {
        if name == ".." {
            // The root directory is its own parent.
            steps.truncate((steps.len() - 1).max(1));
            continue;
        }
        let found = openat(&steps[steps.len() - 1], &name, STEP, Mode::empty())?;
        refuse_mount_of_user(&found, &mounts)?;
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Directory => steps.push(found),
            FileType::Symlink => {
                if names.follow(&found)? {
                    steps.truncate(1);
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(steps.pop().expect("the root directory stays"))
}

/// Divides a path of another process, `/proc/PID/root/…`, into `/proc/PID` and the path in that
/// process. The link `root` does not lead to the path that its text names.
fn of_process(path: &Path) -> Option<(PathBuf, &Path)> {
    let mut names = path.strip_prefix("/proc").ok()?.components();
    let pid = names.next()?.as_os_str().to_str()?;
    pid.parse::<u32>().ok()?;
    (names.next()?.as_os_str() == "root").then(|| (Path::new("/proc").join(pid), names.as_path()))
}

/// Fails if, by this table of mounts, a file system that is another user's program is mounted here.
/// Neither statx(2) nor the table asks that program.
fn refuse_mount_of_user(found: &OwnedFd, mounts: &Path) -> io::Result<()> {
    // A filter of system calls may forbid the call.
    let Ok(Some(mount)) = mount_at(found) else {
        return Ok(());
    };
    let table = fs::read(mounts).unwrap_or_default();
    let is_own = mounts == Path::new(OWN_MOUNTS);
    match is_of_user(&String::from_utf8_lossy(&table), mount, is_own) {
        true => Err(io::Error::other(
            "another user's program answers for a file system on the way (FUSE), or never answers",
        )),
        false => Ok(()),
    }
}

/// Returns whether the file system of this mount is a user's program, or unknown. In another
/// namespace, user 0 may be any user.
fn is_of_user(table: &str, mount: u64, is_own: bool) -> bool {
    let number = format!("{mount} ");
    let Some(line) = table.lines().find(|line| line.starts_with(&number)) else {
        return !table.is_empty();
    };
    let (_, about) = line.split_once(" - ").unwrap_or_default();
    let mut options = about.rsplit(' ').next().unwrap_or_default().split(',');
    about.starts_with("fuse") && !(is_own && options.any(|option| option == "user_id=0"))
}

/// Opens a name in a directory of any user, and refuses a mount there: it may be a program of that
/// user (FUSE), which may never answer, and then not even SIGKILL ends the reader.
pub(super) fn open_unmounted(
    directory: &OwnedFd,
    name: &str,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::NO_XDEV;
    match openat2(directory, name, flags, Mode::empty(), within) {
        // Linux before 5.6, or a filter of system calls that does not know this one.
        Err(Errno::NOSYS | Errno::PERM) => openat(directory, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Returns the owner of an entry of a directory, without following a link. `None` if something is
/// mounted there.
pub(super) fn owner(directory: &OwnedFd, name: &str) -> Option<u32> {
    let found = open_unmounted(directory, name, STEP).ok()?;
    Some(fstat(&found).ok()?.st_uid)
}

/// Calls `see` with the names in a directory, at most `most` of them, until it returns false.
/// Returns whether it was called with all. Names that are not text are left out.
pub(super) fn entries(
    directory: &OwnedFd,
    most: usize,
    mut see: impl FnMut(&str) -> bool,
) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(directory, ".", flags, Mode::empty())?;
    for (number, entry) in Dir::new(listed)?.enumerate() {
        let entry = entry?;
        let goes_on = match entry.file_name().to_str() {
            _ if number >= most => false,
            Ok(name) => see(name),
            Err(_) => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_directory_of_the_user_alone_will_do() {
        let user = geteuid().as_raw();
        let place = |name: &str| Place {
            parent: "/tmp",
            name: name.to_owned(),
            user,
        };
        let name = |what: &str| format!("lockstep-place-{what}-{}", std::process::id());
        let (fine, open, link) = (name("fine"), name("open"), name("link"));
        let path = |name: &str| Path::new("/tmp").join(name);
        let refused = |place: Place| place.make().unwrap_err().kind();

        place(&fine).make().unwrap();
        let mode = fs::metadata(path(&fine)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        place(&fine).make().unwrap();
        let mut of_another = place(&fine);
        of_another.user = user + 1;
        assert_eq!(refused(of_another), io::ErrorKind::PermissionDenied);

        fs::create_dir(path(&open)).unwrap();
        fs::set_permissions(path(&open), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refused(place(&open)), io::ErrorKind::PermissionDenied);
        symlink(path(&fine), path(&link)).unwrap();
        assert_eq!(refused(place(&link)), io::ErrorKind::NotADirectory);

        fs::remove_dir(path(&fine)).unwrap();
        fs::remove_dir(path(&open)).unwrap();
        fs::remove_file(path(&link)).unwrap();
    }

    /// A user can mount a file system that is a program of the user.
    #[test]
    fn what_is_mounted_in_a_directory_of_a_user_is_not_opened() {
        let dev = open(Path::new("/dev")).unwrap();
        let root = open(Path::new("/")).unwrap();
        let refused = open_unmounted(&root, "proc", STEP).unwrap_err();
        assert_eq!((refused, owner(&root, "proc")), (Errno::XDEV, None));
        assert_eq!(owner(&dev, "null"), Some(0));
        assert_eq!(owner(&dev, "no-such-name"), None);
        let table = "7 1 0:9 / /a rw shared:1 - fuse.x - rw,user_id=1000,group_id=0,allow_other\n\
                     71 1 0:9 / /b rw - fuse x rw,user_id=0,group_id=0\n8 1 0:1 / /c rw - tmpfs x rw\n";
        let of_user = |mount| [true, false].map(|is_own| is_of_user(table, mount, is_own));
        assert_eq!(of_user(7), [true, true]);
        assert_eq!(of_user(71), [false, true]);
        assert_eq!((of_user(8), of_user(9)), ([false, false], [true, true]));
        assert!(!is_of_user("", 7, true));
    }

    #[test]
    fn a_directory_is_reached_as_the_kernel_reaches_it() {
        let place = lockstep_testkit::TempDir::new("walk");
        fs::create_dir_all(place.join("a/b")).unwrap();
        fs::write(place.join("file"), "").unwrap();
        symlink("a/../a/b", place.join("near")).unwrap();
        symlink(place.join("near"), place.join("far")).unwrap();
        symlink("turn", place.join("turn")).unwrap();
        let inode = |found: io::Result<OwnedFd>| fstat(found.unwrap()).unwrap().st_ino;
        let of_process = format!("/proc/{}/root", std::process::id());
        let inside = Path::new(&of_process).join(place.strip_prefix("/").unwrap());
        for above in [&*place, &inside] {
            for name in ["", "a/b", "near", "far", "near/..", "far/."] {
                let path = above.join(name);
                let opened = openat(CWD, place.join(name), OPEN, Mode::empty()).unwrap();
                assert_eq!(
                    inode(walk(&path)),
                    fstat(opened).unwrap().st_ino,
                    "{path:?}"
                );
            }
        }
        for (name, why) in [
            ("file", Errno::NOTDIR),
            ("turn", Errno::LOOP),
            ("x", Errno::NOENT),
        ] {
            let refused = walk(&place.join(name)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(why.raw_os_error()), "{name}");
        }
    }

    /// The place is found by its user, however many other names `/dev/shm` has.
    #[test]
    fn the_place_of_a_user_who_has_a_process_is_found_without_a_listing() {
        let user = 61_234;
        let path = PathBuf::from(format!("{SHARED_MEMORY}/lockstep-{user}"));
        let _ = fs::create_dir(&path);
        if chown(&path, Some(user), None).is_err() {
            println!("skipped: only root can give directories away");
            let _ = fs::remove_dir(&path);
            return;
        }
        let mut process = Command::new("sleep").arg("60").uid(user).spawn().unwrap();
        let (places, complete) = places_of_all(0);
        process.kill().unwrap();
        process.wait().unwrap();
        fs::remove_dir(&path).unwrap();
        assert!(places.iter().any(|place| place.path() == path));
        assert!(!complete);
    }

    #[test]
    fn a_user_has_one_name_and_comes_before_those_with_higher_numbers() {
        assert_eq!(user_in("lockstep-1000"), Some(1000));
        for name in [
            "lockstep-01000",
            "lockstep-+1000",
            "lockstep-",
            "lockstep-4294967296",
        ] {
            assert_eq!(user_in(name), None, "{name}");
        }
        let place = |user: u32| Place {
            parent: "/tmp",
            name: format!("lockstep-{user}"),
            user,
        };
        let first = first_of([100_001, 33, 100_000, 1000].map(place).into(), 2);
        let users: Vec<u32> = first.iter().map(Place::user).collect();
        assert_eq!(users, [33, 1000]);
    }

    #[test]
    fn a_directory_is_seen_up_to_a_bound() {
        let path = lockstep_testkit::TempDir::new("entries");
        for number in 0..100 {
            fs::write(path.join(format!("{number}")), "").unwrap();
        }
        let seen = |most: usize, wanted: usize| {
            let mut seen = 0;
            let all = entries(&open(&path).unwrap(), most, |_| {
                seen += 1;
                seen < wanted
            });
            (seen, all.unwrap())
        };
        // With `.` and `..`.
        assert_eq!(seen(1000, 1000), (102, true));
        assert_eq!(seen(50, 1000), (50, false));
        assert_eq!(seen(1000, 20), (20, false));
    }
}
