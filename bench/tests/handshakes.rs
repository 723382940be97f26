//! `lockstep-bench handshakes` against real servers, for a moment each. The counters say that lanes
//! signed.
//!
//! The tests need the files of `cargo xtask dist`, in the directory that `cargo xtask test` names.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use common::{bench, has_lanes, run};

/// `lockstep-bench handshakes` with these arguments and the module; `None` where there is nothing
/// to test.
fn handshakes(arguments: &str) -> Option<Command> {
    if !has_lanes() {
        eprintln!("skipped: this machine has no lanes");
        return None;
    }
    on_any_lanes(arguments)
}

/// The same where lanes need not compute RSA.
fn on_any_lanes(arguments: &str) -> Option<Command> {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        eprintln!("skipped: LOCKSTEP_DIST names no module");
        return None;
    };
    let mut command = bench(&["handshakes"]);
    command
        .args(arguments.split_whitespace())
        .env("OPENSSL_CONF", dist.join("openssl.cnf"));
    Some(command)
}

fn document(command: &mut Command) -> Value {
    let (code, stdout, stderr) = run(command.arg("--json"));
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// Checks of any run: no failure, and lockstep at work where it should be.
fn check(document: &Value, most: u64) {
    assert_eq!(document["failures"], 0, "{document}");
    assert_eq!(document["cpu_ratio_concurrency"], most, "{document}");
    assert!(document["cpu_ratio"].as_f64().unwrap() > 0.0, "{document}");
    for row in document["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        assert!(number("count") > 0.0, "{row}");
        assert_eq!(number("failures"), 0.0, "{row}");
        for positive in [
            "per_s",
            "server_cpu_s_per_1000",
            "server_load",
            "client_load",
        ] {
            assert!(number(positive) > 0.0, "{positive}: {row}");
        }
        let latencies = ["p50_ms", "p90_ms", "p99_ms"].map(number);
        assert!(0.0 < latencies[0] && latencies.is_sorted(), "{row}");
        assert!(number("mean_ms") > 0.0, "{row}");
        if row["impl"] == "stock" {
            assert!(
                row["lane_operations"].is_null() && row["fill"].is_null(),
                "{row}"
            );
            continue;
        }
        assert_eq!(number("failed_checks"), 0.0, "{row}");
        assert!(number("lane_operations") > 0.0, "{row}");
        assert!((1.0..=8.0).contains(&number("fill")), "{row}");
        // Each client may have a handshake that began within the time that counts.
        let most = number("count") + number("concurrency");
        let signatures = number("lane_signatures");
        assert!(signatures <= most, "one for each handshake: {row}");
    }
}

/// The row of lockstep with most clients.
fn busiest<'a>(document: &'a Value, load: &str) -> &'a Value {
    let rows = document["rows"].as_array().unwrap();
    let mut rows = rows.iter().rev();
    rows.find(|row| row["impl"] == "lockstep" && row["load"] == load)
        .unwrap()
}

#[test]
fn lanes_sign_with_every_kind_of_key() {
    for key in ["rsa2048", "rsa3072", "rsa4096", "p256", "p384", "ed25519"] {
        // On a busy machine a slow key has no handshakes beside the warm-up's.
        let arguments =
            format!("--key {key} --concurrency 1,16 --seconds 0.2 --rounds 1 --warm-up 0");
        let Some(mut command) = handshakes(&arguments) else {
            return;
        };
        let document = document(&mut command);
        assert_eq!(document["key"], key);
        assert_eq!(document["rows"].as_array().unwrap().len(), 4);
        check(&document, 16);
        let row = busiest(&document, "handshake");
        assert!(row["lane_signatures"].as_u64().unwrap() > 0, "{key}: {row}");
        assert!(document["ratios"][1]["p99"].as_f64().unwrap() > 0.0);
    }
}

/// Waits until something holds.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// The command lines that name a path.
fn commands_with(path: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|process| {
        let command = fs::read(process.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&command).replace('\0', " "))
    });
    let path = path.to_str().unwrap();
    commands.filter(|command| command.contains(path)).collect()
}

/// The same command, which ignores no signal when it starts. A shell has the commands that it
/// starts in the background ignore SIGINT, and `nohup` SIGHUP; tests run below both.
fn with_default_signals(command: &Command) -> Command {
    let mut wrapped = Command::new("env");
    wrapped.arg("--default-signal").arg(command.get_program());
    wrapped.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped
}

