//! Keys in PEM and DER.

use std::sync::Arc;

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetStringRef, UintRef};
use der::{Decode as _, Encode as _, SecretDocument, Tag, TagNumber, Tagged as _};
use lockstep_ops::{Curve, Ed25519Key, Kem, MlDsa};
use pkcs1::{RsaPrivateKey, RsaPublicKey};
use pkcs8::PrivateKeyInfo;
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};
use sec1::EcPrivateKey;

use crate::key::{Algorithm, KeyError, Private, PrivateKey, Public, PublicKey};

const fn oid(name: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(name)
}

const RSA: ObjectIdentifier = oid("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = oid("1.2.840.10045.2.1");
const P256: ObjectIdentifier = oid("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = oid("1.3.132.0.34");

/// Algorithms whose identifiers have no parameters (RFC 8410, RFC 9881, RFC 9935).
const OTHERS: [(ObjectIdentifier, Algorithm); 8] = [
    (oid("1.3.101.110"), Algorithm::X25519),
    (oid("1.3.101.112"), Algorithm::Ed25519),
    (
        oid("2.16.840.1.101.3.4.3.17"),
        Algorithm::MlDsa(MlDsa::MlDsa44),
    ),
    (
        oid("2.16.840.1.101.3.4.3.18"),
        Algorithm::MlDsa(MlDsa::MlDsa65),
    ),
    (
        oid("2.16.840.1.101.3.4.3.19"),
        Algorithm::MlDsa(MlDsa::MlDsa87),
    ),
    (oid("2.16.840.1.101.3.4.4.1"), Algorithm::Kem(Kem::MlKem512)),
    (oid("2.16.840.1.101.3.4.4.2"), Algorithm::Kem(Kem::MlKem768)),
    (
        oid("2.16.840.1.101.3.4.4.3"),
        Algorithm::Kem(Kem::MlKem1024),
    ),
];

impl From<der::Error> for KeyError {
    fn from(_: der::Error) -> KeyError {
        KeyError::Malformed
    }
}

impl PublicKey {
    /// Reads a key in PEM: SubjectPublicKeyInfo (`PUBLIC KEY`) or PKCS#1 (`RSA PUBLIC KEY`).
    pub fn from_pem(text: &[u8]) -> Result<PublicKey, KeyError> {
        public_pem(text)
    }

    /// Reads a key in DER: SubjectPublicKeyInfo.
    pub fn from_der(bytes: &[u8]) -> Result<PublicKey, KeyError> {
        public_der(bytes)
    }

    /// Returns the key in DER: SubjectPublicKeyInfo. `None` for a hybrid, which has no such form.
    pub fn to_der(&self) -> Option<Vec<u8>> {
        to_der(self)
    }
}

impl PrivateKey {
    /// Reads a key in PEM: PKCS#8 (`PRIVATE KEY`), PKCS#1 (`RSA PRIVATE KEY`) or SEC 1
    /// (`EC PRIVATE KEY`), not encrypted.
    pub fn from_pem(text: &[u8]) -> Result<PrivateKey, KeyError> {
        private_pem(text)
    }

    /// Reads a key in DER: PKCS#8.
    pub fn from_der(bytes: &[u8]) -> Result<PrivateKey, KeyError> {
        private_der(bytes)
    }
}

/// Returns the algorithm of an identifier.
fn algorithm(identifier: &AlgorithmIdentifierRef<'_>) -> Result<Algorithm, KeyError> {
    match identifier.oid {
        RSA => Ok(Algorithm::Rsa),
        EC => curve(
            identifier
                .parameters
                .ok_or(KeyError::Malformed)?
                .decode_as()?,
        ),
        other => OTHERS
            .iter()
            .find(|(own, _)| *own == other)
            .map(|(_, algorithm)| *algorithm)
            .ok_or(KeyError::Algorithm),
    }
}

fn curve(oid: ObjectIdentifier) -> Result<Algorithm, KeyError> {
    match oid {
        P256 => Ok(Algorithm::P256),
        P384 => Ok(Algorithm::P384),
        _ => Err(KeyError::Algorithm),
    }
}

/// Returns the first block with one of these labels, of a text that may have others.
fn block<'a>(text: &'a [u8], labels: &[&str]) -> Result<&'a str, KeyError> {
    let text = str::from_utf8(text).map_err(|_| KeyError::Pem)?;
    let blocks = labels.iter().filter_map(|label| {
        let start = text.find(&format!("-----BEGIN {label}-----"))?;
        let last = format!("-----END {label}-----");
        let length = text[start..].find(&last)? + last.len();
        Some((start, &text[start..start + length]))
    });
    let first = blocks.min_by_key(|(start, _)| *start);
    first.map(|(_, block)| block).ok_or(KeyError::Pem)
}

