//! `lockstep doctor --service` and `--pid`: whether a service that runs signs on lanes, and if not,
//! why.
//!
//! It asks in the order in which a service comes to the lanes: the process, its environment, the
//! files as it sees them, the libraries that it has mapped, its counters. Then it makes handshakes
//! with it and looks at what they moved. A service that has loaded the module is not asked how.

mod cause;
mod groups;
mod handshake;
mod haproxy;
mod judge;
mod libraries;
mod mapped;
mod process;
mod reach;
mod references;
mod served;
mod sockets;
mod subject;
mod tally;
mod view;

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_common::{Configuration, Manual};
use lockstep_engine::{Backend, Config, Setting};

use super::comparison;
use super::finding::{Answer, Finding, Named, Verdict};
use super::misplaced::misplaced;
use super::trial::Trial;
use crate::install::units;
use crate::keyd::PROCESS;
use groups::GroupList;
use handshake::{HYBRID, Session};
use libraries::{libcrypto, loaded};
use mapped::Mapped;
pub use process::Processes;
use process::{Environment, Process};
use references::References;
use served::Served;
use subject::Subject;
pub use subject::Wanted;
use tally::Tally;
use view::View;

/// The server whose own list of groups replaces that of OpenSSL's configuration.
const STUNNEL: &str = "stunnel";

/// What to look at.
#[derive(Args)]
pub struct ServiceOptions {
    /// Look at a service that runs: haproxy, apache, nginx, stunnel, or one of another name
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Look at a process and those that it has started
    #[arg(long, value_name = "N", conflicts_with = "service")]
    pid: Option<u32>,
    /// Where the service serves TLS [default: where it listens on the loopback interface]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    connect: Option<String>,
    /// The name that clients ask the service for (SNI) [default: none]
    #[arg(long, value_name = "NAME")]
    servername: Option<String>,
    /// Look for units under this directory instead of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// An address for `openssl s_client`, which takes port 4433 where none is named.
fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    match port.and_then(|port| port.parse().ok()) {
        Some(1..=u16::MAX) => Ok(text.to_owned()),
        _ => Err("it needs a port: HOST:PORT, as in 127.0.0.1:443 or [::1]:443".to_owned()),
    }
}

impl ServiceOptions {
    /// An option that is given without a service, if any is.
    pub fn in_vain(&self) -> Option<&'static str> {
        let given = [
            ("--connect", self.connect.is_some()),
            ("--servername", self.servername.is_some()),
            ("--root", self.root != Path::new("/")),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        let named = self.service.is_some() || self.pid.is_some();
        given.next().map(|(name, _)| name).filter(|_| !named)
    }

    /// Which service to look at, if any.
    pub fn wanted(&self) -> Option<Wanted> {
        let service = |name: &String| Wanted::Service {
            units: units(name),
            name: name.clone(),
        };
        self.pid
            .map(Wanted::Process)
            .or_else(|| self.service.as_ref().map(service))
    }
}

/// Asks one question after the other, as far as the answers allow.
pub fn examine(wanted: &Wanted, options: &ServiceOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |named: Named| {
        let finding = Finding::new(named);
        let verdict = finding.verdict;
        findings.push(finding);
        (verdict != Verdict::Failed).then_some(())
    };
    // `None` ends the questions: the next one would make no sense.
    let _ = ask(wanted, options, &mut say);
    findings
}

/// Takes a finding; `None` if it is a failure.
type Say<'a> = dyn FnMut(Named) -> Option<()> + 'a;

