//! Statements about GHASH: sums of products in GF(2^128), as SP 800-38D defines them.
//!
//! Each half of a block is a sum without carries, or a product of two other halves. If all terms
//! are linear in the message, a result is a sum over the blocks of the message: each summand is the
//! result for this block alone, with zeros for all others. Then few terms are left, with one power
//! of H, and they are bilinear. So they are tried for all pairs of one bit each, which shows them
//! for all blocks.

use std::collections::{HashMap, HashSet};

use lockstep_kernels::proved::blocks::{Function, Half, List, Place, prepared};
use lockstep_testkit::Random;

/// The polynomial by which SP 800-38D reduces, its first bit in the uppermost place.
const R: u128 = 0xe1 << 120;

/// X·Y (section 6.3).
pub fn multiply(x: u128, y: u128) -> u128 {
    let (mut z, mut v) = (0, y);
    for i in 0..128 {
        if x >> (127 - i) & 1 == 1 {
            z ^= v;
        }
        v = (v >> 1) ^ if v & 1 == 1 { R } else { 0 };
    }
    z
}

/// The same in reverse, but for x^128.
pub const REDUCED: u128 = 0xc2 << 120 | 1;

/// How a power of H lies in a key: in reverse, and times x (RFC 8452, appendix A).
pub fn stored(power: u128) -> u128 {
    let reduced = if power >> 127 == 1 { REDUCED } else { 0 };
    (power << 1 ^ reduced).swap_bytes()
}

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It is added.
    Added,
    /// It is multiplied with a power of H.
    Times,
    /// It lies in a key as such a power does, and so does the product with one.
    Power,
}

/// A summand of a result.
#[derive(Clone, Copy)]
pub struct Summand {
    pub block: usize,
    kind: Kind,
    /// Which of the powers it is multiplied with.
    pub power: usize,
    /// Which of its bytes are there.
    bytes: [usize; 2],
}

/// How many blocks there are before powers of H, how many powers, and the summands of each result.
pub struct Statement {
    pub blocks: usize,
    pub powers: usize,
    pub results: Vec<Vec<Summand>>,
}

pub fn statement(function: &Function, [first, second]: [usize; 2]) -> Statement {
    let times = |block, power| Summand::whole(block, Kind::Times, power);
    let name = function.name.strip_prefix("ghash::").expect("a prefix");
    let (blocks, powers, results) = match name.split(',').next().expect("a name") {
        "product" => (4, 4, (0..4).map(|i| vec![times(i, i)]).collect()),
        "power" => (1, 1, vec![vec![Summand::whole(0, Kind::Power, 0)]]),
        "strides" => {
            let result = |i| vec![times(i, 0), times(4 + i, 1)];
            (8, 2, (0..4).map(result).collect())
        }
        // Y·H^n, X_i·H^(n−i), and the rest of the last block, which is only added.
        "absorb" => {
            let (skip, end) = (first, first + second);
            let kind = |i: usize| match (end / 16).saturating_sub(i) {
                0 => Summand::whole(i + 1, Kind::Added, 0),
                exponent => times(i + 1, exponent - 1),
            };
            let there = |i: usize| [skip, end].map(|at| at.saturating_sub(16 * i).min(16));
            let count = end.div_ceil(16);
            let hash = Summand {
                block: 0,
                ..kind(0)
            };
            let message = (0..count).map(|i| Summand {
                bytes: there(i),
                ..kind(i)
            });
            let sum = [hash].into_iter().chain(message).collect();
            (count + 1, 16, vec![sum])
        }
        "close" => (2, 16, vec![vec![times(0, first), times(1, 0)]]),
        "last_product" => (1, 16, vec![vec![times(0, 0)]]),
        name => panic!("no statement about {name}"),
    };
    Statement {
        blocks,
        powers,
        results,
    }
}

impl Summand {
    /// Of all bytes of a block.
    fn whole(block: usize, kind: Kind, power: usize) -> Self {
        let bytes = [0, 16];
        Self {
            block,
            kind,
            power,
            bytes,
        }
    }

