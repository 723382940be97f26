//! Sponges over Keccak-f\[1600\] (FIPS 202, section 4), one message in each lane.
//!
//! Messages have different lengths, some are known only after others are hashed, and the output of
//! some sponges has no fixed length. So a lane takes the next message as soon as it is free, and
//! all lanes continue together.

use super::{Form, States, WORDS};
use crate::secret::wipe;
use crate::simd::{LaneBytes, MAX_LANES, Simd, enter, words_mut};

/// A function of FIPS 202.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Sha3_256,
    Sha3_512,
    Shake128,
    Shake256,
}

impl Function {
    /// Returns the number of bytes of a block.
    pub(crate) const fn rate(self) -> usize {
        match self {
            Self::Sha3_512 => 72,
            Self::Sha3_256 | Self::Shake256 => 136,
            Self::Shake128 => MOST_RATE,
        }
    }

    /// Returns the bits that follow the message, with the first bit of the padding.
    fn suffix(self) -> u8 {
        match self {
            Self::Sha3_256 | Self::Sha3_512 => 0x06,
            Self::Shake128 | Self::Shake256 => 0x1f,
        }
    }
}

/// Number of bytes of the longest block.
pub(crate) const MOST_RATE: usize = 168;

/// A block, of which the first bytes are used: as many as the rate of the function.
pub(crate) type Block = [u8; MOST_RATE];

/// Maximum number of words in a head: eight of the message, and one for the suffix. The shortest
/// block has nine.
const HEAD: usize = 64 / 8 + 1;

/// A message: a head of a few bytes stored here, and a borrowed tail.
pub(crate) struct Message<'a> {
    function: Function,
    head: [u64; HEAD],
    head_length: usize,
    /// Whether the head is the whole message, and has the suffix.
    is_short: bool,
    tail: &'a [u8],
}

impl<'a> Message<'a> {
    const EMPTY: Self = Self {
        function: Function::Sha3_256,
        head: [0; HEAD],
        head_length: 0,
        is_short: false,
        tail: &[],
    };

    /// Sets at most two pieces, and up to seven bytes behind them.
    #[inline(always)]
    pub(crate) fn set_short<const N: usize, const M: usize>(
        &mut self,
        function: Function,
        pieces: [&[u8; 32]; N],
        bytes: [u8; M],
    ) {
        const { assert!(N <= 2 && M < 8) };
        self.set(function, pieces, &[]);
        self.is_short = true;
        let last = bytes.into_iter().chain([function.suffix()]).rev();
        self.head[4 * N] = last.fold(0, |word, byte| word << 8 | u64::from(byte));
    }

    /// Sets a message of at most eight words.
    #[inline(always)]
    pub(crate) fn set_whole(&mut self, function: Function, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        assert!(words.len() < HEAD && rest.is_empty());
        self.set(function, [], &[]);
        self.is_short = true;
        for (to, bytes) in self.head.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*bytes);
        }
        self.head[words.len()] = u64::from(function.suffix());
    }

    /// Sets at most two pieces, and a tail of any length.
    #[inline(always)]
    pub(crate) fn set<const N: usize>(
        &mut self,
        function: Function,
        pieces: [&[u8; 32]; N],
        tail: &'a [u8],
    ) {
        const { assert!(N <= 2) };
        self.function = function;
        self.tail = tail;
        self.head_length = 32 * N;
        self.is_short = false;
        self.head = [0; HEAD];
        for (to, piece) in self.head.chunks_exact_mut(4).zip(pieces) {
            for (to, bytes) in to.iter_mut().zip(piece.as_chunks().0) {
                *to = u64::from_le_bytes(*bytes);
            }
        }
    }

    /// Absorbs block `index` of the padded message into a state; returns whether it is the last
    /// one.
    #[inline(always)]
    fn absorb<S: Simd>(&self, index: usize, states: &mut States<S>, lane: usize) -> bool {
        assert!(lane < S::LANES);
        let rate = self.function.rate();
        let states = words_mut(states);
        if index == 0 {
            for i in 0..HEAD {
                states[i * S::LANES + lane] = self.head[i];
            }
            for i in HEAD..WORDS {
                states[i * S::LANES + lane] = 0;
            }
            if self.is_short {
                states[(rate / 8 - 1) * S::LANES + lane] ^= 1 << 63;
                return true;
            }
        }
        // The part of the tail in this block; it begins at a word.
        let at = if index == 0 { self.head_length } else { 0 };
        let tail = &self.tail[index * rate + at - self.head_length..];
        let is_last = at + tail.len() < rate;
        let tail = &tail[..tail.len().min(rate - at)];
        let (full, rest) = tail.as_chunks();
        let mut i = at / 8 * S::LANES + lane;
        for word in full {
            states[i] ^= u64::from_le_bytes(*word);
            i += S::LANES;
        }
        if is_last {
            let last = rest.iter().copied().chain([self.function.suffix()]).rev();
            states[i] ^= last.fold(0, |word, byte| word << 8 | u64::from(byte));
            states[(rate / 8 - 1) * S::LANES + lane] ^= 1 << 63;
        }
        is_last
    }
}

