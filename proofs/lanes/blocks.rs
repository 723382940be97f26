//! Blocks that hold terms, for `cargo xtask prove`: each half of a block is the place of a [`Half`]
//! in a list, so one run of a function lists its whole computation.
//!
//! In memory, half a block of terms is a place behind a mark; anything else is a number. Bytes of a
//! message are found by their address instead, since a part of them may be read.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{BLOCK_BYTES, Block, Blocks, MOST_LANES};

/// The place of a half in its list.
pub type Place = u32;

/// Half a block: 64 bits, the first byte in the lowest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// A number.
    Constant(u64),
    /// An input.
    Input(u32),
    /// a + b, without carries.
    Add([Place; 2]),
    /// The lower half of the carry-less product.
    Low([Place; 2]),
    /// Its upper half.
    High([Place; 2]),
    /// The bytes in reverse order.
    Reverse(Place),
    /// These bits of it, and zeros.
    Keep(Place, u64),
}

/// The computation of a function, and its results.
#[derive(Clone, Debug)]
pub struct List {
    /// Halves, in the order of their computation.
    pub halves: Vec<Half>,
    /// The places of results, two for each block.
    pub results: Vec<[Place; 2]>,
}

#[derive(Default)]
struct Record {
    halves: Vec<Half>,
    places: HashMap<Half, Place>,
    /// Where a message begins, and its halves.
    message: (usize, Vec<Place>),
    /// The block that AES gives, and a number that stands for the first input from there on.
    cipher: [Block; 2],
}

thread_local! {
    static RECORD: RefCell<Record> = RefCell::default();
}

const MARK: u64 = 0x7465_726d << 32;

fn place(half: Half) -> Place {
    RECORD.with_borrow_mut(|record| {
        let Record { halves, places, .. } = record;
        *places.entry(half).or_insert_with(|| {
            halves.push(half);
            halves.len() as Place - 1
        })
    })
}

fn number(place: Place) -> Option<u64> {
    RECORD.with_borrow(|record| match record.halves[place as usize] {
        Half::Constant(number) => Some(number),
        _ => None,
    })
}

fn to_bytes(halves: [Place; 2]) -> Block {
    let word = |place| number(place).unwrap_or(MARK | u64::from(place));
    let halves = halves.map(|place| word(place).to_le_bytes());
    *halves.as_flattened().first_chunk().expect("a block")
}

fn from_bytes(half: &[u8; 8]) -> Place {
    let word = u64::from_le_bytes(*half);
    match word >> 32 == MARK >> 32 {
        true => word as Place,
        false => place(Half::Constant(word)),
    }
}

/// From now on, these blocks are a message, which may be read from any byte on.
pub(crate) fn register(message: &[Block]) {
    let halves = message.as_flattened().as_chunks().0.iter();
    let halves = halves.map(from_bytes).collect();
    let at = message.as_ptr().addr();
    RECORD.with_borrow_mut(|record| record.message = (at, halves));
}

/// Blocks that hold terms, `L` in a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<const L: usize>;

/// The first blocks count.
type Vector = [[Place; 2]; MOST_LANES];

impl<const L: usize> Terms<L> {
    fn each(half: impl Fn(usize, usize) -> Place) -> Vector {
        core::array::from_fn(|i| [0, 1].map(|j| if i < L { half(i, j) } else { 0 }))
    }

    /// The bytes of halves from one place up to another.
    fn kept(half: impl Fn(usize) -> Place, from: usize, to: usize) -> Vector {
        Self::each(|i, j| {
            let start = 16 * i + 8 * j;
            let bits = |end: usize| match 8 * end.saturating_sub(start).min(8) {
                64 => u64::MAX,
                bits => (1 << bits) - 1,
            };
            match bits(to) & !bits(from) {
                0 => place(Half::Constant(0)),
                u64::MAX => half(2 * i + j),
                mask => place(Half::Keep(half(2 * i + j), mask)),
            }
        })
    }
}

impl<const L: usize> Blocks for Terms<L> {
    type Vector = Vector;

    const LANES: usize = L;

    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn load(self, from: &[u8]) -> Vector {
        Self::each(|i, j| from_bytes(&from.as_chunks().0[2 * i + j]))
    }

    fn store(self, to: &mut [u8], a: Vector) {
        for (to, a) in to.as_chunks_mut().0.iter_mut().zip(&a[..L]) {
            *to = to_bytes(*a);
        }
    }

