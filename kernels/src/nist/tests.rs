//! Limbs: every backend against the portable one bit for bit, the portable one against a bigint
//! library.

use lockstep_testkit::Random;
use num_bigint::BigUint;

use super::DecompressJob;
use super::compressed::decompress;
use super::curve::{Curve, P256, P256Field, P256Order, P384, P384Field, P384Order};
use super::inverse::invert_all;
use crate::backend::{Backend, Kind};
use crate::modular::{Factor, Field, Loose, Modulus, S_MASK, Tight};
use crate::simd::portable::Portable;
use crate::simd::{Simd, enter, words, words_mut};

/// Returns a limb: random, empty, full, or next to empty or full.
fn limb(random: &mut Random) -> u64 {
    match random.word() % 8 {
        0 => 0,
        1 => S_MASK,
        2 => 1,
        3 => S_MASK - 1,
        4 => 1 << (random.word() % 52),
        _ => random.word() & S_MASK,
    }
}

fn big(limbs: &[u64]) -> BigUint {
    limbs
        .iter()
        .rev()
        .fold(BigUint::ZERO, |sum, &limb| (sum << 52_u32) + limb)
}

/// Returns numbers below 2^52·N and below `bound`·n, edge limbs included.
fn numbers<M: Modulus<N>, const N: usize>(bound: u64, count: usize) -> Vec<[u64; N]> {
    let mut random = Random(bound);
    let limit = big(&M::VALUE) * bound;
    let mut all: Vec<[u64; N]> = Vec::new();
    for multiple in 0..bound.min(16) {
        let product = big(&M::VALUE) * multiple;
        let near = [
            product.clone() + 1_u8,
            product.clone(),
            product + big(&M::VALUE) - 1_u8,
        ];
        for number in near {
            let digits: Vec<u64> = (0..N)
                .map(|i| (&number >> (52 * i)).iter_u64_digits().next().unwrap_or(0) & S_MASK)
                .collect();
            all.push(digits.try_into().unwrap());
        }
    }
    while all.len() < count {
        let number: [u64; N] = core::array::from_fn(|_| limb(&mut random));
        if big(&number) < limit {
            all.push(number);
        }
    }
    all
}

/// Computes products, squares and differences of a and b on a backend, in loose or tight columns.
fn compute<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    pairs: &[([u64; N], [u64; N])],
) -> Vec<Vec<u64>> {
    let mut out = Vec::new();
    for chunk in pairs.chunks(S::LANES) {
        let mut operands = [[s.zero(); N]; 2];
        for (lane, (a, b)) in chunk.iter().enumerate() {
            for i in 0..N {
                words_mut(&mut operands[0])[S::LANES * i + lane] = a[i];
                words_mut(&mut operands[1])[S::LANES * i + lane] = b[i];
            }
        }
        let [a, b] = operands.map(Tight);
        let results = enter!(s, {
            let f = Field::<S, M, N>::new(s);
            let hot = Field::<S, M, N, true>::new(s);
            let product = f.mul(&a, &b);
            let square = hot.sqr(&a);
            let difference = f.sub(4, &product, &square);
            [
                product.0,
                square.0,
                hot.mul(&a, &b).0,
                f.tight(product).0,
                f.factor(square).0,
                f.weak(difference).0,
                f.reduced(f.tight(product)).0,
                f.decode(&a).0,
                [f.is_not_below(&a.0); N],
            ]
        });
        for lane in 0..chunk.len() {
            out.push(
                results
                    .iter()
                    .flat_map(|number| {
                        words(number)
                            .iter()
                            .skip(lane)
                            .step_by(S::LANES)
                            .copied()
                            .collect::<Vec<_>>()
                    })
                    .collect(),
            );
        }
    }
    out
}

/// The number of portable lanes, which represent those of AVX-512. Eight take the compiler half a
/// minute more than four.
const LANES: usize = if cfg!(avx512) { 8 } else { 4 };

