//! Multiplies of 52 bits that no proof has met: the instructions of the module that did not run in
//! any, function by function. So a product that a compiler writes out where nobody looks is found.

use std::collections::{BTreeMap, HashSet};

use iced_x86::{Instruction, Mnemonic};

use crate::defects::Planted;
use crate::machine::Module;
use crate::proof::Failed;

/// Functions with multiplies that did not run, by a part of their names, and how many those are at
/// most. A product of two numbers has 60 or more.
const KNOWN: [(&str, usize); 11] = [
    // Checks of signatures of Ed25519, of which nothing is secret: proved from source.
    ("curve25519::verify_equation::subtract_digit<", 480),
    ("curve25519::edwards::are_equal<", 240),
    ("curve25519::verify_equation::minus_point<", 62),
    ("curve25519::edwards::root<", 484),
    ("curve25519::edwards::root_base<", 361),
    ("curve25519::edwards::is_on_curve<", 201),
    // Steps of an inversion, by small factors.
    ("nist::inverse::combine<", 65),
    ("nist::inverse::steps<", 8),
    // Carries, of which nothing is left but 19 times a limb, or the factor of a Montgomery
    // reduction.
    ("curve25519::batch_inverse::invert_all_lanes<", 1),
    ("curve25519::x25519::on_montgomery<", 2),
    ("nist::scalar_mul::", 4),
];

/// Where multiplies are, by their functions.
pub type Multiplies = BTreeMap<String, Vec<u64>>;

/// All multiplies of the module.
pub fn multiplies(module: &Module) -> Multiplies {
    let functions = module.functions();
    let mut all = Multiplies::new();
    for pair in functions.windows(2) {
        let [(start, name), (end, _)] = [pair[0], pair[1]];
        let found = module.between([start, end]).into_iter();
        let found = found.filter(is_multiply).map(|i| i.ip());
        let found: Vec<u64> = found.collect();
        if !found.is_empty() {
            all.entry(name.to_owned()).or_default().extend(found);
        }
    }
    all
}

fn is_multiply(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Vpmadd52luq | Mnemonic::Vpmadd52huq)
}

/// Counts the multiplies that ran. Fails if more of a function did not run than `KNOWN` allows.
pub fn check(all: &Multiplies, ran: &HashSet<u64>) -> Result<String, Failed> {
    let mut met = 0;
    let mut wanted: HashSet<&str> = KNOWN.iter().map(|(part, _)| *part).collect();
    for (name, places) in all {
        let left = places.iter().filter(|place| !ran.contains(place)).count();
        met += places.len() - left;
        let known = KNOWN.iter().find(|(part, _)| name.contains(part));
        match known {
            Some((part, most)) if left <= *most => _ = wanted.remove(part),
            _ if left == 0 => {}
            _ => {
                let why = format!("{left} multiplies of {name} are in no proof");
                return Err(format!("{why}, and KNOWN in proofs/src/covered.rs has fewer").into());
            }
        }
    }
    if let Some(part) = wanted.iter().next() {
        return Err(format!("no multiplies in {part}").into());
    }
    let count: usize = all.values().map(Vec::len).sum();
    Ok(format!("{met} of {count} multiplies"))
}

/// Leaves one multiply at a time out of the ones that ran: each must be missed.
pub fn defects(all: &Multiplies, ran: &HashSet<u64>) -> Planted {
    let mut planted = Planted::default();
    let is_known = |name: &str| KNOWN.iter().any(|(part, _)| name.contains(part));
    let mut ran = ran.clone();
    for (name, places) in all.iter().filter(|(name, _)| !is_known(name)) {
        let place = places[places.len() / 2];
        ran.remove(&place);
        let is_found = check(all, &ran).is_err();
        ran.insert(place);
        planted.add(is_found, || {
            format!("a multiply of {name} that is in no proof")
        });
    }
    planted
}
