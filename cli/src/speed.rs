//! `lockstep speed`: stock libcrypto and lockstep, side by side on this machine.

mod contest;
mod cycles;
mod limit;
pub mod measure;
pub mod report;
mod subject;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lockstep_engine::{Backend, Config, Engine, Size};

use crate::progress::Progress;
use crate::{Failure, Outcome, stock};
use contest::{Contestant, Event};
use cycles::Profile;
use limit::{Limit, Rates};
use report::{Machine, Report, Row};
use subject::{MOST, Operation};

const HELP: &str = "\
Compares stock libcrypto and lockstep on this machine, in interleaved rounds.

Usage: lockstep speed [OPTIONS] [OPERATION]...

Operations: rsa1024, rsa2048, rsa3072, rsa4096 (signing);
  x25519, x25519-keygen, ed25519-sign, ed25519-verify;
  p256-sign, p256-verify, p256-ecdh, p256-keygen, and the same of p384;
  `all` of these. Without a name it measures rsa2048, rsa3072 and rsa4096.

Options:
  --fills LIST      requests per batch, 1 to 64, with RSA to 8 (default 1,2,4,8, and 64 of the curves);
                    one alone takes the way that the policy gives a lone request, by stock libcrypto
                    where that is faster, and a key pair alone comes from the pool
  --threads LIST    numbers of threads, or `all` CPUs (default 1,all)
  --seconds S       time for each figure (default 1)
  --cycles          cycles of each function of RSA's private key operation instead
  --limit           the model behind \"of the limit\", with its figures for this machine
  --json            one JSON document in place of the table

Time is taken in slices of 4 ms between gauges of the clock and of the sibling thread; slices in which
the core was shared do not count. LOCKSTEP_BACKEND chooses the lanes.
";

/// What the command line asks for.
struct Options {
    operations: Vec<Operation>,
    fills: Vec<usize>,
    threads: Vec<usize>,
    time: Duration,
    json: bool,
    cycles: bool,
    limit: bool,
    /// The CPUs that this process may use.
    cpus: Vec<usize>,
}

