//! Plain text, which changes nothing else on a line, on a terminal or in a JSON document.

/// Returns whether a character is plain.
pub fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~') && c != '"' && c != '\\'
}

/// Returns a text with a question mark in the place of each character that is not plain, cut off at
/// `longest` characters.
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
