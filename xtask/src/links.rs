//! Links of Markdown to files and headings of the repository: each leads somewhere. And the recipes
//! of CONTRIBUTING.md, and its first change: each name is in the file that is linked before it. And
//! the table of contents of docs/: it names every page. And the tests that docs/trust.md names.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome, on, quietly, root};

/// Checks every page; returns how many links there are.
pub fn check() -> Outcome<usize> {
    let mut list = Command::new("git");
    list.arg("-C")
        .arg(root())
        .args(["ls-files", "-co", "--exclude-standard", "--", "*.md"]);
    let list = quietly(&mut list)?;
    let (mut links, mut broken) = (0, Vec::new());
    for name in list.lines() {
        let path = root().join(name);
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        for link in links_of(&text) {
            links += 1;
            if !leads_somewhere(&path, link)? {
                broken.push(format!("{name}: {link}"));
            } else if leaves_the_book(&path, link) {
                broken.push(format!("{name}: {link} is not on the site of docs/"));
            }
        }
        if name == "CONTRIBUTING.md" {
            broken.extend(missing_names(&text)?);
            broken.extend(first_change(&text)?);
        }
        if name == "docs/trust.md" {
            broken.extend(missing_tests(&text, &tests()?));
        }
        if name == "docs/SUMMARY.md" {
            broken.extend(unlisted(&text, list.lines()));
        }
    }
    match broken.is_empty() {
        true => Ok(links),
        false => Err(Failure::new(format!(
            "links that lead nowhere:\n{}",
            broken.join("\n")
        ))),
    }
}

/// Where the links of a page lead, those to other sites left out.
pub fn links_of(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0.trim()))
        .filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
        .collect()
}

/// The pages below docs/ that are not in the book's table of contents: mdbook leaves them out.
fn unlisted<'a>(summary: &str, pages: impl Iterator<Item = &'a str>) -> Vec<String> {
    let listed = links_of(summary);
    pages
        .filter_map(|page| page.strip_prefix("docs/"))
        .filter(|page| *page != "SUMMARY.md" && !listed.contains(page))
        .map(|page| format!("docs/SUMMARY.md: {page} is missing"))
        .collect()
}

/// The names of recipes that are not in their file.
fn missing_names(text: &str) -> Outcome<Vec<String>> {
    let recipes = text
        .split_once("\n## Recipes\n")
        .map_or("", |(_, rest)| rest);
    let recipes = recipes.split("\n## ").next().unwrap_or(recipes);
    let mut missing = Vec::new();
    if !recipes.contains("\n- [") {
        missing.push("CONTRIBUTING.md: no recipes".to_owned());
    }
    for item in recipes.split("\n- [").skip(1) {
        let Some((file, does)) = item.split_once("): ") else {
            missing.push(format!("CONTRIBUTING.md: a recipe without a file: {item}"));
            continue;
        };
        let file = file.split_once("](").map_or(file, |(_, file)| file);
        let path = root().join(file);
        let held = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        let does = does.split("\n\n").next().unwrap_or(does);
        let names = does.split('`').skip(1).step_by(2);
        let of_file = names.filter(|name| !held.contains(name));
        missing.extend(of_file.map(|name| format!("CONTRIBUTING.md: {file} has no {name}")));
    }
    Ok(missing)
}

/// The names of the functions of all sources.
fn tests() -> Outcome<HashSet<String>> {
    let mut list = Command::new("git");
    list.arg("-C").arg(root());
    list.args(["grep", "-hoE", "fn [a-z0-9_]+\\(\\)", "--", "*.rs"]);
    let name = |line: &str| {
        line.trim_start_matches("fn ")
            .trim_end_matches("()")
            .to_owned()
    };
    Ok(quietly(&mut list)?.lines().map(name).collect())
}

/// The tests that a page names and that are not among these. The name of a test has several words.
fn missing_tests(text: &str, tests: &HashSet<String>) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let is_part = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
        name.chars().all(is_part) && name.matches('_').count() >= 3
    };
    let missing = spans.filter(is_name).filter(|name| !tests.contains(*name));
    missing
        .map(|name| format!("docs/trust.md: there is no test {name}"))
        .collect()
}

