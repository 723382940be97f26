//! The figures of a measurement.

use std::time::Duration;

use super::client::Tally;
use super::counters::Counters;
use super::demand::Demand;
use super::parameters::Side;
use crate::measure::{middle, quantile};

/// One server under one load for one round.
pub struct Round {
    pub tally: Tally,
    /// CPU time of the server.
    pub cpu: Duration,
    /// What the module counted, with lockstep, and the key daemon if it computes for the server.
    pub counters: Option<Counters>,
    /// The key daemon's part, if it computes for the server.
    pub daemon: Option<DaemonPart>,
}

/// What the key daemon has done for a server.
#[derive(Clone, Copy)]
pub struct DaemonPart {
    pub cpu: Duration,
    pub signatures: u64,
}

impl DaemonPart {
    /// What it has done since.
    pub fn since(self, earlier: DaemonPart) -> DaemonPart {
        DaemonPart {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            signatures: self.signatures.saturating_sub(earlier.signatures),
        }
    }
}

impl Round {
    /// CPU time of the server, and of the daemon that computes for it.
    fn whole_cpu(&self) -> Duration {
        let daemon = self.daemon.as_ref().map(|daemon| daemon.cpu);
        self.cpu + daemon.unwrap_or_default()
    }

    /// How many succeeded in a second.
    fn per_second(&self) -> f64 {
        self.tally.count() as f64 / self.tally.elapsed.as_secs_f64()
    }

    /// Server CPU seconds per handshake or transaction; NaN if none succeeded.
    fn cost(&self) -> f64 {
        self.whole_cpu().as_secs_f64() / self.tally.count() as f64
    }

    /// The latencies that count, in seconds, and whether they are not of the warm-up: those of the
    /// warm-up count only where there are no others.
    fn latencies(&self) -> (Vec<f64>, bool) {
        let (late, early) = (&self.tally.latencies, &self.tally.early_latencies);
        let is_warm = !late.is_empty();
        let counted = if is_warm { late } else { early };
        (counted.iter().map(Duration::as_secs_f64).collect(), is_warm)
    }

    /// The daemon's share of the CPU time.
    fn daemon_share(&self) -> Option<f64> {
        let daemon = self.daemon.as_ref()?;
        Some(daemon.cpu.as_secs_f64() / self.whole_cpu().as_secs_f64())
    }
}

/// All rounds of one server under one load.
#[derive(Default)]
pub struct Figures {
    pub rounds: Vec<Round>,
}

impl Figures {
    /// Handshakes or transactions that succeeded.
    pub fn count(&self) -> u64 {
        self.rounds
            .iter()
            .map(|round| round.tally.count() as u64)
            .sum()
    }

    /// Those of them that began while the load warmed up.
    pub fn early(&self) -> usize {
        let rounds = self.rounds.iter();
        rounds.map(|round| round.tally.early_latencies.len()).sum()
    }

    pub fn failures(&self) -> u64 {
        self.rounds.iter().map(|round| round.tally.failures).sum()
    }

    pub fn examples(&self) -> impl Iterator<Item = &str> {
        let rounds = self.rounds.iter();
        rounds.flat_map(|round| round.tally.examples.iter().map(String::as_str))
    }

    /// A second, in the median round.
    pub fn per_second(&self) -> f64 {
        self.median(Round::per_second)
    }

    /// Server CPU seconds for each, round by round.
    pub fn costs(&self) -> Vec<f64> {
        self.rounds.iter().map(Round::cost).collect()
    }

    /// CPUs that the server kept busy.
    pub fn server_load(&self) -> f64 {
        self.median(|round| round.whole_cpu().as_secs_f64() / round.tally.elapsed.as_secs_f64())
    }

    /// The key daemon's share of the server's CPU time, in the median round.
    pub fn daemon_share(&self) -> Option<f64> {
        let shares = self.rounds.iter().map(Round::daemon_share);
        let mut shares = shares.collect::<Option<Vec<_>>>()?;
        Some(quantile(&mut shares, 0.5))
    }

    /// CPUs that the clients kept busy.
    pub fn client_load(&self) -> f64 {
        self.median(|round| round.tally.cpu.as_secs_f64() / round.tally.elapsed.as_secs_f64())
    }

    /// The latency, in seconds, that this share of all does not exceed; those of the warm-up count
    /// only where there are no others.
    pub fn latency(&self, share: f64) -> f64 {
        quantile(&mut self.latencies(), share)
    }

    /// The mean of the same latencies; NaN without any.
    pub fn mean_latency(&self) -> f64 {
        mean(&self.latencies())
    }

