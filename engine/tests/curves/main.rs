//! Curves through the engine: every shape, bad inputs, the pool of key pairs.

mod bad_inputs;
mod pool;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use lockstep_engine::{
    Backend, BackendChoice, Config, Curve, Declined, EcKey, EcdhInput, EcdsaSignInput,
    EcdsaVerifyInput, Ed25519Key, Ed25519SignInput, Ed25519VerifyInput, Engine, Failed, Fallback,
    KeyKind, Keypair, Lone, Malformed, Notify, Request, Response, RsaInput, RsaKey, Secret, Shape,
    X25519Input, direct,
};
use lockstep_testkit::hex;

#[path = "../../../ops/testdata/keys.rs"]
mod keys;

/// Returns a configuration with the best lanes of this machine that have curves, even if these are
/// the portable ones.
fn config() -> Config {
    let backend = Backend::available()
        .into_iter()
        .find(|backend| backend.has_nist_curves());
    Config {
        backend: BackendChoice::Named(backend.unwrap()),
        slots: 2,
        lone: Lone::Lanes,
        check_every: 1,
        ..Config::default()
    }
}

fn engine() -> Engine {
    Engine::new(config())
}

fn one(engine: &Engine, request: Request) -> Result<Response, Declined> {
    direct::batch(engine, vec![request]).remove(0)
}

fn secret(response: Result<Response, Declined>) -> Vec<u8> {
    match response {
        Ok(Response::Secret(secret)) => secret.as_bytes().to_vec(),
        other => panic!("no secret: {other:?}"),
    }
}

fn signature(response: Result<Response, Declined>) -> Vec<u8> {
    match response {
        Ok(Response::Signature(signature)) => signature.to_vec(),
        other => panic!("no signature: {other:?}"),
    }
}

fn verdict(response: Result<Response, Declined>) -> bool {
    match response {
        Ok(Response::Verified(good)) => good,
        other => panic!("no verdict: {other:?}"),
    }
}

fn ec_key(curve: Curve, pair: &Keypair) -> Arc<EcKey> {
    Arc::new(EcKey::new(curve, pair.secret.as_bytes(), Some(&pair.public)).unwrap())
}

/// RFC 8032, 7.1, test 2.
const ED25519: [&str; 4] = [
    "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    "72",
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
     085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
];

#[test]
fn known_answers() {
    let engine = engine();
    // RFC 7748, 5.2.
    let agreed = Request::X25519(X25519Input {
        secret: Secret::new(&hex(
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        )),
        peer: hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c").into(),
    });
    assert_eq!(
        secret(one(&engine, agreed)),
        hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
    );
    let [seed, public, message, signed] = ED25519.map(hex);
    let sign = Request::Ed25519Sign(Ed25519SignInput {
        key: Arc::new(Ed25519Key::new(&seed).unwrap()),
        message: message.clone().into(),
    });
    assert_eq!(signature(one(&engine, sign)), signed);
    for (flipped, expected) in [(0, true), (1, false)] {
        let verify = Request::Ed25519Verify(Ed25519VerifyInput {
            public: public.clone(),
            message: vec![message[0] ^ flipped].into(),
            signature: signed.clone(),
        });
        assert_eq!(verdict(one(&engine, verify)), expected);
    }
    // RFC 6979, A.2.5: SHA-256 of "sample" signed on P-256.
    let mut public = vec![4];
    public.extend(hex(
        "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
    ));
    public.extend(hex(
        "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
    ));
    let signed = [
        hex("efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"),
        hex("f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"),
    ];
    let digest = hex("af2bdbe1aa9b6ec1e2ade1d694f41fc71a831d0268e9891562113d8a62add1bf");
    for (flipped, expected) in [(0, true), (0x80, false)] {
        let mut digest = digest.clone();
        digest[31] ^= flipped;
        let verify = Request::EcdsaVerify(EcdsaVerifyInput {
            curve: Curve::P256,
            public: public.clone(),
            digest: digest.into(),
            signature: signed.concat(),
        });
        assert_eq!(verdict(one(&engine, verify)), expected);
    }
}

