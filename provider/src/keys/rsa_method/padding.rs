//! The paddings of RSA signatures that come to the method unpadded, as OpenSSL's own method adds
//! them (crypto/rsa/rsa_ossl.c, `rsa_ossl_private_encrypt`).
//!
//! The digest and the signature are public, so this code has nothing to hide.

use std::ffi::c_int;

use zeroize::Zeroizing;

use crate::ffi::{self, Bytes};

/// A padded input of a signature, as long as the modulus.
pub struct Padded<'a> {
    bytes: Vec<u8>,
    padding: c_int,
    modulus: &'a [u8],
}

impl<'a> Padded<'a> {
    /// Pads the data; None if OpenSSL refuses them.
    pub fn new(data: Bytes<'_>, padding: c_int, modulus: &'a [u8]) -> Option<Padded<'a>> {
        let form = match padding {
            ffi::RSA_NO_PADDING => unpadded,
            ffi::RSA_PKCS1_PADDING => pkcs1,
            ffi::RSA_X931_PADDING => x931,
            _ => return None,
        };
        let bytes = data.read(|data| form(data, modulus.len()))??;
        Some(Padded {
            bytes,
            padding,
            modulus,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the signature of s = bytes^d mod n: with X9.31 it is the lesser of s and n − s.
    pub fn signature(&self, power: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
        if self.padding != ffi::RSA_X931_PADDING {
            return power;
        }
        let other = difference(self.modulus, &power);
        match other < *power {
            true => Zeroizing::new(other),
            false => power,
        }
    }
}

fn unpadded(data: &[u8], length: usize) -> Option<Vec<u8>> {
    (data.len() == length).then(|| data.to_vec())
}

/// 00 01, at least eight bytes FF, 00, the data (RFC 8017, 9.2).
fn pkcs1(data: &[u8], length: usize) -> Option<Vec<u8>> {
    let ones = length
        .checked_sub(3 + data.len())
        .filter(|ones| *ones >= 8)?;
    let mut bytes = vec![0, 1];
    bytes.resize(2 + ones, 0xff);
    bytes.push(0);
    bytes.extend_from_slice(data);
    Some(bytes)
}

/// 6B, bytes BB, BA, the data, CC; if the data leave only two bytes, 6A, the data, CC (ANSI
/// X9.31, as `RSA_padding_add_X931` has it).
fn x931(data: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut bytes = match length.checked_sub(2 + data.len())? {
        0 => vec![0x6a],
        more => {
            let mut bytes = vec![0x6b];
            bytes.resize(more, 0xbb);
            bytes.push(0xba);
            bytes
        }
    };
    bytes.extend_from_slice(data);
    bytes.push(0xcc);
    Some(bytes)
}

/// a − b, big-endian, of numbers of the same length; modulo a power of 256 where b is greater.
fn difference(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut bytes = a.to_vec();
    let mut borrow = false;
    for (byte, less) in bytes.iter_mut().zip(b).rev() {
        let (once, first) = byte.overflowing_sub(*less);
        let (twice, second) = once.overflowing_sub(u8::from(borrow));
        (*byte, borrow) = (twice, first || second);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(padding: c_int, data: &[u8]) -> Option<Vec<u8>> {
        let padded = Padded::new(Bytes::new(data), padding, &[0xc0; 16])?;
        Some(padded.bytes().to_vec())
    }

    #[test]
    fn each_padding_fills_the_modulus_and_refuses_what_does_not_fit() {
        let pkcs1 = |data: &[u8]| padded(ffi::RSA_PKCS1_PADDING, data);
        let expected = [&[0, 1][..], &[0xff; 8], &[0], &[7; 5]].concat();
        assert_eq!(pkcs1(&[7; 5]), Some(expected));
        assert_eq!(pkcs1(&[7; 6]), None);
        let empty = [&[0, 1][..], &[0xff; 13], &[0]].concat();
        assert_eq!(pkcs1(&[]), Some(empty));

        let x931 = |data: &[u8]| padded(ffi::RSA_X931_PADDING, data);
        assert_eq!(
            x931(&[7; 14]),
            Some([&[0x6a][..], &[7; 14], &[0xcc]].concat())
        );
        let one = [&[0x6b, 0xba][..], &[7; 13], &[0xcc]].concat();
        assert_eq!(x931(&[7; 13]), Some(one));
        let three = [&[0x6b, 0xbb, 0xbb, 0xba][..], &[7; 11], &[0xcc]].concat();
        assert_eq!(x931(&[7; 11]), Some(three));
        assert_eq!(x931(&[7; 15]), None);

        assert_eq!(padded(ffi::RSA_NO_PADDING, &[7; 16]), Some(vec![7; 16]));
        assert_eq!(padded(ffi::RSA_NO_PADDING, &[7; 15]), None);
        assert_eq!(padded(99, &[7; 5]), None);
    }

    #[test]
    fn of_two_signatures_x931_takes_the_lesser() {
        let modulus = [0x80, 0x00, 0x01];
        let signature = |padding, power: [u8; 3]| {
            let padded = Padded {
                bytes: Vec::new(),
                padding,
                modulus: &modulus,
            };
            padded.signature(Zeroizing::new(power.to_vec())).to_vec()
        };
        let x931 = ffi::RSA_X931_PADDING;
        assert_eq!(signature(x931, [0x7f, 0xff, 0x03]), [0x00, 0x00, 0xfe]);
        assert_eq!(signature(x931, [0x00, 0x00, 0xfe]), [0x00, 0x00, 0xfe]);
        let pkcs1 = ffi::RSA_PKCS1_PADDING;
        assert_eq!(signature(pkcs1, [0x7f, 0xff, 0x03]), [0x7f, 0xff, 0x03]);
    }
}
