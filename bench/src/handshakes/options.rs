//! The options of `lockstep-bench handshakes`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lockstep_common::Failure;

use super::demand::Demand;
use super::identity::Kind;
use super::keyd::Keyd;
use super::parameters::{Group, Side, Version};
use super::program::Program;
use crate::format::{seconds_within, within};

/// How long the load warms up if nothing else is asked for, and turns are long enough.
const LONGEST_WARM_UP: Duration = Duration::from_millis(250);

/// Puts a TLS server under load, with OpenSSL alone and with lockstep in turn, and compares them.
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// The server: embedded (threads over libssl in this program), haproxy, apache, nginx or
    /// stunnel. That is the installed one, or with a path any other:
    /// haproxy=/opt/haproxy-3.2/sbin/haproxy
    #[arg(long, value_name = "NAME[=PATH]", default_value = "embedded")]
    pub server: Program,
    /// The kind of the server's key
    #[arg(long, value_name = "KIND", value_enum, default_value = "rsa2048")]
    pub key: Kind,
    /// The group of the key agreement: x25519, p256, p384, x25519mlkem768, secp256r1mlkem768
    /// or secp384r1mlkem1024
    #[arg(long, value_name = "NAME", default_value = "x25519")]
    pub group: Group,
    /// Another group for the server without lockstep, whose OpenSSL may lack the first
    #[arg(long, value_name = "NAME")]
    stock_group: Option<Group>,
    /// With lockstep, have the key daemon compute with the server's key; the CPU time of the daemon
    /// counts as the server's
    #[arg(long, value_name = "HOW", value_enum)]
    pub keyd: Option<Keyd>,
    /// Start haproxy with this configuration, as it is, on both sides in turn. Clients ask for the
    /// server's own certificate, and verify its signatures
    #[arg(
        long, value_name = "FILE",
        conflicts_with_all = ["key", "stock_group", "keyd", "workers", "page"]
    )]
    pub config: Option<PathBuf>,
    /// Where in that configuration clients come, and the name that they ask for [default: its first
    /// `bind` line with `ssl`]
    #[arg(long, value_name = "HOST:PORT", requires = "config")]
    pub connect: Option<String>,
    /// Threads of haproxy, or worker processes of nginx [default: as many as the server has CPUs]
    #[arg(long, value_name = "N", value_parser = within(1_usize, 1024))]
    workers: Option<usize>,
    /// Let server and clients use all CPUs, rather than half of them each
    #[arg(long)]
    pub share_cpus: bool,
    /// The version of TLS
    #[arg(
        long = "tls",
        value_name = "VERSION",
        value_enum,
        default_value = "1.3"
    )]
    pub version: Version,
    /// Clients at a time, 1 to 1024
    #[arg(
        long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
        value_parser = within(1_usize, 1024)
    )]
    concurrency: Vec<usize>,
    /// Instead of so many clients at a time: handshakes that begin in a second, 1 to 100000, at
    /// random moments; a latency then counts from that moment
    #[arg(
        long, value_name = "LIST", value_delimiter = ',', conflicts_with = "concurrency",
        value_parser = within(1_usize, 100_000)
    )]
    rate: Vec<usize>,
    /// Also fetch a page of this size, as in 230K, and report the handshake's share of the server's
    /// CPU time; K is 1024 bytes and M 1024 K
    #[arg(long = "transfer", value_name = "SIZE", value_parser = size)]
    pub page: Option<u64>,
    /// How often each server has its turn
    #[arg(long, value_name = "N", default_value = "3", value_parser = within(1_usize, 1000))]
    pub rounds: usize,
    /// How long a turn lasts
    #[arg(
        long = "seconds", value_name = "S", default_value = "1", value_parser = seconds_within(0.05, 3600.0),
        allow_negative_numbers = true
    )]
    pub turn: Duration,
    /// Leave out the latencies of handshakes that begin in the first S seconds of a turn [default:
    /// a quarter of the turn, at most 0.25]
    #[arg(
        long, value_name = "S", value_parser = seconds_within(0.0, 3600.0),
        allow_negative_numbers = true
    )]
    warm_up: Option<Duration>,
    /// Write one JSON document: in place of the table, or into a file besides
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub json: Option<Option<PathBuf>>,
}