fn ask(wanted: &Wanted, options: &ServiceOptions, say: &mut Say<'_>) -> Option<()> {
    let subject = match wanted.find(&Processes::here(), &options.root) {
        Ok(subject) => subject,
        Err(failure) => return say(("process", (Verdict::Failed, failure.what, failure.remedy))),
    };
    let runs = say(("process", process(&subject)));
    if let Some(unit) = &subject.unit {
        let files: Vec<String> = unit
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let what = format!("{} is described by {}", unit.name, files.join(", "));
        let _ = say(("unit", (Verdict::Note, what, None)));
    }
    let environment = subject
        .main()
        .map_or(Ok(Environment::Overwritten), Process::environment);
    let (mapped, environment) = match (subject.mapped(), environment) {
        (Ok(mapped), Ok(environment)) => (mapped, environment),
        (Err(error), _) | (_, Err(error)) => {
            let what = format!("cannot look at {}: {error}", subject.shown());
            let remedy = "run this as root".to_owned();
            return say(("process", (Verdict::Failed, what, Some(remedy))));
        }
    };
    let service = Service {
        view: subject.view(&options.root),
        subject: &subject,
        environment,
        mapped,
    };
    let configuration = service.loading(runs.is_some(), say)?;
    let files = service.files_of_configuration();
    let references = References::of(&subject, &service.view, &files);
    for named in references.findings(&subject, &service.view) {
        let _ = say(named);
    }
    runs?;
    service.working(configuration.as_ref(), !references.is_empty(), options, say)
}

fn process(subject: &Subject) -> Answer {
    let Some(main) = subject.main() else {
        let what = format!("no process of {} runs", subject.name);
        let remedy = "start it; what follows is about the way in which it would start";
        return (Verdict::Failed, what, Some(remedy.to_owned()));
    };
    let program = main.program().unwrap_or_default();
    let others = match subject.processes.len() - 1 {
        0 => String::new(),
        1 => ", with 1 more process".to_owned(),
        many => format!(", with {many} more processes"),
    };
    let what = format!("{} runs {}{others}", subject.shown(), program.display());
    (Verdict::Good, what, None)
}

/// A service, and what was read of it.
struct Service<'a> {
    subject: &'a Subject,
    view: View,
    environment: Environment,
    /// The files that each process has mapped.
    mapped: Vec<(&'a Process, Vec<Mapped>)>,
}

