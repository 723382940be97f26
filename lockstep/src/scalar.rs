//! Signatures on P-256 and P-384, checked one by one, for CPUs without 52-bit multiplies: where the
//! lanes are those of AVX2, the scalar code of the crate `graviola` (s2n-bignum's) is faster for
//! keys without tables.
//!
//! That code hashes messages itself and takes no digests. On P-256 a signature of a digest is
//! checked as a signature of an empty message with another key. On P-384 lanes check it, since they
//! are as fast. The code gets no secrets.

use std::borrow::Cow;

use graviola::hashing::{Hash as _, Sha256, Sha384, Sha512};
use graviola::key_agreement::p256::StaticPrivateKey;
use graviola::signing::ecdsa;
use lockstep_ops::{Backend, Curve, Failed, Lanes};
use p256::elliptic_curve::PrimeField as _;
use p256::elliptic_curve::ops::Reduce as _;
use p256::elliptic_curve::sec1::{FromSec1Point as _, ToSec1Point as _};
use p256::{AffinePoint, FieldBytes, ProjectivePoint, Scalar, Sec1Point};

use crate::scheme::Hash;

/// Returns whether this code is faster than these lanes, and runs on this CPU.
pub(crate) fn is_faster(backend: Backend) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // graviola panics without these features.
        backend.is_avx2()
            && is_x86_feature_detected!("adx")
            && is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = backend;
        false
    }
}

/// Returns whether a signature r ‖ s of a message is good for a key, a point of SEC 1.
pub(crate) fn verify(
    lanes: &Lanes,
    curve: Curve,
    hash: Hash,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<bool, Failed> {
    let key = &*uncompressed(lanes, curve, key);
    match curve {
        Curve::P256 => verify_on::<ecdsa::P256>(hash, key, message, signature),
        Curve::P384 => verify_on::<ecdsa::P384>(hash, key, message, signature),
    }
}

/// Returns whether a signature r ‖ s on P-256 of a digest z is good for a key Q. `None` if lanes
/// have to check it, as they can for every input.
///
/// Let e be the hash of the empty message, k = (z − e)/r and Q′ = Q + k·G. Then the same point
/// decides about s as a signature of the empty message with the key Q′, and of z with Q:
/// e/s·G + r/s·Q′ = (e + r·k)/s·G + r/s·Q = z/s·G + r/s·Q.
pub(crate) fn verify_digest(
    lanes: &Lanes,
    key: &[u8],
    digest: &[u8],
    signature: &[u8],
) -> Option<Result<bool, Failed>> {
    let key = uncompressed(lanes, Curve::P256, key);
    // `sum` would take the point at infinity and compact points, too, which are no keys.
    let [4, ..] = *key else { return None };
    let k = quotient(digest, Sha256::hash(&[]).as_ref(), signature.get(..32)?)?;
    let k = StaticPrivateKey::from_bytes(&k).ok()?;
    let other = sum(&key, &k.public_key_uncompressed())?;
    let other = other.as_bytes();
    Some(verify_on::<ecdsa::P256>(
        Hash::Sha256,
        other,
        &[],
        signature,
    ))
}

/// Returns (z − e)/r modulo the order, of two digests and of an r between 1 and the order.
fn quotient(z: &[u8], e: &[u8], r: &[u8]) -> Option<FieldBytes> {
    // The first bits of a longer digest count (SEC 1, section 4.1.4).
    let bytes = |own: &[u8]| Some(FieldBytes::from(*own.first_chunk::<32>()?));
    let [z, e] = [Scalar::reduce(&bytes(z)?), Scalar::reduce(&bytes(e)?)];
    let r = Scalar::from_repr(bytes(r)?).into_option()?;
    let inverse = r.invert_vartime().into_option()?;
    Some(((z - e) * inverse).to_repr())
}

/// Returns the sum of two points, unless it is the point at infinity.
fn sum(one: &[u8], other: &[u8]) -> Option<Sec1Point> {
    let point = |bytes| {
        let point = Sec1Point::from_bytes(bytes).ok()?;
        let point = AffinePoint::from_sec1_point(&point).into_option()?;
        Some(ProjectivePoint::from(point))
    };
    let sum = (point(one)? + point(other)?)
        .to_affine()
        .to_sec1_point(false);
    (!sum.is_identity()).then_some(sum)
}

/// Returns a point, uncompressed for graviola; no bytes for an x that no point has.
fn uncompressed<'a>(lanes: &Lanes, curve: Curve, point: &'a [u8]) -> Cow<'a, [u8]> {
    match point {
        [2 | 3, ..] => Cow::Owned(lanes.ec_point(curve, point).unwrap_or_default()),
        _ => Cow::Borrowed(point),
    }
}

fn verify_on<C: ecdsa::Curve>(
    hash: Hash,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<bool, Failed> {
    let key = ecdsa::VerifyingKey::<C>::from_x962_uncompressed(key);
    let key = key.map_err(|_| Failed::BadPoint)?;
    let checked = match hash {
        Hash::Sha256 => key.verify::<Sha256>(&[message], signature),
        Hash::Sha384 => key.verify::<Sha384>(&[message], signature),
        Hash::Sha512 => key.verify::<Sha512>(&[message], signature),
    };
    Ok(checked.is_ok())
}
