//! Multiples of points in constant time: k·G by a table that all lanes share, k·P by a table per
//! lane.
//!
//! Both write an odd k as Σ dᵢ·2^(w·i) with odd digits |dᵢ| < 2^w: no digit is zero, so no addition
//! is skipped and no partial sum is infinity. For an even k they take n − k and negate the result.

use super::base_table::{BASE_ENTRIES, BASE_WINDOW, base_table, base_windows, look_up_window};
use super::curve::Curve;
use super::digits::{add_power, bits, digit, make_odd, parts_for, parts_of};
use super::point::{
    Affine, Denominator, FieldOf, Point, add_assign, add_assign_complete, add_assign_mixed,
    add_assign_mixed_complete, double_times, odd_multiples,
};
use super::types::VECTORS;
use crate::modular::{Factor, Tight};
use crate::simd::{Simd, enter, inlined, rotate_lanes, words_mut};
use crate::unroll::unrolled;

/// Number of bits of a window of k·P.
const WINDOW: usize = 5;
/// Number of entries of its table.
pub(crate) const ENTRIES: usize = 1 << (WINDOW - 1);

/// Number of bits of a window of k·P in parts.
const PART_WINDOW: usize = 4;
/// Number of entries of its table.
pub(crate) const PART_ENTRIES: usize = 1 << (PART_WINDOW - 1);

/// Negates p in the lanes of `mask`. Its y is then below 1.01·p (P-256) or 10·p, and may only be
/// multiplied.
#[inline(always)]
fn negate_if<S: Simd, C: Curve<N>, const N: usize>(s: S, p: &mut Point<S::Limb, N>, mask: S::Mask) {
    let f = FieldOf::<S, C, N>::new(s);
    let negative = f.weak(f.negate(C::PAD_Y, &p.y));
    p.y = Tight(f.select(mask, &negative.0, &p.y.0));
}

/// Returns k·G for 0 ≤ k ≤ n, limbs below 2^52, in the first `count` lanes. Infinity where k ≡ 0.
pub(crate) fn mul_base<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    k: &[S::Limb; N],
    count: usize,
) -> Point<S::Limb, N> {
    let mut point = [Point::infinity(s)];
    mul_base_all::<S, C, N>(s, core::slice::from_ref(k), &mut point, count);
    let [point] = point;
    point
}

/// [`mul_base`] of several vectors with `count` scalars in all.
pub(crate) fn mul_base_all<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    scalars: &[[S::Limb; N]],
    points: &mut [Point<S::Limb, N>],
    count: usize,
) {
    debug_assert!(scalars.len() <= VECTORS && scalars.len() == points.len());
    const { assert!(base_windows(C::BITS) * BASE_WINDOW < 52 * N) };
    let never = enter!(s, s.any_bit(s.zero(), s.zero()));
    let mut odds = [[s.zero(); N]; VECTORS];
    let mut negated = [never; VECTORS];
    for ((k, negated), scalar) in odds.iter_mut().zip(&mut negated).zip(scalars) {
        enter!(s, {
            let odd = make_odd::<S, C, N>(s, scalar);
            (*k, *negated) = (odd.k, odd.negated);
            add_power(s, k, base_windows(C::BITS) * BASE_WINDOW);
        });
    }
    if 2 * count <= S::LANES {
        debug_assert!(points.len() == 1);
        points[0] = mul_base_in_parts::<S, C, N>(s, &odds[0], count);
    } else {
        mul_base_whole::<S, C, N>(s, &odds, points);
    }
    for (point, negated) in points.iter_mut().zip(negated) {
        enter!(s, negate_if::<S, C, N>(s, point, negated));
    }
    crate::secret::wipe(words_mut(odds.as_flattened_mut()));
}

/// Computes k·G for vectors of odd k, each in its own lane. All vectors go through a window before
/// the next window, so the entries of a window are loaded from the second-level cache only once.
///
/// Windows run from the lowest. Let Pᵢ be the sum below window i: |Pᵢ| < 2^(w·i) ≤ |dᵢ|·2^(w·i) <
/// n, so Pᵢ ≠ ±dᵢ·2^(w·i) except modulo n, which needs |Pᵢ| + |dᵢ|·2^(w·i) ≥ n. This is possible
/// only in the last window, whose addition is complete.
fn mul_base_whole<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    scalars: &[[S::Limb; N]],
    points: &mut [Point<S::Limb, N>],
) {
    let windows = base_windows(C::BITS);
    let table = base_table::<S, C, N>(s);
    let mut entry = Affine::empty(s);
    for (i, window) in table.chunks_exact(2 * N * BASE_ENTRIES).enumerate() {
        for (point, k) in points.iter_mut().zip(scalars) {
            let negative = enter!(s, {
                let digit = digit(s, k, BASE_WINDOW * i + 1, BASE_WINDOW);
                look_up_window(s, &mut entry, window, digit.index);
                digit.negative
            });
            match i {
                0 => *point = signed::<S, C, N>(s, &entry, negative),
                _ if i + 1 < windows => add_assign_mixed::<S, C, N>(s, point, &entry, negative),
                _ => add_assign_mixed_complete::<S, C, N>(s, point, &entry, negative),
            }
        }
    }
    entry.wipe();
}