    /// The value of this statement.
    pub fn value(&self, block: u128, power: u128) -> u128 {
        let first = |count: usize| !u128::MAX.checked_shr(8 * count as u32).unwrap_or(0);
        let [from, to] = self.bytes.map(first);
        match self.kind {
            Kind::Added => block & to & !from,
            Kind::Times => multiply(block & to & !from, power),
            Kind::Power => stored(multiply(block, power)),
        }
    }

    /// How the block lies in memory.
    pub fn stored(&self, block: u128) -> u128 {
        match self.kind {
            Kind::Power => stored(block),
            _ => block,
        }
    }
}

/// The operands.
fn operands_mut(half: &mut Half) -> &mut [Place] {
    match half {
        Half::Add(both) | Half::Low(both) | Half::High(both) => both,
        Half::Reverse(a) | Half::Keep(a, _) => std::slice::from_mut(a),
        Half::Constant(_) | Half::Input(_) => &mut [],
    }
}

pub fn operands(mut half: Half) -> Vec<Place> {
    operands_mut(&mut half).to_vec()
}

fn carry_less(a: u64, b: u64) -> u128 {
    let (mut product, mut left) = (0, a);
    while left != 0 {
        product ^= u128::from(b) << left.trailing_zeros();
        left &= left - 1;
    }
    product
}

/// The values of halves for these blocks.
pub fn values(halves: &[Half], inputs: &[u128], values: &mut Vec<u64>) {
    values.clear();
    for half in halves {
        let of = |place: Place| values[place as usize];
        values.push(match *half {
            Half::Constant(number) => number,
            // The first byte is in the lowest place.
            Half::Input(i) => (inputs[i as usize / 2].swap_bytes() >> (64 * (i % 2))) as u64,
            Half::Add([a, b]) => of(a) ^ of(b),
            Half::Low([a, b]) => carry_less(of(a), of(b)) as u64,
            Half::High([a, b]) => (carry_less(of(a), of(b)) >> 64) as u64,
            Half::Reverse(a) => of(a).swap_bytes(),
            Half::Keep(a, mask) => of(a) & mask,
        });
    }
}

/// The block of two halves.
pub fn block(halves: [u64; 2]) -> u128 {
    (u128::from(halves[1]) << 64 | u128::from(halves[0])).swap_bytes()
}

/// How many factors of the message and of powers of H a term has; none where it is zero.
pub type Degree = Option<[u8; 2]>;

/// The degrees of all halves. A sum has terms of one degree.
pub fn degrees(halves: &[Half], input: impl Fn(u32) -> Degree) -> Result<Vec<Degree>, String> {
    let mut all: Vec<Degree> = Vec::with_capacity(halves.len());
    for (place, half) in halves.iter().enumerate() {
        let of = |place: Place| all[place as usize];
        all.push(match *half {
            Half::Constant(0) => None,
            Half::Constant(_) => Some([0, 0]),
            Half::Input(i) => input(i),
            Half::Add([a, b]) => match [of(a), of(b)] {
                [None, one] | [one, None] => one,
                [a, b] if a == b => a,
                _ => return Err(format!("half {place} is a sum of unlike terms")),
            },
            Half::Low([a, b]) | Half::High([a, b]) => {
                of(a).zip(of(b)).map(|(a, b)| [a[0] + b[0], a[1] + b[1]])
            }
            Half::Reverse(a) | Half::Keep(a, _) => of(a),
        });
    }
    Ok(all)
}

/// The rest of a result for one block. The first four halves are the halves of the block and of a
/// power.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Program {
    halves: Vec<Half>,
    result: [Place; 2],
}

/// Programs that were tried, of which others need not be, for a kind and for bytes that are there.
#[derive(Default)]
pub struct Tried(HashSet<(Program, Kind, [usize; 2])>);

struct Restriction<'a> {
    list: &'a List,
    degrees: &'a [Degree],
    halves: Vec<Half>,
    places: HashMap<Place, Place>,
}