/// A source of messages, which takes their hashes.
pub(crate) trait Messages<'a> {
    /// Identifies a message.
    type Name: Copy;

    /// Sets the next message and returns its name. Returns `None` if there is no message, or none
    /// until another message is hashed.
    fn next(&mut self, message: &mut Message<'a>) -> Option<Self::Name>;

    /// Takes the next block of output for a message. The output is the first bytes of `block`, as
    /// many as the rate of the message's function. Returns whether the message needs another block.
    fn take(&mut self, name: Self::Name, block: &Block) -> bool;
}

struct Lane<'a, N> {
    message: Message<'a>,
    /// `None` if there is no message.
    name: Option<N>,
    /// Number of blocks of the message that are absorbed.
    absorbed: usize,
    /// Whether all blocks of the message are absorbed.
    is_squeezing: bool,
}

pub(crate) fn hash<'a, S: Simd, M: Messages<'a> + ?Sized>(s: S, messages: &mut M) {
    hash_by(Form::of_this_cpu(), s, messages);
}

#[inline(always)]
fn hash_by<'a, S: Simd, M: Messages<'a> + ?Sized>(form: Form, s: S, messages: &mut M) {
    let mut states = [s.zero(); WORDS];
    let mut lanes: [Lane<'a, M::Name>; MAX_LANES] = core::array::from_fn(|_| Lane {
        message: Message::EMPTY,
        name: None,
        absorbed: 0,
        is_squeezing: false,
    });
    let lanes = &mut lanes[..S::LANES];
    let mut blocks = [LaneBytes([0; 192]); MAX_LANES];
    loop {
        // Number of lanes up to the last one with a message.
        let mut busy = 0;
        for (l, lane) in lanes.iter_mut().enumerate() {
            if lane.name.is_none() {
                lane.name = messages.next(&mut lane.message);
                (lane.absorbed, lane.is_squeezing) = (0, false);
            }
            if lane.name.is_some() {
                busy = l + 1;
                if !lane.is_squeezing {
                    lane.is_squeezing = lane.message.absorb::<S>(lane.absorbed, &mut states, l);
                    lane.absorbed += 1;
                }
            }
        }
        if busy == 0 {
            break;
        }
        form.permute(s, &mut states, busy);
        if !lanes.iter().any(|lane| lane.is_squeezing) {
            continue;
        }
        separate(s, &states, &mut blocks);
        for (lane, LaneBytes(bytes)) in lanes.iter_mut().zip(&blocks) {
            let block = bytes.first_chunk().expect("a block");
            if let Some(name) = lane.name
                && lane.is_squeezing
                && !messages.take(name, block)
            {
                lane.name = None;
            }
        }
    }
    for lane in lanes {
        wipe(&mut lane.message.head);
    }
    blocks.iter_mut().for_each(|LaneBytes(bytes)| wipe(bytes));
    wipe(words_mut(&mut states));
}

/// Writes the first 24 words of each lane's state as bytes. In a lane that squeezes, they begin
/// with a block of output.
#[inline(never)]
fn separate<S: Simd>(s: S, states: &States<S>, blocks: &mut [LaneBytes; MAX_LANES]) {
    let limbs = states.first_chunk().expect("24 words");
    enter!(
        s,
        [blocks],
        s.separate_lanes(limbs, &mut blocks[..S::LANES])
    );
}

