//! A server's keys, read from its own configuration: their files, the user who serves with them,
//! and the root directory.
//!
//! nginx and Apache print the names of the files that they read; HAProxy and stunnel include none.
//! The administrator has to name a path that the text does not show, for example one made of
//! variables.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockstep_common::{Failure, insist_on_own_file, search_path};
use lockstep_keyd::stand_in::contents;

use crate::command::{reason, run};
use crate::trust::is_plain;
use crate::unit::{Unit, systemd_runs, text_of, words};

/// A server, as far as it matters for its keys.
pub struct Site {
    /// The files of its private keys.
    pub keys: Vec<PathBuf>,
    /// Who serves with them.
    pub user: String,
    /// The directory that it changes its root to.
    pub root: Option<PathBuf>,
}

/// What a configuration says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    keys: Vec<PathBuf>,
    user: Option<String>,
    root: Option<PathBuf>,
}

/// How a server's configuration is read, and how the server checks it.
pub struct Reader {
    pub read: fn(&System<'_>) -> Result<Said, Failure>,
    /// How the server checks it, if it can.
    pub check: Option<Program>,
}

/// A server's program, and how its unit starts it.
pub struct Program {
    unit: &'static str,
    /// Its command where there is no such unit.
    command: &'static str,
    /// Other names of it.
    names: &'static [&'static str],
    /// The argument that has it check its configuration.
    check: &'static str,
    options: &'static [(&'static str, Use)],
}

/// The words of a start, and the variables of its environment.
type Start = (Vec<String>, Vec<(String, String)>);

/// What an option of a start is for its check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Its value is a path that the server reads.
    Path,
    /// Its value is part of the configuration.
    Part,
    /// Its value does not matter.
    Other,
    /// It has no value, and does not matter.
    Flag,
}

/// Where a server would run.
pub struct System<'a> {
    pub root: &'a Path,
    /// The configuration of OpenSSL that loads the module.
    pub openssl: &'a Path,
}

