//! The functions of the release module that are compared with the terms of their source.

use std::fmt;

use lockstep_kernels::proved::{Function, Place, Term};
use lockstep_testkit::Random;

use crate::claims::{inputs, refute};
use crate::machine::{Machine, Module, Value};
use crate::prints::{Print, hash, prints};

/// An argument of a function.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A pointer to the vectors of an operand.
    Input(&'static str),
    /// A pointer to room for all results.
    Output,
    /// A pointer to an operand that becomes the results.
    Both(&'static str),
    /// A pointer to room for so many vectors.
    Room(usize),
    /// A number.
    Number(u64),
    /// A mask: the lowest bits of an operand.
    Mask(&'static str),
}

/// A function of the module.
pub struct Lifted {
    /// Its name, without the crate's.
    pub symbol: String,
    pub lanes: usize,
    /// The name of its source.
    pub source: String,
    pub arguments: Vec<Argument>,
}

/// All of them.
pub fn lifted() -> Vec<Lifted> {
    let mut all = Vec::new();
    let wide = ("simd::avx512ifma::Avx512Ifma", 8);
    let after = ("simd::avx512ifma::Avx512Ifma<order::After>", 8);
    let narrow = ("simd::avx512ifma256::Avx512Ifma256", 4);
    let half = ("simd::avx2::Avx2", 4);
    use Argument::{Both, Input, Mask, Number, Output, Room};
    for n in [10, 20, 30, 40, 60, 80] {
        for (lanes, order) in [(wide, "beside"), (after, "after"), (narrow, "loop")] {
            let order = match (n, order) {
                (30.., "after") => continue,
                (30.., _) => "loop",
                _ => order,
            };
            for (name, arguments) in [
                (
                    "multiply",
                    vec![Output, Input("a"), Input("b"), Input("n"), Input("k0")],
                ),
                (
                    "square",
                    vec![Output, Room(n), Input("a"), Input("n"), Input("k0")],
                ),
            ] {
                all.push(Lifted {
                    symbol: format!("montgomery::{name}::<{}, {n}>", lanes.0),
                    lanes: lanes.1,
                    source: format!("montgomery::{name}, {n} limbs, {order}"),
                    arguments,
                });
            }
        }
    }
    for lanes in [wide, narrow] {
        for (modulus, n, source) in [
            ("nist::curve::P256Field", 5, "P-256"),
            ("nist::curve::P256Order", 5, "order of P-256"),
            ("nist::curve::P384Field", 8, "P-384"),
            ("nist::curve::P384Order", 8, "order of P-384"),
            ("curve25519::scalar::Order", 5, "order of Ed25519"),
        ] {
            all.push(Lifted {
                symbol: format!("modular::mul_outlined::<{}, {modulus}, {n}>", lanes.0),
                lanes: lanes.1,
                source: format!("modular::mul, {source}"),
                arguments: vec![Output, Input("a"), Input("b")],
            });
            if modulus.ends_with("Field") {
                all.push(Lifted {
                    symbol: format!("modular::sqr_outlined::<{}, {modulus}, {n}>", lanes.0),
                    lanes: lanes.1,
                    source: format!("modular::sqr, {source}"),
                    arguments: vec![Output, Input("a")],
                });
            }
        }
        for (curve, n, name) in [("P256", 5, "P-256"), ("P384", 8, "P-384")] {
            for (function, arguments) in [
                ("double_times", vec![Both("p"), Number(1)]),
                (
                    "add_assign_mixed",
                    vec![Both("p"), Input("q"), Mask("negative")],
                ),
                (
                    "add_assign",
                    vec![Both("p"), Input("q"), Input("qz"), Mask("negative")],
                ),
            ] {
                all.push(Lifted {
                    symbol: format!(
                        "nist::point::{function}::<{}, nist::curve::{curve}, {n}>",
                        lanes.0
                    ),
                    lanes: lanes.1,
                    source: format!("nist::point::{function}, {name}"),
                    arguments,
                });
            }
        }
    }
    for lanes in [wide, narrow] {
        all.push(Lifted {
            symbol: format!("curve25519::ladder::multiple_of_u::<{}>", lanes.0),
            lanes: lanes.1,
            source: "curve25519::ladder".to_owned(),
            arguments: vec![Output, Input("swaps"), Input("u")],
        });
    }
    for (name, biased, operands) in [
        ("multiply", false, 2),
        ("multiply", true, 2),
        ("square", false, 1),
        ("square", true, 1),
    ] {
        let mut arguments = vec![Output, Input("a")];
        arguments.extend((operands == 2).then_some(Input("b")));
        all.push(Lifted {
            symbol: format!(
                "curve25519::field::mul::{name}_call::<{}, {biased}>",
                half.0
            ),
            lanes: 4,
            source: format!("curve25519::field::{name}, {biased}, halves"),
            arguments,
        });
    }
    all
}

/// Where the operands of a call are.
const MEMORY: u64 = 0x1000_0000_0000;

/// What a comparison found.
pub struct Compared {
    pub terms: usize,
    pub steps: u64,
    pub accesses: u64,
}

/// Why machine code is not its source.
#[derive(Debug)]
pub enum Different {
    /// For these inputs of a lane it gives other results.
    Refuted {
        lane: usize,
        inputs: Vec<u64>,
        machine: Vec<u64>,
        source: Vec<u64>,
    },
    /// No such inputs were found, or it could not be read.
    Open(String),
}

impl fmt::Display for Different {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Different::Refuted {
                lane,
                inputs,
                machine,
                source,
            } => write!(
                f,
                "refuted: lane {lane} gives {machine:x?}, not {source:x?}, for {inputs:x?}"
            ),
            Different::Open(why) => write!(f, "not proved: {why}"),
        }
    }
}

