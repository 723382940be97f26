//! References that a service has in the places of its keys: whether it sees them, whether the user
//! that serves may have the daemon sign with them, and whether they belong to its certificates.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockstep_keyd::stand_in::contents;
use lockstep_remote::Reference;

use super::process::Process;
use super::subject::Subject;
use super::view::View;
use crate::command::run;
use crate::doctor::finding::{Answer, Named, Verdict};
use crate::doctor::keyd::{damaged, judge};
use crate::install::{REFERENCES, allows_references};
use crate::keyd::Offer;

const CHECK: &str = "reference";

/// The most files that a configuration may name, as far as they are looked at.
const MOST_FILES: usize = 1024;

/// What a service's configuration names, as far as it is about keys. All paths are the reader's.
#[derive(Default)]
pub struct References {
    references: Vec<PathBuf>,
    certificates: Vec<PathBuf>,
    /// Keys that the service sees although its unit has references in their places.
    uncovered: Vec<Uncovered>,
}

/// A key that the service sees although its unit has a reference in its place.
struct Uncovered {
    key: PathBuf,
    /// The file of the reference, if it is not there.
    missing: Option<PathBuf>,
}

impl References {
    /// Looks at all files that are named in these files of a configuration, or by the unit.
    pub fn of(subject: &Subject, view: &View, configuration: &[PathBuf]) -> References {
        let covered = covered(subject).map(|(reference, key)| (reference, view.at(key)));
        let covered: Vec<(&Path, PathBuf)> = covered.collect();
        let mut paths: Vec<PathBuf> = covered.iter().map(|(_, key)| key.clone()).collect();
        for file in configuration {
            let text = fs::read_to_string(file).unwrap_or_default();
            let above = file.parent().unwrap_or(Path::new("/"));
            paths.extend(named(&text, above, view));
        }
        // A file may have several names.
        let mut known = HashSet::new();
        let is_new = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|about| known.insert((about.dev(), about.ino())))
        };
        let mut found = References::default();
        for path in paths.into_iter().take(MOST_FILES).filter(is_new) {
            let contents = contents(&path);
            if contents.certificate {
                found.certificates.push(path.clone());
            }
            match contents.reference {
                true => found.references.push(path),
                false if contents.key && subject.main().is_some() => {
                    let pair = covered.iter().find(|(_, key)| *key == path);
                    found
                        .uncovered
                        .extend(pair.map(|(reference, key)| Uncovered {
                            key: key.clone(),
                            missing:
                                (!view.at(reference).exists()).then(|| reference.to_path_buf()),
                        }));
                }
                false => {}
            }
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    pub fn findings(&self, subject: &Subject, view: &View) -> Vec<Named> {
        let uncovered = self.uncovered.iter().map(|Uncovered { key, missing }| {
            let key = view.called(key);
            let key = key.display();
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
        let judged = self.references.iter().flat_map(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let path = &view.called(path);
            match Reference::in_text(&text) {
                Err(why) => vec![(CHECK, damaged(path, &why.to_string()))],
                Ok(reference) => {
                    let certificate = self.without_certificate(path, &reference);
                    let usable = (CHECK, usable(path, &reference, subject));
                    std::iter::once(usable).chain(certificate).collect()
                }
            }
        });
        let allowed = (!self.references.is_empty()).then(|| not_allowed(subject, view));
        uncovered.chain(allowed.flatten()).chain(judged).collect()
    }

    /// That no certificate belongs to a reference, if that is so.
    fn without_certificate(&self, path: &Path, reference: &Reference) -> Option<Named> {
        let public = reference.public_pem()?;
        let belongs = |file: &PathBuf| {
            let mut openssl = Command::new("openssl");
            openssl.args(["x509", "-noout", "-pubkey", "-in"]).arg(file);
            let key = run(openssl.env("OPENSSL_CONF", "/dev/null"));
            key.is_ok_and(|key| key.trim() == public.trim())
        };
        (!self.certificates.iter().any(belongs)).then(|| {
            let what = format!(
                "{} stands for the key {}, and none of the certificates that the service's \
                 configuration names belongs to that key",
                path.display(),
                reference.name
            );
            let remedy = "if the certificate was renewed with another key, make the reference \
                          anew: lockstep install --keyd, or lockstep keyd export-reference";
            (CHECK, (Verdict::Warning, what, Some(remedy.to_owned())))
        })
    }
}

/// That the configuration of the unit allows no references, if that is so.
fn not_allowed(subject: &Subject, view: &View) -> Option<Named> {
    let named = subject
        .unit
        .iter()
        .find_map(|unit| unit.variable("OPENSSL_CONF"))?;
    let text = fs::read_to_string(view.at(Path::new(&named))).ok()?;
    (!allows_references(&text)).then(|| {
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

/// The references of `lockstep install` that the unit has, each with the file that it covers.
fn covered(subject: &Subject) -> impl Iterator<Item = (&Path, &Path)> {
    let binds = subject
        .unit
        .iter()
        .flat_map(|unit| unit.all("BindReadOnlyPaths"));
    binds.filter_map(|bind| {
        let (reference, key) = bind.trim_start_matches('-').split_once(':')?;
        let is_own = reference.starts_with(REFERENCES);
        is_own.then_some((Path::new(reference), Path::new(key)))
    })
}

/// The files among the words of a configuration in a directory. HAProxy has directories for some,
/// and directories that others are in.
fn named(text: &str, above: &Path, view: &View) -> Vec<PathBuf> {
    let is_edge = |c: char| c.is_whitespace() || ";={}\"'".contains(c);
    let words: Vec<&str> = text
        .split(is_edge)
        .filter(|word| !word.is_empty())
        .collect();
    let behind = |keyword: &'static str| {
        let pairs = words.windows(2).filter(move |pair| pair[0] == keyword);
        pairs.map(|pair| view.at(Path::new(pair[1])))
    };
    let bases: Vec<PathBuf> = behind("crt-base").chain([above.to_owned()]).collect();
    let in_bases = |word: &str| match word.starts_with('/') {
        true => vec![view.at(Path::new(word))],
        false => bases.iter().map(|base| base.join(word)).collect(),
    };
    let is_path = |word: &&&str| word.contains(['/', '.']);
    let paths = words.iter().filter(is_path).flat_map(|word| in_bases(word));
    let in_directories = behind("crt").flat_map(|directory| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    });
    let all = paths.chain(in_directories);
    all.filter(|path| path.is_file()).collect()
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
        let remedy = format!(
            "add the line ListenStream={} to lockstep-keyd.socket (systemctl edit), and restart \
             the socket; for a server of the distribution, run lockstep install --keyd again",
            inside.display()
        );
        return (Verdict::Failed, what, Some(remedy));
    }
    let who = format!("user {}, who serves,", process.status.user);
    match offers(process, &inside) {
        Ok(offers) => judge(path, reference, offers, &who),
        Err(error) => {
            let what = format!(
                "{} stands for the key {}; whether {who} may use it is unknown: {error}",
                path.display(),
                reference.name
            );
            let remedy = "run this as root";
            (Verdict::Note, what, Some(remedy.to_owned()))
        }
    }
}

/// What the daemon offers the user of a process, or why it offers nothing. Fails where nobody can
/// be asked in that user's name.
fn offers(process: &Process, socket: &Path) -> Result<Result<Vec<Offer>, String>, std::io::Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["keyd", "keys", "--json", "--socket"])
        .arg(socket);
    if rustix::process::geteuid().as_raw() != process.status.user {
        command.uid(process.status.user).gid(process.status.group);
    }
    let output = command.current_dir("/").stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or_default();
        return Ok(Err(first.trim_start_matches("lockstep: ").to_owned()));
    }
    Ok(Ok(serde_json::from_slice(&output.stdout)?))
}

#[cfg(test)]
mod tests {
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
        let view = View::under(&root);
        let told = || {
            let findings = References::of(&subject, &view, &[]).findings(&subject, &view);
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
    }

    #[test]
    fn files_are_found_by_the_words_of_a_configuration() {
        let place = lockstep_testkit::TempDir::new("references");
        for file in ["etc/a.key", "ssl/b.pem", "all/1.pem", "c.pem", "d"] {
            let path = place.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let view = View::under(&place);
        let text = "key \"a.key\"; crt-base /ssl\nbind :443 crt b.pem crt /all crt=/c.pem d\n";
        let mut found = named(text, &place.join("etc"), &view);
        found.sort();
        found.dedup();
        let expected = ["all/1.pem", "c.pem", "etc/a.key", "ssl/b.pem"];
        assert_eq!(found, expected.map(|name| place.join(name)));
    }
}
