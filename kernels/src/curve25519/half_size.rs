//! Scalars of half the size for the equation of a signature, in variable time: k is public.
//!
//! The equation S·B − k·A = R holds if and only if u·(S·B − k·A − R) is the neutral element, for an
//! odd u that L does not divide: the group of all points has 8·L elements, L is prime, so
//! multiplication by u is one-to-one. B has the order L, and the order of every A divides 8·L. So
//! with v ≡ u·k modulo 8·L the equation is
//!
//! (u·S mod L)·B = v·A + u·R.
//!
//! This keeps the verdict on keys and first halves with a part of small order: modulo L instead of
//! 8·L, v·A would be another point for such a key, and an even u would accept a difference of order
//! 2.
//!
//! The pairs (v, u) with v ≡ u·k modulo 8·L are a lattice, with the basis (8·L, 0), (k, 1). Its
//! determinant is 8·L, so it has pairs of about 2^127.5, which Euclid's algorithm finds (Gauß and
//! Lagrange; T. Pornin, "Optimized Lattice Basis Reduction In Dimension 2, and Fast Schnorr and
//! EdDSA Signature Verification", IACR ePrint 2020/454). Two rows of a basis do not both have an
//! even u.
//!
//! As D. Lehmer did, many steps run on approximations of the numbers, here 53 bits in `f64`, which
//! each CPU divides in vectors. The steps give a matrix of integers, by which the numbers are then
//! multiplied exactly. So v and u are always combinations of the basis: a bad step makes them
//! longer, but not wrong. The multiplication is exact only if the CPU rounds to the nearest number,
//! as it does in every program that does not change this mode. Every k has a pair with an odd u:
//! (k, 1).

use super::convert::{Limbs, lane, load_limbs};
use super::field::LIMBS;
use super::scalar::Order;
use crate::modular::Modulus;
use crate::simd::{Simd, enter};

/// Number of scalars that are reduced together.
const COLUMNS: usize = 8;
/// One number for each of these scalars.
type Columns = [f64; COLUMNS];

/// Number of bits of a limb.
const BITS: u32 = 26;
const RADIX: f64 = (1_u64 << BITS) as f64;
/// Number of limbs of v, which is below 2^256.
const V: usize = 2 * LIMBS;
/// Number of limbs of u, which is below 2^154.
const U: usize = 6;
/// A row of a basis: the limbs of v, then those of u. They are integers from −2^26 to 2^26.
type Row = [Columns; V + U];

/// Bound of the sum of the absolute values in a row of a matrix. With it, a product of the matrix
/// and limbs is below 2^53, and exact. An approximation's error grows by at most this factor.
const MOST: f64 = RADIX;
/// Number of steps between two updates of the long numbers. A step makes them 2.5 bits shorter.
const STEPS: usize = 11;
/// Maximum number of updates, after which the numbers are used as they are. Six are enough for
/// almost every k.
const UPDATES: usize = 8;

/// Adding 1.5·2^52 rounds a number to a multiple of 1, and adding 1.5·2^78 to a multiple of 2^26.
const TO_INTEGER: f64 = 1.5 * (1_u64 << 52) as f64;
const TO_RADIX: f64 = TO_INTEGER * RADIX;

/// v and u of each lane: limbs of 52 bits, modulo 2^260. u is odd and positive, v ≡ u·k modulo 8·L.
pub(super) type Halves<S> = [Limbs<S>; 2];

/// Approximations of two rows, and the matrix by which the exact rows must be multiplied.
struct Steps {
    v: [Columns; 2],
    u: [Columns; 2],
    matrix: [[Columns; 2]; 2],
}

