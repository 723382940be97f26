//! The report as one HTML file: figures, plots, and nothing that would have to be fetched.

use std::fmt::Write as _;

use super::Side;
use super::figures::{Level, Pair};
use super::report::{MAIN_FIGURE, Report};
use crate::speed::report::thousands;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2129;--soft:#5c6470;--line:#d5d9e0;--ground:#fff;--stock:#b45309;--lockstep:#1d4ed8}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--soft:#9aa3b0;--line:#3a404a;--ground:#16181d;--stock:#f0a04b;--lockstep:#7aa5ff}}\
body{margin:2rem auto;max-width:72rem;padding:0 1rem;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}p{max-width:48rem}.soft{color:var(--soft)}\
.big{font-size:2.2rem;font-weight:600;color:var(--lockstep)}.scroll{overflow-x:auto}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .7rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}\
th:nth-child(2),td:nth-child(2){text-align:left}svg{max-width:100%;height:auto}\
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .value{fill:var(--ink)}\
svg .grid{stroke:var(--line)}svg .stock{stroke:var(--stock);fill:var(--stock)}\
svg .lockstep{stroke:var(--lockstep);fill:var(--lockstep)}svg text.stock,svg text.lockstep{stroke:none}\
svg path{fill:none!important;stroke-width:2}svg .p99{stroke-dasharray:5 4}";

/// The whole page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    let title = escaped(&report.title());
    // Writing to a String cannot fail, here and below.
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>lockstep handshakes: {title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>\n<p class=\"soft\">{}</p>\n",
        escaped(&report.place())
    );
    if let (Some(ratio), Some(busiest)) = (report.cpu_ratio(), report.busiest()) {
        let clients = busiest.concurrency;
        let _ = write!(
            out,
            "<p><span class=\"big\">{ratio:.2} ×</span> the server CPU time of stock for a handshake, with \
             {clients} clients at a time; {} failures.</p>\n<p>{MAIN_FIGURE}</p>\n",
            report.failures()
        );
    }
    if let Some(caveat) = report.caveat {
        let _ = writeln!(out, "<p><strong>Note:</strong> {caveat}.</p>");
    }
    let handshakes: Vec<(usize, &Pair)> = pairs(report, |level| Some(&level.handshakes));
    out.push_str("<h2>Server CPU time per handshake</h2>\n");
    out.push_str(&bars(&handshakes));
    out.push_str("<h2>Latency against load</h2>\n");
    out.push_str(&lines(&handshakes));
    let transactions = pairs(report, |level| level.transactions.as_ref());
    if let (false, Some(page)) = (transactions.is_empty(), report.page) {
        let size = thousands(page as f64);
        let _ = writeln!(out, "<h2>Server CPU time with a page of {size} bytes</h2>");
        out.push_str(&bars(&transactions));
        out.push_str("<h2>Latency with the page</h2>\n");
        out.push_str(&lines(&transactions));
    }
    out.push_str("<h2>All figures</h2>\n");
    out.push_str(&table(report));
    for example in report.examples() {
        let _ = writeln!(out, "<p>Failed: {}</p>", escaped(example));
    }
    out.push_str("</body></html>\n");
    out
}

fn pairs<'a>(
    report: &'a Report,
    choose: impl Fn(&'a Level) -> Option<&'a Pair>,
) -> Vec<(usize, &'a Pair)> {
    let levels = report.levels.iter();
    levels
        .filter_map(|level| Some((level.concurrency, choose(level)?)))
        .collect()
}

