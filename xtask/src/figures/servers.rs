//! Servers under load: the tables of what `handshakes --json` printed.

use super::record::{Demand, Level, Record, Row, Run};
use super::text::{
    curve_name, gain, key_name, milliseconds, optional, section, server_name, table, thousands,
    wrapped,
};

/// What README.md shows, besides the run that gains least.
const SHOWN: &[(&str, &str)] = &[
    ("haproxy", "rsa2048"),
    ("haproxy", "rsa4096"),
    ("haproxy", "p256"),
    ("apache", "rsa2048"),
    ("stunnel", "rsa2048"),
    ("nginx", "rsa2048"),
];

/// A median latency that is longer by no more than this is none that anybody notices.
const WITHIN: f64 = 0.02;

impl Run {
    fn is(&self, server: &str, key: &str) -> bool {
        self.of.server == server && self.of.key == key
    }

    fn name(&self) -> String {
        format!(
            "{}, {}",
            server_name(&self.of.server),
            key_name(&self.of.key)
        )
    }

    /// The group of the server without lockstep in words, where that is another one.
    fn alone(&self) -> String {
        let stock = self.of.stock_group.as_deref();
        stock.map_or(String::new(), |group| {
            format!(" (alone: {})", curve_name(group))
        })
    }
}

impl Level {
    fn ratio(&self, quantity: &str) -> Option<f64> {
        self.ratios.of(quantity)
    }

    /// CPU time of OpenSSL alone, with Lockstep, and what that changes.
    fn costs(&self, ratio: f64) -> [String; 3] {
        [
            milliseconds(self.stock.cost),
            milliseconds(self.lockstep.cost),
            gain(ratio),
        ]
    }

    fn clients(&self) -> String {
        self.demand.number().to_string()
    }

    fn demand_in_words(&self) -> String {
        match self.demand {
            Demand::Clients(1) => "1 client".to_owned(),
            Demand::Clients(clients) => format!("{clients} clients"),
            Demand::Rate(rate) => format!("{} begin a second", thousands(rate as f64)),
        }
    }
}

/// All loads of some runs.
fn levels<'a>(runs: impl Iterator<Item = &'a Run>) -> impl Iterator<Item = (&'a Run, &'a Level)> {
    runs.flat_map(|run| run.levels.iter().map(move |level| (run, level)))
}

/// The table of README.md: servers, and what a handshake costs them.
pub fn of_readme(record: &Record) -> String {
    let rows = runs_of_readme(record);
    let mut out = wrapped(&format!(
        "{}The server's CPU time for one handshake, and the median latency of 64 clients, on {}{} \
         ([more](docs/benchmarks/README.md)):",
        in_words(record).unwrap_or_default(),
        record.short_name(),
        match record.was_busy() {
            true => ", beside other programs",
            false => "",
        }
    ));
    out += "\n";
    let row = |run: &Run| {
        let level = run.busiest();
        let factor = |ratio: f64| format!("{:.1} ×", 1.0 / ratio);
        let both = level.stock.p50_ms.zip(level.lockstep.p50_ms);
        let median = |side: fn((f64, f64)) -> f64| {
            both.map_or("-".to_owned(), |both| format!("{:.1} ms", side(both)))
        };
        vec![
            run.name(),
            milliseconds(level.stock.cost),
            milliseconds(level.lockstep.cost),
            factor(run.of.cpu_ratio),
            median(|both| both.0),
            median(|both| both.1),
            level.ratio("p50").map_or("-".to_owned(), factor),
        ]
    };
    let heads = "server, key | CPU time: OpenSSL alone | with Lockstep | factor | median \
        latency: OpenSSL alone | with Lockstep | factor";
    out += &table(heads, rows.into_iter().map(row));
    if let Some(words) = below_the_limit(record) {
        out += "\n";
        out += &wrapped(&words);
    }
    out
}

/// The runs of the README, the greatest gain first, and the least gain of all.
fn runs_of_readme(record: &Record) -> Vec<&Run> {
    let shown = SHOWN
        .iter()
        .filter_map(|(server, key)| find(record, server, key));
    let mut rows: Vec<&Run> = shown.collect();
    let by_ratio = |a: &&Run, b: &&Run| a.of.cpu_ratio.total_cmp(&b.of.cpu_ratio);
    if let Some(least) = record.plain(true).max_by(by_ratio)
        && !rows.iter().any(|run| std::ptr::eq(*run, least))
    {
        rows.push(least);
    }
    rows.sort_by(by_ratio);
    rows
}