fn backends_agree<M: Modulus<N>, const N: usize>(bound: u64) {
    let numbers = numbers::<M, N>(bound, 400);
    let pairs: Vec<_> = numbers
        .iter()
        .copied()
        .zip(numbers.iter().rev().copied())
        .collect();
    let expected = compute::<_, M, N>(Portable::<1>, &pairs);
    for backend in Backend::available() {
        let computed = match backend.kind(8) {
            #[cfg(vectors)]
            Kind::Avx512Ifma { wide, .. } => compute::<_, M, N>(wide, &pairs),
            #[cfg(vectors)]
            Kind::Avx512Ifma256 { narrow, .. } => compute::<_, M, N>(narrow, &pairs),
            #[cfg(vectors)]
            Kind::Avx2(_) | Kind::Avx512Ifma512 { .. } => continue,
            Kind::Portable(_) => compute::<_, M, N>(Portable::<LANES>, &pairs),
        };
        assert!(computed == expected, "{}", backend.name());
    }

    let n = big(&M::VALUE);
    let r = BigUint::from(1_u8) << (52 * N);
    for ((a, b), result) in pairs.iter().zip(&expected) {
        let result: Vec<BigUint> = result.chunks(N).map(big).collect();
        let (a, b) = (big(a), big(b));
        let lifted = &n * (M::PAD + 1);
        for (value, expected) in [
            (&result[0], &a * &b),
            (&result[1], &a * &a),
            (&result[2], &a * &b),
        ] {
            assert_eq!(value * &r % &n, &expected % &n);
            assert!(*value <= &expected / &r + &lifted);
        }
        assert_eq!(result[3], result[0]);
        assert_eq!(&result[5] * &r % &n, (&a * &b + &n - &a * &a % &n) % &n);
        assert!(result[5] < &n * 20_u8);
        assert_eq!(&result[6] * &r % &n, &a * &b % &n);
        assert!(result[6] < n && result[7] < n);
        assert_eq!(&result[7] * &r % &n, &a % &n);
    }
}

#[test]
fn p256_field() {
    backends_agree::<P256Field, 5>(6);
    assert!(numbers::<P256Field, 5>(6, 100).len() >= 100);
}

#[test]
fn p256_order() {
    backends_agree::<P256Order, 5>(6);
}

#[test]
fn p384_field() {
    backends_agree::<P384Field, 8>(6);
}

#[test]
fn p384_order() {
    backends_agree::<P384Order, 8>(6);
}

/// A difference just below 16·p, with the largest padding, is reduced to below 1.01·p.
#[test]
fn weak_reduction() {
    let p = big(&P256Field::VALUE);
    for a in numbers::<P256Field, 5>(15, 2000) {
        let s = Portable::<1>;
        let f = Field::<_, P256Field, 5>::new(s);
        let a = f.constant(&a);
        let zero = Tight([s.zero(); 5]);
        let weak = f.weak(f.sub(1, &a, &zero));
        let weak = words(&weak.0);
        assert!(weak.iter().all(|&limb| limb <= S_MASK));
        assert_eq!(big(weak) % &p, big(words(&a.0)) % &p);
        assert!(big(weak) * 100_u8 < &p * 101_u8);
    }
}

#[test]
fn constants() {
    fn check<C: Curve<N>, const N: usize>() {
        let p = big(&<C::Field as Modulus<N>>::VALUE);
        let n = big(&<C::Order as Modulus<N>>::VALUE);
        assert_eq!((p.bits(), n.bits()), (C::BITS as u64, C::BITS as u64));
        // Modulo both, the exponents n − 1 and p − 1 give 1, since the numbers are prime.
        for m in [&p, &n] {
            assert_eq!(
                BigUint::from(2_u8).modpow(&(m - 1_u8), m),
                BigUint::from(1_u8)
            );
        }
        let (x, y) = (big(&C::G.0), big(&C::G.1));
        assert_eq!(
            &y * &y % &p,
            (&x * &x * &x + &p * 3_u8 - &x * 3_u8 + big(&C::B)) % &p
        );
        let r = BigUint::from(1_u8) << (52 * N);
        assert!(r >= &p * <C::Field as Modulus<N>>::LIMIT);
        assert!(r >= &n * <C::Order as Modulus<N>>::LIMIT);
        // Signing reduces x modulo n by one subtraction; checking tries r and r + n.
        assert!(n < p && p < n * 2_u8);
        // A padded multiple equals the multiple.
        for (k, pad) in <C::Field as Modulus<N>>::PADS.iter().enumerate().skip(1) {
            assert_eq!(big(pad), &p * k);
        }
    }
    check::<P256, 5>();
    check::<P384, 8>();
    let r = BigUint::from(1_u8) << 416_u32;
    let start = <P384Field as Modulus<8>>::START;
    let columns: Vec<u64> = start.0.iter().map(|c| c - S_MASK).chain(start.1).collect();
    assert_eq!(big(&columns), big(&<P384Field as Modulus<8>>::VALUE) * r);
}

