//! Operations, by family: each pairs an input with an output by type, and hands requests of its
//! shape to the kernels. [`Shape`] is the table of all operations.

mod arrays;
mod curve25519;
mod group;
mod kem;
mod keypairs;
mod ml_dsa;
pub(crate) mod nist;
mod response;
mod rsa;

use lockstep_kernels::mldsa;
use lockstep_kernels::rsa::{Signature, Verified};
use zeroize::Zeroizing;

use crate::bytes::Bytes;
use crate::kem::Encapsulated;
use crate::keys::{Keypair, Secret};
use crate::kinds::KeyKind;
use crate::lanes::{Lanes, Memory};
use crate::shape::Shape;
use group::Group;
use nist::{Kernels, for_curve};

pub use arrays::fill_random;
pub use curve25519::{
    Ed25519Sign, Ed25519SignInput, Ed25519Verify, Ed25519VerifyInput, X25519, X25519Input,
};
pub use kem::{Decapsulate, DecapsulateInput, Encapsulate, EncapsulateInput};
pub use keypairs::Keygen;
pub use ml_dsa::{MlDsaSign, MlDsaSignInput, MlDsaVerify, MlDsaVerifyInput};
pub use nist::{Ecdh, EcdhInput, EcdsaSign, EcdsaSignInput, EcdsaVerify, EcdsaVerifyInput};
pub use response::{Answer, Response};
pub use rsa::{RsaInput, RsaPrivate};

/// An operation, with the types of its input and its output.
pub trait Operation {
    /// Type of its input.
    type Input;
    /// Type of its output.
    type Output;

    /// Returns the shape of its requests, which is known before there is an input.
    fn shape(&self) -> Shape;

    /// Makes the request with this input.
    fn request(self, input: Self::Input) -> Request;

    /// Returns the output in the response to such a request; `None` if it is the response to
    /// another kind of request.
    fn output(response: Response) -> Option<Self::Output>;
}

/// One operation with its input: nothing points into the caller's memory.
pub enum Request {
    /// s = m^d mod n, for signing and for decryption alike.
    RsaPrivate(RsaInput),
    /// Signs a digest with ECDSA and a hedged nonce: [`Response::Signature`].
    EcdsaSign(EcdsaSignInput),
    /// Checks an ECDSA signature: [`Response::Verified`].
    EcdsaVerify(EcdsaVerifyInput),
    /// Agrees on a secret, the x of a point: [`Response::Secret`].
    Ecdh(EcdhInput),
    /// Makes a key pair: [`Response::Keypair`].
    Keypair(KeyKind),
    /// Agrees on a secret by X25519 (RFC 7748): [`Response::Secret`].
    X25519(X25519Input),
    /// Signs a message with Ed25519 (RFC 8032, not prehashed, without context):
    /// [`Response::Signature`].
    Ed25519Sign(Ed25519SignInput),
    /// Checks an Ed25519 signature: [`Response::Verified`].
    Ed25519Verify(Ed25519VerifyInput),
    /// Makes a secret and the ciphertext from which the peer finds it: [`Response::Encapsulated`].
    Encapsulate(EncapsulateInput),
    /// Finds the secret of a ciphertext: [`Response::Secret`].
    Decapsulate(DecapsulateInput),
    /// Signs a message with ML-DSA (FIPS 204), and checks the signature: [`Response::MlDsa`].
    MlDsaSign(MlDsaSignInput),
    /// Checks an ML-DSA signature: [`Response::Verified`].
    MlDsaVerify(MlDsaVerifyInput),
}

impl Request {
    /// Returns the shape of the batches that it may join.
    pub fn shape(&self) -> Shape {
        match self {
            Request::RsaPrivate(rsa) => rsa.key.shape(),
            Request::EcdsaSign(sign) => Shape::EcdsaSign(sign.key.curve()),
            Request::EcdsaVerify(verify) => Shape::EcdsaVerify(verify.curve),
            Request::Ecdh(ecdh) => Shape::Ecdh(ecdh.key.curve()),
            Request::Keypair(kind) => Shape::Keypair(*kind),
            Request::X25519(_) => Shape::X25519,
            Request::Ed25519Sign(_) => Shape::Ed25519Sign,
            Request::Ed25519Verify(_) => Shape::Ed25519Verify,
            Request::Encapsulate(input) => Shape::Encapsulate(input.kem),
            Request::Decapsulate(input) => Shape::Decapsulate(input.key.kem()),
            Request::MlDsaSign(input) => Shape::MlDsaSign(input.key.set()),
            Request::MlDsaVerify(input) => Shape::MlDsaVerify(input.key.set()),
        }
    }
}

