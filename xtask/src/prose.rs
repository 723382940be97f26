//! `cargo xtask test prose`: the rules of CONTRIBUTING for prose, as far as they can be counted.
//!
//! It reads comments and string literals of Rust, and Markdown, without code spans and code blocks.
//! Everywhere lines have at most 100 columns, and some phrases are banned. In the documents that
//! people read first, and in the documentation of modules, at most 0.35 of 100 words begin a
//! *headless relative*: a clause in the place of a noun, as "what is missing" for "missing files".

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::command::{Failure, Outcome, on, quietly, root};
use crate::layers::literal_or_comment;

/// The most columns of a line.
const COLUMNS: usize = 100;

/// A word of so many columns cannot be broken: a link, mostly. Its line may be longer.
const UNBREAKABLE: usize = 60;

/// The most headless relatives of a group of documents, in a hundred words.
const HEADLESS: f64 = 0.35;

/// Banned phrases in lower case, and the remedy. `#` stands for a number.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "name the agent"),
    ("of ours", "name the owner: lockstep's, the module's"),
    ("that is none", "say what it is"),
    ("that is no", "write `is not a` or `without`"),
    ("shall", "write `must`, `will` or `is to`"),
    ("heed", "write `is ignored` or `is read`"),
    ("heeds", "write `is ignored` or `is read`"),
    ("issue #", "explain it here: readers do not have it"),
    ("the issue", "explain it here: readers do not have it"),
    ("the design page", "explain it here: readers do not have it"),
];

/// Nouns that `who` may follow, without the `s` of more than one.
const PEOPLE: &[&str] = &[
    "person",
    "people",
    "administrator",
    "user",
    "client",
    "attacker",
    "reader",
    "stranger",
    "programmer",
    "maintainer",
    "somebody",
    "anybody",
    "everybody",
    "nobody",
    "they",
    "other",
    "those",
    "one",
];

/// Words that are the head of no clause, though they stand before one.
const VAGUE: &[&str] = &[
    "all",
    "anything",
    "everything",
    "something",
    "nothing",
    "much",
    "more",
    "less",
];

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
    let (mut files, mut found) = (0, Vec::new());
    let mut groups = BTreeMap::<&str, Measured>::new();
    for name in list.lines().filter(|name| *name != OWN) {
        let path = root().join(name);
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        files += 1;
        let is_rust = name.ends_with(".rs");
        let findings = match is_rust {
            true => in_rust(&text),
            false => in_markdown(&text),
        };
        let place = |(line, what)| format!("{name}:{line}: {what}");
        found.extend(findings.into_iter().map(place));
        if let Some(group) = group(name) {
            let measured = groups.entry(group).or_default();
            let (words, headless) = measure(&text, is_rust);
            measured.words += words;
            measured.headless.extend(headless.into_iter().map(place));
        }
    }
    found.extend(groups.iter().filter_map(|(group, all)| all.excess(group)));
    match found.is_empty() {
        true => Ok(files),
        false => Err(Failure::new(found.join("\n")).remedy("the rules are in CONTRIBUTING.md")),
    }
}

/// Documents that are measured together; None for one that is not measured.
fn group(name: &str) -> Option<&str> {
    match name.rsplit_once('/') {
        _ if name.ends_with(".rs") => Some("the documentation of modules"),
        Some((folder, _)) => ["docs/user", "docs/decisions"]
            .into_iter()
            .find(|group| folder.starts_with(group)),
        None => (name != "CHANGELOG.md").then_some(name),
    }
}

/// The words of a group, and where its headless relatives are.
#[derive(Default)]
struct Measured {
    words: usize,
    headless: Vec<String>,
}

impl Measured {
    fn excess(&self, group: &str) -> Option<String> {
        let rate = 100.0 * self.headless.len() as f64 / self.words as f64;
        (rate > HEADLESS).then(|| {
            format!(
                "{}\n{group}: {rate:.2} headless relatives in 100 words, at most {HEADLESS}; name \
                 the thing, then say what it does",
                self.headless.join("\n")
            )
        })
    }
}

