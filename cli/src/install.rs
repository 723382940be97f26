//! `lockstep install` and `lockstep uninstall`: files that have a packaged server load the module.
//!
//! Each file is one that the server or systemd reads beside its own, so nothing of theirs changes.
//! A file counts as ours if it is, to the letter, one that `install` writes; any other is left
//! alone, and then nothing else is done either. The configuration that they name is made on the
//! host.

mod change;
mod own_file;
mod server;
mod trust;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lockstep_common::{Failure, Outcome, out, outln};

use change::Change;
use own_file::{OwnFile, plan_removal};
pub use server::units;
use server::{CONF, SERVERS, Server, server_names};
use trust::{is_plain, usable};

/// Has a server of the distribution load the module
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct InstallOptions {
    /// The server
    #[arg(long, value_name = "NAME", value_parser = server_names())]
    server: &'static Server,
    /// The openssl.cnf to load [default: /etc/lockstep/openssl.cnf, which is made from the system's
    /// own; /etc/lockstep/NAME.cnf where the server has another one]
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// haproxy: also print how its processes may start lockstep's worker threads, and which
    /// protection that removes (without them HAProxy's own threads compute)
    #[arg(long)]
    worker_threads: bool,
    #[command(flatten)]
    manner: Manner,
}

/// Undoes what install did
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct UninstallOptions {
    /// The server [default: all of them]
    #[arg(long, value_name = "NAME", value_parser = server_names())]
    server: Option<&'static Server>,
    #[command(flatten)]
    manner: Manner,
}

/// How changes are made.
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
own, and restart nothing: they print the command that brings the change into effect.";

/// Has a server load the module.
pub fn install(options: &InstallOptions) -> Outcome {
    let server = options.server;
    if options.worker_threads && server.threads.is_none() {
        let name = server.name;
        return Err(Failure::usage(format!(
            "--worker-threads is for haproxy: {name} needs nothing for them to start"
        )));
    }
    let root = &options.manner.root;
    let (conf, mut changes) = match &options.conf {
        Some(conf) => (usable(conf)?, Vec::new()),
        None => {
            let own = OwnFile::of(server, root);
            (own.named(), vec![own.plan(root)?])
        }
    };
    changes.extend(plan_install(server, root, &conf)?);
    if options.manner.carry_out(&changes, &[server])? {
        let threads = server.threads.filter(|_| options.worker_threads);
        for also in server.also.into_iter().chain(threads) {
            outln!("also needed: {also}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Undoes it.
pub fn uninstall(options: &UninstallOptions) -> Outcome {
    let root = &options.manner.root;
    let mut changes = Vec::new();
    let mut leaving = Vec::new();
    for server in SERVERS {
        if options.server.is_some_and(|only| only.name != server.name) {
            continue;
        }
        let planned = plan_uninstall(server, root)?;
        // Where none is named, only those are worth a line that load the module.
        if options.server.is_some() || !planned.iter().all(Change::is_nothing) {
            changes.extend(planned);
            leaving.push(server);
        }
    }
    changes.extend(plan_removal(&leaving, root));
    options.manner.carry_out(&changes, &leaving)?;
    Ok(ExitCode::SUCCESS)
}

impl Manner {
    /// Announces these changes for servers and makes them; false if there is nothing to do.
    fn carry_out(&self, changes: &[Change], servers: &[&Server]) -> Result<bool, Failure> {
        for change in changes {
            out!("{}", change.announcement());
        }
        if changes.iter().all(Change::is_nothing) {
            outln!("nothing to do");
            return Ok(false);
        }
        if !self.dry_run {
            for change in changes {
                change.make().map_err(|error| {
                    Failure::new(format!("cannot {}: {error}", change.words()))
                        .remedy("run this as root, or look at --root")
                })?;
            }
        }
        for server in servers {
            outln!("to bring this into effect: {}", server.then);
        }
        Ok(true)
    }
}

fn plan_install(server: &Server, root: &Path, conf: &str) -> Result<Vec<Change>, Failure> {
    let plan = |(file, template): &(&str, &str)| {
        let path = root.join(file);
        let text = text(server, template, conf);
        Ok(match ours(server, &path, template)? {
            Some(there) if there == text => Change::Unchanged { path },
            _ => Change::Write { path, text },
        })
    };
    server.files.iter().map(plan).collect()
}

fn plan_uninstall(server: &Server, root: &Path) -> Result<Vec<Change>, Failure> {
    let plan = |(file, template): &(&str, &str)| {
        let path = root.join(file);
        Ok(match ours(server, &path, template)? {
            Some(_) => Change::Remove { path },
            None => Change::Absent { path },
        })
    };
    server.files.iter().map(plan).collect()
}

/// What `install` writes.
fn text(server: &Server, template: &str, conf: &str) -> String {
    let name = server.name;
    format!(
        "# Written by `lockstep install`; `lockstep uninstall --server {name}` removes it.\n{}",
        template.replace(CONF, conf)
    )
}

/// The text of a file that `install` has written, for whatever configuration; None if there is no
/// file.
fn ours(server: &Server, path: &Path, template: &str) -> Result<Option<String>, Failure> {
    let foreign = || {
        Failure::new(format!(
            "{} is not as `lockstep install` writes it; nothing was done",
            path.display()
        ))
        .remedy("look at it, and move it away if it is not needed")
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(about) if about.is_file() => {}
        _ => return Err(foreign()),
    }
    let there = fs::read_to_string(path).map_err(|_| foreign())?;
    let pattern = text(server, template, CONF);
    let conf = match pattern.split_once(CONF) {
        Some((before, after)) => there
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .filter(|conf| is_plain(conf)),
        None => (there == pattern).then_some(""),
    };
    conf.map(|_| Some(there.clone())).ok_or_else(foreign)
}
