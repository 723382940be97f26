//! `lockstep-bench costs` for a moment: every row has its figures, and they compare the two sides
//! that they name.
//!
//! The tests need the files of `cargo xtask dist`, in the directory that `cargo xtask test` names.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lockstep_engine::read_stats;
use lockstep_testkit::{TempDir, run};
use serde_json::Value;

/// Number of rows on every machine with the `openssl` command.
const ROWS: usize = 32;

/// `lockstep-bench costs` with these arguments, and the directory of the module.
fn costs(arguments: &str) -> Option<(Command, PathBuf)> {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        eprintln!("skipped: LOCKSTEP_DIST names no module");
        return None;
    };
    let program = env!("CARGO_BIN_EXE_lockstep-bench");
    let mut command = lockstep_testkit::command(program, &["costs"]);
    command
        .args(arguments.split_whitespace())
        .env("OPENSSL_CONF", dist.join("openssl.cnf"));
    Some((command, dist))
}

#[test]
fn every_row_compares_a_program_with_the_module_and_one_without() {
    let arguments = "--rounds 1 --seconds 0.001 --hosts 5 --json";
    let Some((mut command, _)) = costs(arguments) else {
        return;
    };
    let counters = TempDir::new("costs-counters");
    command.env("LOCKSTEP_STATS_DIR", &*counters);
    command.env("LOCKSTEP_STATS_KEEP", "yes");
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let rows = document["rows"].as_array().unwrap();
    let left_out = document["left_out"].as_array().unwrap();
    for missing in left_out {
        println!("skipped: {missing}");
    }
    assert_eq!(rows.len() + left_out.len(), ROWS + 6, "{document}");
    for row in rows {
        for name in ["stock", "lockstep", "ratio", "least", "most"] {
            assert!(row[name].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
        let has_time = row["wall_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0);
        assert_eq!(has_time, row["unit"] == "ms", "{row}");
    }
    // By the module's own counters: nothing asked it where it should not be, and there it did.
    assert_eq!(document["counted"][0], 0, "{document}");
    assert!(document["counted"][1].as_u64().unwrap() > 0, "{document}");
    // A process for each kind of key signs several times with one.
    let processes = read_stats(&counters).unwrap();
    let asked = processes.iter().filter(|process| {
        let snapshot = &process.snapshot;
        snapshot.operations() + snapshot.by_reason.iter().sum::<u64>() > 0
    });
    assert!(asked.count() >= 3, "{processes:?}");
}

#[test]
fn openssl_is_not_compared_with_itself() {
    let place = TempDir::new("costs-conf");
    let Some((mut command, dist)) = costs("start read-p256 --rounds 1 --seconds 0.001") else {
        return;
    };
    let text = fs::read_to_string(dist.join("openssl.cnf")).unwrap();
    // A configuration that names the module, and does not load it.
    let section = text.find("[lockstep_module]").unwrap();
    let (before, after) = text.split_at(section);
    let planted = place.join("openssl.cnf");
    fs::write(
        &planted,
        before.to_owned() + &after.replace("activate = 1\n", ""),
    )
    .unwrap();
    let (code, stdout, stderr) = run(command.env("OPENSSL_CONF", &planted));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    for expected in [
        "so OpenSSL would be compared with itself",
        "costs-conf",
        "remedy: lockstep doctor",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }
    // The same one that names no module at all.
    fs::write(&planted, "").unwrap();
    let (code, _, stderr) = run(command.env("OPENSSL_CONF", &planted));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("names no module lockstep.so"), "{stderr}");
}

#[test]
fn some_rows_are_measured_by_their_names() {
    let Some((mut command, _)) = costs("keygen-p256 hosts-reload --rounds 2 --seconds 0.001")
    else {
        return;
    };
    let (code, stdout, stderr) = run(command.args(["--hosts", "2"]));
    assert_eq!(code, 0, "{stderr}");
    let rows: Vec<&str> = stdout
        .lines()
        .filter(|line| line.contains(" ms "))
        .collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(rows[0].starts_with("keygen-p256 ") && rows[1].starts_with("hosts-reload "));
    assert!(!stdout.contains("hosts-memory"), "{stdout}");
}
