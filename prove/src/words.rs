//! Statements about ML-KEM's words of 16 bits: transforms, products, reductions and codings.
//!
//! A word that depends on one other word alone is tried for all values of that one. So reductions
//! are exact: a table shows that they are c·x modulo q, and their least and greatest value. All
//! other words are sums, and forms in the inputs modulo q. The form of a result must be the row of
//! the matrix by which FIPS 203 defines the transform.

use std::collections::HashMap;
use std::rc::Rc;

use lockstep_kernels::mlkem::proved::{Function, Place, Word};
use lockstep_testkit::Random;

use crate::defects::Planted;
use crate::proof::Failed;

const Q: i32 = 3329;

/// A sum of products of at most two inputs modulo q: the key of an input is its number and one.
type Form = Vec<(u32, i32)>;

/// A word's least and greatest value.
type Range = [i32; 2];

/// That of any word.
const ANY: Range = [i16::MIN as i32, i16::MAX as i32];

/// What is stated of a result.
enum Expected {
    /// It is this modulo q, and at least and at most so much.
    Form(Form, Range),
    /// A function of an input, or of a sum of products of inputs and numbers.
    Of(Vec<(usize, i32)>, fn(i32, i32) -> i32, i32),
    /// −1 if an input is not below q, and else 0, for inputs of one lane of a vector.
    Invalid,
}

/// The ranges of the inputs, and what is stated of each result.
pub struct Statement {
    ranges: Vec<Range>,
    expected: Vec<Expected>,
}

fn power(base: i32, exponent: u32) -> i32 {
    (0..exponent % 256).fold(1, |power, _| power * base % Q)
}

/// The exponent of the root that belongs to pair i.
fn exponent(i: usize) -> u32 {
    2 * u32::from((i as u8).reverse_bits() >> 1) + 1
}

