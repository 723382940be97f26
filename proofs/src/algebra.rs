//! Statements about all inputs, by linear algebra over monomials.
//!
//! The difference of both sides of a statement is a sum of results. Each term is replaced by its
//! parts, from the last to the first: a sum by its operands, a mask or a shift by *bits* of the
//! number below it, a multiply by half a product. The two halves of a product meet as
//! low + 2^52·high = a·b, and all bits of a number as the number itself. Monomials in the inputs
//! and in bits are left. A statement holds if they vanish, or are a multiple of the modulus.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lockstep_kernels::proved::{Function, Operand, Place, Reduced, Term, Terms};
use num_bigint::BigInt;

use crate::claims::{Claim, find, modulus, operand};
use crate::ranges::{MASK, Range};
use crate::terms::Look;

/// Bits `from` up to `to` of a term that is neither a mask nor a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bits {
    pub of: Place,
    pub from: u32,
    pub to: u32,
}

impl Bits {
    /// All bits of a term.
    pub fn of(of: Place) -> Self {
        let (from, to) = (0, 64);
        Self { of, from, to }
    }

    /// Bits `from` up to `to` of these.
    fn part(self, from: u32, to: u32) -> Self {
        let (of, end) = (self.of, self.from);
        Self {
            of,
            from: end + from,
            to: end + to,
        }
    }

    /// The lowest of them.
    fn low(self, count: u32) -> Self {
        Self {
            to: self.to.min(self.from + count),
            ..self
        }
    }

    /// They, as a monomial.
    fn alone(self) -> Monomial {
        [None, Some(Atom::Bits(self))]
    }
}

/// A factor of a monomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// Bits of a term.
    Bits(Bits),
    /// The upper half of a product whose lower half is nowhere computed.
    Upper(Bits, Bits),
}

/// At most two atoms, in order.
pub type Monomial = [Option<Atom>; 2];

/// A polynomial.
pub type Polynomial = BTreeMap<Monomial, BigInt>;

/// The rest of a statement, and the multiple of the modulus that equals it.
pub struct Proof {
    pub monomials: usize,
    pub quotient: Polynomial,
}

pub struct Algebra<'a> {
    terms: &'a Terms,
    ranges: &'a [Range],
    function: &'a Function,
    results: &'a [Place],
    /// How often each term is in the difference.
    values: Vec<BigInt>,
    /// How often bits of each term are.
    bits: Vec<BTreeMap<(u32, u32), BigInt>>,
    /// How often each product's lower and upper halves are, by the later factor.
    products: Vec<BTreeMap<(Factor, Factor), [BigInt; 2]>>,
    rest: Polynomial,
    /// A modulus that is a constant, in a statement modulo it.
    modulus: Option<BigInt>,
    /// The multiple of it that was taken off.
    quotient: Polynomial,
    /// Whether a product of more than two factors was met, which nothing is said about.
    is_lost: bool,
}

/// A factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Factor {
    Constant(u64),
    Bits(Bits),
}

impl<'a> Algebra<'a> {
    pub fn new(
        function: &'a Function,
        terms: &'a Terms,
        ranges: &'a [Range],
        results: &'a [Place],
    ) -> Self {
        Self {
            terms,
            ranges,
            function,
            results,
            values: vec![BigInt::ZERO; terms.list.len()],
            bits: vec![BTreeMap::new(); terms.list.len()],
            products: vec![BTreeMap::new(); terms.list.len()],
            rest: Polynomial::new(),
            modulus: None,
            quotient: Polynomial::new(),
            is_lost: false,
        }
    }

    fn reduce_by_constant(&mut self) {
        if matches!(self.function.reduced, Reduced::Constant(_)) {
            self.modulus = modulus(self.function, &[]);
        }
    }

    /// Proves a statement, or returns the rest that did not vanish.
    pub fn prove(mut self, claim: &Claim) -> Result<Proof, String> {
        if claim.is_modular {
            self.reduce_by_constant();
        }
        for (names, factor) in &claim.difference {
            self.add_product_of_operands(names, factor);
        }
        self.visit_all();
        self.expand_doubled();
        self.expand_factors();
        self.is_found()?;
        self.refine();
        let monomials = self.rest.len();
        let quotient = self.divide(claim)?;
        Ok(Proof {
            monomials,
            quotient,
        })
    }

