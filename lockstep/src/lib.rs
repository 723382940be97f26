//! Public-key operations on whole arrays, computed in lockstep on the vector units of the CPU.
//!
//! A caller that has many signatures, messages or keys in hand passes them in one call. Each call
//! splits its items among threads and computes several on each core at once: with AVX-512 IFMA
//! eight, with AVX2 four. An item that is malformed gets a [`Reason`], and the others their
//! results.
//!
//! | operation | algorithms |
//! |---|---|
//! | [`verify_many`](Workers::verify_many), [`sign_many`](Workers::sign_many) | RSA (PKCS#1 v1.5, PSS), ECDSA on P-256 and P-384, Ed25519, ML-DSA |
//! | [`agree_many`](Workers::agree_many) | X25519, ECDH on P-256 and P-384 |
//! | [`generate_many`](Workers::generate_many) | key pairs of all of these but RSA, and of ML-KEM |
//! | [`encapsulate_many`](Workers::encapsulate_many), [`decapsulate_many`](Workers::decapsulate_many) | ML-KEM, also in hybrids with X25519, P-256 and P-384 |
//!
//! # Examples
//!
//! ```
//! use lockstep::{Algorithm, PrivateKey, Reason, Scheme, ToSign, ToVerify, Workers};
//!
//! let workers = Workers::new();
//! let pairs = workers.generate_many(Algorithm::P256, 100)?;
//! let key = PrivateKey::from_raw(Algorithm::P256, pairs.secret(0))?;
//!
//! let messages: Vec<String> = (0..100).map(|number| format!("message {number}")).collect();
//! let items: Vec<_> = messages.iter().map(|text| ToSign::new(&key, text.as_bytes())).collect();
//! let signatures = workers.sign_many(Scheme::ES256, &items)?;
//!
//! let public = key.public();
//! let mut items: Vec<_> = messages
//!     .iter()
//!     .zip(signatures.iter())
//!     .map(|(text, signature)| Ok(ToVerify::new(&public, text.as_bytes(), signature?)))
//!     .collect::<Result<_, Reason>>()?;
//! items[7].message = b"another message";
//! let verdicts = workers.verify_many(Scheme::ES256, &items)?;
//! assert!(verdicts[6].is_ok());
//! assert_eq!(verdicts[7], Err(Reason::WrongSignature));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Verdicts
//!
//! Every input has the verdict that OpenSSL gives. Ed25519 has the equation without cofactor,
//! encodings of ECDSA are strict DER or of fixed length, and r and s must lie between 1 and the
//! order.
//!
//! # Secrets
//!
//! Operations with private keys run in constant time. RSA is blinded. Each result of RSA and each
//! signature of ML-DSA is checked before it is returned; of the other operations, one in 64 passes
//! is checked. Keys and results with secrets are wiped when they are dropped.
//!
//! # CPUs
//!
//! The library chooses the vector instructions at run time: AVX-512 IFMA, AVX2, or none. With
//! AVX2, scalar code checks signatures on P-256 and P-384, since it is faster. Set the variable
//! `LOCKSTEP_LANES` to `avx512ifma`, `avx2` or `portable` to choose by hand. If there are devices,
//! the library also reads `XDG_CACHE_HOME` or `HOME`, and keeps their rates there.
#![forbid(unsafe_code)]

mod agree;
mod column;
mod der_signature;
mod device;
mod emsa;
mod error;
mod generate;
mod jwk;
mod kem;
mod key;
mod key_files;
mod on_device;
mod rates;
mod rows;
mod scalar;
mod scheme;
mod sign;
mod table;
mod verify;
mod workers;

pub use agree::ToAgree;
pub use column::{Column, Pairs};
pub use device::{DeviceDescription, DeviceError, DeviceRate, DeviceState, devices};
pub use error::{Error, Reason, Verdict};
pub use kem::{Encapsulated, ToDecapsulate};
pub use key::{Algorithm, KeyError, PrivateKey, PublicKey};
pub use lockstep_ops::{Curve, Kem, MlDsa};
pub use rows::{Rows, rows};
pub use scheme::{Encoding, Hash, Salt, Scheme};
pub use sign::ToSign;
pub use verify::{Key, ToVerify};
pub use workers::Workers;
