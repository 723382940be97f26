//! `lockstep-bench ring`: what a request to another process and its answer cost.
//!
//! The other process is this program too, as a daemon that answers each request with its input. The
//! scenes take turns, a slice of time each, so that a change of the machine's speed meets all of
//! them. Time of the CPU is that of both processes, by the kernel's clocks.

mod daemon;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lockstep_common::{Failure, Outcome, outln};
use lockstep_ring::{Call, Client, Patience, Ticket, receive, send, status};

use crate::format::cpu_model;
use crate::measure::{self, quantile};
use daemon::{BYTES, Mode};
pub use daemon::{DaemonOptions, serve};

/// The hidden command that is the daemon.
pub const DAEMON: &str = "ring-daemon";

/// Requests in flight where a client does not wait for each.
const PIPELINE: usize = 32;

/// Measures round trips between this process and a daemon through shared memory
#[derive(Args)]
pub struct Options {
    /// How long each scene lasts in a round
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = measure::seconds)]
    slice: Duration,
    /// How many rounds of all scenes there are
    #[arg(long, value_name = "COUNT", default_value = "15")]
    rounds: usize,
    /// How many clients the scene with several has, each with a ring of its own
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "4",
        value_parser = clap::value_parser!(u8).range(1..=64)
    )]
    clients: u8,
}

struct Scene {
    name: &'static str,
    daemon: Mode,
    run: fn(&Setup, Duration) -> Result<Samples, Failure>,
}

const SCENES: &[Scene] = &[
    Scene {
        name: "both awake, one request at a time",
        daemon: Mode::Awake,
        run: |setup, time| setup.blocking(1, Patience::MOST_SPIN, time),
    },
    Scene {
        name: "both awake, 32 requests in flight",
        daemon: Mode::Awake,
        run: Setup::pipelined,
    },
    Scene {
        name: "daemon asleep, client spins",
        daemon: Mode::Sleepy,
        run: |setup, time| setup.blocking(1, Patience::MOST_SPIN, time),
    },
    Scene {
        name: "daemon asleep, client sleeps",
        daemon: Mode::Sleepy,
        run: |setup, time| setup.blocking(1, Duration::ZERO, time),
    },
    Scene {
        name: "daemon spins for 5 us, client for 5 us",
        daemon: Mode::Spinning,
        run: |setup, time| setup.blocking(1, Duration::from_micros(5), time),
    },
    Scene {
        name: "several clients, all sleep",
        daemon: Mode::Sleepy,
        run: |setup, time| setup.blocking(setup.clients.len(), Duration::ZERO, time),
    },
    Scene {
        name: "a Unix socket instead",
        daemon: Mode::Sleepy,
        run: Setup::by_socket,
    },
];

/// What one slice of a scene gave.
#[derive(Default)]
struct Samples {
    /// Nanoseconds of each request, or of a batch by its size.
    times: Vec<u32>,
    requests: u64,
}

