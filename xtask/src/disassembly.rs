//! `cargo xtask lint-asm`: what the compiler made of the kernels.
//!
//! Lane code is fast only while everything between the feature boundary and an intrinsic is inlined
//! and the limbs stay in registers, and safe only while no secret reaches a division or a gather.
//! Both are properties of the machine code, so they are checked there: on every function of the
//! kernels that the release module keeps as a symbol.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::command::{Failure, Outcome, quietly};

/// A function that must be there, with lanes in it.
struct Entry {
    /// Part of the demangled name.
    name: &'static str,
    /// How many stack accesses of whole vectors its multiply loops may hold together.
    stack_accesses: usize,
}

/// The functions that hold the multiply loops. Where the accumulators fit the registers the number
/// is zero; every other number was counted on a build whose speed had been measured.
const ENTRIES: &[Entry] = &[];

/// For functions with multiply loops that `ENTRIES` does not name.
const STACK_ACCESSES: usize = 0;

/// Code size of all kernels together, in bytes.
const CODE_SIZE: u64 = 256 * 1024;

/// Part of the demangled name of every function of ours.
const OURS: &str = "lockstep_kernels";

/// Instructions whose time or address depends on their operands, by the start of their names.
const FORBIDDEN: &[&str] = &[
    "div",
    "idiv",
    "vdiv",
    "sqrt",
    "vsqrt",
    "vpgather",
    "vgather",
    "vpscatter",
    "vscatter",
    "vpcompress",
    "vcompress",
    "vpexpand",
    "vexpand",
];

/// Checks a module; returns what was found in it.
pub fn check(module: &Path) -> Outcome<String> {
    if !module.exists() {
        return Err(
            Failure::new(format!("there is no {}", module.display())).remedy("cargo xtask dist")
        );
    }
    let listing = quietly(
        Command::new("objdump")
            .args(["-d", "-C", "-M", "intel", "--no-show-raw-insn"])
            .arg(module),
    )?;
    let functions: Vec<Function> = parse(&listing)
        .into_iter()
        .filter(|function| function.name.contains(OURS))
        .collect();
    judge(&functions)
}

fn judge(functions: &[Function]) -> Outcome<String> {
    let mut report = String::new();
    let mut broken = Vec::new();
    if functions.is_empty() {
        broken.push(format!(
            "no symbol contains {OURS}: was the module stripped?"
        ));
    }
    for entry in ENTRIES {
        let mut found = functions
            .iter()
            .filter(|function| function.name.contains(entry.name));
        if !found.any(|function| function.multiplies() > 0) {
            broken.push(format!(
                "{}: no such symbol with vpmadd52 in it",
                entry.name
            ));
        }
    }
    for function in functions {
        let name = &function.name;
        for (mnemonic, operands) in &function.instructions {
            if FORBIDDEN.iter().any(|start| mnemonic.starts_with(start)) {
                broken.push(format!("{name}: {mnemonic} {operands}"));
            }
            if mnemonic == "call" && operands.contains("core_arch") {
                broken.push(format!("{name}: an intrinsic was not inlined: {operands}"));
            }
        }
        if function.multiplies() == 0 {
            continue;
        }
        let spills = function.stack_accesses_in_multiply_loops();
        let allowed = ENTRIES
            .iter()
            .find(|entry| name.contains(entry.name))
            .map_or(STACK_ACCESSES, |entry| entry.stack_accesses);
        let _ = writeln!(
            report,
            "lint-asm: {name}: {} bytes, {} vpmadd52, {spills} stack accesses in multiply loops",
            function.size(),
            function.multiplies()
        );
        if spills > allowed {
            broken.push(format!(
                "{name}: {spills} stack accesses in its multiply loops, {allowed} allowed"
            ));
        }
    }
    let size: u64 = functions.iter().map(Function::size).sum();
    let _ = writeln!(report, "lint-asm: {size} bytes in all, {CODE_SIZE} allowed");
    if size > CODE_SIZE {
        broken.push(format!(
            "the kernels take {size} bytes of code, {CODE_SIZE} are allowed"
        ));
    }
    if broken.is_empty() {
        return Ok(report);
    }
    Err(Failure::new(format!("{report}{}", broken.join("\n"))).remedy(
        "see \"Lane code in stable Rust\" in docs/kernels.md; stated numbers are in xtask/src/disassembly.rs",
    ))
}

/// One function of a disassembly.
struct Function {
    name: String,
    addresses: Vec<u64>,
    /// Mnemonic and operands.
    instructions: Vec<(String, String)>,
}

impl Function {
    /// In bytes, the last instruction counted as one.
    fn size(&self) -> u64 {
        match (self.addresses.first(), self.addresses.last()) {
            (Some(first), Some(last)) => last - first + 1,
            _ => 0,
        }
    }

    fn multiplies(&self) -> usize {
        self.instructions
            .iter()
            .filter(|(mnemonic, _)| is_multiply(mnemonic))
            .count()
    }

