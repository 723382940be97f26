//! The outcome of a program of OpenSSL's tests, and the differences between two runs of it.

use std::ops::Range;

/// What a program reported and did.
#[derive(Default)]
pub struct Ended {
    /// Every test in order, as `ok 3 - name`, and the counts that `evp_test` gives of its own.
    pub tests: Vec<String>,
    pub cases: u64,
    pub status: String,
    /// Operations on lanes, and key derivations and contexts of AES-GCM by the module.
    pub accelerated: u64,
}

/// Tests with an iteration for each implementation of a cipher.
const OF_ALL_CIPHERS: &[&str] = &["test_cipher_reinit", "test_cipher_reinit_partialupdate"];

/// Implementations of ciphers that the module adds: AES-GCM with three lengths of keys.
const OWN_CIPHERS: usize = 3;

/// The tests in the output of a program. They stand on lines of their own, indented by depth; an
/// older program says `PASS` alone. `evp_test` counts what a file holds on its standard error.
pub fn read_tests(stdout: &str, stderr: &str) -> Ended {
    let is_test = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("ok ") || line.starts_with("not ok ") || line == "PASS"
    };
    let mut tests: Vec<String> = stdout.lines().filter(is_test).map(unnumbered).collect();
    let mut cases = tests.len() as u64;
    for line in stderr.lines() {
        let line = line.trim_start_matches([' ', '#']);
        // `Completed 77 tests with 0 errors and 0 skipped`
        let count = line
            .strip_prefix("Completed ")
            .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        if let Some(count) = count {
            cases += count;
            tests.push(line.to_owned());
        }
    }
    Ended {
        tests,
        cases,
        ..Ended::default()
    }
}

/// A test as it is compared. Iterations have a number within their test, and another one that
/// counts those of all tests.
fn unnumbered(line: &str) -> String {
    let line = line.trim_end();
    match line.split_once(" - iteration ") {
        Some((outcome, iteration)) => {
            let outcome = outcome.trim_end_matches(|c: char| c.is_ascii_digit());
            format!("{outcome}- iteration {iteration}")
        }
        None => line.to_owned(),
    }
}

/// The iterations of a test, which stand before it.
fn iterations(tests: &[String], name: &str) -> Range<usize> {
    let is_it = |line: &String| line.split_once(" - ").is_some_and(|(_, rest)| rest == name);
    let end = tests.iter().position(is_it).unwrap_or(0);
    let is_other = |line: &String| !line.contains("- iteration ");
    let start = tests[..end].iter().rposition(is_other);
    start.map_or(0, |before| before + 1)..end
}

/// Tests of a run with the module, without the iterations that it adds, if these are good.
fn without_own_ciphers(stock: &[String], with: &[String]) -> Vec<String> {
    let mut tests = with.to_vec();
    for name in OF_ALL_CIPHERS {
        let (expected, found) = (iterations(stock, name), iterations(&tests, name));
        let added = found.start + expected.len()..found.end;
        let is_good = |line: &String| line.trim_start().starts_with("ok ");
        if added.len() == OWN_CIPHERS && tests[added.clone()].iter().all(is_good) {
            tests.drain(added);
        }
    }
    tests
}

/// What differs between a run without the module and one with it, in words.
pub fn differences(stock: &Ended, with: &Ended) -> Vec<String> {
    const MOST: usize = 10;
    let tests = without_own_ciphers(&stock.tests, &with.tests);
    let mut found = Vec::new();
    if stock.status != with.status {
        found.push(format!(
            "the program ends with {}, without the module with {}",
            with.status, stock.status
        ));
    }
    for index in 0..stock.tests.len().max(tests.len()) {
        let of = |tests: &[String]| tests.get(index).cloned().unwrap_or_default();
        let (stock, with) = (of(&stock.tests), of(&tests));
        if stock != with {
            found.push(format!("{with:?}, without the module {stock:?}"));
        }
    }
    found.truncate(MOST);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_that_the_module_adds_are_no_difference_if_they_are_good() {
        let run = |ciphers: usize, last: &str| {
            let mut stdout = String::new();
            let mut number = 0;
            for (index, name) in ["one", OF_ALL_CIPHERS[0], OF_ALL_CIPHERS[1]]
                .iter()
                .enumerate()
            {
                for iteration in 1..=ciphers {
                    number += 1;
                    let outcome = if iteration == ciphers { last } else { "ok" };
                    stdout += &format!("    {outcome} {number} - iteration {iteration}\n");
                }
                stdout += &format!("ok {} - {name}\n", index + 1);
            }
            read_tests(&stdout, "")
        };
        let stock = run(5, "ok");
        assert!(differences(&stock, &run(5, "ok")).is_empty());
        // The first test has no reason to have more of them.
        assert!(!differences(&stock, &run(8, "ok")).is_empty());
        let ciphers = |ended: Ended| Ended {
            tests: ended.tests[iterations(&ended.tests, "one").end..].to_vec(),
            ..ended
        };
        let stock = ciphers(stock);
        assert!(differences(&stock, &ciphers(run(8, "ok"))).is_empty());
        for different in [run(8, "not ok"), run(7, "ok"), run(9, "ok"), run(4, "ok")] {
            assert!(!differences(&stock, &ciphers(different)).is_empty());
        }
    }

    const STDOUT: &str = "1..2
    # Subtest: many
    1..2
    ok 1 - iteration 1
    not ok 2 - iteration 2
    # OPENSSL_TEST_RAND_ORDER=1795371940
not ok 1 - many
ok 2 - one # skipped
";
    const STDERR: &str = "    # INFO:  @ test/testutil/stanza.c:32
    # Completed 77 tests with 1 errors and 2 skipped
";

    #[test]
    fn tests_are_read_and_compared() {
        let mut stock = read_tests(STDOUT, STDERR);
        stock.status = "exit status: 1".to_owned();
        assert_eq!(stock.cases, 4 + 77);
        let mut with = read_tests(
            &STDOUT.replace("=1795371940", "=1795371941"),
            &STDERR.replace("77 tests with 1", "77 tests with 2"),
        );
        with.status = "signal: 11".to_owned();
        let found = differences(&stock, &with);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("signal: 11"));
        assert!(found[1].contains("2 errors"));
        // The rest is missing.
        let cut = read_tests(STDOUT.split_once("not ok 1").unwrap().0, "");
        assert_eq!(differences(&stock, &cut).len(), 4);
        assert!(differences(&stock, &stock).is_empty());
    }
}
