//! References that a service has in the places of its keys: whether it sees them, whether the user
//! that serves may have the daemon sign with them, and whether they belong to its certificates.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::Configuration;
use lockstep_remote::Reference;

use super::helper::offers;
use super::sight::{Seen, Uncovered};
use super::subject::Subject;
use crate::doctor::finding::{Answer, Named, Verdict};
use crate::doctor::key_daemon::{damaged, judge};
use crate::servers::drop_in::REFERENCES;
use crate::unit::systemd_runs;

const CHECK: &str = "reference";

/// What there is to say of the references that were seen, and of those that are missing under
/// `root`, for a service with this configuration of OpenSSL.
pub fn findings(
    seen: &Seen,
    configuration: Option<&Configuration>,
    subject: &Subject,
    root: &Path,
) -> Vec<Named> {
    let absent = absent(subject, root);
    let strict = absent.iter().map(|reference| {
        let what = format!(
            "the unit has the reference {} in the place of a key, but there is no such file: the \
             service does not start with it (systemd says 226/NAMESPACE)",
            reference.display()
        );
        let remedy = format!(
            "make the reference anew: {}. Then {}. With --fallback the service would start with \
             the key itself",
            subject.reference(),
            subject.restart()
        );
        (CHECK, (Verdict::Failed, what, Some(remedy)))
    });
    // Those are said once.
    let uncovered = seen.uncovered.iter().filter(|uncovered| {
        let missing = uncovered.missing.as_ref();
        missing.is_none_or(|reference| !absent.contains(reference))
    });
    let uncovered = uncovered.map(|Uncovered { key, missing }| {
        let (renew, restart) = (subject.reference(), subject.restart());
        let (what, remedy) = match missing {
            Some(reference) => (
                format!(
                    "the unit has the reference {} in the place of {key}, but there is no such \
                     file, so the service runs with the key",
                    reference.display()
                ),
                format!("make the reference anew: {renew}. Then {restart}"),
            ),
            None => (
                format!(
                    "the unit has a reference in the place of {key}, but the process that runs \
                     sees the key: it was started before, or the key was renewed since"
                ),
                format!("if the key was renewed: {renew}. Then {restart}"),
            ),
        };
        (CHECK, (Verdict::Warning, what, Some(remedy)))
    });
    let judged = seen.references.iter().flat_map(|found| {
        let path = Path::new(&found.path);
        match Reference::in_text(&found.text) {
            Err(why) => vec![(CHECK, damaged(path, &why.to_string()))],
            Ok(reference) => {
                let certificate = without_certificate(path, &reference, &seen.certificates);
                let usable = (CHECK, usable(path, &reference, subject));
                std::iter::once(usable).chain(certificate).collect()
            }
        }
    });
    let refused = configuration.filter(|_| !seen.references.is_empty());
    let refused = refused.and_then(|configuration| not_allowed(configuration, subject));
    strict
        .chain(uncovered)
        .chain(refused)
        .chain(judged)
        .collect()
}

/// That the configuration of a service allows no references, if that is so.
fn not_allowed(configuration: &Configuration, subject: &Subject) -> Option<Named> {
    let provider = configuration.provider()?;
    let allowed = configuration.effective.setting(&provider, "references");
    (allowed != Some("yes")).then(|| {
        let named = configuration.path().display();
        let what = format!(
            "the service has references in the places of its keys, and its configuration {named} \
             allows none: at its next start it finds no keys"
        );
        let remedy = format!(
            "run {}, or add `references = yes` to {named}",
            subject.reference()
        );
        (CHECK, (Verdict::Failed, what, Some(remedy)))
    })
}

/// That no certificate belongs to a reference, if that is so.
fn without_certificate(
    path: &Path,
    reference: &Reference,
    certificates: &[Vec<u8>],
) -> Option<Named> {
    (!certificates.contains(&reference.public)).then(|| {
        let what = format!(
            "{} stands for the key {}, and none of the certificates that the service's \
             configuration names belongs to that key",
            path.display(),
            reference.name
        );
        let remedy = "if the certificate was renewed with another key, make the reference anew: \
                      lockstep install --keyd, or lockstep keyd export-reference";
        (CHECK, (Verdict::Warning, what, Some(remedy.to_owned())))
    })
}

/// The references of `lockstep install` that the unit has, each with the file that it covers.
pub fn covered(subject: &Subject) -> Vec<(PathBuf, PathBuf)> {
    let binds = binds(subject).map(|(reference, key, _)| (reference.into(), key.into()));
    binds.collect()
}

/// The references that are not there, without which the service does not start.
fn absent(subject: &Subject, root: &Path) -> Vec<PathBuf> {
    let is_there = |reference: &str| root.join(reference.trim_start_matches('/')).exists();
    let strict =
        binds(subject).filter(|(reference, _, falls_back)| !falls_back && !is_there(reference));
    strict.map(|(reference, ..)| reference.into()).collect()
}

