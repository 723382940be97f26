//! Rates of devices, and the numbers of items from which they pay.
//!
//! A device is measured in the first call that uses it for an operation. The figures are kept in a
//! file of the user, one for each kind of device, version of its driver, version of this library,
//! and lanes. A file that is broken, or not the user's own, counts as none.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockstep_opencl::{Description, Kind};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

/// Number of items from which a device gets work, before the operation is measured.
const UNMEASURED: usize = 128;

/// First line of a file.
const HEADER: &str = concat!("lockstep ", env!("CARGO_PKG_VERSION"), " rates 1");

/// Length of the longest file that is read.
const LONGEST_FILE: u64 = 1 << 16;

/// Rate of a device for one operation.
#[derive(Clone, Debug)]
pub struct DeviceRate {
    /// The operation, such as `rsa2048-sign`.
    pub operation: String,
    /// Operations of the device in a second.
    pub device: f64,
    /// Operations of one thread in a second.
    pub thread: f64,
    /// Number of items from which the device pays beside the threads of these workers. Fewer items
    /// are computed by the threads alone.
    pub pays_from: usize,
}

/// Measurement of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Shortest time of any piece on the device.
    pub(crate) shortest: Duration,
    /// Items of the device in a second.
    pub(crate) device: f64,
    /// Items of a thread in a second.
    pub(crate) thread: f64,
}

impl Measured {
    /// Returns the number of items that threads alone compute while the device computes a small
    /// piece.
    fn pays_from(self, threads: usize) -> usize {
        let items = self.shortest.as_secs_f64() * self.thread * threads as f64;
        // A single item never pays.
        (items.ceil() as usize).max(2)
    }
}

/// The figures of a device.
pub(crate) struct Rates {
    file: Option<PathBuf>,
    all: Mutex<Vec<(String, Measured)>>,
}

impl Rates {
    /// Reads the figures of a device beside these lanes, if it has any.
    pub(crate) fn of(device: &Description, lanes: &str) -> Rates {
        Rates::in_directory(directory().as_deref(), device, lanes)
    }

    fn in_directory(directory: Option<&Path>, device: &Description, lanes: &str) -> Rates {
        let mut hash = Sha256::new();
        for part in [
            &device.platform,
            &device.product,
            &device.driver,
            HEADER,
            lanes,
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let name = hash.finalize()[..16]
            .iter()
            .fold("device-".to_owned(), |name, byte| {
                name + &format!("{byte:02x}")
            });
        let file = directory.map(|directory| directory.join(name));
        let all = file.as_deref().and_then(load).unwrap_or_default();
        let all = Mutex::new(all);
        Rates { file, all }
    }

    /// Returns the number of items from which the device gets work.
    pub(crate) fn pays_from(&self, kind: Kind, threads: usize) -> usize {
        let (all, name) = (locked(&self.all), kind.to_string());
        let known = all.iter().find(|(own, _)| *own == name);
        known.map_or(UNMEASURED, |(_, measured)| measured.pays_from(threads))
    }

    /// Returns all figures.
    pub(crate) fn all(&self, threads: usize) -> Vec<DeviceRate> {
        let rate = |(operation, measured): &(String, Measured)| DeviceRate {
            operation: operation.clone(),
            device: measured.device,
            thread: measured.thread,
            pays_from: measured.pays_from(threads),
        };
        locked(&self.all).iter().map(rate).collect()
    }

    /// Keeps a measurement, unless the operation already has one.
    pub(crate) fn keep(&self, kind: Kind, measured: Measured) {
        let (mut all, name) = (locked(&self.all), kind.to_string());
        if all.iter().any(|(own, _)| *own == name) {
            return;
        }
        all.push((name, measured));
        if let Some(file) = &self.file {
            // Without the file, the operation is measured again.
            let _ = store(file, &all);
        }
    }
}

/// Locks a mutex, and ignores poison: nothing panics while it changes the data.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the directory of the files, which need not be there.
fn directory() -> Option<PathBuf> {
    if cfg!(test) {
        return None;
    }
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache?.join("lockstep"))
}

fn load(file: &Path) -> Option<Vec<(String, Measured)>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    let opened = options.open(file).ok()?;
    let about = opened.metadata().ok()?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0;
    if !about.is_file() || !is_own {
        return None;
    }
    let mut text = String::new();
    opened.take(LONGEST_FILE).read_to_string(&mut text).ok()?;
    let lines = text.strip_prefix(HEADER)?.strip_prefix('\n')?;
    let line = |line: &str| {
        let [name, numbers @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let numbers = numbers.iter().map(|number| number.parse::<f64>().ok());
        let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
        let is_sound = numbers.iter().all(|number| (1e-9..1e12).contains(number));
        match numbers[..] {
            [shortest, device, thread] if is_sound && shortest < 1e4 => {
                let shortest = Duration::from_secs_f64(shortest);
                let measured = Measured {
                    shortest,
                    device,
                    thread,
                };
                Some(((*name).to_owned(), measured))
            }
            _ => None,
        }
    };
    lines.lines().map(line).collect()
}