    /// A sum of terms, as monomials in inputs and bits, modulo the modulus if that is a constant.
    pub fn sum(mut self, sum: &[(Place, BigInt)]) -> Result<Polynomial, String> {
        self.reduce_by_constant();
        for (place, times) in sum {
            self.add_value(*place, times);
        }
        self.visit_all();
        self.expand_factors();
        if let Some(n) = &self.modulus {
            self.rest.retain(|_, times| &*times % n != BigInt::ZERO);
        }
        self.refine();
        self.is_found().map(|()| self.rest)
    }

    /// That no product was met about which nothing is known.
    fn is_found(&self) -> Result<(), String> {
        match self.is_lost {
            true => Err("a product has more than two factors".into()),
            false => Ok(()),
        }
    }

    /// Proves that a sum of terms is this number, exactly.
    pub fn prove_number(mut self, sum: &[(Place, BigInt)], number: &BigInt) -> Result<(), String> {
        for (place, times) in sum {
            self.add_value(*place, times);
        }
        self.add_monomial([None; 2], &-number);
        self.visit_all();
        self.refine();
        match self.rest.iter().next() {
            Some((monomial, times)) => Err(self.left(monomial, times)),
            None => Ok(()),
        }
    }

    /// A term as bits of another one.
    fn resolve(&self, place: Place) -> Bits {
        let mut bits = Bits::of(place);
        loop {
            let term = self.terms.term(bits.of);
            let Bits { from, to, .. } = bits;
            let (of, from, to) = match term {
                Term::Right(a, count) => (a, from + count, (to + count).min(64)),
                Term::High([zero, a, power]) if self.terms.is(zero, 0) => {
                    let power = self
                        .terms
                        .constant(power)
                        .filter(|power| power.is_power_of_two() && *power <= MASK);
                    let Some(power) = power else { break };
                    let by = 52 - power.trailing_zeros();
                    (a, from + by, 52.min(to + by))
                }
                _ => match self.terms.masked(term) {
                    Some((a, count)) => (a, from, to.min(count)),
                    None => break,
                },
            };
            bits = Bits { of, from, to };
        }
        self.clip(bits)
    }

    /// All bits of a term that may be set.
    fn whole(&self, place: Place) -> Bits {
        self.clip(Bits::of(place))
    }

    /// Without bits that are always zero.
    fn clip(&self, bits: Bits) -> Bits {
        let range = self.ranges[bits.of as usize];
        let length = match range.least >= 0 && range.most <= i128::from(u64::MAX) {
            true => 128 - range.most.leading_zeros(),
            false => 64,
        };
        Bits {
            to: bits.to.min(length.max(bits.from)),
            ..bits
        }
    }

    fn most(&self, bits: Bits) -> u128 {
        match bits.from < bits.to {
            true => self.ranges[bits.of as usize].most_of(bits.from, bits.to),
            false => 0,
        }
    }

    /// A factor of a multiply that reads its low `read` bits.
    fn factor(&self, place: Place, read: u32) -> Factor {
        match self.terms.constant(place) {
            Some(value) => Factor::Constant(value & ((1 << read) - 1)),
            None => Factor::Bits(self.resolve(place).low(read)),
        }
    }

    fn add_value(&mut self, place: Place, times: &BigInt) {
        let bits = self.resolve(place);
        self.add_bits(bits, times);
    }

    fn add_bits(&mut self, bits: Bits, times: &BigInt) {
        if bits == self.whole(bits.of) {
            self.values[bits.of as usize] += times;
        } else if self.most(bits) > 0 {
            let entry = self.bits[bits.of as usize].entry((bits.from, bits.to));
            *entry.or_default() += times;
        }
    }

    fn add_monomial(&mut self, mut atoms: Monomial, times: &BigInt) {
        for atom in &atoms {
            if let Some(Atom::Bits(bits)) = atom
                && self.most(*bits) == 0
            {
                return;
            }
        }
        // Nothing sorts before an atom.
        atoms.sort();
        add_to(&mut self.rest, atoms, times);
    }

    fn add_half(&mut self, half: usize, [a, b]: [Place; 2], times: &BigInt) {
        let mut factors = [a, b].map(|place| self.factor(place, 52));
        factors.sort();
        let at = factors.iter().filter_map(|factor| match factor {
            Factor::Bits(bits) => Some(bits.of),
            Factor::Constant(_) => None,
        });
        let Some(at) = at.max() else {
            let [Factor::Constant(a), Factor::Constant(b)] = factors else {
                unreachable!()
            };
            let product = u128::from(a) * u128::from(b);
            let halves = [product as u64 & MASK, (product >> 52) as u64];
            return self.add_monomial([None; 2], &(times * halves[half]));
        };
        let entry = self.products[at as usize]
            .entry((factors[0], factors[1]))
            .or_default();
        entry[half] += times;
    }

