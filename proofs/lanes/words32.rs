//! Words of 32 bits that hold terms.
//!
//! Montgomery's product is recorded as the steps of [`super::multiply_word`] and
//! [`super::reduced`].

use super::{COEFFICIENTS, LongPolynomial, LongSampled, LongWords, Q, Q_INVERSE};
use crate::simd::words16::symbolic::{
    Place, Terms, Vector, Word, each, is_known, pack, place, register, signs, spread, sum, unpack,
};

impl<const L: usize> Terms<L> {
    fn long(word: impl Fn(usize) -> Word) -> Vector {
        each(L / 2, word)
    }

    /// Returns the upper halves of sums after multiples of q were subtracted.
    fn upper(self, sums: [u32; 16], quotients: Vector) -> Vector {
        let q = place(Word::Constant(-Q));
        Self::long(|i| Word::High(sum(sums[i], &[[quotients[i], q]])))
    }

    /// Returns a word of two vectors, one behind the other.
    fn of_both(a: Vector, b: Vector) -> impl Fn(usize) -> Place {
        move |i| if i < L / 2 { a[i] } else { b[i - L / 2] }
    }
}

/// Returns a vector of `L / 2` words.
fn moved<const L: usize>(word: impl Fn(usize) -> Place) -> Vector {
    core::array::from_fn(|i| if i < L / 2 { word(i) } else { 0 })
}

impl<const L: usize> LongWords for Terms<L> {
    type Vector = Vector;
    type Sums = [u32; 16];

    const LANES: usize = L / 2;

    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn load(self, from: &[i32]) -> Vector {
        match is_known(from) {
            true => moved::<L>(|i| from[i] as Place),
            false => Self::long(|i| Word::Constant(from[i])),
        }
    }

    fn widen(self, from: &[i16]) -> Vector {
        assert!(is_known(from));
        moved::<L>(|i| from[i] as Place)
    }

    fn store(self, to: &mut [i32], a: Vector) {
        register(&to[..L / 2]);
        for (to, a) in to.iter_mut().zip(&a[..L / 2]) {
            *to = i32::from(*a);
        }
    }

    fn splat(self, value: i32) -> Vector {
        Self::long(|_| Word::Constant(value))
    }

    fn add(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::Add([a[i], b[i]]))
    }

    fn sub(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::Sub([a[i], b[i]]))
    }

    fn and(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::And([a[i], b[i]]))
    }

    fn or(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::Or([a[i], b[i]]))
    }

    fn min_unsigned(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::Min([a[i], b[i]]))
    }

    fn shift_left<const COUNT: u32>(self, a: Vector) -> Vector {
        Self::long(|i| Word::Left(a[i], COUNT))
    }

    fn shift_right<const COUNT: u32>(self, a: Vector) -> Vector {
        Self::long(|i| Word::Right(a[i], COUNT))
    }

    fn negative(self, a: Vector) -> Vector {
        Self::long(|i| Word::Sign(a[i]))
    }

    fn mul_short(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::MulShort([a[i], b[i]], 0))
    }

    fn mul_short_high(self, a: Vector, b: Vector) -> Vector {
        Self::long(|i| Word::MulShort([a[i], b[i]], 16))
    }

    fn multiply(self, a: Vector, [b, by_q]: [[Vector; 2]; 2]) -> Vector {
        let products = self.add_products([0; 16], a, b);
        let quotients = Self::long(|i| Word::MulLow([a[i], by_q[0][i]]));
        self.upper(products, quotients)
    }

    fn factor(self, a: Vector) -> [Vector; 2] {
        [a; 2]
    }

    fn no_sums(self) -> [u32; 16] {
        [0; 16]
    }

    fn add_products(self, sums: [u32; 16], a: Vector, [b, _]: [Vector; 2]) -> [u32; 16] {
        core::array::from_fn(|i| {
            if i < L / 2 {
                sum(sums[i], &[[a[i], b[i]]])
            } else {
                0
            }
        })
    }

    fn reduce(self, sums: [u32; 16]) -> Vector {
        let inverse = place(Word::Constant(Q_INVERSE));
        let quotients = Self::long(|i| Word::MulLow([place(Word::Low(sums[i])), inverse]));
        self.upper(sums, quotients)
    }

    fn exchange<const WORDS: usize>(self, a: Vector, b: Vector) -> [Vector; 2] {
        [
            moved::<L>(|i| if i & WORDS == 0 { a[i] } else { b[i - WORDS] }),
            moved::<L>(|i| if i & WORDS == 0 { a[i + WORDS] } else { b[i] }),
        ]
    }

    fn unzip(self, a: Vector, b: Vector) -> [Vector; 2] {
        let word = Self::of_both(a, b);
        [0, 1].map(|odd| moved::<L>(|i| word(2 * i + odd)))
    }

    fn zip(self, even: Vector, odd: Vector) -> [Vector; 2] {
        [0, L / 4].map(|start| moved::<L>(|i| [even, odd][i % 2][start + i / 2]))
    }

    fn signs(self, a: Vector) -> u32 {
        signs(&a[..L / 2])
    }

    fn spread(self, _bits: u32, value: Vector) -> Vector {
        spread(&value[..L / 2])
    }

    fn unpack<const BITS: usize>(self, from: &[u8]) -> Vector {
        unpack(from)
    }

    fn pack<const BITS: usize>(self, to: &mut [u8], a: Vector) {
        pack(to, a);
    }

    fn sift_vartime(self, _from: &[u8], _to: &mut LongSampled, _count: usize) -> usize {
        panic!("a time that depends on terms")
    }
}

/// Returns polynomials of these words.
pub(crate) fn long_polynomials(x: &[i32]) -> Vec<LongPolynomial> {
    let polynomials = x.as_chunks().0.iter().map(|x| LongPolynomial(*x));
    let polynomials: Vec<LongPolynomial> = polynomials.collect();
    register(&polynomials);
    polynomials
}

/// [`long_polynomials`], with space behind each polynomial.
pub(crate) fn long_sampled(x: &[i32]) -> Vec<LongSampled> {
    let mut all = vec![LongSampled::ZERO; x.len() / COEFFICIENTS];
    register(&all);
    for (polynomial, x) in all.iter_mut().zip(x.chunks(COEFFICIENTS)) {
        polynomial.0[..COEFFICIENTS].copy_from_slice(x);
    }
    all
}

/// Returns the words of polynomials.
pub(crate) fn long_words(polynomials: &[LongPolynomial]) -> Vec<i32> {
    polynomials.iter().flat_map(|a| a.0).collect()
}
