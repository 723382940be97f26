//! `lockstep configuration`: its additions to a system's configuration, and its refusals.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use common::{has_lanes, lockstep, run};

/// A directory with the system's configuration of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("configuration-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("more")).unwrap();
        Place(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, in which `@` is this directory.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text.replace('@', self.0.to_str().unwrap())).unwrap();
        path
    }

    /// Status, standard output and standard error of `lockstep configuration` for the file
    /// `system.cnf`.
    fn configure(&self, module: &Path) -> (i32, String, String) {
        let mut command = lockstep(&["configuration"]);
        command.arg("--from").arg(self.path("system.cnf"));
        run(command.arg("--module").arg(module))
    }
}

/// Configurations that exclude lockstep, and the report for each.
const REFUSED: &[(&str, &str, &[&str])] = &[
    (
        "fips-mode-in-an-included-file",
        "openssl_conf = init\n.include = @/more/fips.cnf\n",
        &["system.cnf turns FIPS on", "`fips_mode = yes`", "[evp]"],
    ),
    (
        "fips-mode-in-an-included-directory",
        ".include = @/more\n[default]\nopenssl_conf = init\n",
        &["system.cnf turns FIPS on", "`fips_mode = yes`", "[evp]"],
    ),
    (
        "fips-mode-that-is-replaced",
        "openssl_conf = init\n[init]\nalg_section = evp\n[evp]\nfips_mode = true\ndefault_properties = ?a=b\n",
        &["system.cnf turns FIPS on", "`fips_mode = true`", "[evp]"],
    ),
    (
        "fips-property",
        "openssl_conf = init\n[init]\nalg_section.1 = evp\n[evp]\ndefault_properties = \"fips=yes\"\n",
        &["requires FIPS", "`default_properties = fips=yes`", "[evp]"],
    ),
    (
        "provider-property",
        "openssl_conf = init\n[init]\nalg_section = evp\n[evp]\ndefault_properties = ?a=b, provider=default\n",
        &[
            "requires `provider=default`",
            "[evp]",
            "write ?provider=default",
        ],
    ),
    (
        "fips-provider",
        "openssl_conf = init\n[init]\nproviders = p\n[p]\ndefault = d\nfips = f\n[d]\nactivate = 1\n[f]\nactivate = 1\n",
        &["activates the FIPS provider", "[f]"],
    ),
    (
        "base-alone",
        "openssl_conf = init\n[init]\nproviders = p\n[p]\ndefault = d\nbase = b\n[d]\n[b]\nactivate = 1\n",
        &[
            "not the default provider: base (`activate` in [b])",
            "default = default_sect",
        ],
    ),
    (
        "legacy-alone",
        "openssl_conf = init\n[init]\nproviders = p\n[p]\nold = l\n[l]\nidentity = legacy\nactivate = 1\n",
        &["not the default provider: legacy (`activate` in [l])"],
    ),
    (
        "lockstep-already",
        "openssl_conf = init\n[init]\nproviders = p\n[p]\ndefault = d\nx = l\n[d]\nactivate = 1\n[l]\n\
         module = /x/lockstep.so\nactivate = 1\n",
        &["loads lockstep already", "[l]", "--from"],
    ),
    (
        "mistake",
        "openssl_conf = init\n[init\n",
        &["cannot read", "system.cnf", "line 2"],
    ),
];

#[test]
fn configurations_without_a_place_for_lockstep_are_refused() {
    for (name, system, expected) in REFUSED {
        let place = Place::new(name);
        place.write("system.cnf", system);
        let fips = "[init]\nalg_section = evp\n[evp]\nfips_mode = yes\n";
        place.write("more/fips.cnf", fips);
        let (code, stdout, stderr) = place.configure(Path::new("/x/lockstep.so"));
        assert_eq!((code, stdout.as_str()), (1, ""), "{name}: {stderr}");
        for part in expected.iter().chain(&["\nremedy: "]) {
            assert!(stderr.contains(part), "{name}: no `{part}` in {stderr}");
        }
    }
}

#[test]
fn what_is_no_module_or_no_file_is_refused() {
    let place = Place::new("no-module");
    place.write("system.cnf", "");
    let text = place.write("lockstep.so", "not a module\n");
    for (module, expected) in [
        (Path::new("/nonexistent/lockstep.so"), "is not there"),
        (&text, "is not a shared library"),
    ] {
        let (code, stdout, stderr) = place.configure(module);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(stderr.contains("remedy: name a file"), "{stderr}");
    }
    let mut command = lockstep(&["configuration", "--from"]);
    let (code, stdout, stderr) = run(command.arg(place.path("more")).args(["--module", "/x"]));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("more is a directory"), "{stderr}");
}

