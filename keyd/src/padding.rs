//! Whether the input of an RSA operation is that of a signature.
//!
//! RSA is asked for as input^d mod n, without a padding: a signature and a decryption look alike.
//! A client that may sign and not decrypt must not have a ciphertext decrypted, so its input must
//! have a form that no ciphertext has, and that nobody can give a ciphertext by blinding it:
//!
//! - PKCS#1 v1.5 (RFC 8017, 9.2): 00 01, at least 16 bytes FF, 00, a DigestInfo.
//! - PSS (RFC 8017, 9.1) with SHA-256, SHA-384 or SHA-512 and MGF1 with the same: the block behind
//!   the mask starts with zeros up to a one. A salt so long that fewer than 16 such bytes remain is
//!   refused.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The fewest bytes that must be as they are for every signature: 128 bits.
const FIXED: usize = 16;

/// Whether `input`, as long as the modulus, is padded as a signature.
pub fn is_signature(input: &[u8]) -> bool {
    is_pkcs1(input) || is_pss::<Sha256>(input) || is_pss::<Sha384>(input) || is_pss::<Sha512>(input)
}

fn is_pkcs1(input: &[u8]) -> bool {
    let Some(rest) = input.strip_prefix(&[0, 1]) else {
        return false;
    };
    let ones = rest.iter().take_while(|&&byte| byte == 0xff).count();
    let Some(info) = rest[ones..].strip_prefix(&[0]) else {
        return false;
    };
    // TLS before 1.2 signs two digests, without a DigestInfo.
    let is_info = info.first() == Some(&0x30) || info.len() == 36;
    ones >= FIXED && is_info
}

fn is_pss<D: Digest>(input: &[u8]) -> bool {
    let hash_length = <D as Digest>::output_size();
    let Some((0xbc, rest)) = input.split_last().map(|(last, rest)| (*last, rest)) else {
        return false;
    };
    let Some(block) = rest.len().checked_sub(hash_length) else {
        return false;
    };
    // The modulus has a multiple of eight bits, so the encoded message has one bit less.
    let (masked, hash) = rest.split_at(block);
    let mut clear = masked.to_vec();
    for (chunk, counter) in clear.chunks_mut(hash_length).zip(0_u32..) {
        let mask = D::new()
            .chain_update(hash)
            .chain_update(counter.to_be_bytes())
            .finalize();
        for (byte, mask) in chunk.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    let Some(first) = clear.first_mut() else {
        return false;
    };
    let top_is_clear = masked[0] & 0x80 == 0;
    *first &= 0x7f;
    let zeros = clear.iter().take_while(|&&byte| byte == 0).count();
    top_is_clear && zeros >= FIXED && clear.get(zeros) == Some(&1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pkcs1(length: usize, info: &[u8]) -> Vec<u8> {
        let ones = vec![0xff; length - info.len() - 3];
        [&[0, 1][..], &ones, &[0], info].concat()
    }

    fn pss<D: Digest>(length: usize, salt: usize) -> Vec<u8> {
        let hash_length = <D as Digest>::output_size();
        let hash = D::digest(b"m").to_vec();
        let block = length - hash_length - 1;
        let mut data = vec![0; block];
        data[block - salt - 1] = 1;
        data[block - salt..].fill(7);
        for (chunk, counter) in data.chunks_mut(hash_length).zip(0_u32..) {
            let mask = D::new()
                .chain_update(&hash)
                .chain_update(counter.to_be_bytes())
                .finalize();
            chunk
                .iter_mut()
                .zip(mask)
                .for_each(|(byte, mask)| *byte ^= mask);
        }
        data[0] &= 0x7f;
        [&data[..], &hash, &[0xbc]].concat()
    }

    #[test]
    fn signatures_are_known_and_nothing_else() {
        for length in [128, 256, 384, 512] {
            let info = [0x30; 51];
            assert!(is_signature(&pkcs1(length, &info)));
            assert!(is_signature(&pkcs1(length, &[5; 36])));
            assert!(is_signature(&pss::<Sha256>(length, 32)));
            assert!(is_signature(&pss::<Sha384>(length, 48)) || length == 128);
            assert!(is_signature(&pss::<Sha512>(length, 0)));
            // The longest salt leaves nothing that a signature must have.
            assert!(!is_signature(&pss::<Sha256>(length, length - 34)));
            // A ciphertext of PKCS#1 v1.5, and random numbers with either end of a signature.
            let mut other = pkcs1(length, &info);
            other[1] = 2;
            assert!(!is_signature(&other));
            other[..2].copy_from_slice(&[0, 1]);
            other[length - 52] = 1;
            assert!(!is_signature(&other));
            let mut random: Vec<u8> = (0..length).map(|at| (at * at * 89 + 7) as u8).collect();
            assert!(!is_signature(&random));
            random[0] = 0;
            random[1] = 1;
            random[length - 1] = 0xbc;
            assert!(!is_signature(&random));
        }
        assert!(!is_signature(&[]) && !is_signature(&[0xbc]) && !is_signature(&[0, 1]));
        assert!(!is_signature(&pkcs1(64, &[0x30; 51])), "too few ones");
    }
}
