//! GHASH, for `cargo xtask prove`.

use super::Lanes;
use super::ghash::{self, Sum};
use super::state::{Key, POWERS, SHORT, Stride};
use crate::simd::blocks::portable::PortableBlocks;
use crate::simd::blocks::symbolic::{List, Terms, record, register};
use crate::simd::blocks::{BLOCK_BYTES, Block, Blocks};

/// A function of blocks, for each of many lengths.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name, with the blocks of a vector.
    pub name: String,
    /// For which lengths: two numbers whose meaning is the function's.
    pub shapes: Vec<[usize; 2]>,
    terms: Work,
    run: Work,
}

type Work = fn([usize; 2], &[Block]) -> Vec<Block>;

impl Function {
    /// Its terms for `count` blocks.
    pub fn list(&self, shape: [usize; 2], count: usize) -> List {
        record(count, [[0; BLOCK_BYTES]; 2], |inputs| {
            (self.terms)(shape, inputs)
        })
    }

    /// Its results for these inputs, by portable blocks.
    pub fn run(&self, shape: [usize; 2], inputs: &[Block]) -> Vec<Block> {
        (self.run)(shape, inputs)
    }
}

/// The contents of a key, on vectors of two blocks or of four, for a given H: the powers H to H^16,
/// the strides' powers, and for each of these both halves, added, in the lower half of a block. H
/// as it lies in a key is the first block from there on.
pub fn prepared(lanes: usize, h: Block, stored: Block) -> List {
    record(1, [h, stored], |_| match lanes {
        2 => held(Terms::<2>),
        _ => held(Terms::<4>),
    })
}

fn held<B: Blocks>(b: B) -> Vec<Block> {
    let mut key = Key::new(Lanes::PORTABLE);
    ghash::prepare(b, &mut key);
    let powers = key.powers[..POWERS].iter().rev().copied();
    let strides = key.strides.iter().map(|stride| stride.power);
    let halves = key.strides.iter().map(|stride| {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&stride.halves);
        block
    });
    powers.chain(strides).chain(halves).collect()
}

/// The powers that portable blocks compute for a key of AES.
pub fn powers(key: &Block) -> Vec<Block> {
    let mut prepared = Key::new(Lanes::PORTABLE);
    prepared.set(key).expect("16 bytes");
    prepared.powers[..POWERS].iter().rev().copied().collect()
}

/// Splits inputs into blocks and a key.
fn with_key(inputs: &[Block]) -> (&[Block], Key) {
    let (blocks, powers) = inputs.split_at(inputs.len() - POWERS);
    let mut key = Key::new(Lanes::PORTABLE);
    for (i, power) in powers.iter().enumerate() {
        key.powers[POWERS - 1 - i] = *power;
    }
    (blocks, key)
}

/// The products of four blocks and H to H^4.
fn product<B: Blocks>(b: B, _shape: [usize; 2], inputs: &[Block]) -> Vec<Block> {
    let (blocks, powers) = inputs.split_at(4);
    let mut results = [[0; BLOCK_BYTES]; 4];
    for at in (0..4).step_by(B::LANES) {
        let [x, y] = [blocks, powers].map(|from| b.load(from[at..].as_flattened()));
        let product = b.reverse(ghash::product(b, b.reverse(x), y));
        b.store(results[at..].as_flattened_mut(), product);
    }
    results.to_vec()
}

/// The same, not reversed.
fn power<B: Blocks>(b: B, _shape: [usize; 2], inputs: &[Block]) -> Vec<Block> {
    let [x, y] = [0, 1].map(|i| b.broadcast(&inputs[i]));
    vec![b.first(ghash::product(b, x, y))]
}

/// Sums of two products with powers that are the same in all lanes, of four blocks and four others.
fn strides<B: Blocks>(b: B, _shape: [usize; 2], inputs: &[Block]) -> Vec<Block> {
    let (blocks, powers) = inputs.split_at(8);
    let strides = [0, 1].map(|i| Stride::new(b, b.broadcast(&powers[i])));
    let mut results = [[0; BLOCK_BYTES]; 4];
    for at in (0..4).step_by(B::LANES) {
        let x = [at, 4 + at].map(|at| b.reverse(b.load(blocks[at..].as_flattened())));
        let mut sum = Sum::new(b);
        sum.add_pair(b, x, [&strides[0], &strides[1]]);
        b.store(results[at..].as_flattened_mut(), b.reverse(sum.reduce(b)));
    }
    results.to_vec()
}

/// The hash is the first block. The message follows: bytes after others of its first block.
fn absorb<B: Blocks>(b: B, [skip, count]: [usize; 2], inputs: &[Block]) -> Vec<Block> {
    let (blocks, key) = with_key(inputs);
    let (hash, message) = blocks.split_first().expect("a hash");
    register(message);
    let mut hash = *hash;
    let bytes = &message.as_flattened()[skip..skip + count];
    ghash::absorb(b, &key, &mut hash, skip, bytes);
    vec![hash]
}

/// The hash and the last block; the first number is 1 if a block is open.
fn close<B: Blocks>(b: B, [is_open, _]: [usize; 2], inputs: &[Block]) -> Vec<Block> {
    let (blocks, key) = with_key(inputs);
    vec![ghash::close(b, &key, &blocks[0], is_open == 1, &blocks[1])]
}

fn last_product<B: Blocks>(b: B, _shape: [usize; 2], inputs: &[Block]) -> Vec<Block> {
    let (blocks, key) = with_key(inputs);
    vec![ghash::last_product(b, &key, &blocks[0])]
}

/// All of them, on vectors of two blocks and of four.
pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    macro_rules! functions {
        ($($f:ident $shapes:expr;)*) => { $(
            for (lanes, terms) in [
                (2, (|shape, x| $f(Terms::<2>, shape, x)) as Work),
                (4, |shape, x| $f(Terms::<4>, shape, x)),
            ] {
                let shapes: fn(usize) -> Vec<[usize; 2]> = $shapes;
                all.push(Function {
                    name: format!("ghash::{}, {lanes} blocks", stringify!($f)),
                    shapes: shapes(lanes),
                    terms,
                    run: |shape, x| $f(PortableBlocks, shape, x),
                });
            }
        )* };
    }
    functions! {
        product |_| vec![[0; 2]];
        power |_| vec![[0; 2]];
        strides |_| vec![[0; 2]];
        // All bytes that are hashed at once.
        absorb |lanes| {
            let ends = |skip| skip + 1..=SHORT * BLOCK_BYTES * lanes;
            let shapes = |skip| ends(skip).map(move |end| [skip, end - skip]);
            let shapes = (0..BLOCK_BYTES).flat_map(shapes);
            shapes.collect()
        };
        close |_| vec![[0; 2], [1, 0]];
        last_product |_| vec![[0; 2]];
    }
    all
}
