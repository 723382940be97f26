//! Complete additions of points, which double where both operands are equal.
//!
//! The chord's formulas and the tangent's are proved on their own. This file proves the choice:
//! both differences are decoded, which gives a number below p, and the limbs of both numbers are
//! asked for a bit. A difference is a multiple of p if and only if the decoded number is zero. Both
//! must be the differences of the chord as polynomials: a choice by another difference agrees with
//! itself too.

use std::collections::HashSet;

use lockstep_kernels::proved::{Function, Place, Term, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::algebra::Algebra;
use crate::claims::{digits, limbs_of_r, modulus, read, sum};
use crate::formulas::{self, template};
use crate::proof::{Failed, given, or_refuted};
use crate::ranges::{MASK, ranges};
use crate::terms::{Look, limbs, named, parts};

/// The complete additions whose choice is proved, and the functions by which they decode.
pub const NAMES: [&str; 9] = [
    "modular::decode, P-256",
    "modular::decode, P-384",
    "modular::decode, order of P-256",
    "modular::decode, order of P-384",
    "modular::decode, order of Ed25519",
    "nist::point::add_assign_mixed_complete, P-256",
    "nist::point::add_assign_mixed_complete, P-384",
    "nist::point::add_assign_complete, P-256",
    "nist::point::add_assign_complete, P-384",
];

/// The results of a complete addition: the sum, the candidates of the choice, both differences, and
/// the same decoded.
struct Choice<'a, T> {
    out: &'a [T],
    twice: &'a [T],
    sum: &'a [T],
    differences: &'a [T],
    decoded: &'a [T],
}

impl<'a, T> Choice<'a, T> {
    fn of(results: &'a [T]) -> Self {
        let size = results.len() / 13;
        let (out, rest) = results.split_at(3 * size);
        let (twice, rest) = rest.split_at(3 * size);
        let (sum, rest) = rest.split_at(3 * size);
        let (differences, decoded) = rest.split_at(2 * size);
        Self {
            out,
            twice,
            sum,
            differences,
            decoded,
        }
    }
}

fn is_decoding(function: &Function) -> bool {
    function.name.starts_with("modular::decode")
}

