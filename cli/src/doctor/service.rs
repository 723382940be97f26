//! `lockstep doctor --service` and `--pid`: whether a service that runs signs on lanes, and if not,
//! why.
//!
//! It asks in the order in which a service comes to the lanes: the process, its environment, the
//! files as it sees them, the libraries that it has mapped, its counters. Then it makes handshakes
//! with the service and looks at the counters that they moved. If the service has loaded the
//! module, the steps before that are left out.
//!
//! The owner of the service may mean harm to root, who asks. So no word of the process decides
//! which code runs here: doctor starts no program with its configuration, and a separate program
//! with the rights of the process looks at the files that the process names ([`look`]). [Decision
//! 25](../../../docs/decisions/0025-root.md) has the reasons.

mod cause;
mod files;
mod groups;
mod handshake;
mod haproxy;
mod helper;
mod identity;
mod judge;
mod keys;
mod libraries;
mod look;
mod mapped;
mod node;
mod offers;
mod process;
mod reach;
mod references;
mod sight;
mod sockets;
mod subject;
mod tally;

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_common::{Configuration, Failure, Manual, word_for_shell};
use lockstep_engine::{Backend, Config, Setting};

use super::finding::{Answer, Finding, Named, Verdict};
use super::machine::lacks_ml_dsa;
use crate::keyd::PROCESS;
use crate::mistakes::mistakes;
use crate::servers::units;
use files::View;
use groups::GroupList;
use handshake::{HYBRID, Session};
use libraries::{libcrypto, loaded};
pub use look::{COMMAND as LOOK, Options as LookOptions, run as look};
use mapped::Mapped;
use offers::Served;
pub use process::Processes;
use process::{Environment, Process};
use sight::Seen;
use subject::Subject;
pub use subject::Wanted;
use tally::Tally;

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
    if let Some(failure) = subject.main().and_then(|main| helper::still(main).err()) {
        return say(("process", (Verdict::Failed, failure.what, failure.remedy)));
    }
    let mut service = Service {
        view: subject.view(&options.root),
        subject: &subject,
        environment,
        mapped,
        seen: Seen::default(),
    };
    let named = cause::configuration(&subject, &service.environment);
    if let Err(failure) = service.look(named.as_ref().ok(), &options.root) {
        let _ = say(("files", (Verdict::Warning, failure.what, failure.remedy)));
    }
    let configuration = service.loading(named, runs.is_some(), say)?;
    let installed = lockstep_conf::installed().ok();
    let certificates = &service.seen.certificates;
    if let Some(lacking) = installed.and_then(|own| lacks_ml_dsa(certificates, &own)) {
        let _ = say(("openssl", lacking));
    }
    for named in references::findings(
        &service.seen,
        configuration.as_ref(),
        &subject,
        &options.root,
    ) {
        let _ = say(named);
    }
    runs?;
    service.working(configuration.as_ref(), options, say)
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
    /// What it sees of its files.
    seen: Seen,
}

