//! Translation of a program's blocks into blocks that also write down where they are and which data
//! they touch. `rig/programs/trace.c` runs them, and finds the next one.
//!
//! A block is the code from one jump, call or return to the next. Its record is its address, the
//! stack pointer, and then one word for each address that is not a constant or relative to the
//! stack pointer; of repeated string instructions also the count.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, IcedError,
    Instruction, InstructionBlock, InstructionInfoFactory, MemoryOperand, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Where translations are.
pub const CACHE: u64 = 0x7fff_e000_0000;
/// Room for them.
pub const CACHE_SIZE: u64 = 0x400_0000;
/// Where the program looks for the translation of a block.
pub const TABLE: u64 = 0x1000_0000_0000;
/// The table has this number of places, and some more for blocks that find theirs taken.
pub const TABLE_MASK: u64 = 0xf_ffff;
/// The size of the file with the records.
pub const LOG_SIZE: u64 = 0x100_0000;

/// Offsets into the program's `struct state`.
mod state {
    pub const RAX: i64 = 0;
    pub const RCX: i64 = 8;
    pub const LOG: i64 = 16;
    pub const NEXT: i64 = 24;
    pub const DISPATCH: i64 = 72;
    pub const SYSCALL: i64 = 80;
    pub const RDTSC: i64 = 88;
}

/// Most instructions of a block: its records must fit behind the limit of the log.
const LONGEST: usize = 64;

/// A translated block.
pub struct Block {
    /// The addresses of its instructions.
    pub instructions: Vec<u64>,
    /// The instructions that the words of its record belong to, after the first two words.
    pub data: Vec<u64>,
    /// Where calls and returns are, which the last instruction may be.
    pub ends_with: Ending,
    /// An instruction that takes addresses from vector registers.
    pub gather: Option<u64>,
    /// The translation.
    pub code: Vec<u8>,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a call.
    Call,
    /// With a return.
    Return,
    /// Otherwise.
    Other,
}

impl Block {
    /// How many words it writes down.
    pub fn words(&self) -> usize {
        2 + self.data.len()
    }
}

/// Translates the block at `at`, of which `code` is the beginning, to run at `to`.
pub fn translate(at: u64, code: &[u8], to: u64) -> Result<Block, String> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let mut emitter = Emitter::default();
    let mut info = InstructionInfoFactory::new();
    let mut block = Block {
        instructions: Vec::new(),
        data: Vec::new(),
        ends_with: Ending::Other,
        gather: None,
        code: Vec::new(),
    };
    let failed = |what: &dyn std::fmt::Display| format!("cannot translate {at:#x}: {what}");
    emitter.head(at).map_err(|error| failed(&error))?;
    loop {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(failed(&"an unknown instruction"));
        }
        let ip = instruction.ip();
        block.instructions.push(ip);
        for memory in info.info(&instruction).used_memory() {
            if matches!(memory.access(), OpAccess::None | OpAccess::NoMemAccess) {
                continue;
            }
            if memory.index().is_vector_register() {
                block.gather = Some(ip);
                continue;
            }
            let (base, index) = (full(memory.base()), full(memory.index()));
            let constant = matches!(base, Register::None | Register::RIP);
            if index == Register::None && (constant || base == Register::RSP) {
                continue;
            }
            let displacement = memory.displacement().cast_signed();
            let operand = MemoryOperand::new(
                base,
                index,
                memory.scale(),
                displacement,
                1,
                false,
                Register::None,
            );
            emitter.record(operand).map_err(|error| failed(&error))?;
            block.data.push(ip);
        }
        if instruction.has_rep_prefix() && is_string(&instruction)
            || instruction.has_repne_prefix() && is_string(&instruction)
        {
            emitter
                .record(MemoryOperand::with_base(Register::RCX))
                .map_err(|error| failed(&error))?;
            block.data.push(ip);
        }
        block.ends_with = match instruction.mnemonic() {
            Mnemonic::Call => Ending::Call,
            Mnemonic::Ret => Ending::Return,
            _ => Ending::Other,
        };
        let ended = emitter
            .instruction(&instruction, block.instructions.len() == LONGEST)
            .map_err(|error| failed(&error))?;
        if ended {
            break;
        }
    }
    let encoded = BlockEncoder::encode(
        64,
        InstructionBlock::new(&emitter.instructions, to),
        BlockEncoderOptions::NONE,
    );
    block.code = encoded.map_err(|error| failed(&error))?.code_buffer;
    Ok(block)
}

