//! The functions of the release module that are compared with the terms of their source.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use iced_x86::Instruction;
use lockstep_kernels::proved::{Function, Operand, Place, Term, comb_table};
use lockstep_testkit::Random;

use crate::claims::find;
use crate::formulas::{Called, without_products};
use crate::machine::{Machine, Module, Outcome, Value};
use crate::prints::{Print, factor, hash, prints};
use crate::proof::Failed;
use crate::terms::{Look, limbs, named};
use crate::tries::{inputs, refute};

/// A function of the module.
#[derive(Clone)]
struct Lifted {
    /// Its name, without the crate's.
    symbol: String,
    lanes: usize,
    /// The name of its source.
    source: String,
    /// Its arguments, in words: pointers to the vectors of an operand (`a`), or of some that lie
    /// one behind the other (`x+y`), to those of an operand that becomes the results (`=p`), to
    /// room for all results (`out`) or for so many vectors (`room=20`), numbers (`1`), masks, the
    /// lowest bits of an operand (`?negative`), and the comb's table (`table`).
    /// A list (`n,out.h,unused`) is a pointer to such values; `out.h` is one of the results, and
    /// only those are compared that are named, if any is.
    arguments: String,
}

/// The fields of `rsa::private::Wide` as they lie in memory. If they lay otherwise, no proof would
/// succeed.
const WIDE: &str = "unused,unused,unused,unused,unused,unused,out.out,unused,unused,mp,mq,n,k0,\
                    q,qinv,out.difference,out.h";

/// Lanes by name, the words of their vectors, and their order of work.
pub type Lanes = (&'static str, usize, &'static str);

/// Lanes of 512 bits, in both orders of work, and of 256 bits.
pub const LANES: [Lanes; 3] = [
    ("simd::avx512ifma::Avx512Ifma", 8, "beside"),
    ("simd::avx512ifma::Avx512Ifma<order::After>", 8, "after"),
    ("simd::avx512ifma256::Avx512Ifma256", 4, "loop"),
];

/// Those without multiplies of 52 bits.
const HALVES: Lanes = ("simd::avx2::Avx2", 4, "loop");

/// Places of the comb's table after the first, as its length in memory.
const PLACES: u64 = 35;

