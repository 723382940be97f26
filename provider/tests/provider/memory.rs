//! The memory that a process keeps with the module when its work is done.

use crate::common::{Finished, Place};

/// At once, of each kind: threads, threads with small stacks, jobs. As many stacks as the module
/// keeps.
const AT_ONCE: u64 = 64;

/// Maximum anonymous memory beyond OpenSSL alone, in KiB: the engine with two slots, its workers,
/// kept stacks and keys, and the loading of the module.
const MOST: i64 = 2048;

#[test]
fn an_engine_at_rest_keeps_at_most_two_mib() {
    let place = Place::with_settings(&[("slots", "2")]);
    let program = place.compile("memory");
    let shapes = ["rsa2048", "rsa4096", "p384-sign", "ed25519-sign"];
    let files = shapes.map(|shape| place.key(shape.trim_end_matches("-sign")));
    let arguments = format!("{AT_ONCE} {}", files.join(" "));
    // Otherwise most of the memory lies in the threads' own arenas, and its size varies by chance.
    let process = || {
        place
            .program(&program, &arguments)
            .env("MALLOC_ARENA_MAX", "1")
    };
    let kib = |finished: &Finished| -> i64 {
        let text = finished.text();
        text.trim().parse().unwrap_or_else(|_| panic!("{finished}"))
    };
    let stock = kib(&process().succeed());
    let ours = process().with_lockstep().succeed();
    let counters = ours.counters();
    for shape in shapes {
        assert_eq!(counters.of(shape), 3 * AT_ONCE, "{shape}: {counters:?}");
    }
    let more = kib(&ours) - stock;
    println!("at rest: {more} KiB more than the {stock} KiB with OpenSSL alone");
    assert!(
        more <= MOST,
        "{more} KiB more than the {stock} KiB with OpenSSL alone"
    );
}
