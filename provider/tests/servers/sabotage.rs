//! Set-ups that keep a server from the lanes, each in its own way: `lockstep doctor --pid` names
//! the cause of each, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::compiler::compile;
use crate::site::{Site, has_ifma};

/// A line of doctor about one check.
#[derive(Debug)]
pub struct Finding {
    pub mark: String,
    pub check: String,
    pub what: String,
}

/// Returns the findings of `lockstep doctor` about a server, and its exit status.
pub fn doctor(site: &Site) -> (Vec<Finding>, Option<i32>) {
    let master = site.running_master().to_string();
    doctor_of(site, &["--pid", &master])
}

/// The same with other options.
fn doctor_of(site: &Site, options: &[&str]) -> (Vec<Finding>, Option<i32>) {
    let output = Command::new(site.path("lockstep/lockstep"))
        .arg("doctor")
        .args(options)
        .env_clear()
        .env("PATH", crate::site::path())
        .output()
        .expect("the command that `cargo xtask dist` builds");
    let text = String::from_utf8_lossy(&output.stdout);
    let finding = |line: &str| {
        let (mark, rest) = line.split_at_checked(6)?;
        let (check, what) = rest.trim_start().split_once(' ')?;
        (!mark.trim().is_empty()).then(|| Finding {
            mark: mark.trim().to_owned(),
            check: check.to_owned(),
            what: what.trim().to_owned(),
        })
    };
    (
        text.lines().filter_map(finding).collect(),
        output.status.code(),
    )
}

/// Asserts that only this check is neither in order nor a note, and that it has these words.
#[track_caller]
fn assert_cause(site: &Site, marks: &[&str], check: &str, words: &[&str]) {
    let (findings, status) = doctor(site);
    let is_wrong = |finding: &&Finding| ["FAILED", "warn"].contains(&finding.mark.as_str());
    let wrong: Vec<&Finding> = findings.iter().filter(is_wrong).collect();
    let [cause] = &wrong[..] else {
        panic!("not one cause: {findings:#?}\n{}", site.logs());
    };
    assert_eq!(cause.check, check, "{findings:#?}");
    assert!(marks.contains(&cause.mark.as_str()), "{findings:#?}");
    for word in words {
        assert!(cause.what.contains(word), "no `{word}` in {findings:#?}");
    }
    let expected = i32::from(cause.mark == "FAILED");
    assert_eq!(status, Some(expected), "{findings:#?}");
}

/// HAProxy by its recipe, with its set-up changed before the start.
fn haproxy(sabotage: impl FnOnce(&mut Site)) -> Option<Site> {
    Site::start_changed("haproxy", sabotage)
}

/// The same where doctor finds nothing wrong with the CPU.
fn haproxy_on_lanes(sabotage: impl FnOnce(&mut Site)) -> Option<Site> {
    has_ifma().then(|| haproxy(sabotage)).flatten()
}

/// Adds lines to the module's section of the configuration.
fn set(site: &Site, lines: &str) {
    site.edit(
        "lockstep/openssl.cnf",
        "\nstats_dir",
        &format!("\n{lines}\nstats_dir"),
    );
}

#[track_caller]
pub fn assert_healthy(site: &Site) {
    let (findings, status) = doctor(site);
    let is_wrong = |finding: &Finding| ["FAILED", "warn"].contains(&finding.mark.as_str());
    assert!(
        !findings.iter().any(is_wrong),
        "{findings:#?}\n{}",
        site.logs()
    );
    assert_eq!(status, Some(0));
    let of = |check: &str| findings.iter().find(|finding| finding.check == check);
    let used = of("used").expect("handshakes were judged");
    assert!(
        used.mark == "ok" && used.what.contains(" lanes"),
        "{findings:#?}"
    );
    let served = of("handshakes").expect("handshakes were made");
    assert!(served.what.contains("bits) on lanes"), "{findings:#?}");
    let groups = of("exchange").expect("groups were tried");
    assert!(groups.what.contains("X25519 on lanes"), "{findings:#?}");
}

#[test]
fn doctor_finds_a_healthy_server_in_order() {
    if let Some(site) = haproxy_on_lanes(|_| {}) {
        assert_healthy(&site);
    }
}