/// FIPS 203 in short: the statement about a function.
pub fn statement(function: &Function) -> Statement {
    let name = function.name.strip_prefix("mlkem::").expect("a prefix");
    let name = name.split(',').next().expect("a name");
    let (name, of) = name.split_once(' ').unwrap_or((name, "0"));
    let of: usize = of.parse().expect("a number");
    let r_inverse = power(169, 1); // 2^16·169 ≡ 1
    let all = |range: Range| vec![range; function.inputs];
    let any = ANY;
    let forms = |most: i32, form: &dyn Fn(usize) -> Form| -> Vec<Expected> {
        let sorted = |i| {
            let mut form = form(i);
            form.retain(|(_, times)| times % Q != 0);
            form.sort_unstable();
            Expected::Form(form, [-most, most])
        };
        (0..function.results.len()).map(sorted).collect()
    };
    let words = |f: fn(i32, i32) -> i32, parts: &dyn Fn(usize) -> Vec<(usize, i32)>| {
        let of = of as i32;
        (0..256).map(|i| Expected::Of(parts(i), f, of)).collect()
    };
    let same = |i: usize| vec![(i, 1)];
    let input = |i: usize| i as u32 + 1;
    let both = |i: usize, j: usize| input(i.min(j)) << 16 | input(i.max(j));
    let (ranges, expected) = match name {
        // f̂_2i+e = Σ_j f_2j+e·ζ^((2·BitRev7(i) + 1)·j).
        "forward" => (
            all([-Q, Q]),
            forms(6 * Q, &|i| {
                let factor = |j: usize| power(17, exponent(i / 2) * j as u32);
                let term = |j| (input(2 * j + i % 2), factor(j));
                (0..128).map(term).collect()
            }),
        ),
        // R·f_2j+e = R/128·Σ_i f̂_2i+e·ζ^−((2·BitRev7(i) + 1)·j).
        "inverse" => (
            all([-Q * 9 / 10, Q * 9 / 10]),
            forms(Q - 1, &|j| {
                let factor = |i: usize| {
                    let turned = (exponent(i) * (j / 2) as u32).wrapping_neg();
                    512 * power(17, turned) % Q
                };
                let term = |i| (input(2 * i + j % 2), factor(i));
                (0..128).map(term).collect()
            }),
        ),
        "multiplier" => (
            all(any),
            forms(Q * 3 / 4, &|i| match i {
                256.. => vec![(input((i - 256) ^ 1), 1)],
                _ if i % 2 == 0 => vec![(input(i), 1)],
                _ => vec![(input(i), power(17, exponent(i / 2)))],
            }),
        ),
        "product" => {
            let mut ranges = vec![[0, 4095]; 256 * of];
            ranges.resize(256 * 3 * of, [-Q * 3 / 4, Q * 3 / 4]);
            let form = |i: usize| {
                let pair = |k: usize, e: usize| {
                    let a = 256 * k + (i & !1) + e;
                    let b = 256 * (of + 2 * k + i % 2) + (i & !1) + e;
                    (both(a, b), r_inverse)
                };
                (0..of).flat_map(|k| [pair(k, 0), pair(k, 1)]).collect()
            };
            (ranges, forms(Q * 9 / 10, &form))
        }
        "add_product" => {
            let mut ranges = vec![[-8 * Q, 8 * Q]; 256];
            ranges.resize(512, any);
            let r = (1 << 16) % Q;
            let form = |i: usize| vec![(input(i), 1), (input(i + 256), r)];
            (ranges, forms(9 * Q, &form))
        }
        "decode" => {
            let mut expected: Vec<Expected> = words(|x, _| x, &same);
            expected.extend((0..32).map(|_| Expected::Invalid));
            (all([0, 4095]), expected)
        }
        "encode" => (all(any), words(|x, _| x.rem_euclid(Q), &same)),
        "compress" => (
            all([-(1 << 14), (1 << 14) - 1]),
            words(
                |x, bits| ((x.rem_euclid(Q) << (bits + 1)) + Q) / (2 * Q) % (1 << bits),
                &|i| vec![(i, 1), (i + 256, 1)],
            ),
        ),
        "decompress" => (
            all([0, (1 << of) - 1]),
            words(|y, bits| (2 * Q * y + (1 << bits)) >> (bits + 1), &same),
        ),
        "add_message" => {
            let mut ranges = vec![[-(1 << 14), 1 << 14]; 256];
            ranges.resize(512, [-1, 0]);
            (
                ranges,
                forms((1 << 14) + 1665, &|i| {
                    vec![(input(i), 1), (input(i + 256), Q - 1665)]
                }),
            )
        }
        "message" => (
            all([-(1 << 14), (1 << 14) - 1]),
            words(|x, _| (4 * x.rem_euclid(Q) + Q) / (2 * Q) % 2 - 1, &|i| {
                vec![(i, 1), (i + 256, -1)]
            }),
        ),
        "noise" => (
            all([0, 15]),
            words(
                |x, _| (x & 1) + (x >> 1 & 1) - (x >> 2 & 1) - (x >> 3),
                &same,
            ),
        ),
        "wide_noise" => (
            all([0, 63]),
            words(
                |x, _| (x & 7).count_ones() as i32 - (x >> 3).count_ones() as i32,
                &same,
            ),
        ),
        _ => panic!("no statement about {name}"),
    };
    Statement { ranges, expected }
}

/// An operation without its operands.
fn apply(word: &Word, a: i16, b: i16) -> i16 {
    let (long_a, long_b) = (i32::from(a), i32::from(b));
    match *word {
        Word::Add(_) => a.wrapping_add(b),
        Word::Sub(_) => a.wrapping_sub(b),
        Word::MulLow(_) => a.wrapping_mul(b),
        Word::MulHigh(_) => ((long_a * long_b) >> 16) as i16,
        Word::MulRound(_) => ((long_a * long_b + (1 << 14)) >> 15) as i16,
        Word::And(_) => a & b,
        Word::Or(_) => a | b,
        Word::Min(_) => (a as u16).min(b as u16) as i16,
        Word::Left(_, count) => a << count,
        Word::Right(_, count) => (a as u16 >> count) as i16,
        Word::Sign(_) => a >> 15,
        Word::Constant(_) | Word::Input(_) | Word::Low(_) | Word::High(_) => {
            unreachable!("no operands")
        }
    }
}