/// The register in full width: addresses of 32 bits have zeros above.
fn full(register: Register) -> Register {
    match register {
        Register::None | Register::RIP | Register::EIP => Register::None,
        register => register.full_register(),
    }
}

fn is_string(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
}

/// The instructions of a translation.
#[derive(Default)]
struct Emitter {
    instructions: Vec<Instruction>,
}

type Emitted<T = ()> = Result<T, IcedError>;

impl Emitter {
    /// Appends an instruction, and gives it an address that branches of this block can name.
    fn push(&mut self, mut instruction: Instruction) {
        instruction.set_ip(self.here());
        self.instructions.push(instruction);
    }

    /// The address of the instruction that comes next.
    fn here(&self) -> u64 {
        1 + self.instructions.len() as u64
    }

    /// A word of the program's state.
    fn state(offset: i64) -> MemoryOperand {
        MemoryOperand::new(
            Register::None,
            Register::None,
            1,
            offset,
            8,
            false,
            Register::GS,
        )
    }

    fn save(&mut self, register: Register, offset: i64) -> Emitted {
        let code = Code::Mov_rm64_r64;
        self.push(Instruction::with2(code, Self::state(offset), register)?);
        Ok(())
    }

    fn load(&mut self, register: Register, offset: i64) -> Emitted {
        let code = Code::Mov_r64_rm64;
        self.push(Instruction::with2(code, register, Self::state(offset))?);
        Ok(())
    }

    fn constant(&mut self, register: Register, value: u64) -> Emitted {
        self.push(Instruction::with2(Code::Mov_r64_imm64, register, value)?);
        Ok(())
    }

    /// Moves rcx on, which is the place in the log, and gives rax and rcx back to the program.
    fn close(&mut self, words: i64) -> Emitted {
        let on = MemoryOperand::with_base_displ(Register::RCX, 8 * words);
        self.push(Instruction::with2(Code::Lea_r64_m, Register::RCX, on)?);
        self.save(Register::RCX, state::LOG)?;
        self.load(Register::RCX, state::RCX)?;
        self.load(Register::RAX, state::RAX)
    }

    /// Writes down the block and the stack pointer. No flag changes, here or below.
    fn head(&mut self, at: u64) -> Emitted {
        self.save(Register::RAX, state::RAX)?;
        self.save(Register::RCX, state::RCX)?;
        self.load(Register::RCX, state::LOG)?;
        self.constant(Register::RAX, at)?;
        let code = Code::Mov_rm64_r64;
        for (word, register) in [(0, Register::RAX), (1, Register::RSP)] {
            let place = MemoryOperand::with_base_displ(Register::RCX, 8 * word);
            self.push(Instruction::with2(code, place, register)?);
        }
        self.close(2)
    }

    /// Writes down an address.
    fn record(&mut self, operand: MemoryOperand) -> Emitted {
        self.save(Register::RAX, state::RAX)?;
        self.save(Register::RCX, state::RCX)?;
        self.push(Instruction::with2(Code::Lea_r64_m, Register::RAX, operand)?);
        self.load(Register::RCX, state::LOG)?;
        let place = MemoryOperand::with_base(Register::RCX);
        self.push(Instruction::with2(
            Code::Mov_rm64_r64,
            place,
            Register::RAX,
        )?);
        self.close(1)
    }

