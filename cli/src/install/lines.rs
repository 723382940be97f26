//! The lines that HAProxy needs, in a file of Lockstep's, and the drop-in that has it read them.

use std::path::Path;

use lockstep_common::{Failure, is_root};

use super::change::{Change, Plan, is_gone, own};
use super::processes::processes_of;
use crate::files::text_of;
use crate::servers::Server;
use crate::servers::global::{BY_HAND, DROP_IN, EMPTIED, Lines, is_own, is_own_drop_in, missing};
use crate::servers::named::naming;
use crate::servers::site::{HAPROXY_GLOBAL, System};
use crate::servers::starter::Starter;
use crate::unit::Unit;

/// What gives a server its lines, and what remains to be done or known.
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
    let drop_in = own(
        system.root.join(DROP_IN),
        is_own_drop_in,
        lines.drop_in.take(),
    )?;
    // The file is there before it is named, and goes after that.
    let path = system.at(Path::new(HAPROXY_GLOBAL));
    let mut changes = vec![own(path, is_own, lines.text.take())?, drop_in];
    if let Change::Remove { .. } = changes[0] {
        let steps = removal(server, system, &changes);
        changes.remove(0);
        changes.extend(steps);
    }
    Ok((changes, lines))
}

/// What an HAProxy of another unit needs, as `haproxy@` or one by another name.
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

/// What takes the lines away again, and what is left.
pub fn plan_removal(server: &Server, root: &Path) -> Plan {
    let mut plan = Plan::default();
    if !server.has_lines {
        return plan;
    }
    let openssl = Path::new("");
    let system = System { root, openssl };
    plan.undo(own(root.join(DROP_IN), is_own_drop_in, None));
    match own(system.at(Path::new(HAPROXY_GLOBAL)), is_own, None) {
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
            let steps = removal(server, &system, &plan.changes);
            plan.changes.extend(steps);
        }
        other => plan.undo(other),
    }
    plan
}

/// What takes the file away when these changes are made. HAProxy does not start without a file that
/// it is told to read, and reads it when it reloads. So the file stays, without lines, where
/// something else names it or a process was started with it; and systemd is told first that no unit
/// names it, maybe for an `uninstall` that was killed.
fn removal(server: &Server, system: &System<'_>, changes: &[Change]) -> Vec<Change> {
    let path = system.at(Path::new(HAPROXY_GLOBAL));
    if naming(system.root, is_gone(&[changes]), HAPROXY_GLOBAL).is_some() {
        return vec![Change::to(path, EMPTIED.to_owned())];
    }
    let step = match system.is_here() && is_running(server) {
        true => Change::to(path, EMPTIED.to_owned()),
        false => Change::Remove { path },
    };
    match system.runs_systemd() && !step.is_nothing() {
        true => vec![Change::step("systemctl daemon-reload"), step],
        false => vec![step],
    }
}

/// Whether a process of the server was started with the file.
fn is_running(server: &Server) -> bool {
    let mut words = processes_of(server).filter_map(|own| text_of(&own.join("cmdline")).ok());
    words.any(|words| words.split('\0').any(|word| word == HAPROXY_GLOBAL))
}
