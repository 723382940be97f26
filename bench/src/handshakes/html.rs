//! The report as one HTML file: figures, plots, and nothing that would have to be fetched.

use lockstep_common::Failure;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::chart::{self, Chart};
use super::figures::{Level, Pair};
use super::report::{MAIN_FIGURE, Report};
use crate::format::thousands;

/// What the page shows.
#[derive(Serialize)]
struct Page<'a> {
    title: String,
    place: String,
    summary: Option<Summary>,
    main_figure: &'static str,
    caveat: Option<&'static str>,
    sections: Vec<Section>,
    heads: [&'static str; 12],
    rows: Vec<Vec<String>>,
    examples: Vec<&'a str>,
}

/// The main figure.
#[derive(Serialize)]
struct Summary {
    ratio: String,
    clients: usize,
    failures: u64,
}

/// A heading with a plot below it.
#[derive(Serialize)]
struct Section {
    heading: String,
    chart: Option<Chart>,
}

impl Section {
    fn new(heading: impl Into<String>, chart: Option<Chart>) -> Section {
        let heading = heading.into();
        Section { heading, chart }
    }
}

/// The whole page.
pub fn page(report: &Report) -> Result<String, Failure> {
    let handshakes = pairs(report, |level| Some(&level.handshakes));
    let mut sections = vec![
        Section::new("Server CPU time per handshake", chart::bars(&handshakes)),
        Section::new("Latency against load", chart::lines(&handshakes)),
    ];
    let transactions = pairs(report, |level| level.transactions.as_ref());
    if let (false, Some(page)) = (transactions.is_empty(), report.page) {
        let heading = format!(
            "Server CPU time with a page of {} bytes",
            thousands(page as f64)
        );
        let latency = chart::lines(&transactions);
        sections.push(Section::new(heading, chart::bars(&transactions)));
        sections.push(Section::new("Latency with the page", latency));
    }
    let ratio = report.cpu_ratio().zip(report.busiest());
    render(&Page {
        title: report.title(),
        place: report.place(),
        summary: ratio.map(|(ratio, busiest)| Summary {
            ratio: format!("{ratio:.2}"),
            clients: busiest.concurrency,
            failures: report.failures(),
        }),
        main_figure: MAIN_FIGURE,
        caveat: report.caveat,
        sections,
        heads: [
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
        ],
        rows: rows(report),
        examples: report.examples(),
    })
}

fn render(page: &Page<'_>) -> Result<String, Failure> {
    let failed =
        |error: minijinja::Error| Failure::new(format!("cannot write the report: {error:#}"));
    let mut templates = Environment::new();
    // The ending of the name has the engine escape what goes into the page.
    let name = "report.html";
    templates
        .add_template(name, include_str!("report.html"))
        .map_err(failed)?;
    let template = templates.get_template(name).map_err(failed)?;
    template.render(Serde(page)).map_err(failed)
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

fn rows(report: &Report) -> Vec<Vec<String>> {
    let rows = report.rows().map(|row| {
        let or_dash = |text: Option<String>| text.unwrap_or("–".to_owned());
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let latency = |share| format!("{:.2}", row.figures.latency(share) * 1e3);
        let with_page = if row.is_transaction {
            ", with page"
        } else {
            ""
        };
        vec![
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
        ]
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_the_page_is_escaped() {
        let page = Page {
            title: "<a & \"b\">".to_owned(),
            place: String::new(),
            summary: None,
            main_figure: MAIN_FIGURE,
            caveat: None,
            sections: vec![Section::new("Nothing", None)],
            heads: [""; 12],
            rows: Vec::new(),
            examples: vec!["</body>"],
        };
        let page = render(&page).unwrap();
        assert!(
            page.contains("<h1>&lt;a &amp; &quot;b&quot;&gt;</h1>"),
            "{page}"
        );
        assert!(page.contains("<p>Failed: &lt;"), "{page}");
        assert!(page.contains("No handshake succeeded."), "{page}");
        assert_eq!(page.matches("</body>").count(), 1, "{page}");
    }
}
