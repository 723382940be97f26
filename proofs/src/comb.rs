//! Multiples of points of the Edwards form: the comb, and the windows of a signature's equation.
//!
//! From the result back, each addition and each doubling must be the terms of a formula that was
//! proved on its own, of the point before and of an entry. The law has no exceptions, so the points
//! need no check. Entries and signs remain. They are tried for all values of their digits, bit by
//! bit, with all other bits unknown: each must be the multiple that the digit names.
//!
//! The bits of the comb's digits are the bits of x/2 for an odd x below 2^254. The algebra shows
//! that this number is scalar + 2^253 mod L. A digit of w bits b is 2b − 2^w + 1; so all of them
//! make x − 2^253.

use std::collections::HashMap;

use lockstep_kernels::proved::{Function, Place, Term, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::algebra::{Algebra, Atom, Bits as AtomBits};
use crate::bits::{Bit, Bits, Word, known};
use crate::claims::{digits, modulus, operand, sum};
use crate::edwards::{self, PREFIX};
use crate::formulas::Template;
use crate::proof::{Failed, given, or_refuted};
use crate::ranges::{MASK, ranges};
use crate::terms::{Look, limbs, parts};

/// The functions that are proved.
pub const NAMES: [&str; 4] = [
    "curve25519::comb",
    "curve25519::comb, halves",
    "curve25519::verify_equation",
    "curve25519::verify_equation, halves",
];

/// Limbs of a point.
const POINT: usize = 20;
/// Where the digits of the comb begin in x, and their bits.
const DIGITS: [(usize, usize); 36] = {
    let mut all = [(1, 8); 36];
    let mut j = 1;
    while j < 36 {
        all[j] = (2 + 7 * j, 7);
        j += 1;
    }
    all
};

/// Digits of v and of u.
const DIGITS_OF_HALF: usize = 65;

/// Terms that are cut off are inputs from here on.
const FIRST: u32 = 1000;

/// A point's x and y.
type Affine = [BigInt; 2];

/// The curve in numbers.
struct Curve {
    p: BigInt,
    d: BigInt,
}

impl Curve {
    fn reduce(&self, a: BigInt) -> BigInt {
        (a % &self.p + &self.p) % &self.p
    }

    fn inverse(&self, a: &BigInt) -> BigInt {
        a.modinv(&self.p).expect("no zero")
    }

    fn add(&self, [x, y]: &Affine, [u, v]: &Affine) -> Affine {
        let s = self.reduce(&self.d * x * u % &self.p * y * v);
        let [above, below] = [1 + &s, self.reduce(1 - s)];
        let inverse = self.inverse(&self.reduce(&above * &below));
        [
            self.reduce((x * v + u * y) * (below * &inverse % &self.p)),
            self.reduce((y * v + x * u) * (above * &inverse % &self.p)),
        ]
    }

    fn times(&self, number: &BigInt, point: &Affine) -> Affine {
        let bits = (0..number.bits()).rev();
        bits.fold([0.into(), 1.into()], |sum, i| {
            let twice = self.add(&sum, &sum);
            match number.bit(i) {
                true => self.add(&twice, point),
                false => twice,
            }
        })
    }

    /// y = 4/5, and x is even.
    fn base(&self) -> Affine {
        let y = self.reduce(4 * self.inverse(&5.into()));
        let yy = &y * &y;
        let xx = self.reduce((&yy - 1) * self.inverse(&self.reduce(&self.d * &yy + 1)));
        let root = xx.modpow(&((&self.p + 3) / 8), &self.p);
        let i = BigInt::from(2).modpow(&((&self.p - 1) / 4), &self.p);
        let x = match self.reduce(&root * &root) == xx {
            true => root,
            false => self.reduce(root * i),
        };
        let x = if x.bit(0) { &self.p - x } else { x };
        [x, y]
    }

    /// Limbs of the table's entry of a point.
    fn entry(&self, [x, y]: &Affine) -> Vec<u64> {
        let half = (&self.p + 1) / 2;
        let numbers = [(y + x) * &half, (y - x) * half, &self.d * x % &self.p * y];
        let limbs = numbers.map(|a| digits(&self.reduce(a), 5));
        limbs.concat()
    }
}

/// Data of all checks.
pub struct Comb {
    curve: Curve,
    order: BigInt,
    base: Affine,
    /// The entries of odd multiples, for each digit.
    entries: Vec<Vec<Vec<u64>>>,
    /// By their names.
    pieces: HashMap<String, Template>,
}

impl Comb {
    pub fn new(all: &[Function]) -> Result<Self, String> {
        let named = |name: &str| crate::terms::named(all, name);
        let n = modulus(named("curve25519::edwards::new"), &[]);
        let order = modulus(named(NAMES[0]), &[]);
        let (p, order) = (n.ok_or("no modulus")?, order.ok_or("no order")?);
        let curve = Curve {
            d: edwards::d(&p)?,
            p,
        };
        let base = curve.base();
        if curve.times(&order, &base) != [0.into(), 1.into()] {
            return Err("the base point has another order".into());
        }
        let mut unit = base.clone();
        let mut entries = Vec::new();
        for (j, (_, bits)) in DIGITS.into_iter().enumerate() {
            let twice = curve.add(&unit, &unit);
            let odd = std::iter::successors(Some(unit), |point| Some(curve.add(point, &twice)));
            let odd: Vec<Affine> = odd.take(1 << (bits - 1)).collect();
            // 2^bits times it is the next one's unit: the last multiple is that less one.
            unit = curve.add(&odd[odd.len() - 1], &odd[0]);
            let of_first = |[x, y]: &Affine| [digits(x, 5), digits(y, 5)].concat();
            let entry = |point| match j {
                0 => of_first(point),
                _ => curve.entry(point),
            };
            entries.push(odd.iter().map(entry).collect());
        }
        let pieces = all.iter().filter_map(|function| {
            let name = function.name.strip_prefix(PREFIX)?;
            Some((name.to_owned(), Template::call(all, &function.name)))
        });
        let pieces = pieces.collect();
        Ok(Self {
            curve,
            order,
            base,
            entries,
            pieces,
        })
    }

    /// Proves one of [`NAMES`], of which these are the terms.
    pub fn prove(
        &self,
        function: &Function,
        terms: &Terms,
        results: &[Place],
    ) -> Result<String, Failed> {
        let check = Check {
            comb: self,
            function,
            terms,
            lanes: if function.name.ends_with("halves") {
                ", halves"
            } else {
                ""
            },
        };
        let outcome = match is_equation(function) {
            true => check.equation(results),
            false => check.combs(results),
        };
        let search = || self.search(function, terms, results);
        or_refuted(outcome, || {
            Some((search()?, "the portable lanes have another point".into()))
        })?;
        Ok(format!("{} terms", terms.list.len()))
    }

    /// The points that results should be.
    fn expected(&self, function: &Function, inputs: &[u64]) -> Vec<Affine> {
        let scalar = |at: usize| sum(&inputs[at..at + 5]) % &self.order;
        let of = |scalar| self.curve.times(&scalar, &self.base);
        if !is_equation(function) {
            let [a, b] = [0, 5].map(|at| of(scalar(at)));
            return vec![a.clone(), a, b];
        }
        let multiple = |i: usize| {
            let number = |at: usize| sum(&inputs[at..at + 5]);
            let [x, y, z] = [0, 5, 10].map(|at| number(POINT * i + at));
            let inverse = self.curve.inverse(&z);
            let minus = [-x, y].map(|a| self.curve.reduce(a * &inverse));
            // Each digit has 8 added to it.
            let eights = ((BigInt::from(1) << 260) - 1) / 15 * 8;
            let times = (number(2 * POINT + 5 * i) - eights) % &self.order + &self.order;
            self.curve.times(&(times % &self.order), &minus)
        };
        vec![self.curve.add(&multiple(0), &multiple(1))]
    }

    /// Inputs for which a point is another one, by portable lanes.
    fn search(&self, function: &Function, terms: &Terms, results: &[Place]) -> Option<Vec<u64>> {
        let mut random = Random(1);
        (0..100).find_map(|_| {
            let count = limbs(&function.inputs);
            let limb = |i: usize| random.word() >> if (count - i) % 5 == 1 { 16 } else { 12 };
            let mut inputs: Vec<u64> = (0..count).map(limb).collect();
            if is_equation(function) {
                for i in 0..2 {
                    let point = self.curve.times(&(inputs[i] >> 20).into(), &self.base);
                    let [x, y] = &point;
                    let new = &self.pieces["new"];
                    let point = new.results_for(&[digits(x, 5), digits(y, 5)].concat());
                    inputs[POINT * i..POINT * (i + 1)].copy_from_slice(&point);
                }
            }
            let expected = self.expected(function, &inputs);
            let words = if is_equation(function) { 0 } else { 8 };
            let size = (results.len() - words) / expected.len();
            let is_wrong = |found: &[u64]| {
                expected
                    .iter()
                    .zip(found[words..].chunks(size))
                    .any(|([x, y], limbs)| {
                        let numbers = limbs.chunks(5).map(sum).collect::<Vec<BigInt>>();
                        let z = &numbers[2];
                        let stated = [x * z, y * z, z.clone(), x * y % &self.curve.p * z];
                        let mut all = numbers.iter().zip(stated);
                        let is_zero = |a: BigInt| self.curve.reduce(a) == BigInt::ZERO;
                        is_zero(z.clone()) || all.any(|(a, stated)| !is_zero(a - stated))
                    })
            };
            let is_refuted = is_wrong(&terms.results(&inputs, results));
            (is_refuted && !is_wrong(&function.words(&inputs))).then_some(inputs)
        })
    }
}

fn is_equation(function: &Function) -> bool {
    function.name.contains("equation")
}

/// A check of one function.
struct Check<'a> {
    comb: &'a Comb,
    function: &'a Function,
    terms: &'a Terms,
    lanes: &'static str,
}

