//! Quiet cycles: what an undisturbed core takes.

use std::time::Instant;

use lockstep_kernels::gauge;

/// Seconds of measuring for one figure.
const SECONDS: f64 = 0.4;
const SLICE_SECONDS: f64 = 0.002;

/// Hertz, from a chain of multiplies, and additions a cycle, which are few when the core is shared.
fn gauges() -> (f64, f64) {
    let start = Instant::now();
    let cycles = gauge::dependent_multiplies(1_000);
    let clock = cycles as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let adds = gauge::independent_adds(5_000);
    (clock, adds as f64 / start.elapsed().as_secs_f64() / clock)
}

/// Cycles for one call of `run`: the tenth percentile of slices of two milliseconds before and after
/// which the clock is the same and the core not shared.
pub fn cycles(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    run();
    let rounds = (SLICE_SECONDS / start.elapsed().as_secs_f64()).ceil() as usize;
    let mut slices: Vec<(f64, f64)> = (0..(SECONDS / SLICE_SECONDS) as usize)
        .filter_map(|_| {
            let before = gauges();
            let start = Instant::now();
            (0..rounds).for_each(|_| run());
            let seconds = start.elapsed().as_secs_f64();
            let after = gauges();
            let steady = (before.0 / after.0 - 1.0).abs() < 0.02;
            let cycles = seconds * (before.0 + after.0) / 2.0 / rounds as f64;
            steady.then_some((cycles, before.1.min(after.1)))
        })
        .collect();
    // Alone on its core it makes the most additions; which number that is depends on the core.
    slices.sort_by(|a, b| a.1.total_cmp(&b.1));
    let most = slices
        .get(slices.len() * 9 / 10)
        .map_or(0.0, |slice| slice.1);
    slices.retain(|slice| slice.1 > 0.9 * most);
    slices.sort_by(|a, b| a.0.total_cmp(&b.0));
    slices
        .get(slices.len() / 10)
        .map_or(f64::NAN, |slice| slice.0)
}
