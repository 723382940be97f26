//! Arithmetic modulo the order L of the base point, in every lane.

use super::convert::Limbs;
use super::field::LIMBS;
use crate::modular::{Factor, Field, Modulus, Tight, hex, power_of_two};
use crate::simd::{Simd, enter};

/// The order L = 2^252 + 27742317777372353535851937790883648493. R = 2^260 is nearly 2^8·L.
#[derive(Clone, Copy)]
pub(crate) struct Order;

impl Modulus<LIMBS> for Order {
    const VALUE: [u64; LIMBS] =
        hex("1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed");
    const LIMIT: u64 = 255;
}

/// A number of 512 bits: the limbs of its low 260 bits and of the rest.
pub(super) type Wide<S> = [Limbs<S>; 2];

/// Returns `wide` modulo L.
#[inline(never)]
pub(super) fn reduce<S: Simd>(s: S, wide: &Wide<S>) -> Limbs<S> {
    enter!(
        s,
        Field::<S, Order, LIMBS>::new(s).decode(&encode(s, wide)).0
    )
}

/// Returns `r` + `k`·`a` modulo L, for `r` below L and `a` below 2^256.
#[inline(never)]
pub(super) fn multiply_add<S: Simd>(s: S, k: &Wide<S>, a: &Limbs<S>, r: &Limbs<S>) -> Limbs<S> {
    enter!(s, {
        let f = Field::<S, Order, LIMBS>::new(s);
        // k·a is below (3.1·16/256 + 1)·L, and the sum below 2.2·L: at most two subtractions.
        let sum = f.add(&f.mul(&encode(s, k), &Factor(*a)), &Tight(*r));
        f.reduced(f.reduced(f.tight(sum))).0
    })
}

/// Returns (`sum` − `k`·`a`)/2 modulo L, for `sum` and `a` below 2^256.
#[inline(never)]
pub(super) fn half_difference<S: Simd>(
    s: S,
    sum: &Limbs<S>,
    k: &Wide<S>,
    a: &Limbs<S>,
) -> Limbs<S> {
    const HALF: [u64; LIMBS] = power_of_two(&Order::VALUE, 52 * LIMBS - 1);
    enter!(s, {
        let f = Field::<S, Order, LIMBS>::new(s);
        // k·a is below 1.2·L.
        let product = f.tight(f.mul(&encode(s, k), &Factor(*a)));
        // The difference is below 18·L.
        let difference = f.factor(f.sub(2, &Tight(*sum), &product));
        f.reduced(f.tight(f.mul(&difference, &f.constant(&HALF)))).0
    })
}

/// Returns `wide`·R modulo L, below 3.1·L: low·R²/R + high·R³/R.
#[inline(always)]
fn encode<S: Simd>(s: S, wide: &Wide<S>) -> Tight<S::Limb, LIMBS> {
    const R3: [u64; LIMBS] = power_of_two(&Order::VALUE, 3 * 52 * LIMBS);
    let f = Field::<S, Order, LIMBS>::new(s);
    let [low, high] = wide.map(Factor);
    let high = f.mul(&high, &f.constant(&R3));
    f.tight(f.add(&f.mul(&low, &f.constant(&Order::R2)), &high))
}