fn store(file: &Path, all: &[(String, Measured)]) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::NotFound)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    // A killed process may have left its file, and other hosts may store here, too.
    let fresh = file.with_extension(format!("{:016x}", RandomState::new().hash_one(0)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut opened = options.open(&fresh)?;
    let lines = all.iter().map(|(name, measured)| {
        let shortest = measured.shortest.as_secs_f64();
        format!(
            "{name} {shortest} {} {}\n",
            measured.device, measured.thread
        )
    });
    let text = format!("{HEADER}\n{}", lines.collect::<String>());
    let stored = opened.write_all(text.as_bytes());
    let stored = stored.and_then(|()| fs::rename(&fresh, file));
    if stored.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    stored
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use lockstep_testkit::TempDir;

    use super::*;

    const MEASURED: Measured = Measured {
        shortest: Duration::from_millis(2),
        device: 1e6,
        thread: 25_000.0,
    };

    fn device(driver: &str) -> Description {
        Description {
            name: "opencl:0".to_owned(),
            platform: "a platform".to_owned(),
            product: "a device".to_owned(),
            driver: driver.to_owned(),
            memory: 1 << 30,
            largest_buffer: 1 << 28,
            units: 4,
            is_gpu: true,
        }
    }

    #[test]
    fn figures_are_kept_for_a_device_and_a_version() {
        let directory = TempDir::new("rates");
        let cache = directory.join("made/on the way");
        let of = |driver, lanes| Rates::in_directory(Some(&cache), &device(driver), lanes);
        let first = of("1.0", "avx2");
        assert_eq!(first.pays_from(Kind::X25519, 4), UNMEASURED);
        first.keep(Kind::X25519, MEASURED);
        let other = Measured {
            shortest: Duration::from_secs(1),
            ..MEASURED
        };
        first.keep(Kind::X25519, other);
        first.keep(Kind::RsaPrivate(2048), other);
        for rates in [&first, &of("1.0", "avx2")] {
            // 2 ms of four threads.
            assert_eq!(rates.pays_from(Kind::X25519, 4), 200);
            assert_eq!(rates.pays_from(Kind::RsaPrivate(2048), 1), 25_000);
            assert_eq!(rates.pays_from(Kind::RsaPublic(2048), 1), UNMEASURED);
            assert_eq!(rates.all(4)[0].pays_from, 200);
        }
        for other in [of("1.1", "avx2"), of("1.0", "portable")] {
            assert!(other.all(1).is_empty());
        }
        let files: Vec<_> = fs::read_dir(&cache).expect("a directory").collect();
        let [file] = &files[..] else {
            panic!("one file: {files:?}")
        };
        let about = file.as_ref().expect("a file").metadata().expect("metadata");
        assert_eq!(about.mode() & 0o777, 0o600);
    }

    #[test]
    fn files_that_are_odd_count_as_none_and_are_made_anew() {
        let directory = TempDir::new("odd-rates");
        let cache: &Path = &directory;
        let of = || Rates::in_directory(Some(cache), &device("1.0"), "avx2");
        of().keep(Kind::X25519, MEASURED);
        let file = of().file.expect("a file");
        let good = fs::read_to_string(&file).expect("a text");
        let line = "x25519 0.002 1000000 25000\n";
        assert_eq!(good, format!("{HEADER}\n{line}"));
        for odd in [
            String::new(),
            line.to_owned(),
            good.replace("rates 1", "rates 0"),
            good.replace("0.002", "NaN"),
            good.replace("0.002", "-1"),
            good.replace("0.002", "1e300"),
            good.replace(" 25000", ""),
            good.replace("25000", "25000 1"),
            format!("{good}x25519 0.0"),
            good.clone() + &"x".repeat(LONGEST_FILE as usize),
        ] {
            fs::write(&file, odd.as_bytes()).expect("written");
            assert!(of().all(1).is_empty(), "{odd}");
            of().keep(Kind::X25519, MEASURED);
            assert_eq!(fs::read_to_string(&file).expect("a text"), good);
        }
        // One that others can write, a link, and a pipe that nobody writes to.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).expect("a mode");
        assert!(of().all(1).is_empty());
        let target = cache.join("target");
        fs::rename(&file, &target).expect("moved");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).expect("a mode");
        symlink(&target, &file).expect("a link");
        assert!(of().all(1).is_empty());
        of().keep(Kind::X25519, MEASURED);
        assert!(!of().all(1).is_empty());
        fs::remove_file(&file).expect("removed");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, mode).expect("a pipe");
        assert!(of().all(1).is_empty());
        fs::remove_file(&file).expect("removed");
        // Without a directory all is measured again.
        let nowhere = Rates::in_directory(None, &device("1.0"), "avx2");
        nowhere.keep(Kind::X25519, MEASURED);
        assert_eq!(nowhere.pays_from(Kind::X25519, 4), 200);
    }
}
