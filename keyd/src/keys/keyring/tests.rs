use std::fs;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::channel;

use lockstep_engine::Config;
use lockstep_testkit::{TempDir, command};

use super::report::LeftOut;
use super::*;
use crate::keys::workers::SHORT;

struct Fixture {
    place: TempDir,
    engine: Engine,
    keyring: Keyring,
    start: Instant,
}

impl Fixture {
    /// Creates a section for all keys in a directory, with more settings.
    fn new(settings: &str) -> Fixture {
        let place = TempDir::new("keyring");
        let text = format!(
            "grace = 100\n[key own]\nfile = {}\nusers = 7\nuses = sign\n{settings}",
            place.display()
        );
        let configuration = Configuration::parse(&text);
        assert!(configuration.wrong.is_empty(), "{:?}", configuration.wrong);
        Fixture {
            keyring: Keyring::new(&configuration, &Accounts::of_system(), SHORT),
            place,
            engine: crate::engine(Config::default()),
            start: Instant::now(),
        }
    }

    fn make(&self, name: &str) -> String {
        let file = self.place.join(name);
        let words = ["genpkey", "-algorithm", "ed25519", "-out"];
        let made = command("openssl", &words).arg(&file).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        fs::read_to_string(file).expect("a file")
    }

    /// Reports a file as it is now, `later` seconds after the start.
    fn tell(&mut self, name: &str, later: u64) -> bool {
        let path = self.place.join(name);
        let now = self.start + Duration::from_secs(later);
        let message = match File::open(&path) {
            Ok(file) => Message::File(0, path, Place::MayBeKey, file),
            Err(_) => Message::Gone(0, path),
        };
        self.keyring.take(message, &self.engine, now)
    }

    /// Returns the number of held keys, and the messages about others.
    fn state(&self) -> (usize, Vec<String>) {
        let left_out = self.keyring.left_out();
        let left_out = left_out.iter().map(LeftOut::to_string);
        (self.keyring.keys().len(), left_out.collect())
    }
}

#[test]
fn a_renewed_key_and_the_one_before_are_held_side_by_side_for_a_while() {
    let mut fixture = Fixture::new("");
    let old = fixture.make("key");
    assert!(fixture.tell("key", 0) && !fixture.tell("key", 1));
    fixture.make("key");
    assert!(fixture.tell("key", 10));
    let newest = fixture.keyring.keys();
    assert_eq!((newest.len(), fixture.state()), (2, (2, vec![])));
    // The previous key stays for its grace period.
    let at = |later| fixture.start + Duration::from_secs(later);
    assert_eq!(fixture.keyring.next_expiry(), Some(at(110)));
    let ends = at(110);
    assert!(!fixture.keyring.expire(ends - Duration::from_nanos(1)));
    // The previous key comes back during that time, and is the newest key again.
    fs::write(fixture.place.join("copy"), &old).expect("a file");
    assert!(fixture.tell("copy", 50));
    assert_eq!(fixture.keyring.keys()[1].key.public, newest[0].key.public);
    assert!(!fixture.keyring.expire(ends) && fixture.keyring.next_expiry().is_none());
    fs::remove_file(fixture.place.join("copy")).expect("a file");
    assert!(!fixture.tell("copy", 200));
    let ends = fixture.start + Duration::from_secs(300);
    assert!(fixture.keyring.expire(ends));
    assert_eq!(fixture.state(), (1, vec![]));
    assert!(newest[1].is_removed.load(Acquire) || newest[0].is_removed.load(Acquire));
    // The removed key stays secret.
    let leak = old.replace("PRIVATE KEY", "CERTIFICATE");
    assert!(fixture.keyring.secrets().are_in(leak.as_bytes()));
    let lines = fixture.keyring.lines.join("\n");
    for line in ["holds the key own, Ed25519", "is renewed", "leaves"] {
        assert!(lines.contains(line), "{lines}");
    }
    assert!(!lines.contains("PRIVATE"), "{lines}");
}

/// A file that is being written.
#[test]
fn a_bad_file_changes_nothing_and_is_named() {
    let mut fixture = Fixture::new("");
    let text = fixture.make("key");
    fixture.make("other");
    assert!(fixture.tell("key", 0) && fixture.tell("other", 0));
    for (length, why) in [
        (0, "there is no private key"),
        (20, "there is no private key"),
        (60, "has no end"),
    ] {
        fs::write(fixture.place.join("key"), &text[..length]).expect("a file");
        assert!(!fixture.tell("key", 1));
        let (count, left_out) = fixture.state();
        assert!(count == 2 && left_out.len() == 1, "{left_out:?}");
        let words = ["own is served as it was before", why];
        assert!(
            words.iter().all(|word| left_out[0].contains(word)),
            "{left_out:?}"
        );
    }
    assert!(fixture.keyring.next_expiry().is_none());
    let path = fixture.place.join("key");
    let untrusted = Message::Bad(0, path.clone(), Place::MayBeKey, "others can".to_owned());
    assert!(
        !fixture
            .keyring
            .take(untrusted, &fixture.engine, fixture.start)
    );
    assert!(fixture.state().1[0].ends_with("key: others can"));
    fs::write(path, &text).expect("a file");
    assert!(!fixture.tell("key", 2));
    assert_eq!(fixture.state(), (2, vec![]));
    // A file that never had a key is ignored in a directory. In the place of a key it is an error.
    fs::write(fixture.place.join("README"), "x").expect("a file");
    assert!(!fixture.tell("README", 3));
    assert_eq!(fixture.state(), (2, vec![]));
}

