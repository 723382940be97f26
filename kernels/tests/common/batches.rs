//! Helpers of all tests of the curves: backends, and the distribution of cases over lanes.

#![allow(dead_code, reason = "each test uses its part")]

use lockstep_kernels::backend::Backend;

pub use lockstep_testkit::Random;

/// Returns all backends of this CPU; prints a line if only the portable one is there.
pub fn backends() -> Vec<Backend> {
    let backends = Backend::available();
    if backends.len() == 1 {
        println!("skipped: no vector lanes here, only the portable backend is tested");
    }
    backends
}

/// Returns the backends that have kernels of the NIST curves; prints which have none.
pub fn nist_backends() -> Vec<Backend> {
    let (with, without): (Vec<_>, Vec<_>) = backends()
        .into_iter()
        .partition(|backend| backend.has_nist_curves());
    for backend in without {
        println!(
            "skipped: this backend, {}, has no NIST curves",
            backend.name()
        );
    }
    with
}

/// Runs `batch` so that each of `cases` is in every lane at every fill, next to its neighbours in
/// the list. `batch` gets the cases and asserts their results.
pub fn every_lane_and_fill<T>(backend: Backend, cases: &[T], batch: impl Fn(&[&T])) {
    // The portable backend has one lane: one fill is as good as all.
    let fills: &[usize] = if backend == Backend::PORTABLE {
        &[3]
    } else {
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17]
    };
    for &fill in fills {
        let step = if backend == Backend::PORTABLE || fill > 8 {
            fill
        } else {
            1
        };
        for start in (0..cases.len()).step_by(step) {
            let jobs: Vec<&T> = cases.iter().cycle().skip(start).take(fill).collect();
            batch(&jobs);
        }
    }
}

/// [`every_lane_and_fill`], but with each case only once per fill.
pub fn every_fill<T>(cases: &[T], batch: impl Fn(&[&T])) {
    for fill in [8, 64, 100] {
        for chunk in cases.chunks(fill) {
            batch(&chunk.iter().collect::<Vec<_>>());
        }
    }
}
