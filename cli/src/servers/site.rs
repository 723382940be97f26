//! A server's keys, read from its own configuration: their files, the user who serves with them,
//! and the root directory.
//!
//! nginx and Apache print the names of the files that they read. Files of HAProxy and stunnel
//! include no others. The administrator has to name a path that the text does not show, for example
//! one made of variables.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockstep_common::{Failure, search_path};
use lockstep_keyd::reference_file::contents;

use crate::command::{reason, run};
use crate::files::{entries, text_of};
use crate::trust::is_plain;
use crate::unit::{Unit, systemd_runs};
use crate::words::joined;

/// The facts about a server that matter for its keys.
pub struct Site {
    /// The files of its private keys.
    pub keys: Vec<PathBuf>,
    /// User that serves with them.
    pub user: String,
    /// Directory that it changes its root to, if it does.
    pub root: Option<PathBuf>,
}

/// Facts from a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    keys: Vec<PathBuf>,
    user: Option<String>,
    root: Option<PathBuf>,
}

/// Functions that read a server's configuration, and have the server check it.
pub struct Reader {
    pub read: fn(&System<'_>) -> Result<Said, Failure>,
    /// The command that checks it, if the server has one.
    pub check: Option<fn(&System<'_>) -> Vec<OsString>>,
}

/// The system on which a server would run.
pub struct System<'a> {
    pub root: &'a Path,
    /// The configuration of OpenSSL that loads the module.
    pub openssl: &'a Path,
}

impl System<'_> {
    /// Whether this program runs on the same system.
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether commands for systemd have an effect there.
    pub fn runs_systemd(&self) -> bool {
        self.is_here() && systemd_runs()
    }

    /// Returns the path of a file of the server for this program.
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

