//! RSA batches on every backend against num-bigint.

mod common;

use common::{Random, TestKey, below, keys, schedules};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::{JobError, PrivateJob, Schedule, Scratch, Size, private_batch};
use num_bigint::BigUint;

/// Runs inputs under their keys as one batch.
fn results_of(
    backend: Backend,
    scratch: &mut Scratch,
    random: &mut Random,
    requests: &[(&TestKey, Vec<u8>, Vec<u8>)],
) -> Vec<Result<Vec<u8>, JobError>> {
    let mut pairs: Vec<_> = requests
        .iter()
        .map(|(key, ..)| key.blinding(random))
        .collect();
    let mut jobs: Vec<_> = requests
        .iter()
        .zip(&mut pairs)
        .map(|((key, input, check_input), blinding)| PrivateJob {
            key: &key.prepared,
            input,
            check_input,
            blinding,
            result: None,
        })
        .collect();
    private_batch(backend, scratch, &mut jobs);
    jobs.into_iter()
        .map(|job| job.result.expect("set").map(|s| s.into_bytes()))
        .collect()
}

/// Runs inputs as one batch, and compares each result with num-bigint's.
fn assert_right(
    backend: Backend,
    scratch: &mut Scratch,
    random: &mut Random,
    requests: &[(&TestKey, Vec<u8>, Vec<u8>)],
) {
    let results = results_of(backend, scratch, random, requests);
    for ((key, input, _), result) in requests.iter().zip(results) {
        let (fill, name) = (requests.len(), &key.name);
        assert_eq!(result, Ok(key.private(input)), "{backend:?} {fill} {name}");
    }
}

/// Returns the sizes to test on these lanes: the portable ones are slow.
fn sizes(backend: Backend) -> &'static [Size] {
    match backend == Backend::PORTABLE {
        true => &Size::ALL[..1],
        false => &Size::ALL,
    }
}

#[test]
fn every_fill_with_mixed_keys() {
    let mut scratch = Scratch::new();
    let mut random = Random(1);
    for backend in schedules() {
        for size in Size::ALL {
            let keys = keys(size);
            for fill in 1..=8 {
                if backend == Backend::PORTABLE && size > Size::Rsa2048 && fill != 3 {
                    continue;
                }
                let requests: Vec<_> = (0..fill)
                    .map(|i| {
                        let key = &keys[(i + fill) % keys.len()];
                        let input = key.bytes(&below(&mut random, &key.n));
                        (key, input.clone(), input)
                    })
                    .collect();
                assert_right(backend, &mut scratch, &mut random, &requests);
            }
        }
    }
}

#[test]
fn edge_inputs_in_every_lane() {
    let mut scratch = Scratch::new();
    let mut random = Random(2);
    for backend in schedules() {
        for &size in sizes(backend) {
            let keys = keys(size);
            for (turn, key) in keys.iter().enumerate() {
                let [p, q] = [2, 3].map(|i| BigUint::from_bytes_be(&key.parts[i]));
                let one = BigUint::from(1u8);
                // s with many leading zero bytes, from its own e-th power.
                let short = BigUint::from(0x1234_5678u32).modpow(&key.e, &key.n);
                let edges = [
                    BigUint::ZERO,
                    one.clone(),
                    &key.n - &one,
                    p.clone(),
                    &q * 3u8,
                    &key.n - &p,
                    short,
                    (BigUint::from(1u8) << (size.bits() - 1)) - &one,
                ];
                let mut requests: Vec<_> = edges
                    .iter()
                    .map(|edge| (key, key.bytes(edge), key.bytes(edge)))
                    .collect();
                requests.rotate_left(turn % 8);
                assert_right(backend, &mut scratch, &mut random, &requests);
            }
        }
    }
}

#[test]
fn bad_requests_leave_their_neighbours_alone() {
    let mut scratch = Scratch::new();
    let mut random = Random(3);
    for backend in schedules() {
        for &size in sizes(backend) {
            let keys = keys(size);
            for bad in 0..8 {
                let mut requests: Vec<_> = (0..8)
                    .map(|i| {
                        let key = &keys[i % keys.len()];
                        let input = key.bytes(&below(&mut random, &key.n));
                        (key, input.clone(), input)
                    })
                    .collect();
                let (key, input, check_input) = &mut requests[bad];
                let expected = match bad % 4 {
                    0 => {
                        *input = key.bytes(&key.n);
                        JobError::InputTooLarge
                    }
                    1 => {
                        input.pop();
                        JobError::InputLength
                    }
                    2 => {
                        check_input[size.bytes() / 2] ^= 4;
                        JobError::CheckFailed
                    }
                    _ => {
                        *input = vec![0xff; size.bytes()];
                        JobError::InputTooLarge
                    }
                };
                let results = results_of(backend, &mut scratch, &mut random, &requests);
                for (i, ((key, input, _), result)) in requests.iter().zip(results).enumerate() {
                    if i == bad {
                        assert_eq!(result, Err(expected), "{backend:?} {size:?}");
                    } else {
                        assert_eq!(result, Ok(key.private(input)), "{backend:?} {size:?} {i}");
                    }
                }
            }
        }
    }
}

#[test]
fn blinding_changes_with_every_use_and_keeps_working() {
    let mut scratch = Scratch::new();
    let mut random = Random(4);
    let keys = keys(Size::Rsa1024);
    let key = &keys[0];
    let mut blinding = key.blinding(&mut random);
    let backend = Backend::available()[0];
    let mut uses = 0;
    while !blinding.needs_refresh() {
        let input = key.bytes(&below(&mut random, &key.n));
        let mut jobs = [PrivateJob {
            key: &key.prepared,
            input: &input,
            check_input: &input,
            blinding: &mut blinding,
            result: None,
        }];
        private_batch(backend, &mut scratch, &mut jobs);
        let result = jobs[0].result.take().expect("set").expect("verified");
        assert_eq!(result.as_bytes(), key.private(&input));
        uses += 1;
        assert_eq!(blinding.uses(), uses);
    }
    assert_eq!(uses, lockstep_kernels::rsa::Blinding::MAX_USES);
}

#[test]
fn threads_that_race_at_once_choose_one_schedule() {
    let size = Size::Rsa2048;
    let keys = keys(size);
    let run = |seed| {
        let mut random = Random(seed);
        let requests: Vec<_> = (0..8)
            .map(|i| {
                let key = &keys[i % keys.len()];
                let input = key.bytes(&below(&mut random, &key.n));
                (key, input.clone(), input)
            })
            .collect();
        // The backend is not pinned to a schedule.
        let backend = Backend::available()[0];
        assert_right(backend, &mut Scratch::new(), &mut random, &requests);
        Schedule::chosen(size)
    };
    let chosen = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (5..9).map(|seed| scope.spawn(move || run(seed))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let races = Backend::available()[0].each_schedule().len() > 1;
    for schedule in chosen {
        assert_eq!(schedule, Schedule::chosen(size), "it stays");
        assert_eq!(schedule.is_some(), races);
        assert!(schedule.is_none_or(|one| Schedule::of(size).contains(&one)));
    }
}

#[test]
fn hardware_is_tested_or_said_to_be_missing() {
    for (name, instructions) in [("avx512ifma", "AVX-512 IFMA"), ("avx2", "AVX2")] {
        if Backend::from_name(name).is_none() {
            eprintln!("skipped: this CPU has no {instructions}, the {name} backend was not tested");
        }
    }
}
