//! Counter mode (SP 800-38D, section 6.5), from the first counter block to the tag.

use super::aes::encipher;
use super::ghash::{Summands, absorb, add, close, last_product};
use super::long::{NUMBERS, long};
use super::state::{Key, LONG, Message, SHORT, position};
use crate::in_out::InOut;
use crate::simd::blocks::{BLOCK_BYTES, Block, Blocks};
use crate::simd::{enter, inlined};
use crate::unroll::unrolled;

/// Number of bytes of an initialisation vector that needs no hashing.
pub const SHORT_IV_BYTES: usize = 12;

/// Computes the first counter block, and the mask of the tag (section 7.1, steps 2 and 6).
#[inline(never)]
pub(super) fn begin<B: Blocks>(b: B, key: &Key, message: &mut Message, iv: &[u8]) {
    let mut first = [0; BLOCK_BYTES];
    if let Ok(short) = <&[u8; SHORT_IV_BYTES]>::try_from(iv) {
        first[..SHORT_IV_BYTES].copy_from_slice(short);
        first[BLOCK_BYTES - 1] = 1;
    } else {
        absorb(b, key, &mut first, 0, iv);
        finish(b, key, &mut first, 0, iv.len() as u64);
    }
    message.counter = first;
    enter!(b, [message], {
        let mut mask = [b.block(&message.counter)];
        encipher(b, key, &mut mask);
        message.mask = b.first(mask[0]);
    });
}

#[inline(never)]
pub(super) fn tag<B: Blocks>(b: B, key: &Key, message: &Message) -> Block {
    let mut hash = message.hash;
    finish(b, key, &mut hash, message.additional, message.data);
    add(&mut hash, &message.mask);
    hash
}

/// Multiplies `hash` by H if the last block is incomplete, then hashes both lengths.
#[inline(never)]
fn finish<B: Blocks>(b: B, key: &Key, hash: &mut Block, additional: u64, data: u64) {
    enter!(b, [hash], {
        let last = if data > 0 { data } else { additional };
        let lengths = u128::from(additional * 8) << 64 | u128::from(data * 8);
        *hash = close(b, key, hash, position(last) > 0, &lengths.to_be_bytes());
    });
}

#[inline(never)]
pub(super) fn encrypt<B: Blocks>(b: B, key: &Key, message: &mut Message, data: InOut<'_>) {
    enter!(b, [message, data], crypt::<B, true>(b, key, message, data));
}

#[inline(never)]
pub(super) fn decrypt<B: Blocks>(b: B, key: &Key, message: &mut Message, data: InOut<'_>) {
    enter!(b, [message, data], crypt::<B, false>(b, key, message, data));
}

/// Encrypts or decrypts: [`long`] takes long runs of whole blocks, [`short`] the bytes before and
/// behind them. If the initialisation vector is hashed, the counter is as secret as H, so no branch
/// and no address here depends on the counter.
#[inline(always)]
fn crypt<B: Blocks, const ENCRYPT: bool>(
    b: B,
    key: &Key,
    message: &mut Message,
    mut data: InOut<'_>,
) {
    let hash = &mut message.hash;
    if message.data == 0 && position(message.additional) > 0 && !data.is_empty() {
        *hash = last_product(b, key, hash);
    }
    let first = u128::from_be_bytes(message.counter);
    let mut number = (first as u32).wrapping_add(1 + (message.data / BLOCK_BYTES as u64) as u32);
    let mut skip = position(message.data);
    while !data.is_empty() {
        let counter = first >> 32 << 32 | u128::from(number);
        let left = skip + data.len();
        if left <= B::BYTES {
            return short::<B, ENCRYPT, 1>(b, key, counter, hash, skip, data);
        }
        let count = if skip == 0 && left >= LONG * B::BYTES {
            let count = left - left % (LONG * B::BYTES);
            long::<B, ENCRYPT>(b, key, counter, hash, data.take(count));
            count
        } else {
            let count = SHORT * B::BYTES;
            short::<B, ENCRYPT, SHORT>(b, key, counter, hash, skip, data.take(count - skip));
            count
        };
        number = number.wrapping_add((count / BLOCK_BYTES) as u32);
        skip = 0;
    }
}

/// Encrypts or decrypts at most N vectors. The first `skip` bytes of the first block are done
/// already.
#[inline(always)]
fn short<B: Blocks, const ENCRYPT: bool, const N: usize>(
    b: B,
    key: &Key,
    counter: u128,
    hash: &mut Block,
    mut skip: usize,
    mut data: InOut<'_>,
) {
    let counter = b.broadcast(&counter.to_le_bytes());
    let mut states = [counter; N];
    unrolled::<N>(inlined!(|i: usize| {
        let numbers = b.load(&NUMBERS.as_flattened()[i * B::BYTES..]);
        states[i] = b.reverse(b.add_words(counter, numbers));
    }));
    encipher(b, key, &mut states);
    let mut sum = Summands::new(b, key, hash, skip + data.len());
    unrolled::<N>(inlined!(|i: usize| {
        let mut part = data.take(B::BYTES - skip);
        if part.len() == B::BYTES {
            let before = b.load(part.input());
            let after = b.xor(before, states[i]);
            b.store(part.output(), after);
            sum.add(b, if ENCRYPT { after } else { before });
        } else if !part.is_empty() {
            let before = b.load_at(skip, part.input());
            let after = b.xor(before, states[i]);
            b.store_at(skip, part.output(), after);
            let after = b.keep(skip, skip + part.len(), after);
            sum.add(b, if ENCRYPT { after } else { before });
        }
        skip = 0;
    }));
    *hash = sum.hash(b);
}
