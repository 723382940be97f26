//! Text that changes nothing of the line, of the terminal and of the JSON document that has it.

/// Whether a character does.
pub fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~') && c != '"' && c != '\\'
}

/// A text with a question mark in the place of each other character, cut off where it is longer
/// than so many.
pub fn plain(text: &str, longest: usize) -> String {
    let characters = text.chars().take(longest);
    let mut plain: String = characters
        .map(|c| if is_plain(c) { c } else { '?' })
        .collect();
    if text.chars().nth(longest).is_some() {
        plain.push_str("...");
    }
    plain
}
