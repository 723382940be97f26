//! The OpenSSL that a process has loaded.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The version of the libcrypto that a process has mapped, or else of the one in its program.
pub fn openssl(pid: u32) -> Option<String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let library = libcrypto(&maps).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let file = library.unwrap_or_else(|| format!("/proc/{pid}/exe").into());
    version_text(&fs::read(file).ok()?)
}

/// The path of libcrypto in the text of `/proc/PID/maps`.
fn libcrypto(maps: &[u8]) -> Option<&[u8]> {
    let lines = maps.split(|byte| *byte == b'\n');
    let starts = |line: &&[u8]| line.iter().position(|byte| *byte == b'/');
    lines
        .filter_map(|line| starts(&line).map(|start| &line[start..]))
        .find(|path| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            name.starts_with(b"libcrypto") && name.windows(3).any(|part| part == b".so")
        })
}

/// The text by which a libcrypto names its version, as `OpenSSL 3.0.19 27 Jan 2026`.
fn version_text(file: &[u8]) -> Option<String> {
    const START: &[u8] = b"OpenSSL ";
    let texts = file.split(|&byte| byte == 0);
    let mut versions = texts.filter(|text| {
        let number = text.strip_prefix(START).and_then(|rest| rest.first());
        number.is_some_and(u8::is_ascii_digit) && text.len() < 80
    });
    Some(String::from_utf8_lossy(versions.next()?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_openssl_of_a_process_is_found() {
        let maps = b"1-2 r-xp 0 fe:00 9 /usr/lib/libc.so.6\n\
                    2-3 r--p 0 fe:00 8 /opt/own lib\xdf/libcrypto.so.4\n\
                    3-4 r--p 0 fe:00 7 /usr/lib/libcrypto.so.3\n";
        let own = &b"/opt/own lib\xdf/libcrypto.so.4"[..];
        assert_eq!(libcrypto(maps), Some(own));
        assert_eq!(libcrypto(b"1-2 r-xp 0 fe:00 9 [stack]\n"), None);
        let file = b"\x7fELF\0OpenSSL default\0OpenSSL 3.0.19 27 Jan 2026\0more";
        let found = version_text(file);
        assert_eq!(found.as_deref(), Some("OpenSSL 3.0.19 27 Jan 2026"));
        assert_eq!(version_text(b"OpenSSL error\0"), None);
        assert_eq!(
            openssl(std::process::id()).as_deref(),
            Some(openssl::version::version())
        );
    }
}
