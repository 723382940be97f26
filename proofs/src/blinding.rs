//! RSA's blinding: the products of its functions, and their order.
//!
//! Each product, mask and remainder was proved on its own. Their terms are found among the terms of
//! `blind` and `unblind`, from the results back to the operands, and operands are in the bounds
//! that were proved for. So with a pair (r^e·R, R/r) the result is the private operation: x is
//! input·r^e, the exponentiation makes y = x^d = input^d·r of it, and y·(R/r)/R is input^d, below
//! n. The squared parts are the pair of r².

use lockstep_kernels::proved::{Function, Operand, Place, Term, Terms};

use crate::claims::{limbs_of_r, operand};
use crate::formulas::template;
use crate::proof::{Failed, or_refuted};
use crate::terms::{Look, named};
use crate::tries::search;

/// The functions that are proved.
pub const NAMES: [&str; 4] = [
    "rsa::blinding, 20 limbs",
    "rsa::blinding, 40 limbs",
    "rsa::blinding, 60 limbs",
    "rsa::blinding, 80 limbs",
];

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

fn attempt(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<(), String> {
    let size = limbs_of_r(function);
    // The operands from which a proved function has computed these results.
    let made = |what: &str, results: &[Place]| {
        let name = format!("montgomery::{what}");
        let found = template(all, &name).inputs_of(&terms.list, results);
        found.ok_or(format!("no {name}"))
    };
    let [multiply, square, mask, canonical] = [
        format!("multiply, {size} limbs, loop"),
        format!("square, {size} limbs, loop"),
        format!("mask_limbs, {size} limbs"),
        format!("canonical, {size} limbs"),
    ];
    let row = |name: &str| named(all, &format!("montgomery::{name}"));
    let is_made_of = |made: &[Place], names: &[&str], of: &[Operand]| {
        let mut at = 0;
        let mut all = names.iter().zip(of).map(|(name, to)| {
            let (from, begin) = operand(function, name).expect("an operand");
            let mut places = (begin..).zip(&made[at..at + from.limbs]);
            at += from.limbs;
            places.all(|(i, &place)| terms.term(place) == Term::Input(i as u32)) && fits(from, to)
        });
        match all.all(|is_it| is_it) && at == made.len() {
            true => Ok(()),
            false => Err(format!("not of {names:?}")),
        }
    };
    let [x, next_blind, out, next_unblind] = [0, 1, 2, 3].map(|i| &results[i * size..][..size]);
    let factors = &row(&multiply).inputs;
    is_made_of(
        &made(&multiply, x)?,
        &["input", "blind", "n", "k0"],
        factors,
    )?;
    for (next, pair) in [(next_blind, "blind"), (next_unblind, "unblind")] {
        let squared = made(&square, &made(&mask, next)?)?;
        is_made_of(&squared, &[pair, "n", "k0"], &row(&square).inputs)?;
    }
    let remainder = made(&canonical, out)?;
    let (masked, n) = remainder.split_at(size);
    is_made_of(n, &["n"], &row(&canonical).inputs[1..])?;
    let product = made(&multiply, &made(&mask, masked)?)?;
    is_made_of(&product, &["y", "unblind", "n", "k0"], factors)?;
    // It is masked; its uppermost limb is that of its bound.
    match is_below(&row(&multiply).outputs[0], &row(&canonical).inputs[0]) {
        true => Ok(()),
        false => Err("the product is too large".into()),
    }
}

/// Whether one operand may be another one.
pub fn fits(from: &Operand, to: &Operand) -> bool {
    from.range[1] <= to.range[1] && from.top <= to.top && is_below(from, to)
}

fn is_below(from: &Operand, to: &Operand) -> bool {
    match (from.below, to.below) {
        (_, None) => true,
        (Some([times, of]), Some([most, by])) => times * by <= most * of,
        _ => false,
    }
}
