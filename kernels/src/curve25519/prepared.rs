//! Public keys of Ed25519 with tables of their multiples, and the check of signatures with these
//! tables. All inputs are public, so the time is variable.
//!
//! The hash k is written as Σ dᵢ·2^(5·i) with digits from −16 to 15. The table of a key A holds the
//! multiples −j·2^(5·i)·A, so −k·A is a sum of entries, without doublings. Each lane reads the
//! entries of its own key by their indices. The sum starts with S·B.
//!
//! The digits represent the integer k, not just a number congruent to k modulo the order L, and the
//! formulas are complete. So the sum is the point of [`verify_equation`](super::verify_equation)
//! for every key, also for one with a part of small order.

use core::fmt;
use core::ops::Range;

use super::Error;
use super::batch::VECTORS;
use super::batch_inverse::invert_all;
use super::comb;
use super::convert::{Limbs, store};
use super::ed25519::{
    Claim, Points, PublicKey, Signature, first_half, hashes, is_too_large, points_of,
    second_halves_of,
};
use super::edwards::{Affine, Point, scaled};
use super::field::{Factor, LIMBS};
use super::verify_equation::minus_points;
use crate::arena::Line;
use crate::backend::{Backend, dispatch_25519};
use crate::layout::{pack, row_of_lane, rows_to_lanes, unpack};
use crate::simd::{MAX_LANES, Simd, enter, words, words_mut};

/// Number of bits of a window.
const WINDOW: usize = 5;
/// Number of windows of a number below L.
const WINDOWS: usize = 253_usize.div_ceil(WINDOW);
/// Number of entries of a window.
const ENTRIES: usize = 1 << (WINDOW - 1);
/// Number of words of an entry: the three numbers of an [`Affine`].
const WORDS: usize = 12;

/// The neutral element as an entry: (y + x)/2, (y − x)/2, d·x·y.
const NEUTRAL: [u64; WORDS] = {
    let half = [u64::MAX - 8, u64::MAX, u64::MAX, u64::MAX >> 2];
    let [a, b, c, d] = half;
    [a, b, c, d, a, b, c, d, 0, 0, 0, 0]
};

/// A public key with a table of its multiples, of 78,336 bytes.
#[derive(Clone)]
pub struct PreparedKey {
    key: PublicKey,
    /// Windows of [`ENTRIES`] entries.
    table: Box<[Line]>,
}

impl PreparedKey {
    /// Number of bytes of the table.
    pub const TABLE_BYTES: usize = 8 * WORDS * ENTRIES * WINDOWS;

    /// Returns the key without its table.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    fn new(key: PublicKey) -> Self {
        const { assert!(Self::TABLE_BYTES.is_multiple_of(64)) };
        Self {
            key,
            table: vec![Line::ZERO; Self::TABLE_BYTES / 64].into_boxed_slice(),
        }
    }

    /// Returns the place of the entry for the digit ±(`index` + 1) among the words of the table.
    fn place(window: usize, index: usize) -> Range<usize> {
        let first = WORDS * (ENTRIES * window + index);
        first..first + WORDS
    }

    /// Returns the entry for the absolute value of a digit.
    fn entry(&self, window: usize, digit: usize) -> &[u64] {
        match digit.checked_sub(1) {
            Some(index) => &words(&self.table)[Self::place(window, index)],
            None => &NEUTRAL,
        }
    }

    fn entry_mut(&mut self, window: usize, index: usize) -> &mut [u64] {
        &mut words_mut(&mut self.table)[Self::place(window, index)]
    }
}

impl fmt::Debug for PreparedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedKey").field(&self.key).finish()
    }
}

/// A public key to prepare.
#[derive(Debug)]
pub struct PrepareJob<'a> {
    /// The key.
    pub key: &'a PublicKey,
    /// Result, set by [`prepare`].
    pub result: Option<Result<PreparedKey, Error>>,
}

impl<'a> PrepareJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a PublicKey) -> Self {
        Self { key, result: None }
    }
}

/// A signature to check with a prepared key.
#[derive(Debug)]
pub struct PreparedVerifyJob<'a> {
    /// The signer's public key.
    pub key: &'a PreparedKey,
    /// The message, of any length.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a Signature,
    /// Result, set by [`verify_prepared_vartime`].
    pub result: Option<Result<(), Error>>,
}

impl<'a> PreparedVerifyJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a PreparedKey, message: &'a [u8], signature: &'a Signature) -> Self {
        Self {
            key,
            message,
            signature,
            result: None,
        }
    }
}

impl Claim for PreparedVerifyJob<'_> {
    fn parts(&self) -> (&PublicKey, &[u8], &Signature) {
        (&self.key.key, self.message, self.signature)
    }
}

