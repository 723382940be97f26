//! HAProxy's lines in a file of Lockstep's, and the drop-in that has HAProxy read it.

use std::path::Path;

use lockstep_common::{Failure, is_root};

use super::change::{Change, Plan, is_gone};
use super::found::Found;
use super::processes::processes_of;
use crate::process::Processes;
use crate::servers::Server;
use crate::servers::global::{BY_HAND, DROP_IN, EMPTIED, Lines, is_own, is_own_drop_in, missing};
use crate::servers::named::naming;
use crate::servers::site::{HAPROXY_GLOBAL, System};
use crate::servers::starter::Starter;
use crate::unit::Unit;

/// Plans the changes that give a server its lines. Also returns the steps that remain, and notes.
pub fn plan(
    server: &Server,
    system: &System<'_>,
    starter: &Starter,
) -> Result<(Vec<Change>, Lines), Failure> {
    let also = match server.has_lines {
        true if system.is_here() && !is_root() => {
            Some("the lines of haproxy.cfg, which only root can try".to_owned())
        }
        true => None,
        false => by_hand(server, system.root),
    };
    if also.is_some() || !server.has_lines {
        let lines = Lines {
            also: also.into_iter().collect(),
            ..Lines::default()
        };
        return Ok((Vec::new(), lines));
    }
    let mut lines = missing(system, starter);
    let drop_in = Found::at(system.root.join(DROP_IN));
    let drop_in = drop_in.own(is_own_drop_in, lines.drop_in.take())?;
    // The file is created before the drop-in names it, and removed after the drop-in.
    let global = Found::at(system.at(Path::new(HAPROXY_GLOBAL)));
    let mut changes = vec![global.own(is_own, lines.text.take())?, drop_in];
    if let Change::Remove { .. } = changes[0] {
        let steps = removal(server, system, global, &changes);
        changes.remove(0);
        changes.extend(steps);
    }
    Ok((changes, lines))
}

/// Describes the lines for an HAProxy of another unit, such as `haproxy@` or one with another name.
fn by_hand(server: &Server, root: &Path) -> Option<String> {
    let unit = Unit::read(root, &format!("{}.service", server.name))?;
    let program = unit.get("ExecStart")?.split_whitespace().next()?;
    let is_haproxy = program.rsplit('/').next() == Some("haproxy");
    is_haproxy.then(|| {
        format!(
            "`install` writes HAProxy's lines for haproxy.service alone. The file that {} reads \
             {BY_HAND}",
            unit.name
        )
    })
}

/// Plans the removal of the lines.
pub fn plan_removal(server: &Server, root: &Path) -> Plan {
    let mut plan = Plan::default();
    if !server.has_lines {
        return plan;
    }
    let openssl = Path::new("");
    let system = System { root, openssl };
    plan.undo(Found::at(root.join(DROP_IN)).own(is_own_drop_in, None));
    let global = Found::at(system.at(Path::new(HAPROXY_GLOBAL)));
    match global.own(is_own, None) {
        Ok(Change::Remove { .. }) => {
            if system.is_here() && is_running(server) {
                plan.until_restart.push(server.name);
            }
            let naming = naming(root, is_gone(&[&plan.changes]), HAPROXY_GLOBAL);
            plan.notes.extend(naming.map(|path| {
                format!(
                    "{} names {HAPROXY_GLOBAL}, which stays, without lines: HAProxy does not start \
                     without it. Remove `-f {HAPROXY_GLOBAL}` there, restart HAProxy, and then \
                     remove the file",
                    path.display()
                )
            }));
            let steps = removal(server, &system, global, &plan.changes);
            plan.changes.extend(steps);
        }
        other => plan.undo(other),
    }
    plan
}

/// Removes the file with the lines once these changes are made. HAProxy does not start without a
/// file that its command names, and reads the file again at a reload. So the file stays, without
/// lines, where something else names it or a process was started with it. systemd reloads its units
/// first; an `uninstall` that was killed may not have done so.
fn removal(server: &Server, system: &System<'_>, global: Found, changes: &[Change]) -> Vec<Change> {
    let emptied = global.to(EMPTIED.to_owned());
    if naming(system.root, is_gone(&[changes]), HAPROXY_GLOBAL).is_some() {
        return vec![emptied];
    }
    let step = match system.is_here() && is_running(server) {
        true => emptied,
        false => Change::Remove { path: global.path },
    };
    match system.runs_systemd() && !step.is_nothing() {
        true => vec![Change::step("systemctl daemon-reload"), step],
        false => vec![step],
    }
}

/// Whether a process of the server was started with the file.
fn is_running(server: &Server) -> bool {
    let mut processes = processes_of(server, Processes::here());
    processes.any(|own| own.arguments().iter().any(|word| word == HAPROXY_GLOBAL))
}
