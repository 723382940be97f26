//! Files and directories of measurements.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use lockstep_common::Failure;

/// Says which file an operation failed on.
pub fn on<'a>(path: &'a Path, verb: &'a str) -> impl FnOnce(io::Error) -> Failure + 'a {
    move |error| Failure::new(format!("cannot {verb} {}: {error}", path.display()))
}

/// Lets others pass through a directory: servers may serve as somebody else.
pub fn open_to_others(directory: &Path) -> Result<(), Failure> {
    fs::set_permissions(directory, Permissions::from_mode(0o711)).map_err(on(directory, "open"))
}

/// Writes a file that nobody else may read.
pub fn write_private(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened
        .and_then(|mut file| file.write_all(text))
        .map_err(on(path, "write"))
}
