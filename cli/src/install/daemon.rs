//! Steps that start the key daemon, or have it as it was.

use std::path::Path;

use lockstep_common::program;
use lockstep_keyd::access::Accounts;
use lockstep_keyd::keyd_conf::Configuration;

use super::change::Change;
use super::held::Held;
use crate::command::run;
use crate::servers::Server;
use crate::servers::drop_in::references_of;
use crate::servers::site::System;
use crate::unit::Unit;

/// The units of the daemon, as arguments of systemctl.
pub const UNITS: &str = "lockstep-keyd.socket lockstep-keyd.service";

/// Whether systemd knows the daemon.
pub fn has_unit(root: &Path) -> bool {
    Unit::read(root, "lockstep-keyd.service").is_some()
}

/// Waits until the daemon has written the references of a server.
pub fn written(server: &Server, configuration: &Configuration) -> Change {
    let directory = references_of(server);
    let mut configuration = configuration.clone();
    configuration.keys.retain(|key| {
        let kept = key.references.as_ref();
        kept.is_some_and(|kept| kept.starts_with(&directory))
    });
    Change::Wait {
        configuration: Box::new(configuration),
    }
}

/// Creates the daemon's user, if it is missing.
pub fn user(name: &str) -> Option<Change> {
    let options = "--system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin";
    let is_missing = Accounts::of_system().user(name).is_none();
    is_missing.then(|| Change::Run {
        command: format!("useradd {options} {name}"),
        undo: Some(format!("userdel {name}")),
    })
}

/// Starts the daemon, or has it read its configuration anew. It takes another socket only while it
/// does not run. What enabled it is undone before the sections are, by which `uninstall` knows that
/// it may be enabled.
pub fn start(has_new_socket: bool, before: State) -> Vec<Change> {
    let mut steps = vec![Change::step("systemctl daemon-reload")];
    if has_new_socket {
        steps.push(Change::step(format!("systemctl stop {UNITS}")));
    }
    steps.push(Change::Run {
        command: format!("systemctl enable {UNITS}"),
        undo: (!before.is_enabled).then(|| format!("systemctl disable {UNITS}")),
    });
    steps.push(Change::step("systemctl restart lockstep-keyd.service"));
    steps
}

/// What has the daemon as it was, when the files are as they were. References that were not there
/// before go.
pub fn recover(before: State, system: &System<'_>, held: &[Held]) -> Vec<Change> {
    let reload = Change::step("systemctl daemon-reload");
    let stop = Change::step(format!("systemctl stop {UNITS}"));
    let start = Change::step(format!("systemctl start {UNITS}"));
    let fresh = held.iter().flat_map(|held| {
        let kept = system.at(&held.section.references());
        held.shown.iter().map(move |(name, _)| kept.join(name))
    });
    let fresh = fresh.filter(|path| !path.exists());
    let fresh = fresh.map(|path| Change::Forget { path });
    let stopped = [reload, stop].into_iter().chain(fresh);
    stopped.chain(before.is_active.then_some(start)).collect()
}

/// How systemd has the daemon's socket.
#[derive(Clone, Copy)]
pub struct State {
    pub is_enabled: bool,
    pub is_active: bool,
}

impl State {
    pub fn now() -> State {
        let ask = |about: &str| {
            let mut command = program("systemctl");
            run(command.args([about, "--quiet", "lockstep-keyd.socket"])).is_ok()
        };
        State {
            is_enabled: ask("is-enabled"),
            is_active: ask("is-active"),
        }
    }
}
