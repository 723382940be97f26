//! Keccak-f\[1600\] (FIPS 202, section 3), one state in each lane, and [sponges](sponge) over it.

pub(crate) mod sponge;

use crate::simd::maker::is_amd;
use crate::simd::{Simd, enter, halves_mut, inlined};
use crate::unroll::unrolled;

/// A state in each lane: word x + 5·y is the lane of FIPS 202 at (x, y).
pub(crate) type States<S> = [<S as Simd>::Limb; WORDS];

/// Number of words in a state.
pub(crate) const WORDS: usize = 25;

/// The constant that step ι adds in each round (section 3.2.5).
pub(crate) const ROUND: [u64; 24] = {
    let mut constants = [0; 24];
    let (mut register, mut round) = (1_u8, 0);
    while round < 24 {
        let mut j = 0;
        while j <= 6 {
            constants[round] |= (register as u64 & 1) << ((1 << j) - 1);
            // Multiplied by x modulo x^8 + x^6 + x^5 + x^4 + 1.
            let carried = register >> 7;
            register = (register << 1) ^ (carried * 0x71);
            j += 1;
        }
        round += 1;
    }
    constants
};

const XOR: i32 = 0x96;
/// a ⊕ (¬b ∧ c).
const CHI: i32 = 0xd2;

/// The way in which permutations are computed.
///
/// Row by row takes ten more operations a round than column by column, but fewer of them wait for
/// each other. So the faster form depends on the core; `docs/lab/mlkem.md` has the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Row by row, always for the states of all lanes.
    Rows,
    /// Column by column where [`ternary`](Simd::ternary) is one instruction; in lanes of half the
    /// width while the upper lanes are idle.
    Columns,
}

impl Form {
    /// Returns the faster form on this CPU.
    pub(crate) fn of_this_cpu() -> Self {
        if is_amd() { Self::Rows } else { Self::Columns }
    }

    /// Computes Keccak-f\[1600\] of the states in the first `busy` lanes, and possibly of others.
    pub(crate) fn permute<S: Simd>(self, s: S, states: &mut States<S>, busy: usize) {
        match (self, s.lower()) {
            (Self::Columns, Some(lower)) if 2 * busy <= S::LANES => {
                self.permute_first(lower, halves_mut(states));
            }
            _ => self.permute_first::<S, 1>(s, states.as_chunks_mut().0),
        }
    }

    fn permute_first<S: Simd, const PARTS: usize>(self, s: S, states: &mut [[S::Limb; PARTS]]) {
        let states = states.try_into().expect("25 words");
        match self == Self::Columns && S::TERNARY {
            true => permute::<S, true, PARTS>(s, states),
            false => permute::<S, false, PARTS>(s, states),
        }
    }
}

/// Computes Keccak-f\[1600\] of the states in the first of `PARTS` parts of each word.
#[inline(never)]
fn permute<S: Simd, const BY_COLUMNS: bool, const PARTS: usize>(
    s: S,
    states: &mut [[S::Limb; PARTS]; WORDS],
) {
    enter!(s, [states], {
        let mut a = [states[0][0]; WORDS];
        for (a, word) in a.iter_mut().zip(&*states) {
            *a = word[0];
        }
        for constant in ROUND {
            a = round::<S, BY_COLUMNS>(s, &a, constant);
        }
        for (a, word) in a.iter().zip(states) {
            word[0] = *a;
        }
    });
}

