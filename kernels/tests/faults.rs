//! No fault in a lane ever gives a wrong result, and none touches a neighbour.
//!
//! `cargo test -p lockstep-kernels --features fault-injection --test faults`

#![cfg(feature = "fault-injection")]

mod common;

use std::time::{Duration, Instant};

use common::{Random, TestKey, below, keys, schedules};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::fault::{
    Fault, Point, arm, disarm, limbs_at_last_strike, mxcsr_of_last_chunk, skip_checks, strikes,
};
use lockstep_kernels::rsa::{
    Blinding, JobError, PrivateJob, Scratch, Signature, Size, Verified, private_batch,
};
use num_bigint::BigUint;

type Answer = Result<Verified<Signature>, JobError>;

/// Number of bits of a word of an exponent.
const EXPONENT_WORD: usize = 60;

/// Plants a fault at every point in every request of batches of `fill`: at the lowest limb, at the
/// top one, and between.
fn strike(backend: Backend, size: Size, fill: usize) {
    let mut keys = keys(size);
    // With an exponent as long as the modulus, the check and the oracle would take most of the
    // time.
    keys.retain(|key| size == Size::Rsa1024 || key.e.bits() <= 64);
    let mut scratch = Scratch::new();
    let mut random = Random(fill as u64 + 7);
    for point in Point::of(backend) {
        for request in 0..fill {
            // An idle lane repeats the last request: a swap with it changes nothing.
            if point == Point::LaneOrder && next_lane(backend, request, fill) >= fill {
                continue;
            }
            let between = random.word() as usize % (size.bits() / 2 / 60);
            let fault = Fault {
                point,
                request,
                half: random.word() as usize % 2,
                limb: [0, usize::MAX, between][(request + fill) % 3],
                bit: random.word() as u32 % 64,
            };
            let mut batch = Batch::new(&keys, fill, &mut random);
            arm(fault);
            let answers = batch.compute(backend, &mut scratch);
            assert_ne!(
                strikes(),
                0,
                "{backend:?} {fault:?} in {fill} did not strike"
            );
            disarm();
            for (i, answer) in answers.into_iter().enumerate() {
                // The next lane may be idle, or the first lane of the same pass. Then only one
                // result shows the swap.
                let swapped_with_it = point == Point::LaneOrder && answer.is_err();
                assert!(!swapped_with_it || i == request || i == next_lane(backend, request, fill));
                let place = format!("{backend:?} {fault:?} in {fill}: request {i}");
                let seen = (i == request)
                    .then(|| is_seen(backend, fault, batch.keys[i]))
                    .flatten();
                if i == request && seen.unwrap_or(answer.is_err()) || swapped_with_it {
                    assert_eq!(answer.err(), Some(JobError::CheckFailed), "{place}");
                } else {
                    batch.assert_right(i, &answer, &place);
                }
            }
        }
    }
}

/// Returns whether a fault in a request with this key reaches its result; None if that depends on
/// the places of powers in a table, or on the selected powers.
fn is_seen(backend: Backend, fault: Fault, key: &TestKey) -> Option<bool> {
    let half = key.prepared.size().bits() / 2;
    match fault.point {
        // No digit contains the upper bits of the top word.
        Point::Exponent => {
            let digits = if backend.computes_rsa_on_words() {
                5
            } else {
                4
            };
            let word = fault.limb.min(half.div_ceil(EXPONENT_WORD) - 1);
            let bit = EXPONENT_WORD * word + fault.bit as usize % EXPONENT_WORD;
            Some(bit < half.next_multiple_of(digits))
        }
        // Of 32 powers, an exponent of 512 bits does not select one in 26.
        Point::Table if backend.computes_rsa_on_words() => None,
        // A short exponent does not have all digits, so it does not select all powers.
        Point::Table if key.parts[4 + fault.half].len() < half / 16 => None,
        _ => Some(true),
    }
}

/// Requests with random inputs, the keys in turn.
struct Batch<'a> {
    keys: Vec<&'a TestKey>,
    inputs: Vec<Vec<u8>>,
    pairs: Vec<Blinding>,
}