/// The same operation on other words.
fn with(word: Word, mut part: impl FnMut(Place) -> Place) -> Word {
    match word {
        Word::Add(both) => Word::Add(both.map(part)),
        Word::Sub(both) => Word::Sub(both.map(part)),
        Word::MulLow(both) => Word::MulLow(both.map(part)),
        Word::MulHigh(both) => Word::MulHigh(both.map(part)),
        Word::MulRound(both) => Word::MulRound(both.map(part)),
        Word::And(both) => Word::And(both.map(part)),
        Word::Or(both) => Word::Or(both.map(part)),
        Word::Min(both) => Word::Min(both.map(part)),
        Word::Left(a, count) => Word::Left(part(a), count),
        Word::Right(a, count) => Word::Right(part(a), count),
        Word::Sign(a) => Word::Sign(part(a)),
        Word::Constant(_) | Word::Input(_) | Word::Low(_) | Word::High(_) => word,
    }
}

/// The operands of an operation; of one word it is both.
fn operands(word: Word) -> Option<[Place; 2]> {
    let mut parts = Vec::new();
    with(word, |part| {
        parts.push(part);
        part
    });
    Some([*parts.first()?, *parts.last()?])
}

/// The results of a list of words for these inputs.
pub fn values(function: &Function, inputs: &[i16]) -> Vec<i16> {
    let mut values: Vec<i16> = Vec::with_capacity(function.list.len());
    for word in &function.list {
        let of = |place: Place| values[usize::from(place)];
        let sum = |sum: u32| {
            let products = function.sums[sum as usize].iter();
            let product = |&[a, b]: &[Place; 2]| i32::from(of(a)) * i32::from(of(b));
            products.map(product).fold(0, i32::wrapping_add)
        };
        values.push(match *word {
            Word::Constant(value) => value,
            Word::Input(i) => inputs[usize::from(i)],
            Word::Low(s) => sum(s) as i16,
            Word::High(s) => (sum(s) >> 16) as i16,
            _ => {
                let [a, b] = operands(*word).expect("an operation");
                apply(word, of(a), of(b))
            }
        });
    }
    let results = function.results.iter();
    results.map(|&place| values[usize::from(place)]).collect()
}

/// The range of values, and c and d if they are c·x + d.
type Tried = (Range, Option<[i32; 2]>);

/// How a word depends on its base: a number for each formula, so that a formula is tried once.
type Formula = Place;

struct Words<'a> {
    function: &'a Function,
    /// The word that alone determines this one; itself if there is none. Nothing for numbers.
    base: Vec<Option<Place>>,
    formula: Vec<Formula>,
    /// By an operation on formulas.
    formulas: HashMap<Word, Formula>,
    /// By formula: its value for each word.
    tables: HashMap<Formula, Rc<[i16]>>,
    /// By formula and range of the base.
    tried: HashMap<(Formula, Range), Tried>,
    /// Of bases.
    ranges: Vec<Range>,
    forms: Vec<Option<Form>>,
}

fn scaled(form: &Form, times: i32) -> Form {
    let scaled = form
        .iter()
        .map(|&(key, by)| (key, (by * times).rem_euclid(Q)));
    scaled.filter(|(_, by)| *by != 0).collect()
}

fn plus(a: &Form, b: &Form) -> Form {
    let mut sum: HashMap<u32, i32> = a.iter().copied().collect();
    for &(key, times) in b {
        *sum.entry(key).or_default() += times;
    }
    let mut sum: Form = sum
        .into_iter()
        .map(|(key, times)| (key, times.rem_euclid(Q)))
        .collect();
    sum.retain(|(_, times)| *times != 0);
    sum.sort_unstable();
    sum
}

