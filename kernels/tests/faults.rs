//! No fault in a lane ever yields a result that leaves, and none touches a neighbour.
//!
//! `cargo test -p lockstep-kernels --features fault-injection --test faults`

#![cfg(feature = "fault-injection")]

mod common;

use common::{Random, keys};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::fault::{Fault, Point, arm, disarm};
use lockstep_kernels::rsa::{JobError, PrivateJob, Scratch, Size, private_batch};

/// Strikes every point in every request of batches of `fill`, at several limbs and bits.
fn strike(backend: Backend, size: Size, fill: usize) {
    let keys = keys(size);
    let mut scratch = Scratch::new();
    let mut random = Random(fill as u64 + 7);
    let points = [
        Point::Accumulator,
        Point::Modulus,
        Point::Exponent,
        Point::Input,
        Point::Recombined,
        Point::LaneOrder,
    ];
    for point in points {
        for request in 0..fill {
            // An idle lane repeats the last request: a swap with it changes nothing.
            if point == Point::LaneOrder && next_lane(backend, request, fill) >= fill {
                continue;
            }
            let fault = Fault {
                point,
                request,
                half: random.word() as usize % 2,
                // The top words of an exponent may hold no bits that are used.
                limb: random.word() as usize % (size.bits() / 2 / 60),
                bit: random.word() as u32 % 52,
            };
            let inputs: Vec<_> = (0..fill)
                .map(|i| keys[i % keys.len()].bytes(&random.below(&keys[i % keys.len()].n)))
                .collect();
            let mut pairs: Vec<_> = (0..fill)
                .map(|i| keys[i % keys.len()].blinding(&mut random))
                .collect();
            let mut jobs: Vec<_> = pairs
                .iter_mut()
                .enumerate()
                .map(|(i, blinding)| PrivateJob {
                    key: &keys[i % keys.len()].prepared,
                    input: &inputs[i],
                    check_input: &inputs[i],
                    blinding,
                    result: None,
                })
                .collect();
            arm(fault);
            private_batch(backend, &mut scratch, &mut jobs);
            disarm();
            for (i, job) in jobs.into_iter().enumerate() {
                let result = job.result.expect("set");
                // The next lane may be idle, or the first of the same pass; then the swap shows in one result
                // only.
                let swapped_with_it = point == Point::LaneOrder && result.is_err();
                assert!(!swapped_with_it || i == request || i == next_lane(backend, request, fill));
                if i == request || swapped_with_it {
                    assert_eq!(
                        result.err(),
                        Some(JobError::CheckFailed),
                        "{backend:?} {fault:?} in {fill}"
                    );
                } else {
                    let expected = keys[i % keys.len()].private(&inputs[i]);
                    assert_eq!(
                        result.expect("untouched").as_bytes(),
                        expected,
                        "{fault:?} in {fill}"
                    );
                }
            }
        }
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
    for backend in Backend::available() {
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
}