/// Returns k·G for odd k of few requests, each of which has several lanes with a part of the
/// windows in each.
///
/// Within a lane and between lanes, the lower sum is smaller than the higher one, which is not
/// zero. If they agree modulo n, their sum or difference is ±n, as all are below 2n. n is odd, so
/// the lowest part must be among them, and the sum must reach n. This is possible only in the last
/// addition, which is complete.
fn mul_base_in_parts<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    k: &[S::Limb; N],
    count: usize,
) -> Point<S::Limb, N> {
    let length = base_windows(C::BITS).div_ceil(parts_for::<S>(count));
    let mut k = parts_of::<S, N>(s, k, count, BASE_WINDOW * length);
    sum_of_base::<S, C, N>(s, &mut k, count)
}

/// [`mul_base_in_parts`] for the parts `k`, which are wiped.
#[inline(always)]
pub(crate) fn sum_of_base<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    k: &mut [S::Limb; N],
    count: usize,
) -> Point<S::Limb, N> {
    let table = base_table::<S, C, N>(s);
    let parts = parts_for::<S>(count);
    let length = base_windows(C::BITS).div_ceil(parts);
    let (mut entry, mut looked_up) = (Affine::empty(s), Affine::empty(s));
    let (mut point, mut before) = (Point::infinity(s), Point::infinity(s));
    for i in 0..length {
        // The bits of a digit have the same place in every part.
        let mut digit = enter!(s, digit(s, k, BASE_WINDOW * i + 1, BASE_WINDOW));
        let windows = table.chunks_exact(2 * N * BASE_ENTRIES);
        for (part, window) in windows.skip(i).step_by(length).enumerate() {
            let mut own = [s.zero()];
            for lane in (part..S::LANES).step_by(parts) {
                words_mut(&mut own)[lane] = 1;
            }
            enter!(s, {
                look_up_window(s, &mut looked_up, window, digit.index);
                let own = s.any_bit(own[0], s.splat(1));
                let f = FieldOf::<S, C, N>::new(s);
                entry.x.0 = f.select(own, &looked_up.x.0, &entry.x.0);
                entry.y.0 = f.select(own, &looked_up.y.0, &entry.y.0);
            });
        }
        crate::secret::wipe(words_mut(core::slice::from_mut(&mut digit.index)));
        if i == 0 {
            point = signed::<S, C, N>(s, &entry, digit.negative);
            continue;
        }
        // The last part may have fewer windows than the others.
        let shorter = length * (parts - 1) + i >= base_windows(C::BITS);
        if shorter {
            before = point;
        }
        add_assign_mixed::<S, C, N>(s, &mut point, &entry, digit.negative);
        if shorter {
            for lane in (parts - 1..S::LANES).step_by(parts) {
                point.copy_lane(lane, &before, lane);
            }
        }
    }
    // These are sums of few windows. Each would reveal its digits.
    before.wipe();
    entry.wipe();
    looked_up.wipe();
    crate::secret::wipe(words_mut(k));
    sum_parts::<S, C, N>(s, &mut point, count);
    point
}

/// Returns ±entry, from a table of k·G.
fn signed<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    entry: &Affine<S::Limb, N>,
    negative: S::Mask,
) -> Point<S::Limb, N> {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let minus_y = f.tight(f.negate(1, &entry.y)).0;
        Point {
            x: entry.x,
            y: Tight(f.select(negative, &minus_y, &entry.y.0)),
            z: Factor(f.one().0),
        }
    })
}

/// The working memory of [`mul_point`].
pub(crate) type Table<L, const N: usize> = [Affine<L, N>; ENTRIES];

