//! Keys of the daemon: read from PEM files, and kept in memory for keys.

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
use crate::keys::trusted;

const RSA: ObjectIdentifier = oid("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = oid("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = oid("1.3.101.112");
/// RFC 9881.
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

/// The longest file that is read: a certificate chain may stand beside the key.
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
    /// ML-DSA, of any set.
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

/// The text of a key's file, which nobody but root can change.
pub(crate) fn text(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    text_of(&trusted::open(path).map_err(|why| why.to_string())?)
}

/// The text of a file whose owner may be anybody, or nothing.
pub(crate) fn text_of_any(path: &Path) -> Zeroizing<Vec<u8>> {
    let file = trusted::open_any(path).ok();
    let text = file.and_then(|file| text_of(&file).ok());
    text.unwrap_or_default()
}

/// The text of a file that may hold a key.
pub(crate) fn text_of(file: &File) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| error.to_string();
    let size = file.metadata().map_err(failed)?.len();
    if size > LONGEST_FILE {
        return Err("the file has more than 256 KiB, too many for a key".to_owned());
    }
    // Of the right size at once: a vector that grows leaves copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(size as usize));
    file.take(size).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

/// The mode of a key's file that not only its owner can read.
pub fn readable_by_others(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.mode() & 0o777;
    (mode & 0o044 != 0).then_some(mode)
}

impl Private {
    /// Returns the request for one private operation. The input is a padded number for RSA, a
    /// digest for ECDSA, a message for Ed25519, and μ for ML-DSA, for which the engine draws the
    /// randomness if there is none. `None` if the input has the wrong length.
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
    /// Makes a key of an algorithm, which writes the public half as `point`.
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
        // PKCS#8 may stand behind the label of a kind of keys, and a key of these kinds behind that
        // of PKCS#8.
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

    /// What kind of key it is, for people.
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

    /// Whether its signatures need a ring with long answers.
    pub fn has_long_answers(&self) -> bool {
        matches!(self.private, Private::MlDsa(_))
    }

    /// Whether it can decrypt, and not sign alone.
    pub fn can_decrypt(&self) -> bool {
        matches!(self.private, Private::Rsa(_))
    }

    /// Signs once: that the halves of the file belong together, and that this machine can.
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
            // RSA's and ML-DSA's results are checked, and Ed25519's public key was computed.
            return Ok(());
        };
        // It stands last.
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

/// Whether a text has a private key, of any form.
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

/// Returns the first element of these bytes. OpenSSL passes over bytes behind it.
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

/// ```text
/// ECPrivateKey ::= SEQUENCE {
///     version INTEGER, privateKey OCTET STRING, parameters [0] ... OPTIONAL,
///     publicKey [1] BIT STRING OPTIONAL }
/// ```
/// The parameters stand in the key, or around it.
fn ec(bytes: &[u8], around: Option<AnyRef<'_>>) -> Result<Key, String> {
    let rewritten = |what| {
        format!(
            "the key has {what}; put what this writes in its place: `openssl ec -in FILE -out \
             NEWFILE -param_enc named_curve -conv_form uncompressed`"
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

/// ```text
/// ML-DSA-PrivateKey ::= CHOICE {
///     seed [0] OCTET STRING, expandedKey OCTET STRING,
///     both SEQUENCE { seed OCTET STRING, expandedKey OCTET STRING } }
/// ```
fn ml_dsa(set: MlDsa, oid: ObjectIdentifier, bytes: &[u8]) -> Result<Key, String> {
    /// The command never writes to the file that it reads: it would empty that one first.
    const OTHER: &str = "the key is damaged, or in a form of OpenSSL's own; put what this writes \
                         in the place of its block: `openssl pkey -in FILE -out NEWFILE -provparam \
                         ml-dsa.output_formats=seed-priv,priv-only`";
    const SEED: Tag = Tag::ContextSpecific {
        constructed: false,
        number: TagNumber::N0,
    };
    let malformed = |_| "the key has the wrong length for its set of ML-DSA, or is damaged";
    let choice = AnyRef::from_der(bytes).map_err(|_| OTHER)?;
    let private = match choice.tag() {
        SEED => MlDsaKey::from_seed(set, choice.value()).map_err(malformed)?,
        // One of OpenSSL's own has the public half behind the private one.
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
mod tests {
    use base64ct::Encoding as _;
    use lockstep_engine::Config;
    use lockstep_remote::is_ml_dsa;
    use lockstep_testkit::{TempDir, command, hex};

    use super::*;

    fn read(text: &str) -> Result<Key, String> {
        let engine = crate::engine(Config::default());
        Key::from_pem(text.as_bytes(), &engine).map_err(|error| error.to_string())
    }

    const ED25519: &str = "-----BEGIN PRIVATE KEY-----\n\
                           MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                           -----END PRIVATE KEY-----\n";

    /// RFC 8410, section 10.
    #[test]
    fn the_public_half_is_the_one_that_belongs_to_the_private_one() {
        let key = read(ED25519).expect("a key");
        let public = hex(
            "302a300506032b657003210019bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1",
        );
        assert_eq!(key.public, public);
        // Beside a certificate, as servers have them.
        let both =
            format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{ED25519}");
        assert_eq!(read(&both).expect("a key").public, public);
    }

    /// A file that the `openssl` command writes.
    fn made(directory: &TempDir, name: &str, words: &str) -> std::path::PathBuf {
        let file = directory.join(name);
        let mut words = words.split(' ');
        let mut openssl = command("openssl", &[words.next().expect("a command"), "-out"]);
        openssl.arg(&file).args(words).current_dir(&**directory);
        let made = openssl.output().expect("openssl");
        assert!(made.status.success(), "{openssl:?}: {made:?}");
        file
    }

    #[test]
    fn keys_are_read_in_every_form_that_openssl_writes() {
        let directory = TempDir::new("forms");
        let engine = crate::engine(Config::default());
        for (kind, algorithm, label) in [
            ("RSA-2048", "RSA -pkeyopt rsa_keygen_bits:2048", "RSA "),
            ("P-256", "EC -pkeyopt ec_paramgen_curve:P-256", "EC "),
            ("P-384", "EC -pkeyopt ec_paramgen_curve:P-384", "EC "),
        ] {
            let first = made(
                &directory,
                "key",
                &format!("genpkey -algorithm {algorithm}"),
            );
            let older = made(&directory, "older", "pkey -in key -traditional");
            let public = made(&directory, "public", "pkey -in key -pubout -outform DER");
            let public = std::fs::read(public).expect("a file");
            for (file, label) in [(first, ""), (older, label)] {
                let text = String::from_utf8(text(&file).expect("a file").to_vec());
                let begin = format!("-----BEGIN {label}PRIVATE KEY-----");
                assert!(text.is_ok_and(|text| text.starts_with(&begin)), "{begin}");
                let key = Key::read(&file, &engine).expect(kind);
                assert_eq!(format!("{key:?}"), format!("Key({kind})"));
                assert_eq!(key.can_decrypt(), kind.starts_with("RSA"));
                assert_eq!((key.kind(), key.public), (kind.to_owned(), public.clone()));
            }
        }
        // With its parameters in front.
        let file = made(&directory, "key", "ecparam -name prime256v1 -genkey");
        assert_eq!(Key::read(&file, &engine).expect("a key").kind(), "P-256");
    }

    #[test]
    fn keys_that_the_daemon_does_not_serve_are_named() {
        let directory = TempDir::new("unserved");
        let engine = crate::engine(Config::default());
        made(
            &directory,
            "p256",
            "ecparam -name prime256v1 -genkey -noout",
        );
        made(&directory, "rsa", "genrsa 2048");
        for (words, expected) in [
            ("ec -in p256 -no_public", "has no public half"),
            ("ec -in p256 -conv_form compressed", "or a short one"),
            ("ec -in p256 -aes128 -passout pass:word", "is encrypted"),
            ("pkcs8 -in rsa -topk8 -passout pass:word", "is encrypted"),
            (
                "rsa -in rsa -traditional -aes128 -passout pass:word",
                "is encrypted",
            ),
            ("ecparam -name secp521r1 -genkey", "serves P-256 and P-384"),
            (
                "ec -in p256 -param_enc explicit",
                "the numbers of its curve",
            ),
            (
                "pkey -in p256 -ec_param_enc explicit",
                "the numbers of its curve",
            ),
            ("genrsa -primes 3 2048", "more than two primes"),
            ("genpkey -algorithm X25519", "serves keys of RSA"),
            ("genpkey -algorithm ED448", "serves keys of RSA"),
            ("pkey -in rsa -pubout", "there is no private key"),
        ] {
            let file = made(&directory, "key", words);
            let key = Key::read(&file, &engine).map(|key| key.kind());
            let error = key.expect_err(words).to_string();
            assert!(error.contains(expected), "{words}: {error}");
            // The remedy works.
            if let Some((_, remedy)) = error.split_once("`openssl ec ") {
                let remedy = remedy
                    .trim_end_matches('`')
                    .replace("FILE -out NEWFILE", "key");
                let file = made(&directory, "new", &format!("ec {remedy}"));
                assert_eq!(Key::read(&file, &engine).expect(words).kind(), "P-256");
            }
        }
        // PKCS#8 of version 1 has a public half.
        let file = made(&directory, "key", "pkey -in rsa");
        let text = text_of_any(&file);
        let mut bytes = block(&text).expect("a key").decoded().expect("base64");
        bytes[6] = 1;
        let text = der::pem::encode_string(PRIVATE, der::pem::LineEnding::LF, &bytes);
        let error = read(&text.expect("PEM"))
            .map(drop)
            .expect_err("no public half");
        assert_eq!(error, "the private key does not parse");
    }

    /// An element of ASN.1.
    fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
        let length = match bytes.len() {
            short @ ..0x80 => vec![short as u8],
            long => [&[0x82][..], &(long as u16).to_be_bytes()].concat(),
        };
        [&[tag][..], &length, bytes].concat()
    }

    /// PKCS#8 of the choice of RFC 9881 in these bytes. This system's OpenSSL may have no ML-DSA.
    fn ml_dsa_pkcs8(set: u8, choice: &[u8]) -> Vec<u8> {
        let named = hex("300b0609608648016503040300");
        let (named, _) = named.split_at(named.len() - 1);
        let body = [&[2, 1, 0], named, &[set], &field(4, choice)].concat();
        field(0x30, &body)
    }

    /// The encoded public and private key of a seed, by an independent crate.
    #[allow(deprecated, reason = "the format that this tests")]
    fn ml_dsa_pair<P: ml_dsa::MlDsaParams>(seed: &[u8; 32]) -> (Vec<u8>, Vec<u8>) {
        let key = ml_dsa::SigningKey::<P>::from_seed(&(*seed).into());
        let key = key.expanded_key();
        let public = key.verifying_key().encode();
        (public.to_vec(), key.to_expanded().to_vec())
    }

    #[test]
    fn keys_of_ml_dsa_are_read_in_the_forms_of_the_standard() {
        let engine = crate::engine(Config::default());
        let of = |bytes: &[u8]| pkcs8(&PrivateKeyInfo::from_der(bytes).expect("PKCS#8"), &engine);
        for (number, set, kind) in [
            (17, MlDsa::MlDsa44, "ML-DSA-44"),
            (18, MlDsa::MlDsa65, "ML-DSA-65"),
            (19, MlDsa::MlDsa87, "ML-DSA-87"),
        ] {
            let seed = [0x2a; 32];
            let expected = MlDsaKey::from_seed(set, &seed).expect("a key");
            let (public, expanded) = match set {
                MlDsa::MlDsa44 => ml_dsa_pair::<ml_dsa::MlDsa44>(&seed),
                MlDsa::MlDsa65 => ml_dsa_pair::<ml_dsa::MlDsa65>(&seed),
                MlDsa::MlDsa87 => ml_dsa_pair::<ml_dsa::MlDsa87>(&seed),
            };
            assert_eq!(expected.public(), public, "{kind}");
            let octets = |bytes: &[u8]| field(4, bytes);
            let both = |seed: &[u8], expanded: &[u8]| {
                field(0x30, &[&[4, 32][..], seed, &octets(expanded)].concat())
            };
            let read = |choice: &[u8]| {
                let key = of(&ml_dsa_pkcs8(number, choice))?;
                key.try_out(&engine).map(|()| key)
            };
            for choice in [
                [&[0x80, 32][..], &seed].concat(),
                octets(&expanded),
                both(&seed, &expanded),
            ] {
                let key = read(&choice).expect(kind);
                assert_eq!((key.kind().as_str(), key.can_decrypt()), (kind, false));
                assert!(
                    is_ml_dsa(&key.public) && key.public.ends_with(&public),
                    "{kind}"
                );
            }
            let mut changed = expanded.clone();
            changed[40] ^= 1;
            for (choice, why) in [
                (both(&[0x2b; 32], &expanded), "another private key"),
                (both(&seed, &changed), "another private key"),
                (both(&seed, &expanded[1..]), "another private key"),
                (octets(&expanded[1..]), "form of OpenSSL's own"),
                (
                    octets(&[&expanded[..], &public].concat()),
                    "form of OpenSSL's own",
                ),
                ([&[0x80, 31][..], &seed[1..]].concat(), "wrong length"),
                // The hash of the public key, which comes third.
                (
                    octets(&[&expanded[..64], &[7; 64], &expanded[128..]].concat()),
                    "damaged",
                ),
                (vec![0x80, 33, 0], "form of OpenSSL's own"),
                (vec![2, 1, 0], "form of OpenSSL's own"),
                (
                    [&octets(&expanded)[..], &[0]].concat(),
                    "form of OpenSSL's own",
                ),
            ] {
                let error = read(&choice).map(|key| key.kind()).expect_err(why);
                assert!(error.to_string().contains(why), "{kind}: {error}");
            }
        }
        // SLH-DSA.
        let error = of(&ml_dsa_pkcs8(20, &[4, 1, 0])).map(|key| key.kind());
        assert!(error.is_err_and(|why| why.to_string().contains("serves keys of RSA")));
    }

    #[test]
    fn the_first_key_in_a_file_is_the_one_that_openssl_takes() {
        let directory = TempDir::new("order");
        let engine = crate::engine(Config::default());
        let make = |name: &str, words: &str| {
            fs::read_to_string(made(&directory, name, words)).expect("a file")
        };
        let pkcs8 = make("pkcs8", "genpkey -algorithm ed25519");
        let sec1 = make("sec1", "ecparam -name prime256v1 -genkey");
        make("rsa", "genrsa 2048");
        let pkcs1 = make("pkcs1", "rsa -in rsa -traditional");
        let certificate = make("certificate", "req -x509 -new -key rsa -subj /CN=x");
        let forms = [&pkcs8, &sec1, &pkcs1];
        let pairs = forms
            .iter()
            .flat_map(|first| forms.map(|second| format!("{first}{second}")));
        let others = [
            // A line that only looks like the begin of a block, and one that is indented.
            format!("# -----BEGIN PRIVATE KEY-----\n{pkcs1}"),
            format!(" -----BEGIN PRIVATE KEY-----\n{sec1}{pkcs1}"),
            format!("{certificate}{pkcs1}{pkcs8}"),
            format!("Key: {pkcs8}{sec1}"),
        ];
        for text in pairs.chain(others) {
            let file = directory.join("both");
            fs::write(&file, &text).expect("a file");
            let theirs = made(&directory, "public", "pkey -in both -pubout -outform DER");
            let theirs = fs::read(theirs).expect("a file");
            let ours = Key::read(&file, &engine).expect(&text);
            assert_eq!(ours.public, theirs, "{text}");
        }
        // The first one counts even where it cannot be served.
        let encrypted = make("encrypted", "pkcs8 -in rsa -topk8 -passout pass:word");
        assert!(read(&format!("{encrypted}{pkcs8}")).is_err_and(|why| why.contains("encrypted")));
    }

    /// Each form of PEM is read, or refused, as by OpenSSL.
    #[test]
    fn what_openssl_reads_is_read_and_nothing_else() {
        let directory = TempDir::new("pem");
        let engine = crate::engine(Config::default());
        let bytes = |name: &str, words: &str| {
            made(&directory, name, words);
            let words = match name {
                "pkcs8" => "pkcs8 -topk8 -nocrypt -in pkcs8 -outform DER",
                "sec1" => "ec -in sec1 -outform DER",
                _ => "rsa -traditional -in pkcs1 -outform DER",
            };
            fs::read(made(&directory, "der", words)).expect("a file")
        };
        let pkcs8 = bytes("pkcs8", "genrsa 2048");
        let pkcs1 = bytes("pkcs1", "genrsa 2048");
        let sec1 = bytes("sec1", "ecparam -name prime256v1 -genkey -noout");
        let block = |label: &str, bytes: &[u8], width: usize, eol: &str, before: &str| {
            let text = base64ct::Base64::encode_string(bytes);
            let lines = text.as_bytes().chunks(width);
            let lines = lines.map(|line| format!("{}{eol}", String::from_utf8_lossy(line)));
            let lines: String = lines.collect();
            format!("-----BEGIN {label}-----{eol}{before}{lines}-----END {label}-----{eol}")
        };
        let plain = block(PRIVATE, &pkcs8, 64, "\n", "");
        let latin = |text: &str| text.chars().map(|letter| letter as u8).collect::<Vec<u8>>();
        // With the width of lines, an empty line in front, and whether OpenSSL reads them.
        let mut cases: Vec<(Vec<u8>, bool)> = Vec::new();
        for width in [1, 2, 4, 63, 64, 65, 76, 128, 253, 254, 255, 300, 100_000] {
            for bytes in [&pkcs8, &pkcs1, &sec1] {
                cases.push((block(PRIVATE, bytes, width, "\n", "").into(), true));
            }
            cases.push((
                block(PRIVATE, &pkcs8, width, "\n", "\n").into(),
                width == 64,
            ));
        }
        for (label, bytes, is_read) in [
            (RSA_LABEL, &pkcs8, true),
            (EC_LABEL, &pkcs8, true),
            ("DSA PRIVATE KEY", &pkcs8, true),
            (RSA_LABEL, &pkcs1, true),
            (EC_LABEL, &pkcs1, false),
            ("DSA PRIVATE KEY", &pkcs1, false),
            (EC_LABEL, &sec1, true),
            (RSA_LABEL, &sec1, false),
            ("ANY PRIVATE KEY", &pkcs8, false),
            ("OPENSSH PRIVATE KEY", &pkcs8, false),
            ("private key", &pkcs8, false),
        ] {
            cases.push((block(label, bytes, 64, "\n", "").into(), is_read));
        }
        for (eol, is_read) in [
            ("\r\n", true),
            (" \t \n", true),
            ("\x0c\n", true),
            ("\r", false),
        ] {
            cases.push((block(PRIVATE, &pkcs8, 64, eol, "").into(), is_read));
        }
        cases.push((latin(&block(PRIVATE, &pkcs8, 64, "\u{a0}\n", "")), true));
        for (before, is_read) in [
            ("\n\n", false),
            ("X: y\n\n", true),
            ("X: a name\n\n", true),
            ("X: a name!\n\n", false),
            ("X: y\n", false),
            ("Comment: the key of www.example.org\n\n", false),
        ] {
            cases.push((block(PRIVATE, &pkcs8, 64, "\n", before).into(), is_read));
        }
        let more = [
            (format!("\u{feff}{plain}"), true),
            (format!("\u{feff}www\n{plain}"), true),
            (format!("www\n\u{feff}{plain}"), false),
            (plain.trim_end().to_owned(), true),
            (format!("{} x", plain.trim_end()), false),
            (format!(" {plain}"), false),
            (plain.replace("-----END", " -----END"), false),
            (plain.replace("-----END", "\n-----END"), false),
            (plain.replace("-----END", "----\n-----END"), true),
            (plain.replace("\nMII", "\n M\tI I"), true),
            (plain.replace('=', ""), !plain.contains('=')),
            (
                block(PRIVATE, &[&pkcs8[..], &[0; 3]].concat(), 64, "\n", ""),
                true,
            ),
            (
                block(RSA_LABEL, &[&pkcs1[..], &[0; 3]].concat(), 64, "\n", ""),
                true,
            ),
        ];
        cases.extend(more.map(|(text, is_read)| (text.into_bytes(), is_read)));
        cases.push((latin(&format!("caf\u{e9}\n{plain}")), true));
        for (text, is_read) in cases {
            let file = directory.join("case");
            fs::write(&file, &text).expect("a file");
            let words = ["pkey", "-in", "case", "-pubout", "-outform", "DER"];
            let mut theirs = command("openssl", &words);
            let theirs = theirs.current_dir(&*directory).output().expect("openssl");
            let shown = String::from_utf8_lossy(&text);
            assert_eq!(theirs.status.success(), is_read, "OpenSSL: {shown}");
            let own = Key::read(&file, &engine).map(|key| key.public);
            assert_eq!(own.is_ok(), is_read, "{:?}: {shown}", own.err());
            assert!(own.is_err() || own.is_ok_and(|own| own == theirs.stdout));
        }
    }

    #[test]
    fn the_halves_of_a_key_belong_together() {
        let directory = TempDir::new("halves");
        let pem = |label: &str, bytes: &[u8]| {
            der::pem::encode_string(label, der::pem::LineEnding::LF, bytes).expect("PEM")
        };
        let make = |words: &str| fs::read(made(&directory, "key", words)).expect("a file");
        // The public half stands last.
        for (curve, length) in [("prime256v1", 65), ("secp384r1", 97)] {
            let words = format!("ecparam -name {curve} -genkey -noout -outform DER");
            let [mut one, other] = [(); 2].map(|()| make(&words));
            read(&pem("EC PRIVATE KEY", &one)).expect("a key");
            let at = one.len() - length;
            one[at..].copy_from_slice(&other[at..]);
            let why = read(&pem("EC PRIVATE KEY", &one)).expect_err("two halves");
            assert!(why.contains("does not belong to the private key"), "{why}");
        }
        made(&directory, "rsa", "genrsa 2048");
        let mut rsa = make("rsa -in rsa -traditional -outform DER");
        read(&pem("RSA PRIVATE KEY", &rsa)).expect("a key");
        // The coefficient stands last.
        *rsa.last_mut().expect("a key") ^= 2;
        read(&pem("RSA PRIVATE KEY", &rsa)).expect_err("a wrong coefficient");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let directory = TempDir::new("long");
        let file = directory.join("key");
        for (length, is_read) in [(LONGEST_FILE, true), (LONGEST_FILE + 1, false)] {
            let mut text = ED25519.as_bytes().to_vec();
            text.resize(length as usize, b'\n');
            fs::write(&file, text).expect("a file");
            let key = Key::read(&file, &crate::engine(Config::default()));
            assert_eq!(key.is_ok(), is_read, "{length}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_told_with_its_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = TempDir::new("readable");
        let file = directory.join("key");
        fs::write(&file, "key").expect("a file");
        for (mode, is_readable) in [
            (0o600, false),
            (0o711, false),
            (0o622, false),
            (0o640, true),
            (0o604, true),
            (0o755, true),
        ] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(&file, permissions).expect("its own");
            assert_eq!(readable_by_others(&file), is_readable.then_some(mode));
        }
        assert_eq!(readable_by_others(&directory.join("none")), None);
    }

    #[test]
    fn the_text_of_a_key_is_never_moved_while_it_is_read() {
        let directory = TempDir::new("moved");
        let file = directory.join("key");
        for length in [1, 31, ED25519.len(), 5000] {
            fs::write(&file, vec![b'\n'; length]).expect("a file");
            let text = text(&file).expect("a file");
            // A vector that has grown has more room than it was made with.
            assert_eq!((text.len(), text.capacity()), (length, length));
        }
    }

    #[test]
    fn what_is_no_key_is_named() {
        for (text, expected) in [
            ("", "there is no private key"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n", "has no end"),
            (
                "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
                "is damaged",
            ),
            (
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "does not parse",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
                "does not parse",
            ),
            (
                "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
                "not parse",
            ),
            (
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n",
                "is encrypted",
            ),
            (
                &ED25519.replace("BQYDK2Vw", "BQYDK2Vx"),
                "serves keys of RSA",
            ),
        ] {
            let error = read(text).map(|key| key.kind()).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
