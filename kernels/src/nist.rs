//! P-256 and P-384: key generation, ECDSA and ECDH, eight requests side by side.
//!
//! [`p256`] and [`p384`] have the same functions; each takes a slice of jobs of any length and
//! leaves a result in every job. Jobs can have different keys, and an error in one job never
//! changes another. Only [`ecdsa_verify_vartime`](p256::ecdsa_verify_vartime) may take a time that
//! depends on its operands. With AVX2 lanes the portable code serves one job at a time.
//!
//! # Examples
//!
//! ECDSA:
//!
//! ```
//! use lockstep_kernels::backend::Backend;
//! use lockstep_kernels::nist::{Wide, nonce, p256};
//!
//! let seed = Wide::from_bytes(&[1; 64]); // from a generator
//! let mut jobs = [p256::KeypairJob::new(&seed)];
//! p256::keypair(Backend::PORTABLE, &mut jobs);
//! let [(secret, public)] = jobs.map(|job| job.result.expect("set").expect("a good seed"));
//!
//! let digest = [2; 32];
//! let nonce = nonce::hedged(&secret, &[3; 32], &digest); // 32 bytes from a generator
//! let mut jobs = [p256::SignJob::new(&secret, &digest, &nonce)];
//! p256::ecdsa_sign(Backend::PORTABLE, &mut jobs);
//! let [signature] = jobs.map(|job| job.result.expect("set").expect("a good nonce"));
//!
//! let mut jobs = [p256::VerifyJob::new(&public, &digest, &signature)];
//! p256::ecdsa_verify_vartime(Backend::PORTABLE, &mut jobs);
//! assert_eq!(jobs[0].result, Some(Ok(())));
//! ```
//!
//! ECDH:
//!
//! ```
//! use lockstep_kernels::backend::Backend;
//! use lockstep_kernels::nist::{Wide, p256};
//!
//! let seeds = [1, 2].map(|byte| Wide::from_bytes(&[byte; 64])); // from a generator
//! let mut jobs = seeds.each_ref().map(p256::KeypairJob::new);
//! p256::keypair(Backend::PORTABLE, &mut jobs);
//! let [alice, bob] = jobs.map(|job| job.result.expect("set").expect("a good seed"));
//!
//! let mut jobs = [p256::EcdhJob::new(&alice.0, &bob.1), p256::EcdhJob::new(&bob.0, &alice.1)];
//! p256::ecdh(Backend::PORTABLE, &mut jobs);
//! let [one, other] = jobs.map(|job| job.result.expect("set").expect("valid keys"));
//! assert_eq!(one.as_bytes(), other.as_bytes());
//! ```
#![doc = include_str!("../../docs/design/nist-curves.md")]

mod base_table;
mod batch;
pub(crate) mod compressed;
pub(crate) mod curve;
mod digits;
pub(crate) mod inverse;
pub mod nonce;
pub(crate) mod point;
mod prepared;
pub(crate) mod scalar_mul;
#[cfg(test)]
mod tests;
mod types;

pub use prepared::{PrepareJob, PreparedKey, PreparedVerifyJob};
pub use types::{
    DecompressJob, EcdhJob, Error, KeypairJob, MultiplyJob, PublicKey, SecretKey, SharedSecret,
    SignJob, Signature, VerifyJob, WIDE_BYTES, Wide,
};

