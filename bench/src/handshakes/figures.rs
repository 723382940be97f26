//! What was measured.

use std::time::Duration;

use super::client::Tally;
use super::counters::Counters;
use super::demand::Demand;
use super::parameters::Side;
use crate::measure::quantile;

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

    pub fn resumed(&self) -> u64 {
        self.rounds.iter().map(|round| round.tally.resumed).sum()
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
        let seconds = |of: fn(&Tally) -> &Vec<Duration>| -> Vec<f64> {
            let rounds = self.rounds.iter().flat_map(|round| of(&round.tally));
            rounds.map(Duration::as_secs_f64).collect()
        };
        let mut all = seconds(|tally| &tally.latencies);
        if all.is_empty() {
            all = seconds(|tally| &tally.early_latencies);
        }
        quantile(&mut all, share)
    }

    /// Whether any latency is not of the warm-up.
    fn has_latencies(&self) -> bool {
        self.rounds
            .iter()
            .any(|round| !round.tally.latencies.is_empty())
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
        let mut order: Vec<(f64, usize)> = self.cpu_ratios().into_iter().zip(0..).collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0));
        let middle = order.get(order.len() / 2).map(|(_, number)| *number);
        let round = middle.and_then(|number| self.of(side).rounds.get(number));
        round.map_or(f64::NAN, Round::cost)
    }

    /// The ratios of CPU time, round by round.
    pub fn cpu_ratios(&self) -> Vec<f64> {
        let rounds = self.stock.rounds.iter().zip(&self.lockstep.rounds);
        let ratios = rounds.map(|(stock, lockstep)| lockstep.cost() / stock.cost());
        ratios.collect()
    }

    fn of(&self, side: Side) -> &Figures {
        match side {
            Side::Stock => &self.stock,
            Side::Lockstep => &self.lockstep,
        }
    }

    /// How many there were a second, lockstep over OpenSSL alone: of each round, and of these the
    /// median.
    pub fn rate_ratio(&self) -> f64 {
        let rounds = self.stock.rounds.iter().zip(&self.lockstep.rounds);
        let ratios = rounds.map(|(stock, lockstep)| lockstep.per_second() / stock.per_second());
        quantile(&mut ratios.collect::<Vec<_>>(), 0.5)
    }

    /// A latency, lockstep over OpenSSL alone; NaN where only one of them has others than those of
    /// the warm-up.
    pub fn latency_ratio(&self, share: f64) -> f64 {
        match self.lockstep.has_latencies() == self.stock.has_latencies() {
            true => self.lockstep.latency(share) / self.stock.latency(share),
            false => f64::NAN,
        }
    }

    pub fn failures(&self) -> u64 {
        self.stock.failures() + self.lockstep.failures()
    }
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
        assert_eq!((pair.cpu_ratio(), pair.rate_ratio()), (0.5, 1.0));
        assert_eq!(pair.cpu_ratios(), [0.5, 0.5, 0.6]);
        assert_eq!(pair.stock.per_second(), 100.0);
        assert_eq!(pair.stock.latency(1.0), 0.1);
        assert_eq!(pair.latency_ratio(0.5), 1.0);
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
}
