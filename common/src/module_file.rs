//! Defects of a module's file, found before the loader maps it: a truncated file ends the process
//! that loads it, and glibc reports a file for another CPU as missing.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Length of the header of an ELF file (elf(5)).
const HEADER: usize = 64;
/// Length of an entry in the table of segments. It has the offset of the segment in the file at
/// byte 8, and the length of the segment in the file at byte 32.
const SEGMENT: usize = 56;
/// `EM_X86_64`
const X86_64: u16 = 62;

/// Returns the reason why a file cannot be loaded as a module, from its header and its length.
pub fn damage(path: &Path) -> Option<String> {
    match examine(path) {
        Ok(damage) => damage,
        Err(error) => Some(format!("cannot be read: {error}")),
    }
}

fn examine(path: &Path) -> io::Result<Option<String>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut header = Vec::new();
    (&file).take(HEADER as u64).read_to_end(&mut header)?;
    if header.is_empty() {
        return Ok(Some("is empty".to_owned()));
    }
    if !header.starts_with(b"\x7fELF") {
        return Ok(Some("is not a shared library".to_owned()));
    }
    let Ok(header) = <[u8; HEADER]>::try_from(header) else {
        return Ok(Some(format!("is cut off: it has {length} bytes")));
    };
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if (header[4], header[5], half(18)) != (2, 1, X86_64) {
        return Ok(Some(format!(
            "is for another kind of CPU (ELF machine {}, and here it is {X86_64})",
            half(18)
        )));
    }
    // The table of sections is the last part of a file, if there is one. The table of segments
    // describes the mapped parts.
    let table = |offset: usize, size: usize, count: usize| {
        let start = word(&header, offset);
        (start, u64::from(half(size)), u64::from(half(count)))
    };
    let (sections, size, count) = table(40, 58, 60);
    let mut end = sections.saturating_add(size * count);
    let (segments, size, count) = table(32, 54, 56);
    for number in 0..count {
        let mut segment = [0; SEGMENT];
        let at = segments.saturating_add(number * size);
        end = end.max(at.saturating_add(SEGMENT as u64));
        if file.read_exact_at(&mut segment, at).is_ok() {
            end = end.max(word(&segment, 8).saturating_add(word(&segment, 32)));
        }
    }
    Ok((end > length).then(|| format!("is cut off: {length} of {end} bytes are there")))
}

/// Reads the 64-bit number at an offset.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn damage_is_named() {
        let place = lockstep_testkit::TempDir::new("elf");
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut foreign = whole.clone();
        foreign[18] = 183;
        let (start, most) = (&whole[..40], &whole[..whole.len() - 1]);
        // The file as `sstrip` leaves it, without a table of sections, and without a part of a
        // segment.
        let mut part = whole[..whole.len() / 16].to_vec();
        part[40..48].fill(0);
        part[58..62].fill(0);
        for (bytes, expected) in [
            (&b""[..], Some("is empty")),
            (b"hello", Some("not a shared library")),
            (start, Some("cut off: it has 40")),
            (most, Some("cut off: ")),
            (&part, Some("cut off: ")),
            (&foreign, Some("another kind of CPU (ELF machine 183")),
            (&whole, None),
        ] {
            let path = place.join("module");
            fs::write(&path, bytes).unwrap();
            let found = damage(&path);
            let matches = |part| found.as_ref().is_some_and(|found| found.contains(part));
            assert!(expected.map_or(found.is_none(), matches), "{found:?}");
        }
        assert!(damage(&place).unwrap().contains("Is a directory"));
        assert!(
            damage(&place.join("none"))
                .unwrap()
                .contains("No such file")
        );
    }
}
