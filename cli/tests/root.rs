//! Root's programs, used on files and services that a hostile user has prepared: no code of that
//! user ever runs as root, no part of a file that only root may read is shown, and no command waits
//! for ever.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockstep_testkit::{TempDir, command};

/// The command with these arguments, in an environment without settings.
fn lockstep(arguments: &[&str]) -> Command {
    command(env!("CARGO_BIN_EXE_lockstep"), arguments)
}

/// A user that no system has.
const USER: u32 = 54_321;
/// Content of a file that only root may read.
const SECRET: &str = "ROOTS-OWN-SECRET";
/// The most time that a command may take, by far.
const LONGEST: Duration = Duration::from_secs(100);

/// Traps of a hostile user.
struct Trap {
    place: TempDir,
}

/// A process of that user.
struct Hostile(Child);

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Result of a command: whether it ended in time, and its output.
struct Ended {
    status: Option<i32>,
    text: String,
}

impl Trap {
    /// `None`, with a line, where it cannot be set.
    fn new(purpose: &str) -> Option<Trap> {
        if !rustix::process::getuid().is_root() {
            println!("skipped: the tests do not run as root");
            return None;
        }
        if !Command::new("cc")
            .arg("--version")
            .output()
            .is_ok_and(|cc| cc.status.success())
        {
            println!("skipped: there is no C compiler");
            return None;
        }
        let trap = Trap {
            place: TempDir::new(purpose),
        };
        trap.own("record", "", 0o666);
        let record = format!("-DRECORD=\"{}\"", trap.at("record").display());
        trap.compile("hostile.c", "hostile", &[]);
        fs::create_dir(trap.at("theirs")).unwrap();
        trap.compile(
            "planted.c",
            "theirs/lockstep.so",
            &["-shared", "-fPIC", &record],
        );
        trap.own(
            "secret.cnf",
            &format!(
                "openssl_conf = i\ncurves {SECRET} \n[i]\nssl_conf = s\n[s]\nsystem_default = d\n\
                 [d]\nGroups = {SECRET}\n{SECRET}\n"
            ),
            0o600,
        );
        trap.theirs("theirs/openssl.cnf", &trap.naming("lockstep"));
        chown(trap.at("theirs"), Some(USER), Some(USER)).unwrap();
        // It is one: for this user it runs.
        let mut command = Command::new("openssl");
        command.args(["list", "-providers"]);
        command.env("OPENSSL_CONF", trap.at("theirs/openssl.cnf"));
        std::os::unix::process::CommandExt::uid(&mut command, USER);
        command.output().unwrap();
        let ran = trap.record();
        assert!(
            ran.contains(&format!("{USER} {USER}")),
            "the module is none: {ran}"
        );
        fs::write(trap.at("record"), "").unwrap();
        Some(trap)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.join(path)
    }

    fn own(&self, path: &str, text: &str, mode: u32) {
        fs::write(self.at(path), text).unwrap();
        fs::set_permissions(self.at(path), Permissions::from_mode(mode)).unwrap();
    }

    fn theirs(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        chown(&path, Some(USER), Some(USER)).unwrap();
    }

    /// A configuration that has a program load the module, as a provider and as an engine.
    fn naming(&self, name: &str) -> String {
        let module = self.at("theirs/lockstep.so");
        let module = module.display();
        format!(
            "openssl_conf = i\n[i]\nproviders = p\nengines = e\n[p]\ndefault = d\n{name} = l\n[d]\n\
             activate = 1\n[l]\nmodule = {module}\nactivate = 1\n[e]\nx = y\n[y]\n\
             dynamic_path = {module}\n"
        )
    }

    fn compile(&self, source: &str, program: &str, options: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/root")
            .join(source);
        let mut cc = Command::new("cc");
        cc.args(options).arg("-o").arg(self.at(program)).arg(source);
        assert!(cc.status().unwrap().success(), "{cc:?}");
    }

    /// Returns the users that have run the module.
    fn record(&self) -> String {
        fs::read_to_string(self.at("record")).unwrap()
    }

    fn start(&self, conf: &str, map: &str, root: &str, words: &[String]) -> Hostile {
        let environment = self.at("environment");
        fs::write(&environment, format!("OPENSSL_CONF={conf}")).unwrap();
        let environment = match conf {
            "" => "-".into(),
            _ => environment.into_os_string(),
        };
        let mut command = Command::new(self.at("hostile"));
        command
            .arg(USER.to_string())
            .arg(environment)
            .args([map, root])
            .args(words);
        command.env_clear().env("ROOM", "x".repeat(3000));
        command
            .current_dir(self.at("theirs"))
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Hostile(child)
    }