impl Restriction<'_> {
    /// The place in the program of a half that is not zero.
    fn place(&mut self, place: Place) -> Result<Place, String> {
        if let Some(known) = self.places.get(&place) {
            return Ok(*known);
        }
        let is_zero = |place: Place| self.degrees[place as usize].is_none();
        let mut half = self.list.halves[place as usize];
        let found = match half {
            Half::Input(_) => return Err("another power of H".into()),
            Half::Add([a, b]) if is_zero(a) => self.place(b)?,
            Half::Add([a, b]) if is_zero(b) => self.place(a)?,
            _ => {
                for part in operands_mut(&mut half) {
                    *part = self.place(*part)?;
                }
                self.halves.push(half);
                self.halves.len() as Place - 1
            }
        };
        self.places.insert(place, found);
        Ok(found)
    }
}

/// The rest of a result for the block of a summand.
fn restricted(
    list: &List,
    result: [Place; 2],
    statement: &Statement,
    summand: &Summand,
) -> Result<Program, String> {
    let blocks = statement.blocks as u32;
    let [first, power] = [summand.block as u32, blocks + summand.power as u32].map(|i| 2 * i);
    let degree = |i: u32| match i < 2 * blocks {
        true => (i / 2 == first / 2).then_some([1, 0]),
        false => Some([0, 1]),
    };
    let degrees = degrees(&list.halves, degree)?;
    let expected = match summand.kind {
        Kind::Added => [1, 0],
        _ => [1, 1],
    };
    // Inputs are the first terms.
    let from = [first, power].map(|i| [i, i + 1]);
    for place in result {
        if degrees[place as usize].is_some_and(|degree| degree != expected) {
            return Err("other factors".into());
        }
    }
    cut(list, &degrees, result, from)
}

/// How a block is computed from two others.
fn cut(
    list: &List,
    degrees: &[Degree],
    result: [Place; 2],
    from: [[Place; 2]; 2],
) -> Result<Program, String> {
    let mut all = Restriction {
        list,
        degrees,
        halves: (0..4).map(Half::Input).collect(),
        // Of a square, both are the first.
        places: [(1, 2), (0, 0)]
            .into_iter()
            .flat_map(|(i, at)| from[i].into_iter().zip(at..))
            .collect(),
    };
    let mut places = [0; 2];
    for (to, place) in places.iter_mut().zip(result) {
        *to = match degrees[place as usize] {
            Some(_) => all.place(place)?,
            None => {
                all.halves.push(Half::Constant(0));
                all.halves.len() as Place - 1
            }
        };
    }
    Ok(Program {
        halves: all.halves,
        result: places,
    })
}

impl Program {
    /// Whether it is the product of two powers of H, or the square of one.
    fn multiplies(self, is_square: bool, tried: &mut Tried) -> bool {
        let (expected, second) = match is_square {
            true => ([2, 0], None),
            false => ([1, 1], Some([0, 1])),
        };
        let input = |i| if i < 2 { Some([1, 0]) } else { second };
        let result = self.result;
        let is_like = |degrees: Vec<Degree>| {
            result.map(|place| degrees[place as usize]) == [Some(expected); 2]
        };
        let summand = Summand::whole(0, Kind::Power, 0);
        let key = (self, summand.kind, summand.bytes);
        if tried.0.contains(&key) {
            return true;
        }
        let program = &key.0;
        let is_product = degrees(&program.halves, input).is_ok_and(is_like)
            && match is_square {
                true => program.squares(),
                false => program.check(&summand).is_ok(),
            };
        if is_product {
            tried.0.insert(key);
        }
        is_product
    }

    /// Tries it for all sums of two bits: a form of degree two is known by them.
    fn squares(&self) -> bool {
        let mut all = Vec::new();
        (0..128).all(|i| {
            (0..=i).all(|j| {
                let x = 1 << i | 1 << j;
                values(&self.halves, &[stored(x), 0], &mut all);
                block(self.result.map(|place| all[place as usize])) == stored(multiply(x, x))
            })
        })
    }