    /// Adds a whole product.
    fn add_product(&mut self, factors: (Factor, Factor), times: &BigInt) {
        match factors {
            (Factor::Constant(a), Factor::Constant(b)) => {
                self.add_monomial([None; 2], &(times * a * b));
            }
            (Factor::Constant(a), Factor::Bits(b)) | (Factor::Bits(b), Factor::Constant(a)) => {
                let b = self.clip(b);
                self.add_bits(b, &(times * a));
            }
            (Factor::Bits(a), Factor::Bits(b)) => {
                let atoms = [a, b].map(|bits| Some(Atom::Bits(self.clip(bits))));
                self.add_monomial(atoms, times);
            }
        }
    }

    /// The place of an input that is read.
    fn input(&self, i: usize) -> Option<Place> {
        let is_it = |term: &Term| *term == Term::Input(i as u32);
        let place = self.terms.list.iter().position(is_it)?;
        Some(place as Place)
    }

    /// Adds a product of operands to the difference.
    fn add_product_of_operands(&mut self, names: &[String], times: &BigInt) {
        let limbs = |name: &String| -> (&Operand, bool, Vec<Place>) {
            if let Some((operand, at)) = operand(self.function, name) {
                let places = (at..at + operand.limbs).map(|i| self.input(i).unwrap_or(0));
                return (operand, false, places.collect());
            }
            let (operand, at) = find(&self.function.outputs, name).expect("an operand");
            (operand, true, self.results[at..at + operand.limbs].to_vec())
        };
        match names {
            [] => self.add_monomial([None; 2], times),
            [name] if name == "n" && operand(self.function, "n").is_none() => {
                let n = modulus(self.function, &[]).expect("a modulus");
                self.add_monomial([None; 2], &(times * n));
            }
            [name] => {
                let (operand, is_result, places) = limbs(name);
                for (i, &place) in places.iter().enumerate() {
                    let times = times << (52 * i);
                    // The uppermost limb of a result counts as a whole.
                    if operand.loose && !(is_result && i + 1 == places.len()) {
                        let factors = (Factor::Constant(1), self.factor(place, 52));
                        self.add_product(factors, &times);
                    } else {
                        self.add_value(place, &times);
                    }
                }
            }
            [left, right] => {
                let (left, right) = (limbs(left), limbs(right));
                // A factor has limbs of 52 bits.
                let is_factor = |operand: &Operand| operand.loose || operand.range[1] <= MASK;
                assert!(
                    is_factor(left.0) && is_factor(right.0),
                    "columns as a factor"
                );
                for (i, &a) in left.2.iter().enumerate() {
                    for (j, &b) in right.2.iter().enumerate() {
                        let factors = (self.factor(a, 52), self.factor(b, 52));
                        self.add_product(factors, &(times << (52 * (i + j))));
                    }
                }
            }
            _ => panic!("a product of more than two operands"),
        }
    }

    fn visit_all(&mut self) {
        for place in (0..self.terms.list.len() as Place).rev() {
            self.visit(place);
        }
    }

    /// Replaces computed factors by their parts, where the modulus does not divide their products.
    /// Works on the sum of all monomials that share the other factor.
    fn expand_factors(&mut self) {
        let Some(n) = self.modulus.clone() else {
            return;
        };
        let computed = |atom: &Option<Atom>| match atom {
            Some(Atom::Bits(bits)) if bits.from == 0 => {
                (!matches!(self.terms.term(bits.of), Term::Input(_))).then_some(*bits)
            }
            _ => None,
        };
        let mut sums: BTreeMap<Atom, Vec<(Bits, BigInt)>> = BTreeMap::new();
        let mut rest = Polynomial::new();
        for (monomial, times) in &self.rest {
            let [a, b] = monomial;
            match (computed(a), computed(b), a, b) {
                (Some(bits), None, _, Some(other)) | (None, Some(bits), Some(other), _)
                    if times % &n != BigInt::ZERO =>
                {
                    sums.entry(*other).or_default().push((bits, times.clone()));
                }
                _ => add_to(&mut rest, *monomial, times),
            }
        }
        for (other, sum) in sums {
            let mut inner = Self::new(self.function, self.terms, self.ranges, self.results);
            inner.modulus = self.modulus.clone();
            for (bits, times) in sum {
                inner.add_bits(bits, &times);
            }
            inner.visit_all();
            for (to, from) in [
                (&mut rest, inner.rest),
                (&mut self.quotient, inner.quotient),
            ] {
                for ([a, b], times) in from {
                    self.is_lost |= a.is_some();
                    let mut product = [b, Some(other)];
                    product.sort();
                    add_to(to, product, &times);
                }
            }
        }
        self.rest = rest;
    }

