//! The key daemon: whether its configuration is in order, whether it answers, and whether a
//! reference can be used.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockstep_keyd::accounts::Accounts;
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE, DEFAULT_USER};
use lockstep_keyd::memory::Shortage;
use lockstep_keyd::reference_file::contents;
use lockstep_keyd::trusted::open_any;
use lockstep_remote::{DEFAULT_SOCKET, Failure, Reference, protocol::Verdict};

use super::finding::{Finding, advice, failed, good, note, warning};
use crate::keyd::{Offer, PROCESS, READER, Unusable, offers, restart, shortage, unpublished, uses};
use crate::process::{Processes, within};
use crate::unit::systemd_runs;
use crate::words::joined;

const CONFIGURATION: &str = "keyd";
const DAEMON: &str = "daemon";
const REFERENCE: &str = "reference";

/// Maximum number of bytes that are read of a file that should be a reference.
const LONGEST_FILE: u64 = 256 << 10;

/// Findings about the daemon; none if it is not set up.
pub fn findings() -> Vec<Finding> {
    let file = Path::new(DEFAULT_FILE);
    let (there, is_root) = (file.exists(), rustix::process::geteuid().is_root());
    if !there && !Path::new(DEFAULT_SOCKET).exists() {
        return Vec::new();
    }
    match Configuration::read(file) {
        Ok(configuration) => configured(&configuration),
        Err(wrong) if there && is_root => {
            let what = format!("the key daemon does not start with {DEFAULT_FILE}: {wrong}");
            vec![failed(CONFIGURATION, what, correct())]
        }
        Err(_) => {
            let socket = Path::new(DEFAULT_SOCKET);
            vec![match offers(socket) {
                Err(Failure::Unreachable(..)) if !there => left_over(socket),
                offers => daemon(socket, offers),
            }]
        }
    }
}

fn correct() -> String {
    format!("correct it, then: {}", restart())
}

fn configured(configuration: &Configuration) -> Vec<Finding> {
    let mistake = |what| failed(CONFIGURATION, what, correct());
    let left_out = configuration
        .wrong
        .iter()
        .map(|wrong| format!("the key daemon ignores a part of {DEFAULT_FILE}: {wrong}"));
    let mut found: Vec<Finding> = left_out.map(mistake).collect();
    let keys = lockstep_keyd::read_keys(configuration, &unpublished());
    let wrong = keys.wrong();
    match wrong.is_empty() {
        true if found.is_empty() => {
            let names = keys.loaded.iter();
            let names = names.map(|loaded| format!("{} ({})", loaded.name, loaded.kind));
            let names = joined(names, ", ");
            let what = format!("{DEFAULT_FILE} is in order; its keys: {names}");
            found.push(good(CONFIGURATION, what));
        }
        true => {}
        false if !rustix::process::geteuid().is_root() => {
            let what = "only root can read the keys: run this as root to see if they are in order";
            found.push(note(CONFIGURATION, what));
        }
        false => found.extend(wrong.into_iter().map(mistake)),
    }
    for loaded in &keys.loaded {
        if let Some(mode) = loaded.open_mode {
            let file = loaded.file.display();
            let what = format!(
                "others than root can read {file}, which holds the key {} (mode {mode:o}): a server \
                 that can read it has the key itself",
                loaded.name
            );
            let remedy = format!("if no other program needs that: chmod 600 {file}");
            found.push(warning(CONFIGURATION, what, remedy));
        }
    }
    if let Some(Shortage { what, remedy }) = shortage(configuration, &keys) {
        found.push(warning(CONFIGURATION, what, remedy));
    }
    if let Some(first) = keys.outdated.first()
        && rustix::process::geteuid().is_root()
    {
        let what = format!(
            "references and certificates that do not fit the files of the keys yet: {}, the first \
             is {}. A server finds the files from before the renewal, or none",
            keys.outdated.len(),
            first.display()
        );
        let remedy = "lockstep keyd wait; if that fails, the log of the key daemon says why";
        found.push(warning(CONFIGURATION, what, remedy));
    }
    found.extend(of_process(configuration));
    found
}

