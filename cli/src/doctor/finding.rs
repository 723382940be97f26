//! A finding: a row with a question, the verdict, the evidence, and a remedy.

use lockstep_common::{Failure, line_for_terminal, outln};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    #[serde(rename = "ok")]
    Good,
    Failed,
    /// Lanes are in use, and something needs attention.
    Warning,
    Note,
}

impl Verdict {
    /// Returns the mark in front of a finding: red or yellow, where colours are wanted, if it needs
    /// attention.
    pub fn mark(self, coloured: bool) -> &'static str {
        match (self, coloured) {
            (Verdict::Good, _) => "ok    ",
            (Verdict::Failed, false) => "FAILED",
            (Verdict::Failed, true) => "\x1b[1;31mFAILED\x1b[0m",
            (Verdict::Warning, false) => "warn  ",
            (Verdict::Warning, true) => "\x1b[33mwarn\x1b[0m  ",
            (Verdict::Note, _) => "note  ",
        }
    }
}

/// The answer to one question.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The question, by the name of its check.
    pub check: &'static str,
    pub verdict: Verdict,
    /// The evidence, and its meaning.
    pub what: String,
    pub remedy: Option<String>,
}

impl Finding {
    /// A finding with this evidence and this remedy.
    pub fn with(check: &'static str, verdict: Verdict, (what, remedy): Told) -> Finding {
        #[rustfmt::skip]
        return Finding { check, verdict, what, remedy };
    }

    /// A finding with the evidence and the remedy of a failure.
    pub fn of(check: &'static str, verdict: Verdict, failure: Failure) -> Finding {
        Finding::with(check, verdict, (failure.what, failure.remedy))
    }

    pub fn print(&self, coloured: bool) {
        let mark = self.verdict.mark(coloured);
        // Other users choose the names of processes and files, which may have control characters.
        outln!(
            "{mark} {:<13} {}",
            self.check,
            line_for_terminal(&self.what)
        );
        if let Some(remedy) = &self.remedy {
            outln!("       remedy:       {}", line_for_terminal(remedy));
        }
    }
}

/// Evidence and a remedy, as another process tells them.
pub type Told = (String, Option<String>);

/// All findings so far, in order.
#[derive(Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Adds a finding. Returns `None` if the verdict is `Failed`: `?` then ends the questions,
    /// because the next question would make no sense.
    pub fn say(&mut self, finding: Finding) -> Option<()> {
        let is_failure = finding.verdict == Verdict::Failed;
        self.0.push(finding);
        (!is_failure).then_some(())
    }

    /// Adds all of these, failures included.
    pub fn say_all(&mut self, all: impl IntoIterator<Item = Finding>) {
        self.0.extend(all);
    }
}

/// An answer without any problem.
pub fn good(check: &'static str, what: impl Into<String>) -> Finding {
    Finding::of(check, Verdict::Good, Failure::new(what))
}

/// A fact that needs no action.
pub fn note(check: &'static str, what: impl Into<String>) -> Finding {
    Finding::of(check, Verdict::Note, Failure::new(what))
}

/// A fact, and a possible action.
pub fn advice(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::of(check, Verdict::Note, Failure::new(what).remedy(remedy))
}

/// A fact that needs attention although lanes are in use.
pub fn warning(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::of(check, Verdict::Warning, Failure::new(what).remedy(remedy))
}

/// A reason why lanes or a key cannot be used.
pub fn failed(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::of(check, Verdict::Failed, Failure::new(what).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_attention_is_red_or_yellow_on_a_terminal() {
        assert_eq!(Verdict::Failed.mark(true), "\x1b[1;31mFAILED\x1b[0m");
        assert_eq!(Verdict::Warning.mark(true), "\x1b[33mwarn\x1b[0m  ");
        for verdict in [
            Verdict::Good,
            Verdict::Failed,
            Verdict::Warning,
            Verdict::Note,
        ] {
            assert_eq!(verdict.mark(false).len(), 6);
            assert!(!verdict.mark(false).contains('\x1b'));
        }
    }
}