/// How many words a document has, and where headless relatives begin. Of a source it reads the
/// documentation of its module.
fn measure(text: &str, is_rust: bool) -> (usize, Vec<Finding>) {
    let lines = numbered(text).filter_map(|(number, line)| match is_rust {
        true => Some((number, line.trim_start().strip_prefix("//!")?)),
        false => Some((number, line)),
    });
    let words = words(lines);
    let mut found = Vec::new();
    for at in 0..words.len() {
        let word = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
        let before = word(at.wrapping_sub(1));
        let is_headless = match (word(at), word(at + 1)) {
            ("what", _) | ("that", "which") | ("those", "that" | "who" | "which" | "of") => true,
            ("who", _) => !PEOPLE.contains(&before.strip_suffix('s').unwrap_or(before)),
            ("one" | "ones", "that" | "who" | "which") => before == "the",
            (vague, "that") => VAGUE.contains(&vague),
            _ => false,
        };
        if is_headless {
            found.push((words[at].line, format!("`{} …`", words[at].text)));
        }
    }
    let count = words.iter().filter(|word| !word.text.is_empty()).count();
    (count, found)
}

/// A line number, and the error there.
type Finding = (usize, String);

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

fn in_markdown(text: &str) -> Vec<Finding> {
    let mut found = too_long(numbered(text), text);
    found.extend(phrases(numbered(text)));
    // The compiler finds it in sources.
    let conflicts = numbered(text)
        .filter(|(_, line)| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> "))
        .map(|(number, _)| (number, "a conflict of a merge: decide it".to_owned()));
    found.extend(conflicts);
    found
}

/// Reads line comments that follow each other, and string literals.
fn in_rust(source: &str) -> Vec<Finding> {
    let (mut comment, mut found) = (Vec::<(usize, &str)>::new(), Vec::new());
    let (mut rest, mut before, mut line) = (source, None, 1);
    let end = |comment: &mut Vec<(usize, &str)>, found: &mut Vec<Finding>| {
        found.extend(too_long(comment.iter().copied(), source));
        found.extend(phrases(comment.drain(..)));
    };
    while let Some(next) = rest.chars().next() {
        let length = literal_or_comment(rest, before);
        let text = &rest[..length.max(next.len_utf8())];
        if text.starts_with("//") {
            if comment.last().is_some_and(|(last, _)| last + 1 != line) {
                end(&mut comment, &mut found);
            }
            let bare = text.trim_start_matches('/');
            comment.push((line, bare.strip_prefix('!').unwrap_or(bare)));
        } else if length > 0 && text.contains('"') {
            let lines = text.lines().enumerate();
            found.extend(phrases(lines.map(|(at, text)| (line + at, text))));
        }
        line += text.matches('\n').count();
        before = Some(if length > 0 { ' ' } else { next });
        rest = &rest[text.len()..];
    }
    end(&mut comment, &mut found);
    found.sort();
    found
}

/// Lines of prose that have too many columns as they stand in the whole source. Code blocks, tables
/// and tags are left out.
fn too_long<'a>(lines: impl Iterator<Item = (usize, &'a str)>, whole: &str) -> Vec<Finding> {
    let columns: Vec<usize> = whole.lines().map(|line| line.chars().count()).collect();
    let mut is_code = false;
    let is_prose = |(_, line): &(usize, &str)| {
        let line = line.trim_start();
        is_code ^= line.starts_with("```");
        !is_code && !line.starts_with(['|', '<'])
    };
    let can_break = |line: &str| {
        let mut words = line.split_whitespace();
        words.all(|word| word.chars().count() < UNBREAKABLE)
    };
    lines
        .filter(is_prose)
        .filter(|(number, line)| columns[number - 1] > COLUMNS && can_break(line))
        .map(|(at, _)| {
            (
                at,
                format!("{} columns, at most {COLUMNS}", columns[at - 1]),
            )
        })
        .collect()
}

