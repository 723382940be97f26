//! Numbers and names for reading.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// A moment, as in 2026-11-23T08:41:07Z.
pub fn utc(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut month, mut day) = (1970, 1, seconds / 86_400);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let day = day + 1;
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_423_267, "2026-11-23T08:41:07Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn a_command_line_can_be_given_to_a_shell() {
        let words = [
            "/opt/bin/lockstep-bench",
            "handshakes",
            "--html",
            "it's here",
            "",
        ];
        let line = joined(words.into_iter().map(OsString::from));
        assert_eq!(line, r"lockstep-bench handshakes --html 'it'\''s here' ''");
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
