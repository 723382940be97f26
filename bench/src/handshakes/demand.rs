//! How many handshakes clients ask for.

use std::time::Duration;

use crate::format::{clients, thousands};

/// The most connections at a time where handshakes begin at a rate.
const MOST_AT_A_TIME: usize = 256;

/// How many handshakes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A closed loop: so many clients, each of which begins anew once it is done.
    Clients(usize),
    /// An open loop: so many begin in a second on average, whatever becomes of those before. The
    /// pauses between them are exponentially distributed, as where many clients know nothing of
    /// each other.
    Rate(usize),
}

impl Demand {
    /// The number alone.
    pub fn number(self) -> usize {
        match self {
            Demand::Clients(number) | Demand::Rate(number) => number,
        }
    }

    /// Handshakes a second, where they begin at a rate.
    pub fn rate(self) -> Option<usize> {
        match self {
            Demand::Clients(_) => None,
            Demand::Rate(rate) => Some(rate),
        }
    }

    /// The unit of the number.
    pub fn unit(self) -> &'static str {
        match self {
            Demand::Clients(_) => "clients",
            Demand::Rate(_) => "rate",
        }
    }

    /// As the document has it.
    pub fn name(self) -> &'static str {
        match self {
            Demand::Clients(_) => "concurrency",
            Demand::Rate(_) => "rate",
        }
    }

    /// As in `1 client`, `8 clients` and `500 per second`.
    pub fn words(self) -> String {
        match self {
            Demand::Clients(count) => clients(count),
            Demand::Rate(rate) => format!("{} per second", thousands(rate as f64)),
        }
    }

    /// How many connections there are at a time, at most.
    pub fn connections(self) -> usize {
        match self {
            Demand::Clients(count) => count,
            Demand::Rate(_) => MOST_AT_A_TIME,
        }
    }
}

/// When handshakes begin that come at a rate.
#[derive(Clone, Copy)]
pub struct Arrivals {
    mean: f64,
}

impl Arrivals {
    /// So many in a second.
    pub fn new(rate: f64) -> Arrivals {
        Arrivals { mean: 1.0 / rate }
    }

    /// From one of them to the next; `random` is uniform.
    pub fn pause(self, random: u64) -> Duration {
        // Above 0 and at most 1.
        let uniform = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        Duration::from_secs_f64(-uniform.ln() * self.mean)
    }
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::Random;

    use super::*;

    #[test]
    fn pauses_have_the_mean_and_the_distribution_that_they_must_have() {
        let mut random = Random(1);
        let arrivals = Arrivals::new(1000.0);
        let pauses = (0..100_000).map(|_| arrivals.pause(random.word()).as_secs_f64());
        let pauses: Vec<f64> = pauses.collect();
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        assert!((0.98e-3..1.02e-3).contains(&mean), "{mean}");
        let longer = pauses.iter().filter(|pause| **pause > 2e-3).count() as f64;
        let expected = pauses.len() as f64 * (-2.0_f64).exp();
        assert!((0.95..1.05).contains(&(longer / expected)), "{longer}");
        for extreme in [0, u64::MAX] {
            assert!(arrivals.pause(extreme) < Duration::from_secs(1));
        }
    }
}
