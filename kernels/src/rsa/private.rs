//! A batch of private operations: s = c^d mod n, blinded, by Chinese remainders, checked.
//!
//! For each request c, with blinding pair (r^e, 1/r):
//!
//! 1. x = c·r^e mod n, one request per lane;
//! 2. m_p = x^dp mod p and m_q = x^dq mod q, two lanes per request, side by side;
//! 3. h = (m_p − m_q)·qinv mod p and y = m_q + q·h, one request per lane;
//! 4. s = y/r mod n, fully reduced, as bytes;
//! 5. s^e mod n = c, from the bytes and an independent copy of c (`verify.rs`).

#[cfg(feature = "parts")]
pub mod bench;
#[cfg(feature = "proofs")]
#[path = "../../../proofs/lists/rsa.rs"]
pub(crate) mod proved;

use core::fmt;

use super::job::{JobError, PrivateJob, refuse};
use super::key::{Half, PrivateKey};
use super::on_words;
#[cfg(vectors)]
use super::race;
#[cfg(vectors)]
use super::size::for_schedule;
use super::size::{Size, for_size};
use super::verify::{self, Claim, Signature, Verified};
use crate::arena::{Arena, Memory};
use crate::backend::{Backend, Kind};
use crate::fault::{self, Point};
use crate::layout::{
    between_lanes, bytes_from_lane, from_lane, lane_from_bytes, to_lane, words_to_lane,
};
use crate::modexp::{Power, WINDOW};
use crate::montgomery::{
    Modulus, canonical, from_montgomery, mask_limbs, multiply, multiply_add, square, subtract_mod,
    to_montgomery,
};
use crate::schedule::Schedule;
use crate::simd::portable::Portable;
use crate::simd::steady::Steady;
use crate::simd::{Simd, enter, words, words_mut};

/// Maximum number of requests in a batch: two passes of four.
pub const BATCH: usize = 8;

/// The working memory of a batch. Allocated once; wiped after every batch.
pub struct Scratch {
    pub(crate) memory: Memory,
}

impl Scratch {
    /// Number of bytes for the largest size in eight lanes of 64 bits; no other lanes need more.
    pub(super) const BYTES: usize = bytes::<
        Portable<8>,
        Portable<8>,
        { Size::LARGEST.half_limbs() },
        { Size::LARGEST.limbs() },
    >(Size::LARGEST);

    /// Allocates the memory; ends the process if there is none.
    pub fn new() -> Self {
        Self {
            memory: Memory::new(Self::BYTES),
        }
    }

