//! Beside other providers, which a configuration activates before the module or after it: the keys
//! and algorithms of each still work, and keys from files are still on lanes.
//!
//! `base` is part of libcrypto. Another provider that is not installed is skipped.

use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Finished, Place, Process, dist};
use crate::tls::{Server, certificate};

/// Where the providers of OpenSSL and of Linux distributions are.
const MODULES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/ossl-modules",
    "/usr/lib64/ossl-modules",
    "/usr/lib/ossl-modules",
];

/// Where SoftHSM is.
const TOKENS: [&str; 3] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
];

/// The file of a provider; without it says that the test is skipped.
fn installed(name: &str) -> Option<PathBuf> {
    let file = format!("{name}.so");
    let found = MODULES.iter().map(|place| Path::new(place).join(&file));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("skipped: this system has no provider {name}");
    }
    found
}

/// Runs a check in a place where the module is activated first, between others, and last. Each of
/// `others` is the name of a provider and the lines of its section. The check learns whether the
/// default provider is active before the module.
fn in_every_order(others: &[(&str, &str)], check: impl Fn(&Place, bool)) {
    let module = format!("module = {}", dist().join("lockstep.so").display());
    for position in 0..=others.len() {
        let mut providers = others.to_vec();
        providers.insert(position, ("lockstep", &module));
        let place = Place::new();
        let mut configuration = "openssl_conf = init\n\
             [init]\n\
             providers = providers\n\
             alg_section = properties\n\
             [properties]\n\
             default_properties = ?lockstep.fast=yes,?lockstep.keys!=yes\n\
             [providers]\n"
            .to_owned();
        for (name, _) in &providers {
            configuration += &format!("{name} = {name}_section\n");
        }
        for (name, lines) in &providers {
            configuration += &format!("[{name}_section]\n{lines}\nactivate = 1\n");
        }
        place.write("lockstep.cnf", configuration.as_bytes());
        place.write("data", b"the quick brown fox");
        files_are_on_lanes(&place);
        let before = &others[..position];
        check(&place, before.iter().any(|(name, _)| *name == "default"));
    }
}

/// Keys from files sign on lanes, and OpenSSL alone verifies the signatures.
fn files_are_on_lanes(place: &Place) {
    for (key, shape) in [
        ("rsa2048", "rsa2048"),
        ("p256", "p256-sign"),
        ("p384", "p384-sign"),
    ] {
        let file = place.key(key);
        let sign = format!("dgst -sha256 -sign {file} -out signature data");
        place.lockstep(&sign).succeed().on_lanes(shape, 1);
        verified(place, key);
    }
}

/// OpenSSL alone verifies `signature`.
fn verified(place: &Place, key: &str) {
    place.key(key);
    let verify = format!("dgst -sha256 -verify {key}.pub.pem -signature signature data");
    place.stock(&verify).succeed();
}

/// As the administrator of a token asks for it, here with the only provider that is always there:
/// operations are on lanes all the same, and that provider makes the keys.
#[test]
fn a_preference_for_another_provider_is_about_its_keys() {
    let place = Place::new();
    let shipped = String::from_utf8(place.read("lockstep.cnf")).expect("a configuration");
    let line = "default_properties = ";
    assert!(shipped.contains(line), "{shipped}");
    place.write("data", b"the quick brown fox");
    let made_by_us = || {
        let made = place.lockstep("genpkey -algorithm X25519").succeed();
        let counters = made.try_counters();
        counters.is_some_and(|counters| counters.shapes().contains_key("x25519-keygen"))
    };
    assert!(made_by_us());
    let other = shipped.replace(line, &format!("{line}?provider=default,"));
    place.write("lockstep.cnf", other.as_bytes());
    files_are_on_lanes(&place);
    assert!(!made_by_us());
}

