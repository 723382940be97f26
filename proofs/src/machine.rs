//! Machine code as terms: a function of the release module, instruction by instruction.
//!
//! Pointers, counters and flags are numbers; words of vectors are numbers or terms. An address or
//! a jump that depends on a term is an error, so a function that comes through has the same
//! addresses and jumps for all inputs. An instruction that is not listed here is an error with its
//! name. Every lane has inputs of its own, so that nothing can pass from one to another unseen.

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::rc::Rc;

use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use lockstep_kernels::proved::{Place, Term, Terms};

use crate::terms::{Look, most};

/// A shared object: its segments, and where its functions begin.
#[derive(Clone, Default)]
pub struct Module {
    bytes: Vec<u8>,
    /// Address, offset in the file, length.
    segments: Vec<[u64; 3]>,
    /// Address and length of memory that the program may not change, or no longer.
    constant: Vec<[u64; 2]>,
    functions: HashMap<String, Vec<u64>>,
    /// Where the addresses of other objects' functions are kept, and their names.
    imports: HashMap<u64, String>,
    /// Addresses that the loader writes, and where.
    relative: HashMap<u64, u64>,
    /// Where its functions' stack begins, as in [`Machine`].
    lower: u64,
}

impl Module {
    pub fn read(path: &str) -> Result<Module, String> {
        let mut module = Module {
            bytes: std::fs::read(path).map_err(|error| format!("{path}: {error}"))?,
            ..Module::default()
        };
        let listing = |command: &mut Command| match command.arg(path).output() {
            Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(error) => Err(format!("{command:?}: {error}")),
        };
        for line in listing(Command::new("nm").args(["-C", "--defined-only"]))?.lines() {
            let mut parts = line.splitn(3, ' ');
            if let (Some(Ok(address)), Some(name)) = (parts.next().map(hexadecimal), parts.nth(1)) {
                let name = name.replace("lockstep_kernels::", "");
                module.functions.entry(name).or_default().push(address);
            }
        }
        for line in listing(Command::new("readelf").arg("-lrW"))?.lines() {
            match line.split_whitespace().collect::<Vec<&str>>()[..] {
                ["LOAD", offset, start, _, length, room, flags, ..] => {
                    let [start, offset] = [hexadecimal(start)?, hexadecimal(offset)?];
                    module.segments.push([start, offset, hexadecimal(length)?]);
                    if flags == "R" {
                        module.constant.push([start, hexadecimal(room)?]);
                    }
                }
                ["GNU_RELRO", _, start, _, _, room, ..] => {
                    let piece = [hexadecimal(start)?, hexadecimal(room)?];
                    module.constant.push(piece);
                }
                [address, _, "R_X86_64_RELATIVE", value] => {
                    let (address, value) = (hexadecimal(address)?, hexadecimal(value)?);
                    module.relative.insert(address, value);
                }
                [address, _, kind, _, name, ..] if kind.starts_with("R_X86_64_") => {
                    let name = name.split('@').next().unwrap_or(name).to_owned();
                    module.imports.insert(hexadecimal(address)?, name);
                }
                _ => {}
            }
        }
        Ok(module)
    }

    /// One that has this code alone, from address zero on.
    pub fn of(code: &[u8]) -> Self {
        Self {
            bytes: code.to_vec(),
            segments: vec![[0, 0, code.len() as u64]],
            ..Self::default()
        }
    }

    /// Where a function begins.
    pub fn address(&self, name: &str) -> Result<u64, String> {
        match self.functions.get(name).map(Vec::as_slice) {
            Some([address]) => Ok(*address),
            Some(_) => Err(format!("the module has more than one {name}")),
            None => Err(format!("the module has no {name}")),
        }
    }

    /// All functions, and where they begin, in the order of addresses.
    pub fn functions(&self) -> Vec<(u64, &str)> {
        let all = self.functions.iter();
        let mut all: Vec<_> = all
            .flat_map(|(name, places)| places.iter().map(|&at| (at, name.as_str())))
            .collect();
        all.sort_unstable();
        all
    }

    /// The instructions from an address to another one.
    pub fn between(&self, [start, end]: [u64; 2]) -> Vec<Instruction> {
        let bytes = self.offset(start);
        let bytes = bytes.and_then(|from| self.bytes.get(from..from + (end - start) as usize));
        let bytes = bytes.unwrap_or_default();
        Decoder::with_ip(64, bytes, start, DecoderOptions::NONE)
            .iter()
            .collect()
    }

    /// Offset in the file of the byte at an address.
    pub fn offset(&self, address: u64) -> Option<usize> {
        let segment = self
            .segments
            .iter()
            .find(|[start, _, length]| (*start..start + length).contains(&address))?;
        Some((address - segment[0] + segment[1]) as usize)
    }

    /// Whether the byte at an address stays as it is in the file.
    fn is_constant(&self, address: u64) -> bool {
        let mut constant = self.constant.iter();
        constant.any(|[start, length]| (*start..start + length).contains(&address))
    }

    /// The byte at an address.
    pub fn byte(&self, address: u64) -> u8 {
        self.bytes[self.offset(address).expect("an address of the module")]
    }

    /// The same module with other bytes at an address.
    pub fn patched(&self, address: u64, bytes: &[u8]) -> Module {
        let mut patched = self.clone();
        let at = self.offset(address).expect("an address of the module");
        patched.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        patched
    }

    /// The same module, whose functions run from another place on the stack.
    pub fn lowered(&self) -> Module {
        let mut lowered = self.clone();
        lowered.lower += 1;
        lowered
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }
}

fn hexadecimal(text: &str) -> Result<u64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|error| format!("{text}: {error}"))
}

/// A word of a register or of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Undefined,
    Word(u64),
    Term(Place),
    /// The masks of all lanes, by their number.
    Masks(usize),
    /// The old value of a register that a function must restore.
    Saved(usize),
    /// A number of which this many of the lowest bytes are known.
    Low(u64, usize),
}

type Vector = [Value; 8];

/// Where a function returns to.
const END: u64 = 0xdead_0000;
/// Other objects' functions, by the places of their addresses.
const IMPORTS: u64 = 0x6000_0000_0000;
/// The top of the stack.
const STACK: u64 = 0x7000_0000_0000;
/// Bytes of it that a function may use.
const LONGEST_STACK: u64 = 1 << 20;

/// Flags that the manual defines after the instructions that ran.
#[derive(Default)]
struct Flags {
    zero: Option<bool>,
    sign: Option<bool>,
    carry: Option<bool>,
    overflow: Option<bool>,
}