#[cfg(test)]
mod tests {
    use sha3::digest::{ExtendableOutput, Update, XofReader};
    use sha3::{Digest, Sha3_256, Sha3_512, Shake128, Shake256};

    use super::*;
    use crate::backend::on_all_lanes;
    use crate::simd::portable::Portable;

    /// `count` messages of many lengths. Every second message is known only when the one before is
    /// hashed.
    struct Texts<'a> {
        text: &'a [u8],
        count: usize,
        next: usize,
        results: Vec<Vec<u8>>,
    }

    const FUNCTIONS: [Function; 4] = [
        Function::Sha3_256,
        Function::Sha3_512,
        Function::Shake128,
        Function::Shake256,
    ];

    impl<'a> Texts<'a> {
        /// Returns the function, two pieces, and the tail.
        fn parts(&self, name: usize) -> (Function, [&'a [u8; 32]; 2], &'a [u8]) {
            let (a, rest) = self.text[name % 99..]
                .split_first_chunk()
                .expect("32 bytes");
            let b = rest.first_chunk().expect("32 bytes");
            (FUNCTIONS[name % 4], [a, b], &self.text[..name * 61 % 700])
        }

        fn message(&self, name: usize) -> Vec<u8> {
            let (_, [a, b], tail) = self.parts(name);
            match name % 5 {
                0 => tail.to_vec(),
                1 => [&a[..], tail].concat(),
                2 => [&a[..], b, tail].concat(),
                3 => [*a, *b].concat(),
                _ => [&a[..], &[1, 2, 3]].concat(),
            }
        }
    }

    impl<'a> Messages<'a> for Texts<'a> {
        type Name = usize;

        fn next(&mut self, message: &mut Message<'a>) -> Option<usize> {
            let name = self.next;
            let is_known = name.is_multiple_of(2) || !self.results[name - 1].is_empty();
            (name < self.count && is_known).then(|| {
                self.next += 1;
                let (function, [a, b], tail) = self.parts(name);
                match name % 5 {
                    0 => message.set(function, [], tail),
                    1 => message.set(function, [a], tail),
                    2 => message.set(function, [a, b], tail),
                    3 => message.set_short(function, [a, b], []),
                    _ => message.set_short(function, [a], [1, 2, 3]),
                }
                name
            })
        }

        fn take(&mut self, name: usize, block: &Block) -> bool {
            let function = FUNCTIONS[name % 4];
            self.results[name].extend(&block[..function.rate()]);
            let is_squeezed = matches!(function, Function::Shake128 | Function::Shake256);
            is_squeezed && self.results[name].len() < 100 * (name % 7)
        }
    }

    /// Computes the hash with an independent crate.
    fn expected(function: Function, text: &[u8], length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        match function {
            Function::Sha3_256 => out = Sha3_256::digest(text).to_vec(),
            Function::Sha3_512 => out = Sha3_512::digest(text).to_vec(),
            Function::Shake128 => Shake128::default()
                .chain(text)
                .finalize_xof()
                .read(&mut out),
            Function::Shake256 => Shake256::default()
                .chain(text)
                .finalize_xof()
                .read(&mut out),
        }
        out
    }

    fn check<S: Simd>(s: S) {
        let text: Vec<u8> = (0..1000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let counts = [0, 1, 2, 7, 8, 9, if cfg!(miri) { 10 } else { 700 }];
        let forms = [Form::Rows, Form::Columns];
        for (form, count) in forms
            .into_iter()
            .flat_map(|form| counts.map(|count| (form, count)))
        {
            let mut texts = Texts {
                text: &text,
                count,
                next: 0,
                results: vec![Vec::new(); count],
            };
            hash_by(form, s, &mut texts);
            for (name, result) in texts.results.iter().enumerate() {
                let function = FUNCTIONS[name % 4];
                let expected = expected(function, &texts.message(name), result.len());
                assert_eq!(result[..expected.len()], expected, "message {name}");
            }
        }
    }

    #[test]
    fn digests_are_those_of_an_independent_crate() {
        check(Portable::<1>);
        on_all_lanes!(check);
    }
}
