//! RSA's exponentiation in machine code as a whole: power = base^exponent.
//!
//! The machine stops where it calls a product, which was proved on its own. The numbers that go in
//! are known powers of the base, and the result is another power. So the whole exponentiation runs,
//! window by window, and in the end the exponent is Σ digit·16^i. The table is two functions: one
//! stores the entries, the other must return the entry of each digit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lockstep_kernels::proved::{Function, Place, Term};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::bits::{Bit, Bits};
use crate::claims::{number, operand};
use crate::lift::{Check, LANES, Lanes, Proved, refuted};
use crate::machine::{Machine, Module, Outcome, Value};
use crate::prints::{hash, prints};
use crate::proof::Failed;
use crate::ranges::MASK;
use crate::terms::{Look, named, with};
use crate::tries::inputs;

/// Bits of a digit, entries of a table, and digits in a word of an exponent.
const WINDOW: usize = 4;
const ENTRIES: usize = 1 << WINDOW;
const DIGITS: usize = 15;

/// Limbs of primes, and the digits and words of their exponents and of an entry.
const SIZES: [usize; 4] = [10, 20, 30, 40];

fn digits(limbs: usize) -> usize {
    128 * limbs / 10
}

fn exponent_words(limbs: usize) -> usize {
    digits(limbs).div_ceil(DIGITS)
}

fn entry_words(limbs: usize) -> usize {
    digits(limbs) * WINDOW / 64
}

fn words_of_table(limbs: usize) -> usize {
    entry_words(limbs) * ENTRIES
}

/// The functions of a module that are proved here, by their symbols.
pub fn checks(all: &[Function]) -> Vec<(String, Check<'_>)> {
    let mut checks: Vec<(String, Check<'_>)> = Vec::new();
    for lanes in LANES {
        for limbs in SIZES {
            let symbol = format!("modexp::select_entry::<{}>, {limbs} limbs", lanes.0);
            let check = move |module: &Module| table(module, lanes, limbs);
            checks.push((symbol, Box::new(check)));
        }
    }
    // Elsewhere the compiler writes them out in place of a call.
    let [wide, after, narrow] = LANES;
    for (lanes, limbs) in SIZES.map(|limbs| (narrow, limbs)) {
        let symbol = format!("<modexp::Power<{}, {limbs}>>::exponentiate", lanes.0);
        let function = symbol.clone();
        let check =
            move |module: &Module| exponentiation(module, all, &function, lanes, limbs, None);
        checks.push((symbol, Box::new(check)));
    }
    for (lanes, limbs) in [(wide, 10), (wide, 20), (after, 10)] {
        let symbol = format!("<modexp::Power<{}, {limbs}>>::step", lanes.0);
        let function = symbol.clone();
        let check = move |module: &Module| {
            let step = |digit| exponentiation(module, all, &function, lanes, limbs, Some(digit));
            let steps: Result<Vec<Proved>, Failed> = (0..digits(limbs)).map(step).collect();
            Ok(steps?.pop().expect("digits"))
        };
        checks.push((symbol, Box::new(check)));
    }
    checks.into_iter().map(twice).collect()
}

/// The same from two places on the stack.
fn twice<'a>((symbol, check): (String, Check<'a>)) -> (String, Check<'a>) {
    let both = move |module: &Module| check(module).and_then(|_| check(&module.lowered()));
    (symbol, Box::new(both))
}

/// Where pieces of memory are.
fn memory(piece: usize) -> u64 {
    0x1000_0000_0000 + ((piece as u64) << 24)
}