/// OpenSSL skips the mark in the file that it is told to load, and in no other.
#[test]
fn a_file_with_a_mark_that_openssl_takes_once_is_refused_with_its_remedy() {
    let place = Place::new("mark");
    let policy = "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = policy\n\
                  [policy]\nMinProtocol = TLSv1.3\n";
    let system = place.write("system.cnf", &format!("\u{feff}{policy}"));
    // OpenSSL alone has all of it in force.
    let value = |path: &Path| {
        let file = lockstep_conf::File::read(path).unwrap();
        file.value("policy", "MinProtocol").map(str::to_owned)
    };
    assert_eq!(value(&system).as_deref(), Some("TLSv1.3"));
    let (code, stdout, stderr) = place.configure(Path::new("/x/lockstep.so"));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(
        stderr.contains("system.cnf begins with a byte order mark"),
        "{stderr}"
    );
    let remedy = stderr.split("remedy: remove the mark: ").nth(1).unwrap();
    let status = Command::new("sh").args(["-c", remedy]).status().unwrap();
    assert!(status.success(), "{remedy}");
    assert_eq!(fs::read_to_string(&system).unwrap(), policy);
    let Some(module) = module() else { return };
    let (code, text, stderr) = place.configure(&module);
    assert_eq!(code, 0, "{stderr}");
    let made = place.write("openssl.cnf", &text);
    assert_eq!(value(&made).as_deref(), Some("TLSv1.3"));
}

/// A file that only begins like a module passes every look at its bytes, and loads nowhere.
#[test]
fn a_configuration_that_does_not_load_is_not_printed() {
    let place = Place::new("not-loaded");
    place.write("system.cnf", "");
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = 62;
    let module = place.path("lockstep.so");
    fs::write(&module, header).unwrap();
    let (code, stdout, stderr) = place.configure(&module);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(
        stderr.contains("does not load with the new configuration"),
        "{stderr}"
    );
}

/// The module, where `cargo xtask test` says where it is.
fn module() -> Option<PathBuf> {
    let dist = std::env::var_os("LOCKSTEP_DIST").map(PathBuf::from)?;
    Some(dist.canonicalize().unwrap().join("lockstep.so"))
}

/// Returns the output of the `openssl` command with a configuration.
fn openssl(configuration: &Path, arguments: &str) -> String {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .env("OPENSSL_CONF", configuration)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments}: {output:?}");
    text
}