/// nginx writes over its environment, the others serve with threads.
#[test]
fn doctor_finds_other_healthy_servers_in_order() {
    if !has_ifma() {
        return;
    }
    for server in ["nginx", "apache", "stunnel"] {
        if let Some(site) = Site::start(server) {
            assert_healthy(&site);
        }
    }
}

/// Findings of one check, in one text.
fn said(findings: &[Finding], check: &str) -> String {
    let of_check = findings.iter().filter(|finding| finding.check == check);
    let lines = of_check.map(|finding| format!("{} {}", finding.mark, finding.what));
    lines.collect::<Vec<_>>().join("\n")
}

/// Two ports with keys of two kinds and groups of their own, and one without TLS.
#[test]
fn doctor_tries_each_port() {
    let sabotage = |site: &mut Site| {
        site.shell(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 \
                 -subj /CN=localhost -keyout p256.key -out p256.crt
             cat p256.crt p256.key > p256.pem",
        );
        let more = "site.pem\n    bind 127.0.0.1:18444 ssl crt p256.pem curves \
                    SecP384r1MLKEM1024:X25519\n    bind 127.0.0.1:18445\n";
        site.edit("haproxy.cfg", "site.pem\n", more);
    };
    let Some(site) = haproxy_on_lanes(sabotage) else {
        return;
    };
    let (findings, status) = doctor(&site);
    assert_eq!(status, Some(0), "{findings:#?}");
    let handshakes = said(&findings, "handshakes");
    for part in [
        "handshakes at 127.0.0.1:18443, certificates: RSA (2048 bits) on lanes",
        "handshakes at 127.0.0.1:18444, certificates: ECDSA (256 bits) on lanes",
        "127.0.0.1:18445: ",
    ] {
        assert!(handshakes.contains(part), "{findings:#?}");
    }
    let exchange = said(&findings, "exchange");
    let hybrid = "at 127.0.0.1:18444: SecP384r1MLKEM1024 on lanes";
    assert!(exchange.contains(hybrid), "{findings:#?}");
    let used = said(&findings, "used");
    assert_eq!(used.matches("ok ").count(), 2, "{findings:#?}");
}

