//! The lanes as an executor: which kernel serves which shape.

use lockstep_kernels::rsa::Scratch;

use super::cpu::{Cpu, CpuRequest};
use super::{Executor, Job, nist};
use crate::declined::Declined;
use crate::keys::{Curve, KeyKind};
use crate::policy::{self, Lone};
use crate::request::Response;
use crate::shape::Shape;

/// The most requests of a curve in one batch: so many share an inversion.
const CURVE_BATCH: usize = 64;

impl Executor for Cpu {
    type Shape = Shape;
    type Request = CpuRequest;
    type Response = Response;
    /// RSA's; the other kernels need none.
    type Memory = Option<Scratch>;

    const SHAPES: &'static [Shape] = &Shape::ALL;

    fn index(shape: Shape) -> usize {
        shape.index()
    }

    fn pass(&self, shape: Shape) -> usize {
        match shape {
            // Two lanes, p and q, for each request.
            Shape::Rsa { .. } => lockstep_kernels::rsa::BATCH / 2,
            _ => self.backend.lanes(),
        }
    }

    fn batch(&self, shape: Shape) -> usize {
        match shape {
            Shape::Rsa { .. } => lockstep_kernels::rsa::BATCH,
            _ => CURVE_BATCH,
        }
    }

    fn declines_lone(&self, shape: Shape) -> bool {
        match self.lone {
            Lone::Auto => policy::lone_is_slower(self.backend, shape),
            Lone::Lanes => false,
            Lone::Stock => true,
        }
    }

    fn memory(&self) -> Option<Scratch> {
        None
    }

    fn run(&self, shape: Shape, scratch: &mut Option<Scratch>, jobs: &mut [Job<Cpu>]) -> usize {
        use Curve::{P256, P384};
        match shape {
            Shape::Rsa { .. } => {
                if scratch.is_none() {
                    *scratch = Scratch::try_new();
                }
                match scratch {
                    Some(scratch) => self.run_rsa(scratch, jobs),
                    None => jobs
                        .iter_mut()
                        .for_each(|job| job.answer = Some(Err(Declined::NoMemory))),
                }
            }
            Shape::EcdsaSign(P256) => self.ecdsa_sign::<nist::P256, 32>(jobs),
            Shape::EcdsaSign(P384) => self.ecdsa_sign::<nist::P384, 48>(jobs),
            Shape::EcdsaVerify(P256) => self.ecdsa_verify::<nist::P256, 32>(jobs),
            Shape::EcdsaVerify(P384) => self.ecdsa_verify::<nist::P384, 48>(jobs),
            Shape::Ecdh(P256) => self.ecdh::<nist::P256, 32>(jobs),
            Shape::Ecdh(P384) => self.ecdh::<nist::P384, 48>(jobs),
            Shape::Keypair(kind) => return self.keypairs(kind, jobs),
            Shape::X25519 => self.x25519(jobs),
            Shape::Ed25519Sign => self.ed25519_sign(jobs),
            Shape::Ed25519Verify => self.ed25519_verify(jobs),
        }
        jobs.len()
    }
}

impl Cpu {
    /// Makes the key pairs of a batch, and others for the pool; returns how many in all.
    fn keypairs(&self, kind: KeyKind, jobs: &mut [Job<Cpu>]) -> usize {
        let count = self.pool.count_to_make(kind, jobs.len());
        let made = match kind {
            KeyKind::X25519 => self.x25519_keypairs(count),
            KeyKind::Nist(Curve::P256) => self.nist_keypairs::<nist::P256, 32>(count),
            KeyKind::Nist(Curve::P384) => self.nist_keypairs::<nist::P384, 48>(count),
        };
        let mut made = made.unwrap_or_default().into_iter();
        for job in &mut *jobs {
            let pair = made.next().map(Response::Keypair);
            job.answer = Some(pair.ok_or(Declined::Randomness));
        }
        if count > jobs.len() {
            self.pool.put(kind, self.epoch.here(), made);
        }
        count
    }
}
