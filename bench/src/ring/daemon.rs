//! The daemon of the measurement. Its standard input is a socket, by which it sends the rings and
//! gets one-byte commands; it answers each with the CPU time that it has used, in nanoseconds.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use clap::Args;
use lockstep_common::{Failure, Outcome};
use lockstep_ring::{Patience, Server, Sleeper, receive, send, status};

use crate::measure;

/// Bytes of a request and of its answer: RSA-2048.
pub const BYTES: usize = 256;

/// How the daemon waits for requests.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// It never sleeps.
    Awake = b'a',
    /// It spins before it sleeps.
    Spinning = b'p',
    /// It sleeps as soon as there is no request.
    Sleepy = b's',
}

/// The arguments of the daemon.
#[derive(Args)]
pub struct DaemonOptions {
    clients: usize,
}

/// Serves until the other side hangs up.
pub fn serve(options: &DaemonOptions) -> Outcome {
    let fail = |error: io::Error| Failure::new(format!("the daemon of the measurement: {error}"));
    let control = io::stdin().as_fd().try_clone_to_owned().map_err(fail)?;
    let control = UnixStream::from(control);
    let socket = receive(&control, &mut [0]).map_err(fail)?.descriptor;
    let socket =
        socket.ok_or_else(|| Failure::new("the daemon of the measurement got no socket"))?;
    thread::spawn(move || echo(&UnixStream::from(socket)));
    let mut rings = Vec::new();
    for _ in 0..options.clients {
        let (server, descriptor) =
            Server::create(64).map_err(|error| Failure::new(error.to_string()))?;
        send(&control, b"r", descriptor.as_fd()).map_err(fail)?;
        rings.push(server);
    }
    let mode = AtomicU8::new(Mode::Sleepy as u8);
    let sleeper = Sleeper::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            obey(&control, &mode, &sleeper);
            // The rings are the other process's loss.
            std::process::exit(0);
        });
        loop {
            for ring in &rings {
                ring.take(|request| {
                    let input = request.input().to_vec();
                    request.answer(status::DONE, &input);
                });
            }
            let spin = match mode.load(Relaxed) {
                b'a' => continue,
                b'p' => Duration::from_micros(5),
                _ => Duration::ZERO,
            };
            let patience = Patience::new(spin, Duration::from_secs(10));
            if let Err(error) = sleeper.sleep(&rings, patience) {
                return Err(fail(error));
            }
        }
    })
}

/// Answers commands until the other side hangs up.
fn obey(mut control: &UnixStream, mode: &AtomicU8, sleeper: &Sleeper) {
    let mut command = [0];
    while control.read_exact(&mut command).is_ok() {
        if command != [b'c'] {
            mode.store(command[0], Relaxed);
            sleeper.wake();
        }
        let time = measure::cpu_time().as_nanos() as u64;
        if control.write_all(&time.to_le_bytes()).is_err() {
            break;
        }
    }
}

fn echo(mut socket: &UnixStream) {
    let mut bytes = [0; BYTES];
    while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
}