    /// Leaves for another block.
    fn leave(&mut self, next: u64, by: i64) -> Emitted {
        self.save(Register::RAX, state::RAX)?;
        self.constant(Register::RAX, next)?;
        self.save(Register::RAX, state::NEXT)?;
        self.load(Register::RAX, state::RAX)?;
        self.push(Instruction::with1(Code::Jmp_rm64, Self::state(by))?);
        Ok(())
    }

    /// Leaves for the block whose address an operand holds.
    fn leave_indirectly(&mut self, instruction: &Instruction) -> Emitted {
        self.save(Register::RAX, state::RAX)?;
        match instruction.op0_kind() {
            OpKind::Register => {
                let register = instruction.op0_register();
                self.save(register, state::NEXT)?;
            }
            _ => {
                let operand = MemoryOperand::new(
                    instruction.memory_base(),
                    instruction.memory_index(),
                    instruction.memory_index_scale(),
                    instruction.memory_displacement64().cast_signed(),
                    instruction.memory_displ_size(),
                    false,
                    instruction.segment_prefix(),
                );
                let code = Code::Mov_r64_rm64;
                self.push(Instruction::with2(code, Register::RAX, operand)?);
                self.save(Register::RAX, state::NEXT)?;
                self.load(Register::RAX, state::RAX)?;
            }
        }
        Ok(())
    }

    /// Pushes the address that a call returns to.
    fn push_return(&mut self, back: u64) -> Emitted {
        self.save(Register::RAX, state::RAX)?;
        self.constant(Register::RAX, back)?;
        self.push(Instruction::with1(Code::Push_r64, Register::RAX)?);
        self.load(Register::RAX, state::RAX)
    }

    fn dispatch(&mut self) -> Emitted {
        self.push(Instruction::with1(
            Code::Jmp_rm64,
            Self::state(state::DISPATCH),
        )?);
        Ok(())
    }

    /// Appends an instruction of the program; returns whether it ends the block.
    fn instruction(&mut self, instruction: &Instruction, last: bool) -> Emitted<bool> {
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::XbeginXabortXend => {
                if matches!(instruction.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp) {
                    self.leave(next, state::RDTSC)?;
                    return Ok(true);
                }
                self.push(*instruction);
                if last {
                    self.leave(next, state::DISPATCH)?;
                }
                return Ok(last);
            }
            FlowControl::UnconditionalBranch => {
                self.leave(instruction.near_branch_target(), state::DISPATCH)?;
            }
            FlowControl::ConditionalBranch => {
                let branch = self.instructions.len();
                self.push(*instruction);
                self.leave(next, state::DISPATCH)?;
                let taken = self.here();
                self.leave(instruction.near_branch_target(), state::DISPATCH)?;
                self.instructions[branch].set_near_branch64(taken);
            }
            FlowControl::IndirectBranch => {
                self.leave_indirectly(instruction)?;
                self.dispatch()?;
            }
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => {
                self.leave(next, state::SYSCALL)?;
            }
            FlowControl::Call => {
                self.push_return(next)?;
                self.leave(instruction.near_branch_target(), state::DISPATCH)?;
            }
            FlowControl::IndirectCall => {
                self.leave_indirectly(instruction)?;
                self.push_return(next)?;
                self.dispatch()?;
            }
            FlowControl::Return => {
                self.push(Instruction::with1(
                    Code::Pop_rm64,
                    Self::state(state::NEXT),
                )?);
                if instruction.op0_kind() == OpKind::Immediate16 {
                    let by = i64::from(instruction.immediate16());
                    let above = MemoryOperand::with_base_displ(Register::RSP, by);
                    self.push(Instruction::with2(Code::Lea_r64_m, Register::RSP, above)?);
                }
                self.dispatch()?;
            }
            // It raises a signal: let it do so.
            FlowControl::Interrupt | FlowControl::Exception => self.push(*instruction),
        }
        Ok(true)
    }
}
