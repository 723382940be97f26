//! Files and directories that belong to somebody else, or may be missing.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The text of somebody else's file. A byte that is not of UTF-8, as in a comment, hides no line.
pub fn text_of(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The beginning of a file, at most `most` bytes; empty where it cannot be read. As in [`text_of`],
/// a byte that is not of UTF-8 hides no line.
pub fn beginning(path: &Path, most: u64) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(path).map(|file| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_not_of_utf_8_hides_no_line() {
        let path = std::env::temp_dir().join(format!("lockstep-files-{}", std::process::id()));
        fs::write(&path, b"# f\xfcr\ncrt /key\n# \xc3\xbc").expect("it can be written");
        let text = beginning(&path, 18);
        fs::remove_file(&path).expect("it can be removed");
        assert!(text.contains("crt /key"), "{text}");
    }
}

/// The paths in a directory, in any order; none where it cannot be read.
pub fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
