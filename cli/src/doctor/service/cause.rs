//! Why a service has not loaded the module.

use std::path::{Path, PathBuf};

use lockstep_common::{Configuration, Effective, word_for_shell};
use lockstep_conf::{File, Line};

use super::files::View;
use super::sight::Configured;
use super::subject::Subject;
use crate::doctor::finding::{Finding, Verdict, failed};
use crate::process::{Environment, Process};
use crate::sandbox::place_of;
use crate::unit::Unit;

/// Finds the configuration that the service reads. The error is the reason why it reads none that
/// loads the module.
pub fn configuration(subject: &Subject, environment: &Environment) -> Result<PathBuf, Finding> {
    let of_unit = subject
        .unit
        .as_ref()
        .and_then(|unit| unit.variable("OPENSSL_CONF"));
    let Some(main) = subject.main() else {
        return of_unit.map(PathBuf::from).ok_or_else(|| missing(subject));
    };
    let of_process = match environment {
        Environment::Known(_) => environment.get("OPENSSL_CONF"),
        // The unit is the best source for an environment that is overwritten.
        Environment::Overwritten => of_unit.as_deref().filter(|_| starts(subject)),
    };
    let path = match (of_process, of_unit.as_deref()) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(path)) if !starts(subject) => {
            return Err(failed(
                "environment",
                format!(
                    "{} runs without OPENSSL_CONF. A drop-in sets it to {path}, but systemd does \
                     not run here, and nothing else reads drop-ins",
                    subject.shown()
                ),
                subject.without_systemd(path),
            ));
        }
        (None, Some(path)) => {
            return Err(failed(
                "environment",
                format!(
                    "{} runs without OPENSSL_CONF, which its unit sets to {path}: it was started \
                     before the unit had this setting",
                    subject.shown()
                ),
                subject.restart(),
            ));
        }
        (None, None) => return Err(missing(subject)),
    };
    match main.is_secure() == Some(true) {
        true => Err(stripped(subject, main)),
        false => Ok(path),
    }
}

/// Whether systemd may start the service by its unit; `true` if the service has no unit.
fn starts(subject: &Subject) -> bool {
    subject.unit.as_ref().is_none_or(Unit::is_in_force)
}

fn missing(subject: &Subject) -> Finding {
    failed(
        "environment",
        format!(
            "{} runs without OPENSSL_CONF, so it reads the system's configuration, which does not \
             load lockstep",
            subject.shown()
        ),
        subject.install(),
    )
}

/// Reports a program for which OpenSSL ignores the environment. To find out why, doctor would have
/// to read the program's file. It does not, because the file may belong to another user.
fn stripped(subject: &Subject, process: &Process) -> Finding {
    let program = process.program().unwrap_or_default();
    failed(
        "privileges",
        format!(
            "{}: its program {} has file capabilities, or is set-user-ID or set-group-ID. OpenSSL \
             ignores the environment of such a program, and with it OPENSSL_CONF",
            subject.shown(),
            program.display()
        ),
        format!(
            "take the capabilities from the file (setcap -r {}), and have its unit grant them: \
             AmbientCapabilities=; start a set-user-ID program by its unit as the user that it is \
             to run as",
            word_for_shell(&program)
        ),
    )
}

/// Returns the configuration as the service sees it. The error is a problem of the configuration,
/// or of the module that it names.
pub fn module(
    subject: &Subject,
    view: &View,
    path: &Path,
    seen: Option<Configured>,
) -> Result<Found, Finding> {
    let (sections, module, outdated) = match seen {
        None => {
            let what = format!("{}: nobody could look at it", path.display());
            let remedy = "see `files` above";
            return Err(failed("configuration", what, remedy));
        }
        Some(Configured::Absent) => return Err(absent(subject, view, path, "configuration")),
        Some(Configured::Unreadable(told)) => {
            return Err(Finding::with("configuration", Verdict::Failed, told));
        }
        Some(Configured::Read {
            sections,
            module,
            outdated,
        }) => (sections, module, outdated),
    };
    let lines = |pairs: Vec<(String, String)>| {
        let lines = pairs.into_iter().map(|(name, value)| Line { name, value });
        lines.collect()
    };
    let sections = sections.into_iter().map(|(name, own)| (name, lines(own)));
    let configuration = Configuration {
        effective: Effective::of(path.to_owned(), File::of(sections.collect())),
        in_use: true,
    };
    if let Some(refusal) = configuration.effective.refusal() {
        return Err(Finding::of("policy", Verdict::Failed, refusal));
    }
    let shown = path.display();
    let Some(module) = module else {
        return Err(failed(
            "configuration",
            format!(
                "{} reads {shown}, which names no module lockstep.so{}",
                subject.shown(),
                set_by(subject, path)
            ),
            subject.install(),
        ));
    };
    if !module.is_there {
        return Err(absent(subject, view, &module.path, "module"));
    }
    if let Some(damage) = module.damage {
        return Err(failed(
            "module",
            format!("{}, which {shown} names, {damage}", module.path.display()),
            format!(
                "put the module of this machine there again, then {}",
                subject.restart()
            ),
        ));
    }
    Ok(Found {
        configuration,
        module: module.path,
        outdated: outdated.map(|told| Finding::with("outdated", Verdict::Warning, told)),
    })
}