    fn latencies(&self) -> Vec<f64> {
        let seconds = |of: fn(&Tally) -> &Vec<Duration>| -> Vec<f64> {
            let rounds = self.rounds.iter().flat_map(|round| of(&round.tally));
            rounds.map(Duration::as_secs_f64).collect()
        };
        let late = seconds(|tally| &tally.latencies);
        match late.is_empty() {
            true => seconds(|tally| &tally.early_latencies),
            false => late,
        }
    }

    /// What the module counted in all rounds.
    pub fn counters(&self) -> Option<Counters> {
        let rounds = self.rounds.iter();
        rounds
            .map(|round| round.counters.clone())
            .reduce(|sum, one| Some(sum?.plus(&one?)))
            .flatten()
    }

    /// Signatures that the key daemon made in all rounds.
    pub fn daemon_signatures(&self) -> Option<u64> {
        let rounds = self.rounds.iter();
        rounds
            .map(|round| Some(round.daemon.as_ref()?.signatures))
            .sum()
    }

    fn median(&self, value: impl Fn(&Round) -> f64) -> f64 {
        quantile(&mut self.rounds.iter().map(value).collect::<Vec<_>>(), 0.5)
    }
}

/// The same of both.
#[derive(Default)]
pub struct Pair {
    pub stock: Figures,
    pub lockstep: Figures,
}

impl Pair {
    /// The server's CPU time for each, lockstep over OpenSSL alone: of each round, and of these the
    /// median. It is the ratio of the [costs](Self::cost).
    pub fn cpu_ratio(&self) -> f64 {
        self.cost(Side::Lockstep) / self.cost(Side::Stock)
    }

    /// Server CPU seconds for each, in the round with the median ratio; NaN without a round.
    pub fn cost(&self, side: Side) -> f64 {
        let middle = middle(&self.cpu_ratios());
        middle.map_or(f64::NAN, |round| self.of(side).rounds[round].cost())
    }

    /// The ratios of CPU time, round by round.
    pub fn cpu_ratios(&self) -> Vec<f64> {
        self.ratios(Quantity::Cpu)
    }

    /// Lockstep over OpenSSL alone, round by round.
    pub fn ratios(&self, quantity: Quantity) -> Vec<f64> {
        let rounds = self.stock.rounds.iter().zip(&self.lockstep.rounds);
        let ratios = rounds.map(|(stock, lockstep)| quantity.ratio(stock, lockstep));
        ratios.collect()
    }

    /// The median of these ratios, those left out that are no numbers; NaN without any.
    pub fn ratio(&self, quantity: Quantity) -> f64 {
        let mut ratios = self.ratios(quantity);
        ratios.retain(|ratio| ratio.is_finite());
        quantile(&mut ratios, 0.5)
    }

    fn of(&self, side: Side) -> &Figures {
        match side {
            Side::Stock => &self.stock,
            Side::Lockstep => &self.lockstep,
        }
    }

    pub fn failures(&self) -> u64 {
        self.stock.failures() + self.lockstep.failures()
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The server's CPU time for each handshake or transaction.
    Cpu,
    /// How many succeeded in a second.
    PerSecond,
    Mean,
    P50,
    P90,
    P99,
}

impl Quantity {
    pub const ALL: [Quantity; 6] = [
        Quantity::Cpu,
        Quantity::PerSecond,
        Quantity::Mean,
        Quantity::P50,
        Quantity::P90,
        Quantity::P99,
    ];

    /// As the document has it.
    pub fn key(self) -> &'static str {
        match self {
            Quantity::PerSecond => "per_s",
            Quantity::Cpu => "cpu",
            other => other.name(),
        }
    }