/// A picture of their CPU times, as SVG.
pub fn chart(record: &Record) -> String {
    let rows = runs_of_readme(record);
    let (row, left, whole, top) = (34, 170, 400.0, 64);
    let height = top + row * rows.len() + 8;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" width=\"800\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"800\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-weight=\"bold\">The server's CPU time for one handshake, with 64 \
         clients, on {}</text>\n\
         <rect x=\"{left}\" y=\"38\" width=\"12\" height=\"12\" fill=\"#b0b6be\"/>\n\
         <text x=\"{}\" y=\"49\">OpenSSL alone: 100 %</text>\n\
         <rect x=\"370\" y=\"38\" width=\"12\" height=\"12\" fill=\"#1f6fb2\"/>\n\
         <text x=\"388\" y=\"49\">with Lockstep</text>\n",
        record.short_name(),
        left + 18,
    );
    // A server that gets slower has the longer bar.
    let most = rows.iter().map(|run| run.of.cpu_ratio).fold(1.0, f64::max);
    for (place, run) in rows.iter().enumerate() {
        let (y, level) = (top + row * place, run.busiest());
        let bar = |y: usize, part: f64, colour: &str| {
            let width = whole * part / most;
            format!(
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"12\" fill=\"{colour}\"/>\n"
            )
        };
        out += &format!("<text x=\"12\" y=\"{}\">{}</text>\n", y + 17, run.name());
        out += &bar(y, 1.0, "#b0b6be");
        out += &bar(y + 13, run.of.cpu_ratio, "#1f6fb2");
        out += &format!(
            "<text x=\"{}\" y=\"{}\">{:.0} %: {}, not {}</text>\n",
            left + whole as usize + 12,
            y + 17,
            100.0 * run.of.cpu_ratio,
            milliseconds(level.lockstep.cost),
            milliseconds(level.stock.cost),
        );
    }
    out + "</svg>\n"
}

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
        "",
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
        "with RSA it gains by [the key daemon](../keyd.md), which computes for all its workers",
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
    const KEYS: [&str; 3] = ["rsa2048", "rsa4096", "p256"];
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

fn find<'a>(record: &'a Record, server: &str, key: &str) -> Option<&'a Run> {
    record.plain(true).find(|run| run.is(server, key))
}

/// What it brings, in one sentence.
pub fn in_words(record: &Record) -> Option<String> {
    let gain = |key| Some(gain(find(record, "haproxy", key)?.of.cpu_ratio));
    Some(format!(
        "With HAProxy and an RSA-2048 key, Lockstep takes {} CPU per handshake than OpenSSL alone, \
         and {} with an RSA-4096 key. ",
        gain("rsa2048")?,
        gain("rsa4096")?
    ))
}

/// What HAProxy with an RSA-2048 key does at the lowest and at the highest of the rates.
fn below_the_limit(record: &Record) -> Option<String> {
    let runs = record
        .runs
        .iter()
        .filter(|run| run.is_paced() && run.is("haproxy", "rsa2048"));
    let mut levels = levels(runs).map(|(_, level)| level);
    let first = levels.next()?;
    let last = levels.last()?;
    let words = |level: &Level| {
        let [stock, lockstep] = [level.stock.p50_ms?, level.lockstep.p50_ms?];
        Some(format!(
            "at {} handshakes a second it takes {} CPU, and the median handshake \
             {lockstep:.2} ms instead of {stock:.2}",
            thousands(level.demand.number() as f64),
            gain(level.cpu)
        ))
    };
    Some(format!(
        "That is with 64 clients, at the server's limit. Below it few requests meet: with HAProxy \
         and RSA-2048, {}; {}.",
        words(first)?,
        words(last)?
    ))
}

/// All tables of the page.
pub fn sections(record: &Record) -> String {
    [
        many_clients,
        paced,
        each_load,
        elsewhere,
        key_daemon,
        transactions,
    ]
    .map(|section| section(record))
    .concat()
}

