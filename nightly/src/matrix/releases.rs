//! When OpenSSL's releases came out, and which of them the matrix has tried.
//!
//! Each OpenSSL has the dates of the releases before it in its CHANGES.md, which distributions ship
//! as its changelog. The matrix reads the CHANGES.md of each version that it tries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::command::{Failure, Outcome, on, root};

/// Releases of OpenSSL 3.0 or later by their numbers, with the days on which they came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Releases(BTreeMap<[u32; 3], String>);

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A release is tried within so many days.
const PROMISE: i64 = 14;

fn file() -> PathBuf {
    root().join("docs/user/releases.json")
}

impl Releases {
    /// The releases of the record.
    pub fn load() -> Outcome<Releases> {
        let path = file();
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        Releases::parse(&text).ok_or_else(|| {
            Failure::new(format!("{} is no list of releases", path.display()))
                .remedy("restore it from git")
        })
    }

    fn parse(text: &str) -> Option<Releases> {
        let all: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let all = all.into_iter().map(|(version, day)| {
            days(&day)?;
            Some((number(&version)?, day))
        });
        all.collect::<Option<_>>().map(Releases)
    }

    pub fn store(&self) -> Outcome {
        let path = file();
        fs::write(&path, self.render()).map_err(on(&path, "write"))
    }

    fn render(&self) -> String {
        let lines = self.0.iter();
        let lines = lines.map(|(version, day)| format!("  \"{}\": \"{day}\"", name(*version)));
        format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"))
    }

    /// Takes over the dates of a CHANGES.md: "### Changes between 4.0.0 and 4.0.1 [9 Jun 2026]".
    pub fn learn(&mut self, changes: &str) {
        for line in changes.lines() {
            let of_line = || {
                let rest = line.strip_prefix("### Changes between ")?;
                let (_, rest) = rest.split_once(" and ")?;
                let (version, day) = rest.trim_end().strip_suffix(']')?.split_once('[')?;
                let version = number(version.trim()).filter(|version| version[0] >= 3)?;
                let mut words = day.split(' ');
                let (day, month, year) = (words.next()?, words.next()?, words.next()?);
                let month = 1 + MONTHS.iter().position(|name| *name == month)?;
                let (day, year) = (day.parse::<u32>().ok()?, year.parse::<u32>().ok()?);
                Some((version, format!("{year}-{month:02}-{day:02}")))
            };
            self.0.extend(of_line());
        }
    }

    /// The releases among tags of OpenSSL's repository, as `git ls-remote --tags` lists them, that
    /// are later than all known releases of their series.
    pub fn unknown(&self, tags: &str) -> Vec<String> {
        let names = tags
            .lines()
            .filter_map(|line| line.split("refs/tags/openssl-").nth(1));
        let newest = |series: &[u32; 3]| {
            let of_series = self
                .0
                .range([series[0], series[1], 0]..=[series[0], series[1], u32::MAX]);
            of_series.map(|(version, _)| *version).next_back()
        };
        let mut found: Vec<[u32; 3]> = names
            .filter_map(number)
            .filter(|version| {
                version[0] >= 3 && newest(version).is_none_or(|known| known < *version)
            })
            .collect();
        found.sort();
        found.dedup();
        found.into_iter().map(name).collect()
    }

    /// The table of the page: each release that was tried, by the day of that, and the newest one
    /// of each series.
    pub fn table(&self, tried: &[(String, String)]) -> String {
        let day_of = |version: &[u32; 3]| {
            let same = |(name, _): &&(String, String)| number(name).as_ref() == Some(version);
            tried.iter().rfind(same).map(|(_, day)| day.as_str())
        };
        let of_tried = tried.iter().filter_map(|(name, _)| number(name));
        let all: BTreeSet<[u32; 3]> = self.0.keys().copied().chain(of_tried).collect();
        let newest: BTreeMap<[u32; 2], [u32; 3]> = self
            .0
            .keys()
            .map(|version| ([version[0], version[1]], *version))
            .collect();
        let mut out =
            "| OpenSSL | came out | tried | days in between |\n|---|---|---|---|\n".to_owned();
        for version in all.iter().rev() {
            let (out_on, day) = (self.0.get(version), day_of(version));
            if day.is_none() && !newest.values().any(|own| own == version) {
                continue;
            }
            let between = day.and_then(|day| Some(days(day)? - days(out_on?)?));
            let between = between.map_or("-".to_owned(), |days| days.to_string());
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} | {between} |",
                name(*version),
                out_on.map_or("-", String::as_str),
                day.unwrap_or("-")
            );
        }
        out
    }
}

