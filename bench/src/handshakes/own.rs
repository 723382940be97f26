//! A HAProxy with the user's own configuration, unchanged: its addresses, and obstacles to a second
//! HAProxy beside the running one.
//!
//! Both sides have the same ports, so they run in turn. HAProxy shares a port with another HAProxy
//! and replaces the socket of its administrator, so all its addresses must be free.

use std::cell::Cell;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockstep_common::{Failure, is_root};
use openssl::pkey::Id;
use openssl::x509::X509;
use rustls::pki_types::ServerName;

use super::identity::{Kind, host as named};
use super::over_rustls::{Client, Trust, algorithm};
use super::parameters::{Group, Version};
use crate::subject::nid;

/// The user's configuration, and where clients find the server.
pub struct Own {
    pub path: PathBuf,
    pub address: SocketAddr,
    /// The name that clients ask for.
    pub name: ServerName<'static>,
    listeners: Vec<Listener>,
    /// Sockets in the file system that the server makes.
    sockets: Vec<PathBuf>,
    /// Whether none of these was there before.
    had_none: Cell<bool>,
}

/// An address on which a server listens.
#[derive(Debug, PartialEq, Eq)]
enum Listener {
    Tcp(SocketAddr),
    Udp(SocketAddr),
}

/// The important parts of a configuration's text.
#[derive(Debug, Default)]
struct Parsed {
    listeners: Vec<Listener>,
    sockets: Vec<PathBuf>,
    /// The first place for TLS.
    tls: Option<SocketAddr>,
    /// A line that only root can have.
    needs_root: Option<String>,
}

impl Own {
    /// Reads a configuration. `connect` is HOST:PORT, if the user names the place.
    pub fn read(path: &Path, connect: Option<&str>) -> Result<Own, Failure> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
        let parsed = Parsed::of(&text).map_err(|mut failure| {
            failure.what = format!("{shown}: {}", failure.what);
            failure
        })?;
        if let Some(line) = parsed.needs_root.as_ref().filter(|_| !is_root()) {
            return Err(
                Failure::new(format!("{shown} has `{line}`, and only root can do that"))
                    .remedy("run this as root, or measure a copy without the line"),
            );
        }
        let (host, port) = match connect {
            None => (None, None),
            Some(connect) => {
                let (host, port) = place(connect)?;
                (Some(host), Some(port))
            }
        };
        let given = host.as_ref().and_then(|host| host.parse::<Ipv4Addr>().ok());
        let address = match (given, port, parsed.tls) {
            (Some(ip), Some(port), _) => SocketAddr::from((ip, port)),
            (None, Some(port), Some(tls)) => SocketAddr::new(tls.ip(), port),
            (None, Some(port), None) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            (_, None, Some(tls)) => tls,
            (_, None, None) => {
                return Err(Failure::new(format!(
                    "{shown} has no `bind` line with `ssl` and an address of IPv4"
                ))
                .remedy("name the place with --connect HOST:PORT"));
            }
        };
        // Nobody else is to get the load.
        let is_own = |listener: &Listener| match listener {
            Listener::Tcp(listener) => {
                let (own, wanted) = (listener.ip(), address.ip());
                listener.port() == address.port() && (own.is_unspecified() || own == wanted)
            }
            Listener::Udp(_) => false,
        };
        if !parsed.listeners.iter().any(is_own) {
            return Err(
                Failure::new(format!("{shown} has no `bind` line for {address}"))
                    .remedy("name a place of this configuration with --connect HOST:PORT"),
            );
        }
        let host = host.unwrap_or_else(|| address.ip().to_string());
        let name = named(&host)?;
        Ok(Own {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            address,
            name,
            listeners: parsed.listeners,
            sockets: parsed.sockets,
            had_none: Cell::new(false),
        })
    }

    /// Has the program check the configuration, and looks whether everything is free.
    pub fn check(&self, program: &Path) -> Result<(), Failure> {
        let shown = self.path.display();
        if let Some(socket) = self.sockets.iter().find(|socket| socket.exists()) {
            return Err(Failure::new(format!(
                "{shown} has a socket at {}, which is there already: the server that has it would \
                 lose it",
                socket.display()
            ))
            .remedy("measure a copy without that socket, and with other ports"));
        }
        self.had_none.set(true);
        self.insist_on_free()?;
        let mut command = Command::new(program);
        command.args(["-c", "-f"]).arg(&self.path);
        command.env_remove("OPENSSL_CONF").stdin(Stdio::null());
        let output = command.output().map_err(|error| {
            Failure::new(format!("cannot start {}: {error}", program.display()))
        })?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let text = [output.stderr, output.stdout].concat();
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                Err(
                    Failure::new(format!("HAProxy does not take {shown}: {text}"))
                        .remedy("haproxy -c -f FILE shows the same"),
                )
            }
        }
    }

    /// Fails if something else listens where the server will.
    pub fn insist_on_free(&self) -> Result<(), Failure> {
        let shown = self.path.display();
        for listener in &self.listeners {
            let (address, bound) = match listener {
                Listener::Tcp(address) => (address, TcpListener::bind(address).map(drop)),
                Listener::Udp(address) => (address, UdpSocket::bind(address).map(drop)),
            };
            let Err(error) = bound else { continue };
            let failure = Failure::new(format!("{shown} binds {address}, and: {error}"));
            return Err(failure.remedy(match error.kind() {
                ErrorKind::AddrInUse => {
                    "end the server that listens there for the time, or measure a copy with \
                     another port"
                }
                ErrorKind::PermissionDenied => {
                    "run this as root, or measure a copy with a port from 1024 on"
                }
                _ => "measure a copy with an address of this machine",
            }));
        }
        Ok(())
    }

    /// Arguments of the program: it stays in the foreground, whatever the configuration says.
    pub fn arguments(&self) -> Vec<std::ffi::OsString> {
        vec![
            "-db".into(),
            "-q".into(),
            "-f".into(),
            self.path.clone().into(),
        ]
    }

    /// The kind of the server's key, by a handshake.
    pub fn kind(&self, version: Version, group: Group) -> Result<Kind, Failure> {
        let address = self.address;
        let client = Client::new(Trust::Any, version, group, self.name.clone())?;
        let handshake = || -> Result<Vec<u8>, String> {
            let socket = Client::connect(address).map_err(|error| error.to_string())?;
            let stream = client.handshake(socket)?;
            let certificates = stream.conn.peer_certificates().unwrap_or_default();
            let first = certificates.first().ok_or("it has no certificate")?;
            Ok(first.to_vec())
        };
        let certificate = handshake().map_err(|why| {
            Failure::new(format!("no handshake with {address} succeeds: {why}"))
                .remedy("--connect, --group and --tls say where and how clients come")
        })?;
        let kind = kind_of(&certificate).ok_or_else(|| {
            Failure::new("lockstep has no lanes for the key of this server's certificate")
                .remedy("RSA of 2048, 3072 or 4096 bits, P-256, P-384, Ed25519 or ML-DSA")
        })?;
        kind.insist_on()?;
        Ok(kind)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let made = self.sockets.iter().filter(|_| self.had_none.get());
        for socket in made {
            let is_socket = |path: &PathBuf| {
                fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
            };
            if is_socket(socket) && std::os::unix::net::UnixStream::connect(socket).is_err() {
                let _ = fs::remove_file(socket);
            }
        }
    }
}

