//! Candidates in interleaved rounds.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use lockstep_common::Failure;

use super::candidate::Candidate;
use crate::measure::{self, Figure, Quiet, Slice, Units, quantile};

/// Rounds at least, however short the time.
const ROUNDS: usize = 5;

/// How long a slice of candidates lasts that do not get all items.
const SLICE: Duration = Duration::from_millis(20);

/// Number of items that show how fast a candidate is.
const FIRST: usize = 64;

/// The figures of a candidate.
pub struct Compared {
    pub figure: Figure,
    /// The quartiles of the slices that count.
    pub quartiles: [f64; 2],
    /// Operations a second of the first candidate, divided by those of this one in the same round:
    /// the quartiles and, between them, the median of the rounds.
    pub ratios: [f64; 3],
}

/// Lets the candidates compute in turn until the time is over, `seconds` for each.
pub fn measure(
    candidates: &[Candidate<'_>],
    count: usize,
    cpus: &[usize],
    seconds: Duration,
    mut progress: impl FnMut(f64),
) -> Result<Vec<Compared>, Failure> {
    measure::keep_to(cpus);
    let mut turns = Vec::new();
    for candidate in candidates {
        turns.push(Turn::new(candidate, count, cpus)?);
    }
    let (quiet, start) = (Quiet::calibrate(), Instant::now());
    let time = seconds * candidates.len() as u32;
    for round in 0.. {
        let share = start.elapsed().as_secs_f64() / time.as_secs_f64();
        progress(share.min(1.0));
        if share >= 1.0 && round >= ROUNDS {
            break;
        }
        for turn in &mut turns {
            turn.take(quiet)?;
        }
    }
    let slices: Vec<Vec<Slice>> = turns.into_iter().map(|turn| turn.slices).collect();
    Ok(slices.iter().map(|own| compare(&slices[0], own)).collect())
}

/// The figures of slices beside those of the first candidate in the same rounds.
pub fn compare(first: &[Slice], own: &[Slice]) -> Compared {
    let rates = |is_counted: fn(&Slice) -> bool| {
        let slices = own.iter().filter(|slice| is_counted(slice));
        slices.map(|slice| slice.ops_per_s).collect::<Vec<_>>()
    };
    let ratios = |is_counted: fn(&Slice) -> bool| {
        let pairs = first.iter().zip(own);
        let pairs = pairs.filter(|(first, own)| is_counted(first) && is_counted(own));
        pairs
            .map(|(first, own)| first.ops_per_s / own.ops_per_s)
            .collect::<Vec<_>>()
    };
    let or_all = |of: &dyn Fn(fn(&Slice) -> bool) -> Vec<f64>| {
        let quiet = of(|slice| slice.quiet);
        if quiet.len() >= measure::ENOUGH {
            quiet
        } else {
            of(|_| true)
        }
    };
    let (mut rates, mut ratios) = (or_all(&rates), or_all(&ratios));
    Compared {
        figure: Figure::of(own),
        quartiles: [0.25, 0.75].map(|share| quantile(&mut rates, share)),
        ratios: [0.25, 0.5, 0.75].map(|share| quantile(&mut ratios, share)),
    }
}

/// A candidate, and its slices so far.
struct Turn<'a> {
    candidate: &'a Candidate<'a>,
    count: usize,
    cpus: &'a [usize],
    /// Number of items of a slice.
    length: usize,
    /// Where the next slice begins.
    next: usize,
    slices: Vec<Slice>,
}

impl<'a> Turn<'a> {
    fn new(candidate: &'a Candidate<'a>, count: usize, cpus: &'a [usize]) -> Result<Self, Failure> {
        let mut turn = Turn {
            candidate,
            count,
            cpus,
            length: count,
            next: 0,
            slices: Vec::new(),
        };
        if candidate.is_whole {
            // The first call chooses an order of work.
            candidate.count(0..count)?;
        } else {
            let (first, start) = (FIRST.min(count), Instant::now());
            candidate.count(0..first)?;
            let per_item = start.elapsed().as_secs_f64() / first as f64;
            let fitting = SLICE.as_secs_f64() * cpus.len() as f64 / per_item;
            turn.length = (fitting as usize).clamp(cpus.len(), count);
        }
        Ok(turn)
    }

    fn take(&mut self, quiet: Quiet) -> Result<(), Failure> {
        let items = match self.next + self.length <= self.count {
            true => self.next..self.next + self.length,
            false => 0..self.length,
        };
        self.next = items.end;
        let units = match self.candidate.is_whole {
            true => Units::Lanes,
            false => Units::Scalar,
        };
        let mut done = Ok(0);
        let slice = measure::call(quiet, units, self.cpus.len(), || {
            done = self.compute(items);
            *done.as_ref().unwrap_or(&0)
        });
        done?;
        self.slices.push(slice);
        Ok(())
    }

    fn compute(&self, items: Range<usize>) -> Result<u64, Failure> {
        if self.candidate.is_whole || self.cpus.len() == 1 {
            return self.candidate.count(items);
        }
        let share = items.len().div_ceil(self.cpus.len());
        let compute = |(start, cpu): (usize, usize)| {
            let items = start..(start + share).min(items.end);
            move || {
                measure::keep_to(&[cpu]);
                self.candidate.count(items)
            }
        };
        let shares = items.clone().step_by(share).zip(self.cpus.iter().copied());
        thread::scope(|scope| {
            let threads: Vec<_> = shares.map(|share| scope.spawn(compute(share))).collect();
            let counts = threads.into_iter().map(|thread| {
                let panicked = |_| Err(Failure::new("a measuring thread panicked"));
                thread.join().unwrap_or_else(panicked)
            });
            counts.sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn ratios_are_those_of_rounds() {
        let slice = |ops_per_s, quiet| Slice {
            ops_per_s,
            cycles_per_op: 1.0,
            quiet,
        };
        let first = [80.0, 40.0, 60.0, 8.0].map(|rate| slice(rate, true));
        let mut own = [10.0, 10.0, 20.0, 10.0].map(|rate| slice(rate, true));
        own[3].quiet = false;
        let compared = compare(&first, &own);
        assert_eq!(compared.ratios, [4.0, 4.0, 8.0].map(|ratio: f64| ratio));
        assert_eq!(compared.figure.ops_per_s, 10.0);
        assert_eq!((compared.figure.kept, compared.figure.all), (3, 4));
        // With too few quiet slices all of them count.
        own[2].quiet = false;
        assert_eq!(compare(&first, &own).ratios[0], 3.0);
    }

    #[test]
    fn each_item_is_computed_by_one_thread_and_failures_are_seen() {
        let seen = Mutex::new(Vec::new());
        let candidate = Candidate::verifying("one", |item| {
            seen.lock().unwrap().push(item);
            item != 90
        });
        let turn = Turn::new(&candidate, 100, &[0, 0, 0]).unwrap();
        seen.lock().unwrap().clear();
        assert_eq!(turn.compute(3..80).unwrap(), 77);
        let mut items = std::mem::take(&mut *seen.lock().unwrap());
        items.sort_unstable();
        assert_eq!(items, (3..80).collect::<Vec<_>>());
        assert!(turn.compute(85..95).is_err());
    }
}