/// Computes the halves of the first `count` lanes of `k`, numbers below L, into `halves`; those of
/// the other lanes are 0 and 1.
pub(super) fn reduce<S: Simd>(s: S, k: &[Limbs<S>], count: usize, halves: &mut [Halves<S>]) {
    let mut all = [[[0; LIMBS]; 2]; COLUMNS];
    let mut done = 0;
    for (v, halves) in halves.iter_mut().enumerate().take(k.len()) {
        let first = v * S::LANES;
        if first == done {
            let scalar = |l: usize| match done + l < count {
                true => lane::<S, LIMBS>(&k[(done + l) / S::LANES], (done + l) % S::LANES),
                false => [0; LIMBS],
            };
            all = reduce_columns(s, &core::array::from_fn(scalar));
            done += COLUMNS;
        }
        let of = |part: usize| load_limbs(s, |l| all[first % COLUMNS + l][part]);
        *halves = [of(0), of(1)];
    }
}

/// Returns v and u of each scalar.
#[inline(never)]
fn reduce_columns<S: Simd>(s: S, k: &[[u64; LIMBS]; COLUMNS]) -> [[[u64; LIMBS]; 2]; COLUMNS] {
    let mut rows = [[[0.0; COLUMNS]; V + U]; 2];
    let [modulus, scalar] = &mut rows;
    for i in 0..V {
        let half = |limb: u64| (limb >> (BITS * (i as u32 % 2)) & ((1 << BITS) - 1)) as f64;
        modulus[i] = [8.0 * half(Order::VALUE[i / 2]); COLUMNS];
        scalar[i] = core::array::from_fn(|l| half(k[l][i / 2]));
    }
    scalar[V] = [1.0; COLUMNS];
    normalise(s, &mut rows);
    for _ in 0..UPDATES {
        let mut steps = Steps::new(&rows);
        if (0..COLUMNS).all(|l| !steps.is_long(l)) {
            break;
        }
        steps.euclid_vartime(s);
        multiply(s, &mut rows, &steps.matrix);
    }
    let mut last = Steps::new(&rows);
    for l in 0..COLUMNS {
        last.choose_vartime(l, rows.each_ref().map(|row| row[V][l]));
    }
    multiply(s, &mut rows, &last.matrix);
    let sign = approximate(&rows[0][V..]);
    core::array::from_fn(|l| {
        let sign = if sign[l] < 0.0 { -1 } else { 1 };
        [&rows[0][..V], &rows[0][V..]].map(|limbs| whole(limbs, l, sign))
    })
}

/// Carries, so that limbs of at most 2^29 become limbs of a [`Row`].
fn normalise<S: Simd>(s: S, rows: &mut [Row; 2]) {
    let [one, zero] = [[1.0; COLUMNS], [0.0; COLUMNS]];
    multiply(s, rows, &[[one, zero], [zero, one]]);
}

/// Multiplies the rows by the matrix.
#[inline(never)]
fn multiply<S: Simd>(s: S, rows: &mut [Row; 2], matrix: &[[Columns; 2]; 2]) {
    enter!(s, [rows], {
        let mut carry = [[0.0; COLUMNS]; 2];
        let [first, second] = rows;
        for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
            if i == V {
                debug_assert!(carry == [[0.0; COLUMNS]; 2]);
            }
            for l in 0..COLUMNS {
                let (a, b) = (first[l], second[l]);
                let mut row = [0.0; 2];
                for (j, limb) in row.iter_mut().enumerate() {
                    let sum = matrix[j][0][l] * a + matrix[j][1][l] * b + carry[j][l];
                    let high = (sum + TO_RADIX) - TO_RADIX;
                    *limb = sum - high;
                    carry[j][l] = high * (1.0 / RADIX);
                }
                [first[l], second[l]] = row;
            }
        }
        debug_assert!(carry == [[0.0; COLUMNS]; 2]);
    });
}

impl Steps {
    fn new(rows: &[Row; 2]) -> Self {
        let [one, zero] = [[1.0; COLUMNS], [0.0; COLUMNS]];
        Self {
            v: rows.each_ref().map(|row| approximate(&row[..V])),
            u: rows.each_ref().map(|row| approximate(&row[V..])),
            matrix: [[one, zero], [zero, one]],
        }
    }

    /// Returns whether v is still longer than u in the second row of a column.
    fn is_long(&self, l: usize) -> bool {
        self.v[1][l].abs() > self.u[1][l].abs()
    }

