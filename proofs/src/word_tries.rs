//! Words of 16 and of 32 bits in numbers: the terms of a function are compared with the portable
//! words, a proof that failed is followed by a search, and defects are planted.
//!
//! No proof of words rests on it, but for signs of numbers that are refused.

use lockstep_kernels::proved::words::{Function, Place, Word};
use lockstep_testkit::Random;

use crate::defects::Planted;
use crate::proof::{Failed, or_refuted};
use crate::words::{Cut, Expected, Modulus, Range, Statement, Trials, Wrong, attempt, operands};

/// Proves the statement of a function, and that its terms compute the same as the portable words.
pub fn prove(
    function: &Function,
    statement: &Statement,
    trials: &mut Trials,
) -> Result<String, Failed> {
    let outcome = attempt(function, statement, trials).and_then(|proved| {
        compared(function, statement)?;
        Ok(proved)
    });
    let (outcome, at) = match outcome {
        Ok(proved) => (Ok(proved), Default::default()),
        Err(Wrong { why, at }) => (Err(why), at),
    };
    or_refuted(outcome, || search(function, statement, &at))
}

fn compared(function: &Function, statement: &Statement) -> Result<(), Wrong> {
    // The terms of the lanes hold for the portable ones.
    for round in [0, 20, 40, 41] {
        let inputs = tried_inputs(statement, round, &mut Random(round as u64));
        let found = values(function, statement.modulus, &inputs);
        if wrong(statement, &inputs, &found).is_some() {
            return Err("it is false for some inputs that were tried".into());
        }
        if !agree(statement, &found, &run(function, &inputs)) {
            return Err("the portable words have other results".into());
        }
    }
    // Signs leave the terms as a mask, of which each bit must count.
    for inputs in refused_alone(statement)? {
        if wrong(statement, &inputs, &run(function, &inputs)).is_some() {
            return Err("the portable words do not refuse one alone".into());
        }
    }
    Ok(())
}

/// The results of a list of words for these inputs.
fn values(function: &Function, modulus: Modulus, inputs: &[i64]) -> Vec<i64> {
    let mut values: Vec<i64> = Vec::with_capacity(function.list.len());
    for word in &function.list {
        let of = |place: Place| values[usize::from(place)];
        let sum = |sum: u32| {
            let products = function.sums[sum as usize].iter();
            let product = |&[a, b]: &[Place; 2]| of(a).wrapping_mul(of(b));
            products.map(product).fold(0, i64::wrapping_add)
        };
        values.push(match *word {
            Word::Input(i) => inputs[usize::from(i)],
            Word::Low(s) => modulus.word(sum(s)),
            Word::High(s) => modulus.word(sum(s) >> modulus.bits),
            _ => {
                let [a, b] = operands(*word).map_or([0; 2], |both| both.map(of));
                modulus.apply(word, a, b)
            }
        });
    }
    let results = function.results.iter();
    results.map(|&place| values[usize::from(place)]).collect()
}

/// Inputs for which cuts have these values.
fn inputs_for(statement: &Statement, cuts: &[Cut], values: &[i64]) -> Vec<(usize, i64)> {
    let mut inputs = Vec::new();
    for (cut, &value) in cuts.iter().zip(values) {
        match cut[..] {
            [(i, _), (j, sign)] => {
                let [least, most] = statement.ranges[j];
                let first = |second: i64| value - sign * second;
                let fits = |x: i64| (statement.ranges[i][0]..=statement.ranges[i][1]).contains(&x);
                let seconds = [0.clamp(least, most), least, most];
                let second = seconds.into_iter().find(|&second| fits(first(second)));
                let second = second.unwrap_or(least);
                inputs.extend([(i, first(second)), (j, second)]);
            }
            _ => inputs.push((cut[0].0, value)),
        }
    }
    inputs
}

