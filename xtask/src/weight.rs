//! `cargo xtask test weight`: the price of the module for every program that loads it.
//!
//! The dynamic linker maps the parts of the file that a program header names, and writes an address
//! for each relocation: that takes time, and the pages that it writes are copied by a fork. Symbols
//! and line tables are outside of these parts. The bounds leave some room above today's values;
//! before you raise one, look at the costs (`lockstep-bench costs`).

use std::path::Path;
use std::process::Command;

use crate::command::{Failure, Outcome, quietly};

/// The most bytes of the file that are mapped, and the most that are mapped to be written.
const MOST_MAPPED: u64 = (4 << 20) + (128 << 10);
const MOST_WRITABLE: u64 = 48 << 10;
/// The most addresses that the dynamic linker writes.
const MOST_RELOCATIONS: u64 = 2500;

/// The weight of a module.
#[derive(Debug, Default, PartialEq, Eq)]
struct Weight {
    mapped: u64,
    writable: u64,
    relocations: u64,
}

/// Checks the module; returns a line about it.
pub fn check(module: &Path) -> Outcome<String> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--segments", "--relocs"]);
    let weight = Weight::of(&quietly(readelf.arg(module))?)?;
    if weight.relocations == 0 {
        return Err(Failure::new(
            "readelf names no relocation of the module: are they packed?",
        ));
    }
    match weight.excess() {
        None => Ok(format!("weight: ok, {weight:?}\n")),
        Some(excess) => Err(Failure::new(excess).remedy(
            "look for tables with addresses in them, large statics and code that is instantiated \
             too often; xtask/src/weight.rs has the bounds",
        )),
    }
}

impl Weight {
    /// Reads readelf's list of the segments and relocations of a file.
    fn of(text: &str) -> Outcome<Weight> {
        let mut weight = Weight::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                // Type, offset, two addresses, two sizes, flags.
                ["LOAD", _, _, _, file, _, ref flags @ .., _] => {
                    let digits = file.trim_start_matches("0x");
                    let bytes = u64::from_str_radix(digits, 16);
                    let bytes = bytes.map_err(|_| Failure::new(format!("no size: {line}")))?;
                    weight.mapped += bytes;
                    // Zeros that are in no file cost nothing until they are written.
                    if flags.concat().contains('W') {
                        weight.writable += bytes;
                    }
                }
                // Offset, info, type.
                [_, _, kind, ..] if kind.starts_with("R_") => weight.relocations += 1,
                _ => {}
            }
        }
        match weight.mapped {
            0 => Err(Failure::new("readelf names no segment of the module")),
            _ => Ok(weight),
        }
    }

    /// Which bound is exceeded.
    fn excess(&self) -> Option<String> {
        let bounds = [
            ("bytes are mapped", self.mapped, MOST_MAPPED),
            ("bytes are writable", self.writable, MOST_WRITABLE),
            ("relocations are made", self.relocations, MOST_RELOCATIONS),
        ];
        bounds.into_iter().find_map(|(what, found, most)| {
            let exceeds = found > most;
            exceeds.then(|| format!("when the module is loaded, {found} {what}, more than {most}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  LOAD 0x000000 0x0 0x0 0x04dcc4 0x04dcc4 R 0x1000\n\
        \x20 LOAD 0x04d9a0 0x4e9a0 0x4e9a0 0x318c3c 0x318c3c R E 0x1000\n\
        \x20 LOAD 0x366640 0x368640 0x368640 0x008000 0x008000 RW 0x1000\n\
        \x20 GNU_RELRO 0x3666 0x3686 0x3686 0x0077b8 0x0079c0 R 0x1\n";
    const ONE: &str = "00000000003686c0  0000000000000008 R_X86_64_RELATIVE    3684c0\n";

    #[test]
    fn what_is_mapped_written_and_relocated_is_counted() {
        let weight = Weight::of(&format!("{HEAD}{}", ONE.repeat(3))).unwrap();
        let expected = Weight {
            mapped: 0x4dcc4 + 0x318c3c + 0x8000,
            writable: 0x8000,
            relocations: 3,
        };
        assert_eq!(weight, expected);
        assert_eq!(weight.excess(), None);
        assert!(Weight::of(ONE).is_err());
    }

    #[test]
    fn a_module_that_has_grown_is_found() {
        let heavy = [
            HEAD.replace("0x318c3c 0x318c3c", "0x518c3c 0x518c3c"),
            HEAD.replace("0x008000 0x008000", "0x018000 0x018000"),
            format!("{HEAD}{}", ONE.repeat(2501)),
        ];
        for (text, what) in heavy.iter().zip(["mapped", "writable", "relocations"]) {
            let excess = Weight::of(text).unwrap().excess().expect("too much");
            assert!(excess.contains(what), "{excess}");
        }
    }
}
