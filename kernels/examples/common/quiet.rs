//! Quiet cycles: what an undisturbed core takes.

use std::time::Instant;

use lockstep_kernels::gauge;

/// Slices of which a figure is made, and the longest time to look for them.
const SLICES: usize = 60;
const SECONDS: f64 = 3.0;
const SLICE_SECONDS: f64 = 0.002;

/// The clock while the lanes' units are busy, in hertz.
pub fn clock() -> f64 {
    const ROUNDS: u64 = 1_000;
    // The first look is for the clock to follow.
    gauge::dependent_multiplies_beside_lanes(ROUNDS);
    let start = Instant::now();
    let cycles = gauge::dependent_multiplies_beside_lanes(ROUNDS)
        .unwrap_or_else(|| gauge::dependent_multiplies(ROUNDS));
    cycles as f64 / start.elapsed().as_secs_f64()
}

/// The clock, and additions a cycle, which are few when the core is shared.
fn gauges() -> (f64, f64) {
    let clock = clock();
    let start = Instant::now();
    let adds = gauge::independent_adds(5_000);
    (clock, adds as f64 / start.elapsed().as_secs_f64() / clock)
}

/// Cycles for one call of `run`: the tenth percentile of slices of two milliseconds before and
/// after which the clock is the same and the core not shared.
pub fn cycles(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    run();
    let rounds = (SLICE_SECONDS / start.elapsed().as_secs_f64()).ceil() as usize;
    let (mut slices, begin) = (Vec::new(), Instant::now());
    loop {
        let before = gauges();
        let start = Instant::now();
        (0..rounds).for_each(|_| run());
        let seconds = start.elapsed().as_secs_f64();
        let after = gauges();
        if (before.0 / after.0 - 1.0).abs() < 0.02 {
            let cycles = seconds * (before.0 + after.0) / 2.0 / rounds as f64;
            slices.push((cycles, before.1.min(after.1)));
        }
        // Alone on its core it makes the most additions; which number that is depends on the core.
        slices.sort_by(|a, b| b.1.total_cmp(&a.1));
        let alone = match slices.get(slices.len() / 10) {
            Some(most) => slices.partition_point(|slice| slice.1 > 0.9 * most.1),
            None => 0,
        };
        if alone >= SLICES || begin.elapsed().as_secs_f64() > SECONDS {
            slices.truncate(alone);
            slices.sort_by(|a, b| a.0.total_cmp(&b.0));
            return slices.get(alone / 10).map_or(f64::NAN, |slice| slice.0);
        }
    }
}
