//! The machine's limit: the cost of the best known algorithm on this core's vector units.
//!
//! The model counts the work of eight lanes for one RSA private operation, in vector
//! micro-operations: multiplies by formula, the others (carries, masks, table look-ups) as counted
//! once for the best known code. How many of each a core can start in a cycle is measured:
//! multiplies by a gauge, micro-operations in all as at least two, since every core with IFMA has
//! two vector ports or more.

use std::fmt::Write as _;

use lockstep_engine::Size;
use lockstep_kernels::gauge;
use lockstep_kernels::rsa::bench::Step;

use crate::format::cycles;
use crate::measure::{Units, quantile, timed};

/// Bits of a window of the exponent.
const WINDOW: u64 = 5;

/// Bits of a limb.
const LIMB_BITS: u64 = 52;

/// Vector micro-operations per cycle, of all kinds together.
const MICRO_OPERATIONS: f64 = 2.0;

/// What this core can start in one cycle.
pub struct Rates {
    /// Multiplies of 52-bit limbs in eight lanes; none on a CPU without them.
    pub multiplies: Option<f64>,
    /// The clock while that was measured, in cycles per second.
    pub clock: f64,
}

impl Rates {
    pub fn measure() -> Rates {
        let mut clocks = Vec::new();
        let mut multiplies = Vec::new();
        for _ in 0..50 {
            let clock = Units::Lanes.clock();
            let (count, seconds) = timed(|| gauge::lane_multiplies(8_000).unwrap_or(0));
            clocks.push(clock);
            multiplies.push(count / seconds / clock);
        }
        let multiplies = quantile(&mut multiplies, 0.9);
        Rates {
            multiplies: (multiplies > 0.0).then_some(multiplies),
            clock: quantile(&mut clocks, 0.5),
        }
    }
}

/// What one RSA private operation costs at least.
pub struct Limit {
    /// Multiplies of limbs, per operation: an eighth of what the lanes do for eight.
    pub multiplies: f64,
    /// All other vector micro-operations.
    pub others: f64,
    /// Cycles per operation with all lanes full; none where the rates are not known.
    pub cycles: Option<f64>,
}

impl Limit {
    pub fn of(size: Size, rates: &Rates) -> Limit {
        let multiplies = multiplies(size.bits() as u64);
        let others = match size {
            Size::Rsa1024 => 13.0e3,
            Size::Rsa2048 => 52.0e3,
            Size::Rsa3072 => 118.0e3,
            Size::Rsa4096 => 200.0e3,
        };
        let cycles = rates
            .multiplies
            .map(|rate| (multiplies / rate).max((multiplies + others) / MICRO_OPERATIONS));
        Limit {
            multiplies,
            others,
            cycles,
        }
    }
}

/// Multiplies for one operation: two exponentiations of half size, each in one lane of eight.
///
/// A fixed window of w bits over an exponent of e bits takes e − w squares and ⌈e/w⌉ − 1
/// multiplies, and its table 15 squares and 17 multiplies.
fn multiplies(bits: u64) -> f64 {
    let exponent = bits / 2;
    let n = limbs(exponent);
    let one = (exponent - WINDOW) * of_square(n)
        + (exponent.div_ceil(WINDOW) - 1) * of_multiply(n)
        + 15 * of_square(n)
        + 17 * of_multiply(n);
    (2 * one) as f64 / 8.0
}

fn limbs(bits: u64) -> u64 {
    bits.div_ceil(LIMB_BITS)
}

/// Multiplies of limbs (low and high halves count as two) in an almost-Montgomery multiplication of
/// n limbs.
fn of_multiply(n: u64) -> u64 {
    4 * n * n + n
}

/// The same in a squaring.
fn of_square(n: u64) -> u64 {
    3 * n * n + 2 * n
}

/// Cycles that the multiplies in one call of a function take at least, on so many lanes; where
/// there is a formula.
pub fn of_function(step: Step, size: Size, lanes: usize, rates: &Rates) -> Option<f64> {
    let n = limbs(size.bits() as u64 / 2);
    let multiplies = match step {
        Step::Multiply => of_multiply(n),
        Step::Square => of_square(n),
        Step::Exponentiate => 8 * multiplies(size.bits() as u64) as u64,
        _ => return None,
    };
    // The gauge multiplies in eight lanes at a time.
    rates
        .multiplies
        .filter(|_| lanes == 8)
        .map(|rate| multiplies as f64 / rate)
}

/// The model in words and figures.
pub fn explain(sizes: &[Size], rates: &Rates) -> String {
    let mut out = String::new();
    let rate = rates
        .multiplies
        .map_or("no".to_owned(), |rate| format!("{rate:.2}"));
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "The limit: this core starts {rate} lane multiplies per cycle (measured) and {MICRO_OPERATIONS:.0} vector\n\
         micro-operations in all; per operation, lanes full, the best known code needs\n\n\
         {:<10} {:>12} {:>12} {:>14}",
        "", "multiplies", "others", "cycles"
    );
    for &size in sizes {
        let limit = Limit::of(size, rates);
        let _ = writeln!(
            out,
            "RSA-{:<6} {:>12} {:>12} {:>14}",
            size.bits(),
            cycles(limit.multiplies),
            cycles(limit.others),
            limit.cycles.map_or("-".to_owned(), cycles),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures that the project publishes as its goals, for a core with two multiplies per
    /// cycle.
    #[test]
    fn the_model_gives_the_published_figures() {
        let rates = Rates {
            multiplies: Some(2.0),
            clock: 3.0e9,
        };
        for (size, only_multiplies, limit) in [
            (Size::Rsa1024, 27.1e3, 33.6e3),
            (Size::Rsa2048, 205.0e3, 231.0e3),
            (Size::Rsa3072, 681.0e3, 740.0e3),
            (Size::Rsa4096, 1.60e6, 1.70e6),
        ] {
            let model = Limit::of(size, &rates);
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
            assert!(
                near(model.multiplies / 2.0, only_multiplies),
                "{size:?} {}",
                model.multiplies
            );
            assert!(
                near(model.cycles.unwrap(), limit),
                "{size:?} {:?}",
                model.cycles
            );
        }
    }
}
