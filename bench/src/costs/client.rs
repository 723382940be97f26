//! The client of the servers that are measured: rustls, on the other side of the connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lockstep_common::Failure;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::handshakes::{Group, HOST, Version, over_rustls};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects to servers that an authority has certified; no session is resumed.
pub struct Client {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl Client {
    /// `authority` is a certificate as DER.
    pub fn new(authority: &[u8], group: &str) -> Result<Client, Failure> {
        let failed = |why: &str| Failure::new(format!("cannot make a client: {why}"));
        let group: Group = group.parse().map_err(|why: String| failed(&why))?;
        let group = over_rustls::group(&group).ok_or_else(|| failed("it lacks the group"))?;
        let mut config = over_rustls::config(authority, Version::Tls13, group)?;
        config.resumption = Resumption::disabled();
        Ok(Client {
            config: config.into(),
            host: ServerName::try_from(HOST).map_err(|_| failed("its host has no name"))?,
        })
    }

    /// A connection to a server.
    pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    /// Shakes hands.
    pub fn handshake(
        &self,
        socket: TcpStream,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
        let tls = ClientConnection::new(self.config.clone(), self.host.clone());
        let mut stream = StreamOwned::new(tls.map_err(|error| error.to_string())?, socket);
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| error.to_string())?;
        }
        Ok(stream)
    }

    /// Says goodbye, and waits until the server has closed.
    pub fn leave(mut stream: StreamOwned<ClientConnection, TcpStream>) -> Result<(), String> {
        stream.conn.send_close_notify();
        // The server may have closed.
        let _ = stream.flush();
        let mut bytes = [0; 4096];
        loop {
            match stream.sock.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
