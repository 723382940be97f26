//! `lockstep-bench connect`: TLS handshakes with a server that runs already, by an implementation
//! that is neither OpenSSL nor ours.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lockstep_common::{Failure, Outcome, outln};
use rustls::crypto::SupportedKxGroup;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::handshakes::{Group, HOST, Version, over_rustls};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Makes handshakes with a server that runs, by rustls, and says what they agreed on.
#[derive(Args)]
pub struct Options {
    /// Where it listens, as in 127.0.0.1:8443
    address: String,
    /// The certificate of the authority that it is trusted by, as PEM
    #[arg(long, value_name = "FILE")]
    authority: PathBuf,
    /// The name in its certificate
    #[arg(long, value_name = "HOST", default_value = HOST)]
    name: String,
    /// The group to agree on: x25519, p256, p384, x25519mlkem768 or secp256r1mlkem768
    #[arg(long, value_name = "NAME", default_value = "x25519")]
    group: Group,
    /// The only version of TLS that is offered
    #[arg(
        long = "tls",
        value_name = "VERSION",
        value_enum,
        default_value = "1.3"
    )]
    version: Version,
    /// How many handshakes, one after the other
    #[arg(long, value_name = "N", default_value = "1")]
    count: u32,
}

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let group = over_rustls::group(&options.group).ok_or_else(|| {
        Failure::usage(format!("rustls has no group {}", options.group.name()))
            .remedy("--group x25519, p256, p384, x25519mlkem768 or secp256r1mlkem768")
    })?;
    let file = &options.authority;
    let authority = CertificateDer::from_pem_file(file)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    let config = Arc::new(over_rustls::config(&authority, options.version, group)?);
    let name = ServerName::try_from(options.name.clone())
        .map_err(|error| Failure::usage(format!("{}: {error}", options.name)))?;
    for number in 1..=options.count {
        let agreed = handshake(options, group, &config, &name).map_err(|why| {
            let (address, count) = (&options.address, options.count);
            Failure::new(format!("{address}, handshake {number} of {count}: {why}"))
        })?;
        outln!("{agreed}");
    }
    Ok(ExitCode::SUCCESS)
}

/// One handshake; what it agreed on.
fn handshake(
    options: &Options,
    group: &dyn SupportedKxGroup,
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    let socket = TcpStream::connect(&options.address).map_err(said)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(said)?;
    let tls = ClientConnection::new(config.clone(), name.clone());
    let mut stream = StreamOwned::new(tls.map_err(|error| error.to_string())?, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(said)?;
    }
    let conn = &mut stream.conn;
    over_rustls::insist_on(group, conn)?;
    let agreed = || {
        let version = conn.protocol_version()?;
        let group = conn.negotiated_key_exchange_group()?.name();
        let suite = conn.negotiated_cipher_suite()?.suite();
        Some(format!("{version:?} {group:?} {suite:?}"))
    };
    let agreed = agreed().ok_or("the handshake agreed on nothing")?;
    conn.send_close_notify();
    // The server may have closed.
    let _ = stream.flush();
    Ok(agreed)
}
