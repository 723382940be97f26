//! Private keys: read from PEM files, and held in the vault's memory for keys.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use der::asn1::{AnyRef, BitStringRef, ContextSpecific, ObjectIdentifier, OctetStringRef, UintRef};
use der::{Decode, Encode, Reader as _, SliceReader, Tag, TagNumber, Tagged as _};
use lockstep_engine::{
    Curve, EcKey, EcdsaSignInput, EcdsaVerifyInput, Ed25519Key, Ed25519SignInput, Engine, MlDsa,
    MlDsaKey, MlDsaSignInput, Request, Response, RsaComponents, RsaInput, RsaKey, Secret,
};
use lockstep_remote::rsa_public;
use pkcs8::PrivateKeyInfo;
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};
use zeroize::Zeroizing;

use crate::keys::pem::{self, Block, PRIVATE};
use crate::system::trusted;

const RSA: ObjectIdentifier = oid("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = oid("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = oid("1.3.101.112");
/// Object identifiers of the parameter sets (RFC 9881).
const ML_DSA: [(MlDsa, ObjectIdentifier); 3] = [
    (MlDsa::MlDsa44, oid("2.16.840.1.101.3.4.3.17")),
    (MlDsa::MlDsa65, oid("2.16.840.1.101.3.4.3.18")),
    (MlDsa::MlDsa87, oid("2.16.840.1.101.3.4.3.19")),
];
const CURVES: [(Curve, ObjectIdentifier); 2] = [
    (Curve::P256, oid("1.2.840.10045.3.1.7")),
    (Curve::P384, oid("1.3.132.0.34")),
];

const fn oid(name: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(name)
}

const RSA_LABEL: &str = "RSA PRIVATE KEY";
const EC_LABEL: &str = "EC PRIVATE KEY";

const UNPARSED: &str = "the private key does not parse";
const SERVED: &str = "the key daemon serves keys of RSA, P-256, P-384, Ed25519 and ML-DSA alone";

/// Maximum length of a file. It may have a certificate chain beside the key.
const LONGEST_FILE: u64 = 256 << 10;

/// A private key, ready for the lanes.
#[derive(Clone)]
pub enum Private {
    /// RSA, for signatures and decryption.
    Rsa(Arc<RsaKey>),
    /// ECDSA on P-256 or P-384.
    Ec(Arc<EcKey>),
    /// Ed25519.
    Ed25519(Arc<Ed25519Key>),
    /// ML-DSA, of any parameter set.
    MlDsa(Arc<MlDsaKey>),
}

/// A key with its public half.
pub struct Key {
    /// The private half.
    pub private: Private,
    /// The public half, as a SubjectPublicKeyInfo.
    pub public: Vec<u8>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.kind())
    }
}

/// Reads the text of a key's file, which nobody but root can change.
pub(crate) fn text(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    text_of(&trusted::open(path).map_err(|why| why.to_string())?)
}

/// Reads the text of any user's file; returns an empty text if that fails.
pub(crate) fn text_of_any(path: &Path) -> Zeroizing<Vec<u8>> {
    let file = trusted::open_any(path).ok();
    let text = file.and_then(|file| text_of(&file).ok());
    text.unwrap_or_default()
}

/// Reads the text of a file that may hold a key.
pub(crate) fn text_of(file: &File) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| error.to_string();
    let size = file.metadata().map_err(failed)?.len();
    if size > LONGEST_FILE {
        return Err("the file has more than 256 KiB, too many for a key".to_owned());
    }
    // Allocated once: a vector that grows leaves copies of the key behind.
    let mut text = Zeroizing::new(Vec::with_capacity(size as usize));
    file.take(size).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

/// Returns the mode of a key's file if others than its owner can read it.
pub fn readable_by_others(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.mode() & 0o777;
    (mode & 0o044 != 0).then_some(mode)
}

