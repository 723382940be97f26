//! Steps that start the key daemon or restore its state.

use std::path::{Path, PathBuf};

use lockstep_common::program;
use lockstep_keyd::accounts::Accounts;
use lockstep_keyd::keyd_conf::Configuration;

use super::change::Change;
use crate::command::run;
use crate::servers::Server;
use crate::servers::drop_in::references_of;
use crate::unit::Unit;

/// The units of the daemon, as arguments of systemctl.
pub const UNITS: &str = "lockstep-keyd.socket lockstep-keyd.service";

/// Whether systemd knows the daemon.
pub fn has_unit(root: &Path) -> bool {
    Unit::read(root, "lockstep-keyd.service").is_some()
}

/// Returns the step that waits until the daemon has written the references of a server.
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

/// Returns the step that creates the daemon's user.
pub fn create(name: &str) -> Change {
    let options = "--system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin";
    Change::Run {
        command: format!("useradd {options} {name}"),
        undo: Some(format!("userdel {name}")),
    }
}

/// The state of the daemon on a system with systemd.
#[derive(Clone, Copy)]
pub struct State {
    /// Whether systemd has its unit.
    pub has_unit: bool,
    pub is_enabled: bool,
    pub is_active: bool,
    /// Whether the user that the daemon runs as does not exist.
    pub lacks_user: bool,
}

impl State {
    /// Asks systemd for the state. The daemon is to run as `user`.
    pub fn now(root: &Path, user: &str) -> State {
        let ask = |about: &str| {
            let mut command = program("systemctl");
            run(command.args([about, "--quiet", "lockstep-keyd.socket"])).is_ok()
        };
        let has_unit = has_unit(root);
        State {
            has_unit,
            is_enabled: has_unit && ask("is-enabled"),
            is_active: has_unit && ask("is-active"),
            lacks_user: Accounts::of_system().user(user).is_none(),
        }
    }

    /// Returns the steps that start the daemon, or have it read its configuration again. The daemon
    /// can take another socket only while it does not run. If the steps are undone, the daemon is
    /// disabled before its sections are removed: the sections tell `uninstall` that the daemon may
    /// be enabled.
    pub fn start(self, has_new_socket: bool) -> Vec<Change> {
        let mut steps = vec![Change::step("systemctl daemon-reload")];
        if has_new_socket {
            steps.push(Change::step(format!("systemctl stop {UNITS}")));
        }
        steps.push(Change::Run {
            command: format!("systemctl enable {UNITS}"),
            undo: (!self.is_enabled).then(|| format!("systemctl disable {UNITS}")),
        });
        steps.push(Change::step("systemctl restart lockstep-keyd.service"));
        steps
    }

    /// Restores the state of the daemon once its files are restored. References that are new are
    /// removed.
    pub fn recover(self, fresh: &[PathBuf]) -> Vec<Change> {
        let reload = Change::step("systemctl daemon-reload");
        let stop = Change::step(format!("systemctl stop {UNITS}"));
        let start = Change::step(format!("systemctl start {UNITS}"));
        let fresh = fresh.iter().cloned().map(|path| Change::Forget { path });
        let stopped = [reload, stop].into_iter().chain(fresh);
        stopped.chain(self.is_active.then_some(start)).collect()
    }
}
