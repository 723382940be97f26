//! Names that other users chose, made safe for a terminal.

use std::path::Path;

/// Returns a name with `?` for each character that changes the display of a terminal.
pub fn fit_for_terminal(name: &str) -> String {
    name.chars()
        .map(|c| if is_unfit_for_terminal(c) { '?' } else { c })
        .collect()
}

/// Makes one line of a message that has names which other users chose.
pub fn line_for_terminal(message: &str) -> String {
    fit_for_terminal(&message.replace('\n', "; "))
}

/// Returns a JSON text with escapes for the characters that change the display of a terminal.
pub fn json_for_terminal(text: &str) -> String {
    let escaped = |c: char| match is_unfit_for_terminal(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Quotes a path as a word of a command that somebody may copy to a shell.
pub fn word_for_shell(path: &Path) -> String {
    let text = fit_for_terminal(&path.display().to_string());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns whether this character changes the display of a terminal.
pub fn is_unfit_for_terminal(c: char) -> bool {
    c.is_control() || is_bidirectional_control(c)
}

/// Returns whether this character changes the order in which a terminal shows others (the property
/// Bidi_Control of Unicode).
fn is_bidirectional_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_says_more_to_a_shell_or_a_terminal_than_itself() {
        let word = |path: &str| word_for_shell(Path::new(path));
        assert_eq!(word("/etc/ssl/a-b.cnf"), "/etc/ssl/a-b.cnf");
        assert_eq!(word("/a b"), "'/a b'");
        assert_eq!(word("/$(x)`y`;'z"), r"'/$(x)`y`;'\''z'");
        assert_eq!(line_for_terminal("a\nb\u{1b}c"), "a; b?c");
        let json = json_for_terminal("\"\u{9b}\u{202e}\"");
        assert_eq!(json, r#""\u009b\u202e""#);
    }
}
