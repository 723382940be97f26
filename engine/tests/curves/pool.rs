//! The pool of key pairs.

use super::*;

#[test]
fn the_pool_gives_every_pair_once() {
    let engine = engine();
    for kind in KeyKind::ALL {
        let pairs: Vec<Keypair> = thread::scope(|scope| {
            let take = || {
                (0..50)
                    .map(|_| direct::keypair(&engine, kind).unwrap())
                    .collect::<Vec<_>>()
            };
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            takers
                .into_iter()
                .flat_map(|taker| taker.join().unwrap())
                .collect()
        });
        let publics: BTreeSet<_> = pairs.iter().map(|pair| pair.public.to_vec()).collect();
        let secrets: BTreeSet<_> = pairs.iter().map(|pair| pair.secret.as_bytes()).collect();
        assert_eq!((publics.len(), secrets.len()), (200, 200));
        let counters = engine.metrics();
        assert_eq!(counters.operations_of(Shape::Keypair(kind)), 200);
    }
    let counters = engine.metrics();
    assert!(
        counters.pool_hits > 300 && counters.pool_refills >= 9,
        "{counters:?}"
    );
    assert_eq!(counters.operations(), 200 * KeyKind::ALL.len() as u64);
}

#[test]
fn one_caller_pays_for_one_pass_in_many() {
    let engine = Engine::new(Config {
        key_pool: 8,
        ..config()
    });
    for _ in 0..80 {
        direct::keypair(&engine, KeyKind::X25519).unwrap();
    }
    let counters = engine.metrics();
    assert_eq!(
        (counters.batches, counters.pool_refills, counters.pool_hits),
        (10, 10, 70)
    );
}

#[test]
fn submitted_requests_fill_the_pool_too() {
    let engine = engine();
    let kind = KeyKind::Nist(Curve::P384);
    assert!(direct::pooled_keypair(&engine, kind).is_none());
    let ticket = direct::submit(&engine, Request::Keypair(kind), Box::new(Silent)).unwrap();
    assert!(matches!(ticket.take(), Ok(Response::Keypair(_))));
    assert!(direct::pooled_keypair(&engine, kind).is_some());
    engine.wipe_after_fork();
    assert!(direct::pooled_keypair(&engine, kind).is_none());
    assert!(direct::keypair(&engine, kind).is_ok(), "it is filled again");
}

#[test]
fn a_pool_that_is_off_keeps_nothing() {
    let engine = Engine::new(Config {
        key_pool: 0,
        ..config()
    });
    for kind in KeyKind::ALL {
        direct::keypair(&engine, kind).unwrap();
        assert!(direct::pooled_keypair(&engine, kind).is_none());
    }
    let counters = engine.metrics();
    assert_eq!(
        (counters.pool_hits, counters.pool_refills, counters.passes),
        (0, 0, KeyKind::ALL.len() as u64)
    );
}