    /// Runs Euclid's algorithm, with the nearest quotient, while the second row is too long and the
    /// matrix is small. A column that has come to its end stays as it is.
    #[inline(never)]
    fn euclid_vartime<S: Simd>(&mut self, s: S) {
        enter!(s, [], {
            let this = self;
            for _ in 0..STEPS {
                for l in 0..COLUMNS {
                    let ([v0, v1], [u0, u1]) = (&mut this.v, &mut this.u);
                    let [[m00, m01], [m10, m11]] = &mut this.matrix;
                    // A quotient of 2^51 and more, which is not rounded, makes the matrix too
                    // large; so does a division by zero.
                    let q = (v0[l] / v1[l] + TO_INTEGER) - TO_INTEGER;
                    let [m20, m21] = [m00[l] - q * m10[l], m01[l] - q * m11[l]];
                    let is_small = m20.abs() + m21.abs() <= MOST;
                    let goes_on = is_small & (v1[l].abs() > u1[l].abs());
                    let pairs = [(v0, v1), (u0, u1), (m00, m10), (m01, m11)];
                    for (before, last) in pairs {
                        let next = before[l] - q * last[l];
                        before[l] = if goes_on { last[l] } else { before[l] };
                        last[l] = if goes_on { next } else { last[l] };
                    }
                }
            }
        });
    }

    /// Sets the first row of the matrix so that it gives a short pair with an odd u.
    ///
    /// If u is odd in both rows, the pair is the shorter row. Otherwise it is the row with the odd
    /// u plus the multiple of the other row that makes this sum shortest.
    #[inline(never)]
    fn choose_vartime(&mut self, l: usize, lowest: [f64; 2]) {
        let [v, u] = [self.v, self.u].map(|rows| rows.map(|row| row[l]));
        let length = |row: usize| v[row].abs().max(u[row].abs());
        let is_even = lowest.map(|limb| integer(limb) & 1 == 0);
        let odd = match is_even {
            [true, _] => 1,
            [_, true] => 0,
            _ => usize::from(length(1) < length(0)),
        };
        let mut times = 0.0;
        if is_even[1 - odd] {
            let [a, b] = [odd, 1 - odd];
            let nearest = (v[a] * v[b] + u[a] * u[b]) / (v[b] * v[b] + u[b] * u[b]);
            // NaN is not below the bound.
            if nearest.abs() < MOST / 2.0 {
                times = -((nearest + TO_INTEGER) - TO_INTEGER);
            }
        }
        self.matrix[0][odd][l] = 1.0;
        self.matrix[0][1 - odd][l] = times;
    }
}

/// Returns approximations of numbers, with the sign of the highest limb that is not zero.
fn approximate(limbs: &[Columns]) -> Columns {
    let mut numbers = [0.0; COLUMNS];
    for limb in limbs.iter().rev() {
        for (number, limb) in numbers.iter_mut().zip(limb) {
            *number = *number * RADIX + limb;
        }
    }
    numbers
}

/// Returns `x`, an integer below 2^51 in absolute value, as an `i64`.
#[inline(always)]
fn integer(x: f64) -> i64 {
    (x + TO_INTEGER)
        .to_bits()
        .wrapping_sub(TO_INTEGER.to_bits()) as i64
}