/// A [`Request`], guarded against a bit that flips in its input.
pub struct GuardedRequest {
    /// The request.
    pub request: Request,
    /// RSA only: a second copy of the input. The lanes compute with the request's own copy and
    /// check the result against this one. A bit that flips in one of them cannot reach the other,
    /// so it is always found.
    pub check_input: Zeroizing<Vec<u8>>,
}

impl From<Request> for GuardedRequest {
    fn from(request: Request) -> GuardedRequest {
        let check_input = match &request {
            Request::RsaPrivate(rsa) => rsa.input.to_vec(),
            _ => Vec::new(),
        };
        GuardedRequest {
            request,
            check_input: Zeroizing::new(check_input),
        }
    }
}

/// The requests of a batch, with the places of their answers.
trait Jobs<'a>: Iterator<Item = (&'a GuardedRequest, &'a mut Option<Answer>)> {}

impl<'a, T> Jobs<'a> for T where T: Iterator<Item = (&'a GuardedRequest, &'a mut Option<Answer>)> {}

/// Computes the readable requests of one kind in a batch, if there are any.
macro_rules! compute {
    ($jobs:ident, $kind:ident($input:pat) => $read:expr, |$group:ident| $compute:block) => {
        let group = Group::gather($jobs, |asked: &GuardedRequest| match &asked.request {
            Request::$kind($input) => $read,
            _ => None,
        });
        if let Some($group) = group $compute
    };
}

impl Lanes {
    /// Answers a batch of requests of one shape, and returns the number of operations that the
    /// lanes ran. A request of another shape gets no answer.
    ///
    /// # Panics
    ///
    /// If there are more requests than [`Lanes::batch`] allows for the shape.
    pub fn execute<'a>(
        &self,
        shape: Shape,
        memory: &mut Memory,
        jobs: impl ExactSizeIterator<Item = (&'a GuardedRequest, &'a mut Option<Answer>)>,
    ) -> usize {
        let requests = jobs.len();
        let jobs = jobs.filter(|(asked, _)| asked.request.shape() == shape);
        match shape {
            Shape::Rsa { .. } => {
                let group = Group::gather(jobs, |asked| match &asked.request {
                    Request::RsaPrivate(input) => Some(Ok(rsa::read(input, &asked.check_input))),
                    _ => None,
                });
                if let Some(group) = group {
                    self.rsa(memory, group);
                }
            }
            Shape::EcdsaSign(curve) | Shape::EcdsaVerify(curve) | Shape::Ecdh(curve) => {
                for_curve!(curve, self.nist(shape, jobs));
            }
            Shape::Keypair(kind) => {
                let mut made = 0;
                compute!(jobs, Keypair(_) => Some(Ok(())), |group| {
                    made = self.keypairs(kind, memory, group);
                });
                return made;
            }
            Shape::X25519 => {
                compute!(jobs, X25519(input) => Some(curve25519::read_keys(input)), |group| {
                    self.x25519(group);
                });
            }
            Shape::Ed25519Sign => {
                compute!(jobs, Ed25519Sign(input) => Some(self.to_sign(input)), |group| {
                    self.ed25519_sign(group);
                });
            }
            Shape::Ed25519Verify => {
                let read = curve25519::read_signature;
                compute!(jobs, Ed25519Verify(input) => Some(read(input)), |group| {
                    self.ed25519_verify(group);
                });
            }
            Shape::Encapsulate(kem) => {
                compute!(jobs, Encapsulate(input) => Some(kem::read_public(input)), |group| {
                    self.encapsulate(kem, memory, group);
                });
            }
            Shape::Decapsulate(kem) => {
                compute!(jobs, Decapsulate(input) => Some(kem::read_ciphertext(input)), |group| {
                    self.decapsulate(kem, memory, group);
                });
            }
            Shape::MlDsaSign(set) => {
                compute!(jobs, MlDsaSign(input) => Some(self.to_sign_with(input)), |group| {
                    self.ml_dsa_sign(set, memory, group);
                });
            }
            Shape::MlDsaVerify(set) => {
                compute!(jobs, MlDsaVerify(input) => Some(self.to_verify_with(input)), |group| {
                    self.ml_dsa_verify(set, memory, group);
                });
            }
        }
        requests
    }

    /// Answers a batch of signatures, checks or agreements on a NIST curve.
    fn nist<'a, C: Kernels<BYTES>, const BYTES: usize>(&self, shape: Shape, jobs: impl Jobs<'a>) {
        match shape {
            Shape::EcdsaSign(_) => {
                let read = nist::read_digest::<C, BYTES>;
                compute!(jobs, EcdsaSign(input) => Some(Ok(read(input)?)), |group| {
                    self.ecdsa_sign::<C, BYTES>(group);
                });
            }
            Shape::EcdsaVerify(_) => {
                compute!(jobs, EcdsaVerify(input) => Some(nist::read_signature(input)), |group| {
                    self.ecdsa_verify::<C, BYTES>(group);
                });
            }
            Shape::Ecdh(_) => {
                compute!(jobs, Ecdh(input) => nist::read_peer::<C, BYTES>(input), |group| {
                    self.ecdh::<C, BYTES>(group);
                });
            }
            _ => {}
        }
    }
}