/// The host and the port in HOST:PORT.
fn place(connect: &str) -> Result<(String, u16), Failure> {
    let parsed = connect
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    parsed
        .filter(|(host, _)| !host.is_empty())
        .ok_or_else(|| Failure::usage("--connect takes HOST:PORT, as in www.example.org:8443"))
}

impl Parsed {
    fn of(text: &str) -> Result<Parsed, Failure> {
        let mut parsed = Parsed::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["bind", addresses, options @ ..] => {
                    for address in addresses.split(',') {
                        parsed.bind(address, options)?;
                    }
                }
                ["stats", "socket", address, ..] => parsed.bind(address, &[])?,
                [
                    word @ ("master-worker" | "peer" | "dgram-bind" | "unix-bind"),
                    ..,
                ] => {
                    return Err(Failure::new(format!(
                        "it has a line `{word}`, with which the server does more than serve"
                    ))
                    .remedy("measure a copy without such lines"));
                }
                [
                    word @ ("chroot" | "user" | "group" | "uid" | "gid"),
                    rest @ ..,
                ] => {
                    let is_global = rest.len() == 1;
                    if is_global && parsed.needs_root.is_none() {
                        parsed.needs_root = Some([&[*word], rest].concat().join(" "));
                    }
                }
                _ => {}
            }
        }
        Ok(parsed)
    }

    fn bind(&mut self, address: &str, options: &[&str]) -> Result<(), Failure> {
        let unreadable = || {
            Failure::new(format!(
                "`{address}` is no address that can be looked at beforehand"
            ))
            .remedy("measure a copy with plain addresses, as in bind 127.0.0.1:8443 ssl crt ...")
        };
        if let Some(path) = address
            .strip_prefix("unix@")
            .or(Some(address).filter(|a| a.starts_with('/')))
        {
            // Relative paths are elsewhere, and so are paths that hold variables.
            match path.starts_with('/') && !path.contains(['$', '"', '\'', '\\']) {
                true => self.sockets.push(path.into()),
                false => return Err(unreadable()),
            }
            return Ok(());
        }
        let (udp, rest) = match address.split_once('@') {
            Some(("quic4" | "quic6" | "udp" | "udp4" | "udp6", rest)) => (true, rest),
            Some(("ipv4" | "ipv6" | "tcp" | "tcp4" | "tcp6", rest)) => (false, rest),
            Some(_) => return Err(unreadable()),
            None => (false, address),
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(unreadable)?;
        let port: u16 = port.parse().map_err(|_| unreadable())?;
        let ip: IpAddr = match host.trim_start_matches('[').trim_end_matches(']') {
            "" | "*" => Ipv4Addr::UNSPECIFIED.into(),
            "::" => Ipv6Addr::UNSPECIFIED.into(),
            ip => ip.parse().map_err(|_| unreadable())?,
        };
        let socket = SocketAddr::new(ip, port);
        if udp {
            self.listeners.push(Listener::Udp(socket));
            return Ok(());
        }
        self.listeners.push(Listener::Tcp(socket));
        let has = |option: &str| options.contains(&option);
        let verifies = options
            .windows(2)
            .any(|pair| pair[0] == "verify" && pair[1] != "none");
        if self.tls.is_some() || !has("ssl") {
            return Ok(());
        }
        let unable = [("accept-proxy", has("accept-proxy")), ("verify", verifies)];
        if let Some((option, _)) = unable.into_iter().find(|(_, has)| *has) {
            return Err(Failure::new(format!(
                "`bind {address}` has `{option}`, which the clients of this program cannot do"
            ))
            .remedy("measure a copy without it"));
        }
        let by_both = ip.is_ipv6() && ip.is_unspecified() && has("v4v6");
        if ip.is_ipv4() || by_both {
            let ip = match ip {
                IpAddr::V4(ip) if !ip.is_unspecified() => ip,
                _ => Ipv4Addr::LOCALHOST,
            };
            self.tls = Some(SocketAddr::from((ip, port)));
        }
        Ok(())
    }
}

