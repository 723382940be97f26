//! `lockstep-bench speed --cycles`: where the cycles of a private operation go, function by
//! function.

use std::process::ExitCode;
use std::time::Duration;

use lockstep_common::{Failure, Outcome, out, outln};
use lockstep_engine::{Backend, Size};
use lockstep_kernels::rsa::bench::{self, MicroOperations, Step};
use lockstep_kernels::rsa::{Blinding, PrivateJob, PrivateKey, Scratch, private_batch};

use crate::format::cycles;
use crate::measure::{Figure, Quiet, watch};
use crate::progress::Progress;
use crate::stock;
use crate::table::Table;

use super::report::Machine;

/// The lanes for which micro-operations are counted.
const COUNTED_LANES: usize = 8;

/// Measures the functions of RSA at each of these sizes, and prints them.
pub fn print(backend: Backend, machine: &Machine, sizes: &[Size], time: Duration) -> Outcome {
    if backend.computes_rsa_on_words() {
        return Err(Failure::new(
            "RSA does not run on lanes here, so there are no functions to measure",
        )
        .remedy("use a machine with AVX-512 IFMA, or set LOCKSTEP_BACKEND=portable"));
    }
    outln!("{}", machine.to_line());
    for &size in sizes {
        let op = format!("rsa{}", size.bits());
        let mut progress = Progress::new(&op);
        progress.show("function by function");
        let profile = Profile::measure(backend, size, time)?;
        progress.finish();
        out!("\n{}", profile.to_table(backend));
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions of one key size. Each call works for all lanes; so calls and cycles are for as
/// many requests as there are lanes.
struct Profile {
    size: Size,
    requests: usize,
    functions: Vec<(Step, Figure, MicroOperations)>,
    /// The whole operation, as it runs.
    whole: Figure,
}

impl Profile {
    /// Measures every function for about as long as `time`.
    fn measure(backend: Backend, size: Size, time: Duration) -> Result<Profile, Failure> {
        let material = Material::new(size)?;
        let requests = backend.lanes();
        let mut scratch = Scratch::new();
        let mut blindings = vec![material.blinding.clone(); requests];
        let mut jobs: Vec<PrivateJob<'_>> = blindings
            .iter_mut()
            .map(|blinding| PrivateJob {
                key: &material.key,
                input: &material.input,
                check_input: &material.input,
                blinding,
                result: None,
            })
            .collect();
        let quiet = Quiet::calibrate();
        let whole = watch(quiet, time, 1, &mut || {
            private_batch(backend, &mut scratch, &mut jobs)
        });
        if let Some(bad) = jobs.iter().find(|job| !matches!(job.result, Some(Ok(_)))) {
            return Err(Failure::new(format!(
                "the lanes signed wrongly: {:?}",
                bad.result
            )));
        }
        let functions = Step::ALL
            .into_iter()
            .map(|step| {
                let at_once = if step.part_of().is_some() { 16 } else { 1 };
                let mut figure = None;
                bench::measure(backend, &mut scratch, &mut jobs, step, &mut |work| {
                    figure = Some(watch(quiet, time, at_once, work));
                });
                // One more squaring of the pairs by counting lanes than by the measured lanes: the
                // pairs stay pairs.
                let counts = if backend != Backend::PORTABLE && requests == COUNTED_LANES {
                    bench::count(&mut scratch, &mut jobs, step)
                } else {
                    MicroOperations::default()
                };
                (step, figure.unwrap_or_else(|| Figure::of(&[])), counts)
            })
            .collect();
        Ok(Profile {
            size,
            requests,
            functions,
            whole,
        })
    }

    /// Cycles of all calls of a function.
    fn cycles_of(&self, step: Step, figure: &Figure) -> f64 {
        step.calls(self.size) as f64 * figure.cycles_per_op
    }

    /// Cycles of all functions that are no part of another.
    fn total(&self) -> f64 {
        let whole_ones = self
            .functions
            .iter()
            .filter(|(step, _, _)| step.part_of().is_none());
        whole_ones
            .map(|(step, figure, _)| self.cycles_of(*step, figure))
            .sum()
    }

    /// For reading, like Table 1 of Costigan and Scott (SPEED 2007). The limit is the time that two
    /// vector ports need for the micro-operations of the code as written, where these are counted.
    fn to_table(&self, backend: Backend) -> String {
        let (requests, total) = (self.requests, self.total());
        let heads =
            "function | calls | cycles a call | limit | cycles in all | share | quiet slices";
        let mut table = Table::new(1, heads);
        for (step, figure, counts) in &self.functions {
            let indent = if step.part_of().is_some() { "  " } else { "" };
            let in_all = self.cycles_of(*step, figure);
            let limit = (counts.total() > 0).then(|| cycles(counts.cycles()));
            table.add([
                format!("{indent}{}", step.name()),
                step.calls(self.size).to_string(),
                cycles(figure.cycles_per_op),
                limit.unwrap_or_default(),
                cycles(in_all),
                format!("{:.1} %", 100.0 * in_all / total),
                figure.slices(),
            ]);
        }
        for (name, all) in [("sum", total), ("as it runs", self.whole.cycles_per_op)] {
            let [none, each] = [String::new(), cycles(all / requests as f64)];
            let each = format!("{each} a request");
            let none = || none.clone();
            table.add([
                name.to_owned(),
                none(),
                none(),
                none(),
                cycles(all),
                none(),
                each,
            ]);
        }
        let (bits, backend) = (self.size.bits(), backend.name());
        format!("RSA-{bits}, {requests} requests on {requests} lanes ({backend})\n\n{table}")
    }
}

/// The inputs of the functions.
struct Material {
    key: PrivateKey,
    blinding: Blinding,
    input: Vec<u8>,
}

impl Material {
    fn new(size: Size) -> Result<Material, Failure> {
        let stock = stock::Key::generate(size.bits() as u32)?;
        let key = stock
            .with_components(PrivateKey::new)
            .map_err(|error| Failure::new(format!("the lanes cannot use the key: {error}")))?;
        let random = stock::random(Blinding::random_bytes(size))?;
        let blinding = Blinding::new(key.public(), &random)
            .ok_or_else(|| Failure::new("the random number is not invertible; try again"))?;
        Ok(Material {
            key,
            blinding,
            input: stock.padded_message(),
        })
    }
}
