//! The results of one OpenSSL without the module and with it, and their differences.

use serde::{Deserialize, Serialize};

use crate::beside::{differences, results};

/// The result of one check with one OpenSSL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Compared {
        /// The results that OpenSSL alone gives.
        results: u64,
        differences: Vec<String>,
    },
    Missing {
        /// The reason why it was not tried.
        missing: String,
    },
}

/// The name of a line about the script itself, which has one only if it did not come to its end.
pub const SCRIPT: &str = "checks.sh";

/// The lists of keys, to which the module adds ML-KEM and its hybrids where OpenSSL has none or
/// describes its own by other words. By them no program offers another group.
const KEY_LISTS: [&str; 2] = [
    "public-key-algorithms has Name: ",
    "key-managers has Name: ",
];

/// The names that it adds. ML-KEM goes by whichever of its names libcrypto's table has first.
const ADDED: [&str; 12] = [
    "ML-KEM-512",
    "ML-KEM-768",
    "ML-KEM-1024",
    "id-alg-ml-kem-512",
    "id-alg-ml-kem-768",
    "id-alg-ml-kem-1024",
    "2.16.840.1.101.3.4.4.1",
    "2.16.840.1.101.3.4.4.2",
    "2.16.840.1.101.3.4.4.3",
    "X25519MLKEM768",
    "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024",
];

/// Whether a line is of a key that the module adds, and there once.
fn is_added(line: &str, result: &str) -> bool {
    let key = KEY_LISTS.iter().find_map(|list| line.strip_prefix(list));
    result == "yes" && key.is_some_and(|key| ADDED.contains(&key))
}

/// Start of the names of checks that may need a group which OpenSSL lacks. They must pass with the
/// module, whatever they do without it.
const BOTH_SIDES: &str = "both sides ";
/// Start of the names of checks that must pass, with the module and without it: they are tried with
/// each OpenSSL that can.
const MUST_PASS: &str = "rustls with ";
const FAILED: &str = "failed";

