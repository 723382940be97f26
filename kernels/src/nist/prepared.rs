//! Public keys with a table of their multiples, and the check of signatures by them: in variable
//! time, as nothing of it is secret.
//!
//! u2, or u2 + n where that is odd, is written as Σ dᵢ·2^(5·i) with odd digits |dᵢ| < 32, as in
//! [`digits`](super::digits). The table of a key holds the odd multiples (2j + 1)·2^(5·i)·Q, so
//! u2·Q is a sum of entries, without doublings. Each lane reads the entries of its own key by their
//! indices. The sum starts with u1·G.
//!
//! Additions are incomplete. They cannot go wrong unnoticed: a sum whose operands are equal or
//! opposite, or of which one is infinity, has Z = 0, and every sum from there on has Z = 0, since Z
//! of a sum is a multiple of Z of both operands. Signatures with Z = 0 at the end are checked again
//! without the table. A signer can make such signatures on purpose; by chance they do not occur.

use core::fmt;
use core::ops::Range;

use super::base_table::scale;
use super::batch::{Numbers, differs_from_x, load, scalars, valid_point, verify, word};
use super::curve::Curve;
use super::digits::{bits, digit};
use super::inverse::invert_all;
use super::point::{Affine, FieldOf, Point, add_assign_mixed, double_times, odd_multiples};
use super::scalar_mul::mul_base_all;
use super::types::{Error, PublicKey, Signature, VECTORS, VerifyJob};
use crate::arena::Line;
use crate::layout::{pack, row_of_lane, rows_to_lanes, unpack};
use crate::modular::{Factor, Field, Modulus, Tight, none};
use crate::simd::{MAX_LANES, Simd, enter, words, words_mut};

/// Number of bits of a window.
const WINDOW: usize = 5;
/// Number of entries of a window.
const ENTRIES: usize = 1 << (WINDOW - 1);

/// Returns the number of windows of numbers below 2n.
const fn windows(bits: usize) -> usize {
    (bits + 1).div_ceil(WINDOW)
}

/// A public key with a table of its multiples: 53,248 bytes on P-256, 118,272 on P-384.
#[derive(Clone)]
pub struct PreparedKey<const BYTES: usize> {
    key: PublicKey<BYTES>,
    /// Windows of [`ENTRIES`] entries: x, then y, in words of 64 bits, in Montgomery form.
    table: Box<[Line]>,
}

impl<const BYTES: usize> PreparedKey<BYTES> {
    /// Number of words of a coordinate.
    const WORDS: usize = BYTES / 8;
    /// Number of bytes of the table.
    pub const TABLE_BYTES: usize = windows(8 * BYTES) * ENTRIES * 2 * BYTES;

    /// Returns the key without its table.
    pub fn key(&self) -> &PublicKey<BYTES> {
        &self.key
    }

    fn new(key: PublicKey<BYTES>) -> Self {
        const { assert!(Self::TABLE_BYTES.is_multiple_of(64)) };
        Self {
            key,
            table: vec![Line::ZERO; Self::TABLE_BYTES / 64].into_boxed_slice(),
        }
    }

    /// Returns the place of an entry, x and y, among the words of the table.
    fn place(window: usize, index: usize) -> Range<usize> {
        let first = (window * ENTRIES + index) * 2 * Self::WORDS;
        first..first + 2 * Self::WORDS
    }

    fn entry(&self, window: usize, index: usize) -> &[u64] {
        &words(&self.table)[Self::place(window, index)]
    }

    fn entry_mut(&mut self, window: usize, index: usize) -> &mut [u64] {
        &mut words_mut(&mut self.table)[Self::place(window, index)]
    }
}

impl<const BYTES: usize> fmt::Debug for PreparedKey<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedKey").field(&self.key).finish()
    }
}

/// A public key to prepare.
#[derive(Debug)]
pub struct PrepareJob<'a, const BYTES: usize> {
    /// The key.
    pub key: &'a PublicKey<BYTES>,
    /// Result, set by `prepare`.
    pub result: Option<Result<PreparedKey<BYTES>, Error>>,
}

impl<'a, const BYTES: usize> PrepareJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(key: &'a PublicKey<BYTES>) -> Self {
        Self { key, result: None }
    }
}

/// A signature to check with a prepared key.
#[derive(Debug)]
pub struct PreparedVerifyJob<'a, const BYTES: usize> {
    /// The signer's public key Q.
    pub key: &'a PreparedKey<BYTES>,
    /// The digest, as in [`SignJob`](super::SignJob).
    pub digest: &'a [u8],
    /// The signature (r, s).
    pub signature: &'a Signature<BYTES>,
    /// Result, set by `ecdsa_verify_prepared_vartime`.
    pub result: Option<Result<(), Error>>,
}

