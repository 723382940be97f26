//! The thread that processes the [reader]'s messages while the daemon serves.
//!
//! A new key is first offered to all clients that connect from then on; its references are written
//! after that. A client with an older list asks for the new one when it needs a key that its list
//! lacks.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_engine::{Engine, ExternalEvent, ROOM_BYTES, STACK_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::keyd_conf::Configuration;
use crate::keys::files::{Pattern, in_a_line};
use crate::keys::keyring::Keyring;
use crate::keys::keyring::report::LeftOut;
use crate::keys::offers::{Offers, answers_of};
use crate::keys::reader::{self, Message};
use crate::keys::reference_dir::ReferenceDir;
use crate::memory::{self, Watch};
use crate::system::log::{log, log_all, warn_of_all};
use crate::system::stack::wipe_stack;
use crate::system::systemd;

/// Interval at which late files are checked.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// Time for which a problem with a file must last before it is reported, since files are written in
/// steps.
const SETTLES: Duration = Duration::from_secs(2);

/// The process that opens files, and the socket to it.
pub struct Reader {
    child: Child,
    /// `None` once the process has ended.
    socket: Option<OwnedFd>,
}

/// The state that changes with the files of keys.
pub struct Renewals {
    reader: Reader,
    keyring: Keyring,
    watch: Watch,
    engine: Arc<Engine>,
    offers: Arc<Mutex<Offers>>,
    dirs: Vec<Option<ReferenceDir>>,
    /// Problems that have been reported.
    left_out: Vec<LeftOut>,
    /// Problems of the last check, and the time of the next one. Problems that still exist then are
    /// reported.
    next_left_out: Option<(Vec<LeftOut>, Instant)>,
    status: String,
    /// After keys have been removed, wakes the thread that accepts clients.
    wake: UnixStream,
}

impl Reader {
    /// Starts the process for the sections of a keyring.
    pub fn start(keyring: &Keyring, user: Option<(u32, u32)>) -> io::Result<Reader> {
        let (child, socket) = reader::start(&keyring.wanted(), user)?;
        let socket = Some(socket);
        Ok(Reader { child, socket })
    }

    /// Processes messages up to the end of a search; returns false once the process has ended.
    pub fn take(&mut self, mut take: impl FnMut(Message)) -> bool {
        while let Some(socket) = &self.socket {
            match reader::next(socket) {
                Some(Message::Done) => return true,
                Some(message) => take(message),
                None => {
                    self.socket = None;
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                }
            }
        }
        false
    }

    /// Waits for a message, at most until a time; returns whether there is one.
    fn wait(&self, until: Option<Instant>) -> bool {
        let time = until.map(|until| until.saturating_duration_since(Instant::now()));
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let sockets = self.socket.iter();
        let mut polled: Vec<_> = sockets.map(|own| PollFd::new(own, PollFlags::IN)).collect();
        match poll(&mut polled, time.as_ref()) {
            Ok(_) => polled.iter().any(|own| !own.revents().is_empty()),
            Err(Errno::INTR) => false,
            Err(_) => {
                // Backoff after an allocation failure.
                thread::sleep(Duration::from_secs(1));
                false
            }
        }
    }
}

impl Renewals {
    /// Creates the state from the keys that were read at the start, and writes their references.
    pub fn new(
        configuration: &Configuration,
        (reader, keyring): (Reader, Keyring),
        watch: Watch,
        engine: Arc<Engine>,
        offers: Arc<Mutex<Offers>>,
        wake: UnixStream,
    ) -> Renewals {
        let mut renewals = Renewals {
            dirs: dirs(configuration),
            status: String::new(),
            left_out: keyring.left_out(),
            next_left_out: None,
            reader,
            keyring,
            watch,
            engine,
            offers,
            wake,
        };
        renewals.dirs.iter().flatten().for_each(ReferenceDir::tidy);
        renewals.write(Instant::now());
        renewals.status = renewals.status_now();
        renewals
    }

    /// Returns the line in `systemctl status`.
    pub fn status(&self) -> &str {
        &self.status
    }

    /// Starts the thread. It ends with the daemon.
    pub fn start(mut self) -> io::Result<()> {
        let thread = thread::Builder::new()
            .name("keyd-files".to_owned())
            .stack_size(STACK_BYTES);
        thread.spawn(move || {
            loop {
                self.sync();
                self.go_round();
            }
        })?;
        Ok(())
    }