/// All of them: symbols, sources and arguments.
fn lifted() -> Vec<Lifted> {
    let mut all = Vec::new();
    let mut add = |(name, lanes, _): Lanes, symbol: &str, source: &str, arguments: &str| {
        all.push(Lifted {
            symbol: symbol.replace("LANES", name),
            lanes,
            source: source.to_owned(),
            arguments: arguments.to_owned(),
        });
    };
    let [wide, after, narrow] = LANES;
    for lanes in LANES {
        // Longer numbers have one order only. In the other order they are numbers of public keys.
        let sizes = [10, 20, 30, 40, 60, 80].into_iter();
        for n in sizes.filter(|n| [10, 20, 40].contains(n) || lanes != after) {
            let order = if n > 20 { "loop" } else { lanes.2 };
            let of_square = format!("out room={n} a n k0");
            for (name, arguments) in [("multiply", "out a b n k0"), ("square", &of_square)] {
                let source = format!("montgomery::{name}, {n} limbs, {order}");
                add(
                    lanes,
                    &format!("montgomery::{name}::<LANES, {n}>"),
                    &source,
                    arguments,
                );
            }
            if n <= 20 || n <= 40 && lanes != after {
                let symbol = format!("<rsa::private::Wide<LANES, {n}, {}>>::recombine", 2 * n);
                add(lanes, &symbol, &format!("rsa::recombine, {n} limbs"), WIDE);
            }
        }
    }
    for lanes in [wide, narrow] {
        for (curve, n, name) in [("P256", 5, "P-256"), ("P384", 8, "P-384")] {
            // Nothing squares modulo an order.
            for (function, modulus, of, arguments) in [
                ("mul", "Field", "", "out a b"),
                ("sqr", "Field", "", "out a"),
                ("mul", "Order", "order of ", "out a b"),
            ] {
                let modulus = format!("nist::curve::{curve}{modulus}");
                let symbol = format!("modular::{function}_outlined::<LANES, {modulus}, {n}>");
                add(
                    lanes,
                    &symbol,
                    &format!("modular::{function}, {of}{name}"),
                    arguments,
                );
            }
            for (function, times, arguments) in [
                ("double_times", "", "=p 1"),
                ("double_times", " 5", "=p 5"),
                ("add_assign_mixed", "", "=p q ?negative"),
                ("add_assign", "", "=p q qz ?negative"),
                ("add_assign_mixed_complete", "", "=p q ?negative"),
                ("add_assign_complete", "", "=p q qz ?negative"),
            ] {
                if curve == "P384" && function.contains("complete") {
                    continue;
                }
                let symbol = format!("nist::point::{function}::<LANES, nist::curve::{curve}, {n}>");
                let source = format!("nist::point::{function}{times}, {name}");
                add(lanes, &symbol, &source, arguments);
            }
            for entries in [8, 16] {
                let symbol =
                    format!("nist::point::odd_multiples::<LANES, nist::curve::{curve}, {n}>");
                let source = format!("nist::point::odd_multiples of {entries}, {name}");
                let vectors = entries * n;
                let arguments = format!("out.z out.table {entries} room={vectors} {entries} p");
                add(lanes, &symbol, &source, &arguments);
            }
        }
        let symbol = "modular::mul_outlined::<LANES, curve25519::scalar::Order, 5>";
        add(lanes, symbol, "modular::mul, order of Ed25519", "out a b");
    }
    for (lanes, halves) in [(wide, ""), (narrow, ""), (HALVES, ", halves")] {
        let source = format!("curve25519::ladder{halves}");
        add(
            lanes,
            "curve25519::ladder::multiple_of_u::<LANES>",
            &source,
            "out swaps u",
        );
    }
    for lanes in [wide, narrow] {
        for (function, arguments) in [
            ("multiple_of_base", "out.one table scalar"),
            ("multiply_together", "table scalar+other 2 out.both 2"),
        ] {
            let symbol = format!("curve25519::comb::{function}::<LANES>");
            add(lanes, &symbol, "curve25519::comb", arguments);
        }
    }
    for (lanes, halves) in [(wide, ""), (narrow, ""), (HALVES, ", halves")] {
        for (function, source, arguments) in [
            ("double_assign", "double, true", "=x+y+z+t 1"),
            ("double_assign", "double, four times", "=x+y+z+t 4"),
            ("add_assign", "add_assign", "=x+y+z+t plus+minus+z+dt"),
            ("to_cached", "cached", "out x+y+z+t"),
            ("factors", "factors", "out x+y+z+t"),
            ("from_limbs", "new", "out x+y"),
            ("limbs", "affine", "out x y"),
        ] {
            let of = if function == "limbs" {
                "Affine"
            } else {
                "Point"
            };
            let symbol = format!("<curve25519::edwards::{of}<LANES>>::{function}");
            let source = format!("curve25519::edwards::{source}{halves}");
            add(lanes, &symbol, &source, arguments);
        }
    }
    for (lanes, halves) in [(wide, ""), (narrow, ""), (HALVES, ", halves")] {
        for (function, source, arguments) in [
            ("x25519::product::<LANES>", "x25519::product", "out a b"),
            (
                "edwards::scaled::<LANES>",
                "edwards::scaled",
                "out x y inverse",
            ),
            (
                "batch_inverse::square_times_and_multiply::<LANES, 2>",
                "square_times_and_multiply, 0 times",
                "=x+y 0 a+b",
            ),
            (
                "batch_inverse::square_times_and_multiply::<LANES, 2>",
                "square_times_and_multiply, 2 times",
                "=x+y 2 a+b",
            ),
        ] {
            let symbol = format!("curve25519::{function}");
            let source = format!("curve25519::{source}{halves}");
            add(lanes, &symbol, &source, arguments);
        }
    }
    // On lanes of AVX2 it calls its products, and asks for zero by bytes.
    for lanes in [wide, narrow] {
        let symbol = [INVERTS, "LANES>"].concat();
        add(
            lanes,
            &symbol,
            "curve25519::invert_all of 3",
            "=x+y+z 3 room=15 3",
        );
    }
    for (name, arguments) in [("multiply", "out a b"), ("square", "out a")] {
        for biased in [false, true] {
            let symbol = format!("curve25519::field::mul::{name}_call::<LANES, {biased}>");
            let source = format!("curve25519::field::{name}, {biased}, halves");
            add(HALVES, &symbol, &source, arguments);
        }
    }
    all
}

