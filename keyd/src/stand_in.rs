//! The file that stands where a server expects that of a key: a reference, and the certificates
//! that were beside the key.

use std::path::Path;

use lockstep_remote::Reference;
use lockstep_remote::reference::LABEL;
use rustix::fs::{Mode, OFlags};

use crate::key::{self, Unusable};

/// Parts of a file that say something of the key that follows, and nothing without it.
const ABOUT_A_KEY: &str = "EC PARAMETERS";

/// What stands for the file of a key: the reference, and behind it the other blocks of the file in
/// their order. OpenSSL 3.0.2 looks behind a certificate for private keys alone.
pub fn stand_in(path: &Path, reference: &Reference) -> Result<String, Unusable> {
    from_text(&key::text(path)?, reference)
}

fn from_text(text: &[u8], reference: &Reference) -> Result<String, Unusable> {
    let text = str::from_utf8(text).map_err(|_| key::unusable("the file is not text"))?;
    let reference = reference
        .to_file()
        .ok_or_else(|| key::unusable("the key cannot be written as a reference"))?;
    let mut others = String::new();
    let mut has_key = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(label) = label(line) else { continue };
        let end = format!("-----END {label}-----");
        let block = lines.by_ref().take_while(|line| line.trim_end() != end);
        let block: Vec<&str> = block.map(str::trim_end).collect();
        match label {
            ABOUT_A_KEY => {}
            label if label.ends_with("PRIVATE KEY") && has_key => {
                return Err(key::unusable("the file holds more than one private key"));
            }
            label if label.ends_with("PRIVATE KEY") => has_key = true,
            _ => others += &format!("{}\n{}\n{end}\n", line.trim_end(), block.join("\n")),
        }
    }
    match has_key {
        true => Ok(reference + &others),
        false => Err(key::unusable("there is no private key in the file, in PEM")),
    }
}

/// What is in a file in PEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// A private key, encrypted or not.
    pub key: bool,
    /// A reference to a key.
    pub reference: bool,
    /// A certificate.
    pub certificate: bool,
}

/// What is in a file; nothing if it cannot be read.
pub fn contents(path: &Path) -> Contents {
    // No device or pipe holds up the one who asks.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let text = file.ok().and_then(|file| key::text_of(file.into()).ok());
    let text = text.unwrap_or_default();
    let mut found = Contents::default();
    for label in str::from_utf8(&text)
        .unwrap_or_default()
        .lines()
        .filter_map(label)
    {
        found.key |= label.ends_with("PRIVATE KEY");
        found.reference |= label == LABEL;
        found.certificate |= label == "CERTIFICATE" || label == "TRUSTED CERTIFICATE";
    }
    found
}

/// What a line says that begins a block.
fn label(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("-----BEGIN ")?;
    rest.trim_end().strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(label: &str, text: &str) -> String {
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    #[test]
    fn the_key_goes_and_the_certificates_stay() {
        let reference = Reference {
            name: "www".to_owned(),
            socket: None,
            public: vec![0x30, 0],
        };
        let own = reference.to_file().unwrap();
        let of = |text: &str| from_text(text.as_bytes(), &reference);
        let [first, second] = ["AAAA", "BBBB"].map(|text| block("CERTIFICATE", text));
        let key = block("EC PRIVATE KEY", "c2VjcmV0");
        let text = format!(
            "# mine\n{first}{}Key:\n{key}{second}",
            block("EC PARAMETERS", "Bgg=")
        );
        assert_eq!(of(&text).unwrap(), format!("{own}{first}{second}"));
        // As other systems end lines, and with a line without an end.
        let foreign = format!("{first}{key}").replace('\n', "\r\n");
        assert_eq!(of(foreign.trim_end()).unwrap(), format!("{own}{first}"));

        let wrong = |text: &str| of(text).unwrap_err().to_string();
        assert!(wrong(&first).contains("no private key"));
        assert!(wrong(&format!("{key}{key}")).contains("more than one"));
    }
}
