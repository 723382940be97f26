//! Numbers as words of 32 bits, the lowest first.

use zeroize::Zeroizing;

/// Returns zero words.
pub(crate) fn zeros(count: usize) -> Zeroizing<Vec<u32>> {
    Zeroizing::new(vec![0; count])
}

/// Writes the big-endian number `bytes` to `words`. Returns `None` if it does not fit.
///
/// The time depends on lengths, and on whether the number fits.
pub(crate) fn from_big_endian(words: &mut [u32], bytes: &[u8]) -> Option<()> {
    let excess = bytes.len().saturating_sub(4 * words.len());
    let (above, bytes) = bytes.split_at(excess);
    words.fill(0);
    for (word, bytes) in words.iter_mut().zip(bytes.rchunks(4)) {
        *word = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    (above.iter().fold(0, |bits, byte| bits | byte) == 0).then_some(())
}

/// Returns the number in `words` as big-endian bytes.
pub(crate) fn to_big_endian(words: &[u32]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; 4 * words.len()]);
    for (bytes, word) in bytes.rchunks_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Writes little-endian bytes to as many words.
pub(crate) fn from_little_endian(words: &mut [u32], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
}

/// Writes words as little-endian bytes.
pub(crate) fn to_little_endian(bytes: &mut [u8], words: &[u32]) {
    for (bytes, word) in bytes.chunks_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}
