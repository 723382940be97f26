//! Starts a separate program that looks at the files that a process could see: see
//! [`look`](super::look).

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_common::{Failure, is_root, search_path};
use lockstep_remote::Reference;
use serde::de::DeserializeOwned;

use super::identity::Identity;
use super::look::COMMAND;
use super::sight::{Question, Seen, Task, Wanted};
use crate::command::{start, this_program};
use crate::keyd::Unusable;
use crate::process::Process;

/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Returns a process's view of its files. Fails if this program may not look in the name of the
/// process's user.
pub fn seen_by(process: &Process, wanted: Wanted) -> Result<Seen, Failure> {
    let is_ours = process.shares("mnt");
    let has_own = is_root() && !is_ours;
    let (root, below) = match (is_ours, has_own) {
        (true, _) => (None, PathBuf::from("/")),
        (_, true) => (Some(process.about("root")), PathBuf::from("/")),
        (_, false) => (None, process.about("root")),
    };
    let seen = ask(&Question {
        directory: Some(process.about("cwd")),
        root,
        below,
        ..Question::of(identity(process)?, Task::Files(wanted))
    });
    still(process)?;
    seen
}

/// Fails if a process has ended: facts that were read by its number may belong to another process.
pub fn still(process: &Process) -> Result<(), Failure> {
    match process.is_there() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "process {} has ended while it was looked at",
            process.pid
        ))
        .remedy("run this again, once the service runs steadily")),
    }
}

/// Returns the view of a service that does not run, under a directory. For root, only files that
/// root alone can change are read.
pub fn seen_under(root: &Path, wanted: Wanted) -> Result<Seen, Failure> {
    let wanted = Wanted {
        only_roots: is_root(),
        ..wanted
    };
    ask(&Question {
        below: root.to_owned(),
        ..Question::of(None, Task::Files(wanted))
    })
}

/// Returns the uses of a reference's key that the daemon at a socket allows the user of a process.
/// Fails if this program cannot ask in that user's name.
pub fn uses(
    process: &Process,
    socket: &Path,
    reference: &Reference,
) -> Result<Result<String, Unusable>, Failure> {
    let task = Task::Uses {
        socket: socket.to_owned(),
        name: reference.name.clone(),
        public: reference.public.clone(),
    };
    ask(&Question::of(identity(process)?, task))
}

/// Returns the identity under which to look at a process's files: the process's own if root runs
/// this program, otherwise `None`.
fn identity(process: &Process) -> Result<Option<Identity>, Failure> {
    if !is_root() {
        return Ok(None);
    }
    let unknown = || {
        Failure::new(format!(
            "it is unknown in whose name process {} may be looked at: it has ended, or it is root's \
             and was started by a user who chose its environment (sudo, su, a set-user-ID program)",
            process.pid
        ))
        .remedy("start it as a service, or name another process")
    };
    Identity::of(process).map(Some).ok_or_else(unknown)
}

fn ask<A: DeserializeOwned>(question: &Question) -> Result<A, Failure> {
    let failed = |why: String| Failure::new(format!("its files cannot be looked at: {why}"));
    let text = serde_json::to_vec(question).map_err(|error| failed(error.to_string()))?;
    let mut command = this_program();
    command.arg(COMMAND).current_dir("/");
    if is_root() {
        command.env_clear().env("PATH", search_path());
    }
    let started = start(&mut command, &text, MOST_BYTES);
    let started = started.map_err(|error| failed(format!("cannot start this program: {error}")))?;
    let ended = started.finish(PATIENCE).ok_or_else(|| {
        failed(format!(
            "that took longer than {} seconds. A pipe or a device may stand where a file should be",
            PATIENCE.as_secs()
        ))
    })?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.errors);
        let first = said.lines().next().unwrap_or_default();
        let why = match first.is_empty() {
            true => ended.status.to_string(),
            false => first.trim_start_matches("lockstep: ").to_owned(),
        };
        return Err(failed(why));
    }
    serde_json::from_slice(&ended.out).map_err(|error| failed(error.to_string()))
}
