//! The parts of pages that a command writes; the rest is written by hand.

use crate::command::{Failure, Outcome};

const END: &str = "<!-- end -->\n";

/// Returns a page with this text between the marks of a command.
pub fn with_part(page: &str, command: &str, text: &str) -> Outcome<String> {
    let begin = format!("<!-- begin: rendered by `{command}` -->\n");
    let parts = page
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    match parts {
        Some((before, after)) => Ok(format!("{before}{begin}{text}{END}{after}")),
        None => Err(
            Failure::new(format!("a page has no place for `{command}`")).remedy(format!(
                "write the lines {} and {}",
                begin.trim(),
                END.trim()
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stands_between_its_marks() {
        let page = |text: &str| {
            format!("before\n<!-- begin: rendered by `it` -->\n{text}<!-- end -->\nafter\n")
        };
        let rendered = with_part(&page("old\n"), "it", "new\n").unwrap();
        assert_eq!(rendered, page("new\n"));
        assert!(with_part(&page(""), "another", "").is_err());
        assert!(with_part("no marks", "it", "").is_err());
    }
}