#[test]
fn base_brings_its_encoders() {
    in_every_order(&[("base", ""), ("default", "")], |place, _| {
        let file = place.key("p256");
        for form in ["-outform DER", "-pubout", "-text -noout"] {
            let command = format!("pkey -in {file} {form}");
            let with = place.lockstep(&command).succeed();
            assert_eq!(
                with.stdout,
                place.stock(&command).succeed().stdout,
                "{with}"
            );
        }
    });
}

#[test]
fn legacy_brings_its_digests_and_ciphers() {
    if installed("legacy").is_none() {
        return;
    }
    in_every_order(&[("legacy", ""), ("default", "")], |place, sees_others| {
        let without = "-provider default -provider legacy";
        let digest = place.lockstep("dgst -md4 data").succeed();
        let expected = place.stock(&format!("dgst {without} -md4 data")).succeed();
        assert_eq!(digest.stdout, expected.stdout, "{digest}");

        let file = place.key("rsa2048");
        // Our padding code has the application's digests where its default provider came first
        // (docs/decisions/overlay.md).
        if sees_others {
            let sign = format!("dgst -md4 -sign {file} -out signature data");
            place.lockstep(&sign).succeed().on_lanes("rsa2048", 1);
        }

        // The key is sealed by DES, which legacy opens, and signs on lanes.
        let seal = format!("pkcs8 -topk8 -in {file} -v1 PBE-MD5-DES -passout pass:1 -out sealed");
        place.stock(&format!("{seal} {without}")).succeed();
        let sign = "dgst -sha256 -sign sealed -passin pass:1 -out signature data";
        place.lockstep(sign).succeed().on_lanes("rsa2048", 1);
        verified(place, "rsa2048");
        assert!(
            place.stock(sign).run().status.code() != Some(0),
            "the default provider opens it alone"
        );
    });
}

#[test]
fn fips_signs_what_is_asked_of_it() {
    let Some(fips) = installed("fips") else {
        return;
    };
    let place = Place::new();
    let install = format!("fipsinstall -module {} -out fips.cnf", fips.display());
    let done = place.stock(&install).run();
    if done.status.code() != Some(0) {
        println!("skipped: this fips provider cannot be set up: {done}");
        return;
    }
    // The section that it has made, without its name and the lines of every section.
    let section = String::from_utf8(place.read("fips.cnf")).unwrap();
    let lines: Vec<&str> = section
        .lines()
        .filter(|line| line.contains('=') && !line.starts_with("activate"))
        .collect();
    let fips = ("fips", &*lines.join("\n"));
    let signs_alone = |place: &Place, _| {
        let file = place.key("rsa2048");
        let sign = format!("dgst -propquery fips=yes -sha256 -sign {file} -out signature data");
        let signed = place.lockstep(&sign).succeed();
        let operations = signed.try_counters().map_or(0, |all| all.operations());
        assert_eq!(operations, 0, "lanes are not FIPS: {signed}");
        verified(place, "rsa2048");
    };
    in_every_order(&[fips, ("default", "")], signs_alone);
    in_every_order(&[fips, ("base", "")], signs_alone);
}

