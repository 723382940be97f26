//! Functions that may see secrets: `trace` or `taint` runs each of them.
//!
//! Both follow secrets only through the functions that their operations run. Each writes down which
//! functions these were; here the lists are held against the release module. A function on lanes
//! that `trace` had must have run there, or in `taint`, which knows no lanes but the portable ones
//! and has batches of several requests. `watched/explained.txt` has the functions that may be
//! missing, each with a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, Outcome, on, target_directory};
use crate::disassembly;
use crate::work::{Ran, Work};

/// Functions that may see secrets, by the start of the path of their names: the crates that handle
/// keys, and the libraries that the kernels use.
const WATCHED: &[&str] = &[
    "lockstep_kernels::",
    "crypto_bigint::",
    "chacha20::",
    "sha2::",
    "zeroize::",
    "lockstep_vault::",
    "lockstep_ops::",
    "lockstep_engine::",
    "lockstep::",
];

/// The modules of lanes, by the names of the backends.
const LANES: &[(&str, &str)] = &[
    ("avx512ifma512", "::avx512ifma::"),
    ("avx512ifma256", "::avx512ifma256::"),
    ("avx2", "::avx2::"),
    ("portable", "::portable::"),
];

/// Functions for which `trace` has no operation where OpenSSL is not 3.0, or where the CPU lacks
/// instructions.
const GCM: &str = "lockstep::aes_gcm::";

/// Functions for which `trace` has no operation where the CPU lacks AVX-512: NIST curves, and their
/// nonces.
const NIST: &[&str] = &[
    "::ec_method::",
    "::ec_sign::",
    "::EcKey",
    "::Ecdsa>",
    "::nist::",
    "::lanes::random::random::<32>",
    "::lanes::random::secrets::<32>",
    "::lanes::random::expand",
    "avx512vbmi2",
    "__m512i",
    "chacha20::",
];

/// Functions that nothing runs, each with its reason.
const EXPLAINED: &str = include_str!("watched/explained.txt");

/// Cases that are taken from both lists: their functions must be missed.
const PLANTED: &[&str] = &[
    "lockstep_kernels::curve25519::x25519::",
    "lockstep_ops::kem::KemKey>::",
    "lockstep::kem::keys::",
];

/// The file in which `lockstep-trace` leaves its list: a line with backends, and one a function.
pub fn traced() -> Outcome<PathBuf> {
    list("traced")
}

/// The file in which the taint check leaves its list.
pub fn tainted() -> Outcome<PathBuf> {
    list("tainted")
}

fn list(name: &str) -> Outcome<PathBuf> {
    let directory = target_directory().join("watched");
    fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
    Ok(directory.join(name))
}

/// The functions that ran.
struct Lists<'a> {
    /// Backends of `trace`.
    backends: BTreeSet<&'a str>,
    has_gcm: bool,
    /// Names without numbers: code for two sizes of numbers is the same.
    traced: BTreeSet<String>,
    /// Keys without lanes.
    tainted: BTreeSet<String>,
}

impl<'a> Lists<'a> {
    fn read(traced: &'a str, tainted: &'a str, without: Option<&str>) -> Lists<'a> {
        let (backends, traced) = traced.split_once('\n').unwrap_or_default();
        let kept = |line: &&str| without.is_none_or(|without| !line.contains(without));
        Lists {
            backends: backends.split(' ').collect(),
            has_gcm: traced.contains(GCM),
            traced: traced.lines().filter(kept).map(unnumbered).collect(),
            tainted: tainted.lines().filter(kept).map(key).collect(),
        }
    }

    fn has(&self, name: &str) -> bool {
        let of = |(backend, module): &(&str, &str)| {
            name.contains(module) && !self.backends.contains(backend)
        };
        let has_nist = self.backends.iter().any(|name| *name != "avx2");
        LANES.iter().any(of)
            || (!has_nist && NIST.iter().any(|part| name.contains(part)))
            || (!self.has_gcm && name.contains(GCM))
            || self.traced.contains(&unnumbered(name))
            || self.tainted.contains(&key(name))
    }
}

/// Checks a module against the lists that the last runs have left.
pub fn check(module: &Path) -> Outcome<Ran> {
    let [traced, tainted] = [traced()?, tainted()?];
    if let Some(missing) = [&traced, &tainted].into_iter().find(|file| !file.exists()) {
        return Ok(Ran::Skipped(format!(
            "there is no {}: `cargo xtask test trace taint` makes it",
            missing.display()
        )));
    }
    let read = |path: &Path| fs::read_to_string(path).map_err(on(path, "read"));
    let (traced, tainted) = (read(&traced)?, read(&tainted)?);
    let names = disassembly::names(module)?;
    let watched = names
        .iter()
        .map(String::as_str)
        .filter(|name| is_watched(name));
    let watched: Vec<&str> = watched.collect();
    for left_out in PLANTED {
        let planted = missed(&watched, &Lists::read(&traced, &tainted, Some(left_out)));
        if !planted.iter().any(|name| name.contains(left_out)) {
            return Err(Failure::new(format!(
                "functions of a case that is left out are not missed: {left_out}"
            )));
        }
    }
    let missed = missed(&watched, &Lists::read(&traced, &tainted, None));
    match missed.is_empty() {
        true => Ok(Ran::Worked(Work {
            cases: watched.len() as u64,
            ..Work::default()
        })),
        false => Err(Failure::new(missed.join("\n")).remedy(
            "give lockstep-trace or rig/taint an operation that runs it, or \
             xtask/src/watched/explained.txt a reason",
        )),
    }
}