/// Makes two key pairs, and signs, verifies and agrees with them, through `ask`.
fn conversation(curve: Curve, ask: &dyn Fn(Request) -> Result<Response, Declined>) {
    let pair = || match ask(Request::Keypair(KeyKind::Nist(curve))) {
        Ok(Response::Keypair(pair)) => pair,
        other => panic!("no key pair: {other:?}"),
    };
    let (ours, theirs) = (pair(), pair());
    let agree = |own: &Keypair, peer: &Keypair| {
        secret(ask(Request::Ecdh(EcdhInput {
            key: ec_key(curve, own),
            peer: peer.public.clone(),
        })))
    };
    assert_eq!(agree(&ours, &theirs), agree(&theirs, &ours));
    assert_ne!(agree(&ours, &theirs), agree(&ours, &ours));
    let digest = vec![0x5a; curve.bytes()];
    // The point of this key is computed for the check.
    let key = Arc::new(EcKey::new(curve, ours.secret.as_bytes(), None).unwrap());
    let sign = || {
        signature(ask(Request::EcdsaSign(EcdsaSignInput {
            key: key.clone(),
            digest: digest.clone().into(),
        })))
    };
    let (first, second) = (sign(), sign());
    assert_ne!(first, second, "nonces are fresh");
    for (signature, public, expected) in [
        (&first, &ours.public, true),
        (&second, &ours.public, true),
        (&first, &theirs.public, false),
    ] {
        let verify = Request::EcdsaVerify(EcdsaVerifyInput {
            curve,
            public: public.to_vec(),
            digest: digest.clone().into(),
            signature: signature.clone(),
        });
        assert_eq!(verdict(ask(verify)), expected);
    }
}

fn conversation_25519(ask: &dyn Fn(Request) -> Result<Response, Declined>) {
    let pair = || match ask(Request::Keypair(KeyKind::X25519)) {
        Ok(Response::Keypair(pair)) => pair,
        other => panic!("no key pair: {other:?}"),
    };
    let (ours, theirs) = (pair(), pair());
    let agree = |own: &Keypair, peer: &Keypair| {
        secret(ask(Request::X25519(X25519Input {
            secret: own.secret.clone(),
            peer: peer.public.clone(),
        })))
    };
    assert_eq!(agree(&ours, &theirs), agree(&theirs, &ours));
    let [seed, public, message, signed] = ED25519.map(hex);
    let sign = Request::Ed25519Sign(Ed25519SignInput {
        key: Arc::new(Ed25519Key::new(&seed).unwrap()),
        message: message.clone().into(),
    });
    let signature = signature(ask(sign));
    assert_eq!(signature, signed);
    let verify = Request::Ed25519Verify(Ed25519VerifyInput {
        public,
        message: message.into(),
        signature,
    });
    assert!(verdict(ask(verify)));
}

struct Silent;

impl Notify for Silent {
    fn notify(&self) {}
}

