//! Operations, by family: each pairs an input with an output by type, and has requests of its shape
//! computed by the kernels. [`Shape`] is the table of them all.

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

mod curve25519;
mod group;
mod kem;
mod keypairs;
mod nist;
mod rsa;

use lockstep_kernels::rsa::{Signature, Verified};
use zeroize::Zeroizing;

use crate::bytes::Bytes;
use crate::declined::Declined;
use crate::kem::Encapsulated;
use crate::keys::{Keypair, Secret};
use crate::kinds::KeyKind;
use crate::lanes::{Lanes, Memory};
use crate::shape::Shape;
use nist::for_curve;

pub use curve25519::{
    Ed25519Sign, Ed25519SignInput, Ed25519Verify, Ed25519VerifyInput, X25519, X25519Input,
};
pub use kem::{Decapsulate, DecapsulateInput, Encapsulate, EncapsulateInput};
pub use keypairs::Keygen;
pub use nist::{Ecdh, EcdhInput, EcdsaSign, EcdsaSignInput, EcdsaVerify, EcdsaVerifyInput};
pub use rsa::{RsaInput, RsaPrivate};

/// Something that can be asked of the engine.
pub trait Operation {
    /// What goes in.
    type Input;
    /// What comes out.
    type Output;

    /// The shape of such requests. It is known before there is an input.
    fn shape(&self) -> Shape;

    /// The request with this input.
    fn request(self, input: Self::Input) -> Request;

    /// The output in the response to such a request. None for that to a request of another kind.
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
    /// Makes a secret and the ciphertext that tells it: [`Response::Encapsulated`].
    Encapsulate(EncapsulateInput),
    /// Finds the secret of a ciphertext: [`Response::Secret`].
    Decapsulate(DecapsulateInput),
}

impl Request {
    /// The batches that it may join.
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
        }
    }
}

/// The result of a [`Request`].
#[derive(Debug)]
pub enum Response {
    /// s with s^e = m, checked against the request's own key and input.
    Rsa(Verified<Signature>),
    /// ECDSA: r ‖ s, big-endian, each as long as a scalar. Ed25519: R ‖ S.
    ///
    /// A sample of them was checked; see [`Config::check_every`](crate::Config::check_every).
    Signature(Bytes),
    /// What two keys agree on.
    Secret(Secret),
    /// A key pair that nobody else was given.
    Keypair(Keypair),
    /// Whether the signature belongs to the key and the digest or message.
    Verified(bool),
    /// A secret, and what tells it. A sample of them was computed twice.
    Encapsulated(Encapsulated),
}

macro_rules! responses {
    ($($variant:ident($output:ty),)*) => {
        $(impl From<$output> for Response {
            fn from(output: $output) -> Response {
                Response::$variant(output)
            }
        })*
    };
}

responses! {
    Rsa(Verified<Signature>),
    Signature(Bytes),
    Secret(Secret),
    Keypair(Keypair),
    Verified(bool),
    Encapsulated(Encapsulated),
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
            Request::RsaPrivate(rsa) => rsa.input.to_vec(),
            _ => Vec::new(),
        };
        CpuRequest {
            request,
            check_input: Zeroizing::new(check_input),
        }
    }
}

/// The answer to a request.
pub(crate) type Answer = Result<Response, Declined>;

/// The requests of a batch, and where their answers go.
pub(crate) trait Jobs<'a>:
    Iterator<Item = (&'a CpuRequest, &'a mut Option<Answer>)>
{
}

impl<'a, T> Jobs<'a> for T where T: Iterator<Item = (&'a CpuRequest, &'a mut Option<Answer>)> {}

impl Lanes {
    /// Answers a batch of requests of one shape; returns how many operations the lanes ran. A
    /// request of another shape gets no answer.
    pub(crate) fn execute<'a>(
        &self,
        shape: Shape,
        memory: &mut Memory,
        jobs: impl Jobs<'a> + ExactSizeIterator,
    ) -> usize {
        let requests = jobs.len();
        let jobs = jobs.filter(|(asked, _)| asked.request.shape() == shape);
        match shape {
            Shape::Rsa { .. } => self.rsa(memory, jobs),
            Shape::EcdsaSign(curve) => for_curve!(curve, self.ecdsa_sign(jobs)),
            Shape::EcdsaVerify(curve) => for_curve!(curve, self.ecdsa_verify(jobs)),
            Shape::Ecdh(curve) => for_curve!(curve, self.ecdh(jobs)),
            Shape::Keypair(kind) => return self.keypairs(kind, memory, jobs),
            Shape::X25519 => self.x25519(jobs),
            Shape::Ed25519Sign => self.ed25519_sign(jobs),
            Shape::Ed25519Verify => self.ed25519_verify(jobs),
            Shape::Encapsulate(kem) => self.encapsulate(kem, memory, jobs),
            Shape::Decapsulate(kem) => self.decapsulate(kem, memory, jobs),
        }
        requests
    }
}

/// Any operation of this shape, for programs that know it at run time only.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use lockstep_kernels::backend::Backend;

    use super::*;
    use crate::config::Config;
    use crate::kinds::Curve;

    #[test]
    fn only_requests_of_the_shape_of_their_batch_get_answers() {
        let config = Config {
            key_pool: 0,
            ..Config::default()
        };
        let lanes = Lanes::new(Backend::PORTABLE, &config);
        let kinds = [KeyKind::X25519, KeyKind::Nist(Curve::P256)];
        for shape in Shape::ALL {
            let requests = kinds.map(|kind| CpuRequest::from(Request::Keypair(kind)));
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
