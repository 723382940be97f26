//! A hash of sources, by which a record says of which code it is.

use std::fs;
use std::path::PathBuf;

use xtask::command::{Outcome, on, root};

/// Arithmetic on lanes.
pub const KERNELS: &[&str] = &["kernels/src"];

/// Arithmetic on lanes, its proofs, and the files that say how both are built.
pub const PROOFS: &[&str] = &[
    "kernels/src",
    "kernels/Cargo.toml",
    "proofs/src",
    "proofs/lists",
    "proofs/lanes",
    "proofs/Cargo.toml",
    "proofs/Cargo.lock",
    "testkit/src",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    "xtask/src/dist.rs",
];

/// Everything in `lockstep.so`: the first directories of [`PRODUCT`].
pub const MODULE: &[&str] = PRODUCT.split_at(9).0;

/// Sources of the packages.
pub const PRODUCT: &[&str] = &[
    "vault/src",
    "kernels/src",
    "ops/src",
    "page/src",
    "counters/src",
    "engine/src",
    "ring/src",
    "remote/src",
    "provider/src",
    "keyd/src",
    "conf/src",
    "common/src",
    "cli/src",
    "packaging",
];

/// Sources of the library for arrays, and of its package for Python.
pub const LIBRARY: &[&str] = &[
    "vault/src",
    "kernels/src",
    "ops/src",
    "opencl/src",
    "lockstep/src",
    "python/src",
    "python/lockstep_crypto",
    "python/pyproject.toml",
];

/// Returns the FNV-1a hash of the names and the contents of these files, and of all files in these
/// directories. Comment lines and empty lines of Rust do not count.
pub fn hash(places: &[&str]) -> Outcome<String> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for place in places {
        let mut files = Vec::new();
        add_files(root().join(place), &mut files)?;
        files.sort();
        for path in files {
            let content = fs::read(&path).map_err(on(&path, "read"))?;
            let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy();
            let is_rust = name.ends_with(".rs");
            let lines = content.split_inclusive(|byte| *byte == b'\n');
            let code = lines.filter(|line| !is_rust || !is_comment(line)).flatten();
            for byte in name.bytes().chain([0]).chain(code.copied()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    Ok(format!("{hash:016x}"))
}

fn is_comment(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.is_empty() || line.starts_with(b"//")
}

fn add_files(path: PathBuf, files: &mut Vec<PathBuf>) -> Outcome {
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    for entry in fs::read_dir(&path).map_err(on(&path, "list"))? {
        add_files(entry.map_err(on(&path, "list"))?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_code_count() {
        let comments = ["\n", "  // a word\n", "/// a word\n", "//! a word\n"];
        assert!(comments.iter().all(|line| is_comment(line.as_bytes())));
        assert!(!is_comment(b"    let x = 1; // a word\n"));
    }
}
