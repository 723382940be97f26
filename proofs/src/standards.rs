//! Functions of words as FIPS 203 and FIPS 204 define them, in short.

use lockstep_kernels::proved::words::Function;

use crate::words::{Cut, Expected, Form, Modulus, Range, Statement};

/// A number modulo q, for q and the number that a function is for.
type Stated = fn(&[i64], i64) -> i64;

const SMALL: Modulus = Modulus { bits: 16, q: 3329 };
const LARGE: Modulus = Modulus {
    bits: 32,
    q: 8_380_417,
};

/// ML-DSA's γ₁ and β, by K (FIPS 204, section 4).
fn gamma_1(k: i64) -> i64 {
    1 << if k == 4 { 17 } else { 19 }
}

fn beta(k: i64) -> i64 {
    [78, 196, 120][k as usize / 2 - 2]
}

fn gamma_2(k: i64) -> i64 {
    (LARGE.q - 1) / if k == 4 { 88 } else { 32 }
}

/// Algorithm 36 of FIPS 204.
fn decompose(a: i64, k: i64) -> [i64; 2] {
    let (a, double) = (a.rem_euclid(LARGE.q), 2 * gamma_2(k));
    // In −γ₂ + 1..=γ₂.
    let low = (a + gamma_2(k) - 1) % double - gamma_2(k) + 1;
    match a - low == LARGE.q - 1 {
        true => [0, low - 1],
        false => [(a - low) / double, low],
    }
}

/// −1 if it is true, else 0.
fn sign(is_true: bool) -> i64 {
    -i64::from(is_true)
}

