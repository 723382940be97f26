//! Every operation of the table, computed from an array, on every backend: with the lanes alone,
//! without an engine, a module, OpenSSL or another thread.

use std::collections::HashSet;
use std::sync::Arc;

use lockstep_ops::{
    Backend, Bytes, Curve, DecapsulateInput, EcKey, EcdhInput, EcdsaSignInput, EcdsaVerifyInput,
    Ed25519Key, Ed25519SignInput, Ed25519VerifyInput, EncapsulateInput, Failed, GuardedRequest,
    Kem, KemKey, KeyKind, Keypair, Lanes, Memory, MlDsa, MlDsaKey, MlDsaSignInput,
    MlDsaVerifyInput, Request, Response, RsaInput, Secret, Shape, Size, X25519Input,
};
use num_bigint::BigUint;

#[path = "../testdata/keys.rs"]
#[expect(dead_code, reason = "the keys of this test have exponents of its own")]
mod keys;

#[test]
fn every_operation_computes_an_array_on_every_backend() {
    let backends = Backend::available();
    assert!(backends.contains(&Backend::PORTABLE));
    for backend in backends {
        let mut arrays = Arrays::new(backend);
        for size in Size::ALL {
            arrays.rsa(size, false);
            if size.bits() <= 3072 {
                arrays.rsa(size, true);
            }
        }
        for curve in Curve::ALL {
            arrays.nist(curve);
        }
        arrays.x25519();
        arrays.ed25519();
        for kem in Kem::ALL {
            arrays.kem(kem);
        }
        for set in MlDsa::ALL {
            arrays.ml_dsa(set);
        }
        for shape in Shape::ALL {
            let is_computed = arrays.computed.contains(&shape) || shape == NO_KEYS;
            assert!(is_computed, "{}: no {}", backend.name(), shape.name());
        }
    }
}

/// The shape that no key has: with moduli above 3072 bits, OpenSSL and the kernels refuse exponents
/// above 64 bits.
const NO_KEYS: Shape = Shape::Rsa {
    size: Size::Rsa4096,
    wide_exponent: true,
};

/// The lanes of a backend, and the operations that they have computed.
struct Arrays {
    lanes: Lanes,
    memory: Memory,
    computed: HashSet<Shape>,
}

impl Arrays {
    fn new(backend: Backend) -> Arrays {
        Arrays {
            lanes: Lanes::new(backend, 1, 0),
            memory: Memory::default(),
            computed: HashSet::new(),
        }
    }

    /// The responses to an array of requests of one shape: to one more than fill a pass. `request`
    /// makes each from its number.
    fn compute(&mut self, shape: Shape, request: impl Fn(usize) -> Request) -> Vec<Response> {
        let count = self.lanes.pass(shape) + 1;
        assert!(count <= self.lanes.batch(shape));
        let requests: Vec<_> = (0..count)
            .map(|n| GuardedRequest::from(request(n)))
            .collect();
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        let jobs = requests.iter().zip(&mut answers);
        let ran = self.lanes.execute(shape, &mut self.memory, jobs);
        assert_eq!(ran, count, "{shape:?}");
        self.computed.insert(shape);
        let answers = answers.into_iter().map(|answer| match answer {
            Some(Ok(response)) => response,
            other => panic!("{shape:?}: {other:?}"),
        });
        answers.collect()
    }

    fn keypairs(&mut self, kind: KeyKind) -> Vec<Keypair> {
        let made = self.compute(Shape::Keypair(kind), |_| Request::Keypair(kind));
        let made = made.into_iter().map(|response| match response {
            Response::Keypair(pair) => pair,
            other => panic!("no key pair: {other:?}"),
        });
        made.collect()
    }

    fn secrets(&mut self, shape: Shape, request: impl Fn(usize) -> Request) -> Vec<Secret> {
        let agreed = self.compute(shape, request).into_iter();
        let agreed = agreed.map(|response| match response {
            Response::Secret(secret) => secret,
            other => panic!("no secret: {other:?}"),
        });
        agreed.collect()
    }

