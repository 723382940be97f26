//! Multiples of points: the result of a multiplication is taken apart into the additions and
//! doublings that are proved on their own, down to its first point.
//!
//! The operand of each addition is tried for all values of the bits that its digit reads. So every
//! point is known as a multiple that is a sum of bits of the scalar, and the last must be the
//! scalar itself. The least and the greatest value of each multiple show whether an addition may
//! meet equal points, opposite ones or infinity.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::OnceLock;

use lockstep_kernels::proved::{Function, Place, Term, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::algebra::Algebra;
use crate::bits::{Bit, Bits, Word, value};
use crate::claims::{digits, limbs_of_r, modulus, sum};
use crate::defects::Planted;
use crate::formulas::{self, Template};
use crate::proof::{Failed, as_portable, given, or_refuted};
use crate::ranges::{MASK, ranges};
use crate::terms::{Look, limbs, named};

/// A number among the inputs, from limb `first` on, which is below 2^length.
#[derive(Clone, Copy)]
pub struct Number {
    pub first: usize,
    pub length: usize,
    pub is_odd: bool,
    /// Limbs of several lanes lie side by side, with a part of a number each.
    pub parts: Parts,
}

/// How numbers lie in lanes: each has several, with all bits from a multiple of `width` on.
#[derive(Clone, Copy)]
pub struct Parts {
    pub lanes: usize,
    pub of_each: usize,
    pub width: usize,
    /// Which of the numbers is meant.
    pub which: usize,
    /// This bit of it is set as well.
    pub top: usize,
}

/// One number in one lane.
pub const WHOLE: Parts = Parts {
    lanes: 1,
    of_each: 1,
    width: 0,
    which: 0,
    top: usize::MAX,
};

impl Number {
    /// An input where `bits` of the number have this value: its other bits are not known, and nor
    /// is any other input.
    fn word(&self, input: u32, bits: &Range<usize>, value: usize) -> Word {
        let parts = self.parts;
        let unknown = [Bit::Unknown; 64];
        let Some(at) = (input as usize).checked_sub(self.first) else {
            return unknown;
        };
        let (limb, lane) = (at / parts.lanes, at % parts.lanes);
        if lane / parts.of_each != parts.which {
            return unknown;
        }
        let skipped = 52 * limb + lane % parts.of_each * parts.width;
        std::array::from_fn(|i| match skipped + i {
            _ if i >= 52 => Bit::Known(false),
            at if at >= self.length => Bit::Known(at == parts.top),
            0 if self.is_odd => Bit::Known(true),
            at if bits.contains(&at) => Bit::Known(value >> (at - bits.start) & 1 == 1),
            _ => Bit::Unknown,
        })
    }

    /// The number itself, as a multiple.
    fn multiple(&self) -> Multiple {
        let bits = usize::from(self.is_odd)..self.length;
        Multiple {
            constant: u32::from(self.is_odd).into(),
            bits: bits.map(|bit| (bit, BigInt::from(1) << bit)).collect(),
            size: [BigInt::ZERO, (BigInt::from(1) << self.length) - 1],
        }
    }
}

/// A whole number that depends on bits of another one: a constant, and the part that each bit adds.
#[derive(Clone, Debug)]
pub struct Multiple {
    constant: BigInt,
    bits: BTreeMap<usize, BigInt>,
    /// Its least and its greatest absolute value.
    size: [BigInt; 2],
}

impl Multiple {
    /// Results of `ask` for every value of these bits, as a sum over the bits.
    pub fn tried(
        terms: &Terms,
        number: Number,
        bits: Range<usize>,
        mut ask: impl FnMut(&mut Bits<'_>) -> Option<BigInt>,
    ) -> Result<Self, String> {
        let mut values = Vec::new();
        for value in 0..1 << bits.len() {
            let input = |input| number.word(input, &bits, value);
            let found = ask(&mut Bits::new(terms, &input));
            values.push(found.ok_or_else(|| format!("nothing known for {value} in {bits:?}"))?);
        }
        let adds = |i: usize| &values[1 << i] - &values[0];
        let is_sum = values.iter().enumerate().all(|(value, found)| {
            let set = (0..bits.len()).filter(|i| value >> i & 1 == 1);
            set.fold(values[0].clone(), |sum, i| sum + adds(i)) == *found
        });
        if !is_sum {
            return Err(format!("no sum of {bits:?}"));
        }
        let size = |value: &BigInt| value.magnitude().clone().into();
        Ok(Self {
            constant: values[0].clone(),
            bits: bits.clone().zip((0..bits.len()).map(adds)).collect(),
            size: [values.iter().map(size).min(), values.iter().map(size).max()]
                .map(|size| size.expect("values")),
        })
    }

    /// A number that depends on nothing.
    pub fn constant(constant: BigInt) -> Self {
        let size = [0, 1].map(|_| constant.magnitude().clone().into());
        Self {
            constant,
            bits: BTreeMap::new(),
            size,
        }
    }

    /// Whether they are the same sums.
    pub fn is(&self, other: &Self) -> bool {
        self.constant == other.constant && self.bits == other.bits
    }

    pub fn plus(&self, other: &Self) -> Self {
        let ([a, b], [c, d]) = (&self.size, &other.size);
        let mut bits = self.bits.clone();
        for (bit, times) in &other.bits {
            *bits.entry(*bit).or_default() += times;
        }
        bits.retain(|_, times| *times != BigInt::ZERO);
        let constant = &self.constant + &other.constant;
        let size = match bits.is_empty() {
            true => [0, 1].map(|_| constant.magnitude().clone().into()),
            false => [(c - b).max(a - d).max(BigInt::ZERO), b + d],
        };
        Self {
            constant,
            bits,
            size,
        }
    }

    pub fn doubled(&self) -> Self {
        Self {
            constant: &self.constant * 2,
            bits: self.bits.iter().map(|(bit, a)| (*bit, a * 2)).collect(),
            size: self.size.clone().map(|size| size * 2),
        }
    }

    /// Below which size a number is no multiple of n but 0, for an odd n: an even number is not n
    /// itself.
    fn end(&self, n: &BigInt) -> BigInt {
        let mut all = [&self.constant].into_iter().chain(self.bits.values());
        n * (1 + u32::from(all.all(|times| !times.bit(0))))
    }

    /// That it is no multiple of n.
    pub fn is_finite(&self, n: &BigInt) -> Result<(), String> {
        match self.size[0] > BigInt::ZERO && self.size[1] < self.end(n) {
            true => Ok(()),
            false => Err(format!("it may be infinity: {:x?}", self.size)),
        }
    }

    /// That both are finite, and neither equal nor opposite modulo n.
    pub fn differs(&self, other: &Self, n: &BigInt) -> Result<(), String> {
        self.is_finite(n)?;
        other.is_finite(n)?;
        let ([a, b], [c, d]) = (&self.size, &other.size);
        // Their sum is even if and only if their difference is.
        match (b < c || d < a) && b + d < self.plus(other).end(n) {
            true => Ok(()),
            false => Err("both points may be equal or opposite".into()),
        }
    }
}

/// A point, affine; nothing is infinity.
type Affine = Option<[BigInt; 2]>;

/// A curve y² = x³ − 3x + b, in numbers.
struct Curve {
    name: &'static str,
    p: BigInt,
    n: BigInt,
    /// Limbs of its numbers.
    size: usize,
    g: [BigInt; 2],
}

/// SEC 2, 2.4.2 and 2.5.1: G.
const BASES: [(&str, [&str; 2]); 2] = [
    (
        "P-256",
        [
            "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
            "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
        ],
    ),
    (
        "P-384",
        [
            "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b98\
             59f741e082542a385502f25dbf55296c3a545e3872760ab7",
            "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147c\
             e9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
        ],
    ),
];

impl Curve {
    fn of(all: &[Function], function: &Function) -> Self {
        let (name, base) = BASES
            .into_iter()
            .find(|(name, _)| function.name.ends_with(name))
            .expect("a curve");
        let number = |hex: &str| BigInt::parse_bytes(hex.as_bytes(), 16).expect("a number");
        let point = named(all, &format!("nist::point::double_times, {name}"));
        Self {
            name,
            p: modulus(point, &[]).expect("a prime"),
            n: modulus(function, &[]).expect("an order"),
            size: limbs_of_r(function),
            g: base.map(number),
        }
    }

    fn residue(&self, a: BigInt) -> BigInt {
        (a % &self.p + &self.p) % &self.p
    }

    fn quotient(&self, a: BigInt, b: &BigInt) -> BigInt {
        self.residue(a * b.modinv(&self.p).expect("no zero"))
    }

    /// The sum of two points, by the chord or the tangent.
    fn sum(&self, a: &Affine, b: &Affine) -> Affine {
        let (Some([x, y]), Some([u, v])) = (a, b) else {
            return a.clone().or_else(|| b.clone());
        };
        let slope = match (x == u, y == v) {
            (true, false) => return None,
            (true, true) => self.quotient(x * x * 3 - 3, &(y * 2)),
            _ => self.quotient(v - y, &self.residue(u - x)),
        };
        let sum = self.residue(&slope * &slope - x - u);
        Some([sum.clone(), self.residue(slope * (x - sum) - y)])
    }

    fn multiple(&self, k: &BigInt, point: &Affine) -> Affine {
        (0..k.bits()).rev().fold(None, |sum, bit| {
            let twice = self.sum(&sum, &sum);
            match k.bit(bit) {
                true => self.sum(&twice, point),
                false => twice,
            }
        })
    }

    /// Odd multiples of G and their opposites as limbs, for each window of that many bits.
    fn odd_multiples(&self, window: usize) -> HashMap<Vec<u64>, BigInt> {
        let mut known = HashMap::new();
        let mut base = (BigInt::from(1), Some(self.g.clone()));
        while base.0.bits() <= self.n.bits() {
            let (times, point) = &base;
            let twice = self.sum(point, point);
            let (mut all, mut entry) = (times.clone(), point.clone());
            for j in 0..1 << (window - 1) {
                if j > 0 {
                    (all, entry) = (all + times * 2, self.sum(&entry, &twice));
                }
                let [x, y] = entry.as_ref().expect("finite");
                for (sign, y) in [(1, y.clone()), (-1, &self.p - y)] {
                    let limbs = [self.encoded(x), self.encoded(&y)].concat();
                    known.insert(limbs, &all * sign);
                }
            }
            base = (all + times, self.sum(&entry, point));
        }
        known
    }

    /// Whether n is the order of G.
    fn has_order(&self) -> bool {
        self.multiple(&self.n, &Some(self.g.clone())).is_none()
    }

    /// The limbs of a·R.
    fn encoded(&self, a: &BigInt) -> Vec<u64> {
        digits(&self.residue(a << (52 * self.size)), self.size)
    }

    /// Whether limbs are a point, of which R is no factor any more in X/Z² and Y/Z³.
    fn is_point(&self, limbs: &[u64], point: &Affine) -> bool {
        let mut numbers = limbs.chunks(self.size).map(|limbs| {
            let low: Vec<u64> = limbs.iter().map(|limb| limb & MASK).collect();
            let r = BigInt::from(1) << (52 * self.size);
            self.quotient(sum(&low), &r)
        });
        let mut next = || numbers.next().expect("a coordinate");
        let (x, y, z) = (next(), next(), next());
        match point {
            None => z == BigInt::ZERO,
            Some([u, v]) => {
                let square = &z * &z;
                let is_same = |a: BigInt, b| self.residue(a) == b;
                z != BigInt::ZERO && is_same(u * &square, x) && is_same(v * square * z, y)
            }
        }
    }
}

/// Entries that an addition adds, chosen by a number in the scalar's bits.
enum Entries {
    /// Numbers: affine points and their opposites, as limbs, and one.
    Known(&'static HashMap<Vec<u64>, BigInt>, Vec<u64>),
    /// Terms of a table, over a denominator.
    Table(HashMap<Vec<Place>, BigInt>, Vec<Place>),
}

impl Entries {
    /// (2j + 1)·2^(7i)·G for all windows, and the opposites.
    fn of_base(curve: &Curve) -> Self {
        static KNOWN: [OnceLock<HashMap<Vec<u64>, BigInt>>; 2] = [const { OnceLock::new() }; 2];
        let which = BASES.iter().position(|(name, _)| *name == curve.name);
        let known = &KNOWN[which.expect("a curve")];
        Self::Known(
            known.get_or_init(|| curve.odd_multiples(7)),
            curve.encoded(&1.into()),
        )
    }

    /// The multiple that a point is: x and y, and its denominator with its powers.
    fn multiple(&self, bits: &mut Bits<'_>, point: &[Place], size: usize) -> Option<BigInt> {
        let (entry, denominator) = point.split_at(2 * size);
        match self {
            Self::Known(all, one) => {
                let mut words = |places: &[Place]| {
                    let words = places.iter().map(|&place| value(&bits.of(place)));
                    words.collect::<Option<Vec<u64>>>()
                };
                let is_one = denominator.is_empty() || words(denominator)? == *one;
                all.get(&words(entry)?).filter(|_| is_one).cloned()
            }
            Self::Table(all, z) => {
                let chosen: Vec<Place> = entry.iter().map(|&place| bits.chosen(place)).collect();
                all.get(&chosen)
                    .filter(|_| z.starts_with(denominator))
                    .cloned()
            }
        }
    }
}

/// How a point came from another one.
struct Step {
    point: Vec<Place>,
    how: How,
}

enum How {
    Doubled,
    Added {
        /// x and y, and of a table the powers of the denominator.
        entry: Vec<Place>,
        negative: Place,
        is_complete: bool,
    },
}

/// The functions whose result is a multiple.
pub fn all_of(all: &[Function]) -> impl Iterator<Item = &Function> {
    let is_one = |function: &&Function| function.name.starts_with("nist::scalar_mul::mul_");
    all.iter().filter(is_one)
}

/// Proves that a function's result is k·G, or k·P.
pub fn prove(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<String, Failed> {
    if !Curve::of(all, function).has_order() {
        return Err(Failed::Open("n is not the order of G".into()));
    }
    let attempt = match function.name.contains("_in_parts") {
        true => attempt_parts,
        false => attempt,
    };
    let search = || search(all, function, terms, results);
    or_refuted(attempt(all, function, terms, results), || {
        Some((search()?, "another point".into()))
    })
}

fn attempt(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<String, String> {
    let curve = Curve::of(all, function);
    let size = curve.size;
    let mut cut = terms.clone();
    let (number, odd) = made_odd(function, &curve, &mut cut)?;
    let (point, table) = results.split_at(3 * size);
    // n − k was taken for an even k, and the result is negated where it was.
    let (mask, minus, y) = cut.choice(&point[size..2 * size]).ok_or("no choice of y")?;
    let calls = Calls::of(all, &curve, 16);
    if calls.negated.inputs_of(&cut.list, &minus) != Some(y.clone()) {
        return Err("y is not negated".into());
    }
    for is_odd in [false, true] {
        let mut word = [Bit::Unknown; 64];
        word[0] = Bit::Known(is_odd);
        let input = |input| if input == 0 { word } else { [Bit::Unknown; 64] };
        let mut bits = Bits::new(&cut, &input);
        if [mask, odd].map(|mask| bits.of(mask)[0]) != [Bit::Known(!is_odd), Bit::Known(is_odd)] {
            return Err("another sign".into());
        }
    }
    let point = [&point[..size], &y, &point[2 * size..]].concat();
    let is_base = table.is_empty();
    let window = if is_base { 7 } else { 5 };
    let tables = Vec::from_iter(Some(table.to_vec()).filter(|_| !is_base));
    let mut walk = Walk::new(&calls, &curve, &cut, number, window, tables);
    walk.set_operand(size..3 * size, 1);
    walk.is_number(&point)?;
    Ok(format!("{} terms, {} steps", cut.list.len(), walk.steps))
}

/// The same in lanes that have parts of a number each.
fn attempt_parts(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Result<String, String> {
    let curve = Curve::of(all, function);
    let size = curve.size;
    let (parts, count) = parts_of(function, &curve).expect("parts");
    let lanes = parts.lanes;
    let is_base = results.len() == 3 * size * lanes;
    let lane =
        |lane: usize| -> Vec<Place> { results.iter().copied().skip(lane).step_by(lanes).collect() };
    let calls = Calls::of(all, &curve, 8);
    let mut steps = 0;
    for which in 0..count {
        let number = Number {
            first: 0,
            length: curve.n.bits() as usize,
            is_odd: true,
            parts: Parts { which, ..parts },
        };
        let window = if is_base { 7 } else { 4 };
        let mut tables: Vec<Vec<Place>> = Vec::new();
        if !is_base {
            tables.extend((0..lanes).map(|i| lane(i)[3 * size..].to_vec()));
        }
        let mut walk = Walk::new(&calls, &curve, terms, number, window, tables);
        let first = size * lanes + which;
        walk.set_operand(first..first + 2 * size * lanes, lanes);
        walk.is_number(&lane(which)[..3 * size])?;
        steps += walk.steps;
    }
    Ok(format!("{} terms, {steps} steps", terms.list.len()))
}

/// How the scalars of a function lie in its lanes, and how many they are, if it has parts of them.
fn parts_of(function: &Function, curve: &Curve) -> Option<(Parts, usize)> {
    let (name, rest) = function.name.split_once("_in_parts, ")?;
    let mut words = rest.split(' ');
    let [count, _, lanes] = [0; 3].map(|_| words.next().expect("a number"));
    let [count, lanes]: [usize; 2] = [count, lanes].map(|text| text.parse().expect("a number"));
    let bits = curve.n.bits() as usize;
    let of_each = lanes / count.next_power_of_two();
    let (width, top) = match name.ends_with("base") {
        true => (7 * bits.div_ceil(7).div_ceil(of_each), 7 * bits.div_ceil(7)),
        false => (bits / of_each, bits),
    };
    let parts = Parts {
        lanes,
        of_each,
        width,
        which: 0,
        top,
    };
    Some((parts, count))
}

/// Takes the points of a function apart.
struct Walk<'a> {
    calls: &'a Calls,
    curve: &'a Curve,
    terms: &'a Terms,
    number: Number,
    window: usize,
    /// The operand, with a denominator of one.
    operand: Vec<Place>,
    /// Where the table of each lane lies; none if all share one of numbers.
    tables: Vec<Vec<Place>>,
    entries: Vec<Entries>,
    steps: usize,
}

impl<'a> Walk<'a> {
    fn new(
        calls: &'a Calls,
        curve: &'a Curve,
        terms: &'a Terms,
        number: Number,
        window: usize,
        tables: Vec<Vec<Place>>,
    ) -> Self {
        let entries = match tables.is_empty() {
            true => vec![Entries::of_base(curve)],
            false => Vec::new(),
        };
        Self {
            calls,
            curve,
            terms,
            number,
            window,
            operand: Vec::new(),
            tables,
            entries,
            steps: 0,
        }
    }

    /// Where the operand is: its limbs are the first of these inputs, and every `step` further on.
    fn set_operand(&mut self, inputs: Range<usize>, step: usize) {
        let place = |term| self.terms.list.iter().position(|known| *known == term);
        let one = self
            .curve
            .encoded(&1.into())
            .into_iter()
            .map(Term::Constant);
        let operand = inputs.step_by(step).map(|i| Term::Input(i as u32));
        let places = operand.chain(one).map(place).collect::<Option<Vec<_>>>();
        let places = places.unwrap_or_default().into_iter();
        self.operand = places.map(|place| place as Place).collect();
    }

    /// That a point is the number times the operand, or times the base.
    fn is_number(&mut self, point: &[Place]) -> Result<(), String> {
        match self.multiple(point)?.is(&self.number.multiple()) {
            true => Ok(()),
            false => Err("another multiple".into()),
        }
    }

    /// Returns the entries that have these powers of a denominator, or the entries of the base.
    fn entries(&mut self, denominator: &[Place]) -> Result<Option<usize>, String> {
        if denominator.is_empty() && !self.tables.is_empty() {
            return Err("an entry of a table without its denominator".into());
        }
        let is_it = |entries: &Entries| match entries {
            Entries::Known(..) => denominator.is_empty(),
            Entries::Table(_, z) => z.starts_with(denominator),
        };
        if let Some(known) = self.entries.iter().position(is_it) {
            return Ok(Some(known));
        }
        let size = self.curve.size;
        let template = &self.calls.odd_multiples;
        for table in self.tables.clone() {
            let results = [&table, denominator].concat();
            let Some(p) = template.inputs_of(&self.terms.list, &results) else {
                continue;
            };
            // Each entry is the one before plus twice the point.
            let mut multiple = self.multiple(&p)?;
            multiple.is_finite(&self.curve.n)?;
            let twice = multiple.doubled();
            let mut known = HashMap::new();
            for entry in table.chunks(2 * size) {
                known.insert(entry.to_vec(), multiple.constant.clone());
                multiple.differs(&twice, &self.curve.n)?;
                multiple = multiple.plus(&twice);
            }
            if !multiple.bits.is_empty() {
                return Err("a table of a point that is chosen".into());
            }
            self.entries
                .push(Entries::Table(known, denominator.to_vec()));
            return Ok(Some(self.entries.len() - 1));
        }
        Ok(None)
    }

    /// The bits that a digit of a part reads.
    fn bits(&self, part: usize, digit: usize) -> Range<usize> {
        let skipped = self.number.parts.width * part + 1;
        let bit = |i: usize| (skipped + self.window * i).min(self.number.length);
        bit(digit)..bit(digit + 1)
    }

    /// The multiple that a point is.
    fn multiple(&mut self, point: &[Place]) -> Result<Multiple, String> {
        if point == self.operand {
            return Ok(Multiple::constant(1.into()));
        }
        let size = self.curve.size;
        let (steps, first) = taken_apart(self.calls, self.terms, point.to_vec());
        self.steps += steps.len();
        // The entries that are added, unless another point is added.
        let mut which = Vec::new();
        for step in &steps {
            if let How::Added { entry, .. } = &step.how {
                which.push(self.entries(&entry[2 * size..])?);
            }
        }
        let mut digits: Vec<usize> = (0..=which.iter().flatten().count()).collect();
        if !self.tables.is_empty() {
            digits.reverse();
        }
        let mut digits = digits.into_iter();
        let (mut multiple, part) = match first == self.operand {
            true => (self.multiple(&first)?, 0),
            false => self.first(&first, digits.next().expect("a digit"))?,
        };
        let mut which = which.into_iter();
        for (i, step) in steps.iter().enumerate() {
            let name = |why| format!("step {i}: {why}");
            let How::Added {
                entry,
                negative,
                is_complete,
            } = &step.how
            else {
                multiple.is_finite(&self.curve.n).map_err(name)?;
                multiple = multiple.doubled();
                continue;
            };
            let (bits, which) = match which.next().expect("an entry or none") {
                Some(which) => (self.bits(part, digits.next().expect("a digit")), which),
                None => {
                    // Another point, with the powers of its denominator.
                    let (q, powers) = entry.split_at(3 * size);
                    let z = self.calls.powers.inputs_of(&self.terms.list, powers);
                    let never = Multiple::tried(self.terms, self.number, 0..0, |bits| {
                        (bits.of(*negative)[0] == Bit::Known(false)).then(BigInt::default)
                    });
                    if never.is_err() || z.as_deref() != Some(&q[2 * size..]) {
                        return Err(name("neither an entry nor a point".into()));
                    }
                    let other = self.multiple(q).map_err(name)?;
                    multiple = self.added(&multiple, &other, *is_complete).map_err(name)?;
                    continue;
                }
            };
            let entries = &self.entries[which];
            let signed = |bits: &mut Bits<'_>| {
                let entry = entries.multiple(bits, entry, size)?;
                match bits.of(*negative)[0] {
                    Bit::Known(is_negative) => Some(if is_negative { -entry } else { entry }),
                    _ => None,
                }
            };
            let other = Multiple::tried(self.terms, self.number, bits, signed).map_err(name)?;
            multiple = self.added(&multiple, &other, *is_complete).map_err(name)?;
        }
        Ok(multiple)
    }

    /// The sum of two multiples, which the formulas must be for.
    fn added(&self, a: &Multiple, b: &Multiple, is_complete: bool) -> Result<Multiple, String> {
        let n = &self.curve.n;
        match is_complete {
            true => a.is_finite(n).and_then(|()| b.is_finite(n))?,
            false => a.differs(b, n)?,
        }
        Ok(a.plus(b))
    }

    /// The first point, an entry with its sign, and the part of the number that it belongs to.
    fn first(&self, point: &[Place], digit: usize) -> Result<(Multiple, usize), String> {
        let size = self.curve.size;
        let negated = &self.calls.negated;
        // Of a table alone: mixed additions may have no y as large as one that is negated.
        let y = self.terms.choice(&point[size..2 * size]);
        let y = y.filter(|_| !self.tables.is_empty());
        let signed = y
            .filter(|(_, minus, y)| negated.inputs_of(&self.terms.list, minus).as_ref() == Some(y));
        let entry = match &signed {
            Some((_, _, y)) => [&point[..size], y, &point[2 * size..]].concat(),
            None => point.to_vec(),
        };
        let ask = |bits: &mut Bits<'_>| {
            let mut all = self.entries.iter();
            let multiple = all.find_map(|entries| entries.multiple(bits, &entry, size))?;
            match signed.as_ref().map(|(mask, ..)| bits.of(*mask)[0]) {
                None | Some(Bit::Known(false)) => Some(multiple),
                Some(Bit::Known(true)) => Some(-multiple),
                _ => None,
            }
        };
        let mut parts = (0..self.number.parts.of_each).map(|part| {
            let bits = self.bits(part, digit);
            Ok((Multiple::tried(self.terms, self.number, bits, ask)?, part))
        });
        let first = parts.next().expect("a part");
        first.or_else(|why| parts.find(Result::is_ok).unwrap_or(Err(why)))
    }
}

/// Finds the choice of k or n − k, which becomes a number of its own, and the mask by which it is
/// k.
fn made_odd(
    function: &Function,
    curve: &Curve,
    terms: &mut Terms,
) -> Result<(Number, Place), String> {
    let size = curve.size;
    let k: Vec<Place> = (0..size as u32)
        .map(|i| terms.place(Term::Input(i)))
        .collect();
    let chosen: Option<Vec<Place>> = k
        .iter()
        .map(|&k| {
            let is_it = |term: &Term| matches!(term, Term::Select([_, set, _]) if *set == k);
            terms.list.iter().position(is_it).map(|at| at as Place)
        })
        .collect();
    let chosen = chosen.ok_or("no choice of k")?;
    let (mask, set, clear) = terms.choice(&chosen).ok_or("no choice of k")?;
    if set != k {
        return Err("another choice of k".into());
    }
    // n − k = clear, in limbs of 52 bits: the uppermost is the rest of a number below 2^length.
    let (below, _, places) = terms.below(&[clear, k].concat());
    let known = ranges(&below, &given(function))?;
    let is_tight = |&place: &Place| {
        (0..=i128::from(MASK)).contains(&known[place as usize].least)
            && known[place as usize].most <= i128::from(MASK)
    };
    if !places[..size - 1].iter().all(is_tight) {
        return Err("a limb of n - k is too long".into());
    }
    let sum = places.iter().enumerate();
    let sum: Vec<(Place, BigInt)> = sum
        .map(|(i, &place)| (place, BigInt::from(1) << (52 * (i % size))))
        .collect();
    Algebra::new(function, &below, &known, &[]).prove_number(&sum, &curve.n)?;
    let first = limbs(&function.inputs);
    for (i, &place) in chosen.iter().enumerate() {
        terms.list[place as usize] = Term::Input((first + i) as u32);
    }
    let number = Number {
        first,
        length: curve.n.bits() as usize,
        is_odd: curve.n.bit(0),
        parts: WHOLE,
    };
    Ok((number, mask))
}

/// The functions that a multiplication calls.
struct Calls {
    steps: [(&'static str, Template); 5],
    negated: Template,
    powers: Template,
    odd_multiples: Template,
}

impl Calls {
    /// For tables with this number of entries.
    fn of(all: &[Function], curve: &Curve, entries: usize) -> Self {
        let template = |name| Template::call(all, &format!("nist::{name}, {}", curve.name));
        let steps = [
            "point::double_times",
            "point::add_assign_mixed",
            "point::add_assign",
            "point::add_assign_mixed_complete",
            "point::add_assign_complete",
        ];
        Self {
            steps: steps.map(|name| (name, template(name))),
            negated: template("scalar_mul::negated"),
            powers: template("point::Denominator"),
            odd_multiples: template(&format!("point::odd_multiples of {entries}")),
        }
    }
}

/// The steps that lead to a point, in order, and the first point.
fn taken_apart(calls: &Calls, terms: &Terms, mut point: Vec<Place>) -> (Vec<Step>, Vec<Place>) {
    let size = point.len() / 3;
    let mut steps = Vec::new();
    while let Some((name, mut before)) = calls.steps.iter().find_map(|(name, template)| {
        let inputs = template.inputs_of(&terms.list, &point)?;
        Some((*name, inputs))
    }) {
        let mut entry = before.split_off(3 * size);
        let how = match entry.pop() {
            None => How::Doubled,
            Some(negative) => How::Added {
                entry,
                negative,
                is_complete: name.ends_with("complete"),
            },
        };
        steps.push(Step { point, how });
        point = before;
    }
    steps.reverse();
    (steps, point)
}

/// A scalar, and a point where one is multiplied, for which the result is another one; the portable
/// lanes have the right one.
fn search(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Option<Vec<u64>> {
    let curve = Curve::of(all, function);
    let (n, size) = (&curve.n, curve.size);
    // Scalars whose last addition, by windows and by combs, is that of equal points.
    let top = (curve.n.bits() as usize - 1) / 7 * 7;
    let digit: BigInt = n >> top | BigInt::from(1);
    let mut scalars: Vec<BigInt> = vec![(digit << (top + 1)) - n, n - n % 32 * 2_u32];
    // Those whose last sum of parts is that of equal points.
    let halves = [128, 133, 140, 192, 196].into_iter();
    scalars.extend(halves.map(|half| n - ((n % (BigInt::from(1) << half)) << 1)));
    let mut random = Random(1);
    scalars.extend((1..8).map(BigInt::from));
    scalars.extend((0..8).map(|_| {
        let limbs: Vec<u64> = (0..size).map(|_| random.word() & MASK).collect();
        sum(&limbs) % n
    }));
    let (parts, count) = parts_of(function, &curve).unwrap_or((WHOLE, 1));
    let lanes = parts.lanes;
    if lanes > 1 {
        for k in scalars.iter_mut().filter(|k| !k.bit(0)) {
            *k = n - &*k;
        }
    }
    (0..scalars.len()).find_map(|first| {
        let mut inputs = vec![0; limbs(&function.inputs)];
        let mut expected = Vec::new();
        for which in 0..count {
            let k = &scalars[(first + which) % scalars.len()];
            let mut write = |at: usize, lane: usize, limbs: &[u64]| {
                for (i, limb) in limbs.iter().enumerate() {
                    inputs[(at + i) * lanes + lane] = *limb;
                }
            };
            for part in 0..parts.of_each {
                let top = u64::from(lanes > 1);
                let with_top = BigInt::from(top) << if lanes > 1 { parts.top } else { 0 };
                let limbs = digits(&((k + with_top) >> (parts.width * part)), size);
                write(0, which * parts.of_each + part, &limbs);
            }
            let mut point = Some(curve.g.clone());
            if limbs(&function.inputs) > size * lanes {
                point = curve.multiple(&(3 + 2 * which).into(), &point);
                let [x, y] = point.as_ref().expect("finite");
                write(size, which, &[curve.encoded(x), curve.encoded(y)].concat());
            }
            expected.push(curve.multiple(k, &point));
        }
        let is_right = |words: &[u64]| {
            expected.iter().enumerate().all(|(which, expected)| {
                let words = words.iter().copied().skip(which).step_by(lanes);
                curve.is_point(&words.take(3 * size).collect::<Vec<u64>>(), expected)
            })
        };
        let is_refuted = !is_right(&terms.results(&inputs, &results[..3 * size * lanes]));
        (is_refuted && is_right(&function.words(&inputs))).then_some(inputs)
    })
}

/// A function whose terms are wrong, and its results.
type Wrong = (&'static str, Terms, Vec<Place>);

/// Plants defects, each of which must be refuted.
pub fn defects(all: &[Function]) -> Planted {
    let mut planted = Planted::default();
    for name in [
        "mul_base_all, P-256",
        "mul_point, P-256",
        "mul_point, P-384",
        "mul_base_in_parts, 2 of 8 lanes, P-256",
        "mul_point_in_parts, 1 of 4 lanes, P-256",
    ] {
        let function = named(all, &format!("nist::scalar_mul::{name}"));
        let (terms, results) = function.terms();
        let wrong = match name.contains("in_parts") {
            true => wrong_parts,
            false => wrong,
        };
        for (kind, terms, results) in wrong(all, function, &terms, &results) {
            planted.kinds.insert(kind);
            let found = prove(all, function, &terms, &results);
            let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
            planted.add(is_refuted, || format!("{kind} in {name}: {found:?}"));
        }
    }
    defects_of_tables(all, &mut planted);
    defects_of_bounds(all, &mut planted);
    let wrong = wrong_rules();
    planted.add(wrong == Some(0), || {
        format!("rules of sizes: {wrong:?} are wrong")
    });
    let kinds = [
        "a power that is added to the number",
        "an entry of another part",
    ];
    planted.insist(&kinds);
    planted
}

/// The defects of a multiplication.
fn wrong(all: &[Function], function: &Function, terms: &Terms, results: &[Place]) -> Vec<Wrong> {
    let curve = Curve::of(all, function);
    let size = curve.size;
    let is_base = results.len() == 3 * size;
    let (sign, _, y) = terms.choice(&results[size..2 * size]).expect("a choice");
    let point = [&results[..size], &y, &results[2 * size..3 * size]].concat();
    let (steps, first) = taken_apart(&Calls::of(all, &curve, 16), terms, point);
    let from = |after: &[Place], before: &[Place]| -> Vec<(Place, Place)> {
        after.iter().copied().zip(before.iter().copied()).collect()
    };
    let last = &steps.last().expect("a step").point;
    let (_, _, chord) = terms.choice(last).expect("a complete addition");
    let incomplete = "an addition that is not complete";
    // No scalar needs it by windows on P-256, which shows by n modulo 64 alone.
    if curve.name == "P-384" {
        let to = from(last, &chord).into_iter().collect();
        let (terms, results) = terms.redirected(&to, results);
        return vec![(incomplete, terms, results)];
    }
    let added = steps
        .iter()
        .enumerate()
        .filter_map(|(i, step)| match &step.how {
            How::Added {
                entry, negative, ..
            } => Some((i, &entry[..2 * size], *negative)),
            How::Doubled => None,
        });
    let added: Vec<_> = added.collect();
    let (at, entry, negative) = added[added.len() / 2];
    let (_, entry_before, _) = added[added.len() / 2 - 1];
    let mut all = Vec::new();
    let mut change = |kind, place: Place, term| {
        all.push((kind, terms.changed(place, term), results.to_vec()));
    };
    // sign − (bits & sign) asks for the bit of the sign; all − low is the index of a negative one.
    let Term::AnyBit([difference, one_bit]) = terms.term(negative) else {
        panic!("another digit");
    };
    let Term::Sub([_, masked]) = terms.term(difference) else {
        panic!("another digit");
    };
    let Term::And([bits, _]) = terms.term(masked) else {
        panic!("another digit");
    };
    let low_of =
        |&term: &Term| matches!(term, Term::And([of, mask]) if of == bits && mask != one_bit);
    let low = terms.list.iter().position(low_of).expect("an index") as Place;
    let complement = |&term: &Term| matches!(term, Term::Sub([_, index]) if index == low);
    let complement = terms
        .list
        .iter()
        .position(complement)
        .expect("a complement") as Place;
    let Term::Sub([ones, _]) = terms.term(complement) else {
        panic!("another digit");
    };
    change("a wrong bit of a digit", masked, Term::And([bits, ones]));
    change(
        "a wrong complement of an index",
        complement,
        Term::Sub([one_bit, low]),
    );
    change("a sign that is never set", negative, Term::AnyBit([0, 0]));
    let Term::AnyBit([of_sign, bit]) = terms.term(sign) else {
        panic!("another digit");
    };
    let Term::Sub([_, of_k]) = terms.term(of_sign) else {
        panic!("another digit");
    };
    change(
        "the other sign of the result",
        sign,
        Term::AnyBit([of_k, bit]),
    );
    let power = |term: &Term| {
        matches!(*term, Term::Add([k, power])
        if matches!(terms.term(k), Term::Select(_)) && terms.constant(power).is_some())
    };
    if let Some(at) = terms.list.iter().position(power).filter(|_| is_base) {
        let Term::Add([k, _]) = terms.term(at as Place) else {
            panic!("another power");
        };
        change(
            "a power that is added to the number",
            at as Place,
            Term::Add([k, bit]),
        );
    }
    let (_, _, others) = {
        let k = terms
            .list
            .iter()
            .position(|term| *term == Term::Input(0))
            .expect("k") as Place;
        let chosen = terms
            .list
            .iter()
            .position(|term| matches!(term, Term::Select([_, set, _]) if *set == k));
        terms
            .choice(&[chosen.expect("a choice") as Place])
            .expect("a choice")
    };
    change("n - k without its low limb", others[0], Term::Constant(1));
    let mut redirect = |kind, to: Vec<(Place, Place)>| {
        let (terms, results) = terms.redirected(&to.into_iter().collect(), results);
        all.push((kind, terms, results));
    };
    let point = |i: usize| &*steps[i].point;
    redirect("a complement that is missing", vec![(complement, low)]);
    redirect(
        "an addition that is missing",
        from(point(at), point(at - 1)),
    );
    redirect("an entry twice", from(entry, entry_before));
    redirect("y of an entry for x", from(&entry[size..], &entry[..size]));
    redirect(
        "x of an entry for one limb of it",
        from(&entry[1..2], &entry[..1]),
    );
    if is_base {
        redirect(incomplete, from(last, &chord));
    }
    if !is_base {
        redirect(
            "a doubling that is missing",
            from(point(at - 1), point(at - 2)),
        );
        redirect("a first doubling that is missing", from(point(0), &first));
        let table = &results[3 * size..];
        redirect(
            "an entry of the table twice",
            from(&table[..2 * size], &table[2 * size..4 * size]),
        );
        return all;
    }
    // Tables of numbers have 64 entries in four tables a limb, of which the third has the last.
    let of_window = 8 * size;
    let mut other = |kind, change: &dyn Fn(&mut Vec<[u64; 16]>)| {
        let mut terms = terms.clone();
        change(&mut terms.tables);
        all.push((kind, terms, results.to_vec()));
    };
    other("a wrong entry", &|tables| tables[of_window + 2][15] ^= 1);
    other("a wrong top limb of y", &|tables| {
        tables[2 * of_window - 2][15] ^= 1 << 40
    });
    other("an opposite entry", &|tables| {
        let at = |limb| of_window + 4 * (size + limb) + 2;
        let y: Vec<u64> = (0..size).map(|limb| tables[at(limb)][15]).collect();
        for (limb, word) in digits(&(&curve.p - sum(&y)), size).into_iter().enumerate() {
            tables[at(limb)][15] = word;
        }
    });
    other("the wrong order of windows", &|tables| {
        let (low, high) = tables.split_at_mut(2 * of_window);
        low[of_window..].swap_with_slice(&mut high[..of_window]);
    });
    all
}

/// The defects of a multiplication in parts.
fn wrong_parts(
    all: &[Function],
    function: &Function,
    terms: &Terms,
    results: &[Place],
) -> Vec<Wrong> {
    let curve = Curve::of(all, function);
    let (parts, _) = parts_of(function, &curve).expect("parts");
    let first = results.iter().copied().step_by(parts.lanes);
    let first: Vec<Place> = first.take(3 * curve.size).collect();
    let calls = Calls::of(all, &curve, 8);
    let (steps, _) = taken_apart(&calls, terms, first);
    let [.., before, last] = &steps[..] else {
        panic!("no sum of parts");
    };
    let How::Added {
        entry, negative, ..
    } = &last.how
    else {
        panic!("no sum of parts");
    };
    let (upper, _) = taken_apart(&calls, terms, entry[..3 * curve.size].to_vec());
    let (_, _, chord) = terms.choice(&last.point).expect("a complete addition");
    let opposite = terms.changed(*negative, Term::AnyBit([1, 1]));
    let mut all = vec![("a sum that subtracts", opposite, results.to_vec())];
    let mut redirect = |kind, from: &[Place], to: &[Place]| {
        let to = from.iter().copied().zip(to.iter().copied());
        let (terms, results) = terms.redirected(&to.collect(), results);
        all.push((kind, terms, results));
    };
    let at = steps.len() / 3;
    redirect("a sum that is not complete", &last.point, &chord);
    redirect("a part that is missing", &last.point, &before.point);
    redirect(
        "a step that is missing",
        &steps[at].point,
        &steps[at - 1].point,
    );
    redirect(
        "a step of another part that is missing",
        &upper[at].point,
        &upper[at - 1].point,
    );
    // Where a constant chooses, another entry is taken than before.
    let own = |place: &Place| match terms.term(*place) {
        Term::Select([mask, ..]) => terms.term(mask) == Term::AnyBit([1, 1]),
        _ => false,
    };
    let own: Vec<Place> = (0..terms.list.len() as Place).filter(own).collect();
    if let Some(&place) = own.get(own.len() / 2)
        && let Term::Select([mask, set, clear]) = terms.term(place)
    {
        let wrong = terms.changed(place, Term::Select([mask, clear, set]));
        all.push(("an entry of another part", wrong, results.to_vec()));
    }
    all
}

/// How often the rules of sizes are wrong for small numbers; nothing if they never say anything.
fn wrong_rules() -> Option<usize> {
    let mut all = Vec::new();
    for (constant, first, second) in (0..175).map(|i| (i % 7 - 3, i / 7 % 5 - 2, i / 35 - 2)) {
        let values = [0, first, second, first + second].map(|sum| constant + sum);
        let size = values.map(|value: i32| BigInt::from(value.abs()));
        let bits = [(0, first.into()), (1, second.into())].into();
        let [least, most] =
            [size.iter().min(), size.iter().max()].map(|size| size.expect("a value").clone());
        let multiple = Multiple {
            constant: constant.into(),
            bits,
            size: [least, most],
        };
        all.push((values, multiple));
    }
    let (mut said, mut wrong) = (0, 0);
    for (values, a) in &all {
        for (others, b) in &all {
            let sum = a.plus(b);
            let mut both = values.iter().zip(others);
            let size = |a: i32| BigInt::from(a.abs());
            wrong += usize::from(
                !both
                    .clone()
                    .all(|(a, b)| (&sum.size[0]..=&sum.size[1]).contains(&&size(a + b))),
            );
            let n = 5 + 2 * (said % 3);
            if a.differs(b, &n.into()).is_ok() {
                said += 1;
                let is_wrong =
                    |(a, b): (&i32, &i32)| [*a, *b, a + b, a - b].iter().any(|x| x % n == 0);
                wrong += usize::from(both.any(is_wrong));
            }
        }
    }
    (said > 0).then_some(wrong)
}

/// Plants defects in the products of tables of odd multiples: none may be proved, and the first
/// point that is wrong must be seen.
fn defects_of_tables(all: &[Function], planted: &mut Planted) {
    let name = "nist::point::odd_multiples of 16, P-256";
    let function = named(all, name);
    let curve = Curve::of(all, function);
    let (terms, results) = function.terms();
    let inputs: Vec<u64> = [&curve.g[0], &curve.g[1], &1.into()]
        .into_iter()
        .flat_map(|a| curve.encoded(a))
        .collect();
    let is_right = |words: &[u64]| {
        let (table, z) = words.split_at(words.len() - 3 * curve.size);
        table.chunks(2 * curve.size).enumerate().all(|(j, entry)| {
            let expected = curve.multiple(&(2 * j + 1).into(), &Some(curve.g.clone()));
            curve.is_point(&[entry, &z[..curve.size]].concat(), &expected)
        })
    };
    planted.add(is_right(&function.words(&inputs)), || {
        format!("{name} is wrong")
    });
    let products = formulas::results_of_products(all, function, &terms);
    for i in (1..products.len())
        .step_by(7)
        .chain(products.len() - 3..products.len())
    {
        let to = products[i]
            .iter()
            .copied()
            .zip(products[i - 1].iter().copied());
        let (terms, results) = terms.redirected(&to.collect(), &results);
        let is_proved = formulas::prove(all, function, (terms.clone(), results.clone())).is_ok();
        planted.add(!is_proved, || {
            format!("product {i} of {name} is another, and proved")
        });
        let is_seen = i + 2 >= products.len() || !is_right(&terms.results(&inputs, &results));
        planted.add(is_seen, || {
            format!("product {i} of {name} is another: no input")
        });
    }
}

/// Plants an entry of a table that is added as if it had no denominator; a first y that is too
/// large for the additions of a comb, and right modulo p; another order, and other words. For the
/// first two all steps are called once more, as they were and with the defect.
fn defects_of_bounds(all: &[Function], planted: &mut Planted) {
    for (name, kind) in [
        ("mul_point, P-256", "an entry without its denominator"),
        ("mul_base_all, P-384", "a first y that is too large"),
    ] {
        let function = named(all, &format!("nist::scalar_mul::{name}"));
        let mut curve = Curve::of(all, function);
        let size = curve.size;
        let (mut terms, results) = function.terms();
        let calls = Calls::of(all, &curve, 16);
        let (mask, _, y) = terms.choice(&results[size..2 * size]).expect("a choice");
        let point = [&results[..size], &y, &results[2 * size..3 * size]].concat();
        let (steps, first) = taken_apart(&calls, &terms, point);
        let is_base = results.len() == 3 * size;
        for is_changed in [false, true] {
            let mut now = first.clone();
            if is_base && is_changed {
                let (mask, _, y) = terms.choice(&now[size..2 * size]).expect("a sign");
                negate_where(&calls, &mut terms, mask, &y, &mut now);
            }
            for (i, step) in steps.iter().enumerate() {
                let is_last = i + 1 == steps.len();
                let (name, operands) = match &step.how {
                    How::Doubled => ("double_times", Vec::new()),
                    How::Added {
                        entry,
                        negative,
                        is_complete,
                    } => {
                        let entry = match is_last && is_changed {
                            true => &entry[..2 * size],
                            false => entry,
                        };
                        let name = match (entry.len() == 2 * size, is_complete) {
                            (true, true) => "add_assign_mixed_complete",
                            (true, false) => "add_assign_mixed",
                            (false, true) => "add_assign_complete",
                            (false, false) => "add_assign",
                        };
                        (name, [entry, &[*negative]].concat())
                    }
                };
                let (_, template) = calls
                    .steps
                    .iter()
                    .find(|(of, _)| of.ends_with(&format!("::{name}")))
                    .expect("a step");
                now = template.results_of(&mut terms, &[now, operands].concat());
            }
            let y = now[size..2 * size].to_vec();
            negate_where(&calls, &mut terms, mask, &y, &mut now);
            let results = [&now, &results[3 * size..]].concat();
            let found = prove(all, function, &terms, &results);
            let is_right = match is_changed {
                true => matches!(found, Err(Failed::Refuted { .. })),
                false => found.is_ok(),
            };
            planted.add(is_right, || {
                format!("{kind} in {name}, planted: {is_changed}, {found:?}")
            });
        }
        curve.n += 2;
        planted.add(!curve.has_order(), || format!("another order in {name}"));
        let mut other = results.clone();
        other.swap(0, 1);
        let is_same = as_portable(function, &terms, &other).is_ok();
        planted.add(!is_same, || format!("other words in {name}"));
    }
}

/// Takes −y for y of a point where a mask is set.
fn negate_where(calls: &Calls, terms: &mut Terms, mask: Place, y: &[Place], point: &mut [Place]) {
    let (size, minus) = (y.len(), calls.negated.results_of(terms, y));
    for (i, (minus, y)) in minus.into_iter().zip(y).enumerate() {
        point[size + i] = terms.place(Term::Select([mask, minus, *y]));
    }
}