fn many_clients(record: &Record) -> String {
    let row = |run: &Run| {
        let level = run.busiest();
        let mut row = vec![run.name(), level.clients()];
        row.extend(level.costs(run.of.cpu_ratio));
        row.extend(["p50", "p99"].map(|share| optional(level.ratio(share), 2)));
        row.push(optional(level.lockstep.fill, 1));
        row
    };
    let words = format!(
        "{}The columns are the CPU time of the server for one handshake, what Lockstep changes \
         in it, and Lockstep's latency over OpenSSL's (p50, p99). The change is the median \
         over pairs of turns, so the two times beside it may differ by another percentage.",
        in_words(record).unwrap_or_default()
    );
    let heads = "server, key | clients | OpenSSL alone | with Lockstep | CPU per handshake | p50 \
        | p99 | requests per pass";
    section("Servers", &words, heads, record.plain(true).map(row))
}

fn paced(record: &Record) -> String {
    let row = |(run, level): (&Run, &Level)| {
        let latency = |of: fn(&Row) -> Option<f64>| {
            let [stock, lockstep] = [&level.stock, &level.lockstep].map(|row| optional(of(row), 2));
            format!("{stock} → {lockstep} ms")
        };
        let daemon = match run.of.keyd {
            Some(_) => ", with the key daemon",
            None => "",
        };
        let mut row = vec![run.name() + daemon, thousands(level.demand.number() as f64)];
        row.extend(level.costs(level.cpu));
        row.extend([latency(|row| row.p50_ms), latency(|row| row.p99_ms)]);
        row
    };
    section(
        "Servers below their limit",
        "Handshakes that begin at random moments, at a tenth, three tenths and six tenths of what \
         the server does a second with OpenSSL alone and 64 clients at a time. Latencies are those \
         of OpenSSL alone and, behind the arrow, with Lockstep.",
        "server, key | handshakes a second | OpenSSL alone | with Lockstep | CPU per handshake | \
         p50 | p99",
        levels(record.runs.iter().filter(|run| run.is_paced())).map(row),
    )
}

/// The loads of the runs that have several.
fn loads(record: &Record) -> Vec<(&Run, &Level)> {
    levels(record.runs.iter().filter(|run| run.has_several())).collect()
}

/// The server and the key, and what else is not the usual.
fn load_name(run: &Run) -> String {
    let mut name = run.name();
    if run.of.group != "x25519" {
        name += &format!(", {}{}", curve_name(&run.of.group), run.alone());
    }
    if run.of.tls != "1.3" {
        name += &format!(", TLS {}", run.of.tls);
    }
    if run.of.keyd.is_some() {
        name += ", with the key daemon";
    }
    name
}

/// The line that stands before what gains; empty without runs of several loads.
pub fn losses(record: &Record) -> String {
    let loads = loads(record);
    // At a rate as many handshakes are served as begin.
    let loses = |(_, level): &&(&Run, &Level)| {
        let ratio = |quantity| level.ratio(quantity).unwrap_or(1.0);
        let serves_fewer = matches!(level.demand, Demand::Clients(_)) && ratio("per_s") < 1.0;
        serves_fewer || level.cpu > 1.0 || ratio("p50") > 1.0 + WITHIN
    };
    let losses: Vec<&(&Run, &Level)> = loads.iter().filter(loses).collect();
    let p50 = |level: &Level| level.ratio("p50").unwrap_or(1.0);
    let worst = losses
        .iter()
        .max_by_key(|(_, level)| (p50(level) * 1e4) as i64);
    let Some((run, level)) = worst else {
        return match loads.len() {
            0 => String::new(),
            all => wrapped(&format!(
                "At none of {all} loads did a server do worse than with OpenSSL alone (see below)."
            )),
        };
    };
    wrapped(&format!(
        "**Not every load gains**: at {} of {} loads a server had fewer handshakes a second than \
         with OpenSSL alone, more CPU time for each, or a median latency that was longer by more \
         than 2 %. The longest of these was {:.2} times OpenSSL's ({}, {}). The table of loads has \
         all.",
        losses.len(),
        loads.len(),
        p50(level),
        load_name(run),
        level.demand_in_words()
    ))
}

