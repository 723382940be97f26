//! A TLS client of which no part is ours or OpenSSL's: rustls, and a crate in Rust alone for
//! ML-DSA, which rustls with ring lacks. `cargo xtask matrix` has it shake hands with servers whose
//! certificates have keys of ML-DSA.
//!
//! It is given the port of a server on this machine and the file of an authority in PEM. It fails
//! unless the server, as `localhost`, has a certificate of that authority, and signs with its key.
//! With the word `chain` it changes a bit of each signature in certificates before it looks at it,
//! and with `handshake` of each signature in handshakes, so that it must fail. A wrong signature
//! and an unknown authority have exit codes of their own.

use std::error::Error;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use ml_dsa::{MlDsa44, MlDsa65, MlDsa87, MlDsaParams, Signature, VerifyingKey};
use rustls::client::Resumption;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName,
    SignatureVerificationAlgorithm, alg_id,
};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned,
};

/// How often it shakes hands.
const TIMES: usize = 5;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Start of the signed message in a handshake of TLS 1.3 (RFC 8446, 4.4.3).
const OF_HANDSHAKE: [u8; 64] = [0x20; 64];

/// How it exits where a signature is wrong, and where the authority is another one. Else it is 1.
const WRONG_SIGNATURE: u8 = 3;
const UNKNOWN_AUTHORITY: u8 = 4;

fn main() -> ExitCode {
    let Err(error) = shake_hands() else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{error}");
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(|error| error.get_ref());
    let why = match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => why,
        _ => return ExitCode::FAILURE,
    };
    match why {
        CertificateError::BadSignature => ExitCode::from(WRONG_SIGNATURE),
        CertificateError::UnknownIssuer => ExitCode::from(UNKNOWN_AUTHORITY),
        _ => ExitCode::FAILURE,
    }
}

fn shake_hands() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [port, authority, spoilt @ ..] = &words[..] else {
        return Err("rustls_client PORT AUTHORITY [chain|handshake]".into());
    };
    let spoilt = match spoilt {
        [] => None,
        [word] if word == "chain" => Some(false),
        [word] if word == "handshake" => Some(true),
        _ => return Err("nothing else can be spoilt".into()),
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(authority)?)?)?;
    let mut provider = ring::default_provider();
    provider.signature_verification_algorithms = algorithms(spoilt);
    let builder = ClientConfig::builder_with_provider(provider.into());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    for _ in 0..TIMES {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse()?))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let tls = ClientConnection::new(Arc::clone(&config), ServerName::try_from("localhost")?)?;
        let mut stream = StreamOwned::new(tls, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(())
}

/// ML-DSA and nothing else.
fn algorithms(spoilt: Option<bool>) -> WebPkiSupportedAlgorithms {
    type Algorithm = &'static dyn SignatureVerificationAlgorithm;
    fn of<P: MlDsaParams>(id: AlgorithmIdentifier, spoilt: Option<bool>) -> Algorithm {
        let verify = verify::<P>;
        #[rustfmt::skip]
        let algorithm = MlDsa { id, verify, spoilt };
        Box::leak(Box::new(algorithm))
    }
    let all: &[Algorithm] = vec![
        of::<MlDsa44>(alg_id::ML_DSA_44, spoilt),
        of::<MlDsa65>(alg_id::ML_DSA_65, spoilt),
        of::<MlDsa87>(alg_id::ML_DSA_87, spoilt),
    ]
    .leak();
    let schemes = [
        SignatureScheme::ML_DSA_44,
        SignatureScheme::ML_DSA_65,
        SignatureScheme::ML_DSA_87,
    ];
    let pairs = schemes.into_iter().zip(all.chunks(1));
    let mapping: Vec<_> = pairs.collect();
    WebPkiSupportedAlgorithms {
        all,
        mapping: mapping.leak(),
    }
}

/// Takes a key, a message and a signature.
type Verify = fn(&[u8], &[u8], &[u8]) -> Option<bool>;

/// Whether a signature is right, without a context.
fn verify<P: MlDsaParams>(key: &[u8], message: &[u8], signature: &[u8]) -> Option<bool> {
    let key = VerifyingKey::<P>::decode(&key.try_into().ok()?);
    let signature = Signature::<P>::try_from(signature).ok()?;
    Some(key.verify_with_context(message, &[], &signature))
}

/// One set of ML-DSA.
#[derive(Debug)]
struct MlDsa {
    id: AlgorithmIdentifier,
    verify: Verify,
    /// Whether signatures are changed first, and which.
    spoilt: Option<bool>,
}

impl SignatureVerificationAlgorithm for MlDsa {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let mut signature = signature.to_vec();
        if self.spoilt == Some(message.starts_with(&OF_HANDSHAKE))
            && let Some(byte) = signature.get_mut(40)
        {
            *byte ^= 1;
        }
        match (self.verify)(public_key, message, &signature) {
            Some(true) => Ok(()),
            _ => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.id
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.id
    }
}
