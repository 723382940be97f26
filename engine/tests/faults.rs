//! A fault in one request reaches neither its caller nor its neighbours.
#![cfg(feature = "fault-injection")]

use std::sync::Arc;

use lockstep_engine::{
    Backend, BackendChoice, Bytes, Config, Curve, EcKey, EcdsaSignInput, Ed25519Key,
    Ed25519SignInput, Engine, Fallback, Request, Response, RsaInput, RsaKey, Snapshot, direct,
};
use lockstep_kernels::fault::{self, Fault, Point};

#[path = "../../ops/testdata/keys.rs"]
mod keys;

fn request(key: &Arc<RsaKey>, number: u8) -> Request {
    let mut input = vec![number; key.modulus_bytes()];
    input[0] = 0;
    Request::RsaPrivate(RsaInput {
        key: key.clone(),
        input: input.into(),
    })
}

#[test]
fn a_fault_declines_one_request_and_is_counted() {
    let key = Arc::new(keys::rsa(1024));
    for backend in Backend::available() {
        let config = Config {
            backend: BackendChoice::Named(backend),
            ..Config::default()
        };
        let engine = Engine::new(config);
        let mut failed = 0;
        for point in Point::of(backend) {
            fault::arm(Fault {
                point,
                request: 2,
                half: 1,
                limb: 3,
                bit: 17,
            });
            let batch = || {
                direct::batch(
                    &engine,
                    (1..=5).map(|number| request(&key, number)).collect(),
                )
            };
            let answers = batch();
            fault::disarm();
            // The requests in the two lanes that changed places, or in one lane.
            let struck = if point == Point::LaneOrder {
                2..4
            } else {
                2..3
            };
            for (place, answer) in answers.into_iter().enumerate() {
                let outcome = answer.map(drop).map_err(|declined| declined.fallback());
                let expected = match struck.contains(&place) {
                    true => Err(Fallback::CheckFailed),
                    false => Ok(()),
                };
                assert_eq!(outcome, expected, "{point:?}, request {place}");
            }
            failed += struck.len() as u64;
            // A part of the fault, like a blinding pair, is not used again.
            assert!(batch().iter().all(Result::is_ok), "after {point:?}");
            let Snapshot { failed_checks, .. } = engine.metrics();
            assert_eq!(failed_checks, failed, "{point:?}");
        }
    }
}

/// Every signature is checked here, so the fault is found wherever it strikes.
#[test]
fn a_fault_in_a_curves_signature_never_gets_out() {
    let digest = || Bytes::from_slice(&[9; 32]);
    let ec = |curve: Curve| {
        let scalar = vec![5; curve.bytes()];
        let key = Arc::new(EcKey::new(curve, &scalar, None).unwrap());
        move || {
            Request::EcdsaSign(EcdsaSignInput {
                key: key.clone(),
                digest: digest(),
            })
        }
    };
    let (p256, p384) = (ec(Curve::P256), ec(Curve::P384));
    let ed25519 = Arc::new(Ed25519Key::new(&[5; 32]).unwrap());
    let ed25519 = || {
        Request::Ed25519Sign(Ed25519SignInput {
            key: ed25519.clone(),
            message: digest(),
        })
    };
    let kinds: [(&dyn Fn() -> Request, Point); 4] = [
        (&p256, Point::Recombined),
        (&p384, Point::Recombined),
        (&ed25519, Point::Accumulator),
        (&ed25519, Point::Exponent),
    ];
    for backend in Backend::available() {
        if !backend.has_nist_curves() {
            println!(
                "skipped: this backend, {}, has no NIST curves",
                backend.name()
            );
            continue;
        }
        let engine = Engine::new(Config {
            backend: BackendChoice::Named(backend),
            check_every: 1,
            ..Config::default()
        });
        for (faults, (request, point)) in (1..).zip(kinds) {
            fault::arm(Fault {
                point,
                request: 9,
                half: 0,
                limb: 1,
                bit: 17,
            });
            let answers = direct::batch(&engine, (0..12).map(|_| request()).collect());
            fault::disarm();
            for (place, answer) in answers.into_iter().enumerate() {
                match answer {
                    Ok(Response::Signature(_)) => assert_ne!(place, 9, "it got out"),
                    Ok(other) => panic!("{other:?}"),
                    Err(declined) => {
                        let reason = declined.fallback();
                        assert_eq!((place, reason), (9, Fallback::CheckFailed));
                    }
                }
            }
            assert_eq!(engine.metrics().failed_checks, faults, "{}", backend.name());
        }
    }
}
