//! Files and directories of other programs, which may be missing.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Reads a file of another program. Replaces bytes that are not UTF-8, which a comment may have.
pub fn text_of(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Reads at most this number of bytes of a file; empty if it cannot be read. Replaces bytes that
/// are not UTF-8, as [`text_of`] does.
pub fn beginning(path: &Path, most: u64) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(path).map(|file| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lists the paths in a directory, in any order; none if it cannot be read.
pub fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
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
