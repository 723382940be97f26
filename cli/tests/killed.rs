//! `lockstep install` and `uninstall`, killed before each system call that changes the disk, or
//! without room for it: one `uninstall` makes all as it was, names, bytes and modes.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lockstep_testkit::{command, copy_program, run};

/// The calls that change a disk. Not each machine has all.
const CALLS: &str = "?open,?openat,?creat,?mkdir,?mkdirat,?rename,?renameat,?renameat2,?link,\
                     ?linkat,?symlink,?symlinkat,?unlink,?unlinkat,?rmdir,?chmod,?fchmod,\
                     ?fchmodat,?chown,?fchown,?fchownat,?write,?pwrite64,?writev,?truncate,\
                     ?ftruncate,?fallocate,?fsync,?fdatasync";

/// Modes of all files and directories under the root, and the contents of files.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// A root, and the command with its module.
struct Place {
    directory: PathBuf,
    root: PathBuf,
    program: PathBuf,
}

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The command is killed before the call.
    Kill,
    /// There is no room.
    NoRoom,
}

/// A call that changes something under the root: its name, and how many of this name came before
/// it, and itself.
struct Point {
    call: String,
    number: usize,
    line: String,
}

impl Point {
    /// Whether the call needs room on the disk. A removal does on a few file systems.
    fn needs_room(&self) -> bool {
        !self.call.starts_with("rmdir") && !self.line.contains("AT_REMOVEDIR")
    }
}

