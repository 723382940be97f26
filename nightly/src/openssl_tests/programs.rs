//! The programs of OpenSSL's tests: how each is run, and whether lanes must work in it.

use std::fs;
use std::path::Path;

use xtask::command::{Outcome, on};

/// How a program comes to its configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Configured {
    /// By the argument `{configuration}`, for a library context of its own.
    Argument,
    /// By `OPENSSL_CONF`.
    Environment,
    /// By a variable that [`source`](super::source) has the program read, for a library context of
    /// its own.
    Context,
}
pub use Configured::{Argument, Context, Environment};

/// The programs, and which runs of them need no lanes.
const TEXT: &str = include_str!("../../../rig/openssl-tests/programs.txt");

/// The lines of a kind, without that word and without a reason.
pub fn lines(kind: &str) -> impl Iterator<Item = &'static str> {
    let of_kind = move |line: &'static str| line.strip_prefix(kind)?.strip_prefix(' ');
    let lines = TEXT.lines().filter_map(of_kind);
    lines.map(|line| line.split("  # ").next().unwrap_or(line))
}

/// Whether lanes must work in this run.
pub fn needs_lanes(run: &str, backend: &str, has_gcm: bool) -> bool {
    let is = |kind: &str| lines(kind).any(|start| run.starts_with(start));
    match is("gcm") {
        true => has_gcm,
        false => !(is("idle") || backend == "avx2" && is("nist")),
    }
}

/// One way to run a program.
#[derive(Clone)]
pub struct Run {
    /// Its name in reports.
    pub name: String,
    pub program: String,
    pub arguments: Vec<String>,
    pub configured: Configured,
    /// The configuration in OpenSSL's directory of tests that it begins with.
    pub configuration: &'static str,
}

/// All programs that run in the directory of a build, in order.
pub fn runs(build: &Path) -> Outcome<Vec<Run>> {
    let test = build.join("test");
    let mut runs = Vec::new();
    for file in listed(&test.join("recipes/30-test_evp_data"), ".txt")? {
        runs.push(Run {
            name: format!("evp_test {file}"),
            program: "evp_test".to_owned(),
            arguments: [
                "-config",
                "{configuration}",
                &format!("{{test}}/recipes/30-test_evp_data/{file}"),
            ]
            .map(str::to_owned)
            .to_vec(),
            configured: Argument,
            configuration: "default-and-legacy.cnf",
        });
    }
    for line in lines("run") {
        let mut words = line.split_whitespace().map(str::to_owned);
        let configured = match words.next().as_deref() {
            Some("argument") => Argument,
            Some("context") => Context,
            _ => Environment,
        };
        let program = words.next().unwrap_or_default();
        let name = match configured {
            Context => format!("{program} -context"),
            _ => program.clone(),
        };
        runs.push(Run {
            name,
            program,
            arguments: words.collect(),
            configured,
            configuration: "default.cnf",
        });
    }
    for file in listed(&test.join("ssl-tests"), ".cnf")? {
        runs.push(Run {
            name: format!("ssl_test {file}"),
            program: "ssl_test".to_owned(),
            arguments: vec![format!("{{test}}/ssl-tests/{file}"), "none".to_owned()],
            configured: Environment,
            configuration: "default.cnf",
        });
    }
    Ok(runs)
}

fn listed(directory: &Path, ending: &str) -> Outcome<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map_err(on(directory, "read"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let kinds = ["target", "run", "idle", "gcm", "nist"];
        let read: usize = kinds.iter().map(|kind| lines(kind).count()).sum();
        let is_line = |line: &&str| !line.is_empty() && !line.starts_with('#');
        assert_eq!(read, TEXT.lines().filter(is_line).count());
        let hows = ["argument ", "context ", "environment "];
        assert!(lines("run").all(|line| hows.iter().any(|how| line.starts_with(how))));
        assert!(!needs_lanes("evp_test evpmd_sha.txt", "portable", true));
        assert!(needs_lanes("evp_test evpmac_common.txt", "portable", true));
        assert!(needs_lanes("ectest", "avx512ifma", false));
        assert!(!needs_lanes("ectest", "avx2", false));
    }
}
