//! `lockstep-bench speed`: OpenSSL alone and lockstep, side by side on this machine.

mod cipher;
mod comparison;
#[cfg(feature = "cycles")]
mod cycles;
mod report;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lockstep_common::{Failure, Outcome, out, outln};
use lockstep_engine::{Backend, Config, Engine, Fallback, Size};

use crate::format::{seconds_within, within};
use crate::progress::Progress;
use crate::subject::{MOST, Operation};
use crate::{measure, stock};
use cipher::AesGcm;
use comparison::{Candidate, Comparison};
pub use report::Machine;
use report::{Report, Row};

/// Compares OpenSSL alone and lockstep on this machine, in interleaved rounds.
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// What to measure; `all` stands for every operation with a key pair [default: rsa2048 rsa3072
    /// rsa4096]
    #[arg(value_name = "OPERATION", value_parser = operation)]
    operations: Vec<String>,
    /// Requests per batch, 1 to 64; of RSA, 8 at most
    #[arg(
        long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,64",
        value_parser = within(1_usize, MOST)
    )]
    fills: Vec<usize>,
    /// Numbers of threads, or `all` for one on every CPU
    #[arg(
        long, value_name = "LIST", value_delimiter = ',', default_value = "1,all",
        value_parser = threads
    )]
    threads: Vec<Threads>,
    /// Time for each figure
    #[arg(
        long, value_name = "S", default_value = "1", value_parser = seconds_within(0.001, 3600.0),
        allow_negative_numbers = true
    )]
    seconds: Duration,
    /// Print the cycles of each function of RSA's private key operation instead
    #[arg(long, hide = cfg!(not(feature = "cycles")))]
    cycles: bool,
    /// Print one JSON document in place of the table
    #[arg(long, conflicts_with = "cycles")]
    json: bool,
}

const NOTES: &str = "\
Operations:
  rsa1024, rsa2048, rsa3072, rsa4096 (signing)
  x25519, x25519-keygen, ed25519-sign, ed25519-verify
  p256-sign, p256-verify, p256-ecdh, p256-keygen, and the same of p384
  mlkem768-keygen, mlkem768-encaps, mlkem768-decaps, the same of mlkem512 and mlkem1024
  x25519mlkem768-keygen, -server (a server's whole share of a key exchange) and -client (the end of
  a client's), the same of secp256r1mlkem768 and secp384r1mlkem1024
  mldsa44-sign, mldsa44-verify, the same of mldsa65 and mldsa87
  aes-128-gcm, aes-192-gcm, aes-256-gcm (encrypting messages of 16 bytes to 1 MiB by EVP, on one
  thread, with the module beside this program)

A request that is alone (fill 1) takes the way that the policy gives a lone request: OpenSSL's own
implementation serves it where that is faster, and a key pair comes from the pool. Where lanes are
slower with any number of requests, as with RSA on AVX2, OpenSSL serves all of them;
LOCKSTEP_LONE=lanes measures the lanes all the same. Time is taken in slices of 4 ms between gauges
of the clock and of the sibling thread; slices in which the core was shared do not count.
LOCKSTEP_BACKEND chooses the lanes.";

/// How many threads.
#[derive(Clone, Copy)]
pub enum Threads {
    All,
    Number(usize),
}

impl Threads {
    /// The number, where the process may use these CPUs.
    pub fn of(self, cpus: &[usize]) -> Result<usize, Failure> {
        match self {
            Threads::All => Ok(cpus.len()),
            Threads::Number(number) if number <= cpus.len() => Ok(number),
            Threads::Number(_) => Err(Failure::usage(format!(
                "--threads takes `all` or numbers from 1 to {}, the CPUs of this process",
                cpus.len()
            ))),
        }
    }
}

/// The operations to measure, and the CPUs.
struct Plan {
    operations: Vec<Operation>,
    ciphers: Vec<AesGcm>,
    fills: Vec<usize>,
    threads: Vec<usize>,
    time: Duration,
    /// The CPUs that this process may use.
    cpus: Vec<usize>,
}

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let plan = options.plan()?;
    stock::insist()?;
    let config = Config::default()
        .with_env()
        .strict()
        .map_err(|e| Failure::usage(e.to_string()))?;
    let engine = Engine::new(config);
    let Some(backend) = engine.backend() else {
        return Err(Failure::new(
            "there are no lanes to measure: this CPU has none, or LOCKSTEP_BACKEND disables them",
        )
        .remedy("lockstep doctor"));
    };
    let engine = Arc::new(engine);
    let operations = with_lanes(&engine, backend, &plan)?;
    measure::keep_to(&plan.cpus[..1]);
    let machine = Machine::describe(plan.cpus.len(), backend.name());
    if options.cycles {
        return print_cycles(backend, &machine, &plan);
    }
    let mut rows = Vec::new();
    for operation in operations {
        rows.extend(rows_of(&engine, operation, &plan)?);
    }
    let report = Report {
        machine,
        rows,
        ciphers: cipher::measure(&plan.ciphers, plan.time)?,
    };
    if options.json {
        outln!("{}", report.document());
    } else {
        out!("{}", report.to_table());
    }
    Ok(ExitCode::SUCCESS)
}

