//! The working memory of a batch.

use core::fmt;

use super::parameters::ParameterSet;
use super::transform::Multiplier;
use crate::arena::Memory;
use crate::simd::words16::{Polynomial, Sampled};

/// Maximum number of requests that are computed together.
pub(super) const GROUP: usize = 8;

/// Returns the number of entries of a matrix, which are stored row by row.
pub(super) const fn entries(k: usize) -> usize {
    k * k
}

/// Returns the maximum number of polynomials of noise of a request.
pub(super) const fn noises(k: usize) -> usize {
    2 * k + 1
}

/// The working memory of batches of one parameter set. Allocated once; wiped after every batch.
pub struct Scratch {
    memory: Memory,
    set: ParameterSet,
}

impl Scratch {
    /// Allocates the memory. Returns `None` if that fails.
    pub fn try_new(set: ParameterSet) -> Option<Self> {
        let matrices = GROUP * entries(set.k()) * size_of::<Sampled>();
        let memory = Memory::try_new(secret_bytes(set.k(), GROUP) + matrices)?;
        Some(Self { memory, set })
    }

    /// Returns the parameter set of the batches.
    pub fn set(&self) -> ParameterSet {
        self.set
    }

    /// Computes jobs, a group at a time, and wipes the memory afterwards, except the matrices,
    /// which are public.
    pub(super) fn in_groups<const K: usize, J>(
        &mut self,
        jobs: &mut [J],
        mut compute: impl FnMut(&mut Work<'_, K>, &mut [J]),
    ) {
        debug_assert_eq!(self.set.k(), K);
        let most = jobs.len().min(GROUP);
        let mut work = self.take(most);
        for jobs in jobs.chunks_mut(GROUP) {
            compute(&mut work, jobs);
        }
        self.memory.wipe(secret_bytes(K, most));
    }

    /// Takes memory for groups of `requests` requests.
    fn take<const K: usize>(&mut self, requests: usize) -> Work<'_, K> {
        let mut arena = self.memory.arena();
        let noises = arena.slice(requests * noises(K));
        let multipliers = arena.slice(2 * K).as_chunks_mut().0;
        Work {
            noises,
            multipliers: multipliers.try_into().expect("K of them"),
            vector: arena.array(),
            sum: arena.one(),
            other: arena.one(),
            matrices: arena.slice(requests * entries(K)),
        }
    }
}

/// Returns the number of bytes for `requests` requests, without their matrices.
const fn secret_bytes(k: usize, requests: usize) -> usize {
    (requests * noises(k) + 3 * k + 2) * size_of::<Polynomial>()
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// Working memory of a group of requests.
pub(super) struct Work<'a, const K: usize> {
    /// The matrices of all requests, one behind the other.
    pub(super) matrices: &'a mut [Sampled],
    /// The noise of all requests.
    pub(super) noises: &'a mut [Polynomial],
    multipliers: &'a mut [Multiplier; K],
    vector: &'a mut [Polynomial; K],
    sum: &'a mut Polynomial,
    other: &'a mut Polynomial,
}

impl<const K: usize> Work<'_, K> {
    /// Returns the working memory of request i of the group.
    pub(super) fn request(&mut self, i: usize) -> Request<'_, K> {
        Request {
            matrix: self.matrices[entries(K) * i..][..entries(K)].as_chunks().0,
            noise: &mut self.noises[noises(K) * i..][..noises(K)],
            multipliers: self.multipliers,
            vector: self.vector,
            sum: self.sum,
            other: self.other,
        }
    }
}

/// Working memory of one request: its matrix, its noise, and memory for intermediate results.
pub(super) struct Request<'a, const K: usize> {
    /// K rows.
    pub(super) matrix: &'a [[Sampled; K]],
    pub(super) noise: &'a mut [Polynomial],
    pub(super) multipliers: &'a mut [Multiplier; K],
    pub(super) vector: &'a mut [Polynomial; K],
    pub(super) sum: &'a mut Polynomial,
    pub(super) other: &'a mut Polynomial,
}
