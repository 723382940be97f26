//! The exact list: how many conditional jumps, indexed accesses and the like each function holds.
//!
//! A conditional jump in machine code does not say whether a secret decides it. So a person looks
//! once at the jumps of every function that may see a secret, and writes down how many there are
//! and why they are harmless. The list is `exact.txt` beside this file. Any other number fails, in
//! both directions, until somebody has looked again: `cargo xtask lint-asm --explain FUNCTION`
//! shows them, and `cargo xtask lint-asm --record` writes the list anew, with the reasons of
//! functions that had one.
//!
//! The numbers belong to one compiler and to the release profile.

mod counts;
mod name;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::listing::{Function, listing, parse};
use crate::command::{Failure, Outcome, on, quietly, root};
use counts::{Counts, KINDS, kind};
use name::Name;

/// Stands for a reason until somebody writes one; the check fails as long as it does.
const UNREVIEWED: &str = "NOT REVIEWED";

/// The counts of a module.
type Module = BTreeMap<Name, Counts>;

fn counted(functions: &[Function]) -> Module {
    let mut module = Module::new();
    for function in functions.iter().filter(|f| Name::is_watched(&f.name)) {
        module
            .entry(Name::of(&function.name))
            .or_default()
            .add(Counts::of(function));
    }
    module
}

/// The list.
#[derive(Default, Debug)]
struct List {
    /// The compiler that it belongs to.
    compiler: String,
    /// By path: why what is counted is harmless.
    reasons: BTreeMap<String, String>,
    counts: Module,
    /// Paths of which no instance holds anything that is counted.
    clean: Vec<String>,
}

impl List {
    fn read(text: &str) -> Outcome<Self> {
        let mut list = Self::default();
        let mut path = String::new();
        for line in text.lines() {
            let unreadable = || Failure::new(format!("the exact list cannot be read: {line:?}"));
            if line.is_empty() || line.starts_with('#') {
                continue;
            } else if let Some(compiler) = line.strip_prefix("compiler: ") {
                list.compiler = compiler.to_owned();
            } else if let Some(clean) = line.strip_prefix("clean: ") {
                list.clean.push(clean.to_owned());
            } else if let Some(reason) = line.strip_prefix("  why: ") {
                list.reasons.insert(path.clone(), reason.to_owned());
            } else if let Some(row) = line.strip_prefix("  ") {
                let (counts, instance) = row.split_once(": ").unwrap_or((row, ""));
                let name = Name {
                    path: path.clone(),
                    instance: instance.to_owned(),
                };
                let counts = Counts::read(counts.trim_end_matches(':')).ok_or_else(unreadable)?;
                list.counts.insert(name, counts);
            } else {
                path = line.to_owned();
            }
        }
        match list.compiler.is_empty() {
            true => Err(Failure::new("the exact list names no compiler")),
            false => Ok(list),
        }
    }

    /// The list for a module, with the reasons that are known.
    fn write(compiler: &str, module: &Module, reasons: &BTreeMap<String, String>) -> String {
        let mut text = String::from(
            "# Written by `cargo xtask lint-asm --record`; the reasons are written by hand.\n\
             # See exact.rs. A function whose instances hold nothing that is counted is `clean`.\n",
        );
        let _ = writeln!(text, "compiler: {compiler}");
        let mut paths: Vec<&str> = module.keys().map(|name| name.path.as_str()).collect();
        paths.dedup();
        let of = |path: &str| {
            module
                .iter()
                .filter(move |(name, _)| name.path == path)
                .collect::<Vec<_>>()
        };
        let (clean, others): (Vec<&str>, Vec<&str>) = paths
            .into_iter()
            .partition(|path| of(path).iter().all(|(_, counts)| counts.is_zero()));
        for path in others {
            let reason = reasons.get(path).map_or(UNREVIEWED, String::as_str);
            let _ = writeln!(text, "\n{path}\n  why: {reason}");
            for (name, counts) in of(path) {
                let _ = writeln!(text, "  {counts}: {}", name.instance);
            }
        }
        text.push('\n');
        for path in clean {
            let _ = writeln!(text, "clean: {path}");
        }
        text
    }

