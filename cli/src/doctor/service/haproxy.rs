//! Lines of HAProxy's configuration that exclude each other, or that reduce its connections.

use std::path::{Path, PathBuf};

use crate::doctor::finding::{Finding, advice, warning};
use crate::files::text_of;
use crate::servers::global::fewer;
use crate::servers::site::HAPROXY_GLOBAL;

/// Reports that HAProxy takes fewer connections with the lines of `install` than without.
pub fn fewer_connections() -> Option<Finding> {
    let (what, remedy) = fewer(&text_of(Path::new(HAPROXY_GLOBAL)).ok()?)?;
    Some(advice("connections", what, remedy))
}

/// Whether HAProxy 3.5 refuses to start with these files: it supports async mode only with a shared
/// table of file descriptors.
pub fn excludes_async(files: &[PathBuf]) -> bool {
    let has = |wanted: &[&str]| {
        let with = |file: &PathBuf| {
            let text = text_of(file).unwrap_or_default();
            let mut lines = text.lines().map(|line| line.split_whitespace());
            lines.any(|mut words| wanted.iter().all(|word| words.next() == Some(word)))
        };
        files.iter().any(with)
    };
    has(&["ssl-mode-async"]) && has(&["tune.fd.tables", "per-thread-group"])
}

/// Reports lines that exclude each other.
pub fn conflict() -> Finding {
    let what = "its configuration has `ssl-mode-async` and `tune.fd.tables per-thread-group`: \
                    HAProxy 3.5 does not start with both. Nobody upstream maintains async mode";
    let remedy = "write `tune.fd.tables shared`; or remove `ssl-mode-async`, and handshakes do \
                      not share batches (`lockstep install --service haproxy` removes the line if \
                      `install` has written it)";
    warning("haproxy", what, remedy)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_that_exclude_each_other_are_found_in_all_files() {
        let place = lockstep_testkit::TempDir::new("exclusive");
        let files = ["a.cfg", "b.cfg"].map(|name| place.join(name));
        let found = |first: &str, second: &str| {
            fs::write(&files[0], first).unwrap();
            fs::write(&files[1], second).unwrap();
            excludes_async(&files)
        };
        let tables = "global\n  tune.fd.tables per-thread-group # fast\n";
        assert!(found("global\n    ssl-mode-async\n", tables));
        assert!(!found("global\n    # ssl-mode-async\n", tables));
        assert!(!found(
            "global\n ssl-mode-async\n tune.fd.tables shared\n",
            ""
        ));
    }
}