pub struct Machine<'a> {
    module: &'a Module,
    pub terms: Terms,
    registers: [Value; 16],
    vectors: [Vector; 32],
    masks: [Vector; 8],
    memory: HashMap<u64, Value>,
    /// Masks in single bytes of memory.
    bytes: HashMap<u64, usize>,
    /// Bytes of words in memory that nobody has written since a part of the word was.
    unknown: HashSet<u64>,
    kept: Vec<Vector>,
    flags: Flags,
    /// How many times 16 bytes below its top the stack begins.
    pub lower: u64,
    /// Where that of the caller begins.
    caller: u64,
    pub steps: u64,
    pub accesses: u64,
    /// Functions that are not run: their effects, by their addresses.
    pub stops: HashMap<u64, Stop<'a>>,
    /// Every instruction that ran.
    pub instructions: HashMap<u64, Instruction>,
}

pub type Outcome<T = ()> = Result<T, String>;

/// The effect of a function that was proved on its own.
pub type Stop<'a> = Rc<dyn Fn(&mut Machine<'a>) -> Outcome + 'a>;

const ARGUMENTS: [Register; 6] = {
    use Register::*;
    [RDI, RSI, RDX, RCX, R8, R9]
};

/// Registers that a function must restore.
pub const SAVED: [Register; 6] = {
    use Register::*;
    [RBX, RBP, R12, R13, R14, R15]
};

/// Instructions whose masks and numbers that are read for all lanes are not for words of 64 bits.
const NARROW: [Mnemonic; 15] = {
    use Mnemonic::*;
    [
        Vmovaps, Vmovups, Vmovdqa32, Vmovdqu32, Vmovdqu8, Vpxord, Vxorps, Vpandd, Vandps, Vpandnd,
        Vandnps, Vpord, Vorps, Vpternlogd, Vpermt2d,
    ]
};

/// Instructions whose vectors in memory must be aligned to their length.
const ALIGNED: [Mnemonic; 6] = {
    use Mnemonic::*;
    [Movaps, Movdqa, Vmovaps, Vmovdqa, Vmovdqa32, Vmovdqa64]
};

impl<'a> Machine<'a> {
    pub fn new(module: &'a Module) -> Self {
        let mut terms = Terms::default();
        terms.place(Term::Constant(0));
        Self {
            module,
            terms,
            registers: [Value::Undefined; 16],
            vectors: [[Value::Undefined; 8]; 32],
            masks: [[Value::Undefined; 8]; 8],
            memory: HashMap::new(),
            bytes: HashMap::new(),
            unknown: HashSet::new(),
            kept: Vec::new(),
            flags: Flags::default(),
            lower: module.lower,
            caller: STACK,
            steps: 0,
            accesses: 0,
            stops: HashMap::new(),
            instructions: HashMap::new(),
        }
    }

    pub fn store(&mut self, address: u64, value: Value) {
        self.bytes
            .retain(|byte, _| !(address..address + 8).contains(byte));
        self.unknown
            .retain(|byte| !(address..address + 8).contains(byte));
        self.memory.insert(address, value);
    }

    pub fn load(&self, address: u64) -> Value {
        match self.memory.get(&address) {
            Some(value) if !self.is_unknown(address, 8) => *value,
            _ => Value::Undefined,
        }
    }

    fn is_unknown(&self, address: u64, size: u64) -> bool {
        !self.unknown.is_empty() && (address..address + size).any(|at| self.unknown.contains(&at))
    }

    /// A value that stands for the masks of all lanes.
    pub fn keep(&mut self, masks: Vector) -> Value {
        self.kept.push(masks);
        Value::Masks(self.kept.len() - 1)
    }

    /// Runs a function to its end.
    pub fn call(&mut self, function: u64, arguments: &[Value]) -> Outcome {
        for (register, value) in ARGUMENTS.iter().zip(arguments) {
            self.registers[register.number()] = *value;
        }
        for (i, register) in SAVED.iter().enumerate() {
            self.registers[register.number()] = Value::Saved(i);
        }
        // Aligned to 16 bytes at a call, and not to more: elsewhere all other bits are turned.
        // Arguments for which there are no registers lie on the stack.
        let odd = arguments.len().saturating_sub(ARGUMENTS.len()) as u64 % 2;
        let turned = self.lower % 2 * 0xf_fff0;
        self.caller = (STACK - 48 - 8 * odd) ^ turned;
        self.set(Register::RSP, self.caller);
        for argument in arguments.iter().skip(ARGUMENTS.len()).rev() {
            self.push(*argument)?;
        }
        let top = self.word(Register::RSP)?;
        self.push(Value::Word(END))?;
        let mut ip = function;
        while ip != END {
            let instruction = self.decode(ip)?;
            self.steps += 1;
            if self.steps > 30_000_000 {
                return Err("it does not end".into());
            }
            let next = self.step(&instruction);
            ip = next
                .map_err(|why| format!("{ip:#x} {:?}: {why}", instruction.code()))?
                .unwrap_or(instruction.next_ip());
        }
        let is_kept = |(i, register): (usize, &Register)| {
            self.registers[register.number()] == Value::Saved(i)
        };
        match SAVED.iter().enumerate().all(is_kept) && self.word(Register::RSP)? == top {
            true => Ok(()),
            false => Err("a register is not restored".into()),
        }
    }

    /// The whole memory.
    pub fn memory(&self) -> HashMap<u64, Value> {
        self.memory.clone()
    }

    /// That nothing has changed since but the stack and these pieces: their addresses and words.
    pub fn wrote_only(&self, before: &HashMap<u64, Value>, pieces: &[(u64, usize)]) -> Outcome {
        let is_its_own = |address: u64| {
            let mut pieces = pieces.iter();
            (self.caller - LONGEST_STACK..self.caller).contains(&address)
                || pieces.any(|(at, words)| (*at..at + 8 * *words as u64).contains(&address))
        };
        let changed = self.memory.iter();
        let changed = changed.filter(|(address, value)| before.get(address) != Some(value));
        let bytes = self.bytes.keys().chain(&self.unknown);
        let mut changed = changed.map(|(address, _)| address).chain(bytes);
        match changed.find(|address| !is_its_own(**address)) {
            Some(address) => Err(format!("it writes to {address:#x}, which is not its own")),
            None => Ok(()),
        }
    }

    fn decode(&mut self, ip: u64) -> Outcome<Instruction> {
        if let Some(known) = self.instructions.get(&ip) {
            return Ok(*known);
        }
        let at = self.module.offset(ip);
        let at = at.ok_or_else(|| format!("{ip:#x} is not in the module"))?;
        let bytes = &self.module.bytes[at..(at + 16).min(self.module.bytes.len())];
        let instruction = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
        if !is_plain(&instruction) {
            let code = instruction.code();
            return Err(format!("{ip:#x} {code:?}: an operand of another kind"));
        }
        self.instructions.insert(ip, instruction);
        Ok(instruction)
    }

