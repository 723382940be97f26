//! Clients by rustls with ring: another implementation than the one under test. Signatures of
//! ML-DSA, which ring does not have, are checked by libcrypto alone.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lockstep_common::Failure;
use lockstep_engine::MlDsa;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::sign::Verifier;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{self, kx_group};
use rustls::crypto::{
    SupportedKxGroup, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName,
    SignatureVerificationAlgorithm, UnixTime, alg_id,
};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned, WantsVerifier,
};

use crate::handshakes::parameters::{Group, Version};

/// How long a server may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// A blocking connection.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Which servers clients take.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// Certificates of an authority, given as DER.
    Authority(&'a [u8]),
    /// Any: its certificate counts for nothing but the handshake's signature. The server is the
    /// user's own, on this machine.
    Any,
}

/// Whether this program's libcrypto has ML-DSA.
pub fn has_ml_dsa() -> bool {
    openssl::version::number() >= 0x3050_0000
}

/// The identifier of ML-DSA's algorithm with these parameters, in DER (RFC 9881).
pub fn algorithm(set: MlDsa) -> [u8; 13] {
    let arc = match set {
        MlDsa::MlDsa44 => 17,
        MlDsa::MlDsa65 => 18,
        MlDsa::MlDsa87 => 19,
    };
    [0x30, 0x0b, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, arc]
}

/// A client's configuration that offers this group first, and in TLS 1.3 nothing else.
fn config(trust: Trust<'_>, version: Version, group: Group) -> Result<ClientConfig, Failure> {
    let builder = builder(version, group.of_rustls)?;
    let builder = match trust {
        Trust::Authority(authority) => {
            let mut roots = RootCertStore::empty();
            let authority = CertificateDer::from(authority.to_vec());
            roots.add(authority).map_err(failed)?;
            builder.with_root_certificates(roots)
        }
        Trust::Any => {
            let verifier = Arc::new(AnyCertificate(*ALGORITHMS));
            let builder = builder.dangerous();
            builder.with_custom_certificate_verifier(verifier)
        }
    };
    Ok(builder.with_no_client_auth())
}

/// Clients that come to one host, and resume no session.
pub struct Client {
    config: Arc<ClientConfig>,
    group: Group,
    host: ServerName<'static>,
    /// Its answer to the server's greeting, where the server begins without TLS.
    pub upgrade: Option<&'static [u8]>,
}

impl Client {
    pub fn new(
        trust: Trust<'_>,
        version: Version,
        group: Group,
        host: ServerName<'static>,
    ) -> Result<Client, Failure> {
        let mut config = config(trust, version, group)?;
        config.resumption = Resumption::disabled();
        Ok(Client {
            config: config.into(),
            group,
            host,
            upgrade: None,
        })
    }

    /// A connection to a server.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    /// A connection that does not block, over a socket that is connected, or will be.
    pub fn open(&self, socket: TcpStream) -> io::Result<Connection> {
        let tls = ClientConnection::new(self.config.clone(), self.host.clone());
        Ok(Connection {
            tls: tls.map_err(io::Error::other)?,
            group: self.group,
            upgrade: self.upgrade,
            socket,
        })
    }

