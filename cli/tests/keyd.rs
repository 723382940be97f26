//! `lockstep install --keyd` and its undoing. Most of it runs on this system, in a mount namespace
//! with an /etc and a /run of its own, and with programs that stand in for systemd and servers.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockstep_testkit::{command, copy_program, run, to_hex};

/// A system, as far as `install` can tell.
struct System {
    directory: PathBuf,
}

/// Runs the arguments with these directories in the places of /etc, /var/lib and /run.
const ENTER: &str = r#"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/work" /etc
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$1/lib,workdir=$1/work-lib" /var/lib
mount --bind "$1/run" /run
export PATH="$1/bin:$PATH"
log=$1/log
export log
shift
exec "$@"
"#;

const LOG: &str = "#!/bin/sh\necho \"${0##*/} $*\" >> \"$log\"\n";

/// The daemon writes its references as root, whose user is there, and ends.
const RESTART: &str = "[ \"$*\" = 'restart lockstep-keyd.service' ] || exit 0
{ echo user = root; grep -v '^user =' /etc/lockstep/keyd.conf; } > $log.conf
set -e";

/// It prints a configuration, and checks that there are references in the places of its keys.
const NGINX: &str = r#"#!/bin/sh
case $1 in
    -T) cat /etc/nginx/dump ;;
    -t) for key in /etc/ssl/a.key /etc/live/b.pem; do
            grep -q 'LOCKSTEP KEY REFERENCE' $key || { echo "nginx: [emerg] $key" >&2; exit 1; }
        done ;;
esac
"#;

const DUMP: &str = "# configuration file /etc/nginx/nginx.conf:\nuser daemon;\nhttp { server {\n\
                    ssl_certificate_key /etc/ssl/a.key;\n} server {\n\
                    ssl_certificate_key ../live/b.pem;\n} }\n";

const UNIT: &str = "[Service]\nExecStart=/usr/bin/lockstep keyd\n";

