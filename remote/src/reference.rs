//! References: files that name a key of the daemon, and hold its public half.
//!
//! Such a file stands where a server expects the PEM file of a private key. It is one PEM block:
//!
//! ```text
//! KeyReference ::= SEQUENCE {
//!     version  INTEGER,                -- 0
//!     name     UTF8String,             -- of the key, as the daemon's configuration has it
//!     socket   UTF8String,             -- of the daemon; empty for the usual one
//!     public   SubjectPublicKeyInfo }
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use der::asn1::{AnyRef, Utf8StringRef};
use der::pem::LineEnding;
use der::{Decode, Encode, Reader, SliceReader, Tag, Tagged as _};

/// Default socket of the daemon.
pub const DEFAULT_SOCKET: &str = "/run/lockstep-keyd.sock";
/// Maximum length of a key's name in bytes.
pub const LONGEST_NAME: usize = 64;
/// Maximum length of a socket's path in bytes: `sockaddr_un` also needs a zero.
pub const LONGEST_SOCKET: usize = 107;
/// Label of the PEM block.
pub const LABEL: &str = "LOCKSTEP KEY REFERENCE";
/// Maximum length of a reference's file. A public key of RSA-16384 is many times shorter.
pub const LONGEST_FILE: usize = 16 << 10;

/// Number of first bytes that distinguish a reference from other structures in DER.
pub const HEAD: usize = 8;

const VERSION: u8 = 0;

/// The name of a key of the daemon, and its expected public half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Name in the daemon's configuration.
    pub name: String,
    /// Socket of the daemon, unless it is [`DEFAULT_SOCKET`].
    pub socket: Option<PathBuf>,
    /// Public half, as a SubjectPublicKeyInfo.
    pub public: Vec<u8>,
}

/// Reason why a file is not a valid reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a reference to a key is damaged ({}); make it by `lockstep keyd export-reference`",
            self.0
        )
    }
}

impl std::error::Error for Malformed {}

impl Reference {
    /// Returns the socket of the daemon.
    pub fn socket(&self) -> &Path {
        self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET))
    }

    /// Parses the text of a PEM block.
    pub fn from_pem(text: &[u8]) -> Result<Reference, Malformed> {
        Reference::from_der(&Reference::der_in(text)?)
    }

    /// Returns the DER in the text of a PEM block, which may be damaged.
    pub fn der_in(text: &[u8]) -> Result<Vec<u8>, Malformed> {
        let Ok((label, bytes)) = der::pem::decode_vec(text) else {
            return Err(Malformed("it is no PEM block"));
        };
        match label == LABEL {
            true => Ok(bytes),
            false => Err(Malformed("it has another label")),
        }
    }

    /// Returns whether DER with these first [`HEAD`] bytes may be a reference. No other structure
    /// from which OpenSSL reads keys has these first bytes.
    pub fn may_start_with(head: &[u8]) -> bool {
        let [0x30, length, rest @ ..] = head else {
            return false;
        };
        let more = match length {
            0..0x80 => 0,
            _ => usize::from(length & 0x7F),
        };
        let contents = rest.get(more..);
        contents.is_some_and(|contents| matches!(contents, [0x02, 1, _, 0x0C, ..]))
    }

    /// Parses DER.
    pub fn from_der(bytes: &[u8]) -> Result<Reference, Malformed> {
        let parts = || {
            let mut reader = SliceReader::new(bytes)?;
            let parts = reader.sequence(|reader| {
                let version = u8::decode(reader)?;
                let name = Utf8StringRef::decode(reader)?;
                let socket = Utf8StringRef::decode(reader)?;
                let public = AnyRef::decode(reader)?;
                Ok((version, name, socket, public.to_der()?, public.tag()))
            })?;
            reader.finish(parts)
        };
        let parts: der::Result<_> = parts();
        let Ok((version, name, socket, public, tag)) = parts else {
            return Err(Malformed("its contents do not parse"));
        };
        if version != VERSION {
            return Err(Malformed("it is of a later version"));
        }
        if !is_name(name.as_str()) {
            return Err(Malformed("its key has no usable name"));
        }
        if tag != Tag::Sequence {
            return Err(Malformed("it has no public key"));
        }
        let socket = match socket.as_str() {
            "" => None,
            path if is_socket(path) => Some(PathBuf::from(path)),
            _ => return Err(Malformed("the path of its socket is not usable")),
        };
        Ok(Reference {
            name: name.as_str().to_owned(),
            socket,
            public,
        })
    }

    /// Returns the public half in PEM, as OpenSSL writes it; `None` if it is invalid.
    pub fn public_pem(&self) -> Option<String> {
        der::pem::encode_string("PUBLIC KEY", LineEnding::LF, &self.public).ok()
    }

    /// Finds and parses the block in the text of a file, which may have other blocks.
    pub fn in_text(text: &str) -> Result<Reference, Malformed> {
        let begin = text.find(&format!("-----BEGIN {LABEL}-----"));
        let block = begin.map_or("", |at| &text[at..]);
        let end = format!("-----END {LABEL}-----");
        let length = block.find(&end).map_or(0, |at| at + end.len());
        Reference::from_pem(&block.as_bytes()[..length])
    }

    /// Returns the text of the file: a line for people, and the PEM block; `None` if a field does
    /// not fit.
    pub fn to_file(&self) -> Option<String> {
        let block = der::pem::encode_string(LABEL, LineEnding::LF, &self.to_der()?).ok()?;
        Some(format!(
            "Reference to the key {} of the key daemon at {}. It holds no secret.\n{block}",
            self.name,
            self.socket().display()
        ))
    }

    fn to_der(&self) -> Option<Vec<u8>> {
        let socket = match &self.socket {
            Some(path) => path.to_str().filter(|path| is_socket(path))?,
            None => "",
        };
        if !is_name(&self.name) || AnyRef::from_der(&self.public).ok()?.tag() != Tag::Sequence {
            return None;
        }
        let encode = || -> der::Result<Vec<u8>> {
            let body = [
                VERSION.to_der()?,
                Utf8StringRef::new(&self.name)?.to_der()?,
                Utf8StringRef::new(socket)?.to_der()?,
                self.public.clone(),
            ]
            .concat();
            AnyRef::new(Tag::Sequence, &body)?.to_der()
        };
        encode().ok()
    }
}

