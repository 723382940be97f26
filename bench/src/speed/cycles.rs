//! `lockstep-bench speed --cycles`: where the cycles of a private operation go, function by
//! function.

use std::fmt::Write as _;
use std::time::Duration;

use lockstep_common::Failure;
use lockstep_engine::{Backend, Size};
use lockstep_kernels::rsa::bench::{self, MicroOperations, Step};
use lockstep_kernels::rsa::{Blinding, PrivateJob, PrivateKey, Scratch, private_batch};
use serde::Serialize;

use super::limit::{self, Rates};
use super::report::Machine;
use crate::format::cycles;
use crate::json::Decimal;
use crate::measure::{Figure, Quiet, watch};
use crate::stock;

/// The lanes for which micro-operations are counted.
const COUNTED_LANES: usize = 8;

/// The functions of one key size. Each call works for all lanes; so calls and cycles are for as
/// many requests as there are lanes.
pub struct Profile {
    size: Size,
    requests: usize,
    functions: Vec<(Step, Figure, MicroOperations)>,
    /// The whole operation, as it runs.
    whole: Figure,
}

impl Profile {
    /// Measures every function for about as long as `time`.
    pub fn measure(backend: Backend, size: Size, time: Duration) -> Result<Profile, Failure> {
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
                // One more squaring of the pairs by counting lanes than by the ones that are
                // measured: the pairs stay pairs.
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

    /// For reading, like Table 1 of Costigan and Scott (SPEED 2007).
    pub fn to_table(&self, backend: Backend, rates: &Rates) -> String {
        let mut out = String::new();
        let (requests, total) = (self.requests, self.total());
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "RSA-{}, {requests} requests on {requests} lanes ({})\n\n\
             {:<16} {:>7} {:>14} {:>14} {:>14} {:>7} {:>13}",
            self.size.bits(),
            backend.name(),
            "function",
            "calls",
            "cycles a call",
            "multiply limit",
            "cycles in all",
            "share",
            "quiet slices"
        );
        for (step, figure, _) in &self.functions {
            let indent = if step.part_of().is_some() { "  " } else { "" };
            let in_all = self.cycles_of(*step, figure);
            let limit = limit::of_function(*step, self.size, requests, rates);
            let _ = writeln!(
                out,
                "{:<16} {:>7} {:>14} {:>14} {:>14} {:>7} {:>13}",
                format!("{indent}{}", step.name()),
                step.calls(self.size),
                cycles(figure.cycles_per_op),
                limit.map_or(String::new(), cycles),
                cycles(in_all),
                format!("{:.1} %", 100.0 * in_all / total),
                format!("{}/{}", figure.kept, figure.slices),
            );
        }
        let mut sum = |name, all: f64| {
            let each = cycles(all / requests as f64);
            let _ = writeln!(
                out,
                "{name:<16} {:>52} {:>7}   {each} a request",
                cycles(all),
                ""
            );
        };
        sum("sum", total);
        sum("as it runs", self.whole.cycles_per_op);
        out
    }

    /// The model of the code as written: vector micro-operations of one call by port, the cycles
    /// that two ports need for them, and how near the measured cycles come. `None` for lanes that
    /// are not counted.
    pub fn ports(&self) -> Option<String> {
        if self
            .functions
            .iter()
            .all(|(_, _, counts)| counts.total() == 0)
        {
            return None;
        }
        let mut out = format!(
            "RSA-{}, vector micro-operations of one call, as written for {COUNTED_LANES} lanes\n\n\
             {:<16} {:>12} {:>12} {:>10} {:>10} {:>12} {:>12} {:>8}\n",
            self.size.bits(),
            "function",
            "multiplies",
            "others p05",
            "p0 only",
            "p5 only",
            "limit",
            "measured",
            ""
        );
        for (step, figure, counts) in &self.functions {
            if counts.total() == 0 {
                continue;
            }
            let indent = if step.part_of().is_some() { "  " } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "{:<16} {:>12} {:>12} {:>10} {:>10} {:>12} {:>12} {:>8}",
                format!("{indent}{}", step.name()),
                counts.multiplies,
                counts.others,
                counts.shifts,
                counts.masks,
                cycles(counts.cycles()),
                cycles(figure.cycles_per_op),
                format!("{:.0} %", 100.0 * counts.cycles() / figure.cycles_per_op),
            );
        }
        Some(out)
    }

    fn document(&self) -> ProfileDocument {
        let total = self.total();
        let functions = self.functions.iter().map(|(step, figure, counts)| {
            let in_all = self.cycles_of(*step, figure);
            FunctionDocument {
                function: step.name(),
                part_of: step.part_of().map(Step::name),
                calls: step.calls(self.size) as u64,
                cycles_per_call: Decimal(figure.cycles_per_op),
                limit_cycles_per_call: (counts.total() > 0).then(|| Decimal(counts.cycles())),
                cycles_per_op: Decimal(in_all / self.requests as f64),
                share: Decimal(in_all / total),
                slices_kept: figure.kept,
                slices: figure.slices,
            }
        });
        ProfileDocument {
            op: format!("rsa{}-sign", self.size.bits()),
            requests: self.requests,
            cycles_per_op: Decimal(self.whole.cycles_per_op / self.requests as f64),
            functions: functions.collect(),
        }
    }
}

/// All profiles of one run.
#[derive(Serialize)]
pub struct Document<'a> {
    machine: &'a Machine,
    profiles: Vec<ProfileDocument>,
}

#[derive(Serialize)]
struct ProfileDocument {
    op: String,
    requests: usize,
    cycles_per_op: Decimal<0>,
    functions: Vec<FunctionDocument>,
}

#[derive(Serialize)]
struct FunctionDocument {
    function: &'static str,
    part_of: Option<&'static str>,
    calls: u64,
    cycles_per_call: Decimal<1>,
    limit_cycles_per_call: Option<Decimal<1>>,
    cycles_per_op: Decimal<1>,
    share: Decimal<4>,
    slices_kept: usize,
    slices: usize,
}

impl Document<'_> {
    pub fn new<'a>(machine: &'a Machine, profiles: &[Profile]) -> Document<'a> {
        Document {
            machine,
            profiles: profiles.iter().map(Profile::document).collect(),
        }
    }
}

/// What the functions work on.
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