    fn visit(&mut self, place: Place) {
        for (factors, halves) in std::mem::take(&mut self.products[place as usize]) {
            self.join(factors, halves);
        }
        self.join_bits(place);
        let mut times = std::mem::take(&mut self.values[place as usize]);
        if let Some(n) = &self.modulus
            && (&times - 1) % n == BigInt::ZERO
            && times != BigInt::from(1)
        {
            // A column that carries nothing.
            let column = self.whole(place).alone();
            add_to(&mut self.quotient, column, &(&times / n));
            times = BigInt::from(1);
        }
        if times == BigInt::ZERO {
            return;
        }
        match self.terms.term(place) {
            Term::Constant(value) => self.add_monomial([None; 2], &(times * value)),
            Term::Add([a, b]) => {
                self.add_value(a, &times);
                self.add_value(b, &times);
            }
            Term::Sub([a, b]) => {
                self.add_value(a, &times);
                self.add_value(b, &-times);
            }
            Term::Left(a, count) => self.add_value(a, &(times << count)),
            Term::Low([acc, a, b]) => {
                self.add_value(acc, &times);
                self.add_half(0, [a, b], &times);
            }
            Term::High([acc, a, b]) => {
                self.add_value(acc, &times);
                self.add_half(1, [a, b], &times);
            }
            Term::Short([acc, a, b]) => {
                self.add_value(acc, &times);
                let factors = (self.factor(a, 32), self.factor(b, 32));
                self.add_product(factors, &times);
            }
            Term::Select([mask, set, clear]) if self.bit(mask).is_some() => {
                let bit = self.bit(mask).expect("a bit");
                self.add_value(clear, &times);
                for (place, times) in [(set, times.clone()), (clear, -times)] {
                    match self.terms.constant(place) {
                        Some(value) => self.add_bits(bit, &(times * value)),
                        None => {
                            let atoms =
                                [bit, self.resolve(place)].map(|bits| Some(Atom::Bits(bits)));
                            self.add_monomial(atoms, &times);
                        }
                    }
                }
            }
            _ => self.add_monomial(self.whole(place).alone(), &times),
        }
    }

    /// The bit that a mask asks for.
    fn bit(&self, mask: Place) -> Option<Bits> {
        let Term::AnyBit([a, bits]) = self.terms.term(mask) else {
            return None;
        };
        let bits = self
            .terms
            .constant(bits)
            .filter(|bits| bits.is_power_of_two())?;
        let (all, at) = (self.resolve(a), bits.trailing_zeros());
        let bit = all.part(at, at + 1);
        // The highest bit of a number without bounds is not its sign.
        let is_word = bit.to < 64 || self.ranges[bit.of as usize].is_word();
        (bit.to <= all.to && is_word).then_some(bit)
    }

    /// Both halves of a product.
    fn join(&mut self, factors: (Factor, Factor), [low, high]: [BigInt; 2]) {
        let most = |factor| match factor {
            Factor::Constant(value) => u128::from(value),
            Factor::Bits(bits) => self.most(bits),
        };
        let (a, b) = factors;
        let is_short = most(a)
            .checked_mul(most(b))
            .is_some_and(|most| most >> 52 == 0);
        let more = &high - (&low << 52);
        if let (Factor::Constant(power), Factor::Bits(b), true) = (a, b, more != BigInt::ZERO)
            && power.is_power_of_two()
        {
            let at = b.from + 52 - power.trailing_zeros();
            let (of, lower, upper) = (b.of, b.to.min(at), b.to.max(at));
            for (from, to, times) in [(b.from, lower, low * power), (at, upper, high)] {
                self.add_bits(self.clip(Bits { of, from, to }), &times);
            }
            return;
        }
        self.add_product(factors, &low);
        if is_short || more == BigInt::ZERO {
            return;
        }
        let times = &more >> 52;
        if let (Some(x), true) = (self.vanishing(a, b), &times << 52 == more) {
            // The lower half is 2^52 − 1 − x.
            self.add_product(factors, &times);
            self.add_monomial([None; 2], &-(&times * MASK));
            self.add_product((Factor::Constant(1), self.factor(x, 52)), &times);
            return;
        }
        let upper = |factor| match factor {
            Factor::Bits(bits) => bits,
            // Never the place of bits.
            Factor::Constant(value) => Bits {
                of: Place::MAX,
                from: value as u32,
                to: (value >> 32) as u32,
            },
        };
        self.add_monomial([None, Some(Atom::Upper(upper(a), upper(b)))], &more);
    }

