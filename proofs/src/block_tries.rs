//! GHASH in numbers: the terms of a function are compared with the portable blocks, a proof that
//! failed is followed by a search, and defects are planted. No proof rests on it.

use lockstep_kernels::proved::blocks::{Function, Half, List, Place, powers};
use lockstep_testkit::Random;

use crate::blocks::{
    REDUCED, Statement, Summand, Tried, attempt, attempt_all_powers, attempt_powers, block,
    degrees, exponents, list, list_of_powers, multiply, operands, statement, stored as as_power,
    values,
};
use crate::defects::Planted;
use crate::proof::{Failed, or_refuted};

/// Blocks and H at random, all of them, or one.
fn tried_inputs(statement: &Statement, random: &mut Random, only: Option<usize>) -> Vec<u128> {
    let mut any = || u128::from(random.word()) << 64 | u128::from(random.word());
    let mut inputs: Vec<u128> = (0..statement.blocks)
        .map(|i| match only {
            Some(only) if only != i => 0,
            _ => any(),
        })
        .collect();
    let h = any();
    let powers = std::iter::successors(Some(h), |power| Some(multiply(*power, h)));
    inputs.extend(powers.take(statement.powers));
    inputs
}

/// As they lie in memory.
fn in_memory(statement: &Statement, inputs: &[u128]) -> Vec<u128> {
    let (blocks, powers) = inputs.split_at(statement.blocks);
    let kind = statement.results[0][0];
    let blocks = blocks.iter().map(|&block| kind.stored(block));
    blocks
        .chain(powers.iter().map(|&power| as_power(power)))
        .collect()
}

/// The results of a list.
fn results(list: &List, inputs: &[u128]) -> Vec<u128> {
    let mut all = Vec::new();
    values(&list.halves, inputs, &mut all);
    let results = list.results.iter();
    results
        .map(|halves| block(halves.map(|place| all[place as usize])))
        .collect()
}

/// By portable blocks.
fn run(function: &Function, shape: [usize; 2], inputs: &[u128]) -> Vec<u128> {
    let inputs: Vec<[u8; 16]> = inputs.iter().map(|input| input.to_be_bytes()).collect();
    let results = function.run(shape, &inputs).into_iter();
    results.map(u128::from_be_bytes).collect()
}

/// Results by the statement.
fn stated(statement: &Statement, inputs: &[u128]) -> Vec<u128> {
    let (blocks, powers) = inputs.split_at(statement.blocks);
    let value = |summand: &Summand| summand.value(blocks[summand.block], powers[summand.power]);
    let sum = |summands: &Vec<Summand>| summands.iter().map(value).fold(0, |sum, x| sum ^ x);
    statement.results.iter().map(sum).collect()
}

/// Proves the statement for one length.
fn prove_list(
    function: &Function,
    shape: [usize; 2],
    list: &List,
    tried: &mut Tried,
) -> Result<(), Failed> {
    let statement = statement(function, shape);
    let mut random = Random(1);
    let outcome = attempt(list, &statement, tried).and_then(|()| {
        let inputs = in_memory(&statement, &tried_inputs(&statement, &mut random, None));
        match results(list, &inputs) == run(function, shape, &inputs) {
            true => Ok(()),
            false => Err("the portable blocks have other results".into()),
        }
    });
    let outcome = outcome.map_err(|why: String| format!("{why}, for {shape:?}"));
    or_refuted(outcome, || {
        (0..8 * statement.blocks).find_map(|round| {
            let only = (round >= statement.blocks).then_some(round % statement.blocks);
            let inputs = tried_inputs(&statement, &mut random, only);
            let stated = stated(&statement, &inputs);
            let inputs = in_memory(&statement, &inputs);
            let how = match run(function, shape, &inputs) == stated {
                true => "a result is wrong, the portable blocks have another result",
                false => "a result is wrong, so do the portable blocks",
            };
            let halves = inputs.iter().flat_map(|&x| [(x >> 64) as u64, x as u64]);
            (results(list, &inputs) != stated).then(|| (halves.collect(), how.into()))
        })
    })
}

/// Proves the statement of a function, for all its lengths.
pub fn prove(function: &Function, tried: &mut Tried) -> Result<String, Failed> {
    for &shape in &function.shapes {
        prove_list(function, shape, &list(function, shape), tried)?;
    }
    Ok(format!("{} lengths", function.shapes.len()))
}