#[test]
fn every_shape_blocking_and_submitted_side_by_side() {
    let engine = engine();
    let blocking = |request| direct::blocking(&engine, request);
    let submitted = |request| direct::submit(&engine, request, Box::new(Silent))?.take();
    let ways: [&(dyn Fn(Request) -> Result<Response, Declined> + Sync); 2] =
        [&blocking, &submitted];
    let rsa = Arc::new(keys::rsa(1024));
    let rsa_request = |key: &Arc<RsaKey>| {
        let mut input = vec![1; key.modulus_bytes()];
        input[0] = 0;
        Request::RsaPrivate(RsaInput {
            key: key.clone(),
            input: input.into(),
        })
    };
    thread::scope(|scope| {
        for ask in ways {
            for curve in Curve::ALL {
                scope.spawn(move || (0..4).for_each(|_| conversation(curve, ask)));
                scope.spawn(move || (0..4).for_each(|_| conversation(curve, ask)));
            }
            scope.spawn(move || (0..4).for_each(|_| conversation_25519(ask)));
            let rsa = &rsa;
            scope.spawn(move || {
                for _ in 0..4 {
                    assert!(matches!(ask(rsa_request(rsa)), Ok(Response::Rsa(_))));
                }
            });
        }
    });
    let counters = engine.metrics();
    assert_eq!((counters.fallbacks(), counters.paused), (0, 0));
    for shape in Shape::ALL {
        let operations = match shape {
            Shape::Rsa { .. } if shape.name() == "rsa1024" => 8,
            Shape::Rsa { .. } => 0,
            Shape::X25519 | Shape::Keypair(KeyKind::X25519) => 16,
            Shape::Ed25519Sign | Shape::Ed25519Verify => 8,
            shape if shape.is_kem() => 0,
            Shape::MlDsaSign(_) | Shape::MlDsaVerify(_) => 0,
            Shape::Keypair(_) | Shape::EcdsaSign(_) => 32,
            Shape::EcdsaVerify(_) => 48,
            _ecdh => 64,
        };
        assert_eq!(counters.operations_of(shape), operations, "{shape:?}");
    }
}

#[test]
fn a_large_batch_keeps_its_order() {
    let engine = engine();
    for curve in Curve::ALL {
        let pairs: Vec<Keypair> = (0..64)
            .map(|_| direct::keypair(&engine, KeyKind::Nist(curve)).unwrap())
            .collect();
        let digest = |number: usize| vec![number as u8; 20];
        let sign = |(number, pair)| {
            Request::EcdsaSign(EcdsaSignInput {
                key: ec_key(curve, pair),
                digest: digest(number).into(),
            })
        };
        let signed = direct::batch(&engine, pairs.iter().enumerate().map(sign).collect());
        let verify = |((number, pair), signed): ((usize, &Keypair), _)| {
            Request::EcdsaVerify(EcdsaVerifyInput {
                curve,
                public: pair.public.to_vec(),
                digest: digest(number).into(),
                signature: signature(signed),
            })
        };
        let requests = pairs.iter().enumerate().zip(signed).map(verify).collect();
        assert!(direct::batch(&engine, requests).into_iter().all(verdict));
    }
}

/// Runs a batch in which good and bad requests alternate.
fn with_good_neighbours(
    engine: &Engine,
    good: &dyn Fn() -> Request,
    bad: Vec<Request>,
) -> Vec<Result<Response, Declined>> {
    let mut requests = vec![good()];
    for bad in bad {
        requests.extend([bad, good()]);
    }
    let mut answers = direct::batch(engine, requests).into_iter();
    assert!(answers.next().unwrap().is_ok());
    let mut of_bad = Vec::new();
    while let Some(answer) = answers.next() {
        of_bad.push(answer);
        let neighbour = answers.next().unwrap();
        assert!(neighbour.is_ok(), "{neighbour:?}");
    }
    of_bad
}

#[test]
fn a_signature_that_does_not_fit_its_key_never_leaves() {
    for curve in Curve::ALL {
        let engine = engine();
        let [ours, theirs] =
            [0; 2].map(|_| direct::keypair(&engine, KeyKind::Nist(curve)).unwrap());
        let contradictory = EcKey::new(curve, ours.secret.as_bytes(), Some(&theirs.public));
        let (contradictory, sound) = (Arc::new(contradictory.unwrap()), ec_key(curve, &ours));
        let sign = |key: &Arc<EcKey>| {
            Request::EcdsaSign(EcdsaSignInput {
                key: key.clone(),
                digest: vec![1; 32].into(),
            })
        };
        let wrong = (0..9).map(|_| sign(&contradictory)).collect();
        for answer in with_good_neighbours(&engine, &|| sign(&sound), wrong) {
            assert!(
                matches!(answer, Err(Declined::Failed(Failed::CheckFailed))),
                "{answer:?}"
            );
        }
        assert_eq!(engine.metrics().failed_checks, 9);
    }
}