fn times(a: &Form, b: &Form) -> Option<Form> {
    let mut product = Form::new();
    for &(i, x) in a {
        for &(j, y) in b {
            if i >> 16 != 0 || j >> 16 != 0 {
                return None;
            }
            let term = vec![(i.min(j) << 16 | i.max(j), x * y % Q)];
            product = plus(&product, &term);
        }
    }
    Some(product)
}

impl<'a> Words<'a> {
    fn new(function: &'a Function, statement: &Statement) -> Result<Self, String> {
        let mut all = Self {
            function,
            base: Vec::new(),
            formula: Vec::new(),
            formulas: HashMap::new(),
            // The formula of a base is 0.
            tables: HashMap::from([(0, (0..=u16::MAX).map(|x| x as i16).collect())]),
            tried: HashMap::new(),
            ranges: Vec::new(),
            forms: Vec::new(),
        };
        for place in 0..function.list.len() as Place {
            all.add(place, statement)
                .map_err(|why| format!("word {place}: {why}"))?;
        }
        Ok(all)
    }

    fn word(&self, place: Place) -> Word {
        self.function.list[usize::from(place)]
    }

    fn intern(&mut self, word: Word) -> Formula {
        let next = Formula::try_from(self.formulas.len() + 1).expect("few formulas");
        *self.formulas.entry(word).or_insert(next)
    }

    fn add(&mut self, place: Place, statement: &Statement) -> Result<(), String> {
        let word = self.word(place);
        let (mut base, mut formula) = (Some(place), 0);
        let (mut range, mut form) = (ANY, None);
        match word {
            Word::Constant(value) => {
                base = None;
                formula = self.intern(word);
                self.tables.insert(formula, [value; 1 << 16].into());
                range = [i32::from(value); 2];
                form = Some(scaled(&vec![(0, 1)], i32::from(value)));
            }
            Word::Input(i) => {
                range = statement.ranges[usize::from(i)];
                form = Some(vec![(u32::from(i) + 1, 1)]);
            }
            Word::Low(_) => {}
            Word::High(sum) => {
                let (least, most) = self.sum(sum)?;
                range = [(least >> 16) as i32, (most >> 16) as i32];
            }
            _ => {
                let [a, b] = operands(word).expect("an operation");
                let bases = [a, b].map(|place| self.base[usize::from(place)]);
                let one = match bases {
                    [None, other] | [other, None] => Some(other),
                    [a, b] => (a == b).then_some(a),
                };
                if let Some(one) = one {
                    base = one;
                    let of = |place: Place| self.formula[usize::from(place)];
                    let ([a, b], word) = ([a, b].map(of), with(word, of));
                    formula = self.intern(word);
                    if !self.tables.contains_key(&formula) {
                        let (a, b) = (self.values(a), self.values(b));
                        let both = a.iter().zip(&*b);
                        let table = both.map(|(&a, &b)| apply(&word, a, b)).collect();
                        self.tables.insert(formula, table);
                    }
                } else {
                    (range, form) = self.of_two(&word, [a, b])?;
                }
            }
        }
        self.base.push(base);
        self.formula.push(formula);
        self.ranges.push(range);
        self.forms.push(form);
        Ok(())
    }

    /// The values of a formula for all words, from 0 to −1.
    fn values(&self, formula: Formula) -> Rc<[i16]> {
        self.tables[&formula].clone()
    }

    /// The range of a word, and its form if it has one.
    fn known(&mut self, place: Place) -> (Range, Option<Form>) {
        let at = usize::from(place);
        let Some(base) = self.base[at].filter(|base| *base != place) else {
            return (self.ranges[at], self.forms[at].clone());
        };
        let within = self.ranges[usize::from(base)];
        let formula = self.formula[at];
        let tried = self.tried.get(&(formula, within)).copied();
        let (range, affine) = tried.unwrap_or_else(|| {
            let table = self.values(formula);
            let of = |x: i32| i32::from(table[usize::from(x as u16)]);
            let [least, most] = within;
            let values = || (least..=most).map(of);
            let range = [values().min(), values().max()].map(|value| value.expect("a word"));
            let c = if least < most {
                of(least + 1) - of(least)
            } else {
                0
            };
            let d = of(least) - c * least;
            let is_affine = (least..=most).all(|x| (of(x) - c * x - d) % Q == 0);
            let affine = is_affine.then(|| [c, d].map(|x| x.rem_euclid(Q)));
            self.tried.insert((formula, within), (range, affine));
            (range, affine)
        });
        let form = self.forms[usize::from(base)].as_ref();
        let form = form
            .zip(affine)
            .map(|(form, [c, d])| plus(&scaled(form, c), &scaled(&vec![(0, 1)], d)));
        (range, form)
    }