const NOTES: &str = "\
The main figure is the CPU time that the server needs for a handshake, the kernel's part included: \
it is the same whatever else the machine does. Clients and server are kept on different CPUs. Each \
handshake is a full one, on a connection of its own; its \
latency is the time from connecting to its end. The configuration that loads lockstep is the one \
that OPENSSL_CONF names, or else the openssl.cnf beside this program, or else \
/etc/lockstep/openssl.cnf. The exit status is 1 if a handshake failed.

With --config both sides have the user's own ports, so they run in turn, each started for its \
turn. \
Nothing that the configuration listens on may be in use. HAProxy runs in the foreground, and its \
health checks and its logs are as the configuration has them.";

impl Options {
    /// The loads, one after the other.
    pub fn demands(&self) -> Vec<Demand> {
        let (numbers, demand): (_, fn(usize) -> Demand) = match self.rate.is_empty() {
            true => (&self.concurrency, Demand::Clients),
            false => (&self.rate, Demand::Rate),
        };
        numbers.iter().copied().map(demand).collect()
    }

    /// How many connections there are at a time, at most.
    pub fn most_connections(&self) -> usize {
        let demands = self.demands().into_iter();
        demands.map(Demand::connections).max().unwrap_or(1)
    }

    /// How long a turn's load warms up.
    pub fn warm_up(&self) -> Duration {
        self.warm_up
            .unwrap_or_else(|| LONGEST_WARM_UP.min(self.turn / 4))
    }

    /// Threads or processes of the server, which has so many CPUs, where it has such workers.
    pub fn workers(&self, cpus: usize) -> Option<usize> {
        let workers = self.workers.unwrap_or(cpus);
        let has_workers = self.server.server.has_workers && self.config.is_none();
        has_workers.then_some(workers)
    }

    /// The group of one side.
    pub fn group(&self, side: Side) -> Group {
        match (side, self.stock_group) {
            (Side::Stock, Some(group)) => group,
            _ => self.group,
        }
    }

    /// Whether the options go together.
    pub fn check(&self) -> Result<(), Failure> {
        let mut groups = Side::ALL.map(|side| self.group(side)).into_iter();
        if self.version == Version::Tls12
            && let Some(group) = groups.find(|group| group.encapsulates())
        {
            let what = format!("TLS 1.2 has no group {}", group.name);
            return Err(Failure::usage(what).remedy("--tls 1.3, or --group x25519"));
        }
        if self.version == Version::Tls12 && matches!(self.key, Kind::MlDsa(_)) {
            let what = "TLS 1.2 has no signatures of ML-DSA";
            return Err(Failure::usage(what).remedy("--tls 1.3, or another --key"));
        }
        if self.config.is_some() && self.server.server.name != "haproxy" {
            let what = "--config takes the configuration of haproxy";
            return Err(Failure::usage(what).remedy("--server haproxy --config FILE"));
        }
        if self.workers.is_some() && !self.server.server.has_workers {
            let name = self.server.server.name;
            return Err(Failure::usage(format!(
                "{name} has no workers, but a thread for each client"
            ))
            .remedy("--workers with haproxy or nginx"));
        }
        if self.warm_up() >= self.turn {
            return Err(Failure::usage(
                "--warm-up takes less than the --seconds of a turn",
            ));
        }
        Ok(())
    }
}

/// Bytes, as in 230K.
fn size(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "it takes a size from 1 to 64M, as in 230K".to_owned())
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    let size = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=64 << 20).contains(&size).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("230K"), Some(230 << 10));
        assert_eq!(bytes("2m"), Some(2 << 20));
        assert_eq!(bytes("17"), Some(17));
        for bad in [
            "",
            "0",
            "K",
            "-1",
            "1.5M",
            "65M",
            "17G",
            "99999999999999999999K",
        ] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
