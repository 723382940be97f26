//! The counters of servers, made from the counters of their processes.
//!
//! A server is the set of processes that a user runs under one name. Processes come and go: a
//! reload replaces all of them, and the sum over running processes would shrink. A [`Ledger`] looks
//! at them repeatedly and adds up their increases.

use std::collections::BTreeMap;

use lockstep_common::fit_for_terminal;
use lockstep_engine::{ProcessStats, Published, Snapshot};
use rustix::process::geteuid;

/// Maximum number of servers of root and of the asking user, and of all other servers together. Any
/// user can start processes of any name.
const MOST: usize = 64;
/// Maximum number of servers of one other user.
const MOST_OF_ONE: usize = 4;
/// Maximum number of remembered processes, before ended ones are forgotten.
const MOST_PROCESSES: usize = 1 << 13;

/// Counts of servers since the first look.
#[derive(Default)]
pub struct Ledger {
    /// Number of looks.
    looks: u64,
    servers: BTreeMap<Server, Counted>,
    /// Last counters of each process, and the number of the look.
    processes: BTreeMap<Counters, (u64, Snapshot)>,
    /// Files of counters that were not read at the last look, because another version wrote them.
    pub other_versions: usize,
    /// Whether there was more than was looked at then, or there are servers beyond the bounds.
    pub cut_off: bool,
}

/// Name and user of a server, by which its series and lines are called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// Name of its processes, fit for a terminal; empty if it is unknown, because they run in
    /// another PID namespace.
    pub process: String,
    /// The user that loaded the module; `None` for [`OTHERS`].
    pub user: Option<u32>,
}

/// All processes without a server of their own: processes of unknown users, and processes beyond
/// the bounds.
pub const OTHERS: Server = Server {
    process: String::new(),
    user: None,
};

/// Counts and processes of a server.
#[derive(Clone, Default)]
pub struct Counted {
    /// Sum of its processes' counts since the first look. Only counters that grow have a meaning
    /// here, and they never shrink.
    pub total: Snapshot,
    /// Its running processes that have counted something.
    pub running: Vec<ProcessStats>,
    /// Number of further running processes.
    pub idle: usize,
}

/// Key that distinguishes the counters of an engine from all others: a process may have several
/// engines.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Counters {
    file: String,
    pid: u32,
    user: u32,
    elsewhere: Option<u64>,
    started: u64,
}

impl Ledger {
    /// Adds the counts of processes since the last look.
    ///
    /// The first look counts nothing, because a scraper would take all earlier counts for an
    /// increase. Processes of root and of the asking user have servers of their own, and so have
    /// processes of other users for which `is_known` returns true.
    pub fn look(&mut self, found: &Published, is_known: impl Fn(&ProcessStats) -> bool) {
        let is_known = |process: &ProcessStats| is_trusted(process.user) || is_known(process);
        let Published {
            processes, idle, ..
        } = found;
        (self.other_versions, self.cut_off) = (found.other_versions, found.cut_off);
        for counted in self.servers.values_mut() {
            counted.running.clear();
            counted.idle = 0;
        }
        let is_first = self.looks == 0;
        self.looks += 1;
        let runs = |process: &&ProcessStats| process.alive || process.elsewhere.is_some();
        for process in processes.iter().filter(runs) {
            let now = (self.looks, process.snapshot.clone());
            let before = self.processes.insert(Counters::of(process), now);
            let before = before.map(|(_, snapshot)| snapshot);
            let counted = match is_known(process) {
                true => self.server_of(process),
                false => self.servers.entry(OTHERS).or_default(),
            };
            match before {
                Some(before) => counted
                    .total
                    .absorb(&process.snapshot.clone().since(&before)),
                None if is_first => {}
                None => counted.total.absorb(&process.snapshot),
            }
            counted.running.push(process.clone());
        }
        for counted in self.servers.values_mut() {
            merge(&mut counted.running);
        }
        // Programs that have loaded the module and used nothing of it are no servers.
        for process in idle {
            let server = self.servers.get_mut(&Server::of(process));
            if let Some(counted) = server.filter(|_| is_known(process)) {
                let is_it = |other: &ProcessStats| other.pid == process.pid;
                counted.idle += usize::from(!counted.running.iter().any(is_it));
            }
        }
        // A process that was not seen may be seen again: another user can publish so much that some
        // are left out.
        if self.processes.len() > MOST_PROCESSES {
            let looks = self.looks;
            self.processes.retain(|_, (seen, _)| *seen == looks);
        }
    }

