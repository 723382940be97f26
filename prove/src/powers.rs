//! RSA's exponentiation in machine code as a whole: power = base^exponent.
//!
//! Where it calls a product, which was proved on its own, the machine stops: the numbers that go in
//! are known powers of the base, and what comes out is another one. So the whole exponentiation
//! runs, window by window, and in the end the exponent is Σ digit·16^i. The table is two functions,
//! of which one must give back what the other stored, for each digit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lockstep_kernels::proved::{Function, Place, Term};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::bits::{Bit, Bits};
use crate::claims::{inputs, number, operand};
use crate::lift::{Check, Different, Proved};
use crate::machine::{Machine, Module, Outcome, Value};
use crate::prints::{hash, prints};
use crate::ranges::MASK;
use crate::terms::{Look, named, with};

/// Where pieces of memory are.
const MEMORY: u64 = 0x1000_0000_0000;

/// Bits of a digit, and entries of a table.
const WINDOW: usize = 4;
const ENTRIES: usize = 1 << WINDOW;

/// Lanes, and their vectors' words.
const LANES: [(&str, usize); 3] = [
    ("simd::avx512ifma::Avx512Ifma", 8),
    ("simd::avx512ifma::Avx512Ifma<order::After>", 8),
    ("simd::avx512ifma256::Avx512Ifma256", 4),
];

/// Limbs of numbers of half the length of a modulus.
const SIZES: [usize; 4] = [10, 20, 30, 40];

/// That `select_entry` gives the entries of a table that `store_entry` has filled, for every digit:
/// the 52 bits of each limb in each lane.
fn table(
    module: &Module,
    (lanes, width): (&str, usize),
    limbs: usize,
) -> Result<Proved, Different> {
    let open = Different::Open;
    let mut machine = Machine::new(module);
    let words = limbs * 52 / 64;
    let size = limbs * width;
    let [number, table, out, exponent] = [0, 1, 2, 3].map(|i| MEMORY + (i << 24));
    let word = |value: usize| Value::Word(value as u64);
    // A number is as long as a prime; its uppermost limb is shorter than the others.
    let bits_of = |limb: usize| (64 * words - 52 * limb).min(52);
    // Numbers below 2^52 in each limb: what is above is known to be zero.
    for entry in 0..ENTRIES {
        for i in 0..size {
            let input = Term::Input((entry * size + i) as u32);
            let value = Value::Term(machine.terms.place(input));
            machine.store(number + 8 * i as u64, value);
        }
        let store = module
            .address(&format!("modexp::store_entry::<{lanes}>"))
            .map_err(open)?;
        let arguments = [
            Value::Word(table),
            word(words * ENTRIES),
            word(entry),
            Value::Word(number),
            word(limbs),
        ];
        machine.call(store, &arguments).map_err(open)?;
    }
    // An exponent has words of 60 bits.
    let digits = (64 * words).div_ceil(WINDOW);
    let exponents = (64 * words).div_ceil(60);
    let first = ENTRIES * size;
    for i in 0..exponents * width {
        let value = Value::Term(machine.terms.place(Term::Input((first + i) as u32)));
        machine.store(exponent + 8 * i as u64, value);
    }
    let select = module
        .address(&format!("modexp::select_entry::<{lanes}>"))
        .map_err(open)?;
    // One body for all lengths: all digits, or all shifts of a word, for the shortest one.
    let all: Vec<usize> = match limbs {
        10 if width == 4 => (0..digits).collect(),
        10 => (0..16).chain([digits - 1]).collect(),
        _ => vec![0, 14, 15, digits - 1],
    };
    for &digit in &all {
        let arguments = [
            Value::Word(out),
            word(limbs),
            Value::Word(table),
            word(words * ENTRIES),
            Value::Word(exponent),
            word(exponents),
            word(WINDOW * digit),
        ];
        machine.call(select, &arguments).map_err(open)?;
        let places: Result<Vec<Place>, String> = (0..size)
            .map(|i| machine.place_at(out + 8 * i as u64))
            .collect();
        let places = places.map_err(open)?;
        let (word, shift) = (digit / 15, digit % 15 * WINDOW);
        for value in 0..ENTRIES {
            let input = |input: u32| match (input as usize).checked_sub(first) {
                None => std::array::from_fn(|i| match i {
                    _ if i < bits_of(input as usize % size / width) => Bit::Of(input, i as u8),
                    _ => Bit::Known(false),
                }),
                // Of the exponent nothing but the digit is known.
                Some(at) if at / width == word => {
                    std::array::from_fn(|i| match i.checked_sub(shift) {
                        Some(i @ 0..WINDOW) => Bit::Known(value >> i & 1 == 1),
                        _ => Bit::Unknown,
                    })
                }
                Some(_) => [Bit::Unknown; 64],
            };
            let mut bits = Bits::new(&machine.terms, &input);
            for (i, &place) in places.iter().enumerate() {
                let entry = (value * size + i) as u32;
                let found = bits.of(place);
                let expected = input(entry);
                if found[..52] != expected[..52] {
                    let mut random = Random(3);
                    let found = (0..20).find_map(|_| {
                        let limb = |i: usize| match i < first {
                            true => random.word() >> (64 - bits_of(i % size / width)),
                            false => random.word(),
                        };
                        let mut inputs: Vec<u64> =
                            (0..first + exponents * width).map(limb).collect();
                        let of_lane = &mut inputs[first + word * width + i % width];
                        *of_lane = *of_lane & !(0xf << shift) | (value as u64) << shift;
                        let source = vec![inputs[entry as usize]];
                        let machine = machine.terms.results(&inputs, &[place]);
                        (machine[0] & MASK != source[0]).then(|| Different::Refuted {
                            lane: i % width,
                            inputs,
                            machine,
                            source,
                        })
                    });
                    let why = format!("digit {digit} is {value}, and a bit is not the entry's");
                    return Err(found.unwrap_or(Different::Open(why)));
                }
            }
        }
    }
    Ok(Proved::by(&machine))
}