    /// What of a module is otherwise than here.
    fn differences(&self, module: &Module) -> Vec<String> {
        let mut found = Vec::new();
        let explain = |path: &str| format!("look at it: cargo xtask lint-asm --explain '{path}'");
        for (name, counts) in module {
            let expected = self
                .counts
                .get(name)
                .copied()
                .or_else(|| self.clean.contains(&name.path).then_some(Counts::default()));
            match expected {
                Some(expected) if expected == *counts => {}
                Some(expected) => found.push(format!(
                    "{name}: {expected} before, {counts} now; {}",
                    explain(&name.path)
                )),
                None => found.push(format!(
                    "{name}: not in the list, {counts}; {}",
                    explain(&name.path)
                )),
            }
        }
        for name in self.counts.keys().filter(|name| !module.contains_key(name)) {
            found.push(format!("{name}: in the list, but no longer in the module"));
        }
        for path in &self.clean {
            if !module.keys().any(|name| name.path == *path) {
                found.push(format!("{path}: in the list, but no longer in the module"));
            }
        }
        for (path, reason) in &self.reasons {
            if reason == UNREVIEWED {
                found.push(format!("{path}: nobody has reviewed it; {}", explain(path)));
            }
        }
        found
    }
}

/// The file of the list.
fn file() -> PathBuf {
    root().join("xtask/src/disassembly/exact.txt")
}

fn compiler() -> Outcome<String> {
    Ok(quietly(Command::new("rustc").arg("--version"))?
        .trim()
        .to_owned())
}

/// Why the list says nothing about a module that is built here, if it does not.
fn inapplicable(list: &List) -> Outcome<Option<String>> {
    let compiler = compiler()?;
    if compiler != list.compiler {
        return Ok(Some(format!(
            "the exact list is for {}, this is {compiler}",
            list.compiler
        )));
    }
    let profile = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .find(|name| name.starts_with("CARGO_PROFILE_RELEASE_") || name == "RUSTFLAGS");
    Ok(profile.map(|name| format!("the exact list is for the release profile; {name} changes it")))
}

/// Compares a module with the list; returns what was found, or why it was not compared.
pub(super) fn check(functions: &[Function]) -> Outcome<String> {
    let path = file();
    let list = List::read(&fs::read_to_string(&path).map_err(on(&path, "read"))?)?;
    if let Some(reason) = inapplicable(&list)? {
        return Ok(format!("lint-asm: exact list skipped: {reason}\n"));
    }
    let module = counted(functions);
    let found = list.differences(&module);
    if found.is_empty() {
        return Ok(format!(
            "lint-asm: {} functions are as the exact list has them\n",
            module.len()
        ));
    }
    Err(Failure::new(found.join("\n")).remedy(
        "make the code free of jumps and addresses that depend on secrets; if what is new does not depend on \
         any, `cargo xtask lint-asm --record` and write down why in xtask/src/disassembly/exact.txt",
    ))
}

/// Writes the list for a module.
pub fn record(module: &Path) -> Outcome<String> {
    let path = file();
    let reasons = match fs::read_to_string(&path) {
        Ok(text) => List::read(&text)?.reasons,
        Err(_) => BTreeMap::new(),
    };
    let module = counted(&parse(&listing(module)?));
    let text = List::write(&compiler()?, &module, &reasons);
    fs::write(&path, &text).map_err(on(&path, "write"))?;
    let open = text.matches(UNREVIEWED).count();
    Ok(format!(
        "{} functions written to {}, {open} without a reason\n",
        module.len(),
        path.display()
    ))
}

/// The functions of `lockstep_kernels::fault::planted`, and what each of them must be found to
/// hold.
const PLANTED: &[(&str, &str)] = &[
    ("branch_on_bit", "jumps"),
    ("index_by_secret", "indexed"),
    ("divide_by_secret", "divisions"),
    ("compare_secret", "compares"),
    ("compare_block", "masks"),
];

/// Whether the list would find the defects that are planted in a module with fault points; returns
/// how many were found.
pub fn find_planted(module: &Path) -> Outcome<usize> {
    let module = counted(&parse(&listing(module)?));
    for (function, kind) in PLANTED {
        let path = format!("fault::planted::{function}");
        let planted: Module = module
            .iter()
            .filter(|(name, _)| name.path == path)
            .map(|(name, counts)| (name.clone(), *counts))
            .collect();
        // A list of the same functions without their defects.
        let list = List {
            clean: vec![path.clone()],
            ..List::default()
        };
        let found = list.differences(&planted);
        if !found.iter().any(|line| line.contains(&format!(" {kind}"))) {
            return Err(Failure::new(format!(
                "the exact list does not find the {kind} of {path}: {found:?}"
            )));
        }
    }
    Ok(PLANTED.len())
}

