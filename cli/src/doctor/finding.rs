//! A finding: doctor's answer to one question.

use lockstep_common::{line_for_terminal, outln};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What stands before a finding: red or yellow, where colours are wanted, if it needs
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
#[derive(Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    pub what: String,
    pub remedy: Option<String>,
}

impl Finding {
    pub fn print(&self, coloured: bool) {
        let mark = self.verdict.mark(coloured);
        // Names of processes and files are chosen by others.
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

/// All findings so far, in order.
#[derive(Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Adds one. Returns `None` if it is a failure: `?` then ends the questions, because the next
    /// one would make no sense.
    pub fn say(&mut self, (check, (verdict, what, remedy)): Named) -> Option<()> {
        #[rustfmt::skip]
        self.0.push(Finding { check, verdict, what, remedy });
        (verdict != Verdict::Failed).then_some(())
    }

    /// Adds all of these, whatever they are.
    pub fn say_all(&mut self, all: impl IntoIterator<Item = Named>) {
        for named in all {
            let _ = self.say(named);
        }
    }
}

/// Verdict, what, remedy.
pub type Answer = (Verdict, String, Option<String>);

/// The name of a check with its answer.
pub type Named = (&'static str, Answer);

/// All is well.
pub fn good(check: &'static str, what: impl Into<String>) -> Named {
    (check, (Verdict::Good, what.into(), None))
}

/// Something to know, about which nothing need be done.
pub fn note(check: &'static str, what: impl Into<String>) -> Named {
    (check, (Verdict::Note, what.into(), None))
}

/// Something to know, with what may be done about it.
pub fn advice(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Named {
    (check, (Verdict::Note, what.into(), Some(remedy.into())))
}

/// Lanes are in use, and something needs attention.
pub fn warning(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Named {
    let answer = (Verdict::Warning, what.into(), Some(remedy.into()));
    (check, answer)
}

/// Something prevents the use of lanes, or of a key.
pub fn failed(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Named {
    (check, (Verdict::Failed, what.into(), Some(remedy.into())))
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