fn public_pem(text: &[u8]) -> Result<PublicKey, KeyError> {
    let text = block(text, &["PUBLIC KEY", "RSA PUBLIC KEY"])?;
    let (label, bytes) = der::Document::from_pem(text).map_err(|_| KeyError::Pem)?;
    match label {
        "PUBLIC KEY" => public_der(bytes.as_bytes()),
        "RSA PUBLIC KEY" => public_rsa(bytes.as_bytes()),
        _ => Err(KeyError::Pem),
    }
}

fn public_der(bytes: &[u8]) -> Result<PublicKey, KeyError> {
    let info = SubjectPublicKeyInfoRef::from_der(bytes)?;
    let key = info.subject_public_key.as_bytes();
    let key = key.ok_or(KeyError::Malformed)?;
    match algorithm(&info.algorithm)? {
        Algorithm::Rsa => public_rsa(key),
        algorithm => PublicKey::from_raw(algorithm, key),
    }
}

fn to_der(key: &PublicKey) -> Option<Vec<u8>> {
    let own = key.algorithm();
    let others = OTHERS.iter().find(|(_, algorithm)| *algorithm == own);
    let (oid, parameters) = match (&key.half, others) {
        (Public::Rsa(_), _) => (RSA, Some(AnyRef::NULL)),
        (Public::Ec(Curve::P256, _), _) => (EC, Some(AnyRef::from(&P256))),
        (Public::Ec(Curve::P384, _), _) => (EC, Some(AnyRef::from(&P384))),
        (_, other) => (other?.0, None),
    };
    let numbers;
    let bytes = match &key.half {
        Public::Rsa(key) => {
            let modulus = UintRef::new(&key.modulus).ok()?;
            let public_exponent = UintRef::new(&key.exponent).ok()?;
            let key = RsaPublicKey {
                modulus,
                public_exponent,
            };
            numbers = key.to_der().ok()?;
            &numbers[..]
        }
        _ => key.raw()?,
    };
    let algorithm = AlgorithmIdentifierRef { oid, parameters };
    let subject_public_key = BitStringRef::from_bytes(bytes).ok()?;
    let info = SubjectPublicKeyInfoRef {
        algorithm,
        subject_public_key,
    };
    info.to_der().ok()
}

fn public_rsa(bytes: &[u8]) -> Result<PublicKey, KeyError> {
    let key = RsaPublicKey::from_der(bytes)?;
    PublicKey::from_rsa(key.modulus.as_bytes(), key.public_exponent.as_bytes())
}

fn private_pem(text: &[u8]) -> Result<PrivateKey, KeyError> {
    if block(text, &["ENCRYPTED PRIVATE KEY"]).is_ok() {
        return Err(KeyError::Encrypted);
    }
    let text = block(text, &["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"])?;
    if text.contains("ENCRYPTED") {
        return Err(KeyError::Encrypted);
    }
    let (label, bytes) = SecretDocument::from_pem(text).map_err(|_| KeyError::Pem)?;
    match label {
        "PRIVATE KEY" => private_der(bytes.as_bytes()),
        "RSA PRIVATE KEY" => private_rsa(bytes.as_bytes()),
        "EC PRIVATE KEY" => private_ec(bytes.as_bytes(), None),
        _ => Err(KeyError::Pem),
    }
}

