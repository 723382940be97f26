//! `cargo xtask test prose`: the rules of CONTRIBUTING for prose, as far as a pattern can check
//! them.
//!
//! It reads comments and string literals of Rust, and Markdown. Code spans and code blocks are left
//! out.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Failure, Outcome, on, quietly, root};
use crate::layers::literal_or_comment;

/// The most columns of a line.
const COLUMNS: usize = 100;

/// A word of so many columns cannot be broken: a link, mostly. Its line may be longer.
const UNBREAKABLE: usize = 60;

/// What is not written, in lower case, and what to do instead. `#` stands for a number.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "name the agent"),
    ("as far as that can be said", "say what is certain"),
    ("of ours", "name the owner: lockstep's, the module's"),
    ("that is none", "say what it is"),
    ("that is no", "write `is not a` or `without`"),
    ("shall", "write `must`, `will` or `is to`"),
    ("heed", "write `is ignored` or `is read`"),
    ("heeds", "write `is ignored` or `is read`"),
    ("heeded", "write `is ignored` or `is read`"),
    ("in so many", "write `one in every N`"),
    ("goes to stock", "write `falls back to OpenSSL`"),
    (
        "stock openssl",
        "write `OpenSSL's own implementation` or `OpenSSL alone`",
    ),
    (
        "stock libcrypto",
        "write `OpenSSL's own implementation` or `OpenSSL alone`",
    ),
    (
        "keeps the module out",
        "write `prevents the module from loading`",
    ),
    (
        "issue #",
        "explain it here: readers do not have the list of issues",
    ),
    (
        "the issue",
        "explain it here: readers do not have the list of issues",
    ),
    (
        "the design page",
        "explain it here: readers do not have that page",
    ),
    (
        "the design notes",
        "explain it here: readers do not have them",
    ),
];

/// Words behind which a banned phrase is in order.
const UNLESS_BEFORE: &[(&str, &str)] = &[("that is no", "longer")];

/// A file that holds the banned phrases themselves.
const OWN: &str = "xtask/src/prose.rs";

/// Checks all files of the repository; returns how many there are.
pub fn check() -> Outcome<usize> {
    let mut list = Command::new("git");
    list.arg("-C").arg(root()).args([
        "ls-files",
        "-co",
        "--exclude-standard",
        "--",
        "*.rs",
        "*.md",
    ]);
    let list = quietly(&mut list)?;
    let mut found = Vec::new();
    let mut files = 0;
    for name in list.lines().filter(|name| *name != OWN) {
        let path = root().join(name);
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        files += 1;
        let findings = match Path::new(name).extension().is_some_and(|end| end == "rs") {
            true => in_rust(&text),
            false => in_markdown(&text),
        };
        found.extend(
            findings
                .into_iter()
                .map(|(line, what)| format!("{name}:{line}: {what}")),
        );
    }
    match found.is_empty() {
        true => Ok(files),
        false => Err(Failure::new(found.join("\n")).remedy("the rules are in CONTRIBUTING.md")),
    }
}

/// A line number, and what is wrong there.
type Finding = (usize, String);

/// A line of prose with its number.
type Line = (usize, String);

fn in_markdown(text: &str) -> Vec<Finding> {
    let lines: Vec<Line> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect();
    let whole: Vec<&str> = text.lines().collect();
    let mut found = too_long(&lines, &whole);
    found.extend(phrases(&lines));
    found.extend(conflicts(&lines));
    found
}

/// What a merge has left to be decided. The compiler finds it in sources.
fn conflicts(lines: &[Line]) -> impl Iterator<Item = Finding> {
    lines
        .iter()
        .filter(|(_, text)| text.starts_with("<<<<<<< ") || text.starts_with(">>>>>>> "))
        .map(|(number, _)| (*number, "a conflict of a merge: decide it".to_owned()))
}

fn in_rust(source: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let whole: Vec<&str> = source.lines().collect();
    for passage in passages(source) {
        if passage.is_comment {
            found.extend(too_long(&passage.lines, &whole));
        }
        found.extend(phrases(&passage.lines));
    }
    found
}

/// Prose in a source of Rust: line comments that follow each other, or a string literal.
struct Passage {
    is_comment: bool,
    lines: Vec<Line>,
}

