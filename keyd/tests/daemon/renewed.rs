//! Keys that are renewed while the daemon runs, as the usual programs do it. Each time the new key
//! is served soon and the previous one for a while, and a half written file does no harm.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use lockstep_remote::protocol::Offered;
use lockstep_remote::{Connection, Operation};
use lockstep_testkit::{TempDir, command};
use rustix::process::{Pid, Signal, kill_process};

use crate::site::{Daemon, own_user, wait_for};

/// Generated keys, and the files that the daemon reads.
struct Place {
    directory: TempDir,
}

/// The text of a key's file, and its public half.
struct Made {
    text: String,
    public: Vec<u8>,
}

impl Place {
    fn new() -> Place {
        let directory = TempDir::new("keyd-renewed");
        Place { directory }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Generates a key.
    fn make(&self) -> Made {
        let file = self.at("made");
        let openssl = |words: &[&str]| {
            let made = command("openssl", words)
                .current_dir(&*self.directory)
                .output();
            let made = made.expect("openssl");
            assert!(made.status.success(), "{made:?}");
            made.stdout
        };
        openssl(&["genpkey", "-algorithm", "ed25519", "-out", "made"]);
        let made = Made {
            public: openssl(&["pkey", "-in", "made", "-pubout", "-outform", "DER"]),
            text: fs::read_to_string(&file).expect("a file"),
        };
        fs::remove_file(file).expect("a file");
        made
    }

    /// Writes a file that only its owner can read.
    fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its own");
    }

    /// Replaces a link in one step.
    fn link(&self, name: &str, target: &str) {
        let fresh = self.at("fresh-link");
        symlink(target, &fresh).expect("a link");
        fs::rename(fresh, self.at(name)).expect("a link");
    }

    fn section(&self, file: &str, more: &str) -> String {
        let (file, user) = (self.at(file), own_user());
        let file = file.display();
        format!("[key site]\nfile = {file}\nusers = {user}\nuses = sign\n{more}")
    }
}

/// Returns the keys of the section for a client that connects now.
fn offered(daemon: &Daemon) -> (Connection, Vec<Offered>) {
    let connection = Connection::open(&daemon.socket()).expect("a daemon");
    let keys = connection.keys().iter().filter(|key| key.name == "site");
    let keys = keys.cloned().collect();
    (connection, keys)
}

fn wait_for_key(daemon: &Daemon, made: &Made) {
    wait_for("the key", || {
        let (_, keys) = offered(daemon);
        keys.iter().any(|key| key.public == made.public)
    });
}

/// Has a key sign, and the `openssl` command verify.
fn assert_signs(place: &Place, connection: &Connection, made: &Made) {
    let key = connection.key("site", &made.public).expect("the key");
    let signed = connection.ask(Operation::Ed25519Sign, key, b"message", 64);
    let signed = signed.expect("a signature");
    fs::write(place.at("signature"), &*signed).expect("a file");
    fs::write(place.at("message"), "message").expect("a file");
    fs::write(place.at("public"), &made.public).expect("a file");
    let words = "pkeyutl -verify -rawin -pubin -keyform DER -inkey public -in message -sigfile \
                 signature";
    let words: Vec<_> = words.split(' ').collect();
    let verified = command("openssl", &words)
        .current_dir(&*place.directory)
        .output();
    let verified = verified.expect("openssl");
    assert!(verified.status.success(), "{verified:?}");
}

/// Renews the first key several times by a function that gets the number. Each time both keys are
/// served at the same time, also over an older connection.
fn is_renewed(file: &str, first: impl Fn(&Place, &str), renew: impl Fn(&Place, &str, usize)) {
    let place = Place::new();
    let mut before = place.make();
    first(&place, &before.text);
    let daemon = Daemon::start(&place.section(file, ""));
    wait_for_key(&daemon, &before);
    for number in 1..4 {
        let (old, _) = offered(&daemon);
        let next = place.make();
        renew(&place, &next.text, number);
        wait_for_key(&daemon, &next);
        let (new, keys) = offered(&daemon);
        assert_eq!(keys.len(), number + 1);
        // An older client takes the first key of a name.
        assert_eq!(keys[0].public, next.public);
        assert_signs(&place, &new, &next);
        assert_signs(&place, &new, &before);
        assert_signs(&place, &old, &before);
        before = next;
    }
    // A search may have seen the moment without any file.
    wait_for("a line", || {
        let log = daemon.log();
        log.contains("the key site is renewed: ") || log.matches("holds the key site").count() > 1
    });
    assert!(
        !daemon.log().contains("warning: the key site"),
        "{}",
        daemon.log()
    );
}

#[test]
fn a_file_is_renamed_over_another() {
    let first = |place: &Place, text: &str| place.write("key.pem", text);
    is_renewed("key.pem", first, |place, text, _| {
        place.write("fresh", text);
        fs::rename(place.at("fresh"), place.at("key.pem")).expect("a file");
    });
}

