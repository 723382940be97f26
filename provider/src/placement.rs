//! Where operations with ordinary keys are computed: here, or in the key daemon.
//!
//! What the daemon takes for an operation depends on the company that it finds there, so on where
//! all other processes compute. No process can tell from its own operations. So all processes go to
//! the daemon at the same times, in *trials* that the system's clock starts, and see there what it
//! would cost if all stayed. Half a period later all compute here for as long. What is compared is
//! CPU time, of this process and the daemon together.
//!
//! A process goes over to the daemon if that takes at least a twentieth less. It comes back once
//! the daemon takes more than computing here, in trials and between them, and then stays for a
//! while: the company of the trials was not there between them.
//!
//! This is the decision alone: it measures nothing and asks nobody. It is made of atomics, so no
//! thread waits for another one, and a forked child finds nothing held.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// From one trial to the next, in nanoseconds.
const PERIOD: u64 = 5_000_000_000;
/// How long a trial takes.
const TRIAL: u64 = 100_000_000;
/// What does not count at the beginning of a trial: operations of the other place run still.
const SETTLE: u64 = 20_000_000;
/// One operation in every so many is measured outside of trials.
const SAMPLE: u64 = 16;
/// How many measured operations a comparison takes.
const LEAST: u64 = 8;
/// For so many trials a process that has come back stays.
const REST: u64 = 6;

/// Where an operation is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process.
    Here,
    /// In the key daemon.
    Daemon,
}

/// Where the next operation is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub place: Place,
    /// Whether its cost is wanted.
    pub is_measured: bool,
}

/// The decision for the operations of one shape in this process.
pub struct Placement {
    is_daemon: AtomicBool,
    /// How many trials the system had ended when the last decision was made.
    trials: AtomicU64,
    /// Until so many have ended, this process stays here.
    rests_until: AtomicU64,
    operations: AtomicU64,
    here: Costs,
    daemon: Costs,
}

impl Placement {
    /// Computes here, and has measured nothing.
    pub const fn new() -> Placement {
        Placement {
            is_daemon: AtomicBool::new(false),
            trials: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            here: Costs::new(),
            daemon: Costs::new(),
        }
    }

    /// Where an operation is computed that begins now, by the system's clock in nanoseconds.
    pub fn turn(&self, now: u64) -> Turn {
        let phase = now % PERIOD;
        self.decide_after(now / PERIOD + u64::from(phase >= TRIAL));
        let (usual, start, other) = match self.is_daemon.load(Relaxed) {
            true => (Place::Daemon, PERIOD / 2, Place::Here),
            false => (Place::Here, 0, Place::Daemon),
        };
        match (start..start + TRIAL).contains(&phase) {
            true => Turn {
                place: other,
                is_measured: phase >= start + SETTLE,
            },
            false => Turn {
                place: usual,
                is_measured: self.operations.fetch_add(1, Relaxed).is_multiple_of(SAMPLE),
            },
        }
    }

    /// Notes what a measured operation has cost.
    pub fn note(&self, place: Place, cost: u64) {
        match place {
            Place::Here => self.here.add(cost),
            Place::Daemon => self.daemon.add(cost),
        }
    }

    /// Forgets everything, in a forked child. Where nothing was decided, nothing is written: the
    /// child would copy a page.
    pub fn reset(&self) {
        if self.trials.load(Relaxed) == 0 {
            return;
        }
        self.is_daemon.store(false, Relaxed);
        self.rests_until.store(0, Relaxed);
        self.here.clear();
        self.daemon.clear();
    }

    /// Decides, if nobody has since so many trials have ended. A thread may come late, with the
    /// number of an earlier trial.
    fn decide_after(&self, trials: u64) {
        let before = self.trials.load(Relaxed);
        if before >= trials
            || self
                .trials
                .compare_exchange(before, trials, Relaxed, Relaxed)
                .is_err()
        {
            return;
        }
        let (Some(here), Some(daemon)) = (self.here.average(), self.daemon.average()) else {
            return;
        };
        let was_daemon = self.is_daemon.load(Relaxed);
        let is_daemon = match was_daemon {
            false => daemon <= here - here / 20 && trials >= self.rests_until.load(Relaxed),
            true => daemon <= here,
        };
        if was_daemon && !is_daemon {
            self.rests_until.store(trials + REST, Relaxed);
        }
        self.is_daemon.store(is_daemon, Relaxed);
        self.here.halve();
        match was_daemon == is_daemon {
            true => self.daemon.halve(),
            // With other company than before.
            false => self.daemon.clear(),
        }
    }
}

