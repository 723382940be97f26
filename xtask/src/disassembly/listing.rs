//! The output of objdump for a module, as functions and their instructions.

use std::path::Path;
use std::process::Command;

use crate::command::{Failure, Outcome, quietly};

/// One function of a disassembly.
pub struct Function {
    pub name: String,
    pub addresses: Vec<u64>,
    /// Mnemonic and operands.
    pub instructions: Vec<(String, String)>,
}

/// The disassembly of a module.
pub fn listing(module: &Path) -> Outcome<String> {
    if !module.exists() {
        return Err(
            Failure::new(format!("there is no {}", module.display())).remedy("cargo xtask dist")
        );
    }
    quietly(
        Command::new("objdump")
            .args(["-d", "-C", "-M", "intel", "--no-show-raw-insn"])
            .arg(module),
    )
}

/// The functions of an objdump listing.
pub fn parse(listing: &str) -> Vec<Function> {
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