/// Keys in a token sign there. SoftHSM uses OpenSSL too, which has ended when the provider lets
/// SoftHSM end; so it must not (`no-deinit`), or the process crashes, without the module as well.
#[test]
fn pkcs11_keeps_the_keys_of_its_token() {
    if installed("pkcs11").is_none() {
        return;
    }
    let Some(token) = TOKENS.iter().find(|path| Path::new(path).exists()) else {
        println!("skipped: SoftHSM is not installed");
        return;
    };
    let lines = format!("pkcs11-module-path = {token}\npkcs11-module-quirks = no-deinit");
    let token_signs = |place: &Place, _| {
        let tokens = place.path("tokens");
        fs::create_dir(&tokens).unwrap();
        let settings = format!("directories.tokendir = {}\n", tokens.display());
        place.write("softhsm2.conf", settings.as_bytes());
        let settings = place.path("softhsm2.conf");
        let set_up = |arguments: &str| {
            let tool = place.program("softhsm2-util", arguments);
            tool.env("SOFTHSM2_CONF", &settings).succeed();
        };
        set_up("--init-token --free --label here --pin 1234 --so-pin 1234");
        for (number, key) in ["rsa2048", "p256"].into_iter().enumerate() {
            let file = place.key(key);
            let object = format!("--token here --label {key} --id 0{number} --pin 1234");
            set_up(&format!("--import {file} {object}"));
        }
        for key in ["rsa2048", "p256"] {
            // The file is away: only the token has the key.
            place.remove(&format!("{key}.pem"));
            let uri = format!("pkcs11:token=here;object={key};type=private?pin-value=1234");
            let sign = format!("dgst -sha256 -sign {uri} -out signature data");
            let signing = place.lockstep(&sign);
            signing.env("SOFTHSM2_CONF", &settings).succeed();
            verified(place, key);
        }
        files_are_on_lanes(place);
    };
    // nginx does not start without the module either where this provider is before the default one.
    in_every_order(&[("default", ""), ("pkcs11", &lines)], |place, before| {
        token_signs(place, before);
        token_serves(place, &place.path("softhsm2.conf"));
    });
    in_every_order(&[("pkcs11", &lines), ("default", "")], token_signs);
}

/// nginx serves with keys of the token, and lanes compute the shares of its handshakes. Its files
/// of keys have a URI each, in the form that the provider reads.
fn token_serves(place: &Place, settings: &Path) {
    const NGINX: &str = "/usr/sbin/nginx";
    if !Path::new(NGINX).exists() {
        println!("skipped in part: nginx is not installed");
        return;
    }
    for key in ["rsa2048", "p256"] {
        certificate(place, key);
        place.remove(&format!("{key}.pem"));
        let uri = format!("pkcs11:token=here;object={key};type=private?pin-value=1234");
        place.write("uri.der", &in_der(&uri));
        let encoded = place.stock("base64 -in uri.der").succeed().text();
        let label = "PKCS#11 PROVIDER URI";
        let text = format!("-----BEGIN {label}-----\n{encoded}-----END {label}-----\n");
        place.write("uri.pem", text.as_bytes());
        let port = free_port();
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\n\
             env SOFTHSM2_CONF;\nenv OPENSSL_CONF;\nevents {{ }}\nhttp {{ access_log off;\n\
             server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {key}.crt;\n\
             ssl_certificate_key uri.pem; ssl_ecdh_curve X25519; }} }}\n"
        );
        place.write("nginx.conf", configuration.as_bytes());
        let prefix = place.path("");
        let start = format!("-p {} -c nginx.conf -e stderr", prefix.display());
        let server = place.program(NGINX, &start).with_lockstep();
        let server = server.env("SOFTHSM2_CONF", settings).start();
        let client = format!("s_client -connect 127.0.0.1:{port} -CAfile {key}.crt");
        let begun = Instant::now();
        loop {
            let client = place
                .stock(&format!("{client} -verify_return_error"))
                .limit(20);
            let client = client.run();
            if client.status.success() {
                break;
            }
            let described = server.describe();
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{client}\n{described}"
            );
            sleep(Duration::from_millis(100));
        }
        server.wait_for_counters("a share", |counters| {
            let all = counters.shapes();
            let signed = all.get("rsa2048").or(all.get("p256-sign"));
            all.contains_key("x25519-keygen") && signed.is_none() && counters.failed_checks == 0
        });
    }
}

