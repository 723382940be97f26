//! The table for k·G, which all lanes share, and the look-up of an entry in it.

use super::curve::Curve;
use super::inverse::invert_all;
use super::point::{Affine, FieldOf, Point, double_times, odd_multiples};
use crate::modular::Factor;
use crate::simd::{Simd, enter, inlined, words};

/// Number of bits of a window of k·G. A window has 2^6 entries, and there are no doublings between
/// windows.
pub(super) const BASE_WINDOW: usize = 7;
pub(super) const BASE_ENTRIES: usize = 1 << (BASE_WINDOW - 1);

/// Returns the number of windows of k·G.
pub(super) const fn base_windows(bits: usize) -> usize {
    bits.div_ceil(BASE_WINDOW)
}

/// Returns the table for k·G: (2j+1)·2^(w·i)·G at `[i][coordinate][limb][j]`, affine, fully
/// reduced.
///
/// P-256: 37·2·5·64 words (185 KiB); P-384: 55·2·8·64 words (440 KiB). The lanes compute it at the
/// first use. Threads that come at the same time each compute one, and all but one drop theirs. If
/// they waited for one thread instead, a child forked meanwhile would wait forever.
pub(super) fn base_table<S: Simd, C: Curve<N>, const N: usize>(s: S) -> &'static [u64] {
    C::table().get_or_init(|| Box::new(make_base_table::<S, C, N>(s)))
}

/// Computes the table, one window in each lane.
fn make_base_table<S: Simd, C: Curve<N>, const N: usize>(s: S) -> Box<[u64]> {
    let f = FieldOf::<S, C, N>::new(s);
    let windows = base_windows(C::BITS);
    let mut table = vec![0; windows * 2 * N * BASE_ENTRIES].into_boxed_slice();
    let at = |window: usize, coordinate: usize, limb: usize, entry: usize| {
        ((window * 2 + coordinate) * N + limb) * BASE_ENTRIES + entry
    };

    let mut base = enter!(
        s,
        Point {
            x: f.encode(&f.constant(&C::G.0)),
            y: f.encode(&f.constant(&C::G.1)),
            z: Factor(f.one().0),
        }
    );
    for first in (0..windows).step_by(S::LANES) {
        // Lane l: 2^(w·(first + l))·G.
        let mut bases = base;
        for lane in 0..S::LANES {
            bases.copy_lane(lane, &base, lane);
            double_times::<S, C, N>(s, &mut base, BASE_WINDOW);
        }
        let mut entries = [Affine::empty(s); BASE_ENTRIES];
        let mut ratios = [Factor([s.zero(); N]); BASE_ENTRIES];
        let denominator = odd_multiples::<S, C, N>(s, &mut entries, &mut ratios, &bases);
        let mut inverse = [denominator.z.0];
        invert_all::<S, C::Field, N>(s, &mut inverse, &mut [denominator.z.0]);
        for (j, entry) in entries.iter().enumerate() {
            let entry = scale::<S, C, N>(s, entry, &Factor(inverse[0]));
            for (coordinate, limbs) in [entry.x.0, entry.y.0].iter().enumerate() {
                for (limb, lanes) in words(limbs).chunks_exact(S::LANES).enumerate() {
                    for (lane, &word) in lanes.iter().enumerate() {
                        if first + lane < windows {
                            table[at(first + lane, coordinate, limb, j)] = word;
                        }
                    }
                }
            }
        }
    }
    table
}

/// Returns (x/z², y/z³), fully reduced, in Montgomery form, from 1/z.
#[inline(never)]
pub(super) fn scale<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    p: &Affine<S::Limb, N>,
    inverse: &Factor<S::Limb, N>,
) -> Affine<S::Limb, N> {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let square = f.factor(f.sqr(inverse));
        let cube = f.factor(f.mul(inverse, &square));
        Affine {
            x: f.reduced(f.tight(f.mul(&p.x, &square))),
            y: f.reduced(f.tight(f.mul(&p.y, &cube))),
        }
    })
}

#[inline(always)]
pub(super) fn look_up_window<S: Simd, const N: usize>(
    s: S,
    entry: &mut Affine<S::Limb, N>,
    window: &[u64],
    index: S::Limb,
) {
    let (x, y) = window.split_at(N * BASE_ENTRIES);
    look_up_shared(s, &mut entry.x.0, x, index);
    look_up_shared(s, &mut entry.y.0, y, index);
}

/// Computes `out[i] = table[i][index]`, for a table of limbs that all lanes share.
#[inline(always)]
fn look_up_shared<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    table: &[u64],
    index: S::Limb,
) {
    const { assert!(BASE_ENTRIES == 64) };
    let (bit4, bit5) = (
        s.any_bit(index, s.splat(1 << 4)),
        s.any_bit(index, s.splat(1 << 5)),
    );
    for (i, out) in out.iter_mut().enumerate() {
        let quarter = inlined!(|q: usize| {
            let entries = &table[BASE_ENTRIES * i + 16 * q..];
            s.look_up_16(entries.first_chunk().expect("sixteen entries"), index)
        });
        let low = s.select(bit4, quarter(1), quarter(0));
        let high = s.select(bit4, quarter(3), quarter(2));
        *out = s.select(bit5, high, low);
    }
}
