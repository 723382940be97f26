//! The C compiler, for programs and libraries that tests are written in.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled file, from one source with some options. It is open, because its name may be gone.
type Compiled = Arc<Mutex<Option<File>>>;

/// Compiles a source; every warning is an error. If a test of this process has compiled it before,
/// that file is copied.
pub fn compile(source: &Path, output: &Path, options: &[&str]) {
    static ALL: Mutex<BTreeMap<(PathBuf, Vec<String>), Compiled>> = Mutex::new(BTreeMap::new());
    let options: Vec<String> = options.iter().copied().map(String::from).collect();
    // A source that does not compile fails each of its tests by the compiler's own words.
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = all.entry((source.into(), options.clone())).or_default();
    let compiled = compiled.clone();
    drop(all);
    let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
    match &*compiled {
        Some(file) if is_at(output, file) => {}
        // Another process copies. Linux executes no file that some process may write to, and each
        // process that a test starts at this time holds our descriptors for a moment.
        Some(file) => {
            let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
            // A program of this name may be running.
            let mut copy = Command::new("cp");
            succeeds(copy.arg("--remove-destination").arg(path).arg(output));
        }
        None => {
            let mut compiler = Command::new("cc");
            compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-o"]);
            succeeds(compiler.arg(output).arg(source).args(options));
            *compiled = Some(File::open(output).expect("what has been compiled"));
        }
    }
}

/// Whether this file has this path.
fn is_at(path: &Path, file: &File) -> bool {
    let place = |about: Metadata| (about.dev(), about.ino());
    fs::metadata(path).ok().map(place) == file.metadata().ok().map(place)
}

fn succeeds(command: &mut Command) {
    let finished = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(
        finished.status.success(),
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
}
