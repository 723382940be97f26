//! `lockstep install` and `lockstep uninstall`: files with which a packaged server loads the
//! module.
//!
//! The server or systemd reads these files beside its own, so no existing file changes. A file
//! belongs to `install` if it is exactly a text that `install` writes. Any other file is left
//! alone, and then nothing else is changed. The files name a configuration that is made on the
//! host.
//!
//! `install` observes, plans and then makes the changes; the plan is a function of the observed
//! facts alone.

mod allowance;
mod change;
mod daemon;
mod found;
mod held;
mod host_configuration;
mod lines;
mod processes;
mod references;
mod sections;

use std::fs::{self, File, OpenOptions};
use std::mem;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lockstep_common::{Failure, Outcome, Scratch, is_root, out, outln};
use lockstep_keyd::keyd_conf::DEFAULT_FILE;
use rustix::fs::{FlockOperation, flock};

use change::{Change, Plan};
use found::Found;
use host_configuration::{HostConfiguration, plan_removal};
use references::{KeydOptions, Keys};

use crate::command::NOTHING;
use crate::servers::drop_in::{drop_ins, is_drop_in};
use crate::servers::hybrid;
use crate::servers::named::has_line;
use crate::servers::site::System;
use crate::servers::starter::{Starter, is_set_here};
use crate::servers::{CONF, DROP_IN, SERVERS, Server, marked, others, server, service_name};
use crate::trial::accepted;
use crate::trust::{is_plain, usable};
use crate::unit::{Planned, UNITS, Unit};

/// Has a service load the module
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct InstallOptions {
    /// The service: haproxy, apache, nginx, stunnel, trafficserver, dnsdist, or the unit of another
    /// one
    #[arg(long, value_name = "NAME", visible_alias = "server", value_parser = service_name)]
    service: String,
    /// The openssl.cnf to load [default: /etc/lockstep/openssl.cnf, which is made from the system's
    /// own; /etc/lockstep/NAME.cnf where the server has another one]
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    #[command(flatten)]
    keyd: KeydOptions,
    #[command(flatten)]
    manner: Manner,
}

/// Undoes what install did
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct UninstallOptions {
    /// The service [default: all of them]
    #[arg(long, value_name = "NAME", visible_alias = "server", value_parser = service_name)]
    service: Option<String>,
    /// For the package, which removes by itself what stays until a restart
    #[arg(long, hide = true)]
    package: bool,
    #[command(flatten)]
    manner: Manner,
}