/// A power of the base: how often each part of its exponent counts.
type Exponent = BTreeMap<Part, BigInt>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    One,
    /// What the power's exponent was before.
    Before,
    Digit(usize),
    /// What a table chooses that has not all powers of the base.
    Unknown,
}

/// A number, and how it came to be.
#[derive(Clone)]
struct Number {
    exponent: Exponent,
    from: From,
}

#[derive(Clone, Copy)]
enum From {
    Given,
    Product([usize; 2]),
    Reduced(usize),
    /// The table's entry for a digit.
    Chosen(usize, [usize; ENTRIES]),
}

/// The fields of `modexp::Power`, in words, as they lie in memory. If they lay otherwise, no proof
/// would succeed.
const FIELDS: [&str; 12] = [
    "n",
    "k0",
    "one",
    "base",
    "exponent",
    "words",
    "power",
    "spare",
    "entry",
    "doubled",
    "table",
    "table words",
];

/// An exponentiation that runs: its numbers are the inputs of the machine, one after the other.
struct Run {
    limbs: usize,
    width: usize,
    numbers: Vec<Number>,
    /// The entries of the table.
    table: [Option<usize>; ENTRIES],
    /// Limbs that must be the canonical ones of a number.
    canonical: Vec<(Vec<Place>, usize)>,
    /// What was written last.
    last: usize,
}

/// Where a field's memory is.
fn memory(field: &str) -> u64 {
    let at = FIELDS
        .iter()
        .position(|name| *name == field)
        .expect("a field");
    MEMORY + ((at as u64 + 1) << 24)
}

const N: usize = 0;
const ONE: usize = 1;
const BASE: usize = 2;

/// The exponent of a power of the base.
fn power(e: usize) -> Exponent {
    BTreeMap::from_iter((e > 0).then(|| (Part::One, BigInt::from(e))))
}

