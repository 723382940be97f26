//! Numbers modulo q = 8,380,417 in signed words of 32 bits, with Montgomery's product for R = 2^32,
//! and the number-theoretic transform of their polynomials (FIPS 204, section 7.5).
//!
//! A word has room for 256q, so a transform needs no reductions. Each layer of the forward
//! transform adds a product, which is little more than q/2. Each layer of the inverse transform at
//! most doubles a number.
//!
//! A polynomial is stored in the order of FIPS 204. The butterflies of four layers reach over 8,
//! 4, 2 and 1 words, so within a vector of 16 words. For these layers, two vectors exchange words,
//! layer by layer: then one vector has the upper coefficients, and the other one has the lower
//! ones. In the end the words change back.

use core::marker::PhantomData;

use crate::simd::words16::COEFFICIENTS;
use crate::simd::words32::{LongPolynomial, LongSampled, LongWords, Q, Q_INVERSE, multiply_word};
use crate::simd::{enter, inlined};
use crate::unroll::unrolled;

/// A primitive root of unity of order 512.
const ZETA: i64 = 1753;

/// A constant factor c.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    /// c·R modulo q, at most q/2.
    pub(super) by_r: i32,
    /// `by_r` divided by q, modulo R.
    pub(super) by_q: i32,
}

impl Factor {
    /// Returns the factor for any constant.
    pub(super) const fn of(constant: i64) -> Self {
        let q = Q as i64;
        let by_r = (constant % q * ((1 << 32) % q)).rem_euclid(q);
        let by_r = if by_r > q / 2 { by_r - q } else { by_r } as i32;
        Self {
            by_r,
            by_q: by_r.wrapping_mul(Q_INVERSE),
        }
    }

    /// Multiplies one number by the constant.
    #[inline(always)]
    fn multiply(self, a: i32) -> i32 {
        multiply_word(a, self.by_r, self.by_q)
    }

    /// Returns the factor in all words of a vector.
    #[inline(always)]
    pub(super) fn splat<W: LongWords>(self, w: W) -> [[W::Vector; 2]; 2] {
        [[w.splat(self.by_r); 2], [w.splat(self.by_q); 2]]
    }
}

/// Returns `base` to the power `exponent` modulo q.
const fn power(mut base: i64, mut exponent: u32) -> i64 {
    let mut power = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * base % Q as i64;
        }
        base = base * base % Q as i64;
        exponent >>= 1;
    }
    power
}

/// Returns the same number in 0..q, for a number whose absolute value is below q.
#[inline(always)]
pub(super) fn canonical<W: LongWords>(w: W, a: W::Vector) -> W::Vector {
    w.min_unsigned(a, w.add(a, w.splat(Q)))
}

/// Returns the exponent of block i: its eight bits in reverse.
const fn exponent(i: usize) -> u32 {
    (i as u8).reverse_bits() as u32
}

/// Returns the factor of the butterflies in block i, for the inverse transform if `IS_INVERSE`.
/// Blocks are counted over all layers, from 1.
const fn zeta<const IS_INVERSE: bool>(i: usize) -> i64 {
    power(
        ZETA,
        if IS_INVERSE {
            512 - exponent(i)
        } else {
            exponent(i)
        },
    )
}

/// Returns the factors of the first layers, by block.
const fn blocks<const IS_INVERSE: bool, const N: usize>() -> [Factor; N] {
    let (mut factors, mut i) = ([Factor::of(1); N], 1);
    while i < N {
        factors[i] = Factor::of(zeta::<IS_INVERSE>(i));
        i += 1;
    }
    factors
}

const OUTER: [Factor; 16] = blocks::<false, 16>();
const OUTER_INVERSE: [Factor; 16] = blocks::<true, 16>();

/// Factors of all layers, by block.
static ALL: [Factor; 256] = blocks::<false, 256>();
static ALL_INVERSE: [Factor; 256] = blocks::<true, 256>();

/// Scale of the inverse transform: 1/256, and R, because a [`product`] has the factor 1/R.
const SCALE: i64 = (1 << 32) / 256;
const LAST: [Factor; 2] = [Factor::of(SCALE), Factor::of(SCALE * zeta::<true>(1))];