#[test]
fn certbot_changes_links() {
    let link = |place: &Place, text: &str, number: usize| {
        let name = format!("archive/x/privkey{number}.pem");
        place.write(&name, text);
        let link = place.at("live/x/privkey.pem");
        let _ = fs::remove_file(&link);
        symlink(format!("../../{name}"), link).expect("a link");
    };
    let first = |place: &Place, text: &str| {
        fs::create_dir_all(place.at("live/x")).expect("a directory");
        place.write("live/README", "about");
        link(place, text, 0);
    };
    is_renewed("live/*/privkey.pem", first, link);
}

/// lego and acme.sh: the file stays, and is overwritten.
#[test]
fn a_file_is_written_anew_in_its_place() {
    let first = |place: &Place, text: &str| place.write("site.key", text);
    is_renewed("site.key", first, |place, text, _| {
        fs::write(place.at("site.key"), text).expect("a file");
    });
    is_renewed("*.key", first, |place, text, _| {
        place.write("copied", text);
        fs::copy(place.at("copied"), place.at("site.key")).expect("a file");
    });
}

/// Kubernetes: the files are links into a directory that a link leads to.
#[test]
fn cert_manager_changes_a_link_of_a_directory() {
    let first = |place: &Place, text: &str| {
        place.write("tls/..0/tls.key", text);
        place.link("tls/..data", "..0");
        place.link("tls/tls.key", "..data/tls.key");
    };
    is_renewed("tls", first, |place, text, number| {
        place.write(&format!("tls/..{number}/tls.key"), text);
        place.link("tls/..data", &format!("..{number}"));
        fs::remove_dir_all(place.at(&format!("tls/..{}", number - 1))).expect("a directory");
    });
}

#[test]
fn a_key_that_comes_later_is_taken_and_one_that_is_half_written_does_no_harm() {
    let place = Place::new();
    let daemon = Daemon::start(&place.section("later/*/key", ""));
    let made = place.make();
    place.write("later/a/key", &made.text);
    wait_for_key(&daemon, &made);
    let next = place.make();
    let file = place.at("later/a/key");
    for (length, why) in [
        (0, "there is no private key in the file"),
        (20, "there is no private key in the file"),
        (60, "the PEM block has no end"),
    ] {
        fs::write(&file, &next.text[..length]).expect("a file");
        let line = "the key site is served as it was before";
        let line = format!("{line}: {}: {why}", file.display());
        wait_for("a line", || daemon.log().contains(&line));
        assert_signs(&place, &offered(&daemon).0, &made);
    }
    fs::write(&file, &next.text).expect("a file");
    wait_for_key(&daemon, &next);
    // A file that others can write to is ignored.
    let third = place.make();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("its own");
    fs::write(&file, &third.text).expect("a file");
    wait_for("a line", || daemon.log().contains("can write to"));
    let (connection, keys) = offered(&daemon);
    assert!(keys.iter().all(|key| key.public != third.public));
    assert_signs(&place, &connection, &next);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its own");
    wait_for_key(&daemon, &third);
}

#[test]
fn a_key_leaves_when_its_time_is_over_also_from_those_who_had_it() {
    let place = Place::new();
    let [first, other] = [(); 2].map(|()| place.make());
    place.write("a.pem", &first.text);
    place.write("b.pem", &other.text);
    let daemon = Daemon::start(&format!("grace = 1\n{}", place.section("*.pem", "")));
    wait_for_key(&daemon, &first);
    let (connection, _) = offered(&daemon);
    assert_signs(&place, &connection, &first);
    fs::remove_file(place.at("a.pem")).expect("a file");
    wait_for("the end of the key", || offered(&daemon).1.len() == 1);
    wait_for("the end of the connection", || connection.is_gone());
    let (connection, keys) = offered(&daemon);
    assert_eq!(keys[0].public, other.public);
    assert!(connection.key("site", &first.public).is_err());
    assert_signs(&place, &connection, &other);
    wait_for("a line", || {
        daemon.log().contains("the key site, Ed25519, leaves")
    });
}

/// Returns the child of a process.
fn child_of(daemon: &Daemon) -> i32 {
    let file = daemon.about("").join("task");
    let threads = fs::read_dir(file).expect("a process").flatten();
    let children = threads.map(|thread| thread.path().join("children"));
    let children: String = children
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect();
    children.trim().parse().expect("one child")
}