/// Computes k·P for 0 < k < n, limbs below 2^52, and P on the curve, affine, below 1.01·p, in the
/// first `count` lanes.
pub(crate) fn mul_point<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    table: &mut Table<S::Limb, N>,
    k: &[S::Limb; N],
    p: &Affine<S::Limb, N>,
    count: usize,
) -> Point<S::Limb, N> {
    let mut odd = enter!(s, make_odd::<S, C, N>(s, k));
    let p = enter!(
        s,
        Point {
            x: p.x,
            y: p.y,
            z: Factor(FieldOf::<S, C, N>::new(s).one().0),
        }
    );
    let mut point = if 2 * count <= S::LANES {
        let (table, _) = table.split_first_chunk_mut().expect("enough entries");
        mul_point_in_parts::<S, C, N>(s, table, &odd.k, &p, count)
    } else {
        mul_point_whole::<S, C, N>(s, table, &odd.k, &p)
    };
    enter!(s, negate_if::<S, C, N>(s, &mut point, odd.negated));
    crate::secret::wipe(words_mut(&mut odd.k));
    point
}

/// Computes k·P for an odd k, each in its own lane.
///
/// Windows run from the highest. Let A be the sum so far and d the next digit, so that the next sum
/// is A·2^w + d: |A|·2^w ≥ 2^w > |d|, so A·2^w ≠ ±d except modulo n. A·2^w ± d ≡ 0 needs A·2^w ≥ n
/// − |d|. This is possible only in the last window, whose addition is complete.
fn mul_point_whole<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    table: &mut Table<S::Limb, N>,
    k: &[S::Limb; N],
    p: &Point<S::Limb, N>,
) -> Point<S::Limb, N> {
    let mut ratios = [Factor([s.zero(); N]); ENTRIES];
    let denominator = odd_multiples::<S, C, N>(s, table, &mut ratios, p);
    // The highest digit is positive: (k >> w·top) | 1.
    let top = (C::BITS - 1) / WINDOW;
    let mut entry = Affine { x: p.x, y: p.y };
    enter!(s, {
        let index = bits(s, k, WINDOW * top + 1);
        look_up_own(s, &mut entry, table, index);
    });
    let mut point = Point {
        x: entry.x,
        y: entry.y,
        z: denominator.z,
    };
    for i in (0..top).rev() {
        double_times::<S, C, N>(s, &mut point, WINDOW);
        let negative = enter!(s, {
            let digit = digit(s, k, WINDOW * i + 1, WINDOW);
            look_up_own(s, &mut entry, table, digit.index);
            digit.negative
        });
        if i > 0 {
            add_assign::<S, C, N>(s, &mut point, &entry, &denominator, negative);
        } else {
            add_assign_complete::<S, C, N>(s, &mut point, &entry, &denominator, negative);
        }
    }
    entry.wipe();
    point
}

/// Computes k·P for odd k of few requests, each of which has several lanes: the lane of part j
/// computes Dⱼ·2^(b·j)·P, where Dⱼ has the digits of the b bits of k from b·j upwards. There are as
/// many doublings as in [`mul_point_whole`], but only a part of the additions.
///
/// Dⱼ is odd, so not zero, and |Dⱼ| < 2^b. Within a part no sum comes near n, so there is no
/// exception. Of two sums of parts that are added, the lower is smaller than the higher, which is
/// not zero. Modulo n they agree only if all parts are among them: the last addition is complete.
fn mul_point_in_parts<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    table: &mut [Affine<S::Limb, N>; PART_ENTRIES],
    k: &[S::Limb; N],
    p: &Point<S::Limb, N>,
    count: usize,
) -> Point<S::Limb, N> {
    let mut topped = *k;
    enter!(s, add_power(s, &mut topped, C::BITS));
    let width = C::BITS / parts_for::<S>(count);
    let mut k = parts_of::<S, N>(s, &topped, count, width);
    crate::secret::wipe(words_mut(&mut topped));
    sum_of_point::<S, C, N>(s, table, &mut k, p, count)
}