/// Where the operands of a call are, and how far from each other.
const MEMORY: u64 = 0x1000_0000_0000;
const PIECE: u64 = 1 << 24;

/// A proof about machine code.
#[derive(Debug)]
pub struct Proved {
    terms: usize,
    steps: u64,
    accesses: u64,
    /// All instructions that ran, in the order of addresses.
    pub instructions: Vec<Instruction>,
}

impl Proved {
    pub fn by(machine: &Machine<'_>) -> Self {
        let mut instructions: Vec<Instruction> = machine.instructions.values().copied().collect();
        instructions.sort_by_key(Instruction::ip);
        Self {
            terms: machine.terms.list.len(),
            steps: machine.steps,
            accesses: machine.accesses,
            instructions,
        }
    }
}

impl fmt::Display for Proved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            terms,
            steps,
            accesses,
            ..
        } = self;
        write!(
            f,
            "{terms} terms, {steps} instructions, {accesses} addresses"
        )
    }
}

/// Proves the statement of a function in a module.
pub type Check<'a> = Box<dyn Fn(&Module) -> Result<Proved, Failed> + 'a>;

/// The sources that machine code is compared with.
pub fn sources() -> impl Iterator<Item = String> {
    lifted().into_iter().map(|lifted| lifted.source)
}

/// The functions that are compared with their source, by their symbols.
pub fn checks(all: &[Function]) -> Vec<(String, Check<'_>)> {
    let check = |lifted: Lifted| -> (String, Check<'_>) {
        let symbol = lifted.symbol.clone();
        (
            symbol,
            Box::new(move |module| compare(module, &lifted, all)),
        )
    };
    lifted().into_iter().map(check).collect()
}

/// Inputs of a lane for which machine code gives other words than expected.
pub fn refuted(lane: usize, inputs: Vec<u64>, found: &[u64], expected: &[u64]) -> Failed {
    let how = format!("lane {lane} gives {found:x?}, not {expected:x?}");
    Failed::Refuted { inputs, how }
}

/// Products of 2^255 − 19 that are called where they are not written out. Their results are inputs
/// from `first` on. The fingerprint of a result comes from the fingerprints of the factors, so that
/// equal products are equal terms.
struct Products {
    first: usize,
    called: Vec<Called>,
}

/// Limbs of a product.
const LIMBS: usize = 5;

/// Inverts a number in place, and mixes lanes. Its operand is the result `product` of the proof,
/// and its result is the operand `inverse`.
const INVERSION: &str = "curve25519::batch_inverse::invert_all_lanes::<";
/// The function that calls it.
const INVERTS: &str = "curve25519::batch_inverse::invert_all::<";

impl Products {
    fn print(
        &self,
        i: u32,
        (prints, weights): (&[Print], &[u64]),
        input: &dyn Fn(u32) -> Print,
    ) -> Print {
        let Some(at) = (i as usize).checked_sub(self.first) else {
            return input(i);
        };
        let (which, factors) = &self.called[at / LIMBS];
        let limbs = factors.iter().flatten();
        // A product reads the low bits of limbs.
        let read = limbs.flat_map(|&limb| factor((prints[limb as usize], weights[limb as usize])));
        let result = [*which as u64, (at % LIMBS) as u64];
        hash(20, &read.chain(result).collect::<Vec<u64>>())
    }