/// The providers that are active with a configuration.
fn providers(configuration: &Path) -> Vec<String> {
    let listing = openssl(configuration, "list -providers");
    let names = listing
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn what_the_system_has_stays_in_force_beside_lockstep() {
    let Some(module) = module() else { return };
    let policy = "[init]\nssl_conf = ssl\n[ssl]\nsystem_default = policy\n[policy]\nCipherString = AES256-SHA256\n";
    for (name, system, expected) in [
        ("nothing", "", &["default", "lockstep"][..]),
        (
            "init",
            "openssl_conf = init\n[init]\n",
            &["default", "lockstep"],
        ),
        (
            "default-by-fallback",
            "openssl_conf = init\n[init]\nproviders = p\n[p]\ndefault = d\n[d]\n",
            &["default", "lockstep"],
        ),
        (
            "default-and-legacy",
            "openssl_conf = init\n[init]\nproviders = p\n[p]\nlegacy = l\ndefault = d\n[d]\nactivate = 1\n\
             [l]\nactivate = 1\n",
            &["default", "legacy", "lockstep"],
        ),
        (
            "providers-in-an-included-file",
            "openssl_conf = init\n.include = @/more\n",
            &["base", "default", "lockstep"],
        ),
        (
            "properties",
            "openssl_conf = init\n[init]\nalg_section = evp\n[evp]\n\
             default_properties = ?provider=tpm2,tpm2.digest!=yes\n",
            &["default", "lockstep"],
        ),
        // One clause of the system's about another provider is no tie.
        (
            "preference-for-another-provider",
            "openssl_conf = init\n[init]\nalg_section = evp\n[evp]\n\
             default_properties = ?provider=default\n",
            &["default", "lockstep"],
        ),
        (
            "properties-of-an-odd-section",
            "openssl_conf = init\n[init]\nalg_section = e-v\n[e-v]\ndefault_properties = ?x=\\'a b\\'\n",
            &["default", "lockstep"],
        ),
    ] {
        let place = Place::new(&format!("added-{name}"));
        // A policy beside it, where there is a section for it.
        let policy = match system.contains("[init]") {
            true => policy,
            false => "",
        };
        place.write("system.cnf", &format!("{system}{policy}"));
        let more = "[init]\nproviders = p\n[p]\ndefault = d\nbase = b\n[d]\nactivate = 1\n[b]\nactivate = 1\n";
        place.write("more/providers.cnf", more);
        let (code, text, stderr) = place.configure(&module);
        assert_eq!((code, stderr.as_str()), (0, ""), "{name}");
        let with_lockstep = place.write("openssl.cnf", &text);

        assert_eq!(providers(&with_lockstep), expected, "{name}: {text}");
        let ciphers = openssl(&with_lockstep, "ciphers");
        assert_eq!(
            ciphers.contains("ECDHE-"),
            policy.is_empty(),
            "{name}: {ciphers}"
        );

        let mut doctor = lockstep(&["doctor", "--json"]);
        let (_, document, _) = run(doctor.env("OPENSSL_CONF", &with_lockstep));
        let document: Value = serde_json::from_str(&document).unwrap();
        let findings = document["findings"].as_array().unwrap();
        // Without lanes the module still is asked, and hands on.
        let check = match has_lanes() {
            true => "used",
            false => "preferred",
        };
        for check in [check, "kept"] {
            let asked = findings.iter().find(|finding| finding["check"] == check);
            let verdict = asked.map(|finding| finding["verdict"].as_str().unwrap());
            assert_eq!(verdict, Some("ok"), "{name}: {document}");
        }
        let is_outdated = findings
            .iter()
            .any(|finding| finding["check"] == "outdated");
        assert!(!is_outdated, "{name}: {document}");
    }
}

/// A system that prefers another provider, by any number of clauses: operations are the module's,
/// and that provider makes its keys itself and signs with them.
#[test]
fn clauses_about_another_provider_are_about_its_keys() {
    let Some(module) = module() else { return };
    let place = Place::new("clauses");
    let compile = |source: &str, output: &str, options: &[&str]| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configuration");
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror"])
            .arg("-o")
            .arg(place.path(output))
            .arg(tests.join(source));
        assert!(cc.args(options).status().unwrap().success(), "{cc:?}");
        place.path(output)
    };
    compile("other.c", "other.so", &["-shared", "-fPIC"]);
    let taken = compile("taken.c", "taken", &["-lcrypto"]);
    let with = |count: usize| {
        let more = (2..=count).map(|number| format!(",?other.p{number}=yes"));
        let clauses: String = more.collect();
        place.write(
            "system.cnf",
            &format!(
                "openssl_conf = init\n[init]\nproviders = p\nalg_section = a\n[p]\ndefault = d\n\
                 other = o\n[d]\nactivate = 1\n[o]\nmodule = @/other.so\nactivate = 1\n[a]\n\
                 default_properties = ?provider=other{clauses}\n"
            ),
        );
        let (code, text, stderr) = place.configure(&module);
        assert_eq!(code, 0, "{stderr}");
        place.write("openssl.cnf", &text)
    };
    for count in [1, 2, 3, 8] {
        let conf = with(count);
        let output = Command::new(&taken)
            .env("OPENSSL_CONF", &conf)
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{count}: {output:?}");
        for line in found.lines() {
            let (what, provider) = line.rsplit_once(' ').unwrap();
            let is_key = ["KEYMGMT ", "made", "signed"]
                .iter()
                .any(|key| what.starts_with(key));
            let expected = if is_key { "other" } else { "lockstep" };
            assert_eq!(provider, expected, "{count}: {found}");
        }
        assert_eq!(found.lines().count(), 12, "{found}");
        let (verdict, _) = doctor(&conf, "preferred");
        assert_eq!(verdict, "ok", "{count}");
    }
    // No system has as many. Doctor says how many are too many.
    let (verdict, remedy) = doctor(&with(9), "preferred");
    assert_eq!(verdict, "failed");
    assert!(
        remedy.contains("up to 8 other optional clauses"),
        "{remedy}"
    );
}

/// Verdict and remedy of one of doctor's checks with a configuration.
fn doctor(configuration: &Path, check: &str) -> (String, String) {
    let mut doctor = lockstep(&["doctor", "--json"]);
    let (_, document, _) = run(doctor.env("OPENSSL_CONF", configuration));
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut findings = document["findings"].as_array().unwrap().iter();
    let found = findings.find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("{document}"));
    let word = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (word("verdict"), word("remedy"))
}

