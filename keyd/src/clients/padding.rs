//! Check that the input of an RSA operation is padded as a signature.
//!
//! A request asks for input^d mod n, so a signature and a decryption look alike. A client that may
//! sign but not decrypt must not get a ciphertext decrypted. So its input must have the form of a
//! signature, and the client may choose less than a third of the bytes:
//!
//! - PKCS#1 v1.5 (RFC 8017, 9.2): 00 01, bytes FF, 00, and the DigestInfo of a known digest, in DER
//!   with NULL parameters, as signers write it; or the two digests of TLS before 1.2.
//! - PSS (RFC 8017, 9.1) with SHA-256, SHA-384 or SHA-512, and MGF1 with the same. The salt is at
//!   most as long as the digest. Without the mask, the bytes before the salt are zeros and a 01.
//!   The mask follows from the hash, so only the salt counts as chosen.
//!
//! The form alone does not suffice. If half of the bytes are free, any ciphertext is the quotient
//! of two numbers of that form. Lattice reduction finds these numbers, and the quotient of their
//! signatures is the plaintext. If a third is free, signatures can be forged from other signatures
//! (Brier, Clavier, Coron and Naccache, "Cryptanalysis of RSA signatures with fixed-pattern
//! padding", CRYPTO 2001).

use sha2::{Digest, Sha256, Sha384, Sha512};

/// Returns whether `input`, which is as long as the modulus, is padded as a signature.
pub fn is_signature(input: &[u8]) -> bool {
    is_pkcs1(input) || is_pss::<Sha256>(input) || is_pss::<Sha384>(input) || is_pss::<Sha512>(input)
}

/// Returns whether the client may choose `free` of `length` bytes: less than a third.
fn is_little(free: usize, length: usize) -> bool {
    3 * free < length
}

/// Object identifiers of digests, and the lengths of the digests.
const DIGESTS: [(&[u8], usize); 13] = [
    // MD5.
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 5], 16),
    // RIPEMD-160.
    (&[0x2b, 0x24, 3, 2, 1], 20),
    // SHA-1.
    (&[0x2b, 0x0e, 3, 2, 0x1a], 20),
    // SHA-224, SHA-256, SHA-384, SHA-512, SHA-512/224 and SHA-512/256.
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 4], 28),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1], 32),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2], 48),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3], 64),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 5], 28),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 6], 32),
    // SHA3-224 to SHA3-512.
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 7], 28),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 8], 32),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 9], 48),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 10], 64),
];

/// Length of the two digests, MD5 and SHA-1, that TLS before 1.2 signs.
const BOTH: usize = 36;

fn is_pkcs1(input: &[u8]) -> bool {
    let Some(rest) = input.strip_prefix(&[0, 1]) else {
        return false;
    };
    let ones = rest.iter().take_while(|&&byte| byte == 0xff).count();
    let Some(info) = rest[ones..].strip_prefix(&[0]) else {
        return false;
    };
    let length = match info.len() {
        BOTH => Some(BOTH),
        _ => digest_length(info),
    };
    length.is_some_and(|length| is_little(length, input.len()))
}

/// Returns the length of the digest in a DigestInfo; `None` if it is not one of [`DIGESTS`].
fn digest_length(info: &[u8]) -> Option<usize> {
    let found = DIGESTS.iter().find(|(identifier, length)| {
        let count = identifier.len() as u8;
        let algorithm = [0x30, count + 4, 6, count];
        let head = [0x30, count + 8 + *length as u8];
        let tail = [5, 0, 4, *length as u8];
        let prefix = head
            .iter()
            .chain(&algorithm)
            .chain(*identifier)
            .chain(&tail);
        info.len() == identifier.len() + 10 + length && prefix.eq(&info[..info.len() - length])
    });
    found.map(|(_, length)| *length)
}

