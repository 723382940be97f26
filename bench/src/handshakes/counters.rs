//! The module's counters in a server, from one moment to another.

use std::path::Path;

use lockstep_common::Failure;
use lockstep_engine::{Fallback, Shape, Snapshot, read_stats};

/// Sums over all processes of a server.
#[derive(Clone, Debug)]
pub struct Counters {
    all: Snapshot,
    /// The module's shape of a signature with the server's key.
    signing: Shape,
}

impl Counters {
    /// Reads the counters of the processes that publish in `directory`.
    pub fn read(directory: &Path, signing: Shape) -> Result<Counters, Failure> {
        let processes = read_stats(directory).map_err(|error| {
            Failure::new(format!("cannot read {}: {error}", directory.display()))
        })?;
        let mut all = Snapshot::default();
        for process in &processes {
            all.absorb(&process.snapshot);
        }
        Ok(Counters { all, signing })
    }

    pub fn plus(mut self, other: &Counters) -> Counters {
        self.all.absorb(&other.all);
        self
    }

    /// The increase since then.
    pub fn since(self, earlier: &Counters) -> Counters {
        Counters {
            all: self.all.since(&earlier.all),
            ..self
        }
    }

    /// Requests that ran on lanes.
    pub fn operations(&self) -> u64 {
        self.all.operations()
    }

    /// Of these, signatures with a key of the server's kind.
    pub fn signatures(&self) -> u64 {
        self.all.operations_of(self.signing)
    }

    /// Results that did not pass their check.
    pub fn failed_checks(&self) -> u64 {
        self.all.failed_checks
    }

    /// Requests per pass of the lanes on average; `None` without a pass.
    pub fn fill(&self) -> Option<f64> {
        (self.all.passes > 0).then(|| self.all.average_fill())
    }

    /// Requests and keys that were left to OpenSSL's own implementation, with the reason, those
    /// without any left out.
    pub fn fallbacks(&self) -> impl Iterator<Item = (Fallback, u64)> {
        let all = Fallback::ALL.iter().copied().zip(self.all.by_reason);
        all.filter(|(_, count)| *count > 0)
    }
}
