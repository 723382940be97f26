//! The configuration that `install` makes on the host: from that of the system or, where the unit
//! of a service names another one, from that.
//!
//! It is made anew whenever `install` runs, because the system's file, from which it was made, may
//! have changed. The settings at its end stay.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::{Failure, INSTALLED, own_module};

use super::allowance::{self, Allowance};
use super::change::{Change, Plan, is_gone};
use crate::configuration::configuration;
use crate::generated::Made;
use crate::servers::drop_in::drop_ins;
use crate::servers::named::naming;
use crate::servers::{Server, drop_in_of};
use crate::trust::{trusted, usable};
use crate::unit::{Planned, UNITS, Unit};
use crate::words::joined;

/// A configuration of Lockstep's.
pub struct OwnFile {
    /// Its path, under the root.
    path: String,
    /// What it is made from, if that is not the system's.
    from: Option<PathBuf>,
    /// What it says about references.
    allowance: Option<Allowance>,
}

impl OwnFile {
    /// The one for a server. A server with references has one of its own, because no other program
    /// may read references by it. Fails where units of the server load different ones.
    pub fn of(
        server: &Server,
        root: &Path,
        allowance: Option<Allowance>,
    ) -> Result<OwnFile, Failure> {
        let has_references =
            allowance.is_some() || drop_ins(server, root).iter().any(|path| path.exists());
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
        let from = found.pop_first().and_then(|(conf, _)| conf);
        let path = match from.is_some() || has_references {
            true => path_of(server),
            false => INSTALLED.to_owned(),
        };
        let from = from.map(PathBuf::from);
        #[rustfmt::skip]
        return Ok(OwnFile { path, from, allowance });
    }

    /// The path by which the server finds it.
    pub fn named(&self) -> String {
        format!("/{}", self.path)
    }

    /// What brings it up to date.
    pub fn plan(&self, root: &Path) -> Result<Change, Failure> {
        let path = root.join(&self.path);
        let mut settings = String::new();
        if path.exists() {
            match made(&path).filter(|made| made.is_intact) {
                Some(made) => settings = made.settings,
                // Somebody else's, or changed: it is theirs.
                None => {
                    usable(&path)?;
                    if self.allowance.is_some() {
                        allowance::check(&path, &self.named())?;
                    }
                    return Ok(Change::Unchanged { path });
                }
            }
        } else if self.from.is_none() {
            // The settings that hold for the server so far.
            let common = made(&root.join(INSTALLED)).filter(|made| made.is_intact);
            settings = common.map(|made| made.settings).unwrap_or_default();
        }
        if let Some(allowance) = &self.allowance {
            settings = allowance.added_to(&settings);
        }
        let module = own_module()?;
        trusted([module.as_path()])?;
        let text = configuration(&module, self.from.as_deref(), root)? + &settings;
        Ok(Change::to(path, text))
    }
}

/// The configuration for a server with an own one.
fn path_of(server: &Server) -> String {
    INSTALLED.replace("openssl", server.name)
}

fn made(path: &Path) -> Option<Made> {
    Made::parse(&fs::read_to_string(path).ok()?)
}

/// What becomes of the configurations that `install` has made, when these servers no longer load
/// them and these changes are made: each goes when nothing names it any more, unless it was changed
/// or has settings.
pub fn plan_removal(leaving: &[&Server], root: &Path, changes: &[Change]) -> Plan {
    let own = leaving.iter().map(|server| path_of(server));
    let all = own.chain([INSTALLED.to_owned()]);
    let mut plan = Plan::default();
    for file in all {
        let path = root.join(&file);
        let is_there = path.exists();
        let named = || naming(root, is_gone(&[changes]), &format!("/{file}"));
        if let Some(naming) = is_there.then(named).flatten() {
            // Other servers' drop-ins are no news.
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
        let is_untouched =
            |made: Made| made.is_intact && allowance::without(&made.settings).trim().is_empty();
        plan.changes
            .push(match (is_there, made(&path).is_some_and(is_untouched)) {
                (false, _) => Change::Leave { path },
                (true, true) => Change::Remove { path },
                (true, false) => Change::Unchanged { path },
            });
    }
    plan
}