impl<'a> Batch<'a> {
    fn new(keys: &'a [TestKey], fill: usize, random: &mut Random) -> Batch<'a> {
        let keys: Vec<_> = keys.iter().cycle().take(fill).collect();
        let input = |key: &&TestKey| key.bytes(&below(random, &key.n));
        Batch {
            inputs: keys.iter().map(input).collect(),
            pairs: keys.iter().map(|key| key.blinding(random)).collect(),
            keys,
        }
    }

    fn compute(&mut self, backend: Backend, scratch: &mut Scratch) -> Vec<Answer> {
        let inputs = self.keys.iter().zip(&self.inputs);
        let mut jobs: Vec<_> = inputs
            .zip(&mut self.pairs)
            .map(|((key, input), blinding)| PrivateJob {
                key: &key.prepared,
                input,
                check_input: input,
                blinding,
                result: None,
            })
            .collect();
        private_batch(backend, scratch, &mut jobs);
        let answers = jobs.into_iter().map(|job| job.result);
        answers.map(|answer| answer.expect("set")).collect()
    }

    /// Asserts that request `i` has the only number below n whose power is its input.
    #[track_caller]
    fn assert_right(&self, i: usize, answer: &Answer, place: &str) {
        let Ok(signature) = answer else {
            panic!("{place}: {answer:?}");
        };
        let key = self.keys[i];
        let signature = BigUint::from_bytes_be(signature.as_bytes());
        assert!(signature < key.n, "{place}");
        let power = signature.modpow(&key.e, &key.n);
        assert_eq!(key.bytes(&power), self.inputs[i], "{place}");
    }
}

/// Returns the request in the lane after that of `request`, in the order in which `private_batch`
/// fills its lanes. It is not in the batch if that lane is idle.
fn next_lane(backend: Backend, request: usize, fill: usize) -> usize {
    let (at_once, lanes) = match backend.name() {
        "avx512ifma256" => (2, 8),
        "avx512ifma" if fill <= 2 => (2, 8),
        _ => (backend.lanes(), backend.lanes()),
    };
    let first = request / at_once * at_once;
    let next = first + (request - first + 1) % lanes;
    if next < first + at_once { next } else { fill }
}

#[test]
fn a_fault_fails_its_request_and_no_other() {
    // A fault is armed for its own thread.
    std::thread::scope(|scope| {
        for backend in schedules() {
            scope.spawn(move || strike_all(backend));
        }
    });
}

fn strike_all(backend: Backend) {
    for fill in 1..=8 {
        strike(backend, Size::Rsa1024, fill);
    }
    if backend != Backend::PORTABLE {
        for fill in [1, 2, 3, 6, 8] {
            strike(backend, Size::Rsa2048, fill);
        }
        strike(backend, Size::Rsa3072, 5);
        strike(backend, Size::Rsa4096, 4);
    }
}

/// The time of some instructions may depend on operands unless all flags are set (audit row 16).
#[test]
fn batches_run_with_all_flags_of_the_control_register_set() {
    let keys = keys(Size::Rsa1024);
    let mut scratch = Scratch::new();
    for backend in schedules() {
        for fill in [1, 8] {
            let mut batch = Batch::new(&keys, fill, &mut Random(9));
            batch.compute(backend, &mut scratch);
            assert_eq!(mxcsr_of_last_chunk(), 0x1fbf, "{backend:?}");
        }
    }
}

/// The results of faults.
#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    /// Number of refused requests.
    refused: u64,
    /// Wrong results that were returned.
    wrong: Vec<String>,
}

/// Plants a fault in every limb of every number, in every half and every request of full batches.
/// Of all these cases it runs those from `first` upwards whose number is a multiple of `step`,
/// until `end`. Returns where it stopped, if it did.
fn strike_limbs(
    backend: Backend,
    size: Size,
    (first, step): (u64, u64),
    end: Instant,
    tally: &mut Tally,
) -> Option<u64> {
    const FILL: usize = 8;
    let mut keys = keys(size);
    keys.retain(|key| key.e.bits() <= 64);
    let mut scratch = Scratch::new();
    let mut random = Random(first + 11);
    let mut batch = Batch::new(&keys, FILL, &mut random);
    let mut case = 0;
    for point in Point::of(backend) {
        let halves = if point.is_in_half() { 2 } else { 1 };
        for (request, half) in (0..FILL).flat_map(|r| (0..halves).map(move |h| (r, h))) {
            let (mut limb, mut limbs) = (0, 1);
            while limb < limbs {
                let is_due = case >= first && case % step == 0;
                // The first case of a number counts its limbs.
                if is_due || limb == 0 {
                    let fault = Fault {
                        point,
                        request,
                        half,
                        limb,
                        bit: random.word() as u32 % 64,
                    };
                    arm(fault);
                    let answers = batch.compute(backend, &mut scratch);
                    assert_ne!(strikes(), 0, "{backend:?} {fault:?} did not strike");
                    disarm();
                    limbs = limbs_at_last_strike();
                    if is_due {
                        tally.cases += 1;
                        batch.tally(&answers, &format!("{backend:?} {size:?} {fault:?}"), tally);
                    }
                    if matches!(point, Point::Blind | Point::Unblind) {
                        // The stored pair stays wrong.
                        batch.pairs[request] = batch.keys[request].blinding(&mut random);
                    }
                }
                limb += 1;
                case += 1;
                if is_due && Instant::now() > end {
                    return Some(case);
                }
            }
        }
    }
    None
}

