//! The number-theoretic transform (FIPS 203, section 4.3), and products of its results.
//!
//! A polynomial is stored in the order of FIPS 203, except within the last four layers of a
//! transform: their butterflies reach over less than a vector. So before each of these layers, two
//! vectors exchange pairs of words until one has the upper coefficients and the other one the lower
//! ones. At the end the pairs change back.

use core::marker::PhantomData;

use super::field::{Factor, canonical_of_any, multiply, power, reduce};
use crate::simd::words16::{COEFFICIENTS, Polynomial, Words};
use crate::simd::{enter, inlined};
use crate::unroll::unrolled;

/// A primitive root of unity of order 256.
const ZETA: i64 = 17;

/// Returns the exponent of block i: its seven bits in reverse.
const fn exponent(i: usize) -> u32 {
    (i as u8).reverse_bits() as u32 >> 1
}

/// Returns the factor of a butterfly in block i, counted over all layers from 1; of the inverse
/// transform if `IS_INVERSE`.
const fn zeta<const IS_INVERSE: bool>(i: usize) -> i64 {
    power(
        ZETA,
        if IS_INVERSE {
            256 - exponent(i)
        } else {
            exponent(i)
        },
    )
}

/// Returns the factors of the first three layers, by block.
const fn outer<const IS_INVERSE: bool>() -> [Factor; 8] {
    let (mut factors, mut i) = ([Factor::ONE; 8], 1);
    while i < 8 {
        factors[i] = Factor::of(zeta::<IS_INVERSE>(i));
        i += 1;
    }
    factors
}

const OUTER: [Factor; 8] = outer::<false>();
const OUTER_INVERSE: [Factor; 8] = outer::<true>();

/// Scale of the inverse transform: 1/128, and R, because a product has the factor 1/R.
const SCALE: i64 = (1 << 16) / 128;
const LAST: [Factor; 2] = [Factor::of(SCALE), Factor::of(SCALE * zeta::<true>(1))];

/// A factor for each of `N` words.
#[repr(C, align(64))]
struct Factors<const N: usize> {
    by_r: [i16; N],
    by_q: [i16; N],
}

impl<const N: usize> Factors<N> {
    const fn new() -> Self {
        Self {
            by_r: [0; N],
            by_q: [0; N],
        }
    }

    const fn set(&mut self, i: usize, factor: Factor) {
        self.by_r[i] = factor.by_r;
        self.by_q[i] = factor.by_q;
    }

    #[inline(always)]
    fn load<W: Words>(&self, w: W, at: usize) -> [W::Vector; 2] {
        [w.load(&self.by_r[at..]), w.load(&self.by_q[at..])]
    }
}

/// Number of layers whose butterflies reach over 16, 8, 4 and 2 words.
const INNER: usize = 4;

/// Returns the factors of these layers, in the places to which exchanges between vectors of `lanes`
/// words move the coefficients.
const fn inner<const IS_INVERSE: bool>(lanes: usize) -> [Factors<128>; INNER] {
    let mut layers = [const { Factors::new() }; INNER];
    let mut start = 0;
    while start < COEFFICIENTS {
        // The indices of the coefficients in the two vectors of a pair.
        let mut places = [[0; 32]; 2];
        let mut i = 0;
        while i < lanes {
            places[0][i] = start + i;
            places[1][i] = start + lanes + i;
            i += 1;
        }
        let mut layer = 0;
        while layer < INNER {
            let reach = 16 >> layer;
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
                layers[layer].set(start / 2 + i, Factor::of(zeta::<IS_INVERSE>(block)));
                i += 1;
            }
            layer += 1;
        }
        start += 2 * lanes;
    }
    layers
}

/// The factors for words of this type.
struct Tables<W>(PhantomData<W>);

impl<W: Words> Tables<W> {
    const INNER: &'static [Factors<128>; INNER] = &inner::<false>(W::LANES);
    const INNER_INVERSE: &'static [Factors<128>; INNER] = &inner::<true>(W::LANES);
}