impl System<'_> {
    /// Whether it is the one that this program runs on.
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether systemd can be told something there.
    pub fn runs_systemd(&self) -> bool {
        self.is_here() && systemd_runs()
    }

    /// Where a file of the server is for this program.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A program of the server, which loads the module.
    pub fn program(&self, name: impl AsRef<OsStr>) -> Command {
        let mut path = search_path();
        let mut command = Command::new(name);
        // An administrator's own path may lack the servers.
        path.push(":/usr/sbin:/sbin");
        command.env("PATH", path);
        command.env("OPENSSL_CONF", self.openssl);
        command
    }

    /// Has a server check its configuration as its unit has it, with one more file behind its own.
    /// Returns whether there was a check: a server may have none, or not be in the path, or be
    /// started in an unknown way. The error is the reason that it gives.
    ///
    /// Each pair is a file or directory, and the place where the server finds it instead of another
    /// one: in a mount namespace of its own, so that nothing else sees it there.
    pub fn check(
        &self,
        reader: &Reader,
        pairs: &[[PathBuf; 2]],
        more: Option<&Path>,
    ) -> Result<bool, String> {
        const SCRIPT: &str = "while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\" || exit; \
                              shift 2; done; shift; exec \"$@\"";
        let own = reader.check.as_ref().filter(|_| self.is_here());
        let Some((own, (words, variables))) = own.and_then(|own| Some((own, self.start(own)?)))
        else {
            return Ok(false);
        };
        let mut check = self.program(match pairs {
            [] => &words[0],
            _ => "unshare",
        });
        if !pairs.is_empty() {
            check.args(["--mount", "sh", "-c", SCRIPT, "sh"]);
            check.args(pairs.iter().flatten()).arg("--").arg(&words[0]);
        }
        check.arg(own.check).args(&words[1..]);
        check.envs(variables).stdin(Stdio::null());
        if let Some(file) = more {
            check.arg("-f").arg(file);
        }
        match check.output() {
            Ok(ended) if ended.status.success() => Ok(true),
            Ok(ended) => {
                let said = [ended.stderr, ended.stdout].concat();
                Err(reason(&String::from_utf8_lossy(&said)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The program that its unit starts, with the options about its configuration, and the
    /// variables of the unit. `None` where the unit is not understood: another program, as a script
    /// around this one, or an option that is not known. Root runs and reads nothing that others can
    /// change.
    fn start(&self, own: &Program) -> Option<Start> {
        let unit = Unit::read(self.root, own.unit).unwrap_or_default();
        let is_safe = |path: &Path| !path.exists() || insist_on_own_file(path).is_ok();
        let is_usual = |name: &str| own.command.split(' ').next() == Some(name);
        let mut words = start_words(&unit);
        if words.is_empty() {
            words.extend(own.command.split(' ').map(str::to_owned));
        }
        let is_root_moved = ["RootDirectory", "RootImage"].map(|name| unit.get(name).is_some());
        if is_root_moved.contains(&true) || words.iter().any(|word| word.contains(['$', '%', '\\']))
        {
            return None;
        }
        let mut words = words.into_iter();
        let program = words.next()?.trim_start_matches(['-', '+', '!']).to_owned();
        let path = Path::new(&program);
        let name = path.file_name()?.to_str()?;
        let is_script = || fs::read(path).is_ok_and(|text| text.starts_with(b"#!"));
        let is_understood = own.names.contains(&name)
            || is_usual(name) && (path.is_relative() || is_safe(path) && !is_script());
        if !is_understood || path.is_absolute() && !is_safe(path) {
            return None;
        }
        let mut started = vec![program];
        while let Some(word) = words.next() {
            let known =
                |is_it: &dyn Fn(&str) -> bool| own.options.iter().find(|(own, _)| is_it(own));
            let exact = known(&|own| own == word);
            // A value may follow at once.
            let (option, kind) = *exact.or_else(|| known(&|own| word.starts_with(own)))?;
            let value = match (word.strip_prefix(option)?, kind) {
                ("", Use::Flag) => continue,
                (_, Use::Flag) => return None,
                ("", _) => words.next()?,
                (value, _) => value.to_owned(),
            };
            let is_path = kind == Use::Path;
            if kind == Use::Other || is_path && value == HAPROXY_GLOBAL {
                continue;
            }
            if is_path && !(value.starts_with('/') && is_safe(Path::new(&value))) {
                return None;
            }
            started.extend([option.to_owned(), value]);
        }
        let mut variables = Vec::new();
        for name in unit.variables() {
            // The program is found, and loads the module, by these.
            if ["", "PATH", "OPENSSL_CONF"].contains(&&*name) {
                continue;
            }
            if let Some((value, file)) = unit.variable_and_file(&name) {
                is_safe(&file).then_some(())?;
                variables.push((name, value));
            }
        }
        Some((started, variables))
    }

    /// Has a server say something of its configuration.
    fn ask(&self, own: &Program, arguments: &[&str]) -> Result<String, Failure> {
        let name = own.command;
        if !self.is_here() {
            return Err(Failure::new(format!(
                "{name} would speak of this system, not of the one under {}",
                self.root.display()
            )));
        }
        let Some((words, variables)) = self.start(own) else {
            let what = format!(
                "lockstep does not understand how {} starts {name}",
                own.unit
            );
            return Err(Failure::new(what));
        };
        let mut ask = self.program(&words[0]);
        let said = run(ask.args(arguments).args(&words[1..]).envs(variables));
        said.map_err(|failure| {
            failure.remedy(format!("correct its configuration, and try: {name} -t"))
        })
    }

    /// The text of a file of the server's configuration.
    fn text(&self, path: &Path) -> Result<String, Failure> {
        text_of(&self.at(path))
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
    }

    fn holds_key(&self, path: &Path) -> bool {
        contents(&self.at(path)).key
    }
}

const NGINX_PROGRAM: Program = Program {
    unit: "nginx.service",
    command: "nginx",
    names: &[],
    check: "-tq",
    options: &[
        ("-c", Use::Path),
        ("-p", Use::Path),
        ("-e", Use::Part),
        ("-g", Use::Part),
    ],
};

pub const NGINX: Reader = Reader {
    read: |system| Ok(nginx(&system.ask(&NGINX_PROGRAM, &["-T"])?)),
    check: Some(NGINX_PROGRAM),
};

const APACHE_PROGRAM: Program = Program {
    unit: "apache2.service",
    command: "apachectl",
    // The first two are scripts that pass their arguments on.
    names: &["apachectl", "apache2ctl", "apache2"],
    check: "-t",
    options: &[
        ("-f", Use::Path),
        ("-d", Use::Path),
        ("-D", Use::Part),
        ("-C", Use::Part),
        ("-c", Use::Part),
        ("-k", Use::Other),
        ("start", Use::Flag),
    ],
};

pub const APACHE: Reader = Reader {
    read: |system| {
        let arguments = ["-t", "-D", "DUMP_INCLUDES", "-D", "DUMP_RUN_CFG"];
        apache(&system.ask(&APACHE_PROGRAM, &arguments)?, system)
    },
    check: Some(APACHE_PROGRAM),
};

pub const HAPROXY: Reader = Reader {
    read: |system| {
        let mut said = Said::default();
        for file in haproxy_files(system) {
            haproxy(&system.text(&file)?, system, &mut said)?;
        }
        said.user.get_or_insert("root".to_owned());
        Ok(said)
    },
    check: Some(Program {
        unit: "haproxy.service",
        command: "haproxy -f /etc/haproxy/haproxy.cfg",
        names: &[],
        check: "-c",
        options: &[
            ("-f", Use::Path),
            ("-C", Use::Path),
            ("-L", Use::Part),
            ("-p", Use::Other),
            ("-S", Use::Other),
            ("-W", Use::Flag),
            ("-Ws", Use::Flag),
            ("-D", Use::Flag),
            ("-db", Use::Flag),
            ("-q", Use::Flag),
        ],
    }),
};

pub const STUNNEL: Reader = Reader {
    read: |system| {
        let mut said = Said::default();
        for file in files_in(system, Path::new("/etc/stunnel"), "conf") {
            stunnel(&system.text(&file)?, system, &mut said);
        }
        said.user.get_or_insert("root".to_owned());
        Ok(said)
    },
    check: None,
};

/// A server whose configuration nobody here can read.
pub const OTHER: Reader = Reader {
    read: |_| {
        let what = "lockstep does not know where this service names its keys";
        Err(Failure::new(what))
    },
    check: None,
};

pub const DNSDIST: Reader = Reader {
    check: Some(Program {
        unit: "dnsdist.service",
        command: "dnsdist",
        names: &[],
        check: "--check-config",
        options: &[
            ("-C", Use::Path),
            ("--config", Use::Path),
            ("-u", Use::Other),
            ("-g", Use::Other),
            ("--supervised", Use::Flag),
            ("--disable-syslog", Use::Flag),
            ("--log-timestamps", Use::Flag),
        ],
    }),
    ..OTHER
};

/// The files of a directory that end so, in order.
fn files_in(system: &System<'_>, directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(system.at(directory)).into_iter().flatten();
    let names = entries
        .flatten()
        .map(|entry| directory.join(entry.file_name()));
    let mut files: Vec<PathBuf> = names
        .filter(|path| end.is_empty() || path.extension().is_some_and(|own| own == end))
        .collect();
    files.sort();
    files
}

/// The words of each line, without comments.
pub fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().map(|line| {
        let words = line.split_whitespace();
        let words = words.take_while(|word| !word.starts_with('#'));
        words.map(|word| word.trim_matches(['"', '\''])).collect()
    });
    lines.filter(|words: &Vec<&str>| !words.is_empty())
}

/// What `nginx -T` prints: all files, each behind a comment with its name.
fn nginx(dump: &str) -> Said {
    let mut said = Said::default();
    let first = dump
        .split_once("# configuration file ")
        .map(|(_, rest)| rest);
    let first = first
        .and_then(|rest| rest.split_once(":\n"))
        .map(|(path, _)| path);
    let directory = first.map(Path::new).and_then(Path::parent);
    let directory = directory.unwrap_or(Path::new("/etc/nginx"));
    let plain: Vec<String> = lines(dump).map(|words| words.join(" ")).collect();
    let plain = plain.join(" ");
    for statement in plain.split([';', '{', '}']) {
        let mut words = statement.split(' ').filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some("ssl_certificate_key"), Some(path)) => {
                add(
                    &mut said.keys,
                    directory.join(path.trim_matches(['"', '\''])),
                );
            }
            (Some("user"), Some(user)) if said.user.is_none() => said.user = Some(user.to_owned()),
            _ => {}
        }
    }
    said
}

/// What Apache prints of its files and of how it runs.
fn apache(dump: &str, system: &System<'_>) -> Result<Said, Failure> {
    let mut said = Said::default();
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let mut base = PathBuf::from("/");
    let mut files = Vec::new();
    for line in dump.lines() {
        match line.trim() {
            line if line.starts_with("User: ") => said.user = quoted(line),
            line if line.starts_with("ServerRoot: ") => {
                base = quoted(line).unwrap_or_default().into()
            }
            line if line.starts_with('(') => {
                files.extend(line.split_once(") ").map(|(_, path)| PathBuf::from(path)));
            }
            _ => {}
        }
    }
    for file in files {
        for words in lines(&system.text(&file)?) {
            let [name, path, ..] = words[..] else {
                continue;
            };
            let path = base.join(path);
            // Directives have no case. A key may stand in the file of the certificate.
            match name.to_ascii_lowercase().as_str() {
                "sslcertificatekeyfile" => add(&mut said.keys, path),
                "sslcertificatefile" if system.holds_key(&path) => add(&mut said.keys, path),
                _ => {}
            }
        }
    }
    Ok(said)
}

/// The file that `install` has HAProxy read after its own.
pub const HAPROXY_GLOBAL: &str = "/etc/lockstep/haproxy-global.cfg";

/// The files of HAProxy's configuration: as its unit has them, or else the usual one; without that
/// of Lockstep.
pub fn haproxy_files(system: &System<'_>) -> Vec<PathBuf> {
    let unit = Unit::read(system.root, "haproxy.service").unwrap_or_default();
    let words = start_words(&unit);
    let named = words.windows(2).filter(|pair| pair[0] == "-f");
    let named = named.filter(|pair| pair[1] != "-f" && pair[1] != HAPROXY_GLOBAL);
    let mut files: Vec<PathBuf> = named.map(|pair| PathBuf::from(&pair[1])).collect();
    if files.is_empty() {
        files.push(PathBuf::from("/etc/haproxy/haproxy.cfg"));
    }
    let contained = |path: PathBuf| match system.at(&path).is_dir() {
        true => files_in(system, &path, "cfg"),
        false => vec![path],
    };
    files.into_iter().flat_map(contained).collect()
}

/// The HAProxy that its unit starts.
pub fn haproxy_program(system: &System<'_>) -> String {
    let started = HAPROXY.check.and_then(|own| system.start(&own));
    started.map_or("haproxy".to_owned(), |(mut words, _)| words.swap_remove(0))
}

/// The words of the command that a unit starts, with the values of its variables.
fn start_words(unit: &Unit) -> Vec<String> {
    let start = words(unit.get("ExecStart").unwrap_or_default()).into_iter();
    // systemd takes `$NAME` apart at its spaces, and `${NAME}` not.
    let words = start.flat_map(|word| {
        let Some(name) = word.strip_prefix('$') else {
            return vec![word];
        };
        match name
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(name) => unit.variable(name).into_iter().collect(),
            None => {
                let value = unit.variable(name).unwrap_or_default();
                value.split_whitespace().map(str::to_owned).collect()
            }
        }
    });
    words.filter(|word| !word.is_empty()).collect()
}