impl Batch<'_> {
    /// Counts refusals and wrong results.
    fn tally(&self, answers: &[Answer], place: &str, tally: &mut Tally) {
        for (i, answer) in answers.iter().enumerate() {
            match answer {
                Err(_) => tally.refused += 1,
                Ok(signature) => {
                    let key = self.keys[i];
                    let signature = BigUint::from_bytes_be(signature.as_bytes());
                    let is_right = signature < key.n
                        && key.bytes(&signature.modpow(&key.e, &key.n)) == self.inputs[i];
                    if !is_right {
                        tally.wrong.push(format!("{place}: request {i}"));
                    }
                }
            }
        }
    }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// A sample of all cases. The nightly test runs all of them.
#[test]
fn no_fault_in_any_limb_lets_a_wrong_result_out() {
    std::thread::scope(|scope| {
        for backend in schedules() {
            scope.spawn(move || {
                let step = if backend == Backend::PORTABLE {
                    397
                } else {
                    29
                };
                let mut tally = Tally::default();
                let end = in_seconds(600);
                let stopped = strike_limbs(backend, Size::Rsa1024, (0, step), end, &mut tally);
                println!("{backend:?}: {tally:?}");
                assert_eq!((stopped, tally.wrong), (None, vec![]), "{backend:?}");
                assert!(tally.cases > 10 && tally.refused > tally.cases / 4);
            });
        }
    });
}

/// The same without the check of results: wrong results are returned, and found.
#[test]
fn without_the_check_wrong_results_are_found() {
    for backend in schedules() {
        let step = if backend == Backend::PORTABLE {
            997
        } else {
            199
        };
        let mut tally = Tally::default();
        skip_checks(true);
        strike_limbs(
            backend,
            Size::Rsa1024,
            (0, step),
            in_seconds(600),
            &mut tally,
        );
        skip_checks(false);
        assert!(!tally.wrong.is_empty(), "{backend:?}: {tally:?}");
        assert_eq!(tally.refused, 0, "{backend:?}");
    }
}

/// Every case of every size on all lanes, for the time that `cargo xtask nightly` gives, from the
/// case where the last run stopped.
#[test]
#[ignore = "takes hours; cargo xtask nightly limbs"]
fn every_fault_in_every_limb() {
    let setting = |name: &str| -> u64 {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
            .unwrap_or(0)
    };
    // Selects lanes and size, and a case of them.
    const CASES: u64 = 1 << 32;
    let end = in_seconds(setting("NIGHTLY_SECONDS").max(10));
    let mut next = setting("NIGHTLY_NEXT");
    let rounds: Vec<(Backend, Size)> = schedules()
        .into_iter()
        .flat_map(|backend| Size::ALL.map(|size| (backend, size)))
        .collect();
    let mut tally = Tally::default();
    while Instant::now() < end {
        let round = (next / CASES) as usize % rounds.len();
        let (backend, size) = rounds[round];
        next = match strike_limbs(backend, size, (next % CASES, 1), end, &mut tally) {
            Some(case) => round as u64 * CASES + case,
            None => (round as u64 + 1) * CASES,
        };
    }
    let Tally {
        cases,
        refused,
        wrong,
    } = tally;
    // The line before has the test's name.
    println!();
    wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    println!(
        "nightly: cases {cases} findings {} next {next} note {refused} requests were refused",
        wrong.len()
    );
    assert_eq!(wrong.len(), 0);
}

/// A fault in a pair stays there: if the pair of a failed request is kept, the next request fails
/// too.
#[test]
fn a_fault_in_a_blinding_pair_spoils_its_later_uses() {
    let keys = keys(Size::Rsa1024);
    let mut scratch = Scratch::new();
    for backend in schedules() {
        for point in [Point::Blind, Point::Unblind] {
            let mut batch = Batch::new(&keys, 3, &mut Random(5));
            arm(Fault {
                point,
                request: 1,
                half: 0,
                limb: 4,
                bit: 9,
            });
            let struck = batch.compute(backend, &mut scratch);
            disarm();
            let later = batch.compute(backend, &mut scratch);
            for (when, answers) in [("with the fault", struck), ("later", later)] {
                let place = format!("{backend:?} {point:?}, {when}");
                assert_eq!(
                    answers[1].as_ref().err(),
                    Some(&JobError::CheckFailed),
                    "{place}"
                );
                for spared in [0, 2] {
                    batch.assert_right(spared, &answers[spared], &place);
                }
            }
        }
    }
}