fn is_pss<D: Digest>(input: &[u8]) -> bool {
    let hash_length = <D as Digest>::output_size();
    let Some((0xbc, rest)) = input.split_last().map(|(last, rest)| (*last, rest)) else {
        return false;
    };
    let Some(block) = rest.len().checked_sub(hash_length) else {
        return false;
    };
    // The number of bits of the modulus is a multiple of eight, so the encoded message has one bit
    // less.
    let (masked, hash) = rest.split_at(block);
    if masked.first().is_none_or(|first| first & 0x80 != 0) {
        return false;
    }
    // The first part of the mask rejects almost every input that is not a signature.
    for (chunk, counter) in masked.chunks(hash_length).zip(0_u32..) {
        let mask = D::new()
            .chain_update(hash)
            .chain_update(counter.to_be_bytes())
            .finalize();
        for (place, (byte, mask)) in chunk.iter().zip(mask).enumerate() {
            let place = counter as usize * hash_length + place;
            // The first bit is not part of the message.
            let bits = if place == 0 { 0x7f } else { 0xff };
            let clear = (byte ^ mask) & bits;
            if clear != 0 {
                // Only the salt counts as free. The client chooses the hash, too, but the mask, and
                // so the bytes before the salt, follow from it.
                let salt = block - place - 1;
                return clear == 1 && salt <= hash_length && is_little(salt, input.len());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pkcs1(length: usize, info: &[u8]) -> Vec<u8> {
        let ones = vec![0xff; length - info.len() - 3];
        [&[0, 1][..], &ones, &[0], info].concat()
    }

    fn digest_info((identifier, length): (&[u8], usize)) -> Vec<u8> {
        let count = identifier.len();
        let head = [0x30, count + 8 + length, 0x30, count + 4, 6, count].map(|byte| byte as u8);
        let tail = [5, 0, 4, length as u8];
        [&head[..], identifier, &tail, &vec![0x5a; length]].concat()
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

    /// Asserts that `input` is a signature, and returns the number of bytes that can change without
    /// notice.
    fn check(input: &[u8]) -> usize {
        assert!(is_signature(input), "{input:02x?}");
        let mut changed = input.to_vec();
        let mut free = 0;
        for place in 0..input.len() {
            for bit in [1, 0x10, 0x80] {
                changed[place] ^= bit;
                free += usize::from(is_signature(&changed));
                changed[place] ^= bit;
            }
        }
        assert!(free < input.len(), "{free} of {}", 3 * input.len());
        free / 3
    }

    #[test]
    fn signatures_are_known_and_are_fixed_for_the_most_part() {
        for length in [128, 256, 384, 512] {
            for digest in DIGESTS {
                let input = pkcs1(length, &digest_info(digest));
                match digest.1 <= 42 || length > 128 {
                    true => assert_eq!(check(&input), digest.1),
                    false => assert!(!is_signature(&input)),
                }
            }
            assert_eq!(check(&pkcs1(length, &[5; BOTH])), BOTH);
            check(&pss::<Sha256>(length, 32));
            check(&pss::<Sha256>(length, 20));
            check(&pss::<Sha384>(length, 42));
            check(&pss::<Sha512>(length, 0));
            if length > 128 {
                check(&pss::<Sha384>(length, 48));
                check(&pss::<Sha512>(length, 64));
            }
        }
    }

    /// The first bytes of DigestInfo in RFC 8017, 9.2, note 1.
    #[test]
    fn digests_are_named_as_the_rfc_names_them() {
        for (prefix, length) in [
            ("3020300c06082a864886f70d020505000410", 16),
            ("3021300906052b0e03021a05000414", 20),
            ("302d300d06096086480165030402040500041c", 28),
            ("3031300d060960864801650304020105000420", 32),
            ("3041300d060960864801650304020205000430", 48),
            ("3051300d060960864801650304020305000440", 64),
            ("302d300d06096086480165030402050500041c", 28),
            ("3031300d060960864801650304020605000420", 32),
        ] {
            let digits = prefix
                .as_bytes()
                .chunks(2)
                .map(|digits| str::from_utf8(digits).unwrap());
            let bytes = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap());
            let info: Vec<u8> = bytes.chain(vec![9; length]).collect();
            assert!(is_signature(&pkcs1(256, &info)), "{prefix}");
        }
    }

    #[test]
    fn what_leaves_much_free_is_no_signature() {
        for length in [128, 256, 384, 512] {
            // Neither a DigestInfo nor as long as the two digests of TLS.
            for info in [&[0x30; 51][..], &[0x30; 94], &[5; 35], &[]] {
                assert!(!is_signature(&pkcs1(length, info)));
            }
            let mut short = digest_info(DIGESTS[4]);
            short.pop();
            assert!(!is_signature(&pkcs1(length, &short)));
            let mut long = digest_info(DIGESTS[4]);
            long.push(0);
            assert!(!is_signature(&pkcs1(length, &long)));
            // Another encoding of the length, valid in BER.
            let mut other = digest_info(DIGESTS[4]);
            other.splice(1..2, [0x81, 49]);
            assert!(!is_signature(&pkcs1(length, &other)));
            for salt in [33, length - 34] {
                assert!(!is_signature(&pss::<Sha256>(length, salt)));
            }
        }
        assert!(!is_signature(&pss::<Sha384>(128, 43)));
        // The limit is a third.
        assert!(is_little(63, 192) && !is_little(64, 192));
    }

    /// RFC 8017, 9.1.2, step 6: a verifier rejects a message whose first bit is set.
    #[test]
    fn the_first_bit_is_clear() {
        for length in [128, 256, 384, 512] {
            let mut input = pss::<Sha256>(length, 32);
            assert!(is_signature(&input));
            input[0] |= 0x80;
            assert!(!is_signature(&input));
        }
    }

    #[test]
    fn what_is_padded_otherwise_is_no_signature() {
        for length in [128, 256, 384, 512] {
            let info = digest_info(DIGESTS[4]);
            // Block type 02 of PKCS#1 v1.5, which is for encryption; a separator that is not 00;
            // and a random number, without and with the ends of a signature.
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
        for short in [&[][..], &[0xbc], &[0, 1], &[0, 1, 0]] {
            assert!(!is_signature(short));
        }
    }
}
