//! Cycles for one RSA private key operation, with blinding and check.

use std::time::{Duration, Instant};

use lockstep_common::{Failure, outln};
use lockstep_kernels::rsa::{Blinding, PrivateJob, PrivateKey, Scratch, Size, private_batch};

use super::bench::{Bench, insist};
use crate::stock;

const FILLS: [usize; 4] = [1, 2, 4, 8];

/// Measures keys of these sizes, or of all.
pub fn run(bench: &Bench, sizes: &[Size]) -> Result<(), Failure> {
    let sizes = match sizes {
        [] => Size::ALL.to_vec(),
        sizes => sizes.to_vec(),
    };
    let mut scratch = Scratch::new();
    bench.head(&format!("RSA on {}", bench.backend.name()), &FILLS);
    for size in sizes {
        let stock = stock::Key::generate(size.bits() as u32)?;
        let prepare = || stock.with_components(PrivateKey::new);
        let key = prepare()
            .map_err(|error| Failure::new(format!("the lanes cannot use the key: {error}")))?;
        let mut pairs = (0..FILLS[FILLS.len() - 1])
            .map(|_| {
                let random = stock::random(Blinding::random_bytes(size))?;
                Blinding::new(key.public(), &random)
                    .ok_or_else(|| Failure::new("the random number is not invertible; try again"))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let input = stock.padded_message();
        let name = format!("{} bits", size.bits());
        bench.row(&name, &FILLS, |fill| {
            let jobs = pairs[..fill].iter_mut().map(|blinding| PrivateJob {
                key: &key,
                input: &input,
                check_input: &input,
                blinding,
                result: None,
            });
            let mut jobs: Vec<PrivateJob<'_>> = jobs.collect();
            let figure = bench.measure(|| private_batch(bench.backend, &mut scratch, &mut jobs));
            let right = jobs.iter().all(|job| matches!(job.result, Some(Ok(_))));
            insist(right, "RSA").map(|()| figure)
        })?;
        let random = stock::random(Blinding::random_bytes(size))?;
        outln!(
            "{:18}{} us for a key, {} us for a new blinding pair",
            "",
            best(|| drop(prepare())).as_micros(),
            best(|| drop(Blinding::new(key.public(), &random))).as_micros()
        );
    }
    Ok(())
}

/// The shortest of twenty calls.
fn best(mut work: impl FnMut()) -> Duration {
    let times = (0..20).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}
