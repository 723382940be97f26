//! ECDSA signatures in DER: SEQUENCE { INTEGER r, INTEGER s }.

/// Reads a signature into r ‖ s, each of `half` bytes. `None` for bytes that are not the one
/// encoding that DER permits, and for numbers that are negative or too long.
pub(crate) fn read(mut bytes: &[u8], half: usize, fixed: &mut [u8]) -> Option<()> {
    let mut contents = element(0x30, &mut bytes)?;
    for part in fixed.chunks_exact_mut(half) {
        let number = element(0x02, &mut contents)?;
        let number = match number {
            [0] => &[],
            // A zero in front keeps a number from being negative, and has no other use.
            [0, rest @ ..] => rest.first().filter(|first| **first >= 0x80).map(|_| rest)?,
            [first, ..] if *first < 0x80 => number,
            _ => return None,
        };
        let zeros = half.checked_sub(number.len())?;
        part[..zeros].fill(0);
        part[zeros..].copy_from_slice(number);
    }
    (bytes.is_empty() && contents.is_empty()).then_some(())
}

/// Takes the element with this tag from the front. No signature of these curves has an element of
/// more than 127 bytes.
fn element<'a>(tag: u8, bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [found, length @ ..=0x7f, rest @ ..] = *bytes else {
        return None;
    };
    let (element, rest) = rest.split_at_checked(usize::from(*length))?;
    *bytes = rest;
    (*found == tag).then_some(element)
}

/// Maximum length of a signature whose halves have `half` bytes.
pub(crate) const fn longest(half: usize) -> usize {
    2 * (half + 3) + 2
}

/// Writes r ‖ s as DER; returns the length.
pub(crate) fn write(fixed: &[u8], out: &mut [u8]) -> usize {
    let half = fixed.len() / 2;
    let mut at = 2;
    for part in fixed.chunks_exact(half) {
        let start = part.iter().position(|byte| *byte != 0).unwrap_or(half - 1);
        let number = &part[start..];
        let zero = usize::from(number[0] >= 0x80);
        out[at..at + 2].copy_from_slice(&[0x02, (zero + number.len()) as u8]);
        at += 2;
        out[at..at + zero].fill(0);
        at += zero;
        out[at..at + number.len()].copy_from_slice(number);
        at += number.len();
    }
    out[..2].copy_from_slice(&[0x30, (at - 2) as u8]);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_32(bytes: &[u8]) -> Option<[u8; 64]> {
        let mut fixed = [0xff; 64];
        read(bytes, 32, &mut fixed).map(|()| fixed)
    }

    #[test]
    fn a_signature_is_read_as_it_was_written() {
        for (first, zeros) in [(0x7f, 0), (0x80, 0), (1, 31), (0xff, 30), (0x12, 5)] {
            let mut fixed = [0; 64];
            fixed[zeros] = first;
            fixed[31] |= 1;
            fixed[63] = 0x80;
            let mut der = [0; longest(32)];
            let length = write(&fixed, &mut der);
            assert_eq!(read_32(&der[..length]), Some(fixed));
            for cut in 0..length {
                assert_eq!(read_32(&der[..cut]), None);
            }
            let longer = [&der[..length], &[0]].concat();
            assert_eq!(read_32(&longer), None, "bytes behind it");
        }
    }

    #[test]
    fn no_other_encoding_is_read() {
        let good = [0x30, 6, 2, 1, 5, 2, 1, 6];
        assert!(read_32(&good).is_some());
        for bad in [
            &[0x31, 6, 2, 1, 5, 2, 1, 6][..],
            &[0x30, 5, 2, 0, 2, 1, 6],
            &[0x30, 6, 3, 1, 5, 2, 1, 6],
            &[0x30, 0x81, 6, 2, 1, 5, 2, 1, 6],
            &[0x30, 0x80, 2, 1, 5, 2, 1, 6, 0, 0],
            &[0x30, 7, 2, 2, 0, 5, 2, 1, 6],
            &[0x30, 7, 2, 1, 5, 2, 1, 6, 0],
            &[0x30, 6, 2, 1, 0x85, 2, 1, 6],
            &[0x30, 3, 2, 1, 5],
            &[0x30, 9, 2, 1, 5, 2, 1, 6, 2, 1, 7],
        ] {
            assert_eq!(read_32(bad), None, "{bad:x?}");
        }
    }
}
