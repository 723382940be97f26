//! Signatures of ECDSA as DER.

use lockstep_engine::Curve;

/// Length of the longest signature on P-384: a sequence of two numbers, each with a head and a zero
/// before it.
pub const MOST_BYTES: usize = 2 + 2 * (2 + 1 + Curve::P384.bytes());

/// Returns r ‖ s as DER, SEQUENCE { INTEGER r, INTEGER s }, and its length.
pub fn encoded(signature: &[u8]) -> ([u8; MOST_BYTES], usize) {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 2;
    let mut form = [0; MOST_BYTES];
    let mut end = 2;
    let mut push = |bytes: &[u8]| {
        form[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    let (r, s) = signature.split_at(signature.len() / 2);
    for number in [r, s] {
        // As short as possible, and with a zero in front where the number would look negative.
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let digits = &number[zeros.min(number.len() - 1)..];
        let sign = &[0][..usize::from(digits[0] >> 7)];
        // The length and the sum of both are below 128: each takes one byte.
        push(&[INTEGER, (sign.len() + digits.len()) as u8]);
        push(sign);
        push(digits);
    }
    form[..2].copy_from_slice(&[SEQUENCE, (end - 2) as u8]);
    (form, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(r: &[u8], s: &[u8]) -> Vec<u8> {
        let (form, length) = encoded(&[r, s].concat());
        form[..length].to_vec()
    }

    #[test]
    fn numbers_are_short_and_positive() {
        assert_eq!(
            form(&[0, 0, 5], &[0, 0x80, 1]),
            [0x30, 8, 2, 1, 5, 2, 3, 0, 0x80, 1]
        );
        assert_eq!(
            form(&[0; 3], &[0x7f, 0, 0]),
            [0x30, 8, 2, 1, 0, 2, 3, 0x7f, 0, 0]
        );
    }

    #[test]
    fn the_longest_signature_fits() {
        let form = form(&[0xff; 48], &[0xff; 48]);
        assert_eq!(form.len(), MOST_BYTES);
        assert_eq!(form[..5], [0x30, 102, 2, 49, 0]);
    }
}
