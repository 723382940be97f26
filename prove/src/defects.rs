//! Planted defects, each of which must be refuted by inputs that the portable lanes confirm.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use lockstep_kernels::proved::{Function, Place, Term, Terms};

use crate::equal;
use crate::formulas;
use crate::lift::Check;
use crate::machine::Module;
use crate::proof::{Failed, prove};
use crate::terms::{Look, named};

/// How many defects were refuted, and those that were not.
#[derive(Default)]
pub struct Planted {
    pub refuted: usize,
    pub missed: Vec<String>,
}

impl Planted {
    /// Counts one; `missed` says what became of it instead.
    pub fn add(&mut self, is_refuted: bool, missed: impl FnOnce() -> String) {
        match is_refuted {
            true => self.refuted += 1,
            false => self.missed.push(missed()),
        }
    }
}

/// A kind of defect: what becomes of a term that can have it.
type Kind = (&'static str, fn(&Terms, Place) -> Option<Term>);

const KINDS: [Kind; 6] = [
    ("a missing carry", |terms, place| match terms.term(place) {
        Term::Add([a, b]) if matches!(terms.term(b), Term::Right(..)) => Some(Term::Add([a, 0])),
        _ => None,
    }),
    ("a low half for a high one", |terms, place| {
        match terms.term(place) {
            Term::High(places) => Some(Term::Low(places)),
            _ => None,
        }
    }),
    ("a wrong limb", |terms, place| match terms.term(place) {
        Term::Low([acc, a, b]) => {
            let Term::Input(i) = terms.term(a) else {
                return None;
            };
            let is_next = |term: &Term| *term == Term::Input(i + 1);
            let next = terms.list[..place as usize].iter().position(is_next)?;
            Some(Term::Low([acc, next as Place, b]))
        }
        _ => None,
    }),
    ("a wrong constant", |terms, place| match terms.term(place) {
        Term::Right(a, count) => Some(Term::Right(a, count + 1)),
        _ => None,
    }),
    ("a missing question", |terms, place| {
        match terms.term(place) {
            Term::Or([a, _]) => Some(Term::Or([a, a])),
            _ => None,
        }
    }),
    ("the other choice", |terms, place| match terms.term(place) {
        Term::Select([mask, set, clear]) => Some(Term::Select([mask, clear, set])),
        _ => None,
    }),
];

/// The terms that can have a kind of defect, and what becomes of them.
fn candidates(terms: &Terms, (_, plant): Kind) -> Vec<(Place, Term)> {
    let places = 0..terms.list.len() as Place;
    let candidates = places.filter_map(|place| Some((place, plant(terms, place)?)));
    candidates.collect()
}

/// The same terms but for one.
fn changed(terms: &Terms, (place, term): (Place, Term)) -> Terms {
    let mut terms = terms.clone();
    terms.list[place as usize] = term;
    terms
}

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

/// Plants defects of every kind in terms.
pub fn in_terms(all: &[Function]) -> Planted {
    let mut planted = Planted::default();
    for name in VICTIMS {
        let function = named(all, name);
        let (terms, results) = function.terms();
        for kind in KINDS {
            // At the beginning, in the middle, and near the end.
            let candidates = candidates(&terms, kind);
            for at in [1, 2, 3].map(|part| candidates.len() * part / 4) {
                let Some(&defect) = candidates.get(at) else {
                    continue;
                };
                let found = prove(function, &changed(&terms, defect), &results);
                let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
                planted.add(is_refuted, || {
                    format!("{} at {} of {name}: {found:?}", kind.0, defect.0)
                });
            }
        }
    }
    for name in IN_FORMULAS {
        let function = named(all, name);
        let (terms, results) = function.terms();
        for kind in KINDS {
            let candidates = candidates(&terms, kind);
            if candidates.is_empty() {
                continue;
            }
            // A carry that is nearly always zero is not missed by an input that a search finds.
            let is_refuted = [4, 2, 3, 5].into_iter().any(|part| {
                let defect = candidates[candidates.len() / part];
                let terms = changed(&terms, defect);
                if formulas::prove(all, function, (terms.clone(), results.clone())).is_ok() {
                    planted
                        .missed
                        .push(format!("{} at {} of {name}: proved", kind.0, defect.0));
                }
                formulas::refute(function, &terms, &results).is_some()
            });
            planted.add(is_refuted, || format!("{} in {name}: no input", kind.0));
        }
    }
    for name in equal::NAMES {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let own = equal::own_terms(function, &terms, &results);
        for kind in KINDS {
            let mut candidates = candidates(&terms, kind);
            candidates.retain(|(place, _)| own.contains(place));
            if candidates.is_empty() {
                continue;
            }
            // What is decoded is below n but for one number, so that some carries do not matter.
            let mut is_refuted = false;
            for part in [1, 3, 5, 7] {
                let defect = candidates[candidates.len() * part / 8];
                match equal::prove(all, function, &changed(&terms, defect), &results) {
                    Ok(_) => planted
                        .missed
                        .push(format!("{} at {} of {name}: proved", kind.0, defect.0)),
                    Err(found) => is_refuted |= matches!(found, Failed::Refuted { .. }),
                }
            }
            planted.add(is_refuted, || format!("{} in {name}: no input", kind.0));
        }
    }
    for (name, operand, top) in [
        ("curve25519::field, a·b", 0, 1 << 49),
        ("curve25519::field, a²", 0, 1 << 49),
        ("montgomery::square, 10 limbs, beside", 0, (1 << 52) - 1),
    ] {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let found = prove(&function.with_top(operand, top), &terms, &results);
        let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
        planted.add(is_refuted, || {
            format!("a bound too generous of {name}: {found:?}")
        });
    }
    planted
}

/// What becomes of the bytes of an instruction, and at which address.
type Patch = (u64, Vec<u8>);

/// A kind of defect in machine code.
type InCode = (&'static str, fn(&Module, &Instruction) -> Option<Patch>);

const IN_CODE: [InCode; 7] = [
    ("a low half for a high one", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vpmadd52huq;
        let opcode = instruction.ip() + 4;
        is_it.then(|| (opcode, vec![module.byte(opcode) - 1]))
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
            && !matches!(instruction.memory_base(), Register::RSP | Register::RBP)
            && is_evex(module, instruction);
        let last = instruction.next_ip() - 1;
        is_it.then(|| (last, vec![module.byte(last).wrapping_add(1)]))
    }),
    ("a wrong constant", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vpbroadcastq
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RIP;
        let at = instruction.memory_displacement64();
        is_it.then(|| (at, vec![module.byte(at) ^ 1]))
    }),
    ("the other choice", |_, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vpternlogq
            && instruction.op_mask() != Register::None;
        is_it.then(|| (instruction.next_ip() - 1, vec![!instruction.immediate8()]))
    }),
    ("a missing square", |module, instruction| {
        let nothing = vec![0x0f, 0x1f, 0x44, 0, 0];
        is_call(module, instruction, "square").then(|| (instruction.ip(), nothing))
    }),
    ("a square for a product", |module, instruction| {
        let to = module
            .address(&format!("montgomery::square::<{VICTIM_LANES}, 10>"))
            .ok()?;
        let distance = to.wrapping_sub(instruction.next_ip()) as u32;
        let is_it = is_call(module, instruction, "multiply");
        is_it.then(|| (instruction.ip() + 1, distance.to_le_bytes().to_vec()))
    }),
];

