//! The counts of a function of a disassembly.

use std::fmt;

use crate::disassembly::listing::Function;

/// What is counted in a function.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Counts([usize; KINDS.len()]);

/// The kinds, by name.
///
/// Conditional jumps; jumps through a register or a table; accesses of memory with an index
/// register; calls of `memcmp` and the like; divisions; masks of lanes that go to an ordinary
/// register or to the flags.
pub const KINDS: [&str; 6] = [
    "jumps",
    "tables",
    "indexed",
    "compares",
    "divisions",
    "masks",
];

impl Counts {
    pub fn of(function: &Function) -> Self {
        let mut counts = [0; KINDS.len()];
        for (mnemonic, operands) in &function.instructions {
            if let Some(kind) = kind(mnemonic, operands) {
                counts[kind] += 1;
            }
        }
        Self(counts)
    }

    pub fn add(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// As [`fmt::Display`] writes it.
    pub fn read(text: &str) -> Option<Self> {
        let mut counts = Self::default();
        if text == "none" {
            return Some(counts);
        }
        for part in text.split(", ") {
            let (number, name) = part.split_once(' ')?;
            let kind = KINDS.iter().position(|kind| *kind == name)?;
            counts.0[kind] = number.parse().ok()?;
        }
        Some(counts)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.iter().zip(KINDS).filter(|(count, _)| **count > 0);
        let Some((count, kind)) = parts.next() else {
            return f.write_str("none");
        };
        write!(f, "{count} {kind}")?;
        parts.try_for_each(|(count, kind)| write!(f, ", {count} {kind}"))
    }
}

/// Which of [`KINDS`] an instruction is.
pub fn kind(mnemonic: &str, operands: &str) -> Option<usize> {
    let instruction = mnemonic.trim_start_matches("notrack ");
    // Through a register or a table; a call at the end through the module's table of addresses is
    // none.
    let through_register = || !operands.contains('<') && !operands.contains("[rip");
    match instruction {
        "jmp" | "notrack" | "bnd" => through_register().then_some(1),
        _ if instruction.starts_with('j') => Some(0),
        "loop" | "loope" | "loopne" => Some(0),
        "call" => ["memcmp", "bcmp", "strlen", "strcmp", "strncmp"]
            .iter()
            .any(|name| operands.contains(&format!("<{name}@")))
            .then_some(3),
        "div" | "idiv" => Some(4),
        "ptest" | "vptest" => Some(5),
        _ if [
            "kortest", "ktest", "vtestp", "movmsk", "vmovmsk", "pmovmsk", "vpmovmsk",
        ]
        .iter()
        .any(|start| instruction.starts_with(start)) =>
        {
            Some(5)
        }
        _ if instruction.starts_with("kmov") && operands.starts_with(['e', 'r']) => Some(5),
        "lea" | "nop" => None,
        _ if instruction.starts_with("nop") || instruction.starts_with("prefetch") => None,
        _ if instruction.starts_with("cmps")
            || instruction.starts_with("rep") && operands.contains("cmps") =>
        {
            Some(3)
        }
        _ => operands
            .split('[')
            .skip(1)
            .any(|address| address.split(']').next().is_some_and(|a| a.contains('*')))
            .then_some(2),
    }
}