    fn signatures(&mut self, shape: Shape, request: impl Fn(usize) -> Request) -> Vec<Vec<u8>> {
        let signed = self.compute(shape, request).into_iter();
        let signed = signed.map(|response| match response {
            Response::Rsa(signature) => signature.into_bytes(),
            Response::Signature(signature) => signature.to_vec(),
            Response::MlDsa(signature) => signature.into_bytes(),
            other => panic!("no signature: {other:?}"),
        });
        signed.collect()
    }

    /// Has each signature checked against its own message, and against that of its neighbour.
    /// `request` makes a request of the number of a signature and that of a message.
    fn assert_verify(&mut self, shape: Shape, request: impl Fn(usize, usize) -> Request) {
        for wrong in [false, true] {
            let verdicts = self.compute(shape, |n| request(n, n + usize::from(wrong)));
            for verdict in verdicts {
                assert!(
                    matches!(verdict, Response::Verified(right) if right != wrong),
                    "{shape:?}"
                );
            }
        }
    }

    /// s^e = m, as an independent library computes it.
    fn rsa(&mut self, size: Size, wide_exponent: bool) {
        let mut parts = lockstep_testkit::RsaParts::ordinary(size.bits());
        if wide_exponent {
            let [_, e, p, q, dp, dq, _] = &mut parts.parts;
            let exponent: BigUint = (BigUint::from(1_u8) << 89) - 1_u8;
            let inverse = |prime: &[u8]| {
                let order = BigUint::from_bytes_be(prime) - 1_u8;
                let inverse = exponent.modinv(&order);
                inverse
                    .expect("they have no factor in common")
                    .to_bytes_be()
            };
            (*dp, *dq, *e) = (inverse(p), inverse(q), exponent.to_bytes_be());
        }
        let key = Arc::new(keys::of_parts(&parts));
        let shape = Shape::Rsa {
            size,
            wide_exponent,
        };
        let input = |n: usize| {
            let mut input = vec![n as u8 + 1; size.bytes()];
            input[0] = 0;
            input
        };
        let signed = self.signatures(shape, |n| {
            Request::RsaPrivate(RsaInput {
                key: Arc::clone(&key),
                input: input(n).into(),
            })
        });
        let [n, e] = [&parts.parts[0], &parts.parts[1]].map(|part| BigUint::from_bytes_be(part));
        for (number, signature) in signed.iter().enumerate() {
            let checked = BigUint::from_bytes_be(signature).modpow(&e, &n);
            assert_eq!(checked, BigUint::from_bytes_be(&input(number)), "{shape:?}");
        }
        // A result that a device has computed passes the same check.
        assert!(key.verified(&input(0), signed[0].clone()).is_ok());
        let mut wrong = signed[0].clone();
        wrong[7] ^= 1;
        for (number, result) in [(1, signed[0].clone()), (0, wrong)] {
            let refused = key.verified(&input(number), result).map(drop);
            assert_eq!(refused.unwrap_err(), Failed::CheckFailed, "{shape:?}");
        }
    }

    fn nist(&mut self, curve: Curve) {
        let pairs = self.keypairs(KeyKind::Nist(curve));
        let key = |pair: &Keypair| {
            let key = EcKey::new(curve, pair.secret.as_bytes(), Some(&pair.public));
            Arc::new(key.expect("a key"))
        };
        let keys: Vec<_> = pairs.iter().map(key).collect();
        let signed = self.signatures(Shape::EcdsaSign(curve), |n| {
            Request::EcdsaSign(EcdsaSignInput {
                key: Arc::clone(&keys[n]),
                digest: message(n),
            })
        });
        self.assert_verify(Shape::EcdsaVerify(curve), |n, digest| {
            Request::EcdsaVerify(EcdsaVerifyInput {
                curve,
                public: pairs[n].public.to_vec(),
                digest: message(digest).to_vec().into(),
                signature: signed[n].clone(),
            })
        });
        self.assert_agree(Shape::Ecdh(curve), pairs.len(), |own, peer| {
            Request::Ecdh(EcdhInput {
                key: Arc::clone(&keys[own]),
                peer: pairs[peer].public.clone(),
            })
        });
    }