/// A call of machine code with inputs of its own for every lane.
pub fn call<'a>(
    module: &'a Module,
    lifted: &Lifted,
    function: &Function,
) -> Result<(Machine<'a>, Vec<Vec<Place>>), String> {
    let mut machine = Machine::new(module);
    let address = module.address(&lifted.symbol)?;
    let lanes = lifted.lanes;
    let inputs: usize = function.inputs.iter().map(|operand| operand.limbs).sum();
    let results: usize = function.outputs.iter().map(|operand| operand.limbs).sum();
    let mut next = MEMORY;
    let mut output = None;
    let mut arguments = Vec::new();
    let mut room = |vectors: usize| {
        let at = next;
        next += (vectors.max(1) * 8 * lanes).next_multiple_of(64) as u64 + 4096;
        at
    };
    for argument in &lifted.arguments {
        let value = match argument {
            Argument::Number(number) => Value::Word(*number),
            Argument::Room(vectors) => Value::Word(room(*vectors)),
            Argument::Output => {
                output = Some(room(results));
                Value::Word(output.expect("set"))
            }
            Argument::Mask(name) => {
                let (_, at) = crate::claims::operand(function, name).ok_or("no such operand")?;
                let mut masks = [Value::Word(0); 8];
                let one = machine.terms.place(Term::Constant(1));
                for (lane, mask) in masks.iter_mut().enumerate().take(lanes) {
                    let input = Term::Input((lane * inputs + at) as u32);
                    let input = machine.terms.place(input);
                    *mask = Value::Term(machine.terms.place(Term::AnyBit([input, one])));
                }
                machine.keep(masks)
            }
            Argument::Input(name) | Argument::Both(name) => {
                let (operand, at) =
                    crate::claims::operand(function, name).ok_or("no such operand")?;
                let start = room(operand.limbs);
                for limb in 0..operand.limbs {
                    for lane in 0..lanes {
                        let input = Term::Input((lane * inputs + at + limb) as u32);
                        let value = Value::Term(machine.terms.place(input));
                        machine.store(start + 8 * (limb * lanes + lane) as u64, value);
                    }
                }
                if matches!(argument, Argument::Both(_)) {
                    output = Some(start);
                }
                Value::Word(start)
            }
        };
        arguments.push(value);
    }
    machine.call(address, &arguments)?;
    let output = output.ok_or("no results")?;
    let mut places = Vec::new();
    for lane in 0..lanes {
        let mut of_lane = Vec::new();
        for limb in 0..results {
            match machine.load(output + 8 * (limb * lanes + lane) as u64) {
                Value::Term(place) => of_lane.push(place),
                Value::Word(word) => of_lane.push(machine.terms.place(Term::Constant(word))),
                other => return Err(format!("limb {limb} of lane {lane} is {other:?}")),
            }
        }
        places.push(of_lane);
    }
    Ok((machine, places))
}

/// Compares machine code with its source, in every lane.
pub fn compare(
    module: &Module,
    lifted: &Lifted,
    function: &Function,
) -> Result<Compared, Different> {
    let (machine, machine_places) = call(module, lifted, function).map_err(Different::Open)?;
    let count: usize = function.inputs.iter().map(|operand| operand.limbs).sum();
    let (source, source_places) = function.terms();
    let input = |i: u32| -> Print { hash(0, &[u64::from(i)]) };
    let machine_prints = prints(&machine.terms, &input);
    let mut wrong = None;
    for (lane, places) in machine_places.iter().enumerate() {
        let of_lane = prints(&source, &|i| input((lane * count) as u32 + i));
        for (limb, (machine, source)) in places.iter().zip(&source_places).enumerate() {
            if machine_prints[*machine as usize] != of_lane[*source as usize] {
                wrong.get_or_insert((lane, limb));
            }
        }
    }
    let Some((lane, limb)) = wrong else {
        return Ok(Compared {
            terms: machine.terms.list.len(),
            steps: machine.steps,
            accesses: machine.accesses,
        });
    };
    let mut random = Random(7);
    let tries = 2_000_000 / machine.terms.list.len().max(1) + 3;
    for _ in 0..tries {
        let lanes: Vec<Vec<u64>> = (0..lifted.lanes)
            .map(|_| inputs(function, &mut random))
            .collect();
        let values = machine.terms.values(&lanes.concat());
        for (lane, places) in machine_places.iter().enumerate() {
            let machine: Vec<u64> = places.iter().map(|&place| values[place as usize]).collect();
            // By the portable lanes, term by term.
            let values = source.values(&lanes[lane]);
            let source: Vec<u64> = source_places
                .iter()
                .map(|&place| values[place as usize])
                .collect();
            let is_wrong = match function.claims {
                [] => machine != source,
                _ => {
                    refute(function, &lanes[lane], &machine).is_some()
                        && refute(function, &lanes[lane], &source).is_none()
                }
            };
            if is_wrong {
                return Err(Different::Refuted {
                    lane,
                    inputs: lanes[lane].clone(),
                    machine,
                    source,
                });
            }
        }
    }
    Err(Different::Open(format!(
        "limb {limb} of lane {lane} has other terms"
    )))
}