impl Private {
    /// Returns the request for one private operation; `None` if the input has the wrong length. The
    /// input is a padded number for RSA, a digest for ECDSA, a message for Ed25519, and μ for
    /// ML-DSA. Only ML-DSA uses `randomness`; without it the engine draws some.
    pub fn request(&self, input: &[u8], randomness: Option<Secret>) -> Option<Request> {
        Some(match self {
            Private::Rsa(key) if input.len() == key.modulus_bytes() => {
                let (key, input) = (Arc::clone(key), input.to_vec().into());
                Request::RsaPrivate(RsaInput { key, input })
            }
            Private::Ec(key) if (1..=64).contains(&input.len()) => {
                let (key, digest) = (Arc::clone(key), input.to_vec().into());
                Request::EcdsaSign(EcdsaSignInput { key, digest })
            }
            Private::Ed25519(key) => {
                let (key, message) = (Arc::clone(key), input.to_vec().into());
                Request::Ed25519Sign(Ed25519SignInput { key, message })
            }
            Private::MlDsa(key) => Request::MlDsaSign(MlDsaSignInput {
                key: Arc::clone(key),
                mu: input.try_into().ok()?,
                randomness,
            }),
            _ => return None,
        })
    }
}

impl Key {
    /// Creates a key of an algorithm; `point` is the encoded public half.
    fn new(
        private: Private,
        oid: ObjectIdentifier,
        parameters: Option<AnyRef<'_>>,
        point: &[u8],
    ) -> Result<Key, String> {
        let algorithm = AlgorithmIdentifierRef { oid, parameters };
        let info = BitStringRef::from_bytes(point).and_then(|subject_public_key| {
            #[rustfmt::skip]
            let info = SubjectPublicKeyInfoRef { algorithm, subject_public_key };
            info.to_der()
        });
        let public = info.map_err(|_| UNPARSED)?;
        Ok(Key { private, public })
    }

    /// Reads the first private key in a PEM file.
    pub fn read(path: &Path, engine: &Engine) -> Result<Key, String> {
        Key::from_pem(&text(path)?, engine)
    }

    /// Reads the first private key in the text of a PEM file.
    pub fn from_pem(text: &[u8], engine: &Engine) -> Result<Key, String> {
        const ENCRYPTED: &str = "the key is encrypted, and the key daemon knows no password; write \
                                 it in plain, for root alone: `openssl pkey -in FILE -out NEWFILE`";
        let block = block(text)?;
        if block.label == "ENCRYPTED PRIVATE KEY" || block.is_encrypted() {
            return Err(ENCRYPTED.to_owned());
        }
        if !block.is_whole {
            return Err("the PEM block has no end".to_owned());
        }
        let bytes = block.decoded().ok_or("the PEM block is damaged")?;
        let bytes = first(&bytes).ok_or(UNPARSED)?;
        // OpenSSL accepts PKCS#8 behind the label of a single algorithm, and the format of a single
        // algorithm behind the label of PKCS#8.
        let key = match (block.label, PrivateKeyInfo::from_der(bytes)) {
            (PRIVATE | RSA_LABEL | EC_LABEL | "DSA PRIVATE KEY", Ok(info)) => pkcs8(&info, engine),
            (RSA_LABEL, _) => rsa(bytes),
            (EC_LABEL, _) => ec(bytes, None),
            (PRIVATE, _) => rsa(bytes).or_else(|_| ec(bytes, None)),
            _ => Err(SERVED.to_owned()),
        }?;
        key.try_out(engine)?;
        Ok(key)
    }

    /// Returns the kind of key, for messages.
    pub fn kind(&self) -> String {
        match &self.private {
            Private::Rsa(key) => format!("RSA-{}", 8 * key.modulus_bytes()),
            Private::Ec(key) => match key.curve() {
                Curve::P256 => "P-256".to_owned(),
                Curve::P384 => "P-384".to_owned(),
            },
            Private::Ed25519(_) => "Ed25519".to_owned(),
            Private::MlDsa(key) => match key.set() {
                MlDsa::MlDsa44 => "ML-DSA-44".to_owned(),
                MlDsa::MlDsa65 => "ML-DSA-65".to_owned(),
                MlDsa::MlDsa87 => "ML-DSA-87".to_owned(),
            },
        }
    }

    /// Returns whether its signatures need a ring with long answers.
    pub fn has_long_answers(&self) -> bool {
        matches!(self.private, Private::MlDsa(_))
    }

    /// Returns whether the key can decrypt as well as sign.
    pub fn can_decrypt(&self) -> bool {
        matches!(self.private, Private::Rsa(_))
    }

