//! Executes a program between two marks, instruction by instruction, and records it.
//!
//! Before the first mark the program is under ptrace, so that nothing random gets in. Between its
//! marks it runs translations of its own code ([`translate`]) that leave a log: thousands of times
//! as fast as single steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ptrace::{Stop, Tracee};
use crate::symbols::Symbols;
use crate::translate::{self, Block, Ending};
use crate::world::{self, World};

/// The name of the module's file.
const MODULE: &str = "lockstep.so";

/// A part of the name of the C library's.
const LIBC: &str = "(libc.so";

/// The first argument of the `getppid` that a program marks a region with (rig/programs/trace.c).
const MARK: u64 = 0x6c6f_636b;

/// A program, and the settings that all its runs have in common.
#[derive(Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// All of its environment.
    pub environment: Vec<(String, String)>,
    /// The file of [`translate::LOG_SIZE`] bytes that it leaves its log in; always the same.
    pub log: PathBuf,
}

/// The input and the randomness of one run. The input's length is public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The standard input.
    pub input: Vec<u8>,
    /// Seed of the randomness.
    pub seed: u64,
}

/// The log of a program between its marks: the records of its blocks.
#[derive(Default)]
pub struct Trace {
    words: Vec<u64>,
}

/// A run to its end.
#[derive(Default)]
pub struct Ran {
    /// Its work between its marks.
    pub trace: Trace,
    /// How many instructions these were; counted by a survey only.
    pub steps: usize,
    /// The functions that it came through; named by a survey only.
    pub functions: BTreeSet<String>,
    /// Its standard output.
    pub output: Vec<u8>,
}

/// Why there is nothing to return.
#[derive(Debug)]
pub enum Failed {
    /// The run differs from the run before.
    Differs(Box<Difference>),
    /// It could not be carried through.
    Broken(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Broken(format!("ptrace failed: {error}"))
    }
}

impl From<String> for Failed {
    fn from(what: String) -> Failed {
        Failed::Broken(what)
    }
}

/// The first place where two runs differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// How many instructions were equal before.
    pub after: usize,
    /// The difference, in one line.
    pub what: String,
    /// The functions around it, the innermost first.
    pub within: Vec<String>,
}

/// Mode of a run between the marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Not to step: only the output is wanted.
    Away,
    /// To keep the log, and to count and name its blocks.
    Survey,
    /// To keep the log.
    Record,
}

/// Runs a program, and looks at its work between its marks.
pub fn run(
    program: &Program,
    secret: &Secret,
    look: Look,
    translations: &mut Translations,
) -> Result<Ran, Failed> {
    let mut command = Command::new(&program.path);
    command
        .args(&program.arguments)
        .env_clear()
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !matches!(look, Look::Away) {
        command.env("TRACE_LOG", &program.log);
    }
    let mut tracee = Tracee::spawn(&mut command)?;
    let child = tracee.child();
    let missing = || Failed::Broken("a pipe is missing".to_owned());
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = child.stdout.take().ok_or_else(missing)?;
    let mut stderr = child.stderr.take().ok_or_else(missing)?;
    stdin.write_all(&secret.input.len().to_le_bytes())?;
    stdin.write_all(&secret.input)?;
    let mut world = World::new(secret.seed);
    world.begin(&tracee)?;
    let mut reached = run_on(&tracee, &mut world)?;
    let mut ran = Ran::default();
    if reached == Reached::Mark {
        if matches!(look, Look::Away) {
            reached = run_on(&tracee, &mut world)?;
        } else {
            translations.prepare(&tracee)?;
            tracee.release()?;
            match translations.follow(&tracee, &program.log, &mut stdout, &mut stdin) {
                Ok(trace) => ran.trace = trace,
                Err(failed) => return Err(explain(failed, &mut tracee, &mut stderr)),
            }
        }
    } else {
        reached = Reached::End(None);
    }
    let mut errors = String::new();
    stdout.read_to_end(&mut ran.output)?;
    stderr.read_to_string(&mut errors)?;
    if reached == Reached::Mark {
        reached = Reached::End(tracee.child().wait()?.code());
    }
    if reached != Reached::End(Some(0)) {
        return Err(Failed::Broken(format!(
            "the program ended before its mark or with an error: {reached:?}: {errors}"
        )));
    }
    if look == Look::Survey {
        translations.survey(&mut ran)?;
    }
    Ok(ran)
}

