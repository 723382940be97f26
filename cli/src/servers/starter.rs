//! The program that starts a server here, and so gives the server its environment: systemd, a
//! script of init that reads a file, or an unknown program, as in a container.

use std::env;
use std::path::{Path, PathBuf};

use lockstep_common::Failure;

use super::named::has_line;
use super::server::{SERVERS, Server};
use crate::unit::systemd_runs;

/// The remedy for a server that does not load lockstep, where no systemd starts it.
pub fn without_systemd(name: &str, conf: &str) -> Option<String> {
    let server = SERVERS.iter().find(|server| server.name == name)?;
    let starter = Starter::of(server, Path::new("/"));
    (!starter.is_systemd()).then(|| starter.remedy(server, conf))
}

/// Program that starts a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Starter {
    /// systemd, by the unit of the server. Under another root it may run later.
    Systemd,
    /// A script of init, which reads the file.
    Script { script: PathBuf, file: PathBuf },
    /// An unknown program.
    Unknown,
}

impl Starter {
    pub fn of(server: &Server, root: &Path) -> Starter {
        if root != Path::new("/") || systemd_runs() {
            return Starter::Systemd;
        }
        Starter::without_systemd(server, root)
    }

    fn without_systemd(server: &Server, root: &Path) -> Starter {
        let names = server.names().into_iter();
        let mut scripts = names.map(|name| root.join("etc/init.d").join(name));
        let file = root.join(server.environment);
        let is_there = |path: &PathBuf| path.is_file();
        // For an unknown service, only the script shows whether it reads the file.
        let is_known = SERVERS.iter().any(|known| known.name == server.name);
        let reads =
            |script: &PathBuf| is_known || has_line(script, |l| l.contains("/etc/default/"));
        let is_usable = |script: &PathBuf| is_there(script) && reads(script);
        match scripts.find(is_usable).filter(|_| is_there(&file)) {
            Some(script) => Starter::Script { script, file },
            None => Starter::Unknown,
        }
    }

    pub fn is_systemd(&self) -> bool {
        *self == Starter::Systemd
    }

    /// The command that restarts a server.
    pub fn restart(&self, server: &Server) -> String {
        match self {
            Starter::Systemd => server.then(),
            Starter::Script { script, .. } => format!("{} restart", script.display()),
            Starter::Unknown => format!("restart {}", server.name),
        }
    }

    /// Returns a failure if the server does not load this configuration after a restart.
    pub fn lacks(&self, server: &Server, conf: &str) -> Option<Failure> {
        let has_it = match self {
            Starter::Systemd => true,
            Starter::Script { file, .. } => {
                let line = export(conf);
                has_line(file, |own| own.trim_end() == line)
            }
            Starter::Unknown => false,
        };
        (!has_it && !is_set_here(conf)).then(|| {
            Failure::new(format!(
                "systemd does not run here, so no drop-in has an effect: {} does not load lockstep \
                 yet",
                server.name
            ))
            .remedy(self.remedy(server, conf))
        })
    }

    fn remedy(&self, server: &Server, conf: &str) -> String {
        match self {
            Starter::Systemd => server.then(),
            Starter::Script { script, file } => format!(
                "add the line `{}` to {}, which {} reads; then: {}",
                export(conf),
                file.display(),
                script.display(),
                self.restart(server)
            ),
            Starter::Unknown => format!(
                "start {} with OPENSSL_CONF={conf} in its environment; in an image, set that (ENV) \
                 before this command",
                server.name
            ),
        }
    }
}

/// Whether this program's environment names a configuration, as that of an image does.
pub fn is_set_here(conf: &str) -> bool {
    env::var_os("OPENSSL_CONF").is_some_and(|named| named == conf)
}

fn export(conf: &str) -> String {
    format!("export OPENSSL_CONF={conf}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::SERVERS;
    use super::*;

    #[test]
    fn a_script_of_init_is_found_with_the_file_that_it_reads() {
        let root = lockstep_testkit::TempDir::new("starter");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let apache = SERVERS
            .iter()
            .find(|server| server.name == "apache")
            .unwrap();
        let starter = || Starter::without_systemd(apache, &root);
        let lacks = || starter().lacks(apache, "/x.cnf");
        assert_eq!(starter(), Starter::Unknown);
        let failure = lacks().unwrap();
        assert!(
            failure
                .remedy
                .unwrap()
                .contains("OPENSSL_CONF=/x.cnf in its environment")
        );
        let script = write("etc/init.d/apache2", "");
        let file = write("etc/apache2/envvars", "# export OPENSSL_CONF=/x.cnf\n");
        assert_eq!(
            starter(),
            Starter::Script {
                script: script.clone(),
                file: file.clone()
            }
        );
        let remedy = lacks().unwrap().remedy.unwrap();
        assert!(
            remedy.contains("`export OPENSSL_CONF=/x.cnf` to "),
            "{remedy}"
        );
        assert!(
            remedy.ends_with(&format!("{} restart", script.display())),
            "{remedy}"
        );
        // A shell passes on exported variables only.
        fs::write(&file, "OPENSSL_CONF=/x.cnf\n").unwrap();
        assert!(lacks().is_some());
        fs::write(&file, "export OPENSSL_CONF=/x.cnf\n").unwrap();
        assert!(lacks().is_none());
    }
}