/// The text above the table.
pub fn introduction() -> String {
    format!(
        "\n## When they came out\n\n\
         The aim: a release of OpenSSL is tried within {PROMISE} days of the day on which it came \
         out. A job of\nthe workflows looks for new ones every day. The table has the newest \
         release of each series,\nand all others that were tried, with the day of the last \
         run.\n\n"
    )
}

/// Prints the releases in a list of tags that the record does not know, one a line.
pub fn print_unknown(tags: &Path) -> Outcome {
    let text = fs::read_to_string(tags).map_err(on(tags, "read"))?;
    if !text.contains("refs/tags/openssl-3.0.0") {
        return Err(
            Failure::new(format!("{} is no list of OpenSSL's tags", tags.display()))
                .remedy("git ls-remote --tags REPOSITORY 'openssl-*' > FILE"),
        );
    }
    for version in Releases::load()?.unknown(&text) {
        println!("{version}");
    }
    Ok(())
}

/// The numbers of a release; `None` for another version, as a beta.
fn number(version: &str) -> Option<[u32; 3]> {
    // The headings of first releases leave the zero out at times.
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let number = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(number)
}

fn name([major, minor, patch]: [u32; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

/// The number of a day, "2026-11-27", counted from some day.
fn days(day: &str) -> Option<i64> {
    let mut parts = day.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && parts.next().is_none();
    // Years begin with March, so that a leap day is the last of one.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    is_date.then_some(before + (153 * month + 2) / 5 + day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: &str = "\
### Changes between 4.0 and 4.1 [xx XXX xxxx]
### Changes between 4.0.0 and 4.0.1 [9 Jun 2026]
 * Something between 1 and 2 [1 Jan 2026]
### Changes between 3.6 and 4.0.0 [14 Apr 2026]
### Changes between 3.0.18 and 3.0.19 [27 Jan 2026]
### Changes between 1.1.1l and 1.1.1m [14 Dec 2021]
";

    fn known() -> Releases {
        let mut releases = Releases::default();
        releases.learn(CHANGES);
        releases
    }

    #[test]
    fn days_are_read_from_what_openssl_says() {
        let text = known().render();
        assert_eq!(
            text,
            "{\n  \"3.0.19\": \"2026-01-27\",\n  \"4.0.0\": \"2026-04-14\",\n  \"4.0.1\": \
             \"2026-06-09\"\n}\n"
        );
        assert_eq!(Releases::parse(&text), Some(known()));
        for bad in [
            "{\"4.1\": \"2026-01-27\"}",
            "{\"4.1.0\": \"2026-13-27\"}",
            "[]",
        ] {
            assert_eq!(Releases::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_release_is_new_where_its_series_has_none_as_late() {
        let tags = [
            "3.0.0",
            "3.0.19",
            "3.0.19^{}",
            "3.0.20",
            "4.0.1",
            "4.1.0-beta1",
            "4.1.0",
        ];
        let tags = tags.map(|tag| format!("9bbd\trefs/tags/openssl-{tag}\n"));
        assert_eq!(known().unknown(&tags.concat()), ["3.0.20", "4.1.0"]);
        assert_eq!(known().unknown("9bbd\trefs/tags/OpenSSL_1_1_1\n"), [""; 0]);
    }

    #[test]
    fn the_table_has_what_was_tried_and_what_was_not() {
        let tried = [
            ("3.0.19".to_owned(), "2026-02-01".to_owned()),
            ("4.0.0".to_owned(), "2026-04-14".to_owned()),
            ("4.0.2".to_owned(), "2026-09-01".to_owned()),
            ("4.1.0-dev".to_owned(), "2026-11-27".to_owned()),
        ];
        let table = known().table(&tried);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 4.0.2 | - | 2026-09-01 | - |",
                "| 4.0.1 | 2026-06-09 | - | - |",
                "| 4.0.0 | 2026-04-14 | 2026-04-14 | 0 |",
                "| 3.0.19 | 2026-01-27 | 2026-02-01 | 5 |",
            ]
        );
    }

    #[test]
    fn days_are_counted() {
        let between = |from, to| days(to).unwrap() - days(from).unwrap();
        assert_eq!(between("2026-02-28", "2026-03-01"), 1);
        assert_eq!(between("2024-02-28", "2024-03-01"), 2);
        assert_eq!(between("2025-12-31", "2026-01-01"), 1);
        assert_eq!(between("2026-10-23", "2026-11-27"), 35);
    }
}