/// A factor for each word of half a polynomial.
#[repr(C, align(64))]
struct Factors {
    by_r: [i32; COEFFICIENTS / 2],
    by_q: [i32; COEFFICIENTS / 2],
}

impl Factors {
    #[inline(always)]
    fn load<W: LongWords>(&self, w: W, at: usize) -> [[W::Vector; 2]; 2] {
        [
            w.factor(w.load(&self.by_r[at..])),
            w.factor(w.load(&self.by_q[at..])),
        ]
    }
}

/// Number of layers whose butterflies reach over 8, 4, 2 and 1 words.
const INNER: usize = 4;

/// Returns the factors of the [`INNER`] layers for vectors of `lanes` words, in the order in which
/// the exchanges put the coefficients.
const fn inner<const IS_INVERSE: bool>(lanes: usize) -> [Factors; INNER] {
    let mut layers = [const {
        Factors {
            by_r: [0; COEFFICIENTS / 2],
            by_q: [0; COEFFICIENTS / 2],
        }
    }; INNER];
    let mut start = 0;
    while start < COEFFICIENTS {
        // The indices of the coefficients in the two vectors of a pair.
        let mut places = [[0; 16]; 2];
        let mut i = 0;
        while i < lanes {
            places[0][i] = start + i;
            places[1][i] = start + lanes + i;
            i += 1;
        }
        let mut layer = 0;
        while layer < INNER {
            let reach = 8 >> layer;
            let [a, b] = places;
            let mut i = 0;
            while i < lanes && reach < lanes {
                if i & reach == 0 {
                    places[1][i] = a[i + reach];
                } else {
                    places[0][i] = b[i - reach];
                }
                i += 1;
            }
            i = 0;
            while i < lanes {
                let upper = places[0][i];
                assert!(places[1][i] == upper + reach);
                let block = COEFFICIENTS / 2 / reach + upper / (2 * reach);
                let factor = Factor::of(zeta::<IS_INVERSE>(block));
                layers[layer].by_r[start / 2 + i] = factor.by_r;
                layers[layer].by_q[start / 2 + i] = factor.by_q;
                i += 1;
            }
            layer += 1;
        }
        start += 2 * lanes;
    }
    layers
}

/// The factors of the [`INNER`] layers for words of type `W`.
struct Tables<W>(PhantomData<W>);

impl<W: LongWords> Tables<W> {
    const INNER: &'static [Factors; INNER] = &inner::<false>(W::LANES);
    const INNER_INVERSE: &'static [Factors; INNER] = &inner::<true>(W::LANES);
}

/// Transforms a polynomial (algorithm 41) with coefficients at most q. The results are at most 6q.
#[inline(never)]
pub(super) fn forward<W: LongWords>(w: W, polynomial: &mut LongPolynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        if W::IS_PLAIN {
            for layer in 0..8 {
                plain_layer(words, layer, &ALL, |a, b, factor| {
                    let product = factor.multiply(b);
                    [a + product, a - product]
                });
            }
        } else if W::LANES == 16 {
            let mut v = load::<W, 16>(w, words, 0, 16);
            outer_layer::<W, 16, 8>(w, &mut v, 1);
            outer_layer::<W, 16, 4>(w, &mut v, 2);
            outer_layer::<W, 16, 2>(w, &mut v, 4);
            outer_layer::<W, 16, 1>(w, &mut v, 8);
            inner_layers(w, &mut v, 0);
            store(w, words, 0, 16, &v);
        } else {
            for column in (0..32).step_by(W::LANES) {
                let mut v = load::<W, 8>(w, words, column, 32);
                outer_layer::<W, 8, 4>(w, &mut v, 1);
                outer_layer::<W, 8, 2>(w, &mut v, 2);
                outer_layer::<W, 8, 1>(w, &mut v, 4);
                store(w, words, column, 32, &v);
            }
            for at in (0..COEFFICIENTS).step_by(4 * W::LANES) {
                let mut v = load::<W, 4>(w, words, at, W::LANES);
                outer_layer::<W, 4, 2>(w, &mut v, 8 + at / 32);
                inner_layers(w, &mut v, at);
                store(w, words, at, W::LANES, &v);
            }
        }
    });
}

