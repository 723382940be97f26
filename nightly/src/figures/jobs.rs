//! `cargo xtask jobs`: `openssl speed` with async jobs, with the OpenSSL of this system and with
//! the OpenSSLs of the chroots that `cargo xtask matrix` makes, each without the module and with
//! it.
//!
//! Both run in turn, and of each pair of runs the ratio counts. A newer OpenSSL that is slower with
//! the module than an older one shows here: how much the module gains must not depend on the
//! version, except where OpenSSL's own code got faster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use xtask::command::{Failure, Outcome, insist_on_known, quietly};
use xtask::dist::{self, Dist};

use super::measure::{OTHERS, at_hand};
use super::record;
use crate::record::Machine;
use crate::roots::{LOADING, PLAIN, Root, Source};

/// The name of the file in a record's directory.
const FILE: &str = "jobs.json";

/// What `openssl speed` is asked for; it tries every operation of each.
const ALGORITHMS: &[&str] = &[
    "rsa2048",
    "ecdsap256",
    "ecdsap384",
    "ecdhp256",
    "ecdhp384",
    "ecdhx25519",
    "ed25519",
];

/// As many pause for all operations.
const JOBS: &str = "64";

/// Pairs of runs.
const ROUNDS: usize = 3;

/// A record.
#[derive(Serialize, Deserialize)]
struct Document {
    date: String,
    commit: String,
    cpu: String,
    command: String,
    rounds: usize,
    versions: Vec<Version>,
}

/// An OpenSSL, and what was measured with it.
#[derive(Serialize, Deserialize)]
struct Version {
    openssl: String,
    rows: Vec<Row>,
}

/// Operations a second of OpenSSL alone and with Lockstep.
#[derive(Serialize, Deserialize)]
struct Row {
    op: String,
    stock: f64,
    lockstep: f64,
    ratio: f64,
}

/// Operations a second by operation.
type Rates = BTreeMap<String, f64>;

/// Measures into docs/benchmarks/record/DATE-CPU, with every OpenSSL that is at hand or with those
/// named. What the record of the same day has of others stays.
pub fn measure(names: &[&str]) -> Outcome {
    let system = [("system", Source::System)];
    let known: Vec<(&str, Source)> = system.iter().chain(OTHERS).copied().collect();
    let all: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    insist_on_known(names, &all, "cargo xtask jobs VERSION...")?;
    let machine = Machine::here()?;
    let built = dist::build()?;
    let path = record::of_today(&machine).join(FILE);
    let mut versions = match path.exists() {
        true => record::read::<Document>(&path)?.versions,
        false => Vec::new(),
    };
    for (name, source) in known {
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        if let Some(root) = at_hand(name, source)? {
            let found = of_version(&root, &built)?;
            versions.retain(|version| version.openssl != found.openssl);
            versions.push(found);
        }
    }
    versions.sort_by(|one, other| one.openssl.cmp(&other.openssl));
    let document = json!(Document {
        date: machine.date.clone(),
        commit: machine.commit.clone(),
        cpu: machine.cpu.clone(),
        command: format!("openssl {}", arguments("ALGORITHM").join(" ")),
        rounds: ROUNDS,
        versions,
    });
    record::store(&machine, FILE, &format!("{document:#}"))
}

/// All algorithms with one OpenSSL.
fn of_version(root: &Root, built: &Dist) -> Outcome<Version> {
    root.install(built)?;
    let version = root.version()?;
    println!("OpenSSL {version}");
    let mut rows = Vec::new();
    for algorithm in ALGORITHMS {
        let mut pairs: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let stock = speed(root, PLAIN, algorithm)?;
            let with = speed(root, LOADING, algorithm)?;
            for (operation, stock) in stock {
                if let Some(with) = with.get(&operation) {
                    pairs.entry(operation).or_default().push((stock, *with));
                }
            }
        }
        for (operation, pairs) in pairs {
            let median = |of: fn(&(f64, f64)) -> f64| super::ledger::median(pairs.iter().map(of));
            let (stock, lockstep) = (median(|pair| pair.0), median(|pair| pair.1));
            let ratio = median(|(stock, with)| with / stock);
            println!("  {operation:<22} {stock:>9.0} {lockstep:>9.0} {ratio:>7.2}");
            rows.push(Row {
                op: operation,
                stock: stock.round(),
                lockstep: lockstep.round(),
                ratio: (ratio * 1e4).round() / 1e4,
            });
        }
    }
    Ok(Version {
        openssl: version,
        rows,
    })
}

fn arguments(algorithm: &str) -> [&str; 8] {
    [
        "speed",
        "-elapsed",
        "-seconds",
        "1",
        "-mr",
        "-async_jobs",
        JOBS,
        algorithm,
    ]
}

