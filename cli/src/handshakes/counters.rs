//! What the module has counted in a server, from one moment to another.

use std::path::Path;

use lockstep_engine::{Fallback, Shape, Snapshot, read_stats};

use crate::Failure;

/// Sums over all processes of a server.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Requests that ran on lanes.
    pub operations: u64,
    /// Of these, signatures with a key of the server's kind.
    pub signatures: u64,
    /// Passes of the lanes, and requests in them.
    passes: u64,
    filled: u64,
    /// Results that did not pass their check.
    pub failed_checks: u64,
    by_reason: [u64; Fallback::ALL.len()],
}

impl Counters {
    /// Reads what the processes that publish in `directory` have counted so far; `signing` is what a
    /// signature with the server's key is to them.
    pub fn read(directory: &Path, signing: Shape) -> Result<Counters, Failure> {
        let processes = read_stats(directory).map_err(|error| {
            Failure::new(format!("cannot read {}: {error}", directory.display()))
        })?;
        let of_each = processes
            .iter()
            .map(|process| Counters::of(&process.snapshot, signing));
        Ok(of_each.fold(Counters::default(), |sum, one| sum.plus(&one)))
    }

    fn of(snapshot: &Snapshot, signing: Shape) -> Counters {
        let filled = (1..)
            .zip(snapshot.pass_fill)
            .map(|(fill, passes)| fill * passes);
        Counters {
            operations: snapshot.operations(),
            signatures: snapshot.operations_of(signing),
            passes: snapshot.passes,
            filled: filled.sum(),
            failed_checks: snapshot.failed_checks,
            by_reason: snapshot.by_reason,
        }
    }

    pub fn plus(&self, other: &Counters) -> Counters {
        self.combined(other, u64::wrapping_add)
    }

    /// What was counted since.
    pub fn since(&self, earlier: &Counters) -> Counters {
        self.combined(earlier, u64::saturating_sub)
    }

    fn combined(&self, other: &Counters, combine: fn(u64, u64) -> u64) -> Counters {
        let mut by_reason = self.by_reason;
        for (count, other) in by_reason.iter_mut().zip(other.by_reason) {
            *count = combine(*count, other);
        }
        Counters {
            operations: combine(self.operations, other.operations),
            signatures: combine(self.signatures, other.signatures),
            passes: combine(self.passes, other.passes),
            filled: combine(self.filled, other.filled),
            failed_checks: combine(self.failed_checks, other.failed_checks),
            by_reason,
        }
    }

    /// Requests per pass of the lanes on average; `None` without a pass.
    pub fn fill(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.filled as f64 / self.passes as f64)
    }

    /// Requests and keys that went to stock OpenSSL, with the reason, those without any left out.
    pub fn fallbacks(&self) -> impl Iterator<Item = (Fallback, u64)> {
        let all = Fallback::ALL.iter().copied().zip(self.by_reason);
        all.filter(|(_, count)| *count > 0)
    }
}