/// Computes layer `layer`, counted from the outermost one, in plain words.
#[inline(always)]
fn plain_layer(
    words: &mut [i32; COEFFICIENTS],
    layer: usize,
    factors: &[Factor; 256],
    butterfly: impl Fn(i32, i32, Factor) -> [i32; 2],
) {
    for block in 0..1 << layer {
        let both = &mut words[block << (8 - layer)..][..256 >> layer];
        let (upper, lower) = both.split_at_mut(128 >> layer);
        for (a, b) in upper.iter_mut().zip(lower) {
            [*a, *b] = butterfly(*a, *b, factors[(1 << layer) + block]);
        }
    }
}

/// Loads `N` vectors, the first one at `at`, `distance` words apart.
#[inline(always)]
fn load<W: LongWords, const N: usize>(
    w: W,
    words: &[i32; COEFFICIENTS],
    at: usize,
    distance: usize,
) -> [W::Vector; N] {
    let mut v = [w.splat(0); N];
    unrolled::<N>(inlined!(|i| v[i] = w.load(&words[at + distance * i..])));
    v
}

/// Stores vectors to the places from which [`load`] loads them.
#[inline(always)]
fn store<W: LongWords, const N: usize>(
    w: W,
    words: &mut [i32; COEFFICIENTS],
    at: usize,
    distance: usize,
    v: &[W::Vector; N],
) {
    unrolled::<N>(inlined!(|i| w.store(&mut words[at + distance * i..], v[i])));
}

/// Computes the layer whose butterflies reach over `REACH` vectors; the first vectors are in block
/// `first`.
#[inline(always)]
fn outer_layer<W: LongWords, const N: usize, const REACH: usize>(
    w: W,
    v: &mut [W::Vector; N],
    first: usize,
) {
    unrolled::<N>(inlined!(|i: usize| if i & REACH == 0 {
        let factor = OUTER[first + i / (2 * REACH)].splat(w);
        [v[i], v[i + REACH]] = butterfly(w, [v[i], v[i + REACH]], factor);
    }));
}

/// Computes the last four layers, of the vectors at `at`.
#[inline(always)]
fn inner_layers<W: LongWords, const N: usize>(w: W, v: &mut [W::Vector; N], at: usize) {
    exchange::<W, N, 8>(w, v);
    inner_layer::<W, N, 0>(w, v, at);
    exchange::<W, N, 4>(w, v);
    inner_layer::<W, N, 1>(w, v, at);
    exchange::<W, N, 2>(w, v);
    inner_layer::<W, N, 2>(w, v, at);
    exchange::<W, N, 1>(w, v);
    inner_layer::<W, N, 3>(w, v, at);
    each_pair::<W, N>(
        v,
        inlined!(|_: usize, [even, odd]: Pair<W>| w.zip(even, odd)),
    );
}

/// Two neighbouring vectors, which one step takes and returns.
type Pair<W> = [<W as LongWords>::Vector; 2];

/// Applies `change` to each pair of vectors.
#[inline(always)]
fn each_pair<W: LongWords, const N: usize>(
    v: &mut [W::Vector; N],
    mut change: impl FnMut(usize, Pair<W>) -> Pair<W>,
) {
    unrolled::<N>(inlined!(|i: usize| if i.is_multiple_of(2) {
        [v[i], v[i + 1]] = change(i / 2, [v[i], v[i + 1]]);
    }));
}

/// Exchanges blocks of `WORDS` words within pairs of vectors, if a vector is longer than a block.
#[inline(always)]
fn exchange<W: LongWords, const N: usize, const WORDS: usize>(w: W, v: &mut [W::Vector; N]) {
    if WORDS < W::LANES {
        each_pair::<W, N>(
            v,
            inlined!(|_: usize, [a, b]: Pair<W>| w.exchange::<WORDS>(a, b)),
        );
    }
}

