//! `lockstep-bench fill`: how an engine's lanes fill under load.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use lockstep_common::{Failure, Outcome, outln};
use lockstep_engine::{Config, Declined, Engine, Notify};

use crate::measure;
use crate::subject::{Operation, Subject};

/// Drives an engine with blocking threads or asynchronous jobs, and prints how its lanes fill.
#[derive(Args)]
pub struct Options {
    /// Who makes the requests
    #[arg(value_enum, default_value = "threads")]
    callers: Callers,
    /// How many threads or jobs there are, or requests in a batch
    #[arg(default_value = "16", value_parser = count)]
    count: usize,
    /// Settings of the engine, as in slots=2
    #[arg(value_name = "SETTING=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// The operation, with the names of `lockstep-bench speed`
    #[arg(long, value_name = "NAME", default_value = "rsa2048", value_parser = operation)]
    operation: Operation,
    /// How long the load lasts
    #[arg(long, value_name = "S", default_value = "2", value_parser = measure::seconds)]
    seconds: Duration,
    /// Microseconds of work that each caller has between two requests
    #[arg(long, value_name = "US", default_value = "0")]
    think: u64,
    /// Microseconds that OpenSSL alone takes for a request that the engine declines as a lone one
    #[arg(long, value_name = "US", default_value = "275")]
    stock: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Callers {
    /// Blocking threads, each in a closed loop
    Threads,
    /// One thread that keeps so many jobs in flight, as an event loop does
    Jobs,
    /// One thread with batches of this size, past the queue
    Batch,
}

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let config = Config::from_pairs(options.settings.iter().cloned())
        .strict()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let load = Load {
        count: options.count,
        time: options.seconds,
        think: Duration::from_micros(options.think),
        stock: Duration::from_micros(options.stock),
        subject: Subject::new(options.operation)?,
    };
    let engine = Engine::new(config);
    let before = measure::cpu_time();
    let start = Instant::now();
    let Served { all, lone } = match options.callers {
        Callers::Threads => load.threads(&engine),
        Callers::Jobs => load.jobs(&engine),
        Callers::Batch => load.batches(&engine),
    }?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = (measure::cpu_time() - before).as_secs_f64();
    let counters = engine.metrics();
    outln!(
        "{:?} {}: {:.0} op/s, {:.0} op/cpu-s, fill {:.2}, lone {:.1} %, batches {:?}, \
         yields {}, mean wait {:.0} us, max {:.0} us",
        options.callers,
        options.count,
        all as f64 / seconds,
        all as f64 / cpu,
        counters.average_fill(),
        100.0 * lone as f64 / all as f64,
        counters.batch_fill,
        counters.yields,
        counters.wait_total_ns as f64 / 1e3 / counters.operations().max(1) as f64,
        counters.wait_max_ns as f64 / 1e3,
    );
    Ok(ExitCode::SUCCESS)
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok();
    count
        .filter(|count| (1..=4096).contains(count))
        .ok_or_else(|| "it takes a number from 1 to 4096".to_owned())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "it takes the form name=value".to_owned())
}

fn operation(name: &str) -> Result<Operation, String> {
    Operation::all()
        .find(|operation| operation.argument() == name)
        .ok_or_else(|| format!("there are {}", Operation::names()))
}

/// What the callers do.
struct Load {
    count: usize,
    time: Duration,
    think: Duration,
    stock: Duration,
    subject: Subject,
}

/// How many requests were answered, and how many of them the engine declined as lone ones, or as
/// ones that came too late.
#[derive(Default)]
struct Served {
    all: u64,
    lone: u64,
}

impl Load {
    fn threads(&self, engine: &Engine) -> Result<Served, Failure> {
        let stop = AtomicBool::new(false);
        let lone = AtomicU64::new(0);
        let caller = || -> Result<u64, Failure> {
            let mut served = 0;
            while !stop.load(Ordering::Relaxed) {
                match lockstep_engine::measure::blocking(engine, self.subject.request()) {
                    Ok(_) => {}
                    // While its guard lives, the engine counts this thread as busy.
                    Err(_guard @ (Declined::Lone(_) | Declined::Late)) => {
                        burn(self.stock);
                        lone.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(declined) => return Err(unserved(&declined)),
                }
                served += 1;
                burn(self.think);
            }
            Ok(served)
        };
        let served: Result<Vec<u64>, Failure> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..self.count).map(|_| scope.spawn(caller)).collect();
            std::thread::sleep(self.time);
            stop.store(true, Ordering::Relaxed);
            let ended = callers.into_iter().map(|caller| caller.join());
            ended
                .map(|result| result.unwrap_or_else(|_| Err(Failure::new("a caller panicked"))))
                .collect()
        });
        Ok(Served {
            all: served?.iter().sum(),
            lone: lone.into_inner(),
        })
    }

    fn batches(&self, engine: &Engine) -> Result<Served, Failure> {
        let mut served = Served::default();
        let start = Instant::now();
        while start.elapsed() < self.time {
            let requests = (0..self.count).map(|_| self.subject.request()).collect();
            for answer in lockstep_engine::measure::batch(engine, requests) {
                answer.map_err(|declined| unserved(&declined))?;
                served.all += 1;
            }
        }
        Ok(served)
    }

    fn jobs(&self, engine: &Engine) -> Result<Served, Failure> {
        struct Done(mpsc::Sender<usize>, usize);
        impl Notify for Done {
            fn notify(&self) {
                // The receiver is gone when the time is up.
                let _ = self.0.send(self.1);
            }
        }
        let (sender, done) = mpsc::channel();
        let submit = |job: usize| {
            let notify = Box::new(Done(sender.clone(), job));
            let ticket = lockstep_engine::measure::submit(engine, self.subject.request(), notify);
            ticket.map_err(|declined| unserved(&declined))
        };
        let mut tickets = (0..self.count)
            .map(|job| submit(job).map(Some))
            .collect::<Result<Vec<_>, Failure>>()?;
        let mut served = Served::default();
        let start = Instant::now();
        while start.elapsed() < self.time {
            let job = done.recv().expect("this thread holds a sender");
            let ticket = tickets[job].take().expect("each job is notified once");
            ticket.take().map_err(|declined| unserved(&declined))?;
            served.all += 1;
            burn(self.think);
            tickets[job] = Some(submit(job)?);
        }
        Ok(served)
    }
}

fn unserved(declined: &Declined) -> Failure {
    Failure::new(format!("the engine declined a request: {declined}")).remedy("lockstep doctor")
}

/// Keeps the CPU busy for some of this thread's own time.
fn burn(time: Duration) {
    // About three cycles a round at 3.6 GHz.
    let mut x = 1_u64;
    for _ in 0..time.as_nanos() as u64 * 6 / 5 {
        x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}