#[test]
fn no_end_leaves_a_key_or_a_server() {
    for (server, signal) in [
        ("embedded", Signal::INT),
        ("embedded", Signal::KILL),
        ("haproxy", Signal::TERM),
    ] {
        let name = format!("ended-by-{}", signal.as_raw());
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        let arguments =
            format!("--server {server} --key p256 --concurrency 2 --seconds 100 --rounds 1 --json");
        let Some(command) = handshakes(&arguments) else {
            return;
        };
        let mut command = with_default_signals(&command);
        command.env("TMPDIR", &place);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let scratch = || fs::read_dir(&place).unwrap().flatten().next();
        // Under load no file holds the key any more.
        wait_until("it does not start", || {
            let ended = child.try_wait().unwrap().is_some();
            let directory = scratch().map(|found| found.path());
            let is_loaded = directory.is_some_and(|directory| {
                directory.join("lockstep").exists() && !directory.join("key.pem").exists()
            });
            ended || is_loaded
        });
        if child.try_wait().unwrap().is_some() {
            eprintln!("skipped: {server} is not installed");
            continue;
        }
        assert!(!commands_with(&place).is_empty());
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert!(!child.wait().unwrap().success());
        wait_until("a server runs on", || commands_with(&place).is_empty());
        wait_until("a directory is left", || scratch().is_none());
    }
}

#[test]
fn pages_are_fetched_as_asked() {
    for (version, group) in [("1.2", "p256"), ("1.3", "p384")] {
        let arguments = format!(
            "--tls {version} --group {group} --transfer 40K --concurrency 8 --seconds 0.3 \
             --rounds 2"
        );
        let Some(mut command) = handshakes(&arguments) else {
            return;
        };
        let document = document(&mut command);
        check(&document, 8);
        assert_eq!(document["transfer"], 40 << 10);
        let rows = document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 4, "{document}");
        for row in rows {
            let rounds = row["server_cpu_s_per_1000_rounds"].as_array().unwrap();
            assert_eq!(rounds.len(), 2, "{row}");
        }
        let share = busiest(&document, "transaction")["handshake_share"].as_f64();
        assert!(share.unwrap() > 0.0, "{document}");
        assert!(busiest(&document, "handshake")["handshake_share"].is_null());
    }
}

#[test]
fn latencies_of_the_warm_up_are_left_out() {
    let early = |arguments: &str| -> Option<Vec<u64>> {
        let common = "--key p256 --concurrency 4 --seconds 0.2 --rounds 1";
        let document = document(&mut handshakes(&format!("{common} {arguments}"))?);
        check(&document, 4);
        let rows = document["rows"].as_array().unwrap();
        Some(
            rows.iter()
                .map(|row| row["early"].as_u64().unwrap())
                .collect(),
        )
    };
    let Some(early_by_default) = early("") else {
        return;
    };
    // The first handshake of every client at least.
    assert!(
        early_by_default.iter().all(|&early| early >= 4),
        "{early_by_default:?}"
    );
    assert_eq!(early("--warm-up 0").unwrap(), [0, 0]);
}

