//! The rules that depend on the shape alone: whether requests wait for company, and whether
//! OpenSSL's own implementation serves them.

use lockstep_ops::{Backend, Curve, KeyKind, Shape};

/// Whether lone requests go to OpenSSL's own implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lone {
    /// Where OpenSSL's own implementation was measured to be faster.
    #[default]
    Auto,
    /// Never. Nor do other requests, even if full lanes bring nothing.
    Lanes,
    /// Always.
    Stock,
}

/// Returns whether OpenSSL's own implementation serves one request alone faster than `backend`
/// does.
pub(crate) fn lone_is_slower(backend: Backend, shape: Shape) -> bool {
    // Portable lanes are in use only if the configuration names them.
    backend != Backend::PORTABLE && shape.is_slower_alone(backend)
}

/// Returns the number of requests of a shape that OpenSSL's own implementation serves in a process
/// before an engine is made. This number of requests on lanes saves about the time that the engine,
/// its memory and the tables of a curve cost. Measured, see `docs/decisions/loading.md`.
pub(crate) fn left_first(shape: Shape) -> u32 {
    match shape {
        // Lanes serve a request with a longer key sooner, even with all preparation.
        Shape::Rsa { size, .. } => u32::from(size.bits() <= 2048),
        // OpenSSL's own implementation takes long for these.
        Shape::EcdsaSign(Curve::P384) | Shape::EcdsaVerify(Curve::P384) => 1,
        Shape::Ecdh(Curve::P384) | Shape::Keypair(KeyKind::Nist(Curve::P384)) => 1,
        // OpenSSL may lack it.
        _ if shape.is_kem() => 0,
        _ => 16,
    }
}

/// When the requests of a shape wait for others, to share a batch: jobs pause, and threads gather.
///
/// A job that pauses waits for a whole turn of its event loop, and a thread waits for the threads
/// to which it yields its CPU. The wait pays only where a batch saves more time than that.
/// Measured, see `docs/lab/pauses.md`; the reasons are in `docs/decisions/jobs.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Always. So does RSA.
    Always,
    /// Where the job's thread is [in company](super::Company). So do short operations.
    InCompany,
    /// Never. So do key pairs, for which the pool fills the lanes, and verifications, after which
    /// clients close connections: a job that is paused then is lost.
    Never,
}

impl Sharing {
    pub(crate) fn of(shape: Shape) -> Sharing {
        match shape {
            Shape::Rsa { .. } => Sharing::Always,
            Shape::Keypair(_)
            | Shape::EcdsaVerify(_)
            | Shape::Ed25519Verify
            | Shape::MlDsaVerify(_) => Sharing::Never,
            _ => Sharing::InCompany,
        }
    }
}

/// Returns whether workers help with requests of this shape, which the jobs' own threads lead. Help
/// pays if a pass takes longer than its hand-over to another thread and the notification of its
/// end. Measured, see `docs/lab/pauses.md`.
pub(crate) fn workers_help(shape: Shape, slots: usize) -> bool {
    // With one slot another thread would have no CPU of its own.
    slots > 1 && shape.is_rsa()
}

/// Returns whether OpenSSL's own implementation serves requests one by one about as fast as
/// `backend` does at best, or faster: then it gets all of them. Measured, see
/// `docs/lab/rsa.md`.
pub fn lanes_bring_nothing(backend: Backend, shape: Shape) -> bool {
    shape.is_rsa() && backend.is_avx2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rsa_always_waits_and_neither_key_pairs_nor_verifications_do() {
        for shape in Shape::ALL {
            let never = ["-keygen", "-verify"].map(|end| shape.name().ends_with(end));
            let expected = match shape.is_rsa() {
                true => Sharing::Always,
                false if never.contains(&true) => Sharing::Never,
                false => Sharing::InCompany,
            };
            assert_eq!(Sharing::of(shape), expected, "{shape:?}");
        }
    }

    #[test]
    fn workers_help_with_rsa_where_they_have_a_cpu() {
        for shape in Shape::ALL {
            assert_eq!(workers_help(shape, 2), shape.is_rsa());
            assert!(!workers_help(shape, 1));
        }
    }

    #[test]
    fn only_avx2_brings_nothing_for_rsa() {
        for backend in Backend::available() {
            for shape in Shape::ALL {
                let nothing = shape.is_rsa() && backend.name() == "avx2";
                assert_eq!(lanes_bring_nothing(backend, shape), nothing);
            }
        }
    }

    #[test]
    fn a_25519_request_alone_is_slower_on_avx2_lanes_only() {
        for backend in Backend::available() {
            for shape in [Shape::X25519, Shape::Ed25519Sign, Shape::Ed25519Verify] {
                let slower = backend.name() == "avx2";
                assert_eq!(lone_is_slower(backend, shape), slower);
            }
        }
    }

    #[test]
    fn of_lanes_with_52_bit_multiplies_only_rsa_2048_alone_is_slower() {
        let fast = |backend: &Backend| backend.name().starts_with("avx512ifma");
        for backend in Backend::available().into_iter().filter(fast) {
            for shape in Shape::ALL {
                let slower = shape.name().starts_with("rsa2048");
                assert_eq!(lone_is_slower(backend, shape), slower, "{}", shape.name());
            }
        }
    }
}