    /// Does the work of product `which` where a machine calls it.
    fn call(&mut self, machine: &mut Machine<'_>, which: usize, lifted: &Lifted) -> Outcome {
        let [out, a] = machine.arguments()?;
        // Of a square the one factor is both.
        let [_, _, b] = match lifted.arguments.ends_with(" b") {
            true => machine.arguments()?,
            false => [out, a, a],
        };
        let lanes = lifted.lanes;
        let (a, b) = (
            machine.places(a, LIMBS * lanes)?,
            machine.places(b, LIMBS * lanes)?,
        );
        for lane in 0..lanes {
            let of_lane = |all: &[Place]| all.iter().skip(lane).step_by(lanes).copied().collect();
            let first = self.first + self.called.len() * LIMBS;
            self.called.push((which, [of_lane(&a), of_lane(&b)]));
            for limb in 0..LIMBS {
                let at = (limb * lanes + lane) as u64;
                machine.store_inputs(out + 8 * at, first + limb, 1);
            }
        }
        Ok(())
    }
}

/// The limbs of operands that follow each other, and where they begin.
fn joined(function: &Function, names: &str) -> Option<(usize, usize)> {
    let names: Vec<&str> = names.split('+').collect();
    let mut places = (0..).zip(function.inputs.windows(names.len()));
    let is_it = |operands: &[Operand]| {
        operands
            .iter()
            .map(|operand| operand.name)
            .eq(names.iter().copied())
    };
    let (first, operands) = places.find(|(_, operands)| is_it(operands))?;
    Some((limbs(operands), limbs(&function.inputs[..first])))
}

/// The results that are compared, lane by lane: which limb, and its term.
type Compared = Vec<Vec<(usize, Place)>>;

