//! One operation by several candidates in interleaved rounds, on one thread or on several at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use lockstep_common::Failure;
use lockstep_engine::{Declined, Engine};

use crate::measure::{self, Figure, Quiet, Slice, Units};
use crate::subject::{Operation, Stock, Subject};

/// Rounds at least, however short the time.
const ROUNDS: usize = 3;

/// An implementation, and how many requests it gets at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// libcrypto's default provider, one operation after the other.
    Stock,
    /// The engine, with `fill` requests at a time.
    Lockstep { fill: usize },
}

impl Candidate {
    /// The units that its work keeps busy.
    fn units(self) -> Units {
        match self {
            Candidate::Stock => Units::Scalar,
            Candidate::Lockstep { .. } => Units::Lanes,
        }
    }
}

/// One operation, and the engine that all candidates but OpenSSL alone work with.
pub struct Comparison {
    engine: Arc<Engine>,
    subject: Subject,
    /// Whether the engine's policy leaves a lone request to OpenSSL's own implementation, and
    /// whether it leaves all of them.
    lone_is_stock: bool,
    all_are_stock: bool,
}

impl Comparison {
    /// Makes keys and checks that both sides do the same with them.
    pub fn new(engine: Arc<Engine>, operation: Operation) -> Result<Comparison, Failure> {
        let mut comparison = Comparison {
            engine,
            subject: Subject::new(operation)?,
            lone_is_stock: false,
            all_are_stock: false,
        };
        comparison.check()?;
        let lone =
            lockstep_engine::direct::blocking(&comparison.engine, comparison.subject.request());
        comparison.all_are_stock = matches!(lone, Err(Declined::SlowLanes));
        comparison.lone_is_stock =
            comparison.all_are_stock || matches!(lone, Err(Declined::Lone(_)));
        Ok(comparison)
    }

    /// Whether this candidate's requests are served by OpenSSL's own implementation.
    pub fn is_by_stock(&self, candidate: Candidate) -> bool {
        match candidate {
            Candidate::Stock => false,
            Candidate::Lockstep { fill: 1 } => self.lone_is_stock,
            Candidate::Lockstep { .. } => self.all_are_stock,
        }
    }

    /// Lets the candidates work in turn until the time is over, a thread on each of `cpus`, the
    /// calling one on the first; returns a figure for each.
    ///
    /// `progress` gets the share of the time that has passed.
    pub fn measure_all(
        &self,
        candidates: &[Candidate],
        cpus: &[usize],
        time: Duration,
        mut progress: impl FnMut(f64),
    ) -> Result<Vec<Figure>, Failure> {
        let threads = cpus.len();
        let together = Barrier::new(threads);
        let over = AtomicBool::new(false);
        let start = Instant::now();
        let mut per_thread = Vec::new();
        std::thread::scope(|scope| {
            let others: Vec<_> = cpus[1..]
                .iter()
                .map(|&cpu| {
                    let (together, over) = (&together, &over);
                    scope.spawn(move || {
                        measure::keep_to(&[cpu]);
                        self.measure_rounds(candidates, together, over, |_| {})
                    })
                })
                .collect();
            measure::keep_to(&cpus[..1]);
            per_thread.push(self.measure_rounds(candidates, &together, &over, |round| {
                let share = start.elapsed().as_secs_f64() / time.as_secs_f64();
                progress(share.min(1.0));
                over.store(share >= 1.0 && round >= ROUNDS, Ordering::Release);
            }));
            per_thread.extend(others.into_iter().map(|other| {
                other
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new("a measuring thread panicked")))
            }));
        });
        let per_thread = per_thread
            .into_iter()
            .collect::<Result<Vec<_>, Failure>>()?;
        Ok((0..candidates.len())
            .map(|candidate| {
                let of_each: Vec<&[Slice]> = per_thread
                    .iter()
                    .map(|slices| slices[candidate].as_slice())
                    .collect();
                Figure::of(&joined(&of_each))
            })
            .collect())
    }

    /// One thread's part. All threads work for the same candidate at the same time. `after_round`
    /// runs before all read whether it is over; one thread decides it there.
    ///
    /// A thread whose candidate fails still takes part in the rounds, or the others would wait for
    /// it.
    fn measure_rounds(
        &self,
        candidates: &[Candidate],
        together: &Barrier,
        over: &AtomicBool,
        mut after_round: impl FnMut(usize),
    ) -> Result<Vec<Vec<Slice>>, Failure> {
        let mut slices = vec![Vec::new(); candidates.len()];
        let mut failure = None;
        let mut stock = self
            .subject
            .stock()
            .map_err(|error| failure = Some(error))
            .ok();
        together.wait();
        let quiet = Quiet::calibrate();
        for round in 1.. {
            for (slices, &candidate) in slices.iter_mut().zip(candidates) {
                together.wait();
                let Some(stock) = &mut stock else { continue };
                slices.push(measure::slice(quiet, candidate.units(), || {
                    self.work(candidate, stock).unwrap_or_else(|error| {
                        failure = Some(error);
                        1
                    })
                }));
            }
            after_round(round);
            together.wait();
            if over.load(Ordering::Acquire) {
                break;
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(slices),
        }
    }

    /// The least a candidate can do; returns how many operations that is.
    fn work(&self, candidate: Candidate, stock: &mut Stock<'_>) -> Result<u64, Failure> {
        match candidate {
            Candidate::Stock => stock().map(|()| 1),
            Candidate::Lockstep { fill: 1 } => {
                match lockstep_engine::direct::blocking(&self.engine, self.subject.request()) {
                    Ok(_) => Ok(1),
                    // While its guard lives, the engine counts this thread as busy.
                    Err(_guard @ (Declined::Lone(_) | Declined::SlowLanes)) => stock().map(|()| 1),
                    Err(declined) => Err(unexpected(&declined)),
                }
            }
            Candidate::Lockstep { fill } if self.all_are_stock => {
                (0..fill).try_for_each(|_| stock())?;
                Ok(fill as u64)
            }
            Candidate::Lockstep { fill } => {
                let requests = (0..fill).map(|_| self.subject.request()).collect();
                for answer in lockstep_engine::direct::batch(&self.engine, requests) {
                    answer.map_err(|declined| unexpected(&declined))?;
                }
                Ok(fill as u64)
            }
        }
    }

    /// Both sides must do the same before it is worth measuring how fast.
    fn check(&self) -> Result<(), Failure> {
        let requests = vec![self.subject.request(), self.subject.request()];
        for answer in lockstep_engine::direct::batch(&self.engine, requests) {
            let answer = answer.map_err(|declined| unexpected(&declined))?;
            if !self.subject.accepts(&answer)? {
                return Err(Failure::new(
                    "the lanes and libcrypto disagree: please report this",
                ));
            }
        }
        Ok(())
    }
}

fn unexpected(declined: &Declined) -> Failure {
    Failure::new(format!("the lanes declined a request: {declined:?}")).remedy("lockstep doctor")
}

/// The joint figures of threads: their rates added up, their cycles averaged.
fn joined(of_each: &[&[Slice]]) -> Vec<Slice> {
    let rounds = of_each.iter().map(|slices| slices.len()).min().unwrap_or(0);
    (0..rounds)
        .map(|round| Slice {
            ops_per_s: of_each.iter().map(|slices| slices[round].ops_per_s).sum(),
            cycles_per_op: of_each
                .iter()
                .map(|slices| slices[round].cycles_per_op)
                .sum::<f64>()
                / of_each.len() as f64,
            quiet: of_each.iter().all(|slices| slices[round].quiet),
        })
        .collect()
}
