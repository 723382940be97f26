//! Measures the work of a kernel, and prints the figures as a table.

use std::time::Duration;

use lockstep_common::{Failure, out, outln};
use lockstep_engine::Backend;

use crate::format::cycles;
use crate::measure::{Figure, Quiet, watch};

/// What measures.
pub struct Bench {
    pub backend: Backend,
    time: Duration,
    quiet: Quiet,
}

impl Bench {
    /// Looks at the core before anything is measured on it. Each figure takes about `time`.
    pub fn new(backend: Backend, time: Duration) -> Bench {
        Bench {
            backend,
            time,
            quiet: Quiet::calibrate(),
        }
    }

    /// Prints what the columns below are: a heading, and the number of requests for each.
    pub fn head(&self, what: &str, fills: &[usize]) {
        outln!("{what}: cycles for one operation");
        out!("{:18}", "requests");
        fills.iter().for_each(|fill| out!("{fill:>10}"));
        out!("\n");
    }

    /// Prints the cycles for one operation with each number of requests. A star marks a figure for
    /// which too few slices were quiet.
    pub fn row(
        &self,
        name: &str,
        fills: &[usize],
        mut run: impl FnMut(usize) -> Result<Figure, Failure>,
    ) -> Result<(), Failure> {
        out!("{name:18}");
        for &fill in fills {
            let figure = run(fill)?;
            let mark = if figure.is_quiet() { "" } else { "*" };
            let shown = cycles(figure.cycles_per_op / fill as f64) + mark;
            out!("{shown:>10}");
        }
        out!("\n");
        Ok(())
    }

    /// Measures one call of `work`, after a first one that fills tables.
    pub fn measure(&self, mut work: impl FnMut()) -> Figure {
        work();
        watch(self.quiet, self.time, 1, &mut work)
    }
}

/// Refuses to measure what computes wrongly.
pub fn insist(is_right: bool, what: &str) -> Result<(), Failure> {
    match is_right {
        true => Ok(()),
        false => Err(Failure::new(format!("the lanes compute {what} wrongly"))
            .remedy("stop using the lanes of this machine, and report this")),
    }
}