    /// Tries it for all pairs of one bit each.
    fn check(&self, summand: &Summand) -> Result<(), String> {
        let mut all = Vec::new();
        let bits = || (0..128).map(|i| 1_u128 << i);
        for x in bits() {
            for h in bits() {
                values(&self.halves, &[summand.stored(x), stored(h)], &mut all);
                if block(self.result.map(|place| all[place as usize])) != summand.value(x, h) {
                    return Err(format!("another value for {x:x} and {h:x}"));
                }
                if summand.kind == Kind::Added {
                    break;
                }
            }
        }
        Ok(())
    }
}

pub fn attempt(list: &List, statement: &Statement, tried: &mut Tried) -> Result<(), String> {
    if list.results.len() != statement.results.len() {
        return Err("another number of results".into());
    }
    // Sums of the results for each block alone.
    let blocks = statement.blocks as u32;
    let linear = degrees(&list.halves, |i| Some([u8::from(i < 2 * blocks), 0]))?;
    for (&result, summands) in list.results.iter().zip(&statement.results) {
        if result
            .iter()
            .any(|&place| linear[place as usize] != Some([1, 0]))
        {
            return Err("a result is not linear".into());
        }
        for i in 0..statement.blocks {
            let summand = summands.iter().find(|summand| summand.block == i);
            let none = Summand {
                bytes: [0, 0],
                ..Summand::whole(i, Kind::Added, 0)
            };
            let summand = summand.copied().unwrap_or(none);
            let program = restricted(list, result, statement, &summand)?;
            let key = (program, summand.kind, summand.bytes);
            if !tried.0.contains(&key) {
                key.0.check(&summand)?;
                tried.0.insert(key);
            }
        }
    }
    Ok(())
}

/// The exponents of the powers that a key holds: H to H^16, and the strides.
pub fn exponents(lanes: usize) -> impl Iterator<Item = usize> {
    (1..=16).chain((1..=8).rev().map(move |i| i * lanes))
}

/// That each power is a product of two others, whose exponents have its as their sum.
pub fn attempt_powers(list: &List, lanes: usize, tried: &mut Tried) -> Result<(), String> {
    let degrees = degrees(&list.halves, |_| Some([1, 0]))?;
    let (powers, halves) = list.results.split_at_checked(24).ok_or("too few results")?;
    for (power, half) in powers[16..].iter().zip(halves) {
        if list.halves[half[0] as usize] != Half::Add(*power) {
            return Err("halves are not added".into());
        }
    }
    let mut all: Vec<(usize, [Place; 2])> = exponents(lanes).zip(powers.iter().copied()).collect();
    all.sort_unstable();
    let mut known = HashMap::from([(1, [0, 1])]);
    for (exponent, power) in all {
        if known.get(&exponent) == Some(&power) {
            continue;
        }
        let mut pairs = (1..=exponent / 2)
            .filter_map(|less| Some([*known.get(&(exponent - less))?, *known.get(&less)?]));
        let is_product = |from| match cut(list, &degrees, power, from) {
            Ok(program) => program.multiplies(from[0] == from[1], tried),
            Err(_) => false,
        };
        if !pairs.any(is_product) {
            return Err(format!("H^{exponent} is no product"));
        }
        known.entry(exponent).or_insert(power);
    }
    Ok(())
}

/// The terms of one length of a function.
pub fn list(function: &Function, shape: [usize; 2]) -> List {
    let statement = statement(function, shape);
    function.list(shape, statement.blocks + statement.powers)
}

/// Proves the statement of a key's powers, for each bit of H, and for some sums of bits: with a
/// carry between them H times x would not be linear.
///
/// The product of H and x is a number for these lanes. The values that follow from it are terms.
pub fn attempt_all_powers(lanes: usize, tried: &mut Tried) -> Result<String, (List, String)> {
    let mut random = Random(1);
    let bits = (0..128).map(|bit| 1 << bit);
    let others = (0..128).map(|_| u128::from_be_bytes(random.bytes()));
    for h in bits.chain(others) {
        let list = list_of_powers(lanes, h);
        attempt_powers(&list, lanes, tried).map_err(|why| (list, why))?;
    }
    Ok("128 bits, and 128 sums of them".into())
}

pub fn list_of_powers(lanes: usize, h: u128) -> List {
    prepared(lanes, u128::to_be_bytes(h), stored(h).to_be_bytes())
}
