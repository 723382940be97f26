//! The list of crates in ARCHITECTURE.md: each with the crates that it depends on.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::command::{Failure, Outcome, metadata, on, root};
use crate::rendered::with_part;

/// A crate, and the crates of the workspace that its compiler sees.
type Crate = (String, Vec<String>);

/// Writes the list into the page, in this order.
pub fn write(order: &[&str]) -> Outcome {
    let (path, text) = page()?;
    let text = with_list(&text, &crates(order)?)?;
    fs::write(&path, text).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    Ok(())
}

/// Whether the list of the page is that of the crates.
pub fn is_fresh(order: &[&str]) -> Outcome<bool> {
    let (_, text) = page()?;
    Ok(with_list(&text, &crates(order)?)? == text)
}

fn page() -> Outcome<(PathBuf, String)> {
    let path = root().join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
    Ok((path, text))
}

/// The crates of the workspace in this order.
fn crates(order: &[&str]) -> Outcome<Vec<Crate>> {
    let metadata = metadata(&["--locked", "--no-deps"])?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut crates: Vec<Crate> = packages.map(read).collect();
    let place = |name: &String| order.iter().position(|known| known == name);
    if let Some((name, _)) = crates.iter().find(|(name, _)| place(name).is_none()) {
        return Err(Failure::new(format!("xtask/src/layers.rs has no {name}")));
    }
    crates.sort_by_key(|(name, _)| place(name));
    for (_, below) in &mut crates {
        below.sort_by_key(place);
    }
    Ok(crates)
}

/// The short names of a package and of the packages of this repository that it is built with.
fn read(package: &Value) -> Crate {
    let name = |package: &Value| {
        let name = package["name"].as_str().unwrap_or_default();
        name.strip_prefix("lockstep-").unwrap_or(name).to_owned()
    };
    let all = package["dependencies"].as_array().into_iter().flatten();
    let built_with = all.filter(|one| one["path"].is_string() && one["kind"] != "dev");
    (name(package), built_with.map(name).collect())
}

fn with_list(page: &str, crates: &[Crate]) -> Outcome<String> {
    with_part(page, "cargo xtask layers --draw", &list(crates))
}

fn list(crates: &[Crate]) -> String {
    let width = crates.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, below): &Crate| match below.is_empty() {
        true => format!("{name}\n"),
        false => format!("{name:<width$} → {}\n", below.join(", ")),
    };
    let lines: String = crates.iter().map(line).collect();
    format!("\n```\n{lines}```\n\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn a_crate(name: &str, below: &[&str]) -> Crate {
        let below = below.iter().map(|name| (*name).to_owned());
        (name.to_owned(), below.collect())
    }

    #[test]
    fn an_arrow_too_many_and_an_arrow_too_few_are_stale() {
        let crates = [
            a_crate("top", &["middle", "low"]),
            a_crate("middle", &["low"]),
            a_crate("low", &[]),
        ];
        let page = "<!-- begin: rendered by `cargo xtask layers --draw` -->\n<!-- end -->\n";
        let page = with_list(page, &crates).unwrap();
        assert!(page.contains("\ntop    → middle, low\nmiddle → low\nlow\n"));
        assert_eq!(with_list(&page, &crates).unwrap(), page);
        for planted in ["top    → middle\n", "top    → middle, low, high\n"] {
            let stale = page.replace("top    → middle, low\n", planted);
            assert_ne!(with_list(&stale, &crates).unwrap(), stale);
        }
    }

    #[test]
    fn dependencies_of_tests_and_of_other_places_are_left_out() {
        let package = json!({"name": "lockstep-top", "dependencies": [
            {"name": "lockstep-low", "path": "/low", "kind": null},
            {"name": "lockstep-made", "path": "/made", "kind": "build"},
            {"name": "lockstep-testkit", "path": "/testkit", "kind": "dev"},
            {"name": "zeroize", "kind": null},
        ]});
        assert_eq!(read(&package), a_crate("top", &["low", "made"]));
    }
}
