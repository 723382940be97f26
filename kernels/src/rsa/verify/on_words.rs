//! The check of s^e mod n = c in words of 64 bits, one [`Claim`] at a time.

use super::Claim;
use crate::arena::Arena;
use crate::layout::words_from_bytes;
use crate::simd::opaque_word;
use crate::words::{Block, Field, Multiplier, Plain, multiply_add, repack};

/// Returns the number of bytes that [`check`] takes from the arena, for primes of `blocks` blocks.
pub(in crate::rsa) const fn bytes(blocks: usize) -> usize {
    Field::<Plain>::bytes(blocks) + 8 * blocks * size_of::<Block>()
}

/// Checks a claim modulo p and modulo q.
///
/// Time and addresses depend only on the public exponent.
#[inline(never)]
pub(in crate::rsa) fn check(m: impl Multiplier, mut arena: Arena<'_>, claim: &mut Claim<'_>) {
    let (key, public) = (claim.key, claim.key.public());
    let blocks = key.size().blocks_of_half();
    let mut field = Field::new(m, &mut arena, blocks);
    let x: &mut [Block] = arena.slice(2 * blocks);
    let r3: &mut [Block] = arena.slice(blocks);
    let base: &mut [Block] = arena.slice(blocks);
    let power: &mut [Block] = arena.slice(blocks);
    let product: &mut [Block] = arena.slice(2 * blocks);
    let mut different = 0;

    for half in [0, 1] {
        let modulus = &key.half(half).modulus;
        field.set_modulus(&modulus.limbs);
        repack(r3.as_flattened_mut(), 64, &modulus.r3, 52);
        field.remove_excess(r3, 3);

        words_from_bytes(x.as_flattened_mut(), &claim.output.0);
        field.montgomery_form(base, x, r3);
        power.copy_from_slice(base);
        for i in (0..public.exponent_bits() - 1).rev() {
            field.square(power);
            if public.exponent_bit(i) {
                field.multiply(power, base);
            }
        }
        words_from_bytes(x.as_flattened_mut(), claim.input);
        field.montgomery_form(base, x, r3);
        field.value(power);
        field.value(base);
        different |= difference(power, base);
    }

    // The last modulus is q.
    let p = base;
    repack(p.as_flattened_mut(), 64, &key.half(0).modulus.limbs, 52);
    repack(x.as_flattened_mut(), 64, &public.modulus.limbs, 52);
    product.fill([0; 8]);
    multiply_add(m, product, p, field.n);
    different |= difference(product, x);
    claim.decide(different);
}

/// Returns the bits in which words of two numbers differ.
fn difference(a: &[Block], b: &[Block]) -> u64 {
    let words = a.as_flattened().iter().zip(b.as_flattened());
    opaque_word(words.fold(0, |bits, (a, b)| bits | (a ^ b)))
}