impl System {
    /// One with two keys; `None`, with a line, where a test may make none.
    fn new(name: &str) -> Option<System> {
        // Not in /tmp, which services do not see.
        let directory = format!("/dev/shm/lockstep-keyd-{}-{name}", std::process::id());
        let directory = PathBuf::from(directory);
        let _ = fs::remove_dir_all(&directory);
        let parts = "etc work lib work-lib run/systemd/system bin dist";
        for part in parts.split(' ') {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        let system = System { directory };
        let (code, text) = system.enter(&["true"]);
        if code != 0 {
            println!("skipped: this user has no mount namespace: {text}");
            return None;
        }
        for program in ["useradd", "userdel"] {
            system.program(program, LOG);
        }
        let restart = START.replace("LOCKSTEP keyd >", "LOCKSTEP keyd --config $log.conf >");
        let restart = restart.replace("LOCKSTEP", env!("CARGO_BIN_EXE_lockstep"));
        system.program("systemctl", &format!("{LOG}{RESTART}\n{restart}\n"));
        system.program("nginx", NGINX);
        system.write("etc/nginx/dump", DUMP);
        system.write("etc/systemd/system/lockstep-keyd.service", UNIT);
        let unit = "[Service]\nExecStart=/bin/nginx\n";
        system.write("etc/systemd/system/nginx.service", unit);
        system.key("etc/ssl/a.key", "ED25519");
        system.key(
            "etc/archive/b-1/b1.pem",
            "RSA -pkeyopt rsa_keygen_bits:2048",
        );
        fs::create_dir_all(system.at("etc/live")).unwrap();
        symlink("../archive/b-1/b1.pem", system.at("etc/live/b.pem")).unwrap();
        let mode = Permissions::from_mode(0o640);
        fs::set_permissions(system.at("etc/ssl/a.key"), mode).unwrap();
        // The module need not be one: nothing here loads it.
        let module = system.at("dist/lockstep.so");
        let mut header = [0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 62;
        fs::write(&module, header).unwrap();
        let text = format!(
            "openssl_conf = i\n[i]\nproviders = p\n[p]\ndefault = d\nlockstep = l\n[d]\n\
             activate = 1\n[l]\nmodule = {}\nactivate = 1\nreferences = yes\n",
            module.display()
        );
        system.write("dist/openssl.cnf", &text);
        Some(system)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn program(&self, name: &str, text: &str) {
        let name = format!("bin/{name}");
        self.write(&name, text);
        fs::set_permissions(self.at(&name), Permissions::from_mode(0o755)).unwrap();
    }

    fn key(&self, path: &str, algorithm: &str) {
        self.write(path, "");
        fs::remove_file(self.at(path)).unwrap();
        let mut openssl = Command::new("openssl");
        openssl
            .args(["genpkey", "-algorithm"])
            .args(algorithm.split(' '));
        assert_eq!(run(openssl.arg("-out").arg(self.at(path))).0, 0);
    }

    /// A certificate for a key.
    fn certificate(&self, key: &str) -> String {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-new", "-subj", "/CN=localhost", "-key"]);
        let (code, certificate, stderr) = run(openssl.arg(self.at(key)));
        assert_eq!(code, 0, "{stderr}");
        certificate
    }

    fn enter(&self, words: &[&str]) -> (i32, String) {
        let mut command = Command::new("unshare");
        // Doctor looks among all processes, and other tests have daemons.
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["--mount", "sh", "-euc", ENTER, "sh"]);
        let (code, stdout, stderr) = run(command.arg(&self.directory).args(words));
        (code, stdout + &stderr)
    }

    fn lockstep(&self, words: &[&str]) -> (i32, String) {
        let mut all = vec![env!("CARGO_BIN_EXE_lockstep")];
        let conf = self.at("dist/openssl.cnf");
        all.extend(words);
        if words[0] == "install" {
            all.extend(["--conf", conf.to_str().unwrap()]);
        }
        self.enter(&all)
    }

    fn install(&self) -> (i32, String) {
        self.lockstep(&["install", "--server", "nginx", "--keyd"])
    }

    /// Whether something is in /var/lib that is not there outside.
    fn has_lib(&self, name: &str) -> bool {
        let about = fs::symlink_metadata(self.at("lib").join(name));
        about.is_ok_and(|about| about.is_dir())
    }

    /// Returns the calls since the last look.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("log")).unwrap_or_default();
        let _ = fs::remove_file(self.at("log"));
        text.lines().map(str::to_owned).collect()
    }

    /// The files of /etc that are not as they are outside, with their modes, and the directories
    /// with our name.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut directories = vec![self.at("etc")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let about = fs::symlink_metadata(&path).unwrap();
                let bytes = match about.is_file() {
                    true => fs::read(&path).unwrap(),
                    false => Vec::new(),
                };
                let is_ours = path.ends_with("lockstep") || path.ends_with("references");
                if about.is_dir() {
                    directories.push(path.clone());
                }
                if !about.is_dir() || is_ours {
                    found.insert(path, (about.permissions().mode(), bytes));
                }
            }
        }
        found
    }

    /// The public half of a key, as the reference in a file has it.
    fn is_reference(&self, reference: &str, key: &str) {
        let text = self.read(reference);
        assert!(!text.contains("PRIVATE KEY"), "{text}");
        let reference = lockstep_remote::Reference::in_text(&text).unwrap();
        let mut openssl = Command::new("openssl");
        let (_, public, _) = run(openssl.args(["pkey", "-pubout", "-in"]).arg(self.at(key)));
        assert_eq!(reference.public_pem(), Some(public));
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

const DROP_IN: &str = "etc/systemd/system/nginx.service.d/lockstep-keyd.conf";
const CONF: &str = "etc/lockstep/keyd.conf";
const UNITS: &str = "lockstep-keyd.socket lockstep-keyd.service";

#[test]
fn one_command_gives_keys_to_the_daemon_and_another_undoes_it() {
    let Some(system) = System::new("whole") else {
        return;
    };
    let before = system.tree();
    let (code, dry) = system.lockstep(&["install", "--server", "nginx", "--keyd", "--dry-run"]);
    assert_eq!((code, system.tree() == before), (0, true), "{dry}");
    assert!(dry.contains("run systemctl enable"), "{dry}");
    let asked = ["systemctl is-enabled --quiet lockstep-keyd.socket"];
    let asked_on = ["systemctl is-active --quiet lockstep-keyd.socket"];
    assert_eq!(system.log(), [asked, asked_on].concat());

    let (code, text) = system.install();
    assert_eq!((code, &text), (0, &dry), "{text}");
    for step in ["useradd --system", "enable", "restart"] {
        assert!(text.contains(step), "{text}");
    }
    let log = system.log();
    let position = |part: &str| log.iter().position(|line| line.contains(part)).expect(part);
    assert!(
        position("useradd") < position("systemctl enable"),
        "{log:?}"
    );
    assert!(
        log[position("useradd")].ends_with(" lockstep-keyd"),
        "{log:?}"
    );
    assert!(
        log.contains(&format!("systemctl enable {UNITS}")),
        "{log:?}"
    );
    assert_eq!(
        log.last().unwrap(),
        "systemctl restart lockstep-keyd.service"
    );

    let text_of = system.read(CONF);
    let configuration = lockstep_keyd::keyd_conf::Configuration::parse(&text_of);
    let keys: Vec<_> = configuration
        .keys
        .iter()
        .map(|key| (&*key.name, &*key.file))
        .collect();
    let expected = [
        ("nginx-ssl-a", Path::new("/etc/ssl/a.key")),
        ("nginx-live-b", Path::new("/etc/live/b.pem")),
    ];
    assert_eq!(keys, expected);
    for key in &configuration.keys {
        assert_eq!(key.users, ["daemon"]);
        assert!(key.uses.sign && !key.uses.decrypt);
    }
    let kept = "/var/lib/lockstep-keyd/nginx/nginx-live-b";
    assert_eq!(configuration.keys[1].references, Some(kept.into()));
    let drop_in = system.read(DROP_IN);
    let line = format!("BindReadOnlyPaths={kept}/b.pem:/etc/live/b.pem\n");
    assert!(drop_in.ends_with(&line), "{drop_in}");
    // With these lines a reload is enough after a renewal.
    let named = format!("{kept}/b.pem in the place of /etc/live/b.pem");
    assert!(text.contains(&named), "{text}");
    // Steps that remain for the administrator: a restart, and a key that others can read.
    assert!(text.contains("systemctl restart nginx"), "{text}");
    assert!(
        text.contains("(mode 640)") && text.contains("chmod 600 /etc/ssl/a.key"),
        "{text}"
    );
    assert!(!text.contains("chmod 600 /etc/archive"), "{text}");
    let installed = system.tree();
    for (path, content) in &before {
        assert_eq!(installed.get(path), Some(content), "{}", path.display());
    }

    let user = "lockstep-keyd:x:990:990::/nonexistent:/usr/sbin/nologin\n";
    let users = fs::read_to_string("/etc/passwd").unwrap();
    system.write("etc/passwd", &(users + user));
    let (code, text) = system.install();
    fs::remove_file(system.at("etc/passwd")).unwrap();
    assert_eq!((code, system.tree() == installed), (0, true), "{text}");
    assert!(text.contains("nothing to do"), "{text}");
    system.log();

    let (code, dry) = system.lockstep(&["uninstall", "--server", "nginx", "--dry-run"]);
    assert_eq!((code, system.tree() == installed), (0, true), "{dry}");
    let (code, text) = system.lockstep(&["uninstall", "--server", "nginx"]);
    assert_eq!((code, &text), (0, &dry), "{text}");
    assert_eq!(system.tree(), before);
    assert_eq!(system.log(), [format!("systemctl disable {UNITS}")]);
    // nginx signs by the daemon until it is restarted.
    let restart = text.find("systemctl restart nginx").expect("a restart");
    let stop = text
        .find(&format!("systemctl stop {UNITS}"))
        .expect("a stop");
    assert!(restart < stop, "{text}");
}

/// Otherwise the server would find no keys in the places of its keys.
#[test]
fn a_configuration_that_allows_no_references_is_refused() {
    let Some(system) = System::new("not-allowed") else {
        return;
    };
    let text = system.read("dist/openssl.cnf");
    system.write("dist/openssl.cnf", &text.replace("references = yes\n", ""));
    let before = system.tree();
    let (code, text) = system.install();
    assert!(code != 0 && system.tree() == before, "{text}");
    assert!(text.contains("does not allow references"), "{text}");
    assert!(text.contains("`references = yes`"), "{text}");
}

#[test]
fn a_server_that_refuses_references_is_left_alone() {
    let Some(system) = System::new("refused") else {
        return;
    };
    system.program("nginx", &NGINX.replace("grep -q", "false && grep -q"));
    let before = system.tree();
    let (code, text) = system.install();
    assert_eq!((code, system.tree() == before), (1, true), "{text}");
    assert!(text.contains("nginx: [emerg] /etc/ssl/a.key"), "{text}");
    assert!(
        text.contains("nothing was changed") && text.contains("remedy: "),
        "{text}"
    );
    assert!(system.log().is_empty());
}

#[test]
fn all_is_undone_when_the_daemon_does_not_start() {
    let Some(system) = System::new("undone") else {
        return;
    };
    let own = "[key mine]\nfile = /etc/ssl/a.key\nusers = bin\nuses = sign\n";
    system.write(CONF, own);
    fs::set_permissions(system.at(CONF), Permissions::from_mode(0o600)).unwrap();
    let before = system.tree();
    let failing = "case $1 in restart) echo no such thing >&2; exit 1 ;; $other) exit 1 ;; esac\n";
    system.program("systemctl", &format!("{LOG}other=none\n{failing}"));
    let (code, text) = system.install();
    assert_eq!(code, 1, "{text}");
    assert_eq!(system.tree(), before, "{text}");
    assert!(
        text.contains("no such thing") && text.contains("was undone"),
        "{text}"
    );
    assert!(text.contains("remedy: "), "{text}");
    let log = system.log();
    assert!(
        log.iter().any(|line| line == "userdel lockstep-keyd"),
        "{log:?}"
    );
    // It was enabled and active before, as this systemctl has it.
    let undone = |log: &[String], command: &str| {
        let restart = log.iter().rposition(|line| line.contains(" restart "));
        let line = format!("systemctl {command} {UNITS}");
        log[restart.expect("a restart")..].contains(&line)
    };
    assert!(undone(&log, "start") && !undone(&log, "disable"), "{log:?}");
    // And enabled alone, active alone.
    for (other, start, disable) in [("is-active", false, false), ("is-enabled", true, true)] {
        system.program("systemctl", &format!("{LOG}other={other}\n{failing}"));
        let (code, text) = system.install();
        assert_eq!((code, system.tree() == before), (1, true), "{text}");
        let log = system.log();
        let found = (undone(&log, "start"), undone(&log, "disable"));
        assert_eq!(found, (start, disable), "not {other}: {log:?}");
    }
    // Where that fails the administrator is told, and `uninstall` goes on.
    system.program("userdel", "#!/bin/sh\nexit 1\n");
    let (code, text) = system.install();
    assert!(
        code == 1 && text.contains("is not, or not all, undone"),
        "{text}"
    );
    assert!(text.contains("then run lockstep uninstall"), "{text}");
    assert!(system.at("etc/lockstep/nginx.unfinished").exists());
    let (code, text) = system.lockstep(&["uninstall"]);
    assert_eq!((code, system.tree() == before), (0, true), "{text}");
}

/// The disk is full: the server would not start after its restart.
#[test]
fn a_server_is_left_alone_if_the_daemon_cannot_write_its_references() {
    let Some(system) = System::new("full") else {
        return;
    };
    let before = system.tree();
    let conf = system.at("dist/openssl.cnf");
    let install = |full: &str| {
        let script = format!(
            "mkdir -p {full}
mount -t tmpfs -o size=4k,mode=755 tmpfs {full}
cp /dev/zero {full}/zero 2> /dev/null || true
code=0
{} install --server nginx --keyd --conf {} || code=$?
find {full} -mindepth 1
exit $code",
            env!("CARGO_BIN_EXE_lockstep"),
            conf.display()
        );
        let (code, text) = system.enter(&["sh", "-euc", &script]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("what was done before was undone"), "{text}");
        let left: Vec<&str> = text.lines().filter(|line| line.starts_with(full)).collect();
        assert_eq!(left, [format!("{full}/zero")], "{text}");
        text
    };
    let text = install("/var/lib/lockstep-keyd");
    let missing = "has not written /var/lib/lockstep-keyd/nginx/nginx-";
    assert!(text.contains(missing), "{text}");
    assert_eq!(system.tree(), before, "{text}");
    let log = system.log();
    assert!(log.contains(&format!("systemctl stop {UNITS}")), "{log:?}");
    // A file of `install` itself.
    let text = install("/etc/lockstep");
    assert!(text.contains("remedy: make room there"), "{text}");
}

/// The daemon runs by then, and has written its references. Every call that changes the disk is
/// tried without it (`killed.rs`).
#[test]
fn a_command_that_is_killed_beside_the_daemon_is_undone_by_one_uninstall() {
    let Some(system) = System::new("killed") else {
        return;
    };
    let traced = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output();
    if !traced.is_ok_and(|traced| traced.status.success()) {
        println!("skipped: strace is not installed, or may not trace");
        return;
    }
    let before = system.tree();
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let conf = system.at("dist/openssl.cnf");
    let install = format!(
        "{lockstep} install --server nginx --keyd --conf {}",
        conf.display()
    );
    let uninstall = format!("{lockstep} uninstall");
    let mut with_references = 0;
    for (first, killed) in [("true", &install), (&*install, &uninstall)] {
        for number in 1..=4 {
            let script = format!(
                "{first} > /dev/null
calls=rename,renameat,renameat2
trace=\"-e trace=$calls -e inject=$calls:signal=KILL:when={number}\"
code=0
strace -o /dev/null $trace {killed} > /dev/null || code=$?
test $code = 137
find /var/lib/lockstep-keyd -name '*.key' || true
{uninstall}"
            );
            let (code, text) = system.enter(&["sh", "-euc", &script]);
            assert_eq!(code, 0, "{number}, {killed}: {text}");
            with_references += usize::from(text.starts_with("/var/lib/"));
            assert_eq!(system.tree(), before, "{number}, {killed}: {text}");
            assert!(
                !system.has_lib("lockstep-keyd"),
                "{number}, {killed}: {text}"
            );
            let disable = format!("systemctl disable {UNITS}");
            let is_disabled = system.log().contains(&disable);
            // The first two are of files that have nothing to do with the daemon.
            assert!(is_disabled || first == "true" && number < 4, "{text}");
        }
    }
    assert_eq!(with_references, 5);
}

/// Anybody can have a process that looks like one with references.
#[test]
fn processes_of_other_users_keep_no_references() {
    let Some(system) = System::new("others") else {
        return;
    };
    let (code, text) = system.install();
    assert_eq!(code, 0, "{text}");
    let uninstall = |before: &str| {
        let lockstep = env!("CARGO_BIN_EXE_lockstep");
        let script = format!(
            "place=/run/other/lockstep-keyd/nginx/x
mkdir -p $place /run/at
chmod -R a+rwX /run
{before} sh -c \"mount --bind $place /run/at && : > /run/ready && exec sleep 60\" & other=$!
trap 'kill $other' EXIT
until [ -e /run/ready ]; do kill -0 $other; sleep 0.02; done
rm /run/ready
{lockstep} uninstall --server nginx --dry-run"
        );
        system.enter(&["sh", "-euc", &script])
    };
    let stays = "nginx has the references in /var/lib/lockstep-keyd/nginx until its restart";
    let (code, text) = uninstall("unshare --mount");
    assert!(code == 0 && text.contains(stays), "{text}");
    let again = "systemctl restart nginx && lockstep uninstall --server nginx\n";
    assert!(text.contains(again), "{text}");
    let (code, text) = uninstall(
        "setpriv --reuid 65534 --regid 65534 --clear-groups unshare --user --map-root-user --mount",
    );
    if code != 0 {
        println!("skipped: other users have no namespaces here: {text}");
        return;
    }
    assert!(!text.contains(stays), "{text}");
}

#[test]
fn what_the_daemon_cannot_hold_is_refused() {
    type Case = (&'static str, fn(&System), &'static str);
    let cases: [Case; 5] = [
        (
            "encrypted",
            |system| {
                let path = system.at("etc/ssl/a.key");
                let mut openssl = Command::new("openssl");
                openssl
                    .args(["pkey", "-aes128", "-passout", "pass:x", "-in"])
                    .arg(&path);
                fs::write(&path, run(&mut openssl).1).unwrap();
            },
            "the key is encrypted",
        ),
        (
            "curve",
            |system| system.key("etc/ssl/a.key", "EC -pkeyopt ec_paramgen_curve:P-521"),
            "serves P-256 and P-384",
        ),
        (
            "variables",
            |system| system.write("etc/nginx/dump", &DUMP.replace("a.key", "$name.key")),
            "not in a file with a fixed path",
        ),
        (
            "nobody",
            |system| system.write("etc/nginx/dump", &DUMP.replace("daemon", "nonesuch")),
            "there is no user `nonesuch`",
        ),
        (
            "unit",
            |system| {
                fs::remove_file(system.at("etc/systemd/system/lockstep-keyd.service")).unwrap()
            },
            "no unit lockstep-keyd.service",
        ),
    ];
    for (name, change, expected) in cases {
        let Some(system) = System::new(name) else {
            return;
        };
        change(&system);
        let before = system.tree();
        let (code, text) = system.install();
        assert_eq!((code, system.tree() == before), (1, true), "{name}: {text}");
        assert!(
            text.contains(expected) && text.contains("remedy: "),
            "{name}: {text}"
        );
        assert!(system.log().is_empty(), "{name}");
    }
}

#[test]
fn the_administrators_sections_stay_and_serve() {
    let Some(system) = System::new("own") else {
        return;
    };
    let own = "rate = 5\nuser = root\n[key mine]\nfile = /etc/ssl/a.key\n\
               references = /var/lib/lockstep-keyd/nginx/mine\nusers = daemon\nuses = sign\n";
    system.write(CONF, own);
    let (code, text) = system.install();
    assert_eq!(code, 0, "{text}");
    let text = system.read(CONF);
    assert!(
        text.starts_with(own) && text.contains("[key nginx-live-b]"),
        "{text}"
    );
    assert!(!text.contains("nginx-ssl-a"), "{text}");
    let drop_in = system.read(DROP_IN);
    assert!(
        drop_in.contains("/nginx/mine/a.key:/etc/ssl/a.key"),
        "{drop_in}"
    );
    system.is_reference("lib/lockstep-keyd/nginx/mine/a.key", "etc/ssl/a.key");
    system.log();
    let (code, text) = system.lockstep(&["uninstall"]);
    assert_eq!((code, system.read(CONF).as_str()), (0, own), "{text}");
    // The daemon goes on for the other key.
    assert!(system.log().is_empty(), "{text}");
    assert!(
        text.contains("systemctl restart lockstep-keyd.service"),
        "{text}"
    );

    // With a file that somebody has changed, nothing is installed,
    system.install();
    let changed = system.read(DROP_IN) + "User=root\n";
    system.write(DROP_IN, &changed);
    let before = system.tree();
    let (code, text) = system.lockstep(&["install", "--server", "nginx", "--keyd"]);
    assert_eq!((code, system.tree() == before), (1, true), "{text}");
    assert!(text.contains("lockstep-keyd.conf is not as"), "{text}");
    // Everything that it names stays: without its references the service would not start.
    let (code, text) = system.lockstep(&["uninstall", "--server", "nginx"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("lockstep-keyd.conf is not as"), "{text}");
    assert_eq!(system.read(DROP_IN), changed);
    let kept = ["mine/a.key", "nginx-live-b/b.pem"];
    let kept = kept.map(|file| system.at("lib/lockstep-keyd/nginx").join(file));
    assert!(kept.iter().all(|file| file.exists()), "{text}");
    assert!(system.read(CONF).contains("[key nginx-live-b]"), "{text}");
    assert!(
        text.contains("names references in /var/lib/lockstep-keyd/nginx"),
        "{text}"
    );
    // As the remedy has it.
    fs::remove_file(system.at(DROP_IN)).unwrap();
    let (code, text) = system.lockstep(&["uninstall", "--server", "nginx"]);
    assert_eq!((code, system.read(CONF).as_str()), (0, own), "{text}");
    assert!(!system.has_lib("lockstep-keyd"), "{text}");
}

/// Without systemd, or by choice, a server's own configuration names references.
#[test]
fn references_that_a_server_names_stay() {
    let Some(system) = System::new("named") else {
        return;
    };
    system.write(CONF, "user = root\n");
    assert_eq!(system.install().0, 0);
    let reference = "/var/lib/lockstep-keyd/nginx/nginx-ssl-a/a.key";
    let line = format!("ssl_certificate_key {reference};\n");
    system.write("etc/nginx/nginx.conf", &line);
    let before = system.tree();
    let (code, text) = system.lockstep(&["uninstall"]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("/etc/nginx/nginx.conf names references"),
        "{text}"
    );
    assert!(text.contains("remedy: name the keys themselves"), "{text}");
    // The drop-ins too, by which it loads the module that reads references.
    assert!(system.tree() == before, "{text}");
    // The section of a reference that the server names stays with the next installation.
    let more = DUMP.replace("/etc/ssl/a.key", reference);
    system.write("etc/nginx/dump", &more);
    system.program("nginx", &NGINX.replace("/etc/ssl/a.key ", ""));
    let (code, text) = system.install();
    assert_eq!(code, 0, "{text}");
    assert!(system.read(CONF).contains("[key nginx-ssl-a]"), "{text}");
    assert!(!system.read(DROP_IN).contains("a.key"), "{text}");
    system.write("etc/nginx/dump", DUMP);
    system.write("etc/nginx/nginx.conf", &format!("# {line}"));
    let (code, text) = system.lockstep(&["uninstall", "--server", "nginx"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(system.read(CONF), "user = root\n", "{text}");
    assert!(!system.has_lib("lockstep-keyd"), "{text}");
}

/// A missing reference keeps the service from starting, unless that is chosen.
#[test]
fn the_service_starts_without_a_reference_by_choice_alone() {
    let Some(system) = System::new("fallback") else {
        return;
    };
    // As earlier versions had it.
    let fallback = ["install", "--server", "nginx", "--keyd", "--fallback"];
    let (code, text) = system.lockstep(&fallback);
    assert_eq!(code, 0, "{text}");
    let binds = |start: &str| {
        let drop_in = system.read(DROP_IN);
        let lines = drop_in.lines().filter(|line| line.starts_with(start));
        lines.count()
    };
    assert_eq!(binds("BindReadOnlyPaths=-/var/lib/lockstep-keyd/nginx/"), 2);
    let (code, text) = system.install();
    assert_eq!(code, 0, "{text}");
    assert_eq!(binds("BindReadOnlyPaths=/var/lib/lockstep-keyd/nginx/"), 2);
    assert_eq!(binds("BindReadOnlyPaths=-"), 0);
    let (code, text) = system.lockstep(&["uninstall", "--server", "nginx"]);
    assert_eq!((code, system.at(DROP_IN).exists()), (0, false), "{text}");
}

/// A bundle whose certificate lacks its last line, or a line break: everybody could read the key.
#[test]
fn a_damaged_bundle_gives_no_key_away() {
    let begin = "-----BEGIN PRIVATE KEY";
    for (name, from, to) in [
        ("end", "-----END CERTIFICATE-----\n", ""),
        ("newline", &*format!("\n{begin}"), begin),
    ] {
        let Some(system) = System::new(&format!("damaged-{name}")) else {
            return;
        };
        let key = system.read("etc/ssl/a.key");
        let both = system.certificate("etc/ssl/a.key") + &key;
        assert!(both.contains(from), "{name}");
        let both = both.replacen(from, to, 1);
        system.write("etc/ssl/a.key", &both);
        let before = system.tree();
        let (code, text) = system.install();
        assert_eq!((code, system.tree() == before), (1, true), "{name}: {text}");
        // A line that ends a certificate and begins a key begins none for OpenSSL either.
        let is_told = text.contains("line ") || text.contains("there is no private key");
        assert!(is_told && text.contains("remedy: "), "{name}: {text}");
        let secret = key.lines().nth(1).unwrap();
        assert!(!text.contains(secret), "{name}: {text}");
        assert!(system.log().is_empty(), "{name}");
    }
}

/// Files are never readable by others for a moment, and get their modes back.
#[test]
fn a_configuration_of_the_daemon_keeps_its_mode() {
    let Some(system) = System::new("mode") else {
        return;
    };
    let own = "rate = 5\n[key mine]\nfile = /etc/ssl/a.key\nusers = daemon\nuses = sign\n";
    system.write(CONF, own);
    fs::set_permissions(system.at(CONF), Permissions::from_mode(0o600)).unwrap();
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let conf = system.at("dist/openssl.cnf");
    let script = format!(
        "umask 077; {lockstep} install --server nginx --keyd --conf {}",
        conf.display()
    );
    let (code, text) = system.enter(&["sh", "-euc", &script]);
    assert_eq!(code, 0, "{text}");
    let mode = |path: &str| fs::metadata(system.at(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(CONF), 0o600);
    assert_eq!(mode(DROP_IN), 0o644);
}

/// A service in a mount namespace of its own, with the lines of its drop-in. It prints the files
/// that it sees at its start, and again when it is told to, as by a reload.
const SERVICE: &str = r#"
sed -n 's/^BindReadOnlyPaths=//p' /etc/systemd/system/nginx.service.d/lockstep-keyd.conf |
    while IFS=: read -r from to; do mount --bind "$from" "$to"; done
show() { mkdir /run/$1; cp /etc/live/x/* /etc/ssl/a.key /run/$1; ls /etc/archive/x > /run/$1/ls; }
show start
until [ -e /run/again ]; do sleep 0.02; done
show reload
"#;

/// certbot's way: links that lead to other files then. No process of the service sees a key, and
/// nothing is done but to reload it.
#[test]
fn after_a_renewal_a_reload_is_all_it_takes() {
    let Some(system) = System::new("renewed") else {
        return;
    };
    system.write(CONF, "user = root\n");
    system.write("etc/live/x/README", "about");
    let renew = |number: usize| {
        let file = |name: &str| format!("archive/x/{name}{number}.pem");
        system.key(&format!("etc/{}", file("privkey")), "ED25519");
        let certificate = system.certificate(&format!("etc/{}", file("privkey")));
        system.write(&format!("etc/{}", file("fullchain")), &certificate);
        certificate
    };
    const LINK: &str = "for name in privkey fullchain; do
    ln -sf ../../archive/x/$name$number.pem /etc/live/x/$name.pem
done";
    let certificates = [1, 2].map(renew);
    system.enter(&["sh", "-euc", &format!("number=1; {LINK}")]);
    let x = "/etc/live/x/privkey.pem";
    let server = |text: &str| text.replace("/etc/live/b.pem", x);
    system.write("etc/nginx/dump", &server(&DUMP.replace("../live/b.pem", x)));
    system.program("nginx", &server(NGINX));
    let before = system.tree();
    let (code, text) = system.install();
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("keys that come into /etc/live/x later"),
        "{text}"
    );
    let directory = "/var/lib/lockstep-keyd/nginx/nginx-live-x";
    for covered in ["/etc/live/x", "/etc/archive/x"] {
        let line = format!("BindReadOnlyPaths={directory}:{covered}\n");
        assert!(system.read(DROP_IN).contains(&line), "{text}");
    }
    let script = format!(
        "{START}\nunshare --mount sh -euc '{}' & service=$!
until [ -e /run/start/ls ]; do sleep 0.02; done
LOCKSTEP uninstall --server nginx --dry-run > /run/removal
number=2; {LINK}
LOCKSTEP keyd wait
touch /run/again
wait $service",
        SERVICE.replace('\'', "'\\''")
    );
    let script = script.replace("LOCKSTEP", env!("CARGO_BIN_EXE_lockstep"));
    let (code, text) = system.enter(&["sh", "-euc", &script]);
    assert_eq!(code, 0, "{text}");
    for (moment, certificate, number) in [
        ("start", &certificates[0], 1),
        ("reload", &certificates[1], 2),
    ] {
        let key = format!("etc/archive/x/privkey{number}.pem");
        system.is_reference(&format!("run/{moment}/privkey.pem"), &key);
        system.is_reference(&format!("run/{moment}/a.key"), "etc/ssl/a.key");
        assert!(
            system
                .read(&format!("run/{moment}/fullchain.pem"))
                .ends_with(certificate)
        );
        assert!(
            !system
                .read(&format!("run/{moment}/ls"))
                .contains("privkey1")
        );
    }
    // While a process sees them, they stay.
    let removal = system.read("run/removal");
    let stays = "nginx has the references in /var/lib/lockstep-keyd/nginx until its restart";
    assert!(
        removal.contains(stays) && !removal.contains("privkey.pem"),
        "{removal}"
    );
    let (code, text) = system.lockstep(&["uninstall", "--server", "nginx"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        !text.contains(stays) && !system.has_lib("lockstep-keyd"),
        "{text}"
    );
    let certbot = |tree: BTreeMap<PathBuf, (u32, Vec<u8>)>| {
        let paths = tree.into_keys();
        paths
            .filter(|path| !path.to_string_lossy().contains("/x/"))
            .collect::<Vec<_>>()
    };
    assert_eq!(certbot(system.tree()), certbot(before));
}

/// A server that runs has references by the names from before.
#[test]
fn a_key_keeps_its_name_when_others_come_and_go() {
    let Some(system) = System::new("names") else {
        return;
    };
    system.program("nginx", "#!/bin/sh\n[ $1 = -t ] || cat /etc/nginx/dump\n");
    let sites = ["x", "y"].map(|site| format!("etc/{site}/ssl/site.key"));
    sites.iter().for_each(|site| system.key(site, "ED25519"));
    let line = |site: &String| format!("ssl_certificate_key /{site};\n");
    let mut names = Vec::new();
    for served in [&sites[1..], &sites[..], &sites[1..]] {
        let lines: String = served.iter().map(line).collect();
        let dump = format!("# configuration file /etc/nginx/nginx.conf:\nuser daemon;\n{lines}");
        system.write("etc/nginx/dump", &dump);
        let (code, text) = system.install();
        assert_eq!(code, 0, "{text}");
        let configuration = lockstep_keyd::keyd_conf::Configuration::parse(&system.read(CONF));
        let keys = configuration.keys.into_iter();
        let mut own: Vec<_> = keys.map(|key| (key.file, key.name)).collect();
        own.sort();
        names.push(own);
    }
    let [before, both, after] = &names[..] else {
        panic!("three times")
    };
    assert!(both.len() == 2 && both[1] == before[0], "{names:?}");
    assert_eq!(after, before);
}

/// A directory takes the place of a file once nothing else is in it, and the other way round.
#[test]
fn a_key_keeps_its_name_when_its_directory_is_covered() {
    let Some(system) = System::new("covered") else {
        return;
    };
    system.program("nginx", "#!/bin/sh\n[ $1 = -t ] || cat /etc/nginx/dump\n");
    let serve = |keys: &[&str]| {
        let line = |key: &&str| format!("ssl_certificate_key /etc/s/x/{key};\n");
        let lines: String = keys.iter().map(line).collect();
        let dump = format!("# configuration file /etc/nginx/nginx.conf:\nuser daemon;\n{lines}");
        system.write("etc/nginx/dump", &dump);
    };
    let install = || {
        let (code, text) = system.install();
        assert_eq!(code, 0, "{text}");
        let configuration = lockstep_keyd::keyd_conf::Configuration::parse(&system.read(CONF));
        let keys = configuration.keys.into_iter();
        let of = |file: PathBuf| file.strip_prefix("/etc/s").unwrap().display().to_string();
        let own: Vec<_> = keys.map(|key| (key.name, of(key.file))).collect();
        (own, text.contains("restart nginx now"))
    };
    let own = |file: &str| (vec![("nginx-x-a".to_owned(), file.to_owned())], false);
    system.key("etc/s/x/a.key", "ED25519");
    let certificate = system.certificate("etc/s/x/a.key");
    system.write("etc/s/x/a.crt", &certificate);
    serve(&["a.key"]);
    for (others, file) in [(true, "x/a.key"), (false, "x"), (true, "x/a.key")] {
        match others {
            true => system.write("etc/s/x/types", "types { }"),
            false => fs::remove_file(system.at("etc/s/x/types")).unwrap(),
        }
        assert_eq!(install(), own(file));
    }
    // One name cannot be that of two keys which had one each.
    system.key("etc/s/x/b.key", "ED25519");
    serve(&["a.key", "b.key"]);
    let (keys, is_told) = install();
    assert!(keys.len() == 2 && !is_told, "{keys:?}");
    fs::remove_file(system.at("etc/s/x/types")).unwrap();
    assert_eq!(install(), (own("x").0, true));
    assert_eq!(install(), own("x"));
}

/// Files that a directory would hide from the service, and keys of others that it would show.
#[test]
fn a_directory_is_covered_only_if_it_is_the_servers_alone() {
    type Case = (&'static str, fn(&System));
    let cases: [Case; 7] = [
        // Everybody could read the copy of a certificate that carries the key.
        ("leak", |system| {
            let (key, leak) = (system.at("etc/live/b.pem"), system.at("etc/live/leak.crt"));
            let openssl = |words: &str| {
                let words: Vec<&str> = words.split(' ').collect();
                let mut openssl = command("openssl", &words);
                let made = openssl.arg("-in").arg(&key).output().unwrap();
                assert!(made.status.success(), "{made:?}");
                made.stdout
            };
            let bytes = to_hex(&openssl("pkey -outform DER"));
            let field = format!("1.2.3.4=ASN1:FORMAT:HEX,OCTETSTRING:{bytes}");
            let mut openssl = command("openssl", &["req", "-x509", "-subj", "/CN=x", "-key"]);
            openssl
                .arg(&key)
                .args(["-addext", &field, "-out"])
                .arg(leak);
            assert!(openssl.status().unwrap().success());
        }),
        // Programs may name one that is hidden when they get a request.
        ("hidden", |system| system.write("etc/live/.htpasswd", "x")),
        ("other", |system| {
            system.write("etc/live/mime.types", "types { }")
        }),
        ("key", |system| system.key("etc/live/c.key", "ED25519")),
        ("directory", |system| system.write("etc/live/c/d", "")),
        ("far", |system| {
            system.write("etc/archive/b-1/passwords", "x")
        }),
        ("keys", |system| {
            fs::remove_file(system.at("etc/live/b.crt")).unwrap()
        }),
    ];
    for (name, change) in [("none", (|_| ()) as fn(&System))].into_iter().chain(cases) {
        let Some(system) = System::new(&format!("alone-{name}")) else {
            return;
        };
        let certificate = system.certificate("etc/archive/b-1/b1.pem");
        system.write("etc/live/b.crt", &certificate);
        change(&system);
        let (code, text) = system.install();
        assert_eq!(code, 0, "{name}: {text}");
        let drop_in = system.read(DROP_IN);
        let line = match name {
            "none" => "/nginx/nginx-etc-live:/etc/live\n",
            _ => "/nginx/nginx-live-b/b.pem:/etc/live/b.pem\n",
        };
        assert!(drop_in.contains(line), "{name}: {drop_in}");
    }
}

#[test]
fn haproxy_finds_the_daemon_in_its_changed_root() {
    let Some(system) = System::new("haproxy") else {
        return;
    };
    system.write(
        "etc/haproxy/haproxy.cfg",
        "global\n chroot /var/lib/haproxy\n user daemon\nfrontend a\n bind :1 ssl crt /etc/both.pem\n",
    );
    system.write(
        "etc/systemd/system/haproxy.service",
        "[Service]\nExecStart=/bin/haproxy\n",
    );
    let certificate = system.certificate("etc/ssl/a.key");
    let both = certificate.clone() + &system.read("etc/ssl/a.key");
    system.write("etc/both.pem", &both);
    system.program(
        "haproxy",
        "#!/bin/sh\n[ \"$*\" = '-c -f /etc/haproxy/haproxy.cfg' ] && ! grep PRIVATE /etc/both.pem\n",
    );
    system.write(CONF, "user = root\n");
    let before = system.tree();
    let install = ["install", "--server", "haproxy", "--keyd"];
    let (code, text) = system.lockstep(&install);
    assert_eq!(code, 0, "{text}");
    assert!(system.log().contains(&format!("systemctl stop {UNITS}")));
    let reference = "lib/lockstep-keyd/haproxy/haproxy-etc-both/both.pem";
    system.is_reference(reference, "etc/both.pem");
    assert!(system.read(reference).ends_with(&certificate));
    let socket = system.read("etc/systemd/system/lockstep-keyd.socket.d/haproxy.conf");
    let listen = "ListenStream=/var/lib/haproxy/run/lockstep-keyd.sock\n";
    assert!(socket.contains(listen), "{socket}");
    // Another server beside it, with the same key, takes nothing along when it goes.
    let dump = DUMP.replace("ssl/a.key", "both.pem");
    system.write("etc/nginx/dump", &dump);
    system.program("nginx", &NGINX.replace("ssl/a.key", "both.pem"));
    assert_eq!(system.install().0, 0);
    let (code, text) = system.lockstep(&["uninstall", "--server", "haproxy"]);
    assert_eq!(code, 0, "{text}");
    let configuration = lockstep_keyd::keyd_conf::Configuration::parse(&system.read(CONF));
    let keys = configuration.keys.into_iter().map(|key| key.name);
    assert_eq!(keys.collect::<Vec<_>>(), ["nginx-etc-both", "nginx-live-b"]);
    system.write("etc/nginx/dump", DUMP);
    let (code, text) = system.lockstep(&["uninstall"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(system.tree(), before);
}

/// In an image that is made, nothing can be asked or started.
#[test]
fn under_another_root_keys_are_named_and_nothing_is_run() {
    let Some(system) = System::new("root") else {
        return;
    };
    system.program("nginx", "#!/bin/sh\nexit 9\n");
    let root = system.directory.to_str().unwrap().to_owned();
    let install = ["install", "--server", "nginx", "--keyd", "--root", &root];
    let (code, text) = system.lockstep(&install);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("remedy: name its keys by --key"), "{text}");
    let named = ["--key", "/etc/ssl/a.key", "--user", "www-data"];
    let before = system.tree();
    let (code, text) = system.lockstep(&[&install[..], &named].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("systemd does not run here"), "{text}");
    assert!(
        text.contains("/var/lib/lockstep-keyd/nginx/nginx-ssl-a/a.key in the place of"),
        "{text}"
    );
    assert!(system.read(CONF).contains("users = www-data\n"));
    assert!(system.log().is_empty());
    let (code, text) = system.lockstep(&["uninstall", "--root", &root]);
    assert_eq!((code, system.tree() == before), (0, true), "{text}");
}

/// Returns doctor's report on the daemon there: check, verdict, text.
fn doctor(system: &System, before: &str) -> Vec<(String, String, String)> {
    let lockstep = env!("CARGO_BIN_EXE_lockstep");
    let script = format!("{before}\nLOCKSTEP doctor --json || true");
    let script = script.replace("LOCKSTEP", lockstep);
    let (code, text) = system.enter(&["sh", "-euc", &script]);
    assert_eq!(code, 0, "{text}");
    let line = text
        .lines()
        .find(|line| line.starts_with('{'))
        .expect(&text);
    let document: serde_json::Value = serde_json::from_str(line).unwrap();
    let of = |finding: &serde_json::Value, name: &str| finding[name].as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap().iter();
    let about =
        findings.filter(|finding| finding["check"] == "keyd" || finding["check"] == "daemon");
    about
        .map(|finding| {
            (
                of(finding, "check"),
                of(finding, "verdict"),
                of(finding, "what"),
            )
        })
        .collect()
}

/// Starts the daemon, which ends with the script, and waits for it.
const START: &str = "LOCKSTEP keyd > /dev/null 2>&1 & pid=$!
trap 'kill $pid' EXIT
until LOCKSTEP keyd keys 2>&1 | grep -q 'no key that this user'; do
    kill -0 $pid
    sleep 0.02
done
grep -q lockstep-keyd /proc/$pid/comm";

#[test]
fn doctor_says_how_the_daemon_is() {
    let Some(system) = System::new("doctor") else {
        return;
    };
    assert_eq!(doctor(&system, ""), [], "not set up");
    let own = "user = root\n[key a]\nfile = /etc/archive/b-1/b1.pem\nusers = daemon\nuses = sign\n";
    system.write(CONF, own);
    let verdicts = |found: &[(String, String, String)]| {
        let pairs = found
            .iter()
            .map(|(check, verdict, _)| format!("{check} {verdict}"));
        pairs.collect::<Vec<String>>()
    };
    let found = doctor(&system, "");
    assert_eq!(verdicts(&found), ["keyd ok", "daemon failed"], "{found:?}");
    assert!(found[0].2.contains("a (RSA-2048)"), "{found:?}");
    assert!(
        found[1]
            .2
            .contains("cannot be reached at /run/lockstep-keyd.sock"),
        "{found:?}"
    );

    let found = doctor(&system, START);
    assert_eq!(verdicts(&found), ["keyd ok", "daemon ok"], "{found:?}");
    let answers = "the key daemon answers at /run/lockstep-keyd.sock";
    assert!(found[1].2.starts_with(answers), "{found:?}");

    let readable = own.replace("archive/b-1/b1.pem", "ssl/a.key");
    system.write(CONF, &readable);
    let found = doctor(&system, "");
    assert_eq!(
        verdicts(&found),
        ["keyd ok", "keyd warning", "daemon failed"],
        "{found:?}"
    );
    assert!(
        found[1].2.contains("/etc/ssl/a.key") && found[1].2.contains("mode 640"),
        "{found:?}"
    );

    system.write(CONF, &own.replace("b1.pem", "gone.pem"));
    let found = doctor(&system, "");
    assert_eq!(
        verdicts(&found),
        ["keyd failed", "daemon failed"],
        "{found:?}"
    );
    assert!(
        found[0].2.contains("the key a is left out: ") && found[0].2.contains("gone.pem"),
        "{found:?}"
    );

    // A key that is left out keeps the daemon from nothing else.
    let bad = "[key bad]\nfile = /etc/archive/gone.pem\nusers = daemon\nuses = sign\n";
    system.write(CONF, &format!("{own}{bad}"));
    let found = doctor(&system, START);
    assert_eq!(verdicts(&found), ["keyd failed", "daemon ok"], "{found:?}");
    let (code, text) = system.lockstep(&["keyd", "check"]);
    assert!(
        code != 0 && text.contains("the key bad is left out"),
        "{text}"
    );
    assert!(text.contains("a: RSA-2048"), "{text}");

    system.write(CONF, &own.replace("uses", "use"));
    let found = doctor(&system, "");
    assert_eq!(
        verdicts(&found),
        ["keyd failed", "keyd failed", "daemon failed"],
        "{found:?}"
    );
    assert!(
        found[0].2.contains("line 5: there is no setting `use`"),
        "{found:?}"
    );
}

/// A configuration with the key a, whose references the daemon keeps.
const KEPT: &str = "user = root\n[key a]\nfile = /etc/live/a/*.key\nreferences = \
                    /var/lib/lockstep-keyd/a\nusers = daemon\nuses = sign\n";

/// Runs a script with a daemon that keeps references. Returns its output.
fn kept(system: &System, script: &str) -> String {
    system.key("etc/live/a/a.key", "ED25519");
    system.key("etc/live/a/b.key", "ED25519");
    system.key("etc/live/next", "ED25519");
    system.write(CONF, KEPT);
    let script = format!("{START}\n{script}").replace("LOCKSTEP", env!("CARGO_BIN_EXE_lockstep"));
    let (code, text) = system.enter(&["sh", "-euc", &script]);
    assert_eq!(code, 0, "{text}");
    text
}

#[test]
fn a_hook_waits_for_the_references_and_doctor_names_those_that_are_old() {
    let Some(system) = System::new("wait") else {
        return;
    };
    let text = kept(
        &system,
        "LOCKSTEP keyd wait
LOCKSTEP doctor > /run/good || true
kill -STOP $pid
mv /etc/live/next /etc/live/a/a.key
LOCKSTEP keyd wait & wait=$!
LOCKSTEP doctor > /run/outdated 2>&1 || true
kill -0 $wait && echo waits
kill -CONT $pid
wait $wait && echo written",
    );
    assert!(text.contains("waits\nwritten\n"), "{text}");
    let file = "/var/lib/lockstep-keyd/a/a.key";
    let outdated = system.read("run/outdated");
    assert!(
        outdated.contains(&format!("the first is {file}. A server finds")),
        "{outdated}"
    );
    let good = system.read("run/good");
    assert!(
        good.contains("a (Ed25519)") && !good.contains("/var/lib"),
        "{good}"
    );
}

/// The disk is full, or the directory is somebody else's.
#[test]
fn a_reference_that_cannot_be_written_is_named_and_tried_again() {
    let Some(system) = System::new("unwritten") else {
        return;
    };
    let text = kept(
        &system,
        "rm /etc/live/a/b.key
mount -t tmpfs -o size=4k,mode=755 tmpfs /var/lib/lockstep-keyd/a
cp /dev/zero /var/lib/lockstep-keyd/a/zero 2> /dev/null || true
mv /etc/live/next /etc/live/a/a.key
until LOCKSTEP doctor | grep 'do not fit the files'; do sleep 0.1; done
rm /var/lib/lockstep-keyd/a/zero
LOCKSTEP keyd wait && echo written",
    );
    assert!(text.ends_with("written\n"), "{text}");
}

/// A file system that does not answer, as one of a host that is down.
#[test]
fn a_mount_that_hangs_holds_up_no_other_key_and_is_named() {
    let Some(system) = System::new("hangs") else {
        return;
    };
    let hang = "exec 3<> /dev/fuse
mkdir -p /run/hang
mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hang /run/hang";
    if system.enter(&["sh", "-euc", hang]).0 != 0 {
        println!("skipped: this user cannot mount a file system that hangs");
        return;
    }
    let hung = "[key h]\nfile = /run/hang/key\nusers = daemon\nuses = sign\n";
    system.write("etc/more", hung);
    let start = START.replace("/dev/null 2>&1", "/run/log 2>&1");
    system.write(
        "etc/start",
        &start.replace("LOCKSTEP", env!("CARGO_BIN_EXE_lockstep")),
    );
    let text = kept(
        &system,
        &format!(
            "kill $pid
{hang}
cat /etc/more >> /etc/lockstep/keyd.conf
. /etc/start
exec 3>&-
mv /etc/live/next /etc/live/a/a.key
until grep 'the key h is left out: /run/hang: its file system does not' /run/log; do
    sleep 0.1
done
until grep 'the key a is renewed' /run/log; do sleep 0.1; done
LOCKSTEP keyd wait > /run/wait 2>&1 & wait=$!
timeout 60 LOCKSTEP doctor || true
timeout 60 LOCKSTEP install --server nginx --keyd --conf {} --dry-run > /run/install 2>&1
(sleep 90; kill -KILL $wait) & limit=$!
wait $wait || true
kill $limit",
            system.at("dist/openssl.cnf").display()
        ),
    );
    let waited = system.read("run/wait");
    let unanswered = "the file system of /run/hang does not answer";
    assert!(waited.contains(unanswered), "{waited}");
    let told = |text: &str, key: &str| {
        let line = format!("the key {key} is left out: /run/hang: its file system does not");
        text.contains(&line)
    };
    assert!(
        told(&text, "h") && !text.contains("the key a is left out"),
        "{text}"
    );
    // `install` for others goes on, and says so.
    let installed = system.read("run/install");
    assert!(told(&installed, "h"), "{installed}");
}

#[test]
fn doctor_says_that_a_daemon_sees_no_renewed_keys() {
    let Some(system) = System::new("blind") else {
        return;
    };
    let text = kept(
        &system,
        "LOCKSTEP doctor | grep \"process $pid, sees\" && exit 1
read -r reader < /proc/$pid/task/$pid/children || true
kill -KILL $reader
until LOCKSTEP doctor | grep \"process $pid, sees no renewed keys\"; do sleep 0.1; done",
    );
    assert!(text.contains("has ended"), "{text}");
}

#[test]
fn a_daemon_in_a_container_is_not_the_one_here() {
    let Some(system) = System::new("contained") else {
        return;
    };
    system.write(
        CONF,
        "user = root\n[key a]\nfile = /etc/archive/b-1/b1.pem\nusers = daemon\nuses = sign\n",
    );
    let script = "unshare --pid --fork --kill-child LOCKSTEP keyd > /dev/null 2>&1 & outer=$!
trap 'kill -KILL $outer' EXIT
until LOCKSTEP keyd keys 2>&1 | grep -q 'no key that this user'; do
    kill -0 $outer
    sleep 0.02
done
read -r pid < /proc/$outer/task/$outer/children || true
grep -q lockstep-keyd /proc/$pid/comm
read -r reader < /proc/$pid/task/$pid/children || true
kill -KILL $reader
while kill -0 $reader 2> /dev/null && ! grep -q ') Z' /proc/$reader/stat; do sleep 0.02; done";
    let found = doctor(&system, script);
    let (_, verdict, what) = found.last().expect("says how the daemon is");
    assert_eq!(verdict, "ok", "{what}");
}

/// In a container, after `uninstall`: the socket of the daemon that was ended is left.
#[test]
fn a_socket_that_a_daemon_has_left_is_no_fault() {
    let Some(system) = System::new("left") else {
        return;
    };
    fs::remove_dir(system.at("run/systemd/system")).unwrap();
    drop(UnixListener::bind(system.at("run/lockstep-keyd.sock")).unwrap());
    let found = doctor(&system, "");
    let [(check, verdict, what)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (check.as_str(), verdict.as_str()),
        ("daemon", "note"),
        "{what}"
    );
    assert!(
        what.contains("nobody listens at /run/lockstep-keyd.sock"),
        "{what}"
    );
    // One that is set up is to be served, and no remedy needs systemd.
    let own = "user = root\n[key a]\nfile = /etc/gone.pem\nusers = daemon\nuses = sign\n";
    system.write(CONF, own);
    let (_, text) = system.lockstep(&["doctor"]);
    assert!(text.contains("FAILED daemon"), "{text}");
    let mut remedies = text.lines().filter(|line| line.contains("remedy:"));
    assert!(text.contains("restart the key daemon"), "{text}");
    let by_systemd = |line: &&str| line.contains("systemctl") || line.contains("journalctl");
    assert_eq!(remedies.find(by_systemd), None);
}

/// The remedy is a line that ends the warning.
#[test]
fn rings_that_take_more_memory_than_the_unit_allows_are_named() {
    let Some(system) = System::new("memory") else {
        return;
    };
    let unit = "etc/systemd/system/lockstep-keyd.service";
    system.write(unit, &format!("{UNIT}MemoryMax=1G\n"));
    let key = "user = root\n[key a]\nfile = /etc/archive/b-1/b1.pem\nusers = daemon\nuses = sign\n";
    let check = |queue: &str| {
        system.write(CONF, &format!("queue = {queue}\n{key}"));
        let (code, text) = system.lockstep(&["keyd", "check"]);
        assert_eq!(code, 0, "{text}");
        text
    };
    let text = check("64");
    assert!(!text.contains("warning"), "{text}");
    let text = check("1024");
    assert!(
        text.contains("warning: with max_clients = 1024 and queue = 1024"),
        "{text}"
    );
    let (_, line) = text.split_once("the lines [Service] and ").expect(&text);
    let (line, _) = line.split_once(')').expect(&text);
    let found = doctor(&system, "");
    assert!(
        found.iter().any(|(check, verdict, what)| {
            (check.as_str(), verdict.as_str()) == ("keyd", "warning")
                && what.contains("queue = 1024")
        }),
        "{found:?}"
    );
    // The daemon knows the limit of its control group.
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if groups.lines().any(|line| line.starts_with("0::/")) {
        let script = "mount -t tmpfs tmpfs /sys/fs/cgroup
echo 1073741824 > /sys/fs/cgroup/memory.max
LOCKSTEP keyd > /run/log 2>&1 & pid=$!
until grep -q 'holds the key' /run/log; do kill -0 $pid; sleep 0.02; done
kill $pid
cat /run/log";
        let script = script.replace("LOCKSTEP", env!("CARGO_BIN_EXE_lockstep"));
        let (code, text) = system.enter(&["sh", "-euc", &script]);
        assert_eq!(code, 0, "{text}");
        assert!(
            text.contains("warning: with max_clients = 1024 and queue = 1024"),
            "{text}"
        );
    }
    system.write(
        &format!("{unit}.d/override.conf"),
        &format!("[Service]\n{line}\n"),
    );
    let text = check("1024");
    assert!(!text.contains("warning"), "{text}");
}

/// The configuration of servers, and not the one beside the program.
#[test]
fn doctor_looks_at_the_configuration_that_install_makes() {
    let Some(system) = System::new("which") else {
        return;
    };
    let program = system.at("dist/lockstep");
    copy_program(Path::new(env!("CARGO_BIN_EXE_lockstep")), &program);
    let doctor = || system.enter(&[program.to_str().unwrap(), "doctor"]).1;
    let shown = |path: &str| format!("the checks below use {path}");
    let beside = system.at("dist/openssl.cnf");
    let beside = shown(beside.to_str().unwrap());
    assert!(doctor().contains(&beside), "{}", doctor());
    let text = system.read("dist/openssl.cnf");
    system.write("etc/lockstep/openssl.cnf", &text);
    let installed = shown("/etc/lockstep/openssl.cnf");
    assert!(doctor().contains(&installed), "{}", doctor());
}

/// The module is tried before a server is to load it.
#[test]
fn a_module_that_does_not_load_is_not_installed() {
    let Some(system) = System::new("unloadable") else {
        return;
    };
    let program = system.at("dist/lockstep");
    copy_program(Path::new(env!("CARGO_BIN_EXE_lockstep")), &program);
    let before = system.tree();
    let program = program.to_str().unwrap();
    let install = || system.enter(&[program, "install", "--server", "nginx"]);
    let (code, text) = install();
    assert_eq!((code, system.tree() == before), (1, true), "{text}");
    let what = "the module does not load with /etc/lockstep/openssl.cnf: ";
    assert!(
        text.contains(what) && text.contains("nothing was done"),
        "{text}"
    );
    let Some(dist) = std::env::var_os("LOCKSTEP_DIST") else {
        return;
    };
    let module = system.at("dist/lockstep.so");
    let whole = fs::read(Path::new(&dist).join("lockstep.so")).unwrap();
    // The loader would map a part that is missing, and the program that reads it would end by
    // SIGBUS.
    fs::write(&module, &whole[..whole.len() / 2]).unwrap();
    let before = system.tree();
    let (code, text) = install();
    assert_eq!((code, system.tree() == before), (1, true), "{text}");
    assert!(text.contains("is cut off: "), "{text}");
    fs::write(&module, whole).unwrap();
    system.program("nginx", "#!/bin/sh\n");
    let (code, text) = install();
    assert_eq!(code, 0, "{text}");
}

#[test]
fn doctor_asks_for_the_user_who_has_a_reference() {
    let Some(system) = System::new("reference") else {
        return;
    };
    let ask = |file: &str, before: &str| {
        let lockstep = env!("CARGO_BIN_EXE_lockstep");
        let script = format!("{before}\nLOCKSTEP doctor --reference {file} || true");
        let script = script.replace("LOCKSTEP", lockstep);
        system.enter(&["sh", "-euc", &script]).1
    };
    let own = "user = root\n[key a]\nfile = /etc/ssl/a.key\nusers = daemon\nuses = sign\n";
    system.write(CONF, own);
    let export = ["keyd", "export-reference", "a", "--out", "/etc/a.ref"];
    assert_eq!(system.lockstep(&export).0, 0);
    let text = ask("/etc/a.ref", "");
    assert!(
        text.starts_with("FAILED reference") && text.contains("cannot be reached"),
        "{text}"
    );
    let text = ask("/etc/a.ref", START);
    assert!(
        text.starts_with("FAILED") && text.contains("does not let this user use it"),
        "{text}"
    );
    system.write(CONF, &own.replace("users = daemon", "users = daemon root"));
    let start = START.replace("'no key that this user'", "'a: sign'");
    let text = ask("/etc/a.ref", &start);
    assert!(
        text.starts_with("ok ") && text.contains("lets this user use to sign"),
        "{text}"
    );
    let text = ask("/etc/ssl/a.key", "");
    assert!(
        text.starts_with("FAILED") && text.contains("remedy: "),
        "{text}"
    );
    assert!(text.contains("is a private key itself"), "{text}");
    let damaged = system.read("etc/a.ref").replacen("-----\n", "-----\n!!", 1);
    system.write("etc/a.ref", &damaged);
    let text = ask("/etc/a.ref", "");
    assert!(text.contains("a reference to a key is damaged"), "{text}");
}

/// A row: the name, lines of the configuration, a script, the file that doctor looks at, and the
/// report that it must make.
type Verdict = (
    &'static str,
    &'static str,
    String,
    &'static str,
    &'static str,
    &'static str,
);

/// FAILED where no handshake succeeds, and ok where each does.
#[test]
fn doctor_is_right_about_references_in_each_state_of_daemon_and_key() {
    let Some(system) = System::new("verdicts") else {
        return;
    };
    const SITES: &str = "user = root\n[key sites]\nfile = /etc/live/*/privkey.pem\n\
                         references = /var/lib/lockstep-keyd/sites\nusers = daemon root\n\
                         uses = sign\n";
    const A: &str = "/var/lib/lockstep-keyd/sites/a/privkey.pem";
    const B: &str = "/var/lib/lockstep-keyd/sites/b/privkey.pem";
    const BEFORE: &str = "/etc/before.pem";
    let start = START.replace("'no key that this user'", "'^sites: '");
    let renewed = format!(
        "{start}\ncp {B} {BEFORE}\nopenssl genpkey -algorithm ED25519 -out /etc/live/next\n\
         mv /etc/live/next /etc/live/b/privkey.pem\n"
    );
    let after = |script: &str, more: &str| format!("{script}\n{more}");
    let waits = "LOCKSTEP keyd wait\n";
    let dropped = "for look in $(seq 300); do
        LOCKSTEP doctor --reference /etc/before.pem | grep -q 'other keys' && break
        sleep 0.1
    done";
    let mut rows: Vec<Verdict> = vec![
        ("one key", "", start.clone(), A, "ok ", "use to sign"),
        (
            "the first of several",
            "",
            start.clone(),
            A,
            "ok ",
            "use to sign",
        ),
        (
            "the second of several",
            "",
            start.clone(),
            B,
            "ok ",
            "use to sign",
        ),
        (
            "renewed, within grace",
            "grace = 3600\n",
            after(&renewed, waits),
            BEFORE,
            "ok ",
            "use to sign",
        ),
        (
            "a renewal under way",
            "",
            renewed.clone(),
            B,
            "ok ",
            "use to sign",
        ),
        (
            "renewed, after grace",
            "grace = 0\n",
            after(&after(&renewed, waits), dropped),
            BEFORE,
            "FAILED",
            "other keys under this name",
        ),
        ("down", "", String::new(), A, "FAILED", "cannot be reached"),
        (
            "hung",
            "",
            after(&start, "kill -STOP $pid"),
            A,
            "FAILED",
            "the key daemon did",
        ),
        (
            "another user's",
            "users = daemon\n",
            START.to_owned(),
            A,
            "FAILED",
            "does not let this user use it",
        ),
        (
            "to decrypt alone",
            "uses = decrypt\n",
            start.clone(),
            A,
            "warn",
            "to decrypt only",
        ),
    ];
    // `cargo xtask nightly packages` names a build of the release before.
    if let Some(previous) = std::env::var_os("LOCKSTEP_PREVIOUS") {
        let old = Path::new(&previous).join("lockstep").display().to_string();
        let start = start.replacen("LOCKSTEP", &old, 1);
        rows.push(("an old daemon", "", start, A, "ok ", "use to sign"));
    }
    for (name, lines, script, file, mark, words) in rows {
        system.key(
            "etc/live/a/privkey.pem",
            "RSA -pkeyopt rsa_keygen_bits:2048",
        );
        let _ = fs::remove_dir_all(system.at("etc/live/b"));
        if name != "one key" {
            let curve = "EC -pkeyopt ec_paramgen_curve:P-256";
            system.key("etc/live/b/privkey.pem", curve);
        }
        // Files that differ replace the usual ones.
        let mut conf = SITES.to_owned();
        for line in lines.lines() {
            let setting = line.split(' ').next().unwrap();
            let usual = SITES.lines().find(|usual| usual.starts_with(setting));
            conf = match usual {
                Some(usual) => conf.replace(usual, line),
                None => format!("{line}\n{conf}"),
            };
        }
        system.write(CONF, &conf);
        let lockstep = env!("CARGO_BIN_EXE_lockstep");
        let script = format!("{script}\nLOCKSTEP doctor --reference {file} || echo status 1");
        let script = script.replace("LOCKSTEP", lockstep);
        let (code, text) = system.enter(&["sh", "-euc", &script]);
        assert_eq!(code, 0, "{name}: {text}");
        let said = text.lines().find(|line| line.contains(" reference "));
        let said = said.unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(
            said.starts_with(mark) && said.contains(words),
            "{name}: {text}"
        );
        let has_failed = text.contains("status 1");
        assert_eq!(has_failed, mark == "FAILED", "{name}: {text}");
    }
}
