//! References that a service has in the places of its keys: whether it sees them, whether the user
//! that serves may have the daemon sign with them, and whether they belong to its certificates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::Configuration;
use lockstep_remote::Reference;

use super::helper::uses;
use super::sight::{Seen, Uncovered};
use super::subject::Subject;
use crate::doctor::finding::{Finding, advice, failed, note, warning};
use crate::doctor::key_daemon::{damaged, judge};
use crate::keyd::Unusable;
use crate::process::Process;
use crate::servers::drop_in::REFERENCES;
use crate::unit::systemd_runs;

const CHECK: &str = "reference";

/// Findings about the references that were seen, and about missing ones under `root`, for a service
/// with this configuration of OpenSSL.
pub fn findings(
    seen: &Seen,
    configuration: Option<&Configuration>,
    subject: &Subject,
    root: &Path,
) -> Vec<Finding> {
    let absent = absent(subject, root);
    let (renew, restart) = (subject.reference(), subject.restart());
    let anew = format!("make the reference anew: {renew}. Then {restart}");
    let strict = absent.iter().map(|reference| {
        let what = format!(
            "the unit has the reference {} in the place of a key, but there is no such file: the \
             service does not start with it (systemd says 226/NAMESPACE)",
            reference.display()
        );
        let remedy = format!("{anew}. With --fallback the service would start with the key itself");
        failed(CHECK, what, remedy)
    });
    // Missing references are reported once.
    let uncovered = seen.uncovered.iter().filter(|uncovered| {
        let missing = uncovered.missing.as_ref();
        missing.is_none_or(|reference| !absent.contains(reference))
    });
    let uncovered = uncovered.map(|Uncovered { key, missing }| match missing {
        Some(reference) => {
            let what = format!(
                "the unit has the reference {} in the place of {key}, but there is no such file, \
                 so the service runs with the key",
                reference.display()
            );
            warning(CHECK, what, anew.clone())
        }
        None => {
            let what = format!(
                "the unit has a reference in the place of {key}, but the process that runs sees \
                 the key: it was started before, or the key was renewed since"
            );
            warning(
                CHECK,
                what,
                format!("if the key was renewed: {renew}. Then {restart}"),
            )
        }
    });
    let judged = seen.references.iter().flat_map(|found| {
        let path = Path::new(&found.path);
        match Reference::in_text(&found.text) {
            Err(why) => vec![damaged(path, &why.to_string())],
            Ok(reference) => {
                let certificate = without_certificate(path, &reference, &seen.certificates);
                let usable = usable(path, &reference, subject);
                usable.into_iter().chain(certificate).collect()
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

/// Reports a configuration that allows no references.
fn not_allowed(configuration: &Configuration, subject: &Subject) -> Option<Finding> {
    let provider = configuration.provider()?;
    let allowed = configuration.effective.setting(&provider, "references");
    let named = configuration.path().display();
    (allowed != Some("yes")).then(|| {
        failed(
            CHECK,
            format!(
                "the service has references in the places of its keys, and its configuration \
                 {named} allows none: at its next start it finds no keys"
            ),
            format!(
                "run {}, or add `references = yes` to {named}",
                subject.reference()
            ),
        )
    })
}

/// Reports a reference that no certificate belongs to.
fn without_certificate(
    path: &Path,
    reference: &Reference,
    certificates: &[Vec<u8>],
) -> Option<Finding> {
    (!certificates.contains(&reference.public)).then(|| {
        let what = format!(
            "{} stands for the key {}, and none of the certificates that the service's \
             configuration names belongs to that key",
            path.display(),
            reference.name
        );
        let remedy = "if the certificate was renewed with another key, make the reference anew: \
                      lockstep install --keyd, or lockstep keyd export-reference";
        warning(CHECK, what, remedy)
    })
}

/// The references of `lockstep install` that the unit has, each with the file that it covers.
pub fn covered(subject: &Subject) -> Vec<(PathBuf, PathBuf)> {
    let binds = binds(subject).map(|(reference, key, _)| (reference.into(), key.into()));
    binds.collect()
}

/// References that are missing and without which the service does not start.
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

/// Whether the processes that serve can have the daemon sign: a finding for each user, and for each
/// root directory.
fn usable(path: &Path, reference: &Reference, subject: &Subject) -> Vec<Finding> {
    let shown = format!("{} stands for the key {}", path.display(), reference.name);
    let serving = subject.serving();
    if serving.is_empty() {
        let what = format!("{shown}; who may use it is seen when the service runs");
        return vec![note(CHECK, what)];
    }
    let root = |process: &Process| fs::read_link(process.about("root")).unwrap_or_default();
    let kinds = serving
        .into_iter()
        .map(|process| ((process.status.user, root(process)), process));
    let kinds: BTreeMap<_, _> = kinds.collect();
    let of_kind = |((user, root), process): ((u32, PathBuf), &Process)| {
        let socket = reference.socket();
        let inside = root.join(socket.strip_prefix("/").unwrap_or(socket));
        let has_changed = root != Path::new("/") && !root.as_os_str().is_empty();
        let who = format!("user {user}, who serves,");
        // If there is no socket outside the root directory either, no daemon listens at all.
        let listens = || {
            let outside = uses(process, socket, reference);
            !matches!(outside, Ok(Err(Unusable::NoSocket(_))))
        };
        match uses(process, &inside, reference) {
            Ok(Err(Unusable::NoSocket(_))) if has_changed && listens() => {
                without_socket(&root, &inside)
            }
            Ok(uses) => judge(path, &reference.name, uses, &who),
            Err(failure) => {
                let what = format!(
                    "{shown}; whether {who} may use it is unknown: {}",
                    failure.what
                );
                advice(CHECK, what, "run this as root")
            }
        }
    };
    kinds.into_iter().map(of_kind).collect()
}

/// Reports that a service finds no socket of the daemon below its changed root directory.
fn without_socket(root: &Path, inside: &Path) -> Finding {
    let (root, inside) = (root.display(), inside.display());
    let what = format!(
        "the service has changed its root directory to {root}, and finds no key daemon there: it \
         looks for {inside}"
    );
    let remedy = match systemd_runs() {
        true => format!(
            "add the line ListenStream={inside} to lockstep-keyd.socket (systemctl edit), and \
             restart the socket; for a server of the distribution, run lockstep install --keyd \
             again"
        ),
        false => {
            format!("have the key daemon listen there: `socket = {inside}` in its configuration")
        }
    };
    failed(CHECK, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::super::subject::Wanted;
    use super::*;
    use crate::doctor::finding::Verdict;
    use crate::process::Processes;

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
        let subject = wanted.find_all(&processes, &root).unwrap().remove(0);
        let told = || {
            let mut seen = Seen::default();
            keys::look(&[], &covered(&subject), &root, &mut seen);
            let findings = findings(&seen, None, &subject, &root);
            let [own] = &findings[..] else {
                panic!("{findings:?}");
            };
            assert_eq!((own.check, own.verdict), (CHECK, Verdict::Warning));
            (own.what.clone(), own.remedy.clone().unwrap())
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
        let subject = wanted.find_all(&processes, &root).unwrap().remove(0);
        let mut seen = Seen::default();
        keys::look(&[], &covered(&subject), &root, &mut seen);
        let findings = findings(&seen, None, &subject, &root);
        let [own] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!((own.check, own.verdict), (CHECK, Verdict::Failed));
        assert!(own.what.contains("does not start"), "{own:?}");
        assert!(own.remedy.as_ref().unwrap().contains("--fallback"));
    }
}
