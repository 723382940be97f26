//! What runs a batch. The CPU's lanes are one executor; the queue knows only the trait.

mod curve25519;
mod nist;
mod random;
mod rsa;

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::Scratch;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::declined::Declined;
use crate::epoch::Epoch;
use crate::keys::{Curve, KeyKind, Keypair};
use crate::policy::{self, Lone};
use crate::pool::Pool;
use crate::request::{Request, Response};
use crate::shape::Shape;
use random::random;

/// Runs batches of requests of one shape.
pub(crate) trait Executor: Send + Sync + Sized + 'static {
    /// What requests must have in common to share a batch.
    type Shape: Copy + Debug + Send + Sync + 'static;
    /// A request, owning its data.
    type Request: Send + 'static;
    /// Its result.
    type Response: Send + 'static;
    /// The working memory of one slot, made when the slot is first used.
    type Memory: Send + 'static;

    /// Every shape.
    const SHAPES: &'static [Self::Shape];

    /// The place of `shape` in [`SHAPES`](Self::SHAPES).
    fn index(shape: Self::Shape) -> usize;

    /// How many requests fill one pass of the lanes.
    fn pass(&self, shape: Self::Shape) -> usize;

    /// How many requests one batch takes at most.
    fn batch(&self, shape: Self::Shape) -> usize;

    /// Whether a request that is alone is better served elsewhere.
    fn declines_lone(&self, shape: Self::Shape) -> bool;

    /// The memory of a new slot.
    fn memory(&self) -> Self::Memory;

    /// Answers every job; returns how many operations the lanes ran, which is more than there are
    /// jobs where some are made in advance. A job left without an answer is declined as an internal
    /// error.
    fn run(&self, shape: Self::Shape, memory: &mut Self::Memory, jobs: &mut [Job<Self>]) -> usize;
}

/// One request of a batch, and its answer.
pub(crate) struct Job<E: Executor> {
    pub request: E::Request,
    pub answer: Option<Result<E::Response, Declined>>,
}

/// The lanes of this machine's CPUs.
pub(crate) struct Cpu {
    backend: Backend,
    lone: Lone,
    /// Which passes of ECDSA or Ed25519 signatures are checked.
    sample: Sample,
    epoch: Epoch,
    pub(crate) pool: Pool,
}

impl Cpu {
    pub(crate) fn new(backend: Backend, config: &Config) -> Cpu {
        Cpu {
            backend,
            lone: config.lone,
            sample: Sample::new(config.check_every),
            epoch: Epoch::new(),
            pool: Pool::new(config.key_pool),
        }
    }

    /// Why stock OpenSSL serves all requests of a shape, if it does.
    pub(crate) fn declines_all(&self, shape: Shape) -> Option<Declined> {
        if !self.has_kernel(shape) {
            return Some(Declined::NoKernel);
        }
        let slower = self.lone != Lone::Lanes && policy::lanes_are_slower(self.backend, shape);
        slower.then_some(Declined::SlowLanes)
    }

    /// Whether the lanes can serve a shape at all.
    pub(crate) fn has_kernel(&self, shape: Shape) -> bool {
        !shape.is_nist() || self.backend.has_nist_curves()
    }

    /// A key pair out of the pool, if it has one.
    pub(crate) fn pooled(&self, kind: KeyKind) -> Option<Keypair> {
        self.pool.take(kind, self.epoch.here())
    }
}

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

/// A [`Request`] as it waits in the queue.
pub(crate) struct CpuRequest {
    pub request: Request,
    /// RSA only: the lanes compute with the request's copy of the input and check the result
    /// against this one. A bit that flips in one of them cannot reach the other, so it is always
    /// found.
    pub check_input: Zeroizing<Vec<u8>>,
}

impl From<Request> for CpuRequest {
    fn from(request: Request) -> CpuRequest {
        let check_input = match &request {
            Request::RsaPrivate { input, .. } => input.clone(),
            _ => Vec::new(),
        };
        CpuRequest {
            request,
            check_input: Zeroizing::new(check_input),
        }
    }
}

