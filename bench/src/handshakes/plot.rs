//! The throughput as a picture that a reader understands without the report.

use lockstep_common::Failure;
use serde::Serialize;

use super::chart;
use super::html::pairs;
use super::report::Report;
use super::template::render;
use crate::json::Decimal;

/// The characters of a line of text that surely have room in the picture.
const COLUMNS: usize = 104;

/// From one line of text to the next.
const LINE: f64 = 18.0;

#[derive(Serialize)]
struct Picture {
    title: String,
    width: Decimal<0>,
    height: Decimal<0>,
    /// Where the chart begins.
    top: Decimal<0>,
    head: Vec<Text>,
    drawing: String,
    foot: Vec<Text>,
}

/// A line of text.
#[derive(Serialize)]
struct Text {
    y: Decimal<0>,
    text: String,
}

/// Lines below each other, the first at this height; and the height below them.
fn below(top: f64, lines: Vec<String>) -> (Vec<Text>, f64) {
    let bottom = top + LINE * lines.len() as f64;
    let placed = lines.into_iter().enumerate().map(|(index, text)| Text {
        y: Decimal(top + LINE * index as f64),
        text,
    });
    (placed.collect(), bottom)
}

/// An SVG picture of handshakes per second over the number of clients.
pub fn throughput(report: &Report) -> Result<String, Failure> {
    let handshakes = pairs(report, |level| Some(&level.handshakes));
    let Some(chart) = chart::throughput("handshakes per second", &handshakes) else {
        return Err(Failure::new(
            "no handshake succeeded: there is nothing to plot",
        ));
    };
    let title = report.title();
    let headline = report.headline();
    let headline = headline.map(|headline| [headline.gain, headline.detail]);
    let head = std::iter::once(title.clone()).chain(headline.into_iter().flatten());
    let (head, top) = below(26.0, head.flat_map(|line| wrapped(&line)).collect());
    let foot = report.provenance();
    let foot = foot.iter().flat_map(|line| wrapped(line)).collect();
    let (foot, bottom) = below(top + chart::HEIGHT + LINE, foot);
    render(
        include_str!("plot.svg"),
        &Picture {
            title,
            width: Decimal(chart::WIDTH + 12.0),
            height: Decimal(bottom),
            top: Decimal(top),
            head,
            drawing: chart.draw()?,
            foot,
        },
    )
}

/// A text in lines that have room. A word that has none alone is divided.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut columns = 0;
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        if columns > 0 && columns + 1 + rest.len() <= COLUMNS {
            if let Some(line) = lines.last_mut() {
                line.push(' ');
            }
            columns += 1;
        } else if columns > 0 {
            lines.push(String::new());
            columns = 0;
        }
        while !rest.is_empty() {
            if columns == COLUMNS {
                lines.push(String::new());
                columns = 0;
            }
            let more = rest.split_off(rest.len().min(COLUMNS - columns));
            columns += rest.len();
            if let Some(line) = lines.last_mut() {
                line.extend(rest);
            }
            rest = more;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_says_what_it_shows() {
        let mut report = Report::example();
        let svg = throughput(&report).unwrap();
        for text in [
            "haproxy, rsa2048, x25519, TLS 1.3",
            "44 % less CPU per handshake",
            "64 clients at a time: 0.2800 ms with lockstep, 0.5000 ms with OpenSSL alone, in the only \
             round",
            "handshakes per second",
            "clients at a time",
            "HAProxy version 2.6.12, on OpenSSL 3.0.19",
        ] {
            assert!(svg.contains(&format!(">{text}</text>")), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<circle ").count(), 4, "{svg}");
        assert!(
            svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""),
            "{svg}"
        );
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        report.levels.clear();
        assert!(throughput(&report).is_err());
    }

    #[test]
    fn text_has_room_in_the_picture() {
        assert_eq!(wrapped("a few words"), ["a few words"]);
        let long = "x".repeat(COLUMNS + 10);
        let lines = wrapped(&format!("before {long} after"));
        let expected = [
            "before".to_owned(),
            "x".repeat(COLUMNS),
            format!("{} after", "x".repeat(10)),
        ];
        assert_eq!(lines, expected);
        let words = vec!["word"; 60].join(" ");
        assert!(wrapped(&words).iter().all(|line| line.len() <= COLUMNS));
        assert_eq!(wrapped(&words).join(" "), words);
    }
}
