//! `cargo xtask prove`: the kernels' arithmetic, proved for all inputs.
//!
//! README.md lists the files.
#![forbid(unsafe_code)]

mod algebra;
mod bits;
mod blinding;
mod block_tries;
mod blocks;
mod claims;
mod comb;
mod compared;
mod covered;
mod defects;
mod edwards;
mod equal;
mod formulas;
mod inverses;
mod lift;
mod lines;
mod machine;
mod multiples;
mod powers;
mod prints;
mod proof;
mod ranges;
mod singular;
mod standards;
mod terms;
mod tries;
mod word_tries;
mod words;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Instant;

use iced_x86::Instruction;
use lockstep_kernels::proved::{self, Function, Place, Terms, functions};

use machine::Module;
use proof::{Failed, as_portable, prove};
use terms::named;

const USAGE: &str = "\
Usage: lockstep-prove [--only PART] MODULE
       lockstep-prove --singular
       lockstep-prove --lines

Proves the statements of lockstep_kernels::proved, plants defects that must be refuted, and compares
the machine code of MODULE with the kernels' terms. PART is a part of the names of functions.
With --singular, another program checks the identities of formulas that were proved.
With --lines, it tells how many lines of the checker each kind of statement rests on.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["--singular"] => singular::run(),
        ["--lines", ..] => lines::run(),
        ["--only", part, path] => run(part, path),
        [path] if !path.starts_with('-') => run("", path),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("lockstep-prove: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Counts and failures, printed line by line.
#[derive(Default)]
struct Report {
    proved: usize,
    /// The proofs and the refuted defects of the lines before.
    cases: usize,
    failed: Vec<String>,
    /// How many of those an earlier line has counted.
    told: usize,
    /// Functions with this in their names are proved, and told one by one if it is not empty.
    part: String,
    /// All functions that a proof was for.
    asked: HashSet<String>,
}

impl Report {
    fn add(&mut self, name: &str, proof: impl FnOnce() -> Result<String, Failed>) {
        self.asked.insert(name.to_owned());
        if !name.contains(&self.part) {
            return;
        }
        let start = Instant::now();
        let outcome = proof();
        let time = start.elapsed().as_millis();
        match outcome {
            Ok(proof) => {
                self.proved += 1;
                if !self.part.is_empty() {
                    println!("proved  {name}: {proof}, {time} ms");
                }
            }
            Err(why) => {
                println!("FAILED  {name}: {why}, {time} ms");
                self.failed.push(name.to_owned());
            }
        }
    }

    fn end(&mut self, what: &str, start: Instant) {
        let time = start.elapsed().as_secs_f64();
        let failed = self.failed.len() - self.told;
        println!("{} {what}, {failed} not, {time:.1} s", self.proved);
        self.cases += self.proved;
        self.proved = 0;
        self.told = self.failed.len();
    }
}

fn run(part: &str, path: &str) -> Result<(), String> {
    lines::count()?;
    let mut report = Report {
        part: part.to_owned(),
        ..Report::default()
    };
    let start = Instant::now();
    let all = functions();
    for function in all.iter().filter(|function| !function.only_compared) {
        report.add(&function.name, || {
            if function.claims.is_empty()
                && !edwards::and_others().any(|(name, _)| name == function.name)
            {
                return Err("nothing is stated of it".into());
            }
            let (terms, results) = function.terms();
            prove(function, &terms, &results)
        });
    }
    for (name, prove) in edwards::and_others() {
        report.add(&format!("{name}, formulas"), || {
            let function = named(&all, name);
            let (terms, results) = function.terms();
            as_portable(function, &terms, &results)?;
            Ok(prove(&all, function, (terms, results))?.proved)
        });
    }
    type Prove = fn(&[Function], &Function, &Terms, &[Place]) -> Result<String, Failed>;
    let of = |names: &'static [&str]| names.iter().map(|name| named(&all, name)).collect();
    let checks: [(Vec<&Function>, Prove); 4] = [
        (of(&equal::NAMES), equal::prove),
        (of(&blinding::NAMES), blinding::prove),
        (of(&inverses::NAMES), inverses::prove),
        (multiples::all_of(&all).collect(), multiples::prove),
    ];
    for (functions, prove) in checks {
        for function in functions {
            report.add(&function.name, || {
                let (terms, results) = function.terms();
                as_portable(function, &terms, &results)?;
                prove(&all, function, &terms, &results)
            });
        }
    }
    let comb = comb::Comb::new(&all)?;
    for name in comb::NAMES {
        report.add(name, || {
            let function = named(&all, name);
            let (terms, results) = function.terms();
            as_portable(function, &terms, &results)?;
            comb.prove(function, &terms, &results)
        });
    }
    let compared: HashSet<String> = lift::sources().collect();
    for Function { name, .. } in &all {
        let is_asked = |name: &str| report.asked.contains(name);
        if !is_asked(name) && !is_asked(&format!("{name}, formulas")) && !compared.contains(name) {
            report.add(name, || Err("no proof is for it".into()));
        }
    }
    let words = proved::words::functions().into_iter();
    let words: Vec<_> = words
        .map(|f| (f.clone(), standards::statement(&f)))
        .collect();
    let mut trials = words::Trials::default();
    for (function, statement) in &words {
        report.add(&function.name, || {
            word_tries::prove(function, statement, &mut trials)
        });
    }
    let blocks = proved::blocks::functions();
    let mut tried = blocks::Tried::default();
    for function in &blocks {
        report.add(&function.name, || block_tries::prove(function, &mut tried));
    }
    for lanes in [2, 4] {
        let name = format!("ghash::prepare, {lanes} blocks");
        report.add(&name, || block_tries::prove_powers(lanes, &mut tried));
    }
    report.end("functions proved from their source", start);

    let start = Instant::now();
    let module = Module::read(path)?;
    let compared = lift::checks(&all);
    let powers = powers::checks(&all);
    let mut ran = HashSet::new();
    for (checks, what) in [
        (
            &compared,
            "functions of the module proved to be their source",
        ),
        (
            &powers,
            "functions of RSA's exponentiation proved in the module",
        ),
    ] {
        for (name, check) in checks {
            report.add(name, || {
                let proved = check(&module)?;
                ran.extend(proved.instructions.iter().map(Instruction::ip));
                Ok(proved.to_string())
            });
        }
        report.end(what, start);
    }

    let multiplies = covered::multiplies(&module);
    if part.is_empty() {
        report.add("all multiplies of 52 bits", || {
            let met = covered::check(&multiplies, &ran)?;
            println!("{met} of the module are in these proofs");
            Ok(met)
        });
        report.proved = 0;
    }
    if part.is_empty() {
        let checks: Vec<_> = compared.into_iter().chain(powers).collect();
        let start = Instant::now();
        for (where_, planted) in [
            ("source", defects::in_terms(&all)),
            (
                "words of ML-KEM and ML-DSA",
                word_tries::defects(&words, standards::statement, &mut trials),
            ),
            ("multiples of points", multiples::defects(&all)),
            ("GHASH", block_tries::defects(&blocks, &mut tried)),
            ("fingerprints", defects::in_prints()),
            ("machine code", defects::in_code(&module, &checks)),
            ("what is covered", covered::defects(&multiplies, &ran)),
        ] {
            report.proved = planted.refuted;
            for missed in &planted.missed {
                println!("FAILED  a planted defect: {missed}");
            }
            report.failed.extend(planted.missed);
            report.end(&format!("defects planted in {where_} and refuted"), start);
        }
    }
    if std::env::var_os("NIGHTLY_SECONDS").is_some() {
        let (cases, findings) = (report.cases, report.failed.len());
        println!("nightly: cases {cases} findings {findings} next 0");
    }
    match report.failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not proved: {}", report.failed.join("; "))),
    }
}