    /// Allocates the memory; returns `None` if that fails.
    pub fn try_new() -> Option<Self> {
        Some(Self {
            memory: Memory::try_new(Self::BYTES)?,
        })
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// Returns a result that was computed elsewhere, if it is right: output^e mod n = input. The
/// lengths of both are public.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::rsa::{JobError, Scratch, verified};
/// # use lockstep_kernels::rsa::{Components, PrivateKey};
///
/// # let [n, e, p, q, dp, dq, qinv] = &lockstep_testkit::RsaParts::ordinary(1024).parts;
/// # let key = PrivateKey::new(&Components { n, e, p, q, dp, dq, qinv }).expect("a supported key");
/// let (input, mut output) = (vec![0; 128], vec![0; 128]);
/// assert!(verified(&key, &input, output.clone(), &mut Scratch::new()).is_ok()); // 0^e = 0
/// output[127] = 1;
/// let wrong = verified(&key, &input, output, &mut Scratch::new());
/// assert_eq!(wrong.err(), Some(JobError::CheckFailed));
/// ```
pub fn verified(
    key: &PrivateKey,
    input: &[u8],
    output: Vec<u8>,
    scratch: &mut Scratch,
) -> Result<Verified<Signature>, JobError> {
    let is_as_long = output.len() == key.size().bytes();
    // The claim wipes the output when it is dropped, also after a refusal.
    let claim = Claim::new(key, input, output);
    if let Some(error) = refuse(input, key.public()) {
        return Err(error);
    }
    if !is_as_long {
        return Err(JobError::CheckFailed);
    }
    let _steady = Steady::new();
    on_words::verified(&mut scratch.memory, claim, key.size())
}

/// Serves all of `jobs` on `backend` and sets their results.
///
/// The jobs may have different keys and exponents, in any order; an invalid job never affects
/// another.
///
/// # Panics
///
/// If there are no jobs, more than [`BATCH`], or jobs of different sizes.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::rsa::{Blinding, Components, PrivateJob, PrivateKey, Scratch, private_batch};
///
/// # let [n, e, p, q, dp, dq, qinv] = &lockstep_testkit::RsaParts::ordinary(1024).parts;
/// let key = PrivateKey::new(&Components { n, e, p, q, dp, dq, qinv }).expect("a supported key");
/// let random = vec![5; Blinding::random_bytes(key.size())]; // from a generator
/// let mut blinding = Blinding::new(key.public(), &random).expect("an inverse");
/// let input = vec![1; key.size().bytes()]; // a padded digest, or a ciphertext
/// let mut jobs = [PrivateJob {
///     key: &key,
///     input: &input,
///     check_input: &input.clone(),
///     blinding: &mut blinding,
///     result: None,
/// }];
/// private_batch(Backend::PORTABLE, &mut Scratch::new(), &mut jobs);
/// let signature = jobs[0].result.take().expect("set").expect("a correct result");
/// assert_eq!(signature.as_bytes().len(), 128);
/// ```
pub fn private_batch(backend: Backend, scratch: &mut Scratch, jobs: &mut [PrivateJob<'_>]) {
    assert!(
        (1..=BATCH).contains(&jobs.len()),
        "a batch has 1 to {BATCH} jobs"
    );
    let size = jobs[0].key.size();
    assert!(
        jobs.iter().all(|job| job.key.size() == size),
        "a batch is of one size"
    );
    let _steady = Steady::new();
    if backend.computes_rsa_on_words() {
        const { assert!(on_words::bytes(Size::LARGEST) <= Scratch::BYTES) };
        return on_words::private_batch(size, &mut scratch.memory, jobs);
    }
    let kind = backend.kind(jobs.len());
    let only = Schedule::default();
    match kind {
        #[cfg(vectors)]
        Kind::Avx512Ifma {
            wide,
            narrow,
            schedule,
        }
        | Kind::Avx512Ifma512 {
            wide,
            narrow,
            schedule,
        } => {
            let schedule =
                schedule.unwrap_or_else(|| race::fastest(wide, size, &mut scratch.memory));
            let few = match kind {
                Kind::Avx512Ifma512 { .. } => 0,
                _ => 2,
            };
            for_schedule!(
                schedule,
                wide,
                size,
                batch::<_, _>(wide, narrow, few, schedule, size, scratch, jobs)
            );
        }
        // On four lanes the steps outside exponentiations take less time than on eight, too. A
        // small batch has one pass, so it has no schedule to choose.
        #[cfg(vectors)]
        Kind::Avx512Ifma256 { narrow, .. } => for_size!(
            size,
            batch::<_, _>(narrow, narrow, 0, only, size, scratch, jobs)
        ),
        #[cfg(vectors)]
        Kind::Avx2(_) => unreachable!("RSA runs on words"),
        Kind::Portable(s) => for_size!(size, batch::<_, _>(s, s, 0, only, size, scratch, jobs)),
    }
}

/// Serves a batch on lanes `w`. Exponentiations run in the lanes `h` where at most `few` requests
/// are left.
#[inline(never)]
fn batch<W: Simd, H: Simd, const N: usize, const M: usize>(
    w: W,
    h: H,
    few: usize,
    schedule: Schedule,
    size: Size,
    scratch: &mut Scratch,
    jobs: &mut [PrivateJob<'_>],
) {
    const { assert!(W::LIMB_BITS == H::LIMB_BITS) };
    for (turn, chunk) in jobs.chunks_mut(W::LANES).enumerate() {
        fault::begin_chunk(turn * W::LANES);
        let mut arena = scratch.memory.arena();
        let whole = arena.bytes_left();
        let mut wide = Wide::<W, N, M>::new(&mut arena);
        debug_assert!(whole - arena.bytes_left() <= Wide::<W, N, M>::BYTES);
        wide.load(chunk);
        wide.blind(w, chunk);

        let mut first = 0;
        while first < chunk.len() {
            let left = chunk.len() - first;
            first += if left <= few {
                half_passes::<W, H, N, M>(h, schedule, size, arena.rest(), &mut wide, chunk, first)
            } else {
                half_passes::<W, W, N, M>(w, schedule, size, arena.rest(), &mut wide, chunk, first)
            };
        }

        wide.recombine(w);
        wide.unblind(w, chunk);

        let mut claims = Vec::with_capacity(chunk.len());
        for (lane, job) in chunk.iter().enumerate() {
            let mut output = vec![0; size.bytes()];
            bytes_from_lane::<W>(&mut output, wide.x, lane);
            claims.push(Claim::new(job.key, job.check_input, output));
        }
        for claims in claims.chunks_mut(W::LANES / 2) {
            verify::check::<W, N, M>(w, arena.rest(), claims);
        }
        set_results(chunk, &wide.refused, claims);

        scratch.memory.wipe(bytes::<W, H, N, M>(size));
    }
}

/// Returns the maximum number of bytes that a batch takes from the arena: for its numbers, and for
/// its exponentiations or a check.
const fn bytes<W: Simd, H: Simd, const N: usize, const M: usize>(size: Size) -> usize {
    let takers = [
        Power::<H, N>::bytes(size),
        Power::<W, N>::bytes(size),
        verify::bytes::<W, N>(),
    ];
    let (mut most, mut i) = (0, 0);
    while i < takers.len() {
        if takers[i] > most {
            most = takers[i];
        }
        i += 1;
    }
    Wide::<W, N, M>::BYTES + most
}

#[inline(never)]
fn set_results<'a>(
    jobs: &mut [PrivateJob<'a>],
    refused: &[Option<JobError>],
    claims: Vec<Claim<'a>>,
) {
    for ((job, refused), claim) in jobs.iter_mut().zip(refused).zip(claims) {
        job.result = Some(match refused {
            Some(error) => Err(*error),
            None => claim.verdict().ok_or(JobError::CheckFailed),
        });
    }
}

/// The numbers of a batch with one request per lane.
pub(crate) struct Wide<'a, W: Simd, const N: usize, const M: usize> {
    /// The reason why an input is invalid; its lane then works on zero.
    refused: [Option<JobError>; BATCH],
    n: &'a mut [W::Limb; M],
    k0: &'a mut W::Limb,
    input: &'a mut [W::Limb; M],
    blind: &'a mut [W::Limb; M],
    unblind: &'a mut [W::Limb; M],
    /// The blinded input, then the result.
    x: &'a mut [W::Limb; M],
    spare: &'a mut [W::Limb; M],
    doubled: &'a mut [W::Limb; M],
    /// The half results modulo p and q.
    m_p: &'a mut [W::Limb; N],
    m_q: &'a mut [W::Limb; N],
    p: &'a mut [W::Limb; N],
    p_k0: &'a mut W::Limb,
    q: &'a mut [W::Limb; N],
    qinv: &'a mut [W::Limb; N],
    difference: &'a mut [W::Limb; N],
    h: &'a mut [W::Limb; N],
}

impl<'a, W: Simd, const N: usize, const M: usize> Wide<'a, W, N, M> {
    /// Number of bytes that it takes from the arena, its sixteen pieces rounded up to cache lines.
    const BYTES: usize = (7 * M + 7 * N + 2) * size_of::<W::Limb>() + 64 * 16;

    pub(crate) fn new(arena: &mut Arena<'a>) -> Self {
        const { assert!(M == 2 * N && W::LANES <= BATCH) };
        Self {
            refused: [None; BATCH],
            n: arena.array(),
            k0: arena.one(),
            input: arena.array(),
            blind: arena.array(),
            unblind: arena.array(),
            x: arena.array(),
            spare: arena.array(),
            doubled: arena.array(),
            m_p: arena.array(),
            m_q: arena.array(),
            p: arena.array(),
            p_k0: arena.one(),
            q: arena.array(),
            qinv: arena.array(),
            difference: arena.array(),
            h: arena.array(),
        }
    }

    /// Loads keys, inputs and blinding pairs into their lanes; lanes without a request repeat the
    /// last one.
    pub(crate) fn load(&mut self, jobs: &[PrivateJob<'_>]) {
        for lane in 0..W::LANES {
            let job = &jobs[lane.min(jobs.len() - 1)];
            let (key, public) = (job.key, job.key.public());
            to_lane::<W>(self.n, lane, &public.modulus.limbs);
            to_lane::<W>(core::slice::from_mut(self.k0), lane, &[public.modulus.k0]);
            to_lane::<W>(self.blind, lane, &job.blinding.blind);
            to_lane::<W>(self.unblind, lane, &job.blinding.unblind);
            to_lane::<W>(self.p, lane, &key.p.modulus.limbs);
            to_lane::<W>(core::slice::from_mut(self.p_k0), lane, &[key.p.modulus.k0]);
            to_lane::<W>(self.q, lane, &key.q.modulus.limbs);
            to_lane::<W>(self.qinv, lane, &key.qinv);

            let refused = refuse(job.input, public);
            self.refused[lane] = refused;
            let input = if refused.is_none() { job.input } else { &[] };
            lane_from_bytes::<W>(self.input, lane, input);
        }
        for (point, limbs) in [
            (Point::Input, &mut self.input[..]),
            (Point::Blind, self.blind),
            (Point::Unblind, self.unblind),
            (Point::Product, self.n),
            (Point::ProductFactor, core::slice::from_mut(self.k0)),
            (Point::P, self.p),
            (Point::Q, self.q),
            (Point::Inverse, self.qinv),
        ] {
            fault::touch::<W>(point, limbs);
        }
    }

    /// Computes x = input·r^e, below 2n and loose, and squares the first part of the pairs.
    fn blind(&mut self, w: W, jobs: &mut [PrivateJob<'_>]) {
        let n = Modulus::new(self.n, self.k0);
        multiply(w, self.x, self.input, self.blind, n);
        square(w, self.spare, self.doubled, self.blind, n);
        enter!(w, mask_limbs(w, self.spare));
        for (lane, job) in jobs.iter_mut().enumerate() {
            from_lane::<W>(&mut job.blinding.blind, self.spare, lane);
            job.blinding.uses += 1;
        }
    }

    /// Computes x = m_q + q·((m_p − m_q)·qinv mod p), below 2n + q; m_p < p and m_q < q.
    #[inline(never)]
    pub(crate) fn recombine(&mut self, w: W) {
        enter!(w, {
            subtract_mod(w, self.difference, self.m_p, self.m_q, self.p);
            let p = Modulus::new(self.p, self.p_k0);
            multiply(w, self.h, self.difference, self.qinv, p);
            multiply_add(w, self.x, self.q, self.h, self.m_q);
        });
    }

    /// Computes x = x/r mod n, fully reduced, and squares the second part of the pairs.
    fn unblind(&mut self, w: W, jobs: &mut [PrivateJob<'_>]) {
        fault::touch::<W>(Point::Recombined, self.x);
        let n = Modulus::new(self.n, self.k0);
        multiply(w, self.spare, self.x, self.unblind, n);
        core::mem::swap(&mut self.x, &mut self.spare);
        enter!(w, {
            mask_limbs(w, self.x);
            canonical(w, self.x, self.spare, self.n);
        });
        fault::swap_lanes::<W>(self.x);
        square(w, self.spare, self.doubled, self.unblind, n);
        enter!(w, mask_limbs(w, self.spare));
        for (lane, job) in jobs.iter_mut().enumerate() {
            from_lane::<W>(&mut job.blinding.unblind, self.spare, lane);
        }
    }
}

/// Computes m_p and m_q for the jobs from `first` upwards, as many as the lanes of `s` serve at
/// once. Returns the number of jobs for which the passes have lanes.
#[inline(never)]
fn half_passes<W: Simd, S: Simd, const N: usize, const M: usize>(
    s: S,
    schedule: Schedule,
    size: Size,
    mut arena: Arena<'_>,
    wide: &mut Wide<'_, W, N, M>,
    jobs: &[PrivateJob<'_>],
    first: usize,
) -> usize {
    let served = S::LANES / 2;
    let x: &mut [S::Limb; M] = arena.array();
    let out: &mut [S::Limb; N] = arena.array();
    let r2: &mut [S::Limb; N] = arena.array();
    let r3: &mut [S::Limb; N] = arena.array();
    let at_once = schedule.at_once(Power::<S, N>::PASSES);
    let passes = (jobs.len() - first).div_ceil(served).min(at_once);
    let mut powers: Vec<_> = (0..passes)
        .map(|pass| {
            let first = first + pass * served;
            Power::<S, N>::new(&mut arena, first, size.exponent_words())
        })
        .collect();

    for power in &mut powers {
        load(power, [r2, r3], x, wide, jobs);
        let modulus = Modulus::new(power.n, power.k0);
        to_montgomery(s, power.base, power.spare, x, (r2, r3), modulus);
    }
    Power::exponentiate(&mut powers, s, size.bits() / 2);
    for power in &mut powers {
        let modulus = Modulus::new(power.n, power.k0);
        from_montgomery(s, out, power.spare, power.power, modulus);
        for request in power.first..(power.first + served).min(jobs.len()) {
            for (half, to) in [&mut wide.m_p, &mut wide.m_q].into_iter().enumerate() {
                let lane = 2 * (request - power.first) + half;
                let (to_lane, from_lane) = ((W::LANES, request), (S::LANES, lane));
                between_lanes(words_mut(&mut **to), to_lane, words(out), from_lane, N);
            }
        }
    }
    passes * served
}

/// Loads moduli, exponents, R², R³ and blinded inputs of the requests of a pass into their lanes.
fn load<W: Simd, S: Simd, const N: usize, const M: usize>(
    power: &mut Power<'_, S, N>,
    [r2, r3]: [&mut [S::Limb; N]; 2],
    x: &mut [S::Limb; M],
    wide: &Wide<'_, W, N, M>,
    jobs: &[PrivateJob<'_>],
) {
    let last = jobs.len() - 1;
    let blinded = words(wide.x);
    for lane in 0..S::LANES {
        let request = (power.first + lane / 2).min(last);
        let half = jobs[request].key.half(lane % 2);
        power.load(lane, half);
        to_lane::<S>(r2, lane, &half.modulus.r2);
        to_lane::<S>(r3, lane, &half.modulus.r3);
        let (to, from) = ((S::LANES, lane), (W::LANES, request));
        between_lanes(words_mut(x), to, blinded, from, M);
    }
    for (point, limbs) in [
        (Point::Modulus, &mut power.n[..]),
        (Point::ReductionFactor, core::slice::from_mut(power.k0)),
        (Point::One, power.one),
        (Point::RSquared, r2),
        (Point::RCubed, r3),
        (Point::Exponent, power.exponent),
    ] {
        fault::touch_pass::<S>(point, limbs, power.first);
    }
}

impl<S: Simd, const N: usize> Power<'_, S, N> {
    /// Returns the number of bytes in the arena for the exponentiations that take turns.
    const fn bytes(size: Size) -> usize {
        let each = (Self::WORDS << WINDOW) + 8 * N + size.exponent_words() + 2;
        (Self::PASSES * each + 5 * N) * size_of::<S::Limb>() + 64 * 16
    }

    /// Loads the modulus and the exponent of one lane.
    pub(crate) fn load(&mut self, lane: usize, half: &Half) {
        to_lane::<S>(self.n, lane, &half.modulus.limbs);
        to_lane::<S>(core::slice::from_mut(self.k0), lane, &[half.modulus.k0]);
        to_lane::<S>(self.one, lane, &half.modulus.one);
        words_to_lane::<S>(self.exponent, lane, &half.exponent);
    }
}