    /// Makes one signature, which checks that the halves of the key belong together, and that this
    /// machine can compute with it.
    fn try_out(&self, engine: &Engine) -> Result<(), String> {
        let length = match &self.private {
            Private::Rsa(key) => key.modulus_bytes(),
            Private::Ec(key) => key.curve().bytes(),
            Private::Ed25519(_) => 32,
            Private::MlDsa(_) => 64,
        };
        let mut input = vec![1; length];
        if let Private::Rsa(_) = self.private {
            input[0] = 0;
        }
        let request = self.private.request(&input, None);
        let response = request.and_then(|request| serve(engine, request));
        let response = response.ok_or("this machine cannot compute with the key")?;
        let (Private::Ec(key), Response::Signature(signature)) = (&self.private, response) else {
            // The engine has checked the results of RSA and ML-DSA; the public key of Ed25519 was
            // computed from the private one.
            return Ok(());
        };
        // The point comes last.
        let start = self
            .public
            .len()
            .saturating_sub(2 * key.curve().bytes() + 1);
        let verify = Request::EcdsaVerify(EcdsaVerifyInput {
            curve: key.curve(),
            public: self.public[start..].to_vec(),
            digest: Zeroizing::new(input),
            signature: signature.to_vec(),
        });
        match serve(engine, verify) {
            Some(Response::Verified(true)) => Ok(()),
            _ => Err("the public key in the file does not belong to the private key".to_owned()),
        }
    }
}

/// Returns whether a text has a private key, in any format.
pub(crate) fn is_in(text: &[u8]) -> bool {
    block(text).is_ok()
}

fn serve(engine: &Engine, request: Request) -> Option<Response> {
    let shape = request.shape();
    engine.serve_gathered(shape, vec![request]).pop()?.ok()
}

/// Returns the block of the first private key, which is the one that libcrypto takes.
pub(crate) fn block(text: &[u8]) -> Result<Block<'_>, String> {
    let mut private = pem::blocks(text).filter(|block| block.label.ends_with(PRIVATE));
    let none = || "there is no private key in the file, in PEM".to_owned();
    private.next().ok_or_else(none)
}

/// Returns the first element of these bytes. OpenSSL ignores the bytes behind it.
pub(crate) fn first(bytes: &[u8]) -> Option<&[u8]> {
    SliceReader::new(bytes).ok()?.tlv_bytes().ok()
}

fn pkcs8(info: &PrivateKeyInfo<'_>, engine: &Engine) -> Result<Key, String> {
    match info.algorithm.oid {
        RSA => rsa(info.private_key),
        EC => {
            let curve = info.algorithm.parameters.ok_or(UNPARSED)?;
            ec(info.private_key, Some(curve))
        }
        ED25519 => ed25519(info.private_key, engine),
        oid => match ML_DSA.into_iter().find(|(_, own)| *own == oid) {
            Some((set, _)) => ml_dsa(set, oid, info.private_key),
            None => Err(SERVED.to_owned()),
        },
    }
}

fn rsa(bytes: &[u8]) -> Result<Key, String> {
    let numbers = AnyRef::from_der(bytes).and_then(|key| {
        key.sequence(|reader| {
            let version = u8::decode(reader)?;
            let mut number = || UintRef::decode(reader).map(|own| own.as_bytes());
            let [n, e, _, p, q, dp, dq, qinv] = [(); 8].map(|()| number());
            #[rustfmt::skip]
            let numbers = RsaComponents { n: n?, e: e?, p: p?, q: q?, dp: dp?, dq: dq?, qinv: qinv? };
            match version {
                0 => Ok(numbers),
                _ => Err(Tag::Integer.value_error()),
            }
        })
    });
    let components =
        numbers.map_err(|_| "the RSA key does not parse, or has more than two primes")?;
    let private = RsaKey::new(&components).map_err(|reason| format!("RSA: {reason}"))?;
    let public = rsa_public(components.n, components.e);
    Ok(Key {
        private: Private::Rsa(Arc::new(private)),
        public: public.ok_or("the RSA key has impossible numbers")?,
    })
}

