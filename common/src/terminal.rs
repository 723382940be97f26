//! What a terminal shows of names that others have given.

/// A name without characters that would change what a terminal shows beside it.
pub fn fit_for_terminal(name: &str) -> String {
    name.chars()
        .map(|c| if is_unfit_for_terminal(c) { '?' } else { c })
        .collect()
}

/// A message that holds such names, in one line.
pub fn line_for_terminal(message: &str) -> String {
    fit_for_terminal(&message.replace('\n', "; "))
}

/// A JSON text in which such characters stand by their numbers.
pub fn json_for_terminal(text: &str) -> String {
    let escaped = |c: char| match is_unfit_for_terminal(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Whether this character would change it.
pub fn is_unfit_for_terminal(c: char) -> bool {
    c.is_control() || is_bidirectional_control(c)
}

/// Whether this character changes the order in which a terminal shows others (the property
/// Bidi_Control of Unicode).
fn is_bidirectional_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}