#[test]
fn handshakes_begin_at_a_rate() {
    let arguments = "--key p256 --rate 100,300 --seconds 0.5 --rounds 1 --warm-up 0";
    let Some(mut command) = handshakes(arguments) else {
        return;
    };
    let document = document(&mut command);
    assert_eq!(document["cpu_ratio_rate"], 300, "{document}");
    assert!(document["cpu_ratio_concurrency"].is_null(), "{document}");
    for row in document["rows"].as_array().unwrap() {
        let (rate, count) = (
            row["rate"].as_f64().unwrap(),
            row["count"].as_f64().unwrap(),
        );
        let expected = rate * 0.5;
        // Nine standard deviations: none of these runs has as few or as many.
        let most = 9.0 * expected.sqrt();
        assert!((count - expected).abs() < most && count > 0.0, "{row}");
        assert!(row["p50_ms"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn installed_servers_run_with_lockstep() {
    for (server, version, key) in [
        ("haproxy", "1.3", "p256"),
        ("apache", "1.3", "p256"),
        ("nginx", "1.3", "p256"),
        ("stunnel", "1.3", "p256"),
        // In TLS 1.2 a client also says on which curves a certificate's key may be.
        ("haproxy", "1.2", "p256"),
        ("haproxy", "1.2", "p384"),
    ] {
        let arguments = format!(
            "--server {server} --tls {version} --key {key} --concurrency 8 --seconds 0.3 --rounds 1"
        );
        let Some(mut command) = handshakes(&arguments) else {
            return;
        };
        let Some(document) = document_of(server, &mut command) else {
            continue;
        };
        assert_eq!(document["server"], server);
        check(&document, 8);
        let row = busiest(&document, "handshake");
        assert!(row["lane_signatures"].as_u64().unwrap() > 0, "{row}");
    }
}

/// The output of a run with a server; `None`, with a line, if it is not installed.
fn document_of(server: &str, command: &mut Command) -> Option<Value> {
    let (code, stdout, stderr) = run(command.arg("--json"));
    if stderr.contains("is not installed") {
        assert!(stderr.contains("remedy: apt install "), "{stderr}");
        eprintln!("skipped: {server} is not installed");
        return None;
    }
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    Some(serde_json::from_str(&stdout).unwrap())
}

#[test]
fn the_key_daemon_computes_for_servers_that_have_references() {
    for (server, key, workers) in [
        ("embedded", "p256", None),
        ("haproxy", "ed25519", Some(1)),
        ("apache", "p384", None),
        ("nginx", "rsa2048", Some(2)),
    ] {
        let workers_option = workers.map_or(String::new(), |count| format!("--workers {count}"));
        let arguments = format!(
            "--server {server} --key {key} --keyd reference {workers_option} --share-cpus \
             --concurrency 4 --seconds 0.3 --rounds 1 --warm-up 0"
        );
        let Some(mut command) = on_any_lanes(&arguments) else {
            return;
        };
        let Some(document) = document_of(server, &mut command) else {
            continue;
        };
        check(&document, 4);
        assert_eq!(document["keyd"], "reference");
        assert_eq!(document["workers"].as_u64(), workers, "{document}");
        assert_eq!(document["server_cpus"], document["client_cpus"]);
        let row = busiest(&document, "handshake");
        // One for each; the last ones may not be published yet.
        let count = |name: &str| row[name].as_u64().unwrap();
        assert!(count("keyd_signatures") >= count("count") / 10 * 9, "{row}");
        assert_eq!(row["lane_signatures"], row["keyd_signatures"], "{row}");
        let share = row["keyd_cpu_share"].as_f64().unwrap();
        assert!(0.0 < share && share < 1.0, "{row}");
        assert!(document["rows"][0]["keyd_signatures"].is_null());
    }
}

#[test]
fn the_key_daemon_computes_for_servers_that_have_the_key() {
    let arguments = "--keyd daemon --concurrency 4 --seconds 0.3 --rounds 1 --warm-up 0";
    let Some(mut command) = on_any_lanes(arguments) else {
        return;
    };
    // So that lanes of any kind compute RSA, in the server and in the daemon.
    let document = document(command.env("LOCKSTEP_LONE", "lanes"));
    check(&document, 4);
    let row = busiest(&document, "handshake");
    assert!(row["keyd_signatures"].as_u64().unwrap() > 0, "{row}");
}

#[test]
fn a_server_without_workers_takes_no_number_of_them() {
    let (code, _, stderr) = run(&mut bench(&["handshakes", "--workers", "2"]));
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("embedded has no workers") && stderr.contains("remedy: --workers with"),
        "{stderr}"
    );
}

#[test]
fn a_server_is_taken_from_a_path() {
    let haproxy = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];
    let Some(installed) = haproxy.into_iter().find(|path| Path::new(path).exists()) else {
        eprintln!("skipped: haproxy is not installed");
        return;
    };
    // A name that no search finds.
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("haproxy-of-mine");
    let _ = fs::remove_file(&program);
    symlink(installed, &program).unwrap();
    let arguments = format!(
        "--server haproxy={} --key p256 --concurrency 8 --seconds 0.2 --rounds 1",
        program.display()
    );
    let Some(mut command) = handshakes(&arguments) else {
        return;
    };
    let document = document(command.env("PATH", "/nowhere"));
    check(&document, 8);
    let version = document["server_version"].as_str().unwrap();
    assert!(version.starts_with("HAProxy version "), "{version}");
    assert!(
        document["command"]
            .as_str()
            .unwrap()
            .contains("haproxy-of-mine")
    );
}

/// A configuration of HAProxy's with a certificate of its own, for this port, in a directory.
fn own_configuration(place: &Path, port: u16) -> PathBuf {
    let [key, certificate, both] = ["key", "certificate", "both.pem"].map(|name| place.join(name));
    let mut request = lockstep_testkit::command("openssl", &["req", "-x509", "-nodes"]);
    request.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    request.args(["-subj", "/CN=www.example.org"]);
    request
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    let (code, _, stderr) = run(&mut request);
    assert_eq!(code, 0, "{stderr}");
    let text = [key, certificate].map(|path| fs::read_to_string(path).unwrap());
    fs::write(&both, text.concat()).unwrap();
    let path = place.join("haproxy.cfg");
    let (socket, both) = (place.join("admin.sock"), both.display());
    let socket = socket.display();
    let text = format!(
        "global\n  daemon\n  stats socket {socket}\ndefaults\n  mode http\n  timeout connect 5s\n  \
         timeout client 9s\n  timeout server 9s\nfrontend tls\n  bind 127.0.0.1:{port} ssl crt \
         {both}\n  default_backend none\nbackend none\n  server none 127.0.0.1:9\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_sceptic_measures_a_server_with_a_configuration_of_his_own() {
    let place = lockstep_testkit::TempDir::new("own-configuration");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = own_configuration(&place, port);
    let text = fs::read_to_string(&path).unwrap();
    let measured = || {
        let arguments = "--server haproxy --concurrency 2,8 --seconds 0.2 --rounds 1 --config";
        let mut command = handshakes(arguments)?;
        command.arg(&path);
        Some(command)
    };
    // Somebody listens there.
    let Some(mut command) = measured() else {
        return;
    };
    let (code, stdout, stderr) = run(&mut command);
    if stderr.contains("is not installed") {
        eprintln!("skipped: haproxy is not installed");
        return;
    }
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("in use"), "{stderr}");
    assert!(
        stderr.contains("remedy: end the server that listens"),
        "{stderr}"
    );
    drop(listener);

    // The socket of an administrator is there, whose HAProxy would lose it.
    let socket = place.join("admin.sock");
    let owner = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (code, _, stderr) = run(&mut measured().unwrap());
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("which is there already"), "{stderr}");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    drop(owner);
    fs::remove_file(&socket).unwrap();

    let document = document(&mut measured().unwrap());
    check(&document, 8);
    assert_eq!(document["key"], "p256");
    assert_eq!(document["config"], path.to_str().unwrap());
    assert_eq!(document["ratios"][1]["rounds"].as_array().unwrap().len(), 1);
    assert!(
        busiest(&document, "handshake")["lane_signatures"]
            .as_u64()
            .unwrap()
            > 0
    );
    // Nothing has changed.
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert!(!socket.exists());
    assert!(commands_with(&place).is_empty());

    // The name that clients ask for, at a place of the configuration and at no other.
    for (place, code) in [
        (format!("www.example.org:{port}"), 0),
        ("192.0.2.1:443".into(), 1),
    ] {
        let mut command = measured().unwrap();
        let (found, _, stderr) = run(command.args(["--connect", &place]));
        assert_eq!(found, code, "{place}: {stderr}");
    }
    // OpenSSL would be compared with OpenSSL.
    let mut command = measured().unwrap();
    let (code, _, stderr) = run(command.env("LOCKSTEP_BACKEND", "none"));
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("lockstep did nothing in haproxy"),
        "{stderr}"
    );
}

