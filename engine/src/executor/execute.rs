//! The lanes as an executor: which kernel serves which shape.

use std::iter::repeat_with;

use lockstep_kernels::curve25519::ed25519;
use lockstep_kernels::mlkem;
use lockstep_kernels::rsa::{Scratch, Signature, Verified};

use super::cpu::{Cpu, CpuRequest};
use super::group::Group;
use super::{Executor, Job, curve25519, kem, nist, rsa};
use crate::bytes::Bytes;
use crate::declined::Declined;
use crate::kem::Encapsulated;
use crate::keys::{Keypair, Material, Secret};
use crate::kinds::Kem;
use crate::kinds::{Curve, KeyKind};
use crate::policy::{self, Lone};
use crate::request::{EcdhInput, EcdsaSignInput, Request, Response};
use crate::shape::Shape;

/// The most requests of a curve in one batch: so many share an inversion.
const CURVE_BATCH: usize = 64;

impl Executor for Cpu {
    type Shape = Shape;
    type Request = CpuRequest;
    type Response = Response;
    type Memory = Memory;

    const SHAPES: &'static [Shape] = &Shape::ALL;

    fn index(shape: Shape) -> usize {
        shape.index()
    }

    fn pass(&self, shape: Shape) -> usize {
        match shape {
            // One by one, without lanes.
            Shape::Rsa { .. } if self.backend.computes_rsa_on_words() => 1,
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
            // OpenSSL may lack it.
            Lone::Stock => !shape.is_kem(),
        }
    }

    fn wants_help(&self, shape: Shape) -> bool {
        self.jobs_lead.wants_help(shape, self.slots)
    }

    fn shares_batches(&self, shape: Shape) -> bool {
        self.batch.is_for(shape)
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn execute(&self, _: Shape, memory: &mut Memory, jobs: &mut [Job<Cpu>]) -> usize {
        let groups = Groups::of(self, jobs);
        let Groups {
            rsa,
            p256,
            p384,
            keypairs,
            x25519,
            ed25519_sign,
            ed25519_verify,
            encapsulate,
            decapsulate,
            requests,
        } = groups;
        if !rsa.is_empty() {
            match memory.rsa() {
                Some(scratch) => self.rsa(scratch, rsa),
                None => no_memory(rsa),
            }
        }
        self.nist::<nist::P256, 32>(p256);
        self.nist::<nist::P384, 48>(p384);
        if !x25519.is_empty() {
            self.x25519(x25519);
        }
        if !ed25519_sign.is_empty() {
            self.ed25519_sign(ed25519_sign);
        }
        if !ed25519_verify.is_empty() {
            self.ed25519_verify(ed25519_verify);
        }
        for (kem, group) in Kem::ALL.into_iter().zip(encapsulate) {
            if !group.is_empty() {
                match memory.ml_kem() {
                    Some(scratch) => self.encapsulate(kem, scratch, group),
                    None => no_memory(group),
                }
            }
        }
        for (kem, group) in Kem::ALL.into_iter().zip(decapsulate) {
            if !group.is_empty() {
                match memory.ml_kem() {
                    Some(scratch) => self.decapsulate(kem, scratch, group),
                    None => no_memory(group),
                }
            }
        }
        let mut ran = requests;
        for (kind, group) in KeyKind::ALL.into_iter().zip(keypairs) {
            if !group.is_empty() {
                ran += self.keypairs(kind, memory, group);
            }
        }
        ran
    }
}

/// Answers requests for which there is no working memory.
fn no_memory<I, O: Into<Response>>(group: Group<'_, I, O>) {
    group.answers.give(repeat_with(|| Err(Declined::NoMemory)));
}

/// The working memory of a slot, made when it is first needed. Curves need none.
#[derive(Default)]
pub(crate) struct Memory {
    rsa: Option<Scratch>,
    ml_kem: Option<mlkem::Scratch>,
}

impl Memory {
    /// None without memory for it, here and below.
    fn rsa(&mut self) -> Option<&mut Scratch> {
        if self.rsa.is_none() {
            self.rsa = Scratch::try_new();
        }
        self.rsa.as_mut()
    }

