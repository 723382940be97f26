//! A hash of sources, by which a record says of which code it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Outcome, on, root};

/// Arithmetic on lanes.
pub const KERNELS: &[&str] = &["kernels/src"];

/// Everything in `lockstep.so`: the first directories of [`PRODUCT`].
pub const MODULE: &[&str] = PRODUCT.split_at(9).0;

/// Everything that the packages ship.
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

/// Returns the FNV-1a hash of the names and the contents of all files in these directories.
pub fn hash(directories: &[&str]) -> Outcome<String> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for directory in directories {
        let mut files = Vec::new();
        add_files(&root().join(directory), &mut files)?;
        files.sort();
        for path in files {
            let content = fs::read(&path).map_err(on(&path, "read"))?;
            let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy();
            for byte in name.bytes().chain([0]).chain(content) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    Ok(format!("{hash:016x}"))
}

fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    for entry in fs::read_dir(directory).map_err(on(directory, "list"))? {
        let path = entry.map_err(on(directory, "list"))?.path();
        match path.is_dir() {
            true => add_files(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
