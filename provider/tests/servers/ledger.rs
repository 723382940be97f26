//! The memory of a server, block by block: `ledger.c`, preloaded into its processes, keeps account.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::compiler::compile;
use crate::site::Site;

/// Memory and descriptors of the serving processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Blocks from malloc that the module's code has asked for,
    pub blocks: i64,
    /// and their bytes.
    pub bytes: i64,
    /// Mappings that it has asked for: stacks for kernels.
    pub stacks: i64,
    /// Blocks from malloc that anybody has asked for.
    pub all: i64,
    /// Eventfds of all code,
    pub events: i64,
    /// and other descriptors.
    pub descriptors: i64,
    /// Async jobs that were lost.
    pub jobs: i64,
}

impl Account {
    /// Whether no count is above that of `most`.
    pub fn is_within(&self, most: &Account) -> bool {
        let counts = |account: &Account| {
            [
                account.blocks,
                account.bytes,
                account.stacks,
                account.all,
                account.events,
                account.descriptors,
                account.jobs,
            ]
        };
        counts(self)
            .iter()
            .zip(counts(most))
            .all(|(count, most)| *count <= most)
    }
}

impl Site {
    /// Keeps account of all processes that are started from now on.
    pub fn keep_ledger(&mut self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/ledger.c");
        let library = self.path("ledger.so");
        // The compiler must not use its knowledge of malloc here.
        compile(&source, &library, &["-shared", "-fPIC", "-fno-builtin"]);
        // By the user that runs the server.
        self.shell("mkdir ledger");
        self.set("LEDGER", self.path("ledger"));
        self.set("LD_PRELOAD", library);
    }

    /// Returns the current account of the serving processes.
    pub fn account(&self) -> Account {
        let mut sum = Account {
            jobs: self.counters().lost as i64,
            ..Account::default()
        };
        for pid in self.workers() {
            let page = fs::read(self.path("ledger").join(pid.to_string())).expect("a ledger");
            let mut words = page
                .chunks_exact(size_of::<i64>())
                .map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes")));
            // In the order of `struct account`.
            let mut next = || words.next().expect("a page");
            sum.blocks += next();
            sum.bytes += next();
            sum.stacks += next();
            let _stack_bytes = next();
            sum.all += next();
        }
        let descriptors = self.descriptors();
        let is_event = |to: &&String| *to == "anon_inode:[eventfd]";
        sum.events = descriptors.iter().filter(is_event).count() as i64;
        sum.descriptors = descriptors.len() as i64 - sum.events;
        sum
    }

    /// Returns the targets of the serving processes' descriptors.
    pub fn descriptors(&self) -> Vec<String> {
        let links = self.workers().into_iter().flat_map(|pid| {
            let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
            links.filter_map(|link| fs::read_link(link.ok()?.path()).ok())
        });
        links.map(|to| to.display().to_string()).collect()
    }

    /// Returns the account at rest: connections have ended, and the module's counters do not
    /// change.
    pub fn account_at_rest(&self) -> Account {
        const REST: Duration = Duration::from_millis(250);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut last = self.account();
        let mut since = Instant::now();
        while since.elapsed() < REST {
            assert!(Instant::now() < deadline, "{last:?} still changes");
            sleep(Duration::from_millis(10));
            let now = self.account();
            if (now.blocks, now.jobs) != (last.blocks, last.jobs) {
                since = Instant::now();
            }
            last = now;
        }
        last
    }
}
