//! Files and directories that belong to somebody else, or may be missing.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The text of somebody else's file. A byte that is not of UTF-8, as in a comment, hides no line.
pub fn text_of(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The beginning of a file, at most so many bytes; empty where it cannot be read.
pub fn beginning(path: &Path, most: u64) -> String {
    let mut text = String::new();
    let _ = File::open(path).map(|file| file.take(most).read_to_string(&mut text));
    text
}

/// The paths in a directory, in any order; none where it cannot be read.
pub fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