fn each_load(record: &Record) -> String {
    let row = |(run, level): (&Run, &Level)| {
        let mut row = vec![
            load_name(run),
            level.demand_in_words(),
            thousands(level.stock.per_s),
        ];
        row.extend(
            ["per_s", "cpu", "mean", "p50", "p90", "p99"].map(|quantity| {
                let spread = level.ratios.spread(quantity);
                spread.map_or("-".to_owned(), |[median, least, most]| {
                    format!("{median:.2} ({least:.2} to {most:.2})")
                })
            }),
        );
        row
    };
    section(
        "Servers at each load",
        "Lockstep over OpenSSL alone: handshakes a second, the server's CPU time for each, and the \
         clients' latencies. Each is the median of the rounds; behind it are the least and the \
         greatest. Handshakes a second of OpenSSL alone stand before them.",
        "server, key | load | OpenSSL alone | a second | CPU | mean | p50 | p90 | p99",
        loads(record).into_iter().map(row),
    )
}

/// Servers with other groups, or another OpenSSL.
fn elsewhere(record: &Record) -> String {
    let row = |run: &Run| {
        let level = run.busiest();
        let word = |text: &str, place| text.split_whitespace().nth(place).map(str::to_owned);
        let version = run.of.server_version.as_deref();
        let alone = run
            .levels
            .iter()
            .find(|level| level.demand == Demand::Clients(1));
        let mut row = vec![
            format!(
                "{}, {} {}",
                word(&run.of.openssl, 1).unwrap_or_default(),
                server_name(&run.of.server),
                version
                    .and_then(|version| word(version, 2))
                    .unwrap_or_default()
            ),
            format!(
                "{}, {}{}",
                key_name(&run.of.key),
                curve_name(&run.of.group),
                run.alone()
            ),
            level.clients(),
        ];
        row.extend(level.costs(run.of.cpu_ratio));
        row.push(optional(level.ratio("p50"), 2));
        row.push(optional(alone.and_then(|level| level.ratio("p50")), 2));
        row.push(optional(level.lockstep.fill, 1));
        row
    };
    section(
        "Servers with other versions of OpenSSL and other groups",
        "The last column but one is the latency of a lone client, with Lockstep over OpenSSL's.",
        "OpenSSL, server | key, group | clients | OpenSSL alone | with Lockstep | CPU per \
         handshake | p50 | p50, one client | requests per pass",
        record.plain(false).map(row),
    )
}

fn key_daemon(record: &Record) -> String {
    // Records of earlier versions have a setting that is gone.
    let is_known = |run: &&Run| matches!(run.of.keyd.as_deref(), Some("reference" | "daemon"));
    let runs = record.runs.iter().filter(|run| !run.is_paced());
    let row = |(run, level): (&Run, &Level)| {
        let [stock, lockstep, gain] = level.costs(level.cpu);
        let share = level.lockstep.keyd_cpu_share.unwrap_or(f64::NAN);
        let workers = run.of.workers;
        vec![
            run.name(),
            match run.of.keyd.as_deref() {
                Some("reference") => "a reference".to_owned(),
                _ => "the key, `keys = daemon`".to_owned(),
            },
            workers.map_or("-".to_owned(), |count| count.to_string()),
            level.clients(),
            stock,
            format!("{lockstep} ({:.0} %)", share * 100.0),
            gain,
            optional(level.ratio("per_s"), 3),
            optional(level.ratio("p50"), 3),
        ]
    };
    section(
        "The key daemon",
        "Keys in [a process of their own](../user/keyd.md): servers with references, and servers \
         with ordinary keys that have the daemon sign (`keys = daemon`). Server, daemon and clients \
         share all CPUs. The times are those of \
         server and daemon together; beside the second one is the daemon's share. The last two \
         columns compare with OpenSSL alone.",
        "server, key | the server has | workers | clients | OpenSSL alone | with the daemon | \
         CPU per handshake | handshakes a second | p50",
        levels(runs.filter(is_known)).map(row),
    )
}