/// For each number that may be refused inputs of which it alone is, and some of which none is.
fn refused_alone(statement: &Statement) -> Result<Vec<Vec<i64>>, Wrong> {
    let Some((cuts, f)) = &statement.refused else {
        return Ok(Vec::new());
    };
    let ranges = &statement.ranges;
    let middle: Vec<i64> = ranges
        .iter()
        .map(|range| (range[0] + range[1]) / 2)
        .collect();
    let count = |inputs: &[i64]| {
        let is_refused = |cut: &&Cut| f(&[value_of(cut, inputs)], statement.of) == -1;
        cuts.iter().filter(is_refused).count()
    };
    let alone = cuts.iter().map(|cut| {
        let (i, _) = cut[0];
        let with = |x: i64| {
            let mut inputs = middle.clone();
            inputs[i] = x;
            inputs
        };
        let mut found = ranges[i].map(with).into_iter();
        found.find(|inputs| count(inputs) == 1)
    });
    let mut all: Vec<Vec<i64>> = alone
        .collect::<Option<_>>()
        .ok_or("a number is never refused alone")?;
    if count(&middle) > 0 {
        return Err("all is refused".into());
    }
    all.push(middle);
    Ok(all)
}

/// By portable words.
fn run(function: &Function, inputs: &[i64]) -> Vec<i64> {
    let inputs: Vec<i32> = inputs.iter().map(|&x| x as i32).collect();
    function.run(&inputs).into_iter().map(i64::from).collect()
}

/// Whether both are the same results; of refusals one is as good as all.
fn agree(statement: &Statement, a: &[i64], b: &[i64]) -> bool {
    let [(a, others), (b, more)] = [a, b].map(|all| all.split_at(statement.expected.len()));
    a == b && others.contains(&-1) == more.contains(&-1)
}

fn tried_inputs(statement: &Statement, round: usize, random: &mut Random) -> Vec<i64> {
    let count = statement.ranges.len();
    let input = |(i, &[least, most]): (usize, &Range)| {
        let (word, middle) = (random.word(), (least + most) / 2);
        let any = least + (word % ((most - least) as u64 + 1)) as i64;
        match (round, word >> 63) {
            (0..20, _) => any,
            (20..40, 0) | (40, _) => least,
            (20..=41, _) => most,
            // One that differs, by more or less.
            _ if i == round % count => middle + ((any - middle) >> ((word >> 40) % 32)),
            _ => middle,
        }
    };
    statement.ranges.iter().enumerate().map(input).collect()
}

/// Inputs for which a statement is false. The portable words must agree with the statement, so that
/// they confirm that it is the list which is wrong.
fn search(
    function: &Function,
    statement: &Statement,
    (cuts, first): &(Vec<Cut>, Vec<i64>),
) -> Option<(Vec<u64>, String)> {
    let mut random = Random(1);
    let count = statement.ranges.len();
    (0..42 + 4 * count).find_map(|round| {
        let mut inputs = tried_inputs(statement, round, &mut random);
        if round == 42 {
            for (i, x) in inputs_for(statement, cuts, first) {
                inputs[i] = x;
            }
        }
        let found = values(function, statement.modulus, &inputs);
        let i = wrong(statement, &inputs, &found)?;
        let confirmed = run(function, &inputs);
        let how = match wrong(statement, &inputs, &confirmed) {
            None if !agree(statement, &found, &confirmed) => {
                "the portable words have another result"
            }
            _ => "so do the portable words",
        };
        let inputs = inputs.into_iter().map(|word| word as u64).collect();
        Some((inputs, format!("result {i} is wrong, {how}")))
    })
}

/// Returns the index of a result that violates the statement.
fn wrong(statement: &Statement, inputs: &[i64], results: &[i64]) -> Option<usize> {
    let count = statement.expected.len();
    let is_wrong = |i: &usize| !holds(statement, results[*i], &statement.expected[*i], inputs);
    (0..count).find(is_wrong).or_else(|| {
        let (cuts, f) = statement.refused.as_ref()?;
        let is_refused = |cut: &Cut| f(&[value_of(cut, inputs)], statement.of) == -1;
        let is_any = cuts.iter().any(is_refused);
        (results[count..].contains(&-1) != is_any).then_some(count)
    })
}