#[test]
fn hybrids_need_no_openssl_that_has_them() {
    let arguments = "--key p256 --group x25519mlkem768 --stock-group p256 --concurrency 4 \
                     --seconds 0.2 --rounds 1";
    let Some(mut command) = handshakes(arguments) else {
        return;
    };
    let document = document(&mut command);
    check(&document, 4);
    assert_eq!(document["group"], "x25519mlkem768");
    assert_eq!(document["stock_group"], "p256");

    let arguments = "--key p256 --group x25519mlkem768 --concurrency 4 --seconds 0.2 --rounds 1";
    let Some(mut command) = handshakes(arguments) else {
        return;
    };
    let (code, stdout, stderr) = run(command.arg("--json"));
    if code == 0 {
        check(&serde_json::from_str(&stdout).unwrap(), 4);
        return;
    }
    for expected in [
        "OpenSSL 3.",
        "has no TLS group X25519MLKEM768",
        "remedy: compare with --stock-group x25519",
        "OpenSSL 3.5",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn the_report_is_a_table_and_a_document_in_a_file() {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("handshakes.json");
    let Some(mut command) = handshakes("--concurrency 1,4 --seconds 0.1 --rounds 1") else {
        return;
    };
    let (code, stdout, stderr) = run(command.arg("--json").arg(&json));
    assert_eq!(code, 0, "{stderr}");
    for expected in [
        "CPU s/1000",
        "x stock",
        " CPU per handshake",
        ": lockstep-bench handshakes --concurrency 1,4 --seconds 0.1 ",
        "The main figure is server CPU time",
    ] {
        assert!(stdout.contains(expected), "{stdout}");
    }
    assert!(
        !stdout.contains("handshake's share") && stdout.contains(" fill"),
        "{stdout}"
    );
    let document: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    check(&document, 4);
    let version = document["server_version"].as_str().unwrap();
    assert!(version.starts_with("lockstep-bench "), "{version}");
    // Where there is no room for the document, the figures are shown all the same.
    let full = handshakes("--concurrency 1 --seconds 0.1 --rounds 1 --json /dev/full");
    let (code, stdout, stderr) = run(&mut full.unwrap());
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.contains("CPU s/1000"), "{stdout}");
    assert!(stderr.contains("cannot write /dev/full"), "{stderr}");
    assert!(
        document["openssl"]
            .as_str()
            .unwrap()
            .starts_with("OpenSSL ")
    );
}

#[test]
fn open_files_are_no_obstacle_but_for_a_hard_limit() {
    let Some(command) = handshakes("--key p256 --concurrency 80 --seconds 0.1 --rounds 1 --json")
    else {
        return;
    };
    let limited = |limit: &str| {
        let mut shell = Command::new("sh");
        let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script]).arg(command.get_program());
        shell.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        run(&mut shell)
    };
    let (code, stdout, stderr) = limited("-S -n 60");
    assert_eq!(code, 0, "{stderr}");
    let document = serde_json::from_str(&stdout).unwrap();
    check(&document, 80);
    assert_eq!(document["warm_up"], 0.025, "a quarter of the turn");
    let (code, _, stderr) = limited("-n 60");
    assert_eq!(code, 1, "{stderr}");
    for expected in [
        "80 clients need 224 open files",
        "remedy: lower --concurrency",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn stock_is_not_compared_with_stock() {
    let Some(mut command) = handshakes("--concurrency 2 --seconds 0.1 --rounds 1") else {
        return;
    };
    let (code, stdout, stderr) = run(command.env("LOCKSTEP_BACKEND", "none"));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(
        stderr.contains("lockstep did nothing in embedded") && stderr.contains("remedy: "),
        "{stderr}"
    );
}

#[test]
fn what_is_missing_is_named() {
    let mut command = bench(&["handshakes", "--server", "stunnel"]);
    let (code, _, stderr) = run(command.env("PATH", "/nowhere"));
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("stunnel is not installed\nremedy: apt install stunnel4"),
        "{stderr}"
    );

    let configuration = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-module.cnf");
    let text = "openssl_conf = init\n[init]\nproviders = p\n[p]\nlockstep = l\n[l]\n\
                module = /nowhere/lockstep.so\nactivate = 1\n";
    fs::write(&configuration, text).unwrap();
    let mut command = bench(&["handshakes"]);
    let (code, _, stderr) = run(command.env("OPENSSL_CONF", configuration));
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("names /nowhere/lockstep.so, which is not there"),
        "{stderr}"
    );
}

