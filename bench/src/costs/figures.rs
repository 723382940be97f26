//! Measurements, round by round, and the figures that come of them.

use super::work::Sample;
use crate::handshakes::Side;
use crate::measure::{ends, middle, quantile};

/// The figures of one row: in each round one of OpenSSL alone and one with lockstep.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    rounds: Vec<[Sample; 2]>,
}

impl Figures {
    /// Adds a round: OpenSSL alone, and with lockstep.
    pub fn add(&mut self, round: [Sample; 2]) {
        self.rounds.push(round);
    }

    /// With lockstep over OpenSSL alone, in each round.
    pub fn ratios(&self) -> Vec<f64> {
        let rounds = self.rounds.iter();
        rounds
            .map(|[stock, with]| with.value / stock.value)
            .collect()
    }

    /// The figure of one side in the round with the median ratio: the two divide to the ratio.
    pub fn value(&self, side: Side) -> f64 {
        let middle = middle(&self.ratios());
        middle.map_or(f64::NAN, |round| self.rounds[round][side as usize].value)
    }

    /// The median of the ratios.
    pub fn ratio(&self) -> f64 {
        self.value(Side::Lockstep) / self.value(Side::Stock)
    }

    /// The least and the greatest ratio.
    pub fn spread(&self) -> [f64; 2] {
        ends(&self.ratios())
    }

    /// The median of the ratios of the time that passed, where that was measured.
    pub fn wall_ratio(&self) -> Option<f64> {
        let rounds = self.rounds.iter();
        let ratios = rounds.map(|[stock, with]| Some(with.wall? / stock.wall?));
        let mut ratios: Vec<f64> = ratios.collect::<Option<_>>()?;
        (!ratios.is_empty()).then(|| quantile(&mut ratios, 0.5))
    }
}

/// The mean of several figures of one side.
pub fn mean(samples: &[Sample]) -> Sample {
    let count = samples.len() as f64;
    let walls: Option<Vec<f64>> = samples.iter().map(|sample| sample.wall).collect();
    Sample {
        value: samples.iter().map(|sample| sample.value).sum::<f64>() / count,
        wall: walls.map(|walls| walls.iter().sum::<f64>() / count),
    }
}

#[cfg(test)]
impl Figures {
    pub fn of(rounds: &[(f64, f64)]) -> Figures {
        let sample = |value| Sample {
            value,
            wall: Some(2.0 * value),
        };
        Figures {
            rounds: rounds
                .iter()
                .map(|&(stock, with)| [sample(stock), sample(with)])
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_and_figures_divide_to_their_median() {
        // The machine was half as fast in the second round.
        let figures = Figures::of(&[(1.0, 1.5), (2.0, 2.4), (1.0, 1.25)]);
        assert_eq!(figures.ratios(), [1.5, 1.2, 1.25]);
        assert_eq!(figures.ratio(), 1.25);
        let sides = [Side::Stock, Side::Lockstep].map(|side| figures.value(side));
        assert_eq!(sides, [1.0, 1.25]);
        assert_eq!(figures.spread(), [1.2, 1.5]);
        assert_eq!(figures.wall_ratio(), Some(1.25));
        assert!(Figures::default().ratio().is_nan());
        assert_eq!(Figures::default().wall_ratio(), None);
    }

    #[test]
    fn memory_takes_no_time() {
        let sample = |value| Sample { value, wall: None };
        let mut figures = Figures::default();
        figures.add([sample(4.0), sample(5.0)]);
        assert_eq!((figures.ratio(), figures.wall_ratio()), (1.25, None));
        let samples = [sample(1.0), sample(3.0)];
        assert_eq!(mean(&samples), sample(2.0));
    }
}