/// Returns whether a key can have this name, which appears in messages and in configurations.
pub fn is_name(name: &str) -> bool {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(usable)
}

/// Returns whether a socket can have this path.
pub fn is_socket(path: &str) -> bool {
    path.starts_with('/') && path.len() <= LONGEST_SOCKET && !path.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> Reference {
        Reference {
            name: "www.example.org".to_owned(),
            socket: None,
            public: vec![0x30, 3, 2, 1, 7],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let elsewhere = Reference {
            socket: Some(PathBuf::from("/run/other/keyd.sock")),
            ..reference()
        };
        for reference in [reference(), elsewhere] {
            let file = reference.to_file().expect("a file");
            assert!(file.len() <= LONGEST_FILE);
            assert_eq!(Reference::from_pem(file.as_bytes()), Ok(reference));
        }
        assert_eq!(reference().socket(), Path::new(DEFAULT_SOCKET));
    }

    #[test]
    fn a_reference_is_found_among_certificates() {
        let own = reference().to_file().expect("a file");
        let other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let text = format!("{other}{own}{other}");
        assert_eq!(Reference::in_text(&text), Ok(reference()));
        for text in [other, &own[..own.len() - 9], ""] {
            assert!(Reference::in_text(text).is_err(), "{text}");
        }
        let public = reference().public_pem().expect("a public half");
        let expected = "-----BEGIN PUBLIC KEY-----\nMAMCAQc=\n-----END PUBLIC KEY-----\n";
        assert_eq!(public, expected);
    }

    #[test]
    fn every_changed_or_missing_byte_is_refused_or_read_as_something_usable() {
        let bytes = reference().to_der().expect("a reference");
        for end in 0..bytes.len() {
            assert!(Reference::from_der(&bytes[..end]).is_err(), "{end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Reference::from_der(&longer).is_err());
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            if let Ok(read) = Reference::from_der(&changed) {
                assert!(
                    read != reference() && is_name(&read.name),
                    "{at}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn the_first_bytes_tell_references_from_keys() {
        for length in [0, 100, 128, 300, 4000] {
            let mut reference = reference();
            reference.public = AnyRef::new(Tag::Sequence, &vec![0; length])
                .and_then(|public| public.to_der())
                .expect("a sequence");
            let bytes = reference.to_der().expect("a reference");
            assert!(Reference::may_start_with(&bytes[..HEAD]), "{length}");
        }
        let keys: [&[u8]; 7] = [
            &[0x30, 0x82, 4, 0xA4, 2, 1, 0, 2],
            &[0x30, 0x82, 4, 0xBE, 2, 1, 0, 0x30],
            &[0x30, 0x77, 2, 1, 1, 4, 0x20, 7],
            &[0x30, 0x59, 0x30, 0x13, 6, 7, 0x2A, 0x86],
            &[0x30, 0xFF, 2, 1, 0, 0x0C, 1, 1],
            &[0x30],
            &[],
        ];
        for head in keys {
            assert!(!Reference::may_start_with(head), "{head:?}");
        }
    }

    #[test]
    fn other_blocks_are_refused() {
        for text in [
            "",
            "-----BEGIN LOCKSTEP KEY REFERENCE-----\n",
            "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
            "-----BEGIN LOCKSTEP KEY REFERENCE-----\n!!!!\n-----END LOCKSTEP KEY REFERENCE-----\n",
        ] {
            let error = Reference::from_pem(text.as_bytes()).expect_err(text);
            assert!(error.to_string().contains("export-reference"), "{error}");
        }
    }

    /// Such a reference comes from another program.
    #[test]
    fn a_socket_without_a_path_is_refused() {
        let socket = "/run/other";
        let good = Reference {
            socket: Some(PathBuf::from(socket)),
            ..reference()
        };
        let bytes = good.to_der().expect("a reference");
        let path = bytes
            .windows(socket.len())
            .position(|part| part == socket.as_bytes());
        for (place, byte) in [(0, b'.'), (4, b'\n')] {
            let mut changed = bytes.clone();
            changed[path.expect("its path") + place] = byte;
            let error = Reference::from_der(&changed).expect_err("no path");
            assert!(error.to_string().contains("its socket"), "{error}");
        }
    }

    #[test]
    fn names_and_sockets_have_bounds() {
        let with = |name: &str, socket: Option<&str>| {
            let socket = socket.map(PathBuf::from);
            let reference = Reference {
                name: name.to_owned(),
                socket,
                ..reference()
            };
            reference.to_file().is_some()
        };
        assert!(with("a", Some("/a")) && with(&"a".repeat(LONGEST_NAME), None));
        let longer = "a".repeat(LONGEST_NAME + 1);
        for name in ["", "a b", "a/b", "ä", "a\n", &longer] {
            assert!(!with(name, None), "{name}");
        }
        let long = format!("/{}", "a".repeat(LONGEST_SOCKET));
        for socket in ["run/keyd", &long, "/run/\n"] {
            assert!(!with("a", Some(socket)), "{socket}");
        }
    }
}