fn value_of(cut: &Cut, inputs: &[i64]) -> i64 {
    cut.iter().map(|&(i, times)| times * inputs[i]).sum()
}

fn holds(statement: &Statement, result: i64, expected: &Expected, inputs: &[i64]) -> bool {
    let q = statement.modulus.q;
    let input = |key: u32| match key {
        0 => 1,
        key => inputs[key as usize - 1],
    };
    match expected {
        Expected::Form(form, [least, most]) => {
            let product = |&(key, times): &(u32, i64)| {
                times * (input(key >> 16) * input(key & 0xffff) % q) % q
            };
            let sum: i64 = form.iter().map(product).sum();
            (sum - result) % q == 0 && (*least..=*most).contains(&result)
        }
        Expected::Of(cuts, f) => {
            let cuts: Vec<i64> = cuts.iter().map(|cut| value_of(cut, inputs)).collect();
            result == f(&cuts, statement.of)
        }
    }
}

/// The words that results depend on.
fn read(function: &Function) -> Vec<bool> {
    let mut read = vec![false; function.list.len()];
    let mut places = function.results.clone();
    while let Some(place) = places.pop() {
        if !std::mem::replace(&mut read[usize::from(place)], true) {
            match function.list[usize::from(place)] {
                Word::Low(sum) | Word::High(sum) => {
                    places.extend(function.sums[sum as usize].as_flattened());
                }
                word => places.extend(operands(word).iter().flatten()),
            }
        }
    }
    read
}

/// Kinds of defects in words.
const KINDS: [&str; 6] = [
    "a low half for a high one",
    "a sum for a difference",
    "a wrong word",
    "another sum",
    "a wrong shift",
    "a wrong constant",
];

/// Returns the word with a defect of this kind, if it can have one.
fn planted(kind: &str, word: Word) -> Option<Word> {
    Some(match (kind, word) {
        ("a low half for a high one", Word::MulHigh(both)) => Word::MulLow(both),
        ("a low half for a high one", Word::High(sum)) => Word::Low(sum),
        ("a sum for a difference", Word::Sub(both)) => Word::Add(both),
        ("a wrong word", Word::Add([a, b])) if a > 1 && b > 1 => Word::Add([a - 1, b]),
        ("another sum", Word::High(sum)) if sum > 1 => Word::High(sum - 1),
        ("a wrong shift", Word::Right(a, count)) => Word::Right(a, count + 1),
        // A half that is added before a shift need not be exact.
        ("a wrong constant", Word::Constant(value))
            if value > 15 && !(value as u32).is_power_of_two() =>
        {
            Word::Constant(value / 2)
        }
        _ => return None,
    })
}

/// Plants defects of each kind in the words of functions. `statement_of` returns the statement of a
/// function.
pub fn defects(
    all: &[(Function, Statement)],
    statement_of: fn(&Function) -> Statement,
    trials: &mut Trials,
) -> Planted {
    let mut all_planted = Planted::default();
    // Vectors of 512 bits do the same in another order.
    let functions = all.iter();
    for (function, statement) in functions.filter(|(f, _)| f.name.ends_with(" 256 bits")) {
        let read = read(function);
        let candidates = |kind: &str| {
            let places = (0..function.list.len()).filter(|&at| read[at]);
            let places = places.filter_map(|at| Some((at, planted(kind, function.list[at])?)));
            places.collect()
        };
        all_planted.plant(
            &function.name,
            &KINDS,
            candidates,
            &[4, 12],
            |place, word| {
                let mut changed = function.clone();
                changed.list[place] = word;
                prove(&changed, statement, trials)
            },
        );
    }
    // Functions of which results are missing.
    for (function, _) in all {
        let mut third = function.clone();
        third.results.truncate(third.results.len() / 3);
        let found = attempt(&third, &statement_of(&third), trials);
        all_planted.add(found.is_err(), || format!("a third of {}", function.name));
    }
    all_planted.insist(&KINDS);
    all_planted
}
