//! Clients by libssl, for groups that rustls lacks. They verify the same as the others, and keep no
//! sessions.
//!
//! The libssl of this program reads no configuration, so lockstep has no part in it: the reader of
//! the server's configuration has started libcrypto without one.

use std::io::{self, Read as _};
use std::net::TcpStream;

use lockstep_common::Failure;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslStream, SslVerifyMode,
};
use openssl::version;
use openssl::x509::X509;

use super::tls::{Library, Pumped, Tls};
use crate::handshakes::identity::HOST;
use crate::handshakes::parameters::{Group, Version};

/// What all connections have in common.
pub struct Libssl {
    context: SslContext,
}

impl Libssl {
    /// Clients that trust one authority, given as DER.
    pub fn new(authority: &[u8], version: Version, group: &Group) -> Result<Libssl, Failure> {
        let failed = |error: ErrorStack| Failure::new(format!("cannot make clients: {error}"));
        let mut builder = Libssl::builder(authority, version).map_err(failed)?;
        let group_and_curves = match version {
            // As rustls's clients do: a certificate's key may be on one of these curves. The
            // server has no group but the first one.
            Version::Tls12 => format!("{}:P-256:P-384", group.of_openssl()),
            Version::Tls13 => group.of_openssl().to_owned(),
        };
        builder
            .set_groups_list(&group_and_curves)
            .map_err(|_| unknown(group))?;
        Ok(Libssl {
            context: builder.build(),
        })
    }

    fn builder(authority: &[u8], version: Version) -> Result<SslContextBuilder, ErrorStack> {
        let mut builder = SslContext::builder(SslMethod::tls_client())?;
        builder.set_min_proto_version(Some(version.of_libssl()))?;
        builder.set_max_proto_version(Some(version.of_libssl()))?;
        builder.set_verify(SslVerifyMode::PEER);
        builder
            .cert_store_mut()
            .add_cert(X509::from_der(authority)?)?;
        Ok(builder)
    }
}

/// Fails unless this OpenSSL has the group.
pub fn insist_on(group: &Group) -> Result<(), Failure> {
    let failed = |error: ErrorStack| Failure::new(format!("libssl does not work: {error}"));
    let mut builder = SslContext::builder(SslMethod::tls()).map_err(failed)?;
    let set = builder.set_groups_list(group.of_openssl());
    set.map_err(|_| unknown(group))
}

/// This OpenSSL has no such group.
fn unknown(group: &Group) -> Failure {
    let what = format!(
        "{} has no TLS group {}, which the server without lockstep is to serve",
        version::version(),
        group.of_openssl()
    );
    Failure::new(what).remedy(match group.encapsulates() {
        true => {
            "compare with --stock-group x25519, or run it where OpenSSL 3.5 or later is \
             installed, which has X25519MLKEM768"
        }
        false => {
            "take x25519, p256 or p384, or another group by the name that OpenSSL has for it, as \
             P-521 or X448"
        }
    })
}

impl Library for Libssl {
    fn open(&self, socket: TcpStream, _: bool) -> io::Result<Box<dyn Tls>> {
        let open = || -> Result<SslStream<TcpStream>, ErrorStack> {
            let mut ssl = Ssl::new(&self.context)?;
            ssl.set_hostname(HOST)?;
            ssl.param_mut().set_host(HOST)?;
            SslStream::new(ssl, socket)
        };
        Ok(Box::new(Connection {
            tls: open()?,
            phase: Phase::Handshake,
            received: Vec::new(),
        }))
    }

    fn name(&self) -> String {
        version::version().to_owned()
    }
}

#[derive(PartialEq, Eq)]
enum Phase {
    Handshake,
    Data,
    Goodbye,
}

struct Connection {
    tls: SslStream<TcpStream>,
    phase: Phase,
    /// What has come for the application, and was not read yet.
    received: Vec<u8>,
}

impl Connection {
    /// What libssl could not do at once.
    fn stopped(error: &openssl::ssl::Error) -> Result<Pumped, String> {
        match error.code() {
            ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Ok(Pumped::Nothing),
            ErrorCode::ZERO_RETURN => Ok(Pumped::by(Ok(0))),
            ErrorCode::SYSCALL => Ok(Pumped::Closed(match error.io_error() {
                Some(error) => error.to_string(),
                None => "the server closed".to_owned(),
            })),
            _ => Err(error.to_string()),
        }
    }
}

impl Tls for Connection {
    fn socket(&self) -> &TcpStream {
        self.tls.get_ref()
    }

    fn pump(&mut self) -> Result<Pumped, String> {
        match self.phase {
            Phase::Handshake => match self.tls.connect() {
                Ok(()) => {
                    self.phase = Phase::Data;
                    Ok(Pumped::Something)
                }
                Err(error) => Connection::stopped(&error),
            },
            Phase::Data => {
                let mut bytes = [0; 16 << 10];
                match self.tls.ssl_read(&mut bytes) {
                    Ok(count) => {
                        self.received.extend(&bytes[..count]);
                        Ok(Pumped::Something)
                    }
                    Err(error) => Connection::stopped(&error),
                }
            }
            // What a server says to one that leaves is not looked at.
            Phase::Goodbye => Ok(Pumped::by(self.tls.get_mut().read(&mut [0; 4096]))),
        }
    }

    fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshake
    }

    fn is_resumed(&self) -> bool {
        self.tls.ssl().session_reused()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        // A request has room in the socket's buffer.
        let written = self.tls.ssl_write(bytes);
        written.map(|_| ()).map_err(|error| error.to_string())
    }

    fn read(&mut self, bytes: &mut [u8]) -> usize {
        let count = bytes.len().min(self.received.len());
        bytes[..count].copy_from_slice(&self.received[..count]);
        self.received.drain(..count);
        count
    }

    fn say_goodbye(&mut self) {
        // If the server has gone already, the next read says so.
        let _ = self.tls.shutdown();
        self.phase = Phase::Goodbye;
    }
}

#[cfg(test)]
mod tests {
    use lockstep_common::Scratch;

    use super::*;
    use crate::handshakes::identity::{Identity, Kind};

    #[test]
    fn a_group_that_openssl_lacks_is_named_with_its_version() {
        let scratch = Scratch::new("libssl-test").unwrap();
        let identity = Identity::make(Kind::Ed25519, scratch.path()).unwrap();
        let clients =
            |group: &str| Libssl::new(&identity.authority, Version::Tls13, &group.parse().unwrap());
        for group in ["p521", "x448"] {
            let failure = clients(group).err();
            assert!(failure.is_none(), "{group}: {failure:?}");
        }
        let failure = clients("p257").err().unwrap();
        assert!(failure.what.starts_with("OpenSSL 3.") || failure.what.starts_with("OpenSSL 4."));
        assert!(
            failure.what.contains("has no TLS group p257"),
            "{}",
            failure.what
        );
        let hybrid = clients("x25519mlkem768");
        assert_eq!(
            hybrid.is_ok(),
            version::number() >= 0x3050_0000,
            "OpenSSL has it since 3.5"
        );
        if let Err(failure) = hybrid {
            assert!(
                failure.what.contains("no TLS group X25519MLKEM768"),
                "{}",
                failure.what
            );
            assert!(failure.remedy.unwrap().contains("3.5"));
        }
    }
}
