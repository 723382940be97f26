//! Results that are fully reduced, and comparisons: a distinction by the last carry of a chain.
//!
//! A chain of carries writes a number as low parts, each in its bits, and a carry c above them:
//! x + 2^e − n = low + c·2^e. So c says whether x ≥ n, and low is x − n if it does.

use lockstep_kernels::proved::{Function, Place, Reduced, Term, Terms};
use num_bigint::BigInt;

use crate::algebra::Algebra;
use crate::claims::{modulus, operand};
use crate::ranges::{MASK, Range, ranges};
use crate::terms::Look;

/// A function whose statement compares.
struct Compared<'a> {
    function: &'a Function,
    terms: Terms,
    given: &'a [Range],
    limbs: usize,
    /// The places of the limbs of n, if n is an operand.
    n: Option<Vec<Place>>,
}

/// Proves `out = a % n`, or `out = -(a >= n)`.
pub fn prove(
    function: &Function,
    terms: &Terms,
    results: &[Place],
    given: &[Range],
    is_remainder: bool,
) -> Result<(), String> {
    let (a, at) = operand(function, "a").expect("an operand");
    let mut compared = Compared {
        function,
        terms: terms.clone(),
        given,
        limbs: a.limbs,
        n: None,
    };
    let a_limbs = compared.inputs(at);
    if let Some((_, at)) = operand(function, "n") {
        compared.n = Some(compared.inputs(at));
    }
    if !is_remainder {
        return match compared.term(results[0]) {
            Term::Select([mask, set, clear])
                if compared.is(set, u64::MAX) && compared.is(clear, 0) =>
            {
                compared.is_at_least(mask, &a_limbs, None)
            }
            _ => Err("no choice between all ones and zero".into()),
        };
    }
    if a.loose {
        return compared.folded(results, &a_limbs);
    }
    let Some([times, 1]) = a.below else {
        return Err("a has no bound".into());
    };
    // Each choice between x and x − n takes the bound down by one.
    let (mut below, mut number) = (times, results.to_vec());
    while number != a_limbs {
        let Some((mask, set, clear)) = compared.choice(&number) else {
            return Err("no choice between two numbers".into());
        };
        compared.is_at_least(mask, &clear, Some(&set))?;
        number = clear;
        below -= 1;
    }
    match below {
        0 | 1 => Ok(()),
        _ => Err(format!("it may be {below}·n")),
    }
}