impl<'a, const BYTES: usize> PreparedVerifyJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(
        key: &'a PreparedKey<BYTES>,
        digest: &'a [u8],
        signature: &'a Signature<BYTES>,
    ) -> Self {
        Self {
            key,
            digest,
            signature,
            result: None,
        }
    }
}

/// Computes the tables of keys. For the first entries of the windows, each lane has a key. For the
/// other entries, each lane has a window of any of these keys.
pub(super) fn prepare<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    jobs: &mut [PrepareJob<'_, BYTES>],
) {
    let windows = const { windows(C::BITS) };
    for jobs in jobs.chunks_mut(S::LANES) {
        let x = load::<S, N>(s, jobs.iter().map(|job| &job.key.x[..]));
        let y = load::<S, N>(s, jobs.iter().map(|job| &job.key.y[..]));
        let (key, bad) = valid_point::<S, C, N>(s, &x, &y);
        let one = enter!(s, Factor(FieldOf::<S, C, N>::new(s).one().0));
        let mut base = Point {
            x: key.x,
            y: key.y,
            z: one,
        };
        let mut bases = Vec::with_capacity(windows);
        for _ in 0..windows {
            bases.push(base);
            double_times::<S, C, N>(s, &mut base, WINDOW);
        }
        let mut keys: Vec<_> = jobs.iter().map(|job| PreparedKey::new(*job.key)).collect();
        let count = windows * keys.len();
        for first in (0..count).step_by(VECTORS * S::LANES) {
            let count = (count - first).min(VECTORS * S::LANES);
            fill_windows::<S, C, N, BYTES>(s, &bases, &mut keys, first, count);
        }
        for (lane, (job, key)) in jobs.iter_mut().zip(keys).enumerate() {
            job.result = Some(match word::<S>(&bad, lane) {
                0 => Ok(key),
                _ => Err(Error::Point),
            });
        }
    }
}

/// Computes `count` windows from number `first` upwards, where the windows of one key follow those
/// of the key before.
fn fill_windows<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    bases: &[Point<S::Limb, N>],
    keys: &mut [PreparedKey<BYTES>],
    first: usize,
    count: usize,
) {
    let vectors = count.div_ceil(S::LANES);
    let mut entries = vec![[Affine::empty(s); ENTRIES]; vectors];
    // The key and the window of each lane.
    let mut places = [(0, 0); VECTORS * MAX_LANES];
    let mut inverses = Numbers::<S::Limb, N>::new(s);
    let mut ratios = [Factor([s.zero(); N]); ENTRIES];
    for (v, entries) in entries.iter_mut().enumerate() {
        let mut points = bases[0];
        for lane in 0..S::LANES {
            let number = first + (v * S::LANES + lane).min(count - 1);
            let (key, window) = (number / bases.len(), number % bases.len());
            points.copy_lane(lane, &bases[window], key);
            places[v * S::LANES + lane] = (key, window);
        }
        let denominator = odd_multiples::<S, C, N>(s, entries, &mut ratios, &points);
        inverses.0[v] = denominator.z.0;
    }
    let mut prefixes = Numbers::<S::Limb, N>::new(s);
    invert_all::<S, C::Field, N>(s, &mut inverses.0[..vectors], &mut prefixes.0[..vectors]);
    for (v, entries) in entries.iter().enumerate() {
        let places = &places[v * S::LANES..count.min((v + 1) * S::LANES)];
        for (index, entry) in entries.iter().enumerate() {
            let entry = scale::<S, C, N>(s, entry, &Factor(inverses.0[v]));
            let packed = enter!(
                s,
                [pack::<S, N>(s, &entry.x.0), pack::<S, N>(s, &entry.y.0)]
            );
            for (lane, &(key, window)) in places.iter().enumerate() {
                let entry = keys[key].entry_mut(window, index);
                for (to, from) in entry.chunks_exact_mut(BYTES / 8).zip(&packed) {
                    row_of_lane::<S>(to, from, lane);
                }
            }
        }
    }
}