    /// A sum, a difference, or the reduction of a sum of products.
    fn of_two(&mut self, word: &Word, [a, b]: [Place; 2]) -> Result<(Range, Option<Form>), String> {
        let sign = match word {
            Word::Add(_) => 1,
            Word::Sub(_) => -1,
            _ => return Ok((ANY, None)),
        };
        let ([least, most], left) = self.known(a);
        let ([less, more], right) = self.known(b);
        let range = match sign {
            1 => [least + less, most + more],
            _ => [least - more, most - less],
        };
        if range[0] < ANY[0] || range[1] > ANY[1] {
            return Err(format!("a sum is from {} to {}", range[0], range[1]));
        }
        if let (Word::Sub(_), Word::High(sum), Some(base)) =
            (word, self.word(a), self.base[usize::from(b)])
            && self.word(base) == Word::Low(sum)
        {
            return Ok((range, self.reduced(sum, self.formula[usize::from(b)])));
        }
        let form = left
            .zip(right)
            .map(|(left, right)| plus(&left, &scaled(&right, sign)));
        Ok((range, form))
    }

    /// The form of high − f(low) for the halves of a sum of products. R·(high − f(low)) is
    /// sum − low − R·f(low), of which the latter two must vanish.
    fn reduced(&mut self, sum: u32, f: Formula) -> Option<Form> {
        let table = self.values(f);
        let vanishes = |(low, &f): (usize, &i16)| (low as i32 + (i32::from(f) << 16)) % Q == 0;
        let mut form = table.iter().enumerate().all(vanishes).then(Form::new)?;
        for [a, b] in self.function.sums[sum as usize].clone() {
            form = plus(&form, &times(&self.known(a).1?, &self.known(b).1?)?);
        }
        Some(scaled(&form, 169))
    }

    /// The least and the greatest value of a sum of products, of 32 bits.
    fn sum(&mut self, sum: u32) -> Result<(i64, i64), String> {
        let (mut least, mut most) = (0, 0);
        for [a, b] in self.function.sums[sum as usize].clone() {
            let (a, b) = (self.known(a).0, self.known(b).0);
            let corners = a.map(|a| b.map(|b| i64::from(a) * i64::from(b)));
            least += corners.as_flattened().iter().min().expect("four");
            most += corners.as_flattened().iter().max().expect("four");
        }
        match least >= i64::from(i32::MIN) && most <= i64::from(i32::MAX) {
            true => Ok((least, most)),
            false => Err("a sum of products has more than 32 bits".into()),
        }
    }