/// Adds the standard error of a program that ended before it reported its steps.
fn explain(failed: Failed, tracee: &mut Tracee, stderr: &mut impl io::Read) -> Failed {
    match failed {
        Failed::Broken(what) => {
            tracee.kill();
            let mut errors = String::new();
            let _ = stderr.read_to_string(&mut errors);
            Failed::Broken(format!("{what}: {errors}"))
        }
        differs => differs,
    }
}

/// Where a program has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Mark,
    /// Its end, with this status; none if a signal has ended it.
    End(Option<i32>),
}

/// Runs a program to its mark or to its end.
fn run_on(tracee: &Tracee, world: &mut World) -> Result<Reached, Failed> {
    let mut entered: Option<world::Call> = None;
    let mut signal = 0;
    loop {
        let stop = tracee.run(std::mem::take(&mut signal))?;
        match stop {
            Stop::Syscall => match entered.take() {
                None => entered = Some(world::Call::entered(&tracee.registers()?)),
                Some(call)
                    if call.number as i64 == libc::SYS_getppid && call.arguments[0] == MARK =>
                {
                    world.mark(tracee)?;
                    return Ok(Reached::Mark);
                }
                Some(call) => world.answer(tracee, call)?,
            },
            Stop::Signal(_) if world.time_stamp(tracee, stop)? => {}
            Stop::Signal(number) => signal = number,
            Stop::Cloned => {
                return Err(Failed::Broken(
                    "the program started a thread or a process".to_owned(),
                ));
            }
            Stop::Exited(status) => return Ok(Reached::End(Some(status))),
            Stop::Killed(_) => return Ok(Reached::End(None)),
        }
    }
}

/// The translations of a program's blocks. They serve all its runs, as its files are always mapped
/// at the same addresses.
#[derive(Default)]
pub struct Translations {
    /// Where which file is mapped to be executed.
    mapped: String,
    symbols: Option<Symbols>,
    blocks: HashMap<u64, Block>,
    /// Contents of the cache, from its beginning.
    cache: Vec<u8>,
    /// Contents of the table: the place, the block, its translation.
    table: BTreeMap<u64, (u64, u64)>,
}

