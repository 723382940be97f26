//! Key encapsulation: ML-KEM alone, and in one exchange with a curve.
//!
//! The bytes of a hybrid are the bytes of its two parts, one behind the other, in the order that
//! TLS gives them (draft-ietf-tls-ecdhe-mlkem).

use std::fmt;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::x25519;
use lockstep_kernels::mlkem::{self, ParameterSet};
use lockstep_kernels::nist::{self, p256, p384};

use crate::bytes::Bytes;
use crate::keys::{Keypair, Malformed, Secret};
use crate::kinds::{Curve, Kem, KeyKind};

impl Kem {
    /// Length of the seed d ‖ z of ML-KEM's key pairs.
    pub const SEED_BYTES: usize = mlkem::SEED;
    /// Length of the randomness of ML-KEM's ciphertexts.
    pub const COINS_BYTES: usize = mlkem::SHARED_SECRET;

    /// Returns whether these bytes have the form of a public key: its length, and coefficients of
    /// ML-KEM (FIPS 203, section 7.2). Whether a point is on its curve shows when the key is used.
    pub fn is_public_key(self, bytes: &[u8]) -> bool {
        let part = self.split(Part::Public, bytes);
        part.is_some_and(|(ml_kem, _)| mlkem::is_valid(self.parameter_set(), ml_kem))
    }

    /// Returns whether these bytes are a public key, whose point is on its curve. This takes a
    /// while.
    pub fn is_valid_public_key(self, bytes: &[u8]) -> bool {
        let is_share = |(_, share)| self.is_valid_share(share);
        let parts = self.split(Part::Public, bytes);
        self.is_public_key(bytes) && parts.is_some_and(is_share)
    }

    fn is_valid_share(self, share: &[u8]) -> bool {
        match self.curve() {
            // All strings of their length are public keys of X25519 (RFC 7748, section 5).
            None | Some(KeyKind::X25519 | KeyKind::Kem(_)) => true,
            Some(KeyKind::Nist(curve)) => points::is_on(curve, share),
        }
    }

    /// Returns the length of a public key, in bytes.
    pub const fn public_bytes(self) -> usize {
        self.length(Part::Public)
    }

    /// Returns the length of a private key, in bytes.
    pub const fn private_bytes(self) -> usize {
        self.length(Part::Private)
    }

    /// Returns the length of a ciphertext, in bytes.
    pub const fn ciphertext_bytes(self) -> usize {
        self.length(Part::Ciphertext)
    }

    /// Returns the length of a shared secret, in bytes.
    pub const fn shared_bytes(self) -> usize {
        self.length(Part::Shared)
    }

    const fn length(self, part: Part) -> usize {
        let (ml_kem, curve) = self.lengths(part);
        ml_kem + curve
    }

    /// Returns the length of ML-KEM's part, and of the curve's.
    const fn lengths(self, part: Part) -> (usize, usize) {
        let (share, scalar) = match self.curve() {
            None | Some(KeyKind::Kem(_)) => (0, 0),
            Some(KeyKind::X25519) => (x25519::BYTES, x25519::BYTES),
            // Uncompressed, as in SEC 1.
            Some(KeyKind::Nist(Curve::P256)) => (1 + 2 * p256::BYTES, p256::BYTES),
            Some(KeyKind::Nist(Curve::P384)) => (1 + 2 * p384::BYTES, p384::BYTES),
        };
        let set = self.parameter_set();
        match part {
            Part::Public => (set.public_key_bytes(), share),
            Part::Private => (set.secret_key_bytes(), scalar),
            Part::Ciphertext => (set.ciphertext_bytes(), share),
            Part::Shared => (mlkem::SHARED_SECRET, scalar),
        }
    }

    /// Splits a string into ML-KEM's part and the curve's. `None` if the string has another length.
    pub(crate) fn split(self, part: Part, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (ml_kem, curve) = self.lengths(part);
        if bytes.len() != ml_kem + curve {
            return None;
        }
        Some(match self.curve() {
            Some(KeyKind::Nist(_)) => {
                let (curve, ml_kem) = bytes.split_at(curve);
                (ml_kem, curve)
            }
            _ => bytes.split_at(ml_kem),
        })
    }

    /// Splits a string of exactly the right length into the same parts, to write into them.
    pub(crate) fn split_mut(self, part: Part, bytes: &mut [u8]) -> (&mut [u8], &mut [u8]) {
        let (ml_kem, curve) = self.lengths(part);
        match self.curve() {
            Some(KeyKind::Nist(_)) => {
                let (curve, ml_kem) = bytes.split_at_mut(curve);
                (ml_kem, curve)
            }
            _ => bytes.split_at_mut(ml_kem),
        }
    }