#[test]
fn a_sample_is_checked_and_a_find_has_all_checked() {
    let engine = Engine::new(Config {
        check_every: 4,
        ..config()
    });
    let kind = KeyKind::Nist(Curve::P256);
    let [ours, theirs] = [0; 2].map(|_| direct::keypair(&engine, kind).unwrap());
    let contradictory = EcKey::new(Curve::P256, ours.secret.as_bytes(), Some(&theirs.public));
    let contradictory = Arc::new(contradictory.unwrap());
    let sign = || {
        Request::EcdsaSign(EcdsaSignInput {
            key: contradictory.clone(),
            digest: vec![1; 32].into(),
        })
    };
    let mut found = 0;
    for _ in 0..400 {
        let answers = direct::batch(&engine, (0..2).map(|_| sign()).collect());
        let declined = answers.iter().filter(|answer| answer.is_err()).count();
        assert!(declined == 0 || declined == 2, "all of a batch or none");
        found += declined / 2;
    }
    // 400 times one in four; ten standard deviations on either side.
    assert!((13..=187).contains(&found), "{found}");
}

#[test]
fn without_lanes_there_are_no_pairs_either() {
    let engine = Engine::new(Config {
        backend: BackendChoice::None,
        ..Config::default()
    });
    engine.wipe_after_fork();
    assert!(direct::pooled_keypair(&engine, KeyKind::X25519).is_none());
    assert!(matches!(
        direct::keypair(&engine, KeyKind::X25519),
        Err(Declined::NoBackend)
    ));
}

#[test]
fn lanes_without_nist_curves_leave_them_to_stock_even_if_forced() {
    let Some(backend) = Backend::available()
        .into_iter()
        .find(|backend| !backend.has_nist_curves())
    else {
        println!("skipped: this CPU has no lanes without NIST curves");
        return;
    };
    let engine = Engine::new(Config {
        backend: BackendChoice::Named(backend),
        ..config()
    });
    let nist = Curve::ALL.map(KeyKind::Nist);
    for kind in nist {
        let request = || Request::Keypair(kind);
        assert!(matches!(
            direct::blocking(&engine, request()),
            Err(Declined::NoKernel)
        ));
        let answers = direct::batch(&engine, vec![request(), request()]);
        for answer in &answers {
            assert!(matches!(answer, Err(Declined::NoKernel)), "{answer:?}");
        }
        assert_eq!(answers.len(), 2);
        assert!(direct::pooled_keypair(&engine, kind).is_none());
    }
    for shape in Shape::ALL {
        let reason = shape.is_nist().then_some(Fallback::NoKernel);
        assert_eq!(engine.declines_all(shape), reason, "{shape:?}");
    }
    let counters = engine.metrics();
    let declined = 3 * nist.len() as u64;
    assert_eq!(counters.fallbacks_for(Fallback::NoKernel), declined);
    assert_eq!(counters.fallbacks(), declined);
    assert_eq!(counters.passes, 0);
}

#[test]
fn secrets_are_not_printed() {
    let pair = direct::keypair(&engine(), KeyKind::X25519).unwrap();
    let text = format!("{:?}", Response::Keypair(pair));
    assert!(text.contains("Secret([redacted])"), "{text}");
    let [seed, ..] = ED25519.map(hex);
    let key = Ed25519Key::new(&seed).unwrap();
    assert_eq!(format!("{key:?}"), "Ed25519Key([redacted])");
    let key = EcKey::new(Curve::P256, &seed, None).unwrap();
    assert_eq!(format!("{key:?}"), "EcKey { curve: P256, .. }");
}
