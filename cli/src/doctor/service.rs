//! `lockstep doctor --service` and `--pid`: whether a running service signs on lanes, and if not,
//! why.
//!
//! It asks in the order in which a service comes to the lanes: the process, its environment, the
//! files as it sees them, its libraries, its counters. Then it makes handshakes with the service
//! and looks at the change of the counters. If the service has loaded the module, doctor does not
//! report why the module might not be loaded.
//!
//! The owner of the service may mean harm to root, who asks. So nothing of the process decides
//! which code runs here: doctor starts no program with its configuration, and a separate program
//! with the rights of the process looks at the files that the process names ([`look`]). [The page
//! on root and other users](../../../docs/decisions/install.md#root-and-other-users) has the
//! reasons.

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
mod node;
mod offers;
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

use super::finding::{Finding, Findings, Verdict, advice, failed, good, note, warning};
use super::key_daemon;
use super::machine::lacks_ml_dsa;
use crate::keyd::PROCESS;
use crate::mistakes::{are_gone, gone, mistakes};
use crate::process::mapped::Mapped;
use crate::process::{Environment, Process, Processes};
use crate::servers::units;
use crate::words::joined;
use files::View;
use groups::GroupList;
use handshake::{HYBRID, Session};
use libraries::{libcrypto, loaded};
pub use look::{COMMAND as LOOK, run as look};
use offers::Served;
use sight::Seen;
use subject::Subject;
pub use subject::Wanted;
use tally::Tally;