/// Compares the output of `rig/matrix/checks.sh` without the module with the one with it.
pub fn compare(stock: &str, with: &str) -> Cell {
    let mut lines = stock.lines();
    if let Some(reason) = lines.find_map(|line| line.strip_prefix("skipped: ")) {
        return Cell::Missing {
            missing: reason.to_owned(),
        };
    }
    let [stock, with] = [stock, with].map(|output| {
        let named = |line: &str| match line.rsplit_once(": ") {
            Some((name, result)) => (name.to_owned(), result.to_owned()),
            None => (line.to_owned(), String::new()),
        };
        results(output.lines().map(named))
    });
    let needs_group = |name: &str| name.starts_with(BOTH_SIDES);
    let mut found = differences(&stock, &with, |name, stock, with| match (stock, with) {
        (None, Some(result)) => is_added(name, result),
        (Some(FAILED), Some(_)) => needs_group(name),
        _ => false,
    });
    let fails_too = |name: &String| needs_group(name) && stock.get(name) == Some(&FAILED.into());
    let failing = with.iter().filter(|(_, result)| *result == FAILED);
    let failing = failing.filter(|(name, _)| fails_too(name));
    found.extend(failing.map(|(name, _)| format!("{name}: {FAILED}")));
    let must_pass =
        |(name, result): &(&String, &String)| name.starts_with(MUST_PASS) && *result == FAILED;
    let failing = stock.iter().filter(must_pass);
    found.extend(failing.map(|(name, _)| format!("{name}: {FAILED} without the module")));
    if let Some(end) = stock.get(SCRIPT) {
        found.push(format!("{SCRIPT} without the module: {end}"));
    }
    // Where nothing works without the module, nothing is shown.
    let failed = stock.values().filter(|result| *result == FAILED).count();
    if 2 * failed >= stock.len() {
        let all = stock.len();
        found.push(format!("{failed} of {all} checks fail without the module"));
    }
    Cell::Compared {
        results: stock.len() as u64,
        differences: found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK: &str = "\
genpkey RSA-2048: ok
genpkey SM2: failed
providers has default: yes
server with rsa, tls1_3, X25519: TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384; X25519, 253 bits
tls1_3, Supported groups has x25519: 1
";

    fn found(with: &str) -> Vec<String> {
        match compare(STOCK, with) {
            Cell::Compared {
                results: 5,
                differences,
            } => differences,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_output_differs_in_nothing() {
        assert!(found(STOCK).is_empty());
    }

    #[test]
    fn a_defect_is_found_whatever_it_does_to_a_line() {
        let planted = [
            (
                "RSA-2048: ok",
                "RSA-2048: failed",
                "genpkey RSA-2048: failed",
            ),
            ("SM2: failed", "SM2: ok", "genpkey SM2: ok, without"),
            (
                "providers has default: yes\n",
                "",
                "providers has default: nothing",
            ),
            (
                "_SHA384; X25519, 253",
                "_SHA384; P-256, 256",
                "P-256, 256 bits, without",
            ),
            (
                "x25519: 1",
                "x25519: 2",
                "groups has x25519: 2, without the module 1",
            ),
            (
                "genpkey SM2",
                "genpkey RSA-2048: ok\ngenpkey SM2",
                "genpkey RSA-2048: ok; ok, without the module ok",
            ),
            (
                "genpkey SM2",
                "genpkey SM3: ok\ngenpkey SM2",
                "genpkey SM3: ok, without the module nothing",
            ),
        ];
        for (from, to, finding) in planted {
            assert!(STOCK.contains(from), "{from}");
            let found = found(&STOCK.replace(from, to));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(finding), "{found:?}");
        }
        assert_eq!(found("").len(), 5);
    }

    #[test]
    fn what_the_module_adds_is_no_difference_and_all_else_is() {
        const OFFERED: &str = "tls1_3, Supported groups in order";
        let stock = format!("{OFFERED}: x25519:x448\n");
        let of = |with: &str| match compare(&stock, with) {
            Cell::Compared { differences, .. } => differences.len(),
            other => panic!("{other:?}"),
        };
        let additions = "key-managers has Name: ML-KEM-768: yes\n";
        assert_eq!(of(&format!("{stock}{additions}")), 0);
        // A list of groups that the configuration set was a difference in each program.
        let differing = format!("{OFFERED}: x25519:x448:<NULL>:<NULL>\n{additions}");
        assert_eq!(of(&differing), 1);
        assert_eq!(
            of(&format!("{stock}tls1_3, Supported groups has <NULL>: 2\n")),
            1
        );
        let doubled = additions.replace("yes", "yes; yes");
        assert_eq!(of(&format!("{stock}{doubled}")), 1);
        assert_eq!(
            of(&format!("{stock}key-managers has Name: MLKEM512: yes\n")),
            1
        );
    }

    #[test]
    fn a_group_that_openssl_lacks_must_work_with_the_module() {
        let of = |stock: &str, with: &str| {
            let output = |result: &str| format!("{BOTH_SIDES}with p256: {result}\na: ok\nb: ok\n");
            match compare(&output(stock), &output(with)) {
                Cell::Compared { differences, .. } => differences.len(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("failed", "TLSv1.3"), 0);
        assert_eq!(of("TLSv1.3", "TLSv1.3"), 0);
        for (stock, with) in [
            ("failed", "failed"),
            ("TLSv1.3", "failed"),
            ("TLSv1.3", "TLSv1.2"),
        ] {
            assert_eq!(of(stock, with), 1, "{stock}, {with}");
        }
    }

    #[test]
    fn checks_that_fail_without_the_module_are_findings() {
        for output in ["", "a: failed\nb: ok\n"] {
            let Cell::Compared { differences, .. } = compare(output, output) else {
                panic!("skipped");
            };
            assert_eq!(differences.len(), 1, "{output:?}");
        }
        let other = format!("a: ok\nb: ok\n{MUST_PASS}mldsa44: {FAILED}\n");
        let Cell::Compared { differences, .. } = compare(&other, &other) else {
            panic!("skipped");
        };
        assert_eq!(
            differences,
            ["rustls with mldsa44: failed without the module"]
        );
        let cut = "a: ok\nchecks.sh: exit status 1\n";
        let Cell::Compared { differences, .. } = compare(cut, cut) else {
            panic!("skipped");
        };
        assert_eq!(differences, ["checks.sh without the module: exit status 1"]);
        let skipped = compare("skipped: no HAProxy: none\n", "");
        let missing = "no HAProxy: none".to_owned();
        assert_eq!(skipped, Cell::Missing { missing });
    }
}
