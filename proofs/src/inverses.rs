//! The products before and after an inversion modulo 2^255 − 19, and the other products of X25519
//! beside its ladder and its comb.
//!
//! Each product, square and remainder was proved on its own. Their terms are found among the terms
//! of a function, from the results back to the operands. So the numbers x, y and z have the product
//! P = x·y·z, in which a zero counts as one. With I = 1/P each inverse is I times the numbers
//! before it and after it. The inverse of zero is zero.

use lockstep_kernels::proved::{Function, Operand, Place, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::blinding::fits;
use crate::claims::{digits, modulus, number};
use crate::edwards::{are_inputs, asks_for_zero};
use crate::formulas::{constant_modulus, template};
use crate::proof::{Failed, or_refuted};
use crate::ranges::MASK;
use crate::terms::{Look, named};
use crate::tries::inputs;

/// The functions that are proved.
pub const NAMES: [&str; 10] = [
    "curve25519::x25519::product",
    "curve25519::x25519::product, halves",
    "curve25519::edwards::scaled",
    "curve25519::edwards::scaled, halves",
    "curve25519::square_times_and_multiply, 0 times",
    "curve25519::square_times_and_multiply, 0 times, halves",
    "curve25519::square_times_and_multiply, 2 times",
    "curve25519::square_times_and_multiply, 2 times, halves",
    INVERSES,
    "curve25519::invert_all of 3, halves",
];

const INVERSES: &str = "curve25519::invert_all of 3";

/// Limbs of a number.
const LIMBS: usize = 5;

/// Proves one of them, of which these are the terms.
pub fn prove(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<String, Failed> {
    or_refuted(attempt(all, function, terms, results), || {
        search(function, terms, results)
    })?;
    Ok(format!("{} terms", terms.list.len()))
}

/// How often a number is squared before it is multiplied.
fn times(function: &Function) -> Option<usize> {
    let (_, times) = function.name.split_once("multiply, ")?;
    times.split(' ').next()?.parse().ok()
}

fn attempt(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<(), String> {
    let lanes = match function.name.ends_with(", halves") {
        true => ", halves",
        false => "",
    };
    let row = |name: &str| format!("curve25519::field, {name}{lanes}");
    // The operands from which a proved function has computed these results.
    let made = |name: &str, results: &[Place]| {
        let found = template(all, &row(name)).inputs_of(&terms.list, results);
        found.ok_or(format!("no {name}"))
    };
    // As many places as a number has, from an operand on.
    let are = |places: &[Place], operand: usize| match places.len() == LIMBS
        && are_inputs(terms, places, (LIMBS * operand) as u32)
    {
        true => Ok(()),
        false => Err(format!("not operand {operand}")),
    };
    // Operands, products and squares are factors. A remainder is below n.
    let [product, square] = ["a·b", "a²"].map(|name| named(all, &row(name)));
    let (factor, out) = (&product.inputs[0], &product.outputs[0]);
    let factors = function.inputs.iter().chain([out, &square.outputs[0]]);
    let (n_limbs, _) = constant_modulus(function)?;
    let is_large_enough = |result: &Operand| match result.loose {
        true => fits(out, result),
        false => result.range == [0, MASK] && result.top >= n_limbs[LIMBS - 1],
    };
    if !{ factors }.all(|operand| fits(operand, factor))
        || !function.outputs.iter().all(is_large_enough)
    {
        return Err("a number is too large".into());
    }
    if function.name.starts_with(INVERSES) {
        return inverts(terms, results, (&made, &are), |mask| {
            asks_for_zero(all, lanes, terms, mask)
        });
    }
    for (i, out) in results.chunks(LIMBS).enumerate() {
        let times = times(function);
        let product = match times {
            Some(_) => made("a·b", out)?,
            None => made("a·b", &made("canonical", out)?)?,
        };
        let (x, by) = product.split_at(LIMBS);
        let mut x = x.to_vec();
        for _ in 0..times.unwrap_or(0) {
            x = made("a²", &x)?;
        }
        are(&x, i)?;
        // Each is multiplied by its own operand, or all by the last one.
        are(by, times.map_or(results.len() / LIMBS, |_| 2 + i))?;
    }
    Ok(())
}

/// Operands of a function that was found, and whether places are an operand.
type Found<'a> = (
    &'a dyn Fn(&str, &[Place]) -> Result<Vec<Place>, String>,
    &'a dyn Fn(&[Place], usize) -> Result<(), String>,
);

/// The inverses of three numbers, and their product.
fn inverts(
    terms: &Terms,
    results: &[Place],
    (made, are): Found<'_>,
    asks_for_zero: impl Fn(Place) -> Option<Vec<Place>>,
) -> Result<(), String> {
    let (inverses, product) = results.split_at(3 * LIMBS);
    let is_constant = |places: &[Place], number: u64| {
        let mut limbs = places.iter().zip([number, 0, 0, 0, 0]);
        limbs.all(|(&place, limb)| terms.is(place, limb))
    };
    // A number where a mask is set, and else this one. The mask asks whether it is zero.
    let chosen = |places: &[Place], i: usize, other: u64| {
        let (mask, number, rest) = terms.choice(places).ok_or("no choice")?;
        let asked = asks_for_zero(mask).ok_or("another question")?;
        are(&asked, i)?;
        match is_constant(&rest, other) {
            true => Ok::<_, String>(number),
            false => Err(format!("not {other} in the place of {i}")),
        }
    };
    let mut before = product.to_vec();
    let mut all_before = Vec::new();
    for i in (0..3).rev() {
        let product = made("a·b", &before)?;
        are(&chosen(&product[LIMBS..], i, 1)?, i)?;
        before = product[..LIMBS].to_vec();
        all_before.insert(0, before.clone());
    }
    if !is_constant(&before, 1) {
        return Err("the product begins with another number".into());
    }
    for (i, before) in all_before.iter().enumerate() {
        let inverse = chosen(&inverses[LIMBS * i..][..LIMBS], i, 0)?;
        let product = made("a·b", &inverse)?;
        if product[LIMBS..] != before[..] {
            return Err(format!("not what is before {i}"));
        }
        // The inverse of the product, by the numbers after this one.
        let mut rest = product[..LIMBS].to_vec();
        for after in i + 1..3 {
            let product = made("a·b", &rest)?;
            are(&chosen(&product[LIMBS..], after, 1)?, after)?;
            rest = product[..LIMBS].to_vec();
        }
        are(&rest, 3)?;
    }
    Ok(())
}

/// The expected results, modulo n.
fn expected(function: &Function, n: &BigInt, numbers: &[BigInt]) -> Vec<BigInt> {
    let (zero, one) = (BigInt::ZERO, BigInt::from(1));
    match (times(function), numbers) {
        (Some(times), [x, y, a, b]) => {
            let power = BigInt::from(1) << times;
            vec![x.modpow(&power, n) * a, y.modpow(&power, n) * b]
        }
        (None, [a, b]) => vec![a * b],
        (None, [x, y, inverse]) => vec![x * inverse, y * inverse],
        (None, [numbers @ .., inverse]) => {
            let is_zero = |number: &BigInt| number % n == zero;
            let used = numbers.iter().map(|number| match is_zero(number) {
                true => &one,
                false => number,
            });
            let used: Vec<&BigInt> = used.collect();
            let product = |without: usize| {
                let others = (0..).zip(&used).filter(|(i, _)| *i != without);
                others.fold(one.clone(), |product, (_, number)| product * *number % n)
            };
            let inverses = (0..).zip(numbers).map(|(i, number)| match is_zero(number) {
                true => zero.clone(),
                false => product(i) * inverse,
            });
            inverses.chain([product(usize::MAX)]).collect()
        }
        _ => Vec::new(),
    }
}

/// Inputs for which a result is another number, which the portable lanes confirm.
fn search(function: &Function, terms: &Terms, results: &[Place]) -> Option<(Vec<u64>, String)> {
    let n = modulus(function, &[])?;
    let mut random = Random(1);
    let out = &function.outputs[0];
    (0..3000).find_map(|_| {
        let mut inputs = inputs(function, &mut random);
        // Zero, in one of its forms.
        let which = random.word() as usize % 8;
        if let Some(limbs) = inputs.chunks_mut(LIMBS).nth(which) {
            let zero = [digits(&n, LIMBS), vec![0; LIMBS]];
            limbs.copy_from_slice(&zero[random.word() as usize % 2]);
        }
        let numbers = inputs.chunks(LIMBS);
        let numbers = numbers.map(|limbs| number(limbs, &function.inputs[0], false));
        let expected = expected(function, &n, &numbers.collect::<Vec<_>>());
        let found = terms.results(&inputs, results);
        let mut found = found.chunks(LIMBS).zip(expected);
        let is_wrong = |(limbs, expected): (&[u64], BigInt)| {
            let value = number(limbs, out, false);
            let expected = expected % &n;
            match out.loose {
                true => value % &n != expected,
                false => value != expected,
            }
        };
        let i = found.position(is_wrong)?;
        Some((inputs, format!("result {i} is another number")))
    })
}