    /// All servers that have counted anything since this ledger exists.
    pub fn servers(&self) -> &BTreeMap<Server, Counted> {
        &self.servers
    }

    fn server_of(&mut self, process: &ProcessStats) -> &mut Counted {
        let mut server = Server::of(process);
        if !self.servers.contains_key(&server) && !self.has_room(process.user) {
            self.cut_off = true;
            server = OTHERS;
        }
        self.servers.entry(server).or_default()
    }

    fn has_room(&self, user: u32) -> bool {
        let users = || self.servers.keys().filter_map(|server| server.user);
        let of_trusted = users().filter(|user| is_trusted(*user)).count();
        match is_trusted(user) {
            true => of_trusted < MOST,
            false => {
                let of_one = users().filter(|other| *other == user).count();
                users().count() - of_trusted < MOST && of_one < MOST_OF_ONE
            }
        }
    }
}

/// Whether this is root, or the user who asks.
fn is_trusted(user: u32) -> bool {
    [0, geteuid().as_raw()].contains(&user)
}

impl Server {
    fn of(process: &ProcessStats) -> Server {
        Server {
            process: fit_for_terminal(process.name.as_deref().unwrap_or_default()),
            user: Some(process.user),
        }
    }
}

impl Counters {
    fn of(process: &ProcessStats) -> Counters {
        Counters {
            file: process.file.clone(),
            pid: process.pid,
            user: process.user,
            elsewhere: process.elsewhere,
            started: process.snapshot.started,
        }
    }
}

/// Adds up the counters of each process's engines.
pub fn merge(processes: &mut Vec<ProcessStats>) {
    processes.sort_by_key(key);
    processes.dedup_by(|later, first| {
        let same = key(later) == key(first);
        if same {
            first.snapshot.absorb(&later.snapshot);
        }
        same
    });
}

