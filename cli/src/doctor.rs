//! `lockstep doctor`: whether OpenSSL programs sign on lanes here, and if not, why.
//!
//! It asks in the order in which things can go wrong: instructions, settings, OpenSSL,
//! configuration, policy, module, loading, preference, use. It loads nothing itself: a child
//! process loads the configuration, and the `openssl` command signs something as any program would.
//! Then it looks at the counters.

mod running;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use lockstep_engine::{
    Backend, Config, Fallback, Page, Shape, Snapshot, StatsDir, lanes_are_slower, read_published,
};

use crate::configuration::Configuration;
use crate::effective::Provider;
use crate::places::hidden;
use crate::probe::{self, Probe, Unaccelerated, probe};
use crate::scratch::Scratch;
use crate::warnings::{About, Warning, kibibytes, warnings};
use crate::{Failure, Outcome, json, stock};

const HELP: &str = "\
Says whether programs that use OpenSSL sign on lanes on this machine, and if not, why and what to do.

Usage: lockstep doctor [--json]

It looks at the configuration that OPENSSL_CONF names, or else at the openssl.cnf beside this program.
The exit status is 0 if a signature made by the openssl command came from the lanes and no result of
a running process has failed its check, and 1 if not.
";

/// Runs the command with the arguments behind its name.
pub fn main(mut arguments: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let mut json = false;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("json") => json = true,
            Short('h') | Long("help") => {
                out!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let findings = examine();
    let healthy = findings
        .iter()
        .all(|finding| finding.verdict != Verdict::Failed);
    if json {
        let all: Vec<String> = findings.iter().map(Finding::to_json).collect();
        outln!(r#"{{"ok":{healthy},"findings":[{}]}}"#, all.join(","));
    } else {
        let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        findings.iter().for_each(|finding| finding.print(coloured));
    }
    Ok(if healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Failed,
    /// Lanes are in use, and something needs attention.
    Warning,
    Note,
}

impl Verdict {
    /// What stands before a finding: red or yellow, where colours are wanted, if it needs
    /// attention.
    fn mark(self, coloured: bool) -> &'static str {
        match (self, coloured) {
            (Verdict::Good, _) => "ok    ",
            (Verdict::Failed, false) => "FAILED",
            (Verdict::Failed, true) => "\x1b[1;31mFAILED\x1b[0m",
            (Verdict::Warning, false) => "warn  ",
            (Verdict::Warning, true) => "\x1b[33mwarn\x1b[0m  ",
            (Verdict::Note, _) => "note  ",
        }
    }
}

/// The answer to one question.
struct Finding {
    check: &'static str,
    verdict: Verdict,
    what: String,
    remedy: Option<String>,
}

impl Finding {
    fn print(&self, coloured: bool) {
        let mark = self.verdict.mark(coloured);
        outln!("{mark} {:<13} {}", self.check, self.what);
        if let Some(remedy) = &self.remedy {
            outln!("       remedy:       {remedy}");
        }
    }

    fn to_json(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Failed => "failed",
            Verdict::Warning => "warning",
            Verdict::Note => "note",
        };
        format!(
            r#"{{"check":"{}","verdict":"{verdict}","what":{},"remedy":{}}}"#,
            self.check,
            json::string(&self.what),
            self.remedy
                .as_deref()
                .map_or("null".to_owned(), json::string)
        )
    }
}

/// Asks one question after the other, as far as the answers allow.
fn examine() -> Vec<Finding> {
    let mut findings = Vec::new();
    // `?` on an `Option` ends the questions: the next one would make no sense.
    let _ = ask(&mut findings);
    findings
}

fn ask(findings: &mut Vec<Finding>) -> Option<()> {
    let mut add = |finding: Finding| {
        let verdict = finding.verdict;
        findings.push(finding);
        (verdict != Verdict::Failed).then_some(())
    };
    let mut say = |check, verdict, what: String, remedy: Option<String>| {
        add(Finding {
            check,
            verdict,
            what,
            remedy,
        })
    };

    // Without lanes the rest still makes sense: the module must load and hand all to OpenSSL.
    let (verdict, what, remedy) = instructions();
    let _ = say("instructions", verdict, what, remedy);
    let (verdict, what, remedy) = settings();
    let _ = say("settings", verdict, what, remedy);
    if let Some((verdict, what, remedy)) = unknown_variables() {
        let _ = say("environment", verdict, what, remedy);
    }

    let configuration = Configuration::find();
    let places = CountersPlace::all(configuration.as_ref().ok());
    let (verdict, what, remedy) = counters(&places[0]);
    let _ = say("counters", verdict, what, remedy);
    // They have run for longer than what is tried below.
    let published = running::published(places.iter().filter_map(CountersPlace::directory));
    for Finding {
        check,
        verdict,
        what,
        remedy,
    } in running::findings(&published)
    {
        let _ = say(check, verdict, what, remedy);
    }

    let (verdict, what, remedy) = openssl_version();
    say("openssl", verdict, what, remedy)?;

    let configuration = match configuration {
        Ok(configuration) => configuration,
        Err(failure) => {
            return say(
                "configuration",
                Verdict::Failed,
                failure.what,
                failure.remedy,
            );
        }
    };
    let shown = configuration.path().display();
    match configuration.in_use {
        true => say(
            "configuration",
            Verdict::Good,
            format!("OPENSSL_CONF={shown}"),
            None,
        ),
        false => say(
            "configuration",
            Verdict::Note,
            format!("OPENSSL_CONF is not set; looking at {shown}"),
            Some(format!(
                "start programs that are to use lanes with OPENSSL_CONF={shown}"
            )),
        ),
    };

    if let Some(refusal) = configuration.effective.refusal() {
        return say("policy", Verdict::Failed, refusal.what, refusal.remedy);
    }

    match configuration.module() {
        Ok(module) => say(
            "module",
            Verdict::Good,
            format!("found {}", module.display()),
            None,
        )?,
        Err(failure) => return say("module", Verdict::Failed, failure.what, failure.remedy),
    }
    let module = configuration
        .provider()
        .and_then(|provider| provider.module);
    let paths = [Some(configuration.path()), module.as_deref()];
    if let Some((path, place)) = hidden(paths.into_iter().flatten()) {
        let _ = say(
            "location",
            Verdict::Note,
            format!(
                "{} is no place for services: {}",
                path.display(),
                place.consequence()
            ),
            Some(
                "for services, keep it elsewhere: cargo xtask dist --out /opt/lockstep".to_owned(),
            ),
        );
    }
    let probe = match configuration.probe() {
        Ok(probe) if !probe.fips => probe,
        Ok(_) => {
            return say(
                "fips",
                Verdict::Failed,
                format!(
                    "with {shown} OpenSSL uses FIPS providers only, so lockstep serves nothing, as it should"
                ),
                Some("none is needed where FIPS is wanted".to_owned()),
            );
        }
        Err(failure) => return say("loaded", Verdict::Failed, failure.what, failure.remedy),
    };
    match configuration.load() {
        Ok(version) => say("loaded", Verdict::Good, version, None)?,
        Err(failure) => return say("loaded", Verdict::Failed, failure.what, failure.remedy),
    }
    for (verdict, what, remedy) in operations(probe.unaccelerated.as_deref()) {
        let _ = say("operations", verdict, what, remedy);
    }

    // What a program gets that signs one thing at a time, with the settings as they are,
    let usual = match configuration.sign(None) {
        Ok(counters) => counters,
        Err(failure) => return say("lone", Verdict::Failed, failure.what, failure.remedy),
    };
    // and whether the lanes can do it, where it is not for being slower that they never will.
    let counters = if usual.fallbacks_for(Fallback::SlowLanes) > 0 {
        usual.clone()
    } else {
        match configuration.sign(Some("lanes")) {
            Ok(counters) => counters,
            Err(failure) => return say("used", Verdict::Failed, failure.what, failure.remedy),
        }
    };
    if counters.operations() + counters.fallbacks() == 0 {
        return say(
            "preferred",
            Verdict::Failed,
            "libcrypto loads the module but did not ask it for an RSA signature".to_owned(),
            Some(format!("write {shown} anew: lockstep configuration")),
        );
    }
    let _ = say(
        "preferred",
        Verdict::Good,
        "libcrypto asks lockstep for RSA".to_owned(),
        None,
    );
    let (verdict, what, remedy) = use_of_lanes(&counters);
    say("used", verdict, what, remedy)?;
    for (verdict, what, remedy) in memory(&counters) {
        let _ = say("memory", verdict, what, remedy);
    }

    let lone = match usual.operations() {
        1.. => "on lanes".to_owned(),
        0 => format!("by OpenSSL's own code ({})", reasons(&usual)),
    };
    say(
        "lone",
        Verdict::Note,
        format!("an RSA-2048 request that is alone runs {lone}"),
        None,
    )
}

/// What lanes are called that lose.
const SLOWER: &str = "OpenSSL's own code is faster for RSA, and serves all of it";

/// Whether no RSA request goes to these lanes, as OpenSSL's own code is faster.
fn all_rsa_is_slower(backend: Backend) -> bool {
    Shape::ALL
        .into_iter()
        .filter(|shape| shape.is_rsa())
        .all(|shape| lanes_are_slower(backend, shape))
}

/// Verdict, what, remedy.
type Answer = (Verdict, String, Option<String>);

fn instructions() -> Answer {
    let faster = Some(
        "use a machine with AVX-512 IFMA (Intel Ice Lake or later, AMD Zen 4 or later)".to_owned(),
    );
    match Backend::best_hardware() {
        Some(backend) if all_rsa_is_slower(backend) => (
            Verdict::Failed,
            format!(
                "this CPU, or the system on it, runs {} lanes only; {SLOWER}",
                backend.name()
            ),
            faster,
        ),
        Some(backend) => (
            Verdict::Good,
            format!("this CPU runs {} lanes", backend.name()),
            None,
        ),
        None => (
            Verdict::Failed,
            "this CPU, or the system on it, has no AVX-512 IFMA; OpenSSL's own code does all work"
                .to_owned(),
            faster,
        ),
    }
}

fn settings() -> Answer {
    let unset = Some("unset LOCKSTEP_BACKEND, or correct it".to_owned());
    match Config::default().with_env() {
        Err(error) => (
            Verdict::Failed,
            error.to_string(),
            Some("correct the variable, or unset it".to_owned()),
        ),
        Ok(config) => match config.backend.resolve() {
            Some(backend) if Some(backend) == Backend::best_hardware() => (
                Verdict::Good,
                format!("the environment leaves {} on", backend.name()),
                None,
            ),
            Some(backend) if all_rsa_is_slower(backend) => (
                Verdict::Note,
                format!(
                    "the environment chooses the {} lanes; {SLOWER}",
                    backend.name()
                ),
                unset,
            ),
            Some(backend) => (
                Verdict::Note,
                format!("the environment chooses the {} lanes", backend.name()),
                unset,
            ),
            None if Backend::best_hardware().is_none() => (
                Verdict::Note,
                "there are no lanes to choose".to_owned(),
                None,
            ),
            None => (
                Verdict::Failed,
                "LOCKSTEP_BACKEND turns the lanes off".to_owned(),
                unset,
            ),
        },
    }
}

/// What is misspelt in the environment, if anything is.
fn unknown_variables() -> Option<Answer> {
    let names = Config::unknown_environment();
    let what = match &names[..] {
        [] => return None,
        [name] => {
            format!("the environment sets {name}, which is not a setting and changes nothing")
        }
        names => format!(
            "the environment sets {}, which are not settings and change nothing",
            names.join(" and ")
        ),
    };
    let remedy = "correct the name, or unset it; docs/user/settings.md lists the settings";
    Some((Verdict::Warning, what, Some(remedy.to_owned())))
}

/// Where processes publish their counters.
struct CountersPlace {
    place: StatsDir,
    /// What says so.
    named_by: String,
}

impl CountersPlace {
    /// Where processes that are started here publish theirs, and then where others may do so. The
    /// environment goes before the configuration. What is wrong with either is said elsewhere.
    fn all(configuration: Option<&Configuration>) -> Vec<CountersPlace> {
        let parsed = |value: &str, named_by: String| {
            let pair = ("stats_dir".to_owned(), value.to_owned());
            let place = Config::from_pairs([pair]).ok()?.stats_dir;
            Some(CountersPlace { place, named_by })
        };
        let of_environment = || {
            let variable = "LOCKSTEP_STATS_DIR";
            let value = std::env::var(variable)
                .ok()
                .filter(|value| !value.is_empty());
            parsed(&value?, variable.to_owned())
        };
        let of_configuration = || {
            let configuration = configuration?;
            let provider = configuration.provider()?;
            let value = configuration.effective.setting(&provider, "stats_dir")?;
            let path = configuration.path().display();
            parsed(
                value,
                format!("`stats_dir` in [{}] of {path}", provider.section),
            )
        };
        let default = parsed("auto", "the default".to_owned());
        let all = [of_environment(), of_configuration(), default];
        all.into_iter().flatten().collect()
    }

    fn directory(&self) -> Option<&Path> {
        match &self.place {
            StatsDir::At(path) => Some(path),
            StatsDir::Auto | StatsDir::Off => None,
        }
    }
}

/// Whether a process that this user starts here could publish its counters.
fn counters(place: &CountersPlace) -> Answer {
    let CountersPlace { place, named_by } = place;
    match Page::create(place, false) {
        Ok(Some(page)) => {
            let directory = page.directory();
            page.withdraw();
            let what = format!(
                "processes that you start publish theirs in {} ({named_by})",
                directory.display()
            );
            (Verdict::Good, what, None)
        }
        Ok(None) => (
            Verdict::Note,
            format!("{named_by} turns them off: `lockstep stat` will show nothing"),
            None,
        ),
        Err(reason) if reason.is_wrong_place() && matches!(place, StatsDir::At(_)) => (
            Verdict::Failed,
            format!("{named_by} cannot be followed, so the module refuses to load: {reason}"),
            Some(
                "create the directory, let the user that starts the server write there, or set \
                 stats_dir to auto or no"
                    .to_owned(),
            ),
        ),
        Err(reason) => (
            Verdict::Note,
            format!("`lockstep stat` will not show the processes that you start: {reason}"),
            Some(
                "raise the limit, or name a suitable directory in stats_dir; lanes work without"
                    .to_owned(),
            ),
        ),
    }
}

fn openssl_version() -> Answer {
    let install =
        Some("install OpenSSL 3.0 or later, with its command (Debian: openssl)".to_owned());
    let command = match run(Command::new("openssl")
        .arg("version")
        .env("OPENSSL_CONF", "/dev/null"))
    {
        Ok(version) => version.trim().to_owned(),
        Err(failure) => return (Verdict::Failed, failure.what, install),
    };
    match command
        .strip_prefix("OpenSSL ")
        .and_then(|rest| rest.split('.').next()?.parse().ok())
    {
        Some(3_u32..) => (
            Verdict::Good,
            format!("{command}; this program: {}", stock::version()),
            None,
        ),
        _ => (
            Verdict::Failed,
            format!("{command} has no providers"),
            install,
        ),
    }
}

/// The operations that the module leaves to OpenSSL's own code, one finding for each.
fn operations(unaccelerated: Option<&[Unaccelerated]>) -> Vec<Answer> {
    let Some(unaccelerated) = unaccelerated else {
        let what = "the module does not tell which operations it accelerates";
        let remedy = "use the module and the command of one version: cargo xtask dist";
        return vec![(Verdict::Note, what.to_owned(), Some(remedy.to_owned()))];
    };
    if unaccelerated.is_empty() {
        let what = "the module accelerates every operation that it can do";
        return vec![(Verdict::Good, what.to_owned(), None)];
    }
    let finding = |Unaccelerated { operation, reason }: &Unaccelerated| {
        (
            Verdict::Warning,
            format!("{operation} is not accelerated, and OpenSSL's own code does it: {reason}"),
            Some(
                "nothing is wrong, only slower; if the reason is a newer OpenSSL, update lockstep"
                    .to_owned(),
            ),
        )
    };
    unaccelerated.iter().map(finding).collect()
}

fn use_of_lanes(counters: &Snapshot) -> Answer {
    let failed = warnings(counters)
        .into_iter()
        .find(|warning| warning.about == About::Checks);
    if let Some(Warning { what, remedy, .. }) = failed {
        let what = format!("when the openssl command signed, {what}");
        return (Verdict::Failed, what, Some(remedy));
    }
    match counters.operations() {
        1.. => (
            Verdict::Good,
            format!(
                "the openssl command signed on {} lanes, and the signature is right",
                counters.backend
            ),
            None,
        ),
        0 if counters.fallbacks_for(Fallback::NoBackend) > 0 => (
            Verdict::Failed,
            "lockstep has no lanes to use; OpenSSL's own code signed".to_owned(),
            Some(match Backend::best_hardware() {
                Some(_) => "unset LOCKSTEP_BACKEND, and remove `backend` from the module's section"
                    .to_owned(),
                None => "see `instructions` above".to_owned(),
            }),
        ),
        0 if counters.fallbacks_for(Fallback::SlowLanes) > 0 => (
            Verdict::Failed,
            format!(
                "OpenSSL's own code signed; with {} lanes for choice, {SLOWER}",
                counters.backend
            ),
            Some(
                "none is needed; for more speed see `instructions` and `settings` above".to_owned(),
            ),
        ),
        0 => (
            Verdict::Failed,
            format!("OpenSSL's own code signed: {}", reasons(counters)),
            Some("please report this with the output of `lockstep doctor --json`".to_owned()),
        ),
    }
}

/// Whether the memory for keys of a process that is started here is protected.
fn memory(counters: &Snapshot) -> Vec<Answer> {
    let all = warnings(counters).into_iter();
    let mut found: Vec<Answer> = all
        .filter(|warning| warning.about == About::Memory)
        .map(|Warning { what, remedy, .. }| {
            let what = format!("of a program that you start, {what}");
            (Verdict::Warning, what, Some(remedy))
        })
        .collect();
    if found.is_empty() {
        let what = format!(
            "a program that you start locks its memory for keys ({} at first)",
            kibibytes(counters.key_memory)
        );
        found.push((Verdict::Good, what, None));
    }
    found
}

/// Why requests went to stock OpenSSL.
fn reasons(counters: &Snapshot) -> String {
    let reasons: Vec<&str> = Fallback::ALL
        .iter()
        .filter(|reason| counters.fallbacks_for(**reason) > 0)
        .map(|reason| reason.name())
        .collect();
    if reasons.is_empty() {
        "no reason counted".to_owned()
    } else {
        reasons.join(", ")
    }
}

impl Configuration {
    /// What a program finds that loads the configuration. Its failure says why one cannot.
    fn probe(&self) -> Result<Probe, Failure> {
        let provider = self.provider();
        let about = match &provider {
            Some(provider) => probe::About::Provider(&provider.name),
            None => probe::About::Nobody,
        };
        let found = probe(&fs::canonicalize(self.path()).unwrap_or_default(), about)
            .map_err(|failure| failure.remedy("stop using this configuration, and report this"))?;
        match found.errors.first() {
            None => Ok(found),
            Some(error) => Err(Failure::new(format!(
                "OpenSSL does not load all of {}: {error}",
                self.path().display()
            ))
            .remedy("correct what it names; programs run without what comes after it")),
        }
    }

    /// Has libcrypto load the module; returns what it says of itself.
    fn load(&self) -> Result<String, Failure> {
        let listing = run(self.openssl().args(["list", "-providers"])).map_err(|f| {
            f.remedy("if the module was built elsewhere, build it here: cargo xtask dist")
        })?;
        // One provider after the other: its name indented by two, what it says by four.
        let name = self
            .provider()
            .map(|provider| format!("  {}", provider.name));
        let mut said = listing
            .lines()
            .skip_while(|line| Some(line.trim_end()) != name.as_deref())
            .skip(1);
        let mut about = said
            .by_ref()
            .take_while(|line| line.starts_with("    "))
            .map(str::trim);
        let about: Vec<&str> = about.by_ref().collect();
        if !about.contains(&"status: active") {
            return Err(self.why_not_loaded());
        }
        Ok(format!("libcrypto loads it; {}", about.join(", ")))
    }

    /// Why the module is not loaded, in the words of the part that refused.
    fn why_not_loaded(&self) -> Failure {
        let shown = self.path().display();
        let correct = format!("correct {shown}, or the environment");
        let refusal = |error: &str| {
            Failure::new(format!("the module refuses to load: {error}")).remedy(&correct)
        };
        let Some(provider) = self.provider() else {
            return Failure::new(format!("{shown} names no module lockstep.so"));
        };
        if !provider.active {
            return Failure::new(format!(
                "{shown} does not activate lockstep, by its section [{}]",
                provider.section
            ))
            .remedy(format!("write activate = 1 in that section of {shown}"));
        }
        let errors = match self.activate(&provider) {
            Ok(errors) => errors,
            Err(failure) => return failure,
        };
        // The module itself, about its settings.
        let its_own = |error: &str| Some(error.split_once("lockstep: ")?.1.to_owned());
        if let Some(error) = errors.iter().find_map(|error| its_own(error)) {
            return refusal(&error);
        }
        let module = provider.module.unwrap_or_default().display().to_string();
        match errors.first() {
            Some(error) if error.contains("OSSL_provider_init") => Failure::new(format!(
                "{module} is a shared library, but not a provider of OpenSSL: {error}"
            ))
            .remedy("name lockstep.so, as `cargo xtask dist` makes it"),
            Some(error) => Failure::new(format!("OpenSSL does not load the module: {error}"))
                .remedy("if the module was built elsewhere, build it here: cargo xtask dist"),
            None => Failure::new(
                "libcrypto did not load lockstep when it read the configuration, but does so now",
            )
            .remedy("look at the lines before lockstep's in the section of providers"),
        }
    }

    /// What libcrypto says when it activates the provider by itself.
    fn activate(&self, provider: &Provider) -> Result<Vec<String>, Failure> {
        let scratch = Scratch::new("doctor-load")?;
        let path = scratch.path().join("openssl.cnf");
        fs::write(&path, self.effective.inactive(provider)?)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
        Ok(probe(&path, probe::About::Activation(&provider.name))?.errors)
    }

    /// Has the `openssl` command sign with a fresh key, and checks the signature without lockstep;
    /// returns what the module counted.
    fn sign(&self, lone: Option<&str>) -> Result<Snapshot, Failure> {
        let scratch = Scratch::new("doctor")?;
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("message"), "to be signed").map_err(|e| Failure::new(e.to_string()))?;
        let stock = |arguments: &str| {
            let mut command = Command::new("openssl");
            command
                .args(arguments.split(' '))
                .env("OPENSSL_CONF", "/dev/null")
                .current_dir(scratch.path());
            command
        };
        run(&mut stock(
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem",
        ))?;
        run(&mut stock("pkey -in key.pem -pubout -out public.pem"))?;

        let counters = at("counters");
        fs::create_dir(&counters).map_err(|e| Failure::new(e.to_string()))?;
        let mut sign = self.openssl();
        sign.args([
            "dgst",
            "-sha256",
            "-sign",
            "key.pem",
            "-out",
            "signature",
            "message",
        ]);
        sign.current_dir(scratch.path());
        sign.env("LOCKSTEP_STATS_DIR", &counters)
            .env("LOCKSTEP_STATS_KEEP", "yes");
        if let Some(lone) = lone {
            sign.env("LOCKSTEP_LONE", lone);
        }
        run(&mut sign)?;
        run(&mut stock(
            "dgst -sha256 -verify public.pem -signature signature message",
        ))
        .map_err(|_| {
            Failure::new("the signature is wrong").remedy("stop using the module, and report this")
        })?;
        let found = read_published(&counters).map_err(|e| Failure::new(e.to_string()))?;
        if found.processes.is_empty() && found.other_versions > 0 {
            return Err(Failure::new(
                "the module is of another version than this program, which cannot read its counters",
            )
            .remedy("use the command `lockstep` that was built with the module: it lies beside it"));
        }
        let mut processes = found.processes.into_iter();
        Ok(processes
            .next()
            .map(|process| process.snapshot)
            .unwrap_or_default())
    }

    /// The `openssl` command with this configuration.
    fn openssl(&self) -> Command {
        let mut command = Command::new("openssl");
        let path = fs::canonicalize(self.path()).unwrap_or_else(|_| self.path().to_owned());
        command.env("OPENSSL_CONF", path);
        command
    }
}

