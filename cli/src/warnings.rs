//! Warnings from the counters of a process, for its administrator.

use lockstep_engine::{Fallback, Snapshot};

use crate::keyd::restart;

/// A warning for the administrator.
#[derive(Debug, PartialEq, Eq)]
pub struct Warning {
    pub about: About,
    pub what: String,
    pub remedy: String,
}

/// Subject of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Settings that have no effect.
    Settings,
    /// Results that failed their check.
    Checks,
    /// Asynchronous jobs.
    Jobs,
    /// Memory for keys.
    Memory,
    /// Keys that the key daemon leaves out.
    Keys,
}

impl About {
    pub fn name(self) -> &'static str {
        match self {
            About::Settings => "settings",
            About::Checks => "checks",
            About::Jobs => "jobs",
            About::Memory => "memory",
            About::Keys => "keys",
        }
    }
}

/// Returns all warnings about a process, the most serious first.
pub fn warnings(snapshot: &Snapshot) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |about, what, remedy: &str| add(&mut warnings, about, what, remedy);
    if snapshot.failed_checks > 0 {
        let results = match snapshot.failed_checks {
            1 => "1 result failed its check, and was discarded".to_owned(),
            many => format!("{many} results failed their check, and were discarded"),
        };
        warn(
            About::Checks,
            format!(
                "{results}. OpenSSL's own code computed instead. The CPU or the memory of this \
                 machine may be faulty, or the parts of a key contradict each other"
            ),
            "look for machine check errors (dmesg), and run `openssl pkey -check` on the server's \
             keys; until the cause is found, set backend = none and restart the server, because \
             signatures on curves are checked by sample only",
        );
    }
    if !snapshot.mistakes.is_empty() {
        warn(
            About::Settings,
            format!(
                "settings with mistakes have no effect, and their defaults hold: {}",
                snapshot.mistakes
            ),
            "correct them and restart the program; `lockstep doctor` checks them",
        );
    }
    if snapshot.keys_left_out > 0 {
        let keys = match snapshot.keys_left_out {
            1 => "1 key of its configuration is".to_owned(),
            many => format!("{many} keys of its configuration are"),
        };
        warn(
            About::Keys,
            format!("{keys} not served, because the key daemon cannot read or use it"),
            &format!(
                "`lockstep keyd check` names each and says why; then: {}",
                restart()
            ),
        );
    }
    warnings.extend(of_jobs(snapshot));
    warnings.extend(of_shared_memory(snapshot));
    warnings.extend(of_key_memory(snapshot));
    warnings
}

/// Warnings about bounds on async jobs. A bound counts as near at three quarters.
fn of_jobs(snapshot: &Snapshot) -> Vec<Warning> {
    let near = |count: u64, most: u64| most > 0 && count >= most - most / 4;
    let mut warnings = Vec::new();
    let mut warn = |about, what, remedy: &str| add(&mut warnings, about, what, remedy);
    if near(snapshot.paused, snapshot.max_async) {
        warn(
            About::Jobs,
            format!(
                "{} of at most {} async jobs are paused; further ones will block their thread",
                snapshot.paused, snapshot.max_async
            ),
            "if the server is that busy, raise max_async",
        );
    }
    if near(snapshot.lost, snapshot.max_lost) {
        warn(
            About::Jobs,
            format!(
                "{} of at most {} async jobs are lost, with 32 KiB each, because their \
                 connections ended while they were paused; further jobs will block their thread",
                snapshot.lost, snapshot.max_lost
            ),
            "restart or reload the server",
        );
    }
    if near(snapshot.no_descriptor, snapshot.async_submitted) {
        warn(
            About::Jobs,
            "most async jobs do not pause, because more than half of the file descriptors that \
             the process may have are in use"
                .to_owned(),
            "raise its limit (LimitNOFILE in a unit of systemd)",
        );
    }
    warnings
}

/// A warning about a process with memory that others share.
fn of_shared_memory(snapshot: &Snapshot) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |about, what, remedy: &str| add(&mut warnings, about, what, remedy);
    if snapshot.fallbacks_for(Fallback::SharedMemory) > 0 {
        warn(
            About::Memory,
            "lockstep offers nothing in this process, and OpenSSL's own code computes everything: \
             the program gives OpenSSL memory that several of its processes share, or may share"
                .to_owned(),
            "nothing is wrong; to leave lockstep out of this program, take OPENSSL_CONF out of its \
             environment",
        );
    }
    warnings
}

