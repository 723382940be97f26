//! `cargo xtask symbols`: the module is linked to no libcrypto, and calls only functions that every
//! version of OpenSSL exports.
//!
//! `provider/src/ffi/symbols.rs` declares the functions. `symbols/versions.txt` has a line for
//! each, made from the lists of exported functions in OpenSSL's sources (`util/libcrypto.num`): the
//! first and the last version that has it. A private function is in no such list.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Failure, Outcome, on, quietly, root};

const DECLARED: &str = "provider/src/ffi/symbols.rs";
const TABLE: &str = "xtask/src/symbols/versions.txt";

/// Checks the module and its declarations; returns a line about both.
pub fn check(module: &Path) -> Outcome<String> {
    let read = |name: &str| {
        let path = root().join(name);
        fs::read_to_string(&path).map_err(on(&path, "read"))
    };
    let (source, table) = (read(DECLARED)?, read(TABLE)?);
    let declared = declared(&source);
    let mut broken = unbound(&declared, &dynamic(module)?);
    broken.extend(unversioned(&declared, &table));
    match broken.is_empty() {
        true => Ok(format!(
            "symbols: ok, {} functions of libcrypto, bound when the module is loaded\n",
            declared.len()
        )),
        false => Err(Failure::new(broken.join("\n")).remedy(format!(
            "{DECLARED} says which functions the module calls, {TABLE} which versions have them; \
             `cargo xtask symbols --record VERSION=FILE...` makes that table of each version's \
             util/libcrypto.num"
        ))),
    }
}

/// Requests to the linker when it loads the module: libraries and symbols, as binutils show them.
fn dynamic(module: &Path) -> Outcome<String> {
    let libraries = quietly(Command::new("readelf").args(["-d", "-W"]).arg(module))?;
    let mut symbols = Command::new("nm");
    symbols.args(["-D", "--undefined-only", "--with-symbol-versions"]);
    Ok(libraries + &quietly(symbols.arg(module))?)
}

/// The functions in the declaration.
fn declared(source: &str) -> Vec<&str> {
    let (_, declarations) = source.split_once("\nimported! {").unwrap_or_default();
    declarations
        .lines()
        .filter(|line| line.trim_start().starts_with("pub "))
        .filter_map(|line| line.split_once(" fn ")?.1.split(['(', '<']).next())
        .collect()
}

/// Symbols and libraries that tie the module to a libcrypto before it is loaded.
fn unbound(declared: &[&str], dynamic: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for line in dynamic.lines() {
        if line.contains("(NEEDED)") && ["libcrypto", "libssl"].iter().any(|l| line.contains(l)) {
            broken.push(format!(
                "the module is linked to a library: {}",
                line.trim()
            ));
        }
        let Some(symbol) = line.trim_start().strip_prefix("U ") else {
            continue;
        };
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
        if version.is_empty() || version.starts_with("OPENSSL_") || declared.contains(&name) {
            broken.push(format!("the linker must find {symbol} to load the module"));
        }
    }
    broken
}

/// Functions that a version lacks, and lines of the table that belong to no function.
fn unversioned(declared: &[&str], table: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let lines: Vec<Vec<&str>> = rows(table).collect();
    let versions = table.lines().find_map(|line| line.strip_prefix(VERSIONS));
    let versions: Vec<&str> = versions.unwrap_or_default().split(' ').collect();
    let every = [versions.first(), versions.last()];
    for name in declared {
        match lines.iter().find(|line| line.first() == Some(name)) {
            None => broken.push(format!("{name} is not in the table")),
            Some(line) if [line.get(1), line.get(2)] != every => {
                broken.push(format!("{name} is not in every version"));
            }
            Some(_) => {}
        }
    }
    let is_declared = |line: &&Vec<&str>| declared.contains(&line[0]);
    let unused = lines.iter().filter(|line| !is_declared(line));
    broken.extend(unused.map(|line| format!("{} is in the table and is not called", line[0])));
    broken
}

/// The lines of the table about functions, in columns.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect())
}

/// Start of the list of versions in the table.
const VERSIONS: &str = "# versions: ";

/// Makes the table from lists of exported functions, each given as VERSION=FILE, oldest first.
pub fn record(lists: &[&str]) -> Outcome {
    if lists.is_empty() {
        return Err(Failure::new("a table of no version would be empty")
            .remedy("cargo xtask symbols --record VERSION=FILE..."));
    }
    let mut versions = Vec::new();
    for list in lists {
        let (version, path) = list
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("`{list}` is not VERSION=FILE")))?;
        let text = fs::read_to_string(path).map_err(on(path.as_ref(), "read"))?;
        versions.push((version, text));
    }
    let declarations = root().join(DECLARED);
    let source = fs::read_to_string(&declarations).map_err(on(&declarations, "read"))?;
    let table = root().join(TABLE);
    fs::write(&table, rendered(&declared(&source), &versions)).map_err(on(&table, "write"))
}

