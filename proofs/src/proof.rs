//! The proof of one function, and the search for a counterexample where the proof fails.

use std::fmt;

use lockstep_kernels::proved::{Function, Operand, Place, Reduced, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::algebra::Algebra;
use crate::claims::{comparison, limbs_of_r, operand, read};
use crate::compared;
use crate::ranges::{MASK, Range, ranges};
use crate::terms::{Look, limbs};
use crate::tries::{inputs, search};

/// How a proof ended that did not succeed.
#[derive(Debug)]
pub enum Failed {
    /// Inputs for which a statement is false.
    Refuted { inputs: Vec<u64>, how: String },
    /// Neither proved nor refuted.
    Open(String),
}

impl<T: Into<String>> From<T> for Failed {
    fn from(why: T) -> Self {
        Failed::Open(why.into())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Refuted { inputs, how } => write!(f, "refuted: {how}, for {inputs:x?}"),
            Failed::Open(why) => write!(f, "not proved: {why}"),
        }
    }
}

/// The ranges of the inputs.
pub fn given(function: &Function) -> Vec<Range> {
    let mut all = Vec::new();
    for operand in &function.inputs {
        let [least, most] = operand.range.map(i128::from);
        let mut ranges = vec![Range::new(least, most); operand.limbs];
        let (top, last) = (operand.top, ranges.last_mut().expect("limbs"));
        match operand.loose {
            true => last.low = top.min(MASK),
            false => *last = Range::new(least.min(i128::from(top)), i128::from(top)),
        }
        all.extend(ranges);
    }
    all
}

/// Returns the outcome of a proof. Where it fails, a search looks for inputs that refute the
/// statement.
pub fn or_refuted<T>(
    outcome: Result<T, String>,
    search: impl FnOnce() -> Option<(Vec<u64>, String)>,
) -> Result<T, Failed> {
    outcome.map_err(|why| match search() {
        Some((inputs, how)) => Failed::Refuted {
            inputs,
            how: format!("{how} ({why})"),
        },
        None => Failed::Open(why),
    })
}

/// Checks for one input that the terms compute the same as the portable lanes. A number that is
/// written among lanes as a word would be read as the place of a term. The portable lanes have
/// whole limbs, so halves have other words for the same number.
pub fn as_portable(function: &Function, terms: &Terms, results: &[Place]) -> Result<(), Failed> {
    let inputs = inputs(function, &mut Random(1));
    let is_same = || function.words(&inputs) == terms.results(&inputs, results);
    match function.name.ends_with("halves") || is_same() {
        true => Ok(()),
        false => Err("the portable lanes compute others".into()),
    }
}

/// Proves all statements of a function of which these are the terms.
pub fn prove(function: &Function, terms: &Terms, results: &[Place]) -> Result<String, Failed> {
    let outcome = attempt(function, terms, results);
    or_refuted(outcome, || search(function, terms, results))
}

fn attempt(function: &Function, terms: &Terms, results: &[Place]) -> Result<String, String> {
    let ranges = ranges(terms, &given(function))?;
    let mut monomials = 0;
    for text in function.claims {
        if let Some(is_remainder) = comparison(text) {
            compared::prove(function, terms, results, &given(function), is_remainder)
                .map_err(|why| format!("{text}: {why}"))?;
            continue;
        }
        let claim = read(text, limbs_of_r(function));
        let proof = Algebra::new(function, terms, &ranges, results)
            .prove(&claim)
            .map_err(|left| format!("{text}: {left}"))?;
        monomials += proof.monomials;
        if let Some(times) = function.quotient {
            let bounds = Algebra::bounds(&ranges, &proof.quotient);
            let end = BigInt::from(times) << (52 * limbs_of_r(function));
            if bounds.is_none_or(|[least, most]| least < BigInt::ZERO || most >= end) {
                return Err(format!(
                    "{text}: the multiple of n may be {times}·R or more, or negative: {:?}",
                    proof.quotient
                ));
            }
        }
    }
    if let (Reduced::By(ratio), Some((n, _))) = (&function.reduced, operand(function, "n"))
        && (n.top + 1) * ratio > MASK + 1
    {
        return Err(format!("R may be below {ratio}·n"));
    }
    if results.len() != limbs(&function.outputs) {
        return Err("another number of results".into());
    }
    let mut at = 0;
    for operand in &function.outputs {
        within(function, operand, &results[at..at + operand.limbs], &ranges)?;
        below(function, operand)?;
        at += operand.limbs;
    }
    Ok(format!("{} terms, {monomials} monomials", terms.list.len()))
}

/// That each limb of a result is within its bounds.
fn within(
    function: &Function,
    operand: &Operand,
    places: &[Place],
    ranges: &[Range],
) -> Result<(), String> {
    for (i, &place) in places.iter().enumerate() {
        let mut range = ranges[place as usize];
        // The number is (a·b + m·n)/R, which is not negative, and the limbs below hold less than
        // one unit of the uppermost.
        if operand.loose && i + 1 == operand.limbs && function.quotient.is_some() {
            range.least = range.least.max(0).min(range.least + 1);
        }
        let [least, most] = operand.range;
        // The uppermost limb of a result counts as a whole, but a multiply reads its low bits: the
        // bounds say that it has no others, or the bound of the number does.
        let top = match i + 1 < operand.limbs || operand.loose && operand.below.is_some() {
            true => most,
            false => operand.top,
        };
        if range.least < i128::from(least) || range.most > i128::from(top) {
            return Err(format!(
                "limb {i} of {} is from {} to {:#x}, not to {top:#x}",
                operand.name, range.least, range.most
            ));
        }
    }
    Ok(())
}

/// Proves that a result is below a multiple of the modulus: (a·b + m·n)/R < (α·β/ρ + µ)·n for a <
/// α·n, b < β·n, R ≥ ρ·n and m < µ·R.
fn below(function: &Function, operand: &Operand) -> Result<(), String> {
    let Some([times, of]) = operand.below else {
        return Ok(());
    };
    let Reduced::By(ratio) = function.reduced else {
        return Err(format!("{} has a bound and no modulus", operand.name));
    };
    let factors: Vec<[u64; 2]> = function
        .inputs
        .iter()
        .filter_map(|input| input.below)
        .collect();
    let [[a, b], [c, d]] = match factors[..] {
        [a] => [a, a],
        [a, b] => [a, b],
        _ => return Err(format!("{} has another number of factors", operand.name)),
    };
    let quotient = function.quotient.unwrap_or(u64::from(u32::MAX));
    // α·β/ρ + µ ≤ times/of.
    let sum = a * c + quotient * b * d * ratio;
    match sum * of <= times * b * d * ratio {
        true => Ok(()),
        false => Err(format!("{} may be {times}/{of}·n or more", operand.name)),
    }
}
