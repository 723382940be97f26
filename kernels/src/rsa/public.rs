//! A batch of public operations: s^e mod n, to check signatures.
//!
//! Keys, inputs and results are public, so time and addresses may depend on them. Each lane has a
//! request; requests of one size share a pass, in the order of their exponents. The last
//! multiplication is by s itself rather than by its Montgomery form, since e is odd: it leaves s^e
//! without a conversion. An exponent of 65537 takes 16 squarings and two multiplications, one of
//! them for the Montgomery form.

use core::fmt;

use super::job::{JobError, refuse};
use super::key::PublicKey;
use super::private::Scratch;
use super::size::{Size, for_size};
use super::verify::select_factor;
use crate::arena::Arena;
use crate::backend::{Backend, Kind};
use crate::layout::{
    bytes_from_lane, bytes_from_words, lane_from_bytes, to_lane, words_from_bytes,
};
use crate::montgomery::{Modulus, canonical, mask_limbs, multiply, square};
use crate::simd::portable::Portable;
use crate::simd::steady::Steady;
use crate::simd::{Simd, enter, words_mut};
#[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
use crate::words::Adx;
use crate::words::{Block, Field, Multiplier, Plain, repack};

/// A public operation.
pub struct PublicJob<'a> {
    /// The key.
    pub key: &'a PublicKey,
    /// The number s to raise to e, a signature: as many bytes as the modulus, big-endian, below n.
    pub input: &'a [u8],
    /// Set by [`public_batch_vartime`]: s^e mod n, as long as the modulus. The result is
    /// [`JobError::InputLength`] or [`JobError::InputTooLarge`] for an invalid s.
    pub result: Option<Result<Vec<u8>, JobError>>,
}

impl<'a> PublicJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: &'a PublicKey, input: &'a [u8]) -> Self {
        Self {
            key,
            input,
            result: None,
        }
    }
}

impl fmt::Debug for PublicJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicJob({:?})", self.key)
    }
}