fn table(report: &Report) -> String {
    let mut out = String::from("<div class=\"scroll\"><table><tr>");
    for head in [
        "clients",
        "server",
        "per s",
        "CPU s/1000",
        "× stock",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "failures",
        "signed on lanes",
        "fill",
        "handshake's share",
    ] {
        let _ = write!(out, "<th>{head}</th>");
    }
    out.push_str("</tr>\n");
    for row in report.rows() {
        let or_dash = |text: Option<String>| text.unwrap_or("–".to_owned());
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let latency = |share| format!("{:.2}", row.figures.latency(share) * 1e3);
        let with_page = if row.is_transaction {
            ", with page"
        } else {
            ""
        };
        let cells = [
            row.concurrency.to_string(),
            format!("{}{with_page}", row.side.name()),
            thousands(row.figures.per_second()),
            format!("{:.4}", row.figures.cost() * 1e3),
            or_dash(row.cpu_ratio().map(|ratio| format!("{ratio:.2}"))),
            latency(0.5),
            latency(0.9),
            latency(0.99),
            row.figures.failures().to_string(),
            or_dash(row.on_lanes().map(percent)),
            or_dash(row.fill().map(|fill| format!("{fill:.2}"))),
            or_dash(row.handshake_share.map(percent)),
        ];
        out.push_str("<tr>");
        for cell in cells {
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out + "</table></div>\n"
}

/// The size of a plot, and the room for labels in it.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 160.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;

/// A place among `count` on the horizontal axis, in the middle of its share.
fn across(index: usize, count: usize) -> f64 {
    LEFT + (index as f64 + 0.5) / count as f64 * (WIDTH - LEFT - RIGHT)
}

/// A vertical axis.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn down(&self, value: f64) -> f64 {
        let at = |value: f64| match self.logarithmic {
            true => value.log10(),
            false => value,
        };
        let share = (at(value) - at(self.low)) / (at(self.high) - at(self.low));
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    /// Opens a plot: lines across with their values, and the numbers of clients below.
    fn open(&self, what: &str, ticks: &[f64], clients: &[(usize, &Pair)]) -> String {
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{what}\">\n\
             <text x=\"4\" y=\"12\">{what}</text>"
        );
        for &tick in ticks {
            let y = self.down(tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0
            );
        }
        for (index, (concurrency, _)) in clients.iter().enumerate() {
            let (x, y) = (across(index, clients.len()), HEIGHT - BOTTOM + 18.0);
            let _ = write!(
                out,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{concurrency}</text>"
            );
        }
        let (x, y) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">clients at a time</text>"
        );
        out
    }
}

/// CPU time per handshake: two bars for each number of clients.
fn bars(pairs: &[(usize, &Pair)]) -> String {
    let milliseconds = |pair: &Pair| {
        [
            (Side::Stock, pair.stock.cost() * 1e3),
            (Side::Lockstep, pair.lockstep.cost() * 1e3),
        ]
    };
    let highest = pairs
        .iter()
        .flat_map(|(_, pair)| milliseconds(pair).map(|(_, value)| value))
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    if highest <= 0.0 {
        return NOTHING.to_owned();
    }
    let step = round_step(highest / 4.0);
    let ticks: Vec<f64> = (0..)
        .map(|n| rounded(f64::from(n) * step))
        .take(6)
        .collect();
    let ticks: Vec<f64> = ticks
        .into_iter()
        .take_while(|tick| *tick < highest + step)
        .collect();
    let axis = Axis {
        low: 0.0,
        high: ticks.last().copied().unwrap_or(highest).max(highest),
        logarithmic: false,
    };
    let mut out = axis.open("CPU milliseconds per handshake", &ticks, pairs);
    let width = ((WIDTH - LEFT - RIGHT) / pairs.len() as f64 * 0.3).min(48.0);
    for (index, (concurrency, pair)) in pairs.iter().enumerate() {
        for (place, (side, value)) in milliseconds(pair).into_iter().enumerate() {
            if !value.is_finite() {
                continue;
            }
            let x = across(index, pairs.len()) + (place as f64 - 1.0) * width;
            let (y, bottom, name) = (axis.down(value), axis.down(0.0), side.name());
            let _ = write!(
                out,
                "<rect class=\"{name}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                 <title>{name}, {concurrency} clients: {value:.4} ms</title></rect>\
                 <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.2}</text>",
                width - 3.0,
                bottom - y,
                x + width / 2.0 - 1.5,
                y - 5.0
            );
        }
    }
    for (place, side) in [Side::Stock, Side::Lockstep].into_iter().enumerate() {
        label(
            &mut out,
            side,
            side.name(),
            TOP + 16.0 + 20.0 * place as f64,
        );
    }
    out + "</svg>\n"
}