    fn ml_kem(&mut self) -> Option<&mut mlkem::Scratch> {
        if self.ml_kem.is_none() {
            self.ml_kem = mlkem::Scratch::try_new();
        }
        self.ml_kem.as_mut()
    }
}

/// The requests of a batch by operation. The queue makes batches of one shape, so all groups but
/// one are empty.
#[derive(Default)]
struct Groups<'a> {
    rsa: Group<'a, rsa::ToCompute<'a>, Verified<Signature>>,
    p256: nist::Groups<'a, 32>,
    p384: nist::Groups<'a, 48>,
    /// In the order of [`KeyKind::ALL`].
    keypairs: [Group<'a, (), Keypair>; KeyKind::ALL.len()],
    x25519: Group<'a, curve25519::ToAgree<'a>, Secret>,
    ed25519_sign: Group<'a, ed25519::SignJob<'a>, Bytes>,
    ed25519_verify: Group<'a, ed25519::VerifyJob<'a>, bool>,
    /// In the order of [`Kem::ALL`], as the next.
    encapsulate: [Group<'a, kem::ToEncapsulate<'a>, Encapsulated>; Kem::ALL.len()],
    decapsulate: [Group<'a, kem::ToDecapsulate<'a>, Secret>; Kem::ALL.len()],
    /// How many there are but for those for key pairs.
    requests: usize,
}

impl<'a> Groups<'a> {
    fn of(cpu: &Cpu, jobs: &'a mut [Job<Cpu>]) -> Groups<'a> {
        let mut groups = Groups::default();
        let most = jobs.len();
        for Job { request, answer } in jobs {
            let CpuRequest {
                request,
                check_input,
            } = &*request;
            groups.requests += usize::from(!matches!(request, Request::Keypair(_)));
            match request {
                Request::RsaPrivate(input) => {
                    let request = rsa::ToCompute::new(input, check_input);
                    groups.rsa.push(Ok(request), answer, most);
                }
                Request::EcdsaSign(EcdsaSignInput { key, digest }) => match key.material() {
                    Material::P256(pair) => {
                        groups.p256.sign.push(Ok((pair, digest)), answer, most);
                    }
                    Material::P384(pair) => {
                        groups.p384.sign.push(Ok((pair, digest)), answer, most);
                    }
                },
                Request::EcdsaVerify(input) => match input.curve {
                    Curve::P256 => {
                        let input = nist::read_signature(input);
                        groups.p256.verify.push(input, answer, most);
                    }
                    Curve::P384 => {
                        let input = nist::read_signature(input);
                        groups.p384.verify.push(input, answer, most);
                    }
                },
                Request::Ecdh(EcdhInput { key, peer }) => match key.material() {
                    Material::P256(pair) => {
                        let input = nist::read_peer(pair, peer);
                        groups.p256.ecdh.push(input, answer, most);
                    }
                    Material::P384(pair) => {
                        let input = nist::read_peer(pair, peer);
                        groups.p384.ecdh.push(input, answer, most);
                    }
                },
                Request::Keypair(kind) => {
                    groups.keypairs[kind.index()].push(Ok(()), answer, most);
                }
                Request::X25519(input) => {
                    let input = curve25519::read_keys(input);
                    groups.x25519.push(input, answer, most);
                }
                Request::Ed25519Sign(input) => {
                    groups.ed25519_sign.push(cpu.to_sign(input), answer, most);
                }
                Request::Ed25519Verify(input) => {
                    let input = curve25519::read_signature(input);
                    groups.ed25519_verify.push(input, answer, most);
                }
                Request::Encapsulate(input) => {
                    let group = &mut groups.encapsulate[input.kem.index()];
                    group.push(kem::read_public(input), answer, most);
                }
                Request::Decapsulate(input) => {
                    let group = &mut groups.decapsulate[input.key.kem().index()];
                    group.push(kem::read_ciphertext(input), answer, most);
                }
            }
        }
        groups
    }
}

impl Cpu {
    /// Makes the key pairs of a batch, and others for the pool; returns how many in all.
    fn keypairs(
        &self,
        kind: KeyKind,
        memory: &mut Memory,
        Group { inputs, answers }: Group<'_, (), Keypair>,
    ) -> usize {
        let count = self.pool.count_to_make(kind, inputs.len());
        let made = match kind {
            KeyKind::Kem(kem) => match memory.ml_kem() {
                Some(scratch) => self.kem_keypairs(kem, scratch, count),
                None => {
                    answers.give(repeat_with(|| Err(Declined::NoMemory)));
                    return 0;
                }
            },
            curve => self.curve_keypairs(curve, count),
        };
        let mut made = made.unwrap_or_default().into_iter();
        answers.give(
            inputs
                .iter()
                .map(|()| made.next().ok_or(Declined::Randomness)),
        );
        if count > inputs.len() {
            self.pool.put(kind, self.home.here(), made);
        }
        count
    }

    /// Key pairs on a curve for as many requests: of the pool, or new ones and others for the pool.
    /// `None` if the system gave no randomness.
    pub(super) fn pairs(&self, kind: KeyKind, requests: usize) -> Option<Vec<Keypair>> {
        let here = self.home.here();
        let of_pool = repeat_with(|| self.pool.take(kind, here));
        let mut pairs: Vec<_> = of_pool.take(requests).map_while(|pair| pair).collect();
        let missing = requests - pairs.len();
        if missing > 0 {
            let count = self.pool.count_to_make(kind, missing);
            let mut made = self.curve_keypairs(kind, count)?.into_iter();
            pairs.extend(made.by_ref().take(missing));
            self.pool.put(kind, here, made);
        }
        Some(pairs)
    }

    /// New key pairs; `None` if the system gave no randomness, and for what is no curve.
    fn curve_keypairs(&self, kind: KeyKind, count: usize) -> Option<Vec<Keypair>> {
        match kind {
            KeyKind::X25519 => self.x25519_keypairs(count),
            KeyKind::Nist(Curve::P256) => self.nist_keypairs::<nist::P256, 32>(count),
            KeyKind::Nist(Curve::P384) => self.nist_keypairs::<nist::P384, 48>(count),
            KeyKind::Kem(_) => None,
        }
    }
}