/// Options that select the service.
#[derive(Args)]
pub struct ServiceOptions {
    /// Look at a service that runs: haproxy, apache, nginx, stunnel, or one of another name
    #[arg(long, value_name = "NAME", group = "wanted")]
    service: Option<String>,
    /// Look at a process and those that it has started
    #[arg(long, value_name = "N", group = "wanted")]
    pid: Option<u32>,
    /// Where the service serves TLS [default: where it listens on the loopback interface]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port, requires = "wanted")]
    connect: Option<String>,
    /// The name that clients ask the service for (SNI) [default: none]
    #[arg(long, value_name = "NAME", requires = "wanted")]
    servername: Option<String>,
    /// Look for units under this directory instead of /
    #[arg(long, value_name = "DIR", default_value = "/", requires = "wanted")]
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
    /// Returns the service to look at, if any.
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

/// Asks one question after the other about each server. A failed answer ends the questions about
/// that server.
pub fn examine(wanted: &Wanted, options: &ServiceOptions, findings: &mut Findings) {
    match wanted.find_all(&Processes::here(), &options.root) {
        Ok(mut subjects) => {
            if let Some(address) = &options.connect {
                // The counters of the other servers are not needed.
                subject::keep_server_at(&mut subjects, address);
            }
            for subject in &subjects {
                let _ = ask(subject, options, findings);
            }
        }
        Err(failure) => findings.say_all([Finding::of("process", Verdict::Failed, failure)]),
    }
}

fn ask(subject: &Subject, options: &ServiceOptions, findings: &mut Findings) -> Option<()> {
    let runs = findings.say(process(subject));
    if let Some(unit) = &subject.unit {
        let files = joined(unit.files.iter().map(|file| file.display()), ", ");
        let what = format!("{} is described by {files}", unit.name);
        let _ = findings.say(note("unit", what));
    }
    let environment = subject
        .main()
        .map_or(Ok(Environment::Overwritten), Process::environment);
    let (mapped, environment) = match (subject.mapped(), environment) {
        (Ok(mapped), Ok(environment)) => (mapped, environment),
        (Err(error), _) | (_, Err(error)) => {
            let what = format!("cannot look at {}: {error}", subject.shown());
            return findings.say(failed("process", what, "run this as root"));
        }
    };
    if let Some(failure) = subject.main().and_then(|main| helper::still(main).err()) {
        return findings.say(Finding::of("process", Verdict::Failed, failure));
    }
    let mut service = Service {
        view: subject
            .main()
            .map_or_else(|| View::under(&options.root), View::of),
        subject,
        environment,
        mapped,
        seen: Seen::default(),
    };
    let named = cause::configuration(subject, &service.environment);
    if let Err(failure) = service.look(named.as_ref().ok(), &options.root) {
        findings.say_all([Finding::of("files", Verdict::Warning, failure)]);
    }
    let configuration = service.loading(named, runs.is_some(), findings)?;
    let installed = lockstep_conf::installed().ok();
    let certificates = &service.seen.certificates;
    let lacking = installed.and_then(|own| lacks_ml_dsa(certificates, &own));
    let (seen, root) = (&service.seen, &options.root);
    let references = references::findings(seen, configuration.as_ref(), subject, root);
    findings.say_all(lacking.into_iter().chain(references));
    runs?;
    service.working(configuration.as_ref(), options, findings)
}

fn process(subject: &Subject) -> Finding {
    let Some(main) = subject.main() else {
        let what = format!("no process of {} runs", subject.name);
        let remedy = "start it; the other findings are about how it would start";
        return failed("process", what, remedy);
    };
    let program = match main.program() {
        Some(program) => format!("runs {}", program.display()),
        None => "runs a program that only root and its user may see".to_owned(),
    };
    let others = match subject.processes.len() - 1 {
        0 => String::new(),
        1 => ", with 1 more process".to_owned(),
        many => format!(", with {many} more processes"),
    };
    good("process", format!("{} {program}{others}", subject.shown()))
}

/// A service, with the facts that were read.
struct Service<'a> {
    subject: &'a Subject,
    view: View,
    environment: Environment,
    /// The mapped files of each process.
    mapped: Vec<(&'a Process, Vec<Mapped>)>,
    /// The service's view of its files.
    seen: Seen,
}

impl Service<'_> {
    /// Looks at the service's files.
    fn look(&mut self, configuration: Option<&PathBuf>, root: &Path) -> Result<(), Failure> {
        let subject = self.subject;
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
        };
        self.seen = match subject.main() {
            Some(main) => helper::seen_by(main, wanted)?,
            None => {
                let seen = helper::seen_under(root, wanted)?;
                // A service that does not run sees no keys now.
                let uncovered = Vec::new();
                Seen { uncovered, ..seen }
            }
        };
        Ok(())
    }

    /// Reports how the service has loaded the module, or why it has not. Returns `None` if the
    /// questions end here, and otherwise the service's configuration, if known. `named` is the
    /// configuration that the service reads, or the reason why it reads none.
    fn loading(
        &mut self,
        named: Result<PathBuf, Finding>,
        runs: bool,
        findings: &mut Findings,
    ) -> Option<Option<Configuration>> {
        let seen = self.seen.configuration.take();
        let found = named.and_then(|path| cause::module(self.subject, &self.view, &path, seen));
        let modules = self.files(true, Mapped::is_module);
        let serving: Vec<u32> = self.subject.serving().iter().map(|p| p.pid).collect();
        let has_it = |(process, files): &(&Process, Vec<Mapped>)| {
            !serving.contains(&process.pid) || files.iter().any(Mapped::is_module)
        };
        let is_loaded = runs && !modules.is_empty() && self.mapped.iter().all(has_it);
        self.groups(
            found.as_ref().ok().map(|found| &found.configuration),
            findings,
        );
        if self.seen.excludes_async {
            let _ = findings.say(haproxy::conflict());
        }
        if self.subject.name == "haproxy" {
            findings.say_all(haproxy::fewer_connections());
        }
        let configuration = match found {
            Ok(found) => {
                let path = found.configuration.path().display();
                let what = format!(
                    "OPENSSL_CONF={path}, which names {}",
                    found.module.display()
                );
                findings.say(good("configuration", what))?;
                findings.say_all(found.outdated);
                Some(found.configuration)
            }
            Err(_) if is_loaded => None,
            Err(named) => {
                findings.say(named)?;
                None
            }
        };
        findings.say_all(self.settings(configuration.as_ref()));
        if is_loaded {
            let mut serving = self.files(false, Mapped::is_module).into_iter();
            let serve_old = serving.any(|module| module.is_deleted);
            findings.say(loaded(&modules, serve_old, &self.subject.reload()))?;
        } else if let Some(configuration) = configuration.as_ref().filter(|_| runs) {
            return findings.say(self.not_loaded(configuration)).map(|()| None);
        }
        Some(configuration)
    }

    /// Returns mapped files of a kind: with `all`, of all processes, otherwise of the serving
    /// processes. A process from before a reload may have other files.
    fn files(&self, all: bool, is_wanted: impl Fn(&Mapped) -> bool) -> Vec<Mapped> {
        let serving = self.subject.serving();
        let is_meant = |process: &Process| all || serving.iter().any(|own| own.pid == process.pid);
        let mut found: Vec<Mapped> = Vec::new();
        for (_, files) in self.mapped.iter().filter(|(process, _)| is_meant(process)) {
            for file in files.iter().filter(|file| is_wanted(file)) {
                if !found.contains(file) {
                    found.push(file.clone());
                }
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

    /// Finds the reason why the service does not agree on the group [`HYBRID`] at an address.
    fn without_hybrid(&self, lists: &[GroupList], address: &str, session: &Session) -> Finding {
        let others = lists
            .iter()
            .filter(|list| !["auto", HYBRID].iter().any(|name| list.list.contains(name)));
        let places = joined(others.map(|list| &list.place), ", ");
        let (why, remedy) = if !session.is_tls_1_3() {
            let why = "that is for TLS 1.3, and the service agrees on an earlier version";
            (why.to_owned(), "enable TLS 1.3 there".to_owned())
        } else if places.is_empty() {
            let why = "OpenSSL 3.5 and later offer it by default, and earlier versions only if the \
                       server's own list of groups names it";
            (why.to_owned(), self.subject.hybrid())
        } else {
            let restart = self.subject.restart();
            (
                format!("a list of groups does not name it: {places}"),
                format!("add {HYBRID} there, in front, and {restart}"),
            )
        };
        let what = format!(
            "at {address} it does not agree on {HYBRID}, which most browsers prefer: {why}"
        );
        advice("hybrid", what, remedy)
    }

    /// Reports lists of groups that OpenSSL refuses.
    fn groups(&self, configuration: Option<&Configuration>, findings: &mut Findings) {
        for GroupList { list, place } in self.group_lists(configuration) {
            let Some(unknown) = groups::unknown(&list, configuration) else {
                continue;
            };
            let what = format!(
                "OpenSSL does not know the group `{unknown}` of {place}, and refuses the whole \
                 list: the server does not start, or serves other groups"
            );
            let remedy = "correct the name there, or remove it";
            let _ = findings.say(warning("groups", what, remedy));
        }
    }

    /// Reports the settings of the module that have no effect.
    fn settings(&self, configuration: Option<&Configuration>) -> Vec<Finding> {
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
        let all = of_environment.chain(of_file).map(|mistake| {
            let what =
                format!("a setting with a mistake has no effect, and its default holds: {mistake}");
            let remedy = format!("correct it, then {}", self.subject.restart());
            failed("settings", what, remedy)
        });
        let is_set = |name: &String| self.environment.get(name).is_some();
        let gone_variables = are_gone(Setting::gone_variables().filter(is_set));
        let gone_variables = gone_variables.map(|gone| format!("its environment sets {gone}"));
        let all_gone = gone_variables
            .into_iter()
            .chain(configuration.and_then(gone));
        let all_gone = all_gone.map(|what| warning("settings", what, "remove it there"));
        all.chain(all_gone).collect()
    }

    /// Returns the setting `backend` and its place. If `OPENSSL_ia32cap` takes those lanes away,
    /// returns the lanes that remain, and names the variable.
    fn backend(&self, configuration: Option<&Configuration>) -> Option<(String, String)> {
        let set = self.setting(configuration, "backend");
        let mask = self.environment.get("OPENSSL_ia32cap");
        masked(set, mask)
    }

    /// Returns a setting of the module and the place that sets it: the environment, or else the
    /// module's section of the configuration.
    fn setting(
        &self,
        configuration: Option<&Configuration>,
        name: &str,
    ) -> Option<(String, String)> {
        let variable = format!("LOCKSTEP_{}", name.to_uppercase());
        let of_environment = self.environment.get(&variable);
        if let Some(value) = of_environment.filter(|value| !value.is_empty()) {
            return Some((value.to_owned(), format!("{variable}={value}")));
        }
        let configuration = configuration?;
        let provider = configuration.provider()?;
        let value = configuration.effective.setting(&provider, name)?;
        let path = configuration.path().display();
        let section = &provider.section;
        Some((
            value.to_owned(),
            format!("`{name} = {value}` in [{section}] of {path}"),
        ))
    }

    /// Finds the reason why the module is not loaded, although its configuration and its file are
    /// in order. doctor does not load them itself: they may contain any code.
    fn not_loaded(&self, configuration: &Configuration) -> Finding {
        if let Some((what, remedy)) = node::why_not(self.subject, &self.environment, configuration)
        {
            return failed("node", what, remedy);
        }
        let libraries = self.files(false, Mapped::is_libcrypto);
        if libraries.len() != 1 {
            return self.libcrypto(&libraries, Verdict::Failed);
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

    /// Reports whether lanes serve the requests of clients: the service's own lanes, or the key
    /// daemon's.
    fn working(
        &self,
        configuration: Option<&Configuration>,
        options: &ServiceOptions,
        findings: &mut Findings,
    ) -> Option<()> {
        let has_references = !self.seen.references.is_empty();
        let libraries = self.files(false, Mapped::is_libcrypto);
        // The module belongs to the libcrypto that has loaded it. That may be linked statically
        // into the program.
        let is_inside = libraries.is_empty() && !self.files(true, Mapped::is_module).is_empty();
        if is_inside {
            let what = "it uses the OpenSSL inside of its program, which has loaded the module";
            let _ = findings.say(good("libcrypto", what));
        } else if libraries.len() == 1 {
            let _ = findings.say(self.libcrypto(&libraries, Verdict::Good));
        }
        let backend = self.backend(configuration);
        findings.say(judge::backend(backend, Backend::best_hardware()))?;
        let mut tally = self.tally(configuration, findings);
        if let Some(tally) = tally.as_mut().filter(|_| has_references) {
            let sockets = self.seen.references.iter();
            let read = |text: &str| lockstep_remote::Reference::from_pem(text.as_bytes()).ok();
            let sockets = sockets.filter_map(|own| Some(read(&own.text)?.socket().to_owned()));
            let sockets = sockets.collect();
            tally.add_process(PROCESS, &key_daemon::users(sockets));
        }
        let (connect, name) = (options.connect.as_deref(), options.servername.as_deref());
        let (clients, refused) = reach::clients(self.subject, connect, name);
        findings.say_all(refused);
        if clients.is_empty() {
            return None;
        }
        let lists = self.group_lists(configuration);
        let mut judged = Vec::new();
        for (client, session) in &clients {
            let served = Served::try_all(client, tally.as_ref(), &lists);
            findings.say_all(served.findings());
            if !served.has_hybrid() {
                let _ = findings.say(self.without_hybrid(&lists, client.address(), session));
            }
            if tally.is_some() {
                judged.extend(served.judged(self.is_filtered()));
            }
        }
        let has_lanes = judged.iter().any(|own| own.verdict == Verdict::Good);
        if libraries.len() != 1 && !is_inside {
            let verdict = match has_lanes {
                true => Verdict::Warning,
                false => Verdict::Failed,
            };
            findings.say(self.libcrypto(&libraries, verdict))?;
        }
        for own in &mut judged {
            // A port may have keys that no lanes serve.
            if own.verdict == Verdict::Failed && own.check == "used" && has_lanes {
                own.verdict = Verdict::Warning;
            }
        }
        findings.say_all(judged);
        Some(())
    }

    /// Returns the counters of the service, or reports why they cannot be read.
    fn tally(
        &self,
        configuration: Option<&Configuration>,
        findings: &mut Findings,
    ) -> Option<Tally> {
        let files = self.mapped.iter().flat_map(|(_, files)| files);
        let Some(tally) = Tally::of(files, &self.view) else {
            let _ = findings.say(self.uncounted(configuration));
            return None;
        };
        if let Err(why) = tally.read() {
            let _ = findings.say(judge::unread(why));
            return None;
        }
        let shown = joined(tally.directories().map(Path::display), ", ");
        let what = format!("it publishes its counters in {shown}");
        let _ = findings.say(good("counters", what));
        Some(tally)
    }

    /// Finds the reason why the service publishes no counters.
    fn uncounted(&self, configuration: Option<&Configuration>) -> Finding {
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

    fn libcrypto(&self, libraries: &[Mapped], verdict: Verdict) -> Finding {
        libcrypto(libraries, verdict, &self.subject.reload())
    }
}

/// Returns the setting `backend` and its place. If a mask of instructions takes those lanes away,
/// returns the lanes that remain.
fn masked(set: Option<(String, String)>, mask: Option<&str>) -> Option<(String, String)> {
    let Some(mask) = mask else {
        return set;
    };
    let pairs = set.iter();
    let pairs = pairs.map(|(value, _)| ("backend".to_owned(), value));
    let config = Config::from_pairs(pairs).masked(mask);
    if !config.is_masked {
        return set;
    }
    let left = config.backend.resolve().map_or("none", Backend::name);
    let named_by = match left {
        "none" => "OPENSSL_ia32cap in its environment".to_owned(),
        left => format!("OPENSSL_ia32cap in its environment leaves it {left} lanes"),
    };
    Some((left.to_owned(), named_by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_instructions_takes_nothing_from_lanes_that_a_setting_disables() {
        let set = Some(("none".to_owned(), "LOCKSTEP_BACKEND=none".to_owned()));
        for mask in [None, Some(""), Some(":0"), Some(":~0x200000")] {
            assert_eq!(masked(set.clone(), mask), set, "{mask:?}");
        }
        assert_eq!(masked(None, None), None);
        let left = masked(None, Some(":0")).map(|(left, _)| left);
        let has_lanes = Backend::best_hardware().is_some();
        assert_eq!(left.as_deref(), has_lanes.then_some("none"));
    }
}
