//! The program of the server that was asked for: where it is, and its version.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::str::FromStr;

use lockstep_common::{Failure, search_path};

use super::servers::{self, Server};

/// A server as the command line names it: `haproxy`, or `haproxy=/opt/haproxy/sbin/haproxy`.
#[derive(Clone)]
pub struct Program {
    pub server: &'static Server,
    path: Option<PathBuf>,
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, Some(path)),
            None => (text, None),
        };
        let server = servers::ALL.iter().find(|server| server.name == name);
        let server = server.ok_or_else(|| {
            let names: Vec<&str> = servers::ALL.iter().map(|server| server.name).collect();
            format!("it takes one of {}", names.join(", "))
        })?;
        if path == Some("") {
            return Err(format!("`{name}=` lacks the path of the program"));
        }
        if path.is_some() && server.programs.is_empty() {
            return Err(format!("{name} is part of this program: it takes no path"));
        }
        Ok(Program {
            server,
            path: path.map(PathBuf::from),
        })
    }
}

impl Program {
    /// Where it is.
    pub fn find(&self) -> Result<PathBuf, Failure> {
        let Server {
            name,
            programs,
            package,
            ..
        } = self.server;
        if let Some(path) = &self.path {
            let is_program = |path: &Path| {
                fs::metadata(path)
                    .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
            };
            // The server has a working directory of its own.
            return absolute(path)
                .ok()
                .filter(|path| is_program(path))
                .ok_or_else(|| {
                    Failure::new(format!("{} is not a program", path.display())).remedy(format!(
                        "give the path of the file that is started, as in --server \
                         {name}=/opt/{name}/sbin/{name}"
                    ))
                });
        }
        if programs.is_empty() {
            return std::env::current_exe().map_err(|error| Failure::new(error.to_string()));
        }
        let path = search_path();
        // Debian keeps servers where only root looks for programs.
        let directories = std::env::split_paths(&path)
            .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
            .collect::<Vec<_>>();
        programs
            .iter()
            .flat_map(|name| {
                directories
                    .iter()
                    .map(move |directory| directory.join(name))
            })
            .find(|program| program.is_file())
            .ok_or_else(|| {
                Failure::new(format!("{name} is not installed")).remedy(format!(
                    "apt install {package}, or name its program: --server {name}=PATH"
                ))
            })
    }

    /// The line in which it says its version, if it does.
    pub fn version(&self, path: &Path) -> Option<String> {
        let mut command = Command::new(path);
        command
            .arg(self.server.version_option)
            .env_remove("OPENSSL_CONF");
        let output = command.stdin(Stdio::null()).output().ok()?;
        version_line(&[output.stdout, output.stderr].concat())
    }
}

/// The first line with a digit; stunnel has another before it.
pub fn version_line(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let line = text
        .lines()
        .find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    // HAProxy adds where it is from.
    let line = line.split(" - http").next().unwrap_or(line);
    Some(line.trim().chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_name_and_perhaps_a_path() {
        let program: Program = "haproxy=/opt/a=b/haproxy".parse().unwrap();
        assert_eq!(program.server.name, "haproxy");
        assert_eq!(program.path.as_deref(), Some(Path::new("/opt/a=b/haproxy")));
        assert!("nginx".parse::<Program>().unwrap().path.is_none());
        for (text, reason) in [
            ("iis", "embedded, haproxy, apache, nginx, stunnel"),
            ("", "embedded, haproxy"),
            ("/opt/haproxy/sbin/haproxy", "one of embedded"),
            ("haproxy=", "lacks the path"),
            ("embedded=/bin/true", "takes no path"),
        ] {
            let Err(why) = text.parse::<Program>() else {
                panic!("{text} is taken");
            };
            assert!(why.contains(reason), "{text}: {why}");
        }
    }

    #[test]
    fn a_path_is_that_of_a_program() {
        let find = |path: &str| format!("haproxy={path}").parse::<Program>().unwrap().find();
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        // The first is there, and nobody can start it.
        for path in ["/etc/passwd", "/etc", "/nowhere/haproxy"] {
            let failure = find(path).unwrap_err();
            assert_eq!(failure.what, format!("{path} is not a program"));
            assert!(failure.remedy.unwrap().contains("--server haproxy=/opt/"));
        }
        assert!(find("Cargo.toml").is_err());
    }

    #[test]
    fn servers_say_their_versions_in_a_line() {
        for (output, line) in [
            (
                "HAProxy version 2.6.12-1 2026/10/17 - https://haproxy.org/\nStatus: 1\n",
                Some("HAProxy version 2.6.12-1 2026/10/17"),
            ),
            (
                "nginx version: nginx/1.22.1\n",
                Some("nginx version: nginx/1.22.1"),
            ),
            (
                "Initializing inetd mode configuration\nstunnel 5.68 on a platform\n",
                Some("stunnel 5.68 on a platform"),
            ),
            ("usage: it\n", None),
        ] {
            assert_eq!(version_line(output.as_bytes()).as_deref(), line);
        }
    }
}
