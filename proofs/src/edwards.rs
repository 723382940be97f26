//! The formulas of points of −x² + y² = 1 + d·x²·y².
//!
//! The sum of two points is ((x₁y₂ + x₂y₁)/(1 + s), (y₁y₂ + x₁x₂)/(1 − s)) with s = d·x₁x₂y₁y₂. No
//! denominator vanishes, since −1 is a square modulo p and d is none: so there are no exceptions.
//!
//! x of y is x = u·v³·(u·v⁷)^((p − 5)/8) if v·x² = u, and x·√−1 if v·x² = −u, for u = y² − 1 and
//! v = d·y² + 1. There v·x²/u is a fourth root of one, which is ±1 if u/v is a square, and else is
//! none of both.

use lockstep_kernels::proved::{Function, Operand, Place, Term, Terms};
use lockstep_testkit::Random;
use num_bigint::BigInt;

use crate::claims::{digits, sum};
use crate::formulas::{
    self, Bit, Expressions, Formulas, Given, Program, Step, constant_modulus, template,
};
use crate::proof::given;
use crate::ranges::MASK;
use crate::terms::{Look, limbs};

/// Start of the names.
pub const PREFIX: &str = "curve25519::edwards::";

/// The functions that are proved.
pub const NAMES: [&str; 34] = [
    "curve25519::edwards::double, false",
    "curve25519::edwards::double, false, halves",
    "curve25519::edwards::double, true",
    "curve25519::edwards::double, true, halves",
    "curve25519::edwards::add_assign",
    "curve25519::edwards::add_assign, halves",
    "curve25519::edwards::add_cached",
    "curve25519::edwards::add_cached, halves",
    "curve25519::edwards::add_cached, false",
    "curve25519::edwards::add_cached, false, halves",
    "curve25519::edwards::add_affine",
    "curve25519::edwards::add_affine, halves",
    "curve25519::edwards::cached",
    "curve25519::edwards::cached, halves",
    "curve25519::edwards::affine",
    "curve25519::edwards::affine, halves",
    "curve25519::edwards::signed",
    "curve25519::edwards::signed, halves",
    "curve25519::edwards::new",
    "curve25519::edwards::new, halves",
    "curve25519::edwards::from_projective",
    "curve25519::edwards::from_projective, halves",
    "curve25519::edwards::factors",
    "curve25519::edwards::factors, halves",
    "curve25519::edwards::minus_point",
    "curve25519::edwards::minus_point, halves",
    "curve25519::edwards::root_base",
    "curve25519::edwards::root_base, halves",
    "curve25519::edwards::root",
    "curve25519::edwards::root, halves",
    "curve25519::edwards::minus_key",
    "curve25519::edwards::minus_key, halves",
    "curve25519::edwards::are_equal",
    "curve25519::edwards::are_equal, halves",
];

/// A proof of formulas.
pub type Prove = fn(&[Function], &Function, (Terms, Vec<Place>)) -> Result<Formulas, String>;

/// All functions whose formulas are proved, here and in `formulas.rs`.
pub fn and_others() -> impl Iterator<Item = (&'static str, Prove)> {
    let others = formulas::NAMES.map(|name| (name, formulas::prove as Prove));
    others
        .into_iter()
        .chain(NAMES.map(|name| (name, prove as Prove)))
}

/// P = (X, Y) with the denominator Z.
const POINT: [&str; 4] = ["X*Z", "Y*Z", "Z", "X*Y*Z"];
/// The coordinates of a sum but for a common factor: x = N/D, y = M/F.
const SUM: [&str; 4] = ["L*N*F", "L*M*D", "L*D*F", "L*N*M"];
/// The numbers of these.
const DEFINITIONS: [(&str, &str); 5] = [
    ("S", "K*X*Y*A*B"),
    ("N", "X*B+A*Y"),
    ("M", "Y*B+X*A"),
    ("D", "1+S"),
    ("F", "1-S"),
];