/// Where banned phrases begin.
fn phrases<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Finding> {
    let words = words(lines);
    let mut found = Vec::new();
    for start in 0..words.len() {
        for (phrase, instead) in BANNED {
            let mut rest = words[start..].iter();
            let is_here = phrase.split(' ').all(|wanted| {
                let word = rest.next().map_or("", |word| word.text.as_str());
                let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
                word == wanted || (wanted == "#" && is_number)
            });
            if is_here && rest.next().is_none_or(|next| next.text != "longer") {
                found.push((words[start].line, format!("`{phrase}`: {instead}")));
            }
        }
    }
    found
}

/// A word in lower case; or nothing, where words do not follow each other.
struct Word {
    line: usize,
    text: String,
}

/// The words of paragraphs. Code blocks and the targets of links are left out.
fn words<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut is_block, mut is_span, mut is_target) = (false, false, false);
    for (line, text) in lines {
        let mut push = |text: &str| {
            words.push(Word {
                line,
                text: text.to_lowercase(),
            });
        };
        let fence = text.trim_start().starts_with("```");
        is_block ^= fence;
        if is_block || fence || text.trim().is_empty() {
            is_span = false;
            push("");
            continue;
        }
        if text.trim_start().starts_with(['|', '#', '-', '*']) {
            push("");
        }
        let (mut word, mut before) = (String::new(), ' ');
        for c in text.chars().chain([' ']) {
            let is_word = c.is_alphanumeric() || c == '\'';
            match c {
                _ if is_target => is_target = c != ')',
                '`' => {
                    push(&std::mem::take(&mut word));
                    is_span = !is_span;
                    push("");
                }
                _ if is_span => {}
                _ if is_word => word.push(c),
                c => {
                    if !word.is_empty() {
                        push(&std::mem::take(&mut word));
                    }
                    is_target = before == ']' && c == '(';
                    if !c.is_whitespace() && c != ',' && c != '*' {
                        push("");
                    }
                }
            }
            before = c;
        }
    }
    words
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
            lines(in_markdown("What we\nshall do.\n\nAs in issue 4.\n")),
            [2, 4]
        );
        assert_eq!(lines(in_markdown("A key of\n\nours.\n")), NONE);
        let source = "f(\"one \\\n   shall\", r#\"a \"shall\" b\"#, '\"'); // shall\n";
        assert_eq!(lines(in_rust(source)), [2, 2, 2]);
    }

    #[test]
    fn what_only_looks_alike_is_left_alone() {
        let source = "// A key that is no longer used. An issue of many.\nlet whoever = 'x'; // that, is: no.\n";
        assert_eq!(lines(in_rust(source)), NONE);
        let text = "`whoever` and\n```\nwhoever shall\n```\n| of time |\n| ours |\n";
        assert_eq!(lines(in_markdown(text)), NONE);
    }

    #[test]
    fn a_paragraph_in_the_accent_is_found() {
        let good = "An administrator who reads this [page](what.md) finds `what` is missing. ";
        let planted = "What is missing is named,\nand those that are left are for who asks. \
                       It is all that counts, and the one which stays.";
        let (words, found) = measure(planted, false);
        assert_eq!((words, lines(found)), (24, vec![1, 2, 2, 2, 2]));
        assert_eq!(measure(good, false).1, []);
        let group = |text: &str| {
            let (words, headless) = measure(text, false);
            let headless = headless.into_iter().map(|(_, what)| what).collect();
            Measured { words, headless }.excess("README.md")
        };
        assert_eq!(group(&good.repeat(100)), None);
        assert!(group(&format!("{}{planted}", good.repeat(100))).is_some());
    }

    #[test]
    fn of_a_source_the_documentation_of_its_module_is_measured() {
        let source = "//! What it does.\n\n/// What this does.\nfn what() {}\n";
        let (words, found) = measure(source, true);
        assert_eq!((words, lines(found)), (3, vec![1]));
        assert_eq!(group("engine/src/lib.rs"), group("xtask/src/main.rs"));
        assert_eq!(group("docs/user/servers/nginx.md"), Some("docs/user"));
        assert_eq!(group("docs/lab/keyd.md"), None);
        assert_eq!(group("CHANGELOG.md"), None);
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
}