/// A file system may open a file and not read it.
#[test]
fn a_file_that_is_not_read_in_time_holds_up_no_other_and_comes_later() {
    let mut fixture = Fixture::new("");
    fixture.make("key");
    fixture.make("other");
    assert!(fixture.tell("key", 0));
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    fixture.keyring.workers = Workers::new(SHORT, move |opened: Opened| {
        if opened.name.1.ends_with("key") {
            let _ = held.lock().expect("one thread").recv();
        }
        read(opened)
    });
    fixture.make("key");
    assert!(!fixture.tell("key", 1) && fixture.keyring.has_late());
    assert!(fixture.tell("other", 1));
    let (count, left_out) = fixture.state();
    let told = left_out.join(" ");
    assert!(
        count == 2 && told.contains("is served as it was before"),
        "{told}"
    );
    assert!(told.ends_with(UNANSWERED), "{told}");
    let path = fixture.place.join("key");
    assert_eq!(fixture.keyring.unanswered(), [path]);
    drop(release);
    while !fixture.keyring.take_late(&fixture.engine, fixture.start) {
        std::thread::yield_now();
    }
    assert_eq!(fixture.state(), (3, vec![]));
    assert!(!fixture.keyring.has_late());
}

#[test]
fn the_key_that_left_first_makes_room() {
    let mut fixture = Fixture::new("");
    for number in 0..3 {
        fixture.make("key");
        assert!(fixture.tell("key", number));
    }
    let most = |fixture: &mut Fixture| {
        let held = fixture.keyring.keys();
        while fixture.keyring.entries.len() < MOST_KEYS {
            fixture.keyring.entries.push(Entry {
                section: 1,
                served: Arc::clone(&held[0]),
                gone_since: None,
                parts: Vec::new(),
            });
        }
    };
    most(&mut fixture);
    let first = fixture.keyring.keys().remove(2);
    fixture.make("key");
    assert!(fixture.tell("key", 5));
    assert!(first.is_removed.load(Acquire));
    assert_eq!(fixture.keyring.entries.len(), MOST_KEYS);
    // If no key is in its grace period, a new one is left out.
    fixture
        .keyring
        .entries
        .iter_mut()
        .for_each(|entry| entry.gone_since = None);
    fixture.make("more");
    assert!(!fixture.tell("more", 6));
    assert!(fixture.state().1[0].contains("6000 keys, and no more"));
}

/// The public halves of ML-DSA-87 have 2,614 bytes.
#[test]
fn the_list_of_all_keys_fits_into_a_message() {
    let mut fixture = Fixture::new("");
    fixture.make("key");
    assert!(fixture.tell("key", 0));
    let own = listed_bytes("own", &fixture.keyring.keys()[0].key.public);
    let access = fixture.keyring.keys()[0].access.clone();
    let mut hold = |length: usize| {
        let held = ServedKey {
            name: "own".to_owned(),
            key: Key {
                public: vec![7; length],
                ..crate::keys::key::tests::ed25519()
            },
            access: access.clone(),
            is_removed: AtomicBool::new(false),
        };
        fixture.keyring.entries.push(Entry {
            section: 0,
            served: Arc::new(held),
            gone_since: None,
            parts: Vec::new(),
        });
        fixture
            .keyring
            .entries
            .iter()
            .map(Entry::listed_bytes)
            .sum()
    };
    let mut filled: usize = 0;
    while filled + own + 15 + 2 * 2629 < LONGEST_LIST {
        filled = hold(2614);
    }
    // One byte too much for another key.
    let filled = hold(LONGEST_LIST - filled - own - 14);
    assert_eq!(filled, LONGEST_LIST - own + 1);
    fixture.make("more");
    assert!(!fixture.tell("more", 1));
    let why = &fixture.state().1[0];
    assert!(
        why.contains("keys, and no more") && why.ends_with("4 MiB at most"),
        "{why}"
    );
    // Keys in their grace period make room, the first ones first, and not more of them than needed.
    let held = &mut fixture.keyring.entries;
    for (place, later) in [(3, 2), (8, 1), (5, 3)] {
        held[place].gone_since = Some(fixture.start + Duration::from_secs(later));
    }
    let count = held.len();
    let gone = [3, 8].map(|place| Arc::clone(&held[place].served));
    assert!(fixture.keyring.has_room(2629 + own));
    assert!(gone.iter().all(|own| own.is_removed.load(Acquire)));
    assert_eq!(fixture.keyring.entries.len(), count - 2);
    assert!(fixture.tell("more", 2));
    let mut offers = crate::keys::offers::Offers::new(fixture.keyring.keys());
    let peer = crate::keys::access::tests::peer(7, 7);
    let offer = offers.of(peer, lockstep_remote::protocol::VERSION);
    assert_eq!(offer.map(|offer| offer.count()), Ok(count - 1));
    // If they are not enough, they stay.
    assert!(!fixture.keyring.has_room(LONGEST_LIST));
    assert_eq!(fixture.keyring.entries.len(), count - 1);
}

#[test]
fn what_is_to_be_written_holds_no_key() {
    let mut fixture = Fixture::new("references = /nowhere/else\n");
    let text = fixture.make("key");
    let make = "req -x509 -key key -subj /CN=x -out cert".split(' ');
    let mut openssl = command("openssl", &make.collect::<Vec<_>>());
    let made = openssl.current_dir(&*fixture.place).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    for name in ["key", "cert"] {
        fixture.tell(name, 0);
    }
    let texts: Vec<_> = fixture.keyring.texts.values().flatten().collect();
    let [cert, key] = &texts[..] else {
        panic!("two texts");
    };
    assert!(key.is_key && !cert.is_key && key.public == cert.public);
    let line = text.lines().nth(1).expect("the key");
    assert!(!key.text.contains(line) && key.text.contains("LOCKSTEP KEY REFERENCE"));
    assert!(cert.text.starts_with("-----BEGIN CERTIFICATE"));
}