/// A SEQUENCE of the form's name and a URI, each shorter than 128 bytes.
fn in_der(uri: &str) -> Vec<u8> {
    let part = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
    let name = part(0x1a, b"PKCS#11 Provider URI v1.0");
    let parts = [name, part(0x0c, uri.as_bytes())].concat();
    part(0x30, &parts)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

#[test]
fn tpm2_keeps_the_keys_of_its_tpm() {
    if installed("tpm2").is_none() {
        return;
    }
    if !Path::new("/usr/bin/swtpm").exists() {
        println!("skipped: swtpm is not installed");
        return;
    }
    let signed = Cell::new(0);
    let tpm_signs = |place: &Place, _| {
        fs::create_dir(place.path("tpm")).unwrap();
        let arguments = "socket --tpm2 --tpmstate dir=tpm --server type=unixio,path=tpm/socket \
                         --ctrl type=unixio,path=tpm/socket.ctrl --flags not-need-init,startup-clear";
        let _tpm = place.program("swtpm", arguments).start();
        let socket = place.path("tpm/socket");
        let begun = Instant::now();
        while !(socket.exists() && place.path("tpm/socket.ctrl").exists()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "swtpm is silent");
            sleep(Duration::from_millis(10));
        }
        let both = String::from_utf8(place.read("lockstep.cnf")).unwrap();
        place.write("alone.cnf", both.replace("lockstep = ", "# ").as_bytes());
        let with_tpm = |command: &str| {
            let tpm = format!("swtpm:path={}", socket.display());
            place.lockstep(command).env("TPM2OPENSSL_TCTI", tpm)
        };
        for algorithm in ["RSA -pkeyopt bits:2048", "EC -pkeyopt group:P-256"] {
            let make =
                format!("genpkey -propquery provider=tpm2 -algorithm {algorithm} -out tpm.pem");
            with_tpm(&make).succeed();
            let key = String::from_utf8(place.read("tpm.pem")).unwrap();
            assert!(key.contains("TSS2 PRIVATE KEY"), "{key}");
            with_tpm("pkey -in tpm.pem -pubout -out tpm.pub.pem").succeed();
            // Version 1.1 of tpm2-openssl gives keys to other providers without their private half:
            // to a default provider that is active before it, and to the module in any order
            // (docs/user/troubleshooting.md).
            let sign =
                |how: &str| with_tpm(&format!("dgst {how} -sign tpm.pem -out signature data"));
            let alone = sign("-sha256")
                .env("OPENSSL_CONF", place.path("alone.cnf"))
                .run();
            let mut with_module = sign("-sha256").run();
            if alone.status.success() && !with_module.status.success() {
                with_module = sign("-sha256 -propquery ?provider=tpm2,-lockstep.fast").run();
            }
            assert_eq!(with_module.status, alone.status, "{with_module}");
            if with_module.status.success() {
                let verify = "dgst -sha256 -verify tpm.pub.pem -signature signature data";
                place.stock(verify).succeed();
                signed.set(signed.get() + 1);
            }
        }
    };
    in_every_order(&[("default", ""), ("tpm2", "")], tpm_signs);
    in_every_order(&[("tpm2", ""), ("default", "")], tpm_signs);
    assert!(
        signed.get() >= 6,
        "keys of the TPM sign {} times",
        signed.get()
    );
}

