//! Public keys of certificates.

use der::asn1::AnyRef;
use der::{Decode, Encode as _, Header, SliceReader, Tag, Tagged as _};

/// Labels of PEM blocks with a certificate.
pub const LABELS: [&str; 2] = ["CERTIFICATE", "TRUSTED CERTIFICATE"];

/// Returns the key of the certificate in a PEM block, as a SubjectPublicKeyInfo; `None` if there is
/// no certificate.
#[must_use]
pub fn certificate_key(block: &str) -> Option<Vec<u8>> {
    let (label, bytes) = der::pem::decode_vec(block.as_bytes()).ok()?;
    LABELS.contains(&label).then(|| of_certificate(&bytes))?
}

/// Returns the key of a certificate in DER.
///
/// ```text
/// Certificate ::= SEQUENCE { TBSCertificate, ... }
/// TBSCertificate ::= SEQUENCE {
///     version [0] EXPLICIT INTEGER DEFAULT v1, serialNumber INTEGER, signature SEQUENCE,
///     issuer Name, validity SEQUENCE, subject Name, SubjectPublicKeyInfo, ... }
/// ```
fn of_certificate(bytes: &[u8]) -> Option<Vec<u8>> {
    // A trusted certificate has more data behind the certificate itself.
    let mut reader = SliceReader::new(bytes).ok()?;
    Header::decode(&mut reader).ok()?;
    let to_be_signed = AnyRef::decode(&mut reader).ok()?;
    let mut parts = SliceReader::new(to_be_signed.value()).ok()?;
    let mut part = || AnyRef::decode(&mut parts).ok();
    let mut first = part()?;
    if first.tag().is_context_specific() {
        first = part()?;
    }
    let is_serial = first.tag() == Tag::Integer;
    // Signature, issuer, validity, subject.
    for _ in 0..4 {
        part()?;
    }
    let key = part()?;
    let is_key = is_serial && key.tag() == Tag::Sequence;
    is_key.then(|| key.to_der().ok())?
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn it_is_the_key_that_the_openssl_command_finds() {
        let place = lockstep_testkit::TempDir::new("certificate");
        let openssl = |words: &str| {
            let mut command = Command::new("openssl");
            command.args(words.split(' ')).current_dir(&*place);
            let output = command
                .env("OPENSSL_CONF", "/dev/null")
                .output()
                .expect("openssl");
            assert!(output.status.success(), "{words}: {output:?}");
            String::from_utf8(output.stdout).expect("text")
        };
        for algorithm in ["ed25519", "ec -pkeyopt ec_paramgen_curve:P-256", "rsa"] {
            openssl(&format!("genpkey -algorithm {algorithm} -out key.pem"));
            openssl("req -x509 -key key.pem -subj /CN=a -days 2 -out made.pem");
            let made = openssl("x509 -in made.pem");
            let public = openssl("pkey -in key.pem -pubout");
            let (_, public) = der::pem::decode_vec(public.as_bytes()).expect("a key");
            assert_eq!(certificate_key(&made), Some(public.clone()), "{algorithm}");
            let trusted = openssl("x509 -in made.pem -trustout -addtrust serverAuth");
            assert_eq!(certificate_key(&trusted), Some(public), "{algorithm}");
            for cut in 0..made.len() {
                let _ = certificate_key(&made[..cut]);
            }
        }
        assert_eq!(certificate_key(""), None);
    }

    #[test]
    fn what_has_no_serial_number_or_no_key_is_no_certificate() {
        const INTEGER: [u8; 3] = [2, 1, 7];
        const SEQUENCE: [u8; 2] = [0x30, 0];
        let of = |serial: &[u8], key: &[u8]| {
            let between = [SEQUENCE; 4].concat();
            let parts = [serial, &between, key].concat();
            let inner = [&[0x30, parts.len() as u8][..], &parts].concat();
            of_certificate(&[&[0x30, inner.len() as u8][..], &inner].concat())
        };
        assert_eq!(of(&INTEGER, &SEQUENCE), Some(SEQUENCE.to_vec()));
        let version = [0xA0, 3, 2, 1, 2];
        let versioned = [&version[..], &INTEGER].concat();
        assert_eq!(of(&versioned, &SEQUENCE), Some(SEQUENCE.to_vec()));
        assert_eq!(of(&INTEGER, &INTEGER), None);
        assert_eq!(of(&SEQUENCE, &SEQUENCE), None);
        assert_eq!(of(&version, &SEQUENCE), None);
    }
}