    /// x, where one factor is −1/k0 and the other k0·(1 + x) mod 2^52: their product is
    /// −(1 + x) mod 2^52, of which the low half is 2^52 − 1 − x.
    fn vanishing(&self, a: Factor, b: Factor) -> Option<Place> {
        let (m, n) = match (a, b) {
            (Factor::Bits(m), n @ Factor::Constant(_))
            | (n @ Factor::Constant(_), Factor::Bits(m)) => (m, n),
            (Factor::Bits(a), Factor::Bits(b)) => match a.of > b.of {
                true => (a, Factor::Bits(b)),
                false => (b, Factor::Bits(a)),
            },
            _ => return None,
        };
        let Term::Low([one, x, k0]) = self.terms.term(m.of) else {
            return None;
        };
        if m.from != 0 || m.to < 52 || one != k0 {
            return None;
        }
        let is_inverse = match (n, self.terms.term(k0)) {
            (Factor::Constant(n), Term::Constant(k0)) => {
                n.wrapping_mul(k0).wrapping_add(1) & MASK == 0
            }
            (Factor::Bits(n), Term::Input(k0)) => {
                let at = |name| operand(self.function, name).map(|(_, at)| at as u32);
                let is_n0 = n == self.whole(n.of).low(52)
                    && matches!(self.terms.term(n.of), Term::Input(input) if Some(input) == at("n"));
                matches!(self.function.reduced, Reduced::By(_)) && is_n0 && Some(k0) == at("k0")
            }
            _ => false,
        };
        is_inverse.then_some(x)
    }

    /// The lowest bits of a term as the term and the bits above.
    fn join_bits(&mut self, place: Place) {
        let used = std::mem::take(&mut self.bits[place as usize]);
        if used.is_empty() {
            return;
        }
        let end = self.whole(place).to;
        let mut cuts: BTreeSet<u32> = used.keys().flat_map(|&(from, to)| [from, to]).collect();
        cuts.extend([0, end]);
        let cuts: Vec<u32> = cuts.into_iter().collect();
        let mut pieces = vec![BigInt::ZERO; cuts.len() - 1];
        for ((from, to), times) in used {
            for (piece, cut) in pieces.iter_mut().zip(&cuts) {
                if (from..to).contains(cut) {
                    *piece += &times << (cut - from);
                }
            }
        }
        if let Some(n) = &self.modulus {
            // The carry asks for so many; the others may be a multiple of the modulus.
            let carried = match &pieces[..] {
                [_, carry] if *carry != BigInt::ZERO => carry >> cuts[1],
                _ => BigInt::ZERO,
            };
            let others = &pieces[0] - &carried;
            if others != BigInt::ZERO && &others % n == BigInt::ZERO {
                let low = Bits::of(place).low(cuts[1]).alone();
                add_to(&mut self.quotient, low, &(others / n));
                pieces[0] = carried;
            }
        }
        let whole = pieces[0].clone();
        self.values[place as usize] += &whole;
        for (i, piece) in pieces.into_iter().enumerate().skip(1) {
            let bits = Bits::of(place).part(cuts[i], cuts[i + 1]);
            self.add_monomial(bits.alone(), &(piece - (&whole << cuts[i])));
        }
    }