impl Translations {
    /// Gives a program that has come to its mark the translations of earlier runs.
    fn prepare(&mut self, tracee: &Tracee) -> Result<(), Failed> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", tracee.pid()))?;
        let executed = |line: &&str| line.contains(" r-xp ") && line.contains('/');
        let mapped: String = maps.lines().filter(executed).collect();
        if mapped != self.mapped {
            *self = Translations {
                mapped,
                symbols: Some(Symbols::of(tracee.pid())?),
                ..Translations::default()
            };
        }
        tracee.write(translate::CACHE, &self.cache)?;
        for (&place, &(block, translation)) in &self.table {
            enter(tracee, place, block, translation)?;
        }
        Ok(())
    }

    /// Answers the program and reads its log, until it comes to its closing mark.
    fn follow(
        &mut self,
        tracee: &Tracee,
        log: &Path,
        stdout: &mut impl io::Read,
        stdin: &mut impl io::Write,
    ) -> Result<Trace, Failed> {
        let file = File::open(log)?;
        let mut trace = Trace::default();
        let mut bytes = Vec::new();
        loop {
            let mut message = [0; 16];
            stdout
                .read_exact(&mut message)
                .map_err(|_| Failed::Broken("the program ended between its marks".to_owned()))?;
            let (words, _) = message.as_chunks::<8>();
            let [kind, value] = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
            if kind == u64::from(b'T') {
                self.translate(tracee, value)?;
                stdin.write_all(&[0])?;
                continue;
            }
            bytes.resize(value as usize * 8, 0);
            file.read_exact_at(&mut bytes, 0)?;
            let (words, _) = bytes.as_chunks::<8>();
            let words = words.iter().map(|&word| u64::from_le_bytes(word));
            trace.words.extend(words);
            stdin.write_all(&[0])?;
            if kind == u64::from(b'E') {
                return Ok(trace);
            }
        }
    }

    /// Translates the block at an address, and puts it where the program will find it.
    fn translate(&mut self, tracee: &Tracee, at: u64) -> Result<(), Failed> {
        let mut code = [0; 1024];
        let read = tracee.read(at, &mut code)?;
        let to = translate::CACHE + self.cache.len() as u64;
        let block = translate::translate(at, &code[..read], to)
            .map_err(|what| format!("{what} ({})", self.name(at)))?;
        if self.cache.len() as u64 + block.code.len() as u64 > translate::CACHE_SIZE {
            return Err(Failed::Broken(
                "the cache of translations is full".to_owned(),
            ));
        }
        tracee.write(to, &block.code)?;
        self.cache.extend_from_slice(&block.code);
        let mut place = at & translate::TABLE_MASK;
        while self.table.contains_key(&place) {
            place += 1;
        }
        self.table.insert(place, (at, to));
        enter(tracee, place, at, to)?;
        self.blocks.insert(at, block);
        Ok(())
    }

    fn name(&self, at: u64) -> String {
        match &self.symbols {
            Some(symbols) => symbols.name(at),
            None => format!("{at:#x}"),
        }
    }

    /// The block that a record begins with.
    fn block(&self, record: &[u64]) -> Result<&Block, String> {
        let block = record.first().and_then(|at| self.blocks.get(at));
        block.ok_or_else(|| "the log cannot be read".to_owned())
    }

    /// Counts instructions and names functions.
    fn survey(&self, ran: &mut Ran) -> Result<(), Failed> {
        let words = &ran.trace.words;
        let mut at = 0;
        let mut heads = BTreeSet::new();
        while at < words.len() {
            let block = self.block(&words[at..])?;
            ran.steps += block.instructions.len();
            heads.insert(words[at]);
            if let Some(gather) = block.gather {
                return Err(Failed::Differs(Box::new(Difference {
                    after: ran.steps,
                    what: format!("addresses from a vector register: {}", self.name(gather)),
                    within: Vec::new(),
                })));
            }
            at += block.words();
        }
        let symbols = self.symbols.as_ref();
        let names = heads
            .into_iter()
            .filter_map(|at| symbols.and_then(|symbols| symbols.function(at)));
        ran.functions = names.map(str::to_owned).collect();
        Ok(())
    }

    /// Compares two runs. Returns how often they differ within calls that may.
    pub fn compare(
        &self,
        reference: &Trace,
        other: &Trace,
        allowed: &[Allowed],
    ) -> Result<usize, Failed> {
        let (reference, other) = (&reference.words[..], &other.words[..]);
        let (mut i, mut j, mut differences) = (0, 0, 0);
        let mut way = Way::default();
        loop {
            let pairs = reference[i..].iter().zip(&other[j..]);
            let equal = pairs.take_while(|(a, b)| a == b).count();
            let at = i + equal;
            if at == reference.len() && j + equal == other.len() {
                return Ok(differences);
            }
            self.go_on(&mut way, reference, at)?;
            // Where the record begins that differs, in the other.
            let record = (j + way.record).checked_sub(i);
            let resumed = record.and_then(|record| {
                let until = self.until(&way, reference, at, allowed)?;
                let i = self.resumed(reference, way.record, &until)?;
                Some((i, self.resumed(other, record, &until)?))
            });
            match resumed {
                Some(resumed) => {
                    (i, j) = resumed;
                    differences += 1;
                }
                None => {
                    let word = other.get(j + equal).copied();
                    return Err(self.differs(&way, reference, at, word));
                }
            }
        }
    }

    /// Until where two runs may differ that differ in this word of the reference.
    fn until(&self, way: &Way, reference: &[u64], at: usize, allowed: &[Allowed]) -> Option<Until> {
        let here = reference.get(way.record).copied().unwrap_or_default();
        let foreign = |at: u64| !self.name(at).contains(MODULE);
        let is_call = |allowed: &Allowed, call: &Call| {
            self.name(call.site).contains(allowed.caller)
                && self.name(call.callee).contains(allowed.callee)
        };
        let is_in = |allowed: &Allowed, depth: usize, call: &Call| {
            let deeper = || way.calls[depth + 1..].iter().map(|call| call.callee);
            is_call(allowed, call)
                && match allowed.what {
                    What::Others => foreign(here) && deeper().all(foreign),
                    What::All => true,
                    What::Answer(_) | What::LastAnswer(_) => false,
                }
        };
        let calls = way.calls.iter().enumerate();
        let mut calls = calls
            .filter(|(depth, call)| allowed.iter().any(|allowed| is_in(allowed, *depth, call)));
        if let Some((_, call)) = calls.next() {
            return Some(Until::Return(call.entered));
        }
        // Where it went to follows from the instruction before.
        let place = if at == way.record { way.last? } else { here };
        let returned = way.returned.as_ref()?;
        let allowed = allowed.iter().find(|allowed| {
            matches!(allowed.what, What::Answer(_) | What::LastAnswer(_))
                && is_call(allowed, returned)
                && self.name(place).contains(allowed.caller)
        });
        allowed.map(|allowed| Until::Call(*allowed))
    }

    /// Follows a program to a word of its log.
    fn go_on(&self, way: &mut Way, words: &[u64], until: usize) -> Result<(), Failed> {
        while way.record <= until && way.record < words.len() {
            let record = &words[way.record..];
            let block = self.block(record)?;
            let stack = record.get(1).copied().unwrap_or_default();
            let before = way.before.take();
            let before = before.and_then(|at| self.blocks.get(&at));
            if let Some((before, &site)) =
                before.and_then(|before| Some((before, before.instructions.last()?)))
            {
                way.last = Some(site);
                if before.ends_with == Ending::Call {
                    way.calls.push(Call {
                        site,
                        callee: record[0],
                        entered: stack,
                    });
                }
                while let Some(call) = way.calls.pop_if(|call| call.entered < stack) {
                    if !self.name(call.callee).contains(LIBC) {
                        way.returned = Some(call);
                    }
                }
                // Calls between objects come by way of a jump through a table.
                if let Some(call) = way.calls.last_mut()
                    && before.ends_with == Ending::Other
                    && before.instructions.len() <= 2
                    && call.entered == stack
                    && before.instructions.first() == Some(&call.callee)
                {
                    call.callee = record[0];
                }
            }
            if way.record + block.words() > until {
                break;
            }
            way.steps += block.instructions.len();
            way.record += block.words();
            way.before = record.first().copied();
        }
        Ok(())
    }

    /// The first record, from one on, from which on runs may no longer differ.
    fn resumed(&self, words: &[u64], mut at: usize, until: &Until) -> Option<usize> {
        let mut before: Option<&Block> = None;
        loop {
            let (head, stack) = (*words.get(at)?, *words.get(at + 1)?);
            // Whether the caller has just called one of these.
            let calls = |allowed: &Allowed, callees: &[&str]| {
                let call = before.filter(|before| before.ends_with == Ending::Call);
                let site = call.and_then(|before| before.instructions.last())?;
                let is_one = |name: &&str| self.name(head).contains(name);
                let is_by_caller = self.name(*site).contains(allowed.caller);
                is_by_caller.then(|| callees.iter().any(is_one))
            };
            let is_there = match until {
                Until::Return(entered) => stack > *entered,
                Until::Call(allowed) => match allowed.what {
                    What::Answer(next) => calls(allowed, next) == Some(true),
                    What::LastAnswer(next) => match calls(allowed, &[next]) {
                        Some(false) if !self.name(head).contains(LIBC) => return None,
                        called => called == Some(true),
                    },
                    What::Others | What::All => return None,
                },
            };
            if is_there {
                return Some(at);
            }
            let block = self.block(&words[at..]).ok()?;
            at += block.words();
            before = Some(block);
        }
    }

    /// Describes where two runs differ: in this word of the reference.
    fn differs(&self, way: &Way, reference: &[u64], at: usize, word: Option<u64>) -> Failed {
        let name = |word: Option<u64>| word.map_or("the end".to_owned(), |at| self.name(at));
        let record = reference.get(way.record..).unwrap_or_default();
        let what = match at - way.record {
            0 => format!(
                "instructions: {} against {}, after {}",
                name(word),
                name(record.first().copied()),
                name(way.last),
            ),
            1 => format!("the stack pointer in {}", name(record.first().copied())),
            index => {
                let block = self.block(record).ok();
                let place = block.and_then(|block| block.data.get(index - 2)).copied();
                format!(
                    "data of {}: {:#x} against {:#x}",
                    name(place),
                    word.unwrap_or_default(),
                    record.get(index).copied().unwrap_or_default(),
                )
            }
        };
        let within = way.calls.iter().rev().take(12);
        Failed::Differs(Box::new(Difference {
            after: way.steps,
            what,
            within: within
                .map(|call| {
                    format!(
                        "{}, called by {}",
                        self.name(call.callee),
                        self.name(call.site)
                    )
                })
                .collect(),
        }))
    }
}