#[test]
fn inverses() {
    fn check<M: Modulus<N>, const N: usize>() {
        let s = Portable::<LANES>;
        let f = Field::<_, M, N>::new(s);
        let n = big(&M::VALUE);
        let r = BigUint::from(1_u8) << (52 * N);
        let numbers: Vec<_> = numbers::<M, N>(2, 60)
            .into_iter()
            .filter(|number| big(number) % &n != BigUint::ZERO)
            .collect();
        for chunk in numbers.chunks(5) {
            let mut inverses: Vec<_> = chunk.iter().map(|a| f.constant(a).0).collect();
            let mut prefixes = inverses.clone();
            invert_all::<_, M, N>(s, &mut inverses, &mut prefixes);
            for (a, inverse) in chunk.iter().zip(&inverses) {
                let inverse = f.tight(Loose(f.mul(&Factor(*inverse), &f.one()).0));
                for lane in 0..LANES {
                    let words: Vec<u64> = words(&inverse.0)
                        .iter()
                        .skip(lane)
                        .step_by(LANES)
                        .copied()
                        .collect();
                    assert_eq!(big(&words) * big(a) % &n, &r * &r % &n);
                }
            }
        }
    }
    check::<P256Field, 5>();
    check::<P256Order, 5>();
    check::<P384Field, 8>();
    check::<P384Order, 8>();
}

/// Textbook arithmetic on affine points; `None` is infinity.
mod textbook {
    use super::*;

    pub(super) type Affine = Option<(BigUint, BigUint)>;

    pub(super) fn add(a: &Affine, b: &Affine, p: &BigUint) -> Affine {
        let (Some((x1, y1)), Some((x2, y2))) = (a, b) else {
            return a.clone().or_else(|| b.clone());
        };
        let inverse = |v: BigUint| v.modpow(&(p - 2_u8), p);
        let slope = if x1 != x2 {
            (y2 + p - y1) * inverse((x2 + p - x1) % p) % p
        } else if y1 == y2 {
            (x1 * x1 * 3_u8 + p - 3_u8) * inverse(y1 * 2_u8 % p) % p
        } else {
            return None;
        };
        let x3 = (&slope * &slope + p + p - x1 - x2) % p;
        let y3 = (slope * (x1 + p - &x3) + p - y1) % p;
        Some((x3, y3))
    }

    pub(super) fn times_power_of_two(e: usize, g: &Affine, p: &BigUint) -> Affine {
        (0..e).fold(g.clone(), |sum, _| add(&sum, &sum, p))
    }

    pub(super) fn large_multiple(k: &BigUint, g: &Affine, p: &BigUint) -> Affine {
        (0..k.bits()).rev().fold(None, |sum, bit| {
            let doubled = add(&sum, &sum, p);
            match k.bit(bit) {
                true => add(&doubled, g, p),
                false => doubled,
            }
        })
    }

    pub(super) fn multiple(k: u64, g: &Affine, p: &BigUint) -> Affine {
        (0..k).fold(None, |sum, _| add(&sum, g, p))
    }
}

