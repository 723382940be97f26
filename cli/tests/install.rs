//! `lockstep install` and `uninstall`, in a directory instead of the system.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockstep_testkit::copy_program;
use sha2::{Digest as _, Sha256};

const SERVERS: [&str; 6] = [
    "haproxy",
    "apache",
    "nginx",
    "stunnel",
    "trafficserver",
    "dnsdist",
];

/// The units that start them, as packages bring them.
const UNITS: [&str; 6] = [
    "haproxy.service",
    "apache2.service",
    "nginx.service",
    "stunnel@.service",
    "trafficserver.service",
    "dnsdist.service",
];

/// A root and a distribution of one test.
struct Place {
    root: PathBuf,
    conf: PathBuf,
}

impl Place {
    fn new(name: &str) -> Place {
        // Not under the target directory: nobody else may change a directory above. And not in
        // /tmp, which services do not see.
        Place::at(Path::new("/dev/shm"), name)
    }

    fn at(above: &Path, name: &str) -> Place {
        let name = format!("lockstep-install-{}-{name}", std::process::id());
        let directory = above.join(name);
        let _ = fs::remove_dir_all(&directory);
        let (root, dist) = (directory.join("root"), directory.join("dist"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&dist).unwrap();
        for directory in [&directory, &dist] {
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        }
        let (conf, module) = (dist.join("openssl.cnf"), dist.join("lockstep.so"));
        // As much of a shared library as is looked at without loading it.
        let mut header = [0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 62;
        fs::write(&module, header).unwrap();
        fs::write(&conf, loading(&module, "")).unwrap();
        for name in UNITS {
            let unit = root.join("lib/systemd/system").join(name);
            write(&unit, &format!("[Service]\nExecStart=/usr/sbin/{name}\n"));
        }
        for file in [&conf, &module] {
            fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
        }
        Place { root, conf }
    }

    fn run(&self, task: &str, server: &str, more: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command
            .args([task, "--server", server, "--root"])
            .arg(&self.root);
        if task == "install" {
            command.arg("--conf").arg(&self.conf);
        }
        let output = command.args(more).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Returns the tree under the root: the text of files, and `None` for directories.
    fn tree(&self) -> BTreeMap<PathBuf, Option<String>> {
        let mut found = BTreeMap::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                // A link may lead out of the root.
                let text = (!path.is_dir()).then(|| fs::read_to_string(&path).unwrap_or_default());
                if text.is_none() {
                    directories.push(path.clone());
                }
                found.insert(path.strip_prefix(&self.root).unwrap().to_owned(), text);
            }
        }
        found
    }
}

/// A configuration that loads this module, with more in the section that `openssl_conf` names.
fn loading(module: &Path, more: &str) -> String {
    let module = module.display();
    format!(
        "openssl_conf = init\n[init]\nproviders = p\n{more}\n[p]\ndefault = d\nlockstep = l\n[d]\nactivate = 1\n\
         [l]\nmodule = {module}\nactivate = 1\n"
    )
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.root.with_file_name(""));
    }
}

#[test]
fn what_is_installed_is_announced_and_removed_without_a_trace() {
    for server in SERVERS {
        let place = Place::new(server);
        // As the packages have it.
        fs::create_dir_all(place.root.join("etc/systemd/system")).unwrap();
        fs::create_dir_all(place.root.join("etc/nginx/modules-enabled")).unwrap();
        let before = place.tree();

        let (code, dry, _) = place.run("install", server, &["--dry-run"]);
        assert_eq!((code, place.tree()), (0, before.clone()), "{dry}");
        let (code, stdout, stderr) = place.run("install", server, &[]);
        assert_eq!((code, &stdout), (0, &dry), "{stderr}");
        let installed = place.tree();
        let fresh: Vec<_> = installed
            .iter()
            .filter(|(path, _)| !before.contains_key(*path))
            .collect();
        assert!(!fresh.is_empty());
        let mut names_the_configuration = false;
        for (path, text) in fresh {
            let Some(text) = text else { continue };
            assert!(
                stdout.contains(&format!("write {}", place.root.join(path).display())),
                "{stdout}"
            );
            assert!(
                text.lines()
                    .all(|line| stdout.contains(&format!("    {line}\n"))),
                "{stdout}"
            );
            names_the_configuration |= text.contains(&format!(
                "Environment=OPENSSL_CONF={}\n",
                place.conf.display()
            ));
        }
        assert!(names_the_configuration);

        let (code, stdout, _) = place.run("install", server, &[]);
        assert_eq!((code, place.tree()), (0, installed.clone()));
        assert!(stdout.contains("nothing to do\n"), "{stdout}");

        let (_, dry, _) = place.run("uninstall", server, &["--dry-run"]);
        assert_eq!(place.tree(), installed);
        let (code, stdout, stderr) = place.run("uninstall", server, &[]);
        assert_eq!((code, &stdout), (0, &dry), "{stderr}");
        assert_eq!(place.tree(), before);
        let (code, stdout, _) = place.run("uninstall", server, &[]);
        assert_eq!(code, 0);
        assert!(stdout.contains("nothing to do\n"), "{stdout}");
    }
}

#[test]
fn another_configuration_replaces_the_first() {
    let place = Place::new("again");
    place.run("install", "nginx", &[]);
    let other = Place::new("other");
    let other = other.conf.to_str().unwrap();
    let (code, stdout, stderr) = place.run("install", "nginx", &["--conf", other]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("write ") && stdout.contains("keep "),
        "{stdout}"
    );
    let unit = place
        .root
        .join("etc/systemd/system/nginx.service.d/zz-lockstep.conf");
    assert!(fs::read_to_string(unit).unwrap().contains(other));
}

/// The program in a place of its own, without an openssl.cnf, and its module where packages put it.
fn packaged(place: &Place, program: &str, module: &str) -> impl Fn(&[&str]) -> (i32, String) {
    let prefix = place.conf.with_file_name("prefix");
    let (program, module) = (prefix.join(program), prefix.join(module));
    for file in [&program, &module] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    copy_program(Path::new(env!("CARGO_BIN_EXE_lockstep")), &program);
    fs::copy(place.conf.with_file_name("lockstep.so"), module).unwrap();
    let root = place.root.clone();
    move |arguments| {
        let mut command = Command::new(&program);
        let output = command.args(arguments).arg("--root").arg(&root).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        (output.status.code().unwrap(), text)
    }
}