/// Key of the process of an engine. Any user can write a file about any process of another PID
/// namespace, so entries of two users never belong to one process.
fn key(process: &ProcessStats) -> (u32, u32, Option<u64>, bool) {
    (process.pid, process.user, process.elsewhere, process.alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str, counted: u64) -> ProcessStats {
        let mut snapshot = Snapshot {
            started: 5,
            failed_checks: counted,
            ..Snapshot::default()
        };
        snapshot.by_shape[1] = counted;
        ProcessStats {
            pid,
            file: format!("{pid}-1-0.counters"),
            name: Some(name.to_owned()),
            user: 0,
            alive: true,
            elsewhere: None,
            snapshot,
        }
    }

    fn found(processes: &[ProcessStats]) -> Published {
        Published {
            processes: processes.to_vec(),
            ..Published::default()
        }
    }

    /// Returns the count of a server, and the number of its running processes.
    fn of(ledger: &Ledger, name: &str) -> (u64, usize) {
        let server = Server {
            process: name.to_owned(),
            user: Some(0),
        };
        let counted = &ledger.servers()[&server];
        (
            counted.total.operations(),
            counted.running.len() + counted.idle,
        )
    }

    #[test]
    fn a_hundred_reloads_leave_one_server_that_counts_upwards() {
        let mut ledger = Ledger::default();
        ledger.look(&found(&[process(1, "nginx", 1000)]), |_| true);
        assert_eq!(
            of(&ledger, "nginx"),
            (0, 1),
            "counted before the first look"
        );
        for reload in 1..=100 {
            // The old worker drains, beside the new one, and is gone at the next look.
            let old = process(reload, "nginx", if reload == 1 { 1003 } else { 7 + 3 });
            ledger.look(&found(&[old, process(reload + 1, "nginx", 7)]), |_| true);
            assert_eq!(of(&ledger, "nginx"), (10 * u64::from(reload), 2));
            ledger.look(&found(&[process(reload + 1, "nginx", 7)]), |_| true);
            assert_eq!(of(&ledger, "nginx"), (10 * u64::from(reload), 1));
        }
        assert_eq!(ledger.servers().len(), 1);
        ledger.look(&found(&[]), |_| true);
        assert_eq!(
            of(&ledger, "nginx"),
            (1000, 0),
            "it keeps the sum of those that ended"
        );
    }

    /// For example, a process that is left out for want of room, or while it takes its place.
    #[test]
    fn a_process_that_is_not_seen_for_a_while_counts_once() {
        let mut ledger = Ledger::default();
        ledger.look(&found(&[]), |_| true);
        for counted in [5, 8] {
            ledger.look(&found(&[process(1, "nginx", counted)]), |_| true);
            ledger.look(&found(&[]), |_| true);
        }
        assert_eq!(of(&ledger, "nginx"), (8, 0));
        // A lower count is not subtracted, and a later process with the same number counts anew.
        let mut later = process(1, "nginx", 2);
        ledger.look(&found(&[later.clone()]), |_| true);
        assert_eq!(of(&ledger, "nginx"), (8, 1));
        later.snapshot.started = 6;
        ledger.look(&found(&[later]), |_| true);
        assert_eq!(of(&ledger, "nginx"), (10, 1));
    }

    #[test]
    fn engines_of_one_process_are_one_process_and_ended_ones_are_none() {
        let mut second = process(1, "nginx", 4);
        second.file = "1-2-0.counters".to_owned();
        let mut ended = process(2, "nginx", 4);
        ended.alive = false;
        let mut all = found(&[process(1, "nginx", 3), second, ended]);
        all.idle = vec![
            process(1, "nginx", 0),
            process(3, "nginx", 0),
            process(4, "curl", 0),
        ];
        let mut ledger = Ledger::default();
        ledger.look(&Published::default(), |_| true);
        ledger.look(&all, |_| true);
        assert_eq!(of(&ledger, "nginx"), (7, 2));
        assert_eq!(
            ledger.servers().len(),
            1,
            "what counts nothing is no server"
        );
    }

    #[test]
    fn no_user_makes_more_servers_than_there_is_room_for() {
        let mut ledger = Ledger::default();
        ledger.look(&Published::default(), |_| true);
        let of_user = |user: u32, number: u32| ProcessStats {
            user,
            ..process(number + 1, &format!("a{number}"), 1)
        };
        let all: Vec<_> = (0..100).map(|number| of_user(70_000, number)).collect();
        ledger.look(&found(&all), |_| true);
        assert_eq!(ledger.servers().len(), MOST_OF_ONE + 1);
        let beyond = |ledger: &Ledger| ledger.servers()[&OTHERS].total.operations();
        assert_eq!(beyond(&ledger), 100 - MOST_OF_ONE as u64);
        let all: Vec<_> = (1..1000).map(|user| of_user(70_000 + user, 1)).collect();
        ledger.look(&found(&all), |_| true);
        ledger.look(&found(&[process(1, "nginx", 1)]), |_| true);
        assert_eq!(ledger.servers().len(), MOST + 1 + 1);
        assert_eq!(of(&ledger, "nginx"), (1, 1));
        // A stranger has none.
        let stranger = of_user(70_001, 0);
        let mut ledger = Ledger::default();
        ledger.look(&Published::default(), |_| false);
        ledger.look(&found(&[stranger, process(1, "nginx", 1)]), |_| false);
        assert_eq!((ledger.servers().len(), beyond(&ledger)), (2, 1));
        assert_eq!(of(&ledger, "nginx"), (1, 1));
        // The remembered processes do not grow either.
        for round in 0..3 {
            let all: Vec<_> = (1..6000)
                .map(|pid| process(10_000 * round + pid, "b", 1))
                .collect();
            ledger.look(&found(&all), |_| true);
            assert!(ledger.processes.len() <= MOST_PROCESSES + 6000);
        }
    }
}