type Answer = Result<Response, Declined>;

/// What the kernel needs of a batch's requests, and where their answers go.
struct Inputs<'a, I> {
    inputs: Vec<I>,
    answers: Answers<'a>,
}

/// Where answers go, in the order of the inputs.
struct Answers<'a>(Vec<&'a mut Option<Answer>>);

impl<'a, I> Inputs<'a, I> {
    /// Reads every request. One that cannot be read has its answer already, and is not among the
    /// inputs.
    fn read(jobs: &'a mut [Job<Cpu>], read: impl Fn(&'a Request) -> Result<I, Answer>) -> Self {
        let mut inputs = Vec::with_capacity(jobs.len());
        let mut answers = Vec::with_capacity(jobs.len());
        for Job { request, answer } in jobs {
            match read(&request.request) {
                Ok(input) => {
                    inputs.push(input);
                    answers.push(answer);
                }
                Err(early) => *answer = Some(early),
            }
        }
        Self {
            inputs,
            answers: Answers(answers),
        }
    }
}

impl Answers<'_> {
    /// Answers the requests that could be read.
    fn give(self, answers: impl IntoIterator<Item = Answer>) {
        for (place, answer) in self.0.into_iter().zip(answers) {
            *place = Some(answer);
        }
    }
}

/// The answer to a request of another shape than its batch: there is none.
fn misplaced<I>() -> Result<I, Answer> {
    Err(Err(Declined::Internal))
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

    /// Checks a sample of signatures, by passes, and all of them once one is found wrong. `check`
    /// tells which of the signatures in a range are good. Returns for every signature whether it
    /// may leave.
    fn sample(
        &self,
        count: usize,
        check: impl Fn(std::ops::Range<usize>) -> Vec<bool>,
    ) -> Vec<bool> {
        let pass = self.backend.lanes();
        for first in (0..count).step_by(pass) {
            if self.sample.has_next() && check(first..count.min(first + pass)).contains(&false) {
                return check(0..count);
            }
        }
        vec![true; count]
    }
}

/// Chooses passes at random, one in so many on average.
struct Sample {
    /// The passes from one choice to the next are from one to twice the average.
    most: u32,
    /// How many are passed over before the next choice.
    left: AtomicI64,
}

impl Sample {
    fn new(every: u32) -> Sample {
        let sample = Sample {
            most: 2 * every.max(1) - 1,
            left: AtomicI64::new(0),
        };
        sample.draw();
        sample
    }

    /// Whether the next pass is chosen.
    fn has_next(&self) -> bool {
        // Below zero, another thread draws just now.
        let chosen = self.left.fetch_sub(1, Ordering::Relaxed) <= 0;
        if chosen {
            self.draw();
        }
        chosen
    }

    /// Draws the next choice; without randomness it is the next pass.
    fn draw(&self) {
        let left = random::<4>(1).map_or(0, |bytes| u32::from_le_bytes(bytes[0]) % self.most);
        self.left.store(i64::from(left), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_large_as_asked_for() {
        let chosen = |every, passes| {
            let sample = Sample::new(every);
            (0..passes).filter(|_| sample.has_next()).count()
        };
        assert_eq!(chosen(1, 1000), 1000);
        // Six standard deviations on either side: that of a distance is two.
        let every_fourth = chosen(4, 40_000);
        assert!((9_700..10_300).contains(&every_fourth), "{every_fourth}");
    }

    #[test]
    fn the_next_choice_cannot_be_told() {
        let sample = Sample::new(64);
        let mut distances = [0_u32; 127];
        for _ in 0..20_000 {
            let mut distance = 0;
            while !sample.has_next() {
                distance += 1;
            }
            distances[distance] += 1;
        }
        assert!(distances.iter().all(|&times| times > 60), "{distances:?}");
    }
}
