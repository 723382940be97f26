//! The servers that `install` knows, and the files that have them load the module.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::site::{APACHE, HAPROXY, NGINX, Reader, STUNNEL};

/// A server, and what it reads.
pub struct Server {
    pub name: &'static str,
    pub files: &'static [(&'static str, &'static str)],
    /// What brings the change into effect.
    pub then: &'static str,
    /// What no file of Lockstep's can do.
    pub also: Option<&'static str>,
    /// What lets worker threads start where the server does not.
    pub threads: Option<&'static str>,
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
        also: Some(
            "haproxy.cfg needs two lines in its section `global`: ssl-mode-async, and maxpipes with half the number \
             of maxconn, which reserves a file descriptor for each connection",
        ),
        threads: Some(
            "haproxy.cfg needs the line insecure-fork-wanted there too, so that its processes may start \
             lockstep's worker threads. HAProxy then no longer stops code that has taken over one of its \
             processes from starting programs. The gain is a few percent with RSA keys, and none \
             with others",
        ),
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