/// What one run of `openssl speed` finds with a configuration.
fn speed(root: &Root, configuration: &str, algorithm: &str) -> Outcome<Rates> {
    let mut command = root.command("sh");
    command
        .args(["-c", "\"${OPENSSL:-openssl}\" \"$@\" 2>&1", "sh"])
        .args(arguments(algorithm))
        .env("OPENSSL_CONF", root.inside.join(configuration));
    let output = quietly(&mut command)?;
    let rates = rates(&output);
    match rates.is_empty() {
        false => Ok(rates),
        true => Err(Failure::new(format!(
            "`openssl speed` printed no figures:\n{output}"
        ))),
    }
}

/// The rates in what `openssl speed -mr` prints: `+DTP:bits:operation:algorithm:seconds` before a
/// measurement, or `+DTP:name:operation:seconds`, and `+Rn:count:…:seconds` after it. Too few keys
/// are generated in a second for a rate.
fn rates(output: &str) -> Rates {
    let mut rates = Rates::new();
    let mut operation = None;
    for line in output.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            ["+DTP", bits, what, algorithm, _] => {
                operation = Some(operation_name(bits, what, algorithm));
            }
            ["+DTP", name, what, _] => {
                operation = (*what != "keygen").then(|| format!("{name} {what}"));
            }
            [kind, count, .., seconds] if kind.starts_with("+R") => {
                let rate = count.parse::<f64>().ok().zip(seconds.parse::<f64>().ok());
                if let (Some(operation), Some((count, seconds))) = (operation.take(), rate)
                    && seconds > 0.0
                {
                    rates.insert(operation, count / seconds);
                }
            }
            _ => {}
        }
    }
    rates
}

/// The name of a measurement, the same for all versions: for a signature OpenSSL 3.0 says
/// `private:rsa` and later ones `private:rsa sign`, and 4.0 names the curve where others say
/// `ecdsa` or `ecdh`.
fn operation_name(bits: &str, what: &str, algorithm: &str) -> String {
    let (algorithm, what) = algorithm.split_once(' ').unwrap_or((algorithm, what));
    let key = match (algorithm, bits) {
        ("rsa", bits) => format!("RSA-{bits}"),
        ("ecdh", "253") => "X25519".to_owned(),
        ("ecdsa" | "ecdh", bits) => format!("P-{bits}"),
        ("prime256v1", _) => "P-256".to_owned(),
        ("secp384r1", _) => "P-384".to_owned(),
        (other, _) => other.to_owned(),
    };
    let what = match what {
        "private" | "sign" => "signature",
        "public" | "verify" => "verification",
        "encrypt" => "encryption",
        "decrypt" => "decryption",
        "" => "agreement",
        other => other,
    };
    format!("{key} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_version_prints_is_read_alike() {
        let old = "+DTP:2048:private:rsa:1\n+R1:1919:2048:1.00\n+DTP:2048:public:rsa:1\n\
                   +R2:30030:2048:1.50\n+DTP:253::ecdh:1\n+R7:14867:253:1.00\n\
                   +DTP:253:sign:Ed25519:1\n+R8:14516:253:Ed25519:1.00\n\
                   +F2:2:2048:1919.000000:29732.673267\n";
        let found = rates(old);
        assert_eq!(found["RSA-2048 signature"], 1919.0);
        assert_eq!(found["RSA-2048 verification"], 20020.0);
        assert_eq!(found["X25519 agreement"], 14867.0);
        assert_eq!(found["Ed25519 signature"], 14516.0);
        assert_eq!(found.len(), 4);
        let new = "+DTP:2048:private:rsa sign:1\n+R1:780:2048:1.00\n\
                   +DTP:2048:private:rsa decrypt:1\n+R4:671:2048:1.00\n\
                   +DTP:rsa2048:keygen:1\n+R15:4:rsa2048:1.24\n\
                   +DTP:rsa2048:decaps:1\n+R17:911:rsa2048:1.00\n";
        let found = rates(new);
        assert_eq!(found["RSA-2048 signature"], 780.0);
        assert_eq!(found["RSA-2048 decryption"], 671.0);
        assert_eq!(found["rsa2048 decaps"], 911.0);
        assert_eq!(found.len(), 3);
        let newest = "+DTP:256:sign:prime256v1:1\n+R5:9:256:1.00\n";
        assert_eq!(rates(newest)["P-256 signature"], 9.0);
        let failed = "+DTP:256:sign:ecdsa:1\nsign failure\n+R5:1:256:0.00\n";
        assert!(rates(failed).is_empty());
    }
}
