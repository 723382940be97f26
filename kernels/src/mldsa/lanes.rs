//! The functions that ML-DSA computes in lanes: functions of polynomials, and hashes.
//!
//! The rest of ML-DSA is compiled once for all lanes and parameter sets, and calls lanes through
//! [`Lanes`]. A function here works on a whole polynomial or on several messages, so that it takes
//! much longer than the call.

use super::arithmetic;
use super::coding::{self, Hints, Mask};
use super::parameters::{beta, eta, gamma_1, gamma_2};
use crate::backend::Backend;
use crate::keccak::sponge::{self, Block, Messages};
use crate::mlkem;
use crate::mlkem::transform::{self as small_transform, Multiplier};
use crate::simd::Simd;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Words};
use crate::simd::words32::{LongPolynomial, LongSampled, LongWords};

/// Messages that are identified by numbers.
pub(super) type Named<'a, 'b> = dyn Messages<'a, Name = usize> + 'b;

/// A backend's lanes and words. A function with the name of a function of [`arithmetic`] or
/// [`coding`] does the same; `k` is the K of the parameter set.
pub(super) trait Lanes {
    fn hash<'a>(&self, messages: &mut Named<'a, '_>);

    fn forward(&self, polynomial: &mut LongPolynomial);
    fn inverse(&self, polynomial: &mut LongPolynomial);
    fn product(
        &self,
        matrix: &[LongSampled],
        vector: &[LongPolynomial],
        other: Option<(&[LongPolynomial], &LongPolynomial)>,
        results: &mut [LongPolynomial],
    );
    fn single_product(&self, a: &LongPolynomial, b: &LongPolynomial, result: &mut LongPolynomial);
    fn widen(&self, from: &[i16; COEFFICIENTS], to: &mut LongPolynomial);

    fn sample_vartime(&self, block: &Block, polynomial: &mut LongSampled, count: usize) -> usize;
    fn decode_public(&self, bytes: &[u8], polynomial: &mut LongPolynomial);
    fn decode_response(&self, k: usize, bytes: &[u8], polynomial: &mut LongPolynomial) -> bool;
    fn respond(&self, k: usize, mask: &Mask, small: &Polynomial, bytes: &mut [u8]) -> bool;
    fn subtract(&self, k: usize, low: &mut LongPolynomial, small: &Polynomial) -> bool;
    fn decompose(&self, k: usize, polynomial: &mut LongPolynomial, bytes: &mut [u8]);
    fn hints(
        &self,
        k: usize,
        low: &LongPolynomial,
        added: &LongPolynomial,
        high: &[u8],
        hints: &mut Hints,
    ) -> bool;
    fn use_hints(&self, k: usize, polynomial: &LongPolynomial, hints: &Hints, bytes: &mut [u8]);

    /// Transforms a small polynomial as ML-KEM does.
    fn forward_small(&self, polynomial: &mut Polynomial);
    /// Prepares a challenge for products with such transforms.
    fn multiplier(&self, challenge: &mut Polynomial, multiplier: &mut [Multiplier; 1]);
    /// Computes the product of a small transform and a prepared challenge, transformed back.
    ///
    /// The coefficients of the product are at most β, far below half of ML-KEM's modulus, so the
    /// reduction leaves them exact.
    fn multiply_small(
        &self,
        polynomial: &Polynomial,
        multiplier: &[Multiplier; 1],
        result: &mut Polynomial,
    );
}

const _: () = {
    let most = mlkem::MODULUS / 4;
    assert!(beta(4) < most && beta(6) < most && beta(8) < most);
    // Where numbers are split and packed, ML-DSA-65 and -87 differ in η alone, so one arm of each
    // `match` below serves both.
    assert!(gamma_1(6) == gamma_1(8) && gamma_2(6) == gamma_2(8) && eta(6) != eta(8));
};

struct On<S, W>(S, W);

/// Calls `body` with a backend's lanes.
pub(super) fn on<R>(backend: Backend, body: impl FnOnce(&dyn Lanes) -> R) -> R {
    let (mut body, mut result) = (Some(body), None);
    let mut call = |lanes: &dyn Lanes| result = body.take().map(|body| body(lanes));
    mlkem::dispatch!(backend, call_with, &mut call);
    result.expect("it was called")
}

fn call_with<S: Simd, W: Words + LongWords>(s: S, w: W, body: &mut dyn FnMut(&dyn Lanes)) {
    body(&On(s, w));
}

