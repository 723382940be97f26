//! Statements as the kernels' table has them: `out*R = a*b mod n`, read, and checked for numbers.

use std::collections::BTreeMap;

use lockstep_kernels::proved::{Function, Operand, Reduced};
use num_bigint::BigInt;

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
        let mut factor = BigInt::from(sign);
        for word in side.split(' ') {
            match word {
                "+" => factor = sign.into(),
                "-" => factor = (-sign).into(),
                product => {
                    let mut names = Vec::new();
                    for name in product.split('*') {
                        match name.parse::<u64>() {
                            Ok(number) => factor *= number,
                            Err(_) if name == "R" => factor <<= 52 * limbs,
                            Err(_) => names.push(name.to_owned()),
                        }
                    }
                    names.sort();
                    *difference.entry(names).or_default() += &factor;
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

/// The number that limbs are.
pub fn sum(limbs: &[u64]) -> BigInt {
    let limbs = limbs.iter().rev();
    limbs.fold(BigInt::ZERO, |sum, &limb| (sum << 52) + limb)
}

/// The number that limbs are. The uppermost limb of a result counts as a whole.
pub fn number(limbs: &[u64], operand: &Operand, is_result: bool) -> BigInt {
    let mut limbs = limbs.to_vec();
    let counted = limbs.len() - usize::from(is_result);
    if operand.loose {
        limbs[..counted].iter_mut().for_each(|limb| *limb &= MASK);
    }
    sum(&limbs)
}

/// The limbs of a number.
pub fn digits(value: &BigInt, count: usize) -> Vec<u64> {
    let digit = |i: usize| (value >> (52 * i)) & BigInt::from(MASK);
    let digits = (0..count).map(|i| u64::try_from(digit(i)).expect("52 bits"));
    digits.collect()
}
