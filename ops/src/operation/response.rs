//! The results of operations.

use lockstep_kernels::mldsa;
use lockstep_kernels::rsa::{Signature, Verified};

use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::kem::Encapsulated;
use crate::keys::{Keypair, Secret};

/// The result of a request.
#[derive(Debug)]
pub enum Response {
    /// s with s^e = m, checked against the request's own key and input.
    Rsa(Verified<Signature>),
    /// ECDSA: r ‖ s, big-endian, each as long as a scalar. Ed25519: R ‖ S.
    ///
    /// A sample of them was checked: one in every `check_every` passes.
    Signature(Bytes),
    /// ML-DSA, checked against the request's own key and μ.
    MlDsa(mldsa::Signature),
    /// The secret that two keys agree on, or the secret of a ciphertext.
    Secret(Secret),
    /// A key pair that no other request gets.
    Keypair(Keypair),
    /// Whether the signature belongs to the key and the digest or message.
    Verified(bool),
    /// A secret and its ciphertext. A sample of them was computed twice.
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
    MlDsa(mldsa::Signature),
    Secret(Secret),
    Keypair(Keypair),
    Verified(bool),
    Encapsulated(Encapsulated),
}

/// The answer to a request.
pub type Answer = Result<Response, Failed>;
