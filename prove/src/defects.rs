//! Planted defects, each of which must be refuted by inputs that the portable lanes confirm.

use iced_x86::{Instruction, Mnemonic, OpKind};
use lockstep_kernels::proved::{Function, Place, Term, Terms};

use crate::formulas;
use crate::lift::{Different, Lifted, call, compare};
use crate::machine::Module;
use crate::proof::{Failed, prove};

/// A kind of defect in the terms of a function.
struct Kind {
    name: &'static str,
    /// What becomes of a term, if it can have this defect.
    plant: fn(&mut Terms, Place) -> Option<Term>,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "a missing carry",
        plant: |terms, place| match terms.list[place as usize] {
            Term::Add([a, b]) if matches!(terms.list[b as usize], Term::Right(..)) => {
                Some(Term::Add([a, 0]))
            }
            _ => None,
        },
    },
    Kind {
        name: "a low half for a high one",
        plant: |terms, place| match terms.list[place as usize] {
            Term::High(places) => Some(Term::Low(places)),
            _ => None,
        },
    },
    Kind {
        name: "a wrong limb",
        plant: |terms, place| match terms.list[place as usize] {
            Term::Low([acc, a, b]) => {
                let Term::Input(i) = terms.list[a as usize] else {
                    return None;
                };
                let next = terms
                    .list
                    .iter()
                    .position(|term| *term == Term::Input(i + 1))?;
                ((next as Place) < place).then_some(Term::Low([acc, next as Place, b]))
            }
            _ => None,
        },
    },
    Kind {
        name: "a wrong constant",
        plant: |terms, place| match terms.list[place as usize] {
            Term::Right(a, count) => Some(Term::Right(a, count + 1)),
            _ => None,
        },
    },
    Kind {
        name: "the other choice",
        plant: |terms, place| match terms.list[place as usize] {
            Term::Select([mask, set, clear]) => Some(Term::Select([mask, clear, set])),
            _ => None,
        },
    },
];

/// Functions that defects are planted in.
const VICTIMS: &[&str] = &[
    "montgomery::multiply, 20 limbs, beside",
    "montgomery::multiply, 20 limbs, after",
    "montgomery::square, 20 limbs, beside",
    "montgomery::square, 30 limbs, loop",
    "modular::mul, P-256",
    "modular::sqr, P-384",
    "modular::mul, order of P-384",
    "curve25519::field, a·b",
    "curve25519::field, a², halves",
    "montgomery::canonical, 20 limbs",
    "modular::reduced, P-384",
    "modular::is_not_below, P-256",
    "curve25519::field, canonical",
];

/// Functions in whose formulas defects are planted.
const IN_FORMULAS: &[&str] = &[
    "nist::point::double_times, P-256",
    "nist::point::add_assign_mixed, P-384",
    "nist::point::add_assign, P-256",
];

/// Plants defects of every kind in terms; how many were refuted, and those that were not.
pub fn in_terms(all: &[Function]) -> (usize, Vec<String>) {
    let (mut refuted, mut missed) = (0, Vec::new());
    for name in VICTIMS {
        let function = all
            .iter()
            .find(|function| function.name == *name)
            .expect("a victim");
        let (terms, results) = function.terms();
        for kind in &KINDS {
            let mut candidates = Vec::new();
            let mut planted = terms.clone();
            for place in 0..terms.list.len() as Place {
                if let Some(term) = (kind.plant)(&mut planted, place) {
                    candidates.push((place, term));
                }
            }
            // At the beginning, in the middle, and near the end.
            let count = candidates.len();
            for at in [count / 4, count / 2, count * 3 / 4] {
                let Some((place, term)) = candidates.get(at) else {
                    continue;
                };
                let mut planted = terms.clone();
                planted.list[*place as usize] = *term;
                match prove(function, &planted, &results) {
                    Err(Failed::Refuted { .. }) => refuted += 1,
                    other => missed.push(format!("{} at {place} of {name}: {other:?}", kind.name)),
                }
            }
        }
    }
    for name in IN_FORMULAS {
        let function = all.iter().find(|function| function.name == *name);
        let function = function.expect("a victim");
        let (terms, results) = function.terms();
        for kind in &KINDS {
            let mut copy = terms.clone();
            let places = 0..terms.list.len() as Place;
            let candidates =
                places.filter_map(|place| Some((place, (kind.plant)(&mut copy, place)?)));
            let candidates: Vec<(Place, Term)> = candidates.collect();
            // A carry that is nearly always zero is not missed by an input that a search finds.
            let mut found = candidates.is_empty();
            for at in [4, 2, 3, 5].map(|part| candidates.len() / part) {
                let Some((place, term)) = candidates.get(at).filter(|_| !found) else {
                    continue;
                };
                let mut planted = terms.clone();
                planted.list[*place as usize] = *term;
                if formulas::prove(all, function, (planted.clone(), results.clone())).is_ok() {
                    missed.push(format!("{} at {place} of {name}: proved", kind.name));
                }
                found = formulas::refute(function, &planted, &results).is_some();
            }
            match found {
                true => refuted += usize::from(!candidates.is_empty()),
                false => missed.push(format!("{} in {name}: no input", kind.name)),
            }
        }
    }
    for (name, operand, top) in [
        ("curve25519::field, a·b", 0, 1 << 49),
        ("curve25519::field, a²", 0, 1 << 49),
        ("montgomery::square, 10 limbs, beside", 0, (1 << 52) - 1),
    ] {
        let find = || {
            all.iter()
                .find(|function| function.name == name)
                .expect("a victim")
        };
        let (terms, results) = find().terms();
        match prove(&find().with_top(operand, top), &terms, &results) {
            Err(Failed::Refuted { .. }) => refuted += 1,
            other => missed.push(format!("a bound too generous of {name}: {other:?}")),
        }
    }
    (refuted, missed)
}