/// The table of these functions.
fn rendered(declared: &[&str], versions: &[(&str, String)]) -> String {
    let names: Vec<&str> = versions.iter().map(|(version, _)| *version).collect();
    let mut table = format!(
        "# The functions of libcrypto that the module calls, the first and the last version of \
         OpenSSL\n# that has each, and since when it is deprecated. Made by `cargo xtask symbols \
         --record`.\n{VERSIONS}{}\n",
        names.join(" ")
    );
    let mut sorted = declared.to_vec();
    sorted.sort_unstable();
    for name in sorted {
        let having: Vec<(&str, String)> = versions
            .iter()
            .filter_map(|(version, list)| Some((*version, exported(list, name)?)))
            .collect();
        let (Some((first, _)), Some((last, deprecated))) = (having.first(), having.last()) else {
            continue;
        };
        let line = format!("{name:<40} {first} {last} {deprecated}");
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}

/// Whether a version exports a function, and since when it is deprecated: a word, or nothing.
fn exported(list: &str, name: &str) -> Option<String> {
    let line = list
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name))?;
    let about = line.split_whitespace().nth(3)?;
    let (exists, about) = about.split_once(':')?;
    let features = about.rsplit(':').next().unwrap_or_default().split(',');
    let deprecated = features
        .filter_map(|feature| feature.strip_prefix("DEPRECATEDIN_"))
        .map(|version| version.replace('_', "."))
        .next();
    (exists == "EXIST").then(|| deprecated.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "macro\nimported! {\n    Basis {\n        pub safe fn BN_new() -> X;\n\
        \n        pub unsafe fn RSA_get0_key<'a>(\n            n: X,\n        );\n    }\n}\n";
    const OLD: &str = "BN_new\t1\t3_0_0\tEXIST::FUNCTION:\n\
        RSA_get0_key 2 3_0_0 EXIST::FUNCTION:DEPRECATEDIN_3_0\n";

    #[test]
    fn what_is_declared_is_listed_with_its_versions() {
        let declared = declared(SOURCE);
        assert_eq!(declared, ["BN_new", "RSA_get0_key"]);
        let gone = OLD.replace("2 3_0_0 EXIST", "2 3_0_0 NOEXIST");
        let versions = [("3.0", OLD.to_owned()), ("4.0", OLD.to_owned())];
        let table = rendered(&declared, &versions);
        let rows: Vec<_> = rows(&table).collect();
        assert_eq!(rows[0], ["BN_new", "3.0", "4.0"]);
        assert_eq!(rows[1], ["RSA_get0_key", "3.0", "4.0", "3.0"]);
        assert!(unversioned(&declared, &table).is_empty());

        let removed = rendered(&declared, &[("3.0", OLD.to_owned()), ("4.0", gone)]);
        let broken = unversioned(&declared, &removed);
        assert_eq!(broken, ["RSA_get0_key is not in every version"]);
        let private = unversioned(&["BN_new", "RSA_get0_key", "bn_private"], &table);
        assert_eq!(private, ["bn_private is not in the table"]);
        let unused = unversioned(&["BN_new"], &table);
        assert_eq!(unused, ["RSA_get0_key is in the table and is not called"]);
    }

    #[test]
    fn the_table_is_not_replaced_by_an_empty_one() {
        assert!(record(&[]).is_err());
    }

    #[test]
    fn a_module_that_is_linked_to_libcrypto_is_found() {
        let right = " 0x01 (NEEDED)  Shared library: [libc.so.6]\n\
            \x20                U dlsym@GLIBC_2.34\n                 w __gmon_start__\n";
        assert!(unbound(&["BN_new"], right).is_empty());
        for wrong in [
            " 0x01 (NEEDED)  Shared library: [libcrypto.so.3]\n",
            " 0x01 (NEEDED)  Shared library: [libssl.so.4]\n",
            "                 U EVP_sha256@OPENSSL_3.0.0\n",
            "                 U BN_new@SOMETHING\n",
            "                 U EVP_sha256\n",
        ] {
            assert_eq!(unbound(&["BN_new"], wrong).len(), 1, "{wrong}");
        }
    }
}
