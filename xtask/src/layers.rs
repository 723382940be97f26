//! `cargo xtask test layers`: dependencies point one way, and `unsafe` stays where it belongs.
//!
//! Five kinds of rules. The dependencies of a crate are read from `cargo tree`; forbidden names are
//! looked for in its sources, comments and literals left out; neither the files nor the folders of
//! a crate may import each other in circles; the compiler denies `unsafe`, except where one of the
//! files listed here allows it; and ARCHITECTURE.md lists the dependencies as they are.

mod circles;
mod drawing;

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, Outcome, cargo, on, quietly, root};

/// The rules for one crate.
struct Layer {
    /// Directory and, after `lockstep-`, the name of the package. The [`NAMED_SO`] are named so
    /// themselves.
    name: &'static str,
    /// Our crates that it may depend on directly.
    ours: &'static [&'static str],
    /// Packages that must be nowhere below it, by the start of their names.
    forbidden: &'static [&'static str],
    /// Files of the crate that may allow `unsafe` in themselves or in modules below; none means
    /// that the crate root must forbid it.
    unsafe_allowed_by: &'static [&'static str],
    /// Words its sources must not hold.
    unspoken: &'static [&'static str],
}

const RANDOMNESS: &[&str] = &[
    "getrandom",
    "rand",
    "openssl",
    "native-tls",
    "libc",
    "rustix",
];

/// An administrator's program has no TLS library of its own, and is linked to no OpenSSL: it has to
/// start with whichever is installed.
const NO_TLS: &[&str] = &["native-tls", "rustls", "ring", "openssl"];

/// The crate that asks the system for memory. Its dependencies may stand below every other crate.
const VAULT: &str = "lockstep-vault";

