//! Key encapsulation through the engine: every mechanism on all lanes, bad inputs, the pool, and
//! machines without lanes.

use std::sync::Arc;

use lockstep_engine::{
    Backend, BackendChoice, Bytes, Config, DecapsulateInput, Declined, EncapsulateInput,
    Encapsulated, Engine, Failed, Kem, KemKey, KeyKind, Lone, Request, Response, Secret, Shape,
    direct,
};
use lockstep_testkit::hex;

fn engine_on(backend: Backend) -> Engine {
    Engine::new(Config {
        backend: BackendChoice::Named(backend),
        slots: 2,
        check_every: 1,
        ..Config::default()
    })
}

fn key(engine: &Engine, kem: Kem) -> Arc<KemKey> {
    let pair = direct::keypair(engine, KeyKind::Kem(kem)).unwrap();
    Arc::new(KemKey::of_pair(kem, &pair).unwrap())
}

fn encapsulation(key: &KemKey) -> Request {
    encapsulation_to(key.kem(), key.public())
}

fn encapsulation_to(kem: Kem, public: &[u8]) -> Request {
    Request::Encapsulate(EncapsulateInput {
        kem,
        public: Bytes::from_slice(public),
        coins: None,
    })
}

fn decapsulation(key: &Arc<KemKey>, ciphertext: &[u8]) -> Request {
    Request::Decapsulate(DecapsulateInput {
        key: Arc::clone(key),
        ciphertext: Bytes::from_slice(ciphertext),
    })
}

fn encapsulated(response: Result<Response, Declined>) -> Encapsulated {
    match response {
        Ok(Response::Encapsulated(made)) => made,
        other => panic!("nothing was encapsulated: {other:?}"),
    }
}

fn secret(response: Result<Response, Declined>) -> Secret {
    match response {
        Ok(Response::Secret(secret)) => secret,
        other => panic!("no secret: {other:?}"),
    }
}

#[test]
fn both_sides_have_the_same_secret_at_every_fill_on_all_lanes() {
    for backend in Backend::available() {
        let engine = engine_on(backend);
        for kem in Kem::ALL {
            for count in [1, 2, 3, 8, 9, 17, 64] {
                // Fewer on slow lanes.
                if backend == Backend::PORTABLE && count > 9 {
                    continue;
                }
                let keys: Vec<_> = (0..count).map(|_| key(&engine, kem)).collect();
                let requests = keys.iter().map(|key| encapsulation(key)).collect();
                let sent: Vec<_> = direct::batch(&engine, requests)
                    .into_iter()
                    .map(encapsulated)
                    .collect();
                let requests = keys.iter().zip(&sent);
                let requests = requests.map(|(key, sent)| decapsulation(key, &sent.ciphertext));
                let found = direct::batch(&engine, requests.collect()).into_iter();
                for (sent, found) in sent.iter().zip(found.map(secret)) {
                    assert_eq!(sent.ciphertext.len(), kem.ciphertext_bytes());
                    assert_eq!(sent.secret.as_bytes().len(), kem.shared_bytes());
                    assert_eq!(
                        sent.secret.as_bytes(),
                        found.as_bytes(),
                        "{backend:?} {kem:?}"
                    );
                }
            }
        }
        let counters = engine.metrics();
        assert_eq!((counters.fallbacks(), counters.failed_checks), (0, 0));
    }
}

/// All lanes receive the secrets that any of them has sent, also with given randomness of ML-KEM.
#[test]
fn all_lanes_agree() {
    let engines: Vec<_> = Backend::available().into_iter().map(engine_on).collect();
    for kem in Kem::ALL {
        let key = key(&engines[0], kem);
        for sender in &engines {
            let sent = encapsulated(direct::blocking(sender, encapsulation(&key)));
            for receiver in &engines {
                let request = decapsulation(&key, &sent.ciphertext);
                let found = secret(direct::blocking(receiver, request));
                assert_eq!(found.as_bytes(), sent.secret.as_bytes());
            }
        }
    }
    let key = KemKey::from_seed(Kem::MlKem768, &[7; Kem::SEED_BYTES]).unwrap();
    let made = engines.iter().map(|engine| {
        let request = Request::Encapsulate(EncapsulateInput {
            kem: Kem::MlKem768,
            public: Bytes::from_slice(key.public()),
            coins: Some(Secret::new(&[9; Kem::COINS_BYTES])),
        });
        encapsulated(direct::blocking(engine, request))
    });
    let made: Vec<_> = made.collect();
    for one in &made[1..] {
        assert_eq!(*one.ciphertext, *made[0].ciphertext);
        assert_eq!(one.secret.as_bytes(), made[0].secret.as_bytes());
    }
}

