//! A fault in one request reaches neither its caller nor its neighbours.
#![cfg(feature = "fault-injection")]

use std::sync::Arc;

use lockstep_engine::{
    Backend, BackendChoice, Config, Engine, Fallback, Request, RsaKey, Snapshot,
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
