//! Hexadecimal digits.

use std::fmt::Write as _;

/// Returns the bytes of hexadecimal digits, in their order.
///
/// # Panics
///
/// If the digits are odd in number, or are no digits.
pub fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "half a byte in {digits}");
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Returns the `COUNT` bytes of hexadecimal digits, in their order.
///
/// # Panics
///
/// As [`hex`], and if there are more or fewer digits.
pub fn hex_array<const COUNT: usize>(digits: &str) -> [u8; COUNT] {
    hex(digits)
        .try_into()
        .expect("as many digits as the array holds")
}

/// Returns bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_bytes_and_digits_again() {
        assert_eq!(hex("00ff1a"), [0, 255, 26]);
        assert_eq!(hex_array::<2>("0a0B"), [10, 11]);
        assert_eq!(to_hex(&hex("00ff1a")), "00ff1a");
    }
}
