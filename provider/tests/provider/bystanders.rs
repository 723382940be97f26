//! A configuration that loads the module is read by programs in which the module is not active: its
//! file is gone, it refuses to load, the program has another library context, or asks for another
//! provider. Each of them does the same as without that configuration, and finds no error that it
//! has not made.
//!
//! The other tests expect counters; here it counts that the same check finds the line about TLS
//! groups that configurations had.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::common::{Place, dist};

/// A program with its requirements.
struct Reader {
    name: &'static str,
    program: &'static str,
    /// A program that shows whether it can run.
    needs: &'static [&'static str],
    arguments: &'static str,
    /// Whether it meets the error that the line about groups leaves.
    meets_errors: bool,
}

/// `@` stands for the directory of the programs of these tests, `PORT` for a free one.
const READERS: &[Reader] = &[
    Reader {
        name: "a C program",
        program: "./bystander",
        needs: &["true"],
        arguments: "default site.crt site.key",
        meets_errors: true,
    },
    Reader {
        name: "Python",
        program: "/usr/bin/python3",
        needs: &["/usr/bin/python3", "-c", "import ssl"],
        arguments: "@/bystander.py site.crt site.key",
        meets_errors: true,
    },
    Reader {
        name: "Perl (package libnet-ssleay-perl)",
        program: "perl",
        needs: &["perl", "-MNet::SSLeay", "-e", "1"],
        arguments: "@/bystander.pl",
        meets_errors: true,
    },
    Reader {
        name: "OpenVPN (package openvpn)",
        program: "sh",
        needs: &["/usr/sbin/openvpn", "--version"],
        arguments: "@/bystander-openvpn.sh PORT",
        meets_errors: true,
    },
    Reader {
        name: "nginx",
        program: "sh",
        needs: &["/usr/sbin/nginx", "-v"],
        arguments: "@/bystander-nginx.sh PORT",
        meets_errors: false,
    },
    Reader {
        name: "HAProxy",
        program: "sh",
        needs: &["/usr/sbin/haproxy", "-v"],
        arguments: "@/bystander-haproxy.sh PORT",
        meets_errors: false,
    },
];

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/provider/programs")
}

/// Returns the output of a program with a configuration, or with the system's own.
fn printed(place: &Place, reader: &Reader, configuration: Option<&str>) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let arguments = reader
        .arguments
        .replace('@', &programs().display().to_string())
        .replace("PORT", &port.to_string());
    let program = match reader.program {
        "./bystander" => place.path("bystander"),
        name => PathBuf::from(name),
    };
    let process = place.program(program, &arguments).limit(60);
    // It asks for modules by their names.
    let process = process.env("OPENSSL_MODULES", "/nonexistent");
    let finished = match configuration {
        Some(text) => {
            place.write("read.cnf", text.as_bytes());
            process.env("OPENSSL_CONF", place.path("read.cnf")).run()
        }
        None => process.run(),
    };
    let status = format!("status {:?}", finished.status.code());
    let mut lines: Vec<String> = finished.text().lines().map(str::to_owned).collect();
    assert!(lines.len() > 1, "{}: {finished}", reader.name);
    lines.push(status);
    lines
}

/// The lines that only one of both has.
fn differences(plain: &[String], with: &[String]) -> Vec<String> {
    let lost = plain.iter().filter(|line| !with.contains(line));
    let new = with.iter().filter(|line| !plain.contains(line));
    let all = lost.map(|line| format!("- {line}"));
    all.chain(new.map(|line| format!("+ {line}"))).collect()
}

/// The configuration that is shipped, with another module or more lines at its end.
fn shipped(module: Option<&Path>, settings: &str) -> String {
    let text = fs::read_to_string(dist().join("openssl.cnf")).expect("openssl.cnf");
    let lines = text.lines().map(|line| match module {
        Some(module) if line.starts_with("module = ") => format!("module = {}", module.display()),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n" + settings
}

/// The same with the line about groups that configurations had for OpenSSL 3.0 to 3.4.
fn with_groups(text: &str) -> String {
    let init = text
        .lines()
        .find_map(|line| line.strip_prefix("openssl_conf = "))
        .expect("a section that is begun with");
    let groups = format!(
        "[{init}]\nssl_conf = planted_ssl\n[planted_ssl]\nsystem_default = planted_tls\n\
         [planted_tls]\nGroups = X25519:P-256:X448:P-521:P-384:NoSuchGroup\n"
    );
    // The module's section is the last one.
    let module = text.rfind("[lockstep_module]").expect("its section");
    format!("{}{groups}{}", &text[..module], &text[module..])
}

#[test]
fn programs_without_the_module_see_nothing_of_its_configuration() {
    let place = Place::new();
    place.compile("bystander");
    let refusing = place.compile_with("refusing", "lockstep.so", &["-shared", "-fPIC"]);
    let make = "req -x509 -newkey rsa:2048 -nodes -keyout site.key -out site.crt -days 2 \
                -subj /CN=localhost";
    place.stock(make).succeed();
    let damaged = place.path("damaged/lockstep.so");
    fs::create_dir(damaged.parent().expect("a directory")).expect("a directory");
    fs::write(&damaged, "not a module\n").expect("a file");
    let absent = Path::new("/nonexistent/lockstep.so");
    let configurations = [
        ("is not there", shipped(Some(absent), "")),
        ("is damaged", shipped(Some(&damaged), "")),
        ("refuses", shipped(Some(&refusing), "")),
        (
            "has settings of a later version",
            shipped(Some(&refusing), "later = 1\n"),
        ),
    ];
    for reader in READERS {
        let (program, words) = reader.needs.split_first().expect("a program");
        let can_run = std::process::Command::new(program).args(words).output();
        if !can_run.is_ok_and(|output| output.status.success()) {
            println!(
                "skipped: {} is not installed (`cargo xtask setup`)",
                reader.name
            );
            continue;
        }
        let plain = printed(&place, reader, None);
        for (what, text) in &configurations {
            let with = printed(&place, reader, Some(text));
            let found = differences(&plain, &with);
            assert!(
                found.is_empty(),
                "{}, the module {what}: {found:#?}",
                reader.name
            );
        }
        let planted = printed(&place, reader, Some(&with_groups(&configurations[0].1)));
        let is_found = !differences(&plain, &planted).is_empty();
        assert!(
            is_found || !reader.meets_errors,
            "{}: {planted:#?}",
            reader.name
        );
    }
}

/// The module loads, and the program does not have it where it looks.
#[test]
fn what_another_context_or_property_finds_is_openssls_own() {
    let place = Place::new();
    place.compile("bystander");
    let make = "req -x509 -newkey rsa:2048 -nodes -keyout site.key -out site.crt -days 2 \
                -subj /CN=localhost";
    place.stock(make).succeed();
    let healthy = shipped(None, "");
    for mode in [
        "context",
        "property",
        "context-with-configuration",
        "default",
    ] {
        let reader = Reader {
            name: mode,
            program: "./bystander",
            needs: &[],
            arguments: match mode {
                "context" => "context site.crt site.key",
                "property" => "property site.crt site.key",
                "default" => "default site.crt site.key",
                _ => "context-with-configuration site.crt site.key",
            },
            meets_errors: true,
        };
        let plain = printed(&place, &reader, None);
        let found = differences(&plain, &printed(&place, &reader, Some(&healthy)));
        assert!(found.is_empty(), "{mode}: {found:#?}");
        let planted = printed(&place, &reader, Some(&with_groups(&healthy)));
        assert!(
            !differences(&plain, &planted).is_empty(),
            "{mode}: {planted:#?}"
        );
    }
}
