//! Public halves of keys, as the daemon and its clients compare them.

use der::asn1::{AnyRef, BitStringRef, UintRef};
use der::{Encode, Tag};

/// An AlgorithmIdentifier: rsaEncryption, without parameters (NULL).
const RSA: [u8; 15] = [
    0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 5, 0,
];

/// Returns an RSA key's SubjectPublicKeyInfo, from the big-endian bytes of its modulus and its
/// public exponent; `None` if no key has numbers of these lengths.
pub fn rsa_public(n: &[u8], e: &[u8]) -> Option<Vec<u8>> {
    let encode = || -> der::Result<Vec<u8>> {
        let numbers = [UintRef::new(n)?.to_der()?, UintRef::new(e)?.to_der()?].concat();
        let key = AnyRef::new(Tag::Sequence, &numbers)?.to_der()?;
        let parts = [&RSA[..], &BitStringRef::from_bytes(&key)?.to_der()?].concat();
        AnyRef::new(Tag::Sequence, &parts)?.to_der()
    };
    encode().ok()
}

/// Returns whether a SubjectPublicKeyInfo is that of ML-DSA-44, -65 or -87 (RFC 9881).
pub fn is_ml_dsa(public: &[u8]) -> bool {
    // The bytes behind the outer lengths, without the last number.
    const NAMED: &[u8] = &[0x30, 0x0b, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3];
    let rest = public.get(4..).and_then(|rest| rest.strip_prefix(NAMED));
    rest.is_some_and(|rest| matches!(rest.first(), Some(17..=19)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl rsa -pubout -outform DER` writes these bytes for n = 2^63 + 3 and e = 65537.
    #[test]
    fn the_encoding_is_the_usual_one() {
        let modulus = [0x80, 0, 0, 0, 0, 0, 0, 3];
        let expected = [
            0x30, 0x24, 0x30, 0x0D, 0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01,
            0x01, 0x05, 0x00, 0x03, 0x13, 0x00, 0x30, 0x10, 0x02, 0x09, 0x00, 0x80, 0, 0, 0, 0, 0,
            0, 3, 0x02, 0x03, 1, 0, 1,
        ];
        assert_eq!(rsa_public(&modulus, &[1, 0, 1]), Some(expected.to_vec()));
        // Leading zeros change nothing.
        let longer = [&[0, 0][..], &modulus].concat();
        assert_eq!(rsa_public(&longer, &[0, 1, 0, 1]), Some(expected.to_vec()));
    }

    #[test]
    fn keys_of_ml_dsa_are_told_from_others() {
        for (set, is_its) in [(16, false), (17, true), (18, true), (19, true), (20, false)] {
            let head = [
                0x30, 0x82, 5, 0x32, 0x30, 0x0b, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3,
            ];
            let key = [&head[..], &[set, 3, 0x82]].concat();
            assert_eq!(is_ml_dsa(&key), is_its, "{set}");
            assert!(!is_ml_dsa(&key[1..]) && !is_ml_dsa(&key[..16]));
        }
        assert!(!is_ml_dsa(&[]));
    }
}
