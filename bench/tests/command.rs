//! The `lockstep-bench` command as its users meet it: arguments, documents, tables.

mod common;

use std::fs;
use std::path::PathBuf;

use lockstep_testkit::{assert_helps, assert_refused};
use serde_json::Value;

use common::{bench, has_lanes, run};

#[test]
fn wrong_arguments_are_refused_with_what_is_right() {
    for (arguments, reason) in [
        (&["frob"][..], "frob"),
        (&["--frob"], "--frob"),
        (
            &["speed", "rsa2049"],
            "rsa1024, rsa2048, rsa3072, rsa4096, x25519, ",
        ),
        (&["speed", "--fills", "65"], "from 1 to 64"),
        (&["speed", "--fills", "1,,2"], "from 1 to 64"),
        (&["speed", "--cycles", "x25519"], "RSA only"),
        (&["speed", "--threads", "0"], "`all`"),
        (&["speed", "--seconds", "soon"], "a number"),
        (&["speed", "--seconds", "-1"], "a number"),
        (&["speed", "--seconds"], "--seconds"),
        (&["bulk", "p521-verify"], "p256-verify, p256-verify-few, "),
        (&["bulk", "--items", "63"], "from 64 to 1000000"),
        (&["bulk", "--threads", "4096"], "`all`"),
        (&["handshakes", "--server", "iis"], "haproxy, apache"),
        (&["handshakes", "--key", "rsa1024"], "rsa2048, "),
        (
            &["handshakes", "--server", "haproxy="],
            "lacks the path of the program",
        ),
        (
            &["handshakes", "--group", "x25519:p256"],
            "x25519, p256, p384",
        ),
        (
            &["handshakes", "--group", "x25519mlkem768", "--tls", "1.2"],
            "--tls 1.3",
        ),
        (
            &[
                "handshakes",
                "--tls",
                "1.2",
                "--stock-group",
                "x25519mlkem768",
            ],
            "--tls 1.3",
        ),
        (&["handshakes", "--tls", "1.1"], "1.2, 1.3"),
        (&["connect", "127.0.0.1:1"], "--authority"),
        (
            &["connect", "--authority", "a", "b", "--group", "x448"],
            "the clients have x25519, p256, p384",
        ),
        (&["handshakes", "--concurrency", "0"], "from 1 to 1024"),
        (&["handshakes", "--concurrency", "8,"], "from 1 to 1024"),
        (&["handshakes", "--rate", "0"], "from 1 to 100000"),
        (
            &["handshakes", "--rate", "9", "--concurrency", "9"],
            "cannot be used with",
        ),
        (&["handshakes", "--transfer", "big"], "230K"),
        (&["handshakes", "--rounds", "1.5"], "from 1 to 1000"),
        (&["handshakes", "--seconds", "0"], "from 0.05 to 3600"),
        (&["handshakes", "--warm-up", "-1"], "from 0 to 3600"),
        (
            &["handshakes", "--seconds", "0.5", "--warm-up", "0.5"],
            "less than",
        ),
        (
            &["handshakes", "--config", "a.cfg"],
            "--config takes the configuration of haproxy",
        ),
        (&["handshakes", "--connect", "a:1"], "--config"),
        (
            &[
                "handshakes",
                "--server",
                "haproxy",
                "--config",
                "a",
                "--key",
                "p256",
            ],
            "cannot be used with",
        ),
        (&["handshakes", "now"], "now"),
        (&["costs", "key"], "start, read-rsa2048, "),
        (&["costs", "--rounds", "0"], "from 1 to 1000"),
        (&["costs", "--hosts", "0"], "from 1 to 100000"),
    ] {
        assert_refused(&mut bench(arguments), reason);
    }
}

#[test]
fn help_is_on_standard_output() {
    for arguments in [
        &[][..],
        &["--help"],
        &["help"],
        &["speed", "--help"],
        &["handshakes", "-h"],
        &["costs", "--help"],
    ] {
        assert_helps(&mut bench(arguments), "Usage: lockstep-bench");
    }
}