/// Whether the daemon answers, and sees renewed keys.
fn of_process(configuration: &Configuration) -> Vec<Finding> {
    let socket = &configuration.socket;
    let answers = daemon(socket, offers(socket));
    let mut blind = without_reader(configuration);
    if !blind.is_empty() {
        // A daemon that starts has no reader yet, and a daemon that ends has none any more.
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
        failed(DAEMON, what, remedy)
    });
    [answers].into_iter().chain(blind).collect()
}

/// Maximum time for a look at the sockets of a server's references.
const PATIENCE: Duration = Duration::from_secs(5);

/// Users that a key daemon may run as: root, the user of this program, the configured one, and the
/// owners of these sockets, which a server's references name.
pub fn users(sockets: Vec<PathBuf>) -> Vec<u32> {
    let configuration = Configuration::read(Path::new(DEFAULT_FILE)).ok();
    let name = configuration.map_or(DEFAULT_USER.to_owned(), |read| read.user);
    let own = rustix::process::geteuid().as_raw();
    let of_daemon = Accounts::of_system().user(&name);
    let owner = |socket: &PathBuf| Some(fs::symlink_metadata(socket).ok()?.uid());
    // A file system may not answer.
    let owners = within(PATIENCE, move || -> Vec<u32> {
        sockets.iter().filter_map(owner).collect()
    });
    let users = [0, own].into_iter().chain(of_daemon);
    users.chain(owners.unwrap_or_default()).collect()
}

/// Finds key daemons without the process that opens files for them. Only daemons of this user and
/// of the configured user count, because any user can give a process the name [`PROCESS`]. The
/// daemon of a container is left to a doctor in that container.
fn without_reader(configuration: &Configuration) -> Vec<u32> {
    let (mut daemons, mut parents) = (Vec::new(), Vec::new());
    let own = rustix::process::geteuid().as_raw();
    let users = [Some(own), Accounts::of_system().user(&configuration.user)];
    for process in Processes::here().all() {
        let status = process.status;
        let is_ours = status
            .users
            .first()
            .is_some_and(|user| users.contains(&Some(*user)));
        match status.name.as_str() {
            _ if status.is_zombie || status.is_nested => {}
            PROCESS if is_ours => daemons.push(process.pid),
            READER => parents.push(status.parent),
            _ => {}
        }
    }
    daemons.retain(|own| !parents.contains(own));
    daemons
}

/// Reports a socket without a daemon and without the usual configuration: the daemon may no longer
/// be wanted here.
fn left_over(socket: &Path) -> Finding {
    let shown = socket.display();
    let what = format!(
        "nobody listens at {shown}, and there is no {DEFAULT_FILE}: a key daemon that has ended \
         has left this socket"
    );
    let remedy = format!(
        "rm {shown}; if a daemon is to serve there by another configuration, start it instead"
    );
    advice(DAEMON, what, remedy)
}

/// Reports whether the daemon answers. `offers` has the keys that it offers, or the reason why it
/// offers none.
fn daemon(socket: &Path, offers: Result<Vec<Offer>, Failure>) -> Finding {
    // If systemd has opened the socket, the socket does not show which process answers.
    let answers = format!("the key daemon answers at {}", socket.display());
    match offers {
        Ok(offers) => {
            let mut keys: Vec<&str> = offers.iter().map(|key| key.name.as_str()).collect();
            // A section may have several keys.
            keys.dedup();
            good(
                DAEMON,
                format!("{answers}, and lets this user use {}", keys.join(", ")),
            )
        }
        Err(Failure::Rejected(Verdict::Stranger)) => good(
            DAEMON,
            format!("{answers}. This user may use none of its keys, which is no fault"),
        ),
        Err(failure) => {
            let remedy = match systemd_runs() {
                true => "its log says why: journalctl --unit lockstep-keyd",
                false => "start it (lockstep keyd), or see its log for why it does not answer",
            };
            failed(DAEMON, failure.to_string(), remedy)
        }
    }
}

/// Whether a file is a reference that this user may sign with.
pub fn reference(path: &Path) -> Finding {
    let shown = path.display();
    let text = match text_of(path) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("cannot read {shown}: {error}");
            return failed(REFERENCE, what, "run this as a user who can");
        }
    };
    let contents = contents(path);
    match Reference::in_text(&text) {
        Ok(reference) => {
            let uses = uses(reference.socket(), &reference.name, &reference.public);
            judge(path, &reference.name, uses, "this user")
        }
        Err(malformed) if contents.reference => damaged(path, &malformed.to_string()),
        Err(_) if contents.key => failed(
            REFERENCE,
            format!("{shown} is a private key itself, and no reference to one"),
            "name the file that stands for the key; where no key daemon is to hold it, none is \
             needed",
        ),
        Err(_) => failed(
            REFERENCE,
            format!("{shown} holds no reference to a key of the key daemon"),
            "name a file that `lockstep keyd export-reference` or `lockstep install --keyd` has \
             written",
        ),
    }
}