/// Proves the choice of a function, or that it decodes.
pub fn prove(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<String, Failed> {
    let outcome = match is_decoding(function) {
        true => decodes(all, function, terms, results),
        false => chooses(all, function, terms, &Choice::of(results)),
    };
    let search = || search(function, terms, results);
    or_refuted(outcome, || {
        Some((search()?, "the portable lanes have another result".into()))
    })?;
    Ok(format!("{} terms", terms.list.len()))
}

/// out·R = a mod n, and out is below n: the remainder of a product with one.
fn decodes(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<(), String> {
    let name = function.name.replace("decode", "reduced");
    let product = template(all, &name).inputs_of(&terms.list, results);
    let product = product.ok_or("no remainder")?;
    let ranges = ranges(terms, &given(function))?;
    let limbs = limbs_of_r(function);
    let proof =
        Algebra::new(function, terms, &ranges, &product).prove(&read("out*R = a mod n", limbs))?;
    // The remainder is for tight numbers below a multiple of n: this is (a + m·n)/R, with a < R.
    let is_tight = |&place: &Place| (0..=i128::from(MASK)).contains(&ranges[place as usize].most);
    let is_positive = product
        .iter()
        .all(|&place| ranges[place as usize].least >= 0);
    if !is_positive || !product[..limbs - 1].iter().all(is_tight) {
        return Err("a limb of the product is too long".into());
    }
    let [times, _] = named(all, &name).inputs[0].below.ok_or("no bound")?;
    let bounds = Algebra::bounds(&ranges, &proof.quotient);
    let [_, most] = bounds.ok_or("a number may be negative")?;
    let n = modulus(function, &[]).expect("a modulus");
    let r = BigInt::from(1) << (52 * limbs);
    match &r + most * &n <= n * times * r {
        true => Ok(()),
        false => Err("the product is too large".into()),
    }
}

fn chooses(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    choice: &Choice<'_, Place>,
) -> Result<(), String> {
    let Term::Select([mask, ..]) = terms.term(choice.out[0]) else {
        return Err("no choice".into());
    };
    let points = choice.twice.iter().zip(choice.sum);
    let selects = points.map(|(twice, sum)| Term::Select([mask, *twice, *sum]));
    if !selects.eq(choice.out.iter().map(|&out| terms.term(out))) {
        return Err("another choice".into());
    }
    let asked = asked(terms, mask).ok_or("a mask that does not ask for zero")?;
    if asked != choice.decoded.iter().copied().collect() {
        return Err("the mask asks for other limbs".into());
    }
    let (_, curve) = function.name.split_once(", ").expect("a curve");
    let decode = template(all, &format!("modular::decode, {curve}"));
    let size = limbs_of_r(function);
    let differences = choice.differences.chunks(size);
    for (difference, decoded) in differences.zip(choice.decoded.chunks(size)) {
        if decode.inputs_of(&terms.list, decoded).as_deref() != Some(difference) {
            return Err("another number is decoded".into());
        }
    }
    formulas::differences(all, function, terms, choice.differences)
}

/// The words all of which are zero where a mask is set.
fn asked(terms: &Terms, mask: Place) -> Option<HashSet<Place>> {
    let ones = |place| terms.is(place, u64::MAX);
    let any_bit = |mask| match terms.term(mask) {
        Term::AnyBit([word, of]) if ones(of) => Some(word),
        _ => None,
    };
    let Term::Select([any, set, clear]) = terms.term(any_bit(mask)?) else {
        return None;
    };
    let mut words = vec![any_bit(any).filter(|_| terms.is(set, 0) && ones(clear))?];
    let mut asked = HashSet::new();
    while let Some(word) = words.pop() {
        match terms.term(word) {
            Term::Constant(0) => {}
            Term::Or(both) => words.extend(both),
            Term::Xor([a, zero]) | Term::Xor([zero, a]) if terms.is(zero, 0) => words.push(a),
            _ => _ = asked.insert(word),
        }
    }
    Some(asked)
}

/// Whether these results violate the statement.
fn is_wrong(function: &Function, inputs: &[u64], results: &[u64]) -> bool {
    let n = modulus(function, &[]).expect("a modulus");
    let size = limbs_of_r(function);
    let is_decoded = |a: &[u64], decoded: &[u64]| {
        let low: Vec<u64> = a.iter().map(|limb| limb & MASK).collect();
        let [a, out] = [&low[..], decoded].map(sum);
        (&out << (52 * size)) % &n == a % &n && out < n
    };
    if is_decoding(function) {
        return !is_decoded(inputs, results);
    }
    let choice = Choice::of(results);
    let is_equal = choice.decoded.iter().all(|&limb| limb == 0);
    let expected = if is_equal { choice.twice } else { choice.sum };
    let mut decoded = choice
        .differences
        .chunks(size)
        .zip(choice.decoded.chunks(size));
    choice.out != expected || !decoded.all(|(a, decoded)| is_decoded(a, decoded))
}

/// Searches inputs for which a statement is false, and for which it is true on the portable lanes.
fn search(function: &Function, terms: &Terms, results: &[Place]) -> Option<Vec<u64>> {
    let size = limbs_of_r(function);
    let n = modulus(function, &[]).expect("a modulus");
    let one = digits(&((BigInt::from(1) << (52 * size)) % &n), size);
    let top = digits(&n, size)[size - 1] / 2;
    let mut random = Random(1);
    (0..800).find_map(|round| {
        let limb = |i: usize| match (i + 1) % size {
            0 => random.word() % (top + 1),
            _ if round % 5 == 0 => MASK,
            _ => random.word() & MASK,
        };
        let mut inputs: Vec<u64> = (0..limbs(&function.inputs)).map(limb).collect();
        // A number that is decoded as zero, or by a carry as a number with few bits or near to n.
        let mut near: BigInt = BigInt::from(round / 8 % 3) << (52 * (round / 24 % size));
        near += round / 24 / size % 3;
        near = if round % 8 < 4 { near } else { -near };
        let beside =
            |a: &[u64]| digits(&(((sum(a) + (&near << (52 * size))) % &n + &n) % &n), size);
        if is_decoding(function) && round % 4 > 0 {
            inputs = beside(&vec![0; size]);
        } else if !is_decoding(function) {
            *inputs.last_mut().expect("a sign") = 0;
            // Denominators of one, so that coordinates may be equal: both, or one of them.
            let (p, q) = inputs.split_at_mut(3 * size);
            p[2 * size..].copy_from_slice(&one);
            for power in q[2 * size..].chunks_exact_mut(size) {
                power.copy_from_slice(&one);
            }
            // One coordinate or both are near, and the other one is the same.
            for (p, (q, of)) in p
                .chunks(size)
                .zip(q[..2 * size].chunks_mut(size).zip([1, 2]))
            {
                match round % 4 {
                    0 => {}
                    which if which & of == of => q.copy_from_slice(&beside(p)),
                    _ => q.copy_from_slice(p),
                }
            }
        }
        let is_wrong = |results: &[u64]| is_wrong(function, &inputs, results);
        let is_refuted = is_wrong(&terms.results(&inputs, results));
        (is_refuted && !is_wrong(&function.words(&inputs))).then_some(inputs)
    })
}

/// The terms by which a function chooses and decodes: terms that its other results do not have.
/// Products with zero are left out, whose limbs do not matter.
pub fn own_terms(function: &Function, terms: &Terms, results: &[Place]) -> HashSet<Place> {
    let mut known: HashSet<Place> = HashSet::new();
    if !is_decoding(function) {
        let choice = Choice::of(results);
        let others = [choice.twice, choice.sum, choice.differences];
        known.extend(others.into_iter().flatten());
    }
    let (mut own, mut places) = (HashSet::new(), results.to_vec());
    while let Some(place) = places.pop() {
        if !known.contains(&place) && own.insert(place) {
            places.extend(parts(terms.term(place)));
        }
    }
    own.retain(|&place| match terms.term(place) {
        Term::Low([_, a, b]) | Term::High([_, a, b]) => !terms.is(a, 0) && !terms.is(b, 0),
        _ => true,
    });
    own
}

/// The terms of an addition that subtracts where it should add: the choice agrees with itself.
pub fn other_sign(function: &Function, terms: &Terms, results: &[Place]) -> Option<Terms> {
    if is_decoding(function) {
        return None;
    }
    let last = *Choice::of(results).differences.iter().max()?;
    let mut wrong = terms.clone();
    for place in 0..=last {
        if let Term::Select([mask, minus, plus]) = terms.term(place) {
            wrong = wrong.changed(place, Term::Select([mask, plus, minus]));
        }
    }
    Some(wrong)
}
