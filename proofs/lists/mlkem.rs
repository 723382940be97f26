//! ML-KEM's functions of words, for `cargo xtask prove`.

use super::parameters::{Bytes, length};
use super::{coding, transform};
use crate::simd::words16::symbolic::{
    Function, functions, give_bits, polynomials, take_signs, words,
};
use crate::simd::words16::{COEFFICIENTS, Polynomial, Words};

fn packed<W: Words, const BITS: usize>(w: W, x: &[i32]) -> Vec<u8> {
    let mut bytes = vec![0; length(BITS)];
    let polynomial = polynomials(x);
    for at in (0..COEFFICIENTS).step_by(W::LANES) {
        let a = w.load(&polynomial[0].0[at..]);
        w.pack::<BITS>(&mut bytes[length(BITS) * at / COEFFICIENTS..], a);
    }
    bytes
}

fn unpacked<W: Words, const BITS: usize>(w: W, bytes: &[u8]) -> Vec<i32> {
    let mut polynomial = Polynomial::ZERO;
    for at in (0..COEFFICIENTS).step_by(W::LANES) {
        let a = w.unpack::<BITS>(&bytes[length(BITS) * at / COEFFICIENTS..]);
        w.store(&mut polynomial.0[at..], a);
    }
    words(&[polynomial])
}

fn forward<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = polynomials(x);
    transform::forward(w, &mut a[0]);
    words(&a)
}

fn forward_canonical<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = polynomials(x);
    transform::forward_canonical(w, &mut a[0]);
    words(&a)
}

fn inverse<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = polynomials(x);
    transform::inverse(w, &mut a[0]);
    words(&a)
}

fn multiplier<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let a = polynomials(x);
    let mut out = [Polynomial::ZERO; 2];
    transform::multiplier(w, &a[0], &mut out);
    words(&out)
}

fn product<W: Words, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let all = polynomials(x);
    let a = core::array::from_fn::<_, K, _>(|i| &all[i].0);
    let multipliers = polynomials(&x[K * COEFFICIENTS..]);
    let multipliers = multipliers.as_chunks().0.first_chunk::<K>().expect("all");
    // A copy lies elsewhere.
    let mut out = polynomials(&[0; COEFFICIENTS]);
    transform::product(w, a, multipliers, &mut out[0]);
    words(&out)
}

fn add_product<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut all = polynomials(x);
    let (sum, product) = all.split_at_mut(1);
    transform::add_product(w, &mut sum[0], &product[0]);
    words(sum)
}

fn decode<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let bytes = packed::<W, 12>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    let is_valid = coding::decode(w, &bytes, &mut out[0]);
    // Whether one is not below q: of the portable words one for all, of terms one for each place.
    let mut signs = take_signs();
    signs.resize(32, i32::from(is_valid) - 1);
    [words(&out), signs].concat()
}

fn encode<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let a = polynomials(x);
    let mut bytes = vec![0; length(12)];
    coding::encode(w, &a[0], &mut bytes);
    unpacked::<W, 12>(w, &bytes)
}

fn compress<W: Words, const BITS: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let a = polynomials(x);
    let mut bytes = vec![0; length(BITS)];
    coding::compress::<W, BITS>(w, &a[0], &a[1], &mut bytes);
    unpacked::<W, BITS>(w, &bytes)
}

fn decompress<W: Words, const BITS: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let bytes = packed::<W, BITS>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    coding::decompress::<W, BITS>(w, &bytes, &mut out[0]);
    words(&out)
}

/// The bits of the message are words that are 0 or −1.
fn add_message<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = polynomials(&x[..COEFFICIENTS]);
    let bits = &x[COEFFICIENTS..];
    give_bits(bits);
    let mut message: Bytes = [0; 32];
    for (i, bit) in bits.iter().enumerate() {
        message[i / 8] |= ((bit & 1) as u8) << (i % 8);
    }
    coding::add_message(w, &message, &mut a[0]);
    words(&a)
}

/// −1 where a bit is 0.
fn message<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let a = polynomials(x);
    let mut message: Bytes = [0; 32];
    coding::message(w, &a[0], &a[1], &mut message);
    let signs = take_signs();
    match signs.is_empty() {
        true => (0..COEFFICIENTS)
            .map(|i| i32::from(message[i / 8] >> (i % 8) & 1) - 1)
            .collect(),
        false => signs,
    }
}

fn noise<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let bytes = packed::<W, 4>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    coding::noise(w, bytes[..].try_into().expect("all"), &mut out[0]);
    words(&out)
}

fn wide_noise<W: Words, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let bytes = packed::<W, 6>(w, x);
    let mut out = polynomials(&[0; COEFFICIENTS]);
    coding::wide_noise(w, bytes[..].try_into().expect("all"), &mut out[0]);
    words(&out)
}

/// All of them.
pub(crate) fn functions() -> Vec<Function> {
    functions! { "mlkem":
        forward 0 1; forward_canonical 0 1; inverse 0 1; multiplier 0 1;
        product 1 3; product 2 6; product 3 9; product 4 12; add_product 0 2;
        decode 0 1; encode 0 1;
        compress 4 2; compress 5 2; compress 10 2; compress 11 2;
        decompress 4 1; decompress 5 1; decompress 10 1; decompress 11 1;
        add_message 0 2; message 0 2; noise 0 1; wide_noise 0 1;
    }
}
