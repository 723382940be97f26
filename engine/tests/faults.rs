//! A fault in one request reaches neither its caller nor its neighbours.
#![cfg(feature = "fault-injection")]

use std::sync::Arc;

use lockstep_engine::{
    Backend, BackendChoice, Config, Curve, EcKey, Ed25519Key, Engine, Fallback, Request, Response,
    RsaKey, Snapshot,
};
use lockstep_kernels::fault::{self, Fault, Point};

#[path = "../testdata/keys.rs"]
mod keys;

fn request(key: &Arc<RsaKey>, number: u8) -> Request {
    let mut input = vec![number; key.modulus_bytes()];
    input[0] = 0;
    Request::RsaPrivate {
        key: key.clone(),
        input,
    }
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
        for (faults, point) in (1..).zip([Point::Accumulator, Point::Input, Point::Recombined]) {
            fault::arm(Fault {
                point,
                request: 2,
                half: 1,
                limb: 3,
                bit: 17,
            });
            let answers = engine.execute((1..=5).map(|number| request(&key, number)).collect());
            fault::disarm();
            for (place, answer) in answers.into_iter().enumerate() {
                match answer {
                    Ok(_) => assert_ne!(place, 2, "{point:?} got out"),
                    Err(declined) => {
                        let reason = declined.fallback();
                        assert_eq!((place, reason), (2, Fallback::CheckFailed), "{point:?}");
                    }
                }
            }
            let Snapshot { failed_checks, .. } = engine.metrics();
            assert_eq!(failed_checks, faults);
        }
        let again = engine.execute(vec![request(&key, 3)]).remove(0);
        assert!(again.is_ok(), "the next request is served as ever");
    }
}

/// Every signature is checked here, so the fault is found wherever it strikes.
#[test]
fn a_fault_in_a_curves_signature_never_gets_out() {
    let digest = || vec![9; 32];
    let ec = |curve: Curve| {
        let scalar = vec![5; curve.bytes()];
        let key = Arc::new(EcKey::new(curve, &scalar, None).unwrap());
        move || Request::EcdsaSign {
            key: key.clone(),
            digest: digest(),
        }
    };
    let (p256, p384) = (ec(Curve::P256), ec(Curve::P384));
    let ed25519 = Arc::new(Ed25519Key::new(&[5; 32]).unwrap());
    let ed25519 = || Request::Ed25519Sign {
        key: ed25519.clone(),
        message: digest(),
    };
    let kinds: [(&dyn Fn() -> Request, Point); 4] = [
        (&p256, Point::Recombined),
        (&p384, Point::Recombined),
        (&ed25519, Point::Accumulator),
        (&ed25519, Point::Exponent),
    ];
    for backend in Backend::available() {
        if !backend.has_nist_curves() {
            println!("skipped: the {} lanes have no NIST curves", backend.name());
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
            let answers = engine.execute((0..12).map(|_| request()).collect());
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
