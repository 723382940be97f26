//! The key daemon: whether its configuration is in order, whether it answers, and whether a
//! reference is one to a key that somebody may use.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use lockstep_keyd::Keys;
use lockstep_keyd::access::Accounts;
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE};
use lockstep_keyd::memory::Shortage;
use lockstep_keyd::stand_in::contents;
use lockstep_keyd::trusted::open_any;
use lockstep_remote::{DEFAULT_SOCKET, Failure, Reference, protocol::Verdict as Welcome};

use super::finding::{Answer, Named, Verdict};
use crate::keyd::{Offer, PROCESS, READER, hex, offers, restart, shortage, unpublished};
use crate::unit::systemd_runs;

const CONFIGURATION: &str = "keyd";
const DAEMON: &str = "daemon";
const REFERENCE: &str = "reference";

/// The most that is read of a file that should be a reference.
const LONGEST_FILE: u64 = 256 << 10;

/// What there is to say of the daemon; nothing where it is not set up.
pub fn findings() -> Vec<Named> {
    let file = Path::new(DEFAULT_FILE);
    let (there, is_root) = (file.exists(), rustix::process::geteuid().is_root());
    if !there && !Path::new(DEFAULT_SOCKET).exists() {
        return Vec::new();
    }
    match Configuration::read(file) {
        Ok(configuration) => configured(&configuration),
        Err(wrong) if there && is_root => {
            let what = format!("the key daemon does not start with {DEFAULT_FILE}: {wrong}");
            vec![(CONFIGURATION, (Verdict::Failed, what, correct()))]
        }
        Err(_) => {
            let socket = Path::new(DEFAULT_SOCKET);
            let answer = match offers(socket) {
                Err(Failure::Unreachable(..)) if !there => left_over(socket),
                offers => daemon(socket, offers),
            };
            vec![(DAEMON, answer)]
        }
    }
}

fn correct() -> Option<String> {
    Some(format!("correct it, then: {}", restart()))
}

fn configured(configuration: &Configuration) -> Vec<Named> {
    let failed = |what| (CONFIGURATION, (Verdict::Failed, what, correct()));
    let mut found: Vec<Named> = configuration
        .wrong
        .iter()
        .map(|wrong| {
            failed(format!(
                "the key daemon leaves out of {DEFAULT_FILE} {wrong}"
            ))
        })
        .collect();
    let keys = lockstep_keyd::read_keys(configuration, &unpublished());
    let wrong = keys.wrong();
    match wrong.is_empty() {
        true if found.is_empty() => {
            let names: Vec<String> = keys
                .loaded
                .iter()
                .map(|loaded| format!("{} ({})", loaded.name, loaded.kind))
                .collect();
            let what = format!("{DEFAULT_FILE} is in order; its keys: {}", names.join(", "));
            found.push((CONFIGURATION, (Verdict::Good, what, None)));
        }
        true => {}
        false if !rustix::process::geteuid().is_root() => {
            let what = "only root can read the keys: run this as root to see if they are in order";
            found.push((CONFIGURATION, (Verdict::Note, what.to_owned(), None)));
        }
        false => found.extend(wrong.into_iter().map(failed)),
    }
    for loaded in &keys.loaded {
        if let Some(mode) = loaded.open_mode {
            let file = loaded.file.display();
            let what = format!(
                "{file}, which holds the key {}, can be read by others than root (mode {mode:o}): \
                 a server that may read it has the key all the same",
                loaded.name
            );
            let remedy = format!("if no other program needs that: chmod 600 {file}");
            found.push((CONFIGURATION, (Verdict::Warning, what, Some(remedy))));
        }
    }
    if let Some(Shortage { what, remedy }) = shortage(configuration, &keys) {
        found.push((CONFIGURATION, (Verdict::Warning, what, Some(remedy))));
    }
    if rustix::process::geteuid().is_root() {
        found.extend(of_references(configuration, &keys));
    }
    found.extend(of_process(configuration));
    found
}

/// What there is to say of the references that the daemon keeps.
fn of_references(configuration: &Configuration, keys: &Keys) -> Vec<Named> {
    let warning = |what, remedy: &str| {
        let answer = (Verdict::Warning, what, Some(remedy.to_owned()));
        (CONFIGURATION, answer)
    };
    let mut found = Vec::new();
    if let Some(first) = keys.outdated.first() {
        let what = format!(
            "{} references or certificates are not as the files of the keys are, as {}: a server \
             finds those from before the renewal, or none",
            keys.outdated.len(),
            first.display()
        );
        let remedy = "lockstep keyd wait; if that fails, the log of the key daemon says why";
        found.push(warning(what, remedy));
    }
    // A key that is left out may be that of a reference.
    let is_whole = keys.left_out.is_empty();
    let stale = is_whole.then(|| lockstep_keyd::stale_references(configuration, keys));
    let stale = stale.unwrap_or_default();
    if let Some(first) = stale.first() {
        let what = format!(
            "{} references are to keys that no file has any more, as {}: the daemon drops such a \
             key after `grace`, and when it is started again",
            stale.len(),
            first.display()
        );
        let remedy = "have no server name it; remove it if it stays longer than `grace`";
        found.push(warning(what, remedy));
    }
    found
}