/// Returns the number of column `l`, times `sign`, in limbs of 52 bits, modulo 2^260.
fn whole(limbs: &[Columns], l: usize, sign: i64) -> [u64; LIMBS] {
    let limb = |i: usize| limbs.get(i).map_or(0, |limb| sign * integer(limb[l]));
    let mut carry = 0;
    core::array::from_fn(|i| {
        let sum = limb(2 * i) + (limb(2 * i + 1) << BITS) + carry;
        carry = sum >> (2 * BITS);
        sum as u64 & ((1 << (2 * BITS)) - 1)
    })
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;

    use super::*;
    use crate::curve25519::convert::load;
    use crate::simd::portable::Portable;

    fn number(limbs: &[u64; LIMBS]) -> BigInt {
        let limbs = limbs.iter().rev();
        limbs.fold(BigInt::ZERO, |sum, limb| (sum << 52) + *limb)
    }

    /// Returns v and u of each scalar.
    fn halves<S: Simd>(s: S, scalars: &[BigInt]) -> Vec<[BigInt; 2]> {
        let words = |scalar: &BigInt| -> [u64; 4] {
            let mut digits = scalar.iter_u64_digits();
            core::array::from_fn(|_| digits.next().unwrap_or(0))
        };
        let scalar = |i: usize| scalars.get(i).map_or([1; 4], words);
        let vectors = scalars.len().div_ceil(S::LANES);
        let k: Vec<_> = (0..vectors)
            .map(|v| load(s, |l| scalar(v * S::LANES + l)))
            .collect();
        let mut halves = vec![[[s.zero(); LIMBS]; 2]; vectors];
        reduce(s, &k, scalars.len(), &mut halves);
        let of = |i: usize| {
            halves[i / S::LANES].map(|half| number(&lane::<S, LIMBS>(&half, i % S::LANES)))
        };
        let unused: Vec<_> = (scalars.len()..vectors * S::LANES).map(of).collect();
        assert!(
            unused
                .iter()
                .all(|[v, u]| *v == BigInt::ZERO && *u == 1.into())
        );
        let signed = |[v, u]: [BigInt; 2]| match v.bit(259) {
            true => [v - (BigInt::from(1) << 260), u],
            false => [v, u],
        };
        (0..scalars.len()).map(of).map(signed).collect()
    }

    fn assert_right(scalars: &[BigInt]) {
        let modulus = number(&Order::VALUE) * 8;
        let both = [
            halves(Portable::<4>, scalars),
            halves(Portable::<1>, scalars),
        ];
        assert_eq!(both[0], both[1]);
        for (k, [v, u]) in scalars.iter().zip(&both[0]) {
            assert!(
                u.bit(0) && *u > BigInt::ZERO && u.bits() < 252,
                "{k:x}: {u:x}"
            );
            assert_eq!((u * k - v) % &modulus, BigInt::ZERO, "{k:x}: {v:x} {u:x}");
        }
    }

    fn power(n: u32) -> BigInt {
        BigInt::from(1) << n
    }

    /// Returns numbers below L.
    fn random_numbers(count: usize) -> Vec<BigInt> {
        let mut random = lockstep_testkit::Random(1);
        let word = |sum: BigInt, word: u64| (sum << 64) + word;
        let mut number = || (0..5).map(|_| random.word()).fold(BigInt::ZERO, word);
        let order = self::number(&Order::VALUE);
        (0..count).map(|_| number() % &order).collect()
    }

    #[test]
    fn random_scalars_have_halves_of_half_the_size() {
        let scalars = random_numbers(20_000);
        assert_right(&scalars);
        let mut long = 0;
        for [v, u] in halves(Portable::<4>, &scalars) {
            let bits = v.bits().max(u.bits());
            assert!(bits <= 136, "{bits} bits");
            long += usize::from(bits > 130);
        }
        assert!(long < 300, "{long}");
    }

    /// Numbers with large quotients, with which few steps are possible, or none.
    #[test]
    fn every_scalar_has_halves() {
        let order = number(&Order::VALUE);
        let mut scalars: Vec<BigInt> = (0..40).map(BigInt::from).collect();
        scalars.extend((1..40).map(|i| &order - i));
        for n in 0..253 {
            scalars.extend([power(n), power(n) - 1, power(n) + 1]);
            scalars.extend([1, 3, 7, 8].map(|times| ((&order * times) >> n) / 8));
        }
        // Near fractions of 8·L: the first quotients are small, and the next one is large.
        for below in 2..60 {
            for above in 1..below / 8 {
                scalars.push(&order * 8 * above / below);
                scalars.push(&order * 8 * above / below + 1);
                scalars.push(&order * 8 * above / below + power(90));
            }
        }
        scalars.retain(|k| *k >= BigInt::ZERO && *k < order);
        assert!(scalars.len() > 1000);
        assert_right(&scalars);
    }
}
