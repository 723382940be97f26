//! Numbers and names for reading.

use std::fs;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(987.0), "987");
        assert_eq!(thousands(12.34), "12.3");
        assert_eq!(cycles(410_200.0), "410.2 K");
        assert_eq!(cycles(1_361_000.0), "1.36 M");
        assert_eq!(cycles(961.0), "961");
    }
}
