use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use lockstep_testkit::TempDir;

use super::*;

const GRACE: Duration = Duration::from_secs(1000);

struct Fixture {
    place: TempDir,
    directory: ReferenceDir,
    start: Instant,
}

impl Fixture {
    fn new() -> Fixture {
        let place = TempDir::new("directory");
        prepare(&place.join("refs"), None).expect("a directory");
        let pattern = Pattern::new("/live/*/key.pem".as_ref());
        let directory = ReferenceDir::new(place.join("refs"), pattern, GRACE);
        let start = Instant::now();
        #[rustfmt::skip]
        let fixture = Fixture { place, directory, start };
        fixture
    }

    /// Changes a file `later` seconds after the start.
    fn note(&mut self, name: &str, text: Option<(&str, u8)>, later: u64) {
        let is_key = name.ends_with("key.pem");
        let text = text.map(|(text, public)| Text {
            text: match is_key {
                true => format!("{REFERENCE}{text}"),
                false => text.to_owned(),
            },
            public: vec![public],
            is_key,
        });
        let now = self.start + Duration::from_secs(later);
        self.directory
            .note(&Path::new("/live").join(name), text, now);
    }

    fn show(&mut self, later: u64) -> Vec<String> {
        let now = self.start + Duration::from_secs(later);
        self.directory.show(now, &&Secrets::default())
    }

    fn read(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.place.join("refs").join(name)).ok()?;
        let last = text.lines().last().expect("a line");
        Some(last.strip_prefix(REFERENCE).unwrap_or(last).to_owned())
    }
}

#[test]
fn key_and_certificate_change_together() {
    let mut own = Fixture::new();
    own.note("a/key.pem", Some(("key 1", 1)), 0);
    own.note("a/cert.pem", Some(("cert 1", 1)), 0);
    own.note("a/chain.pem", Some(("chain 1", 9)), 0);
    assert_eq!(own.show(0), Vec::<String>::new());
    let shown = |own: &Fixture| ["key", "cert"].map(|name| own.read(&format!("a/{name}.pem")));
    let version = |number| [format!("key {number}"), format!("cert {number}")].map(Some);
    assert_eq!(shown(&own), version(1));
    // The first one waits for the other. Another directory does not wait.
    for (number, first, second) in [(2, "key", "cert"), (3, "cert", "key")] {
        let text = |what: &str| format!("{what} {number}");
        own.note(&format!("a/{first}.pem"), Some((&text(first), number)), 10);
        own.note("b/key.pem", Some((&text("b"), number)), 10);
        assert_eq!(own.show(10), Vec::<String>::new());
        assert_eq!(shown(&own), version(number - 1));
        assert_eq!(own.read("b/key.pem"), Some(text("b")));
        own.note(
            &format!("a/{second}.pem"),
            Some((&text(second), number)),
            11,
        );
        assert_eq!(own.show(11), Vec::<String>::new());
        assert_eq!(shown(&own), version(number));
    }
    // A certificate that is removed for a moment, as by certbot.
    own.note("a/cert.pem", None, 20);
    own.note("a/key.pem", Some(("key 4", 4)), 20);
    own.show(20);
    assert_eq!(shown(&own), version(3));
    own.note("a/cert.pem", Some(("cert 4", 4)), 20);
    own.show(20);
    assert_eq!(shown(&own), version(4));
    // A file that exists only for a moment.
    own.note("a/fresh", Some(("cert 4", 4)), 22);
    own.show(22);
    own.note("a/fresh", None, 23);
    own.note("a/key.pem", Some(("key 5", 5)), 23);
    own.note("a/cert.pem", Some(("cert 5", 5)), 23);
    let at = |later| own.start + Duration::from_secs(later);
    assert_eq!(own.directory.next_due(at(23)), Some(at(24)));
    own.show(23);
    assert_eq!(shown(&own), version(4));
    own.show(24);
    assert_eq!(shown(&own), version(5));
    // After a long time, a change is written although it does not match.
    own.note("a/key.pem", Some(("key 6", 6)), 30);
    own.show(89);
    assert_eq!(shown(&own), version(5));
    own.show(90);
    assert_eq!(shown(&own), [Some("key 6".into()), Some("cert 5".into())]);
    assert!(own.read("a/fresh").is_none());
    // A reference stays as long as its key.
    own.note("a/key.pem", None, 100);
    own.show(1099);
    assert!(own.read("a/key.pem").is_some());
    own.show(1100);
    assert!(own.read("a/key.pem").is_none() && own.read("a/chain.pem").is_some());
}