/// Each is looked at, and neither is a fault of the other.
#[test]
fn doctor_looks_at_each_of_several_servers() {
    let Some(site) = haproxy_on_lanes(|_| {}) else {
        return;
    };
    let start = site.lines("start").replace("haproxy.cfg", "other.cfg");
    let start = start.replace("haproxy.pid", "other.pid");
    let text = fs::read_to_string(site.path("haproxy.cfg")).expect("its configuration");
    site.write("other.cfg", &text.replace(":18443", ":18446"));
    site.shell(&start);
    let number = || {
        fs::read_to_string(site.path("other.pid"))
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    crate::client::wait_for("the other server", || number().is_some());
    let other = number().expect("its number");
    let (findings, _) = doctor_of(&site, &["--service", "haproxy"]);
    site.shell("kill $(cat other.pid)");
    // The machine may have servers of its own, so only processes of a unit count.
    let processes = said(&findings, "process");
    let line = |process: u32| format!("ok haproxy (process {process}) runs ");
    let both = [site.running_master(), other].map(line);
    if !both.iter().any(|line| processes.contains(line)) {
        println!("skipped: a unit haproxy.service runs here: {processes}");
        return;
    }
    assert!(
        both.iter().all(|line| processes.contains(line)),
        "{findings:#?}"
    );
    let handshakes = said(&findings, "handshakes");
    for port in ["127.0.0.1:18443, ", "127.0.0.1:18446, "] {
        assert!(handshakes.contains(port), "{findings:#?}");
    }
}

/// After an upgrade of the module: the remedy that doctor names loads the new one, and a reload is
/// named only where it does.
#[test]
fn doctor_names_a_module_that_was_replaced_with_what_loads_the_new_one() {
    for (server, by_reload) in [("haproxy", true), ("nginx", false), ("apache", false)] {
        let Some(site) = Site::start(server) else {
            continue;
        };
        let loaded = || said(&doctor(&site).0, "loaded");
        assert!(loaded().starts_with("ok "), "{server}: {}", loaded());
        site.shell("cp $LOCKSTEP/lockstep.so new.so && mv -f new.so $LOCKSTEP/lockstep.so");
        let master = site.running_master().to_string();
        let mut doctor = site.script(&format!("$LOCKSTEP/lockstep doctor --pid {master} || true"));
        let printed = String::from_utf8(doctor.output().expect("doctor").stdout).expect("text");
        let remedy = format!("kill -USR2 {master}");
        assert!(
            printed.contains("was replaced or removed since"),
            "{printed}"
        );
        assert_eq!(printed.contains(&remedy), by_reload, "{server}: {printed}");
        let before = site.workers();
        site.perform("reload");
        crate::client::wait_for("new processes", || site.has_replaced(&before));
        let mark = match by_reload {
            true => "ok ",
            false => "warn ",
        };
        assert!(loaded().starts_with(mark), "{server}: {}", loaded());
    }
}

#[test]
fn doctor_names_a_variable_that_is_missing() {
    let sabotage =
        |site: &mut Site| site.rewrite("start", "OPENSSL_CONF=$LOCKSTEP/openssl.cnf ", "");
    if let Some(site) = haproxy(sabotage) {
        assert_cause(
            &site,
            &["FAILED"],
            "environment",
            &["runs without OPENSSL_CONF"],
        );
    }
}

#[test]
fn doctor_names_capabilities_that_strip_the_environment() {
    let sabotage = |site: &mut Site| {
        site.shell("cp \"$(command -v haproxy)\" own");
        site.rewrite("start", "haproxy -W", "./own -W");
    };
    let granted = |site: &Site| {
        let mut command = Command::new("setcap");
        command.arg("cap_net_bind_service=ep").arg(site.path("own"));
        command.env("PATH", crate::site::path());
        command.status().is_ok_and(|status| status.success())
    };
    let mut is_granted = false;
    let site = haproxy(|site| {
        sabotage(site);
        is_granted = granted(site);
    });
    match site {
        Some(_) if !is_granted => println!("skipped: files get no capabilities here"),
        Some(site) => assert_cause(
            &site,
            &["FAILED"],
            "privileges",
            &["has file capabilities", "OpenSSL ignores the environment"],
        ),
        None => {}
    }
}

#[test]
fn doctor_names_a_mount_namespace_without_the_module() {
    let unshare = "unshare --user --map-root-user --mount";
    let probe = Command::new("sh")
        .args(["-c", &format!("{unshare} true")])
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: no mount namespaces here");
        return;
    }
    let hidden =
        format!("{unshare} sh -c 'mount -t tmpfs none \"$LOCKSTEP\" && exec \"$@\"' sh haproxy -W");
    if let Some(site) = haproxy(|site| site.rewrite("start", "haproxy -W", &hidden)) {
        let place = site.path("lockstep");
        let place = format!("in place of {}", place.display());
        let words = ["does not see", "mount namespace of its own", &place];
        assert_cause(&site, &["FAILED"], "namespace", &words);
    }
}

#[test]
fn doctor_names_a_module_for_another_cpu() {
    let sabotage = |site: &mut Site| {
        let path = site.path("lockstep/lockstep.so");
        let mut module = fs::read(&path).expect("the module");
        // `e_machine`: AArch64.
        module[18] = 183;
        fs::write(&path, module).expect("a module for another CPU");
    };
    if let Some(site) = haproxy(sabotage) {
        let words = ["lockstep.so", "another kind of CPU (ELF machine 183"];
        assert_cause(&site, &["FAILED"], "module", &words);
    }
}

/// The server has an OpenSSL of its own, and a library of it brings the system's.
#[test]
fn doctor_names_a_second_libcrypto() {
    let sabotage = |site: &mut Site| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/second_openssl.c");
        compile(
            &source,
            &site.path("second.so"),
            &["-shared", "-fPIC", "-ldl"],
        );
        site.shell(
            "mkdir own
             program=$(command -v haproxy)
             library() { ldd $program | awk -v name=$1 '$1 == name { print $3 }'; }
             export LC_ALL=C
             rename='s/libcrypto[.]so[.]3/libcrypto.so.9/g'
             sed $rename $program > own/haproxy
             sed $rename $(library libssl.so.3) > own/libssl.so.3
             sed $rename $(library libcrypto.so.3) > own/libcrypto.so.9
             chmod 755 own/haproxy",
        );
        site.rewrite(
            "start",
            "haproxy -W",
            "LD_LIBRARY_PATH=$PWD/own LD_PRELOAD=$PWD/second.so own/haproxy -W",
        );
    };
    if let Some(site) = haproxy_on_lanes(sabotage) {
        let words = ["2 libcryptos", "own/libcrypto.so.9", "/libcrypto.so.3"];
        assert_cause(&site, &["FAILED", "warn"], "libcrypto", &words);
    }
}