/// oqs-provider has hybrids by the same names as the module, with OpenSSL before 3.5, and groups
/// and keys that nobody else has.
#[test]
fn oqs_keeps_its_keys_and_groups() {
    if installed("oqsprovider").is_none() {
        return;
    }
    const HYBRID: &str = "X25519MLKEM768";
    /// Groups that a build may leave out.
    const GROUPS: [&str; 2] = ["frodo640aes", "x25519_frodo640aes"];
    const KEYS: [&str; 2] = ["falcon512", "p256_falcon512"];
    let without = "-provider default -provider oqsprovider";
    let works = |place: &Place, _| {
        place.write(
            "others.cnf",
            b"openssl_conf = init\n[init]\nproviders = providers\n[providers]\n\
              default = active\noqsprovider = active\n[active]\nactivate = 1\n",
        );
        for key in KEYS {
            let make = format!(
                "req -x509 -newkey {key} -nodes -keyout {key}.pem -out {key}.crt -subj /CN=localhost"
            );
            place.lockstep(&make).succeed();
            let verify = format!("verify {without} -CAfile {key}.crt {key}.crt");
            place.stock(&verify).succeed();
            let sign = format!("dgst -sha512 -sign {key}.pem -out signature data");
            place.lockstep(&sign).succeed();
            let public = format!("pkey {without} -in {key}.pem -pubout -out {key}.pub.pem");
            place.stock(&public).succeed();
            let verify = format!("-sha512 -verify {key}.pub.pem -signature signature data");
            place.stock(&format!("dgst {without} {verify}")).succeed();
            place.lockstep(&format!("dgst {verify}")).succeed();
        }

        // Each group that can be had without the module can be had with it, and is listed once.
        let groups = place.compile("groups");
        let alone = |process: Process<'_>| {
            let finished = process
                .env("OPENSSL_CONF", place.path("others.cnf"))
                .succeed();
            lines(&finished)
        };
        let before = alone(place.program(&groups, ""));
        let with = lines(&place.program(&groups, "").with_lockstep().succeed());
        for group in &before {
            assert!(with.contains(group), "{group} is lost: {with:?}");
        }
        let unusable: Vec<&String> = with.iter().filter(|line| line.ends_with(" 0")).collect();
        assert!(unusable.is_empty(), "{unusable:?}");
        if place.stock("list -tls-groups").run().status.success() {
            let list = "list -tls-groups";
            let (with, alone) = (place.lockstep(list).succeed(), alone(place.stock(list)));
            let sorted = |line: &str| {
                let mut names: Vec<String> = line.trim().split(':').map(str::to_owned).collect();
                names.sort();
                names
            };
            assert_eq!(sorted(&with.text()), sorted(&alone.concat()), "{with}");
        }

        // The hybrid that both name is the module's, and each understands the other.
        let server = Server::start(place, "p256", &format!("-groups {HYBRID}"), true);
        let options = format!("{without} -groups {HYBRID}");
        let client = server.client(&options);
        assert!(client.status.success(), "{client}");
        server.running.wait_for_counters("a share", |counters| {
            counters.shapes().get("x25519mlkem768-server") == Some(&1) && counters.fallbacks() == 0
        });
        let mut theirs = Server::start(place, "p256", without, false);
        let ours = theirs.client_command(&format!("-groups {HYBRID}:X25519"));
        let client = place.lockstep(&ours).limit(20).succeed();
        let counters = client.counters();
        assert_eq!(
            counters.shapes().get("x25519mlkem768-keygen"),
            Some(&1),
            "{client}"
        );
        let offered = theirs.running.wait_for("a hello", |output| {
            let (_, rest) = output.split_once("Supported groups: ")?;
            Some(rest.split_once('\n')?.0.to_owned())
        });
        assert_eq!(offered.matches(':').count(), 1, "{offered}");

        // Its own groups, from either side.
        for group in GROUPS {
            let options = format!("{without} -groups {group}");
            let server = Server::start(place, "p256", &format!("-groups {group}"), true);
            let client = server.client(&options);
            assert!(client.status.success(), "{group}: {client}");
            let theirs = Server::start(place, "p256", &options, false);
            let ours = theirs.client_command(&format!("-groups {group}"));
            place.lockstep(&ours).limit(20).succeed();
        }
    };
    in_every_order(&[("default", ""), ("oqsprovider", "")], works);
    in_every_order(&[("oqsprovider", ""), ("default", "")], works);
}