/// Whether the first change still changes something: the pattern of `sed` is in its file once.
fn first_change(text: &str) -> Outcome<Option<String>> {
    let words = text.lines().find_map(|line| line.strip_prefix("sed -i s/"));
    let Some((pattern, file)) = words.and_then(|words| {
        let mut words = words.split_whitespace();
        Some((words.next()?.split('/').next()?, words.next()?))
    }) else {
        return Ok(Some("CONTRIBUTING.md: no first change".to_owned()));
    };
    let path = root().join(file);
    let held = fs::read_to_string(&path).map_err(on(&path, "read"))?;
    let is_once = held.matches(pattern).count() == 1;
    Ok((!is_once).then(|| format!("CONTRIBUTING.md: {file} does not have {pattern} once")))
}

/// Whether a page of docs/ leads to a file that is not there: a site of the pages has none of them.
fn leaves_the_book(page: &Path, link: &str) -> bool {
    let book = root().join("docs");
    let target = resolved(&page.with_file_name("").join(link));
    page.starts_with(&book) && !target.starts_with(&book)
}

fn leads_somewhere(page: &Path, link: &str) -> Outcome<bool> {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_path_buf(),
        file => resolved(&page.with_file_name("").join(file)),
    };
    if !target.exists() {
        return Ok(false);
    }
    if heading.is_empty() || target.extension().is_none_or(|end| end != "md") {
        return Ok(true);
    }
    let text = fs::read_to_string(&target).map_err(on(&target, "read"))?;
    let has = headings(&text).any(|known| known == heading);
    Ok(has)
}

/// A path without `..`, whether or not the omitted folders exist.
pub fn resolved(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// The names by which headings are linked to.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_other_sites_are_left_out() {
        let text = "[a](b.md#c), [d](https://example.org/), [e](#f)\n";
        assert_eq!(links_of(text), ["b.md#c", "#f"]);
    }

    #[test]
    fn headings_are_named_as_renderers_name_them() {
        let text = "# What did *not* pay, and `what` did\ntext\n## C’s – own\n";
        let names: Vec<String> = headings(text).collect();
        assert_eq!(names[0], "what-did-not-pay-and-what-did");
    }

    #[test]
    fn a_recipe_that_names_something_else_is_found() {
        let text = |name: &str| {
            format!(
                "\n## Recipes\n\nOne:\n\n- [a](xtask/src/links.rs): an entry\n  in `{name}`\n\n\
                 Two:\n\n## End\n"
            )
        };
        assert_eq!(missing_names(&text("missing_names")).unwrap(), [""; 0]);
        assert_eq!(missing_names("").unwrap().len(), 1);
        let absent = ["not", "there"].join("_");
        assert_eq!(missing_names(&text(&absent)).unwrap().len(), 1);
        let change = |word: &str| format!("sed -i s/{word}/x/ LICENSE   # why\n");
        assert_eq!(first_change(&change("APPENDIX:")).unwrap(), None);
        assert!(first_change(&change("License")).unwrap().is_some());
        assert!(first_change("").unwrap().is_some());
    }

    #[test]
    fn a_missing_test_of_the_page_of_trust_is_found() {
        let tests = tests().unwrap();
        let name = "a_page_that_the_book_lacks_is_found";
        let page = format!("| claim | `trace`, tests: `{name}`, `no_such_test_is_there` | `a_b` |");
        let missing = missing_tests(&page, &tests);
        assert_eq!(
            missing,
            ["docs/trust.md: there is no test no_such_test_is_there"]
        );
    }

    #[test]
    fn a_page_that_the_book_lacks_is_found() {
        let pages = ["docs/SUMMARY.md", "docs/a.md", "README.md", "docs/b/c.md"];
        let missing = unlisted("- [A](a.md)\n", pages.into_iter());
        assert_eq!(missing, ["docs/SUMMARY.md: b/c.md is missing"]);
    }

    #[test]
    fn a_page_leads_to_what_is_there() {
        let readme = root().join("README.md");
        for (link, leads) in [
            ("LICENSE", true),
            ("docs/../SECURITY.md", true),
            ("nowhere.md", false),
            ("#no-such-heading", false),
            ("#lockstep", true),
        ] {
            assert_eq!(leads_somewhere(&readme, link).unwrap(), leads, "{link}");
        }
        let page = root().join("docs/user/settings.md");
        assert!(leaves_the_book(&page, "../../SECURITY.md#limits"));
        assert!(!leaves_the_book(&page, "../trust.md") && !leaves_the_book(&page, "#a"));
        assert!(!leaves_the_book(&readme, "SECURITY.md"));
    }
}