/// That `select_entry` gives the entries of a table that `store_entry` has filled, for every digit:
/// the 52 bits of each limb in each lane.
fn table(module: &Module, (lanes, width, _): Lanes, limbs: usize) -> Result<Proved, Failed> {
    let mut machine = Machine::new(module);
    let words = entry_words(limbs);
    let size = limbs * width;
    let [number, table, out, exponent] = [0, 1, 2, 3].map(memory);
    let [words_of_table, limbs_word] = [words * ENTRIES, limbs].map(|count| count as u64);
    let store = module.address(&format!("modexp::store_entry::<{lanes}>"))?;
    let select = module.address(&format!("modexp::select_entry::<{lanes}>"))?;
    for entry in 0..ENTRIES {
        machine.store_inputs(number, entry * size, size);
        let arguments = [table, words_of_table, entry as u64, number, limbs_word];
        let before = machine.memory();
        machine.call(store, &arguments.map(Value::Word))?;
        machine.wrote_only(&before, &[(table, words * ENTRIES * width)])?;
    }
    let (first, exponents) = (ENTRIES * size, exponent_words(limbs));
    machine.store_inputs(exponent, first, exponents * width);
    let before = machine.memory();
    // A number is as long as a prime; its uppermost limb is shorter than the others.
    let bits_of = |input: usize| (64 * words - 52 * (input % size / width)).min(52);
    // One body for all lengths: all digits, or all shifts of a word, for the shortest one.
    let last = digits(limbs) - 1;
    let all: Vec<usize> = match (limbs, width) {
        (10, 4) => (0..=last).collect(),
        (10, _) => (0..=DIGITS).chain([last]).collect(),
        _ => vec![0, DIGITS - 1, DIGITS, last],
    };
    for digit in all {
        let (word, shift) = (digit / DIGITS, digit % DIGITS * WINDOW);
        let bit = (WINDOW * digit) as u64;
        let exponents = exponents as u64;
        let arguments = [
            out,
            limbs_word,
            table,
            words_of_table,
            exponent,
            exponents,
            bit,
        ];
        machine.call(select, &arguments.map(Value::Word))?;
        let places = machine.places(out, size)?;
        let tried = (0..ENTRIES).flat_map(|value| (0..width).map(move |lane| (value, lane)));
        for (value, lane) in tried {
            // Of the exponents nothing but the digit of one lane is known.
            let input = |input: u32| match (input as usize).checked_sub(first) {
                None => std::array::from_fn(|i| match i < bits_of(input as usize) {
                    true => Bit::Of(input, i as u8),
                    false => Bit::Known(false),
                }),
                Some(at) => std::array::from_fn(|i| match i.checked_sub(shift) {
                    Some(i @ 0..WINDOW) if at == word * width + lane => {
                        Bit::Known(value >> i & 1 == 1)
                    }
                    _ => Bit::Unknown,
                }),
            };
            let mut bits = Bits::new(&machine.terms, &input);
            let is_other =
                |i: &usize| bits.of(places[*i])[..52] != input((value * size + i) as u32)[..52];
            let Some(i) = (lane..size).step_by(width).find(is_other) else {
                continue;
            };
            let mut random = Random(3);
            let found = (0..20).find_map(|_| {
                let mut word_of = |i: usize| match i < first {
                    true => random.word() >> (64 - bits_of(i)),
                    false => random.word(),
                };
                let count = first + exponents as usize * width;
                let mut inputs: Vec<u64> = (0..count).map(&mut word_of).collect();
                let of_lane = &mut inputs[first + word * width + lane];
                *of_lane = *of_lane & !(0xf << shift) | (value as u64) << shift;
                let source = vec![inputs[value * size + i]];
                let found = machine.terms.results(&inputs, &places[i..=i]);
                let is_other = found[0] & MASK != source[0];
                is_other.then(|| refuted(lane, inputs, &found, &source))
            });
            let why =
                format!("digit {digit} of lane {lane} is {value}, and a bit is not the entry's");
            return Err(found.unwrap_or(why.into()));
        }
    }
    machine.wrote_only(&before, &[(out, size)])?;
    Ok(Proved::by(&machine))
}

/// A power of the base: how often each part of its exponent counts.
type Exponent = BTreeMap<Part, BigInt>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    One,
    /// The exponent of the power before this step.
    Before,
    Digit(usize),
    /// An entry of a table that has not all powers of the base.
    Unknown,
}

/// The exponent of a power of the base.
fn power(e: usize) -> Exponent {
    BTreeMap::from_iter((e > 0).then(|| (Part::One, BigInt::from(e))))
}

/// How a number came to be.
#[derive(Clone, Copy)]
enum Origin {
    Given,
    Product([usize; 2]),
    Reduced(usize),
    /// The table's entry for a digit.
    Chosen(usize, [usize; ENTRIES]),
}

/// The fields of `modexp::Power`, in words, as they lie in memory. If they lay otherwise, no proof
/// would succeed.
const FIELDS: &str = "n k0 one base exponent its_words power spare entry doubled table its_words";

fn fields() -> impl Iterator<Item = &'static str> {
    FIELDS.split(' ')
}

/// Index of a field, and of its pointee.
fn field(name: &str) -> usize {
    fields().position(|field| field == name).expect("a field")
}

fn target(name: &str) -> u64 {
    memory(1 + field(name))
}

/// The first numbers: the modulus, R mod n, and the base.
const N: usize = 0;
const ONE: usize = 1;
const BASE: usize = 2;