/// A kill or a full disk may cut a text anywhere.
#[test]
fn the_beginning_of_a_text_is_the_daemons() {
    for own in ["", "Ref", "Copied by", REFERENCE, "Reference to the key a"] {
        assert!(is_kept(own.as_bytes()), "{own}");
    }
    for other in ["ref", "Copied to", "-----BEGIN PRIVATE KEY-----"] {
        assert!(!is_kept(other.as_bytes()), "{other}");
    }
}

#[test]
fn what_has_a_part_of_a_key_is_taken_away_when_the_key_comes() {
    let mut own = Fixture::new();
    let engine = crate::engine(lockstep_engine::Config::default());
    let key = own.place.join("key");
    let words = ["genpkey", "-algorithm", "ed25519", "-out", "key"];
    let mut openssl = lockstep_testkit::command("openssl", &words);
    assert!(openssl.current_dir(&*own.place).output().is_ok());
    let text = fs::read_to_string(&key).expect("a key");
    let leak = text.replace("PRIVATE KEY", "CERTIFICATE");
    own.note("a/cert.pem", Some((&leak, 1)), 0);
    own.note("a/chain.pem", Some(("chain", 9)), 0);
    assert_eq!(own.show(0), Vec::<String>::new());
    assert!(own.read("a/cert.pem").is_some());
    let mut secrets = Secrets::default();
    secrets.add(&key, &engine);
    // The key is in another directory, or in another section.
    own.note("b/key.pem", Some(("key", 1)), 1);
    own.note("a/new.pem", Some((&leak, 1)), 1);
    let mut failed = own.directory.withdraw(&secrets);
    let now = own.start + Duration::from_secs(1);
    failed.extend(own.directory.show(now, &&secrets));
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed.iter().all(|line| line.contains(LEAKS)), "{failed:?}");
    // They stay away when the key is removed, and are reported once, until they change.
    own.note("a/cert.pem", Some((&leak, 1)), 2);
    own.note("a/new.pem", Some((&leak, 1)), 2);
    assert_eq!(own.show(100), Vec::<String>::new());
    let shown = ["a/cert", "a/new", "a/chain", "b/key"];
    let shown = shown.map(|name| own.read(&format!("{name}.pem")));
    assert_eq!(
        shown,
        [None, None, Some("chain".into()), Some("key".into())]
    );
    assert!(own.directory.failed().is_some());
    for name in ["a/cert.pem", "a/new.pem"] {
        own.note(name, Some(("other", 1)), 101);
    }
    assert_eq!(own.show(101), Vec::<String>::new());
    assert!(own.read("a/new.pem").is_some() && own.directory.failed().is_none());
}

#[test]
fn what_others_have_written_stays_and_no_link_is_followed() {
    let mut own = Fixture::new();
    fs::create_dir(own.place.join("refs/a")).expect("a directory");
    let key = "-----BEGIN PRIVATE KEY-----\n";
    fs::write(own.place.join("refs/a/key.pem"), key).expect("a file");
    own.note("a/key.pem", Some(("key", 1)), 0);
    let failed = own.show(0).join(" ");
    assert!(failed.contains("has not written"), "{failed}");
    assert_eq!(own.read("a/key.pem").as_deref(), Some(key.trim()));
    fs::write(own.place.join("target"), key).expect("a file");
    fs::create_dir(own.place.join("other")).expect("a directory");
    for (link, target, name) in [
        ("refs/c", "../other", "c/key.pem"),
        ("refs/a/cert.pem", "../../target", "a/cert.pem"),
    ] {
        symlink(target, own.place.join(link)).expect("a link");
        own.note(name, Some(("text", 1)), 1);
        assert!(!own.show(1).is_empty(), "{name}");
    }
    assert_eq!(
        fs::read_to_string(own.place.join("target")).expect("a file"),
        key
    );
    assert!(!own.place.join("other/key.pem").exists());
    // Nothing is written where others can write.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(own.place.join("refs"), open).expect("its own");
    own.note("d/key.pem", Some(("key", 1)), 2);
    assert!(own.show(2).join(" ").contains("can write to its directory"));
}