/// Factors for products of the 128 polynomials of degree 1 in a transform: 1 for the first
/// coefficient, and the value of x^2 for the second one.
const TWIST: Factors<COEFFICIENTS> = {
    let (mut twist, mut i) = (Factors::new(), 0);
    while i < COEFFICIENTS / 2 {
        twist.set(2 * i, Factor::ONE);
        twist.set(2 * i + 1, Factor::of(power(ZETA, 2 * exponent(i) + 1)));
        i += 1;
    }
    twist
};

/// Transforms a polynomial (algorithm 9) with coefficients at most q. The results are at most 6q.
#[inline(never)]
pub(crate) fn forward<W: Words>(w: W, polynomial: &mut Polynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        if W::LANES == COLUMNS {
            let mut v = load::<W, 8>(w, words, 0, COLUMNS);
            outer_layers(w, &mut v);
            inner_layers(w, &mut v, 0);
            store(w, words, 0, COLUMNS, &v);
        } else {
            for column in (0..COLUMNS).step_by(W::LANES) {
                let mut v = load::<W, 8>(w, words, column, COLUMNS);
                outer_layers(w, &mut v);
                store(w, words, column, COLUMNS, &v);
            }
            for at in (0..COEFFICIENTS).step_by(4 * W::LANES) {
                let mut v = load::<W, 4>(w, words, at, W::LANES);
                inner_layers(w, &mut v, at);
                store(w, words, at, W::LANES, &v);
            }
        }
    });
}

/// Transforms a polynomial with coefficients at most q. The results are in 0..q.
#[inline(never)]
pub(crate) fn forward_canonical<W: Words>(w: W, polynomial: &mut Polynomial) {
    forward(w, polynomial);
    let words = &mut polynomial.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let a = canonical_of_any(w, w.load(&words[at..]));
            w.store(&mut words[at..], a);
        }
    });
}

/// Minimum number of coefficients over which butterflies of the outer layers reach. If a vector has
/// as many, the vectors of the outer layers are the same as those of the inner ones, and stay in
/// registers.
const COLUMNS: usize = 32;

/// Loads `N` vectors, the first one at `at`, `distance` words apart.
#[inline(always)]
fn load<W: Words, const N: usize>(
    w: W,
    words: &[i16; COEFFICIENTS],
    at: usize,
    distance: usize,
) -> [W::Vector; N] {
    let mut v = [w.splat(0); N];
    unrolled::<N>(inlined!(|i| v[i] = w.load(&words[at + distance * i..])));
    v
}

/// Stores vectors to the places from which [`load`] loads them.
#[inline(always)]
fn store<W: Words, const N: usize>(
    w: W,
    words: &mut [i16; COEFFICIENTS],
    at: usize,
    distance: usize,
    v: &[W::Vector; N],
) {
    unrolled::<N>(inlined!(|i| w.store(&mut words[at + distance * i..], v[i])));
}

/// Computes the first three layers.
#[inline(always)]
fn outer_layers<W: Words>(w: W, v: &mut [W::Vector; 8]) {
    outer_layer::<W, 4>(w, v);
    outer_layer::<W, 2>(w, v);
    outer_layer::<W, 1>(w, v);
}

