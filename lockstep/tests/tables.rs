//! The memory of tables of keys. No other test changes the memory of this process.

use std::sync::Barrier;
use std::thread;

use lockstep::{Algorithm, PublicKey, Reason, Scheme, ToVerify, Workers, rows};

/// A million frequent keys must not take a table each, in one call or in several at once.
#[test]
fn tables_have_a_bound() {
    const CALLS: usize = 4;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").expect("a process");
        let pages = status.split(' ').nth(1).expect("a number");
        4096 * pages.parse::<usize>().expect("a number")
    };
    let workers = Workers::new();
    let pairs = workers.generate_many(Algorithm::P384, 1600).expect("keys");
    let publics = pairs.publics().iter().map(|raw| raw.expect("a key"));
    let publics = publics.map(|raw| PublicKey::from_raw(Algorithm::P384, raw).expect("a key"));
    let keys: Vec<_> = publics.collect();
    let before = resident();
    let barrier = Barrier::new(CALLS);
    // The tables of each call have 47 MB: all of them would have 189 MB.
    let verify = |keys: &[PublicKey]| {
        // Signatures of a wrong length: the lanes check none of them.
        let items = rows(70 * keys.len(), |number| {
            ToVerify::new(&keys[number % keys.len()], b"text", b"no signature")
        });
        barrier.wait();
        let verdicts = workers.verify_many(Scheme::ES384, &items);
        let verdicts = verdicts.expect("a scheme");
        let refused = Err(Reason::MalformedSignature);
        assert!(verdicts.iter().all(|verdict| *verdict == refused));
    };
    thread::scope(|scope| {
        for keys in keys.chunks(keys.len() / CALLS) {
            scope.spawn(|| verify(keys));
        }
    });
    let grown = resident().saturating_sub(before);
    assert!(grown < 96 << 20, "{grown} bytes");
    assert!(grown > 30 << 20, "no tables were made: {grown} bytes");
}