/// Latencies: the median as a line, the 99th percentile dashed.
fn lines(pairs: &[(usize, &Pair)]) -> String {
    let curves = [
        (Side::Stock, "p50", 0.5),
        (Side::Stock, "p99", 0.99),
        (Side::Lockstep, "p50", 0.5),
        (Side::Lockstep, "p99", 0.99),
    ];
    let value = |pair: &Pair, side, share| match side {
        Side::Stock => pair.stock.latency(share) * 1e3,
        Side::Lockstep => pair.lockstep.latency(share) * 1e3,
    };
    let all: Vec<f64> = pairs
        .iter()
        .flat_map(|(_, pair)| curves.map(|(side, _, share)| value(pair, side, share)))
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect();
    if all.is_empty() {
        return NOTHING.to_owned();
    }
    let lowest = all.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = all.iter().copied().fold(0.0, f64::max);
    let (first, last) = (lowest.log10().floor() as i32, highest.log10().ceil() as i32);
    let last = last.max(first + 1);
    let ticks: Vec<f64> = (first..=last)
        .map(|power| rounded(10f64.powi(power)))
        .collect();
    let axis = Axis {
        low: 10f64.powi(first),
        high: 10f64.powi(last),
        logarithmic: true,
    };
    let mut out = axis.open("milliseconds", &ticks, pairs);
    for (place, (side, name, share)) in curves.into_iter().enumerate() {
        let points: Vec<(f64, f64, usize, f64)> = pairs
            .iter()
            .enumerate()
            .map(|(index, (clients, pair))| (index, *clients, value(pair, side, share)))
            .filter(|(.., value)| value.is_finite())
            .map(|(index, clients, value)| {
                (across(index, pairs.len()), axis.down(value), clients, value)
            })
            .collect();
        let class = side.name();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y, ..)| format!("{x:.1},{y:.1}"))
            .collect();
        if !path.is_empty() {
            let path = path.join(" L");
            let _ = write!(out, "<path class=\"{class} {name}\" d=\"M{path}\"/>");
        }
        for (x, y, clients, value) in points {
            let _ = write!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
                 <title>{class} {name}, {clients} clients: {value:.3} ms</title></circle>"
            );
        }
        let dashes = if name == "p99" { " (dashed)" } else { "" };
        let text = format!("{class} {name}{dashes}");
        label(&mut out, side, &text, TOP + 16.0 + 20.0 * place as f64);
    }
    out + "</svg>\n"
}

const NOTHING: &str = "<p>No handshake succeeded.</p>\n";

/// A line of the legend, at the right.
fn label(out: &mut String, side: Side, text: &str, y: f64) {
    let (class, x) = (side.name(), WIDTH - RIGHT + 8.0);
    let _ = write!(
        out,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"
    );
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// Without what floating point adds to round numbers.
fn rounded(value: f64) -> f64 {
    format!("{value:.9}").parse().unwrap_or(value)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps() {
        for (least, step) in [
            (0.13, 0.2),
            (0.5, 0.5),
            (0.51, 1.0),
            (7.0, 10.0),
            (20.0, 20.0),
        ] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}");
        }
        assert_eq!(rounded(0.1 + 0.2), 0.3);
    }

    #[test]
    fn the_highest_value_is_at_the_top() {
        let axis = Axis {
            low: 0.1,
            high: 1000.0,
            logarithmic: true,
        };
        assert!((axis.down(1000.0) - TOP).abs() < 1e-9);
        assert!((axis.down(0.1) - (HEIGHT - BOTTOM)).abs() < 1e-9);
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