#[test]
fn readers_that_have_gone_are_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench(&["speed", "--help"]).stdout(writer).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn speed_writes_the_document_that_the_design_describes() {
    let arguments = [
        "speed",
        "rsa1024",
        "--json",
        "--seconds",
        "0.02",
        "--fills",
        "1,8",
        "--threads",
        "1",
    ];
    let (code, stdout, stderr) = run(&mut bench(&arguments));
    if lockstep_engine::Backend::best_hardware().is_none() {
        assert_eq!(code, 1);
        assert!(stderr.contains("lockstep doctor"), "{stderr}");
        return;
    }
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("rsa1024"), "progress: {stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert!(document["machine"]["cpus"].as_u64().unwrap() >= 1);
    let rows = document["rows"].as_array().unwrap();
    let candidates: Vec<_> = rows
        .iter()
        .map(|row| (row["impl"].as_str().unwrap(), row["fill"].as_u64().unwrap()))
        .collect();
    assert_eq!(candidates, [("stock", 1), ("lockstep", 1), ("lockstep", 8)]);
    for row in rows {
        assert_eq!(row["op"], "rsa1024-sign");
        assert_eq!(row["threads"], 1);
        for figure in ["ops_per_s", "cycles_per_op"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}: {row}");
        }
    }
}