    /// Loads and stores of whole vectors on the stack, inside the innermost loops that multiply, or
    /// anywhere if the multiplies stand in no loop (unrolled code).
    fn stack_accesses_in_multiply_loops(&self) -> usize {
        let is_in = |range: &std::ops::RangeInclusive<u64>, test: fn(&str, &str) -> bool| {
            self.addresses
                .iter()
                .zip(&self.instructions)
                .filter(|(address, (mnemonic, operands))| {
                    range.contains(address) && test(mnemonic, operands)
                })
                .count()
        };
        let loops = self.loops();
        let multiply_loops: Vec<_> = loops
            .iter()
            .filter(|outer| is_in(outer, |mnemonic, _| is_multiply(mnemonic)) > 0)
            .filter(|outer| {
                !loops.iter().any(|inner| {
                    inner != *outer && outer.contains(inner.start()) && outer.contains(inner.end())
                })
            })
            .collect();
        match multiply_loops.is_empty() {
            true => is_in(&(0..=u64::MAX), |_, operands| is_stack_vector(operands)),
            false => multiply_loops
                .iter()
                .map(|range| is_in(range, |_, operands| is_stack_vector(operands)))
                .sum(),
        }
    }

    /// Where a jump goes back to, and the jump.
    fn loops(&self) -> Vec<std::ops::RangeInclusive<u64>> {
        let start = self.addresses.first().copied().unwrap_or_default();
        self.addresses
            .iter()
            .zip(&self.instructions)
            .filter(|(_, (mnemonic, _))| mnemonic.starts_with('j'))
            .filter_map(|(&from, (_, operands))| {
                let to = u64::from_str_radix(operands.split(' ').next()?, 16).ok()?;
                (start..=from).contains(&to).then_some(to..=from)
            })
            .collect()
    }
}

fn is_multiply(mnemonic: &str) -> bool {
    mnemonic.starts_with("vpmadd52")
}

/// Whether an instruction with these operands moves a whole vector to or from the stack.
fn is_stack_vector(operands: &str) -> bool {
    (operands.contains("zmm") || operands.contains("ymm"))
        && (operands.contains("[rsp") || operands.contains("[rbp"))
}

/// The functions of an objdump listing.
fn parse(listing: &str) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for line in listing.lines() {
        if let Some(header) = line.strip_suffix(">:") {
            if let Some((_, name)) = header.split_once(" <") {
                functions.push(Function {
                    name: name.to_owned(),
                    addresses: Vec::new(),
                    instructions: Vec::new(),
                });
            }
            continue;
        }
        let Some(function) = functions.last_mut() else {
            continue;
        };
        let Some((address, instruction)) = line.trim_start().split_once(":\t") else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        let (mnemonic, operands) = instruction.split_once(' ').unwrap_or((instruction, ""));
        function.addresses.push(address);
        function
            .instructions
            .push((mnemonic.to_owned(), operands.trim().to_owned()));
    }
    // Alignment between functions belongs to none of them.
    for function in &mut functions {
        while function
            .instructions
            .last()
            .is_some_and(|(mnemonic, operands)| {
                mnemonic.starts_with("nop")
                    || mnemonic == "int3"
                    || mnemonic == "cs" && operands.starts_with("nop")
            })
        {
            function.instructions.pop();
            function.addresses.pop();
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop that multiplies, with one spill inside it and one outside.
    const GOOD: &str = "
0000000000001000 <lockstep_kernels::multiply>:
    1000:\tvmovdqa64 ZMMWORD PTR [rsp+0x40],zmm1
    1008:\tvpmadd52luq zmm0,zmm1,zmm2
    100e:\tvmovdqa64 zmm3,ZMMWORD PTR [rsp]
    1014:\tdec    rax
    1016:\tjne    1008 <lockstep_kernels::multiply+0x8>
    1018:\tret
    1019:\tnop    DWORD PTR [rax+0x0]
";

    #[test]
    fn spills_count_inside_multiply_loops_only() {
        let functions = parse(GOOD);
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].size(), 0x19);
        assert_eq!(functions[0].multiplies(), 1);
        assert_eq!(functions[0].stack_accesses_in_multiply_loops(), 1);
    }

    #[test]
    fn unrolled_code_counts_everywhere() {
        let functions = parse(&GOOD.replace("jne    1008", "jne    1019"));
        assert_eq!(functions[0].stack_accesses_in_multiply_loops(), 2);
    }

    #[test]
    fn each_bad_instruction_is_found() {
        let quiet = GOOD.replace("[rsp]", "[rdi]");
        assert!(judge(&parse(&quiet)).is_ok());
        for bad in [
            "div    rcx",
            "vpgatherqq zmm0,[rax+zmm1*8]",
            "call   50 <core::core_arch::x>",
        ] {
            let listing = quiet.replace("dec    rax", bad);
            assert!(judge(&parse(&listing)).is_err(), "{bad}");
        }
        assert!(judge(&parse(GOOD)).is_err(), "a spill");
        assert!(judge(&[]).is_err(), "no symbols");
    }
}