/// Computes one of the [`INNER`] layers, for the vectors at `at`.
#[inline(always)]
fn inner_layer<W: LongWords, const N: usize, const LAYER: usize>(
    w: W,
    v: &mut [W::Vector; N],
    at: usize,
) {
    each_pair::<W, N>(
        v,
        inlined!(|i: usize, pair: Pair<W>| {
            let factor = Tables::<W>::INNER[LAYER].load(w, at / 2 + i * W::LANES);
            butterfly(w, pair, factor)
        }),
    );
}

/// Returns [a + b·factor, a − b·factor].
#[inline(always)]
fn butterfly<W: LongWords>(w: W, [a, b]: Pair<W>, factor: [[W::Vector; 2]; 2]) -> Pair<W> {
    let product = w.multiply(b, factor);
    [w.add(a, product), w.sub(a, product)]
}

/// Computes R times the inverse transform (algorithm 42) of coefficients at most q. The results are
/// at most 0.75q.
#[inline(never)]
pub(super) fn inverse<W: LongWords>(w: W, polynomial: &mut LongPolynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        if W::IS_PLAIN {
            for layer in (1..8).rev() {
                plain_layer(words, layer, &ALL_INVERSE, |a, b, factor| {
                    [a + b, factor.multiply(a - b)]
                });
            }
            plain_layer(words, 0, &ALL_INVERSE, |a, b, _| {
                let [sum, difference] = LAST;
                [sum.multiply(a + b), difference.multiply(a - b)]
            });
        } else if W::LANES == 16 {
            let mut v = load::<W, 16>(w, words, 0, 16);
            inner_inverse_layers(w, &mut v, 0);
            outer_inverse_layer::<W, 16, 1>(w, &mut v, 8);
            outer_inverse_layer::<W, 16, 2>(w, &mut v, 4);
            outer_inverse_layer::<W, 16, 4>(w, &mut v, 2);
            last_layer::<W, 16, 8>(w, &mut v);
            store(w, words, 0, 16, &v);
        } else {
            for at in (0..COEFFICIENTS).step_by(4 * W::LANES) {
                let mut v = load::<W, 4>(w, words, at, W::LANES);
                inner_inverse_layers(w, &mut v, at);
                outer_inverse_layer::<W, 4, 2>(w, &mut v, 8 + at / 32);
                store(w, words, at, W::LANES, &v);
            }
            for column in (0..32).step_by(W::LANES) {
                let mut v = load::<W, 8>(w, words, column, 32);
                outer_inverse_layer::<W, 8, 1>(w, &mut v, 4);
                outer_inverse_layer::<W, 8, 2>(w, &mut v, 2);
                last_layer::<W, 8, 4>(w, &mut v);
                store(w, words, column, 32, &v);
            }
        }
    });
}

/// The inverse of [`inner_layers`].
#[inline(always)]
fn inner_inverse_layers<W: LongWords, const N: usize>(w: W, v: &mut [W::Vector; N], at: usize) {
    each_pair::<W, N>(v, inlined!(|_: usize, [a, b]: Pair<W>| w.unzip(a, b)));
    inner_inverse_layer::<W, N, 3>(w, v, at);
    exchange::<W, N, 1>(w, v);
    inner_inverse_layer::<W, N, 2>(w, v, at);
    exchange::<W, N, 2>(w, v);
    inner_inverse_layer::<W, N, 1>(w, v, at);
    exchange::<W, N, 4>(w, v);
    inner_inverse_layer::<W, N, 0>(w, v, at);
    exchange::<W, N, 8>(w, v);
}

/// The inverse of [`inner_layer`].
#[inline(always)]
fn inner_inverse_layer<W: LongWords, const N: usize, const LAYER: usize>(
    w: W,
    v: &mut [W::Vector; N],
    at: usize,
) {
    each_pair::<W, N>(
        v,
        inlined!(|i: usize, pair: Pair<W>| {
            let factor = Tables::<W>::INNER_INVERSE[LAYER].load(w, at / 2 + i * W::LANES);
            inverse_butterfly(w, pair, factor)
        }),
    );
}