#[test]
fn speed_measures_every_operation_that_has_lanes() {
    if lockstep_engine::Backend::best_hardware().is_none() {
        return;
    }
    let arguments = [
        "speed",
        "all",
        "--json",
        "--seconds",
        "0.001",
        "--fills",
        "1,64",
        "--threads",
        "1",
    ];
    let (code, stdout, stderr) = run(&mut bench(&arguments));
    assert_eq!(code, 0, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let rows = document["rows"].as_array().unwrap();
    let operations: Vec<&str> = rows
        .iter()
        .filter(|row| row["impl"] == "stock")
        .map(|row| row["op"].as_str().unwrap())
        .collect();
    let mut expected = vec![
        "rsa1024-sign",
        "rsa2048-sign",
        "rsa3072-sign",
        "rsa4096-sign",
        "x25519",
        "x25519-keygen",
        "ed25519-sign",
        "ed25519-verify",
    ];
    let of_nist_curves = [
        "p256-sign",
        "p256-verify",
        "p256-ecdh",
        "p256-keygen",
        "p384-sign",
        "p384-verify",
        "p384-ecdh",
        "p384-keygen",
    ];
    // The lanes of AVX2 have no NIST curves.
    match has_lanes() {
        true => expected.extend(of_nist_curves),
        false => assert!(
            stderr.contains(&format!("cannot do it: {}", of_nist_curves.join(", "))),
            "{stderr}"
        ),
    }
    assert_eq!(operations, expected);
    assert!(!stderr.contains("a batch has at most"), "{stderr}");
    assert!(
        rows.iter()
            .any(|row| row["op"] == "secp256r1mlkem768-server"),
        "{document}"
    );
    for row in rows {
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        let of_rsa = row["op"].as_str().unwrap().starts_with("rsa");
        assert!(
            !(of_rsa && row["fill"] == 64),
            "a batch of RSA takes 8: {row}"
        );
    }
}

#[test]
fn speed_says_why_it_measures_no_batch() {
    if lockstep_engine::Backend::best_hardware().is_none() {
        return;
    }
    let arguments = "speed rsa1024 x25519 --fills 64 --seconds 0.001 --threads 1";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let (code, _, stderr) = run(&mut bench(&arguments));
    assert_eq!(code, 0, "{stderr}");
    let why = "rsa1024: OpenSSL's own code only, for a batch has at most 8 requests";
    assert!(stderr.contains(why), "{stderr}");
    assert!(!stderr.contains("x25519: OpenSSL's own"), "{stderr}");
}

#[test]
fn speed_names_what_the_lanes_cannot_do() {
    let avx2 = |operations: &[&str]| {
        let common = [
            "speed",
            "--threads",
            "1",
            "--fills",
            "4",
            "--seconds",
            "0.001",
        ];
        let mut command = bench(&[&common[..], operations].concat());
        run(command.env("LOCKSTEP_BACKEND", "avx2"))
    };
    let (code, stdout, stderr) = avx2(&["p256-sign", "x25519"]);
    if stderr.contains("avx2") && code == 2 {
        eprintln!("skipped: this machine has no AVX2");
        return;
    }
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("cannot do it: p256-sign\n"), "{stderr}");
    assert!(
        stdout.contains("x25519") && !stdout.contains("p256"),
        "{stdout}"
    );
    let (code, stdout, stderr) = avx2(&["rsa1024"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("lockstep 4 (by stock)"), "{stdout}");
    let (code, stdout, stderr) = avx2(&["p256-sign", "p384-ecdh"]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(
        stderr.contains("(avx2) cannot do p256-sign, p384-ecdh\nremedy: name other operations"),
        "{stderr}"
    );
}

#[test]
fn bulk_measures_each_side_on_each_number_of_threads() {
    let arguments = ["bulk", "p256-verify", "ed25519-sign", "--items", "64"];
    let (code, stdout, stderr) = run(bench(&arguments)
        .args(["--seconds", "0.001", "--threads", "1,all", "--json"])
        .env("OPENSSL_CONF", "/a/configuration/that/would/load/lockstep"));
    assert_eq!(code, 0, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["skipped"], Value::Array(Vec::new()));
    let rows = document["rows"].as_array().unwrap();
    for op in ["p256-verify", "ed25519-sign"] {
        for side in ["lockstep", "OpenSSL"] {
            let is_it = |row: &&Value| row["op"] == op && row["impl"] == side;
            let own: Vec<&Value> = rows.iter().filter(is_it).collect();
            // One row if this machine has one CPU.
            assert!((1..=2).contains(&own.len()), "{stdout}");
            assert!(own.iter().any(|row| row["threads"] == 1));
            for row in own {
                assert_eq!(row["items"], 64);
                assert!(row["ops_per_s"].as_f64() > Some(0.0) && row["slices"].as_u64() >= Some(5));
                let ratio = row["ratio"].as_f64();
                assert!(
                    ratio > Some(0.0) && (side == "OpenSSL" || ratio == Some(1.0)),
                    "{row}"
                );
            }
        }
    }
}

#[cfg(feature = "cycles")]
#[test]
fn speed_tells_where_the_cycles_go() {
    if !has_lanes() {
        println!("skipped: no lanes with IFMA here");
        return;
    }
    let (code, stdout, stderr) =
        run(bench(&["speed", "rsa1024", "--cycles"]).args(["--seconds", "0.01"]));
    assert_eq!(code, 0, "{stderr}");
    let mut shares = 0.0;
    for (name, is_part) in [
        ("blind", false),
        ("multiply", true),
        ("square", true),
        ("exponentiate", false),
        ("recombine", false),
        ("check", false),
    ] {
        let is_it = |line: &&str| line.trim_start().starts_with(&format!("{name} "));
        let row = stdout.lines().find(is_it);
        let row = row.unwrap_or_else(|| panic!("there is no {name}: {stdout}"));
        assert_eq!(row.starts_with("  "), is_part, "{row}");
        let numbers = numbers(row);
        let [calls, each, limit, all, share] = numbers[..] else {
            panic!("{name}: {numbers:?}");
        };
        assert!(calls > 0.0 && each > 0.0 && limit > 0.0, "{row}");
        // Shown figures are rounded.
        assert!((all / (calls * each) - 1.0).abs() < 0.1, "{row}");
        shares += if is_part { 0.0 } else { share };
    }
    assert!((90.0..100.5).contains(&shares), "{shares}: {stdout}");
}

/// The numbers in a row of a table: `1,234`, `5.6 K`, `7.8 M`, `90 %`; `3/4` is none of these.
fn numbers(row: &str) -> Vec<f64> {
    let mut numbers: Vec<f64> = Vec::new();
    for word in row.split_whitespace() {
        let scale = match word {
            "K" => 1e3,
            "M" => 1e6,
            _ => 1.0,
        };
        match (word.replace(',', "").parse(), numbers.last_mut()) {
            (Ok(number), _) => numbers.push(number),
            (Err(_), Some(last)) => *last *= scale,
            (Err(_), None) => {}
        }
    }
    numbers
}

#[test]
fn speed_ignores_a_configuration_that_would_measure_lockstep_against_itself() {
    if !has_lanes() {
        return;
    }
    // A configuration that libcrypto cannot even read must not matter.
    let broken = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("speed.cnf");
    fs::write(&broken, "openssl_conf = nowhere\n[broken").unwrap();
    let mut command = bench(&[
        "speed",
        "rsa1024",
        "--seconds",
        "0.02",
        "--fills",
        "8",
        "--threads",
        "1",
    ]);
    let (code, stdout, stderr) = run(command.env("OPENSSL_CONF", broken));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("rsa1024-sign"), "{stdout}");
}

#[test]
fn speed_without_lanes_sends_to_the_doctor() {
    let mut command = bench(&["speed", "rsa1024"]);
    let (code, _, stderr) = run(command.env("LOCKSTEP_BACKEND", "none"));
    assert_eq!(code, 1);
    assert!(stderr.contains("remedy: lockstep doctor"), "{stderr}");
}

#[test]
fn an_unknown_backend_is_refused_with_the_known_ones() {
    let mut command = bench(&["speed", "rsa1024"]);
    let (code, _, stderr) = run(command.env("LOCKSTEP_BACKEND", "altivec"));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("altivec") && stderr.contains("portable"),
        "{stderr}"
    );
}
