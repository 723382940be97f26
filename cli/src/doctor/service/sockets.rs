//! Addresses at which processes listen for TCP connections.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::files::entries;
use crate::process::Process;

/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The sockets that a process has open, by their inodes.
pub fn open_sockets(process: &Process) -> BTreeSet<u64> {
    let links = entries(&process.about("fd")).filter_map(|path| fs::read_link(path).ok());
    links
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse().ok()
        })
        .collect()
}

/// Returns the processes among these that listen for TCP connections.
pub fn listeners(processes: &[Process]) -> Vec<&Process> {
    // Most processes share one network namespace. Its tables may be long, so they are read once.
    let mut tables: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    let listens = |process: &&Process| {
        let own = open_sockets(process);
        if own.is_empty() {
            return false;
        }
        let namespace = fs::read_link(process.about("ns/net")).unwrap_or_default();
        let table = tables.entry(namespace).or_insert_with(|| {
            let listening = table(process).into_iter();
            listening.map(|(inode, _)| inode).collect()
        });
        !own.is_disjoint(table)
    };
    processes.iter().filter(listens).collect()
}

/// Returns the addresses of these listening sockets, in the network namespace of this process.
pub fn listening(process: &Process, sockets: &BTreeSet<u64>) -> BTreeSet<SocketAddr> {
    let entries = table(process).into_iter();
    let own = entries.filter(|(inode, _)| sockets.contains(inode));
    own.map(|(_, address)| address).collect()
}

/// Listening sockets in the network namespace of a process: inodes and addresses.
fn table(process: &Process) -> Vec<(u64, SocketAddr)> {
    let tables = ["net/tcp", "net/tcp6"].map(|table| process.text(table).unwrap_or_default());
    tables.iter().flat_map(|table| sockets_in(table)).collect()
}

/// Listening sockets of a table of the kernel: inodes and addresses.
fn sockets_in(table: &str) -> impl Iterator<Item = (u64, SocketAddr)> {
    table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        (*state == LISTENING).then_some((inode.parse().ok()?, address(local)?))
    })
}

/// An address as the kernel prints it: words in the byte order of the machine, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let words = host.as_bytes().chunks(8).map(|digits| {
        let digits = digits.first_chunk::<8>()?;
        let digits = std::str::from_utf8(digits).ok()?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let host = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some(SocketAddr::new(host, u16::from_str_radix(port, 16).ok()?))
}

/// Returns the address that reaches a listener over the loopback interface, if there is one.
pub fn by_loopback(listener: SocketAddr) -> Option<SocketAddr> {
    let host = match listener.ip() {
        host if host.is_loopback() => host,
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => return None,
    };
    Some(SocketAddr::new(host, listener.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:480B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1 0
   1: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 778 1 0
   2: 0100007F:480B 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 779 1 0
";
    const TCP6: &str = "\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 780 1
   1: 000080FE000000000000000001000000:0051 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 781 1
";

    #[test]
    fn listeners_are_read_from_the_tables() {
        let found: Vec<_> = sockets_in(TCP).chain(sockets_in(TCP6)).collect();
        let shown: Vec<String> = found.iter().map(|(i, at)| format!("{i} {at}")).collect();
        assert_eq!(
            shown,
            [
                "777 127.0.0.1:18443",
                "778 0.0.0.0:443",
                "780 [::1]:80",
                "781 [fe80::1]:81"
            ]
        );
        let reached = found.into_iter().map(|(_, at)| by_loopback(at));
        let reached: Vec<_> = reached.map(|at| at.map(|at| at.to_string())).collect();
        let expected = [
            Some("127.0.0.1:18443"),
            Some("127.0.0.1:443"),
            Some("[::1]:80"),
            None,
        ];
        assert_eq!(reached, expected.map(|at| at.map(str::to_owned)));
        assert_eq!(address("0100007F"), None);
        assert_eq!(address("0100:1"), None);
    }
}