/// The inverse of [`outer_layer`].
#[inline(always)]
fn outer_inverse_layer<W: LongWords, const N: usize, const REACH: usize>(
    w: W,
    v: &mut [W::Vector; N],
    first: usize,
) {
    unrolled::<N>(inlined!(|i: usize| if i & REACH == 0 {
        let factor = OUTER_INVERSE[first + i / (2 * REACH)].splat(w);
        [v[i], v[i + REACH]] = inverse_butterfly(w, [v[i], v[i + REACH]], factor);
    }));
}

/// Computes the last layer, with the scale of the whole transform.
#[inline(always)]
fn last_layer<W: LongWords, const N: usize, const REACH: usize>(w: W, v: &mut [W::Vector; N]) {
    let [sum, difference] = LAST.map(inlined!(|factor: Factor| factor.splat(w)));
    unrolled::<N>(inlined!(|i: usize| if i < REACH {
        [v[i], v[i + REACH]] = [
            w.multiply(w.add(v[i], v[i + REACH]), sum),
            w.multiply(w.sub(v[i], v[i + REACH]), difference),
        ];
    }));
}

/// Returns [a + b, (a − b)·factor].
#[inline(always)]
fn inverse_butterfly<W: LongWords>(w: W, [a, b]: Pair<W>, factor: [[W::Vector; 2]; 2]) -> Pair<W> {
    [w.add(a, b), w.multiply(w.sub(a, b), factor)]
}

/// Computes 1/R times the product of a matrix of `L` columns, whose entries are in 0..q, and a
/// vector of transforms. If `other` is given, 1/R times the product of its vector and its
/// polynomial is added. The coefficients of the result are at most 0.7q: with up to seven products
/// of q and 6q, and one of 6q and 6q, sums are at most 78q².
#[inline(never)]
pub(super) fn product<W: LongWords, const L: usize>(
    w: W,
    matrix: &[LongSampled],
    vector: &[LongPolynomial],
    other: Option<(&[LongPolynomial], &LongPolynomial)>,
    results: &mut [LongPolynomial],
) {
    let vector: &[LongPolynomial; L] = vector.try_into().expect("as many as columns");
    enter!(w, [results], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let mut factors = [w.factor(w.splat(0)); L];
            unrolled::<L>(inlined!(
                |j: usize| factors[j] = w.factor(w.load(&vector[j].0[at..]))
            ));
            for (i, result) in results.iter_mut().enumerate() {
                let row: &[LongSampled; L] = matrix[L * i..].first_chunk().expect("a row");
                let mut sums = w.no_sums();
                unrolled::<L>(inlined!(|j: usize| {
                    let entry = w.load(&row[j].coefficients()[at..]);
                    sums = w.add_products(sums, entry, factors[j]);
                }));
                if let Some((vector, number)) = other {
                    let factor = w.factor(w.load(&number.0[at..]));
                    sums = w.add_products(sums, w.load(&vector[i].0[at..]), factor);
                }
                w.store(&mut result.0[at..], w.reduce(sums));
            }
        }
    });
}

/// Computes 1/R times the product of two transforms whose coefficients are at most 6q. The results
/// are at most 0.6q.
#[inline(never)]
pub(super) fn single_product<W: LongWords>(
    w: W,
    a: &LongPolynomial,
    b: &LongPolynomial,
    result: &mut LongPolynomial,
) {
    let words = &mut result.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let factor = w.factor(w.load(&b.0[at..]));
            let sums = w.add_products(w.no_sums(), w.load(&a.0[at..]), factor);
            w.store(&mut words[at..], w.reduce(sums));
        }
    });
}

/// Copies the coefficients to words of 32 bits.
#[inline(never)]
pub(super) fn widen<W: LongWords>(w: W, from: &[i16; COEFFICIENTS], to: &mut LongPolynomial) {
    let words = &mut to.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            w.store(&mut words[at..], w.widen(&from[at..]));
        }
    });
}