    /// Factors that are twice a number, with the bit that the limb below carries: 2y + b, of which
    /// 2^52 times the top bit of y is lost. As 2y is even, b carries nothing further.
    fn expand_doubled(&mut self) {
        self.rest = self.replaced(|atom| {
            let Bits {
                of,
                from: 0,
                to: 52,
            } = atom
            else {
                return None;
            };
            let twice = |place| match self.terms.term(place) {
                Term::Add([a, b]) if a == b => Some(self.resolve(a)),
                Term::Left(a, 1) => Some(self.resolve(a)),
                _ => None,
            };
            let (y, below) = match self.terms.term(of) {
                Term::High([acc, z, two]) if self.terms.is(two, 2) => {
                    (twice(acc)?, Some(self.resolve(z)))
                }
                _ => (twice(of)?, None),
            };
            let top = |bits: Bits| (bits.to >= bits.from + 52).then(|| bits.part(51, 52));
            let mut sum = vec![(BigInt::from(2), y.low(52))];
            sum.extend(top(y).map(|top| (-BigInt::from(1_u64 << 52), top)));
            sum.extend(below.and_then(top).map(|top| (1.into(), top)));
            Some(sum)
        });
    }

    /// Cuts the bits of each term alike in all monomials.
    fn refine(&mut self) {
        let mut cuts: BTreeMap<Place, BTreeSet<u32>> = BTreeMap::new();
        for atom in self.rest.keys().flatten().flatten() {
            if let Atom::Bits(Bits { of, from, to }) = *atom {
                cuts.entry(of).or_default().extend([from, to]);
            }
        }
        self.rest = self.replaced(|Bits { of, from, to }| {
            let cuts: Vec<u32> = cuts[&of].range(from..=to).copied().collect();
            let pieces = cuts.windows(2).map(|pair| {
                let piece = Bits::of(of).part(pair[0], pair[1]);
                (BigInt::from(1) << (pair[0] - from), piece)
            });
            (cuts.len() > 2).then(|| pieces.collect())
        });
    }

    /// Replaces bits by sums, wherever they are.
    fn replaced(&self, sum_of: impl Fn(Bits) -> Option<Vec<(BigInt, Bits)>>) -> Polynomial {
        let mut known: HashMap<Atom, Vec<(BigInt, Atom)>> = HashMap::new();
        let mut rest = Polynomial::new();
        for (monomial, times) in &self.rest {
            let mut sum = vec![([None; 2], times.clone())];
            for atom in monomial.iter().flatten() {
                let parts = known.entry(*atom).or_insert_with(|| {
                    let sum = match atom {
                        Atom::Bits(bits) => sum_of(*bits),
                        Atom::Upper(..) => None,
                    };
                    let Some(sum) = sum else {
                        return vec![(1.into(), *atom)];
                    };
                    let parts = sum.into_iter().filter(|(_, bits)| self.most(*bits) > 0);
                    parts
                        .map(|(times, bits)| (times, Atom::Bits(bits)))
                        .collect()
                });
                let products = sum
                    .iter()
                    .flat_map(|([_, other], by): &(Monomial, BigInt)| {
                        parts
                            .iter()
                            .map(move |(factor, atom)| ([*other, Some(*atom)], by * factor))
                    });
                sum = products.collect();
            }
            for (mut monomial, times) in sum {
                monomial.sort();
                add_to(&mut rest, monomial, &times);
            }
        }
        rest
    }

    /// The multiple of the modulus that the rest is.
    fn divide(&mut self, claim: &Claim) -> Result<Polynomial, String> {
        let is_modular = claim.is_modular;
        let mut quotient = std::mem::take(&mut self.quotient);
        match &self.function.reduced {
            Reduced::Constant(_) if is_modular => {
                let n = modulus(self.function, &[]).expect("a modulus");
                for (monomial, times) in &self.rest {
                    if times % &n != BigInt::ZERO {
                        return Err(self.left(monomial, times));
                    }
                    add_to(&mut quotient, *monomial, &(times / &n));
                }
                return Ok(quotient);
            }
            Reduced::By(_) if is_modular => {
                let (n, at) = operand(self.function, "n").expect("a modulus");
                let limb = |i| Some(Atom::Bits(self.resolve(self.input(i)?)));
                let n: Vec<Option<Atom>> = (at..at + n.limbs).map(limb).collect();
                let mut with_lowest = self.rest.clone();
                with_lowest.retain(|monomial, _| monomial.contains(&n[0]));
                for ([a, b], times) in with_lowest {
                    let other = if a == n[0] { b } else { a };
                    for (i, n) in n.iter().enumerate() {
                        let mut product = [other, *n];
                        product.sort();
                        add_to(&mut self.rest, product, &-(&times << (52 * i)));
                    }
                    quotient.insert([None, other], times);
                }
            }
            _ => {}
        }
        // Both sides are in 0..2^e, and differ by a multiple of 2^e.
        if !is_modular && let Some(end) = self.common_end(claim) {
            self.rest
                .retain(|_, times| (&*times >> end) << end != *times);
        }
        match self.rest.iter().next() {
            Some((monomial, times)) => Err(self.left(monomial, times)),
            None => Ok(quotient),
        }
    }