/// Functions that nothing ran and nothing explains, and reasons for functions that do not exist.
fn missed(watched: &[&str], lists: &Lists) -> Vec<String> {
    let is_all = lists.backends.contains("portable");
    let counts = |(_, reason): &(&str, &str)| !(is_all && reason.starts_with("nightly"));
    let explained: Vec<&str> = explained().filter(counts).map(|(part, _)| part).collect();
    let of = |name: &&&str| !lists.has(name) && !explained.iter().any(|part| is_of(name, part));
    let not_run = watched.iter().filter(of);
    let is_stale = |part: &&&str| !watched.iter().any(|name| is_of(name, part));
    let stale = explained.iter().filter(is_stale);
    not_run
        .map(|name| format!("it may see secrets, and no operation ran it: {name}"))
        .chain(stale.map(|part| format!("explained.txt names what does not exist: {part}")))
        .collect()
}

/// Parts of names, and reasons.
fn explained() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = EXPLAINED.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once("  # "))
}

/// Whether a line of `explained.txt` is about this function.
fn is_of(name: &str, part: &str) -> bool {
    match part.strip_prefix('^') {
        Some(path) => path_of(name).starts_with(path),
        None => name.contains(part),
    }
}

fn is_watched(name: &str) -> bool {
    let path = path_of(name);
    WATCHED.iter().any(|prefix| path.starts_with(prefix))
        || path.starts_with("core::ptr::drop_in_place::<lockstep_kernels::")
}

/// A name from its path on.
fn path_of(name: &str) -> &str {
    name.trim_start_matches(['<', '&'])
        .trim_start_matches("mut ")
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

/// A name whose numbers are all the same.
fn unnumbered(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for part in name.split_inclusive(|c| !is_of_word(c)) {
        let word = part.trim_end_matches(|c| !is_of_word(c));
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        text.push_str(if is_number { "#" } else { word });
        text.push_str(&part[word.len()..]);
    }
    text
}

/// The paths in a name, without lanes and numbers. A closure that runs behind the feature boundary
/// has the key of the function whose body it is.
fn key(name: &str) -> String {
    let body = match name.split_once("::with_features::<") {
        Some((_, parameters)) => after_first(parameters),
        None => name,
    };
    let words = body.split(|c| !is_of_word(c));
    let words = words.map(|word| word.trim_matches(':')).filter(|word| {
        let is_lanes = ["lockstep_kernels::simd::", "lockstep_kernels::words::adx::"];
        let is_plain = ["lockstep_kernels::words::plain::", "core::", "closure", "_"];
        let mut others = is_lanes.into_iter().chain(is_plain);
        !word.is_empty()
            && !word.starts_with(|c: char| c.is_ascii_digit())
            && !others.any(|start| word.starts_with(start))
    });
    match words.collect::<Vec<_>>().join(" ") {
        empty if empty.is_empty() => name.to_owned(),
        key => key,
    }
}

/// The generic parameters behind the first.
fn after_first(parameters: &str) -> &str {
    let mut depth = 0_i32;
    for (at, c) in parameters.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => return &parameters[at + 1..],
            _ => {}
        }
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: &str = "<lockstep_kernels::simd::avx512ifma::Avx512Ifma<_> as \
        lockstep_kernels::simd::Simd>::enter::with_features::<[u8; 4], \
        lockstep_kernels::nist::scale<lockstep_kernels::simd::avx512ifma::Avx512Ifma, 5>::{closure#0}>";
    const PORTABLE: &str =
        "lockstep_kernels::nist::scale::<lockstep_kernels::simd::portable::Portable<8>, 5>";

    #[test]
    fn lanes_and_numbers_make_no_other_function() {
        assert_eq!(key(WIDE), key(PORTABLE));
        assert_eq!(key(WIDE), "lockstep_kernels::nist::scale");
        assert_eq!(unnumbered("a::<8>"), unnumbered("a::<16>"));
        assert_ne!(unnumbered(WIDE), unnumbered(PORTABLE));
        assert_ne!(
            key("<lockstep_kernels::A<4>>::b"),
            key("<lockstep_kernels::A<4>>::c")
        );
        let register = "lockstep_kernels::simd::registers::zero";
        assert_eq!(key(register), register);
    }

    #[test]
    fn what_nothing_ran_is_missed() {
        let of = |backends: &str, traced: &str, tainted: &str| {
            let traced = format!("{backends}\n{traced}");
            let lists = Lists::read(&traced, tainted, None);
            let found = missed(&[WIDE], &lists);
            found
                .iter()
                .filter(|line| line.contains("no operation"))
                .count()
        };
        assert_eq!(of("avx512ifma512", "", ""), 1);
        assert_eq!(of("avx512ifma512", WIDE, ""), 0);
        assert_eq!(of("avx512ifma512", "", PORTABLE), 0);
        assert_eq!(
            of("avx512ifma512", PORTABLE, ""),
            1,
            "other lanes are other code"
        );
        assert_eq!(of("avx2", "", ""), 0, "lanes that this CPU lacks");
        let gcm = format!("{GCM}context::Context");
        let without = Lists::read("avx2\n", "", None);
        let with = format!("avx2\n{GCM}newctx");
        assert!(without.has(&gcm) && !Lists::read(&with, "", None).has(&gcm));
        let lists = Lists::read("avx2\n", "", None);
        let stale = explained().count();
        assert_eq!(missed(&[], &lists).len(), stale);
    }

    #[test]
    fn every_reason_is_given() {
        let lines = EXPLAINED.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(
            lines.filter(|line| !line.is_empty()).count(),
            explained().count()
        );
    }
}