impl Check<'_> {
    /// The operands from which a formula has computed these results.
    fn made(&self, what: &str, results: &[Place]) -> Result<Vec<Place>, String> {
        let piece = &self.comb.pieces[&format!("{what}{}", self.lanes)];
        let made = piece.inputs_of(&self.terms.list, results);
        made.ok_or_else(|| format!("no {what}"))
    }

    /// That points are the multiples by two scalars, one alone and both together.
    fn combs(&self, results: &[Place]) -> Result<(), String> {
        let (words, points) = results.split_at(8);
        self.comb(&words[..4], "scalar", &points[..POINT])?;
        self.comb(&words[4..], "other", &points[2 * POINT..])?;
        match points[..POINT] == points[POINT..2 * POINT] {
            true => Ok(()),
            false => Err("another point together with others".into()),
        }
    }

    /// That a point is the multiple of the base point by a scalar, of which these are the words of
    /// digits.
    fn comb(&self, words: &[Place], scalar: &str, point: &[Place]) -> Result<(), String> {
        let mut point = point.to_vec();
        let mut entries = Vec::new();
        for _ in 1..DIGITS.len() {
            let made = self.made("add_affine", &point)?;
            entries.push(made[POINT..].to_vec());
            point = made[..POINT].to_vec();
        }
        entries.push(self.made("signed", &point)?);
        let x = self.number(words, scalar)?;
        let mut cut = self.terms.clone();
        for (i, limb) in x.iter().enumerate() {
            cut.list[*limb as usize] = Term::Input(FIRST + i as u32);
        }
        let digits = DIGITS.into_iter().zip(entries.iter().rev());
        for (j, ((at, count), places)) in digits.enumerate() {
            for digit in 0..1_usize << count {
                let bit = |i: usize| match i.checked_sub(at) {
                    _ if i > 253 => Bit::Known(false),
                    Some(i) if i < count => Bit::Known(digit >> i & 1 == 1),
                    _ => Bit::Unknown,
                };
                let limb = |i: u32| -> Word {
                    std::array::from_fn(|k| match i.checked_sub(FIRST) {
                        Some(i) if k < 52 => bit(52 * i as usize + k),
                        Some(_) => Bit::Known(false),
                        None => Bit::Unknown,
                    })
                };
                let mut bits = Bits::new(&cut, &limb);
                // 2·digit − 2^count + 1, of which half of the absolute value is the index.
                let half = 1 << (count - 1);
                let (is_negative, index) = match digit.checked_sub(half) {
                    Some(index) => (false, index),
                    None => (true, half - 1 - digit),
                };
                let (mask, limbs) = places.split_last().expect("a mask");
                let mut entry = limbs.iter().zip(&self.comb.entries[j][index]);
                if bits.of(*mask)[0] != Bit::Known(is_negative)
                    || !entry.all(|(limb, value)| bits.of(*limb) == known(*value))
                {
                    return Err(format!("another entry for {digit} as digit {j}"));
                }
            }
        }
        Ok(())
    }

    /// The limbs of x, whose bits digits are.
    fn number(&self, words: &[Place], scalar: &str) -> Result<Vec<Place>, String> {
        let term = |place| self.terms.term(place);
        // Each word has bits of two limbs.
        let both = |&word: &Place| {
            let Term::Or([low, high]) = term(word) else {
                return None;
            };
            match (term(low), term(high)) {
                (Term::Right(a, _), Term::Xor([b, _])) => match term(b) {
                    Term::Left(b, _) => Some([a, b]),
                    _ => None,
                },
                _ => None,
            }
        };
        let both: Option<Vec<[Place; 2]>> = words.iter().map(both).collect();
        let both = both.ok_or("words of another form")?;
        let mut x: Vec<Place> = both.iter().map(|[a, _]| *a).collect();
        x.push(both[3][1]);
        let (terms, _, x_of) = self.terms.below(&x);
        let (_, at) = operand(self.function, scalar).expect("a scalar");
        let place = |term: Term| {
            let place = terms.list.iter().position(|other| *other == term);
            place.ok_or("an input that is not read")
        };
        let mut sum = Vec::new();
        for (i, &limb) in x_of.iter().enumerate() {
            let scalar = place(Term::Input((at + i) as u32))? as Place;
            let power = BigInt::from(1) << (52 * i);
            sum.extend([(limb, power.clone()), (scalar, -power)]);
        }
        let top = sum[9].0;
        let above = place(Term::Right(top, 44))?;
        let bits = Atom::Bits(AtomBits {
            of: top,
            from: 44,
            to: 48,
        });
        let ranges_of = ranges(&terms, &given(self.function))?;
        // The bits of the scalar above 2^252 are tried: a term that depends on them alone is a
        // number.
        let most = u8::try_from(ranges_of[above].most).map_err(|_| "too many bits")?;
        for value in 0..=u64::from(most) {
            let mut inputs = vec![0; limbs(&self.function.inputs)];
            inputs[at + 4] = value << 44;
            let (values, mut cut) = (terms.values(&inputs), terms.clone());
            for (i, term) in terms.list.iter().enumerate() {
                let is_number = |&part: &Place| cut.constant(part).is_some();
                let is_fixed =
                    !matches!(term, Term::Input(_)) && parts(*term).iter().all(is_number);
                if i == above || is_fixed {
                    cut.list[i] = Term::Constant(values[i]);
                }
            }
            let ranges = ranges(&cut, &given(self.function))?;
            let rest = Algebra::new(self.function, &cut, &ranges, &[]).sum(&sum)?;
            let mut number = BigInt::from(-1) << 253;
            for (monomial, times) in rest {
                number += match monomial {
                    [None, None] => times,
                    [None, Some(atom)] if atom == bits => times * value,
                    _ => return Err(format!("x depends on {monomial:?}")),
                };
            }
            if number % &self.comb.order != BigInt::ZERO {
                return Err("another number modulo the order".into());
            }
        }
        let most = |i: usize| if i < 4 { MASK } else { (1 << 46) - 1 };
        let is_within = |(i, &limb): (usize, &Place)| {
            let range = ranges_of[limb as usize];
            range.least >= 0 && range.most <= i128::from(most(i))
        };
        match x_of.iter().enumerate().all(is_within) && self.is_odd(x[0]) {
            true => Ok(x),
            false => Err("another number than an odd one below 2^254".into()),
        }
    }

    /// Whether a limb is odd: a number less an odd one where it is even.
    fn is_odd(&self, limb: Place) -> bool {
        let of = || {
            let (difference, _) = self.terms.masked(self.terms.term(limb))?;
            let Term::Sub([a, b]) = self.terms.term(difference) else {
                return None;
            };
            let Term::Select([mask, zero, odd]) = self.terms.term(b) else {
                return None;
            };
            let asks = Term::AnyBit([a, self.place(Term::Constant(1))?]);
            let odd = self.terms.constant(odd)?;
            Some(self.terms.term(mask) == asks && self.terms.is(zero, 0) && odd & 1 == 1)
        };
        of() == Some(true)
    }

    fn place(&self, term: Term) -> Option<Place> {
        let place = self.terms.list.iter().position(|other| *other == term);
        place.map(|place| place as Place)
    }

    /// The operands from which an addition that never subtracts has computed these results.
    fn added(&self, results: &[Place]) -> Result<(Vec<Place>, Vec<Place>), String> {
        let made = self.made("add_cached", results)?;
        let mut bits = Bits::new(self.terms, &|_| [Bit::Unknown; 64]);
        match bits.of(made[2 * POINT])[0] {
            Bit::Known(false) => Ok((made[..POINT].into(), made[POINT..2 * POINT].into())),
            _ => Err("a sign where there is none".into()),
        }
    }

    /// That these are X, Y and Z of −(v·P + u·Q).
    fn equation(&self, out: &[Place]) -> Result<(), String> {
        let mut point = out.to_vec();
        let mut cut = self.terms.clone();
        for window in 0..DIGITS_OF_HALF {
            // Q first, from the back.
            for (which, addition) in [(1, "add_cached, false"), (0, "add_cached")] {
                let made = self.made(addition, &point)?;
                let (found, mask) = (&made[POINT..2 * POINT], made[2 * POINT]);
                let first = FIRST + 8 * (POINT * which) as u32;
                if window == 0 {
                    let multiples = self.multiples(found, (POINT * which) as u32)?;
                    for (i, &place) in multiples.iter().flatten().enumerate() {
                        cut.list[place as usize] = Term::Input(first + i as u32);
                    }
                }
                self.digit(&cut, found, mask, [which, window])?;
                point = made[..POINT].to_vec();
            }
            if window < DIGITS_OF_HALF - 1 {
                point = self.made("double, true", &point)?;
                for _ in 0..3 {
                    point = self.made("double, false", &point)?;
                }
            }
        }
        let zero = self.made("new", &point)?;
        let mut zero = zero.iter().enumerate();
        match zero.all(|(i, &limb)| self.terms.is(limb, u64::from(i == 5))) {
            true => Ok(()),
            false => Err("the windows begin with another point".into()),
        }
    }

    /// That each digit subtracts the multiple that it names: with 8 added to it, it is from 0 to
    /// 15.
    fn digit(
        &self,
        cut: &Terms,
        found: &[Place],
        mask: Place,
        [which, window]: [usize; 2],
    ) -> Result<(), String> {
        let (limb, from) = (2 * POINT + 5 * which + window / 13, 4 * (window % 13));
        let first = FIRST + 8 * (POINT * which) as u32;
        for digit in 0..16_usize {
            let input = |i: u32| -> Word {
                std::array::from_fn(|k| match k.checked_sub(from) {
                    _ if i >= FIRST => Bit::Of(i, k as u8),
                    Some(k) if k < 4 && i as usize == limb => Bit::Known(digit >> k & 1 == 1),
                    _ => Bit::Unknown,
                })
            };
            let mut bits = Bits::new(cut, &input);
            let is_right = |(i, &limb): (usize, &Place)| {
                bits.of(limb)
                    == match digit.abs_diff(8) {
                        // 1, 1, 1 and 0.
                        0 => known(u64::from(i % 5 == 0 && i < 15)),
                        times => input(first + ((times - 1) * 20 + i) as u32),
                    }
            };
            if !found.iter().enumerate().all(is_right) || bits.of(mask)[0] != Bit::Known(digit >= 8)
            {
                return Err(format!("another multiple for {digit} as digit {window}"));
            }
        }
        Ok(())
    }

    /// The multiples 1 to 8 of the point that goes in as the inputs from `first` on, which entries
    /// are chosen from.
    fn multiples(&self, found: &[Place], first: u32) -> Result<Vec<Vec<Place>>, String> {
        let mut found = found.to_vec();
        let mut multiples = Vec::new();
        for _ in 0..8 {
            let mut multiple = Vec::new();
            for limb in &mut found {
                let Term::Select([_, set, clear]) = self.terms.term(*limb) else {
                    return Err("another choice".into());
                };
                multiple.push(set);
                *limb = clear;
            }
            multiples.insert(0, multiple);
        }
        let mut point = self.made("cached", &multiples[7])?;
        for multiple in multiples[..7].iter().rev() {
            let (less, one) = self.added(&point)?;
            point = self.made("cached", multiple)?;
            if less != point || one != multiples[0] {
                return Err("another multiple".into());
            }
        }
        let mut point = point.iter().zip(first..);
        match point.all(|(&limb, i)| self.terms.term(limb) == Term::Input(i)) {
            true => Ok(multiples),
            false => Err("multiples of another point".into()),
        }
    }
}
