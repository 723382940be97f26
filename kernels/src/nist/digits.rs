//! Odd scalars, their digits, and their parts.
//!
//! M. Joye, M. Tunstall, "Exponent recoding and regular exponentiation algorithms" (2009): with Kᵢ
//! = ⌊k/2^(w·i)⌋ | 1, the digit dᵢ = (Kᵢ mod 2^(w+1)) − 2^w leaves (Kᵢ − dᵢ)/2^w = Kᵢ₊₁. So each
//! digit depends only on w + 1 bits of k, of which the lowest does not matter. Bit w of them is the
//! sign; the w − 1 bits below are the index (|dᵢ| − 1)/2, complemented if dᵢ is negative.

use super::curve::Curve;
use crate::modular::{Field, S_MASK, Tight};
use crate::simd::{Simd, words, words_mut};

/// An odd scalar, and the lanes in which it is n − k.
pub(super) struct Odd<S: Simd, const N: usize> {
    pub(super) k: [S::Limb; N],
    pub(super) negated: S::Mask,
}

/// Returns k or n − k, whichever is odd.
#[inline(always)]
pub(super) fn make_odd<S: Simd, C: Curve<N>, const N: usize>(s: S, k: &[S::Limb; N]) -> Odd<S, N> {
    let f = Field::<S, C::Order, N>::new(s);
    let one = s.splat(1);
    let other = f.tight(f.negate(1, &Tight(*k))).0;
    let odd = s.any_bit(k[0], one);
    // The lanes with an even k.
    let negated = s.any_bit(s.sub(one, s.and(k[0], one)), one);
    Odd {
        k: f.select(odd, k, &other),
        negated,
    }
}

/// A digit: ±(2·index + 1).
pub(super) struct Digit<S: Simd> {
    pub(super) index: S::Limb,
    pub(super) negative: S::Mask,
}

/// Returns the digit of the `w` bits of k from `bit` upwards, the highest of which is the sign.
#[inline(always)]
pub(super) fn digit<S: Simd, const N: usize>(
    s: S,
    k: &[S::Limb; N],
    bit: usize,
    w: usize,
) -> Digit<S> {
    let sign = s.splat(1 << (w - 1));
    let all = s.splat((1 << (w - 1)) - 1);
    let bits = bits(s, k, bit);
    let low = s.and(bits, all);
    let negative = s.any_bit(s.sub(sign, s.and(bits, sign)), sign);
    Digit {
        index: s.select(negative, s.sub(all, low), low),
        negative,
    }
}

/// Returns ⌊k/2^bit⌋ mod 2^52, for limbs below 2^52.
#[inline(always)]
pub(super) fn bits<S: Simd, const N: usize>(s: S, k: &[S::Limb; N], bit: usize) -> S::Limb {
    let (limb, shift) = (bit / 52, bit % 52);
    if shift == 0 {
        return k[limb];
    }
    let up = s.splat(1 << (52 - shift));
    let low = s.mul_hi(s.zero(), k[limb], up);
    if limb + 1 < N {
        s.mul_lo(low, k[limb + 1], up)
    } else {
        low
    }
}

/// Adds 2^bit to a k below 2^bit. This bit, above the last window, makes the sign of the last digit
/// positive.
#[inline(always)]
pub(super) fn add_power<S: Simd, const N: usize>(s: S, k: &mut [S::Limb; N], bit: usize) {
    k[bit / 52] = s.add(k[bit / 52], s.splat(1 << (bit % 52)));
}

/// Returns the number of lanes for each of `count` requests.
pub(super) fn parts_for<S: Simd>(count: usize) -> usize {
    S::LANES / count.next_power_of_two()
}

/// Returns ⌊k/2^(width·j)⌋ for part j of each request. The parts of a request are in neighbouring
/// lanes.
pub(super) fn parts_of<S: Simd, const N: usize>(
    s: S,
    k: &[S::Limb; N],
    count: usize,
    width: usize,
) -> [S::Limb; N] {
    let parts = parts_for::<S>(count);
    let mut out = [s.zero(); N];
    let (from, to) = (words(k), words_mut(&mut out));
    let word = |limb: usize, request: usize| match limb < N {
        true => from[S::LANES * limb + request],
        false => 0,
    };
    for lane in 0..count * parts {
        let (request, part) = (lane / parts, lane % parts);
        let (skipped, shift) = (width * part / 52, width * part % 52);
        for i in 0..N {
            let (low, high) = (word(skipped + i, request), word(skipped + i + 1, request));
            to[S::LANES * i + lane] = (low >> shift | high << (52 - shift)) & S_MASK;
        }
    }
    out
}
