//! Drives an engine with blocking threads or asynchronous jobs, and prints how its lanes fill; or
//! with batches of one size past the queue, to compare.
//!
//! `cargo run --release -p lockstep-engine --example fill -- [threads N | jobs N | batch N] [key=value …]`
//!
//! Keys: `seconds` (2), `op` (rsa2048, or the name of another shape that does not verify, as in
//! p256-sign), `think_us` (0: work of each caller between two requests), `stock_us` (275: what
//! stock OpenSSL takes for a lone request), and the settings of the engine.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockstep_engine::{
    Config, Curve, Declined, EcKey, Ed25519Key, Engine, KeyKind, Notify, Request, Secret, Shape,
};

#[path = "../testdata/keys.rs"]
mod keys;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or("threads".to_owned());
    let count: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(16);
    let mut load = Load {
        seconds: 2.0,
        think: Duration::ZERO,
        stock: Duration::from_micros(275),
        request: Box::new(|_| unreachable!("the operation comes below")),
    };
    let mut op = "rsa2048".to_owned();
    let mut settings = Vec::new();
    for argument in arguments {
        let Some((key, value)) = argument.split_once('=') else {
            eprintln!("'{argument}' is not key=value");
            return ExitCode::FAILURE;
        };
        match key {
            "seconds" => load.seconds = value.parse().expect("a number"),
            "op" => op = value.to_owned(),
            "think_us" => load.think = Duration::from_micros(value.parse().expect("a number")),
            "stock_us" => load.stock = Duration::from_micros(value.parse().expect("a number")),
            _ => settings.push((key.to_owned(), value.to_owned())),
        }
    }
    let config = match Config::from_pairs(settings) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let Some(shape) = Shape::ALL.into_iter().find(|shape| shape.name() == op) else {
        eprintln!("'{op}' is no operation");
        return ExitCode::FAILURE;
    };

    let engine = Engine::new(config);
    load.request = requests(shape);
    let before = cpu_seconds();
    let start = Instant::now();
    let (served, lone) = match mode.as_str() {
        "threads" => load.threads(&engine, count),
        "jobs" => load.jobs(&engine, count),
        "batch" => load.batches(&engine, count),
        _ => {
            eprintln!("'{mode}' is not threads, jobs or batch");
            return ExitCode::FAILURE;
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - before;
    let counters = engine.metrics();
    println!(
        "{mode} {count}: {:.0} op/s, {:.0} op/cpu-s, fill {:.2}, lone {:.1} %, batches {:?}, \
         yields {}, mean wait {:.0} us, max {:.0} us",
        served as f64 / seconds,
        served as f64 / cpu,
        counters.average_fill(),
        100.0 * lone as f64 / served as f64,
        counters.batch_fill,
        counters.yields,
        counters.wait_total_ns as f64 / 1e3 / counters.operations().max(1) as f64,
        counters.wait_max_ns as f64 / 1e3,
    );
    ExitCode::SUCCESS
}

/// Makes the request of a number.
type Requests = Box<dyn Fn(u64) -> Request + Sync>;

/// Requests of one shape, all with one key.
fn requests(shape: Shape) -> Requests {
    let bytes = |length: usize, number: u64| {
        let mut bytes = vec![0; length];
        bytes[1..9].copy_from_slice(&number.to_be_bytes());
        bytes[16] = 1;
        bytes
    };
    let key = |curve: Curve| {
        let scalar = bytes(curve.bytes(), 0x1234_5678);
        Arc::new(EcKey::new(curve, &scalar, None).expect("it is as long as it should be"))
    };
    match shape {
        Shape::Rsa { size, .. } => {
            let key = Arc::new(keys::rsa(size.bits()));
            Box::new(move |number| Request::RsaPrivate {
                key: key.clone(),
                input: bytes(key.modulus_bytes(), number),
            })
        }
        Shape::EcdsaSign(curve) => {
            let key = key(curve);
            Box::new(move |number| Request::EcdsaSign {
                key: key.clone(),
                digest: bytes(curve.bytes(), number).into(),
            })
        }
        Shape::X25519 => Box::new(move |number| Request::X25519 {
            secret: Secret::new(&bytes(32, number)),
            peer: bytes(32, 9).into(),
        }),
        Shape::Ed25519Sign => {
            let key = Ed25519Key::new(&bytes(32, 7)).expect("it is as long as it should be");
            let key = Arc::new(key);
            Box::new(move |number| Request::Ed25519Sign {
                key: key.clone(),
                message: bytes(64, number).into(),
            })
        }
        Shape::Keypair(kind) => Box::new(move |_| Request::Keypair(kind)),
        Shape::Ecdh(curve) => {
            let key = key(curve);
            let peer = Engine::new(Config::default())
                .keypair(KeyKind::Nist(curve))
                .expect("the lanes serve it");
            Box::new(move |_| Request::Ecdh {
                key: key.clone(),
                peer: peer.public.clone(),
            })
        }
        Shape::EcdsaVerify(_) | Shape::Ed25519Verify => panic!("servers seldom verify"),
    }
}

struct Load {
    seconds: f64,
    think: Duration,
    stock: Duration,
    request: Requests,
}

impl Load {
    fn request(&self, number: u64) -> Request {
        (self.request)(number)
    }

    /// Blocking threads, each in a closed loop.
    fn threads(&self, engine: &Engine, count: usize) -> (u64, u64) {
        let (stop, served, lone) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..count as u64 {
                let (stop, served, lone) = (&stop, &served, &lone);
                scope.spawn(move || {
                    let mut number = thread << 32;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        match engine.run(self.request(number)) {
                            Ok(_) => {}
                            Err(declined @ Declined::Lone(_)) => {
                                burn(self.stock);
                                lone.fetch_add(1, Ordering::Relaxed);
                                drop(declined);
                            }
                            Err(declined) => panic!("{declined}"),
                        }
                        served.fetch_add(1, Ordering::Relaxed);
                        burn(self.think);
                    }
                });
            }
            std::thread::sleep(Duration::from_secs_f64(self.seconds));
            stop.store(true, Ordering::Relaxed);
        });
        (served.into_inner(), lone.into_inner())
    }

    /// One thread with batches of `count` requests, past the queue.
    fn batches(&self, engine: &Engine, count: usize) -> (u64, u64) {
        let mut served = 0;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < self.seconds {
            let requests = (0..count as u64)
                .map(|job| self.request(served + job))
                .collect();
            for answer in engine.execute(requests) {
                answer.expect("the lanes serve it");
                served += 1;
            }
        }
        (served, 0)
    }

    /// One thread that keeps `count` jobs in flight, as an event loop does.
    fn jobs(&self, engine: &Engine, count: usize) -> (u64, u64) {
        struct Tell(mpsc::Sender<usize>, usize);
        impl Notify for Tell {
            fn notify(&self) {
                // The receiver is gone when the time is up.
                let _ = self.0.send(self.1);
            }
        }
        let (sender, done) = mpsc::channel();
        let submit = |job: usize, number: u64| {
            let tell = Box::new(Tell(sender.clone(), job));
            engine
                .submit(self.request(number), tell)
                .expect("the queue has room")
        };
        let mut tickets: Vec<_> = (0..count).map(|job| Some(submit(job, 0))).collect();
        let mut served = 0;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < self.seconds {
            let job = done.recv().expect("we hold a sender");
            let ticket = tickets[job].take().expect("each job is told once");
            ticket.take().expect("the lanes serve it");
            served += 1;
            burn(self.think);
            tickets[job] = Some(submit(job, served));
        }
        (served, 0)
    }
}

/// Keeps the CPU busy for some of this thread's own time.
fn burn(time: Duration) {
    // About three cycles a round at 3.6 GHz.
    let mut x = 1_u64;
    for _ in 0..time.as_nanos() as u64 * 6 / 5 {
        x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// The CPU time that this process has used.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("this is Linux");
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .expect("a command")
        .1
        .split_whitespace()
        .collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}