fn private_der(bytes: &[u8]) -> Result<PrivateKey, KeyError> {
    let info = PrivateKeyInfo::try_from(bytes).map_err(|_| KeyError::Malformed)?;
    let key = info.private_key;
    match algorithm(&info.algorithm)? {
        Algorithm::Rsa => private_rsa(key),
        algorithm @ (Algorithm::P256 | Algorithm::P384) => private_ec(key, algorithm.curve()),
        algorithm @ (Algorithm::MlDsa(_) | Algorithm::Kem(_)) => private_of_choice(algorithm, key),
        algorithm => {
            let seed = OctetStringRef::from_der(key)?.as_bytes();
            match (algorithm, info.public_key) {
                // Two signatures of a message by two public keys would reveal the scalar.
                (Algorithm::Ed25519, Some(noted)) => {
                    let noted = noted.try_into().map_err(|_| KeyError::Malformed)?;
                    let key = Ed25519Key::of_pair(seed, noted).map_err(|_| KeyError::Malformed)?;
                    let key = PrivateKey::of_half(Private::Ed25519(Arc::new(key)))?;
                    match key.public.raw() == Some(&noted) {
                        true => Ok(key),
                        false => Err(KeyError::Malformed),
                    }
                }
                _ => PrivateKey::from_raw(algorithm, seed),
            }
        }
    }
}

fn private_rsa(bytes: &[u8]) -> Result<PrivateKey, KeyError> {
    let key = RsaPrivateKey::from_der(bytes)?;
    let [n, e, p, q] = [key.modulus, key.public_exponent, key.prime1, key.prime2];
    let [dp, dq, qinv] = [key.exponent1, key.exponent2, key.coefficient];
    PrivateKey::of_numbers([n, e, p, q, dp, dq, qinv].map(|number| number.as_bytes()))
}

/// Reads a key of SEC 1, whose curve is in it or in the PKCS#8 around it.
fn private_ec(bytes: &[u8], around: Option<Curve>) -> Result<PrivateKey, KeyError> {
    let key = EcPrivateKey::from_der(bytes)?;
    let inner = key.parameters.and_then(|own| own.named_curve());
    let inner = inner.map(curve).transpose()?;
    let inner = inner.and_then(Algorithm::curve);
    let curve = match (around, inner) {
        (Some(around), Some(inner)) if around != inner => return Err(KeyError::Malformed),
        (around, inner) => around.or(inner).ok_or(KeyError::Malformed)?,
    };
    PrivateKey::of_scalar(curve, key.private_key, key.public_key)
}

/// Reads a key that is a seed, an expanded key or both (RFC 9881, RFC 9935).
fn private_of_choice(algorithm: Algorithm, bytes: &[u8]) -> Result<PrivateKey, KeyError> {
    const SEED: Tag = Tag::ContextSpecific {
        constructed: false,
        number: TagNumber::N0,
    };
    let choice = AnyRef::from_der(bytes)?;
    match choice.tag() {
        SEED | Tag::OctetString => PrivateKey::from_raw(algorithm, choice.value()),
        Tag::Sequence => {
            let (seed, expanded) = choice.sequence(|reader| {
                let seed = OctetStringRef::decode(reader)?;
                Ok((seed, OctetStringRef::decode(reader)?))
            })?;
            let key = PrivateKey::from_raw(algorithm, seed.as_bytes())?;
            let belongs = match &key.half {
                Private::MlDsa(key) => key.is_of(expanded.as_bytes()),
                Private::Kem(key) => key.has_private(expanded.as_bytes()),
                _ => false,
            };
            belongs.then_some(key).ok_or(KeyError::Malformed)
        }
        _ => Err(KeyError::Malformed),
    }
}