#[test]
fn where_there_is_no_configuration_one_is_made_and_goes_with_the_last_server() {
    for (index, (program, module)) in [
        ("lockstep", "lockstep.so"),
        ("bin/lockstep", "lib64/ossl-modules/lockstep.so"),
        (
            "bin/lockstep",
            "lib/x86_64-linux-gnu/ossl-modules/lockstep.so",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let place = Place::new(&format!("made-{index}"));
        fs::create_dir_all(place.root.join("etc/systemd/system")).unwrap();
        fs::create_dir_all(place.root.join("etc/nginx/modules-enabled")).unwrap();
        let before = place.tree();
        let lockstep = packaged(&place, program, module);

        let (code, text) = lockstep(&["install", "--server", "haproxy"]);
        assert_eq!(code, 0, "{text}");
        let conf = place.root.join("etc/lockstep/openssl.cnf");
        let made = fs::read_to_string(&conf).unwrap();
        assert!(made.contains(&format!("prefix/{module}")), "{made}");
        let unit = "etc/systemd/system/haproxy.service.d/zz-lockstep.conf";
        let unit = fs::read_to_string(place.root.join(unit)).unwrap();
        assert!(unit.ends_with("=OPENSSL_CONF=/etc/lockstep/openssl.cnf\n"));

        let (code, text) = lockstep(&["install", "--server", "nginx"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(&format!("keep {}", conf.display())), "{text}");
        let (code, text) = lockstep(&["uninstall", "--server", "haproxy"]);
        assert_eq!((code, conf.exists()), (0, true), "{text}");
        let (code, text) = lockstep(&["uninstall"]);
        assert_eq!((code, place.tree()), (0, before), "{text}");
        assert!(text.contains("restart nginx") && !text.contains("haproxy"));
    }
}

#[test]
fn settings_in_the_configuration_that_was_made_stay() {
    let place = Place::new("settings");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    lockstep(&["install", "--server", "haproxy"]);
    let conf = place.root.join("etc/lockstep/openssl.cnf");
    let changed = fs::read_to_string(&conf).unwrap() + "slots = 2\n";
    fs::write(&conf, &changed).unwrap();
    let (_, text) = lockstep(&["install", "--server", "haproxy"]);
    assert!(text.contains("nothing to do\n"), "{text}");
    let (code, text) = lockstep(&["uninstall"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("keep {}", conf.display())), "{text}");
    assert_eq!(fs::read_to_string(&conf).unwrap(), changed);
}

/// With one of them a server would run with the default in its place.
#[test]
fn settings_that_would_have_no_effect_are_not_installed() {
    let place = Place::new("refused-setting");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let install = || lockstep(&["install", "--server", "haproxy"]);
    install();
    let conf = place.root.join("etc/lockstep/openssl.cnf");
    let made = fs::read_to_string(&conf).unwrap();
    let theirs = made.replace("openssl_conf", "# Ours.\nopenssl_conf");
    for text in [&made, &theirs] {
        for (setting, why) in [
            ("slot = 4", "slot is not a setting; is slots meant?"),
            ("slots = none", "slots"),
            ("MinProtocol = TLSv1.2", "MinProtocol is not a setting"),
        ] {
            fs::write(&conf, format!("{text}{setting}\n")).unwrap();
            let before = place.tree();
            let (code, text) = install();
            assert_eq!((code, place.tree()), (1, before), "{text}");
            assert!(text.contains("would have no effect in /"), "{text}");
            let what = format!("/etc/lockstep/openssl.cnf: {why}");
            assert!(text.contains(&what), "{text}");
            let remedy = "/etc/lockstep/openssl.cnf, then run this again\n";
            assert!(
                text.contains("remedy: correct /") && text.ends_with(remedy),
                "{text}"
            );
        }
        fs::write(&conf, format!("{text}slots = 4\n")).unwrap();
        let (code, text) = install();
        assert_eq!(code, 0, "{text}");
    }
    let named = fs::read_to_string(&place.conf).unwrap() + "slot = 4\n";
    fs::write(&place.conf, named).unwrap();
    let (code, _, stderr) = place.run("install", "nginx", &[]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("is slots meant?"), "{stderr}");
}

/// Files that were made before had a section of TLS behind that of the module.
#[test]
fn settings_behind_a_section_of_tls_come_into_force() {
    let place = Place::new("behind-tls");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let conf = place.root.join("etc/lockstep/openssl.cnf");
    write(
        &conf,
        &made_before(&place.conf.with_file_name("lockstep.so")),
    );
    fs::set_permissions(&conf, Permissions::from_mode(0o644)).unwrap();
    let settings = "backend = none\nslots = 2\n";
    fs::write(&conf, fs::read_to_string(&conf).unwrap() + settings).unwrap();
    let value = |section: &str, name: &str| {
        let file = lockstep_conf::File::read(&conf).unwrap();
        file.value(section, name).map(str::to_owned)
    };
    assert_eq!(value("lockstep_tls", "slots").as_deref(), Some("2"));

    let (code, text) = lockstep(&["install", "--server", "haproxy"]);
    assert_eq!(code, 0, "{text}");
    let made = fs::read_to_string(&conf).unwrap();
    assert!(made.ends_with(settings), "{made}");
    assert_eq!(value("lockstep_module", "slots").as_deref(), Some("2"));
    assert_eq!(value("lockstep_module", "backend").as_deref(), Some("none"));
    assert_eq!(value("lockstep_tls", "slots"), None, "{made}");
}

/// A configuration with a section of TLS at its end, as this program made it before.
fn made_before(module: &Path) -> String {
    let tls = "[s]\nsystem_default = lockstep_tls\n[lockstep_tls]\nGroups = P-256\n";
    let body = format!(
        "{}{tls}# Settings of the module follow; they stay when this file is made anew.\n",
        loading(module, "ssl_conf = s")
    );
    let sum = Sha256::digest(&body);
    let sum: String = sum[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "# Written by `lockstep configuration`: /etc/ssl/openssl.cnf with lockstep loaded.\n\
         # Checksum of the lines from here to the settings: {sum}\n{body}"
    )
}

/// Where OpenSSL has its configuration, under a root.
fn system_configuration(root: &Path) -> PathBuf {
    let output = Command::new("openssl")
        .args(["version", "-d"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let directory = text.split('"').nth(1).unwrap();
    root.join(directory.trim_start_matches('/'))
        .join("openssl.cnf")
}

/// Writes a file and the directories above it.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const POLICY: &str = "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = policy\n\
                      [policy]\nMinProtocol = TLSv1.2\n";

#[test]
fn the_configuration_is_made_anew_and_its_settings_stay() {
    let place = Place::new("anew");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let system = system_configuration(&place.root);
    write(&system, POLICY);
    let install = || lockstep(&["install", "--server", "haproxy"]);
    let (code, text) = install();
    assert_eq!(code, 0, "{text}");
    let conf = place.root.join("etc/lockstep/openssl.cnf");
    let read = || fs::read_to_string(&conf).unwrap();
    let named = system.strip_prefix(&place.root).unwrap();
    let include = format!(".include = /{}\n", named.display());
    assert!(read().contains(&include), "{}", read());

    fs::write(&conf, read() + "slots = 2\n").unwrap();
    write(
        &system,
        &format!("{POLICY}[init]\nalg_section = evp\n[evp]\ndefault_properties = ?a=b\n"),
    );
    let (code, text) = install();
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains(&format!("write {}", conf.display())),
        "{text}"
    );
    assert!(
        read().contains("${evp::default_properties},?lockstep"),
        "{}",
        read()
    );
    assert!(read().ends_with("\nslots = 2\n"), "{}", read());
    let (_, text) = install();
    assert!(text.contains("nothing to do\n"), "{text}");

    // A file that somebody has changed belongs to them.
    let changed = loading(&place.conf.with_file_name("lockstep.so"), "");
    fs::write(&conf, &changed).unwrap();
    write(&system, POLICY);
    let (code, text) = install();
    assert_eq!((code, read()), (0, changed.clone()), "{text}");
    let (code, text) = lockstep(&["uninstall"]);
    assert_eq!((code, read()), (0, changed), "{text}");
}

#[test]
fn a_service_keeps_the_configuration_of_its_own() {
    let place = Place::new("own");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let own = place.root.join("etc/haproxy/openssl.cnf");
    write(&own, POLICY);
    let unit = place.root.join("usr/lib/systemd/system/haproxy.service");
    write(
        &unit,
        "[Service]\nEnvironment=OPENSSL_CONF=/etc/haproxy/openssl.cnf\n",
    );
    fs::create_dir_all(place.root.join("etc/systemd/system")).unwrap();
    let before = place.tree();
    for _ in 0..2 {
        let (code, text) = lockstep(&["install", "--server", "haproxy"]);
        assert_eq!(code, 0, "{text}");
    }
    let tree = place.tree();
    let text = |path: &str| tree[Path::new(path)].as_ref().unwrap();
    let made = text("etc/lockstep/haproxy.cnf");
    assert!(
        made.contains(".include = /etc/haproxy/openssl.cnf\n"),
        "{made}"
    );
    let drop_in = text("etc/systemd/system/haproxy.service.d/zz-lockstep.conf");
    assert!(
        drop_in.ends_with("=OPENSSL_CONF=/etc/lockstep/haproxy.cnf\n"),
        "{drop_in}"
    );
    assert!(!tree.contains_key(Path::new("etc/lockstep/openssl.cnf")));
    let (code, text) = lockstep(&["uninstall", "--server", "haproxy"]);
    assert_eq!((code, place.tree()), (0, before), "{text}");
}

/// `systemctl edit` writes `override.conf`, and the last drop-in by name holds.
#[test]
fn the_drop_in_comes_after_one_of_systemctl_edit() {
    let place = Place::new("override");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    write(&place.root.join("etc/ssl/other.cnf"), POLICY);
    let drop_ins = place.root.join("etc/systemd/system/haproxy.service.d");
    let theirs = "[Service]\nEnvironment=OPENSSL_CONF=/etc/ssl/other.cnf\n";
    write(&drop_ins.join("override.conf"), theirs);
    let (code, text) = lockstep(&["install", "--server", "haproxy"]);
    assert_eq!(code, 0, "{text}");
    let entries = fs::read_dir(&drop_ins).unwrap();
    let last = entries.map(|entry| entry.unwrap().path()).max().unwrap();
    let last = fs::read_to_string(last).unwrap();
    let line = "Environment=OPENSSL_CONF=/etc/lockstep/haproxy.cnf\n";
    assert!(last.ends_with(line), "{last}");
    let made = fs::read_to_string(place.root.join("etc/lockstep/haproxy.cnf")).unwrap();
    assert!(made.contains("/etc/ssl/other.cnf"), "{made}");
}

#[test]
fn where_something_goes_before_the_drop_in_nothing_is_done() {
    let place = Place::new("overridden");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let install = || lockstep(&["install", "--server", "haproxy"]);
    let at = |path: &str| place.root.join(path);
    write(&at("etc/ssl/other.cnf"), POLICY);
    let unit = "[Service]\nEnvironmentFile=-/etc/default/haproxy\n";
    write(&at("usr/lib/systemd/system/haproxy.service"), unit);
    let other = "OPENSSL_CONF=/etc/ssl/other.cnf\n";
    write(&at("etc/default/haproxy"), &format!("X=1\n{other}"));
    let before = place.tree();
    let (code, text) = install();
    assert_eq!((code, place.tree()), (1, before), "{text}");
    assert!(text.contains("etc/default/haproxy sets OPENSSL_CONF=/etc/ssl/other.cnf"));
    assert!(text.contains("remedy: remove that line"), "{text}");
    // As the remedy has it.
    write(&at("etc/default/haproxy"), "X=1\n");
    // A drop-in with a later name overrides it, even one for all services.
    for directory in ["service.d", "haproxy.service.d"] {
        let drop_in = at(&format!("etc/systemd/system/{directory}/zzz.conf"));
        write(&drop_in, &format!("[Service]\nEnvironment={other}"));
        let before = place.tree();
        let (code, text) = install();
        assert_eq!((code, place.tree()), (1, before), "{text}");
        let remedy = format!("remedy: rename {}", drop_in.display());
        assert!(text.contains(&remedy), "{text}");
        fs::rename(&drop_in, drop_in.with_file_name("50.conf")).unwrap();
    }
    let (code, text) = install();
    assert_eq!(code, 0, "{text}");
    let made = fs::read_to_string(at("etc/lockstep/haproxy.cnf")).unwrap();
    assert!(made.contains("/etc/ssl/other.cnf"), "{made}");
}

#[test]
fn a_host_with_fips_gets_no_configuration() {
    let place = Place::new("host-fips");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let fips = "openssl_conf = init\n[init]\nalg_section = evp\n[evp]\nfips_mode = yes\n";
    write(&system_configuration(&place.root), fips);
    let before = place.tree();
    let (code, text) = lockstep(&["install", "--server", "haproxy"]);
    assert_eq!((code, place.tree()), (1, before), "{text}");
    assert!(
        text.contains("turns FIPS on") && text.contains("remedy: "),
        "{text}"
    );
}

#[test]
fn files_of_others_are_left_alone_and_nothing_is_done() {
    let file = Path::new("etc/nginx/modules-enabled/99-lockstep.conf");
    let cases: [fn(&Path); 3] = [
        |path| fs::write(path, "env OPENSSL_CONF;\n").unwrap(),
        |path| {
            let ours = fs::read_to_string(path).unwrap_or_default();
            fs::write(path, ours + "env MINE;\n").unwrap();
        },
        |path| symlink("/dev/null", path).unwrap(),
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let place = Place::new(&format!("foreign-{number}"));
        if number == 1 {
            place.run("install", "nginx", &[]);
        }
        let path = place.root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        change(&path);
        let mut before = place.tree();
        let (code, stdout, stderr) = place.run("install", "nginx", &[]);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains("99-lockstep.conf is not as"), "{stderr}");
        assert!(stderr.contains("remedy:"), "{stderr}");
        assert_eq!(place.tree(), before);
        // All but that file is undone.
        let (code, _, stderr) = place.run("uninstall", "nginx", &[]);
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("99-lockstep.conf is not as"), "{stderr}");
        before.retain(|path, text| text.is_none() || path == file || path.starts_with("lib"));
        let after = place.tree();
        let files = |tree: &BTreeMap<PathBuf, Option<String>>| {
            let files = tree.iter().filter(|(_, text)| text.is_some());
            files.map(|(path, _)| path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(files(&after), files(&before));
    }
}

/// The package is removed by `lockstep uninstall`, and the module's file goes with it.
#[test]
fn a_drop_in_that_was_changed_keeps_no_other_server_from_being_uninstalled() {
    let place = Place::new("changed");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    for server in SERVERS {
        let (code, text) = lockstep(&["install", "--server", server]);
        assert_eq!(code, 0, "{text}");
    }
    let drop_in = Path::new("etc/systemd/system/haproxy.service.d/zz-lockstep.conf");
    let text = fs::read_to_string(place.root.join(drop_in)).unwrap();
    write(&place.root.join(drop_in), &format!("{text}LimitNOFILE=9\n"));
    let (code, text) = lockstep(&["uninstall"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("haproxy.service.d/zz-lockstep.conf is not as"),
        "{text}"
    );
    let remedy = "remedy: to switch lockstep off for haproxy, remove the file, or its lines about \
                  OPENSSL_CONF; then: systemctl daemon-reload && systemctl restart haproxy\n";
    assert!(text.ends_with(remedy), "{text}");
    // Of that server nothing else was undone.
    let restart = "bring this into effect: systemctl daemon-reload && systemctl restart";
    assert!(text.contains(&format!("{restart} nginx")), "{text}");
    assert!(!text.contains(&format!("{restart} haproxy")), "{text}");
    let mut left = place.tree();
    left.retain(|path, text| text.is_some() && path.starts_with("etc"));
    let left: Vec<&Path> = left.keys().map(PathBuf::as_path).collect();
    // It still names that configuration, which has the system's own in force.
    assert_eq!(left, [Path::new("etc/lockstep/openssl.cnf"), drop_in]);
    // As the remedy has it.
    fs::remove_file(place.root.join(drop_in)).unwrap();
    let (code, text) = lockstep(&["uninstall", "--server", "haproxy"]);
    assert_eq!(code, 0, "{text}");
    assert!(!place.root.join("etc/lockstep").exists());
}

#[test]
fn a_module_that_others_can_change_is_refused() {
    let place = Place::new("writable");
    for file in ["lockstep.so", "openssl.cnf", "", ".."] {
        let path = place.conf.with_file_name(file);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, Permissions::from_mode(mode | 0o002)).unwrap();
        let (code, _, stderr) = place.run("install", "haproxy", &[]);
        assert_eq!(code, 1);
        assert!(stderr.contains("others can change"), "{stderr}");
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(place.run("install", "haproxy", &[]).0, 0);
}

#[test]
fn a_module_behind_a_link_is_refused() {
    let place = Place::new("link");
    let module = place.conf.with_file_name("lockstep.so");
    let moved = place.conf.with_file_name("real.so");
    fs::rename(&module, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &module).unwrap();
    let (code, _, stderr) = place.run("install", "haproxy", &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("leads through links"), "{stderr}");
}

#[test]
fn a_module_that_services_do_not_see_is_refused() {
    let places: Vec<Place> = ["/tmp", "/var/tmp"]
        .iter()
        .map(|above| Place::at(Path::new(above), "hidden"))
        .collect();
    for place in &places {
        let (code, stdout, stderr) = place.run("install", "nginx", &["--dry-run"]);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains("PrivateTmp"), "{stderr}");
        assert!(stderr.contains("remedy: keep it elsewhere"), "{stderr}");
    }
    // By a link from elsewhere it is the same place,
    let link = Place::new("hidden-link");
    let other = link.conf.with_file_name("other");
    symlink(places[0].conf.parent().unwrap(), &other).unwrap();
    let conf = other.join("openssl.cnf");
    let (code, _, stderr) = link.run("install", "nginx", &["--conf", conf.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(stderr.contains("PrivateTmp"), "{stderr}");
    // and a module there is as bad as a configuration.
    fs::write(
        &link.conf,
        loading(&places[1].conf.with_file_name("lockstep.so"), ""),
    )
    .unwrap();
    let (code, _, stderr) = link.run("install", "nginx", &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("/var/tmp/"), "{stderr}");
}

#[test]
fn a_module_in_a_home_directory_is_warned_about() {
    let Some(home) =
        std::env::home_dir().filter(|home| ["/root", "/home"].iter().any(|h| home.starts_with(h)))
    else {
        println!("skipped: no home directory");
        return;
    };
    let place = Place::at(&home, "home");
    let (code, stdout, stderr) = place.run("install", "nginx", &["--dry-run"]);
    assert!(
        stderr.contains("warning: ") && stderr.contains("ProtectHome"),
        "{stderr}"
    );
    // Others may be able to write above it.
    assert!(
        code == 0 && stdout.contains("write ") || stderr.contains("others can change"),
        "{stderr}"
    );
}

#[test]
fn a_system_with_fips_is_refused() {
    let place = Place::new("fips");
    let module = place.conf.with_file_name("lockstep.so");
    let included = place.conf.with_file_name("fips.cnf");
    fs::write(&included, "[evp]\nfips_mode = yes\n").unwrap();
    let more = format!("alg_section = evp\n.include = {}", included.display());
    fs::write(&place.conf, loading(&module, &more)).unwrap();
    let (code, stdout, stderr) = place.run("install", "haproxy", &[]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("openssl.cnf turns FIPS on"), "{stderr}");
    assert!(
        stderr.contains("`fips_mode = yes` in its section [evp]"),
        "{stderr}"
    );
}

#[test]
fn a_configuration_that_loads_nothing_of_ours_is_refused() {
    let place = Place::new("nothing");
    fs::write(&place.conf, "openssl_conf = none\n").unwrap();
    let (code, _, stderr) = place.run("install", "haproxy", &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("names no module lockstep.so"), "{stderr}");
}

/// A service that is not known gets its environment, and nothing else.
#[test]
fn any_unit_can_load_the_module() {
    let place = Place::new("any");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let at = |path: &str| place.root.join(path);
    let unit = |name: &str, text: &str| write(&at("lib/systemd/system").join(name), text);
    unit(
        "mosquitto.service",
        "[Service]\nExecStart=/usr/sbin/mosquitto\n",
    );
    unit(
        "postgresql.service",
        "[Service]\nType=oneshot\nExecStart=/bin/true\n",
    );
    let own = "[Service]\nEnvironment=OPENSSL_CONF=/etc/ssl/own.cnf\nExecStart=-/usr/bin/pg %i\n";
    unit("postgresql@.service", own);
    unit(
        "apache2.service",
        "[Service]\nExecStart=/usr/sbin/apachectl start\n",
    );
    write(&at("etc/ssl/own.cnf"), POLICY);
    fs::create_dir_all(at("etc/systemd/system")).unwrap();
    let link = |name: &str, to: &str| symlink(to, at("etc/systemd/system").join(name)).unwrap();
    link("httpd.service", "/lib/systemd/system/apache2.service");
    link(
        "cluster@.service",
        "/lib/systemd/system/postgresql@.service",
    );
    link("masked.service", "/dev/null");
    let tree = || {
        let mut tree = place.tree();
        tree.retain(|path, _| !path.starts_with("etc/systemd/system") || !at_link(path));
        tree
    };
    let before = tree();
    let drop_in = |unit: &str| {
        let path = format!("etc/systemd/system/{unit}.service.d/zz-lockstep.conf");
        fs::read_to_string(at(&path)).unwrap_or_default()
    };
    for (name, unit, conf, restart) in [
        ("mosquitto", "mosquitto", "openssl", "restart mosquitto\n"),
        (
            "mosquitto.service",
            "mosquitto",
            "openssl",
            "restart mosquitto\n",
        ),
        (
            "postgresql@15-main",
            "postgresql@15-main",
            "postgresql@15-main",
            "restart postgresql@15-main\n",
        ),
        (
            "postgresql@",
            "postgresql@",
            "postgresql@",
            "restart 'postgresql@*'\n",
        ),
        (
            "cluster@15-main",
            "postgresql@15-main",
            "postgresql@15-main",
            "restart postgresql@15-main\n",
        ),
        ("httpd", "apache2", "openssl", "restart apache2\n"),
    ] {
        let (code, text) = lockstep(&["install", "--service", name]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(restart), "{text}");
        let there = drop_in(unit);
        let line = format!("[Service]\nEnvironment=OPENSSL_CONF=/etc/lockstep/{conf}.cnf\n");
        assert!(there.ends_with(&line), "{there}");
        // A configuration that the unit names stays in force.
        if conf != "openssl" {
            let made = fs::read_to_string(at("etc/lockstep").join(format!("{conf}.cnf"))).unwrap();
            assert!(made.contains(".include = /etc/ssl/own.cnf\n"), "{made}");
        }
        let (code, text) = lockstep(&["install", "--service", name]);
        assert!(code == 0 && text.contains("nothing to do\n"), "{text}");
        let (code, text) = lockstep(&["uninstall", "--service", name]);
        assert_eq!((code, tree()), (0, before.clone()), "{text}");
    }
    for (name, status, why) in [
        ("absent", 1, "there is no unit absent.service"),
        ("postgresql", 1, "postgresql@ for all of them"),
        ("masked", 1, "masked.service is masked"),
        ("../x", 2, "letters, digits"),
        ("a/b", 2, "letters, digits"),
        ("a\n[Service]", 2, "letters, digits"),
        ("a%i", 2, "letters, digits"),
        ("a b", 2, "letters, digits"),
        ("..", 2, "letters, digits"),
        ("", 2, "letters, digits"),
        (".service", 2, "letters, digits"),
        ("openssl", 2, "letters, digits"),
    ] {
        let (code, text) = lockstep(&["install", &format!("--service={name}")]);
        assert_eq!((code, tree()), (status, before.clone()), "{text}");
        assert!(text.contains(why), "{text}");
    }
    // Without a name all go, and another's drop-in stays.
    for name in ["mosquitto", "postgresql@15-main", "apache"] {
        let (code, text) = lockstep(&["install", "--service", name]);
        assert_eq!(code, 0, "{text}");
    }
    // A unit may go before its drop-in.
    fs::remove_file(at("lib/systemd/system/mosquitto.service")).unwrap();
    let foreign = at("etc/systemd/system/other.service.d/zz-lockstep.conf");
    write(&foreign, "[Service]\n");
    let (code, text) = lockstep(&["uninstall"]);
    assert!(
        code == 1 && text.contains("other.service.d/zz-lockstep.conf is not as"),
        "{text}"
    );
    fs::remove_dir_all(foreign.parent().unwrap()).unwrap();
    unit(
        "mosquitto.service",
        "[Service]\nExecStart=/usr/sbin/mosquitto\n",
    );
    assert_eq!(tree(), before);
}

/// Whether it is a link to a unit, whose target is not under the root.
fn at_link(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "service")
}

/// Whether this OpenSSL has the hybrids without the module.
fn has_hybrids_of_its_own() -> bool {
    let version = Command::new("openssl").arg("version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let old = ["3.0.", "3.1.", "3.2.", "3.3.", "3.4."];
    let has_them = !old.iter().any(|old| version.contains(old));
    if has_them {
        println!("skipped: this OpenSSL has the hybrids itself");
    }
    has_them
}

/// An OpenSSL that lacks the hybrids has them by the module, so that a server which names one needs
/// the module to start.
#[test]
fn a_server_that_names_a_hybrid_keeps_the_module() {
    if has_hybrids_of_its_own() {
        return;
    }
    let place = Place::new("hybrid");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let conf = place.root.join("etc/lockstep/openssl.cnf");
    for (server, directive) in [
        (
            "haproxy",
            "`global`: ssl-default-bind-curves X25519MLKEM768:X25519:",
        ),
        ("apache", "SSLOpenSSLConfCmd Groups X25519MLKEM768:X25519:"),
        ("nginx", "ssl_ecdh_curve X25519MLKEM768:X25519:"),
        ("stunnel", "curves = X25519MLKEM768:X25519:"),
    ] {
        let (code, text) = lockstep(&["install", "--server", server]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(directive), "{text}");
        assert!(
            text.contains("starts only where it loads the module"),
            "{text}"
        );
        // No line that other programs read is about groups.
        let made = fs::read_to_string(&conf).unwrap();
        assert!(
            !made.contains("Groups") && !made.contains("MLKEM"),
            "{made}"
        );
    }
    let site = place.root.join("etc/nginx/conf.d/site.conf");
    write(&site, "ssl_ecdh_curve x25519mlkem768:X25519;\n");
    let (code, text) = lockstep(&["install", "--server", "nginx"]);
    assert!(code == 0 && !text.contains("post-quantum"), "{text}");
    let (code, text) = lockstep(&["uninstall"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("conf.d/site.conf names the group"), "{text}");
    let left = place.tree();
    let of_units = left
        .iter()
        .filter(|(path, text)| path.ends_with("zz-lockstep.conf") && text.is_some());
    let units: Vec<_> = of_units.map(|(path, _)| path.clone()).collect();
    assert_eq!(
        units,
        [Path::new(
            "etc/systemd/system/nginx.service.d/zz-lockstep.conf"
        )]
    );
    assert!(conf.exists());
    // As the remedy has it.
    write(&site, "ssl_ecdh_curve auto;\n");
    let (code, text) = lockstep(&["uninstall"]);
    assert_eq!((code, conf.exists()), (0, false), "{text}");
    // Where a script of init has it load the module, there is no drop-in.
    write(&site, "ssl_ecdh_curve X25519MLKEM768;\n");
    let default = place.root.join("etc/default/nginx");
    write(&default, "export OPENSSL_CONF=/etc/lockstep/openssl.cnf\n");
    let (code, text) = lockstep(&["uninstall"]);
    assert!(code == 3 && text.contains("names the group"), "{text}");
}

/// The packages' scripts keep the package by this status, whatever else goes wrong.
#[test]
fn a_removal_that_fails_does_not_hide_that_a_server_needs_the_module() {
    if has_hybrids_of_its_own() {
        return;
    }
    let place = Place::new("fails");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    for server in ["haproxy", "nginx"] {
        let (code, text) = lockstep(&["install", "--server", server]);
        assert_eq!(code, 0, "{text}");
    }
    let site = place.root.join("etc/nginx/conf.d/site.conf");
    write(&site, "ssl_ecdh_curve X25519MLKEM768;\n");
    // Not even root removes a file that something is mounted on.
    let drop_in = "etc/systemd/system/haproxy.service.d/zz-lockstep.conf";
    let drop_in = place.root.join(drop_in);
    let program = place.conf.with_file_name("prefix").join("lockstep");
    let enter = "mount --bind \"$1\" \"$1\" && exec \"$2\" uninstall --root \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", enter, "sh"]);
    let output = command.args([&drop_in, &program, &place.root]).output();
    let output = output.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    if ["unshare failed", "unshare: ", "mount: "]
        .iter()
        .any(|why| text.contains(why))
    {
        println!("skipped: this user has no mount namespace: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("names the group"), "{text}");
    assert!(text.contains("what was done before was undone"), "{text}");
}

/// A script of init, or an administrator, may name it.
#[test]
fn a_configuration_that_an_environment_names_stays() {
    let place = Place::new("named");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let (code, text) = lockstep(&["install", "--server", "haproxy"]);
    assert_eq!(code, 0, "{text}");
    let conf = place.root.join("etc/lockstep/openssl.cnf");
    let default = place.root.join("etc/default/haproxy");
    write(&default, "export OPENSSL_CONF=/etc/lockstep/openssl.cnf\n");
    let (code, text) = lockstep(&["uninstall"]);
    assert_eq!((code, conf.exists()), (0, true), "{text}");
    assert!(text.contains("etc/default/haproxy names "), "{text}");
    fs::remove_file(&default).unwrap();
    let (code, text) = lockstep(&["uninstall", "--server", "haproxy"]);
    assert_eq!((code, conf.exists()), (0, false), "{text}");
}

/// Runs the command where `/etc` has changes, and no systemd runs.
fn without_systemd(place: &Place, words: &[&str]) -> Option<(i32, String)> {
    let above = place.conf.with_file_name("");
    for part in ["etc", "work", "run"] {
        fs::create_dir_all(above.join(part)).unwrap();
    }
    let mut command = Command::new("unshare");
    let enter = "mount -t overlay overlay -o lowerdir=/etc,upperdir=$1/etc,workdir=$1/work /etc && \
                 mount --bind $1/run /run && shift && exec \"$@\"";
    command
        .args(["--mount", "sh", "-c", enter, "sh"])
        .arg(above);
    let output = command
        .args(words)
        .env_remove("OPENSSL_CONF")
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    if ["unshare failed", "unshare: ", "mount: "]
        .iter()
        .any(|why| text.contains(why))
    {
        println!("skipped: this user has no mount namespace: {text}");
        return None;
    }
    Some((output.status.code().unwrap(), text))
}

/// In a container, or with another init, a drop-in alone has no effect.
#[test]
fn without_systemd_the_command_says_what_remains() {
    let place = Place::new("init");
    let prefix = place.conf.with_file_name("prefix");
    drop(packaged(&place, "lockstep", "lockstep.so"));
    let program = prefix.join("lockstep");
    let conf = place.conf.to_str().unwrap();
    let install = |server| {
        let words = [
            program.to_str().unwrap(),
            "install",
            "--conf",
            conf,
            "--server",
            server,
        ];
        without_systemd(&place, &words)
    };
    let etc = |path: &str| place.conf.with_file_name("etc").join(path);
    write(
        &etc("init.d/haproxy"),
        "#!/bin/sh\n. /etc/default/haproxy\n",
    );
    write(&etc("default/haproxy"), "X=1\n");
    let Some((code, text)) = install("haproxy") else {
        return;
    };
    assert_eq!(code, 1, "{text}");
    let line = format!("export OPENSSL_CONF={conf}");
    let remedy = format!("remedy: add the line `{line}` to /etc/default/haproxy");
    assert!(
        text.contains(&remedy) && text.contains("/etc/init.d/haproxy restart"),
        "{text}"
    );
    assert!(text.contains("does not load lockstep yet"), "{text}");
    assert!(
        !text.contains("systemctl") && !etc("systemd").exists(),
        "{text}"
    );
    // A restart would not bring lockstep.
    assert!(!text.contains("to bring this into effect"), "{text}");
    write(&etc("default/haproxy"), &format!("X=1\n{line}\n"));
    let (code, text) = install("haproxy").unwrap();
    assert_eq!(code, 0, "{text}");
    // Where nothing is known to start it.
    write(&etc("init.d/nginx"), "");
    fs::remove_file(etc("init.d/nginx")).unwrap();
    let words = [
        "env",
        &format!("OPENSSL_CONF={conf}"),
        program.to_str().unwrap(),
        "install",
        "--conf",
        conf,
        "--server",
        "nginx",
    ];
    let (code, text) = without_systemd(&place, &words).unwrap();
    assert_eq!(code, 0, "{text}");
}

/// Returns doctor's report on a server that was started by hand: name of the check, verdict, text
/// and remedy. Only that server runs, after a script has changed /etc.
fn doctor_of(
    place: &Place,
    (server, environment): (&str, &str),
    before: &str,
) -> Option<BTreeMap<String, [String; 3]>> {
    let program = place.conf.with_file_name("bin").join(server);
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    copy_program(Path::new("/bin/sleep"), &program);
    let script = format!(
        "{before}\nenv {environment} {} 1000 > /dev/null 2>&1 & pid=$!\n\
         until grep -qx {server} /proc/$pid/comm; do /bin/sleep 0.01; done\n\
         {} doctor --json --service {server} || true\nkill $pid",
        program.display(),
        env!("CARGO_BIN_EXE_lockstep"),
    );
    let own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let (code, text) = without_systemd(place, &[&own[..], &["sh", "-euc", &script]].concat())?;
    assert_eq!(code, 0, "{text}");
    let document: serde_json::Value = serde_json::from_str(&text).expect(&text);
    let word = |finding: &serde_json::Value, name: &str| {
        finding[name].as_str().unwrap_or_default().to_owned()
    };
    let findings = document["findings"].as_array().unwrap().iter();
    let parts = ["verdict", "what", "remedy"];
    let of = |finding| {
        (
            word(finding, "check"),
            parts.map(|part| word(finding, part)),
        )
    };
    Some(findings.map(of).collect())
}

/// Where systemd is not process 1, doctor names the drop-in that nothing reads, and no remedy needs
/// systemd.
#[test]
fn without_systemd_doctor_names_the_cause_and_what_can_be_done() {
    let place = Place::new("cause");
    let conf = place.conf.to_str().unwrap();
    let etc = |path: &str| place.conf.with_file_name("etc").join(path);
    for server in ["haproxy", "lockstep-other"] {
        let drop_in = format!("systemd/system/{server}.service.d/zz-lockstep.conf");
        write(
            &etc(&drop_in),
            &format!("[Service]\nEnvironment=OPENSSL_CONF={conf}\n"),
        );
    }
    // A container: nothing is known that starts the server.
    let bare = "rm -f /etc/init.d/haproxy /etc/default/haproxy";
    let script = "mkdir -p /etc/init.d /etc/default; echo . /etc/default/haproxy \
                  > /etc/init.d/haproxy; echo X=1 > /etc/default/haproxy";
    let line = format!("`export OPENSSL_CONF={conf}` to /etc/default/haproxy, which ");
    let by_hand = |server: &str| format!("start {server} with OPENSSL_CONF={conf} in its environ");
    for (server, before, expected) in [
        ("haproxy", bare, [by_hand("haproxy"), String::new()]),
        (
            "haproxy",
            script,
            [line, "/etc/init.d/haproxy restart".to_owned()],
        ),
        ("lockstep-other", "true", [by_hand("it"), String::new()]),
    ] {
        let Some(found) = doctor_of(&place, (server, "X=1"), before) else {
            return;
        };
        let [verdict, what, remedy] = found.get("environment").expect("the cause");
        assert_eq!(verdict, "failed", "{found:?}");
        let cause = format!(
            "runs without OPENSSL_CONF. A drop-in sets it to {conf}, but systemd does not run here"
        );
        assert!(what.contains(&cause), "{what}");
        for part in expected {
            assert!(remedy.contains(&part), "{remedy}");
        }
        let remedies: Vec<_> = found.values().map(|[.., remedy]| remedy).collect();
        let by_systemd = |remedy: &&&String| remedy.contains("systemctl");
        assert_eq!(remedies.iter().find(by_systemd), None);
    }
    // Its environment is in force.
    let environment = format!("OPENSSL_CONF={conf}");
    let found = doctor_of(&place, ("haproxy", &environment), bare).expect("as above");
    let [verdict, what, _] = &found["configuration"];
    assert_eq!(verdict, "ok", "{found:?}");
    assert!(what.contains(conf), "{what}");
    // The same server where systemd runs, and has not started it anew.
    let booted = "mkdir -p /run/systemd/system";
    let found = doctor_of(&place, ("haproxy", "X=1"), booted).expect("as above");
    let [_, what, remedy] = found.get("environment").expect("the cause");
    assert!(
        what.contains("it was started before the unit had"),
        "{what}"
    );
    assert!(
        remedy.contains("systemctl restart haproxy.service"),
        "{remedy}"
    );
}

/// Debian's unit, of 12 and 13, with a limit that is known.
const HAPROXY_UNIT: &str = "[Service]\n\
    EnvironmentFile=-/etc/default/haproxy\nEnvironmentFile=-/etc/sysconfig/haproxy\n\
    Environment=\"CONFIG=/etc/haproxy/haproxy.cfg\" \"PIDFILE=/run/haproxy.pid\" \
    \"EXTRAOPTS=-S /run/haproxy-master.sock\"\nLimitNOFILE=20000\n\
    ExecStart=/usr/sbin/haproxy -Ws -f $CONFIG -p $PIDFILE $EXTRAOPTS\n";
const GLOBAL: &str = "etc/lockstep/haproxy-global.cfg";
const GLOBAL_DROP_IN: &str = "etc/systemd/system/haproxy.service.d/00-lockstep-global.conf";

#[test]
fn haproxy_gets_its_lines_by_a_file_of_its_own_unless_it_has_them() {
    let place = Place::new("lines");
    let at = |path: &str| place.root.join(path);
    let unit = at("lib/systemd/system/haproxy.service");
    write(&unit, HAPROXY_UNIT);
    let (cfg, default) = (at("etc/haproxy/haproxy.cfg"), at("etc/default/haproxy"));
    let plain = "global\n maxconn 2000\nfrontend a\n bind :443\n";
    write(&cfg, plain);
    write(&default, "#EXTRAOPTS=\"-de\"\n");
    fs::create_dir_all(at("etc/systemd/system")).unwrap();
    let before = place.tree();
    let install = || {
        let (code, stdout, stderr) = place.run("install", "haproxy", &[]);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let files = || {
        let tree = place.tree();
        [GLOBAL, GLOBAL_DROP_IN].map(|path| tree.get(Path::new(path)).cloned().flatten())
    };
    let is_empty = |files: [Option<String>; 2]| match files {
        [Some(file), None] => file.lines().count() == 2 && file.lines().all(|l| l.starts_with('#')),
        _ => false,
    };
    let header = "# Written by `lockstep install`; `lockstep uninstall --server haproxy` removes \
                  it.\n";
    let lines =
        format!("{header}global\n    ssl-mode-async\n    maxpipes 1000\n    no strict-limits\n");
    let options = "-S /run/haproxy-master.sock -f /etc/lockstep/haproxy-global.cfg";
    let drop_in = format!("{header}[Service]\nEnvironment=\"EXTRAOPTS={options}\"\n");
    let text = install();
    assert_eq!(files(), [Some(lines.clone()), Some(drop_in)]);
    assert!(!text.contains("also needed"), "{text}");
    assert!(install().ends_with("nothing to do\n"));
    assert!(
        GLOBAL_DROP_IN < "etc/systemd/system/haproxy.service.d/override.conf",
        "what `systemctl edit` sets later would be hidden"
    );

    // Async mode would keep HAProxy 3.5 from starting.
    write(
        &cfg,
        &format!("{plain}global\n tune.fd.tables per-thread-group\n"),
    );
    let text = install();
    assert_eq!(files(), [None, None], "{text}");
    let to_do = "write `tune.fd.tables shared` there";
    assert!(text.contains(to_do), "{text}");
    let text = install();
    assert!(
        text.contains("nothing to do\n") && text.contains(to_do),
        "{text}"
    );
    // A comment in another encoding hides no line.
    let latin = b"# f\xfcr alle\nglobal\n tune.fd.tables per-thread-group\n";
    fs::write(&cfg, latin).unwrap();
    let text = install();
    assert!(files() == [None, None] && text.contains(to_do), "{text}");
    // More descriptors than the unit allows, or than HAProxy can count; and numbers that HAProxy
    // computes itself.
    for (numbers, also) in [
        (
            "maxconn 20000",
            "with `maxconn 20000` of haproxy.cfg there are too few",
        ),
        (
            "maxconn 4294967297",
            "with `maxconn 4294967297` of haproxy.cfg",
        ),
    ] {
        write(&cfg, &format!("global\n {numbers}\n"));
        let text = install();
        assert!(files() == [None, None] && text.contains(also), "{text}");
    }
    write(&cfg, "global\n maxconn 0\n");
    let text = install();
    let by_hand = "haproxy.cfg needs in its section `global`: ssl-mode-async, and maxpipes with";
    assert!(files() == [None, None] && text.contains(by_hand), "{text}");
    for zero in ["ulimit-n 0", "maxpipes 0"] {
        write(&cfg, &format!("global\n maxconn 2000\n {zero}\n"));
        let text = install();
        let [file, _] = files();
        let file = file.unwrap_or_else(|| panic!("{text}"));
        assert!(
            file.contains("maxpipes ") && !file.contains("maxpipes 0\n"),
            "{file}"
        );
    }
    // Lines of the administrator are not repeated.
    let own = format!("{plain}global\n ssl-mode-async\n maxpipes 1000\n");
    write(&cfg, &own);
    install();
    assert!(install().ends_with("nothing to do\n"));
    assert_eq!(files(), [None, None]);

    // The administrator's own options stay where they are, and get one more by hand.
    write(&cfg, plain);
    let set = |options: &str| format!("EXTRAOPTS=\"{options}\"\n");
    let override_ = at("etc/systemd/system/haproxy.service.d/override.conf");
    for (file, before) in [(&default, ""), (&override_, "[Service]\nEnvironment=")] {
        let of = |options: &str| match before {
            "" => set(options),
            before => format!("{before}\"EXTRAOPTS={options}\"\n"),
        };
        write(file, &of("-de -m 16"));
        place.run("uninstall", "haproxy", &[]);
        let text = install();
        assert_eq!(files(), [Some(lines.clone()), None], "{text}");
        let step = format!(
            "also needed: {} sets EXTRAOPTS for haproxy.service, and that is kept: add `-f /{GLOBAL}`",
            file.display()
        );
        assert!(text.contains(&step), "{text}");
        // Done so, it is named, and stays.
        write(file, &of(&format!("-de -m 16 -f /{GLOBAL}")));
        assert!(install().ends_with("nothing to do\n"));
        let (code, text, stderr) = place.run("uninstall", "haproxy", &[]);
        assert!(code == 0 && is_empty(files()), "{text}{stderr}");
        let step = format!("{} names /{GLOBAL}, which stays", file.display());
        let is_told = text.contains(&step) && text.contains("Remove `-f ");
        assert!(is_told, "{text}");
        assert!(install().contains("write "));
        // HAProxy 3.5 would not start with the lines, nor any without the file. A comment in
        // another encoding hides no name of it.
        write(
            &cfg,
            &format!("{plain}global\n tune.fd.tables per-thread-group\n"),
        );
        let named = of(&format!("-de -m 16 -f /{GLOBAL}"));
        fs::write(file, [b"# f\xfcr\n", named.as_bytes()].concat()).unwrap();
        let text = install();
        assert!(is_empty(files()), "{text}");
        write(&cfg, plain);
        let (code, text, stderr) = place.run("uninstall", "haproxy", &[]);
        assert!(code == 0 && is_empty(files()), "{text}{stderr}");
        write(file, &of("-de -m 16"));
        let (code, text, stderr) = place.run("uninstall", "haproxy", &[]);
        assert_eq!((code, files()), (0, [None, None]), "{text}{stderr}");
        fs::remove_file(file).unwrap();
    }
    // A unit that reads no further options, as elsewhere than on Debian.
    let other = HAPROXY_UNIT.replace("$EXTRAOPTS", "$OPTIONS");
    write(&unit, &other);
    let text = install();
    assert_eq!(files(), [None, None], "{text}");
    let by_hand =
        "also needed: haproxy.cfg needs in its section `global`: ssl-mode-async, maxpipes";
    assert!(text.contains(by_hand), "{text}");
    write(&unit, HAPROXY_UNIT);
    // A service that does not see the files is left alone.
    place.run("uninstall", "haproxy", &[]);
    let tree = place.tree();
    for (setting, is_hidden) in [
        ("RootDirectory=/srv/jail\n", true),
        ("RootImage=/srv/image\n", true),
        ("TemporaryFileSystem=/var /dev:ro\n", true),
        ("InaccessiblePaths=-/dev/shm\n", true),
        (
            "RootDirectory=/srv/jail\nBindReadOnlyPaths=/dev/shm /etc/lockstep\n",
            false,
        ),
        ("RootDirectory=/\nTemporaryFileSystem=/var\n", false),
    ] {
        write(&override_, &format!("[Service]\n{setting}"));
        let (code, text, stderr) = place.run("install", "haproxy", &[]);
        let said = stderr.contains("does not find") && stderr.contains("nothing was done");
        assert_eq!(
            (code != 0, said),
            (is_hidden, is_hidden),
            "{setting}{text}{stderr}"
        );
        place.run("uninstall", "haproxy", &[]);
        write(&override_, "");
        fs::remove_file(&override_).unwrap();
        let _ = fs::remove_dir(override_.parent().unwrap());
        assert_eq!(place.tree(), tree, "{setting}");
    }
    // The file alone may be hidden.
    write(&override_, "[Service]\nInaccessiblePaths=/etc/lockstep\n");
    let text = install();
    assert!(files() == [None, None] && text.contains(by_hand), "{text}");
    fs::remove_file(&override_).unwrap();
    // A file that somebody has changed is theirs, and stays in force with its drop-in.
    place.run("uninstall", "haproxy", &[]);
    install();
    write(&at(GLOBAL), &format!("{lines}    user root\n"));
    let (code, _, stderr) = place.run("install", "haproxy", &[]);
    assert!(
        code == 1 && stderr.contains("haproxy-global.cfg is not as"),
        "{stderr}"
    );
    write(&at(GLOBAL), &lines);
    write(&default, "#EXTRAOPTS=\"-de\"\n");
    let (code, text, stderr) = place.run("uninstall", "haproxy", &[]);
    assert_eq!((code, place.tree()), (0, before), "{text}{stderr}");
}

/// HAProxy reads the file when it reloads, too, and does not without it.
#[test]
fn a_running_haproxy_keeps_the_file_that_it_was_started_with() {
    if Command::new("haproxy").arg("-v").output().is_err() {
        println!("skipped: haproxy is not installed (`cargo xtask setup` installs it)");
        return;
    }
    let place = Place::new("reloads");
    drop(packaged(&place, "lockstep", "lockstep.so"));
    let lockstep = place.conf.with_file_name("prefix/lockstep");
    let (lockstep, conf) = (lockstep.display(), place.conf.display());
    let cfg = place.conf.with_file_name("etc/haproxy/haproxy.cfg");
    let site = "frontend a\n mode http\n timeout client 1s\n bind unix@/run/s\n";
    write(&cfg, &format!("global\n maxconn 100\n{site}"));
    let script = format!(
        "trap 'kill $(cat /run/pid) || true' EXIT\n\
         ! flock /run/lockstep-install.lock timeout 2 \
         {lockstep} install --server haproxy --conf {conf}\n\
         test ! -e /{GLOBAL}\n\
         {lockstep} install --server haproxy --conf {conf} || true\n\
         file=/{GLOBAL}\ncat $file\n\
         cp /etc/haproxy/haproxy.cfg /run/good\n\
         echo ' bogus' >> /etc/haproxy/haproxy.cfg\n\
         if {lockstep} install --server haproxy --conf {conf} > /run/said 2>&1; then exit 9; fi\n\
         grep 'haproxy refuses its configuration' /run/said\n\
         grep ssl-mode-async $file\ncp /run/good /etc/haproxy/haproxy.cfg\n\
         haproxy -W -D -f /etc/haproxy/haproxy.cfg -f $file -p /run/pid\n\
         {lockstep} uninstall --server haproxy\n\
         test -e $file && ! grep async $file\n\
         haproxy -c -f /etc/haproxy/haproxy.cfg -f $file\n\
         for i in $(seq 100); do test -s /run/pid && break; sleep 0.1; done\n\
         worker=$(pgrep -P $(cat /run/pid))\nkill -USR2 $(cat /run/pid)\n\
         for i in $(seq 200); do sleep 0.1; kill -0 $worker || break; done\n\
         ! kill -0 $worker\n\
         pid=$(cat /run/pid)\nkill $pid\n\
         for i in $(seq 200); do sleep 0.1; kill -0 $pid || break; done\n\
         {lockstep} uninstall --server haproxy\ntest ! -e $file"
    );
    let Some((code, text)) = without_systemd(&place, &["sh", "-exc", &script]) else {
        return;
    };
    assert_eq!(code, 0, "{text}");
    let lines = "    ssl-mode-async\n    maxpipes 50\n    no strict-limits\n";
    assert!(text.contains(lines), "{text}");
    assert!(!text.contains("already specified"), "{text}");
}

/// Debian's haproxy.cfg has no maxconn, and HAProxy takes all file descriptors that it may have.
#[test]
fn numbers_for_haproxy_are_ones_that_it_starts_with() {
    if Command::new("haproxy").arg("-v").output().is_err() {
        println!("skipped: haproxy is not installed (`cargo xtask setup` installs it)");
        return;
    }
    let place = Place::new("limits");
    drop(packaged(&place, "lockstep", "lockstep.so"));
    let program = place.conf.with_file_name("prefix/lockstep");
    let conf = place.conf.to_str().unwrap();
    let cfg = place.conf.with_file_name("etc/haproxy/haproxy.cfg");
    let number = |text: &str, name: &str| -> u64 {
        let rest = text
            .split_once(name)
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .1;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let site = "frontend a\n mode http\n timeout client 1s\n bind unix@/run/s\n";
    // The connections that an HAProxy takes which runs with these lines.
    let maxconn = |global: &str, limit: u64| {
        let stats = "stats socket /run/admin";
        write(&cfg, &format!("global\n {stats}\n{global}{site}"));
        let start = format!(
            "ulimit -n {limit}; setpriv --bounding-set -sys_resource --inh-caps -sys_resource \
             haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/pid"
        );
        let (code, text) = without_systemd(&place, &["sh", "-c", &start]).unwrap();
        assert_eq!(code, 0, "{text}");
        let at = |name: &str| place.conf.with_file_name("run").join(name);
        let asked = UnixStream::connect(at("admin")).and_then(|mut socket| {
            socket.write_all(b"show info\n")?;
            io::read_to_string(socket)
        });
        let pid = fs::read_to_string(at("pid")).unwrap();
        let killed = Command::new("kill").arg(pid.trim()).status().unwrap();
        assert!(killed.success());
        number(&asked.unwrap(), "\nMaxconn: ")
    };
    for (limit, global) in [
        (4000, ""),
        (4000, " maxconn 2000\n"),
        (4000, " maxconn 100\n"),
    ] {
        write(&cfg, &format!("global\n{global}{site}"));
        // Without root's right to raise the limit, as in a container.
        let script = format!(
            "ulimit -n {limit}; exec setpriv --bounding-set -sys_resource --inh-caps -sys_resource \
             {} install --server haproxy --conf {conf} --dry-run",
            program.display()
        );
        let Some((_, text)) = without_systemd(&place, &["sh", "-c", &script]) else {
            return;
        };
        assert!(text.contains("ssl-mode-async"), "{text}");
        assert!(text.contains("HAProxy was started here"), "{text}");
        let conns = match global {
            " maxconn 100\n" => 100,
            " maxconn 2000\n" => number(&text, "or write `maxconn "),
            _ => number(&text, "    maxconn "),
        };
        let pipes = match global {
            " maxconn 2000\n" => conns / 2,
            _ => number(&text, "    maxpipes "),
        };
        assert!(2 * (conns + pipes) < limit && pipes >= conns / 2, "{text}");
        // With these lines it starts, and takes as many connections as they say.
        let lines = format!(" ssl-mode-async\n maxconn {conns}\n maxpipes {pipes}\n");
        assert_eq!(maxconn(&lines, limit), conns, "{text}");
        // It accepts as many connections as without the lines, or the command reports the loss and
        // the remedy.
        if !global.is_empty() {
            assert!(!text.contains("connections at a time"), "{text}");
            continue;
        }
        let alone = maxconn(global, limit);
        assert!(conns * 10 > alone * 6, "{alone}: {text}");
        if conns * 100 < alone * 95 {
            let lost = format!("note: HAProxy takes at most {conns} connections at a time");
            let before = number(&text, "install`'s lines, and ");
            assert!(
                text.contains(&lost) && before.abs_diff(alone) < 10,
                "{text}"
            );
            let needed = number(&text, "LimitNOFILE=");
            assert!((3 * alone..4 * alone).contains(&needed), "{text}");
        }
    }
}

/// A file may name variables that only the service has.
#[test]
fn haproxy_is_checked_with_the_variables_of_its_unit() {
    if Command::new("haproxy").arg("-v").output().is_err() {
        println!("skipped: haproxy is not installed (`cargo xtask setup` installs it)");
        return;
    }
    let place = Place::new("variables");
    drop(packaged(&place, "lockstep", "lockstep.so"));
    let lockstep = place.conf.with_file_name("prefix/lockstep");
    let (lockstep, conf) = (lockstep.display(), place.conf.display());
    let etc = |path: &str| place.conf.with_file_name("etc").join(path);
    let site = "frontend a\n mode http\n timeout client 1s\n bind \"${LOCKSTEP_SITE}\"\n";
    write(
        &etc("haproxy/haproxy.cfg"),
        &format!("global\n maxconn 100\n{site}"),
    );
    write(
        &etc("systemd/system/haproxy.service"),
        &format!("{HAPROXY_UNIT}Environment=LOCKSTEP_SITE=unix@/run/s\n"),
    );
    let script = format!("{lockstep} install --server haproxy --conf {conf} --dry-run");
    let Some((_, text)) = without_systemd(&place, &["sh", "-c", &script]) else {
        return;
    };
    assert!(
        text.contains("ssl-mode-async\n        maxpipes 50\n"),
        "{text}"
    );
}

/// However `install` ends.
#[test]
fn an_haproxy_that_is_tried_does_not_outlive_the_command() {
    let place = Place::new("outlives");
    drop(packaged(&place, "lockstep", "lockstep.so"));
    let lockstep = place.conf.with_file_name("prefix/lockstep");
    let (lockstep, conf) = (lockstep.display(), place.conf.display());
    let cfg = place.conf.with_file_name("etc/haproxy/haproxy.cfg");
    write(&cfg, "global\n maxconn 100\n");
    let bin = place.conf.with_file_name("bin/haproxy");
    let text = "#!/bin/sh\n[ \"$1\" = -c ] && exit\necho $$ > /run/tried\nexec sleep 300\n";
    write(&bin, text);
    fs::set_permissions(&bin, Permissions::from_mode(0o755)).unwrap();
    // Ctrl-C is for all processes of the terminal.
    for signal in ["INT -$pid", "KILL $pid"] {
        let script = format!(
            "PATH={}:$PATH\nrm -f /run/tried\n\
             env --default-signal=INT setsid {lockstep} install --server haproxy --conf {conf} \
             > /run/log & pid=$!\n\
             until [ -s /run/tried ]; do kill -0 $pid; sleep 0.02; done\n\
             kill -{signal}\n\
             for i in $(seq 200); do kill -0 $(cat /run/tried) || exit 0; sleep 0.05; done\n\
             kill $(cat /run/tried)\nexit 1",
            bin.parent().unwrap().display()
        );
        let Some((code, text)) = without_systemd(&place, &["sh", "-ec", &script]) else {
            return;
        };
        assert_eq!(code, 0, "{signal}: {text}");
    }
}

/// The file of lines is for one unit. For other units the command prints the lines.
#[test]
fn an_haproxy_of_another_unit_is_told_its_lines() {
    let place = Place::new("instances");
    let unit = place.root.join("lib/systemd/system/haproxy@.service");
    write(
        &unit,
        "[Service]\nExecStart=/usr/sbin/haproxy -Ws -f /etc/haproxy/%i.cfg\n",
    );
    for name in ["haproxy@", "haproxy@web"] {
        let (code, text, stderr) = place.run("install", name, &["--dry-run"]);
        assert_eq!(code, 0, "{stderr}");
        let told = format!("The file that {name}.service reads needs in its section `global`: ssl");
        assert!(text.contains(&told), "{text}");
        // The restart is the last step.
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("to bring this into effect: "), "{text}");
    }
}

/// The restart that `install` names would end a server that runs.
#[test]
fn a_server_that_refuses_its_configuration_is_left_alone() {
    let mistake = [
        (
            "haproxy",
            "haproxy.service",
            "haproxy",
            "haproxy/haproxy.cfg",
            " bogus\n",
        ),
        (
            "nginx",
            "nginx.service",
            "nginx",
            "nginx/nginx.conf",
            "bogus;\n",
        ),
        (
            "apache",
            "apache2.service",
            "apache2",
            "apache2/apache2.conf",
            "Bogus\n",
        ),
        (
            "dnsdist",
            "dnsdist.service",
            "dnsdist",
            "dnsdist/dnsdist.conf",
            "bogus(\n",
        ),
    ];
    for (server, unit, program, file, text) in mistake {
        if Command::new(program).arg("-v").output().is_err() {
            println!("skipped: {program} is not installed (`cargo xtask setup` installs it)");
            continue;
        }
        let place = Place::new(&format!("refuses-{server}"));
        drop(packaged(&place, "lockstep", "lockstep.so"));
        let lockstep = place.conf.with_file_name("prefix/lockstep");
        let etc = |path: &str| place.conf.with_file_name("etc").join(path);
        write(
            &etc(&format!("systemd/system/{unit}")),
            &format!("[Service]\nExecStart=/usr/sbin/{program}\n"),
        );
        write(&etc(file), text);
        for more in ["", "--dry-run"] {
            let script = format!(
                "mkdir -p /run/systemd/system /run/lock; {} install --server {server} --conf {} {more}",
                lockstep.display(),
                place.conf.display()
            );
            let Some((code, text)) = without_systemd(&place, &["sh", "-c", &script]) else {
                return;
            };
            assert_eq!(code, 1, "{text}");
            let what =
                format!("lockstep: {server} refuses its configuration, so it would not start");
            assert!(text.contains(&what), "{text}");
            for word in ["write ", "restart", "bring this into effect"] {
                assert!(!text.contains(word), "{text}");
            }
            let drop_in = etc(&format!("systemd/system/{unit}.d"));
            assert!(!drop_in.exists() && !etc("lockstep").exists(), "{text}");
        }
    }
}

#[test]
fn a_server_whose_unit_is_not_there_is_refused() {
    for server in SERVERS {
        let place = Place::new(&format!("absent-{server}"));
        fs::remove_dir_all(place.root.join("lib")).unwrap();
        let before = place.tree();
        let (code, stdout, stderr) = place.run("install", server, &[]);
        assert_eq!((code, &*stdout, place.tree()), (1, "", before), "{stderr}");
        assert!(stderr.contains("there is no unit "), "{stderr}");
    }
}

#[test]
fn without_root_the_command_says_what_it_would_do() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: the tests do not run as root");
        return;
    }
    let place = Place::new("user");
    drop(packaged(&place, "lockstep", "lockstep.so"));
    let lockstep = place.conf.with_file_name("prefix/lockstep");
    let mut install = Command::new(&lockstep);
    install
        .args(["install", "--server", "nginx", "--conf"])
        .arg(&place.conf);
    let output = install.current_dir("/").uid(54_321).gid(54_321).output();
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    let first = "nothing is done, because only root can do it. As root, this would:\nwrite /etc/";
    assert!(stdout.starts_with(first), "{stdout}{stderr}");
    assert!(!stdout.contains("restart"), "{stdout}");
    assert!(stderr.contains("remedy: run this as root\n"), "{stderr}");
}

/// One configuration is made for all, and each has a policy of its own.
#[test]
fn units_with_different_configurations_are_told_apart() {
    let place = Place::new("apart");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let at = |path: &str| place.root.join(path);
    for name in ["a", "b"] {
        write(&at(&format!("etc/ssl/{name}.cnf")), POLICY);
    }
    let unit = |name: &str| format!("[Service]\nEnvironment=OPENSSL_CONF=/etc/ssl/{name}.cnf\n");
    write(&at("lib/systemd/system/stunnel@.service"), &unit("a"));
    let install = |name: &str| lockstep(&["install", "--server", name]);
    let other = at("lib/systemd/system/stunnel4.service");
    let instance = at("etc/systemd/system/stunnel@web.service.d/override.conf");
    for (file, text, load) in [
        (&other, unit("b"), "stunnel4.service loads /etc/ssl/b.cnf"),
        (
            &other,
            "[Service]\n".to_owned(),
            "stunnel4.service loads the system's",
        ),
        (
            &instance,
            unit("b"),
            "stunnel@web.service loads /etc/ssl/b.cnf",
        ),
    ] {
        write(file, &text);
        let before = place.tree();
        let (code, text) = install("stunnel");
        assert_eq!((code, place.tree()), (1, before), "{text}");
        assert!(
            text.contains("stunnel@.service loads /etc/ssl/a.cnf"),
            "{text}"
        );
        assert!(text.contains(load), "{text}");
        if file == &other {
            fs::remove_file(file).unwrap();
        }
    }
    // As the remedy has it.
    for (name, conf) in [("stunnel@web", "b"), ("stunnel", "a")] {
        let (code, text) = install(name);
        assert_eq!(code, 0, "{text}");
        let made = fs::read_to_string(at(&format!("etc/lockstep/{name}.cnf"))).unwrap();
        assert!(
            made.contains(&format!(".include = /etc/ssl/{conf}.cnf\n")),
            "{made}"
        );
    }
}

/// OpenSSL skips the mark in the file that it is told to load, and in no other.
#[test]
fn a_system_whose_configuration_cannot_be_included_is_refused() {
    let place = Place::new("mark");
    let lockstep = packaged(&place, "lockstep", "lockstep.so");
    let system = system_configuration(&place.root);
    write(&system, &format!("\u{feff}{POLICY}"));
    let before = place.tree();
    let (code, text) = lockstep(&["install", "--server", "haproxy"]);
    assert_eq!((code, place.tree()), (1, before), "{text}");
    assert!(text.contains("begins with a byte order mark"), "{text}");
}