impl Run {
    fn new(limbs: usize, width: usize) -> Self {
        let given = |exponent: &[(Part, i32)]| Number {
            exponent: exponent
                .iter()
                .map(|&(part, times)| (part, times.into()))
                .collect(),
            from: From::Given,
        };
        Self {
            limbs,
            width,
            // The modulus is never multiplied.
            numbers: vec![given(&[]), given(&[]), given(&[(Part::One, 1)])],
            table: [None; ENTRIES],
            canonical: Vec::new(),
            last: ONE,
        }
    }

    fn words(&self) -> usize {
        self.limbs * self.width
    }

    /// Writes a number to memory.
    fn write(&self, machine: &mut Machine<'_>, address: u64, number: usize) {
        for i in 0..self.words() {
            let input = Term::Input((number * self.words() + i) as u32);
            let value = Value::Term(machine.terms.place(input));
            machine.store(address + 8 * i as u64, value);
        }
    }

    /// The number in memory.
    fn read(&self, machine: &mut Machine<'_>, address: u64) -> Outcome<usize> {
        let first = machine.place_at(address)?;
        let Term::Input(input) = machine.terms.term(first) else {
            return Err("a factor is no number".into());
        };
        let number = input as usize / self.words();
        for i in 0..self.words() {
            let place = machine.place_at(address + 8 * i as u64)?;
            if machine.terms.term(place) != Term::Input((number * self.words() + i) as u32) {
                return Err("a factor is parts of numbers".into());
            }
        }
        Ok(number)
    }

    /// A new number in memory.
    fn add(
        &mut self,
        machine: &mut Machine<'_>,
        address: u64,
        exponent: Exponent,
        from: From,
    ) -> usize {
        let number = self.numbers.len();
        self.numbers.push(Number { exponent, from });
        self.write(machine, address, number);
        number
    }

    /// out = a·b, by the modulus.
    fn multiply(&mut self, machine: &mut Machine<'_>, [out, a, b, n, k0]: [u64; 5]) -> Outcome {
        let factors = [self.read(machine, a)?, self.read(machine, b)?];
        if k0 != memory("k0") || self.read(machine, n)? != N || factors.contains(&N) {
            return Err("another modulus".into());
        }
        let mut exponent = self.numbers[factors[0]].exponent.clone();
        for (part, times) in &self.numbers[factors[1]].exponent {
            *exponent.entry(*part).or_default() += times;
        }
        self.last = self.add(machine, out, exponent, From::Product(factors));
        Ok(())
    }

    /// An entry of the table, which is fully reduced before.
    fn store(
        &mut self,
        machine: &mut Machine<'_>,
        [table, _, entry, power, limbs]: [u64; 5],
    ) -> Outcome {
        if table != memory("table") || limbs != self.limbs as u64 || entry >= ENTRIES as u64 {
            return Err("another table".into());
        }
        let places = (0..self.words()).map(|i| machine.place_at(power + 8 * i as u64));
        let places: Vec<Place> = places.collect::<Result<_, _>>()?;
        self.canonical.push((places, self.last));
        let exponent = self.numbers[self.last].exponent.clone();
        self.last = self.add(machine, power, exponent, From::Reduced(self.last));
        self.table[entry as usize] = Some(self.last);
        Ok(())
    }

    /// The entry for a digit.
    fn select(&mut self, machine: &mut Machine<'_>, arguments: [u64; 7]) -> Outcome {
        let [out, limbs, table, _, exponent, words, bit] = arguments;
        let entries: Option<Vec<usize>> = self.table.iter().copied().collect();
        let entries: [usize; ENTRIES] =
            entries.ok_or("a table with gaps")?.try_into().expect("all");
        let is_known = table == memory("table") && exponent == memory("exponent");
        if !is_known || limbs != self.limbs as u64 || bit % WINDOW as u64 != 0 || bit / 60 >= words
        {
            return Err("another choice".into());
        }
        let digit = bit as usize / WINDOW;
        let is_power = |(e, &entry): (usize, &usize)| self.numbers[entry].exponent == power(e);
        let part = match entries.iter().enumerate().all(is_power) {
            true => Part::Digit(digit),
            false => Part::Unknown,
        };
        self.add(
            machine,
            out,
            [(part, 1.into())].into(),
            From::Chosen(digit, entries),
        );
        Ok(())
    }