/// Adds u2·Q, for 0 < u2 < n and the key of each lane, to each of `points`. `key` returns the key
/// of a lane of a vector.
fn add_multiples<'a, S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    points: &mut [Point<S::Limb, N>],
    scalars: &[[S::Limb; N]],
    key: impl Fn(usize, usize) -> &'a PreparedKey<BYTES>,
) {
    const { assert!(8 * BYTES == C::BITS && C::BITS + 1 < 52 * N) };
    let top = const { windows(C::BITS) } - 1;
    let mut odds = [[s.zero(); N]; VECTORS];
    for (odd, scalar) in odds.iter_mut().zip(scalars) {
        *odd = enter!(s, odd_by_adding::<S, C, N>(s, scalar));
    }
    let never = enter!(s, s.any_bit(s.zero(), s.zero()));
    let mut packed = [[[s.zero(); N]; 2]; VECTORS];
    let mut negative = [never; VECTORS];
    for i in 0..=top {
        // All entries of the window are read before the first addition, so that the CPU waits for
        // memory once.
        for (v, odd) in odds.iter().take(points.len()).enumerate() {
            let index = enter!(s, {
                // The highest digit is positive: (k >> w·top) | 1.
                if i == top {
                    bits(s, odd, WINDOW * top + 1)
                } else {
                    let digit = digit(s, odd, WINDOW * i + 1, WINDOW);
                    negative[v] = digit.negative;
                    digit.index
                }
            });
            let index = words(core::slice::from_ref(&index));
            let entry = |lane: usize| match index.get(lane) {
                Some(index) => key(v, lane).entry(i, *index as usize),
                None => key(v, 0).entry(i, 0),
            };
            let packed = &mut packed[v].as_flattened_mut()[..2 * PreparedKey::<BYTES>::WORDS];
            rows_to_lanes(s, packed, &core::array::from_fn(entry));
        }
        for (v, point) in points.iter_mut().enumerate() {
            let (x, y) = packed[v]
                .as_flattened()
                .split_at(PreparedKey::<BYTES>::WORDS);
            let entry = enter!(
                s,
                Affine {
                    x: Tight(unpack::<S, N>(s, x)),
                    y: Tight(unpack::<S, N>(s, y)),
                }
            );
            let negative = if i == top { never } else { negative[v] };
            add_assign_mixed::<S, C, N>(s, point, &entry, negative);
        }
    }
}

/// Returns k or k + n, whichever is odd.
#[inline(always)]
fn odd_by_adding<S: Simd, C: Curve<N>, const N: usize>(s: S, k: &[S::Limb; N]) -> [S::Limb; N] {
    let o = Field::<S, C::Order, N>::new(s);
    let order = o.constant(&<C::Order as Modulus<N>>::VALUE);
    let other = o.tight(o.add(&Tight(*k), &order)).0;
    o.select(s.any_bit(k[0], s.splat(1)), k, &other)
}

pub(super) fn verify_prepared<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    jobs: &mut [PreparedVerifyJob<'_, BYTES>],
) {
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let claims = group.iter().map(|job| (job.digest, job.signature));
        let numbers = scalars::<S, C, N, BYTES>(s, claims.collect());
        let count = group.len().div_ceil(S::LANES);
        let mut points = [Point::infinity(s); VECTORS];
        let points = &mut points[..count];
        mul_base_all::<S, C, N>(s, &numbers.u1[..count], points, group.len());
        add_multiples::<S, C, N, BYTES>(s, points, &numbers.u2[..count], |v, lane| {
            group[(v * S::LANES + lane).min(group.len() - 1)].key
        });
        let mut exceptional = Vec::new();
        for (v, jobs) in group.chunks_mut(S::LANES).enumerate() {
            let (wrong, infinite) = enter!(s, {
                let f = FieldOf::<S, C, N>::new(s);
                let infinite = none(s, f.is_nonzero(&points[v].z));
                (
                    differs_from_x::<S, C, N>(s, &points[v], &numbers.r[v]),
                    s.select(infinite, s.splat(1), s.zero()),
                )
            });
            for (lane, job) in jobs.iter_mut().enumerate() {
                let is_bad = word::<S>(&numbers.bad[v], lane) != 0;
                job.result = Some(match word::<S>(&wrong, lane) {
                    0 if !is_bad => Ok(()),
                    _ => Err(Error::Signature),
                });
                if !is_bad && word::<S>(&infinite, lane) != 0 {
                    exceptional.push(v * S::LANES + lane);
                }
            }
        }
        check_again::<S, C, N, BYTES>(s, group, &exceptional);
    }
}

/// Checks the signatures at `places` without tables.
#[cold]
#[inline(never)]
fn check_again<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    group: &mut [PreparedVerifyJob<'_, BYTES>],
    places: &[usize],
) {
    let again = |&place: &usize| {
        let PreparedVerifyJob {
            key,
            digest,
            signature,
            ..
        } = &group[place];
        VerifyJob::new(&key.key, digest, signature)
    };
    let mut again: Vec<_> = places.iter().map(again).collect();
    verify::<S, C, N, BYTES>(s, &mut again);
    let results: Vec<_> = again.into_iter().map(|job| job.result).collect();
    for (&place, result) in places.iter().zip(results) {
        group[place].result = result;
    }
}
