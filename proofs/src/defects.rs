//! Planted defects, each of which must be refuted by inputs that the portable lanes confirm.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use lockstep_kernels::proved::{Function, Place, Term, Terms, functions};

use crate::blinding;
use crate::comb::Comb;
use crate::edwards::{self, Prove};
use crate::equal;
use crate::formulas;
use crate::inverses;
use crate::lift::Check;
use crate::machine::{Machine, Module, SAVED, Value};
use crate::prints::{hash, prints};
use crate::proof::{Failed, as_portable, prove};
use crate::ranges::MASK;
use crate::terms::{Look, named};

/// Number of refuted defects, and the descriptions of the others.
#[derive(Default)]
pub struct Planted {
    pub refuted: usize,
    pub missed: Vec<String>,
    /// The kinds of which there was one.
    pub kinds: BTreeSet<&'static str>,
}

impl Planted {
    /// Counts one defect; `missed` describes its outcome if it was not refuted.
    pub fn add(&mut self, is_refuted: bool, missed: impl FnOnce() -> String) {
        match is_refuted {
            true => self.refuted += 1,
            false => self.missed.push(missed()),
        }
    }

    /// Counts one that must be refuted, of a kind and somewhere.
    pub fn refuted<T: Debug>(
        &mut self,
        kind: &'static str,
        place: impl Display,
        found: &Result<T, Failed>,
    ) {
        self.kinds.insert(kind);
        let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
        self.add(is_refuted, || format!("{kind} at {place}: {found:?}"));
    }