    /// A number for concrete values, by portable lanes; one operation after the other.
    fn values(
        &self,
        all: &[Function],
        given: &[Vec<u64>],
        digit: &dyn Fn(usize) -> usize,
    ) -> Vec<Vec<u64>> {
        let limbs = self.limbs;
        let multiply = named(all, &format!("montgomery::multiply, {limbs} limbs, loop"));
        let canonical = named(all, &format!("montgomery::canonical, {limbs} limbs"));
        let [n, k0] = [&given[N], &given[3]];
        let mut values: Vec<Vec<u64>> = Vec::new();
        for (i, number) in self.numbers.iter().enumerate() {
            values.push(match number.from {
                From::Given => given[i].clone(),
                From::Product([a, b]) => {
                    multiply.words(&[&values[a][..], &values[b], n, k0].concat())
                }
                From::Reduced(a) => {
                    let masked: Vec<u64> = values[a].iter().map(|limb| limb & MASK).collect();
                    canonical.words(&[&masked[..], n].concat())
                }
                From::Chosen(place, entries) => values[entries[digit(place)]].clone(),
            });
        }
        values
    }
}

/// The functions of a module that are proved here, by their symbols.
pub fn checks(all: &[Function]) -> Vec<(String, Check<'_>)> {
    let mut checks: Vec<(String, Check<'_>)> = Vec::new();
    for lanes in LANES {
        for limbs in SIZES {
            let symbol = format!("modexp::select_entry::<{}>, {limbs} limbs", lanes.0);
            checks.push((symbol, Box::new(move |module| table(module, lanes, limbs))));
        }
    }
    // Elsewhere the compiler writes them out in place of a call.
    let [wide, after, narrow] = LANES;
    let steps = [(wide, 10), (wide, 20), (after, 10)].map(|(lanes, limbs)| (lanes, limbs, true));
    let whole = SIZES.map(|limbs| (narrow, limbs, false));
    for (lanes, limbs, is_step) in whole.into_iter().chain(steps) {
        let check = move |module: &Module| exponentiation(module, all, lanes, limbs, is_step);
        checks.push((symbol(lanes.0, limbs, is_step), Box::new(check)));
    }
    checks
}

/// The function of an exponentiation: all of it, or one step after others.
fn symbol(lanes: &str, limbs: usize, is_step: bool) -> String {
    let name = if is_step { "step" } else { "exponentiate" };
    format!("<modexp::Power<{lanes}, {limbs}>>::{name}")
}

/// Proves that the machine code computes base^exponent, or of a step power^16·base^digit.
fn exponentiation(
    module: &Module,
    all: &[Function],
    (lanes, width): (&str, usize),
    limbs: usize,
    is_step: bool,
) -> Result<Proved, Different> {
    let (mut machine, run) =
        ran(module, (lanes, width), limbs, is_step).map_err(Different::Open)?;
    let field = |name: &str| {
        let at = FIELDS
            .iter()
            .position(|field| *field == name)
            .expect("a field");
        machine.load(MEMORY + 8 * at as u64)
    };
    let Value::Word(power) = field("power") else {
        return Err(Different::Open("no result".into()));
    };
    let result = run.read(&mut machine, power).map_err(Different::Open)?;
    let digits = digits(limbs);
    let expected: Exponent = match is_step {
        true => [(Part::Before, 16.into()), (Part::Digit(STEP), 1.into())].into(),
        false => (0..digits)
            .map(|i| (Part::Digit(i), BigInt::from(1) << (WINDOW * i)))
            .collect(),
    };
    if run.numbers[result].exponent != expected {
        let found = (!is_step).then(|| refute(all, &run, result)).flatten();
        return Err(found.unwrap_or(Different::Open("another exponent".into())));
    }
    run.only_ours(&machine).map_err(Different::Open)?;
    run.is_canonical(all, &mut machine)?;
    Ok(Proved::by(&machine))
}

/// The digit of the step that is proved alone.
const STEP: usize = 16;

/// Of a prime's exponent.
fn digits(limbs: usize) -> usize {
    128 * limbs / 10
}

/// Runs the machine code.
fn ran<'a>(
    module: &'a Module,
    (lanes, width): (&str, usize),
    limbs: usize,
    is_step: bool,
) -> Outcome<(Machine<'a>, Run)> {
    let mut machine = Machine::new(module);
    let mut run = Run::new(limbs, width);
    for (at, field) in FIELDS.iter().enumerate() {
        let value = match *field {
            "words" => (WINDOW * digits(limbs)).div_ceil(60) as u64,
            "table words" => (limbs * 52 / 64 * ENTRIES) as u64,
            field => memory(field),
        };
        machine.store(MEMORY + 8 * at as u64, Value::Word(value));
    }
    for (field, number) in [("n", N), ("one", ONE), ("base", BASE)] {
        run.write(&mut machine, memory(field), number);
    }
    if is_step {
        for e in 0..ENTRIES {
            let exponent = power(e);
            run.table[e] = Some(run.numbers.len());
            run.numbers.push(Number {
                exponent,
                from: From::Given,
            });
        }
        run.add(
            &mut machine,
            memory("power"),
            [(Part::Before, 1.into())].into(),
            From::Given,
        );
    }
    let run = Rc::new(RefCell::new(run));
    macro_rules! stop {
        ($symbol:expr, |$run:ident, $machine:ident, $arguments:ident| $work:expr) => {
            let run = run.clone();
            machine.stops.insert(
                module.address(&$symbol)?,
                Rc::new(move |$machine| {
                    let $arguments = $machine.arguments()?;
                    let mut $run = run.borrow_mut();
                    $work
                }),
            );
        };
    }
    stop!(
        format!("montgomery::multiply::<{lanes}, {limbs}>"),
        |run, machine, all| run.multiply(machine, all)
    );
    stop!(
        format!("montgomery::square::<{lanes}, {limbs}>"),
        |run, machine, all| {
            let [out, _doubled, a, n, k0] = all;
            run.multiply(machine, [out, a, a, n, k0])
        }
    );
    stop!(
        format!("modexp::store_entry::<{lanes}>"),
        |run, machine, all| run.store(machine, all)
    );
    stop!(
        format!("modexp::select_entry::<{lanes}>"),
        |run, machine, all| run.select(machine, all)
    );
    let last = if is_step {
        STEP
    } else {
        WINDOW * digits(limbs)
    };
    let arguments = [MEMORY, 1, last as u64].map(Value::Word);
    machine.call(module.address(&symbol(lanes, limbs, is_step))?, &arguments)?;
    machine.stops.clear();
    let run = Rc::try_unwrap(run)
        .map_err(|_| "a stop is left")?
        .into_inner();
    Ok((machine, run))
}