#[test]
fn doctor_names_an_unknown_group() {
    let sabotage = |site: &mut Site| {
        let path = "lockstep/openssl.cnf";
        let init = "\nproviders.lockstep";
        let policy = format!("\nssl_conf = site_ssl{init}");
        site.edit(path, init, &policy);
        let sections = "\n[site_ssl]\nsystem_default = site_tls\n[site_tls]\n\
                        Groups = X25519:nonesuch\n";
        let text = fs::read_to_string(site.path(path)).expect("the configuration");
        site.write(path, &format!("{text}{sections}"));
    };
    if let Some(site) = haproxy_on_lanes(sabotage) {
        let words = ["`nonesuch`", "`Groups` in ", "refuses the whole list"];
        assert_cause(&site, &["warn"], "groups", &words);
    }
}

#[test]
fn doctor_names_a_filter_of_system_calls() {
    let sabotage = |site: &mut Site| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/deny.c");
        compile(&source, &site.path("deny"), &[]);
        let denied = format!("./deny {} haproxy -W", libc::SYS_fallocate);
        site.rewrite("start", "haproxy -W", &denied);
    };
    if let Some(site) = haproxy_on_lanes(sabotage) {
        let words = ["publishes no counters", "(seccomp)"];
        assert_cause(&site, &["warn"], "seccomp", &words);
    }
}

#[test]
fn doctor_names_max_async_when_it_is_reached() {
    if let Some(site) = haproxy_on_lanes(|site| set(site, "max_async = 1")) {
        let words = ["blocked their thread", "max_async (1) allows"];
        assert_cause(&site, &["warn"], "jobs", &words);
    }
}

/// However many clients there are, such a server computes one request at a time.
#[test]
fn doctor_names_a_server_whose_requests_are_always_alone() {
    let sabotage = |site: &mut Site| {
        site.edit("haproxy.cfg", "    ssl-mode-async\n", "    nbthread 1\n");
    };
    if let Some(site) = haproxy_on_lanes(sabotage) {
        let words = ["with 8 clients at a time", "computes one at a time"];
        assert_cause(&site, &["warn"], "lone", &words);
    }
}

#[test]
fn doctor_names_a_setting_that_disables_the_lanes() {
    if let Some(site) = haproxy(|site| set(site, "backend = none")) {
        let words = [
            "`backend = none` in [lockstep_module]",
            "disables the lanes",
        ];
        assert_cause(&site, &["FAILED"], "settings", &words);
    }
}

/// A CPU that has AVX2 and nothing better: this one, or by a setting.
#[test]
fn doctor_names_lanes_that_are_slower_than_openssl() {
    if lockstep_engine::Backend::from_name("avx2").is_none() {
        println!("skipped: this CPU has no AVX2");
        return;
    }
    // On this CPU alone nothing has failed: OpenSSL's own code signs, as without the module.
    let (setting, check, mark, words) = match has_ifma() {
        true => ("avx2", "settings", "warn", "LOCKSTEP_BACKEND=avx2"),
        false => (
            "",
            "instructions",
            "note",
            "this CPU, or its operating system",
        ),
    };
    if let Some(site) = haproxy(|site| site.set("LOCKSTEP_BACKEND", setting.into())) {
        let (findings, status) = doctor(&site);
        let of = |check: &str| findings.iter().find(|finding| finding.check == check);
        let cause = of(check).expect("the cause");
        assert_eq!((&*cause.mark, status), (mark, Some(0)), "{findings:#?}");
        for words in [words, "OpenSSL's own code is about as fast for RSA"] {
            assert!(cause.what.contains(words), "{findings:#?}");
        }
        let used = of("used").expect("handshakes were judged");
        assert_eq!(used.mark, "note", "{findings:#?}");
        assert!(!findings.iter().any(|finding| finding.mark == "FAILED"));
    }
}