/// [`mul_point_in_parts`] for the parts `k`, which are wiped.
#[inline(always)]
pub(crate) fn sum_of_point<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    table: &mut [Affine<S::Limb, N>; PART_ENTRIES],
    k: &mut [S::Limb; N],
    p: &Point<S::Limb, N>,
    count: usize,
) -> Point<S::Limb, N> {
    const { assert!(C::BITS.is_multiple_of(S::LANES * PART_WINDOW)) };
    let parts = parts_for::<S>(count);
    let width = C::BITS / parts;
    let mut base = *p;
    for lane in 0..S::LANES {
        base.copy_lane(lane, p, (lane / parts).min(count - 1));
    }
    let mut bases = base;
    for part in 1..parts {
        double_times::<S, C, N>(s, &mut base, width);
        for lane in (part..S::LANES).step_by(parts) {
            bases.copy_lane(lane, &base, lane);
        }
    }
    let mut ratios = [Factor([s.zero(); N]); PART_ENTRIES];
    let denominator = odd_multiples::<S, C, N>(s, table, &mut ratios, &bases);
    let mut entry = Affine { x: p.x, y: p.y };
    let mut point = Point::infinity(s);
    let top = width / PART_WINDOW - 1;
    for i in (0..=top).rev() {
        let negative = enter!(s, {
            let digit = digit(s, k, PART_WINDOW * i + 1, PART_WINDOW);
            look_up_own(s, &mut entry, table, digit.index);
            digit.negative
        });
        if i == top {
            point = Point {
                x: entry.x,
                y: entry.y,
                z: denominator.z,
            };
            enter!(s, negate_if::<S, C, N>(s, &mut point, negative));
        } else {
            double_times::<S, C, N>(s, &mut point, PART_WINDOW);
            add_assign::<S, C, N>(s, &mut point, &entry, &denominator, negative);
        }
    }
    entry.wipe();
    crate::secret::wipe(words_mut(k));
    sum_parts::<S, C, N>(s, &mut point, count);
    point
}

/// Adds the parts of each request, and leaves the sum in the request's lane. Lanes without a
/// request repeat the last request, so that Z is zero only if the Z of a request is zero. All lanes
/// are added; only the sum in the lane of the lowest part is used.
fn sum_parts<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    point: &mut Point<S::Limb, N>,
    count: usize,
) {
    let parts = parts_for::<S>(count);
    let mut distance = 1;
    while distance < parts {
        let further = |limbs: &[S::Limb; N]| {
            let mut out = *limbs;
            rotate_lanes(&mut out, limbs, S::LANES, distance);
            out
        };
        let mut entry = Affine {
            x: Tight(further(&point.x.0)),
            y: Tight(further(&point.y.0)),
        };
        let mut z = Factor(further(&point.z.0));
        let (mut denominator, never) = enter!(s, {
            let denominator = Denominator::new(FieldOf::<S, C, N>::new(s), z);
            (denominator, s.any_bit(s.zero(), s.zero()))
        });
        distance *= 2;
        if distance < parts {
            add_assign::<S, C, N>(s, point, &entry, &denominator, never);
        } else {
            add_assign_complete::<S, C, N>(s, point, &entry, &denominator, never);
        }
        entry.wipe();
        crate::secret::wipe(words_mut(&mut z.0));
        denominator.wipe();
    }
    let mut sums = *point;
    for lane in 0..S::LANES {
        sums.copy_lane(lane, point, parts * lane.min(count - 1));
    }
    *point = sums;
    sums.wipe();
}

/// Computes `out = table[index]` by a scan of the whole table.
#[inline(always)]
fn look_up_own<S: Simd, const N: usize, const E: usize>(
    s: S,
    out: &mut Affine<S::Limb, N>,
    table: &[Affine<S::Limb, N>; E],
    index: S::Limb,
) {
    let bits: [S::Mask; 4] =
        core::array::from_fn(inlined!(|b| s.any_bit(index, s.splat(1_u64 << b))));
    unrolled::<N>(inlined!(|i| {
        let x = inlined!(|e: usize| table[e].x.0[i]);
        let y = inlined!(|e: usize| table[e].y.0[i]);
        out.x.0[i] = pick::<S, E>(s, &bits, x);
        out.y.0[i] = pick::<S, E>(s, &bits, y);
    }));
}

/// Returns limb(i) for i below `E`, where `bits` are the bits of i: a tree of `E` − 1 selections.
#[inline(always)]
fn pick<S: Simd, const E: usize>(
    s: S,
    bits: &[S::Mask; 4],
    limb: impl Fn(usize) -> S::Limb,
) -> S::Limb {
    const { assert!(E == 8 || E == 16) };
    let two = inlined!(|e: usize| s.select(bits[0], limb(e + 1), limb(e)));
    let four = inlined!(|e: usize| s.select(bits[1], two(e + 2), two(e)));
    let eight = inlined!(|e: usize| s.select(bits[2], four(e + 4), four(e)));
    if const { E == 8 } {
        eight(0)
    } else {
        s.select(bits[3], eight(8), eight(0))
    }
}