/// Computes s^e mod n for all of `jobs`, any number of them, in variable time.
///
/// The jobs may have different keys, of different sizes and with different exponents, in any order;
/// an invalid job never affects another. They are fastest where many have the same size and the
/// same exponent.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::rsa::{JobError, PublicJob, PublicKey, Scratch, public_batch_vartime};
///
/// # let [n, e, ..] = &lockstep_testkit::RsaParts::ordinary(1024).parts;
/// let key = PublicKey::new(n, e).expect("a supported key");
/// let (mut one, mut long) = (vec![0; 128], vec![0; 129]);
/// one[127] = 1;
/// long[128] = 1;
/// let mut jobs = [PublicJob::new(&key, &one), PublicJob::new(&key, &long)];
/// public_batch_vartime(Backend::PORTABLE, &mut Scratch::new(), &mut jobs);
/// let [first, second] = jobs.map(|job| job.result.expect("set"));
/// assert_eq!(first, Ok(one)); // 1^e = 1
/// assert_eq!(second, Err(JobError::InputLength));
/// ```
pub fn public_batch_vartime(backend: Backend, scratch: &mut Scratch, jobs: &mut [PublicJob<'_>]) {
    let _steady = Steady::new();
    let mut valid = Vec::with_capacity(jobs.len());
    for job in jobs {
        match refuse(job.input, job.key) {
            Some(error) => job.result = Some(Err(error)),
            None => valid.push(job),
        }
    }
    valid.sort_by(|a, b| order(a.key).cmp(&order(b.key)));
    for jobs in valid.chunk_by_mut(|a, b| a.key.size() == b.key.size()) {
        let size = jobs[0].key.size();
        for chunk in jobs.chunks_mut(backend.lanes()) {
            serve(backend, size, scratch, chunk);
        }
    }
}

/// Returns the sort key of the jobs of `key`: its size, then its exponent.
fn order(key: &PublicKey) -> (Size, &[u64]) {
    (key.size(), &key.exponent)
}

/// Serves jobs of one size, at most as many as there are lanes.
fn serve(backend: Backend, size: Size, scratch: &mut Scratch, jobs: &mut [&mut PublicJob<'_>]) {
    let arena = &mut scratch.memory.arena();
    if backend.computes_rsa_on_words() {
        return jobs
            .iter_mut()
            .for_each(|job| on_words(arena.rest(), size, job));
    }
    // A request takes one lane, half as many as a private operation.
    match backend.kind(jobs.len().div_ceil(2)) {
        #[cfg(vectors)]
        Kind::Avx512Ifma { wide, .. } | Kind::Avx512Ifma512 { wide, .. } => {
            for_size!(size, pass::<_>(wide, arena.rest(), jobs));
        }
        #[cfg(vectors)]
        Kind::Avx512Ifma256 { narrow, .. } => {
            for_size!(size, pass::<_>(narrow, arena.rest(), jobs))
        }
        #[cfg(vectors)]
        Kind::Avx2(_) => unreachable!("RSA runs on words"),
        Kind::Portable(s) => for_size!(size, pass::<_>(s, arena.rest(), jobs)),
    }
}

/// Returns the number of bytes that a pass takes from the arena, its eleven pieces rounded up to
/// cache lines.
const fn bytes<S: Simd, const M: usize>() -> usize {
    (9 * M + 2) * size_of::<S::Limb>() + 64 * 11
}

const _: () = {
    assert!(bytes::<Portable<8>, { Size::LARGEST.limbs() }>() <= Scratch::BYTES);
    assert!(bytes_on_words(2 * Size::LARGEST.blocks_of_half()) <= Scratch::BYTES);
};

/// Computes one request in each lane; lanes without a request repeat the last one.
#[inline(never)]
fn pass<S: Simd, const N: usize, const M: usize>(
    s: S,
    mut arena: Arena<'_>,
    jobs: &mut [&mut PublicJob<'_>],
) {
    const { assert!(M == 2 * N) };
    let n: &mut [S::Limb; M] = arena.array();
    let k0: &mut S::Limb = arena.one();
    let one: &mut [S::Limb; M] = arena.array();
    let r2: &mut [S::Limb; M] = arena.array();
    let input: &mut [S::Limb; M] = arena.array();
    let base: &mut [S::Limb; M] = arena.array();
    let mut power: &mut [S::Limb; M] = arena.array();
    let mut spare: &mut [S::Limb; M] = arena.array();
    let factor: &mut [S::Limb; M] = arena.array();
    let doubled: &mut [S::Limb; M] = arena.array();
    let chosen: &mut S::Limb = arena.one();

    let last = jobs.len() - 1;
    let key_of = |lane: usize| jobs[lane.min(last)].key;
    for lane in 0..S::LANES {
        let modulus = &key_of(lane).modulus;
        to_lane::<S>(n, lane, &modulus.limbs);
        to_lane::<S>(core::slice::from_mut(k0), lane, &[modulus.k0]);
        to_lane::<S>(one, lane, &modulus.one);
        to_lane::<S>(r2, lane, &modulus.r2);
        lane_from_bytes::<S>(input, lane, jobs[lane.min(last)].input);
    }

    let modulus = Modulus::new(n, k0);
    multiply(s, base, input, r2, modulus);
    let lengths = jobs.iter().map(|job| job.key.exponent_bits());
    let top = lengths.max().unwrap_or(1) - 1;
    // From the top bit of the longest e down to bit 1: square, and multiply by s·R or by R.
    for i in (1..=top).rev() {
        if i < top {
            square(s, spare, doubled, power, modulus);
            core::mem::swap(&mut spare, &mut power);
        }
        let mut any = false;
        for lane in 0..S::LANES {
            let bit = key_of(lane).exponent_bit(i);
            any |= bit;
            words_mut(core::slice::from_mut(chosen))[lane] = u64::from(bit);
        }
        if !any {
            continue;
        }
        select_factor(s, factor, chosen, base, one);
        if i < top {
            multiply(s, spare, power, factor, modulus);
            core::mem::swap(&mut spare, &mut power);
        } else {
            power.copy_from_slice(factor);
        }
    }
    // Bit 0 is set: (power²·R)·s/R.
    square(s, spare, doubled, power, modulus);
    multiply(s, power, spare, input, modulus);
    enter!(s, {
        mask_limbs(s, power);
        canonical(s, power, spare, modulus.n);
    });
    for (lane, job) in jobs.iter_mut().enumerate() {
        let mut output = vec![0; job.key.size().bytes()];
        bytes_from_lane::<S>(&mut output, power, lane);
        job.result = Some(Ok(output));
    }
}

/// Returns the number of bytes that an operation on words takes from the arena, for moduli of
/// `blocks` blocks.
const fn bytes_on_words(blocks: usize) -> usize {
    Field::<Plain>::bytes(blocks) + 3 * blocks * size_of::<Block>()
}

/// Computes a request on words.
fn on_words(arena: Arena<'_>, size: Size, job: &mut PublicJob<'_>) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
    if let Some(adx) = Adx::detect() {
        return raise_on_words(adx, arena, size, job);
    }
    raise_on_words(Plain, arena, size, job);
}

#[inline(never)]
fn raise_on_words(
    m: impl Multiplier,
    mut arena: Arena<'_>,
    size: Size,
    PublicJob { key, input, result }: &mut PublicJob<'_>,
) {
    let blocks = 2 * size.blocks_of_half();
    let mut field = Field::new(m, &mut arena, blocks);
    let number: &mut [Block] = arena.slice(blocks);
    let base: &mut [Block] = arena.slice(blocks);
    let power: &mut [Block] = arena.slice(blocks);
    field.set_modulus(&key.modulus.limbs);
    words_from_bytes(number.as_flattened_mut(), input);
    // R² for the R of lanes.
    repack(power.as_flattened_mut(), 64, &key.modulus.r2, 52);
    base.copy_from_slice(number);
    field.multiply(base, power);
    field.remove_excess(base, 2);
    power.copy_from_slice(base);
    for i in (1..key.exponent_bits() - 1).rev() {
        field.square(power);
        if key.exponent_bit(i) {
            field.multiply(power, base);
        }
    }
    field.square(power);
    field.multiply(power, number);
    // R is below 2n, as the top bit of n is set.
    field.canonical(power);
    let mut output = vec![0; size.bytes()];
    bytes_from_words(&mut output, power.as_flattened());
    *result = Some(Ok(output));
}
