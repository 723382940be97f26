//! K-PKE, the encryption inside ML-KEM (FIPS 203, section 5), after all hashing.

use core::array::from_fn;

use super::coding;
use super::parameters::{Bytes, length, u_bits, v_bits};
use super::transform::{add_product, forward, inverse, multiplier, product};
use super::work::Request;
use crate::simd::words16::{Polynomial, Words};

/// Computes a key pair (algorithm 13), without the seed of its matrix.
pub(super) fn make_keys<W: Words, const K: usize>(
    w: W,
    request: Request<'_, K>,
    public: &mut [u8],
    secret: &mut [u8],
) {
    let Request {
        matrix,
        noise,
        multipliers,
        sum,
        ..
    } = request;
    let (s, e) = noise.split_at_mut(K);
    let bytes = secret.chunks_exact_mut(length(12));
    for ((s, multiplied), bytes) in s.iter_mut().zip(&mut *multipliers).zip(bytes) {
        forward(w, s);
        multiplier(w, s, multiplied);
        coding::encode(w, s, bytes);
    }
    let bytes = public.chunks_exact_mut(length(12));
    for ((row, e), bytes) in matrix.iter().zip(e).zip(bytes) {
        forward(w, e);
        product(
            w,
            row.each_ref().map(|entry| entry.coefficients()),
            multipliers,
            sum,
        );
        add_product(w, e, sum);
        coding::encode(w, e, bytes);
    }
}

/// Encrypts (algorithm 14); returns whether the key is valid.
pub(super) fn encrypt<W: Words, const K: usize>(
    w: W,
    request: Request<'_, K>,
    public_key: &[u8],
    message: &Bytes,
    ciphertext: &mut [u8],
) -> bool {
    let Request {
        matrix,
        noise,
        multipliers,
        vector,
        sum,
        ..
    } = request;
    let mut is_valid = true;
    for (t, bytes) in vector.iter_mut().zip(public_key.chunks_exact(length(12))) {
        is_valid &= coding::decode(w, bytes, t);
    }
    let (y, e) = noise.split_at_mut(K);
    for (y, multiplied) in y.iter_mut().zip(&mut *multipliers) {
        forward(w, y);
        multiplier(w, y, multiplied);
    }
    let (u_bytes, v_bytes) = ciphertext.split_at_mut(K * length(u_bits(K)));
    for (i, bytes) in u_bytes.chunks_exact_mut(length(u_bits(K))).enumerate() {
        let column = from_fn(|j| matrix[j][i].coefficients());
        product(w, column, multipliers, sum);
        inverse(w, sum);
        compress(w, u_bits(K), sum, &e[i], bytes);
    }
    product(w, vector.each_ref().map(|t| &t.0), multipliers, sum);
    inverse(w, sum);
    coding::add_message(w, message, &mut e[K]);
    compress(w, v_bits(K), sum, &e[K], v_bytes);
    is_valid
}

/// Decrypts (algorithm 15).
pub(super) fn decrypt<W: Words, const K: usize>(
    w: W,
    request: Request<'_, K>,
    secret: &[u8],
    ciphertext: &[u8],
    message: &mut Bytes,
) {
    let Request {
        multipliers,
        vector,
        sum,
        other,
        ..
    } = request;
    let (u_bytes, v_bytes) = ciphertext.split_at(K * length(u_bits(K)));
    for (bytes, multiplied) in u_bytes
        .chunks_exact(length(u_bits(K)))
        .zip(&mut *multipliers)
    {
        decompress(w, u_bits(K), bytes, other);
        forward(w, other);
        multiplier(w, other, multiplied);
    }
    for (s, bytes) in vector.iter_mut().zip(secret.chunks_exact(length(12))) {
        coding::decode(w, bytes, s);
    }
    product(w, vector.each_ref().map(|s| &s.0), multipliers, sum);
    inverse(w, sum);
    decompress(w, v_bits(K), v_bytes, other);
    coding::message(w, other, sum, message);
}

/// [`coding::compress`] to the number of bits of a parameter set.
fn compress<W: Words>(w: W, bits: usize, a: &Polynomial, b: &Polynomial, bytes: &mut [u8]) {
    match bits {
        4 => coding::compress::<W, 4>(w, a, b, bytes),
        5 => coding::compress::<W, 5>(w, a, b, bytes),
        10 => coding::compress::<W, 10>(w, a, b, bytes),
        _ => coding::compress::<W, 11>(w, a, b, bytes),
    }
}

/// [`coding::decompress`] from the number of bits of a parameter set.
fn decompress<W: Words>(w: W, bits: usize, bytes: &[u8], polynomial: &mut Polynomial) {
    match bits {
        4 => coding::decompress::<W, 4>(w, bytes, polynomial),
        5 => coding::decompress::<W, 5>(w, bytes, polynomial),
        10 => coding::decompress::<W, 10>(w, bytes, polynomial),
        _ => coding::decompress::<W, 11>(w, bytes, polynomial),
    }
}