    fn set(&mut self, register: Register, value: u64) {
        self.registers[slot(register)] = Value::Word(value);
    }

    fn word(&self, register: Register) -> Outcome<u64> {
        match register {
            Register::None => Ok(0),
            _ => match self.registers[slot(register)] {
                Value::Word(word) => Ok(word),
                other => Err(format!("{register:?} is {other:?}, not a number")),
            },
        }
    }

    /// The address of the memory operand.
    fn address(&self, i: &Instruction) -> Outcome<u64> {
        let displacement = i.memory_displacement64();
        if matches!(i.memory_segment(), Register::FS | Register::GS) {
            return Err("memory of a thread".into());
        }
        if matches!(i.memory_base(), Register::RIP | Register::EIP) {
            return Ok(displacement);
        }
        let base = self.word(i.memory_base())?;
        let index = self.word(i.memory_index())?;
        let scale = u64::from(i.memory_index_scale());
        Ok(base
            .wrapping_add(index.wrapping_mul(scale))
            .wrapping_add(displacement))
    }

    fn load_word(&self, address: u64) -> Value {
        if !self.bytes.is_empty() && (address..address + 8).any(|at| self.bytes.contains_key(&at)) {
            return Value::Undefined;
        }
        if self.is_unknown(address, 8) {
            return Value::Undefined;
        }
        if let Some(value) = self.memory.get(&address) {
            return *value;
        }
        if !self.module.is_constant(address) {
            return Value::Undefined;
        }
        if self.module.imports.contains_key(&address) {
            return Value::Word(IMPORTS + address);
        }
        if let Some(value) = self.module.relative.get(&address) {
            return Value::Word(*value);
        }
        match self.module.offset(address) {
            Some(at) => Value::Word(self.module.word(at)),
            None => Value::Undefined,
        }
    }

    /// A number of `size` bytes in memory.
    fn load_scalar(&mut self, address: u64, size: usize) -> Outcome<Value> {
        self.accesses += 1;
        if let (1, Some(masks)) = (size, self.bytes.get(&address)) {
            return Ok(Value::Masks(*masks));
        }
        let shift = 8 * (address % 8);
        if shift / 8 + size as u64 > 8 {
            return Err("a number across two words".into());
        }
        let is_known = |at| !self.is_unknown(at, 1) && !self.bytes.contains_key(&at);
        // Of a constant the words need not be aligned.
        let word = match self.memory.get(&(address - address % 8)) {
            Some(word) if (address..address + size as u64).all(is_known) => *word,
            Some(_) => Value::Undefined,
            None => match self.load_word(address) {
                Value::Word(word) => return Ok(Value::Word(word & mask(size))),
                other => other,
            },
        };
        match word {
            Value::Word(word) => Ok(Value::Word(word >> shift & mask(size))),
            other if size == 8 => Ok(other),
            other => Err(format!("part of {other:?}")),
        }
    }

    fn store_scalar(&mut self, address: u64, size: usize, value: Value) -> Outcome {
        self.accesses += 1;
        if size == 1 {
            self.bytes.remove(&address);
            self.unknown.remove(&address);
        }
        let at = address - address % 8;
        match value {
            Value::Masks(masks) if size == 1 => {
                self.bytes.insert(address, masks);
            }
            _ if size == 8 && at == address => self.store(at, value),
            Value::Word(word) => {
                let shift = 8 * (address % 8);
                if shift / 8 + size as u64 > 8 {
                    return Err("a number across two words".into());
                }
                let before = match self.memory.get(&at).copied().unwrap_or(Value::Undefined) {
                    Value::Word(before) => before,
                    // Nobody may read the rest of it.
                    Value::Undefined | Value::Term(_) | Value::Low(..) => {
                        self.unknown.extend(at..at + 8);
                        0
                    }
                    other => return Err(format!("a part of {other:?} is overwritten")),
                };
                let kept = before & !(mask(size) << shift);
                // Masks in other bytes of the word stay.
                let beside =
                    (at..at + 8).filter(|at| !(address..address + size as u64).contains(at));
                let beside: Vec<u64> = beside.collect();
                let masks = beside.iter();
                let masks = masks.filter_map(|at| Some((*at, *self.bytes.get(at)?)));
                let masks: Vec<(u64, usize)> = masks.collect();
                let unknown = beside.into_iter().filter(|&at| self.is_unknown(at, 1));
                let unknown: Vec<u64> = unknown.collect();
                self.store(at, Value::Word(kept | (word & mask(size)) << shift));
                self.bytes.extend(masks);
                self.unknown.extend(unknown);
            }
            other => return Err(format!("a part of a word becomes {other:?}")),
        }
        Ok(())
    }

    /// Puts inputs into memory, from one on.
    pub fn store_inputs(&mut self, address: u64, first: usize, count: usize) {
        for i in 0..count {
            let input = self.terms.place(Term::Input((first + i) as u32));
            self.store(address + 8 * i as u64, Value::Term(input));
        }
    }

    /// The terms in memory.
    pub fn places(&mut self, address: u64, count: usize) -> Outcome<Vec<Place>> {
        let places = (0..count).map(|i| self.place(self.load(address + 8 * i as u64)));
        places.collect()
    }

    fn place(&mut self, value: Value) -> Outcome<Place> {
        match value {
            Value::Word(word) => Ok(self.terms.place(Term::Constant(word))),
            Value::Term(place) => Ok(place),
            other => Err(format!("an operand is {other:?}")),
        }
    }

    fn term(&mut self, term: Term) -> Value {
        Value::Term(self.terms.place(term))
    }

    /// A sum or bits of two words.
    fn both(&mut self, term: fn([Place; 2]) -> Term, a: Value, b: Value) -> Outcome<Value> {
        use Value::Word;
        let (kind, all) = (term([0, 0]), Word(u64::MAX));
        Ok(match (kind, a, b) {
            (Term::And(_), Word(a), Word(b)) => Word(a & b),
            (Term::And(_), a, ones) | (Term::And(_), ones, a) if ones == all => a,
            (Term::Or(_) | Term::Xor(_) | Term::Add(_), a, Word(0)) => a,
            _ => {
                let places = [self.place(a)?, self.place(b)?];
                self.term(term(places))
            }
        })
    }

    fn width(register: Register) -> usize {
        match register {
            register if register.is_zmm() => 8,
            register if register.is_ymm() => 4,
            _ => 2,
        }
    }

