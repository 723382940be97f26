//! `lockstep doctor`: whether OpenSSL programs sign on lanes here, and if not, why.
//!
//! It asks in the order in which things can go wrong: instructions, settings, OpenSSL,
//! configuration, policy, module, loading, preference, use. It loads nothing itself: a child
//! process loads the configuration, and the `openssl` command signs something as any program would.
//! Then doctor reads the counters of that command.

mod comparison;
mod counters;
mod finding;
mod key_daemon;
mod lanes;
mod machine;
mod running;
mod service;

use std::env;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lockstep_common::{
    Configuration, Failure, INSTALLED, Manual, Outcome, insist_on_own, insist_on_own_file,
    json_for_terminal, outln,
};
use lockstep_engine::{Backend, Fallback};
use serde::Serialize;

use crate::configuration::{MOST_OTHERS, insist_on_no_mark};
use crate::generated::Made;
use crate::mistakes::{gone, mistakes};
use crate::sandbox::hidden;
use crate::trial::Trial;
use crate::trust::PLACES;
use crate::words::json;
use counters::CountersPlace;
use finding::{Finding, Findings, Verdict, advice, failed, good, warning};
pub use service::{LOOK, look};

/// Says whether programs that use OpenSSL sign on vector lanes, and if not, why and what to do
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Look at a file that stands for a key of the key daemon: whether this user may sign with it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["service", "pid"])]
    reference: Option<PathBuf>,
    #[command(flatten)]
    service: service::ServiceOptions,
}

const NOTES: &str = "\
It checks the configuration that OPENSSL_CONF names, or else /etc/lockstep/openssl.cnf, which
`lockstep install` has servers use, or else the openssl.cnf beside this program. The exit status is
1 if a line says FAILED, and otherwise 0: the openssl command signed on lanes, or this CPU has no
lanes for RSA and OpenSSL's own code signs; no result of a running process has failed its check; and
the key daemon answers where it is set up.

With --service or --pid, and as root, it looks at a service as it runs: its unit, environment, files
and libraries. It makes some hundred handshakes at each port, and says which of them landed on
lanes. The exit status is 1 if something but the CPU prevents that.

Examples:
  lockstep doctor
  lockstep doctor --service nginx --connect 127.0.0.1:443 --servername www.example.org

Files:
  /etc/lockstep/openssl.cnf     the configuration that install has servers use";

