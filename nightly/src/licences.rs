//! The licences of all crates whose code is in the module and the programs, for packages: a package
//! carries the texts that the crates' authors ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use xtask::command::{Failure, Outcome, metadata, on, root};

/// The crates of the shipped files with machine code.
pub const SHIPPED: [&str; 3] = ["lockstep-provider", "lockstep-cli", "lockstep-bench"];

/// How the names of files with licences begin, in upper case.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

const PREFACE: &str = "\
Lockstep is under the Apache License 2.0. Its module and its programs contain code of the crates
below, and of Rust's standard library, which is under the Apache License 2.0 or the MIT License,
copyright The Rust Project Contributors.
";

/// One text: each licence once, under the names of the crates that have it.
pub fn texts() -> Outcome<String> {
    let metadata = metadata(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])?;
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked(&metadata) {
        // The workspace's own crates have no source.
        if package["source"].is_null() {
            continue;
        }
        let [name, version, licence] =
            ["name", "version", "license"].map(|key| package[key].as_str().unwrap_or_default());
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let mut texts = files(manifest.parent().unwrap_or(manifest))?;
        if texts.is_empty() && licence.split(" OR ").any(|offer| offer == "Apache-2.0") {
            // The author's offer that we take is the licence of Lockstep itself.
            let own = root().join("LICENSE");
            texts.push(fs::read_to_string(&own).map_err(on(&own, "read"))?);
        }
        if texts.is_empty() {
            return Err(Failure::new(format!("{name} {version} carries no licence"))
                .remedy("use another crate, or add the text of its licence here"));
        }
        for text in texts {
            let users = crates.entry(text).or_default();
            users.insert(format!("{name} {version} ({licence})"));
        }
    }
    let rule = "-".repeat(80);
    let sections = crates.iter().map(|(text, users)| {
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        format!("\n{rule}\n{}\n\n{}\n", users.join("\n"), text.trim_end())
    });
    Ok(PREFACE.to_owned() + &sections.collect::<String>())
}

/// The packages whose code is in the shipped files: dependencies of dependencies, without the ones
/// that run at build time only.
fn linked(metadata: &Value) -> Vec<&Value> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let nodes = list(&metadata["resolve"]["nodes"]);
    let mut found: Vec<&Value> = Vec::new();
    let mut waiting: Vec<&Value> = packages
        .iter()
        .filter(|package| SHIPPED.iter().any(|name| package["name"] == *name))
        .collect();
    while let Some(package) = waiting.pop() {
        let is_macro = |target: &Value| target["kind"][0] == "proc-macro";
        let known = found.iter().any(|other| other["id"] == package["id"]);
        if known || list(&package["targets"]).iter().any(is_macro) {
            continue;
        }
        found.push(package);
        let node = nodes.iter().find(|node| node["id"] == package["id"]);
        let dependencies = node.map(|node| list(&node["deps"])).unwrap_or_default();
        for dependency in dependencies {
            let is_normal = |kind: &Value| kind["kind"].is_null();
            if list(&dependency["dep_kinds"]).iter().any(is_normal) {
                let id = &dependency["pkg"];
                waiting.extend(packages.iter().filter(|package| package["id"] == *id));
            }
        }
    }
    found
}

/// The texts of the files with licences in a crate's directory.
fn files(directory: &Path) -> Outcome<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(directory).map_err(on(directory, "read"))? {
        let path = entry.map_err(on(directory, "read"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
            texts.push(text.replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_in_the_binaries_are_named_and_others_are_not() {
        let texts = texts().unwrap();
        let names = |name: &str| texts.contains(&format!("\n{name} "));
        for linked in [
            "openssl-sys",
            "smallvec",
            "clap_builder",
            "ring",
            "rustls",
            "graviola",
        ] {
            assert!(names(linked), "{linked}");
        }
        for other in [
            "lockstep-kernels",
            "syn",
            "serde_derive",
            "cc",
            "num-bigint",
        ] {
            assert!(!names(other), "{other}");
        }
        assert!(texts.contains("Permission is hereby granted"));
    }
}