/// Options about the changes.
#[derive(Args)]
struct Manner {
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it under this directory instead of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

const NOTES: &str = "\
The files that install writes are ones that the server or systemd reads beside the server's own.
install and uninstall print what they are about to do. They write and remove only files of their
own, and restart no server: they print the command that brings the change into effect. The exit
status of uninstall is 3 if it left something without which a server would not start. After a command
that was killed, uninstall takes away what that command left.

With --keyd, install finds the files of the server's private keys, has the server check its
configuration with references in their places, gives the key daemon a section for each in
/etc/lockstep/keyd.conf, starts it, and has systemd show the service references in the places of the
keys. The keys stay where they are.

Examples:
  lockstep install --service nginx --dry-run
  lockstep install --service nginx
  lockstep uninstall --service nginx

Files:
  /etc/lockstep/openssl.cnf     the configuration that the services load
  /etc/systemd/system/NAME.service.d/zz-lockstep.conf   has a service load it";

/// Has a server load the module: observes, plans, and makes the changes.
pub fn install(options: &InstallOptions) -> Outcome {
    let manner = &options.manner;
    let _alone = manner.alone();
    let observed = Observed::of(options)?;
    let (plan, notes) = observed.plan()?;
    let Observed { server, conf, .. } = &observed;
    if observed.by_systemd {
        takes_effect(server, &manner.root, conf, &plan.changes)?;
    }
    // A server that would start without lockstep must not be restarted yet.
    let servers = observed.lacks.is_none().then_some(*server);
    manner.carry_out(&plan, servers.as_slice(), &observed.also, &notes)?;
    observed.lacks.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The facts that `install` finds before it plans. It has read each file that it may change once,
/// and has tried the configuration.
struct Observed {
    server: &'static Server,
    mark: PathBuf,
    /// The files that have the server load the module, each with its template.
    files: Vec<(Found, &'static str)>,
    /// The path of the configuration of OpenSSL, and the change that makes it if it is Lockstep's.
    conf: String,
    own: Option<Change>,
    /// The changes that bring HAProxy its lines.
    lines: Vec<Change>,
    /// The keys that the key daemon is to hold.
    keys: Option<Keys>,
    /// Steps that remain for the administrator, and notes.
    also: Vec<String>,
    notes: Vec<String>,
    by_systemd: bool,
    /// The reason why the server does not load the configuration after a restart.
    lacks: Option<Failure>,
}

impl Observed {
    fn of(options: &InstallOptions) -> Result<Observed, Failure> {
        let root = &options.manner.root;
        let server = server(&options.service, root)?;
        let starter = Starter::of(server, root);
        let by_systemd = starter.is_systemd();
        if by_systemd {
            server.insist_on_unit(root)?;
        }
        let daemon = Found::at(root.join(DEFAULT_FILE.trim_start_matches('/')));
        let allowance = options.keyd.allowance(&daemon)?;
        let (conf, own) = match &options.conf {
            Some(conf) => {
                if let (Some(_), Ok(text)) = (&allowance, fs::read_to_string(conf)) {
                    allowance::check(&text, &conf.display().to_string())?;
                }
                (usable(conf)?, None)
            }
            None => {
                let own = HostConfiguration::made(server, root, allowance.as_ref())?;
                accepted(&own.named, &own.text, root)?;
                (own.named, Some(own.change))
            }
        };
        let scratch = Scratch::new("install")?;
        let tried = match &own {
            Some(Change::Write { text, .. }) => Some(scratch.write("openssl.cnf", text)?),
            _ => None,
        };
        let openssl = tried.as_deref().unwrap_or(Path::new(&conf));
        let system = System { root, openssl };
        let mut notes = Vec::new();
        // A server that gets references checks its configuration later, with the references in the
        // places of its keys (`KeydOptions::keys`).
        let is_later = allowance.is_some() && system.runs_systemd();
        if !is_later && !takes_its_own(server, &system)? {
            notes.push(format!(
                "the configuration of {} was not checked, because its unit starts it with options, \
                 variables or a program of its own: check it before the restart",
                server.name
            ));
        }
        let keys = options.keyd.keys(server, &system, daemon)?;
        let (lines, found) = lines::plan(server, &system, &starter)?;
        notes.extend(found.notes);
        notes.extend(hybrid::step(server, root));
        if !by_systemd && is_set_here(&conf) {
            notes.push(format!(
                "systemd does not run here, and OPENSSL_CONF is set to this file in the environment \
                 of this command: it must be in that of {}, too",
                server.name
            ));
        }
        // Only systemd reads its drop-ins.
        let files = server.files();
        let files = files.filter(|(file, _)| by_systemd || !file.starts_with(UNITS));
        let files = files.map(|(file, template)| (Found::at(root.join(file)), template));
        Ok(Observed {
            mark: server.mark(root),
            files: files.collect(),
            also: found.also,
            lacks: starter.lacks(server, &conf),
            server,
            conf,
            own,
            lines,
            keys,
            notes,
            by_systemd,
        })
    }

    /// Makes the plan, and the notes for the administrator.
    fn plan(&self) -> Result<(Plan, Vec<String>), Failure> {
        let server = self.server;
        let mut plan = Plan {
            marks: vec![self.mark.clone()],
            ..Plan::default()
        };
        plan.changes.extend(self.own.clone());
        for (file, template) in &self.files {
            let text = text(server, template, &self.conf);
            let change = file.own(is_ours(server, template), Some(text))?;
            plan.changes.push(change);
        }
        plan.changes.extend(self.lines.iter().cloned());
        if let Some(keys) = &self.keys {
            plan.add(keys.plan(server)?);
        }
        let notes = mem::take(&mut plan.notes);
        let notes = notes.into_iter().chain(self.notes.iter().cloned());
        Ok((plan, notes.collect()))
    }
}

/// Undoes `install`.
pub fn uninstall(options: &UninstallOptions) -> Outcome {
    let root = &options.manner.root;
    let _alone = options.manner.alone();
    let mut plan = Plan::default();
    let (mut leaving, mut changing) = (Vec::new(), Vec::new());
    let servers = match &options.service {
        Some(name) => vec![server(name, root)?],
        None => SERVERS.iter().chain(others(root)).collect(),
    };
    for server in servers {
        let planned = plan_uninstall(server, root);
        // Without a service on the command line, only servers that load the module are named.
        let has_some = !planned.is_nothing() || references::has_references(server, root);
        let may_load = has_some || !planned.left.is_empty();
        // Without systemd, a line in the file of its init script has it load the module.
        let is_ours = |line: &str| line.contains("/etc/lockstep/");
        let is_named = has_line(&root.join(server.environment), is_ours);
        let of_hybrid = hybrid::needed(server, root).filter(|_| may_load || is_named);
        let done = [&plan.changes[..], &planned.changes];
        let of_references = references::needed(server, root, &done);
        if of_hybrid.is_some() || of_references.is_some() {
            plan.left.extend(planned.left);
            plan.left.extend(of_hybrid.into_iter().chain(of_references));
            continue;
        }
        if options.service.is_some() || has_some || !planned.left.is_empty() {
            if has_some || planned.left.is_empty() {
                changing.push(server);
            }
            plan.add(planned);
            leaving.push(server);
        }
    }
    match references::plan_removal(&leaving, root) {
        Ok(of_keyd) if options.package => plan.add(Plan {
            notes: Vec::new(),
            ..of_keyd
        }),
        Ok(of_keyd) => plan.add(of_keyd),
        Err(failure) => {
            plan.left.push(still_needed(&leaving, root, failure));
            return plan.remainder().map(|()| ExitCode::SUCCESS);
        }
    }
    let unused = plan_removal(&leaving, root, &plan.changes);
    plan.add(unused);
    if options.package {
        plan.until_restart.clear();
    }
    if let Err(failure) = options.manner.carry_out(&plan, &changing, &[], &[]) {
        // The exit status still says whether a server needs the module.
        plan.left.push(still_needed(&leaving, root, failure));
    }
    plan.remainder().map(|()| ExitCode::SUCCESS)
}

/// Gives a failure the status for a server that still has references: that server would not start
/// without the module.
fn still_needed(servers: &[&Server], root: &Path, failure: Failure) -> Failure {
    let mut servers = servers.iter();
    match servers.any(|server| references::has_references(server, root)) {
        true => failure.status(hybrid::IS_NEEDED),
        false => failure,
    }
}

/// A file that the running command locks. Only root can lock it.
const LOCK: &str = "/run/lockstep-install.lock";

impl Manner {
    /// Waits until no other of these commands runs: they would undo each other's steps.
    fn alone(&self) -> Option<File> {
        if self.root != Path::new("/") || !is_root() {
            return None;
        }
        let mut open = OpenOptions::new();
        // Without this directory the command does not wait.
        let file = open.create(true).append(true).mode(0o600).open(LOCK).ok()?;
        flock(&file, FlockOperation::LockExclusive).ok()?;
        Some(file)
    }

    /// Announces a plan and carries it out. Then prints the steps `also` that remain, `notes`, the
    /// commands that restart `servers`, and the plan's notes.
    fn carry_out(
        &self,
        plan: &Plan,
        servers: &[&Server],
        also: &[String],
        notes: &[String],
    ) -> Result<(), Failure> {
        let has_some = !plan.is_nothing();
        let is_allowed = self.dry_run || self.root != Path::new("/") || is_root();
        if has_some && !is_allowed {
            outln!("nothing is done, because only root can do it. As root, this would:");
        }
        for mark in plan.marks.iter().filter(|mark| mark.exists()) {
            outln!(
                "end what a killed command began, and remove {}",
                mark.display()
            );
        }
        for change in &plan.changes {
            out!("{}", change.announcement());
        }
        if has_some && !is_allowed {
            let what = "nothing was done: only root can change these files";
            return Err(Failure::new(what).remedy("run this as root"));
        }
        if !self.dry_run && is_allowed {
            plan.carry_out()?;
        }
        if !has_some {
            outln!("nothing to do");
        }
        // Steps that remain are printed until they are done.
        for also in also {
            outln!("also needed: {also}");
        }
        let told = |notes: &[String]| {
            for note in notes.iter().filter(|_| has_some) {
                outln!("note: {note}");
            }
        };
        told(notes);
        for server in servers {
            let restart = Starter::of(server, &self.root).restart(server);
            let name = server.name;
            if plan.until_restart.contains(&name) {
                outln!(
                    "to bring this into effect, and to remove what {name} has until then: \
                     {restart} && lockstep uninstall --server {name}"
                );
            } else if has_some {
                outln!("to bring this into effect: {restart}");
            }
        }
        told(&plan.notes);
        let is_other = |name: &String| !servers.iter().any(|server| server.name == name);
        for name in marked(&self.root).filter(is_other) {
            outln!(
                "note: a command for {name} was killed. To undo the rest of it: lockstep uninstall \
                 --server {name}"
            );
        }
        Ok(())
    }
}

/// Fails where a server refuses its configuration: a restart would end the server that runs.
/// Returns false if the server was not asked, because its unit starts it otherwise than the check.
fn takes_its_own(server: &Server, system: &System<'_>) -> Result<bool, Failure> {
    // Other users cannot read all files of the configuration.
    if !is_root() || server.reader.check.is_none() {
        return Ok(true);
    }
    let units = server.units();
    let mut units = units.filter_map(|unit| Unit::read(system.root, unit));
    if !units.all(|unit| starts_as_checked(server, &unit)) {
        return Ok(false);
    }
    let Err(why) = system.check(&server.reader, &[], None) else {
        return Ok(true);
    };
    let stock = System {
        openssl: Path::new(NOTHING),
        ..*system
    };
    let (by, remedy) = match stock.check(&server.reader, &[], None) {
        Ok(()) => (
            "with lockstep, ",
            "leave this server without lockstep, and report this",
        ),
        Err(_) => ("", "correct its configuration, then run this again"),
    };
    let name = server.name;
    Err(Failure::new(format!(
        "{by}{name} refuses its configuration, so it would not start again; nothing was done: {why}"
    ))
    .remedy(remedy))
}

/// Whether a unit starts a server with the program, the files and the variables that the check
/// uses. The check of HAProxy uses the files and variables of its unit.
fn starts_as_checked(server: &Server, unit: &Unit) -> bool {
    const OPTIONS: [&str; 6] = ["-c", "-C", "-f", "-d", "-p", "--config"];
    let start = unit.get("ExecStart").unwrap_or_default();
    let mut words = start.split_whitespace();
    let is_usual = |program: &str| {
        let places = ["/usr/sbin/", "/usr/bin/"];
        places.iter().any(|place| program.starts_with(place))
    };
    let is_known = |variable: &&str| {
        let names = ["APACHE_STARTED_BY_SYSTEMD=", "OPENSSL_CONF="];
        names.iter().any(|name| variable.contains(name))
    };
    words.next().is_none_or(is_usual)
        && (server.has_lines
            || !words.any(|word| OPTIONS.contains(&word))
                && unit.all("EnvironmentFile").is_empty()
                && unit.all("Environment").iter().all(is_known))
}

/// Plans the removal of the changes of `install`. It leaves a file that somebody has changed, and
/// removes all others. Drop-ins with references go first: a server that restarts meanwhile then
/// reads no reference without the module.
fn plan_uninstall(server: &Server, root: &Path) -> Plan {
    let mut plan = Plan {
        marks: vec![server.mark(root)],
        ..Plan::default()
    };
    for path in drop_ins(server, root) {
        plan.undo(Found::at(path).own(|there| is_drop_in(server, there), None));
    }
    for (file, template) in server.files() {
        let file = Found::at(root.join(file)).own(is_ours(server, template), None);
        plan.undo(file.map_err(|failure| still_on(server, failure)));
    }
    plan.add(lines::plan_removal(server, root));
    plan
}

/// Adds to a failure how to switch lockstep off: the server may load the module by the file that
/// stays.
fn still_on(server: &Server, failure: Failure) -> Failure {
    let remedy = format!(
        "to switch lockstep off for {}, remove the file, or its lines about OPENSSL_CONF; then: {}",
        server.name,
        server.then()
    );
    failure.remedy(remedy)
}

/// Fails where a unit of the server would still read another configuration, because something
/// overrides the drop-in.
fn takes_effect(
    server: &Server,
    root: &Path,
    conf: &str,
    changes: &[Change],
) -> Result<(), Failure> {
    let planned: Vec<Planned> = changes.iter().filter_map(Change::planned).collect();
    for name in server.units_with_instances(root) {
        let Some(unit) = Unit::read_with(root, &name, &planned) else {
            continue;
        };
        if let Some(setting) = unit.hides(Path::new(conf)) {
            return Err(Failure::new(format!(
                "with {setting} {name} does not find {conf}, so the server would run without \
                 lockstep, and without the system's configuration of OpenSSL; nothing was done"
            ))
            .remedy("have the service see that file and the module, then run this again"));
        }
        let Some((value, file)) = unit.variable_and_file("OPENSSL_CONF") else {
            return Err(Failure::new(format!(
                "UnsetEnvironment= of {name} removes OPENSSL_CONF, so the server would not load \
                 lockstep; nothing was done"
            ))
            .remedy("remove OPENSSL_CONF from that setting, then run this again"));
        };
        if value == conf {
            continue;
        }
        let shown = file.display();
        let remedy = match unit.files.contains(&file) {
            true => format!(
                "rename {shown} so that it sorts before {DROP_IN}, then run this again: it adds \
                 lockstep to what {value} has"
            ),
            false => format!(
                "remove that line, then run this again. If {value} is to stay in force, first set \
                 it in a drop-in, to which this adds lockstep: systemctl edit {name}, with the \
                 lines [Service] and Environment=OPENSSL_CONF={value}"
            ),
        };
        return Err(Failure::new(format!(
            "{shown} sets OPENSSL_CONF={value} for {name} and overrides the drop-in of `install`, \
             so the server would not load lockstep; nothing was done"
        ))
        .remedy(remedy));
    }
    Ok(())
}

/// Returns the text of a file that `install` writes.
fn text(server: &Server, template: &str, conf: &str) -> String {
    let name = server.name;
    format!(
        "# Written by `lockstep install`; `lockstep uninstall --server {name}` removes it.\n{}",
        template.replace(CONF, conf)
    )
}

/// Whether `install` writes this text, for any configuration.
fn is_ours(server: &Server, template: &str) -> impl Fn(&str) -> bool {
    let pattern = text(server, template, CONF);
    move |there| match pattern.split_once(CONF) {
        Some((before, after)) => there
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(is_plain),
        None => there == pattern,
    }
}

#[cfg(test)]
mod tests;