const VICTIM_LANES: &str = "simd::avx512ifma256::Avx512Ifma256";

/// Whether an exponentiation calls a function here.
fn is_call(module: &Module, instruction: &Instruction, name: &str) -> bool {
    let address = module.address(&format!("montgomery::{name}::<{VICTIM_LANES}, 10>"));
    instruction.mnemonic() == Mnemonic::Call && address == Ok(instruction.near_branch_target())
}

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
    "<modexp::Power<simd::avx512ifma256::Avx512Ifma256, 10>>::exponentiate",
    "modexp::select_entry::<simd::avx512ifma256::Avx512Ifma256>, 20 limbs",
    "curve25519::ladder::multiple_of_u::<simd::avx2::Avx2>",
];

/// Plants defects of every kind in machine code.
pub fn in_code(module: &Module, checks: &[(String, Check<'_>)]) -> Planted {
    let mut planted = Planted::default();
    for symbol in IN_MODULE {
        let (_, check) = checks
            .iter()
            .find(|(name, _)| name == symbol)
            .expect("a victim");
        let instructions = match check(module) {
            Ok(proved) => proved.instructions,
            Err(why) => {
                planted.missed.push(format!("{symbol}: {why}"));
                continue;
            }
        };
        for (name, plant) in IN_CODE {
            let patches = instructions
                .iter()
                .filter_map(|instruction| plant(module, instruction));
            let patches: Vec<Patch> = patches.collect();
            // Of the constants the first; of the others one in the middle.
            let at = if name.ends_with("constant") {
                0
            } else {
                patches.len() / 2
            };
            let Some((address, bytes)) = patches.get(at) else {
                continue;
            };
            let found = check(&module.patched(*address, bytes));
            let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
            planted.add(is_refuted, || {
                format!("{name} at {address:#x} of {symbol}: {found:?}")
            });
        }
    }
    planted
}