    /// Shakes hands.
    pub fn handshake(&self, socket: TcpStream) -> Result<Stream, String> {
        let tls = ClientConnection::new(self.config.clone(), self.host.clone());
        let mut stream = StreamOwned::new(tls.map_err(|error| error.to_string())?, socket);
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| error.to_string())?;
        }
        self.group.insist_on(&stream.conn)?;
        Ok(stream)
    }

    /// Says goodbye, and waits until the server has closed.
    pub fn leave(mut stream: Stream) -> Result<(), String> {
        stream.conn.send_close_notify();
        // The server may have closed.
        let _ = stream.flush();
        let mut bytes = [0; 4096];
        loop {
            match stream.sock.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

fn builder(
    version: Version,
    group: &'static dyn SupportedKxGroup,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Failure> {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![group];
    provider.signature_verification_algorithms = *ALGORITHMS;
    let versions = match version {
        Version::Tls12 => {
            // In TLS 1.2 this list also says on which curves a certificate's key may be: a server
            // with a key on another one refuses the client.
            let curves = [kx_group::SECP256R1, kx_group::SECP384R1].into_iter();
            let others = curves.filter(|curve| curve.name() != group.name());
            provider.kx_groups.extend(others);
            &[&TLS12]
        }
        Version::Tls13 => &[&TLS13],
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    builder.with_protocol_versions(versions).map_err(failed)
}

impl Group {
    /// Fails where a handshake has agreed on another group.
    fn insist_on(self, tls: &ClientConnection) -> Result<(), String> {
        let (agreed, own) = (tls.negotiated_key_exchange_group(), self.of_rustls.name());
        match agreed.map(|agreed| agreed.name()) {
            Some(other) if other != own => Err(format!(
                "the server took the group {other:?}, and not {own:?}"
            )),
            _ => Ok(()),
        }
    }
}

/// Ring's algorithms, and ML-DSA by this program's libcrypto where it has that.
static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let of_ring = ring::default_provider().signature_verification_algorithms;
    match has_ml_dsa() {
        false => of_ring,
        true => WebPkiSupportedAlgorithms {
            all: [of_ring.all, &ML_DSA].concat().leak(),
            mapping: [of_ring.mapping, &ML_DSA_SCHEMES].concat().leak(),
        },
    }
});

static ML_DSA: [&dyn SignatureVerificationAlgorithm; 3] = [
    &ByLibcrypto(MlDsa::MlDsa44),
    &ByLibcrypto(MlDsa::MlDsa65),
    &ByLibcrypto(MlDsa::MlDsa87),
];

static ML_DSA_SCHEMES: [(SignatureScheme, &[&dyn SignatureVerificationAlgorithm]); 3] = [
    (SignatureScheme::ML_DSA_44, &[ML_DSA[0]]),
    (SignatureScheme::ML_DSA_65, &[ML_DSA[1]]),
    (SignatureScheme::ML_DSA_87, &[ML_DSA[2]]),
];

/// Checks of signatures by libcrypto, without lockstep.
#[derive(Debug)]
struct ByLibcrypto(MlDsa);

impl SignatureVerificationAlgorithm for ByLibcrypto {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let verified = || -> Result<bool, ErrorStack> {
            // A SubjectPublicKeyInfo, whose lengths have two bytes.
            let length = |length: usize| (length as u16).to_be_bytes();
            let algorithm = algorithm(self.0);
            let bits = [
                &[3, 0x82],
                &length(public_key.len() + 1)[..],
                &[0],
                public_key,
            ]
            .concat();
            let inside = length(algorithm.len() + bits.len());
            let key = [&[0x30, 0x82], &inside[..], &algorithm, &bits].concat();
            let key = PKey::public_key_from_der(&key)?;
            Verifier::new_without_digest(&key)?.verify_oneshot(signature, message)
        };
        match verified() {
            Ok(true) => Ok(()),
            _ => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        match self.0 {
            MlDsa::MlDsa44 => alg_id::ML_DSA_44,
            MlDsa::MlDsa65 => alg_id::ML_DSA_65,
            MlDsa::MlDsa87 => alg_id::ML_DSA_87,
        }
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.public_key_alg_id()
    }
}

fn failed(error: rustls::Error) -> Failure {
    Failure::new(format!("cannot make clients: {error}"))
}

/// It verifies signatures, and takes every certificate.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The client's end of a connection that does not block.
pub struct Connection {
    tls: ClientConnection,
    group: Group,
    /// The message before TLS begins.
    upgrade: Option<&'static [u8]>,
    pub socket: TcpStream,
}

/// The progress of a [`Connection`].
pub enum Pumped {
    /// It waits for the socket.
    Nothing,
    Something,
    /// No more bytes can come or go.
    Closed(String),
}

impl Connection {
    /// Sends and receives as much as it can without waiting. An error is one of TLS.
    pub fn pump(&mut self) -> Result<Pumped, String> {
        if let Some(answer) = self.upgrade {
            // On this machine a greeting comes whole; the rest of one would be no TLS.
            match self.socket.read(&mut [0; 1024]) {
                Ok(0) => return Ok(Pumped::Closed("the server closed".to_owned())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Pumped::Nothing),
                Err(error) => return Ok(Pumped::Closed(error.to_string())),
            }
            let said = self.socket.write_all(answer);
            said.map_err(|error| error.to_string())?;
            self.upgrade = None;
        }
        let mut written = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => written = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Ok(Pumped::Closed(error.to_string())),
            }
        }
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => return Ok(Pumped::Closed("the server closed".to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(match written {
                    true => Pumped::Something,
                    false => Pumped::Nothing,
                });
            }
            Err(error) => return Ok(Pumped::Closed(error.to_string())),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // Sends the reason to the server. Whether it arrives does not matter any more.
            let _ = self.tls.write_tls(&mut self.socket);
            return Err(error.to_string());
        }
        self.group.insist_on(&self.tls)?;
        Ok(Pumped::Something)
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = self.tls.writer().write_all(bytes);
        written.map_err(|error| error.to_string())
    }

    /// Reads bytes for the application; zero if there are none.
    pub fn read(&mut self, bytes: &mut [u8]) -> usize {
        self.tls.reader().read(bytes).unwrap_or(0)
    }

    /// Says that nothing more will be written.
    pub fn say_goodbye(&mut self) {
        self.tls.send_close_notify();
    }
}