/// Computes the last four layers, of the vectors at `at`. It takes turns between pairs, because
/// butterflies of one pair wait for each other.
#[inline(always)]
fn inner_layers<W: Words, const N: usize>(w: W, v: &mut [W::Vector; N], at: usize) {
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

/// Computes the layer whose butterflies reach over `REACH` of eight vectors.
#[inline(always)]
fn outer_layer<W: Words, const REACH: usize>(w: W, v: &mut [W::Vector; 8]) {
    unrolled::<8>(inlined!(|i: usize| if i & REACH == 0 {
        let factor = OUTER[4 / REACH + i / (2 * REACH)].splat(w);
        [v[i], v[i + REACH]] = butterfly(w, [v[i], v[i + REACH]], factor);
    }));
}

/// Two neighbouring vectors, which one step takes and returns.
type Pair<W> = [<W as Words>::Vector; 2];

/// Applies `change` to each pair of vectors.
#[inline(always)]
fn each_pair<W: Words, const N: usize>(
    v: &mut [W::Vector; N],
    mut change: impl FnMut(usize, Pair<W>) -> Pair<W>,
) {
    unrolled::<N>(inlined!(|i: usize| if i.is_multiple_of(2) {
        [v[i], v[i + 1]] = change(i / 2, [v[i], v[i + 1]]);
    }));
}

/// Exchanges blocks of `PAIRS` pairs of words within pairs of vectors, if a vector is longer than a
/// block.
#[inline(always)]
fn exchange<W: Words, const N: usize, const PAIRS: usize>(w: W, v: &mut [W::Vector; N]) {
    if 2 * PAIRS < W::LANES {
        each_pair::<W, N>(
            v,
            inlined!(|_: usize, [a, b]: Pair<W>| w.exchange::<PAIRS>(a, b)),
        );
    }
}

/// Computes one of the [`INNER`] layers, for the vectors at `at`.
#[inline(always)]
fn inner_layer<W: Words, const N: usize, const LAYER: usize>(
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

/// The inverse of [`inner_layer`].
#[inline(always)]
fn inner_inverse_layer<W: Words, const N: usize, const LAYER: usize>(
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

/// Returns [a + b·factor, a − b·factor].
#[inline(always)]
fn butterfly<W: Words>(w: W, [a, b]: [W::Vector; 2], factor: [W::Vector; 2]) -> [W::Vector; 2] {
    let product = multiply(w, b, factor);
    [w.add(a, product), w.sub(a, product)]
}

/// Returns [a + b, (a − b)·factor].
#[inline(always)]
fn inverse_butterfly<W: Words>(
    w: W,
    [a, b]: [W::Vector; 2],
    factor: [W::Vector; 2],
) -> [W::Vector; 2] {
    [w.add(a, b), multiply(w, w.sub(a, b), factor)]
}

/// Computes R times the inverse transform (algorithm 10) of a result of [`product`]. The
/// coefficients of the result are at most 0.75q.
#[inline(never)]
pub(crate) fn inverse<W: Words>(w: W, polynomial: &mut Polynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        if W::LANES == COLUMNS {
            let mut v = load::<W, 8>(w, words, 0, COLUMNS);
            inner_inverse_layers(w, &mut v, 0);
            outer_inverse_layers(w, &mut v);
            store(w, words, 0, COLUMNS, &v);
        } else {
            for at in (0..COEFFICIENTS).step_by(4 * W::LANES) {
                let mut v = load::<W, 4>(w, words, at, W::LANES);
                inner_inverse_layers(w, &mut v, at);
                store(w, words, at, W::LANES, &v);
            }
            for column in (0..COLUMNS).step_by(W::LANES) {
                let mut v = load::<W, 8>(w, words, column, COLUMNS);
                outer_inverse_layers(w, &mut v);
                store(w, words, column, COLUMNS, &v);
            }
        }
    });
}

/// The inverse of [`inner_layers`].
#[inline(always)]
fn inner_inverse_layers<W: Words, const N: usize>(w: W, v: &mut [W::Vector; N], at: usize) {
    each_pair::<W, N>(v, inlined!(|_: usize, [a, b]: Pair<W>| w.unzip(a, b)));
    inner_inverse_layer::<W, N, 3>(w, v, at);
    exchange::<W, N, 1>(w, v);
    inner_inverse_layer::<W, N, 2>(w, v, at);
    exchange::<W, N, 2>(w, v);
    inner_inverse_layer::<W, N, 1>(w, v, at);
    // `sums` are sums of eight numbers. From here on, products and reduced numbers are at most
    // 0.67·q.
    let one = Factor::ONE.splat(w);
    each_pair::<W, N>(
        v,
        inlined!(|_: usize, [sums, differences]: Pair<W>| [multiply(w, sums, one), differences]),
    );
    exchange::<W, N, 4>(w, v);
    inner_inverse_layer::<W, N, 0>(w, v, at);
    exchange::<W, N, 8>(w, v);
}

/// The inverse of [`outer_layers`], with the scale of the whole transform.
#[inline(always)]
fn outer_inverse_layers<W: Words>(w: W, v: &mut [W::Vector; 8]) {
    outer_inverse_layer::<W, 1>(w, v);
    outer_inverse_layer::<W, 2>(w, v);
    // Only v[0] and v[4] are sums of eight numbers. With v[0] reduced, their sum is at most 6.1·q.
    v[0] = multiply(w, v[0], Factor::ONE.splat(w));
    let [sum, difference] = LAST.map(inlined!(|factor: Factor| factor.splat(w)));
    unrolled::<4>(inlined!(|i| [v[i], v[i + 4]] = [
        multiply(w, w.add(v[i], v[i + 4]), sum),
        multiply(w, w.sub(v[i], v[i + 4]), difference),
    ]));
}

/// The inverse of [`outer_layer`].
#[inline(always)]
fn outer_inverse_layer<W: Words, const REACH: usize>(w: W, v: &mut [W::Vector; 8]) {
    unrolled::<8>(inlined!(|i: usize| if i & REACH == 0 {
        let factor = OUTER_INVERSE[4 / REACH + i / (2 * REACH)].splat(w);
        [v[i], v[i + REACH]] = inverse_butterfly(w, [v[i], v[i + REACH]], factor);
    }));
}

/// A transform that multiplies others, as two polynomials. The first has, of each polynomial of
/// degree 1, the first coefficient and the second one times the value of x^2. The second has the
/// second coefficient, then the first one.
pub(crate) type Multiplier = [Polynomial; 2];

/// Computes the multiplier of any polynomial. Its numbers are at most 0.75·q.
#[inline(never)]
pub(crate) fn multiplier<W: Words>(
    w: W,
    polynomial: &Polynomial,
    [straight, swapped]: &mut Multiplier,
) {
    enter!(w, [straight, swapped], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let a = w.load(&polynomial.0[at..]);
            w.store(&mut straight.0[at..], multiply(w, a, TWIST.load(w, at)));
            let reduced = multiply(w, a, Factor::ONE.splat(w));
            w.store(&mut swapped.0[at..], w.swap_pairs(reduced));
        }
    });
}

