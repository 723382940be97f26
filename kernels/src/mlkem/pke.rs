//! K-PKE, the encryption that ML-KEM is made of (FIPS 203, section 5), once all is hashed.

use core::array::from_fn;

use super::coding;
use super::parameters::{Bytes, Ciphertext, K, PublicKey, U_BITS, V_BITS, length};
use super::transform::{add_product, forward, inverse, multiplier, product};
use super::work::Request;
use crate::simd::words16::Words;

/// A key pair (algorithm 13), without the seed of its matrix.
pub(super) fn make_keys<W: Words>(
    w: W,
    request: Request<'_>,
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
    let rows = matrix.as_chunks::<K>().0;
    let bytes = public.chunks_exact_mut(length(12));
    for ((row, e), bytes) in rows.iter().zip(e).zip(bytes) {
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

/// Encryption (algorithm 14); whether the key is valid.
pub(super) fn encrypt<W: Words>(
    w: W,
    request: Request<'_>,
    public_key: &PublicKey,
    message: &Bytes,
    ciphertext: &mut Ciphertext,
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
    let (u_bytes, v_bytes) = ciphertext.split_at_mut(K * length(U_BITS));
    for (i, bytes) in u_bytes.chunks_exact_mut(length(U_BITS)).enumerate() {
        let column = from_fn(|j| matrix[K * j + i].coefficients());
        product(w, column, multipliers, sum);
        inverse(w, sum);
        coding::compress::<W, U_BITS>(w, sum, &e[i], bytes);
    }
    product(w, vector.each_ref().map(|t| &t.0), multipliers, sum);
    inverse(w, sum);
    coding::add_message(w, message, &mut e[K]);
    coding::compress::<W, V_BITS>(w, sum, &e[K], v_bytes);
    is_valid
}

/// Decryption (algorithm 15).
pub(super) fn decrypt<W: Words>(
    w: W,
    request: Request<'_>,
    secret: &[u8],
    ciphertext: &Ciphertext,
    message: &mut Bytes,
) {
    let Request {
        multipliers,
        vector,
        sum,
        other,
        ..
    } = request;
    let (u_bytes, v_bytes) = ciphertext.split_at(K * length(U_BITS));
    for (bytes, multiplied) in u_bytes.chunks_exact(length(U_BITS)).zip(&mut *multipliers) {
        coding::decompress::<W, U_BITS>(w, bytes, other);
        forward(w, other);
        multiplier(w, other, multiplied);
    }
    for (s, bytes) in vector.iter_mut().zip(secret.chunks_exact(length(12))) {
        coding::decode(w, bytes, s);
    }
    product(w, vector.each_ref().map(|s| &s.0), multipliers, sum);
    inverse(w, sum);
    coding::decompress::<W, V_BITS>(w, v_bytes, other);
    coding::message(w, other, sum, message);
}