#[test]
fn points() {
    use super::point::{Affine, Denominator, Point, double_times, odd_multiples};
    use super::scalar_mul::{ENTRIES, mul_base, mul_point};

    fn check<C: Curve<N>, const N: usize>() {
        let s = Portable::<1>;
        let f = Field::<_, C::Field, N>::new(s);
        let p = big(&<C::Field as Modulus<N>>::VALUE);
        let g = Some((big(&C::G.0), big(&C::G.1)));
        let decode = |x: &[_; N], y: &[_; N], z: &[_; N]| {
            let [x, y, z] = [x, y, z].map(|c| big(words(&f.decode(&Factor(*c)).0)));
            (z != BigUint::ZERO).then(|| {
                let inverse = z.modpow(&(&p - 2_u8), &p);
                let square = &inverse * &inverse % &p;
                (x * &square % &p, y * square * inverse % &p)
            })
        };
        let base = Affine {
            x: f.encode(&f.constant(&C::G.0)),
            y: f.encode(&f.constant(&C::G.1)),
        };
        let mut point = Point {
            x: base.x,
            y: base.y,
            z: Factor(f.one().0),
        };
        double_times::<_, C, N>(s, &mut point, 1);
        assert_eq!(
            decode(&point.x.0, &point.y.0, &point.z.0),
            textbook::multiple(2, &g, &p)
        );
        double_times::<_, C, N>(s, &mut point, 3);
        assert_eq!(
            decode(&point.x.0, &point.y.0, &point.z.0),
            textbook::multiple(16, &g, &p)
        );

        for (negative, expected) in [(0, 17), (1, 16)] {
            let mask = s.any_bit(s.splat(negative), s.splat(1));
            super::point::add_assign_mixed::<_, C, N>(s, &mut point, &base, mask);
            let expected = textbook::multiple(expected, &g, &p);
            assert_eq!(decode(&point.x.0, &point.y.0, &point.z.0), expected);
        }

        let mut table = [base; ENTRIES];
        // Multiples of G, and of a point that has a denominator already.
        for doublings in [0, 3] {
            let mut of = Point {
                x: base.x,
                y: base.y,
                z: Factor(f.one().0),
            };
            double_times::<_, C, N>(s, &mut of, doublings);
            let expected = textbook::times_power_of_two(doublings, &g, &p);
            let denominator: Denominator<_, N> =
                odd_multiples::<_, C, N>(s, &mut table, &mut [of.z; ENTRIES], &of);
            for (j, entry) in table.iter().enumerate() {
                assert_eq!(
                    decode(&entry.x.0, &entry.y.0, &denominator.z.0),
                    textbook::multiple(2 * j as u64 + 1, &expected, &p),
                    "{j}"
                );
            }
        }
        let words_of_table = super::base_table::base_table::<_, C, N>(s);
        for (i, window) in words_of_table.chunks_exact(2 * N * 64).enumerate() {
            let base = textbook::times_power_of_two(7 * i, &g, &p);
            for j in [0, 1, 2, 15, 16, 31, 63] {
                let limbs: Vec<u64> = (0..2 * N).map(|limb| window[64 * limb + j]).collect();
                let r_inverse = (BigUint::from(1_u8) << (52 * N)).modpow(&(&p - 2_u8), &p);
                let number = |limbs: &[u64]| big(limbs) * &r_inverse % &p;
                let entry = Some((number(&limbs[..N]), number(&limbs[N..])));
                assert_eq!(
                    entry,
                    textbook::multiple(2 * j as u64 + 1, &base, &p),
                    "{i} {j}"
                );
            }
        }
        for k in [1, 0].into_iter().chain(2..40) {
            let mut scalar = [0; N];
            scalar[0] = k;
            let scalar = f.constant(&scalar).0;
            let expected = textbook::multiple(k, &g, &p);
            let point = mul_base::<_, C, N>(s, &scalar, 1);
            assert_eq!(decode(&point.x.0, &point.y.0, &point.z.0), expected, "{k}");
            if k > 0 {
                let point = mul_point::<_, C, N>(s, &mut table, &scalar, &base, 1);
                assert_eq!(decode(&point.x.0, &point.y.0, &point.z.0), expected, "{k}");
            }
        }
    }
    check::<P256, 5>();
    check::<P384, 8>();
}