/// From the bottom up.
const LAYERS: &[Layer] = &[
    Layer {
        name: "rig",
        ours: &[],
        forbidden: &["lockstep-"],
        unsafe_allowed_by: &["src/ptrace.rs"],
        unspoken: &[],
    },
    Layer {
        name: "testkit",
        ours: &[],
        forbidden: &["lockstep-", "openssl", "native-tls"],
        unsafe_allowed_by: &[],
        unspoken: &[],
    },
    Layer {
        name: "xtask",
        ours: &[],
        forbidden: &["lockstep-"],
        unsafe_allowed_by: &[],
        unspoken: &[],
    },
    Layer {
        name: "nightly",
        ours: &["xtask"],
        forbidden: &["lockstep-"],
        unsafe_allowed_by: &[],
        unspoken: &[],
    },
    Layer {
        name: "vault",
        ours: &[],
        forbidden: &["getrandom", "rand", "openssl", "native-tls"],
        unsafe_allowed_by: &["src/lib.rs"],
        unspoken: &["std::env", "std::fs", "std::net", "static mut", "arch::"],
    },
    Layer {
        name: "kernels",
        ours: &[VAULT],
        forbidden: RANDOMNESS,
        unsafe_allowed_by: &["src/lib.rs", "src/secret.rs"],
        unspoken: &[
            "std::thread",
            "std::env",
            "std::fs",
            "std::net",
            "std::process",
            "static mut",
            "getrandom",
            "openssl",
            "rustix",
        ],
    },
    Layer {
        name: "ops",
        ours: &[VAULT, "lockstep-kernels"],
        forbidden: &["openssl", "native-tls"],
        unsafe_allowed_by: &[],
        unspoken: &[
            "thread::spawn",
            "Condvar",
            "std::env",
            "std::fs",
            "std::net",
            "openssl_sys",
            "core_arch",
            "std::arch",
            "core::arch",
        ],
    },
    Layer {
        name: "opencl",
        ours: &[],
        forbidden: RANDOMNESS,
        unsafe_allowed_by: &["src/lib.rs"],
        unspoken: &["std::env", "std::fs", "std::net", "static mut"],
    },
    Layer {
        name: "lockstep",
        ours: &["lockstep-ops", "lockstep-opencl"],
        forbidden: NO_TLS,
        unsafe_allowed_by: &[],
        unspoken: &["std::net", "std::process", "core_arch", "core::arch"],
    },
    Layer {
        name: "c",
        ours: &["lockstep"],
        forbidden: NO_TLS,
        unsafe_allowed_by: &["src/lib.rs", "tests/c.rs"],
        unspoken: &[
            "std::env",
            "std::fs",
            "std::net",
            "std::process",
            "static mut",
        ],
    },
    Layer {
        name: "python",
        ours: &["lockstep"],
        forbidden: NO_TLS,
        unsafe_allowed_by: &["src/lib.rs"],
        unspoken: &["std::fs", "std::net", "std::process", "static mut"],
    },
    Layer {
        name: "page",
        ours: &[],
        forbidden: &["openssl", "native-tls", "rand", "getrandom"],
        unsafe_allowed_by: &["src/lib.rs"],
        unspoken: &["std::thread", "std::net", "static mut", "openssl"],
    },
    Layer {
        name: "ring",
        ours: &[],
        forbidden: &["openssl", "native-tls", "rand", "getrandom"],
        unsafe_allowed_by: &["src/memory.rs", "src/socket.rs", "tests/processes.rs"],
        unspoken: &["std::net", "std::process", "static mut"],
    },
    Layer {
        name: "counters",
        ours: &[VAULT, "lockstep-ops", "lockstep-page"],
        forbidden: &["openssl", "native-tls"],
        unsafe_allowed_by: &[],
        unspoken: &["openssl_sys", "core_arch", "std::arch", "core::arch"],
    },
    Layer {
        name: "engine",
        ours: &["lockstep-ops", "lockstep-counters"],
        forbidden: &["openssl", "native-tls"],
        unsafe_allowed_by: &[],
        unspoken: &["openssl_sys", "core_arch", "std::arch", "core::arch"],
    },
    Layer {
        name: "remote",
        ours: &["lockstep-ring"],
        forbidden: NO_TLS,
        unsafe_allowed_by: &[],
        unspoken: &["std::env", "std::fs"],
    },
    Layer {
        name: "keyd",
        ours: &[VAULT, "lockstep-engine", "lockstep-remote", "lockstep-ring"],
        forbidden: NO_TLS,
        unsafe_allowed_by: &[],
        unspoken: &["std::arch", "core::arch"],
    },
    Layer {
        name: "conf",
        ours: &[],
        forbidden: NO_TLS,
        unsafe_allowed_by: &["src/lib.rs"],
        unspoken: &[],
    },
    Layer {
        name: "provider",
        ours: &[
            VAULT,
            "lockstep-kernels",
            "lockstep-ops",
            "lockstep-engine",
            "lockstep-remote",
        ],
        forbidden: &["native-tls"],
        unsafe_allowed_by: &[
            "src/lib.rs",
            "tests/provider/common.rs",
            "tests/provider/confined.rs",
            "tests/provider/key_memory.rs",
            "tests/provider/statistics.rs",
            "tests/servers/client.rs",
            "tests/servers/site.rs",
        ],
        // No intrinsics; `asm!` is for the change of the stack.
        unspoken: &["arch::x86_64"],
    },
    Layer {
        name: "common",
        ours: &["lockstep-conf"],
        forbidden: NO_TLS,
        unsafe_allowed_by: &[],
        unspoken: &[],
    },
    Layer {
        name: "cli",
        ours: &[
            "lockstep-engine",
            "lockstep-conf",
            "lockstep-common",
            "lockstep-keyd",
            "lockstep-remote",
        ],
        forbidden: NO_TLS,
        unsafe_allowed_by: &[],
        unspoken: &["std::arch", "core::arch"],
    },
    Layer {
        name: "bench",
        ours: &[
            "lockstep",
            "lockstep-kernels",
            "lockstep-ops",
            "lockstep-engine",
            "lockstep-common",
        ],
        forbidden: &["native-tls"],
        unsafe_allowed_by: &[
            "src/bulk/crypto_mb.rs",
            "src/costs/forked.rs",
            "src/gauge.rs",
        ],
        // No intrinsics; `asm!` is for gauges.
        unspoken: &["arch::x86_64"],
    },
];