#[test]
fn only_a_process_without_clients_may_read_files() {
    let place = Place::new();
    let first = place.make();
    place.write("key.pem", &first.text);
    let section = place.section("key.pem", "");
    let daemon = match own_user() {
        0 => Daemon::start_as(65534, &section),
        _ => Daemon::start(&section),
    };
    wait_for_key(&daemon, &first);
    let reader = child_of(&daemon);
    if own_user() == 0 {
        let status = fs::read_to_string(format!("/proc/{reader}/status")).expect("a process");
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a line")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line("Uid:"), "65534 65534 65534 65534");
        for (set, rights) in [
            ("CapPrm:", 4),
            ("CapEff:", 4),
            ("CapInh:", 0),
            ("CapAmb:", 0),
        ] {
            assert_eq!(line(set), format!("{rights:016x}"), "{set}");
        }
        assert_eq!(
            (line("NoNewPrivs:"), line("Threads:")),
            ("1".into(), "2".into())
        );
    }
    // Only root can enter the directory.
    let closed = Permissions::from_mode(0o700);
    fs::set_permissions(&*place.directory, closed).expect("its own");
    let next = place.make();
    place.write("key.pem", &next.text);
    wait_for_key(&daemon, &next);
    // Without the reader, the daemon serves its keys, and reports this.
    kill_process(Pid::from_raw(reader).expect("a process"), Signal::KILL).expect("a child");
    let line = "the process that looks for renewed keys has ended";
    wait_for("a line", || daemon.log().contains(line));
    assert_signs(&place, &offered(&daemon).0, &next);
    // The reader ends with the daemon.
    let daemon = Daemon::start(&section);
    let reader = format!("/proc/{}", child_of(&daemon));
    daemon.signal(Signal::KILL);
    wait_for("the end of the process", || {
        let status = fs::read_to_string(Path::new(&reader).join("status"));
        status.map_or(true, |status| status.contains("State:\tZ"))
    });
}

/// An attacker makes such a certificate to get the key out of its file.
#[test]
fn a_certificate_that_carries_its_key_is_not_copied() {
    let place = Place::new();
    let key = place.make();
    place.write("live/x/privkey.pem", &key.text);
    let openssl = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let mut openssl = command("openssl", &words);
        let made = openssl.current_dir(place.at("live/x")).output();
        let made = made.expect("openssl");
        assert!(made.status.success(), "{made:?}");
        made.stdout
    };
    let bytes = openssl("pkey -in privkey.pem -outform DER");
    let bytes: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    openssl("req -x509 -key privkey.pem -subj /CN=x -out cert.pem");
    openssl(&format!(
        "req -x509 -key privkey.pem -subj /CN=x -out leak.pem -addext 1.2.3.4=DER:04{:02x}{bytes}",
        bytes.len() / 2
    ));
    let more = format!("references = {}\n", place.at("references").display());
    let daemon = Daemon::start(&place.section("live/*/privkey.pem", &more));
    let read = |name: &str| fs::read(place.at("references/x").join(name)).ok();
    assert!(read("privkey.pem").is_some() && read("cert.pem").is_some());
    let line = "leak.pem: a certificate in it has a part of a private key";
    wait_for("a line", || daemon.log().contains(line));
    assert_eq!(read("leak.pem"), None);
}

#[test]
fn references_follow_their_keys_once_the_certificates_do() {
    let place = Place::new();
    let renew = |key: &Made| {
        place.write("made.key", &key.text);
        let words = "req -x509 -key made.key -subj /CN=x -days 9 -out made.crt".split(' ');
        let mut openssl = command("openssl", &words.collect::<Vec<_>>());
        let made = openssl
            .current_dir(&*place.directory)
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{made:?}");
        fs::read_to_string(place.at("made.crt")).expect("a file")
    };
    let first = place.make();
    place.write("live/x/fullchain.pem", &renew(&first));
    place.write("live/x/privkey.pem", &first.text);
    let more = format!("references = {}\n", place.at("references").display());
    // The daemon's user must be able to enter the directory.
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(&*place.directory, open).expect("its own");
    let daemon = match own_user() {
        0 => Daemon::start_as(65534, &place.section("live/*/privkey.pem", &more)),
        _ => Daemon::start(&place.section("live/*/privkey.pem", &more)),
    };
    // Both are there before the daemon serves.
    let read = |name: &str| fs::read_to_string(place.at("references/x").join(name));
    let public = || {
        let text = read("privkey.pem").expect("a reference");
        lockstep_remote::Reference::in_text(&text)
            .expect("a reference")
            .public
    };
    assert_eq!(public(), first.public, "{}", daemon.log());
    let mut before = read("fullchain.pem").expect("a certificate");
    for is_key_first in [true, false, true] {
        let next = place.make();
        let certificate = renew(&next);
        let files = [("privkey.pem", &next.text), ("fullchain.pem", &certificate)];
        let [(one, text), (other, its_text)] = match is_key_first {
            true => files,
            false => [files[1], files[0]],
        };
        let old = public();
        place.write(&format!("live/x/{one}"), text);
        if is_key_first {
            wait_for_key(&daemon, &next);
        }
        assert_eq!(
            (public(), read("fullchain.pem").ok()),
            (old, Some(before.clone()))
        );
        place.write(&format!("live/x/{other}"), its_text);
        wait_for("the reference", || public() == next.public);
        let after = read("fullchain.pem").expect("a certificate");
        assert!(after.ends_with(&certificate) && after != before, "{after}");
        before = after;
    }
    let log = daemon.log();
    assert!(!log.contains("warning: "), "{log}");
}