/// Document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    ok: bool,
    findings: &'a [Finding],
}

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let mut found = Findings::default();
    match (&options.reference, options.service.wanted()) {
        (Some(reference), _) => found.say_all([key_daemon::reference(reference)]),
        (None, Some(wanted)) => service::examine(&wanted, &options.service, &mut found),
        (None, None) => drop(ask(&mut found)),
    }
    let findings = &found.0;
    let ok = findings
        .iter()
        .all(|finding| finding.verdict != Verdict::Failed);
    if options.json {
        let document = json(&Document { ok, findings })?;
        outln!("{}", json_for_terminal(&document));
    } else {
        let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        findings.iter().for_each(|finding| finding.print(coloured));
    }
    Ok(match ok {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Finds the configuration: the file that the environment names, the file that `install` has
/// servers use, or the file beside this program.
fn configuration() -> Result<Configuration, Failure> {
    let installed = Path::new("/").join(INSTALLED);
    let named = env::var_os("OPENSSL_CONF").map(PathBuf::from);
    let found = match named.is_none() && installed.is_file() {
        true => insist_on_own(&installed).and_then(|()| Configuration::at(&installed, false)),
        false => Configuration::find(),
    };
    // If an included file begins with a byte order mark, OpenSSL's error names the file that
    // includes it.
    found.map_err(|why| {
        let path = named.unwrap_or(installed);
        let text =
            insist_on_own_file(&path).map(|()| fs::read_to_string(&path).unwrap_or_default());
        let made = text.ok().and_then(|text| Made::parse(&text));
        let marked = made.and_then(|made| insist_on_no_mark(&made.origin).err());
        marked.unwrap_or(why)
    })
}

/// Names settings of a configuration that have no effect.
fn in_settings(configuration: &Configuration) -> Option<Finding> {
    let mistakes = mistakes(configuration);
    let path = configuration.path().display();
    (!mistakes.is_empty()).then(|| {
        let what =
            format!("{path} has settings that have no effect, and their defaults hold: {mistakes}");
        let remedy = format!("correct them there; {} lists them", Manual::Settings.name());
        failed("settings", what, remedy)
    })
}

/// Warns of settings of earlier versions in a configuration.
fn gone_settings(configuration: &Configuration) -> Option<Finding> {
    Some(warning("settings", gone(configuration)?, "remove it there"))
}

/// Asks one question after the other. Stops after an answer with which the next question would make
/// no sense.
fn ask(findings: &mut Findings) -> Option<()> {
    let configuration = configuration();
    let places = CountersPlace::all(configuration.as_ref().ok());
    // The counters of running processes are read before doctor starts a process below.
    let published = running::published(places.iter().filter_map(CountersPlace::directory));
    let asker = rustix::process::geteuid().as_raw();
    // Without lanes the other checks still make sense: the module must load, and leave all
    // operations to OpenSSL.
    findings.say_all([
        machine::instructions(Backend::best_hardware()),
        machine::settings(),
    ]);
    findings.say_all(machine::unknown_variables());
    findings.say_all(machine::gone_variables());
    findings.say_all([counters::counters(&places[0])]);
    findings.say_all(running::findings(&published, asker));
    findings.say_all(key_daemon::findings());
    findings.say(machine::openssl_version())?;
    match configuration {
        Ok(configuration) => {
            let module = of_configuration(&configuration, findings)?;
            of_module(&configuration, &module, findings)
        }
        Err(why) => findings.say(Finding::of("configuration", Verdict::Failed, why)),
    }
}

/// Whether a configuration is in order. Returns the module that it names.
fn of_configuration(configuration: &Configuration, findings: &mut Findings) -> Option<PathBuf> {
    let shown = configuration.path().display();
    findings.say_all([match configuration.in_use {
        true => good("configuration", format!("OPENSSL_CONF={shown}")),
        false => {
            let what = format!(
                "OPENSSL_CONF is not set, so programs that you start here run without lockstep; the \
                 checks below use {shown}"
            );
            let remedy = format!(
                "start programs that are to use lanes with OPENSSL_CONF={shown}; for a server: \
                 lockstep install --server NAME"
            );
            advice("configuration", what, remedy)
        }
    }]);
    findings.say_all(in_settings(configuration));
    findings.say_all(gone_settings(configuration));
    let outdated = comparison::outdated(configuration);
    findings.say_all(outdated.map(|own| Finding::of("outdated", Verdict::Warning, own)));
    if let Some(refusal) = configuration.effective.refusal() {
        findings.say(Finding::of("policy", Verdict::Failed, refusal))?;
    }
    match configuration.module() {
        Ok(module) => {
            findings.say(good("module", format!("found {}", module.display())))?;
            Some(module)
        }
        Err(why) => {
            findings.say(Finding::of("module", Verdict::Failed, why))?;
            None
        }
    }
}

/// Whether OpenSSL loads the module, prefers it, and signs on lanes.
fn of_module(configuration: &Configuration, module: &Path, findings: &mut Findings) -> Option<()> {
    let shown = configuration.path().display();
    if let Some((path, place)) = hidden([configuration.path(), module]) {
        let what = format!(
            "services may not see {}: {}",
            path.display(),
            place.consequence()
        );
        let remedy = format!("if services are to use it, keep it elsewhere: {PLACES}");
        findings.say_all([advice("location", what, remedy)]);
    }
    let trial = Trial(configuration);
    let probe = match trial.probe() {
        Ok(probe) if !probe.fips => probe,
        Ok(_) => {
            return findings.say(failed(
                "fips",
                format!(
                    "with {shown}, OpenSSL uses FIPS providers only. Lockstep is not a FIPS \
                     provider, so OpenSSL's own code computes everything"
                ),
                "where FIPS is required, none is needed; elsewhere, turn FIPS off in the system's \
                 settings",
            ));
        }
        Err(why) => return findings.say(Finding::of("loaded", Verdict::Failed, why)),
    };
    let version = probe.version.unwrap_or_default();
    let loaded = format!("OpenSSL loads it; version: {version}");
    findings.say(good("loaded", loaded))?;
    findings.say_all(comparison::kept(configuration));
    findings.say_all(lanes::operations(probe.unaccelerated.as_deref()));

    // First a program signs once, with the settings as they are.
    let usual = trial.sign(None);
    // Then it signs on the lanes, unless they never serve RSA because OpenSSL's own code is as
    // fast.
    let signed = usual.and_then(|usual| match usual.fallbacks_for(Fallback::SlowLanes) {
        0 => trial.sign(Some("lanes")),
        _ => Ok(usual),
    });
    let counters = match signed {
        Ok(counters) => counters,
        Err(why) => return findings.say(Finding::of("used", Verdict::Failed, why)),
    };
    if counters.operations() + counters.fallbacks() == 0 {
        return findings.say(failed(
            "preferred",
            "OpenSSL loads the module, but did not ask it for an RSA signature: the configuration \
             does not prefer lockstep's algorithms",
            format!(
                "replace {shown} by the text that `lockstep configuration` prints; it outweighs up \
                 to {MOST_OTHERS} other optional clauses in default_properties"
            ),
        ));
    }
    let asked = "OpenSSL asks lockstep for RSA signatures";
    findings.say(good("preferred", asked))?;
    findings.say(lanes::use_of_lanes(&counters))?;
    if counters.operations() > 0 {
        findings.say_all(lanes::memory(&counters));
    }
    Some(())
}
