//! Operations on curves.

use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::{ed25519, x25519};
use lockstep_kernels::nist::nonce::{HedgedJob, hedged, hedged_batch};
use lockstep_kernels::nist::{Wide, p256, p384};

use super::{Random, begin, check_mark, expect_marked, public, text};

/// All operations on curves, in batches of these sizes, with marked secrets or not.
pub fn curves(backend: Backend, fills: &[usize], marked: bool) {
    let mut random = Random(77);
    for &fill in fills {
        let batch = Batch {
            backend,
            fill,
            marked,
        };
        match marked {
            true => batch.about("curves"),
            false => begin("tables"),
        }
        batch.x25519(&mut random);
        batch.ed25519(&mut random);
        if backend.has_nist_curves() {
            nist_curve!(batch, p256, Random(5));
            nist_curve!(batch, p384, Random(6));
        }
    }
}

/// Requests that are served together.
struct Batch {
    backend: Backend,
    fill: usize,
    /// Whether their secrets are marked.
    marked: bool,
}

impl Batch {
    /// Prints the current operation, if its secrets are marked.
    fn about(&self, what: &str) {
        if self.marked {
            let (backend, fill) = (self.backend.name(), self.fill);
            begin(&text(format_args!("{backend} {what}, {fill} at once")));
        }
    }

    /// Takes a public result, which depends on a marked secret.
    fn check(&self, bytes: &[u8]) {
        match self.marked {
            true => expect_marked(bytes),
            false => public(bytes),
        }
    }

    /// The bytes of a secret.
    fn secret<const COUNT: usize>(&self, random: &mut Random) -> [u8; COUNT] {
        match self.marked {
            true => random.secret(),
            false => random.bytes(),
        }
    }

    fn x25519(&self, random: &mut Random) {
        self.about("x25519 keypair");
        let secrets: Vec<_> = (0..self.fill)
            .map(|_| x25519::SecretKey::from_bytes(&self.secret(random)))
            .collect();
        let mut jobs: Vec<_> = secrets.iter().map(x25519::KeypairJob::new).collect();
        x25519::keypair(self.backend, &mut jobs);
        let points: Vec<_> = jobs.iter().map(|job| job.result.expect("served")).collect();
        points.iter().for_each(|point| self.check(point));
        self.about("x25519 agree");
        let mut jobs: Vec<_> = secrets
            .iter()
            .zip(&points)
            .map(|(secret, point)| x25519::AgreeJob::new(secret, point))
            .collect();
        x25519::agree(self.backend, &mut jobs);
        for job in &jobs {
            match &job.result {
                Some(Ok(shared)) => self.check(shared.as_bytes()),
                other => panic!("{other:?}"),
            }
        }
    }

    fn ed25519(&self, random: &mut Random) {
        self.about("ed25519 keypair");
        let seeds: Vec<_> = (0..self.fill)
            .map(|_| ed25519::Seed::from_bytes(&self.secret(random)))
            .collect();
        let mut jobs: Vec<_> = seeds.iter().map(ed25519::KeypairJob::new).collect();
        ed25519::keypair(self.backend, &mut jobs);
        let keys: Vec<_> = jobs
            .into_iter()
            .map(|job| job.result.expect("served"))
            .collect();
        keys.iter().for_each(|key| self.check(key.public()));
        self.about("ed25519 sign");
        let mut jobs: Vec<_> = keys
            .iter()
            .map(|key| ed25519::SignJob::new(key, b"message"))
            .collect();
        ed25519::sign(self.backend, &mut jobs);
        // R and S are disclosed by the comparison of both computations.
        let signatures: Vec<_> = jobs
            .iter()
            .map(|job| job.result.expect("served").expect("right"))
            .collect();
        self.about("ed25519 check");
        let mut jobs: Vec<_> = keys
            .iter()
            .zip(&signatures)
            .map(|(key, signature)| ed25519::CheckJob::new(key, b"message", signature))
            .collect();
        ed25519::check(self.backend, &mut jobs);
        assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
    }
}

/// The operations of a NIST curve.
macro_rules! nist_curve {
    ($batch:ident, $curve:ident, $random:expr) => {{
        let Batch {
            backend,
            fill,
            marked,
        } = $batch;
        let about = |what: &str| $batch.about(what);
        let check = |bytes: &[u8]| $batch.check(bytes);
        let mut random: Random = $random;
        let name = stringify!($curve);
        let mut wide = || Wide::from_bytes(&$batch.secret::<64>(&mut random));
        about(&text(format_args!("{name} keypair")));
        let seeds: Vec<_> = (0..fill).map(|_| wide()).collect();
        let mut jobs: Vec<_> = seeds.iter().map($curve::KeypairJob::new).collect();
        $curve::keypair(backend, &mut jobs);
        let pairs: Vec<_> = jobs
            .into_iter()
            .map(|job| job.result.expect("served").expect("a scalar"))
            .collect();
        for (key, point) in &pairs {
            check(&point.x);
            check(&point.y);
            if marked {
                check_mark("the key", key.as_bytes());
            }
        }
        about(&text(format_args!("{name} nonces")));
        let mut randoms = vec![[0; 32]; fill];
        randoms.iter_mut().for_each(|bytes| {
            let whole = wide();
            bytes.copy_from_slice(&whole.as_bytes()[..32]);
        });
        let mut jobs: Vec<_> = pairs
            .iter()
            .zip(&randoms)
            .map(|((key, _), random)| HedgedJob::new(key, random, b"digest"))
            .collect();
        hedged_batch(backend, &mut jobs);
        let nonces: Vec<_> = jobs
            .into_iter()
            .map(|job| job.result.expect("served"))
            .collect();
        for nonce in &nonces {
            if marked {
                check_mark("the nonce", nonce.as_bytes());
            }
        }
        let alone = hedged(&pairs[0].0, &randoms[0], b"digest");
        if marked {
            check_mark("the nonce", alone.as_bytes());
        }
        about(&text(format_args!("{name} sign")));
        let mut jobs: Vec<_> = pairs
            .iter()
            .zip(&nonces)
            .map(|((key, _), nonce)| $curve::SignJob::new(key, b"digest", nonce))
            .collect();
        $curve::ecdsa_sign(backend, &mut jobs);
        for job in &jobs {
            match &job.result {
                Some(Ok(signature)) => {
                    check(&signature.r);
                    check(&signature.s);
                }
                other => panic!("{other:?}"),
            }
        }
        about(&text(format_args!("{name} ecdh")));
        let mut jobs: Vec<_> = pairs
            .iter()
            .map(|(key, point)| $curve::EcdhJob::new(key, point))
            .collect();
        $curve::ecdh(backend, &mut jobs);
        for job in &jobs {
            match &job.result {
                Some(Ok(shared)) => check(shared.as_bytes()),
                other => panic!("{:?}", other.as_ref().map(Result::is_ok)),
            }
        }
    }};
}
use nist_curve;
