//! Operations, and the keys, messages and signatures that all sides get.

use lockstep::{MlDsa, PrivateKey, PublicKey, Scheme, ToSign, Workers, rows};
use lockstep_common::Failure;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;

use crate::stock::random;

/// Length of a message, in bytes.
pub const MESSAGE: usize = 64;

/// Number of keys of `-verify-few`.
const FEW: usize = 16;

/// The item whose message is changed in [`Data::damaged`].
pub const DAMAGED: usize = 37;

/// An algorithm of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    P256,
    P384,
    Ed25519,
    X25519,
    Rsa2048,
    Rsa4096,
    MlDsa44,
}

/// What is done with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key for each item.
    Verify,
    VerifyFew,
    Sign,
    Agree,
}

/// An operation that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub algorithm: Algorithm,
    pub kind: Kind,
    name: &'static str,
}

const fn operation(name: &'static str, algorithm: Algorithm, kind: Kind) -> Operation {
    Operation {
        algorithm,
        kind,
        name,
    }
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 18] = [
        operation("p256-verify", Algorithm::P256, Kind::Verify),
        operation("p256-verify-few", Algorithm::P256, Kind::VerifyFew),
        operation("p256-sign", Algorithm::P256, Kind::Sign),
        operation("p256-agree", Algorithm::P256, Kind::Agree),
        operation("p384-verify", Algorithm::P384, Kind::Verify),
        operation("p384-verify-few", Algorithm::P384, Kind::VerifyFew),
        operation("p384-sign", Algorithm::P384, Kind::Sign),
        operation("p384-agree", Algorithm::P384, Kind::Agree),
        operation("ed25519-verify", Algorithm::Ed25519, Kind::Verify),
        operation("ed25519-verify-few", Algorithm::Ed25519, Kind::VerifyFew),
        operation("ed25519-sign", Algorithm::Ed25519, Kind::Sign),
        operation("x25519", Algorithm::X25519, Kind::Agree),
        operation("rsa2048-verify-few", Algorithm::Rsa2048, Kind::VerifyFew),
        operation("rsa2048-sign", Algorithm::Rsa2048, Kind::Sign),
        operation("rsa4096-sign", Algorithm::Rsa4096, Kind::Sign),
        operation("mldsa44-verify", Algorithm::MlDsa44, Kind::Verify),
        operation("mldsa44-verify-few", Algorithm::MlDsa44, Kind::VerifyFew),
        operation("mldsa44-sign", Algorithm::MlDsa44, Kind::Sign),
    ];

    pub fn name(self) -> &'static str {
        self.name
    }

    pub fn from_name(name: &str) -> Result<Operation, String> {
        let known = Operation::ALL.into_iter().find(|own| own.name == name);
        known.ok_or_else(|| {
            let names = Operation::ALL.map(Operation::name);
            format!("there are {}", names.join(", "))
        })
    }

    pub fn verifies(self) -> bool {
        matches!(self.kind, Kind::Verify | Kind::VerifyFew)
    }

    /// Maximum number of items: a call of lockstep lasts about half a second at most.
    pub fn most(self) -> usize {
        match (self.algorithm, self.kind) {
            (Algorithm::Rsa2048, Kind::Sign) => 4_000,
            (Algorithm::Rsa4096, Kind::Sign) => 800,
            (Algorithm::MlDsa44, Kind::Sign) => 5_000,
            _ => usize::MAX,
        }
    }

    /// The scheme of its signatures.
    pub fn scheme(self) -> Scheme {
        match self.algorithm {
            Algorithm::P256 => Scheme::ES256,
            Algorithm::P384 => Scheme::ES384,
            // X25519 has none, and nobody asks.
            Algorithm::Ed25519 | Algorithm::X25519 => Scheme::ED25519,
            Algorithm::Rsa2048 | Algorithm::Rsa4096 => Scheme::RS256,
            Algorithm::MlDsa44 => Scheme::ML_DSA_44,
        }
    }
}

/// Both halves of a key as [`PrivateKey::from_raw`] and [`PublicKey::from_raw`] take them; of RSA,
/// PKCS#8 and SubjectPublicKeyInfo.
#[derive(Clone)]
pub struct Pair {
    pub secret: Vec<u8>,
    pub public: Vec<u8>,
}

/// Keys, messages and signatures of one operation.
#[derive(Clone)]
pub struct Data {
    pub operation: Operation,
    pairs: Vec<Pair>,
    messages: Vec<[u8; MESSAGE]>,
    /// Of operations that verify.
    signatures: Vec<Vec<u8>>,
}