/// Prepares public keys: computes tables of their multiples.
///
/// The result is [`Error::Point`] if the key is not a point.
pub fn prepare(backend: Backend, jobs: &mut [PrepareJob<'_>]) {
    dispatch_25519!(backend, jobs, prepare_in_lanes);
}

/// Checks signatures as [`verify_vartime`](super::ed25519::verify_vartime) does, with the same
/// results, in less time. The keys of a batch may be different.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::curve25519::ed25519::{SecretKey, Seed, SignJob, sign};
/// use lockstep_kernels::curve25519::prepared::{
///     PrepareJob, PreparedVerifyJob, prepare, verify_prepared_vartime,
/// };
///
/// let key = SecretKey::from_seed(Backend::PORTABLE, &Seed::from_bytes(&[1; 32]));
/// let mut jobs = [SignJob::new(&key, b"one")];
/// sign(Backend::PORTABLE, &mut jobs);
/// let signature = jobs[0].result.expect("set").expect("a correct signature");
///
/// let mut jobs = [PrepareJob::new(key.public())];
/// prepare(Backend::PORTABLE, &mut jobs);
/// let [prepared] = jobs.map(|job| job.result.expect("set").expect("a point"));
/// let mut jobs = [
///     PreparedVerifyJob::new(&prepared, b"one", &signature),
///     PreparedVerifyJob::new(&prepared, b"two", &signature),
/// ];
/// verify_prepared_vartime(Backend::PORTABLE, &mut jobs);
/// let [right, wrong] = jobs.map(|job| job.result.expect("set"));
/// assert!(right.is_ok() && wrong.is_err());
/// ```
pub fn verify_prepared_vartime(backend: Backend, jobs: &mut [PreparedVerifyJob<'_>]) {
    dispatch_25519!(backend, jobs, verify_in_lanes);
}

/// Computes the tables of keys. While the first entry of each window is computed, each lane has a
/// key. After that, each lane has one window of one of these keys.
fn prepare_in_lanes<S: Simd>(s: S, jobs: &mut [PrepareJob<'_>]) {
    for pair in jobs.chunks_mut(2 * S::LANES) {
        let (y, sign) = points_of(s, |i| Some(pair.get(i)?.key));
        let (minus_a, found) = minus_points(s, &y, &sign);
        for (half, jobs) in pair.chunks_mut(S::LANES).enumerate() {
            let mut base = minus_a[half];
            let mut bases = Vec::with_capacity(WINDOWS);
            for _ in 0..WINDOWS {
                bases.push(base.factors());
                base.double_assign(WINDOW);
            }
            let mut keys: Vec<_> = jobs.iter().map(|job| PreparedKey::new(*job.key)).collect();
            let count = WINDOWS * keys.len();
            for first in (0..count).step_by(VECTORS * S::LANES) {
                let count = (count - first).min(VECTORS * S::LANES);
                fill_windows(s, &bases, &mut keys, first, count);
            }
            for (lane, (job, key)) in jobs.iter_mut().zip(keys).enumerate() {
                job.result = Some(match words(core::slice::from_ref(&found[half]))[lane] {
                    1 => Ok(key),
                    _ => Err(Error::Point),
                });
            }
        }
    }
}

/// Computes `count` windows from number `first` upwards. Windows are numbered key by key.
fn fill_windows<S: Simd>(
    s: S,
    bases: &[[Limbs<S>; 3]],
    keys: &mut [PreparedKey],
    first: usize,
    count: usize,
) {
    let mut points = Vec::with_capacity(VECTORS * ENTRIES);
    // The key and the window of each lane.
    let mut places = [(0, 0); VECTORS * MAX_LANES];
    for v in 0..count.div_ceil(S::LANES) {
        let mut base = bases[0];
        for lane in 0..S::LANES {
            let number = first + (v * S::LANES + lane).min(count - 1);
            let (key, window) = (number / WINDOWS, number % WINDOWS);
            places[v * S::LANES + lane] = (key, window);
            let from = words(bases[window].as_flattened())[key..].iter();
            let to = words_mut(base.as_flattened_mut())[lane..].iter_mut();
            for (to, from) in to.step_by(S::LANES).zip(from.step_by(S::LANES)) {
                *to = *from;
            }
        }
        let mut point = Point::from_projective(s, &base);
        let step = point.to_cached();
        for _ in 1..ENTRIES {
            points.push(point.factors());
            point.add_assign(&step);
        }
        points.push(point.factors());
    }
    let mut inverses: Vec<_> = points.iter().map(|[_, _, z]| *z).collect();
    let mut running = inverses.clone();
    invert_all(s, &mut inverses, &mut running);
    for (number, ([x, y, _], inverse)) in points.iter().zip(&inverses).enumerate() {
        let (v, index) = (number / ENTRIES, number % ENTRIES);
        let [x, y] = scaled(s, x, y, inverse);
        let packed = Affine::limbs(s, &x, &y).map(|limbs| enter!(s, pack::<S, LIMBS>(s, &limbs)));
        let places = &places[v * S::LANES..count.min((v + 1) * S::LANES)];
        for (lane, &(key, window)) in places.iter().enumerate() {
            let entry = keys[key].entry_mut(window, index);
            for (to, from) in entry.chunks_exact_mut(WORDS / 3).zip(&packed) {
                row_of_lane::<S>(to, from, lane);
            }
        }
    }
}

/// Returns the digits of a scalar below L, the lowest first: from −16 to 15.
fn digits(scalar: &[u64; 4]) -> [i8; WINDOWS] {
    let mut carry = 0;
    core::array::from_fn(|i| {
        let (word, shift) = (WINDOW * i / 64, WINDOW * i % 64);
        let above = scalar.get(word + 1).copied().unwrap_or(0);
        let both = u128::from(scalar[word]) | u128::from(above) << 64;
        let digit = (both >> shift) as i8 & ((1 << WINDOW) - 1);
        let digit = digit + carry;
        carry = i8::from(digit >= 1 << (WINDOW - 1));
        digit - (carry << WINDOW)
    })
}

fn verify_in_lanes<S: Simd>(s: S, jobs: &mut [PreparedVerifyJob<'_>]) {
    let table = comb::table(s);
    for group in jobs.chunks_mut(VECTORS * S::LANES) {
        let count = group.len().div_ceil(S::LANES);
        let mut seconds = [[s.zero(); LIMBS]; VECTORS];
        let mut too_large = [s.zero(); VECTORS];
        let mut numbers = [[0; MAX_LANES * VECTORS]; WINDOWS];
        for (v, jobs) in group.chunks(S::LANES).enumerate() {
            let k = hashes(s, jobs);
            for l in 0..jobs.len() {
                for (number, digit) in numbers.iter_mut().zip(digits(&store::<S>(&k, l))) {
                    number[v * S::LANES + l] = digit;
                }
            }
            seconds[v] = second_halves_of(s, jobs);
            too_large[v] = is_too_large(s, &seconds[v]);
        }
        let mut sums = [Point::neutral(s); VECTORS];
        comb::multiply(s, table, &seconds[..count], |v, point| sums[v] = *point);
        add_multiples(s, &mut sums[..count], group, &numbers);
        let mut points = Points::new(s);
        for (v, sum) in sums[..count].iter().enumerate() {
            points.set(v, sum.factors());
        }
        points.divide(s, group.len());
        let too_large = words(&too_large);
        for (i, job) in group.iter_mut().enumerate() {
            let is_good = too_large[i] == 0 && points.encoding(i) == *first_half(job.signature);
            job.result = Some(match is_good {
                true => Ok(()),
                false => Err(Error::Signature),
            });
        }
    }
}

/// Adds −k·A in each lane. `digits` has the digits of each k, window by window.
fn add_multiples<S: Simd>(
    s: S,
    sums: &mut [Point<S>],
    jobs: &[PreparedVerifyJob<'_>],
    digits: &[[i8; MAX_LANES * VECTORS]; WINDOWS],
) {
    let mut packed = [[s.zero(); WORDS]; VECTORS];
    let mut negative = [s.zero(); VECTORS];
    for (window, digits) in digits.iter().enumerate() {
        // All entries of the window are read before the first addition, so that the CPU waits for
        // memory once.
        for (v, packed) in packed.iter_mut().enumerate().take(sums.len()) {
            let job = |lane: usize| (v * S::LANES + lane).min(jobs.len() - 1);
            let signs = words_mut(core::slice::from_mut(&mut negative[v]));
            for (lane, sign) in signs.iter_mut().enumerate() {
                *sign = u64::from(digits[job(lane)] < 0);
            }
            let entry = |lane: usize| {
                let job = job(lane);
                let digit = digits[job].unsigned_abs();
                jobs[job].key.entry(window, digit.into())
            };
            rows_to_lanes(s, packed, &core::array::from_fn(entry));
        }
        for (v, sum) in sums.iter_mut().enumerate() {
            add_entry(s, sum, &packed[v], negative[v]);
        }
    }
}

/// Adds an entry, or subtracts it in the lanes where `negative` is 1.
#[inline(never)]
fn add_entry<S: Simd>(s: S, sum: &mut Point<S>, packed: &[S::Limb; WORDS], negative: S::Limb) {
    enter!(s, [sum], {
        let [plus, minus, dt] = [&packed[..4], &packed[4..8], &packed[8..]];
        let entry = Affine {
            plus: Factor::from_limbs(s, unpack::<S, LIMBS>(s, plus)),
            minus: Factor::from_limbs(s, unpack::<S, LIMBS>(s, minus)),
            dt: Factor::from_limbs(s, unpack::<S, LIMBS>(s, dt)),
        };
        let negative = s.any_bit(negative, s.splat(1));
        *sum = sum.begin_add_affine(&entry, negative).finish();
    });
}