/// An exponentiation that runs: its numbers are the inputs of the machine, one after the other.
struct Run {
    limbs: usize,
    width: usize,
    numbers: Vec<(Exponent, Origin)>,
    /// The entries of the table.
    table: [Option<usize>; ENTRIES],
    /// Limbs that must be the canonical ones of a number.
    canonical: Vec<(Vec<Place>, usize)>,
    /// The number that was written last, those of tables excepted.
    last: usize,
}

impl Run {
    fn words(&self) -> usize {
        self.limbs * self.width
    }

    /// The number in memory.
    fn read(&self, machine: &mut Machine<'_>, address: u64) -> Outcome<usize> {
        let places = machine.places(address, self.words())?;
        let inputs = places.iter().map(|&place| match machine.terms.term(place) {
            Term::Input(input) => Some(input as usize),
            _ => None,
        });
        let inputs: Vec<usize> = inputs
            .collect::<Option<_>>()
            .ok_or("a factor is no number")?;
        match inputs
            .iter()
            .enumerate()
            .all(|(i, &input)| input == inputs[0] + i)
        {
            true if inputs[0].is_multiple_of(self.words()) => Ok(inputs[0] / self.words()),
            _ => Err("a factor is parts of numbers".into()),
        }
    }

    /// A new number in memory.
    fn add(
        &mut self,
        machine: &mut Machine<'_>,
        address: u64,
        exponent: Exponent,
        origin: Origin,
    ) -> usize {
        let number = self.numbers.len();
        self.numbers.push((exponent, origin));
        machine.store_inputs(address, number * self.words(), self.words());
        number
    }

    /// out = a², by the modulus, with room for twice a.
    fn square(&mut self, machine: &mut Machine<'_>) -> Outcome {
        let [out, doubled, a, n, k0] = machine.arguments()?;
        if [out, a, n, k0].contains(&doubled) {
            return Err("room that is not free".into());
        }
        for i in 0..self.words() as u64 {
            machine.store(doubled + 8 * i, Value::Undefined);
        }
        self.product(machine, [out, a, a, n, k0])
    }

    /// out = a·b, by the modulus.
    fn multiply(&mut self, machine: &mut Machine<'_>) -> Outcome {
        let all = machine.arguments()?;
        self.product(machine, all)
    }

    fn product(&mut self, machine: &mut Machine<'_>, [out, a, b, n, k0]: [u64; 5]) -> Outcome {
        let factors = [self.read(machine, a)?, self.read(machine, b)?];
        if k0 != target("k0") || self.read(machine, n)? != N || factors.contains(&N) {
            return Err("another modulus".into());
        }
        let mut exponent = self.numbers[factors[0]].0.clone();
        for (part, times) in &self.numbers[factors[1]].0 {
            *exponent.entry(*part).or_default() += times;
        }
        self.last = self.add(machine, out, exponent, Origin::Product(factors));
        Ok(())
    }

    /// An entry of the table, which is fully reduced before.
    fn store(&mut self, machine: &mut Machine<'_>) -> Outcome {
        let [table, words, entry, power, limbs] = machine.arguments()?;
        let is_known = table == target("table") && words == words_of_table(self.limbs) as u64;
        if !is_known || limbs != self.limbs as u64 || entry >= ENTRIES as u64 {
            return Err("another table".into());
        }
        self.canonical
            .push((machine.places(power, self.words())?, self.last));
        let exponent = self.numbers[self.last].0.clone();
        self.last = self.add(machine, power, exponent, Origin::Reduced(self.last));
        self.table[entry as usize] = Some(self.last);
        Ok(())
    }

    /// The entry for a digit.
    fn select(&mut self, machine: &mut Machine<'_>) -> Outcome {
        let [out, limbs, table, of_table, exponent, words, bit] = machine.arguments()?;
        let lengths = [words_of_table, exponent_words].map(|words| words(self.limbs) as u64);
        let is_known = [table, exponent] == ["table", "exponent"].map(target)
            && [of_table, words] == lengths
            && limbs == self.limbs as u64;
        let digit = bit as usize / WINDOW;
        if !is_known || bit % WINDOW as u64 != 0 || digit / DIGITS >= words as usize {
            return Err("another choice".into());
        }
        if self.table.contains(&None) {
            return Err("a table with gaps".into());
        }
        let entries = self.table.map(|entry| entry.expect("no gaps"));
        let is_power = |(e, &entry): (usize, &usize)| self.numbers[entry].0 == power(e);
        let part = match entries.iter().enumerate().all(is_power) {
            true => Part::Digit(digit),
            false => Part::Unknown,
        };
        let exponent = [(part, 1.into())].into();
        self.add(machine, out, exponent, Origin::Chosen(digit, entries));
        Ok(())
    }
}