    fn insist_on_alignment(i: &Instruction, address: u64, count: usize) -> Outcome {
        match ALIGNED.contains(&i.mnemonic()) && !address.is_multiple_of(8 * count as u64) {
            true => Err(format!("a vector at {address:#x}, which is not aligned")),
            false => Ok(()),
        }
    }

    /// `count` words of operand `operand`.
    fn vector(&mut self, i: &Instruction, operand: u32, count: usize) -> Outcome<Vector> {
        let mut vector = [Value::Word(0); 8];
        match i.op_kind(operand) {
            OpKind::Register => {
                let register = i.op_register(operand);
                vector[..count].copy_from_slice(&self.vectors[register.number()][..count]);
            }
            OpKind::Memory => {
                let address = self.address(i)?;
                self.accesses += 1;
                Self::insist_on_alignment(i, address, count)?;
                if i.is_broadcast() && NARROW.contains(&i.mnemonic()) {
                    return Err("a number of less than 64 bits for all lanes".into());
                }
                let step = if i.is_broadcast() { 0 } else { 8 };
                for (at, word) in vector[..count].iter_mut().enumerate() {
                    *word = self.load_word(address + step * at as u64);
                }
            }
            other => return Err(format!("an operand of kind {other:?}")),
        }
        Ok(vector)
    }

    /// Writes a vector to operand 0, under its mask.
    fn write(&mut self, i: &Instruction, count: usize, vector: &Vector) -> Outcome {
        let mut vector = *vector;
        let mask = i.op_mask();
        if mask != Register::None {
            if NARROW.contains(&i.mnemonic()) {
                return Err("a mask for less than 64 bits".into());
            }
            let before = match i.op0_kind() {
                OpKind::Memory => self.vector(i, 0, count)?,
                _ => self.vectors[i.op0_register().number()],
            };
            let masks = self.masks[mask.number()];
            for at in 0..count {
                let clear = match i.zeroing_masking() {
                    true => Value::Word(0),
                    false => before[at],
                };
                vector[at] = self.select(masks[at], vector[at], clear)?;
            }
        }
        match i.op0_kind() {
            OpKind::Register => {
                let register = i.op0_register();
                let to = &mut self.vectors[register.number()];
                let is_legacy = i.encoding() == iced_x86::EncodingKind::Legacy;
                for (at, to) in to.iter_mut().enumerate() {
                    if at < count {
                        *to = vector[at];
                    } else if !is_legacy {
                        *to = Value::Word(0);
                    }
                }
            }
            _ => {
                let address = self.address(i)?;
                self.accesses += 1;
                Self::insist_on_alignment(i, address, count)?;
                if address % 8 != 0 {
                    return Err("a vector that is not aligned to words".into());
                }
                for (at, word) in vector[..count].iter().enumerate() {
                    self.store(address + 8 * at as u64, *word);
                }
            }
        }
        Ok(())
    }

    fn select(&mut self, mask: Value, set: Value, clear: Value) -> Outcome<Value> {
        let places = [self.place(mask)?, self.place(set)?, self.place(clear)?];
        Ok(self.term(Term::Select(places)))
    }

    fn not(&mut self, mask: Value) -> Outcome<Value> {
        let turned = self.select(mask, Value::Word(0), Value::Word(u64::MAX))?;
        self.both(Term::AnyBit, turned, Value::Word(u64::MAX))
    }

    /// Computes the words of a vector, each from the words of the operands at the same place.
    fn words<const N: usize>(
        &mut self,
        i: &Instruction,
        operands: [u32; N],
        count: usize,
        mut word: impl FnMut(&mut Self, [Value; N]) -> Outcome<Value>,
    ) -> Outcome<Vector> {
        let mut read = [[Value::Word(0); 8]; N];
        for (read, operand) in read.iter_mut().zip(operands) {
            *read = self.vector(i, operand, count)?;
        }
        let mut out = [Value::Word(0); 8];
        for (at, out) in out[..count].iter_mut().enumerate() {
            *out = word(self, read.map(|words| words[at]))?;
        }
        Ok(out)
    }

    /// Writes the words of operand 0, each from the words of the operands at the same place.
    fn each<const N: usize>(
        &mut self,
        i: &Instruction,
        operands: [u32; N],
        word: impl FnMut(&mut Self, [Value; N]) -> Outcome<Value>,
    ) -> Outcome {
        let count = Self::width(i.op0_register());
        let out = self.words(i, operands, count, word)?;
        self.write(i, count, &out)
    }

    /// The same of the last two operands.
    fn pairs(
        &mut self,
        i: &Instruction,
        mut word: impl FnMut(&mut Self, Value, Value) -> Outcome<Value>,
    ) -> Outcome {
        let last = i.op_count() - 1;
        self.each(i, [last - 1, last], |m, [a, b]| word(m, a, b))
    }

    fn multiply(&mut self, i: &Instruction, term: impl Fn([Place; 3]) -> Term) -> Outcome {
        self.each(i, [0, 1, 2], |m, [acc, a, b]| {
            let places = [m.place(acc)?, m.place(a)?, m.place(b)?];
            Ok(m.term(term(places)))
        })
    }

    /// A word whose bits are moved, by less than 64.
    fn moved(&mut self, a: Value, term: fn(Place, u32) -> Term, by: u32) -> Outcome<Value> {
        if by == 0 {
            return Ok(a);
        }
        let place = self.place(a)?;
        Ok(self.term(term(place, by)))
    }

    fn shift(&mut self, i: &Instruction, term: fn(Place, u32) -> Term) -> Outcome {
        let by = match (i.op2_kind(), i.mnemonic()) {
            (OpKind::Immediate8, _) => Some(Value::Word(u64::from(i.immediate8()))),
            (_, Mnemonic::Vpsrlvq | Mnemonic::Vpsllvq) => None,
            // By the lowest word.
            _ => Some(self.vector(i, 2, 2)?[0]),
        };
        let shift = |m: &mut Self, a, by| match by {
            Value::Word(64..) => Ok(Value::Word(0)),
            Value::Word(by) => m.moved(a, term, by as u32),
            _ => Err("a shift by a term".into()),
        };
        match by {
            Some(by) => self.each(i, [1], |m, [a]| shift(m, a, by)),
            None => self.each(i, [1, 2], |m, [a, by]| shift(m, a, by)),
        }
    }

