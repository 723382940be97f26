//! Clients by rustls with ring: another implementation than the one under test.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockstep_common::Failure;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::ring::{self, kx_group};
use rustls::crypto::{
    SupportedKxGroup, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, HandshakeKind,
    NamedGroup, RootCertStore, SignatureScheme, StreamOwned, WantsVerifier,
};

use crate::handshakes::parameters::{Group, Version};

/// How many tickets are kept; each serves once.
const TICKETS: usize = 1024;

/// How long a server may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// A blocking connection.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Which servers clients take.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// Those that an authority has certified, given as DER.
    Authority(&'a [u8]),
    /// Any: its certificate counts for nothing but the handshake's signature. The server is the
    /// user's own, on this machine.
    Any,
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
            let known = ring::default_provider().signature_verification_algorithms;
            let verifier = Arc::new(AnyCertificate(known));
            let builder = builder.dangerous();
            builder.with_custom_certificate_verifier(verifier)
        }
    };
    Ok(builder.with_no_client_auth())
}

/// A client that blocks, and resumes no session.
pub struct Client {
    config: Arc<ClientConfig>,
    group: Group,
    host: ServerName<'static>,
}

impl Client {
    /// A client that comes to this host.
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
        })
    }

    /// A connection to a server.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    /// Shakes hands.
    pub fn handshake(&self, socket: TcpStream) -> Result<Stream, String> {
        let tls = ClientConnection::new(self.config.clone(), self.host.clone());
        let mut stream = StreamOwned::new(tls.map_err(|error| error.to_string())?, socket);
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| error.to_string())?;
        }
        insist_on(self.group.of_rustls, &stream.conn)?;
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

/// Fails where a handshake has agreed on another group than the one that its client was made for.
fn insist_on(group: &dyn SupportedKxGroup, tls: &ClientConnection) -> Result<(), String> {
    let agreed = tls.negotiated_key_exchange_group();
    match agreed.map(|agreed| agreed.name()) {
        Some(other) if other != group.name() => Err(format!(
            "the server took the group {other:?}, and not {:?}",
            group.name()
        )),
        _ => Ok(()),
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

/// What all connections have in common.
pub struct Rustls {
    /// Offers no session, but keeps those it gets.
    full: Arc<ClientConfig>,
    /// Offers a session where there is one.
    resuming: Arc<ClientConfig>,
    group: &'static dyn SupportedKxGroup,
    host: ServerName<'static>,
}

impl Rustls {
    /// Clients with this group that come to this host; they may keep sessions.
    pub fn new(
        trust: Trust<'_>,
        version: Version,
        group: Group,
        host: ServerName<'static>,
        keeps_sessions: bool,
    ) -> Result<Rustls, Failure> {
        let mut full = config(trust, version, group)?;
        let mut resuming = full.clone();
        let sessions = Arc::<Mutex<Sessions>>::default();
        let store = |offers| {
            let sessions = sessions.clone();
            Resumption::store(Arc::new(Store { sessions, offers }))
        };
        full.resumption = match keeps_sessions {
            true => store(false),
            false => Resumption::disabled(),
        };
        resuming.resumption = store(true);
        Ok(Rustls {
            full: full.into(),
            resuming: resuming.into(),
            group: group.of_rustls,
            host,
        })
    }

    /// A connection over a socket that is connected, or will be. It may offer a session.
    pub fn open(&self, socket: TcpStream, offers: bool) -> io::Result<Connection> {
        let config = match offers {
            true => &self.resuming,
            false => &self.full,
        };
        let tls = ClientConnection::new(config.clone(), self.host.clone());
        Ok(Connection {
            tls: tls.map_err(io::Error::other)?,
            group: self.group,
            socket,
        })
    }
}

/// The client's end of a connection that does not block.
pub struct Connection {
    tls: ClientConnection,
    group: &'static dyn SupportedKxGroup,
    pub socket: TcpStream,
}

/// What a [`Connection`] could do.
pub enum Pumped {
    /// It waits for the socket.
    Nothing,
    Something,
    /// No more bytes can come or go.
    Closed(String),
}

impl Connection {
    /// Sends and receives what it can without waiting. An error is one of TLS.
    pub fn pump(&mut self) -> Result<Pumped, String> {
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
        insist_on(self.group, &self.tls)?;
        Ok(Pumped::Something)
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the handshake resumed a session.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = self.tls.writer().write_all(bytes);
        written.map_err(|error| error.to_string())
    }

    /// What has come for the application; nothing if that is all.
    pub fn read(&mut self, bytes: &mut [u8]) -> usize {
        self.tls.reader().read(bytes).unwrap_or(0)
    }

    /// Says that nothing more will be written.
    pub fn say_goodbye(&mut self) {
        self.tls.send_close_notify();
    }
}

/// The sessions of all clients.
#[derive(Debug, Default)]
struct Sessions {
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

/// How a client sees them.
#[derive(Debug)]
struct Store {
    sessions: Arc<Mutex<Sessions>>,
    offers: bool,
}

impl Store {
    fn with<R>(&self, use_them: impl FnOnce(&mut Sessions) -> R) -> R {
        use_them(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientSessionStore for Store {
    // There is only one group to choose.
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.with(|sessions| sessions.tls12 = Some(value));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(|sessions| sessions.tls12.clone())
            .filter(|_| self.offers)
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.with(|sessions| sessions.tls12 = None);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.with(|sessions| {
            sessions.tls13.truncate(TICKETS - 1);
            sessions.tls13.push_front(value);
        });
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        match self.offers {
            true => self.with(|sessions| sessions.tls13.pop_front()),
            false => None,
        }
    }
}