impl Place {
    /// `None`, with a line, where nothing can be traced.
    fn new(name: &str) -> Option<Place> {
        let traced = command("strace", &["-o", "/dev/null", "true"]).output();
        if !traced.is_ok_and(|traced| traced.status.success()) {
            println!("skipped: strace is not installed, or may not trace");
            return None;
        }
        // Not in /tmp, which services do not see.
        let directory = format!("/dev/shm/lockstep-killed-{}-{name}", std::process::id());
        let directory = PathBuf::from(directory);
        let _ = fs::remove_dir_all(&directory);
        let place = Place {
            root: directory.join("root"),
            program: directory.join("prefix/lockstep"),
            directory,
        };
        let text = "[Service]\nEnvironment=OPENSSL_CONF=/etc/ssl/own.cnf\nExecStart=/usr/bin/m\n";
        place.write("lib/systemd/system/mosquitto.service", text);
        place.write("etc/ssl/own.cnf", "openssl_conf = i\n[i]\n");
        let text = "[Service]\nExecStart=/usr/sbin/nginx\n";
        place.write("lib/systemd/system/nginx.service", text);
        place.write("etc/haproxy/haproxy.cfg", "global\n maxconn 2000\n");
        let text = "[Service]\nEnvironment=\"CONFIG=/etc/haproxy/haproxy.cfg\" \
                    \"EXTRAOPTS=-S /run/m.sock\"\nEnvironmentFile=-/etc/default/haproxy\nLimitNOFILE=20000\n\
                    ExecStart=/usr/sbin/haproxy -Ws -f $CONFIG -p /run/p $EXTRAOPTS\n";
        place.write("lib/systemd/system/haproxy.service", text);
        for directory in [
            "etc/systemd/system",
            "etc/nginx/modules-enabled",
            "var/lib",
            "../prefix",
        ] {
            let directory = place.root.join(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        }
        copy_program(Path::new(env!("CARGO_BIN_EXE_lockstep")), &place.program);
        // As much of a shared library as is looked at without loading it.
        let mut header = [0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 62;
        fs::write(place.program.with_file_name("lockstep.so"), header).unwrap();
        Some(place)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree(&self) -> Tree {
        let mut found = Tree::new();
        let mut waiting = vec![self.root.clone()];
        while let Some(path) = waiting.pop() {
            let about = fs::symlink_metadata(&path).unwrap();
            let bytes = match about.is_dir() {
                true => {
                    let entries = fs::read_dir(&path).unwrap();
                    waiting.extend(entries.map(|entry| entry.unwrap().path()));
                    Vec::new()
                }
                false => fs::read(&path).unwrap(),
            };
            let path = path.strip_prefix(&self.root).unwrap().to_owned();
            found.insert(path, (about.permissions().mode(), bytes));
        }
        found
    }

    /// Runs the command, behind a program that starts it if there is one.
    fn output(&self, behind: &[&str], words: &[&str]) -> Output {
        let mut all = behind.to_vec();
        all.push(self.program.to_str().unwrap());
        all.extend(words);
        let mut command = command(all[0], &all[1..]);
        // A mask that would keep others from reading.
        command.args(["--root", self.root.to_str().unwrap()]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$@\"", "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        shell.output().unwrap()
    }

    fn lockstep(&self, words: &[&str]) -> (Option<i32>, String) {
        ended(self.output(&[], words))
    }

    /// The calls of a command that change something under the root.
    fn points(&self, words: &[&str]) -> Vec<Point> {
        let log = self.directory.join("log");
        let trace = format!("trace={CALLS}");
        let behind = [
            "strace",
            "-y",
            "-s0",
            "-o",
            log.to_str().unwrap(),
            "-e",
            &trace,
        ];
        let (code, text) = ended(self.output(&behind, words));
        assert_eq!(code, Some(0), "{text}");
        let mut numbers = BTreeMap::<String, usize>::new();
        let mut points = Vec::new();
        for line in fs::read_to_string(log).unwrap().lines() {
            let Some((call, rest)) = line.split_once('(') else {
                continue;
            };
            let number = numbers.entry(call.to_owned()).or_default();
            *number += 1;
            let is_change = !call.starts_with("open") || rest.contains("O_CREAT");
            let is_made = !rest.contains(" = -1 ");
            if is_change && is_made && rest.contains(self.root.to_str().unwrap()) {
                points.push(Point {
                    call: call.to_owned(),
                    number: *number,
                    line: line.to_owned(),
                });
            }
        }
        points
    }

    /// Runs a command whose call at a point ends so.
    fn at(&self, point: &Point, fault: Fault, words: &[&str]) -> (Option<i32>, String) {
        let fault = match fault {
            Fault::Kill => "signal=KILL",
            Fault::NoRoom => "error=ENOSPC",
        };
        let Point { call, number, .. } = point;
        let inject = format!("inject={call}:{fault}:when={number}");
        let trace = format!("trace={call}");
        let behind = ["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        ended(self.output(&behind, words))
    }

    /// One `uninstall` makes all as it was, although it is not told of which service.
    #[track_caller]
    fn is_undone(&self, before: &Tree, after: &str) {
        let (code, text) = self.lockstep(&["uninstall"]);
        let tree = self.tree();
        let names = |tree: &Tree, other: &Tree| -> Vec<String> {
            let odd = tree
                .iter()
                .filter(|(path, own)| other.get(*path) != Some(own));
            odd.map(|(path, _)| path.display().to_string()).collect()
        };
        let (more, less) = (names(&tree, before), names(before, &tree));
        assert!(
            code == Some(0) && more.is_empty() && less.is_empty(),
            "{after}: too much or other: {more:?}, too little or other: {less:?}\n{text}"
        );
    }

    /// Ends a service's `install` and `uninstall` at each call. `daemon` stands in for the key
    /// daemon meanwhile.
    fn end_everywhere(&self, install: &[&str], daemon: fn(&Place)) {
        let before = self.tree();
        let uninstall = &["uninstall"][..];
        let installed = || {
            let (code, text) = self.lockstep(install);
            assert_eq!(code, Some(0), "{text}");
            daemon(self);
        };
        // As another configuration would have it.
        let other = || {
            installed();
            for (path, (_, bytes)) in self.tree() {
                if path.ends_with("zz-lockstep.conf") {
                    let text = String::from_utf8(bytes).unwrap();
                    let text = text.replace("/etc/lockstep/", "/etc/other/");
                    self.write(path.to_str().unwrap(), &text);
                }
            }
        };
        let (mut killed, mut seen, mut refused) = (0, 0, 0);
        let starts: [(&[&str], &dyn Fn()); 3] = [
            (install, &|| {}),
            (install, &other),
            (uninstall, &installed),
        ];
        for (words, begin) in starts {
            begin();
            let points = self.points(words);
            self.is_undone(&before, "a whole command");
            for (index, point) in points.iter().enumerate() {
                for fault in [Fault::Kill, Fault::NoRoom] {
                    if fault == Fault::NoRoom && !point.needs_room() {
                        continue;
                    }
                    begin();
                    let start = self.tree();
                    let (code, text) = self.at(point, fault, words);
                    let after = format!("{words:?} before {}", point.line);
                    match fault {
                        Fault::Kill => {
                            assert_eq!(code, None, "{after} is not killed: {text}");
                            killed += 1;
                            seen += usize::from(self.tree() != before);
                        }
                        // All is done or, at least by `install`, nothing.
                        Fault::NoRoom => {
                            let is_undone = self.tree() == start;
                            let is_told = text.contains("what was done before was undone");
                            assert!(code == Some(0) || !is_told || is_undone, "{after}: {text}");
                            refused += usize::from(code != Some(0) && is_undone);
                        }
                    }
                    // Somebody may try again first.
                    if words == install && index % 3 == 0 {
                        installed();
                    }
                    self.is_undone(&before, &format!("{after}, {text}"));
                }
            }
        }
        println!("{killed} times killed, {seen} left something, {refused} without room");
        // The test has reached enough points.
        assert!(killed > 30 && seen > 25 && refused > 15);
    }
}

fn ended(output: Output) -> (Option<i32>, String) {
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().filter(|code| *code < 128),
        String::from_utf8(text).unwrap(),
    )
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn no_end_of_a_command_for_haproxy_leaves_anything() {
    let Some(place) = Place::new("haproxy") else {
        return;
    };
    place.end_everywhere(&["install", "--service", "haproxy"], |place| {
        assert!(place.root.join("etc/lockstep/haproxy-global.cfg").exists());
    });
}

/// No file that is known by its path alone says that there is something of this service.
#[test]
fn no_end_of_a_command_for_another_unit_leaves_anything() {
    let Some(place) = Place::new("unit") else {
        return;
    };
    place.end_everywhere(&["install", "--service", "mosquitto"], |_| {});
}

const KEYD: [&str; 8] = [
    "install",
    "--service",
    "nginx",
    "--keyd",
    "--key",
    "/etc/ssl/a.key",
    "--user",
    "www-data",
];

/// A place with a key, and with a configuration of the daemon's that is the administrator's.
fn with_key(name: &str) -> Option<Place> {
    let place = Place::new(name)?;
    let key = place.root.join("etc/ssl/a.key");
    let mut openssl = Command::new("openssl");
    openssl.args(["genpkey", "-algorithm", "ED25519", "-out"]);
    assert_eq!(run(openssl.arg(key)).0, 0);
    place.write("etc/lockstep/keyd.conf", "# Mine, without a last line end");
    let conf = place.root.join("etc/lockstep/keyd.conf");
    fs::set_permissions(conf, Permissions::from_mode(0o640)).unwrap();
    Some(place)
}

/// Writes references, as a daemon that is killed leaves them.
fn references(place: &Place) {
    let directory = "var/lib/lockstep-keyd/nginx/nginx-ssl-a";
    place.write(&format!("{directory}/a.key"), "Reference to the key a");
    place.write(&format!("{directory}/.a.key.new"), "Refer");
    fs::create_dir_all(place.root.join(directory).join("empty")).unwrap();
}

#[test]
fn no_end_of_a_command_for_the_key_daemon_leaves_anything() {
    let Some(place) = with_key("keyd") else {
        return;
    };
    place.end_everywhere(&KEYD, references);
}

/// A file that somebody has changed since is theirs.
#[test]
fn a_file_that_was_changed_after_a_kill_stays() {
    let Some(place) = Place::new("changed") else {
        return;
    };
    let install = ["install", "--service", "mosquitto"];
    let points = place.points(&install);
    place.lockstep(&["uninstall"]);
    let before = place.tree();
    let mark = points
        .iter()
        .rfind(|point| point.line.contains(".unfinished"));
    place.at(mark.expect("a mark"), Fault::Kill, &install);
    let drop_in = "etc/systemd/system/mosquitto.service.d/zz-lockstep.conf";
    let changed = fs::read_to_string(place.root.join(drop_in)).unwrap() + "Nice=1\n";
    place.write(drop_in, &changed);
    let (code, text) = place.lockstep(&["uninstall"]);
    assert!(code == Some(1) && text.contains("is not as"), "{text}");
    assert_eq!(
        fs::read_to_string(place.root.join(drop_in)).unwrap(),
        changed
    );
    fs::remove_dir_all(place.root.join(drop_in).parent().unwrap()).unwrap();
    let (code, text) = place.lockstep(&["uninstall", "--service", "mosquitto"]);
    assert!(code == Some(0) && place.tree() == before, "{text}");
}

/// An administrator may not know of the first command.
#[test]
fn a_command_for_another_service_tells_of_one_that_was_killed() {
    let Some(place) = Place::new("told") else {
        return;
    };
    let before = place.tree();
    place.write("etc/lockstep/mosquitto.unfinished", "");
    let (code, text) = place.lockstep(&["install", "--service", "haproxy"]);
    assert_eq!(code, Some(0), "{text}");
    let told = "note: a command for mosquitto was killed";
    assert!(text.contains(told), "{text}");
    assert!(text.contains("uninstall --server mosquitto"), "{text}");
    place.is_undone(&before, "a mark");
}
