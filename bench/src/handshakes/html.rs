//! The report as one HTML file: figures and plots, without anything to fetch.

use lockstep_common::Failure;
use serde::Serialize;

use super::chart::{self, Chart};
use super::demand::Demand;
use super::figures::{Level, Pair};
use super::report::{Column, Headline, MAIN_FIGURE, Report, Row};
use super::template::render;
use crate::format::thousands;
use crate::json::Decimal;

/// What the page shows.
#[derive(Serialize)]
struct Page<'a> {
    title: String,
    headline: Option<Headline>,
    failures: u64,
    provenance: Vec<String>,
    main_figure: &'static str,
    caveat: Option<&'static str>,
    width: Decimal<0>,
    height: Decimal<0>,
    sections: Vec<Section>,
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    plot: Option<String>,
    examples: Vec<&'a str>,
}

/// A heading with a plot below it.
#[derive(Serialize)]
struct Section {
    heading: String,
    drawing: Option<String>,
}

impl Section {
    fn new(heading: impl Into<String>, chart: Option<Chart>) -> Result<Section, Failure> {
        Ok(Section {
            heading: heading.into(),
            drawing: chart.map(|chart| chart.draw()).transpose()?,
        })
    }
}

/// The whole page.
pub fn page(report: &Report) -> Result<String, Failure> {
    let handshakes = pairs(report, |level| Some(&level.handshakes));
    let rate = chart::throughput("handshakes per second", &handshakes);
    let mut sections = vec![
        Section::new("Server CPU time per handshake", chart::bars(&handshakes))?,
        Section::new("Throughput against load", rate)?,
        Section::new("Latency against load", chart::lines(&handshakes))?,
    ];
    let transactions = pairs(report, |level| level.transactions.as_ref());
    if let (false, Some(page)) = (transactions.is_empty(), report.page) {
        let heading = format!(
            "Server CPU time with a page of {} bytes",
            thousands(page as f64)
        );
        let rate = chart::throughput("pages per second", &transactions);
        let latency = chart::lines(&transactions);
        sections.extend([
            Section::new(heading, chart::bars(&transactions))?,
            Section::new("Throughput with the page", rate)?,
            Section::new("Latency with the page", latency)?,
        ]);
    }
    let columns = report.columns();
    let unit = report.unit();
    let heads = columns.iter().map(|column| column.head);
    let page = Page {
        title: report.title(),
        headline: report.headline(),
        failures: report.failures(),
        provenance: report.provenance(),
        main_figure: MAIN_FIGURE,
        caveat: report.caveat,
        width: Decimal(chart::WIDTH),
        height: Decimal(chart::HEIGHT),
        sections,
        heads: [unit, "server"].into_iter().chain(heads).collect(),
        rows: report.rows().map(|row| cells(&row, &columns)).collect(),
        plot: report.plot.as_ref().map(|path| path.display().to_string()),
        examples: report.examples(),
    };
    render(include_str!("report.html"), &page)
}

/// The pairs that are chosen of each level, by their loads.
pub fn pairs<'a>(
    report: &'a Report,
    choose: impl Fn(&'a Level) -> Option<&'a Pair>,
) -> Vec<(Demand, &'a Pair)> {
    let levels = report.levels.iter();
    let mut pairs: Vec<_> = levels
        .filter_map(|level| Some((level.demand, choose(level)?)))
        .collect();
    pairs.sort_by_key(|(demand, _)| demand.number());
    pairs
}

fn cells(row: &Row<'_>, columns: &[&Column]) -> Vec<String> {
    let figures = columns
        .iter()
        .map(|column| (column.cell)(row).unwrap_or("–".to_owned()));
    [row.demand.number().to_string(), row.label()]
        .into_iter()
        .chain(figures)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_the_page_is_escaped() {
        let page = Page {
            title: "<a & \"b\">".to_owned(),
            headline: None,
            failures: 0,
            provenance: Vec::new(),
            main_figure: MAIN_FIGURE,
            caveat: None,
            width: Decimal(1.0),
            height: Decimal(1.0),
            sections: vec![Section::new("Nothing", None).unwrap()],
            heads: Vec::new(),
            rows: Vec::new(),
            plot: None,
            examples: vec!["</body>"],
        };
        let page = render(include_str!("report.html"), &page).unwrap();
        assert!(
            page.contains("<h1>&lt;a &amp; &quot;b&quot;&gt;</h1>"),
            "{page}"
        );
        assert!(page.contains("<p>Failed: &lt;"), "{page}");
        assert!(page.contains("No handshake succeeded."), "{page}");
        assert_eq!(page.matches("</body>").count(), 1, "{page}");
    }
}