/// Runs a command to its end; returns its standard output. Its failure is the first thing it said.
fn run(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot run {name}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let first = said
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing");
    Err(Failure::new(format!(
        "{name} failed ({}): {first}",
        output.status
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_attention_is_red_or_yellow_on_a_terminal() {
        assert_eq!(Verdict::Failed.mark(true), "\x1b[1;31mFAILED\x1b[0m");
        assert_eq!(Verdict::Warning.mark(true), "\x1b[33mwarn\x1b[0m  ");
        for verdict in [
            Verdict::Good,
            Verdict::Failed,
            Verdict::Warning,
            Verdict::Note,
        ] {
            assert_eq!(verdict.mark(false).len(), 6);
            assert!(!verdict.mark(false).contains('\x1b'));
        }
    }

    #[test]
    fn every_operation_that_is_not_accelerated_is_named_with_the_reason() {
        let unaccelerated = |operation: &str, reason: &str| Unaccelerated {
            operation: operation.to_owned(),
            reason: reason.to_owned(),
        };
        let found = operations(Some(&[
            unaccelerated("X25519", "its table has a function 99"),
            unaccelerated("TLS 1.3 key derivation", "slower"),
        ]));
        let [x25519, kdf] = &found[..] else {
            panic!("two findings, not {}", found.len());
        };
        assert!(x25519.0 == Verdict::Warning && x25519.2.is_some());
        assert!(
            x25519.1.starts_with("X25519 is not accelerated"),
            "{}",
            x25519.1
        );
        assert!(
            x25519.1.ends_with(": its table has a function 99"),
            "{}",
            x25519.1
        );
        assert!(
            kdf.1.starts_with("TLS 1.3 key derivation is not"),
            "{}",
            kdf.1
        );
        let verdicts = |found: &[Answer]| found.iter().map(|f| f.0).collect::<Vec<_>>();
        assert!(verdicts(&operations(Some(&[]))) == [Verdict::Good]);
        assert!(verdicts(&operations(None)) == [Verdict::Note]);
    }
}
