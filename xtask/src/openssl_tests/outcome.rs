//! What came of a program of OpenSSL's tests, and what differs between two runs of it.

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

/// The tests in the output of a program. They stand on lines of their own, indented by depth; an
/// older program says `PASS` alone. `evp_test` counts what a file holds on its standard error.
pub fn read_tests(stdout: &str, stderr: &str) -> Ended {
    let is_test = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("ok ") || line.starts_with("not ok ") || line == "PASS"
    };
    let mut tests: Vec<String> = stdout
        .lines()
        .filter(is_test)
        .map(|line| line.trim_end().to_owned())
        .collect();
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

/// What differs between a run without the module and one with it, in words.
pub fn differences(stock: &Ended, with: &Ended) -> Vec<String> {
    const MOST: usize = 10;
    let mut found = Vec::new();
    if stock.status != with.status {
        found.push(format!(
            "the program ends with {}, without the module with {}",
            with.status, stock.status
        ));
    }
    for index in 0..stock.tests.len().max(with.tests.len()) {
        let of = |ended: &Ended| ended.tests.get(index).cloned().unwrap_or_default();
        let (stock, with) = (of(stock), of(with));
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
