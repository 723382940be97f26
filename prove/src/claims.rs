//! Statements as the kernels' table has them: `out*R = a*b mod n`, read, and checked for numbers.

use std::collections::BTreeMap;

use lockstep_kernels::proved::{Function, Operand, Reduced};
use lockstep_testkit::Random;
use num_bigint::{BigInt, BigUint, Sign};

use crate::ranges::MASK;

/// A sum of products of operands, with their factors.
pub type Sum = BTreeMap<Vec<String>, BigInt>;

/// Left side minus right side, and whether they may differ by a multiple of the modulus.
pub struct Claim {
    pub difference: Sum,
    pub is_modular: bool,
}

/// Reads a statement; `limbs` is the number of limbs of R.
pub fn read(text: &str, limbs: usize) -> Claim {
    let (equation, is_modular) = match text.strip_suffix(" mod n") {
        Some(equation) => (equation, true),
        None => (text, false),
    };
    let (left, right) = equation.split_once(" = ").expect("an equation");
    let mut difference = Sum::new();
    for (side, sign) in [(left, 1), (right, -1)] {
        let mut sign_of_term = sign;
        for word in side.split(' ') {
            match word {
                "+" => sign_of_term = sign,
                "-" => sign_of_term = -sign,
                product => {
                    let (mut names, mut factor) = (Vec::new(), BigInt::from(sign_of_term));
                    for name in product.split('*') {
                        match name {
                            "R" => factor <<= 52 * limbs,
                            _ => match name.parse::<u64>() {
                                Ok(number) => factor *= number,
                                Err(_) => names.push(name.to_owned()),
                            },
                        }
                    }
                    names.sort();
                    *difference.entry(names).or_default() += factor;
                }
            }
        }
    }
    Claim {
        difference,
        is_modular,
    }
}

/// Whether a statement is about a remainder (`out = a % n`) or about a comparison
/// (`out = -(a >= n)`), if it is about either.
pub fn comparison(text: &str) -> Option<bool> {
    match text {
        "out = a % n" => Some(true),
        "out = -(a >= n)" => Some(false),
        _ => None,
    }
}

/// The modulus, of these inputs.
pub fn modulus(function: &Function, inputs: &[u64]) -> Option<BigInt> {
    match &function.reduced {
        Reduced::Not => None,
        Reduced::By(_) => {
            let (n, at) = operand(function, "n").expect("a modulus");
            Some(number(&inputs[at..at + n.limbs], n, false))
        }
        Reduced::Constant(limbs) => Some(sum(limbs)),
    }
}

/// Limbs of R.
pub fn limbs_of_r(function: &Function) -> usize {
    match &function.reduced {
        Reduced::Constant(limbs) => limbs.len(),
        Reduced::By(_) => operand(function, "n").expect("a modulus").0.limbs,
        Reduced::Not => 0,
    }
}

/// An input and where it begins.
pub fn operand<'a>(function: &'a Function, name: &str) -> Option<(&'a Operand, usize)> {
    find(&function.inputs, name)
}

/// An operand of a list and where it begins.
pub fn find<'a>(operands: &'a [Operand], name: &str) -> Option<(&'a Operand, usize)> {
    let mut at = 0;
    for operand in operands {
        if operand.name == name {
            return Some((operand, at));
        }
        at += operand.limbs;
    }
    None
}

fn sum(limbs: &[u64]) -> BigInt {
    limbs
        .iter()
        .rev()
        .fold(BigInt::ZERO, |sum, &limb| (sum << 52) + limb)
}

/// The number that limbs are. The uppermost limb of a result counts as a whole.
pub fn number(limbs: &[u64], operand: &Operand, is_result: bool) -> BigInt {
    let last = limbs.len() - 1;
    let limb = |(i, &limb): (usize, &u64)| match operand.loose && !(is_result && i == last) {
        true => limb & MASK,
        false => limb,
    };
    sum(&limbs.iter().enumerate().map(limb).collect::<Vec<u64>>())
}

/// What is wrong with these results; nothing if all statements hold.
pub fn refute(function: &Function, inputs: &[u64], results: &[u64]) -> Option<String> {
    let mut values = BTreeMap::new();
    for (operands, limbs, is_result) in [
        (&function.inputs, inputs, false),
        (&function.outputs, results, true),
    ] {
        let mut at = 0;
        for operand in operands {
            let limbs = &limbs[at..at + operand.limbs];
            at += operand.limbs;
            values.insert(operand.name.to_owned(), number(limbs, operand, is_result));
            if is_result {
                let (last, others) = limbs.split_last().expect("limbs");
                let [least, most] = operand.range;
                let top = if operand.loose { most } else { operand.top };
                if others.iter().any(|limb| !(least..=most).contains(limb)) || *last > top {
                    return Some(format!("a limb of {} is out of its bounds", operand.name));
                }
            }
        }
    }
    let n = modulus(function, inputs);
    if let Some(n) = &n {
        values.entry("n".to_owned()).or_insert_with(|| n.clone());
    }
    for text in function.claims {
        if let Some(is_remainder) = comparison(text) {
            let (a, n) = (&values["a"], n.as_ref().expect("a modulus"));
            let expected = match is_remainder {
                true => a % n,
                false => BigInt::from(if a >= n { u64::MAX } else { 0 }),
            };
            if values["out"] != expected {
                return Some(format!("not {text}"));
            }
            continue;
        }
        let claim = read(text, limbs_of_r(function));
        let mut difference = BigInt::ZERO;
        for (names, factor) in &claim.difference {
            difference += names
                .iter()
                .fold(factor.clone(), |product, name| product * &values[name]);
        }
        let is_zero = match (claim.is_modular, &n) {
            (true, Some(n)) => (difference % n) == BigInt::ZERO,
            _ => difference == BigInt::ZERO,
        };
        if !is_zero {
            return Some(format!("not {text}"));
        }
    }
    for operand in &function.outputs {
        if let (Some([times, of]), Some(n)) = (operand.below, &n)
            && &values[operand.name] * of >= n * times
        {
            return Some(format!("{} is not below {times}/{of}·n", operand.name));
        }
    }
    None
}

