//! The operations in plain Rust: the oracle of the assembly, used on CPUs without ADX.

use super::multiplier::{Block, Multiplier, add};
use crate::taint::whole;

/// A multiplier that needs no proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

/// Returns the low and the high word of a·b + c + d, which fits.
#[inline(always)]
fn multiply_add(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let [a, b, c, d] = whole([a, b, c, d]).map(u128::from);
    let sum = a * b + c + d;
    (sum as u64, (sum >> 64) as u64)
}

/// Computes sums = (sums + a·b + `add`)/2^64, and returns the word that is shifted out.
#[inline(always)]
fn row(sums: &mut Block, a: u64, b: &Block, add: u64) -> u64 {
    let (lowest, mut carry) = multiply_add(a, b[0], sums[0], add);
    for j in 1..8 {
        (sums[j - 1], carry) = multiply_add(a, b[j], sums[j], carry);
    }
    sums[7] = carry;
    lowest
}

impl Multiplier for Plain {
    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(never)]
    fn multiply_add(self, t: &mut [Block], c: &mut Block, a: &Block, b: &[Block]) {
        assert!(t.len() == b.len());
        for (t, b) in t.iter_mut().zip(b) {
            for (t, &a) in t.iter_mut().zip(a) {
                *t = row(c, a, b, *t);
            }
        }
    }

    #[inline(never)]
    fn reduce(self, t: &mut [Block], n: &[Block], k0: u64, carry: bool) -> bool {
        let (m, others) = t.split_first_mut().expect("one block more than n");
        let (top, others) = others.split_last_mut().expect("one block more than n");
        let mut c = *m;
        for m in &mut *m {
            *m = c[0].wrapping_mul(k0);
            row(&mut c, *m, &n[0], 0);
        }
        self.multiply_add(others, &mut c, m, &n[1..]);
        add(top, &c, carry)
    }

    #[inline(never)]
    fn triangle(self, t: &mut Block, c: &mut Block, a: &Block) {
        c.fill(0);
        for i in 0..8 {
            let mut carry = 0;
            for j in i + 1..8 {
                let sum = if i + j < 8 {
                    &mut t[i + j]
                } else {
                    &mut c[i + j - 8]
                };
                (*sum, carry) = multiply_add(a[i], a[j], *sum, carry);
            }
            c[i] = carry;
        }
    }

    #[inline(never)]
    fn double(self, t: &mut [Block], a: &[Block]) {
        assert!(t.len() == 2 * a.len());
        let mut carry = 0;
        let columns = t.as_flattened_mut().as_chunks_mut().0;
        for ([low, high], &a) in columns.iter_mut().zip(a.as_flattened()) {
            let (low_square, high_square) = multiply_add(a, a, 0, 0);
            for (column, square) in [(low, low_square), (high, high_square)] {
                let [word, square, before] = whole([*column, square, carry]).map(u128::from);
                let sum = 2 * word + square + before;
                *column = sum as u64;
                carry = (sum >> 64) as u64;
            }
        }
    }
}