impl Run {
    /// That nothing else wrote to the modulus, the exponent and the table.
    fn only_ours(&self, machine: &Machine<'_>) -> Outcome {
        let words = |field: &str, count: usize| {
            (0..count * self.width)
                .map(move |i| memory(field) + 8 * i as u64)
                .collect::<Vec<u64>>()
        };
        let all = [
            words("k0", 1),
            words("exponent", digits(self.limbs)),
            words("table", self.limbs * ENTRIES),
        ];
        match all
            .concat()
            .iter()
            .any(|&address| machine.load(address) != Value::Undefined)
        {
            true => Err("something is written that is only read".into()),
            false => Ok(()),
        }
    }

    /// That the entries were fully reduced before they were stored, as the source does it.
    fn is_canonical(&self, all: &[Function], machine: &mut Machine<'_>) -> Result<(), Different> {
        let function = named(all, &format!("montgomery::canonical, {} limbs", self.limbs));
        let (source, results) = function.terms();
        // The operands are the masked limbs of a number, and those of the modulus.
        let input = |of: usize, limb: usize, lane: usize| {
            Term::Input((of * self.words() + limb * self.width + lane) as u32)
        };
        let terms = &mut machine.terms;
        let mask = terms.place(Term::Constant(MASK));
        let mut pairs = Vec::new();
        for (places, number) in &self.canonical {
            for lane in 0..self.width {
                let mut known: Vec<Place> = Vec::new();
                for term in &source.list {
                    let term = match *term {
                        Term::Input(i) if (i as usize) < self.limbs => {
                            Term::And([terms.place(input(*number, i as usize, lane)), mask])
                        }
                        Term::Input(i) => input(N, i as usize - self.limbs, lane),
                        term => with(term, |part| known[part as usize]),
                    };
                    known.push(terms.place(term));
                }
                for (limb, result) in results.iter().enumerate() {
                    pairs.push((places[limb * self.width + lane], known[*result as usize]));
                }
            }
        }
        let prints = prints(terms, &|i| hash(0, &[u64::from(i)]));
        let mut pairs = pairs.iter().enumerate();
        let Some((i, &(found, expected))) =
            pairs.find(|(_, (a, b))| prints[*a as usize] != prints[*b as usize])
        else {
            return Ok(());
        };
        let mut random = Random(9);
        let refuted = (0..20).find_map(|_| {
            let operands = inputs(function, &mut random);
            let word = |i: usize| match i / self.words() {
                N => operands[self.limbs + i / self.width],
                _ => operands[i % self.words() / self.width],
            };
            let words: Vec<u64> = (0..self.numbers.len() * self.words()).map(word).collect();
            let [machine, source] = [found, expected].map(|place| terms.results(&words, &[place]));
            (machine != source).then(|| Different::Refuted {
                lane: i / self.limbs % self.width,
                inputs: operands,
                machine,
                source,
            })
        });
        let why = "an entry is not reduced as the source does it";
        Err(refuted.unwrap_or(Different::Open(why.into())))
    }
}