    /// Returns both parts in the order of the mechanism.
    pub(crate) fn ordered<'a>(self, ml_kem: &'a [u8], curve: &'a [u8]) -> [&'a [u8]; 2] {
        match self.curve() {
            Some(KeyKind::Nist(_)) => [curve, ml_kem],
            _ => [ml_kem, curve],
        }
    }

    /// Joins both secrets, in the order of the mechanism.
    pub(crate) fn joined_secret(self, ml_kem: &[u8], curve: &[u8]) -> Secret {
        let [first, second] = self.ordered(ml_kem, curve);
        let fill = |bytes: &mut [u8]| {
            bytes[..first.len()].copy_from_slice(first);
            bytes[first.len()..].copy_from_slice(second);
            true
        };
        let joined = Secret::filled(first.len() + second.len(), fill);
        joined.expect("it was filled")
    }
}

/// Strings of bytes that have a part of ML-KEM and one of a curve.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Public,
    Private,
    Ciphertext,
    Shared,
}

/// A private key of a mechanism, with its public key.
pub struct KemKey {
    kem: Kem,
    private: Secret,
    public: Vec<u8>,
    /// The seed of ML-KEM's key.
    seed: Option<Secret>,
}

impl KemKey {
    /// Copies a private key and computes its public key, which takes a while. Fails if the hash in
    /// ML-KEM's key is not that of the public key in it (FIPS 203, section 7.3), or if a scalar of
    /// a NIST curve is not in 1..n.
    pub fn new(kem: Kem, private: &[u8]) -> Result<KemKey, Malformed> {
        let (ml_kem, curve) = kem.split(Part::Private, private).ok_or(Malformed)?;
        let (set, key) = (kem.parameter_set(), mlkem::SecretKey::from_ref(ml_kem));
        if !mlkem::is_consistent(set, Backend::PORTABLE, key) {
            return Err(Malformed);
        }
        let share = share_of(kem, curve)?;
        let public = mlkem::public_key(set, key);
        Ok(KemKey {
            kem,
            private: Secret::new(private),
            public: kem.ordered(public, &share).concat(),
            seed: None,
        })
    }

    /// Makes the key of ML-KEM that follows from a seed: 64 bytes, d ‖ z. Fails for a hybrid. This
    /// takes a while.
    pub fn from_seed(kem: Kem, seed: &[u8]) -> Result<KemKey, Malformed> {
        let bytes = seed.try_into().map_err(|_| Malformed)?;
        if kem.is_hybrid() {
            return Err(Malformed);
        }
        let set = kem.parameter_set();
        let mut public = vec![0; set.public_key_bytes()];
        let mut private = Bytes::from(vec![0; set.secret_key_bytes()]);
        let mut job = [mlkem::GenerateJob {
            seed: mlkem::Seed::from_ref(bytes),
            public_key: &mut public,
            secret_key: mlkem::SecretKey::from_mut(&mut private),
        }];
        let mut scratch = mlkem::Scratch::try_new(set).ok_or(Malformed)?;
        mlkem::generate(Backend::PORTABLE, &mut scratch, &mut job);
        Ok(KemKey {
            kem,
            private: Secret::new(&private),
            public,
            seed: Some(Secret::new(seed)),
        })
    }

    /// Returns the key of a pair of this mechanism; `None` for a pair of another kind.
    pub fn of_pair(kem: Kem, pair: &Keypair) -> Option<KemKey> {
        let secret = pair.secret.as_bytes();
        let (private, seed) = secret.split_at_checked(kem.private_bytes())?;
        let is_pair = seed.len() == Kem::SEED_BYTES && pair.public.len() == kem.public_bytes();
        is_pair.then(|| KemKey {
            kem,
            private: Secret::new(private),
            public: pair.public.to_vec(),
            seed: (!kem.is_hybrid()).then(|| Secret::new(seed)),
        })
    }

    /// Returns the same key without its seed.
    pub fn without_seed(self) -> KemKey {
        KemKey { seed: None, ..self }
    }

    /// Returns its mechanism.
    pub fn kem(&self) -> Kem {
        self.kem
    }

    /// The private key.
    pub fn private(&self) -> &[u8] {
        self.private.as_bytes()
    }

    /// Returns whether both keys belong together: the private one decapsulates a secret that was
    /// sent to the public one (FIPS 203, section 7.1), and the share on the curve is that of the
    /// scalar. This takes a while.
    pub fn is_pair(&self) -> bool {
        let received = || {
            let (public, share) = self.kem.split(Part::Public, &self.public)?;
            let (private, scalar) = self.kem.split(Part::Private, self.private())?;
            let private = mlkem::SecretKey::from_ref(private);
            let has_share = share_of(self.kem, scalar).is_ok_and(|own| *own == *share);
            Some(has_share && receives(self.kem.parameter_set(), private, public)?)
        };
        received().unwrap_or(false)
    }

    /// Returns whether `other` is the private key. The time depends on the lengths alone.
    pub fn has_private(&self, other: &[u8]) -> bool {
        are_equal(self.private(), other)
    }

    /// The public key.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Returns the 64 bytes of the seed of ML-KEM's key, if they are known.
    pub fn seed(&self) -> Option<&[u8]> {
        self.seed.as_ref().map(Secret::as_bytes)
    }
}

