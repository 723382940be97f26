//! `lockstep speed`: stock libcrypto and lockstep, side by side on this machine.

mod contest;
mod cycles;
mod limit;
mod measure;
mod report;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lockstep_engine::{Backend, Config, Engine, Size};

use crate::{Failure, Outcome, stock};
use contest::{Contestant, Event};
use cycles::Profile;
use limit::{Limit, Rates};
use report::{Machine, Report, Row};

const HELP: &str = "\
Compares stock libcrypto and lockstep on this machine, in interleaved rounds.

Usage: lockstep speed [OPTIONS] [rsa1024] [rsa2048] [rsa3072] [rsa4096]

Without a name it measures rsa2048, rsa3072 and rsa4096.

Options:
  --fills LIST      requests per batch, 1 to 8 (default 1,2,4,8); one alone takes the way that the
                    policy gives a lone request, by stock libcrypto where that is faster
  --threads LIST    numbers of threads, or `all` CPUs (default 1,all)
  --seconds S       time for each figure (default 1)
  --cycles          cycles of each function of the private key operation instead
  --limit           the model behind \"of the limit\", with its figures for this machine
  --json            one JSON document in place of the table

Time is taken in slices of 4 ms between gauges of the clock and of the sibling thread; slices in which
the core was shared do not count. LOCKSTEP_BACKEND chooses the lanes.
";

/// What the command line asks for.
struct Options {
    sizes: Vec<Size>,
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
        print!("{HELP}");
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
    measure::pin_to(options.cpus[0]);
    let rates = Rates::measure();

    let machine = Machine::describe(options.cpus.len(), backend, &rates);
    if options.cycles {
        return print_cycles(backend, &machine, &rates, &options);
    }
    let mut rows = Vec::new();
    for &size in &options.sizes {
        let limit = Limit::of(size, &rates);
        rows.extend(rows_of(&engine, size, limit.cycles, &options)?);
    }
    let report = Report { machine, rows };
    if options.json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.to_table());
        if options.limit {
            print!("\n{}", limit::explain(&options.sizes, &rates));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The functions of every size, each for itself.
fn print_cycles(backend: Backend, machine: &Machine, rates: &Rates, options: &Options) -> Outcome {
    let mut profiles = Vec::new();
    for &size in &options.sizes {
        let op = format!("rsa{}", size.bits());
        let mut progress = Progress::new(&op);
        progress.show("function by function");
        profiles.push(Profile::measure(backend, size, options.time)?);
        progress.finish();
    }
    if options.json {
        println!("{}", cycles::to_json(machine, &profiles));
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", machine.to_line());
    for profile in &profiles {
        print!("\n{}", profile.to_table(backend, rates));
    }
    if options.limit {
        print!("\n{}", limit::explain(&options.sizes, rates));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures one size with every number of threads.
fn rows_of(
    engine: &Arc<Engine>,
    size: Size,
    limit_cycles: Option<f64>,
    options: &Options,
) -> Result<Vec<Row>, Failure> {
    let op = format!("rsa{}", size.bits());
    let mut progress = Progress::new(&op);
    progress.show("making a key");
    let event = Event::new(engine.clone(), size)?;
    let contestants: Vec<Contestant> = std::iter::once(Contestant::Stock)
        .chain(
            options
                .fills
                .iter()
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
                    op: format!("{op}-sign"),
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
            sizes: Vec::new(),
            fills: vec![1, 2, 4, 8],
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
                        fill.parse()
                            .ok()
                            .filter(|fill| (1..=lockstep_kernels::rsa::BATCH).contains(fill))
                    })
                    .ok_or_else(|| {
                        Failure::usage("--fills takes numbers from 1 to 8, as in 1,8")
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
                Value(name) => options.sizes.push(size_named(&name.string()?)?),
                other => return Err(other.unexpected().into()),
            }
        }
        if options.sizes.is_empty() {
            options.sizes = vec![Size::Rsa2048, Size::Rsa3072, Size::Rsa4096];
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
}

fn size_named(name: &str) -> Result<Size, Failure> {
    match name {
        "rsa1024" => Ok(Size::Rsa1024),
        "rsa2048" => Ok(Size::Rsa2048),
        "rsa3072" => Ok(Size::Rsa3072),
        "rsa4096" => Ok(Size::Rsa4096),
        _ => Err(Failure::usage(format!(
            "cannot measure `{name}`: there are rsa1024, rsa2048, rsa3072 and rsa4096"
        ))),
    }
}

fn list(text: &str, read: impl Fn(&str) -> Option<usize>) -> Option<Vec<usize>> {
    text.split(',').map(|item| read(item.trim())).collect()
}

/// What is going on, on standard error: one line that changes on a terminal, else one line each.
struct Progress<'a> {
    name: &'a str,
    terminal: bool,
}

impl Progress<'_> {
    fn new(name: &str) -> Progress<'_> {
        let terminal = std::io::stderr().is_terminal();
        if !terminal {
            eprintln!("measuring {name} …");
        }
        Progress { name, terminal }
    }

    fn show(&mut self, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{}: {what}", self.name);
            // Progress that cannot be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }

    fn finish(self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