/// Operands and results of a function, in variables.
struct Law {
    variables: &'static str,
    operands: Vec<&'static str>,
    definitions: Vec<(&'static str, String)>,
    results: Vec<&'static str>,
    /// Whether Singular is told: sums alone, and a number that is 2·d modulo p, say nothing to it.
    is_told: bool,
}

impl Law {
    fn of(kind: &str, is_negative: bool, [d, i, half]: &[String; 3]) -> Self {
        let sum_of = |first: [(&'static str, &str); 3]| {
            let all = first.into_iter().chain(DEFINITIONS);
            all.map(|(name, text)| (name, text.to_owned())).collect()
        };
        let law = |variables, q: &[&'static str], definitions, results: &[&'static str]| Self {
            variables,
            operands: POINT.iter().chain(q).copied().collect(),
            definitions,
            results: results.to_vec(),
            is_told: kind != "cached" && kind != "factors",
        };
        match kind {
            // Both points are P, and d·x²·y² = y² − x² − 1.
            "double, true" | "double, false" => {
                let mut definitions: Vec<_> = sum_of([("A", "X"), ("B", "Y"), ("L", "Z^4")]);
                definitions[3].1 = "Y^2-X^2-1".to_owned();
                let with_t = if kind == "double, true" { 4 } else { 3 };
                law("X,Y,Z", &[], definitions, &SUM[..with_t])
            }
            // Q = (±U, V) with the denominator W; K is d.
            "add_cached" | "add_cached, false" | "add_assign" => law(
                "X,Y,Z,U,V,W,K",
                &["(V+U)*W", "(V-U)*W", "W", "2*K*U*V*W"],
                sum_of([
                    ("A", if is_negative { "-U" } else { "U" }),
                    ("B", "V"),
                    ("L", "4*Z^2*W^2"),
                ]),
                &SUM[..if kind == "add_cached, false" { 3 } else { 4 }],
            ),
            // Q = (±2U, 2V).
            "add_affine" => law(
                "X,Y,Z,U,V,K",
                &["V+U", "V-U", "4*K*U*V"],
                sum_of([
                    ("A", if is_negative { "-2*U" } else { "2*U" }),
                    ("B", "2*V"),
                    ("L", "Z^2"),
                ]),
                &SUM,
            ),
            "root_base" | "root" => {
                let root = if is_negative { "I*X" } else { "X" };
                Self {
                    variables: "Y,P",
                    operands: vec!["Y", "P"],
                    definitions: [("K", &**d), ("I", i), ("U", "Y^2-1"), ("V", "K*Y^2+1")]
                        .into_iter()
                        .chain([("X", "U*V^3*P")])
                        .map(|(name, text)| (name, text.to_owned()))
                        .collect(),
                    results: match kind {
                        "root_base" => vec!["U*V^7"],
                        _ => vec![root, "V*X^2-U", "V*X^2+U"],
                    },
                    is_told: true,
                }
            }
            "cached" => law(
                "X,Y,Z",
                &[],
                vec![("K", d.clone())],
                &["(Y+X)*Z", "(Y-X)*Z", "Z", "2*K*X*Y*Z"],
            ),
            "affine" => Self {
                variables: "X,Y",
                operands: vec!["X", "Y"],
                definitions: vec![("K", d.clone()), ("H", half.clone())],
                results: vec!["H*(Y+X)", "H*(Y-X)", "K*X*Y"],
                is_told: false,
            },
            "from_projective" => {
                let results = ["X*Z^2", "Y*Z^2", "Z^2", "X*Y*Z^2"];
                law("X,Y,Z", &[], Vec::new(), &results)
            }
            "factors" => law("X,Y,Z", &[], Vec::new(), &POINT[..3]),
            // Differences that are zero if and only if the points are equal.
            "are_equal" => Self {
                variables: "X,Y,Z,A,B,C",
                operands: vec!["X", "Y", "Z", "A", "B", "C"],
                definitions: Vec::new(),
                results: vec!["X*C-A*Z", "Y*C-B*Z"],
                is_told: true,
            },
            _ => Self {
                variables: "X,Y",
                operands: vec!["X", "Y"],
                definitions: vec![("A", (if is_negative { "-X" } else { "X" }).to_owned())],
                results: vec!["A", "Y", "1", "A*Y"],
                is_told: true,
            },
        }
    }
}

/// The name of a function without that of its lanes, and that one.
fn kind(function: &Function) -> (&str, &str) {
    let kind = function.name.strip_prefix(PREFIX).expect("a point");
    match kind.strip_suffix(", halves") {
        Some(kind) => (kind, ", halves"),
        None => (kind, ""),
    }
}

/// d, if the law has no exceptions.
pub fn d(n: &BigInt) -> Result<BigInt, String> {
    let d = BigInt::from(-121_665) * BigInt::from(121_666).modpow(&(n - 2), n) % n;
    let is_square = |a: &BigInt| a.modpow(&((n - 1) / 2), n) == BigInt::from(1);
    match is_square(&(n - 1)) && !is_square(&d) {
        true => Ok(d),
        false => Err("the law has exceptions".into()),
    }
}

/// d, √−1 and 1/2, next to zero.
fn constants(n: &BigInt) -> Result<[String; 3], String> {
    let i = BigInt::from(2).modpow(&((n - 1) / 4), n);
    if (&i * &i + 1) % n != BigInt::ZERO {
        return Err("no root of −1".into());
    }
    let half: BigInt = (n + 1) / 2;
    Ok([d(n)?, i, half].map(|a| formulas::symmetric(&a, n).to_string()))
}

fn numbers(operands: &[Operand]) -> impl Iterator<Item = &Operand> {
    operands.iter().filter(|operand| operand.limbs == 5)
}

/// Proves that a function is the law's, for both signs.
pub fn prove(
    all: &[Function],
    function: &Function,
    terms: (Terms, Vec<Place>),
) -> Result<Formulas, String> {
    let (kind, lanes) = kind(function);
    let (_, n) = constant_modulus(function)?;
    let constants = constants(&n)?;
    if kind == "minus_key" {
        return minus_key(all, lanes, &terms);
    }
    let given = given(function);
    let inputs = numbers(&function.inputs).enumerate();
    let inputs = inputs.map(|(i, operand)| Given {
        at: 5 * i,
        ranges: given[5 * i..5 * i + 5].to_vec(),
        is_loose: operand.loose,
    });
    let inputs: Vec<Given> = inputs.collect();
    let (others, templates) = (
        &given[5 * inputs.len()..],
        formulas::products_25519(all, lanes),
    );
    let (list, mut results) = terms;
    let sign = limbs(&function.inputs) as u32 - 1;
    let asks_for_sign = |term: &Term| {
        matches!(term, Term::AnyBit([word, one])
            if are_inputs(&list, &[*word], sign) && list.is(*one, 1))
    };
    let mut chooser = list.list.iter().position(asks_for_sign);
    if kind == "root" {
        let (mask, differences) = asked(all, lanes, &list, results[5])?;
        results.splice(5.., differences);
        chooser = Some(mask as usize);
    } else if kind == "are_equal" {
        results = differences(all, lanes, &list, results[0])?;
    } else if kind == "affine" {
        let canonical = template(all, &format!("curve25519::field, canonical{lanes}"));
        let numbers = results.chunks(5);
        let numbers = numbers.map(|out| canonical.inputs_of(&list.list, out));
        let numbers: Option<Vec<_>> = numbers.collect();
        results = numbers.ok_or("not canonical")?.concat();
    } else if kind == "minus_point" {
        chooser = Some(asks_for_parity(all, lanes, &list)? as usize);
    }
    let terms = (list, results);
    let (program, _) = Program::read(function, terms, &templates, &inputs, others, 5)?;
    let mut identities = String::new();
    for sign in 0..=usize::from(chooser.is_some()) {
        let law = Law::of(kind, sign == 1, &constants);
        let results = program.results.iter().enumerate();
        let step = Step {
            variables: law.variables,
            products: 0..program.products.len(),
            given: (0..inputs.len())
                .map(|i| (i, law.operands[i].to_owned()))
                .collect(),
            definitions: law.definitions,
            expected: law
                .results
                .iter()
                .zip(results)
                .map(|(text, (i, result))| {
                    let name = format!("{}, result {i}, {sign}", function.name);
                    (name, result.clone(), (*text).to_owned())
                })
                .collect(),
        };
        let sign_of = |bit| match bit {
            Bit::Mask(mask) if Some(mask as usize) == chooser => Some(sign == 1),
            Bit::Mask(mask) => match program.terms.term(mask) {
                // No bit is asked for.
                Term::AnyBit(both) if both.iter().any(|&part| program.terms.is(part, 0)) => {
                    Some(false)
                }
                _ => None,
            },
            _ => None,
        };
        program.check(&step, &sign_of)?;
        if law.is_told {
            identities += &program.write(&step, &format!("r{sign}"), &sign_of);
        }
    }
    Ok(Formulas {
        proved: format!("{} products, the group law", program.products.len()),
        identities,
    })
}

/// The mask that chooses a root, and the limbs of both differences that are asked for zero: where
/// `found` is 1 if the first is zero or the second, and the mask is set where the first is not.
fn asked(
    all: &[Function],
    lanes: &str,
    terms: &Terms,
    found: Place,
) -> Result<(Place, Vec<Place>), String> {
    let asked = |mask| asks_for_zero(all, lanes, terms, mask);
    let both = || {
        let Term::Select([first, neither, one]) = terms.term(found) else {
            return None;
        };
        let Term::Select([second, zero, other]) = terms.term(neither) else {
            return None;
        };
        let is_bit = terms.is(one, 1) && terms.is(other, 1) && terms.is(zero, 0);
        let differences = [asked(first)?, asked(second)?].concat();
        is_bit.then_some((first, differences))
    };
    both().ok_or("another question".into())
}

/// The limbs of two numbers, where `found` is 1 if both are zero, else 0.
fn differences(
    all: &[Function],
    lanes: &str,
    terms: &Terms,
    found: Place,
) -> Result<Vec<Place>, String> {
    let asked = |mask| asks_for_zero(all, lanes, terms, mask);
    let both = || {
        let Term::Select([first, zero, same]) = terms.term(found) else {
            return None;
        };
        let Term::Select([second, other, one]) = terms.term(same) else {
            return None;
        };
        let is_bit = terms.is(zero, 0) && terms.is(other, 0) && terms.is(one, 1);
        let differences = [asked(first)?, asked(second)?].concat();
        is_bit.then_some(differences)
    };
    both().ok_or("another question".into())
}

/// The limbs of the number that a mask asks for, if it is set where p does not divide that.
pub fn asks_for_zero(
    all: &[Function],
    lanes: &str,
    terms: &Terms,
    mask: Place,
) -> Option<Vec<Place>> {
    let canonical = template(all, &format!("curve25519::field, canonical{lanes}"));
    let Term::AnyBit([mut word, all]) = terms.term(mask) else {
        return None;
    };
    let mut limbs = Vec::new();
    while let Term::Or([others, limb]) = terms.term(word) {
        let Term::Xor([limb, zero]) = terms.term(limb) else {
            return None;
        };
        limbs.insert(0, limb);
        word = others;
        terms.is(zero, 0).then_some(())?;
    }
    let is_whole = limbs.len() == 5 && terms.is(word, 0) && terms.is(all, MASK);
    canonical
        .inputs_of(&terms.list, &limbs)
        .filter(|_| is_whole)
}

/// The mask that is set where the parity of x is the sign.
fn asks_for_parity(all: &[Function], lanes: &str, terms: &Terms) -> Result<Place, String> {
    let canonical = template(all, &format!("curve25519::field, canonical{lanes}"));
    let is_of_x = |lowest: Place| {
        let x = canonical.inputs_of(&terms.list, &[lowest]);
        x.is_some_and(|x| are_inputs(terms, &x, 0))
    };
    let mut masks = (0..).zip(&terms.list).filter(|(_, term)| match term {
        Term::Equal([bit, sign]) => {
            are_inputs(terms, &[*sign], 10)
                && matches!(terms.term(*bit), Term::And([lowest, one])
                    if terms.is(one, 1) && is_of_x(lowest))
        }
        _ => false,
    });
    Ok(masks.next().ok_or("another sign")?.0)
}

/// Whether terms are the inputs from `first` on.
pub fn are_inputs(terms: &Terms, places: &[Place], first: u32) -> bool {
    let mut places = places.iter().zip(first..);
    places.all(|(&place, i)| terms.term(place) == Term::Input(i))
}

/// That −A is that of a root from the power of its base.
fn minus_key(
    all: &[Function],
    lanes: &str,
    (terms, results): &(Terms, Vec<Place>),
) -> Result<Formulas, String> {
    let made = |name: &str, results: &[Place]| {
        let piece = template(all, &format!("curve25519::{name}{lanes}"));
        let made = piece.inputs_of(&terms.list, results);
        made.ok_or_else(|| format!("no {name}"))
    };
    let (point, found) = results.split_at(20);
    let point = made("edwards::minus_point", point)?;
    let (x, y) = point.split_at(5);
    let root = made("edwards::root", &[x, found].concat())?;
    let base = made("powers_for_root", &root[5..])?;
    let base = made("edwards::root_base", &base)?;
    let are_y = [&y[..5], &root[..5], &base].map(|y| are_inputs(terms, y, 0));
    match are_y == [true; 3] && are_inputs(terms, &y[5..], 5) {
        true => Ok(Formulas {
            proved: "a root".into(),
            identities: String::new(),
        }),
        false => Err("another y".into()),
    }
}

/// Inputs for which a result is not that of the law, by portable lanes.
pub fn refute(function: &Function, terms: &Terms, results: &[Place]) -> Option<Vec<u64>> {
    let (_, n) = constant_modulus(function).ok()?;
    let (constants, kind) = (constants(&n).ok()?, kind(function).0);
    let mut random = Random(1);
    (0..30).find_map(|_| {
        let mut sign = random.word() >> 12;
        let mut law = Law::of(kind, sign & 1 == 1, &constants);
        let mut known = Expressions::with(&n, Vec::new());
        for name in law.variables.split(',') {
            let value = sum(&[0; 5].map(|_| random.word() >> 12)) % &n;
            if kind == "minus_point" && name == "X" {
                sign &= 1;
                law = Law::of(kind, value.bit(0) == (sign == 1), &constants);
            }
            let constant = [(Vec::new(), value)].into();
            known.known.insert(name.to_owned(), constant);
        }
        let is_root = law.variables == "Y,P";
        if is_root {
            let base = Law::of("root_base", false, &constants);
            base.definitions
                .iter()
                .for_each(|(name, text)| known.define(name, text));
            let base = known.read(base.results[0]).values().next().cloned()?;
            let power = ((base % &n) + &n).modpow(&((&n - 5) / 8), &n);
            known
                .known
                .insert("P".to_owned(), [(Vec::new(), power)].into());
        }
        for (name, text) in &law.definitions {
            known.define(name, text);
        }
        let value_of = |text: &str| {
            let value = known.read(text).values().next().cloned();
            ((value.unwrap_or_default() % &n) + &n) % &n
        };
        let is_zero = |text| value_of(text) == BigInt::ZERO;
        let mut is_found = true;
        if is_root && kind != "root_base" {
            is_found = is_zero("V*X^2-U") || is_zero("V*X^2+U");
            law = Law::of(kind, !is_zero("V*X^2-U"), &constants);
        }
        let mut inputs = Vec::new();
        for (operand, text) in numbers(&function.inputs).zip(&law.operands) {
            let mut limbs = digits(&value_of(text), 5);
            // A multiple of p whose limbs are close to 2^57.
            let bias = digits(&(&n << 10), 6);
            let is_biased = u64::from(operand.range[0] > 0);
            for (i, limb) in limbs.iter_mut().enumerate() {
                let (lent, top) = (u64::from(i > 0) << 5, u64::from(i < 4) << 57);
                let above = if i < 4 { 0 } else { bias[5] << 52 };
                *limb += is_biased * (bias[i] + above + top - lent);
            }
            inputs.extend(limbs);
        }
        inputs.resize(limbs(&function.inputs), sign);
        let found = terms.results(&inputs, results);
        let is_wrong = |found: &[u64]| {
            let mut results = law
                .results
                .iter()
                .zip(found.chunks(5))
                .zip(numbers(&function.outputs));
            let found = found.get(5).filter(|_| found.len() == 6);
            found.is_some_and(|&found| found != u64::from(is_found))
                || results.any(|((text, limbs), operand)| {
                    let low = if operand.loose { MASK } else { u64::MAX };
                    let limbs: Vec<u64> = limbs.iter().map(|limb| limb & low).collect();
                    sum(&limbs) % &n != value_of(text)
                })
        };
        (is_wrong(&found) && !is_wrong(&function.words(&inputs))).then_some(inputs)
    })
}
