//! The C compiler, for programs and libraries that tests are written in.

use std::path::Path;
use std::process::Command;

/// Compiles a source; every warning is an error.
pub fn compile(source: &Path, output: &Path, options: &[&str]) {
    let finished = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-o"])
        .arg(output)
        .arg(source)
        .args(options)
        .output()
        .expect("the C compiler `cc` runs");
    assert!(
        finished.status.success(),
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
}
