//! The `lockstep` command as its users meet it: arguments, documents, remedies.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockstep_engine::{Config, Engine, Fallback, StatsDir};
use lockstep_testkit::{Named, Random, assert_helps, assert_refused};
use serde_json::Value;

use common::{has_lanes, lockstep, run};

/// The finding of one check in doctor's document.
fn finding<'a>(document: &'a Value, check: &str) -> &'a Value {
    let findings = document["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap()
}

/// A configuration that loads this module.
fn loading(module: &str) -> String {
    format!(
        "openssl_conf = init\n[init]\nproviders = p\n[p]\ndefault = d\nlockstep = l\n[d]\nactivate = 1\n\
         [l]\nmodule = {module}\nactivate = 1\n"
    )
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn wrong_arguments_are_refused_with_what_is_right() {
    for (arguments, reason) in [
        (&["frob"][..], "unrecognized subcommand"),
        (&["--frob"], "--frob"),
        (&["doctor", "twice"], "twice"),
        (&["stat", "--dir", ".", "--total", "frobs"], "operations"),
    ] {
        assert_refused(&mut lockstep(arguments), reason);
    }
}

#[test]
fn devices_are_listed_by_the_program_beside_this_one() {
    let place = scratch("devices");
    let own = place.join("lockstep");
    fs::copy(lockstep(&[]).get_program(), &own).unwrap();
    let devices = || run(Command::new(&own).args(["devices", "--rates"]));
    let (code, _, told) = devices();
    assert!(code != 0 && told.contains("lockstep-bench"), "{told}");
    let other = place.join("lockstep-bench");
    fs::write(&other, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(devices().1, "devices --rates\n");
}

#[test]
fn help_is_on_standard_output() {
    for arguments in [
        &[][..],
        &["--help"],
        &["help"],
        &["doctor", "-h"],
        &["stat", "--help"],
        &["configuration", "--help"],
        &["install", "--help"],
        &["uninstall", "--help"],
    ] {
        assert_helps(&mut lockstep(arguments), "Usage: lockstep");
    }
}

#[test]
fn man_pages_and_completions_have_what_the_help_has() {
    let place = scratch("documents");
    let (code, _, stderr) = run(&mut lockstep(&["documents", place.to_str().unwrap()]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let text = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    for command in [
        "doctor",
        "stat",
        "configuration",
        "install",
        "uninstall",
        "keyd",
        "devices",
        "exporter",
    ] {
        let page = text(&format!("lockstep-{command}.1"));
        for section in ["OPTIONS", "EXAMPLES", "FILES"] {
            let heading = format!("\n.SH {section}\n");
            assert_eq!(page.matches(&heading).count(), 1, "{section}: {page}");
        }
        assert!(
            !page.contains(".SH EXTRA") && !page.contains("Files:"),
            "{page}"
        );
        for completions in ["lockstep.bash", "_lockstep", "lockstep.fish"] {
            let text = text(completions);
            assert!(text.contains(command), "{completions}");
            assert!(!text.contains("probe"), "{completions}");
        }
    }
    assert!(text("lockstep-stat.1").contains("Prometheus"));
    assert!(text("lockstep.1").contains("lockstep\\-bench measures"));
    let pages = fs::read_dir(&place).unwrap().count();
    assert_eq!(
        pages,
        1 + 8 + 4 + 3,
        "the program, its commands, those of keyd, three shells"
    );
}

#[test]
fn readers_that_have_gone_are_no_failure() {
    for arguments in [&["help"][..], &["doctor"], &["stat"], &["stat", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = lockstep(arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !stderr.contains("panicked") && output.status.code() != Some(101),
            "{stderr}"
        );
    }
}

#[test]
fn doctor_says_that_the_module_is_not_there() {
    let configuration = scratch("doctor-missing").join("openssl.cnf");
    fs::write(&configuration, loading("/nowhere/lockstep.so")).unwrap();
    let (code, stdout, _) =
        run(lockstep(&["doctor", "--json"]).env("OPENSSL_CONF", &configuration));
    assert_eq!(code, 1);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["ok"], false);
    let module = finding(&document, "module");
    assert_eq!(module["verdict"], "failed");
    assert!(
        module["what"]
            .as_str()
            .unwrap()
            .contains("/nowhere/lockstep.so")
    );
    assert!(
        module["remedy"]
            .as_str()
            .unwrap()
            .contains("cargo xtask dist")
    );
}

#[test]
fn doctor_names_variables_that_are_no_settings() {
    let doctor = |variables: &[(&str, &str)]| -> Value {
        let mut command = lockstep(&["doctor", "--json"]);
        command.envs(variables.iter().copied());
        serde_json::from_str(&run(&mut command).1).unwrap()
    };
    // Whatever else doctor finds about the settings.
    for backend in ["auto", "none", "portable"] {
        let document = doctor(&[
            ("LOCKSTEP_BACKEND", backend),
            ("LOCKSTEP_QUICKLY", "2"),
            ("LOCKSTEP_SLOT", "2"),
            ("LOCKSTEP_SLOTS", "2"),
        ]);
        let environment = finding(&document, "environment");
        assert_eq!(environment["verdict"], "warning", "{document}");
        let what = environment["what"].as_str().unwrap();
        assert!(what.contains("LOCKSTEP_QUICKLY, which is not"), "{what}");
        assert!(environment["remedy"].is_string(), "{environment}");
        // A misspelt setting is reported once, with the name that was meant.
        let findings = document["findings"].as_array().unwrap().iter();
        let named: Vec<&str> = findings
            .filter_map(|finding| finding["what"].as_str())
            .filter(|what| what.contains("LOCKSTEP_SLOT "))
            .collect();
        let [misspelt] = &named[..] else {
            panic!("{document}");
        };
        assert!(misspelt.contains("is LOCKSTEP_SLOTS meant?"), "{misspelt}");
    }
    let document = doctor(&[("LOCKSTEP_A", "1"), ("LOCKSTEP_B", "1")]);
    let what = finding(&document, "environment")["what"].as_str().unwrap();
    assert!(
        what.contains("LOCKSTEP_A and LOCKSTEP_B, which are"),
        "{what}"
    );
    let findings = doctor(&[("LOCKSTEP_SLOTS", "2")])["findings"].to_string();
    assert!(!findings.contains("environment\""), "{findings}");
}

/// Files in the place of the module, and the report that doctor must make.
#[test]
fn doctor_says_what_is_wrong_with_the_module() {
    let place = scratch("doctor-damaged");
    let module = place.join("lockstep.so");
    let configuration = place.join("openssl.cnf");
    let library = fs::read(compile_library(&place)).unwrap();
    let mut foreign = library.clone();
    foreign[18] = 183;
    // The error names the whole library in the wrong place, in glibc's own words.
    for (bytes, check, expected) in [
        (&b""[..], "module", "is empty"),
        (b"not a module\n", "module", "is not a shared library"),
        (&library[..library.len() / 2], "module", "is cut off: "),
        (
            &foreign,
            "module",
            "is for another kind of CPU (ELF machine 183",
        ),
        (&library, "loaded", "undefined symbol: OSSL_provider_init"),
    ] {
        fs::write(&module, bytes).unwrap();
        fs::write(&configuration, loading(module.to_str().unwrap())).unwrap();
        expect(&configuration, check, &[expected]);
    }
    // A library that it needs is not there: only the loader sees that.
    fs::write(&module, fs::read(compile_needy_library(&place)).unwrap()).unwrap();
    expect(
        &configuration,
        "loaded",
        &["libneeded.so", "cannot open shared object file"],
    );

    let mut locked = fs::metadata(&module).unwrap().permissions();
    locked.set_mode(0o000);
    fs::set_permissions(&module, locked).unwrap();
    if fs::File::open(&module).is_err() {
        expect(
            &configuration,
            "module",
            &["cannot be read: Permission denied"],
        );
    } else {
        println!("root reads every file: nothing to see without permission");
    }
}

#[test]
fn doctor_says_what_is_wrong_with_the_configuration() {
    let place = scratch("doctor-mistakes");
    let configuration = place.join("openssl.cnf");
    let good = loading("/nowhere/lockstep.so");
    for (text, check, expected) in [
        (good.replace("[init]", "[init"), "configuration", "line 2"),
        (
            good.replace("providers = p", "providers p"),
            "configuration",
            "line 3",
        ),
        (
            format!(".include = {}/more\n{good}", place.display()),
            "configuration",
            "missing equal sign",
        ),
    ] {
        fs::create_dir_all(place.join("more")).unwrap();
        fs::write(place.join("more/x.cnf"), "no equals sign\n").unwrap();
        fs::write(&configuration, text).unwrap();
        expect(
            &configuration,
            check,
            &["cannot read", "openssl.cnf", expected],
        );
    }
    // The parser accepts this and libcrypto does not: there is no such section.
    let library = compile_library(&place);
    let good = loading(library.to_str().unwrap());
    for (text, check, expected) in [
        (
            good.replace("[p]", "[p]\nx = none"),
            "loaded",
            "section=none not found",
        ),
        (
            good.replace("[init]", "[init]\nalg_section = none"),
            "loaded",
            "loading",
        ),
    ] {
        fs::write(&configuration, text).unwrap();
        expect(&configuration, check, &[expected, "openssl.cnf"]);
    }
    // OpenSSL ignores a missing included file, too: the expected report is missing.
    let included = format!(
        "openssl_conf = init\n.include = {}/none.cnf\n",
        place.display()
    );
    fs::write(&configuration, included).unwrap();
    expect(&configuration, "module", &["names no module lockstep.so"]);
    let inactive = good.replace(".so\nactivate = 1", ".so");
    fs::write(&configuration, inactive).unwrap();
    expect(
        &configuration,
        "loaded",
        &["does not activate lockstep", "[l]"],
    );
}

/// With FIPS properties in force lockstep serves nothing, and doctor says so before all else.
#[test]
fn doctor_says_that_fips_is_wanted() {
    let place = scratch("doctor-fips");
    let configuration = place.join("openssl.cnf");
    let library = compile_library(&place);
    let good = loading(library.to_str().unwrap());
    fs::write(
        &configuration,
        good.replace(
            "[init]",
            "[init]\nalg_section = evp\n[evp]\nfips_mode = yes\n[init]",
        ),
    )
    .unwrap();
    expect(
        &configuration,
        "policy",
        &["turns FIPS on", "`fips_mode = yes`", "[evp]"],
    );
}

/// As some distributions have it: OpenSSL itself decides, by a flag of the kernel, and no file says
/// so.
#[test]
fn doctor_says_that_fips_is_on_by_other_means() {
    let place = scratch("doctor-fips-otherwise");
    let configuration = place.join("openssl.cnf");
    let library = compile_library(&place);
    fs::write(&configuration, loading(library.to_str().unwrap())).unwrap();
    let doctor = |libraries: Option<&Path>| -> Value {
        let mut command = lockstep(&["doctor", "--json"]);
        command.env("OPENSSL_CONF", &configuration);
        if let Some(libraries) = libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let (code, stdout, _) = run(&mut command);
        assert_eq!(code, 1, "{stdout}");
        serde_json::from_str(&stdout).unwrap()
    };
    let without = doctor(None);
    let findings = without["findings"].as_array().unwrap();
    assert!(findings.iter().all(|found| found["check"] != "fips"));
    let source = "int EVP_default_properties_is_fips_enabled(void *context) { return 1; }\n";
    // The program loads the newest libcrypto; a function that it lacks is found in the needed one.
    let needs = ["-Wl,--no-as-needed", "-l:libcrypto.so.3"];
    compile_source(&place, "libcrypto.so.4", source, &needs);
    let document = doctor(Some(&place));
    let fips = finding(&document, "fips");
    assert_eq!(fips["verdict"], "failed", "{document}");
    let what = fips["what"].as_str().unwrap();
    assert!(what.contains("uses FIPS providers only"), "{what}");
    assert!(fips["remedy"].is_string(), "{fips}");
    // Nothing is asked after that.
    assert_eq!(
        document["findings"].as_array().unwrap().last().unwrap(),
        fips
    );
}

#[test]
fn doctor_looks_at_the_directory_for_counters_that_the_configuration_names() {
    let place = scratch("doctor-counters");
    let configuration = place.join("openssl.cnf");
    let library = compile_library(&place);
    let directory = place.join("counters");
    fs::create_dir(&directory).unwrap();
    let good = loading(library.to_str().unwrap());
    let with = |value: &str| {
        let text = good.replace("[l]\n", &format!("[l]\nstats_dir = {value}\n"));
        fs::write(&configuration, text).unwrap();
    };
    let counters = |variable: &str| {
        let mut command = lockstep(&["doctor", "--json"]);
        command.env("OPENSSL_CONF", &configuration);
        let (_, stdout, _) = run(command.env("LOCKSTEP_STATS_DIR", variable));
        let document: Value = serde_json::from_str(&stdout).unwrap();
        let counters = finding(&document, "counters");
        let what = counters["what"].as_str().unwrap().to_owned();
        (counters["verdict"].as_str().unwrap().to_owned(), what)
    };
    let named = "`stats_dir` in [l] of ";
    with(directory.to_str().unwrap());
    let (verdict, what) = counters("");
    assert_eq!(verdict, "ok", "{what}");
    let shown = directory.display().to_string();
    assert!(what.contains(&shown) && what.contains(named), "{what}");
    // The environment overrides it.
    let (verdict, what) = counters("no");
    assert_eq!(verdict, "note", "{what}");
    assert!(what.contains("LOCKSTEP_STATS_DIR disables"), "{what}");

    with("/nonexistent");
    let (verdict, what) = counters("");
    assert_eq!(verdict, "failed", "{what}");
    assert!(
        what.contains("/nonexistent") && what.contains(named),
        "{what}"
    );
    assert_eq!(counters(directory.to_str().unwrap()).0, "ok");
    with("no");
    let (verdict, what) = counters("");
    assert_eq!(verdict, "note", "{what}");
    assert!(what.contains(named), "{what}");
}

/// A shared library that is not a provider.
fn compile_library(place: &Path) -> PathBuf {
    compile(place, "lockstep.so", &[])
}

/// One that needs another one, which is gone.
fn compile_needy_library(place: &Path) -> PathBuf {
    let needed = compile(place, "libneeded.so", &[]);
    let library = compile(
        place,
        "needy.so",
        &["-Wl,--no-as-needed", needed.to_str().unwrap()],
    );
    fs::remove_file(needed).unwrap();
    library
}

fn compile(place: &Path, name: &str, options: &[&str]) -> PathBuf {
    compile_source(place, name, "int nothing(void) { return 0; }\n", options)
}

fn compile_source(place: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, library) = (place.join("library.c"), place.join(name));
    fs::write(&source, text).unwrap();
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .args(options);
    assert!(command.status().unwrap().success());
    library
}

/// Has doctor look at a configuration and find this check failed.
#[track_caller]
fn expect(configuration: &Path, check: &str, expected: &[&str]) {
    let (code, stdout, stderr) =
        run(lockstep(&["doctor", "--json"]).env("OPENSSL_CONF", configuration));
    assert_eq!(code, 1, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let failed = findings
        .iter()
        .find(|finding| finding["check"] == check && finding["verdict"] == "failed");
    let failed = failed.unwrap_or_else(|| panic!("{check} did not fail: {stdout}"));
    let what = failed["what"].as_str().unwrap();
    assert!(
        expected.iter().all(|part| what.contains(part)),
        "not {expected:?}: {what}"
    );
    let remedy = failed["remedy"].as_str().unwrap();
    // A user of the package cannot build.
    let is_for_all = !remedy.contains("cargo xtask") || remedy.contains("package");
    assert!(is_for_all, "{failed}");
}

#[test]
fn doctor_says_that_the_configuration_is_another() {
    let configuration = scratch("doctor-other").join("openssl.cnf");
    fs::write(&configuration, "openssl_conf = none\n").unwrap();
    let (code, stdout, _) = run(lockstep(&["doctor"]).env("OPENSSL_CONF", &configuration));
    assert_eq!(code, 1);
    assert!(stdout.contains("names no module lockstep.so"), "{stdout}");
    assert!(stdout.contains("remedy:"), "{stdout}");
}

#[test]
fn doctor_says_that_there_is_no_configuration() {
    let (code, stdout, _) = run(lockstep(&["doctor"]).env("OPENSSL_CONF", "/nowhere/openssl.cnf"));
    assert_eq!(code, 1);
    assert!(
        stdout.contains("cannot read /nowhere/openssl.cnf"),
        "{stdout}"
    );
}

#[test]
fn doctor_says_that_the_environment_turns_the_lanes_off() {
    if !has_lanes() {
        return;
    }
    let (code, stdout, _) = run(lockstep(&["doctor", "--json"]).env("LOCKSTEP_BACKEND", "none"));
    assert_eq!(code, 1);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let settings = finding(&document, "settings");
    assert_eq!(settings["verdict"], "failed");
    assert!(
        settings["remedy"]
            .as_str()
            .unwrap()
            .contains("unset LOCKSTEP_BACKEND")
    );
}

#[test]
fn doctor_says_that_stock_is_faster_than_the_lanes() {
    if lockstep_engine::Backend::from_name("avx2").is_none() {
        eprintln!("skipped: this CPU has no AVX2");
        return;
    }
    let mut command = lockstep(&["doctor", "--json"]);
    command.env("LOCKSTEP_BACKEND", "avx2");
    let dist = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from);
    if let Some(dist) = &dist {
        command.env("OPENSSL_CONF", dist.join("openssl.cnf"));
    }
    let (code, stdout, _) = run(&mut command);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let (about, verdict) = match has_lanes() {
        true => ("settings", "warning"),
        false => ("instructions", "note"),
    };
    assert_eq!(finding(&document, about)["verdict"], verdict, "{stdout}");
    if dist.is_some() {
        // The exit status can be watched on every machine that README names.
        assert_eq!(finding(&document, "used")["verdict"], "note", "{stdout}");
        assert_eq!(code, 0, "{stdout}");
    }
    let mut checks = vec![about];
    // With the module of `cargo xtask dist`, the check `used` shows it, too.
    checks.extend(dist.map(|_| "used"));
    for check in checks {
        let what = finding(&document, check)["what"].as_str().unwrap();
        assert!(what.contains("avx2"), "{stdout}");
        assert!(
            what.contains("OpenSSL's own code is about as fast for RSA"),
            "{stdout}"
        );
    }
}

#[test]
fn stat_of_an_empty_directory_is_nothing() {
    let directory = scratch("stat-empty");
    let directory = directory.to_str().unwrap();
    assert_eq!(
        run(&mut lockstep(&["stat", "--json", "--dir", directory])).1,
        "[]\n"
    );
    assert_eq!(
        run(&mut lockstep(&[
            "stat",
            "--total",
            "operations",
            "--dir",
            directory
        ]))
        .1,
        "0\n"
    );
    let (code, stdout, _) = run(&mut lockstep(&["stat", "--dir", directory]));
    assert_eq!(code, 0);
    assert!(stdout.contains("no process"), "{stdout}");
}

#[test]
fn stat_of_a_directory_that_is_not_there_is_an_error() {
    let (code, _, stderr) = run(&mut lockstep(&["stat", "--dir", "/nowhere"]));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("/nowhere") && stderr.contains("remedy:"),
        "{stderr}"
    );
}

#[test]
fn stat_shows_what_an_engine_counted() {
    let (directory, _engine) = engine_with_two_fallbacks("stat-engine");
    let directory = directory.to_str().unwrap();
    assert_eq!(
        run(&mut lockstep(&[
            "stat",
            "--total",
            "fallbacks",
            "--dir",
            directory
        ]))
        .1,
        "2\n"
    );
    let (_, stdout, _) = run(&mut lockstep(&["stat", "--dir", directory]));
    assert!(
        stdout.contains(&format!("process {}", std::process::id())),
        "{stdout}"
    );
    assert!(stdout.contains(Fallback::MultiPrime.name()), "{stdout}");
    let build = concat!(", lockstep ", env!("CARGO_PKG_VERSION"), "+source, ");
    assert!(stdout.contains(build), "{stdout}");
    let document: Value =
        serde_json::from_str(&run(&mut lockstep(&["stat", "--json", "--dir", directory])).1)
            .unwrap();
    assert_eq!(document[0]["fallbacks"][Fallback::MultiPrime.name()], 2);
    assert_eq!(document[0]["alive"], true);
    assert!(document[0]["process"].is_string(), "{document}");
}

#[test]
fn stat_shows_ended_processes_only_when_asked() {
    use std::os::unix::fs::FileExt;
    let (directory, _engine) = engine_with_two_fallbacks("stat-ended");
    // The file of this process, as if it were that of another: its number is the first owner's
    // first word.
    let file = fs::read_dir(&directory).unwrap().next().unwrap().unwrap();
    let file = fs::File::options().write(true).open(file.path()).unwrap();
    let ended = u64::from(u32::MAX).to_ne_bytes();
    file.write_all_at(&ended, 4096).unwrap();
    let directory = directory.to_str().unwrap();
    let total = ["stat", "--total", "fallbacks", "--dir", directory];
    assert_eq!(run(&mut lockstep(&total)).1, "0\n");
    assert_eq!(run(lockstep(&total).arg("--ended")).1, "2\n");
    let (_, stdout, _) = run(&mut lockstep(&["stat", "--ended", "--dir", directory]));
    assert!(stdout.contains("(ended)"), "{stdout}");
}

#[test]
fn stat_watches_until_nobody_listens() {
    use std::io::{BufRead, BufReader};
    let (directory, engine) = engine_with_two_fallbacks("stat-watch");
    let directory = directory.to_str().unwrap();
    for interval in [&["0.05"][..], &[]] {
        let mut command = lockstep(&["stat", "--dir", directory, "--watch"]);
        let mut child = command
            .args(interval)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().unwrap().unwrap();
        assert!(line().contains("stock/s"));
        engine.count(Fallback::MultiPrime);
        // The server, its user, its processes, no operations, and nothing of it on lanes or nothing
        // at all.
        let shown = line();
        let words: Vec<&str> = shown.split_whitespace().rev().collect();
        assert!(words.len() >= 10 && words[1] == "0", "{shown}");
        drop(lines);
        assert!(child.wait().unwrap().success());
    }
    let (code, _, stderr) = run(&mut lockstep(&["stat", "--watch=0"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("0.05 to 86400 seconds"), "{stderr}");
}

#[test]
fn stat_takes_one_form_at_a_time() {
    let (code, _, stderr) = run(&mut lockstep(&["stat", "--json", "--total=lost"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

/// `lockstep exporter`, with a socket as systemd passes it.
struct Exporter {
    child: std::process::Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(directory: &Path) -> Exporter {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut command = lockstep(&["exporter", "--dir"]);
        command.arg(directory).stdin(OwnedFd::from(socket));
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut exporter = Exporter { child, address };
        exporter.metrics();
        exporter
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // A test that waits for ever tells nobody why.
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// The status line and the text of the answer to a request.
    fn ask(&mut self, request: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
        let length = format!("Content-Length: {}\r\n", text.len());
        assert!(head.contains(&length), "{head}");
        (head.lines().next().unwrap().to_owned(), text.to_owned())
    }

    fn metrics(&mut self) -> String {
        let (status, text) = self.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(status, "HTTP/1.1 200 OK", "{text}");
        text
    }

    /// The metrics once they are so; the test hangs where they never are.
    fn metrics_with(&mut self, sought: &str) -> String {
        loop {
            let text = self.metrics();
            if text.contains(sought) {
                return text;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_exporter_answers_one_request_and_no_other() {
    let (directory, _engine) = engine_with_two_fallbacks("exporter-http");
    let mut exporter = Exporter::start(&directory);
    // As some clients have it.
    let (status, text) = exporter.ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(status.ends_with(" 200 OK") && text.contains("lockstep_processes{"));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("GET /metrics/../x HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n".to_owned(), "405"),
        ("GET /metrics\r\n\r\n".to_owned(), "400"),
        ("\r\n\r\n".to_owned(), "400"),
        ("\u{1b}[2J\r\n\r\n".to_owned(), "400"),
        (format!("GET /metrics HTTP/1.1\r\nX: {:4070}", ""), "431"),
    ] {
        let (line, _) = exporter.ask(&request);
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{line}");
    }
    // Clients that say nothing, or part of it, or go away, hold nobody up.
    let mut silent: Vec<TcpStream> = (0..100).map(|_| exporter.connect()).collect();
    for stream in &mut silent[..50] {
        let _ = stream.write_all(b"GET /metr");
    }
    exporter.metrics();
    silent.truncate(20);
    exporter.metrics();
    // Prometheus' own parser, where it is there.
    let promtool = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        println!("skipped: there is no promtool");
        return;
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(exporter.metrics().as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_exporter_needs_a_socket() {
    let (code, _, stderr) = run(lockstep(&["exporter"]).stdin(Stdio::null()));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("remedy: systemctl enable --now"),
        "{stderr}"
    );
    let (code, _, stderr) = run(&mut lockstep(&["exporter", "--listen", "192.0.2.1:9793"]));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("cannot listen at 192.0.2.1:9793"),
        "{stderr}"
    );
}

/// Each engine publishes in a file of its own, as a reloaded server does.
#[test]
fn a_hundred_reloads_make_no_series_and_lose_no_count() {
    let directory = scratch("exporter-reloads");
    let engine = || {
        let engine = Engine::new(Config {
            stats_dir: StatsDir::At(directory.clone()),
            ..Config::default()
        });
        engine.count(Fallback::MultiPrime);
        engine
    };
    let first = engine();
    let mut exporter = Exporter::start(&directory);
    let before = exporter.metrics();
    let counted = |count: usize| format!("reason=\"multi_prime\"}} {count}\n");
    assert!(before.contains(&counted(0)), "it counts from its start on");
    let engines: Vec<Engine> = (0..100).map(|_| engine()).collect();
    exporter.metrics_with(&counted(100));
    drop((first, engines));
    let after = exporter.metrics_with("lockstep_processes{");
    std::thread::sleep(Duration::from_millis(1100));
    let gone = exporter.metrics();
    for later in [&after, &gone] {
        assert!(later.contains(&counted(100)), "{later}");
    }
    assert!(fs::read_dir(&directory).unwrap().next().is_none());
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let names = lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        // Which versions and schedules run is known of processes that do.
        let lasting = |name: &String| !name.starts_with("lockstep_info{");
        names.filter(lasting).collect::<Vec<_>>()
    };
    assert_eq!(series(&before), series(&gone));
}

/// The words of a file of counters, for a user to forge another one. A process has four words from
/// 512 on (number, valid, start, namespace) and 128 from 1536 on.
fn words_of_counters(name: &str) -> Vec<u64> {
    let (directory, _engine) = engine_with_two_fallbacks(name);
    let file = fs::read_dir(directory).unwrap().next().unwrap().unwrap();
    let bytes = fs::read(file.path()).unwrap();
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

fn write_words(path: &Path, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    fs::write(path, bytes).unwrap();
}

/// 260 subordinate users of one person, each with other texts and counts, and 32 clients that read
/// nothing.
#[test]
fn no_user_adds_series_to_the_exporter_or_ends_it() {
    let (directory, _engine) = engine_with_two_fallbacks("exporter-strangers");
    let mut exporter = Exporter::start(&directory);
    let before = exporter.metrics();
    let mut random = Random(53);
    let mut words = words_of_counters("exporter-forged");
    for user in 0..260 {
        words[8..12].fill_with(|| 0x4141_4141_4141_4141 + (random.word() & 0x0f0f_0f0f));
        for slot in 0..4 {
            let pid = 1000 + slot as u64;
            words[512 + 4 * slot..][..4].copy_from_slice(&[pid, 1, 12345, 4_026_532_999]);
            words[1536 + 128 * slot..][..128].fill_with(|| random.word() >> 24);
        }
        let file = directory.join(format!("{user}-1-0.counters"));
        write_words(&file, &words);
        if chown(file, Some(700_000 + user), None).is_err() {
            println!("skipped: only root can give files away");
            return;
        }
    }
    let after = exporter.metrics_with("lockstep_other_users_processes 1024\n");
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let names = lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(series(&after), series(&before));
    assert!(after.len() < before.len() + 1024, "{after}");
    assert!(!after.contains("lockstep_other_users_failed_checks_total 0\n"));
    let failed = "lockstep_processes_with_failed_checks{";
    let mut failed = after.lines().filter(|line| line.starts_with(failed));
    assert!(failed.all(|line| line.ends_with("} 0")), "{after}");

    let mut slow: Vec<TcpStream> = (0..32).map(|_| exporter.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    }
    exporter.metrics();
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak < 32 << 10, "{peak} KiB");
}

/// A name that is cut off in the middle of a character.
#[test]
fn a_process_whose_name_is_no_text_is_shown() {
    let directory = scratch("name-of-bytes");
    let named = Named::start(b"haproxy-gr\xc3\xb6\xc3");
    let pid = named.id();
    let mut words = words_of_counters("name-of-bytes-forged");
    (words[512], words[514]) = (pid.into(), u64::MAX >> 1);
    let mut exporter = Exporter::start(&directory);
    write_words(&directory.join("1-1-0.counters"), &words);
    let shown = "haproxy-gr\u{f6}\\xc3";
    let stat = |form: &[&str]| run(lockstep(&["stat", "--dir"]).arg(&directory).args(form)).1;
    let line = format!("process {pid} {shown}, lockstep ");
    assert!(stat(&[]).contains(&line), "{}", stat(&[]));
    let document: Value = serde_json::from_str(&stat(&["--json"])).unwrap();
    assert_eq!(
        (&document[0]["process"], &document[0]["alive"]),
        (&shown.into(), &true.into())
    );
    exporter.metrics_with("lockstep_processes{process=\"haproxy-gr\u{f6}\\\\xc3\",");
}

/// A directory with the counters of an engine of this process, and the engine.
fn engine_with_two_fallbacks(name: &str) -> (PathBuf, Engine) {
    let directory = scratch(name);
    let engine = Engine::new(Config {
        stats_dir: StatsDir::At(directory.clone()),
        ..Config::default()
    });
    engine.count(Fallback::MultiPrime);
    engine.count(Fallback::MultiPrime);
    (directory, engine)
}

/// Behind a file system that a user has mounted is a program of that user, which may never answer.
/// The mounts here are the kernel's own.
#[test]
fn root_reads_no_counters_that_a_user_may_have_mounted() {
    let (directory, engine) = engine_with_two_fallbacks("stat-mounted");
    let script = format!(
        "mount -t tmpfs tmpfs /dev/shm
own=/dev/shm/lockstep-4711
mkdir -m 700 $own
cp {0}/*.counters $own
chown -R 4711 $own
look() {{ echo \"$1: $({1} stat --json | tr -d '\\n')\"; }}
look plain
file=$(echo $own/*.counters)
mount --bind $file $file
look file
umount $file
look again
mount --bind $own $own
look directory",
        directory.display(),
        env!("CARGO_BIN_EXE_lockstep")
    );
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--mount"]);
    let (code, stdout, stderr) = run(command.args(["sh", "-euc", &script]));
    drop(engine);
    if code != 0 {
        println!("skipped: this user has no mount namespace: {stderr}");
        return;
    }
    for (look, is_read) in [
        ("plain", true),
        ("file", false),
        ("again", true),
        ("directory", false),
    ] {
        let line = stdout.lines().find(|line| line.starts_with(look));
        let line = line.unwrap_or_else(|| panic!("{stdout}{stderr}"));
        assert_eq!(
            line.contains(r#""user":4711,"#),
            is_read,
            "{stdout}{stderr}"
        );
    }
}

/// Processes publish where the environment says, or the configuration: doctor sees both.
#[test]
fn doctor_says_that_a_running_process_had_failed_checks() {
    let (directory, engine) = engine_with_two_fallbacks("doctor-checks");
    let place = scratch("doctor-checks-configuration");
    let configuration = place.join("openssl.cnf");
    let library = compile_library(&place);
    let text = loading(library.to_str().unwrap());
    let setting = format!("[l]\nstats_dir = {}\n", directory.display());
    fs::write(&configuration, text.replace("[l]\n", &setting)).unwrap();
    let own = format!("(process {}): ", std::process::id());
    let checks = |variable: &Path| {
        let mut command = lockstep(&["doctor", "--json"]);
        command.env("OPENSSL_CONF", &configuration);
        let (code, stdout, _) = run(command.env("LOCKSTEP_STATS_DIR", variable));
        let document: Value = serde_json::from_str(&stdout).unwrap();
        let findings = document["findings"].as_array().unwrap();
        let about = |finding: &&Value| {
            let what = finding["what"].as_str().unwrap();
            finding["check"] == "checks" && what.contains(&own)
        };
        let found: Vec<Value> = findings.iter().filter(about).cloned().collect();
        (code, document["ok"].clone(), found)
    };
    assert_eq!(checks(&directory).2, [Value::Null; 0]);
    engine.count(Fallback::CheckFailed);
    for variable in [&directory, &scratch("doctor-checks-elsewhere")] {
        let (code, ok, found) = checks(variable);
        assert_eq!((code, ok), (1, Value::Bool(false)), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["verdict"], "failed", "{found:?}");
        let what = found[0]["what"].as_str().unwrap();
        assert!(what.contains("1 result failed its check"), "{what}");
        assert!(
            found[0]["remedy"]
                .as_str()
                .unwrap()
                .contains("machine check")
        );
    }
    // There are no colours where the output is not a terminal.
    let mut command = lockstep(&["doctor"]);
    let (code, stdout, _) = run(command.env("LOCKSTEP_STATS_DIR", &directory));
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("FAILED checks "), "{stdout}");
    assert!(!stdout.contains('\x1b'), "{stdout}");
}

#[test]
fn doctor_says_how_much_memory_for_keys_is_not_locked() {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        return;
    };
    if !has_lanes() {
        return;
    }
    let memory = |limit: &str| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--memlock={limit}"));
        command.args([env!("CARGO_BIN_EXE_lockstep"), "doctor", "--json"]);
        command.env("OPENSSL_CONF", dist.join("openssl.cnf"));
        let (_, stdout, stderr) = run(&mut command);
        let document: Value = serde_json::from_str(&stdout).expect(&stderr);
        // This is about programs that doctor starts, not about running processes.
        let findings = document["findings"].as_array().unwrap();
        let about = |found: &&Value| {
            let what = found["what"].as_str().unwrap();
            found["check"] == "memory" && what.contains("a program that you start")
        };
        findings.iter().find(about).expect(&stdout).clone()
    };
    let none = memory("0");
    assert_eq!(none["verdict"], "warning", "{none}");
    let what = none["what"].as_str().unwrap();
    // Two regions of 16 KiB each at first.
    assert!(
        what.contains(" 32 KiB of 32 KiB of memory for keys are not locked"),
        "{what}"
    );
    assert!(
        none["remedy"]
            .as_str()
            .unwrap()
            .contains("lock 64 KiB at least"),
        "{none}"
    );
    let half = memory("32768:");
    let what = half["what"].as_str().unwrap();
    assert!(what.contains(" 16 KiB of 32 KiB of memory"), "{what}");
    // Where this session may lock so much.
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let limit = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"));
    let hard = limit.unwrap().split_whitespace().nth(4).unwrap();
    if hard.parse().unwrap_or(u64::MAX) >= 1 << 16 {
        assert_eq!(memory("65536:")["verdict"], "ok");
    }
}

/// Here a command `openssl` stands in for a module of another version: it changes the word of the
/// file that holds the layout of the counters.
#[test]
fn doctor_says_that_the_module_is_of_another_version() {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        return;
    };
    let place = scratch("doctor-version");
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\nPATH='{path}'\nopenssl \"$@\" || exit\nfor file in \"$LOCKSTEP_STATS_DIR\"/*.counters; do\n\
         [ ! -e \"$file\" ] || printf 12345678 | dd of=\"$file\" bs=1 seek=8 conv=notrunc 2>&1\ndone\n"
    );
    let openssl = place.join("openssl");
    fs::write(&openssl, script).unwrap();
    fs::set_permissions(&openssl, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = lockstep(&["doctor", "--json"]);
    command.env("OPENSSL_CONF", dist.join("openssl.cnf"));
    let (code, stdout, _) = run(command.env("PATH", format!("{}:{path}", place.display())));
    assert_eq!(code, 1, "{stdout}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let last = document["findings"].as_array().unwrap().last().unwrap();
    let what = last["what"].as_str().unwrap();
    assert!(
        what.contains("the module is of another version"),
        "{stdout}"
    );
    assert!(
        last["remedy"].as_str().unwrap().contains("beside it"),
        "{last}"
    );
}

/// With a module that can be made to fail, where `cargo xtask test` has built one.
#[test]
fn doctor_says_that_its_own_signature_failed_its_check() {
    let Some(dist) = std::env::var_os("LOCKSTEP_FAULT_DIST").map(PathBuf::from) else {
        return;
    };
    if !has_lanes() {
        return;
    }
    let mut command = lockstep(&["doctor", "--json"]);
    command
        .env("OPENSSL_CONF", dist.join("openssl.cnf"))
        .env("LOCKSTEP_SYSLOG", "no")
        .env("LOCKSTEP_FAULT", "Recombined:0:0:2:2");
    let (code, stdout, _) = run(&mut command);
    assert_eq!(code, 1, "{stdout}");
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let used = finding(&document, "used");
    assert_eq!(used["verdict"], "failed", "{stdout}");
    let what = used["what"].as_str().unwrap();
    assert!(what.contains("1 result failed its check"), "{what}");
}

/// Uses the module of `cargo xtask dist`, if `cargo xtask test` names it.
#[test]
fn doctor_finds_a_good_distribution_good() {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        return;
    };
    let (code, stdout, _) =
        run(lockstep(&["doctor", "--json"]).env("OPENSSL_CONF", dist.join("openssl.cnf")));
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let has_lanes = lockstep_engine::Backend::best_hardware().is_some();
    assert_eq!(document["ok"], has_lanes, "{stdout}");
    assert_eq!(code, if has_lanes { 0 } else { 1 });
    for check in ["openssl", "module", "loaded", "preferred"] {
        assert_eq!(finding(&document, check)["verdict"], "ok", "{stdout}");
    }
}

/// The setting `backend = none` leaves key derivation to OpenSSL, and AES-GCM where that would be
/// the module's, and the module says so.
#[test]
fn doctor_names_operations_that_are_not_accelerated() {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        return;
    };
    let operations = |backend: &str| -> Vec<Value> {
        let mut command = lockstep(&["doctor", "--json"]);
        command.env("LOCKSTEP_BACKEND", backend);
        let (_, stdout, _) = run(command.env("OPENSSL_CONF", dist.join("openssl.cnf")));
        let document: Value = serde_json::from_str(&stdout).unwrap();
        let findings = document["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| finding["check"] == "operations")
            .cloned()
            .collect()
    };
    const DERIVATION: &str = "TLS 1.3 key derivation is not accelerated";
    let names = |found: &[Value], part: &str| {
        let mut texts = found
            .iter()
            .map(|finding| finding["what"].as_str().unwrap());
        texts.any(|what| what.contains(part))
    };
    let found = operations("none");
    assert!(names(&found, DERIVATION), "{found:?}");
    for finding in &found {
        assert_eq!(finding["verdict"], "warning", "{found:?}");
        let what = finding["what"].as_str().unwrap();
        assert!(what.contains("backend = none"), "{what}");
        let remedy = finding["remedy"].as_str().unwrap();
        assert!(!remedy.contains("update"), "{remedy}");
    }
    // Without AVX2, OpenSSL's own key derivation is faster.
    let found = operations("auto");
    let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
    assert_eq!(names(&found, DERIVATION), !has_avx2, "{found:?}");
    // Without vectors of AES, OpenSSL's own AES-GCM is.
    let has_aes = has_avx2
        && std::arch::is_x86_feature_detected!("vaes")
        && std::arch::is_x86_feature_detected!("vpclmulqdq");
    if has_aes {
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["verdict"], "ok", "{found:?}");
    }
}

/// An unknown name, a wrong value, and the same in the environment: the module loads, and
/// doctor fails.
#[test]
fn doctor_names_settings_that_have_no_effect() {
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        return;
    };
    let good = fs::read_to_string(dist.join("openssl.cnf")).unwrap();
    let section = "[lockstep_module]\n";
    assert!(good.contains(section), "{good}");
    let configuration = scratch("doctor-setting").join("openssl.cnf");
    fs::write(
        &configuration,
        good.replace(
            section,
            "[lockstep_module]\nslot = 2\nlone = maybe\ngather = 0\n",
        ),
    )
    .unwrap();
    let mut doctor = lockstep(&["doctor", "--json"]);
    doctor.env("OPENSSL_CONF", &configuration);
    doctor.env("LOCKSTEP_SLOTS", "many");
    doctor.env("LOCKSTEP_JOBS_LEAD", "no");
    let (code, stdout, _) = run(&mut doctor);
    assert_eq!(code, 1);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let findings = document["findings"].as_array().unwrap().iter();
    let settings: Vec<_> = findings
        .filter(|finding| finding["check"] == "settings")
        .collect();
    let [environment, file, gone] = &settings[..] else {
        panic!("{stdout}");
    };
    for (finding, part) in [
        (environment, "LOCKSTEP_SLOTS is 'many', but must be"),
        (
            file,
            "slot is not a setting; is slots meant?; lone is 'maybe', but",
        ),
    ] {
        assert_eq!(finding["verdict"], "failed", "{stdout}");
        assert!(finding["what"].as_str().unwrap().contains(part), "{stdout}");
        assert!(finding["remedy"].is_string(), "{stdout}");
    }
    // Settings of an earlier version.
    for (finding, part) in [
        (
            *gone,
            "sets gather, a setting that is gone and has no effect",
        ),
        (
            finding(&document, "environment"),
            "sets LOCKSTEP_JOBS_LEAD, a setting that is gone and has no effect",
        ),
    ] {
        assert_eq!(finding["verdict"], "warning", "{stdout}");
        assert!(finding["what"].as_str().unwrap().contains(part), "{stdout}");
    }
    for check in ["loaded", "preferred"] {
        assert_eq!(finding(&document, check)["verdict"], "ok", "{stdout}");
    }

    // The same in a line, where a running process is looked at.
    let mut stat = lockstep(&["stat"]);
    let (code, stdout, _) = run(stat.env("OPENSSL_CONF", &configuration));
    assert_eq!(code, 0, "{stdout}");
    let line = format!(
        "warning: settings in {} have no effect: slot is",
        configuration.display()
    );
    assert!(stdout.contains(&line), "{stdout}");
    assert!(stdout.contains(" sets gather, a setting that is gone and has no effect"));
}

/// Counters of a process whose settings have mistakes, in every form.
#[test]
fn stat_shows_settings_that_have_no_effect() {
    let directory = scratch("stat-mistakes");
    let mut config = lockstep_engine::Config::from_pairs([
        ("slots".to_owned(), "many\x1b[2J".to_owned()),
        ("syslog".to_owned(), "no".to_owned()),
    ]);
    config.stats_dir = lockstep_engine::StatsDir::At(directory.clone());
    let _engine = lockstep_engine::Engine::new(config);
    let stat = |form: &[&str]| {
        let (code, stdout, _) = run(lockstep(&["stat", "--dir"]).arg(&directory).args(form));
        assert_eq!(code, 0, "{stdout}");
        stdout
    };
    let mistake = "slots is 'many?[2J', but must be a number from 1 to 4096";
    let line = format!(
        "  warning: settings with mistakes have no effect, and their defaults hold: {mistake}"
    );
    assert!(stat(&[]).contains(&line), "{}", stat(&[]));
    let document: Value = serde_json::from_str(&stat(&["--json"])).unwrap();
    assert_eq!(document[0]["mistakes"], mistake, "{document}");
    let mut exporter = Exporter::start(&directory);
    let series = exporter.metrics();
    let metric = series
        .lines()
        .find(|line| line.starts_with("lockstep_processes_with_mistakes{"));
    assert!(metric.is_some_and(|line| line.ends_with("} 1")), "{series}");
}

/// Whatever another user puts into a directory, root's `lockstep stat` ends soon and with little
/// memory.
#[test]
fn stat_looks_at_so_much_and_no_more() {
    let (directory, engine) = engine_with_two_fallbacks("stat-bounds");
    let put = |name: String| directory.join(name);
    fs::File::create(put("1-1-0.counters".to_owned())).unwrap();
    let sparse = fs::File::create(put("2-1-0.counters".to_owned())).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let fifo = std::process::Command::new("mkfifo")
        .arg(put("3-1-0.counters".to_owned()))
        .status();
    assert!(fifo.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", put("4-1-0.counters".to_owned())).unwrap();
    let stat = || {
        let directory = directory.to_str().unwrap();
        let (lockstep, of) = (env!("CARGO_BIN_EXE_lockstep"), ["stat", "--dir", directory]);
        // The program itself takes some 10 MiB of addresses.
        let mut limited = std::process::Command::new("prlimit");
        run(limited.arg("--as=67108864").arg(lockstep).args(of))
    };
    let (code, stdout, stderr) = stat();
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.starts_with("process ") && !stdout.contains("more"),
        "{stdout}"
    );
    for number in 0..20_000 {
        fs::File::create(put(format!("{number}-2-0.counters"))).unwrap();
    }
    let (code, stdout, stderr) = stat();
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("there is more than is shown"), "{stdout}");
    drop(engine);
    fs::remove_dir_all(&directory).unwrap();
}

/// A service that does not run, described by files alone.
#[test]
fn doctor_says_how_a_service_that_does_not_run_would_start() {
    let root = scratch("doctor-service");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let doctor = || {
        let arguments = [
            "doctor",
            "--json",
            "--service",
            "lockstep-nonesuch",
            "--root",
        ];
        let (code, stdout, _) = run(lockstep(&arguments).arg(&root));
        assert_eq!(code, 1, "{stdout}");
        serde_json::from_str::<Value>(&stdout).unwrap()
    };
    let what = |document: &Value, check: &str| {
        let found = finding(document, check);
        (
            found["verdict"].as_str().unwrap().to_owned(),
            found["what"].as_str().unwrap().to_owned(),
        )
    };
    let document = doctor();
    let (verdict, text) = what(&document, "process");
    assert_eq!(verdict, "failed");
    assert!(
        text.contains("no process of lockstep-nonesuch runs"),
        "{text}"
    );
    let (verdict, text) = what(&document, "environment");
    assert_eq!(verdict, "failed");
    assert!(text.contains("runs without OPENSSL_CONF"), "{text}");

    // Its unit names a configuration, whose module is for another CPU; its own file names a group
    // that there is not.
    write(
        "usr/lib/systemd/system/lockstep-nonesuch.service",
        "[Service]\nExecStart=/bin/nonesuch\n",
    );
    write(
        "etc/systemd/system/lockstep-nonesuch.service.d/lockstep.conf",
        "[Service]\nEnvironment=OPENSSL_CONF=/opt/lockstep/openssl.cnf\n",
    );
    let (verdict, text) = what(&doctor(), "configuration");
    assert_eq!(verdict, "failed");
    assert!(
        text.contains("looks for /opt/lockstep/openssl.cnf, which is not there"),
        "{text}"
    );
    write(
        "opt/lockstep/openssl.cnf",
        &loading("/opt/lockstep/lockstep.so"),
    );
    write(
        "etc/lockstep-nonesuch/site.conf",
        "bind :443 ssl curves X25519:nonesuch\n",
    );
    write(
        "opt/lockstep/lockstep.so",
        &format!("\x7fELF\x02\x01{}", "\0".repeat(90)),
    );
    let document = doctor();
    let (_, text) = what(&document, "unit");
    assert!(
        text.contains("lockstep-nonesuch.service.d/lockstep.conf"),
        "{text}"
    );
    let (verdict, text) = what(&document, "module");
    assert_eq!(verdict, "failed");
    assert!(text.contains("/opt/lockstep/lockstep.so") && text.contains("another kind of CPU"));
    let (verdict, text) = what(&document, "groups");
    assert_eq!(verdict, "warning");
    assert!(text.contains("`nonesuch` of `curves` in "), "{text}");
}

#[test]
fn doctor_looks_at_one_service() {
    assert_refused(
        &mut lockstep(&["doctor", "--pid", "1", "--service", "nginx"]),
        "cannot be used with",
    );
    assert_refused(&mut lockstep(&["doctor", "--pid", "x"]), "--pid");
    for address in ["127.0.0.1", "", "::1]", "a:", "a:0", "a:https"] {
        let arguments = ["doctor", "--service", "nginx", "--connect", address];
        assert_refused(&mut lockstep(&arguments), "it needs a port: HOST:PORT");
    }
    for option in ["--connect=127.0.0.1:443", "--servername=a", "--root=/x"] {
        assert_refused(
            &mut lockstep(&["doctor", option]),
            "--service <NAME>|--pid <N>",
        );
        let reference = ["doctor", "--reference", "/x", option];
        assert_refused(&mut lockstep(&reference), "--service <NAME>|--pid <N>");
    }
    let (code, stdout, _) = run(&mut lockstep(&["doctor", "--pid", "4194999"]));
    assert_eq!(code, 1);
    assert!(stdout.contains("there is no process 4194999"), "{stdout}");
}

/// A process that is ended with its test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns doctor's report on a process with this configuration, which names an existing module.
fn doctor_of(directory: &Path, command: &mut Command) -> Value {
    let module = directory.join("lockstep.so");
    fs::copy(env!("CARGO_BIN_EXE_lockstep"), &module).unwrap();
    let configuration = directory.join("openssl.cnf");
    fs::write(&configuration, loading(module.to_str().unwrap())).unwrap();
    command
        .env("OPENSSL_CONF", &configuration)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let running = Running(command.spawn().unwrap());
    // It is started when it is no longer this program.
    let exe = format!("/proc/{}/exe", running.0.id());
    let own = fs::read_link("/proc/self/exe").unwrap();
    while fs::read_link(&exe).unwrap() == own {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = running.0.id().to_string();
    let (code, stdout, _) = run(&mut lockstep(&["doctor", "--json", "--pid", &pid]));
    assert_eq!(code, 1, "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn doctor_says_which_line_node_reads() {
    let wait = ["-e", "setInterval(() => {}, 1000)"];
    if !Command::new("node")
        .arg("--version")
        .output()
        .is_ok_and(|node| node.status.success())
    {
        println!("skipped: there is no node");
        return;
    }
    let directory = scratch("doctor-node");
    let document = doctor_of(&directory, Command::new("node").args(wait));
    let found = finding(&document, "node");
    let what = found["what"].as_str().unwrap();
    assert!(what.contains("reads the line nodejs_conf"), "{what}");
    assert!(
        found["remedy"]
            .as_str()
            .unwrap()
            .contains("--openssl-shared-config")
    );
}

#[test]
fn doctor_names_a_program_without_libcrypto() {
    let directory = scratch("doctor-inside");
    let document = doctor_of(&directory, Command::new("sleep").arg("60"));
    let found = finding(&document, "libcrypto");
    assert_eq!(found["verdict"], "failed", "{document}");
    let what = found["what"].as_str().unwrap();
    assert!(what.contains("no libcrypto"), "{what}");
    assert!(found["remedy"].as_str().unwrap().contains("`ldd`"));
}

#[test]
fn a_check_finds_that_the_user_of_the_daemon_is_missing() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root becomes another user");
        return;
    }
    let directory = scratch("keyd-check");
    let (key, configuration) = (directory.join("key.pem"), directory.join("keyd.conf"));
    let mut make = Command::new("openssl");
    make.args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&key);
    assert_eq!(run(&mut make).0, 0);
    let check = |user: &str| {
        let key = key.display();
        let text = format!("user = {user}\n[key a]\nfile = {key}\nusers = root\nuses = sign\n");
        fs::write(&configuration, text).unwrap();
        let configuration = configuration.display().to_string();
        run(&mut lockstep(&[
            "keyd",
            "--config",
            &configuration,
            "check",
        ]))
    };
    assert_eq!(check("root").0, 0);
    let (code, _, errors) = check("nobody-of-this-name");
    let expected = "user nobody-of-this-name: there is none";
    assert!(code == 1 && errors.contains(expected), "{errors}");
}

/// The build of a program or a module: number, commit, and day of the commit.
fn is_build(text: &str) -> bool {
    let Some((_, commit)) = text.split_once('+') else {
        return false;
    };
    let parts: Vec<&str> = commit.split('.').collect();
    let is_hex = parts[0].len() == 10 && parts[0].bytes().all(|c| c.is_ascii_hexdigit());
    let is_day = |day: &&str| day.len() == 8 && day.bytes().all(|c| c.is_ascii_digit());
    is_hex && parts.get(1).is_some_and(is_day) && matches!(parts[2..], [] | ["dirty"])
}

/// `cargo xtask dist` has written the commit into both; nobody has into this test.
#[test]
fn the_command_and_the_module_name_their_build() {
    let version = |program: &Path| {
        let (_, text, _) = run(Command::new(program).arg("--version"));
        text.trim_end()
            .strip_prefix("lockstep ")
            .unwrap()
            .to_owned()
    };
    let own = version(Path::new(env!("CARGO_BIN_EXE_lockstep")));
    assert_eq!(own, concat!(env!("CARGO_PKG_VERSION"), "+source"));
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from) else {
        return;
    };
    let build = version(&dist.join("lockstep"));
    assert!(is_build(&build), "{build}");
    let mut doctor = Command::new(dist.join("lockstep"));
    doctor.args(["doctor", "--json"]);
    let (_, text, _) = run(doctor.env("OPENSSL_CONF", dist.join("openssl.cnf")));
    let document = serde_json::from_str(&text).unwrap();
    let loaded = finding(&document, "loaded")["what"].as_str().unwrap();
    assert!(loaded.contains(&format!("version: {build}")), "{loaded}");
}
