//! Measuring on a core that others use too: short slices of work between gauges.
//!
//! Before and after each slice a chain of dependent multiplies measures the clock, and a run of
//! independent additions shows whether the sibling thread of the core was busy. A slice counts if
//! the core was quiet on both sides and the system gave the thread no less time than passed; the
//! figure is the median of the slices that count. So a neighbour costs slices, not accuracy.
//!
//! A core may clock lower while its 512-bit units are busy. Each slice says which [`Units`] its
//! work keeps busy, and the clock is measured with the same.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::gauge;

/// How long a slice lasts at least.
const SLICE: Duration = Duration::from_millis(4);

/// The additions per cycle of a quiet core, as a share of the most this core has shown. A busy
/// sibling takes more than the other 7 %, which allow for the resolution of the gauge.
const QUIET: f64 = 0.93;

/// The share of the time that the system must have given to the thread.
const GIVEN: f64 = 0.99;

/// The same of several threads, which do not end at one moment.
const GIVEN_TO_SEVERAL: f64 = 0.9;

/// How many quiet slices make a figure.
pub const ENOUGH: usize = 3;

/// The units of the core that some work keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Scalar ones, or vectors too short to change the clock.
    Scalar,
    /// Units of 512 bits, where the CPU has them.
    Lanes,
}

impl Units {
    /// The clock while these units are busy, in cycles per second.
    pub fn clock(self) -> f64 {
        const ROUNDS: u64 = 600;
        /// Looks until the clock has followed, about 100 microseconds.
        const WARM_UP: usize = 12;
        let look = || {
            let (cycles, seconds) = timed(|| match self {
                Units::Scalar => gauge::dependent_multiplies(ROUNDS),
                Units::Lanes => gauge::dependent_multiplies_beside_lanes(ROUNDS)
                    .unwrap_or_else(|| gauge::dependent_multiplies(ROUNDS)),
            });
            cycles / seconds
        };
        if self == Units::Lanes {
            (0..WARM_UP).for_each(|_| _ = look());
        }
        median_of_three(look)
    }
}

/// One look at the core.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Additions per cycle.
    pub adds: f64,
}

impl Reading {
    pub fn take() -> Reading {
        let clock = Units::Scalar.clock();
        let adds = median_of_three(|| {
            let (adds, seconds) = timed(|| gauge::independent_adds(6_000));
            adds / seconds
        });
        Reading { adds: adds / clock }
    }
}

/// One look may be off: an interrupt, a clock that changes.
fn median_of_three(look: impl FnMut() -> f64) -> f64 {
    let mut looks: Vec<f64> = std::iter::repeat_with(look).take(3).collect();
    quantile(&mut looks, 0.5)
}

/// The speed of this core when nobody shares it.
#[derive(Clone, Copy)]
pub struct Quiet {
    adds: f64,
}

impl Quiet {
    /// Looks at the core for a while; the best it shows is taken for quiet.
    pub fn calibrate() -> Quiet {
        let readings = (0..100).map(|_| Reading::take().adds);
        Quiet {
            adds: quantile(&mut readings.collect::<Vec<_>>(), 0.9),
        }
    }

    fn holds(&self, reading: Reading) -> bool {
        reading.adds >= QUIET * self.adds
    }
}

/// The figures of one slice.
#[derive(Clone, Copy)]
pub struct Slice {
    pub ops_per_s: f64,
    pub cycles_per_op: f64,
    pub quiet: bool,
}

/// Does `work`, which returns how many operations it did, for one slice.
pub fn slice(quiet: Quiet, units: Units, mut work: impl FnMut() -> u64) -> Slice {
    gauged(quiet, units, GIVEN, time_given, || {
        let (start, mut operations) = (Instant::now(), 0);
        while start.elapsed() < SLICE {
            operations += work();
        }
        operations
    })
}

/// Does `work` once, which returns how many operations it did on this number of threads of its own.
pub fn call(quiet: Quiet, units: Units, threads: usize, work: impl FnOnce() -> u64) -> Slice {
    let least = match threads {
        1 => GIVEN,
        many => GIVEN_TO_SEVERAL * many as f64,
    };
    gauged(quiet, units, least, || cpu_time().as_secs_f64(), work)
}