macro_rules! operation {
    (
        $operation:ty, $input:ty => $output:ty;
        |$own:ident| $shape:expr, $request:expr, $response:ident
    ) => {
        impl Operation for $operation {
            type Input = $input;
            type Output = $output;

            fn shape(&self) -> Shape {
                let $own = self;
                $shape
            }

            fn request(self, input: $input) -> Request {
                let request: fn(Self, $input) -> Request = $request;
                request(self, input)
            }

            fn output(response: Response) -> Option<$output> {
                match response {
                    Response::$response(output) => Some(output),
                    _ => None,
                }
            }
        }
    };
}

operation! {
    RsaPrivate<'_>, RsaInput => Verified<Signature>;
    |own| own.0.shape(), |_, input| Request::RsaPrivate(input), Rsa
}
operation! {
    EcdsaSign, EcdsaSignInput => Bytes;
    |own| Shape::EcdsaSign(own.0), |_, input| Request::EcdsaSign(input), Signature
}
operation! {
    EcdsaVerify, EcdsaVerifyInput => bool;
    |own| Shape::EcdsaVerify(own.0), |_, input| Request::EcdsaVerify(input), Verified
}
operation! {
    Ecdh, EcdhInput => Secret;
    |own| Shape::Ecdh(own.0), |_, input| Request::Ecdh(input), Secret
}
operation! {
    Keygen, () => Keypair;
    |own| Shape::Keypair(own.0), |own, ()| Request::Keypair(own.0), Keypair
}
operation! {
    X25519, X25519Input => Secret;
    |_own| Shape::X25519, |_, input| Request::X25519(input), Secret
}
operation! {
    Ed25519Sign, Ed25519SignInput => Bytes;
    |_own| Shape::Ed25519Sign, |_, input| Request::Ed25519Sign(input), Signature
}
operation! {
    Ed25519Verify, Ed25519VerifyInput => bool;
    |_own| Shape::Ed25519Verify, |_, input| Request::Ed25519Verify(input), Verified
}
operation! {
    Encapsulate, EncapsulateInput => Encapsulated;
    |own| Shape::Encapsulate(own.0), |_, input| Request::Encapsulate(input), Encapsulated
}
operation! {
    Decapsulate, DecapsulateInput => Secret;
    |own| Shape::Decapsulate(own.0), |_, input| Request::Decapsulate(input), Secret
}
operation! {
    MlDsaSign, MlDsaSignInput => mldsa::Signature;
    |own| Shape::MlDsaSign(own.0), |_, input| Request::MlDsaSign(input), MlDsa
}
operation! {
    MlDsaVerify, MlDsaVerifyInput => bool;
    |own| Shape::MlDsaVerify(own.0), |_, input| Request::MlDsaVerify(input), Verified
}

/// The operation of this shape, for programs that know it only at run time.
impl Operation for Shape {
    type Input = Request;
    type Output = Response;

    fn shape(&self) -> Shape {
        *self
    }

    fn request(self, input: Request) -> Request {
        input
    }

    fn output(response: Response) -> Option<Response> {
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use lockstep_kernels::backend::Backend;

    use super::*;
    use crate::kinds::Curve;

    #[test]
    fn only_requests_of_the_shape_of_their_batch_get_answers() {
        let lanes = Lanes::new(Backend::PORTABLE, 1, 0);
        let kinds = [KeyKind::X25519, KeyKind::Nist(Curve::P256)];
        for shape in Shape::ALL {
            let requests = kinds.map(|kind| GuardedRequest::from(Request::Keypair(kind)));
            let mut answers = [None, None];
            let jobs = requests.iter().zip(&mut answers);
            lanes.execute(shape, &mut Memory::default(), jobs);
            for (kind, answer) in kinds.into_iter().zip(answers) {
                let is_made = matches!(answer, Some(Ok(Response::Keypair(_))));
                assert_eq!(is_made, shape == Shape::Keypair(kind), "{shape:?}");
                assert_eq!(answer.is_some(), is_made, "{shape:?}");
            }
        }
    }
}