/// Whether the daemon answers, and sees renewed keys.
fn of_process(configuration: &Configuration) -> Vec<Named> {
    let socket = &configuration.socket;
    let answers = (DAEMON, daemon(socket, offers(socket)));
    let mut blind = without_reader(configuration);
    if !blind.is_empty() {
        // One that starts has no reader yet, and one that ends has none any more.
        thread::sleep(Duration::from_millis(500));
        let still = without_reader(configuration);
        blind.retain(|process| still.contains(process));
    }
    let blind = blind.into_iter().map(|process| {
        let what = format!(
            "the key daemon, process {process}, sees no renewed keys: the process that opens their \
             files for it has ended"
        );
        let remedy = format!(
            "reload the servers, because a restart drops keys from before a renewal; then: {}",
            restart()
        );
        (DAEMON, (Verdict::Failed, what, Some(remedy)))
    });
    [answers].into_iter().chain(blind).collect()
}

/// Key daemons that run without the process which opens files for them, as this user or that of the
/// configuration: anybody can give a process their name. One in a container has its own doctor.
fn without_reader(configuration: &Configuration) -> Vec<u32> {
    let (mut daemons, mut parents) = (Vec::new(), Vec::new());
    let own = rustix::process::geteuid().as_raw();
    let users = [Some(own), Accounts::of_system().user(&configuration.user)];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let of = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.trim()))
        };
        let is_there = of("State:").is_some_and(|state| !state.starts_with(['Z', 'X']));
        let is_here = of("NSpid:").is_none_or(|numbers| numbers.split_whitespace().count() == 1);
        let user = of("Uid:").and_then(|users| users.split_whitespace().next());
        let user: Option<u32> = user.and_then(|user| user.parse().ok());
        let is_ours = user.is_some() && users.contains(&user);
        match of("Name:").filter(|_| is_there && is_here) {
            Some(PROCESS) if is_ours => {
                daemons.extend(of("Pid:").and_then(|own| own.parse::<u32>().ok()))
            }
            Some(READER) => parents.extend(of("PPid:").and_then(|own| own.parse::<u32>().ok())),
            _ => {}
        }
    }
    daemons.retain(|own| !parents.contains(own));
    daemons
}

/// A socket without a daemon and without its usual configuration: nobody may want one here any
/// more.
fn left_over(socket: &Path) -> Answer {
    let shown = socket.display();
    let what = format!(
        "nobody listens at {shown}, and there is no {DEFAULT_FILE}: a key daemon that has ended \
         has left this socket"
    );
    let remedy = format!(
        "rm {shown}; if a daemon is to serve there by another configuration, start it instead"
    );
    (Verdict::Note, what, Some(remedy))
}

/// Whether the daemon answers, from what it offers or why it offers nothing.
fn daemon(socket: &Path, offers: Result<Vec<Offer>, Failure>) -> Answer {
    // Which process that is, the socket does not say where systemd has opened it.
    let answers = format!("the key daemon answers at {}", socket.display());
    match offers {
        Ok(offers) => {
            let keys: Vec<&str> = offers.iter().map(|key| key.name.as_str()).collect();
            let what = format!("{answers}, and lets this user use {}", keys.join(", "));
            (Verdict::Good, what, None)
        }
        Err(Failure::Unwelcome(Welcome::Stranger)) => {
            let what = format!("{answers}. This user may use none of its keys, which is no fault");
            (Verdict::Good, what, None)
        }
        Err(failure) => {
            let remedy = match systemd_runs() {
                true => "its log says why: journalctl --unit lockstep-keyd",
                false => "start it (lockstep keyd), or see its log for why it does not answer",
            };
            (
                Verdict::Failed,
                failure.to_string(),
                Some(remedy.to_owned()),
            )
        }
    }
}

/// What there is to say of a file that should be a reference, for the user who asks.
pub fn reference(path: &Path) -> Named {
    let failed = |what: String, remedy: &str| (Verdict::Failed, what, Some(remedy.to_owned()));
    let text = match text_of(path) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("cannot read {}: {error}", path.display());
            return (REFERENCE, failed(what, "run this as a user who can"));
        }
    };
    let reference = match Reference::in_text(&text) {
        Ok(reference) => reference,
        Err(_) if !contents(path).reference => {
            let shown = path.display();
            let (what, remedy) = match contents(path).key {
                true => (
                    format!("{shown} is a private key itself, and no reference to one"),
                    "name the file that stands for the key; where no key daemon is to hold it, \
                     none is needed",
                ),
                false => (
                    format!("{shown} holds no reference to a key of the key daemon"),
                    "name a file that `lockstep keyd export-reference` or `lockstep install \
                     --keyd` has written",
                ),
            };
            return (REFERENCE, failed(what, remedy));
        }
        Err(malformed) => return (REFERENCE, damaged(path, &malformed.to_string())),
    };
    let offers = offers(reference.socket()).map_err(|failure| failure.to_string());
    (REFERENCE, judge(path, &reference, offers, "this user"))
}

