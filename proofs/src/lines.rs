//! How many lines each kind of statement rests on, by the table of README.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// This workspace.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PAGE: &str = "README.md";
/// The folders all of whose files are in the table.
const FOLDERS: [&str; 3] = ["src", "lists", "lanes"];
const HEADING: &str = "\n## Files by statement\n";

/// The rows of the table, and the lines of their files without comments and blank ones. Each file
/// of [`FOLDERS`] must stand in a row.
pub fn count() -> Result<Vec<(String, usize)>, String> {
    let root = Path::new(ROOT);
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let page = read(PAGE)?;
    let section = page.split_once(HEADING).map(|(_, section)| section);
    let section = section.and_then(|section| section.split("\n## ").next());
    let section = section.ok_or_else(|| format!("{PAGE} has no {:?}", HEADING.trim()))?;
    let (mut rows, mut named) = (Vec::new(), BTreeSet::new());
    for row in section.lines().filter(|line| line.contains(".rs` |")) {
        let mut lines = 0;
        for name in row.split('`').skip(1).step_by(2) {
            let is_counted = |line: &&str| !line.is_empty() && !line.starts_with("//");
            lines += read(name)?
                .lines()
                .map(str::trim)
                .filter(is_counted)
                .count();
            named.insert(name.to_owned());
        }
        rows.push((
            row.split('|').nth(1).unwrap_or(row).trim().to_owned(),
            lines,
        ));
    }
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).map_err(|error| error.to_string())? {
            let name = entry.map_err(|error| error.to_string())?.file_name();
            let path = format!("{folder}/{}", name.display());
            if !named.contains(&path) {
                return Err(format!("{path} is in no row of {PAGE}"));
            }
        }
    }
    Ok(rows)
}

/// Prints them.
pub fn run() -> Result<(), String> {
    for (what, lines) in count()? {
        println!("{lines:>6}  {what}");
    }
    Ok(())
}
