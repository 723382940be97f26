//! Keys for programs of the rig: RSA, P-256 and Ed25519, in this order.

use std::path::{Path, PathBuf};

use xtask::command::{Outcome, openssl, quietly};

/// Files, and how each is made.
const KEYS: [(&str, &[&str]); 3] = [
    (
        "rsa.pem",
        &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    ),
    (
        "p256.pem",
        &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    ),
    ("ed25519.pem", &["-algorithm", "ed25519"]),
];

/// Makes the keys in a directory.
pub fn make(directory: &Path) -> Outcome<[PathBuf; 3]> {
    let paths = KEYS.map(|(name, _)| directory.join(name));
    for (path, (_, options)) in paths.iter().zip(KEYS) {
        let mut generate = openssl(["genpkey", "-out"]);
        quietly(generate.arg(path).args(options))?;
    }
    Ok(paths)
}