/// The effect of a function, in place of its call.
type Called<'a> = fn(&mut Run, &mut Machine<'a>) -> Outcome;

/// Runs a function: all of an exponentiation, or the step of one digit.
fn ran<'a>(
    module: &'a Module,
    symbol: &str,
    (lanes, width, _): Lanes,
    limbs: usize,
    step: Option<usize>,
) -> Outcome<(Machine<'a>, Run)> {
    let mut machine = Machine::new(module);
    let mut run = Run {
        limbs,
        width,
        numbers: vec![(power(0), Origin::Given); 2],
        table: [None; ENTRIES],
        canonical: Vec::new(),
        last: ONE,
    };
    run.numbers.push((power(1), Origin::Given));
    for at in 0..fields().count() {
        machine.store(memory(0) + 8 * at as u64, Value::Word(memory(1 + at)));
    }
    for (name, length) in [
        ("exponent", exponent_words(limbs)),
        ("table", words_of_table(limbs)),
    ] {
        let at = memory(0) + 8 * (field(name) as u64 + 1);
        machine.store(at, Value::Word(length as u64));
    }
    for (name, number) in [("n", N), ("one", ONE), ("base", BASE)] {
        machine.store_inputs(target(name), number * run.words(), run.words());
    }
    if step.is_some() {
        for e in 0..ENTRIES {
            run.table[e] = Some(run.numbers.len());
            run.numbers.push((power(e), Origin::Given));
        }
        let before = [(Part::Before, 1.into())].into();
        run.add(&mut machine, target("power"), before, Origin::Given);
    }
    let run = Rc::new(RefCell::new(run));
    let stops: [(String, Called<'a>); 4] = [
        (
            format!("montgomery::multiply::<{lanes}, {limbs}>"),
            Run::multiply,
        ),
        (
            format!("montgomery::square::<{lanes}, {limbs}>"),
            Run::square,
        ),
        (format!("modexp::store_entry::<{lanes}>"), Run::store),
        (format!("modexp::select_entry::<{lanes}>"), Run::select),
    ];
    for (symbol, stop) in stops {
        let (address, run) = (module.address(&symbol)?, run.clone());
        let stop = move |machine: &mut Machine<'a>| stop(&mut run.borrow_mut(), machine);
        machine.stops.insert(address, Rc::new(stop));
    }
    let last = step.unwrap_or(WINDOW * digits(limbs));
    let arguments = [memory(0), 1, last as u64].map(Value::Word);
    let before = machine.memory();
    machine.call(module.address(symbol)?, &arguments)?;
    // Nobody writes to the modulus, the base, the exponents or the table but where it stops.
    let mut pieces = vec![(memory(0), fields().count())];
    let own = ["power", "spare", "entry", "doubled"];
    pieces.extend(own.map(|name| (target(name), limbs * width)));
    machine.wrote_only(&before, &pieces)?;
    machine.stops.clear();
    let run = Rc::try_unwrap(run)
        .map_err(|_| "a stop is left")?
        .into_inner();
    Ok((machine, run))
}

/// Proves that the machine code computes base^exponent, or of a step power^16·base^digit.
fn exponentiation(
    module: &Module,
    all: &[Function],
    symbol: &str,
    lanes: Lanes,
    limbs: usize,
    step: Option<usize>,
) -> Result<Proved, Failed> {
    let (mut machine, run) = ran(module, symbol, lanes, limbs, step)?;
    let Value::Word(result) = machine.load(memory(0) + 8 * field("power") as u64) else {
        return Err("no result".into());
    };
    let result = run.read(&mut machine, result)?;
    let digit = |i: usize| (Part::Digit(i), BigInt::from(1) << (WINDOW * i));
    let expected: Exponent = match step {
        Some(digit) => [(Part::Before, 16.into()), (Part::Digit(digit), 1.into())].into(),
        None => (0..digits(limbs)).map(digit).collect(),
    };
    if run.numbers[result].0 != expected {
        let found = run.refute(all, result);
        return Err(found.unwrap_or("another exponent".into()));
    }
    run.is_canonical(all, &mut machine)?;
    Ok(Proved::by(&machine))
}

impl Run {
    /// That the entries were fully reduced before they were stored, as the source does it.
    fn is_canonical(&self, all: &[Function], machine: &mut Machine<'_>) -> Result<(), Failed> {
        let function = named(all, &format!("montgomery::canonical, {} limbs", self.limbs));
        let (source, results) = function.terms();
        let terms = &mut machine.terms;
        let mask = terms.place(Term::Constant(MASK));
        let mut pairs = Vec::new();
        for (places, number) in &self.canonical {
            for lane in 0..self.width {
                let input = |of: usize, limb: usize| {
                    Term::Input((of * self.words() + limb * self.width + lane) as u32)
                };
                let mut known: Vec<Place> = Vec::new();
                for term in &source.list {
                    // The operands are the masked limbs of the number and of the modulus.
                    let term = match *term {
                        Term::Input(i) => match (i as usize).checked_sub(self.limbs) {
                            None => Term::And([terms.place(input(*number, i as usize)), mask]),
                            Some(limb) => input(N, limb),
                        },
                        term => with(term, |part| known[part as usize]),
                    };
                    known.push(terms.place(term));
                }
                let results = results.iter().enumerate();
                let pair = |(limb, result): (usize, &Place)| {
                    (
                        lane,
                        places[limb * self.width + lane],
                        known[*result as usize],
                    )
                };
                pairs.extend(results.map(pair));
            }
        }
        let prints = prints(terms, &|i, _, _| hash(0, &[u64::from(i)]));
        let is_other =
            |(_, a, b): &&(usize, Place, Place)| prints[*a as usize] != prints[*b as usize];
        let Some(&(lane, a, b)) = pairs.iter().find(is_other) else {
            return Ok(());
        };
        let mut random = Random(9);
        let found = (0..20).find_map(|_| {
            let inputs = inputs(function, &mut random);
            // All numbers are the same one, which is to be reduced.
            let word = |i: usize| match i / self.words() {
                N => inputs[self.limbs + i / self.width],
                _ => inputs[i % self.words() / self.width],
            };
            let words: Vec<u64> = (0..self.numbers.len() * self.words()).map(word).collect();
            let [a, b] = [a, b].map(|place| terms.results(&words, &[place]));
            (a != b).then(|| refuted(lane, inputs, &a, &b))
        });
        let why = "an entry is not reduced as the source does it";
        Err(found.unwrap_or(why.into()))
    }

    /// Numbers for which a result is another power: by portable lanes, one operation after the
    /// other.
    fn refute(&self, all: &[Function], result: usize) -> Option<Failed> {
        let limbs = self.limbs;
        let multiply = named(all, &format!("montgomery::multiply, {limbs} limbs, loop"));
        let canonical = named(all, &format!("montgomery::canonical, {limbs} limbs"));
        let mut random = Random(5);
        (0..20).find_map(|_| {
            let operands = inputs(multiply, &mut random);
            let part = |name: &str| {
                let (operand, at) = operand(multiply, name).expect("an operand");
                operands[at..at + operand.limbs].to_vec()
            };
            let factor = operand(multiply, "a").expect("an operand").0;
            let value = |limbs: &[u64]| number(limbs, factor, false);
            let [base_limbs, n_limbs, k0] = ["a", "n", "k0"].map(part);
            let (base, n, r) = (
                value(&base_limbs),
                value(&n_limbs),
                BigInt::from(1) << (52 * limbs),
            );
            let exponent: Vec<u64> = (0..digits(limbs)).map(|_| random.word() % 16).collect();
            let one = crate::claims::digits(&(&r % &n), limbs);
            let mut values = vec![n_limbs.clone(), one, base_limbs.clone()];
            for (_, origin) in &self.numbers[values.len()..] {
                values.push(match *origin {
                    Origin::Given => return None,
                    Origin::Product([a, b]) => {
                        multiply.words(&[&values[a][..], &values[b], &n_limbs, &k0].concat())
                    }
                    Origin::Reduced(a) => {
                        let masked: Vec<u64> = values[a].iter().map(|limb| limb & MASK).collect();
                        canonical.words(&[masked, n_limbs.clone()].concat())
                    }
                    Origin::Chosen(digit, entries) => {
                        values[entries[*exponent.get(digit)? as usize]].clone()
                    }
                });
            }
            let e = exponent
                .iter()
                .rev()
                .fold(BigInt::ZERO, |sum, digit| (sum << WINDOW) + *digit);
            // For a base x·R the result is x^e·R; so times R^(e − 1) it is base^e.
            let found = value(&values[result]) * r.modpow(&(&e - 1), &n);
            let inputs = [base_limbs, n_limbs, exponent].concat();
            let is_other = found % &n != base.modpow(&e, &n);
            is_other.then(|| refuted(0, inputs, &values[result], &[]))
        })
    }
}
