//! Pieces of secrets in the memory of a process.

use std::collections::HashMap;

/// Length of a piece, which is long enough that it occurs nowhere by chance.
pub const PIECE: usize = 16;

/// Counts the occurrences of each piece in the bytes.
pub fn count_pieces(bytes: &[u8], pieces: &[[u8; PIECE]]) -> Vec<usize> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let mut by_start: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, piece) in pieces.iter().enumerate() {
        by_start.entry(word(piece)).or_default().push(index);
    }
    // Most words begin no piece, which a table of their last 16 bits shows.
    let mut may_be = vec![false; 1 << 16];
    for start in by_start.keys() {
        may_be[*start as usize & 0xffff] = true;
    }
    let mut counts = vec![0; pieces.len()];
    for window in bytes.windows(PIECE) {
        let start = word(window);
        if may_be[start as usize & 0xffff]
            && let Some(candidates) = by_start.get(&start)
        {
            for &index in candidates {
                counts[index] += usize::from(pieces[index] == window);
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_wherever_they_are() {
        let piece = |first: u8| std::array::from_fn(|i| first.wrapping_add(i as u8));
        let pieces: [[u8; PIECE]; 3] = [piece(1), piece(2), piece(9)];
        // The first and the second begin differently, and the third does not occur.
        let bytes = [&[7; 3][..], &pieces[0], &[17], &pieces[1], &pieces[0]].concat();
        assert_eq!(count_pieces(&bytes, &pieces), [2, 2, 0]);
        assert_eq!(count_pieces(&bytes[..PIECE + 2], &pieces), [0, 0, 0]);
        assert_eq!(count_pieces(&[], &pieces), [0, 0, 0]);
    }
}
