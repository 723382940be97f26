//! Clients. Good ones shake hands as they should, and verify the certificate and the server's
//! signature; bad ones do not.

#![allow(unsafe_code, reason = "system calls")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use openssl::ssl::{
    ErrorCode, HandshakeError, SslConnector, SslMethod, SslSessionCacheMode, SslStream, SslVersion,
};

use crate::site::{Site, within};

/// A client of one server; it trusts the certificates that it was given, and no others.
#[derive(Clone)]
pub struct Client {
    connector: SslConnector,
    port: u16,
    /// Whom the certificate has to be for.
    name: &'static str,
}

impl Client {
    /// Makes a client that trusts the current `site.crt` of the server.
    pub fn of(site: &Site) -> Client {
        Client::trusting(site, &[&site.path("site.crt")])
    }

    /// Trusts these certificates.
    pub fn trusting(site: &Site, certificates: &[&Path]) -> Client {
        let mut builder = SslConnector::builder(SslMethod::tls_client()).expect("a context");
        for certificate in certificates {
            builder.set_ca_file(certificate).expect("a certificate");
        }
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        Client {
            connector: builder.build(),
            port: site.port(),
            name: "localhost",
        }
    }

    /// Expects certificates for another name.
    pub fn of_name(self, name: &'static str) -> Client {
        Client { name, ..self }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A full handshake, with TLS 1.2 now and then.
    pub fn handshake(&self, number: u64) -> Result<(), String> {
        let stream = self
            .connect()
            .map_err(|error| format!("connect: {error}"))?;
        let mut session = self.connector.configure().map_err(|e| e.to_string())?;
        if number % 4 == 3 {
            let version = Some(SslVersion::TLS1_2);
            session
                .set_max_proto_version(version)
                .map_err(|e| e.to_string())?;
        }
        let mut session = session
            .connect(self.name, stream)
            .map_err(|error| match error {
                HandshakeError::Failure(session) => {
                    let verified = session.ssl().verify_result();
                    format!("{} (certificate: {verified})", session.error())
                }
                other => other.to_string(),
            })?;
        match session.shutdown() {
            Ok(_) => Ok(()),
            // The server may have been quicker to hang up; the handshake is over.
            Err(error) if error.code() == ErrorCode::SYSCALL => Ok(()),
            Err(error) if error.code() == ErrorCode::SSL => Ok(()),
            Err(error) => Err(format!("shutdown: {error}")),
        }
    }

    /// Returns the certificate that the server shows to new clients, in PEM.
    pub fn shown(&self) -> Result<Vec<u8>, String> {
        let session = self.open(false)?;
        let shown = session.ssl().peer_certificate().ok_or("no certificate")?;
        shown.to_pem().map_err(|error| error.to_string())
    }

    /// A connection that has asked for a page and stays open.
    pub fn ask(&self) -> Result<SslStream<TcpStream>, String> {
        let stream = self.connect().map_err(|error| error.to_string())?;
        let session = self.connector.configure().map_err(|e| e.to_string())?;
        let mut session = session
            .connect(self.name, stream)
            .map_err(|error| error.to_string())?;
        let request = session.write_all(b"GET / HTTP/1.0\r\n\r\n");
        request.map_err(|error| error.to_string())?;
        Ok(session)
    }

    /// A connection that stays open, of TLS 1.2 or the newest.
    pub fn open(&self, version_12: bool) -> Result<SslStream<TcpStream>, String> {
        let stream = self.connect().map_err(|error| error.to_string())?;
        let mut session = self.connector.configure().map_err(|e| e.to_string())?;
        if version_12 {
            let version = session.set_max_proto_version(Some(SslVersion::TLS1_2));
            version.map_err(|error| error.to_string())?;
        }
        let session = session.connect(self.name, stream);
        session.map_err(|error| error.to_string())
    }

    /// This number of connections, whose handshakes begin when the server has accepted all. They
    /// stay open.
    pub fn open_together(&self, count: usize) -> Result<Vec<SslStream<TcpStream>>, String> {
        let streams = (0..count).map(|_| self.connect());
        let streams: io::Result<Vec<_>> = streams.collect();
        let streams = streams.map_err(|error| error.to_string())?;
        thread::sleep(Duration::from_millis(200));
        let begin = |stream| {
            let session = self.connector.configure().map_err(|e| e.to_string())?;
            let session = session.connect(self.name, stream);
            session.map_err(|error| error.to_string())
        };
        thread::scope(|scope| {
            let streams = streams.into_iter();
            let threads: Vec<_> = streams
                .map(|stream| scope.spawn(move || begin(stream)))
                .collect();
            let sessions = threads.into_iter().map(|thread| thread.join());
            sessions
                .map(|session| session.expect("a client does not panic"))
                .collect()
        })
    }

    /// A connection whose request never ends, so that a worker of nginx lives on for it.
    pub fn hold(&self) -> Result<SslStream<TcpStream>, String> {
        let mut session = self.open(false)?;
        let request = session.write_all(b"GET / HTTP/1.1\r\nHost: ");
        request.map_err(|error| error.to_string())?;
        Ok(session)
    }

    /// The first message of a handshake.
    pub fn hello(&self) -> Vec<u8> {
        let session = self.connector.configure().expect("a session");
        match session.connect(self.name, Recorder::default()) {
            Err(HandshakeError::WouldBlock(session)) => session.get_ref().written.clone(),
            _ => panic!("nobody answers a recorder"),
        }
    }

    /// Sends these bytes and goes away: with a reset, or in the usual way.
    pub fn send_and_leave(&self, bytes: &[u8], reset: bool, after: Duration) -> io::Result<()> {
        let mut stream = self.connect()?;
        if reset {
            let linger = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            // SAFETY: an option of our socket, with its type and size.
            unsafe {
                libc::setsockopt(
                    stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    (&raw const linger).cast(),
                    size_of::<libc::linger>() as libc::socklen_t,
                );
            }
        }
        stream.write_all(bytes)?;
        thread::sleep(after);
        Ok(())
    }
}

/// A stream that keeps its written bytes and never has bytes to read.
#[derive(Default, Debug)]
struct Recorder {
    written: Vec<u8>,
}

impl Read for Recorder {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the condition holds.
#[track_caller]
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    assert!(within(Duration::from_secs(30), condition), "no {what}");
}

/// Clients that shake hands one after the other until they are stopped.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    failures: Mutex<Vec<String>>,
    /// When the last handshake ended, and the longest time since the one before it.
    pauses: Mutex<(Option<Instant>, Duration)>,
}

