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

/// With curves as people write them.
pub fn curve_name(name: &str) -> String {
    name.replace("p256", "P-256")
        .replace("p384", "P-384")
        .replace("ed25519", "Ed25519")
        .replace("x25519", "X25519")
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
    match named.split_once('-').map(|_| named.rsplit_once('-')) {
        Some(Some((curve, "sign"))) => format!("{curve} signature"),
        Some(Some((curve, "verify"))) => format!("{curve} verification"),
        Some(Some((curve, "ecdh"))) => format!("{curve} ECDH"),
        Some(Some((curve, "keygen"))) => format!("{curve} key pair"),
        _ => format!("{named} agreement"),
    }
}