    /// Sets the masks in operand 0.
    fn compare(
        &mut self,
        i: &Instruction,
        mut word: impl FnMut(&mut Self, Value, Value) -> Outcome<Value>,
    ) -> Outcome {
        let count = Self::width(i.op1_register());
        let mut out = self.words(i, [1, 2], count, |m, [a, b]| word(m, a, b))?;
        if i.op_mask() != Register::None {
            return Err("a comparison under a mask".into());
        }
        if i.op0_register().is_k() {
            self.masks[i.op0_register().number()] = out;
            return Ok(());
        }
        // Words that are all ones or zero.
        for word in &mut out[..count] {
            *word = self.select(*word, Value::Word(u64::MAX), Value::Word(0))?;
        }
        self.write(i, count, &out)
    }

    /// Between registers of masks and memory.
    fn move_masks(&mut self, i: &Instruction) -> Outcome {
        let masks = match i.op1_kind() {
            OpKind::Register if i.op1_register().is_k() => self.masks[i.op1_register().number()],
            OpKind::Memory => {
                let address = self.address(i)?;
                match self.load_scalar(address, 1)? {
                    Value::Masks(kept) => self.kept[kept],
                    other => return Err(format!("masks of {other:?}")),
                }
            }
            _ => match self.scalar(i, 1)? {
                Value::Masks(kept) => self.kept[kept],
                other => return Err(format!("masks of {other:?}")),
            },
        };
        match i.op0_kind() {
            OpKind::Register if i.op0_register().is_k() => {
                self.masks[i.op0_register().number()] = masks;
            }
            OpKind::Memory => {
                let address = self.address(i)?;
                // Of more than eight lanes nothing is known.
                for byte in 1..i.memory_size().size() as u64 {
                    self.store_scalar(address + byte, 1, Value::Word(0))?;
                    self.unknown.insert(address + byte);
                }
                let value = self.keep(masks);
                self.store_scalar(address, 1, value)?;
            }
            _ => {
                let value = self.keep(masks);
                self.write_scalar(i, value)?;
            }
        }
        Ok(())
    }

    /// The value of a scalar operand.
    fn scalar(&mut self, i: &Instruction, operand: u32) -> Outcome<Value> {
        match i.op_kind(operand) {
            OpKind::Register => {
                let register = i.op_register(operand);
                let value = self.registers[slot(register)];
                if matches!(value, Value::Term(_) | Value::Saved(_)) && register.size() < 8 {
                    return Err(format!("part of {value:?}"));
                }
                Ok(match (value, register.size()) {
                    // It may be moved.
                    (Value::Low(_, known), 4 | 8) if register.size() > known => value,
                    (Value::Low(_, known), size)
                        if size > known || is_second_byte(register) && known < 2 =>
                    {
                        return Err("more of a number than is known".into());
                    }
                    (Value::Word(word) | Value::Low(word, _), size) => {
                        let shift = if is_second_byte(register) { 8 } else { 0 };
                        Value::Word(word >> shift & mask(size))
                    }
                    (other, _) => other,
                })
            }
            OpKind::Memory => {
                let address = self.address(i)?;
                let size = i.memory_size().size();
                self.load_scalar(address, size)
            }
            _ => Ok(Value::Word(i.immediate(operand))),
        }
    }

    fn number(&mut self, i: &Instruction, operand: u32) -> Outcome<u64> {
        match self.scalar(i, operand)? {
            Value::Word(word) => Ok(word),
            other => Err(format!("{other:?} where a number is needed")),
        }
    }

    fn write_scalar(&mut self, i: &Instruction, value: Value) -> Outcome {
        match i.op0_kind() {
            OpKind::Register => {
                let register = i.op0_register();
                if is_second_byte(register) {
                    return Err("a result in the second byte".into());
                }
                let to = &mut self.registers[slot(register)];
                *to = match (value, register.size(), *to) {
                    (Value::Word(word), 8, _) => Value::Word(word),
                    (Value::Word(word), 4, _) => Value::Word(word & mask(4)),
                    (Value::Word(word), size, Value::Word(before)) => {
                        Value::Word(before & !mask(size) | word & mask(size))
                    }
                    (Value::Word(word), size, Value::Low(before, known)) if size < known => {
                        Value::Low(before & !mask(size) | word & mask(size), known)
                    }
                    (Value::Word(word), size, _) => Value::Low(word & mask(size), size),
                    (value, _, _) => value,
                };
                Ok(())
            }
            _ => {
                let address = self.address(i)?;
                let size = i.memory_size().size();
                self.store_scalar(address, size, value)
            }
        }
    }

    /// The bytes of operand 0.
    fn size(i: &Instruction) -> usize {
        match i.op0_kind() {
            OpKind::Register => i.op0_register().size(),
            _ => i.memory_size().size(),
        }
    }

    fn arithmetic(&mut self, i: &Instruction) -> Outcome {
        use Mnemonic::*;
        let size = Self::size(i);
        let bits = 8 * size as u32;
        let a = self.number(i, 0)?;
        let b = match i.op_count() {
            1 => 1,
            _ => self.number(i, i.op_count() - 1)? & mask(size),
        };
        let count = b as u32 & if size == 8 { 63 } else { 31 };
        let mnemonic = i.mnemonic();
        let borrow = match i.mnemonic() {
            Adc | Sbb => u64::from(self.flags.carry.ok_or(NO_FLAG)?),
            _ => 0,
        };
        let result = match mnemonic {
            Add | Inc => a.wrapping_add(b),
            Adc => a.wrapping_add(b).wrapping_add(borrow),
            Sbb => a.wrapping_sub(b).wrapping_sub(borrow),
            Sub | Cmp | Dec => a.wrapping_sub(b),
            And | Test => a & b,
            Or => a | b,
            Xor => a ^ b,
            Shl => a << count,
            Shr => a >> count,
            Neg => a.wrapping_neg(),
            _ => !a,
        } & mask(size);
        let is_shift = matches!(mnemonic, Shl | Shr);
        if mnemonic != Not && !(is_shift && count == 0) {
            let carry = match mnemonic {
                Inc | Dec => self.flags.carry,
                Sub | Cmp => Some(a < b),
                Sbb => Some(u128::from(a) < u128::from(b) + u128::from(borrow)),
                Add => Some(result < a),
                Adc => {
                    let sum = u128::from(a) + u128::from(b) + u128::from(borrow);
                    Some(sum > u128::from(mask(size)))
                }
                Neg => Some(a != 0),
                // The last bit that leaves.
                Shl | Shr if count > bits => None,
                Shl => Some(a >> (bits - count) & 1 == 1),
                Shr => Some(a >> (count - 1) & 1 == 1),
                _ => Some(false),
            };
            let top = |word: u64| word >> (bits - 1) & 1 == 1;
            let overflow = match mnemonic {
                Sub | Cmp | Dec | Sbb => Some(top((a ^ b) & (a ^ result))),
                Add | Adc | Inc => Some(top(!(a ^ b) & (a ^ result))),
                Neg => Some(top(a & result)),
                // After a shift by one it would be known.
                Shl | Shr => None,
                _ => Some(false),
            };
            self.flags = Flags {
                zero: Some(result == 0),
                sign: Some(top(result)),
                carry,
                overflow,
            };
        }
        match mnemonic {
            Cmp | Test => Ok(()),
            _ => self.write_scalar(i, Value::Word(result)),
        }
    }