/// The kind of the key in a certificate.
fn kind_of(certificate: &[u8]) -> Option<Kind> {
    let key = X509::from_der(certificate).ok()?.public_key().ok()?;
    let curve = key.ec_key().ok();
    let curve = curve.and_then(|key| key.group().curve_name());
    let encoded = key.public_key_to_der().unwrap_or_default();
    let is_of = |kind: &Kind| match kind {
        Kind::Rsa(size) => key.id() == Id::RSA && size.bits() as u32 == key.bits(),
        Kind::Ecdsa(known) => curve == Some(nid(*known)),
        Kind::Ed25519 => key.id() == Id::ED25519,
        Kind::MlDsa(set) => encoded
            .get(4..)
            .is_some_and(|rest| rest.starts_with(&algorithm(*set))),
    };
    Kind::ALL.into_iter().find(is_of)
}

#[cfg(test)]
mod tests {
    use lockstep_common::Scratch;

    use super::super::identity::Identity;
    use super::*;

    const USUAL: &str = "
global
    stats socket /nowhere/admin.sock mode 660 level admin # the administrator's
    daemon
    user haproxy

userlist people
    user somebody insecure-password pw

frontend plain
    bind *:8080,:::8081 v4v6
frontend tls
    bind ipv4@:8443 ssl crt /etc/ssl/site.pem alpn h2
    bind quic4@:8443 ssl crt /etc/ssl/site.pem
";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_a_configuration_listens_on_is_found() {
        let parsed = Parsed::of(USUAL).unwrap();
        assert_eq!(parsed.sockets, [PathBuf::from("/nowhere/admin.sock")]);
        assert_eq!(
            parsed.listeners,
            [
                Listener::Tcp(address("0.0.0.0:8080")),
                Listener::Tcp(address("[::]:8081")),
                Listener::Tcp(address("0.0.0.0:8443")),
                Listener::Udp(address("0.0.0.0:8443")),
            ]
        );
        assert_eq!(parsed.tls, Some(address("127.0.0.1:8443")));
        assert_eq!(parsed.needs_root.as_deref(), Some("user haproxy"));
        for (line, tls) in [
            ("bind 10.0.0.1:443 ssl crt a", Some("10.0.0.1:443")),
            ("bind [::]:443 v4v6 ssl crt a", Some("127.0.0.1:443")),
            ("bind [::1]:443 ssl crt a", None),
            ("bind :443", None),
            (
                "bind 10.0.0.1:443 ssl crt a verify none",
                Some("10.0.0.1:443"),
            ),
            ("  # bind :443 ssl crt a", None),
        ] {
            assert_eq!(Parsed::of(line).unwrap().tls, tls.map(address), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for (line, reason) in [
            (
                "bind \"${ADDRESS}\":443 ssl crt a",
                "no address that can be",
            ),
            ("bind :8000-8010", "no address that can be"),
            ("bind abns@name", "no address that can be"),
            ("bind fd@3 ssl crt a", "no address that can be"),
            ("bind unix@relative.sock", "no address that can be"),
            ("bind www.example.org:443 ssl", "no address that can be"),
            (
                "bind :443 ssl crt a accept-proxy",
                "`accept-proxy`, which the clients",
            ),
            (
                "bind :443 ssl crt a ca-file b verify required",
                "`verify`, which the",
            ),
            ("master-worker", "`master-worker`"),
            ("peer here 127.0.0.1:10000", "`peer`"),
            ("unix-bind prefix /run", "`unix-bind`"),
            ("stats socket /run/${NAME}.sock", "no address that can be"),
        ] {
            let failure = Parsed::of(line).unwrap_err();
            assert!(failure.what.contains(reason), "{line}: {}", failure.what);
            assert!(failure.remedy.is_some(), "{line}");
        }
    }

    #[test]
    fn clients_come_to_a_place_of_the_configuration_and_to_no_other() {
        let scratch = Scratch::new("own-test").unwrap();
        let path = scratch.path().join("haproxy.cfg");
        fs::write(
            &path,
            "frontend f\n  bind 127.0.0.1:8443 ssl crt a\n  bind :9443 ssl crt a\n",
        )
        .unwrap();
        let read = |connect: Option<&str>| Own::read(&path, connect);
        let own = read(None).unwrap();
        assert_eq!(own.address, address("127.0.0.1:8443"));
        assert_eq!(own.name.to_str(), "127.0.0.1");
        let own = read(Some("www.example.org:9443")).unwrap();
        assert_eq!(own.address, address("127.0.0.1:9443"));
        assert_eq!(own.name.to_str(), "www.example.org");
        for (connect, reason) in [
            ("www.example.org:443", "no `bind` line for 127.0.0.1:443"),
            ("192.0.2.1:8443", "no `bind` line for 192.0.2.1:8443"),
            ("8443", "HOST:PORT"),
            (":8443", "HOST:PORT"),
        ] {
            let Err(failure) = read(Some(connect)) else {
                panic!("{connect} is taken");
            };
            assert!(failure.what.contains(reason), "{connect}: {}", failure.what);
        }
        fs::write(&path, "frontend f\n  bind :80\n").unwrap();
        let Err(failure) = read(None) else {
            panic!("there is no TLS");
        };
        assert!(
            failure.what.contains("no `bind` line with `ssl`"),
            "{}",
            failure.what
        );
    }

    #[test]
    fn a_place_that_somebody_has_is_not_shared() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let scratch = Scratch::new("own-test").unwrap();
        let path = scratch.path().join("haproxy.cfg");
        let bind = format!("bind {} ssl crt a\n", taken.local_addr().unwrap());
        fs::write(&path, bind).unwrap();
        let own = Own::read(&path, None).unwrap();
        let failure = own.insist_on_free().unwrap_err();
        assert!(failure.what.contains("in use"), "{}", failure.what);
        drop(taken);
        // Another test may have forked meanwhile, and its child has the socket until it executes.
        let is_free = || own.insist_on_free().is_ok();
        let mut waits = (0..200).take_while(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            true
        });
        assert!(is_free() || waits.any(|_| is_free()));
    }

    #[test]
    fn the_kind_of_a_key_is_read_from_its_certificate() {
        let scratch = Scratch::new("own-test").unwrap();
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_known()) {
            let directory = scratch.path().join(kind.name());
            fs::create_dir(&directory).unwrap();
            let identity = Identity::make(kind, &directory).unwrap();
            let pem = fs::read(&identity.certificate).unwrap();
            let der = X509::from_pem(&pem).unwrap().to_der().unwrap();
            assert_eq!(kind_of(&der), Some(kind));
        }
        assert_eq!(kind_of(b"no certificate"), None);
    }
}
