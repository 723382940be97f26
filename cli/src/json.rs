//! Writing JSON: a few documents of fixed shape, so formatting does it.

/// A string with its quotes.
pub fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A number, or `null` where there is none.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{value:.decimals$}"),
        _ => "null".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for text in [
            "",
            "plain",
            "a \"quote\" and a \\",
            "line\nand\ttab\u{1}",
            "ünï",
        ] {
            let read: String = serde_json::from_str(&string(text)).unwrap();
            assert_eq!(read, text);
        }
        assert_eq!(number(Some(1.25), 1), "1.2");
        assert_eq!(number(Some(f64::NAN), 1), "null");
        assert_eq!(number(None, 1), "null");
    }
}