fn passages(source: &str) -> Vec<Passage> {
    let mut all: Vec<Passage> = Vec::new();
    let (mut rest, mut before, mut line) = (source, None, 1);
    while let Some(next) = rest.chars().next() {
        let length = literal_or_comment(rest, before);
        if length == 0 {
            line += usize::from(next == '\n');
            before = Some(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let text = &rest[..length];
        if text.starts_with("//") {
            let bare = text.trim_start_matches('/');
            let bare = bare.strip_prefix('!').unwrap_or(bare);
            let bare = bare.strip_prefix(' ').unwrap_or(bare).to_owned();
            match all.last_mut() {
                Some(last)
                    if last.is_comment && last.lines.last().is_some_and(|l| l.0 + 1 == line) =>
                {
                    last.lines.push((line, bare));
                }
                _ => all.push(Passage {
                    is_comment: true,
                    lines: vec![(line, bare)],
                }),
            }
        } else if text.contains('"') {
            let lines = text.lines().enumerate();
            all.push(Passage {
                is_comment: false,
                lines: lines
                    .map(|(at, text)| (line + at, text.trim_end_matches('\\').to_owned()))
                    .collect(),
            });
        }
        line += text.matches('\n').count();
        before = Some(' ');
        rest = &rest[length..];
    }
    all
}

/// Calls back with each line of prose, and whether a new paragraph begins there. Code blocks and
/// empty lines are left out.
fn prose(lines: &[Line], mut each: impl FnMut(&Line, bool)) {
    let (mut fenced, mut begins) = (false, true);
    for line in lines {
        let text = line.1.trim_start();
        if text.starts_with("```") {
            fenced = !fenced;
            begins = true;
        } else if fenced || text.is_empty() {
            begins = true;
        } else {
            let own = text.starts_with(['|', '#', '-', '*']);
            each(line, begins || own);
            begins = text.starts_with(['|', '#']);
        }
    }
}

/// Lines of prose that have too many columns as they stand in the whole source.
fn too_long(lines: &[Line], whole: &[&str]) -> Vec<Finding> {
    let mut found = Vec::new();
    prose(lines, |(number, text), _| {
        let columns = whole.get(number - 1).map_or(0, |line| line.chars().count());
        let unbreakable = text
            .split_whitespace()
            .any(|word| word.chars().count() >= UNBREAKABLE);
        if columns > COLUMNS && !unbreakable && !text.trim_start().starts_with(['|', '<']) {
            found.push((*number, format!("{columns} columns, at most {COLUMNS}")));
        }
    });
    found
}

/// A word of a paragraph.
struct Word {
    line: usize,
    /// In lower case, without punctuation.
    text: String,
    /// Whether only a space stands before it.
    follows: bool,
    /// Whether it begins a sentence, with a capital.
    begins: bool,
}

/// The banned phrases of a text, paragraph by paragraph.
fn phrases(lines: &[Line]) -> Vec<Finding> {
    let mut paragraphs: Vec<Vec<&Line>> = Vec::new();
    prose(lines, |line, begins| {
        // The lines live as long as `lines`; the callback does not say so.
        let Some(line) = lines.iter().find(|known| known.0 == line.0) else {
            return;
        };
        match paragraphs.last_mut() {
            Some(paragraph) if !begins => paragraph.push(line),
            _ => paragraphs.push(vec![line]),
        }
    });
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let words = words(&paragraph);
        for start in 0..words.len() {
            for (phrase, instead) in BANNED {
                if is_at(&words[start..], phrase) {
                    found.push((words[start].line, format!("`{phrase}`: {instead}")));
                }
            }
            if let Some(object) = fronted(&words[start..]) {
                let what = format!("`Of {object} … the …`: begin with the subject");
                found.push((words[start].line, what));
            }
        }
    }
    found
}

/// The words of a paragraph, code spans left out.
fn words(paragraph: &[&Line]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut in_code, mut ended, mut apart) = (false, true, false);
    for (line, text) in paragraph {
        let mut word = String::new();
        for c in text.chars().chain([' ']) {
            if !in_code && (c.is_alphanumeric() || c == '\'') {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                words.push(Word {
                    line: *line,
                    begins: ended && word.starts_with(char::is_uppercase),
                    text: word.to_lowercase(),
                    follows: !apart,
                });
                word.clear();
                (ended, apart) = (false, false);
            }
            match c {
                '`' => {
                    in_code = !in_code;
                    apart = true;
                    ended = false;
                }
                '.' | ':' | '?' | '!' | '|' | '"' => (ended, apart) = (true, true),
                c if c.is_whitespace() => {}
                _ => apart = true,
            }
        }
    }
    words
}