/// The statement about a function.
pub fn statement(function: &Function) -> Statement {
    let (algorithm, name) = function.name.split_once("::").expect("an algorithm");
    let name = name.split(',').next().expect("a name");
    let (name, of) = name.split_once(' ').unwrap_or((name, "0"));
    let of: usize = of.parse().expect("a number");
    // ML-KEM has a transform for all even coefficients, and one for all odd ones.
    let (modulus, zeta, step) = match algorithm {
        "mlkem" => (SMALL, 17, 2),
        _ => (LARGE, 1753, 1),
    };
    let Modulus { bits, q } = modulus;
    let r_inverse = modulus.power(1 << bits, q - 2);
    let root = |i: usize, times: usize| {
        let exponent = 2 * usize::from((i as u8).reverse_bits() >> (step - 1)) + 1;
        modulus.power(zeta, (exponent * times % (512 / step)) as i64)
    };

    let most = |most: i64| [-most, most];
    let all = |range: Range| vec![range; function.inputs];
    let blocks = |blocks: &[(usize, Range)]| -> Vec<Range> {
        let blocks = blocks.iter();
        blocks
            .flat_map(|&(n, range)| vec![range; 256 * n])
            .collect()
    };
    let forms = |range: Range, form: &dyn Fn(usize) -> Form| -> Vec<Expected> {
        let form = |i| Expected::Form(modulus.form(form(i)), range);
        // Two polynomials of a multiplier, or two rows.
        let count = match (algorithm, name) {
            (_, "multiplier") | ("mldsa", "product" | "long_product") => 512,
            _ => 256,
        };
        (0..count).map(form).collect()
    };
    let words = |f: Stated, cuts: &dyn Fn(usize) -> Vec<Cut>| -> Vec<Expected> {
        (0..256).map(|i| Expected::Of(cuts(i), f)).collect()
    };
    let same = |i: usize| vec![vec![(i, 1)]];
    let difference = |i: usize| vec![vec![(i, 1), (i + 256, -1)]];
    let input = |i: usize| i as u32 + 1;
    let both = |i: usize, j: usize| input(i.min(j)) << 16 | input(i.max(j));
    let mut refused: Option<(Vec<Cut>, Stated)> = None;
    let refused_if =
        |f: Stated, cut: &dyn Fn(usize) -> Vec<Cut>| Some(((0..256).flat_map(cut).collect(), f));

    let (ranges, expected) = match (algorithm, name) {
        // f̂_i is the polynomial's value at ζ^(2·BitRev(i) + 1).
        (_, "forward" | "forward_canonical") => {
            let range = match name {
                "forward" => most(6 * q),
                _ => [0, q - 1],
            };
            let term = |i: usize, j| (input(step * j + i % step), root(i / step, j));
            (
                all(most(q)),
                forms(range, &|i| (0..256 / step).map(|j| term(i, j)).collect()),
            )
        }
        // Times R.
        (_, "inverse") => {
            let scale = (1 << bits) / (256 / step as i64) % q;
            let term = |j: usize, i| {
                let root = root(i, 512 - j / step);
                (input(step * i + j % step), scale * root % q)
            };
            let before = if step == 2 { q * 9 / 10 } else { q };
            (
                all(most(before)),
                forms(most(q * 3 / 4), &|j| {
                    (0..256 / step).map(|i| term(j, i)).collect()
                }),
            )
        }
        (_, "multiplier") => (
            all(modulus.any()),
            forms(most(q * 3 / 4), &|i| match i {
                256.. => vec![(input((i - 256) ^ 1), 1)],
                _ if i % 2 == 0 => vec![(input(i), 1)],
                _ => vec![(input(i), root(i / 2, 1))],
            }),
        ),
        ("mlkem", "product") => (
            blocks(&[(of, [0, 4095]), (2 * of, most(q * 3 / 4))]),
            forms(most(q * 9 / 10), &|i| {
                let pair = |k: usize, e: usize| {
                    let a = 256 * k + (i & !1) + e;
                    let b = 256 * (of + 2 * k + i % 2) + (i & !1) + e;
                    (both(a, b), r_inverse)
                };
                (0..of).flat_map(|k| [pair(k, 0), pair(k, 1)]).collect()
            }),
        ),
        (_, "add_product") => (
            blocks(&[(1, most(8 * q)), (1, modulus.any())]),
            forms(most(9 * q), &|i| {
                vec![(input(i), 1), (input(i + 256), (1 << bits) % q)]
            }),
        ),
        (_, "decode") => {
            refused = refused_if(|x, _| sign(x[0] >= SMALL.q), &same);
            (all([0, 4095]), words(|x, _| x[0], &same))
        }
        (_, "encode") => (
            all(modulus.any()),
            words(|x, _| x[0].rem_euclid(SMALL.q), &same),
        ),
        (_, "compress") => (
            all([-(1 << 14), (1 << 14) - 1]),
            words(
                |x, bits| {
                    let (x, q) = (x[0].rem_euclid(SMALL.q), SMALL.q);
                    ((x << (bits + 1)) + q) / (2 * q) % (1 << bits)
                },
                &|i| vec![vec![(i, 1), (i + 256, 1)]],
            ),
        ),
        (_, "decompress") => (
            all([0, (1 << of) - 1]),
            words(
                |y, bits| (2 * SMALL.q * y[0] + (1 << bits)) >> (bits + 1),
                &same,
            ),
        ),
        (_, "add_message") => (
            blocks(&[(1, most(1 << 14)), (1, [-1, 0])]),
            forms(most((1 << 14) + 1665), &|i| {
                vec![(input(i), 1), (input(i + 256), q - 1665)]
            }),
        ),
        (_, "message") => (
            all([-(1 << 14), (1 << 14) - 1]),
            words(
                |x, _| (4 * x[0].rem_euclid(SMALL.q) + SMALL.q) / (2 * SMALL.q) % 2 - 1,
                &difference,
            ),
        ),
        (_, "noise") => (
            all([0, 15]),
            words(
                |x, _| (x[0] & 1) + (x[0] >> 1 & 1) - (x[0] >> 2 & 1) - (x[0] >> 3),
                &same,
            ),
        ),
        (_, "wide_noise") => (
            all([0, 63]),
            words(
                |x, _| i64::from((x[0] & 7).count_ones()) - i64::from((x[0] >> 3).count_ones()),
                &same,
            ),
        ),

        (_, "product" | "long_product") => {
            // Of two rows.
            let mut inputs = vec![(2 * of, [0, q - 1]), (of, most(6 * q))];
            let is_long = name == "long_product";
            inputs.extend(is_long.then_some((3, most(6 * q))));
            let form = |i: usize| {
                let (row, i) = (i / 256, i % 256);
                let pair = |a: usize, b: usize| (both(256 * a + i, 256 * b + i), r_inverse);
                let other = is_long.then(|| pair(3 * of + row, 3 * of + 2));
                let products = (0..of).map(|j| pair(of * row + j, 2 * of + j));
                products.chain(other).collect()
            };
            (blocks(&inputs), forms(most(q * 7 / 10), &form))
        }
        (_, "single_product") => (
            all(most(6 * q)),
            forms(most(q * 6 / 10), &|i| vec![(both(i, i + 256), r_inverse)]),
        ),
        (_, "widen") => (all(SMALL.any()), words(|x, _| x[0], &same)),
        (_, "decode_public") => (all([0, 1023]), words(|x, _| -(x[0] << 13), &same)),
        (_, "decode_response") => {
            let f: Stated = |x, k| sign((gamma_1(k) - x[0]).abs() >= gamma_1(k) - beta(k));
            refused = refused_if(f, &same);
            let number = [0, 2 * gamma_1(of as i64) - 1];
            (all(number), words(|x, k| gamma_1(k) - x[0], &same))
        }
        // The mask is γ₁ − x, so that the response is γ₁ minus a difference.
        (_, "respond") => {
            let f: Stated = |x, k| sign((gamma_1(k) - x[0]).abs() >= gamma_1(k) - beta(k));
            refused = refused_if(f, &difference);
            let k = of as i64;
            (
                blocks(&[(1, [0, 2 * gamma_1(k) - 1]), (1, most(beta(k)))]),
                words(|x, k| x[0].rem_euclid(2 * gamma_1(k)), &difference),
            )
        }
        (_, "subtract") => {
            let f: Stated = |x, k| sign(x[0].abs() >= gamma_2(k) - beta(k));
            refused = refused_if(f, &difference);
            let k = of as i64;
            (
                blocks(&[(1, most(gamma_2(k))), (1, most(beta(k)))]),
                words(|x, _| x[0], &difference),
            )
        }
        (_, "decompose") => {
            let mut parts = words(|x, k| decompose(x[0], k)[0], &same);
            parts.extend(words(|x, k| decompose(x[0], k)[1], &same));
            (all(most(q - 1)), parts)
        }
        // Algorithm 39, for r = high·2γ₂ + low: whether its higher part is another one after a sum.
        (_, "hints" | "added") => {
            let k = of as i64;
            let high = [0, (q - 1) / (2 * gamma_2(k)) - 1];
            let hint: Stated = |x, k| sign(decompose(2 * gamma_2(k) * x[1] + x[0], k)[0] != x[1]);
            let sum_and_high = |i: usize| vec![vec![(i, 1), (i + 256, 1)], vec![(i + 512, 1)]];
            let (added, hints) = match name {
                "hints" => (gamma_2(k) - 1, words(hint, &sum_and_high)),
                _ => {
                    let f: Stated = |x, k| sign(x[0].abs() >= gamma_2(k));
                    refused = refused_if(f, &|i| same(i + 256));
                    (q * 3 / 4, Vec::new())
                }
            };
            let ranges = [(1, most(gamma_2(k))), (1, most(added)), (1, high)];
            (blocks(&ranges), hints)
        }
        // Algorithm 40.
        (_, "use_hints") => (
            blocks(&[(1, most(q - 1)), (1, [-1, 0])]),
            words(
                |x, k| {
                    let [high, low] = decompose(x[0], k);
                    let step = if low > 0 { 1 } else { -1 };
                    (high - x[1] * step).rem_euclid((LARGE.q - 1) / (2 * gamma_2(k)))
                },
                &|i| vec![vec![(i, 1)], vec![(i + 256, 1)]],
            ),
        ),
        _ => panic!("no statement about {name}"),
    };
    Statement {
        modulus,
        of: of as i64,
        ranges,
        expected,
        refused,
    }
}
