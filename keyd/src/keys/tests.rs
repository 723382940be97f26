use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

use lockstep_engine::Config;
use lockstep_testkit::{TempDir, command, hex};
use rustix::fs::Mode;

use super::*;
use crate::engine;

#[test]
fn keys_of_ml_dsa_have_long_answers() {
    let ed25519 = key::tests::ed25519().public;
    let ml_dsa = hex("30820012300b06096086480165030403110303000000");
    let keys = |publics: &[&Vec<u8>]| {
        let loaded = publics.iter().map(|&public| Loaded {
            name: String::new(),
            kind: String::new(),
            public: public.clone(),
            file: PathBuf::new(),
            open_mode: None,
        });
        let loaded = loaded.collect();
        Keys {
            loaded,
            ..Keys::default()
        }
    };
    assert_eq!(keys(&[]).answers(), Answers::Short);
    assert_eq!(keys(&[&ed25519]).answers(), Answers::Short);
    assert_eq!(keys(&[&ed25519, &ml_dsa]).answers(), Answers::Long);
}

/// One key with each kind of defect, among a hundred good ones, which are served.
#[test]
fn a_key_that_cannot_be_served_is_left_out_and_all_others_are_there() {
    let place = TempDir::new("bad-keys");
    let make = |name: &str, words: &str| {
        let mut openssl = command("openssl", &["genpkey", "-out"]);
        openssl.arg(place.join(name)).args(words.split(' '));
        assert!(
            openssl.output().is_ok_and(|made| made.status.success()),
            "{words}"
        );
    };
    make("good", "-algorithm ed25519");
    make("ec", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
    make("kind", "-algorithm X25519");
    let good = fs::read_to_string(place.join("good")).expect("a file");
    fs::write(place.join("cut"), &good[..good.len() / 2]).expect("a file");
    fs::write(place.join("damaged"), good.replace("MC4C", "MC5C")).expect("a file");
    fs::write(place.join("empty"), "").expect("a file");
    fs::write(place.join("open"), &good).expect("a file");
    let open = Permissions::from_mode(0o666);
    fs::set_permissions(place.join("open"), open).expect("its own");
    fs::create_dir(place.join("directory")).expect("a directory");
    symlink("nowhere", place.join("lost")).expect("a link");
    let pipe = place.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).expect("a pipe");
    let own = fs::metadata(&*place).expect("a directory").uid();
    let mut bad = vec![
        ("gone", "No such file"),
        ("cut", "has no end"),
        ("damaged", "does not parse"),
        ("empty", "no private key"),
        ("directory", "No such file with a private key"),
        ("lost", "No such file"),
        ("pipe", "not an ordinary file"),
        ("open", "can write to"),
        ("kind", "serves keys of RSA"),
        // As if a key of RSA was renewed with one of P-256.
        ("ec", "signatures alone"),
    ];
    if own == 0 {
        fs::write(place.join("theirs"), &good).expect("a file");
        chown(place.join("theirs"), Some(33), None).expect("root");
        bad.push(("theirs", "belongs to user 33"));
    }
    let (mut text, count) = (String::new(), bad.len());
    let shown = place.display();
    for (number, (name, _)) in (0..100).zip(bad.iter().cycle()) {
        let section = |name: &str, file: &str, uses: &str| {
            format!("[key {name}]\nfile = {shown}/{file}\nusers = {own}\nuses = {uses}\n")
        };
        text += &section(&format!("good-{number}"), "good", "sign");
        if number < count {
            text += &section(name, name, "sign decrypt");
        }
    }
    let _ = write!(
        text,
        "[key ghost]\nfile = {shown}/good\nusers = nobody-there\nuses = sign\n\
         [key some]\nfile = {shown}/good\nusers = nobody-there {own}\nuses = sign\n\
         [key useless]\nfile = {shown}/good\nusers = {own}\n\
         [key good-7]\nfile = {shown}/gone\nusers = {own}\nuses = sign\n[keys]\n"
    );
    bad.push(("ghost", "no user `nobody-there`"));
    bad.push(("useless", "say what it may be used for"));
    let configuration = Configuration::parse(&text);
    assert_eq!(configuration.wrong.len(), 2, "{:?}", configuration.wrong);
    let keys = read_keys(&configuration, &engine(Config::default()));
    let names: Vec<_> = keys.loaded.iter().map(|key| key.name.clone()).collect();
    let good = (0..100).map(|number| format!("good-{number}"));
    assert_eq!(names, good.chain(["some".to_owned()]).collect::<Vec<_>>());
    assert_eq!(keys.left_out.len(), bad.len(), "{:?}", keys.left_out);
    for (name, expected) in bad {
        let mut left_out = keys.left_out.iter();
        let left_out = left_out.find(|key| key.name == name).expect(name);
        assert!(left_out.why.contains(expected), "{left_out}");
    }
    let wrong = keys.wrong().join("\n");
    assert!(
        wrong.contains("the key some is served, but there is no user"),
        "{wrong}"
    );
    let status = renewals::status_of(keys.loaded.len(), &keys.left_out);
    assert!(
        status.starts_with("serves 101 keys, and leaves out"),
        "{status}"
    );
}