fn is_at(words: &[Word], phrase: &str) -> bool {
    let wanted: Vec<&str> = phrase.split(' ').collect();
    let fits = |(place, (word, wanted)): (usize, (&Word, &&str))| {
        let same = match *wanted {
            "#" => word.text.chars().all(|c| c.is_ascii_digit()),
            wanted => word.text == wanted,
        };
        same && (place == 0 || word.follows)
    };
    if words.len() < wanted.len() || !words.iter().zip(&wanted).enumerate().all(fits) {
        return false;
    }
    let next = words.get(wanted.len()).map(|word| word.text.as_str());
    !UNLESS_BEFORE
        .iter()
        .any(|(banned, before)| *banned == phrase && next == Some(before))
}

/// The first word of an object that stands before its subject: a sentence that begins with `Of`,
/// and has a subject with an article later on.
fn fronted(words: &[Word]) -> Option<&str> {
    let (of, rest) = words.split_first()?;
    let first = rest.first()?;
    if !of.begins
        || of.text != "of"
        || ["the", "course", "these", "this"].contains(&first.text.as_str())
    {
        return None;
    }
    let sentence = rest.iter().take_while(|word| !word.begins).skip(1);
    let found = sentence.clone().any(|word| word.text == "the");
    found.then_some(first.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines(found: Vec<Finding>) -> Vec<usize> {
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn phrases_are_found_over_the_ends_of_lines() {
        let source = "/// A key that is\n/// no key.\nfn f() {\n    g(\"says Whoever\"); // a key of ours\n}\n";
        assert_eq!(lines(in_rust(source)), [1, 4, 4]);
        assert_eq!(
            lines(in_markdown("One in\nso many.\n\nAs in issue 4.\n")),
            [1, 4]
        );
        assert_eq!(lines(in_markdown("It goes to\n\nstock.\n")), NONE);
    }

    #[test]
    fn what_only_looks_alike_is_left_alone() {
        let source = "// A key that is no longer used. An issue of many.\nlet whoever = 'x'; // that, is: no.\n";
        assert_eq!(lines(in_rust(source)), NONE);
        let text = "`whoever` and\n```\nwhoever shall\n```\n| of time |\n| ours |\n";
        assert_eq!(lines(in_markdown(text)), NONE);
    }

    #[test]
    fn fronted_objects_are_found() {
        assert_eq!(
            lines(in_markdown("Of RSA and EC the functions differ.")),
            [1]
        );
        assert_eq!(
            lines(in_markdown("Good. Of batches the last count stands.")),
            [1]
        );
        assert_eq!(
            lines(in_markdown("Of the last run. Out of it the rest.")),
            NONE
        );
        assert_eq!(lines(in_markdown("A table of words, the rest.")), NONE);
        assert_eq!(lines(in_markdown("Of length. Then the rest.")), NONE);
    }

    #[test]
    fn long_lines_are_found_where_they_can_be_broken() {
        let long = "word ".repeat(21);
        let link = format!("see [this]({})", "x".repeat(100));
        assert_eq!(
            lines(in_markdown(&format!(
                "{long}\n{link}\n| {long} |\n```\n{long}\n```\n"
            ))),
            [1]
        );
        let deep = format!(
            "{}// {}\nlet a = 1; // {long}",
            " ".repeat(60),
            "word ".repeat(10)
        );
        assert_eq!(lines(in_rust(&deep)), [1, 2]);
        assert_eq!(lines(in_rust(&format!("let a = \"{long}\";"))), NONE);
    }

    #[test]
    fn conflicts_of_merges_are_found() {
        let text = "one\n<<<<<<< HEAD\ntwo\n=======\nthree\n>>>>>>> 1 (Four)\n";
        assert_eq!(lines(in_markdown(text)), [2, 6]);
    }

    #[test]
    fn literals_are_read_to_their_ends() {
        let source = "f(\"one \\\n   shall\", r#\"a \"shall\" b\"#, '\"'); // shall\n";
        assert_eq!(lines(in_rust(source)), [2, 2, 2]);
    }
}