#[test]
fn a_key_is_the_same_however_it_came() {
    let engine = engine_on(Backend::available()[0]);
    for kem in Kem::ALL {
        let made = key(&engine, kem);
        let copy = KemKey::new(kem, made.private()).unwrap();
        assert_eq!(copy.public(), made.public(), "{kem:?}");
        assert!(copy.has_private(made.private()) && !copy.has_private(&made.private()[1..]));
        // A wrong length, and a wrong hash of the public key in ML-KEM's key.
        assert!(KemKey::new(kem, &made.private()[1..]).is_err());
        let mut wrong = made.private().to_vec();
        let at = wrong.len() / 2;
        wrong[at] ^= 1;
        assert!(KemKey::new(kem, &wrong).is_err(), "{kem:?}");
        assert_eq!(made.seed().is_some(), !kem.is_hybrid());
        assert!(KemKey::from_seed(kem, &[1; 63]).is_err());
    }
    for kem in [Kem::MlKem512, Kem::MlKem768, Kem::MlKem1024] {
        let made = key(&engine, kem);
        let again = KemKey::from_seed(kem, made.seed().unwrap()).unwrap();
        assert!(again.has_private(made.private()));
    }
}

#[test]
fn a_scalar_of_a_nist_curve_is_from_1_to_the_order_less_1() {
    let engine = engine_on(Backend::available()[0]);
    for (kem, order) in [
        (
            Kem::SecP256r1MlKem768,
            "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        ),
        (
            Kem::SecP384r1MlKem1024,
            "ffffffffffffffffffffffffffffffffffffffffffffffff\
             c7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        ),
    ] {
        let made = key(&engine, kem);
        let order = hex(order);
        let last = order.len() - 1;
        let with_end = |end| [&order[..last], &[end]].concat();
        for (scalar, is_one) in [
            (vec![0; last + 1], false),
            ([&vec![0; last][..], &[1]].concat(), true),
            (with_end(order[last] - 1), true),
            (order.clone(), false),
            (with_end(order[last] + 1), false),
            (vec![0xff; last + 1], false),
        ] {
            let private = [&scalar, &made.private()[last + 1..]].concat();
            assert_eq!(KemKey::new(kem, &private).is_ok(), is_one, "{scalar:x?}");
        }
    }
}

/// Returns the lengths of a scalar and of a point before ML-KEM's bytes.
fn ahead(kem: Kem) -> (usize, usize) {
    match kem {
        Kem::SecP256r1MlKem768 => (32, 65),
        Kem::SecP384r1MlKem1024 => (48, 97),
        _ => (0, 0),
    }
}

/// A coefficient of the private key is changed. The hash of the public key is right, so the key is
/// accepted, and receives no secret that is sent to it.
#[test]
fn a_pair_whose_keys_do_not_belong_together_is_found() {
    let engine = engine_on(Backend::available()[0]);
    for kem in Kem::ALL {
        let made = key(&engine, kem);
        assert!(made.is_pair(), "{kem:?}");
        assert!(KemKey::new(kem, made.private()).unwrap().is_pair());
        let (start, _) = ahead(kem);
        // The coefficient may be too large then.
        let mut wrong = (start..start + 9).filter_map(|at| {
            let mut private = made.private().to_vec();
            private[at] ^= 1;
            KemKey::new(kem, &private).ok()
        });
        let wrong = wrong.next().expect("a key that is taken");
        assert_eq!(wrong.public(), made.public());
        assert!(!wrong.is_pair(), "{kem:?}");
    }
}

#[test]
fn a_point_that_is_not_on_its_curve_is_found() {
    let engine = engine_on(Backend::available()[0]);
    for kem in Kem::ALL {
        let made = key(&engine, kem);
        assert!(kem.is_valid_public_key(made.public()), "{kem:?}");
        assert!(!kem.is_valid_public_key(&made.public()[1..]));
        let mut other = made.public().to_vec();
        let (_, point) = ahead(kem);
        let has_point = point != 0;
        let end = if has_point { point } else { other.len() };
        other[end - 1] ^= 1;
        assert!(kem.is_public_key(&other));
        assert_eq!(kem.is_valid_public_key(&other), !has_point, "{kem:?}");
        // Another form of a point.
        other[end - 1] ^= 1;
        other[0] = if has_point { 5 } else { other[0] };
        assert_eq!(kem.is_valid_public_key(&other), !has_point, "{kem:?}");
    }
}

#[test]
fn bad_inputs_harm_nobody_else() {
    for backend in Backend::available() {
        let engine = engine_on(backend);
        for kem in Kem::ALL {
            let good = key(&engine, kem);
            let (_, at) = ahead(kem);
            let mut large = good.public().to_vec();
            large[at + 300..at + 303].fill(0xff);
            let short = &good.public()[1..];
            let long = [good.public(), &[0]].concat();
            for public in [&large[..], short, &long, &[]] {
                assert!(!kem.is_public_key(public));
                let bad = encapsulation_to(kem, public);
                let requests = vec![encapsulation(&good), bad, encapsulation(&good)];
                let mut answers = direct::batch(&engine, requests).into_iter();
                let sent = encapsulated(answers.next().unwrap());
                let declined = answers.next().unwrap();
                assert!(
                    matches!(declined, Err(Declined::Failed(Failed::BadKey))),
                    "{declined:?}"
                );
                encapsulated(answers.next().unwrap());
                let requests = vec![
                    decapsulation(&good, &sent.ciphertext[1..]),
                    decapsulation(&good, &sent.ciphertext),
                ];
                let mut answers = direct::batch(&engine, requests).into_iter();
                let declined = answers.next().unwrap();
                assert!(
                    matches!(declined, Err(Declined::Failed(Failed::BadKey))),
                    "{declined:?}"
                );
                let found = secret(answers.next().unwrap());
                assert_eq!(found.as_bytes(), sent.secret.as_bytes());
            }
            assert!(kem.is_public_key(good.public()));
        }
        // A point of small order, and one that is on no curve.
        for (kem, place) in [
            (Kem::X25519MlKem768, 1184..1216),
            (Kem::SecP256r1MlKem768, 1..65),
            (Kem::SecP384r1MlKem1024, 1..97),
        ] {
            let good = key(&engine, kem);
            let mut public = good.public().to_vec();
            public[place].fill(0);
            let requests = vec![encapsulation_to(kem, &public), encapsulation(&good)];
            let mut answers = direct::batch(&engine, requests).into_iter();
            let declined = answers.next().unwrap();
            assert!(
                matches!(declined, Err(Declined::Failed(Failed::BadPoint))),
                "{declined:?}"
            );
            encapsulated(answers.next().unwrap());
        }
        assert_eq!(engine.metrics().failed_checks, 0);
    }
}

/// A changed ciphertext gives a random secret.
#[test]
fn a_changed_ciphertext_gives_another_secret() {
    let engine = engine_on(Backend::available()[0]);
    let key = key(&engine, Kem::MlKem768);
    let sent = encapsulated(direct::blocking(&engine, encapsulation(&key)));
    for place in (0..sent.ciphertext.len()).step_by(111) {
        let mut changed = sent.ciphertext.to_vec();
        changed[place] ^= 0x10;
        let find = || secret(direct::blocking(&engine, decapsulation(&key, &changed)));
        let found = find();
        assert_ne!(found.as_bytes(), sent.secret.as_bytes());
        assert_eq!(found.as_bytes(), find().as_bytes());
    }
}

#[test]
fn pairs_come_from_the_pool_and_a_servers_share_takes_its_curves() {
    let engine = Engine::new(Config {
        backend: BackendChoice::Named(Backend::available()[0]),
        slots: 1,
        key_pool: 8,
        ..Config::default()
    });
    let kem = Kem::X25519MlKem768;
    let first = key(&engine, kem);
    for _ in 0..7 {
        assert!(direct::pooled_keypair(&engine, KeyKind::Kem(kem)).is_some());
    }
    assert!(direct::pooled_keypair(&engine, KeyKind::Kem(kem)).is_none());
    // Eight pairs of X25519 went into them; the next are made by a share, which takes one.
    let of_curve = || direct::pooled_keypair(&engine, KeyKind::X25519);
    while of_curve().is_some() {}
    encapsulated(direct::blocking(&engine, encapsulation(&first)));
    let mut left = 0;
    while of_curve().is_some() {
        left += 1;
    }
    assert_eq!(left, 7);
}

#[test]
fn without_lanes_key_encapsulation_is_all_that_is_served() {
    for (backend, lone) in [
        (BackendChoice::None, Lone::Auto),
        (BackendChoice::None, Lone::Stock),
    ] {
        let engine = Engine::new(Config {
            backend,
            lone,
            slots: 1,
            ..Config::default()
        });
        assert!(engine.backend().is_none());
        for kem in Kem::ALL {
            let key = key(&engine, kem);
            let sent = encapsulated(direct::blocking(&engine, encapsulation(&key)));
            let request = decapsulation(&key, &sent.ciphertext);
            let found = secret(direct::blocking(&engine, request));
            assert_eq!(found.as_bytes(), sent.secret.as_bytes());
        }
        for shape in Shape::ALL {
            assert_eq!(
                engine.declines_all(shape).is_none(),
                shape.is_kem(),
                "{shape:?}"
            );
        }
        assert!(direct::pooled_keypair(&engine, KeyKind::X25519).is_none());
    }
}