/// Reads a file, which may belong to another user: never waits, and reads at most [`LONGEST_FILE`].
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = open_any(path)?;
    file.take(LONGEST_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// Reports a damaged reference.
pub fn damaged(path: &Path, why: &str) -> Finding {
    let what = format!("{}: {why}", path.display());
    failed(REFERENCE, what, format!("make it anew: {ANEW}"))
}

/// Commands that write a reference.
const ANEW: &str = "lockstep keyd export-reference NAME --out FILE, or lockstep install --keyd";

/// Whether `who` may use the key that a file stands for, by the uses that the daemon allows.
pub fn judge(path: &Path, name: &str, uses: Result<String, Unusable>, who: &str) -> Finding {
    let shown = format!("{} stands for the key {name}", path.display());
    match uses {
        Ok(uses) if uses.contains("sign") => {
            let what = format!("{shown}, which the key daemon lets {who} use to {uses}");
            good(REFERENCE, what)
        }
        Ok(uses) => warning(
            REFERENCE,
            format!(
                "{shown}, which the key daemon lets {who} use to {uses} only: a TLS server signs"
            ),
            format!(
                "for a TLS server, write `uses = sign` in [key {name}] of {DEFAULT_FILE}; then: {}",
                restart()
            ),
        ),
        Err(Unusable::NoSocket(why) | Unusable::NoAnswer(why)) => failed(
            REFERENCE,
            format!("{shown}, and {who} cannot sign with it: {why}"),
            "run lockstep doctor as root: it says whether the daemon works",
        ),
        Err(Unusable::NoKey) => failed(
            REFERENCE,
            format!("{shown}: the key daemon lacks it, or does not let {who} use it"),
            format!(
                "look at the section [key {name}] of {DEFAULT_FILE}, and its users; then: {}",
                restart()
            ),
        ),
        Err(Unusable::OtherKey) => failed(
            REFERENCE,
            format!(
                "{shown}, and the key daemon has only other keys under this name: the key was \
                 renewed, and the daemon no longer keeps the previous key (`grace`). No handshake \
                 with it succeeds"
            ),
            format!(
                "where the daemon keeps the file (`references`): lockstep keyd wait, then reload \
                 the server; where it does not, first make the file anew: {ANEW}"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn references_are_judged_by_what_the_daemon_allows() {
        use Verdict::{Failed, Good, Warning};
        for (uses, verdict, expected) in [
            (Ok("sign"), Good, "lets user 33 use to sign"),
            (Ok("sign, decrypt"), Good, "to sign, decrypt"),
            (Ok("decrypt"), Warning, "use to decrypt only"),
            (Err(Unusable::NoKey), Failed, "does not let user 33 use it"),
            (
                Err(Unusable::OtherKey),
                Failed,
                "other keys under this name",
            ),
            (
                Err(Unusable::NoAnswer("nobody listens".to_owned())),
                Failed,
                "cannot sign with it: nobody listens",
            ),
        ] {
            let uses = uses.map(str::to_owned);
            let found = judge(Path::new("/x.pem"), "www", uses, "user 33");
            let what = &found.what;
            assert_eq!(found.verdict, verdict, "{what}");
            assert_eq!(found.remedy.is_some(), verdict != Good, "{what}");
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
            let found = reference(&path);
            assert!(found.verdict == Verdict::Failed && found.remedy.is_some());
            assert!(found.what.contains(expected), "{found:?}");
        }
    }

    #[test]
    fn a_mistake_in_the_configuration_is_said() {
        let found = configured(&Configuration::parse("colour = 5\n[key a]\n"));
        let said = |what: &str, expected: &str| {
            let mut all = found.iter();
            all.any(|own| {
                let is_it = (own.check, own.verdict) == ("keyd", Verdict::Failed);
                let has_it = [what, expected].iter().all(|part| own.what.contains(part));
                is_it && has_it && own.remedy.is_some()
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
