//! The parts of a private operation one by one, to measure the cost of each.
//!
//! They are the very functions that [`private_batch`](super::private_batch) calls. Their results do
//! not leave this file.

use super::{Claim, Scratch, Wide, half_passes, verify};
use crate::arena::Memory;
use crate::backend::{Backend, Kind};
use crate::layout::bytes_from_lane;
use crate::modexp::{Power, WINDOW};
use crate::montgomery::{Modulus, multiply, square};
use crate::rsa::job::PrivateJob;
#[cfg(vectors)]
use crate::rsa::race;
#[cfg(vectors)]
use crate::rsa::size::for_schedule;
use crate::rsa::size::{Size, for_size};
use crate::schedule::Schedule;
use crate::simd::Simd;
pub use crate::simd::counting::MicroOperations;
use crate::simd::counting::{self, Counting};

/// A part of a private operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// From bytes and keys to limbs in lanes, and back to bytes.
    Convert,
    /// Blinding of the input, unblinding and full reduction of the result, and squaring of both
    /// parts of the pairs.
    Blind,
    /// An almost-Montgomery multiplication modulo p and q.
    Multiply,
    /// An almost-Montgomery squaring modulo p and q.
    Square,
    /// All exponentiations modulo p and q, with the conversions to and from Montgomery form. Most
    /// of it is [`Multiply`](Step::Multiply) and [`Square`](Step::Square).
    Exponentiate,
    /// Recombination of the halves.
    Recombine,
    /// Comparison of s^e with the input.
    Check,
}

impl Step {
    /// All steps, in the order of their first use.
    pub const ALL: [Step; 7] = [
        Step::Convert,
        Step::Blind,
        Step::Multiply,
        Step::Square,
        Step::Exponentiate,
        Step::Recombine,
        Step::Check,
    ];

    /// Returns the step's name.
    pub fn name(self) -> &'static str {
        match self {
            Step::Convert => "convert",
            Step::Blind => "blind",
            Step::Multiply => "multiply",
            Step::Square => "square",
            Step::Exponentiate => "exponentiate",
            Step::Recombine => "recombine",
            Step::Check => "check",
        }
    }

    /// Returns the step that contains this one.
    pub fn part_of(self) -> Option<Step> {
        match self {
            Step::Multiply | Step::Square => Some(Step::Exponentiate),
            _ => None,
        }
    }

    /// Returns the number of times that the step runs for as many requests as there are lanes: two
    /// passes, as each request takes two lanes.
    pub fn calls(self, size: Size) -> usize {
        let digits = (size.bits() / 2).div_ceil(WINDOW);
        // All powers in the table except the first.
        let table = (1 << WINDOW) - 1;
        match self {
            Step::Convert | Step::Blind | Step::Exponentiate | Step::Recombine => 1,
            Step::Check => 2,
            // Three more convert to and from Montgomery form.
            Step::Multiply => 2 * (digits - 1 + table + 3),
            Step::Square => 2 * (digits - 1) * WINDOW,
        }
    }
}