/// Returns the lanes of tests and proofs: words of type `W`, and hashes in one portable lane.
#[cfg(any(test, feature = "proofs"))]
pub(super) fn of_words<W: Words + LongWords>(w: W) -> impl Lanes {
    On(crate::simd::portable::Portable::<1>, w)
}

impl<S: Simd, W: Words + LongWords> Lanes for On<S, W> {
    fn hash<'a>(&self, messages: &mut Named<'a, '_>) {
        sponge::hash(self.0, messages);
    }

    fn forward(&self, polynomial: &mut LongPolynomial) {
        arithmetic::forward(self.1, polynomial);
    }

    fn inverse(&self, polynomial: &mut LongPolynomial) {
        arithmetic::inverse(self.1, polynomial);
    }

    fn product(
        &self,
        matrix: &[LongSampled],
        vector: &[LongPolynomial],
        other: Option<(&[LongPolynomial], &LongPolynomial)>,
        results: &mut [LongPolynomial],
    ) {
        let w = self.1;
        match vector.len() {
            4 => arithmetic::product::<W, 4>(w, matrix, vector, other, results),
            5 => arithmetic::product::<W, 5>(w, matrix, vector, other, results),
            _ => arithmetic::product::<W, 7>(w, matrix, vector, other, results),
        }
    }

    fn single_product(&self, a: &LongPolynomial, b: &LongPolynomial, result: &mut LongPolynomial) {
        arithmetic::single_product(self.1, a, b, result);
    }

    fn widen(&self, from: &[i16; COEFFICIENTS], to: &mut LongPolynomial) {
        arithmetic::widen(self.1, from, to);
    }

    fn sample_vartime(&self, block: &Block, polynomial: &mut LongSampled, count: usize) -> usize {
        coding::sample_vartime(self.1, block, polynomial, count)
    }

    fn decode_public(&self, bytes: &[u8], polynomial: &mut LongPolynomial) {
        coding::decode_public(self.1, bytes, polynomial);
    }

    fn decode_response(&self, k: usize, bytes: &[u8], polynomial: &mut LongPolynomial) -> bool {
        match k {
            4 => coding::decode_response::<W, 18>(self.1, bytes, polynomial, beta(k)),
            _ => coding::decode_response::<W, 20>(self.1, bytes, polynomial, beta(k)),
        }
    }

    fn respond(&self, k: usize, mask: &Mask, small: &Polynomial, bytes: &mut [u8]) -> bool {
        match k {
            4 => coding::respond::<W, 18>(self.1, mask, small, bytes, beta(k)),
            _ => coding::respond::<W, 20>(self.1, mask, small, bytes, beta(k)),
        }
    }

    fn subtract(&self, k: usize, low: &mut LongPolynomial, small: &Polynomial) -> bool {
        coding::subtract(self.1, low, small, gamma_2(k) - beta(k))
    }

    fn decompose(&self, k: usize, polynomial: &mut LongPolynomial, bytes: &mut [u8]) {
        match k {
            4 => coding::decompose::<W, 4>(self.1, polynomial, bytes),
            _ => coding::decompose::<W, 6>(self.1, polynomial, bytes),
        }
    }

    fn hints(
        &self,
        k: usize,
        low: &LongPolynomial,
        added: &LongPolynomial,
        high: &[u8],
        hints: &mut Hints,
    ) -> bool {
        match k {
            4 => coding::hints::<W, 4>(self.1, low, added, high, hints),
            _ => coding::hints::<W, 6>(self.1, low, added, high, hints),
        }
    }

    fn use_hints(&self, k: usize, polynomial: &LongPolynomial, hints: &Hints, bytes: &mut [u8]) {
        match k {
            4 => coding::use_hints::<W, 4>(self.1, polynomial, hints, bytes),
            _ => coding::use_hints::<W, 6>(self.1, polynomial, hints, bytes),
        }
    }

    fn forward_small(&self, polynomial: &mut Polynomial) {
        small_transform::forward_canonical(self.1, polynomial);
    }

    fn multiplier(&self, challenge: &mut Polynomial, multiplier: &mut [Multiplier; 1]) {
        small_transform::forward(self.1, challenge);
        small_transform::multiplier(self.1, challenge, &mut multiplier[0]);
    }

    fn multiply_small(
        &self,
        polynomial: &Polynomial,
        multiplier: &[Multiplier; 1],
        result: &mut Polynomial,
    ) {
        small_transform::product(self.1, [&polynomial.0], multiplier, result);
        small_transform::inverse(self.1, result);
    }
}