/// Numbers for which another power comes out, by portable lanes.
fn refute(all: &[Function], run: &Run, result: usize) -> Option<Different> {
    let limbs = run.limbs;
    let multiply = named(all, &format!("montgomery::multiply, {limbs} limbs, loop"));
    let mut random = Random(5);
    (0..20).find_map(|_| {
        let all_inputs = inputs(multiply, &mut random);
        let part = |name: &str| {
            let (operand, at) = operand(multiply, name).expect("an operand");
            all_inputs[at..at + operand.limbs].to_vec()
        };
        let value =
            |limbs: &[u64]| number(limbs, operand(multiply, "a").expect("an operand").0, false);
        let (n, base) = (value(&part("n")), value(&part("a")));
        let r = BigInt::from(1) << (52 * limbs);
        let one = crate::claims::digits(&(&r % &n), limbs);
        let exponent: Vec<usize> = (0..digits(limbs))
            .map(|_| random.word() as usize % ENTRIES)
            .collect();
        let given = [part("n"), one, part("a"), part("k0")];
        let values = run.values(all, &given, &|place| {
            exponent.get(place).copied().unwrap_or(0)
        });
        let e = exponent
            .iter()
            .rev()
            .fold(BigInt::ZERO, |sum, digit| (sum << WINDOW) + *digit);
        // base^e = (x·R)^e for a result of x^e·R.
        let found = value(&values[result]) * r.modpow(&(&e - 1), &n);
        (found % &n != base.modpow(&e, &n)).then(|| Different::Refuted {
            lane: 0,
            inputs: [
                part("a"),
                part("n"),
                exponent.iter().map(|&digit| digit as u64).collect(),
            ]
            .concat(),
            machine: values[result].clone(),
            source: Vec::new(),
        })
    })
}
