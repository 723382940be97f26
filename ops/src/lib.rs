//! Operations with keys, computed in batches on vector lanes.
//!
//! [`Shape`] is the table of all operations. A [`Request`] is one of them with its input;
//! [`Lanes::execute`] answers an array of requests of one shape, each with a [`Response`] or with
//! the reason why it [`Failed`]. [`Lanes`] supply the rest: randomness, nonces, blinding pairs, key
//! pairs made in advance, working memory, and the checks that results pass before they leave.
//!
//! ```
//! use lockstep_ops::{Backend, KeyKind, Lanes, GuardedRequest, Memory, Request, Shape};
//!
//! let lanes = Lanes::new(Backend::PORTABLE, 64, 0);
//! let requests = [(); 4].map(|()| GuardedRequest::from(Request::Keypair(KeyKind::X25519)));
//! let mut answers = [const { None }; 4];
//! let jobs = requests.iter().zip(&mut answers);
//! lanes.execute(Shape::Keypair(KeyKind::X25519), &mut Memory::default(), jobs);
//! assert!(answers.iter().all(|answer| matches!(answer, Some(Ok(_)))));
//! ```
//!
//! The crate has no arithmetic and no `unsafe` code; it starts no thread, reads no setting, and
//! knows nothing of OpenSSL. `lockstep-engine` is the queue that turns single requests of many
//! threads into arrays.
#![forbid(unsafe_code)]

mod bytes;
mod elsewhere;
mod entropy;
mod epoch;
mod failed;
pub mod fault;
mod kem;
mod keys;
mod kinds;
mod lanes;
pub mod operation;
mod prepared;
mod rsa_key;
mod rsa_public;
mod sec1;
mod shape;
mod verified;

pub use bytes::Bytes;
pub use elsewhere::{EcdsaNonced, RsaBlinded, RsaCrt, RsaElsewhere};
pub use epoch::Home;
pub use failed::Failed;
pub use kem::{Encapsulated, KemKey};
pub use keys::{EcKey, Ed25519Key, Keypair, Malformed, MlDsaKey, Secret};
pub use kinds::{Curve, Kem, KeyKind, MlDsa};
pub use lanes::{Lanes, Memory, ROOM_BYTES};
pub use lockstep_kernels::backend::Backend;
pub use lockstep_kernels::mldsa::{Mu, Signature as MlDsaSignature};
pub use lockstep_kernels::mlkem::ParameterSet;
pub use lockstep_kernels::rsa::{
    Components as RsaComponents, JobError, Schedule, Size, Unsupported,
};
pub use operation::{
    Answer, DecapsulateInput, EcdhInput, EcdsaSignInput, EcdsaVerifyInput, Ed25519SignInput,
    Ed25519VerifyInput, EncapsulateInput, GuardedRequest, MlDsaSignInput, MlDsaVerifyInput,
    Request, Response, RsaInput, X25519Input, fill_random,
};
pub use prepared::{EcdsaVerifyJob, Ed25519VerifyJob, PreparedKey, VerifyingKey};
pub use rsa_key::RsaKey;
pub use rsa_public::{RsaPublicJob, RsaPublicKey};
pub use shape::Shape;
