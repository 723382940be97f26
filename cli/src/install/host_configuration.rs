//! The configuration that `install` makes on the host: from the system's configuration, or from the
//! configuration that the unit of a service names.
//!
//! `install` makes it anew in each run, because the original file may have changed. The settings at
//! its end stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockstep_common::{Failure, INSTALLED, own_module};

use super::allowance::{self, Allowance};
use super::change::{Change, Plan, is_gone};
use super::found::Found;
use crate::configuration::configuration;
use crate::generated::Made;
use crate::servers::drop_in::drop_ins;
use crate::servers::named::naming;
use crate::servers::{Server, drop_in_of};
use crate::trust::{trusted, usable};
use crate::unit::{Planned, UNITS, Unit};
use crate::words::joined;

/// The configuration that a server is to load.
pub struct HostConfiguration {
    /// Its path on the server's system.
    pub named: String,
    /// The text that it will have.
    pub text: String,
    pub change: Change,
}

impl HostConfiguration {
    /// Makes the configuration for a server. A server with references has a configuration of its
    /// own, because no other program may use references by it. Fails where units of the server load
    /// different configurations.
    pub fn made(
        server: &Server,
        root: &Path,
        allowance: Option<&Allowance>,
    ) -> Result<HostConfiguration, Failure> {
        let from = origin(server, root)?;
        let has_references =
            allowance.is_some() || drop_ins(server, root).iter().any(|path| path.exists());
        let path = match from.is_some() || has_references {
            true => path_of(server),
            false => INSTALLED.to_owned(),
        };
        let (there, named) = (Found::at(root.join(&path)), format!("/{path}"));
        let mut settings = String::new();
        match intact(&there) {
            Some(made) => settings = made.settings,
            // The administrator has written or changed it, and it stays as it is.
            None if there.exists() => {
                usable(&there.path)?;
                let text = there.text()?.unwrap_or_default().to_owned();
                if allowance.is_some() {
                    allowance::check(&text, &named)?;
                }
                let change = there.to(text.clone());
                #[rustfmt::skip]
                return Ok(HostConfiguration { named, text, change });
            }
            // The settings that are in force for the server until now.
            None if from.is_none() => {
                let common = intact(&Found::at(root.join(INSTALLED)));
                settings = common.map(|made| made.settings).unwrap_or_default();
            }
            None => {}
        }
        if let Some(allowance) = allowance {
            settings = allowance.added_to(&settings);
        }
        let module = own_module()?;
        trusted([module.as_path()])?;
        let text = configuration(&module, from.as_deref(), root)? + &settings;
        let change = there.to(text.clone());
        #[rustfmt::skip]
        return Ok(HostConfiguration { named, text, change });
    }
}

/// Returns the configuration that units of a server load without `install`; `None` stands for the
/// system's. Fails where they load different ones.
fn origin(server: &Server, root: &Path) -> Result<Option<PathBuf>, Failure> {
    let without = server
        .units()
        .map(|unit| (root.join(drop_in_of(unit)), None));
    let without: Vec<Planned> = without.collect();
    let made = [INSTALLED.to_owned(), path_of(server)].map(|file| format!("/{file}"));
    let own = |name: String| {
        let unit = Unit::read_with(root, &name, &without).filter(Unit::has_fragment)?;
        let named = unit.variable("OPENSSL_CONF");
        Some((named.filter(|path| !made.contains(path)), name))
    };
    let units = server.units_with_instances(root).into_iter();
    let mut found: BTreeMap<_, _> = units.filter_map(own).collect();
    if found.len() > 1 {
        let units = found.iter().map(|(conf, unit)| match conf {
            Some(conf) => format!("{unit} loads {conf}"),
            None => format!("{unit} loads the system's"),
        });
        let what = format!(
            "units of {} load different configurations of OpenSSL, and `install` makes one for \
             all; nothing was done: {}",
            server.name,
            joined(units, ", ")
        );
        return Err(Failure::new(what)
            .remedy("install for one unit at a time, as NAME@INSTANCE, or have all load one"));
    }
    Ok(found
        .pop_first()
        .and_then(|(conf, _)| conf)
        .map(PathBuf::from))
}

/// The path of a server's own configuration, under the root.
fn path_of(server: &Server) -> String {
    INSTALLED.replace("openssl", server.name)
}

/// Parses a configuration that `install` has made and nobody has changed.
fn intact(file: &Found) -> Option<Made> {
    Made::parse(file.text().ok()??).filter(|made| made.is_intact)
}

/// Removes the configurations that `install` has made for servers that no longer load them, once
/// these changes are made. A configuration stays if something names it, if somebody has changed it,
/// or if it has settings.
pub fn plan_removal(leaving: &[&Server], root: &Path, changes: &[Change]) -> Plan {
    let own = leaving.iter().map(|server| path_of(server));
    let all = own.chain([INSTALLED.to_owned()]);
    let mut plan = Plan::default();
    for file in all {
        let found = Found::at(root.join(&file));
        let is_there = found.exists();
        let named = || naming(root, is_gone(&[changes]), &format!("/{file}"));
        let naming = is_there.then(named).flatten();
        let is_untouched = |made: Made| allowance::without(&made.settings).trim().is_empty();
        let is_untouched = intact(&found).is_some_and(is_untouched);
        let path = found.path;
        if let Some(naming) = naming {
            // No note is needed about drop-ins of other servers.
            if !naming.starts_with(root.join(UNITS)) {
                plan.notes.push(format!(
                    "{} stays, because {} names it. Remove that line, then run this again",
                    path.display(),
                    naming.display()
                ));
            }
            plan.changes.push(Change::Leave { path });
            continue;
        }
        plan.changes.push(match (is_there, is_untouched) {
            (false, _) => Change::Leave { path },
            (true, true) => Change::Remove { path },
            (true, false) => Change::Unchanged { path },
        });
    }
    plan
}