impl Service<'_> {
    /// How it has come to load the module, or why it has not. Returns its configuration, if that is
    /// known.
    fn loading(&self, runs: bool, say: &mut Say<'_>) -> Option<Option<Configuration>> {
        let found = cause::configuration(self.subject, &self.environment)
            .and_then(|path| cause::module(self.subject, &self.view, &path));
        let modules = self.files(Mapped::is_module);
        let serving: Vec<u32> = self.subject.serving().iter().map(|p| p.pid).collect();
        let has_it = |(process, files): &(&Process, Vec<Mapped>)| {
            !serving.contains(&process.pid) || files.iter().any(Mapped::is_module)
        };
        let is_loaded = runs && !modules.is_empty() && self.mapped.iter().all(has_it);
        self.groups(
            found.as_ref().ok().map(|(configuration, _)| configuration),
            say,
        );
        if let Some(named) = haproxy::conflict(&self.files_of_configuration()) {
            let _ = say(named);
        }
        let configuration = match found {
            Ok((configuration, module)) => {
                let path = configuration.path().display();
                let what = format!("OPENSSL_CONF={path}, which names {}", module.display());
                say(("configuration", (Verdict::Good, what, None)))?;
                if self.sees_our_files(&configuration) {
                    let looks = [comparison::outdated, misplaced, comparison::kept];
                    let findings = looks.iter().filter_map(|look| look(&configuration));
                    findings.for_each(|named| {
                        let _ = say(named);
                    });
                }
                Some(configuration)
            }
            Err(_) if is_loaded => None,
            Err(named) => {
                say(named)?;
                None
            }
        };
        if let Some(named) = self.settings(configuration.as_ref()) {
            say(named)?;
        }
        if is_loaded {
            say(("loaded", loaded(&modules, &self.subject.restart())))?;
        } else if let Some(configuration) = configuration.as_ref().filter(|_| runs) {
            return say(self.not_loaded(configuration)).map(|()| None);
        }
        Some(configuration)
    }

    /// Whether a configuration is the same file for the service and for this program.
    fn sees_our_files(&self, configuration: &Configuration) -> bool {
        self.view.at(configuration.path()) == configuration.path()
    }

    /// The files of a kind that its processes have mapped.
    fn files(&self, is_wanted: impl Fn(&Mapped) -> bool) -> Vec<Mapped> {
        let mut found: Vec<Mapped> = Vec::new();
        for file in self.mapped.iter().flat_map(|(_, files)| files) {
            if is_wanted(file) && !found.contains(file) {
                found.push(file.clone());
            }
        }
        found
    }

    /// The files of the server's own configuration, for the reader.
    fn files_of_configuration(&self) -> Vec<PathBuf> {
        let above = self.view.at(Path::new("/etc"));
        let directories = self.subject.directories.iter().map(|name| above.join(name));
        groups::files_of_server(&self.subject.named_files(), directories.collect())
    }

    /// The lists of groups that the service reads, its own first.
    fn group_lists(&self, configuration: Option<&Configuration>) -> Vec<GroupList> {
        let files = self.files_of_configuration();
        let policy = configuration.map(|known| groups::of_policy(&known.effective));
        let own = groups::of_server(&files).into_iter();
        own.chain(policy.into_iter().flatten()).collect()
    }

    /// What keeps it from the hybrid.
    fn without_hybrid(&self, configuration: Option<&Configuration>, session: &Session) -> Named {
        let lists = self.group_lists(configuration).into_iter();
        let mut others =
            lists.filter(|list| !["auto", HYBRID].iter().any(|name| list.list.contains(name)));
        let (why, remedy) = match others.next() {
            _ if !session.is_tls_1_3() => (
                "that is for TLS 1.3, and the service agrees on an earlier version".to_owned(),
                "enable TLS 1.3 in its configuration".to_owned(),
            ),
            Some(GroupList { place, .. }) => (
                format!("{place} does not name it"),
                format!(
                    "add {HYBRID} there, in front, and {}",
                    self.subject.restart()
                ),
            ),
            None if self.subject.name == STUNNEL => (
                "stunnel has a list of its own".to_owned(),
                format!(
                    "write curves = {HYBRID}:X25519:P-256 in its configuration, and {}",
                    self.subject.restart()
                ),
            ),
            None => (
                "OpenSSL offers it by itself from 3.5 on, and this one where the server's own list \
                 of groups names it"
                    .to_owned(),
                self.subject.hybrid(),
            ),
        };
        let what = format!("it does not agree on {HYBRID}, which most browsers prefer: {why}");
        ("hybrid", (Verdict::Note, what, Some(remedy)))
    }

    /// Lists of groups that OpenSSL refuses.
    fn groups(&self, configuration: Option<&Configuration>, say: &mut Say<'_>) {
        let path = configuration.map_or(Path::new("/dev/null"), Configuration::path);
        for GroupList { list, place } in self.group_lists(configuration) {
            let Some(unknown) = groups::unknown(&list, &self.view.at(path)) else {
                continue;
            };
            let what = format!(
                "OpenSSL does not know the group `{unknown}` of {place}, and refuses the whole \
                 list: the server does not start, or serves other groups"
            );
            let remedy = "correct the name there, or remove it";
            let _ = say(("groups", (Verdict::Warning, what, Some(remedy.to_owned()))));
        }
    }

    /// What is wrong with the module's settings: with any of it the module does not load.
    fn settings(&self, configuration: Option<&Configuration>) -> Option<Named> {
        let known = Setting::ALL.iter().map(|setting| setting.name);
        let set = known.filter_map(|name| {
            let (value, named_by) = self.setting(configuration, name)?;
            Some((name.to_owned(), value, named_by))
        });
        set.into_iter().find_map(|(name, value, named_by)| {
            let error = Config::from_pairs([(name, value)]).err()?;
            let remedy = format!("correct it, then {}", self.subject.restart());
            let what = format!("{named_by}: {error}");
            Some(("settings", (Verdict::Failed, what, Some(remedy))))
        })
    }

    fn setting(&self, of: Option<&Configuration>, name: &str) -> Option<(String, String)> {
        self.subject.setting(&self.environment, of, name)
    }

    /// Why the module is not loaded, where its configuration and its file are in order.
    fn not_loaded(&self, configuration: &Configuration) -> Named {
        let libraries = self.files(Mapped::is_libcrypto);
        if libraries.len() != 1 {
            return ("libcrypto", self.libcrypto(&libraries, Verdict::Failed));
        }
        let trial = Trial(configuration);
        let tried = || trial.probe().and_then(|_| trial.load());
        let is_ours = self.sees_our_files(configuration);
        if let Some(failure) = is_ours.then(tried).and_then(Result::err) {
            return ("loaded", (Verdict::Failed, failure.what, failure.remedy));
        }
        let name = self.subject.shown();
        match self.is_filtered() {
            true => (
                "seccomp",
                (
                    Verdict::Failed,
                    format!(
                        "{name} has not loaded the module, other programs do: its filter of system \
                         calls (seccomp) may deny what is needed to load it"
                    ),
                    Some(format!(
                        "the system calls of the module are listed in {}",
                        Manual::Settings.name()
                    )),
                ),
            ),
            false => (
                "loaded",
                (
                    Verdict::Failed,
                    format!(
                        "{name} has not loaded the module, other programs do: it may have been \
                         started before the module was there"
                    ),
                    Some(self.subject.restart()),
                ),
            ),
        }
    }

    fn is_filtered(&self) -> bool {
        let mut processes = self.subject.processes.iter();
        processes.any(|process| process.status.is_filtered)
    }

    /// Whether lanes compute what clients ask of it, its own or those of the key daemon.
    fn working(
        &self,
        configuration: Option<&Configuration>,
        has_references: bool,
        options: &ServiceOptions,
        say: &mut Say<'_>,
    ) -> Option<()> {
        let libraries = self.files(Mapped::is_libcrypto);
        if libraries.len() == 1 {
            let _ = say(("libcrypto", self.libcrypto(&libraries, Verdict::Good)));
        }
        let backend = self.setting(configuration, "backend");
        say(judge::backend(backend, Backend::best_hardware()))?;
        let mut tally = self.tally(configuration, say);
        if let Some(tally) = tally.as_mut().filter(|_| has_references) {
            tally.add_process(PROCESS);
        }
        let (connect, name) = (options.connect.as_deref(), options.servername.as_deref());
        let (client, session) = match reach::client(self.subject, connect, name) {
            Ok(reached) => reached,
            Err((check, (verdict, what, remedy))) => {
                let keyd = "its key is in the key daemon: see `reference` above first";
                let keyd = has_references.then(|| keyd.to_owned());
                let remedies: Vec<String> = keyd.into_iter().chain(remedy).collect();
                return say((check, (verdict, what, Some(remedies.join("; or ")))));
            }
        };
        let served = Served::try_all(&client, tally.as_ref());
        for named in served.findings(&client) {
            let _ = say(named);
        }
        if !served.has_hybrid() {
            let _ = say(self.without_hybrid(configuration, &session));
        }
        let judged = match &tally {
            Some(_) => served.judged(self.is_filtered()),
            None => Vec::new(),
        };
        if libraries.len() != 1 {
            let is_good = |(_, (verdict, ..)): &Named| *verdict == Verdict::Good;
            let verdict = match judged.first().is_some_and(is_good) {
                true => Verdict::Warning,
                false => Verdict::Failed,
            };
            say(("libcrypto", self.libcrypto(&libraries, verdict)))?;
        }
        judged.into_iter().try_for_each(say)
    }

    /// Its counters, if they can be read, and what they say of the time until now.
    fn tally(&self, configuration: Option<&Configuration>, say: &mut Say<'_>) -> Option<Tally> {
        let files = self.mapped.iter().flat_map(|(_, files)| files);
        let Some(tally) = Tally::of(files, &self.view) else {
            let _ = say(self.uncounted(configuration));
            return None;
        };
        let before = match tally.read() {
            Ok(before) => before,
            Err(why) => {
                let _ = say(judge::unread(why));
                return None;
            }
        };
        let shown: Vec<_> = tally
            .directories()
            .map(|path| path.display().to_string())
            .collect();
        let what = format!("it publishes its counters in {}", shown.join(", "));
        let _ = say(("counters", (Verdict::Good, what, None)));
        if let Some(named) = judge::history(&before.sum()) {
            let _ = say(named);
        }
        Some(tally)
    }

    /// Why it publishes no counters.
    fn uncounted(&self, configuration: Option<&Configuration>) -> Named {
        let limits = self
            .subject
            .processes
            .iter()
            .filter_map(Process::file_size_limit);
        judge::uncounted(
            &self.subject.shown(),
            self.setting(configuration, "stats_dir"),
            limits.min(),
            self.is_filtered(),
        )
    }

    fn libcrypto(&self, libraries: &[Mapped], verdict: Verdict) -> Answer {
        libcrypto(libraries, verdict, &self.subject.restart())
    }
}