/// Computes the steps of section 3.2.
#[inline(always)]
fn round<S: Simd, const BY_COLUMNS: bool>(s: S, a: &States<S>, constant: u64) -> States<S> {
    // θ: the sum of each column, and the number added to each column.
    let mut sums = [a[0]; 5];
    unrolled::<5>(inlined!(|x: usize| {
        sums[x] = if BY_COLUMNS {
            let three = s.ternary::<XOR>(a[x], a[x + 5], a[x + 10]);
            s.ternary::<XOR>(three, a[x + 15], a[x + 20])
        } else {
            let two = s.unmerged(s.xor(a[x], a[x + 5]));
            let four = s.ternary::<XOR>(two, a[x + 10], a[x + 15]);
            s.unmerged(s.xor(four, a[x + 20]))
        };
    }));
    let mut turned = [a[0]; 5];
    let mut added = [a[0]; 5];
    unrolled::<5>(inlined!(|x: usize| {
        turned[x] = s.rotate_right::<63>(sums[(x + 1) % 5]);
        if !BY_COLUMNS {
            added[x] = s.unmerged(s.xor(sums[(x + 4) % 5], turned[x]));
        }
    }));
    let theta = inlined!(|x: usize, word: S::Limb| -> S::Limb {
        if BY_COLUMNS {
            s.ternary::<XOR>(word, sums[(x + 4) % 5], turned[x])
        } else {
            s.xor(word, added[x])
        }
    });
    // The rest of θ, ρ and π: the word at (x, y), rotated left by the third number.
    macro_rules! moved {
        ($x:literal, $y:literal, 0) => {
            theta($x, a[$x + 5 * $y])
        };
        ($x:literal, $y:literal, $left:literal) => {
            s.rotate_right::<{ 64 - $left }>(moved!($x, $y, 0))
        };
    }
    // χ.
    let chi = inlined!(|b: [S::Limb; 5]| -> [S::Limb; 5] {
        let mut row = b;
        unrolled::<5>(inlined!(
            |x: usize| row[x] = s.ternary::<CHI>(b[x], b[(x + 1) % 5], b[(x + 2) % 5])
        ));
        row
    });
    #[rustfmt::skip]
    let mut rows = [
        chi([moved!(0, 0, 0), moved!(1, 1, 44), moved!(2, 2, 43), moved!(3, 3, 21), moved!(4, 4, 14)]),
        chi([moved!(3, 0, 28), moved!(4, 1, 20), moved!(0, 2, 3), moved!(1, 3, 45), moved!(2, 4, 61)]),
        chi([moved!(1, 0, 1), moved!(2, 1, 6), moved!(3, 2, 25), moved!(4, 3, 8), moved!(0, 4, 18)]),
        chi([moved!(4, 0, 27), moved!(0, 1, 36), moved!(1, 2, 10), moved!(2, 3, 15), moved!(3, 4, 56)]),
        chi([moved!(2, 0, 62), moved!(3, 1, 55), moved!(4, 2, 39), moved!(0, 3, 41), moved!(1, 4, 2)]),
    ];
    rows[0][0] = s.xor(rows[0][0], s.splat(constant));
    let mut a = *a;
    unrolled::<5>(inlined!(|y: usize| {
        let row: [S::Limb; 5] = rows[y];
        unrolled::<5>(inlined!(|x: usize| a[x + 5 * y] = row[x]));
    }));
    a
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::Random;

    use super::*;
    use crate::backend::on_all_lanes;
    use crate::simd::portable::Portable;
    use crate::simd::words_mut;

    fn check<S: Simd>(s: S) {
        let mut random = Random(1600);
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let mut states = [s.zero(); WORDS];
            words_mut(&mut states).fill_with(|| random.word());
            let expected: Vec<[u64; WORDS]> = (0..S::LANES)
                .map(|lane| {
                    let mut state =
                        core::array::from_fn(|i| words_mut(&mut states)[i * S::LANES + lane]);
                    keccak::Keccak::new().with_f1600(|permute| permute(&mut state));
                    state
                })
                .collect();
            for form in [Form::Rows, Form::Columns] {
                for busy in 1..=S::LANES {
                    let mut states = states;
                    form.permute(s, &mut states, busy);
                    for (i, word) in words_mut(&mut states).iter().enumerate() {
                        let (lane, word_of_lane) = (i % S::LANES, i / S::LANES);
                        assert!(lane >= busy || *word == expected[lane][word_of_lane]);
                    }
                }
            }
        }
    }

    #[test]
    fn permutations_are_those_of_an_independent_crate() {
        check(Portable::<1>);
        on_all_lanes!(check);
    }
}
