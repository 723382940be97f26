//! Numbers and names for reading.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use lockstep_common::program;

/// This program, with its version.
pub const PROGRAM: &str = concat!("lockstep-bench ", env!("CARGO_PKG_VERSION"));

/// As 1,234; below 100 with a decimal.
pub fn thousands(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Cycles, or any other count, to three digits or so.
pub fn cycles(value: f64) -> String {
    match value {
        ..1e4 => thousands(value),
        ..1e6 => format!("{:.1} K", value / 1e3),
        _ => format!("{:.2} M", value / 1e6),
    }
}

/// As in `1 client` and `8 clients`.
pub fn clients(count: usize) -> String {
    match count {
        1 => "1 client".to_owned(),
        many => format!("{many} clients"),
    }
}

/// As the system calls it.
pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown CPU".to_owned(), |(_, model)| {
        model.trim().to_owned()
    })
}

/// Now, as in 2026-11-23T08:41:07Z.
pub fn utc() -> String {
    let date = program("date").args(["-u", "+%FT%TZ"]).output();
    let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    date.unwrap_or_default()
}

/// Reads a number from a command line that is not outside of this.
pub fn within<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number: Option<T> = text.trim().parse().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("it takes a number from {least} to {most}"))
    }
}

/// The same of seconds.
pub fn seconds_within(least: f64, most: f64) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| within(least, most)(text).map(Duration::from_secs_f64)
}

/// The command line of this process, as a shell would take it. Where the program is does not
/// matter.
pub fn command_line() -> String {
    joined(std::env::args_os())
}

fn joined(mut arguments: impl Iterator<Item = OsString>) -> String {
    let program = arguments.next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    let words = std::iter::once(program.to_owned()).chain(arguments);
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        let number = within(1, 64);
        assert_eq!((number("1"), number(" 64")), (Ok(1), Ok(64)));
        let seconds = seconds_within(0.05, 3600.0);
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "0", "65", "1.5", "-1", "soon"] {
            let why = "it takes a number from 1 to 64".to_owned();
            assert_eq!(number(bad), Err(why), "{bad}");
        }
        for bad in ["NaN", "inf", "0", "-1"] {
            let why = "it takes a number from 0.05 to 3600".to_owned();
            assert_eq!(seconds(bad), Err(why), "{bad}");
        }
        assert_eq!(utc().len(), "2026-11-23T08:41:07Z".len());
    }

    #[test]
    fn a_command_line_can_be_given_to_a_shell() {
        let words = [
            "/opt/bin/lockstep-bench",
            "handshakes",
            "--json",
            "it's here",
            "",
        ];
        let line = joined(words.into_iter().map(OsString::from));
        assert_eq!(line, r"lockstep-bench handshakes --json 'it'\''s here' ''");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(987.0), "987");
        assert_eq!(thousands(12.34), "12.3");
        assert_eq!(cycles(410_200.0), "410.2 K");
        assert_eq!(cycles(1_361_000.0), "1.36 M");
        assert_eq!(cycles(961.0), "961");
        assert_eq!(
            (clients(1), clients(8)),
            ("1 client".into(), "8 clients".into())
        );
    }
}
