//! `lockstep-bench connect`: TLS handshakes with a server that runs already, by an implementation
//! that is neither OpenSSL nor ours.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lockstep_common::{Failure, Outcome, outln};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::handshakes::{Client, Group, HOST, Trust, Version};

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
    /// The group to agree on: x25519, p256, p384, x25519mlkem768, secp256r1mlkem768
    /// or secp384r1mlkem1024
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
    let file = &options.authority;
    let authority = CertificateDer::from_pem_file(file)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    let name = ServerName::try_from(options.name.clone())
        .map_err(|error| Failure::usage(format!("{}: {error}", options.name)))?;
    let trust = Trust::Authority(&authority);
    let client = Client::new(trust, options.version, options.group, name)?;
    for number in 1..=options.count {
        let agreed = handshake(&client, &options.address).map_err(|why| {
            let (address, count) = (&options.address, options.count);
            Failure::new(format!("{address}, handshake {number} of {count}: {why}"))
        })?;
        outln!("{agreed}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes one handshake; returns the agreed parameters.
fn handshake(client: &Client, address: &str) -> Result<String, String> {
    let socket = Client::connect(address).map_err(|error| error.to_string())?;
    let mut stream = client.handshake(socket)?;
    let conn = &mut stream.conn;
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