/// The module of a curve: the generic types and functions at its sizes.
macro_rules! curve_module {
    ($name:ident, $curve:ident, $limbs:literal, $bytes:literal, $doc:literal) => {
        #[doc = $doc]
        pub mod $name {
            use super::curve::$curve;
            use super::{batch, compressed, prepared};
            use crate::backend::{Backend, dispatch};

            /// Number of bytes of a scalar or a coordinate.
            pub const BYTES: usize = $bytes;

            /// A secret scalar d.
            pub type SecretKey = super::SecretKey<$bytes>;
            /// A point.
            pub type PublicKey = super::PublicKey<$bytes>;
            /// An ECDSA signature.
            pub type Signature = super::Signature<$bytes>;
            /// The x-coordinate of a Diffie–Hellman point.
            pub type SharedSecret = super::SharedSecret<$bytes>;
            /// A seed, whose key pair is computed.
            pub type KeypairJob<'a> = super::KeypairJob<'a, $bytes>;
            /// A digest to sign.
            pub type SignJob<'a> = super::SignJob<'a, $bytes>;
            /// A signature to check.
            pub type VerifyJob<'a> = super::VerifyJob<'a, $bytes>;
            /// A public key with a table of its multiples.
            pub type PreparedKey = super::PreparedKey<$bytes>;
            /// A public key to prepare.
            pub type PrepareJob<'a> = super::PrepareJob<'a, $bytes>;
            /// A signature to check with a prepared key.
            pub type PreparedVerifyJob<'a> = super::PreparedVerifyJob<'a, $bytes>;
            /// A point to compute from its x and the parity of its y.
            pub type DecompressJob<'a> = super::DecompressJob<'a, $bytes>;
            /// Two keys, whose shared secret is computed.
            pub type EcdhJob<'a> = super::EcdhJob<'a, $bytes>;
            /// A point to multiply.
            pub type MultiplyJob<'a> = super::MultiplyJob<'a, $bytes>;

            /// Computes key pairs: d = seed mod n, Q = d·G.
            ///
            /// The result is [`Error::Scalar`](super::Error::Scalar) if the seed is a multiple of
            /// n.
            pub fn keypair(backend: Backend, jobs: &mut [KeypairJob<'_>]) {
                dispatch!(backend, jobs, batch::keypair::<_, $curve, $limbs, $bytes>);
            }

            /// Signs digests (FIPS 186-5, 6.4.1): (r, s) with k = nonce mod n.
            ///
            /// The result is [`Error::Scalar`](super::Error::Scalar) if the key is not in 1..n, and
            /// [`Error::Nonce`](super::Error::Nonce) if k, r or s is zero: try another nonce.
            pub fn ecdsa_sign(backend: Backend, jobs: &mut [SignJob<'_>]) {
                dispatch!(backend, jobs, batch::sign::<_, $curve, $limbs, $bytes>);
            }

            /// Checks signatures (FIPS 186-5, 6.4.2). All operands are treated as public.
            ///
            /// The result is [`Error::Point`](super::Error::Point) if the key is not a point, and
            /// [`Error::Signature`](super::Error::Signature) if the signature is wrong.
            pub fn ecdsa_verify_vartime(backend: Backend, jobs: &mut [VerifyJob<'_>]) {
                dispatch!(backend, jobs, batch::verify::<_, $curve, $limbs, $bytes>);
            }

            /// Prepares public keys.
            ///
            /// The result is [`Error::Point`](super::Error::Point) if the key is not a point.
            pub fn prepare(backend: Backend, jobs: &mut [PrepareJob<'_>]) {
                dispatch!(
                    backend,
                    jobs,
                    prepared::prepare::<_, $curve, $limbs, $bytes>
                );
            }

            /// Checks signatures as [`ecdsa_verify_vartime`] does, with the same results, in less
            /// time. The keys of a batch may be different.
            pub fn ecdsa_verify_prepared_vartime(
                backend: Backend,
                jobs: &mut [PreparedVerifyJob<'_>],
            ) {
                dispatch!(
                    backend,
                    jobs,
                    prepared::verify_prepared::<_, $curve, $limbs, $bytes>
                );
            }

            /// Computes points from their x and the parity of their y (SEC 1, 2.3.4).
            ///
            /// The result is [`Error::Point`](super::Error::Point) if x is not below p, or if no
            /// point has this x.
            pub fn decompress(backend: Backend, jobs: &mut [DecompressJob<'_>]) {
                dispatch!(
                    backend,
                    jobs,
                    compressed::decompress::<_, $curve, $limbs, $bytes>
                );
            }

            /// Computes shared secrets (SP 800-56A, 5.7.1.2): the x of d·Q.
            ///
            /// The result is [`Error::Scalar`](super::Error::Scalar) if the key is not in 1..n, and
            /// [`Error::Point`](super::Error::Point) if the peer's key is not a point.
            pub fn ecdh(backend: Backend, jobs: &mut [EcdhJob<'_>]) {
                dispatch!(
                    backend,
                    jobs,
                    batch::multiply::<_, $curve, _, $limbs, $bytes>
                );
            }

            /// Multiplies points: d·Q, both coordinates. Errors as in [`ecdh`].
            pub fn multiply(backend: Backend, jobs: &mut [MultiplyJob<'_>]) {
                dispatch!(
                    backend,
                    jobs,
                    batch::multiply::<_, $curve, _, $limbs, $bytes>
                );
            }
        }
    };
}

curve_module!(p256, P256, 5, 32, "P-256 (secp256r1, prime256v1).");
curve_module!(p384, P384, 8, 48, "P-384 (secp384r1).");
