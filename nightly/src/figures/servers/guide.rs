//! The tables of the guide for administrators, docs/user/servers.

use super::super::record::{Record, Row};
use super::super::text::{gain, key_name, optional, table, thousands, wrapped};
use super::{KEYS, by_gain, find};

/// The servers of docs/user/servers: a name as the bench has it and one to show, how the server
/// calls OpenSSL, and what to know. The figures come from a record.
const KINDS: &[(&str, &str, &str, &str)] = &[
    (
        "haproxy",
        "[HAProxy](haproxy.md)",
        "event loops with async jobs: many requests in flight",
        "`install` brings the lines that it needs; nobody upstream maintains async mode",
    ),
    (
        "trafficserver",
        "[Apache Traffic Server](trafficserver.md)",
        "event loops with async jobs",
        "`install` turns them on",
    ),
    (
        "apache",
        "[Apache](apache.md), event MPM",
        "a thread for each connection that shakes hands",
        "few processes with many threads",
    ),
    (
        "stunnel",
        "[stunnel](stunnel.md)",
        "a thread for each connection",
        "the median client [waits longer](stunnel.md#latency)",
    ),
    (
        "mariadb",
        "MariaDB",
        "a thread for each connection",
        "`--service mariadb`; connections last long",
    ),
    (
        "dnsdist",
        "[dnsdist](dnsdist.md), DNS over TLS",
        "a pool of threads, each with an event loop that blocks",
        "from 1.8 on it has async jobs, which were not tried",
    ),
    (
        "nginx",
        "[nginx](nginx.md)",
        "processes, each with an event loop that blocks",
        "near its limit RSA gains by [the key daemon](../keyd.md), which computes for all workers",
    ),
    (
        "hitch",
        "hitch",
        "processes, each with an event loop that blocks",
        "`--service hitch`",
    ),
    (
        "lighttpd",
        "lighttpd",
        "one event loop that blocks",
        "`--service lighttpd`",
    ),
    (
        "dovecot",
        "Dovecot",
        "processes, each with an event loop that blocks",
        "hands `OPENSSL_CONF` on only where `import_environment` names it; measured with \
         `service_count = 0` of `imap-login`, without which a process serves one connection",
    ),
    (
        "mosquitto",
        "Mosquitto",
        "one event loop that blocks",
        "`--service mosquitto`; connections last long",
    ),
    (
        "redis",
        "Redis",
        "one event loop that blocks",
        "`--service redis-server`; connections last long",
    ),
    (
        "postgresql",
        "PostgreSQL",
        "a process is forked for each connection",
        "`--service postgresql@`; nothing is shared, so leave the module away",
    ),
    (
        "postfix",
        "Postfix",
        "processes for some connections each",
        "hands `OPENSSL_CONF` on only where `import_environment` and `export_environment` name it",
    ),
    (
        "sshd",
        "sshd",
        "a new process for each connection",
        "leave the module away",
    ),
    (
        "kamailio",
        "[Kamailio, OpenSIPS](kamailio.md)",
        "processes that share OpenSSL's objects",
        "the module stands back: no gain, no loss; the difference is that of two equal servers",
    ),
    (
        "openvpn",
        "OpenVPN",
        "one event loop that blocks",
        "a test starts it with the configuration; connections last long",
    ),
    (
        "http3",
        "HTTP/3 in HAProxy and nginx",
        "QUIC, which never pauses a handshake",
        "requests on curves are as those of nginx, and so is RSA",
    ),
];

/// The table of docs/user/servers: which server gains how much, by the newest record that has it.
pub fn of_guide(records: &[Record]) -> String {
    let row = |(name, shown, calls, know): &(&str, &str, &str, &str)| {
        let of_load = |key: &str| {
            let mut runs = records.iter().filter(|record| record.has_ifma());
            let found = runs.find_map(|record| find(record, name, key))?;
            Some(gain(found.of.cpu_ratio))
        };
        let of_costs = |key: &str| {
            let row = format!("{name}-{key}");
            let mut records = records.iter().filter(|record| record.has_ifma());
            let find = |record: &Record| {
                let mut costs = record.costs.iter();
                Some(costs.find(|cost| cost.name == row)?.ratio)
            };
            Some(gain(records.find_map(find)?))
        };
        let of = |key: &str| of_load(key).or_else(|| of_costs(key));
        let figures = KEYS.map(|key| of(key).unwrap_or("-".to_owned()));
        let [rsa2048, rsa4096, p256] = figures;
        let text = |text: &str| text.to_owned();
        vec![text(shown), text(calls), rsa2048, rsa4096, p256, text(know)]
    };
    let heads = "server | how it calls OpenSSL | RSA-2048 | RSA-4096 | P-256 | to know";
    let mut out = wrapped(
        "CPU time of the server for one handshake, with 64 clients, in comparison with OpenSSL \
         alone; of PostgreSQL, Postfix and sshd that of a connection, one after the other. A dash: \
         not measured. [Benchmarks](../../benchmarks/README.md) have the machine, the spread, and \
         the latencies.",
    );
    out += "\n";
    out += &table(heads, KINDS.iter().map(row));
    out
}

/// The table of docs/user/servers/stunnel.md: what its clients wait for.
pub fn of_stunnel(records: &[Record]) -> String {
    let columns = by_gain(records);
    let on_ifma = columns.iter().filter(|record| record.has_ifma());
    let row = |(record, key): (&&Record, &str)| {
        let level = find(record, "stunnel", key)?.busiest();
        let change = |of: fn(&Row) -> Option<f64>| {
            let [stock, lockstep] = [&level.stock, &level.lockstep].map(|row| optional(of(row), 1));
            format!("{stock} → {lockstep} ms")
        };
        let served = [&level.stock, &level.lockstep].map(|row| thousands(row.per_s));
        Some(vec![
            record.short_name(),
            key_name(key),
            served.join(" → "),
            change(|row| row.p50_ms),
            change(|row| row.p99_ms),
        ])
    };
    let rows = on_ifma.flat_map(|record| KEYS.map(|key| (record, key)));
    let heads = "CPU | key | handshakes a second | median latency | 99th percentile";
    table(heads, rows.filter_map(row))
}