/// Computes (Σ a_i·b_i) / R (algorithm 11), where the coefficients of each a_i are below 2^12. The
/// coefficients of the result are at most 0.9·q, for up to four products.
#[inline(never)]
pub(crate) fn product<W: Words, const K: usize>(
    w: W,
    a: [&[i16; COEFFICIENTS]; K],
    b: &[Multiplier; K],
    result: &mut Polynomial,
) {
    let words = &mut result.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let (mut even, mut odd) = (w.no_sums(), w.no_sums());
            unrolled::<K>(inlined!(|i: usize| {
                let a = w.load(&a[i][at..]);
                even = w.add_products(even, a, w.load(&b[i][0].0[at..]));
                odd = w.add_products(odd, a, w.load(&b[i][1].0[at..]));
            }));
            w.store(&mut words[at..], reduce(w, w.halves(even, odd)));
        }
    });
}

/// Adds R times a product to any polynomial whose coefficients are at most 8q.
#[inline(never)]
pub(super) fn add_product<W: Words>(w: W, sum: &mut Polynomial, product: &Polynomial) {
    let words = &mut sum.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let product = multiply(w, w.load(&product.0[at..]), Factor::R.splat(w));
            let sum = w.load(&words[at..]);
            w.store(&mut words[at..], w.add(sum, product));
        }
    });
}