/// Does `work` between gauges. It must be given at least this share of its time, as told by
/// `given`.
fn gauged(
    quiet: Quiet,
    units: Units,
    least: f64,
    given: impl Fn() -> f64,
    work: impl FnOnce() -> u64,
) -> Slice {
    let before = Reading::take();
    let clock_before = units.clock();
    let (start, ran_before) = (Instant::now(), given());
    let operations = work();
    let seconds = start.elapsed().as_secs_f64();
    let ran = given() - ran_before;
    let clock = (clock_before + units.clock()) / 2.0;
    let after = Reading::take();
    Slice {
        ops_per_s: operations as f64 / seconds,
        cycles_per_op: seconds * clock / operations as f64,
        quiet: quiet.holds(before) && quiet.holds(after) && ran >= least * seconds,
    }
}

/// The figures of many slices.
#[derive(Clone, Copy)]
pub struct Figure {
    pub ops_per_s: f64,
    pub cycles_per_op: f64,
    /// How many slices counted, and of how many.
    pub kept: usize,
    pub all: usize,
}

impl Figure {
    /// The medians of the quiet slices; where there are too few of these, the best quartiles of
    /// all, as every disturbance makes a slice slower.
    pub fn of(slices: &[Slice]) -> Figure {
        let quiet: Vec<Slice> = slices.iter().copied().filter(|slice| slice.quiet).collect();
        let (counted, best) = match quiet.len() {
            ENOUGH.. => (quiet.as_slice(), 0.5),
            _ => (slices, 0.25),
        };
        let at = |share, value: fn(&Slice) -> f64| {
            quantile(&mut counted.iter().map(value).collect::<Vec<_>>(), share)
        };
        Figure {
            ops_per_s: at(1.0 - best, |slice| slice.ops_per_s),
            cycles_per_op: at(best, |slice| slice.cycles_per_op),
            kept: quiet.len(),
            all: slices.len(),
        }
    }

    /// As in `3/4`.
    pub fn slices(&self) -> String {
        format!("{}/{}", self.kept, self.all)
    }

    /// Whether enough slices were quiet for their median.
    pub fn is_quiet(&self) -> bool {
        self.kept >= ENOUGH
    }
}

/// Cycles of one call of `work`, from slices over about this time.
#[cfg(feature = "cycles")]
pub fn watch(quiet: Quiet, time: Duration, at_once: u64, work: &mut dyn FnMut()) -> Figure {
    const SLICES: usize = 3;
    let start = Instant::now();
    let mut slices: Vec<Slice> = Vec::new();
    while slices.len() < SLICES || start.elapsed() < time {
        slices.push(slice(quiet, Units::Lanes, || {
            (0..at_once).for_each(|_| work());
            at_once
        }));
    }
    Figure::of(&slices)
}

/// Units of work per second, and the seconds they took.
pub fn timed(work: impl FnOnce() -> u64) -> (f64, f64) {
    let start = Instant::now();
    let units = work();
    (units as f64, start.elapsed().as_secs_f64())
}

/// Seconds for which the system has let this thread run.
fn time_given() -> f64 {
    read(ClockId::ThreadCPUTime).as_secs_f64()
}

/// The CPU time that this process has used.
pub fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The value below which this share of the values lies; NaN if there are none.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count => values[((count - 1) as f64 * share).round() as usize],
    }
}

/// Where the median of these values is, if there are any.
pub fn middle(values: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    order.get(order.len() / 2).copied()
}

/// The least and the greatest value; NaN if there are none.
pub fn ends(values: &[f64]) -> [f64; 2] {
    [f64::min, f64::max].map(|end| values.iter().copied().reduce(end).unwrap_or(f64::NAN))
}

/// The CPUs that this process may use; never empty.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect();
    if allowed.is_empty() { vec![0] } else { allowed }
}

/// Keeps the calling thread, and threads that it starts from now on, on these CPUs.
pub fn keep_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    // Where this is not allowed the figures are noisier, and fewer slices count, but they are still
    // figures of this work.
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quiet_slices_count() {
        let slice = |ops_per_s, quiet| Slice {
            ops_per_s,
            cycles_per_op: 1.0 / ops_per_s,
            quiet,
        };
        let slices = [
            slice(1.0, false),
            slice(10.0, true),
            slice(30.0, true),
            slice(20.0, true),
        ];
        let figure = Figure::of(&slices);
        assert_eq!((figure.ops_per_s, figure.kept, figure.all), (20.0, 3, 4));
        assert_eq!(Figure::of(&slices[..1]).ops_per_s, 1.0);
    }

    #[test]
    fn gauges_tell_a_clock_that_can_be() {
        for units in [Units::Scalar, Units::Lanes] {
            let clock = units.clock();
            assert!((1e8..1e10).contains(&clock), "{units:?}: {clock}");
        }
    }
}
