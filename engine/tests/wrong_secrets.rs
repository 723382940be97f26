//! A defect of ML-KEM's lanes is found in the passes that are computed again. It is a program of
//! its own, as the defect stays in all engines of the process.
#![cfg(feature = "fault-injection")]

use std::sync::Arc;

use lockstep_engine::{
    Backend, BackendChoice, Bytes, Config, DecapsulateInput, Declined, EncapsulateInput, Engine,
    Fallback, Kem, KemKey, KeyKind, Request, Response, direct,
};
use lockstep_ops::fault::{WRONG_KEM_LANES, plant};

fn engine(check_every: u32) -> Engine {
    Engine::new(Config {
        backend: BackendChoice::Named(Backend::available()[0]),
        slots: 1,
        check_every,
        ..Config::default()
    })
}

/// Returns the outcomes of a batch of such requests.
fn outcomes(engine: &Engine, request: &dyn Fn() -> Request) -> Vec<Result<(), Fallback>> {
    let answers = direct::batch(engine, (0..20).map(|_| request()).collect());
    let outcome = |answer: Result<Response, Declined>| {
        answer.map(drop).map_err(|declined| declined.fallback())
    };
    answers.into_iter().map(outcome).collect()
}

#[test]
fn a_wrong_secret_is_found_in_the_passes_that_are_checked() {
    let all = engine(1);
    let mut requests: Vec<Box<dyn Fn() -> Request>> = Vec::new();
    for kem in Kem::ALL {
        let pair = direct::keypair(&all, KeyKind::Kem(kem)).unwrap();
        let key = Arc::new(KemKey::of_pair(kem, &pair).unwrap());
        let public = Bytes::from_slice(key.public());
        let encapsulate = move || {
            Request::Encapsulate(EncapsulateInput {
                kem,
                public: public.clone(),
                coins: None,
            })
        };
        let Ok(Response::Encapsulated(sent)) = direct::blocking(&all, encapsulate()) else {
            panic!("nothing was encapsulated");
        };
        requests.push(Box::new(encapsulate));
        requests.push(Box::new(move || {
            Request::Decapsulate(DecapsulateInput {
                key: key.clone(),
                ciphertext: sent.ciphertext.clone(),
            })
        }));
    }
    plant(WRONG_KEM_LANES);
    for request in &requests {
        let found = outcomes(&all, request);
        assert_eq!(found[0], Err(Fallback::CheckFailed));
        assert!(found[1..].iter().all(Result::is_ok), "{found:?}");
        // With this number of passes none is checked.
        let none = outcomes(&engine(u32::MAX / 4), request);
        assert!(none.iter().all(Result::is_ok), "{none:?}");
    }
}