    /// Runs one of root's commands, and checks its effects.
    #[track_caller]
    fn run(&self, what: &str, command: &mut Command) -> Ended {
        let mut command = {
            let mut limited = Command::new("timeout");
            limited.args(["--kill-after=1", &LONGEST.as_secs().to_string()]);
            limited.arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => limited.env(name, value),
                    None => limited.env_remove(name),
                };
            }
            limited
        };
        let began = Instant::now();
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(began.elapsed() < LONGEST, "{what}: it does not end\n{text}");
        let ran = self.record();
        let by_root = ran
            .lines()
            .any(|line| line.split(' ').any(|user| user == "0"));
        assert!(
            !by_root,
            "{what}: root has run a module of another user\n{text}"
        );
        assert!(
            !text.contains(SECRET),
            "{what}: root shows what only root may read\n{text}"
        );
        let is_odd = |c: char| c.is_control() && c != '\n';
        assert!(
            !text.contains(is_odd),
            "{what}: a terminal is told to do something\n{text:?}"
        );
        Ended {
            status: output.status.code(),
            text,
        }
    }

    fn doctor(&self, what: &str, hostile: &Hostile) -> Ended {
        let pid = hostile.0.id().to_string();
        let ended = self.run(what, &mut lockstep(&["doctor", "--pid", &pid]));
        assert!(
            matches!(ended.status, Some(0 | 1)),
            "{what}: {}",
            ended.text
        );
        // A command that waits once would wait again.
        if !what.contains("fifo") {
            let json = self.run(what, &mut lockstep(&["doctor", "--json", "--pid", &pid]));
            assert!(json.text.starts_with('{'), "{what}: {}", json.text);
        }
        ended
    }
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn no_configuration_of_a_process_has_root_run_or_show_anything() {
    let Some(trap) = Trap::new("root-conf") else {
        return;
    };
    let theirs = |name: &str| trap.at("theirs").join(name).display().to_string();
    let secret = trap.at("secret.cnf");
    symlink(theirs("openssl.cnf"), theirs("link.cnf")).unwrap();
    symlink(&secret, theirs("to-secret.cnf")).unwrap();
    fifo(Path::new(&theirs("fifo.cnf")));
    let including = |file: &str| format!(".include = {file}\n{}", trap.naming("lockstep"));
    for (name, included) in [
        ("including", theirs("openssl.cnf")),
        ("including-secret", secret.display().to_string()),
        ("including-link", theirs("to-secret.cnf")),
        ("including-fifo", theirs("fifo.cnf")),
        ("including-zeros", "/dev/zero".to_owned()),
        ("including-all", trap.at("theirs").display().to_string()),
    ] {
        trap.theirs(&format!("theirs/{name}.conf"), &including(&included));
    }
    let policy = "[i]\nssl_conf = s\n[s]\nsystem_default = d\n[d]\nGroups = nonesuch:X25519\n";
    trap.theirs(
        "theirs/policy.conf",
        &format!("{}{policy}", trap.naming("lockstep")),
    );
    trap.theirs("theirs/other.conf", &trap.naming("a\u{202e}"));
    trap.theirs(
        "theirs/escape.conf",
        &trap
            .naming("lockstep")
            .replace("x = y", "\u{1b}[2J = \u{1b}[2J"),
    );
    for name in [
        "openssl.cnf",
        "link.cnf",
        "to-secret.cnf",
        "fifo.cnf",
        "including.conf",
        "including-secret.conf",
        "including-link.conf",
        "including-fifo.conf",
        "including-zeros.conf",
        "including-all.conf",
        "policy.conf",
        "other.conf",
        "escape.conf",
        "",
        "none.cnf\u{1b}[2J",
    ] {
        let hostile = trap.start(&theirs(name), "-", "-", &[]);
        let ended = trap.doctor(name, &hostile);
        assert!(ended.text.contains("process"), "{}", ended.text);
    }
    // The same holds for processes that started with it and did not overwrite their environment.
    for name in ["openssl.cnf", "including.conf"] {
        let mut command = Command::new("sleep");
        command.arg("1000").env("OPENSSL_CONF", theirs(name));
        std::os::unix::process::CommandExt::uid(&mut command, USER);
        let hostile = Hostile(command.spawn().unwrap());
        trap.doctor(name, &hostile);
    }
    // One that seems to use the system's libcrypto, so that only the module is missing.
    let libcrypto = Path::new("/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
    if libcrypto.exists() {
        for name in ["openssl.cnf", "policy.conf"] {
            let map = libcrypto.display().to_string();
            let hostile = trap.start(&theirs(name), &map, "-", &[]);
            let ended = trap.doctor(name, &hostile);
            assert!(
                ended.text.contains("has not loaded the module"),
                "{}",
                ended.text
            );
        }
    }
    // The report still names the module of that user.
    let hostile = trap.start(&theirs("openssl.cnf"), "-", "-", &[]);
    let ended = trap.doctor("openssl.cnf", &hostile);
    let expected = format!("names {}", theirs("lockstep.so"));
    assert!(ended.text.contains(&expected), "{}", ended.text);
    assert_eq!(trap.record(), "", "nobody has run it");
}

#[test]
fn no_file_that_a_process_names_or_maps_is_read_with_the_rights_of_root() {
    let Some(trap) = Trap::new("root-files") else {
        return;
    };
    let theirs = |name: &str| trap.at("theirs").join(name).display().to_string();
    let secret = trap.at("secret.cnf").display().to_string();
    symlink(&secret, theirs("secret")).unwrap();
    fifo(Path::new(&theirs("fifo")));
    symlink("/dev/zero", theirs("zeros")).unwrap();
    let site = format!(
        "curves nonesuch\ncrt {} crt-base {}\nkey {}\ncert {secret}\n",
        theirs("fifo"),
        theirs(""),
        theirs("zeros"),
    );
    trap.theirs("theirs/site.conf", &site);
    trap.theirs("theirs/many.conf", &"curves a:b:c:d:e:f:g\n".repeat(20_000));
    let words = ["secret", "fifo", "zeros", "site.conf", "many.conf", "."].map(&theirs);
    let relative = ["secret", "../secret.cnf", "site.conf", "\u{1b}[2J"].map(str::to_owned);
    let of_root = ["/etc/shadow".to_owned(), secret.clone()];
    for words in [&words[..], &relative[..], &of_root[..]] {
        let hostile = trap.start(&theirs("openssl.cnf"), "-", "-", words);
        let ended = trap.doctor(&words.join(" "), &hostile);
        let is_read = words.iter().any(|word| word.ends_with("site.conf"));
        assert_eq!(
            ended.text.contains("`nonesuch` of `curves`"),
            is_read,
            "{}",
            ended.text
        );
    }
    // Counters that are none, under a name that tells a terminal something.
    let directory = "theirs/\u{1b}[2J";
    for file in ["1-1-0.counters", "lockstep.so"] {
        trap.theirs(&format!("{directory}/{file}"), "text");
        let map = trap
            .at(&format!("{directory}/{file}"))
            .display()
            .to_string();
        let hostile = trap.start(&theirs("openssl.cnf"), &map, "-", &[]);
        let path = trap.at(&format!("{directory}/{file}"));
        trap.doctor(file, &hostile);
        fs::remove_file(&path).unwrap();
        fifo(&path);
        trap.doctor(&format!("{file}, a pipe by now"), &hostile);
    }
    assert_eq!(trap.record(), "", "nobody has run the module");
}

/// A process in a mount namespace and with a root directory of its own, in which links lead out.
#[test]
fn no_link_leads_out_of_the_root_of_a_process() {
    let Some(trap) = Trap::new("root-chroot") else {
        return;
    };
    let secret = trap.at("secret.cnf");
    let inside = |name: &str| trap.at("theirs/root").join(name);
    trap.theirs("theirs/root/openssl.cnf", &trap.naming("lockstep"));
    trap.theirs("theirs/root/openssl.so", "");
    symlink(&secret, inside("secret.cnf")).unwrap();
    symlink("../../../../../../../../etc/shadow", inside("up.cnf")).unwrap();
    trap.theirs(
        "theirs/root/including.cnf",
        &format!(".include = {}\n", secret.display()),
    );
    trap.theirs("theirs/root/site.cnf", "curves nonesuch\n");
    for name in ["/openssl.cnf", "/secret.cnf", "/up.cnf", "/including.cnf"] {
        let words = [name, "/secret.cnf", "/site.cnf"].map(str::to_owned);
        let root = trap.at("theirs/root").display().to_string();
        let hostile = trap.start(name, "-", &root, &words);
        let ended = trap.doctor(name, &hostile);
        // It is seen where the process sees it.
        assert!(
            ended.text.contains("`nonesuch` of `curves` in /site.cnf"),
            "{}",
            ended.text
        );
    }
    assert_eq!(trap.record(), "", "nobody has run the module");
}

/// Files and variables of other users that root's own commands meet: in the environment, in shared
/// directories, and in files of another user.
#[test]
fn no_command_of_root_runs_what_another_user_can_change() {
    let Some(trap) = Trap::new("root-own") else {
        return;
    };
    let theirs = |name: &str| trap.at("theirs").join(name);
    trap.own(
        "including.cnf",
        &format!(".include = {}\n", theirs("openssl.cnf").display()),
        0o644,
    );
    trap.own("naming.cnf", &trap.naming("lockstep"), 0o644);
    symlink(theirs("openssl.cnf"), trap.at("link.cnf")).unwrap();
    let own = ["including.cnf", "naming.cnf", "link.cnf"].map(|name| trap.at(name));
    for conf in own.into_iter().chain([theirs("openssl.cnf")]) {
        let shown = conf.display().to_string();
        let ended = trap.run(&shown, lockstep(&["doctor"]).env("OPENSSL_CONF", &conf));
        assert_eq!(ended.status, Some(1), "{}", ended.text);
        assert!(
            ended.text.contains("others than root can change"),
            "{}",
            ended.text
        );
        let mut install = lockstep(&["install", "--server", "nginx", "--dry-run", "--conf"]);
        trap.run(&shown, install.arg(&conf));
        let root = trap.at("system");
        fs::create_dir_all(root.join("etc")).unwrap();
        let mut install = lockstep(&["install", "--server", "nginx", "--dry-run", "--root"]);
        trap.run(&shown, install.arg(&root).env("OPENSSL_CONF", &conf));
        let mut make = lockstep(&["configuration", "--from"]);
        trap.run(
            &shown,
            make.arg(&conf).arg("--module").arg(theirs("lockstep.so")),
        );
    }
    // Programs, and a place for files, of another user's.
    let record = trap.at("record");
    for name in ["openssl", "systemctl", "nginx", "unshare", "setpriv", "sh"] {
        let program = format!("#!/bin/sh\n/usr/bin/id -u >> {}\n", record.display());
        trap.theirs(&format!("theirs/bin/{name}"), &program);
        fs::set_permissions(theirs("bin").join(name), Permissions::from_mode(0o755)).unwrap();
    }
    chown(theirs("bin"), Some(USER), None).unwrap();
    let usual = std::env::var("PATH").unwrap();
    let path = format!("{}::.:{usual}", theirs("bin").display());
    let system = trap.at("system");
    let hostile = trap.start(&theirs("openssl.cnf").display().to_string(), "-", "-", &[]);
    let pid = hostile.0.id().to_string();
    let root = system.to_str().unwrap();
    for arguments in [
        &["doctor"][..],
        &["doctor", "--pid", &pid],
        &["doctor", "--service", "nginx"],
        &["stat"],
        &["uninstall", "--dry-run"],
        &["install", "--server", "nginx", "--keyd", "--dry-run"],
        &["install", "--server", "nginx", "--dry-run", "--root", root],
        &["keyd", "check"],
    ] {
        let mut command = lockstep(arguments);
        command
            .env("PATH", &path)
            .env("TMPDIR", theirs(""))
            .current_dir(theirs("bin"));
        trap.run(&arguments.join(" "), &mut command);
    }
}

/// Counters of another user, and files that are none in their places.
#[test]
fn what_another_user_publishes_only_counts() {
    let Some(trap) = Trap::new("root-stat") else {
        return;
    };
    let place = PathBuf::from(format!("/dev/shm/lockstep-{USER}"));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    fifo(&place.join("1-1-0.counters"));
    symlink(trap.at("secret.cnf"), place.join("2-1-0.counters")).unwrap();
    symlink("/dev/zero", place.join("3-1-0.counters")).unwrap();
    fs::write(place.join("4-1-0.counters"), "\u{1b}[2J".repeat(100_000)).unwrap();
    let sparse = fs::File::create(place.join("5-1-0.counters")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    chown(&place, Some(USER), Some(USER)).unwrap();
    for arguments in [&["stat"][..], &["stat", "--json"], &["doctor"]] {
        trap.run(&arguments.join(" "), &mut lockstep(arguments));
    }
    let reference = trap.at("theirs/reference.pem");
    fifo(&reference);
    for path in [&reference, Path::new("/dev/zero"), &trap.at("theirs")] {
        let mut command = lockstep(&["doctor", "--reference"]);
        let ended = trap.run(&path.display().to_string(), command.arg(path));
        assert_eq!(ended.status, Some(1), "{}", ended.text);
    }
    fs::remove_dir_all(&place).unwrap();
}

/// A page of the manual lists the programs that root starts, and the files that it opens with its
/// own rights.
#[test]
fn all_that_root_starts_and_opens_is_in_the_manual() {
    let Some(trap) = Trap::new("root-list") else {
        return;
    };
    if !Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|strace| strace.status.success())
    {
        println!("skipped: there is no strace");
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/user/root.md");
    let page = fs::read_to_string(page).unwrap();
    let listed = |heading: &str| -> Vec<String> {
        let (_, section) = page.split_once(heading).expect(heading);
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        let names = cells.flat_map(|cell| cell.split('`').step_by(2));
        names
            .map(str::trim)
            .filter(|name| {
                name.starts_with('/') || name.starts_with("lockstep") || name.starts_with("openssl")
            })
            .map(str::to_owned)
            .collect()
    };
    let programs = listed("## Programs that root starts");
    let files = listed("## Files that root opens");
    assert!(
        programs.len() > 1 && files.len() > 5,
        "{programs:?} {files:?}"
    );
    let theirs = trap.at("theirs/openssl.cnf").display().to_string();
    let hostile = trap.start(&theirs, "-", "-", &["site.conf".to_owned()]);
    trap.theirs("theirs/site.conf", "curves nonesuch\n");
    let pid = hostile.0.id().to_string();
    let log = trap.at("strace");
    for arguments in [&["doctor", "--pid", &pid][..], &["stat"]] {
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-qq",
            "-y",
            "-e",
            "trace=execve,execveat,openat,open,openat2,setresuid",
        ]);
        command.arg("-o").arg(&log);
        let program = lockstep(arguments);
        command.arg(program.get_program()).args(program.get_args());
        // Of cargo, for tests.
        command.env_remove("LD_LIBRARY_PATH");
        let ended = trap.run(&arguments.join(" "), &mut command);
        let text = fs::read_to_string(&log).unwrap();
        if !text.contains("execve(") {
            println!("skipped: strace sees nothing here: {}", ended.text);
            return;
        }
        check_calls(&text, &programs, &files, trap.place.to_str().unwrap());
    }
}

