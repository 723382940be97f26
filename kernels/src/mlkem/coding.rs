//! Conversion between bytes and polynomials (FIPS 203, section 4.2).

use super::field::canonical_of_any;
use super::parameters::{Bytes, length};
use crate::keccak::sponge::Block;
use crate::simd::enter;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Q, Sampled, Words};

/// Number of bytes for a polynomial of noise.
pub(super) const NOISE: usize = COEFFICIENTS / 2;

/// Decodes the polynomial with 12 bits for each coefficient (algorithm 6); returns whether all of
/// them are below q.
#[inline(never)]
pub(super) fn decode<W: Words>(w: W, bytes: &[u8], polynomial: &mut Polynomial) -> bool {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        let mut room = w.splat(0);
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let a = w.unpack::<12>(&bytes[length(12) * at / COEFFICIENTS..]);
            room = w.or(room, w.sub(w.splat(Q - 1), a));
            w.store(&mut words[at..], a);
        }
        w.signs(room) == 0
    })
}

/// The inverse of [`decode`] (algorithm 5), for any coefficients.
#[inline(never)]
pub(super) fn encode<W: Words>(w: W, polynomial: &Polynomial, bytes: &mut [u8]) {
    enter!(w, [bytes], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let a = canonical_of_any(w, w.load(&polynomial.0[at..]));
            w.pack::<12>(&mut bytes[length(12) * at / COEFFICIENTS..], a);
        }
    });
}

/// Compresses a + b to `BITS` bits for each coefficient, for a and b whose sum is less than 2^15.
#[inline(never)]
pub(super) fn compress<W: Words, const BITS: usize>(
    w: W,
    a: &Polynomial,
    b: &Polynomial,
    bytes: &mut [u8],
) {
    enter!(w, [bytes], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let sum = w.add(w.load(&a.0[at..]), w.load(&b.0[at..]));
            let nearest = nearest::<W, BITS>(w, canonical_of_any(w, sum));
            w.pack::<BITS>(&mut bytes[length(BITS) * at / COEFFICIENTS..], nearest);
        }
    });
}

/// Returns the nearest integer to x·2^`BITS` / q modulo 2^`BITS` (section 4.2.1), for x in 0..q.
///
/// An estimate is exact or one too small. The remainder, which is in 0..2q, decides.
#[inline(always)]
fn nearest<W: Words, const BITS: usize>(w: W, x: W::Vector) -> W::Vector {
    const { assert!(BITS <= 11) };
    let bits = BITS as u32;
    // 2^13·x / q, or at most 1.3 less.
    let exact = w.mul_high(w.shift_left(x, 3), w.splat(((1 << 26) / Q as i32) as i16));
    let estimate = w.shift_right(w.add(exact, w.splat(1 << (12 - BITS))), 13 - bits);
    let numerator = w.add(w.shift_left(x, bits), w.splat(Q / 2));
    let remainder = w.sub(numerator, w.mul_low(estimate, w.splat(Q)));
    let is_less = w.shift_right(w.sub(remainder, w.splat(Q)), 15);
    let nearest = w.sub(w.add(estimate, w.splat(1)), is_less);
    w.and(nearest, w.splat((1 << BITS) - 1))
}

/// Decompresses a polynomial (section 4.2.1). The result is the polynomial before compression or
/// one near it, with coefficients in 0..q.
#[inline(never)]
pub(super) fn decompress<W: Words, const BITS: usize>(
    w: W,
    bytes: &[u8],
    polynomial: &mut Polynomial,
) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let y = w.unpack::<BITS>(&bytes[length(BITS) * at / COEFFICIENTS..]);
            let x = w.mul_round(w.shift_left(y, 15 - BITS as u32), w.splat(Q));
            w.store(&mut words[at..], x);
        }
    });
}

/// Adds (q + 1)/2 to each coefficient for which the bit of the message is 1.
#[inline(never)]
pub(super) fn add_message<W: Words>(w: W, message: &Bytes, polynomial: &mut Polynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let bits = message[at / 8..][..W::LANES / 8].iter().rev();
            let bits = bits.fold(0, |bits, &byte| bits << 8 | u32::from(byte));
            let a = w.load(&words[at..]);
            w.store(
                &mut words[at..],
                w.add(a, w.spread(bits, w.splat(Q / 2 + 1))),
            );
        }
    });
}

/// Returns the message nearest to a − b: a bit is 1 if its coefficient is nearer to q/2 than to 0
/// or q. Differences must be less than 2^15.
#[inline(never)]
pub(super) fn message<W: Words>(w: W, a: &Polynomial, b: &Polynomial, message: &mut Bytes) {
    const NEAREST: i16 = (Q + 3) / 4;
    enter!(w, [message], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let x = w.sub(w.load(&a.0[at..]), w.load(&b.0[at..]));
            let above = w.sub(canonical_of_any(w, x), w.splat(NEAREST));
            let below = w.sub(w.splat(Q - 2 * NEAREST), above);
            let bits = !w.signs(w.or(above, below));
            let bytes = &mut message[at / 8..][..W::LANES / 8];
            bytes.copy_from_slice(&bits.to_le_bytes()[..W::LANES / 8]);
        }
    });
}

/// Computes small coefficients: the first two of four bits minus the other two (algorithm 8, η =
/// 2).
#[inline(never)]
pub(super) fn noise<W: Words>(w: W, bytes: &[u8; NOISE], polynomial: &mut Polynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let bits = w.unpack::<4>(&bytes[at / 2..]);
            w.store(&mut words[at..], w.differences(bits));
        }
    });
}

/// Number of bytes for a polynomial of wide noise.
pub(super) const WIDE_NOISE: usize = COEFFICIENTS * 6 / 8;

/// Computes small coefficients: the first three of six bits minus the other three (algorithm 8, η =
/// 3).
#[inline(never)]
pub(super) fn wide_noise<W: Words>(w: W, bytes: &[u8; WIDE_NOISE], polynomial: &mut Polynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        let first = w.splat(0b001_001);
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let bits = w.unpack::<6>(&bytes[length(6) * at / COEFFICIENTS..]);
            let both = w.add(w.and(bits, first), w.and(w.shift_right(bits, 1), first));
            let sums = w.add(both, w.and(w.shift_right(bits, 2), first));
            let lower = w.and(sums, w.splat(0b111));
            w.store(&mut words[at..], w.sub(lower, w.shift_right(sums, 3)));
        }
    });
}

/// Appends coefficients to a uniformly random polynomial that has `count` of them: the numbers of
/// 12 bits below q in a block (algorithm 7). Returns the new count. The time depends on the
/// numbers.
#[inline(never)]
pub(super) fn sample_vartime<W: Words>(
    w: W,
    block: &Block,
    polynomial: &mut Sampled,
    count: usize,
) -> usize {
    enter!(w, [polynomial], w.sift_vartime(block, polynomial, count))
}