/// Warnings about memory for keys that may get into swap space or core dumps.
fn of_key_memory(snapshot: &Snapshot) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |about, what, remedy: &str| add(&mut warnings, about, what, remedy);
    let unlocked = snapshot
        .key_memory
        .saturating_sub(snapshot.key_memory_locked);
    if unlocked > 0 {
        warn(
            About::Memory,
            format!(
                "{} of {} of memory for keys are not locked, because lockstep locks at most half of \
                 the limit of the process (RLIMIT_MEMLOCK), or because the system refused; keys \
                 there may be written to swap space",
                kibibytes(unlocked),
                kibibytes(snapshot.key_memory)
            ),
            &format!(
                "let it lock {} at least (LimitMEMLOCK= in a unit of systemd, ulimit -l in a \
                 shell), or use no swap space that is not encrypted",
                kibibytes(snapshot.key_memory.saturating_mul(2))
            ),
        );
    }
    if snapshot.key_memory_heap > 0 {
        warn(
            About::Memory,
            format!(
                "{} of keys lie on the heap, because there was no memory to map; they may be in \
                 core dumps and in swap space",
                kibibytes(snapshot.key_memory_heap)
            ),
            "give the process more memory or address space (RLIMIT_AS), or forbid core dumps",
        );
    }
    warnings
}

fn add(warnings: &mut Vec<Warning>, about: About, what: String, remedy: &str) {
    let remedy = remedy.to_owned();
    #[rustfmt::skip]
    warnings.push(Warning { about, what, remedy });
}

/// A size, rounded up.
pub fn kibibytes(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_administrators_names_every_reason_of_a_fallback() {
        let page = include_str!("../../docs/user/troubleshooting.md");
        for reason in lockstep_engine::Fallback::ALL {
            let row = format!("| `{}` |", reason.name());
            assert!(page.contains(&row), "no row for {}", reason.name());
        }
    }

    #[test]
    fn bounds_that_are_near_are_named() {
        let mut snapshot = Snapshot {
            max_async: 1024,
            max_lost: 16384,
            paused: 767,
            lost: 12287,
            async_submitted: 100_000,
            ..Snapshot::default()
        };
        assert_eq!(warnings(&snapshot), []);
        (snapshot.paused, snapshot.lost) = (768, 12288);
        let found = warnings(&snapshot);
        let starts: Vec<_> = found.iter().map(|found| &found.what[..20]).collect();
        assert_eq!(starts, ["768 of at most 1024 ", "12288 of at most 163"]);
        assert!(found.iter().all(|found| found.about == About::Jobs));
    }

    #[test]
    fn keys_that_are_left_out_are_counted() {
        let snapshot = |keys_left_out| Snapshot {
            keys_left_out,
            ..Snapshot::default()
        };
        assert_eq!(warnings(&snapshot(0)), []);
        for (count, expected) in [(1, "1 key of its "), (2, "2 keys of its")] {
            let found = warnings(&snapshot(count));
            let [Warning { about, what, .. }] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!((*about, &what[..13]), (About::Keys, expected));
        }
    }

    #[test]
    fn memory_that_is_not_locked_is_named() {
        let mut snapshot = Snapshot {
            key_memory: 98304,
            key_memory_locked: 98304,
            ..Snapshot::default()
        };
        assert_eq!(warnings(&snapshot), []);
        (snapshot.key_memory_locked, snapshot.key_memory_heap) = (32768, 100);
        let found = warnings(&snapshot);
        let [unlocked, heap] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(
            unlocked.what.starts_with("64 KiB of 96 KiB of memory"),
            "{found:?}"
        );
        assert!(
            unlocked.remedy.starts_with("let it lock 192 KiB"),
            "{found:?}"
        );
        assert!(
            heap.what.starts_with("1 KiB of keys lie on the heap"),
            "{found:?}"
        );
        assert!(found.iter().all(|found| found.about == About::Memory));
    }

    #[test]
    fn a_process_in_which_nothing_is_offered_is_named() {
        let mut snapshot = Snapshot::default();
        snapshot.by_reason[Fallback::SharedMemory as usize] = 1;
        let found = warnings(&snapshot);
        let [shared] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(shared.about, About::Memory);
        assert!(
            shared.what.contains("several of its processes share"),
            "{found:?}"
        );
    }

    #[test]
    fn failed_checks_come_first() {
        let mut snapshot = Snapshot {
            mistakes: "slots is 'many'".to_owned(),
            failed_checks: 1,
            no_descriptor: 9,
            async_submitted: 10,
            ..Snapshot::default()
        };
        let found = warnings(&snapshot);
        let about: Vec<_> = found.iter().map(|found| found.about).collect();
        assert_eq!(about, [About::Checks, About::Settings, About::Jobs]);
        assert!(found[1].what.ends_with(": slots is 'many'"));
        assert!(found[0].what.starts_with("1 result failed its check"));
        snapshot.failed_checks = 2;
        let what = &warnings(&snapshot)[0].what;
        assert!(what.starts_with("2 results failed their check"), "{what}");
    }
}