/// Looks at the calls of programs that strace has seen.
#[track_caller]
fn check_calls(text: &str, programs: &[String], files: &[String], trap: &str) {
    let (mut of_others, mut wrong, mut first, mut seen) =
        (BTreeSet::new(), BTreeSet::new(), true, 0);
    for line in text.lines() {
        let Some((process, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        // From here on it runs as another user, and may see the same as that user.
        if call.starts_with(&format!("setresuid({USER}")) {
            of_others.insert(process);
        }
        if of_others.contains(process) {
            assert!(!call.starts_with("execve"), "{call}");
            continue;
        }
        let Some(path) = call.split('"').nth(1) else {
            continue;
        };
        // The directory in angle brackets is the start of a relative path.
        let directory = call
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once(">, \""));
        let path = match (path.starts_with('/'), directory) {
            (false, Some((directory, _))) => format!("{directory}/{}", path.trim_matches('.')),
            _ => path.to_owned(),
        };
        let path = path.trim_end_matches('/');
        let matches = |pattern: &String| match pattern.split_once('*') {
            Some((before, after)) => path.starts_with(before) && path.ends_with(after),
            None => path == pattern,
        };
        if call.starts_with("exec") {
            let name = path.rsplit('/').next().unwrap_or(path);
            let is_listed = path == "/proc/self/exe"
                || programs.iter().any(|known| known == name || known == path);
            if !first && !is_listed {
                wrong.insert(call);
            }
            first = false;
        } else if call.starts_with("open") && !call.contains("O_PATH") {
            // The directory of the client's own configuration is root's.
            let is_own = path.starts_with("/tmp/lockstep-doctor") && !path.starts_with(trap);
            let is_listed = !path.starts_with(trap) && files.iter().any(matches);
            if !is_own && !is_listed {
                wrong.insert(call);
            }
            seen += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "not in the lists of docs/user/root.md: {wrong:#?}"
    );
    assert!(seen > 10, "{text}");
}