/// Runs the command with the arguments behind its name.
pub fn main(arguments: lexopt::Parser) -> Outcome {
    let Some(options) = Options::parse(arguments)? else {
        out!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    stock::insist()?;
    let config = Config::default()
        .with_env()
        .map_err(|e| Failure::usage(e.to_string()))?;
    let engine = Engine::new(config);
    let Some(backend) = engine.backend() else {
        return Err(Failure::new(
            "no lanes to measure: this CPU has none or LOCKSTEP_BACKEND turns them off",
        )
        .remedy("lockstep doctor"));
    };
    let engine = Arc::new(engine);
    measure::keep_to(&options.cpus[..1]);
    let rates = Rates::measure();

    let machine = Machine::describe(options.cpus.len(), backend, &rates);
    if options.cycles {
        return print_cycles(backend, &machine, &rates, &options);
    }
    let mut rows = Vec::new();
    for &operation in &options.operations {
        let limit = match operation {
            Operation::Rsa(size) => Limit::of(size, &rates).cycles,
            Operation::Curve(_) => None,
        };
        rows.extend(rows_of(&engine, operation, limit, &options)?);
    }
    let report = Report { machine, rows };
    if options.json {
        outln!("{}", report.to_json());
    } else {
        out!("{}", report.to_table());
        if options.limit {
            out!("\n{}", limit::explain(&options.sizes(), &rates));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions of RSA at every size, each for itself.
fn print_cycles(backend: Backend, machine: &Machine, rates: &Rates, options: &Options) -> Outcome {
    let mut profiles = Vec::new();
    for size in options.sizes() {
        let op = format!("rsa{}", size.bits());
        let mut progress = Progress::new(&op);
        progress.show("function by function");
        profiles.push(Profile::measure(backend, size, options.time)?);
        progress.finish();
    }
    if options.json {
        outln!("{}", cycles::to_json(machine, &profiles));
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{}", machine.to_line());
    for profile in &profiles {
        out!("\n{}", profile.to_table(backend, rates));
    }
    if options.limit {
        for ports in profiles.iter().filter_map(Profile::ports) {
            out!("\n{ports}");
        }
        out!("\n{}", limit::explain(&options.sizes(), rates));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures one operation with every number of threads.
fn rows_of(
    engine: &Arc<Engine>,
    operation: Operation,
    limit_cycles: Option<f64>,
    options: &Options,
) -> Result<Vec<Row>, Failure> {
    let argument = operation.argument();
    let mut progress = Progress::new(&argument);
    progress.show("making a key");
    let event = Event::new(engine.clone(), operation)?;
    let contestants: Vec<Contestant> = std::iter::once(Contestant::Stock)
        .chain(
            options
                .fills
                .iter()
                .filter(|&&fill| fill <= operation.most())
                .map(|&fill| Contestant::Lockstep { fill }),
        )
        .collect();
    let mut rows = Vec::new();
    for &threads in &options.threads {
        let budget = options.time * contestants.len() as u32;
        let figures = event.compete(&contestants, &options.cpus[..threads], budget, |done| {
            progress.show(&format!("{threads} thread(s), {:.0} %", done * 100.0));
        })?;
        rows.extend(
            contestants
                .iter()
                .zip(figures)
                .map(|(&contestant, figure)| Row {
                    op: operation.name(),
                    contestant,
                    by_stock: event.is_by_stock(contestant),
                    threads,
                    figure,
                    limit_cycles,
                }),
        );
    }
    progress.finish();
    Ok(rows)
}

impl Options {
    /// `None` if help is wanted.
    fn parse(mut arguments: lexopt::Parser) -> Result<Option<Options>, Failure> {
        use lexopt::prelude::*;
        let allowed = measure::allowed_cpus();
        let cpus = allowed.len();
        let mut options = Options {
            operations: Vec::new(),
            fills: vec![1, 2, 4, 8, MOST],
            threads: vec![1, cpus],
            time: Duration::from_secs(1),
            json: false,
            cycles: false,
            limit: false,
            cpus: allowed,
        };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("json") => options.json = true,
                Long("cycles") => options.cycles = true,
                Long("limit") => options.limit = true,
                Long("seconds") => {
                    let value = arguments.value()?;
                    let seconds = value.to_str().and_then(|value| value.parse::<f64>().ok());
                    options.time = seconds
                        .filter(|seconds| (0.001..=3600.0).contains(seconds))
                        .map(Duration::from_secs_f64)
                        .ok_or_else(|| {
                            Failure::usage("--seconds takes a number from 0.001 to 3600")
                        })?;
                }
                Long("fills") => {
                    options.fills = list(&arguments.value()?.string()?, |fill| {
                        fill.parse().ok().filter(|fill| (1..=MOST).contains(fill))
                    })
                    .ok_or_else(|| {
                        Failure::usage("--fills takes numbers from 1 to 64, as in 1,8")
                    })?;
                }
                Long("threads") => {
                    options.threads =
                        list(&arguments.value()?.string()?, |threads| match threads {
                            "all" => Some(cpus),
                            number => number
                                .parse()
                                .ok()
                                .filter(|number| (1..=cpus).contains(number)),
                        })
                        .ok_or_else(|| {
                            Failure::usage(format!(
                                "--threads takes `all` or numbers from 1 to {cpus}, as in 1,all"
                            ))
                        })?;
                }
                Short('h') | Long("help") => return Ok(None),
                Value(name) => options.operations.extend(named(&name.string()?)?),
                other => return Err(other.unexpected().into()),
            }
        }
        if options.operations.is_empty() {
            let usual = [Size::Rsa2048, Size::Rsa3072, Size::Rsa4096];
            options.operations = usual.map(Operation::Rsa).to_vec();
        }
        if options.cycles && options.sizes().is_empty() {
            return Err(Failure::usage("--cycles is there for RSA only"));
        }
        options.threads = options
            .threads
            .iter()
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        Ok(Some(options))
    }

    /// The sizes among the operations of RSA.
    fn sizes(&self) -> Vec<Size> {
        let size = |operation: &Operation| match operation {
            Operation::Rsa(size) => Some(*size),
            Operation::Curve(_) => None,
        };
        self.operations.iter().filter_map(size).collect()
    }
}

fn named(name: &str) -> Result<Vec<Operation>, Failure> {
    let known: Vec<Operation> = Operation::all()
        .filter(|operation| name == "all" || operation.argument() == name)
        .collect();
    if known.is_empty() {
        let names: Vec<String> = Operation::all().map(Operation::argument).collect();
        return Err(Failure::usage(format!(
            "cannot measure `{name}`: there are {} and all",
            names.join(", ")
        )));
    }
    Ok(known)
}

fn list(text: &str, read: impl Fn(&str) -> Option<usize>) -> Option<Vec<usize>> {
    text.split(',').map(|item| read(item.trim())).collect()
}
