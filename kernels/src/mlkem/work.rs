//! The working memory of a batch.

use core::fmt;

use super::parameters::K;
use super::transform::Multiplier;
use crate::arena::Memory;
use crate::simd::words16::{Polynomial, Sampled};

/// Requests that are computed together.
pub(super) const GROUP: usize = 8;

/// Entries of a matrix, row by row.
pub(super) const ENTRIES: usize = K * K;
/// A matrix.
pub(super) type Matrix = [Sampled; ENTRIES];

/// Polynomials of noise that a request may have.
pub(super) const NOISES: usize = 2 * K + 1;

/// The working memory of a batch. Allocated once; wiped after every batch.
pub struct Scratch(Memory);

impl Scratch {
    /// Allocates; None without memory.
    pub fn try_new() -> Option<Self> {
        let bytes = Self::secret_bytes(GROUP) + GROUP * size_of::<Matrix>();
        Some(Self(Memory::try_new(bytes)?))
    }

    /// What a group of requests takes, but for matrices.
    const fn secret_bytes(requests: usize) -> usize {
        (requests * NOISES + 3 * K + 2) * size_of::<Polynomial>()
    }

    /// Computes jobs, a group at a time, and wipes what they leave, but for the matrices, which are
    /// public.
    pub(super) fn in_groups<J>(
        &mut self,
        jobs: &mut [J],
        mut compute: impl FnMut(&mut Work<'_>, &mut [J]),
    ) {
        let most = jobs.len().min(GROUP);
        let mut work = self.take(most);
        for jobs in jobs.chunks_mut(GROUP) {
            compute(&mut work, jobs);
        }
        self.0.wipe(Self::secret_bytes(most));
    }

    /// Memory for groups of so many requests.
    fn take(&mut self, requests: usize) -> Work<'_> {
        let mut arena = self.0.arena();
        let noises = arena.slice(requests * NOISES).as_chunks_mut().0;
        let multipliers = arena.slice(2 * K).as_chunks_mut().0;
        Work {
            noises,
            multipliers: multipliers.try_into().expect("K of them"),
            vector: arena.array(),
            sum: arena.one(),
            other: arena.one(),
            matrices: arena.slice(requests * ENTRIES).as_chunks_mut().0,
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// What a group of requests works on.
pub(super) struct Work<'a> {
    pub(super) matrices: &'a mut [Matrix],
    pub(super) noises: &'a mut [[Polynomial; NOISES]],
    multipliers: &'a mut [Multiplier; K],
    vector: &'a mut [Polynomial; K],
    sum: &'a mut Polynomial,
    other: &'a mut Polynomial,
}

impl Work<'_> {
    /// What request i of the group works on.
    pub(super) fn request(&mut self, i: usize) -> Request<'_> {
        Request {
            matrix: &self.matrices[i],
            noise: &mut self.noises[i],
            multipliers: self.multipliers,
            vector: self.vector,
            sum: self.sum,
            other: self.other,
        }
    }
}

/// What one request works on: its matrix and its noise, and what holds nothing yet.
pub(super) struct Request<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) noise: &'a mut [Polynomial; NOISES],
    pub(super) multipliers: &'a mut [Multiplier; K],
    pub(super) vector: &'a mut [Polynomial; K],
    pub(super) sum: &'a mut Polynomial,
    pub(super) other: &'a mut Polynomial,
}
