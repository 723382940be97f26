//! Encodings of RSA signatures (RFC 8017, section 9): the number that is raised to the power of the
//! private exponent.

use crate::scheme::{Hash, Salt};

/// Trailing byte of PSS.
const TRAILER: u8 = 0xbc;

impl Hash {
    /// Returns the DER of DigestInfo up to the digest.
    const fn digest_info(self) -> &'static [u8; 19] {
        match self {
            Hash::Sha256 => {
                b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
            }
            Hash::Sha384 => {
                b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"
            }
            Hash::Sha512 => {
                b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"
            }
        }
    }
}

/// Encodes a digest by PKCS#1 v1.5, as long as the modulus. `None` if the modulus is too short.
pub(crate) fn pkcs1(hash: Hash, digest: &[u8], length: usize) -> Option<Vec<u8>> {
    let info = hash.digest_info();
    let ones = length.checked_sub(3 + info.len() + digest.len())?;
    if ones < 8 {
        return None;
    }
    let mut encoded = Vec::with_capacity(length);
    encoded.extend([0, 1]);
    encoded.resize(2 + ones, 0xff);
    encoded.push(0);
    encoded.extend_from_slice(info);
    encoded.extend_from_slice(digest);
    Some(encoded)
}

/// Encodes a digest by PSS with this salt, as long as a modulus of whole bytes. `None` if the
/// modulus is too short.
pub(crate) fn pss(hash: Hash, digest: &[u8], salt: &[u8], length: usize) -> Option<Vec<u8>> {
    let zeros = length.checked_sub(digest.len() + salt.len() + 2)?;
    let seed = salted(hash, digest, salt);
    let mut encoded = vec![0; length];
    let (masked, rest) = encoded.split_at_mut(length - seed.len() - 1);
    masked[zeros] = 1;
    masked[zeros + 1..].copy_from_slice(salt);
    mask(hash, &seed, masked);
    // The top bit is zero: the number is below the modulus.
    masked[0] &= 0x7f;
    rest[..seed.len()].copy_from_slice(&seed);
    rest[seed.len()] = TRAILER;
    Some(encoded)
}

/// Returns whether a number encodes this digest by PSS. Overwrites the number.
pub(crate) fn is_pss(hash: Hash, digest: &[u8], salt: Salt, encoded: &mut [u8]) -> bool {
    let Some(masked) = encoded.len().checked_sub(hash.bytes() + 1) else {
        return false;
    };
    let (masked, rest) = encoded.split_at_mut(masked);
    let Some((&mut TRAILER, seed)) = rest.split_last_mut() else {
        return false;
    };
    if masked.first().is_none_or(|first| first & 0x80 != 0) {
        return false;
    }
    mask(hash, seed, masked);
    masked[0] &= 0x7f;
    let Some(zeros) = masked.iter().position(|byte| *byte != 0) else {
        return false;
    };
    let Some((1, found)) = masked[zeros..].split_first() else {
        return false;
    };
    let fits = match salt {
        Salt::Any => true,
        Salt::Digest => found.len() == hash.bytes(),
        Salt::Bytes(length) => found.len() == length,
    };
    fits && *salted(hash, digest, found) == *seed
}

/// Computes the hash of eight zeros, the digest and the salt.
fn salted(hash: Hash, digest: &[u8], salt: &[u8]) -> crate::scheme::Digest {
    hash.digest(&[&[0; 8], digest, salt])
}

/// XORs the mask of a seed into bytes (MGF1, RFC 8017, B.2.1).
fn mask(hash: Hash, seed: &[u8], bytes: &mut [u8]) {
    for (counter, block) in (0_u32..).zip(bytes.chunks_mut(hash.bytes())) {
        let mask = hash.digest(&[seed, &counter.to_be_bytes()]);
        for (byte, mask) in block.iter_mut().zip(mask.iter()) {
            *byte ^= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_in_its_encoding_alone() {
        for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            let digest = hash.digest(&[b"message"]);
            for length in [0, 20, hash.bytes()] {
                let encoded = pss(hash, &digest, &vec![7; length], 256).expect("it is long enough");
                let found = |digest: &[u8], salt, changed: Option<usize>| {
                    let mut encoded = encoded.clone();
                    if let Some(place) = changed {
                        encoded[place] ^= 0x40;
                    }
                    is_pss(hash, digest, salt, &mut encoded)
                };
                assert!(found(&digest, Salt::Any, None));
                assert!(found(&digest, Salt::Bytes(length), None));
                let is_digest = length == hash.bytes();
                assert_eq!(found(&digest, Salt::Digest, None), is_digest);
                assert!(!found(&digest, Salt::Bytes(length + 1), None));
                assert!(!found(&hash.digest(&[b"other"]), Salt::Any, None));
                for place in 0..encoded.len() {
                    assert!(!found(&digest, Salt::Any, Some(place)), "byte {place}");
                }
            }
        }
        assert!(pss(Hash::Sha512, &[0; 64], &[0; 64], 129).is_none());
        assert!(pkcs1(Hash::Sha512, &[0; 64], 93).is_none());
        assert!(pkcs1(Hash::Sha512, &[0; 64], 94).is_some());
    }
}