/// Lists the crates in ARCHITECTURE.md.
pub fn draw() -> Outcome {
    drawing::write(&from_top())
}

/// The names of the crates from the top down.
fn from_top() -> Vec<&'static str> {
    LAYERS.iter().rev().map(|layer| layer.name).collect()
}

/// Packages that build and test the others.
const NAMED_SO: [&str; 3] = ["xtask", "nightly", "lockstep"];

/// Checks every crate.
pub fn check() -> Outcome {
    let mut broken = Vec::new();
    for layer in LAYERS {
        check_dependencies(layer, &mut broken)?;
        check_sources(layer, &mut broken)?;
        check_circles(layer, &mut broken)?;
    }
    if !drawing::is_fresh(&from_top())? {
        broken.push(
            "ARCHITECTURE.md shows other dependencies than there are: `cargo xtask layers --draw`"
                .to_owned(),
        );
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(Failure::new(broken.join("\n"))
        .remedy("move the code to the layer it belongs to; the rules are in xtask/src/layers.rs"))
}

fn check_dependencies(layer: &Layer, broken: &mut Vec<String>) -> Outcome {
    let package = match layer.name {
        name if NAMED_SO.contains(&name) => name.to_owned(),
        name => format!("lockstep-{name}"),
    };
    let direct = dependencies(&package, 1)?;
    for name in &direct {
        if is_ours(name) && !layer.ours.contains(&name.as_str()) {
            broken.push(format!(
                "{package} depends on {name}, which stands above or beside it"
            ));
        }
    }
    let below_vault = match layer.ours.contains(&VAULT) {
        true => dependencies(VAULT, u32::MAX)?,
        false => Vec::new(),
    };
    for name in dependencies(&package, u32::MAX)? {
        if below_vault.contains(&name) && !direct.contains(&name) {
            continue;
        }
        if let Some(start) = layer
            .forbidden
            .iter()
            .find(|start| name.starts_with(**start))
        {
            broken.push(format!(
                "{package} depends on {name}, and must not on {start}*"
            ));
        }
    }
    Ok(())
}

fn is_ours(package: &str) -> bool {
    package.starts_with("lockstep-") || NAMED_SO.contains(&package)
}

/// The packages that this one is built with, down to a depth, itself left out.
fn dependencies(package: &str, depth: u32) -> Outcome<Vec<String>> {
    let depth = depth.to_string();
    let tree = quietly(&mut cargo([
        "tree",
        "--package",
        package,
        "--edges",
        "normal,build",
        "--depth",
        &depth,
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--locked",
    ]))?;
    Ok(tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect())
}

/// Checks the words in the sources of a crate.
fn check_sources(layer: &Layer, broken: &mut Vec<String>) -> Outcome {
    let directory = root().join(layer.name);
    let mut files = Vec::new();
    for part in ["src", "tests", "benches", "examples"] {
        rust_files(&directory.join(part), &mut files)?;
    }
    for path in &files {
        let inside = path
            .strip_prefix(&directory)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        let code = code_only(&fs::read_to_string(path).map_err(on(path, "read"))?);
        let may_allow_unsafe = layer.unsafe_allowed_by.contains(&inside.as_str());
        for (number, line) in code.lines().enumerate() {
            let mut complain = |what: &str| {
                broken.push(format!("{}/{inside}:{}: {what}", layer.name, number + 1));
            };
            if !may_allow_unsafe && has_word(line, "unsafe_code") && !says_no(line) {
                complain("`unsafe` has no place here");
            }
            if inside.starts_with("src/")
                && let Some(word) = layer.unspoken.iter().find(|word| line.contains(**word))
            {
                complain(&format!("`{word}` has no place in this crate"));
            }
        }
    }
    check_lint(&directory, broken)?;
    if layer.unsafe_allowed_by.is_empty() {
        let crate_root = ["src/lib.rs", "src/main.rs"]
            .iter()
            .find_map(|name| fs::read_to_string(directory.join(name)).ok())
            .unwrap_or_default();
        if !crate_root.contains("#![forbid(unsafe_code)]") {
            broken.push(format!(
                "{} does not say #![forbid(unsafe_code)]",
                layer.name
            ));
        }
    }
    Ok(())
}

/// Whether an attribute about unsafe code allows none.
fn says_no(line: &str) -> bool {
    has_word(line, "forbid") || has_word(line, "deny")
}

/// The compiler must deny unsafe code in all targets of a crate.
fn check_lint(directory: &Path, broken: &mut Vec<String>) -> Outcome {
    for (manifest, lint) in [
        (root().join("Cargo.toml"), "\nunsafe_code = \"deny\"\n"),
        (
            directory.join("Cargo.toml"),
            "\n[lints]\nworkspace = true\n",
        ),
    ] {
        let text = fs::read_to_string(&manifest).map_err(on(&manifest, "read"))?;
        if !text.contains(lint) {
            broken.push(format!("{} does not say {lint:?}", manifest.display()));
        }
    }
    Ok(())
}

fn check_circles(layer: &Layer, broken: &mut Vec<String>) -> Outcome {
    let circles = circles::circles(&root().join(layer.name))?;
    broken.extend(circles.iter().map(|files| {
        format!(
            "{}: these files or folders import each other: {}",
            layer.name,
            files.join(" ")
        )
    }));
    Ok(())
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) -> Outcome {
    if !directory.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(directory).map_err(on(directory, "list"))?;
    for entry in entries {
        let path = entry.map_err(on(directory, "list"))?.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

/// The source with comments and the insides of literals left out, line by line.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let length = literal_or_comment(rest, code.chars().next_back());
        if length == 0 {
            code.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            code.extend(rest[..length].chars().filter(|c| *c == '\n'));
            // The removed part still separates words.
            code.push(' ');
            rest = &rest[length..];
        }
    }
    code
}

/// The length of the comment or literal that starts here, or 0.
pub fn literal_or_comment(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with('r') && !in_word {
        let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
        if rest[1 + hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = 2 + hashes;
            return rest[start..]
                .find(&end)
                .map_or(rest.len(), |at| start + at + end.len());
        }
    }
    if let Some(inside) = rest.strip_prefix('"') {
        let mut escaped = false;
        for (at, c) in inside.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return at + 2,
                _ => {}
            }
        }
        return rest.len();
    }
    // A character literal, not a lifetime: '"' would otherwise open a string.
    match rest.as_bytes() {
        [b'\'', b'\\', _, b'\'', ..] => 4,
        [b'\'', c, b'\'', ..] if c.is_ascii() => 3,
        _ => 0,
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_stands_above_the_layers_that_it_may_depend_on() {
        for (place, layer) in LAYERS.iter().enumerate() {
            for below in layer.ours {
                let below = below.strip_prefix("lockstep-").unwrap_or(below);
                let found = LAYERS[..place].iter().any(|other| other.name == below);
                assert!(found, "{} depends on {below}", layer.name);
            }
        }
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let source = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe\n */ let b = r#\"unsafe\"#; '\"'; unsafe";
        let code = code_only(source);
        assert_eq!(code.matches("unsafe").count(), 1);
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn only_what_allows_unsafe_code_is_found() {
        let allows = |line| has_word(line, "unsafe_code") && !says_no(line);
        assert!(allows("#![allow(unsafe_code)]"));
        assert!(allows("#[cfg_attr(miri, expect(unsafe_code, reason = )]"));
        assert!(!allows("#![forbid(unsafe_code)]"));
        assert!(!allows("unsafe { }"));
    }
}