/// A configuration that names the module.
pub struct Found {
    pub configuration: Configuration,
    pub module: PathBuf,
    /// A warning, if lockstep would make another configuration now, or none.
    pub outdated: Option<Finding>,
}

/// Names the file that has the service read a configuration, if it is known.
fn set_by(subject: &Subject, path: &Path) -> String {
    let unit = subject.unit.as_ref();
    let set = unit.and_then(|unit| unit.variable_and_file("OPENSSL_CONF"));
    match set.filter(|(value, _)| Path::new(value) == path) {
        Some((_, file)) => format!("; {} names that file in OPENSSL_CONF", file.display()),
        None => String::new(),
    }
}

/// Reports a file that is missing where the service looks for it.
fn absent(subject: &Subject, view: &View, path: &Path, check: &'static str) -> Finding {
    let shown = path.display();
    let Some(mount) = view.hides(path) else {
        return failed(
            check,
            format!("{} looks for {shown}, which is not there", subject.shown()),
            subject.install(),
        );
    };
    let settings = subject
        .unit
        .as_ref()
        .map(|unit| unit.hiding())
        .unwrap_or_default();
    let why = match (&settings[..], place_of(path)) {
        ([_, ..], _) => format!("its unit sets {}", settings.join(" and ")),
        ([], Some(place)) => place.consequence().to_owned(),
        ([], None) => "as a unit's PrivateTmp or a container has it".to_owned(),
    };
    failed(
        "namespace",
        format!(
            "{} does not see {shown}: it has a mount namespace of its own, with another directory \
             in place of {} ({why})",
            subject.shown(),
            mount.display()
        ),
        "keep the configuration and the module where the service sees them, as in /opt/lockstep, \
         and name that configuration: lockstep install --server NAME --conf \
         /opt/lockstep/openssl.cnf",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::subject::Wanted;
    use super::*;
    use crate::process::Processes;

    /// Finds the reason why a service lacks its configuration, from its environment and auxiliary
    /// vector, under a root with its unit.
    fn cause(environment: &[u8], is_secure: bool, root: &Path) -> Result<PathBuf, Finding> {
        let place = lockstep_testkit::TempDir::new("cause");
        let about = place.join("7");
        fs::create_dir_all(&about).unwrap();
        let status = "Name:\thaproxy\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
        fs::write(about.join("status"), status).unwrap();
        fs::write(about.join("environ"), environment).unwrap();
        let vector = [23, u64::from(is_secure), 0, 0]
            .map(u64::to_ne_bytes)
            .concat();
        fs::write(about.join("auxv"), vector).unwrap();
        let wanted = Wanted::Service {
            name: "haproxy".to_owned(),
            units: vec!["haproxy.service".to_owned()],
        };
        let directory = place.to_path_buf();
        let subject = wanted
            .find_all(&Processes { directory }, root)
            .unwrap()
            .remove(0);
        let environment = subject.main().unwrap().environment().unwrap();
        configuration(&subject, &environment)
    }

    #[test]
    fn what_keeps_a_service_from_its_configuration_is_named() {
        let root = lockstep_testkit::TempDir::new("cause-root");
        let what = |environment: &[u8], is_secure| {
            let found = cause(environment, is_secure, &root).unwrap_err();
            assert!(found.verdict == Verdict::Failed && found.remedy.is_some());
            (found.check, found.what)
        };
        let (check, text) = what(b"A=b\0", false);
        assert!(
            check == "environment" && text.contains("reads the system's"),
            "{text}"
        );
        let set = b"OPENSSL_CONF=/x/openssl.cnf\0";
        let (check, text) = what(set, true);
        assert!(
            check == "privileges" && text.contains("is set-user-ID"),
            "{text}"
        );
        assert_eq!(
            cause(set, false, &root).unwrap(),
            Path::new("/x/openssl.cnf")
        );

        let drop_in = root.join("etc/systemd/system/haproxy.service.d");
        fs::create_dir_all(&drop_in).unwrap();
        let unit = "[Service]\nEnvironment=OPENSSL_CONF=/y/openssl.cnf\n";
        fs::write(drop_in.join("zz-lockstep.conf"), unit).unwrap();
        let (check, text) = what(b"A=b\0", false);
        assert!(
            check == "environment" && text.contains("was started before"),
            "{text}"
        );
        // nginx has overwritten its environment.
        assert_eq!(
            cause(&[0; 9], false, &root).unwrap(),
            Path::new("/y/openssl.cnf")
        );
        assert_eq!(
            cause(set, false, &root).unwrap(),
            Path::new("/x/openssl.cnf")
        );
        // A file of the environment overrides the drop-in.
        let more = "[Service]\nEnvironmentFile=-/etc/default/haproxy\n";
        fs::write(drop_in.join("more.conf"), more).unwrap();
        fs::create_dir_all(root.join("etc/default")).unwrap();
        let path = root.join("etc/default/haproxy");
        fs::write(path, "OPENSSL_CONF=/z/openssl.cnf\n").unwrap();
        assert_eq!(
            cause(&[0; 9], false, &root).unwrap(),
            Path::new("/z/openssl.cnf")
        );
    }
}
