//! Counting tests by the lines that test programs close with, and keeping why some failed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::command::{Outcome, cannot_run};

/// How many tests or checks ended in each way.
#[derive(Clone, Copy, Default)]
pub struct Count {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were left out.
    pub skipped: u64,
}

impl Count {
    /// One that passed.
    pub const PASSED: Count = Count {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    /// One that failed.
    pub const FAILED: Count = Count {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    /// One that was left out.
    pub const SKIPPED: Count = Count {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    /// Adds another count.
    pub fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Reasons for which this process's tests and checks were left out, and the number of each.
static SKIPS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Leaves out a check.
pub fn skip(reason: &str) -> Count {
    keep_skips([&*format!("{SKIPPED}{reason}")].into_iter());
    Count::SKIPPED
}

/// How a line begins that a test prints if it leaves something out. The test counts as passed.
const SKIPPED: &str = "skipped: ";

/// Keeps the reasons in the output of test programs for [`show_skips`].
fn keep_skips<'a>(lines: impl Iterator<Item = &'a str>) {
    let mut kept = SKIPS.lock().unwrap_or_else(PoisonError::into_inner);
    for reason in lines.filter_map(|line| line.strip_prefix(SKIPPED)) {
        *kept.entry(reason.to_owned()).or_default() += 1;
    }
}

/// Prints why tests and checks were left out, and returns the number of reasons that set-up should
/// have removed.
pub fn show_skips() -> u64 {
    let kept = SKIPS.lock().unwrap_or_else(PoisonError::into_inner);
    for (reason, count) in kept.iter() {
        println!("{SKIPPED}{reason} (said {count} times)");
    }
    kept.keys().filter(|reason| !is_of_machine(reason)).count() as u64
}

/// Whether a reason is a property of the machine that no set-up changes: its CPU, its kernel, its
/// version of OpenSSL, a user who is not root.
fn is_of_machine(reason: &str) -> bool {
    reason.starts_with("this ") || reason.contains(" here") || reason.contains(" root")
}

/// The failures of this process's tests, and their reasons.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the failures in the output of test programs for [`show_failures`].
fn keep_failures<'a>(lines: impl Iterator<Item = &'a str>) {
    let mut kept = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend(failures(lines));
}

/// Prints the failures again, for a reader who sees only the end of a long output.
pub fn show_failures() {
    const MOST: usize = 20;
    let kept = FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    for failure in kept.iter().take(MOST) {
        println!("{failure}");
    }
    if kept.len() > MOST {
        println!("and {} more", kept.len() - MOST);
    }
}

/// The names of tests that failed, each with the first lines of its panic's message.
fn failures<'a>(mut lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    const LINES: usize = 3;
    let mut found = Vec::new();
    // The output of the tests stands before the list of failures.
    while lines.by_ref().any(|line| line == "failures:") {
        let mut name = "";
        let mut of_program = lines
            .by_ref()
            .take_while(|line| !line.starts_with("test result: "));
        while let Some(line) = of_program.next() {
            let heading = line.strip_prefix("---- ");
            if let Some(heading) = heading.and_then(|line| line.strip_suffix(" stdout ----")) {
                name = heading;
            } else if line.contains(" panicked at ") && !name.is_empty() {
                let is_message = |line: &&str| !line.is_empty() && *line != "stack backtrace:";
                let message: Vec<&str> = of_program
                    .by_ref()
                    .take(LINES)
                    .take_while(is_message)
                    .collect();
                found.push(format!("{name}: {}", message.join("\n    ")));
                name = "";
            }
        }
    }
    found
}

/// Runs tests of which some may be left out, and counts the tests that ran.
pub fn passed_and_failed(command: &mut Command) -> Outcome<Count> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| cannot_run(command, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut count = counts(&text);
    keep_skips(text.lines());
    keep_failures(text.lines());
    if !output.status.success() {
        print!("{text}");
        count.failed = count.failed.max(1);
    }
    count.skipped = 0;
    Ok(count)
}

/// Runs tests, shows their output, and counts them.
pub fn count(command: &mut Command) -> Outcome<Count> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| cannot_run(command, &error))?;
    let mut count = Count::default();
    let mut lines = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("{line}");
            // None are left out: a program that leaves some out was started by a test, which counts
            // for itself.
            if line.contains("; 0 filtered out") {
                count.add(counts(&line));
            }
            lines.push(line);
        }
    }
    keep_skips(lines.iter().map(String::as_str));
    keep_failures(lines.iter().map(String::as_str));
    let status = child.wait().map_err(|error| cannot_run(command, &error))?;
    if !status.success() && count.failed == 0 {
        // It did not build, or a test process died before it could count.
        count.add(Count::FAILED);
    }
    Ok(count)
}

/// The sum of the counts in the lines by which test programs close.
pub fn counts(output: &str) -> Count {
    let mut sum = Count::default();
    let closing = output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "));
    for part in closing.flat_map(|line| line.split(['.', ';'])) {
        let Some((number, what)) = part.trim().split_once(' ') else {
            continue;
        };
        let number = number.parse().unwrap_or(0);
        match what {
            "passed" => sum.passed += number,
            "failed" => sum.failed += number,
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_with_their_messages() {
        let output = "
successes:

---- a::works stdout ----
thread 'a::works' panicked at a.rs:1:2:
as it should

failures:

---- a::fails stdout ----
skipped: nothing
thread 'a::fails' (7) panicked at a.rs:3:4:
what it says
and more
stack backtrace:
   0: __rustc::rust_begin_unwind
thread 'a::fails' (7) panicked at a.rs:5:6:
while it is dropped

---- b::fails stdout ----
thread 'b::fails' (8) panicked at b.rs:1:2:
what that one says

failures:
    a::fails
    b::fails

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
failures:
---- c::fails stdout ----
thread 'c::fails' (9) panicked at c.rs:1:2:
what a third says";
        let expected = [
            "a::fails: what it says\n    and more",
            "b::fails: what that one says",
            "c::fails: what a third says",
        ];
        assert_eq!(failures(output.lines()), expected);
    }

    #[test]
    fn counts_are_read_from_closing_lines() {
        let output = "test engine::works ... ok
test result: FAILED. 31 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.52s
2 passed; nothing else
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 36 filtered out; finished in 0.02s";
        let count = counts(output);
        assert_eq!((count.passed, count.failed), (32, 2));
        let none = counts("test engine::works ... ok");
        assert_eq!((none.passed, none.failed), (0, 0));
    }

    #[test]
    fn a_missing_program_is_told_from_a_missing_instruction() {
        let of_machine = [
            "this CPU lacks VAES",
            "`cpuid` cannot be made to fault here",
            "only root can become another user",
        ];
        assert!(of_machine.into_iter().all(is_of_machine));
        let of_set_up = ["swtpm is not installed", "there is no promtool"];
        assert!(!of_set_up.into_iter().any(is_of_machine));
    }
}