/// Proves the statement of a key's powers.
pub fn prove_powers(lanes: usize, tried: &mut Tried) -> Result<String, Failed> {
    let outcome = attempt_all_powers(lanes, tried);
    outcome.or_else(|(list, why)| or_refuted(Err(why), || search_powers(&list, lanes)))
}

/// A power of H that is wrong.
fn search_powers(list: &List, lanes: usize) -> Option<(Vec<u64>, String)> {
    let mut random = Random(1);
    (0..20).find_map(|_| {
        let key = random.bytes();
        let confirmed: Vec<u128> = powers(&key).into_iter().map(u128::from_be_bytes).collect();
        // Whether x^128 went over says the lowest bit.
        let word = confirmed[0].swap_bytes();
        let mut h = (0..2).map(|top| ((word ^ (top * REDUCED)) >> 1) | top << 127);
        let h = h.find(|&h| as_power(h) == confirmed[0])?;
        let all = std::iter::successors(Some(h), |x| Some(multiply(*x, h)));
        let all: Vec<u128> = all.take(8 * lanes.max(2)).map(as_power).collect();
        let expected = exponents(lanes).map(|exponent| all[exponent - 1]);
        let mut found = results(list, &confirmed[..1]).into_iter().zip(expected);
        let is_wrong = found.any(|(a, b)| a != b) && confirmed[..] == all[..16];
        let how = "a power is wrong, the portable blocks have another one";
        is_wrong.then(|| (vec![(h >> 64) as u64, h as u64], how.into()))
    })
}

/// The halves on which results depend, without zeros.
fn read(list: &List) -> Vec<bool> {
    let degrees = degrees(&list.halves, |_| Some([0, 0])).expect("like terms");
    let mut read = vec![false; list.halves.len()];
    let mut places = list.results.as_flattened().to_vec();
    while let Some(place) = places.pop() {
        let at = place as usize;
        if degrees[at].is_some() && !std::mem::replace(&mut read[at], true) {
            places.extend(operands(list.halves[at]));
        }
    }
    read
}

/// Kinds of defects in halves.
const KINDS: [&str; 5] = [
    "an upper half for a lower one",
    "a wrong factor",
    "a missing summand",
    "a wrong constant",
    "a wrong mask",
];

/// Returns the half with a defect of this kind, if it can have one.
fn planted(read: &[bool], kind: &str, half: Half) -> Option<Half> {
    let is_read = |place: Place| read[place as usize];
    Some(match (kind, half) {
        ("an upper half for a lower one", Half::Low(both)) => Half::High(both),
        ("a wrong factor", Half::High([a, b])) if a != b => Half::High([a, a]),
        ("a missing summand", Half::Add([a, b])) if is_read(a) && is_read(b) => {
            Half::Keep(a, u64::MAX)
        }
        ("a wrong constant", Half::Constant(number)) if number != 0 => Half::Constant(number << 1),
        ("a wrong mask", Half::Keep(a, mask)) => Half::Keep(a, mask ^ 0xff << 24),
        _ => return None,
    })
}

/// Plants defects of each kind in one length of each function.
pub fn defects(all: &[Function], tried: &mut Tried) -> Planted {
    let mut all_planted = Planted::default();
    let mut plant = |name: &str,
                     list: &List,
                     proof: &mut dyn FnMut(&List) -> Result<(), Failed>| {
        let read = read(list);
        let candidates = |kind: &str| {
            let places = (0..list.halves.len()).filter(|&at| read[at]);
            let places = places.filter_map(|at| Some((at, planted(&read, kind, list.halves[at])?)));
            places.collect()
        };
        all_planted.plant(name, &KINDS, candidates, &[4, 12], |place, half| {
            let mut changed = list.clone();
            changed.halves[place] = half;
            proof(&changed).map(|()| String::new())
        });
    };
    for function in all {
        let shape = function.shapes[function.shapes.len() * 2 / 3];
        plant(&function.name, &list(function, shape), &mut |changed| {
            prove_list(function, shape, changed, tried)
        });
    }
    for lanes in [2, 4] {
        plant("powers", &list_of_powers(lanes, 1), &mut |changed| {
            let outcome = attempt_powers(changed, lanes, tried);
            or_refuted(outcome, || search_powers(changed, lanes))
        });
    }
    all_planted.insist(&KINDS);
    all_planted
}
