//! The server in this program: blocking threads over libssl, as Apache or stunnel have them.
//!
//! It is a process of its own, the hidden command [`COMMAND`], so that `OPENSSL_CONF` decides
//! whether it runs with lockstep, as with any other server.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::Args;
use lockstep_common::{Failure, Outcome};
use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslContext, SslFiletype, SslMethod, SslStream};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::origin;
use super::parameters::{Group, Version};

/// The name of the hidden command.
pub const COMMAND: &str = "handshakes-server";

/// Arguments of the server, in the order of the command line.
#[derive(Args)]
pub struct Options {
    port: u16,
    threads: usize,
    page: u64,
    version: Version,
    group: Group,
    certificate: PathBuf,
    key: PathBuf,
}

/// Runs the server until it is killed.
pub fn main(options: &Options) -> Outcome {
    // The kernel ends this server if its parent is killed before it can end it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let Options { port, page, .. } = *options;
    let context =
        context(options).map_err(|error| Failure::new(format!("libssl cannot serve: {error}")))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| Failure::new(format!("cannot listen on port {port}: {error}")))?;
    let answer = origin::answer(page);
    let shared = Arc::new((listener, context, answer));
    let threads: Vec<_> = (0..options.threads)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (listener, context, answer) = &*shared;
                for stream in listener.incoming().flatten() {
                    // The client notices the error, and counts it.
                    let _ = serve(context, stream, answer);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| _ = thread.join());
    Ok(ExitCode::SUCCESS)
}

/// Fails unless this OpenSSL has the group: a server without lockstep is to serve it.
pub fn insist_on(group: Group) -> Result<(), Failure> {
    let mut builder = SslContext::builder(SslMethod::tls())
        .map_err(|error| Failure::new(format!("libssl does not work: {error}")))?;
    builder.set_groups_list(group.of_openssl).map_err(|_| {
        let what = format!(
            "{} has no TLS group {}, which the server without lockstep is to serve",
            openssl::version::version(),
            group.of_openssl
        );
        Failure::new(what).remedy(
            "compare with --stock-group x25519, or run it where OpenSSL 3.5 or later is \
             installed, which has X25519MLKEM768",
        )
    })
}

fn context(options: &Options) -> Result<SslContext, ErrorStack> {
    let Options { version, group, .. } = options;
    let mut builder = SslContext::builder(SslMethod::tls_server())?;
    builder.set_min_proto_version(Some(version.of_libssl()))?;
    builder.set_max_proto_version(Some(version.of_libssl()))?;
    builder.set_groups_list(group.of_openssl)?;
    builder.set_certificate_chain_file(&options.certificate)?;
    builder.set_private_key_file(&options.key, SslFiletype::PEM)?;
    builder.check_private_key()?;
    builder.set_session_id_context(COMMAND.as_bytes())?;
    Ok(builder.build())
}

fn serve(
    context: &SslContext,
    stream: TcpStream,
    answer: &[u8],
) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    let mut stream = SslStream::new(Ssl::new(context)?, stream)?;
    stream.accept()?;
    origin::serve(&mut stream, answer)?;
    stream.shutdown()?;
    Ok(())
}