/// The text of a file, which may be another user's: it is not waited for, and has an end.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = open_any(path)?;
    file.take(LONGEST_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// What to do about a damaged reference.
pub fn damaged(path: &Path, why: &str) -> Answer {
    let what = format!("{}: {why}", path.display());
    let remedy = "lockstep keyd export-reference NAME --out FILE";
    (Verdict::Failed, what, Some(remedy.to_owned()))
}

/// Whether somebody may sign by a reference, from what the daemon offers them.
pub fn judge(
    path: &Path,
    reference: &Reference,
    offers: Result<Vec<Offer>, String>,
    who: &str,
) -> Answer {
    let shown = format!("{} stands for the key {}", path.display(), reference.name);
    let failed = |what: String, remedy: &str| (Verdict::Failed, what, Some(remedy.to_owned()));
    let offers = match offers {
        Ok(offers) => offers,
        Err(why) => {
            let what = format!("{shown}, and {who} cannot sign with it: {why}");
            return failed(
                what,
                "run lockstep doctor as root: it says whether the daemon works",
            );
        }
    };
    let Some(offer) = offers.iter().find(|offer| offer.name == reference.name) else {
        let what = format!("{shown}: the key daemon lacks it, or does not let {who} use it");
        let remedy = format!(
            "look at the section [key {}] of {DEFAULT_FILE}, and its users; then: {}",
            reference.name,
            restart()
        );
        return failed(what, &remedy);
    };
    if offer.public != hex(&reference.public) {
        let what = format!(
            "{shown}, and the key daemon has another key under this name: no handshake with it \
             succeeds"
        );
        return failed(
            what,
            "make the reference anew, by lockstep install --keyd or lockstep keyd \
             export-reference, and restart the server",
        );
    }
    let what = format!(
        "{shown}, which the key daemon lets {who} use to {}",
        offer.uses
    );
    (Verdict::Good, what, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_judged_by_what_the_daemon_offers() {
        let reference = Reference {
            name: "www".to_owned(),
            socket: None,
            public: vec![0x30, 0],
        };
        let offer = |name: &str, public: &str| Offer {
            name: name.to_owned(),
            uses: "sign".to_owned(),
            public: public.to_owned(),
        };
        let of = |offers| {
            let (verdict, what, remedy) = judge(Path::new("/x.pem"), &reference, offers, "user 33");
            assert_eq!(verdict == Verdict::Failed, remedy.is_some());
            what
        };
        for (offers, expected) in [
            (
                Ok(vec![offer("a", "3000"), offer("www", "3000")]),
                "lets user 33 use to sign",
            ),
            (Ok(vec![offer("a", "3000")]), "does not let user 33 use it"),
            (
                Ok(vec![offer("www", "3001")]),
                "another key under this name",
            ),
            (
                Err("nobody listens".to_owned()),
                "cannot sign with it: nobody listens",
            ),
        ] {
            let what = of(offers);
            assert!(what.starts_with("/x.pem stands for the key www"), "{what}");
            assert!(what.contains(expected), "{what}");
        }
    }

    #[test]
    fn a_file_that_is_no_reference_is_not_called_damaged() {
        let place = lockstep_testkit::TempDir::new("no-reference");
        let path = place.join("site.pem");
        for (text, expected) in [
            ("-----BEGIN PRIVATE KEY-----\n", "is a private key itself"),
            ("-----BEGIN CERTIFICATE-----\n", "holds no reference"),
            ("", "holds no reference"),
        ] {
            fs::write(&path, text).unwrap();
            let (_, (verdict, what, remedy)) = reference(&path);
            assert!(verdict == Verdict::Failed && remedy.is_some(), "{what}");
            assert!(what.contains(expected), "{what}");
        }
    }

    #[test]
    fn a_mistake_in_the_configuration_is_said() {
        let found = configured(&Configuration::parse("colour = 5\n[key a]\n"));
        let said = |what: &str, expected: &str| {
            let mut all = found.iter();
            all.any(|(check, (verdict, said, remedy))| {
                let is_it = said.contains(what) && (*check, *verdict) == ("keyd", Verdict::Failed);
                is_it && said.contains(expected) && remedy.is_some()
            })
        };
        assert!(
            said("line 1: ", "there is no setting `colour`"),
            "{found:?}"
        );
        if rustix::process::geteuid().is_root() {
            assert!(said("key a is left out", "file must be"), "{found:?}");
        }
    }
}