    /// The head of its column.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Cpu => "CPU",
            Quantity::PerSecond => "per s",
            Quantity::Mean => "mean",
            Quantity::P50 => "p50",
            Quantity::P90 => "p90",
            Quantity::P99 => "p99",
        }
    }

    /// Lockstep over OpenSSL alone in one round. A latency of one side that is of the warm-up is
    /// not compared with one that is not: NaN.
    fn ratio(self, stock: &Round, lockstep: &Round) -> f64 {
        let of: fn(&mut [f64]) -> f64 = match self {
            Quantity::Cpu => return lockstep.cost() / stock.cost(),
            Quantity::PerSecond => return lockstep.per_second() / stock.per_second(),
            Quantity::Mean => |all| mean(all),
            Quantity::P50 => |all| quantile(all, 0.5),
            Quantity::P90 => |all| quantile(all, 0.9),
            Quantity::P99 => |all| quantile(all, 0.99),
        };
        let ((mut stock, stock_is_warm), (mut lockstep, is_warm)) =
            (stock.latencies(), lockstep.latencies());
        match is_warm == stock_is_warm {
            true => of(&mut lockstep) / of(&mut stock),
            false => f64::NAN,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What was measured under one load.
pub struct Level {
    pub demand: Demand,
    pub handshakes: Pair,
    /// Handshakes with the page after them.
    pub transactions: Option<Pair>,
}

impl Level {
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        std::iter::once(&self.handshakes).chain(&self.transactions)
    }
}

#[cfg(test)]
impl Figures {
    /// Rounds of a second: CPU seconds of the server, and handshakes that took 1, 2, 3 and more ms.
    pub fn of_rounds(rounds: &[(f64, usize)]) -> Figures {
        let round = |&(cpu, handshakes): &(f64, usize)| Round {
            tally: Tally {
                latencies: (1..=handshakes as u64).map(Duration::from_millis).collect(),
                elapsed: Duration::from_secs(1),
                ..Tally::default()
            },
            cpu: Duration::from_secs_f64(cpu),
            counters: None,
            daemon: None,
        };
        Figures {
            rounds: rounds.iter().map(round).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_rounds_that_ran_side_by_side() {
        // The machine was half as fast in the second round.
        let pair = Pair {
            stock: Figures::of_rounds(&[(0.1, 100), (0.2, 100), (0.1, 100)]),
            lockstep: Figures::of_rounds(&[(0.05, 100), (0.1, 100), (0.06, 100)]),
        };
        assert_eq!(
            (pair.cpu_ratio(), pair.ratio(Quantity::PerSecond)),
            (0.5, 1.0)
        );
        assert_eq!(pair.cpu_ratios(), [0.5, 0.5, 0.6]);
        assert_eq!(pair.stock.per_second(), 100.0);
        assert_eq!(pair.stock.latency(1.0), 0.1);
        assert_eq!(pair.stock.latency(0.5), 0.051);
        assert!((pair.stock.mean_latency() - 0.0505).abs() < 1e-9);
        for quantity in [Quantity::Mean, Quantity::P50, Quantity::P99] {
            assert_eq!(pair.ratios(quantity), [1.0, 1.0, 1.0], "{quantity:?}");
        }
        assert!(pair.stock.counters().is_none());
    }

    #[test]
    fn costs_divide_to_their_ratio_whatever_the_rounds() {
        // The medians of both sides are of two rounds, and do not divide to any round's ratio.
        for rounds in 1..=4 {
            let stock = [(0.44, 1000), (0.40, 1000), (0.50, 1000), (0.43, 1000)];
            let lockstep = [(0.374, 1000), (0.336, 1000), (0.31, 1000), (0.38, 1000)];
            let pair = Pair {
                stock: Figures::of_rounds(&stock[..rounds]),
                lockstep: Figures::of_rounds(&lockstep[..rounds]),
            };
            let (stock, lockstep) = (pair.cost(Side::Stock), pair.cost(Side::Lockstep));
            assert_eq!(pair.cpu_ratio(), lockstep / stock);
            let mut ratios = pair.cpu_ratios();
            assert_eq!(pair.cpu_ratio(), quantile(&mut ratios, 0.5));
            assert_eq!(ratios.len(), rounds);
        }
        assert!(Pair::default().cpu_ratio().is_nan());
    }

    #[test]
    fn handshakes_of_the_warm_up_count_but_do_not_wait() {
        let mut figures = Figures::of_rounds(&[(0.1, 8)]);
        figures.rounds[0].tally.early_latencies = vec![Duration::from_secs(1); 2];
        assert_eq!((figures.count(), figures.latency(1.0)), (10, 0.008));
        figures.rounds[0].tally.latencies.clear();
        assert_eq!((figures.count(), figures.latency(0.5)), (2, 1.0));
    }

    #[test]
    fn latencies_are_compared_round_by_round_and_like_with_like() {
        let slower = |milliseconds: u64| {
            let mut figures = Figures::of_rounds(&[(0.1, 100), (0.1, 100), (0.1, 100)]);
            for latency in &mut figures.rounds[1].tally.latencies {
                *latency *= 2;
            }
            let late = &mut figures.rounds[2].tally.latencies;
            late.fill(Duration::from_millis(milliseconds));
            figures
        };
        let mut pair = Pair {
            stock: Figures::of_rounds(&[(0.1, 100), (0.1, 100), (0.1, 100)]),
            lockstep: slower(153),
        };
        assert_eq!(pair.ratios(Quantity::P50), [1.0, 2.0, 3.0]);
        assert_eq!(pair.ratio(Quantity::P50), 2.0);
        assert!((pair.ratio(Quantity::P99) - 153.0 / 99.0).abs() < 1e-9);
        // One that has nothing but a warm-up.
        let tally = &mut pair.stock.rounds[1].tally;
        tally.early_latencies = std::mem::take(&mut tally.latencies);
        assert!(pair.ratios(Quantity::Mean)[1].is_nan());
        assert_eq!(pair.ratio(Quantity::P50), 3.0);
        assert!(Pair::default().ratio(Quantity::P50).is_nan());
    }
}