/// The references of `lockstep install` that the unit has, each with the file that it covers, and
/// whether the service starts without it.
fn binds(subject: &Subject) -> impl Iterator<Item = (&str, &str, bool)> {
    let binds = subject
        .unit
        .iter()
        .flat_map(|unit| unit.all("BindReadOnlyPaths"));
    binds.filter_map(|bind| {
        let falls_back = bind.starts_with('-');
        let (reference, key) = bind.trim_start_matches('-').split_once(':')?;
        let is_own = reference.starts_with(REFERENCES);
        is_own.then_some((reference, key, falls_back))
    })
}

/// Whether the process that serves can have the daemon sign.
fn usable(path: &Path, reference: &Reference, subject: &Subject) -> Answer {
    let serving = subject.serving();
    let Some(process) = serving.first() else {
        let what = format!(
            "{} stands for the key {}; who may use it is seen when the service runs",
            path.display(),
            reference.name
        );
        return (Verdict::Note, what, None);
    };
    let socket = reference.socket();
    let root = fs::read_link(process.about("root")).unwrap_or_default();
    let inside = root.join(socket.strip_prefix("/").unwrap_or(socket));
    if root != Path::new("/") && !root.as_os_str().is_empty() && !inside.exists() {
        let what = format!(
            "the service has changed its root directory to {}, and finds no key daemon there: it \
             looks for {}",
            root.display(),
            inside.display()
        );
        let remedy = match systemd_runs() {
            true => format!(
                "add the line ListenStream={} to lockstep-keyd.socket (systemctl edit), and \
                 restart the socket; for a server of the distribution, run lockstep install --keyd \
                 again",
                inside.display()
            ),
            false => format!(
                "have the key daemon listen there: `socket = {}` in its configuration",
                inside.display()
            ),
        };
        return (Verdict::Failed, what, Some(remedy));
    }
    let who = format!("user {}, who serves,", process.status.user);
    match offers(process, &inside) {
        Ok(offers) => judge(path, reference, offers, &who),
        Err(failure) => {
            let what = format!(
                "{} stands for the key {}; whether {who} may use it is unknown: {}",
                path.display(),
                reference.name,
                failure.what
            );
            let remedy = "run this as root";
            (Verdict::Note, what, Some(remedy.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::super::process::Processes;
    use super::super::subject::Wanted;
    use super::*;

    #[test]
    fn a_key_that_the_service_sees_is_told_with_what_became_of_its_reference() {
        let root = lockstep_testkit::TempDir::new("uncovered");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (reference, key) = (format!("{REFERENCES}/haproxy/a.pem"), "/etc/ssl/a.key");
        write(
            "etc/systemd/system/haproxy.service.d/lockstep-keyd.conf",
            &format!("[Service]\nBindReadOnlyPaths=-{reference}:{key}\n"),
        );
        write(
            &key[1..],
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        );
        write(
            "proc/7/status",
            "Name:\thaproxy\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n",
        );
        let wanted = Wanted::Service {
            name: "haproxy".to_owned(),
            units: vec!["haproxy.service".to_owned()],
        };
        let processes = Processes {
            directory: root.join("proc"),
        };
        let subject = wanted.find(&processes, &root).unwrap();
        let told = || {
            let mut seen = Seen::default();
            keys::look(&[], &covered(&subject), &root, &mut seen);
            let findings = findings(&seen, None, &subject, &root);
            let [(CHECK, (Verdict::Warning, what, Some(remedy)))] = &findings[..] else {
                panic!("{findings:?}");
            };
            (what.clone(), remedy.clone())
        };
        let (what, remedy) = told();
        assert!(
            what.contains(&format!("{reference} in the place of {key}")),
            "{what}"
        );
        assert!(what.contains("no such file"), "{what}");
        assert!(
            remedy.contains("install --server haproxy --keyd"),
            "{remedy}"
        );
        write(&reference[1..], "");
        let (what, _) = told();
        assert!(what.contains("started before"), "{what}");

        // Without the dash the service does not start.
        write(
            "etc/systemd/system/haproxy.service.d/lockstep-keyd.conf",
            &format!("[Service]\nBindReadOnlyPaths={reference}:{key}\n"),
        );
        fs::remove_file(root.join(&reference[1..])).unwrap();
        let subject = wanted.find(&processes, &root).unwrap();
        let mut seen = Seen::default();
        keys::look(&[], &covered(&subject), &root, &mut seen);
        let findings = findings(&seen, None, &subject, &root);
        let [(CHECK, (Verdict::Failed, what, Some(remedy)))] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert!(what.contains("does not start"), "{what}");
        assert!(remedy.contains("--fallback"), "{remedy}");
    }
}