/// Few requests in many lanes. In a batch of several vectors this happens only in the last vector.
#[test]
fn multiples_in_parts() {
    use super::point::Affine;
    use super::scalar_mul::{ENTRIES, mul_base, mul_point};

    fn check<C: Curve<N>, const N: usize>() {
        let s = Portable::<LANES>;
        let f = Field::<_, C::Field, N>::new(s);
        let p = big(&<C::Field as Modulus<N>>::VALUE);
        let n = big(&<C::Order as Modulus<N>>::VALUE);
        let g = Some((big(&C::G.0), big(&C::G.1)));
        let base = Affine {
            x: f.encode(&f.constant(&C::G.0)),
            y: f.encode(&f.constant(&C::G.1)),
        };
        // Small k, and n - k, whose digits are full. Also k = 2D - n for an odd multiple D of the
        // power between the halves, for which the last addition adds D to D.
        let mut small: Vec<BigUint> = (1..16_u8).map(BigUint::from).collect();
        let windows = C::BITS.div_ceil(7);
        let halves = [2, 4, 8].map(|parts| windows.div_ceil(parts) * 7 * parts / 2);
        for lowest in halves.into_iter().chain([C::BITS / 2]) {
            let odd = (&n >> lowest) | BigUint::from(1_u8);
            let doubled = [&odd + 2_u8, odd.clone(), odd - 2_u8].map(|odd| odd << (lowest + 1));
            small.extend(
                doubled
                    .into_iter()
                    .filter(|doubled| (&n..&(&n * 2_u8)).contains(&doubled))
                    .map(|doubled| doubled - &n),
            );
        }
        assert!(small.len() > 15 + halves.len());
        let cases: Vec<_> = small
            .into_iter()
            .flat_map(|k| {
                let point = textbook::large_multiple(&k, &g, &p);
                let negative = point.clone().map(|(x, y)| (x, &p - y));
                [(&n - &k, negative), (k, point)]
            })
            .collect();
        for count in 1..=LANES {
            for cases in cases.chunks_exact(count) {
                let mut k = [s.zero(); N];
                for (lane, (scalar, _)) in cases.iter().enumerate() {
                    for limb in 0..N {
                        let digits = (scalar >> (52 * limb)).iter_u64_digits().next();
                        words_mut(&mut k)[LANES * limb + lane] = digits.unwrap_or(0) & S_MASK;
                    }
                }
                let mut table = [base; ENTRIES];
                for point in [
                    mul_point::<_, C, N>(s, &mut table, &k, &base, count),
                    mul_base::<_, C, N>(s, &k, count),
                ] {
                    for (lane, (scalar, expected)) in cases.iter().enumerate() {
                        let [x, y, z] = [&point.x.0, &point.y.0, &point.z.0].map(|c| {
                            let number = f.decode(&Factor(*c)).0;
                            let limbs: Vec<_> =
                                words(&number).iter().skip(lane).step_by(LANES).collect();
                            big(&limbs.into_iter().copied().collect::<Vec<_>>())
                        });
                        let inverse = z.modpow(&(&p - 2_u8), &p);
                        let square = &inverse * &inverse % &p;
                        let affine = (x * &square % &p, y * square * inverse % &p);
                        assert_eq!(Some(affine), *expected, "{scalar} in {lane} of {count}");
                    }
                }
            }
        }
    }
    check::<P256, 5>();
    check::<P384, 8>();
}

/// Lanes compute points as one lane does, beside numbers that are the x of none.
fn points_in_lanes<C: Curve<N>, const N: usize, const BYTES: usize>() {
    let mut random = Random(9);
    let numbers: Vec<[u8; BYTES]> = (0..21).map(|_| random.bytes()).collect();
    let jobs = || {
        let numbers = numbers.iter().enumerate();
        let jobs = numbers.map(|(i, x)| DecompressJob::new(x, i % 3 == 0));
        jobs.collect::<Vec<_>>()
    };
    let (mut single, mut lanes) = (jobs(), jobs());
    decompress::<_, C, N, BYTES>(Portable::<1>, &mut single);
    decompress::<_, C, N, BYTES>(Portable::<8>, &mut lanes);
    let points = single.iter().filter(|job| job.result.unwrap().is_ok());
    assert!((5..16).contains(&points.count()));
    for (single, lanes) in single.iter().zip(&lanes) {
        assert_eq!(single.result, lanes.result);
        if let Some(Ok(point)) = single.result {
            assert_eq!(point.y[BYTES - 1] % 2 == 1, single.is_odd);
        }
    }
}

#[test]
fn compressed_points_in_lanes() {
    points_in_lanes::<P256, 5, 32>();
    points_in_lanes::<P384, 8, 48>();
}