    fn holds(&self, condition: ConditionCode) -> Outcome<bool> {
        let known = |flag: Option<bool>| flag.ok_or(NO_FLAG);
        let flags = &self.flags;
        let (zero, carry) = (|| known(flags.zero), || known(flags.carry));
        let (sign, overflow) = (|| known(flags.sign), || known(flags.overflow));
        Ok(match condition {
            ConditionCode::e => zero()?,
            ConditionCode::ne => !zero()?,
            ConditionCode::b => carry()?,
            ConditionCode::ae => !carry()?,
            ConditionCode::be => carry()? || zero()?,
            ConditionCode::a => !carry()? && !zero()?,
            ConditionCode::s => sign()?,
            ConditionCode::ns => !sign()?,
            ConditionCode::l => sign()? != overflow()?,
            ConditionCode::ge => sign()? == overflow()?,
            ConditionCode::le => zero()? || sign()? != overflow()?,
            ConditionCode::g => !zero()? && sign()? == overflow()?,
            other => return Err(format!("the condition {other:?}")),
        })
    }

    /// Runs an instruction; where the next one is, if it is not the one behind.
    fn step(&mut self, i: &Instruction) -> Outcome<Option<u64>> {
        use Mnemonic::*;
        match i.mnemonic() {
            Nop | Endbr64 => {}
            Vzeroupper => {
                let uppers = self.vectors[..16].iter_mut().map(|vector| &mut vector[2..]);
                uppers.for_each(|upper| upper.fill(Value::Word(0)));
            }
            // Nothing is read, but the address is seen.
            Prefetcht0 => {
                self.address(i)?;
            }
            Mov | Movzx => {
                let value = self.scalar(i, 1)?;
                self.write_scalar(i, value)?;
            }
            Lea => {
                let address = self.address(i)?;
                self.write_scalar(i, Value::Word(address))?;
            }
            Xor | Sub
                if i.op0_kind() == OpKind::Register
                    && i.op1_kind() == OpKind::Register
                    && i.op0_register() == i.op1_register() =>
            {
                self.flags = Flags {
                    zero: Some(true),
                    sign: Some(false),
                    carry: Some(false),
                    overflow: Some(false),
                };
                self.write_scalar(i, Value::Word(0))?;
            }
            Add | Adc | Sub | Sbb | And | Or | Xor | Cmp | Test | Inc | Dec | Shl | Shr | Neg
            | Not => self.arithmetic(i)?,
            Mulx if i.op0_register().size() == 8 => {
                let (a, b) = (self.word(Register::RDX)?, self.number(i, 2)?);
                let product = u128::from(a) * u128::from(b);
                self.set(i.op1_register(), product as u64);
                self.set(i.op0_register(), (product >> 64) as u64);
            }
            Imul if i.op_count() > 1 => {
                let last = i.op_count() - 1;
                let product = self
                    .number(i, last - 1)?
                    .wrapping_mul(self.number(i, last)?);
                self.flags = Flags::default();
                self.write_scalar(i, Value::Word(product & mask(Self::size(i))))?;
            }
            Sete | Setne | Setb | Setae => {
                let bit = self.holds(i.condition_code())?;
                self.write_scalar(i, Value::Word(u64::from(bit)))?;
            }
            Push => {
                let value = self.scalar(i, 0)?;
                self.push(value)?;
            }
            Pop => {
                let value = self.pop()?;
                self.write_scalar(i, value)?;
            }
            Call => {
                let to = self.target(i)?;
                if let Some(name) = self.module.imports.get(&to.wrapping_sub(IMPORTS)) {
                    let to = self.copy(name)?;
                    self.forget();
                    self.set(Register::RAX, to);
                    return Ok(None);
                }
                if let Some(stop) = self.stops.get(&to).cloned() {
                    stop(self)?;
                    self.forget();
                    return Ok(None);
                }
                self.push(Value::Word(i.next_ip()))?;
                return Ok(Some(to));
            }
            Ret if i.op_count() == 0 => {
                return match self.pop()? {
                    Value::Word(to) => Ok(Some(to)),
                    other => Err(format!("a return to {other:?}")),
                };
            }
            Jmp => return self.target(i).map(Some),
            _ if i.is_jcc_short_or_near() => {
                return Ok(self
                    .holds(i.condition_code())?
                    .then_some(i.near_branch_target()));
            }
            Cmovb | Cmovae | Cmove | Cmovne => {
                let value = match self.holds(i.condition_code())? {
                    true => self.scalar(i, 1)?,
                    false => self.scalar(i, 0)?,
                };
                self.write_scalar(i, value)?;
            }
            _ => self.step_vector(i)?,
        }
        Ok(None)
    }

    /// Makes all registers unknown that a call need not keep.
    fn forget(&mut self) {
        for register in ARGUMENTS
            .iter()
            .chain(&[Register::RAX, Register::R10, Register::R11])
        {
            self.registers[register.number()] = Value::Undefined;
        }
        self.vectors = [[Value::Undefined; 8]; 32];
        self.masks = [[Value::Undefined; 8]; 8];
        self.flags = Flags::default();
    }

    /// The arguments of the function that is called.
    pub fn arguments<const N: usize>(&self) -> Outcome<[u64; N]> {
        let mut all = [0; N];
        for (i, argument) in all.iter_mut().enumerate() {
            *argument = match ARGUMENTS.get(i) {
                Some(register) => self.word(*register)?,
                None => match self.load(self.word(Register::RSP)? + 8 * (i - 6) as u64) {
                    Value::Word(word) => word,
                    other => return Err(format!("argument {i} is {other:?}")),
                },
            };
        }
        Ok(all)
    }

    fn push(&mut self, value: Value) -> Outcome {
        let to = self.word(Register::RSP)?.wrapping_sub(8);
        if to % 8 != 0 {
            return Err("a stack that is not aligned to words".into());
        }
        self.set(Register::RSP, to);
        self.store(to, value);
        Ok(())
    }

    fn pop(&mut self) -> Outcome<Value> {
        let from = self.word(Register::RSP)?;
        self.set(Register::RSP, from.wrapping_add(8));
        Ok(self.load_word(from))
    }

