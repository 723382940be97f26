//! Scalar multiplication, base-point multiplication, key pair and shared key with the interface of
//! NaCl and SUPERCOP, each for slices of any length.
//!
//! Result i belongs to operands i. All functions panic if slices of operands differ in length.

use crate::backend::Backend;

/// Creates a job for each pair of operands.
fn paired<'a, A, B, J>(a: &'a [A], b: &'a [B], job: impl Fn(&'a A, &'a B) -> J) -> Vec<J> {
    assert_eq!(a.len(), b.len(), "as many points as scalars");
    a.iter().zip(b).map(|(a, b)| job(a, b)).collect()
}

/// Returns the results of served jobs.
fn results<J, R>(jobs: Vec<J>, result: impl Fn(J) -> Option<R>) -> Vec<R> {
    jobs.into_iter()
        .map(|job| result(job).expect("every job is served"))
        .collect()
}

/// X25519: `crypto_scalarmult/curve25519`.
pub mod x25519 {
    use super::{Backend, paired, results};
    use crate::curve25519::Error;
    use crate::curve25519::x25519::{
        AgreeJob, BYTES, KeypairJob, PublicKey, SecretKey, SharedSecret, agree,
        keypair as keypair_jobs,
    };

    /// Returns scalar · point; zero if the point has a small order.
    pub fn scalarmult(
        backend: Backend,
        scalars: &[SecretKey],
        points: &[PublicKey],
    ) -> Vec<SharedSecret> {
        let zero = SharedSecret::from_bytes(&[0; BYTES]);
        shared_key(backend, scalars, points)
            .into_iter()
            .map(|result| result.unwrap_or_else(|_| zero.clone()))
            .collect()
    }

    /// Returns scalar · 9.
    pub fn scalarmult_base(backend: Backend, scalars: &[SecretKey]) -> Vec<PublicKey> {
        let mut jobs: Vec<_> = scalars.iter().map(KeypairJob::new).collect();
        keypair_jobs(backend, &mut jobs);
        results(jobs, |job| job.result)
    }

    /// Returns the key pair of each seed of 32 random bytes.
    pub fn keypair(backend: Backend, seeds: Vec<SecretKey>) -> Vec<(SecretKey, PublicKey)> {
        let points = scalarmult_base(backend, &seeds);
        seeds.into_iter().zip(points).collect()
    }

    /// Returns the shared secrets of our secret keys and the peers' public keys; [`Error::Zero`]
    /// where a secret would be zero.
    pub fn shared_key(
        backend: Backend,
        secrets: &[SecretKey],
        peers: &[PublicKey],
    ) -> Vec<Result<SharedSecret, Error>> {
        let mut jobs = paired(secrets, peers, AgreeJob::new);
        agree(backend, &mut jobs);
        results(jobs, |job| job.result)
    }
}

/// The functions for a curve of [`nist`](crate::nist).
macro_rules! nist_module {
    ($curve:ident, $doc:literal) => {
        #[doc = $doc]
        pub mod $curve {
            use super::{Backend, paired, results};
            use crate::nist::$curve::{
                self, EcdhJob, KeypairJob, MultiplyJob, PublicKey, SecretKey, SharedSecret,
            };
            use crate::nist::{Error, Wide};

            /// Returns scalar · point, both coordinates. Errors are those of
            /// [`multiply`]($curve::multiply).
            pub fn scalarmult(
                backend: Backend,
                scalars: &[SecretKey],
                points: &[PublicKey],
            ) -> Vec<Result<PublicKey, Error>> {
                let mut jobs = paired(scalars, points, MultiplyJob::new);
                $curve::multiply(backend, &mut jobs);
                results(jobs, |job| job.result)
            }

            /// Returns (scalar mod n) · G; [`Error::Scalar`] where that is infinity.
            pub fn scalarmult_base(
                backend: Backend,
                scalars: &[SecretKey],
            ) -> Vec<Result<PublicKey, Error>> {
                let wide = |scalar: &SecretKey| Wide::from_scalar(scalar.as_bytes());
                let seeds: Vec<Wide> = scalars.iter().filter_map(wide).collect();
                keypair(backend, &seeds)
                    .into_iter()
                    .map(|result| result.map(|(_, public)| public))
                    .collect()
            }

            /// Returns the key pair of each seed, which must be uniformly random.
            pub fn keypair(
                backend: Backend,
                seeds: &[Wide],
            ) -> Vec<Result<(SecretKey, PublicKey), Error>> {
                let mut jobs: Vec<_> = seeds.iter().map(KeypairJob::new).collect();
                $curve::keypair(backend, &mut jobs);
                results(jobs, |job| job.result)
            }

            /// Returns the shared secrets of our secret keys and the peers' public keys: the x of
            /// scalar · point.
            pub fn shared_key(
                backend: Backend,
                secrets: &[SecretKey],
                peers: &[PublicKey],
            ) -> Vec<Result<SharedSecret, Error>> {
                let mut jobs = paired(secrets, peers, EcdhJob::new);
                $curve::ecdh(backend, &mut jobs);
                results(jobs, |job| job.result)
            }
        }
    };
}

nist_module!(p256, "P-256: `crypto_scalarmult/nistp256`.");
nist_module!(p384, "P-384.");