impl Shared {
    fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut pauses = self.pauses.lock().unwrap_or_else(|e| e.into_inner());
        let (last, longest) = *pauses;
        let pause = last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        *pauses = (Some(now), longest.max(pause));
    }
}

impl Load {
    pub fn start(client: &Client, threads: usize) -> Load {
        let shared = Arc::new(Shared::default());
        let run = |_| {
            let (shared, client) = (Arc::clone(&shared), client.clone());
            thread::spawn(move || {
                while !shared.stop.load(Ordering::Relaxed) {
                    let number = shared.done.load(Ordering::Relaxed);
                    match client.handshake(number) {
                        Ok(()) => shared.count(),
                        Err(error) => {
                            let mut failures =
                                shared.failures.lock().unwrap_or_else(|e| e.into_inner());
                            failures.push(error);
                            drop(failures);
                            thread::sleep(Duration::from_millis(5));
                        }
                    }
                }
            })
        };
        Load {
            threads: (0..threads).map(run).collect(),
            shared,
        }
    }

    /// Handshakes so far.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// The longest time without the end of a handshake, since the last call.
    pub fn longest_pause(&self) -> Duration {
        let mut pauses = self.shared.pauses.lock().unwrap_or_else(|e| e.into_inner());
        std::mem::take(&mut pauses.1)
    }

    /// Waits for so many more handshakes.
    #[track_caller]
    pub fn shake_hands(&self, handshakes: u64) {
        let until = self.done() + handshakes;
        wait_for("handshakes", || self.done() >= until);
    }

    /// Ends the load; returns the number of handshakes, and the failures.
    pub fn stop(self) -> (u64, Vec<String>) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client does not panic");
        }
        let failures = self
            .shared
            .failures
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        (self.shared.done.load(Ordering::Relaxed), failures.clone())
    }

    /// Ends it and expects that nothing failed.
    #[track_caller]
    pub fn flawless(self, site: &Site) {
        self.flawless_but_for(site, &[]);
    }

    /// The same, tolerating failures with these words.
    #[track_caller]
    pub fn flawless_but_for(self, site: &Site, tolerated: &[&str]) {
        let (done, mut failures) = self.stop();
        failures.retain(|failure| !tolerated.iter().any(|words| failure.contains(words)));
        assert!(done > 0, "no handshake");
        assert!(
            failures.is_empty(),
            "{}: {} of {done} handshakes failed: {:?}\n{}",
            site.name,
            failures.len(),
            &failures[..failures.len().min(5)],
            site.logs()
        );
    }
}