/// Reads an ECPrivateKey (RFC 5915).
///
/// ```text
/// ECPrivateKey ::= SEQUENCE {
///     version INTEGER, privateKey OCTET STRING, parameters [0] ... OPTIONAL,
///     publicKey [1] BIT STRING OPTIONAL }
/// ```
/// The parameters are in the key, or in the PKCS#8 around it.
fn ec(bytes: &[u8], around: Option<AnyRef<'_>>) -> Result<Key, String> {
    let rewritten = |what| {
        format!(
            "the key has {what}; replace it with the output of `openssl ec -in FILE -out NEWFILE \
             -param_enc named_curve -conv_form uncompressed`"
        )
    };
    let parts = AnyRef::from_der(bytes).and_then(|key| {
        key.sequence(|reader| {
            u8::decode(reader)?;
            let secret = OctetStringRef::decode(reader)?.as_bytes();
            let curve = ContextSpecific::<AnyRef<'_>>::decode_explicit(reader, TagNumber::N0)?;
            let point =
                ContextSpecific::<BitStringRef<'_>>::decode_explicit(reader, TagNumber::N1)?;
            let point = point.and_then(|own| own.value.as_bytes());
            Ok((secret, curve.map(|own| own.value), point))
        })
    });
    let (secret, inner, point) = parts.map_err(|_| UNPARSED)?;
    let parameters = around.or(inner).ok_or(UNPARSED)?;
    let Ok(oid) = parameters.decode_as::<ObjectIdentifier>() else {
        return Err(rewritten("the numbers of its curve, and not its name"));
    };
    let curve = CURVES.into_iter().find(|(_, own)| *own == oid);
    let (curve, _) = curve.ok_or("the key daemon serves P-256 and P-384, and no other curve")?;
    let whole = |point: &&[u8]| point.first() == Some(&4);
    let point = point.filter(whole);
    let point = point.ok_or_else(|| rewritten("no public half, or a short one"))?;
    let malformed = |_| "the key has the wrong length or form for its curve";
    let private = EcKey::new(curve, secret, Some(point)).map_err(malformed)?;
    Key::new(Private::Ec(Arc::new(private)), EC, Some(parameters), point)
}

fn ed25519(bytes: &[u8], engine: &Engine) -> Result<Key, String> {
    let seed = OctetStringRef::from_der(bytes).map_err(|_| UNPARSED)?;
    let malformed = |_| "the key has the wrong length for Ed25519";
    let private = Ed25519Key::new(seed.as_bytes()).map_err(malformed)?;
    let point = engine.ed25519_public(&private);
    Key::new(Private::Ed25519(Arc::new(private)), ED25519, None, &point)
}

/// Reads a private key of ML-DSA (RFC 9881).
///
/// ```text
/// ML-DSA-PrivateKey ::= CHOICE {
///     seed [0] OCTET STRING, expandedKey OCTET STRING,
///     both SEQUENCE { seed OCTET STRING, expandedKey OCTET STRING } }
/// ```
fn ml_dsa(set: MlDsa, oid: ObjectIdentifier, bytes: &[u8]) -> Result<Key, String> {
    /// The output is a new file, since `openssl pkey` truncates its output before it reads its
    /// input.
    const OTHER: &str = "the key is damaged, or in a form of OpenSSL's own; replace its block with \
                         the output of `openssl pkey -in FILE -out NEWFILE -provparam \
                         ml-dsa.output_formats=seed-priv,priv-only`";
    const SEED: Tag = Tag::ContextSpecific {
        constructed: false,
        number: TagNumber::N0,
    };
    let malformed = |_| "the key has the wrong length for its set of ML-DSA, or is damaged";
    let choice = AnyRef::from_der(bytes).map_err(|_| OTHER)?;
    let private = match choice.tag() {
        SEED => MlDsaKey::from_seed(set, choice.value()).map_err(malformed)?,
        // OpenSSL's own format appends the public key to the private one.
        Tag::OctetString => MlDsaKey::from_private(set, choice.value()).map_err(|_| OTHER)?,
        Tag::Sequence => {
            let parts = choice.sequence(|reader| {
                let seed = OctetStringRef::decode(reader)?;
                Ok((seed, OctetStringRef::decode(reader)?))
            });
            let (seed, expanded) = parts.map_err(|_| UNPARSED)?;
            let key = MlDsaKey::from_seed(set, seed.as_bytes()).map_err(malformed)?;
            if !key.is_of(expanded.as_bytes()) {
                return Err("the seed in the file has another private key".to_owned());
            }
            key
        }
        _ => return Err(OTHER.to_owned()),
    };
    let private = Arc::new(private);
    Key::new(
        Private::MlDsa(Arc::clone(&private)),
        oid,
        None,
        private.public(),
    )
}

#[cfg(test)]
pub(crate) mod tests;