    /// Does the work of the C library's functions for memory, on whole words, and returns.
    fn copy(&mut self, name: &str) -> Outcome<u64> {
        let [to, from, length] = [0, 1, 2].map(|i| self.word(ARGUMENTS[i]));
        let (to, from, length) = (to?, from?, length?);
        if to % 8 != 0 || length % 8 != 0 {
            return Err(format!("{name} of parts of words"));
        }
        self.accesses += 2;
        let words: Vec<Value> = match name {
            "memcpy" | "memmove" if from % 8 == 0 => (0..length / 8)
                .map(|i| self.load_word(from + 8 * i))
                .collect(),
            "memset" if from & 0xff == 0 => vec![Value::Word(0); length as usize / 8],
            _ => return Err(format!("a call of {name}")),
        };
        for (i, word) in words.into_iter().enumerate() {
            self.store(to + 8 * i as u64, word);
        }
        Ok(to)
    }

    fn target(&mut self, i: &Instruction) -> Outcome<u64> {
        match i.op0_kind() {
            OpKind::NearBranch64 => Ok(i.near_branch_target()),
            _ => self.number(i, 0),
        }
    }

    fn step_vector(&mut self, i: &Instruction) -> Outcome {
        use Mnemonic::*;
        match i.mnemonic() {
            Movaps | Movups | Movdqa | Movdqu | Vmovaps | Vmovups | Vmovdqa | Vmovdqu
            | Vmovdqa64 | Vmovdqu64 | Vmovdqu32 | Vmovdqa32 | Vmovdqu8 => {
                let register = match i.op0_kind() {
                    OpKind::Register => i.op0_register(),
                    _ => i.op1_register(),
                };
                let count = Self::width(register);
                let vector = self.vector(i, 1, count)?;
                self.write(i, count, &vector)
            }
            Vpaddq | Paddq => self.pairs(i, |m, a, b| m.both(Term::Add, a, b)),
            Vpsubq | Psubq => self.pairs(i, |m, a, b| m.both(Term::Sub, a, b)),
            Vpxor | Vpxorq | Vpxord | Vxorps | Vxorpd | Xorps | Pxor => {
                let last = i.op_count() - 1;
                let is_zero = i.op_kind(last) == OpKind::Register
                    && i.op_register(last - 1) == i.op_register(last);
                self.pairs(i, |m, a, b| match is_zero {
                    true => Ok(Value::Word(0)),
                    false => m.both(Term::Xor, a, b),
                })
            }
            Vpand | Vpandq | Vpandd | Vandps | Vandpd => {
                self.pairs(i, |m, a, b| m.both(Term::And, a, b))
            }
            Vpandn | Vpandnq | Vpandnd | Vandnps | Vandnpd => self.pairs(i, |m, a, b| {
                let a = m.both(Term::Xor, a, Value::Word(u64::MAX))?;
                m.both(Term::And, a, b)
            }),
            Vpor | Vporq | Vpord | Vorps | Vorpd => self.pairs(i, |m, a, b| m.both(Term::Or, a, b)),
            Vpternlogq | Vpternlogd => match i.immediate8() {
                // All ones, whatever was there.
                0xff => self.each(i, [], |_, []| Ok(Value::Word(u64::MAX))),
                table => self.each(i, [0, 1, 2], |m, all| match (all, table) {
                    // All bits turned.
                    ([a, b, c], _) if table & 0x81 == 1 && a == b && b == c => {
                        m.both(Term::Xor, a, Value::Word(u64::MAX))
                    }
                    // Any bit of three words, or of two where the third is zero.
                    ([a, b, c], 0xfe) => {
                        let two = m.both(Term::Or, a, b)?;
                        m.both(Term::Or, two, c)
                    }
                    (all, _) if let Some([a, b]) = any_of_two(all, table) => m.both(Term::Or, a, b),
                    _ => {
                        let places = [m.place(all[0])?, m.place(all[1])?, m.place(all[2])?];
                        Ok(m.term(Term::Ternary(i32::from(table), places)))
                    }
                }),
            },
            Vpcmpeqd | Vpcmpeqb
                if i.op0_register().is_vector_register()
                    && i.op1_register() == i.op2_register() =>
            {
                self.each(i, [], |_, []| Ok(Value::Word(u64::MAX)))
            }
            Vpsrlq | Vpsrlvq => self.shift(i, Term::Right),
            Vpsllq | Vpsllvq => self.shift(i, Term::Left),
            Vpmadd52luq => self.multiply(i, Term::Low),
            Vpmadd52huq => self.multiply(i, Term::High),
            Vpmuludq | Vpmuldq => self.pairs(i, |m, a, b| {
                if i.mnemonic() == Vpmuldq && [a, b].iter().any(|&a| m.most(a, 8) >> 31 != 0) {
                    return Err("a factor of 32 bits may be negative".into());
                }
                let places = [0, m.place(a)?, m.place(b)?];
                Ok(m.term(Term::Short(places)))
            }),
            Vmovd | Vmovq if i.op0_register().is_xmm() && i.op1_register().is_gpr() => {
                let low = self.scalar(i, 1)?;
                let mut vector = [Value::Word(0); 8];
                vector[0] = low;
                self.write(i, 2, &vector)
            }
            Vpbroadcastq | Vbroadcastsd => {
                let value = match i.op1_kind() {
                    OpKind::Register if !i.op1_register().is_gpr() => {
                        self.vectors[i.op1_register().number()][0]
                    }
                    _ => self.scalar(i, 1)?,
                };
                self.each(i, [], |_, []| Ok(value))
            }
            Vpmovzxdq if i.op1_kind() == OpKind::Memory => {
                let mut address = self.address(i)?;
                self.each(i, [], |m, []| {
                    address += 4;
                    m.load_scalar(address - 4, 4)
                })
            }
            // Parts of words, by the bits of a number.
            Vpblendw | Vpblendd => {
                let (mut chosen, parts) = (
                    i.immediate8(),
                    [2, 4][usize::from(i.mnemonic() == Vpblendw)],
                );
                self.each(i, [1, 2], |m, [a, b]| {
                    let part = |at: u32| (u64::MAX >> (64 - 64 / parts)) << (at * 64 / parts);
                    let taken = (0..parts).filter(|at| chosen >> at & 1 == 1);
                    let mask = taken.fold(0, |mask, at| mask | part(at));
                    chosen = chosen.rotate_right(parts);
                    let kept = m.both(Term::And, a, Value::Word(!mask))?;
                    let taken = m.both(Term::And, b, Value::Word(mask))?;
                    m.both(Term::Or, kept, taken)
                })
            }
            Vpermt2d => {
                let count = Self::width(i.op0_register());
                let [a, index, b] = [0, 1, 2].map(|operand| self.vector(i, operand, count));
                let table = [&a?[..count], &b?[..count]].concat();
                let mut out = [Value::Word(0); 8];
                for (out, index) in out.iter_mut().zip(&index?[..count]) {
                    let Value::Word(index) = *index else {
                        return Err("halves of words that a term names".into());
                    };
                    for at in [0, 32] {
                        let half = (index >> at) as usize % (4 * count);
                        let half =
                            self.moved(table[half / 2], Term::Right, 32 * (half as u32 % 2))?;
                        let half = self.both(Term::And, half, Value::Word(mask(4)))?;
                        let half = self.moved(half, Term::Left, at)?;
                        *out = self.both(Term::Or, *out, half)?;
                    }
                }
                self.write(i, count, &out)
            }
            // Words of one vector or two, by the index in another, which the result may replace.
            Vpermi2q | Vpermt2q => {
                let [first, index] = match i.mnemonic() {
                    Vpermi2q => [1, 0],
                    _ => [0, 1],
                };
                self.look_up(i, &[first, 2], index)
            }
            Vpermq if i.op2_kind() != OpKind::Immediate8 => self.look_up(i, &[2], 1),
            Vpblendvb => self.each(i, [1, 2, 3], |m, [clear, set, chooser]| {
                if let Value::Term(place) = chooser
                    && let Term::Select([mask, ones, none]) = m.terms.term(place)
                    && m.terms.is(ones, u64::MAX)
                    && m.terms.is(none, 0)
                {
                    return m.select(Value::Term(mask), set, clear);
                }
                Err("a choice by words that are no masks".into())
            }),
            Vpblendmq if !i.zeroing_masking() => {
                let masks = self.masks[i.op_mask().number()];
                let mut masks = masks.into_iter();
                let mut plain = *i;
                plain.set_op_mask(Register::None);
                self.pairs(&plain, |m, clear, set| {
                    let mask = masks.next().expect("eight");
                    m.select(mask, set, clear)
                })
            }
            Vpcmpgtq => self.compare(i, |m, a, b| match (a, b) {
                (Value::Word(0), b) => m.any(b, Value::Word(1 << 63)),
                (a, Value::Word(u64::MAX)) => {
                    let is_negative = m.any(a, Value::Word(1 << 63))?;
                    m.not(is_negative)
                }
                _ => Err("a comparison with another number than zero".into()),
            }),
            Vpcmpeqq => self.compare(i, |m, a, b| m.both(Term::Equal, a, b)),
            Vptestnmq => self.compare(i, |m, a, b| {
                let any = m.any(a, b)?;
                m.not(any)
            }),
            Vptestmq => self.compare(i, |m, a, b| m.any(a, b)),
            Kmovb | Kmovd | Kmovw | Kmovq => self.move_masks(i),
            Knotw => {
                let mut masks = self.masks[i.op1_register().number()];
                for mask in &mut masks {
                    *mask = self.not(*mask)?;
                }
                self.masks[i.op0_register().number()] = masks;
                Ok(())
            }
            other => Err(format!(
                "the instruction {other:?} ({:?}) is not known",
                i.code()
            )),
        }
    }

