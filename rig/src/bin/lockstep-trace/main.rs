//! `lockstep-trace`: no instruction and no data address of the release module depends on a secret.
//!
//! Runs `rig/programs/trace.c` with different secrets, once as the reference and then to compare;
//! see [`lockstep_rig`]. It finds its own planted defects first: a check that misses them fails.

mod bench;
mod operations;
mod settings;

use std::process::{Command, ExitCode};
use std::time::Instant;

use bench::{Bench, Compared};
use operations::{Lanes, OPERATIONS, Operation, backends};
use settings::{Settings, settings};

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Err(what) if what.contains("not permitted") => {
            println!("nightly: skipped processes may not be traced here: {what}");
            ExitCode::from(77)
        }
        Ok(_) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("lockstep-trace: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<u64, String> {
    let Some(settings) = settings()? else {
        return Ok(0);
    };
    let mut bench = Bench::new(&settings)?;
    bench.find_planted()?;
    let units = units(&settings);
    if units.is_empty() {
        return Err("this CPU does not have these lanes".to_owned());
    }
    let (mut cases, mut findings, mut next) = (0, 0, settings.next);
    let mut broken = 0;
    for turn in 0..units.len() as u64 {
        if settings
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            break;
        }
        let (operation, lanes) = units[((settings.next + turn) % units.len() as u64) as usize];
        let start = Instant::now();
        let name = format!("{} {} {}", operation.name, lanes.0, lanes.1);
        let (verdict, compared) = match bench.compare(operation, lanes, &settings) {
            Ok(Compared {
                steps,
                compared,
                different,
                allowed,
            }) => {
                findings += different;
                let verdict = match (different, allowed) {
                    (0, 0) => "equal".to_owned(),
                    (0, _) => format!("equal but in {allowed} calls that may differ"),
                    _ => "DIFFERENT".to_owned(),
                };
                (
                    format!("{steps} instructions, {compared} compared, {verdict}"),
                    compared,
                )
            }
            Err(what) => {
                broken += 1;
                (format!("BROKEN: {what}"), 0)
            }
        };
        cases += compared;
        next += 1;
        println!(
            "trace: {name}: {verdict} ({:.1} s)",
            start.elapsed().as_secs_f64()
        );
    }
    // The functions that a whole round ran.
    let list = std::env::var_os("TRACE_EXECUTED").filter(|_| settings.is_whole());
    if let Some(path) = list.filter(|_| next - settings.next == units.len() as u64) {
        let names: Vec<&str> = bench.executed.iter().map(String::as_str).collect();
        let text = format!("{}\n{}\n", whole(&settings).join(" "), names.join("\n"));
        std::fs::write(&path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    findings += broken;
    println!("nightly: cases {cases} findings {findings} next {next} note secrets compared");
    Ok(findings)
}

/// The work, in order: all operations on the CPU's best lanes first. The quick form has one more,
/// RSA as the lanes without AVX-512 IFMA leave it to a scalar multiplier.
fn units(settings: &Settings) -> Vec<(&'static Operation, Lanes)> {
    let series = series();
    let (has_gcm, has_ml_dsa) = (has_gcm(series), has_ml_dsa(series, settings));
    let is_there = |operation: &Operation| {
        (has_gcm || !operation.needs_gcm()) && (has_ml_dsa || !operation.needs_ml_dsa())
    };
    if !has_ml_dsa && settings.names.is_empty() {
        println!(
            "trace: ML-DSA is left out: no OpenSSL from 3.5 on is at hand; `cargo xtask matrix \
             trixie` makes one, and --libraries names one"
        );
    }
    let wanted = |operation: &&Operation| match settings.names.is_empty() {
        true => (operation.quick || !settings.quick) && is_there(operation),
        false => settings.names.iter().any(|name| name == operation.name),
    };
    let operations = || OPERATIONS.iter().filter(wanted);
    let all = whole(settings);
    let on = |backend| {
        let is_whole = all.contains(&backend);
        operations()
            .filter(move |operation| operation.runs_on(backend))
            .filter(move |operation| is_whole || operation.is_on_words(backend))
            .flat_map(move |operation| {
                let schedules = operation.schedules(backend).iter().copied();
                let wanted = |schedule: &&str| {
                    let only = settings.schedule.as_deref();
                    only.is_none_or(|only| only == *schedule)
                };
                schedules
                    .filter(wanted)
                    .map(move |schedule| (operation, (backend, schedule)))
            })
    };
    let backends = backends().into_iter();
    let wanted = |backend: &&str| {
        settings
            .backend
            .as_deref()
            .is_none_or(|only| only == *backend)
    };
    backends.filter(wanted).flat_map(on).collect()
}

/// The lanes that get all operations.
fn whole(settings: &Settings) -> Vec<&'static str> {
    let mut backends = backends();
    if settings.quick && settings.backend.is_none() {
        let both = |backend: &&&str| backend.starts_with("avx512ifma");
        backends.truncate(backends.iter().take_while(both).count().max(1));
    }
    backends
}

/// Which OpenSSL this system has: the first two numbers of its version.
fn series() -> Option<(u32, u32)> {
    let output = Command::new("openssl").arg("version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.strip_prefix("OpenSSL ")?.split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// Whether the module has ML-DSA for an OpenSSL that is at hand.
fn has_ml_dsa(series: Option<(u32, u32)>, settings: &Settings) -> bool {
    settings.libraries.is_some() || series.is_some_and(|series| series >= (3, 5))
}

/// Whether the module has AES-GCM for the system's OpenSSL.
fn has_gcm(series: Option<(u32, u32)>) -> bool {
    series == Some((3, 0))
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
}
