//! Traces of a key after an operation: in vector registers, on stacks, and in the ordinary heap of
//! a program that keeps keys in OpenSSL's secure heap.

use std::collections::BTreeMap;

use crate::common::{Finished, Place, has_ifma};

#[test]
fn an_operation_leaves_nothing_of_its_key_in_registers_and_on_the_stack() {
    // Portable lanes are arrays on the stack, and OpenSSL's own curves leave parts of keys in
    // registers.
    if !has_ifma() {
        return;
    }
    let place = Place::new();
    let program = place.compile("left_behind");
    // The linker stores vector registers on the stack when it looks for a function at its first
    // call, and the program's own copies of keys leave parts of them there.
    let process = place.program(&program, "").with_lockstep();
    let finished = process.env("LD_BIND_NOW", "1").succeed();
    let text = finished.text();
    let mut seen = 0;
    for line in text.lines() {
        // In registers and on the stack, after the first use of the key and after another one.
        assert!(line.ends_with(" 0 0 0 0"), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 14, "{finished}");
    let counters = finished.counters();
    for shape in [
        "rsa1024",
        "rsa4096",
        "p384-sign",
        "x25519",
        "x25519mlkem768-client",
    ] {
        assert!(counters.of(shape) > 0, "no {shape}: {counters:?}");
    }
}

/// Returns the number of copies of a secret in the ordinary heap, by operation.
fn copies(finished: &Finished) -> BTreeMap<String, u64> {
    let text = finished.text();
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .map(|(what, count)| (what.to_owned(), count.parse().expect("a number")))
        .collect()
}

#[test]
fn a_program_with_a_secure_heap_has_no_more_copies_of_keys_in_the_ordinary_one() {
    let place = Place::new();
    let program = place.compile("secure_heap");
    let keys = ["rsa2048", "p256", "p384", "ed25519", "x25519"];
    let files = keys.map(|key| place.key(key)).join(" ");
    for order in ["before", "after"] {
        let arguments = format!("{order} {files}");
        let stock = copies(&place.program(&program, &arguments).succeed());
        let finished = place
            .program(&program, &arguments)
            .with_lockstep()
            .succeed();
        let ours = copies(&finished);
        assert_eq!(ours.len(), stock.len(), "{finished}");
        for (what, count) in &ours {
            // OpenSSL's own import of a key that was read copies it, if the module was there before
            // the secure heap.
            if (order, &**what) == ("after", "used x25519.pem priv") {
                continue;
            }
            assert!(
                count <= &stock[what],
                "{order}, {what}: {count}, stock {}",
                stock[what]
            );
        }
        // Lanes make key pairs all the same.
        let counters = finished.counters();
        assert!(counters.of("p256-keygen") > 0, "{counters:?}");
        assert!(counters.of("p256-sign") > 0, "{counters:?}");
        assert_eq!(counters.of("rsa2048"), 0, "{counters:?}");
    }
}