/// Computes the public key of a scalar on a mechanism's curve; without a curve it has no bytes.
/// Fails for a scalar of a NIST curve that is not in 1..n.
fn share_of(kem: Kem, scalar: &[u8]) -> Result<Bytes, Malformed> {
    match kem.curve() {
        None | Some(KeyKind::Kem(_)) => Ok(Bytes::default()),
        Some(KeyKind::X25519) => {
            let secret = scalar.try_into().map_err(|_| Malformed)?;
            let mut job = [x25519::KeypairJob::new(x25519::SecretKey::from_ref(secret))];
            x25519::keypair(Backend::PORTABLE, &mut job);
            Ok(Bytes::from_slice(&job[0].result.ok_or(Malformed)?))
        }
        Some(KeyKind::Nist(curve)) => points::of_scalar(curve, scalar).ok_or(Malformed),
    }
}

/// Points of the NIST curves, computed one at a time on portable lanes.
mod points {
    use super::*;

    /// Calls a function with the module of a curve.
    macro_rules! on_curve {
        ($curve:expr, $function:ident($($argument:expr),*)) => {
            match $curve {
                Curve::P256 => $function!(p256, $($argument),*),
                Curve::P384 => $function!(p384, $($argument),*),
            }
        };
    }

    /// Returns whether these bytes are a point of the curve, uncompressed as in SEC 1.
    pub fn is_on(curve: Curve, bytes: &[u8]) -> bool {
        // The kernel checks a point before it multiplies it.
        macro_rules! is_on {
            ($module:ident, $bytes:expr) => {
                nist::PublicKey::from_sec1($bytes).is_ok_and(|point| {
                    let mut one = [0; $module::BYTES];
                    one[$module::BYTES - 1] = 1;
                    let one = nist::SecretKey::from_bytes(&one);
                    let mut job = [nist::MultiplyJob::new(&one, &point)];
                    $module::multiply(Backend::PORTABLE, &mut job);
                    matches!(job[0].result, Some(Ok(_)))
                })
            };
        }
        on_curve!(curve, is_on(bytes))
    }

    /// Computes the public key of a scalar; `None` if it is not in 1..n.
    pub fn of_scalar(curve: Curve, scalar: &[u8]) -> Option<Bytes> {
        macro_rules! of_scalar {
            ($module:ident, $scalar:expr) => {{
                // The base point is the public key of 1.
                let one = nist::Wide::from_scalar(&[1])?;
                let mut job = [nist::KeypairJob::new(&one)];
                $module::keypair(Backend::PORTABLE, &mut job);
                let Some(Ok((_, base))) = &job[0].result else {
                    return None;
                };
                let scalar = nist::SecretKey::from_ref($scalar.try_into().ok()?);
                let mut job = [nist::MultiplyJob::new(scalar, base)];
                $module::multiply(Backend::PORTABLE, &mut job);
                match &job[0].result {
                    Some(Ok(point)) => Some(Bytes::from_slice(&point.to_sec1())),
                    _ => None,
                }
            }};
        }
        on_curve!(curve, of_scalar(scalar))
    }
}

/// Returns whether a private key of ML-KEM decapsulates a secret that was sent to a public one;
/// `None` without memory.
fn receives(set: ParameterSet, private: &mlkem::SecretKey, public: &[u8]) -> Option<bool> {
    /// The coins that OpenSSL uses for this purpose. The secret may follow from known coins, as it
    /// is not used.
    const COINS: [u8; mlkem::SHARED_SECRET] = [0x55; mlkem::SHARED_SECRET];
    let mut scratch = mlkem::Scratch::try_new(set)?;
    let mut ciphertext = vec![0; set.ciphertext_bytes()];
    let mut sending = [mlkem::EncapsulateJob {
        public_key: public,
        coins: mlkem::Coins::from_ref(&COINS),
        ciphertext: &mut ciphertext,
        result: None,
    }];
    mlkem::encapsulate(Backend::PORTABLE, &mut scratch, &mut sending);
    let sent = sending[0].result.take()?;
    let mut receiving = [mlkem::DecapsulateJob {
        secret_key: private,
        ciphertext: &ciphertext,
        result: None,
    }];
    mlkem::decapsulate(Backend::PORTABLE, &mut scratch, &mut receiving);
    let received = receiving[0].result.take()?;
    Some(sent.is_ok_and(|sent| are_equal(sent.as_bytes(), received.as_bytes())))
}

/// Returns whether both are equal. The time depends on their lengths alone.
pub(crate) fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let bytes = a.iter().zip(b);
    let difference = bytes.fold(0, |difference, (a, b)| difference | (a ^ b));
    a.len() == b.len() && difference == 0
}

impl fmt::Debug for KemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KemKey")
            .field("kem", &self.kem)
            .finish_non_exhaustive()
    }
}

/// The result of an encapsulation: a secret, and the ciphertext from which the owner of the private
/// key computes it.
#[derive(Debug)]
pub struct Encapsulated {
    /// The ciphertext, to be sent.
    pub ciphertext: Bytes,
    /// The secret that both sides know then.
    pub secret: Secret,
}