/// `openssl s_server`, ended when dropped.
struct StockServer(std::process::Child);

impl Drop for StockServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn connect_says_what_was_agreed_on() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let [key, certificate] = ["connect.key", "connect.pem"].map(|name| directory.join(name));
    let mut request = lockstep_testkit::command(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ],
    );
    let (code, _, stderr) = run(request
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate));
    assert_eq!(code, 0, "{stderr}");
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap()
        .to_string();
    let options = ["s_server", "-www", "-quiet", "-groups", "P-256:X25519"];
    let mut server = lockstep_testkit::command("openssl", &options);
    server.args(["-accept", &address]);
    server.arg("-cert").arg(&certificate).arg("-key").arg(&key);
    let _server = StockServer(server.spawn().unwrap());
    let connect = |arguments: &str| {
        let mut command = bench(&["connect", &address, "--authority"]);
        command.arg(&certificate).args(arguments.split_whitespace());
        run(&mut command)
    };
    let start = std::time::Instant::now();
    while connect("").0 != 0 {
        assert!(start.elapsed().as_secs() < 20, "{:?}", connect(""));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (code, stdout, stderr) = connect("--group p256 --count 2");
    assert_eq!(code, 0, "{stderr}");
    let agreed = "TLSv1_3 secp256r1 TLS13_AES_256_GCM_SHA384\n";
    assert_eq!(stdout, agreed.repeat(2));
    let (code, stdout, stderr) = connect("--tls 1.2 --group p256");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.starts_with("TLSv1_2 secp256r1 TLS_ECDHE_"),
        "{stdout}"
    );
    // The certificate's key is on another curve.
    let (code, stdout, stderr) = connect("--tls 1.2 --group x25519");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.starts_with("TLSv1_2 X25519 TLS_ECDHE_ECDSA_"),
        "{stdout}"
    );
    for (arguments, why) in [
        (
            "--tls 1.2 --group p384",
            "the server took the group secp256r1, and not secp384r1",
        ),
        ("--group p384", "handshake 1 of 1: "),
        ("--name example.org", "not valid for name"),
    ] {
        let (code, stdout, stderr) = connect(arguments);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}