/// A call with which runs may differ, and why.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// A part of the name of the function that calls.
    pub caller: &'static str,
    /// A part of the name of the function that is called.
    pub callee: &'static str,
    /// The part of it that may differ.
    pub what: What,
    /// Why no secret is in it, or why it is not ours to mend.
    pub reason: &'static str,
}

/// The part of a call that may differ.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// All work in it, except where the module is at work, though it calls the module.
    Others,
    /// All work in it, by the module too: its inputs are public.
    All,
    /// Not the work in it, but its caller's own next steps by its answer, which is public: until
    /// the caller calls one of these, by parts of their names.
    Answer(&'static [&'static str]),
    /// The same, but there is no other call before the one of this function, unless it copies.
    LastAnswer(&'static str),
}

/// Until where two runs may differ.
enum Until {
    /// The return of the call that was entered with this stack pointer.
    Return(u64),
    /// A call, by the caller of this, of what it names.
    Call(Allowed),
}

/// A call.
struct Call {
    site: u64,
    callee: u64,
    /// The stack pointer with which it was entered.
    entered: u64,
}

/// How a program came to a record.
#[derive(Default)]
struct Way {
    /// Where the record begins.
    record: usize,
    /// Instructions before.
    steps: usize,
    /// The instruction before.
    last: Option<u64>,
    /// The block before, unless the calls below already belong to the record.
    before: Option<u64>,
    /// The calls that have not returned.
    calls: Vec<Call>,
    /// The last call that has returned, calls of the C library excepted: they copy.
    returned: Option<Call>,
}

/// Writes a line of the table that a program finds translations by.
fn enter(tracee: &Tracee, place: u64, block: u64, translation: u64) -> io::Result<()> {
    let at = translate::TABLE + 16 * place;
    // The translation first: a line counts when it names its block.
    tracee.write(at + 8, &translation.to_le_bytes())?;
    tracee.write(at, &block.to_le_bytes())
}