    /// Has a server check its configuration, with one more file behind its own. A server that has
    /// no such command, or is not in the path, passes. The error is the reason that it gives.
    ///
    /// Each pair is a file or directory, and the path at which the server finds it. It is mounted
    /// there in a mount namespace of the check, so no other process sees it.
    pub fn check(
        &self,
        reader: &Reader,
        pairs: &[[PathBuf; 2]],
        more: Option<&Path>,
    ) -> Result<(), String> {
        const SCRIPT: &str = "while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\" || exit; \
                              shift 2; done; shift; exec \"$@\"";
        let Some(words) = reader.check.filter(|_| self.is_here()) else {
            return Ok(());
        };
        let words = words(self);
        let mut check = self.program(match pairs {
            [] => words[0].as_os_str(),
            _ => "unshare".as_ref(),
        });
        if !pairs.is_empty() {
            check.args(["--mount", "sh", "-c", SCRIPT, "sh"]);
            check.args(pairs.iter().flatten()).arg("--").arg(&words[0]);
        }
        check.args(&words[1..]).stdin(Stdio::null());
        if words[0] == "haproxy" {
            check.envs(haproxy_environment(self));
        }
        if let Some(file) = more {
            check.arg("-f").arg(file);
        }
        match check.output() {
            Ok(ended) if ended.status.success() => Ok(()),
            Ok(ended) => {
                let said = [ended.stderr, ended.stdout].concat();
                Err(reason(&String::from_utf8_lossy(&said)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Asks a server about its configuration.
    fn ask(&self, name: &str, arguments: &[&str]) -> Result<String, Failure> {
        if !self.is_here() {
            return Err(Failure::new(format!(
                "{name} would speak of this system, not of the one under {}",
                self.root.display()
            )));
        }
        let said = run(self.program(name).args(arguments));
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

pub const NGINX: Reader = Reader {
    read: |system| Ok(nginx(&system.ask("nginx", &["-T"])?)),
    check: Some(|_| words(&["nginx", "-t", "-q"])),
};

pub const APACHE: Reader = Reader {
    read: |system| {
        let dump = system.ask(
            "apachectl",
            &["-t", "-D", "DUMP_INCLUDES", "-D", "DUMP_RUN_CFG"],
        )?;
        apache(&dump, system)
    },
    check: Some(|_| words(&["apachectl", "-t"])),
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
    check: Some(|system| {
        let files = haproxy_files(system).into_iter();
        let named = files.flat_map(|file| [OsString::from("-f"), file.into_os_string()]);
        words(&["haproxy", "-c"]).into_iter().chain(named).collect()
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

/// A server whose configuration lockstep cannot read.
pub const OTHER: Reader = Reader {
    read: |_| {
        let what = "lockstep does not know where this service names its keys";
        Err(Failure::new(what))
    },
    check: None,
};

pub const DNSDIST: Reader = Reader {
    check: Some(|_| words(&["dnsdist", "--check-config"])),
    ..OTHER
};

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// The files of a directory with the extension `end`, sorted; all files if `end` is empty.
fn files_in(system: &System<'_>, directory: &Path, end: &str) -> Vec<PathBuf> {
    let names = entries(&system.at(directory));
    let names = names.filter_map(|path| Some(directory.join(path.file_name()?)));
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

/// Parses the output of `nginx -T`: all files, each after a comment with its name.
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
    let plain = joined(lines(dump).map(|words| words.join(" ")), " ");
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

/// Parses Apache's list of files and its run-time configuration.
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
            // Directives are case-insensitive. A key may stand in the file of the certificate.
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

/// The files of HAProxy's configuration: the files that its unit names, or else the usual one. The
/// file of Lockstep is left out.
pub fn haproxy_files(system: &System<'_>) -> Vec<PathBuf> {
    let unit = Unit::read(system.root, "haproxy.service").unwrap_or_default();
    let start = unit.get("ExecStart").unwrap_or_default();
    // systemd splits the value of `$NAME` at spaces, and keeps `${NAME}` in one word.
    let words = start.split_whitespace().flat_map(|word| {
        let Some(name) = word.strip_prefix('$') else {
            return vec![word.to_owned()];
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
    let words: Vec<String> = words.collect();
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

/// The variables of HAProxy's unit that its files name. Without these, HAProxy would read other
/// files here than in the service.
fn haproxy_environment(system: &System<'_>) -> Vec<(String, String)> {
    let Some(unit) = Unit::read(system.root, "haproxy.service") else {
        return Vec::new();
    };
    let mut names = BTreeSet::new();
    for file in haproxy_files(system) {
        let text = system.text(&file).unwrap_or_default();
        let named = text.split('$').skip(1).map(|rest| {
            let name = rest.trim_start_matches('{');
            let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            name.split(is_end).next().unwrap_or_default().to_owned()
        });
        names.extend(named);
    }
    // `System::program` sets these two itself.
    names.retain(|name| !["", "PATH", "OPENSSL_CONF"].contains(&&**name));
    let values = names.into_iter();
    let values = values.filter_map(|name| Some((name.clone(), unit.variable(&name)?)));
    values.collect()
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

/// Finds the keys of a `crt`: in the file, beside it, or in each file of a directory.
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

/// Makes the site of a server. Keys and user on the command line override the configuration.
pub fn site(
    name: &str,
    said: Result<Said, Failure>,
    keys: &[PathBuf],
    user: Option<&str>,
) -> Result<Site, Failure> {
    let said = match said {
        Err(_) if !keys.is_empty() && user.is_some() => Said::default(),
        Err(failure) => {
            let or = "name its keys by --key and the user that serves by --user";
            let remedies = failure.remedy.into_iter().chain([or.to_owned()]);
            return Err(Failure::new(failure.what).remedy(joined(remedies, "; or ")));
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
    use std::fs;

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
        let check = (HAPROXY.check.unwrap())(&system(&place));
        let expected = "haproxy -c -f /etc/h.cfg -f /etc/h.d/more.cfg";
        assert_eq!(check.join(" ".as_ref()), expected);
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
