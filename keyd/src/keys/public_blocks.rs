//! Public parts of files that may also hold keys.

use std::path::Path;

use der::pem::{LineEnding, encode_string};

use crate::keys::{key, pem};

/// Returns the PEM blocks of a file that have one of these labels, as OpenSSL writes them; none if
/// the file cannot be read.
pub fn blocks(path: &Path, labels: &[&str]) -> Vec<String> {
    // Any owner is allowed: the daemon owns the references that it writes.
    in_text(&key::text_of_any(path), labels)
}

fn in_text(text: &[u8], labels: &[&str]) -> Vec<String> {
    let wanted = pem::blocks(text).filter(|block| labels.contains(&block.label));
    let encoded = wanted.map(|block| {
        // A damaged block becomes an empty one.
        let bytes = block.decoded().unwrap_or_default();
        encode_string(block.label, LineEnding::LF, &bytes).unwrap_or_default()
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn no_other_block_is_part_of_one() {
        let block = |label: &str, text: &str| {
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let (one, key) = (block("CERTIFICATE", "AAAA"), block("PRIVATE KEY", "SECRET"));
        let of = |text: &str| in_text(text.as_bytes(), &["CERTIFICATE", "X"]).concat();
        let other = block("X", "BBBB");
        let text = format!("{key}{one}# text\n{key}{other}");
        assert_eq!(of(&text), one.clone() + &other);
        // With other line breaks, and with bytes that are not UTF-8.
        let broken = text
            .replace("AAAA", "AA\nAA  ")
            .replace("# text", "# caf\u{e9}");
        let latin: Vec<u8> = broken.chars().map(|letter| letter as u8).collect();
        assert_eq!(in_text(&latin, &["CERTIFICATE"]).concat(), one);
        // Without the last line, and without a line break before the next block.
        let cut = one.replace("-----END CERTIFICATE-----\n", "");
        assert_eq!(of(&format!("{cut}{key}{key}")), one);
        assert_eq!(of(&cut.replace('\n', "\r\n")), one);
        assert_eq!(of(&key), "");
        let place = lockstep_testkit::TempDir::new("public");
        let path = place.join("bundle");
        std::fs::write(&path, format!("{key}{one}")).expect("a file");
        // Others can write to this file: no key is read from it, but its public parts are.
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, mode).expect("the file is ours");
        assert!(key::text(&path).is_err());
        assert_eq!(blocks(&path, &["CERTIFICATE"]), [one]);
        assert!(blocks(&place.join("none"), &["CERTIFICATE"]).is_empty());
    }
}