/// Prepares `step` for these jobs and passes `watch` a function that runs it, any number of times.
///
/// # Panics
///
/// If there are not as many jobs as `backend` has lanes, or jobs of different sizes; or if RSA does
/// not run on lanes of this backend.
pub fn measure(
    backend: Backend,
    scratch: &mut Scratch,
    jobs: &mut [PrivateJob<'_>],
    step: Step,
    watch: &mut dyn FnMut(&mut dyn FnMut()),
) {
    assert!(jobs.len() == backend.lanes(), "a request for each lane");
    let size = jobs[0].key.size();
    assert!(jobs.iter().all(|job| job.key.size() == size), "one size");
    let memory = &mut scratch.memory;
    let only = Schedule::default();
    match backend.kind(jobs.len()) {
        #[cfg(vectors)]
        Kind::Avx512Ifma { wide, schedule, .. } | Kind::Avx512Ifma512 { wide, schedule, .. } => {
            let schedule = schedule.unwrap_or_else(|| race::fastest(wide, size, memory));
            for_schedule!(
                schedule,
                wide,
                size,
                on_lanes::<_>(wide, schedule, memory, jobs, step, watch)
            )
        }
        #[cfg(vectors)]
        Kind::Avx512Ifma256 { narrow: s, .. } => {
            for_size!(size, on_lanes::<_>(s, only, memory, jobs, step, watch))
        }
        #[cfg(vectors)]
        Kind::Avx2(_) => panic!("RSA runs on words"),
        Kind::Portable(s) => for_size!(size, on_lanes::<_>(s, only, memory, jobs, step, watch)),
    }
    scratch.memory.wipe(usize::MAX);
}

/// Counts the operations of a core's vector units in one call of `step` for eight lanes, with as
/// many jobs of one size as there are lanes.
///
/// # Panics
///
/// As [`measure`] on a backend of eight lanes.
pub fn count(scratch: &mut Scratch, jobs: &mut [PrivateJob<'_>], step: Step) -> MicroOperations {
    assert!(jobs.len() == Counting::LANES, "a request for each lane");
    let size = jobs[0].key.size();
    assert!(jobs.iter().all(|job| job.key.size() == size), "one size");
    let memory = &mut scratch.memory;
    let mut counts = MicroOperations::default();
    let watch: &mut dyn FnMut(&mut dyn FnMut()) = &mut |work| {
        counting::take();
        work();
        counts = counting::take();
    };
    for_size!(
        size,
        on_lanes::<_>(Counting, Schedule::default(), memory, jobs, step, watch)
    );
    scratch.memory.wipe(usize::MAX);
    counts
}

fn on_lanes<W: Simd, const N: usize, const M: usize>(
    w: W,
    schedule: Schedule,
    memory: &mut Memory,
    jobs: &mut [PrivateJob<'_>],
    step: Step,
    watch: &mut dyn FnMut(&mut dyn FnMut()),
) {
    let size = jobs[0].key.size();
    let mut output = vec![0; size.bytes()];
    let mut arena = memory.arena();
    let mut wide = Wide::<W, N, M>::new(&mut arena);
    wide.load(jobs);
    wide.blind(w, jobs);
    match step {
        Step::Convert => watch(&mut || {
            wide.load(jobs);
            for lane in 0..W::LANES {
                bytes_from_lane::<W>(&mut output, wide.x, lane);
            }
        }),
        Step::Blind => watch(&mut || {
            wide.blind(w, jobs);
            wide.unblind(w, jobs);
        }),
        Step::Exponentiate => watch(&mut || {
            let mut first = 0;
            while first < jobs.len() {
                let arena = arena.rest();
                first +=
                    half_passes::<W, W, N, M>(w, schedule, size, arena, &mut wide, jobs, first);
            }
        }),
        Step::Recombine => watch(&mut || wide.recombine(w)),
        Step::Check => {
            let claim = |job| claim_of(job, &output);
            let mut claims: Vec<_> = jobs[..W::LANES / 2].iter().map(claim).collect();
            watch(&mut || verify::check::<W, N, M>(w, arena.rest(), &mut claims));
        }
        Step::Multiply | Step::Square => {
            let mut power = Power::<W, N>::new(&mut arena, 0, size.exponent_words());
            for lane in 0..W::LANES {
                let key = jobs[lane / 2].key;
                power.load(lane, key.half(lane % 2));
            }
            let Power {
                n,
                k0,
                one,
                power,
                spare,
                doubled,
                ..
            } = power;
            power.copy_from_slice(one);
            let n = Modulus::new(n, k0);
            match step {
                Step::Multiply => watch(&mut || multiply(w, spare, power, one, n)),
                _ => watch(&mut || square(w, spare, doubled, power, n)),
            }
        }
    }
}

/// Returns a claim, which may be wrong.
fn claim_of<'a>(job: &PrivateJob<'a>, output: &[u8]) -> Claim<'a> {
    Claim::new(job.key, job.check_input, output.to_vec())
}