impl Compared<'_> {
    fn term(&self, place: Place) -> Term {
        self.terms.term(place)
    }

    fn is(&self, place: Place, value: u64) -> bool {
        self.terms.is(place, value)
    }

    /// The limbs of an operand.
    fn inputs(&mut self, at: usize) -> Vec<Place> {
        let limbs = at..at + self.limbs;
        limbs
            .map(|i| self.terms.place(Term::Input(i as u32)))
            .collect()
    }

    /// The mask by which each limb is chosen, and both numbers.
    fn choice(&self, number: &[Place]) -> Option<(Place, Vec<Place>, Vec<Place>)> {
        let select = |&limb: &Place| match self.term(limb) {
            Term::Select(parts) => Some(parts),
            _ => None,
        };
        let limbs: Vec<[Place; 3]> = number.iter().map(select).collect::<Option<_>>()?;
        let [mask, set, clear] = [0, 1, 2].map(|part| limbs.iter().map(move |limb| limb[part]));
        let mut masks: Vec<Place> = mask.collect();
        masks.dedup();
        (masks.len() == 1).then(|| (masks[0], set.collect(), clear.collect()))
    }

    /// The terms of a chain of carries, from the lowest, by the last of them.
    fn chain(&self, last: Place, limbs: usize) -> Result<Vec<Place>, String> {
        let mut chain = vec![last];
        while chain.len() < limbs {
            let mut parts = vec![chain[0]];
            let mut below = None;
            while let Some(part) = parts.pop() {
                match self.term(part) {
                    Term::Add(both) | Term::Sub(both) => parts.extend(both),
                    Term::Right(place, 52) => below = Some(place),
                    _ => {}
                }
            }
            chain.insert(0, below.ok_or("no chain of carries")?);
        }
        Ok(chain)
    }

    /// The low parts of a chain, the last one with `last` bits, and the carry above.
    fn parts(&mut self, chain: &[Place], last: u32) -> Vec<(Place, BigInt)> {
        let mut sum = Vec::new();
        for (i, &place) in chain.iter().enumerate() {
            let bits = if i + 1 == chain.len() { last } else { 52 };
            let mask = self.terms.place(Term::Constant((1 << bits) - 1));
            sum.push((self.terms.place(Term::And([place, mask])), shifted(1, i)));
        }
        let top = *chain.last().expect("terms");
        let carry = self.terms.place(Term::Right(top, last));
        let end = 52 * (chain.len() - 1) + last as usize;
        sum.push((carry, BigInt::from(1) << end));
        sum
    }

    /// That a sum is a number, and that the carry is 0 or 1.
    fn holds(&self, sum: &[(Place, BigInt)], number: &BigInt, carry: Place) -> Result<(), String> {
        let ranges = ranges(&self.terms, self.given)?;
        Algebra::new(self.function, &self.terms, &ranges, &[]).prove_number(sum, number)?;
        match ranges[carry as usize] {
            Range {
                least: 0,
                most: 0 | 1,
                ..
            } => Ok(()),
            range => Err(format!("a carry from {} to {}", range.least, range.most)),
        }
    }

    /// That a mask says x ≥ n, and that this difference is x − n then.
    fn is_at_least(
        &mut self,
        mask: Place,
        x: &[Place],
        difference: Option<&[Place]>,
    ) -> Result<(), String> {
        let carry = match self.term(mask) {
            Term::AnyBit([carry, one]) if self.is(one, 1) => carry,
            _ => return Err("a mask that asks for another bit".into()),
        };
        let Term::Right(last, 52) = self.term(carry) else {
            return Err("a mask that asks for no carry".into());
        };
        let chain = self.chain(last, self.limbs)?;
        let mut sum = self.parts(&chain, 52);
        let mut low = sum.iter().map(|(place, _)| *place);
        if difference.is_some_and(|limbs| !limbs.iter().all(|&limb| low.next() == Some(limb))) {
            return Err("the difference is not the chain's".into());
        }
        let mut number = BigInt::from(1) << (52 * self.limbs);
        sum.extend(
            x.iter()
                .enumerate()
                .map(|(i, &limb)| (limb, shifted(-1, i))),
        );
        match (&self.n, &self.function.reduced) {
            (Some(n), _) => {
                sum.extend(n.iter().enumerate().map(|(i, &limb)| (limb, shifted(1, i))))
            }
            (None, Reduced::Constant(_)) => {
                number -= modulus(self.function, &[]).expect("a modulus");
            }
            _ => return Err("no modulus".into()),
        }
        self.holds(&sum, &number, carry)
    }

    /// x mod 2^255 − 19 for x below twice that: c = ⌊(x + 19)/2^255⌋ says whether x is not below,
    /// and (x + 19·c) mod 2^255 is the result.
    fn folded(&mut self, results: &[Place], x: &[Place]) -> Result<(), String> {
        let last = results.len() - 1;
        let below = |compared: &Self, place: Place| match compared.term(place) {
            Term::And([a, _]) => Ok(a),
            _ => Err("a result without a mask"),
        };
        let upper = below(self, results[last])?;
        let lowest = below(self, results[0])?;
        let over = match self.term(lowest) {
            Term::Low([_, over, times]) | Term::Short([_, over, times]) if self.is(times, 19) => {
                over
            }
            _ => return Err("19 times nothing".into()),
        };
        let Term::Right(top, 47) = self.term(over) else {
            return Err("no bit above 2^255".into());
        };
        let mask = self.terms.place(Term::Constant(MASK));
        let mut minus_x = Vec::new();
        for (i, &limb) in x.iter().enumerate() {
            minus_x.push((self.terms.place(Term::And([limb, mask])), shifted(-1, i)));
        }
        let chain = self.chain(top, results.len())?;
        let mut sum = self.parts(&chain, 47);
        sum.extend(minus_x.clone());
        self.holds(&sum, &BigInt::from(19), over)?;
        let chain = self.chain(upper, results.len())?;
        let mut sum = self.parts(&chain, 47);
        if !sum
            .iter()
            .zip(results)
            .all(|((low, _), result)| low == result)
        {
            return Err("the results are not the chain's".into());
        }
        let carry = sum[results.len()].0;
        sum.extend(minus_x);
        sum.push((over, BigInt::from(-19)));
        self.holds(&sum, &BigInt::ZERO, carry)?;
        // Below 2n by its top limb.
        let (a, _) = operand(self.function, "a").expect("an operand");
        let n = modulus(self.function, &[]).expect("a modulus");
        match BigInt::from(a.top + 1) << (52 * last) < n * 2 {
            true => Ok(()),
            false => Err("a may be 2n".into()),
        }
    }
}

/// `times` at limb `i`.
fn shifted(times: i32, i: usize) -> BigInt {
    BigInt::from(times) << (52 * i)
}
