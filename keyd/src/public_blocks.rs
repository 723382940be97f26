//! The public parts of files that may hold keys as well.

use std::path::Path;

use crate::key;

/// The PEM blocks of a file that have one of these labels; none if it cannot be read. A block ends
/// at the next line of dashes, whatever that says, so that nothing of another block is part of it.
pub fn blocks(path: &Path, labels: &[&str]) -> Vec<String> {
    // The daemon owns the references that it keeps.
    let text = key::text_of_any(path);
    str::from_utf8(&text).map_or_else(|_| Vec::new(), |text| in_text(text, labels))
}

fn in_text(text: &str, labels: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim_end).peekable();
    while let Some(line) = lines.next() {
        let label = line
            .strip_prefix("-----BEGIN ")
            .and_then(|rest| rest.strip_suffix("-----"));
        let Some(label) = label.filter(|label| labels.contains(label)) else {
            continue;
        };
        let mut block = format!("{line}\n");
        while let Some(line) = lines.next_if(|line| !line.starts_with("-----")) {
            block += line;
            block.push('\n');
        }
        block += &format!("-----END {label}-----\n");
        found.push(block);
    }
    found
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
        let of = |text: &str| in_text(text, &["CERTIFICATE", "X"]).concat();
        assert_eq!(
            of(&format!("{key}{one}# text\n{key}{}", block("X", "B"))),
            one.clone() + &block("X", "B")
        );
        // Without an end, and without a line's end before the next block.
        let cut = one.replace("-----END CERTIFICATE-----\n", "");
        assert_eq!(of(&format!("{cut}{key}{key}")), one);
        assert_eq!(of(&cut.replace('\n', "\r\n")), one);
        assert_eq!(of(&key), "");
        let place = lockstep_testkit::TempDir::new("public");
        let path = place.join("bundle");
        std::fs::write(&path, format!("{key}{one}")).expect("a file");
        // As where another user owns it: no key is read from there, but a public part is.
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, mode).expect("the file is ours");
        assert!(key::text(&path).is_err());
        assert_eq!(blocks(&path, &["CERTIFICATE"]), [one]);
        assert!(blocks(&place.join("none"), &["CERTIFICATE"]).is_empty());
    }
}