/// The medians of a scene, in nanoseconds per request.
struct Line {
    time: f64,
    client: f64,
    daemon: f64,
}

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let setup = Setup::start(usize::from(options.clients))?;
    let mut lines: Vec<Vec<Line>> = SCENES.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (scene, lines) in SCENES.iter().zip(&mut lines) {
            lines.push(setup.measure(scene, options.slice)?);
        }
    }
    outln!("{}, medians of {} rounds", cpu_model(), options.rounds);
    outln!("nanoseconds per request                 p50   CPU: client  daemon    both");
    for (scene, lines) in SCENES.iter().zip(&lines) {
        let median =
            |part: fn(&Line) -> f64| quantile(&mut lines.iter().map(part).collect::<Vec<_>>(), 0.5);
        outln!(
            "{:38} {:>6.0} {:>12.0} {:>8.0} {:>7.0}",
            scene.name,
            median(|line| line.time),
            median(|line| line.client),
            median(|line| line.daemon),
            median(|line| line.client + line.daemon),
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The daemon, and this process's ends.
struct Setup {
    control: UnixStream,
    clients: Vec<Client>,
    socket: UnixStream,
    daemon: Child,
}

impl Setup {
    fn start(clients: usize) -> Result<Setup, Failure> {
        let fail = |what: &str| Failure::new(format!("the daemon of the measurement: {what}"));
        let program = std::env::current_exe().map_err(|error| fail(&error.to_string()))?;
        let (control, theirs) = UnixStream::pair().map_err(|error| fail(&error.to_string()))?;
        let daemon = Command::new(program)
            .arg(DAEMON)
            .arg(clients.to_string())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(|error| fail(&error.to_string()))?;
        let (socket, theirs) = UnixStream::pair().map_err(|error| fail(&error.to_string()))?;
        send(&control, b"s", theirs.as_fd()).map_err(|error| fail(&error.to_string()))?;
        let clients = (0..clients)
            .map(|_| {
                let received = receive(&control, &mut [0]);
                let ring = received
                    .map_err(|error| fail(&error.to_string()))?
                    .descriptor;
                let ring = ring.ok_or_else(|| fail("it sent no ring"))?;
                Client::attach(ring).map_err(|error| fail(&error.to_string()))
            })
            .collect::<Result<Vec<Client>, Failure>>()?;
        Ok(Setup {
            control,
            clients,
            socket,
            daemon,
        })
    }

    fn measure(&self, scene: &Scene, time: Duration) -> Result<Line, Failure> {
        self.command(scene.daemon as u8)?;
        // Both sides get warm, and the daemon falls asleep or wakes up.
        (scene.run)(self, time / 8)?;
        let daemon_before = self.command(b'c')?;
        let client_before = measure::cpu_time();
        let mut samples = (scene.run)(self, time)?;
        let client = (measure::cpu_time() - client_before).as_nanos() as u64;
        let daemon = self.command(b'c')? - daemon_before;
        let per_request = |nanoseconds: u64| nanoseconds as f64 / samples.requests as f64;
        let (client, daemon) = (per_request(client), per_request(daemon));
        samples.times.sort_unstable();
        let time = samples.times.get(samples.times.len() / 2).copied();
        Ok(Line {
            time: time.map_or(f64::NAN, f64::from),
            client,
            daemon,
        })
    }

    /// Sends the daemon a byte; returns the time of the CPU that it has taken.
    fn command(&self, byte: u8) -> Result<u64, Failure> {
        let mut answer = [0; 8];
        (&self.control)
            .write_all(&[byte])
            .and_then(|()| (&self.control).read_exact(&mut answer))
            .map_err(|error| Failure::new(format!("the daemon does not answer: {error}")))?;
        Ok(u64::from_le_bytes(answer))
    }

    /// The first `clients` clients, each of which waits for each answer.
    fn blocking(&self, clients: usize, spin: Duration, time: Duration) -> Result<Samples, Failure> {
        let patience = Patience::new(spin, Duration::from_secs(10));
        let mut all = Samples::default();
        thread::scope(|scope| {
            let threads: Vec<_> = self.clients[..clients]
                .iter()
                .map(|client| {
                    scope.spawn(move || {
                        let end = Instant::now() + time;
                        let mut samples = Samples::default();
                        let mut now = Instant::now();
                        while now < end {
                            let input = [samples.requests as u8; BYTES];
                            wait(submit(client, &input)?, &input, patience)?;
                            let after = Instant::now();
                            samples.times.push((after - now).as_nanos() as u32);
                            samples.requests += 1;
                            now = after;
                        }
                        Ok(samples)
                    })
                })
                .collect();
            for thread in threads {
                let samples: Samples = thread.join().expect("it does not panic")?;
                all.times.extend(samples.times);
                all.requests += samples.requests;
            }
            Ok(all)
        })
    }

    /// One client with several requests in flight.
    fn pipelined(&self, time: Duration) -> Result<Samples, Failure> {
        let patience = Patience::new(Patience::MOST_SPIN, Duration::from_secs(10));
        let end = Instant::now() + time;
        let mut samples = Samples::default();
        let mut now = Instant::now();
        while now < end {
            let input = [samples.requests as u8; BYTES];
            let tickets: Vec<Ticket> = (0..PIPELINE)
                .map(|_| submit(&self.clients[0], &input))
                .collect::<Result<_, Failure>>()?;
            for ticket in tickets {
                wait(ticket, &input, patience)?;
            }
            let after = Instant::now();
            samples
                .times
                .push(((after - now).as_nanos() / PIPELINE as u128) as u32);
            samples.requests += PIPELINE as u64;
            now = after;
        }
        Ok(samples)
    }

    fn by_socket(&self, time: Duration) -> Result<Samples, Failure> {
        let fail = |error| Failure::new(format!("the socket of the measurement: {error}"));
        let end = Instant::now() + time;
        let mut samples = Samples::default();
        let mut now = Instant::now();
        while now < end {
            let input = [samples.requests as u8; BYTES];
            let mut output = [0; BYTES];
            (&self.socket).write_all(&input).map_err(fail)?;
            (&self.socket).read_exact(&mut output).map_err(fail)?;
            if output != input {
                return Err(Failure::new("the socket gave a wrong answer"));
            }
            let after = Instant::now();
            samples.times.push((after - now).as_nanos() as u32);
            samples.requests += 1;
            now = after;
        }
        Ok(samples)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // The daemon ends by itself when the socket is closed.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        let _ = self.daemon.wait();
    }
}

fn submit(client: &Client, input: &[u8]) -> Result<Ticket, Failure> {
    let call = Call {
        operation: 1,
        key: 1,
        input,
        notify: false,
    };
    client
        .submit(&call)
        .map_err(|refused| Failure::new(format!("a request was refused: {refused}")))
}

fn wait(mut ticket: Ticket, expected: &[u8], patience: Patience) -> Result<(), Failure> {
    let answer = ticket
        .wait(patience)
        .map_err(|lost| Failure::new(format!("an answer was lost: {lost}")))?
        .ok_or_else(|| Failure::new("no answer within ten seconds"))?;
    if answer.status != status::DONE || answer.output[..] != *expected {
        return Err(Failure::new("the daemon gave a wrong answer"));
    }
    Ok(())
}