    /// Plants each kind of defect at some twentieths of the places that can have it.
    pub fn plant<P: Copy + Display, T: Copy>(
        &mut self,
        name: &str,
        kinds: &[&'static str],
        candidates: impl Fn(&str) -> Vec<(P, T)>,
        parts: &[usize],
        mut proof: impl FnMut(P, T) -> Result<String, Failed>,
    ) {
        for kind in kinds {
            let all = candidates(kind);
            let chosen = parts
                .iter()
                .filter_map(|part| all.get(all.len() * part / 20));
            for &(place, changed) in chosen {
                let found = proof(place, changed);
                self.refuted(kind, format_args!("{place} of {name}"), &found);
            }
        }
    }

    /// Misses the kinds of which nothing was planted.
    pub fn insist(&mut self, kinds: &[&'static str]) {
        let never = kinds.iter().filter(|kind| !self.kinds.contains(*kind));
        let never = never.map(|kind| format!("{kind}: nowhere to plant it"));
        self.missed.extend(never);
    }
}

/// Kinds of defects in terms.
const KINDS: [&str; 7] = [
    "a missing carry",
    "a low half for a high one",
    "a wrong limb",
    "a wrong constant",
    "a missing question",
    "a choice by another bit",
    "the other choice",
];

/// Returns the term with a defect of this kind, if it can have one.
fn planted(terms: &Terms, kind: &str, place: Place) -> Option<Term> {
    Some(match (kind, terms.term(place)) {
        ("a missing carry", Term::Add([a, b])) if matches!(terms.term(b), Term::Right(..)) => {
            Term::Add([a, 0])
        }
        ("a low half for a high one", Term::High(places)) => Term::Low(places),
        ("a wrong limb", Term::Low([acc, a, b])) if let Term::Input(i) = terms.term(a) => {
            let is_next = |term: &Term| *term == Term::Input(i + 1);
            let next = terms.list[..place as usize].iter().position(is_next)?;
            Term::Low([acc, next as Place, b])
        }
        ("a wrong constant", Term::Right(a, count)) => Term::Right(a, count + 1),
        ("a missing question", Term::Or([a, _])) => Term::Or([a, a]),
        ("a choice by another bit", Term::AnyBit([a, one]))
            if terms.is(one, 1) && matches!(terms.term(a), Term::Input(_)) =>
        {
            Term::AnyBit([a, a])
        }
        ("the other choice", Term::Select([mask, set, clear])) => Term::Select([mask, clear, set]),
        _ => return None,
    })
}

/// Returns the terms that can have a kind of defect, each with its replacement.
fn candidates(terms: &Terms, kind: &str) -> Vec<(Place, Term)> {
    let places = 0..terms.list.len() as Place;
    let candidates = places.filter_map(|place| Some((place, planted(terms, kind, place)?)));
    candidates.collect()
}

/// The same, for the terms below these results.
fn candidates_of(terms: &Terms, results: &[Place], kind: &str) -> Vec<(Place, Term)> {
    let (_, made_of, _) = terms.below(results);
    let mut candidates = candidates(terms, kind);
    candidates.retain(|(place, _)| made_of.binary_search(place).is_ok());
    candidates
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

/// A search for inputs.
type Refute = fn(&Function, &Terms, &[Place]) -> Option<Vec<u64>>;

/// Functions in whose formulas defects are planted.
const IN_FORMULAS: &[&str] = &[
    "nist::point::double_times, P-256",
    "nist::point::add_assign_mixed, P-384",
    "nist::point::add_assign, P-256",
    "curve25519::edwards::double, true",
    "curve25519::edwards::add_cached, halves",
    "curve25519::edwards::add_affine",
    "curve25519::edwards::root",
    "curve25519::edwards::minus_point",
    "curve25519::edwards::affine",
];

/// Functions that are taken apart, and where defects are planted in them, in eighths of all
/// candidates.
const IN_MULTIPLES: &[(&str, &[usize])] = &[
    ("rsa::blinding, 20 limbs", &[0, 3, 5, 7]),
    ("curve25519::invert_all of 3", &[0, 3, 5, 7]),
    ("curve25519::edwards::scaled, halves", &[0, 3, 5, 7]),
    (
        "curve25519::square_times_and_multiply, 2 times, halves",
        &[0, 3, 5, 7],
    ),
    ("curve25519::comb, halves", &[1, 4]),
    ("curve25519::verify_equation", &[0, 5]),
];

/// Plants defects of every kind in terms.
pub fn in_terms(all: &[Function]) -> Planted {
    let mut planted = Planted::default();
    for name in VICTIMS {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let candidates = |kind: &str| candidates(&terms, kind);
        // At the beginning, in the middle, and near the end.
        planted.plant(name, &KINDS, candidates, &[5, 10, 15], |place, term| {
            prove(function, &terms.changed(place, term), &results)
        });
    }
    for name in IN_FORMULAS {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let (prove, refute): (Prove, Refute) = match name.starts_with(edwards::PREFIX) {
            true => (edwards::prove, edwards::refute),
            false => (formulas::prove, formulas::refute),
        };
        for kind in KINDS {
            let candidates = candidates_of(&terms, &results, kind);
            if candidates.is_empty() {
                continue;
            }
            planted.kinds.insert(kind);
            // A carry that is nearly always zero is not missed by an input that a search finds.
            let mut refuted = 0;
            // None may be proved: of the carries all are tried, as some are between products.
            let step = match kind {
                "a missing carry" => 1,
                _ => candidates.len().div_ceil(4),
            };
            for defect in candidates.iter().step_by(step) {
                let terms = terms.changed(defect.0, defect.1);
                if prove(all, function, (terms.clone(), results.clone())).is_ok() {
                    let missed = format!("{kind} at {} of {name}: proved", defect.0);
                    planted.missed.push(missed);
                }
                let is_refuted = || refute(function, &terms, &results).is_some();
                refuted += usize::from(refuted == 0 && is_refuted());
            }
            // A question that is missing is shown by no number that somebody finds.
            let is_refuted = refuted > 0 || kind == "a missing question";
            planted.add(is_refuted, || format!("{kind} in {name}: no input"));
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
            planted.kinds.insert(kind);
            // The decoded number is below n in all cases but one, so that some carries do not
            // matter.
            let mut is_refuted = false;
            for part in [1, 3, 5, 7] {
                let defect = candidates[candidates.len() * part / 8];
                match equal::prove(all, function, &terms.changed(defect.0, defect.1), &results) {
                    Ok(_) => planted
                        .missed
                        .push(format!("{kind} at {} of {name}: proved", defect.0)),
                    Err(found) => is_refuted |= matches!(found, Failed::Refuted { .. }),
                }
            }
            planted.add(is_refuted, || format!("{kind} in {name}: no input"));
        }
        if let Some(wrong) = equal::other_sign(function, &terms, &results) {
            let found = equal::prove(all, function, &wrong, &results);
            planted.add(found.is_err(), || {
                format!("a difference of another sign in {name}")
            });
        }
    }
    let comb = Comb::new(all).expect("multiples of the base point");
    for (name, at) in IN_MULTIPLES {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let prove = |terms: &Terms, results: &[Place]| match function {
            _ if blinding::NAMES.contains(name) => blinding::prove(all, function, terms, results),
            _ if inverses::NAMES.contains(name) => inverses::prove(all, function, terms, results),
            _ => comb.prove(function, terms, results),
        };
        let mut add = |what: &str, found: Result<String, Failed>| {
            let is_refuted = matches!(found, Err(Failed::Refuted { .. }));
            planted.add(is_refuted, || format!("{what} in {name}: {found:?}"));
        };
        for kind in KINDS {
            let candidates = candidates_of(&terms, &results, kind);
            for eighths in *at {
                if let Some((place, term)) = candidates.get(candidates.len() * eighths / 8) {
                    add(kind, prove(&terms.changed(*place, *term), &results));
                }
            }
        }
        // A word of each look-up is that of every value.
        if !terms.tables.is_empty() {
            let mut terms = terms.clone();
            let table = terms.tables.len() / 2;
            terms.tables[table] = [terms.tables[table][0]; 16];
            add("another entry", prove(&terms, &results));
        }
        let never = |term: &Term| *term == Term::AnyBit([0, 0]);
        if let Some(place) = terms.list.iter().position(never) {
            // The second term of every list is one.
            let always = Term::AnyBit([1; 2]);
            let terms = terms.changed(place as Place, always);
            add("a sign where there is none", prove(&terms, &results));
        }
        let mut turned = results.clone();
        turned.rotate_left(5);
        add("another order", prove(&terms, &turned));
        if !name.ends_with("halves") {
            let other = as_portable(function, &terms, &turned);
            planted.add(other.is_err(), || format!("other words of {name}"));
        }
    }
    planted.insist(&KINDS);
    for (what, name, of, wrong) in FALSE {
        let (mut terms, results) = named(all, of).terms();
        let results = wrong(&mut terms, &results);
        let found = prove(named(all, name), &terms, &results);
        planted.refuted(what, name, &found);
    }
    for (name, operand, top) in [
        ("curve25519::field, a·b", 0, 1 << 49),
        ("curve25519::field, a²", 0, 1 << 49),
        ("montgomery::square, 10 limbs, beside", 0, (1 << 52) - 1),
    ] {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let found = prove(&function.with_top(operand, top), &terms, &results);
        planted.refuted("a bound too generous", name, &found);
    }
    // A product that fits no factor any more.
    let mut wide = functions();
    let product = wide
        .iter_mut()
        .find(|own| own.name == "curve25519::field, a·b");
    product.expect("a product").outputs[0].range[1] = u64::MAX;
    for name in inverses::NAMES
        .iter()
        .filter(|name| !name.ends_with("halves"))
    {
        let function = named(all, name);
        let (terms, results) = function.terms();
        let is_found = inverses::prove(&wide, function, &terms, &results).is_err();
        planted.add(is_found, || format!("a product too large in {name}"));
    }
    planted
}

/// Terms, and results of others that are wrong.
type Wrong = fn(&mut Terms, &[Place]) -> Vec<Place>;

/// False statements, each of which a rule of the checker must refuse: a description, the function
/// of the statement, the function of the terms, and the replacement of the results.
const FALSE: &[(&str, &str, &str, Wrong)] = &[
    (
        "a factor of 53 bits",
        "montgomery::mask_limbs, 10 limbs",
        "montgomery::mask_limbs, 10 limbs",
        |terms, results| {
            let power = terms.place(Term::Constant(1 << 52));
            let limbs = (0..results.len() as u32).map(|i| {
                let limb = terms.place(Term::Input(i));
                terms.place(Term::High([0, limb, power]))
            });
            limbs.collect()
        },
    ),
    (
        "a carry of what may be negative",
        "modular::sub, 2, P-256",
        "modular::sub, 2, P-256",
        |terms, results| {
            let [low, above, _] = parts_of_difference(terms);
            let carry = terms.place(Term::Right(above, 52));
            with_carry(terms, results, low, carry)
        },
    ),
    (
        "a sign that is not a bit",
        "modular::sub, 2, P-256",
        "modular::sub, 2, P-256",
        |terms, results| {
            let [low, _, sign] = parts_of_difference(terms);
            let most = terms.place(Term::Constant(u64::MAX >> 1));
            let a = terms.place(Term::Input(0));
            let b = terms.place(Term::Input(5));
            let difference = terms.place(Term::Sub([a, b]));
            let below = terms.place(Term::And([difference, most]));
            let carry = terms.place(Term::Right(below, 52));
            let top = terms.place(Term::Constant(1 << 11));
            let top = terms.place(Term::Select([sign, top, 0]));
            let carry = terms.place(Term::Add([carry, top]));
            with_carry(terms, results, low, carry)
        },
    ),
    (
        "a third factor",
        "curve25519::field, a·b",
        "curve25519::field, a·b",
        |terms, results| {
            let a = terms.place(Term::Input(0));
            let fold = terms.place(Term::Constant(608));
            let mut above = 0;
            let mut limbs: Vec<Place> = Vec::new();
            for &limb in results {
                limbs.push(terms.place(Term::Low([above, limb, a])));
                above = terms.place(Term::High([0, limb, a]));
            }
            limbs[0] = terms.place(Term::Low([limbs[0], above, fold]));
            limbs[1] = terms.place(Term::High([limbs[1], above, fold]));
            carried(terms, limbs)
        },
    ),
    (
        "a limb that is too long to be a factor's",
        "curve25519::field, a·b",
        "curve25519::field::multiply, false",
        |terms, results| carried(terms, results.to_vec()),
    ),
];

/// Of the difference of the lowest limbs of two operands the low bits, all as if they were those of
/// a number, and whether the uppermost is set.
fn parts_of_difference(terms: &mut Terms) -> [Place; 3] {
    let [a, b] = [0, 5].map(|i| terms.place(Term::Input(i)));
    let difference = terms.place(Term::Sub([a, b]));
    let [mask, all, top] =
        [MASK, u64::MAX, 1 << 63].map(|number| terms.place(Term::Constant(number)));
    [
        terms.place(Term::And([difference, mask])),
        terms.place(Term::And([difference, all])),
        terms.place(Term::AnyBit([difference, top])),
    ]
}

/// The columns of a padded difference, of which the lowest was carried before it was padded.
fn with_carry(terms: &mut Terms, results: &[Place], low: Place, carry: Place) -> Vec<Place> {
    let mut limbs = results.to_vec();
    // a + (pad − b).
    let Term::Add([_, padded]) = terms.term(results[0]) else {
        panic!("no padded difference");
    };
    let Term::Sub([pad, _]) = terms.term(padded) else {
        panic!("no padded difference");
    };
    limbs[0] = terms.place(Term::Add([low, pad]));
    limbs[1] = terms.place(Term::Add([results[1], carry]));
    limbs
}

/// Limbs that each carry into the next one.
fn carried(terms: &mut Terms, mut limbs: Vec<Place>) -> Vec<Place> {
    for i in 1..limbs.len() {
        let carry = terms.place(Term::Right(limbs[i - 1], 52));
        limbs[i] = terms.place(Term::Add([limbs[i], carry]));
    }
    limbs
}

/// New bytes of an instruction, and its address.
type Patch = (u64, Vec<u8>);

/// A kind of defect in machine code.
type InCode = (&'static str, fn(&Module, &Instruction) -> Option<Patch>);

const IN_CODE: [InCode; 10] = [
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
    ("one lane for all", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vmovdqa64
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_index() != Register::None
            && instruction.memory_displ_size() == 0;
        // A load becomes `vpbroadcastq`.
        let (prefix, opcode) = (instruction.ip() + 1, instruction.ip() + 4);
        let mut bytes: Vec<u8> = (prefix..=opcode).map(|at| module.byte(at)).collect();
        (bytes[0], bytes[3]) = (bytes[0] ^ 3, 0x59);
        is_it.then_some((prefix, bytes))
    }),
    ("another entry", |module, instruction| {
        let is_it = matches!(
            instruction.mnemonic(),
            Mnemonic::Vpermq | Mnemonic::Vpermi2q | Mnemonic::Vpermt2q
        ) && instruction.op2_kind() == OpKind::Memory
            && instruction.memory_displ_size() > 1;
        let low = instruction.next_ip() - 4;
        is_it.then(|| (low, vec![module.byte(low) ^ 0x40]))
    }),
    ("the other sign", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vptestnmq;
        // It becomes `vptestmq`.
        let prefix = instruction.ip() + 2;
        is_it.then(|| (prefix, vec![module.byte(prefix) ^ 3]))
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

/// Programs that must be refused: they read memory that nobody has written or a flag that nothing
/// defines, or have operands that are not modelled. Each ends at the target of its jump, and at the
/// end of its bytes.
const REFUSED: [(&str, &[u8]); 9] = [
    (
        "a jump by the rest of a word on the stack",
        &[
            0x48, 0x8b, 0x06, 0x50, 0xc6, 0x04, 0x24, 0, 0x58, 0x48, 0x85, 0xc0, 0x75, 0x01, 0xc3,
            0xc3,
        ],
    ),
    (
        "a jump by the rest of a register",
        &[
            0x48, 0x8b, 0x06, 0xb0, 0, 0x48, 0x85, 0xc0, 0x75, 0x01, 0xc3, 0xc3,
        ],
    ),
    (
        "a jump by what was on the stack",
        &[
            0xc6, 0x44, 0x24, 0xf8, 0, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0x48, 0x85, 0xc0, 0x78, 0x01,
            0xc3, 0xc3,
        ],
    ),
    (
        "a jump by a flag of a product",
        &[
            0x31, 0xc0, 0x83, 0xf8, 0xff, 0x6b, 0xc0, 0x01, 0x72, 0x01, 0xc3, 0xc3,
        ],
    ),
    (
        "a jump by the overflow of a shift",
        &[0xb8, 0, 0, 0, 0x40, 0xd1, 0xe0, 0x7c, 0x01, 0xc3, 0xc3],
    ),
    ("a register of segments", &[0x8c, 0xc0, 0xc3]),
    ("a register of MMX", &[0x0f, 0xd4, 0xc8, 0xc3]),
    ("an address of 32 bits", &[0x67, 0x48, 0x8b, 0x06, 0xc3]),
    ("a far call", &[0xff, 0x1e, 0xc3]),
];

/// Runs a program with a pointer to an input.
fn runs(code: &[u8]) -> bool {
    const WORD: u64 = 1 << 44;
    let module = Module::of(code);
    let mut machine = Machine::new(&module);
    machine.store_inputs(WORD, 0, 1);
    machine.call(0, &[Value::Word(WORD); 2]).is_ok()
}

/// Defects that no inputs show: of these every one must be refused.
const UNSEEN: [InCode; 6] = [
    ("an address without a sum", |module, instruction| {
        // `or` instead of `add`, which is the same where an operand lies well.
        let is_it = instruction.mnemonic() == Mnemonic::Add
            && instruction.op0_register().is_gpr64()
            && instruction.op0_register() != Register::RSP
            && matches!(module.byte(instruction.ip() + 1), 0x81 | 0x83);
        let operand = instruction.ip() + 2;
        is_it.then(|| (operand, vec![module.byte(operand) | 8]))
    }),
    ("a stack that is not aligned", |module, instruction| {
        // No operation with a number instead of `and`.
        let is_it = instruction.mnemonic() == Mnemonic::And
            && instruction.op0_register() == Register::RSP
            && instruction.len() == 4;
        is_it.then(|| {
            (
                instruction.ip(),
                vec![0x0f, 0x1f, 0x40, module.byte(instruction.ip() + 3)],
            )
        })
    }),
    ("a word of the caller's stack", |_, instruction| {
        // `mov [rbp + 24], rsp` instead.
        let is_it = instruction.mnemonic() == Mnemonic::And
            && instruction.op0_register() == Register::RSP
            && instruction.len() == 4;
        is_it.then(|| (instruction.ip(), vec![0x48, 0x89, 0x65, 0x18]))
    }),
    ("a register that is not restored", |module, instruction| {
        // It goes to rdx or r10.
        let last = instruction.next_ip() - 1;
        let is_it =
            instruction.mnemonic() == Mnemonic::Pop && SAVED.contains(&instruction.op0_register());
        is_it.then(|| (last, vec![module.byte(last) & !7 | 2]))
    }),
    (
        "a return that takes more off the stack",
        |_, instruction| {
            let is_it = instruction.mnemonic() == Mnemonic::Ret;
            is_it.then(|| (instruction.ip(), vec![0xc2]))
        },
    ),
    ("a word that is written elsewhere", |module, instruction| {
        let is_it = instruction.mnemonic() == Mnemonic::Vmovdqa64
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_displ_size() == 1
            && instruction.memory_base() != Register::RSP;
        let last = instruction.next_ip() - 1;
        is_it.then(|| (last, vec![module.byte(last) | 0x40]))
    }),
];

const SPILLS: &str = "curve25519::ladder::multiple_of_u::<simd::avx2::Avx2>";
/// A function that pushes one register and then has vectors on the stack.
const SPILLS_AT_ONCE: &str =
    "<curve25519::edwards::Point<simd::avx512ifma::Avx512Ifma>>::add_assign";
/// One that aligns the stack for nothing.
const SPILLS_NOTHING: &str = "<curve25519::edwards::Point<simd::avx512ifma::Avx512Ifma>>::factors";
const VICTIM_OF_UNSEEN: &str = "montgomery::multiply::<simd::avx512ifma::Avx512Ifma, 10>";

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
    "modexp::select_entry::<simd::avx512ifma::Avx512Ifma>, 20 limbs",
    VICTIM_OF_UNSEEN,
    "<rsa::private::Wide<simd::avx512ifma::Avx512Ifma, 10, 20>>::recombine",
    SPILLS,
    "curve25519::comb::multiple_of_base::<simd::avx512ifma256::Avx512Ifma256>",
    SPILLS_AT_ONCE,
    SPILLS_NOTHING,
    "curve25519::batch_inverse::invert_all::<simd::avx512ifma::Avx512Ifma>",
    "curve25519::batch_inverse::invert_all::<simd::avx512ifma256::Avx512Ifma256>",
    "nist::point::add_assign_mixed_complete::<simd::avx512ifma256::Avx512Ifma256, \
     nist::curve::P256, 5>",
];

/// Takes inputs for one another where few of their bits are read: fingerprints must differ.
pub fn in_prints() -> Planted {
    const INPUTS: u32 = 64;
    type Read = fn(&mut Terms, Place, u32) -> Place;
    const READ: [(&str, u32, Read); 6] = [
        ("a shift", 64, |terms, a, by| terms.place(Term::Left(a, by))),
        ("sums with themselves", 64, |terms, mut a, by| {
            for _ in 0..by {
                a = terms.place(Term::Add([a, a]));
            }
            a
        }),
        ("a shifted sum with one bit", 32, |terms, a, by| {
            let bit = terms.place(Term::Constant(1 << 32));
            let bit = terms.place(Term::And([a, bit]));
            let other = terms.place(Term::Input(0));
            let sum = terms.place(Term::Add([other, bit]));
            terms.place(Term::Left(sum, by))
        }),
        ("a bit", 64, |terms, a, by| {
            let bit = terms.place(Term::Constant(1 << by));
            terms.place(Term::And([a, bit]))
        }),
        ("a product's factor", 52, |terms, a, by| {
            let moved = terms.place(Term::Left(a, by));
            terms.place(Term::Low([0, moved, 0]))
        }),
        ("a short product's factor", 32, |terms, a, by| {
            let moved = terms.place(Term::Left(a, by));
            terms.place(Term::Short([0, moved, 0]))
        }),
    ];
    let mut planted = Planted::default();
    for (what, limit, read) in READ {
        for by in 1..limit {
            let mut terms = Terms::default();
            let inputs = (0..=INPUTS).map(|i| terms.place(Term::Input(i)));
            let inputs: Vec<Place> = inputs.collect();
            let places = inputs[1..].iter().map(|&a| read(&mut terms, a, by));
            let places: Vec<Place> = places.collect();
            let prints = prints(&terms, &|i, _, _| hash(0, &[u64::from(i)]));
            let all: BTreeSet<_> = places.iter().map(|&place| prints[place as usize]).collect();
            planted.add(all.len() == places.len(), || {
                format!("another input in {what}, by {by} bits")
            });
        }
    }
    in_masks(&mut planted);
    planted
}

/// Plants masked words in place of unmasked ones in sums and choices, and masks of other bits.
fn in_masks(planted: &mut Planted) {
    let mut terms = Terms::default();
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| terms.place(Term::Input(i)));
    let mask = terms.place(Term::AnyBit([c, d]));
    let masked = |terms: &mut Terms, word, bits: u32| {
        let ones = terms.place(Term::Constant(u64::MAX >> (64 - bits)));
        terms.place(Term::And([word, ones]))
    };
    // Words: masked to a number of bits, or not at all.
    type Both = fn(&mut Terms, [Place; 3]) -> Place;
    const BOTH: [(&str, Both); 6] = [
        ("a sum", |terms, [a, b, _]| terms.place(Term::Add([b, a]))),
        ("a difference", |terms, [a, b, _]| {
            terms.place(Term::Sub([b, a]))
        }),
        ("a sum and a product", |terms, [a, b, _]| {
            terms.place(Term::Low([a, b, b]))
        }),
        ("a sum of sums", |terms, [a, b, _]| {
            let sum = terms.place(Term::Add([a, b]));
            terms.place(Term::Sub([sum, b]))
        }),
        ("a choice", |terms, [a, b, mask]| {
            terms.place(Term::Select([mask, a, b]))
        }),
        ("the other choice", |terms, [a, b, mask]| {
            terms.place(Term::Select([mask, b, a]))
        }),
    ];
    let mut add = |terms: &Terms, places: &[Place], what: &str| {
        let prints = prints(terms, &|i, _, _| hash(0, &[u64::from(i)]));
        let found: BTreeSet<_> = places.iter().map(|&place| prints[place as usize]).collect();
        planted.add(found.len() == places.len(), || what.to_owned());
    };
    for (what, both) in BOTH {
        for to in 1..64 {
            // Words that are read: some masked to fewer bits, some not masked.
            let (mut low, mut high) = (Vec::new(), Vec::new());
            for bits in (1..to).chain([64]) {
                let word = masked(&mut terms, a, bits);
                let place = both(&mut terms, [word, b, mask]);
                low.push(masked(&mut terms, place, to));
                // A product and a word that is as short have no more bits than one above.
                if to <= 52 || !what.contains("product") {
                    high.push(terms.place(Term::Right(place, to)));
                }
            }
            add(
                &terms,
                &low,
                &format!("{what} of other masks, up to bit {to}"),
            );
            add(
                &terms,
                &high,
                &format!("{what} of other masks, from bit {to}"),
            );
        }
        // Both masked, to all lengths.
        let mut all = Vec::new();
        for bits in 1..=64 {
            let [a, b] = [a, b].map(|word| masked(&mut terms, word, bits));
            all.push(both(&mut terms, [a, b, mask]));
        }
        add(
            &terms,
            &all,
            &format!("{what} of words that are masked otherwise"),
        );
    }
}

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
        let patches = |plant: fn(&Module, &Instruction) -> Option<Patch>| -> Vec<Patch> {
            let instructions = instructions.iter();
            let patches = instructions.filter_map(|instruction| plant(module, instruction));
            patches.collect()
        };
        // Where vectors lie on the stack, and where callers rely on registers and memory.
        let is_here = |name: &str| match name {
            "an address without a sum" => symbol.contains("add_assign_mixed_complete"),
            "a stack that is not aligned" => [SPILLS, SPILLS_AT_ONCE].contains(symbol),
            "a word of the caller's stack" => *symbol == SPILLS_NOTHING,
            _ => *symbol == VICTIM_OF_UNSEEN,
        };
        for (name, plant) in UNSEEN.iter().filter(|(name, _)| is_here(name)) {
            for (address, bytes) in patches(*plant) {
                planted.kinds.insert(name);
                let is_refused = check(&module.patched(address, &bytes)).is_err();
                planted.add(is_refused, || format!("{name} at {address:#x} of {symbol}"));
            }
        }
        for (name, plant) in IN_CODE {
            let patches = patches(plant);
            // Of constants and of lanes the first; of the others one in the middle.
            let at = match name {
                "a wrong constant" | "one lane for all" => 0,
                _ => patches.len() / 2,
            };
            let Some((address, bytes)) = patches.get(at) else {
                continue;
            };
            let found = check(&module.patched(*address, bytes)).map(|proved| proved.to_string());
            planted.refuted(name, format_args!("{address:#x} of {symbol}"), &found);
        }
    }
    planted.add(runs(&[0x48, 0x8b, 0x06, 0xc3]), || "no program runs".into());
    for (what, code) in REFUSED {
        planted.add(!runs(code), || what.to_owned());
    }
    planted.insist(&IN_CODE.map(|kind| kind.0));
    planted.insist(&UNSEEN.map(|kind| kind.0));
    planted
}
