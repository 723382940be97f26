//! Operations: each pairs what goes in with what comes out, by type.

use lockstep_kernels::rsa::{Signature, Verified};

use crate::bytes::Bytes;
use crate::kem::Encapsulated;
use crate::keys::{Keypair, Secret};
use crate::kinds::Kem;
use crate::kinds::{Curve, KeyKind};
use crate::request::{
    DecapsulateInput, EcdhInput, EcdsaSignInput, EcdsaVerifyInput, Ed25519SignInput,
    Ed25519VerifyInput, EncapsulateInput, Request, Response, RsaInput, X25519Input,
};
use crate::rsa_key::RsaKey;
use crate::shape::Shape;

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

/// s = m^d mod n with this key.
#[derive(Clone, Copy, Debug)]
pub struct RsaPrivate<'a>(pub &'a RsaKey);

/// An ECDSA signature on this curve.
#[derive(Clone, Copy, Debug)]
pub struct EcdsaSign(pub Curve);

/// A check of an ECDSA signature on this curve.
#[derive(Clone, Copy, Debug)]
pub struct EcdsaVerify(pub Curve);

/// An ECDH agreement on this curve.
#[derive(Clone, Copy, Debug)]
pub struct Ecdh(pub Curve);

/// A new key pair of this kind.
#[derive(Clone, Copy, Debug)]
pub struct Keygen(pub KeyKind);

/// An X25519 agreement.
#[derive(Clone, Copy, Debug)]
pub struct X25519;

/// An Ed25519 signature.
#[derive(Clone, Copy, Debug)]
pub struct Ed25519Sign;

/// A check of an Ed25519 signature.
#[derive(Clone, Copy, Debug)]
pub struct Ed25519Verify;

/// A secret for who has the private key.
#[derive(Clone, Copy, Debug)]
pub struct Encapsulate(pub Kem);

/// The secret in a ciphertext.
#[derive(Clone, Copy, Debug)]
pub struct Decapsulate(pub Kem);

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