/// A call of machine code with inputs of its own for every lane.
fn call<'a>(
    module: &'a Module,
    lifted: &Lifted,
    function: &Function,
    calls: &[Lifted],
    products: &Rc<RefCell<Products>>,
    lower: u64,
) -> Outcome<(Machine<'a>, Compared)> {
    let mut machine = Machine::new(module);
    machine.lower = lower;
    for (which, lifted) in calls.iter().cloned().enumerate() {
        let (address, products) = (module.address(&lifted.symbol)?, products.clone());
        let stop =
            move |machine: &mut Machine<'a>| products.borrow_mut().call(machine, which, &lifted);
        machine.stops.insert(address, Rc::new(stop));
    }
    let inverted: Rc<RefCell<Vec<Place>>> = Rc::default();
    if let Some(of_lanes) = lifted.symbol.strip_prefix(INVERTS) {
        let (lanes, given) = (lifted.lanes, inverted.clone());
        let (_, at) = find(&function.inputs, "inverse").ok_or("no inverse")?;
        let inputs = limbs(&function.inputs);
        let stop = move |machine: &mut Machine<'a>| {
            let [number] = machine.arguments()?;
            given
                .borrow_mut()
                .extend(machine.places(number, LIMBS * lanes)?);
            for i in 0..LIMBS * lanes {
                let input = i % lanes * inputs + at + i / lanes;
                machine.store_inputs(number + 8 * i as u64, input, 1);
            }
            Ok(())
        };
        let address = module.address(&[INVERSION, of_lanes].concat())?;
        machine.stops.insert(address, Rc::new(stop));
    }
    let address = module.address(&lifted.symbol)?;
    let lanes = lifted.lanes;
    let (inputs, results) = (limbs(&function.inputs), limbs(&function.outputs));
    let input = |machine: &mut Machine<'_>, lane: usize, at: usize| {
        let input = Term::Input((lane * inputs + at) as u32);
        machine.terms.place(input)
    };
    // Elsewhere all bits of addresses are turned that alignment leaves.
    let mut next = MEMORY;
    let mut output = None;
    // The results that are compared.
    let mut compared: Vec<usize> = Vec::new();
    // The memory that it may write.
    let mut pieces = Vec::new();
    let mut arguments = Vec::new();
    let mut room = |vectors: usize, alignment: usize| {
        let at = next + lower % 2 * (PIECE / 2 - alignment as u64);
        assert!(vectors * 8 * lanes < PIECE as usize / 2, "a longer piece");
        next += PIECE;
        at
    };
    let vector = 8 * lanes;
    for list in lifted.arguments.split(' ') {
        let mut values = Vec::new();
        for argument in list.split(',') {
            let (kind, name) = match argument.strip_prefix(['=', '?']) {
                Some(name) => (&argument[..1], name),
                None => ("", argument),
            };
            let value = match (kind, name.strip_prefix("room="), joined(function, name)) {
                ("?", _, Some((_, at))) => {
                    let mut masks = [Value::Word(0); 8];
                    let one = machine.terms.place(Term::Constant(1));
                    for (lane, mask) in masks.iter_mut().enumerate().take(lanes) {
                        let input = input(&mut machine, lane, at);
                        *mask = Value::Term(machine.terms.place(Term::AnyBit([input, one])));
                    }
                    machine.keep(masks)
                }
                (_, _, Some((limbs, at))) => {
                    let start = room(limbs, vector);
                    for i in 0..limbs * lanes {
                        let value = input(&mut machine, i % lanes, at + i / lanes);
                        machine.store(start + 8 * i as u64, Value::Term(value));
                    }
                    if kind == "=" {
                        // Or the first result of several.
                        let of = function.outputs.first().map_or(0, |first| first.limbs);
                        if ![of, results].contains(&limbs) {
                            return Err("another number of results".into());
                        }
                        output = Some(start);
                        compared.extend(0..limbs);
                        pieces.push((start, limbs * lanes));
                    }
                    Value::Word(start)
                }
                (_, Some(vectors), _) => {
                    let vectors = vectors.parse().expect("a number");
                    let start = room(vectors, vector);
                    pieces.push((start, vectors * lanes));
                    Value::Word(start)
                }
                (_, None, None) if name.starts_with("out") => {
                    let start = *output.get_or_insert_with(|| room(results, vector));
                    let result = name.strip_prefix("out.");
                    let result = result.and_then(|name| find(&function.outputs, name));
                    let (of, at) = result.map_or((results, 0), |(of, at)| (of.limbs, at));
                    let start = start + 8 * (at * lanes) as u64;
                    compared.extend(at..at + of);
                    pieces.push((start, of * lanes));
                    Value::Word(start)
                }
                (_, None, None) if name == "unused" => Value::Undefined,
                (_, None, None) if name == "table" => {
                    let [first, others] = comb_table();
                    let start = room(1, 64);
                    let tables = [first, others].map(|words| {
                        let at = room(words.len().div_ceil(lanes), 64);
                        for (i, word) in (0..).zip(words) {
                            machine.store(at + 8 * i, Value::Word(word));
                        }
                        at
                    });
                    for (i, word) in (0..).zip([tables[0], tables[1], PLACES]) {
                        machine.store(start + 8 * i, Value::Word(word));
                    }
                    Value::Word(start)
                }
                _ => Value::Word(name.parse().map_err(|_| format!("no operand {name}"))?),
            };
            values.push(value);
        }
        // A list is a pointer to its elements.
        arguments.push(match values[..] {
            [value] => value,
            _ => {
                let start = room(values.len(), 64);
                for (i, value) in values.into_iter().enumerate() {
                    machine.store(start + 8 * i as u64, value);
                }
                Value::Word(start)
            }
        });
    }
    let before = machine.memory();
    machine.call(address, &arguments)?;
    machine.wrote_only(&before, &pieces)?;
    let output = output.ok_or("no results")?;
    compared.sort_unstable();
    let mut places = Vec::new();
    for lane in 0..lanes {
        let mut of_lane = Vec::new();
        for &limb in &compared {
            let place = machine.places(output + 8 * (limb * lanes + lane) as u64, 1);
            let place = place.map_err(|why| format!("limb {limb} of lane {lane}: {why}"))?;
            of_lane.push((limb, place[0]));
        }
        places.push(of_lane);
    }
    let inverted = inverted.borrow();
    if let Some((product, at)) = find(&function.outputs, "product") {
        if inverted.len() != product.limbs * lanes {
            return Err("another number of inversions".into());
        }
        for (i, &place) in inverted.iter().enumerate() {
            places[i % lanes].push((at + i / lanes, place));
        }
    }
    Ok((machine, places))
}