    fn go_round(&mut self) {
        let now = Instant::now();
        let shows = self.dirs.iter().flatten();
        let shows = shows.filter_map(|dir| dir.next_due(now)).min();
        let tells = self.next_left_out.iter().map(|(_, when)| *when);
        let next = self.keyring.next_expiry().into_iter().chain(shows);
        let late = self.keyring.has_late().then(|| now + ASKS_EVERY);
        let next = next.chain(tells).chain(late).min();
        let mut is_new = false;
        if self.reader.wait(next) {
            let (keyring, engine) = (&mut self.keyring, &self.engine);
            let is_there = self.reader.take(|message| {
                is_new |= keyring.take(message, engine, Instant::now());
            });
            if !is_there {
                log(
                    "warning: the process that looks for renewed keys has ended; until the daemon \
                     is started again, it serves the keys that it has",
                );
            }
        }
        let now = Instant::now();
        is_new |= self.keyring.take_late(&self.engine, now);
        wipe_stack::<ROOM_BYTES>();
        let has_expired = self.keyring.expire(now);
        if is_new || has_expired {
            let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
            let keys = self.keyring.keys();
            let answers = answers_of(keys.iter());
            offers.change(keys);
            drop(offers);
            log_all(self.watch.line(answers, memory::allowed()));
        }
        if has_expired {
            // One byte is enough for any number of keys.
            let _ = self.wake.write(&[1]);
        }
        self.write(now);
        self.tell();
    }

    /// Writes the references that have changed.
    fn write(&mut self, now: Instant) {
        note(&mut self.dirs, &mut self.keyring, now);
        let fresh = self.keyring.fresh_secrets();
        let secrets = LazyCell::new(|| self.keyring.secrets());
        for dir in self.dirs.iter_mut().flatten() {
            warn_of_all(dir.withdraw(&fresh));
            warn_of_all(dir.show(now, &secrets));
        }
    }

    /// Waits until the disk has the references. Servers can read them even before that.
    fn sync(&mut self) {
        warn_of_all(
            self.dirs
                .iter_mut()
                .flatten()
                .filter_map(ReferenceDir::sync),
        );
    }

    fn tell(&mut self) {
        log_all(self.keyring.lines.drain(..));
        self.tell_left_out(Instant::now());
        let status = self.status_now();
        if status != self.status {
            systemd::notify(&format!("STATUS={status}"));
            self.status = status;
        }
    }

    fn status_now(&self) -> String {
        let mut status = status_of(self.keyring.keys().len(), &self.left_out);
        let failed = self.dirs.iter().flatten().filter_map(ReferenceDir::failed);
        if let Some(path) = failed.into_iter().next() {
            let path = in_a_line(&path.to_string_lossy());
            status += &format!("; cannot write {path}, see the log");
        }
        if self.reader.socket.is_none() {
            status += "; sees no renewed keys until it is started again, see the log";
        }
        status
    }

    /// Reports keys that are left out now and were left out at the last check.
    fn tell_left_out(&mut self, now: Instant) {
        let before = match self.next_left_out.take() {
            Some((before, when)) if now < when => {
                self.next_left_out = Some((before, when));
                return;
            }
            before => before.map_or_else(Vec::new, |(before, _)| before),
        };
        let left_out = self.keyring.left_out();
        let told: HashSet<&LeftOut> = self.left_out.iter().collect();
        let before: HashSet<&LeftOut> = before.iter().collect();
        let mut settled = Vec::new();
        for own in &left_out {
            let is_told = told.contains(own);
            if !is_told && before.contains(own) {
                log(format_args!("warning: {own}"));
            }
            if is_told || before.contains(own) {
                settled.push(own.clone());
            }
        }
        if settled != left_out {
            self.next_left_out = Some((left_out, now + SETTLES));
        }
        if settled != self.left_out {
            self.engine.count(ExternalEvent::LeftOut(settled.len()));
            self.left_out = settled;
        }
    }
}

/// Returns the state of each section's directory of references; `None` for a section without one.
pub fn dirs(configuration: &Configuration) -> Vec<Option<ReferenceDir>> {
    let dirs = configuration.keys.iter().map(|section| {
        let path = section.references.clone()?;
        let pattern = Pattern::new(&section.file);
        Some(ReferenceDir::new(path, pattern, configuration.grace))
    });
    dirs.collect()
}

/// Passes the new texts of a keyring to the directories.
pub fn note(dirs: &mut [Option<ReferenceDir>], keyring: &mut Keyring, now: Instant) {
    for ((section, path), text) in std::mem::take(&mut keyring.texts) {
        if let Some(Some(dir)) = dirs.get_mut(section) {
            dir.note(&path, text, now);
        }
    }
}

/// Returns the line in `systemctl status` for `count` keys.
pub fn status_of(count: usize, left_out: &[LeftOut]) -> String {
    let names = left_out.iter().map(|key| key.name.as_str());
    match left_out.len() {
        0 => format!("serves {count} keys"),
        many => format!(
            "serves {count} keys, and leaves out {many}, see the log: {}",
            names.take(10).collect::<Vec<_>>().join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_told_how_many_keys_there_are_and_which_are_left_out() {
        let left_out = |number: usize| LeftOut {
            name: format!("bad-{number}"),
            why: String::new(),
            is_kept: false,
        };
        let status = |count| {
            let left_out: Vec<_> = (0..count).map(left_out).collect();
            status_of(0, &left_out)
        };
        assert_eq!(status(0), "serves 0 keys");
        let told = status(12);
        assert!(told.starts_with("serves 0 keys, and leaves out 12, see the log: bad-0 bad-1 "));
        assert!(told.ends_with(" bad-9"), "{told}");
    }
}
