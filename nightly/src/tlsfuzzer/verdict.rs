//! The output of a script: the conversations that a server passed, and what the module loses.

use std::path::PathBuf;

use crate::beside::{Results, differences};

/// The verdicts of a script about both servers.
pub struct Pair {
    pub sides: [Verdict; 2],
    /// Whether OpenSSL alone is no measure.
    pub is_added: bool,
}

impl Pair {
    /// The verdict that counts.
    pub fn measure(&self) -> &Verdict {
        &self.sides[usize::from(self.is_added)]
    }

    /// The conversations that the server with the module should pass, and does not. If nothing
    /// passed without the module, nothing can be lost.
    pub fn lost(&self) -> Vec<String> {
        let [stock, with] = &self.sides;
        let all = Results::from([(ENDED.0.to_owned(), ENDED.1.to_owned())]);
        let stock = match self.is_added {
            true => &all,
            false if stock.passed == 0 => return Vec::new(),
            false => &stock.results,
        };
        // A conversation that failed without the module may end in any way with it.
        differences(stock, &with.results, |name, stock, with| match name {
            name if name == ENDED.0 => stock != Some(ENDED.1),
            _ => with.is_none(),
        })
    }
}

/// The result of a script that said how many conversations passed.
const ENDED: (&str, &str) = ("the script", "came to its end");

/// The verdict of a script about a server.
pub struct Verdict {
    pub passed: u64,
    /// [`ENDED`], and the conversations that failed.
    pub results: Results,
    pub log: PathBuf,
}

impl Verdict {
    /// Reads the summary at the end of its output.
    pub fn read(text: &str, succeeded: bool, log: PathBuf) -> Verdict {
        let (_, summary) = text.split_once("\nTest end").unwrap_or_default();
        let count = summary.lines().find_map(|line| line.strip_prefix("PASS: "));
        let passed = count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0);
        let (_, failed) = summary.split_once("\nFAILED:").unwrap_or_default();
        let failed = failed
            .lines()
            .skip(1)
            .map_while(|line| line.strip_prefix('\t'));
        let failed = failed.map(|name| (name.to_owned(), "failed".to_owned()));
        let mut results: Results = failed.collect();
        let ended = match passed > 0 && (succeeded || !results.is_empty()) {
            true => ENDED.1,
            false => "broke off",
        };
        results.insert(ENDED.0.to_owned(), ended.to_owned());
        Verdict {
            passed,
            results,
            log,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "sanity ...\nOK\n\nTest end\n====\nTOTAL: 3\nPASS: 3\nFAIL: 0\n====\n";
    const BAD: &str = "sanity ...\nTest end\n====\nTOTAL: 3\nPASS: 1\nFAIL: 2\n====\nFAILED:\n\
                       \t'one'\n\t'two'\n";
    const CUT: &str = "sanity ...\nTraceback\n";

    fn read(text: &str) -> Verdict {
        Verdict::read(text, text == GOOD, PathBuf::new())
    }

    fn lost(stock: &str, with: &str, is_added: bool) -> Vec<String> {
        let sides = [read(stock), read(with)];
        Pair { sides, is_added }.lost()
    }

    #[test]
    fn a_summary_is_read() {
        let verdict = read(BAD);
        assert_eq!(verdict.passed, 1);
        let names: Vec<&String> = verdict.results.keys().collect();
        assert_eq!(names, ["'one'", "'two'", ENDED.0]);
        assert_eq!(verdict.results[ENDED.0], ENDED.1);
        assert_eq!(read(CUT).results[ENDED.0], "broke off");
        let killed = Verdict::read(GOOD, false, PathBuf::new());
        assert_eq!(killed.results[ENDED.0], "broke off");
    }

    #[test]
    fn only_what_the_module_loses_is_a_finding() {
        assert!(lost(BAD, GOOD, false).is_empty());
        assert!(lost(BAD, BAD, false).is_empty());
        assert!(lost(CUT, GOOD, false).is_empty());
        assert_eq!(lost(GOOD, BAD, false).len(), 2);
        assert_eq!(lost(GOOD, CUT, false).len(), 1);
        let nothing = "sanity ...\nTest end\nPASS: 0\nFAILED:\n\t'three'\n";
        assert!(lost(nothing, BAD, false).is_empty());
        // The module's additions must pass.
        assert!(lost(CUT, GOOD, true).is_empty());
        assert_eq!(lost(BAD, BAD, true).len(), 2);
        assert_eq!(lost(CUT, CUT, true).len(), 1);
    }
}