    fn load_at(self, skip: usize, from: &[u8]) -> Vector {
        let half = |i: usize| {
            RECORD.with_borrow(|record| {
                let (start, halves) = &record.message;
                // A vector begins where a half does.
                halves[(from.as_ptr().addr() - start - skip) / 8 + i]
            })
        };
        Self::kept(half, skip, skip + from.len())
    }

    fn store_at(self, _skip: usize, _to: &mut [u8], _a: Vector) {
        panic!("a part of terms")
    }

    fn keep(self, from: usize, to: usize, a: Vector) -> Vector {
        Self::kept(|i| a[i / 2][i % 2], from, to)
    }

    fn broadcast(self, block: &Block) -> Vector {
        let [_, first] = RECORD.with_borrow(|record| record.cipher);
        if *block == first && first != [0; BLOCK_BYTES] {
            return Self::each(|_, j| place(Half::Input(j as u32)));
        }
        Self::each(|_, j| from_bytes(&block.as_chunks().0[j]))
    }

    fn broadcast_half(self, half: &[u8; 8]) -> Vector {
        Self::each(|_, _| from_bytes(half))
    }

    fn block(self, block: &Block) -> Vector {
        let zeros = [0; BLOCK_BYTES];
        Self::each(|i, j| from_bytes(&[block, &zeros][usize::from(i > 0)].as_chunks().0[j]))
    }

    fn first(self, a: Vector) -> Block {
        to_bytes(a[0])
    }

    fn sum(self, a: Vector) -> Block {
        let sum = a[1..L].iter().fold(a[0], |sum, a| {
            [0, 1].map(|j| place(Half::Add([sum[j], a[j]])))
        });
        to_bytes(sum)
    }

    fn xor(self, a: Vector, b: Vector) -> Vector {
        Self::each(|i, j| place(Half::Add([a[i][j], b[i][j]])))
    }

    fn add_words(self, _a: Vector, _b: Vector) -> Vector {
        panic!("carries")
    }

    fn shuffle(self, a: Vector, places: &Block) -> Vector {
        assert!((0..16).rev().eq(places.iter().copied()), "no reversal");
        Self::each(|i, j| match number(a[i][1 - j]) {
            Some(number) => place(Half::Constant(number.swap_bytes())),
            None => place(Half::Reverse(a[i][1 - j])),
        })
    }

    fn swap_halves(self, a: Vector) -> Vector {
        Self::each(|i, j| a[i][1 - j])
    }

    fn add_halves(self, a: Vector, b: Vector) -> Vector {
        Self::each(|i, j| place(Half::Add([a, b][j][i])))
    }

    fn multiply<const HALVES: i32>(self, a: Vector, b: Vector) -> Vector {
        let both = |i: usize| {
            [
                a[i][usize::from(HALVES & 1 != 0)],
                b[i][usize::from(HALVES & 16 != 0)],
            ]
        };
        Self::each(|i, j| place([Half::Low, Half::High][j](both(i))))
    }

    fn round(self, state: Vector, _key: Vector) -> Vector {
        state
    }

    fn last_round(self, _state: Vector, _key: Vector) -> Vector {
        let [cipher, _] = RECORD.with_borrow(|record| record.cipher);
        assert!(cipher != [0; BLOCK_BYTES], "AES");
        Self::each(|_, j| from_bytes(&cipher.as_chunks().0[j]))
    }
}

/// Records the terms of `work` for `count` blocks. AES gives one number, and another one that
/// follows from it stands for the first block. Both are zero for functions without AES.
pub(crate) fn record(
    count: usize,
    cipher: [Block; 2],
    work: impl FnOnce(&[Block]) -> Vec<Block>,
) -> List {
    RECORD.set(Record {
        cipher,
        ..Record::default()
    });
    let inputs = 0..count as u32;
    let inputs = inputs.map(|i| to_bytes([2 * i, 2 * i + 1].map(|i| place(Half::Input(i)))));
    let results = work(&inputs.collect::<Vec<Block>>());
    let results = results.iter().map(|block| {
        let [low, high] = block.as_chunks().0.first_chunk().expect("two halves");
        [from_bytes(low), from_bytes(high)]
    });
    let results = results.collect();
    List {
        halves: RECORD.take().halves,
        results,
    }
}
