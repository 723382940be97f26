//! Settings as text, and their effects on a configuration.

use super::setting::Setting;
use super::*;

fn config(key: &str, value: &str) -> Result<Config, String> {
    let config = Config::from_pairs([(key.to_owned(), value.to_owned())]);
    config.strict().map_err(|error| error.to_string())
}

#[test]
fn settings_are_understood() {
    assert_eq!(config("slots", "3").unwrap().slots, 3);
    assert_eq!(config("max_async", "0").unwrap().max_async, 0);
    assert_eq!(config("lone", "stock").unwrap().lone, Lone::Stock);
    assert_eq!(
        config("backend", "none").unwrap().backend,
        BackendChoice::None
    );
    assert_eq!(
        config("stats_dir", "/run/x").unwrap().stats_dir,
        StatsDir::At("/run/x".into())
    );
    assert_eq!(config("stats_dir", "no").unwrap().stats_dir, StatsDir::Off);
    assert_eq!(config("lone", "auto").unwrap().stats_dir, StatsDir::Auto);
    assert!(config("stats_keep", "yes").unwrap().stats_keep);
    assert_eq!(config("syslog", "no").unwrap().syslog, Syslog::Off);
    assert_eq!(config("keys", "daemon").unwrap().keys, Keys::Daemon);
    assert!(config("references", "yes").unwrap().references);
    let socket = Some("/run/k.sock".into());
    assert_eq!(
        config("keyd_socket", "/run/k.sock").unwrap().keyd_socket,
        socket
    );
    let log = Syslog::At("/run/log".into());
    assert_eq!(config("syslog", "/run/log").unwrap().syslog, log);
    assert_eq!(config("lone", "auto").unwrap().syslog, Syslog::On);
    let portable = BackendChoice::Named(Backend::PORTABLE);
    assert_eq!(config("backend", "portable").unwrap().backend, portable);
}

#[test]
fn lanes_do_without_instructions_that_are_hidden_from_openssl() {
    let names = |value: &str| {
        let masked = |choice| {
            let config = Config {
                backend: choice,
                ..Config::default()
            };
            let config = config.masked(value);
            let name = config.backend.resolve().map_or("none", Backend::name);
            (name, config.is_masked, config.aes_gcm)
        };
        let all = Backend::available().into_iter().map(BackendChoice::Named);
        all.chain([BackendChoice::Auto, BackendChoice::None])
            .map(masked)
            .collect::<Vec<_>>()
    };
    let has_avx2 = Backend::from_name("avx2").is_some();
    for (name, is_masked, _) in names(":~0x200000") {
        assert!(!name.starts_with("avx512"), "{name}");
        assert!(!is_masked || (name == "avx2") == has_avx2, "{name}");
    }
    for (name, _, enciphers) in names(":~0x20") {
        assert!(["none", "portable"].contains(&name) && !enciphers, "{name}");
    }
    let all: Vec<_> = names(":~0").into_iter().map(|(name, ..)| name).collect();
    assert_eq!(
        all,
        names("::")
            .iter()
            .map(|(name, ..)| *name)
            .collect::<Vec<_>>()
    );
    assert!(
        names(":~0")
            .iter()
            .all(|(_, is_masked, aes)| !is_masked && *aes)
    );
    assert!(all.contains(&"portable"));
}

#[test]
fn the_automatic_choice_is_never_the_portable_backend() {
    assert_ne!(BackendChoice::Auto.resolve(), Some(Backend::PORTABLE));
}

#[test]
fn errors_name_the_setting_and_what_it_takes() {
    let error = |key, value| config(key, value).unwrap_err();
    assert_eq!(error("slot", "3"), "slot is not a setting; is slots meant?");
    assert!(error("threads", "3").contains("; there are backend, slots,"));
    assert!(error("stats_dir", "here").contains("auto, no or an absolute path"));
    assert_eq!(
        error("slots", "0"),
        "slots is '0', but must be a number from 1 to 4096"
    );
    assert_eq!(
        error("lone", "maybe"),
        "lone is 'maybe', but must be auto, lanes or stock"
    );
    assert!(error("backend", "mmx").contains("'mmx', but must be auto, none or one that this"));
    assert!(error("max_async", "-1").contains("'-1'"));
    let long = "/x".repeat(54);
    assert!(error("keys", "yes").contains("process or daemon"));
    assert!(error("references", "1").contains("'1', but must be yes or no"));
    assert!(error("keyd_socket", "k.sock").contains("auto or an absolute path"));
    assert!(error("syslog", &long).contains("at most 107 bytes"));
    assert!(error("syslog", "log").contains("yes, no or an absolute path"));
}

/// A build with the feature `laboratory` reads some of them, so these have their own values.
#[test]
fn settings_of_earlier_versions_are_no_mistakes() {
    let default = Config::from_pairs::<&str>([]);
    for (name, value) in [
        ("check_every", "64"),
        ("gather", "often"),
        ("jobs_lead", "no"),
        ("key_pool", "16"),
        ("max_lost", "16384"),
    ] {
        assert_eq!(config(name, value), Ok(default.clone()), "{name}");
    }
    assert!(Setting::is_gone("gather") && !Setting::is_gone("slots"));
    assert!(!Setting::is_gone("gathers"));
    let variable = "LOCKSTEP_GATHER";
    assert_eq!(ConfigError::misspelt(variable, &Setting::names()), None);
}

#[cfg(feature = "laboratory")]
#[test]
fn a_build_for_tests_reads_some_constants() {
    assert_eq!(config("max_lost", "7").unwrap().max_lost, 7);
    assert_eq!(config("key_pool", "0").unwrap().key_pool, 0);
    assert_eq!(config("check_every", "1").unwrap().check_every, 1);
    let backend = config("rsa_schedule", "after").unwrap().backend;
    assert_eq!(
        backend.resolve().map(Backend::name),
        Backend::best_hardware().map(Backend::name)
    );
    for name in ["max_lost", "key_pool", "check_every", "rsa_schedule"] {
        assert!(config(name, "-1").is_err() && !Setting::is_gone(name));
    }
}

#[test]
fn every_default_that_is_a_value_is_the_default() {
    for setting in Setting::ALL {
        let Ok(config) = config(setting.name, setting.default) else {
            assert_eq!(
                setting.name, "slots",
                "its default is a matter of the machine"
            );
            continue;
        };
        let default = Config::from_pairs::<&str>([]);
        assert_eq!(config, default, "{}", setting.name);
    }
}

#[test]
fn the_key_daemon_is_asked_for_the_first_request_with_a_key_too() {
    let [rsa, p256] = ["rsa2048", "p256-sign"].map(|name| {
        let mut all = Shape::ALL.into_iter();
        all.find(|shape| shape.name() == name).unwrap()
    });
    let first = |config: &Config| [rsa, p256].map(|shape| config.leaves_first(shape));
    let usual = first(&Config::default());
    assert!(usual[0] > 0 && usual[1] > 0, "{usual:?}");
    assert_eq!(first(&config("keys", "daemon").unwrap()), [0, usual[1]]);
    assert_eq!(first(&config("lone", "lanes").unwrap()), [0, 0]);
}

#[test]
fn the_document_prints_this_table() {
    let document = include_str!("../../../docs/user/settings.md");
    let expected = Setting::reference();
    assert!(
        document.contains(&expected),
        "docs/user/settings.md must hold this table:\n{expected}"
    );
}