/// The module reads lines after the output of `lockstep configuration`.
#[test]
fn settings_at_the_end_reach_the_module() {
    let Some(module) = module() else { return };
    let place = Place::new("settings-at-the-end");
    place.write("system.cnf", "");
    let (code, text, stderr) = place.configure(&module);
    assert_eq!(code, 0, "{stderr}");
    let counters = place.path("counters");
    fs::create_dir(&counters).unwrap();
    let settings = format!(
        "slots = many\nsyslog = no\nstats_keep = yes\nstats_dir = {}\n",
        counters.display()
    );
    let path = place.write("openssl.cnf", &format!("{text}{settings}"));
    assert!(providers(&path).contains(&"lockstep".to_owned()), "{text}");
    // It reports an invalid value that reaches it.
    let found = lockstep_engine::read_stats(&counters).unwrap();
    let mistakes = &found[0].snapshot.mistakes;
    assert!(mistakes.starts_with("slots is 'many'"), "{mistakes}");
}

/// Changes of the system's file after the configuration was made, as by an update or
/// `fips-mode-setup`.
#[test]
fn properties_that_the_system_requires_later_are_required() {
    let Some(module) = module() else { return };
    let with =
        |line: &str| format!("openssl_conf = init\n[init]\nalg_section = evp\n[evp]\n{line}\n");
    for (name, first, later) in [
        (
            "replaced",
            "default_properties = nowhere=no",
            "default_properties = nowhere!=no",
        ),
        ("fips-mode", "", "fips_mode = yes"),
        ("fips-property", "", "default_properties = fips=yes"),
    ] {
        let place = Place::new(&format!("later-{name}"));
        place.write("system.cnf", &with(first));
        let (code, text, stderr) = place.configure(&module);
        assert_eq!(code, 0, "{stderr}");
        let with_lockstep = place.write("openssl.cnf", &text);
        let digest = || {
            let mut command = Command::new("openssl");
            command.args(["dgst", "-sha256", "/dev/null"]);
            command
                .env("OPENSSL_CONF", &with_lockstep)
                .output()
                .unwrap()
        };
        assert!(digest().status.success(), "{name}: {text}");
        // No provider here has these properties.
        place.write("system.cnf", &with(later));
        assert!(!digest().status.success(), "{name}: {text}");
    }
}

/// As a configuration that was made on another host, or long ago.
#[test]
fn doctor_says_what_a_configuration_has_lost() {
    let Some(module) = module() else { return };
    let place = Place::new("lost");
    let system = "openssl_conf = init\n[init]\nproviders = p\nssl_conf = ssl\n[ssl]\n\
                  system_default = policy\n[policy]\nMinProtocol = TLSv1.3\n[p]\ndefault = d\n\
                  legacy = l\n[d]\nactivate = 1\n[l]\nactivate = 1\n";
    place.write("system.cnf", system);
    let (code, text, stderr) = place.configure(&module);
    assert_eq!(code, 0, "{stderr}");
    let found = |text: &str, check: &str| {
        let path = place.write("openssl.cnf", text);
        let mut doctor = lockstep(&["doctor", "--json"]);
        let (_, document, _) = run(doctor.env("OPENSSL_CONF", path));
        let document: Value = serde_json::from_str(&document).unwrap();
        let mut findings = document["findings"].as_array().unwrap().iter();
        let found = findings.find(|finding| finding["check"] == check);
        found.map(|finding| {
            (
                finding["verdict"].clone(),
                finding["what"].as_str().unwrap().to_owned(),
            )
        })
    };
    assert_eq!(found(&text, "outdated"), None);
    // Without the line that includes the system's file.
    let lines = text.lines().filter(|line| !line.starts_with(".include"));
    let mut without: String = lines.map(|line| format!("{line}\n")).collect();
    without.push_str(
        "[lockstep_providers]\ndefault = lockstep_default\n[lockstep_default]\nactivate = 1\n",
    );
    let (verdict, what) = found(&without, "kept").unwrap();
    assert_eq!(verdict, "warning");
    for lost in ["the provider legacy", "MinProtocol = TLSv1.3", "system.cnf"] {
        assert!(what.contains(lost), "{what}");
    }
    // The system begins elsewhere, with nothing of lockstep.
    place.write("system.cnf", "openssl_conf = other\n[other]\n");
    let (verdict, what) = found(&text, "outdated").unwrap();
    assert_eq!(verdict, "warning");
    assert!(what.contains("has changed since"), "{what}");
}
