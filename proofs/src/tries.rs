//! Inputs that are tried, and the errors of results: how a statement is refuted.
//!
//! No proof rests on this file. It only adds counterexamples to proofs that failed.

use std::collections::BTreeMap;

use lockstep_kernels::proved::{Function, Operand, Place, Reduced, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::claims::{comparison, digits, limbs_of_r, modulus, number, operand, read, sum};
use crate::ranges::MASK;
use crate::terms::Look;

/// Describes the error in these results; `None` if all statements hold.
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
                let top = match operand.loose && operand.below.is_some() {
                    true => most,
                    false => operand.top,
                };
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
        let difference: BigInt =
            claim
                .difference
                .iter()
                .fold(BigInt::ZERO, |sum, (names, factor)| {
                    let names = names.iter();
                    sum + names.fold(factor.clone(), |product, name| product * &values[name])
                });
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
    // The modulus first, which bounds the others.
    let n_limbs = operand(function, "n").map(|(operand, _)| {
        let mut limbs: Vec<u64> = (0..operand.limbs - 1)
            .map(|_| limb(random, style, 0, MASK))
            .collect();
        limbs.push(limb(random, style, 0, operand.top) | (operand.top / 2 + 1));
        limbs[0] |= 1;
        limbs
    });
    let n = match (&n_limbs, &function.reduced) {
        (Some(limbs), _) | (None, Reduced::Constant(limbs)) => Some(sum(limbs)),
        _ => None,
    };
    let compares = function
        .claims
        .iter()
        .any(|text| comparison(text).is_some());
    for operand in &function.inputs {
        match (operand.name, &n_limbs) {
            ("n", Some(limbs)) => all.extend(limbs),
            ("k0", Some(limbs)) => all.push(negative_inverse(limbs[0])),
            _ => {
                let mut limbs = within(operand, random, style, sparse == 0);
                // A number that is zero, and has other limbs.
                if let Reduced::Constant(n) = &function.reduced
                    && operand.loose
                    && operand.limbs == n.len()
                    && below(random, 16) == 0
                {
                    limbs.clone_from(n);
                }
                if let (Some([times, of]), Some(n)) = (operand.below, &n) {
                    // The greatest limbs that the bound allows, at times.
                    let bound: BigInt = (n * times - 1) / of;
                    let value = number(&limbs, operand, false);
                    if style == 3 && (value > bound || below(random, 2) == 0) {
                        limbs = digits(&bound, operand.limbs);
                    } else if value > bound {
                        limbs = digits(&(value % (bound + 1)), operand.limbs);
                    }
                }
                if let (Some(n), "a", true) = (&n, operand.name, compares)
                    && let Some(value) = beside(n, operand, random)
                {
                    limbs = digits(&value, operand.limbs);
                }
                all.extend(limbs);
            }
        }
    }
    all
}

/// An operand whose limbs are within their bounds.
fn within(operand: &Operand, random: &mut Random, style: u64, is_sparse: bool) -> Vec<u64> {
    let [least, most] = operand.range;
    let word = |i| {
        let greatest = match (i + 1 == operand.limbs, operand.loose) {
            (true, _) => operand.top,
            (false, true) => MASK,
            (false, false) => most,
        };
        if is_sparse && below(random, operand.limbs as u64) > 1 {
            return least;
        }
        let value = limb(random, style, least, greatest);
        match operand.loose && below(random, 2) == 0 {
            true => value | (random.word() & most & !MASK),
            false => value,
        }
    };
    (0..operand.limbs).map(word).collect()
}

/// A number next to a multiple of n, by a number of any length; every other time.
fn beside(n: &BigInt, operand: &Operand, random: &mut Random) -> Option<BigInt> {
    let away = BigInt::from(random.word() >> (14 + below(random, 50)));
    let away = away << (52 * below(random, operand.limbs as u64));
    let times = operand.below.map_or(1, |[times, _]| times);
    let multiple = n * (1 + below(random, times));
    let value = match below(random, 4) {
        0 => multiple - away,
        1 => multiple + away,
        _ => return None,
    };
    let end = match operand.below {
        Some([times, _]) => n * times,
        None => BigInt::from(operand.top + 1) << (52 * (operand.limbs - 1)),
    };
    (value >= BigInt::ZERO && value < end).then_some(value)
}

fn limb(random: &mut Random, style: u64, least: u64, most: u64) -> u64 {
    let kind = if style == 2 {
        below(random, 8)
    } else {
        style * 8
    };
    let value = match kind {
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

/// Inputs that a search tries.
const TRIES: usize = 3000;

/// Inputs for which a statement is false, which the portable lanes confirm.
pub fn search(function: &Function, terms: &Terms, results: &[Place]) -> Option<(Vec<u64>, String)> {
    let mut random = Random(1);
    (0..TRIES).find_map(|_| {
        let inputs = inputs(function, &mut random);
        let how = refute(function, &inputs, &terms.results(&inputs, results))?;
        Some((inputs, how))
    })
}