/// −1/n mod 2^52.
pub fn negative_inverse(n: u64) -> u64 {
    let mut inverse = 1_u64;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(n.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg() & MASK
}

fn below(random: &mut Random, count: u64) -> u64 {
    random.word() % count
}

/// Inputs within the bounds, of the kinds that carries and bounds stumble over.
pub fn inputs(function: &Function, random: &mut Random) -> Vec<u64> {
    let style = below(random, 4);
    let sparse = below(random, 3);
    let mut all: Vec<u64> = Vec::new();
    let mut n: Option<BigInt> = match &function.reduced {
        Reduced::Constant(limbs) => Some(sum(limbs)),
        _ => None,
    };
    // The modulus first, which bounds the others.
    let n_limbs = operand(function, "n").map(|(operand, _)| {
        let mut limbs: Vec<u64> = (0..operand.limbs)
            .map(|i| {
                limb(
                    random,
                    style,
                    0,
                    if i + 1 == operand.limbs {
                        operand.top
                    } else {
                        MASK
                    },
                )
            })
            .collect();
        limbs[0] |= 1;
        *limbs.last_mut().expect("limbs") |= operand.top / 2 + 1;
        n = Some(sum(&limbs));
        limbs
    });
    for operand in &function.inputs {
        match (operand.name, &n_limbs) {
            ("n", Some(limbs)) => {
                all.extend(limbs);
                continue;
            }
            ("k0", Some(limbs)) => {
                all.push(negative_inverse(limbs[0]));
                continue;
            }
            _ => {}
        }
        let [least, most] = operand.range;
        let mut limbs: Vec<u64> = (0..operand.limbs)
            .map(|i| {
                let is_top = i + 1 == operand.limbs;
                let low = match (is_top, operand.loose) {
                    (true, _) => operand.top,
                    (false, true) => MASK,
                    (false, false) => most,
                };
                if sparse == 0 && below(random, operand.limbs as u64) > 1 {
                    return least;
                }
                let value = limb(random, style, least, low);
                match operand.loose && below(random, 2) == 0 {
                    true => value | (random.word() & most & !MASK),
                    false => value,
                }
            })
            .collect();
        if let (Some([times, of]), Some(n)) = (operand.below, &n) {
            // The greatest limbs that the bound allows, at times.
            let bound: BigInt = (n * times - 1) / of;
            let value = number(&limbs, operand, false);
            if value > bound || style == 3 && below(random, 2) == 0 {
                let value = if style == 3 {
                    bound
                } else {
                    value % (bound + 1)
                };
                limbs = digits(&value, operand.limbs);
            }
        }
        if operand.name == "a"
            && function
                .claims
                .iter()
                .any(|text| comparison(text).is_some())
            && let (Some(n), true) = (&n, below(random, 2) == 0)
        {
            // Next to a multiple of n, by a number of any length.
            let away = 1 + below(random, 50) as usize;
            let lengths = below(random, operand.limbs as u64) as usize;
            let away = BigInt::from(random.word() >> (14 + away % 50)) << (52 * lengths);
            let times = operand.below.map_or(1, |[times, _]| times);
            let value = n * (1 + below(random, times));
            let value = match below(random, 2) {
                0 => value - away,
                _ => value + away,
            };
            let end = operand.below.map_or_else(
                || BigInt::from(operand.top + 1) << (52 * (operand.limbs - 1)),
                |[times, _]| n * times,
            );
            if value >= BigInt::ZERO && value < end {
                limbs = digits(&value, operand.limbs);
            }
        }
        all.extend(limbs);
    }
    all
}

fn digits(value: &BigInt, count: usize) -> Vec<u64> {
    let (_, value): (Sign, BigUint) = value.clone().into_parts();
    (0..count)
        .map(|i| {
            let digit: BigUint = (&value >> (52 * i)) & BigUint::from(MASK);
            digit.try_into().expect("52 bits")
        })
        .collect()
}

fn limb(random: &mut Random, style: u64, least: u64, most: u64) -> u64 {
    let value = match if style == 2 {
        below(random, 8)
    } else {
        style * 8
    } {
        0 if style == 0 => random.word(),
        0 => 0,
        1 => 1,
        2 => 1 << 51,
        3 => (1 << 51) + below(random, 1 << 20),
        4 => 1 << below(random, 52),
        5 => MASK - below(random, 4),
        6 => random.word(),
        _ => most,
    };
    let room = most - least;
    match room == u64::MAX || value <= room {
        true => least + value,
        false => least + value % (room + 1),
    }
}