    fn x25519(&mut self) {
        let pairs = self.keypairs(KeyKind::X25519);
        self.assert_agree(Shape::X25519, pairs.len(), |own, peer| {
            Request::X25519(X25519Input {
                secret: pairs[own].secret.clone(),
                peer: pairs[peer].public.clone(),
            })
        });
    }

    /// Has each of `keys` keys agree with the next one, and the next one with it. `request` makes a
    /// request of the number of the own key and that of the peer's.
    fn assert_agree(
        &mut self,
        shape: Shape,
        keys: usize,
        request: impl Fn(usize, usize) -> Request,
    ) {
        let next = |n: usize| (n + 1) % keys;
        let here = self.secrets(shape, |n| request(n, next(n)));
        let there = self.secrets(shape, |n| request(next(n), n));
        assert_equal(shape, &here, &there);
    }

    fn ed25519(&mut self) {
        let seed = |n: usize| [n as u8 + 1; 32];
        let key = |n| Arc::new(Ed25519Key::new(&seed(n)).expect("a key"));
        let signed = self.signatures(Shape::Ed25519Sign, |n| {
            Request::Ed25519Sign(Ed25519SignInput {
                key: key(n),
                message: message(n),
            })
        });
        let public = |n| self.lanes.ed25519_public(&key(n)).to_vec();
        let public: Vec<_> = (0..signed.len()).map(public).collect();
        self.assert_verify(Shape::Ed25519Verify, |n, text| {
            Request::Ed25519Verify(Ed25519VerifyInput {
                public: public[n].clone(),
                message: message(text).to_vec().into(),
                signature: signed[n].clone(),
            })
        });
    }

    fn kem(&mut self, kem: Kem) {
        let pairs = self.keypairs(KeyKind::Kem(kem));
        let sent = self.compute(Shape::Encapsulate(kem), |n| {
            Request::Encapsulate(EncapsulateInput {
                kem,
                public: pairs[n].public.clone(),
                coins: None,
            })
        });
        let sent = sent.into_iter().map(|response| match response {
            Response::Encapsulated(sent) => (sent.ciphertext, sent.secret),
            other => panic!("nothing encapsulated: {other:?}"),
        });
        let (ciphertexts, secrets): (Vec<Bytes>, Vec<Secret>) = sent.unzip();
        let received = self.secrets(Shape::Decapsulate(kem), |n| {
            Request::Decapsulate(DecapsulateInput {
                key: Arc::new(KemKey::of_pair(kem, &pairs[n]).expect("a key")),
                ciphertext: ciphertexts[n].clone(),
            })
        });
        assert_equal(Shape::Decapsulate(kem), &secrets, &received);
    }

    fn ml_dsa(&mut self, set: MlDsa) {
        let key = Arc::new(MlDsaKey::from_seed(set, &[7; 32]).expect("a key"));
        let public = MlDsaKey::new(set, key.public(), None).expect("a key");
        let public = Arc::new(public);
        let mu = |n: usize| [n as u8; 64];
        let signed = self.signatures(Shape::MlDsaSign(set), |n| {
            Request::MlDsaSign(MlDsaSignInput {
                key: Arc::clone(&key),
                mu: mu(n),
                randomness: None,
            })
        });
        self.assert_verify(Shape::MlDsaVerify(set), |n, text| {
            Request::MlDsaVerify(MlDsaVerifyInput {
                key: Arc::clone(&public),
                mu: mu(text),
                signature: Bytes::from_slice(&signed[n]),
            })
        });
    }
}

/// A message, or a digest, with this number.
fn message(number: usize) -> Bytes {
    Bytes::from_slice(&[number as u8; 32])
}

/// Both sides have the same secrets, and no two of these are the same.
fn assert_equal(shape: Shape, here: &[Secret], there: &[Secret]) {
    let bytes = |secrets: &[Secret]| -> Vec<Vec<u8>> {
        let bytes = secrets.iter().map(|secret| secret.as_bytes().to_vec());
        bytes.collect()
    };
    let (here, there) = (bytes(here), bytes(there));
    assert_eq!(here, there, "{shape:?}");
    let distinct: HashSet<_> = here.iter().collect();
    assert_eq!(distinct.len(), here.len(), "{shape:?}");
}