    /// Proves what is stated of a result.
    fn check(&mut self, place: Place, expected: &Expected) -> Result<(), String> {
        match expected {
            Expected::Form(form, [least, most]) => {
                let (range, known) = self.known(place);
                if known.as_ref() != Some(form) {
                    return Err("another form".into());
                }
                match range[0] >= *least && range[1] <= *most {
                    true => Ok(()),
                    false => Err(format!("it is from {} to {}", range[0], range[1])),
                }
            }
            Expected::Of(parts, f, of) => {
                let base = self.base[usize::from(place)].ok_or("a number")?;
                let of_inputs = |place: Place| match self.word(place) {
                    Word::Input(i) => Some(usize::from(i)),
                    _ => None,
                };
                let is_base = match (self.word(base), &parts[..]) {
                    (Word::Input(i), [(part, 1)]) => usize::from(i) == *part,
                    (Word::Add([a, b]), [(x, 1), (y, 1)])
                    | (Word::Sub([a, b]), [(x, 1), (y, -1)]) => {
                        [of_inputs(a), of_inputs(b)] == [Some(*x), Some(*y)]
                    }
                    _ => false,
                };
                if !is_base {
                    return Err("it depends on other words".into());
                }
                let [least, most] = self.ranges[usize::from(base)];
                let table = self.values(self.formula[usize::from(place)]);
                let wrong = |x: &i32| i32::from(table[usize::from(*x as u16)]) != f(*x, *of);
                match (least..=most).find(wrong) {
                    Some(x) => Err(format!("another value for {x}")),
                    None => Ok(()),
                }
            }
            Expected::Invalid => {
                // A sign of a disjunction is that of one of its parts.
                let mut parts = match self.word(place) {
                    Word::Sign(a) => vec![a],
                    Word::Constant(0) => return Ok(()),
                    _ => return Err("no sign".into()),
                };
                while let Some(part) = parts.pop() {
                    match self.word(part) {
                        Word::Or(both) => parts.extend(both),
                        Word::Constant(0) => {}
                        _ => {
                            let base = self.base[usize::from(part)].ok_or("a number")?;
                            let table = self.values(self.formula[usize::from(part)]);
                            let is_input = matches!(self.word(base), Word::Input(_));
                            let is_right = |x: i32| (table[x as usize] < 0) == (x >= Q);
                            if !is_input || !(0..4096).all(is_right) {
                                return Err("not the sign of a number that is too large".into());
                            }
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

/// Proves what is stated of a function.
pub fn prove(function: &Function) -> Result<String, Failed> {
    let statement = statement(function);
    attempt(function, &statement).map_err(|why| match search(function, &statement) {
        Some((inputs, how)) => Failed::Refuted {
            inputs: inputs.iter().map(|&word| u64::from(word as u16)).collect(),
            how: format!("{how} ({why})"),
        },
        None => Failed::Open(why),
    })
}

fn attempt(function: &Function, statement: &Statement) -> Result<String, String> {
    let mut words = Words::new(function, statement)?;
    if statement.expected.len() != function.results.len() {
        return Err("another number of results".into());
    }
    for (i, (&place, expected)) in function.results.iter().zip(&statement.expected).enumerate() {
        words
            .check(place, expected)
            .map_err(|why| format!("result {i}: {why}"))?;
    }
    // Each coefficient is among those whose signs are asked for.
    if function.name.starts_with("mlkem::decode") {
        let is_input = |word| matches!(words.word(word), Word::Input(_));
        let is_sum = |word: &&Word| matches!(word, Word::Sub([_, b]) if is_input(*b));
        if function.list.iter().filter(is_sum).count() != 256 {
            return Err("a coefficient is not compared with q".into());
        }
    }
    Ok(format!(
        "{} words, {} tables",
        function.list.len(),
        words.tables.len()
    ))
}

/// Inputs for which a statement is false. The portable words must agree with the statement, so that
/// they confirm that it is the list which is wrong.
fn search(function: &Function, statement: &Statement) -> Option<(Vec<i16>, String)> {
    let mut random = Random(1);
    (0..600).find_map(|round| {
        let inputs: Vec<i16> = statement
            .ranges
            .iter()
            .enumerate()
            .map(|(i, &[least, most])| {
                let word = random.word();
                let room = (most - least) as u64 + 1;
                match (round, word >> 63) {
                    (0..20, _) => (least + (word % room) as i32) as i16,
                    (20..40, 0) | (40, _) => least as i16,
                    (20..=41, _) => most as i16,
                    // One that is not zero.
                    _ if i == round % statement.ranges.len() => {
                        match round / statement.ranges.len() {
                            1 => most as i16,
                            _ => (least + (word % room) as i32) as i16,
                        }
                    }
                    _ => 0.clamp(least, most) as i16,
                }
            })
            .collect();
        let found = values(function, &inputs);
        let wrong = |results: &[i16]| {
            let pairs = results.iter().zip(&statement.expected).enumerate();
            if matches!(statement.expected.last(), Some(Expected::Invalid)) {
                let is_invalid = results[256..].contains(&-1);
                if is_invalid != inputs.iter().any(|&x| i32::from(x) >= Q) {
                    return Some(256);
                }
            }
            pairs
                .filter(|(_, (result, expected))| !holds(**result, expected, &inputs))
                .map(|(i, _)| i)
                .next()
        };
        let i = wrong(&found)?;
        let confirmed = function.run(&inputs);
        let how = match wrong(&confirmed) {
            None if confirmed[i] != found[i] => "the portable words have another result",
            _ => "so do the portable words",
        };
        Some((inputs, format!("result {i} is wrong, {how}")))
    })
}

fn holds(result: i16, expected: &Expected, inputs: &[i16]) -> bool {
    let result = i32::from(result);
    let input = |key: u32| match key {
        0 => 1,
        key => i64::from(inputs[key as usize - 1]),
    };
    match expected {
        Expected::Form(form, [least, most]) => {
            let product = |&(key, times): &(u32, i32)| {
                i64::from(times) * input(key >> 16) * input(key & 0xffff) % i64::from(Q)
            };
            let sum: i64 = form.iter().map(product).sum();
            (sum - i64::from(result)) % i64::from(Q) == 0 && (*least..=*most).contains(&result)
        }
        Expected::Of(parts, f, of) => {
            let x = parts.iter().map(|&(i, times)| times * i32::from(inputs[i]));
            result == f(x.sum(), *of)
        }
        // Of all lanes together.
        Expected::Invalid => true,
    }
}

/// Plants defects of each kind in the words of functions.
pub fn defects(all: &[Function]) -> Planted {
    type Plant = fn(&Word) -> Option<Word>;
    let kinds: [(&str, Plant); 5] = [
        ("a low half for a high one", |word| match *word {
            Word::MulHigh(both) => Some(Word::MulLow(both)),
            _ => None,
        }),
        ("a sum for a difference", |word| match *word {
            Word::Sub(both) => Some(Word::Add(both)),
            _ => None,
        }),
        ("a wrong word", |word| match *word {
            Word::Add([a, b]) if a > 1 && b > 1 => Some(Word::Add([a - 1, b])),
            _ => None,
        }),
        ("a wrong shift", |word| match *word {
            Word::Right(a, count) => Some(Word::Right(a, count + 1)),
            _ => None,
        }),
        ("a wrong constant", |word| match *word {
            Word::Constant(value) if value > 15 => Some(Word::Constant(value / 2)),
            _ => None,
        }),
    ];
    let mut all_planted = Planted::default();
    // Vectors of 32 words do the same in another order.
    let functions = all.iter();
    for function in functions.filter(|function| function.name.ends_with(" 16 words")) {
        for (name, plant) in kinds {
            let places = 0..function.list.len();
            let places = places.filter_map(|at| Some((at, plant(&function.list[at])?)));
            let places: Vec<(usize, Word)> = places.collect();
            for at in [places.len() / 4, places.len() * 3 / 4] {
                let Some(&(place, word)) = places.get(at) else {
                    continue;
                };
                let mut planted = function.clone();
                planted.list[place] = word;
                let found = prove(&planted);
                // A defect that no result depends on is none.
                if found.is_ok() && is_unread(&planted, place as Place) {
                    continue;
                }
                let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
                all_planted.add(is_refuted, || {
                    format!("{name} at {place} of {}: {found:?}", function.name)
                });
            }
        }
    }
    all_planted
}

/// Whether no result depends on a word.
fn is_unread(function: &Function, place: Place) -> bool {
    let reads = |word: &Word| match word {
        Word::Low(sum) | Word::High(sum) => {
            function.sums[*sum as usize].as_flattened().contains(&place)
        }
        word => operands(*word).is_some_and(|both| both.contains(&place)),
    };
    !function.results.contains(&place) && !function.list.iter().any(reads)
}
