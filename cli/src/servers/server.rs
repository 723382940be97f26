//! The servers that `install` knows, and the files that have them load the module.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lockstep_common::Failure;

use super::site::{APACHE, DNSDIST, HAPROXY, NGINX, OTHER, Reader, STUNNEL};
use crate::files::entries;
use crate::unit::{self, UNITS, Unit};
use crate::words::joined;

/// A server and its files.
pub struct Server {
    pub name: &'static str,
    /// Its units, each with the drop-in that has it load the module.
    pub units: &'static [(&'static str, &'static str)],
    /// A file beside its own configuration, and the text of that file, if it needs one.
    pub other_file: Option<(&'static str, &'static str)>,
    /// Whether it needs lines of its own configuration ([`super::global`]).
    pub has_lines: bool,
    /// The file that its init script reads for environment variables.
    pub environment: &'static str,
    /// Step by which its own list of groups gets a hybrid; empty if unknown. `@GROUPS@` stands for
    /// the list.
    pub hybrid: &'static str,
    /// Reader of its own configuration.
    pub reader: Reader,
}

/// Placeholder for the path of the configuration.
pub const CONF: &str = "@CONF@";

const UNIT: &str = "[Service]\nEnvironment=OPENSSL_CONF=@CONF@\n";

/// Traffic Server takes each of its settings from a variable, too.
const TRAFFIC_SERVER: &str = "[Service]\nEnvironment=OPENSSL_CONF=@CONF@\n\
    Environment=PROXY_CONFIG_SSL_ASYNC_HANDSHAKE_ENABLED=1\n";

/// Name of the drop-ins: systemd takes drop-ins in the order of their names, and the last one that
/// sets a variable is in force. `systemctl edit` makes one named `override.conf`.
pub const DROP_IN: &str = "zz-lockstep.conf";
/// End of the name of a mark ([`Server::mark`]).
const MARK: &str = ".unfinished";

pub const SERVERS: &[Server] = &[
    Server {
        name: "haproxy",
        units: &[("haproxy.service", UNIT)],
        other_file: None,
        has_lines: true,
        environment: "etc/default/haproxy",
        hybrid: "write in its section `global`: ssl-default-bind-curves @GROUPS@",
        reader: HAPROXY,
    },
    Server {
        name: "apache",
        units: &[("apache2.service", UNIT)],
        other_file: None,
        has_lines: false,
        environment: "etc/apache2/envvars",
        hybrid: "write beside its other directives of TLS: SSLOpenSSLConfCmd Groups @GROUPS@",
        reader: APACHE,
    },
    Server {
        name: "nginx",
        units: &[("nginx.service", UNIT)],
        other_file: Some((
            "etc/nginx/modules-enabled/99-lockstep.conf",
            "env OPENSSL_CONF;\n",
        )),
        has_lines: false,
        environment: "etc/default/nginx",
        hybrid: "write in its block `http`: ssl_ecdh_curve @GROUPS@;",
        reader: NGINX,
    },
    Server {
        name: "stunnel",
        units: &[("stunnel@.service", UNIT), ("stunnel4.service", UNIT)],
        other_file: None,
        has_lines: false,
        environment: "etc/default/stunnel4",
        hybrid: "write in the section of each service: curves = @GROUPS@",
        reader: STUNNEL,
    },
    Server {
        name: "trafficserver",
        units: &[("trafficserver.service", TRAFFIC_SERVER)],
        other_file: None,
        has_lines: false,
        environment: "etc/default/trafficserver",
        hybrid: "",
        reader: OTHER,
    },
    Server {
        name: "dnsdist",
        units: &[("dnsdist.service", UNIT)],
        other_file: None,
        has_lines: false,
        environment: "etc/default/dnsdist",
        hybrid: "",
        reader: DNSDIST,
    },
];