/// What becomes of the bytes of an instruction, and at which address.
type Patch = (u64, Vec<u8>);

/// A kind of defect in machine code.
type InCode = (&'static str, fn(&Module, &Instruction) -> Option<Patch>);

const IN_CODE: [InCode; 4] = [
    ("a low half for a high one", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vpmadd52huq;
        is_it.then(|| {
            (
                instruction.ip() + 4,
                vec![module.byte(instruction.ip() + 4) - 1],
            )
        })
    }),
    ("a missing carry", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vpsrlq && is_evex(module, instruction);
        let last = instruction.next_ip() - 1;
        is_it.then(|| (last, vec![63]))
    }),
    ("a wrong limb", |module, instruction| {
        let is_it = matches!(
            instruction.mnemonic(),
            Mnemonic::Vmovdqa64 | Mnemonic::Vpmadd52luq
        ) && instruction.op_kind(instruction.op_count() - 1) == OpKind::Memory
            && instruction.memory_displ_size() == 1
            && !matches!(
                instruction.memory_base(),
                iced_x86::Register::RSP | iced_x86::Register::RBP
            )
            && is_evex(module, instruction);
        let last = instruction.next_ip() - 1;
        is_it.then(|| (last, vec![module.byte(last).wrapping_add(1)]))
    }),
    ("a wrong constant", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vpbroadcastq
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_base() == iced_x86::Register::RIP;
        let at = instruction.memory_displacement64();
        is_it.then(|| (at, vec![module.byte(at) ^ 1]))
    }),
];

fn is_evex(module: &Module, instruction: &Instruction) -> bool {
    module.byte(instruction.ip()) == 0x62
}

/// Functions of the module that defects are planted in.
const IN_MODULE: &[&str] = &[
    "montgomery::multiply::<simd::avx512ifma::Avx512Ifma, 20>",
    "montgomery::square::<simd::avx512ifma::Avx512Ifma, 20>",
    "montgomery::multiply::<simd::avx512ifma256::Avx512Ifma256, 20>",
    "modular::mul_outlined::<simd::avx512ifma::Avx512Ifma, nist::curve::P256Field, 5>",
    "modular::mul_outlined::<simd::avx512ifma::Avx512Ifma, nist::curve::P384Order, 8>",
];

/// Plants defects of every kind in machine code; how many were refuted, and those that were not.
pub fn in_code(module: &Module, all: &[Function], lifted: &[Lifted]) -> (usize, Vec<String>) {
    let (mut refuted, mut missed) = (0, Vec::new());
    for symbol in IN_MODULE {
        let lifted = lifted
            .iter()
            .find(|lifted| lifted.symbol == *symbol)
            .expect("a victim");
        let function = all.iter().find(|function| function.name == lifted.source);
        let function = function.expect("its source");
        let machine = match call(module, lifted, function) {
            Ok((machine, _)) => machine,
            Err(why) => {
                missed.push(format!("{symbol}: {why}"));
                continue;
            }
        };
        let mut instructions: Vec<Instruction> = machine.instructions.values().copied().collect();
        instructions.sort_by_key(Instruction::ip);
        for (name, plant) in IN_CODE {
            let patches: Vec<Patch> = instructions
                .iter()
                .filter_map(|instruction| plant(module, instruction))
                .collect();
            // Of the constants the first; of the others one in the middle.
            let at = if name.ends_with("constant") {
                0
            } else {
                patches.len() / 2
            };
            let Some((address, bytes)) = patches.get(at) else {
                continue;
            };
            match compare(&module.patched(*address, bytes), lifted, function) {
                Err(Different::Refuted { .. }) => refuted += 1,
                Ok(_) => missed.push(format!("{name} at {address:#x} of {symbol}: proved")),
                Err(why) => missed.push(format!("{name} at {address:#x} of {symbol}: {why:?}")),
            }
        }
    }
    (refuted, missed)
}