impl Data {
    /// Makes them for this number of items.
    pub fn new(operation: Operation, count: usize) -> Result<Data, Failure> {
        let keys = match operation.kind {
            // One of them is the own key.
            Kind::Agree => count + 1,
            Kind::Verify => count,
            Kind::VerifyFew => FEW,
            Kind::Sign => 1,
        };
        let random = random(MESSAGE * count)?;
        let mut data = Data {
            operation,
            pairs: pairs(operation.algorithm, keys)?,
            messages: random.as_chunks().0.to_vec(),
            signatures: Vec::new(),
        };
        if operation.verifies() {
            data.signatures = data.sign()?;
        }
        Ok(data)
    }

    /// The same with one message that was not signed.
    pub fn damaged(&self) -> Data {
        let mut damaged = self.clone();
        damaged.messages[DAMAGED][0] ^= 1;
        damaged
    }

    pub fn count(&self) -> usize {
        self.messages.len()
    }

    /// The keys; of an agreement, those of the other sides.
    pub fn pairs(&self) -> &[Pair] {
        match self.operation.kind {
            Kind::Agree => &self.pairs[1..],
            _ => &self.pairs,
        }
    }

    /// The one key of a signer, or the own key of an agreement.
    pub fn own(&self) -> &Pair {
        &self.pairs[0]
    }

    /// The number of the key of an item.
    pub fn key(&self, item: usize) -> usize {
        item % self.pairs().len()
    }

    /// The public key of an item.
    pub fn public(&self, item: usize) -> &[u8] {
        &self.pairs()[self.key(item)].public
    }

    pub fn message(&self, item: usize) -> &[u8] {
        &self.messages[item]
    }

    pub fn signature(&self, item: usize) -> &[u8] {
        &self.signatures[item]
    }

    pub fn private_key(&self, pair: &Pair) -> Result<PrivateKey, Failure> {
        let key = match self.library_algorithm() {
            lockstep::Algorithm::Rsa => PrivateKey::from_der(&pair.secret),
            other => PrivateKey::from_raw(other, &pair.secret),
        };
        key.map_err(|error| Failure::new(format!("lockstep cannot read a key: {error}")))
    }

    pub fn public_key(&self, pair: &Pair) -> Result<PublicKey, Failure> {
        let key = match self.library_algorithm() {
            lockstep::Algorithm::Rsa => PublicKey::from_der(&pair.public),
            other => PublicKey::from_raw(other, &pair.public),
        };
        key.map_err(|error| Failure::new(format!("lockstep cannot read a key: {error}")))
    }

    pub fn library_algorithm(&self) -> lockstep::Algorithm {
        library_algorithm(self.operation.algorithm)
    }

    fn sign(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let keys = self.pairs.iter().map(|pair| self.private_key(pair));
        let keys: Vec<PrivateKey> = keys.collect::<Result<_, _>>()?;
        let items = rows(self.count(), |item| {
            ToSign::new(&keys[self.key(item)], self.message(item))
        });
        let signed = Workers::new().sign_many(self.operation.scheme(), &items);
        let signed = signed.map_err(|error| Failure::new(format!("lockstep: {error}")))?;
        let signatures = signed.iter().map(|signature| signature.map(<[u8]>::to_vec));
        signatures
            .collect::<Result<_, _>>()
            .map_err(|reason| Failure::new(format!("lockstep cannot sign: {reason}")))
    }
}

fn library_algorithm(algorithm: Algorithm) -> lockstep::Algorithm {
    match algorithm {
        Algorithm::P256 => lockstep::Algorithm::P256,
        Algorithm::P384 => lockstep::Algorithm::P384,
        Algorithm::Ed25519 => lockstep::Algorithm::Ed25519,
        Algorithm::X25519 => lockstep::Algorithm::X25519,
        Algorithm::Rsa2048 | Algorithm::Rsa4096 => lockstep::Algorithm::Rsa,
        Algorithm::MlDsa44 => lockstep::Algorithm::MlDsa(MlDsa::MlDsa44),
    }
}

fn pairs(algorithm: Algorithm, count: usize) -> Result<Vec<Pair>, Failure> {
    let bits = match algorithm {
        Algorithm::Rsa2048 => 2048,
        Algorithm::Rsa4096 => 4096,
        _ => {
            let made = Workers::new().generate_many(library_algorithm(algorithm), count);
            let made = made.map_err(|error| Failure::new(format!("lockstep: {error}")))?;
            let pair = |number| Pair {
                secret: made.secret(number).to_vec(),
                public: made.public(number).to_vec(),
            };
            return Ok((0..count).map(pair).collect());
        }
    };
    let pair = |_| {
        let key = PKey::from_rsa(Rsa::generate(bits)?)?;
        Ok(Pair {
            secret: key.private_key_to_pkcs8()?,
            public: key.public_key_to_der()?,
        })
    };
    (0..count)
        .map(pair)
        .collect::<Result<_, _>>()
        .map_err(failed)
}

fn failed(error: ErrorStack) -> Failure {
    Failure::new(format!("libcrypto cannot make a key: {error}"))
}
