//! Private operations that another device computes, such as a GPU. The device gets blinded inputs;
//! its outputs are unblinded and [checked](super::verify).

use zeroize::Zeroizing;

use super::job::{Blinded, PrivateJob, Returned, Unblinding, refuse};
use super::key::PrivateKey;
use super::modulus::{Number, multiply_mod, zero};
use super::on_words;
use super::private::Scratch;
use super::size::for_size;
use super::verify::{self, Claim};
use crate::arena::Memory;
use crate::backend::{Backend, Kind};
use crate::layout::{bytes_from_lane, bytes_from_limbs, from_lane, lane_from_bytes, to_lane};
use crate::montgomery::{Modulus, canonical, mask_limbs, multiply, square};
use crate::secret::wipe;
use crate::simd::portable::Portable;
use crate::simd::steady::Steady;
use crate::simd::{Simd, enter, words, words_mut};

/// Calls a function for jobs of one size, at most as many as there are lanes. A job takes one lane,
/// half as many as a request of `Backend::kind`.
macro_rules! in_lanes {
    ($backend:expr, $jobs:expr, $size:expr, $function:ident($($argument:expr),*)) => {
        match $backend.kind($jobs.len().div_ceil(2)) {
            #[cfg(vectors)]
            Kind::Avx512Ifma { wide, .. } | Kind::Avx512Ifma512 { wide, .. } => {
                for_size!($size, $function::<_>(wide, $($argument),*))
            }
            #[cfg(vectors)]
            Kind::Avx512Ifma256 { narrow, .. } => {
                for_size!($size, $function::<_>(narrow, $($argument),*))
            }
            #[cfg(vectors)]
            Kind::Avx2(_) => unreachable!("RSA runs on words"),
            Kind::Portable(s) => for_size!($size, $function::<_>(s, $($argument),*)),
        }
    };
}