/// Everything that is counted in the functions whose names hold `part`, each with what comes before
/// it.
pub fn explain(module: &Path, part: &str) -> Outcome<String> {
    const BEFORE: usize = 6;
    let mut text = String::new();
    for function in parse(&listing(module)?) {
        if !Name::is_watched(&function.name) {
            continue;
        }
        let name = Name::of(&function.name);
        if !name.to_string().contains(part) {
            continue;
        }
        let _ = writeln!(text, "{name}: {}", Counts::of(&function));
        let mut shown = 0;
        for (at, (mnemonic, operands)) in function.instructions.iter().enumerate() {
            let Some(kind) = kind(mnemonic, operands) else {
                continue;
            };
            let first = at.saturating_sub(BEFORE).max(shown);
            let _ = writeln!(text, "  {}:", KINDS[kind].trim_end_matches('s'));
            for i in first..=at {
                let (mnemonic, operands) = &function.instructions[i];
                let address = function.addresses[i];
                let _ = writeln!(text, "    {address:x}: {mnemonic} {operands}");
            }
            shown = at + 1;
        }
    }
    match text.is_empty() {
        true => Err(Failure::new(format!(
            "no watched function's name holds {part:?}"
        ))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "
0000000000001000 <lockstep_kernels::rsa::f::<10>>:
    1000:\tmov    rax,QWORD PTR [rdi+rcx*8]
    1004:\tlea    rax,[rdi+rcx*8]
    1008:\tdec    rcx
    100b:\tjne    1000 <lockstep_kernels::rsa::f::<10>>
    100d:\tcall   QWORD PTR [rip+0x10]        # 2000 <memcmp@GLIBC_2.2.5>
    1013:\tjmp    rax
    1015:\tjmp    1000 <lockstep_kernels::rsa::f::<10>>
    1017:\tret
0000000000001018 <lockstep_kernels::rsa::g>:
    1018:\tret
";

    #[test]
    fn each_kind_is_counted() {
        let module = counted(&parse(LISTING));
        let counts = module
            .iter()
            .map(|(name, counts)| (name.to_string(), counts.to_string()))
            .collect::<Vec<_>>();
        let expected = [
            ("rsa::f <10>", "1 jumps, 1 tables, 1 indexed, 1 compares"),
            ("rsa::g <>", "none"),
        ];
        assert_eq!(counts, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_list_reads_what_it_wrote_and_finds_every_change() {
        let module = counted(&parse(LISTING));
        let reasons = BTreeMap::from([("rsa::f".to_owned(), "a loop".to_owned())]);
        let text = List::write("rustc 1", &module, &reasons);
        let list = List::read(&text).unwrap();
        assert_eq!(list.compiler, "rustc 1");
        assert_eq!(list.differences(&module), Vec::<String>::new());
        for (from, to, expected) in [
            ("dec    rcx", "jb     1000 <x>", "rsa::f <10>: 1 jumps"),
            ("lea    ", "mov    ", "rsa::f <10>: 1 jumps"),
            (
                "1018:\tret",
                "1018:\tdiv    rcx",
                "rsa::g <>: none before, 1 divisions now",
            ),
            ("rsa::g>:", "rsa::h>:", "rsa::h <>: not in the list"),
            ("rsa::g>:", "rsa::h>:", "rsa::g: in the list, but no longer"),
            (
                "rsa::f::<10>>:",
                "rsa::f::<20>>:",
                "rsa::f <10>: in the list, but no longer",
            ),
        ] {
            let changed = counted(&parse(&LISTING.replacen(from, to, 1)));
            let found = list.differences(&changed).join("\n");
            assert!(found.contains(expected), "{to}: {found}");
        }
        let unknown = List::write("rustc 1", &module, &BTreeMap::new());
        let found = List::read(&unknown).unwrap().differences(&module);
        assert!(found[0].contains("nobody has reviewed it"), "{found:?}");
    }
}