    /// Words of these operands, by an operand of indices.
    fn look_up(&mut self, i: &Instruction, table: &[u32], index: u32) -> Outcome {
        let count = Self::width(i.op0_register());
        let mut words = Vec::new();
        for operand in table {
            words.extend_from_slice(&self.vector(i, *operand, count)?[..count]);
        }
        self.each(i, [index], |m, [index]| {
            let (mut words, mut bit) = (words.clone(), 1);
            while words.len() > 1 {
                let mask = m.any(index, Value::Word(bit))?;
                let chosen = words.chunks(2).map(|pair| match index {
                    Value::Word(index) => Ok(pair[usize::from(index & bit != 0)]),
                    _ => m.select(mask, pair[1], pair[0]),
                });
                words = chosen.collect::<Outcome<_>>()?;
                bit *= 2;
            }
            Ok(words[0])
        })
    }

    fn any(&mut self, a: Value, b: Value) -> Outcome<Value> {
        self.both(
            Term::AnyBit,
            a,
            if a == b { Value::Word(u64::MAX) } else { b },
        )
    }

    /// Upper bound of a word.
    fn most(&self, value: Value, depth: u32) -> u64 {
        match (value, depth) {
            (Value::Word(word), _) => word,
            (Value::Term(place), 1..) => most(self.terms.term(place), |part| {
                self.most(Value::Term(part), depth - 1)
            }),
            _ => u64::MAX,
        }
    }
}

/// Why a condition is not known.
const NO_FLAG: &str = "a flag that nothing has defined";

/// Whether operands are general registers, vectors, masks, numbers and memory at 64 bits, and calls
/// and jumps are near.
fn is_plain(i: &Instruction) -> bool {
    let is_general = |register: Register| register.is_gpr64() || register == Register::None;
    let is_operand = |operand: u32| match i.op_kind(operand) {
        OpKind::Register => {
            let register = i.op_register(operand);
            register.is_gpr() || register.is_k() || register.is_vector_register()
        }
        OpKind::Memory => {
            (is_general(i.memory_base()) || i.memory_base() == Register::RIP)
                && (is_general(i.memory_index()) || i.is_vsib())
        }
        _ => true,
    };
    (0..i.op_count()).all(is_operand)
        && !i.is_call_far()
        && !i.is_call_far_indirect()
        && !i.is_jmp_far()
        && !i.is_jmp_far_indirect()
}

/// Where the whole of a register is kept.
fn slot(register: Register) -> usize {
    register.full_register().number()
}

fn is_second_byte(register: Register) -> bool {
    use Register::*;
    matches!(register, AH | BH | CH | DH)
}

/// The words of which a table takes any bit, where the third one is zero.
fn any_of_two(all: [Value; 3], table: u8) -> Option<[Value; 2]> {
    // The first word is the highest bit of a row.
    let rows = [[0, 1, 2, 3], [0, 1, 4, 5], [0, 2, 4, 6]];
    let places = [[1, 2], [0, 2], [0, 1]];
    let zero = (0..3).find(|&zero| {
        let set = |row: &usize| table >> row & 1 == 1;
        all[zero] == Value::Word(0) && rows[zero].iter().map(set).eq([false, true, true, true])
    })?;
    Some(places[zero].map(|place| all[place]))
}

fn mask(size: usize) -> u64 {
    match size {
        8.. => u64::MAX,
        _ => (1 << (8 * size)) - 1,
    }
}