/// Blinds each input c as c·r^e mod n. Squares the blinding pairs, so that they can blind other
/// inputs. The jobs must have one size; they get no results.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::rsa::{Blinding, Components, PrivateJob, PrivateKey, Returned, Scratch};
/// use lockstep_kernels::rsa::{blind_batch, unblind_batch};
///
/// # let [n, e, p, q, dp, dq, qinv] = &lockstep_testkit::RsaParts::ordinary(1024).parts;
/// let key = PrivateKey::new(&Components { n, e, p, q, dp, dq, qinv }).expect("a supported key");
/// let random = vec![5; Blinding::random_bytes(key.size())]; // from a generator
/// let mut blinding = Blinding::new(key.public(), &random).expect("an inverse");
/// let input = &vec![0; key.size().bytes()];
/// let (scratch, backend) = (&mut Scratch::new(), Backend::PORTABLE);
/// let blinding = &mut blinding;
/// let mut jobs = [PrivateJob { key: &key, input, check_input: input, blinding, result: None }];
/// let mut blinded = blind_batch(backend, scratch, &mut jobs);
/// let (blinded, unblinding) = &blinded.pop().expect("one")?;
/// let output = blinded; // of 0, which something else computes
/// let mut jobs = [Returned { key: &key, input, unblinding, output, result: None }];
/// unblind_batch(backend, scratch, &mut jobs);
/// assert!(jobs[0].result.is_some());
/// # Ok::<(), lockstep_kernels::rsa::JobError>(())
/// ```
pub fn blind_batch(
    backend: Backend,
    scratch: &mut Scratch,
    jobs: &mut [PrivateJob<'_>],
) -> Vec<Blinded> {
    let _steady = Steady::new();
    let memory = &mut scratch.memory;
    let mut all = Vec::with_capacity(jobs.len());
    for jobs in jobs.chunks_mut(backend.lanes()) {
        let size = jobs[0].key.size();
        assert!(jobs.iter().all(|job| job.key.size() == size), "of one size");
        if backend.computes_rsa_on_words() {
            all.extend(jobs.iter_mut().map(|job| on_words::blind(memory, job)));
        } else {
            in_lanes!(backend, jobs, size, blind(memory, jobs, &mut all));
        }
    }
    all
}

/// Unblinds results and checks them: a result that is wrong stays `None`. The jobs have one size.
pub fn unblind_batch(backend: Backend, scratch: &mut Scratch, jobs: &mut [Returned<'_>]) {
    let _steady = Steady::new();
    let memory = &mut scratch.memory;
    for jobs in jobs.chunks_mut(backend.lanes()) {
        let size = jobs[0].key.size();
        let fits = |job: &Returned<'_>| {
            let bytes = job.key.size().bytes();
            job.key.size() == size && [job.input.len(), job.output.len()] == [bytes; 2]
        };
        assert!(jobs.iter().all(fits), "of one size");
        if backend.computes_rsa_on_words() {
            let each = jobs.iter_mut();
            each.for_each(|job| job.result = on_words::unblind(memory, job));
        } else {
            in_lanes!(backend, jobs, size, unblind(memory, jobs));
        }
    }
}

/// Returns the number of bytes that a pass and its check take from the arena.
const fn bytes<S: Simd, const N: usize, const M: usize>() -> usize {
    (7 * M + 1) * size_of::<S::Limb>() + 64 * 8 + verify::bytes::<S, N>()
}

const _: () = assert!(bytes::<Portable<8>, 40, 80>() <= Scratch::BYTES);

/// Blinds one input in each lane; lanes without a job repeat the last one.
#[inline(never)]
fn blind<S: Simd, const N: usize, const M: usize>(
    s: S,
    memory: &mut Memory,
    jobs: &mut [PrivateJob<'_>],
    all: &mut Vec<Blinded>,
) {
    let mut arena = memory.arena();
    let n: &mut [S::Limb; M] = arena.array();
    let k0: &mut S::Limb = arena.one();
    let x: &mut [S::Limb; M] = arena.array();
    let parts: [&mut [S::Limb; M]; 2] = [arena.array(), arena.array()];
    let product: &mut [S::Limb; M] = arena.array();
    let spare: &mut [S::Limb; M] = arena.array();
    let doubled: &mut [S::Limb; M] = arena.array();
    let mut refused = Vec::with_capacity(S::LANES);
    for lane in 0..S::LANES {
        let job = &jobs[lane.min(jobs.len() - 1)];
        let modulus = &job.key.public().modulus;
        to_lane::<S>(n, lane, &modulus.limbs);
        to_lane::<S>(core::slice::from_mut(k0), lane, &[modulus.k0]);
        to_lane::<S>(parts[0], lane, &job.blinding.blind);
        to_lane::<S>(parts[1], lane, &job.blinding.unblind);
        refused.push(refuse(job.input, job.key.public()));
        let input = if refused[lane].is_none() {
            job.input
        } else {
            &[]
        };
        lane_from_bytes::<S>(x, lane, input);
    }
    let modulus = Modulus::new(n, k0);
    multiply(s, product, x, parts[0], modulus);
    enter!(s, {
        mask_limbs(s, product);
        canonical(s, product, spare, modulus.n);
    });
    for (lane, job) in jobs.iter().enumerate() {
        let mut bytes = Zeroizing::new(vec![0; job.key.size().bytes()]);
        bytes_from_lane::<S>(&mut bytes, product, lane);
        let unblinding = Unblinding(Zeroizing::new(job.blinding.unblind.to_vec()));
        all.push(refused[lane].map_or(Ok((bytes, unblinding)), Err));
    }
    for (part, number) in parts.into_iter().enumerate() {
        square(s, spare, doubled, number, modulus);
        enter!(s, mask_limbs(s, spare));
        for (lane, job) in jobs.iter_mut().enumerate() {
            let pair = &mut *job.blinding;
            let place = [&mut pair.blind, &mut pair.unblind].into_iter().nth(part);
            from_lane::<S>(place.expect("a pair"), spare, lane);
        }
    }
    jobs.iter_mut().for_each(|job| job.blinding.uses += 1);
    memory.wipe(bytes::<S, N, M>());
}

/// Unblinds and checks one result in each lane; lanes without a job repeat the last one.
#[inline(never)]
fn unblind<S: Simd, const N: usize, const M: usize>(
    s: S,
    memory: &mut Memory,
    jobs: &mut [Returned<'_>],
) {
    let mut arena = memory.arena();
    let n: &mut [S::Limb; M] = arena.array();
    let k0: &mut S::Limb = arena.one();
    let x: &mut [S::Limb; M] = arena.array();
    let factor: &mut [S::Limb; M] = arena.array();
    let product: &mut [S::Limb; M] = arena.array();
    for lane in 0..S::LANES {
        let job = &jobs[lane.min(jobs.len() - 1)];
        let modulus = &job.key.public().modulus;
        to_lane::<S>(n, lane, &modulus.limbs);
        to_lane::<S>(core::slice::from_mut(k0), lane, &[modulus.k0]);
        to_lane::<S>(factor, lane, &job.unblinding.0);
        lane_from_bytes::<S>(x, lane, job.output);
    }
    let modulus = Modulus::new(n, k0);
    multiply(s, product, x, factor, modulus);
    enter!(s, {
        mask_limbs(s, product);
        canonical(s, product, x, modulus.n);
    });
    let mut claims = Vec::with_capacity(jobs.len());
    for (lane, job) in jobs.iter().enumerate() {
        let mut output = vec![0; job.output.len()];
        bytes_from_lane::<S>(&mut output, product, lane);
        claims.push(Claim::new(job.key, job.input, output));
    }
    for claims in claims.chunks_mut(S::LANES / 2) {
        verify::check::<S, N, M>(s, arena.rest(), claims);
    }
    for (job, claim) in jobs.iter_mut().zip(claims) {
        job.result = claim.verdict();
    }
    memory.wipe(bytes::<S, N, M>());
}

impl PrivateKey {
    /// Writes p, q, d mod p − 1, d mod q − 1 and 1/q mod p, big-endian, for another device. Each is
    /// half as long as the modulus.
    ///
    /// # Panics
    ///
    /// If a place has another length.
    pub fn write_parts(&self, [p, q, dp, dq, qinv]: [&mut [u8]; 5]) {
        let half = self.size().bytes() / 2;
        let places = [&*p, &*q, &*dp, &*dq, &*qinv];
        assert!(
            places.iter().all(|place| place.len() == half),
            "half a modulus"
        );
        bytes_from_limbs(p, &self.p.modulus.limbs, 1);
        bytes_from_limbs(q, &self.q.modulus.limbs, 1);
        bytes_from_exponent(dp, &self.p.exponent);
        bytes_from_exponent(dq, &self.q.exponent);
        for_size!(self.size(), write_qinv(self, qinv));
    }
}

#[inline(never)]
fn write_qinv<const N: usize, const M: usize>(key: &PrivateKey, bytes: &mut [u8]) {
    let (mut form, mut one, mut p): (Number<N>, _, _) =
        (of(&key.qinv), zero::<N>(), of(&key.p.modulus.limbs));
    words_mut(&mut one)[0] = 1;
    let mut qinv = multiply_mod(&form, &one, &p, key.p.modulus.k0);
    bytes_from_limbs(bytes, words(&qinv), 1);
    for secret in [&mut form, &mut p, &mut qinv] {
        wipe(words_mut(secret));
    }
}

fn of<const N: usize>(limbs: &[u64]) -> Number<N> {
    let mut number = zero::<N>();
    words_mut(&mut number).copy_from_slice(limbs);
    number
}

/// Writes words of 60 bits as big-endian bytes.
fn bytes_from_exponent(bytes: &mut [u8], words: &[u64]) {
    for (place, byte) in bytes.iter_mut().rev().enumerate() {
        let (word, shift) = (8 * place / 60, 8 * place % 60);
        let above = words.get(word + 1).copied().unwrap_or(0);
        *byte = (words[word] >> shift | above << (60 - shift)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::RsaParts;
    use num_bigint::BigUint;

    use super::super::Components;
    use super::super::blinding::Blinding;
    use super::super::job::JobError;
    use super::super::size::Size;
    use super::*;

    #[test]
    fn operations_that_are_computed_elsewhere_pass_the_check() {
        let everywhere = Backend::available();
        let sizes = Size::ALL.iter();
        for (size, backend) in
            sizes.flat_map(|size| everywhere.iter().map(move |own| (*size, *own)))
        {
            let [n, e, p, q, dp, dq, qinv] = &RsaParts::ordinary(size.bits()).parts;
            #[rustfmt::skip]
            let components = Components { n, e, p, q, dp, dq, qinv };
            let key = PrivateKey::new(&components).expect("a supported key");
            let mut written: [_; 5] = core::array::from_fn(|_| vec![1; size.bytes() / 2]);
            key.write_parts(written.each_mut().map(|part| &mut part[..]));
            let numbers = written.map(|part| BigUint::from_bytes_be(&part));
            assert_eq!(
                numbers,
                [p, q, dp, dq, qinv].map(|part| BigUint::from_bytes_be(part))
            );

            let [p, q, dp, dq, qinv] = numbers;
            let raise = |blinded: &[u8]| {
                let c = BigUint::from_bytes_be(blinded);
                let (m_p, m_q) = (c.modpow(&dp, &p), c.modpow(&dq, &q));
                let h = (m_p + &p - &m_q % &p) * &qinv % &p;
                let m = (m_q + &q * h).to_bytes_be();
                [vec![0; size.bytes() - m.len()], m].concat()
            };
            let random = vec![5; Blinding::random_bytes(size)];
            let mut pairs = vec![Blinding::new(key.public(), &random).expect("an inverse"); 9];
            let mut inputs: Vec<_> = (1..=9).map(|byte| vec![byte; size.bytes()]).collect();
            inputs.iter_mut().for_each(|input| input[0] = 0);
            inputs[4].fill(0xff);
            let (mut scratch, mut seen) = (Scratch::new(), Vec::new());
            for _ in 0..3 {
                let jobs = inputs.iter().zip(&mut pairs);
                let mut jobs: Vec<_> = jobs
                    .map(|(input, blinding)| PrivateJob {
                        key: &key,
                        input,
                        check_input: input,
                        blinding,
                        result: None,
                    })
                    .collect();
                let blinded = blind_batch(backend, &mut scratch, &mut jobs);
                let blinded: Vec<_> = blinded.into_iter().zip(&inputs).collect();
                assert_eq!(blinded[4].0.as_ref().err(), Some(&JobError::InputTooLarge));
                let good = blinded.iter().filter_map(|(blinded, input)| {
                    let (blinded, unblinding) = blinded.as_ref().ok()?;
                    seen.push(blinded.to_vec());
                    Some((raise(blinded), unblinding, input))
                });
                let mut good: Vec<_> = good.collect();
                assert_eq!(good.len(), 8);
                // One output is wrong: the check must refuse this one and no other.
                good[6].0[size.bytes() - 1] ^= 1;
                let jobs = good.iter().map(|(output, unblinding, input)| Returned {
                    key: &key,
                    input,
                    unblinding,
                    output,
                    result: None,
                });
                let mut jobs: Vec<_> = jobs.collect();
                unblind_batch(backend, &mut scratch, &mut jobs);
                let right: Vec<_> = jobs.iter().map(|job| job.result.is_some()).collect();
                assert_eq!(right, [true, true, true, true, true, true, false, true]);
                for job in jobs.into_iter().filter(|job| job.result.is_some()) {
                    let result = job.result.expect("right").into_bytes();
                    assert_eq!(result, raise(job.input), "{} {size:?}", backend.name());
                }
            }
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), 24, "each input is blinded by another number");
            assert!(pairs.iter().filter(|pair| pair.uses() == 3).count() >= 8);
        }
    }
}