/// What pages cost after handshakes.
fn transactions(record: &Record) -> String {
    let row = |run: &Run| {
        let level = run.busiest();
        let [stock, lockstep] = level.with_page.as_ref()?;
        // As in `0.98 ms (0.61 + 0.37)`.
        let parts = |whole: &Row, handshake: &Row| {
            let transfer = whole.cost - handshake.cost;
            format!(
                "{} ({:.2} + {transfer:.2})",
                milliseconds(whole.cost),
                handshake.cost
            )
        };
        let rounds = stock.costs.iter().zip(&lockstep.costs);
        let ratios = rounds.filter_map(|(stock, lockstep)| Some((*lockstep)? / (*stock)?));
        Some(vec![
            run.name(),
            size(run.of.transfer?),
            level.clients(),
            parts(stock, &level.stock),
            parts(lockstep, &level.lockstep),
            gain(super::ledger::median(ratios)),
        ])
    };
    section(
        "Transactions",
        "A handshake, and a page that is fetched on the same connection: the CPU time of the \
         server, and in brackets what of it the handshake and the transfer take.",
        "server, key | page | clients | OpenSSL alone | with Lockstep | CPU per transaction",
        record.runs.iter().filter_map(row),
    )
}

/// As in 230 KiB.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::record::examples::{record, run};
    use super::*;

    fn words(record: &Record) -> String {
        losses(record).replace('\n', " ")
    }

    #[test]
    fn the_least_gain_is_in_the_readme() {
        let of = |server, key, ratio: f64| {
            let mut run = run(server, key, "concurrency", &[64]);
            run["cpu_ratio"] = ratio.into();
            run
        };
        let table = of_readme(&record(&[
            of("nginx", "ed25519", 1.25),
            of("haproxy", "rsa2048", 0.5),
            of("apache", "ed25519", 0.8),
        ]));
        let rows: Vec<&str> = table.lines().filter(|line| line.contains(" ms ")).collect();
        let expected = [
            "| HAProxy, RSA-2048 | 1.00 ms | 0.50 ms | 2.0 × | 20.0 ms | 10.0 ms | 1.1 × |",
            "| nginx, Ed25519 | 1.00 ms | 0.50 ms | 0.8 × | 20.0 ms | 10.0 ms | 1.1 × |",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_lowest_and_the_highest_rate_are_told_in_words() {
        let mut run = run("haproxy", "rsa2048", "rate", &[180, 550, 1100]);
        for (place, cpu) in [(0, 0.95), (2, 0.74)] {
            run["ratios"][place]["cpu"] = cpu.into();
        }
        let one = record(&[super::super::record::examples::run(
            "haproxy",
            "rsa2048",
            "rate",
            &[1],
        )]);
        assert_eq!(below_the_limit(&one), None);
        let words = below_the_limit(&record(&[run])).unwrap();
        let [first, last] = [
            "at 180 handshakes a second it takes 5 % less CPU, and the median handshake 10.00 ms \
             instead of 20.00; at",
            "at 1,100 handshakes a second it takes 26 % less CPU, and the median handshake 10.00 \
             ms instead of 20.00.",
        ];
        assert!(words.contains(first) && words.ends_with(last), "{words}");
    }

    #[test]
    fn each_section_has_its_rows_and_none_without() {
        let mut page = run("haproxy", "rsa2048", "concurrency", &[16]);
        page["transfer"] = (230 << 10).into();
        let rows = page["rows"].as_array_mut().unwrap();
        for (side, whole, rounds) in [
            ("stock", 1.5, [1.0, 1.0, 2.0]),
            ("lockstep", 0.75, [0.5, 0.6, 1.1]),
        ] {
            let mut row = rows[0].clone();
            row["impl"] = side.into();
            row["load"] = "transaction".into();
            row["server_cpu_s_per_1000"] = whole.into();
            row["server_cpu_s_per_1000_rounds"] = json!(rounds);
            rows.push(row);
        }
        let with = |mut run: Value, name: &str, value: &str| {
            run[name] = value.into();
            run
        };
        let plain = run("nginx", "p256", "concurrency", &[1, 64]);
        let record = record(&[
            plain.clone(),
            run("nginx", "p256", "rate", &[1200]),
            with(run("nginx", "p256", "rate", &[1300]), "keyd", "reference"),
            with(plain.clone(), "group", "x25519mlkem768"),
            with(plain.clone(), "keyd", "reference"),
            with(plain.clone(), "keyd", "daemon"),
            with(plain, "keyd", "daemon-if-faster"),
            page,
        ]);
        let page = sections(&record);
        for row in [
            "| nginx, P-256 | 64 | 1.00 ms | 0.50 ms | 50 % less | 0.90 | - | 5.5 |",
            "| nginx, P-256 | 1,200 | 1.00 ms | 0.50 ms | 50 % less | 20.00 → 10.00 ms | \
             40.00 → 20.00 ms |",
            "| nginx, P-256, with the key daemon | 1,300 | 1.00 ms | 0.50 ms | 50 % less | \
             20.00 → 10.00 ms | 40.00 → 20.00 ms |",
            "| 3.0.19, nginx 1.2 | P-256, X25519MLKEM768 | 64 | 1.00 ms | 0.50 ms | 50 % less | \
             0.90 | 0.90 | 5.5 |",
            "| nginx, P-256 | a reference | - | 1 | 1.00 ms | 0.50 ms (75 %) | 50 % less | 1.100 | \
             0.900 |",
            "| nginx, P-256 | the key, `keys = daemon` | - | 64 | 1.00 ms | 0.50 ms (75 %) | \
             50 % less | 1.100 | 0.900 |",
            "| HAProxy, RSA-2048 | 230 KiB | 16 | 1.50 ms (1.00 + 0.50) | 0.75 ms (0.50 + 0.25) | \
             45 % less |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        assert_eq!(page.matches("keys = daemon` |").count(), 2, "{page}");
        assert_eq!(sections(&Record::default()), "");
        assert_eq!((size(10 << 20), size(16)), ("10 MiB".into(), "16 B".into()));
    }

    #[test]
    fn each_load_has_a_row_with_its_spread() {
        let mut run = run("haproxy", "p256", "concurrency", &[1, 8, 64]);
        run["ratios"][0]["rounds"][0]["cpu"] = 0.4.into();
        run["ratios"][0]["rounds"][1]["cpu"] = 0.7.into();
        let row = "| 1 client | 1,000 | 1.10 (1.10 to 1.10) | 0.50 (0.40 to 0.70) | 0.90 (0.90 to \
                   0.90) | 0.90 (0.90 to 0.90) | 0.90 (0.90 to 0.90) | - |\n";
        for (name, value, words) in [
            ("tls", "1.3", ""),
            ("tls", "1.2", ", TLS 1.2"),
            ("group", "x25519mlkem768", ", X25519MLKEM768"),
            ("keyd", "reference", ", with the key daemon"),
        ] {
            let mut run = run.clone();
            run[name] = value.into();
            let table = each_load(&record(&[run]));
            let row = format!("| HAProxy, P-256{words} {row}");
            assert!(table.contains(&row), "{row}: {table}");
        }
        run["group"] = "x25519mlkem768".into();
        run["stock_group"] = "x25519".into();
        let table = each_load(&record(&[run.clone()]));
        assert!(
            table.contains("X25519MLKEM768 (alone: X25519) | 64 clients |"),
            "{table}"
        );
        for ratios in run["ratios"].as_array_mut().unwrap() {
            ratios.as_object_mut().unwrap().remove("rounds");
        }
        assert_eq!(each_load(&record(&[run])), "");
    }

    #[test]
    fn what_a_load_loses_stands_before_what_others_gain() {
        let none = "At none of 3 loads did a server do worse than with OpenSSL alone (see below). ";
        for (demand, quantity, ratio, longest) in [
            ("concurrency", "p50", 1.02, None),
            ("concurrency", "per_s", 0.99, Some("0.90")),
            ("concurrency", "cpu", 1.01, Some("0.90")),
            ("concurrency", "p50", 1.03, Some("1.03")),
            // As many are served as begin.
            ("rate", "per_s", 0.99, None),
        ] {
            let mut run = run("haproxy", "p256", demand, &[1, 8, 64]);
            run["ratios"][0][quantity] = ratio.into();
            let words = words(&record(&[run]));
            let Some(longest) = longest else {
                assert_eq!(words, none, "{quantity}");
                continue;
            };
            let start = "**Not every load gains**: at 1 of 3 loads";
            let worst =
                format!("of these was {longest} times OpenSSL's (HAProxy, P-256, 1 client)");
            assert!(
                words.starts_with(start) && words.contains(&worst),
                "{words}"
            );
        }
        assert_eq!(words(&Record::default()), "");
    }
}