impl Server {
    /// Describes a service that is not in [`SERVERS`], by its unit. The value lives as long as the
    /// program, as the others do.
    fn of_unit(name: &str) -> &'static Server {
        let kept = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let unit = kept(format!("{name}{SERVICE}"));
        Box::leak(Box::new(Server {
            name: kept(name.to_owned()),
            units: Box::leak(Box::new([(unit, UNIT)])),
            other_file: None,
            has_lines: false,
            environment: kept(format!("etc/default/{name}")),
            hybrid: "",
            reader: OTHER,
        }))
    }

    /// Fails where no unit starts this service, or where its unit starts nothing itself.
    pub fn insist_on_unit(&self, root: &Path) -> Result<(), Failure> {
        let name = self.name;
        let mut units = self.units().filter_map(|unit| Unit::read(root, unit));
        let Some(unit) = units.find(Unit::has_fragment) else {
            let units = joined(self.units(), ", nor a unit ");
            return Err(
                Failure::new(format!("there is no unit {units}; nothing was done")).remedy(
                    "install the server first, or name its unit: systemctl list-unit-files \
                 --type=service",
                ),
            );
        };
        let start = unit.get("ExecStart").unwrap_or_default();
        let program = start.split_whitespace().next().unwrap_or_default();
        match program.rsplit('/').next() {
            Some("true") => Err(Failure::new(format!(
                "{name}{SERVICE} starts no server, and only groups other units"
            ))
            .remedy(format!(
                "name an instance (systemctl list-units '{name}@*'), or {name}@ for all of them"
            ))),
            _ => Ok(()),
        }
    }

    /// The names of its units.
    pub fn units(&self) -> impl Iterator<Item = &'static str> {
        self.units.iter().map(|(unit, _)| *unit)
    }

    /// The files that `install` writes for it, under a root, each with its text.
    pub fn files(&self) -> impl Iterator<Item = (String, &'static str)> {
        let drop_ins = self
            .units
            .iter()
            .map(|(unit, text)| (drop_in_of(unit), *text));
        let other = self.other_file.map(|(file, text)| (file.to_owned(), text));
        drop_ins.chain(other)
    }

    /// The names of its units, and of instances that have files of their own. An instance with a
    /// drop-in of `install` is a separate service and left out.
    pub fn units_with_instances(&self, root: &Path) -> Vec<String> {
        let is_other = |name: &str| root.join(drop_in_of(name)).exists();
        let of = |unit| {
            let names = Unit::with_instances(root, unit).into_iter();
            names.filter(move |name| name == unit || !is_other(name))
        };
        self.units().flat_map(of).collect()
    }

    /// The command that brings a change into effect.
    pub fn then(&self) -> String {
        let units: Vec<_> = self.units().map(stem).collect();
        let units = match units[..] {
            [unit] if unit.ends_with('@') => format!("'{unit}*'"),
            [unit] => unit.to_owned(),
            _ => format!("'{}*'", self.name),
        };
        format!("systemctl daemon-reload && systemctl restart {units}")
    }

    /// Possible names of its directory in /etc and of its init script.
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.units().map(unit::stem).chain([self.name]).collect()
    }

    /// Its directories in /etc, under a root.
    pub fn directories(&self) -> Vec<String> {
        let names = self.names().into_iter();
        names.map(|name| format!("etc/{name}")).collect()
    }

    /// The path of an empty file that exists while a command changes the files of the server, and
    /// stays if the command is killed.
    pub fn mark(&self, root: &Path) -> PathBuf {
        root.join(format!("etc/lockstep/{}{MARK}", self.name))
    }
}

/// The drop-in of `install` for a unit, under a root.
pub fn drop_in_of(unit: &str) -> String {
    format!("{UNITS}/{unit}.d/{DROP_IN}")
}

/// The names of the servers that have a mark.
pub fn marked(root: &Path) -> impl Iterator<Item = String> {
    entries(&root.join("etc/lockstep")).filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        service_name(name.strip_suffix(MARK)?).ok()
    })
}

/// The units of systemd that may run a server, or a service of another name.
pub fn units(name: &str) -> Vec<String> {
    match SERVERS.iter().find(|server| server.name == name) {
        Some(server) => server.units().map(str::to_owned).collect(),
        None => vec![format!("{}.service", stem(name))],
    }
}

/// Finds a known server by its name, or by the name of its unit or its process.
pub fn server_called(name: &str) -> Option<&'static str> {
    known(name).map(|server| server.name)
}

fn known(name: &str) -> Option<&'static Server> {
    let is_of_unit = |unit: &str| {
        let unit = stem(unit);
        unit.strip_suffix('@').unwrap_or(unit) == name || unit == name
    };
    let mut servers = SERVERS.iter();
    servers.find(|server| server.name == name || server.units().any(is_of_unit))
}

fn stem(unit: &str) -> &str {
    unit.strip_suffix(SERVICE).unwrap_or(unit)
}

/// Takes the name of a server, or of a unit, on the command line. It becomes part of paths, and of
/// lines that systemd reads.
pub fn service_name(text: &str) -> Result<String, String> {
    let name = stem(text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= LONGEST_NAME
        && name.chars().all(is_plain);
    match is_name && name != "openssl" {
        true => Ok(name.to_owned()),
        false => Err(
            "a name has only letters, digits and . _ - @, as haproxy or postgresql@15-main"
                .to_owned(),
        ),
    }
}

/// Maximum length of a service name. A unit's name has at most 255 bytes (systemd.unit(5)); the
/// rest is for the names of files that contain the service name.
const LONGEST_NAME: usize = 200;
const SERVICE: &str = ".service";

/// Finds the server with this name: a known one, or any service that has a unit.
pub fn server(name: &str, root: &Path) -> Result<&'static Server, Failure> {
    let named = Unit::aliased(root, &format!("{name}{SERVICE}"));
    if let Some(server) = known(name).or_else(|| known(stem(&named))) {
        return Ok(server);
    }
    if named == "null" {
        return Err(Failure::new(format!("{name}{SERVICE} is masked"))
            .remedy(format!("systemctl unmask {name}{SERVICE}")));
    }
    service_name(&named).map_err(|why| Failure::new(format!("{named}: {why}")))?;
    Ok(Server::of_unit(stem(&named)))
}

/// Finds the services outside [`SERVERS`] that have a drop-in of `install` or a mark.
pub fn others(root: &Path) -> Vec<&'static Server> {
    let of_drop_in = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".d")?;
        service_name(name.strip_suffix(SERVICE)?).ok()
    };
    let mut names: Vec<String> = entries(&root.join(UNITS))
        .filter(|path| path.join(DROP_IN).is_file())
        .filter_map(of_drop_in)
        .chain(marked(root))
        .filter(|name| known(name).is_none())
        .collect();
    names.sort();
    names.dedup();
    names.iter().map(|name| Server::of_unit(name)).collect()
}
