//! The functions with NaCl's and SUPERCOP's interface against independent crates.

#[path = "common/batches.rs"]
mod batches;

use batches::{Random, backends, nist_backends};
use lockstep_kernels::curve25519::{self, x25519};
use lockstep_kernels::nacl;
use lockstep_kernels::nist::{self, Wide};

const COUNT: usize = 11;

#[test]
fn x25519_functions_agree_with_an_independent_crate() {
    let mut random = Random(1);
    let bytes: Vec<[u8; 32]> = (0..COUNT).map(|_| random.bytes()).collect();
    let secrets: Vec<_> = bytes.iter().map(x25519::SecretKey::from_bytes).collect();
    let base = x25519_dalek::X25519_BASEPOINT_BYTES;
    for backend in backends() {
        let pairs = nacl::x25519::keypair(backend, secrets.clone());
        let mut public: Vec<_> = pairs.iter().map(|(_, public)| *public).collect();
        for (secret, public) in bytes.iter().zip(&public) {
            assert_eq!(*public, x25519_dalek::x25519(*secret, base));
        }
        assert_eq!(nacl::x25519::scalarmult_base(backend, &secrets), public);
        // Each has the public key of the one before; one key is zero.
        public.rotate_right(1);
        public[3] = [0; 32];
        let shared = nacl::x25519::shared_key(backend, &secrets, &public);
        let products = nacl::x25519::scalarmult(backend, &secrets, &public);
        for (i, (shared, product)) in shared.iter().zip(&products).enumerate() {
            let expected = x25519_dalek::x25519(bytes[i], public[i]);
            assert_eq!(product.as_bytes(), &expected);
            match shared {
                Ok(shared) => assert_eq!(shared.as_bytes(), &expected),
                Err(error) => assert_eq!((i, *error), (3, curve25519::Error::Zero)),
            }
        }
    }
}

macro_rules! agrees {
    ($name:ident, $curve:ident) => {
        #[test]
        fn $name() {
            use ::$curve::elliptic_curve::sec1::ToEncodedPoint;
            use ::$curve::{ProjectivePoint, PublicKey, SecretKey};
            use nacl::$curve as functions;
            use nist::$curve as kernels;

            let mut random = Random(2);
            let seeds: Vec<Wide> = (0..COUNT)
                .map(|_| Wide::from_bytes(&random.bytes()))
                .collect();
            let sec1 = |point: PublicKey| point.to_encoded_point(false).as_bytes().to_vec();
            for backend in nist_backends() {
                let (secrets, mut public): (Vec<_>, Vec<_>) = functions::keypair(backend, &seeds)
                    .into_iter()
                    .map(Result::unwrap)
                    .unzip();
                let oracle: Vec<SecretKey> = secrets
                    .iter()
                    .map(|secret| SecretKey::from_slice(secret.as_bytes()).unwrap())
                    .collect();
                for (secret, public) in oracle.iter().zip(&public) {
                    assert_eq!(public.to_sec1(), sec1(secret.public_key()));
                }
                let again = functions::scalarmult_base(backend, &secrets);
                assert!(again.iter().zip(&public).all(|(a, b)| a.unwrap() == *b));
                public.rotate_right(1);
                public[3].x[0] ^= 1;
                let products = functions::scalarmult(backend, &secrets, &public);
                let shared = functions::shared_key(backend, &secrets, &public);
                for i in 0..COUNT {
                    let Ok(point) = PublicKey::from_sec1_bytes(&public[i].to_sec1()) else {
                        assert_eq!((i, products[i]), (3, Err(nist::Error::Point)));
                        assert_eq!(shared[i].as_ref().err(), Some(&nist::Error::Point));
                        continue;
                    };
                    let product = ProjectivePoint::from(point) * *oracle[i].to_nonzero_scalar();
                    let product = PublicKey::from_affine(product.to_affine()).unwrap();
                    let found: kernels::PublicKey = products[i].unwrap();
                    assert_eq!(found.to_sec1(), sec1(product));
                    assert_eq!(shared[i].as_ref().unwrap().as_bytes(), &found.x);
                }
            }
        }
    };
}

agrees!(p256_functions_agree_with_an_independent_crate, p256);
agrees!(p384_functions_agree_with_an_independent_crate, p384);
