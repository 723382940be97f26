//! Lines in a server's configuration of OpenSSL that allow references to keys of the key daemon.
//! They stand among the settings of the module, in a file that only this server reads.

use std::path::{Path, PathBuf};

use lockstep_common::Failure;
use lockstep_remote::DEFAULT_SOCKET;

/// Line before the lines that `install` has written.
const HEADER: &str = "# By `lockstep install --keyd`: the keys are references to the key daemon.";
/// Setting that allows references.
const ALLOWED: (&str, &str) = ("references", "yes");
const SOCKET: &str = "keyd_socket";

/// Lines that allow references, for a daemon that listens at this socket.
pub struct Allowance {
    pub socket: PathBuf,
}

impl Allowance {
    /// Returns these settings with the lines that allow references.
    pub fn added_to(&self, settings: &str) -> String {
        let mut lines = vec![HEADER.to_owned(), format!("{} = {}", ALLOWED.0, ALLOWED.1)];
        if self.socket != Path::new(DEFAULT_SOCKET) {
            lines.push(format!("{SOCKET} = {}", self.socket.display()));
        }
        // The administrator's own setting stays in force.
        let others = without(settings);
        let is_new = |line: &String| {
            let (name, _) = setting(line).unwrap_or_default();
            value(&others, name).is_none()
        };
        let lines = lines.into_iter().filter(is_new);
        let lines: String = lines.map(|line| line + "\n").collect();
        match others.is_empty() || others.ends_with('\n') {
            true => others + &lines,
            false => others + "\n" + &lines,
        }
    }
}

/// The settings without the lines that [`Allowance::added_to`] adds.
pub fn without(settings: &str) -> String {
    let mut is_ours = false;
    let others = settings.lines().filter(|line| {
        let is_allowance =
            setting(line).is_some_and(|(name, _)| [ALLOWED.0, SOCKET].contains(&name));
        is_ours = *line == HEADER || is_ours && is_allowance;
        !is_ours
    });
    others.map(|line| format!("{line}\n")).collect()
}

/// Whether a configuration allows references.
pub fn is_in(text: &str) -> bool {
    value(text, ALLOWED.0) == Some(ALLOWED.1)
}

/// Fails if the text of a configuration, which messages call `named`, does not allow references.
pub fn check(text: &str, named: &str) -> Result<(), Failure> {
    match is_in(text) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{named} does not allow references, so the server could not use the key daemon"
        ))
        .remedy(format!(
            "add the line `{} = {}` to the section of the module in {named}, if no other program \
             reads that file",
            ALLOWED.0, ALLOWED.1
        ))),
    }
}

/// The last value of a setting in a text.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_name = |line| setting(line).filter(|(own, _)| *own == name);
    text.lines()
        .filter_map(of_name)
        .next_back()
        .map(|(_, value)| value)
}

/// The name and the value in a line.
fn setting(line: &str) -> Option<(&str, &str)> {
    let line = line.split('#').next()?;
    let (name, value) = line.split_once('=')?;
    Some((name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_come_and_go_and_others_stay() {
        let usual = Allowance {
            socket: PathBuf::from(DEFAULT_SOCKET),
        };
        let other = Allowance {
            socket: PathBuf::from("/run/k.sock"),
        };
        let own = "slots = 4\n# mine\n";
        for settings in ["", own] {
            let allowed = usual.added_to(settings);
            assert!(is_in(&allowed) && !is_in(settings));
            assert_eq!(allowed, format!("{settings}{HEADER}\nreferences = yes\n"));
            assert_eq!(usual.added_to(&allowed), allowed);
            let elsewhere = other.added_to(&allowed);
            assert_eq!(value(&elsewhere, SOCKET), Some("/run/k.sock"));
            assert_eq!(usual.added_to(&elsewhere), allowed);
            for text in [allowed, elsewhere] {
                assert_eq!(without(&text), settings);
            }
        }
        // A setting of the administrator is not written a second time.
        let mine = "keyd_socket = /mine\nreferences = yes # mine";
        assert!(is_in(mine));
        let allowed = other.added_to(mine);
        assert_eq!(value(&allowed, SOCKET), Some("/mine"));
        assert_eq!(allowed.matches("references").count(), 2, "{allowed}");
        assert!(!is_in("references = no") && !is_in("# references = yes"));
    }
}
