//! Planted defects, one of each kind that code on secrets must not have.
//!
//! The check of the machine code must find every one of them in a build with the feature
//! `fault-injection`, and the taint check in its own build. Otherwise these checks fail, as they
//! would miss such a defect in the kernels too.

use core::hint::black_box;

/// A jump on a bit.
#[inline(never)]
pub fn branch_on_bit(secret: u64) -> u64 {
    let mut value = 0;
    if secret & 1 == 1 {
        // Opaque to the compiler, which could otherwise compute both values and select one.
        value = black_box(secret);
    }
    value
}

/// A table read at a secret index.
#[inline(never)]
pub fn index_by_secret(table: &[u64; 16], secret: u64) -> u64 {
    table[(secret & 15) as usize]
}

/// A division.
#[inline(never)]
pub fn divide_by_secret(secret: u64) -> u64 {
    u64::MAX / (secret | 1)
}

/// A comparison that ends at the first difference.
#[inline(never)]
pub fn compare_secret(secret: &[u8], other: &[u8]) -> bool {
    secret == other
}

/// Vectors compared by a mask in an ordinary register.
#[inline(never)]
pub fn compare_block(secret: &[u8; 32], other: &[u8; 32]) -> bool {
    secret == other
}

/// Makes the linker keep these functions.
#[cfg(feature = "fault-injection")]
pub(super) fn keep() {
    black_box(branch_on_bit as fn(u64) -> u64);
    black_box(index_by_secret as fn(&[u64; 16], u64) -> u64);
    black_box(divide_by_secret as fn(u64) -> u64);
    black_box(compare_secret as fn(&[u8], &[u8]) -> bool);
    black_box(compare_block as fn(&[u8; 32], &[u8; 32]) -> bool);
}