impl Service<'_> {
    /// Has its files looked at.
    fn look(&mut self, configuration: Option<&PathBuf>, root: &Path) -> Result<(), Failure> {
        let subject = self.subject;
        // Of what it has loaded, nothing need be searched for.
        let has_openssl = !self
            .files(|file| file.is_libcrypto() || file.is_module())
            .is_empty();
        let program = subject.main().and_then(Process::program);
        let directories = subject.directories.iter();
        let wanted = sight::Wanted {
            configuration: configuration.cloned(),
            only_roots: false,
            is_here: configuration.is_some_and(|path| self.view.at(path) == *path),
            words: subject.words(),
            directories: directories
                .map(|name| Path::new("/etc").join(name))
                .collect(),
            covered: references::covered(subject),
            program: program.filter(|_| !has_openssl),
        };
        self.seen = match subject.main() {
            Some(main) => helper::seen_by(main, wanted)?,
            None => {
                let seen = helper::seen_under(root, wanted)?;
                // It would see references when it starts.
                let uncovered = Vec::new();
                Seen { uncovered, ..seen }
            }
        };
        Ok(())
    }

    /// How it has come to load the module, or why it has not. Returns its configuration, if that is
    /// known. `named` is the configuration that it reads, or why it reads none.
    fn loading(
        &mut self,
        named: Result<PathBuf, Named>,
        runs: bool,
        say: &mut Say<'_>,
    ) -> Option<Option<Configuration>> {
        let seen = self.seen.configuration.take();
        let found = named.and_then(|path| cause::module(self.subject, &self.view, &path, seen));
        let modules = self.files(Mapped::is_module);
        let serving: Vec<u32> = self.subject.serving().iter().map(|p| p.pid).collect();
        let has_it = |(process, files): &(&Process, Vec<Mapped>)| {
            !serving.contains(&process.pid) || files.iter().any(Mapped::is_module)
        };
        let is_loaded = runs && !modules.is_empty() && self.mapped.iter().all(has_it);
        self.groups(found.as_ref().ok().map(|found| &found.configuration), say);
        if self.seen.excludes_async {
            let _ = say(haproxy::conflict());
        }
        let configuration = match found {
            Ok(found) => {
                let path = found.configuration.path().display();
                let what = format!(
                    "OPENSSL_CONF={path}, which names {}",
                    found.module.display()
                );
                say(("configuration", (Verdict::Good, what, None)))?;
                for named in found.looks {
                    let _ = say(named);
                }
                Some(found.configuration)
            }
            Err(_) if is_loaded => None,
            Err(named) => {
                say(named)?;
                None
            }
        };
        for named in self.settings(configuration.as_ref()) {
            let _ = say(named);
        }
        if is_loaded {
            say(("loaded", loaded(&modules, &self.subject.restart())))?;
        } else if let Some(configuration) = configuration.as_ref().filter(|_| runs) {
            return say(self.not_loaded(configuration)).map(|()| None);
        }
        Some(configuration)
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

    /// The lists of groups that the service reads, its own first.
    fn group_lists(&self, configuration: Option<&Configuration>) -> Vec<GroupList> {
        let policy = configuration.map(|known| groups::of_policy(&known.effective));
        let own = self.seen.lists.iter().cloned();
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
        for GroupList { list, place } in self.group_lists(configuration) {
            let Some(unknown) = groups::unknown(&list, configuration) else {
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

    /// Which of the module's settings have no effect.
    fn settings(&self, configuration: Option<&Configuration>) -> Vec<Named> {
        let of_environment = Setting::ALL.iter().filter_map(|setting| {
            let variable = setting.variable();
            let value = self.environment.get(&variable);
            let value = value.filter(|value| !value.is_empty())?.to_owned();
            let wrong = Config::from_pairs([(setting.name.to_owned(), value)]).strict();
            Some(wrong.err()?.of_variable(variable).to_string())
        });
        let of_file = configuration.and_then(|configuration| {
            let mistakes = mistakes(configuration);
            let path = configuration.path().display();
            (!mistakes.is_empty()).then(|| format!("in {path}, {mistakes}"))
        });
        let all = of_environment.chain(of_file);
        all.map(|mistake| {
            let what =
                format!("a setting with a mistake has no effect, and its default holds: {mistake}");
            let remedy = format!("correct it, then {}", self.subject.restart());
            ("settings", (Verdict::Failed, what, Some(remedy)))
        })
        .collect()
    }

    fn setting(&self, of: Option<&Configuration>, name: &str) -> Option<(String, String)> {
        self.subject.setting(&self.environment, of, name)
    }

    /// Why the module is not loaded, where its configuration and its file are in order. No program
    /// tries them here: they may be anything.
    fn not_loaded(&self, configuration: &Configuration) -> Named {
        let failed =
            |check, what: String, remedy: String| (check, (Verdict::Failed, what, Some(remedy)));
        if let Some((what, remedy)) = node::why_not(self.subject, &self.environment, configuration)
        {
            return failed("node", what, remedy);
        }
        let libraries = self.files(Mapped::is_libcrypto);
        if libraries.len() != 1 {
            return ("libcrypto", self.libcrypto(&libraries, Verdict::Failed));
        }
        let name = self.subject.shown();
        if self.is_filtered() {
            return failed(
                "seccomp",
                format!(
                    "{name} has not loaded the module, although its configuration and the module \
                     are in order: its filter of system calls (seccomp) may deny what is needed to \
                     load it"
                ),
                format!(
                    "the system calls of the module are listed in {}",
                    Manual::Settings.name()
                ),
            );
        }
        failed(
            "loaded",
            format!(
                "{name} has not loaded the module, although its configuration and the module are \
                 in order: it may have been started before the module was there"
            ),
            format!(
                "{}. If that does not help, see what OpenSSL says when a program of the same user \
                 loads it: OPENSSL_CONF={} lockstep doctor, as that user",
                self.subject.restart(),
                word_for_shell(configuration.path())
            ),
        )
    }

    fn is_filtered(&self) -> bool {
        let mut processes = self.subject.processes.iter();
        processes.any(|process| process.status.is_filtered)
    }

    /// Whether lanes compute what clients ask of it, its own or those of the key daemon.
    fn working(
        &self,
        configuration: Option<&Configuration>,
        options: &ServiceOptions,
        say: &mut Say<'_>,
    ) -> Option<()> {
        let has_references = !self.seen.references.is_empty();
        let libraries = self.files(Mapped::is_libcrypto);
        // The module is bound to the one that has loaded it, which may be in the program itself.
        let is_inside = libraries.is_empty() && !self.files(Mapped::is_module).is_empty();
        if is_inside {
            let what = "it uses the OpenSSL inside of its program, which has loaded the module";
            let _ = say(("libcrypto", (Verdict::Good, what.to_owned(), None)));
        } else if libraries.len() == 1 {
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
        if libraries.len() != 1 && !is_inside {
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
        let inside = self.seen.inside.as_deref();
        libcrypto(libraries, inside, verdict, &self.subject.restart())
    }
}
