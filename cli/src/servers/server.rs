//! The servers that `install` knows, and the files that have them load the module.

use std::collections::BTreeSet;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::limits;
use super::site::{APACHE, HAPROXY, NGINX, Reader, STUNNEL, System};

/// A server, and what it reads.
pub struct Server {
    pub name: &'static str,
    pub files: &'static [(&'static str, &'static str)],
    /// What brings the change into effect.
    pub then: &'static str,
    /// What no file of Lockstep's can do, if something is left to do there.
    pub also: Option<fn(&System<'_>) -> Option<String>>,
    /// What lets worker threads start where the server does not.
    pub threads: Option<&'static str>,
    /// The file that its script of init reads for its environment.
    pub environment: &'static str,
    /// How its own list of groups gets a hybrid; `@GROUPS@` stands for the list.
    pub hybrid: &'static str,
    /// What reads its own configuration.
    pub reader: Reader,
}

/// Where the path of the configuration goes.
pub const CONF: &str = "@CONF@";

pub const UNIT: &str = "[Service]\nEnvironment=OPENSSL_CONF=@CONF@\n";

/// What its drop-ins are called: systemd takes them in the order of their names, and the last one
/// that sets a variable holds. `systemctl edit` makes one that is called `override.conf`.
const DROP_IN: &str = "zz-lockstep.conf";
/// What they were called before.
const EARLIER: &str = "lockstep.conf";

pub const SERVERS: &[Server] = &[
    Server {
        name: "haproxy",
        files: &[(
            "etc/systemd/system/haproxy.service.d/zz-lockstep.conf",
            UNIT,
        )],
        then: "systemctl daemon-reload && systemctl restart haproxy",
        also: Some(limits::step),
        threads: Some(
            "haproxy.cfg needs the line insecure-fork-wanted there too, so that its processes may start \
             lockstep's worker threads. HAProxy then no longer stops code that has taken over one of its \
             processes from starting programs. The gain is a few percent with RSA keys, and none \
             with others",
        ),
        environment: "etc/default/haproxy",
        hybrid: "write in its section `global`: ssl-default-bind-curves @GROUPS@",
        reader: HAPROXY,
    },
    Server {
        name: "apache",
        files: &[(
            "etc/systemd/system/apache2.service.d/zz-lockstep.conf",
            UNIT,
        )],
        then: "systemctl daemon-reload && systemctl restart apache2",
        also: None,
        threads: None,
        environment: "etc/apache2/envvars",
        hybrid: "write beside its other directives of TLS: SSLOpenSSLConfCmd Groups @GROUPS@",
        reader: APACHE,
    },
    Server {
        name: "nginx",
        files: &[
            ("etc/systemd/system/nginx.service.d/zz-lockstep.conf", UNIT),
            (
                "etc/nginx/modules-enabled/99-lockstep.conf",
                "env OPENSSL_CONF;\n",
            ),
        ],
        then: "systemctl daemon-reload && systemctl restart nginx",
        also: None,
        threads: None,
        environment: "etc/default/nginx",
        hybrid: "write in its block `http`: ssl_ecdh_curve @GROUPS@;",
        reader: NGINX,
    },
    Server {
        name: "stunnel",
        files: &[
            (
                "etc/systemd/system/stunnel@.service.d/zz-lockstep.conf",
                UNIT,
            ),
            (
                "etc/systemd/system/stunnel4.service.d/zz-lockstep.conf",
                UNIT,
            ),
        ],
        then: "systemctl daemon-reload && systemctl restart 'stunnel*'",
        also: None,
        threads: None,
        environment: "etc/default/stunnel4",
        hybrid: "write in the section of each service: curves = @GROUPS@",
        reader: STUNNEL,
    },
];

impl Server {
    /// The drop-ins for its units, with the names of these.
    pub fn drop_ins(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.files.iter().filter_map(|(file, _)| {
            let unit = file.strip_prefix("etc/systemd/system/")?;
            let unit = unit.strip_suffix(DROP_IN)?.strip_suffix(".d/")?;
            Some((*file, unit))
        })
    }

    /// What its directory in /etc and its script of init may be called.
    pub fn names(&self) -> BTreeSet<&'static str> {
        let of_units = self.drop_ins().map(|(_, unit)| {
            let stem = unit.strip_suffix(".service").unwrap_or(unit);
            stem.strip_suffix('@').unwrap_or(stem)
        });
        of_units.chain([self.name]).collect()
    }

    /// Its directories in /etc, under a root.
    pub fn directories(&self) -> Vec<String> {
        let names = self.names().into_iter();
        names.map(|name| format!("etc/{name}")).collect()
    }

    /// The drop-ins that earlier versions wrote.
    pub fn earlier_drop_ins(&self) -> impl Iterator<Item = String> {
        self.drop_ins()
            .map(|(file, _)| file.replace(DROP_IN, EARLIER))
    }
}

/// The units of systemd that may run a server, or a service of another name.
pub fn units(name: &str) -> Vec<String> {
    match SERVERS.iter().find(|server| server.name == name) {
        Some(server) => server.drop_ins().map(|(_, unit)| unit.to_owned()).collect(),
        None => vec![format!(
            "{}.service",
            name.strip_suffix(".service").unwrap_or(name)
        )],
    }
}

/// The server that is called like this, or whose unit or process is.
pub fn server_called(name: &str) -> Option<&'static str> {
    let is_of_unit = |(_, unit): (&str, &str)| {
        let unit = unit.strip_suffix(".service").unwrap_or(unit);
        unit.strip_suffix('@').unwrap_or(unit) == name
    };
    let mut servers = SERVERS.iter();
    let server = servers.find(|server| server.name == name || server.drop_ins().any(is_of_unit));
    server.map(|server| server.name)
}

/// Takes the name of a server on the command line.
pub fn server_names() -> impl TypedValueParser<Value = &'static Server> {
    PossibleValuesParser::new(SERVERS.iter().map(|server| server.name)).map(|name| {
        let known = SERVERS.iter().find(|server| server.name == name);
        known.expect("the parser takes only names of servers")
    })
}