/// The operations of a plan that the lanes can do; says which ones they cannot.
fn with_lanes(engine: &Engine, backend: Backend, plan: &Plan) -> Result<Vec<Operation>, Failure> {
    let has_kernel =
        |operation: &Operation| engine.declines_all(operation.shape()) != Some(Fallback::NoKernel);
    let (operations, others): (Vec<_>, Vec<_>) =
        plan.operations.iter().copied().partition(has_kernel);
    let names: Vec<&str> = others.into_iter().map(Operation::argument).collect();
    let names = names.join(", ");
    if !plan.operations.is_empty() && operations.is_empty() {
        return Err(Failure::new(format!(
            "the lanes of this machine ({}) cannot do {names}",
            backend.name()
        ))
        .remedy("name other operations, as in rsa2048 or x25519"));
    }
    if !names.is_empty() {
        eprintln!("left out, for the lanes of this machine cannot do it: {names}");
    }
    Ok(operations)
}

#[cfg(feature = "cycles")]
fn print_cycles(backend: Backend, machine: &Machine, plan: &Plan) -> Outcome {
    cycles::print(backend, machine, &plan.sizes(), plan.time)
}

#[cfg(not(feature = "cycles"))]
fn print_cycles(_: Backend, _: &Machine, _: &Plan) -> Outcome {
    let failure = Failure::new("this lockstep-bench was built without the feature `cycles`");
    Err(failure.remedy("cargo build --release --package lockstep-bench --features cycles"))
}

/// Measures one operation with every number of threads.
fn rows_of(engine: &Arc<Engine>, operation: Operation, plan: &Plan) -> Result<Vec<Row>, Failure> {
    let argument = operation.argument();
    if plan.fills.iter().all(|&fill| fill > operation.most()) {
        eprintln!(
            "{argument}: OpenSSL's own code only, for a batch has at most {} requests; name \
             another --fills",
            operation.most()
        );
    }
    let mut progress = Progress::new(argument);
    progress.show("making a key");
    let comparison = Comparison::new(engine.clone(), operation)?;
    let stock = operation.has_stock().then_some(Candidate::Stock);
    let candidates: Vec<Candidate> = stock
        .into_iter()
        .chain(
            plan.fills
                .iter()
                .filter(|&&fill| fill <= operation.most())
                .map(|&fill| Candidate::Lockstep { fill }),
        )
        .collect();
    let mut rows = Vec::new();
    for &threads in &plan.threads {
        let budget = plan.time * candidates.len() as u32;
        let figures =
            comparison.measure_all(&candidates, &plan.cpus[..threads], budget, |done| {
                progress.show(&format!("{threads} thread(s), {:.0} %", done * 100.0));
            })?;
        rows.extend(
            candidates
                .iter()
                .zip(figures)
                .map(|(&candidate, figure)| Row {
                    op: operation.name(),
                    candidate,
                    by_stock: comparison.is_by_stock(candidate),
                    threads,
                    figure,
                }),
        );
    }
    progress.finish();
    Ok(rows)
}

impl Options {
    fn plan(&self) -> Result<Plan, Failure> {
        let cpus = measure::allowed_cpus();
        let is_meant = |name: &str| self.operations.iter().any(|own| own == name);
        let ciphers: Vec<AesGcm> = AesGcm::all()
            .filter(|cipher| is_meant(cipher.name))
            .collect();
        let operations = Operation::all().filter(|operation| {
            let is_usual = operation.size().is_some_and(|size| size != Size::Rsa1024);
            let name = operation.argument();
            is_meant(name) || is_meant("all") || (self.operations.is_empty() && is_usual)
        });
        let threads = self.threads.iter().map(|threads| threads.of(&cpus));
        let plan = Plan {
            operations: operations.collect(),
            ciphers,
            fills: self.fills.clone(),
            threads: threads
                .collect::<Result<BTreeSet<_>, _>>()?
                .into_iter()
                .collect(),
            time: self.seconds,
            cpus,
        };
        if self.cycles && plan.sizes().is_empty() {
            return Err(Failure::usage(
                "--cycles measures RSA only; name a size, as in rsa2048",
            ));
        }
        Ok(plan)
    }
}

impl Plan {
    /// The sizes among the operations of RSA.
    fn sizes(&self) -> Vec<Size> {
        let sizes = self.operations.iter().map(|operation| operation.size());
        sizes.flatten().collect()
    }
}

fn operation(name: &str) -> Result<String, String> {
    let names = Operation::all().map(Operation::argument);
    let names = names.chain(AesGcm::all().map(|cipher| cipher.name));
    let names: Vec<&str> = names.collect();
    match name == "all" || names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("there are {} and all", names.join(", "))),
    }
}

/// Reads a number of threads from a command line.
pub fn threads(text: &str) -> Result<Threads, String> {
    match (text.trim(), text.trim().parse()) {
        ("all", _) => Ok(Threads::All),
        (_, Ok(number @ 1..)) => Ok(Threads::Number(number)),
        _ => Err("it takes `all` or numbers from 1, as in 1,all".to_owned()),
    }
}