/// AWS-LC's provider has digests so far, and Intel's has all operations with keys. Neither is where
/// these tests run: one that does the same stands for each.
#[test]
fn providers_for_digests_and_for_all_keys_harm_nobody() {
    let built = Place::new();
    let options = ["-shared", "-fPIC", "-lcrypto"];
    let fellow = built.compile_with("fellow", "fellow.so", &options);
    let section = |offers| format!("module = {}\noffers = {offers}", fellow.display());
    let (digests, keys) = (section("digests"), section("keys"));
    let default = ("default", "");

    let awslc = ("awslc", &*digests);
    let digested = |place: &Place, _| {
        for query in ["", "-propquery provider=awslc"] {
            let digest = place.lockstep(&format!("dgst -sha256 {query} data"));
            let alone = place.stock("dgst -sha256 data").succeed();
            assert_eq!(digest.succeed().stdout, alone.stdout, "{query}");
        }
        serves(place);
    };
    in_every_order(&[default, awslc], digested);
    in_every_order(&[awslc, default], digested);

    // One that does not start, as AWS-LC's so far. Its name is no option.
    let broken = format!("module = {}", fellow.display());
    in_every_order(&[default, ("--awslc", &broken)], |place, _| {
        serves(place);
        let shown = doctor(place);
        assert!(!shown.contains("crashes or exits"), "{shown}");
    });

    let qat = ("qatprovider", &*keys);
    let signed = |place: &Place, _| {
        // It makes a key where it is asked to.
        for key in [
            "RSA -pkeyopt bits:2048",
            "EC -pkeyopt group:P-256",
            "ED25519",
        ] {
            let query = "-propquery provider=qatprovider";
            let make = format!("genpkey {query} -algorithm {key} -out made.pem");
            let made = place.lockstep(&make).succeed();
            let ours = made
                .try_counters()
                .map_or(0, |counters| counters.operations());
            assert_eq!(ours, 0, "{made}");
        }
        serves(place);
        // Where it is preferred, it serves.
        let text = String::from_utf8(place.read("lockstep.cnf")).expect("text");
        let (ours, theirs) = (
            "?lockstep.fast=yes,?lockstep.keys!=yes",
            "?provider=qatprovider",
        );
        assert!(text.contains(ours), "{text}");
        let text = text.replace(ours, theirs);
        place.write("lockstep.cnf", text.as_bytes());
        let file = place.key("rsa2048");
        let sign = format!("dgst -sha256 -sign {file} -out signature data");
        let signed = place.lockstep(&sign).succeed();
        let ours = signed
            .try_counters()
            .map_or(0, |counters| counters.operations());
        assert_eq!(ours, 0, "{signed}");
        verified(place, "rsa2048");
    };
    in_every_order(&[default, qat], signed);
    in_every_order(&[qat, default], signed);
}

/// Providers of others, whose files `LOCKSTEP_COMPANY` names, separated by colons.
#[test]
#[ignore = "for providers that LOCKSTEP_COMPANY names"]
fn providers_that_are_named_harm_nobody() {
    let files = std::env::var_os("LOCKSTEP_COMPANY").expect("LOCKSTEP_COMPANY");
    for file in std::env::split_paths(&files) {
        let name = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("a name");
        let section = format!("module = {}", file.display());
        // Intel's in the first place fails handshakes without the module, too, where its hardware
        // is missing.
        in_every_order(&[("default", ""), (name, &section)], |place, _| {
            serves(place);
            println!("{}", doctor(place));
        });
    }
}

/// Handshakes with the module and with the providers beside it.
fn serves(place: &Place) {
    for (key, shape) in [("rsa2048", "rsa2048"), ("p256", "p256-sign")] {
        let server = Server::start(place, key, "-groups X25519", true);
        let client = server.client("");
        assert!(client.status.success(), "{client}");
        let running = &server.running;
        running.wait_for_counters(shape, |counters| counters.of(shape) == 1);
    }
}

/// Returns the report of `lockstep doctor` about the configuration.
fn doctor(place: &Place) -> String {
    let configuration = place.path("lockstep.cnf");
    let doctor = place.program(dist().join("lockstep"), "doctor");
    let finished = doctor.env("OPENSSL_CONF", configuration).run();
    assert_ne!(finished.status.code(), None, "{finished}");
    finished.text()
}

fn lines(finished: &Finished) -> Vec<String> {
    finished.text().lines().map(str::to_owned).collect()
}
