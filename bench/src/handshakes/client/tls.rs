//! The TLS library of a client, as a trait.

use std::io::{self, ErrorKind};
use std::net::TcpStream;

/// What makes connections.
pub trait Library: Sync {
    /// A connection over a socket that is connected, or will be. It may offer a session.
    fn open(&self, socket: TcpStream, offers: bool) -> io::Result<Box<dyn Tls>>;

    /// Its name, for the report.
    fn name(&self) -> String;
}

/// The client's end of a connection.
pub trait Tls {
    fn socket(&self) -> &TcpStream;

    /// Sends and receives what it can without waiting. An error is one of TLS.
    fn pump(&mut self) -> Result<Pumped, String>;

    fn is_handshaking(&self) -> bool;

    /// Whether the handshake resumed a session.
    fn is_resumed(&self) -> bool;

    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// What has come for the application; nothing if that is all.
    fn read(&mut self, bytes: &mut [u8]) -> usize;

    /// Says that nothing more will be written.
    fn say_goodbye(&mut self);
}

/// What a [`Tls`] could do.
pub enum Pumped {
    /// It waits for the socket.
    Nothing,
    Something,
    /// No more bytes can come or go.
    Closed(String),
}

impl Pumped {
    /// What reading from a socket came to.
    pub fn by(read: io::Result<usize>) -> Pumped {
        match read {
            Ok(0) => Pumped::Closed("the server closed".to_owned()),
            Ok(_) => Pumped::Something,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Pumped::Nothing,
            Err(error) => Pumped::Closed(error.to_string()),
        }
    }
}