    /// 2^e above both sides of a statement `out = …`, which are not negative.
    fn common_end(&self, claim: &Claim) -> Option<usize> {
        let mut result = None;
        let (mut most, mut least) = (BigInt::ZERO, [BigInt::ZERO; 2]);
        for (names, times) in &claim.difference {
            if let ([name], true) = (&names[..], *times == BigInt::from(1))
                && let Some((operand, _)) = find(&self.function.outputs, name)
            {
                let is_tight = !operand.loose && operand.range[1] <= MASK && operand.top <= MASK;
                if !is_tight || result.is_some() {
                    return None;
                }
                result = Some(52 * operand.limbs);
                continue;
            }
            let mut factors = names.iter().map(|name| self.most_of_operand(name));
            let product = factors.try_fold(BigInt::from(1), |product, most| Some(product * most?));
            if *times < BigInt::ZERO {
                most -= times * product?;
            }
            // Below, in units of n: the multiple of n that is added, and the one that is
            // subtracted.
            let [name] = &names[..] else {
                if *times > BigInt::ZERO {
                    return None;
                }
                continue;
            };
            match (
                name.as_str(),
                operand(self.function, name).and_then(|(operand, _)| operand.below),
            ) {
                ("n", _) => least[0] -= times,
                (_, Some([below, 1])) if *times > BigInt::ZERO => least[1] += times * below,
                _ if *times > BigInt::ZERO => return None,
                _ => {}
            }
        }
        let end = result?;
        (most >> end == BigInt::ZERO && least[0] >= least[1]).then_some(end)
    }

    fn most_of_operand(&self, name: &str) -> Option<BigInt> {
        let lists = [&self.function.inputs, &self.function.outputs];
        let (operand, _) = lists.into_iter().find_map(|list| find(list, name))?;
        let (limb, top) = match operand.loose {
            true => (MASK, operand.top.min(MASK)),
            false => (operand.range[1], operand.top),
        };
        Some((0..operand.limbs).fold(BigInt::ZERO, |sum, i| {
            let most = if i + 1 == operand.limbs { top } else { limb };
            sum + (BigInt::from(most) << (52 * i))
        }))
    }

    fn left(&self, monomial: &Monomial, times: &BigInt) -> String {
        let times = times.to_string();
        let times = match times.len() > 24 {
            true => format!("a number of {} digits", times.len()),
            false => times,
        };
        format!(
            "{} monomials are left, as {times} times {monomial:?}",
            self.rest.len()
        )
    }

    /// The least and the greatest value of a polynomial; nothing if a number in it may be negative.
    pub fn bounds(ranges: &[Range], polynomial: &Polynomial) -> Option<[BigInt; 2]> {
        let (mut least, mut most) = (BigInt::ZERO, BigInt::ZERO);
        for (monomial, times) in polynomial {
            let is_word = |atom: &Atom| match atom {
                Atom::Bits(bits) => bits.to < 64 || ranges[bits.of as usize].is_word(),
                Atom::Upper(..) => true,
            };
            if !monomial.iter().flatten().all(is_word) {
                return None;
            }
            let most_of = |atom: &Atom| match atom {
                Atom::Bits(bits) => ranges[bits.of as usize].most_of(bits.from, bits.to),
                Atom::Upper(..) => 1 << 52,
            };
            let greatest = monomial.iter().flatten().map(most_of);
            let greatest = greatest.fold(BigInt::from(1), |product, most| product * most);
            if monomial.iter().all(Option::is_none) {
                least += times;
                most += times;
            } else if *times > BigInt::ZERO {
                most += times * greatest;
            } else {
                least += times * greatest;
            }
        }
        Some([least, most])
    }
}

fn add_to(polynomial: &mut Polynomial, monomial: Monomial, times: &BigInt) {
    let entry = polynomial.entry(monomial).or_default();
    *entry += times;
    if *entry == BigInt::ZERO {
        polynomial.remove(&monomial);
    }
}