/// The costs of measured operations. Those before the last trial count half as much as those after
/// it, those before the one before a quarter as much, and so on.
struct Costs {
    sum: AtomicU64,
    count: AtomicU64,
}

impl Costs {
    const fn new() -> Costs {
        Costs {
            sum: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    fn add(&self, cost: u64) {
        self.sum.fetch_add(cost, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    /// None while there are too few.
    fn average(&self) -> Option<u64> {
        let count = self.count.load(Relaxed);
        (count >= LEAST).then(|| self.sum.load(Relaxed) / count)
    }

    fn halve(&self) {
        let count = self.count.load(Relaxed);
        let average = self.sum.load(Relaxed) / count.max(1);
        self.sum.store(average * (count / 2), Relaxed);
        self.count.store(count / 2, Relaxed);
    }

    fn clear(&self) {
        self.sum.store(0, Relaxed);
        self.count.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that makes an operation each millisecond.
    struct Process {
        placement: Placement,
        now: u64,
    }

    const MILLISECOND: u64 = 1_000_000;

    impl Process {
        fn new() -> Process {
            Process {
                placement: Placement::new(),
                now: 12_345 * PERIOD + PERIOD / 3,
            }
        }

        /// Runs for some periods, where operations cost so much here, and in the daemon during
        /// trials and between them; returns how many of a thousand went to the daemon.
        fn run(&mut self, periods: u64, here: u64, trial: u64, between: u64) -> u64 {
            self.run_every(MILLISECOND, periods, here, trial, between)
        }

        fn run_every(
            &mut self,
            pause: u64,
            periods: u64,
            here: u64,
            trial: u64,
            between: u64,
        ) -> u64 {
            let (mut all, mut daemon) = (0, 0);
            let end = self.now + periods * PERIOD;
            while self.now < end {
                let turn = self.placement.turn(self.now);
                let is_trial = self.now % PERIOD < TRIAL;
                let cost = match (turn.place, is_trial) {
                    (Place::Here, _) => here,
                    (Place::Daemon, true) => trial,
                    (Place::Daemon, false) => between,
                };
                if turn.is_measured {
                    self.placement.note(turn.place, cost);
                }
                all += 1;
                daemon += u64::from(turn.place == Place::Daemon);
                self.now += pause;
            }
            1000 * daemon / all
        }
    }

    /// What share of time the trials take, of a thousand.
    const TRIALS: u64 = 1000 * TRIAL / PERIOD;

    #[test]
    fn a_process_goes_where_an_operation_costs_less() {
        let mut process = Process::new();
        assert_eq!(process.run(10, 1000, 1200, 1200), TRIALS);
        // From the next trial on.
        process.run(1, 1000, 400, 400);
        assert_eq!(process.run(10, 1000, 400, 400), 1000 - TRIALS);
        process.run(4, 1000, 1100, 1100);
        assert_eq!(process.run(10, 1000, 1100, 1100), TRIALS);
    }

    #[test]
    fn a_process_that_has_come_back_rests_and_goes_again() {
        let mut process = Process::new();
        process.run(4, 1000, 400, 400);
        process.run(1, 1000, 9000, 9000);
        process.run(1, 1000, 400, 400);
        assert_eq!(process.run(REST - 2, 1000, 400, 400), TRIALS);
        process.run(6, 1000, 400, 400);
        assert_eq!(process.run(10, 1000, 400, 400), 1000 - TRIALS);
    }

    #[test]
    fn who_is_in_the_daemon_tries_here_half_a_period_later() {
        let mut process = Process::new();
        process.run(4, 1000, 400, 400);
        let start = process.now - process.now % PERIOD;
        let place = |phase| process.placement.turn(start + phase).place;
        assert_eq!([place(1), place(PERIOD / 2)], [Place::Daemon, Place::Here]);
        assert_eq!(place(PERIOD / 2 + TRIAL), Place::Daemon);
    }

    #[test]
    fn a_decision_is_made_in_the_next_trial_too_and_forgets_other_company() {
        let placement = Placement::new();
        let note = |daemon| {
            for _ in 0..LEAST {
                placement.note(Place::Daemon, daemon);
                placement.note(Place::Here, 1000);
            }
        };
        let counts = || [&placement.here, &placement.daemon].map(|own| own.count.load(Relaxed));
        // It stays, and what was measured counts half as much from now on.
        note(2000);
        placement.turn(TRIAL);
        assert_eq!(counts(), [LEAST / 2; 2]);
        // Nobody came after the trial before.
        note(1);
        note(1);
        placement.turn(2 * PERIOD + 1);
        assert_eq!((placement.is_daemon.load(Relaxed), counts()[1]), (true, 0));
    }

    #[test]
    fn a_small_gain_moves_nobody_and_a_small_loss_neither() {
        let mut process = Process::new();
        assert_eq!(process.run(10, 1000, 960, 960), TRIALS);
        process.run(8, 1000, 940, 940);
        assert_eq!(process.run(10, 1000, 940, 940), 1000 - TRIALS);
        assert_eq!(process.run(10, 1000, 999, 999), 1000 - TRIALS);
        process.run(8, 1000, 1010, 1010);
        assert_eq!(process.run(6, 1000, 1010, 1010), TRIALS);
    }

    #[test]
    fn who_misses_the_company_of_the_trials_comes_back_and_stays() {
        let mut process = Process::new();
        let share = process.run(70, 1000, 500, 1100);
        assert!(share > TRIALS, "it tries: {share}");
        assert!(share < 200, "{share} of 1000 operations cost more");
    }

    #[test]
    fn few_operations_decide_too_but_not_a_handful() {
        let mut process = Process::new();
        // About two a trial.
        let pause = 41 * MILLISECOND;
        process.run_every(pause, 20, 1000, 400, 400);
        let share = process.run_every(pause, 20, 1000, 400, 400);
        assert!(share > 900, "{share}");
        let placement = Placement::new();
        for _ in 0..LEAST - 1 {
            placement.note(Place::Daemon, 1);
            placement.note(Place::Here, 1000);
        }
        placement.turn(TRIAL);
        assert_eq!(placement.turn(TRIAL + 1).place, Place::Here);
        placement.note(Place::Daemon, 1);
        placement.note(Place::Here, 1000);
        placement.turn(PERIOD + TRIAL);
        assert_eq!(placement.turn(PERIOD + TRIAL + 1).place, Place::Daemon);
    }

    #[test]
    fn a_thread_that_comes_late_decides_nothing() {
        let placement = Placement::new();
        placement.turn(2 * PERIOD + TRIAL);
        let note = |times| {
            for _ in 0..times {
                placement.note(Place::Daemon, 1);
                placement.note(Place::Here, 1000);
            }
        };
        note(2 * LEAST);
        // The numbers of trials that were decided already.
        placement.turn(PERIOD + TRIAL);
        placement.turn(2 * PERIOD + TRIAL);
        assert_eq!(placement.here.count.load(Relaxed), 2 * LEAST);
        assert_eq!(placement.turn(2 * PERIOD + TRIAL + 1).place, Place::Here);
    }

    #[test]
    fn all_processes_try_at_the_same_time_and_one_in_sixteen_is_measured_between() {
        let (one, other) = (Placement::new(), Placement::new());
        let mut measured = 0;
        for now in (7 * PERIOD..8 * PERIOD).step_by(MILLISECOND as usize) {
            let turn = one.turn(now);
            assert_eq!(turn.place, other.turn(now).place);
            let is_trial = now % PERIOD < TRIAL;
            assert_eq!(turn.place == Place::Daemon, is_trial);
            measured += u64::from(turn.is_measured);
        }
        let in_trial = (TRIAL - SETTLE) / MILLISECOND;
        let between = (PERIOD - TRIAL) / MILLISECOND;
        assert_eq!(measured, in_trial + between.div_ceil(SAMPLE));
    }

    #[test]
    fn a_forked_child_begins_anew() {
        let mut process = Process::new();
        process.run(3, 1000, 400, 400);
        process.placement.reset();
        let turn = process.placement.turn(process.now);
        assert_eq!(turn.place, Place::Here);
    }
}
