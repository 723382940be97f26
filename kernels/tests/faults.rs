//! No fault in a lane ever yields a result that leaves, and none touches a neighbour.
//!
//! `cargo test -p lockstep-kernels --features fault-injection --test faults`

#![cfg(feature = "fault-injection")]

mod common;

use common::{Random, TestKey, keys};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::fault::{Fault, Point, arm, disarm, mxcsr_of_last_chunk, strikes};
use lockstep_kernels::rsa::{
    Blinding, JobError, PrivateJob, Scratch, Signature, Size, Verified, private_batch,
};
use num_bigint::BigUint;

type Answer = Result<Verified<Signature>, JobError>;

/// Bits of a word of an exponent.
const EXPONENT_WORD: usize = 60;

/// Strikes every point in every request of batches of `fill`, at the lowest limb, at the top one, and between.
fn strike(backend: Backend, size: Size, fill: usize) {
    let mut keys = keys(size);
    // An exponent as long as the modulus makes the check, and the oracle, take most of the time.
    keys.retain(|key| size == Size::Rsa1024 || key.e.bits() <= 64);
    let mut scratch = Scratch::new();
    let mut random = Random(fill as u64 + 7);
    for point in Point::ALL {
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
            let answers = batch.run(backend, &mut scratch);
            assert_ne!(
                strikes(),
                0,
                "{backend:?} {fault:?} in {fill} did not strike"
            );
            disarm();
            for (i, answer) in answers.into_iter().enumerate() {
                // The next lane may be idle, or the first of the same pass; then the swap shows in one result
                // only.
                let swapped_with_it = point == Point::LaneOrder && answer.is_err();
                assert!(!swapped_with_it || i == request || i == next_lane(backend, request, fill));
                let place = format!("{backend:?} {fault:?} in {fill}: request {i}");
                let seen = (i == request)
                    .then(|| is_seen(fault, batch.keys[i]))
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

/// Whether a fault in a request with this key reaches its result; none if that depends on where powers lie in a
/// table.
fn is_seen(fault: Fault, key: &TestKey) -> Option<bool> {
    let half = key.prepared.size().bits() / 2;
    match fault.point {
        // No digit has the upper bits of the top word.
        Point::Exponent => {
            let word = fault.limb.min(half.div_ceil(EXPONENT_WORD) - 1);
            Some(EXPONENT_WORD * word + fault.bit as usize % EXPONENT_WORD < half)
        }
        // A short exponent has not all digits, and so not all powers are chosen.
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
        let input = |key: &&TestKey| key.bytes(&random.below(&key.n));
        Batch {
            inputs: keys.iter().map(input).collect(),
            pairs: keys.iter().map(|key| key.blinding(random)).collect(),
            keys,
        }
    }

    fn run(&mut self, backend: Backend, scratch: &mut Scratch) -> Vec<Answer> {
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

    /// That request `i` got the one number below n whose power is its input.
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

/// The request in the lane after that of `request`, counted as `private_batch` fills its lanes; none of
/// the batch if that lane is idle.
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
    // A fault is of the thread that arms it.
    std::thread::scope(|scope| {
        for backend in Backend::available() {
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

/// Audit row 16: the time of some instructions may depend on operands unless all flags are set.
#[test]
fn batches_run_with_all_flags_of_the_control_register_set() {
    let keys = keys(Size::Rsa1024);
    let mut scratch = Scratch::new();
    for backend in Backend::available() {
        for fill in [1, 8] {
            let mut batch = Batch::new(&keys, fill, &mut Random(9));
            batch.run(backend, &mut scratch);
            assert_eq!(mxcsr_of_last_chunk(), 0x1fbf, "{backend:?}");
        }
    }
}

/// A fault in a pair stays there: who keeps the pair of a request that failed has the next one fail.
#[test]
fn a_fault_in_a_blinding_pair_spoils_its_later_uses() {
    let keys = keys(Size::Rsa1024);
    let mut scratch = Scratch::new();
    for backend in Backend::available() {
        for point in [Point::Hide, Point::Reveal] {
            let mut batch = Batch::new(&keys, 3, &mut Random(5));
            arm(Fault {
                point,
                request: 1,
                half: 0,
                limb: 4,
                bit: 9,
            });
            let struck = batch.run(backend, &mut scratch);
            disarm();
            let later = batch.run(backend, &mut scratch);
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
