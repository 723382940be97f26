//! The working memory of a batch.

use core::fmt;

use super::parameters::ParameterSet;
use super::transform::Multiplier;
use crate::arena::Memory;
use crate::simd::words16::{Polynomial, Sampled};

/// Requests that are computed together.
pub(super) const GROUP: usize = 8;

/// Entries of a matrix, row by row.
pub(super) const fn entries(k: usize) -> usize {
    k * k
}

/// Polynomials of noise that a request may have.
pub(super) const fn noises(k: usize) -> usize {
    2 * k + 1
}

/// The working memory of batches of one parameter set. Allocated once; wiped after every batch.
pub struct Scratch {
    memory: Memory,
    set: ParameterSet,
}

impl Scratch {
    /// Allocates; None without memory.
    pub fn try_new(set: ParameterSet) -> Option<Self> {
        let matrices = GROUP * entries(set.k()) * size_of::<Sampled>();
        let memory = Memory::try_new(secret_bytes(set.k(), GROUP) + matrices)?;
        Some(Self { memory, set })
    }

    /// The parameter set of its batches.
    pub fn set(&self) -> ParameterSet {
        self.set
    }

    /// Computes jobs, a group at a time, and wipes what they leave, but for the matrices, which are
    /// public.
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

    /// Memory for groups of so many requests.
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

/// The memory of so many requests, but for their matrices.
const fn secret_bytes(k: usize, requests: usize) -> usize {
    (requests * noises(k) + 3 * k + 2) * size_of::<Polynomial>()
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// What a group of requests works on.
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
    /// What request i of the group works on.
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

/// What one request works on: its matrix and its noise, and what holds nothing yet.
pub(super) struct Request<'a, const K: usize> {
    /// K rows.
    pub(super) matrix: &'a [[Sampled; K]],
    pub(super) noise: &'a mut [Polynomial],
    pub(super) multipliers: &'a mut [Multiplier; K],
    pub(super) vector: &'a mut [Polynomial; K],
    pub(super) sum: &'a mut Polynomial,
    pub(super) other: &'a mut Polynomial,
}
