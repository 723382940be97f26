//! Numbers, names and paragraphs of the pages.

/// A paragraph in lines of at most 100 columns.
pub fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut columns = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length > 100 {
            out.push('\n');
            columns = 0;
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out += word;
        columns += length;
    }
    out + "\n"
}

/// A section with a table below some words; nothing without rows.
pub fn section(
    title: &str,
    words: &str,
    heads: &str,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    format!(
        "\n### {title}\n\n{}\n{}",
        wrapped(words),
        table(heads, rows)
    )
}

/// A table with these heads, which bars divide.
pub fn table(heads: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows = rows
        .into_iter()
        .map(|row| format!("| {} |\n", row.join(" | ")));
    let line = "---|".repeat(heads.split(" | ").count());
    format!("| {heads} |\n|{line}\n{}", rows.collect::<String>())
}

/// A figure with so many decimals, where there is one.
pub fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// As 1,234,567.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What a ratio means for the one above the line, as in `42 % less`.
pub fn gain(ratio: f64) -> String {
    let percent = ((1.0 - ratio) * 100.0).round();
    let word = if percent < 0.0 { "more" } else { "less" };
    format!("{:.0} % {word}", percent.abs())
}

/// With curves, ML-KEM and hybrids as people write them.
pub fn curve_name(name: &str) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("secp384r1mlkem1024", "SecP384r1MLKEM1024"),
        ("secp256r1mlkem768", "SecP256r1MLKEM768"),
        ("x25519mlkem768", "X25519MLKEM768"),
        ("mlkem512", "ML-KEM-512"),
        ("mlkem768", "ML-KEM-768"),
        ("mlkem1024", "ML-KEM-1024"),
        ("ed25519", "Ed25519"),
        ("x25519", "X25519"),
        ("p256", "P-256"),
        ("p384", "P-384"),
    ];
    let known = NAMES
        .iter()
        .find_map(|(known, written)| Some((written, name.strip_prefix(known)?)));
    known.map_or_else(
        || name.to_owned(),
        |(written, rest)| format!("{written}{rest}"),
    )
}

/// Of `speed`, in words.
pub fn operation_name(name: &str) -> String {
    if let Some(bits) = name
        .strip_prefix("rsa")
        .and_then(|rest| rest.strip_suffix("-sign"))
    {
        return format!("RSA-{bits} signature");
    }
    let named = curve_name(name);
    match named.rsplit_once('-') {
        Some((curve, "sign")) => format!("{curve} signature"),
        Some((curve, "verify")) => format!("{curve} verification"),
        Some((curve, "ecdh")) => format!("{curve} ECDH"),
        Some((curve, "keygen")) => format!("{curve} key pair"),
        Some((kem, "encaps")) => format!("{kem} encapsulation"),
        Some((kem, "decaps")) => format!("{kem} decapsulation"),
        Some((hybrid, "server")) => format!("{hybrid}, a server's share"),
        Some((hybrid, "client")) => format!("{hybrid}, the client's end"),
        _ => format!("{named} agreement"),
    }
}

pub fn milliseconds(value: f64) -> String {
    format!("{value:.2} ms")
}

pub fn server_name(name: &str) -> &str {
    match name {
        "haproxy" => "HAProxy",
        "apache" => "Apache",
        "trafficserver" => "Traffic Server",
        "mosquitto" => "Mosquitto",
        "mariadb" => "MariaDB",
        "dovecot" => "Dovecot",
        "kamailio" => "Kamailio",
        "redis" => "Redis",
        other => other,
    }
}

pub fn key_name(name: &str) -> String {
    match name.strip_prefix("rsa") {
        Some(bits) => format!("RSA-{bits}"),
        None => curve_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_out() {
        for (name, words) in [
            ("rsa2048-sign", "RSA-2048 signature"),
            ("x25519", "X25519 agreement"),
            ("x25519-keygen", "X25519 key pair"),
            ("p256-ecdh", "P-256 ECDH"),
            ("p384-verify", "P-384 verification"),
            ("mlkem768-keygen", "ML-KEM-768 key pair"),
            ("mlkem768-encaps", "ML-KEM-768 encapsulation"),
            ("mlkem768-decaps", "ML-KEM-768 decapsulation"),
            ("x25519mlkem768-server", "X25519MLKEM768, a server's share"),
            (
                "secp256r1mlkem768-client",
                "SecP256r1MLKEM768, the client's end",
            ),
            (
                "secp384r1mlkem1024-server",
                "SecP384r1MLKEM1024, a server's share",
            ),
        ] {
            assert_eq!(operation_name(name), words);
        }
        assert_eq!(key_name("rsa4096"), "RSA-4096");
        assert_eq!(key_name("p256"), "P-256");
        assert_eq!(thousands(1234567.4), "1,234,567");
        assert_eq!(thousands(312.0), "312");
        for (ratio, words) in [(0.58, "42 % less"), (1.05, "5 % more"), (0.998, "0 % less")] {
            assert_eq!(gain(ratio), words);
        }
    }
}