/// Compares machine code with its source, in every lane.
fn compare(module: &Module, lifted: &Lifted, all: &[Function]) -> Result<Proved, Failed> {
    let function = named(all, &lifted.source);
    let count = limbs(&function.inputs);
    let (mut source, source_places) = function.terms();
    if source_places.len() != limbs(&function.outputs) {
        return Err("another number of results".into());
    }
    // On lanes of AVX2 products are called.
    let mut calls = Vec::new();
    let is_call = |lifted: &Lifted| lifted.symbol.contains("_call::<");
    if lifted.symbol.contains("<simd::avx2") && !is_call(lifted) {
        calls = self::lifted();
        calls.retain(is_call);
    }
    let products = |first| Products {
        first,
        called: Vec::new(),
    };
    let mut of_source = products(count);
    let of_machine = Rc::new(RefCell::new(products(lifted.lanes * count)));
    let has_calls = !calls.is_empty();
    if has_calls {
        let names = calls.iter().map(|lifted| lifted.source.clone());
        of_source.called = without_products(all, &mut source, names, count);
    }
    let run = |calls: &[Lifted], products: &_, lower| {
        call(module, lifted, function, calls, products, lower)
    };
    // Alignment must not be by chance, and the result must not depend on the address.
    let others = Rc::new(RefCell::new(products(lifted.lanes * count)));
    let elsewhere = run(&calls, &others, 1)?;
    let (machine, machine_places) = run(&calls, &of_machine, 0)?;
    if (&elsewhere.0.terms.list, &elsewhere.1) != (&machine.terms.list, &machine_places)
        || others.borrow().called != of_machine.borrow().called
    {
        return Err("other terms where operands and stack lie elsewhere".into());
    }
    drop(elsewhere);
    let of_machine = of_machine.borrow();
    let input = |i: u32| -> Print { hash(0, &[u64::from(i)]) };
    let machine_prints = prints(&machine.terms, &|i, known, weights| {
        of_machine.print(i, (known, weights), &input)
    });
    let mut wrong = None;
    for (lane, places) in machine_places.iter().enumerate() {
        let of_lane = |i| input((lane * count) as u32 + i);
        let of_lane = prints(&source, &|i, known, weights| {
            of_source.print(i, (known, weights), &of_lane)
        });
        for &(limb, machine) in places {
            if machine_prints[machine as usize] != of_lane[source_places[limb] as usize] {
                wrong.get_or_insert((lane, limb));
            }
        }
    }
    let Some((lane, limb)) = wrong else {
        return Ok(Proved::by(&machine));
    };
    // With products that run.
    let (machine, machine_places) = match has_calls {
        true => run(&[], &Rc::new(RefCell::new(products(0))), 0)?,
        false => (machine, machine_places),
    };
    let (source, _) = function.terms();
    let mut random = Random(7);
    let tries = 2_000_000 / machine.terms.list.len().max(1) + 30;
    for _ in 0..tries {
        let lanes: Vec<Vec<u64>> = (0..lifted.lanes)
            .map(|_| inputs(function, &mut random))
            .collect();
        let values = machine.terms.values(&lanes.concat());
        for (lane, places) in machine_places.iter().enumerate() {
            let machine = places.iter().map(|&(_, place)| values[place as usize]);
            let machine: Vec<u64> = machine.collect();
            // By the portable lanes, term by term.
            let compared: Vec<Place> = places
                .iter()
                .map(|&(limb, _)| source_places[limb])
                .collect();
            let source = source.results(&lanes[lane], &compared);
            let is_wrong = match function.claims {
                [] => machine != source,
                _ => {
                    refute(function, &lanes[lane], &machine).is_some()
                        && refute(function, &lanes[lane], &source).is_none()
                }
            };
            if is_wrong {
                return Err(refuted(lane, lanes[lane].clone(), &machine, &source));
            }
        }
    }
    Err(format!("limb {limb} of lane {lane} has other terms").into())
}