fn haproxy(text: &str, system: &System<'_>, said: &mut Said) -> Result<(), Failure> {
    let mut base = PathBuf::from("/");
    for words in lines(text) {
        match words[..] {
            ["user", user] => said.user = Some(user.to_owned()),
            ["uid", number] => said.user = Some(number.to_owned()),
            ["chroot", root] => said.root = Some(PathBuf::from(root)),
            ["crt-base", directory] => base = PathBuf::from(directory),
            ["bind", ..] => {
                for pair in words.windows(2) {
                    let path = base.join(pair[1]);
                    match pair[0] {
                        "crt" => haproxy_key(&path, system, &mut said.keys),
                        "crt-list" => {
                            let list = system.text(&path)?;
                            let files = lines(&list).map(|words| base.join(words[0]));
                            files.for_each(|path| haproxy_key(&path, system, &mut said.keys));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The keys behind a `crt`: in the file, beside it, or in each file of a directory.
fn haproxy_key(path: &Path, system: &System<'_>, keys: &mut Vec<PathBuf>) {
    if system.at(path).is_dir() {
        let files = files_in(system, path, "").into_iter();
        files
            .filter(|path| system.holds_key(path))
            .for_each(|path| add(keys, path));
        return;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".key");
    let beside = PathBuf::from(beside);
    match system.holds_key(&beside) && !system.holds_key(path) {
        true => add(keys, beside),
        false => add(keys, path.to_owned()),
    }
}

fn stunnel(text: &str, system: &System<'_>, said: &mut Said) {
    for line in text.lines() {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let path = PathBuf::from(value.trim());
        match name.trim() {
            "key" => add(&mut said.keys, path),
            "cert" if system.holds_key(&path) => add(&mut said.keys, path),
            "setuid" => said.user = Some(value.trim().to_owned()),
            "chroot" => said.root = Some(path),
            _ => {}
        }
    }
}

fn add(keys: &mut Vec<PathBuf>, path: PathBuf) {
    if !keys.contains(&path) {
        keys.push(path);
    }
}

/// The site of a server, with what the administrator names instead of what its configuration says.
pub fn site(
    name: &str,
    reader: &Reader,
    system: &System<'_>,
    keys: &[PathBuf],
    user: Option<&str>,
) -> Result<Site, Failure> {
    let said = match (reader.read)(system) {
        Err(_) if !keys.is_empty() && user.is_some() => Said::default(),
        Err(failure) => {
            let or = "name its keys by --key and the user that serves by --user";
            let remedies = failure.remedy.into_iter().chain([or.to_owned()]);
            let remedies: Vec<String> = remedies.collect();
            return Err(Failure::new(failure.what).remedy(remedies.join("; or ")));
        }
        Ok(said) => said,
    };
    let user = user.map(str::to_owned).or(said.user).ok_or_else(|| {
        let what = format!("{name}'s configuration does not say which user serves");
        Failure::new(what).remedy("name it by --user")
    })?;
    let keys = match keys {
        [] => said.keys,
        named => named.to_vec(),
    };
    let is_odd = |path: &&PathBuf| !path.is_absolute() || !is_plain(&path.to_string_lossy());
    if let Some(odd) = keys.iter().find(is_odd) {
        return Err(Failure::new(format!(
            "a key of {name} is not in a file with a fixed path, or systemd reads the path \
             differently: {}",
            odd.display()
        ))
        .remedy("name its keys by --key, with absolute paths of letters, digits and . _ + - /"));
    }
    Ok(Site {
        keys,
        user,
        root: said.root,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n";

    /// A system with these files.
    fn place(name: &str, files: &[(&str, &str)]) -> lockstep_testkit::TempDir {
        let place = lockstep_testkit::TempDir::new(name);
        for (path, text) in files {
            let path = place.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        place
    }

    fn system(root: &Path) -> System<'_> {
        System {
            root,
            openssl: Path::new("/dev/null"),
        }
    }

    #[test]
    fn what_nginx_prints_is_read() {
        let dump = "\
# configuration file /opt/nginx/nginx.conf:
user www-data staff; # user nobody;
http { server { listen 443 ssl;ssl_certificate_key \"site.key\"; }
# ssl_certificate_key old.key;
# configuration file /opt/nginx/sites/other:
  server {
    ssl_certificate_key
        /etc/ssl/private/other.key;
    proxy_ssl_certificate_key /client.key;
    ssl_certificate_key site.key;
  } }
";
        let expected = Said {
            keys: paths(&["/opt/nginx/site.key", "/etc/ssl/private/other.key"]),
            user: Some("www-data".to_owned()),
            root: None,
        };
        assert_eq!(nginx(dump), expected);
    }

    #[test]
    fn haproxys_files_are_read() {
        let place = place(
            "haproxy-site",
            &[
                (
                    "lib/systemd/system/haproxy.service",
                    "[Service]\nEnvironment=\"CONFIG=/etc/h.cfg\"\n\
                     ExecStart=/usr/sbin/haproxy -Ws -f $CONFIG -f ${MORE} -f /etc/h.d\n",
                ),
                (
                    "etc/h.cfg",
                    "global\n chroot /var/lib/haproxy\n user haproxy\n crt-base /etc/ssl\n\
                     frontend a\n bind :443 ssl crt a.pem crt /b.pem # crt no.pem\n\
                     bind :444 ssl crt-list /list crt all\n\
                     backend b\n server s 1.2.3.4:443 ssl crt /client.pem\n",
                ),
                ("etc/h.d/more.cfg", "frontend c\n bind :445 ssl crt c.pem\n"),
                ("etc/ssl/a.pem", KEY),
                ("b.pem", "-----BEGIN CERTIFICATE-----\n"),
                ("b.pem.key", KEY),
                ("list", "listed.pem [alpn h2] x\n# no.pem\n"),
                ("etc/ssl/listed.pem", KEY),
                ("etc/ssl/all/1.pem", KEY),
                ("etc/ssl/all/2.ocsp", ""),
            ],
        );
        let site = (HAPROXY.read)(&system(&place)).unwrap();
        let expected = Said {
            keys: paths(&[
                "/etc/ssl/a.pem",
                "/b.pem.key",
                "/etc/ssl/listed.pem",
                "/etc/ssl/all/1.pem",
                "/c.pem",
            ]),
            user: Some("haproxy".to_owned()),
            root: Some(PathBuf::from("/var/lib/haproxy")),
        };
        assert_eq!(site, expected);
        // HAProxy takes `-f` for the file that the variable would name.
        let own = HAPROXY.check.unwrap();
        assert_eq!(system(&place).start(&own), None);
    }

    #[test]
    fn a_server_checks_what_its_unit_has_it_read() {
        let started = |reader: Reader, start: &str| {
            let unit = reader.check.as_ref().unwrap().unit;
            let path = format!("lib/systemd/system/{unit}");
            let start = format!("[Service]\nEnvironment=\"OPT=-f /a b\" PATH=/x\n{start}\n");
            let place = place("starts", &[(&path, &start)]);
            let (words, variables) = system(&place).start(&reader.check.unwrap())?;
            assert_eq!(variables, [("OPT".to_owned(), "-f /a b".to_owned())]);
            Some(words.join(" "))
        };
        for (reader, start, expected) in [
            (NGINX, "", Some("nginx")),
            (
                NGINX,
                "ExecStart=/x/nginx -c /a.conf -g 'daemon off;'",
                Some("/x/nginx -c /a.conf -g daemon off;"),
            ),
            (
                NGINX,
                "ExecStart=-/x/nginx -c/a.conf",
                Some("/x/nginx -c /a.conf"),
            ),
            (NGINX, "ExecStart=/x/nginx -c a.conf", None),
            (NGINX, "ExecStart=/x/start-nginx -c /a.conf", None),
            (NGINX, "ExecStart=/x/nginx -c /%i.conf", None),
            (NGINX, "ExecStart=/x/nginx --new", None),
            (NGINX, "ExecStart=/x/nginx\nRootDirectory=/y", None),
            (APACHE, "ExecStart=/x/apachectl start", Some("/x/apachectl")),
            (
                APACHE,
                "ExecStart=/x/apache2 -DFOREGROUND -k start -d /y",
                Some("/x/apache2 -D FOREGROUND -d /y"),
            ),
            (HAPROXY, "", Some("haproxy -f /etc/haproxy/haproxy.cfg")),
            (
                HAPROXY,
                "ExecStart=/x/haproxy -Ws -f /a -p $P -f /etc/lockstep/haproxy-global.cfg",
                None,
            ),
            (
                HAPROXY,
                "ExecStart=/x/haproxy -Ws -f /a -f /etc/lockstep/haproxy-global.cfg",
                Some("/x/haproxy -f /a"),
            ),
            (HAPROXY, "ExecStart=/x/haproxy $OPT", None),
            (
                DNSDIST,
                "ExecStart=/x/dnsdist --supervised -C /a",
                Some("/x/dnsdist -C /a"),
            ),
        ] {
            assert_eq!(started(reader, start).as_deref(), expected, "{start}");
        }
    }

    #[test]
    fn apaches_and_stunnels_files_are_read() {
        let place = place(
            "apache-site",
            &[
                (
                    "etc/apache2/a.conf",
                    "<VirtualHost *:443>\n  SSLCertificateFile /a.crt\n\
                     sslcertificatekeyfile \"ssl/a.key\"\n# SSLCertificateKeyFile no\n",
                ),
                ("etc/apache2/b.conf", "SSLCertificateFile /both.pem\n"),
                ("a.crt", ""),
                ("both.pem", KEY),
                (
                    "etc/stunnel/s.conf",
                    "setuid = stunnel4\nchroot = /var/lib/stunnel4\n; key = no\n[a]\n\
                     cert = /a.crt\nkey = /a.key\n[b]\ncert = /both.pem\n",
                ),
            ],
        );
        let said = "Included configuration files:\n  (*) /etc/apache2/a.conf\n    (146) \
                    /etc/apache2/b.conf\nServerRoot: \"/etc/apache2\"\n\
                    User: name=\"www-data\" id=33\n";
        let site = apache(said, &system(&place)).unwrap();
        assert_eq!(site.keys, paths(&["/etc/apache2/ssl/a.key", "/both.pem"]));
        assert_eq!(site.user.as_deref(), Some("www-data"));
        let site = (STUNNEL.read)(&system(&place)).unwrap();
        assert_eq!(site.keys, paths(&["/a.key", "/both.pem"]));
        assert_eq!(site.user.as_deref(), Some("stunnel4"));
        assert_eq!(site.root.as_deref(), Some(Path::new("/var/lib/stunnel4")));
    }
}
